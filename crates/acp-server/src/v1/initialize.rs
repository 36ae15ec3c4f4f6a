//! The handshake of version 1 (`initialize`), and logins. All responses to the handshake are constants;
//! nothing is loaded before it.

use std::sync::Arc;

use protocol::acp::{Initialize, ProtocolVersion, v1};
use protocol::table::{Reply, RequestContext};

use super::requests::session_capabilities;
use crate::login::{self, KEYS_LOGIN, LoginMethod, TERMINAL_LOGIN};
use crate::meta::{ALONE, ASKS_FOR_DETAILS, QUIET, SESSION_MODEL, member};
use crate::server::{Capabilities, Server};
use crate::tool_call_view::RawText;
use crate::view::DisplayCapabilities;
use tools::FileCapabilities;

/// Stores the capabilities of the client, and returns those of the agent (`initialize`).
pub(super) fn initialize(
    server: &Arc<Server>,
    _: RequestContext,
    Initialize(request): Initialize,
) -> Reply<v1::InitializeResponse> {
    let client = &request.client_capabilities;
    let meta_flag = |key: &str| {
        client
            .meta
            .as_ref()
            .and_then(|meta| meta.get(key))
            .and_then(serde_json::Value::as_bool)
    };
    let session = client.session.as_ref();
    let terminal_logins = if client.auth.terminal {
        TerminalLogins::Standard
    } else if meta_flag("terminal-auth") == Some(true) {
        TerminalLogins::Legacy
    } else {
        TerminalLogins::None
    };
    server.set_capabilities(Capabilities {
        runs_legacy_logins: terminal_logins == TerminalLogins::Legacy,
        may_miss_commands: true,
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
        files: FileCapabilities {
            read: client.fs.read_text_file,
            write: client.fs.write_text_file,
        },
        display: DisplayCapabilities {
            terminals: meta_flag("terminal_output") == Some(true),
            notices: session.is_some_and(|s| s.notices.is_some()),
            compaction: session.is_some_and(|s| s.compaction.is_some()),
            subagents: client.subagents.is_some(),
            plans: client.plan.is_some(),
            raw_text: request
                .client_info
                .as_ref()
                .map(|info| RawText::of_client(&info.name))
                .unwrap_or_default(),
            boolean_options: session.is_some_and(|s| {
                s.config_options
                    .as_ref()
                    .is_some_and(|o| o.boolean.is_some())
            }),
        },
    });
    if let Some(info) = &request.client_info {
        tracing::info!("connected to {} {}", info.name, info.version);
    }
    let program = server
        .shared
        .environment
        .program
        .as_ref()
        .map(|program| program.display().to_string());
    let mut response = agent_response(terminal_logins, program.as_deref().unwrap_or("adjutant"));
    if !server.shared.account().is_allowed() {
        // They would be refused.
        response.agent_capabilities.auth.logout = None;
        response.agent_capabilities.providers = None;
    }
    Reply::now(Ok(response))
}

/// A client's way to run a login in a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TerminalLogins {
    None,
    /// The protocol's own.
    Standard,
    /// The convention that preceded the protocol's. The client needs the program to run.
    Legacy,
}

/// Returns the agent's half of the handshake. `program` is the path of adjutant.
fn agent_response(terminal_logins: TerminalLogins, program: &str) -> v1::InitializeResponse {
    let capabilities = v1::AgentCapabilities::new()
        .load_session(true)
        .prompt_capabilities(
            v1::PromptCapabilities::new()
                .image(true)
                .audio(true)
                .embedded_context(true),
        )
        .mcp_capabilities(v1::McpCapabilities::new().http(true).sse(true).acp(true))
        .session_capabilities(
            session_capabilities()
                .list(v1::SessionListCapabilities::new())
                .resume(v1::SessionResumeCapabilities::new())
                .close(v1::SessionCloseCapabilities::new()),
        )
        .providers(v1::ProvidersCapabilities::new())
        .auth(
            v1::AgentAuthCapabilities::new()
                .logout(v1::LogoutCapabilities::new())
                .status(v1::AuthStatusCapabilities::new()),
        );
    let keys = v1::AuthMethodAgent::new(KEYS_LOGIN.id, KEYS_LOGIN.name)
        .description(KEYS_LOGIN.description.to_owned());
    let mut methods = vec![v1::AuthMethod::Agent(keys)];
    let LoginMethod {
        id,
        name,
        description,
    } = TERMINAL_LOGIN;
    match terminal_logins {
        TerminalLogins::None => {}
        TerminalLogins::Standard => {
            let method = v1::AuthMethodTerminal::new(id, name)
                .description(description.to_owned())
                .args(vec![login::LOGIN_ARGUMENT.to_owned()]);
            methods.push(v1::AuthMethod::Terminal(method));
        }
        TerminalLogins::Legacy => {
            let command =
                serde_json::json!({ "command": program, "args": ["auth", "login"], "label": name });
            let meta = serde_json::Map::from_iter([("terminal-auth".to_owned(), command)]);
            let method = v1::AuthMethodAgent::new(id, name)
                .description(description.to_owned())
                .meta(meta);
            methods.push(v1::AuthMethod::Agent(method));
        }
    }
    v1::InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(capabilities)
        .auth_methods(methods)
        .agent_info(
            v1::Implementation::new("adjutant", env!("CARGO_PKG_VERSION"))
                .title("adjutant".to_owned()),
        )
}

/// Accepts a login (`authenticate`), immediately and any number of times.
pub(super) fn authenticate(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v1::AuthenticateRequest,
) -> Reply<v1::AuthenticateResponse> {
    let result = login::log_in(server, &request.method_id.0);
    if result.is_ok() {
        cx.after(login::send_changed_accounts(server.clone()));
    }
    Reply::now(
        result
            .map(|()| v1::AuthenticateResponse::default())
            .map_err(Into::into),
    )
}

/// Deletes the stored keys and logins (`logout`).
pub(super) fn logout(
    server: &Arc<Server>,
    cx: RequestContext,
    _: v1::LogoutRequest,
) -> Reply<v1::LogoutResponse> {
    let deleted = login::log_out(server);
    let server = server.clone();
    Reply::later(async move {
        deleted.await?;
        cx.after(login::send_changed_accounts(server));
        Ok(v1::LogoutResponse::default())
    })
}
