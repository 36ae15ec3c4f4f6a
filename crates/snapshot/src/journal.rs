//! What programs write, as it is reported before they do (`sandbox/writes.rs`): what each file was when it was first
//! touched, and what it had become when the call that touched it was over. What a user saves after that is the user's.
//!
//! Nothing is looked at but what is touched. Contents stay in memory until then, and are not kept at all if the file
//! is the same in the end; only when there are many are they kept at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::file::{FoundFile, load};
use super::ignored::IgnoreRules;
use super::{LARGEST, Tracker};
use base::id::CallId;
use base::lock::locked;
use transcript::{self, FileChange, FileKind, FileState, UnkeptReason, UnkeptWrite};

/// How many bytes of contents may be held in memory.
const MAX_HELD: usize = 64 << 20;

/// How many entries of a directory are looked at when it is renamed.
const MAX_ENTRIES: usize = 5_000;

/// How many things that are not kept are named.
const MAX_UNKEPT: usize = 1_000;

/// Says which contents files had before they were touched by the programs of one step.
#[derive(Debug)]
pub struct WriteJournal {
    tracker: Arc<Tracker>,
    /// How many programs report to it.
    running: AtomicUsize,
    /// Something was reported that was not taken yet.
    has_news: AtomicBool,
    // A std mutex around what is known, held while files are read, on threads that may block.
    state: Mutex<JournalState>,
    // A leaf lock, held for a moment.
    unkept: Arc<Mutex<BTreeSet<UnkeptWrite>>>,
}

#[derive(Debug, Default)]
struct JournalState {
    touched: BTreeMap<PathBuf, TouchedFile>,
    /// What calls that are over have changed, in the order in which they ended; none: calls of subagents.
    finished: Vec<(Option<CallId>, FileChange)>,
    /// Bytes of contents in memory.
    held: usize,
    /// Read when the first file is touched.
    rules: Option<IgnoreRules>,
    unkept: Arc<Mutex<BTreeSet<UnkeptWrite>>>,
}

#[derive(Debug)]
struct TouchedFile {
    before: Before,
    /// Who touched it first.
    pid: u32,
    /// The calls whose programs have touched it.
    calls: Vec<CallId>,
}

/// What a file was before it was touched.
#[derive(Debug, Clone)]
enum Before {
    Missing,
    Held { bytes: Vec<u8>, kind: FileKind, mode: u32 },
    Kept(FileState),
}

impl Before {
    /// How many bytes of it are in memory.
    fn held(&self) -> usize {
        match self {
            Self::Held { bytes, .. } => bytes.len(),
            Self::Missing | Self::Kept(_) => 0,
        }
    }
}

fn note_unkept(unkept: &Mutex<BTreeSet<UnkeptWrite>>, what: String, why: UnkeptReason) {
    let mut unkept = locked(unkept);
    let write = match unkept.len() < MAX_UNKEPT {
        true => UnkeptWrite { what, why },
        false => UnkeptWrite { what: String::new(), why: UnkeptReason::Further },
    };
    unkept.insert(write);
}

/// The changes of a step, and the writes whose earlier state is not known.
#[derive(Debug, Default)]
pub struct JournalEntries {
    /// Sorted by path. Changes of one file that do not follow on one another have somebody else's between them.
    pub files: Vec<FileChange>,
    pub unkept: Vec<UnkeptWrite>,
}

impl WriteJournal {
    pub fn new(tracker: Arc<Tracker>) -> Self {
        let unkept: Arc<Mutex<BTreeSet<UnkeptWrite>>> = Arc::default();
        let state = Mutex::new(JournalState { unkept: unkept.clone(), ..JournalState::default() });
        Self { tracker, running: AtomicUsize::new(0), has_news: AtomicBool::new(false), state, unkept }
    }

    /// A program reports to it from now on.
    pub fn started(&self) {
        self.running.fetch_add(1, Ordering::SeqCst);
    }

