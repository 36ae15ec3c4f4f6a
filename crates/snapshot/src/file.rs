//! The present metadata and state of a single file.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, RawMode, Stat};
use serde::{Deserialize, Serialize};

use super::MAX_FILE_BYTES;
use super::digest::{StreamedDigest, blob_name, digest};
use super::objects::Objects;
use transcript::{FileKind, FileState};

/// The number of bytes that are read at once.
const BLOCK_BYTES: usize = 64 << 10;

/// Metadata of a file, which the system returns without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileStamp {
    /// The size in bytes.
    pub(super) size: u64,
    /// The time of the last write, in nanoseconds since 1970.
    pub(super) modified: i128,
    /// The time of the last change of content or metadata, in nanoseconds since 1970.
    pub(super) changed: i128,
    pub(super) inode: u64,
    /// The type and the permissions, as the system encodes them.
    pub(super) mode: u32,
}

impl FileStamp {
    /// Reads the metadata of a path, without following symlinks; `None` if that fails.
    pub(super) fn at(path: &Path) -> Option<Self> {
        rustix::fs::lstat(path).ok().map(|data| Self::of(&data))
    }

    #[expect(
        clippy::unnecessary_cast,
        clippy::cast_lossless,
        reason = "other systems have other types here"
    )]
    pub(super) fn of(data: &Stat) -> Self {
        let modified = data.st_mtime as i128 * 1_000_000_000 + data.st_mtime_nsec as i128;
        let changed = data.st_ctime as i128 * 1_000_000_000 + data.st_ctime_nsec as i128;
        let inode = data.st_ino as u64;
        let mode = data.st_mode as u32;
        Self {
            size: u64::try_from(data.st_size).unwrap_or(0),
            modified,
            changed,
            inode,
            mode,
        }
    }

    /// Returns the type of the file.
    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode as RawMode)
    }
}

/// Returns the time of a file's creation in nanoseconds since 1970, or of its last change if the
/// file system does not record its creation.
pub(super) fn creation_time(path: &Path) -> i128 {
    created(path)
        .or_else(|| Some(FileStamp::at(path)?.changed))
        .unwrap_or(i128::MIN)
}

/// Returns the time of a file's creation. Calls `statx` directly, because the standard library does
/// not find it in a static program.
#[cfg(target_os = "linux")]
fn created(path: &Path) -> Option<i128> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let data = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).ok()?;
    let is_known = data.stx_mask & StatxFlags::BTIME.bits() != 0;
    is_known.then(|| {
        i128::from(data.stx_btime.tv_sec) * 1_000_000_000 + i128::from(data.stx_btime.tv_nsec)
    })
}

#[cfg(not(target_os = "linux"))]
fn created(path: &Path) -> Option<i128> {
    let created = fs::symlink_metadata(path).ok()?.created().ok()?;
    i128::try_from(
        created
            .duration_since(std::time::UNIX_EPOCH)
            .ok()?
            .as_nanos(),
    )
    .ok()
}

/// Reads the state of a file; with `objects`, its content is stored. Returns `None` if there is no
/// file. The content of a file larger than `limit` is not stored.
pub(super) fn read(
    path: &Path,
    limit: u64,
    objects: Option<&Objects>,
) -> io::Result<Option<FileState>> {
    if let Some(state) = digested(path, limit)?
        && objects.is_none_or(|objects| objects.is_stored(&state.hash))
    {
        return Ok(Some(state));
    }
    read_known(path, limit, objects, None)
}

/// Returns the state of a file of more than [`MAX_FILE_BYTES`] and at most `limit` bytes, which is
/// read block by block. `None` for any other file.
fn digested(path: &Path, limit: u64) -> io::Result<Option<FileState>> {
    let Some(stamp) = FileStamp::at(path).filter(|stamp| stamp.size > MAX_FILE_BYTES) else {
        return Ok(None);
    };
    if !stamp.kind().is_file() || stamp.size > limit {
        return Ok(None);
    }
    let mut file = open(path)?.take(limit + 1);
    let mut digest = StreamedDigest::default();
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            break;
        }
        digest.update(&block[..read]);
    }
    Ok((file.limit() > 0).then(|| FileState {
        hash: digest.finish(),
        kind: kind(&stamp),
        large: false,
    }))
}

