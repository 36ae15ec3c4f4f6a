//! The state of one connection: the client's capabilities (set once), the live sessions, the peer.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use protocol::rpc::{self, Peer};
use protocol::table::Reply;
use tokio_util::sync::CancellationToken;

use super::account_reports::AccountReports;
use super::connection_endpoints::ConnectionEndpoints;
use super::detached::{ClientConnection, FoundSession, Hosted, LiveSession, Liveness};
use super::editor_servers::EditorServers;
use super::error::RequestError;
use super::tool_call_view::ShownTerminals;
use super::view::{DisplayCapabilities, SessionView, ViewConstructor};
use base::id::SessionId;
use base::lock::lock;
use session::handle::{MailboxError, SavedReceiver};
use session::{SessionHandle, Sessions};
use tools::FileCapabilities;

/// One connection to an editor.
pub struct Server {
    pub shared: Arc<Sessions>,
    pub peer: Peer,
    pub ended: CancellationToken,
    /// Creates the view of a session in the client's protocol version.
    view: ViewConstructor,
    // A std mutex around a value: a leaf lock.
    capabilities: Mutex<Option<Capabilities>>,
    // A std mutex around a map: a leaf lock, never held across an await.
    sessions: Mutex<HashMap<SessionId, LiveSession<Self>>>,
    // A leaf lock too. The requests of each session that are not yet carried out, in order. No
    // queue is empty.
    queues: Mutex<HashMap<SessionId, RequestQueue>>,
    // A leaf lock too. The sessions that were refused because another connection has them, and the
    // kind of the request. A second request of the same kind takes the session over.
    refused: Mutex<HashSet<(SessionId, &'static str)>>,
    /// The keys and logins that the client was informed of.
    pub accounts: AccountReports,
    /// The endpoints of model providers that the client has set.
    pub endpoints: ConnectionEndpoints,
    /// The client's place on a server with many connections; `None` on standard input and output.
    remote: Option<RemoteClient>,
    /// The connection has ended, and its sessions wait for another.
    left: AtomicBool,
    /// The MCP servers that live in the client.
    pub editor_servers: Arc<EditorServers>,
}

/// A connection's place on a server with many connections.
pub struct RemoteClient {
    /// The user's sessions on all connections.
    pub hosted: Arc<Hosted<Server>>,
    /// The directories that may be opened, as canonical paths; `None` allows any.
    pub roots: Option<Arc<[PathBuf]>>,
    /// The liveness of the client.
    pub liveness: Arc<Liveness>,
}

/// The requests of a session that are not yet carried out, oldest first.
type RequestQueue = VecDeque<Arc<QueuedRequest>>;

struct QueuedRequest {
    /// The request opens, closes or deletes the session.
    claims: bool,
    /// Cancelled when all earlier requests are carried out.
    first: CancellationToken,
    /// Cancelled when the user cancels the waiting requests.
    cancelled: CancellationToken,
}

/// A request's place in the queue of a session, from its arrival until it is carried out. Later
/// requests wait behind it; dropping the place admits the next one.
pub struct QueuePlace {
    server: Arc<Server>,
    id: SessionId,
    request: Arc<QueuedRequest>,
}

impl QueuePlace {
    /// Waits until all earlier requests are carried out.
    pub async fn first(&self) {
        self.request.first.cancelled().await;
    }

    /// Waits like [`QueuePlace::first`]. Returns `false` if the user cancels first.
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

/// The response to a choice that the user made, and the write to await before it is sent.
pub struct ChoiceReply<R> {
    pub response: R,
    /// The session, and the receiver that completes when the choice is written; `None` if nothing
    /// is stored.
    pub pending_write: Option<(SessionHandle, SavedReceiver)>,
}

/// The capabilities that the client has declared.
#[derive(Debug, Clone, Default)]
pub struct Capabilities {
    /// Reads and writes of files.
    pub files: FileCapabilities,
    pub shows: DisplayCapabilities,
    /// Forms.
    pub forms: bool,
    /// URLs that the user is to open.
    pub urls: bool,
    /// No user is present to answer questions.
    pub alone: bool,
    /// The client shows no notices to its user.
    pub quiet: bool,
    /// A chosen model is the first one of the project's next session.
    pub remembers_models: bool,
    /// Logins in a terminal, by the convention that preceded the protocol's.
    pub runs_logins: bool,
    /// The commands are not part of the response that opens a session, and the client may miss the
    /// updates right after it: Zed registers a session some time after it has read the response.
    pub misses_commands: bool,
}

impl Server {
    /// Creates a connection before its handshake, in the protocol version that `view` belongs to.
    pub fn new(
        shared: Arc<Sessions>,
        peer: Peer,
        ended: CancellationToken,
        view: ViewConstructor,
    ) -> Arc<Self> {
        Self::of_remote(shared, peer, ended, view, None)
    }

