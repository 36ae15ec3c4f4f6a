//! session/new, load, resume, fork, list, cancel.

use std::path::PathBuf;
use std::sync::Arc;

use protocol::acp::{LoadSession, NewSession, WithModels, v1};
use protocol::table::{Reply, RequestContext};

use super::options::choices;
use super::requests::{archive_filter, session_info, system_text};
use crate::meta::{self, BEFORE, Restrictions};
use crate::server::Server;
use crate::sessions::{self, HistoryMode, Reopened, SessionSetup, SystemWords, introduce};
use config::settings::McpEntry;

/// session/new.
pub(super) fn new(
    server: &Arc<Server>,
    cx: RequestContext,
    request: NewSession,
) -> Reply<WithModels<v1::NewSessionResponse>> {
    let NewSession(request) = request;
    let system = request.system_prompt.map(system_text);
    let place = place(
        request.cwd,
        request.additional_directories,
        &request.mcp_servers,
        system,
    );
    let session = sessions::create(server, place.fresh(request.meta.as_ref()));
    let server = server.clone();
    Reply::later(async move {
        let session = session.await?;
        let (modes, options, models) = choices(&server, &session);
        let response = v1::NewSessionResponse::new(session.id.share())
            .modes(modes)
            .config_options(options);
        cx.after(introduce(server, Reopened::new_session(session)));
        Ok(WithModels { response, models })
    })
}

/// session/load: sends the whole history before the response.
pub(super) fn load(
    server: &Arc<Server>,
    cx: RequestContext,
    request: LoadSession,
) -> Reply<WithModels<v1::LoadSessionResponse>> {
    let LoadSession(request) = request;
    let system = request.system_prompt.map(system_text);
    let place = place(
        request.cwd,
        request.additional_directories,
        &request.mcp_servers,
        system,
    );
    let opened = sessions::reopen(
        server,
        &cx,
        &request.session_id.0,
        place.again(request.meta.as_ref()),
        HistoryMode::Shown,
    );
    let server = server.clone();
    Reply::later(async move {
        let opened = opened.await?;
        let (modes, options, models) = choices(&server, &opened.session);
        cx.after(introduce(server, opened));
        let response = v1::LoadSessionResponse::new()
            .modes(modes)
            .config_options(options);
        Ok(WithModels { response, models })
    })
}

/// session/resume: opens a session without sending its history.
pub(super) fn resume(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v1::ResumeSessionRequest,
) -> Reply<WithModels<v1::ResumeSessionResponse>> {
    let system = request.system_prompt.map(system_text);
    let place = place(
        request.cwd,
        request.additional_directories,
        &request.mcp_servers,
        system,
    );
    let opened = sessions::reopen(
        server,
        &cx,
        &request.session_id.0,
        place.again(request.meta.as_ref()),
        HistoryMode::Known,
    );
    let server = server.clone();
    Reply::later(async move {
        let opened = opened.await?;
        let (modes, options, models) = choices(&server, &opened.session);
        cx.after(introduce(server, opened));
        let response = v1::ResumeSessionResponse::new()
            .modes(modes)
            .config_options(options);
        Ok(WithModels { response, models })
    })
}

/// session/fork: creates a session with the history of another.
pub(super) fn fork(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v1::ForkSessionRequest,
) -> Reply<WithModels<v1::ForkSessionResponse>> {
    let system = request.system_prompt.map(system_text);
    let place = place(
        request.cwd,
        request.additional_directories,
        &request.mcp_servers,
        system,
    );
    let before = meta::of_ours(request.meta.as_ref(), BEFORE).cloned();
    let session = sessions::fork(
        server,
        &request.session_id.0,
        place.fresh(request.meta.as_ref()),
        before,
    );
    let server = server.clone();
    Reply::later(async move {
        let session = session.await?;
        let (modes, options, models) = choices(&server, &session);
        let response = v1::ForkSessionResponse::new(session.id.share())
            .modes(modes)
            .config_options(options);
        cx.after(introduce(server, Reopened::new_session(session)));
        Ok(WithModels { response, models })
    })
}

/// session/list: newest first, in pages.
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

/// session/cancel. (`$/cancel_request` cancels the token of a request; `prompt.rs` treats it
/// alike.)
pub(super) fn cancel(server: &Arc<Server>, note: v1::CancelNotification) {
    sessions::cancel(server, &note.session_id.0);
}

fn place(
    cwd: PathBuf,
    extra: Vec<PathBuf>,
    servers: &[v1::McpServer],
    system: Option<SystemWords>,
) -> SessionSetup {
    SessionSetup {
        cwd,
        extra,
        servers: servers.iter().map(given).collect(),
        system,
        restrictions: Ok(Restrictions::default()),
        unsaid: false,
    }
}

/// Converts an MCP server to a settings entry; `None` for a kind that was not offered.
fn given(server: &v1::McpServer) -> Option<McpEntry> {
    let headers = |all: &[v1::HttpHeader]| {
        all.iter()
            .map(|one| (one.name.clone(), one.value.clone()))
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
                .map(|one| (one.name.clone(), one.value.clone()))
                .collect();
            Some(sessions::program(server.name.clone(), command, environment))
        }
        v1::McpServer::Http(server) => Some(sessions::remote(
            server.name.clone(),
            server.url.clone(),
            headers(&server.headers),
            false,
        )),
        v1::McpServer::Sse(server) => Some(sessions::remote(
            server.name.clone(),
            server.url.clone(),
            headers(&server.headers),
            true,
        )),
        v1::McpServer::Acp(server) => Some(sessions::in_editor(
            server.name.clone(),
            &server.server_id.0,
        )),
        _ => None,
    }
}
