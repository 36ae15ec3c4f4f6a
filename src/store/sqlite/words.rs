//! The index over what was said, for searching: `search.db`.
//!
//! It is a cache, and says no more than which messages may have some words: what is found is looked up in the session's
//! own file. It holds the texts that a search looks at and nothing else, in lower case, and finds any part of a word of
//! three letters or more. A session counts only as long as it is current here: whoever opens a session for writing says
//! so first ([`WordIndex::mark_changed`]), and a session that somebody has open is not taken in. All others are read.
//!
//! It may be removed at any time. One that is damaged, or of another format, is made again.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::{index, session};
use crate::id::SessionId;
use crate::store::Error;

/// Its format. One of another format is no loss.
const FORMAT: i64 = 1;

/// A session's texts have numbers of their own, by which they are found; `position` is their place in the session.
const TABLES: &str = "
    CREATE TABLE session (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, updated INTEGER NOT NULL, is_current INTEGER NOT NULL,
        crc INTEGER NOT NULL);
    CREATE TABLE text (
        number INTEGER PRIMARY KEY, session INTEGER NOT NULL, position INTEGER NOT NULL, crc INTEGER NOT NULL);
    CREATE INDEX text_by_session ON text (session, position);
    CREATE VIRTUAL TABLE words USING fts5 (text, detail = none, columnsize = 0, tokenize = 'trigram case_sensitive 1');
    INSERT INTO words (words, rank) VALUES ('secure-delete', 1);";

/// How long it is waited for another process that writes into it.
const BUSY_TIMEOUT: Duration = Duration::from_millis(250);

pub(super) struct WordIndex {
    db: Connection,
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

/// A session as it is taken in.
pub(super) struct SearchedSession {
    pub(super) id: SessionId,
    pub(super) updated: i64,
    /// Its title and what was said in it, in lower case.
    pub(super) texts: Vec<String>,
}

impl WordIndex {
    /// Opens the index, if there is one.
    ///
    /// # Errors
    /// As [`Self::open_or_make`].
    pub(super) fn open(dir: &Path) -> Result<Option<Self>, Error> {
        if dir.join("search.db").is_file() { Self::open_or_make(dir).map(Some) } else { Ok(None) }
    }

    /// Opens the index, or makes it.
    ///
    /// # Errors
    /// [`Error::Unwritable`].
    pub(super) fn open_or_make(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("search.db");
        match Self::connect(&path, session::is_network(dir)) {
            Err(e) if super::is_damage(&e) => {
                tracing::warn!("the search index is damaged ({e}) and made again");
                remove(&path)?;
                Self::connect(&path, session::is_network(dir)).map_err(index::unwritable)
            }
            opened => opened.map_err(index::unwritable),
        }
    }

    fn connect(path: &Path, network: bool) -> rusqlite::Result<Self> {
        session::private_file(path).map_err(|_| rusqlite::Error::InvalidPath(path.to_owned()))?;
        let mut db = Connection::open(path)?;
        db.busy_timeout(BUSY_TIMEOUT)?;
        let mode = if network { "PRAGMA journal_mode = DELETE" } else { "PRAGMA journal_mode = WAL" };
        let _mode: String = db.query_row(mode, [], |row| row.get(0))?;
        db.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA cache_size = -2048; PRAGMA secure_delete = ON;")?;
        let format = |db: &Connection| db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
        if format(&db)? != FORMAT {
            let making = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if format(&making)? != FORMAT {
                // Nothing is lost with what another version has made.
                for table in ["words", "text", "session"] {
                    making.execute_batch(&format!("DROP TABLE IF EXISTS {table}"))?;
                }
                making.execute_batch(TABLES)?;
                making.pragma_update(None, "user_version", FORMAT)?;
            }
            making.commit()?;
        }
        Ok(Self { db, path: path.to_owned(), identity: session::identity(path) })
    }

    /// Whether this is still the index that other processes see.
    pub(super) fn is_in_place(&self) -> bool {
        self.identity.is_some() && session::identity(&self.path) == self.identity
    }

