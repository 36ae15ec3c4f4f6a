//! The Agent Client Protocol: its types (generated from the specification, re-exported as [`v1`]),
//! its method names bound to them, and the list of what adjutant serves.
//!
//! Majors of the schema crate are frequent, so nobody else names it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use agent_client_protocol_schema::v1;
pub use agent_client_protocol_schema::{IntoOption, MaybeUndefined, ProtocolVersion};

/// Cancels a request, in both directions. Handled by the read loop, so it has no row in a table.
pub const CANCEL_REQUEST: &str = "$/cancel_request";

/// Params that belong to one method.
pub trait Method {
    /// The name on the wire.
    const NAME: &'static str;
    /// The type of the result; `()` for notifications.
    type Response;
}

macro_rules! bind {
    ($($name:literal $params:ty => $response:ty;)*) => {
        $(impl Method for $params { const NAME: &'static str = $name; type Response = $response; })*
    };
}

bind! {
    "initialize" v1::InitializeRequest => v1::InitializeResponse;
    "authenticate" v1::AuthenticateRequest => v1::AuthenticateResponse;
    "logout" v1::LogoutRequest => v1::LogoutResponse;
    "session/new" NewSession => v1::NewSessionResponse;
    "session/load" LoadSession => v1::LoadSessionResponse;
    "session/resume" v1::ResumeSessionRequest => v1::ResumeSessionResponse;
    "session/list" v1::ListSessionsRequest => v1::ListSessionsResponse;
    "session/close" v1::CloseSessionRequest => v1::CloseSessionResponse;
    "session/delete" v1::DeleteSessionRequest => v1::DeleteSessionResponse;
    "session/fork" v1::ForkSessionRequest => v1::ForkSessionResponse;
    "session/set_title" v1::SetSessionTitleRequest => v1::SetSessionTitleResponse;
    "session/status" v1::SessionStatusRequest => v1::SessionStatusResponse;
    "session/set_mode" v1::SetSessionModeRequest => v1::SetSessionModeResponse;
    "session/set_config_option" v1::SetSessionConfigOptionRequest => v1::SetSessionConfigOptionResponse;
    "session/set_model" SetModel => Empty;
    "session/prompt" v1::PromptRequest => v1::PromptResponse;
    "session/cancel" v1::CancelNotification => ();

    "session/update" v1::SessionNotification => ();
    "session/request_permission" v1::RequestPermissionRequest => v1::RequestPermissionResponse;
    "elicitation/create" v1::CreateElicitationRequest => v1::CreateElicitationResponse;
    "fs/read_text_file" v1::ReadTextFileRequest => v1::ReadTextFileResponse;
    "fs/write_text_file" v1::WriteTextFileRequest => v1::WriteTextFileResponse;
}

/// Params of session/set_model, which was never stable and is gone from the schema: some editors call
/// it right after session/new all the same.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetModel {
    /// The session.
    pub session_id: v1::SessionId,
    /// The model's id, as in the `model` config option.
    pub model_id: String,
}

/// An empty result: `{}`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Empty {}

/// Params of session/new. Editors exist that leave `mcpServers` out; the schema insists on it.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct NewSession(pub v1::NewSessionRequest);

/// Params of session/load, as lenient as [`NewSession`].
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

/// Adds a missing `mcpServers`, and says which entry of it is wrong.
fn with_servers<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    use serde::de::Error;
    let mut params = serde_json::Map::deserialize(deserializer)?;
    let servers = params.entry("mcpServers").or_insert_with(|| serde_json::Value::Array(Vec::new()));
    for (n, server) in servers.as_array().into_iter().flatten().enumerate() {
        if serde_json::from_value::<v1::McpServer>(server.clone()).is_err() {
            return Err(D::Error::custom(format!(
                "mcpServers[{n}] is no MCP server: it needs name and command, args, env (a program) or type, name and url, headers"
            )));
        }
    }
    serde_json::from_value(serde_json::Value::Object(params)).map_err(D::Error::custom)
}

/// Serialises a message of the schema with `"oldText": null` written out where a diff has no old
/// text: some editors know a new file by that member.
#[derive(Debug, Clone)]
pub struct Explicit<T>(pub T);

impl<T: Method> Method for Explicit<T> {
    const NAME: &'static str = T::NAME;
    type Response = T::Response;
}

