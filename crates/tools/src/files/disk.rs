//! File access on the disk. Only regular files are opened, nothing blocks, and at any moment a file
//! has either its old or its new content, even if the process is killed.
//!
//! The paths have their symlinks resolved, and were judged and shown to the user. In the meantime
//! any process may have replaced a directory by a symlink. So nothing is done by path: a `FileAt`
//! opens the directory without following a single symlink, and everything happens through that
//! handle.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;

/// The maximum size of a file that is read or written as a whole, in bytes.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// The reason why a file could not be read, written, renamed or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it does not exist")]
    Missing,
    #[error("it is a directory")]
    Directory,
    /// A device, a pipe, a socket.
    #[error("not a regular file")]
    Special,
    /// The size in bytes.
    #[error("it has {} MiB; files over {} MiB are not opened here", .0 >> 20, MAX_FILE_BYTES >> 20)]
    TooLarge(u64),
    /// The owner has made it read-only.
    #[error("it is read-only")]
    ReadOnly,
    /// Something else has the new name.
    #[error("something with that name exists already")]
    Taken,
    /// A directory of its path has changed since the path was resolved.
    #[error("a parent directory was moved or replaced meanwhile")]
    Moved,
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for Error {
    fn from(e: Errno) -> Self {
        Self::Io(e.into())
    }
}

/// A name in an open directory.
#[derive(Debug)]
struct FileAt {
    dir: OwnedFd,
    name: OsString,
}

impl FileAt {
    /// Opens the directory of an absolute path that has no symlinks.
    fn find(real: &Path) -> Result<Self, Error> {
        let (Some(dir), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(Error::Directory);
        };
        Ok(Self {
            dir: open_directory(dir, false)?,
            name: name.to_owned(),
        })
    }

    /// Returns the metadata of the entry. Does not follow a symlink.
    fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Opens the entry for reading if it is a regular file.
    fn open(&self) -> Result<(File, Metadata), Error> {
        // Checked before it is opened, because opening a device can have effects.
        check_regular(FileType::from_raw_mode(
            self.stat().map_err(missing)?.st_mode,
        ))?;
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(
            rustix::fs::openat(&self.dir, &self.name, flags, Mode::empty()).map_err(missing)?,
        );
        let data = file.metadata()?;
        check_regular(FileType::from_raw_mode(data.mode() as RawMode))?;
        Ok((file, data))
    }

    /// Checks that an existing file may be replaced. A rename would bypass its mode.
    fn check_writable(&self, stat: &Stat) -> Result<(), Error> {
        let allowed = rustix::fs::accessat(
            &self.dir,
            &self.name,
            rustix::fs::Access::WRITE_OK,
            AtFlags::empty(),
        );
        let free = stat.st_mode & 0o222 != 0 && allowed.is_ok();
        if free { Ok(()) } else { Err(Error::ReadOnly) }
    }

    /// Returns the metadata of the entry if it is a regular file that may be removed.
    fn removable(&self) -> Result<Stat, Error> {
        let stat = self.stat().map_err(missing)?;
        check_regular(FileType::from_raw_mode(stat.st_mode))?;
        self.check_writable(&stat)?;
        Ok(stat)
    }

    /// Checks that the directory still has the path by which it was found.
    fn check_unchanged(&self, real: &Path) -> Result<(), Error> {
        let now = Self::find(real).map_err(|_| Error::Moved)?;
        let then = rustix::fs::fstat(&self.dir)?;
        let now = rustix::fs::fstat(&now.dir)?;
        if (then.st_dev, then.st_ino) == (now.st_dev, now.st_ino) {
            Ok(())
        } else {
            Err(Error::Moved)
        }
    }
}

/// The flags to open a directory without following a symlink.
const BASE_FLAGS: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// The flags to open a directory as the base of further paths.
#[cfg(target_os = "linux")]
pub(crate) const DIRECTORY_FLAGS: OFlags = BASE_FLAGS.union(OFlags::PATH);
/// The flags to open a directory as the base of further paths.
#[cfg(not(target_os = "linux"))]
pub(crate) const DIRECTORY_FLAGS: OFlags = BASE_FLAGS;

