//! The state of the files before and after something acts on them, so that it can be shown and
//! taken back. Kept beside the sessions, never in the user's repository: no program is started, and
//! nothing below `.git` is written. What is read there is the list of what is ignored, the index, and
//! the contents that need not be kept twice (`snapshot/git.rs`).
//!
//! Three ways lead to a [`FileChange`]. Files that a tool names are looked at before and after it acts
//! ([`Tracker::look`]). What a program writes is kept as the system reports it, before it is written
//! ([`WriteJournal`]): that costs what the program does, and nobody else's writes are among it. Where the system reports
//! nothing, the whole project is compared before and after ([`Tracker::mark`], [`Tracker::since`]); what is found that
//! way may be somebody else's doing, and says so ([`FileChange::compared`]). For comparing, an index remembers of every
//! file what it was when it was read last; a file whose size, times and inode are still the same is not
//! read again, a directory that is still the same is not listed again. A comparison takes a second at most.
//!
//! Contents lie in `snapshot/objects.rs`, named by what they are, those of many small files in `snapshot/packs.rs`; who may read a file says
//! `snapshot/modes.rs`. Ignored files, files over [`LARGEST`], and
//! names that are no UTF-8 are not recorded for programs; a project with more than
//! [`MOST_FILES`] files or [`MOST_BYTES`] bytes is not compared. What is not recorded is never touched later, and an undo
//! names it.
//!
//! Everything here blocks: it is called from threads that may.

mod aging;
mod digest;
mod file;
mod git;
mod ignored;
mod index;
mod journal;
mod modes;
mod objects;
mod packs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub use journal::{JournalEntries, WriteJournal};
pub use modes::FileAccess;
use modes::FileModes;
pub use objects::Missing;
use objects::Objects;

use base::lock::locked;
use transcript::{FileChange, FileKind, FileState};

/// The largest file that is kept when the whole project is compared.
pub const LARGEST: u64 = 4 << 20;

/// The largest file that is kept when a tool names it.
const LARGEST_NAMED: u64 = 64 << 20;

/// The largest project that is compared as a whole, in files and in bytes.
pub const MOST_FILES: usize = 20_000;
/// See [`MOST_FILES`].
pub const MOST_BYTES: u64 = 256 << 20;

/// How long one comparison may take.
const MAX_COMPARISON: Duration = Duration::from_secs(1);

/// Why a project cannot be compared as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untracked {
    /// It is the root of the file system, or the home directory lies in it.
    #[error("{} is not a project of its own", .0.display())]
    Everything(PathBuf),
    /// More than [`MOST_FILES`].
    #[error("there are more than {MOST_FILES} files below {} that are not ignored", .0.display())]
    ManyFiles(PathBuf),
    /// More than [`MOST_BYTES`].
    #[error("there is more than {} MiB below {} that is not ignored", MOST_BYTES >> 20, .0.display())]
    ManyBytes(PathBuf),
    /// It takes longer than a second.
    #[error("comparing the files below {} takes longer than a second", .0.display())]
    Slow(PathBuf),
    /// An error of the file system, in its words.
    #[error("{0}")]
    Failed(String),
    /// The turn was cancelled meanwhile.
    #[error("cancelled")]
    Stopped,
}

/// What is kept about the files of one project.
#[derive(Debug)]
pub struct Tracker {
    root: PathBuf,
    dir: PathBuf,
    /// Why the project is not compared as a whole, where that is known beforehand.
    off: Option<Untracked>,
    told: AtomicBool,
    objects: Objects,
    modes: FileModes,
    // A std mutex around the index, held while the project is compared, on threads that may block;
    // sessions of one project wait for each other there.
    inner: Mutex<TrackerState>,
}

#[derive(Debug, Default)]
struct TrackerState {
    index: Option<index::FileIndex>,
    /// It holds more than what was written down.
    unsaved: bool,
    off: Option<Untracked>,
    /// What has changed while somebody had a mark, oldest first.
    log: Vec<FileChange>,
    /// How many entries were forgotten from the log's beginning.
    forgotten: usize,
    marks: usize,
}

/// A moment in the life of a project.
#[derive(Debug)]
pub struct Mark {
    tracker: Arc<Tracker>,
    at: usize,
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut inner = locked(&self.tracker.inner);
        inner.marks -= 1;
        if inner.marks == 0 {
            inner.forgotten += inner.log.len();
            inner.log.clear();
        }
    }
}

