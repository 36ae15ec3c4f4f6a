//! Keys of OpenCode that have no effect here. They are declared so that they are known and
//! reported.

#![expect(
    dead_code,
    reason = "nothing follows from these keys; they are declared to be checked and documented"
)]

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Paths that a file watcher leaves out.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Watcher {
    /// Globs.
    pub ignore: Option<Vec<String>>,
}

/// A plugin, with or without options.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum Plugin {
    Name(String),
    Full(Vec<Value>),
}

/// The HTTP server of OpenCode.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ServerConfig {
    /// Its port.
    pub port: Option<u32>,
    /// Its host name.
    pub hostname: Option<String>,
    /// Announce it in the local network.
    pub mdns: Option<bool>,
    /// The announced name.
    #[serde(rename = "mdnsDomain")]
    pub mdns_domain: Option<String>,
    /// The origins that may call it.
    pub cors: Option<Vec<String>>,
}

/// The address of an organisation's server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Enterprise {
    /// The address.
    pub url: Option<String>,
}

/// Whether sessions are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Share {
    Manual,
    Auto,
    Disabled,
}

/// Whether the program updates itself.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum AutoUpdate {
    Switch(bool),
    Word(Notify),
}

/// Only say that there is an update.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Notify {
    Notify,
}

/// The level of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
pub(crate) enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}
