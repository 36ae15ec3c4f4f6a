//! The writes that backends carry out.

use std::collections::HashMap;

use super::{Record, RecordChange};
use transcript::Message;

/// One write to a session.
#[derive(Debug)]
pub(super) enum SessionWrite {
    Record(Box<Record>),
    Amend(RecordChange),
    Message {
        id: String,
        json: String,
    },
    Part {
        id: String,
        message: String,
        json: String,
    },
    /// Removes a message and all later ones.
    Cut {
        from: String,
    },
    /// The contents of a file or the complete result of a tool, for other machines that share the
    /// store.
    Content {
        name: String,
        bytes: Vec<u8>,
    },
}

impl SessionWrite {
    /// Returns the approximate size, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Message { json, .. } | Self::Part { json, .. } => json.len(),
            Self::Content { bytes, .. } => bytes.len(),
            Self::Record(_) | Self::Amend(_) | Self::Cut { .. } => 0,
        }
    }

    /// Returns the writes of a message and its parts, in order.
    pub(super) fn of(message: &Message) -> impl Iterator<Item = Self> {
        let json = serde_json::to_string(message).unwrap_or_default();
        let parts = message.parts.iter().map(|part| {
            let json = serde_json::to_string(part).unwrap_or_default();
            Self::Part {
                id: part.id.to_string(),
                message: message.id.to_string(),
                json,
            }
        });
        std::iter::once(Self::Message {
            id: message.id.to_string(),
            json,
        })
        .chain(parts)
    }
}

/// Drops the writes that a later one of the same batch replaces. The later one moves to the
/// position of the first, because rows are ordered by their first insertion.
pub(super) fn latest(entries: Vec<SessionWrite>) -> Vec<SessionWrite> {
    if entries.len() < 2 {
        return entries;
    }
    let mut result: Vec<SessionWrite> = Vec::with_capacity(entries.len());
    let mut positions: HashMap<(u8, String), usize> = HashMap::new();
    for entry in entries {
        let key = match &entry {
            SessionWrite::Record(_) => (0, String::new()),
            SessionWrite::Amend(_) => {
                // A later record must not move before this change.
                positions.remove(&(0, String::new()));
                result.push(entry);
                continue;
            }
            SessionWrite::Message { id, .. } => (1, id.clone()),
            SessionWrite::Part { id, .. } => (2, id.clone()),
            SessionWrite::Content { name, .. } => (3, name.clone()),
            SessionWrite::Cut { .. } => {
                // Earlier writes must not be replaced by ones after the removal.
                positions.clear();
                result.push(entry);
                continue;
            }
        };
        match positions.get(&key) {
            Some(position) => result[*position] = entry,
            None => {
                positions.insert(key, result.len());
                result.push(entry);
            }
        }
    }
    result
}
