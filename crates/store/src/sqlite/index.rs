//! The index of all sessions, and data that belongs to no session. Several processes share it.
//! Except for grants, it is a cache of the session files: it adds the sessions that it lacks when
//! it is first queried (see [`IndexFill`]), and if it is unreadable or altered, it is moved aside
//! and rebuilt.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::fill::{self, IndexFill};
use super::index_rows::{
    ALTERED_ROW, IS_EMPTY, IndexError, IndexRow, UNCHECKED, put_with, put_written, unwritable,
};
use super::{migrate, session, unwritable_file};
use crate::list::LAST_ID;
use crate::{Error, Grant, ListQuery, Record, SessionPage};
use base::environment::Timestamp;
use base::file::is_on_network;
use base::id::SessionId;

pub(super) struct SessionIndex {
    db: Connection,
    /// The progress of completing it; `None` until the first query.
    fill: Option<Arc<IndexFill>>,
    /// The device and inode of the file, whichever file its name leads to now.
    identity: Option<(u64, u64)>,
}

/// Takes the lock for opening or creating the index, which processes do one at a time.
fn lock_index(dir: &Path) -> Result<std::fs::File, Error> {
    let path = dir.join("index.lock");
    if std::fs::symlink_metadata(&path).is_ok_and(|meta| !meta.is_file()) {
        // Opening a pipe would block forever.
        std::fs::rename(&path, free_name(dir)).map_err(unwritable_file(dir))?;
    }
    session::private_file(&path).map_err(unwritable_file(dir))?;
    let turn = std::fs::OpenOptions::new()
        .append(true)
        .open(path)
        .map_err(unwritable_file(dir))?;
    if let Err(e) = turn.lock() {
        // The file system has no locks, so other processes cannot be detected anyway.
        tracing::warn!("the session index cannot be locked: {e}");
    }
    Ok(turn)
}

/// Returns a free name for a damaged index.
fn free_name(dir: &Path) -> PathBuf {
    let name = |n: u32| dir.join(format!("index.damaged-{n}.db"));
    (1..)
        .map(name)
        .find(|path| path.symlink_metadata().is_err())
        .unwrap_or_else(|| name(0))
}

/// Reads the grants of a damaged index, and whether these are all of them.
fn salvage_grants(path: &Path) -> (Vec<Grant>, bool) {
    const NONE: (Vec<Grant>, bool) = (Vec::new(), false);
    let Ok(db) = Connection::open(path) else {
        return NONE;
    };
    // The index may have the format without checksums of grants.
    let query = db
        .prepare(&format!("SELECT {GRANT_COLUMNS} FROM grant_"))
        .or_else(|_| {
            db.prepare("SELECT project, agent, permission, pattern, given, -1 FROM grant_")
        });
    let Ok(mut query) = query else { return NONE };
    let Ok(mut rows) = query.query([]) else {
        return NONE;
    };
    let mut grants = Vec::new();
    let mut is_whole = true;
    loop {
        match rows.next() {
            Ok(Some(row)) => match read_grant(row) {
                Ok(Some(grant)) => grants.push(grant),
                Ok(None) | Err(_) => is_whole = false,
            },
            Ok(None) => return (grants, is_whole),
            // Rows after a damaged page are unreachable.
            Err(_) => return (grants, false),
        }
    }
}

const GRANT_COLUMNS: &str = "project, agent, permission, pattern, given, crc";

