//! The file of one session.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, params};

use super::migrate;
use crate::assembly::Assembly;
use crate::write::{PartJson, SessionWrite};
use crate::{Error, LockHolder, Record, StoredSession, StreamedSession, compression};
use base::file::is_on_network;
use base::id::{PartId, SessionId};
use transcript::Part;

/// An open session file, exclusive to this process.
pub(super) struct SessionFile {
    id: SessionId,
    path: PathBuf,
    db: Connection,
    /// True if rows were written since the last flush.
    unflushed: bool,
    /// The device and inode of the file, whichever file its name leads to now.
    identity: Option<(u64, u64)>,
}

/// A number that no format will ever have: a greater one is damage, not a newer format.
const LAST_FORMAT: i64 = 1_000_000;

/// The contents of a session's file after a write, for the index.
pub(super) struct IndexUpdate {
    pub(super) record: Record,
    /// The number of the last message.
    pub(super) messages: i64,
}

/// Returns the path of a session's file.
pub(super) fn path(dir: &Path, id: &SessionId) -> PathBuf {
    dir.join("sessions").join(format!("{id}.db"))
}

impl SessionFile {
    /// Opens a session's file, and creates it if `create` is set.
    pub(super) fn open(dir: &Path, id: &SessionId, create: bool) -> Result<Self, Error> {
        let path = path(dir, id);
        if create {
            let sessions = dir.join("sessions");
            base::environment::private_dir(&sessions).map_err(super::unwritable_file(&sessions))?;
            create_file(&path, is_on_network(dir)).map_err(super::unwritable_file(&path))?;
        }
        Self::open_at(path, id, is_on_network(dir))
    }

    /// Opens a file. A file on a network file system has no write-ahead log.
    pub(super) fn open_at(path: PathBuf, id: &SessionId, network: bool) -> Result<Self, Error> {
        Self::open_through(path, id, network, None)
    }

