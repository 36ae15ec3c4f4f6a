//! Paths that need a look at the file: those in temporary directories, which may belong to other
//! users, and open files of processes in `/proc`.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use super::PermissionContext;

/// Returns whether a path below a temporary directory belongs to the user, as far as it exists, and
/// is not a socket or pipe.
///
/// A directory there that contains the project or the home directory is not temporary.
pub(super) fn is_temporary(path: &Path, dir: &Path, context: &PermissionContext) -> bool {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let Ok(below) = path.strip_prefix(dir) else {
        return false;
    };
    let top_level = |path: &Path| {
        path.strip_prefix(dir)
            .ok()
            .and_then(|below| below.iter().next().map(OsStr::to_owned))
    };
    let lasting = std::iter::once(&context.root)
        .chain(&context.extra_dirs)
        .chain(&context.home);
    let mut lasting = lasting.filter_map(|path| top_level(path));
    if below
        .iter()
        .next()
        .is_some_and(|first| lasting.any(|lasting| lasting == *first))
    {
        return false;
    }
    let user = rustix::process::geteuid().as_raw();
    path.ancestors()
        .take_while(|path| *path != dir)
        .filter_map(|path| fs::symlink_metadata(path).ok())
        .all(|found| {
            let kind = found.file_type();
            found.uid() == user && !kind.is_socket() && !kind.is_fifo()
        })
}

/// Returns the process whose open file the path names. `None` for a path below such a file, which
/// leads on from there.
pub(super) fn holder(path: &Path) -> Option<&str> {
    let names: Vec<&str> = path
        .iter()
        .skip(1)
        .map(OsStr::to_str)
        .collect::<Option<_>>()?;
    let (process, number) = match names.as_slice() {
        ["dev", "stdin" | "stdout" | "stderr"] => ("self", "0"),
        ["dev", "fd", number] => ("self", *number),
        ["proc", process, "fd", number] | ["proc", process, "task", _, "fd", number] => {
            (*process, *number)
        }
        _ => return None,
    };
    number
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(process)
}

/// Returns whether a path is an open file of the process that opens it. Such a file was judged when
/// it was first opened.
pub(super) fn is_own_descriptor(path: &Path) -> bool {
    holder(path).is_some_and(|process| matches!(process, "self" | "thread-self"))
}
