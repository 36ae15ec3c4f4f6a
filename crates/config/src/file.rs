//! The declarations of a settings file. All keys are optional and have no behaviour. Each key is
//! declared once, in this file or its directory: its doc comment is the description in the JSON
//! Schema and in the table of `docs/keys.md`, its type is the basis of the check, and
//! its name is suggested for misspelt keys.
//!
//! Plain values (switches, numbers, lists) are read into the structs that the program uses, so a
//! new one is a field of [`GeneralSettings`] or of its section, with its default in `Default`.
//!
//! `declare.rs` reads three notes on a key:
//!
//! - `x-status` states that the key has no effect here (and why) or that it is not implemented yet;
//! - `x-instead` names the current spelling of an old one;
//! - `x-trust` states the effect of the key in the file of an untrusted project. Inner keys inherit
//!   it. `applies`; `waits`, for the user's trust, because `trust.rs` or `loosen.rs` finds it;
//!   `waits: KIND`, as an item of that kind whatever its value is, such as `looser rule`;
//!   `user: REASON`, ignored with that reason, because only the user may set it; `machine: REASON`,
//!   ignored in an organisation's defaults, too; `parts`, if each inner key states its own.

mod agent;
mod formatter;
mod general;
mod hook;
mod ignored;
mod language_server;
mod limits;
mod mcp;
mod provider;
mod sandbox;
mod serve;
mod telemetry;

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

pub(crate) use self::agent::EXAMPLES_KEY;
pub use self::agent::{AgentConfig, Mode, Permission};
pub(crate) use self::formatter::{Formatter, OnOrNamed};
pub use self::general::{
    AttachmentSettings, Experimental, GeneralSettings, ProvidersSettings, WebfetchSettings,
};
pub(crate) use self::hook::{HookConfig, HooksConfig};
pub use self::hook::{HookFormat, HookPoint};
use self::ignored::{AutoUpdate, Enterprise, LogLevel, Plugin, ServerConfig, Share, Watcher};
pub(crate) use self::language_server::LanguageServer;
pub(crate) use self::limits::StoreConfig;
pub use self::limits::{BudgetSettings, CompactionSettings, OutputLimits, SessionsSettings};
pub(crate) use self::mcp::{McpConfig, McpKind, OAuthChoice};
pub use self::mcp::{McpLog, OAuth};
pub(crate) use self::provider::{CostConfig, ModelConfig, ProviderConfig, TimeoutConfig};
pub use self::sandbox::SandboxMode;
pub(crate) use self::sandbox::{SandboxConfig, VariablesConfig};
pub(crate) use self::serve::ServeConfig;
pub use self::serve::ServeLimits;
pub(crate) use self::telemetry::TelemetryConfig;

