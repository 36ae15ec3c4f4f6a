//! Operations on sessions: open, list, rename, archive, close and delete, in all protocol versions.

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

use super::detached::LiveSession;
use super::error::RequestError;
use super::meta::{
    AWAITS_LEASE, FILLING, FORK_BEFORE, Meta, Restrictions, UNPROMPTED, member, restrictions,
    with_member,
};
use super::server::{Capabilities, Server};
use super::updates::{OpeningUpdates, UpdateSender};
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

/// The client's setup of a session.
pub struct SessionSetup {
    pub cwd: PathBuf,
    pub additional_directories: Vec<PathBuf>,
    /// MCP servers; `None` for a transport that adjutant does not advertise.
    pub servers: Vec<Option<McpEntry>>,
    /// The client's addition to the system prompt.
    pub system: Option<SystemPromptAddition>,
    /// The client's restrictions of the session, or the problem of one.
    pub restrictions: Result<Restrictions, String>,
    /// The session has no prompt yet. If it is opened again and is not stored, it is created.
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
    /// the request's `_meta`. The session keeps those that it has.
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

/// Returns the settings entry of an MCP server that lives in the client, which has given it this
/// id.
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

/// The treatment of the history when a client opens a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryMode {
    Send,
    Omit,
}

impl HistoryMode {
    fn word(self) -> &'static str {
        match self {
            Self::Send => "load",
            Self::Omit => "resume",
        }
    }
}

pub fn create(
    server: &Arc<Server>,
    setup: SessionSetup,
) -> impl Future<Output = Result<SessionHandle, RequestError>> + Send + 'static {
    let setup = checked(server, setup);
    let server = server.clone();
    async move {
        server.check_session_limit()?;
        let setup = setup?;
        let options = server.hosted().map(|_| setup.clone());
        let session = server.shared.create(setup).await?.handle;
        let live = LiveSession::new(session.clone(), options);
        live.live_turns.set_cost(0.0);
        server.register_session(live);
        Ok(session)
    }
}

/// An opened session, with the events to be shown after the response.
pub struct OpenedForClient {
    pub session: SessionHandle,
    /// Events that the client has not been shown yet.
    left: Vec<Event>,
    /// The history that was shown contains commands.
    ran: bool,
    /// The client learns the session's id from the response.
    is_new: bool,
}

impl OpenedForClient {
    /// Wraps a session of which all events have been shown.
    pub fn with_all_events_shown(session: SessionHandle) -> Self {
        Self {
            session,
            left: Vec::new(),
            ran: false,
            is_new: false,
        }
    }

    /// Wraps a session whose id the client does not know yet.
    pub fn new_session(session: SessionHandle) -> Self {
        Self {
            is_new: true,
            ..Self::with_all_events_shown(session)
        }
    }
}

/// Opens a stored session. If its history is to be shown, all of it is sent before this completes.
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
    let setup = known_place(server, id, setup);
    let claim = server.claim(id);
    let server = server.clone();
    let id = id.to_owned();
    let cancelled = cx.cancelled.clone();
    async move {
        let claim = claim?;
        claim.first().await;
        let setup = setup?;
        let mut reclaimed = None;
        if server.session(&id).is_err() {
            match server.reclaim(&id, history.word()).await? {
                None => server.check_session_limit()?,
                Some(live) => match reattach(&server, live, &setup, history).await? {
                    Reattachment::To(reopened) => return Ok(reopened),
                    Reattachment::Otherwise(live) => reclaimed = Some(live),
                },
            }
        }
        let live = reclaimed
            .clone()
            .or_else(|| server.session(&id).ok())
            .map(|live| live.cwd);
        let dismiss = || reclaimed.or_else(|| server.dismiss(&id));
        let options = server.hosted().map(|_| setup.clone());
        let session_id = SessionId::new(&*id);
        let fresh = is_unprompted.then(|| setup.clone());
        // The client keeps the terminals of a session that this connection opens again.
        let shown_terminals = server.shown_terminals(&id);
        let mut opening = OpeningUpdates::new(&server, shown_terminals.clone());
        let (beginning, first) = oneshot::channel();
        let beginning = (history == HistoryMode::Send).then_some(beginning);
        let attempt = (history.word(), if_locked);
        let reopening = server
            .shared
            .reopen(&session_id, setup, live, dismiss, attempt, beginning);
        let (reopened, mut ran) = tokio::join!(
            reopening,
            show_first(&mut opening, &session_id, first, &cancelled)
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
        let mut updates = opening.open(&session);
        let live = LiveSession {
            shown_terminals,
            ..LiveSession::new(session.clone(), options)
        };
        let left = match history {
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
                    ran |= is_command(&event);
                    updates.event(event).await;
                }
                Vec::new()
            }
        };
        // Dropping the replay gives the history to the session.
        drop(replay);
        if history == HistoryMode::Send {
            updates.replayed().await;
        }
        updates.state(SessionActivity::Idle(None)).await;
        drop(updates);
        server.register_session(live);
        Ok(OpenedForClient {
            session,
            left,
            ran,
            is_new: false,
        })
    }
}

