//! The operations on sessions that a client requests: create, open, list, fork, rename, archive, close
//! and delete, in all protocol versions. [`SessionSetup`] is the request to open a session as the
//! client sent it. [`OpenedForClient`] is an opened session; [`send_out_of_turn_updates`] then sends its
//! updates between the turns.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use protocol::table::RequestContext;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::error::RequestError;
use super::meta::{
    AWAITS_LEASE, FILLING, FORK_BEFORE, Meta, Restrictions, UNPROMPTED, member, restrictions,
    with_member,
};
use super::server::{Capabilities, HistoryMode, Server};
use super::updates::{OpeningUpdates, UpdateSender};
use super::user_sessions::LiveSession;
use super::view::SessionActivity;
use base::environment::Timestamp;
use base::id::SessionId;
use base::worktree::normal;
use config::settings::{McpEntry, OAuth, Transport};
use events::{Event, Severity, ToolKind};
use session::handle::SavedReceiver;
use session::open::{IfLocked, OpenError, OpenOptions, OpenedSession};
use session::{SessionHandle, access, title};
use store::{ListCursor, ListFilling, ListQuery, Record, RecordChange};

/// The number of sessions in a page of the list.
const PAGE_SIZE: usize = 100;

/// The delay after which the commands of a new session are sent, unless its first prompt comes
/// before: Zed registers the session some time after it has read the response, and drops earlier
/// updates. A session that it loads or resumes it registers before.
const REGISTRATION_GRACE: Duration = Duration::from_millis(250);

/// The parameters of a request that opens a session, not checked yet.
pub struct SessionSetup {
    /// The working directory.
    pub cwd: PathBuf,
    pub additional_directories: Vec<PathBuf>,
    /// The client's MCP servers; `None` for a transport that adjutant does not advertise.
    pub servers: Vec<Option<McpEntry>>,
    /// The client's addition to the system prompt.
    pub system: Option<SystemPromptAddition>,
    /// The client's restrictions of the session, or the problem of one.
    pub restrictions: Result<Restrictions, String>,
    /// The client knows that the session has no prompt yet, so that it may not be stored. If it is
    /// opened again and is not stored, it is created again under its id.
    pub is_unprompted: bool,
    /// The session of another process is opened when the lease of that process has ended.
    pub awaits_lease: bool,
}

impl SessionSetup {
    /// Returns the setup for a new session or a fork, with the restrictions of the request's
    /// `_meta`.
    pub fn for_new_session(self, meta: Option<&Meta>) -> Self {
        Self {
            restrictions: restrictions(meta),
            ..self
        }
    }

    /// Returns the setup for a session that is opened again, with the flags and the restrictions of
    /// the request's `_meta`. The restrictions are added to those that the session has.
    pub fn for_reopening(self, meta: Option<&Meta>) -> Self {
        Self {
            is_unprompted: member(meta, UNPROMPTED) == Some(&Value::Bool(true)),
            awaits_lease: member(meta, AWAITS_LEASE) == Some(&Value::Bool(true)),
            ..self.for_new_session(meta)
        }
    }
}

/// The client's addition to the system prompt.
pub enum SystemPromptAddition {
    /// Text for its end.
    Text(String),
    /// A kind that adjutant does not advertise: a replacement of the prompt, or content other than
    /// text.
    Unsupported,
}

/// Returns the settings entry of a client's MCP server that is a program.
pub fn stdio_server(
    name: String,
    command: Vec<String>,
    environment: Vec<(String, String)>,
) -> McpEntry {
    client_entry(
        name,
        Transport::Local {
            command,
            cwd: None,
            environment: environment.into_iter().collect(),
        },
    )
}

/// The transport of an MCP server at a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpKind {
    /// MCP's present HTTP transport.
    Streamable,
    /// The older transport with server-sent events.
    Sse,
}

/// Returns the settings entry of a client's MCP server at a URL.
pub fn http_server(
    name: String,
    url: String,
    headers: Vec<(String, String)>,
    kind: HttpKind,
) -> McpEntry {
    let headers = headers.into_iter().collect();
    client_entry(
        name,
        Transport::Remote {
            url,
            headers,
            oauth: Some(OAuth::default()),
            sse: kind == HttpKind::Sse,
        },
    )
}