/// A settings file: `opencode.json`, `opencode.jsonc`, `adjutant.json` or `adjutant.jsonc`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConfigFile {
    /// The address of this file's JSON Schema, for editors. adjutant does not fetch it.
    #[serde(rename = "$schema")]
    #[schemars(extend("x-trust" = "applies"))]
    pub schema: Option<String>,
    /// The model to use, as `provider/model`.
    #[schemars(extend("x-trust" = "applies"))]
    pub model: Option<String>,
    /// The model for titles and other small tasks, as `provider/model`.
    #[schemars(extend("x-trust" = "applies"))]
    pub small_model: Option<String>,
    /// The agent that a session starts with. It must be visible and not a subagent. Default:
    /// `build`.
    #[schemars(extend("x-trust" = "waits"))]
    pub default_agent: Option<String>,
    /// Agents by name: new ones, and changes to the built-in ones.
    #[schemars(extend("x-trust" = "parts"))]
    pub agent: Option<Ordered<AgentConfig>>,
    /// Rules for what is allowed, asked about or denied.
    #[schemars(with = "Permission")]
    #[schemars(extend("x-trust" = "waits"))]
    pub permission: Option<Permission>,
    /// Model providers by id.
    #[schemars(extend("x-trust" = "parts"))]
    pub provider: Option<Ordered<ProviderConfig>>,
    /// Changes to providers by clients. Read from your own files only.
    #[schemars(extend("x-trust" = "user: only your own settings can say who sets the endpoints of providers"))]
    pub providers: ProvidersSettings,
    /// MCP servers by name.
    #[schemars(extend("x-trust" = "waits"))]
    pub mcp: Option<Ordered<McpConfig>>,
    /// Further instruction files: paths, globs and URLs. Lists of all layers are joined.
    #[schemars(extend("x-trust" = "waits"))]
    pub instructions: Option<Vec<String>>,
    /// Slash commands by name.
    #[schemars(extend("x-trust" = "parts"))]
    pub command: Option<Ordered<CommandConfig>>,
    /// Further directories and URLs with skills.
    #[schemars(extend("x-trust" = "waits"))]
    pub skills: Option<SkillsConfig>,
    /// Further directories and repositories by name. They may be read, and are listed in the
    /// prompt.
    #[schemars(extend("x-trust" = "waits"))]
    pub references: Option<Ordered<ReferenceConfig>>,
    /// The shell that runs commands.
    #[schemars(extend("x-status" = "no effect: commands run in bash, else sh, which is how they are judged"))]
    pub shell: Option<String>,
    /// The maximum length of a tool's result; the rest goes to a file.
    #[schemars(extend("x-trust" = "applies"))]
    pub tool_output: OutputLimits,
    /// The adaptation of images to a model.
    #[schemars(extend("x-trust" = "applies"))]
    pub attachment: AttachmentSettings,
    /// The time for which sessions are stored. Read from your own files only.
    #[schemars(extend("x-trust" = "user: only your own settings can say how long sessions are stored"))]
    pub sessions: SessionsSettings,
    /// The database that stores sessions, instead of files on this machine. Read from your own
    /// files only.
    #[schemars(extend("x-trust" = "machine: only your own settings can say where sessions are stored"))]
    pub store: Option<StoreConfig>,
    /// Settings for a session that no longer fits the model's context window.
    #[schemars(extend("x-trust" = "applies"))]
    pub compaction: CompactionSettings,
    /// Limits of a turn. Read from your own files only.
    #[schemars(extend("x-trust" = "user: only your own settings can say what a turn may cost"))]
    pub budget: BudgetSettings,
    /// Settings of `adjutant serve`, for editors on other machines. Read from your own files only.
    #[schemars(extend("x-trust" = "user: only your own settings can say who may connect"))]
    pub serve: Option<ServeConfig>,
    /// Traces and metrics for an OpenTelemetry collector. Read from your own and your
    /// administrator's files only.
    #[schemars(extend("x-trust" = "machine: only your own settings can say which traces are sent, and where"))]
    pub telemetry: Option<TelemetryConfig>,
    /// Trust projects without a question: `ask` (no), or `all` (yes), for machines that only ever
    /// see repositories you trust, such as CI. Read from your own files only. Default: `ask`.
    #[schemars(extend("x-trust" = "user: a project cannot declare itself trusted"))]
    pub trust: Option<TrustConfig>,
    /// The sandbox for commands of agents: `auto` uses one if available, `required` runs no
    /// commands without one, `off` uses none; or an object. Default: `auto`.
    #[schemars(extend("x-trust" = "waits"))]
    pub sandbox: Option<SandboxConfig>,
    /// The environment variables that commands and MCP servers get, in addition to those that
    /// common tools need. Read from your own files only.
    #[schemars(extend("x-trust" = "user: only your own settings can say which variables commands get"))]
    pub environment: Option<VariablesConfig>,
    /// Access to the web.
    #[schemars(extend("x-trust" = "parts"))]
    pub webfetch: WebfetchSettings,
    /// The encoding of files that are not UTF-8 and cannot be recognised, such as `gbk`,
    /// `shift_jis`, `windows-1251` or `latin1`. `charset` in `.editorconfig` takes precedence.
    #[schemars(extend("x-trust" = "applies"))]
    pub file_encoding: Option<String>,
    /// Formatters that run after each edit: true for the built-in ones that the project uses and
    /// that are installed, or an object by name. Default: none.
    #[schemars(extend("x-trust" = "waits"))]
    pub formatter: Option<OnOrNamed<Formatter>>,
    /// Commands that run at events of a session, by name; they can refuse, change or extend what
    /// happens. A project's hooks need trust, and never replace yours.
    #[schemars(extend("x-trust" = "waits"))]
    pub hook: Option<Ordered<HookConfig>>,
    /// Hooks that are written for other programs.
    #[schemars(extend("x-trust" = "applies"))]
    pub hooks: Option<HooksConfig>,
    /// Language servers that report the errors of an edit: true for the built-in ones that are
    /// installed, or an object by name. They run in trusted projects only. Default: none.
    #[schemars(extend("x-trust" = "waits"))]
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
    #[schemars(extend("x-trust" = "applies"))]
    pub experimental: Experimental,
    #[serde(flatten)]
    pub general: GeneralSettings,
    /// Plugins: installed npm packages, or files; with options, a list of the name and an object.
    #[schemars(extend("x-trust" = "applies"))]
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
    /// The prompt; `$1`, `$2`, `$ARGUMENTS`, `@file` and `` !`command` `` are expanded.
    #[schemars(extend("x-trust" = "applies"))]
    pub template: Option<String>,
    /// Shown in the list of commands.
    #[schemars(extend("x-trust" = "applies"))]
    pub description: Option<String>,
    /// The agent that answers.
    #[schemars(extend("x-trust" = "waits"))]
    pub agent: Option<String>,
    /// The model that answers, as `provider/model`.
    #[schemars(extend("x-trust" = "applies"))]
    pub model: Option<String>,
    /// The reasoning effort.
    #[schemars(extend("x-trust" = "applies"))]
    pub variant: Option<String>,
    /// Run it in a subagent, with a session of its own.
    #[schemars(extend("x-trust" = "applies"))]
    pub subtask: Option<bool>,
    /// The hint for its arguments.
    #[serde(rename = "argument-hint")]
    #[schemars(extend("x-trust" = "applies"))]
    pub argument_hint: Option<String>,
}

/// Places to look for skills.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SkillsConfig {
    /// Directories; `~/` is home, relative ones start at the session's directory.
    pub paths: Option<Vec<String>>,
    /// URLs of directories with skills, each with an `index.json` that lists them and their files.
    /// They are fetched when a session starts, and cached.
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
    /// A repository: a URL, `owner/name` on GitHub, or `host/owner/name`. It is cloned into the
    /// cache.
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

/// The projects that are trusted without a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum TrustConfig {
    Ask,
    All,
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
