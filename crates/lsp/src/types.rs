//! The parts of the protocol's types that are used. Other parts are ignored, so a server may get
//! them wrong.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A position in a text, from 0, in the units of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    pub line: u32,
    pub character: u32,
}

/// A range; the end is exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    pub start: Position,
    pub end: Position,
}

/// A diagnostic of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub range: Range,
    /// 1 is an error, 2 a warning, 3 information, 4 a hint.
    pub severity: u8,
    pub message: String,
    /// The kind of mistake, in the server's terms.
    pub code: String,
}

/// The maximum length of a stored message, in bytes.
const MAX_MESSAGE_BYTES: usize = 2 << 10;

impl Diagnostic {
    pub fn is_error(&self) -> bool {
        self.severity == 1
    }

    /// Reads a diagnostic as a server sends it; `None` if it is not one.
    pub(super) fn read(sent: &Value) -> Option<Self> {
        let message = string_or_value(sent.get("message")?)?;
        let code = sent.get("code").filter(|code| !code.is_null());
        Some(Self {
            range: Range::deserialize(sent.get("range")?).ok()?,
            // The default is an error.
            severity: sent
                .get("severity")
                .and_then(Value::as_u64)
                .and_then(|n| u8::try_from(n).ok())
                .unwrap_or(1),
            message: base::text::head(&message, MAX_MESSAGE_BYTES).to_owned(),
            code: code
                .map(|code| string_or_value(code).unwrap_or_else(|| code.to_string()))
                .unwrap_or_default(),
        })
    }

    /// Reads a diagnostic of tsserver, which counts from 1.
    pub(super) fn of_tsserver(sent: &Value) -> Option<Self> {
        let position = |key: &str| {
            let position = sent.get(key)?;
            let of = |key: &str| u32::try_from(position.get(key)?.as_u64()?.checked_sub(1)?).ok();
            Some(Position {
                line: of("line")?,
                character: of("offset")?,
            })
        };
        let severity = match sent.get("category")?.as_str()? {
            "error" => 1,
            "warning" => 2,
            _ => 4,
        };
        Some(Self {
            range: Range {
                start: position("start")?,
                end: position("end")?,
            },
            severity,
            message: base::text::head(sent.get("text")?.as_str()?, MAX_MESSAGE_BYTES).to_owned(),
            code: sent.get("code").map(Value::to_string).unwrap_or_default(),
        })
    }

    /// Returns the diagnostic in the form of the protocol, for editors.
    pub fn to_json(&self) -> Value {
        json!({"range": self.range, "severity": self.severity, "message": self.message, "code": self.code})
    }
}

/// Reads a string, or the `value` of an object.
fn string_or_value(value: &Value) -> Option<String> {
    value
        .as_str()
        .or_else(|| value.get("value")?.as_str())
        .map(str::to_owned)
}

/// The diagnostics of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedDiagnostics {
    pub path: PathBuf,
    /// The diagnostics; `None` if there were none in time.
    pub all: Option<Vec<Diagnostic>>,
}

/// A range in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRange {
    pub path: PathBuf,
    pub range: Range,
}

impl FileRange {
    /// Reads a `Location` or a `LocationLink`.
    pub(super) fn read(sent: &Value) -> Option<Self> {
        let uri = sent.get("uri").or_else(|| sent.get("targetUri"))?;
        let ranges = ["range", "targetSelectionRange", "targetRange"];
        let range = ranges
            .iter()
            .find_map(|key| Range::deserialize(sent.get(*key)?).ok())?;
        Some(Self {
            path: path(uri.as_str()?)?,
            range,
        })
    }

