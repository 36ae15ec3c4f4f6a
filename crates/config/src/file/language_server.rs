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
    /// The file name extensions and whole file names it applies to.
    pub extensions: Vec<String>,
    /// Its environment variables, in addition to those that commands get.
    pub env: Ordered<String>,
    /// Its initialization options.
    pub initialization: Option<Value>,
}
