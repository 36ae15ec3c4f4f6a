//! Records the permissions of files, so that a restored file is not accessible to users who could
//! not access it before.
//!
//! A session stores the content and the kind of a file; files with equal ones are equal, whatever
//! their other metadata. The permissions are stored here, by path and state, in a list that only
//! grows: `modes`. It is renamed to `modes.old` when no line was added to the previous `modes.old`
//! for as long as unused contents are stored. Several processes append to it concurrently. The
//! lists are not copied to other machines. A file whose permissions are unknown is created for its
//! owner alone.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use ring::digest::{Context, SHA256};
use rustix::fs::{FileType, Mode, OFlags, RawMode};

use base::environment::private_file;
use base::lock::lock;
use transcript::{FileChange, FileKind, FileState};

/// The bits of a mode that are its permissions. Its other bits are not restored.
const PERMISSION_BITS: u32 = 0o777;

/// Read permission of users other than the owner.
const OTHERS_READ: u32 = 0o044;

/// Write permission of the owner.
const OWNER_WRITE: u32 = 0o200;

/// The permissions of files in their states.
#[derive(Debug)]
pub(super) struct FileModes {
    /// The path of `modes`.
    list: PathBuf,
    /// The path of `modes.old`.
    old: PathBuf,
    // A std mutex around the data read from both lists (`modes`, `modes.old`), held while they are
    // read, on threads that may block.
    known: Mutex<(ModeList, ModeList)>,
}

/// The data read from a list.
#[derive(Debug, Default)]
struct ModeList {
    /// The inode of the file that was read.
    inode: u64,
    /// The number of bytes read.
    read: u64,
    /// Permissions, by the key of a file and its state.
    modes: HashMap<u128, u32>,
}

impl FileModes {
    /// Opens the lists of a project, below `dir`.
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            list: dir.join("modes"),
            old: dir.join("modes.old"),
            known: Mutex::default(),
        }
    }

    /// Records the modes of files in their states. If they cannot be written, they are unknown
    /// later.
    pub(super) fn record<'a>(&self, seen: impl Iterator<Item = (&'a Path, &'a FileState, u32)>) {
        // The mode may be that of a link that has replaced the file, or of a file that has replaced
        // the link.
        let is_file = |mode: u32| FileType::from_raw_mode(mode as RawMode).is_file();
        let recorded = seen.filter(|(_, state, mode)| {
            state.kind != FileKind::Link && !state.large && is_file(*mode)
        });
        let seen: Vec<(u128, u32)> = recorded
            .map(|(path, state, mode)| (key(path, state), mode & PERMISSION_BITS))
            .collect();
        if seen.is_empty() {
            return;
        }
        let list = &mut lock(&self.known).0;
        if let Err(e) = self.add(list, &seen) {
            // The modes that were not written have to be written the next time.
            *list = ModeList::default();
            tracing::warn!(
                "the permission bits of files are not stored in {}: {e}",
                self.list.display()
            );
        }
    }

    /// Appends the modes that the list does not have.
    fn add(&self, list: &mut ModeList, seen: &[(u128, u32)]) -> io::Result<()> {
        list.catch_up(&self.list)?;
        // A process that was killed while writing has left an incomplete line.
        let mut lines = String::from("\n");
        for (key, mode) in seen {
            if list.modes.insert(*key, *mode) != Some(*mode) {
                lines += &format!("{mode:03o} {key:032x}\n");
            }
        }
        if lines.len() > 1 {
            private_file()
                .append(true)
                .create(true)
                .open(&self.list)?
                .write_all(lines.as_bytes())?;
        }
        Ok(())
    }

    /// Returns the last known permissions of a file in a state.
    fn of(&self, path: &Path, state: &FileState) -> Option<u32> {
        let (list, old) = &mut *lock(&self.known);
        for (list, path) in [(&mut *list, &self.list), (&mut *old, &self.old)] {
            if let Err(e) = list.catch_up(path) {
                tracing::warn!(
                    "the permission bits of files cannot be read in {}: {e}",
                    path.display()
                );
            }
        }
        let key = key(path, state);
        list.modes
            .get(&key)
            .or_else(|| old.modes.get(&key))
            .copied()
    }

    /// Renames the list, if the old one has not grown since `limit`, and so starts a new one.
    pub(super) fn clean(&self, limit: SystemTime) {
        let added = fs::metadata(&self.old).and_then(|data| data.modified());
        if added.map_or(true, |added| added < limit) {
            // Another process may have been faster. A process that is appending at this moment
            // appends to the renamed file.
            fs::rename(&self.list, &self.old).ok();
        }
    }

    /// Returns the permissions before a change, and those that the file must have after it.
    pub(super) fn access(&self, change: &FileChange) -> FileAccess {
        let path = PathBuf::from(&change.path);
        let there = fs::symlink_metadata(&path);
        let is_missing = there
            .as_ref()
            .is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        let now = there
            .ok()
            .filter(fs::Metadata::is_file)
            .map(|data| data.permissions().mode() & 0o7777);
        let known =
            |state: &Option<FileState>| state.as_ref().and_then(|state| self.of(&path, state));
        let is_as_left =
            now.is_some() && known(&change.old) == now.map(|now| now & PERMISSION_BITS);
        let kind = change.new.as_ref().map(|new| new.kind);
        let adjusted_to_kind = |mode: u32| match kind {
            Some(FileKind::Program) => mode | ((mode & 0o444) >> 2),
            Some(FileKind::Plain) => mode & !0o111,
            Some(FileKind::Link) | None => mode,
        };
        let wanted = match (known(&change.new), now) {
            (Some(mode), None) => mode,
            (None, None) => adjusted_to_kind(0o600),
            (None, Some(now)) => adjusted_to_kind(now),
            (Some(mode), Some(now)) if is_as_left => (now & !PERMISSION_BITS) | mode,
            // The mode was changed since. Earlier permissions are no reason to grant more than the
            // file has now.
            (Some(mode), Some(now)) => adjusted_to_kind(now) & (!PERMISSION_BITS | mode),
        };
        FileAccess {
            path,
            now,
            is_missing,
            is_as_left,
            wanted,
        }
    }
}

