//! What one connection knows: the editor's capabilities (set once), the live sessions, the peer.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use protocol::rpc::{self, Peer};
use protocol::table::Reply;
use tokio_util::sync::CancellationToken;

use super::error::Refusal;
use super::face::{DisplayCapabilities, NewView, SessionView};
use super::hosted::{FoundSession, Holder, Hosted, LiveSession, Liveness};
use base::id::SessionId;
use base::lock::locked;
use session::handle::{MailboxError, SavedReceiver};
use session::{Handle, Sessions};
use tools::FileCapabilities;

/// One connection to an editor.
pub struct Server {
    pub shared: Arc<Sessions>,
    pub peer: Peer,
    pub ended: CancellationToken,
    /// Makes what the editor is shown of a session, in its version of the protocol.
    view: NewView,
    // A std mutex: a leaf around a value.
    capabilities: Mutex<Option<Capabilities>>,
    // A std mutex: a leaf around a map, never held across an await.
    sessions: Mutex<HashMap<SessionId, LiveSession<Self>>>,
    // The same: what has come for sessions and is to be carried out in that order. No list is empty.
    queues: Mutex<HashMap<SessionId, RequestQueue>>,
    // The same: sessions that were refused because another connection has them, and how they were asked
    // for. Who asks again in the same way, means it.
    refused: Mutex<HashSet<(SessionId, &'static str)>>,
    /// What there is beyond one connection; nothing on standard input and output.
    remote: Option<RemoteClient>,
    /// The connection has ended, and its sessions wait for another.
    left: AtomicBool,
}

/// Whose connection it is, among those of a server.
pub struct RemoteClient {
    /// The sessions of the user, on whichever connection.
    pub hosted: Arc<Hosted<Server>>,
    /// Directories that may be opened, as the system names them; none: any.
    pub roots: Option<Arc<[PathBuf]>>,
    /// Whether the editor is there.
    pub liveness: Arc<Liveness>,
}

/// What has come for a session and was not carried out, the oldest first.
type RequestQueue = VecDeque<Arc<QueuedRequest>>;

struct QueuedRequest {
    /// It opens, closes or deletes the session.
    claims: bool,
    /// Ends when all that came before was carried out.
    first: CancellationToken,
    /// Ends when the user cancels what waits.
    cancelled: CancellationToken,
}

/// A place among what has come for a session, from its arrival until it was carried out: what comes meanwhile waits
/// behind it, and is let in, in order, when this is dropped.
pub struct QueuePlace {
    server: Arc<Server>,
    id: SessionId,
    request: Arc<QueuedRequest>,
}

impl QueuePlace {
    /// Waits until all that came before was carried out.
    pub async fn first(&self) {
        self.request.first.cancelled().await;
    }

    /// The same. False when the user cancelled meanwhile.
    pub async fn first_unless_cancelled(&self) -> bool {
        tokio::select! {
            biased;
            () = self.request.cancelled.cancelled() => false,
            () = self.first() => true,
        }
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let next = self.server.leave_queue(&self.id, &self.request);
        if let Some(next) = next {
            next.first.cancel();
        }
    }
}

/// What a choice of the user's is answered with, and what is to be kept before.
pub struct ChoiceReply<R> {
    pub response: R,
    /// The session, and its word that it has written the choice down; none where nothing is kept.
    pub kept: Option<(Handle, SavedReceiver)>,
}

/// What the editor said it can do.
#[derive(Debug, Clone, Default)]
pub struct Capabilities {
    /// Reads and writes files for us.
    pub files: FileCapabilities,
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
        Self::of_remote(shared, peer, ended, view, None)
    }

