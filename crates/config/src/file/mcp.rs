//! MCP servers in a settings file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Ordered;

/// An MCP server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct McpConfig {
    /// `local` starts a program; `remote` calls a URL, with streamable HTTP
    /// or the older HTTP with server-sent events.
    #[serde(rename = "type")]
    pub kind: Option<McpKind>,
    /// The program and its arguments.
    pub command: Option<Vec<String>>,
    /// Its working directory, relative to the session's directory.
    pub cwd: Option<String>,
    /// Its environment variables.
    pub environment: Option<Ordered<String>>,
    /// The address.
    pub url: Option<String>,
    /// Headers of every request. Secrets in them are not sent to a public host without https.
    pub headers: Option<Ordered<String>>,
    /// The login at the server; false to never log in.
    pub oauth: Option<OAuthChoice>,
    /// Use it. Default: true.
    #[schemars(extend("x-trust" = "applies"))]
    pub enabled: Option<bool>,
    /// The time limit, in milliseconds, for starting and listing tools (default: 30000), and for a
    /// call that reports no progress (default: `experimental.mcp_timeout`).
    pub timeout: Option<u64>,
    /// Whether it may send requests to the session's model. You are asked each time, and the
    /// requests count towards the session's cost. Default: false.
    pub sampling: Option<bool>,
    /// The lowest severity of the messages that it sends to the log. Default: the server decides.
    pub log: Option<McpLog>,
}

/// A severity of what an MCP server logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum McpLog {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// The connection to an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum McpKind {
    Local,
    Remote,
}

/// The login at an MCP server, or false for no login.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum OAuthChoice {
    Switch(bool),
    Settings(OAuth),
}

/// The login at an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct OAuth {
    /// The client id, if it was registered manually.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<String>,
    /// The requested scopes.
    pub scope: Option<String>,
    /// The local port that receives the answer.
    pub callback_port: Option<u16>,
    /// The address that receives the answer.
    pub redirect_uri: Option<String>,
}
