//! Records the file changes of a step, so that they can be shown and undone.
//!
//! Files that an edit names are read just before and just after it. Commands of ours report their
//! writes in advance (`crates/sandbox/src/writes.rs`), and a journal records them; no other files
//! are read. The changes of a subagent are recorded by its own session.
//!
//! If writes are not reported (no sandbox, or tools of other programs), the whole project is
//! compared, if that does not take long. All files are read once, from the first prompt on
//! ([`prepare`]): sessions that an editor opens and never uses store nothing. The comparison begins
//! a moment after the model has named such a tool, while the model still writes the arguments and
//! the user still decides; the call waits for it, for up to a second. Changes found by comparison
//! may have been made by another process, and are marked accordingly.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinError;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{SessionContext, TurnContext};
use base::id::{CallId, MessageId, PartId};
use base::lock::lock;
use base::task::{JoinHandle, spawn_blocking};
use config::settings::{HookPoint, Settings};
use events::{Event, Severity};
use extensions::has_handler;
use permission::AccessRequest;
use permission::shell::CommandUnit;
use sandbox::{PendingWrite, WriteObserver};
use snapshot::{JournalEntries, Mark, Tracker, Untracked, WriteJournal, WriterProbe};
use tools::conversation::task::TaskTool;
use tools::files::encoding::{changed_bytes, is_plain_utf8};
use tools::process::bash::BashTool;
use tools::registry::find_properties;
use tools::{EditObserver, Tool as _, ToolContext, format};
use transcript::{
    self, Call, Change, Content, FileChange, FileState, Part, ToolKind, UnrecordedReason,
    UnrecordedWrite,
};

/// The delay between the announcement of a tool and the comparison of the project, in case the tool
/// turns out to change no files.
const COMPARE_DELAY: Duration = Duration::from_millis(20);

/// The delay after a report of a write until the file is examined.
const SETTLE_DELAY: Duration = Duration::from_millis(60);

/// The maximum delay between two examinations of files that are still open.
const MAX_SETTLE_DELAY: Duration = Duration::from_millis(500);

/// The time for determining the changes of a step after a cancel. It is enough for all but very
/// many files, whose changes are listed as not recorded.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// The system's knowledge of programs that write files.
const WRITER_PROBE: WriterProbe = WriterProbe {
    has_writer: sandbox::has_writer,
    programs: sandbox::process::programs,
};

/// Records the file changes of a step.
pub struct ChangeRecorder {
    tracker: Option<Arc<Tracker>>,
    /// Ends a comparison that is no longer needed: before the first call, or after a cancel.
    stop: Arc<AtomicBool>,
    // Leaf locks, held for a moment.
    comparison: Mutex<Option<JoinHandle<Result<Mark, Untracked>>>>,
    /// Notified when a call waits, so that the comparison begins at once.
    comparison_wanted: Arc<Notify>,
    mark: OnceCell<Option<Mark>>,
    edited_files: Arc<Mutex<Vec<EditedFile>>>,
    /// The writes that commands report.
    journal: Option<Arc<WriteJournal>>,
    /// Tasks that read the files written by finished calls.
    reading_tasks: Mutex<Vec<JoinHandle<()>>>,
    /// The part that lists the file changes of the step, stored before they are made.
    part: PartId,
    message: MessageId,
    /// The intended changes of all edits so far.
    planned_changes: Mutex<Vec<FileChange>>,
}

/// A file that an edit named.
struct EditedFile {
    /// The call that edits it.
    call: CallId,
    path: PathBuf,
    /// The state before the edit.
    old: Option<FileState>,
    /// True if the project was compared before the edit.
    was_compared: bool,
    /// True once its state after the edit is recorded.
    is_finished: bool,
}

impl Drop for ChangeRecorder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// True if a call may change files that it does not name. The hints of MCP servers about
/// their tools are not trusted.
pub fn may_change_unnamed_files(kind: ToolKind, tool: &str) -> bool {
    let own = find_properties(tool).map(|tool| tool.writes_unnamed_files);
    let acts = matches!(
        kind,
        ToolKind::Execute | ToolKind::Delete | ToolKind::Move | ToolKind::Other
    );
    own.unwrap_or(acts || !mcp::READ_ONLY_TOOLS.contains(&tool))
}

/// True if all writes of a built-in tool are reported, if its sandbox reports writes:
/// commands do, and subagents record their changes in their own sessions.
fn reports_writes(tool: &str) -> bool {
    [BashTool::NAME, TaskTool::NAME].contains(&tool)
}

