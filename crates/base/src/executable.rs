//! Programs as files: lookup by name, and a test for executability.

use std::path::{Path, PathBuf};

/// Returns the first program with this name in the directories.
pub fn find(name: &str, dirs: impl IntoIterator<Item = impl AsRef<Path>>) -> Option<PathBuf> {
    dirs.into_iter()
        .map(|dir| dir.as_ref().join(name))
        .find(|file| is_executable(file))
}

/// Returns whether the file can be started.
pub fn is_executable(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}
