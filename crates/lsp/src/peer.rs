//! One conversation with a server: what is asked of it, what it says by itself, which files it has open.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::frame::frame;
use super::shape::{self, Diagnostic};
use super::units::Units;
use base::lock::locked;
use config::language_server;

/// How many messages may wait for a server that does not read.
pub(super) const QUEUE: usize = 256;
/// How many files a server has open at a time.
const OPEN: usize = 64;
/// Of how many files what a server says is kept, and how much of each.
const FILES: usize = 2_000;
const OF_EACH: usize = 500;

/// A server that has been greeted.
pub struct LspClient {
    out: mpsc::Sender<Vec<u8>>,
    ids: AtomicU64,
    /// The folder it works on.
    root: PathBuf,
    /// What it may ask for by the names of sections.
    configuration: Value,
    // Leaf locks around maps.
    waiting: Mutex<HashMap<u64, oneshot::Sender<Result<Value, String>>>>,
    said: Mutex<BTreeMap<PathBuf, PublishedDiagnostics>>,
    open: Mutex<HashMap<PathBuf, OpenFile>>,
    busy: Mutex<HashSet<String>>,
    /// How much it has said of files, and of how busy it is.
    news: watch::Sender<u64>,
    abilities: watch::Sender<Abilities>,
    /// It was waited for in vain, and has said nothing since.
    silent: AtomicBool,
    /// It has answered something beside the greeting.
    warm: AtomicBool,
    /// Cancelled once the server has closed its output: nothing is answered any more.
    pub(super) gone: CancellationToken,
}

/// What a server can do, as far as it matters here.
#[derive(Debug, Clone, Default)]
pub(super) struct Abilities {
    all: Value,
    /// It counts characters in these.
    pub(super) units: Units,
    /// It gives diagnostics when it is asked.
    pub(super) pull: bool,
    /// It passes requests on to TypeScript's own server.
    pub(super) tsserver: bool,
    /// It wants to know when a file is saved.
    saves: bool,
}

/// What a server has said of a file by itself.
struct PublishedDiagnostics {
    /// Of which of our versions, if it says so.
    version: Option<i64>,
    at: u64,
    when: Instant,
    all: Vec<Diagnostic>,
}

struct OpenFile {
    version: i64,
    text: Arc<str>,
    /// When it was last changed, counted in news.
    at: u64,
    /// When it was last used, counted in messages.
    used: u64,
}

/// What is said of a file now.
pub(super) struct FileDiagnostics {
    pub(super) all: Vec<Diagnostic>,
    /// It is about the text the server has.
    pub(super) fresh: bool,
    pub(super) when: Instant,
}

impl LspClient {
    pub(super) fn new(out: mpsc::Sender<Vec<u8>>, root: PathBuf, configuration: Value) -> Self {
        Self {
            out,
            ids: AtomicU64::new(0),
            root,
            configuration,
            waiting: Mutex::default(),
            said: Mutex::default(),
            open: Mutex::default(),
            busy: Mutex::default(),
            news: watch::Sender::new(0),
            abilities: watch::Sender::new(Abilities::default()),
            silent: AtomicBool::new(false),
            warm: AtomicBool::new(false),
            gone: CancellationToken::new(),
        }
    }

    /// Greets it.
    ///
    /// # Errors
    /// Why it did not answer as it should.
    pub(super) async fn greet(&self, options: Option<&Value>) -> Result<(), String> {
        let uri = shape::uri(&self.root);
        let folder = json!([{"uri": uri, "name": self.root.file_name().map(|name| name.to_string_lossy())}]);
        let mut greeting = json!({
            // In a sandbox our number means nothing, and servers end when they find nobody under it.
            "processId": null, "clientInfo": {"name": "adjutant", "version": env!("CARGO_PKG_VERSION")},
            "rootUri": uri, "rootPath": self.root, "workspaceFolders": folder, "capabilities": capabilities(),
        });
        greeting["initializationOptions"] = options.cloned().unwrap_or_else(|| json!({}));
        let answer = self.ask("initialize", greeting).await?;
        let all = answer.get("capabilities").cloned().unwrap_or_default();
        let units = match all.get("positionEncoding").and_then(Value::as_str) {
            Some("utf-8") => Units::Bytes,
            Some("utf-32") => Units::Letters,
            _ => Units::Utf16,
        };
        let commands = all.pointer("/executeCommandProvider/commands").and_then(Value::as_array);
        let tsserver = commands.is_some_and(|all| all.iter().any(|name| name == TSSERVER));
        let sync = all.get("textDocumentSync");
        let saves = sync.and_then(|sync| sync.get("save")).is_some_and(|save| *save != Value::Bool(false))
            || sync.is_some_and(Value::is_number);
        let pull = all.get("diagnosticProvider").is_some_and(Value::is_object);
        self.abilities.send_replace(Abilities { all, units, pull, tsserver, saves });
        self.tell("initialized", json!({}));
        if self.configuration != Value::Null {
            self.tell("workspace/didChangeConfiguration", json!({"settings": self.configuration}));
        }
        Ok(())
    }

