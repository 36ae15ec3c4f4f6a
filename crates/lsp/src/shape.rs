//! What is read of the protocol's shapes, and no more: a server that gets the rest wrong is understood all the same.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A place in a text, from 0, in the units the server counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    pub line: u32,
    pub character: u32,
}

/// From one place to before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    pub start: Position,
    pub end: Position,
}

/// Something a server has to say about a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub range: Range,
    /// 1 is an error, 2 a warning, 3 information, 4 a hint.
    pub severity: u8,
    pub message: String,
    /// What kind of mistake it is, in the server's words.
    pub code: String,
}

/// The longest message that is kept, in bytes.
const MESSAGE: usize = 2 << 10;

impl Diagnostic {
    pub fn is_error(&self) -> bool {
        self.severity == 1
    }

    /// As a server sends it; none for what is no diagnostic.
    pub(super) fn read(sent: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().or_else(|| value.get("value")?.as_str()).map(str::to_owned);
        let message = text(sent.get("message")?)?;
        let code = sent.get("code").filter(|code| !code.is_null());
        Some(Self {
            range: Range::deserialize(sent.get("range")?).ok()?,
            // One that does not say so is an error.
            severity: sent.get("severity").and_then(Value::as_u64).and_then(|n| u8::try_from(n).ok()).unwrap_or(1),
            message: base::text::head(&message, MESSAGE).to_owned(),
            code: code.map(|code| text(code).unwrap_or_else(|| code.to_string())).unwrap_or_default(),
        })
    }

    /// As TypeScript's own server says it, which counts from 1.
    pub(super) fn of_tsserver(sent: &Value) -> Option<Self> {
        let place = |key: &str| {
            let place = sent.get(key)?;
            let of = |key: &str| u32::try_from(place.get(key)?.as_u64()?.checked_sub(1)?).ok();
            Some(Position { line: of("line")?, character: of("offset")? })
        };
        let severity = match sent.get("category")?.as_str()? {
            "error" => 1,
            "warning" => 2,
            _ => 4,
        };
        Some(Self {
            range: Range { start: place("start")?, end: place("end")? },
            severity,
            message: base::text::head(sent.get("text")?.as_str()?, MESSAGE).to_owned(),
            code: sent.get("code").map(Value::to_string).unwrap_or_default(),
        })
    }

    /// As the protocol has it, for editors.
    pub fn to_json(&self) -> Value {
        json!({"range": self.range, "severity": self.severity, "message": self.message, "code": self.code})
    }
}

/// What a server says of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    pub path: PathBuf,
    /// None where it has said nothing in time.
    pub all: Option<Vec<Diagnostic>>,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRange {
    pub path: PathBuf,
    pub range: Range,
}

impl FileRange {
    /// A `Location` or a `LocationLink`.
    pub(super) fn read(sent: &Value) -> Option<Self> {
        let uri = sent.get("uri").or_else(|| sent.get("targetUri"))?;
        let ranges = ["range", "targetSelectionRange", "targetRange"];
        let range = ranges.iter().find_map(|key| Range::deserialize(sent.get(*key)?).ok())?;
        Some(Self { path: path(uri.as_str()?)?, range })
    }

