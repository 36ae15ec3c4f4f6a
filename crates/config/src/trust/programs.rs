//! Programs that settings start: those that the user's own settings mention, and the effect of a
//! project's settings on them.

use std::collections::BTreeSet;

use crate::layers::ParsedLayer;
use crate::node::{MapEntry, Node, NodeValue, SourceLocation};

/// The programs in the user's own settings.
#[derive(Debug, Default)]
pub(super) struct KnownPrograms {
    /// The keys of the programs that they mention, such as `mcp.db`. A project's entry for one of
    /// them may take effect even if the project disables it, because the user's settings may enable
    /// it.
    pub(super) programs: BTreeSet<String>,
    /// The kinds whose usual programs are enabled: `formatter`, `lsp`.
    on: BTreeSet<&'static str>,
}

impl KnownPrograms {
    pub(super) fn of(layers: &[ParsedLayer]) -> Self {
        let mut known = Self::default();
        for layer in layers.iter().filter(|layer| !layer.origin.project) {
            for key in ["mcp", "formatter", "lsp", "hook"] {
                let node = layer.node.get(key);
                let entries = node.map(Node::entries).unwrap_or_default();
                known
                    .programs
                    .extend(entries.iter().map(|entry| format!("{key}.{}", entry.key)));
                match node.map(|node| &node.value) {
                    Some(NodeValue::Bool(false)) => known.on.remove(key),
                    Some(NodeValue::Bool(true) | NodeValue::Map(_)) => known.on.insert(key),
                    _ => false,
                };
            }
        }
        known
    }

    /// Returns whether a project's value enables the usual programs of a kind. An object does,
    /// whatever it contains.
    pub(super) fn switches_on(&self, key: &str, value: &Node) -> bool {
        let is_object =
            ["formatter", "lsp"].contains(&key) && matches!(value.value, NodeValue::Map(_));
        value.as_bool() == Some(true) || is_object && !self.on.contains(key)
    }
}

/// Returns whether an entry for a program only disables it.
pub(super) fn is_off(key: &str, entry: &MapEntry, known: &KnownPrograms) -> bool {
    let off = match key {
        "mcp" => entry.node.get("enabled").and_then(Node::as_bool) == Some(false),
        _ => entry.node.get("disabled").and_then(Node::as_bool) == Some(true),
    };
    let is_only_off = entry.node.entries().len() == 1;
    off && (is_only_off || !known.programs.contains(&format!("{key}.{}", entry.key)))
}

/// A formatter or language server that the settings switch off: its section, name and location.
pub(crate) type ProgramOff = (&'static str, String, SourceLocation);

/// Returns the formatters and language servers that the settings switch off as they are written,
/// before entries without effect are removed.
pub(crate) fn switched_off(layers: &[ParsedLayer]) -> Vec<ProgramOff> {
    let mut off: Vec<ProgramOff> = Vec::new();
    for section in ["formatter", "lsp"] {
        let sections = layers.iter().filter_map(|layer| layer.node.get(section));
        for entry in sections.flat_map(Node::entries) {
            let Some(is_off) = entry.node.get("disabled").and_then(Node::as_bool) else {
                continue;
            };
            off.retain(|(known, name, _)| *known != section || *name != entry.key);
            if is_off {
                off.push((section, entry.key.clone(), entry.at.clone()));
            }
        }
    }
    off
}

/// Removes a project's entries that only disable formatters or language servers, if the usual ones
/// are not enabled: an object would enable them, whatever it contains.
pub(crate) fn drop_idle(layers: &mut [ParsedLayer]) {
    let known = KnownPrograms::of(layers);
    for key in ["formatter", "lsp"] {
        let is_idle = |node: &Node| {
            matches!(node.value, NodeValue::Map(_))
                && node
                    .entries()
                    .iter()
                    .all(|entry| is_off(key, entry, &known))
        };
        let has_effect = |layer: &ParsedLayer| {
            layer
                .node
                .get(key)
                .is_some_and(|node| node.as_bool() != Some(false) && !is_idle(node))
        };
        if known.on.contains(key)
            || layers
                .iter()
                .any(|layer| layer.origin.project && has_effect(layer))
        {
            continue;
        }
        for layer in layers.iter_mut().filter(|layer| layer.origin.project) {
            if layer.node.get(key).is_some_and(is_idle) {
                layer.node.take(key);
            }
        }
    }
}
