//! The tree of a settings file before it is decoded: values in the order of the file, each with its
//! file, line and column. JSON with comments and YAML are both parsed into this tree, so that
//! checks, merging and locations are implemented once.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Number;

/// The source of a setting, from the lowest precedence to the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    BuiltIn,
    /// The defaults of an organisation, as they were last fetched.
    Remote,
    /// The user's own files.
    Global,
    /// The file that `ADJUTANT_CONFIG` or `OPENCODE_CONFIG` names.
    Named,
    /// `opencode.json` or `adjutant.json` in the project.
    Project,
    /// A `.opencode` or `.adjutant` directory, or the one named by a variable.
    Directory,
    /// `ADJUTANT_CONFIG_CONTENT` or `OPENCODE_CONFIG_CONTENT`.
    Inline,
    /// The administrator's files.
    Managed,
    /// `ADJUTANT_PERMISSION` or `OPENCODE_PERMISSION`.
    Variable,
}

/// A text that contains settings.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigOrigin {
    /// The displayed name: a path, shortened if it is in the project or the home directory, or the
    /// name of a variable.
    pub name: String,
    /// The file, if it is one.
    pub path: Option<PathBuf>,
    pub layer: Layer,
    /// True if it belongs to the project, and therefore may not run or loosen anything before the
    /// user trusts it.
    pub project: bool,
}

/// A place in a text that contains settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLocation {
    pub origin: Arc<ConfigOrigin>,
    /// The line, counted from 1; 0 for the whole text.
    pub line: u32,
    /// The column in characters, counted from 1; 0 for the whole text.
    pub column: u32,
}

impl SourceLocation {
    /// Returns the location of the whole text.
    pub fn whole_text(origin: &Arc<ConfigOrigin>) -> Self {
        Self {
            origin: origin.clone(),
            line: 0,
            column: 0,
        }
    }

    /// Returns `file:line`, the form in which the source of a rule is displayed.
    pub fn short(&self) -> String {
        if self.line == 0 {
            self.origin.name.clone()
        } else {
            format!("{}:{}", self.origin.name, self.line)
        }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin.name)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        Ok(())
    }
}

/// A value and its location.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub value: NodeValue,
    pub at: SourceLocation,
}

/// A value of JSON or YAML.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeValue {
    /// `null`, which counts as an absent key.
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    /// The entries of an object in the order of the file, with unique keys.
    Map(Vec<MapEntry>),
}

/// A key of an object, its location, and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct MapEntry {
    pub key: String,
    pub at: SourceLocation,
    pub node: Node,
}

impl Node {
    /// Creates an empty object.
    pub fn empty(at: SourceLocation) -> Self {
        Self {
            value: NodeValue::Map(Vec::new()),
            at,
        }
    }

