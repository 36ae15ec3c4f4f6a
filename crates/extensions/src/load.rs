//! Loads custom tools and plugins into a host. The user's own files and those of the project run in
//! separate processes, so that a project's file cannot act under the name of another one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Notifier, seen_settings};
use super::feed::Feed;
use super::host::{Listener, PluginHost, ScriptOrigin};
use super::lint::{MistypedPart, PartKind};
use super::packages;
use super::runtime::STAND_IN;
use super::tool::{CustomTool, Home};
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
    Session,
    /// Checks whether the files load, without calling any function of a plugin.
    Check,
    /// Logs in, without calling loaders, which need a login that may not exist yet.
    Login,
}

/// The loaded scripts and their host.
pub(super) struct LoadedScripts {
    pub(super) host: Arc<PluginHost>,
    pub(super) tools: Vec<CustomTool>,
    /// The files that handle each hook.
    pub(super) hooks: BTreeMap<String, Vec<String>>,
    /// The plugins that are not loaded and that might have refused calls.
    pub(super) lost: Vec<LostPlugin>,
    /// The files that could not be loaded: name, message, stack.
    pub(super) errors: Vec<(String, String, String)>,
    /// The hooks and tools that have no effect because of their type.
    pub(super) wrong: Vec<MistypedPart>,
    /// The programs that cannot run the host, and why.
    pub(super) unable: Vec<String>,
    pub(super) runtime: String,
    /// The events for the host, once a plugin of it receives them.
    pub(super) feed: OnceLock<Feed>,
    /// The additions of plugins to the settings.
    pub(super) added: Vec<Contribution>,
}

/// A plugin that is not loaded and that might have refused calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LostPlugin {
    pub(super) name: String,
    /// The hooks in which it might have refused them.
    hooks: Vec<&'static str>,
}

/// Returns the plugin among these that might have refused a call in this hook.
pub(super) fn lost_guard<'a>(lost: &'a [LostPlugin], hook: &str) -> Option<&'a str> {
    lost.iter()
        .find(|plugin| plugin.hooks.contains(&hook))
        .map(|plugin| plugin.name.as_str())
}

