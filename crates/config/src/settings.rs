//! Resolved settings, after all layers are joined: no `Option` if there is a default.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

pub use super::file::{
    BudgetSettings, CompactionSettings, Experimental, GeneralSettings, McpLog, Mode, OAuth,
    Ordered, OutputLimits, ProvidersSettings, SandboxMode, SessionsSettings, WebfetchSettings,
};
pub use super::formatter::FormatterEntry;
pub use super::hook::{HookEntry, HookFormat, HookPoint};
pub use super::language_server::ServerEntry;
pub use super::mcp::{McpEntry, Transport};
use super::node::SourceLocation;
use super::problem::Problem;
pub use super::script::{ScriptEntry, ScriptKind};
pub use super::serve::{ServeLimits, ServeSettings, TlsFiles, TokenEntry, TrustedProxy};
use base::child_environment::Variables;
use base::store_location::DatabaseLocation;
use permission::Rules;
pub use providers::entry::{Login, ModelEntry, Price, ProviderEntry, Rates, RequestTimeouts};
pub use providers::secret::Secret;
use transcript::{ImageSettings, ModelRef};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// The values that are in no section of a settings file.
    pub general: GeneralSettings,
    pub model: Option<ModelRef>,
    /// The model for titles and other small work.
    pub small_model: Option<ModelRef>,
    /// The agent that a session starts with; not checked here, see `agent::registry`.
    pub default_agent: Option<String>,
    pub default_agent_location: Option<SourceLocation>,
    /// Agents in the order they were first mentioned, including changes to built-in ones.
    pub agents: Vec<AgentEntry>,
    /// The location of the last of them.
    pub agents_location: Option<SourceLocation>,
    /// Problems of unreadable settings that may have contained a deny.
    pub unread: Vec<Problem>,
    /// The general rules, lowest layer first, with their sources.
    pub permission: Rules,
    /// Providers in the order they were first mentioned.
    pub providers: Vec<ProviderEntry>,
    pub mcp: Vec<McpEntry>,
    /// The encoding of files that are not UTF-8 and cannot be recognised.
    pub file_encoding: Option<&'static encoding_rs::Encoding>,
    /// Formatters that may run after an edit, in order.
    pub formatters: Vec<FormatterEntry>,
    /// The language servers that may be used, in order.
    pub language_servers: Vec<ServerEntry>,
    /// Commands that run on events of a session, in order.
    pub hooks: Vec<HookEntry>,
    /// Custom tools and plugins, in the order they are loaded.
    pub scripts: Vec<ScriptEntry>,
    /// Further instruction files: paths, globs, addresses.
    pub instructions: Vec<InstructionEntry>,
    pub commands: Vec<CommandEntry>,
    /// Sources of skills in addition to the usual folders.
    pub skills: SkillSources,
    pub references: Vec<ReferenceEntry>,
    /// The changes of providers that others may make. A project cannot set them.
    pub provider_changes: ProvidersSettings,
    /// The limits of a tool's result.
    pub tool_output: OutputLimits,
    /// The limits to which pictures are resized.
    pub images: ImageSettings,
    /// The time for which sessions are stored.
    pub sessions: SessionsSettings,
    /// The database that stores sessions. `None`: files on this machine.
    pub store: Option<DatabaseLocation>,
    /// The treatment of a session that outgrows the context window.
    pub compaction: CompactionSettings,
    pub budget: BudgetSettings,
    /// The settings of `adjutant serve`. A project cannot set them.
    pub serve: ServeSettings,
    /// The export of traces and metrics. A project cannot set it.
    pub telemetry: TelemetrySettings,
    /// True if every project is trusted without a question.
    pub trust_all: bool,
    /// True if the user trusts this project, or every project.
    pub trusted: bool,
    /// The sandbox of commands.
    pub sandbox: Arc<SandboxSettings>,
    /// The selection of the user's variables that commands and servers get.
    pub variables: Variables,
    pub webfetch: WebfetchSettings,
    pub experimental: Experimental,
    /// Directories that hold agents, commands and skills, lowest first.
    pub directories: Vec<Directory>,
}

