//! Who might read, write and run a file, so that one which is set back is open to nobody it was closed to.
//!
//! What a session remembers of a file is its content and its kind; equal ones are equal files, whatever
//! else the system says about them. Their permissions are kept here, by path and state, in a list that only
//! grows: `modes`, which becomes `modes.old` once that has not grown for as long as contents are kept.
//! Several processes add to it at the same time. Lists stay on their machine. Where nothing is known of a
//! file that is to be made, it is made for its owner alone.

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
use base::lock::locked;
use transcript::{FileChange, FileKind, FileState};

/// The permissions in a mode; what else is in it is not brought back.
const PERMISSIONS: u32 = 0o777;

/// Reading, by others than the owner.
const READING: u32 = 0o044;

/// Writing, by the owner.
const WRITING: u32 = 0o200;

/// Which permissions files had in which states.
#[derive(Debug)]
pub(super) struct FileModes {
    list: PathBuf,
    old: PathBuf,
    // A std mutex around what was read of both, held while they are read, on threads that may block.
    known: Mutex<(ModeList, ModeList)>,
}

/// What was read of a list.
#[derive(Debug, Default)]
struct ModeList {
    inode: u64,
    /// How far, in bytes.
    read: u64,
    /// By file and state.
    modes: HashMap<u128, u32>,
}

impl FileModes {
    /// Those of a project, below `dir`.
    pub(super) fn new(dir: &Path) -> Self {
        Self { list: dir.join("modes"), old: dir.join("modes.old"), known: Mutex::default() }
    }

    /// Notes which modes files have in their states. Where that cannot be written down, they are not known later.
    pub(super) fn note<'a>(&self, seen: impl Iterator<Item = (&'a Path, &'a FileState, u32)>) {
        // A mode may have been asked for before or after a link took the place of a file, or a file that of a link.
        let file = |mode: u32| FileType::from_raw_mode(mode as RawMode).is_file();
        let seen = seen.filter(|(_, state, mode)| state.kind != FileKind::Link && !state.large && file(*mode));
        let seen: Vec<(u128, u32)> = seen.map(|(path, state, mode)| (key(path, state), mode & PERMISSIONS)).collect();
        if seen.is_empty() {
            return;
        }
        let list = &mut locked(&self.known).0;
        if let Err(e) = self.add(list, &seen) {
            // What is not written down is to be noted the next time.
            *list = ModeList::default();
            tracing::warn!("the modes of files are not kept in {}: {e}", self.list.display());
        }
    }

    fn add(&self, list: &mut ModeList, seen: &[(u128, u32)]) -> io::Result<()> {
        list.catch_up(&self.list)?;
        // Whoever was killed while it wrote has left a line without an end.
        let mut lines = String::from("\n");
        for (key, mode) in seen {
            if list.modes.insert(*key, *mode) != Some(*mode) {
                lines += &format!("{mode:03o} {key:032x}\n");
            }
        }
        if lines.len() > 1 {
            private_file().append(true).create(true).open(&self.list)?.write_all(lines.as_bytes())?;
        }
        Ok(())
    }

    /// The permissions that a file had in a state when it was seen in it last.
    fn of(&self, path: &Path, state: &FileState) -> Option<u32> {
        let (list, old) = &mut *locked(&self.known);
        for (list, path) in [(&mut *list, &self.list), (&mut *old, &self.old)] {
            if let Err(e) = list.catch_up(path) {
                tracing::warn!("the modes of files cannot be read in {}: {e}", path.display());
            }
        }
        let key = key(path, state);
        list.modes.get(&key).or_else(|| old.modes.get(&key)).copied()
    }

    /// Removes what nobody has added to since `limit`, and begins another list.
    pub(super) fn clean(&self, limit: SystemTime) {
        let added = fs::metadata(&self.old).and_then(|data| data.modified());
        if added.map_or(true, |added| added < limit) {
            // Another process may have been faster. Who adds to it at this moment adds to it under its new name.
            fs::rename(&self.list, &self.old).ok();
        }
    }

    /// Who may do what with a file before and after a change.
    pub(super) fn access(&self, change: &FileChange) -> FileAccess {
        let path = PathBuf::from(&change.path);
        let there = fs::symlink_metadata(&path);
        let missing = there.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        let now = there.ok().filter(fs::Metadata::is_file).map(|data| data.permissions().mode() & 0o7777);
        let known = |state: &Option<FileState>| state.as_ref().and_then(|state| self.of(&path, state));
        let as_left = now.is_some() && known(&change.old) == now.map(|now| now & PERMISSIONS);
        let kind = change.new.as_ref().map(|new| new.kind);
        let of_its_kind = |mode: u32| match kind {
            Some(FileKind::Program) => mode | ((mode & 0o444) >> 2),
            Some(FileKind::Plain) => mode & !0o111,
            Some(FileKind::Link) | None => mode,
        };
        let wanted = match (known(&change.new), now) {
            (Some(mode), None) => mode,
            (None, None) => of_its_kind(0o600),
            (None, Some(now)) => of_its_kind(now),
            (Some(mode), Some(now)) if as_left => (now & !PERMISSIONS) | mode,
            // Somebody has closed or opened it since: what it was once is no reason to open it.
            (Some(mode), Some(now)) => of_its_kind(now) & (!PERMISSIONS | mode),
        };
        FileAccess { path, now, missing, as_left, wanted }
    }
}