    /// The last process of a program of this call has ended.
    pub fn ended(&self, call: &CallId) {
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.finish(call);
    }

    /// A call is over: what it touched has become what it is now, unless it is still open in a process.
    pub fn finish(&self, call: &CallId) {
        let mut state = locked(&self.state);
        let mut over = Vec::new();
        for (path, touched) in &mut state.touched {
            match &touched.calls[..] {
                [only] if only == call => over.push(path.clone()),
                _ => touched.calls.retain(|other| other != call),
            }
        }
        for path in over {
            if let Some(touched) = state.touched.remove(&path) {
                self.finish_file(&mut state, path, touched);
            }
        }
    }

    /// An edit of a call is over, with all that ran after it, such as a formatter. `old` is what the file was before;
    /// `was_touched` says that a command that was not over had touched it by then, so that more is known here.
    ///
    /// # Errors
    /// Those of reading the file.
    pub fn finish_edit(
        &self,
        call: &CallId,
        path: &Path,
        old: Option<FileState>,
        was_touched: bool,
    ) -> std::io::Result<()> {
        let mut state = locked(&self.state);
        let name = path.display().to_string();
        state.finished.retain(|(by, change)| by.as_ref() != Some(call) || change.path != name);
        let touched = state.touched.remove(path);
        let new = self.tracker.look(path)?;
        let known = match &touched {
            Some(touched) if was_touched => Some(self.keep(path, touched.before.clone())?),
            _ if was_touched => {
                state.finished.iter().rev().find(|(_, known)| known.path == name).map(|(_, known)| known.new.clone())
            }
            _ => None,
        };
        let old = known.unwrap_or(old);
        if old != new {
            let change = FileChange { path: name, old, new: new.clone(), compared: false };
            state.finished.push((Some(call.clone()), change));
        }
        if let Some(mut touched) = touched {
            state.let_go(&touched.before);
            touched.calls.retain(|other| other != call);
            touched.before = new.map_or(Before::Missing, Before::Kept);
            if !touched.calls.is_empty() {
                state.touched.insert(path.to_owned(), touched);
            }
        }
        self.has_news.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Adds what sessions of subagents have recorded.
    pub fn add(&self, entries: JournalEntries) {
        let JournalEntries { files, unkept } = entries;
        if files.is_empty() && unkept.is_empty() {
            return;
        }
        locked(&self.state).finished.extend(files.into_iter().map(|change| (None, change)));
        locked(&self.unkept).extend(unkept);
        self.has_news.store(true, Ordering::SeqCst);
    }

    /// Whether a program may still write something.
    pub fn is_open(&self) -> bool {
        self.running.load(Ordering::SeqCst) > 0
    }

    /// Whether nothing was reported since it was asked last.
    pub fn is_empty(&self) -> bool {
        !self.has_news.load(Ordering::SeqCst)
    }

    /// Whether a call that is not over has touched a file.
    pub fn has_touched(&self, path: &Path) -> bool {
        locked(&self.state).touched.contains_key(path)
    }

    /// Something was written, or may have been, of which nothing is kept.
    pub fn note_unkept(&self, what: &str, why: UnkeptReason) {
        self.has_news.store(true, Ordering::SeqCst);
        note_unkept(&self.unkept, what.to_owned(), why);
    }

    /// A process is about to change a file, make it or remove it. The path is absolute, with symlinks resolved.
    pub fn touch(&self, path: &Path, pid: u32, call: &CallId) {
        if path.starts_with(&self.tracker.root) {
            self.has_news.store(true, Ordering::SeqCst);
            locked(&self.state).touch(path, pid, call, &self.tracker);
        }
    }

    /// A directory is about to get another name; with `exchange`, what has that name gets the first one.
    pub fn touch_directory(&self, from: &Path, to: &Path, exchange: bool, call: &CallId) {
        self.has_news.store(true, Ordering::SeqCst);
        let mut state = locked(&self.state);
        state.touch_below(from, to, call, &self.tracker);
        if exchange {
            state.touch_below(to, from, call, &self.tracker);
        }
    }

    /// What became of everything that was touched since this was asked last, with the contents kept.
    pub fn take(&self) -> JournalEntries {
        let mut state = locked(&self.state);
        for (path, touched) in std::mem::take(&mut state.touched) {
            self.finish_file(&mut state, path, touched);
        }
        let mut files = transcript::merged(state.finished.iter().map(|(_, change)| change));
        state.finished.clear();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let unkept = std::mem::take(&mut *locked(&self.unkept)).into_iter().collect();
        self.has_news.store(!state.touched.is_empty(), Ordering::SeqCst);
        drop(state);
        if !files.is_empty() {
            self.tracker.clean();
        }
        JournalEntries { files, unkept }
    }

    /// Looks at what became of a file that was touched.
    fn finish_file(&self, state: &mut JournalState, path: PathBuf, touched: TouchedFile) {
        let TouchedFile { before, pid, calls } = touched;
        state.let_go(&before);
        let path_text = path.display().to_string();
        match self.settle(&path, before) {
            Ok((change, now)) => {
                let change = change.map(|(old, new)| FileChange { path: path_text, old, new, compared: false });
                state.finished.extend(change.map(|change| (calls.first().cloned(), change)));
                // It may be written again without being opened again.
                if self.is_open() && has_open(pid, &path) {
                    state.held += now.held();
                    state.touched.insert(path, TouchedFile { before: now, pid, calls });
                }
            }
            Err(e) => {
                tracing::warn!("what became of {path_text} is not kept: {e}");
                state.note_unkept(path_text, UnkeptReason::Unreadable);
            }
        }
    }

    /// What a file was and is, if that differs, and what it is from now on.
    fn settle(&self, path: &Path, before: Before) -> std::io::Result<(Option<StatePair>, Before)> {
        let now = match load(path, LARGEST) {
            Ok(now) => now,
            // A directory, or a pipe, has taken its place.
            Err(e) if e.kind() == std::io::ErrorKind::Other => FoundFile::Missing,
            Err(e) => return Err(e),
        };
        match (&before, &now) {
            (Before::Missing, FoundFile::Missing) => return Ok((None, before)),
            (Before::Held { bytes, kind, .. }, FoundFile::Content { bytes: now, kind: now_kind, .. })
                if bytes == now && kind == now_kind =>
            {
                return Ok((None, before));
            }
            _ => {}
        }
        let old = self.keep(path, before)?;
        let new = match now {
            FoundFile::Missing => None,
            FoundFile::Large(state) => Some(state),
            FoundFile::Content { bytes, kind, mode } => self.keep(path, Before::Held { bytes, kind, mode })?,
        };
        let from_now = new.clone().map_or(Before::Missing, Before::Kept);
        Ok(((old != new).then_some((old, new)), from_now))
    }

    fn keep(&self, path: &Path, before: Before) -> std::io::Result<Option<FileState>> {
        kept(path, before, &self.tracker)
    }
}

/// The states before and after; none where there is no file.
type StatePair = (Option<FileState>, Option<FileState>);

fn kept(path: &Path, before: Before, tracker: &Tracker) -> std::io::Result<Option<FileState>> {
    Ok(match before {
        Before::Missing => None,
        Before::Kept(state) => Some(state),
        Before::Held { bytes, kind, mode } => {
            let state = FileState { hash: tracker.objects.put(&bytes)?, kind, large: false };
            tracker.modes.note(std::iter::once((path, &state, mode)));
            Some(state)
        }
    })
}

impl JournalState {
    fn note_unkept(&self, what: String, why: UnkeptReason) {
        note_unkept(&self.unkept, what, why);
    }