    /// Says that a session will be written to.
    pub(super) fn mark_changed(&self, id: &SessionId) -> Result<(), Error> {
        let mark = || {
            let mut known = self.db.prepare_cached("SELECT is_current FROM session WHERE id = ?1")?;
            // Asking first, because a statement that changes nothing waits for those who write all the same.
            if known
                .query_row([id.as_str()], |row| row.get::<_, i64>(0))
                .optional()?
                .is_some_and(|current| current != 0)
            {
                self.db.execute("UPDATE session SET is_current = 0 WHERE id = ?1", [id.as_str()])?;
            }
            Ok(())
        };
        mark().map_err(|e| self.failed(e))
    }

    /// Removes all that was said in a session.
    pub(super) fn remove(&mut self, id: &SessionId) -> Result<(), Error> {
        let remove = |db: &mut Connection| {
            let removing = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            const TEXTS: &str = "SELECT number FROM text WHERE session = (SELECT number FROM session WHERE id = ?1)";
            removing.execute(&format!("DELETE FROM words WHERE rowid IN ({TEXTS})"), [id.as_str()])?;
            removing.execute(&format!("DELETE FROM text WHERE number IN ({TEXTS})"), [id.as_str()])?;
            removing.execute("DELETE FROM session WHERE id = ?1", [id.as_str()])?;
            removing.commit()
        };
        remove(&mut self.db).map_err(|e| self.failed(e))
    }

    /// Returns the sessions that are current here, and when they were last used.
    pub(super) fn current(&self) -> Result<HashMap<String, i64>, Error> {
        let read = || {
            let mut query = self.db.prepare("SELECT id, updated, crc FROM session WHERE is_current = 1")?;
            let mut current = HashMap::new();
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                let (id, updated): (String, i64) = (row.get(0)?, row.get(1)?);
                if row.get::<_, i64>(2)? == session::crc(&[&id, &updated.to_string()]) {
                    current.insert(id, updated);
                }
            }
            Ok(current)
        };
        read().map_err(|e| self.failed(e))
    }

    /// Returns the sessions with a text that may have all these words; `None` if they are too short to be looked for.
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

    /// Takes in sessions as they are now. One that is open somewhere by now is left out: what is said in it from there
    /// on would be missing.
    pub(super) fn put(
        &mut self,
        sessions: &[SearchedSession],
        is_open: impl Fn(&SessionId) -> bool,
    ) -> Result<(), Error> {
        let put = |db: &mut Connection| {
            let putting = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for one in sessions.iter().filter(|one| !is_open(&one.id)) {
                put_one(&putting, one)?;
            }
            putting.commit()
        };
        put(&mut self.db).map_err(|e| self.failed(e))
    }

    /// What a failure is called. One that is damaged goes, so that it is made again.
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

/// Texts that are there already stay: a long session is taken in again for its last few.
fn put_one(db: &Connection, one: &SearchedSession) -> rusqlite::Result<()> {
    let id = one.id.as_str();
    let crc = session::crc(&[id, &one.updated.to_string()]);
    db.prepare_cached(
        "INSERT INTO session (id, updated, is_current, crc) VALUES (?1, ?2, 1, ?3)
         ON CONFLICT (id) DO UPDATE SET updated = ?2, is_current = 1, crc = ?3",
    )?
    .execute(params![id, one.updated, crc])?;
    let mut number = db.prepare_cached("SELECT number FROM session WHERE id = ?1")?;
    let number: i64 = number.query_row([id], |row| row.get(0))?;
    let mut texts = db.prepare_cached("SELECT position, number, crc FROM text WHERE session = ?1 ORDER BY position")?;
    let old = texts.query_map([number], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
    let mut old = old.collect::<rusqlite::Result<HashMap<i64, (i64, i64)>>>()?;
    for (position, text) in (0i64..).zip(&one.texts) {
        let crc = session::crc(&[text]);
        match old.remove(&position) {
            Some((_, before)) if before == crc => continue,
            Some((text, _)) => remove_text(db, text)?,
            None => {}
        }
        db.prepare_cached("INSERT INTO text (session, position, crc) VALUES (?1, ?2, ?3)")?
            .execute(params![number, position, crc])?;
        // It would end there.
        let text = text.replace('\0', " ");
        db.prepare_cached("INSERT INTO words (rowid, text) VALUES (?1, ?2)")?
            .execute(params![db.last_insert_rowid(), text])?;
    }
    old.into_values().try_for_each(|(text, _)| remove_text(db, text))
}

fn remove_text(db: &Connection, number: i64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM words WHERE rowid = ?1")?.execute([number])?;
    db.prepare_cached("DELETE FROM text WHERE number = ?1")?.execute([number])?;
    Ok(())
}

fn remove(path: &Path) -> Result<(), Error> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let removed = std::fs::remove_file(super::with_suffix(path, suffix)).or_else(session::unless_missing);
        removed.map_err(|e| Error::Unwritable(format!("{}: {e}", path.display())))?;
    }
    Ok(())
}

