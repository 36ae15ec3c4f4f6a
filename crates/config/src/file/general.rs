//! Keys of a settings file that the program uses as they are written.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use base::approvals::Approvals;
use transcript::ImageSettings;

/// The keys of a settings file that are in no section.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GeneralSettings {
    /// Providers that are not used even if a key for them is found. A project's list is added to
    /// yours.
    #[schemars(extend("x-trust" = "applies"))]
    pub disabled_providers: Vec<String>,
    /// If set, only these providers are used. A project's list only narrows yours.
    #[schemars(extend("x-trust" = "applies"))]
    pub enabled_providers: Option<Vec<String>>,
    /// Record the project's files so that a turn can be undone. Default: true.
    #[schemars(extend("x-trust" = "applies"))]
    pub snapshot: bool,
    /// The maximum depth of subagents that start subagents. Default: 1.
    #[schemars(range(min = 0, max = 16), extend("x-trust" = "applies"))]
    pub subagent_depth: u32,
    /// Text sent while a turn runs reaches the model between two steps of that turn; if false, it
    /// waits for the turn to end. Default: true.
    #[schemars(extend("x-trust" = "applies"))]
    pub steer: bool,
    /// The approvals of a new session: `default` asks if the rules say so, and about risks that the
    /// sandbox does not contain; `ask` also asks about every edit, every MCP tool and every command
    /// that is not known to be harmless; `sandboxed` is like the default, but skips questions of
    /// rules about commands without network and changes in the project, if a sandbox contains them.
    /// A deny stays a deny. Can be changed in each session. Default: `default`.
    #[schemars(extend("x-trust" = "waits"))]
    pub approvals: Approvals,
    /// Custom tools that replace adjutant's own tools of the same name. Read from your own files
    /// only.
    #[schemars(extend("x-trust" = "user: only your own settings can say which tools are replaced"))]
    pub replace_tools: Vec<String>,
}

impl Default for GeneralSettings {
    fn default() -> Self {
        Self {
            disabled_providers: Vec::new(),
            enabled_providers: None,
            snapshot: true,
            subagent_depth: 1,
            steer: true,
            approvals: Approvals::Default,
            replace_tools: Vec::new(),
        }
    }
}

/// The limits of attachments.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AttachmentSettings {
    /// Images.
    pub image: ImageSettings,
}

/// Changes to providers by clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProvidersSettings {
    /// Editors may set the endpoints of providers for their connection: the address and the headers
    /// (`providers/set`, a draft of the protocol). Default: true.
    pub from_editor: bool,
}

impl Default for ProvidersSettings {
    fn default() -> Self {
        Self { from_editor: true }
    }
}

/// Access to the web.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebfetchSettings {
    /// Hosts of this machine and its network that agents may fetch from, if the rules allow it:
    /// `localhost:3000`, `*.corp.example`. All others are refused regardless of the rules.
    #[schemars(extend("x-trust" = "waits: looser rule"))]
    pub private: Arc<[String]>,
}

/// Settings that may still change.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Experimental {
    /// Continue the turn after you have rejected a call without a message. Without a user, a turn
    /// continues anyway until it repeats the same call. Default: false.
    pub continue_loop_on_deny: bool,
    /// The time limit of a call of an MCP tool, in milliseconds. Default: 60000.
    pub mcp_timeout: u64,
    /// The maximum size of the MCP tools in a request, in bytes. If they are larger, the model gets
    /// a tool to search for them instead. Default: 60000.
    pub mcp_budget: usize,
    /// Tools that only primary agents get.
    pub primary_tools: Vec<String>,
    /// A tool for several calls at once.
    #[schemars(extend("x-status" = "no effect: calls of one step already run in parallel"))]
    pub batch_tool: Option<bool>,
    /// Show pasted text in full.
    #[schemars(extend("x-status" = "no effect: the editor shows what you paste"))]
    pub disable_paste_summary: Option<bool>,
    /// As `telemetry.enabled`, if that is not set. Read from your own and your administrator's
    /// files only. Default: false.
    #[serde(rename = "openTelemetry")]
    #[schemars(extend("x-trust" = "machine: only your own settings can say whether traces are sent"))]
    pub open_telemetry: Option<bool>,
    /// Policies of OpenCode's servers.
    #[schemars(extend("x-status" = "no effect: use permission"))]
    pub policies: Option<Vec<Value>>,
}

impl Default for Experimental {
    fn default() -> Self {
        Self {
            continue_loop_on_deny: false,
            mcp_timeout: 60_000,
            mcp_budget: 60_000,
            primary_tools: Vec::new(),
            batch_tool: None,
            disable_paste_summary: None,
            open_telemetry: None,
            policies: None,
        }
    }
}

impl Experimental {
    /// Returns the timeout of a call of an MCP tool.
    pub fn mcp_timeout(&self) -> Duration {
        Duration::from_millis(self.mcp_timeout)
    }
}