/// Opens a directory by an absolute path without following symlinks. With `make`, creates missing
/// directories.
pub(crate) fn open_directory(path: &Path, make: bool) -> Result<OwnedFd, Error> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        match rustix::fs::openat2(
            CWD,
            path,
            DIRECTORY_FLAGS,
            Mode::empty(),
            ResolveFlags::NO_SYMLINKS,
        ) {
            Ok(dir) => return Ok(dir),
            // The kernel is older than the call, a container forbids it, or there is something to
            // create.
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => {}
            Err(Errno::NOENT) if make => {}
            Err(e) => return Err(replaced(e)),
        }
    }
    let mut here = rustix::fs::openat(CWD, "/", DIRECTORY_FLAGS, Mode::empty())?;
    for part in path.components() {
        let name = match part {
            Component::RootDir => continue,
            Component::Normal(name) => name,
            _ => return Err(Error::Moved),
        };
        here = match rustix::fs::openat(&here, name, DIRECTORY_FLAGS, Mode::empty()) {
            Err(Errno::NOENT) if make => {
                match rustix::fs::mkdirat(&here, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(e) => return Err(e.into()),
                }
                rustix::fs::openat(&here, name, DIRECTORY_FLAGS, Mode::empty()).map_err(replaced)?
            }
            opened => opened.map_err(replaced)?,
        };
    }
    Ok(here)
}

/// Maps the errors for a symlink in place of a directory, which depend on the system.
fn replaced(e: Errno) -> Error {
    if matches!(e, Errno::LOOP | Errno::NOTDIR) {
        Error::Moved
    } else {
        e.into()
    }
}

/// Creates a directory and its parents without following symlinks.
///
/// # Errors
/// [`Error::Moved`], and the system's errors.
pub fn make_directory(real: &Path) -> Result<(), Error> {
    open_directory(real, true).map(drop)
}

/// Returns the names in a directory, and whether each is a directory; a symlink to a directory
/// counts as one.
///
/// # Errors
/// [`Error::Moved`], and the system's errors.
pub fn list(real: &Path) -> Result<Vec<(OsString, bool)>, Error> {
    use std::os::unix::ffi::OsStrExt;
    let dir = open_directory(real, false)?;
    let mut names = Vec::new();
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    for entry in rustix::fs::Dir::new(rustix::fs::openat(&dir, ".", flags, Mode::empty())?)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            let stat = rustix::fs::statat(&dir, name, AtFlags::empty());
            let folder = stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
            names.push((name.to_owned(), folder));
        }
    }
    Ok(names)
}

/// Opens a regular file of any size for reading.
///
/// # Errors
/// Same as [`read`], except for the size.
pub fn open(real: &Path) -> Result<(File, Metadata), Error> {
    let spot = FileAt::find(real).map_err(|e| match e {
        Error::Io(e) if e.kind() == io::ErrorKind::NotFound => Error::Missing,
        e => e,
    })?;
    spot.open()
}

/// An identity that distinguishes two states of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    /// The size in bytes.
    pub length: u64,
    /// The time of the last write, in seconds and nanoseconds.
    modified: (i64, i64),
    /// The time of the last change of content or metadata, in seconds and nanoseconds.
    changed: (i64, i64),
}

/// Returns the identity of a file of any size.
///
/// # Errors
/// Same as [`read`], except for the size.
pub fn identify(real: &Path) -> Result<FileIdentity, Error> {
    let (_, data) = open(real)?;
    Ok(FileIdentity {
        device: data.dev(),
        inode: data.ino(),
        length: data.len(),
        modified: (data.mtime(), data.mtime_nsec()),
        changed: (data.ctime(), data.ctime_nsec()),
    })
}

