//! What the user wants. [`load`] reads every layer of settings, checks each on its own, joins them
//! and says what is wrong with them; it never fails. Nothing here runs, fetches or writes anything,
//! and no user's file is ever changed.

pub mod builtin;
pub mod claude;
pub mod contribution;
mod covered;
pub mod declare;
mod decode;
pub mod disk;
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
mod narrow;
pub mod node;
pub mod problem;
pub mod reference;
pub mod remote;
mod resolve;
pub mod roster;
mod rules;
pub mod script;
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
pub use disk::ConfigFingerprint;
pub use problem::{Problem, ProblemCode, ProblemSeverity};

pub use settings::Settings;
pub use show::{check, show};

use base::environment::Environment;
use base::worktree::Worktree;
use contribution::Contribution;
use disk::ConfigReader;
use layers::ParsedLayer;
use node::{ConfigOrigin, Layer, MapEntry, Node, NodeValue, SourceLocation};
use transcript::ModelRef;

/// Settings, and what there is to say about them.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub settings: Settings,
    /// What is wrong, in the order it was found.
    pub problems: Vec<Problem>,
    /// What the project asks for beyond what an untrusted one may have.
    pub trust: trust::Review,
    /// Everything that was looked at, to notice a change.
    pub fingerprint: ConfigFingerprint,
    /// The joined tree, where every value knows who said it.
    tree: Node,
    /// The texts that were read, lowest layer first.
    origins: Vec<std::sync::Arc<ConfigOrigin>>,
}

/// Returns the permission that a name stands for, as the rules of settings read it, for a test of tools.
#[cfg(any(test, feature = "testing"))]
pub fn meant_permission(name: &str) -> Option<&'static str> {
    rules::meant_permission(name)
}

impl Loaded {
    #[cfg(test)]
    pub(crate) fn tree(&self) -> &Node {
        &self.tree
    }

    /// Whether a file that was looked at is different by now.
    #[cfg(test)]
    pub(crate) fn is_stale(&self) -> bool {
        self.fingerprint.is_stale()
    }

    /// The files that were read, lowest layer first.
    pub fn files(&self) -> Vec<PathBuf> {
        let paths = self.origins.iter().filter_map(|origin| origin.path.as_ref());
        paths.map(|path| path.to_path_buf()).collect()
    }

    /// Whether any value is not used because it is wrong.
    #[cfg(any(test, feature = "testing"))]
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == ProblemSeverity::Error)
    }

    /// The errors, and the problems that may hide a deny, that were not among those of an earlier reading. Where a reload has any, the earlier
    /// settings are kept and these are reported, once.
    pub fn errors_since<'a>(&'a self, before: &'a [Problem]) -> impl Iterator<Item = &'a Problem> {
        let is_new = |problem: &&Problem| {
            let same = |old: &Problem| {
                (&old.location.origin, &old.key, &old.message)
                    == (&problem.location.origin, &problem.key, &problem.message)
            };
            (problem.severity == ProblemSeverity::Error || problem.can_hide_deny) && !before.iter().any(same)
        };
        self.problems.iter().filter(is_new)
    }

    /// The models that the settings name, each with where.
    pub fn named_models(&self) -> Vec<(ModelRef, &SourceLocation, String)> {
        let agents = self.settings.agents.iter().map(|agent| ["agent", agent.name.as_str(), "model"]);
        let commands = self.settings.commands.iter().map(|command| ["command", command.name.as_str(), "model"]);
        let inner = agents.chain(commands).map(|way| way.to_vec());
        let ways = [vec!["model"], vec!["small_model"]].into_iter().chain(inner);
        ways.filter_map(|way| {
            let node = self.tree.at(&way)?;
            Some((ModelRef::parse(node.as_text()?)?, &node.at, way.join(".")))
        })
        .collect()
    }
}

/// Reads the settings that hold in a directory. Reads files, and blocks while it does.
pub fn load(environment: &Environment, worktree: &Worktree, cwd: &Path) -> Loaded {
    load_with(environment, worktree, cwd, &[])
}

