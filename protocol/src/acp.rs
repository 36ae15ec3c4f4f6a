//! The Agent Client Protocol: its types (generated from the specification, re-exported as [`v1`]
//! and [`v2`]), its method names bound to them, and the list of methods that adjutant serves.
//!
//! The schema crate often has breaking releases, so no other module names it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use agent_client_protocol_schema::{IntoOption, MaybeUndefined, ProtocolVersion};
pub use agent_client_protocol_schema::{v1, v2};

#[cfg(test)]
use self::tests::Support;
use crate::large_texts::{self, Divided};

/// Cancels a request, in both directions. The read loop handles it, so it is not in a table.
pub const CANCEL_REQUEST: &str = "$/cancel_request";

/// The params of a method.
pub trait Method {
    /// The name of the method in messages.
    const NAME: &'static str;
    /// The type of the result; `()` for notifications.
    type Response;
}

/// Binds each method of a version to its params and its response, with its support unless it is
/// served. A test generates the table of methods from the list.
macro_rules! bind {
    ($list:ident { $($name:literal $params:ty => $response:ty $(, $support:expr)?;)* }) => {
        $(impl Method for $params { const NAME: &'static str = $name; type Response = $response; })*

        #[cfg(test)]
        const $list: &[(&str, Support)] = &[$(($name, bind!(@ $($support)?))),*];
    };
    (@) => { Support::Served };
    (@ $support:expr) => { $support };
}

bind! {
    VERSION_1 {
        "initialize" Initialize => v1::InitializeResponse;
        "authenticate" v1::AuthenticateRequest => v1::AuthenticateResponse;
        "logout" v1::LogoutRequest => v1::LogoutResponse;
        "session/new" NewSession => WithModels<v1::NewSessionResponse>;
        "session/load" LoadSession => WithModels<v1::LoadSessionResponse>;
        "session/resume" v1::ResumeSessionRequest => WithModels<v1::ResumeSessionResponse>;
        "session/list" v1::ListSessionsRequest => v1::ListSessionsResponse;
        "session/close" v1::CloseSessionRequest => v1::CloseSessionResponse;
        "session/delete" v1::DeleteSessionRequest => v1::DeleteSessionResponse;
        "session/fork" v1::ForkSessionRequest => WithModels<v1::ForkSessionResponse>;
        "session/set_title" v1::SetSessionTitleRequest => v1::SetSessionTitleResponse;
        "session/status" v1::SessionStatusRequest => v1::SessionStatusResponse;
        "session/archive" v1::ArchiveSessionRequest => v1::ArchiveSessionResponse;
        "session/unarchive" v1::UnarchiveSessionRequest => v1::UnarchiveSessionResponse;
        "auth/status" v1::AuthStatusRequest => v1::AuthStatusResponse;
        "providers/list" v1::ListProvidersRequest => v1::ListProvidersResponse;
        "providers/set" v1::SetProviderRequest => v1::SetProviderResponse;
        "providers/disable" v1::DisableProviderRequest => v1::DisableProviderResponse;
        "session/set_mode" v1::SetSessionModeRequest => v1::SetSessionModeResponse;
        "session/set_config_option" v1::SetSessionConfigOptionRequest => v1::SetSessionConfigOptionResponse;
        "session/set_model" SetModel => Empty;
        "session/prompt" Prompt => v1::PromptResponse;
        "session/cancel" v1::CancelNotification => ();
        "mcp/message" v1::MessageMcpNotification => ();

        "auth/status_update" v1::AuthStatusUpdateNotification => (), Support::CalledIfAsked("auth/status");
        "session/update" v1::SessionNotification => (), Support::Called;
        "session/request_permission" v1::RequestPermissionRequest => v1::RequestPermissionResponse, Support::Called;
        "elicitation/create" v1::CreateElicitationRequest => v1::CreateElicitationResponse, Support::CalledIfDeclared;
        "fs/read_text_file" v1::ReadTextFileRequest => v1::ReadTextFileResponse, Support::CalledIfDeclared;
        "fs/write_text_file" v1::WriteTextFileRequest => v1::WriteTextFileResponse, Support::CalledIfDeclared;
        "mcp/message" v1::MessageMcpRequest => v1::MessageMcpResponse, Support::CalledIfGiven;
    }
}

bind! {
    VERSION_2 {
        "initialize" InitializeV2 => v2::InitializeResponse;
        "auth/login" v2::LoginAuthRequest => v2::LoginAuthResponse;
        "auth/logout" v2::LogoutAuthRequest => v2::LogoutAuthResponse;
        "session/new" v2::NewSessionRequest => v2::NewSessionResponse;
        "session/resume" v2::ResumeSessionRequest => v2::ResumeSessionResponse;
        "session/list" v2::ListSessionsRequest => v2::ListSessionsResponse;
        "session/close" v2::CloseSessionRequest => v2::CloseSessionResponse;
        "session/delete" v2::DeleteSessionRequest => v2::DeleteSessionResponse;
        "session/fork" v2::ForkSessionRequest => v2::ForkSessionResponse;
        "session/set_title" v2::SetSessionTitleRequest => v2::SetSessionTitleResponse;
        "session/status" v2::SessionStatusRequest => v2::SessionStatusResponse;
        "session/archive" v2::ArchiveSessionRequest => v2::ArchiveSessionResponse;
        "session/unarchive" v2::UnarchiveSessionRequest => v2::UnarchiveSessionResponse;
        "auth/status" v2::AuthStatusRequest => v2::AuthStatusResponse;
        "providers/list" v2::ListProvidersRequest => v2::ListProvidersResponse;
        "providers/set" v2::SetProviderRequest => v2::SetProviderResponse;
        "providers/disable" v2::DisableProviderRequest => v2::DisableProviderResponse;
        "session/set_config_option" v2::SetSessionConfigOptionRequest => v2::SetSessionConfigOptionResponse;
        "session/prompt" PromptV2 => v2::PromptResponse;
        "session/cancel" v2::CancelSessionNotification => ();
        "mcp/message" v2::MessageMcpNotification => ();
        "tool_call/cancel" v2::CancelToolCallRequest => v2::CancelToolCallResponse,
            Support::Refused("no call is offered for it; session/cancel stops the turn");
        "terminal/cancel" v2::CancelTerminalRequest => v2::CancelTerminalResponse,
            Support::Refused("no terminal is offered for it; session/cancel stops the turn");

        "auth/status_update" v2::AuthStatusUpdateNotification => (), Support::CalledIfAsked("auth/status");
        "session/update" v2::UpdateSessionNotification => (), Support::Called;
        "session/request_permission" v2::RequestPermissionRequest => v2::RequestPermissionResponse, Support::Called;
        "elicitation/create" v2::CreateElicitationRequest => v2::CreateElicitationResponse, Support::CalledIfDeclared;
    }
}

/// The params of `initialize` in version 1. A client that would prefer a later version uses
/// different names for some members.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Initialize(pub v1::InitializeRequest);

impl<'de> Deserialize<'de> for Initialize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let text = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
        let oldest = with_oldest_version(text.get());
        let text = oldest.as_deref().unwrap_or(text.get());
        let mut request: v1::InitializeRequest = read(text).map_err(D::Error::custom)?;
        if request.protocol_version > ProtocolVersion::V1 {
            let params: serde_json::Value = serde_json::from_str(text).map_err(D::Error::custom)?;
            if request.client_info.is_none() {
                // Invalid client information is ignored, because it is only logged.
                request.client_info = v1::Implementation::deserialize(&params["info"]).ok();
            }
            if params.get("clientCapabilities").is_none() && params["capabilities"].is_object() {
                let capabilities =
                    v1::ClientCapabilities::deserialize(&to_version_1(&params["capabilities"]));
                request.client_capabilities = capabilities.unwrap_or_default();
            }
        }
        Ok(Self(request))
    }
}

