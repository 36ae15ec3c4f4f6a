//! Completion of the index, while it is in use.
//!
//! An index may lack sessions, because it was lost or because a file was added to the directory of
//! sessions. It may also have damage that no query for a page encounters. Both are found by a full
//! scan, which takes seconds if there are many sessions, so a thread with its own connection does
//! it, and later queries see the result. A small index is scanned at once, within a few
//! milliseconds. A scan that finds nothing missing is not reported as progress.
//!
//! The scan begins with the names of the session files, for which a search waits. It is skipped if
//! no name has been added or removed since the last one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};

use super::index_rows::{self as index, IS_EMPTY};
use super::lock::Lock;
use super::search_index::{self, SearchIndex};
use super::{peek, session};
use crate::{Error, ListFilling};
use base::file::is_on_network;
use base::lock::lock;

/// The limits up to which an index is scanned completely before its first query: its size in bytes,
/// the number of session files, and the number of unknown ones among them.
const SMALL_INDEX_BYTES: u64 = 256 << 10;
const MAX_SMALL_FILES: usize = 1024;
const MAX_FEW_UNKNOWN: usize = 64;

/// The number of sessions that are added per transaction. Other writers wait for it.
const CHUNK: usize = 64;

/// The time that the thread waits for other writers of the index.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The minimum age of the last change of the directory, for which later changes have another time:
/// file systems round the times.
const MIN_AGE_OF_CHANGE: Duration = Duration::from_secs(2);

/// A function to call when a part of the scan is over.
type Callback = Box<dyn FnOnce() + Send>;

/// A part of the scan, with the functions to call when it is over; `None` after it.
struct Phase(Mutex<Option<Vec<Callback>>>);

impl Phase {
    fn new() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }

    fn is_over(&self) -> bool {
        lock(&self.0).is_none()
    }

    /// Calls `call` when the phase is over, or now if it is.
    fn when_over(&self, call: impl FnOnce() + Send + 'static) {
        if let Some(waiting) = lock(&self.0).as_mut() {
            return waiting.push(Box::new(call));
        }
        call();
    }

    fn end(&self) {
        let waiting = lock(&self.0).take();
        waiting.into_iter().flatten().for_each(|call| call());
    }
}

/// The progress of completing an index.
pub(super) struct IndexFill {
    /// The reason to rebuild the index.
    damage: OnceLock<String>,
    /// The comparison with the names of the files, and the addition of the missing sessions.
    survey: Phase,
    /// The whole scan.
    scan: Phase,
    /// True if sessions are known to be missing. Otherwise the scan only checks for that.
    is_partial: AtomicBool,
    /// The number of sessions that were missing, and of those of them that have been added.
    unknown: AtomicUsize,
    taken: AtomicUsize,
    /// The session files that cannot be identified.
    unreadable: Mutex<Vec<PathBuf>>,
}

impl IndexFill {
    /// Starts to complete an index; a small one is complete when this returns.
    ///
    /// # Errors
    /// Returns [`Error::DamagedIndex`].
    pub(super) fn begin(db: &mut Connection, dir: &Path) -> Result<Arc<Self>, Error> {
        let fill = Arc::new(Self {
            damage: OnceLock::new(),
            survey: Phase::new(),
            scan: Phase::new(),
            is_partial: AtomicBool::new(is_partial(db).map_err(index::unwritable)?),
            unknown: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            unreadable: Mutex::default(),
        });
        if is_small(dir) {
            if let Some(damage) = index::damage(db).map_err(index::unwritable)? {
                return Err(Error::DamagedIndex(damage));
            }
            match fill.add_few(db, dir) {
                Err(damaged @ Error::DamagedIndex(_)) => return Err(damaged),
                Ok(false) => {}
                other => {
                    if let Err(e) = other {
                        tracing::warn!("the session index may not know all sessions: {e}");
                    }
                    fill.end();
                    return Ok(fill);
                }
            }
        } else if !fill.is_partial.load(Ordering::Relaxed)
            && is_surveyed(db, dir).map_err(index::unwritable)?
        {
            fill.survey.end();
        }
        let own = fill.clone();
        let dir = dir.to_owned();
        if let Err(e) = std::thread::Builder::new()
            .name("index fill".into())
            .spawn(move || own.run(&dir))
        {
            tracing::warn!("the session index may not know all sessions: {e}");
            fill.end();
        }
        Ok(fill)
    }

