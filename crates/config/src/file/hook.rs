//! Hooks in a settings file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Ordered;

/// A command that runs when something happens in a session.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HookConfig {
    /// The event at which it runs.
    pub on: Option<HookPoint>,
    /// The tools it applies to, with wildcards, separated by bars: `edit|write`, `github_*`.
    /// Default: all.
    pub tool: Option<String>,
    /// A pattern for the subject of the call, as in rules: a file relative to the project's root, a
    /// command, a URL; on `prompt`, the text. A command within a longer line matches too. Default:
    /// any.
    pub pattern: Option<String>,
    /// The program and its arguments. It gets the event as JSON on standard input. If it contains
    /// `$FILE`, it runs once for each file of the call.
    pub command: Option<Vec<String>>,
    /// The time limit, in milliseconds. Default: 60000.
    #[schemars(range(min = 1, max = 600_000))]
    pub timeout: Option<u64>,
    /// Its environment variables.
    pub environment: Option<Ordered<String>>,
    /// The format of the event and the answer: adjutant's, or Claude Code's. Default: `adjutant`.
    pub format: Option<HookFormat>,
    /// Do not run it.
    #[schemars(extend("x-trust" = "applies"))]
    pub disabled: Option<bool>,
}

/// The event at which a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum HookPoint {
    /// Before the first prompt of a session that was opened.
    #[serde(rename = "session.start")]
    SessionStart,
    /// Before a prompt reaches the model.
    #[serde(rename = "prompt")]
    Prompt,
    /// Before a call is judged and made.
    #[serde(rename = "tool.before")]
    ToolBefore,
    /// After a call.
    #[serde(rename = "tool.after")]
    ToolAfter,
    /// After the rules have judged a call.
    #[serde(rename = "permission")]
    Permission,
    /// After the end of a turn.
    #[serde(rename = "turn.end")]
    TurnEnd,
    /// Before the history is summarised.
    #[serde(rename = "compaction")]
    Compaction,
    /// At the end of a session.
    #[serde(rename = "session.end")]
    SessionEnd,
}

/// The format of the event and the answer of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum HookFormat {
    #[default]
    Adjutant,
    Claude,
}

/// Hooks that are written for other programs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HooksConfig {
    /// Run the hooks of Claude Code's `settings.json`: the project's, and if this is in your own
    /// settings, those of your home. Default: false.
    pub claude: Option<bool>,
}
