//! The full-text index of messages: `search.db`.
//!
//! It is a cache, and only yields the sessions that may contain some words; the hits are determined
//! from the session's own file. It contains the searchable texts only, in lower case, and finds any
//! part of a word of three letters or more. A session's entry is valid only while it is current and
//! no process has the session open: a process that has opened a session marks it as changed before
//! it closes it ([`SearchIndex::mark_changed`]), and an open session does not become current. Once the
//! index has an entry for each session, a search need not compare it with the list of all sessions.
//!
//! It can be deleted at any time. If it is damaged or has another format, it is rebuilt.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::{index_rows as index, session};
use crate::Error;
use base::file::is_on_network;
use base::id::SessionId;

/// The format. An index of another format is discarded.
const FORMAT: i64 = 2;

/// The tables. Texts have numbers of their own, by which they are found; `position` is a text's
/// position in the session.
const TABLES: &str = "
    CREATE TABLE session (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, updated INTEGER NOT NULL DEFAULT 0,
        is_current INTEGER NOT NULL DEFAULT 0, changes INTEGER NOT NULL DEFAULT 0, crc INTEGER NOT NULL DEFAULT 0);
    CREATE INDEX outdated_session ON session (id) WHERE is_current = 0;
    CREATE TABLE text (
        number INTEGER PRIMARY KEY, session INTEGER NOT NULL, position INTEGER NOT NULL, crc INTEGER NOT NULL);
    CREATE INDEX text_by_session ON text (session, position);
    CREATE VIRTUAL TABLE words USING fts5 (text, detail = none, columnsize = 0, tokenize = 'trigram case_sensitive 1');
    INSERT INTO words (words, rank) VALUES ('secure-delete', 1);";

/// A number in the header of the file that is free for applications: 1 once the index has an entry
/// for each session, current or outdated.
const COMPLETE: &str = "application_id";

/// The time to wait for another process that writes to it.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes a session outdated, and adds it if the index lacks it.
const MAKE_OUTDATED: &str =
    "INSERT INTO session (id) VALUES (?1) ON CONFLICT (id) DO UPDATE SET is_current = 0";

/// The number of sessions that become outdated in one transaction, for which others wait.
const OUTDATED_PER_TRANSACTION: usize = 1024;

/// The approximate size of one transaction, in bytes of text.
const TRANSACTION_BYTES: usize = 128 << 10;

pub(super) struct SearchIndex {
    db: Connection,
    /// The directory of the store.
    dir: PathBuf,
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

/// A session that is to be indexed.
pub(super) struct SearchedSession {
    pub(super) id: SessionId,
    pub(super) updated: i64,
    /// The value of [`SearchIndex::changes`] before the session was read.
    pub(super) changes: i64,
    /// The title and the messages, in lower case.
    pub(super) texts: Vec<String>,
}

impl SearchIndex {
    /// Opens the index, if there is one.
    ///
    /// # Errors
    /// See [`Self::open_or_make`].
    pub(super) fn open(dir: &Path) -> Result<Option<Self>, Error> {
        if dir.join("search.db").is_file() {
            Self::open_or_make(dir).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Opens the index, or creates it.
    ///
    /// # Errors
    /// Returns [`Error::Unwritable`].
    pub(super) fn open_or_make(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("search.db");
        match Self::connect(dir, &path) {
            Err(e) if super::is_damage(&e) => {
                tracing::warn!("the search index is damaged ({e}) and made again");
                remove(&path)?;
                Self::connect(dir, &path).map_err(index::unwritable)
            }
            opened => opened.map_err(index::unwritable),
        }
    }

    fn connect(dir: &Path, path: &Path) -> rusqlite::Result<Self> {
        let network = is_on_network(dir);
        session::private_file(path).map_err(|_| rusqlite::Error::InvalidPath(path.to_owned()))?;
        let mut db = Connection::open(path)?;
        db.busy_timeout(BUSY_TIMEOUT)?;
        let mode = if network {
            "PRAGMA journal_mode = DELETE"
        } else {
            "PRAGMA journal_mode = WAL"
        };
        let _mode: String = db.query_row(mode, [], |row| row.get(0))?;
        db.execute_batch(
            "PRAGMA synchronous = NORMAL; PRAGMA cache_size = -2048; PRAGMA secure_delete = ON;",
        )?;
        let format = |db: &Connection| {
            db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))
        };
        if format(&db)? != FORMAT {
            let making = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if format(&making)? != FORMAT {
                // The index is a cache, so the tables of another version can be dropped.
                for table in ["words", "text", "session"] {
                    making.execute_batch(&format!("DROP TABLE IF EXISTS {table}"))?;
                }
                making.execute_batch(TABLES)?;
                making.pragma_update(None, COMPLETE, 0)?;
                making.pragma_update(None, "user_version", FORMAT)?;
            }
            making.commit()?;
        }
        Ok(Self {
            db,
            dir: dir.to_owned(),
            path: path.to_owned(),
            identity: session::identity(path),
        })
    }

