//! [`Server`], the state of one connection to a client: the client's capabilities, the sessions that
//! are open on the connection, and the requests of each session that wait for earlier ones. All request
//! handlers get it. [`RemoteClient`] is the part of it that exists only on a server with many
//! connections (`adjutant serve`).

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use protocol::rpc::{self, Peer};
use protocol::table::Reply;
use tokio_util::sync::CancellationToken;

use super::account_reports::AccountReports;
use super::connection_endpoints::ConnectionEndpoints;
use super::editor_servers::EditorServers;
use super::error::RequestError;
use super::tool_call_view::ShownTerminals;
use super::user_sessions::{ClientConnection, FoundSession, LiveSession, Liveness, UserSessions};
use super::view::{DisplayCapabilities, SessionView, ViewConstructor};
use base::id::SessionId;
use base::lock::lock;
use session::handle::{MailboxError, SavedReceiver};
use session::{SessionHandle, Sessions};
use tools::FileCapabilities;

/// The treatment of the history when a client opens a stored session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HistoryMode {
    /// The whole history is sent before the response (`load`).
    Send,
    /// The client has the history already (`resume`).
    Omit,
}

impl HistoryMode {
    /// Returns the name of the request in version 1.
    pub fn request_name(self) -> &'static str {
        match self {
            Self::Send => "load",
            Self::Omit => "resume",
        }
    }
}

/// One connection to a client.
pub struct Server {
    /// The sessions of the process, with the store and the environment. All connections share it.
    pub shared: Arc<Sessions>,
    /// Sends requests and notifications to the client.
    pub peer: Peer,
    /// Cancelled when the connection has ended.
    pub ended: CancellationToken,
    /// Creates the view of a session in the client's protocol version.
    view: ViewConstructor,
    // This mutex and the three below are leaf locks, and never held across an await.
    /// The client's capabilities; `None` before the handshake.
    capabilities: Mutex<Option<Capabilities>>,
    /// The sessions that are open on this connection.
    sessions: Mutex<HashMap<SessionId, LiveSession<Self>>>,
    /// The requests of each session that are not yet carried out, in order. No queue is empty.
    queues: Mutex<HashMap<SessionId, RequestQueue>>,
    /// The sessions that were refused because another connection has them, with the kind of the
    /// request. A second request of the same kind takes the session over.
    refused_takeovers: Mutex<HashSet<(SessionId, HistoryMode)>>,
    /// The keys and logins that were reported to the client.
    pub accounts: AccountReports,
    /// The endpoints of model providers that the client has set.
    pub endpoints: ConnectionEndpoints,
    /// Set if the connection is one of many (`adjutant serve`); `None` on standard input and output.
    remote: Option<RemoteClient>,
    /// The connection has ended, and its sessions wait for the client to reconnect.
    is_disconnected: AtomicBool,
    /// The MCP servers that live in the client.
    pub editor_servers: Arc<EditorServers>,
}

/// The client of one of many connections (`adjutant serve`): its user, and the limits that apply.
pub struct RemoteClient {
    /// The user's sessions on all connections.
    pub user_sessions: Arc<UserSessions<Server>>,
    /// The directories that may be opened, as canonical paths; `None` allows any.
    pub roots: Option<Arc<[PathBuf]>>,
    /// The liveness of the client.
    pub liveness: Arc<Liveness>,
}

/// The requests of a session that are not yet carried out, oldest first.
type RequestQueue = VecDeque<Arc<QueuedRequest>>;

struct QueuedRequest {
    kind: QueuedKind,
    /// Cancelled when all earlier requests are carried out.
    first: CancellationToken,
    /// Cancelled when the user cancels the waiting requests.
    cancelled: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueuedKind {
    /// The request opens, closes, archives or deletes the session.
    Claim,
    /// Any other request.
    Use,
}

/// A request's place in the queue of a session, from its arrival until it is carried out. Later
/// requests wait behind it; dropping the place lets the next one run.
pub struct QueuePlace {
    server: Arc<Server>,
    id: SessionId,
    request: Arc<QueuedRequest>,
}

impl QueuePlace {
    /// Waits until all earlier requests are carried out.
    pub async fn reach_front(&self) {
        self.request.first.cancelled().await;
    }

