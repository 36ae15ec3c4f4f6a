//! Snapshots of files before and after a change, so that it can be shown and undone. They are
//! stored with the sessions, never in the user's repository: no program is started, and nothing
//! below `.git` is written. From there, only ignore rules, the index, and contents that need not be
//! stored twice are read (`git.rs`).
//!
//! There are three sources of a [`FileChange`]. Files that a tool names are read before and after
//! it acts ([`Tracker::record_file`]). Writes of a program are recorded as the system reports them,
//! before they happen ([`WriteJournal`]): the cost depends only on the program, and no writes of
//! others are included; a file that others write too is marked. If the system reports nothing, the
//! whole project is compared before and after ([`Tracker::mark`], [`Tracker::since`]); such a
//! change may have another author, and is marked as such ([`FileChange::compared`]). For the
//! comparison, an index stores the state of every file when it was last read. A file whose size,
//! times and inode are unchanged is not read again, an unchanged directory is not listed again. A
//! comparison takes at most a second, except for reading the files that a call has changed; the
//! first reading of a project may take longer, and begins before it is needed
//! ([`Tracker::prepare`]).
//!
//! Contents are stored by their digest (`objects.rs`), many small ones in packs (`packs.rs`), and
//! permissions of files in `modes.rs`. Ignored files, files over [`MAX_FILE_BYTES`], and names that
//! are not UTF-8 are not recorded for programs; a project with more than [`MAX_PROJECT_FILES`]
//! files or [`MAX_PROJECT_BYTES`] bytes is not compared. A file that is not recorded is never
//! modified later, and an undo reports it.
//!
//! All functions block, and are called from threads that may block.

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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use journal::WriteOrder;
pub use journal::{JournalEntries, WriteJournal, WriterProbe};
pub use modes::FileAccess;
use modes::FileModes;
pub use objects::ContentUnavailable;
use objects::Objects;

use base::lock::lock;
use parking_lot::MutexGuard;
use transcript::{FileChange, FileKind, FileState};

/// The size of the largest file that is stored when the whole project is compared.
pub const MAX_FILE_BYTES: u64 = 4 << 20;

/// The size of the largest file that is stored when a tool names it, or when a clone of it is made
/// before a program changes it.
const MAX_NAMED_BYTES: u64 = 64 << 20;

/// The number of files in the largest project that is compared as a whole.
pub const MAX_PROJECT_FILES: usize = 20_000;
/// The number of bytes in the largest project that is compared as a whole.
pub const MAX_PROJECT_BYTES: u64 = 256 << 20;

/// The time limit of one comparison.
const COMPARISON_TIMEOUT: Duration = Duration::from_secs(1);

/// The time limit of the first reading of a project.
const PREPARATION_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval at which a thread that waits for the state checks whether it should stop.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// The time limits of a comparison.
#[derive(Debug, Clone, Copy)]
struct ComparisonLimits {
    /// The limit of finding the files that have changed.
    examination: Duration,
    /// The limit of the whole comparison, with reading these files.
    total: Duration,
}

impl ComparisonLimits {
    /// Before a call, which waits.
    const BEFORE_CALL: Self = Self {
        examination: COMPARISON_TIMEOUT,
        total: COMPARISON_TIMEOUT,
    };

    /// After a call: it may have changed thousands of files, which are known by then, and would be
    /// impossible to restore otherwise.
    const AFTER_CALL: Self = Self {
        examination: COMPARISON_TIMEOUT,
        total: PREPARATION_TIMEOUT,
    };

    /// The first reading of a project.
    const PREPARATION: Self = Self {
        examination: PREPARATION_TIMEOUT,
        total: PREPARATION_TIMEOUT,
    };
}

