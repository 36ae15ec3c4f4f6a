//! session/new, resume, fork, list, cancel.

use std::path::PathBuf;
use std::sync::Arc;

use protocol::acp::v2;
use protocol::table::{Reply, RequestContext};

use super::options::choices;
use super::requests::{archive_filter, session_info, system_text};
use super::update;
use crate::error::RequestError;
use crate::meta::{self, BEFORE, Restrictions};
use crate::server::Server;
use crate::sessions::{self, HistoryMode, Reopened, SessionSetup, SystemWords, introduce};
use config::settings::McpEntry;
use session::SessionHandle;

/// session/new.
pub(super) fn new(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v2::NewSessionRequest,
) -> Reply<v2::NewSessionResponse> {
    let system = request.system_prompt.map(system_text);
    let place = place(
        request.cwd,
        request.additional_directories,
        request.mcp_servers,
        system,
    );
    let session = place.map(|place| sessions::create(server, place.fresh(request.meta.as_ref())));
    let server = server.clone();
    Reply::later(async move {
        let session = session?.await?;
        let response = v2::NewSessionResponse::new(session.id.share())
            .config_options(choices(&server, &session))
            .available_commands(commands(&session));
        cx.after(introduce(server, Reopened::whole(session)));
        Ok(response)
    })
}

fn commands(session: &SessionHandle) -> Vec<v2::AvailableCommand> {
    update::commands(&session.commands())
}

/// session/resume: opens a session, and sends its history if the client requests that.
pub(super) fn resume(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v2::ResumeSessionRequest,
) -> Reply<v2::ResumeSessionResponse> {
    let history = match request.replay_from {
        None => Ok(HistoryMode::Known),
        Some(v2::ReplayFrom::Start(_)) => Ok(HistoryMode::Shown),
        Some(_) => Err(RequestError::Invalid(
            "a session is replayed from its start, or not at all".into(),
        )),
    };
    let system = request.system_prompt.map(system_text);
    let place = place(
        request.cwd,
        request.additional_directories,
        request.mcp_servers,
        system,
    );
    let opened = history.and_then(|history| Ok((history, place?.again(request.meta.as_ref()))));
    let opened = opened.map(|(history, place)| {
        sessions::reopen(server, &cx, &request.session_id.0, place, history)
    });
    let server = server.clone();
    Reply::later(async move {
        let opened = opened?.await?;
        let response = v2::ResumeSessionResponse::new()
            .config_options(choices(&server, &opened.session))
            .available_commands(commands(&opened.session));
        cx.after(introduce(server, opened));
        Ok(response)
    })
}

/// session/fork: creates a session with the history of another.
pub(super) fn fork(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v2::ForkSessionRequest,
) -> Reply<v2::ForkSessionResponse> {
    let before = meta::of_ours(request.meta.as_ref(), BEFORE).cloned();
    let system = request.system_prompt.map(system_text);
    let place = place(
        request.cwd,
        request.additional_directories,
        request.mcp_servers,
        system,
    );
    let session = place.map(|place| {
        let place = place.fresh(request.meta.as_ref());
        sessions::fork(server, &request.session_id.0, place, before)
    });
    let server = server.clone();
    Reply::later(async move {
        let session = session?.await?;
        let response = v2::ForkSessionResponse::new(session.id.share())
            .config_options(choices(&server, &session))
            .available_commands(commands(&session));
        cx.after(introduce(server, Reopened::whole(session)));
        Ok(response)
    })
}

/// session/list: newest first, in pages.
pub(super) fn list(
    server: &Arc<Server>,
    _: RequestContext,
    request: v2::ListSessionsRequest,
) -> Reply<v2::ListSessionsResponse> {
    let cursor = request.cursor.map(|cursor| cursor.0.to_string());
    let archived = archive_filter(request.archived.as_ref());
    let cwd = request.cwd.map(v2::AbsolutePath::into_inner);
    let page = archived.map(|archived| sessions::list(server.clone(), cwd, archived, cursor));
    Reply::later(async move {
        let page = page?.await?;
        let sessions = page.sessions.iter().map(session_info).collect();
        let next = page.next.map(v2::SessionListCursor::new);
        Ok(v2::ListSessionsResponse::new(sessions)
            .next_cursor(next)
            .meta(page.meta))
    })
}

/// session/cancel.
pub(super) fn cancel(server: &Arc<Server>, note: v2::CancelSessionNotification) {
    sessions::cancel(server, &note.session_id.0);
}

/// tool_call/cancel: not offered for any call.
pub(super) fn cancel_call(
    _: &Arc<Server>,
    _: RequestContext,
    _: v2::CancelToolCallRequest,
) -> Reply<v2::CancelToolCallResponse> {
    Reply::now(Err(not_alone("call")))
}

/// terminal/cancel: not offered for any terminal.
pub(super) fn cancel_terminal(
    _: &Arc<Server>,
    _: RequestContext,
    _: v2::CancelTerminalRequest,
) -> Reply<v2::CancelTerminalResponse> {
    Reply::now(Err(not_alone("terminal")))
}

fn not_alone(what: &str) -> protocol::rpc::Error {
    RequestError::Invalid(format!(
        "this {what} cannot be cancelled by itself; session/cancel stops the turn"
    ))
    .into()
}

fn place(
    cwd: v2::AbsolutePath,
    extra: Vec<v2::AbsolutePath>,
    servers: Vec<v2::McpServer>,
    system: Option<SystemWords>,
) -> Result<SessionSetup, RequestError> {
    let extra: Vec<PathBuf> = extra
        .into_iter()
        .map(v2::AbsolutePath::into_inner)
        .collect();
    let names: Vec<&str> = servers.iter().filter_map(name).collect();
    if let Some(twice) = names
        .iter()
        .enumerate()
        .find_map(|(n, name)| names[..n].contains(name).then_some(*name))
    {
        return Err(RequestError::Invalid(format!(
            "two of mcpServers are called \"{}\"",
            base::text::title(twice)
        )));
    }
    let servers = servers
        .into_iter()
        .enumerate()
        .map(|(n, server)| given(n, server).map(Some));
    Ok(SessionSetup {
        cwd: cwd.into_inner(),
        extra,
        servers: servers.collect::<Result<_, _>>()?,
        system,
        restrictions: Ok(Restrictions::default()),
        unsaid: false,
    })
}

fn name(server: &v2::McpServer) -> Option<&str> {
    match server {
        v2::McpServer::Stdio(server) => Some(&server.name),
        v2::McpServer::Http(server) => Some(&server.name),
        v2::McpServer::Acp(server) => Some(&server.name),
        _ => None,
    }
}

/// Converts an MCP server to a settings entry. A kind that was not offered at the handshake is
/// refused.
fn given(n: usize, server: v2::McpServer) -> Result<McpEntry, RequestError> {
    match server {
        v2::McpServer::Stdio(server) => {
            let program = server.command.into_inner().display().to_string();
            let environment = server
                .env
                .into_iter()
                .map(|one| (one.name, one.value))
                .collect();
            let command = std::iter::once(program).chain(server.args).collect();
            Ok(sessions::program(server.name, command, environment))
        }
        v2::McpServer::Http(server) => {
            let headers = server
                .headers
                .into_iter()
                .map(|one| (one.name, one.value))
                .collect();
            Ok(sessions::remote(server.name, server.url, headers, false))
        }
        v2::McpServer::Acp(server) => Ok(sessions::in_editor(server.name, &server.server_id.0)),
        _ => Err(RequestError::Invalid(format!(
            "mcpServers[{n}] is of a kind that was not offered; stdio, http and acp are"
        ))),
    }
}