/// Reports the writes of a call's programs to a journal.
#[derive(Debug)]
struct JournalObserver {
    journal: Arc<WriteJournal>,
    call: CallId,
    /// The call's title, for messages to the user.
    title: String,
    runtime: Handle,
    /// Started with the first write.
    settling: OnceLock<Settling>,
}

/// The task that notes which files their writers have closed.
#[derive(Debug)]
struct Settling {
    /// Notified when a write was reported.
    reported: Arc<Notify>,
    /// Ends the task.
    _ended: DropGuard,
}

impl Settling {
    fn start(journal: &Arc<WriteJournal>, runtime: &Handle) -> Self {
        let reported = Arc::<Notify>::default();
        let ended = CancellationToken::new();
        let _entered = runtime.enter();
        base::task::spawn(settle_writes(
            journal.clone(),
            reported.clone(),
            ended.clone(),
        ));
        Self {
            reported,
            _ended: ended.drop_guard(),
        }
    }
}

/// Notes, while programs run, which files their writers have closed.
async fn settle_writes(
    journal: Arc<WriteJournal>,
    reported: Arc<Notify>,
    ended: CancellationToken,
) {
    let settle = async {
        let mut delay = SETTLE_DELAY;
        let mut is_pending = false;
        loop {
            // A file that stays open must not delay the others.
            let has_report = if is_pending {
                timeout(delay, reported.notified()).await.is_ok()
            } else {
                reported.notified().await;
                true
            };
            if has_report {
                delay = SETTLE_DELAY;
                sleep(delay).await;
            }
            delay = MAX_SETTLE_DELAY.min(delay * 2);
            let journal = journal.clone();
            let settled = spawn_blocking(move || journal.note_closed_files()).await;
            is_pending = settled.unwrap_or_default();
        }
    };
    ended.run_until_cancelled(settle).await;
}

impl JournalObserver {
    fn note_report(&self) {
        let settling = self
            .settling
            .get_or_init(|| Settling::start(&self.journal, &self.runtime));
        settling.reported.notify_one();
    }
}

impl WriteObserver for JournalObserver {
    fn started(&self) {
        self.journal.program_started();
    }

    fn about_to_write(&self, write: PendingWrite) {
        match write {
            PendingWrite::File { path, pid, is_new } => {
                self.journal.touch(&path, pid, is_new, &self.call);
                self.note_report();
            }
            PendingWrite::Times { path } => {
                if self.journal.touch_times(&path) {
                    self.note_report();
                }
            }
            PendingWrite::AccessList { path } => self.journal.touch_access_list(&path),
            PendingWrite::Directory { from, to, exchange } => {
                self.journal
                    .touch_directory(&from, &to, exchange, &self.call);
                self.note_report();
            }
            PendingWrite::Unknown => self
                .journal
                .note_unrecorded(&self.title, UnrecordedReason::Unreported),
        }
    }

    fn refused(&self) {
        self.journal
            .note_unrecorded(&self.title, UnrecordedReason::Unreported);
    }

    fn ended(&self) {
        self.journal.program_ended(&self.call);
    }
}

/// Records the state of a file as soon as a call has edited it: the call may wait for other files
/// and for language servers, while others write this one.
struct JournalEditObserver {
    journal: Arc<WriteJournal>,
    edited_files: Arc<Mutex<Vec<EditedFile>>>,
    call: CallId,
}

impl std::fmt::Debug for JournalEditObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("JournalEditObserver")
            .field(&self.call)
            .finish()
    }
}

impl EditObserver for JournalEditObserver {
    fn edited(&self, path: &Path) {
        let is_edited =
            |file: &EditedFile| file.call == self.call && file.path == path && !file.was_compared;
        let edited = lock(&self.edited_files)
            .iter()
            .find(|file| is_edited(file))
            .map(|file| file.old.clone());
        let Some(old) = edited else { return };
        // If this fails, the end of the call tries again, and reports it.
        if self.journal.finish_edit(&self.call, path, old).is_ok()
            && let Some(file) = lock(&self.edited_files)
                .iter_mut()
                .find(|file| is_edited(file))
        {
            file.is_finished = true;
        }
    }
}

