//! What one connection knows: the editor's capabilities (set once), the live sessions, the peer.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use protocol::rpc::{self, Peer};
use protocol::table::Reply;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::Refusal;
use super::update::Shows;
use crate::id::SessionId;
use crate::session::handle::{Busy, Written};
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
    // The same: sessions that are being opened or closed.
    opening: Mutex<HashMap<SessionId, Turnstile>>,
    // The same: sessions that were refused because another process has them, and how they were asked
    // for. Who asks again in the same way, means it.
    refused: Mutex<HashSet<(SessionId, &'static str)>>,
}

/// Where those wait who want something of a session that is being opened.
struct Turnstile {
    /// Its other end goes when the session is open, or cannot be opened.
    open: watch::Receiver<()>,
    /// Ends when what waits is cancelled.
    cancelled: CancellationToken,
}

/// A place before a session that is being opened.
pub struct Wait {
    open: watch::Receiver<()>,
    cancelled: CancellationToken,
}

impl Wait {
    /// Waits until the session is open or cannot be opened. False when the user cancelled meanwhile.
    pub async fn over(mut self) -> bool {
        tokio::select! {
            biased;
            () = self.cancelled.cancelled() => false,
            () = async { while self.open.changed().await.is_ok() {} } => !self.cancelled.is_cancelled(),
        }
    }
}

/// The right to open a session; nobody else may open it meanwhile.
pub struct Opening {
    server: Arc<Server>,
    id: SessionId,
    // Going, it lets in who waits.
    _open: watch::Sender<()>,
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.server.opening.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// What a choice of the user's is answered with, and what is to be kept before.
pub struct Chosen<R> {
    /// The answer.
    pub response: R,
    /// The session, and its word that it has written the choice down; none where nothing is kept.
    pub kept: Option<(Handle, Written)>,
}

/// What the editor said it can do.
#[derive(Debug, Clone, Default)]
pub struct Capabilities {
    /// Reads and writes files for us.
    pub files: Files,
    /// What it can show.
    pub shows: Shows,
    /// It shows forms, and brings back what was filled in.
    pub forms: bool,
    /// Nobody is there to answer questions.
    pub alone: bool,
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
            refused: Mutex::default(),
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
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(free) = opening.entry(id.clone()) {
            let (sender, open) = watch::channel(());
            free.insert(Turnstile { open, cancelled: CancellationToken::new() });
            return Ok(Opening { server: self.clone(), id, _open: sender });
        }
        Err(Refusal::Invalid("this session is being opened or closed; wait for that to end".into()))
    }

    /// A place to wait in, while a session is being opened.
    pub fn wait(&self, id: &str) -> Option<Wait> {
        let opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let turnstile = opening.get(&SessionId::new(id))?;
        Some(Wait { open: turnstile.open.clone(), cancelled: turnstile.cancelled.clone() })
    }

    /// Does something with a session: at once, or when it has been opened, where that is happening.
    ///
    /// The reply comes when what was chosen is kept.
    pub fn when_open<R: Send + 'static>(
        self: &Arc<Self>,
        id: &str,
        work: impl FnOnce() -> Result<Chosen<R>, Refusal> + Send + 'static,
    ) -> Reply<R> {
        let server = self.clone();
        match self.wait(id) {
            None => match work() {
                Ok(Chosen { response, kept: None }) => Reply::now(Ok(response)),
                Ok(chosen) => Reply::later(async move { Ok(server.settled(chosen).await?) }),
                Err(refusal) => Reply::now(Err(refusal.into())),
            },
            Some(wait) => Reply::later(async move {
                wait.over().await;
                Ok(server.settled(work()?).await?)
            }),
        }
    }

    async fn settled<R>(&self, chosen: Chosen<R>) -> Result<R, Refusal> {
        if let Some((session, written)) = chosen.kept {
            self.kept(&session, written).await?;
        }
        Ok(chosen.response)
    }

    /// Waits until something the user chose in a session survives the end of the process.
    ///
    /// # Errors
    /// The session ended before it was written down.
    pub async fn kept(&self, session: &Handle, written: Written) -> Result<(), Refusal> {
        written.await.map_err(|_| Busy::Closed)?;
        self.shared.store.handed_over(&session.id).await;
        Ok(())
    }

    /// Cancels what waits for a session to be opened.
    pub fn cancel_waiting(&self, id: &str) {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turnstile) = opening.get_mut(&SessionId::new(id)) {
            std::mem::take(&mut turnstile.cancelled).cancel();
        }
    }

    /// Whether a session was asked for in this way before, and refused because another process has it.
    pub fn insists(&self, id: &str, method: &'static str) -> bool {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).remove(&(SessionId::new(id), method))
    }

    /// Remembers such a refusal.
    pub fn refuse(&self, id: &str, method: &'static str) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert((SessionId::new(id), method));
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
