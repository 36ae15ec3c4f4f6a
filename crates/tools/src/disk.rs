//! Bytes from and to the disk. Only regular files are opened, nothing blocks, and a file is either
//! the old one or the new one, at any moment, also when the process is killed.
//!
//! Paths come here with their symlinks followed, judged and shown to the user. In between anybody
//! may have put a symlink in the place of a directory. So nothing is done by a path: a `FileAt` opens
//! the directory without following a single symlink, and everything happens through that handle.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;

/// The largest file that is read or written whole, in bytes.
pub const LARGEST: u64 = 64 << 20;

/// Why bytes could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it does not exist")]
    Missing,
    #[error("it is a directory")]
    Directory,
    /// A device, a pipe, a socket.
    #[error("it is not a regular file")]
    Special,
    #[error("it has {} MiB; files over {} MiB are not opened here", .0 >> 20, LARGEST >> 20)]
    TooLarge(u64),
    /// The owner does not want it written.
    #[error("it is read-only")]
    ReadOnly,
    /// Something else has the name it was to get.
    #[error("there is something of that name")]
    Taken,
    /// It is not where it was when it was looked at.
    #[error("a directory on the way to it was moved or replaced meanwhile")]
    Moved,
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for Error {
    fn from(e: Errno) -> Self {
        Self::Io(e.into())
    }
}

/// A name in a directory that is held open.
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
        Ok(Self { dir: directory(dir, false)?, name: name.to_owned() })
    }

    /// What is there. A symlink is not followed.
    fn look(&self) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn open(&self) -> Result<(File, Metadata), Error> {
        // Looked at before it is opened: opening a device can have effects.
        kind(FileType::from_raw_mode(self.look().map_err(missing)?.st_mode))?;
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.dir, &self.name, flags, Mode::empty()).map_err(missing)?);
        let data = file.metadata()?;
        kind(FileType::from_raw_mode(data.mode() as RawMode))?;
        Ok((file, data))
    }

    /// Whether a file that exists may be replaced. A rename would get around its mode.
    fn writable(&self, stat: &Stat) -> Result<(), Error> {
        let allowed = rustix::fs::accessat(&self.dir, &self.name, rustix::fs::Access::WRITE_OK, AtFlags::empty());
        let free = stat.st_mode & 0o222 != 0 && allowed.is_ok();
        if free { Ok(()) } else { Err(Error::ReadOnly) }
    }

    /// What is there, if it is a regular file that may go from here.
    fn removable(&self) -> Result<Stat, Error> {
        let stat = self.look().map_err(missing)?;
        kind(FileType::from_raw_mode(stat.st_mode))?;
        self.writable(&stat)?;
        Ok(stat)
    }

    /// Whether its directory still has the name it was found by.
    fn still(&self, real: &Path) -> Result<(), Error> {
        let now = Self::find(real).map_err(|_| Error::Moved)?;
        let (then, now) = (rustix::fs::fstat(&self.dir)?, rustix::fs::fstat(&now.dir)?);
        if (then.st_dev, then.st_ino) == (now.st_dev, now.st_ino) { Ok(()) } else { Err(Error::Moved) }
    }
}

const STEP: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// How a directory is held.
#[cfg(target_os = "linux")]
pub(super) const HANDLE: OFlags = STEP.union(OFlags::PATH);
/// How a directory is held.
#[cfg(not(target_os = "linux"))]
pub(super) const HANDLE: OFlags = STEP;

/// Opens a directory by an absolute path, following no symlink. With `make`, what is missing on the
/// way is made.
pub(super) fn directory(path: &Path, make: bool) -> Result<OwnedFd, Error> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        match rustix::fs::openat2(CWD, path, HANDLE, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(dir) => return Ok(dir),
            // The kernel is older than the call, or a container forbids it; or there is something to make.
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => {}
            Err(Errno::NOENT) if make => {}
            Err(e) => return Err(replaced(e)),
        }
    }
    let mut here = rustix::fs::openat(CWD, "/", HANDLE, Mode::empty())?;
    for part in path.components() {
        let name = match part {
            Component::RootDir => continue,
            Component::Normal(name) => name,
            _ => return Err(Error::Moved),
        };
        here = match rustix::fs::openat(&here, name, HANDLE, Mode::empty()) {
            Err(Errno::NOENT) if make => {
                match rustix::fs::mkdirat(&here, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(e) => return Err(e.into()),
                }
                rustix::fs::openat(&here, name, HANDLE, Mode::empty()).map_err(replaced)?
            }
            opened => opened.map_err(replaced)?,
        };
    }
    Ok(here)
}

