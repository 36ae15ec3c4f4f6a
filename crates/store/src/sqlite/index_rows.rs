//! The rows of the session index, and their checks.

use rusqlite::{Connection, params};

use super::{described, is_damage, migrate, session};
use crate::{Error, Record};
use base::id::SessionId;

/// The name of the index in errors.
const INDEX_NAME: &str = "the index of sessions (index.db)";

pub(super) fn unwritable(e: rusqlite::Error) -> Error {
    match IndexError::from(e) {
        IndexError::Damaged(reason) => Error::DamagedIndex(reason),
        other => other.into(),
    }
}

/// A reason not to use the index in its present state.
pub(super) enum IndexError {
    Damaged(String),
    Newer(i64),
    Other(String),
}

impl From<rusqlite::Error> for IndexError {
    fn from(e: rusqlite::Error) -> Self {
        if is_damage(&e) {
            Self::Damaged(e.to_string())
        } else {
            Self::Other(described(&e, INDEX_NAME))
        }
    }
}

impl From<IndexError> for Error {
    fn from(e: IndexError) -> Self {
        match e {
            IndexError::Newer(found) => Self::NewerIndex {
                found,
                known: migrate::INDEX_FORMAT,
            },
            IndexError::Damaged(reason) | IndexError::Other(reason) => Self::Unwritable(reason),
        }
    }
}

/// The checksum of rows that were written before there were checksums.
pub(super) const UNCHECKED: i64 = -1;

/// A row of the table of sessions.
pub(super) struct IndexRow {
    pub(super) record: Record,
    pub(super) messages: i64,
}

impl IndexRow {
    pub(super) const COLUMNS: &str = "id, cwd, parent, updated, data, messages, crc";

    /// Reads a row. Returns `None` if its checksum does not match.
    pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Self>> {
        if !Self::is_as_written(row)? {
            return Ok(None);
        }
        let data: String = row.get(4)?;
        let messages = row.get(5)?;
        Ok(serde_json::from_str(&data)
            .ok()
            .map(|record| Self { record, messages }))
    }

    fn is_as_written(row: &rusqlite::Row<'_>) -> rusqlite::Result<bool> {
        let crc_at_writing: i64 = row.get(6)?;
        if crc_at_writing == UNCHECKED {
            return Ok(true);
        }
        let id: String = row.get(0)?;
        let cwd: String = row.get(1)?;
        let parent: Option<String> = row.get(2)?;
        let data: String = row.get(4)?;
        Ok(crc_at_writing
            == crc(
                &id,
                &cwd,
                parent.as_deref(),
                row.get(3)?,
                &data,
                row.get(5)?,
            ))
    }

    /// Returns the row, or an error that declares the index damaged if its checksum did not match.
    pub(super) fn checked(read: rusqlite::Result<Option<Self>>) -> Result<Self, Error> {
        read.map_err(unwritable)?
            .ok_or_else(|| Error::DamagedIndex(ALTERED_ROW.into()))
    }
}

fn crc(id: &str, cwd: &str, parent: Option<&str>, updated: i64, data: &str, messages: i64) -> i64 {
    session::crc(&[
        id,
        cwd,
        parent.unwrap_or_default(),
        &updated.to_string(),
        data,
        &messages.to_string(),
    ])
}

/// Scans a whole database for damage: SQLite's own check, then the checksum of every row, because
/// SQLite does not detect a flipped bit in a text, which can hide a session from a query.
pub(super) fn damage(db: &Connection) -> rusqlite::Result<Option<String>> {
    let check = db.query_row("PRAGMA integrity_check(1)", [], |row| {
        row.get::<_, String>(0)
    })?;
    if check != "ok" {
        return Ok(Some(check));
    }
    let mut query = db.prepare(&format!("SELECT {} FROM session", IndexRow::COLUMNS))?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        if !IndexRow::is_as_written(row)? {
            return Ok(Some(ALTERED_ROW.to_owned()));
        }
    }
    Ok(None)
}

/// The reason for damage if a row does not match its checksum.
pub(super) const ALTERED_ROW: &str = "an entry is not as it was written";

/// The SQL condition for a session that has no message, and no title chosen by the user.
pub(super) const IS_EMPTY: &str =
    "(messages = 0 AND coalesce(json_extract(data, '$.titled'), 'words') <> 'user')";

/// Adds a session unless the index has it with a message.
pub(super) fn put_unless_known(
    db: &Connection,
    record: &Record,
    messages: i64,
) -> Result<(), Error> {
    let sql = format!(
        "INSERT INTO session ({}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO UPDATE
         SET cwd = ?2, parent = ?3, updated = ?4, data = ?5, messages = ?6, crc = ?7 WHERE messages = 0",
        IndexRow::COLUMNS
    );
    put_with(db, &sql, record, messages)
}

/// Records that a process writes to a session: see [`super::index::SessionIndex::mark_written`].
pub(super) fn put_written(db: &Connection, id: &str) -> Result<(), Error> {
    db.prepare_cached("INSERT OR IGNORE INTO written_session (id) VALUES (?1)")
        .and_then(|mut put| put.execute([id]))
        .map(drop)
        .map_err(unwritable)
}

/// Returns the time of a session's last use, in the form of its row.
pub(super) fn updated(record: &Record) -> i64 {
    i64::try_from(record.updated.0).unwrap_or(i64::MAX)
}

pub(super) fn put_with(
    db: &Connection,
    sql: &str,
    record: &Record,
    messages: i64,
) -> Result<(), Error> {
    let json = serde_json::to_string(record).unwrap_or_default();
    let parent = record.parent.as_ref().map(SessionId::as_str);
    let cwd = record.cwd.to_string_lossy();
    let updated = updated(record);
    let crc = crc(record.id.as_str(), &cwd, parent, updated, &json, messages);
    let mut put = db.prepare_cached(sql).map_err(unwritable)?;
    put.execute(params![
        record.id.as_str(),
        cwd,
        parent,
        updated,
        json,
        messages,
        crc
    ])
    .map_err(unwritable)?;
    Ok(())
}