    /// What a file was is held no longer.
    fn let_go(&mut self, before: &Before) {
        self.held = self.held.saturating_sub(before.held());
    }

    fn rules(&mut self, tracker: &Tracker) -> &mut IgnoreRules {
        self.rules.get_or_insert_with(|| IgnoreRules::new(&tracker.root, tracker.data()))
    }

    fn touch(&mut self, path: &Path, pid: u32, call: &CallId, tracker: &Tracker) {
        if let Some(touched) = self.touched.get_mut(path) {
            if !touched.calls.contains(call) {
                touched.calls.push(call.clone());
            }
            return;
        }
        if let Some(ignored) = self.rules(tracker).ignored(path) {
            let name = ignored.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // What version control writes about itself, and what is ours, is nobody's work.
            if !super::ignored::REPOSITORIES.contains(&name) && ignored != tracker.data() {
                self.note_unkept(ignored.display().to_string(), UnkeptReason::Ignored);
            }
            return;
        }
        if path.to_str().is_none() {
            return self.note_unkept(path.display().to_string(), UnkeptReason::Unreadable);
        }
        let before = match load(path, LARGEST) {
            Ok(FoundFile::Missing) => Before::Missing,
            Ok(FoundFile::Large(state)) => Before::Kept(state),
            Ok(FoundFile::Content { bytes, kind, mode }) => Before::Held { bytes, kind, mode },
            // A directory, or a pipe: nothing of the kind is recorded.
            Err(e) if e.kind() == std::io::ErrorKind::Other => return,
            Err(e) => {
                tracing::warn!("what {} was is not kept: {e}", path.display());
                return self.note_unkept(path.display().to_string(), UnkeptReason::Unreadable);
            }
        };
        self.insert(path, TouchedFile { before, pid, calls: vec![call.clone()] }, tracker);
    }