    /// Like [`Self::open_at`], through a file system that a test supplies instead of SQLite's
    /// default. The log is then checkpointed early.
    pub(super) fn open_through(
        path: PathBuf,
        id: &SessionId,
        network: bool,
        vfs: Option<&str>,
    ) -> Result<Self, Error> {
        match std::fs::symlink_metadata(&path) {
            // SQLite treats a file of one byte as empty.
            Ok(meta) if meta.is_file() && meta.len() == 1 => {
                return Err(damaged(id, &path, "one byte is left of it".into()));
            }
            Ok(meta) if meta.is_file() => {}
            _ => return Err(damaged(id, &path, "it is not a regular file".into())),
        }
        #[cfg(unix)]
        if let Ok(file) = std::fs::File::open(&path) {
            tighten(&path, &file).ok(); // the file of another user is left unchanged
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let explain = |e: rusqlite::Error| explain(id, &path, &e);
        let opened = match vfs {
            None => Connection::open_with_flags(&path, flags),
            Some(vfs) => Connection::open_with_flags_and_vfs(&path, flags, vfs),
        };
        let mut db = opened.map_err(explain)?;
        // The order matters: first the timeout, then the lock, then the journal (which needs the
        // lock).
        db.busy_timeout(Duration::from_millis(200))
            .map_err(explain)?;
        db.pragma_update(None, "locking_mode", "EXCLUSIVE")
            .map_err(explain)?;
        let found: i64 = db
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(explain)?;
        if found > LAST_FORMAT {
            return Err(damaged(
                id,
                &path,
                format!("no adjutant writes format {found}"),
            ));
        }
        if found > migrate::SESSION_FORMAT {
            return Err(Error::Newer {
                id: id.clone(),
                found,
                known: migrate::SESSION_FORMAT,
            });
        }
        let foreign = "SELECT count(*) FROM sqlite_schema WHERE tbl_name NOT IN ('session', 'message', 'part')";
        let foreign: i64 = db
            .query_row(foreign, [], |row| row.get(0))
            .map_err(explain)?;
        if foreign > 0 || found < 0 {
            return Err(damaged(
                id,
                &path,
                "it is a database of something else".into(),
            ));
        }
        // If a file system does not support WAL, SQLite selects another mode, which is as safe and
        // slower.
        let mode = if network {
            "PRAGMA journal_mode = DELETE"
        } else {
            "PRAGMA journal_mode = WAL"
        };
        let _mode: String = db.query_row(mode, [], |row| row.get(0)).map_err(explain)?;
        db.execute_batch(
            "PRAGMA synchronous = NORMAL; PRAGMA cache_size = -256; PRAGMA temp_store = MEMORY;",
        )
        .map_err(explain)?;
        if vfs.is_some() {
            db.pragma_update(None, "wal_autocheckpoint", 60)
                .map_err(explain)?;
        }
        migrate::SESSION.to_latest(&mut db).map_err(|e| match e {
            rusqlite_migration::Error::RusqliteError { err, .. } => explain(err),
            e => damaged(id, &path, e.to_string()),
        })?;
        // Take the lock now, not at the first write.
        db.execute_batch("BEGIN IMMEDIATE; COMMIT;")
            .map_err(explain)?;
        let identity = identity(&path);
        Ok(Self {
            id: id.clone(),
            path,
            db,
            unflushed: false,
            identity,
        })
    }

    /// Writes entries in order, all or none; with `flush`, they and all earlier ones are synced to
    /// the disk. Returns the index update, if there is one.
    pub(super) fn write(
        &mut self,
        entries: &[SessionWrite],
        flush: bool,
    ) -> Result<Option<IndexUpdate>, Error> {
        if entries.is_empty() && !(flush && self.unflushed) {
            return Ok(None);
        }
        if self.identity.is_some() && identity(&self.path) != self.identity {
            // The system would accept the writes, and discard them once the file is closed.
            return Err(Error::Removed(self.path.display().to_string()));
        }
        let written = self.transaction(entries, flush);
        let reset = if flush {
            self.db.execute_batch("PRAGMA synchronous = NORMAL")
        } else {
            Ok(())
        };
        let update = written
            .and_then(|update| reset.map(|()| update))
            .map_err(|e| explain(&self.id, &self.path, &e))?;
        self.unflushed = !flush;
        Ok(update)
    }

    fn transaction(
        &mut self,
        entries: &[SessionWrite],
        flush: bool,
    ) -> rusqlite::Result<Option<IndexUpdate>> {
        if flush {
            self.db.execute_batch("PRAGMA synchronous = FULL")?;
        }
        let tx = self.db.transaction()?;
        let mut changed = false;
        for entry in entries {
            changed |= apply(&tx, entry, changed)?;
        }
        if flush && entries.is_empty() {
            // A commit without changes is not synced, and would leave earlier ones unsynced.
            tx.execute("UPDATE session SET flushed = flushed + 1", [])?;
        }
        let record = if changed { read_record(&tx)? } else { None };
        let update = match record {
            Some(record) => Some(IndexUpdate {
                record,
                messages: last(&tx)?,
            }),
            None => None,
        };
        tx.commit()?;
        Ok(update)
    }

    /// Writes a whole session from a feed, all or none, and syncs it to the disk.
    pub(super) fn fill(&mut self, mut feed: StreamedSession) -> Result<IndexUpdate, Error> {
        let id = self.id.clone();
        let path = self.path.clone();
        let explain = |e: rusqlite::Error| explain(&id, &path, &e);
        self.db
            .execute_batch("PRAGMA synchronous = FULL")
            .map_err(explain)?;
        let tx = self.db.transaction().map_err(explain)?;
        put_record(&tx, &feed.record).map_err(explain)?;
        for message in feed.by_ref() {
            for entry in SessionWrite::of(&message?) {
                apply(&tx, &entry, true).map_err(explain)?;
            }
        }
        let messages = last(&tx).map_err(explain)?;
        tx.commit().map_err(explain)?;
        self.db
            .execute_batch("PRAGMA synchronous = NORMAL")
            .map_err(explain)?;
        Ok(IndexUpdate {
            record: feed.record,
            messages,
        })
    }

    /// Writes the record if the file has none: the process that created the file may have been
    /// killed right afterwards, and a change would have no record to apply to.
    pub(super) fn remember(&mut self, known: Option<Record>) -> Result<Option<IndexUpdate>, Error> {
        let lacks = |db: &Connection| {
            Ok(db.query_row("SELECT count(*) FROM session", [], |row| {
                row.get::<_, i64>(0)
            })? == 0)
        };
        match known {
            Some(known) if lacks(&self.db).map_err(|e| explain(&self.id, &self.path, &e))? => {
                self.write(&[SessionWrite::Record(Box::new(known))], false)
            }
            _ => Ok(None),
        }
    }

    pub(super) fn db(&self) -> &Connection {
        &self.db
    }

    /// Returns the number of the last message.
    pub(super) fn messages(&self) -> Result<i64, Error> {
        last(&self.db).map_err(|e| explain(&self.id, &self.path, &e))
    }

    /// Returns the record, if it is readable.
    pub(super) fn record(&self) -> Result<Option<Record>, Error> {
        read_record(&self.db).map_err(|e| explain(&self.id, &self.path, &e))
    }

    /// Reads everything, like [`SessionFile::read`].
    pub(super) fn load(&self, fallback: Option<Record>) -> Result<StoredSession, Error> {
        self.read(fallback, false).map(|(stored, _)| stored)
    }

    /// Reads everything; if `without_old_results`, without the results of calls that no model will
    /// see. Also returns the number of messages at the beginning that lack them.
    ///
    /// # Errors
    /// Returns [`Error::Damaged`] if anything differs from what was written.
    pub(super) fn read(
        &self,
        fallback: Option<Record>,
        without_old_results: bool,
    ) -> Result<(StoredSession, usize), Error> {
        let damaged = |reason: String| damaged(&self.id, &self.path, reason);
        let explain = |e: rusqlite::Error| explain(&self.id, &self.path, &e);
        let check: String = self
            .db
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(explain)?;
        if check != "ok" {
            return Err(damaged(check));
        }
        let (stored, messages_without_results, altered) =
            RawRows::stored(&self.db, fallback, without_old_results).map_err(explain)?;
        if altered > 0 {
            return Err(damaged(format!(
                "{altered} of its entries do not match their checksums"
            )));
        }
        Ok((
            stored.ok_or_else(|| Error::NotFound(self.id.clone()))?,
            messages_without_results,
        ))
    }

    /// Reads the given parts completely. Missing and damaged parts are left out.
    pub(super) fn parts(&self, ids: &[PartId]) -> Result<Vec<Part>, Error> {
        let explain = |e: rusqlite::Error| explain(&self.id, &self.path, &e);
        let sql = "SELECT seq, id, message, data, crc FROM part WHERE id = ?1";
        let mut query = self.db.prepare_cached(sql).map_err(explain)?;
        let mut parts = Vec::with_capacity(ids.len());
        for id in ids {
            let row = query
                .query_row([id.as_str()], |row| Ok(part(row)))
                .optional()
                .map_err(explain)?;
            parts.extend(
                row.flatten()
                    .and_then(|(_, _, json)| serde_json::from_str(&json).ok()),
            );
        }
        Ok(parts)
    }
}

/// Applies an entry. Returns true if the index needs an update; `changed` is set if an earlier
/// entry has caused one already.
fn apply(tx: &Connection, entry: &SessionWrite, changed: bool) -> rusqlite::Result<bool> {
    match entry {
        SessionWrite::Record(record) => {
            put_record(tx, &record.after(read_record(tx)?.as_ref()))?;
            Ok(true)
        }
        SessionWrite::Amend(amend) => {
            let Some(mut record) = read_record(tx)? else {
                return Ok(false);
            };
            amend.apply(&mut record);
            put_record(tx, &record)?;
            Ok(true)
        }
        SessionWrite::Message { id, json } => {
            // The first message makes a session appear in lists.
            let is_first = !changed && last(tx)? == 0;
            tx.prepare_cached(
                "INSERT INTO message (id, data, crc) VALUES (?1, ?2, ?3)
                 ON CONFLICT (id) DO UPDATE SET data = ?2, crc = ?3",
            )?
            .execute(params![id, stored(json, false), crc(&[id, json])])?;
            Ok(is_first)
        }
        SessionWrite::Part {
            id,
            message,
            json,
            is_growing,
        } => {
            tx.prepare_cached(
                "INSERT INTO part (id, message, data, crc) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (id) DO UPDATE SET data = ?3, crc = ?4",
            )?
            .execute(params![
                id,
                message,
                stored_part(json, *is_growing),
                crc_of_part(id, message, json)
            ])?;
            Ok(false)
        }
        // Contents are stored in files of their own.
        SessionWrite::Content { .. } => Ok(false),
        SessionWrite::Cut { from } => {
            const AFTER: &str = "seq >= (SELECT seq FROM message WHERE id = ?1)";
            let parts =
                format!("DELETE FROM part WHERE message IN (SELECT id FROM message WHERE {AFTER})");
            tx.execute(&parts, params![from])?;
            tx.execute(&format!("DELETE FROM message WHERE {AFTER}"), params![from])?;
            Ok(true)
        }
    }
}

fn last(db: &Connection) -> rusqlite::Result<i64> {
    db.prepare_cached("SELECT coalesce(max(seq), 0) FROM message")?
        .query_row([], |row| row.get(0))
}

/// Returns the record in a session's file. `None` if it is unreadable.
pub(super) fn read_record(db: &Connection) -> rusqlite::Result<Option<Record>> {
    let mut rows = RawRows::default();
    let mut query = db.prepare_cached("SELECT data, crc FROM session")?;
    let mut found = query.query([])?;
    while let Some(row) = found.next()? {
        rows.take_record(row);
    }
    Ok(rows
        .record
        .and_then(|json| serde_json::from_str(&json).ok()))
}

fn put_record(db: &Connection, record: &Record) -> rusqlite::Result<()> {
    let json = serde_json::to_string(record).unwrap_or_default();
    let sql = "INSERT INTO session (one, data, crc) VALUES (1, ?1, ?2)
         ON CONFLICT (one) DO UPDATE SET data = ?1, crc = ?2";
    db.prepare_cached(sql)?
        .execute(params![json, crc(&[&json])])
        .map(drop)
}

/// Returns the device and inode that a path leads to.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path)
        .ok()
        .map(|meta| (meta.dev(), meta.ino()))
}

