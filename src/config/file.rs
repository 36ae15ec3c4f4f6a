//! Exactly what a settings file may say. Everything is optional and nothing here acts. Each key is
//! declared once, in this file and those of its folder: its doc comment is the description in the JSON Schema and in the
//! table of `src/config/README.md`, its type is what is checked, its name is what a misspelt key is compared with.
//!
//! Two notes on a key are read by `config/declare.rs`: `x-status` says that a key does nothing here
//! (and why) or that it waits for a feature; `x-instead` names the modern spelling of an old one.

#![expect(dead_code, reason = "a file may say more than has an effect; all of it is declared, checked and documented")]

mod limits;

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

pub(crate) use self::limits::{Budget, Compaction, Sessions, ToolOutput};
use crate::permission::Action;

/// A settings file: `opencode.json`, `opencode.jsonc`, `adjutant.json` or `adjutant.jsonc`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct File {
    /// Where editors find the schema of this file. Nothing is fetched.
    #[serde(rename = "$schema")]
    pub schema: Option<String>,
    /// The model to use, as `provider/model`.
    pub model: Option<String>,
    /// The model for titles and other small work, as `provider/model`.
    pub small_model: Option<String>,
    /// The agent a session starts with. It must be visible and no subagent. Default: `build`.
    pub default_agent: Option<String>,
    /// Agents by name: new ones, and changes to the built-in ones.
    pub agent: Option<Ordered<Agent>>,
    /// What is allowed without asking, asked, or denied.
    #[schemars(with = "Permission")]
    pub permission: Option<Permission>,
    /// Model providers by id.
    pub provider: Option<Ordered<Provider>>,
    /// Providers that are not used even if a key for them is found.
    pub disabled_providers: Option<Vec<String>>,
    /// If set, only these providers are used.
    pub enabled_providers: Option<Vec<String>>,
    /// MCP servers by name.
    pub mcp: Option<Ordered<Mcp>>,
    /// Further instruction files: paths, globs and addresses. Lists of all layers are joined.
    pub instructions: Option<Vec<String>>,
    /// Slash commands by name.
    pub command: Option<Ordered<Command>>,
    /// Where to look for skills besides the usual folders.
    pub skills: Option<Skills>,
    /// Further directories and repositories by name; allowed to be read, listed in the prompt.
    pub references: Option<Ordered<Reference>>,
    /// The shell that runs commands.
    #[schemars(extend("x-status" = "no effect: commands run in bash, else sh, which is how they are judged"))]
    pub shell: Option<String>,
    /// How long a tool's result may be before the rest goes to a file.
    pub tool_output: Option<ToolOutput>,
    /// How images are made to fit a model.
    pub attachment: Option<Attachment>,
    /// How long sessions are kept. Counts in your own settings only, not in a project's.
    pub sessions: Option<Sessions>,
    /// What happens when a session outgrows the model's context window.
    pub compaction: Option<Compaction>,
    /// What a turn may take before it ends by itself. Read from your own files only.
    pub budget: Option<Budget>,
    /// Keep states of the project's files so that a turn can be undone. Default: true.
    pub snapshot: Option<bool>,
    /// How deep subagents may start subagents. Default: 1.
    #[schemars(range(min = 0, max = 16))]
    pub subagent_depth: Option<u32>,
    /// Text sent while a turn runs reaches the model between two steps of that turn; if false, it
    /// waits for the turn to end. Default: true.
    pub steer: Option<bool>,
    /// Projects that are trusted without a question: `ask`, or `all` for machines that only ever see
    /// repositories you trust, such as CI. Read from your own files only. Default: `ask`.
    pub trust: Option<Trust>,
    /// What the system forbids the commands of an agent, beyond what is asked: `auto` where it can,
    /// `required` runs no commands where it cannot, `off`; or an object. Default: `auto`.
    pub sandbox: Option<Sandbox>,
    /// Which variables of your environment commands and MCP servers get, beyond those that the usual
    /// tools need. Read from your own files only.
    pub environment: Option<Variables>,
    /// What the web is to the agents.
    pub webfetch: Option<Webfetch>,
    /// Formatters to run after an edit: true for the usual ones, or by name. None is run yet.
    pub formatter: Option<Tools<Formatter>>,
    /// Language servers: true for the usual ones, or by name. None is started yet.
    pub lsp: Option<Tools<LanguageServer>>,
    /// Paths that a file watcher leaves out.
    #[schemars(extend("x-status" = "no effect: adjutant needs no file watcher"))]
    pub watcher: Option<Watcher>,
    /// How much is logged. Not read yet: the environment variable `ADJUTANT_LOG` says what.
    #[serde(rename = "logLevel")]
    pub log_level: Option<LogLevel>,
    /// Your name, as OpenCode shows it.
    #[schemars(extend("x-status" = "no effect: the editor shows who speaks"))]
    pub username: Option<String>,
    /// Things that may still change.
    pub experimental: Option<Experimental>,
    /// JavaScript plugins.
    #[schemars(extend("x-status" = "no effect: adjutant does not run JavaScript plugins"))]
    pub plugin: Option<Vec<Plugin>>,
    /// The HTTP server of OpenCode.
    #[schemars(extend("x-status" = "no effect: adjutant has no server, it speaks to its editor"))]
    pub server: Option<Server>,
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
    pub mode: Option<Ordered<Agent>>,
    /// Old spelling of `permission`: tools by name, true or false.
    #[schemars(extend("deprecated" = true, "x-instead" = "permission"))]
    pub tools: Option<Ordered<bool>>,
    /// Old spelling of `share`.
    #[schemars(extend("deprecated" = true, "x-instead" = "share"))]
    pub autoshare: Option<bool>,
    /// Old spelling of `references`.
    #[schemars(extend("deprecated" = true, "x-instead" = "references"))]
    pub reference: Option<Ordered<Reference>>,
}