    pub(super) fn abilities(&self) -> Abilities {
        self.abilities.borrow().clone()
    }

    pub(super) fn judges_all(&self) -> bool {
        let all = &self.abilities.borrow().all;
        all.pointer("/diagnosticProvider/workspaceDiagnostics") == Some(&Value::Bool(true))
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether it offers something, by the name of its capability.
    pub(super) fn offers(&self, provider: &str) -> bool {
        let all = &self.abilities.borrow().all;
        all.get(provider).is_some_and(|offer| !matches!(offer, Value::Null | Value::Bool(false)))
    }

    /// Asks something and waits for the answer, for as long as the caller does.
    ///
    /// # Errors
    /// The server's words, or that it has ended.
    pub(super) async fn ask(&self, method: &str, params: Value) -> Result<Value, String> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        locked(&self.waiting).insert(id, reply);
        let asked = PendingRequest { peer: self, id };
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        let answer = tokio::select! {
            answer = answer => answer.unwrap_or_else(|_| Err("it has ended".into())),
            () = self.gone.cancelled() => Err("it has ended".into()),
        };
        drop(asked);
        answer
    }

    fn tell(&self, method: &str, params: Value) {
        // What cannot be told to it is noticed by whoever asks it something.
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).ok();
    }

    fn send(&self, message: &Value) -> Result<(), String> {
        self.out.try_send(frame(message)).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => "it does not read what it is sent".into(),
            mpsc::error::TrySendError::Closed(_) => "it has ended".into(),
        })
    }

    /// Takes what the server says.
    pub(super) fn take(&self, message: &Value) {
        let method = message.get("method").and_then(Value::as_str);
        let params = message.get("params").unwrap_or(&Value::Null);
        match (method, message.get("id")) {
            (Some(method), Some(id)) => {
                let answer = match self.reply(method, params) {
                    Some(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                    None => {
                        let error = json!({"code": -32601, "message": format!("{method} is not known here")});
                        json!({"jsonrpc": "2.0", "id": id, "error": error})
                    }
                };
                self.send(&answer).ok();
            }
            (Some(method), None) => self.hear(method, params),
            (None, Some(id)) => {
                let Some(waiting) = id.as_u64().and_then(|id| locked(&self.waiting).remove(&id)) else { return };
                let answer = match message.get("error") {
                    Some(error) => {
                        let said = error.get("message").and_then(Value::as_str).unwrap_or("it failed");
                        Err(base::text::title(said))
                    }
                    None => Ok(message.get("result").cloned().unwrap_or_default()),
                };
                self.silent.store(false, Ordering::Relaxed);
                // The greeting has the number 0.
                self.warm.store(id.as_u64() != Some(0), Ordering::Relaxed);
                // Whoever asked may have gone.
                waiting.send(answer).ok();
            }
            (None, None) => {}
        }
    }

    fn reply(&self, method: &str, params: &Value) -> Option<Value> {
        let section = |item: &Value| {
            let name = item.get("section").and_then(Value::as_str).unwrap_or_default();
            let mut parts = name.split('.').filter(|part| !part.is_empty());
            parts.try_fold(&self.configuration, |at, part| at.get(part)).cloned().unwrap_or_default()
        };
        Some(match method {
            "workspace/configuration" => {
                params.get("items").and_then(Value::as_array).into_iter().flatten().map(section).collect()
            }
            "workspace/workspaceFolders" => json!([{"uri": shape::uri(&self.root), "name": "root"}]),
            "workspace/applyEdit" => json!({"applied": false, "failureReason": "nobody was asked"}),
            "window/showDocument" => json!({"success": false}),
            "workspace/diagnostic/refresh" => {
                self.stir();
                Value::Null
            }
            "client/registerCapability"
            | "client/unregisterCapability"
            | "window/workDoneProgress/create"
            | "window/showMessageRequest"
            | "workspace/semanticTokens/refresh"
            | "workspace/inlayHint/refresh"
            | "workspace/codeLens/refresh"
            | "workspace/foldingRange/refresh"
            | "workspace/inlineValue/refresh" => Value::Null,
            _ => return None,
        })
    }

    fn hear(&self, method: &str, params: &Value) {
        match method {
            "textDocument/publishDiagnostics" => {
                let Some(path) = params.get("uri").and_then(Value::as_str).and_then(shape::path) else { return };
                let sent = params.get("diagnostics").and_then(Value::as_array).into_iter().flatten();
                let all = sent.filter_map(Diagnostic::read).take(OF_EACH).collect();
                self.note(path.clone(), params.get("version").and_then(Value::as_i64), all);
                // What it says of an earlier text is not an answer.
                if self.heard(&path).is_some_and(|heard| heard.fresh) {
                    self.silent.store(false, Ordering::Relaxed);
                }
            }
            "$/progress" => {
                let token = params.get("token").map(Value::to_string).unwrap_or_default();
                match params.pointer("/value/kind").and_then(Value::as_str) {
                    Some("begin") => _ = locked(&self.busy).insert(token),
                    Some("end") => _ = locked(&self.busy).remove(&token),
                    _ => return,
                }
                self.stir();
            }
            "experimental/serverStatus" => {
                let quiet = params.get("quiescent").and_then(Value::as_bool) != Some(false);
                let token = "status".to_owned();
                let mut busy = locked(&self.busy);
                let _known = if quiet { busy.remove(&token) } else { busy.insert(token) };
                drop(busy);
                self.stir();
            }
            _ => {}
        }
    }

    fn note(&self, path: PathBuf, version: Option<i64>, all: Vec<Diagnostic>) {
        let at = *self.news.borrow() + 1;
        {
            let mut said = locked(&self.said);
            if said.len() < FILES || said.contains_key(&path) {
                said.insert(path, PublishedDiagnostics { version, at, when: Instant::now(), all });
            }
        }
        self.stir();
    }

    fn stir(&self) {
        self.news.send_modify(|news| *news += 1);
    }

    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// It says that it is at work.
    pub(super) fn is_busy(&self) -> bool {
        !locked(&self.busy).is_empty()
    }

    /// It was waited for in vain: nobody waits again before it has said something.
    pub(super) fn waited_in_vain(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    /// It has answered before: what takes long now is no start.
    pub fn is_warm(&self) -> bool {
        self.warm.load(Ordering::Relaxed)
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Shows it a file's text. Says whether it is another one than the server had.
    pub fn show(&self, path: &Path, text: &str) -> bool {
        let uri = shape::uri(path);
        let (used, at) = (self.ids.load(Ordering::Relaxed), *self.news.borrow());
        let mut open = locked(&self.open);
        let Some(file) = open.get_mut(path) else {
            if open.len() >= OPEN
                && let Some(oldest) = open.iter().min_by_key(|(_, file)| file.used).map(|(path, _)| path.clone())
            {
                open.remove(&oldest);
                self.tell("textDocument/didClose", json!({"textDocument": {"uri": shape::uri(&oldest)}}));
            }
            open.insert(path.to_owned(), OpenFile { version: 1, text: text.into(), at, used });
            let language = language_server::language(path);
            let document = json!({"uri": uri, "languageId": language, "version": 1, "text": text});
            self.tell("textDocument/didOpen", json!({"textDocument": document}));
            return true;
        };
        file.used = used;
        if &*file.text == text {
            return false;
        }
        (file.version, file.text, file.at) = (file.version + 1, text.into(), at);
        let document = json!({"uri": uri, "version": file.version});
        self.tell("textDocument/didChange", json!({"textDocument": document, "contentChanges": [{"text": text}]}));
        true
    }

    /// Tells it of files on the disk that were made (1), changed (2) or removed (3).
    pub fn changed(&self, files: &[(PathBuf, u8)]) {
        if files.is_empty() {
            return;
        }
        let saves = self.abilities.borrow().saves;
        let mut open = locked(&self.open);
        for (path, how) in files {
            let document = json!({"textDocument": {"uri": shape::uri(path)}});
            if *how == 3 && open.remove(path).is_some() {
                self.tell("textDocument/didClose", document);
            } else if saves && open.contains_key(path) {
                self.tell("textDocument/didSave", document);
            }
        }
        let all: Vec<Value> = files.iter().map(|(path, how)| json!({"uri": shape::uri(path), "type": how})).collect();
        self.tell("workspace/didChangeWatchedFiles", json!({"changes": all}));
    }

    /// The files it has open, with the texts it has of them.
    pub fn open(&self) -> Vec<(PathBuf, Arc<str>)> {
        locked(&self.open).iter().map(|(path, file)| (path.clone(), file.text.clone())).collect()
    }

    /// Has it look at a file again that has not changed itself.
    pub(super) fn nudge(&self, path: &Path) {
        let at = *self.news.borrow();
        let mut open = locked(&self.open);
        let Some(file) = open.get_mut(path) else { return };
        (file.version, file.at) = (file.version + 1, at);
        let document = json!({"uri": shape::uri(path), "version": file.version});
        let whole = json!([{"text": *file.text}]);
        self.tell("textDocument/didChange", json!({"textDocument": document, "contentChanges": whole}));
    }

    /// What it has said of a file by itself.
    pub(super) fn heard(&self, path: &Path) -> Option<FileDiagnostics> {
        let open = locked(&self.open).get(path).map(|file| (file.version, file.at));
        let said = locked(&self.said);
        let said = said.get(path)?;
        let fresh = match (open, said.version) {
            (Some((ours, at)), Some(theirs)) => theirs >= ours && said.at > at,
            (Some((_, at)), None) => said.at > at,
            (None, _) => true,
        };
        Some(FileDiagnostics { all: said.all.clone(), fresh, when: said.when })
    }

    /// All that it has said of files by itself.
    pub fn said(&self) -> BTreeMap<PathBuf, Vec<Diagnostic>> {
        locked(&self.said).iter().map(|(path, said)| (path.clone(), said.all.clone())).collect()
    }
}

/// A question that is waited for. Whoever gives up takes it back.
struct PendingRequest<'a> {
    peer: &'a LspClient,
    id: u64,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if locked(&self.peer.waiting).remove(&self.id).is_some() {
            self.peer.tell("$/cancelRequest", json!({"id": self.id}));
        }
    }
}

