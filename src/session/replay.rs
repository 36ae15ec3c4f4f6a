//! A stored history as events, the same that were sent while it happened.

use std::collections::HashMap;
use std::pin::Pin;

use serde_json::Value;

use crate::event::{self, CallUpdate, Event, Exit, Facts, Progress, UserPiece};
use crate::id::{CallId, PartId, SessionId};
use crate::message::{Call, CallState, Compaction, Content, Message, Part, Role, Todo};
use crate::model::Model;
use crate::store::Store;
use crate::turn::{History, size};

/// Calls of subagents that the user was asked about, by the call that set the subagent to work: the
/// editor has seen them beside it.
pub type Asked = HashMap<CallId, Vec<Event>>;

/// Finds them in the histories of the children.
pub async fn asked(store: &Store, history: &History) -> Asked {
    let mut found = Asked::new();
    for call in history.messages.iter().flat_map(Message::calls) {
        let events = beside(store, call).await;
        if !events.is_empty() {
            found.insert(call.call.clone(), events);
        }
    }
    found
}

fn beside<'a>(store: &'a Store, call: &'a Call) -> Pin<Box<dyn Future<Output = Vec<Event>> + Send + 'a>> {
    Box::pin(async move {
        let metadata = match &call.state {
            CallState::Completed(done) => &done.metadata,
            CallState::Failed { metadata, .. } => metadata,
            CallState::Pending | CallState::Running => return Vec::new(),
        };
        let ids = metadata.get(Facts::ASKED).and_then(Value::as_array);
        let child = metadata.get("sessionId").and_then(Value::as_str).map(SessionId::new);
        let Some((ids, child)) = ids.zip(child).filter(|(_, child)| child.is_well_formed()) else { return Vec::new() };
        // What is gone is not shown.
        let Ok(stored) = store.peek(&child).await else { return Vec::new() };
        let agent = stored.record.agent.unwrap_or_default();
        let mut events = Vec::new();
        for call in stored.messages.iter().flat_map(Message::calls) {
            if ids.iter().any(|id| id.as_str() == Some(call.call.as_str())) {
                events.push(Event::Call(Box::new(finished(call))));
            }
            events.extend(beside(store, call).await);
        }
        for event in &mut events {
            if let Event::Call(update) = event {
                update.title = update.title.take().map(|title| crate::text::title(&format!("{agent}: {title}")));
            }
        }
        events
    })
}

/// The events of a history, oldest first; at the end the plan and how full the context is.
pub fn events(history: &History, todos: &[Todo], window: Option<u64>, asked: &Asked) -> Vec<Event> {
    let mut out = Vec::new();
    for message in &history.messages {
        if message.assistant().is_some_and(|a| a.summary) {
            out.extend(summarised(history, message));
            continue;
        }
        for part in &message.parts {
            out.extend(event(message, part));
            if let Content::Tool(call) = &part.content {
                out.extend(asked.get(&call.call).into_iter().flatten().cloned());
            }
        }
        if let Role::Assistant(assistant) = &message.role
            && let Some(fault) = &assistant.fault
        {
            let part = PartId::new(format!("{}-fault", message.id));
            out.push(Event::Text { part, delta: format!("({})", fault.message) });
        }
    }
    if !todos.is_empty() {
        out.push(Event::Plan(todos.to_vec()));
    }
    let cost = history.cost();
    if let Some(used) = size::used(history) {
        out.push(Event::Usage { used, size: window.unwrap_or(Model::ASSUMED_CONTEXT), cost });
    }
    out
}

/// A compaction as it ended.
fn summarised(history: &History, summary: &Message) -> Option<Event> {
    let parent = &summary.assistant()?.parent;
    let asked = history.messages.iter().rev().find(|m| m.id == *parent)?;
    asked.parts.iter().find_map(|part| match &part.content {
        Content::Compaction(Compaction { auto, before, after, .. }) => {
            let (before, after) = (*before, *after);
            let state = event::Compaction::Completed { before, after, summary: summary.visible_text() };
            Some(Event::Compaction { id: part.id.clone(), auto: *auto, state })
        }
        _ => None,
    })
}

fn event(message: &Message, part: &Part) -> Option<Event> {
    let user = message.user().is_some();
    match &part.content {
        Content::Text(text) if text.synthetic || text.text.is_empty() => None,
        Content::Text(text) if user => {
            Some(Event::User { message: message.id.clone(), piece: UserPiece::Text(text.text.clone()) })
        }
        Content::Text(text) => Some(Event::Text { part: part.id.clone(), delta: text.text.clone() }),
        Content::Reasoning(reasoning) if !reasoning.text.is_empty() => {
            Some(Event::Thought { part: part.id.clone(), delta: reasoning.text.clone() })
        }
        Content::File(file) => Some(Event::User { message: message.id.clone(), piece: UserPiece::File(file.clone()) }),
        Content::Tool(call) => Some(Event::Call(Box::new(finished(call)))),
        _ => None,
    }
}

/// A call as it ended, in one piece.
fn finished(call: &Call) -> CallUpdate {
    let mut update = CallUpdate {
        tool: Some(call.tool.clone()),
        title: Some(call.title.clone()),
        kind: Some(call.kind),
        input: call.input.is_object().then(|| call.input.clone()),
        locations: (!call.locations.is_empty()).then(|| call.locations.clone()),
        ..CallUpdate::of(&call.call)
    };
    match &call.state {
        CallState::Pending => update.progress = Some(Progress::Pending),
        CallState::Running => update.progress = Some(Progress::Running),
        CallState::Completed(done) => {
            update.progress = Some(Progress::Completed);
            update.output = Some(done.display.clone().unwrap_or_else(|| done.output.to_string()));
            update.changes = (!done.changes.is_empty()).then(|| done.changes.clone());
            update.attachments = (!done.attachments.is_empty()).then(|| done.attachments.clone());
            update.metadata = (!done.metadata.is_empty()).then(|| done.metadata.clone());
            update.exit = done.metadata.get("exit").map(|code| Exit {
                code: code.as_i64().and_then(|code| i32::try_from(code).ok()),
                signal: done.metadata.get("signal").and_then(Value::as_str).map(str::to_owned),
            });
        }
        CallState::Failed { error, .. } => {
            update.progress = Some(Progress::Failed);
            update.output = Some(error.clone());
        }
    }
    update
}
