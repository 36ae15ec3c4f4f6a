//! Hooks in a settings file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Ordered;

/// A command that runs when something happens in a session.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HookConfig {
    /// When it runs.
    pub on: Option<HookPoint>,
    /// The tools it is for, with wildcards, several joined by a bar: `edit|write`, `github_*`. Default: all.
    pub tool: Option<String>,
    /// What a call has to be about, as in rules: a file from the project's root, a command, an address;
    /// on `prompt` the words. A command in the middle of a line counts too. Default: anything.
    pub pattern: Option<String>,
    /// The program and its arguments. It gets the event as JSON on standard input. With `$FILE` in it, it
    /// runs once for each file the call is about.
    pub command: Option<Vec<String>>,
    /// How long it may take, in milliseconds. Default: 60000.
    #[schemars(range(min = 1, max = 600_000))]
    pub timeout: Option<u64>,
    /// Its environment variables.
    pub environment: Option<Ordered<String>>,
    /// How the event is written and the answer read: as here, or as Claude Code does it. Default:
    /// `adjutant`.
    pub format: Option<HookFormat>,
    /// It does not run.
    pub disabled: Option<bool>,
}

/// When a hook runs.
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
    /// When the rules have judged what a call needs.
    #[serde(rename = "permission")]
    Permission,
    /// When a turn has ended.
    #[serde(rename = "turn.end")]
    TurnEnd,
    /// Before the history is summarised.
    #[serde(rename = "compaction")]
    Compaction,
    /// When a session is closed.
    #[serde(rename = "session.end")]
    SessionEnd,
}

/// How a hook is spoken to.
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
    /// Run the hooks of Claude Code's `settings.json`: the project's, and where your own settings say
    /// this, those of your home. Default: false.
    pub claude: Option<bool>,
}
