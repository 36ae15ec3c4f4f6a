//! Language servers in a settings file.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::Ordered;

/// A language server.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LanguageServer {
    /// Leave it out.
    pub disabled: bool,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The endings of names it is for, and whole names.
    pub extensions: Vec<String>,
    /// Set for it, over the variables that commands get.
    pub env: Ordered<String>,
    /// Its own options, sent to it at the start.
    pub initialization: Option<Value>,
}