    /// True if other processes see the same index file.
    pub(super) fn is_in_place(&self) -> bool {
        self.identity.is_some() && session::identity(&self.path) == self.identity
    }

    /// Marks a session as changed. No other process may open it until this has returned.
    pub(super) fn mark_changed(&self, id: &SessionId) -> Result<(), Error> {
        let sql = "INSERT INTO session (id, changes) VALUES (?1, 1)
            ON CONFLICT (id) DO UPDATE SET is_current = 0, changes = changes + 1";
        let marked = self
            .db
            .prepare_cached(sql)
            .and_then(|mut mark| mark.execute([id.as_str()]));
        marked.map(drop).map_err(|e| self.failed(e))
    }

    /// Returns the number of times that a session was marked as changed.
    pub(super) fn changes(&self, id: &SessionId) -> Result<i64, Error> {
        let sql = "SELECT changes FROM session WHERE id = ?1";
        let found = self
            .db
            .prepare_cached(sql)
            .and_then(|mut known| known.query_row([id.as_str()], |row| row.get(0)).optional());
        found
            .map(Option::unwrap_or_default)
            .map_err(|e| self.failed(e))
    }

    /// Removes the texts of a session.
    pub(super) fn remove(&self, id: &SessionId) -> Result<(), Error> {
        let remove = || {
            let batch = WriteBatch::begin(&self.db)?;
            remove_session(&self.db, id)?;
            batch.end()
        };
        remove().map_err(|e| self.failed(e))?;
        // Deleted texts must disappear from the log too; if other processes are reading, a later
        // checkpoint does that.
        self.db
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .ok();
        Ok(())
    }

    /// Removes the sessions that have no file any more.
    pub(super) fn remove_gone(&self) -> Result<(), Error> {
        let ids = || {
            let mut query = self.db.prepare("SELECT id FROM session")?;
            let ids = query.query_map([], |row| row.get::<_, String>(0))?;
            ids.collect::<rusqlite::Result<Vec<String>>>()
        };
        let ids = ids().map_err(|e| self.failed(e))?;
        for id in ids.into_iter().map(SessionId::new) {
            if !session::path(&self.dir, &id).exists() && !is_open(&self.dir, &id) {
                self.remove(&id)?;
            }
        }
        Ok(())
    }

    /// Calls a function whose queries see the index as it is at one moment. Otherwise a session
    /// that is indexed between two queries would be current for one of them, and have none of its
    /// later words for the other.
    pub(super) fn read<T>(&self, query: impl Fn(&Self) -> Result<T, Error>) -> Result<T, Error> {
        let snapshot = self.db.unchecked_transaction();
        let snapshot = snapshot.map_err(|e| self.failed(e))?;
        let answer = query(self)?;
        snapshot.finish().map_err(|e| self.failed(e))?;
        Ok(answer)
    }

    /// Returns the current sessions and the times of their last use.
    pub(super) fn current(&self) -> Result<HashMap<String, i64>, Error> {
        let read = || {
            let mut query = self
                .db
                .prepare("SELECT id, updated, crc FROM session WHERE is_current = 1")?;
            let mut current = HashMap::new();
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let id: String = row.get(0)?;
                let updated: i64 = row.get(1)?;
                if row.get::<_, i64>(2)? == session::crc(&[&id, &updated.to_string()]) {
                    current.insert(id, updated);
                }
            }
            Ok(current)
        };
        read().map_err(|e| self.failed(e))
    }