/// Reads the project's files in the background, once, if the writes of commands will not be
/// reported.
pub fn prepare(session: &SessionContext, settings: &Settings, ended: CancellationToken) {
    let reported = session
        .permissions
        .sandbox_choice
        .may_report_writes(settings)
        && session.shared.exec.is_empty();
    let Some(tracker) = session.common.snapshots.clone() else {
        return;
    };
    if reported || !settings.general.snapshot || !tracker.needs_preparation() {
        return;
    }
    let stop = Arc::<AtomicBool>::default();
    let stopped = stop.clone();
    let reading = spawn_blocking(move || tracker.prepare(&stopped));
    base::task::spawn(async move {
        tokio::select! {
            _ = reading => {}
            () = ended.cancelled() => stop.store(true, Ordering::Relaxed),
        }
    });
}

/// True if a call is a command line in which every part is known to be read-only.
fn only_reads(requests: &[AccessRequest]) -> bool {
    let mut lines = requests
        .iter()
        .filter_map(|request| request.command.as_ref())
        .peekable();
    lines.peek().is_some() && lines.all(|line| line.is_read_only())
}

/// True if a command delegates work to a service, whose writes are not reported.
fn uses_a_service(requests: &[AccessRequest]) -> bool {
    let lines = requests
        .iter()
        .filter_map(|request| request.command.as_ref());
    lines
        .flat_map(|line| &line.units)
        .any(CommandUnit::runs_in_container)
}

impl ChangeRecorder {
    /// Creates a recorder. No file is read yet.
    pub fn new(turn: &TurnContext, message: &MessageId) -> Self {
        let tracker = if turn.project.context.settings.general.snapshot {
            turn.session.common.snapshots.clone()
        } else {
            None
        };
        Self {
            journal: tracker
                .clone()
                .map(|tracker| WriteJournal::new(tracker, WRITER_PROBE)),
            tracker,
            stop: Arc::default(),
            comparison: Mutex::default(),
            comparison_wanted: Arc::default(),
            mark: OnceCell::new(),
            edited_files: Arc::default(),
            reading_tasks: Mutex::default(),
            part: PartId::new(turn.session.common.environment.fresh(PartId::PREFIX)),
            message: message.clone(),
            planned_changes: Mutex::default(),
        }
    }

    /// Handles the announcement of a tool: starts the comparison if the tool's writes are not
    /// reported.
    pub fn tool_announced(&self, turn: &TurnContext, kind: ToolKind, tool: &str) {
        let replaced = turn
            .project
            .context
            .settings
            .general
            .replace_tools
            .iter()
            .any(|replaced| replaced == tool);
        let reported = tool == TaskTool::NAME
            || reports_writes(tool)
                && turn
                    .session
                    .permissions
                    .sandbox_choice
                    .may_report_writes(&turn.project.context.settings)
                && turn.session.shared.exec.is_empty();
        if may_change_unnamed_files(kind, tool)
            && (replaced || !reported)
            && !self.mark.initialized()
        {
            self.start_comparison();
        }
    }

    /// Returns the observer of the writes of a call's programs.
    pub fn write_observer(&self, call: &CallId, title: &str) -> Option<Arc<dyn WriteObserver>> {
        let journal = self.journal.clone()?;
        Some(Arc::new(JournalObserver {
            journal,
            call: call.clone(),
            title: title.to_owned(),
            runtime: Handle::current(),
            settling: OnceLock::new(),
        }))
    }

    /// Returns the observer of a call's own edits.
    pub fn edit_observer(&self, call: &CallId) -> Option<Arc<dyn EditObserver>> {
        Some(Arc::new(JournalEditObserver {
            journal: self.journal.clone()?,
            edited_files: self.edited_files.clone(),
            call: call.clone(),
        }))
    }

    fn start_comparison(&self) {
        let Some(tracker) = self.tracker.clone() else {
            return;
        };
        let mut comparing = lock(&self.comparison);
        if comparing.is_none() {
            let stop = self.stop.clone();
            let awaited = self.comparison_wanted.clone();
            *comparing = Some(base::task::spawn(async move {
                timeout(COMPARE_DELAY, awaited.notified()).await.ok();
                let compared = spawn_blocking(move || tracker.mark(&stop)).await;
                compared.unwrap_or_else(|e| Err(Untracked::Failed(e.to_string())))
            }));
        }
    }