impl ModeList {
    /// Reads the lines that were added to the file since the last time; all lines of another file.
    fn catch_up(&mut self, path: &Path) -> io::Result<()> {
        let mut file = match fs::File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                *self = Self::default();
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let data = file.metadata()?;
        if data.ino() != self.inode || data.len() < self.read {
            *self = Self {
                inode: data.ino(),
                ..Self::default()
            };
        }
        if data.len() == self.read {
            return Ok(());
        }
        file.seek(SeekFrom::Start(self.read))?;
        let mut added = Vec::new();
        file.read_to_end(&mut added)?;
        // Another process may still be writing the last line.
        let complete = memchr::memrchr(b'\n', &added).map_or(0, |end| end + 1);
        let lines = added
            .get(..complete)
            .unwrap_or_default()
            .split(|byte| *byte == b'\n');
        self.modes
            .extend(lines.filter_map(|line| parsed(std::str::from_utf8(line).ok()?)));
        self.read += u64::try_from(complete).unwrap_or(0);
        Ok(())
    }
}

/// Parses a line: the key and the permissions.
fn parsed(line: &str) -> Option<(u128, u32)> {
    let (mode, key) = line
        .split_once(' ')
        .filter(|(mode, key)| mode.len() == 3 && key.len() == 32)?;
    Some((
        u128::from_str_radix(key, 16).ok()?,
        u32::from_str_radix(mode, 8).ok()?,
    ))
}

/// Returns the key of a file and its state.
fn key(path: &Path, state: &FileState) -> u128 {
    let mut context = Context::new(&SHA256);
    context.update(path.as_os_str().as_encoded_bytes());
    // The names of the kinds are part of stored keys.
    context.update(format!("\0{:?} {}", state.kind, state.hash).as_bytes());
    context
        .finish()
        .as_ref()
        .first_chunk()
        .map_or(0, |first| u128::from_be_bytes(*first))
}

/// The permissions of a file that is about to be restored, before and after.
#[derive(Debug)]
pub struct FileAccess {
    path: PathBuf,
    /// The mode of the present file, if it is a regular one.
    now: Option<u32>,
    /// True if there is no file.
    is_missing: bool,
    /// True if its permissions are still those that the undone change had left.
    is_as_left: bool,
    /// The mode that the restored file must have.
    wanted: u32,
}

