//! session/new, load, resume, fork, set_title, status, list, close, delete, cancel.

use std::path::PathBuf;
use std::sync::Arc;

use protocol::acp::{LoadSession, NewSession, v1};
use protocol::table::{Cx, Reply};
use serde_json::json;

use super::options::choices;
use crate::config::settings::McpEntry;
use crate::editor::error::Refusal;
use crate::editor::meta::{self, BEFORE, CHANGED};
use crate::editor::server::Server;
use crate::editor::sessions::{self, History, Place, Reopened, SystemWords, Use, introduce};
use crate::id::SessionId;
use crate::store::{DiffStats, Record};

/// session/new.
pub(super) fn new(server: &Arc<Server>, cx: Cx, request: NewSession) -> Reply<v1::NewSessionResponse> {
    let NewSession(request) = request;
    let system = request.system_prompt.map(words);
    let place = place(request.cwd, request.additional_directories, &request.mcp_servers, system);
    let session = sessions::create(server, place);
    let server = server.clone();
    Reply::later(async move {
        let session = session.await?;
        let (modes, options) = choices(&server, &session);
        let response = v1::NewSessionResponse::new(session.id.share()).modes(modes).config_options(options);
        cx.after(introduce(server, session, Vec::new()));
        Ok(response)
    })
}

/// session/load: the whole history, then the response.
pub(super) fn load(server: &Arc<Server>, cx: Cx, request: LoadSession) -> Reply<v1::LoadSessionResponse> {
    let LoadSession(request) = request;
    let system = request.system_prompt.map(words);
    let place = place(request.cwd, request.additional_directories, &request.mcp_servers, system);
    let opened = sessions::reopen(server, &cx, &request.session_id.0, place, History::Shown);
    let server = server.clone();
    Reply::later(async move {
        let Reopened { session, left } = opened.await?;
        let (modes, options) = choices(&server, &session);
        cx.after(introduce(server, session, left));
        Ok(v1::LoadSessionResponse::new().modes(modes).config_options(options))
    })
}

/// session/resume: as load, without the history.
pub(super) fn resume(
    server: &Arc<Server>,
    cx: Cx,
    request: v1::ResumeSessionRequest,
) -> Reply<v1::ResumeSessionResponse> {
    let system = request.system_prompt.map(words);
    let place = place(request.cwd, request.additional_directories, &request.mcp_servers, system);
    let opened = sessions::reopen(server, &cx, &request.session_id.0, place, History::Known);
    let server = server.clone();
    Reply::later(async move {
        let Reopened { session, left } = opened.await?;
        let (modes, options) = choices(&server, &session);
        cx.after(introduce(server, session, left));
        Ok(v1::ResumeSessionResponse::new().modes(modes).config_options(options))
    })
}

/// session/fork: a new session with the history of another.
pub(super) fn fork(server: &Arc<Server>, cx: Cx, request: v1::ForkSessionRequest) -> Reply<v1::ForkSessionResponse> {
    let system = request.system_prompt.map(words);
    let place = place(request.cwd, request.additional_directories, &request.mcp_servers, system);
    let before = meta::of_ours(request.meta.as_ref(), BEFORE).cloned();
    let session = sessions::fork(server, &request.session_id.0, place, before);
    let server = server.clone();
    Reply::later(async move {
        let session = session.await?;
        let (modes, options) = choices(&server, &session);
        let response = v1::ForkSessionResponse::new(session.id.share()).modes(modes).config_options(options);
        cx.after(introduce(server, session, Vec::new()));
        Ok(response)
    })
}

/// session/set_title: what the user calls it stays.
pub(super) fn set_title(
    server: &Arc<Server>,
    _: Cx,
    request: v1::SetSessionTitleRequest,
) -> Reply<v1::SetSessionTitleResponse> {
    let title = sessions::set_title(server, &request.session_id.0, &request.title);
    Reply::later(async move { Ok(v1::SetSessionTitleResponse::new(title.await?)) })
}

/// session/status.
pub(super) fn status(
    server: &Arc<Server>,
    _: Cx,
    request: v1::SessionStatusRequest,
) -> Reply<v1::SessionStatusResponse> {
    let status = sessions::status(server.clone(), SessionId::new(request.session_id.0));
    Reply::later(async move {
        Ok(v1::SessionStatusResponse::new(match status.await? {
            Use::Open => v1::SessionStatus::Open,
            Use::Saved => v1::SessionStatus::Saved,
        }))
    })
}

/// session/list: newest first, any number of pages.
pub(super) fn list(server: &Arc<Server>, _: Cx, request: v1::ListSessionsRequest) -> Reply<v1::ListSessionsResponse> {
    let archived = filter(request.archived.as_ref());
    let page = archived.map(|archived| sessions::list(server.clone(), request.cwd, archived, request.cursor));
    Reply::later(async move {
        let page = page?.await?;
        Ok(v1::ListSessionsResponse::new(page.sessions.iter().map(info).collect()).next_cursor(page.next))
    })
}