    /// The same where it is one of many.
    pub fn of_remote(
        shared: Arc<Sessions>,
        peer: Peer,
        ended: CancellationToken,
        view: NewView,
        remote: Option<RemoteClient>,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared,
            peer,
            ended,
            view,
            capabilities: Mutex::default(),
            sessions: Mutex::default(),
            queues: Mutex::default(),
            refused: Mutex::default(),
            remote,
            left: AtomicBool::new(false),
        })
    }

    /// The sessions of its user, where they outlive the connection.
    pub fn hosted(&self) -> Option<&Arc<Hosted<Self>>> {
        self.remote.as_ref().map(|remote| &remote.hosted)
    }

    /// The directories that may be opened, where not all may.
    pub fn roots(&self) -> Option<&[PathBuf]> {
        self.remote.as_ref()?.roots.as_deref()
    }

    /// Whether one more session may be opened.
    ///
    /// # Errors
    /// There are as many as there may be.
    pub fn has_room(&self) -> Result<(), Refusal> {
        let Some(hosted) = self.hosted() else { return Ok(()) };
        let full = |most: usize, whose: &str| Refusal::Failed {
            message: format!("{whose} has {most} sessions open, and no more are allowed."),
            advice: Some("Close one that is not needed any more.".into()),
        };
        let (own, all) = (hosted.limits.sessions, hosted.limits.user_sessions);
        if self.lock().len() >= own {
            return Err(full(own, "This connection"));
        }
        if hosted.sessions().0 >= all { Err(full(all, "The user")) } else { Ok(()) }
    }

    /// The connection has ended: its sessions wait for another.
    pub fn leave(&self) {
        self.left.store(true, Ordering::Relaxed);
        let sessions = std::mem::take(&mut *self.lock());
        for live in sessions.into_values() {
            match self.hosted() {
                Some(hosted) => hosted.wait(live),
                None => live.here.cancel(),
            }
        }
    }

    /// Looks for a session that another connection of the same user has, or had. What it finds is nobody's then.
    ///
    /// # Errors
    /// A connection has it whose editor is there. Who asks again in the same `way` gets it.
    pub async fn reclaim(&self, id: &str, way: &'static str) -> Result<Option<LiveSession<Self>>, Refusal> {
        let Some(hosted) = self.hosted() else { return Ok(None) };
        let id = SessionId::new(id);
        let there = match hosted.find(&id) {
            FoundSession::Nowhere => return Ok(None),
            FoundSession::Waiting(live) => return Ok(Some(*live)),
            // It is its own.
            FoundSession::With(there) if std::ptr::eq(&*there, self) => return Ok(None),
            FoundSession::With(there) => there,
        };
        let again = locked(&self.refused).remove(&(id.clone(), way));
        let liveness = there.remote.as_ref().map(|remote| remote.liveness.clone());
        if let Some(liveness) = liveness.filter(|_| !again) {
            if liveness.answers().await {
                locked(&self.refused).insert((id.clone(), way));
                return Err(Refusal::Failed {
                    message: format!("Session {id} is open in another connection."),
                    advice: Some("Close it there, or open it here once more to take it over.".into()),
                });
            }
            tracing::info!("session {id} is taken from a connection that does not answer");
            there.ended.cancel();
        }
        // It may have begun to wait meanwhile.
        Ok(there.give_up(&id).or_else(|| hosted.take_waiting(&id)))
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
    pub fn view(&self) -> Box<dyn SessionView> {
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
        self.live(id).map(|live| live.handle)
    }

    /// A live session, with what belongs to it.
    ///
    /// # Errors
    /// [`Refusal::NoSession`].
    pub fn live(&self, id: &str) -> Result<LiveSession<Self>, Refusal> {
        let live = self.lock().get(&SessionId::new(id)).cloned();
        live.ok_or_else(|| Refusal::no_session(id))
    }

    /// Claims a session for opening, closing or deleting it, when all that came before was carried out.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] while somebody else does one of these.
    pub fn claim(self: &Arc<Self>, id: &str) -> Result<QueuePlace, Refusal> {
        let claimed = |queue: &RequestQueue| queue.iter().any(|request| request.claims);
        let place = self.enter_queue(id, true, |queue| !queue.is_some_and(claimed));
        place.ok_or_else(|| Refusal::Invalid("this session is being opened or closed; wait for that to end".into()))
    }

    /// A place behind what has come for a session; none where all of that was carried out.
    pub fn wait(self: &Arc<Self>, id: &str) -> Option<QueuePlace> {
        self.enter_queue(id, false, |queue| queue.is_some())
    }

    /// A place at the end of a session's queue, if it `may` be entered; there is none where nothing waits.
    fn enter_queue(
        self: &Arc<Self>,
        id: &str,
        claims: bool,
        may: impl FnOnce(Option<&RequestQueue>) -> bool,
    ) -> Option<QueuePlace> {
        let id = SessionId::new(id);
        let mut queues = locked(&self.queues);
        if !may(queues.get(&id)) {
            return None;
        }
        let (first, cancelled) = (CancellationToken::new(), CancellationToken::new());
        let request = Arc::new(QueuedRequest { claims, first, cancelled });
        let queue = queues.entry(id.clone()).or_default();
        if queue.is_empty() {
            request.first.cancel();
        }
        queue.push_back(request.clone());
        Some(QueuePlace { server: self.clone(), id, request })
    }

    /// Takes what was carried out, or given up, out of its queue. Gives back what is first now.
    fn leave_queue(&self, id: &SessionId, over: &Arc<QueuedRequest>) -> Option<Arc<QueuedRequest>> {
        let mut queues = locked(&self.queues);
        let queue = queues.get_mut(id)?;
        queue.retain(|request| !Arc::ptr_eq(request, over));
        let first = queue.front().cloned();
        if first.is_none() {
            queues.remove(id);
        }
        first
    }

    /// Does something with a session: at once, or when all that came before was carried out.
    ///
    /// The reply comes when what was chosen is kept.
    pub fn when_open<R: Send + 'static>(
        self: &Arc<Self>,
        id: &str,
        work: impl FnOnce() -> Result<ChoiceReply<R>, Refusal> + Send + 'static,
    ) -> Reply<R> {
        self.when_tried(id, false, work)
    }

    /// The same; where what is chosen relies on the sandbox for commands, once that was tried. What comes after it
    /// waits for that, too: of two choices the later one stays.
    pub fn when_tried<R: Send + 'static>(
        self: &Arc<Self>,
        id: &str,
        tries: bool,
        work: impl FnOnce() -> Result<ChoiceReply<R>, Refusal> + Send + 'static,
    ) -> Reply<R> {
        let tries = tries && !self.session(id).is_ok_and(|session| session.sandboxes());
        let server = self.clone();
        match self.enter_queue(id, false, |queue| tries || queue.is_some()) {
            None => match work() {
                Ok(ChoiceReply { response, kept: None }) => Reply::now(Ok(response)),
                Ok(chosen) => Reply::later(async move { Ok(server.settled(chosen).await?) }),
                Err(refusal) => Reply::now(Err(refusal.into())),
            },
            Some(place) => Reply::later(async move {
                place.first().await;
                if let Ok(session) = server.session(place.id.as_str())
                    && tries
                {
                    session.try_sandbox().await;
                }
                let chosen = work()?;
                // Nobody else waits until it is kept.
                drop(place);
                Ok(server.settled(chosen).await?)
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

    /// Cancels the prompts that wait for a session.
    pub fn cancel_waiting(&self, id: &str) {
        let waiting = locked(&self.queues).get(&SessionId::new(id)).cloned().unwrap_or_default();
        for request in waiting {
            request.cancelled.cancel();
        }
    }

    /// Makes a session live here.
    pub fn take_in(self: &Arc<Self>, live: LiveSession<Self>) {
        let id = live.handle.id.clone();
        if let Some(hosted) = self.hosted() {
            if self.left.load(Ordering::Relaxed) {
                // The connection has ended while it was being opened.
                return hosted.wait(live);
            }
            hosted.took(&id, self);
        }
        self.lock().insert(id, live);
    }

    /// Makes a session no longer live, also one that waits for an editor to come back.
    pub fn dismiss(&self, id: &str) -> Option<Handle> {
        let id = SessionId::new(id);
        let live = self.lock().remove(&id);
        let Some(hosted) = self.hosted() else { return Some(live?.handle) };
        if live.is_some() {
            hosted.gone(&id);
        }
        let live = live.or_else(|| hosted.take_waiting(&id))?;
        live.here.cancel();
        Some(live.handle)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, LiveSession<Self>>> {
        locked(&self.sessions)
    }
}

impl Holder<Self> for Server {
    fn give_up(&self, id: &SessionId) -> Option<LiveSession<Self>> {
        let live = self.lock().remove(id)?;
        live.here.cancel();
        Some(live)
    }
}
