//! User and project settings. [`load`] reads every layer, checks each one, joins them and reports
//! their problems; it never fails. This crate runs and fetches nothing. It changes no file but
//! adjutant's own, and only for commands of the user ([`own_file`]).

pub mod agent_rules;
pub mod builtin;
pub mod claude;
pub mod contribution;
pub mod declare;
mod decode;
mod examples;
pub mod file;
pub mod formatter;
pub mod hook;
mod insert;
mod jsonc;
pub mod language_server;
pub mod layers;
mod legacy;
mod loosen;
mod lost_denies;
pub mod markdown;
pub mod mcp;
pub mod node;
pub mod own_file;
pub mod package;
pub mod problem;
mod provider_lists;
pub mod reader;
pub mod reference;
pub mod remote;
mod resolve;
mod rules;
pub mod script;
mod script_inputs;
pub mod serve;
pub mod settings;
pub mod show;
mod store;
mod substitute;
#[cfg(test)]
mod tests;
pub mod trust;

use std::path::{Path, PathBuf};

#[cfg(test)]
use declare::keys::{lean_text, table};
pub use declare::schema_text;
pub use problem::{Problem, ProblemCode, ProblemSeverity};
pub use reader::ConfigFingerprint;
pub use rules::denial;
pub use settings::Settings;
pub use show::{Setting, check, setting, show};

use base::environment::Environment;
use base::worktree::Worktree;
use contribution::Contribution;
use layers::ParsedLayer;
use node::{ConfigOrigin, Layer, MapEntry, Node, NodeValue, SourceLocation};
use reader::ConfigReader;
use transcript::ModelRef;

/// Settings, with their problems.
#[derive(Debug, Clone)]
pub struct LoadedSettings {
    pub settings: Settings,
    /// The problems, in the order they were found.
    pub problems: Vec<Problem>,
    /// The parts of the project's settings that need trust.
    pub trust: trust::Review,
    /// The hooks, custom tools and plugins that a variable switches off, with their kinds.
    pub pure: Vec<(&'static str, String)>,
    /// The packages that the settings name as plugins and that are not installed.
    pub missing_packages: Vec<package::MissingPackage>,
    /// The custom tools and plugins that cannot be loaded.
    pub unusable_scripts: Vec<package::UnusableScript>,
    /// The state of every file that was examined, to detect changes.
    pub fingerprint: ConfigFingerprint,
    /// The joined tree; every value has its location.
    tree: Node,
    /// The sources that were read, lowest layer first.
    origins: Vec<std::sync::Arc<ConfigOrigin>>,
}

/// Returns the permission that a name stands for, as the rules of settings read it, for a test of tools.
#[cfg(any(test, feature = "testing"))]
pub fn meant_permission(name: &str) -> Option<&'static str> {
    rules::meant_permission(name)
}

impl LoadedSettings {
    #[cfg(test)]
    pub(crate) fn tree(&self) -> &Node {
        &self.tree
    }

    /// Returns whether a file that was examined has changed since.
    #[cfg(test)]
    pub(crate) fn is_stale(&self) -> bool {
        self.fingerprint.is_stale()
    }

    /// Returns the files that were read, lowest layer first.
    pub fn files(&self) -> Vec<PathBuf> {
        let paths = self
            .origins
            .iter()
            .filter_map(|origin| origin.path.as_ref());
        paths.map(|path| path.to_path_buf()).collect()
    }

    /// Returns whether any value is not used because of an error.
    #[cfg(any(test, feature = "testing"))]
    pub fn has_errors(&self) -> bool {
        self.problems
            .iter()
            .any(|problem| problem.severity == ProblemSeverity::Error)
    }

    /// Returns the errors, and the problems that may hide a deny, that an earlier load did not
    /// have. If a reload has any, the earlier settings stay in use and these problems are reported
    /// once.
    pub fn errors_since<'a>(&'a self, before: &'a [Problem]) -> impl Iterator<Item = &'a Problem> {
        let is_new = |problem: &&Problem| {
            let is_same = |old: &Problem| {
                old.location.origin == problem.location.origin
                    && old.key == problem.key
                    && old.message == problem.message
            };
            (problem.severity == ProblemSeverity::Error || problem.can_hide_deny)
                && !before.iter().any(is_same)
        };
        self.problems.iter().filter(is_new)
    }

