//! Translates OpenCode's sessions, messages and parts. Pure. Values are read leniently, because
//! versions of OpenCode differ: what is missing gets a default, and what has no place is counted.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Omitted, patch};
use crate::{DiffStats, Record, TitleSource, UndoEntry};
use base::environment::Timestamp;
use base::id::{CallId, MessageId, PartId, SessionId};
use transcript::{
    Assistant, Call, CallFacts, CallState, ChildSession, Compaction, Completed, Content,
    FailureCause, Fault, FaultKind, File, Finish, Location, Message, ModelRef, Part, Priority,
    ProgramExit, PromptOptions, Reasoning, Role, Text, Todo, TodoStatus, ToolKind, Usage, User,
};

const STATES_FOR_UNDO: &str = "states of files for OpenCode's undo";
const UNREADABLE: &str = "unreadable messages and parts";

/// The largest number of tokens of a step that is believed, so that sums do not overflow.
const MAX_TOKENS: u64 = 1 << 40;

/// Returns a string below a value.
fn text<'v>(value: &'v Value, path: &[&str]) -> Option<&'v str> {
    at(value, path)?.as_str()
}

fn at<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, key| value.get(*key))
}

/// Returns a number below a value. Counts are written as floating-point numbers by some versions.
fn number(value: &Value, path: &[&str]) -> Option<u64> {
    let found = at(value, path)?;
    found.as_u64().or_else(|| {
        let number = found.as_f64().filter(|number| *number >= 0.0)?;
        // The cast saturates.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count without its fraction; negative ones are excluded"
        )]
        Some(number as u64)
    })
}

fn time(value: &Value, path: &[&str]) -> Option<Timestamp> {
    number(value, path).map(Timestamp)
}

fn is_true(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool) == Some(true)
}

/// True if a member has content.
fn has(value: &Value, key: &str) -> bool {
    match value.get(key) {
        None | Some(Value::Null) => false,
        Some(Value::Object(members)) => !members.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    }
}

/// Returns the model of a message or a session: `model`, in either spelling of its members, or the
/// members `providerID` and `modelID` of older versions.
pub(super) fn model(info: &Value) -> Option<ModelRef> {
    let found = match info.get("model") {
        Some(model @ Value::Object(_)) => model,
        _ => info,
    };
    let provider = text(found, &["providerID"])?;
    let model = text(found, &["modelID"]).or_else(|| text(found.get("model")?, &["id"]));
    let model = model.or_else(|| {
        let is_own = info.get("model").is_some_and(Value::is_object);
        if is_own { text(found, &["id"]) } else { None }
    })?;
    let effort = text(found, &["variant"]).filter(|variant| *variant != "default");
    Some(ModelRef {
        provider: provider.into(),
        model: model.into(),
        effort: effort.map(str::to_owned),
    })
}

/// True if a title is the one that OpenCode gives before there is another.
fn is_placeholder(title: &str) -> bool {
    let begins = ["New session - ", "Child session - "];
    begins.iter().any(|begin| {
        title.strip_prefix(begin).is_some_and(|date| {
            date.ends_with('Z') && date.starts_with(|c: char| c.is_ascii_digit())
        })
    })
}