/// Returns those of the scripts that might have refused calls.
pub(super) async fn lost_plugins(scripts: impl Iterator<Item = &ScriptEntry>) -> Vec<LostPlugin> {
    let scripts: Vec<ScriptEntry> = scripts.cloned().collect();
    if scripts.is_empty() {
        return Vec::new();
    }
    let unread: Vec<LostPlugin> = scripts
        .iter()
        .filter(|script| script.kind == ScriptKind::Plugin)
        .map(|script| LostPlugin {
            name: script.name.clone(),
            hooks: GUARDS.to_vec(),
        })
        .collect();
    let of_all = base::task::spawn_blocking(move || {
        let one = |script: &ScriptEntry| LostPlugin {
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

/// Returns the sentence about the calls that lost plugins might have refused; empty if there are
/// none.
pub(super) fn describe_lost_calls(lost: &[LostPlugin]) -> String {
    if lost.is_empty() {
        return String::new();
    }
    let names: Vec<String> = lost
        .iter()
        .map(|plugin| text::title(&plugin.name))
        .collect();
    let names = names.join(", ");
    format!(" You are asked about each call that {names} might have refused.")
}

/// Returns the reason why a file is not loaded, for a line of text: longer than a title, because it
/// may name commands.
pub fn reason(why: &str) -> String {
    const MAX_CHARS: usize = 400;
    text::cut_chars(&text::escaped(why.trim()), MAX_CHARS)
}

/// Starts a host and loads these files into it. Problems are reported to `notifier`.
///
/// # Errors
/// Returns the reason why there is no host, or the host's error.
pub(super) async fn load(
    (scripts, origin): (&[ScriptEntry], ScriptOrigin),
    purpose: LoadPurpose,
    listener: Arc<dyn Listener>,
    (notifier, home): (&dyn Notifier, &Weak<dyn Home>),
    context: &ToolContext,
) -> Result<LoadedScripts, Failure> {
    let (host, unable) = PluginHost::start(context, listener).await?;
    for why in &unable {
        tracing::warn!("extensions do not run in {why}");
    }
    let changed = changed_packages(scripts, context).await;
    let stale = stale_files(scripts, &changed).await;
    let left_out: BTreeSet<&str> = changed.iter().chain(&stale).map(String::as_str).collect();
    let params = params((scripts, origin), &left_out, purpose, context);
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
    let known = |file: &String| scripts.iter().any(|script| script.name == *file);
    let mut hooks = BTreeMap::<String, Vec<String>>::new();
    let mut added = Vec::new();
    for one in list("hooks") {
        let file = text(&one, "file");
        if !known(&file) {
            continue;
        }
        let names = one
            .get("names")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        for name in names.iter().filter_map(Value::as_str) {
            hooks.entry(name.to_owned()).or_default().push(file.clone());
        }
        let changes = one.get("added").cloned().unwrap_or_default();
        let (contribution, dropped) =
            Contribution::of(&file, origin == ScriptOrigin::Project, &changes);
        added.extend(contribution);
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
    let lost = lost_plugins(
        scripts
            .iter()
            .filter(|script| unloaded.contains(&script.name)),
    )
    .await;
    let consequence_of = |file: &str| {
        let one = lost.iter().find(|plugin| plugin.name == file);
        describe_lost_calls(one.map_or(&[], std::slice::from_ref))
    };
    for name in &stale {
        let title = format!(
            "{} has changed since it was checked, so it is not loaded now.{}",
            text::title(name),
            consequence_of(name)
        );
        notifier.notify(Severity::Warning, title, None);
    }
    let changed = changed.into_iter().map(|name| {
        let why = format!(
            "its files in {} are not those that were installed; delete them, and install it again",
            cache.display()
        );
        (name, why, String::new())
    });
    let errors: Vec<_> = failed
        .iter()
        .map(|e| {
            let message = text(e, "message");
            let why = match e.get("hook").and_then(Value::as_str) {
                Some(hook) => format!("its hook {hook} failed: {message}"),
                None => message,
            };
            (text(e, "file"), why, text(e, "stack"))
        })
        .chain(changed)
        .collect();
    report_errors(&errors, &lost, notifier);
    let wrong: Vec<_> = list("wrong")
        .iter()
        .filter_map(MistypedPart::of)
        .filter(|part| known(&part.file))
        .collect();
    report_wrong(&wrong, notifier);
    report_unused(&hooks, notifier);
    let tools = list("tools")
        .iter()
        .filter_map(|listed| CustomTool::of(listed, origin, home))
        .collect();
    tracing::info!("extensions are loaded with {}", text(&loaded, "runtime"));
    Ok(LoadedScripts {
        host,
        tools,
        hooks,
        lost,
        errors,
        wrong,
        unable,
        runtime: text(&loaded, "runtime"),
        feed: OnceLock::new(),
        added,
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

/// Reports the files that could not be loaded, those with the same reason together.
fn report_errors(
    errors: &[(String, String, String)],
    lost: &[LostPlugin],
    notifier: &dyn Notifier,
) {
    let mut by_reason: Vec<(&str, Vec<&str>, &str)> = Vec::new();
    for (file, why, stack) in errors {
        notifier.failed(file, why.clone());
        match by_reason.iter_mut().find(|(known, ..)| known == why) {
            Some((_, files, _)) => files.push(file),
            None => by_reason.push((why, vec![file], stack)),
        }
    }
    for (why, files, stack) in by_reason {
        let lost: Vec<LostPlugin> = lost
            .iter()
            .filter(|plugin| files.contains(&plugin.name.as_str()))
            .cloned()
            .collect();
        let names: Vec<String> = files.iter().map(|file| text::title(file)).collect();
        let title = format!("{} could not be loaded: {}", names.join(", "), reason(why));
        let consequence = describe_lost_calls(&lost);
        let title = if consequence.is_empty() {
            title
        } else {
            format!("{}.{consequence}", title.trim_end_matches('.'))
        };
        notifier.notify(Severity::Warning, title, Some(stack.to_owned()));
    }
}

/// Reports the hooks and tools that have no effect because of their type.
fn report_wrong(wrong: &[MistypedPart], notifier: &dyn Notifier) {
    for part in wrong {
        let file = text::title(&part.file);
        let name = text::title(&part.named());
        let title = match part.kind {
            PartKind::Hook => format!("The hook {name} of the plugin {file} {}.", part.mistake()),
            PartKind::Tool => format!("The {name} of {file} {}.", part.mistake()),
        };
        notifier.notify(Severity::Warning, title, None);
    }
}

/// Returns the names of the packages in adjutant's cache whose files are not those that were
/// installed. The user's consent covers those.
async fn changed_packages(scripts: &[ScriptEntry], context: &ToolContext) -> BTreeSet<String> {
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

/// Returns the names of the files that have changed since the settings were read. Packages that
/// have changed since they were installed are not among them.
async fn stale_files(scripts: &[ScriptEntry], changed: &BTreeSet<String>) -> Vec<String> {
    let all: Vec<String> = scripts.iter().map(|script| script.name.clone()).collect();
    let scripts = scripts.to_vec();
    let changed = changed.clone();
    let stale = base::task::spawn_blocking(move || stale_now(&scripts, &changed));
    stale.await.unwrap_or(all)
}

fn stale_now(scripts: &[ScriptEntry], changed: &BTreeSet<String>) -> Vec<String> {
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

/// Returns the request that loads the files, except those that are `left_out`.
fn params(
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
        "config": seen_settings(&context.project.settings), "standIn": STAND_IN,
        "known": HOOKS, "check": purpose == LoadPurpose::Check, "login": purpose == LoadPurpose::Login,
    })
}

/// Notifies the user of hooks that have no effect.
fn report_unused(hooks: &BTreeMap<String, Vec<String>>, notifier: &dyn Notifier) {
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
