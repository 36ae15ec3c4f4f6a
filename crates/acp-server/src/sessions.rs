//! Opening, listing, naming, closing and deleting sessions: the rules of it, whichever version asks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use protocol::table::Cx;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::error::Refusal;
use super::face::SessionActivity;
use super::hosted::LiveSession;
use super::meta::{BEFORE, FILLING, Meta, UNSAID, of_ours, own};
use super::server::{Capabilities, Server};
use super::updates::{OpeningUpdates, UpdateSender};
use base::environment::Timestamp;
use base::id::SessionId;
use base::worktree::normal;
use config::settings::{McpEntry, OAuth, Transport};
use events::{Event, Severity, ToolKind};
use session::handle::SavedReceiver;
use session::open::{OpenError, OpenOptions, OpenedSession};
use session::{Handle, access, title};
use store::{ListCursor, ListFilling, ListQuery, Record, RecordChange};

/// Sessions per page of a listing.
const PAGE: usize = 100;

/// After how long the commands are sent a second time: Zed registers a session some time after it
/// has read the response, and drops what came before.
const AGAIN: Duration = Duration::from_millis(250);

/// Where a session is to work, as the editor says.
pub struct SessionSetup {
    pub cwd: PathBuf,
    pub extra: Vec<PathBuf>,
    /// MCP servers; none for one of a kind that was not offered.
    pub servers: Vec<Option<McpEntry>>,
    /// What the editor adds to the system prompt.
    pub system: Option<SystemWords>,
    /// Nothing was said in it: where it is to be opened again and is not kept, it begins.
    pub unsaid: bool,
}

impl SessionSetup {
    /// That of a session which is to be opened again, with what the request says of it beside.
    pub fn again(self, meta: Option<&Meta>) -> Self {
        Self { unsaid: of_ours(meta, UNSAID) == Some(&Value::Bool(true)), ..self }
    }
}

/// What an editor wants of the system prompt.
pub enum SystemWords {
    /// These words at its end.
    Added(String),
    /// Something that was not offered: other words in place of ours, or no words.
    NotOffered,
}

/// An MCP server of the editor's that is a program.
pub fn program(name: String, command: Vec<String>, environment: Vec<(String, String)>) -> McpEntry {
    given(name, Transport::Local { command, cwd: None, environment: environment.into_iter().collect() })
}

/// An MCP server of the editor's at an address; `sse`: over the older HTTP with events.
pub fn remote(name: String, url: String, headers: Vec<(String, String)>, sse: bool) -> McpEntry {
    let headers = headers.into_iter().collect();
    given(name, Transport::Remote { url, headers, oauth: Some(OAuth::default()), sse })
}

fn given(name: String, transport: Transport) -> McpEntry {
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

/// Whether an editor that opens a session is shown what was said in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryMode {
    Shown,
    Known,
}

impl HistoryMode {
    fn word(self) -> &'static str {
        match self {
            Self::Shown => "load",
            Self::Known => "resume",
        }
    }
}

pub fn create(
    server: &Arc<Server>,
    place: SessionSetup,
) -> impl Future<Output = Result<Handle, Refusal>> + Send + 'static {
    let place = checked(server, place);
    let server = server.clone();
    async move {
        server.has_room()?;
        let place = place?;
        let options = server.hosted().map(|_| place.clone());
        let session = server.shared.create(place).await?.handle;
        let live = LiveSession::new(session.clone(), options);
        live.live_turns.costs(0.0);
        server.take_in(live);
        Ok(session)
    }
}

/// A session that was opened, and what is to be shown of it after the answer.
pub struct Reopened {
    pub session: Handle,
    /// What the editor has not been shown.
    left: Vec<Event>,
    /// The history that it was shown has commands in it.
    ran: bool,
}

impl Reopened {
    /// For a session of which all was shown that there is.
    pub fn whole(session: Handle) -> Self {
        Self { session, left: Vec::new(), ran: false }
    }
}

