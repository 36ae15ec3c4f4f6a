//! The sandbox of commands in a settings file.

use schemars::JsonSchema;
use serde::Deserialize;

/// The operating system's restrictions on commands.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
#[expect(
    dead_code,
    reason = "read from the tree, where it is known who says what"
)]
pub(crate) enum SandboxConfig {
    Mode(SandboxMode),
    Full(SandboxOptions),
}

/// The use of a sandbox for commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum SandboxMode {
    /// Use a sandbox if the system supports one.
    #[default]
    Auto,
    /// Run no commands without a sandbox.
    Required,
    /// Use no sandbox.
    Off,
}

/// The sandbox with its options.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct SandboxOptions {
    /// `auto`, `required` or `off`. Default: `auto`.
    pub mode: Option<SandboxMode>,
    /// Further directories and files that commands of agents that may edit can write: absolute,
    /// `~/`, or relative to the project. A protected file (`.git/config`) becomes writable if it is
    /// named.
    pub writable: Option<Vec<String>>,
    /// Whether commands may use the network. Default: yes for agents that may edit, no for
    /// read-only agents.
    pub network: Option<bool>,
    /// Let `plan`, `explore` and `scout` run commands that are not known to be harmless without
    /// asking, if a sandbox prevents them from writing and from using the network. adjutant still
    /// asks if your rules say so, and about files outside the project and files that hold secrets.
    /// Default: true.
    pub unattended: Option<bool>,
    /// Files and directories to hide from commands, in addition to the credentials that `adjutant
    /// doctor` lists: absolute or `~/`. Read from your own files only.
    #[schemars(extend("x-trust" = "user: only your own settings can say what is hidden from commands"))]
    pub hide: Option<Vec<String>>,
    /// Hidden credentials that commands may see: names that `adjutant doctor` lists (`aws`), or
    /// paths. Read from your own files only.
    #[schemars(extend("x-trust" = "user: only your own settings can say what is hidden from commands"))]
    pub show: Option<Vec<String>>,
}

/// The environment variables that commands get.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct VariablesConfig {
    /// Names of further variables, or patterns such as `MY_PROJECT_*`. A variable that looks like a
    /// key or a password has to be named in full. `adjutant doctor` lists the variables that are
    /// withheld.
    pub pass: Option<Vec<String>>,
    /// Names or patterns of variables to withhold; takes precedence over `pass`.
    pub drop: Option<Vec<String>>,
}