/// Returns params whose version is a text, as clients from before version 1 send it, with the
/// oldest version instead.
fn with_oldest_version(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct TextVersion {
        #[serde(rename = "protocolVersion")]
        _version: String,
    }
    serde_json::from_str::<TextVersion>(text).ok()?;
    let mut params: serde_json::Value = serde_json::from_str(text).ok()?;
    // serde also reads a list as the members of an object.
    let members = params.as_object_mut()?;
    members.insert("protocolVersion".to_owned(), 0.into());
    Some(params.to_string())
}

/// Parses a message. The error contains the path of the member that does not fit.
fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text)
        .map_err(|e| crate::decode::misfit::<T>(text).unwrap_or_else(|| e.to_string()))
}

/// Translates capabilities of version 2 to version 1. Version 2 has no file or terminal
/// capabilities.
fn to_version_1(capabilities: &serde_json::Value) -> serde_json::Value {
    let terminal = capabilities["auth"]["terminal"].is_object();
    let mut out = serde_json::json!({
        "auth": { "terminal": terminal },
        "session": { "configOptions": { "boolean": {} } },
    });
    for name in ["elicitation", "_meta"] {
        if !capabilities[name].is_null() {
            out[name] = capabilities[name].clone();
        }
    }
    out
}

/// The params of `initialize` in version 2. If the client requests a later version, members that do
/// not fit are left out.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct InitializeV2(pub v2::InitializeRequest);