/// The reason why a project cannot be compared as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untracked {
    /// The project is the root of the file system, or contains the home directory.
    #[error("{} is not a project of its own", .0.display())]
    Everything(PathBuf),
    /// The project has more than [`MAX_PROJECT_FILES`] files.
    #[error("there are more than {MAX_PROJECT_FILES} files below {} that are not ignored", .0.display())]
    ManyFiles(PathBuf),
    /// The project has more than [`MAX_PROJECT_BYTES`] bytes.
    #[error("there is more than {} MiB below {} that is not ignored", MAX_PROJECT_BYTES >> 20, .0.display())]
    ManyBytes(PathBuf),
    /// The comparison takes longer than its limit.
    #[error("comparing the files below {} takes too long", .0.display())]
    Slow(PathBuf),
    /// The project is still read for the first time.
    #[error("the files below {} are still being read for the first time", .0.display())]
    Preparing(PathBuf),
    /// An error of the file system, as text.
    #[error("{0}")]
    Failed(String),
    /// The turn was cancelled.
    #[error("cancelled")]
    Stopped,
}

/// The recorded files of one project.
#[derive(Debug)]
pub struct Tracker {
    /// The root of the project.
    root: PathBuf,
    /// The directory with the data of this project.
    dir: PathBuf,
    /// The reason why the project is not compared as a whole, if it does not depend on the files.
    off: Option<Untracked>,
    /// The notices that the user has had: the project is not compared (first), and it is not compared
    /// yet (second).
    is_reported: [AtomicBool; 2],
    objects: Objects,
    modes: FileModes,
    /// The order of writes, shared by all trackers of a process.
    write_order: Arc<WriteOrder>,
    // A std mutex around the index, held while the project is compared, on threads that may block.
    // Sessions of one project wait for each other there.
    // A lock with a time limit, which those of the standard library do not have.
    inner: parking_lot::Mutex<TrackerState>,
    /// The number of present marks. It grows only while the state is locked.
    marks: AtomicUsize,
    // A leaf lock, held for a moment.
    preparation: Mutex<Preparation>,
    /// Notified when the first reading has ended.
    prepared: Condvar,
}

/// The progress of the first reading of a project.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Preparation {
    #[default]
    NotBegun,
    Running,
    Ended,
}

/// The state that comparisons change.
#[derive(Debug, Default)]
struct TrackerState {
    /// The state of the files at the last comparison; `None` before the first.
    index: Option<index::FileIndex>,
    /// True if the index differs from its file.
    is_unsaved: bool,
    /// The reason why a comparison failed for good.
    off: Option<Untracked>,
    /// Changes since the first of the present marks, oldest first.
    log: Vec<FileChange>,
    /// The number of entries removed from the beginning of the log.
    forgotten: usize,
}

impl TrackerState {
    /// Removes the log if no mark needs it.
    fn forget(&mut self, has_marks: bool) {
        if !has_marks {
            self.forgotten += self.log.len();
            self.log.clear();
        }
    }
}

/// A point in a project's sequence of changes.
#[derive(Debug)]
pub struct Mark {
    tracker: Arc<Tracker>,
    /// The number of earlier changes.
    at: usize,
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.tracker.marks.fetch_sub(1, Ordering::Relaxed);
        // Another session that reads files now removes the log with its next comparison.
        if let Some(mut inner) = self.tracker.inner.try_lock() {
            inner.forget(self.tracker.has_marks());
        }
    }
}

/// Returns the directory with the data of a project; `data` is that of adjutant's data.
fn directory(data: &Path, root: &Path) -> PathBuf {
    let name = digest::digest(root.as_os_str().as_encoded_bytes());
    data.join("snapshots").join(name.get(..24).unwrap_or(&name))
}

/// Copies the contents that are stored for the project of a directory to another project, into
/// which it was moved. Blocks.
///
/// # Errors
/// Errors of the system. A repeated call continues the copy.
pub fn copy_contents(data: &Path, from: &Path, to: &Path) -> std::io::Result<()> {
    let to = directory(data, to);
    // The directory may have been below the root of its project.
    let from = from
        .ancestors()
        .filter(|root| root.parent().is_some())
        .map(|root| directory(data, root))
        .find(|stored| stored.is_dir());
    let Some(from) = from.filter(|from| *from != to) else {
        return Ok(());
    };
    let mut folders: Vec<(PathBuf, PathBuf)> = ["objects", "packs"]
        .iter()
        .map(|name| (from.join(name), to.join(name)))
        .filter(|(from, _)| from.is_dir())
        .collect();
    while let Some((from, to)) = folders.pop() {
        base::environment::private_dir(&to)?;
        for entry in std::fs::read_dir(&from)? {
            let entry = entry?;
            let target = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push((entry.path(), target));
            } else {
                match copy_file(&entry.path(), &target) {
                    // Another process has removed an old content.
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                    copied => copied?,
                }
            }
        }
    }
    Ok(())
}

