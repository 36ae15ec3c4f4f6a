//! Notes to the model, which are stored in the history.

use super::step_context::StepContext;
use super::{History, TurnContext, remind};
use transcript::{Content, Message, Role, User};

/// Adds a note: to the last message if that is the user's, or else as a message of its own.
pub(super) async fn note(
    history: &mut History,
    turn: &TurnContext,
    frame: &StepContext,
    text: &str,
) {
    put(history, turn, frame, remind::note(text)).await;
}

/// Adds any content in the same way.
pub(super) async fn put(
    history: &mut History,
    turn: &TurnContext,
    frame: &StepContext,
    content: Content,
) {
    match history.messages.last_mut().filter(|m| m.user().is_some()) {
        Some(prompt) => {
            let part = turn.part(content);
            turn.session.recorder.part(&prompt.id, &part).await;
            prompt.parts.push(part);
        }
        None => add(history, turn, frame, content).await,
    }
}

/// Adds a synthetic user message.
pub(super) async fn add(
    history: &mut History,
    turn: &TurnContext,
    frame: &StepContext,
    note: Content,
) {
    let message = Message {
        id: turn.message_id(),
        created: turn.now(),
        role: Role::User(User {
            agent: frame.agent.name.clone(),
            model: frame.model.id.clone(),
        }),
        parts: vec![turn.part(note)],
    };
    turn.session.recorder.store_message(&message).await;
    history.messages.push(message);
}