    pub fn text(text: impl Into<String>, at: SourceLocation) -> Self {
        Self {
            value: NodeValue::Text(text.into()),
            at,
        }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries()
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.node)
    }

    /// Returns the value of a key, for modification.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        self.entries_mut()?
            .iter_mut()
            .find(|entry| entry.key == key)
            .map(|entry| &mut entry.node)
    }

    /// Returns the value at a path of keys.
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// Returns the entries of an object; none for any other value.
    pub fn entries(&self) -> &[MapEntry] {
        match &self.value {
            NodeValue::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the entries of an object, for modification.
    pub fn entries_mut(&mut self) -> Option<&mut Vec<MapEntry>> {
        match &mut self.value {
            NodeValue::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// Removes a key from an object.
    pub fn take(&mut self, key: &str) -> Option<MapEntry> {
        let entries = self.entries_mut()?;
        let index = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(index))
    }

    /// Sets a key of an object: in place if it exists, otherwise at the end.
    pub fn set(&mut self, key: &str, at: SourceLocation, node: Self) {
        if let Some(entries) = self.entries_mut() {
            match entries.iter_mut().find(|entry| entry.key == key) {
                Some(entry) => {
                    *entry = MapEntry {
                        key: key.into(),
                        at,
                        node,
                    }
                }
                None => entries.push(MapEntry {
                    key: key.into(),
                    at,
                    node,
                }),
            }
        }
    }

    /// Returns the text of a string.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            NodeValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            NodeValue::Bool(yes) => Some(yes),
            _ => None,
        }
    }

    /// Converts the tree to JSON, without locations and the order of keys.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            NodeValue::Null => serde_json::Value::Null,
            NodeValue::Bool(yes) => (*yes).into(),
            NodeValue::Number(number) => serde_json::Value::Number(number.clone()),
            NodeValue::Text(text) => text.as_str().into(),
            NodeValue::List(nodes) => nodes.iter().map(Self::to_json).collect(),
            NodeValue::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), entry.node.to_json()))
                .collect(),
        }
    }

    /// Returns the type as it is displayed, such as `a string` or `an object`.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            NodeValue::Null => "null",
            NodeValue::Bool(_) => "true or false",
            NodeValue::Number(_) => "a number",
            NodeValue::Text(_) => "a string",
            NodeValue::List(_) => "a list",
            NodeValue::Map(_) => "an object",
        }
    }

    /// Calls `f` for every value of the tree with its path of keys, parents before children.
    pub fn walk<'a>(&'a self, path: &mut Vec<String>, f: &mut dyn FnMut(&[String], &'a Self)) {
        f(path, self);
        match &self.value {
            NodeValue::Map(entries) => {
                for entry in entries {
                    path.push(entry.key.clone());
                    entry.node.walk(path, f);
                    path.pop();
                }
            }
            NodeValue::List(nodes) => {
                for (index, node) in nodes.iter().enumerate() {
                    path.push(index.to_string());
                    node.walk(path, f);
                    path.pop();
                }
            }
            _ => {}
        }
    }
}

/// Returns a number as an integer if it has no fraction, such as `1e3` and `5.0`. A number outside
/// the range of `i128` becomes the nearest integer of that range.
pub(crate) fn as_whole_number(number: &Number) -> Option<i128> {
    let exact = number
        .as_u64()
        .map(i128::from)
        .or_else(|| number.as_i64().map(i128::from));
    exact.or_else(|| {
        let n = number.as_f64().filter(|n| n.fract() == 0.0)?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the number has no fraction, and the conversion saturates"
        )]
        let n = n as i128;
        Some(n)
    })
}

/// Merges `over` into `under`. Objects are merged key by key, and an existing key keeps its
/// position. The top-level lists `instructions` and `plugin` are extended. Any other value except
/// `null` replaces the lower one.
pub fn merge(under: &mut Node, over: Node) {
    merge_at(under, over, 0, "");
}

fn merge_at(under: &mut Node, over: Node, depth: usize, key: &str) {
    match (&mut under.value, over.value) {
        (NodeValue::Map(entries), NodeValue::Map(news)) => {
            for new in news {
                match entries.iter_mut().find(|entry| entry.key == new.key) {
                    Some(entry) => {
                        merge_at(&mut entry.node, new.node, depth + 1, &new.key);
                        entry.at = new.at;
                    }
                    None => entries.push(new),
                }
            }
        }
        (_, NodeValue::Null) => {}
        (NodeValue::List(old), NodeValue::List(news)) if depth == 1 && key == "instructions" => {
            for new in news {
                if !old.iter().any(|node| node.value == new.value) {
                    old.push(new);
                }
            }
        }
        (NodeValue::List(old), NodeValue::List(news)) if depth == 1 && key == "plugin" => {
            for new in news {
                let name = package(&new);
                old.retain(|node| package(node) != name);
                old.push(new);
            }
        }
        (value, new) => {
            *value = new;
            under.at = over.at;
        }
    }
}

/// Returns the name of a plugin without its version, so that the version of a higher layer replaces
/// that of a lower one.
fn package(node: &Node) -> String {
    let spec = match &node.value {
        NodeValue::List(parts) => parts.first().and_then(Node::as_text),
        _ => node.as_text(),
    };
    let spec = spec.unwrap_or_default();
    match spec.rfind('@') {
        Some(at) if at > 0 && !spec.starts_with("file:") && !spec.starts_with('.') => {
            spec[..at].to_owned()
        }
        _ => spec.to_owned(),
    }
}