impl Tracker {
    /// What is kept about the project at `root`, below `data`. Nothing is read yet. A root that holds
    /// everything, such as `home`, is not compared as a whole.
    pub fn new(data: &Path, root: &Path, home: Option<&Path>) -> Self {
        let name = digest::digest(root.as_os_str().as_encoded_bytes());
        let dir = data.join("snapshots").join(name.get(..24).unwrap_or(&name));
        let everything = root.parent().is_none() || home.is_some_and(|home| home.starts_with(root));
        Self {
            root: root.to_owned(),
            off: everything.then(|| Untracked::Everything(root.to_owned())),
            told: AtomicBool::new(false),
            objects: Objects::new(dir.join("objects"), dir.join("packs")),
            modes: FileModes::new(&dir),
            dir,
            inner: Mutex::default(),
        }
    }

    /// Looks at one file, and keeps its content. None where there is no file.
    ///
    /// # Errors
    /// The system's, and for what is no regular file or link.
    pub fn look(&self, path: &Path) -> std::io::Result<Option<FileState>> {
        let state = file::read(path, LARGEST_NAMED, Some(&self.objects))?;
        if let (Some(state), Some(print)) = (&state, file::FileStamp::at(path)) {
            self.modes.note(std::iter::once((path, state, print.mode)));
        }
        Ok(state)
    }

    /// Who may do what with a file before and after a change that is about to be made to it.
    pub fn access(&self, change: &FileChange) -> FileAccess {
        self.modes.access(change)
    }

    /// Whether a file is now what it was. Nothing is kept that was not; what it holds is in use.
    ///
    /// # Errors
    /// As [`Tracker::look`].
    pub fn is(&self, path: &Path, state: Option<&FileState>) -> std::io::Result<bool> {
        let limit = if state.is_some_and(|state| state.large) { 0 } else { LARGEST_NAMED };
        let same = file::read(path, limit, None)?.as_ref() == state;
        if let Some(state) = state.filter(|_| same) {
            // Whoever takes its place may have to be taken back.
            self.objects.note_use(&state.hash);
        }
        Ok(same)
    }

    /// Keeps a content that no file has (any more): what an editor has not saved.
    ///
    /// # Errors
    /// The system's.
    pub fn keep(&self, bytes: &[u8]) -> std::io::Result<FileState> {
        let hash = self.objects.put(bytes)?;
        Ok(FileState { hash, kind: FileKind::Plain, large: false })
    }

    /// Whether the project's comparisons cover a file that exists. One that was ignored, is outside or is
    /// gone, they do not.
    pub fn knows(&self, path: &Path) -> bool {
        let inner = locked(&self.inner);
        inner.index.as_ref().is_some_and(|index| index.has(path))
    }