    /// Creates a connection that may be one of many.
    pub fn of_remote(
        shared: Arc<Sessions>,
        peer: Peer,
        ended: CancellationToken,
        view: ViewConstructor,
        remote: Option<RemoteClient>,
    ) -> Arc<Self> {
        let editor_servers =
            EditorServers::new(shared.environment.clone(), peer.clone(), ended.clone());
        Arc::new(Self {
            shared,
            peer,
            ended,
            view,
            capabilities: Mutex::default(),
            sessions: Mutex::default(),
            queues: Mutex::default(),
            refused: Mutex::default(),
            accounts: AccountReports::default(),
            endpoints: ConnectionEndpoints::default(),
            remote,
            left: AtomicBool::new(false),
            editor_servers,
        })
    }

    /// Returns the user's sessions, if they outlive the connection.
    pub fn hosted(&self) -> Option<&Arc<Hosted<Self>>> {
        self.remote.as_ref().map(|remote| &remote.hosted)
    }

    /// Returns the directories that may be opened, or `None` if any may.
    pub fn roots(&self) -> Option<&[PathBuf]> {
        self.remote.as_ref()?.roots.as_deref()
    }

    /// Checks that one more session may be opened.
    ///
    /// # Errors
    /// The connection or the user has the maximum number of sessions.
    pub fn check_session_limit(&self) -> Result<(), RequestError> {
        let Some(hosted) = self.hosted() else {
            return Ok(());
        };
        let full = |most: usize, whose: &str| RequestError::Failed {
            message: format!("{whose} has {most} open sessions, which is the limit."),
            advice: Some("Close one that is no longer needed.".into()),
        };
        let own = hosted.limits.sessions;
        let all = hosted.limits.user_sessions;
        if self.lock().len() >= own {
            return Err(full(own, "This connection"));
        }
        if hosted.sessions().0 >= all {
            Err(full(all, "The user"))
        } else {
            Ok(())
        }
    }

    /// Ends the connection: its sessions wait for another.
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

    /// Takes a session from another connection of the same user, or from those that wait. The
    /// session then belongs to the caller.
    ///
    /// # Errors
    /// The client of the other connection is alive. A second request of the same kind
    /// (`request_kind`) takes the session over.
    pub async fn reclaim(
        &self,
        id: &str,
        request_kind: &'static str,
    ) -> Result<Option<LiveSession<Self>>, RequestError> {
        let Some(hosted) = self.hosted() else {
            return Ok(None);
        };
        let id = SessionId::new(id);
        let there = match hosted.find(&id) {
            FoundSession::Nowhere => return Ok(None),
            FoundSession::Waiting(live) => return Ok(Some(*live)),
            // The session belongs to this connection.
            FoundSession::With(there) if std::ptr::eq(&*there, self) => return Ok(None),
            FoundSession::With(there) => there,
        };
        let again = lock(&self.refused).remove(&(id.clone(), request_kind));
        let liveness = there.remote.as_ref().map(|remote| remote.liveness.clone());
        if let Some(liveness) = liveness
            && !again
        {
            if liveness.answers().await {
                lock(&self.refused).insert((id.clone(), request_kind));
                return Err(RequestError::Failed {
                    message: format!("Session {id} is open in another connection."),
                    advice: Some(
                        "Close it there, or open it here once more to take it over.".into(),
                    ),
                });
            }
            tracing::info!("session {id} is taken from a connection that does not answer");
            there.ended.cancel();
        }
        // The session may have begun to wait in the meantime.
        Ok(there.give_up(&id).or_else(|| hosted.take_waiting(&id)))
    }

    /// Stores the client's capabilities. A second handshake does not change them.
    pub fn set_capabilities(&self, capabilities: Capabilities) {
        let mut known = lock(&self.capabilities);
        if known.is_some() {
            tracing::info!("a second handshake; the first one's capabilities stay");
        }
        known.get_or_insert(capabilities);
    }

