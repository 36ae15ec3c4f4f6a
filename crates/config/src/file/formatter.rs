//! Formatters in a settings file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Ordered;

/// All of a kind on or off, or each by name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum OnOrNamed<T> {
    Switch(bool),
    Named(Ordered<T>),
}

/// A formatter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Formatter {
    /// Do not run it.
    pub disabled: bool,
    /// The program and its arguments; `$FILE` is the file. Not needed for built-in ones.
    pub command: Vec<String>,
    /// Its environment variables.
    pub environment: Ordered<String>,
    /// The file name extensions it applies to, such as `.rs`.
    pub extensions: Vec<String>,
}