/// Returns the settings entry of an MCP server that runs inside the client, under the id that the
/// client has given it.
pub fn client_server(name: String, id: &str) -> McpEntry {
    client_entry(name, Transport::Editor { id: id.to_owned() })
}

fn client_entry(name: String, transport: Transport) -> McpEntry {
    McpEntry {
        name,
        enabled: true,
        timeout: Duration::from_secs(30),
        call_timeout: None,
        sampling: false,
        log: None,
        transport,
        source: "the editor".into(),
    }
}

/// Creates a session.
///
/// # Errors
/// The setup is invalid, there are too many sessions, or the session cannot be created.
pub fn create(
    server: &Arc<Server>,
    setup: SessionSetup,
) -> impl Future<Output = Result<SessionHandle, RequestError>> + Send + 'static {
    let setup = check_setup(server, setup);
    let server = server.clone();
    async move {
        server.check_session_limit()?;
        let setup = setup?;
        let options = server.user_sessions().map(|_| setup.clone());
        let session = server.shared.create(setup).await?.handle;
        let live = LiveSession::new(session.clone(), options);
        live.live_turns.set_cost(0.0);
        server.register_session(live);
        Ok(session)
    }
}

/// An opened session, with the state that the updates after the response depend on.
pub struct OpenedForClient {
    pub session: SessionHandle,
    /// Events that are sent after the response.
    unsent_events: Vec<Event>,
    /// The history that was sent contains commands.
    has_commands_in_history: bool,
    /// The client learns the session's id from the response, and may miss updates right after it.
    is_new: bool,
}

impl OpenedForClient {
    /// Wraps a session of which all events were sent.
    pub fn with_all_events_sent(session: SessionHandle) -> Self {
        Self {
            session,
            unsent_events: Vec::new(),
            has_commands_in_history: false,
            is_new: false,
        }
    }

    /// Wraps a session whose id the client does not know yet.
    pub fn new_session(session: SessionHandle) -> Self {
        Self {
            is_new: true,
            ..Self::with_all_events_sent(session)
        }
    }
}