/// Shows the first events of a session whose history is still being read. Returns whether there are
/// commands among them.
async fn show_first(
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
        updates.event(id, event).await;
    }
    first.iter().any(is_command)
}

fn is_command(event: &Event) -> bool {
    matches!(event, Event::Call(call) if call.kind == Some(ToolKind::Execute))
}

/// The result of returning to a session that is open.
enum Reattachment {
    To(OpenedForClient),
    /// The session is to be opened with other options, and no turn runs in it.
    Otherwise(SessionHandle),
}

/// Continues a session whose connection has ended or gave it up. Its turns continue.
///
/// # Errors
/// The session belongs to another directory, its turn may use permissions that are denied now, or
/// there are too many sessions to open it with other options. It then waits again.
async fn reattach(
    server: &Arc<Server>,
    live: LiveSession<Server>,
    options: &OpenOptions,
    history: HistoryMode,
) -> Result<Reattachment, RequestError> {
    let elsewhere = !server
        .shared
        .can_be_opened_in(&live.handle.cwd, &options.cwd);
    let is_busy = live.live_turns.is_busy();
    let is_less_strict = live.live_turns.is_less_strict(options);
    let otherwise = !is_busy && (is_less_strict || !live.live_turns.is_opened_as(options));
    let refused = if elsewhere {
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
    } else if otherwise {
        server.check_session_limit().err()
    } else {
        None
    };
    if let Some(refused) = refused {
        if let Some(hosted) = server.hosted() {
            hosted.wait(live);
        }
        return Err(refused);
    }
    if otherwise {
        return Ok(Reattachment::Otherwise(live.handle));
    }
    let live = live.moved();
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
            .offer_first_commands()
            .await;
    }
    let shown = history == HistoryMode::Send;
    if !live_turns.show(server, shown).await {
        let mut updates = UpdateSender::new(server, &session);
        if shown && updates.replay(None).await {
            updates.replayed().await;
        }
        updates.state(SessionActivity::Idle(None)).await;
    }
    Ok(Reattachment::To(OpenedForClient::with_all_events_shown(
        session,
    )))
}