/// Copies a file of contents, unless the copy is complete already: a pack may have grown. A killed
/// process leaves no incomplete copy under the name.
fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    let length = std::fs::metadata(from)?.len();
    if std::fs::metadata(to).is_ok_and(|copy| copy.len() >= length) {
        return Ok(());
    }
    let folder = to.parent().unwrap_or(to);
    let mut fresh = tempfile::Builder::new()
        .prefix(".new-")
        .tempfile_in(folder)?;
    std::io::copy(&mut std::fs::File::open(from)?, &mut fresh)?;
    fresh.persist(to).map_err(|e| e.error)?;
    Ok(())
}

impl Tracker {
    /// Creates the tracker of the project at `root`, with its data below `data`, without reading
    /// anything. A root that contains `home` is not compared as a whole.
    pub fn new(data: &Path, root: &Path, home: Option<&Path>) -> Self {
        let dir = directory(data, root);
        let everything = root.parent().is_none() || home.is_some_and(|home| home.starts_with(root));
        Self {
            root: root.to_owned(),
            off: everything.then(|| Untracked::Everything(root.to_owned())),
            is_reported: Default::default(),
            objects: Objects::new(dir.join("objects"), dir.join("packs")),
            modes: FileModes::new(&dir),
            write_order: Arc::default(),
            dir,
            inner: parking_lot::Mutex::default(),
            marks: AtomicUsize::new(0),
            preparation: Mutex::default(),
            prepared: Condvar::new(),
        }
    }

    /// Reads one file, and stores its content. Returns `None` if there is no file.
    ///
    /// # Errors
    /// Errors of the system, and an error if it is not a regular file or link.
    pub fn record_file(&self, path: &Path) -> std::io::Result<Option<FileState>> {
        let state = file::read(path, MAX_NAMED_BYTES, Some(&self.objects))?;
        if let (Some(state), Some(stamp)) = (&state, file::FileStamp::at(path)) {
            self.modes
                .record(std::iter::once((path, state, stamp.mode)));
        }
        Ok(state)
    }