/// An agent, in a settings file or in the front matter of a Markdown file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Agent {
    /// The name people see. Default: the key, or the file's path.
    pub name: Option<String>,
    /// What it is good for: shown in mode lists, and to the model that chooses a subagent.
    pub description: Option<String>,
    /// `primary` agents are the modes of a session, `subagent`s are started by other agents, `all` are both.
    pub mode: Option<Mode>,
    /// Leave it out of pickers; it can still be used by name.
    pub hidden: Option<bool>,
    /// Remove this agent, a built-in one included.
    pub disable: Option<bool>,
    /// The model it always uses, as `provider/model`.
    pub model: Option<String>,
    /// The reasoning effort it uses, where its model has one of that name.
    pub variant: Option<String>,
    /// Its system prompt, in place of the one for the model's family.
    pub prompt: Option<String>,
    /// Sampling temperature.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub top_p: Option<f64>,
    /// `#RRGGBB`, or one of primary, secondary, accent, success, warning, error, info.
    #[schemars(regex(pattern = "^(#[0-9a-fA-F]{6}|primary|secondary|accent|success|warning|error|info)$"))]
    pub color: Option<String>,
    /// How many steps one prompt may take.
    #[schemars(range(min = 1))]
    pub steps: Option<u32>,
    /// Sent to the provider with every request of this agent.
    pub options: Option<Map<String, Value>>,
    /// Rules for this agent, after the general ones.
    #[schemars(with = "Permission")]
    pub permission: Option<Permission>,
    /// Old spelling of `steps`.
    #[serde(rename = "maxSteps")]
    #[schemars(range(min = 1), extend("deprecated" = true, "x-instead" = "steps"))]
    pub max_steps: Option<u32>,
    /// Old spelling of `permission`: tools by name, true or false.
    #[schemars(extend("deprecated" = true, "x-instead" = "permission"))]
    pub tools: Option<Ordered<bool>>,
    /// Everything else goes to the provider as an option.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Who may use an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Mode {
    Primary,
    Subagent,
    All,
}

