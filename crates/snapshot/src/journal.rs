//! Writes of programs, recorded as they are reported before they happen (`writes.rs` of the
//! sandbox): the state of each file before the first write, and its state when the call that
//! touched it had ended. A later save by the user is not included.
//!
//! Others may write the same file while the call still runs. If they belong to this process, the
//! first record ends when the second begins ([`WriteJournal::take_over`]). Of others, nothing is
//! reported: the metadata of a file is noted once its writers have closed it
//! ([`WriteJournal::note_closed_files`]). If it differs when the call ends, another writer has
//! changed the file since, and the change is marked ([`FileChange::compared`]). So is a file that
//! a foreign program has open for writing when the session's programs have closed it: its writes
//! through a mapping need not change the metadata.
//!
//! Only touched files are read. Their contents are in memory until the call ends, and are not
//! stored at all if the file is unchanged; they are stored earlier only if there are many. Of a
//! large file, an unnamed clone is made if the file system shares blocks between files.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant, SystemTime};

use super::file::{FileStamp, FoundFile, cloned, load};
use super::ignored::IgnoreRules;
use super::{MAX_FILE_BYTES, MAX_NAMED_BYTES, Tracker};
use base::id::CallId;
use base::lock::lock;
use transcript::{self, FileChange, FileKind, FileState, UnrecordedReason, UnrecordedWrite};

/// The maximum size of contents in memory, in bytes.
const MAX_MEMORY_BYTES: usize = 64 << 20;

/// The maximum number of entries that are examined when a directory is renamed.
const MAX_RENAMED_ENTRIES: usize = 5_000;

/// The maximum number of clones of large files at a time; each is an open file.
const MAX_CLONES: usize = 64;

/// The time since the last report of a file after which its open call has surely returned.
const OPEN_TIMEOUT: Duration = Duration::from_millis(50);

/// The time since the last report of a file after which the reported call has surely been made. A
/// file that is unchanged then is forgotten.
const FORGET_TIMEOUT: Duration = Duration::from_secs(2);

/// The age from which on the modification time of a file differs from that of the next write, on
/// any file system.
const MIN_STAMP_AGE: Duration = Duration::from_secs(3);

/// The maximum number of unrecorded writes that are listed.
const MAX_UNRECORDED_WRITES: usize = 1_000;

/// Functions that find the processes that may write a file.
#[derive(Debug, Clone, Copy)]
pub struct WriterProbe {
    /// Returns whether a process has a file open for writing, or maps it so, if the system can tell.
    pub has_writer: fn(&Path) -> Option<bool>,
    /// Returns the running programs that this process has started, directly or indirectly.
    pub programs: fn() -> Vec<u32>,
}

/// The present writer of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileWriter {
    /// There is none, as far as the system can tell.
    None,
    /// A program of a session, with its process.
    Own(u32),
    Foreign,
}

/// A record of the contents that files had before the programs of a step touched them.
#[derive(Debug)]
pub struct WriteJournal {
    this: Weak<Self>,
    tracker: Arc<Tracker>,
    probe: WriterProbe,
    /// The number of programs that report to it.
    running: AtomicUsize,
    /// The number of directories whose files are being recorded before a rename.
    renaming: AtomicUsize,
    /// True if there are reports that were not taken yet.
    has_reports: AtomicBool,
    // A std mutex around the recorded states, held while files are read, on threads that may block.
    state: Mutex<JournalState>,
    // A leaf lock, held for a moment.
    unrecorded: Arc<Mutex<BTreeSet<UnrecordedWrite>>>,
}

#[derive(Debug, Default)]
struct JournalState {
    touched: HashMap<PathBuf, TouchedFile>,
    /// Changes by ended calls, in the order in which they ended; `None` for calls of subagents.
    finished: Vec<(Option<CallId>, FileChange)>,
    /// The size of the contents in memory, in bytes.
    memory: usize,
    /// The number of clones of large files.
    clones: usize,
    /// Modes of stored states, to be recorded together when a call ends.
    modes: Vec<(PathBuf, FileState, u32)>,
    /// Ignore rules, read when the first file is touched.
    rules: Option<IgnoreRules>,
    unrecorded: Arc<Mutex<BTreeSet<UnrecordedWrite>>>,
}

/// The order of writes by the sessions of one process.
#[derive(Debug)]
pub(super) struct WriteOrder {
    /// The journal whose programs have touched a file last, by the path of the file.
    last_writers: Mutex<HashMap<PathBuf, Weak<WriteJournal>>>,
    next_sequence: AtomicU64,
}

impl Default for WriteOrder {
    #[expect(
        clippy::disallowed_methods,
        reason = "numbers must exceed those that earlier processes have stored"
    )]
    fn default() -> Self {
        let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let micros = age.map_or(1, |age| u64::try_from(age.as_micros()).unwrap_or(1));
        Self {
            last_writers: Mutex::default(),
            next_sequence: AtomicU64::new(micros),
        }
    }
}

