//! The declarations of a settings file. All keys are optional and have no behaviour. Each key is
//! declared once, in this file or its directory: its doc comment is the description in the JSON
//! Schema and in the table of `crates/config/README.md`, its type is the basis of the check, and
//! its name is suggested for misspelt keys.
//!
//! `config/declare.rs` reads two notes on a key: `x-status` states that the key has no effect here
//! (and why) or that it is not implemented yet; `x-instead` names the current spelling of an old
//! one.

mod agent;
mod formatter;
mod hook;
mod ignored;
mod language_server;
mod limits;
mod mcp;
mod provider;
mod sandbox;
mod serve;

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

pub(crate) use self::agent::LOOKING;
pub use self::agent::Mode;
pub use self::agent::{AgentConfig, PERMISSIONS, Permission};
pub(crate) use self::formatter::{Formatter, OnOrNamed};
pub(crate) use self::hook::{HookConfig, HooksConfig};
pub use self::hook::{HookFormat, HookPoint};
use self::ignored::{AutoUpdate, Enterprise, LogLevel, Plugin, ServerConfig, Share, Watcher};
pub(crate) use self::language_server::LanguageServer;
pub(crate) use self::limits::{
    BudgetConfig, CompactionConfig, SessionsConfig, StoreConfig, ToolOutputConfig,
};
pub(crate) use self::mcp::{McpConfig, McpKind, OAuthChoice};
pub use self::mcp::{McpLog, OAuth};
pub(crate) use self::provider::{CostConfig, ModelConfig, ProviderConfig, TimeoutConfig};
pub use self::sandbox::SandboxMode;
pub(crate) use self::sandbox::{SandboxConfig, VariablesConfig};
pub(crate) use self::serve::ServeConfig;
use base::approvals::Approvals;

