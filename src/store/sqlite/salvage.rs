//! What can still be read of a damaged session file. The damaged file is kept beside the one that
//! is made of it; nothing is ever taken away from it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, Row};

use super::session::{self, RawRows, SessionFile};
use super::{wal, with_suffix};
use crate::id::SessionId;
use crate::store::write::SessionWrite;
use crate::store::{Error, Record, StoredSession};

/// Where every page of a database begins: the size SQLite gives to new files.
const PAGE: usize = 4096;

/// How many missing entries are looked for one by one.
const ONE_BY_ONE: i64 = 100_000;

/// Puts a damaged file aside, and a new one with everything readable in its place.
///
/// # Errors
/// `damaged`, where nothing can be read: the file then stays where it is.
pub(super) fn salvage(
    dir: &Path,
    id: &SessionId,
    known: Option<Record>,
    damaged: Error,
) -> Result<StoredSession, Error> {
    let path = session::path(dir, id);
    if !std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file()) {
        return Err(damaged);
    }
    let Some((rows, whole)) = readable(&path, path.parent().unwrap_or(dir)) else {
        return Err(damaged);
    };
    let entries = rows.messages.len() + rows.parts.len();
    let Some(mut stored) = rows.assemble(known).filter(|stored| !stored.messages.is_empty()) else {
        return Err(damaged);
    };
    let aside = aside(&path);
    let kept = replace(dir, id, &path, &aside, &stored);
    kept.map_err(|e| Error::Unwritable(format!("{damaged}; putting it aside failed as well: {e}")))?;
    tracing::warn!("{damaged}; kept as {}, {entries} entries read", aside.display());
    let lost = if whole { "" } else { ", some are missing" };
    stored.damage.insert(
        0,
        format!(
            "This session's file was damaged. {entries} of its entries could be read{lost}; the damaged file is kept as {}.",
            aside.display()
        ),
    );
    Ok(stored)
}

/// Keeps a log with a torn end beside the session, and says so.
pub(super) fn torn_log(path: &Path) -> Option<String> {
    let log = wal::path(path);
    let torn = wal::torn(&std::fs::read(&log).ok()?)?;
    let aside = with_suffix(&aside(path), "-wal");
    let kept = match std::fs::copy(&log, &aside) {
        Ok(_) => format!("a copy is kept as {}", aside.display()),
        Err(e) => format!("no copy could be kept: {e}"),
    };
    Some(format!("The newest {torn} bytes of this session were not whole and are cut off; {kept}."))
}

/// A name that nothing has yet.
fn aside(path: &Path) -> PathBuf {
    let name = |n: u32| with_suffix(path, &format!(".damaged-{n}"));
    (1..).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(0))
}

/// The new file is complete before the old one is moved.
fn replace(dir: &Path, id: &SessionId, path: &Path, aside: &Path, stored: &StoredSession) -> Result<(), Error> {
    let io = |e: std::io::Error| Error::Unwritable(e.to_string());
    let fresh = with_suffix(path, ".new");
    for left in [fresh.clone(), with_suffix(&fresh, "-wal"), with_suffix(&fresh, "-journal")] {
        match std::fs::remove_file(left) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(e)),
            _ => {}
        }
    }
    session::private_file(&fresh).map_err(io)?;
    let mut file = SessionFile::open_at(fresh.clone(), id, session::is_network(dir))?;
    file.write(&SessionWrite::of(stored), true)?;
    drop(file); // closing it brings its log into it
    if std::fs::hard_link(path, aside).is_err() {
        std::fs::copy(path, aside).map_err(io)?;
    }
    let log = wal::path(path);
    if log.exists() {
        std::fs::rename(&log, wal::path(aside)).map_err(io)?;
    }
    std::fs::rename(&fresh, path).map_err(io)
}

/// Everything that can be read, and whether that seems to be everything.
fn readable(path: &Path, beside: &Path) -> Option<(RawRows, bool)> {
    // SQLite gets a copy: it would write into the damaged file.
    let room = tempfile::TempDir::with_prefix_in("salvage-", beside).ok()?;
    let copy = room.path().join("copy.db");
    std::fs::copy(path, &copy).ok()?;
    let log = wal::path(path);
    if log.exists() {
        std::fs::copy(&log, wal::path(&copy)).ok()?;
    }
    if let Some(found) = read(&copy).filter(|(rows, _)| !rows.messages.is_empty()) {
        return Some(found);
    }
    // Its first page says where everything is; that of any other session of the format says the same.
    let mut bytes = std::fs::read(path).ok()?;
    if bytes.len() <= PAGE {
        return None;
    }
    let first = first_page(room.path(), u32::try_from(bytes.len() / PAGE).ok()?)?;
    bytes[..PAGE].copy_from_slice(&first);
    let grafted = room.path().join("grafted.db");
    crate::environment::private_note(&grafted, &bytes).ok()?;
    read(&grafted).map(|(rows, _)| (rows, false)).filter(|(rows, _)| !rows.messages.is_empty())
}