    /// Whether the user is to be told now that the project is not compared: once in a process.
    pub fn tell(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// What a file held.
    ///
    /// # Errors
    /// Where it was not kept, or is gone.
    pub fn content(&self, state: &FileState) -> Result<Vec<u8>, Missing> {
        if state.large { Err(Missing::NeverKept) } else { self.objects.get(&state.hash) }
    }

    /// A content as it is kept, packed; none where it is not kept.
    pub fn packed(&self, state: &FileState) -> Option<Vec<u8>> {
        if state.large { None } else { self.objects.packed(&state.hash) }
    }

    /// Whether a content could be kept and is not.
    pub fn lacks(&self, state: &FileState) -> bool {
        !state.large && !self.objects.has(&state.hash)
    }

    /// Keeps a content that another machine has kept. What it is called counts: another one is not taken.
    ///
    /// # Errors
    /// The system's, and where it is not what it is called.
    pub fn unpack(&self, hash: &str, packed: &[u8]) -> std::io::Result<()> {
        let bytes = objects::unpacked(packed).filter(|bytes| digest::digest(bytes) == hash);
        let bytes = bytes.ok_or_else(|| std::io::Error::other("a content is not what it is called"))?;
        self.objects.put(&bytes).map(drop)
    }

    /// Marks this moment: what changes from now on can be asked for. The first time this reads every
    /// file; later it looks at what is new.
    ///
    /// # Errors
    /// [`Untracked`].
    pub fn mark(self: &Arc<Self>, stop: &AtomicBool) -> Result<Mark, Untracked> {
        let mut inner = locked(&self.inner);
        self.compare(&mut inner, stop)?;
        inner.marks += 1;
        Ok(Mark { tracker: self.clone(), at: inner.forgotten + inner.log.len() })
    }

    /// What has changed since a mark, one change per file, sorted by path.
    ///
    /// # Errors
    /// [`Untracked`].
    pub fn since(&self, mark: &Mark, stop: &AtomicBool) -> Result<Vec<FileChange>, Untracked> {
        let mut inner = locked(&self.inner);
        self.compare(&mut inner, stop)?;
        let from = mark.at.saturating_sub(inner.forgotten);
        Ok(joined(inner.log.get(from..).unwrap_or_default()))
    }

    fn compare(&self, inner: &mut TrackerState, stop: &AtomicBool) -> Result<(), Untracked> {
        if let Some(off) = self.off.as_ref().or(inner.off.as_ref()) {
            return Err(off.clone());
        }
        let stop = &Deadline { stop: Some(stop), end: Instant::now() + MAX_COMPARISON, root: &self.root };
        stop.check()?;
        let failed = |e: std::io::Error| Untracked::Failed(format!("{}: {e}", self.dir.display()));
        base::environment::private_dir(&self.dir).map_err(failed)?;
        let fresh = inner.index.is_none();
        let index = inner.index.get_or_insert_with(|| index::FileIndex::load(&self.dir, &self.root));
        let known = !index.is_new();
        let found = match index.refresh(&self.dir, &self.objects, inner.marks > 0, stop) {
            Ok(found) => found,
            Err(Untracked::Stopped) => return Err(Untracked::Stopped),
            Err(off) => {
                inner.index = None;
                if !matches!(off, Untracked::Failed(_)) {
                    inner.off = Some(off.clone());
                }
                return Err(off);
            }
        };
        if fresh {
            // Old contents are looked for now and then, by the first who comes along.
            index.clean(&self.dir, &self.objects, &self.modes);
        }
        inner.unsaved |= found.differing > 0;
        if (fresh && !known) || found.differing > index::WORTH_SAVING {
            index.save(&self.dir);
            inner.unsaved = false;
        }
        // Before the first mark nobody can ask for it.
        if inner.marks > 0 {
            self.modes.note(found.changes.iter().flat_map(seen));
            inner.log.extend(found.changes.into_iter().map(|(change, _)| change));
        }
        Ok(())
    }

    /// Removes contents that were not used for long, once a day.
    fn clean(&self) {
        if !index::is_cleaning_due(&self.dir) {
            return;
        }
        let inner = locked(&self.inner);
        match &inner.index {
            Some(index) => index.clean(&self.dir, &self.objects, &self.modes),
            // What it says is in use stays, though nothing was compared in this process.
            None => index::FileIndex::load(&self.dir, &self.root).clean(&self.dir, &self.objects, &self.modes),
        }
    }

    /// Writes down what is known, so that the next process need not find it out again.
    pub fn save(&self) {
        let mut inner = locked(&self.inner);
        let unsaved = std::mem::take(&mut inner.unsaved);
        if let Some(index) = inner.index.as_ref().filter(|_| unsaved) {
            index.save(&self.dir);
        }
    }
}

/// What is remembered beside a change that somebody is told.
fn seen((change, modes): &(FileChange, [Option<u32>; 2])) -> impl Iterator<Item = (&Path, &FileState, u32)> {
    let states = [&change.old, &change.new].into_iter().zip(modes);
    states.filter_map(|(state, mode)| Some((Path::new(&change.path), state.as_ref()?, (*mode)?)))
}

/// One change per file, from what it was first to what it was last; without those that ended where
/// they began.
fn joined(log: &[FileChange]) -> Vec<FileChange> {
    let mut files: BTreeMap<&str, FileChange> = BTreeMap::new();
    for change in log {
        files
            .entry(&change.path)
            .and_modify(|known| known.new.clone_from(&change.new))
            .or_insert_with(|| change.clone());
    }
    files.into_values().filter(|change| change.old != change.new).collect()
}

/// The trackers of a process, one per project. A leaf lock.
#[derive(Debug, Default)]
pub struct Trackers(Mutex<BTreeMap<PathBuf, Arc<Tracker>>>);

impl Trackers {
    /// The tracker of a project.
    pub fn of(&self, data: &Path, root: &Path, home: Option<&Path>) -> Arc<Tracker> {
        let mut trackers = locked(&self.0);
        trackers.entry(root.to_owned()).or_insert_with(|| Arc::new(Tracker::new(data, root, home))).clone()
    }
}

/// When a comparison is broken off.
struct Deadline<'a> {
    stop: Option<&'a AtomicBool>,
    end: Instant,
    root: &'a Path,
}

impl Deadline<'_> {
    /// The same for work that must not be broken off because nobody waits for it any more.
    fn unstopped(&self) -> Self {
        Self { stop: None, ..*self }
    }

    fn check(&self) -> Result<(), Untracked> {
        if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Untracked::Stopped);
        }
        if Instant::now() > self.end {
            return Err(Untracked::Slow(self.root.to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
