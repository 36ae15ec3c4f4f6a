//! Making the index whole, beside those who ask it.
//!
//! An index may lack sessions: it was lost, or a file was put where the sessions lie. And it may be damaged where no
//! query for a page comes along. Both are found by looking at all of it, which takes seconds where there are many
//! sessions, so a thread of its own does that, with a connection of its own, and what it finds is there for whoever
//! asks next. A small index is looked through at once: that takes a few milliseconds. Nobody is told of a look that
//! finds nothing missing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::index_rows::{self as index, UNSAID};
use super::{peek, session};
use crate::{Error, ListFilling};
use base::lock::locked;

/// Up to this size, in bytes, the whole index is looked through before it is first asked what there is, where there are
/// no more files than these beside it, and no more of them unknown to it.
const SMALL: u64 = 256 << 10;
const SMALL_FOLDER: usize = 1024;
const FEW_UNKNOWN: usize = 64;

/// How many sessions are taken in at a time. Whoever wants to write waits for them.
const CHUNK: usize = 64;

/// How long the thread waits for others that write into the index.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// What is to be done later.
type Callback = Box<dyn FnOnce() + Send>;

/// How far an index has been made whole.
pub(super) struct IndexFill {
    /// Why the index has to be made again.
    damage: OnceLock<String>,
    /// What is done when it is over; `None` when it is.
    waiting: Mutex<Option<Vec<Callback>>>,
    /// Sessions are known to be missing. Otherwise it is only looked whether any are.
    is_partial: AtomicBool,
    /// The sessions that were to be taken in, and those of them that have been.
    unknown: AtomicUsize,
    taken: AtomicUsize,
    /// The files of sessions that do not say which sessions they are.
    unreadable: Mutex<Vec<PathBuf>>,
}

impl IndexFill {
    /// Begins to make an index whole; a small one is whole when this returns.
    ///
    /// # Errors
    /// [`Error::DamagedIndex`].
    pub(super) fn begin(db: &mut Connection, dir: &Path) -> Result<Arc<Self>, Error> {
        let fill = Arc::new(Self {
            damage: OnceLock::new(),
            waiting: Mutex::new(Some(Vec::new())),
            is_partial: AtomicBool::new(is_partial(db).map_err(index::unwritable)?),
            unknown: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            unreadable: Mutex::default(),
        });
        if is_small(dir) {
            if let Some(damage) = index::damage(db).map_err(index::unwritable)? {
                return Err(Error::DamagedIndex(damage));
            }
            match fill.take_in_few(db, dir) {
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
        }
        let (own, place) = (fill.clone(), dir.to_owned());
        if let Err(e) = std::thread::Builder::new().name("index fill".into()).spawn(move || own.run(&place)) {
            tracing::warn!("the session index may not know all sessions: {e}");
            fill.end();
        }
        Ok(fill)
    }

    /// Returns why the index has to be made again, if that is known by now.
    pub(super) fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    /// Returns how many sessions of how many have been taken in; `None` when all have, as far as is known.
    pub(super) fn filling(&self) -> Option<ListFilling> {
        locked(&self.waiting).as_ref().filter(|_| self.is_partial.load(Ordering::Relaxed))?;
        Some(ListFilling { taken: self.taken.load(Ordering::Relaxed), unknown: self.unknown.load(Ordering::Relaxed) })
    }

    /// Returns the files of sessions that do not say which sessions they are.
    pub(super) fn unreadable(&self) -> Vec<PathBuf> {
        locked(&self.unreadable).clone()
    }

    /// Calls when all have been taken in.
    pub(super) fn when_over(&self, call: impl FnOnce() + Send + 'static) {
        if let Some(waiting) = locked(&self.waiting).as_mut() {
            return waiting.push(Box::new(call));
        }
        call();
    }

    fn end(&self) {
        let waiting = locked(&self.waiting).take();
        waiting.into_iter().flatten().for_each(|call| call());
    }

    /// Takes in what is unknown, unless it is too much for somebody to wait for. Returns whether it did.
    fn take_in_few(&self, db: &mut Connection, dir: &Path) -> Result<bool, Error> {
        let survey = FolderSurvey::of(db, dir)?;
        if survey.unknown.len() > FEW_UNKNOWN {
            return Ok(false);
        }
        self.take_in(db, dir, &survey)?;
        Ok(true)
    }

    fn run(self: Arc<Self>, dir: &Path) {
        match self.check_and_take_in(dir) {
            Ok(()) => {}
            // Whoever asks next hears of it.
            Err(Error::DamagedIndex(damage)) => drop(self.damage.set(damage)),
            Err(e) => tracing::warn!("the session index may not know all sessions: {e}"),
        }
        self.end();
    }

    fn check_and_take_in(&self, dir: &Path) -> Result<(), Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(dir.join("index.db"), flags);
        let mut db = db.map_err(index::unwritable)?;
        db.busy_timeout(BUSY_TIMEOUT).map_err(index::unwritable)?;
        // Whoever wants to write waits for the disk otherwise, with each chunk.
        db.execute_batch("PRAGMA synchronous = NORMAL").map_err(index::unwritable)?;
        if let Some(damage) = index::damage(&db).map_err(index::unwritable)? {
            return Err(Error::DamagedIndex(damage));
        }
        let survey = FolderSurvey::of(&db, dir)?;
        self.take_in(&mut db, dir, &survey)
    }

