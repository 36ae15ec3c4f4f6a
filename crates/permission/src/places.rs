//! Places whose files are not judged by where they lie alone: directories for short-lived files, and what a process
//! has open.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use super::PermissionContext;

/// Whether a path below a directory for short-lived files is the user's own, as far as it exists, and no socket or
/// pipe of some other program. A folder there that holds the project or the home directory is no short-lived one.
pub(super) fn is_temporary(path: &Path, dir: &Path, place: &PermissionContext) -> bool {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let Ok(below) = path.strip_prefix(dir) else { return false };
    let top = |path: &Path| path.strip_prefix(dir).ok().and_then(|below| below.iter().next().map(OsStr::to_owned));
    let lasting = std::iter::once(&place.root).chain(&place.extra).chain(&place.home).filter_map(|path| top(path));
    if below.iter().next().is_some_and(|first| lasting.into_iter().any(|lasting| lasting == *first)) {
        return false;
    }
    let user = rustix::process::geteuid().as_raw();
    path.ancestors().take_while(|path| *path != dir).filter_map(|path| fs::symlink_metadata(path).ok()).all(|found| {
        let kind = found.file_type();
        found.uid() == user && !kind.is_socket() && !kind.is_fifo()
    })
}

/// The process of which a path is an open file, and no more: what is written behind one leads on from there.
pub(super) fn holder(path: &Path) -> Option<&str> {
    let names: Vec<&str> = path.iter().skip(1).map(OsStr::to_str).collect::<Option<_>>()?;
    let (process, number) = match names.as_slice() {
        ["dev", "stdin" | "stdout" | "stderr"] => ("self", "0"),
        ["dev", "fd", number] => ("self", *number),
        ["proc", process, "fd", number] | ["proc", process, "task", _, "fd", number] => (*process, *number),
        _ => return None,
    };
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(process)
}

/// Whether a path is an open file of whoever opens it, which was judged when it was opened first.
pub(super) fn is_own_descriptor(path: &Path) -> bool {
    holder(path).is_some_and(|process| matches!(process, "self" | "thread-self"))
}
