//! What is written about a session, whoever keeps it.

use std::collections::HashMap;

use super::{Record, RecordChange};
use transcript::Message;

/// Something to be written about a session.
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
    /// A message and all after it are gone.
    Cut {
        from: String,
    },
    /// What a file held, or the whole result of a tool: for other machines that share the store.
    Content {
        name: String,
        bytes: Vec<u8>,
    },
}

impl SessionWrite {
    /// About how much of it there is to be written.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Message { json, .. } | Self::Part { json, .. } => json.len(),
            Self::Content { bytes, .. } => bytes.len(),
            Self::Record(_) | Self::Amend(_) | Self::Cut { .. } => 0,
        }
    }

    /// A message and its parts, in order.
    pub(super) fn of(message: &Message) -> impl Iterator<Item = Self> {
        let json = serde_json::to_string(message).unwrap_or_default();
        let parts = message.parts.iter().map(|part| {
            let json = serde_json::to_string(part).unwrap_or_default();
            Self::Part { id: part.id.to_string(), message: message.id.to_string(), json }
        });
        std::iter::once(Self::Message { id: message.id.to_string(), json }).chain(parts)
    }
}

/// What is left of entries that are written together: an older state of something is not written where a
/// newer one follows. The newer one takes its place, for rows keep the order in which they came first.
pub(super) fn latest(entries: Vec<SessionWrite>) -> Vec<SessionWrite> {
    if entries.len() < 2 {
        return entries;
    }
    let mut kept: Vec<SessionWrite> = Vec::with_capacity(entries.len());
    let mut places: HashMap<(u8, String), usize> = HashMap::new();
    for entry in entries {
        let key = match &entry {
            SessionWrite::Record(_) => (0, String::new()),
            SessionWrite::Amend(_) => {
                // A record that follows must not come before it.
                places.remove(&(0, String::new()));
                kept.push(entry);
                continue;
            }
            SessionWrite::Message { id, .. } => (1, id.clone()),
            SessionWrite::Part { id, .. } => (2, id.clone()),
            SessionWrite::Content { name, .. } => (3, name.clone()),
            SessionWrite::Cut { .. } => {
                // What was before is gone, or was written before.
                places.clear();
                kept.push(entry);
                continue;
            }
        };
        match places.get(&key) {
            Some(place) => kept[*place] = entry,
            None => {
                places.insert(key, kept.len());
                kept.push(entry);
            }
        }
    }
    kept
}
