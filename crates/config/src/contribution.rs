//! What plugins add to the settings while a session runs: a layer of its own for each, above the files and below what
//! variables and the administrator say. What a project's plugin adds is kept to what loosens nothing, for nobody was
//! asked about it.

use serde_json::{Map, Value};

use super::insert::shell_inserts;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contribution {
    /// The plugin's name, for people.
    pub plugin: String,
    /// It came with the project.
    pub project: bool,
    /// Settings, as JSON.
    pub settings: String,
}

/// The keys that a plugin of the user's own may add to.
const KEYS: &[&str] = &[
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

/// What a project's plugin may say of an agent and of a command.
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
    /// What counts of the changes that a plugin has made, and the keys of what does not.
    pub fn of(plugin: &str, project: bool, changes: &Value) -> (Option<Self>, Vec<String>) {
        let mut dropped = Vec::new();
        let mut kept = Map::new();
        for (key, value) in changes.as_object().into_iter().flatten() {
            let own = KEYS.contains(&key.as_str()) && !project;
            let named = match (key.as_str(), value) {
                ("command", Value::Object(commands)) if own => {
                    // One that only the plugin's own hook answers says nothing to a model.
                    let (said, empty): (Vec<_>, Vec<_>) = commands.iter().partition(|(_, command)| has_words(command));
                    dropped.extend(empty.into_iter().map(|(name, _)| format!("{key}.{name}")));
                    Some(said.into_iter().map(|(name, command)| (name.clone(), command.clone())).collect())
                }
                _ if own => Some(value.clone()),
                ("agent", Value::Object(agents)) => Some(entries(key, agents, AGENT, &mut dropped)),
                ("command", Value::Object(commands)) => Some(entries(key, commands, COMMAND, &mut dropped)),
                _ => None,
            };
            match named {
                Some(Value::Object(named)) if named.is_empty() => {}
                Some(value) => drop(kept.insert(key.clone(), value)),
                None => dropped.push(key.clone()),
            }
        }
        let settings = Value::Object(kept);
        let any = settings.as_object().is_some_and(|kept| !kept.is_empty());
        let one = Self { plugin: plugin.to_owned(), project, settings: settings.to_string() };
        (any.then_some(one), dropped)
    }
}

/// Whether a command has a text to be sent.
fn has_words(command: &Value) -> bool {
    command.get("template").and_then(Value::as_str).is_some_and(|template| !template.trim().is_empty())
}

/// The entries of a project's plugin, without what it may not say.
fn entries(key: &str, all: &Map<String, Value>, may: &[&str], dropped: &mut Vec<String>) -> Value {
    let mut kept = Map::new();
    for (name, entry) in all {
        let template = entry.get("template").and_then(Value::as_str).unwrap_or_default();
        let sound = shell_inserts(template).is_empty() && (key != "command" || has_words(entry));
        let Some(entry) = entry.as_object().filter(|_| sound) else {
            dropped.push(format!("{key}.{name}"));
            continue;
        };
        let mut own = Map::new();
        for (field, value) in entry {
            let tight = match field.as_str() {
                _ if value.is_null() => continue,
                "permission" | "tools" => tightening(value),
                _ => Some(value.clone()).filter(|_| may.contains(&field.as_str())),
            };
            if tight.as_ref() != Some(value) {
                dropped.push(format!("{key}.{name}.{field}"));
            }
            own.extend(tight.map(|value| (field.clone(), value)));
        }
        kept.insert(name.clone(), Value::Object(own));
    }
    Value::Object(kept)
}

/// What of rules only forbids or asks.
fn tightening(rules: &Value) -> Option<Value> {
    match rules {
        Value::String(action) if action != "allow" => Some(rules.clone()),
        Value::Bool(false) => Some(rules.clone()),
        Value::Object(all) => {
            let kept: Map<_, _> =
                all.iter().filter_map(|(key, value)| Some((key.clone(), tightening(value)?))).collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plugin_of_a_project_loosens_nothing() {
        let one = json!({
            "agent": {"a": {"prompt": "P", "permission": {"*": "deny", "read": "allow", "bash": {"ls": "allow", "rm *": "deny"}},
                "tools": {"write": false, "bash": true}, "options": {"x": 1}, "model": null}, "b": 7},
            "command": {"c": {"template": "Do $1."}, "d": {"template": "See !`env`."}, "e": {"template": ""}},
            "mcp": {"m": {"command": ["x"]}}, "model": "p/m", "plugin": ["x"],
        });
        let (own, dropped) = Contribution::of("x.js", false, &one);
        assert_eq!(dropped, ["command.e", "plugin"]);
        let said: Value = serde_json::from_str(&own.unwrap().settings).unwrap();
        assert_eq!((&said["mcp"], &said["agent"]), (&one["mcp"], &one["agent"]));
        let (theirs, dropped) = Contribution::of("x.js", true, &one);
        let said: Value = serde_json::from_str(&theirs.unwrap().settings).unwrap();
        let agent =
            json!({"prompt": "P", "permission": {"*": "deny", "bash": {"rm *": "deny"}}, "tools": {"write": false}});
        assert_eq!(said, json!({"agent": {"a": agent}, "command": {"c": {"template": "Do $1."}}}));
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
        assert_eq!(Contribution::of("x.js", true, &json!({"agent": {}})), (None, Vec::new()));
    }
}