/// The rows of a file.
#[derive(Default)]
pub(super) struct RawRows {
    pub(super) record: Option<String>,
    /// Id and JSON, oldest first.
    pub(super) messages: Vec<(String, String)>,
    /// Id, message and JSON, oldest first.
    pub(super) parts: Vec<(String, String, String)>,
    /// The number of rows that do not match their checksums.
    pub(super) altered: usize,
}

impl RawRows {
    /// Reads all rows, like [`SessionFile::read`]; fails at the first unreadable one. Parts are
    /// decoded one by one, because a session has many, and a second copy of them is not needed.
    /// Also returns the number of leading messages without results and of rows that do not match
    /// their checksums.
    pub(super) fn stored(
        db: &Connection,
        fallback: Option<Record>,
        without_old_results: bool,
    ) -> rusqlite::Result<(Option<StoredSession>, usize, usize)> {
        let mut rows = Self::default();
        let mut query = db.prepare("SELECT data, crc FROM session")?;
        let mut found = query.query([])?;
        while let Some(row) = found.next()? {
            rows.take_record(row);
        }
        let mut query = db.prepare("SELECT seq, id, data, crc FROM message ORDER BY seq")?;
        let mut found = query.query([])?;
        while let Some(row) = found.next()? {
            rows.take_message(row);
        }
        let mut altered = rows.altered;
        let begun = Assembly::begin(rows.record, rows.messages, fallback);
        let Some(mut assembly) = begun else {
            return Ok((None, 0, altered));
        };
        let messages_without_results = if without_old_results {
            messages_without_results(db, &assembly)?
        } else {
            0
        };
        let mut query = db.prepare("SELECT seq, id, message, data, crc FROM part ORDER BY seq")?;
        let mut found = query.query([])?;
        while let Some(row) = found.next()? {
            match part(row) {
                Some((id, message, json)) => {
                    assembly.part(&id, &message, &json, messages_without_results)
                }
                None => altered += 1,
            }
        }
        Ok((Some(assembly.end()), messages_without_results, altered))
    }