/// The command with which `typescript-language-server` passes requests on.
pub(super) const TSSERVER: &str = "typescript.tsserverRequest";

/// What is understood here. Diagnostics are asked for by servers that say at once that they can be.
fn capabilities() -> Value {
    json!({
        "general": {"positionEncodings": ["utf-16", "utf-8", "utf-32"]},
        "workspace": {
            "configuration": true, "workspaceFolders": true, "applyEdit": false,
            "didChangeConfiguration": {"dynamicRegistration": false},
            "didChangeWatchedFiles": {"dynamicRegistration": false},
            "diagnostics": {"refreshSupport": true},
            "symbol": {}, "workspaceEdit": {"documentChanges": true},
        },
        "textDocument": {
            "synchronization": {"didSave": true},
            "publishDiagnostics": {"versionSupport": true, "relatedInformation": false},
            "diagnostic": {"dynamicRegistration": false, "relatedDocumentSupport": false},
            "documentSymbol": {"hierarchicalDocumentSymbolSupport": true},
            "definition": {"linkSupport": true}, "implementation": {"linkSupport": true},
            "references": {}, "hover": {"contentFormat": ["markdown", "plaintext"]},
            "callHierarchy": {}, "rename": {"prepareSupport": false},
        },
        "window": {"workDoneProgress": true},
        "experimental": {"serverStatusNotification": true},
    })
}