/// Opens a session that is kept. Where its history is shown, that is over when this is.
pub fn reopen(
    server: &Arc<Server>,
    cx: &Cx,
    id: &str,
    place: SessionSetup,
    history: HistoryMode,
) -> impl Future<Output = Result<Reopened, Refusal>> + Send + 'static {
    let unsaid = place.unsaid;
    let place = known_place(server, id, place);
    let claim = server.claim(id);
    let (server, id, cancelled) = (server.clone(), id.to_owned(), cx.cancelled.clone());
    async move {
        let claim = claim?;
        claim.first().await;
        let place = place?;
        let mut reclaimed = None;
        if server.session(&id).is_err() {
            match server.reclaim(&id, history.word()).await? {
                None => server.has_room()?,
                Some(live) => match come_back(&server, live, &place, history).await? {
                    CameBack::To(reopened) => return Ok(reopened),
                    CameBack::Otherwise(live) => reclaimed = Some(live),
                },
            }
        }
        let live = reclaimed.clone().or_else(|| server.session(&id).ok()).map(|live| live.cwd);
        let dismiss = || reclaimed.or_else(|| server.dismiss(&id));
        let options = server.hosted().map(|_| place.clone());
        let (kept, fresh) = (SessionId::new(&*id), unsaid.then(|| place.clone()));
        let mut opening = OpeningUpdates::new(&server);
        let (beginning, first) = oneshot::channel();
        let beginning = (history == HistoryMode::Shown).then_some(beginning);
        let reopening = server.shared.reopen(&kept, place, live, dismiss, history.word(), beginning);
        let (reopened, mut ran) = tokio::join!(reopening, show_first(&mut opening, &kept, first, &cancelled));
        let opened = match (reopened, fresh) {
            // One that is open all the same could not be saved: it goes on.
            (Err(e), Some(fresh)) if e.is_unknown() && !server.shared.holds(&kept) => {
                server.shared.begin_again(kept, fresh).await?
            }
            (opened, _) => opened?,
        };
        let OpenedSession { handle: session, mut replay } = opened;
        let mut updates = opening.open(&session);
        let live = LiveSession::new(session.clone(), options);
        let left = match history {
            HistoryMode::Known => replay.associations(),
            HistoryMode::Shown => {
                while let Some(event) = replay.next().await {
                    if cancelled.is_cancelled() {
                        drop(replay);
                        session.close().await;
                        return Err(Refusal::Cancelled);
                    }
                    if let Event::Usage { cost: Some(cost), .. } = &event {
                        live.live_turns.costs(*cost);
                    }
                    ran |= is_command(&event);
                    updates.event(event).await;
                }
                Vec::new()
            }
        };
        // From here on the session has its history.
        drop(replay);
        updates.state(SessionActivity::Idle(None)).await;
        drop(updates);
        server.take_in(live);
        Ok(Reopened { session, left, ran })
    }
}