/// Reads a grant. Returns `None` if its checksum does not match.
fn read_grant(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Grant>> {
    let given = row.get::<_, i64>(4)?;
    let grant = Grant {
        project: row.get(0)?,
        agent: row.get(1)?,
        permission: row.get(2)?,
        pattern: row.get(3)?,
        granted_at: Timestamp(u64::try_from(given).unwrap_or_default()),
    };
    let crc_at_writing: i64 = row.get(5)?;
    let is_as_written = crc_at_writing == UNCHECKED || crc_at_writing == grant_crc(&grant, given);
    Ok(is_as_written.then_some(grant))
}

fn grant_crc(grant: &Grant, given: i64) -> i64 {
    session::crc(&[
        &grant.project,
        &grant.agent,
        &grant.permission,
        &grant.pattern,
        &given.to_string(),
    ])
}

/// Returns the path of the file that records a loss of grants until a session has reported it. It
/// contains the path of the damaged index.
fn lost_grants_file(dir: &Path) -> PathBuf {
    dir.join("index.grants-lost")
}

/// Returns the path of the index whose grants could not be read, if that has not been reported yet.
/// With `is_reported`, it counts as reported from now on.
pub(super) fn lost_grants(dir: &Path, is_reported: bool) -> Option<String> {
    let file = lost_grants_file(dir);
    let path = std::fs::read_to_string(&file).ok()?;
    if is_reported && let Err(e) = std::fs::remove_file(&file) {
        tracing::warn!(
            "{} cannot be removed, and will be reported again: {e}",
            file.display()
        );
    }
    Some(path)
}

/// Builds the query of a page: at most `?3` sessions before `?1` and `?2`, in the directory `?4`,
/// archived or not.
fn page(in_directory: bool, archived: Option<bool>) -> String {
    let columns = IndexRow::COLUMNS;
    let condition = if in_directory {
        "cwd = ?4"
    } else {
        "?4 IS NULL"
    };
    let aside = match archived {
        None => "",
        Some(true) => " AND coalesce(json_extract(data, '$.archived'), 0) <> 0",
        Some(false) => " AND coalesce(json_extract(data, '$.archived'), 0) = 0",
    };
    // The `+` disables the index over parents: almost all sessions have none, and all of them would
    // be sorted for each page. A session without messages is left out, unless its user has named
    // it.
    format!(
        "SELECT {columns} FROM session WHERE {condition} AND +parent IS NULL AND NOT {IS_EMPTY}{aside} AND (updated, id) < (?1, ?2)
         ORDER BY updated DESC, id DESC LIMIT ?3"
    )
}

/// Yields the directories below `?1`, each by one step in the index, independent of the number of
/// its sessions.
const DIRECTORIES: &str = "WITH RECURSIVE directory (cwd) AS (
        SELECT min(cwd) FROM session WHERE cwd >= ?1
        UNION ALL
        SELECT (SELECT min(cwd) FROM session WHERE session.cwd > directory.cwd)
        FROM directory WHERE substr(directory.cwd, 1, length(?1)) = ?1
    )
    SELECT cwd FROM directory WHERE substr(cwd, 1, length(?1)) = ?1";

impl SessionIndex {
    /// Opens the index, or creates it. Concurrent processes take turns.
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        base::environment::private_dir(dir).map_err(unwritable_file(dir))?;
        let _turn = lock_index(dir)?;
        let path = dir.join("index.db");
        let found = match std::fs::symlink_metadata(&path) {
            Ok(meta) if !meta.is_file() => {
                Err(IndexError::Damaged("it is not a regular file".into()))
            }
            // SQLite treats an empty file and one of a single byte as an empty database.
            Ok(meta) if meta.len() <= 1 => Err(IndexError::Damaged("nothing is left of it".into())),
            Ok(_) => session::private_file(&path)
                .map_err(|e| IndexError::Other(e.to_string()))
                .and_then(|()| Self::connect(&path, is_on_network(dir), false)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Self::create(dir, None),
            Err(e) => return Err(unwritable_file(dir)(e)),
        };
        match found {
            Err(IndexError::Damaged(reason)) => Self::replace_damaged(dir, &reason),
            found => Ok(found?),
        }
    }

    /// Ensures that the index has been checked for damage and completed from the session files, or
    /// that this is in progress. It takes a few milliseconds at most.
    ///
    /// # Errors
    /// Returns [`Error::DamagedIndex`].
    pub(super) fn complete(&mut self, dir: &Path) -> Result<(), Error> {
        let fill = match self.fill.take() {
            Some(fill) => fill,
            None => IndexFill::begin(&mut self.db, dir)?,
        };
        let damage = fill
            .damage()
            .map(|damage| Error::DamagedIndex(damage.to_owned()));
        self.fill = Some(fill);
        damage.map_or(Ok(()), Err)
    }