/// A settings file: `opencode.json`, `opencode.jsonc`, `adjutant.json` or `adjutant.jsonc`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConfigFile {
    /// The address of this file's JSON Schema, for editors. adjutant does not fetch it.
    #[serde(rename = "$schema")]
    pub schema: Option<String>,
    /// The model to use, as `provider/model`.
    pub model: Option<String>,
    /// The model for titles and other small tasks, as `provider/model`.
    pub small_model: Option<String>,
    /// The agent that a session starts with. It must be visible and not a subagent. Default: `build`.
    pub default_agent: Option<String>,
    /// Agents by name: new ones, and changes to the built-in ones.
    pub agent: Option<Ordered<AgentConfig>>,
    /// Rules for what is allowed, asked about or denied.
    #[schemars(with = "Permission")]
    pub permission: Option<Permission>,
    /// Model providers by id.
    pub provider: Option<Ordered<ProviderConfig>>,
    /// Providers that are not used even if a key for them is found. A project's list is added to yours.
    pub disabled_providers: Option<Vec<String>>,
    /// If set, only these providers are used. A project's list only narrows yours.
    pub enabled_providers: Option<Vec<String>>,
    /// MCP servers by name.
    pub mcp: Option<Ordered<McpConfig>>,
    /// Further instruction files: paths, globs and addresses. Lists of all layers are joined.
    pub instructions: Option<Vec<String>>,
    /// Slash commands by name.
    pub command: Option<Ordered<CommandConfig>>,
    /// Further places to look for skills.
    pub skills: Option<SkillsConfig>,
    /// Further directories and repositories by name. They may be read, and are listed in the prompt.
    pub references: Option<Ordered<ReferenceConfig>>,
    /// The shell that runs commands.
    #[schemars(extend("x-status" = "no effect: commands run in bash, else sh, which is how they are judged"))]
    pub shell: Option<String>,
    /// The maximum length of a tool's result; the rest goes to a file.
    pub tool_output: Option<ToolOutputConfig>,
    /// How images are adapted to a model.
    pub attachment: Option<AttachmentConfig>,
    /// How long sessions are stored. Applies only in your own settings, not in a project's.
    pub sessions: Option<SessionsConfig>,
    /// The database that stores sessions, instead of files on this machine. Read from your own files only.
    pub store: Option<StoreConfig>,
    /// Settings for a session that no longer fits the model's context window.
    pub compaction: Option<CompactionConfig>,
    /// Limits of a turn. Read from your own files only.
    pub budget: Option<BudgetConfig>,
    /// How `adjutant serve` serves editors on other machines. Read from your own files only.
    pub serve: Option<ServeConfig>,
    /// Record the project's files so that a turn can be undone. Default: true.
    pub snapshot: Option<bool>,
    /// The maximum depth of subagents that start subagents. Default: 1.
    #[schemars(range(min = 0, max = 16))]
    pub subagent_depth: Option<u32>,
    /// Text sent while a turn runs reaches the model between two steps of that turn; if false, it
    /// waits for the turn to end. Default: true.
    pub steer: Option<bool>,
    /// The approvals of a new session: `default` asks if the rules say so, and about risks that the
    /// sandbox does not contain; `ask` also asks about every edit, every MCP tool and every command
    /// that is not known to be harmless; `sandboxed` is like the default, but skips questions of
    /// rules about commands without network and changes in the project, if a sandbox contains them.
    /// A deny stays a deny. Can be changed in each session. Default: `default`.
    pub approvals: Option<Approvals>,
    /// Projects that are trusted without a question: `ask`, or `all` for machines that only ever see
    /// repositories you trust, such as CI. Read from your own files only. Default: `ask`.
    pub trust: Option<TrustConfig>,
    /// The sandbox for commands of agents: `auto` uses one if available, `required` runs no
    /// commands without one, `off` uses none; or an object. Default: `auto`.
    pub sandbox: Option<SandboxConfig>,
    /// The environment variables that commands and MCP servers get, in addition to those that
    /// common tools need. Read from your own files only.
    pub environment: Option<VariablesConfig>,
    /// Access to the web.
    pub webfetch: Option<WebfetchConfig>,
    /// The encoding of files that are not UTF-8 and cannot be recognised, such as `gbk`, `shift_jis`, `windows-1251`
    /// or `latin1`. `charset` in `.editorconfig` takes precedence.
    pub file_encoding: Option<String>,
    /// Formatters that run after each edit: true for the built-in ones that the project uses and
    /// that are installed, or an object by name. Default: none.
    pub formatter: Option<OnOrNamed<Formatter>>,
    /// Commands that run at events of a session, by name; they can refuse, change or extend what
    /// happens. A project's hooks need trust, and never replace yours.
    pub hook: Option<Ordered<HookConfig>>,
    /// Hooks that are written for other programs.
    pub hooks: Option<HooksConfig>,
    /// Custom tools that replace adjutant's own tools of the same name. Read from your own files only.
    pub replace_tools: Option<Vec<String>>,
    /// Language servers that report the errors of an edit: true for the built-in ones that are installed, or an object by name.
    /// They run in trusted projects only. Default: none.
    pub lsp: Option<OnOrNamed<LanguageServer>>,
    /// Paths that a file watcher leaves out.
    #[schemars(extend("x-status" = "no effect: adjutant needs no file watcher"))]
    pub watcher: Option<Watcher>,
    /// The level of the log.
    #[serde(rename = "logLevel")]
    #[schemars(extend("x-status" = "no effect: the environment variable ADJUTANT_LOG sets the level"))]
    pub log_level: Option<LogLevel>,
    /// Your name, as OpenCode shows it.
    #[schemars(extend("x-status" = "no effect: the editor shows the user's name"))]
    pub username: Option<String>,
    /// Settings that may still change.
    pub experimental: Option<ExperimentalConfig>,
    /// Plugins: installed npm packages, or files; with options, a list of the name and an object.
    pub plugin: Option<Vec<Plugin>>,
    /// The HTTP server of OpenCode.
    #[schemars(extend("x-status" = "no effect: `serve` configures the server for editors on other machines"))]
    pub server: Option<ServerConfig>,
    /// Whether sessions are shared on the web.
    #[schemars(extend("x-status" = "no effect: adjutant never shares a session"))]
    pub share: Option<Share>,
    /// Whether the program updates itself.
    #[schemars(extend("x-status" = "no effect: adjutant never updates itself"))]
    pub autoupdate: Option<AutoUpdate>,
    /// The address of an organisation's server.
    #[schemars(extend("x-status" = "no effect: adjutant has no sharing server"))]
    pub enterprise: Option<Enterprise>,
    /// Colours of OpenCode's terminal interface.
    #[schemars(extend("x-status" = "no effect: the editor has its own colours"))]
    pub theme: Option<Value>,
    /// Keys of OpenCode's terminal interface.
    #[schemars(extend("x-status" = "no effect: the editor has its own keys"))]
    pub keybinds: Option<Value>,
    /// Settings of OpenCode's terminal interface.
    #[schemars(extend("x-status" = "no effect: the editor is the interface"))]
    pub tui: Option<Value>,
    /// The layout of OpenCode's terminal interface.
    #[schemars(extend("deprecated" = true, "x-status" = "no effect: the editor is the interface"))]
    pub layout: Option<Value>,
    /// Old spelling of `agent` for primary agents.
    #[schemars(extend("deprecated" = true, "x-instead" = "agent"))]
    pub mode: Option<Ordered<AgentConfig>>,
    /// Old spelling of `permission`: tools by name, true or false.
    #[schemars(extend("deprecated" = true, "x-instead" = "permission"))]
    pub tools: Option<Ordered<bool>>,
    /// Old spelling of `share`.
    #[schemars(extend("deprecated" = true, "x-instead" = "share"))]
    pub autoshare: Option<bool>,
    /// Old spelling of `references`.
    #[schemars(extend("deprecated" = true, "x-instead" = "references"))]
    pub reference: Option<Ordered<ReferenceConfig>>,
}

