//! One prompt to its stop.

use super::frame::{self, Frame};
use super::next::{self, Limits, Next};
use super::{History, Outcome, Scope, remind, step, subtask};
use crate::event::{Event, Severity, Status};
use crate::message::{Content, Fault, FaultKind, Message, Role, User};
use crate::prompts;
use crate::store;

/// Runs the turn whose prompt is the history's last message. Everything that happens is told and
/// kept as it happens; the history comes back with it.
pub async fn run(mut history: History, scope: Scope) -> (History, Outcome) {
    scope.outlet.event(Event::Status(Status::Busy)).await;
    let outcome = steps(&mut history, &scope).await;
    let outcome = match scope.record.flush().await {
        Ok(()) => outcome,
        Err(e) => {
            tracing::error!("the turn is not saved: {e}");
            unsaved(&scope, &e).await;
            outcome
        }
    };
    scope.outlet.event(Event::Status(Status::Idle)).await;
    (history, outcome)
}

/// Tells the user that nothing of this is kept.
pub(super) async fn unsaved(scope: &Scope, error: &store::Error) {
    if !scope.record.tell() {
        return;
    }
    let notice = Event::Notice {
        severity: Severity::Warning,
        title: "This conversation is not being saved.".into(),
        details: Some(error.to_string()),
    };
    scope.outlet.event(notice).await;
}

async fn steps(history: &mut History, scope: &Scope) -> Outcome {
    loop {
        if scope.cancelled.is_cancelled() {
            return Outcome::Cancelled;
        }
        let agent = match frame::agent(scope) {
            Ok(agent) => agent,
            Err(fault) => return Outcome::Failed(fault),
        };
        let limits = Limits { steps: agent.steps, continue_on_deny: scope.settings.experimental.continue_loop_on_deny };
        let (made, last) = match next::next(history, &limits) {
            Next::Finish(outcome) => return outcome,
            Next::Subtask => match subtask::subtasks(history, scope).await {
                Ok(()) => continue,
                Err(fault) => return Outcome::Failed(fault),
            },
            Next::Step { made, last } => (made, last),
        };
        let frame = match frame::freeze(scope, last, &next::named(history)) {
            Ok(frame) => frame,
            Err(fault) => return Outcome::Failed(fault),
        };
        remind_of(history, scope, &frame, made, last).await;
        step::step(history, scope, &frame, made == 0).await;
    }
}

/// Adds the notes that belong before this step.
async fn remind_of(history: &mut History, scope: &Scope, frame: &Frame, made: u32, last: bool) {
    if let Some(note) = remind::switched(history, &frame.agent.name) {
        let at_prompt = history.messages.last_mut().filter(|m| m.user().is_some());
        match at_prompt {
            Some(prompt) => {
                let part = scope.part(remind::note(&note));
                scope.record.part(&prompt.id, &part).await;
                prompt.parts.push(part);
            }
            None => add(history, scope, frame, remind::note(&note)).await,
        }
    }
    if last && made > 0 {
        add(history, scope, frame, remind::note(prompts::reminder("steps"))).await;
    }
}

/// Adds a synthetic user message.
pub(super) async fn add(history: &mut History, scope: &Scope, frame: &Frame, note: Content) {
    let message = Message {
        id: scope.message_id(),
        created: scope.now(),
        role: Role::User(User { agent: frame.agent.name.clone(), model: frame.model.id.clone(), system: None }),
        parts: vec![scope.part(note)],
    };
    scope.record.whole(&message).await;
    history.messages.push(message);
}

/// A history as it was found on disk, made fit to go on: calls that were running when the process
/// ended are marked, with the outcome unknown. Returns the messages that changed.
pub fn mend(history: &mut History) -> Vec<Message> {
    let mut changed = Vec::new();
    for message in &mut history.messages {
        let mut touched = false;
        for part in &mut message.parts {
            if let Content::Tool(call) = &mut part.content
                && let Some(state) = crate::turn::call::interrupted(call)
            {
                call.state = state;
                touched = true;
            }
        }
        if let Role::Assistant(assistant) = &mut message.role
            && assistant.finish.is_none()
            && assistant.fault.is_none()
        {
            let message = "The turn was interrupted before it ended.".into();
            assistant.fault = Some(Fault { kind: FaultKind::Interrupted, message, advice: None });
            touched = true;
        }
        if touched {
            changed.push(message.clone());
        }
    }
    changed
}
