//! Recovery of damaged session files. The damaged file is preserved next to its replacement, which
//! contains everything readable; if nothing is readable, the session starts empty.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, Row};

use super::session::{self, RawRows, SessionFile};
use super::{migrate, wal, with_suffix};
use crate::{Error, Record, StoredSession, TitleSource};
use base::file::is_on_network;
use base::id::SessionId;

/// The page size of a database: SQLite's default for new files.
const PAGE_BYTES: usize = 4096;

/// The maximum number of missing entries that are looked up one by one.
const MAX_SINGLE_LOOKUPS: i64 = 100_000;

/// Moves a damaged file aside, and replaces it by a new one with everything readable, possibly
/// without any message.
///
/// # Errors
/// Returns `damaged` if no record of the session is available, and [`Error::Unwritable`] if the
/// file could not be examined or moved; it is then left in place.
pub(super) fn salvage(
    dir: &Path,
    id: &SessionId,
    known: Option<Record>,
    damaged: Error,
) -> Result<StoredSession, Error> {
    let path = session::path(dir, id);
    let (mut stored, entries, lost) =
        readable_session(&path, path.parent().unwrap_or(dir), known, &damaged)?;
    let aside = free_name(&path);
    let replaced = replace(dir, id, &path, &aside, &stored);
    replaced.map_err(|e| {
        Error::Unwritable(format!("{damaged}; putting it aside failed as well: {e}"))
    })?;
    tracing::warn!(
        "{damaged}; saved as {}, {entries} entries read",
        aside.display()
    );
    let read = match entries {
        0 => {
            "None of its messages could be read, and the session continues without them".to_owned()
        }
        _ => format!("{entries} of its entries could be read{lost}"),
    };
    let reason = reason(&damaged);
    let location = describe_location(&path, &aside);
    stored.damage.insert(
        0,
        format!("This session's file was damaged{reason}. {read}; {location}."),
    );
    Ok(stored)
}

/// Reads the readable contents of a damaged file without changing it.
///
/// # Errors
/// See [`salvage`].
pub(super) fn read_damaged(
    path: &Path,
    parent: &Path,
    known: Option<Record>,
    damaged: Error,
) -> Result<StoredSession, Error> {
    let (mut stored, entries, lost) = readable_session(path, parent, known, &damaged)?;
    let read = match entries {
        0 => "None of its messages can be read".to_owned(),
        _ => format!("{entries} of its entries can be read{lost}"),
    };
    let reason = reason(&damaged);
    let path = path.display();
    stored.damage.insert(
        0,
        format!("This session's file is damaged{reason}. {read}; it was left as it is: {path}."),
    );
    Ok(stored)
}

/// Returns the readable contents of a damaged file, the number of entries, and a note on missing
/// ones.
fn readable_session(
    path: &Path,
    parent: &Path,
    known: Option<Record>,
    damaged: &Error,
) -> Result<(StoredSession, usize, &'static str), Error> {
    if std::fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(damaged.clone());
    }
    let found = readable(path, parent);
    let found = found
        .map_err(|e| Error::Unwritable(format!("{damaged}; looking at it failed as well: {e}")))?;
    let (rows, whole) = found.unwrap_or_default();
    let entries = if rows.messages.is_empty() {
        0
    } else {
        rows.messages.len() + rows.parts.len()
    };
    let mut stored = rows.assemble(known).ok_or_else(|| damaged.clone())?;
    if stored.messages.is_empty() {
        protect_title(&mut stored.record);
    }
    Ok((
        stored,
        entries,
        if whole { "" } else { ", some are missing" },
    ))
}

/// Marks a title as the user's: it is all that is left of the messages, and lists show the session
/// because of it.
pub(super) fn protect_title(record: &mut Record) {
    if record.title.is_some() {
        record.title_source = TitleSource::User;
    }
}

fn reason(damaged: &Error) -> String {
    match damaged {
        Error::Damaged { reason, .. } => format!(" ({reason})"),
        _ => String::new(),
    }
}