    /// Stores the content of a file that the caller has read before. Returns `None` if the file has
    /// another content by now, or cannot be recorded.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn record_read_file(
        &self,
        path: &Path,
        content: &[u8],
    ) -> std::io::Result<Option<FileState>> {
        let Some(stamp) = file::stamp_if_same(path, content, MAX_NAMED_BYTES)? else {
            return Ok(None);
        };
        let state = FileState {
            kind: file::kind(&stamp),
            ..self.store(content)?
        };
        self.modes
            .record(std::iter::once((path, &state, stamp.mode)));
        Ok(Some(state))
    }

    /// Returns the permissions of a file before and after a change that is about to be made to it.
    pub fn access(&self, change: &FileChange) -> FileAccess {
        self.modes.access(change)
    }

    /// Returns whether a file has a given state now. Does not store its content, but marks a stored
    /// content as in use.
    ///
    /// # Errors
    /// Same as [`Tracker::record_file`].
    pub fn has_state(&self, path: &Path, state: Option<&FileState>) -> std::io::Result<bool> {
        let limit = if state.is_some_and(|state| state.large) {
            0
        } else {
            MAX_NAMED_BYTES
        };
        let is_same = file::read(path, limit, None)?.as_ref() == state;
        if let Some(state) = state
            && is_same
        {
            // The file may be replaced now, and the replacement undone later.
            self.objects.mark_used(&state.hash);
        }
        Ok(is_same)
    }

    /// Returns whether a file is small enough for its content to be stored.
    pub fn can_store(&self, path: &Path) -> bool {
        file::FileStamp::at(path).is_none_or(|stamp| stamp.size <= MAX_NAMED_BYTES)
    }

    /// Stores an object that is in no file, such as the unsaved text of an editor.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn store(&self, bytes: &[u8]) -> std::io::Result<FileState> {
        let hash = self.objects.put(bytes)?;
        Ok(FileState {
            hash,
            kind: FileKind::Plain,
            large: false,
        })
    }

    /// Returns whether comparisons of the project cover a file: it is in the index. They do not
    /// cover files that are ignored, outside or removed.
    pub fn covers(&self, path: &Path) -> bool {
        let inner = self.inner.lock();
        inner.index.as_ref().is_some_and(|index| index.has(path))
    }

    /// Returns whether the user has to be notified now that the project is not compared, or not
    /// yet: once each per process.
    pub fn must_notify(&self, off: &Untracked) -> bool {
        let [never, not_yet] = &self.is_reported;
        let is_reported = match off {
            Untracked::Stopped => return false,
            Untracked::Preparing(_) => not_yet,
            _ => never,
        };
        !is_reported.swap(true, Ordering::Relaxed)
    }

    /// Returns the content of a file in a state.
    ///
    /// # Errors
    /// If it was not stored, or was removed.
    pub fn content(&self, state: &FileState) -> Result<Vec<u8>, ContentUnavailable> {
        if state.large {
            Err(ContentUnavailable::NotStored)
        } else {
            self.objects.get(&state.hash)
        }
    }

    /// Returns an object in its stored form, for [`Tracker::store_encoded`] on another machine, or
    /// `None` if it is not stored.
    pub fn stored_bytes(&self, state: &FileState) -> Option<Vec<u8>> {
        if state.large {
            None
        } else {
            self.objects.stored_bytes(&state.hash)
        }
    }

    /// Returns whether an object should be stored but is missing.
    pub fn is_content_missing(&self, state: &FileState) -> bool {
        !state.large && !self.objects.has(&state.hash)
    }

    /// Stores an object in the form of [`Tracker::stored_bytes`], as another machine has stored it.
    ///
    /// # Errors
    /// Errors of the system, and an error if the content does not have this digest.
    pub fn store_encoded(&self, hash: &str, encoded: &[u8]) -> std::io::Result<()> {
        let bytes = objects::decode_content(encoded).filter(|bytes| digest::digest(bytes) == hash);
        let bytes = bytes
            .ok_or_else(|| std::io::Error::other("a stored content does not match its name"))?;
        self.objects.put(&bytes).map(drop)
    }

    /// Reads every file once, so that comparisons need to read only changed files. Takes as long as
    /// that takes, up to a minute. Only the first call does anything.
    pub fn prepare(&self, stop: &AtomicBool) {
        {
            let mut preparation = lock(&self.preparation);
            if *preparation != Preparation::NotBegun {
                return;
            }
            *preparation = Preparation::Running;
        }
        let _ended = PreparationEnd(self);
        let mut inner = self.inner.lock();
        if inner.index.is_some() {
            return;
        }
        if let Err(e) = self.compare(&mut inner, stop, ComparisonLimits::PREPARATION) {
            tracing::info!("the project is not read in advance: {e}");
        }
    }

    /// Waits until the first reading has ended, at most as long as a comparison takes.
    ///
    /// # Errors
    /// [`Untracked::Preparing`].
    fn await_preparation(&self) -> Result<(), Untracked> {
        let is_running = |preparation: &mut Preparation| *preparation == Preparation::Running;
        let (preparation, _) = self
            .prepared
            .wait_timeout_while(lock(&self.preparation), COMPARISON_TIMEOUT, is_running)
            .unwrap_or_else(PoisonError::into_inner);
        if *preparation == Preparation::Running {
            return Err(Untracked::Preparing(self.root.clone()));
        }
        Ok(())
    }

    /// Returns whether [`Tracker::prepare`] was not called yet.
    pub fn needs_preparation(&self) -> bool {
        *lock(&self.preparation) == Preparation::NotBegun
    }

    /// Returns whether [`Tracker::prepare`] is running.
    fn is_preparing(&self) -> bool {
        *lock(&self.preparation) == Preparation::Running
    }

    /// Marks the present state, so that later changes can be queried. The first call reads every
    /// file, unless [`Tracker::prepare`] has; later ones read only changed files.
    ///
    /// # Errors
    /// [`Untracked`].
    pub fn mark(self: &Arc<Self>, stop: &AtomicBool) -> Result<Mark, Untracked> {
        self.await_preparation()?;
        let mut inner = self.inner_within(COMPARISON_TIMEOUT)?;
        self.compare(&mut inner, stop, ComparisonLimits::BEFORE_CALL)?;
        self.marks.fetch_add(1, Ordering::Relaxed);
        Ok(Mark {
            tracker: self.clone(),
            at: inner.forgotten + inner.log.len(),
        })
    }

    /// Returns the state once no other session reads files with it, which can take a minute after a
    /// command that changed many.
    fn inner_within(&self, limit: Duration) -> Result<MutexGuard<'_, TrackerState>, Untracked> {
        self.inner
            .try_lock_for(limit)
            .ok_or_else(|| Untracked::Preparing(self.root.clone()))
    }

    /// Returns the state once no other session reads files with it, unless that is no longer
    /// wanted.
    fn inner_unless(&self, stop: &AtomicBool) -> Result<MutexGuard<'_, TrackerState>, Untracked> {
        while !stop.load(Ordering::Relaxed) {
            if let Some(inner) = self.inner.try_lock_for(STOP_INTERVAL) {
                return Ok(inner);
            }
        }
        Err(Untracked::Stopped)
    }

    /// Returns whether changes may be queried.
    fn has_marks(&self) -> bool {
        self.marks.load(Ordering::Relaxed) > 0
    }

    /// Returns the changes since a mark, one per file, sorted by path.
    ///
    /// # Errors
    /// [`Untracked`].
    pub fn since(&self, mark: &Mark, stop: &AtomicBool) -> Result<Vec<FileChange>, Untracked> {
        let mut inner = self.inner_unless(stop)?;
        self.compare(&mut inner, stop, ComparisonLimits::AFTER_CALL)?;
        let from = mark.at.saturating_sub(inner.forgotten);
        Ok(merge_changes(inner.log.get(from..).unwrap_or_default()))
    }

    /// Compares the project with the index, updates the index, and adds the changes to the log.
    fn compare(
        &self,
        inner: &mut TrackerState,
        stop: &AtomicBool,
        limits: ComparisonLimits,
    ) -> Result<(), Untracked> {
        if let Some(off) = self.off.as_ref().or(inner.off.as_ref()) {
            return Err(off.clone());
        }
        let began = Instant::now();
        let stop = &Deadline {
            stop: Some(stop),
            end: began + limits.examination,
            total_end: began + limits.total,
            root: &self.root,
        };
        stop.check()?;
        let failed = |e: std::io::Error| Untracked::Failed(format!("{}: {e}", self.dir.display()));
        base::environment::private_dir(&self.dir).map_err(failed)?;
        let has_marks = self.has_marks();
        inner.forget(has_marks);
        let is_first = inner.index.is_none();
        let index = inner
            .index
            .get_or_insert_with(|| index::FileIndex::load(&self.dir, &self.root));
        let was_new = index.is_new();
        let refreshed = match index.refresh(&self.dir, &self.objects, has_marks, stop) {
            Ok(refreshed) => refreshed,
            Err(Untracked::Stopped) => return Err(Untracked::Stopped),
            Err(off) => {
                inner.index = None;
                if !matches!(off, Untracked::Failed(_)) {
                    inner.off = Some(off.clone());
                }
                return Err(off);
            }
        };
        if is_first {
            // Old contents are removed now and then, by the first comparison of any process.
            index.clean(&self.dir, &self.objects, &self.modes);
        }
        inner.is_unsaved |= refreshed.differing > 0;
        if (is_first && was_new) || refreshed.differing > index::WORTH_SAVING {
            index.save(&self.dir);
            inner.is_unsaved = false;
        }
        // Without a mark, the changes cannot be queried.
        if has_marks {
            self.modes
                .record(refreshed.changes.iter().flat_map(states_with_modes));
            inner
                .log
                .extend(refreshed.changes.into_iter().map(|(change, _)| change));
        }
        Ok(())
    }

    /// Removes contents that have not been used for long, at most once a day.
    fn clean(&self) {
        // The first reading cleans as well.
        if self.is_preparing() || !index::is_cleaning_due(&self.dir) {
            return;
        }
        let inner = self.inner.lock();
        match &inner.index {
            Some(index) => index.clean(&self.dir, &self.objects, &self.modes),
            // The saved index names contents in use, even if nothing was compared in this process.
            None => index::FileIndex::load(&self.dir, &self.root).clean(
                &self.dir,
                &self.objects,
                &self.modes,
            ),
        }
    }

    /// Saves the index, so that the next process need not read all files again.
    pub fn save(&self) {
        // The first reading saves it at its end.
        if self.is_preparing() {
            return;
        }
        // Another session reads changed files, which may take a minute, and saves the index at its
        // end.
        let Some(mut inner) = self.inner.try_lock() else {
            return;
        };
        let is_unsaved = std::mem::take(&mut inner.is_unsaved);
        if let Some(index) = &inner.index
            && is_unsaved
        {
            index.save(&self.dir);
        }
    }
}

