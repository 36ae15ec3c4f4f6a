//! Commands in the background, as the history knows them: the call that started one says how it ended,
//! and whether the model was told. What runs is [`tools::jobs`]'s.

use serde_json::Value;

use super::{History, TurnContext};
use base::id::CallId;
use events::{CallUpdate, Event, Progress, Severity, ToolKind};
use tools::jobs::{EndedJob, Jobs};
use transcript::{BackgroundJob, CallFacts, CallState, Completed, Content, JobState, Message, Part, ProgramExit};

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
        CallState::Completed(done) => Some(&done.facts.job.as_ref()?.id),
        _ => None,
    }
}

/// Marks what was running when an earlier process ended. Says whether there was something.
pub(super) fn lost(state: &mut CallState) -> bool {
    let CallState::Completed(done) = state else { return false };
    let Some(job) = done.facts.job.as_mut().filter(|job| job.state == JobState::Running) else { return false };
    job.state = JobState::Ended(UNKNOWN.into());
    done.display = Some(shown(done.display.as_deref().unwrap_or_default(), UNKNOWN));
    true
}

fn shown(printed: &str, how: &str) -> String {
    let printed = printed.trim_end();
    if printed.is_empty() { format!("({how})") } else { format!("{printed}\n\n({how})") }
}

/// Keeps in the history how commands have ended.
pub async fn settle(history: &mut History, scope: &TurnContext) {
    for ended in scope.resources.jobs.unsettled() {
        // What was undone meanwhile is not there.
        let Some((message, place)) = place(history, &ended.call) else { continue };
        let Message { id, parts, .. } = &mut history.messages[message];
        let part = &mut parts[place];
        if let Content::Tool(call) = &mut part.content
            && let CallState::Completed(Completed { facts, display, .. }) = &mut call.state
        {
            let state = if ended.heard { JobState::Told } else { JobState::Ended };
            *facts = std::mem::take(facts).and(known(&ended, state));
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

fn known(ended: &EndedJob, state: fn(String) -> JobState) -> CallFacts {
    CallFacts {
        job: Some(BackgroundJob { id: ended.id.clone(), state: state(ended.how.clone()) }),
        exit: ended.code.map(|code| ProgramExit { code: Some(code), signal: None }),
        output_path: ended.path.clone(),
        ..CallFacts::default()
    }
}

/// What the model is to be told of commands that have ended; it counts as told.
pub(super) async fn news(history: &mut History, scope: &TurnContext) -> Option<String> {
    settle(history, scope).await;
    if !scope.resources.jobs.untold() {
        return None;
    }
    let mut lines = Vec::new();
    for message in &mut history.messages {
        for part in &mut message.parts {
            let Content::Tool(call) = &mut part.content else { continue };
            let CallState::Completed(Completed { facts, .. }) = &mut call.state else { continue };
            let Some(BackgroundJob { id, state }) = &mut facts.job else { continue };
            let JobState::Ended(how) = state else { continue };
            let command = call.input.get("command").and_then(Value::as_str).unwrap_or_default();
            let command = base::text::title(command);
            let path = facts.output_path.as_ref();
            let path = path.map(|path| format!(" Its output is in {}.", path.display())).unwrap_or_default();
            lines.push(format!("- {id} (`{command}`): {how}.{path}"));
            *state = JobState::Told(std::mem::take(how));
            scope.record.part(&message.id, part).await;
        }
    }
    (!lines.is_empty()).then(|| format!("{}\n{}", prompts::reminder::BACKGROUND, lines.join("\n")))
}

/// What these messages have left in the background and still runs: ids and command lines.
pub fn left_by(messages: &[Message], scope: &TurnContext) -> Vec<(String, String)> {
    let started: Vec<&str> = messages.iter().flat_map(Message::calls).filter_map(|call| id(&call.state)).collect();
    scope.resources.jobs.running().into_iter().filter(|(id, _)| started.contains(&id.as_str())).collect()
}

/// What runs, for a model that no longer sees where it was started.
pub(super) fn running(scope: &TurnContext) -> Option<String> {
    let running = scope.resources.jobs.running();
    let lines: Vec<String> = running.iter().map(|(id, command)| format!("- {id}: {command}")).collect();
    (!lines.is_empty()).then(|| format!("{}\n{}", prompts::reminder::RUNNING, lines.join("\n")))
}

/// Shows in their calls how commands have ended. Between two turns nothing may be shown there: it is
/// done when the next one begins.
pub async fn show(scope: &TurnContext) {
    for ended in scope.resources.jobs.unshown() {
        let update = CallUpdate {
            kind: Some(ToolKind::Execute),
            progress: ended.code.filter(|code| *code != 0).map(|_| Progress::Failed),
            output: Some(shown(&ended.tail, &ended.how)),
            metadata: Some(known(&ended, JobState::Ended).to_json()),
            earlier: true,
            ..CallUpdate::of(&ended.call)
        };
        scope.outlet.event(Event::Call(Box::new(update))).await;
    }
}

/// What the user hears between two turns of commands that have ended.
pub fn notices(scope: &TurnContext) -> Vec<Event> {
    let one = |ended: EndedJob| Event::Notice {
        severity: Severity::Info,
        title: format!("A command in the background has ended ({}): {}.", ended.id, ended.how),
        details: Some(base::text::title(&ended.command)),
    };
    scope.resources.jobs.unnoticed().into_iter().map(one).collect()
}