impl<'de> Deserialize<'de> for InitializeV2 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let mut params = serde_json::Map::deserialize(deserializer)?;
        if params
            .get("protocolVersion")
            .and_then(serde_json::Value::as_u64)
            .is_some_and(|version| version > 2)
        {
            let unknown = || v2::Implementation::new("unknown", "unknown");
            let info = params
                .get("info")
                .and_then(|info| v2::Implementation::deserialize(info).ok());
            params.insert(
                "info".into(),
                serde_json::to_value(info.unwrap_or_else(unknown)).map_err(D::Error::custom)?,
            );
            let fits =
                |value: &serde_json::Value| v2::ClientCapabilities::deserialize(value).is_ok();
            if !params.get("capabilities").is_none_or(fits) {
                params.remove("capabilities");
            }
        }
        read(&serde_json::Value::Object(params).to_string())
            .map(Self)
            .map_err(D::Error::custom)
    }
}

/// The params of `session/set_model`, which was never stable and is no longer in the schema. Some
/// clients still call it right after `session/new`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetModel {
    pub session_id: v1::SessionId,
    /// The model's id, as in the config option `model`.
    pub model_id: String,
}

/// A response that opens a session, with the models in the form that preceded the config option
/// `model`. It is no longer in the schema; some clients read nothing else.
#[derive(Debug, Clone, Serialize)]
pub struct WithModels<T> {
    #[serde(flatten)]
    pub response: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<SessionModels>,
}

/// Written by hand: the types of responses that may be `null` cannot be read by `flatten`.
impl<'de, T: serde::de::DeserializeOwned> Deserialize<'de> for WithModels<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let mut value = serde_json::Value::deserialize(deserializer)?;
        let members = value.as_object_mut();
        let models = members
            .and_then(|members| members.remove("models"))
            .unwrap_or_default();
        Ok(Self {
            models: serde_json::from_value(models).map_err(D::Error::custom)?,
            response: serde_json::from_value(value).map_err(D::Error::custom)?,
        })
    }
}

/// The models of a session, and the current one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionModels {
    pub current_model_id: String,
    pub available_models: Vec<SessionModel>,
}

/// A model that `session/set_model` accepts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionModel {
    pub model_id: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// An empty result: `{}`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Empty {}

/// The params of `session/new`. Some clients omit `mcpServers`, which the schema requires.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct NewSession(pub v1::NewSessionRequest);

/// The params of `session/load`, as lenient as [`NewSession`].
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct LoadSession(pub v1::LoadSessionRequest);

impl<'de> Deserialize<'de> for NewSession {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        with_servers(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for LoadSession {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        with_servers(deserializer).map(Self)
    }
}

/// The params of `session/prompt`. A large text takes no more memory than its own while it is
/// decoded.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Prompt(pub v1::PromptRequest);

/// The params of `session/prompt` in version 2, decoded like [`Prompt`].
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct PromptV2(pub v2::PromptRequest);

impl<'de> Deserialize<'de> for Prompt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        prompt(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for PromptV2 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        prompt(deserializer).map(Self)
    }
}

