//! The writes that backends carry out.

use std::collections::HashMap;
use std::io::{BufWriter, Write};

use serde::ser::Error as _;

use super::compression::Compressor;
use super::{Record, RecordChange};
use transcript::{Message, Part};

/// The JSON of a part.
#[derive(Debug)]
pub(super) enum PartJson {
    Plain(String),
    /// The JSON of a large part, compressed while it was written: as a text it would take as much
    /// memory as the part again.
    Compressed {
        /// The form that [`super::compression::compress`] returns.
        data: Vec<u8>,
        /// The checksum of the JSON.
        crc: crc32fast::Hasher,
    },
}

impl PartJson {
    /// Writes a part as JSON, compressed if it is large.
    ///
    /// # Errors
    /// An error if the part cannot be written as JSON.
    pub(super) fn of(part: &Part) -> serde_json::Result<Self> {
        if part.is_large()
            && let Some(compressed) = Self::compressed(part)?
        {
            return Ok(compressed);
        }
        serde_json::to_string(part).map(Self::Plain)
    }

    /// Returns `None` if the part is too large for the compressed form.
    fn compressed(part: &Part) -> serde_json::Result<Option<Self>> {
        const PIECE_BYTES: usize = 64 << 10;
        let mut hashing = HashingWriter {
            crc: crc32fast::Hasher::new(),
            compressor: Compressor::default(),
        };
        let mut pieces = BufWriter::with_capacity(PIECE_BYTES, &mut hashing);
        serde_json::to_writer(&mut pieces, part)?;
        pieces.flush().map_err(serde_json::Error::custom)?;
        drop(pieces);
        let HashingWriter { crc, compressor } = hashing;
        let data = compressor.finish();
        Ok(data.map(|data| Self::Compressed { data, crc }))
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Plain(json) => json.len(),
            Self::Compressed { data, .. } => data.len(),
        }
    }
}

/// Computes the checksum of a text that is compressed.
struct HashingWriter {
    crc: crc32fast::Hasher,
    compressor: Compressor,
}

impl Write for HashingWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.crc.update(bytes);
        self.compressor.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

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
        json: PartJson,
        /// True if a longer text will replace it soon.
        is_growing: bool,
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
            Self::Message { json, .. } => json.len(),
            Self::Part { json, .. } => json.bytes(),
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
                json: PartJson::Plain(json),
                is_growing: false,
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
