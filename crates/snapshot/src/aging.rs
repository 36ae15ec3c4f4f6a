//! The time at which a file of ours was last in use, and its removal long after that, by any process.
//!
//! A file's time of modification says when its content was last in use: when somebody had it kept, though
//! it was here already, or when the last file let go of it. Contents that were not used for long are
//! removed, by any process, while others keep theirs. So one that is to be removed is put aside first and
//! looked at once more: what was used a moment ago is put back. Who uses it a moment later puts it back or,
//! where it is too late for that, writes it anew. Nobody waits, and no file system needs locks for it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::event::Timespec;
use rustix::fs::{AtFlags, CWD, Timestamps, UTIME_NOW};

/// The least time between two notes of the use of a file: much less than the age at which files are removed, and long
/// enough that a content which is there already costs little.
const USE_NOTED_EVERY: Duration = Duration::from_secs(24 * 3600);

/// The beginning of the name of a file that is about to be removed.
const ASIDE: &str = ".going-";

/// Returns true if a file is there and was last in use before `limit`.
fn is_unused(path: &Path, limit: SystemTime) -> bool {
    fs::metadata(path).and_then(|data| data.modified()).is_ok_and(|used| used < limit)
}

/// The name a file has while it is not put aside.
pub(super) fn usual_name(name: &OsStr) -> OsString {
    match name.to_str().and_then(|name| name.strip_prefix(ASIDE)) {
        Some(usual) => usual.into(),
        None => name.to_owned(),
    }
}

/// Removes a file that is unused and not wanted, unless somebody uses it meanwhile. One that a killed process has put
/// aside is judged again.
pub(super) fn remove_unused(path: &Path, limit: SystemTime, is_wanted: impl Fn(&Path) -> bool) {
    let aside = aside(path);
    let was_aside = !path.exists() && aside.exists();
    // Another process may be faster with any of this.
    if !was_aside && (!is_unused(path, limit) || is_wanted(path) || fs::rename(path, &aside).is_err()) {
        return;
    }
    if is_unused(&aside, limit) && !(was_aside && is_wanted(&aside)) {
        fs::remove_file(&aside).ok();
    } else {
        fs::rename(&aside, path).ok();
    }
}

/// The path of a file that is about to be removed.
fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{ASIDE}{name}"))
}

/// The paths at which to look for a file, in order: meanwhile it may be put aside, and back again.
pub(super) fn places(path: &Path) -> [PathBuf; 3] {
    [path.to_owned(), aside(path), path.to_owned()]
}

/// Notes that a file is in use now. Whether it is there, and stays.
pub(super) fn note_use(path: &Path) -> bool {
    let now = || Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now(), last_modification: now() };
    // Where its time cannot be set, a file is there all the same.
    let touch = |place: &Path| {
        rustix::fs::utimensat(CWD, place, &times, AtFlags::empty()).ok();
    };
    match fs::metadata(path).and_then(|data| data.modified()) {
        // A time that is still to come is one of a clock that is ahead of ours.
        Ok(used) if used.elapsed().map_or(true, |ago| ago < USE_NOTED_EVERY) => return true,
        Ok(_) => touch(path),
        Err(_) => {
            let aside = aside(path);
            touch(&aside);
            fs::rename(&aside, path).ok();
        }
    }
    // Who put it aside before its time was set may have looked at it for the last time already; who does so later
    // sees the time.
    path.exists()
}