/// A link where a directory was asked for is either, depending on the system.
fn replaced(e: Errno) -> Error {
    if matches!(e, Errno::LOOP | Errno::NOTDIR) { Error::Moved } else { e.into() }
}

/// Makes a directory and those above it, following no symlink.
///
/// # Errors
/// [`Error::Moved`], and the system's.
pub fn make_directory(real: &Path) -> Result<(), Error> {
    directory(real, true).map(drop)
}

/// The names in a directory, and whether each is a directory; a symlink to one counts as one.
///
/// # Errors
/// [`Error::Moved`], and the system's.
pub fn list(real: &Path) -> Result<Vec<(OsString, bool)>, Error> {
    use std::os::unix::ffi::OsStrExt;
    let dir = directory(real, false)?;
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

/// Opens a regular file of any size to read it.
///
/// # Errors
/// As [`read`], but for the size.
pub fn open(real: &Path) -> Result<(File, Metadata), Error> {
    let spot = FileAt::find(real).map_err(|e| match e {
        Error::Io(e) if e.kind() == io::ErrorKind::NotFound => Error::Missing,
        e => e,
    })?;
    spot.open()
}

/// Tells two states of a file apart without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    /// In bytes.
    pub length: u64,
    /// Seconds and nanoseconds: when its content was written, and when anything of it was changed last.
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The state of a file of any size.
///
/// # Errors
/// As [`read`], but for the size.
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

/// Reads a whole file of at most [`LARGEST`] bytes.
///
/// # Errors
/// For everything but a regular file that may be read, for larger ones, and where a symlink is on
/// the way.
pub fn read(real: &Path) -> Result<Vec<u8>, Error> {
    let (file, data) = open(real)?;
    if data.len() > LARGEST {
        return Err(Error::TooLarge(data.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(data.len()).unwrap_or_default() + 1);
    // The size may be a lie (a file that grows, one below /proc): the limit holds while reading.
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()) {
        Ok(size) if size > LARGEST => Err(Error::TooLarge(size)),
        _ => Ok(bytes),
    }
}

/// Replaces or makes a file in one move: a new file beside it takes its name. Mode, owner and
/// extended attributes stay as they were. The directory must exist.
///
/// Not synced: a power cut may bring back the old content, a killed process cannot leave a mixture.
///
/// # Errors
/// For read-only files, everything that is no regular file, a directory that is not where it was,
/// and what the system refuses; the old file is untouched then.
pub fn write(real: &Path, bytes: &[u8]) -> Result<(), Error> {
    replace(real, bytes, || {})
}

/// `meanwhile` is what happens before the new file takes its name: nothing, but in tests.
pub(super) fn replace(real: &Path, bytes: &[u8], meanwhile: impl FnOnce()) -> Result<(), Error> {
    if let Ok(size) = u64::try_from(bytes.len())
        && size > LARGEST
    {
        return Err(Error::TooLarge(size));
    }
    let spot = FileAt::find(real)?;
    let old = match spot.look() {
        Ok(stat) => {
            kind(FileType::from_raw_mode(stat.st_mode))?;
            spot.writable(&stat)?;
            Some(stat)
        }
        Err(Errno::NOENT) => None,
        Err(e) => return Err(e.into()),
    };
    // A new file gets what the user's umask leaves of 0666, as from any other program.
    let mode = old.as_ref().map_or(0o666, |old| old.st_mode & 0o7777);
    let first = if old.is_some() { 0o600 } else { mode };
    let (mut fresh, name) = beside(&spot, first)?;
    let fill = || {
        fresh.write_all(bytes)?;
        if let Some(old) = &old {
            take_over(&spot, old, &fresh);
            rustix::fs::fchmod(&fresh, Mode::from_raw_mode(mode))?;
        }
        meanwhile();
        spot.still(real)?;
        rustix::fs::renameat(&spot.dir, &name, &spot.dir, &spot.name).map_err(Error::from)
    };
    let done = fill();
    if done.is_err() {
        discard(&spot, &name);
    }
    done
}

/// Removes a file that was not finished. What cannot be removed either is a leftover with a name that says what it is.
fn discard(spot: &FileAt, name: &str) {
    rustix::fs::unlinkat(&spot.dir, name, AtFlags::empty()).ok();
}

/// A new file in the same directory.
fn beside(spot: &FileAt, mode: RawMode) -> Result<(File, String), Error> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut tries = 0;
    loop {
        let name = unused();
        match rustix::fs::openat(&spot.dir, &name, flags, Mode::from_raw_mode(mode)) {
            Ok(file) => return Ok((File::from(file), name)),
            Err(Errno::EXIST) if tries < 16 => tries += 1,
            Err(e) => return Err(e.into()),
        }
    }
}

const PREFIX: &str = ".adjutant-";
const SUFFIX: &str = ".tmp";

/// How names of files begin that are not finished: they say whose they are.
fn prefix() -> String {
    format!("{PREFIX}{}-", std::process::id())
}

/// Such a name, most likely one that nothing has.
fn unused() -> String {
    let tail: String = std::iter::repeat_with(fastrand::alphanumeric).take(8).collect();
    format!("{}{tail}{SUFFIX}", prefix())
}

/// A name for a file that is not finished, for those who make it in a way of their own.
pub fn fresh_name() -> TemporaryName {
    TemporaryName(prefix())
}

pub struct TemporaryName(String);

impl TemporaryName {
    fn builder(&self) -> tempfile::Builder<'_, 'static> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(&self.0).suffix(SUFFIX);
        builder
    }

    /// Makes something with such a name.
    ///
    /// # Errors
    /// What `make` says.
    pub fn make_in<R>(
        &self,
        dir: &Path,
        make: impl FnMut(&Path) -> io::Result<R>,
    ) -> io::Result<tempfile::NamedTempFile<R>> {
        self.builder().make_in(dir, make)
    }

    /// Makes a file with such a name.
    ///
    /// # Errors
    /// The system's.
    pub fn tempfile_in(&self, dir: &Path) -> io::Result<tempfile::NamedTempFile> {
        self.builder().tempfile_in(dir)
    }
}