/// Shows the first events of a session whose history is still being read. Says whether there are commands among them.
async fn show_first(
    updates: &mut OpeningUpdates,
    id: &SessionId,
    first: oneshot::Receiver<Vec<Event>>,
    cancelled: &CancellationToken,
) -> bool {
    // Where it cannot be opened, there are none.
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

/// How somebody came back to a session that is open.
enum CameBack {
    To(Reopened),
    /// It is to be opened in another way than it is, and nothing runs in it.
    Otherwise(Handle),
}

/// Goes on with a session whose connection has ended, or gave it up: what runs in it runs on.
///
/// # Errors
/// It belongs to another directory, or there are too many sessions to open it in another way. It waits on.
async fn come_back(
    server: &Arc<Server>,
    live: LiveSession<Server>,
    place: &OpenOptions,
    history: HistoryMode,
) -> Result<CameBack, Refusal> {
    let elsewhere = !server.shared.is_place(&live.handle.cwd, &place.cwd);
    let otherwise = !live.live_turns.is_busy() && !live.live_turns.is_opened_as(place);
    let refused = match elsewhere {
        true => {
            let (id, kept, asked) = (live.handle.id.clone(), live.handle.cwd.clone(), place.cwd.clone());
            Some(OpenError::Elsewhere { id, kept, asked }.into())
        }
        false if otherwise => server.has_room().err(),
        false => None,
    };
    if let Some(refused) = refused {
        if let Some(hosted) = server.hosted() {
            hosted.wait(live);
        }
        return Err(refused);
    }
    if otherwise {
        return Ok(CameBack::Otherwise(live.handle));
    }
    let live = live.moved();
    let (session, live_turns) = (live.handle.clone(), live.live_turns.clone());
    // Whoever asks meanwhile whose it is, hears that.
    server.take_in(live);
    let shown = history == HistoryMode::Shown;
    if !live_turns.show(server, shown).await {
        let mut updates = UpdateSender::new(server, &session);
        if shown {
            updates.replay(None).await;
        }
        updates.state(SessionActivity::Idle(None)).await;
    }
    Ok(CameBack::To(Reopened::whole(session)))
}

/// What follows the answer to an opened session, for as long as it is open: what is left of it; the commands,
/// twice, for editors that may miss them, and again when a server has other prompts; the models again when a local server was found; titles; notices, where
/// the editor knows them.
pub async fn introduce(server: Arc<Server>, opened: Reopened) {
    let Reopened { session, left, ran } = opened;
    session.start_servers();
    let mut commands = session.commands();
    let Capabilities { shows, misses_commands, .. } = server.capabilities();
    let here = server.live(session.id.as_str()).map(|live| live.here).unwrap_or_default();
    let mut updates = UpdateSender::new(&server, &session);
    for event in left {
        updates.event(event).await;
    }
    if misses_commands {
        updates.event(Event::Commands(commands.clone())).await;
    }
    let mut servers = session.server_changes();
    let mut models = session.project().models.clone();
    let mut asides = session.asides();
    let again = tokio::time::sleep(AGAIN); // the grace a slow editor needs
    tokio::pin!(again);
    let mut waits = misses_commands;
    let tried = session.try_sandbox();
    tokio::pin!(tried);
    let mut trying = true;
    loop {
        tokio::select! {
            biased;
            () = server.ended.cancelled() => break,
            () = here.cancelled() => break,
            () = session.closed() => break,
            aside = asides.recv() => match aside {
                // Words between two turns would look like an answer to nothing.
                Ok(Event::Notice { .. }) if !shows.notices => {}
                Ok(event) => updates.event(event).await,
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => break,
            },
            () = &mut again, if waits => {
                waits = false;
                commands = session.commands();
                updates.event(Event::Commands(commands.clone())).await;
            }
            Ok(()) = servers.changed() => {
                let now = session.commands();
                if now != commands {
                    commands.clone_from(&now);
                    updates.event(Event::Commands(now)).await;
                }
            }
            holds = &mut tried, if trying => {
                trying = false;
                // There is more to choose from now.
                if holds {
                    updates.event(Event::Options).await;
                }
                // It was told when these commands ran, and is not kept with them.
                if let Some(notice) = (ran && shows.notices).then(|| session.sandbox_notice()).flatten() {
                    updates.event(notice).await;
                }
            }
            true = models.changed() => updates.event(Event::Options).await,
        }
    }
}

/// A new session with the history of another, up to a message if one is named.
pub fn fork(
    server: &Arc<Server>,
    id: &str,
    place: SessionSetup,
    before: Option<Value>,
) -> impl Future<Output = Result<Handle, Refusal>> + Send + 'static {
    let place = checked(server, place);
    let (server, id) = (server.clone(), SessionId::new(id));
    async move {
        let before = match &before {
            None => None,
            Some(Value::String(message)) => Some(message.as_str()),
            Some(_) => return Err(Refusal::Invalid(format!("_meta.adjutant.{BEFORE} must be a message's id"))),
        };
        server.has_room()?;
        let place = place?;
        let options = server.hosted().map(|_| place.clone());
        let session = server.shared.fork(&id, place, before).await?.handle;
        server.take_in(LiveSession::new(session.clone(), options));
        Ok(session)
    }
}