/// Opens a stored session, or takes it from another connection of the user. All of the history that
/// `history` requests is sent before this completes.
///
/// # Errors
/// The setup is invalid, there is no such session, it is in use, there are too many sessions, or the
/// request was cancelled.
pub fn reopen(
    server: &Arc<Server>,
    cx: &RequestContext,
    id: &str,
    setup: SessionSetup,
    history: HistoryMode,
) -> impl Future<Output = Result<OpenedForClient, RequestError>> + Send + 'static {
    let is_unprompted = setup.is_unprompted;
    let if_locked = if setup.awaits_lease {
        IfLocked::AwaitLease
    } else {
        IfLocked::Refuse
    };
    let setup = check_setup_for_reopening(server, id, setup);
    let claim = server.claim(id);
    let server = server.clone();
    let id = id.to_owned();
    let cancelled = cx.cancelled.clone();
    async move {
        let claim = claim?;
        claim.reach_front().await;
        let setup = setup?;
        let mut reclaimed = None;
        if server.session(&id).is_err() {
            match server.reclaim(&id, history).await? {
                None => server.check_session_limit()?,
                Some(live) => match reattach(&server, live, &setup, history).await? {
                    Reattachment::Done(opened) => return Ok(opened),
                    Reattachment::MustReopen(live) => reclaimed = Some(live),
                },
            }
        }
        let live = reclaimed
            .clone()
            .or_else(|| server.session(&id).ok())
            .map(|live| live.cwd);
        let remove = || reclaimed.or_else(|| server.remove_session(&id));
        let options = server.user_sessions().map(|_| setup.clone());
        let session_id = SessionId::new(&*id);
        let fresh = is_unprompted.then(|| setup.clone());
        // The client keeps the terminals of a session that this connection opens again.
        let shown_terminals = server.shown_terminals(&id);
        let mut opening = OpeningUpdates::new(&server, shown_terminals.clone());
        let (beginning, first) = oneshot::channel();
        let beginning = (history == HistoryMode::Send).then_some(beginning);
        let attempt = (history.request_name(), if_locked);
        let reopening = server
            .shared
            .reopen(&session_id, setup, live, remove, attempt, beginning);
        let (reopened, mut has_commands_in_history) = tokio::join!(
            reopening,
            send_first_events(&mut opening, &session_id, first, &cancelled)
        );
        let opened = match (reopened, fresh) {
            // A session that is open but not stored could not be saved: it continues.
            (Err(e), Some(fresh)) if e.is_unknown() && !server.shared.has_session(&session_id) => {
                server.shared.recreate(session_id, fresh).await?
            }
            (opened, _) => opened?,
        };
        let OpenedSession {
            handle: session,
            mut replay,
        } = opened;
        let mut updates = opening.into_sender(&session);
        let live = LiveSession {
            shown_terminals,
            ..LiveSession::new(session.clone(), options)
        };
        let unsent_events = match history {
            HistoryMode::Omit => replay.essential_events(),
            HistoryMode::Send => {
                while let Some(event) = replay.next().await {
                    if cancelled.is_cancelled() {
                        drop(replay);
                        session.close().await;
                        return Err(RequestError::Cancelled);
                    }
                    if let Event::Usage {
                        cost: Some(cost), ..
                    } = &event
                    {
                        live.live_turns.set_cost(*cost);
                    }
                    has_commands_in_history |= is_command(&event);
                    updates.send_event(event).await;
                }
                Vec::new()
            }
        };
        // Dropping the replay gives the history to the session.
        drop(replay);
        if history == HistoryMode::Send {
            updates.finish_history().await;
        }
        updates.send_activity(SessionActivity::Idle(None)).await;
        drop(updates);
        server.register_session(live);
        Ok(OpenedForClient {
            session,
            unsent_events,
            has_commands_in_history,
            is_new: false,
        })
    }
}

/// Sends the first events of a session whose history is still being read. Returns whether there are
/// commands among them.
async fn send_first_events(
    updates: &mut OpeningUpdates,
    id: &SessionId,
    first: oneshot::Receiver<Vec<Event>>,
    cancelled: &CancellationToken,
) -> bool {
    // There are none if the session cannot be opened.
    let first = first.await.unwrap_or_default();
    for event in &first {
        if cancelled.is_cancelled() {
            break;
        }
        updates.send_event(id, event).await;
    }
    first.iter().any(is_command)
}

/// Returns whether an event is the call of a command.
fn is_command(event: &Event) -> bool {
    matches!(event, Event::Call(call) if call.kind == Some(ToolKind::Execute))
}

/// The result of [`reattach`].
enum Reattachment {
    /// The session continues on this connection.
    Done(OpenedForClient),
    /// The session has to be opened again, with other options. No turn runs in it.
    MustReopen(SessionHandle),
}

