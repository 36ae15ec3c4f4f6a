//! Agents and rules in a settings file.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::{Map, Value};

use super::Ordered;
use permission::Action;
use permission::keys::PERMISSIONS;

/// The key of examples in a permission object.
pub(crate) const EXAMPLES_KEY: &str = "$examples";

/// An agent, in a settings file or in the front matter of a Markdown file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// The displayed name. Default: the key, or the file's path.
    #[schemars(extend("x-trust" = "waits"))]
    pub name: Option<String>,
    /// Its purpose: shown in lists of modes, and to the model that chooses a subagent.
    #[schemars(extend("x-trust" = "applies"))]
    pub description: Option<String>,
    /// `primary` agents are the modes of a session, `subagent`s are started by other agents, `all`
    /// are both.
    #[schemars(extend("x-trust" = "applies"))]
    pub mode: Option<Mode>,
    /// Leave it out of pickers; it can still be used by name.
    #[schemars(extend("x-trust" = "applies"))]
    pub hidden: Option<bool>,
    /// Remove this agent, even if it is built in.
    #[schemars(extend("x-trust" = "applies"))]
    pub disable: Option<bool>,
    /// The model it always uses, as `provider/model`.
    #[schemars(extend("x-trust" = "applies"))]
    pub model: Option<String>,
    /// The reasoning effort, if its model has one of this name.
    #[schemars(extend("x-trust" = "applies"))]
    pub variant: Option<String>,
    /// Its system prompt, instead of the one for the model's family.
    #[schemars(extend("x-trust" = "applies"))]
    pub prompt: Option<String>,
    /// Sampling temperature.
    #[schemars(range(min = 0.0, max = 2.0))]
    #[schemars(extend("x-trust" = "applies"))]
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[schemars(extend("x-trust" = "applies"))]
    pub top_p: Option<f64>,
    /// `#RRGGBB`, or the name of a colour.
    #[schemars(regex(pattern = "^(#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})|[a-zA-Z-]+)$"))]
    #[schemars(extend("x-trust" = "applies"))]
    pub color: Option<String>,
    /// The maximum number of steps of one prompt.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-trust" = "applies"))]
    pub steps: Option<u32>,
    /// Sent to the provider with every request of this agent.
    #[schemars(extend("x-trust" = "applies"))]
    pub options: Option<Map<String, Value>>,
    /// Rules for this agent, after the general ones.
    #[schemars(with = "Permission")]
    #[schemars(extend("x-trust" = "waits"))]
    pub permission: Option<Permission>,
    /// Old spelling of `steps`.
    #[serde(rename = "maxSteps")]
    #[schemars(range(min = 1), extend("deprecated" = true, "x-instead" = "steps"))]
    pub max_steps: Option<u32>,
    /// Old spelling of `permission`: tools by name, true or false.
    #[schemars(extend("deprecated" = true, "x-instead" = "permission"))]
    pub tools: Option<Ordered<bool>>,
}

/// The uses of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Mode {
    /// The user.
    Primary,
    /// Other agents.
    Subagent,
    /// Both.
    All,
}

impl Mode {
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Primary, Self::Subagent, Self::All]
            .into_iter()
            .find(|mode| mode.as_str() == word)
    }

    /// Returns the mode as in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Subagent => "subagent",
            Self::All => "all",
        }
    }
}

/// Rules: `"ask"` for everything, or an action per tool, or patterns with an action each per tool.
/// A tree, because the order counts; see `rules.rs`.
#[derive(Debug, Default)]
pub struct Permission;

impl<'de> Deserialize<'de> for Permission {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_ignored_any(serde::de::IgnoredAny)
            .map(|_| Self)
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
            "description": "An action, or actions by pattern; the last pattern that matches decides, and `*` is the default in any position.",
            "anyOf": [action, { "type": "object", "additionalProperties": action }],
        });
        let mut known: Map<String, Value> = PERMISSIONS
            .iter()
            .map(|(key, description)| {
                let mut rule = rule.clone();
                rule.insert("description".into(), (*description).into());
                if *key == "codesearch" {
                    rule.insert(
                        "x-status".into(),
                        "no effect: no tool does that here; `websearch` finds pages".into(),
                    );
                }
                ((*key).into(), rule.to_value())
            })
            .collect();
        let cases = |verdict: &str| {
            json_schema!({
                "description": format!("Requests that these rules {verdict}."),
                "type": "array",
                "items": { "anyOf": [{ "type": "string" }, { "type": "object", "additionalProperties": { "type": "string" } }] },
            })
        };
        let examples = json_schema!({
            "description": "Commands, or objects such as `{\"edit\": \"src/a.rs\"}`, with the verdict you expect. Checked when the file is read: if one is wrong, nothing that the file allows applies.",
            "type": "object",
            "properties": { "allow": cases("allow"), "ask": cases("ask about"), "deny": cases("deny") },
            "additionalProperties": false,
        });
        known.insert(EXAMPLES_KEY.into(), examples.to_value());
        json_schema!({
            "anyOf": [action, { "type": "object", "properties": known, "additionalProperties": rule }],
        })
    }
}