    /// Returns the reason to rebuild the index, if one is known by now.
    pub(super) fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    /// Returns the progress; `None` if no session is missing, as far as is known.
    pub(super) fn filling(&self) -> Option<ListFilling> {
        if self.survey.is_over() || !self.is_partial.load(Ordering::Relaxed) {
            return None;
        }
        Some(ListFilling {
            added: self.taken.load(Ordering::Relaxed),
            total: self.unknown.load(Ordering::Relaxed),
        })
    }

    /// Returns the session files that cannot be identified.
    pub(super) fn unreadable(&self) -> Vec<PathBuf> {
        lock(&self.unreadable).clone()
    }

    /// True if the index has a session for each name in the directory.
    pub(super) fn is_surveyed(&self) -> bool {
        self.survey.is_over()
    }

    /// Calls `call` when that is so, or now if it is.
    pub(super) fn when_surveyed(&self, call: impl FnOnce() + Send + 'static) {
        self.survey.when_over(call);
    }

    /// True if no more sessions will be added.
    pub(super) fn is_over(&self) -> bool {
        self.scan.is_over()
    }

    /// Calls `call` at the end, or now if it is over.
    pub(super) fn when_over(&self, call: impl FnOnce() + Send + 'static) {
        self.scan.when_over(call);
    }

    fn end(&self) {
        self.survey.end();
        self.scan.end();
    }

    /// Adds the unknown sessions, unless there are too many to wait for. Returns true if it did.
    fn add_few(&self, db: &mut Connection, dir: &Path) -> Result<bool, Error> {
        let survey = DirectorySurvey::of(db, dir)?;
        if survey.unknown.len() > MAX_FEW_UNKNOWN {
            return Ok(false);
        }
        self.add_sessions(db, dir, &survey)?;
        Ok(true)
    }

    fn run(self: Arc<Self>, dir: &Path) {
        match self.add_and_check(dir) {
            Ok(()) => {}
            // The next query reports it.
            Err(Error::DamagedIndex(damage)) => drop(self.damage.set(damage)),
            Err(e) => tracing::warn!("the session index may not know all sessions: {e}"),
        }
        self.end();
    }

