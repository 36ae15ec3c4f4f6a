//! Language servers: programs that analyse a project's files. A server is started in the background
//! when one of its files is accessed, one for each root folder of a project of its kind. The
//! sessions of this process share servers; a server ends with the last session that uses it. A
//! server's messages are untrusted data.
//!
//! The caller decides whether a server may run and in which sandbox:
//! `crates/tools/src/language.rs`.

mod affected_files;
mod client;
mod diagnostics;
mod errors;
mod framing;
pub mod language;
mod requests;
mod server;
mod types;
mod units;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::client::LspClient;
pub use self::errors::introduced_errors;
pub use self::requests::Navigation;
use self::server::LspLink;
pub use self::server::{LspFailure, Unavailable};
pub use self::types::{
    Diagnostic, FileRange, Position, Range, ReportedDiagnostics, Symbol, TextEdit,
};
pub use self::units::Units;
use base::lock::lock;
use sandbox::process::Program;

/// A server as it would run for a file.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerRun {
    pub name: String,
    /// The path of the program, and its arguments.
    pub command: (PathBuf, Vec<String>),
    pub environment: Vec<(String, String)>,
    /// Sent to it at the start.
    pub initialization: Option<Value>,
    /// The directory it works on.
    pub root: PathBuf,
}

/// The language servers of this process. The mutex is a leaf lock around a map.
#[derive(Default)]
pub struct LanguageServers(Mutex<HashMap<String, Weak<ServerHandle>>>);

/// The servers that one session uses, and the notices that its user has got. The mutexes are leaf
/// locks.
pub struct SessionServers {
    shared: Arc<LanguageServers>,
    used: Mutex<BTreeMap<String, Arc<ServerHandle>>>,
    notices: Mutex<BTreeSet<String>>,
}

/// A reference to a server, which runs as long as there is one.
pub struct ServerHandle {
    link: Arc<LspLink>,
    _stop: DropGuard,
}

impl SessionServers {
    /// Returns the state for a session that has used no server yet.
    pub fn new(shared: &Arc<LanguageServers>) -> Self {
        Self {
            shared: shared.clone(),
            used: Mutex::default(),
            notices: Mutex::default(),
        }
    }

    /// Returns the server of this command; starts it if no session uses it. `confined` describes
    /// everything else that restricts it: servers that differ in it are not shared.
    ///
    /// # Errors
    /// The errors of `program`, if the server has to be started.
    pub fn get<E>(
        &self,
        run: &ServerRun,
        confined: &str,
        program: impl FnOnce() -> Result<Program, E>,
    ) -> Result<Arc<ServerHandle>, E> {
        let key = format!("{confined}\n{run:?}");
        let mut used = lock(&self.used);
        if let Some(server) = used.get(&key) {
            return Ok(server.clone());
        }
        let server = self.shared.get(key.clone(), run, program)?;
        used.insert(key, server.clone());
        Ok(server)
    }

    /// Returns the servers that this session has used.
    pub fn used_servers(&self) -> Vec<Arc<ServerHandle>> {
        lock(&self.used).values().cloned().collect()
    }

    /// Records a notice to the user. Returns whether it is the first with this text.
    pub fn record_notice(&self, what: &str) -> bool {
        lock(&self.notices).insert(what.to_owned())
    }

    /// Drops the references; servers that no other session uses end.
    pub fn end(&self) {
        lock(&self.used).clear();
    }
}

impl LanguageServers {
    fn get<E>(
        &self,
        key: String,
        run: &ServerRun,
        program: impl FnOnce() -> Result<Program, E>,
    ) -> Result<Arc<ServerHandle>, E> {
        let mut all = lock(&self.0);
        all.retain(|_, server| server.strong_count() > 0);
        if let Some(server) = all.get(&key).and_then(Weak::upgrade) {
            return Ok(server);
        }
        let program = program()?;
        let link = LspLink::new(&run.name, run.root.clone(), run.initialization.clone());
        let stop = CancellationToken::new();
        base::task::spawn(server::supervise(link.clone(), program, stop.clone()));
        let server = Arc::new(ServerHandle {
            link,
            _stop: stop.drop_guard(),
        });
        all.insert(key, Arc::downgrade(&server));
        Ok(server)
    }
}

impl ServerHandle {
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// Returns the connection to the server, and starts it again if it is asleep. Waits until
    /// `until` at most.
    ///
    /// # Errors
    /// The reason why the server cannot be used.
    pub async fn peer(&self, until: Instant) -> Result<Arc<LspClient>, Unavailable> {
        self.link.peer(until).await
    }
}
