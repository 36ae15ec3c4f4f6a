//! Messages and their parts in OpenCode's JSON format, for the client of plugins, for events and for
//! `adjutant events`. Each function encodes one of adjutant's own types.

use serde_json::{Value, json};

use base::environment::Timestamp;
use base::id::MessageId;
use base::text;
use transcript::{
    Call, CallFacts, CallState, Content, Fault, FaultKind, Finish, Message, Part, Role, Usage,
};

/// The maximum length of a part's text, in bytes. It is longer than a tool's result or a model's answer
/// may be. A part whose text was cut is marked with `metadata.truncated`.
pub const MAX_TEXT_BYTES: usize = 256 << 10;

/// The facts about a session that its messages repeat.
#[derive(Debug, Clone, Copy)]
pub struct MessageContext<'a> {
    /// The id of the session.
    pub session: &'a str,
    /// The working directory.
    pub cwd: &'a str,
    /// The root of the project.
    pub root: &'a str,
}

/// Encodes a message without its parts.
pub fn encode_message(context: &MessageContext<'_>, message: &Message) -> Value {
    let mut info = json!({
        "id": message.id.as_str(), "sessionID": context.session, "time": { "created": message.created.0 },
    });
    match &message.role {
        Role::User(user) => {
            info["role"] = "user".into();
            info["agent"] = user.agent.as_str().into();
            info["model"] =
                json!({ "providerID": user.model.provider, "modelID": user.model.model });
            if let Some(effort) = &user.model.effort {
                info["model"]["variant"] = effort.as_str().into();
            }
        }
        Role::Assistant(own) => {
            info["role"] = "assistant".into();
            info["parentID"] = own.parent.as_str().into();
            info["agent"] = own.agent.as_str().into();
            info["mode"] = own.agent.as_str().into();
            info["path"] = json!({ "cwd": context.cwd, "root": context.root });
            info["providerID"] = own.model.provider.as_str().into();
            info["modelID"] = own.model.model.as_str().into();
            info["cost"] = own.cost.unwrap_or_default().into();
            info["tokens"] = encode_tokens(&own.usage);
            if let Some(effort) = &own.model.effort {
                info["variant"] = effort.as_str().into();
            }
            if own.summary {
                info["summary"] = true.into();
            }
            if let Some(finish) = own.finish {
                info["finish"] = finish_reason(finish).into();
            }
            if let Some(completed) = own.completed {
                info["time"]["completed"] = completed.0.into();
            }
            if let Some(fault) = &own.fault {
                info["error"] = encode_error(fault);
            }
        }
    }
    info
}

fn encode_tokens(usage: &Usage) -> Value {
    json!({
        "total": usage.context(), "input": usage.input, "output": usage.output, "reasoning": usage.reasoning,
        "cache": { "read": usage.cache_read, "write": usage.cache_write },
    })
}

/// Returns the part that begins an answer in OpenCode, and the part that ends it, which adjutant's
/// messages do not have. Both are `None` for a message of the user; the second one is `None` if the
/// answer has not ended.
pub fn step_parts(session: &str, message: &Message) -> [Option<Value>; 2] {
    let Some(own) = message.assistant() else {
        return [None, None];
    };
    let id = message.id.as_str();
    let part = |kind: &str, end: &str| {
        let name = id.strip_prefix("msg_").unwrap_or(id);
        json!({ "id": format!("prt_{name}{end}"), "sessionID": session, "messageID": id, "type": kind })
    };
    let end = own.finish.map(|finish| {
        let mut end = part("step-finish", "_end");
        end["reason"] = finish_reason(finish).into();
        end["cost"] = own.cost.unwrap_or_default().into();
        end["tokens"] = encode_tokens(&own.usage);
        end
    });
    [Some(part("step-start", "_start")), end]
}

fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool-calls",
        Finish::Length => "length",
        Finish::Refusal => "content-filter",
        Finish::NotDone | Finish::Other => "other",
    }
}

/// Encodes the failure of a step or a turn.
pub fn encode_error(fault: &Fault) -> Value {
    let name = match fault.kind {
        FaultKind::Auth => "ProviderAuthError",
        FaultKind::Interrupted => "MessageAbortedError",
        FaultKind::ContextOverflow => "ContextOverflowError",
        FaultKind::Provider | FaultKind::Image | FaultKind::Store | FaultKind::Internal => {
            "UnknownError"
        }
    };
    json!({ "name": name, "data": { "message": fault.message } })
}

/// Encodes a part; `None` if OpenCode has no such part. `at` is the time of its last change.
pub fn encode_part(
    session: &str,
    message: &MessageId,
    part: &Part,
    at: Timestamp,
) -> Option<Value> {
    let mut shown = encode_content(&part.content, at)?;
    shown["id"] = part.id.as_str().into();
    shown["sessionID"] = session.into();
    shown["messageID"] = message.as_str().into();
    Some(shown)
}