    fn add_and_check(&self, dir: &Path) -> Result<(), Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(dir.join("index.db"), flags);
        let mut db = db.map_err(index::unwritable)?;
        db.busy_timeout(BUSY_TIMEOUT).map_err(index::unwritable)?;
        // Otherwise, other writers would wait for the disk with each chunk.
        db.execute_batch("PRAGMA synchronous = NORMAL")
            .map_err(index::unwritable)?;
        if !self.survey.is_over() {
            let survey = DirectorySurvey::of(&db, dir)?;
            // A file that cannot be read is tried, and reported, by each process.
            if self.add_sessions(&mut db, dir, &survey)? {
                survey.remember(&db).map_err(index::unwritable)?;
            }
            self.survey.end();
        }
        let damage = index::damage(&db).map_err(index::unwritable)?;
        damage.map_or(Ok(()), |damage| Err(Error::DamagedIndex(damage)))
    }

    /// Adds every session that has a file and is not in the index, newest first, and removes those
    /// that have neither a file nor a message. Returns true if it could read each file.
    fn add_sessions(
        &self,
        db: &mut Connection,
        dir: &Path,
        survey: &DirectorySurvey,
    ) -> Result<bool, Error> {
        self.unknown.store(survey.unknown.len(), Ordering::Relaxed);
        self.is_partial
            .fetch_or(survey.unknown.len() > MAX_FEW_UNKNOWN, Ordering::Relaxed);
        let was_lost = is_partial(db).map_err(index::unwritable)?;
        for id in &survey.held {
            let path = dir.join("sessions").join(format!("{id}.lock"));
            // The mark of an owner that did not close the session may be lost after a power failure.
            if was_lost || !Lock::is_held(&path) {
                index::put_written(db, id)?;
            }
        }
        let mut is_whole = true;
        // An index that another process begins meanwhile would not know of these sessions.
        let words = (!survey.unknown.is_empty()).then(|| {
            let opened = SearchIndex::open_or_make(dir);
            opened.and_then(|index| index.current().map(|current| (index, current)))
        });
        let words = words.and_then(|opened| {
            let discarded = |e: &Error| discard_search_index(dir, e);
            opened.inspect_err(discarded).ok()
        });
        for paths in survey.unknown.chunks(CHUNK) {
            let found: Vec<_> = paths
                .iter()
                .filter_map(|path| Some((path, peek::record(dir, path)?)))
                .collect();
            if let Some((words, current)) = &words {
                let records = found.iter().filter_map(|(_, read)| read.as_ref().ok());
                let different: Vec<&str> = records
                    .filter(|(record, _)| {
                        current.get(record.id.as_str()) != Some(&index::updated(record))
                    })
                    .map(|(record, _)| record.id.as_str())
                    .collect();
                if let Err(e) = words.add_outdated(&different) {
                    discard_search_index(dir, &e);
                }
            }
            let chunk = db
                .transaction_with_behavior(TransactionBehavior::Immediate)
                .map_err(index::unwritable)?;
            for (path, read) in found {
                match read {
                    // It may have been deleted since, or written to the index by its owner, whose
                    // data is newer.
                    Ok((record, messages)) if path.exists() => {
                        index::put_unless_known(&chunk, &record, messages)?
                    }
                    Err(e) => {
                        is_whole = false;
                        // Otherwise it may still be empty.
                        if matches!(e, Error::Damaged { .. }) {
                            lock(&self.unreadable).push(path.clone());
                        }
                    }
                    // It has been deleted.
                    Ok(_) => {}
                }
            }
            chunk.commit().map_err(index::unwritable)?;
            self.taken.fetch_add(paths.len(), Ordering::Relaxed);
        }
        for id in &survey.empty {
            let sql = format!("DELETE FROM session WHERE id = ?1 AND {IS_EMPTY}");
            db.execute(&sql, [id]).map_err(index::unwritable)?;
        }
        if was_lost {
            db.pragma_update(None, PARTIAL, 0)
                .map_err(index::unwritable)?;
        }
        Ok(is_whole)
    }
}

/// A number in the header of the file that is free for applications: 1 from the creation of an
/// index until it has all sessions. Processes that start in the meantime read it.
const PARTIAL: &str = "application_id";

/// Marks a new index as incomplete.
pub(super) fn mark_partial(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, PARTIAL, 1)
}

pub(super) fn is_partial(db: &Connection) -> rusqlite::Result<bool> {
    db.pragma_query_value(None, PARTIAL, |row| row.get::<_, i64>(0))
        .map(|partial| partial != 0)
}

/// Removes the search index, which is a cache: otherwise a search might miss sessions.
fn discard_search_index(dir: &Path, why: &Error) {
    tracing::warn!("the search index cannot be used ({why}), and is removed");
    search_index::discard(dir).unwrap_or_else(|e| tracing::error!("the search index stays: {e}"));
}

/// Returns the time at which the directory of sessions got or lost a name.
fn modified(dir: &Path) -> Option<SystemTime> {
    std::fs::metadata(dir.join("sessions"))
        .and_then(|meta| meta.modified())
        .ok()
}

/// Returns a time in the form of its row, in nanoseconds.
fn nanoseconds(time: SystemTime) -> Option<i64> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_nanos()).ok()
}

