//! What the user wants. [`load`] reads every layer of settings, checks each on its own, joins them
//! and says what is wrong with them; it never fails. Nothing here runs, fetches or writes anything,
//! and no user's file is ever changed.

pub mod declare;
mod decode;
pub mod disk;
mod examples;
pub mod file;
mod jsonc;
mod layers;
mod legacy;
pub mod markdown;
pub mod node;
pub mod problem;
pub mod provider;
pub mod remote;
mod resolve;
mod rules;
pub mod settings;
pub mod show;
mod substitute;
#[cfg(test)]
mod tests;
pub mod trust;
pub mod unseen;

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
use node::{Layer, Node, Origin, Place};

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
    let home = environment.home.as_deref();

    // What the user says without the project: a project may tighten it, never undo a deny of it.
    let alone = join(told.iter().filter(|told| !told.origin.project));
    let user = alone.get("permission").map(|node| rules::rules(node, home)).unwrap_or_default();

    let items = trust::review(&told, &disk.uses, &user, worktree, home);
    let digest = trust::digest(&items);
    for file in items.iter().flat_map(|item| &item.named.files) {
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
        for told in told.iter_mut().filter(|told| told.origin.project) {
            trust::strip(told, &disk.uses, &user, worktree);
        }
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
    if told.iter().any(|told| told.origin.project && told.node.get("permission").is_some()) {
        settings.permission = std::mem::take(&mut settings.permission).then(&rules::denies_kept(&user));
    }
    for agent in &mut settings.agents {
        let own = |told: &&Told| told.node.at(&["agent", &agent.name, "permission"]).is_some();
        if told.iter().filter(|told| told.origin.project).any(|told| own(&told)) {
            let own = alone.at(&["agent", &agent.name, "permission"]).map(|node| rules::rules(node, home));
            agent.rules = std::mem::take(&mut agent.rules).then(&rules::denies_kept(&own.unwrap_or_default()));
        }
    }
    for command in &mut settings.commands {
        let template = tree.at(&["command", &command.name, "template"]);
        command.untrusted = trust.is_withheld() && template.is_some_and(|node| node.at.origin.project);
    }
    let origins = told.into_iter().map(|told| told.origin).collect();
    Loaded { settings, problems, trust, fingerprint: disk.seen, tree, origins }
}

fn join<'a>(told: impl Iterator<Item = &'a Told>) -> Node {
    let nothing = Origin { name: "built in".into(), path: None, layer: Layer::BuiltIn, project: false };
    let mut tree = Node::empty(Place::whole(&std::sync::Arc::new(nothing)));
    for told in told {
        node::merge(&mut tree, told.node.clone());
    }
    tree
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