/// The same, with what plugins add to it.
pub fn load_with(environment: &Environment, worktree: &Worktree, cwd: &Path, contributions: &[Contribution]) -> Loaded {
    let mut disk = ConfigReader::new(environment, worktree);
    let layers::LayersRead { mut layers, contributed, directories, mut scripts } =
        layers::read(&mut disk, cwd, contributions);
    let tools = rules::ToolNames::of(layers.iter().map(|layer| (&layer.node, layer.origin.project)), &scripts);
    trust::drop_doubles(&mut layers, &mut disk.problems);
    trust::drop_idle(&mut layers);

    // What the user says without the project: a project may tighten it, never undo a deny of it.
    let alone = join(layers.iter().filter(|layer| !layer.origin.project));

    trust::reads::drop_readable(&mut disk.uses, &alone, environment, worktree, cwd);
    let mut items = trust::review(&layers, &alone, &disk.uses, environment, worktree, cwd);
    items.extend(trust::hooks::meant(&alone, worktree, cwd));
    items.extend(trust::scripts::items(&scripts, worktree));
    let everywhere = alone.get("trust").and_then(Node::as_text) == Some("all")
        || environment.setting("TRUST").is_some_and(|value| value == "all");
    let (trust, lost_guards) = answered(items, everywhere, &layers, &scripts, &mut disk);
    if trust.is_withheld() {
        trust::strip(&mut layers, &disk.uses, environment, worktree);
        scripts.retain(|script| !script.project);
    }
    if trust.is_pure {
        drop_extensions(&mut layers, &mut scripts, &mut disk.problems);
    }
    let (below, contributed) = contributed;
    let counts = |layer: &ParsedLayer| !(layer.origin.project && trust.is_withheld());
    layers.splice(below..below, contributed.into_iter().filter(counts));

    let mut tree = join(layers.iter());
    let mut problems = disk.problems;
    narrow::keep_lists(&mut tree, &alone, &mut problems);
    let tools = tools.without_project(trust.is_withheld());
    problems.extend(rules::odd(&tree, &tools, environment.home.as_deref(), &worktree.root, &problems));
    problems.extend(reference::problems(&tree, environment, worktree));
    problems.extend(withheld(&trust));
    let mut settings = resolve::settings(&tree, environment, &mut problems);
    for problem in &mut problems {
        problem.can_hide_deny |= lost_denies::is_possible(problem);
    }
    problems.extend(trust.unread_answers.clone());
    settings.unread = problems.iter().filter(|problem| problem.can_hide_deny).cloned().collect();
    settings.trust_all |= everywhere;
    settings.trusted = everywhere || trust.decision == trust::Decision::Trusted;
    keep_sandbox(&mut settings, &layers, &alone);
    settings.directories = directories;
    settings.scripts = scripts;
    for hook in settings.hooks.iter_mut().filter(|_| trust.is_withheld()) {
        let has_changed = trust.items.iter().any(|item| item.key.strip_prefix("hook.") == Some(&hook.name));
        hook.withheld = (!hook.project && has_changed).then_some(hook::UNTRUSTED);
    }
    problems.extend(lost_guards.iter().map(|guard| guard.problem.clone()));
    settings.hooks.extend(lost_guards.into_iter().filter_map(|guard| guard.hook));
    loosen::keep_denies(&mut settings, &layers, &alone, environment.home.as_deref());
    for command in &mut settings.commands {
        let template = tree.at(&["command", &command.name, "template"]);
        command.untrusted = trust.is_withheld() && template.is_some_and(|node| node.at.origin.project);
        let said = |key| tree.at(&["command", &command.name, key]).is_some_and(|node| node.at.origin.project);
        command.lent = !settings.trusted && (said("agent") || said("subtask"));
    }
    let origins = layers.into_iter().map(|layer| layer.origin).collect();
    Loaded { settings, problems, trust, fingerprint: disk.seen, tree, origins }
}

