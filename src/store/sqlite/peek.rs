//! Reading sessions without having them: for the index, for searching, for the command line. Also
//! of sessions that another process has open: a copy is read, which is whole because the log is
//! copied after the database and was not begun anew meanwhile.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::session::{self, RawRows, SessionFile};
use super::{migrate, wal};
use crate::id::SessionId;
use crate::store::ReplySender;
use crate::store::{Error, Record, SearchHit, StoredSession, search as find};

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
    if !std::fs::symlink_metadata(&path).map_err(unreadable)?.is_file() {
        return Err(Error::Damaged {
            id: id.clone(),
            reason: "it is no regular file".into(),
            path: path.display().to_string(),
        });
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
    SessionFile::open_at(copy, id, false)?.load(known).map_err(|e| match e {
        // The copy's name would mean nothing to anyone.
        Error::Damaged { id, reason, .. } => Error::Damaged { id, reason, path: path.display().to_string() },
        e => e,
    })
}

/// Reads a file that nobody has open and that needs no repair, as most are; no lock is taken, so it
/// counts only when nothing has changed meanwhile.
fn in_place(path: &Path, known: Option<Record>) -> Option<StoredSession> {
    let state = || {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.modified().ok()?, meta.len(), wal::path(path).exists()))
    };
    let before = state().filter(|(_, _, log)| !log)?;
    let plain = path.to_str().filter(|path| !path.contains(['%', '?', '#']))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(format!("file:{plain}?immutable=1"), flags).ok()?;
    let format: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).ok()?;
    let read = (format == migrate::SESSION_FORMAT).then(|| RawRows::stored(&db, known, false))?;
    let (stored, _, altered) = read.ok()?;
    let stored = stored.filter(|_| altered == 0)?;
    (state() == Some(before)).then_some(stored)
}

/// Reads what is known about a session from its file, and how many messages are in it.
pub(super) fn record(dir: &Path, path: &Path) -> Option<(Record, i64)> {
    let id = SessionId::new(path.file_stem()?.to_str()?);
    if !id.is_well_formed() {
        return None;
    }
    let stored = peek(dir, &id, None).ok()?;
    Some((stored.record, i64::try_from(stored.messages.len()).unwrap_or(i64::MAX)))
}

/// Searches on a thread of its own: every file is read.
pub(super) fn search(
    dir: PathBuf,
    records: Vec<Record>,
    words: String,
    limit: usize,
    reply: ReplySender<Vec<SearchHit>>,
) {
    let read = move |record: &Record| peek(&dir, &record.id, Some(record.clone()));
    // A reply that was dropped says that the store is gone.
    let work = move || drop(reply.send(Ok(find::search(&read, &records, &words, limit))));
    if let Err(e) = std::thread::Builder::new().name("search".into()).spawn(work) {
        tracing::error!("no thread to search on: {e}");
    }
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