impl<T: Serialize> Serialize for Explicit<T>
where
    T: HasContent,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.0.has_new_file() {
            return self.0.serialize(serializer);
        }
        let mut value = serde_json::to_value(&self.0).map_err(serde::ser::Error::custom)?;
        for at in ["/update/content", "/toolCall/content"] {
            for item in value.pointer_mut(at).and_then(serde_json::Value::as_array_mut).into_iter().flatten() {
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

/// Messages that may show a new file.
pub trait HasContent {
    /// Whether one of the diffs has no old text.
    fn has_new_file(&self) -> bool;
}

impl HasContent for v1::SessionNotification {
    fn has_new_file(&self) -> bool {
        match &self.update {
            v1::SessionUpdate::ToolCall(call) => new_file(&call.content),
            v1::SessionUpdate::ToolCallUpdate(update) => update.fields.content.as_deref().is_some_and(new_file),
            _ => false,
        }
    }
}

impl HasContent for v1::RequestPermissionRequest {
    fn has_new_file(&self) -> bool {
        self.tool_call.fields.content.as_deref().is_some_and(new_file)
    }
}

fn new_file(content: &[v1::ToolCallContent]) -> bool {
    content.iter().any(|content| matches!(content, v1::ToolCallContent::Diff(diff) if diff.old_text.is_none()))
}

/// How far adjutant goes with a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It works.
    Served,
    /// Answered with -32601, and why.
    Refused(&'static str),
    /// Answered with -32601 today; a later version brings it.
    NotYet,
    /// We call it, where the editor declares it.
    Called,
    /// We could call it and do not, and why.
    NotCalled(&'static str),
}

/// Every method of ACP v1 with its direction (true: the editor calls us) and our support. The
/// table in `protocol/README.md` is written from this list.
pub const METHODS: &[(&str, bool, Support)] = &[
    ("initialize", true, Support::Served),
    ("authenticate", true, Support::Served),
    ("logout", true, Support::Served),
    ("session/new", true, Support::Served),
    ("session/load", true, Support::Served),
    ("session/resume", true, Support::Served),
    ("session/list", true, Support::Served),
    ("session/close", true, Support::Served),
    ("session/delete", true, Support::Served),
    ("session/fork", true, Support::Served),
    ("session/set_title", true, Support::Served),
    ("session/status", true, Support::Served),
    ("session/prompt", true, Support::Served),
    ("session/cancel", true, Support::Served),
    ("session/set_mode", true, Support::Served),
    ("session/set_config_option", true, Support::Served),
    ("session/set_model", true, Support::Served),
    ("$/cancel_request", true, Support::Served),
    ("auth/status", true, Support::Refused("whether a key is accepted is known when it is used")),
    ("session/archive", true, Support::Refused("a session is kept until it is deleted, or pruned by age")),
    ("session/unarchive", true, Support::Refused("as above")),
    ("mcp/message", true, Support::Refused("MCP servers are connected to adjutant itself")),
    ("providers/*", true, Support::Refused("provider addresses come from the user's configuration only")),
    ("session/update", false, Support::Called),
    ("session/request_permission", false, Support::Called),
    ("fs/read_text_file", false, Support::Called),
    ("fs/write_text_file", false, Support::Called),
    (
        "terminal/*",
        false,
        Support::NotCalled("commands run in process groups of our own, so that cancel and exit can end them"),
    ),
    ("elicitation/create", false, Support::Called),
    ("$/cancel_request", false, Support::Called),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of this crate's README says what the list says. `BLESS=1` writes it.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test reads its own switch")]
    fn every_method_is_listed() {
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
        let text = std::fs::read_to_string(readme).unwrap();
        let (before, rest) = text.split_once("<!-- acp:begin").unwrap();
        let (mark, rest) = rest.split_once("-->\n").unwrap();
        let (_, after) = rest.split_once("<!-- acp:end -->").unwrap();
        let mut table = String::from("| method | direction | here |\n|---|---|---|\n");
        for (name, inbound, support) in METHODS {
            let direction = if *inbound { "editor → adjutant" } else { "adjutant → editor" };
            let here = match support {
                Support::Served => "served".to_owned(),
                Support::Called => "called, where the editor declares it".to_owned(),
                Support::NotYet => "not yet".to_owned(),
                Support::Refused(why) => format!("refused: {why}"),
                Support::NotCalled(why) => format!("never: {why}"),
            };
            table += &format!("| `{name}` | {direction} | {here} |\n");
        }
        let wanted = format!("{before}<!-- acp:begin{mark}-->\n{table}<!-- acp:end -->{after}");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(readme, wanted).unwrap();
        } else {
            assert_eq!(text, wanted, "run again with BLESS=1");
        }
    }

    #[test]
    fn a_new_file_is_shown_with_an_explicit_null() {
        let diff = v1::ToolCallContent::Diff(v1::Diff::new("/w/a", "x"));
        let update = v1::ToolCallUpdate::new("c", v1::ToolCallUpdateFields::new().content(vec![diff]));
        let note = v1::SessionNotification::new("s", v1::SessionUpdate::ToolCallUpdate(update));
        let json = serde_json::to_string(&Explicit(note)).unwrap();
        assert!(json.contains(r#""oldText":null"#), "{json}");
    }

    #[test]
    fn missing_servers_are_none_and_bad_ones_are_named() {
        assert!(serde_json::from_str::<NewSession>(r#"{"cwd":"/w"}"#).unwrap().0.mcp_servers.is_empty());
        let bad = r#"{"cwd":"/w","mcpServers":[{"name":"a","command":"/a","args":[],"env":[]},{"name":"b"}]}"#;
        let error = serde_json::from_str::<NewSession>(bad).unwrap_err().to_string();
        assert!(error.contains("mcpServers[1]"), "{error}");
        assert!(serde_json::from_str::<NewSession>(r#"{"cwd":"/w","mcpServers":"x"}"#).is_err());
    }
}