impl WriteOrder {
    /// Returns the journal of the last writer of a file, unless it is this one.
    fn other_writer(&self, path: &Path, this: &Weak<WriteJournal>) -> Option<Arc<WriteJournal>> {
        let writers = lock(&self.last_writers);
        let last = writers.get(path).filter(|last| !last.ptr_eq(this))?;
        last.upgrade()
    }

    /// Sets the journal of the last writer of a file. Returns the previous one if it is another.
    fn set_writer(&self, path: &Path, journal: &Weak<WriteJournal>) -> Option<Arc<WriteJournal>> {
        let last = lock(&self.last_writers).insert(path.to_owned(), journal.clone());
        last.filter(|last| !last.ptr_eq(journal))?.upgrade()
    }

    /// Removes the files of dropped journals.
    fn clean(&self) {
        lock(&self.last_writers).retain(|_, journal| journal.strong_count() > 0);
    }
}

/// A file that programs of this journal have touched, in a call that has not ended.
#[derive(Debug)]
struct TouchedFile {
    /// Its state before the first report.
    before: EarlierState,
    /// The metadata before it was touched, if every write is certain to change them.
    stamp_before: Option<FileStamp>,
    /// The process that touched it last.
    pid: u32,
    /// The unfinished calls whose programs have touched it.
    calls: Vec<CallId>,
    /// The time of the last report.
    reported: Instant,
    /// The state of its writers since then.
    writing: WritingState,
    /// True if others wrote it between two writes of this journal's programs.
    is_shared: bool,
}

/// The state of the writes to a file, since the last report of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WritingState {
    /// A program may have it open.
    Open,
    /// No program had it open any more when its metadata were read; `None` if there was no file.
    Closed(Option<FileStamp>),
}

impl TouchedFile {
    fn new(before: EarlierState, pid: u32, calls: Vec<CallId>) -> Self {
        Self {
            before,
            stamp_before: None,
            pid,
            calls,
            reported: Instant::now(),
            writing: WritingState::Open,
            is_shared: false,
        }
    }

    /// Records another report of the file.
    fn note_report(&mut self, path: &Path, pid: u32, call: &CallId) {
        if pid != 0 {
            self.pid = pid;
        }
        if !self.calls.contains(call) {
            self.calls.push(call.clone());
        }
        self.note_open(path);
    }

    /// Records that the metadata of the file may change again.
    fn note_open(&mut self, path: &Path) {
        self.is_shared |= self.was_written_by_others(path);
        self.reported = Instant::now();
        self.writing = WritingState::Open;
    }

    /// Returns whether the file was written after its writers had closed it.
    fn was_written_by_others(&self, path: &Path) -> bool {
        match self.writing {
            WritingState::Open => false,
            WritingState::Closed(closed) => {
                // Another link to the file changes only the time of the change.
                let content = |stamp: FileStamp| FileStamp {
                    changed: 0,
                    ..stamp
                };
                FileStamp::at(path).map(content) != closed.map(content)
            }
        }
    }

    /// Returns whether the file is certain to be as it was before.
    fn is_unchanged(&self, now: Option<FileStamp>) -> bool {
        match now {
            None => matches!(self.before, EarlierState::Missing),
            Some(_) => self.stamp_before == now,
        }
    }
}

/// The state of a file before it was touched.
#[derive(Debug, Clone)]
enum EarlierState {
    /// There was no file.
    Missing,
    /// A file whose content is in memory.
    InMemory {
        bytes: Vec<u8>,
        kind: FileKind,
        mode: u32,
    },
    /// A large file, with a clone of it.
    Cloned {
        clone: Arc<File>,
        kind: FileKind,
        mode: u32,
    },
    /// A file whose content is in the store, or too large for it.
    Stored(FileState),
}

impl EarlierState {
    /// Returns the size of its content in memory, in bytes.
    fn memory(&self) -> usize {
        match self {
            Self::InMemory { bytes, .. } => bytes.len(),
            Self::Missing | Self::Cloned { .. } | Self::Stored(_) => 0,
        }
    }

    fn is_clone(&self) -> bool {
        matches!(self, Self::Cloned { .. })
    }

    /// Reads the content of a clone into memory.
    fn loaded(self) -> std::io::Result<Self> {
        let Self::Cloned { clone, kind, mode } = self else {
            return Ok(self);
        };
        let mut file = &*clone;
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(Self::InMemory { bytes, kind, mode })
    }
}

/// Adds an unrecorded write to the list, or one entry for all beyond the maximum.
fn note_unrecorded(
    unrecorded: &Mutex<BTreeSet<UnrecordedWrite>>,
    what: String,
    why: UnrecordedReason,
) {
    let mut unrecorded = lock(unrecorded);
    let write = if unrecorded.len() < MAX_UNRECORDED_WRITES {
        UnrecordedWrite { what, why }
    } else {
        UnrecordedWrite {
            what: String::new(),
            why: UnrecordedReason::Further,
        }
    };
    unrecorded.insert(write);
}