fn encode_content(content: &Content, at: Timestamp) -> Option<Value> {
    let mut cut = TextCut::default();
    let mut shown = match content {
        Content::Text(text) => {
            let mut shown = json!({ "type": "text", "text": cut.head(&text.text), "time": text_times(&text.text, at) });
            for (key, value) in [("synthetic", text.synthetic), ("ignored", text.ignored)] {
                if value {
                    shown[key] = true.into();
                }
            }
            shown
        }
        Content::Reasoning(reasoning) => {
            json!({ "type": "reasoning", "text": cut.head(&reasoning.text), "time": text_times(&reasoning.text, at) })
        }
        Content::File(file) => {
            let data = file.data.as_deref().unwrap_or_default();
            let inline = || format!("data:{};base64,{}", file.mime, cut.head(data));
            let mut shown = json!({ "type": "file", "mime": file.mime });
            shown["url"] = file.uri.clone().unwrap_or_else(inline).into();
            if let Some(name) = &file.name {
                shown["filename"] = name.as_str().into();
            }
            shown
        }
        Content::Tool(call) => {
            json!({ "type": "tool", "callID": call.call.as_str(), "tool": call.tool, "state": encode_call_state(call, at) })
        }
        Content::Patch { files, .. } => {
            let files: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
            json!({ "type": "patch", "hash": "", "files": files })
        }
        Content::Agent { name } => json!({ "type": "agent", "name": name }),
        Content::Subtask {
            agent,
            description,
            prompt,
            ..
        } => {
            json!({ "type": "subtask", "agent": agent, "description": description, "prompt": cut.head(prompt) })
        }
        Content::Compaction(compaction) => {
            json!({ "type": "compaction", "auto": compaction.auto, "overflow": compaction.overflow })
        }
        Content::Retry { attempt, reason } => json!({
            "type": "retry", "attempt": attempt, "time": { "created": at.0 },
            "error": { "name": "APIError", "data": { "message": reason, "isRetryable": true } },
        }),
        Content::PromptOptions(_) | Content::Format { .. } => return None,
    };
    if cut.was_needed {
        shown["metadata"] = json!({ "truncated": true });
    }
    Some(shown)
}

/// Returns the times of a text. It is published twice: empty when it begins, and when it is complete.
fn text_times(text: &str, at: Timestamp) -> Value {
    if text.is_empty() {
        json!({ "start": at.0 })
    } else {
        json!({ "start": at.0, "end": at.0 })
    }
}

/// Cuts the texts of a part, and records whether that was needed.
#[derive(Debug, Default)]
struct TextCut {
    was_needed: bool,
}

impl TextCut {
    /// Returns the text, or the beginning of one that is too long.
    fn head<'t>(&mut self, text: &'t str) -> &'t str {
        let head = text::head(text, MAX_TEXT_BYTES);
        self.was_needed |= head.len() < text.len();
        head
    }
}