    /// Prepares for a call that is about to act. Returns when the state of the files that it
    /// may change is known, or when the turn is cancelled.
    pub async fn before_call(
        &self,
        turn: &TurnContext,
        call: &Call,
        requests: &[AccessRequest],
        context: &ToolContext,
    ) {
        let Some(tracker) = &self.tracker else { return };
        let kind = call.kind;
        let tool = call.tool.as_str();
        let changes: Vec<Arc<Change>> = requests
            .iter()
            .flat_map(|request| request.changes.clone())
            .collect();
        // A hook may change anything.
        let settings = &turn.project.context.settings;
        let hooked = has_handler(settings, HookPoint::ToolBefore)
            || has_handler(settings, HookPoint::ToolAfter);
        // A custom tool that replaces a built-in one may also change anything.
        let replaced = settings
            .general
            .replace_tools
            .iter()
            .any(|replaced| replaced == tool);
        let acts =
            replaced || kind.acts() || may_change_unnamed_files(kind, tool) || !changes.is_empty();
        if !acts || !hooked && only_reads(requests) {
            return;
        }
        // The host's command prefix may run the command without reports of its writes.
        let reported =
            context.session.exec.is_empty() && context.sandbox_choice.reports_writes().await;
        let sweeping = replaced
            || may_change_unnamed_files(kind, tool)
            || (changes.is_empty() && kind == ToolKind::Edit);
        if sweeping {
            let seen = !replaced && (tool == TaskTool::NAME || reported && reports_writes(tool));
            if !seen || hooked && !reported {
                self.await_comparison(turn, &call.title).await;
            } else if let (Some(journal), true) = (&self.journal, uses_a_service(requests)) {
                journal.note_unrecorded(&call.title, UnrecordedReason::Unreported);
            }
            return;
        }
        // A formatter may also change other files, which the edited file names.
        let formatted = changes
            .iter()
            .any(|change| format::has_formatter(settings, Path::new(&change.path)));
        if !reported && (hooked || formatted) {
            self.await_comparison(turn, &call.title).await;
        }
        // Finish the reads for earlier calls first, so that the changes of this edit are
        // not attributed to them.
        let looking = std::mem::take(&mut *lock(&self.reading_tasks));
        for looking in looking {
            looking.await.ok();
        }
        let tracker = tracker.clone();
        let marked = self.mark.get().is_some_and(Option::is_some);
        let journal = self.journal.clone();
        let id = call.call.clone();
        let look = move || -> Vec<(EditedFile, FileChange)> {
            let begin_change = |change: Arc<Change>| {
                let path = resolve_symlinks(Path::new(&change.path));
                if let Some(journal) = &journal {
                    journal.take_over(&path);
                }
                match around_edit(&tracker, &path, &change) {
                    Ok((old, new)) => {
                        let name = path.display().to_string();
                        let begun = FileChange {
                            path: name,
                            old: old.clone(),
                            new,
                            compared: false,
                            sequence: 0, // until it has been made
                        };
                        let edited = EditedFile {
                            call: id.clone(),
                            path,
                            old,
                            was_compared: marked,
                            is_finished: false,
                        };
                        Some((edited, begun))
                    }
                    Err(e) => {
                        tracing::warn!(
                            "the previous content of {} is not saved: {e}",
                            path.display()
                        );
                        None
                    }
                }
            };
            changes.into_iter().filter_map(begin_change).collect()
        };
        let fresh = spawn_blocking(look).await.unwrap_or_default();
        if fresh.is_empty() {
            return;
        }
        let files = {
            let mut named = lock(&self.edited_files);
            let mut begun = lock(&self.planned_changes);
            for (fresh, change) in fresh {
                begun.push(change);
                named.push(fresh);
            }
            begun.clone()
        };
        // Stored before the edit, so that the change can be undone if the process is killed
        // in the meantime.
        if let Some(tracker) = &self.tracker {
            turn.session.recorder.share_contents(tracker, &files).await;
        }
        let part = Part {
            id: self.part.clone(),
            content: Content::Patch {
                files,
                begun: true,
                unrecorded: Vec::new(),
                late: None,
            },
        };
        turn.session.recorder.part(&self.message, &part).await;
        turn.session.recorder.await_saved().await;
    }

