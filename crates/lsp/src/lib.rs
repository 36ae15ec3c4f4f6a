//! Language servers: programs that know what a project's files mean. They are started when a file of theirs is
//! looked at, in the background, one for each folder that begins a project of their kind; the sessions of this
//! process share them, and they end with the last of these. What a server says is data, however it is spelled.
//!
//! Who asks decides how a server is started (where it may run at all, in which sandbox): `tool/language.rs`.

mod ask;
mod callers;
mod diagnose;
mod errors;
mod frame;
mod peer;
mod server;
mod shape;
mod units;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, Weak};

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::ask::Navigation;
pub use self::errors::introduced;
pub use self::peer::LspClient;
use self::server::LspLink;
pub use self::server::{LspFailure, Unready};
pub use self::shape::{Diagnostic, FileRange, Judged, Position, Range, Symbol, TextEdit};
pub use self::units::Units;
use base::lock::locked;
use config::language_server::ServerRun;
use sandbox::process::Program;

/// The language servers of this process. A std mutex: a leaf around a map.
#[derive(Default)]
pub struct LanguageServers(Mutex<HashMap<String, Weak<ServerHandle>>>);

/// Those that one session uses, and what its user was told of them. Std mutexes: leaves around a map and a set.
pub struct SessionServers {
    shared: Arc<LanguageServers>,
    used: Mutex<BTreeMap<String, Arc<ServerHandle>>>,
    told: Mutex<BTreeSet<String>>,
}

/// A server that is kept for as long as somebody has this.
pub struct ServerHandle {
    link: Arc<LspLink>,
    _stop: DropGuard,
}

impl SessionServers {
    /// For a session that has asked for none yet.
    pub fn new(shared: &Arc<LanguageServers>) -> Self {
        Self { shared: shared.clone(), used: Mutex::default(), told: Mutex::default() }
    }

    /// The server that runs like this; started if nobody has it. `confined` is whatever else decides what it may
    /// do: servers that differ in it are not shared.
    ///
    /// # Errors
    /// Those of `program`, if it has to be started.
    pub fn get<E>(
        &self,
        run: &ServerRun,
        confined: &str,
        program: impl FnOnce() -> Result<Program, E>,
    ) -> Result<Arc<ServerHandle>, E> {
        let key = format!("{confined}\n{run:?}");
        let mut used = locked(&self.used);
        if let Some(server) = used.get(&key) {
            return Ok(server.clone());
        }
        let server = self.shared.get(key.clone(), run, program)?;
        used.insert(key, server.clone());
        Ok(server)
    }

    /// Those that this session has asked for.
    pub fn used(&self) -> Vec<Arc<ServerHandle>> {
        locked(&self.used).values().cloned().collect()
    }

    /// Whether this is the first time that the user is told so.
    pub fn tells(&self, what: &str) -> bool {
        locked(&self.told).insert(what.to_owned())
    }

    /// Lets go of them: those that nobody else uses end.
    pub fn end(&self) {
        locked(&self.used).clear();
    }
}

impl LanguageServers {
    fn get<E>(
        &self,
        key: String,
        run: &ServerRun,
        program: impl FnOnce() -> Result<Program, E>,
    ) -> Result<Arc<ServerHandle>, E> {
        let mut all = locked(&self.0);
        all.retain(|_, server| server.strong_count() > 0);
        if let Some(server) = all.get(&key).and_then(Weak::upgrade) {
            return Ok(server);
        }
        let program = program()?;
        let link = LspLink::new(&run.name, run.root.clone(), run.initialization.clone());
        let stop = CancellationToken::new();
        base::task::spawn(server::keep(link.clone(), program, stop.clone()));
        let server = Arc::new(ServerHandle { link, _stop: stop.drop_guard() });
        all.insert(key, Arc::downgrade(&server));
        Ok(server)
    }
}

impl ServerHandle {
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// The server as it works, started again where it sleeps. Waits until `until` at most.
    ///
    /// # Errors
    /// Why it cannot be asked.
    pub async fn peer(&self, until: Instant) -> Result<Arc<LspClient>, Unready> {
        self.link.peer(until).await
    }
}
