//! Background jobs in the history: the call that started a job records how it ended, and whether
//! the model was notified. [`tools::process::background_jobs`] runs the jobs.

use std::sync::Arc;

use serde_json::Value;

use super::late_changes::LateChanges;
use super::{History, SessionContext, TurnContext};
use base::id::CallId;
use events::{CallUpdate, Event, Severity, ToolKind};
use tools::process::background_jobs::{EndedJob, Jobs};
use transcript::{
    BackgroundJob, CallFacts, CallState, Completed, Content, JobState, Message, Part, ProgramExit,
};

/// The background jobs of a session, and the journals of their writes. They belong to the session's
/// task, and live on only if the session is closed to be opened again in this process. The jobs end
/// when this is dropped.
#[derive(Clone)]
pub struct SessionJobs {
    pub jobs: Arc<Jobs>,
    pub late_changes: Arc<LateChanges>,
}

impl SessionJobs {
    /// Returns the jobs of a session that has none yet in this process.
    pub fn new(history: &History) -> Self {
        Self {
            jobs: Arc::new(Jobs::after(last_number(history))),
            late_changes: Arc::default(),
        }
    }

    pub fn of(session: &SessionContext) -> Self {
        Self {
            jobs: session.shared.jobs.clone(),
            late_changes: session.late_changes.clone(),
        }
    }
}

/// The end of a job that was running when the process ended.
const UNKNOWN: &str =
    "outcome unknown: adjutant ended or the session was copied while it was running";

/// Returns the number of the last background job.
pub fn last_number(history: &History) -> u32 {
    let calls = history.messages.iter().flat_map(Message::calls);
    calls
        .filter_map(|call| Jobs::number(job_id(&call.state)?))
        .max()
        .unwrap_or_default()
}

/// Returns the id of the background job that a call started.
pub(super) fn job_id(state: &CallState) -> Option<&str> {
    match state {
        CallState::Completed(done) => Some(&done.facts.job.as_ref()?.id),
        _ => None,
    }
}

/// Marks a job that was running when an earlier process ended, which is any but those that `lives`
/// knows. Returns true if there was one.
pub(super) fn mark_lost(state: &mut CallState, lives: impl Fn(&str) -> bool) -> bool {
    let CallState::Completed(done) = state else {
        return false;
    };
    let Some(job) = done
        .facts
        .job
        .as_mut()
        .filter(|job| job.state == JobState::Running && !lives(&job.id))
    else {
        return false;
    };
    job.state = JobState::Ended(UNKNOWN.into());
    done.display = Some(with_end(
        done.display.as_deref().unwrap_or_default(),
        UNKNOWN,
    ));
    done.coloured = done
        .coloured
        .take()
        .map(|coloured| with_end(&coloured, UNKNOWN));
    true
}

/// Appends the end, which has no exit code, to the output.
fn with_end(printed: &str, how: &str) -> String {
    let printed = printed.trim_end();
    if printed.is_empty() {
        format!("({how})")
    } else {
        format!("{printed}\n\n({how})")
    }
}

/// Records in the history how jobs have ended.
pub async fn record_ended_jobs(history: &mut History, session: &SessionContext) {
    for ended in session.shared.jobs.take_unrecorded_ends() {
        // The call is missing if it was undone in the meantime.
        let Some((message, part_index)) = find_call(history, &ended.call) else {
            continue;
        };
        let Message { id, parts, .. } = &mut history.messages[message];
        let part = &mut parts[part_index];
        if let Content::Tool(call) = &mut part.content
            && let CallState::Completed(done) = &mut call.state
        {
            let state = if ended.is_known_to_model {
                JobState::Reported
            } else {
                JobState::Ended
            };
            conclude(done, &ended, state);
            session.recorder.part(id, part).await;
        }
    }
}

/// Replaces the result of a call by the end of its job.
fn conclude(done: &mut Completed, ended: &EndedJob, state: fn(String) -> JobState) {
    done.facts = std::mem::take(&mut done.facts).and(end_facts(ended, state));
    // The client shows an exit code next to the output.
    let show = |printed: &str| match ended.code {
        Some(_) => printed.to_owned(),
        None => with_end(printed, &ended.how),
    };
    done.display = Some(show(&ended.tail));
    done.coloured = ended.coloured.as_deref().map(show);
}

