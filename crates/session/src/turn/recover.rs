//! Recovery of a history whose process ended while a turn was running.

use super::{History, jobs, request};
use transcript::{Call, CallState, Content, FailureCause, Fault, FaultKind, Message, Role};

/// Repairs a loaded history: marks calls that were running when the process ended, with an unknown
/// outcome. Returns the messages that changed.
pub fn recover(history: &mut History) -> Vec<Message> {
    recover_except(history, |_| false)
}

/// Repairs a loaded history like [`recover`], except for the background jobs that `lives` knows by their id: this
/// process runs them.
pub fn recover_except(history: &mut History, lives: impl Fn(&str) -> bool) -> Vec<Message> {
    let mut changed = Vec::new();
    for message in &mut history.messages {
        let mut touched = false;
        for part in &mut message.parts {
            if let Content::Tool(call) = &mut part.content
                && let Some(state) = interrupted_state(call)
            {
                call.state = state;
                touched = true;
            }
            if let Content::Tool(call) = &mut part.content {
                touched |= jobs::mark_lost(&mut call.state, &lives);
            }
        }
        if let Role::Assistant(assistant) = &mut message.role
            && assistant.finish.is_none()
            && assistant.fault.is_none()
        {
            let message = "The turn was interrupted before it ended.".into();
            assistant.fault = Some(Fault {
                kind: FaultKind::Interrupted,
                message,
                advice: None,
            });
            touched = true;
        }
        if touched {
            changed.push(message.clone());
        }
    }
    changed
}

/// Returns the new state of a call that was stored unfinished.
fn interrupted_state(call: &Call) -> Option<CallState> {
    let error = match &call.state {
        CallState::Pending => "Not run: the turn was interrupted first.".to_owned(),
        CallState::Running { printed, .. } => request::interrupted(printed.as_deref()),
        CallState::Completed(_) | CallState::Failed { .. } => return None,
    };
    let cause = if call.state == CallState::Pending {
        FailureCause::Error
    } else {
        FailureCause::ProcessEnded
    };
    let facts = call.state.facts().cloned().unwrap_or_default();
    Some(CallState::Failed {
        error,
        cause,
        coloured: None,
        facts,
    })
}
