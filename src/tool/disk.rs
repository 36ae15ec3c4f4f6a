//! Bytes from and to the disk. Only regular files are opened, nothing blocks, and a file is either
//! the old one or the new one, at any moment, also when the process is killed.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// The largest file that is read or written whole, in bytes.
pub const LARGEST: u64 = 64 << 20;

/// Why bytes could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nothing.
    #[error("it does not exist")]
    Missing,
    /// A directory.
    #[error("it is a directory")]
    Directory,
    /// A device, a pipe, a socket.
    #[error("it is not a regular file")]
    Special,
    /// More than [`LARGEST`].
    #[error("it has {} MiB; files over {} MiB are not opened here", .0 >> 20, LARGEST >> 20)]
    TooLarge(u64),
    /// The owner does not want it written.
    #[error("it is read-only")]
    ReadOnly,
    /// The system's word.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Opens a file whose symlinks have been followed already; a symlink that has taken its place since
/// is not followed.
///
/// # Errors
/// For everything but a regular file that may be read.
pub fn open(real: &Path) -> Result<(File, Metadata), Error> {
    // Looked at before it is opened: opening a device can have effects.
    kind(&std::fs::symlink_metadata(real).map_err(missing)?)?;
    open_listed(real)
}

/// Opens what a directory listing has just called a regular file.
///
/// # Errors
/// As [`open`].
pub fn open_listed(real: &Path) -> Result<(File, Metadata), Error> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(real).map_err(missing)?;
    let data = file.metadata()?;
    kind(&data)?;
    Ok((file, data))
}

/// Reads a whole file of at most [`LARGEST`] bytes.
///
/// # Errors
/// As [`open`], and for larger files.
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
/// For read-only files, everything that is no regular file, and what the system refuses; the old
/// file is untouched then.
pub fn write(real: &Path, bytes: &[u8]) -> Result<(), Error> {
    if let Ok(size) = u64::try_from(bytes.len())
        && size > LARGEST
    {
        return Err(Error::TooLarge(size));
    }
    let dir = real.parent().ok_or(Error::Directory)?;
    let old = match std::fs::symlink_metadata(real) {
        Ok(data) => {
            kind(&data)?;
            writable(real, &data)?;
            Some(data)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e.into()),
    };
    // A new file gets what the user's umask leaves of 0666, as from any other program.
    let mode = old.as_ref().map_or(0o666, |data| data.mode() & 0o7777);
    let first = if old.is_some() { 0o600 } else { mode };
    let mut fresh = tempfile::Builder::new()
        .prefix(".adjutant-")
        .suffix(".tmp")
        .permissions(Permissions::from_mode(first))
        .tempfile_in(dir)?;
    fresh.write_all(bytes)?;
    if let Some(old) = &old {
        take_over(real, old, fresh.as_file());
        fresh.as_file().set_permissions(Permissions::from_mode(mode))?;
    }
    fresh.persist(real).map_err(|e| e.error)?;
    Ok(())
}

/// Removes a file.
///
/// # Errors
/// For read-only files, everything that is no regular file, and what the system refuses.
pub fn remove(real: &Path) -> Result<(), Error> {
    let data = std::fs::symlink_metadata(real).map_err(missing)?;
    kind(&data)?;
    writable(real, &data)?;
    Ok(std::fs::remove_file(real)?)
}

/// Whether a file that exists may be replaced. A rename would get around its mode.
fn writable(real: &Path, data: &Metadata) -> Result<(), Error> {
    let free = data.mode() & 0o222 != 0 && rustix::fs::access(real, rustix::fs::Access::WRITE_OK).is_ok();
    if free { Ok(()) } else { Err(Error::ReadOnly) }
}

fn kind(data: &Metadata) -> Result<(), Error> {
    match data.file_type() {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(Error::Directory),
        _ => Err(Error::Special),
    }
}

fn missing(e: io::Error) -> Error {
    if e.kind() == io::ErrorKind::NotFound { Error::Missing } else { Error::Io(e) }
}

/// Gives a file the owner and the extended attributes of the one it will replace, as far as the
/// system lets us: a file of another owner keeps at least its content and mode.
fn take_over(old_path: &Path, old: &Metadata, fresh: &File) {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if (old.uid(), old.gid()) != (uid, gid) {
        let owner = (old.uid() != uid).then(|| rustix::fs::Uid::from_raw(old.uid()));
        let group = Some(rustix::fs::Gid::from_raw(old.gid()));
        if rustix::fs::fchown(fresh, owner, group).is_err() {
            rustix::fs::fchown(fresh, None, group).ok();
        }
    }
    let mut names = vec![0_u8; 4 << 10];
    let Ok(size) = rustix::fs::listxattr(old_path, &mut names[..]) else {
        return;
    };
    for name in names[..size].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0_u8; 64 << 10];
        if let Ok(size) = rustix::fs::getxattr(old_path, name, &mut value[..]) {
            rustix::fs::fsetxattr(fresh, name, &value[..size], rustix::fs::XattrFlags::empty()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_links_and_leftovers() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
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
        assert!(matches!(write(dir.path(), b"x"), Err(Error::Directory)));
        assert!(matches!(write(&path("no/f"), b"x"), Err(Error::Io(_))));
        write(&path("new"), b"x").unwrap();
        let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        rustix::process::umask(umask);
        assert_eq!(std::fs::metadata(path("new")).unwrap().mode() & 0o777, 0o666 & !umask.as_raw_mode());
        let left = std::fs::read_dir(dir.path()).unwrap().flatten();
        assert!(left.into_iter().all(|entry| !entry.file_name().to_string_lossy().contains(".tmp")));
    }

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path("link")).unwrap();
        assert!(matches!(read(&path("fifo")), Err(Error::Special)));
        assert!(matches!(write(&path("fifo"), b""), Err(Error::Special)));
        assert!(matches!(read(&path("link")), Err(Error::Special)));
        assert!(matches!(read(Path::new("/dev/zero")), Err(Error::Special)));
        assert!(matches!(read(dir.path()), Err(Error::Directory)));
        assert!(matches!(read(&path("no")), Err(Error::Missing)));
        File::create(path("large")).unwrap().set_len(LARGEST + 1).unwrap();
        assert!(matches!(read(&path("large")), Err(Error::TooLarge(_))));
    }
}