impl ModeList {
    /// Reads what was added.
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
            *self = Self { inode: data.ino(), ..Self::default() };
        }
        if data.len() == self.read {
            return Ok(());
        }
        file.seek(SeekFrom::Start(self.read))?;
        let mut added = Vec::new();
        file.read_to_end(&mut added)?;
        // Somebody may still be writing the last line.
        let whole = memchr::memrchr(b'\n', &added).map_or(0, |end| end + 1);
        let lines = added.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n');
        self.modes.extend(lines.filter_map(|line| parsed(std::str::from_utf8(line).ok()?)));
        self.read += u64::try_from(whole).unwrap_or(0);
        Ok(())
    }
}

fn parsed(line: &str) -> Option<(u128, u32)> {
    let (mode, key) = line.split_once(' ').filter(|(mode, key)| mode.len() == 3 && key.len() == 32)?;
    Some((u128::from_str_radix(key, 16).ok()?, u32::from_str_radix(mode, 8).ok()?))
}

fn key(path: &Path, state: &FileState) -> u128 {
    let mut context = Context::new(&SHA256);
    context.update(path.as_os_str().as_encoded_bytes());
    context.update(format!("\0{:?} {}", state.kind, state.hash).as_bytes());
    context.finish().as_ref().first_chunk().map_or(0, |first| u128::from_be_bytes(*first))
}

/// Who may do what with a file that is about to be set back, and who may then.
#[derive(Debug)]
pub struct FileAccess {
    path: PathBuf,
    /// The mode of the regular file that is there.
    now: Option<u32>,
    missing: bool,
    /// Its permissions are still those it had when the change that is taken back was made.
    as_left: bool,
    wanted: u32,
}

impl FileAccess {
    /// Whether there is no file, and who makes one as any program does lets others read what they may not.
    pub fn is_closed(&self) -> bool {
        self.missing && self.wanted & READING != READING
    }

    /// Closes a file that is there to everyone who may not read what comes into it. One that is as the change
    /// left it may be written, or removed, whatever its mode says of that: its owner has not said so since.
    ///
    /// # Errors
    /// The system's.
    pub fn narrow(&self) -> io::Result<()> {
        let Some(now) = self.now else { return Ok(()) };
        let closed = now & (self.wanted | !READING);
        set_mode(&self.path, if self.as_left { closed | WRITING } else { closed })
    }

    /// Takes [`FileAccess::narrow`] back.
    ///
    /// # Errors
    /// The system's.
    pub fn restore(&self) -> io::Result<()> {
        self.now.map_or(Ok(()), |now| set_mode(&self.path, now))
    }

    /// Gives the file the mode that is wanted, wherever it is by now.
    ///
    /// # Errors
    /// The system's.
    pub fn settle(&self, path: &Path) -> io::Result<()> {
        set_mode(path, self.wanted)
    }
}