    pub(super) fn take_record(&mut self, row: &Row<'_>) {
        let read = || {
            let data = text(row, 0)?;
            matches_crc(row.get(1).ok()?, &[&data]).then_some(data)
        };
        match read() {
            Some(data) => self.record = Some(data),
            None => self.altered += 1,
        }
    }

    pub(super) fn take_message(&mut self, row: &Row<'_>) {
        match message(row) {
            Some(message) => self.messages.push(message),
            None => self.altered += 1,
        }
    }

    pub(super) fn take_part(&mut self, row: &Row<'_>) {
        match part(row) {
            Some(part) => self.parts.push(part),
            None => self.altered += 1,
        }
    }

    /// Assembles the session from the rows. Entries that this version cannot decode are left out
    /// and listed as damage. Returns `None` if no record is available.
    pub(super) fn assemble(mut self, fallback: Option<Record>) -> Option<StoredSession> {
        let parts = std::mem::take(&mut self.parts);
        let mut assembly = Assembly::begin(self.record, self.messages, fallback)?;
        for (id, message, json) in parts {
            assembly.part(&id, &message, &json, 0);
        }
        Some(assembly.end())
    }
}

/// Determines the number of leading messages to read without results: see
/// [`Assembly::messages_without_results`].
fn messages_without_results(db: &Connection, assembly: &Assembly) -> rusqlite::Result<usize> {
    let Some(parent) = assembly.summarised() else {
        return Ok(0);
    };
    let mut query =
        db.prepare("SELECT seq, id, message, data, crc FROM part WHERE message = ?1")?;
    let mut found = query.query([parent.as_str()])?;
    let mut parts = Vec::new();
    while let Some(row) = found.next()? {
        parts.extend(part(row).map(|(_, _, json)| json));
    }
    Ok(assembly.messages_without_results(parent, &parts))
}

