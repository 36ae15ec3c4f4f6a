//! A mock language server: the tests' own program, started with `--language-server` and a behaviour
//! (`${MCP}` on a page is that program).
//!
//! Its language has `.x` files: `def a` declares a name, `use a` uses one, and both may be preceded
//! by spaces. A used name without a declaration is an error, `odd` a warning. It publishes them
//! automatically (`push`), or on request (`pull`). Faulty behaviours: `mute` never answers,
//! `silent` reports nothing about files, `crash` ends when a file changes, `flood` never stops
//! sending.

use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};
use std::path::PathBuf;

use serde_json::{Value, json};

struct Server {
    how: String,
    root: PathBuf,
    /// Open documents: versions and texts by address.
    open: BTreeMap<String, (i64, String)>,
}

/// Serves on standard input and output, if this process was started for that.
pub fn serve_if_asked() {
    let mut words = std::env::args()
        .skip_while(|word| word != "--language-server")
        .skip(1);
    let Some(how) = words.next() else { return };
    eprintln!("the mock language server has started");
    let mut server = Server {
        how,
        root: PathBuf::new(),
        open: BTreeMap::new(),
    };
    while let Some(message) = read() {
        server.take(&message);
    }
    std::process::exit(0);
}

fn read() -> Option<Value> {
    let mut from = std::io::stdin().lock();
    let mut line = String::new();
    let mut length = 0;
    loop {
        line.clear();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim().split_once(':') {
            Some((name, number)) if name.eq_ignore_ascii_case("content-length") => {
                length = number.trim().parse().ok()?
            }
            None if line.trim().is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

fn tell(message: &Value) {
    let body = message.to_string();
    let mut out = std::io::stdout().lock();
    let sent =
        write!(out, "Content-Length: {}\r\n\r\n{body}", body.len()).and_then(|()| out.flush());
    if sent.is_err() {
        std::process::exit(1);
    }
}

/// Returns the name after a word in a line, and its column.
fn named<'l>(line: &'l str, word: &str) -> Option<(usize, &'l str)> {
    let name = line
        .trim_start()
        .strip_prefix(word)?
        .strip_prefix(' ')?
        .trim();
    Some((line.find(name)?, name))
}

fn range(line: usize, from: usize, to: usize) -> Value {
    json!({"start": {"line": line, "character": from}, "end": {"line": line, "character": to}})
}

impl Server {
    /// Returns all files, as they are open, else as they lie on the disk.
    fn files(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|ending| ending == "x") {
                    let text = std::fs::read_to_string(&path).unwrap_or_default();
                    all.insert(format!("file://{}", path.display()), text);
                }
            }
        }
        all.extend(
            self.open
                .iter()
                .map(|(uri, (_, text))| (uri.clone(), text.clone())),
        );
        all
    }

    /// Returns every occurrence of a name after one of these words: address, line, column, name.
    fn places(&self, words: &[&str]) -> Vec<(String, usize, usize, String)> {
        let mut found = Vec::new();
        for (uri, text) in self.files() {
            for (n, line) in text.lines().enumerate() {
                let here = words.iter().find_map(|word| named(line, word));
                found.extend(here.map(|(at, name)| (uri.clone(), n, at, name.to_owned())));
            }
        }
        found
    }

    fn judge(&self, uri: &str) -> Value {
        let declared = self.places(&["def"]);
        let text = self.files().remove(uri).unwrap_or_default();
        let diagnose = |(n, line): (usize, &str)| {
            match named(line, "use") {
            Some((at, name)) if !declared.iter().any(|(_, _, _, other)| other == name) => Some(
                json!({"range": range(n, at, at + name.len()), "severity": 1, "message": format!("{name} is declared nowhere\n  at all"), "source": "x"}),
            ),
            _ => (line.trim() == "odd")
                .then(|| json!({"range": range(n, 0, 3), "severity": 2, "message": "that is odd", "code": "W1"})),
        }
        };
        text.lines().enumerate().filter_map(diagnose).collect()
    }

    fn publish(&self, uri: &str) {
        let version = self.open.get(uri).map(|(version, _)| *version);
        let params = json!({"uri": uri, "version": version, "diagnostics": self.judge(uri)});
        tell(
            &json!({"jsonrpc": "2.0", "method": "textDocument/publishDiagnostics", "params": params}),
        );
    }

    fn take(&mut self, message: &Value) {
        let method = message["method"].as_str().unwrap_or_default();
        let params = &message["params"];
        let uri = params["textDocument"]["uri"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let version = params["textDocument"]["version"]
            .as_i64()
            .unwrap_or_default();
        match method {
            "textDocument/didOpen" => {
                let text = params["textDocument"]["text"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                self.open.insert(uri.clone(), (version, text));
            }
            "textDocument/didChange" => {
                let text = params["contentChanges"][0]["text"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                self.open.insert(uri.clone(), (version, text));
                if self.how == "crash" {
                    eprintln!("that is too much for me");
                    std::process::exit(3);
                }
            }
            "textDocument/didClose" => drop(self.open.remove(&uri)),
            _ => {}
        }
        if method.starts_with("textDocument/did") {
            match self.how.as_str() {
                "push" | "crash" => self.publish(&uri),
                "flood" => loop {
                    self.publish(&uri);
                },
                _ => {}
            }
        }
        if method.is_empty() {
            return;
        }
        let Some(id) = message.get("id") else { return };
        let known = method == "initialize" && self.how != "mute";
        if !known && ["mute", "silent", "flood"].contains(&self.how.as_str()) {
            return;
        }
        let result = self.answer(method, params, &uri);
        tell(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn answer(&mut self, method: &str, params: &Value, uri: &str) -> Value {
        if method == "initialize" {
            self.root = params["rootPath"].as_str().unwrap_or_default().into();
            let pull = json!({"interFileDependencies": true, "workspaceDiagnostics": true});
            let pull = if self.how == "pull" {
                pull
            } else {
                Value::Null
            };
            return json!({"capabilities": {
                "textDocumentSync": {"openClose": true, "change": 1, "save": true}, "diagnosticProvider": pull,
                "definitionProvider": true, "referencesProvider": true, "hoverProvider": true,
                "documentSymbolProvider": true, "workspaceSymbolProvider": true, "renameProvider": true,
                "callHierarchyProvider": true, "implementationProvider": false, "positionEncoding": "utf-8",
            }});
        }
        let text = self.files().remove(uri).unwrap_or_default();
        let line = params["position"]["line"].as_u64().unwrap_or_default();
        let line = text
            .lines()
            .nth(line.try_into().unwrap())
            .unwrap_or_default();
        let name = named(line, "use")
            .or_else(|| named(line, "def"))
            .map(|(_, name)| name.to_owned());
        let of = |words: &[&str]| {
            let mut all = self.places(words);
            all.retain(|(_, _, _, other)| Some(other) == name.as_ref());
            all
        };
        let location = |(uri, n, at, name): (String, usize, usize, String)| json!({"uri": uri, "range": range(n, at, at + name.len())});
        let symbol = |(uri, n, at, name): (String, usize, usize, String)| {
            json!({"name": name, "kind": 12, "uri": uri, "range": range(n, 0, at + name.len()),
                "selectionRange": range(n, at, at + name.len()), "location": {"uri": uri, "range": range(n, at, at + name.len())}})
        };
        match method {
            "textDocument/definition" => of(&["def"]).into_iter().map(location).collect(),
            "textDocument/references" => of(&["def", "use"]).into_iter().map(location).collect(),
            "textDocument/hover" => name.map_or(
                Value::Null,
                |name| json!({"contents": {"kind": "markdown", "value": format!("**{name}**, a name")}}),
            ),
            "textDocument/documentSymbol" => {
                self.places(&["def"]).into_iter().filter(|(other, ..)| other == uri).map(symbol).collect()
            }
            "workspace/symbol" => {
                let query = params["query"].as_str().unwrap_or_default();
                self.places(&["def"]).into_iter().filter(|(.., name)| name.contains(query)).map(symbol).collect()
            }
            "textDocument/prepareCallHierarchy" => of(&["def"]).into_iter().map(symbol).collect(),
            "callHierarchy/incomingCalls" => {
                let wanted = params["item"]["name"].as_str().unwrap_or_default();
                let uses = self.places(&["use"]).into_iter().filter(|(.., name)| name == wanted);
                uses.map(|at| json!({"from": symbol(at.clone()), "fromRanges": [range(at.1, at.2, at.2 + at.3.len())]}))
                    .collect()
            }
            "textDocument/diagnostic" => json!({"kind": "full", "items": self.judge(uri)}),
            "workspace/diagnostic" => {
                let all = self.files().into_keys();
                let all: Vec<Value> = all
                    .map(|uri| json!({"uri": uri, "version": null, "kind": "full", "items": self.judge(&uri)}))
                    .collect();
                json!({"items": all})
            }
            "textDocument/rename" => {
                let new = &params["newName"];
                let mut changes = BTreeMap::<String, Vec<Value>>::new();
                for (uri, n, at, name) in of(&["def", "use"]) {
                    let edit = json!({"range": range(n, at, at + name.len()), "newText": new});
                    changes.entry(uri).or_default().push(edit);
                }
                json!({"changes": changes})
            }
            _ => Value::Null,
        }
    }
}