/// The keys of a permission object that we know, and what they are about. MCP servers bring more.
pub(crate) const PERMISSIONS: [(&str, &str); 20] = [
    ("*", "Every tool that has no rule of its own."),
    ("read", "Reading a file; patterns are paths relative to the project."),
    ("edit", "Changing files with edit, multiedit, write and apply_patch; patterns are paths."),
    ("list", "Listing a directory; patterns are paths."),
    ("glob", "Finding files by name; patterns are globs."),
    ("grep", "Searching in files; patterns are the expressions searched for."),
    ("bash", "Running commands; patterns are command lines, judged one command at a time."),
    ("task", "Starting a subagent; patterns are agent names."),
    ("skill", "Loading a skill; patterns are skill names."),
    ("webfetch", "Fetching a page; patterns are addresses."),
    ("websearch", "Searching the web; patterns are queries."),
    ("codesearch", "Searching public code; patterns are queries."),
    ("lsp", "Asking a language server."),
    ("todowrite", "Keeping the plan."),
    ("todoread", "Reading the plan."),
    ("question", "Asking you a question."),
    ("plan_enter", "Proposing to switch to planning."),
    ("plan_exit", "Proposing to leave planning."),
    ("external_directory", "Touching anything outside the project; patterns are directories."),
    ("doom_loop", "Going on when the model repeats itself."),
];

/// Rules: `"ask"` for everything, or an action per tool, or patterns with an action each per tool.
/// Kept as a tree, because the order counts; see `config/rules.rs`.
#[derive(Debug, Default)]
pub(crate) struct Permission;

impl<'de> Deserialize<'de> for Permission {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_ignored_any(serde::de::IgnoredAny).map(|_| Self)
    }
}

impl JsonSchema for Permission {
    fn inline_schema() -> bool {
        false
    }

    fn schema_name() -> Cow<'static, str> {
        "Permission".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let action = generator.subschema_for::<Action>();
        let rule = json_schema!({
            "description": "An action, or actions by pattern; the last pattern that fits counts, `*` is the default wherever it stands.",
            "anyOf": [action, { "type": "object", "additionalProperties": action }],
        });
        let mut known: Map<String, Value> = PERMISSIONS
            .iter()
            .map(|(key, description)| {
                let mut rule = rule.clone();
                rule.insert("description".into(), (*description).into());
                ((*key).into(), rule.to_value())
            })
            .collect();
        let cases = |verdict: &str| {
            json_schema!({
                "description": format!("What these rules {verdict}."),
                "type": "array",
                "items": { "anyOf": [{ "type": "string" }, { "type": "object", "additionalProperties": { "type": "string" } }] },
            })
        };
        let examples = json_schema!({
            "description": "Commands, or objects such as `{\"edit\": \"src/a.rs\"}`, with the verdict you expect. Checked when the file is read: where one is wrong, nothing that the file allows counts.",
            "type": "object",
            "properties": { "allow": cases("allow"), "ask": cases("ask about"), "deny": cases("deny") },
            "additionalProperties": false,
        });
        known.insert(super::examples::KEY.into(), examples.to_value());
        json_schema!({
            "anyOf": [action, { "type": "object", "properties": known, "additionalProperties": rule }],
        })
    }
}

/// A model provider.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Provider {
    /// The name people see.
    pub name: Option<String>,
    /// Another id it is known by in the catalogue.
    pub id: Option<String>,
    /// The wire it speaks, by the name of the SDK package that speaks it, such as `@ai-sdk/openai-compatible`.
    pub npm: Option<String>,
    /// Its base address.
    pub api: Option<String>,
    /// Environment variables that may hold its key.
    pub env: Option<Vec<String>>,
    /// Where `adjutant auth login` logs in, for a provider behind an OAuth server.
    pub login: Option<Login>,
    /// If set, only these of its models are offered.
    pub whitelist: Option<Vec<String>>,
    /// Models that are not offered.
    pub blacklist: Option<Vec<String>>,
    /// Options for every request to it.
    pub options: Option<ProviderOptions>,
    /// Its models by id: new ones, and changes to known ones.
    pub models: Option<Ordered<Model>>,
}

