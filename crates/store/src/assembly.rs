//! Assembles a session from its stored rows.

use std::collections::HashMap;

use super::{Record, StoredSession};
use base::id::MessageId;
use transcript::{Content, Message, Part};

/// A session that is being assembled.
pub(super) struct Assembly {
    stored: StoredSession,
    positions: HashMap<String, usize>,
    /// The index of the message that received the last part.
    last_position: usize,
}

impl Assembly {
    /// Begins with the record and the messages as id and JSON, oldest first. Returns `None` if
    /// there is neither a readable record nor a fallback.
    pub(super) fn begin(
        record: Option<String>,
        rows: Vec<(String, String)>,
        fallback: Option<Record>,
    ) -> Option<Self> {
        let mut damage = Vec::new();
        let record = record
            .and_then(|json| serde_json::from_str(&json).ok())
            .or(fallback)?;
        let mut messages: Vec<Message> = Vec::with_capacity(rows.len());
        let mut positions: HashMap<String, usize> = HashMap::with_capacity(rows.len());
        for (id, json) in rows {
            match serde_json::from_str(&json) {
                Ok(message) => {
                    positions.insert(id, messages.len());
                    messages.push(message);
                }
                Err(e) => damage.push(format!("message {id} cannot be read: {e}")),
            }
        }
        Some(Self {
            stored: StoredSession {
                record,
                messages,
                damage,
            },
            positions,
            last_position: 0,
        })
    }

    /// Returns the message whose parts [`Self::messages_without_results`] needs; `None` if there is
    /// no summary.
    pub(super) fn summarised(&self) -> Option<&MessageId> {
        let summary = self
            .stored
            .messages
            .iter()
            .rfind(|message| message.is_summary())?;
        summary.assistant().map(|summary| &summary.parent)
    }

    /// Returns the number of messages before the history that the last summary left in place: no
    /// model sees them any more. The start of that history is named by the `parts` of the summary's
    /// `parent`.
    pub(super) fn messages_without_results(&self, parent: &MessageId, parts: &[String]) -> usize {
        for json in parts {
            if let Ok(Part {
                content: Content::Compaction(compaction),
                ..
            }) = serde_json::from_str::<Part>(json)
            {
                let first = compaction
                    .tail
                    .as_ref()
                    .and_then(|tail| self.positions.get(tail.as_str()));
                return first
                    .or_else(|| self.positions.get(parent.as_str()))
                    .copied()
                    .unwrap_or(0);
            }
        }
        0
    }

    /// Adds a part. If its message is before `messages_without_results`, the result of a call is
    /// left out.
    pub(super) fn part(
        &mut self,
        id: &str,
        message: &str,
        json: &str,
        messages_without_results: usize,
    ) {
        match (
            serde_json::from_str::<Part>(json),
            self.positions.get(message),
        ) {
            (Ok(mut part), Some(position)) => {
                if let Content::Tool(call) = &mut part.content
                    && *position < messages_without_results
                {
                    call.forget_result();
                }
                let messages = &mut self.stored.messages;
                if *position != self.last_position {
                    // Most messages have one or two parts, and there are thousands of messages.
                    messages[self.last_position].parts.shrink_to_fit();
                    self.last_position = *position;
                }
                messages[*position].parts.push(part);
            }
            (Ok(_), None) => self
                .stored
                .damage
                .push(format!("part {id} belongs to no message")),
            (Err(e), _) => self
                .stored
                .damage
                .push(format!("part {id} cannot be read: {e}")),
        }
    }

    pub(super) fn end(self) -> StoredSession {
        self.stored
    }
}