impl Settings {
    /// Returns the reason why questions are asked that the rules do not require: the first
    /// unreadable setting that may have contained a deny, as the end of a sentence. `None` if
    /// everything could be read.
    pub fn doubt(&self) -> Option<String> {
        let first = self.unread.first()?;
        Some(format!(
            "settings that could not be used may deny it: {first}"
        ))
    }
}

/// The sandbox of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    /// The sandbox of commands: whether there is one, and whether they run if the system has none.
    pub mode: SandboxMode,
    /// Writable paths in addition to the project, as written.
    pub writable: Vec<String>,
    /// True if the network may be used. `None`: depends on the agent.
    pub network: Option<bool>,
    /// True if read-only agents run commands without a question that a sandbox makes harmless.
    pub unattended: bool,
    /// Paths hidden from commands in addition to the table of credentials, as written.
    pub hide: Vec<String>,
    /// Exceptions from hidden paths: names of rows, paths.
    pub show: Vec<String>,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self {
            mode: SandboxMode::default(),
            writable: vec![],
            network: None,
            unattended: true,
            hide: vec![],
            show: vec![],
        }
    }
}

/// The export of traces and metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TelemetrySettings {
    pub enabled: bool,
    /// The address of the collector; `None` for the one of the environment, or the usual one.
    pub endpoint: Option<String>,
    pub headers: Vec<(String, String)>,
    /// Send the contents of prompts, answers and calls.
    pub content: bool,
}

/// A family of models that agents of other programs name in place of a model: its newest model of
/// the provider in use answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelFamily {
    Haiku,
    Sonnet,
    Opus,
}

impl ModelFamily {
    /// Returns the family of this name.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Haiku, Self::Sonnet, Self::Opus]
            .into_iter()
            .find(|family| family.as_str() == word)
    }

    /// Returns the name of the family, which the ids of its models contain.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Haiku => "haiku",
            Self::Sonnet => "sonnet",
            Self::Opus => "opus",
        }
    }
}

/// The settings of one agent. An absent value leaves the agent unchanged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentEntry {
    /// The key, or the path of its file.
    pub name: String,
    /// The displayed name, if it differs.
    pub label: Option<String>,
    /// The purpose of the agent.
    pub description: Option<String>,
    pub mode: Option<Mode>,
    /// True if it is left out of pickers.
    pub hidden: Option<bool>,
    pub disable: bool,
    /// The model that it always uses.
    pub model: Option<ModelRef>,
    /// The family of models that it uses, in place of a certain model.
    pub family: Option<ModelFamily>,
    pub variant: Option<String>,
    pub prompt: Option<Arc<str>>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    /// `#RRGGBB` or a name.
    pub color: Option<String>,
    /// The maximum number of steps of one prompt.
    pub steps: Option<u32>,
    pub options: Map<String, Value>,
    pub rules: Rules,
    /// The location of its last mention, for display.
    pub source: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionEntry {
    /// The text as written: a path, a glob, an address.
    pub text: String,
    /// True if it is from the project.
    pub project: bool,
    pub location: SourceLocation,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandEntry {
    /// The name, without the slash.
    pub name: String,
    pub template: String,
    pub description: Option<String>,
    pub agent: Option<String>,
    pub model: Option<ModelRef>,
    /// The family of models that answers, in place of a certain model.
    pub family: Option<ModelFamily>,
    pub variant: Option<String>,
    /// True if it runs in a subagent. `None`: depends on the agent's mode.
    pub subtask: Option<bool>,
    /// The hint for its arguments.
    pub hint: Option<String>,
    /// The location, for display.
    pub source: String,
    pub location: Option<SourceLocation>,
    /// True if it is from an untrusted project, so that its shell inserts are not run.
    pub untrusted: bool,
    /// True if an untrusted project has set its agent. An agent that may do more than the session's
    /// is not used then.
    pub has_untrusted_agent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SkillSources {
    pub paths: Vec<String>,
    pub urls: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReferenceEntry {
    pub name: String,
    pub path: Option<String>,
    /// The repository that is cloned into the cache, as written.
    pub repository: Option<String>,
    /// The branch of the repository. `None`: its default branch.
    pub branch: Option<String>,
    /// The purpose of the reference.
    pub description: Option<String>,
    /// True if it is left out of the prompt.
    pub hidden: bool,
}

/// A directory that contains agents, commands and skills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    pub path: PathBuf,
    /// True if it is from the project.
    pub project: bool,
}