/// Converts the properties of a session.
pub(super) fn record(info: &Value, left_out: &Omitted) -> Result<Record, String> {
    let id = text(info, &["id"]).ok_or("the session has no id")?;
    let cwd = text(info, &["directory"])
        .or_else(|| text(info, &["path", "cwd"]))
        .filter(|directory| Path::new(directory).is_absolute())
        .ok_or_else(|| format!("session {id} has no directory"))?;
    let created = time(info, &["time", "created"]).unwrap_or(Timestamp(0));
    let mut record = Record::new(SessionId::new(id), PathBuf::from(cwd), created);
    record.updated = time(info, &["time", "updated"]).unwrap_or(created);
    record.title = text(info, &["title"])
        .filter(|title| !title.is_empty() && !is_placeholder(title))
        .map(str::to_owned);
    if record.title.is_some() {
        record.title_source = TitleSource::Agent;
    }
    record.parent = text(info, &["parentID"]).map(SessionId::new);
    record.agent = text(info, &["agent"]).map(str::to_owned);
    record.model = info.get("model").and_then(|_| model(info));
    record.archived = number(info, &["time", "archived"]).is_some();
    record.cost = at(info, &["cost"])
        .and_then(Value::as_f64)
        .filter(|cost| *cost > 0.0);
    let count =
        |key: &str| number(info, &["summary", key]).and_then(|count| usize::try_from(count).ok());
    record.diff_stats = count("files")
        .filter(|files| *files > 0)
        .map(|files| DiffStats {
            files,
            additions: count("additions").unwrap_or_default(),
            deletions: count("deletions").unwrap_or_default(),
        });
    if let Some(from) = text(info, &["revert", "messageID"]) {
        // OpenCode has changed the files already.
        record.undone.push(UndoEntry {
            from: MessageId::new(from),
            files: Vec::new(),
            skipped_files: Vec::new(),
            is_complete: true,
            is_logged: false,
        });
        if has(&info["revert"], "partID") {
            left_out.add("undos of a part of a message, which now undo the whole message");
        }
    }
    // OpenCode derives the rules of a subagent's session from its parent.
    let denied = if record.parent.is_some() {
        &mut record.inherited.denied
    } else {
        &mut record.denied
    };
    for rule in info
        .get("permission")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        match (
            text(rule, &["permission"]),
            text(rule, &["pattern"]),
            text(rule, &["action"]),
        ) {
            (Some(permission), Some(pattern), Some("deny")) => {
                denied.push((permission.into(), pattern.into()));
            }
            _ => left_out.add("permission rules of single sessions"),
        }
    }
    for (key, name) in [
        ("share", "links to shared sessions"),
        ("metadata", "metadata of sessions"),
        ("workspaceID", "workspaces"),
    ] {
        if has(info, key) {
            left_out.add(name);
        }
    }
    Ok(record)
}

/// Converts a plan. Entries without text are left out.
pub(super) fn todos(list: &[Value]) -> Vec<Todo> {
    let todo = |value: &Value| {
        Some(Todo {
            content: text(value, &["content"])?.to_owned(),
            status: match text(value, &["status"]) {
                Some("in_progress") => TodoStatus::InProgress,
                Some("completed") => TodoStatus::Completed,
                Some("cancelled") => TodoStatus::Cancelled,
                _ => TodoStatus::Pending,
            },
            priority: match text(value, &["priority"]) {
                Some("high") => Priority::High,
                Some("low") => Priority::Low,
                _ => Priority::Medium,
            },
        })
    };
    list.iter().filter_map(todo).collect()
}

/// Returns the plan that a part has written.
pub(super) fn plan(part: &Value) -> Option<Vec<Todo>> {
    if text(part, &["tool"])? != "todowrite" || text(part, &["state", "status"])? != "completed" {
        return None;
    }
    Some(todos(at(part, &["state", "input", "todos"])?.as_array()?))
}

/// The translation of one session's messages.
pub(super) struct Converter {
    session: SessionId,
    cwd: PathBuf,
    agent: String,
    /// The model of messages that name none.
    model: ModelRef,
    /// The costs of subagents with all below them, which OpenCode does not count in the messages
    /// that started them.
    child_costs: HashMap<SessionId, f64>,
    left_out: Omitted,
}

impl Converter {
    pub(super) fn new(record: &Record, model: Option<ModelRef>, left_out: Omitted) -> Self {
        Self {
            session: record.id.clone(),
            cwd: record.cwd.clone(),
            agent: record.agent.clone().unwrap_or_else(|| "build".into()),
            model: model.unwrap_or_else(|| ModelRef {
                provider: "unknown".into(),
                model: "unknown".into(),
                effort: None,
            }),
            child_costs: HashMap::new(),
            left_out,
        }
    }

    /// Sets the costs of subagents, each with all below it.
    pub(super) fn with_child_costs(mut self, costs: HashMap<SessionId, f64>) -> Self {
        self.child_costs = costs;
        self
    }

    /// Adds the costs of the subagents that a message has started, each of them once.
    fn add_child_costs(&mut self, assistant: &mut Assistant, parts: &[Part]) {
        for part in parts {
            let Content::Tool(call) = &part.content else {
                continue;
            };
            let child = call.state.facts().and_then(|facts| facts.child.as_ref());
            if let Some(cost) = child.and_then(|child| self.child_costs.remove(&child.session)) {
                assistant.cost = Some(assistant.cost.unwrap_or_default() + cost);
            }
        }
    }