/// Gives a session the title its user wants, before this returns or when all that came before was carried out: of two
/// titles the later one stays, and a session that is being opened has it. The title as it is kept.
pub fn set_title(
    server: &Arc<Server>,
    id: &str,
    title: &str,
) -> impl Future<Output = Result<String, Refusal>> + Send + 'static {
    let (id, title) = (SessionId::new(id), title::tidy(title));
    let place = server.wait(id.as_str());
    let now = place.is_none().then(|| rename(server, &id, &title));
    let server = server.clone();
    async move {
        if let Some(place) = &place {
            place.first().await;
        }
        match now.unwrap_or_else(|| rename(&server, &id, &title))? {
            Some((live, written)) => {
                // Nobody else waits until it is kept.
                drop(place);
                server.kept(&live, written).await?;
            }
            None => drop(server.shared.store.rename(&id, &title).await?),
        }
        Ok(title)
    }
}

/// Gives a session its title if it is open here.
fn rename(server: &Server, id: &SessionId, title: &str) -> Result<Option<(Handle, SavedReceiver)>, Refusal> {
    if title.is_empty() {
        return Err(Refusal::Invalid("the title is empty".into()));
    }
    if !id.is_well_formed() {
        return Err(Refusal::no_session(id.as_str()));
    }
    let Ok(live) = server.session(id.as_str()) else { return Ok(None) };
    let written = live.rename(title)?;
    Ok(Some((live, written)))
}

/// Whether a session is in use here, or only kept. Subagents at work count as in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Open,
    Saved,
}

/// What use a session is in.
///
/// # Errors
/// There is none.
pub async fn status(server: Arc<Server>, id: SessionId) -> Result<Use, Refusal> {
    if server.shared.holds(&id) {
        return Ok(Use::Open);
    }
    if id.is_well_formed() && server.shared.store.has(&id).await? {
        return Ok(Use::Saved);
    }
    Err(Refusal::no_session(id.as_str()))
}

/// A page of the sessions there are.
pub struct ShownPage {
    /// Newest first.
    pub sessions: Vec<Record>,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
    /// What of ours is told with it.
    pub meta: Option<Meta>,
}

/// The sessions of a directory, or all, newest first; `archived`: those put aside, or the others.
///
/// # Errors
/// The directory is not absolute, or the cursor not one of ours.
pub async fn list(
    server: Arc<Server>,
    cwd: Option<PathBuf>,
    archived: Option<bool>,
    after: Option<String>,
) -> Result<ShownPage, Refusal> {
    let after = after.as_deref().map(cursor).transpose()?;
    if let Some(cwd) = cwd.as_deref().filter(|cwd| !cwd.is_absolute()) {
        return Err(Refusal::Invalid(format!("cwd must be absolute; {} is not", cwd.display())));
    }
    let cwd = cwd.as_deref().map(normal);
    let place = server.shared.shared_place(cwd.as_deref()).await;
    let query = ListQuery { cwd, place, archived, after, limit: PAGE, ..ListQuery::default() };
    let page = server.shared.store.list_where(query).await?;
    let next = page.next.map(|at| BASE64.encode(format!("{} {}", at.updated.0, at.id)));
    let filling = page.filling.map(|ListFilling { taken, unknown }| json!({ "taken": taken, "of": unknown }));
    Ok(ShownPage { sessions: page.sessions, next, meta: filling.map(|filling| own(FILLING, filling)) })
}

fn cursor(text: &str) -> Result<ListCursor, Refusal> {
    let read = || {
        let bytes = BASE64.decode(text).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (updated, id) = text.split_once(' ')?;
        Some(ListCursor { updated: Timestamp(updated.parse().ok()?), id: SessionId::new(id) })
    };
    read().ok_or_else(|| Refusal::Invalid("the cursor is not one of ours; leave it out to start over".into()))
}

/// Closes a session. Unknown ones are closed already.
pub fn close(server: &Arc<Server>, id: &str) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
    let claim = server.claim(id);
    let (server, id) = (server.clone(), id.to_owned());
    async move {
        let claim = claim?;
        claim.first().await;
        if let Some(live) = server.dismiss(&id) {
            live.close().await;
        }
        Ok(())
    }
}

