//! Reads sessions without locking them, for the index, searches and the command line. A session
//! that has a write-ahead log is read from a copy: the database first, then the log. If the log was
//! restarted in the meantime, the copy is made again, up to five times.

use std::path::Path;

use super::lock::Lock;
use super::session::{self, RawRows, SessionFile};
use super::{read_out, salvage, wal};
use crate::{Error, Record, StoredSession};
use base::id::SessionId;

/// The maximum number of attempts to copy a file while its log is being restarted.
const MAX_COPIES: usize = 5;

/// Reads the present state of a session. `dir` is the store's directory; `known` is the index's
/// record, used if the file has none.
pub(super) fn peek(
    dir: &Path,
    id: &SessionId,
    known: Option<Record>,
) -> Result<StoredSession, Error> {
    let path = session::path(dir, id);
    let parent = path.parent().unwrap_or(dir);
    let unreadable = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => Error::NotFound(id.clone()),
        _ => super::unwritable_file(&path)(e),
    };
    let damaged = |reason: &str| session::damaged(id, &path, reason.to_owned());
    let meta = std::fs::symlink_metadata(&path).map_err(unreadable)?;
    if !meta.is_file() {
        return Err(damaged("it is not a regular file"));
    }
    if meta.len() == 0 && (known.is_none() || salvage::has_log(&path)) {
        return salvage::read_damaged(&path, parent, known, damaged("it is empty"));
    }
    if let Some(stored) = in_place(&path, known.clone()) {
        return Ok(stored);
    }
    let temp_dir = tempfile::TempDir::with_prefix_in("peek-", parent)
        .or_else(|_| tempfile::TempDir::with_prefix("peek-"));
    let temp_dir = temp_dir.map_err(unreadable)?;
    let copy = temp_dir.path().join("copy.db");
    for _ in 0..MAX_COPIES {
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
    // While a process is writing, a log may end anywhere.
    let is_held = Lock::is_held(&path.with_extension("lock"));
    let log = if is_held {
        None
    } else {
        std::fs::read(wal::path(&copy)).ok()
    };
    let torn = log.and_then(|log| wal::torn(&log));
    match SessionFile::open_at(copy, id, false).and_then(|file| file.load(known.clone())) {
        // The error must not name the copy.
        Err(Error::Damaged { reason, .. }) => {
            salvage::read_damaged(&path, parent, known, damaged(&reason))
        }
        Err(Error::NotFound(_)) if torn.is_some() => {
            salvage::read_damaged(&path, parent, known, damaged(TORN_LOG))
        }
        Ok(mut stored) => {
            let report = |torn| {
                format!("The newest {torn} bytes of this session are damaged, and missing here.")
            };
            stored.damage.extend(torn.map(report));
            Ok(stored)
        }
        read => read,
    }
}

/// The reason for damage if a session's file has no readable record or message, and the end of its
/// log is torn.
pub(super) const TORN_LOG: &str = "its write-ahead log is not whole";

/// Reads a file that no process has open and that needs no repair, which is the common case. No
/// lock is taken, so the result is valid only if the file has not changed in the meantime.
fn in_place(path: &Path, known: Option<Record>) -> Option<StoredSession> {
    let state = || {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.modified().ok()?, meta.len(), wal::path(path).exists()))
    };
    let before = state().filter(|(_, _, log)| !log)?;
    let db = read_out::connect(path)?;
    let (stored, _, altered) = RawRows::stored(&db, known, false).ok()?;
    if altered > 0 || state() != Some(before) {
        return None;
    }
    stored
}

/// Reads a session's record, and the number of its messages, from its file `path`. `dir` is the
/// store's directory.
///
/// Returns `None` if the name is not that of a session's file.
pub(super) fn record(dir: &Path, path: &Path) -> Option<Result<(Record, i64), Error>> {
    let id = SessionId::new(path.file_stem()?.to_str()?);
    if !id.is_well_formed() {
        return None;
    }
    let messages =
        |stored: &StoredSession| i64::try_from(stored.messages.len()).unwrap_or(i64::MAX);
    let read = peek(dir, &id, None);
    Some(read.and_then(|stored| match stored.damage.first() {
        // Without a message it would be in no list, and its damage would not be reported.
        Some(reason) if !stored.is_lasting() => Err(session::damaged(&id, path, reason.clone())),
        _ => Ok((stored.record.clone(), messages(&stored))),
    }))
}

/// Returns the header of the log, which changes whenever the log is restarted.
fn log_header(path: &Path) -> Vec<u8> {
    use std::io::Read;
    let mut header = Vec::new();
    if let Ok(file) = std::fs::File::open(wal::path(path)) {
        file.take(32).read_to_end(&mut header).ok();
    }
    header
}
