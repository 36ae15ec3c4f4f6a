//! What a search finds is looked at through a handle on the directory that was judged. The walk
//! itself goes by paths, because the crate that knows `.gitignore` does; so anybody may lead it astray
//! with a symlink in the place of a directory. What it brings is believed only where the same name is
//! found again below the handle, with no symlink on the way, and only that is opened or shown.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use super::disk::{self, HANDLE};

/// A directory that is held open.
#[derive(Debug, Clone)]
pub struct SearchRoot {
    path: PathBuf,
    handle: Arc<OwnedFd>,
}

impl SearchRoot {
    /// Opens a directory by an absolute path in which there are no symlinks.
    ///
    /// # Errors
    /// Where there is one now, and the system's.
    pub fn open(real: &Path) -> Result<Self, disk::Error> {
        Ok(Self { path: real.into(), handle: Arc::new(disk::directory(real, false)?) })
    }

    /// Who looks below it; each thread has its own.
    pub fn looker(&self) -> SearchReader {
        SearchReader { root: self.clone(), last: None }
    }
}

/// Looks below a directory, and remembers the folder it was in last: files come folder by folder.
#[derive(Debug)]
pub struct SearchReader {
    root: SearchRoot,
    last: Option<(PathBuf, OwnedFd)>,
}

impl SearchReader {
    /// When a regular file below the directory was changed; none for everything else.
    pub fn modified(&mut self, path: &Path) -> Option<SystemTime> {
        let stat = self.stat(path).filter(|stat| FileType::from_raw_mode(stat.st_mode).is_file())?;
        let (seconds, rest) = (u64::try_from(stat.st_mtime).ok()?, u32::try_from(stat.st_mtime_nsec).ok()?);
        Some(SystemTime::UNIX_EPOCH + Duration::new(seconds, rest))
    }

    /// Whether a path lies below the directory: a symlink at its end does, what it leads to does not
    /// count.
    pub fn finds(&mut self, path: &Path) -> bool {
        self.stat(path).is_some()
    }

    /// Opens a regular file below the directory. Never waits for whoever is at the other end.
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

    /// The folder of a path, held open.
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

/// Opens a directory below another, following no symlink.
fn below(root: &OwnedFd, rest: &Path) -> Option<OwnedFd> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        use rustix::io::Errno;
        let strict = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(root, rest, HANDLE, Mode::empty(), strict) {
            // The kernel is older than the call, or a container forbids it.
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => {}
            result => return result.ok(),
        }
    }
    let mut here: Option<OwnedFd> = None;
    for part in rest.components() {
        let Component::Normal(name) = part else { return None };
        here = Some(step(here.as_ref().unwrap_or(root), name)?);
    }
    here
}

fn step(here: &OwnedFd, name: &OsStr) -> Option<OwnedFd> {
    rustix::fs::openat(here, name, HANDLE, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn nothing_is_found_beyond_the_directory() {
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
        let mut look = held.looker();
        let text = |file: Option<File>| {
            let mut text = String::new();
            file.map(|mut file| file.read_to_string(&mut text).unwrap());
            text
        };
        assert_eq!(text(look.open(&root.join("sub/deep/f"))), "inside");
        assert_eq!(text(look.open(&root.join("top"))), "inside");
        assert!(look.modified(&root.join("sub/deep/f")).is_some() && look.modified(&root.join("sub")).is_none());
        assert!(look.finds(&root.join("linkf")) && look.modified(&root.join("linkf")).is_none());
        for path in ["link/deep/f", "linkf", "../out/deep/f", "sub/../../out/deep/f", "none", "sub/deep"] {
            assert!(look.open(&root.join(path)).is_none(), "{path}");
        }
        assert!(!look.finds(&root.join("link/deep/f")) && !look.finds(&top.join("out/deep/f")));

        // A folder becomes a link while the search is on its way.
        std::fs::rename(root.join("sub"), root.join("aside")).unwrap();
        std::os::unix::fs::symlink("../out", root.join("sub")).unwrap();
        let mut fresh = held.looker();
        assert!(fresh.open(&root.join("sub/deep/f")).is_none() && fresh.modified(&root.join("sub/deep/f")).is_none());
        assert_eq!(text(look.open(&root.join("top"))), "inside");

        // The directory itself becomes one: the handle stays where it was.
        std::fs::rename(&root, top.join("moved")).unwrap();
        std::os::unix::fs::symlink("out", &root).unwrap();
        assert!(SearchRoot::open(&root).is_err());
        assert!(held.looker().open(&root.join("deep/f")).is_none());
        assert_eq!(text(held.looker().open(&root.join("top"))), "inside");
    }
}
