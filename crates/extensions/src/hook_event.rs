//! [`HookEvent`], an event of a session that hooks run on, and its encoding as the input of a hook, in
//! adjutant's format or in Claude Code's.

use std::path::PathBuf;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use config::claude::TOOLS;
use config::settings::{HookEntry, HookFormat, HookPoint};
use permission::plan::SharedAnalysis;
use permission::wildcard;
use tools::ToolContext;

/// The maximum length of a text in an event, in bytes.
const MAX_TEXT_BYTES: usize = 256 << 10;

/// An event that hooks run on.
#[derive(Debug, Clone)]
pub struct HookEvent {
    /// The kind of the event.
    pub on: HookPoint,
    /// The name of the agent.
    pub agent: String,
    /// The called tool, if the event is about a call.
    pub tool: Option<String>,
    /// The subjects that patterns are matched against: files relative to the project's root,
    /// command lines, URLs, prompts.
    pub subjects: Vec<String>,
    /// The analysis of the call's command line; empty if it has none.
    pub analysis: SharedAnalysis,
    /// The commands in the subjects, found when a pattern needs them, once for all hooks.
    commands: OnceLock<Vec<String>>,
    /// The files of the call, as absolute paths.
    pub files: Vec<PathBuf>,
    /// Further fields, such as `input`, `output`, `text` and `outcome`.
    fields: Map<String, Value>,
}

impl HookEvent {
    /// Creates an event without further fields.
    pub fn new(on: HookPoint, agent: &str) -> Self {
        Self {
            on,
            agent: agent.to_owned(),
            tool: None,
            subjects: Vec::new(),
            analysis: SharedAnalysis::default(),
            commands: OnceLock::new(),
            files: Vec::new(),
            fields: Map::new(),
        }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.set(key, value.into());
        self
    }

    /// Sets a field. A text is cut to `MAX_TEXT_BYTES`.
    pub fn set(&mut self, key: &str, value: Value) {
        let value = match value {
            Value::String(text) => base::text::head(&text, MAX_TEXT_BYTES).into(),
            value => value,
        };
        self.fields.insert(key.to_owned(), value);
    }

    /// Returns whether a pattern matches a subject, or a command in it: `cd x && git commit`
    /// contains a `git commit *`.
    pub(crate) fn is_about(&self, pattern: &str) -> bool {
        let matches = |text: &String| wildcard::matches_folded(pattern, text.trim());
        self.subjects.iter().any(matches) || self.commands().iter().any(matches)
    }

    fn commands(&self) -> &[String] {
        self.commands
            .get_or_init(|| self.analysis.commands_in(&self.subjects))
    }

    /// Returns a field, or `null` if it is missing.
    pub(crate) fn field(&self, key: &str) -> Value {
        self.fields.get(key).cloned().unwrap_or_default()
    }

    /// Returns the JSON that a hook reads from its standard input.
    pub(crate) fn payload(&self, hook: &HookEntry, context: &ToolContext) -> Value {
        match hook.format {
            HookFormat::Adjutant => {
                let head = super::common_fields(hook, self, context)
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value));
                let mut event: Map<String, Value> = head.collect();
                if let Some(tool) = &self.tool {
                    event.insert("tool".into(), tool.as_str().into());
                }
                if !self.files.is_empty() {
                    event.insert("files".into(), json!(self.files));
                }
                event.extend(self.fields.clone());
                Value::Object(event)
            }
            HookFormat::Claude => self.claude_payload(context),
        }
    }

    /// Returns the event in Claude Code's format. The transcript path is empty, because there is no
    /// transcript in that format.
    fn claude_payload(&self, context: &ToolContext) -> Value {
        let field = |key: &str| self.field(key);
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
        let mode = if self.agent == "plan" {
            "plan"
        } else {
            "default"
        };
        let mut event = json!({
            "session_id": context.session.id.as_str(), "transcript_path": "", "cwd": context.project.cwd,
            "permission_mode": mode, "hook_event_name": name,
        });
        let more = match self.on {
            HookPoint::SessionStart => {
                json!({ "source": if field("resumed") == true { "resume" } else { "startup" } })
            }
            HookPoint::Prompt => json!({ "prompt": field("text") }),
            HookPoint::TurnEnd => json!({ "stop_hook_active": field("continued") }),
            HookPoint::Compaction => {
                let trigger = if field("auto") == true {
                    "auto"
                } else {
                    "manual"
                };
                json!({ "trigger": trigger, "custom_instructions": field("text") })
            }
            HookPoint::SessionEnd => json!({ "reason": "other" }),
            HookPoint::ToolBefore | HookPoint::ToolAfter | HookPoint::Permission => {
                let tool = self.tool.as_deref().unwrap_or_default();
                let claude_name = TOOLS
                    .iter()
                    .find(|(_, ours)| *ours == tool)
                    .map_or(tool, |(theirs, _)| theirs);
                let mut input = rename_keys(&field("input"), snake_case);
                // Paths are absolute in that format.
                if let Some(path) = input.get("file_path").and_then(Value::as_str) {
                    input["file_path"] = json!(context.absolute(path));
                }
                let mut call = json!({
                    "tool_name": claude_name, "tool_input": input, "tool_use_id": field("call"),
                });
                if self.on == HookPoint::ToolAfter {
                    call["tool_response"] =
                        json!({ "success": field("ok"), "content": field("output") });
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

/// Returns an object with its keys renamed by a function.
pub(crate) fn rename_keys(value: &Value, rename: fn(&str) -> String) -> Value {
    match value {
        Value::Object(object) => object
            .iter()
            .map(|(key, value)| (rename(key), value.clone()))
            .collect(),
        other => other.clone(),
    }
}

/// Converts `filePath` to `file_path`.
fn snake_case(key: &str) -> String {
    let mut out = String::new();
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// Converts `file_path` to `filePath`.
pub(crate) fn camel_case(key: &str) -> String {
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