    /// Returns the entries of a section that the settings switch off by a key of this name, with
    /// the location of each.
    pub fn switched_off(&self, section: &str, key: &str) -> Vec<(String, &SourceLocation)> {
        let entries = self
            .tree
            .get(section)
            .map(Node::entries)
            .unwrap_or_default();
        let is_off = |entry: &&MapEntry| {
            let value = entry.node.get(key).map(|node| &node.value);
            matches!(value, Some(NodeValue::Bool(true)))
        };
        entries
            .iter()
            .filter(is_off)
            .map(|entry| (entry.key.clone(), &entry.at))
            .collect()
    }

    /// Returns the models that the settings name, with the location and key of each.
    pub fn named_models(&self) -> Vec<(ModelRef, &SourceLocation, String)> {
        let agents = self
            .settings
            .agents
            .iter()
            .map(|agent| ["agent", agent.name.as_str(), "model"]);
        let commands = self
            .settings
            .commands
            .iter()
            .map(|command| ["command", command.name.as_str(), "model"]);
        let inner = agents.chain(commands).map(|path| path.to_vec());
        let paths = [vec!["model"], vec!["small_model"]]
            .into_iter()
            .chain(inner);
        let named = paths.filter_map(|path| {
            let node = self.tree.at(&path)?;
            Some((ModelRef::parse(node.as_text()?)?, &node.at, path.join(".")))
        });
        named.collect()
    }
}

/// Reads the settings of a directory. Blocks on file access.
pub fn load(environment: &Environment, worktree: &Worktree, cwd: &Path) -> LoadedSettings {
    load_with(environment, worktree, cwd, &[])
}

/// Reads the settings of a directory, with the settings that plugins add.
pub fn load_with(
    environment: &Environment,
    worktree: &Worktree,
    cwd: &Path,
    contributions: &[Contribution],
) -> LoadedSettings {
    let mut disk = ConfigReader::new(environment, worktree);
    let layers::LayersRead {
        mut layers,
        contributed,
        directories,
        mut scripts,
    } = layers::read(&mut disk, cwd, contributions);
    let tools = rules::ToolNames::of(
        layers
            .iter()
            .map(|layer| (&layer.node, layer.origin.project)),
        &scripts,
    );
    trust::drop_duplicate_hooks(&mut layers, &mut disk.problems);
    trust::drop_idle(&mut layers);

    // The user's settings without the project: a project may tighten them, and never lifts a deny.
    let alone = join(layers.iter().filter(|layer| !layer.origin.project));

    trust::reads::drop_readable(&mut disk.uses, &alone, environment, worktree, cwd);
    let mut items = trust::review(&layers, &alone, &disk.uses, environment, worktree, cwd);
    items.extend(trust::hooks::items(&alone, worktree, cwd));
    items.extend(trust::scripts::items(&scripts, worktree));
    let everywhere = alone.get("trust").and_then(Node::as_text) == Some("all")
        || environment
            .setting("TRUST")
            .is_some_and(|value| value == "all");
    let (mut trust, lost_guards) = answered(items, everywhere, &layers, &scripts, &mut disk);
    let missing_packages = std::mem::take(&mut disk.missing_packages);
    let unusable_scripts = std::mem::take(&mut disk.unusable_scripts);
    trust.not_installed = missing_packages
        .iter()
        .filter(|package| package.project)
        .map(|package| package.spec.clone())
        .collect();
    if trust.is_withheld() {
        trust::strip(&mut layers, &disk.uses, environment, worktree);
        scripts.retain(|script| !script.project);
    }
    let pure = if trust.is_pure {
        drop_extensions(&mut layers, &mut scripts, &mut disk.problems)
    } else {
        Vec::new()
    };
    let (below, contributed) = contributed;
    let is_used = |layer: &ParsedLayer| !(layer.origin.project && trust.is_withheld());
    layers.splice(below..below, contributed.into_iter().filter(is_used));

    let mut tree = join(layers.iter());
    let mut problems = disk.problems;
    provider_lists::restrict_lists(&mut tree, &alone, &mut problems);
    let tools = tools.without_project(trust.is_withheld());
    problems.extend(rules::questionable(
        &tree,
        &tools,
        environment.home.as_deref(),
        &worktree.root,
        &problems,
    ));
    problems.extend(reference::problems(&tree, environment, worktree));
    problems.extend(withheld(&trust));
    let mut settings = resolve::settings(&tree, environment, &mut problems);
    for problem in &mut problems {
        problem.can_hide_deny |= lost_denies::is_possible(problem);
    }
    problems.extend(trust.unread_answers.clone());
    settings.unread = problems
        .iter()
        .filter(|problem| problem.can_hide_deny)
        .cloned()
        .collect();
    settings.trust_all |= everywhere;
    settings.trusted = everywhere || trust.decision == trust::Decision::Trusted;
    keep_sandbox(&mut settings, &layers, &alone);
    settings.directories = directories;
    settings.scripts = scripts;
    if trust.is_withheld() {
        for hook in &mut settings.hooks {
            let has_changed = trust
                .items
                .iter()
                .any(|item| item.key.strip_prefix("hook.") == Some(&hook.name));
            hook.withheld = (!hook.project && has_changed).then_some(hook::UNTRUSTED);
        }
    }
    problems.extend(lost_guards.iter().map(|guard| guard.problem.clone()));
    settings
        .hooks
        .extend(lost_guards.into_iter().filter_map(|guard| guard.hook));
    loosen::keep_denies(&mut settings, &layers, &alone, environment.home.as_deref());
    for command in &mut settings.commands {
        let template = tree.at(&["command", &command.name, "template"]);
        command.untrusted =
            trust.is_withheld() && template.is_some_and(|node| node.at.origin.project);
        let is_projects = |key| {
            tree.at(&["command", &command.name, key])
                .is_some_and(|node| node.at.origin.project)
        };
        command.lent = !settings.trusted && (is_projects("agent") || is_projects("subtask"));
    }
    let origins = layers.into_iter().map(|layer| layer.origin).collect();
    LoadedSettings {
        settings,
        problems,
        trust,
        pure,
        missing_packages,
        unusable_scripts,
        fingerprint: disk.seen,
        tree,
        origins,
    }
}

