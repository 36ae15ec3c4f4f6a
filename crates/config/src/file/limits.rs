//! Sizes, numbers and durations in a settings file.

use schemars::JsonSchema;
use serde::Deserialize;

/// The time for which sessions are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionsSettings {
    /// Sessions that were not used for this number of days are deleted. Default: never.
    #[schemars(range(min = 1))]
    pub keep_days: Option<u64>,
}

/// The place where sessions are stored.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreConfig {
    /// `postgres://user:{env:PASSWORD}@host/database`. Default: files on this machine.
    pub url: Option<String>,
    /// The schema in the database that holds the tables. Default: `adjutant`.
    pub namespace: Option<String>,
    /// The number of seconds after which a process that does not respond loses its sessions.
    /// Default: 5.
    #[schemars(range(min = 1))]
    pub lease_seconds: Option<u64>,
    /// The maximum size in MiB of the changes that wait in memory while the database cannot be
    /// reached. Default: 64.
    #[schemars(range(min = 1))]
    pub away_mib: Option<u64>,
    /// The number of minutes for which a turn continues while the database cannot be reached.
    /// Default: 10.
    pub away_minutes: Option<u64>,
}

/// The treatment of a session that outgrows the context window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CompactionSettings {
    /// Summarise automatically when the window is full. Default: true.
    pub auto: bool,
    /// Clear old tool results if that frees enough. Default: true.
    pub prune: bool,
    /// The number of latest turns that are preserved verbatim. Default: 2.
    pub tail_turns: u32,
    /// The maximum number of tokens of these turns. Default: a quarter of the window, 2000 to 8000.
    pub preserve_recent_tokens: Option<u64>,
    /// The number of tokens that are reserved for the answer. Default: the longest answer, at most 32000.
    pub reserved: Option<u64>,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self {
            auto: true,
            prune: true,
            tail_turns: 2,
            preserve_recent_tokens: None,
            reserved: None,
        }
    }
}

/// The limits of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetSettings {
    /// The maximum number of steps. Default: 2000.
    #[schemars(range(min = 1))]
    pub steps: u32,
    /// The maximum cost in US dollars, including subagents, if the price is known. Default: no
    /// limit.
    #[schemars(range(min = 0))]
    pub cost: Option<f64>,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self {
            steps: 2_000,
            cost: None,
        }
    }
}

/// The maximum length of a tool's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OutputLimits {
    /// Default: 2000.
    #[serde(rename = "max_lines")]
    #[schemars(range(min = 1))]
    pub lines: usize,
    /// Default: 51200.
    #[serde(rename = "max_bytes")]
    #[schemars(range(min = 256))]
    pub bytes: usize,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self {
            lines: 2_000,
            bytes: 50 << 10,
        }
    }
}
