//! The last use of files in the store, and the removal of files that have not been used for long,
//! by any process.
//!
//! The modification time of a file is the time of the last use of its content: the last attempt to
//! store it again, or the time when the last file with this content disappeared. Any process
//! removes old contents while others store theirs. So a file is first renamed, and its time is
//! checked again: if it was used in between, it is renamed back. A process that uses it later
//! renames it back or, if it is too late, writes it again. No process waits, and the file system
//! needs no locks.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::event::Timespec;
use rustix::fs::{AtFlags, CWD, Timestamps, UTIME_NOW};

/// The minimum interval between two records of the use of a file. It is much shorter than the age
/// at which files are removed, and long enough to make storing an existing content cheap.
const USE_RECORD_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// The prefix of the name of a file that is about to be removed.
const REMOVAL_PREFIX: &str = ".going-";

/// Returns whether a file exists and was last used before `limit`.
fn is_unused(path: &Path, limit: SystemTime) -> bool {
    fs::metadata(path)
        .and_then(|data| data.modified())
        .is_ok_and(|used| used < limit)
}

/// Returns the name of a file without the prefix for removal.
pub(super) fn usual_name(name: &OsStr) -> OsString {
    match name
        .to_str()
        .and_then(|name| name.strip_prefix(REMOVAL_PREFIX))
    {
        Some(usual) => usual.into(),
        None => name.to_owned(),
    }
}

/// Removes a file that is unused and not wanted, unless another process uses it in the meantime. A
/// file that a killed process has renamed for removal is checked again.
pub(super) fn remove_unused(path: &Path, limit: SystemTime, is_wanted: impl Fn(&Path) -> bool) {
    let renamed = removal_path(path);
    let was_renamed = !path.exists() && renamed.exists();
    // Each of these steps may fail because another process was faster.
    if !was_renamed
        && (!is_unused(path, limit) || is_wanted(path) || fs::rename(path, &renamed).is_err())
    {
        return;
    }
    if is_unused(&renamed, limit) && !(was_renamed && is_wanted(&renamed)) {
        fs::remove_file(&renamed).ok();
    } else {
        fs::rename(&renamed, path).ok();
    }
}

/// Returns the path of a file while it is about to be removed.
fn removal_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{REMOVAL_PREFIX}{name}"))
}

/// Returns the possible paths of a file, in the order in which to look for it. It may be renamed
/// for removal and back again in between.
pub(super) fn possible_paths(path: &Path) -> [PathBuf; 3] {
    [path.to_owned(), removal_path(path), path.to_owned()]
}

/// Records that a file is in use now. Returns whether it exists, and will not be removed.
pub(super) fn mark_used(path: &Path) -> bool {
    match fs::metadata(path).and_then(|data| data.modified()) {
        // A time in the future comes from a clock that is ahead.
        Ok(used) if used.elapsed().map_or(true, |ago| ago < USE_RECORD_INTERVAL) => return true,
        Ok(_) => touch(path),
        Err(_) => {
            let renamed = removal_path(path);
            if !renamed.exists() {
                return false;
            }
            touch(&renamed);
            fs::rename(&renamed, path).ok();
        }
    }
    // A process that renamed the file before its time was set may already have checked the time;
    // then the file is gone. A process that renames it later sees the new time.
    path.exists()
}

/// Sets the modification time of a file to now.
fn touch(path: &Path) {
    let now = || Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now(),
        last_modification: now(),
    };
    // The file is usable even if its time cannot be set.
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).ok();
}
