//! How much it is to write a part.

use super::{CallState, Completed, Content, File, Part};
use base::text;

/// The bytes that are written as JSON in a moment.
const SMALL: usize = 64 << 10;

impl Part {
    /// Whether it takes more than a moment to write it as JSON.
    pub fn is_large(&self) -> bool {
        let data = |file: &File| file.data.as_ref().map_or(0, String::len);
        match &self.content {
            Content::Text(text) => text.text.len() > SMALL,
            Content::Reasoning(reasoning) => reasoning.text.len() > SMALL,
            Content::File(file) => data(file) > SMALL,
            Content::Tool(call) => {
                let made = match &call.state {
                    CallState::Completed(Completed { changes, attachments, .. }) => {
                        let texts =
                            changes.iter().map(|change| change.new.len() + change.old.as_ref().map_or(0, String::len));
                        texts.sum::<usize>() + attachments.iter().map(data).sum::<usize>()
                    }
                    _ => 0,
                };
                made > SMALL || text::is_longer(&call.input, SMALL)
            }
            _ => false,
        }
    }
}