/// Whether those put aside are wanted, or the others; none: both.
fn filter(archived: Option<&v1::SessionArchiveFilter>) -> Result<Option<bool>, Refusal> {
    match archived {
        None | Some(v1::SessionArchiveFilter::Exclude) => Ok(Some(false)),
        Some(v1::SessionArchiveFilter::Include) => Ok(None),
        Some(v1::SessionArchiveFilter::Only) => Ok(Some(true)),
        Some(_) => Err(Refusal::Invalid("archived is exclude, include or only".into())),
    }
}

fn info(record: &Record) -> v1::SessionInfo {
    let changed = record.changed.map(|changed| {
        let DiffStats { files, additions, deletions } = changed;
        meta::own(CHANGED, json!({ "files": files, "additions": additions, "deletions": deletions }))
    });
    v1::SessionInfo::new(record.id.share(), record.cwd.clone())
        .additional_directories(record.extra.clone())
        .title(record.title.clone())
        .updated_at(record.updated.iso())
        .archived(record.archived.then_some(true))
        .meta(changed)
}

/// session/close.
pub(super) fn close(server: &Arc<Server>, _: Cx, request: v1::CloseSessionRequest) -> Reply<v1::CloseSessionResponse> {
    let closed = sessions::close(server, &request.session_id.0);
    Reply::later(async move { Ok(closed.await.map(|()| v1::CloseSessionResponse::default())?) })
}

/// session/delete.
pub(super) fn delete(
    server: &Arc<Server>,
    _: Cx,
    request: v1::DeleteSessionRequest,
) -> Reply<v1::DeleteSessionResponse> {
    let deleted = sessions::delete(server, &request.session_id.0);
    Reply::later(async move { Ok(deleted.await.map(|()| v1::DeleteSessionResponse::default())?) })
}

/// session/archive.
pub(super) fn archive(
    server: &Arc<Server>,
    _: Cx,
    request: v1::ArchiveSessionRequest,
) -> Reply<v1::ArchiveSessionResponse> {
    let done = sessions::archive(server, &request.session_id.0, true);
    Reply::later(async move { Ok(done.await.map(|()| v1::ArchiveSessionResponse::default())?) })
}

/// session/unarchive.
pub(super) fn unarchive(
    server: &Arc<Server>,
    _: Cx,
    request: v1::UnarchiveSessionRequest,
) -> Reply<v1::UnarchiveSessionResponse> {
    let done = sessions::archive(server, &request.session_id.0, false);
    Reply::later(async move { Ok(done.await.map(|()| v1::UnarchiveSessionResponse::default())?) })
}

/// session/cancel. (`$/cancel_request` ends the token of a request; `prompt.rs` treats it alike.)
pub(super) fn cancel(server: &Arc<Server>, note: v1::CancelNotification) {
    sessions::cancel(server, &note.session_id.0);
}

/// What is added to the system prompt.
fn words(prompt: v1::SystemPrompt) -> SystemWords {
    let text = |block: v1::ContentBlock| match block {
        v1::ContentBlock::Text(text) => Some(text.text),
        _ => None,
    };
    let blocks: Option<Vec<String>> = prompt.content.into_iter().map(text).collect();
    match (prompt.mode, blocks) {
        (v1::SystemPromptMode::Append, Some(blocks)) if !blocks.is_empty() => SystemWords::Added(blocks.join("\n\n")),
        _ => SystemWords::NotOffered,
    }
}

fn place(cwd: PathBuf, extra: Vec<PathBuf>, servers: &[v1::McpServer], system: Option<SystemWords>) -> Place {
    Place { cwd, extra, servers: servers.iter().map(given).collect(), system }
}

/// A server as the settings would have it; none where it is of a kind that was not offered.
fn given(server: &v1::McpServer) -> Option<McpEntry> {
    let headers = |all: &[v1::HttpHeader]| all.iter().map(|one| (one.name.clone(), one.value.clone())).collect();
    match server {
        v1::McpServer::Stdio(server) => {
            let command = std::iter::once(server.command.display().to_string()).chain(server.args.clone()).collect();
            let environment = server.env.iter().map(|one| (one.name.clone(), one.value.clone())).collect();
            Some(sessions::program(server.name.clone(), command, environment))
        }
        v1::McpServer::Http(server) => {
            Some(sessions::remote(server.name.clone(), server.url.clone(), headers(&server.headers), false))
        }
        v1::McpServer::Sse(server) => {
            Some(sessions::remote(server.name.clone(), server.url.clone(), headers(&server.headers), true))
        }
        _ => None,
    }
}