/// Removes what processes that were killed have left unfinished in a directory.
pub fn sweep(dir: &Path) {
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
/// For read-only files, everything that is no regular file, and what the system refuses.
pub fn remove(real: &Path) -> Result<(), Error> {
    let spot = FileAt::find(real)?;
    spot.removable()?;
    Ok(rustix::fs::unlinkat(&spot.dir, &spot.name, AtFlags::empty())?)
}

/// Gives a file another name, which nothing may have yet, in a directory that exists. It stays what it is: its bytes, mode,
/// owner, times and attributes. On another file system it is copied, as far as the system lets us.
///
/// # Errors
/// As [`remove`], and where the name is taken; the file is where it was then.
pub fn rename(real: &Path, to: &Path) -> Result<(), Error> {
    let (spot, fresh) = (FileAt::find(real)?, FileAt::find(to)?);
    let stat = spot.removable()?;
    match give_name((&spot.dir, &spot.name), (&fresh.dir, &fresh.name)) {
        Err(Errno::XDEV) => {}
        done => return done.map_err(taken),
    }
    copy(&spot, &stat, &fresh, to)?;
    rustix::fs::unlinkat(&spot.dir, &spot.name, AtFlags::empty()).map_err(|e| {
        // It is there twice now, and once before.
        rustix::fs::unlinkat(&fresh.dir, &fresh.name, AtFlags::empty()).ok();
        e.into()
    })
}

/// Copies a file to a name that nothing has, with all that belongs to it.
fn copy(spot: &FileAt, stat: &Stat, fresh: &FileAt, to: &Path) -> Result<(), Error> {
    let (mut file, data) = spot.open()?;
    let (mut copied, name) = beside(fresh, 0o600)?;
    let mut fill = || {
        io::copy(&mut file, &mut copied)?;
        take_over(spot, stat, &copied);
        rustix::fs::fchmod(&copied, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
        copied.set_modified(data.modified()?)?;
        fresh.still(to)?;
        give_name((&fresh.dir, name.as_ref()), (&fresh.dir, &fresh.name)).map_err(taken)
    };
    let done = fill();
    if done.is_err() {
        discard(fresh, &name);
    }
    done
}

/// Renames, but never over something that has the name.
fn give_name(from: (&OwnedFd, &OsStr), to: (&OwnedFd, &OsStr)) -> Result<(), Errno> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    match rustix::fs::renameat_with(from.0, from.1, to.0, to.1, rustix::fs::RenameFlags::NOREPLACE) {
        // The kernel, the file system or a container does not know the call, or forbids it.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP | Errno::PERM) => {}
        done => return done,
    }
    match rustix::fs::statat(to.0, to.1, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => rustix::fs::renameat(from.0, from.1, to.0, to.1),
        Err(e) => Err(e),
    }
}

fn taken(e: Errno) -> Error {
    if e == Errno::EXIST { Error::Taken } else { e.into() }
}

/// A file that has lost its name. It can have it back, all that it was; it gets it back unless it is removed.
#[derive(Debug)]
pub struct SetAside {
    spot: FileAt,
    /// What it is called meanwhile.
    name: String,
    settled: bool,
}

/// Takes a file's name away: a removal that can be taken back, whatever the file holds.
///
/// # Errors
/// As [`remove`].
pub fn set_aside(real: &Path) -> Result<SetAside, Error> {
    let spot = FileAt::find(real)?;
    spot.removable()?;
    let mut tries = 0;
    loop {
        let name = unused();
        match give_name((&spot.dir, &spot.name), (&spot.dir, name.as_ref())) {
            Ok(()) => return Ok(SetAside { spot, name, settled: false }),
            Err(Errno::EXIST) if tries < 16 => tries += 1,
            Err(e) => return Err(e.into()),
        }
    }
}

impl SetAside {
    /// Removes it for good.
    ///
    /// # Errors
    /// The system's; it stays under the other name then.
    pub fn remove(mut self) -> Result<(), Error> {
        self.settled = true;
        Ok(rustix::fs::unlinkat(&self.spot.dir, &self.name, AtFlags::empty())?)
    }

    /// Gives it its name back.
    ///
    /// # Errors
    /// The name that it stays under, and why.
    pub fn back(mut self) -> Result<(), (String, Error)> {
        self.settled = true;
        self.give_back().map_err(|e| (self.name.clone(), taken(e)))
    }

    fn give_back(&self) -> Result<(), Errno> {
        give_name((&self.spot.dir, self.name.as_ref()), (&self.spot.dir, &self.spot.name))
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        if !self.settled {
            self.give_back().ok();
        }
    }
}

fn kind(kind: FileType) -> Result<(), Error> {
    match kind {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Error::Directory),
        _ => Err(Error::Special),
    }
}