    /// Waits like [`QueuePlace::reach_front`]. Returns `false` if the user cancels first.
    pub async fn reach_front_unless_cancelled(&self) -> bool {
        tokio::select! {
            biased;
            () = self.request.cancelled.cancelled() => false,
            () = self.reach_front() => true,
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

/// The response to a choice that the user made (a mode, a model, another option), and the write
/// that must be complete before the response is sent.
pub struct ChoiceReply<R> {
    pub response: R,
    /// The session, with the receiver that completes when the choice is written; `None` if the
    /// choice changes nothing.
    pub pending_write: Option<(SessionHandle, SavedReceiver)>,
}

/// The capabilities that the client has declared.
#[derive(Debug, Clone, Default)]
pub struct Capabilities {
    /// The client reads or writes files on request.
    pub files: FileCapabilities,
    /// The optional updates that the client can display.
    pub display: DisplayCapabilities,
    /// The client can show forms.
    pub forms: bool,
    /// The client can open a URL for its user.
    pub urls: bool,
    /// No user is present to answer questions.
    pub is_unattended: bool,
    /// The client does not show notices to its user, so they are shown in a later session.
    pub hides_notices: bool,
    /// The client shows the details of a question on request.
    pub asks_for_details: bool,
    /// A model that the user chooses becomes the first model of the project's next session.
    pub remembers_models: bool,
    /// The client runs logins in a terminal, by the convention that preceded the protocol's own.
    pub runs_legacy_logins: bool,
    /// The client may miss updates right after the response that opens a session, and that response
    /// does not contain the commands (version 1): Zed registers a session some time after it has
    /// read the response.
    pub may_miss_commands: bool,
}

impl Server {
    /// Creates a connection before its handshake, in the protocol version that `view` belongs to.
    pub fn new(
        shared: Arc<Sessions>,
        peer: Peer,
        ended: CancellationToken,
        view: ViewConstructor,
    ) -> Arc<Self> {
        Self::with_remote_client(shared, peer, ended, view, None)
    }

    /// Creates a connection like [`Server::new`]. It is one of many if `remote` is set.
    pub fn with_remote_client(
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
            refused_takeovers: Mutex::default(),
            accounts: AccountReports::default(),
            endpoints: ConnectionEndpoints::default(),
            remote,
            is_disconnected: AtomicBool::new(false),
            editor_servers,
        })
    }

    /// Returns the user's sessions on all connections; `None` on standard input and output, because
    /// sessions end with their connection there.
    pub fn user_sessions(&self) -> Option<&Arc<UserSessions<Self>>> {
        self.remote.as_ref().map(|remote| &remote.user_sessions)
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
        let Some(user_sessions) = self.user_sessions() else {
            return Ok(());
        };
        let limit_reached = |max: usize, owner: &str| RequestError::Failed {
            message: format!("{owner} has {max} open sessions, which is the limit."),
            advice: Some("Close one that is no longer needed.".into()),
        };
        let max_here = user_sessions.limits.connection_sessions;
        if self.lock().len() >= max_here {
            return Err(limit_reached(max_here, "This connection"));
        }
        let max_of_user = user_sessions.limits.user_sessions;
        if user_sessions.count_sessions().open >= max_of_user {
            return Err(limit_reached(max_of_user, "The user"));
        }
        Ok(())
    }

    /// Ends the connection. Its sessions wait for the client to reconnect, or end if they cannot
    /// outlive the connection.
    pub fn disconnect(&self) {
        self.is_disconnected.store(true, Ordering::Relaxed);
        let sessions = std::mem::take(&mut *self.lock());
        for live in sessions.into_values() {
            match self.user_sessions() {
                Some(user_sessions) => user_sessions.hold_for_client(live),
                None => live.released.cancel(),
            }
        }
    }

    /// Takes an open session of the user from another connection, or from the sessions that wait for
    /// their client. It then belongs to the caller. Returns `None` if there is no such session, or
    /// this connection has it.
    ///
    /// # Errors
    /// The client of the other connection is alive. A second request with the same `history` takes
    /// the session over nevertheless.
    pub async fn reclaim(
        &self,
        id: &str,
        history: HistoryMode,
    ) -> Result<Option<LiveSession<Self>>, RequestError> {
        let Some(user_sessions) = self.user_sessions() else {
            return Ok(None);
        };
        let id = SessionId::new(id);
        let other = match user_sessions.find_or_take(&id) {
            FoundSession::None => return Ok(None),
            FoundSession::Taken(live) => return Ok(Some(*live)),
            FoundSession::Connected(owner) if std::ptr::eq(&*owner, self) => return Ok(None),
            FoundSession::Connected(owner) => owner,
        };
        let is_second_request = lock(&self.refused_takeovers).remove(&(id.clone(), history));
        let liveness = other.remote.as_ref().map(|remote| remote.liveness.clone());
        if let Some(liveness) = liveness
            && !is_second_request
        {
            if liveness.is_alive().await {
                lock(&self.refused_takeovers).insert((id.clone(), history));
                return Err(RequestError::Failed {
                    message: format!("Session {id} is open in another connection."),
                    advice: Some(
                        "Close it there, or open it here once more to take it over.".into(),
                    ),
                });
            }
            tracing::info!("session {id} is taken from a connection that does not answer");
            other.ended.cancel();
        }
        // The session may have begun to wait for its client in the meantime.
        Ok(other
            .give_up(&id)
            .or_else(|| user_sessions.take_waiting(&id)))
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

    /// Creates the view of a session, in the protocol version of the client. It has shown nothing.
    pub fn new_view(&self) -> Box<dyn SessionView> {
        (self.view)(&self.peer, self.capabilities().display)
    }

    /// Refuses all methods but `initialize` before the handshake.
    ///
    /// # Errors
    /// An invalid request (-32600).
    pub fn check_initialized(&self, method: &str) -> Result<(), rpc::Error> {
        if method == "initialize" || lock(&self.capabilities).is_some() {
            return Ok(());
        }
        Err(RequestError::NotInitialized.into())
    }

    /// Returns the handle of a session that is open on this connection.
    ///
    /// # Errors
    /// [`RequestError::NoSession`] if the session is not open here.
    pub fn session(&self, id: &str) -> Result<SessionHandle, RequestError> {
        self.live_session(id).map(|live| live.handle)
    }

    /// Returns a session that is open on this connection, with the state of its client.
    ///
    /// # Errors
    /// [`RequestError::NoSession`] if the session is not open here.
    pub fn live_session(&self, id: &str) -> Result<LiveSession<Self>, RequestError> {
        let live = self.lock().get(&SessionId::new(id)).cloned();
        live.ok_or_else(|| RequestError::session_not_found(id))
    }

    /// Returns the terminals that the client shows in a session; none if the session is not open on
    /// this connection.
    pub fn shown_terminals(&self, id: &str) -> Arc<ShownTerminals> {
        self.live_session(id)
            .map(|live| live.shown_terminals)
            .unwrap_or_default()
    }

    /// Returns the handles of all sessions that are open on this connection.
    pub fn session_handles(&self) -> Vec<SessionHandle> {
        let sessions = self.lock();
        sessions.values().map(|live| live.handle.clone()).collect()
    }

    /// Claims a session for opening, closing, archiving or deleting it. The returned place is behind
    /// all earlier requests of the session.
    ///
    /// # Errors
    /// [`RequestError::Invalid`] while another request has claimed it.
    pub fn claim(self: &Arc<Self>, id: &str) -> Result<QueuePlace, RequestError> {
        let is_claim = |request: &Arc<QueuedRequest>| request.kind == QueuedKind::Claim;
        let is_claimed = |queue: &RequestQueue| queue.iter().any(is_claim);
        let place = self.enter_queue(id, QueuedKind::Claim, |queue| {
            !queue.is_some_and(is_claimed)
        });
        place.ok_or_else(|| {
            RequestError::Invalid(
                "this session is being opened or closed; wait for that to end".into(),
            )
        })
    }

    /// Returns a place behind the waiting requests of a session. Returns `None` if no request
    /// waits, so that the caller can act at once.
    pub fn queue_if_busy(self: &Arc<Self>, id: &str) -> Option<QueuePlace> {
        self.enter_queue(id, QueuedKind::Use, |queue| queue.is_some())
    }

    /// Returns a place at the end of a session's queue if `can_enter` returns true for the queue,
    /// which is `None` if no request waits.
    fn enter_queue(
        self: &Arc<Self>,
        id: &str,
        kind: QueuedKind,
        can_enter: impl FnOnce(Option<&RequestQueue>) -> bool,
    ) -> Option<QueuePlace> {
        let id = SessionId::new(id);
        let mut queues = lock(&self.queues);
        if !can_enter(queues.get(&id)) {
            return None;
        }
        let request = Arc::new(QueuedRequest {
            kind,
            first: CancellationToken::new(),
            cancelled: CancellationToken::new(),
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
    fn leave_queue(&self, id: &SessionId, done: &Arc<QueuedRequest>) -> Option<Arc<QueuedRequest>> {
        let mut queues = lock(&self.queues);
        let queue = queues.get_mut(id)?;
        queue.retain(|request| !Arc::ptr_eq(request, done));
        let first = queue.front().cloned();
        if first.is_none() {
            queues.remove(id);
        }
        first
    }

    /// Makes a choice in a session by calling `choose`: immediately, or after all earlier requests of
    /// the session. The reply is sent when the choice is stored.
    pub fn choose_in_order<R: Send + 'static>(
        self: &Arc<Self>,
        id: &str,
        choose: impl FnOnce() -> Result<ChoiceReply<R>, RequestError> + Send + 'static,
    ) -> Reply<R> {
        self.choose_with_sandbox(id, false, choose)
    }

    /// Makes a choice like [`Server::choose_in_order`]. If it `needs_sandbox` and the sandbox for
    /// commands was not tried yet, a trial run comes first. Later requests wait for the trial run
    /// too, so that the later of two choices wins.
    pub fn choose_with_sandbox<R: Send + 'static>(
        self: &Arc<Self>,
        id: &str,
        needs_sandbox: bool,
        choose: impl FnOnce() -> Result<ChoiceReply<R>, RequestError> + Send + 'static,
    ) -> Reply<R> {
        let has_sandbox = self
            .session(id)
            .is_ok_and(|session| session.has_working_sandbox());
        let needs_trial = needs_sandbox && !has_sandbox;
        let server = self.clone();
        let place = self.enter_queue(id, QueuedKind::Use, |queue| needs_trial || queue.is_some());
        match place {
            None => match choose() {
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
                place.reach_front().await;
                if let Ok(session) = server.session(place.id.as_str())
                    && needs_trial
                {
                    session.test_sandbox().await;
                }
                let chosen = choose()?;
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

    /// Cancels the prompts that wait behind earlier requests of a session.
    pub fn cancel_queued(&self, id: &str) {
        let waiting = lock(&self.queues)
            .get(&SessionId::new(id))
            .cloned()
            .unwrap_or_default();
        for request in waiting {
            request.cancelled.cancel();
        }
    }

    /// Adds an opened session to those of this connection.
    pub fn register_session(self: &Arc<Self>, live: LiveSession<Self>) {
        let id = live.handle.id.clone();
        if let Some(user_sessions) = self.user_sessions() {
            if self.is_disconnected.load(Ordering::Relaxed) {
                // The connection has ended while the session was being opened.
                return user_sessions.hold_for_client(live);
            }
            user_sessions.register(&id, self);
        }
        live.handle.attach_editor(self.editor_servers.clone());
        let session = live.handle.clone();
        self.lock().insert(id, live);
        // The endpoints may have changed while it was opened, or be those of another connection.
        if self.user_sessions().is_some() || !self.endpoints.current().is_empty() {
            base::task::spawn_in(&self.shared.tasks, self.use_endpoints(&session));
        }
    }

    /// Has a session use the endpoints of model providers that this client has set, unless another
    /// connection has the session by then.
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

    /// Removes a session from those of this connection, or from those that wait for their client,
    /// and returns its handle. Returns `None` if it is in neither.
    pub fn remove_session(&self, id: &str) -> Option<SessionHandle> {
        let id = SessionId::new(id);
        let live = self.lock().remove(&id);
        let Some(user_sessions) = self.user_sessions() else {
            return Some(live?.handle);
        };
        if live.is_some() {
            user_sessions.unregister(&id);
        }
        let live = live.or_else(|| user_sessions.take_waiting(&id))?;
        live.released.cancel();
        Some(live.handle)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, LiveSession<Self>>> {
        lock(&self.sessions)
    }
}

impl ClientConnection<Self> for Server {
    fn give_up(&self, id: &SessionId) -> Option<LiveSession<Self>> {
        let live = self.lock().remove(id)?;
        live.released.cancel();
        Some(live)
    }
}