/// An OAuth server, with a browser (PKCE) or with codes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Login {
    /// The id adjutant is registered with there.
    pub client_id: String,
    /// Where a browser is sent.
    pub authorize_url: Option<String>,
    /// Where codes and refresh tokens are exchanged.
    pub token_url: String,
    /// Where codes to be typed come from.
    pub device_url: Option<String>,
    /// What is asked for.
    pub scopes: Vec<String>,
}

/// Options for every request to a provider.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ProviderOptions {
    /// The key. Better in the environment: `{env:NAME}`.
    #[serde(rename = "apiKey")]
    pub api_key: Option<String>,
    /// The base address, in place of the provider's own.
    #[serde(rename = "baseURL")]
    pub base_url: Option<String>,
    /// The address of a GitHub Enterprise server.
    #[serde(rename = "enterpriseUrl")]
    pub enterprise_url: Option<String>,
    /// Send a cache key that names the session.
    #[serde(rename = "setCacheKey")]
    pub set_cache_key: Option<bool>,
    /// Headers of every request.
    pub headers: Option<Ordered<String>>,
    /// How long a whole request may take, in milliseconds; false for no limit. Default: no limit.
    pub timeout: Option<Limit>,
    /// How long to wait for an answer to begin, in milliseconds; false for no limit. Default: 300000.
    #[serde(rename = "headerTimeout")]
    pub header_timeout: Option<Limit>,
    /// How long an answer may pause, in milliseconds; false for no limit. Default: 90000.
    #[serde(rename = "chunkTimeout")]
    pub chunk_timeout: Option<Limit>,
    /// Everything else goes into every request.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Milliseconds, or false for no limit.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum Limit {
    Milliseconds(u64),
    Limited(bool),
}

/// A model.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Model {
    /// The id the provider knows it by. Default: the key.
    pub id: Option<String>,
    /// The name people see.
    pub name: Option<String>,
    /// The family it belongs to.
    pub family: Option<String>,
    /// When it came out.
    pub release_date: Option<String>,
    /// Whether it takes files.
    pub attachment: Option<bool>,
    /// Whether it reasons.
    pub reasoning: Option<bool>,
    /// Whether it takes a temperature.
    pub temperature: Option<bool>,
    /// Whether it takes tools. Default: true.
    pub tool_call: Option<bool>,
    /// How its reasoning travels: true, or the name of a field.
    pub interleaved: Option<Value>,
    /// US dollars per million tokens.
    pub cost: Option<Cost>,
    /// Its limits in tokens.
    pub limit: Option<TokenLimit>,
    /// What goes in and comes out.
    pub modalities: Option<Modalities>,
    /// `alpha`, `beta` or `deprecated`.
    pub status: Option<String>,
    /// Another wire or address for this model alone.
    pub provider: Option<ModelProvider>,
    /// Sent with every request for it.
    pub options: Option<Map<String, Value>>,
    /// Headers of every request for it.
    pub headers: Option<Ordered<String>>,
    /// Reasoning efforts by name: what each sends; `disabled` takes one away.
    pub variants: Option<Ordered<Map<String, Value>>>,
    /// Anything else a catalogue says.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// US dollars per million tokens.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Cost {
    /// Fresh input.
    pub input: Option<f64>,
    /// Output.
    pub output: Option<f64>,
    /// Input from the cache.
    pub cache_read: Option<f64>,
    /// Input into the cache.
    pub cache_write: Option<f64>,
    /// Anything else a catalogue says.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Limits in tokens.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TokenLimit {
    /// The context window.
    pub context: Option<u64>,
    /// The longest input.
    pub input: Option<u64>,
    /// The longest answer.
    pub output: Option<u64>,
}

