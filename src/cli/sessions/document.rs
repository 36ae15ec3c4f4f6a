//! Sessions as JSON for scripts. Times are in UTC, costs in US dollars; unknown values are `null`.

use serde_json::{Value, json};

use base::id::SessionId;
use session::turn::round_cost;
use store::{Record, StoredSession};
use transcript::{Call, CallFacts, CallState, Content, Message, Role};

/// Returns a session without its messages. `undone_turns` of them can be redone.
pub(super) fn session(record: &Record, undone_turns: usize) -> Value {
    let model = record.answered_by.as_ref().or(record.model.as_ref());
    json!({
        "id": record.id,
        "title": record.title,
        "cwd": record.cwd,
        "additionalDirectories": record.additional_directories,
        "created": record.created.iso(),
        "updated": record.updated.iso(),
        "parent": record.parent,
        "agent": record.agent,
        "model": model.map(ToString::to_string),
        "archived": record.archived,
        "cost": record.cost.map(round_cost),
        "changed": record.diff_stats,
        "summary": record.description(),
        "undoneTurns": undone_turns,
    })
}

/// Returns a session with its messages, of which undone ones are left out, and the sessions of its
/// subagents.
pub(super) fn conversation(stored: &StoredSession, children: &[SessionId]) -> Value {
    let shown = store::visible(&stored.messages, &stored.record.undone);
    let messages = stored.messages.iter().take(shown);
    let mut record = stored.record.clone();
    // A session of an older version has no such member.
    let answer = stored.messages.iter().rev().find_map(Message::assistant);
    record.answered_by = answer.map(|answer| answer.model.clone());
    let mut document = session(&record, super::count_undone(stored));
    document["messages"] = messages.map(message).collect();
    document["subagents"] = json!(children);
    document["damage"] = json!(stored.damage);
    document
}

fn message(message: &Message) -> Value {
    let files = message.parts.iter().filter_map(|part| match &part.content {
        Content::File(file) => file.name.as_deref().or(file.uri.as_deref()),
        _ => None,
    });
    let files: Vec<&str> = files.collect();
    let common = json!({
        "id": message.id,
        "created": message.created.iso(),
        "text": message.visible_text(),
        "files": files,
    });
    let mut document = match &message.role {
        Role::User(_) => json!({ "role": "user" }),
        Role::Assistant(answer) => json!({
            "role": "assistant",
            "agent": answer.agent,
            "model": answer.model.to_string(),
            "cost": answer.cost.map(round_cost),
            "error": answer.fault.as_ref().map(|fault| &fault.message),
            "calls": message.calls().map(call).collect::<Vec<_>>(),
        }),
    };
    if let (Value::Object(document), Value::Object(common)) = (&mut document, common) {
        document.extend(common);
    }
    document
}

fn call(call: &Call) -> Value {
    let (state, exit) = match &call.state {
        CallState::Pending => ("pending", None),
        CallState::Running { .. } => ("running", None),
        CallState::Completed(done) => ("completed", done.facts.exit.as_ref()),
        CallState::Failed { .. } => ("failed", None),
    };
    let answers = call.state.facts();
    let answers = answers.and_then(|facts| facts.details.get(CallFacts::ANSWERS));
    let mut document = json!({
        "tool": call.tool,
        "title": call.title,
        "state": state,
        "exitCode": exit.and_then(|exit| exit.code),
    });
    if let Some(answers) = answers {
        document["answers"] = answers.clone();
    }
    document
}