    /// Takes in every session that has a file and is not in the index yet, the newest first, and forgets those without
    /// a file in which nothing was ever said.
    fn take_in(&self, db: &mut Connection, dir: &Path, survey: &FolderSurvey) -> Result<(), Error> {
        self.unknown.store(survey.unknown.len(), Ordering::Relaxed);
        self.is_partial.fetch_or(survey.unknown.len() > FEW_UNKNOWN, Ordering::Relaxed);
        for paths in survey.unknown.chunks(CHUNK) {
            let found: Vec<_> = paths.iter().filter_map(|path| Some((path, peek::record(dir, path)?))).collect();
            let chunk = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(index::unwritable)?;
            for (path, read) in found {
                match read {
                    // It may have been deleted since, or told to the index by its owner, who knows better.
                    Ok((record, messages)) if path.exists() => index::put_unless_known(&chunk, &record, messages)?,
                    Err(Error::Damaged { .. }) => locked(&self.unreadable).push(path.clone()),
                    // It is no session of ours, or there is nothing in it yet.
                    Ok(_) | Err(_) => {}
                }
            }
            chunk.commit().map_err(index::unwritable)?;
            self.taken.fetch_add(paths.len(), Ordering::Relaxed);
        }
        for id in &survey.empty {
            let sql = format!("DELETE FROM session WHERE id = ?1 AND {UNSAID}");
            db.execute(&sql, [id]).map_err(index::unwritable)?;
        }
        if is_partial(db).map_err(index::unwritable)? {
            db.pragma_update(None, PARTIAL, 0).map_err(index::unwritable)?;
        }
        Ok(())
    }
}

/// A number in the head of the file that SQLite leaves to us: 1 from when an index is made until it has all sessions,
/// which processes that start meanwhile see at once.
const PARTIAL: &str = "application_id";

/// Says in a new index that it does not have all sessions yet.
pub(super) fn mark_partial(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, PARTIAL, 1)
}

fn is_partial(db: &Connection) -> rusqlite::Result<bool> {
    db.pragma_query_value(None, PARTIAL, |row| row.get::<_, i64>(0)).map(|partial| partial != 0)
}

/// What an index and the folder of sessions do not agree on.
struct FolderSurvey {
    /// Files of sessions that the index does not list, the newest first.
    unknown: Vec<PathBuf>,
    /// Sessions without a file in which nothing was said.
    empty: Vec<String>,
}

impl FolderSurvey {
    /// Compares them; removes what a removal that was cut off has left.
    fn of(db: &Connection, dir: &Path) -> Result<Self, Error> {
        let mut unknown = Vec::new();
        let Ok(files) = std::fs::read_dir(dir.join("sessions")) else { return Ok(Self { unknown, empty: Vec::new() }) };
        let sql = format!("SELECT id, messages > 0, NOT {UNSAID} FROM session");
        let mut query = db.prepare(&sql).map_err(index::unwritable)?;
        let flags = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, (row.get(1)?, row.get(2)?)));
        let ids = query.query_map([], flags).map_err(index::unwritable)?;
        // Whether anything was said in it, and whether it is listed.
        let mut known = ids.collect::<rusqlite::Result<HashMap<String, (bool, bool)>>>().map_err(index::unwritable)?;
        for file in files.flatten() {
            let name = file.file_name();
            let Some((id, rest)) = name.to_str().and_then(|name| name.split_once(".db")) else { continue };
            if rest == session::GONE {
                std::fs::remove_file(file.path()).ok();
            } else if rest.is_empty() && !known.remove(id).unwrap_or_default().1 {
                // Without a message it may have been made by somebody who did not count them. What is listed all
                // the same need not be opened for that.
                unknown.push(file.path());
            }
        }
        // Ids begin with the time.
        unknown.sort_unstable_by(|one, other| other.cmp(one));
        let empty = known.into_iter().filter(|(_, (said, _))| !said).map(|(id, _)| id).collect();
        Ok(Self { unknown, empty })
    }
}

/// Whether the index and the folder of sessions are looked through in a few milliseconds.
fn is_small(dir: &Path) -> bool {
    let index = std::fs::metadata(dir.join("index.db")).map_or(0, |meta| meta.len());
    let files = std::fs::read_dir(dir.join("sessions")).map_or(0, |files| files.take(SMALL_FOLDER + 1).count());
    index <= SMALL && files <= SMALL_FOLDER
}
