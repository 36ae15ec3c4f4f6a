//! What the user wants. [`load`] reads every layer of settings, checks each on its own, joins them
//! and says what is wrong with them; it never fails. Nothing here runs, fetches or writes anything,
//! and no user's file is ever changed.

pub(crate) mod builtin;
mod covered;
pub mod declare;
mod decode;
pub mod disk;
mod examples;
pub mod file;
mod jsonc;
mod layers;
mod legacy;
mod loosen;
pub mod markdown;
pub mod node;
pub mod problem;
pub mod provider;
pub mod remote;
mod resolve;
pub(crate) mod roster;
mod rules;
pub mod settings;
pub mod show;
mod substitute;
#[cfg(test)]
mod tests;
pub mod trust;

use std::path::{Path, PathBuf};

pub use declare::{schema, schema_text, table};
pub use disk::Fingerprint;
pub use problem::{Problem, Severity, nearest};
pub use settings::Settings;
pub use show::{check, show};

use crate::environment::Environment;
use crate::message::ModelRef;
use crate::permission::Rules;
use crate::worktree::Worktree;
use disk::Disk;
use layers::Told;
use node::{Entry, Layer, Node, Origin, Place, Value};

/// Settings, and what there is to say about them.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What holds.
    pub settings: Settings,
    /// What is wrong, in the order it was found.
    pub problems: Vec<Problem>,
    /// What the project asks for beyond what an untrusted one may have.
    pub trust: trust::Review,
    /// Everything that was looked at, to notice a change.
    pub fingerprint: Fingerprint,
    /// The joined tree, where every value knows who said it.
    tree: Node,
    /// The texts that were read, lowest layer first.
    origins: Vec<std::sync::Arc<Origin>>,
}

impl Loaded {
    /// The joined tree.
    pub fn tree(&self) -> &Node {
        &self.tree
    }

    /// Whether a file that was looked at is different by now.
    pub fn is_stale(&self) -> bool {
        self.fingerprint.is_stale()
    }

    /// The files that were read, lowest layer first.
    pub fn files(&self) -> Vec<PathBuf> {
        let paths = self.origins.iter().filter_map(|origin| origin.path.as_ref());
        paths.map(|path| path.to_path_buf()).collect()
    }

    /// Whether any value is not used because it is wrong.
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// The errors that were not among those of an earlier reading. Where a reload has any, the earlier
    /// settings are kept and these are told, once.
    pub fn errors_since<'a>(&'a self, before: &'a [Problem]) -> impl Iterator<Item = &'a Problem> {
        let told = |problem: &&Problem| {
            let same = |old: &Problem| {
                (&old.place.origin, &old.key, &old.message) == (&problem.place.origin, &problem.key, &problem.message)
            };
            problem.severity == Severity::Error && !before.iter().any(same)
        };
        self.problems.iter().filter(told)
    }

    /// What is odd about the rules, over all layers; what each file alone shows is among `problems`.
    pub fn odd_rules(&self, environment: &Environment) -> Vec<Problem> {
        let told = |problem: &Problem| {
            let same = |old: &Problem| old.key == problem.key && old.message.contains("never decides");
            problem.message.contains("never decides") && self.problems.iter().any(same)
        };
        let mut odd = rules::odd(&self.tree, environment.home.as_deref());
        odd.retain(|problem| !told(problem));
        odd
    }

    /// Models the settings name that do not exist. `known` are all there are, as `provider/model`;
    /// `exists` decides, because a provider may take models nobody listed.
    pub fn unknown_models(&self, exists: &dyn Fn(&ModelRef) -> bool, known: &[String]) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut look = |way: &[&str]| {
            let Some(node) = self.tree.at(way) else { return };
            let Some(model) = node.as_text().and_then(ModelRef::parse).filter(|model| !exists(model)) else { return };
            let problem = Problem::error(&node.at, way.join("."), format!("there is no model {model}"));
            let near = problem.nearest(&model.to_string(), known.iter().map(String::as_str));
            problems.push(if near.hint.is_some() { near } else { near.hint("`adjutant models` lists what there is") });
        };
        look(&["model"]);
        look(&["small_model"]);
        for agent in &self.settings.agents {
            look(&["agent", &agent.name, "model"]);
        }
        for command in &self.settings.commands {
            look(&["command", &command.name, "model"]);
        }
        problems
    }
}