/// Sets the mode of a regular file, where it has another. A link in its place is not followed.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    if fs::symlink_metadata(path)?.permissions().mode() & 0o7777 == mode {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    file.set_permissions(fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FILE: u32 = 0o100_000;

    fn state(hash: &str, kind: FileKind) -> FileState {
        FileState { hash: hash.into(), kind, large: false }
    }

    /// What is recorded of the state that is to come and of the one that is there, which mode that has: which
    /// mode it is to have.
    #[test]
    fn nothing_becomes_open_that_was_not() {
        type Case = (FileKind, Option<u32>, Option<u32>, Option<u32>, u32);
        let table: &[Case] = &[
            // It is made anew.
            (FileKind::Plain, Some(0o600), None, None, 0o600),
            (FileKind::Plain, Some(0o640), None, None, 0o640),
            (FileKind::Plain, Some(0o444), None, None, 0o444),
            (FileKind::Program, Some(0o700), None, None, 0o700),
            (FileKind::Program, Some(0o755), None, None, 0o755),
            (FileKind::Plain, None, None, None, 0o600),
            (FileKind::Program, None, None, None, 0o700),
            // It is there, as the change has left it.
            (FileKind::Plain, Some(0o600), Some(0o644), Some(0o644), 0o600),
            (FileKind::Plain, Some(0o644), Some(0o600), Some(0o600), 0o644),
            (FileKind::Plain, Some(0o644), Some(0o755), Some(0o755), 0o644),
            (FileKind::Program, Some(0o750), Some(0o600), Some(0o600), 0o750),
            // Somebody has given it another mode since.
            (FileKind::Plain, Some(0o644), Some(0o644), Some(0o600), 0o600),
            (FileKind::Plain, Some(0o600), Some(0o600), Some(0o644), 0o600),
            (FileKind::Program, Some(0o755), Some(0o644), Some(0o600), 0o700),
            // Nothing is known of it.
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
            let (new, old) = (state("new", kind), state("old", FileKind::Plain));
            for (state, mode) in [(&new, to), (&old, from)] {
                modes.note(mode.iter().map(|mode| (path.as_path(), state, FILE | mode)));
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
            };
            assert_eq!(modes.access(&change).wanted, wanted, "{case:?}");
        }
    }

    #[test]
    fn several_processes_add_to_one_list() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (FileModes::new(dir.path()), FileModes::new(dir.path()));
        let (path, plain) = (Path::new("/p/f"), |hash: &str| state(hash, FileKind::Plain));
        let note = |modes: &FileModes, hash: &str, mode: u32| {
            modes.note(std::iter::once((path, &plain(hash), FILE | mode)));
        };
        let of = |hash: &str| [&one, &other].map(|modes| modes.of(path, &plain(hash)));
        assert_eq!(of("1"), [None; 2]);
        note(&one, "1", 0o600);
        note(&other, "2", 0o640);
        assert_eq!((of("1"), of("2")), ([Some(0o600); 2], [Some(0o640); 2]));
        // What was seen last counts, whoever saw it, also where one saw the same before.
        note(&other, "1", 0o644);
        note(&one, "1", 0o600);
        assert_eq!(of("1"), [Some(0o600); 2]);
        let length = || fs::metadata(dir.path().join("modes")).unwrap().len();
        let before = length();
        note(&other, "1", 0o600);
        assert_eq!(length(), before, "it is known already");
        // A process was killed while it wrote.
        let mut list = fs::File::options().append(true).open(dir.path().join("modes")).unwrap();
        list.write_all(b"644 0123").unwrap();
        assert_eq!(of("1"), [Some(0o600); 2]);
        note(&other, "3", 0o660);
        assert_eq!((of("1"), of("3")), ([Some(0o600); 2], [Some(0o660); 2]));
        assert_eq!([path, Path::new("/p/g")].map(|path| one.of(path, &plain("1"))), [Some(0o600), None]);
        assert_eq!(one.of(path, &state("1", FileKind::Program)), None);
        // Neither links nor modes of links.
        one.note([(path, &state("4", FileKind::Link), FILE | 0o777), (path, &plain("4"), 0o120_777)].into_iter());
        assert_eq!((of("4"), one.of(path, &state("4", FileKind::Link))), ([None; 2], None));
    }

    #[test]
    fn a_list_goes_when_nobody_has_added_to_it_for_long() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (FileModes::new(dir.path()), FileModes::new(dir.path()));
        let (path, plain) = (Path::new("/p/f"), |hash: &str| state(hash, FileKind::Plain));
        let note = |modes: &FileModes, hash: &str| modes.note(std::iter::once((path, &plain(hash), FILE | 0o640)));
        let known = |modes: &FileModes| ["1", "2", "3"].map(|hash| modes.of(path, &plain(hash)).is_some());
        let old = dir.path().join("modes.old");
        note(&one, "1");
        assert_eq!(known(&other), [true, false, false]);
        let limit = fs::metadata(dir.path().join("modes")).unwrap().modified().unwrap();
        one.clean(limit);
        assert!(old.exists());
        note(&other, "2");
        one.clean(limit);
        assert_eq!([&one, &other].map(known), [[true, true, false]; 2], "it was added to lately");
        // What the other list says is noted again: that one goes earlier.
        note(&other, "1");
        let list = fs::File::options().write(true).open(&old).unwrap();
        list.set_modified(limit - Duration::from_secs(1)).unwrap();
        other.clean(limit);
        note(&one, "3");
        assert_eq!([&one, &other].map(known), [[true; 3]; 2]);
        fs::remove_file(&old).unwrap();
        assert_eq!([&one, &other].map(known), [[false, false, true]; 2]);
    }
}
