//! File access of searches, through a handle on the judged directory. The walk itself uses paths,
//! because the crate for `.gitignore` does; so another process may lead it elsewhere with a symlink
//! in place of a directory. A path of the walk is accepted only if the same name is found below the
//! handle without symlinks, and only that file is opened or shown.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use crate::files::disk::{self, DIRECTORY_FLAGS};

/// The open directory of a search.
#[derive(Debug, Clone)]
pub struct SearchRoot {
    /// The path by which it was opened.
    path: PathBuf,
    handle: Arc<OwnedFd>,
}

impl SearchRoot {
    /// Opens a directory by an absolute path without symlinks.
    ///
    /// # Errors
    /// An error if there is a symlink now, and the system's errors.
    pub fn open(real: &Path) -> Result<Self, disk::Error> {
        Ok(Self {
            path: real.into(),
            handle: Arc::new(disk::open_directory(real, false)?),
        })
    }

    /// Returns a reader for files below it; each thread has its own.
    pub fn reader(&self) -> SearchReader {
        SearchReader {
            root: self.clone(),
            last: None,
        }
    }
}

/// Access to the files below a search root.
#[derive(Debug)]
pub struct SearchReader {
    root: SearchRoot,
    /// The directory of the last file, with its handle: a walk visits files directory by directory.
    last: Option<(PathBuf, OwnedFd)>,
}

impl SearchReader {
    /// Returns the modification time of a regular file below the directory; `None` for everything
    /// else.
    pub fn modified(&mut self, path: &Path) -> Option<SystemTime> {
        let stat = self
            .stat(path)
            .filter(|stat| FileType::from_raw_mode(stat.st_mode).is_file())?;
        let seconds = u64::try_from(stat.st_mtime).ok()?;
        let rest = u32::try_from(stat.st_mtime_nsec).ok()?;
        Some(SystemTime::UNIX_EPOCH + Duration::new(seconds, rest))
    }

    /// Opens a regular file below the directory; `None` for everything else. Never blocks, for
    /// instance on a pipe.
    pub fn open(&mut self, path: &Path) -> Option<File> {
        let name = path.file_name()?;
        let folder = self.folder(path)?;
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?);
        file.metadata().ok()?.is_file().then_some(file)
    }

    fn stat(&mut self, path: &Path) -> Option<Stat> {
        let name = path.file_name()?;
        rustix::fs::statat(self.folder(path)?, name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// Returns the parent directory of a path, open.
    fn folder(&mut self, path: &Path) -> Option<&OwnedFd> {
        let folder = path.parent()?;
        if folder == self.root.path {
            return Some(&self.root.handle);
        }
        if self.last.as_ref().is_none_or(|(last, _)| last != folder) {
            let rest = folder.strip_prefix(&self.root.path).ok()?;
            self.last = Some((folder.into(), below(&self.root.handle, rest)?));
        }
        self.last.as_ref().map(|(_, handle)| handle)
    }
}

/// Opens a directory below another without following symlinks.
fn below(root: &OwnedFd, rest: &Path) -> Option<OwnedFd> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        use rustix::io::Errno;
        let strict = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(root, rest, DIRECTORY_FLAGS, Mode::empty(), strict) {
            // The kernel is older than the call, or a container forbids it.
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => {}
            result => return result.ok(),
        }
    }
    let mut here: Option<OwnedFd> = None;
    for part in rest.components() {
        let Component::Normal(name) = part else {
            return None;
        };
        here = Some(step(here.as_ref().unwrap_or(root), name)?);
    }
    here
}

/// Opens a directory by its name in another one.
fn step(here: &OwnedFd, name: &OsStr) -> Option<OwnedFd> {
    rustix::fs::openat(here, name, DIRECTORY_FLAGS, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn paths_outside_the_root_are_not_found() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("ws");
        std::fs::create_dir_all(root.join("sub/deep")).unwrap();
        std::fs::create_dir_all(top.join("out/deep")).unwrap();
        std::fs::write(root.join("sub/deep/f"), "inside").unwrap();
        std::fs::write(root.join("top"), "inside").unwrap();
        std::fs::write(top.join("out/deep/f"), "a secret").unwrap();
        std::os::unix::fs::symlink("../out", root.join("link")).unwrap();
        std::os::unix::fs::symlink("../out/deep/f", root.join("linkf")).unwrap();
        let held = SearchRoot::open(&root).unwrap();
        let mut look = held.reader();
        let text = |file: Option<File>| {
            let mut text = String::new();
            file.map(|mut file| file.read_to_string(&mut text).unwrap());
            text
        };
        assert_eq!(text(look.open(&root.join("sub/deep/f"))), "inside");
        assert_eq!(text(look.open(&root.join("top"))), "inside");
        assert!(
            look.modified(&root.join("sub/deep/f")).is_some()
                && look.modified(&root.join("sub")).is_none()
        );
        assert!(
            look.stat(&root.join("linkf")).is_some()
                && look.modified(&root.join("linkf")).is_none()
        );
        for path in [
            "link/deep/f",
            "linkf",
            "../out/deep/f",
            "sub/../../out/deep/f",
            "none",
            "sub/deep",
        ] {
            assert!(look.open(&root.join(path)).is_none(), "{path}");
        }
        assert!(
            look.stat(&root.join("link/deep/f")).is_none()
                && look.stat(&top.join("out/deep/f")).is_none()
        );

        // A directory becomes a link during the search.
        std::fs::rename(root.join("sub"), root.join("aside")).unwrap();
        std::os::unix::fs::symlink("../out", root.join("sub")).unwrap();
        let mut fresh = held.reader();
        assert!(
            fresh.open(&root.join("sub/deep/f")).is_none()
                && fresh.modified(&root.join("sub/deep/f")).is_none()
        );
        assert_eq!(text(look.open(&root.join("top"))), "inside");

        // The searched directory itself becomes a link; the handle still refers to the original.
        std::fs::rename(&root, top.join("moved")).unwrap();
        std::os::unix::fs::symlink("out", &root).unwrap();
        assert!(SearchRoot::open(&root).is_err());
        assert!(held.reader().open(&root.join("deep/f")).is_none());
        assert_eq!(text(held.reader().open(&root.join("top"))), "inside");
    }
}