/// Returns the review of a project's items with the user's answer, and the trusted guards that are
/// no longer in force.
fn answered(
    items: Vec<trust::TrustItem>,
    everywhere: bool,
    layers: &[ParsedLayer],
    scripts: &[script::ScriptEntry],
    disk: &mut ConfigReader,
) -> (trust::Review, Vec<trust::guards::LostGuard>) {
    let environment = disk.environment;
    let root = &disk.worktree.root;
    let digest = trust::digest(&items);
    for file in items.iter().flat_map(|item| &item.covered.files) {
        disk.seen.look(file).ok();
    }
    let path = trust::TrustStore::path(environment);
    disk.seen.look(&path).ok();
    let answers = trust::TrustStore::open(environment);
    let is_pure = environment.setting("PURE").is_some_and(resolve::is_on);
    let can_ask = !everywhere && !is_pure;
    let guards = trust::guards::guards(&items, &join(layers.iter()), scripts);
    let mut lost = if can_ask {
        trust::guards::lost(&items, &digest, &guards, answers.entry(root))
    } else {
        Vec::new()
    };
    let mut unread_answers = answers.problem(reader::shown(&path, disk.worktree, environment));
    let mut decision = match (items.is_empty(), everywhere) {
        (true, _) if can_ask && !(lost.is_empty() && unread_answers.is_none()) => {
            trust::Decision::Unasked
        }
        (true, _) => trust::Decision::Nothing,
        (false, true) => trust::Decision::Trusted,
        (false, false) => answers.decision(root, &digest),
    };
    let mut trust = trust::Review {
        items,
        digest,
        decision,
        is_pure,
        guards,
        ..trust::Review::default()
    };
    if decision == trust::Decision::Unasked && environment.is_declined(&trust.declined_as(root)) {
        decision = trust::Decision::Refused;
    }
    if decision != trust::Decision::Unasked {
        lost.clear();
    }
    if let Some(problem) = &mut unread_answers {
        problem.can_hide_deny = can_ask && decision == trust::Decision::Unasked;
    }
    let keys = |is_changed: bool| {
        let keys = lost
            .iter()
            .filter(|guard| guard.is_changed == is_changed)
            .map(|guard| guard.problem.key.clone());
        keys.collect()
    };
    trust.changed_guards = keys(true);
    trust.gone_guards = keys(false);
    trust.decision = decision;
    trust.unread_answers = unread_answers;
    (trust, lost)
}

