//! Loading custom tools and plugins into a host. Those of the user's own and those of the project have a process
//! each: what a project's may not do, it cannot do in the name of another file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Teller, seen_settings};
use super::host::{Listener, PluginHost, STAND_IN, ScriptOrigin};
use super::tool::{CustomTool, Home};
use base::text;
use config::contribution::Contribution;
use config::script::{self, HOOKS, ScriptEntry, ScriptKind};
use events::Severity;
use tools::{Failure, ToolContext};

/// How long all files may take for being loaded.
const LOAD: Duration = Duration::from_secs(45);

/// What is done with the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadPurpose {
    Session,
    /// To see whether they load: no function of a plugin is called.
    Check,
    /// To log in: no loader is asked for a login that may not be there yet.
    Login,
}

/// What has been loaded, and where it runs.
pub(super) struct LoadedScripts {
    pub(super) host: Arc<PluginHost>,
    pub(super) tools: Vec<CustomTool>,
    /// Which files hook into which hook.
    pub(super) hooks: BTreeMap<String, Vec<String>>,
    /// What could not be loaded: file, words, stack.
    pub(super) errors: Vec<(String, String, String)>,
    pub(super) runtime: String,
    /// What plugins add to the settings.
    pub(super) added: Vec<Contribution>,
}

/// Starts a host and has it load these files; `teller` hears what is wrong with them.
///
/// # Errors
/// Why there is no host, or what it says.
pub(super) async fn load(
    (scripts, origin): (&[ScriptEntry], ScriptOrigin),
    purpose: LoadPurpose,
    listener: Arc<dyn Listener>,
    (teller, home): (&dyn Teller, &Weak<dyn Home>),
    context: &ToolContext,
) -> Result<LoadedScripts, Failure> {
    let host = PluginHost::start(context, listener).await?;
    let params = params((scripts, origin), purpose, teller, context);
    let loaded = host.request("load", params, LOAD).await.map_err(|e| Failure::Tell(e.to_string()))?;
    let list = |key: &str| loaded.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let words = |of: &Value, key: &str| of.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let known = |file: &String| scripts.iter().any(|script| script.name == *file);
    let (mut hooks, mut added) = (BTreeMap::<String, Vec<String>>::new(), Vec::new());
    for one in list("hooks") {
        let file = words(&one, "file");
        if !known(&file) {
            continue;
        }
        let names = one.get("names").and_then(Value::as_array).cloned().unwrap_or_default();
        for name in names.iter().filter_map(Value::as_str) {
            hooks.entry(name.to_owned()).or_default().push(file.clone());
        }
        let changes = one.get("added").cloned().unwrap_or_default();
        let (contribution, dropped) = Contribution::of(&file, origin == ScriptOrigin::Project, &changes);
        added.extend(contribution);
        if !dropped.is_empty() {
            let (file, keys) = (text::title(&file), text::title(&dropped.join(", ")));
            let title = format!("The plugin {file} may not set {keys}: put it into the settings yourself.");
            teller.tell(Severity::Info, title, None);
        }
    }
    let errors: Vec<_> =
        list("errors").iter().map(|e| (words(e, "file"), words(e, "message"), words(e, "stack"))).collect();
    for (file, why, stack) in &errors {
        teller.failed(file, why.clone());
        let title = format!("{} could not be loaded: {}", text::title(file), text::title(why));
        teller.tell(Severity::Warning, title, Some(stack.clone()));
    }
    tell_unused(&hooks, teller);
    let tools = list("tools").iter().filter_map(|said| CustomTool::of(said, origin, home)).collect();
    tracing::info!("extensions are loaded with {}", words(&loaded, "runtime"));
    Ok(LoadedScripts { host, tools, hooks, errors, runtime: words(&loaded, "runtime"), added })
}

/// What a host is told of the files it is to load. One that has changed since it was looked at is left out.
fn params(
    (scripts, origin): (&[ScriptEntry], ScriptOrigin),
    purpose: LoadPurpose,
    teller: &dyn Teller,
    context: &ToolContext,
) -> Value {
    let mut files = Vec::new();
    for script in scripts {
        let manifest = script.path.join("package.json");
        let file = if script.package { &manifest } else { &script.path };
        if script::stamp(file) != script.stamp {
            let title = format!("{} has changed since it was looked at, so it is not loaded now.", script.name);
            teller.tell(Severity::Warning, title, None);
            continue;
        }
        let kind = if script.kind == ScriptKind::Tool { "tool" } else { "plugin" };
        files.push(json!({
            "id": script.name, "kind": kind, "path": script.path, "package": script.package, "options": script.options,
        }));
    }
    let root = &context.project.worktree.root;
    // What strips types runs there, too: nothing of a project for what is the user's own, or where nobody trusts it.
    let trusted = context.project.settings.trusted && origin == ScriptOrigin::Project;
    let places = context.project.settings.directories.iter().filter(|dir| trusted || !dir.project);
    let own = Some(root).filter(|_| trusted);
    let bases: Vec<PathBuf> = places.map(|dir| dir.path.clone()).chain(own.cloned()).collect();
    json!({
        "directory": context.project.cwd, "worktree": root, "files": files, "bases": bases,
        "project": { "id": root, "worktree": root, "vcs": root.join(".git").exists().then_some("git"), "time": { "created": 0 } },
        "config": seen_settings(&context.project.settings), "standIn": STAND_IN,
        "check": purpose == LoadPurpose::Check, "login": purpose == LoadPurpose::Login,
    })
}

/// Says which hooks of plugins nothing follows from.
fn tell_unused(hooks: &BTreeMap<String, Vec<String>>, teller: &dyn Teller) {
    let mut unused: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, files) in hooks.iter().filter(|(name, _)| !HOOKS.contains(&name.as_str())) {
        for file in files.iter().filter(|_| name.contains('.')) {
            unused.entry(file).or_default().push(name);
        }
    }
    for (file, names) in unused {
        let (file, names) = (text::title(file), text::title(&names.join(", ")));
        teller.tell(Severity::Info, format!("The plugin {file} hooks into {names}, which has no effect here."), None);
    }
}
