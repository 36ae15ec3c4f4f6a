//! A session that is this process's, and what of it is still to be written.

use super::own_index::OwnIndex;
use crate::write::SessionWrite;
use crate::{Error, Record, TitleSource, pack};
use base::id::SessionId;

/// The most bytes of contents of one session.
const CONTENTS: usize = 256 << 20;

/// Something that is to be written.
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
    /// A message and all after it are gone.
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
            Self::Message { data, .. } | Self::Part { data, .. } | Self::Content { data, .. } => data.len(),
            Self::Cut { .. } => 0,
        }
    }
}

/// A lease that is this process's.
#[derive(Debug, Clone, Copy)]
pub(super) struct TakenLease {
    pub(super) epoch: i64,
    /// The search index has all that was said in the session so far.
    pub(super) is_indexed: bool,
}

/// A session whose lease is ours, and what is to be written of it.
#[derive(Debug, Default)]
pub(super) struct Ours {
    /// By which its lease is known; none: it is still to be taken.
    pub(super) epoch: Option<i64>,
    pub(super) record: Option<Record>,
    /// Its user has told it something: it has, or is to have, a row.
    pub(super) kept: bool,
    /// It has a message.
    pub(super) said: bool,
    /// The number of its last message or part.
    pub(super) last: i64,
    /// The record is to be written.
    pub(super) fresh: bool,
    /// What else is to be written, oldest first.
    pub(super) rows: Vec<RowChange>,
    /// A write has failed since somebody asked.
    pub(super) failed: Option<Error>,
    /// Another process has it by now: nothing is written any more.
    pub(super) lost: bool,
    /// How many bytes of contents were kept with it.
    pub(super) contents: usize,
    /// A prompt waits for it in the store: it stays, said or not.
    pub(super) awaited: bool,
    /// It is to be let go of as soon as all of it is written.
    pub(super) closing: bool,
    pub(super) index: OwnIndex,
}

impl Ours {
    pub(super) fn unwritten(&self) -> bool {
        self.fresh || !self.rows.is_empty()
    }

    /// Takes in what is to be written.
    pub(super) fn absorb(&mut self, entry: SessionWrite) {
        if self.lost {
            return;
        }
        self.index.wrote();
        match entry {
            SessionWrite::Record(record) => {
                let record = record.after(self.record.as_ref());
                if self.record.as_ref().is_none_or(|before| before.title != record.title) {
                    self.index.wrote_title();
                }
                self.record = Some(record);
                self.fresh |= self.kept;
            }
            SessionWrite::Amend(change) => {
                if let Some(record) = &mut self.record {
                    change.apply(record);
                    (self.kept, self.fresh) = (true, true);
                    self.index.wrote_title();
                }
            }
            SessionWrite::Message { id, json } => {
                self.index.wrote_message(&id);
                // With its first message a session is listed.
                self.fresh |= !self.kept || !self.said;
                (self.kept, self.said) = (true, true);
                self.last += 1;
                self.rows.push(RowChange::Message { seq: self.last, id, data: packed(&json) });
            }
            SessionWrite::Part { id, message, json } => {
                self.index.wrote_message(&message);
                self.fresh |= !self.kept;
                self.kept = true;
                self.last += 1;
                self.rows.push(RowChange::Part { seq: self.last, id, message, data: packed(&json) });
            }
            SessionWrite::Cut { from } => self.rows.push(RowChange::Cut { from }),
            SessionWrite::Content { name, bytes } => {
                let more = self.contents.saturating_add(bytes.len());
                if more > CONTENTS {
                    return tracing::warn!("{name} stays on this machine: the session has {} bytes", self.contents);
                }
                self.contents = more;
                self.rows.push(RowChange::Content { name, data: bytes });
            }
        }
    }

    /// Whether all of it is written and some of it is not in the search index.
    pub(super) fn is_to_be_indexed(&self) -> bool {
        self.kept && !self.lost && !self.unwritten() && self.epoch.is_some() && !self.index.is_current
    }

    /// Whether nothing was said in it and its user gave it no title.
    pub(super) fn is_unsaid(&self) -> bool {
        !self.said && !self.awaited && self.record.as_ref().is_some_and(|record| record.titled != TitleSource::User)
    }
}

/// The columns of a session's row.
pub(super) struct SessionRow {
    pub(super) id: String,
    pub(super) cwd: String,
    pub(super) parent: Option<String>,
    pub(super) updated: i64,
    pub(super) archived: bool,
    /// Lists have it: there is something to come back to.
    pub(super) shown: bool,
    pub(super) said: bool,
    /// Its user gave it its title.
    pub(super) named: bool,
    pub(super) data: Vec<u8>,
    /// What its directory is called on every machine.
    pub(super) project: Option<String>,
}

impl SessionRow {
    pub(super) fn of(record: &Record, said: bool) -> Self {
        let named = record.titled == TitleSource::User;
        Self {
            id: record.id.to_string(),
            cwd: record.cwd.to_string_lossy().into_owned(),
            parent: record.parent.as_ref().map(SessionId::to_string),
            updated: i64::try_from(record.updated.0).unwrap_or(i64::MAX),
            archived: record.archived,
            shown: record.parent.is_none() && (said || named),
            said,
            named,
            data: packed(&serde_json::to_string(record).unwrap_or_default()),
            project: record.place.clone(),
        }
    }
}

/// A text as it stands in the database: `=` and itself, or `z` and its bytes packed.
pub(super) fn packed(text: &str) -> Vec<u8> {
    let (mark, bytes) = match pack::pack(text) {
        Some(packed) => (b'z', packed),
        None => (b'=', text.as_bytes().to_vec()),
    };
    let mut data = Vec::with_capacity(bytes.len() + 1);
    data.push(mark);
    data.extend_from_slice(&bytes);
    data
}

/// The text that stands in the database; none where it is not what was written.
pub(super) fn unpacked(data: &[u8]) -> Option<String> {
    match data.split_first()? {
        (b'=', text) => String::from_utf8(text.to_vec()).ok(),
        (b'z', packed) => pack::unpack(packed),
        _ => None,
    }
}