    pub(super) fn fill(&self) -> Option<Arc<IndexFill>> {
        self.fill.clone()
    }

    /// Replaces a damaged index, which is moved aside.
    fn replace_damaged(dir: &Path, reason: &str) -> Result<Self, Error> {
        let path = dir.join("index.db");
        let aside = free_name(dir);
        tracing::warn!(
            "the session index is damaged ({reason}); saved as {} and built again",
            aside.display()
        );
        // The companion files go first: they would damage a new index.
        for suffix in ["-wal", "-shm", "-journal"] {
            std::fs::rename(
                super::with_suffix(&path, suffix),
                super::with_suffix(&aside, suffix),
            )
            .ok();
        }
        if std::fs::hard_link(&path, &aside).is_err() {
            std::fs::rename(&path, &aside).map_err(unwritable_file(dir))?;
        }
        Self::create(dir, Some(&aside))
    }

    /// Creates an index without sessions. It gets its name once it has its tables, so that a killed
    /// process leaves no incomplete one. Grants are stored nowhere else, so the readable ones of an
    /// `old` index are copied.
    fn create(dir: &Path, old: Option<&Path>) -> Result<Self, Error> {
        let path = dir.join("index.db");
        let new = dir.join("index.db-new");
        for left in [
            new.clone(),
            super::with_suffix(&new, "-journal"),
            super::with_suffix(&path, "-wal"),
            super::with_suffix(&path, "-shm"),
        ] {
            std::fs::remove_file(left)
                .or_else(session::unless_missing)
                .map_err(unwritable_file(dir))?;
        }
        session::private_file(&new).map_err(unwritable_file(dir))?;
        let index = Self::connect(&new, true, false).map_err(Error::from)?;
        if let Some(old) = old.filter(|path| path.is_file()) {
            let (grants, is_whole) = salvage_grants(old);
            for grant in &grants {
                index.grant(grant)?;
            }
            if !is_whole {
                let note = old.display().to_string();
                base::environment::write_private_file(&lost_grants_file(dir), note.as_bytes())
                    .map_err(unwritable_file(dir))?;
            }
        }
        fill::mark_partial(&index.db).map_err(unwritable)?;
        drop(index);
        std::fs::File::open(&new)
            .and_then(|file| file.sync_all())
            .map_err(unwritable_file(dir))?;
        std::fs::rename(&new, &path).map_err(unwritable_file(dir))?;
        Ok(Self::connect(&path, is_on_network(dir), true)?)
    }

    /// Rebuilds the index because a query found it damaged, unless another process has done so.
    pub(super) fn rebuild(self, dir: &Path, reason: &str) -> Result<Self, Error> {
        let identity = self.identity;
        drop(self);
        let turn = lock_index(dir)?;
        let path = dir.join("index.db");
        let is_another =
            identity.is_some() && session::identity(&path).is_some_and(|now| Some(now) != identity);
        let another = is_another
            .then(|| Self::connect(&path, is_on_network(dir), false))
            .transpose();
        let again = match another {
            Ok(Some(another)) => Ok(another),
            Ok(None) => Self::replace_damaged(dir, reason),
            Err(IndexError::Damaged(reason)) => Self::replace_damaged(dir, &reason),
            Err(e) => Err(e.into()),
        };
        drop(turn);
        again
    }

