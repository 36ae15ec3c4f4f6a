//! Programs as files: finding one by its name, and telling whether a file can be started.

use std::path::{Path, PathBuf};

/// Returns the program of that name in the first of the directories that has one.
pub fn find(name: &str, dirs: impl IntoIterator<Item = impl AsRef<Path>>) -> Option<PathBuf> {
    dirs.into_iter().map(|dir| dir.as_ref().join(name)).find(|file| is_executable(file))
}

/// Whether a file can be started.
pub fn is_executable(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}
