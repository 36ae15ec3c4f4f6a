//! What the settings mean, once all layers are joined: no `Option` where there is a default.

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
use base::store_place::DatabasePlace;
use base::variables::Variables;
use permission::Rules;
pub use providers::entry::{Login, ModelEntry, Price, ProviderEntry, Rates, RequestTimeouts, Secret};
use transcript::ModelRef;

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub model: Option<ModelRef>,
    /// The model for titles and other small work.
    pub small_model: Option<ModelRef>,
    /// The agent a session starts with; not checked here, see `agent::registry`.
    pub default_agent: Option<String>,
    pub default_agent_location: Option<SourceLocation>,
    /// Agents in the order they were first mentioned; changes to built-in ones among them.
    pub agents: Vec<AgentEntry>,
    /// Where the last of them was written.
    pub agents_location: Option<SourceLocation>,
    /// What could not be read and may have denied something.
    pub unread: Vec<Problem>,
    /// The general rules, lowest layer first, with their sources.
    pub permission: Rules,
    /// Providers in the order they were first mentioned.
    pub providers: Vec<ProviderEntry>,
    pub disabled_providers: Vec<String>,
    /// If set, only these providers are used.
    pub enabled_providers: Option<Vec<String>>,
    pub mcp: Vec<McpEntry>,
    /// What may run after an edit, in order.
    pub formatters: Vec<FormatterEntry>,
    /// The language servers that may be asked about files, in order.
    pub language_servers: Vec<ServerEntry>,
    /// Commands that run when something happens in a session, in order.
    pub hooks: Vec<HookEntry>,
    /// Custom tools and plugins, in the order they are loaded.
    pub scripts: Vec<ScriptEntry>,
    /// Tools of ours whose place custom ones may take.
    pub replace_tools: Vec<String>,
    /// Further instruction files: paths, globs, addresses.
    pub instructions: Vec<InstructionEntry>,
    pub commands: Vec<CommandEntry>,
    /// Where to look for skills besides the usual folders.
    pub skills: SkillSources,
    pub references: Vec<ReferenceEntry>,
    /// How long a tool's result may be.
    pub tool_output: OutputLimits,
    /// How pictures are made to fit.
    pub images: ImageSettings,
    /// After how many unused days a session may go, if ever. A project has no say in it.
    pub keep_days: Option<u64>,
    /// The database that keeps sessions; none: files on this machine do.
    pub store: Option<DatabasePlace>,
    /// What happens when a session outgrows the context window.
    pub compaction: CompactionSettings,
    pub budget: BudgetSettings,
    /// How editors on other machines are served. A project has no say in it.
    pub serve: ServeSettings,
    /// Whether states of the project's files are kept.
    pub snapshot: bool,
    /// How deep subagents may start subagents.
    pub subagent_depth: u32,
    /// Whether text sent during a turn reaches the model between two steps of it.
    pub steer: bool,
    /// How much is asked where a session begins.
    pub approvals: Approvals,
    /// Whether every project is trusted without a question.
    pub trust_all: bool,
    /// The user trusts this very project, or every one.
    pub trusted: bool,
    /// What the system is to forbid commands.
    pub sandbox: SandboxSettings,
    /// Which of the user's variables commands and servers get.
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
    /// Why more is asked than the rules ask: the first of what could not be read and may have denied something, as the
    /// end of a sentence. `None` if everything could be read.
    pub fn doubt(&self) -> Option<String> {
        let first = self.unread.first()?;
        Some(format!("settings that could not be used may deny it: {first}"))
    }
}

/// What the system is to forbid commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    /// Whether commands have a sandbox, and whether they run where the system has none.
    pub mode: SandboxMode,
    /// What may be written besides the project, as it was written.
    pub writable: Vec<String>,
    /// Whether the network may be used; none: depends on the agent.
    pub network: Option<bool>,
    /// Whether agents that only read run without a question what a sandbox renders harmless.
    pub unattended: bool,
    /// What is hidden from commands besides the table of credentials, as it was written.
    pub hide: Vec<String>,
    /// What of all that commands see: names of rows, paths.
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

/// What the settings say about one agent. Everything not said is left as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentEntry {
    /// What it is called: the key, or the file's path.
    pub name: String,
    /// What people see, where that differs.
    pub label: Option<String>,
    /// What it is good for.
    pub description: Option<String>,
    pub mode: Option<Mode>,
    /// Whether pickers leave it out.
    pub hidden: Option<bool>,
    pub disable: bool,
    /// The model it always uses.
    pub model: Option<ModelRef>,
    pub variant: Option<String>,
    pub prompt: Option<Arc<str>>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    /// `#RRGGBB` or a name.
    pub color: Option<String>,
    /// How many steps one prompt may take.
    pub steps: Option<u32>,
    pub options: Map<String, Value>,
    pub rules: Rules,
    /// Where it was last said something about, for people.
    pub source: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionEntry {
    /// As it was written: a path, a glob, an address.
    pub text: String,
    /// It came with the project.
    pub project: bool,
    pub location: SourceLocation,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandEntry {
    /// What is typed after the slash.
    pub name: String,
    pub template: String,
    pub description: Option<String>,
    pub agent: Option<String>,
    pub model: Option<ModelRef>,
    pub variant: Option<String>,
    /// Whether a subagent does it; none leaves it to the agent's mode.
    pub subtask: Option<bool>,
    /// Where it was written, for people.
    pub source: String,
    pub location: Option<SourceLocation>,
    /// It came with a project that is not trusted: its shell inserts are left as they are.
    pub untrusted: bool,
    /// A project that is not trusted has a say in which agent answers: one that may do more than the
    /// session's does not.
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
    /// The repository that is cloned into the cache, as it was written.
    pub repository: Option<String>,
    /// Its branch; none for the repository's default.
    pub branch: Option<String>,
    /// What it is good for.
    pub description: Option<String>,
    /// The prompt leaves it out.
    pub hidden: bool,
}

/// How long a tool's result may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimits {
    pub lines: usize,
    pub bytes: usize,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self { lines: 2_000, bytes: 50 << 10 }
    }
}

/// How pictures are made to fit a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSettings {
    /// Whether larger ones are made smaller.
    pub auto_resize: bool,
    /// In pixels; a wider picture is made smaller before it is sent.
    pub max_width: u32,
    pub max_height: u32,
    pub max_base64_bytes: usize,
}

impl Default for ImageSettings {
    fn default() -> Self {
        Self { auto_resize: true, max_width: 2_000, max_height: 2_000, max_base64_bytes: 5 << 20 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetSettings {
    pub steps: u32,
    /// US dollars at most.
    pub cost: Option<f64>,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self { steps: 2_000, cost: None }
    }
}

/// What happens when a session outgrows the context window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionSettings {
    pub auto: bool,
    pub prune: bool,
    /// How many of the latest turns are kept word for word.
    pub tail_turns: u32,
    /// How many tokens of them at most; none is a quarter of the window, 2000 to 8000.
    pub preserve_recent_tokens: Option<u64>,
    /// How many tokens are kept free for the answer; none: as many as the longest one takes.
    pub reserved: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Experimental {
    /// Go on with the turn after a rejection without words.
    pub continue_loop_on_deny: bool,
    /// How long a call of an MCP tool may take.
    pub mcp_timeout: Duration,
    /// What the tools of MCP servers may take of a request, in bytes, before they are searched for.
    pub mcp_budget: usize,
    /// Tools that only primary agents have.
    pub primary_tools: Vec<String>,
}

/// A directory that holds agents, commands and skills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    pub path: PathBuf,
    /// It came with the project.
    pub project: bool,
}
