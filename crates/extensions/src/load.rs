//! Loads custom tools and plugins into a `PluginHost`, and reports the files that do not load. The
//! user's own files and those of the project run in separate hosts, so that a project's file cannot act
//! under the name of another one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Notifier, visible_settings};
use super::feed::EventFeed;
use super::host::{HostListener, PluginHost, ScriptOrigin};
use super::lint::{MistypedPart, PartKind};
use super::packages;
use super::runtime::STAND_IN;
use super::tool::{CustomTool, HostProvider};
use base::text;
use config::contribution::Contribution;
use config::package::{self, PackageRecord};
use config::script::{self, GUARDS, HOOKS, ScriptEntry, ScriptKind};
use events::Severity;
use tools::{Failure, ToolContext};

/// The time limit for loading all files.
const LOAD_TIMEOUT: Duration = Duration::from_secs(45);

/// The purpose of loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadPurpose {
    /// Runs the scripts in a session.
    Session,
    /// Checks whether the files load, without calling any function of a plugin.
    Check,
    /// Logs in, without calling loaders, which need a login that may not exist yet.
    Login,
}

/// A file that could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadFailure {
    /// The name of the file.
    pub file: String,
    pub message: String,
    /// The JavaScript stack; empty if there is none.
    pub stack: String,
}

impl LoadFailure {
    /// Decodes the host's report about a file.
    fn decode(report: &Value) -> Self {
        let text = |key: &str| {
            report
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let message = match report.get("hook").and_then(Value::as_str) {
            Some(hook) => format!("its hook {hook} failed: {}", text("message")),
            None => text("message"),
        };
        Self {
            file: text("file"),
            message,
            stack: text("stack"),
        }
    }

    /// Returns the failure of a package whose files in the cache have changed.
    fn of_changed_package(name: String, cache: &Path) -> Self {
        Self {
            file: name,
            message: format!(
                "its files in {} are not those that were installed; delete them, and install it again",
                cache.display()
            ),
            stack: String::new(),
        }
    }
}

/// The loaded scripts of one origin, and their host.
pub(super) struct LoadedScripts {
    pub(super) host: Arc<PluginHost>,
    pub(super) tools: Vec<CustomTool>,
    /// The names of the files that handle each hook, by the name of the hook.
    pub(super) hooks: BTreeMap<String, Vec<String>>,
    /// The plugins that are not loaded and that might have refused calls.
    pub(super) missing_guards: Vec<MissingGuard>,
    pub(super) failures: Vec<LoadFailure>,
    /// The hooks and tools that have no effect because of their type.
    pub(super) mistyped: Vec<MistypedPart>,
    /// The runtimes that cannot run the host, each with the reason.
    pub(super) unusable_runtimes: Vec<String>,
    /// The name and version of the runtime.
    pub(super) runtime: String,
    /// The events for the host; set once one of its plugins subscribes to them.
    pub(super) feed: OnceLock<EventFeed>,
    /// The additions of plugins to the settings.
    pub(super) contributions: Vec<Contribution>,
}

/// A plugin that is not loaded and that might have refused calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MissingGuard {
    pub(super) name: String,
    /// The hooks in which it might have refused them.
    hooks: Vec<&'static str>,
}

/// Returns the name of the first of these plugins that might have refused a call in this hook.
pub(super) fn find_missing_guard<'a>(guards: &'a [MissingGuard], hook: &str) -> Option<&'a str> {
    guards
        .iter()
        .find(|plugin| plugin.hooks.contains(&hook))
        .map(|plugin| plugin.name.as_str())
}