/// The changes of a step, and the writes whose earlier state is unknown.
#[derive(Debug, Default)]
pub struct JournalEntries {
    /// Sorted by path. If two changes of a file do not follow on each other, it was changed by
    /// others in between.
    pub files: Vec<FileChange>,
    /// The writes whose earlier state is unknown.
    pub unrecorded: Vec<UnrecordedWrite>,
}

impl Drop for WriteJournal {
    fn drop(&mut self) {
        self.tracker.write_order.clean();
    }
}

impl WriteJournal {
    /// Creates the journal of a step.
    pub fn new(tracker: Arc<Tracker>, probe: WriterProbe) -> Arc<Self> {
        let unrecorded: Arc<Mutex<BTreeSet<UnrecordedWrite>>> = Arc::default();
        let state = Mutex::new(JournalState {
            unrecorded: unrecorded.clone(),
            ..JournalState::default()
        });
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            tracker,
            probe,
            running: AtomicUsize::new(0),
            renaming: AtomicUsize::new(0),
            has_reports: AtomicBool::new(false),
            state,
            unrecorded,
        })
    }

    /// Records that a program reports to this journal from now on.
    pub fn program_started(&self) {
        self.running.fetch_add(1, Ordering::SeqCst);
    }

    /// Records that the last process of a program of this call has ended.
    pub fn program_ended(&self, call: &CallId) {
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.finish(call);
    }

    /// Records that a process is about to change the access control list of a file or directory.
    pub fn touch_access_list(&self, path: &Path) {
        if !path.starts_with(&self.tracker.root) {
            return;
        }
        let ignored = lock(&self.state).rules(&self.tracker).ignored(path);
        if ignored.is_none() {
            let name = path.display().to_string();
            self.note_unrecorded(&name, UnrecordedReason::AccessList);
        }
    }

    /// Records the end of a call. The present state of the files that it touched is its result,
    /// unless another call still uses them.
    pub fn finish(&self, call: &CallId) {
        let mut state = lock(&self.state);
        let mut finished = Vec::new();
        for (path, touched) in &mut state.touched {
            match &touched.calls[..] {
                [only] if only == call => finished.push(path.clone()),
                _ => touched.calls.retain(|other| other != call),
            }
        }
        for path in finished {
            if let Some(touched) = state.touched.remove(&path) {
                self.finish_file(&mut state, path, touched);
            }
        }
        state.record_modes(&self.tracker);
    }

    /// Records the end of an edit with everything that ran after it, such as a formatter. `old` is
    /// the state before it.
    ///
    /// # Errors
    /// Errors of reading the file.
    pub fn finish_edit(
        &self,
        call: &CallId,
        path: &Path,
        old: Option<FileState>,
    ) -> std::io::Result<()> {
        let mut state = lock(&self.state);
        let name = path.display().to_string();
        state
            .finished
            .retain(|(by, change)| by.as_ref() != Some(call) || change.path != name);
        let mut touched = state.touched.remove(path);
        if let Some(touched) = &mut touched {
            touched.calls.retain(|other| other != call);
        }
        let new = match self.tracker.record_file(path) {
            Ok(new) => new,
            Err(e) => {
                state.keep_touched(path, touched);
                return Err(e);
            }
        };
        if old != new {
            let change = FileChange {
                path: name,
                old,
                new: new.clone(),
                compared: false,
                sequence: self.tracker.next_sequence(),
            };
            state.finished.push((Some(call.clone()), change));
        }
        if let Some(touched) = &mut touched {
            state.note_released(&touched.before);
            touched.before = new.map_or(EarlierState::Missing, EarlierState::Stored);
            touched.stamp_before = None;
            touched.writing = WritingState::Open;
            touched.reported = Instant::now();
        }
        state.keep_touched(path, touched);
        state.record_modes(&self.tracker);
        self.has_reports.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Adds the records of subagents' sessions.
    pub fn add(&self, entries: JournalEntries) {
        let JournalEntries { files, unrecorded } = entries;
        if files.is_empty() && unrecorded.is_empty() {
            return;
        }
        lock(&self.state)
            .finished
            .extend(files.into_iter().map(|change| (None, change)));
        lock(&self.unrecorded).extend(unrecorded);
        self.has_reports.store(true, Ordering::SeqCst);
    }

    /// Returns whether a program may still write.
    pub fn is_open(&self) -> bool {
        self.running.load(Ordering::SeqCst) > 0
    }

    /// Returns whether nothing was reported since the last [`WriteJournal::take`].
    pub fn is_empty(&self) -> bool {
        !self.has_reports.load(Ordering::SeqCst)
    }

    /// Records a certain or possible write whose earlier state is unknown.
    pub fn note_unrecorded(&self, what: &str, why: UnrecordedReason) {
        self.has_reports.store(true, Ordering::SeqCst);
        note_unrecorded(&self.unrecorded, what.to_owned(), why);
    }

    /// Records that a process is about to change, create or remove a file; `is_new` is whether
    /// there is none yet. The path is absolute, with symlinks resolved.
    pub fn touch(&self, path: &Path, pid: u32, is_new: bool, call: &CallId) {
        if !path.starts_with(&self.tracker.root) {
            return;
        }
        self.has_reports.store(true, Ordering::SeqCst);
        let ended = self.end_record_of_others(path);
        let was_others = ended.is_some();
        let mut is_shared = ended == Some(true);
        let free = self.state.try_lock().ok();
        // While this waits for the end of another call, someone may create the file.
        let is_new = is_new && free.is_some() && !was_others;
        let mut state = free.unwrap_or_else(|| lock(&self.state));
        let is_first = state.touch(path, pid, is_new, call, &self.tracker);
        drop(state);
        if (is_first || was_others)
            && let Some(other) = self.tracker.write_order.set_writer(path, &self.this)
        {
            // It has touched the file at the same time. The reported call waits, so this one has
            // not written yet.
            is_shared |= other.end_record(path, true);
        }
        // Programs of the other journal may write it without another report.
        if is_shared && let Some(touched) = lock(&self.state).touched.get_mut(path) {
            touched.is_shared = true;
        }
    }

    /// Records that a process is about to set the times of a file, which would otherwise look as if
    /// others had written it. Returns whether the programs of this journal have touched the file.
    pub fn touch_times(&self, path: &Path) -> bool {
        if let Some(other) = self.tracker.write_order.other_writer(path, &self.this) {
            // The content does not change, so a record that begins now is not shared.
            other.end_record(path, false);
        }
        match lock(&self.state).touched.get_mut(path) {
            Some(touched) => {
                touched.note_open(path);
                true
            }
            None => false,
        }
    }

    /// Ends the records of a file that a tool is about to edit, because earlier writes of programs
    /// are not part of the edit.
    pub fn take_over(&self, path: &Path) {
        self.end_record_of_others(path);
        self.end_record(path, false);
    }

    /// Ends the record of a file by the journal that has touched it last, if that is another one.
    /// Returns whether a program still has it open; `None` if there was no other journal.
    fn end_record_of_others(&self, path: &Path) -> Option<bool> {
        let other = self.tracker.write_order.other_writer(path, &self.this)?;
        Some(other.end_record(path, true))
    }

    /// Records the present state of a file as the result of the calls that have touched it. If a
    /// program still has it open, a new record begins; `is_for_others` is whether others write the
    /// file from now on. Returns whether a new record begins.
    fn end_record(&self, path: &Path, is_for_others: bool) -> bool {
        let mut state = lock(&self.state);
        let Some(touched) = state.touched.remove(path) else {
            return false;
        };
        self.finish_file(&mut state, path.to_owned(), touched);
        state.record_modes(&self.tracker);
        let continued = state.touched.get_mut(path);
        continued
            .map(|touched| touched.is_shared |= is_for_others)
            .is_some()
    }

    /// Notes the metadata of the files that their writers have closed, so that later writes of
    /// others are recognised. A file that is certain to be unchanged is forgotten.
    ///
    /// Returns whether there are files that are still open, or were reported just now.
    pub fn note_closed_files(&self) -> bool {
        if self.renaming.load(Ordering::SeqCst) > 0 {
            return true;
        }
        let mut is_pending = false;
        let mut due = Vec::new();
        for (path, touched) in &lock(&self.state).touched {
            let timeout = match touched.writing {
                WritingState::Open => OPEN_TIMEOUT,
                WritingState::Closed(closed) if touched.is_unchanged(closed) => FORGET_TIMEOUT,
                WritingState::Closed(_) => continue,
            };
            if touched.reported.elapsed() < timeout {
                is_pending = true;
            } else {
                due.push((path.clone(), touched.reported, touched.pid));
            }
        }
        for (path, reported, pid) in due {
            let writer = self.writer(&path, pid);
            let mut state = lock(&self.state);
            // It may have been reported again.
            let unreported = state.touched.get_mut(&path);
            let Some(touched) = unreported.filter(|touched| touched.reported == reported) else {
                continue;
            };
            if let FileWriter::Own(pid) = writer {
                touched.pid = pid;
                is_pending = true;
                continue;
            }
            let is_first = touched.writing == WritingState::Open;
            touched.is_shared |= is_first && writer == FileWriter::Foreign;
            is_pending |= state.note_closed_file(&path);
        }
        is_pending
    }

    /// Records that a directory is about to be renamed; with `exchange`, the two names are
    /// exchanged.
    pub fn touch_directory(&self, from: &Path, to: &Path, exchange: bool, call: &CallId) {
        self.has_reports.store(true, Ordering::SeqCst);
        let mut state = lock(&self.state);
        let mut files = state.files_below(from, to, &self.tracker);
        if exchange {
            files.extend(state.files_below(to, from, &self.tracker));
        }
        drop(state);
        // Reading the files may take a while, and the directory is renamed only after that.
        self.renaming.fetch_add(1, Ordering::SeqCst);
        for file in &files {
            self.touch(file, 0, false, call);
        }
        let mut state = lock(&self.state);
        for file in &files {
            if let Some(touched) = state.touched.get_mut(file) {
                touched.reported = Instant::now();
            }
        }
        drop(state);
        self.renaming.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns the changes since the last call, with their contents stored.
    pub fn take(&self) -> JournalEntries {
        let mut state = lock(&self.state);
        for (path, touched) in std::mem::take(&mut state.touched) {
            self.finish_file(&mut state, path, touched);
        }
        state.record_modes(&self.tracker);
        // A subagent's changes were added after its calls.
        state.finished.sort_by_key(|(_, change)| change.sequence);
        let mut files = transcript::merged(state.finished.iter().map(|(_, change)| change));
        state.finished.clear();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let unrecorded = std::mem::take(&mut *lock(&self.unrecorded))
            .into_iter()
            .collect();
        self.has_reports
            .store(!state.touched.is_empty(), Ordering::SeqCst);
        drop(state);
        if !files.is_empty() {
            self.tracker.clean();
        }
        JournalEntries { files, unrecorded }
    }

    /// Records the change of a file that was touched.
    fn finish_file(&self, state: &mut JournalState, path: PathBuf, mut touched: TouchedFile) {
        state.note_released(&touched.before);
        let is_noted = touched.writing != WritingState::Open;
        // Before the file is read, because a program may write and close it after that.
        let writer = if is_noted && !self.is_open() {
            FileWriter::None
        } else {
            self.writer(&path, touched.pid)
        };
        let is_shared = touched.is_shared || !is_noted && writer == FileWriter::Foreign;
        let path_text = path.display().to_string();
        let before = std::mem::replace(&mut touched.before, EarlierState::Missing);
        match self.resolve_change(&path, before, &mut state.modes) {
            Ok((change, present)) => {
                let change = change.map(|(old, new)| FileChange {
                    path: path_text,
                    old,
                    new,
                    compared: is_shared || touched.was_written_by_others(&path),
                    sequence: self.tracker.next_sequence(),
                });
                let TouchedFile { pid, calls, .. } = touched;
                state
                    .finished
                    .extend(change.map(|change| (calls.first().cloned(), change)));
                // A process that has it open may write again.
                if self.is_open() && writer != FileWriter::None {
                    state.memory += present.memory();
                    state.clones += usize::from(present.is_clone());
                    let pid = match writer {
                        FileWriter::Own(pid) => pid,
                        FileWriter::None | FileWriter::Foreign => pid,
                    };
                    let touched = TouchedFile {
                        is_shared: writer == FileWriter::Foreign,
                        ..TouchedFile::new(present, pid, calls)
                    };
                    state.touched.insert(path, touched);
                }
            }
            Err(e) => {
                tracing::warn!("the new content of {path_text} is not saved: {e}");
                state.note_unrecorded(path_text, UnrecordedReason::Unreadable);
            }
        }
    }

    /// Returns the writer of a file that a process has touched last. If the system cannot tell, only
    /// this process counts.
    fn writer(&self, path: &Path, pid: u32) -> FileWriter {
        let has_writer = (self.probe.has_writer)(path);
        if has_writer == Some(false) {
            return FileWriter::None;
        }
        if has_open_for_writing(pid, path) {
            return FileWriter::Own(pid);
        }
        if has_writer.is_none() {
            return FileWriter::None;
        }
        // Its children may have inherited the descriptor.
        let programs = (self.probe.programs)();
        let heir = programs
            .into_iter()
            .find(|program| has_open_for_writing(*program, path));
        match heir {
            Some(heir) => FileWriter::Own(heir),
            // Its writer may have closed it during the search.
            None if (self.probe.has_writer)(path) == Some(false) => FileWriter::None,
            None => FileWriter::Foreign,
        }
    }

    /// Returns the states of a file before and after, if they differ, and its present state.
    fn resolve_change(
        &self,
        path: &Path,
        before: EarlierState,
        modes: &mut Vec<(PathBuf, FileState, u32)>,
    ) -> std::io::Result<(Option<StatePair>, EarlierState)> {
        let clone = before.is_clone().then(|| before.clone());
        let before = before.loaded()?;
        let limit = if clone.is_some() {
            MAX_NAMED_BYTES
        } else {
            MAX_FILE_BYTES
        };
        let now = match load(path, limit) {
            Ok(now) => now,
            // The file was replaced by a directory or a pipe.
            Err(e) if e.kind() == std::io::ErrorKind::Other => FoundFile::Missing,
            Err(e) => return Err(e),
        };
        match (&before, &now) {
            (EarlierState::Missing, FoundFile::Missing) => return Ok((None, before)),
            (
                EarlierState::InMemory { bytes, kind, .. },
                FoundFile::Content {
                    bytes: now,
                    kind: now_kind,
                    ..
                },
            ) if bytes == now && kind == now_kind => {
                return Ok((None, clone.unwrap_or(before)));
            }
            // A large file was stored, because there was a clone of it or a tool named it.
            (EarlierState::Stored(state), FoundFile::Large { .. })
                if self
                    .tracker
                    .has_state(path, Some(state))
                    .unwrap_or_default() =>
            {
                return Ok((None, before));
            }
            _ => {}
        }
        let old = stored(path, before, &self.tracker, modes)?;
        let new = match now {
            FoundFile::Missing => None,
            FoundFile::Large { state, .. } => Some(state),
            FoundFile::Content { bytes, kind, mode } => {
                let now = EarlierState::InMemory { bytes, kind, mode };
                stored(path, now, &self.tracker, modes)?
            }
        };
        let present = new
            .clone()
            .map_or(EarlierState::Missing, EarlierState::Stored);
        Ok(((old != new).then_some((old, new)), present))
    }
}

/// The states before and after; `None` if there is no file.
type StatePair = (Option<FileState>, Option<FileState>);

/// Stores a state, and adds its mode to `modes`.
fn stored(
    path: &Path,
    before: EarlierState,
    tracker: &Tracker,
    modes: &mut Vec<(PathBuf, FileState, u32)>,
) -> std::io::Result<Option<FileState>> {
    Ok(match before.loaded()? {
        EarlierState::Stored(state) => Some(state),
        EarlierState::InMemory { bytes, kind, mode } => {
            let state = FileState {
                hash: tracker.objects.put(&bytes)?,
                kind,
                large: false,
            };
            modes.push((path.to_owned(), state.clone(), mode));
            Some(state)
        }
        EarlierState::Missing | EarlierState::Cloned { .. } => None,
    })
}

impl JournalState {
    fn note_unrecorded(&self, what: String, why: UnrecordedReason) {
        note_unrecorded(&self.unrecorded, what, why);
    }

    /// Keeps the state of a file for the unfinished calls that have touched it, or releases it if
    /// there are none.
    fn keep_touched(&mut self, path: &Path, touched: Option<TouchedFile>) {
        let Some(touched) = touched else { return };
        if touched.calls.is_empty() {
            self.note_released(&touched.before);
        } else {
            self.touched.insert(path.to_owned(), touched);
        }
    }

    /// Records that a state is no longer in memory.
    fn note_released(&mut self, before: &EarlierState) {
        self.memory = self.memory.saturating_sub(before.memory());
        self.clones -= usize::from(before.is_clone()).min(self.clones);
    }

    /// Records the modes of the states that were stored.
    fn record_modes(&mut self, tracker: &Tracker) {
        let modes = std::mem::take(&mut self.modes);
        let seen = modes
            .iter()
            .map(|(path, state, mode)| (path.as_path(), state, *mode));
        tracker.modes.record(seen);
    }

    /// Returns the state of a file larger than [`MAX_FILE_BYTES`]: a clone if one is possible.
    fn keep_large(&mut self, path: &Path, state: FileState, size: u64, mode: u32) -> EarlierState {
        if size > MAX_NAMED_BYTES || self.clones >= MAX_CLONES {
            return EarlierState::Stored(state);
        }
        let Ok(clone) = cloned(path) else {
            return EarlierState::Stored(state);
        };
        self.clones += 1;
        EarlierState::Cloned {
            clone: Arc::new(clone),
            kind: state.kind,
            mode,
        }
    }

    fn rules(&mut self, tracker: &Tracker) -> &mut IgnoreRules {
        self.rules
            .get_or_insert_with(|| IgnoreRules::new(&tracker.root, tracker.data()))
    }

    /// Notes the metadata of a file that no program of a session has open, or forgets it if it is
    /// certain to be unchanged. Returns whether it is still to be forgotten.
    fn note_closed_file(&mut self, path: &Path) -> bool {
        let Some(touched) = self.touched.get_mut(path) else {
            return false;
        };
        let now = FileStamp::at(path);
        let is_unchanged = touched.is_unchanged(now);
        if touched.writing == WritingState::Open {
            tracing::debug!("{} was closed by its writers", path.display());
            touched.writing = WritingState::Closed(now);
            return is_unchanged;
        }
        // The reported call may have come late, or others have written the file since.
        if is_unchanged && let Some(touched) = self.touched.remove(path) {
            self.note_released(&touched.before);
        }
        false
    }

    /// Records a report of a file. Returns whether the file is recorded since this report.
    fn touch(
        &mut self,
        path: &Path,
        pid: u32,
        is_new: bool,
        call: &CallId,
        tracker: &Tracker,
    ) -> bool {
        if let Some(touched) = self.touched.get_mut(path) {
            touched.note_report(path, pid, call);
            return false;
        }
        if let Some(ignored) = self.rules(tracker).ignored(path) {
            let name = ignored
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            // Writes of version control to its own files, and writes to adjutant's data, are not
            // part of the user's work.
            if !super::ignored::REPOSITORIES.contains(&name) && ignored != tracker.data() {
                self.note_unrecorded(ignored.display().to_string(), UnrecordedReason::Ignored);
            }
            return false;
        }
        if path.to_str().is_none() {
            self.note_unrecorded(path.display().to_string(), UnrecordedReason::Unreadable);
            return false;
        }
        let stamp_before = if is_new { None } else { old_stamp(path) };
        let found = if is_new {
            Ok(FoundFile::Missing)
        } else {
            load(path, MAX_FILE_BYTES)
        };
        let before = match found {
            Ok(FoundFile::Missing) => EarlierState::Missing,
            Ok(FoundFile::Large { state, size, mode }) => self.keep_large(path, state, size, mode),
            Ok(FoundFile::Content { bytes, kind, mode }) => {
                EarlierState::InMemory { bytes, kind, mode }
            }
            // Directories and pipes are not recorded.
            Err(e) if e.kind() == std::io::ErrorKind::Other => return false,
            Err(e) => {
                tracing::warn!(
                    "the previous content of {} is not saved: {e}",
                    path.display()
                );
                self.note_unrecorded(path.display().to_string(), UnrecordedReason::Unreadable);
                return false;
            }
        };
        let touched = TouchedFile {
            stamp_before,
            ..TouchedFile::new(before, pid, vec![call.clone()])
        };
        self.insert(path, touched, tracker)
    }

    /// Adds a touched file; its content is stored if there is too much in memory. Returns whether
    /// that succeeded.
    fn insert(&mut self, path: &Path, mut touched: TouchedFile, tracker: &Tracker) -> bool {
        if let EarlierState::InMemory { bytes, .. } = &touched.before {
            self.memory += bytes.len();
            if self.memory > MAX_MEMORY_BYTES {
                self.memory -= bytes.len();
                touched.before = match stored(path, touched.before, tracker, &mut self.modes) {
                    Ok(state) => state.map_or(EarlierState::Missing, EarlierState::Stored),
                    Err(e) => {
                        tracing::warn!(
                            "the previous content of {} is not saved: {e}",
                            path.display()
                        );
                        self.note_unrecorded(
                            path.display().to_string(),
                            UnrecordedReason::Unreadable,
                        );
                        return false;
                    }
                };
            }
        }
        self.touched.insert(path.to_owned(), touched);
        true
    }

    /// Returns all files below a directory that is about to be renamed, under both names.
    fn files_below(&mut self, from: &Path, to: &Path, tracker: &Tracker) -> Vec<PathBuf> {
        let is_in_project = |path: &Path| path.starts_with(&tracker.root);
        let mut files = Vec::new();
        let mut waiting = vec![PathBuf::new()];
        let mut seen = 0;
        while let Some(below) = waiting.pop() {
            let dirs = [from.join(&below), to.join(&below)];
            let is_recorded = dirs
                .iter()
                .any(|dir| is_in_project(dir) && self.rules(tracker).ignored_dir(dir).is_none());
            if !is_recorded {
                continue;
            }
            let Ok(entries) = fs::read_dir(&dirs[0]) else {
                continue;
            };
            for entry in entries.flatten() {
                seen += 1;
                if seen > MAX_RENAMED_ENTRIES {
                    self.note_unrecorded(from.display().to_string(), UnrecordedReason::Large);
                    return files;
                }
                let below = below.join(entry.file_name());
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    waiting.push(below);
                } else {
                    files.extend([from.join(&below), to.join(&below)]);
                }
            }
        }
        files
    }
}

