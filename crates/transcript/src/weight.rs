//! The cost of serializing a part.

use super::{CallState, Completed, Content, File, Part};
use base::text;

/// The size from which serializing takes noticeable time, in bytes.
const LARGE_BYTES: usize = 64 << 10;

impl Part {
    /// Returns whether serializing it as JSON takes noticeable time.
    pub fn is_large(&self) -> bool {
        match &self.content {
            Content::Text(text) => text.text.len() > LARGE_BYTES,
            Content::Reasoning(reasoning) => reasoning.text.len() > LARGE_BYTES,
            Content::File(file) => data_length(file) > LARGE_BYTES,
            Content::Tool(call) => {
                let result_length = match &call.state {
                    CallState::Completed(Completed {
                        changes,
                        attachments,
                        ..
                    }) => {
                        let texts = changes.iter().map(|change| {
                            change.new.len() + change.old.as_ref().map_or(0, |old| old.len())
                        });
                        texts.sum::<usize>() + attachments.iter().map(data_length).sum::<usize>()
                    }
                    _ => 0,
                };
                result_length > LARGE_BYTES || text::is_longer(&call.input, LARGE_BYTES)
            }
            _ => false,
        }
    }
}

fn data_length(file: &File) -> usize {
    file.data.as_ref().map_or(0, String::len)
}