    /// Converts a message. `None`, counted, if it has no id or no role.
    pub(super) fn message(&mut self, info: &Value, parts: Vec<Value>) -> Option<Message> {
        let Some((id, role)) = text(info, &["id"]).zip(text(info, &["role"])) else {
            self.left_out.add(UNREADABLE);
            return None;
        };
        let id = MessageId::new(id);
        if let Some(model) = model(info) {
            self.model = model;
        }
        let agent = text(info, &["agent"]).or_else(|| text(info, &["mode"]));
        let agent = agent.unwrap_or(&self.agent).to_owned();
        // The agent of a summary does not answer later messages.
        if !is_true(info, "summary") {
            self.agent.clone_from(&agent);
        }
        let mut role = match role {
            "user" => Role::User(User {
                agent,
                model: self.model.clone(),
            }),
            "assistant" => Role::Assistant(self.assistant(info, agent)),
            _ => {
                self.left_out.add(UNREADABLE);
                return None;
            }
        };
        let mut parts: Vec<Part> = parts.iter().filter_map(|part| self.part(part)).collect();
        match &mut role {
            Role::User(_) => parts.extend(options(info, &id)),
            Role::Assistant(assistant) => self.add_child_costs(assistant, &parts),
        }
        Some(Message {
            id,
            created: time(info, &["time", "created"]).unwrap_or(Timestamp(0)),
            role,
            parts,
        })
    }

    fn assistant(&self, info: &Value, agent: String) -> Assistant {
        let tokens = |path: &[&str]| {
            let path: Vec<&str> = ["tokens"].iter().chain(path).copied().collect();
            number(info, &path).unwrap_or_default().min(MAX_TOKENS)
        };
        if has(info, "structured") {
            self.left_out.add("structured answers");
        }
        Assistant {
            parent: MessageId::new(text(info, &["parentID"]).unwrap_or_default()),
            agent,
            model: self.model.clone(),
            finish: text(info, &["finish"]).map(finish).or_else(|| {
                // Older versions do not write the reason.
                let is_complete =
                    number(info, &["time", "completed"]).is_some() && !has(info, "error");
                is_complete.then_some(Finish::Other)
            }),
            fault: info
                .get("error")
                .filter(|error| error.is_object())
                .map(fault),
            summary: is_true(info, "summary"),
            usage: Usage {
                input: tokens(&["input"]),
                output: tokens(&["output"]),
                reasoning: tokens(&["reasoning"]),
                cache_read: tokens(&["cache", "read"]),
                cache_write: tokens(&["cache", "write"]),
            },
            cost: info.get("cost").and_then(Value::as_f64),
            completed: time(info, &["time", "completed"]),
        }
    }

    fn part(&self, part: &Value) -> Option<Part> {
        let Some((id, kind)) = text(part, &["id"]).zip(text(part, &["type"])) else {
            self.left_out.add(UNREADABLE);
            return None;
        };
        let content = match kind {
            "text" => Content::Text(Text {
                text: text(part, &["text"]).unwrap_or_default().into(),
                synthetic: is_true(part, "synthetic"),
                ignored: is_true(part, "ignored"),
                ..Text::default()
            }),
            "reasoning" => Content::Reasoning(self.reasoning(part)),
            "file" => Content::File(file(part)),
            "tool" => Content::Tool(self.call(id, part)?),
            "agent" => Content::Agent {
                name: text(part, &["name"])?.to_owned(),
            },
            "subtask" => Content::Subtask {
                agent: text(part, &["agent"])?.to_owned(),
                description: text(part, &["description"]).unwrap_or_default().to_owned(),
                prompt: text(part, &["prompt"]).unwrap_or_default().to_owned(),
                model: part.get("model").and_then(|_| model(part)),
            },
            "compaction" => Content::Compaction(Compaction {
                auto: is_true(part, "auto"),
                overflow: is_true(part, "overflow"),
                tail: text(part, &["tail_start_id"]).map(MessageId::new),
                ..Compaction::default()
            }),
            "retry" => Content::Retry {
                attempt: number(part, &["attempt"])
                    .and_then(|attempt| u32::try_from(attempt).ok())
                    .unwrap_or(1),
                reason: text(part, &["error", "data", "message"])
                    .or_else(|| text(part, &["error", "message"]))
                    .unwrap_or("the request failed")
                    .to_owned(),
            },
            // The tokens and the cost of a step are in its message as well.
            "step-start" | "step-finish" => {
                if has(part, "snapshot") {
                    self.left_out.add(STATES_FOR_UNDO);
                }
                return None;
            }
            "snapshot" | "patch" => {
                self.left_out.add(STATES_FOR_UNDO);
                return None;
            }
            other => {
                self.left_out.add(format!("parts of the kind \"{other}\""));
                return None;
            }
        };
        Some(Part {
            id: PartId::new(id),
            content,
        })
    }