/// Reads the metadata of a file, unless it was modified so recently that the next write might not
/// change them.
#[expect(
    clippy::disallowed_methods,
    reason = "the time is compared with those of the file system"
)]
fn old_stamp(path: &Path) -> Option<FileStamp> {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?;
    let youngest = i128::try_from(now.checked_sub(MIN_STAMP_AGE)?.as_nanos()).ok()?;
    FileStamp::at(path).filter(|stamp| stamp.modified < youngest)
}

/// Returns whether a process has a file open for writing, or maps it so, as far as that is visible.
fn has_open_for_writing(pid: u32, path: &Path) -> bool {
    has_open_descriptor(pid, path) || maps_for_writing(pid, path)
}

/// Returns whether writes of a process to its memory change a file, as far as that is visible.
fn maps_for_writing(pid: u32, path: &Path) -> bool {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let name = [b" ", path.as_os_str().as_encoded_bytes()].concat();
    maps.split(|byte| *byte == b'\n').any(|mapping| {
        let permissions = mapping.split(|byte| *byte == b' ').nth(1);
        let is_shared = matches!(permissions, Some([_, b'w', _, b's']));
        is_shared && mapping.ends_with(&name)
    })
}

/// Returns whether a process has a descriptor for writing a file, as far as that is visible.
fn has_open_descriptor(pid: u32, path: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    open.filter(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == path))
        .any(|entry| is_writable(pid, &entry.file_name()))
}