/// The params of a prompt whose texts can be set after the rest is decoded.
trait PromptParams: serde::de::DeserializeOwned {
    /// Sets the text of a block, if it is a text.
    fn set_text(&mut self, at: usize, text: String);
}

impl PromptParams for v1::PromptRequest {
    fn set_text(&mut self, at: usize, text: String) {
        if let Some(v1::ContentBlock::Text(content)) = self.prompt.get_mut(at) {
            content.text = text;
        }
    }
}

impl PromptParams for v2::PromptRequest {
    fn set_text(&mut self, at: usize, text: String) {
        if let Some(v2::ContentBlock::Text(content)) = self.prompt.get_mut(at) {
            content.text = text;
        }
    }
}

/// Decodes the params of a prompt, its large texts in pieces.
fn prompt<'de, D: Deserializer<'de>, T: PromptParams>(deserializer: D) -> Result<T, D::Error> {
    use serde::de::Error;
    let params = <&serde_json::value::RawValue>::deserialize(deserializer)?;
    let Some(Divided { params, texts }) = large_texts::divide(params.get()) else {
        return read(params.get()).map_err(D::Error::custom);
    };
    let mut request: T = read(&params).map_err(D::Error::custom)?;
    for (at, text) in texts {
        request.set_text(at, text);
    }
    Ok(request)
}

/// Adds a missing `mcpServers`. The error names the invalid entry.
fn with_servers<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned>(
    deserializer: D,
) -> Result<T, D::Error> {
    use serde::de::Error;
    let mut params = serde_json::Map::deserialize(deserializer)?;
    let servers = params
        .entry("mcpServers")
        .or_insert_with(|| serde_json::Value::Array(Vec::new()));
    for (n, server) in servers.as_array().into_iter().flatten().enumerate() {
        if serde_json::from_value::<v1::McpServer>(server.clone()).is_err() {
            return Err(D::Error::custom(format!(
                "mcpServers[{n}] is not an MCP server: it needs name and command, args, env (a program), type, name and url, headers, or type acp, name and serverId"
            )));
        }
    }
    read(&serde_json::Value::Object(params).to_string()).map_err(D::Error::custom)
}

/// A message of the schema that is serialized with an explicit `"oldText": null` in diffs without
/// an old text, by which some clients recognize a new file.
#[derive(Debug, Clone)]
pub struct WithExplicitNull<T>(pub T);

impl<T: Method> Method for WithExplicitNull<T> {
    const NAME: &'static str = T::NAME;
    type Response = T::Response;
}

impl<T: Serialize> Serialize for WithExplicitNull<T>
where
    T: HasContent,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.0.has_new_file() {
            return self.0.serialize(serializer);
        }
        let mut value = serde_json::to_value(&self.0).map_err(serde::ser::Error::custom)?;
        for at in ["/update/content", "/toolCall/content"] {
            for item in value
                .pointer_mut(at)
                .and_then(serde_json::Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                if item["type"] == "diff"
                    && let Some(diff) = item.as_object_mut()
                {
                    diff.entry("oldText").or_insert(serde_json::Value::Null);
                }
            }
        }
        value.serialize(serializer)
    }
}

/// Messages that may contain a new file.
pub trait HasContent {
    /// Returns whether one of the diffs has no old text.
    fn has_new_file(&self) -> bool;
}

impl HasContent for v1::SessionNotification {
    fn has_new_file(&self) -> bool {
        match &self.update {
            v1::SessionUpdate::ToolCall(call) => has_new_file(&call.content),
            v1::SessionUpdate::ToolCallUpdate(update) => {
                update.fields.content.as_deref().is_some_and(has_new_file)
            }
            _ => false,
        }
    }
}

impl HasContent for v1::RequestPermissionRequest {
    fn has_new_file(&self) -> bool {
        self.tool_call
            .fields
            .content
            .as_deref()
            .is_some_and(has_new_file)
    }
}