/// Decodes the row of a message, if its checksum matches.
pub(super) fn message(row: &Row<'_>) -> Option<(String, String)> {
    let id = text(row, 1)?;
    let data = text(row, 2)?;
    matches_crc(row.get(3).ok()?, &[&id, &data]).then_some((id, data))
}

/// Decodes the row of a part, if its checksum matches.
pub(super) fn part(row: &Row<'_>) -> Option<(String, String, String)> {
    let id = text(row, 1)?;
    let message = text(row, 2)?;
    let data = text(row, 3)?;
    matches_crc(row.get(4).ok()?, &[&id, &message, &data]).then_some((id, message, data))
}

/// Encodes a text for the file: unchanged, or compressed as bytes.
fn stored(text: &str, is_growing: bool) -> ToSqlOutput<'_> {
    match compression::compress_unless_growing(text, is_growing) {
        Some(packed) => ToSqlOutput::Owned(Value::Blob(packed)),
        None => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
    }
}

fn stored_part(json: &PartJson, is_growing: bool) -> ToSqlOutput<'_> {
    match json {
        PartJson::Plain(json) => stored(json, is_growing),
        PartJson::Compressed { data, .. } => ToSqlOutput::Borrowed(ValueRef::Blob(data)),
    }
}

/// Decodes a text column, compressed or not.
fn text(row: &Row<'_>, column: usize) -> Option<String> {
    match row.get_ref(column).ok()? {
        ValueRef::Text(text) => std::str::from_utf8(text).ok().map(str::to_owned),
        ValueRef::Blob(packed) => compression::decompress(packed),
        _ => None,
    }
}