/// What goes in and comes out.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Modalities {
    /// text, image, audio, video, pdf.
    pub input: Option<Vec<String>>,
    /// text, image, audio, video, pdf.
    pub output: Option<Vec<String>>,
}

/// Another wire or address for one model.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ModelProvider {
    /// The wire.
    pub npm: Option<String>,
    /// The address.
    pub api: Option<String>,
    /// Anything else a catalogue says.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// An MCP server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Mcp {
    /// `local` starts a program; `remote` calls an address, which is not supported yet.
    #[serde(rename = "type")]
    pub kind: Option<McpKind>,
    /// The program and its arguments.
    pub command: Option<Vec<String>>,
    /// Where it runs, relative to the session's directory.
    pub cwd: Option<String>,
    /// Its environment variables.
    pub environment: Option<Ordered<String>>,
    /// The address.
    pub url: Option<String>,
    /// Headers of every request.
    pub headers: Option<Ordered<String>>,
    /// How to log in; false to never try.
    pub oauth: Option<OAuthChoice>,
    /// Switch it off without removing it. Default: true.
    pub enabled: Option<bool>,
    /// How long starting and listing tools may take, in milliseconds. Default: 30000.
    pub timeout: Option<u64>,
}

/// How an MCP server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum McpKind {
    Local,
    Remote,
}

/// How to log in to an MCP server, or false to never try.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum OAuthChoice {
    Switch(bool),
    Settings(OAuth),
}

/// How to log in to an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct OAuth {
    /// The client's id, where it is registered by hand.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<String>,
    /// What is asked for.
    pub scope: Option<String>,
    /// The local port the answer comes back to.
    pub callback_port: Option<u16>,
    /// The address the answer comes back to.
    pub redirect_uri: Option<String>,
}

/// A slash command.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Command {
    /// What is sent: `$1`, `$2`, `$ARGUMENTS`, `@file`, and `` !`command` `` are filled in.
    pub template: Option<String>,
    /// Shown in the list of commands.
    pub description: Option<String>,
    /// The agent that answers.
    pub agent: Option<String>,
    /// The model that answers, as `provider/model`.
    pub model: Option<String>,
    /// The reasoning effort.
    pub variant: Option<String>,
    /// Let a subagent do it, in a session of its own.
    pub subtask: Option<bool>,
}

/// Where to look for skills.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Skills {
    /// Directories; `~/` is home, relative ones start at the session's directory.
    pub paths: Option<Vec<String>>,
    /// Addresses of skill indexes.
    #[schemars(extend("x-status" = "later: no skills are fetched yet"))]
    pub urls: Option<Vec<String>>,
}

/// A further directory or repository.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum Reference {
    Path(String),
    Full(ReferenceEntry),
}

/// A further directory or repository.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ReferenceEntry {
    /// The directory.
    pub path: Option<String>,
    /// The repository's address. It is not fetched yet.
    pub git: Option<String>,
    /// What it is good for; one without a description is not listed in the prompt.
    pub description: Option<String>,
    /// Anything else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// How attachments are made to fit.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Attachment {
    /// Images.
    pub image: Option<Image>,
}

/// How images are made to fit.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Image {
    /// Make larger ones smaller.
    #[schemars(extend("x-status" = "later: images are sent as they are"))]
    pub auto_resize: Option<bool>,
    /// In pixels.
    #[schemars(extend("x-status" = "later: images are sent as they are"))]
    pub max_width: Option<u32>,
    /// In pixels.
    #[schemars(extend("x-status" = "later: images are sent as they are"))]
    pub max_height: Option<u32>,
    /// The largest that is sent. Not read yet.
    pub max_base64_bytes: Option<u64>,
}

