//! The effect of keys in the files of others than the user, as their declarations state it.

use serde_json::Value as Json;

use super::ConfigSchema;
use crate::node::{MapEntry, Node};
use crate::trust_kind::TrustKind;

/// The effect of a key in the file of an untrusted project: the values of `x-trust`, which
/// `file.rs` explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyEffect<'a> {
    Applies,
    /// Waits for trust. Without a kind, `trust.rs` or `loosen.rs` decides that from the value.
    Waits(Option<TrustKind>),
    /// Ignored, with this text: only the user may set it.
    UserOnly(&'a str),
    /// The same, and ignored in an organisation's defaults.
    MachineOnly(&'a str),
    /// Each inner key states its own.
    Parts,
}

impl<'a> KeyEffect<'a> {
    /// Returns the effect that a declaration states. `None` if it states none.
    pub(crate) fn of(declared: &'a Json) -> Option<Self> {
        Self::parse(declared.get("x-trust")?)
    }

    /// Parses the value of `x-trust`.
    pub(super) fn parse(value: &'a Json) -> Option<Self> {
        let text = value.as_str()?;
        let (word, rest) = text.split_once(": ").unwrap_or((text, ""));
        match word {
            "applies" => Some(Self::Applies),
            "waits" if rest.is_empty() => Some(Self::Waits(None)),
            "waits" => TrustKind::named(rest).map(|kind| Self::Waits(Some(kind))),
            "user" => Some(Self::UserOnly(rest)),
            "machine" => Some(Self::MachineOnly(rest)),
            "parts" => Some(Self::Parts),
            _ => None,
        }
    }

    /// Returns whether the program reads the statement. The others are for the table of keys and
    /// for tests.
    pub(super) fn is_read(self) -> bool {
        !matches!(self, Self::Applies | Self::Waits(None) | Self::Parts)
    }
}

impl ConfigSchema {
    /// Returns the paths of the keys in a tree whose declarations state an effect that the program
    /// reads. Keys below such a key are not among them.
    pub(crate) fn effects(&self, node: &Node) -> Vec<(Vec<String>, KeyEffect<'_>)> {
        let mut found = Vec::new();
        self.find_effects(node, &self.root, &mut Vec::new(), &mut found);
        found
    }

    fn find_effects<'a>(
        &'a self,
        node: &Node,
        schema: &'a Json,
        path: &mut Vec<String>,
        found: &mut Vec<(Vec<String>, KeyEffect<'a>)>,
    ) {
        let choices = self.choices(schema);
        for MapEntry { key, node, .. } in node.entries() {
            let declared = choices.iter().find_map(|choice| {
                let known = choice.get("properties").and_then(|known| known.get(key));
                known.or_else(|| {
                    choice
                        .get("additionalProperties")
                        .filter(|schema| schema.is_object())
                })
            });
            let Some(declared) = declared else { continue };
            path.push(key.clone());
            match KeyEffect::of(declared).filter(|effect| effect.is_read()) {
                Some(effect) => found.push((path.clone(), effect)),
                None => self.find_effects(node, declared, path, found),
            }
            path.pop();
        }
    }
}

/// Removes an entry, and the objects around it that it leaves empty: an empty object can have a
/// meaning of its own.
pub(crate) fn remove(node: &mut Node, path: &[String]) -> Option<MapEntry> {
    let (key, inner) = path.split_first()?;
    if inner.is_empty() {
        return node.take(key);
    }
    let below = node.get_mut(key)?;
    let removed = remove(below, inner)?;
    if below.entries().is_empty() {
        node.take(key);
    }
    Some(removed)
}
