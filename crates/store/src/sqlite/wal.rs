//! A check of a write-ahead log before SQLite reads it. SQLite silently stops at the first
//! incomplete frame, but the user should learn that something was cut off.

use std::path::{Path, PathBuf};

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// Returns the path of a database's log.
pub(super) fn path(db: &Path) -> PathBuf {
    super::with_suffix(db, "-wal")
}

/// Returns the number of bytes at the end of a log that belong to it and cannot be read; `None` if
/// there are none.
pub(super) fn torn(log: &[u8]) -> Option<usize> {
    if log.is_empty() {
        return None;
    }
    let word = |at: usize| {
        log.get(at..at + 4)
            .and_then(|b| b.try_into().ok())
            .map(u32::from_be_bytes)
    };
    let big = match word(0) {
        Some(0x377f_0683) => true,
        Some(0x377f_0682) => false,
        _ => return Some(log.len()),
    };
    if log.len() < HEADER_BYTES || checksum(&log[..24], (0, 0), big) != (word(24)?, word(28)?) {
        return Some(log.len());
    }
    let page = word(8)? as usize;
    let size = FRAME_HEADER_BYTES + if page == 1 { 65_536 } else { page };
    let mut running = (word(24)?, word(28)?);
    let mut at = HEADER_BYTES;
    while let Some(frame) = log.get(at..at + size) {
        running = checksum(
            &frame[FRAME_HEADER_BYTES..],
            checksum(&frame[..8], running, big),
            big,
        );
        let stored = (word(at + 16)?, word(at + 20)?);
        if frame[8..12] != log[16..20] && frame[12..16] != log[20..24] {
            // The frame belongs to an earlier round of the log, which is overwritten from its
            // beginning. (If only one of the two salts differs, it is a damaged frame of this
            // round.)
            return None;
        }
        if running != stored || frame[8..16] != log[16..24] {
            return Some(log.len() - at);
        }
        at += size;
    }
    let rest = &log[at..];
    // A partial frame of this round is torn; one of an earlier round may follow a truncated log.
    (rest.len() >= 16 && rest[8..16] == log[16..24] || (1..16).contains(&rest.len()))
        .then_some(rest.len())
}

fn checksum(bytes: &[u8], start: (u32, u32), big: bool) -> (u32, u32) {
    let (mut a, mut b) = start;
    for pair in bytes.chunks_exact(8) {
        let read = |part: &[u8]| {
            let word = [part[0], part[1], part[2], part[3]];
            if big {
                u32::from_be_bytes(word)
            } else {
                u32::from_le_bytes(word)
            }
        };
        a = a.wrapping_add(read(&pair[..4])).wrapping_add(b);
        b = b.wrapping_add(read(&pair[4..])).wrapping_add(a);
    }
    (a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_log_is_detected_at_every_position() {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("x.db");
        let connection = rusqlite::Connection::open(&db).unwrap();
        connection
            .execute_batch(
                "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; CREATE TABLE t (x);",
            )
            .unwrap();
        for n in 0..2 {
            connection
                .execute("INSERT INTO t VALUES (?1)", [n])
                .unwrap();
        }
        let log = std::fs::read(path(&db)).unwrap();
        assert_eq!(torn(&log), None);
        for length in 1..log.len() {
            let whole = (length - HEADER_BYTES.min(length))
                .is_multiple_of(4096 + FRAME_HEADER_BYTES)
                && length >= HEADER_BYTES;
            assert_eq!(torn(&log[..length]).is_none(), whole, "cut to {length}");
        }
        for at in (0..log.len()).step_by(97) {
            let mut flipped = log.clone();
            flipped[at] ^= 1;
            assert!(torn(&flipped).is_some(), "flipped at {at}");
        }
    }
}
