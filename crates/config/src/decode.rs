//! Decoding of a [`Node`] with serde. Order is preserved; locations are not, and are looked up in
//! the tree.

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer, Visitor, value};
use serde::{Deserializer, forward_to_deserialize_any};

use super::node::{MapEntry, Node, NodeValue, SourceLocation, as_whole_number};
use super::problem::{Problem, ProblemCode};

/// Decodes a checked tree.
///
/// # Errors
/// If the tree does not fit the type: after `declare::check` only if the two disagree.
pub(crate) fn decode<'de, T: serde::Deserialize<'de>>(node: &'de Node) -> Result<T, value::Error> {
    T::deserialize(NodeDeserializer(node))
}

/// Decodes a tree without the parts that do not fit: see [`drop_unfit`].
pub(crate) fn fitting<T: DeserializeOwned + Default>(
    tree: &Node,
    problems: &mut Vec<Problem>,
) -> T {
    decode(tree).unwrap_or_else(|_| {
        let mut rest = tree.clone();
        drop_unfit::<T>(&mut rest, problems);
        decode(&rest).unwrap_or_default()
    })
}

/// Removes the keys that prevent a tree from being decoded, and reports each. A checked tree has
/// none; if the declaration and its check ever disagree, that costs one key and not all settings.
pub(crate) fn drop_unfit<T: DeserializeOwned>(tree: &mut Node, problems: &mut Vec<Problem>) {
    prune(
        tree,
        &|tree| decode::<T>(tree).map(drop),
        &mut Vec::new(),
        problems,
    );
}

/// Returns whether a node fits after its unfit keys are removed. `reads` tries the node in its
/// place, without its siblings.
fn prune(
    node: &mut Node,
    reads: &dyn Fn(&Node) -> Result<(), value::Error>,
    path: &mut Vec<String>,
    problems: &mut Vec<Problem>,
) -> bool {
    let Err(error) = reads(node) else { return true };
    let fits_empty = reads(&Node::empty(node.at.clone())).is_ok();
    let entries = if fits_empty { node.entries_mut() } else { None };
    let Some(entries) = entries else {
        problems.push(unfit(&node.at, path, &error));
        return false;
    };
    entries.retain_mut(|MapEntry { key, at, node }| {
        let alone = |inner: &Node| {
            let entry = MapEntry {
                key: key.clone(),
                at: at.clone(),
                node: inner.clone(),
            };
            reads(&Node {
                value: NodeValue::Map(vec![entry]),
                at: at.clone(),
            })
        };
        path.push(key.clone());
        let fits = prune(node, &alone, path, problems);
        path.pop();
        fits
    });
    // Each entry fits alone. If they do not fit together, a project's entries are removed first,
    // from the last one.
    while let Err(error) = reads(node) {
        let Some(entries) = node.entries_mut() else {
            return false;
        };
        let projects = entries.iter().rposition(|entry| entry.at.origin.project);
        let Some(last) = projects.or(entries.len().checked_sub(1)) else {
            return false;
        };
        let entry = entries.remove(last);
        path.push(entry.key);
        problems.push(unfit(&entry.at, path, &error));
        path.pop();
    }
    true
}

fn unfit(at: &SourceLocation, path: &[String], error: &value::Error) -> Problem {
    let text = format!("this cannot be used: {error}");
    Problem::error(ProblemCode::WrongValue, at, path.join("."), text)
        .hint("it is ignored; everything else applies")
}

#[derive(Clone, Copy)]
struct NodeDeserializer<'de>(&'de Node);