    /// Opens an index file. If `known`, it has the newest format already.
    fn connect(path: &Path, network: bool, known: bool) -> Result<Self, IndexError> {
        let mut db = Connection::open(path)?;
        // The timeout is short because every session waits for the index.
        db.busy_timeout(Duration::from_millis(250))?;
        let found: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if found > migrate::INDEX_FORMAT {
            return Err(IndexError::Newer(found));
        }
        // The write-ahead log needs memory that is shared between processes, which a network file
        // system does not offer.
        let mode = if network {
            "PRAGMA journal_mode = DELETE"
        } else {
            "PRAGMA journal_mode = WAL"
        };
        let _mode: String = db.query_row(mode, [], |row| row.get(0))?;
        db.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA cache_size = -512;")?;
        if !known {
            migrate::INDEX.to_latest(&mut db).map_err(|e| match e {
                rusqlite_migration::Error::RusqliteError { err, .. } => err.into(),
                e => IndexError::Other(e.to_string()),
            })?;
        }
        Ok(Self {
            db,
            fill: None,
            identity: session::identity(path),
        })
    }

    /// Stores a session, and the number of the last message in its file.
    pub(super) fn put(&self, record: &Record, messages: i64) -> Result<(), Error> {
        let sql = format!(
            "INSERT OR REPLACE INTO session ({}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            IndexRow::COLUMNS
        );
        put_with(&self.db, &sql, record, messages)
    }

    /// Returns a session, and the number of the last message in its file.
    pub(super) fn get(&self, id: &SessionId) -> Result<Option<(Record, i64)>, Error> {
        let sql = format!("SELECT {} FROM session WHERE id = ?1", IndexRow::COLUMNS);
        let found = self
            .db
            .query_row(&sql, params![id.as_str()], IndexRow::read)
            .optional()
            .transpose();
        let line = found.map(IndexRow::checked).transpose()?;
        Ok(line.map(|line| (line.record, line.messages)))
    }

    pub(super) fn children(&self, id: &SessionId) -> Result<Vec<SessionId>, Error> {
        let sql = format!(
            "SELECT {} FROM session WHERE parent = ?1",
            IndexRow::COLUMNS
        );
        let mut query = self.db.prepare_cached(&sql).map_err(unwritable)?;
        let rows = query
            .query_map(params![id.as_str()], IndexRow::read)
            .map_err(unwritable)?;
        rows.map(|row| IndexRow::checked(row).map(|line| line.record.id))
            .collect()
    }

    pub(super) fn remove(&self, id: &SessionId) -> Result<(), Error> {
        self.db
            .execute("DELETE FROM session WHERE id = ?1", params![id.as_str()])
            .map_err(unwritable)?;
        Ok(())
    }

    /// Records that this process writes to a session, which the search index does not know yet.
    pub(super) fn mark_written(&self, id: &SessionId) -> Result<(), Error> {
        put_written(&self.db, id.as_str())
    }

    /// Records that no process writes to a session any more, and that the search index knows of the
    /// changes.
    pub(super) fn unmark_written(&self, id: &SessionId) -> Result<(), Error> {
        self.db
            .prepare_cached("DELETE FROM written_session WHERE id = ?1")
            .and_then(|mut unmark| unmark.execute([id.as_str()]))
            .map(drop)
            .map_err(unwritable)
    }

    pub(super) fn list(&self, query: &ListQuery) -> Result<SessionPage, Error> {
        let cwd = query
            .cwd
            .as_ref()
            .map(|cwd| cwd.to_string_lossy().into_owned());
        let records = match cwd {
            Some(root) if query.is_recursive => {
                // Each directory has its own order, so the newest sessions of each are read and
                // merged.
                let mut records = Vec::new();
                for directory in self.directories(&root)? {
                    records.extend(self.rows(query, Some(directory))?);
                }
                records
                    .sort_by(|one, other| (other.updated, &other.id).cmp(&(one.updated, &one.id)));
                records
            }
            cwd => self.rows(query, cwd)?,
        };
        let fill = self.fill.as_ref();
        let mut unreadable = Vec::new();
        if query.after.is_none() {
            unreadable = fill.map(|fill| fill.unreadable()).unwrap_or_default();
        }
        Ok(SessionPage {
            filling: fill.and_then(|fill| fill.filling()),
            unreadable,
            ..query.page(records)
        })
    }