    /// Returns the sessions whose texts may have changed since they were indexed; `None` if the
    /// index lacks sessions, because it is new.
    pub(super) fn outdated(&self) -> Result<Option<HashSet<String>>, Error> {
        let read = || {
            if !self.is_complete()? {
                return Ok(None);
            }
            let mut query = self
                .db
                .prepare("SELECT id FROM session WHERE is_current = 0")?;
            let ids = query.query_map([], |row| row.get::<_, String>(0))?;
            ids.collect::<rusqlite::Result<_>>().map(Some)
        };
        read().map_err(|e| self.failed(e))
    }

    fn is_complete(&self) -> rusqlite::Result<bool> {
        self.db
            .pragma_query_value(None, COMPLETE, |row| row.get::<_, i64>(0))
            .map(|complete| complete != 0)
    }

    /// Makes sessions outdated, and adds those that the index lacks.
    pub(super) fn add_outdated(&self, ids: &[&str]) -> Result<(), Error> {
        let add = || {
            for ids in ids.chunks(OUTDATED_PER_TRANSACTION) {
                let batch = WriteBatch::begin(&self.db)?;
                let mut add = self.db.prepare_cached(MAKE_OUTDATED)?;
                for id in ids {
                    add.execute([id])?;
                }
                batch.end()?;
            }
            Ok(())
        };
        add().map_err(|e| self.failed(e))
    }

    /// Records that the index has an entry for each session.
    pub(super) fn mark_complete(&self) -> Result<(), Error> {
        self.db
            .pragma_update(None, COMPLETE, 1)
            .map_err(|e| self.failed(e))
    }

    /// Returns the sessions with a text that may have all the words; `None` if they are too short
    /// for the index.
    pub(super) fn with(&self, words: &[String]) -> Result<Option<HashSet<String>>, Error> {
        let wanted = trigrams(words);
        if wanted.is_empty() {
            return Ok(None);
        }
        let read = || {
            let mut query = self.db.prepare(
                "SELECT DISTINCT session.id FROM words JOIN text ON text.number = words.rowid
                 JOIN session ON session.number = text.session WHERE words MATCH ?1",
            )?;
            let found = query.query_map([wanted.join(" AND ")], |row| row.get::<_, String>(0))?;
            found.collect::<rusqlite::Result<HashSet<String>>>()
        };
        read().map(Some).map_err(|e| self.failed(e))
    }

    /// True if more than `texts` texts may have all the words.
    pub(super) fn is_frequent(&self, words: &[String], texts: i64) -> Result<bool, Error> {
        let wanted = trigrams(words);
        if wanted.is_empty() {
            return Ok(false);
        }
        let read = || {
            let mut query = self
                .db
                .prepare("SELECT rowid FROM words WHERE words MATCH ?1 LIMIT 1 OFFSET ?2")?;
            query.exists(params![wanted.join(" AND "), texts])
        };
        read().map_err(|e| self.failed(e))
    }

    /// Adds sessions. A session that is open by now, or has been opened since it was read, does not
    /// become current, because later messages would be missing. Calls `pause` between transactions,
    /// with the duration of the last one.
    pub(super) fn put(
        &self,
        sessions: &[SearchedSession],
        pause: &dyn Fn(Duration),
    ) -> Result<(), Error> {
        let put = || {
            let mut batch = WriteBatch::begin(&self.db)?;
            for session in sessions
                .iter()
                .filter(|session| !is_open(&self.dir, &session.id))
            {
                put_texts(&mut batch, session, pause)?;
                if !session::path(&self.dir, &session.id).exists() {
                    remove_session(&self.db, &session.id)?;
                } else if !is_open(&self.dir, &session.id) {
                    let crc = session::crc(&[session.id.as_str(), &session.updated.to_string()]);
                    let sql = "UPDATE session SET is_current = 1, updated = ?2, crc = ?3 WHERE id = ?1 AND changes = ?4";
                    self.db.prepare_cached(sql)?.execute(params![
                        session.id.as_str(),
                        session.updated,
                        crc,
                        session.changes
                    ])?;
                }
            }
            batch.end()
        };
        put().map_err(|e| self.failed(e))
    }