/// Continues an open session on this connection, with its turns, after its own connection has ended
/// or gave it up.
///
/// # Errors
/// The session belongs to another directory, its turn may use permissions that the request denies,
/// or there are too many sessions to open it with other options. It then waits for its client again.
async fn reattach(
    server: &Arc<Server>,
    live: LiveSession<Server>,
    options: &OpenOptions,
    history: HistoryMode,
) -> Result<Reattachment, RequestError> {
    let is_same_directory = server
        .shared
        .can_be_opened_in(&live.handle.cwd, &options.cwd);
    let is_busy = live.live_turns.is_busy();
    let is_less_strict = live.live_turns.is_less_strict(options);
    let has_other_options = is_less_strict || !live.live_turns.was_opened_with(options);
    let must_reopen = !is_busy && has_other_options;
    let refused = if !is_same_directory {
        let stored = live.handle.cwd.clone();
        Some(OpenError::other_directory(&live.handle.id, stored, options.cwd.clone()).into())
    } else if is_busy && is_less_strict {
        Some(RequestError::Failed {
            message: format!(
                "Session {} works on a prompt with permissions that this request restricts.",
                live.handle.id
            ),
            advice: Some("Open it again when the prompt is answered.".into()),
        })
    } else if must_reopen {
        server.check_session_limit().err()
    } else {
        None
    };
    if let Some(refused) = refused {
        if let Some(user_sessions) = server.user_sessions() {
            user_sessions.hold_for_client(live);
        }
        return Err(refused);
    }
    if must_reopen {
        return Ok(Reattachment::MustReopen(live.handle));
    }
    let live = live.for_other_connection();
    let session = live.handle.clone();
    let live_turns = live.live_turns.clone();
    // From now on other requests find the session on this connection.
    server.register_session(live);
    // The first prompt must not go to an endpoint of the other connection, with its headers.
    server.use_endpoints(&session).await;
    if let Some(approvals) = options.approvals {
        // The response does not wait until the choice is saved.
        drop(session.choose_approvals(approvals)?);
    }
    if is_busy {
        // No list is sent within the turn that is shown next.
        UpdateSender::new(server, &session)
            .send_first_commands()
            .await;
    }
    let wants_history = history == HistoryMode::Send;
    if !live_turns.show_to(server, wants_history).await {
        let mut updates = UpdateSender::new(server, &session);
        if wants_history && updates.send_history(None).await {
            updates.finish_history().await;
        }
        updates.send_activity(SessionActivity::Idle(None)).await;
    }
    Ok(Reattachment::Done(OpenedForClient::with_all_events_sent(
        session,
    )))
}

/// Sends the updates of an opened session that belong to no turn, until the session or the connection
/// ends. First come the events that were not sent with the response, and the list of commands: after
/// `REGISTRATION_GRACE` if the client may miss it. Later come the list of commands when it has
/// changed, the config options when a local model server was found, titles, and notices if the
/// client supports them.
#[expect(
    clippy::cognitive_complexity,
    reason = "a loop with an arm for each source of updates"
)]
pub async fn send_out_of_turn_updates(server: Arc<Server>, opened: OpenedForClient) {
    let OpenedForClient {
        session,
        unsent_events,
        has_commands_in_history,
        is_new,
    } = opened;
    session.start_servers();
    let Capabilities {
        display,
        may_miss_commands,
        ..
    } = server.capabilities();
    let live = server.live_session(session.id.as_str());
    let (released, commands) = live
        .map(|live| (live.released, live.commands))
        .unwrap_or_default();
    // Subscribed before the list of commands is sent, so that no later change is missed.
    let mut turns = commands.turn_changes();
    let mut servers = session.server_changes();
    let mut updates = UpdateSender::new(&server, &session);
    for event in unsent_events {
        updates.send_event(event).await;
    }
    let mut waits_for_registration = may_miss_commands && is_new;
    if !waits_for_registration {
        updates.send_changed_commands().await;
    }
    let mut models = session.project().models.clone();
    let mut out_of_turn_events = session.out_of_turn_events();
    let registered = tokio::time::sleep(REGISTRATION_GRACE); // the time that Zed needs
    tokio::pin!(registered);
    let sandbox_trial = session.test_sandbox();
    tokio::pin!(sandbox_trial);
    let mut is_trying = true;
    loop {
        tokio::select! {
            biased;
            () = server.ended.cancelled() => break,
            () = released.cancelled() => break,
            () = session.closed() => break,
            event = out_of_turn_events.recv() => match event {
                // Without notices, a message between two turns would look like an answer.
                Ok(Event::Notice { .. }) if !display.notices => {}
                Ok(event) => updates.send_event(event).await,
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => break,
            },
            () = &mut registered, if waits_for_registration => {
                waits_for_registration = false;
                updates.send_changed_commands().await;
            }
            Ok(()) = servers.changed(), if !waits_for_registration => updates.send_changed_commands().await,
            () = turns.changed(), if !waits_for_registration => updates.send_changed_commands().await,
            has_sandbox = &mut sandbox_trial, if is_trying => {
                is_trying = false;
                // More approvals can be chosen now.
                if has_sandbox {
                    updates.send_event(Event::Options).await;
                }
                // The notice was sent when these commands ran, and is not stored with them.
                if has_commands_in_history
                    && display.notices
                    && let Some(notice) = session.sandbox_notice().await
                {
                    updates.send_event(notice).await;
                }
            }
            true = models.await_change() => updates.send_event(Event::Options).await,
        }
    }
}

