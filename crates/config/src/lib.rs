//! User and project settings. [`load`] reads every layer, checks each one, joins them and
//! reports their problems; it never fails. This crate runs and fetches nothing. It changes no file
//! but adjutant's own, and only for commands of the user ([`own_file`]).
//!
//! From a file to a value:
//!
//! 1. [`layers`] names the files, lowest layer first; [`reader`] opens them.
//! 2. JSON with comments and YAML become a tree of [`node`]s, each with its file, line and column.
//! 3. `legacy` rewrites old spellings. [`declare`] removes values that do not fit the declarations
//!    of [`file`](mod@file), and reports each as a [`problem`]: a wrong value affects only its key.
//! 4. [`trust`] withholds the parts of a project's settings that run something or loosen a rule
//!    (`loosen`), until the user has agreed.
//! 5. The layers are joined, decoded and resolved into [`Settings`], which has a value for every key
//!    that has a default.
//!
//! [`ConfigFingerprint`] notices later changes of all files that were read or looked for. `show` and
//! `declare` also make the texts that users see: `adjutant config`, the schema, the table of keys.
//!
//! The settings of providers and of language servers are types of those crates, so that a crate
//! with settings needs no other crate's. This crate builds their dependencies (`reqwest`, `oauth2`).

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
mod load;
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
mod script_kind;
pub mod serve;
pub mod settings;
pub mod show;
mod store;
mod substitute;
#[cfg(test)]
mod tests;
pub mod trust;
mod trust_kind;

use std::path::PathBuf;

#[cfg(test)]
use declare::keys::{lean_text, table, user_only};
pub use declare::schema_text;
pub use load::{load, load_with};
pub use problem::{Problem, ProblemCode, ProblemSeverity};
pub use reader::ConfigFingerprint;
pub use rules::{denial, is_misspelt_permission};
pub use settings::Settings;
pub use show::{Setting, check, setting, show, to_json as settings_json};

use layers::ParsedLayer;
use node::{ConfigOrigin, Layer, MapEntry, Node, NodeValue, SourceLocation};
use permission::Action;
use transcript::ModelRef;

/// Settings, with their problems.
#[derive(Debug, Clone)]
pub struct LoadedSettings {
    pub settings: Settings,
    /// The problems, in the order they were found.
    pub problems: Vec<Problem>,
    /// The parts of the project's settings that need trust.
    pub trust: trust::Review,
    /// The hooks, custom tools and plugins that `ADJUTANT_PURE` switches off, with their kinds.
    pub disabled_extensions: Vec<(&'static str, String)>,
    /// The packages that the settings name as plugins and that are not installed.
    pub missing_packages: Vec<package::MissingPackage>,
    /// The custom tools and plugins that cannot be loaded.
    pub unusable_scripts: Vec<package::UnusableScript>,
    /// The formatters and language servers that the settings switch off.
    programs_off: Vec<trust::ProgramOff>,
    /// The state of every file that was examined, to detect changes.
    pub fingerprint: ConfigFingerprint,
    /// The joined tree; every value has its location.
    tree: Node,
    /// The sources that were read, lowest layer first.
    origins: Vec<std::sync::Arc<ConfigOrigin>>,
}

/// Returns the permission that a name means, as the rules of settings read it, for a test of tools.
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
        let mut off: Vec<(String, &SourceLocation)> = entries
            .iter()
            .filter(is_off)
            .map(|entry| (entry.key.clone(), &entry.at))
            .collect();
        // If nothing is switched on, they are not in the tree.
        for (of, name, at) in &self.programs_off {
            let is_known = off.iter().any(|(known, _)| known == name);
            if *of == section && !is_known {
                off.push((name.clone(), at));
            }
        }
        off
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

/// Joins layers, lowest first.
fn join<'a>(layers: impl Iterator<Item = &'a ParsedLayer>) -> Node {
    let built_in = ConfigOrigin {
        name: "built in".into(),
        path: None,
        layer: Layer::BuiltIn,
        project: false,
    };
    let mut tree = Node::empty(SourceLocation::whole_text(&std::sync::Arc::new(built_in)));
    for layer in layers {
        keep_defaults(&mut tree, layer);
        node::merge(&mut tree, layer.node.clone());
    }
    tree
}

/// Keeps the value of a whole permission as the default if the value of a later file has patterns:
/// `"ask"` under `{"git push*": "deny"}` becomes `{"*": "ask", "git push*": "deny"}`. Only a
/// project's file keeps `"allow"`, and a value that its own `"*"` restricts more: in another file,
/// patterns without a default leave it to `"*"`.
fn keep_defaults(under: &mut Node, layer: &ParsedLayer) {
    let over = &layer.node;
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
        let minimum = permission
            .get("*")
            .and_then(Node::as_text)
            .and_then(rules::action);
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
            let action = own.as_text().and_then(rules::action);
            let restricts = action.is_some_and(|action| action != Action::Allow);
            let is_kept = layer.origin.project || restricts && action >= minimum;
            if is_kept && let NodeValue::Text(_) = own.value {
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