    /// Converts an error. A damaged index is removed, so that it is rebuilt.
    fn failed(&self, e: rusqlite::Error) -> Error {
        if super::is_damage(&e)
            && self.is_in_place()
            && let Err(e) = remove(&self.path)
        {
            tracing::warn!("the damaged search index stays: {e}");
        }
        index::unwritable(e)
    }
}

/// A sequence of transactions that are so small that a process that marks a session as changed
/// hardly waits.
struct WriteBatch<'a> {
    db: &'a Connection,
    bytes: usize,
    began: Instant,
}

impl<'a> WriteBatch<'a> {
    fn begin(db: &'a Connection) -> rusqlite::Result<Self> {
        db.execute_batch("BEGIN IMMEDIATE")?;
        Ok(Self {
            db,
            bytes: 0,
            began: Instant::now(),
        })
    }

    /// Counts written bytes, and starts a new transaction if there are enough. Returns true if it
    /// did, so that others may have written in between.
    fn wrote(&mut self, bytes: usize, pause: &dyn Fn(Duration)) -> rusqlite::Result<bool> {
        self.bytes += bytes;
        let is_over = self.bytes >= TRANSACTION_BYTES;
        if is_over {
            self.db.execute_batch("COMMIT")?;
            pause(self.began.elapsed());
            self.db.execute_batch("BEGIN IMMEDIATE")?;
            self.bytes = 0;
            self.began = Instant::now();
        }
        Ok(is_over)
    }

    fn end(self) -> rusqlite::Result<()> {
        self.db.execute_batch("COMMIT")
    }
}

impl Drop for WriteBatch<'_> {
    fn drop(&mut self) {
        if !self.db.is_autocommit() {
            // If that fails, closing the database rolls back.
            self.db.execute_batch("ROLLBACK").ok();
        }
    }
}

/// Writes the texts of a session, which becomes current only after all of them. Unchanged texts are
/// left in place, because a long session is indexed again for its last few.
fn put_texts(
    batch: &mut WriteBatch<'_>,
    session: &SearchedSession,
    pause: &dyn Fn(Duration),
) -> rusqlite::Result<()> {
    let db = batch.db;
    let id = session.id.as_str();
    db.prepare_cached(MAKE_OUTDATED)?.execute([id])?;
    let mut numbered = db.prepare_cached("SELECT number FROM session WHERE id = ?1")?;
    let number: i64 = numbered.query_row([id], |row| row.get(0))?;
    let mut texts = db.prepare_cached(
        "SELECT position, number, crc FROM text WHERE session = ?1 ORDER BY position",
    )?;
    let old = texts.query_map([number], |row| {
        Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))
    })?;
    let mut old = old.collect::<rusqlite::Result<HashMap<i64, (i64, i64)>>>()?;
    for (position, text) in (0i64..).zip(&session.texts) {
        let crc = session::crc(&[text]);
        match old.remove(&position) {
            Some((_, before)) if before == crc => continue,
            Some((text, _)) => remove_text(db, text)?,
            None => {}
        }
        db.prepare_cached("INSERT INTO text (session, position, crc) VALUES (?1, ?2, ?3)")?
            .execute(params![number, position, crc])?;
        // The text would end at a NUL.
        let words = text.replace('\0', " ");
        db.prepare_cached("INSERT INTO words (rowid, text) VALUES (?1, ?2)")?
            .execute(params![db.last_insert_rowid(), words])?;
        if batch.wrote(text.len(), pause)?
            && numbered.query_row([id], |row| row.get(0)).optional()? != Some(number)
        {
            // The session was deleted in the meantime, with all its texts so far.
            return Ok(());
        }
    }
    old.into_values()
        .try_for_each(|(text, _)| remove_text(db, text))
}

fn remove_session(db: &Connection, id: &SessionId) -> rusqlite::Result<()> {
    const TEXTS: &str =
        "SELECT number FROM text WHERE session = (SELECT number FROM session WHERE id = ?1)";
    db.execute(
        &format!("DELETE FROM words WHERE rowid IN ({TEXTS})"),
        [id.as_str()],
    )?;
    db.execute(
        &format!("DELETE FROM text WHERE number IN ({TEXTS})"),
        [id.as_str()],
    )?;
    db.execute("DELETE FROM session WHERE id = ?1", [id.as_str()])
        .map(drop)
}

