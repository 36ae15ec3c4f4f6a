//! What one connection knows: the editor's capabilities (set once), the live sessions, the peer.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use protocol::rpc::{self, Peer};
use protocol::table::Reply;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::Refusal;
use super::face::{DisplayCapabilities, NewView, View};
use crate::id::SessionId;
use crate::lock::locked;
use crate::session::handle::{MailboxError, SavedReceiver};
use crate::session::{Handle, Sessions};
use crate::tool::FileCapabilities;

/// One connection to an editor.
pub struct Server {
    /// What all sessions share.
    pub shared: Arc<Sessions>,
    /// The editor.
    pub peer: Peer,
    /// Ends with the connection.
    pub ended: CancellationToken,
    /// What runs beside the requests: news of sessions between turns.
    pub tasks: TaskTracker,
    /// Makes what the editor is shown of a session, in its version of the protocol.
    view: NewView,
    // A std mutex: a leaf around a value.
    capabilities: Mutex<Option<Capabilities>>,
    // A std mutex: a leaf around a map, never held across an await.
    sessions: Mutex<HashMap<SessionId, Handle>>,
    // The same: sessions that are being opened or closed.
    opening: Mutex<HashMap<SessionId, PendingOpen>>,
    // The same: sessions that were refused because another process has them, and how they were asked
    // for. Who asks again in the same way, means it.
    refused: Mutex<HashSet<(SessionId, &'static str)>>,
}

/// Where those wait who want something of a session that is being opened.
struct PendingOpen {
    /// Its other end goes when the session is open, or cannot be opened.
    open: watch::Receiver<()>,
    /// Ends when what waits is cancelled.
    cancelled: CancellationToken,
}

/// A place before a session that is being opened.
pub struct OpenWaiter {
    open: watch::Receiver<()>,
    cancelled: CancellationToken,
}

impl OpenWaiter {
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
pub struct OpenGuard {
    server: Arc<Server>,
    id: SessionId,
    // Going, it lets in who waits.
    _open: watch::Sender<()>,
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        locked(&self.server.opening).remove(&self.id);
    }
}

/// What a choice of the user's is answered with, and what is to be kept before.
pub struct ChoiceReply<R> {
    /// The answer.
    pub response: R,
    /// The session, and its word that it has written the choice down; none where nothing is kept.
    pub kept: Option<(Handle, SavedReceiver)>,
}

/// What the editor said it can do.
#[derive(Debug, Clone, Default)]
pub struct Capabilities {
    /// Reads and writes files for us.
    pub files: FileCapabilities,
    /// What it can show.
    pub shows: DisplayCapabilities,
    /// It shows forms, and brings back what was filled in.
    pub forms: bool,
    /// It shows addresses that somebody is to visit.
    pub addresses: bool,
    /// Nobody is there to answer questions.
    pub alone: bool,
    /// Runs logins in a terminal in the way of before the protocol knew of it.
    pub runs_logins: bool,
    /// The commands do not come with the answer that opens a session, and the editor may miss what follows
    /// it at once: Zed registers a session some time after it has read the response.
    pub misses_commands: bool,
}

impl Server {
    /// A connection that has not shaken hands yet, over which the version is spoken that `view` belongs to.
    pub fn new(shared: Arc<Sessions>, peer: Peer, ended: CancellationToken, view: NewView) -> Arc<Self> {
        Arc::new(Self {
            shared,
            peer,
            ended,
            tasks: TaskTracker::new(),
            view,
            capabilities: Mutex::default(),
            sessions: Mutex::default(),
            opening: Mutex::default(),
            refused: Mutex::default(),
        })
    }

    /// Remembers the editor's capabilities. A second handshake does not change them.
    pub fn shake_hands(&self, capabilities: Capabilities) {
        let mut known = locked(&self.capabilities);
        if known.is_some() {
            tracing::info!("a second handshake; the first one's capabilities stay");
        }
        known.get_or_insert(capabilities);
    }