/// Describes the location of the damaged file.
fn describe_location(path: &Path, aside: &Path) -> String {
    match (aside.exists(), wal::path(aside).exists()) {
        (true, _) => format!("the damaged file is saved as {}", aside.display()),
        (false, true) => format!("its log is saved as {}", wal::path(aside).display()),
        (false, false) => format!("there was nothing to save of {}", path.display()),
    }
}

/// Copies a log with a torn end, and describes that for the user.
pub(super) fn torn_log(path: &Path) -> Option<String> {
    let log = wal::path(path);
    let torn = wal::torn(&std::fs::read(&log).ok()?)?;
    let aside = with_suffix(&free_name(path), "-wal");
    let location = match std::fs::copy(&log, &aside) {
        Ok(_) => format!("a copy is saved as {}", aside.display()),
        Err(e) => format!("no copy could be saved: {e}"),
    };
    Some(format!(
        "The newest {torn} bytes of this session were not whole and are cut off; {location}."
    ))
}

/// Returns a free name for a damaged file.
fn free_name(path: &Path) -> PathBuf {
    let name = |n: u32| with_suffix(path, &format!(".damaged-{n}"));
    let is_free = |path: &PathBuf| !path.exists() && !wal::path(path).exists();
    (1..).map(name).find(is_free).unwrap_or_else(|| name(0))
}

/// Writes the new file completely before the old one is moved.
fn replace(
    dir: &Path,
    id: &SessionId,
    path: &Path,
    aside: &Path,
    stored: &StoredSession,
) -> Result<(), Error> {
    let io = super::unwritable_file(path);
    let fresh = with_suffix(path, ".new");
    for left in [
        fresh.clone(),
        with_suffix(&fresh, "-wal"),
        with_suffix(&fresh, "-journal"),
    ] {
        match std::fs::remove_file(left) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(e)),
            _ => {}
        }
    }
    session::private_file(&fresh).map_err(&io)?;
    let mut file = SessionFile::open_at(fresh.clone(), id, is_on_network(dir))?;
    file.fill(stored.clone().into())?;
    drop(file); // closing it brings its log into it
    match std::fs::hard_link(path, aside) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            std::fs::copy(path, aside).map_err(&io)?;
        }
        _ => {}
    }
    let log = wal::path(path);
    if has_log(path) {
        std::fs::rename(&log, wal::path(aside)).map_err(&io)?;
    }
    std::fs::rename(&fresh, path).map_err(&io)
}

/// True if a database has a log that is not empty.
pub(super) fn has_log(path: &Path) -> bool {
    std::fs::symlink_metadata(wal::path(path)).is_ok_and(|meta| meta.len() > 0)
}