/// Reads a whole file of at most [`MAX_FILE_BYTES`] bytes.
///
/// # Errors
/// An error for everything but a readable regular file, for larger files, and for paths
/// with a symlink.
pub fn read(real: &Path) -> Result<Vec<u8>, Error> {
    let (file, data) = open(real)?;
    if data.len() > MAX_FILE_BYTES {
        return Err(Error::TooLarge(data.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(data.len()).unwrap_or_default() + 1);
    // The reported size may be wrong (a growing file, one below /proc), so the limit is also
    // enforced while reading.
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()) {
        Ok(size) if size > MAX_FILE_BYTES => Err(Error::TooLarge(size)),
        _ => Ok(bytes),
    }
}

/// The number of bytes that are compared at once.
const BLOCK_BYTES: usize = 64 << 10;

/// Returns whether a file consists of these pieces in this order, without reading it as a whole.
///
/// # Errors
/// Those of [`read`], except for the size.
pub fn has_content(real: &Path, pieces: &[&[u8]]) -> Result<bool, Error> {
    let (mut file, data) = open(real)?;
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    if usize::try_from(data.len()).ok() != Some(length) {
        return Ok(false);
    }
    let mut block = vec![0; BLOCK_BYTES];
    for expected in pieces.iter().flat_map(|piece| piece.chunks(BLOCK_BYTES)) {
        let found = &mut block[..expected.len()];
        match file.read_exact(found) {
            Ok(()) if found == expected => {}
            Ok(()) => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(e) => return Err(e.into()),
        }
    }
    // The file may have grown in the meantime.
    Ok(file.read(&mut block)? == 0)
}

/// Replaces or creates a file atomically: a new file in the same directory is renamed. Mode, owner
/// and extended attributes are preserved. The directory must exist.
///
/// Not synced: a power failure may restore the old content, but a killed process cannot leave a
/// mixture.
///
/// # Errors
/// An error for read-only files, for everything but a regular file, for a directory that
/// has moved, and the system's errors; the old file is untouched then.
pub fn write(real: &Path, bytes: &[u8]) -> Result<(), Error> {
    replace(real, bytes, || {})
}

/// Does the same as [`write`], and calls `meanwhile` just before the rename; only tests use that.
pub(crate) fn replace(real: &Path, bytes: &[u8], meanwhile: impl FnOnce()) -> Result<(), Error> {
    if let Ok(size) = u64::try_from(bytes.len())
        && size > MAX_FILE_BYTES
    {
        return Err(Error::TooLarge(size));
    }
    let spot = FileAt::find(real)?;
    let old = match spot.stat() {
        Ok(stat) => {
            check_regular(FileType::from_raw_mode(stat.st_mode))?;
            spot.check_writable(&stat)?;
            Some(stat)
        }
        Err(Errno::NOENT) => None,
        Err(e) => return Err(e.into()),
    };
    // A new file gets the mode 0666 minus the user's umask, as from any other program.
    let mode = old.as_ref().map_or(0o666, |old| old.st_mode & 0o7777);
    let first = if old.is_some() { 0o600 } else { mode };
    let (mut fresh, name) = create_sibling(&spot, first)?;
    let fill = || {
        fresh.write_all(bytes)?;
        if let Some(old) = &old {
            copy_owner_and_attributes(&spot, old, &fresh);
            rustix::fs::fchmod(&fresh, Mode::from_raw_mode(mode))?;
        }
        meanwhile();
        spot.check_unchanged(real)?;
        rustix::fs::renameat(&spot.dir, &name, &spot.dir, &spot.name).map_err(Error::from)
    };
    let done = fill();
    if done.is_err() {
        discard(&spot, &name);
    }
    done
}

/// Removes an unfinished file. If that fails too, its name shows that it is a leftover.
fn discard(spot: &FileAt, name: &str) {
    rustix::fs::unlinkat(&spot.dir, name, AtFlags::empty()).ok();
}

/// Creates a new file with a temporary name in the same directory. Returns it with its name.
fn create_sibling(spot: &FileAt, mode: RawMode) -> Result<(File, String), Error> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut tries = 0;
    loop {
        let name = temporary_name();
        match rustix::fs::openat(&spot.dir, &name, flags, Mode::from_raw_mode(mode)) {
            Ok(file) => return Ok((File::from(file), name)),
            Err(Errno::EXIST) if tries < 16 => tries += 1,
            Err(e) => return Err(e.into()),
        }
    }
}

/// The beginning of the names of unfinished files; the process id follows.
const PREFIX: &str = ".adjutant-";
/// The end of the names of unfinished files.
const SUFFIX: &str = ".tmp";

/// Returns the beginning of the names of this process's unfinished files.
fn prefix() -> String {
    format!("{PREFIX}{}-", std::process::id())
}

/// Returns a name for an unfinished file that is most likely unused.
fn temporary_name() -> String {
    let tail: String = std::iter::repeat_with(fastrand::alphanumeric)
        .take(8)
        .collect();
    format!("{}{tail}{SUFFIX}", prefix())
}