impl FileAccess {
    /// Returns whether there is no file, and creating it with default permissions would let others
    /// read a file that they must not read.
    pub fn must_restrict_creation(&self) -> bool {
        self.is_missing && self.wanted & OTHERS_READ != OTHERS_READ
    }

    /// Removes read permissions from the present file that the restored content must not have. If
    /// the file is as the change left it, also adds write permission for the owner, because the
    /// mode is not a decision of the owner then.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn narrow(&self) -> io::Result<()> {
        let Some(now) = self.now else { return Ok(()) };
        let narrowed = now & (self.wanted | !OTHERS_READ);
        set_mode(
            &self.path,
            if self.is_as_left {
                narrowed | OWNER_WRITE
            } else {
                narrowed
            },
        )
    }

    /// Reverts [`FileAccess::narrow`].
    ///
    /// # Errors
    /// Errors of the system.
    pub fn restore(&self) -> io::Result<()> {
        match self.now {
            Some(now) => set_mode(&self.path, now),
            None => Ok(()),
        }
    }

    /// Sets the final mode of the file, which may be at another path by now.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn set_final_mode(&self, path: &Path) -> io::Result<()> {
        set_mode(path, self.wanted)
    }
}

/// Sets the mode of a regular file, if it differs. Does not follow a link.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    if fs::symlink_metadata(path)?.permissions().mode() & 0o7777 == mode {
        return Ok(());
    }
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    file.set_permissions(fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FILE: u32 = 0o100_000;

    fn state(hash: &str, kind: FileKind) -> FileState {
        FileState {
            hash: hash.into(),
            kind,
            large: false,
        }
    }

    /// Columns: the kind, the recorded modes of the future and of the present state, the present
    /// mode, and the wanted mode.
    #[test]
    fn restored_file_gains_no_permissions() {
        type Case = (FileKind, Option<u32>, Option<u32>, Option<u32>, u32);
        let table: &[Case] = &[
            // The file is created.
            (FileKind::Plain, Some(0o600), None, None, 0o600),
            (FileKind::Plain, Some(0o640), None, None, 0o640),
            (FileKind::Plain, Some(0o444), None, None, 0o444),
            (FileKind::Program, Some(0o700), None, None, 0o700),
            (FileKind::Program, Some(0o755), None, None, 0o755),
            (FileKind::Plain, None, None, None, 0o600),
            (FileKind::Program, None, None, None, 0o700),
            // The file is as the change left it.
            (
                FileKind::Plain,
                Some(0o600),
                Some(0o644),
                Some(0o644),
                0o600,
            ),
            (
                FileKind::Plain,
                Some(0o644),
                Some(0o600),
                Some(0o600),
                0o644,
            ),
            (
                FileKind::Plain,
                Some(0o644),
                Some(0o755),
                Some(0o755),
                0o644,
            ),
            (
                FileKind::Program,
                Some(0o750),
                Some(0o600),
                Some(0o600),
                0o750,
            ),
            // The mode was changed since.
            (
                FileKind::Plain,
                Some(0o644),
                Some(0o644),
                Some(0o600),
                0o600,
            ),
            (
                FileKind::Plain,
                Some(0o600),
                Some(0o600),
                Some(0o644),
                0o600,
            ),
            (
                FileKind::Program,
                Some(0o755),
                Some(0o644),
                Some(0o600),
                0o700,
            ),
            // The modes are unknown.
            (FileKind::Plain, None, None, Some(0o640), 0o640),
            (FileKind::Plain, None, None, Some(0o755), 0o644),
            (FileKind::Program, None, None, Some(0o640), 0o750),
            (FileKind::Plain, Some(0o644), None, Some(0o600), 0o600),
            (FileKind::Plain, Some(0o600), None, Some(0o644), 0o600),
        ];
        for case in table {
            let (kind, to, from, now, wanted) = *case;
            let dir = tempfile::tempdir().unwrap();
            let modes = FileModes::new(dir.path());
            let path = dir.path().join("f");
            let new = state("new", kind);
            let old = state("old", FileKind::Plain);
            for (state, mode) in [(&new, to), (&old, from)] {
                modes.record(mode.iter().map(|mode| (path.as_path(), state, FILE | mode)));
            }
            if let Some(now) = now {
                fs::write(&path, "").unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(now)).unwrap();
            }
            let change = FileChange {
                path: path.display().to_string(),
                old: now.is_some().then_some(old),
                new: Some(new),
                compared: false,
                sequence: 0,
            };
            assert_eq!(modes.access(&change).wanted, wanted, "{case:?}");
        }
    }

    #[test]
    fn processes_share_one_list() {
        let dir = tempfile::tempdir().unwrap();
        let first = FileModes::new(dir.path());
        let other = FileModes::new(dir.path());
        let path = Path::new("/p/f");
        let plain = |hash: &str| state(hash, FileKind::Plain);
        let record = |modes: &FileModes, hash: &str, mode: u32| {
            modes.record(std::iter::once((path, &plain(hash), FILE | mode)));
        };
        let of = |hash: &str| [&first, &other].map(|modes| modes.of(path, &plain(hash)));
        assert_eq!(of("1"), [None; 2]);
        record(&first, "1", 0o600);
        record(&other, "2", 0o640);
        assert_eq!(of("1"), [Some(0o600); 2]);
        assert_eq!(of("2"), [Some(0o640); 2]);
        // The last record counts, whichever process made it, even if a process made the same record
        // before.
        record(&other, "1", 0o644);
        record(&first, "1", 0o600);
        assert_eq!(of("1"), [Some(0o600); 2]);
        let length = || fs::metadata(dir.path().join("modes")).unwrap().len();
        let before = length();
        record(&other, "1", 0o600);
        assert_eq!(length(), before, "it is known already");
        // A process was killed while writing.
        let mut list = fs::File::options()
            .append(true)
            .open(dir.path().join("modes"))
            .unwrap();
        list.write_all(b"644 0123").unwrap();
        assert_eq!(of("1"), [Some(0o600); 2]);
        record(&other, "3", 0o660);
        assert_eq!(of("1"), [Some(0o600); 2]);
        assert_eq!(of("3"), [Some(0o660); 2]);
        assert_eq!(first.of(path, &plain("1")), Some(0o600));
        assert_eq!(first.of(Path::new("/p/g"), &plain("1")), None);
        assert_eq!(first.of(path, &state("1", FileKind::Program)), None);
        // Links and modes of links are not recorded.
        first.record(
            [
                (path, &state("4", FileKind::Link), FILE | 0o777),
                (path, &plain("4"), 0o120_777),
            ]
            .into_iter(),
        );
        assert_eq!(of("4"), [None; 2]);
        assert_eq!(first.of(path, &state("4", FileKind::Link)), None);
    }

    #[test]
    fn list_without_additions_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let first = FileModes::new(dir.path());
        let other = FileModes::new(dir.path());
        let path = Path::new("/p/f");
        let plain = |hash: &str| state(hash, FileKind::Plain);
        let record = |modes: &FileModes, hash: &str| {
            modes.record(std::iter::once((path, &plain(hash), FILE | 0o640)))
        };
        let known =
            |modes: &FileModes| ["1", "2", "3"].map(|hash| modes.of(path, &plain(hash)).is_some());
        let old = dir.path().join("modes.old");
        record(&first, "1");
        assert_eq!(known(&other), [true, false, false]);
        let limit = fs::metadata(dir.path().join("modes"))
            .unwrap()
            .modified()
            .unwrap();
        first.clean(limit);
        assert!(old.exists());
        record(&other, "2");
        first.clean(limit);
        assert_eq!(
            [&first, &other].map(known),
            [[true, true, false]; 2],
            "it was added to lately"
        );
        // A mode in the old list is recorded again, because that list is removed earlier.
        record(&other, "1");
        let list = fs::File::options().write(true).open(&old).unwrap();
        list.set_modified(limit - Duration::from_secs(1)).unwrap();
        other.clean(limit);
        record(&first, "3");
        assert_eq!([&first, &other].map(known), [[true; 3]; 2]);
        fs::remove_file(&old).unwrap();
        assert_eq!([&first, &other].map(known), [[false, false, true]; 2]);
    }
}