/// Sends the updates after the response to an opened session, for as long as it is open: the
/// remaining events; the commands, those of a new session after a moment if the client may miss
/// them, and again between two turns when they have changed; the config options when a local model
/// server was found; titles; and notices, if the client supports them.
#[expect(
    clippy::cognitive_complexity,
    reason = "a loop with an arm for each source of updates"
)]
pub async fn send_out_of_turn_updates(server: Arc<Server>, opened: OpenedForClient) {
    let OpenedForClient {
        session,
        left,
        ran,
        is_new,
    } = opened;
    session.start_servers();
    let Capabilities {
        shows,
        misses_commands,
        ..
    } = server.capabilities();
    let live = server.live(session.id.as_str());
    let (here, commands) = live
        .map(|live| (live.here, live.commands))
        .unwrap_or_default();
    // Before the commands are offered, so that no later change is missed.
    let mut turns = commands.turns();
    let mut servers = session.server_changes();
    let mut updates = UpdateSender::new(&server, &session);
    for event in left {
        updates.event(event).await;
    }
    let mut waits = misses_commands && is_new;
    if !waits {
        updates.offer_commands().await;
    }
    let mut models = session.project().models.clone();
    let mut out_of_turn_events = session.out_of_turn_events();
    let registered = tokio::time::sleep(REGISTRATION_GRACE); // the grace that a slow client needs
    tokio::pin!(registered);
    let tried = session.test_sandbox();
    tokio::pin!(tried);
    let mut trying = true;
    loop {
        tokio::select! {
            biased;
            () = server.ended.cancelled() => break,
            () = here.cancelled() => break,
            () = session.closed() => break,
            aside = out_of_turn_events.recv() => match aside {
                // Without notices, a message between two turns would look like an answer.
                Ok(Event::Notice { .. }) if !shows.notices => {}
                Ok(event) => updates.event(event).await,
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => break,
            },
            () = &mut registered, if waits => {
                waits = false;
                updates.offer_commands().await;
            }
            Ok(()) = servers.changed(), if !waits => updates.offer_commands().await,
            () = turns.changed(), if !waits => updates.offer_commands().await,
            holds = &mut tried, if trying => {
                trying = false;
                // More approvals can be chosen now.
                if holds {
                    updates.event(Event::Options).await;
                }
                // The notice was sent when these commands ran, and is not stored with them.
                if ran
                    && shows.notices
                    && let Some(notice) = session.sandbox_notice().await
                {
                    updates.event(notice).await;
                }
            }
            true = models.await_change() => updates.event(Event::Options).await,
        }
    }
}

/// Creates a session with the history of another, up to a message if one is named.
pub fn fork(
    server: &Arc<Server>,
    id: &str,
    setup: SessionSetup,
    before: Option<Value>,
) -> impl Future<Output = Result<SessionHandle, RequestError>> + Send + 'static {
    let setup = checked(server, setup);
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
        let options = server.hosted().map(|_| setup.clone());
        let session = server.shared.fork(&id, setup, before).await?.handle;
        server.register_session(LiveSession::new(session.clone(), options));
        Ok(session)
    }
}

