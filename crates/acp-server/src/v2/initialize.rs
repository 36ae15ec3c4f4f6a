//! The handshake of version 2, and logins.

use std::sync::Arc;

use protocol::acp::{InitializeV2, ProtocolVersion, v2};
use protocol::table::{Reply, RequestContext};

use super::requests::session_capabilities;
use crate::login::{self, KEYS_LOGIN, TERMINAL_LOGIN};
use crate::meta::{ALONE, ASKS_FOR_DETAILS, QUIET, SESSION_MODEL, member};
use crate::server::{Capabilities, Server};
use crate::tool_call_view::RawText;
use crate::view::DisplayCapabilities;
use tools::FileCapabilities;

/// Stores the capabilities of the client, and returns those of the agent (`initialize`). A later
/// handshake replaces the earlier one.
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
        display: DisplayCapabilities {
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
        is_unattended: member(client.meta.as_ref(), ALONE) == Some(&serde_json::Value::Bool(true)),
        hides_notices: member(client.meta.as_ref(), QUIET) == Some(&serde_json::Value::Bool(true)),
        asks_for_details: member(client.meta.as_ref(), ASKS_FOR_DETAILS)
            == Some(&serde_json::Value::Bool(true)),
        remembers_models: member(client.meta.as_ref(), SESSION_MODEL)
            != Some(&serde_json::Value::Bool(true)),
        runs_legacy_logins: false,
        may_miss_commands: false,
    });
    tracing::info!(
        "connected to {} {} in version 2",
        request.info.name,
        request.info.version
    );
    let mut response = agent_response(
        client
            .auth
            .as_ref()
            .is_some_and(|auth| auth.terminal.is_some()),
    );
    if !server.shared.account().is_allowed() {
        // They would be refused.
        response.capabilities.providers = None;
    }
    Reply::now(Ok(response))
}

/// Returns the agent's half of the handshake. The login in a terminal is offered if the client
/// `runs_terminal_logins`.
fn agent_response(runs_terminal_logins: bool) -> v2::InitializeResponse {
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
    let keys = v2::AuthMethodAgent::new(KEYS_LOGIN.id, KEYS_LOGIN.name)
        .description(KEYS_LOGIN.description.to_owned());
    let mut methods = vec![v2::AuthMethod::Agent(keys)];
    if runs_terminal_logins {
        let method = v2::AuthMethodTerminal::new(TERMINAL_LOGIN.id, TERMINAL_LOGIN.name);
        let method = method
            .description(TERMINAL_LOGIN.description.to_owned())
            .args(vec![login::LOGIN_ARGUMENT.to_owned()]);
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

/// Accepts a login (`auth/login`), immediately and any number of times.
pub(super) fn login(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v2::LoginAuthRequest,
) -> Reply<v2::LoginAuthResponse> {
    let result = login::log_in(server, &request.method_id.0);
    if result.is_ok() {
        cx.after(login::send_changed_accounts(server.clone()));
    }
    Reply::now(
        result
            .map(|()| v2::LoginAuthResponse::default())
            .map_err(Into::into),
    )
}

/// Deletes the stored keys and logins (`auth/logout`).
pub(super) fn logout(
    server: &Arc<Server>,
    cx: RequestContext,
    _: v2::LogoutAuthRequest,
) -> Reply<v2::LogoutAuthResponse> {
    let deleted = login::log_out(server);
    let server = server.clone();
    Reply::later(async move {
        deleted.await?;
        cx.after(login::send_changed_accounts(server));
        Ok(v2::LogoutAuthResponse::default())
    })
}
