//! Resolved hooks: commands that run on events of a session.

use std::time::Duration;

use super::file::HookConfig;
pub use super::file::{HookFormat, HookPoint};

/// The timeout of a hook that sets none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The reason for not running a hook that runs files of an untrusted project.
pub(crate) const UNTRUSTED_PROJECT: &str =
    "it runs files of this project, which is not trusted; `adjutant trust` shows them";

/// The reason for not running a trusted guard that no longer exists.
pub(crate) const MISSING_GUARD: &str =
    "you trusted it, and it is gone; `adjutant trust` asks whether that is intended";

/// A command that runs on a hook event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookEntry {
    pub name: String,
    pub on: HookPoint,
    /// The tools it is for, as wildcards; all if empty.
    pub tools: Vec<String>,
    /// The subject that a call must have, as a wildcard.
    pub pattern: Option<String>,
    /// The program and its arguments, which may contain `$FILE`; never empty.
    pub command: Vec<String>,
    pub limit: Duration,
    /// Variables for it, in addition to those of commands.
    pub environment: Vec<(String, String)>,
    pub format: HookFormat,
    /// The reason for not running it, as the end of "it failed: ".
    pub withheld: Option<&'static str>,
    /// True if it is from a project's file, so that it may not allow anything.
    pub project: bool,
    /// The location of its last mention, for display.
    pub source: String,
}

impl HookPoint {
    /// Returns the name as in the settings, such as `tool.before`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SessionStart => "session.start",
            Self::Prompt => "prompt",
            Self::ToolBefore => "tool.before",
            Self::ToolAfter => "tool.after",
            Self::Permission => "permission",
            Self::TurnEnd => "turn.end",
            Self::Compaction => "compaction",
            Self::SessionEnd => "session.end",
        }
    }

    /// Returns whether the event is about a tool call.
    pub fn is_about_a_call(self) -> bool {
        matches!(self, Self::ToolBefore | Self::ToolAfter | Self::Permission)
    }
}

/// Resolves a hook. `None` if it is disabled.
///
/// # Errors
/// The missing part, for display.
pub(crate) fn entry(
    name: String,
    written: HookConfig,
    project: bool,
    source: String,
) -> Result<Option<HookEntry>, &'static str> {
    if written.disabled == Some(true) {
        return Ok(None);
    }
    let on = written
        .on
        .ok_or("a hook needs \"on\", the event at which it runs")?;
    let command = written.command.unwrap_or_default();
    if command.first().is_none_or(String::is_empty) {
        return Err("a hook needs a command, as a list");
    }
    let words = |text: &str| {
        text.split('|')
            .map(|word| word.trim().to_owned())
            .filter(|word| !word.is_empty())
            .collect()
    };
    Ok(Some(HookEntry {
        on,
        tools: written.tool.as_deref().map(words).unwrap_or_default(),
        pattern: written.pattern.filter(|pattern| !pattern.is_empty()),
        command,
        limit: written
            .timeout
            .map_or(DEFAULT_TIMEOUT, Duration::from_millis),
        environment: written.environment.unwrap_or_default().0,
        format: written.format.unwrap_or_default(),
        withheld: None,
        project,
        source,
        name,
    }))
}