    /// Stores the client's capabilities, and replaces earlier ones.
    pub fn replace_capabilities(&self, capabilities: Capabilities) {
        *lock(&self.capabilities) = Some(capabilities);
    }

    /// Returns the client's capabilities; the default before the handshake.
    pub fn capabilities(&self) -> Capabilities {
        lock(&self.capabilities).clone().unwrap_or_default()
    }

    /// Creates the view of a session of which nothing has been shown.
    pub fn view(&self) -> Box<dyn SessionView> {
        (self.view)(&self.peer, self.capabilities().shows)
    }

    /// Refuses all methods but `initialize` before the handshake.
    ///
    /// # Errors
    /// An invalid request (-32600).
    pub fn check_initialized(&self, method: &str) -> Result<(), rpc::Error> {
        if method == "initialize" || lock(&self.capabilities).is_some() {
            return Ok(());
        }
        Err(RequestError::TooEarly.into())
    }

    /// Returns a live session.
    ///
    /// # Errors
    /// [`RequestError::NoSession`].
    pub fn session(&self, id: &str) -> Result<SessionHandle, RequestError> {
        self.live(id).map(|live| live.handle)
    }

    /// Returns a live session with its turns.
    ///
    /// # Errors
    /// [`RequestError::NoSession`].
    pub fn live(&self, id: &str) -> Result<LiveSession<Self>, RequestError> {
        let live = self.lock().get(&SessionId::new(id)).cloned();
        live.ok_or_else(|| RequestError::session_not_found(id))
    }

    /// Returns the terminals that the client shows in a session: none if the session is not live.
    pub fn shown_terminals(&self, id: &str) -> Arc<ShownTerminals> {
        self.live(id)
            .map(|live| live.shown_terminals)
            .unwrap_or_default()
    }

    /// Returns all live sessions.
    pub fn handles(&self) -> Vec<SessionHandle> {
        let sessions = self.lock();
        sessions.values().map(|live| live.handle.clone()).collect()
    }

    /// Claims a session for opening, closing or deleting it, after all earlier requests.
    ///
    /// # Errors
    /// [`RequestError::Invalid`] while another request has claimed it.
    pub fn claim(self: &Arc<Self>, id: &str) -> Result<QueuePlace, RequestError> {
        let claimed = |queue: &RequestQueue| queue.iter().any(|request| request.claims);
        let place = self.enter_queue(id, true, |queue| !queue.is_some_and(claimed));
        place.ok_or_else(|| {
            RequestError::Invalid(
                "this session is being opened or closed; wait for that to end".into(),
            )
        })
    }

    /// Returns a place behind the waiting requests of a session, or `None` if there are none.
    pub fn wait(self: &Arc<Self>, id: &str) -> Option<QueuePlace> {
        self.enter_queue(id, false, |queue| queue.is_some())
    }

    /// Returns a place at the end of a session's queue, if `may` allows it; `may` gets `None` if no
    /// request waits.
    fn enter_queue(
        self: &Arc<Self>,
        id: &str,
        claims: bool,
        may: impl FnOnce(Option<&RequestQueue>) -> bool,
    ) -> Option<QueuePlace> {
        let id = SessionId::new(id);
        let mut queues = lock(&self.queues);
        if !may(queues.get(&id)) {
            return None;
        }
        let first = CancellationToken::new();
        let cancelled = CancellationToken::new();
        let request = Arc::new(QueuedRequest {
            claims,
            first,
            cancelled,
        });
        let queue = queues.entry(id.clone()).or_default();
        if queue.is_empty() {
            request.first.cancel();
        }
        queue.push_back(request.clone());
        Some(QueuePlace {
            server: self.clone(),
            id,
            request,
        })
    }

    /// Removes a request from its queue. Returns the request that is now first.
    fn leave_queue(&self, id: &SessionId, over: &Arc<QueuedRequest>) -> Option<Arc<QueuedRequest>> {
        let mut queues = lock(&self.queues);
        let queue = queues.get_mut(id)?;
        queue.retain(|request| !Arc::ptr_eq(request, over));
        let first = queue.front().cloned();
        if first.is_none() {
            queues.remove(id);
        }
        first
    }

    /// Runs `work` on a session: immediately, or after all earlier requests. The reply follows when
    /// the choice is stored.
    pub fn when_open<R: Send + 'static>(
        self: &Arc<Self>,
        id: &str,
        work: impl FnOnce() -> Result<ChoiceReply<R>, RequestError> + Send + 'static,
    ) -> Reply<R> {
        self.when_tried(id, false, work)
    }