    fn rows(&self, query: &ListQuery, cwd: Option<String>) -> Result<Vec<Record>, Error> {
        let sql = page(cwd.is_some(), query.archived);
        let mut page = self.db.prepare_cached(&sql).map_err(unwritable)?;
        let (updated, id) = query.start();
        let rows = page
            .query_map(params![updated, id, query.rows(), cwd], IndexRow::read)
            .map_err(unwritable)?;
        rows.map(|row| IndexRow::checked(row).map(|line| line.record))
            .collect()
    }

    /// Returns `root` and the directories below it that have sessions.
    fn directories(&self, root: &str) -> Result<Vec<String>, Error> {
        let below = format!("{}/", root.trim_end_matches('/'));
        let mut query = self.db.prepare_cached(DIRECTORIES).map_err(unwritable)?;
        let found = query
            .query_map(params![below], |row| row.get::<_, String>(0))
            .map_err(unwritable)?;
        let found = found
            .collect::<rusqlite::Result<Vec<String>>>()
            .map_err(unwritable)?;
        Ok(found
            .into_iter()
            .filter(|directory| directory != root)
            .chain([root.to_owned()])
            .collect())
    }

    /// Returns the listed sessions whose ids begin with `beginning`.
    pub(super) fn beginning_with(
        &self,
        beginning: &str,
        limit: usize,
    ) -> Result<Vec<SessionId>, Error> {
        let sql = format!(
            "SELECT {} FROM session WHERE id >= ?1 AND id < ?2 AND +parent IS NULL AND NOT {IS_EMPTY} ORDER BY id LIMIT ?3",
            IndexRow::COLUMNS
        );
        let mut query = self.db.prepare_cached(&sql).map_err(unwritable)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let end = format!("{beginning}{LAST_ID}");
        let rows = query
            .query_map(params![beginning, end, limit], IndexRow::read)
            .map_err(unwritable)?;
        rows.map(|row| IndexRow::checked(row).map(|line| line.record.id))
            .collect()
    }

    /// Returns the listed sessions that precede and follow each of these in the order of their ids.
    pub(super) fn neighbours(&self, sessions: &[SessionId]) -> Result<Vec<SessionId>, Error> {
        let mut neighbours = Vec::new();
        for (side, order) in [("<", "DESC"), (">", "ASC")] {
            let sql = format!(
                "SELECT {} FROM session WHERE id {side} ?1 AND +parent IS NULL AND NOT {IS_EMPTY} ORDER BY id {order} LIMIT 1",
                IndexRow::COLUMNS
            );
            let mut query = self.db.prepare_cached(&sql).map_err(unwritable)?;
            for id in sessions {
                let row = query
                    .query_row(params![id.as_str()], IndexRow::read)
                    .optional()
                    .map_err(unwritable)?;
                if let Some(row) = row {
                    neighbours.push(IndexRow::checked(Ok(row))?.record.id);
                }
            }
        }
        Ok(neighbours)
    }

    /// Returns the sessions that have no message according to the index, and no title of their
    /// users.
    pub(super) fn empty_sessions(&self) -> Result<Vec<Record>, Error> {
        let sql = format!("SELECT {} FROM session WHERE {IS_EMPTY}", IndexRow::COLUMNS);
        let mut query = self.db.prepare_cached(&sql).map_err(unwritable)?;
        let rows = query.query_map([], IndexRow::read).map_err(unwritable)?;
        rows.map(|row| IndexRow::checked(row).map(|line| line.record))
            .collect()
    }

    pub(super) fn grants(&self, project: Option<&str>) -> Result<Vec<Grant>, Error> {
        let sql = format!(
            "SELECT {GRANT_COLUMNS} FROM grant_ WHERE ?1 IS NULL OR project = ?1
             ORDER BY project, agent, given, permission, pattern"
        );
        let mut query = self.db.prepare_cached(&sql).map_err(unwritable)?;
        let rows = query
            .query_map(params![project], read_grant)
            .map_err(unwritable)?;
        let genuine = |row: rusqlite::Result<Option<Grant>>| {
            row.map_err(unwritable)?
                .ok_or_else(|| Error::DamagedIndex(ALTERED_ROW.into()))
        };
        rows.map(genuine).collect()
    }