    fn reasoning(&self, part: &Value) -> Reasoning {
        let mut provider = Map::new();
        for (theirs, ours) in [("signature", "signature"), ("redactedData", "redacted")] {
            if let Some(value) = at(part, &["metadata", "anthropic", theirs]) {
                provider.insert(ours.into(), value.clone());
            }
        }
        if provider.is_empty() && has(part, "metadata") {
            self.left_out.add("encrypted reasoning of models");
        }
        Reasoning {
            text: text(part, &["text"]).unwrap_or_default().to_owned(),
            provider,
        }
    }

    fn call(&self, part: &str, value: &Value) -> Option<Call> {
        let tool = text(value, &["tool"])?;
        let state = value.get("state")?;
        let input = state
            .get("input")
            .cloned()
            .unwrap_or(Value::Object(Map::new()));
        let names_a_file = !matches!(kind(tool), ToolKind::Search | ToolKind::Other);
        let path = if names_a_file {
            ["filePath", "path"]
                .iter()
                .find_map(|key| text(&input, &[*key]))
        } else {
            None
        };
        if has(value, "metadata") {
            self.left_out.add("provider data of calls");
        }
        Some(Call {
            // The id of a call is the provider's, and some providers count from 1 in every turn.
            call: CallId::new(part.replacen(PartId::PREFIX, CallId::PREFIX, 1)),
            provider_id: text(value, &["callID"]).map(str::to_owned),
            tool: tool.to_owned(),
            kind: kind(tool),
            title: self.title(tool, state, &input),
            locations: path
                .map(|path| Location {
                    path: self.cwd.join(path),
                    line: None,
                })
                .into_iter()
                .collect(),
            state: self.state(tool, state, path),
            input: Arc::new(input),
            provider: Map::new(),
        })
    }

    fn title(&self, tool: &str, state: &Value, input: &Value) -> String {
        let verb = match tool {
            "read" => "Read",
            "edit" | "multiedit" => "Edit",
            "write" => "Write",
            _ => "",
        };
        if !verb.is_empty()
            && let Some(path) = text(input, &["filePath"])
        {
            let path = Path::new(path);
            let path = path.strip_prefix(&self.cwd).unwrap_or(path);
            return format!("{verb} {}", path.display());
        }
        let title = text(state, &["title"])
            .or_else(|| text(input, &["command"]))
            .or_else(|| text(input, &["description"]));
        title
            .filter(|title| !title.is_empty())
            .unwrap_or(tool)
            .to_owned()
    }

    fn state(&self, tool: &str, state: &Value, path: Option<&str>) -> CallState {
        let facts = self.facts(tool, state);
        match text(state, &["status"]) {
            Some("completed") => CallState::Completed(Completed {
                output: text(state, &["output"]).unwrap_or_default().into(),
                display: None,
                coloured: None,
                facts,
                changes: self.changes(state, path),
                attachments: state
                    .get("attachments")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .map(file)
                    .collect(),
                cleared: time(state, &["time", "compacted"]),
            }),
            Some("error") => {
                let is_interrupted =
                    at(state, &["metadata", "interrupted"]).and_then(Value::as_bool) == Some(true);
                let error = text(state, &["error"]).unwrap_or("the call failed");
                let cause = if is_interrupted || error == "Tool execution aborted" {
                    FailureCause::Cancelled
                } else {
                    FailureCause::Error
                };
                CallState::Failed {
                    error: error.to_owned(),
                    cause,
                    coloured: None,
                    facts,
                }
            }
            Some("running") => CallState::Running {
                facts,
                printed: text(state, &["metadata", "output"]).map(Arc::from),
            },
            _ => CallState::Pending,
        }
    }

