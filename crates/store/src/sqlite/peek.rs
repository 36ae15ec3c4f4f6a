//! Reading sessions without having them: for the index, for searching, for the command line. Also
//! of sessions that another process has open: a copy is read, which is whole because the log is
//! copied after the database and was not begun anew meanwhile.

use std::path::Path;

use super::lock::Lock;
use super::session::{self, RawRows, SessionFile};
use super::{read_out, salvage, wal};
use crate::{Error, Record, StoredSession, TitleSource};
use base::id::SessionId;

/// How often a copy is made again when the original was reorganised meanwhile.
const TRIES: usize = 5;

/// Reads a session as it is now.
pub(super) fn peek(dir: &Path, id: &SessionId, known: Option<Record>) -> Result<StoredSession, Error> {
    let path = session::path(dir, id);
    let beside = path.parent().unwrap_or(dir);
    let unreadable = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Error::NotFound(id.clone()),
        _ => Error::Unwritable(e.to_string()),
    };
    let damaged = |reason: &str| session::damaged(id, &path, reason.to_owned());
    let meta = std::fs::symlink_metadata(&path).map_err(unreadable)?;
    if !meta.is_file() {
        return Err(damaged("it is no regular file"));
    }
    if meta.len() == 0 && (known.is_none() || salvage::has_log(&path)) {
        return salvage::look(&path, beside, known, damaged("it is empty"));
    }
    if let Some(stored) = in_place(&path, known.clone()) {
        return Ok(stored);
    }
    let room = tempfile::TempDir::with_prefix_in("peek-", beside).or_else(|_| tempfile::TempDir::with_prefix("peek-"));
    let room = room.map_err(unreadable)?;
    let copy = room.path().join("copy.db");
    for _ in 0..TRIES {
        let before = log_header(&path);
        std::fs::copy(&path, &copy).map_err(unreadable)?;
        match std::fs::copy(wal::path(&path), wal::path(&copy)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(unreadable(e)),
            _ => {}
        }
        if before == log_header(&path) {
            break;
        }
        std::fs::remove_file(wal::path(&copy)).ok();
    }
    // Where somebody is writing, a log may end anywhere.
    let is_held = Lock::is_held(&path.with_extension("lock"));
    let log = if is_held { None } else { std::fs::read(wal::path(&copy)).ok() };
    let torn = log.and_then(|log| wal::torn(&log));
    match SessionFile::open_at(copy, id, false).and_then(|file| file.load(known.clone())) {
        // The copy's name would mean nothing to anyone.
        Err(Error::Damaged { reason, .. }) => salvage::look(&path, beside, known, damaged(&reason)),
        Err(Error::NotFound(_)) if torn.is_some() => salvage::look(&path, beside, known, damaged(TORN)),
        Ok(mut stored) => {
            let said = |torn| format!("The newest {torn} bytes of this session are damaged, and missing here.");
            stored.damage.extend(torn.map(said));
            Ok(stored)
        }
        read => read,
    }
}

/// The reason given for a session with nothing in its file and something in its log.
pub(super) const TORN: &str = "its write-ahead log is not whole";

/// Reads a file that nobody has open and that needs no repair, as most are; no lock is taken, so it
/// counts only when nothing has changed meanwhile.
fn in_place(path: &Path, known: Option<Record>) -> Option<StoredSession> {
    let state = || {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.modified().ok()?, meta.len(), wal::path(path).exists()))
    };
    let before = state().filter(|(_, _, log)| !log)?;
    let db = read_out::connect(path)?;
    let (stored, _, altered) = RawRows::stored(&db, known, false).ok()?;
    let stored = stored.filter(|_| altered == 0)?;
    (state() == Some(before)).then_some(stored)
}

/// Reads what is known about a session from its file, and how many messages are in it.
///
/// Returns `None` if no session has a file of that name.
pub(super) fn record(dir: &Path, path: &Path) -> Option<Result<(Record, i64), Error>> {
    let id = SessionId::new(path.file_stem()?.to_str()?);
    if !id.is_well_formed() {
        return None;
    }
    let messages = |stored: &StoredSession| i64::try_from(stored.messages.len()).unwrap_or(i64::MAX);
    let read = peek(dir, &id, None);
    Some(read.and_then(|stored| match stored.damage.first() {
        // Without a message it would be in no list, and nobody would hear of it.
        Some(reason) if stored.messages.is_empty() && stored.record.titled != TitleSource::User => {
            Err(session::damaged(&id, path, reason.clone()))
        }
        _ => Ok((stored.record.clone(), messages(&stored))),
    }))
}

/// Changes whenever a log is begun anew.
fn log_header(path: &Path) -> Vec<u8> {
    use std::io::Read;
    let mut header = Vec::new();
    if let Ok(file) = std::fs::File::open(wal::path(path)) {
        file.take(32).read_to_end(&mut header).ok();
    }
    header
}