    /// Remembers the editor's capabilities as it has said them last.
    pub fn shake_hands_again(&self, capabilities: Capabilities) {
        *locked(&self.capabilities) = Some(capabilities);
    }

    /// The editor's capabilities; nothing before the handshake.
    pub fn capabilities(&self) -> Capabilities {
        locked(&self.capabilities).clone().unwrap_or_default()
    }

    /// A view of a session that has been shown nothing yet.
    pub fn view(&self) -> Box<dyn View> {
        (self.view)(&self.peer, self.capabilities().shows)
    }

    /// Lets nothing but the handshake pass before it.
    ///
    /// # Errors
    /// -32600.
    pub fn gate(&self, method: &str) -> Result<(), rpc::Error> {
        if method == "initialize" || locked(&self.capabilities).is_some() {
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
    pub fn claim(self: &Arc<Self>, id: &str) -> Result<OpenGuard, Refusal> {
        let id = SessionId::new(id);
        let mut opening = locked(&self.opening);
        if let Entry::Vacant(free) = opening.entry(id.clone()) {
            let (sender, open) = watch::channel(());
            free.insert(PendingOpen { open, cancelled: CancellationToken::new() });
            return Ok(OpenGuard { server: self.clone(), id, _open: sender });
        }
        Err(Refusal::Invalid("this session is being opened or closed; wait for that to end".into()))
    }

    /// A place to wait in, while a session is being opened.
    pub fn wait(&self, id: &str) -> Option<OpenWaiter> {
        let opening = locked(&self.opening);
        let pending = opening.get(&SessionId::new(id))?;
        Some(OpenWaiter { open: pending.open.clone(), cancelled: pending.cancelled.clone() })
    }

    /// Does something with a session: at once, or when it has been opened, where that is happening.
    ///
    /// The reply comes when what was chosen is kept.
    pub fn when_open<R: Send + 'static>(
        self: &Arc<Self>,
        id: &str,
        work: impl FnOnce() -> Result<ChoiceReply<R>, Refusal> + Send + 'static,
    ) -> Reply<R> {
        let server = self.clone();
        match self.wait(id) {
            None => match work() {
                Ok(ChoiceReply { response, kept: None }) => Reply::now(Ok(response)),
                Ok(chosen) => Reply::later(async move { Ok(server.settled(chosen).await?) }),
                Err(refusal) => Reply::now(Err(refusal.into())),
            },
            Some(wait) => Reply::later(async move {
                wait.over().await;
                Ok(server.settled(work()?).await?)
            }),
        }
    }

    async fn settled<R>(&self, chosen: ChoiceReply<R>) -> Result<R, Refusal> {
        if let Some((session, written)) = chosen.kept {
            self.kept(&session, written).await?;
        }
        Ok(chosen.response)
    }

    /// Waits until something the user chose in a session survives the end of the process.
    ///
    /// # Errors
    /// The session ended before it was written down.
    pub async fn kept(&self, session: &Handle, written: SavedReceiver) -> Result<(), Refusal> {
        written.await.map_err(|_| MailboxError::Closed)?;
        self.shared.store.handed_over(&session.id).await;
        Ok(())
    }

    /// Cancels what waits for a session to be opened.
    pub fn cancel_waiting(&self, id: &str) {
        let mut opening = locked(&self.opening);
        if let Some(pending) = opening.get_mut(&SessionId::new(id)) {
            std::mem::take(&mut pending.cancelled).cancel();
        }
    }

    /// Whether a session was asked for in this way before, and refused because another process has it.
    pub fn insists(&self, id: &str, method: &'static str) -> bool {
        locked(&self.refused).remove(&(SessionId::new(id), method))
    }

    /// Remembers such a refusal.
    pub fn refuse(&self, id: &str, method: &'static str) {
        locked(&self.refused).insert((SessionId::new(id), method));
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
        locked(&self.sessions)
    }
}