fn encode_call_state(call: &Call, at: Timestamp) -> Value {
    let mut cut = TextCut::default();
    let time = json!({ "start": at.0, "end": at.0 });
    let mut shown = match &call.state {
        CallState::Pending => {
            return json!({ "status": "pending", "input": *call.input, "raw": "" });
        }
        CallState::Running { .. } => json!({
            "status": "running", "input": *call.input, "title": call.title, "time": { "start": at.0 },
        }),
        CallState::Completed(done) => json!({
            "status": "completed", "input": *call.input, "output": cut.head(&done.output), "title": call.title, "time": time,
        }),
        CallState::Failed { error, .. } => json!({
            "status": "error", "input": *call.input, "error": cut.head(error), "time": time,
        }),
    };
    let facts = call.state.facts().map(CallFacts::to_json);
    let mut facts = Value::Object(facts.unwrap_or_default());
    let is_long = text::is_longer(&facts, MAX_TEXT_BYTES);
    // OpenCode's copy of the diff is left out before the other facts are.
    if facts["filepath"].is_string()
        && facts["diff"]
            .as_str()
            .is_some_and(|diff| diff.len() <= MAX_TEXT_BYTES / 2)
    {
        facts["filediff"] = json!({
            "file": facts["filepath"], "patch": facts["diff"],
            "additions": facts["additions"], "deletions": facts["deletions"],
        });
    }
    shown["metadata"] = if is_long { json!({}) } else { facts };
    if is_long || cut.was_needed {
        shown["metadata"]["truncated"] = true.into();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use base::id::{CallId, PartId};
    use events::ToolKind;
    use serde_json::Map;
    use transcript::{Completed, Text};

    fn shown(content: Content) -> Value {
        let own = Part {
            id: PartId::new("prt_1"),
            content,
        };
        encode_part("ses_1", &MessageId::new("msg_1"), &own, Timestamp(1)).unwrap()
    }

    fn completed(output: &str, details: Value) -> Content {
        let Value::Object(details) = details else {
            panic!("no object")
        };
        Content::Tool(Call {
            call: CallId::new("call_1"),
            provider_id: None,
            tool: "bash".into(),
            input: Arc::new(json!({})),
            kind: ToolKind::Execute,
            title: "x".into(),
            locations: Vec::new(),
            state: CallState::Completed(Completed {
                output: output.into(),
                facts: CallFacts {
                    details,
                    ..CallFacts::default()
                },
                ..Completed::default()
            }),
            provider: Map::new(),
        })
    }

    #[test]
    fn answer_begins_and_ends_with_parts_of_its_step() {
        let model = transcript::ModelRef {
            provider: "p".into(),
            model: "m".into(),
            effort: None,
        };
        let own = |finish| transcript::Assistant {
            parent: MessageId::new("msg_0"),
            agent: "build".into(),
            model: model.clone(),
            finish,
            fault: None,
            summary: false,
            usage: Usage {
                input: 10,
                output: 2,
                cache_read: 5,
                ..Usage::default()
            },
            cost: Some(0.5),
            completed: None,
        };
        let message = |finish| Message {
            id: MessageId::new("msg_7"),
            created: Timestamp(1),
            role: Role::Assistant(own(finish)),
            parts: Vec::new(),
        };
        let [start, end] = step_parts("ses_1", &message(None));
        let part = |id: &str, kind: &str| json!({ "id": id, "sessionID": "ses_1", "messageID": "msg_7", "type": kind });
        assert_eq!(start, Some(part("prt_7_start", "step-start")));
        assert_eq!(end, None);
        let [_, end] = step_parts("ses_1", &message(Some(Finish::Stop)));
        let mut wanted = part("prt_7_end", "step-finish");
        wanted["reason"] = "stop".into();
        wanted["cost"] = 0.5.into();
        wanted["tokens"] = json!({ "total": 17, "input": 10, "output": 2, "reasoning": 0, "cache": { "read": 5, "write": 0 } });
        assert_eq!(end, Some(wanted));
    }

    #[test]
    fn parts_have_the_members_that_opencode_requires() {
        let file = |uri: Option<&str>, name: Option<&str>| {
            Content::File(transcript::File {
                mime: "image/png".into(),
                name: name.map(str::to_owned),
                uri: uri.map(str::to_owned),
                data: Some("AAAA".into()),
                is_rejected: false,
            })
        };
        let about = json!({ "id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1" });
        for (content, wanted) in [
            (
                file(None, None),
                json!({ "type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA" }),
            ),
            (
                file(Some("file:///a.png"), Some("a.png")),
                json!({ "type": "file", "mime": "image/png", "url": "file:///a.png", "filename": "a.png" }),
            ),
            (
                Content::Text(Text {
                    text: "Yes.".into(),
                    synthetic: true,
                    ..Text::default()
                }),
                json!({ "type": "text", "text": "Yes.", "synthetic": true, "time": { "start": 1, "end": 1 } }),
            ),
            (
                Content::Reasoning(transcript::Reasoning::default()),
                json!({ "type": "reasoning", "text": "", "time": { "start": 1 } }),
            ),
        ] {
            let mut wanted = wanted;
            for (key, value) in about.as_object().unwrap() {
                wanted[key] = value.clone();
            }
            assert_eq!(shown(content), wanted);
        }
        let edited = completed(
            "ok",
            json!({ "filepath": "/a", "diff": "-a", "additions": 0, "deletions": 1 }),
        );
        assert_eq!(
            shown(edited).pointer("/state/metadata/filediff"),
            Some(&json!({ "file": "/a", "patch": "-a", "additions": 0, "deletions": 1 }))
        );
    }

    #[test]
    fn long_texts_are_whole_within_a_limit_and_marked_above_it() {
        let whole = "x".repeat(MAX_TEXT_BYTES);
        let long = "x".repeat(MAX_TEXT_BYTES + 1);
        let text = |text: &str| {
            Content::Text(Text {
                text: text.into(),
                ..Text::default()
            })
        };
        let cut = json!({ "truncated": true });
        let table = [
            (text(&whole), "/text", "/metadata", None),
            (text(&long), "/text", "/metadata", Some(cut.clone())),
            (
                completed(&whole, json!({ "exit": 0 })),
                "/state/output",
                "/state/metadata",
                Some(json!({ "exit": 0 })),
            ),
            (
                completed(&long, json!({ "exit": 0 })),
                "/state/output",
                "/state/metadata",
                Some(json!({ "exit": 0, "truncated": true })),
            ),
            (
                completed(&whole, json!({ "diff": long })),
                "/state/output",
                "/state/metadata",
                Some(cut),
            ),
        ];
        for (content, text, metadata, wanted) in table {
            let shown = shown(content);
            let text = shown.pointer(text).and_then(Value::as_str);
            assert_eq!(text.map(str::len), Some(MAX_TEXT_BYTES));
            assert_eq!(shown.pointer(metadata), wanted.as_ref());
        }
    }
}