/// Returns the pattern of the names of unfinished files, for callers that create them in their own
/// way.
pub fn temporary_names() -> TemporaryNames {
    TemporaryNames(prefix())
}

/// The names of this process's unfinished files, of which [`remove_leftovers`] removes those of
/// killed processes.
pub struct TemporaryNames(String);

impl TemporaryNames {
    fn builder(&self) -> tempfile::Builder<'_, 'static> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(&self.0).suffix(SUFFIX);
        builder
    }

    /// Creates something, such as a link, under such a name with `make`.
    ///
    /// # Errors
    /// The errors of `make`.
    pub fn make_in<R>(
        &self,
        dir: &Path,
        make: impl FnMut(&Path) -> io::Result<R>,
    ) -> io::Result<tempfile::NamedTempFile<R>> {
        self.builder().make_in(dir, make)
    }

    /// Creates a file under such a name.
    ///
    /// # Errors
    /// The system's errors.
    pub fn tempfile_in(&self, dir: &Path) -> io::Result<tempfile::NamedTempFile> {
        self.builder().tempfile_in(dir)
    }
}

/// Removes the unfinished files of killed processes from a directory.
pub fn remove_leftovers(dir: &Path) {
    let dead = |name: &OsStr| {
        let name = name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        let pid = rustix::process::Pid::from_raw(name.split_once('-')?.0.parse().ok()?)?;
        Some(rustix::process::test_kill_process(pid) == Err(Errno::SRCH))
    };
    for (name, folder) in list(dir).unwrap_or_default() {
        if !folder && dead(&name) == Some(true) {
            // Another process may have been faster.
            std::fs::remove_file(dir.join(name)).ok();
        }
    }
}

/// Removes a file.
///
/// # Errors
/// An error for read-only files, for everything but a regular file, and the system's
/// errors.
pub fn remove(real: &Path) -> Result<(), Error> {
    let spot = FileAt::find(real)?;
    spot.removable()?;
    Ok(rustix::fs::unlinkat(
        &spot.dir,
        &spot.name,
        AtFlags::empty(),
    )?)
}

/// Renames a file to an unused name in an existing directory. Its bytes, mode, owner, times and
/// attributes are preserved. On another file system it is copied, as far as the system allows.
///
/// # Errors
/// Same as [`remove`], and an error if the name is in use; the file keeps its old name
/// then.
pub fn rename(real: &Path, to: &Path) -> Result<(), Error> {
    let spot = FileAt::find(real)?;
    let fresh = FileAt::find(to)?;
    let stat = spot.removable()?;
    match give_name((&spot.dir, &spot.name), (&fresh.dir, &fresh.name)) {
        Err(Errno::XDEV) => {}
        done => return done.map_err(taken),
    }
    copy(&spot, &stat, &fresh, to)?;
    rustix::fs::unlinkat(&spot.dir, &spot.name, AtFlags::empty()).map_err(|e| {
        // Without this, the file would exist twice.
        rustix::fs::unlinkat(&fresh.dir, &fresh.name, AtFlags::empty()).ok();
        e.into()
    })
}

/// Copies a file with its metadata to an unused name.
fn copy(spot: &FileAt, stat: &Stat, fresh: &FileAt, to: &Path) -> Result<(), Error> {
    let (mut file, data) = spot.open()?;
    let (mut copied, name) = create_sibling(fresh, 0o600)?;
    let mut fill = || {
        io::copy(&mut file, &mut copied)?;
        copy_owner_and_attributes(spot, stat, &copied);
        rustix::fs::fchmod(&copied, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
        copied.set_modified(data.modified()?)?;
        fresh.check_unchanged(to)?;
        give_name((&fresh.dir, name.as_ref()), (&fresh.dir, &fresh.name)).map_err(taken)
    };
    let done = fill();
    if done.is_err() {
        discard(fresh, &name);
    }
    done
}

/// Renames an entry, each given by its directory and name, without replacing an existing one.
fn give_name(from: (&OwnedFd, &OsStr), to: (&OwnedFd, &OsStr)) -> Result<(), Errno> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    match rustix::fs::renameat_with(
        from.0,
        from.1,
        to.0,
        to.1,
        rustix::fs::RenameFlags::NOREPLACE,
    ) {
        // The kernel or the file system does not support the call, or a container forbids it.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP | Errno::PERM) => {}
        done => return done,
    }
    match rustix::fs::statat(to.0, to.1, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => rustix::fs::renameat(from.0, from.1, to.0, to.1),
        Err(e) => Err(e),
    }
}

