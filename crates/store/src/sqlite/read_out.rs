//! Reading of a session's file one message at a time, on the caller's thread instead of the
//! store's.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row};

use super::session;
use super::{migrate, wal};
use crate::{Error, Record, StreamedSession};
use base::id::SessionId;
use base::lock::lock;
use transcript::{Message, Part};

/// The modification time and size of a file that no process has open. A difference means that the
/// file was changed while it was read.
type IdleFileState = (SystemTime, u64);

/// The row numbers (`seq`) of the parts of each message, ascending, by the message's id.
type PartNumbers = HashMap<String, Vec<i64>>;

/// An iterator over the messages of a file. The row numbers of the parts are collected in advance,
/// so that the parts of a message are found without a search.
struct MessageRows {
    db: Connection,
    path: PathBuf,
    state: IdleFileState,
    /// The row number of the last message that was read.
    last: i64,
    /// The parts of the messages that were not yet read.
    parts: PartNumbers,
    /// Descriptions of the messages and parts that cannot be decoded, and are left out.
    damage: Arc<Mutex<Vec<String>>>,
    is_finished: bool,
}

/// Opens a session's file for reading one message at a time, and returns the number of its messages
/// too. Returns `None` if the file must be read in another way, because a process has it open, it
/// needs repair, or a row does not match its checksum.
pub(super) fn open(dir: &Path, id: &SessionId) -> Option<(StreamedSession, i64)> {
    let path = session::path(dir, id);
    let state = state(&path)?;
    let db = connect(&path)?;
    let (record, parts) = check(&db).ok().flatten()?;
    let count = i64::try_from(parts.len()).unwrap_or(i64::MAX);
    let damage = Arc::<Mutex<Vec<String>>>::default();
    let messages = MessageRows {
        db,
        path,
        state,
        last: i64::MIN,
        parts,
        damage: damage.clone(),
        is_finished: false,
    };
    Some((
        StreamedSession::new(record, messages).with_damage(damage),
        count,
    ))
}

/// Returns the state of a file. Returns `None` if it is not a regular file, or if it has a
/// write-ahead log, which is part of its contents.
fn state(path: &Path) -> Option<IdleFileState> {
    let meta = std::fs::symlink_metadata(path)
        .ok()
        .filter(std::fs::Metadata::is_file)?;
    (!wal::path(path).exists()).then_some((meta.modified().ok()?, meta.len()))
}

/// Opens a file read-only and without a lock. The file must not change in the meantime. Returns
/// `None` if its format is not the current one, or SQLite cannot open it.
pub(super) fn connect(path: &Path) -> Option<Connection> {
    let plain = path
        .to_str()
        .filter(|path| !path.contains(['%', '?', '#']))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(format!("file:{plain}?immutable=1"), flags).ok()?;
    let format: i64 = db
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .ok()?;
    (format == migrate::SESSION_FORMAT).then_some(db)
}

/// Reads the record, and the row numbers of each message's parts. Returns `None` if the record is
/// missing, a row does not match its checksum, or a part has no message.
fn check(db: &Connection) -> rusqlite::Result<Option<(Record, PartNumbers)>> {
    let Some(record) = session::read_record(db)? else {
        return Ok(None);
    };
    let mut parts = PartNumbers::new();
    let mut query = db.prepare("SELECT seq, id, data, crc FROM message ORDER BY seq")?;
    let mut found = query.query([])?;
    while let Some(row) = found.next()? {
        let Some((id, _)) = session::message(row) else {
            return Ok(None);
        };
        parts.insert(id, Vec::new());
    }
    let mut query = db.prepare("SELECT seq, id, message, data, crc FROM part ORDER BY seq")?;
    let mut found = query.query([])?;
    while let Some(row) = found.next()? {
        let known = session::part(row).and_then(|(_, message, _)| parts.get_mut(&message));
        let Some(known) = known else { return Ok(None) };
        known.push(row.get(0)?);
    }
    Ok(Some((record, parts)))
}

impl MessageRows {
    /// Reads the next message that can be decoded. Returns `None` after the last one.
    fn read(&mut self) -> rusqlite::Result<Option<Message>> {
        loop {
            let sql = "SELECT seq, id, data, crc FROM message WHERE seq > ?1 ORDER BY seq LIMIT 1";
            let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, session::message(row)));
            let found = self
                .db
                .prepare_cached(sql)?
                .query_row([self.last], read)
                .optional()?;
            let Some((seq, row)) = found else {
                return Ok(None);
            };
            self.last = seq;
            let Some((id, json)) = row else {
                return Err(rusqlite::Error::InvalidQuery);
            };
            let numbers = self.parts.remove(&id).unwrap_or_default();
            let mut message: Message = match serde_json::from_str(&json) {
                Ok(message) => message,
                Err(e) => {
                    lock(&self.damage).push(format!("message {id} cannot be read: {e}"));
                    continue;
                }
            };
            let mut query = self
                .db
                .prepare_cached("SELECT seq, id, message, data, crc FROM part WHERE seq = ?1")?;
            for number in numbers {
                let row = query.query_row([number], |row| Ok(session::part(row)))?;
                let Some((id, _, json)) = row else {
                    return Err(rusqlite::Error::InvalidQuery);
                };
                match serde_json::from_str::<Part>(&json) {
                    Ok(part) => message.parts.push(part),
                    Err(e) => lock(&self.damage).push(format!("part {id} cannot be read: {e}")),
                }
            }
            return Ok(Some(message));
        }
    }
}

impl Iterator for MessageRows {
    type Item = Result<Message, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_finished {
            return None;
        }
        let read = self.read();
        self.is_finished = !matches!(read, Ok(Some(_)));
        match read {
            Ok(Some(message)) => Some(Ok(message)),
            Ok(None) if state(&self.path) == Some(self.state) => None,
            Ok(None) | Err(_) => Some(Err(Error::Changed(self.path.display().to_string()))),
        }
    }
}
