//! Notes to the model, which are stored in the history.

use super::step_context::StepContext;
use super::{History, TurnContext, remind};
use transcript::{Content, Message, Role, User};

/// Adds a note: to the last message if that is the user's, or else as a message of its own.
pub(super) async fn note(
    history: &mut History,
    scope: &TurnContext,
    frame: &StepContext,
    text: &str,
) {
    put(history, scope, frame, remind::note(text)).await;
}

/// Adds any content in the same way.
pub(super) async fn put(
    history: &mut History,
    scope: &TurnContext,
    frame: &StepContext,
    content: Content,
) {
    match history.messages.last_mut().filter(|m| m.user().is_some()) {
        Some(prompt) => {
            let part = scope.part(content);
            scope.record.part(&prompt.id, &part).await;
            prompt.parts.push(part);
        }
        None => add(history, scope, frame, content).await,
    }
}

/// Adds a synthetic user message.
pub(super) async fn add(
    history: &mut History,
    scope: &TurnContext,
    frame: &StepContext,
    note: Content,
) {
    let message = Message {
        id: scope.message_id(),
        created: scope.now(),
        role: Role::User(User {
            agent: frame.agent.name.clone(),
            model: frame.model.id.clone(),
        }),
        parts: vec![scope.part(note)],
    };
    scope.record.store_message(&message).await;
    history.messages.push(message);
}