    pub(super) fn revoke(&self, grant: &Grant) -> Result<(), Error> {
        self.db
            .execute(
                "DELETE FROM grant_ WHERE project = ?1 AND agent = ?2 AND permission = ?3 AND pattern = ?4",
                params![grant.project, grant.agent, grant.permission, grant.pattern],
            )
            .map_err(unwritable)?;
        Ok(())
    }

    pub(super) fn grant(&self, grant: &Grant) -> Result<(), Error> {
        let given = i64::try_from(grant.granted_at.0).unwrap_or(i64::MAX);
        self.db
            .execute(
                &format!("INSERT OR REPLACE INTO grant_ ({GRANT_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"),
                params![grant.project, grant.agent, grant.permission, grant.pattern, given, grant_crc(grant, given)],
            )
            .map_err(unwritable)?;
        Ok(())
    }
}

/// Builds the query of all listed sessions in the directory `?1`, if that is not null, and below
/// `?2`.
fn matching() -> String {
    format!(
        "SELECT id, updated FROM session WHERE +parent IS NULL AND NOT {IS_EMPTY}
         AND (?1 IS NULL OR cwd = ?1 OR substr(cwd, 1, length(?2)) = ?2)"
    )
}

/// Returns the directory of a query, and the beginning of the directories below it if these are
/// meant too.
fn directories(query: &ListQuery) -> (Option<String>, Option<String>) {
    let cwd = query
        .cwd
        .as_ref()
        .map(|cwd| cwd.to_string_lossy().into_owned());
    let mut below = None;
    if query.is_recursive {
        below = cwd
            .as_ref()
            .map(|cwd| format!("{}/", cwd.trim_end_matches('/')));
    }
    (cwd, below)
}

/// A reader of the index for other threads than the one that owns it.
pub(super) struct IndexReader(Connection);