    /// Records the writes of a finished call, before the user saves other files if possible. A
    /// failed call may have restored the files that it had edited.
    pub async fn after_call(&self, turn: &TurnContext, call: &CallId, has_failed: bool) {
        let (Some(journal), Some(tracker)) = (self.journal.clone(), self.tracker.clone()) else {
            return;
        };
        journal.add(turn.session.child_changes.take());
        let edited: Vec<EditedFile> = lock(&self.edited_files)
            .extract_if(.., |file| file.call == *call && !file.was_compared)
            .collect();
        if edited.is_empty() && journal.is_empty() {
            return;
        }
        let edited: Vec<EditedFile> = edited
            .into_iter()
            .filter(|file| has_failed || !file.is_finished)
            .collect();
        let id = call.clone();
        let waits = !edited.is_empty();
        let looking = spawn_blocking(move || {
            for EditedFile {
                path,
                old,
                is_finished,
                ..
            } in edited
            {
                let is_restored = || tracker.has_state(&path, old.as_ref()).unwrap_or_default();
                if is_finished && !is_restored() {
                    // Others may have written it since.
                    continue;
                }
                if let Err(e) = journal.finish_edit(&id, &path, old) {
                    tracing::warn!("the new content of {} is not saved: {e}", path.display());
                    journal
                        .note_unrecorded(&path.display().to_string(), UnrecordedReason::Unreadable);
                }
            }
            journal.finish(&id);
        });
        // An edit takes a moment; a command may have written very many files, so its
        // changes are recorded in the background.
        if waits {
            looking.await.ok();
        } else {
            lock(&self.reading_tasks).push(looking);
        }
    }

    /// Waits for the comparison of the project before a call, or until the turn is cancelled.
    async fn await_comparison(&self, turn: &TurnContext, title: &str) {
        tokio::select! {
            () = self.compare_once(turn) => {}
            () = turn.cancelled.cancelled() => {}
        }
        if let (Some(None), Some(journal)) = (self.mark.get(), &self.journal) {
            journal.note_unrecorded(title, UnrecordedReason::Unreported);
        }
    }

    async fn compare_once(&self, turn: &TurnContext) {
        let mark = || async {
            self.start_comparison();
            self.comparison_wanted.notify_one();
            let comparing = lock(&self.comparison).take();
            match comparing?
                .await
                .unwrap_or_else(|e| Err(Untracked::Failed(e.to_string())))
            {
                Ok(mark) => Some(mark),
                Err(off) => {
                    self.report_untracked(turn, &off).await;
                    None
                }
            }
        };
        self.mark.get_or_init(mark).await;
    }

    /// Notifies the user, once, that changes of commands cannot be undone.
    async fn report_untracked(&self, turn: &TurnContext, off: &Untracked) {
        tracing::warn!("the project is not compared: {off}");
        if self
            .tracker
            .as_ref()
            .is_some_and(|tracker| tracker.must_notify(off))
        {
            let title = match off {
                Untracked::Preparing(_) => {
                    "Changes to files by commands cannot be undone yet; edits can."
                }
                _ => "Changes to files by commands cannot be undone here; edits can.",
            };
            let title = title.into();
            let notice = Event::Notice {
                severity: Severity::Warning,
                title,
                details: Some(off.to_string()),
            };
            turn.event_sender.event(notice).await;
        }
    }

    /// Starts to determine the changes of the finished step in the background. No call may act
    /// until [`StepChanges::into_part`] has returned. Returns `None` if the step cannot have
    /// changed any file.
    pub fn finish(mut self, turn: &TurnContext) -> Option<StepChanges> {
        let tracker = self.tracker.clone()?;
        let journal = self.journal.clone()?;
        let mark = self.mark.take().flatten();
        let named = std::mem::take(&mut *lock(&self.edited_files));
        let mut done = turn.session.child_changes.take();
        if journal.is_open() {
            // A background job may write until it ends.
            turn.session.late_changes.register(&self.message, &journal);
        }
        if mark.is_none()
            && named.is_empty()
            && journal.is_empty()
            && done.files.is_empty()
            && done.unrecorded.is_empty()
        {
            return None;
        }
        let looking = std::mem::take(&mut *lock(&self.reading_tasks));
        let stop = self.stop.clone();
        let look = move || {
            let (entries, off) = step_changes(&tracker, mark.as_ref(), named, &journal, &stop);
            done.files.extend(entries.files);
            done.unrecorded.extend(entries.unrecorded);
            (done, off)
        };
        let looked = base::task::spawn(async move {
            for looking in looking {
                looking.await.ok();
            }
            spawn_blocking(look).await
        });
        Some(StepChanges {
            looked,
            recorder: self,
        })
    }
}

/// The changes of a step while they are being determined.
pub struct StepChanges {
    looked: JoinHandle<Result<(JournalEntries, Option<Untracked>), JoinError>>,
    recorder: ChangeRecorder,
}