/// Computes the checksum of an entry.
pub(super) fn crc(fields: &[&str]) -> i64 {
    i64::from(hasher(fields).finalize())
}

/// No letter, so that fields cannot run into each other.
const BETWEEN: &[u8] = &[0xff];

fn hasher(fields: &[&str]) -> crc32fast::Hasher {
    let mut hasher = crc32fast::Hasher::new();
    for field in fields {
        hasher.update(field.as_bytes());
        hasher.update(BETWEEN);
    }
    hasher
}

fn crc_of_part(id: &str, message: &str, json: &PartJson) -> i64 {
    match json {
        PartJson::Plain(json) => crc(&[id, message, json]),
        PartJson::Compressed { crc, .. } => {
            let mut whole = hasher(&[id, message]);
            whole.combine(crc);
            whole.update(BETWEEN);
            i64::from(whole.finalize())
        }
    }
}

/// The checksum of entries that were written before there were checksums.
const UNCHECKED: i64 = -1;

/// True if an entry matches its checksum.
fn matches_crc(stored_crc: Option<i64>, fields: &[&str]) -> bool {
    stored_crc
        .is_some_and(|crc_at_writing| crc_at_writing == UNCHECKED || crc_at_writing == crc(fields))
}

/// Creates a session's file with its tables if there is none, atomically. Creation by SQLite would
/// take twice as many flushes, during which every other session waits.
fn create_file(path: &Path, network: bool) -> std::io::Result<()> {
    let is_missing_or_empty = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta.is_file() && meta.len() == 0,
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
    };
    if !is_missing_or_empty {
        return private_file(path);
    }
    let Some(empty) = migrate::empty_session() else {
        return private_file(path);
    };
    // The remains of an older file would be taken for the log of this one.
    for suffix in ["-wal", "-journal", "-shm", NEW_SUFFIX] {
        std::fs::remove_file(super::with_suffix(path, suffix)).or_else(unless_missing)?;
    }
    let mut image = empty.to_vec();
    if !network && let Some(versions) = image.get_mut(18..20) {
        // These bytes are the format's versions for reading and writing; 2 means a write-ahead log.
        versions.fill(2);
    }
    let new = super::with_suffix(path, NEW_SUFFIX);
    private_file(&new)?;
    let written = std::fs::OpenOptions::new()
        .append(true)
        .open(&new)
        .and_then(|mut file| {
            file.write_all(&image)?;
            file.sync_all()
        });
    // The new name reaches the disk with the first flush, because the log is in the same directory.
    written
        .and_then(|()| std::fs::rename(&new, path))
        .inspect_err(|_| drop(std::fs::remove_file(&new)))
}

/// Removes a session's file and its companion files.
pub(super) fn remove_files(path: &Path) -> Result<(), Error> {
    let failed = super::unwritable_file(path);
    // Renaming removes the database at once, and makes the other files meaningless.
    let gone = super::with_suffix(path, REMOVED_SUFFIX);
    std::fs::rename(path, &gone)
        .or_else(unless_missing)
        .map_err(&failed)?;
    for suffix in [NEW_SUFFIX, "-wal", "-journal", "-shm", REMOVED_SUFFIX] {
        std::fs::remove_file(super::with_suffix(path, suffix))
            .or_else(unless_missing)
            .map_err(&failed)?;
    }
    Ok(())
}

/// The suffix of a file while it is created.
pub(super) const NEW_SUFFIX: &str = "-new";