impl IndexReader {
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(dir.join("index.db"), flags).map_err(unwritable)?;
        db.busy_timeout(Duration::from_secs(5))
            .map_err(unwritable)?;
        Ok(Self(db))
    }

    /// True if sessions may be missing, because the index was lost.
    pub(super) fn is_partial(&self) -> Result<bool, Error> {
        fill::is_partial(&self.0).map_err(unwritable)
    }

    /// Returns the sessions that a process writes to, or has written to and ended without closing.
    pub(super) fn written(&self) -> Result<HashSet<String>, Error> {
        let mut query = self
            .0
            .prepare("SELECT id FROM written_session")
            .map_err(unwritable)?;
        let ids = query.query_map([], |row| row.get(0)).map_err(unwritable)?;
        ids.collect::<rusqlite::Result<_>>().map_err(unwritable)
    }

    /// Returns the ids of the newest sessions that match a query, at most `limit` instead of its
    /// own, and the times of their last use.
    pub(super) fn listed(
        &self,
        query: &ListQuery,
        limit: usize,
    ) -> Result<Vec<(String, i64)>, Error> {
        let (cwd, below) = directories(query);
        let sql = format!("{} ORDER BY updated DESC, id DESC LIMIT ?3", matching());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut page = self.0.prepare(&sql).map_err(unwritable)?;
        let rows = page
            .query_map(params![cwd, below, limit], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .map_err(unwritable)?;
        rows.collect::<rusqlite::Result<_>>().map_err(unwritable)
    }

    /// Returns those of the sessions that match a query, like [`Self::listed`].
    pub(super) fn listed_among<'a>(
        &self,
        query: &ListQuery,
        ids: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<(String, i64)>, Error> {
        let (cwd, below) = directories(query);
        let sql = format!("{} AND id = ?3", matching());
        let mut find = self.0.prepare(&sql).map_err(unwritable)?;
        let mut listed = Vec::new();
        for id in ids {
            let row = find
                .query_row(params![cwd, below, id], |row| {
                    Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
                })
                .optional();
            listed.extend(row.map_err(unwritable)?);
        }
        listed.sort_unstable_by(|(one, used), (other, other_used)| {
            (other_used, other).cmp(&(used, one))
        });
        Ok(listed)
    }

    /// Returns the record of a session.
    pub(super) fn record(&self, id: &str) -> Result<Option<Record>, Error> {
        let sql = format!("SELECT {} FROM session WHERE id = ?1", IndexRow::COLUMNS);
        let mut query = self.0.prepare_cached(&sql).map_err(unwritable)?;
        let found = query
            .query_row(params![id], IndexRow::read)
            .optional()
            .transpose();
        Ok(found
            .map(IndexRow::checked)
            .transpose()?
            .map(|line| line.record))
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    fn filled(dir: &Path, sessions: u64) -> SessionIndex {
        let index = SessionIndex::open(dir).unwrap();
        let all = index.db.unchecked_transaction().unwrap();
        for n in 0..sessions {
            let cwd = if n % 100 == 0 {
                "/w/below"
            } else {
                "/elsewhere"
            };
            let id = SessionId::new(format!("ses_{n:08}"));
            index
                .put(&Record::new(id, cwd.into(), Timestamp(n)), 1)
                .unwrap();
        }
        all.commit().unwrap();
        index
    }

    #[test]
    fn page_query_uses_one_index() {
        let dir = tempfile::tempdir().unwrap();
        let index = SessionIndex::open(dir.path()).unwrap();
        for (in_directory, by) in [(false, "session_by_time"), (true, "session_by_cwd")] {
            let mut query = index
                .db
                .prepare(&format!(
                    "EXPLAIN QUERY PLAN {}",
                    page(in_directory, Some(false))
                ))
                .unwrap();
            let steps = query
                .query_map(params![1, "id", 100, "/w"], |row| row.get::<_, String>(3))
                .unwrap();
            let steps: Vec<String> = steps.collect::<rusqlite::Result<_>>().unwrap();
            assert!(
                steps.len() == 1 && steps[0].contains("SEARCH") && steps[0].contains(by),
                "{steps:?}"
            );
        }
    }

    #[test]
    fn directories_cost_the_same_with_more_sessions() {
        let steps = |sessions| {
            let dir = tempfile::tempdir().unwrap();
            let index = filled(dir.path(), sessions);
            assert_eq!(index.directories("/w").unwrap(), ["/w/below", "/w"]);
            assert_eq!(
                index.directories("/").unwrap(),
                ["/elsewhere", "/w/below", "/"]
            );
            assert_eq!(index.directories("/zzz").unwrap(), ["/zzz"]);
            let mut query = index.db.prepare(DIRECTORIES).unwrap();
            assert_eq!(
                query.query_map(params!["/w/"], |_| Ok(())).unwrap().count(),
                1
            );
            query.get_status(StatementStatus::VmStep)
        };
        assert_eq!(steps(100), steps(1000));
    }

    #[test]
    fn damaged_index_is_rebuilt_once_by_two_processes() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = [
            filled(dir.path(), 3),
            SessionIndex::open(dir.path()).unwrap(),
        ];
        let asides = || {
            let names = std::fs::read_dir(dir.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name());
            names
                .filter(|name| name.to_string_lossy().ends_with(".db") && name != "index.db")
                .count()
        };
        let first = first.rebuild(dir.path(), "as if").unwrap();
        let record = Record::new(SessionId::new("ses_after"), "/w".into(), Timestamp(1));
        first.put(&record, 1).unwrap();
        let second = second.rebuild(dir.path(), "as if").unwrap();
        assert_eq!(asides(), 1);
        assert_eq!(
            second.get(&record.id).unwrap().map(|(found, _)| found.id),
            Some(record.id)
        );
    }
}