impl StepChanges {
    /// Returns the part that lists the changes, and the id of its message, after storing it.
    /// Returns `None` if no file was changed. A cancel ends a long comparison.
    pub async fn into_part(self, turn: &TurnContext) -> Option<(MessageId, Part)> {
        let Self {
            mut looked,
            recorder,
        } = self;
        let cancelled = async {
            turn.cancelled.cancelled().await;
            sleep(CANCEL_GRACE).await; // time for a usual comparison
        };
        let looked = tokio::select! {
            biased;
            looked = &mut looked => looked,
            () = cancelled => {
                recorder.stop.store(true, Ordering::Relaxed);
                looked.await
            }
        };
        let looked = looked.flatten();
        let failed = |e: JoinError| {
            (
                JournalEntries::default(),
                Some(Untracked::Failed(e.to_string())),
            )
        };
        let (JournalEntries { files, unrecorded }, off) = looked.unwrap_or_else(failed);
        if let Some(off) = off {
            recorder.report_untracked(turn, &off).await;
        }
        let unwritten = lock(&recorder.planned_changes).is_empty();
        let nothing = files.is_empty() && unrecorded.is_empty();
        if nothing && unwritten {
            return None;
        }
        if let Some(tracker) = &recorder.tracker {
            turn.session.recorder.share_contents(tracker, &files).await;
        }
        if let Some(parent) = &turn.session.parent_changes {
            parent.add(&files, &unrecorded);
        }
        let part = Part {
            id: recorder.part.clone(),
            content: Content::Patch {
                files,
                begun: false,
                unrecorded,
                late: None,
            },
        };
        turn.session.recorder.part(&recorder.message, &part).await;
        (!nothing).then(|| (recorder.message.clone(), part))
    }
}

/// The byte order mark.
const MARK: &str = "\u{feff}";

/// Returns the state of a file before an edit, and the intended one after it.
fn around_edit(
    tracker: &Tracker,
    path: &Path,
    change: &Change,
) -> std::io::Result<(Option<FileState>, Option<FileState>)> {
    // Usually the file has the bytes of the text, and will have those of the new one.
    if let Some(text) = change.old.as_deref().filter(|old| !old.starts_with(MARK))
        && let Some(old) = tracker.record_read_file(path, text.as_bytes())?
    {
        if change.new.is_empty() {
            return Ok((Some(old), None));
        }
        let new = FileState {
            kind: old.kind,
            ..tracker.store(change.new.as_bytes())?
        };
        return Ok((Some(old), Some(new)));
    }
    let old = state_before_edit(tracker, path, change)?;
    let new = after_edit(tracker, old.as_ref(), change)?;
    Ok((old, new))
}

/// Returns the state of a file before an edit. If the editor had unsaved changes, the edit was made
/// to those, and an undo must restore them. A file that is not UTF-8 is not edited then; its text
/// never has the bytes of the file.
fn state_before_edit(
    tracker: &Tracker,
    path: &Path,
    change: &Change,
) -> std::io::Result<Option<FileState>> {
    let saved = tracker.record_file(path)?;
    let Some(text) = &change.old else {
        return Ok(saved);
    };
    let bytes = saved.as_ref().and_then(|state| tracker.content(state).ok());
    let same = bytes.is_some_and(|bytes| {
        let unmarked = bytes.strip_prefix(MARK.as_bytes()).unwrap_or(&bytes);
        unmarked == text.strip_prefix(MARK).unwrap_or(text).as_bytes() || !is_plain_utf8(bytes)
    });
    if same {
        return Ok(saved);
    }
    let kind = saved.map(|state| state.kind).unwrap_or_default();
    Ok(Some(FileState {
        kind,
        ..tracker.store(text.as_bytes())?
    }))
}

/// Returns the intended state of a file after an edit. An empty text means a deleted file if the
/// file existed, or else an empty one.
fn after_edit(
    tracker: &Tracker,
    old: Option<&FileState>,
    change: &Change,
) -> std::io::Result<Option<FileState>> {
    if change.new.is_empty() && old.is_some() {
        return Ok(None);
    }
    let kind = old.map(|old| old.kind).unwrap_or_default();
    let content = old.and_then(|old| tracker.content(old).ok());
    let marked = content
        .as_ref()
        .is_some_and(|old| old.starts_with(MARK.as_bytes()));
    if let Some(bytes) = content.and_then(|old| changed_bytes(old, &change.new)) {
        return Ok(Some(FileState {
            kind,
            ..tracker.store(&bytes)?
        }));
    }
    let mark = if marked && !change.new.starts_with(MARK) {
        MARK
    } else {
        ""
    };
    Ok(Some(FileState {
        kind,
        ..tracker.store(format!("{mark}{}", change.new.as_str()).as_bytes())?
    }))
}

