//! The handlers of version 1 for `session/new`, `load`, `resume`, `fork`, `list` and `cancel`.

use std::path::PathBuf;
use std::sync::Arc;

use protocol::acp::{LoadSession, NewSession, WithModels, v1};
use protocol::table::{Reply, RequestContext};

use super::options::{EncodedOptions, options_of};
use super::requests::{archive_filter, decode_system_prompt, session_info};
use crate::meta::{self, FORK_BEFORE, Restrictions};
use crate::server::{HistoryMode, Server};
use crate::sessions::{
    self, HttpKind, OpenedForClient, SessionSetup, SystemPromptAddition, send_out_of_turn_updates,
};
use config::settings::McpEntry;

/// Returns the setup that a request to open a session describes. A macro, because ACP has a type
/// for each of these requests, with equal fields.
macro_rules! setup_of {
    ($request:ident) => {
        session_setup(
            $request.cwd,
            $request.additional_directories,
            &$request.mcp_servers,
            $request.system_prompt.map(decode_system_prompt),
        )
    };
}

/// Creates a session (`session/new`).
pub(super) fn new(
    server: &Arc<Server>,
    cx: RequestContext,
    request: NewSession,
) -> Reply<WithModels<v1::NewSessionResponse>> {
    let NewSession(request) = request;
    let setup = setup_of!(request);
    let session = sessions::create(server, setup.for_new_session(request.meta.as_ref()));
    let server = server.clone();
    Reply::later(async move {
        let session = session.await?;
        let EncodedOptions {
            modes,
            options,
            models,
        } = options_of(&server, &session);
        let response = v1::NewSessionResponse::new(session.id.share())
            .modes(modes)
            .config_options(options);
        cx.after(send_out_of_turn_updates(
            server,
            OpenedForClient::new_session(session),
        ));
        Ok(WithModels { response, models })
    })
}

/// Opens a session, and sends its whole history before the response (`session/load`).
pub(super) fn load(
    server: &Arc<Server>,
    cx: RequestContext,
    request: LoadSession,
) -> Reply<WithModels<v1::LoadSessionResponse>> {
    let LoadSession(request) = request;
    let setup = setup_of!(request);
    let opened = sessions::reopen(
        server,
        &cx,
        &request.session_id.0,
        setup.for_reopening(request.meta.as_ref()),
        HistoryMode::Send,
    );
    let server = server.clone();
    Reply::later(async move {
        let opened = opened.await?;
        let EncodedOptions {
            modes,
            options,
            models,
        } = options_of(&server, &opened.session);
        cx.after(send_out_of_turn_updates(server, opened));
        let response = v1::LoadSessionResponse::new()
            .modes(modes)
            .config_options(options);
        Ok(WithModels { response, models })
    })
}

/// Opens a session without sending its history (`session/resume`).
pub(super) fn resume(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v1::ResumeSessionRequest,
) -> Reply<WithModels<v1::ResumeSessionResponse>> {
    let setup = setup_of!(request);
    let opened = sessions::reopen(
        server,
        &cx,
        &request.session_id.0,
        setup.for_reopening(request.meta.as_ref()),
        HistoryMode::Omit,
    );
    let server = server.clone();
    Reply::later(async move {
        let opened = opened.await?;
        let EncodedOptions {
            modes,
            options,
            models,
        } = options_of(&server, &opened.session);
        cx.after(send_out_of_turn_updates(server, opened));
        let response = v1::ResumeSessionResponse::new()
            .modes(modes)
            .config_options(options);
        Ok(WithModels { response, models })
    })
}

/// Creates a session with the history of another (`session/fork`).
pub(super) fn fork(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v1::ForkSessionRequest,
) -> Reply<WithModels<v1::ForkSessionResponse>> {
    let setup = setup_of!(request);
    let before = meta::member(request.meta.as_ref(), FORK_BEFORE).cloned();
    let session = sessions::fork(
        server,
        &request.session_id.0,
        setup.for_new_session(request.meta.as_ref()),
        before,
    );
    let server = server.clone();
    Reply::later(async move {
        let session = session.await?;
        let EncodedOptions {
            modes,
            options,
            models,
        } = options_of(&server, &session);
        let response = v1::ForkSessionResponse::new(session.id.share())
            .modes(modes)
            .config_options(options);
        cx.after(send_out_of_turn_updates(
            server,
            OpenedForClient::new_session(session),
        ));
        Ok(WithModels { response, models })
    })
}

/// Lists the sessions in pages, newest first (`session/list`).
pub(super) fn list(
    server: &Arc<Server>,
    _: RequestContext,
    request: v1::ListSessionsRequest,
) -> Reply<v1::ListSessionsResponse> {
    let archived = archive_filter(request.archived.as_ref());
    let page = archived
        .map(|archived| sessions::list(server.clone(), request.cwd, archived, request.cursor));
    Reply::later(async move {
        let page = page?.await?;
        let response =
            v1::ListSessionsResponse::new(page.sessions.iter().map(session_info).collect());
        Ok(response.next_cursor(page.next).meta(page.meta))
    })
}

/// Cancels the session's turn. (`$/cancel_request` cancels one request; `prompt.rs` handles it in
/// the same way.)
pub(super) fn cancel(server: &Arc<Server>, notification: v1::CancelNotification) {
    sessions::cancel(server, &notification.session_id.0);
}

fn session_setup(
    cwd: PathBuf,
    additional_directories: Vec<PathBuf>,
    servers: &[v1::McpServer],
    system: Option<SystemPromptAddition>,
) -> SessionSetup {
    SessionSetup {
        cwd,
        additional_directories,
        servers: servers.iter().map(mcp_entry).collect(),
        system,
        // Read from `_meta` by `for_new_session` or `for_reopening`.
        restrictions: Ok(Restrictions::default()),
        is_unprompted: false,
        awaits_lease: false,
    }
}

/// Converts an MCP server to a settings entry; `None` for a transport that adjutant does not
/// advertise.
fn mcp_entry(server: &v1::McpServer) -> Option<McpEntry> {
    let headers = |all: &[v1::HttpHeader]| {
        all.iter()
            .map(|header| (header.name.clone(), header.value.clone()))
            .collect()
    };
    match server {
        v1::McpServer::Stdio(server) => {
            let command = std::iter::once(server.command.display().to_string())
                .chain(server.args.clone())
                .collect();
            let environment = server
                .env
                .iter()
                .map(|variable| (variable.name.clone(), variable.value.clone()))
                .collect();
            Some(sessions::stdio_server(
                server.name.clone(),
                command,
                environment,
            ))
        }
        v1::McpServer::Http(server) => Some(sessions::http_server(
            server.name.clone(),
            server.url.clone(),
            headers(&server.headers),
            HttpKind::Streamable,
        )),
        v1::McpServer::Sse(server) => Some(sessions::http_server(
            server.name.clone(),
            server.url.clone(),
            headers(&server.headers),
            HttpKind::Sse,
        )),
        v1::McpServer::Acp(server) => Some(sessions::client_server(
            server.name.clone(),
            &server.server_id.0,
        )),
        _ => None,
    }
}
