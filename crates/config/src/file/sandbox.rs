//! The sandbox of commands in a settings file.

use schemars::JsonSchema;
use serde::Deserialize;

/// What the system forbids commands.
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

/// Whether there has to be a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum SandboxMode {
    /// Where the system can.
    #[default]
    Auto,
    /// Or no commands.
    Required,
    /// None.
    Off,
}

/// A sandbox in detail.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct SandboxOptions {
    /// As above.
    pub mode: Option<SandboxMode>,
    /// Further directories and files that commands of agents that may edit can write: absolute, `~/`,
    /// or relative to the project. A protected one (`.git/config`) is opened by naming it.
    pub writable: Option<Vec<String>>,
    /// Whether commands may use the network. Default: yes for agents that may edit, no for those
    /// that only read.
    pub network: Option<bool>,
    /// `plan`, `explore` and `scout` run what is not known to be harmless without a question, where a
    /// sandbox keeps it from writing and from the network. Rules of yours that ask or deny, files outside
    /// the project and files that hold secrets ask all the same. Default: true.
    pub unattended: Option<bool>,
    /// Files and folders that are hidden from commands besides the credentials that `adjutant doctor` lists:
    /// absolute or `~/`. Read from your own files only.
    pub hide: Option<Vec<String>>,
    /// What commands see all the same: names of rows that `adjutant doctor` lists (`aws`), or paths. Read from your
    /// own files only.
    pub show: Option<Vec<String>>,
}

/// Which variables commands get.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct VariablesConfig {
    /// Names, or patterns such as `MY_PROJECT_*`, of variables that are given too. One that looks like a
    /// key or a password has to be named in full. `adjutant doctor` lists what is left out.
    pub pass: Option<Vec<String>>,
    /// Names or patterns of variables that are not given, whatever else is said.
    pub drop: Option<Vec<String>>,
}
