//! Commands that hook into a session, as they are meant.

use std::time::Duration;

use super::file::HookConfig;
pub use super::file::{HookFormat, HookPoint};

/// How long a hook may take that says nothing about it.
const LIMIT: Duration = Duration::from_secs(60);

/// The reason for not running a hook that runs files of an untrusted project.
pub(crate) const UNTRUSTED: &str = "it runs files of this project, which is not trusted; `adjutant trust` shows them";

/// The reason a guard that the user trusted cannot run any more.
pub(crate) const GONE: &str = "you trusted it, and it is gone; `adjutant trust` asks whether that is all right";

/// A command that runs when something happens in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookEntry {
    pub name: String,
    pub on: HookPoint,
    /// The tools it is for, as wildcards; none: all.
    pub tools: Vec<String>,
    /// What a call has to be about, as a wildcard.
    pub pattern: Option<String>,
    /// The program and its arguments, in which `$FILE` may stand; never empty.
    pub command: Vec<String>,
    pub limit: Duration,
    /// Set for it, over what commands get.
    pub environment: Vec<(String, String)>,
    pub format: HookFormat,
    /// Why it does not run, as the end of "it failed: ".
    pub withheld: Option<&'static str>,
    /// A project's file says so: it may not allow anything.
    pub project: bool,
    /// Where it was last said something about, for people.
    pub source: String,
}

impl HookPoint {
    /// As the settings have it: `tool.before`.
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

    /// Whether what happens is about a call of a tool.
    pub fn is_about_a_call(self) -> bool {
        matches!(self, Self::ToolBefore | Self::ToolAfter | Self::Permission)
    }
}

/// What a written hook means.
///
/// # Errors
/// What it lacks, for people.
pub(crate) fn entry(
    name: String,
    written: HookConfig,
    project: bool,
    source: String,
) -> Result<Option<HookEntry>, &'static str> {
    if written.disabled == Some(true) {
        return Ok(None);
    }
    let on = written.on.ok_or("a hook needs \"on\": when it runs")?;
    let command = written.command.unwrap_or_default();
    if command.first().is_none_or(String::is_empty) {
        return Err("a hook needs a command, as a list");
    }
    let words =
        |text: &str| text.split('|').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect();
    Ok(Some(HookEntry {
        on,
        tools: written.tool.as_deref().map(words).unwrap_or_default(),
        pattern: written.pattern.filter(|pattern| !pattern.is_empty()),
        command,
        limit: written.timeout.map_or(LIMIT, Duration::from_millis),
        environment: written.environment.unwrap_or_default().0,
        format: written.format.unwrap_or_default(),
        withheld: None,
        project,
        source,
        name,
    }))
}