    fn facts(&self, tool: &str, state: &Value) -> CallFacts {
        let mut facts = CallFacts::default();
        let Some(metadata) = state.get("metadata") else {
            return facts;
        };
        if tool == "task" {
            facts.child = text(metadata, &["sessionId"]).map(|child| ChildSession {
                parent: Some(self.session.clone()),
                session: SessionId::new(child),
                model: model(metadata),
            });
        }
        if tool == "bash" && metadata.get("exit").is_some() {
            facts.exit = Some(ProgramExit {
                code: metadata["exit"]
                    .as_i64()
                    .and_then(|code| i32::try_from(code).ok()),
                signal: None,
            });
        }
        facts
    }

    /// Returns the changes of the files that an edit has touched, from its diffs.
    fn changes(&self, state: &Value, path: Option<&str>) -> Vec<transcript::Change> {
        let metadata = &state["metadata"];
        let whole = |path: &str| self.cwd.join(path).display().to_string();
        if let Some(files) = metadata.get("files").and_then(Value::as_array) {
            let changes = files.iter().filter_map(|file| {
                let path = text(file, &["filePath"]).or_else(|| text(file, &["file"]))?;
                let diff = text(file, &["diff"]).or_else(|| text(file, &["patch"]))?;
                Some(patch::changes(&whole(path), diff))
            });
            return changes.flatten().collect();
        }
        match (path, text(metadata, &["diff"])) {
            (Some(path), Some(diff)) => patch::changes(&whole(path), diff),
            _ => Vec::new(),
        }
    }
}

/// Returns the kind of a tool's work, by the names of OpenCode's tools.
fn kind(tool: &str) -> ToolKind {
    match tool {
        "read" | "list" | "lsp" => ToolKind::Read,
        "edit" | "multiedit" | "write" | "patch" | "apply_patch" => ToolKind::Edit,
        "glob" | "grep" | "codesearch" => ToolKind::Search,
        "bash" => ToolKind::Execute,
        "webfetch" | "websearch" => ToolKind::Fetch,
        "task" | "todowrite" | "todoread" | "skill" => ToolKind::Think,
        _ => ToolKind::Other,
    }
}

fn finish(reason: &str) -> Finish {
    match reason {
        "stop" => Finish::Stop,
        "tool-calls" => Finish::ToolCalls,
        "length" => Finish::Length,
        "content-filter" => Finish::Refusal,
        _ => Finish::Other,
    }
}

fn fault(error: &Value) -> Fault {
    let kind = match text(error, &["name"]) {
        Some("ProviderAuthError") => FaultKind::Auth,
        Some("APIError" | "ContentFilterError" | "MessageOutputLengthError") => FaultKind::Provider,
        Some("ContextOverflowError") => FaultKind::ContextOverflow,
        Some("MessageAbortedError") => FaultKind::Interrupted,
        _ => FaultKind::Internal,
    };
    let message = text(error, &["data", "message"])
        .or_else(|| text(error, &["message"]))
        .or_else(|| text(error, &["name"]));
    Fault {
        kind,
        message: message.unwrap_or("the step failed").to_owned(),
        advice: None,
    }
}

fn file(part: &Value) -> File {
    let url = text(part, &["url"]).unwrap_or_default();
    let data = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"))
        .map(|(_, data)| data.to_owned());
    File {
        mime: text(part, &["mime"])
            .unwrap_or("application/octet-stream")
            .to_owned(),
        name: text(part, &["filename"]).map(str::to_owned),
        uri: (data.is_none() && !url.is_empty()).then(|| url.to_owned()),
        data,
        is_rejected: false,
    }
}

/// Returns the options of a prompt as parts.
fn options(info: &Value, message: &MessageId) -> Vec<Part> {
    let id = |name: &str| {
        let message = message
            .as_str()
            .replacen(MessageId::PREFIX, PartId::PREFIX, 1);
        PartId::new(format!("{message}{name}"))
    };
    let mut parts = Vec::new();
    if let Some(schema) = at(info, &["format", "schema"]) {
        parts.push(Part {
            id: id("format"),
            content: Content::Format {
                schema: schema.clone(),
            },
        });
    }
    let tools = info.get("tools").and_then(Value::as_object);
    let options = PromptOptions {
        system: text(info, &["system"]).map(str::to_owned),
        tools: tools
            .into_iter()
            .flatten()
            .filter_map(|(tool, on)| Some((tool.clone(), on.as_bool()?)))
            .collect(),
        ..PromptOptions::default()
    };
    if options != PromptOptions::default() {
        parts.push(Part {
            id: id("options"),
            content: Content::PromptOptions(options),
        });
    }
    parts
}