/// True if the directory of sessions has the same names as at the last survey.
fn is_surveyed(db: &Connection, dir: &Path) -> rusqlite::Result<bool> {
    let surveyed = db
        .query_row("SELECT modified FROM survey", [], |row| {
            row.get::<_, i64>(0)
        })
        .optional()?;
    Ok(surveyed.is_some() && modified(dir).and_then(nanoseconds) == surveyed)
}

/// The differences between an index and the directory of sessions.
struct DirectorySurvey {
    /// The time of the last change of the directory before it was read, unless a later change may
    /// have the same time.
    modified: Option<SystemTime>,
    /// The session files that the index does not list, newest first.
    unknown: Vec<PathBuf>,
    /// Sessions that have neither a file nor a message.
    empty: Vec<String>,
    /// Sessions that a process has open, or has ended without closing.
    held: Vec<String>,
}

impl DirectorySurvey {
    /// Compares the two, and removes the remains of an interrupted deletion.
    fn of(db: &Connection, dir: &Path) -> Result<Self, Error> {
        let is_past = |time: &SystemTime| time.elapsed().is_ok_and(|age| age > MIN_AGE_OF_CHANGE);
        let modified = modified(dir).filter(|time| is_past(time) && !is_on_network(dir));
        let mut unknown = Vec::new();
        let mut held = Vec::new();
        let Ok(files) = std::fs::read_dir(dir.join("sessions")) else {
            return Ok(Self {
                modified: None,
                unknown,
                empty: Vec::new(),
                held,
            });
        };
        let sql = format!("SELECT id, messages > 0, NOT {IS_EMPTY} FROM session");
        let mut query = db.prepare(&sql).map_err(index::unwritable)?;
        let flags =
            |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, (row.get(1)?, row.get(2)?)));
        let ids = query.query_map([], flags).map_err(index::unwritable)?;
        // The values are whether the session has a message, and whether it is listed.
        let mut known = ids
            .collect::<rusqlite::Result<HashMap<String, (bool, bool)>>>()
            .map_err(index::unwritable)?;
        for file in files.flatten() {
            let name = file.file_name();
            let Some(name) = name.to_str() else {
                continue;
            };
            let of_lock = name
                .strip_suffix(".lock")
                .or_else(|| name.strip_suffix(".held"));
            held.extend(of_lock.map(str::to_owned));
            let Some((id, rest)) = name.split_once(".db") else {
                continue;
            };
            if rest == session::REMOVED_SUFFIX {
                std::fs::remove_file(file.path()).ok();
            } else if rest.is_empty() && !known.remove(id).unwrap_or_default().1 {
                // Without a message, the entry may come from a version that did not count them. A
                // listed session need not be opened for that.
                unknown.push(file.path());
            }
        }
        // Ids begin with the time.
        unknown.sort_unstable_by(|one, other| other.cmp(one));
        let empty = known
            .into_iter()
            .filter(|(_, (has_messages, _))| !has_messages)
            .map(|(id, _)| id)
            .collect();
        Ok(Self {
            modified,
            unknown,
            empty,
            held,
        })
    }

    /// Stores that the index has a session for each name.
    fn remember(&self, db: &Connection) -> rusqlite::Result<()> {
        let Some(modified) = self.modified.and_then(nanoseconds) else {
            return Ok(());
        };
        db.execute(
            "INSERT OR REPLACE INTO survey (one, modified) VALUES (1, ?1)",
            [modified],
        )
        .map(drop)
    }
}

/// True if the index and the directory of sessions can be scanned within a few
/// milliseconds.
fn is_small(dir: &Path) -> bool {
    let index = std::fs::metadata(dir.join("index.db")).map_or(0, |meta| meta.len());
    let files = std::fs::read_dir(dir.join("sessions"))
        .map_or(0, |files| files.take(MAX_SMALL_FILES + 1).count());
    index <= SMALL_INDEX_BYTES && files <= MAX_SMALL_FILES
}