/// The suffix of a file while it is removed.
pub(super) const REMOVED_SUFFIX: &str = "-gone";

pub(super) fn unless_missing(e: std::io::Error) -> std::io::Result<()> {
    if e.kind() == std::io::ErrorKind::NotFound {
        Ok(())
    } else {
        Err(e)
    }
}

/// Creates a file that only its owner can read, from its first byte.
pub(super) fn private_file(path: &Path) -> std::io::Result<()> {
    let file = base::environment::private_file()
        .create(true)
        .append(true)
        .open(path)?;
    #[cfg(unix)]
    tighten(path, &file)?;
    drop(file);
    Ok(())
}

/// Restricts a file to its owner if others can read it, for example after a backup.
#[cfg(unix)]
fn tighten(path: &Path, file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(
            "{} could be read by others; now only by you",
            path.display()
        );
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

pub(super) fn damaged(id: &SessionId, path: &Path, reason: String) -> Error {
    Error::Damaged {
        id: id.clone(),
        reason,
        path: path.display().to_string(),
    }
}

/// True if a directory, a pipe or another special file has the name of a log of this
/// database.
fn has_special_companion(path: &Path) -> bool {
    let is_special = |suffix| {
        let found = std::fs::symlink_metadata(super::with_suffix(path, suffix));
        found.is_ok_and(|meta| !meta.is_file())
    };
    ["-wal", "-shm", "-journal"].into_iter().any(is_special)
}

fn explain(id: &SessionId, path: &Path, e: &rusqlite::Error) -> Error {
    let reason = e.to_string();
    match e.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Locked {
            id: id.clone(),
            holder: LockHolder::default(),
        },
        // Descriptors may have run out, or permissions may be missing: that is not a sign of damage.
        Some(ErrorCode::CannotOpen) if has_special_companion(path) => damaged(id, path, reason),
        _ if super::is_damage(e) => damaged(id, path, reason),
        _ => Error::Unwritable(super::described(e, &path.display().to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_the_machine_names_file_and_remedy() {
        let permissions = "check the permissions of the file and its directory";
        let table = [
            (
                ErrorCode::SystemIoFailure,
                "disk I/O error",
                "check that its disk works and has room",
            ),
            (
                ErrorCode::DiskFull,
                "database or disk is full",
                "make room on its disk",
            ),
            (
                ErrorCode::ReadOnly,
                "attempt to write a readonly database",
                permissions,
            ),
            (
                ErrorCode::CannotOpen,
                "unable to open database file",
                permissions,
            ),
        ];
        let path = Path::new("/data/sessions/ses_1.db");
        for (code, message, remedy) in table {
            let failure = rusqlite::ffi::Error {
                code,
                extended_code: 1,
            };
            let error = rusqlite::Error::SqliteFailure(failure, Some(message.to_owned()));
            let Error::Unwritable(reason) = explain(&SessionId::new("ses_1"), path, &error) else {
                panic!("{code:?} is no sign of damage");
            };
            assert_eq!(reason, format!("{}: {message}; {remedy}", path.display()));
        }
    }

    #[test]
    fn file_that_cannot_be_opened_is_damaged_only_if_its_log_is_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let id = SessionId::new("ses_1");
        let path = dir.path().join("ses_1.db");
        std::fs::write(&path, "").unwrap();
        let failure = rusqlite::ffi::Error {
            code: ErrorCode::CannotOpen,
            extended_code: 14,
        };
        let explained = || explain(&id, &path, &rusqlite::Error::SqliteFailure(failure, None));
        // The error that occurs when no descriptor is left.
        assert!(
            matches!(explained(), Error::Unwritable(_)),
            "{:?}",
            explained()
        );
        std::fs::create_dir(super::super::with_suffix(&path, "-wal")).unwrap();
        assert!(
            matches!(explained(), Error::Damaged { .. }),
            "{:?}",
            explained()
        );
    }
}
