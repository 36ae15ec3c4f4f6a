//! The connection to a server: requests, notifications from the server, and open files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::framing::frame;
use super::types::{self, Diagnostic};
use super::units::Units;
use base::lock::lock;

/// The maximum number of messages that wait for a server that does not read.
pub(super) const MAX_QUEUED_MESSAGES: usize = 256;
/// The maximum number of files that are open in a server.
const MAX_OPEN_FILES: usize = 64;
/// The maximum number of files whose published diagnostics are stored, and of diagnostics for each.
const MAX_FILES: usize = 2_000;
const MAX_DIAGNOSTICS_PER_FILE: usize = 500;

/// The connection to a server, with the state of its open files and diagnostics.
pub struct LspClient {
    out: mpsc::Sender<Vec<u8>>,
    ids: AtomicU64,
    /// The root folder of the workspace.
    root: PathBuf,
    /// The configuration, from which the server may request sections by name.
    configuration: Value,
    // Leaf locks around maps.
    waiting: Mutex<HashMap<u64, oneshot::Sender<Result<Value, String>>>>,
    published: Mutex<BTreeMap<PathBuf, PublishedDiagnostics>>,
    open: Mutex<HashMap<PathBuf, OpenFile>>,
    busy: Mutex<HashSet<String>>,
    /// A counter of diagnostics and changes of activity.
    updates: watch::Sender<u64>,
    abilities: watch::Sender<Abilities>,
    /// True if a wait for it has timed out since its last message.
    silent: AtomicBool,
    /// True if it has answered a request after `initialize`.
    warm: AtomicBool,
    /// Cancelled when the server has closed its output: no more answers will come.
    pub(super) gone: CancellationToken,
}

/// The relevant capabilities of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Abilities {
    all: Value,
    /// The units in which it counts characters.
    pub(super) units: Units,
    /// True if it answers requests for diagnostics.
    pub(super) pull: bool,
    /// True if it forwards requests to tsserver.
    pub(super) tsserver: bool,
    /// True if it wants to be notified of saved files.
    saves: bool,
}

/// The diagnostics that a server has published for a file.
struct PublishedDiagnostics {
    /// The version of our text that they are for, if known.
    version: Option<i64>,
    at: u64,
    when: Instant,
    all: Vec<Diagnostic>,
}

struct OpenFile {
    version: i64,
    text: Arc<str>,
    /// The value of `updates` at its last change.
    at: u64,
    /// The number of requests sent before its last use.
    used: u64,
}