/// Removes all hooks, custom tools and plugins, as the environment requests. Returns their kinds and
/// names.
fn drop_extensions(
    layers: &mut [ParsedLayer],
    scripts: &mut Vec<script::ScriptEntry>,
    problems: &mut Vec<Problem>,
) -> Vec<(&'static str, String)> {
    let mut dropped = Vec::new();
    for layer in layers {
        let hooks = layer.node.take("hook");
        let hooks = hooks.as_ref().map(|hooks| hooks.node.entries());
        let hooks = hooks.unwrap_or_default();
        dropped.extend(hooks.iter().map(|entry| ("hook", entry.key.clone())));
    }
    for script in scripts.drain(..) {
        let text = "not loaded: ADJUTANT_PURE or OPENCODE_PURE is set";
        dropped.push((script.kind.as_str(), script.name.clone()));
        problems.push(Problem::note(
            ProblemCode::NoEffect,
            &script.place,
            script.name,
            text,
        ));
    }
    dropped
}

/// Preserves the user's restrictions of the sandbox if a project narrows it: the project's value
/// may replace an object of the user's, whose restrictions stay in force.
fn keep_sandbox(settings: &mut Settings, layers: &[ParsedLayer], alone: &Node) {
    let narrowed = layers
        .iter()
        .filter(|layer| layer.origin.project)
        .filter_map(|layer| layer.node.get("sandbox"));
    if narrowed.clone().count() == 0 || narrowed.clone().any(trust::can_widen) {
        return;
    }
    if let Some(own) = alone.get("sandbox").map(resolve::sandbox) {
        settings.sandbox.network = settings
            .sandbox
            .network
            .or(own.network.filter(|open| !open));
        settings.sandbox.writable = own.writable;
        settings.sandbox.unattended &= own.unattended;
    }
}

/// Returns a note for each withheld item of the project.
fn withheld(trust: &trust::Review) -> Vec<Problem> {
    if !trust.is_withheld() {
        return Vec::new();
    }
    let note = |item: &trust::TrustItem| {
        let text = format!("not used until you trust this project: {}", item.detail);
        Problem::note(ProblemCode::Untrusted, &item.place, item.key.as_str(), text)
    };
    trust.items.iter().map(note).collect()
}

fn join<'a>(layers: impl Iterator<Item = &'a ParsedLayer>) -> Node {
    let built_in = ConfigOrigin {
        name: "built in".into(),
        path: None,
        layer: Layer::BuiltIn,
        project: false,
    };
    let mut tree = Node::empty(SourceLocation::whole(&std::sync::Arc::new(built_in)));
    for layer in layers {
        if layer.origin.project {
            keep_defaults(&mut tree, &layer.node);
        }
        node::merge(&mut tree, layer.node.clone());
    }
    tree
}

/// Keeps the user's value of a whole permission as the default if a project's value has patterns:
/// `"ask"` under `{"git push*": "deny"}` becomes `{"*": "ask", "git push*": "deny"}`.
fn keep_defaults(under: &mut Node, over: &Node) {
    let general = over
        .get("permission")
        .map(|permission| (vec!["permission"], permission));
    let agents = over
        .get("agent")
        .map(Node::entries)
        .unwrap_or_default()
        .iter();
    let agents = agents.filter_map(|agent| {
        Some((
            vec!["agent", agent.key.as_str(), "permission"],
            agent.node.get("permission")?,
        ))
    });
    for (path, permission) in general.into_iter().chain(agents) {
        for parts in permission
            .entries()
            .iter()
            .filter(|entry| matches!(entry.node.value, NodeValue::Map(_)))
        {
            let Some(own) = path
                .iter()
                .chain([&parts.key.as_str()])
                .try_fold(&mut *under, |node, key| node.get_mut(key))
            else {
                continue;
            };
            if let NodeValue::Text(_) = own.value {
                let at = own.at.clone();
                let default = MapEntry {
                    key: "*".into(),
                    at: at.clone(),
                    node: own.clone(),
                };
                *own = Node {
                    value: NodeValue::Map(vec![default]),
                    at,
                };
            }
        }
    }
}