fn first_page(room: &Path, pages: u32) -> Option<Vec<u8>> {
    let path = room.join("pattern.db");
    session::private_file(&path).ok()?;
    drop(SessionFile::open_at(path.clone(), &SessionId::new("pattern"), true).ok()?);
    let mut page = std::fs::read(&path).ok()?;
    page.truncate(PAGE);
    page.get_mut(28..32)?.copy_from_slice(&pages.to_be_bytes());
    (page.len() == PAGE).then_some(page)
}

fn read(path: &Path) -> Option<(RawRows, bool)> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).ok()?;
    db.pragma_update(None, "locking_mode", "EXCLUSIVE").ok()?;
    // A table may be of the first format, without checksums.
    let columns = "SELECT count(*) FROM pragma_table_info('message') WHERE name = 'crc'";
    let checked = db.query_row(columns, [], |row| row.get::<_, i64>(0)).ok()? > 0;
    let crc = if checked { "crc" } else { "-1" };
    let mut rows = RawRows::default();
    // Without the record the index may still know it.
    let record = db.query_row(&format!("SELECT data, {crc} FROM session"), [], |row| {
        rows.take_record(row);
        Ok(())
    });
    let mut whole = record.is_ok();
    whole &= table(&db, "message", &format!("seq, id, data, {crc}"), &mut |row| rows.take_message(row));
    let record = rows.record.take();
    let mut parts = RawRows { record, ..rows };
    whole &= table(&db, "part", &format!("seq, id, message, data, {crc}"), &mut |row| parts.take_part(row));
    whole &= parts.altered == 0;
    // A page that stands where another one should be gives its rows twice.
    let mut seen = HashSet::new();
    parts.messages.retain(|(id, _)| seen.insert(id.clone()));
    seen.clear();
    parts.parts.retain(|(id, ..)| seen.insert(id.clone()));
    Some((parts, whole))
}

/// Reads a table from both ends, and what lies between two unreadable pages one by one.
fn table(db: &Connection, name: &str, columns: &str, take: &mut dyn FnMut(&Row<'_>)) -> bool {
    let select = |rest: &str| format!("SELECT {columns} FROM {name} {rest}");
    let mut last = 0;
    if each(db, &select("ORDER BY seq"), 0, &mut |seq, row| {
        last = seq;
        take(row);
    }) {
        return true;
    }
    // From the other end: the lowest that can be reached.
    let mut first = i64::MAX;
    let backwards = format!("SELECT seq FROM {name} WHERE seq > ?1 ORDER BY seq DESC");
    each(db, &backwards, last, &mut |seq, _| first = seq);
    let most = last.saturating_add(ONE_BY_ONE);
    let end = if first == i64::MAX { most } else { first.min(most) };
    let mut missed = 0;
    for seq in last + 1..end {
        let found = db.query_row(&select("WHERE seq = ?1"), [seq], |row| {
            take(row);
            Ok(())
        });
        missed = if found.is_ok() { 0 } else { missed + 1 };
        if first == i64::MAX && missed > 4096 {
            break;
        }
    }
    if first < i64::MAX {
        each(db, &select("WHERE seq >= ?1 ORDER BY seq"), end, &mut |_, row| take(row));
    }
    false
}

/// Lends every row to `take`, with its number; false where it could not go on.
fn each(db: &Connection, sql: &str, from: i64, take: &mut dyn FnMut(i64, &Row<'_>)) -> bool {
    let Ok(mut query) = db.prepare(sql) else { return false };
    let found = if query.parameter_count() == 0 { query.query([]) } else { query.query([from]) };
    let Ok(mut rows) = found else { return false };
    loop {
        match rows.next() {
            Ok(Some(row)) => match row.get(0) {
                Ok(seq) => take(seq, row),
                Err(_) => return false,
            },
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