/// The present diagnostics of a file.
pub(super) struct FileDiagnostics {
    pub(super) all: Vec<Diagnostic>,
    /// True if they are for the text that the server has now.
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
            published: Mutex::default(),
            open: Mutex::default(),
            busy: Mutex::default(),
            updates: watch::Sender::new(0),
            abilities: watch::Sender::new(Abilities::default()),
            silent: AtomicBool::new(false),
            warm: AtomicBool::new(false),
            gone: CancellationToken::new(),
        }
    }

    /// Sends `initialize` and reads the capabilities.
    ///
    /// # Errors
    /// The reason why there is no valid answer.
    pub(super) async fn initialize(&self, options: Option<&Value>) -> Result<(), String> {
        let uri = types::uri(&self.root);
        let folder =
            json!([{"uri": uri, "name": self.root.file_name().map(|name| name.to_string_lossy())}]);
        let mut greeting = json!({
            // In a sandbox our process id has no meaning, and servers end if there is no process
            // with it.
            "processId": null, "clientInfo": {"name": "adjutant", "version": env!("CARGO_PKG_VERSION")},
            "rootUri": uri, "rootPath": self.root, "workspaceFolders": folder, "capabilities": capabilities(),
        });
        greeting["initializationOptions"] = options.cloned().unwrap_or_else(|| json!({}));
        let answer = self.request("initialize", greeting).await?;
        let all = answer.get("capabilities").cloned().unwrap_or_default();
        let units = match all.get("positionEncoding").and_then(Value::as_str) {
            Some("utf-8") => Units::Bytes,
            Some("utf-32") => Units::Letters,
            _ => Units::Utf16,
        };
        let commands = all
            .pointer("/executeCommandProvider/commands")
            .and_then(Value::as_array);
        let tsserver = commands.is_some_and(|all| all.iter().any(|name| name == TSSERVER));
        let sync = all.get("textDocumentSync");
        let saves = sync
            .and_then(|sync| sync.get("save"))
            .is_some_and(|save| *save != Value::Bool(false))
            || sync.is_some_and(Value::is_number);
        let pull = all.get("diagnosticProvider").is_some_and(Value::is_object);
        self.abilities.send_replace(Abilities {
            all,
            units,
            pull,
            tsserver,
            saves,
        });
        self.notify("initialized", json!({}));
        if self.configuration != Value::Null {
            self.notify(
                "workspace/didChangeConfiguration",
                json!({"settings": self.configuration}),
            );
        }
        Ok(())
    }

    pub(super) fn abilities(&self) -> Abilities {
        self.abilities.borrow().clone()
    }

    pub(super) fn has_workspace_diagnostics(&self) -> bool {
        let all = &self.abilities.borrow().all;
        all.pointer("/diagnosticProvider/workspaceDiagnostics") == Some(&Value::Bool(true))
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns whether the server has a capability, by its name.
    pub(super) fn offers(&self, provider: &str) -> bool {
        let all = &self.abilities.borrow().all;
        all.get(provider)
            .is_some_and(|offer| !matches!(offer, Value::Null | Value::Bool(false)))
    }

    /// Sends a request and waits for the answer. The caller limits the time.
    ///
    /// # Errors
    /// The server's message, or that it has ended.
    pub(super) async fn request(&self, method: &str, params: Value) -> Result<Value, String> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        lock(&self.waiting).insert(id, reply);
        let pending = PendingRequest { peer: self, id };
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        let answer = tokio::select! {
            answer = answer => answer.unwrap_or_else(|_| Err("it has ended".into())),
            () = self.gone.cancelled() => Err("it has ended".into()),
        };
        drop(pending);
        answer
    }

    fn notify(&self, method: &str, params: Value) {
        // A failure is noticed by the next request.
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
            .ok();
    }

    fn send(&self, message: &Value) -> Result<(), String> {
        self.out.try_send(frame(message)).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => "it does not read its input".into(),
            mpsc::error::TrySendError::Closed(_) => "it has ended".into(),
        })
    }

    /// Handles a message from the server.
    pub(super) fn handle(&self, message: &Value) {
        let method = message.get("method").and_then(Value::as_str);
        let params = message.get("params").unwrap_or(&Value::Null);
        match (method, message.get("id")) {
            (Some(method), Some(id)) => {
                let answer = match self.answer_request(method, params) {
                    Some(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                    None => {
                        let error = json!({"code": -32601, "message": format!("{method} is not known here")});
                        json!({"jsonrpc": "2.0", "id": id, "error": error})
                    }
                };
                self.send(&answer).ok();
            }
            (Some(method), None) => self.handle_notification(method, params),
            (None, Some(id)) => {
                let Some(waiting) = id.as_u64().and_then(|id| lock(&self.waiting).remove(&id))
                else {
                    return;
                };
                let answer = match message.get("error") {
                    Some(error) => {
                        let text = error
                            .get("message")
                            .and_then(Value::as_str)
                            .unwrap_or("it failed");
                        Err(base::text::title(text))
                    }
                    None => Ok(message.get("result").cloned().unwrap_or_default()),
                };
                self.silent.store(false, Ordering::Relaxed);
                // The id 0 is that of `initialize`.
                self.warm.store(id.as_u64() != Some(0), Ordering::Relaxed);
                // The caller may have stopped waiting.
                waiting.send(answer).ok();
            }
            (None, None) => {}
        }
    }

    fn answer_request(&self, method: &str, params: &Value) -> Option<Value> {
        let section = |item: &Value| {
            let name = item
                .get("section")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let mut parts = name.split('.').filter(|part| !part.is_empty());
            parts
                .try_fold(&self.configuration, |at, part| at.get(part))
                .cloned()
                .unwrap_or_default()
        };
        Some(match method {
            "workspace/configuration" => params
                .get("items")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(section)
                .collect(),
            "workspace/workspaceFolders" => {
                json!([{"uri": types::uri(&self.root), "name": "root"}])
            }
            "workspace/applyEdit" => {
                json!({"applied": false, "failureReason": "the user was not asked"})
            }
            "window/showDocument" => json!({"success": false}),
            "workspace/diagnostic/refresh" => {
                self.count_update();
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

    fn handle_notification(&self, method: &str, params: &Value) {
        match method {
            "textDocument/publishDiagnostics" => {
                let Some(path) = params
                    .get("uri")
                    .and_then(Value::as_str)
                    .and_then(types::path)
                else {
                    return;
                };
                let sent = params
                    .get("diagnostics")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten();
                let all = sent
                    .filter_map(Diagnostic::read)
                    .take(MAX_DIAGNOSTICS_PER_FILE)
                    .collect();
                self.store_diagnostics(
                    path.clone(),
                    params.get("version").and_then(Value::as_i64),
                    all,
                );
                // Diagnostics of an earlier text are not an answer.
                if self.published_for(&path).is_some_and(|file| file.fresh) {
                    self.silent.store(false, Ordering::Relaxed);
                }
            }
            "$/progress" => {
                let token = params
                    .get("token")
                    .map(Value::to_string)
                    .unwrap_or_default();
                match params.pointer("/value/kind").and_then(Value::as_str) {
                    Some("begin") => _ = lock(&self.busy).insert(token),
                    Some("end") => _ = lock(&self.busy).remove(&token),
                    _ => return,
                }
                self.count_update();
            }
            "experimental/serverStatus" => {
                let quiet = params.get("quiescent").and_then(Value::as_bool) != Some(false);
                let token = "status".to_owned();
                let mut busy = lock(&self.busy);
                let _known = if quiet {
                    busy.remove(&token)
                } else {
                    busy.insert(token)
                };
                drop(busy);
                self.count_update();
            }
            _ => {}
        }
    }

    fn store_diagnostics(&self, path: PathBuf, version: Option<i64>, all: Vec<Diagnostic>) {
        let at = *self.updates.borrow() + 1;
        {
            let mut published = lock(&self.published);
            if published.len() < MAX_FILES || published.contains_key(&path) {
                published.insert(
                    path,
                    PublishedDiagnostics {
                        version,
                        at,
                        when: Instant::now(),
                        all,
                    },
                );
            }
        }
        self.count_update();
    }

    fn count_update(&self) {
        self.updates.send_modify(|updates| *updates += 1);
    }

    pub(super) fn updates(&self) -> watch::Receiver<u64> {
        self.updates.subscribe()
    }

    /// Returns whether the server reports work in progress.
    pub(super) fn is_busy(&self) -> bool {
        !lock(&self.busy).is_empty()
    }

    /// Records that a wait has timed out: there are no further waits until the next message.
    pub(super) fn mark_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    /// Returns whether it has answered before, so that a delay is not due to its start.
    pub fn is_warm(&self) -> bool {
        self.warm.load(Ordering::Relaxed)
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Sends a file's text to the server. Returns whether it differs from the text that the server
    /// had.
    pub fn show(&self, path: &Path, text: &str) -> bool {
        let uri = types::uri(path);
        let used = self.ids.load(Ordering::Relaxed);
        let at = *self.updates.borrow();
        let mut open = lock(&self.open);
        let Some(file) = open.get_mut(path) else {
            if open.len() >= MAX_OPEN_FILES
                && let Some(oldest) = open
                    .iter()
                    .min_by_key(|(_, file)| file.used)
                    .map(|(path, _)| path.clone())
            {
                open.remove(&oldest);
                self.notify(
                    "textDocument/didClose",
                    json!({"textDocument": {"uri": types::uri(&oldest)}}),
                );
            }
            open.insert(
                path.to_owned(),
                OpenFile {
                    version: 1,
                    text: text.into(),
                    at,
                    used,
                },
            );
            let language = crate::language::language(path);
            let document = json!({"uri": uri, "languageId": language, "version": 1, "text": text});
            self.notify("textDocument/didOpen", json!({"textDocument": document}));
            return true;
        };
        file.used = used;
        if &*file.text == text {
            return false;
        }
        file.version += 1;
        file.text = text.into();
        file.at = at;
        let document = json!({"uri": uri, "version": file.version});
        self.notify(
            "textDocument/didChange",
            json!({"textDocument": document, "contentChanges": [{"text": text}]}),
        );
        true
    }

    /// Notifies the server of files on the disk that were created (1), changed (2) or deleted (3).
    pub fn changed(&self, files: &[(PathBuf, u8)]) {
        if files.is_empty() {
            return;
        }
        let saves = self.abilities.borrow().saves;
        let mut open = lock(&self.open);
        for (path, how) in files {
            let document = json!({"textDocument": {"uri": types::uri(path)}});
            if *how == 3 && open.remove(path).is_some() {
                self.notify("textDocument/didClose", document);
            } else if saves && open.contains_key(path) {
                self.notify("textDocument/didSave", document);
            }
        }
        let all: Vec<Value> = files
            .iter()
            .map(|(path, how)| json!({"uri": types::uri(path), "type": how}))
            .collect();
        self.notify("workspace/didChangeWatchedFiles", json!({"changes": all}));
    }

    /// Returns the open files with their texts.
    pub fn open(&self) -> Vec<(PathBuf, Arc<str>)> {
        lock(&self.open)
            .iter()
            .map(|(path, file)| (path.clone(), file.text.clone()))
            .collect()
    }

    /// Makes the server check an unchanged file again.
    pub(super) fn recheck(&self, path: &Path) {
        let at = *self.updates.borrow();
        let mut open = lock(&self.open);
        let Some(file) = open.get_mut(path) else {
            return;
        };
        file.version += 1;
        file.at = at;
        let document = json!({"uri": types::uri(path), "version": file.version});
        let whole = json!([{"text": *file.text}]);
        self.notify(
            "textDocument/didChange",
            json!({"textDocument": document, "contentChanges": whole}),
        );
    }

    /// Returns the published diagnostics of a file.
    pub(super) fn published_for(&self, path: &Path) -> Option<FileDiagnostics> {
        let open = lock(&self.open)
            .get(path)
            .map(|file| (file.version, file.at));
        let published = lock(&self.published);
        let published = published.get(path)?;
        let fresh = match (open, published.version) {
            (Some((ours, at)), Some(theirs)) => theirs >= ours && published.at > at,
            (Some((_, at)), None) => published.at > at,
            (None, _) => true,
        };
        Some(FileDiagnostics {
            all: published.all.clone(),
            fresh,
            when: published.when,
        })
    }

    /// Returns all published diagnostics.
    pub fn published(&self) -> BTreeMap<PathBuf, Vec<Diagnostic>> {
        lock(&self.published)
            .iter()
            .map(|(path, published)| (path.clone(), published.all.clone()))
            .collect()
    }
}

/// A pending request, which is cancelled if the caller stops waiting.
struct PendingRequest<'a> {
    peer: &'a LspClient,
    id: u64,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if lock(&self.peer.waiting).remove(&self.id).is_some() {
            self.peer.notify("$/cancelRequest", json!({"id": self.id}));
        }
    }
}

/// The command with which `typescript-language-server` forwards requests to tsserver.
pub(super) const TSSERVER: &str = "typescript.tsserverRequest";

/// Returns the client's capabilities. Diagnostics are only requested from servers that announce the
/// capability at once.
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