fn remove_text(db: &Connection, number: i64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM words WHERE rowid = ?1")?
        .execute([number])?;
    db.prepare_cached("DELETE FROM text WHERE number = ?1")?
        .execute([number])?;
    Ok(())
}

/// True if a process has a session open, or has ended without closing it.
pub(super) fn is_open(dir: &Path, id: &SessionId) -> bool {
    let lock = session::path(dir, id).with_extension("lock");
    lock.exists() || lock.with_extension("held").exists()
}

/// Deletes the index.
pub(super) fn discard(dir: &Path) -> Result<(), Error> {
    remove(&dir.join("search.db"))
}

fn remove(path: &Path) -> Result<(), Error> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let removed =
            std::fs::remove_file(super::with_suffix(path, suffix)).or_else(session::unless_missing);
        removed.map_err(|e| Error::Unwritable(format!("{}: {e}", path.display())))?;
    }
    Ok(())
}

/// Returns the trigrams of words, quoted for a query.
fn trigrams(words: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for word in words {
        let letters: Vec<char> = word.chars().collect();
        all.extend(letters.windows(3).map(|three| {
            format!(
                "\"{}\"",
                three.iter().collect::<String>().replace('"', "\"\"")
            )
        }));
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(index: &SearchIndex, id: &str, texts: &[&str]) {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let id = SessionId::new(id);
        let file = session::path(&index.dir, &id);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "").unwrap();
        let changes = index.changes(&id).unwrap();
        index
            .put(
                &[SearchedSession {
                    id,
                    updated: 1,
                    changes,
                    texts,
                }],
                &|_| {},
            )
            .unwrap();
    }

    fn with(index: &SearchIndex, words: &[&str]) -> Option<Vec<String>> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let found = index.with(&words).unwrap();
        found.map(|found| {
            let mut found: Vec<String> = found.into_iter().collect();
            found.sort_unstable();
            found
        })
    }

    #[test]
    fn read_does_not_see_what_is_indexed_between_its_queries() {
        let dir = tempfile::tempdir().unwrap();
        let index = SearchIndex::open_or_make(dir.path()).unwrap();
        let indexer = SearchIndex::open(dir.path()).unwrap().unwrap();
        let yak = ["yak".to_owned()];
        let ask = || {
            let with = index.with(&yak)?.unwrap_or_default();
            put(&indexer, "ses_1", &["a yak"]);
            Ok((with.len(), index.current()?.len(), index.with(&yak)?))
        };
        assert_eq!(index.read(|_| ask()).unwrap(), (0, 0, Some(HashSet::new())));
        assert_eq!(
            index.read(|_| ask()).unwrap(),
            (1, 1, Some(HashSet::from(["ses_1".to_owned()])))
        );
    }

    #[test]
    fn with_finds_parts_of_words_in_one_text() {
        let dir = tempfile::tempdir().unwrap();
        let index = SearchIndex::open_or_make(dir.path()).unwrap();
        put(
            &index,
            "ses_00000001",
            &["the übersicht is empty", "say \"hello\" to a\0nul"],
        );
        put(
            &index,
            "ses_00000002",
            &["nothing", "empty\nrooms and übersichten"],
        );
        let table: [(&[&str], Option<&[&str]>); 9] = [
            (&["bersich"], Some(&["ses_00000001", "ses_00000002"])),
            (
                &["übersicht", "is", "mpty"],
                Some(&["ses_00000001", "ses_00000002"]),
            ),
            (&["übersicht", "nothing"], Some(&[])),
            (&["rooms"], Some(&["ses_00000002"])),
            (&["\"hello\""], Some(&["ses_00000001"])),
            (&["nul"], Some(&["ses_00000001"])),
            (&["or", "and"], Some(&["ses_00000002"])),
            (&["is", "a"], None),
            (&["none*"], Some(&[])),
        ];
        for (words, expected) in table {
            let found = with(&index, words);
            let found: Option<Vec<&str>> = found
                .as_ref()
                .map(|ids| ids.iter().map(String::as_str).collect());
            assert_eq!(found.as_deref(), expected, "{words:?}");
        }
    }

    #[test]
    fn put_again_updates_differences_and_remove_leaves_no_word() {
        let dir = tempfile::tempdir().unwrap();
        let index = SearchIndex::open_or_make(dir.path()).unwrap();
        let id = SessionId::new("ses_00000001");
        put(&index, id.as_str(), &["first", "second", "zebra"]);
        put(&index, id.as_str(), &["first", "other"]);
        let texts: i64 = index
            .db
            .query_row("SELECT count(*) FROM words", [], |row| row.get(0))
            .unwrap();
        assert_eq!(texts, 2);
        assert_eq!(with(&index, &["second"]), Some(vec![]));
        assert_eq!(with(&index, &["other"]), Some(vec![id.to_string()]));
        assert_eq!(index.current().unwrap().len(), 1);
        index.mark_changed(&id).unwrap();
        assert_eq!(index.current().unwrap().len(), 0);
        index.remove(&id).unwrap();
        assert_eq!(with(&index, &["first"]), Some(vec![]));
        drop(index);
        let file = std::fs::read(dir.path().join("search.db")).unwrap();
        for word in ["first", "second", "zebra", "zeb", "bra"] {
            assert!(
                !file.windows(word.len()).any(|part| part == word.as_bytes()),
                "{word}"
            );
        }
    }

    #[test]
    fn put_leaves_out_open_deleted_and_changed_sessions() {
        let dir = tempfile::tempdir().unwrap();
        let index = SearchIndex::open_or_make(dir.path()).unwrap();
        put(&index, "ses_00000001", &["horse"]);
        let id = SessionId::new("ses_00000001");
        let texts = (0..5)
            .map(|n| format!("{n} zebra").repeat(TRANSACTION_BYTES / 8))
            .collect();
        let mut large = SearchedSession {
            id: id.clone(),
            updated: 1,
            changes: 0,
            texts,
        };
        let pauses = std::cell::Cell::new(0);
        let other = SearchIndex::open_or_make(dir.path()).unwrap();
        let pause = |_: Duration| {
            pauses.set(pauses.get() + 1);
            // A process that closes another session can mark it as changed.
            other.db.execute_batch("BEGIN IMMEDIATE; COMMIT").unwrap();
            assert_eq!(other.current().unwrap().len(), 0);
        };
        // It was opened and closed after it was read.
        other.mark_changed(&id).unwrap();
        index.put(std::slice::from_ref(&large), &pause).unwrap();
        assert!(pauses.get() >= 2, "{}", pauses.get());
        assert_eq!(index.current().unwrap().len(), 0);
        large.changes = 1;
        let lock = session::path(dir.path(), &id).with_extension("lock");
        std::fs::write(&lock, "").unwrap();
        index.put(std::slice::from_ref(&large), &pause).unwrap();
        assert_eq!(index.current().unwrap().len(), 0);
        std::fs::remove_file(lock).unwrap();
        index.put(std::slice::from_ref(&large), &pause).unwrap();
        assert_eq!(index.current().unwrap().len(), 1);
        assert_eq!(with(&index, &["zebra"]), Some(vec![id.to_string()]));
        // It was deleted after it was read.
        std::fs::remove_file(session::path(dir.path(), &id)).unwrap();
        index.put(std::slice::from_ref(&large), &pause).unwrap();
        assert_eq!(with(&index, &["zebra"]), Some(vec![]));
    }

    #[test]
    fn open_rebuilds_damaged_index_and_other_format() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("search.db");
        std::fs::write(&path, vec![0x55; 9000]).unwrap();
        let index = SearchIndex::open_or_make(dir.path()).unwrap();
        put(&index, "ses_00000001", &["first"]);
        index
            .db
            .pragma_update(None, "user_version", FORMAT + 1)
            .unwrap();
        drop(index);
        let index = SearchIndex::open(dir.path()).unwrap().unwrap();
        assert_eq!(index.current().unwrap().len(), 0);
        assert!(index.is_in_place());
        std::fs::remove_file(&path).unwrap();
        assert!(!index.is_in_place());
        assert!(SearchIndex::open(dir.path()).unwrap().is_none());
    }
}