/// Puts a session aside, or takes it back. One that is open is closed before it is put aside.
pub fn archive(
    server: &Arc<Server>,
    id: &str,
    aside: bool,
) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
    let id = SessionId::new(id);
    let claim = server.claim(id.as_str());
    let server = server.clone();
    async move {
        let claim = claim?;
        claim.first().await;
        if !id.is_well_formed() {
            return Err(Refusal::no_session(id.as_str()));
        }
        match server.session(id.as_str()) {
            Ok(_) if aside => server.shared.put_aside(&id, server.dismiss(id.as_str())).await?,
            // It writes its record itself.
            Ok(live) => server.kept(&live, live.take_back()?).await?,
            Err(_) => drop(server.shared.store.change(&id, RecordChange::Archived(aside)).await?),
        }
        Ok(())
    }
}

/// Deletes a session and its children. Unknown ones are gone already.
pub fn delete(server: &Arc<Server>, id: &str) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
    let id = SessionId::new(id);
    let claim = server.claim(id.as_str());
    let server = server.clone();
    async move {
        let claim = claim?;
        claim.first().await;
        let live = server.dismiss(id.as_str());
        server.shared.delete(&id, live, |child| server.dismiss(child.as_str())).await?;
        Ok(())
    }
}

/// Stops the session's turn and forgets its waiting prompts; stops a subagent. Idle and unknown sessions: nothing.
pub fn cancel(server: &Server, id: &str) {
    server.cancel_waiting(id);
    match server.session(id) {
        Ok(session) => session.cancel(),
        Err(_) if server.shared.stop_subagent(&SessionId::new(id)) => {}
        Err(_) => tracing::info!("a cancel for no session"),
    }
}

/// Checks where a session is to go on. One whose directory is gone cannot, but it is not lost.
fn known_place(server: &Server, id: &str, place: SessionSetup) -> Result<OpenOptions, Refusal> {
    let gone = place.cwd.is_absolute() && !normal(&place.cwd).exists();
    checked(server, place).map_err(|refusal| match refusal {
        Refusal::Invalid(why) if gone => {
            let id = base::text::title(id);
            Refusal::Invalid(format!(
                "{why}. Put it back to open the session there, or go on in another directory with a fork of it (session/fork). What was said is still there: adjutant sessions show {id}"
            ))
        }
        refusal => refusal,
    })
}

/// Checks where a session is to work. What is checked is what is opened.
fn checked(server: &Server, place: SessionSetup) -> Result<OpenOptions, Refusal> {
    let SessionSetup { cwd, extra, servers, system, unsaid: _ } = place;
    let cwd = directory("cwd", &cwd)?;
    let system = match system {
        None => None,
        Some(SystemWords::Added(words)) => Some(words.into()),
        Some(SystemWords::NotOffered) => {
            let why = "systemPrompt takes the mode \"append\" and content of text; nothing was opened";
            return Err(Refusal::Invalid(why.into()));
        }
    };
    let extra: Vec<_> = extra.iter().map(|dir| directory("additionalDirectories", dir)).collect::<Result<_, _>>()?;
    let mut notices = Vec::new();
    let given = servers.len();
    let servers: Vec<_> = servers.into_iter().flatten().collect();
    if servers.len() < given {
        notices.push(Event::Notice {
            severity: Severity::Warning,
            title: "An MCP server of the editor is of a kind that is not supported, and is not used.".into(),
            details: None,
        });
    }
    if let Some(roots) = server.roots() {
        for dir in std::iter::once(&cwd).chain(&extra) {
            access::within(dir, roots).map_err(|bad| Refusal::Invalid(bad.to_string()))?;
        }
    }
    let Capabilities { files, shows, alone, addresses, .. } = server.capabilities();
    let (exposed, attended) = (shows.subagents, !alone);
    Ok(OpenOptions { cwd, extra, files, exposed, attended, addresses, servers, system, notices })
}

fn directory(field: &str, path: &Path) -> Result<PathBuf, Refusal> {
    access::directory(path).map_err(|bad| Refusal::Invalid(format!("{field} {bad}")))
}
