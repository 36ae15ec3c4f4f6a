//! The handshake. Answers from constants: nothing is loaded before it.

use std::sync::Arc;

use protocol::acp::{ProtocolVersion, v1};
use protocol::table::{Cx, Reply};

use super::error::Refusal;
use super::prompt::of_ours;
use super::server::{Capabilities, Server};
use super::update::DisplayCapabilities;
use crate::model::auth::Auth;
use crate::tool::FileCapabilities;

/// What a client of ours says where nobody is there to answer questions.
pub const ALONE: &str = "alone";

/// The one way to log in that every editor may offer: there is nothing to do in it. Keys come from
/// the environment and the configuration.
const LOGIN: &str = "adjutant-keys";

/// initialize.
pub fn initialize(server: &Arc<Server>, _: Cx, request: v1::InitializeRequest) -> Reply<v1::InitializeResponse> {
    let client = &request.client_capabilities;
    let said = |key: &str| client.meta.as_ref().and_then(|meta| meta.get(key)).and_then(serde_json::Value::as_bool);
    let session = client.session.as_ref();
    let terminal = client.auth.terminal;
    let legacy = !terminal && said("terminal-auth") == Some(true);
    server.shake_hands(Capabilities {
        runs_logins: legacy,
        forms: client.elicitation.as_ref().is_some_and(|elicitation| elicitation.form.is_some()),
        alone: of_ours(client.meta.as_ref(), ALONE) == Some(&serde_json::Value::Bool(true)),
        files: FileCapabilities { read: client.fs.read_text_file, write: client.fs.write_text_file },
        shows: DisplayCapabilities {
            terminals: said("terminal_output") == Some(true),
            notices: session.is_some_and(|s| s.notices.is_some()),
            compaction: session.is_some_and(|s| s.compaction.is_some()),
            subagents: client.subagents.is_some(),
            switches: session.is_some_and(|s| s.config_options.as_ref().is_some_and(|o| o.boolean.is_some())),
        },
    });
    if let Some(info) = &request.client_info {
        tracing::info!("connected to {} {}", info.name, info.version);
    }
    let program = server.shared.environment.program.as_ref().map(|program| program.display().to_string());
    Reply::now(Ok(answer(terminal, legacy, program.as_deref().unwrap_or("adjutant"))))
}

/// Our half of the handshake: version 1 is the latest we speak. `terminal`: the editor can run a
/// login in a terminal; `legacy`: it has learnt so before the protocol knew of it, and is told which `program`
/// to run.
pub fn answer(terminal: bool, legacy: bool, program: &str) -> v1::InitializeResponse {
    let capabilities = v1::AgentCapabilities::new()
        .load_session(true)
        .prompt_capabilities(v1::PromptCapabilities::new().image(true).embedded_context(true))
        .mcp_capabilities(v1::McpCapabilities::new().http(true).sse(true))
        .session_capabilities(
            v1::SessionCapabilities::new()
                .list(v1::SessionListCapabilities::new())
                .resume(v1::SessionResumeCapabilities::new())
                .close(v1::SessionCloseCapabilities::new())
                .delete(v1::SessionDeleteCapabilities::new())
                .fork(v1::SessionForkCapabilities::new())
                .title(v1::SessionTitleCapabilities::new())
                .status(v1::SessionStatusCapabilities::new())
                .additional_directories(v1::SessionAdditionalDirectoriesCapabilities::new()),
        )
        .auth(v1::AgentAuthCapabilities::new().logout(v1::LogoutCapabilities::new()));
    let login = v1::AuthMethodAgent::new(LOGIN, "Keys from the environment or configuration")
        .description("Set the provider's key, such as ANTHROPIC_API_KEY, before the editor starts. Nothing is needed for the offline model and local servers.".to_owned());
    let mut methods = vec![v1::AuthMethod::Agent(login)];
    let (name, words) =
        ("Log in at the terminal", "Keeps a provider's key, or logs in with a browser where the provider can.");
    if terminal {
        let method = v1::AuthMethodTerminal::new(TERMINAL, name).description(words.to_owned());
        methods.push(v1::AuthMethod::Terminal(method.args(vec!["--login".to_owned()])));
    } else if legacy {
        let how = serde_json::json!({ "command": program, "args": ["auth", "login"], "label": name });
        let meta = serde_json::Map::from_iter([("terminal-auth".to_owned(), how)]);
        let method = v1::AuthMethodAgent::new(TERMINAL, name).description(words.to_owned()).meta(meta);
        methods.push(v1::AuthMethod::Agent(method));
    }
    v1::InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(capabilities)
        .auth_methods(methods)
        .agent_info(v1::Implementation::new("adjutant", env!("CARGO_PKG_VERSION")).title("adjutant".to_owned()))
}

/// The login that the editor runs in a terminal: our command line with an argument appended.
const TERMINAL: &str = "adjutant-terminal";

/// authenticate: at once, and as often as an editor likes.
pub fn authenticate(server: &Arc<Server>, _: Cx, request: v1::AuthenticateRequest) -> Reply<v1::AuthenticateResponse> {
    let method = &*request.method_id.0;
    Reply::now(if method == LOGIN || method == TERMINAL && server.capabilities().runs_logins {
        Ok(v1::AuthenticateResponse::default())
    } else {
        Err(Refusal::Invalid(format!("there is no such method; the only one that can be asked for is \"{LOGIN}\""))
            .into())
    })
}

/// logout: forgets what adjutant itself keeps. Keys of variables, of the configuration and of
/// OpenCode are not ours to forget.
pub fn logout(server: &Arc<Server>, _: Cx, _: v1::LogoutRequest) -> Reply<v1::LogoutResponse> {
    let environment = server.shared.environment.clone();
    Reply::later(async move {
        let forgotten = tokio::task::spawn_blocking(move || Auth::forget_all(&environment)).await;
        let failed = |e: std::io::Error| Refusal::Failed {
            message: format!("What is kept could not be forgotten: {e}."),
            advice: Some("`adjutant auth list` says where keys are.".into()),
        };
        let forgotten = forgotten.map_err(std::io::Error::other).and_then(|done| done).map_err(failed);
        forgotten.map(|()| v1::LogoutResponse::default()).map_err(Into::into)
    })
}
