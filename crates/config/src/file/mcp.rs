//! MCP servers in a settings file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Ordered;

/// An MCP server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct McpConfig {
    /// `local` starts a program; `remote` calls an address, with streamable HTTP
    /// or the older HTTP with server-sent events.
    #[serde(rename = "type")]
    pub kind: Option<McpKind>,
    /// The program and its arguments.
    pub command: Option<Vec<String>>,
    /// Where it runs, relative to the session's directory.
    pub cwd: Option<String>,
    /// Its environment variables.
    pub environment: Option<Ordered<String>>,
    /// The address.
    pub url: Option<String>,
    /// Headers of every request. What is secret in them is not sent to a public host without https.
    pub headers: Option<Ordered<String>>,
    /// How to log in; false to never try.
    pub oauth: Option<OAuthChoice>,
    /// Switch it off without removing it. Default: true.
    pub enabled: Option<bool>,
    /// How long starting and listing tools may take (default: 30000), and a call without a word of progress
    /// (default: `experimental.mcp_timeout`), in milliseconds.
    pub timeout: Option<u64>,
    /// Whether it may have the session's model asked. You are asked each time, and it counts in the session's cost.
    /// Default: false.
    pub sampling: Option<bool>,
    /// From which severity on it is told to say what it does, which goes to the log. Default: as it likes.
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

/// How an MCP server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum McpKind {
    Local,
    Remote,
}

/// How to log in to an MCP server, or false to never try.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum OAuthChoice {
    Switch(bool),
    Settings(OAuth),
}

/// How to log in to an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct OAuth {
    /// The client's id, where it is registered by hand.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<String>,
    /// What is asked for.
    pub scope: Option<String>,
    /// The local port the answer comes back to.
    pub callback_port: Option<u16>,
    /// The address the answer comes back to.
    pub redirect_uri: Option<String>,
}