/// Returns what the user has answered to what the project asks for, with the guards that were trusted and do not hold.
fn answered(
    items: Vec<trust::TrustItem>,
    everywhere: bool,
    layers: &[ParsedLayer],
    scripts: &[script::ScriptEntry],
    disk: &mut ConfigReader,
) -> (trust::Review, Vec<trust::guards::LostGuard>) {
    let (environment, root) = (disk.environment, &disk.worktree.root);
    let digest = trust::digest(&items);
    for file in items.iter().flat_map(|item| &item.covered.files) {
        disk.seen.look(file).ok();
    }
    let path = trust::TrustStore::path(environment);
    disk.seen.look(&path).ok();
    let answers = trust::TrustStore::open(environment);
    let is_pure = environment.setting("PURE").is_some_and(resolve::on);
    let can_ask = !everywhere && !is_pure;
    let guards = trust::guards::guards(&items, &join(layers.iter()), scripts);
    let mut lost = match can_ask {
        true => trust::guards::lost(&items, &digest, &guards, answers.entry(root)),
        false => Vec::new(),
    };
    let mut unread_answers = answers.problem(disk::shown(&path, disk.worktree, environment));
    let mut decision = match (items.is_empty(), everywhere) {
        (true, _) if can_ask && !(lost.is_empty() && unread_answers.is_none()) => trust::Decision::Unasked,
        (true, _) => trust::Decision::Nothing,
        (false, true) => trust::Decision::Trusted,
        (false, false) => answers.decision(root, &digest),
    };
    let mut trust = trust::Review { items, digest, decision, is_pure, guards, ..trust::Review::default() };
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
        let keys = lost.iter().filter(|guard| guard.is_changed == is_changed).map(|guard| guard.problem.key.clone());
        keys.collect()
    };
    (trust.changed_guards, trust.gone_guards) = (keys(true), keys(false));
    (trust.decision, trust.unread_answers) = (decision, unread_answers);
    (trust, lost)
}

/// Takes out all hooks, custom tools and plugins, as the user wants it for this process.
fn drop_extensions(layers: &mut [ParsedLayer], scripts: &mut Vec<script::ScriptEntry>, problems: &mut Vec<Problem>) {
    for layer in layers {
        layer.node.take("hook");
    }
    for script in scripts.drain(..) {
        let text = "not loaded: ADJUTANT_PURE or OPENCODE_PURE is set";
        problems.push(Problem::note(ProblemCode::NoEffect, &script.place, script.name, text));
    }
}

/// A project that narrows the sandbox narrows the user's own: its word replaces an object of theirs, and what that
/// forbade stays forbidden.
fn keep_sandbox(settings: &mut Settings, layers: &[ParsedLayer], alone: &Node) {
    let narrowed = layers.iter().filter(|layer| layer.origin.project).filter_map(|layer| layer.node.get("sandbox"));
    if narrowed.clone().count() == 0 || narrowed.clone().any(trust::widens) {
        return;
    }
    if let Some(own) = alone.get("sandbox").map(resolve::sandbox) {
        settings.sandbox.network = settings.sandbox.network.or(own.network.filter(|open| !open));
        settings.sandbox.writable = own.writable;
        settings.sandbox.unattended &= own.unattended;
    }
}

/// What stands in the project's files and waits for trust.
fn withheld(trust: &trust::Review) -> impl Iterator<Item = Problem> {
    let items = trust.items.iter().filter(|_| trust.is_withheld());
    items.map(|item| {
        let text = format!("not used until you trust this project: {}", item.detail);
        Problem::note(ProblemCode::Untrusted, &item.place, item.key.as_str(), text)
    })
}

fn join<'a>(layers: impl Iterator<Item = &'a ParsedLayer>) -> Node {
    let nothing = ConfigOrigin { name: "built in".into(), path: None, layer: Layer::BuiltIn, project: false };
    let mut tree = Node::empty(SourceLocation::whole(&std::sync::Arc::new(nothing)));
    for layer in layers {
        if layer.origin.project {
            keep_defaults(&mut tree, &layer.node);
        }
        node::merge(&mut tree, layer.node.clone());
    }
    tree
}

/// What the user says about a whole permission stays the default for what a project says about parts of
/// it: `"ask"` under `{"git push*": "deny"}` is `{"*": "ask", "git push*": "deny"}`.
fn keep_defaults(under: &mut Node, over: &Node) {
    let general = over.get("permission").map(|permission| (vec!["permission"], permission));
    let agents = over.get("agent").map(Node::entries).unwrap_or_default().iter();
    let agents = agents
        .filter_map(|agent| Some((vec!["agent", agent.key.as_str(), "permission"], agent.node.get("permission")?)));
    for (way, permission) in general.into_iter().chain(agents) {
        for parts in permission.entries().iter().filter(|entry| matches!(entry.node.value, NodeValue::Map(_))) {
            let Some(own) =
                way.iter().chain([&parts.key.as_str()]).try_fold(&mut *under, |node, key| node.get_mut(key))
            else {
                continue;
            };
            if let NodeValue::Text(_) = own.value {
                let at = own.at.clone();
                let default = MapEntry { key: "*".into(), at: at.clone(), node: own.clone() };
                *own = Node { value: NodeValue::Map(vec![default]), at };
            }
        }
    }
}
