//! The index over all sessions, and what belongs to no session. Several processes share it. It is
//! a cache of what the session files say (except for grants and sessions without a message yet):
//! when it cannot be read it is put aside and made again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use super::{Cursor, Error, Grant, Page, Record, migrate, peek, session};
use crate::environment::Timestamp;
use crate::id::SessionId;

pub(super) struct Index {
    db: Connection,
}

fn unwritable(e: rusqlite::Error) -> Error {
    match Unreadable::from(e) {
        Unreadable::Damaged(reason) => Error::DamagedIndex(reason),
        other => other.into(),
    }
}

/// Why the index cannot be used as it is.
enum Unreadable {
    Damaged(String),
    Newer(i64),
    Other(String),
}

impl From<rusqlite::Error> for Unreadable {
    fn from(e: rusqlite::Error) -> Self {
        match e.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Damaged(e.to_string()),
            _ => Self::Other(e.to_string()),
        }
    }
}

impl From<Unreadable> for Error {
    fn from(e: Unreadable) -> Self {
        match e {
            Unreadable::Newer(found) => Self::NewerIndex { found, known: migrate::INDEX_FORMAT },
            Unreadable::Damaged(reason) | Unreadable::Other(reason) => Self::Unwritable(reason),
        }
    }
}

/// Held while the index is opened or made: processes take turns.
fn turn(dir: &Path) -> Result<std::fs::File, Error> {
    let io = |e: std::io::Error| Error::Unwritable(format!("{}: {e}", dir.display()));
    let path = dir.join("index.lock");
    session::private_file(&path).map_err(io)?;
    let turn = std::fs::OpenOptions::new().append(true).open(path).map_err(io)?;
    if let Err(e) = turn.lock() {
        // A file system without locks: then nobody else can be noticed either.
        tracing::warn!("the session index cannot be locked: {e}");
    }
    Ok(turn)
}

/// A name that nothing has yet.
fn aside(dir: &Path) -> PathBuf {
    let name = |n: u32| dir.join(format!("index.damaged-{n}.db"));
    (1..).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(0))
}