/// Maps the error for an existing new name.
fn taken(e: Errno) -> Error {
    if e == Errno::EXIST {
        Error::Taken
    } else {
        e.into()
    }
}

/// A file that was renamed for removal. It gets its name back unless it is removed.
#[derive(Debug)]
pub struct SetAside {
    /// The original name.
    spot: FileAt,
    /// Its name in the meantime.
    name: String,
    /// True if its removal or return was attempted, so that dropping it has no effect.
    is_finished: bool,
}

/// Renames a file for a removal that can be undone, whatever the file contains.
///
/// # Errors
/// Same as [`remove`].
pub fn set_aside(real: &Path) -> Result<SetAside, Error> {
    let spot = FileAt::find(real)?;
    spot.removable()?;
    let mut tries = 0;
    loop {
        let name = temporary_name();
        match give_name((&spot.dir, &spot.name), (&spot.dir, name.as_ref())) {
            Ok(()) => {
                return Ok(SetAside {
                    spot,
                    name,
                    is_finished: false,
                });
            }
            Err(Errno::EXIST) if tries < 16 => tries += 1,
            Err(e) => return Err(e.into()),
        }
    }
}

impl SetAside {
    /// Removes the file permanently.
    ///
    /// # Errors
    /// The system's errors; the file keeps its other name then.
    pub fn remove(mut self) -> Result<(), Error> {
        self.is_finished = true;
        Ok(rustix::fs::unlinkat(
            &self.spot.dir,
            &self.name,
            AtFlags::empty(),
        )?)
    }

    /// Restores its name.
    ///
    /// # Errors
    /// The name that it still has, and the reason.
    pub fn back(mut self) -> Result<(), (String, Error)> {
        self.is_finished = true;
        self.give_back().map_err(|e| (self.name.clone(), taken(e)))
    }

    fn give_back(&self) -> Result<(), Errno> {
        give_name(
            (&self.spot.dir, self.name.as_ref()),
            (&self.spot.dir, &self.spot.name),
        )
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        if !self.is_finished {
            self.give_back().ok();
        }
    }
}

/// Returns an error unless this is the type of a regular file.
fn check_regular(kind: FileType) -> Result<(), Error> {
    match kind {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Error::Directory),
        _ => Err(Error::Special),
    }
}

/// Maps the error for a file that does not exist.
fn missing(e: Errno) -> Error {
    if e == Errno::NOENT {
        Error::Missing
    } else {
        e.into()
    }
}