/// Returns those of the scripts, which are not loaded, that might have refused calls. If their source
/// cannot be read, that is every plugin.
pub(super) async fn missing_guards(
    scripts: impl Iterator<Item = &ScriptEntry>,
) -> Vec<MissingGuard> {
    let scripts: Vec<ScriptEntry> = scripts.cloned().collect();
    if scripts.is_empty() {
        return Vec::new();
    }
    let unread: Vec<MissingGuard> = scripts
        .iter()
        .filter(|script| script.kind == ScriptKind::Plugin)
        .map(|script| MissingGuard {
            name: script.name.clone(),
            hooks: GUARDS.to_vec(),
        })
        .collect();
    let of_all = base::task::spawn_blocking(move || {
        let one = |script: &ScriptEntry| MissingGuard {
            name: script.name.clone(),
            hooks: script.guards(),
        };
        let all = scripts.iter().map(one);
        all.filter(|plugin| !plugin.hooks.is_empty()).collect()
    });
    of_all.await.unwrap_or_else(|e| {
        tracing::warn!("the hooks of plugins could not be read: {e}");
        unread
    })
}

/// Returns the sentence about the calls that plugins that are not loaded might have refused; empty if
/// there are no such plugins.
pub(super) fn describe_missing_guards(guards: &[MissingGuard]) -> String {
    if guards.is_empty() {
        return String::new();
    }
    let names: Vec<String> = guards
        .iter()
        .map(|plugin| text::title(&plugin.name))
        .collect();
    let names = names.join(", ");
    format!(" You are asked about each call that {names} might have refused.")
}

/// Returns the reason why a file is not loaded in a form for display. It may be longer than a title,
/// because it may name commands.
pub fn displayed_reason(why: &str) -> String {
    const MAX_CHARS: usize = 400;
    text::cut_chars(&text::escaped(why.trim()), MAX_CHARS)
}