/// Creates a session with the history of another one. `before` is the id of the message before which
/// the history ends, as the client sent it.
///
/// # Errors
/// The setup or the message is invalid, there is no such session, or there are too many sessions.
pub fn fork(
    server: &Arc<Server>,
    id: &str,
    setup: SessionSetup,
    before: Option<Value>,
) -> impl Future<Output = Result<SessionHandle, RequestError>> + Send + 'static {
    let setup = check_setup(server, setup);
    let server = server.clone();
    let id = SessionId::new(id);
    async move {
        let before = match &before {
            None => None,
            Some(Value::String(message)) => Some(message.as_str()),
            Some(_) => {
                return Err(RequestError::Invalid(format!(
                    "_meta.adjutant.{FORK_BEFORE} must be a message's id"
                )));
            }
        };
        server.check_session_limit()?;
        let setup = setup?;
        let options = server.user_sessions().map(|_| setup.clone());
        let session = server.shared.fork(&id, setup, before).await?.handle;
        server.register_session(LiveSession::new(session.clone(), options));
        Ok(session)
    }
}

/// Renames a session, and returns the title as it is stored. An idle session has the title before
/// this function returns; otherwise it gets the title after all earlier requests. So the later of two
/// titles wins, and a session that is being opened is renamed too.
///
/// # Errors
/// The title is empty, or there is no such session.
pub fn set_title(
    server: &Arc<Server>,
    id: &str,
    title: &str,
) -> impl Future<Output = Result<String, RequestError>> + Send + 'static {
    let id = SessionId::new(id);
    let title = title::tidy(title);
    let place = server.queue_if_busy(id.as_str());
    let renamed = place.is_none().then(|| rename(server, &id, &title));
    let server = server.clone();
    async move {
        if let Some(place) = &place {
            place.reach_front().await;
        }
        match renamed.unwrap_or_else(|| rename(&server, &id, &title))? {
            Some((live, written)) => {
                // Later requests do not wait for the write.
                drop(place);
                server.wait_until_saved(&live, written).await?;
            }
            None => drop(server.shared.store.rename(&id, &title).await?),
        }
        Ok(title)
    }
}

/// Renames a session if it is open on this connection. Returns its handle, with a receiver that
/// completes when the title is written, or `None` if it is not open here.
fn rename(
    server: &Server,
    id: &SessionId,
    title: &str,
) -> Result<Option<(SessionHandle, SavedReceiver)>, RequestError> {
    if title.is_empty() {
        return Err(RequestError::Invalid("the title is empty".into()));
    }
    if !id.is_well_formed() {
        return Err(RequestError::session_not_found(id.as_str()));
    }
    let Ok(live) = server.session(id.as_str()) else {
        return Ok(None);
    };
    let written = live.rename(title)?;
    Ok(Some((live, written)))
}

/// The status of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionStatus {
    /// The session is open in this process, or is that of a subagent that runs.
    Open,
    /// The session is only stored.
    Saved,
}

/// Returns the status of a session.
///
/// # Errors
/// There is no such session.
pub async fn status(server: Arc<Server>, id: SessionId) -> Result<SessionStatus, RequestError> {
    if server.shared.has_session(&id) {
        return Ok(SessionStatus::Open);
    }
    if id.is_well_formed() && server.shared.store.contains(&id).await? {
        return Ok(SessionStatus::Saved);
    }
    Err(RequestError::session_not_found(id.as_str()))
}

/// A page of the list of sessions.
pub struct SessionPage {
    /// Newest first.
    pub sessions: Vec<Record>,
    /// The cursor of the next page, if there is one.
    pub next: Option<String>,
    /// Adjutant's own `_meta` members.
    pub meta: Option<Meta>,
}