/// Returns whether a descriptor of a process is open for writing, as far as that is visible.
fn is_writable(pid: u32, descriptor: &OsStr) -> bool {
    let info = Path::new("/proc").join(pid.to_string()).join("fdinfo");
    let info = fs::read_to_string(info.join(descriptor)).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    // The access mode is in the two lowest bits: 0 reads, 1 writes, 2 does both.
    flags.is_some_and(|flags| matches!(flags & 0o3, 1 | 2))
}

impl Tracker {
    /// Returns the directory of all of adjutant's data.
    pub(super) fn data(&self) -> &Path {
        self.dir.ancestors().nth(2).unwrap_or(&self.dir)
    }

    /// Returns the sequence number of a change that is recorded now.
    pub fn next_sequence(&self) -> u64 {
        let next = &self.write_order.next_sequence;
        next.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::NO_PROBE;

    type HasWriter = fn(&Path) -> Option<bool>;
    type Programs = fn() -> Vec<u32>;

    #[cfg(target_os = "linux")]
    #[test]
    fn record_continues_while_a_file_has_a_writer() {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        let root = base.join("root");
        fs::create_dir(&root).unwrap();
        let tracker = Arc::new(Tracker::new(&base, &root, None));
        let path = root.join("f");
        let call = CallId::new("call");
        let here = std::process::id();
        let none: Programs = Vec::new;
        let this: Programs = || vec![std::process::id()];
        let table: [(HasWriter, u32, Programs, bool, Option<bool>); 10] = [
            (|_| Some(true), here, none, true, Some(false)),
            // The process only reads it, so the writer is another.
            (|_| Some(true), here, none, false, Some(true)),
            (|_| Some(true), u32::MAX, none, true, Some(true)),
            // A program has inherited the descriptor, or it only reads the file.
            (|_| Some(true), u32::MAX, this, true, Some(false)),
            (|_| Some(true), u32::MAX, this, false, Some(true)),
            (|_| Some(false), here, none, false, None),
            (|_| Some(false), u32::MAX, none, false, None),
            (|_| None, here, none, true, Some(false)),
            (|_| None, here, none, false, None),
            (|_| None, u32::MAX, this, true, None),
        ];
        for (has_writer, pid, programs, is_writing, expected) in table {
            let case = format!(
                "{:?} {pid} {:?} {is_writing}",
                has_writer(&path),
                programs()
            );
            let probe = WriterProbe {
                has_writer,
                programs,
            };
            let journal = WriteJournal::new(tracker.clone(), probe);
            journal.program_started();
            fs::write(&path, "before").unwrap();
            let _open = File::options()
                .read(true)
                .write(is_writing)
                .open(&path)
                .unwrap();
            journal.touch(&path, pid, false, &call);
            fs::write(&path, "first").unwrap();
            assert_eq!(journal.take().files.len(), 1, "{case}");
            fs::write(&path, "second").unwrap();
            let compared: Vec<bool> = journal
                .take()
                .files
                .iter()
                .map(|change| change.compared)
                .collect();
            assert_eq!(compared, Vec::from_iter(expected), "{case}");
        }
    }

    #[test]
    fn failed_edit_keeps_a_state_only_for_other_calls() {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        let root = base.join("root");
        fs::create_dir(&root).unwrap();
        let tracker = Arc::new(Tracker::new(&base, &root, None));
        let file = root.join("f");
        let edit = CallId::new("edit");
        for (case, others, memory) in [
            ("alone", Vec::new(), 0),
            ("with another", vec![CallId::new("other")], 5),
        ] {
            let journal = WriteJournal::new(tracker.clone(), NO_PROBE);
            fs::write(&file, "12345").unwrap();
            for call in std::iter::once(&edit).chain(&others) {
                journal.touch(&file, 1, false, call);
            }
            fs::remove_file(&file).unwrap();
            fs::create_dir(&file).unwrap();
            let finished = journal.finish_edit(&edit, &file, None);
            fs::remove_dir(&file).unwrap();
            assert!(finished.is_err(), "{case}");
            let state = lock(&journal.state);
            let calls = state.touched.get(&file).map(|touched| &touched.calls);
            assert_eq!(calls.map_or(&[][..], Vec::as_slice), others, "{case}");
            assert_eq!(state.memory, memory, "{case}");
        }
    }
}