impl Index {
    /// Opens the index, or makes it. Processes that start at the same time take turns.
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        let io = |e: std::io::Error| Error::Unwritable(format!("{}: {e}", dir.display()));
        crate::environment::private_dir(dir).map_err(io)?;
        let _turn = turn(dir)?;
        let path = dir.join("index.db");
        let fresh = !path.exists();
        session::private_file(&path).map_err(io)?;
        match Self::connect(&path, session::is_network(dir)) {
            Ok(index) => {
                if fresh {
                    index.rebuild(dir);
                }
                Ok(index)
            }
            Err(Unreadable::Damaged(reason)) => Self::anew(dir, &reason),
            Err(other) => Err(other.into()),
        }
    }

    /// Puts a damaged index aside and makes another from the session files. What the user granted
    /// stands nowhere else: what can be read of that is taken along.
    fn anew(dir: &Path, reason: &str) -> Result<Self, Error> {
        let io = |e: std::io::Error| Error::Unwritable(format!("{}: {e}", dir.display()));
        let (path, aside) = (dir.join("index.db"), aside(dir));
        tracing::warn!("the session index is damaged ({reason}); kept as {} and made again", aside.display());
        std::fs::rename(&path, &aside).map_err(io)?;
        for suffix in ["-wal", "-shm"] {
            // Left beside the new file they would damage that one; mostly there are none.
            std::fs::rename(super::with_suffix(&path, suffix), super::with_suffix(&aside, suffix)).ok();
        }
        session::private_file(&path).map_err(io)?;
        let index = Self::connect(&path, session::is_network(dir)).map_err(Error::from)?;
        let old = Connection::open(&aside).map(|db| Self { db });
        for grant in old.map(|old| old.grants(None).unwrap_or_default()).unwrap_or_default() {
            index.grant(&grant)?;
        }
        index.rebuild(dir);
        Ok(index)
    }

    /// Makes the index again because a query found it damaged.
    pub(super) fn again(self, dir: &Path, reason: &str) -> Result<Self, Error> {
        drop(self);
        let turn = turn(dir)?;
        let again = Self::anew(dir, reason);
        drop(turn);
        again
    }

    fn connect(path: &Path, network: bool) -> Result<Self, Unreadable> {
        let mut db = Connection::open(path)?;
        // Short: every session waits behind this one.
        db.busy_timeout(Duration::from_millis(250))?;
        let found: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if found > migrate::INDEX_FORMAT {
            return Err(Unreadable::Newer(found));
        }
        // The log needs memory shared between processes, which there is none of on a network.
        let mode = if network { "PRAGMA journal_mode = DELETE" } else { "PRAGMA journal_mode = WAL" };
        let _mode: String = db.query_row(mode, [], |row| row.get(0))?;
        db.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA cache_size = -512;")?;
        migrate::INDEX.to_latest(&mut db).map_err(|e| match e {
            rusqlite_migration::Error::RusqliteError { err, .. } => err.into(),
            e => Unreadable::Other(e.to_string()),
        })?;
        Ok(Self { db })
    }

    /// Reads every session file.
    fn rebuild(&self, dir: &Path) {
        let Ok(files) = std::fs::read_dir(dir.join("sessions")) else {
            return;
        };
        for file in files.flatten() {
            let path = file.path();
            if path.extension().is_some_and(|e| e == "db")
                && let Some(record) = peek::record(dir, &path)
                && let Err(e) = self.put(&record)
            {
                tracing::warn!("session {} is not in the index: {e}", record.id);
            }
        }
    }

    pub(super) fn put(&self, record: &Record) -> Result<(), Error> {
        let json = serde_json::to_string(record).unwrap_or_default();
        let parent = record.parent.as_ref().map(SessionId::as_str);
        let cwd = record.cwd.to_string_lossy();
        let updated = i64::try_from(record.updated.0).unwrap_or(i64::MAX);
        let mut put = self
            .db
            .prepare_cached(
                "INSERT OR REPLACE INTO session (id, cwd, parent, updated, data) VALUES (?1, ?2, ?3, ?4, ?5)",
            )
            .map_err(unwritable)?;
        put.execute(params![record.id.as_str(), cwd, parent, updated, json]).map_err(unwritable)?;
        Ok(())
    }

    pub(super) fn get(&self, id: &SessionId) -> Result<Option<Record>, Error> {
        let json = self
            .db
            .query_row("SELECT data FROM session WHERE id = ?1", params![id.as_str()], |row| row.get::<_, String>(0))
            .optional()
            .map_err(unwritable)?;
        Ok(json.and_then(|json| serde_json::from_str(&json).ok()))
    }

    pub(super) fn children(&self, id: &SessionId) -> Result<Vec<SessionId>, Error> {
        let mut query = self.db.prepare_cached("SELECT id FROM session WHERE parent = ?1").map_err(unwritable)?;
        let rows = query.query_map(params![id.as_str()], |row| row.get::<_, String>(0)).map_err(unwritable)?;
        rows.map(|id| id.map(SessionId::new).map_err(unwritable)).collect()
    }

    pub(super) fn remove(&self, id: &SessionId) -> Result<(), Error> {
        self.db.execute("DELETE FROM session WHERE id = ?1", params![id.as_str()]).map_err(unwritable)?;
        Ok(())
    }

    pub(super) fn list(&self, cwd: Option<&Path>, after: Option<&Cursor>, limit: usize) -> Result<Page, Error> {
        let (updated, id) = match after {
            Some(cursor) => (i64::try_from(cursor.updated.0).unwrap_or(i64::MAX), cursor.id.as_str().to_owned()),
            // Greater than any id.
            None => (i64::MAX, "\u{10ffff}".to_owned()),
        };
        let place = if cwd.is_some() { "cwd = ?4 AND" } else { "?4 IS NULL AND" };
        let sql = format!(
            "SELECT data FROM session WHERE {place} parent IS NULL AND (updated < ?1 OR (updated = ?1 AND id < ?2))
             ORDER BY updated DESC, id DESC LIMIT ?3"
        );
        let mut query = self.db.prepare_cached(&sql).map_err(unwritable)?;
        let more = i64::try_from(limit).unwrap_or(i64::MAX - 1) + 1;
        let cwd = cwd.map(|cwd| cwd.to_string_lossy().into_owned());
        let rows =
            query.query_map(params![updated, id, more, cwd], |row| row.get::<_, String>(0)).map_err(unwritable)?;
        let mut sessions = Vec::new();
        for json in rows {
            if let Ok(record) = serde_json::from_str::<Record>(&json.map_err(unwritable)?) {
                sessions.push(record);
            }
        }
        let next = (sessions.len() > limit).then(|| sessions.truncate(limit)).and_then(|()| sessions.last());
        let next = next.map(|last| Cursor { updated: last.updated, id: last.id.clone() });
        Ok(Page { sessions, next })
    }

    pub(super) fn grants(&self, project: Option<&str>) -> Result<Vec<Grant>, Error> {
        let mut query = self
            .db
            .prepare_cached(
                "SELECT project, agent, permission, pattern, given FROM grant_ WHERE ?1 IS NULL OR project = ?1
                 ORDER BY project, agent, given, permission, pattern",
            )
            .map_err(unwritable)?;
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Grant {
                project: row.get(0)?,
                agent: row.get(1)?,
                permission: row.get(2)?,
                pattern: row.get(3)?,
                given: Timestamp(u64::try_from(row.get::<_, i64>(4)?).unwrap_or_default()),
            })
        };
        let rows = query.query_map(params![project], read).map_err(unwritable)?;
        rows.map(|grant| grant.map_err(unwritable)).collect()
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
        let given = i64::try_from(grant.given.0).unwrap_or(i64::MAX);
        self.db
            .execute(
                "INSERT OR REPLACE INTO grant_ (project, agent, permission, pattern, given) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![grant.project, grant.agent, grant.permission, grant.pattern, given],
            )
            .map_err(unwritable)?;
        Ok(())
    }
}