/// Things that may still change.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Experimental {
    /// Go on with the turn after you rejected a call without a word. Default: false.
    pub continue_loop_on_deny: Option<bool>,
    /// How long a call of an MCP tool may take, in milliseconds. Default: 60000.
    pub mcp_timeout: Option<u64>,
    /// Tools that only primary agents have.
    pub primary_tools: Option<Vec<String>>,
    /// A tool for several calls at once.
    #[schemars(extend("x-status" = "no effect: calls of one step already run side by side"))]
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

/// All of a kind on or off, or each by name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum Tools<T> {
    Switch(bool),
    Named(Ordered<T>),
}

/// A formatter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Formatter {
    /// Leave it out.
    pub disabled: bool,
    /// The program and its arguments; `$FILE` is the file.
    pub command: Vec<String>,
    /// Its environment variables.
    pub environment: Ordered<String>,
    /// The file endings it is for.
    pub extensions: Vec<String>,
}

/// A language server.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LanguageServer {
    /// Leave it out.
    pub disabled: bool,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The file endings it is for.
    pub extensions: Vec<String>,
    /// Its environment variables.
    pub env: Ordered<String>,
    /// Sent to it at the start.
    pub initialization: Option<Value>,
}

/// What a file watcher leaves out.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Watcher {
    /// Globs.
    pub ignore: Option<Vec<String>>,
}

/// A plugin, with or without options.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum Plugin {
    Name(String),
    Full(Vec<Value>),
}

/// The HTTP server of OpenCode.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Server {
    /// Its port.
    pub port: Option<u32>,
    /// Its name.
    pub hostname: Option<String>,
    /// Announce it in the local network.
    pub mdns: Option<bool>,
    /// Under which name.
    #[serde(rename = "mdnsDomain")]
    pub mdns_domain: Option<String>,
    /// Who may call it.
    pub cors: Option<Vec<String>>,
}

/// The address of an organisation's server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Enterprise {
    /// The address.
    pub url: Option<String>,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
pub(crate) enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

/// Which projects are trusted without a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Trust {
    Ask,
    All,
}

/// What the system forbids commands.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum Sandbox {
    Mode(SandboxMode),
    Full(SandboxOptions),
}

/// Whether there has to be a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum SandboxMode {
    /// Where the system can.
    #[default]
    Auto,
    /// Or no commands.
    Required,
    /// None.
    Off,
}

/// A sandbox in detail.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct SandboxOptions {
    /// As above.
    pub mode: Option<SandboxMode>,
    /// Further directories and files that commands of agents that may edit can write: absolute, `~/`,
    /// or relative to the project. A protected one (`.git/config`) is opened by naming it.
    pub writable: Option<Vec<String>>,
    /// Whether commands may use the network. Default: yes for agents that may edit, no for those
    /// that only read.
    pub network: Option<bool>,
    /// `plan`, `explore` and `scout` run what is not known to be harmless without a question, where a
    /// sandbox keeps it from writing and from the network. Rules of yours that ask or deny, secrets and
    /// what cannot be understood ask all the same. Default: false.
    pub unattended: Option<bool>,
}

/// Which variables commands get.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Variables {
    /// Names, or patterns such as `MY_PROJECT_*`, of variables that are given too. One that looks like a
    /// key or a password has to be named in full. `adjutant doctor` lists what is left out.
    pub pass: Option<Vec<String>>,
    /// Names or patterns of variables that are not given, whatever else is said.
    pub drop: Option<Vec<String>>,
}

/// What the web is to the agents.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Webfetch {
    /// Hosts of this machine and its network that may be fetched from all the same, as far as the rules
    /// allow: `localhost:3000`, `*.corp.example`. All others are refused, whatever the rules say.
    pub private: Option<Vec<String>>,
}

/// Whether sessions are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Share {
    Manual,
    Auto,
    Disabled,
}

/// Whether the program updates itself.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum AutoUpdate {
    Switch(bool),
    Word(Notify),
}

/// Only say that there is an update.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Notify {
    Notify,
}

/// Keys and values in the order they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered<T>(pub Vec<(String, T)>);

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Ordered<T> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&T> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