fn missing(e: Errno) -> Error {
    if e == Errno::NOENT { Error::Missing } else { e.into() }
}

/// Gives a file the owner and the extended attributes of the one it will replace, as far as the
/// system lets us: a file of another owner keeps at least its content and mode.
fn take_over(spot: &FileAt, old: &Stat, fresh: &File) {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
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
    for name in names[..size].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0_u8; 64 << 10];
        if let Ok(size) = rustix::fs::fgetxattr(&file, name, &mut value[..]) {
            rustix::fs::fsetxattr(fresh, name, &value[..size], rustix::fs::XattrFlags::empty()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    /// A directory by its real name.
    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(dir.path()).unwrap();
        (dir, real)
    }

    #[test]
    fn modes_links_and_leftovers() {
        let (_dir, real) = place();
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
        #[expect(clippy::useless_conversion, reason = "other systems have fewer bits here")]
        let open = 0o666 & !u32::from(umask.as_raw_mode());
        assert_eq!(std::fs::metadata(path("new")).unwrap().mode() & 0o777, open);
        let left = std::fs::read_dir(&real).unwrap().flatten();
        assert!(left.into_iter().all(|entry| !entry.file_name().to_string_lossy().contains(".tmp")));
    }

    #[test]
    fn a_file_keeps_what_it_is_under_another_name() {
        let (_dir, real) = place();
        let path = |name: &str| real.join(name);
        let state = |name: &str| {
            let data = std::fs::symlink_metadata(path(name)).unwrap();
            (data.mode(), data.ino(), data.modified().unwrap(), std::fs::read(path(name)).unwrap())
        };
        std::fs::write(path("f"), b"\xff\0").unwrap();
        std::fs::write(path("other"), "mine").unwrap();
        std::fs::create_dir(path("dir")).unwrap();
        std::fs::set_permissions(path("f"), Permissions::from_mode(0o750)).unwrap();
        let before = state("f");
        rename(&path("f"), &path("dir/g")).unwrap();
        assert_eq!(state("dir/g"), before);
        assert!(!path("f").exists());
        // What somebody else has made meanwhile is not written over, nor followed.
        std::os::unix::fs::symlink("nowhere", path("link")).unwrap();
        for name in ["other", "dir", "link"] {
            let moved = rename(&path("dir/g"), &path(name));
            assert!(matches!(moved, Err(Error::Taken)), "{name}: {moved:?}");
        }
        assert!(matches!(rename(&path("link"), &path("new")), Err(Error::Special)));
        assert!(matches!(rename(&path("no"), &path("new")), Err(Error::Missing)));
        // As where it has to be copied.
        let (spot, fresh) = (FileAt::find(&path("dir/g")).unwrap(), FileAt::find(&path("copy")).unwrap());
        copy(&spot, &spot.removable().unwrap(), &fresh, &path("copy")).unwrap();
        let copied = state("copy");
        assert_eq!((copied.0, copied.2, copied.3), (before.0, before.2, before.3.clone()));
        assert!(matches!(copy(&spot, &spot.removable().unwrap(), &fresh, &path("copy")), Err(Error::Taken)));
        // And where a removal is taken back, or nobody says what becomes of it.
        set_aside(&path("dir/g")).unwrap().back().unwrap();
        drop(set_aside(&path("dir/g")).unwrap());
        assert_eq!(state("dir/g"), before);
        let aside = set_aside(&path("dir/g")).unwrap();
        assert!(!path("dir/g").exists());
        std::fs::write(path("dir/g"), "somebody's").unwrap();
        let (name, why) = aside.back().unwrap_err();
        assert!(matches!(why, Error::Taken), "{why:?}");
        assert_eq!(
            (std::fs::read(path("dir").join(name)).unwrap(), state("dir/g").3),
            (before.3, b"somebody's".into())
        );
        set_aside(&path("dir/g")).unwrap().remove().unwrap();
        assert!(!path("dir/g").exists());
        std::fs::set_permissions(path("copy"), Permissions::from_mode(0o444)).unwrap();
        assert!(matches!(rename(&path("copy"), &path("new")), Err(Error::ReadOnly)));
        assert!(matches!(set_aside(&path("copy")), Err(Error::ReadOnly)));
    }

    #[test]
    fn only_regular_files_are_opened() {
        let (_dir, real) = place();
        let path = |name: &str| real.join(name);
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path("link")).unwrap();
        assert!(matches!(read(&path("fifo")), Err(Error::Special)));
        assert!(matches!(write(&path("fifo"), b""), Err(Error::Special)));
        assert!(matches!(read(&path("link")), Err(Error::Special)));
        assert!(matches!(read(Path::new("/dev/zero")), Err(Error::Special)));
        assert!(matches!(read(&real), Err(Error::Directory)));
        assert!(matches!(read(&path("no")), Err(Error::Missing)));
        File::create(path("large")).unwrap().set_len(LARGEST + 1).unwrap();
        assert!(matches!(read(&path("large")), Err(Error::TooLarge(_))));
    }

    #[test]
    fn a_link_in_the_place_of_a_directory_is_not_followed() {
        let (_dir, real) = place();
        let path = |name: &str| real.join(name);
        std::fs::create_dir_all(path("out/deep")).unwrap();
        std::fs::write(path("out/f"), "secret").unwrap();
        std::os::unix::fs::symlink("out", path("in")).unwrap();
        let moved = |result: Result<(), Error>| assert!(matches!(result, Err(Error::Moved)), "{result:?}");
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
    fn a_directory_that_goes_away_between_two_moves_is_not_written_to() {
        let (_dir, real) = place();
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
