//! Resolved settings, after all layers are joined: no `Option` if there is a default.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

pub use super::file::{McpLog, Mode, OAuth, Ordered, SandboxMode};
pub use super::formatter::FormatterEntry;
pub use super::hook::{HookEntry, HookFormat, HookPoint};
pub use super::language_server::ServerEntry;
pub use super::mcp::{McpEntry, Transport};
use super::node::SourceLocation;
use super::problem::Problem;
pub use super::script::{ScriptEntry, ScriptKind};
pub use super::serve::{ServeLimits, ServeSettings, TlsFiles, TokenEntry, TrustedProxy};
use base::approvals::Approvals;
use base::store_location::DatabaseLocation;
use base::variables::Variables;
use permission::Rules;
pub use providers::entry::{
    Login, ModelEntry, Price, ProviderEntry, Rates, RequestTimeouts, Secret,
};
use transcript::ModelRef;

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
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
    pub disabled_providers: Vec<String>,
    /// If set, only these providers are used.
    pub enabled_providers: Option<Vec<String>>,
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
    /// Built-in tools that custom ones may replace.
    pub replace_tools: Vec<String>,
    /// Further instruction files: paths, globs, addresses.
    pub instructions: Vec<InstructionEntry>,
    pub commands: Vec<CommandEntry>,
    /// Sources of skills in addition to the usual folders.
    pub skills: SkillSources,
    pub references: Vec<ReferenceEntry>,
    /// The limits of a tool's result.
    pub tool_output: OutputLimits,
    /// The limits to which pictures are resized.
    pub images: ImageSettings,
    /// The number of unused days after which a session may be deleted, if any. A project cannot set
    /// it.
    pub keep_days: Option<u64>,
    /// The database that stores sessions. `None`: files on this machine.
    pub store: Option<DatabaseLocation>,
    /// The treatment of a session that outgrows the context window.
    pub compaction: CompactionSettings,
    pub budget: BudgetSettings,
    /// The settings of `adjutant serve`. A project cannot set them.
    pub serve: ServeSettings,
    /// Whether snapshots of the project's files are stored.
    pub snapshot: bool,
    /// The maximum depth of nested subagents.
    pub subagent_depth: u32,
    /// Whether text sent during a turn reaches the model between two steps of it.
    pub steer: bool,
    /// The approvals that a session starts with.
    pub approvals: Approvals,
    /// Whether every project is trusted without a question.
    pub trust_all: bool,
    /// Whether the user trusts this project, or every project.
    pub trusted: bool,
    /// The sandbox of commands.
    pub sandbox: SandboxSettings,
    /// The selection of the user's variables that commands and servers get.
    pub variables: Variables,
    /// Hosts of this machine and its network that may be fetched from.
    pub webfetch_private: Vec<String>,
    pub experimental: Experimental,
    /// Directories that hold agents, commands and skills, lowest first.
    pub directories: Vec<Directory>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: None,
            small_model: None,
            default_agent: None,
            default_agent_location: None,
            agents: Vec::new(),
            agents_location: None,
            unread: Vec::new(),
            permission: Rules::default(),
            providers: Vec::new(),
            disabled_providers: Vec::new(),
            enabled_providers: None,
            mcp: Vec::new(),
            file_encoding: None,
            formatters: Vec::new(),
            language_servers: Vec::new(),
            hooks: Vec::new(),
            scripts: Vec::new(),
            replace_tools: Vec::new(),
            instructions: Vec::new(),
            commands: Vec::new(),
            skills: SkillSources::default(),
            references: Vec::new(),
            tool_output: OutputLimits::default(),
            images: ImageSettings::default(),
            keep_days: None,
            store: None,
            compaction: CompactionSettings {
                auto: true,
                prune: true,
                tail_turns: 2,
                preserve_recent_tokens: None,
                reserved: None,
            },
            budget: BudgetSettings::default(),
            serve: ServeSettings::default(),
            snapshot: true,
            subagent_depth: 1,
            steer: true,
            approvals: Approvals::Default,
            trust_all: false,
            trusted: false,
            sandbox: SandboxSettings::default(),
            variables: Variables::default(),
            webfetch_private: Vec::new(),
            experimental: Experimental {
                continue_loop_on_deny: false,
                mcp_timeout: Duration::from_secs(60),
                mcp_budget: 60_000,
                primary_tools: Vec::new(),
            },
            directories: Vec::new(),
        }
    }
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
    /// Whether commands have a sandbox, and whether they run if the system has none.
    pub mode: SandboxMode,
    /// Writable paths in addition to the project, as written.
    pub writable: Vec<String>,
    /// Whether the network may be used. `None`: depends on the agent.
    pub network: Option<bool>,
    /// Whether read-only agents run commands without a question that a sandbox makes harmless.
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

/// A family of models that agents of other programs name in place of a model: its newest model of
/// the provider in use answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelFamily {
    Haiku,
    Sonnet,
    Opus,
}

impl ModelFamily {
    pub(crate) fn parse(word: &str) -> Option<Self> {
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
    /// Whether it is left out of pickers.
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
    /// Whether it is from the project.
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
    /// Whether it runs in a subagent. `None`: depends on the agent's mode.
    pub subtask: Option<bool>,
    /// The hint for its arguments.
    pub hint: Option<String>,
    /// The location, for display.
    pub source: String,
    pub location: Option<SourceLocation>,
    /// Whether it is from an untrusted project, so that its shell inserts are not run.
    pub untrusted: bool,
    /// Whether an untrusted project has set its agent. An agent that may do more than the session's
    /// is not used then.
    pub lent: bool,
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
    /// Whether it is left out of the prompt.
    pub hidden: bool,
}

/// The limits of a tool's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimits {
    pub lines: usize,
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

/// The limits to which pictures are resized for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSettings {
    /// Whether larger pictures are resized.
    pub auto_resize: bool,
    /// In pixels; a wider picture is resized before it is sent.
    pub max_width: u32,
    pub max_height: u32,
    pub max_base64_bytes: usize,
}

impl Default for ImageSettings {
    fn default() -> Self {
        Self {
            auto_resize: true,
            max_width: 2_000,
            max_height: 2_000,
            max_base64_bytes: 5 << 20,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetSettings {
    pub steps: u32,
    /// The maximum cost in US dollars.
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

/// The treatment of a session that outgrows the context window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionSettings {
    pub auto: bool,
    pub prune: bool,
    /// The number of recent turns that are preserved literally.
    pub tail_turns: u32,
    /// The maximum number of their tokens. `None`: a quarter of the window, 2000 to 8000.
    pub preserve_recent_tokens: Option<u64>,
    /// The number of tokens reserved for the answer. `None`: those of the longest possible answer.
    pub reserved: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Experimental {
    /// Whether a turn continues after a rejection without a message.
    pub continue_loop_on_deny: bool,
    /// The timeout of a call of an MCP tool.
    pub mcp_timeout: Duration,
    /// The maximum size of the MCP tools in a request, in bytes. Beyond it, tools are found by
    /// search.
    pub mcp_budget: usize,
    /// Tools that only primary agents get.
    pub primary_tools: Vec<String>,
}

/// A directory that contains agents, commands and skills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    pub path: PathBuf,
    /// Whether it is from the project.
    pub project: bool,
}
