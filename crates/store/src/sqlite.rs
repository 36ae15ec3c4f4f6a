//! Sessions in files of this machine: one SQLite file for each, opened by one process at a time, and one index
//! database that can be rebuilt from them.
//!
//! One thread owns every connection (`thread.rs`). Writes are done in order for each session, and hardly wait for
//! what is written about others. What was flushed survives a power cut where the disk honours flushes; what was
//! merely written survives the death of the process.

mod beginning;
mod beside;
mod fill;
mod find;
mod index;
mod index_rows;
mod lock;
mod migrate;
mod open_files;
mod peek;
mod queue;
mod read_out;
mod recent;
mod salvage;
mod session;
pub(super) mod takeover;
mod thread;
mod wal;
mod words;

#[cfg(test)]
mod damage;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod power;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub(super) use thread::work;

use rusqlite::ErrorCode;

/// A path with something after its last letter.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns whether an error speaks of what the file holds. Unless it is about the machine (another process, the
/// disk, rights, memory), it does: a flipped bit makes JSON malformed, a column a number or a text no UTF-8, and
/// SQLite calls each of these something else.
fn is_damage(e: &rusqlite::Error) -> bool {
    match e.sqlite_error_code() {
        Some(code) => !matches!(
            code,
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied
                | ErrorCode::OutOfMemory
                | ErrorCode::OperationInterrupted
                | ErrorCode::OperationAborted
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::SchemaChanged
        ),
        None => matches!(
            e,
            rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::Utf8Error(..)
                // The SQL is ours, and right: the tables are not those that belong there.
                | rusqlite::Error::SqlInputError { .. }
        ),
    }
}
