//! Something that happens in a session, as a hook is told of it: in our words, or as Claude Code has it.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use config::claude::TOOLS;
use config::settings::{HookEntry, HookFormat, HookPoint};
use tools::ToolContext;

/// The longest text an event brings along, in bytes.
const TEXT: usize = 256 << 10;

#[derive(Debug, Clone)]
pub struct Moment {
    pub on: HookPoint,
    pub agent: String,
    /// The tool that is called, where it is about a call.
    pub tool: Option<String>,
    /// What it is about, for patterns: files from the project's root, command lines, addresses, words.
    pub subjects: Vec<String>,
    /// The files it is about: absolute.
    pub files: Vec<PathBuf>,
    /// What else there is to say: `input`, `output`, `text`, `outcome` and the like.
    facts: Map<String, Value>,
}

impl Moment {
    /// Nothing is said of it yet.
    pub fn new(on: HookPoint, agent: &str) -> Self {
        let (agent, facts) = (agent.to_owned(), Map::new());
        Self { on, agent, tool: None, subjects: Vec::new(), files: Vec::new(), facts }
    }

    /// With something that is said of it.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.set(key, value.into());
        self
    }

    /// Says something of it, or something else.
    pub fn set(&mut self, key: &str, value: Value) {
        let value = match value {
            Value::String(text) => base::text::head(&text, TEXT).into(),
            value => value,
        };
        self.facts.insert(key.to_owned(), value);
    }

    /// What is said of it under a key; nothing is `null`.
    pub(crate) fn fact(&self, key: &str) -> Value {
        self.facts.get(key).cloned().unwrap_or_default()
    }

    /// The JSON that a hook reads on its standard input.
    pub(crate) fn event(&self, hook: &HookEntry, context: &ToolContext) -> Value {
        match hook.format {
            HookFormat::Adjutant => {
                let head = super::head(hook, self, context).into_iter().map(|(key, value)| (key.to_owned(), value));
                let mut event: Map<String, Value> = head.collect();
                if let Some(tool) = &self.tool {
                    event.insert("tool".into(), tool.as_str().into());
                }
                if !self.files.is_empty() {
                    event.insert("files".into(), json!(self.files));
                }
                event.extend(self.facts.clone());
                Value::Object(event)
            }
            HookFormat::Claude => self.claude(context),
        }
    }

    /// As Claude Code has it. There is no transcript in its format.
    fn claude(&self, context: &ToolContext) -> Value {
        let fact = |key: &str| self.fact(key);
        let name = match self.on {
            HookPoint::SessionStart => "SessionStart",
            HookPoint::Prompt => "UserPromptSubmit",
            HookPoint::ToolBefore => "PreToolUse",
            HookPoint::ToolAfter => "PostToolUse",
            HookPoint::Permission => "PermissionRequest",
            HookPoint::TurnEnd => "Stop",
            HookPoint::Compaction => "PreCompact",
            HookPoint::SessionEnd => "SessionEnd",
        };
        let mode = if self.agent == "plan" { "plan" } else { "default" };
        let mut event = json!({
            "session_id": context.session.id.as_str(), "transcript_path": "", "cwd": context.project.cwd,
            "permission_mode": mode, "hook_event_name": name,
        });
        let more = match self.on {
            HookPoint::SessionStart => json!({ "source": if fact("resumed") == true { "resume" } else { "startup" } }),
            HookPoint::Prompt => json!({ "prompt": fact("text") }),
            HookPoint::TurnEnd => json!({ "stop_hook_active": fact("continued") }),
            HookPoint::Compaction => {
                let trigger = if fact("auto") == true { "auto" } else { "manual" };
                json!({ "trigger": trigger, "custom_instructions": fact("text") })
            }
            HookPoint::SessionEnd => json!({ "reason": "other" }),
            HookPoint::ToolBefore | HookPoint::ToolAfter | HookPoint::Permission => {
                let own = self.tool.as_deref().unwrap_or_default();
                let theirs = TOOLS.iter().find(|(_, ours)| *ours == own).map_or(own, |(theirs, _)| theirs);
                let mut input = renamed(&fact("input"), snake);
                // There every path is absolute.
                if let Some(path) = input.get("file_path").and_then(Value::as_str) {
                    input["file_path"] = json!(context.absolute(path));
                }
                let mut call = json!({
                    "tool_name": theirs, "tool_input": input, "tool_use_id": fact("call"),
                });
                if self.on == HookPoint::ToolAfter {
                    call["tool_response"] = json!({ "success": fact("ok"), "content": fact("output") });
                }
                call
            }
        };
        if let (Value::Object(event), Value::Object(more)) = (&mut event, more) {
            event.extend(more);
        }
        event
    }
}

/// An object with its keys spelled otherwise.
pub(crate) fn renamed(value: &Value, spell: fn(&str) -> String) -> Value {
    match value {
        Value::Object(object) => object.iter().map(|(key, value)| (spell(key), value.clone())).collect(),
        other => other.clone(),
    }
}

/// `filePath` as `file_path`.
fn snake(key: &str) -> String {
    let mut out = String::new();
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// `file_path` as `filePath`.
pub(crate) fn camel(key: &str) -> String {
    let mut out = String::new();
    let mut upper = false;
    for letter in key.chars() {
        match letter {
            '_' if !out.is_empty() => upper = true,
            letter if std::mem::take(&mut upper) => out.push(letter.to_ascii_uppercase()),
            letter => out.push(letter),
        }
    }
    out
}
