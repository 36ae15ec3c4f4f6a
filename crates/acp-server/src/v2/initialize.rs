//! The handshake of version 2, and logins.

use std::sync::Arc;

use protocol::acp::{InitializeV2, ProtocolVersion, v2};
use protocol::table::{Reply, RequestContext};

use super::requests::session_capabilities;
use crate::login::{self, AT_THE_TERMINAL, KEYS};
use crate::meta::{ALONE, QUIET, SESSION_MODEL, member};
use crate::server::{Capabilities, Server};
use crate::tool_call_view::RawText;
use crate::view::DisplayCapabilities;
use tools::FileCapabilities;

/// initialize. A later handshake replaces the earlier one.
pub(super) fn initialize(
    server: &Arc<Server>,
    _: RequestContext,
    request: InitializeV2,
) -> Reply<v2::InitializeResponse> {
    let InitializeV2(request) = request;
    let client = &request.capabilities;
    server.replace_capabilities(Capabilities {
        files: FileCapabilities {
            read: false,
            write: false,
        },
        // All of these are part of the protocol, and a client ignores the updates that it does not
        // know.
        shows: DisplayCapabilities {
            terminals: true,
            notices: true,
            compaction: true,
            subagents: true,
            plans: true,
            boolean_options: true,
            raw_text: RawText::default(),
        },
        forms: client
            .elicitation
            .as_ref()
            .is_some_and(|elicitation| elicitation.form.is_some()),
        urls: client
            .elicitation
            .as_ref()
            .is_some_and(|elicitation| elicitation.url.is_some()),
        alone: member(client.meta.as_ref(), ALONE) == Some(&serde_json::Value::Bool(true)),
        quiet: member(client.meta.as_ref(), QUIET) == Some(&serde_json::Value::Bool(true)),
        remembers_models: member(client.meta.as_ref(), SESSION_MODEL)
            != Some(&serde_json::Value::Bool(true)),
        runs_logins: false,
        misses_commands: false,
    });
    tracing::info!(
        "connected to {} {} in version 2",
        request.info.name,
        request.info.version
    );
    let mut answer = answer(
        client
            .auth
            .as_ref()
            .is_some_and(|auth| auth.terminal.is_some()),
    );
    if !server.shared.account().is_allowed() {
        // They would be refused.
        answer.capabilities.providers = None;
    }
    Reply::now(Ok(answer))
}

/// Returns the agent's half of the handshake. `terminal`: the client can run a login in a terminal.
fn answer(terminal: bool) -> v2::InitializeResponse {
    let prompt = v2::PromptCapabilities::new()
        .image(v2::PromptImageCapabilities::new())
        .audio(v2::PromptAudioCapabilities::new())
        .embedded_context(v2::PromptEmbeddedContextCapabilities::new());
    let session = session_capabilities().prompt(prompt).mcp(
        v2::McpCapabilities::new()
            .stdio(v2::McpStdioCapabilities::new())
            .http(v2::McpHttpCapabilities::new())
            .acp(v2::McpAcpCapabilities::new()),
    );
    let keys =
        v2::AuthMethodAgent::new(KEYS.id, KEYS.name).description(KEYS.description.to_owned());
    let mut methods = vec![v2::AuthMethod::Agent(keys)];
    if terminal {
        let method = v2::AuthMethodTerminal::new(AT_THE_TERMINAL.id, AT_THE_TERMINAL.name);
        let method = method
            .description(AT_THE_TERMINAL.description.to_owned())
            .args(vec![login::ARGUMENT.to_owned()]);
        methods.push(v2::AuthMethod::Terminal(method));
    }
    let info =
        v2::Implementation::new("adjutant", env!("CARGO_PKG_VERSION")).title("adjutant".to_owned());
    v2::InitializeResponse::new(ProtocolVersion::V2, info)
        .capabilities(
            v2::AgentCapabilities::new()
                .session(session)
                .providers(v2::ProvidersCapabilities::new())
                .auth(v2::AgentAuthCapabilities::new().status(v2::AuthStatusCapabilities::new())),
        )
        .auth_methods(methods)
}

/// auth/login: succeeds immediately, any number of times.
pub(super) fn login(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v2::LoginAuthRequest,
) -> Reply<v2::LoginAuthResponse> {
    let known = login::log_in(server, &request.method_id.0);
    if known.is_ok() {
        cx.after(login::update(server.clone()));
    }
    Reply::now(
        known
            .map(|()| v2::LoginAuthResponse::default())
            .map_err(Into::into),
    )
}

/// auth/logout.
pub(super) fn logout(
    server: &Arc<Server>,
    cx: RequestContext,
    _: v2::LogoutAuthRequest,
) -> Reply<v2::LogoutAuthResponse> {
    let forgotten = login::log_out(server);
    let server = server.clone();
    Reply::later(async move {
        forgotten.await?;
        cx.after(login::update(server));
        Ok(v2::LogoutAuthResponse::default())
    })
}
