//! The handlers of version 2 for `session/new`, `resume`, `fork`, `list` and `cancel`.

use std::path::PathBuf;
use std::sync::Arc;

use protocol::acp::v2;
use protocol::table::{Reply, RequestContext};

use super::encode_event;
use super::options::options_of;
use super::requests::{archive_filter, decode_system_prompt, session_info};
use crate::error::RequestError;
use crate::meta::{self, FORK_BEFORE, Restrictions};
use crate::server::{HistoryMode, Server};
use crate::sessions::{
    self, HttpKind, OpenedForClient, SessionSetup, SystemPromptAddition, send_out_of_turn_updates,
};
use config::settings::McpEntry;
use session::SessionHandle;

/// Returns the setup that a request to open a session describes. A macro, because ACP has a type
/// for each of these requests, with equal fields.
macro_rules! setup_of {
    ($request:ident) => {
        session_setup(
            $request.cwd,
            $request.additional_directories,
            $request.mcp_servers,
            $request.system_prompt.map(decode_system_prompt),
        )
    };
}

/// Creates a session (`session/new`).
pub(super) fn new(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v2::NewSessionRequest,
) -> Reply<v2::NewSessionResponse> {
    let setup = setup_of!(request);
    let session =
        setup.map(|setup| sessions::create(server, setup.for_new_session(request.meta.as_ref())));
    let server = server.clone();
    Reply::later(async move {
        let session = session?.await?;
        let response = v2::NewSessionResponse::new(session.id.share())
            .config_options(options_of(&server, &session))
            .available_commands(commands(&server, &session));
        cx.after(send_out_of_turn_updates(
            server,
            OpenedForClient::with_all_events_sent(session),
        ));
        Ok(response)
    })
}

/// Returns the commands for the response that opens a session, and records that they are sent.
fn commands(server: &Server, session: &SessionHandle) -> Vec<v2::AvailableCommand> {
    let list = session.commands();
    if let Ok(live) = server.live_session(session.id.as_str()) {
        live.commands.record(&list);
    }
    encode_event::encode_commands(&list)
}

/// Opens a session, and sends its history if the client requests that (`session/resume`).
pub(super) fn resume(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v2::ResumeSessionRequest,
) -> Reply<v2::ResumeSessionResponse> {
    let history = match request.replay_from {
        None => Ok(HistoryMode::Omit),
        Some(v2::ReplayFrom::Start(_)) => Ok(HistoryMode::Send),
        Some(_) => Err(RequestError::Invalid(
            "a session is replayed from its start, or not at all".into(),
        )),
    };
    let setup = setup_of!(request);
    let opened =
        history.and_then(|history| Ok((history, setup?.for_reopening(request.meta.as_ref()))));
    let opened = opened.map(|(history, setup)| {
        sessions::reopen(server, &cx, &request.session_id.0, setup, history)
    });
    let server = server.clone();
    Reply::later(async move {
        let opened = opened?.await?;
        let response = v2::ResumeSessionResponse::new()
            .config_options(options_of(&server, &opened.session))
            .available_commands(commands(&server, &opened.session));
        cx.after(send_out_of_turn_updates(server, opened));
        Ok(response)
    })
}

/// Creates a session with the history of another (`session/fork`).
pub(super) fn fork(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v2::ForkSessionRequest,
) -> Reply<v2::ForkSessionResponse> {
    let before = meta::member(request.meta.as_ref(), FORK_BEFORE).cloned();
    let setup = setup_of!(request);
    let session = setup.map(|setup| {
        let setup = setup.for_new_session(request.meta.as_ref());
        sessions::fork(server, &request.session_id.0, setup, before)
    });
    let server = server.clone();
    Reply::later(async move {
        let session = session?.await?;
        let response = v2::ForkSessionResponse::new(session.id.share())
            .config_options(options_of(&server, &session))
            .available_commands(commands(&server, &session));
        cx.after(send_out_of_turn_updates(
            server,
            OpenedForClient::with_all_events_sent(session),
        ));
        Ok(response)
    })
}

/// Lists the sessions in pages, newest first (`session/list`).
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

/// Cancels the session's turn (`session/cancel`).
pub(super) fn cancel(server: &Arc<Server>, notification: v2::CancelSessionNotification) {
    sessions::cancel(server, &notification.session_id.0);
}

/// Refuses to cancel a single call (`tool_call/cancel`).
pub(super) fn cancel_call(
    _: &Arc<Server>,
    _: RequestContext,
    _: v2::CancelToolCallRequest,
) -> Reply<v2::CancelToolCallResponse> {
    Reply::now(Err(refuse_single_cancel("call")))
}

/// Refuses to cancel a single terminal (`terminal/cancel`).
pub(super) fn cancel_terminal(
    _: &Arc<Server>,
    _: RequestContext,
    _: v2::CancelTerminalRequest,
) -> Reply<v2::CancelTerminalResponse> {
    Reply::now(Err(refuse_single_cancel("terminal")))
}

fn refuse_single_cancel(what: &str) -> protocol::rpc::Error {
    RequestError::Invalid(format!(
        "this {what} cannot be cancelled by itself; session/cancel stops the turn"
    ))
    .into()
}

fn session_setup(
    cwd: v2::AbsolutePath,
    additional_directories: Vec<v2::AbsolutePath>,
    servers: Vec<v2::McpServer>,
    system: Option<SystemPromptAddition>,
) -> Result<SessionSetup, RequestError> {
    let additional_directories: Vec<PathBuf> = additional_directories
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
        .map(|(n, server)| mcp_entry(n, server).map(Some));
    Ok(SessionSetup {
        cwd: cwd.into_inner(),
        additional_directories,
        servers: servers.collect::<Result<_, _>>()?,
        system,
        restrictions: Ok(Restrictions::default()),
        is_unprompted: false,
        awaits_lease: false,
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

/// Converts an MCP server to a settings entry. A transport that adjutant does not advertise is
/// refused.
fn mcp_entry(n: usize, server: v2::McpServer) -> Result<McpEntry, RequestError> {
    match server {
        v2::McpServer::Stdio(server) => {
            let program = server.command.into_inner().display().to_string();
            let environment = server
                .env
                .into_iter()
                .map(|variable| (variable.name, variable.value))
                .collect();
            let command = std::iter::once(program).chain(server.args).collect();
            Ok(sessions::stdio_server(server.name, command, environment))
        }
        v2::McpServer::Http(server) => {
            let headers = server
                .headers
                .into_iter()
                .map(|header| (header.name, header.value))
                .collect();
            Ok(sessions::http_server(
                server.name,
                server.url,
                headers,
                HttpKind::Streamable,
            ))
        }
        v2::McpServer::Acp(server) => Ok(sessions::client_server(server.name, &server.server_id.0)),
        _ => Err(RequestError::Invalid(format!(
            "mcpServers[{n}] is of a kind that was not offered; stdio, http and acp are"
        ))),
    }
}