    fn insert(&mut self, path: &Path, mut touched: TouchedFile, tracker: &Tracker) {
        if let Before::Held { bytes, .. } = &touched.before {
            self.held += bytes.len();
            if self.held > MAX_HELD {
                self.held -= bytes.len();
                touched.before = match kept(path, touched.before, tracker) {
                    Ok(state) => state.map_or(Before::Missing, Before::Kept),
                    Err(e) => {
                        tracing::warn!("what {} was is not kept: {e}", path.display());
                        return self.note_unkept(path.display().to_string(), UnkeptReason::Unreadable);
                    }
                };
            }
        }
        self.touched.insert(path.to_owned(), touched);
    }

    /// Touches what is below a directory, under both names.
    fn touch_below(&mut self, from: &Path, to: &Path, call: &CallId, tracker: &Tracker) {
        let inside = |path: &Path| path.starts_with(&tracker.root);
        let mut waiting = vec![PathBuf::new()];
        let mut seen = 0;
        while let Some(below) = waiting.pop() {
            let dirs = [from.join(&below), to.join(&below)];
            let counts = dirs.iter().any(|dir| inside(dir) && self.rules(tracker).ignored_dir(dir).is_none());
            if !counts {
                continue;
            }
            let Ok(entries) = fs::read_dir(&dirs[0]) else { continue };
            for entry in entries.flatten() {
                seen += 1;
                if seen > MAX_ENTRIES {
                    return self.note_unkept(from.display().to_string(), UnkeptReason::Large);
                }
                let below = below.join(entry.file_name());
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    waiting.push(below);
                    continue;
                }
                for path in [from.join(&below), to.join(&below)] {
                    if inside(&path) {
                        self.touch(&path, 0, call, tracker);
                    }
                }
            }
        }
    }
}

/// Whether a process has a file open, as far as that can be seen.
fn has_open(pid: u32, path: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.map(|entry| fs::read_link(entry.path())).any(|target| target.is_ok_and(|target| target == path))
}

impl Tracker {
    /// Where all our own things lie.
    pub(super) fn data(&self) -> &Path {
        self.dir.ancestors().nth(2).unwrap_or(&self.dir)
    }
}
