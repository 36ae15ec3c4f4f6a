//! The handshake. Answers from constants: nothing is loaded before it.

use std::sync::Arc;

use protocol::acp::{ProtocolVersion, v1};
use protocol::table::{Cx, Reply};

use super::error::Refusal;
use super::server::{Capabilities, Server};
use super::update::Shows;
use crate::tool::Files;

/// The one way to log in that every editor may offer: there is nothing to do in it. Keys come from
/// the environment and the configuration.
const LOGIN: &str = "adjutant-keys";

/// initialize.
pub fn initialize(server: &Arc<Server>, _: Cx, request: v1::InitializeRequest) -> Reply<v1::InitializeResponse> {
    let client = &request.client_capabilities;
    let said = |key: &str| client.meta.as_ref().and_then(|meta| meta.get(key)).and_then(serde_json::Value::as_bool);
    let session = client.session.as_ref();
    server.shake_hands(Capabilities {
        files: Files { read: client.fs.read_text_file, write: client.fs.write_text_file },
        shows: Shows {
            terminals: said("terminal_output") == Some(true),
            notices: session.is_some_and(|s| s.notices.is_some()),
            compaction: session.is_some_and(|s| s.compaction.is_some()),
        },
    });
    if let Some(info) = &request.client_info {
        tracing::info!("connected to {} {}", info.name, info.version);
    }
    Reply::now(Ok(answer()))
}

/// Our half of the handshake, the same for everyone: version 1 is the latest we speak.
pub fn answer() -> v1::InitializeResponse {
    let capabilities = v1::AgentCapabilities::new()
        .load_session(true)
        .prompt_capabilities(v1::PromptCapabilities::new().image(true).embedded_context(true))
        .session_capabilities(
            v1::SessionCapabilities::new()
                .list(v1::SessionListCapabilities::new())
                .resume(v1::SessionResumeCapabilities::new())
                .close(v1::SessionCloseCapabilities::new())
                .delete(v1::SessionDeleteCapabilities::new())
                .additional_directories(v1::SessionAdditionalDirectoriesCapabilities::new()),
        );
    let login = v1::AuthMethodAgent::new(LOGIN, "Keys from the environment or configuration")
        .description("Set the provider's key, such as ANTHROPIC_API_KEY, before the editor starts. Nothing is needed for the offline model and local servers.".to_owned());
    v1::InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(capabilities)
        .auth_methods(vec![v1::AuthMethod::Agent(login)])
        .agent_info(v1::Implementation::new("adjutant", env!("CARGO_PKG_VERSION")).title("adjutant".to_owned()))
}

/// authenticate: at once, and as often as an editor likes.
pub fn authenticate(_: &Arc<Server>, _: Cx, request: v1::AuthenticateRequest) -> Reply<v1::AuthenticateResponse> {
    Reply::now(if &*request.method_id.0 == LOGIN {
        Ok(v1::AuthenticateResponse::default())
    } else {
        Err(Refusal::Invalid(format!("there is no such method; the only one is \"{LOGIN}\"")).into())
    })
}
