//! session/new, load, resume, status, list, close, delete.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use protocol::acp::{LoadSession, NewSession, v1};
use protocol::table::{Cx, Reply};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::error::Refusal;
use super::options::Pending;
use super::prompt::{UpdateSender, own};
use super::server::{Capabilities, Server};
use super::{modes, options};
use crate::config::settings::{McpEntry, OAuth, Transport};
use crate::environment::Timestamp;
use crate::event::{Event, Severity};
use crate::id::SessionId;
use crate::message::Content;
use crate::session::handle::{PromptInput, SavedReceiver};
use crate::session::open::{OpenOptions, OpenedSession};
use crate::session::{Handle, access, title};
use crate::store::{DiffStats, ListCursor, Record};
use crate::worktree::normal;

/// Sessions per page of a listing.
const PAGE: usize = 100;

/// After how long the commands are sent a second time: Zed registers a session some time after it
/// has read the response, and drops what came before.
const AGAIN: Duration = Duration::from_millis(250);

/// session/new.
pub fn new(server: &Arc<Server>, cx: Cx, request: NewSession) -> Reply<v1::NewSessionResponse> {
    let NewSession(request) = request;
    let place = place(server, request.cwd, request.additional_directories, &request.mcp_servers);
    let server = server.clone();
    Reply::later(async move {
        let opened = server.shared.create(place?).await.map_err(Refusal::from)?;
        let session = opened.handle;
        let (modes, options) = choices(&server, &session);
        let response = v1::NewSessionResponse::new(session.id.share()).modes(modes).config_options(options);
        server.adopt(session.clone());
        cx.after(introduce(server, session));
        Ok(response)
    })
}

/// What the user can choose in a session.
fn choices(server: &Server, session: &Handle) -> (v1::SessionModeState, Vec<v1::SessionConfigOption>) {
    (modes::modes(session), options::options(server, session, Pending::default()))
}

/// session/load: the whole history, then the response.
pub fn load(server: &Arc<Server>, cx: Cx, request: LoadSession) -> Reply<v1::LoadSessionResponse> {
    let LoadSession(request) = request;
    let place =
        known_place(server, &request.session_id.0, request.cwd, request.additional_directories, &request.mcp_servers);
    let claim = server.claim(&request.session_id.0);
    let server = server.clone();
    Reply::later(async move {
        let _claim = claim?;
        let OpenedSession { handle: session, mut replay } =
            reopen(&server, &request.session_id.0, place?, "load").await?;
        let mut updates = UpdateSender::new(&server, &session);
        while let Some(event) = replay.next().await {
            if cx.cancelled.is_cancelled() {
                drop(replay);
                session.close().await;
                return Err(Refusal::Cancelled.into());
            }
            updates.event(event).await;
        }
        // From here on the session has its history.
        drop(replay);
        let (modes, options) = choices(&server, &session);
        let response = v1::LoadSessionResponse::new().modes(modes).config_options(options);
        drop(updates);
        server.adopt(session.clone());
        cx.after(introduce(server, session));
        Ok(response)
    })
}

/// session/resume: as load, without the history.
pub fn resume(server: &Arc<Server>, cx: Cx, request: v1::ResumeSessionRequest) -> Reply<v1::ResumeSessionResponse> {
    let place =
        known_place(server, &request.session_id.0, request.cwd, request.additional_directories, &request.mcp_servers);
    let claim = server.claim(&request.session_id.0);
    let server = server.clone();
    Reply::later(async move {
        let _claim = claim?;
        let OpenedSession { handle: session, replay } =
            reopen(&server, &request.session_id.0, place?, "resume").await?;
        let children = replay.associations();
        drop(replay);
        let response = v1::ResumeSessionResponse::new().modes(modes::modes(&session)).config_options(options::options(
            &server,
            &session,
            Pending::default(),
        ));
        server.adopt(session.clone());
        cx.after(async move {
            let mut updates = UpdateSender::new(&server, &session);
            for child in children {
                updates.event(child).await;
            }
            drop(updates);
            introduce(server, session).await;
        });
        Ok(response)
    })
}

/// Opens a session that is kept.
async fn reopen(server: &Server, id: &str, place: OpenOptions, way: &'static str) -> Result<OpenedSession, Refusal> {
    let live = server.session(id).ok().map(|live| live.cwd);
    let dismiss = || server.dismiss(id);
    Ok(server.shared.reopen(&SessionId::new(id), place, live, dismiss, way).await?)
}