    /// One, several or none.
    pub(super) fn read_all(sent: &Value) -> Vec<Self> {
        match sent {
            Value::Array(all) => all.iter().filter_map(Self::read).collect(),
            one => Self::read(one).into_iter().collect(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    pub name: String,
    /// As the protocol numbers it.
    pub kind: u8,
    /// Of what it is a part, if that was said.
    pub container: String,
    /// How deep it stands within others.
    pub depth: usize,
    pub range: Range,
    /// Where its name stands, where that was said.
    pub selection: Range,
    /// In which file, where that was said.
    pub path: Option<PathBuf>,
}

impl Symbol {
    /// A tree of `DocumentSymbol`, or a list of `SymbolInformation`, in order and flat.
    pub(super) fn read_all(sent: &Value) -> Vec<Self> {
        let mut found = Vec::new();
        let mut waiting: Vec<(&Value, usize)> =
            sent.as_array().into_iter().flatten().rev().map(|one| (one, 0)).collect();
        while let Some((one, depth)) = waiting.pop() {
            if found.len() == MOST {
                break;
            }
            let place = one.get("location").and_then(FileRange::read);
            let range = |key: &str| one.get(key).and_then(|range| Range::deserialize(range).ok());
            let whole = range("range").or(place.as_ref().map(|place| place.range));
            let text = |key: &str| one.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            // A workspace symbol may come without a range: its file is known.
            let file = || one.pointer("/location/uri").and_then(Value::as_str).and_then(path);
            if let Some(range_of) = whole.or_else(|| file().map(|_| Range::START)) {
                found.push(Self {
                    name: text("name"),
                    kind: one.get("kind").and_then(Value::as_u64).and_then(|n| u8::try_from(n).ok()).unwrap_or(0),
                    container: text("containerName"),
                    depth,
                    range: range_of,
                    selection: range("selectionRange").unwrap_or(range_of),
                    path: place.map(|place| place.path).or_else(file),
                });
            }
            let children = one.get("children").and_then(Value::as_array).into_iter().flatten();
            waiting.extend(children.rev().map(|child| (child, depth + 1)));
        }
        found
    }

    /// What its kind is called.
    pub fn kind(&self) -> &'static str {
        let at = usize::from(self.kind).checked_sub(1);
        at.and_then(|at| KINDS.get(at)).copied().unwrap_or("symbol")
    }
}

impl Range {
    const START: Self = Self { start: Position { line: 0, character: 0 }, end: Position { line: 0, character: 0 } };
}

/// So many symbols of one answer are read.
const MOST: usize = 5_000;

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

/// The text of a hover, whichever of its four shapes it has.
pub(super) fn hover(sent: &Value) -> String {
    fn words(value: &Value) -> String {
        match value {
            Value::String(text) => text.clone(),
            Value::Array(all) => all.iter().map(words).collect::<Vec<_>>().join("\n\n"),
            other => other.get("value").and_then(Value::as_str).unwrap_or_default().to_owned(),
        }
    }
    sent.get("contents").map(words).unwrap_or_default()
}

/// A replacement in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextEdit {
    pub range: Range,
    pub new: String,
}

/// The text edits of a `WorkspaceEdit`, by file, in the order of their paths: gopls sends them in any.
///
/// # Errors
/// What else it wants done, for the model.
pub(super) fn edits(sent: &Value) -> Result<Vec<(PathBuf, Vec<TextEdit>)>, String> {
    let one = |edit: &Value| {
        let range = Range::deserialize(edit.get("range")?).ok()?;
        let snippet = || edit.pointer("/snippet/value")?.as_str();
        Some(TextEdit { range, new: edit.get("newText").and_then(Value::as_str).or_else(snippet)?.to_owned() })
    };
    let all = |uri: &str, edits: Option<&Value>| -> Result<(PathBuf, Vec<TextEdit>), String> {
        let path = path(uri).ok_or_else(|| format!("it changes {}, which is not a file", base::text::title(uri)))?;
        let edits = edits.and_then(Value::as_array).into_iter().flatten();
        let edits = edits.map(one).collect::<Option<Vec<_>>>().ok_or("its answer cannot be read")?;
        Ok((path, edits))
    };
    let mut files: Vec<(PathBuf, Vec<TextEdit>)> =
        if let Some(changes) = sent.get("documentChanges").and_then(Value::as_array) {
            let change = |change: &Value| match change.get("kind").and_then(Value::as_str) {
                Some(kind) => {
                    Err(format!("it wants to {kind} a file as well, which is not done; move files with a command"))
                }
                None => {
                    let uri = change.pointer("/textDocument/uri").and_then(Value::as_str).unwrap_or_default();
                    all(uri, change.get("edits"))
                }
            };
            changes.iter().map(change).collect::<Result<_, _>>()?
        } else {
            let changes = sent.get("changes").and_then(Value::as_object).into_iter().flatten();
            changes.map(|(uri, edits)| all(uri, Some(edits))).collect::<Result<_, _>>()?
        };
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(files)
}

pub(super) fn uri(path: &Path) -> String {
    url::Url::from_file_path(path).map_or_else(|()| String::new(), String::from)
}

/// The file an address names; servers spell addresses each in their way.
pub(super) fn path(uri: &str) -> Option<PathBuf> {
    let url = url::Url::parse(uri).ok()?;
    (url.scheme() == "file").then(|| url.to_file_path().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_send_is_understood() {
        let range = json!({"start": {"line": 1, "character": 2}, "end": {"line": 1, "character": 3}});
        let table = [
            (json!({"range": range, "message": "m", "severity": 2, "code": 7}), Some((2, "m", "7"))),
            (
                json!({"range": range, "message": {"kind": "markdown", "value": "m"}, "code": {"value": "c"}}),
                Some((1, "m", "c")),
            ),
            (json!({"range": range, "message": "m", "code": null, "severity": "bad"}), Some((1, "m", ""))),
            (json!({"range": {}, "message": "m"}), None),
            (json!({"range": range}), None),
            (json!(null), None),
        ];
        for (sent, wanted) in table {
            let read = Diagnostic::read(&sent);
            let got = read.as_ref().map(|read| (read.severity, read.message.as_str(), read.code.as_str()));
            assert_eq!(got, wanted, "{sent}");
        }
        let ts = json!({"start": {"line": 2, "offset": 3}, "end": {"line": 2, "offset": 4}, "text": "t", "code": 1, "category": "error"});
        assert_eq!(Diagnostic::of_tsserver(&ts).unwrap().range.start, Position { line: 1, character: 2 });
        let link = json!([{"targetUri": "file:///a%20b%3A", "targetRange": range, "targetSelectionRange": range}, {"uri": "untitled:x", "range": range}]);
        assert_eq!(
            FileRange::read_all(&link).iter().map(|place| place.path.clone()).collect::<Vec<_>>(),
            [PathBuf::from("/a b:")]
        );
        assert_eq!(path(&uri(Path::new("/ü/a b#c"))), Some(PathBuf::from("/ü/a b#c")));
        let tree = json!([{"name": "A", "kind": 5, "range": range, "selectionRange": range, "children": [{"name": "b", "kind": 6, "range": range, "selectionRange": range}]}]);
        let symbols = Symbol::read_all(&tree);
        let shown: Vec<_> = symbols.iter().map(|symbol| (symbol.name.as_str(), symbol.depth, symbol.kind())).collect();
        assert_eq!(shown, [("A", 0, "class"), ("b", 1, "method")]);
        for sent in [json!("x"), json!({"value": "x"}), json!([{"language": "a", "value": "x"}])] {
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
            sorted.iter().map(|(path, _)| path.as_path()).collect::<Vec<_>>(),
            [Path::new("/a"), Path::new("/b")]
        );
        let moves = json!({"documentChanges": [{"kind": "rename", "oldUri": "file:///a", "newUri": "file:///b"}]});
        assert!(edits(&moves).unwrap_err().contains("rename a file"));
    }
}
