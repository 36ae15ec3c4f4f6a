//! Storage in local files: one SQLite file per session, opened by one process at a time, and an
//! index database that can be rebuilt from them.
//!
//! One thread owns every connection (`thread.rs`). The writes of a session are executed in order,
//! and hardly wait for those of other sessions. Flushed data survives a power cut if the disk
//! honours flushes; data that was only written survives the end of the process.

mod background_writer;
mod beginning;
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
mod search_index;
mod session;
pub(super) mod takeover;
mod thread;
mod wal;

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

/// Appends a suffix to a path.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Describes an error of SQLite with its file and the remedy.
fn described(e: &rusqlite::Error, file: &str) -> String {
    let remedy = match e.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => "check that its disk works and has room",
        Some(ErrorCode::DiskFull) => "make room on its disk",
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            "check the permissions of the file and its directory"
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another process uses it; try again when that has ended"
        }
        _ => return format!("{file}: {e}"),
    };
    format!("{file}: {e}; {remedy}")
}

/// Converts an error of the system about a file or directory.
fn unwritable_file(path: &Path) -> impl Fn(std::io::Error) -> crate::Error {
    move |e| crate::Error::Unwritable(format!("{}: {e}", path.display()))
}

/// True if an error is caused by the contents of the file. This is the default, because a
/// flipped bit can make JSON malformed, a column a number or a text invalid UTF-8, and SQLite
/// reports each of them differently. The exceptions concern the machine: another process, the disk,
/// permissions or memory.
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
                // The SQL itself is correct, so the tables are not the expected ones.
                | rusqlite::Error::SqlInputError { .. }
        ),
    }
}
