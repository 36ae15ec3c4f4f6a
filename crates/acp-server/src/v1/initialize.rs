//! The handshake. All answers are constants, and nothing is loaded before it.

use std::sync::Arc;

use protocol::acp::{Initialize, ProtocolVersion, v1};
use protocol::table::{Reply, RequestContext};

use super::requests::session_capabilities;
use crate::login::{self, AT_THE_TERMINAL, KEYS, LoginMethod};
use crate::meta::{ALONE, QUIET, SESSION_MODEL, member};
use crate::server::{Capabilities, Server};
use crate::tool_call_view::RawText;
use crate::view::DisplayCapabilities;
use tools::FileCapabilities;

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
    let terminal = client.auth.terminal;
    let legacy = !terminal && meta_flag("terminal-auth") == Some(true);
    server.set_capabilities(Capabilities {
        runs_logins: legacy,
        misses_commands: true,
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
        files: FileCapabilities {
            read: client.fs.read_text_file,
            write: client.fs.write_text_file,
        },
        shows: DisplayCapabilities {
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
    let mut answer = answer(terminal, legacy, program.as_deref().unwrap_or("adjutant"));
    if !server.shared.account().is_allowed() {
        // They would be refused.
        answer.agent_capabilities.auth.logout = None;
        answer.agent_capabilities.providers = None;
    }
    Reply::now(Ok(answer))
}

/// Returns the agent's half of the handshake. `terminal`: the client can run a login in a terminal.
/// `legacy`: it does so by the convention that preceded the protocol's, and needs the `program` to
/// run.
fn answer(terminal: bool, legacy: bool, program: &str) -> v1::InitializeResponse {
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
    let keys =
        v1::AuthMethodAgent::new(KEYS.id, KEYS.name).description(KEYS.description.to_owned());
    let mut methods = vec![v1::AuthMethod::Agent(keys)];
    let LoginMethod {
        id,
        name,
        description,
    } = AT_THE_TERMINAL;
    if terminal {
        let method = v1::AuthMethodTerminal::new(id, name).description(description.to_owned());
        methods.push(v1::AuthMethod::Terminal(
            method.args(vec![login::ARGUMENT.to_owned()]),
        ));
    } else if legacy {
        let how =
            serde_json::json!({ "command": program, "args": ["auth", "login"], "label": name });
        let meta = serde_json::Map::from_iter([("terminal-auth".to_owned(), how)]);
        let method = v1::AuthMethodAgent::new(id, name)
            .description(description.to_owned())
            .meta(meta);
        methods.push(v1::AuthMethod::Agent(method));
    }
    v1::InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(capabilities)
        .auth_methods(methods)
        .agent_info(
            v1::Implementation::new("adjutant", env!("CARGO_PKG_VERSION"))
                .title("adjutant".to_owned()),
        )
}

/// authenticate: succeeds immediately, any number of times.
pub(super) fn authenticate(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v1::AuthenticateRequest,
) -> Reply<v1::AuthenticateResponse> {
    let known = login::log_in(server, &request.method_id.0);
    if known.is_ok() {
        cx.after(login::update(server.clone()));
    }
    Reply::now(
        known
            .map(|()| v1::AuthenticateResponse::default())
            .map_err(Into::into),
    )
}

pub(super) fn logout(
    server: &Arc<Server>,
    cx: RequestContext,
    _: v1::LogoutRequest,
) -> Reply<v1::LogoutResponse> {
    let forgotten = login::log_out(server);
    let server = server.clone();
    Reply::later(async move {
        forgotten.await?;
        cx.after(login::update(server));
        Ok(v1::LogoutResponse::default())
    })
}
