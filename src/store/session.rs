//! The file of one session.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use super::{Entry, Error, Record, Stored, migrate};
use crate::id::SessionId;
use crate::message::{Message, Part};

/// An open session file. Holding it keeps other processes out.
pub(super) struct File {
    id: SessionId,
    path: PathBuf,
    db: Connection,
    /// Rows were written since the last flush.
    unflushed: bool,
}

/// Where the file of a session lies.
pub(super) fn path(dir: &Path, id: &SessionId) -> PathBuf {
    dir.join("sessions").join(format!("{id}.db"))
}

impl File {
    /// Opens a session's file; makes it when `create` says so.
    pub(super) fn open(dir: &Path, id: &SessionId, create: bool) -> Result<Self, Error> {
        let path = path(dir, id);
        if create {
            crate::environment::private_dir(&dir.join("sessions")).map_err(|e| Error::Unwritable(e.to_string()))?;
            private_file(&path).map_err(|e| Error::Unwritable(e.to_string()))?;
        } else if !path.is_file() {
            return Err(Error::NotFound(id.clone()));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let explain = |e: rusqlite::Error| explain(id, &path, &e);
        let mut db = Connection::open_with_flags(&path, flags).map_err(explain)?;
        // The order matters: the time-out first, then the lock, then the journal (which needs it).
        db.busy_timeout(Duration::from_millis(200)).map_err(explain)?;
        db.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(explain)?;
        let found: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(explain)?;
        if found > migrate::SESSION_FORMAT {
            return Err(Error::Newer { id: id.clone(), found, known: migrate::SESSION_FORMAT });
        }
        // Where a file system has no WAL, the answer is another mode, which is as safe and slower.
        let _mode: String = db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(explain)?;
        db.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA cache_size = -256; PRAGMA temp_store = MEMORY;")
            .map_err(explain)?;
        migrate::SESSION.to_latest(&mut db).map_err(|e| match e {
            rusqlite_migration::Error::RusqliteError { err, .. } => explain(err),
            e => Error::Damaged { id: id.clone(), reason: e.to_string(), path: path.display().to_string() },
        })?;
        // Takes the lock now rather than at the first write.
        db.execute_batch("BEGIN IMMEDIATE; COMMIT;").map_err(explain)?;
        Ok(Self { id: id.clone(), path, db, unflushed: false })
    }

    /// Writes entries in order, all or none; with `flush`, and everything before them, to the disk.
    pub(super) fn write(&mut self, entries: &[Entry], flush: bool) -> Result<(), Error> {
        if entries.is_empty() && !(flush && self.unflushed) {
            return Ok(());
        }
        let written = self.transaction(entries, flush);
        let back = if flush { self.db.execute_batch("PRAGMA synchronous = NORMAL") } else { Ok(()) };
        written.and(back).map_err(|e| explain(&self.id, &self.path, &e))?;
        self.unflushed = !flush;
        Ok(())
    }

    fn transaction(&mut self, entries: &[Entry], flush: bool) -> rusqlite::Result<()> {
        if flush {
            self.db.execute_batch("PRAGMA synchronous = FULL")?;
        }
        let tx = self.db.transaction()?;
        for entry in entries {
            match entry {
                Entry::Record(record) => {
                    let json = serde_json::to_string(record).unwrap_or_default();
                    tx.prepare_cached(
                        "INSERT INTO session (one, data) VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET data = ?1",
                    )?
                    .execute(params![json])?;
                }
                Entry::Message { id, json } => {
                    tx.prepare_cached(
                        "INSERT INTO message (id, data) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET data = ?2",
                    )?
                    .execute(params![id, json])?;
                }
                Entry::Part { id, message, json } => {
                    tx.prepare_cached(
                        "INSERT INTO part (id, message, data) VALUES (?1, ?2, ?3) ON CONFLICT (id) DO UPDATE SET data = ?3",
                    )?
                    .execute(params![id, message, json])?;
                }
            }
        }
        if flush && entries.is_empty() {
            // A commit that changes nothing is not synced, and would leave earlier ones unsynced.
            tx.execute("UPDATE session SET flushed = flushed + 1", [])?;
        }
        tx.commit()
    }

    /// Reads everything. A row that cannot be read is left out and reported.
    pub(super) fn load(&self, fallback: Option<Record>) -> Result<Stored, Error> {
        let explain = |e: rusqlite::Error| explain(&self.id, &self.path, &e);
        let mut damage = Vec::new();
        let kept = self.db.query_row("SELECT data FROM session", [], |row| row.get::<_, String>(0));
        let record = match kept {
            Ok(json) => serde_json::from_str(&json).ok(),
            Err(rusqlite::Error::QueryReturnedNoRows) => None,
            Err(e) => return Err(explain(e)),
        };
        let record = record.or(fallback).ok_or_else(|| Error::NotFound(self.id.clone()))?;
        let mut messages: Vec<Message> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut query = self.db.prepare("SELECT id, data FROM message ORDER BY seq").map_err(explain)?;
        let mut rows = query.query([]).map_err(explain)?;
        while let Some(row) = rows.next().map_err(explain)? {
            let id: String = row.get(0).map_err(explain)?;
            let json: String = row.get(1).map_err(explain)?;
            match serde_json::from_str(&json) {
                Ok(message) => {
                    places.insert(id, messages.len());
                    messages.push(message);
                }
                Err(e) => damage.push(format!("message {id} cannot be read: {e}")),
            }
        }
        let mut query = self.db.prepare("SELECT id, message, data FROM part ORDER BY seq").map_err(explain)?;
        let mut rows = query.query([]).map_err(explain)?;
        while let Some(row) = rows.next().map_err(explain)? {
            let id: String = row.get(0).map_err(explain)?;
            let message: String = row.get(1).map_err(explain)?;
            let json: String = row.get(2).map_err(explain)?;
            let part = serde_json::from_str::<Part>(&json);
            match (part, places.get(&message)) {
                (Ok(part), Some(place)) => messages[*place].parts.push(part),
                (Ok(_), None) => damage.push(format!("part {id} belongs to no message")),
                (Err(e), _) => damage.push(format!("part {id} cannot be read: {e}")),
            }
        }
        Ok(Stored { record, messages, damage })
    }
}

/// Reads what is known about a session from a file that nobody may have open, for the index.
pub(super) fn peek(path: &Path) -> Option<Record> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
    let json: String = db.query_row("SELECT data FROM session", [], |row| row.get(0)).ok()?;
    serde_json::from_str(&json).ok()
}

/// Makes a file readable by its owner alone from its first byte.
pub(super) fn private_file(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn explain(id: &SessionId, path: &Path, e: &rusqlite::Error) -> Error {
    let reason = e.to_string();
    match e.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Locked(id.clone()),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::CannotOpen) => {
            Error::Damaged { id: id.clone(), reason, path: path.display().to_string() }
        }
        _ => Error::Unwritable(reason),
    }
}