/// All parts of three letters that words have, as a query names them.
fn trigrams(words: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for word in words {
        let letters: Vec<char> = word.chars().collect();
        all.extend(
            letters.windows(3).map(|three| format!("\"{}\"", three.iter().collect::<String>().replace('"', "\"\""))),
        );
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(index: &mut WordIndex, id: &str, texts: &[&str]) {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        index.put(&[SearchedSession { id: SessionId::new(id), updated: 1, texts }], |_| false).unwrap();
    }

    fn with(index: &WordIndex, words: &[&str]) -> Option<Vec<String>> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let found = index.with(&words).unwrap();
        found.map(|found| {
            let mut found: Vec<String> = found.into_iter().collect();
            found.sort_unstable();
            found
        })
    }

    #[test]
    fn with_finds_parts_of_words_in_one_text() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = WordIndex::open_or_make(dir.path()).unwrap();
        put(&mut index, "ses_00000001", &["the übersicht is empty", "say \"hello\" to a\0nul"]);
        put(&mut index, "ses_00000002", &["nothing", "empty\nrooms and übersichten"]);
        let table: [(&[&str], Option<&[&str]>); 9] = [
            (&["bersich"], Some(&["ses_00000001", "ses_00000002"])),
            (&["übersicht", "is", "mpty"], Some(&["ses_00000001", "ses_00000002"])),
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
            let found: Option<Vec<&str>> = found.as_ref().map(|ids| ids.iter().map(String::as_str).collect());
            assert_eq!(found.as_deref(), expected, "{words:?}");
        }
    }

    #[test]
    fn put_again_changes_what_differs_and_remove_leaves_no_word() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = WordIndex::open_or_make(dir.path()).unwrap();
        let id = SessionId::new("ses_00000001");
        put(&mut index, id.as_str(), &["first", "second", "zebra"]);
        put(&mut index, id.as_str(), &["first", "other"]);
        let texts: i64 = index.db.query_row("SELECT count(*) FROM words", [], |row| row.get(0)).unwrap();
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
            assert!(!file.windows(word.len()).any(|part| part == word.as_bytes()), "{word}");
        }
    }

    #[test]
    fn open_damaged_or_of_another_format_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("search.db");
        std::fs::write(&path, vec![0x55; 9000]).unwrap();
        let mut index = WordIndex::open_or_make(dir.path()).unwrap();
        put(&mut index, "ses_00000001", &["first"]);
        index.db.pragma_update(None, "user_version", FORMAT + 1).unwrap();
        drop(index);
        let index = WordIndex::open(dir.path()).unwrap().unwrap();
        assert_eq!(index.current().unwrap().len(), 0);
        assert!(index.is_in_place());
        std::fs::remove_file(&path).unwrap();
        assert!(!index.is_in_place());
        assert!(WordIndex::open(dir.path()).unwrap().is_none());
    }
}