/// Returns all readable rows, and whether they seem to be complete. Returns `None` if no message is
/// readable.
///
/// # Errors
/// Returns the error of the system if the attempt was not possible.
fn readable(path: &Path, parent: &Path) -> std::io::Result<Option<(RawRows, bool)>> {
    // SQLite would write to the damaged file, so it gets a copy.
    let temp_dir = tempfile::TempDir::with_prefix_in("salvage-", parent)?;
    let attempt = |name: &str, has_log: bool| {
        let copy = temp_dir.path().join(name);
        if has_log {
            std::fs::copy(wal::path(path), wal::path(&copy))?;
        }
        Ok::<_, std::io::Error>(read(&copy).filter(|(rows, _)| !rows.messages.is_empty()))
    };
    let has_log = has_log(path);
    let copied = std::fs::copy(path, temp_dir.path().join("copy.db"));
    copied.map(drop).or_else(session::unless_missing)?;
    if let Some(found) = attempt("copy.db", has_log)? {
        return Ok(Some(found));
    }
    let mut bytes = match std::fs::read(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let is_short = bytes.len() <= PAGE_BYTES;
    if is_short && !has_log {
        return Ok(None);
    }
    if is_short {
        // Every session's file began like this one, and the log may contain everything written
        // since.
        bytes = migrate::empty_session().unwrap_or_default().to_vec();
    } else if let Some(first) = first_page(temp_dir.path(), bytes.len() / PAGE_BYTES) {
        // The first page locates all others; that of any other session of the same format does so
        // too.
        bytes[..PAGE_BYTES].copy_from_slice(&first);
    }
    for (name, has_log) in [("logged.db", true), ("grafted.db", false)] {
        if has_log && !self::has_log(path) {
            continue;
        }
        base::environment::write_private_file(&temp_dir.path().join(name), &bytes)?;
        if let Some((rows, _)) = attempt(name, has_log)? {
            return Ok(Some((rows, false)));
        }
    }
    // If no database can be opened at all, this one is not known to be damaged.
    let probe = temp_dir.path().join("probe.db");
    session::private_file(&probe)?;
    match SessionFile::open_at(probe, &SessionId::new("probe"), true) {
        Ok(_) => Ok(None),
        Err(e) => Err(std::io::Error::other(format!(
            "no database can be opened here: {e}"
        ))),
    }
}

fn first_page(temp_dir: &Path, pages: usize) -> Option<Vec<u8>> {
    let pages = u32::try_from(pages).ok()?;
    let path = temp_dir.join("pattern.db");
    session::private_file(&path).ok()?;
    drop(SessionFile::open_at(path.clone(), &SessionId::new("pattern"), true).ok()?);
    let mut page = std::fs::read(&path).ok()?;
    page.truncate(PAGE_BYTES);
    page.get_mut(28..32)?.copy_from_slice(&pages.to_be_bytes());
    (page.len() == PAGE_BYTES).then_some(page)
}

fn read(path: &Path) -> Option<(RawRows, bool)> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).ok()?;
    db.pragma_update(None, "locking_mode", "EXCLUSIVE").ok()?;
    // The tables may have the first format, without checksums.
    let columns = "SELECT count(*) FROM pragma_table_info('message') WHERE name = 'crc'";
    let checked = db.query_row(columns, [], |row| row.get::<_, i64>(0)).ok()? > 0;
    let crc = if checked { "crc" } else { "-1" };
    let mut rows = RawRows::default();
    // If the record is unreadable, the index may still have it.
    let record = db.query_row(&format!("SELECT data, {crc} FROM session"), [], |row| {
        rows.take_record(row);
        Ok(())
    });
    let mut whole = record.is_ok();
    whole &= table(
        &db,
        "message",
        &format!("seq, id, data, {crc}"),
        &mut |row| rows.take_message(row),
    );
    let record = rows.record.take();
    let mut parts = RawRows { record, ..rows };
    whole &= table(
        &db,
        "part",
        &format!("seq, id, message, data, {crc}"),
        &mut |row| parts.take_part(row),
    );
    whole &= parts.altered == 0;
    // A page in the place of another one yields its rows twice.
    let mut seen = HashSet::new();
    parts.messages.retain(|(id, _)| seen.insert(id.clone()));
    seen.clear();
    parts.parts.retain(|(id, ..)| seen.insert(id.clone()));
    Some((parts, whole))
}

/// Reads a table from both ends, and the rows between two unreadable pages one by one. Returns
/// whether it was read completely.
fn table(db: &Connection, name: &str, columns: &str, take: &mut dyn FnMut(&Row<'_>)) -> bool {
    let select = |rest: &str| format!("SELECT {columns} FROM {name} {rest}");
    let mut last = 0;
    if each(db, &select("ORDER BY seq"), 0, &mut |seq, row| {
        last = seq;
        take(row);
    }) {
        return true;
    }
    // From the other end: find the lowest reachable row.
    let mut first = i64::MAX;
    let backwards = format!("SELECT seq FROM {name} WHERE seq > ?1 ORDER BY seq DESC");
    each(db, &backwards, last, &mut |seq, _| first = seq);
    let most = last.saturating_add(MAX_SINGLE_LOOKUPS);
    let end = if first == i64::MAX {
        most
    } else {
        first.min(most)
    };
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
        each(
            db,
            &select("WHERE seq >= ?1 ORDER BY seq"),
            end,
            &mut |_, row| take(row),
        );
    }
    false
}

/// Passes every row to `take`, with its number. Returns false if the iteration failed.
fn each(db: &Connection, sql: &str, from: i64, take: &mut dyn FnMut(i64, &Row<'_>)) -> bool {
    let Ok(mut query) = db.prepare(sql) else {
        return false;
    };
    let found = if query.parameter_count() == 0 {
        query.query([])
    } else {
        query.query([from])
    };
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