/// Returns the indexes of the message and the part of a call.
fn find_call(history: &History, wanted: &CallId) -> Option<(usize, usize)> {
    let is = |part: &Part| matches!(&part.content, Content::Tool(call) if call.call == *wanted);
    let place = |(at, message): (usize, &Message)| Some((at, message.parts.iter().position(is)?));
    history.messages.iter().enumerate().rev().find_map(place)
}

fn end_facts(ended: &EndedJob, state: fn(String) -> JobState) -> CallFacts {
    CallFacts {
        job: Some(BackgroundJob {
            id: ended.id.clone(),
            state: state(ended.how.clone()),
        }),
        exit: ended.code.map(|code| ProgramExit {
            code: Some(code),
            signal: None,
        }),
        output_path: ended.path.clone(),
        details: ended
            .is_cut
            .then(|| (CallFacts::TRUNCATED.to_owned(), Value::Bool(true)))
            .into_iter()
            .collect(),
        ..CallFacts::default()
    }
}

/// Returns the note for the model about ended jobs, and marks them as reported.
pub(super) async fn take_note_on_ended_jobs(
    history: &mut History,
    turn: &TurnContext,
) -> Option<String> {
    record_ended_jobs(history, &turn.session).await;
    if !turn.session.shared.jobs.take_unknown_end() {
        return None;
    }
    let mut lines = Vec::new();
    for message in &mut history.messages {
        for part in &mut message.parts {
            let Content::Tool(call) = &mut part.content else {
                continue;
            };
            let CallState::Completed(Completed { facts, .. }) = &mut call.state else {
                continue;
            };
            let Some(BackgroundJob { id, state }) = &mut facts.job else {
                continue;
            };
            let JobState::Ended(how) = state else {
                continue;
            };
            let command = call
                .input
                .get("command")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let command = base::text::title(command);
            let path = facts.output_path.as_ref();
            let path = path
                .map(|path| format!(" Its output is in {}.", path.display()))
                .unwrap_or_default();
            lines.push(format!("- {id} (`{command}`): {how}.{path}"));
            *state = JobState::Reported(std::mem::take(how));
            turn.session.recorder.part(&message.id, part).await;
        }
    }
    (!lines.is_empty()).then(|| format!("{}\n{}", prompts::reminder::BACKGROUND, lines.join("\n")))
}

/// Returns the running jobs that these messages have started: ids and command lines.
pub fn running_jobs(messages: &[Message], turn: &TurnContext) -> Vec<(String, String)> {
    let started: Vec<&str> = messages
        .iter()
        .flat_map(Message::calls)
        .filter_map(|call| job_id(&call.state))
        .collect();
    turn.session
        .shared
        .jobs
        .running()
        .into_iter()
        .filter(|(id, _)| started.contains(&id.as_str()))
        .collect()
}

/// Returns the list of running jobs, for a model that no longer sees the calls that started them.
pub(super) fn running_jobs_note(turn: &TurnContext) -> Option<String> {
    let running = turn.session.shared.jobs.running();
    let lines: Vec<String> = running
        .iter()
        .map(|(id, command)| format!("- {id}: {}", base::text::title(command)))
        .collect();
    (!lines.is_empty()).then(|| format!("{}\n{}", prompts::reminder::RUNNING, lines.join("\n")))
}

/// Shows the end of jobs in the calls that started them, as a replay does. Nothing may be shown in
/// a call between two turns, so this runs when the next turn begins.
pub async fn show_ended_jobs(turn: &TurnContext) {
    for ended in turn.session.shared.jobs.unshown() {
        let mut done = Completed {
            facts: ended.facts.clone(),
            ..Completed::default()
        };
        conclude(&mut done, &ended, JobState::Ended);
        let update = CallUpdate {
            kind: Some(ToolKind::Execute),
            earlier: true,
            ..CallUpdate::completed(&ended.call, ToolKind::Execute, &done)
        };
        turn.event_sender.event(Event::Call(Box::new(update))).await;
    }
}

/// Returns the notices between two turns about ended jobs.
pub fn ended_jobs_notices(session: &SessionContext) -> Vec<Event> {
    let notice = |ended: EndedJob| Event::Notice {
        severity: Severity::Info,
        title: format!(
            "A background command has ended ({}): {}.",
            ended.id, ended.how
        ),
        details: Some(base::text::title(&ended.command)),
    };
    session
        .shared
        .jobs
        .unnoticed()
        .into_iter()
        .map(notice)
        .collect()
}