/// A slash command.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CommandConfig {
    /// The prompt; `$1`, `$2`, `$ARGUMENTS`, `@file` and `` !`command` `` are replaced.
    pub template: Option<String>,
    /// Shown in the list of commands.
    pub description: Option<String>,
    /// The agent that answers.
    pub agent: Option<String>,
    /// The model that answers, as `provider/model`.
    pub model: Option<String>,
    /// The reasoning effort.
    pub variant: Option<String>,
    /// Run it in a subagent, with a session of its own.
    pub subtask: Option<bool>,
    /// The hint for its arguments.
    #[serde(rename = "argument-hint")]
    pub argument_hint: Option<String>,
}

/// Where to look for skills.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SkillsConfig {
    /// Directories; `~/` is home, relative ones start at the session's directory.
    pub paths: Option<Vec<String>>,
    /// Addresses of folders on the web with skills: `index.json` in it names them and their files.
    /// They are fetched when a session begins, and stored.
    pub urls: Option<Vec<String>>,
}

/// A further directory or repository.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum ReferenceConfig {
    Path(String),
    Full(ReferenceOptions),
}

/// A further directory or repository.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ReferenceOptions {
    /// The directory.
    pub path: Option<String>,
    /// A repository: an address, `owner/name` on GitHub, or `host/owner/name`. It is cloned into the cache.
    pub repository: Option<String>,
    /// The branch of the repository. Default: its own default.
    pub branch: Option<String>,
    /// Its purpose; without a description, it is not listed in the prompt.
    pub description: Option<String>,
    /// Do not list it in the prompt; it may still be read.
    pub hidden: Option<bool>,
    /// Old spelling of `repository`.
    #[schemars(extend("deprecated" = true, "x-instead" = "repository"))]
    pub git: Option<String>,
}

/// How attachments are made to fit.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AttachmentConfig {
    /// Images.
    pub image: Option<ImageConfig>,
}

/// How images are made to fit.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ImageConfig {
    /// Scale larger images down. If false, they are left out, and the model is informed. Default: true.
    pub auto_resize: Option<bool>,
    /// In pixels. Default: 2000.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_width: Option<u32>,
    /// In pixels. Default: 2000.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_height: Option<u32>,
    /// The maximum size in base64, in bytes. Default: 5242880.
    pub max_base64_bytes: Option<u64>,
}

/// Settings that may still change.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ExperimentalConfig {
    /// Continue the turn after you have rejected a call without a message. Without a user, a turn
    /// continues anyway until it repeats the same call. Default: false.
    pub continue_loop_on_deny: Option<bool>,
    /// The time limit of a call of an MCP tool, in milliseconds. Default: 60000.
    pub mcp_timeout: Option<u64>,
    /// The maximum size of the MCP tools in a request, in bytes. If they are larger, the model gets
    /// a tool to search for them instead. Default: 60000.
    pub mcp_budget: Option<u64>,
    /// Tools that only primary agents get.
    pub primary_tools: Option<Vec<String>>,
    /// A tool for several calls at once.
    #[schemars(extend("x-status" = "no effect: calls of one step already run in parallel"))]
    pub batch_tool: Option<bool>,
    /// Show pasted text in full.
    #[schemars(extend("x-status" = "no effect: the editor shows what you paste"))]
    pub disable_paste_summary: Option<bool>,
    /// Send traces.
    #[serde(rename = "openTelemetry")]
    #[schemars(extend("x-status" = "no effect: adjutant sends no telemetry"))]
    pub open_telemetry: Option<bool>,
    /// Policies of OpenCode's servers.
    #[schemars(extend("x-status" = "no effect: use permission"))]
    pub policies: Option<Vec<Value>>,
}

/// Which projects are trusted without a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum TrustConfig {
    Ask,
    All,
}

/// Access to the web.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WebfetchConfig {
    /// Hosts of this machine and its network that agents may fetch from, if the rules allow it:
    /// `localhost:3000`, `*.corp.example`. All others are refused regardless of the rules.
    pub private: Option<Vec<String>>,
}

/// Keys and values in the order they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered<T>(pub Vec<(String, T)>);

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Ordered<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Ordered(entries))
            }
        }
        deserializer.deserialize_map(Entries(std::marker::PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Ordered<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("MapOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({ "type": "object", "additionalProperties": value })
    }
}
