//! What one connection knows: the editor's capabilities (set once), the live sessions, the peer.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use protocol::rpc::{self, Peer};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::Refusal;
use super::update::Shows;
use crate::id::SessionId;
use crate::session::{Handle, Shared};
use crate::tool::Files;

/// One connection to an editor.
pub struct Server {
    /// What all sessions share.
    pub shared: Arc<Shared>,
    /// The editor.
    pub peer: Peer,
    /// Ends with the connection.
    pub ended: CancellationToken,
    /// What runs beside the requests: news of sessions between turns.
    pub tasks: TaskTracker,
    capabilities: OnceLock<Capabilities>,
    // A std mutex: a leaf around a map, never held across an await.
    sessions: Mutex<HashMap<SessionId, Handle>>,
    // The same: sessions that are being opened.
    opening: Mutex<HashSet<SessionId>>,
}

/// The right to open a session; nobody else may open it meanwhile.
pub struct Opening {
    server: Arc<Server>,
    id: SessionId,
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.server.opening.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// What the editor said it can do.
#[derive(Debug, Clone, Default)]
pub struct Capabilities {
    /// Reads and writes files for us.
    pub files: Files,
    /// What it can show.
    pub shows: Shows,
    /// Runs logins in a terminal in the way of before the protocol knew of it.
    pub runs_logins: bool,
}

impl Server {
    /// A connection that has not shaken hands yet.
    pub fn new(shared: Arc<Shared>, peer: Peer, ended: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            shared,
            peer,
            ended,
            tasks: TaskTracker::new(),
            capabilities: OnceLock::new(),
            sessions: Mutex::default(),
            opening: Mutex::default(),
        })
    }

    /// Remembers the editor's capabilities. A second handshake does not change them.
    pub fn shake_hands(&self, capabilities: Capabilities) {
        if self.capabilities.set(capabilities).is_err() {
            tracing::info!("a second handshake; the first one's capabilities stay");
        }
    }

    /// The editor's capabilities; nothing before the handshake.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities.get().cloned().unwrap_or_default()
    }

    /// Lets nothing but the handshake pass before it.
    ///
    /// # Errors
    /// -32600.
    pub fn gate(&self, method: &str) -> Result<(), rpc::Error> {
        if method == "initialize" || self.capabilities.get().is_some() {
            return Ok(());
        }
        Err(Refusal::TooEarly.into())
    }

    /// A live session.
    ///
    /// # Errors
    /// [`Refusal::NoSession`].
    pub fn session(&self, id: &str) -> Result<Handle, Refusal> {
        let handle = self.lock().get(&SessionId::new(id)).cloned();
        handle.ok_or_else(|| Refusal::NoSession(id.chars().take(100).collect()))
    }

    /// Claims a session for opening, closing or deleting it.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] while somebody else does one of these.
    pub fn claim(self: &Arc<Self>, id: &str) -> Result<Opening, Refusal> {
        let id = SessionId::new(id);
        if self.opening.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone()) {
            return Ok(Opening { server: self.clone(), id });
        }
        Err(Refusal::Invalid("this session is being opened or closed; wait for that to end".into()))
    }

    /// Makes a session live.
    pub fn adopt(&self, handle: Handle) {
        self.lock().insert(handle.id.clone(), handle);
    }

    /// Makes a session no longer live.
    pub fn dismiss(&self, id: &str) -> Option<Handle> {
        self.lock().remove(&SessionId::new(id))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Handle>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