/// Gives the file `fresh` the owner and the extended attributes of the file at `spot`, as far as
/// the system allows. If the owner cannot be set, at least content and mode are as before.
fn copy_owner_and_attributes(spot: &FileAt, old: &Stat, fresh: &File) {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    if (old.st_uid, old.st_gid) != (uid, gid) {
        let owner = (old.st_uid != uid).then(|| rustix::fs::Uid::from_raw(old.st_uid));
        let group = Some(rustix::fs::Gid::from_raw(old.st_gid));
        if rustix::fs::fchown(fresh, owner, group).is_err() {
            rustix::fs::fchown(fresh, None, group).ok();
        }
    }
    let Ok((file, _)) = spot.open() else { return };
    let mut names = vec![0_u8; 4 << 10];
    let Ok(size) = rustix::fs::flistxattr(&file, &mut names[..]) else {
        return;
    };
    for name in names[..size]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0_u8; 64 << 10];
        if let Ok(size) = rustix::fs::fgetxattr(&file, name, &mut value[..]) {
            rustix::fs::fsetxattr(fresh, name, &value[..size], rustix::fs::XattrFlags::empty())
                .ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    /// A temporary directory and its canonical path.
    fn fixture() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(dir.path()).unwrap();
        (dir, real)
    }

    #[test]
    fn write_preserves_mode_and_leaves_nothing_behind() {
        let (_dir, real) = fixture();
        let path = |name: &str| real.join(name);
        for mode in [0o755, 0o644, 0o600, 0o640] {
            std::fs::write(path("f"), "old").unwrap();
            std::fs::set_permissions(path("f"), Permissions::from_mode(mode)).unwrap();
            write(&path("f"), b"new").unwrap();
            assert_eq!(std::fs::metadata(path("f")).unwrap().mode() & 0o7777, mode);
        }
        std::fs::hard_link(path("f"), path("hard")).unwrap();
        write(&path("hard"), b"other").unwrap();
        assert_eq!(std::fs::read(path("f")).unwrap(), b"new");
        std::fs::set_permissions(path("f"), Permissions::from_mode(0o444)).unwrap();
        assert!(matches!(write(&path("f"), b"x"), Err(Error::ReadOnly)));
        assert!(matches!(remove(&path("f")), Err(Error::ReadOnly)));
        assert!(matches!(write(&real, b"x"), Err(Error::Directory)));
        assert!(matches!(write(&path("no/f"), b"x"), Err(Error::Io(_))));
        write(&path("new"), b"x").unwrap();
        let umask = rustix::process::umask(Mode::from_raw_mode(0o022));
        rustix::process::umask(umask);
        #[expect(
            clippy::useless_conversion,
            reason = "other systems have fewer bits here"
        )]
        let open = 0o666 & !u32::from(umask.as_raw_mode());
        assert_eq!(std::fs::metadata(path("new")).unwrap().mode() & 0o777, open);
        let left = std::fs::read_dir(&real).unwrap().flatten();
        assert!(
            left.into_iter()
                .all(|entry| !entry.file_name().to_string_lossy().contains(".tmp"))
        );
    }

    #[test]
    fn renamed_file_preserves_content_and_metadata() {
        let (_dir, real) = fixture();
        let path = |name: &str| real.join(name);
        let state = |name: &str| {
            let data = std::fs::symlink_metadata(path(name)).unwrap();
            (
                data.mode(),
                data.ino(),
                data.modified().unwrap(),
                std::fs::read(path(name)).unwrap(),
            )
        };
        std::fs::write(path("f"), b"\xff\0").unwrap();
        std::fs::write(path("other"), "mine").unwrap();
        std::fs::create_dir(path("dir")).unwrap();
        std::fs::set_permissions(path("f"), Permissions::from_mode(0o750)).unwrap();
        let before = state("f");
        rename(&path("f"), &path("dir/g")).unwrap();
        assert_eq!(state("dir/g"), before);
        assert!(!path("f").exists());
        // An entry that was created in the meantime is neither replaced nor followed.
        std::os::unix::fs::symlink("nowhere", path("link")).unwrap();
        for name in ["other", "dir", "link"] {
            let moved = rename(&path("dir/g"), &path(name));
            assert!(matches!(moved, Err(Error::Taken)), "{name}: {moved:?}");
        }
        assert!(matches!(
            rename(&path("link"), &path("new")),
            Err(Error::Special)
        ));
        assert!(matches!(
            rename(&path("no"), &path("new")),
            Err(Error::Missing)
        ));
        // The same by copying, as between file systems.
        let spot = FileAt::find(&path("dir/g")).unwrap();
        let fresh = FileAt::find(&path("copy")).unwrap();
        copy(&spot, &spot.removable().unwrap(), &fresh, &path("copy")).unwrap();
        let copied = state("copy");
        assert_eq!(
            (copied.0, copied.2, copied.3),
            (before.0, before.2, before.3.clone())
        );
        assert!(matches!(
            copy(&spot, &spot.removable().unwrap(), &fresh, &path("copy")),
            Err(Error::Taken)
        ));
        // The same if a removal is undone, explicitly or by dropping.
        set_aside(&path("dir/g")).unwrap().back().unwrap();
        drop(set_aside(&path("dir/g")).unwrap());
        assert_eq!(state("dir/g"), before);
        let aside = set_aside(&path("dir/g")).unwrap();
        assert!(!path("dir/g").exists());
        std::fs::write(path("dir/g"), "somebody's").unwrap();
        let (name, why) = aside.back().unwrap_err();
        assert!(matches!(why, Error::Taken), "{why:?}");
        assert_eq!(
            (
                std::fs::read(path("dir").join(name)).unwrap(),
                state("dir/g").3
            ),
            (before.3, b"somebody's".into())
        );
        set_aside(&path("dir/g")).unwrap().remove().unwrap();
        assert!(!path("dir/g").exists());
        std::fs::set_permissions(path("copy"), Permissions::from_mode(0o444)).unwrap();
        assert!(matches!(
            rename(&path("copy"), &path("new")),
            Err(Error::ReadOnly)
        ));
        assert!(matches!(set_aside(&path("copy")), Err(Error::ReadOnly)));
    }

    #[test]
    fn content_is_compared_in_pieces() {
        let (_dir, real) = fixture();
        let path = real.join("f");
        let text = vec![b'a'; 2 * BLOCK_BYTES + 3];
        let mut other = text.clone();
        other[BLOCK_BYTES] = b'b';
        std::fs::write(&path, &text).unwrap();
        let table: [(&[&[u8]], bool); 7] = [
            (&[&text], true),
            (&[&text[..1], &text[1..]], true),
            (&[b"", &text, b""], true),
            (&[&other], false),
            (&[&text[1..]], false),
            (&[&text, b"a"], false),
            (&[], false),
        ];
        for (pieces, expected) in table {
            let lengths: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
            let found = has_content(&path, pieces).unwrap();
            assert_eq!(found, expected, "{lengths:?}");
        }
        std::fs::write(&path, "").unwrap();
        assert!(has_content(&path, &[]).unwrap());
        let missing = has_content(&real.join("no"), &[]);
        assert!(matches!(missing, Err(Error::Missing)), "{missing:?}");
    }

    #[test]
    fn only_regular_files_are_opened() {
        let (_dir, real) = fixture();
        let path = |name: &str| real.join(name);
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path("link")).unwrap();
        assert!(matches!(read(&path("fifo")), Err(Error::Special)));
        assert!(matches!(write(&path("fifo"), b""), Err(Error::Special)));
        assert!(matches!(read(&path("link")), Err(Error::Special)));
        assert!(matches!(read(Path::new("/dev/zero")), Err(Error::Special)));
        assert!(matches!(read(&real), Err(Error::Directory)));
        assert!(matches!(read(&path("no")), Err(Error::Missing)));
        File::create(path("large"))
            .unwrap()
            .set_len(MAX_FILE_BYTES + 1)
            .unwrap();
        assert!(matches!(read(&path("large")), Err(Error::TooLarge(_))));
    }

    #[test]
    fn symlink_in_place_of_directory_is_not_followed() {
        let (_dir, real) = fixture();
        let path = |name: &str| real.join(name);
        std::fs::create_dir_all(path("out/deep")).unwrap();
        std::fs::write(path("out/f"), "secret").unwrap();
        std::os::unix::fs::symlink("out", path("in")).unwrap();
        let moved =
            |result: Result<(), Error>| assert!(matches!(result, Err(Error::Moved)), "{result:?}");
        for file in ["in/f", "in/deep/f"] {
            moved(read(&path(file)).map(drop));
            moved(write(&path(file), b"x"));
            moved(remove(&path(file)));
        }
        moved(list(&path("in")).map(drop));
        moved(make_directory(&path("in/new")));
        moved(make_directory(&path("in/new/deeper")));
        assert_eq!(std::fs::read(path("out/f")).unwrap(), b"secret");
        assert_eq!(list(&path("out")).unwrap().len(), 2);
        make_directory(&path("made/deep")).unwrap();
        write(&path("made/deep/f"), b"x").unwrap();
        assert_eq!(list(&path("made")).unwrap(), [("deep".into(), true)]);
    }

    #[test]
    fn directory_moved_during_a_write_is_not_written_to() {
        let (_dir, real) = fixture();
        let path = |name: &str| real.join(name);
        for what in ["moved", "replaced"] {
            std::fs::create_dir_all(path("d")).unwrap();
            std::fs::write(path("d/f"), "old").unwrap();
            let aside = path(what);
            let written = replace(&path("d/f"), b"new", || {
                std::fs::rename(path("d"), &aside).unwrap();
                if what == "replaced" {
                    std::os::unix::fs::symlink(&aside, path("d")).unwrap();
                }
            });
            assert!(matches!(written, Err(Error::Moved)), "{what}: {written:?}");
            assert_eq!(std::fs::read(aside.join("f")).unwrap(), b"old", "{what}");
            assert_eq!(list(&aside).unwrap(), [("f".into(), false)], "{what}");
        }
    }
}