/// Lists the sessions of a directory, or all of them if `cwd` is `None`, newest first. `archived`
/// selects the archived ones (`Some(true)`), the others (`Some(false)`) or both. `after` is the
/// cursor of the page, from the page before it.
///
/// # Errors
/// The directory is not absolute, or the cursor is invalid.
pub async fn list(
    server: Arc<Server>,
    cwd: Option<PathBuf>,
    archived: Option<bool>,
    after: Option<String>,
) -> Result<SessionPage, RequestError> {
    let after = after.as_deref().map(decode_cursor).transpose()?;
    if let Some(cwd) = cwd.as_deref().filter(|cwd| !cwd.is_absolute()) {
        return Err(RequestError::Invalid(format!(
            "cwd must be absolute; {} is not",
            cwd.display()
        )));
    }
    let cwd = cwd.as_deref().map(normal);
    let shared_name = server.shared.shared_directory_name(cwd.as_deref()).await;
    let query = ListQuery {
        cwd,
        shared_name,
        archived,
        after,
        limit: PAGE_SIZE,
        ..ListQuery::default()
    };
    let page = server.shared.store.list_where(query).await?;
    let next = page
        .next
        .map(|at| BASE64.encode(format!("{} {}", at.updated.0, at.id)));
    let filling = page
        .filling
        .map(|ListFilling { added, total }| json!({ "taken": added, "of": total }));
    Ok(SessionPage {
        sessions: page.sessions,
        next,
        meta: filling.map(|filling| with_member(FILLING, filling)),
    })
}

/// Decodes the cursor of a page, as [`list`] has encoded it.
fn decode_cursor(text: &str) -> Result<ListCursor, RequestError> {
    let decode = || {
        let bytes = BASE64.decode(text).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (updated, id) = text.split_once(' ')?;
        Some(ListCursor {
            updated: Timestamp(updated.parse().ok()?),
            id: SessionId::new(id),
        })
    };
    decode().ok_or_else(|| {
        RequestError::Invalid(
            "the cursor is invalid; leave it out to start from the beginning".into(),
        )
    })
}

/// Closes a session. Does nothing if it is unknown.
pub fn close(
    server: &Arc<Server>,
    id: &str,
) -> impl Future<Output = Result<(), RequestError>> + Send + 'static {
    let claim = server.claim(id);
    let server = server.clone();
    let id = id.to_owned();
    async move {
        let claim = claim?;
        claim.reach_front().await;
        if let Some(live) = server.remove_session(&id) {
            live.close().await;
        }
        Ok(())
    }
}

/// A change of whether a session is archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveChange {
    Archive,
    Unarchive,
}

/// Archives or unarchives a session. An open session is closed before it is archived.
///
/// # Errors
/// There is no such session, or it is in use elsewhere.
pub fn change_archived(
    server: &Arc<Server>,
    id: &str,
    change: ArchiveChange,
) -> impl Future<Output = Result<(), RequestError>> + Send + 'static {
    let id = SessionId::new(id);
    let claim = server.claim(id.as_str());
    let server = server.clone();
    async move {
        let claim = claim?;
        claim.reach_front().await;
        if !id.is_well_formed() {
            return Err(RequestError::session_not_found(id.as_str()));
        }
        match server.session(id.as_str()) {
            Ok(_) if change == ArchiveChange::Archive => {
                server
                    .shared
                    .archive(&id, server.remove_session(id.as_str()))
                    .await?
            }
            // An open session writes its record itself.
            Ok(live) => server.wait_until_saved(&live, live.unarchive()?).await?,
            Err(_) => drop(
                server
                    .shared
                    .store
                    .change_record(
                        &id,
                        RecordChange::Archived(change == ArchiveChange::Archive),
                    )
                    .await?,
            ),
        }
        Ok(())
    }
}

/// Deletes a session and its children. Does nothing if it is unknown.
pub fn delete(
    server: &Arc<Server>,
    id: &str,
) -> impl Future<Output = Result<(), RequestError>> + Send + 'static {
    let id = SessionId::new(id);
    let claim = server.claim(id.as_str());
    let server = server.clone();
    async move {
        let claim = claim?;
        claim.reach_front().await;
        let live = server.remove_session(id.as_str());
        server
            .shared
            .delete(&id, live, |child| server.remove_session(child.as_str()))
            .await?;
        Ok(())
    }
}