/// Renames a session: before this returns, or after all earlier requests, so that the later of two
/// titles wins and a session that is being opened gets it. Returns the title as it is stored.
pub fn set_title(
    server: &Arc<Server>,
    id: &str,
    title: &str,
) -> impl Future<Output = Result<String, RequestError>> + Send + 'static {
    let id = SessionId::new(id);
    let title = title::tidy(title);
    let place = server.wait(id.as_str());
    let now = place.is_none().then(|| rename(server, &id, &title));
    let server = server.clone();
    async move {
        if let Some(place) = &place {
            place.first().await;
        }
        match now.unwrap_or_else(|| rename(&server, &id, &title))? {
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

/// Renames a session if it is live on this connection.
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

/// The status of a session: in use here, or only stored. A running subagent counts as in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionStatus {
    Open,
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
pub struct ShownPage {
    /// Newest first.
    pub sessions: Vec<Record>,
    /// The cursor of the next page, if there is one.
    pub next: Option<String>,
    /// Adjutant's own `_meta` members.
    pub meta: Option<Meta>,
}

/// Lists the sessions of a directory, or all, newest first. `archived` selects the archived ones or
/// the others.
///
/// # Errors
/// The directory is not absolute, or the cursor is invalid.
pub async fn list(
    server: Arc<Server>,
    cwd: Option<PathBuf>,
    archived: Option<bool>,
    after: Option<String>,
) -> Result<ShownPage, RequestError> {
    let after = after.as_deref().map(cursor).transpose()?;
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
    Ok(ShownPage {
        sessions: page.sessions,
        next,
        meta: filling.map(|filling| with_member(FILLING, filling)),
    })
}

fn cursor(text: &str) -> Result<ListCursor, RequestError> {
    let read = || {
        let bytes = BASE64.decode(text).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (updated, id) = text.split_once(' ')?;
        Some(ListCursor {
            updated: Timestamp(updated.parse().ok()?),
            id: SessionId::new(id),
        })
    };
    read().ok_or_else(|| {
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
        claim.first().await;
        if let Some(live) = server.dismiss(&id) {
            live.close().await;
        }
        Ok(())
    }
}

/// Archives or unarchives a session. A live session is closed before it is archived.
pub fn archive(
    server: &Arc<Server>,
    id: &str,
    aside: bool,
) -> impl Future<Output = Result<(), RequestError>> + Send + 'static {
    let id = SessionId::new(id);
    let claim = server.claim(id.as_str());
    let server = server.clone();
    async move {
        let claim = claim?;
        claim.first().await;
        if !id.is_well_formed() {
            return Err(RequestError::session_not_found(id.as_str()));
        }
        match server.session(id.as_str()) {
            Ok(_) if aside => {
                server
                    .shared
                    .archive(&id, server.dismiss(id.as_str()))
                    .await?
            }
            // A live session writes its record itself.
            Ok(live) => server.wait_until_saved(&live, live.unarchive()?).await?,
            Err(_) => drop(
                server
                    .shared
                    .store
                    .change_record(&id, RecordChange::Archived(aside))
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
        claim.first().await;
        let live = server.dismiss(id.as_str());
        server
            .shared
            .delete(&id, live, |child| server.dismiss(child.as_str()))
            .await?;
        Ok(())
    }
}

/// Cancels the session's turn and its waiting prompts, or a subagent. Does nothing if the session
/// is idle or unknown.
pub fn cancel(server: &Server, id: &str) {
    server.cancel_waiting(id);
    match server.session(id) {
        Ok(session) => session.cancel(),
        Err(_) if server.shared.stop_subagent(&SessionId::new(id)) => {}
        Err(_) => tracing::info!("a cancel for no session"),
    }
}

/// Checks the setup of a session that is opened again. If its directory is gone, the error explains
/// that the history is not lost.
fn known_place(
    server: &Server,
    id: &str,
    setup: SessionSetup,
) -> Result<OpenOptions, RequestError> {
    let old = normal(&setup.cwd);
    let gone = setup.cwd.is_absolute() && !old.exists();
    checked(server, setup).map_err(|refusal| match refusal {
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

/// Checks the setup of a session, and returns the canonical paths, so that the checked paths are
/// those that are opened.
fn checked(server: &Server, setup: SessionSetup) -> Result<OpenOptions, RequestError> {
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
    let cwd = directory("cwd", &cwd)?;
    let system = match system {
        None => None,
        Some(SystemPromptAddition::Text(words)) => Some(words.into()),
        Some(SystemPromptAddition::Unsupported) => {
            let why =
                "systemPrompt takes the mode \"append\" and content of text; nothing was opened";
            return Err(RequestError::Invalid(why.into()));
        }
    };
    let extra: Vec<_> = extra
        .iter()
        .map(|dir| directory("additionalDirectories", dir))
        .collect::<Result<_, _>>()?;
    let mut notices = Vec::new();
    let given = servers.len();
    let servers: Vec<_> = servers.into_iter().flatten().collect();
    if servers.len() < given {
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
        shows,
        alone,
        quiet,
        remembers_models,
        urls,
        ..
    } = server.capabilities();
    Ok(OpenOptions {
        cwd,
        additional_directories: extra,
        file_capabilities: files,
        shows_subagents: shows.subagents,
        attended: !alone,
        hides_notices: quiet,
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

fn directory(field: &str, path: &Path) -> Result<PathBuf, RequestError> {
    access::check_directory(path).map_err(|bad| RequestError::Invalid(format!("{field} {bad}")))
}