fn step_changes(
    tracker: &Tracker,
    mark: Option<&Mark>,
    named: Vec<EditedFile>,
    journal: &WriteJournal,
    stop: &AtomicBool,
) -> (JournalEntries, Option<Untracked>) {
    let compared = mark.map(|mark| tracker.since(mark, stop));
    let (changes, off) = match compared {
        None => (Vec::new(), None),
        Some(Ok(changes)) => (changes, None),
        Some(Err(off)) => (Vec::new(), Some(off)),
    };
    let JournalEntries {
        files: reported,
        mut unrecorded,
    } = journal.take();
    if off.is_some() {
        unrecorded.push(UnrecordedWrite {
            what: "the calls of a step".into(),
            why: UnrecordedReason::Unreported,
        });
    }
    // Reported changes are more precise than those found by comparison.
    let mut files: BTreeMap<String, Vec<FileChange>> = BTreeMap::new();
    let shared: BTreeSet<&String> = reported
        .iter()
        .filter(|change| change.compared)
        .map(|change| &change.path)
        .collect();
    for change in &reported {
        files
            .entry(change.path.clone())
            .or_default()
            .push(change.clone());
    }
    for change in changes {
        let change = FileChange {
            sequence: tracker.next_sequence(),
            ..change
        };
        let known = files.entry(change.path.clone()).or_default();
        match known.last() {
            Some(last) if last.new == change.new => {}
            // The found change goes beyond the reported one.
            Some(last) => known.push(FileChange {
                old: last.new.clone(),
                ..change
            }),
            None => known.push(change),
        }
    }
    for file in named {
        // The comparison already has the result for a file whose edit came after its start,
        // changed or not.
        let compared = file.was_compared && off.is_none() && tracker.covers(&file.path);
        let Some(name) = file.path.to_str().map(str::to_owned) else {
            continue;
        };
        let is_shared = shared.contains(&name);
        let known = files.entry(name).or_default();
        if !is_shared {
            // A call of this session has changed it.
            known.iter_mut().for_each(|change| change.compared = false);
        }
        if compared {
            continue;
        }
        // The edit was cut off, so its result is the present state of the file.
        let old = known.last().map(|known| known.new.clone());
        let change = edit_change(
            tracker,
            EditedFile {
                old: old.unwrap_or(file.old.clone()),
                ..file
            },
        );
        known.extend(change);
    }
    let files = transcript::merged(files.values().flatten());
    (JournalEntries { files, unrecorded }, off)
}

/// Returns the change of a file that an edit has named.
fn edit_change(tracker: &Tracker, file: EditedFile) -> Option<FileChange> {
    let EditedFile { path, old, .. } = file;
    let name = path.to_str()?.to_owned();
    match tracker.record_file(&path) {
        Ok(new) => (new != old).then_some(FileChange {
            path: name,
            old,
            new,
            compared: false,
            sequence: tracker.next_sequence(),
        }),
        Err(e) => {
            tracing::warn!("the new content of {name} is not saved: {e}");
            None
        }
    }
}