/// Returns the metadata of a regular file of at most `limit` bytes if it has this content.
pub(super) fn stamp_if_same(
    path: &Path,
    content: &[u8],
    limit: u64,
) -> io::Result<Option<FileStamp>> {
    let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
    let is_candidate =
        |stamp: &FileStamp| stamp.kind().is_file() && stamp.size == length && length <= limit;
    let Some(stamp) = FileStamp::at(path).filter(is_candidate) else {
        return Ok(None);
    };
    let mut file = open(path)?;
    let mut block = vec![0; BLOCK_BYTES.min(content.len() + 1)];
    let mut rest = content;
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            return Ok(rest.is_empty().then_some(stamp));
        }
        let Some(after) = rest.strip_prefix(&block[..read]) else {
            return Ok(None);
        };
        rest = after;
    }
}

/// Reads the state of a file as [`read`] does. If its content is that of the state `in_git`, the
/// blob id is its hash, and it is not stored.
pub(super) fn read_known(
    path: &Path,
    limit: u64,
    objects: Option<&Objects>,
    in_git: Option<&FileState>,
) -> io::Result<Option<FileState>> {
    let name = |bytes: &[u8]| match (in_git, objects) {
        (Some(state), _) if blob_name(bytes) == state.hash => Ok(state.hash.clone()),
        (_, Some(objects)) => objects.put(bytes),
        (_, None) => Ok(digest(bytes)),
    };
    Ok(match load(path, limit)? {
        FoundFile::Missing => None,
        FoundFile::Large { state, .. } => Some(state),
        FoundFile::Content { bytes, kind, .. } => Some(FileState {
            hash: name(&bytes)?,
            kind,
            large: false,
        }),
    })
}

/// The file at a path.
#[derive(Debug)]
pub(super) enum FoundFile {
    Missing,
    /// A file larger than the limit, which was not read.
    Large {
        state: FileState,
        size: u64,
        mode: u32,
    },
    Content {
        bytes: Vec<u8>,
        kind: FileKind,
        mode: u32,
    },
}

/// Reads a file, or the target of a link.
///
/// # Errors
/// Errors of the system, and an error if it is not a regular file or link.
pub(super) fn load(path: &Path, limit: u64) -> io::Result<FoundFile> {
    let data = match rustix::fs::lstat(path) {
        Ok(data) => FileStamp::of(&data),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(FoundFile::Missing),
        Err(e) => return Err(e.into()),
    };
    let mode = data.mode;
    if data.kind().is_symlink() {
        let bytes = fs::read_link(path)?.into_os_string().into_encoded_bytes();
        return Ok(FoundFile::Content {
            bytes,
            kind: FileKind::Link,
            mode,
        });
    }
    if !data.kind().is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let kind = kind(&data);
    let found_large = || FoundFile::Large {
        state: large_state(&data, kind),
        size: data.size,
        mode,
    };
    if data.size > limit {
        return Ok(found_large());
    }
    let file = open(path)?;
    let mut bytes = Vec::with_capacity(usize::try_from(data.size).unwrap_or(0) + 1);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|size| size > limit) {
        return Ok(found_large());
    }
    Ok(FoundFile::Content { bytes, kind, mode })
}

/// Opens a file for reading, without following a link and without waiting for a pipe.
fn open(path: &Path) -> io::Result<fs::File> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Returns an unnamed file that shares the blocks of a file, so that its content remains readable
/// when the file changes. No content is copied.
///
/// # Errors
/// Errors of the system, and an error if the file system does not share blocks between files.
#[cfg(target_os = "linux")]
pub(super) fn cloned(path: &Path) -> io::Result<fs::File> {
    let file = open(path)?;
    // Next to the file, because blocks are only shared within a file system.
    let folder = path.parent().unwrap_or(path);
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let clone = rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::ioctl_ficlone(&clone, &file)?;
    Ok(clone.into())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn cloned(_: &Path) -> io::Result<fs::File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the kind of a file, by its type and its owner's permission to execute it.
pub(super) fn kind(stamp: &FileStamp) -> FileKind {
    match stamp.kind() {
        FileType::Symlink => FileKind::Link,
        _ if stamp.mode & 0o100 == 0 => FileKind::Plain,
        _ => FileKind::Program,
    }
}

/// Returns the state of a file whose content is not stored. The hash distinguishes it by its
/// metadata.
pub(super) fn large_state(stamp: &FileStamp, kind: FileKind) -> FileState {
    FileState {
        hash: format!("{} bytes of {}", stamp.size, stamp.modified),
        kind,
        large: true,
    }
}