/// Cancels the session's turn and its waiting prompts, or a subagent. Does nothing if the session
/// is idle or unknown.
pub fn cancel(server: &Server, id: &str) {
    server.cancel_queued(id);
    match server.session(id) {
        Ok(session) => session.cancel(),
        Err(_) if server.shared.stop_subagent(&SessionId::new(id)) => {}
        Err(_) => tracing::info!("a cancel for no session"),
    }
}

/// Checks the setup of a session that is opened again. If its directory no longer exists, the error
/// explains that the history is not lost.
fn check_setup_for_reopening(
    server: &Server,
    id: &str,
    setup: SessionSetup,
) -> Result<OpenOptions, RequestError> {
    let old = normal(&setup.cwd);
    let gone = setup.cwd.is_absolute() && !old.exists();
    check_setup(server, setup).map_err(|refusal| match refusal {
        RequestError::Invalid(why) if gone => {
            let id = base::text::title(id);
            let old = old.display();
            RequestError::Invalid(format!(
                "{why}. Put it back to open the session there; if it was moved, run: adjutant sessions move {old} NEW; or continue in another directory with a fork of it (session/fork). The conversation is still there: adjutant sessions show {id}"
            ))
        }
        refusal => refusal,
    })
}

/// Checks the setup of a session. Returns it with canonical paths, so that the checked paths are
/// those that are opened.
fn check_setup(server: &Server, setup: SessionSetup) -> Result<OpenOptions, RequestError> {
    let SessionSetup {
        cwd,
        additional_directories: extra,
        servers,
        system,
        restrictions,
        is_unprompted: _,
        awaits_lease: _,
    } = setup;
    let home = server.shared.environment.home.as_deref();
    let restrictions = restrictions.and_then(|all| all.as_settings(home));
    let Restrictions {
        denied,
        asked,
        approvals,
    } = restrictions.map_err(RequestError::Invalid)?;
    let cwd = check_directory("cwd", &cwd)?;
    let system = match system {
        None => None,
        Some(SystemPromptAddition::Text(text)) => Some(text.into()),
        Some(SystemPromptAddition::Unsupported) => {
            let why =
                "systemPrompt takes the mode \"append\" and content of text; nothing was opened";
            return Err(RequestError::Invalid(why.into()));
        }
    };
    let extra: Vec<_> = extra
        .iter()
        .map(|dir| check_directory("additionalDirectories", dir))
        .collect::<Result<_, _>>()?;
    let mut notices = Vec::new();
    let requested = servers.len();
    let servers: Vec<_> = servers.into_iter().flatten().collect();
    if servers.len() < requested {
        notices.push(Event::Notice {
            severity: Severity::Warning,
            title: "An MCP server of the editor is of an unsupported kind, and is not used.".into(),
            details: None,
        });
    }
    if let Some(roots) = server.roots() {
        for dir in std::iter::once(&cwd).chain(&extra) {
            access::check_is_below(dir, roots)
                .map_err(|bad| RequestError::Invalid(bad.to_string()))?;
        }
    }
    let Capabilities {
        files,
        display,
        is_unattended,
        hides_notices,
        remembers_models,
        urls,
        ..
    } = server.capabilities();
    Ok(OpenOptions {
        cwd,
        additional_directories: extra,
        file_capabilities: files,
        shows_subagents: display.subagents,
        attended: !is_unattended,
        hides_notices,
        remembers_models,
        shows_urls: urls,
        client_servers: servers,
        system_prompt_addition: system,
        denied,
        asked,
        endpoints: server.endpoints.current(),
        approvals,
        notices,
    })
}

/// Returns the canonical path of a directory. An error names `field`.
fn check_directory(field: &str, path: &Path) -> Result<PathBuf, RequestError> {
    access::check_directory(path).map_err(|bad| RequestError::Invalid(format!("{field} {bad}")))
}
