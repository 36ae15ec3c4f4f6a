//! Commands in the background, as the history knows them: the call that started one says how it ended,
//! and whether the model was told. What runs is [`crate::tool::jobs`]'s.

use serde_json::{Map, Value};

use super::{History, Scope};
use crate::event::{CallUpdate, Event, Kind, Severity};
use crate::id::CallId;
use crate::message::{CallState, Completed, Content, Message, Part};
use crate::prompts;
use crate::tool::jobs::{ENDED, Ended, ID, Jobs, TOLD};

/// What is said of a command that was running when the process ended.
const UNKNOWN: &str = "outcome unknown: adjutant ended, or the session was copied, while it ran";

/// The number of the last command that was left in the background.
pub fn last(history: &History) -> u32 {
    let calls = history.messages.iter().flat_map(Message::calls);
    calls.filter_map(|call| Jobs::number(id(&call.state)?)).max().unwrap_or_default()
}

/// The command that a call left in the background.
pub(super) fn id(state: &CallState) -> Option<&str> {
    match state {
        CallState::Completed(done) => done.metadata.get(ID)?.as_str(),
        _ => None,
    }
}

/// Marks what was running when an earlier process ended. Says whether there was something.
pub(super) fn lost(state: &mut CallState) -> bool {
    let running = id(state).is_some();
    match state {
        CallState::Completed(done) if running && !done.metadata.contains_key(ENDED) => {
            done.metadata.insert(ENDED.into(), Value::String(UNKNOWN.into()));
            done.display = Some(shown(done.display.as_deref().unwrap_or_default(), UNKNOWN));
            true
        }
        _ => false,
    }
}

fn shown(printed: &str, how: &str) -> String {
    let printed = printed.trim_end();
    if printed.is_empty() { format!("({how})") } else { format!("{printed}\n\n({how})") }
}

/// Keeps in the history how commands have ended.
pub async fn settle(history: &mut History, scope: &Scope) {
    for ended in scope.jobs.unsettled() {
        // What was undone meanwhile is not there.
        let Some((message, place)) = place(history, &ended.call) else { continue };
        let Message { id, parts, .. } = &mut history.messages[message];
        let part = &mut parts[place];
        if let Content::Tool(call) = &mut part.content
            && let CallState::Completed(Completed { metadata, display, .. }) = &mut call.state
        {
            metadata.append(&mut facts(&ended));
            *display = Some(shown(&ended.tail, &ended.how));
            scope.record.part(id, part).await;
        }
    }
}

/// Where a call stands: which message, which part.
fn place(history: &History, wanted: &CallId) -> Option<(usize, usize)> {
    let is = |part: &Part| matches!(&part.content, Content::Tool(call) if call.call == *wanted);
    let place = |(at, message): (usize, &Message)| Some((at, message.parts.iter().position(is)?));
    history.messages.iter().enumerate().rev().find_map(place)
}

fn facts(ended: &Ended) -> Map<String, Value> {
    let mut facts = Map::from_iter([(ENDED.to_owned(), Value::String(ended.how.clone()))]);
    if let Some(code) = ended.code {
        facts.insert("exit".into(), code.into());
    }
    if let Some(path) = &ended.path {
        facts.insert("outputPath".into(), Value::String(path.display().to_string()));
    }
    if ended.heard {
        facts.insert(TOLD.into(), Value::Bool(true));
    }
    facts
}

/// What the model is to be told of commands that have ended; it counts as told.
pub(super) async fn news(history: &mut History, scope: &Scope) -> Option<String> {
    settle(history, scope).await;
    if !scope.jobs.untold() {
        return None;
    }
    let mut lines = Vec::new();
    for message in &mut history.messages {
        for part in &mut message.parts {
            let Content::Tool(call) = &mut part.content else { continue };
            let Some(id) = id(&call.state).map(str::to_owned) else { continue };
            let CallState::Completed(done) = &mut call.state else { continue };
            let Some(how) = done.metadata.get(ENDED).filter(|_| !done.metadata.contains_key(TOLD)) else { continue };
            let command = call.input.get("command").and_then(Value::as_str).unwrap_or_default();
            let command = crate::text::title(command);
            let path = done.metadata.get("outputPath").and_then(Value::as_str);
            let path = path.map(|path| format!(" Its output is in {path}.")).unwrap_or_default();
            lines.push(format!("- {id} (`{command}`): {}.{path}", how.as_str().unwrap_or_default()));
            done.metadata.insert(TOLD.into(), Value::Bool(true));
            scope.record.part(&message.id, part).await;
        }
    }
    (!lines.is_empty()).then(|| format!("{}\n{}", prompts::reminder("background").trim(), lines.join("\n")))
}

/// What these messages have left in the background and still runs: ids and command lines.
pub fn left_by(messages: &[Message], scope: &Scope) -> Vec<(String, String)> {
    let started: Vec<&str> = messages.iter().flat_map(Message::calls).filter_map(|call| id(&call.state)).collect();
    scope.jobs.running().into_iter().filter(|(id, _)| started.contains(&id.as_str())).collect()
}

/// What runs, for a model that no longer sees where it was started.
pub(super) fn running(scope: &Scope) -> Option<String> {
    let running = scope.jobs.running();
    let lines: Vec<String> = running.iter().map(|(id, command)| format!("- {id}: {command}")).collect();
    (!lines.is_empty()).then(|| format!("{}\n{}", prompts::reminder("running").trim(), lines.join("\n")))
}

/// Shows in their calls how commands have ended. Between two turns nothing may be shown there: it is
/// done when the next one begins.
pub async fn show(scope: &Scope) {
    for ended in scope.jobs.unshown() {
        let metadata = Map::from_iter([(ID.to_owned(), Value::String(ended.id.clone()))]);
        let update = CallUpdate {
            kind: Some(Kind::Execute),
            output: Some(shown(&ended.tail, &ended.how)),
            metadata: Some(metadata.into_iter().chain(facts(&ended)).filter(|(key, _)| key != TOLD).collect()),
            earlier: true,
            ..CallUpdate::of(&ended.call)
        };
        scope.outlet.event(Event::Call(Box::new(update))).await;
    }
}

/// What the user hears between two turns of commands that have ended.
pub fn notices(scope: &Scope) -> Vec<Event> {
    let one = |ended: Ended| Event::Notice {
        severity: Severity::Info,
        title: format!("A command in the background has ended ({}): {}.", ended.id, ended.how),
        details: Some(crate::text::title(&ended.command)),
    };
    scope.jobs.unnoticed().into_iter().map(one).collect()
}