/// What follows the response to an opened session, for as long as it is open: the commands, twice; the
/// models again when a local server was found; titles; notices, where the editor knows them.
async fn introduce(server: Arc<Server>, session: Handle) {
    let commands = Event::Commands(session.project().commands.list());
    let mut updates = UpdateSender::new(&server, &session);
    updates.event(commands.clone()).await;
    let mut models = session.project().models.clone();
    let mut asides = session.asides();
    let notices = server.capabilities().shows.notices;
    let again = tokio::time::sleep(AGAIN); // the grace a slow editor needs
    tokio::pin!(again);
    let mut waits = true;
    loop {
        tokio::select! {
            biased;
            () = server.ended.cancelled() => break,
            () = session.closed() => break,
            aside = asides.recv() => match aside {
                // Words between two turns would look like an answer to nothing.
                Ok(Event::Notice { .. }) if !notices => {}
                Ok(event) => updates.event(event).await,
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => break,
            },
            () = &mut again, if waits => {
                waits = false;
                updates.event(commands.clone()).await;
            }
            true = models.changed() => updates.event(Event::Options).await,
        }
    }
}

/// In the `_meta` of a fork: the message, or a part of it, that the new session's history ends before.
const BEFORE: &str = "before";

/// session/fork: a new session with the history of another.
pub fn fork(server: &Arc<Server>, cx: Cx, request: v1::ForkSessionRequest) -> Reply<v1::ForkSessionResponse> {
    let place = place(server, request.cwd, request.additional_directories, &request.mcp_servers);
    let before = super::prompt::of_ours(request.meta.as_ref(), BEFORE).cloned();
    let server = server.clone();
    Reply::later(async move {
        let id = SessionId::new(request.session_id.0.clone());
        let before = match &before {
            None => None,
            Some(Value::String(message)) => Some(message.as_str()),
            Some(_) => return Err(Refusal::Invalid(format!("_meta.adjutant.{BEFORE} must be a message's id")).into()),
        };
        let session = server.shared.fork(&id, place?, before).await.map_err(Refusal::from)?.handle;
        let (modes, options) = choices(&server, &session);
        let response = v1::ForkSessionResponse::new(session.id.share()).modes(modes).config_options(options);
        server.adopt(session.clone());
        cx.after(introduce(server, session));
        Ok(response)
    })
}

/// session/set_title: what the user calls it stays.
pub fn set_title(
    server: &Arc<Server>,
    _: Cx,
    request: v1::SetSessionTitleRequest,
) -> Reply<v1::SetSessionTitleResponse> {
    let id = SessionId::new(request.session_id.0.clone());
    let title = title::tidy(&request.title);
    // Before this returns: of two titles the later one stays.
    let renamed = rename(server, &id, &title);
    let server = server.clone();
    Reply::later(async move {
        match renamed? {
            Some((live, written)) => server.kept(&live, written).await?,
            None => drop(server.shared.store.rename(&id, &title).await.map_err(Refusal::from)?),
        }
        Ok(v1::SetSessionTitleResponse::new(title))
    })
}

/// Gives a session its title if it is open here.
fn rename(server: &Server, id: &SessionId, title: &str) -> Result<Option<(Handle, SavedReceiver)>, Refusal> {
    if title.is_empty() {
        return Err(Refusal::Invalid("a title has words".into()));
    }
    if !id.is_well_formed() {
        return Err(Refusal::NoSession(id.as_str().chars().take(100).collect()));
    }
    let Ok(live) = server.session(id.as_str()) else { return Ok(None) };
    let written = live.rename(title)?;
    Ok(Some((live, written)))
}

/// session/status: whether a session is in use here, or only kept. Subagents at work count as in use.
pub fn status(server: &Arc<Server>, _: Cx, request: v1::SessionStatusRequest) -> Reply<v1::SessionStatusResponse> {
    let id = SessionId::new(request.session_id.0.clone());
    if server.shared.holds(&id) {
        return Reply::now(Ok(v1::SessionStatusResponse::new(v1::SessionStatus::Open)));
    }
    let server = server.clone();
    Reply::later(async move {
        if id.is_well_formed() && server.shared.store.has(&id).await.map_err(Refusal::from)? {
            return Ok(v1::SessionStatusResponse::new(v1::SessionStatus::Saved));
        }
        Err(Refusal::NoSession(id.as_str().chars().take(100).collect()).into())
    })
}

/// session/list: newest first, any number of pages.
pub fn list(server: &Arc<Server>, _: Cx, request: v1::ListSessionsRequest) -> Reply<v1::ListSessionsResponse> {
    let server = server.clone();
    let asked = (|| {
        let after = request.cursor.as_deref().map(cursor).transpose()?;
        if let Some(cwd) = request.cwd.as_deref().filter(|cwd| !cwd.is_absolute()) {
            return Err(Refusal::Invalid(format!("cwd must be absolute; {} is not", cwd.display())));
        }
        Ok((request.cwd.as_deref().map(normal), after))
    })();
    Reply::later(async move {
        let (cwd, after) = asked?;
        let page = server.shared.store.list(cwd.as_deref(), after, PAGE).await.map_err(Refusal::from)?;
        let next = page.next.map(|at| BASE64.encode(format!("{} {}", at.updated.0, at.id)));
        let sessions = page.sessions.iter().map(info).collect();
        Ok(v1::ListSessionsResponse::new(sessions).next_cursor(next))
    })
}