fn has_new_file(content: &[v1::ToolCallContent]) -> bool {
    content.iter().any(
        |content| matches!(content, v1::ToolCallContent::Diff(diff) if diff.old_text.is_none()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The support for a method.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Support {
        Served,
        /// Answered with an error (-32601 if the method is unknown), for this reason.
        Refused(&'static str),
        /// Called by adjutant; every client supports it.
        Called,
        /// Called by adjutant if the client declares support.
        CalledIfDeclared,
        /// Called by adjutant if the client has called this method.
        CalledIfAsked(&'static str),
        /// Called by adjutant if the client has given a session an MCP server that lives in it.
        CalledIfGiven,
        /// Never called by adjutant, for this reason.
        NotCalled(&'static str),
    }

    impl Support {
        /// Returns whether the method goes from the client to adjutant.
        fn is_inbound(self) -> bool {
            matches!(self, Self::Served | Self::Refused(_))
        }
    }

    /// Methods without types here: the read loop handles them, or none is ever needed.
    const UNBOUND: &[(&str, &str, Support)] = &[
        ("$/cancel_request", "1, 2", Support::Served),
        (
            "session/options",
            "1, 2",
            Support::Refused("a draft that is not served yet; an opened session has its options"),
        ),
        (
            "proxy/*",
            "1, 2",
            Support::Refused("not now: adjutant is an agent, and no proxy in front of another"),
        ),
        (
            "terminal/*",
            "1",
            Support::NotCalled(
                "commands run in process groups of our own, so that cancel and exit can end them",
            ),
        ),
        ("elicitation/complete", "1, 2", Support::CalledIfDeclared),
        ("$/cancel_request", "1, 2", Support::Called),
    ];

    /// Returns all methods of ACP with their versions and their support, those to adjutant first.
    /// The table in `protocol/README.md` is generated from this list.
    fn methods() -> Vec<(&'static str, &'static str, Support)> {
        let of = |list: &[(&str, Support)], name: &str| list.iter().any(|(own, _)| *own == name);
        let both = VERSION_1.iter().map(|(name, support)| {
            let versions = if of(VERSION_2, name) { "1, 2" } else { "1" };
            (*name, versions, *support)
        });
        let later = VERSION_2
            .iter()
            .filter(|(name, _)| !of(VERSION_1, name))
            .map(|(name, support)| (*name, "2", *support));
        let mut methods: Vec<_> = both.chain(later).chain(UNBOUND.iter().copied()).collect();
        methods.sort_by_key(|(_, _, support)| !support.is_inbound());
        methods
    }

    /// Compares the table in this crate's README with the list. `BLESS=1` updates the README.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test reads its own switch")]
    fn every_method_is_listed() {
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
        let text = std::fs::read_to_string(readme).unwrap();
        let (before, rest) = text.split_once("<!-- acp:begin").unwrap();
        let (mark, rest) = rest.split_once("-->\n").unwrap();
        let (_, after) = rest.split_once("<!-- acp:end -->").unwrap();
        let mut table =
            String::from("| method | version | direction | here |\n|---|---|---|---|\n");
        for (name, versions, support) in methods() {
            let direction = if support.is_inbound() {
                "editor → adjutant"
            } else {
                "adjutant → editor"
            };
            let here = match support {
                Support::Served => "served".to_owned(),
                Support::Called => "called".to_owned(),
                Support::CalledIfDeclared => "called, where the editor declares it".to_owned(),
                Support::CalledIfAsked(method) => {
                    format!("called, where the editor has called `{method}`")
                }
                Support::CalledIfGiven => {
                    "called, where the editor has given a server of the type `acp`".to_owned()
                }
                Support::Refused(why) => format!("refused: {why}"),
                Support::NotCalled(why) => format!("never: {why}"),
            };
            table += &format!("| `{name}` | {versions} | {direction} | {here} |\n");
        }
        let wanted = format!("{before}<!-- acp:begin{mark}-->\n{table}<!-- acp:end -->{after}");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(readme, wanted).unwrap();
        } else {
            assert_eq!(text, wanted, "run again with BLESS=1");
        }
    }

    #[test]
    fn later_version_of_client_is_read_leniently() {
        let later = r#"{"protocolVersion":2,"info":{"name":"e","version":"1"},
            "capabilities":{"auth":{"terminal":{}},"elicitation":{"form":{}},"fs":{"readTextFile":true}}}"#;
        let Initialize(request) = serde_json::from_str(later).unwrap();
        assert_eq!(
            request.client_info.map(|info| info.name).as_deref(),
            Some("e")
        );
        let capabilities = request.client_capabilities;
        assert!(capabilities.auth.terminal);
        assert!(capabilities.elicitation.is_some_and(|e| e.form.is_some()));
        assert!(!capabilities.fs.read_text_file);
        assert!(!capabilities.terminal);
        let InitializeV2(request) =
            serde_json::from_str(r#"{"protocolVersion":9,"capabilities":7}"#).unwrap();
        assert_eq!(request.info.name, "unknown");
        assert!(serde_json::from_str::<InitializeV2>(r#"{"protocolVersion":2}"#).is_err());
    }

    #[test]
    fn responses_with_models_are_read() {
        type Resumed = WithModels<v1::ResumeSessionResponse>;
        for text in ["{}", "null", r#"{"models":null}"#] {
            let resumed: Resumed = serde_json::from_str(text).unwrap();
            assert!(resumed.models.is_none(), "{text}");
        }
        let text = r#"{"models":{"currentModelId":"a/b","availableModels":[]}}"#;
        let resumed: Resumed = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&resumed).unwrap(), text);
        let text = r#"{"sessionId":"s"}"#;
        let new: WithModels<v1::NewSessionResponse> = serde_json::from_str(text).unwrap();
        assert_eq!(&*new.response.session_id.0, "s");
    }

    #[test]
    fn new_file_has_explicit_null_as_old_text() {
        let diff = v1::ToolCallContent::Diff(v1::Diff::new("/w/a", "x"));
        let update =
            v1::ToolCallUpdate::new("c", v1::ToolCallUpdateFields::new().content(vec![diff]));
        let notification =
            v1::SessionNotification::new("s", v1::SessionUpdate::ToolCallUpdate(update));
        let json = serde_json::to_string(&WithExplicitNull(notification)).unwrap();
        assert!(json.contains(r#""oldText":null"#), "{json}");
    }

    #[test]
    fn large_texts_of_prompts_are_decoded_in_each_version() {
        let large = "some words\n".repeat(200_000);
        let params = serde_json::json!({
            "sessionId": "s",
            "prompt": [{ "type": "text", "text": "short" }, { "type": "text", "text": large }],
            "_meta": { "a": 1 },
        });
        let text = params.to_string();
        let first: Prompt = serde_json::from_str(&text).unwrap();
        let second: PromptV2 = serde_json::from_str(&text).unwrap();
        assert!(serde_json::to_value(first).unwrap() == params);
        assert!(serde_json::to_value(second).unwrap() == params);
        let spoilt = text.replacen(r#""sessionId":"s""#, r#""sessionId":7"#, 1);
        assert!(serde_json::from_str::<Prompt>(&spoilt).is_err());
        assert!(serde_json::from_str::<PromptV2>(&spoilt).is_err());
    }

    #[test]
    fn missing_servers_are_empty_and_invalid_ones_are_named() {
        assert!(
            serde_json::from_str::<NewSession>(r#"{"cwd":"/w"}"#)
                .unwrap()
                .0
                .mcp_servers
                .is_empty()
        );
        let bad = r#"{"cwd":"/w","mcpServers":[{"name":"a","command":"/a","args":[],"env":[]},{"name":"b"}]}"#;
        let error = serde_json::from_str::<NewSession>(bad)
            .unwrap_err()
            .to_string();
        assert!(error.contains("mcpServers[1]"), "{error}");
        assert!(serde_json::from_str::<NewSession>(r#"{"cwd":"/w","mcpServers":"x"}"#).is_err());
    }
}
