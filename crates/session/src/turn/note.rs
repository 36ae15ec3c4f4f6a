//! Notes to the model, which are stored in the history.

use super::step_context::StepContext;
use super::{History, TurnContext, remind};
use transcript::{Content, Message, Role, User};

/// Appends a note: to the last message if that is the user's, or else as a message of its own.
pub(super) async fn append_note(
    history: &mut History,
    turn: &TurnContext,
    step: &StepContext,
    text: &str,
) {
    append_content(history, turn, step, remind::note(text)).await;
}

/// Like [`append_note`], for any content.
pub(super) async fn append_content(
    history: &mut History,
    turn: &TurnContext,
    step: &StepContext,
    content: Content,
) {
    match history.messages.last_mut().filter(|m| m.user().is_some()) {
        Some(prompt) => {
            let part = turn.new_part(content);
            turn.session.recorder.part(&prompt.id, &part).await;
            prompt.parts.push(part);
        }
        None => append_user_message(history, turn, step, content).await,
    }
}

/// Appends a synthetic user message.
pub(super) async fn append_user_message(
    history: &mut History,
    turn: &TurnContext,
    step: &StepContext,
    note: Content,
) {
    let message = Message {
        id: turn.new_message_id(),
        created: turn.now(),
        role: Role::User(User {
            agent: step.agent.name.clone(),
            model: step.model.id.clone(),
        }),
        parts: vec![turn.new_part(note)],
    };
    turn.session.recorder.store_message(&message).await;
    history.messages.push(message);
}