fn info(record: &Record) -> v1::SessionInfo {
    let changed = record.changed.map(|changed| {
        let DiffStats { files, additions, deletions } = changed;
        own("changed", json!({ "files": files, "additions": additions, "deletions": deletions }))
    });
    v1::SessionInfo::new(record.id.share(), record.cwd.clone())
        .additional_directories(record.extra.clone())
        .title(record.title.clone())
        .updated_at(record.updated.iso())
        .meta(changed)
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

/// session/close. Unknown sessions are closed already.
pub fn close(server: &Arc<Server>, _: Cx, request: v1::CloseSessionRequest) -> Reply<v1::CloseSessionResponse> {
    let claim = server.claim(&request.session_id.0);
    let live = claim.is_ok().then(|| server.dismiss(&request.session_id.0)).flatten();
    Reply::later(async move {
        let _claim = claim?;
        if let Some(live) = live {
            live.close().await;
        }
        Ok(v1::CloseSessionResponse::default())
    })
}

/// session/delete: the session and its children. Unknown sessions are gone already.
pub fn delete(server: &Arc<Server>, _: Cx, request: v1::DeleteSessionRequest) -> Reply<v1::DeleteSessionResponse> {
    let id = SessionId::new(request.session_id.0.clone());
    let claim = server.claim(id.as_str());
    let live = claim.is_ok().then(|| server.dismiss(id.as_str())).flatten();
    let server = server.clone();
    Reply::later(async move {
        let _claim = claim?;
        server.shared.delete(&id, live, |child| server.dismiss(child.as_str())).await.map_err(Refusal::from)?;
        Ok(v1::DeleteSessionResponse::default())
    })
}

/// Checks where a session is to go on. One whose directory is gone cannot, but it is not lost.
fn known_place(
    server: &Server,
    id: &str,
    cwd: PathBuf,
    extra: Vec<PathBuf>,
    mcp: &[v1::McpServer],
) -> Result<OpenOptions, Refusal> {
    let gone = cwd.is_absolute() && !cwd.exists();
    place(server, cwd, extra, mcp).map_err(|refusal| match refusal {
        Refusal::Invalid(why) if gone => {
            let id = crate::text::title(id);
            Refusal::Invalid(format!(
                "{why}. Put it back to open the session there, or go on in another directory with a fork of it (session/fork). What was said is still there: adjutant sessions show {id}"
            ))
        }
        refusal => refusal,
    })
}

/// Checks where a session is to work.
fn place(server: &Server, cwd: PathBuf, extra: Vec<PathBuf>, mcp: &[v1::McpServer]) -> Result<OpenOptions, Refusal> {
    directory("cwd", &cwd)?;
    for dir in &extra {
        directory("additionalDirectories", dir)?;
    }
    let mut notices = Vec::new();
    let servers: Vec<_> = mcp.iter().filter_map(given).collect();
    if servers.len() < mcp.len() {
        notices.push(Event::Notice {
            severity: Severity::Warning,
            title: "An MCP server of the editor is of a kind that is not supported, and is not used.".into(),
            details: None,
        });
    }
    let Capabilities { files, shows, alone, .. } = server.capabilities();
    Ok(OpenOptions { cwd: normal(&cwd), extra, files, exposed: shows.subagents, attended: !alone, servers, notices })
}

/// A server as the settings would have it; none where it is of a kind that was not offered.
fn given(server: &v1::McpServer) -> Option<McpEntry> {
    let remote = |url: &str, headers: &[v1::HttpHeader], sse| Transport::Remote {
        url: url.to_owned(),
        headers: headers.iter().map(|one| (one.name.clone(), one.value.clone())).collect(),
        oauth: Some(OAuth::default()),
        sse,
    };
    let (name, transport) = match server {
        v1::McpServer::Stdio(server) => {
            let transport = Transport::Local {
                command: std::iter::once(server.command.display().to_string()).chain(server.args.clone()).collect(),
                cwd: None,
                environment: server.env.iter().map(|one| (one.name.clone(), one.value.clone())).collect(),
            };
            (&server.name, transport)
        }
        v1::McpServer::Http(server) => (&server.name, remote(&server.url, &server.headers, false)),
        v1::McpServer::Sse(server) => (&server.name, remote(&server.url, &server.headers, true)),
        _ => return None,
    };
    let (timeout, source) = (Duration::from_secs(30), "the editor".into());
    Some(McpEntry { name: name.clone(), enabled: true, timeout, call_timeout: None, transport, source })
}

fn directory(field: &str, path: &Path) -> Result<(), Refusal> {
    access::directory(path).map_err(|bad| Refusal::Invalid(format!("{field} {bad}")))
}

/// What a prompt asks for: an order to the session, or a turn of the model.
pub fn work(session: &Handle, parts: Vec<Content>) -> PromptInput {
    let order = match parts.first() {
        Some(Content::Text(typed)) => session.project().commands.order(&typed.text),
        _ => None,
    };
    order.map_or(PromptInput::Message(parts), PromptInput::Builtin)
}
