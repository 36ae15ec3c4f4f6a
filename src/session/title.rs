//! What a session is called: a few words of its first prompt.

use crate::message::Message;
use crate::model::offline;
use crate::turn::History;

/// A title for a history; none while it holds no words of the user.
pub fn title(history: &History) -> Option<String> {
    let first = history.messages.iter().find(|m| m.user().is_some()).map(Message::visible_text)?;
    let title = offline::title(&first);
    (!title.is_empty()).then_some(title)
}
