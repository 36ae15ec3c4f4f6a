//! Programs that settings start: which of them the user's own settings speak of, and what a project's words do to those.

use std::collections::BTreeSet;

use crate::layers::ParsedLayer;
use crate::node::{MapEntry, Node, NodeValue};

/// What the user's own settings say of programs.
#[derive(Debug, Default)]
pub(super) struct KnownPrograms {
    /// Those that they speak of: `mcp.db`. What a project says about one that it leaves off may run all the same,
    /// because theirs may switch it on.
    pub(super) programs: BTreeSet<String>,
    /// The kinds of which the usual ones are on: `formatter`, `lsp`.
    on: BTreeSet<&'static str>,
}

impl KnownPrograms {
    pub(super) fn of(told: &[ParsedLayer]) -> Self {
        let mut known = Self::default();
        for told in told.iter().filter(|told| !told.origin.project) {
            for key in ["mcp", "formatter", "lsp", "hook"] {
                let node = told.node.get(key);
                let entries = node.map(Node::entries).unwrap_or_default();
                known.programs.extend(entries.iter().map(|entry| format!("{key}.{}", entry.key)));
                match node.map(|node| &node.value) {
                    Some(NodeValue::Bool(false)) => known.on.remove(key),
                    Some(NodeValue::Bool(true) | NodeValue::Map(_)) => known.on.insert(key),
                    _ => false,
                };
            }
        }
        known
    }

    /// Whether a project's value switches the usual ones of a kind on, by its being one: an object does, whatever
    /// stands in it.
    pub(super) fn switches_on(&self, key: &str, value: &Node) -> bool {
        let all = ["formatter", "lsp"].contains(&key) && matches!(value.value, NodeValue::Map(_));
        value.as_bool() == Some(true) || all && !self.on.contains(key)
    }
}

/// Whether an entry for a program does nothing but leave it off.
pub(super) fn is_off(key: &str, entry: &MapEntry, known: &KnownPrograms) -> bool {
    let off = match key {
        "mcp" => entry.node.get("enabled").and_then(Node::as_bool) == Some(false),
        _ => entry.node.get("disabled").and_then(Node::as_bool) == Some(true),
    };
    off && (entry.node.entries().len() == 1 || !known.programs.contains(&format!("{key}.{}", entry.key)))
}

/// Takes out of a project's files what only leaves formatters or language servers off, where nobody has switched the
/// usual ones on: an object would do that by being one.
pub(crate) fn drop_idle(told: &mut [ParsedLayer]) {
    let known = KnownPrograms::of(told);
    for key in ["formatter", "lsp"] {
        let idle = |node: &Node| {
            matches!(node.value, NodeValue::Map(_)) && node.entries().iter().all(|entry| is_off(key, entry, &known))
        };
        let meant =
            |told: &ParsedLayer| told.node.get(key).is_some_and(|node| node.as_bool() != Some(false) && !idle(node));
        if known.on.contains(key) || told.iter().any(|told| told.origin.project && meant(told)) {
            continue;
        }
        for told in told.iter_mut().filter(|told| told.origin.project) {
            if told.node.get(key).is_some_and(idle) {
                told.node.take(key);
            }
        }
    }
}