    /// Runs `work` like [`Server::when_open`]. If the choice `tries` the sandbox for commands, the
    /// trial run comes first, and later requests wait for it too, so that the later of two choices
    /// wins.
    pub fn when_tried<R: Send + 'static>(
        self: &Arc<Self>,
        id: &str,
        tries: bool,
        work: impl FnOnce() -> Result<ChoiceReply<R>, RequestError> + Send + 'static,
    ) -> Reply<R> {
        let tries = tries
            && !self
                .session(id)
                .is_ok_and(|session| session.has_working_sandbox());
        let server = self.clone();
        match self.enter_queue(id, false, |queue| tries || queue.is_some()) {
            None => match work() {
                Ok(ChoiceReply {
                    response,
                    pending_write: None,
                }) => Reply::now(Ok(response)),
                Ok(chosen) => {
                    Reply::later(async move { Ok(server.respond_when_saved(chosen).await?) })
                }
                Err(refusal) => Reply::now(Err(refusal.into())),
            },
            Some(place) => Reply::later(async move {
                place.first().await;
                if let Ok(session) = server.session(place.id.as_str())
                    && tries
                {
                    session.test_sandbox().await;
                }
                let chosen = work()?;
                // Later requests do not wait for the write.
                drop(place);
                Ok(server.respond_when_saved(chosen).await?)
            }),
        }
    }

    async fn respond_when_saved<R>(&self, chosen: ChoiceReply<R>) -> Result<R, RequestError> {
        if let Some((session, written)) = chosen.pending_write {
            self.wait_until_saved(&session, written).await?;
        }
        Ok(chosen.response)
    }

    /// Waits until the user's choice would survive the end of the process.
    ///
    /// # Errors
    /// The session ended before the choice was written.
    pub async fn wait_until_saved(
        &self,
        session: &SessionHandle,
        written: SavedReceiver,
    ) -> Result<(), RequestError> {
        written.await.map_err(|_| MailboxError::Closed)?;
        self.shared.store.await_written(&session.id).await;
        Ok(())
    }

    /// Cancels the prompts that wait for a session.
    pub fn cancel_waiting(&self, id: &str) {
        let waiting = lock(&self.queues)
            .get(&SessionId::new(id))
            .cloned()
            .unwrap_or_default();
        for request in waiting {
            request.cancelled.cancel();
        }
    }

    /// Makes a session live on this connection.
    pub fn register_session(self: &Arc<Self>, live: LiveSession<Self>) {
        let id = live.handle.id.clone();
        if let Some(hosted) = self.hosted() {
            if self.left.load(Ordering::Relaxed) {
                // The connection has ended while the session was being opened.
                return hosted.wait(live);
            }
            hosted.register(&id, self);
        }
        live.handle.attach_editor(self.editor_servers.clone());
        let session = live.handle.clone();
        self.lock().insert(id, live);
        // The endpoints may have changed while it was opened, or be those of another connection.
        if self.hosted().is_some() || !self.endpoints.current().is_empty() {
            base::task::spawn_in(&self.shared.tasks, self.use_endpoints(&session));
        }
    }

    /// Has a session use the endpoints of this connection, unless another one has it by then.
    pub fn use_endpoints(
        self: &Arc<Self>,
        session: &SessionHandle,
    ) -> impl Future<Output = ()> + Send + 'static {
        let server = self.clone();
        let id = session.id.clone();
        session.use_endpoints(move || {
            let is_here = server.lock().contains_key(&id);
            is_here.then(|| server.endpoints.current())
        })
    }

    /// Removes a session from the live ones, or from those that wait for a client.
    pub fn dismiss(&self, id: &str) -> Option<SessionHandle> {
        let id = SessionId::new(id);
        let live = self.lock().remove(&id);
        let Some(hosted) = self.hosted() else {
            return Some(live?.handle);
        };
        if live.is_some() {
            hosted.unregister(&id);
        }
        let live = live.or_else(|| hosted.take_waiting(&id))?;
        live.here.cancel();
        Some(live.handle)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, LiveSession<Self>>> {
        lock(&self.sessions)
    }
}

impl ClientConnection<Self> for Server {
    fn give_up(&self, id: &SessionId) -> Option<LiveSession<Self>> {
        let live = self.lock().remove(id)?;
        live.here.cancel();
        Some(live)
    }
}