/// Ends the first reading of a project when it is dropped.
struct PreparationEnd<'a>(&'a Tracker);

impl Drop for PreparationEnd<'_> {
    fn drop(&mut self) {
        *lock(&self.0.preparation) = Preparation::Ended;
        self.0.prepared.notify_all();
    }
}

/// Returns the states of a change, with their modes.
fn states_with_modes(
    (change, modes): &(FileChange, [Option<u32>; 2]),
) -> impl Iterator<Item = (&Path, &FileState, u32)> {
    let states = [&change.old, &change.new].into_iter().zip(modes);
    states.filter_map(|(state, mode)| Some((Path::new(&change.path), state.as_ref()?, (*mode)?)))
}

/// Combines the changes of each file, from its first state to its last. Files whose first and last
/// states are equal are omitted.
fn merge_changes(log: &[FileChange]) -> Vec<FileChange> {
    let mut files: BTreeMap<&str, FileChange> = BTreeMap::new();
    for change in log {
        files
            .entry(&change.path)
            .and_modify(|known| known.new.clone_from(&change.new))
            .or_insert_with(|| change.clone());
    }
    files
        .into_values()
        .filter(|change| change.old != change.new)
        .collect()
}

/// The trackers of a process, one per project.
#[derive(Debug, Default)]
pub struct Trackers {
    // A leaf lock.
    by_root: Mutex<BTreeMap<PathBuf, Arc<Tracker>>>,
    /// Of all projects, because one may contain another.
    write_order: Arc<WriteOrder>,
}

impl Trackers {
    /// Returns the tracker of a project.
    pub fn of(&self, data: &Path, root: &Path, home: Option<&Path>) -> Arc<Tracker> {
        let mut trackers = lock(&self.by_root);
        let tracker = || Tracker {
            write_order: self.write_order.clone(),
            ..Tracker::new(data, root, home)
        };
        trackers
            .entry(root.to_owned())
            .or_insert_with(|| Arc::new(tracker()))
            .clone()
    }
}

/// The condition that ends a comparison early.
struct Deadline<'a> {
    /// Set when the turn is cancelled; `None` if that has no effect.
    stop: Option<&'a AtomicBool>,
    /// The end of the examination.
    end: Instant,
    /// The end of the whole comparison.
    total_end: Instant,
    /// The root of the project, for the error.
    root: &'a Path,
}

impl Deadline<'_> {
    /// Returns a deadline that ignores cancellation, for work that must not stop halfway.
    fn unstopped(&self) -> Self {
        Self {
            stop: None,
            ..*self
        }
    }

    /// Returns the deadline for reading the files that have changed.
    fn of_reading(&self) -> Self {
        Self {
            end: self.total_end,
            ..*self
        }
    }

    /// Returns an error if the comparison must end.
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
