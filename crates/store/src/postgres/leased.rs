//! A session that this process owns, and its unwritten changes.

use super::pending_index::PendingIndex;
use crate::write::{PartJson, SessionWrite};
use crate::{Error, Record, TitleSource, compression};
use base::id::SessionId;

/// The maximum size of the contents of one session, in bytes.
const MAX_CONTENT_BYTES: usize = 256 << 20;

/// A pending change of a session's rows.
#[derive(Debug)]
pub(super) enum RowChange {
    Message {
        seq: i64,
        id: String,
        data: Vec<u8>,
    },
    Part {
        seq: i64,
        id: String,
        message: String,
        data: Vec<u8>,
    },
    /// Removes a message and all later ones.
    Cut {
        from: String,
    },
    Content {
        name: String,
        data: Vec<u8>,
    },
}

impl RowChange {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Message { data, .. } | Self::Part { data, .. } | Self::Content { data, .. } => {
                data.len()
            }
            Self::Cut { .. } => 0,
        }
    }
}

/// A lease of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct TakenLease {
    pub(super) epoch: i64,
    /// True if the search index has all messages of the session so far.
    pub(super) is_indexed: bool,
}

/// A session whose lease this process has, and its pending changes.
#[derive(Debug, Default)]
pub(super) struct LeasedSession {
    /// The epoch of its lease; `None` if the lease is still to be taken.
    pub(super) epoch: Option<i64>,
    pub(super) record: Option<Record>,
    /// True if it has, or is to get, a row, because its user has made an input.
    pub(super) has_row: bool,
    /// True if it has a message.
    pub(super) has_messages: bool,
    /// The number of its last message or part.
    pub(super) last: i64,
    /// True if the record is to be written.
    pub(super) is_record_pending: bool,
    /// The other pending changes, oldest first.
    pub(super) rows: Vec<RowChange>,
    /// The error of a failed write that has not been reported yet.
    pub(super) failed: Option<Error>,
    /// True if another process has taken it: nothing is written any more.
    pub(super) is_lost: bool,
    /// The size of its stored contents, in bytes.
    pub(super) contents: usize,
    /// True if a prompt for it is queued in the store, so that it must not be deleted.
    pub(super) has_queued_prompt: bool,
    /// True if it is to be released as soon as everything is written.
    pub(super) is_closing: bool,
    pub(super) index: PendingIndex,
}

impl LeasedSession {
    pub(super) fn has_unwritten(&self) -> bool {
        self.is_record_pending || !self.rows.is_empty()
    }

    /// Adds a pending change.
    pub(super) fn absorb(&mut self, entry: SessionWrite) {
        if self.is_lost {
            return;
        }
        self.index.wrote();
        match entry {
            SessionWrite::Record(record) => {
                let record = record.after(self.record.as_ref());
                if self
                    .record
                    .as_ref()
                    .is_none_or(|before| before.title != record.title)
                {
                    self.index.wrote_title();
                }
                self.record = Some(record);
                self.is_record_pending |= self.has_row;
            }
            SessionWrite::Amend(change) => {
                if let Some(record) = &mut self.record {
                    change.apply(record);
                    self.has_row = true;
                    self.is_record_pending = true;
                    self.index.wrote_title();
                }
            }
            SessionWrite::Message { id, json } => {
                self.index.wrote_message(&id);
                // The first message makes a session appear in lists.
                self.is_record_pending |= !self.has_row || !self.has_messages;
                self.has_row = true;
                self.has_messages = true;
                self.last += 1;
                self.rows.push(RowChange::Message {
                    seq: self.last,
                    id,
                    data: encoded(&json),
                });
            }
            SessionWrite::Part {
                id,
                message,
                json,
                is_growing,
            } => {
                self.index.wrote_message(&message);
                self.is_record_pending |= !self.has_row;
                self.has_row = true;
                self.last += 1;
                self.rows.push(RowChange::Part {
                    seq: self.last,
                    id,
                    message,
                    data: encoded_part(&json, is_growing),
                });
            }
            SessionWrite::Cut { from } => self.rows.push(RowChange::Cut { from }),
            SessionWrite::Content { name, bytes } => {
                let more = self.contents.saturating_add(bytes.len());
                if more > MAX_CONTENT_BYTES {
                    return tracing::warn!(
                        "{name} stays on this machine: the session has {} bytes",
                        self.contents
                    );
                }
                self.contents = more;
                self.rows.push(RowChange::Content { name, data: bytes });
            }
        }
    }

    /// True if everything is written, and some of it is not in the search index.
    pub(super) fn is_to_be_indexed(&self) -> bool {
        self.has_row
            && !self.is_lost
            && !self.has_unwritten()
            && self.epoch.is_some()
            && !self.index.is_current
    }

    /// True if it has no message, no pending prompt and no title chosen by the user.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_messages
            && !self.has_queued_prompt
            && self
                .record
                .as_ref()
                .is_some_and(|record| record.title_source != TitleSource::User)
    }
}

/// The columns of a session's row.
pub(super) struct SessionRow {
    pub(super) id: String,
    pub(super) cwd: String,
    pub(super) parent: Option<String>,
    pub(super) updated: i64,
    pub(super) archived: bool,
    /// True if lists contain it.
    pub(super) is_listed: bool,
    pub(super) has_messages: bool,
    /// True if its title is the user's.
    pub(super) has_user_title: bool,
    pub(super) data: Vec<u8>,
    /// The name of its directory on every machine.
    pub(super) project: Option<String>,
}

impl SessionRow {
    pub(super) fn of(record: &Record, has_messages: bool) -> Self {
        let has_user_title = record.title_source == TitleSource::User;
        Self {
            id: record.id.to_string(),
            cwd: record.cwd.to_string_lossy().into_owned(),
            parent: record.parent.as_ref().map(SessionId::to_string),
            updated: i64::try_from(record.updated.0).unwrap_or(i64::MAX),
            archived: record.archived,
            is_listed: record.parent.is_none() && (has_messages || has_user_title),
            has_messages,
            has_user_title,
            data: encoded(&serde_json::to_string(record).unwrap_or_default()),
            project: record.shared_name.clone(),
        }
    }
}

/// Encodes a text for the database: `=` and the text, or `z` and its compressed bytes.
pub(super) fn encoded(text: &str) -> Vec<u8> {
    encoded_text(text, false)
}

fn encoded_part(json: &PartJson, is_growing: bool) -> Vec<u8> {
    match json {
        PartJson::Plain(json) => encoded_text(json, is_growing),
        PartJson::Compressed { data, .. } => marked(b'z', data),
    }
}

fn encoded_text(text: &str, is_growing: bool) -> Vec<u8> {
    match compression::compress_unless_growing(text, is_growing) {
        Some(encoded) => marked(b'z', &encoded),
        None => marked(b'=', text.as_bytes()),
    }
}

fn marked(mark: u8, bytes: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(bytes.len() + 1);
    data.push(mark);
    data.extend_from_slice(bytes);
    data
}

/// Decodes a text from the database. Returns `None` if it is damaged.
pub(super) fn decoded(data: &[u8]) -> Option<String> {
    match data.split_first()? {
        (b'=', text) => String::from_utf8(text.to_vec()).ok(),
        (b'z', encoded) => compression::decompress(encoded),
        _ => None,
    }
}