/// Resolves the symlinks of a path, as far as the path exists.
fn resolve_symlinks(path: &Path) -> PathBuf {
    let exists = path
        .ancestors()
        .find_map(|dir| Some((dir, std::fs::canonicalize(dir).ok()?)));
    match exists {
        Some((dir, real)) => match path.strip_prefix(dir) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        },
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::TurnOutcome;
    use crate::turn::tests::Fixture;
    use permission::{PermissionContext, command_request};

    /// The bytes, the text that was edited, the state before, the new text, the state after.
    type EditedFile = (
        &'static [u8],
        &'static str,
        &'static [u8],
        &'static str,
        &'static [u8],
    );

    #[test]
    fn states_of_an_edited_file_have_its_own_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let tracker = Tracker::new(&dir.path().join("data"), dir.path(), None);
        let path = dir.path().join("f");
        let table: [EditedFile; 5] = [
            (b"a\n", "a\n", b"a\n", "b\n", b"b\n"),
            (b"a\n", "unsaved\n", b"unsaved\n", "b\n", b"b\n"),
            (
                b"\xff\xfea\0",
                "a",
                b"\xff\xfea\0",
                "\u{4e2d}",
                b"\xff\xfe\x2d\x4e",
            ),
            (
                b"a caf\xe9\n",
                "a caf\u{e9}\n",
                b"a caf\xe9\n",
                "b caf\u{e9}\n",
                b"b caf\xe9\n",
            ),
            (
                b"\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f \xff a",
                "\u{e4}\u{f6}\u{fc}\u{df} \u{fffd} a",
                b"\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f \xff a",
                "\u{e4}\u{f6}\u{fc}\u{df} \u{fffd} b",
                b"\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f \xff b",
            ),
        ];
        for (bytes, old, was, new, becomes) in table {
            std::fs::write(&path, bytes).unwrap();
            let change = Change {
                path: path.display().to_string(),
                old: Some(old.into()),
                new: new.into(),
                deleted: false,
                part: None,
            };
            let (old, after) = around_edit(&tracker, &path, &change).unwrap();
            let content = |state: Option<FileState>| tracker.content(&state.unwrap()).unwrap();
            assert_eq!(content(old), was, "{change:?}");
            assert_eq!(content(after), becomes, "{change:?}");
        }
    }

    #[test]
    fn changes_after_a_stopped_comparison_are_unrecorded() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("project");
        std::fs::create_dir(&project).unwrap();
        let tracker = Arc::new(Tracker::new(&dir.path().join("data"), &project, None));
        let stop = AtomicBool::new(false);
        for (stops, files, unrecorded) in [(false, 1, 0), (true, 0, 1)] {
            stop.store(false, Ordering::Relaxed);
            let mark = tracker.mark(&stop).unwrap();
            std::fs::write(project.join("file"), stops.to_string()).unwrap();
            stop.store(stops, Ordering::Relaxed);
            let journal = WriteJournal::new(tracker.clone(), WRITER_PROBE);
            let (entries, off) = step_changes(&tracker, Some(&mark), vec![], &journal, &stop);
            assert_eq!(off, stops.then_some(Untracked::Stopped));
            assert_eq!(entries.files.len(), files);
            assert_eq!(entries.unrecorded.len(), unrecorded);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cancel_ends_a_comparison_without_a_notice() {
        let mut fixture = Fixture::new([]);
        let played = fixture.play_with("go", |_, history, turn| {
            Box::pin(async move {
                let recorder = ChangeRecorder::new(&turn, &turn.new_message_id());
                let stop = recorder.stop.clone();
                let looked = base::task::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        sleep(Duration::from_millis(10)).await; // looks again
                    }
                    Ok((JournalEntries::default(), Some(Untracked::Stopped)))
                });
                turn.cancelled.cancel();
                let changes = StepChanges { looked, recorder };
                let part = timeout(Duration::from_secs(20), changes.into_part(&turn)).await;
                assert!(part.unwrap().is_none());
                (history, TurnOutcome::Cancelled)
            })
        });
        let events = played.await.events;
        assert!(
            !events.iter().any(|event| event.contains("undone")),
            "{events:?}"
        );
    }

    #[test]
    fn commands_that_only_read_or_use_a_service_are_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let context = PermissionContext {
            root: dir.path().into(),
            cwd: dir.path().into(),
            ..PermissionContext::default()
        };
        let of = |lines: &[&str]| {
            lines
                .iter()
                .map(|line| command_request(line, &context))
                .collect::<Vec<_>>()
        };
        let read = AccessRequest::new("read", "a.txt");
        for lines in [&["echo a"][..], &["ls | wc -l"], &["ls", "cat a"]] {
            assert!(only_reads(&of(lines)), "{lines:?}");
            assert!(
                only_reads(&[of(lines), vec![read.clone()]].concat()),
                "{lines:?}, and what it reads"
            );
        }
        for lines in [
            &["echo a > b"][..],
            &["make"],
            &["ls; touch a"],
            &["ls", "rm a"],
            &["$(cat x)"],
            &["ls $(touch a)"],
        ] {
            assert!(!only_reads(&of(lines)), "{lines:?}");
        }
        for (line, wanted) in [
            ("docker run -v .:/src img make", true),
            ("cd x && docker compose up -d", true),
            ("podman exec c touch a", true),
            ("docker ps", false),
            ("make", false),
        ] {
            assert_eq!(uses_a_service(&of(&[line])), wanted, "{line}");
        }
        // Access requests without a command do not prove that a call only reads.
        assert!(!only_reads(&[]));
        assert!(!only_reads(&[read]));
    }
}