    /// Reads one, several or none.
    pub(super) fn read_all(sent: &Value) -> Vec<Self> {
        match sent {
            Value::Array(all) => all.iter().filter_map(Self::read).collect(),
            item => Self::read(item).into_iter().collect(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    pub name: String,
    /// The number of its kind in the protocol.
    pub kind: u8,
    /// The name of its container, if known.
    pub container: String,
    /// The number of symbols around it.
    pub depth: usize,
    pub range: Range,
    /// The range of its name, if known, otherwise its whole range.
    pub selection: Range,
    /// The file, if known.
    pub path: Option<PathBuf>,
}

impl Symbol {
    /// Reads a tree of `DocumentSymbol` or a list of `SymbolInformation` into a flat list, in
    /// order.
    pub(super) fn read_all(sent: &Value) -> Vec<Self> {
        let mut found = Vec::new();
        let mut waiting: Vec<(&Value, usize)> = sent
            .as_array()
            .into_iter()
            .flatten()
            .rev()
            .map(|item| (item, 0))
            .collect();
        while let Some((item, depth)) = waiting.pop() {
            if found.len() == MAX_SYMBOLS {
                break;
            }
            let location = item.get("location").and_then(FileRange::read);
            let range = |key: &str| {
                item.get(key)
                    .and_then(|range| Range::deserialize(range).ok())
            };
            let whole = range("range").or(location.as_ref().map(|location| location.range));
            let text = |key: &str| {
                item.get(key)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            // A workspace symbol may have a file but no range.
            let file = || {
                item.pointer("/location/uri")
                    .and_then(Value::as_str)
                    .and_then(path)
            };
            if let Some(range_of) = whole.or_else(|| file().map(|_| Range::START)) {
                found.push(Self {
                    name: text("name"),
                    kind: item
                        .get("kind")
                        .and_then(Value::as_u64)
                        .and_then(|n| u8::try_from(n).ok())
                        .unwrap_or(0),
                    container: text("containerName"),
                    depth,
                    range: range_of,
                    selection: range("selectionRange").unwrap_or(range_of),
                    path: location.map(|location| location.path).or_else(file),
                });
            }
            let children = item
                .get("children")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            waiting.extend(children.rev().map(|child| (child, depth + 1)));
        }
        found
    }

    /// Returns the name of its kind.
    pub fn kind(&self) -> &'static str {
        let at = usize::from(self.kind).checked_sub(1);
        at.and_then(|at| KINDS.get(at)).copied().unwrap_or("symbol")
    }
}

impl Range {
    const START: Self = Self {
        start: Position {
            line: 0,
            character: 0,
        },
        end: Position {
            line: 0,
            character: 0,
        },
    };
}

/// The maximum number of symbols that are read from an answer.
const MAX_SYMBOLS: usize = 5_000;

/// The kinds of symbols, from 1.
const KINDS: &[&str] = &[
    "file",
    "module",
    "namespace",
    "package",
    "class",
    "method",
    "property",
    "field",
    "constructor",
    "enum",
    "interface",
    "function",
    "variable",
    "constant",
    "string",
    "number",
    "boolean",
    "array",
    "object",
    "key",
    "null",
    "enum member",
    "struct",
    "event",
    "operator",
    "type parameter",
];

/// Returns the text of a hover in any of its four forms.
pub(super) fn hover(sent: &Value) -> String {
    fn text_of(value: &Value) -> String {
        match value {
            Value::String(text) => text.clone(),
            Value::Array(all) => all.iter().map(text_of).collect::<Vec<_>>().join("\n\n"),
            other => other
                .get("value")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
        }
    }
    sent.get("contents").map(text_of).unwrap_or_default()
}

/// A replacement in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextEdit {
    pub range: Range,
    pub new: String,
}

/// Reads the text edits of a `WorkspaceEdit` by file, sorted by path, because gopls sends them in
/// any order.
///
/// # Errors
/// A message for the model on other changes that it asks for.
pub(super) fn edits(sent: &Value) -> Result<Vec<(PathBuf, Vec<TextEdit>)>, String> {
    let one = |edit: &Value| {
        let range = Range::deserialize(edit.get("range")?).ok()?;
        let snippet = || edit.pointer("/snippet/value")?.as_str();
        Some(TextEdit {
            range,
            new: edit
                .get("newText")
                .and_then(Value::as_str)
                .or_else(snippet)?
                .to_owned(),
        })
    };
    let all = |uri: &str, edits: Option<&Value>| -> Result<(PathBuf, Vec<TextEdit>), String> {
        let path = path(uri)
            .ok_or_else(|| format!("it changes {}, which is not a file", base::text::title(uri)))?;
        let edits = edits.and_then(Value::as_array).into_iter().flatten();
        let edits = edits
            .map(one)
            .collect::<Option<Vec<_>>>()
            .ok_or("its answer cannot be read")?;
        Ok((path, edits))
    };
    let mut files: Vec<(PathBuf, Vec<TextEdit>)> = if let Some(changes) =
        sent.get("documentChanges").and_then(Value::as_array)
    {
        let change = |change: &Value| match change.get("kind").and_then(Value::as_str) {
            Some(kind) => Err(format!(
                "it also wants to {kind} a file, which is not supported; move files with a command"
            )),
            None => {
                let uri = change
                    .pointer("/textDocument/uri")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                all(uri, change.get("edits"))
            }
        };
        changes.iter().map(change).collect::<Result<_, _>>()?
    } else {
        let changes = sent
            .get("changes")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        changes
            .map(|(uri, edits)| all(uri, Some(edits)))
            .collect::<Result<_, _>>()?
    };
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(files)
}

pub(super) fn uri(path: &Path) -> String {
    url::Url::from_file_path(path).map_or_else(|()| String::new(), String::from)
}

/// Returns the file of a URI; servers differ in how they encode URIs.
pub(super) fn path(uri: &str) -> Option<PathBuf> {
    let url = url::Url::parse(uri).ok()?;
    (url.scheme() == "file")
        .then(|| url.to_file_path().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_answers_are_read_in_all_forms() {
        let range =
            json!({"start": {"line": 1, "character": 2}, "end": {"line": 1, "character": 3}});
        let table = [
            (
                json!({"range": range, "message": "m", "severity": 2, "code": 7}),
                Some((2, "m", "7")),
            ),
            (
                json!({"range": range, "message": {"kind": "markdown", "value": "m"}, "code": {"value": "c"}}),
                Some((1, "m", "c")),
            ),
            (
                json!({"range": range, "message": "m", "code": null, "severity": "bad"}),
                Some((1, "m", "")),
            ),
            (json!({"range": {}, "message": "m"}), None),
            (json!({"range": range}), None),
            (json!(null), None),
        ];
        for (sent, wanted) in table {
            let read = Diagnostic::read(&sent);
            let got = read
                .as_ref()
                .map(|read| (read.severity, read.message.as_str(), read.code.as_str()));
            assert_eq!(got, wanted, "{sent}");
        }
        let ts = json!({"start": {"line": 2, "offset": 3}, "end": {"line": 2, "offset": 4}, "text": "t", "code": 1, "category": "error"});
        assert_eq!(
            Diagnostic::of_tsserver(&ts).unwrap().range.start,
            Position {
                line: 1,
                character: 2
            }
        );
        let link = json!([{"targetUri": "file:///a%20b%3A", "targetRange": range, "targetSelectionRange": range}, {"uri": "untitled:x", "range": range}]);
        assert_eq!(
            FileRange::read_all(&link)
                .iter()
                .map(|location| location.path.clone())
                .collect::<Vec<_>>(),
            [PathBuf::from("/a b:")]
        );
        assert_eq!(
            path(&uri(Path::new("/ü/a b#c"))),
            Some(PathBuf::from("/ü/a b#c"))
        );
        let tree = json!([{"name": "A", "kind": 5, "range": range, "selectionRange": range, "children": [{"name": "b", "kind": 6, "range": range, "selectionRange": range}]}]);
        let symbols = Symbol::read_all(&tree);
        let shown: Vec<_> = symbols
            .iter()
            .map(|symbol| (symbol.name.as_str(), symbol.depth, symbol.kind()))
            .collect();
        assert_eq!(shown, [("A", 0, "class"), ("b", 1, "method")]);
        for sent in [
            json!("x"),
            json!({"value": "x"}),
            json!([{"language": "a", "value": "x"}]),
        ] {
            assert_eq!(hover(&json!({"contents": sent})), "x");
        }
        let edit = json!({"range": range, "newText": "n"});
        let both = [
            json!({"changes": {"file:///a": [edit]}}),
            json!({"documentChanges": [{"textDocument": {"uri": "file:///a", "version": 1}, "edits": [edit]}]}),
        ];
        for sent in both {
            assert_eq!(edits(&sent).unwrap()[0].1[0].new, "n");
        }
        let change = |name: &str| json!({"textDocument": {"uri": format!("file:///{name}")}, "edits": [edit]});
        let sorted = edits(&json!({"documentChanges": [change("b"), change("a")]})).unwrap();
        assert_eq!(
            sorted
                .iter()
                .map(|(path, _)| path.as_path())
                .collect::<Vec<_>>(),
            [Path::new("/a"), Path::new("/b")]
        );
        let moves = json!({"documentChanges": [{"kind": "rename", "oldUri": "file:///a", "newUri": "file:///b"}]});
        assert!(edits(&moves).unwrap_err().contains("rename a file"));
    }
}