impl<'de> IntoDeserializer<'de, value::Error> for NodeDeserializer<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for NodeDeserializer<'de> {
    type Error = value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, value::Error> {
        match &self.0.value {
            NodeValue::Null => visitor.visit_unit(),
            NodeValue::Bool(yes) => visitor.visit_bool(*yes),
            NodeValue::Number(number) => {
                // A whole number may be written with a point or an exponent.
                let n = as_whole_number(number);
                if let Some(n) = n.and_then(|n| u64::try_from(n).ok()) {
                    visitor.visit_u64(n)
                } else if let Some(n) = n.and_then(|n| i64::try_from(n).ok()) {
                    visitor.visit_i64(n)
                } else {
                    let n = number
                        .as_f64()
                        .ok_or_else(|| value::Error::custom("a number out of range"))?;
                    visitor.visit_f64(n)
                }
            }
            NodeValue::Text(text) => visitor.visit_borrowed_str(text),
            NodeValue::List(nodes) => {
                visitor.visit_seq(SeqDeserializer::new(nodes.iter().map(NodeDeserializer)))
            }
            NodeValue::Map(entries) => {
                let entries = entries
                    .iter()
                    .map(|entry| (KeyDeserializer(&entry.key), NodeDeserializer(&entry.node)));
                visitor.visit_map(MapDeserializer::new(entries))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, value::Error> {
        match self.0.value {
            NodeValue::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, value::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, value::Error> {
        match &self.0.value {
            NodeValue::Text(text) => {
                StrDeserializer::new(text).deserialize_enum(name, variants, visitor)
            }
            _ => Err(value::Error::custom(format!(
                "{} where a word was expected",
                self.0.kind()
            ))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[derive(Clone, Copy)]
struct KeyDeserializer<'de>(&'de str);

impl<'de> IntoDeserializer<'de, value::Error> for KeyDeserializer<'de> {
    type Deserializer = value::BorrowedStrDeserializer<'de, value::Error>;

    fn into_deserializer(self) -> Self::Deserializer {
        value::BorrowedStrDeserializer::new(self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::file::ConfigFile;
    use super::super::node::{ConfigOrigin, Layer};
    use super::*;

    fn tree(text: &str, project: bool) -> Node {
        let origin = Arc::new(ConfigOrigin {
            name: "x".into(),
            path: None,
            layer: Layer::Global,
            project,
        });
        super::super::jsonc::parse(text, &origin, &mut Vec::new()).unwrap()
    }

    /// The trees are not checked before: a value that a check would miss costs only its own key.
    #[test]
    fn unfit_key_costs_only_itself() {
        let table = [
            (r#"{"model": "a/b"}"#, r#"{"model": "a/b"}"#, &[][..]),
            (
                r#"{"model": "a/b", "steer": 3}"#,
                r#"{"model": "a/b"}"#,
                &["steer"],
            ),
            (
                r#"{"agent": {"x": {"steps": 4294967296, "mode": "all"}, "y": {"hidden": true}}, "instructions": [null]}"#,
                r#"{"agent": {"x": {"mode": "all"}, "y": {"hidden": true}}}"#,
                &["agent.x.steps", "instructions"],
            ),
            (
                r#"{"nobody": {"knows": {"this": 1}}, "snapshot": false}"#,
                r#"{"snapshot": false}"#,
                &["nobody"],
            ),
            (
                r#"{"provider": {"p": {"options": {"timeout": "x", "a": [null]}}}}"#,
                r#"{"provider": {"p": {"options": {"a": [null]}}}}"#,
                &["provider.p.options.timeout"],
            ),
            ("[1]", "[1]", &[""]),
        ];
        for (text, rest, reported) in table {
            let mut node = tree(text, false);
            let mut problems = Vec::new();
            drop_unfit::<ConfigFile>(&mut node, &mut problems);
            let rest: serde_json::Value = serde_json::from_str(rest).unwrap();
            let keys: Vec<&str> = problems
                .iter()
                .map(|problem| problem.key.as_str())
                .collect();
            assert_eq!(
                (node.to_json(), keys.as_slice()),
                (rest, reported),
                "{text}"
            );
        }
        let mut problems = Vec::new();
        let file: ConfigFile = fitting(
            &tree(r#"{"model": "a/b", "steer": 3}"#, false),
            &mut problems,
        );
        assert_eq!((file.model.as_deref(), problems.len()), (Some("a/b"), 1));
        let text = "x:1:27: steer: this cannot be used: ";
        assert!(problems[0].to_string().starts_with(text), "{}", problems[0]);
    }

    #[test]
    fn projects_entry_is_dropped_if_entries_do_not_fit_together() {
        let mut node = tree(r#"{"steer": true, "model": "a/b"}"#, false);
        let mut problems = Vec::new();
        // The same key twice, which is a duplicate field.
        let projects = tree(r#"{"model": "evil/b", "snapshot": false}"#, true);
        node.entries_mut()
            .unwrap()
            .splice(0..0, projects.entries().to_vec());
        drop_unfit::<ConfigFile>(&mut node, &mut problems);
        assert_eq!(node.get("model").and_then(Node::as_text), Some("a/b"));
        assert_eq!(node.get("steer").and_then(Node::as_bool), Some(true));
        assert!(
            problems
                .iter()
                .all(|problem| problem.location.origin.project),
            "{problems:?}"
        );
    }

    #[test]
    fn whole_number_is_decoded_in_any_notation() {
        let table = [
            ("1e16", Some(10_000_000_000_000_000)),
            ("5.0", Some(5)),
            ("18446744073709551615", Some(u64::MAX)),
            ("1.8446744073709550e19", Some(18_446_744_073_709_549_568)),
            ("18446744073709551616", None),
            ("1e300", None),
            ("-1", None),
            ("0.5", None),
        ];
        for (text, wanted) in table {
            assert_eq!(decode::<u64>(&tree(text, false)).ok(), wanted, "{text}");
            assert!(decode::<f64>(&tree(text, false)).is_ok(), "{text}");
        }
    }
}
