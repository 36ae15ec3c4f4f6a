//! Settings that plugins add while a session runs: a layer for each plugin, above the files and
//! below variables and the administrator's settings. A project's plugin can add only settings that
//! loosen nothing, because the user is not asked about them.

use serde_json::{Map, Value};

use super::insert::shell_inserts;

/// The settings of one plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contribution {
    /// The displayed name of the plugin.
    pub plugin: String,
    /// True if the plugin is from the project.
    pub project: bool,
    /// The settings, as JSON.
    pub settings: String,
}

/// The keys that a plugin of the user's own may add to.
const CONTRIBUTED_KEYS: &[&str] = &[
    "agent",
    "command",
    "default_agent",
    "instructions",
    "mcp",
    "model",
    "permission",
    "provider",
    "small_model",
    "tools",
];

/// The keys of an agent and of a command that a project's plugin may set.
const AGENT: &[&str] = &[
    "description",
    "mode",
    "model",
    "variant",
    "prompt",
    "temperature",
    "top_p",
    "color",
    "hidden",
    "steps",
    "maxSteps",
    "permission",
    "tools",
];
const COMMAND: &[&str] = &["description", "template", "agent", "model", "subtask"];

impl Contribution {
    /// Returns the usable part of a plugin's changes, and the keys of the rest.
    pub fn of(plugin: &str, project: bool, changes: &Value) -> (Option<Self>, Vec<String>) {
        let mut dropped = Vec::new();
        let mut accepted = Map::new();
        for (key, value) in changes.as_object().into_iter().flatten() {
            let own = CONTRIBUTED_KEYS.contains(&key.as_str()) && !project;
            let value = match (key.as_str(), value) {
                ("command", Value::Object(commands)) if own => {
                    // A command that only the plugin's own hook answers has no text for a model.
                    let (with_text, empty): (Vec<_>, Vec<_>) =
                        commands.iter().partition(|(_, command)| has_text(command));
                    dropped.extend(empty.into_iter().map(|(name, _)| format!("{key}.{name}")));
                    Some(
                        with_text
                            .into_iter()
                            .map(|(name, command)| (name.clone(), command.clone()))
                            .collect(),
                    )
                }
                _ if own => Some(value.clone()),
                ("agent", Value::Object(agents)) => Some(entries(key, agents, AGENT, &mut dropped)),
                ("command", Value::Object(commands)) => {
                    Some(entries(key, commands, COMMAND, &mut dropped))
                }
                _ => None,
            };
            match value {
                Some(Value::Object(entries)) if entries.is_empty() => {}
                Some(value) => drop(accepted.insert(key.clone(), value)),
                None => dropped.push(key.clone()),
            }
        }
        if accepted.is_empty() {
            return (None, dropped);
        }
        let settings = Value::Object(accepted).to_string();
        (
            Some(Self {
                plugin: plugin.to_owned(),
                project,
                settings,
            }),
            dropped,
        )
    }
}

/// Returns whether a command has a text for a model.
fn has_text(command: &Value) -> bool {
    command
        .get("template")
        .and_then(Value::as_str)
        .is_some_and(|template| !template.trim().is_empty())
}

/// Returns the entries of a project's plugin, without fields that it may not set.
fn entries(key: &str, all: &Map<String, Value>, may: &[&str], dropped: &mut Vec<String>) -> Value {
    let mut accepted = Map::new();
    for (name, entry) in all {
        let template = entry
            .get("template")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let is_safe = shell_inserts(template).is_empty() && (key != "command" || has_text(entry));
        let fields = if is_safe { entry.as_object() } else { None };
        let Some(fields) = fields else {
            dropped.push(format!("{key}.{name}"));
            continue;
        };
        let mut accepted_fields = Map::new();
        for (field, value) in fields {
            if value.is_null() {
                continue;
            }
            let accepted_value = match field.as_str() {
                "permission" | "tools" => tightening(value),
                field if may.contains(&field) => Some(value.clone()),
                _ => None,
            };
            if accepted_value.as_ref() != Some(value) {
                dropped.push(format!("{key}.{name}.{field}"));
            }
            accepted_fields.extend(accepted_value.map(|value| (field.clone(), value)));
        }
        accepted.insert(name.clone(), Value::Object(accepted_fields));
    }
    Value::Object(accepted)
}

/// Returns the parts of rules that only deny or ask.
fn tightening(rules: &Value) -> Option<Value> {
    match rules {
        Value::String(action) if action != "allow" => Some(rules.clone()),
        Value::Bool(false) => Some(rules.clone()),
        Value::Object(all) => {
            let stricter: Map<_, _> = all
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), tightening(value)?)))
                .collect();
            (!stricter.is_empty()).then_some(Value::Object(stricter))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn project_plugin_loosens_nothing() {
        let one = json!({
            "agent": {"a": {"prompt": "P", "permission": {"*": "deny", "read": "allow", "bash": {"ls": "allow", "rm *": "deny"}},
                "tools": {"write": false, "bash": true}, "options": {"x": 1}, "model": null}, "b": 7},
            "command": {"c": {"template": "Do $1."}, "d": {"template": "See !`env`."}, "e": {"template": ""}},
            "mcp": {"m": {"command": ["x"]}}, "model": "p/m", "plugin": ["x"],
        });
        let (own, dropped) = Contribution::of("x.js", false, &one);
        assert_eq!(dropped, ["command.e", "plugin"]);
        let accepted: Value = serde_json::from_str(&own.unwrap().settings).unwrap();
        assert_eq!(
            (&accepted["mcp"], &accepted["agent"]),
            (&one["mcp"], &one["agent"])
        );
        let (theirs, dropped) = Contribution::of("x.js", true, &one);
        let accepted: Value = serde_json::from_str(&theirs.unwrap().settings).unwrap();
        let agent = json!({"prompt": "P", "permission": {"*": "deny", "bash": {"rm *": "deny"}}, "tools": {"write": false}});
        assert_eq!(
            accepted,
            json!({"agent": {"a": agent}, "command": {"c": {"template": "Do $1."}}})
        );
        let wanted = [
            "agent.a.permission",
            "agent.a.tools",
            "agent.a.options",
            "agent.b",
            "command.d",
            "command.e",
            "mcp",
            "model",
            "plugin",
        ];
        assert_eq!(dropped, wanted);
        assert_eq!(
            Contribution::of("x.js", true, &json!({"agent": {}})),
            (None, Vec::new())
        );
    }
}