/// Starts a host and loads these files into it. Problems of single files are reported to `notifier`.
///
/// # Errors
/// Returns the reason why no host can be started, the host's error, or [`Failure::Cancelled`].
pub(super) async fn load(
    (scripts, origin): (&[ScriptEntry], ScriptOrigin),
    purpose: LoadPurpose,
    listener: Arc<dyn HostListener>,
    (notifier, host_provider): (&dyn Notifier, &Weak<dyn HostProvider>),
    context: &ToolContext,
) -> Result<LoadedScripts, Failure> {
    let (host, unusable_runtimes) = PluginHost::start(context, listener).await?;
    for why in &unusable_runtimes {
        tracing::warn!("extensions do not run in {why}");
    }
    let changed = find_changed_packages(scripts, context).await;
    let stale = find_stale_files(scripts, &changed).await;
    let left_out: BTreeSet<&str> = changed.iter().chain(&stale).map(String::as_str).collect();
    let params = load_params((scripts, origin), &left_out, purpose, context);
    let loaded = host
        .request("load", params, LOAD_TIMEOUT)
        .await
        .map_err(|e| Failure::ForModel(e.to_string()))?;
    let list = |key: &str| {
        loaded
            .get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let text = |of: &Value, key: &str| {
        of.get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let is_requested = |file: &String| scripts.iter().any(|script| script.name == *file);
    let mut hooks = BTreeMap::<String, Vec<String>>::new();
    let mut contributions = Vec::new();
    for listed in list("hooks") {
        let file = text(&listed, "file");
        if !is_requested(&file) {
            continue;
        }
        let names = listed
            .get("names")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        for name in names.iter().filter_map(Value::as_str) {
            hooks.entry(name.to_owned()).or_default().push(file.clone());
        }
        let changes = listed.get("added").cloned().unwrap_or_default();
        let (contribution, dropped) =
            Contribution::of(&file, origin == ScriptOrigin::Project, &changes);
        contributions.extend(contribution);
        report_dropped(&file, &dropped, notifier);
    }
    let cache = package::cache(&context.project.environment);
    let failed = list("errors");
    // A plugin whose hook for settings or logins failed is loaded all the same.
    let unloaded: BTreeSet<String> = failed
        .iter()
        .filter(|e| e.get("hook").is_none())
        .map(|e| text(e, "file"))
        .chain(changed.iter().chain(&stale).cloned())
        .collect();
    let missing_guards = missing_guards(
        scripts
            .iter()
            .filter(|script| unloaded.contains(&script.name)),
    )
    .await;
    let consequence_of = |file: &str| {
        let guard = missing_guards.iter().find(|plugin| plugin.name == file);
        describe_missing_guards(guard.map_or(&[], std::slice::from_ref))
    };
    for name in &stale {
        let title = format!(
            "{} has changed since it was checked, so it is not loaded now.{}",
            text::title(name),
            consequence_of(name)
        );
        notifier.notify(Severity::Warning, title, None);
    }
    let changed = changed
        .into_iter()
        .map(|name| LoadFailure::of_changed_package(name, &cache));
    let failures: Vec<_> = failed
        .iter()
        .map(LoadFailure::decode)
        .chain(changed)
        .collect();
    report_failures(&failures, &missing_guards, notifier);
    let mistyped: Vec<_> = list("wrong")
        .iter()
        .filter_map(MistypedPart::decode)
        .filter(|part| is_requested(&part.file))
        .collect();
    report_mistyped(&mistyped, notifier);
    report_unknown_hooks(&hooks, notifier);
    let tools = list("tools")
        .iter()
        .filter_map(|listed| CustomTool::decode(listed, origin, host_provider))
        .collect();
    tracing::info!("extensions are loaded with {}", text(&loaded, "runtime"));
    Ok(LoadedScripts {
        host,
        tools,
        hooks,
        missing_guards,
        failures,
        mistyped,
        unusable_runtimes,
        runtime: text(&loaded, "runtime"),
        feed: OnceLock::new(),
        contributions,
    })
}

/// Reports the settings that a plugin of a project may not change.
fn report_dropped(file: &str, dropped: &[String], notifier: &dyn Notifier) {
    if dropped.is_empty() {
        return;
    }
    let file = text::title(file);
    let keys = text::title(&dropped.join(", "));
    let title = format!("The plugin {file} may not set {keys}: put it into the settings yourself.");
    notifier.notify(Severity::Info, title, None);
}

/// Reports the files that could not be loaded, in one notice for each reason.
fn report_failures(
    failures: &[LoadFailure],
    missing_guards: &[MissingGuard],
    notifier: &dyn Notifier,
) {
    let mut by_reason: Vec<(&str, Vec<&str>, &str)> = Vec::new();
    for LoadFailure {
        file,
        message,
        stack,
    } in failures
    {
        notifier.record_failure(file, message.clone());
        match by_reason.iter_mut().find(|(known, ..)| known == message) {
            Some((_, files, _)) => files.push(file),
            None => by_reason.push((message, vec![file], stack)),
        }
    }
    for (why, files, stack) in by_reason {
        let guards: Vec<MissingGuard> = missing_guards
            .iter()
            .filter(|plugin| files.contains(&plugin.name.as_str()))
            .cloned()
            .collect();
        let names: Vec<String> = files.iter().map(|file| text::title(file)).collect();
        let title = format!(
            "{} could not be loaded: {}",
            names.join(", "),
            displayed_reason(why)
        );
        let consequence = describe_missing_guards(&guards);
        let title = if consequence.is_empty() {
            title
        } else {
            format!("{}.{consequence}", title.trim_end_matches('.'))
        };
        notifier.notify(Severity::Warning, title, Some(stack.to_owned()));
    }
}

/// Reports the hooks and tools that have no effect because of their type.
fn report_mistyped(mistyped: &[MistypedPart], notifier: &dyn Notifier) {
    for part in mistyped {
        let file = text::title(&part.file);
        let name = text::title(&part.display_name());
        let title = match part.kind {
            PartKind::Hook => format!("The hook {name} of the plugin {file} {}.", part.mistake()),
            PartKind::Tool => format!("The {name} of {file} {}.", part.mistake()),
        };
        notifier.notify(Severity::Warning, title, None);
    }
}

/// Returns the names of the packages in adjutant's cache whose files are not those that were
/// installed, which the user has agreed to.
async fn find_changed_packages(scripts: &[ScriptEntry], context: &ToolContext) -> BTreeSet<String> {
    let records: Vec<PackageRecord> = scripts
        .iter()
        .filter_map(|script| script.record.clone())
        .collect();
    let all: BTreeSet<String> = records.iter().map(|record| record.spec.clone()).collect();
    if all.is_empty() {
        return all;
    }
    let environment = context.project.environment.clone();
    let changed = base::task::spawn_blocking(move || {
        records
            .into_iter()
            .filter(|record| !packages::is_unchanged(record, &environment).unwrap_or(false))
            .map(|record| record.spec)
            .collect()
    });
    changed.await.unwrap_or(all)
}

/// Returns the names of the files that have changed since the settings were read. `changed` are the
/// packages that have changed since they were installed, which are left out.
async fn find_stale_files(scripts: &[ScriptEntry], changed: &BTreeSet<String>) -> Vec<String> {
    let all: Vec<String> = scripts.iter().map(|script| script.name.clone()).collect();
    let scripts = scripts.to_vec();
    let changed = changed.clone();
    let stale = base::task::spawn_blocking(move || find_stale_files_now(&scripts, &changed));
    stale.await.unwrap_or(all)
}

/// Returns the result of [`find_stale_files`]. Blocks.
fn find_stale_files_now(scripts: &[ScriptEntry], changed: &BTreeSet<String>) -> Vec<String> {
    let is_stale = |script: &&ScriptEntry| {
        let manifest = script.path.join("package.json");
        let file = if script.package {
            &manifest
        } else {
            &script.path
        };
        let is_changed_package = script.record.is_some() && changed.contains(&script.name);
        !is_changed_package && script::digest(file) != script.digest
    };
    scripts
        .iter()
        .filter(is_stale)
        .map(|script| script.name.clone())
        .collect()
}

/// Returns the parameters of the request that loads the files, except those that are `left_out`.
fn load_params(
    (scripts, origin): (&[ScriptEntry], ScriptOrigin),
    left_out: &BTreeSet<&str>,
    purpose: LoadPurpose,
    context: &ToolContext,
) -> Value {
    let mut files = Vec::new();
    for script in scripts {
        if left_out.contains(script.name.as_str()) {
            continue;
        }
        let kind = if script.kind == ScriptKind::Tool {
            "tool"
        } else {
            "plugin"
        };
        files.push(json!({
            "id": script.name, "kind": kind, "path": script.path, "package": script.package, "options": script.options,
        }));
    }
    let root = &context.project.worktree.root;
    // The packages that strip types run in the host as well. So nothing of a project is used for
    // the user's own files, or if the project is not trusted.
    let trusted = context.project.settings.trusted && origin == ScriptOrigin::Project;
    let places = context
        .project
        .settings
        .directories
        .iter()
        .filter(|dir| trusted || !dir.project);
    let own = trusted.then_some(root);
    let bases: Vec<PathBuf> = places
        .map(|dir| dir.path.clone())
        .chain(own.cloned())
        .collect();
    json!({
        "directory": context.project.cwd, "worktree": root, "files": files, "bases": bases,
        // Removes types if neither the runtime nor a package of the project does.
        "program": context.project.environment.program,
        "project": { "id": root, "worktree": root, "vcs": root.join(".git").exists().then_some("git"), "time": { "created": 0 } },
        "config": visible_settings(&context.project.settings), "standIn": STAND_IN,
        "known": HOOKS, "check": purpose == LoadPurpose::Check, "login": purpose == LoadPurpose::Login,
    })
}

/// Reports the hooks that do not exist, so that they have no effect.
fn report_unknown_hooks(hooks: &BTreeMap<String, Vec<String>>, notifier: &dyn Notifier) {
    let mut unused: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, files) in hooks {
        if HOOKS.contains(&name.as_str()) {
            continue;
        }
        for file in files {
            unused.entry(file).or_default().push(name);
        }
    }
    for (file, names) in unused {
        let file = text::title(file);
        let names = text::title(&names.join(", "));
        notifier.notify(
            Severity::Info,
            format!("The plugin {file} hooks into {names}, which has no effect here."),
            None,
        );
    }
}