/// Reads the settings that hold in a directory. Reads files, and blocks while it does.
pub fn load(environment: &Environment, worktree: &Worktree, cwd: &Path) -> Loaded {
    let declared = resolve::Declarations::new();
    let mut disk = Disk::new(environment, worktree);
    let (mut told, directories) = layers::read(&mut disk, &declared, cwd);

    // What the user says without the project: a project may tighten it, never undo a deny of it.
    let alone = join(told.iter().filter(|told| !told.origin.project));

    let items = trust::review(&told, &disk.uses, environment, worktree, cwd);
    let digest = trust::digest(&items);
    for file in items.iter().flat_map(|item| &item.covered.files) {
        disk.look(file).ok();
    }
    let everywhere = alone.get("trust").and_then(Node::as_text) == Some("all")
        || environment.setting("TRUST").is_some_and(|value| value == "all");
    let store = trust::Store::path(environment);
    disk.look(&store).ok();
    let decision = match (items.is_empty(), everywhere) {
        (true, _) => trust::Decision::Nothing,
        (false, true) => trust::Decision::Trusted,
        (false, false) => trust::Store::open(environment).decision(&worktree.root, &digest),
    };
    let trust = trust::Review { items, digest, decision };
    if trust.is_withheld() {
        trust::strip(&mut told, &disk.uses, environment, worktree);
    }

    let tree = join(told.iter());
    let mut problems = disk.problems;
    let mut settings = resolve::settings(&tree, environment, &mut problems);
    settings.trust_all |= everywhere;
    settings.trusted = everywhere || trust.decision == trust::Decision::Trusted;
    let narrowed = told.iter().filter(|told| told.origin.project).filter_map(|told| told.node.get("sandbox"));
    if narrowed.clone().count() > 0
        && !narrowed.clone().any(trust::widens)
        && let Some(own) = alone.get("sandbox")
    {
        // A word of the project replaces an object of the user's; what that forbade stays forbidden.
        let own = resolve::sandbox(own);
        settings.sandbox.network = settings.sandbox.network.or(own.network.filter(|open| !open));
        settings.sandbox.writable = own.writable;
    }
    settings.directories = directories;
    loosen::keep_denies(&mut settings, &told, &alone, environment.home.as_deref());
    for command in &mut settings.commands {
        let template = tree.at(&["command", &command.name, "template"]);
        command.untrusted = trust.is_withheld() && template.is_some_and(|node| node.at.origin.project);
        let said = |key| tree.at(&["command", &command.name, key]).is_some_and(|node| node.at.origin.project);
        command.lent = !settings.trusted && (said("agent") || said("subtask"));
    }
    let origins = told.into_iter().map(|told| told.origin).collect();
    Loaded { settings, problems, trust, fingerprint: disk.seen, tree, origins }
}

fn join<'a>(told: impl Iterator<Item = &'a Told>) -> Node {
    let nothing = Origin { name: "built in".into(), path: None, layer: Layer::BuiltIn, project: false };
    let mut tree = Node::empty(Place::whole(&std::sync::Arc::new(nothing)));
    for told in told {
        if told.origin.project {
            keep_defaults(&mut tree, &told.node);
        }
        node::merge(&mut tree, told.node.clone());
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
        for parts in permission.entries().iter().filter(|entry| matches!(entry.node.value, Value::Map(_))) {
            let Some(own) =
                way.iter().chain([&parts.key.as_str()]).try_fold(&mut *under, |node, key| node.get_mut(key))
            else {
                continue;
            };
            if let Value::Text(_) = own.value {
                let at = own.at.clone();
                let default = Entry { key: "*".into(), at: at.clone(), node: own.clone() };
                *own = Node { value: Value::Map(vec![default]), at };
            }
        }
    }
}

/// Rules as `permission` in a settings file says them: for editors and stores that keep such values
/// apart from files.
pub fn rules_of(json: &str, source: &str, environment: &Environment) -> Result<Rules, Problem> {
    let origin = Origin { name: source.to_owned(), path: None, layer: Layer::Inline, project: false };
    let mut problems = Vec::new();
    let node = jsonc::parse(json, &std::sync::Arc::new(origin), &mut problems)?;
    match problems.into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(rules::rules(&node, environment.home.as_deref())),
    }
}
