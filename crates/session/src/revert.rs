//! Undo and redo of turns: their file changes and their messages.
//!
//! An undo at first only hides the messages: they stay in the store together with the file
//! contents, so that the turn can be redone. The next prompt deletes the messages; the files can
//! still be restored.
//!
//! A file is restored only if it still has the content that the session gave it. A file that was
//! changed since, on the disk or in the editor, is left alone and reported; so is one that another
//! process may have changed while a command ran, and one that a redo could not restore. With
//! `force` such files are restored as well, and the redo restores their replaced contents if these
//! can be stored. The intended changes are stored before the first file is touched: if the process
//! is killed, each file has its old or its new content, and the undo can be finished or reversed.
//!
//! A file that is created again gets its former mode, or only owner permissions if that mode is
//! unknown. At no time can its contents be read by more users than in the end.

mod judge;
mod past;
mod report;

use std::collections::BTreeSet;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};

use base::task::spawn_blocking;

use self::judge::{FileVerdict, Obstacle, RevertCare, judge};
pub use self::past::{
    FileVersion, delete_undone_turns, files_with_versions, move_to_past_undos,
    place_late_changes_of_copy, restore_version, versions,
};
pub use self::report::{RevertHints, RevertReport};
use super::{changes, interrupted};
use crate::turn;
use crate::turn::record::Recorder;
use base::text;
use base::worktree::Worktree;
use events::NotWritten;
use snapshot::{FileAccess, Tracker};
use store::{Record, StoredSession, UndoEntry, visible};
use tools::files::disk;
use tools::files::read_tracker::TextFingerprint;
use tools::todowrite::sets_plan;
use tools::{self};
use transcript::{CallState, Content, FileChange, FileKind, FileState, Message, Todo};

/// The files that are read or written concurrently, if no client is asked about them.
const MAX_CONCURRENT_FILES: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RevertPoint {
    LastTurn,
    /// The state before a turn. The turns are counted from 1; those that are undone do not count.
    Turn(usize),
    /// The state before a message, which may be named by one of its parts. The first answer to
    /// a prompt means the prompt.
    Before(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RevertError {
    #[error("There is no turn to undo.")]
    NothingToUndo,
    #[error("There is nothing to redo.")]
    NothingToRedo,
    #[error("There is no turn {turn}; {}.", undoable(*count))]
    UnknownTurn {
        turn: usize,
        /// The number of turns that can be undone.
        count: usize,
    },
    #[error("This session has no message or part {0}.")]
    UnknownMessage(String),
    #[error("{0} is already undone; redo restores it.")]
    AlreadyUndone(String),
    /// The intended changes could not be stored.
    #[error("Nothing was changed, because the session could not be saved: {0}")]
    Unsaved(String),
}

fn undoable(count: usize) -> String {
    match count {
        0 => "none can be undone".to_owned(),
        1 => "only turn 1 can be undone".to_owned(),
        count => format!("turns 1 to {count} can be undone"),
    }
}

pub struct RestoreContext {
    pub tracker: Arc<Tracker>,
    pub worktree: Arc<Worktree>,
    /// The access to the client's buffers, if there is a client.
    pub editor: Option<tools::ToolContext>,
}

/// Undoes a turn. If the last undo left files alone, `force` restores those instead.
///
/// # Errors
/// [`RevertError`].
pub async fn undo(
    messages: &[Message],
    record: &mut Record,
    recorder: &Recorder,
    cx: &RestoreContext,
    point: &RevertPoint,
    force: bool,
) -> Result<RevertReport, RevertError> {
    let before = record.clone();
    let unfinished = record.undone.last().is_some_and(|last| !last.is_complete);
    let more = force
        && *point == RevertPoint::LastTurn
        && record
            .undone
            .last()
            .is_some_and(|last| !last.skipped_files.is_empty());
    let mut report = RevertReport::default();
    let mut entry = match record.undone.pop_if(|_| unfinished || more) {
        Some(last) => last,
        None => {
            let end = visible(messages, &record.undone);
            let start = find_start(messages, end, point)?;
            let hidden = messages.get(start..end).unwrap_or_default();
            report.changed_between = files_changed_by_others(hidden);
            let left = changes::last_merged_changes(hidden)
                .into_iter()
                .map(reversed)
                .collect();
            UndoEntry {
                from: messages[start].id.clone(),
                files: Vec::new(),
                skipped_files: left,
                is_complete: true,
                is_logged: false,
            }
        }
    };
    let mut wanted = std::mem::take(&mut entry.skipped_files);
    if unfinished {
        remove_leftovers(&entry.files).await;
        wanted.append(&mut entry.files);
    }
    recorder.fetch_contents(&cx.tracker, &wanted).await;
    let care = if force {
        RevertCare::Force
    } else {
        RevertCare::Undo
    };
    let mut planned = plan_changes(wanted, cx, care).await;
    let already = planned.already_made.clone();
    if unfinished {
        // The interrupted undo has done these, and a redo must include them.
        entry.files.append(&mut planned.already_made);
    }
    let mut undone = entry.files.clone();
    entry.is_complete = false;
    entry.skipped_files = planned
        .skipped
        .iter()
        .map(|left| left.change.clone())
        .collect();
    entry.files.extend_from_slice(&planned.ready);
    record.undone.push(entry);
    if let Some(summary) = &mut record.summary {
        // It describes work that is undone now.
        summary.remove();
    }
    if let Err(e) = store_record(record, recorder, cx).await {
        *record = before;
        return Err(RevertError::Unsaved(e));
    }
    let (done, left) = apply_all(planned, &mut report, cx).await;
    changes::log_changes(record, messages, unchanged(already).chain(done.clone()));
    undone.extend(done);
    if let Some(entry) = record.undone.last_mut() {
        entry.files = undone;
        entry.skipped_files = left.iter().map(|left| left.change.clone()).collect();
        entry.is_complete = true;
        entry.is_logged = true;
    }
    report.record_skipped(left, cx);
    let earlier = record
        .undone
        .split_last()
        .map_or(&[][..], |(_, earlier)| earlier);
    let hidden = visible(messages, &record.undone)..visible(messages, earlier);
    report.set_turn(messages.get(hidden).unwrap_or_default());
    finish(messages, record, recorder, cx).await;
    Ok(report)
}

/// Redoes the last undone turn, or only its files if the conversation has continued since.
///
/// # Errors
/// [`RevertError`].
pub async fn redo(
    messages: &[Message],
    record: &mut Record,
    recorder: &Recorder,
    cx: &RestoreContext,
) -> Result<RevertReport, RevertError> {
    let before = record.clone();
    let start = visible(messages, &record.undone);
    let Some(entry) = record.undone.last_mut() else {
        return past::redo(messages, record, recorder, cx).await;
    };
    if !entry.is_complete {
        remove_leftovers(&entry.files).await;
    }
    // Until it is complete, the files are in an intermediate state.
    entry.is_complete = false;
    let back: Vec<FileChange> = entry.files.iter().cloned().map(reversed).collect();
    recorder.fetch_contents(&cx.tracker, &back).await;
    let planned = plan_changes(back, cx, RevertCare::Redo).await;
    if let Err(e) = store_record(record, recorder, cx).await {
        *record = before;
        return Err(RevertError::Unsaved(e));
    }
    let mut report = RevertReport::default();
    let already = planned.already_made.clone();
    let (done, left) = apply_all(planned, &mut report, cx).await;
    if let Some(undone) = record.undone.pop().filter(|undone| !undone.is_logged) {
        // The redo may leave some of these files in place.
        changes::log_changes(record, messages, undone.files);
    }
    changes::log_changes(record, messages, unchanged(already).chain(done));
    let end = visible(messages, &record.undone);
    report.record_skipped(left, cx);
    report.set_turn(messages.get(start..end).unwrap_or_default());
    finish(messages, record, recorder, cx).await;
    Ok(report)
}

/// Returns the index of a point among the first `end` messages.
pub(super) fn find_start(
    messages: &[Message],
    end: usize,
    point: &RevertPoint,
) -> Result<usize, RevertError> {
    let prompt = |before: usize| messages.iter().take(before).rposition(is_prompt);
    let id = match point {
        RevertPoint::LastTurn => return prompt(end).ok_or(RevertError::NothingToUndo),
        RevertPoint::Turn(turn) => {
            let prompts = (0..end).filter(|at| messages.get(*at).is_some_and(is_prompt));
            let prompts: Vec<usize> = prompts.collect();
            let start = turn.checked_sub(1).and_then(|at| prompts.get(at));
            return start.copied().ok_or(RevertError::UnknownTurn {
                turn: *turn,
                count: prompts.len(),
            });
        }
        RevertPoint::Before(id) => id,
    };
    let named =
        |m: &Message| m.id.as_str() == id || m.parts.iter().any(|part| part.id.as_str() == id);
    let at = messages
        .iter()
        .position(named)
        .ok_or_else(|| RevertError::UnknownMessage(id.clone()))?;
    if at >= end {
        return Err(RevertError::AlreadyUndone(id.clone()));
    }
    // The conversation cannot continue after a prompt without its answer.
    let prompt = prompt(at + 1).unwrap_or(0);
    let answered = messages
        .get(prompt..at)
        .unwrap_or_default()
        .iter()
        .any(|m| m.assistant().is_some());
    Ok(if answered { at } else { prompt })
}

/// True if a message has content from the user.
fn is_prompt(message: &Message) -> bool {
    message.user().is_some()
        && message.parts.iter().any(|part| match &part.content {
            Content::Text(text) => !text.synthetic,
            Content::File(_) => true,
            _ => false,
        })
}

fn reversed(change: FileChange) -> FileChange {
    FileChange {
        old: change.new,
        new: change.old,
        ..change
    }
}

/// Returns changes that were found made already as changes from their new state to itself.
fn unchanged(already: Vec<FileChange>) -> impl Iterator<Item = FileChange> {
    already.into_iter().map(|change| FileChange {
        old: change.new.clone(),
        ..change
    })
}

fn files_changed_by_others(messages: &[Message]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let twice = changes::merged_changes(messages)
        .into_iter()
        .filter(|run| !seen.insert(run.path.clone()));
    twice
        .map(|run| run.path)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// Removes the temporary files of an undo or a redo that was killed.
async fn remove_leftovers(files: &[FileChange]) {
    let files = files.to_vec();
    let work = move || interrupted::remove_temporary_files(&files);
    if let Err(e) = spawn_blocking(work).await {
        tracing::warn!("the remains of an interrupted undo were not searched for: {e}");
    }
}

async fn store_record(
    record: &Record,
    recorder: &Recorder,
    cx: &RestoreContext,
) -> Result<(), String> {
    let past = record.past_undos.last().map(|past| &past.files);
    for files in record.undone.iter().map(|undone| &undone.files).chain(past) {
        recorder.share_contents(&cx.tracker, files).await;
    }
    recorder.session(record).await;
    recorder.flush().await.map_err(|e| e.to_string())
}

/// Resets the plan and the files that the model has seen to their state at the end of the visible
/// history.
async fn finish(
    messages: &[Message],
    record: &mut Record,
    recorder: &Recorder,
    cx: &RestoreContext,
) {
    let end = visible(messages, &record.undone);
    record.todos = last_plan(messages.get(..end).unwrap_or_default()).unwrap_or_default();
    if let Some(editor) = &cx.editor {
        editor.session.todos.set(record.todos.clone());
        for call in messages
            .get(end..)
            .unwrap_or_default()
            .iter()
            .flat_map(Message::calls)
        {
            for location in &call.locations {
                editor.session.seen.forget(&location.path);
            }
        }
    }
    if let Err(e) = store_record(record, recorder, cx).await {
        tracing::error!("an undo is not saved: {e}");
    }
}

/// Removes the messages from `end` on, and the results of their turns from the record.
pub(super) fn truncate_history(stored: &mut StoredSession, end: usize) {
    let removed = stored.messages.split_off(end.min(stored.messages.len()));
    past::place_late_changes(&mut stored.messages, |id| {
        removed.iter().any(|message| message.id == *id)
    });
    stored.record.todos = last_plan(&stored.messages).unwrap_or_default();
    stored.record.cost = turn::cost(&stored.messages);
    stored.record.diff_stats = None;
}

/// Returns the plan of the last call that set one; `None` if there is no such call. An interrupted
/// call counts, because its plan was shown or about to be.
pub(super) fn last_plan(messages: &[Message]) -> Option<Vec<Todo>> {
    let calls = messages
        .iter()
        .rev()
        .flat_map(|m| m.calls().collect::<Vec<_>>().into_iter().rev());
    let made = |state: &CallState| match state {
        CallState::Completed(_) | CallState::Running { .. } => true,
        CallState::Failed { cause, .. } => cause.is_interruption(),
        CallState::Pending => false,
    };
    let mut plans = calls.filter(|call| sets_plan(call) && made(&call.state));
    plans
        .next()
        .and_then(|call| serde_json::from_value(call.input.get("todos")?.clone()).ok())
}

/// Makes the planned changes. Returns those that were made, and those that were not.
async fn apply_all(
    planned: RevertPlan,
    report: &mut RevertReport,
    cx: &RestoreContext,
) -> (Vec<FileChange>, Vec<SkippedChange>) {
    let mut results = Vec::new();
    // Deletions also remove empty directories, which later writes may need.
    let (deletions, writes): (Vec<_>, Vec<_>) = planned
        .ready
        .into_iter()
        .enumerate()
        .partition(|(_, change)| change.new.is_none());
    for changes in [deletions, writes] {
        let mut attempts = stream::iter(changes)
            .map(async |(index, change)| {
                let result = apply_change(&change, cx).await;
                (index, change, result)
            })
            .buffered(cx.max_concurrent_files());
        while let Some(result) = attempts.next().await {
            results.push(result);
        }
    }
    results.sort_by_key(|(index, ..)| *index);
    let mut done = Vec::new();
    let mut left = planned.skipped;
    for (_, change, result) in results {
        match result {
            Ok(()) => {
                report.record_change(&change, cx);
                done.push(change);
            }
            Err(why) => left.push(SkippedChange {
                change,
                obstacle: Obstacle::Failure,
                why,
            }),
        }
    }
    (done, left)
}

/// The changes that can be made, those already made, and those that cannot be made.
#[derive(Default)]
struct RevertPlan {
    ready: Vec<FileChange>,
    already_made: Vec<FileChange>,
    skipped: Vec<SkippedChange>,
}

/// A change that was not made.
struct SkippedChange {
    change: FileChange,
    obstacle: Obstacle,
    why: String,
}

/// Checks every file. A change is ready if the file has its old state; with force always, and the
/// present content is stored.
async fn plan_changes(
    wanted: Vec<FileChange>,
    cx: &RestoreContext,
    care: RevertCare,
) -> RevertPlan {
    let mut plan = RevertPlan::default();
    let mut verdicts = stream::iter(wanted)
        .map(async |change| {
            let unsaved = cx.unsaved(Path::new(&change.path)).await;
            let tracker = cx.tracker.clone();
            spawn_blocking(move || judge(&tracker, change, unsaved.as_deref(), care)).await
        })
        .buffered(cx.max_concurrent_files());
    while let Some(judged) = verdicts.next().await {
        match judged {
            Ok((change, FileVerdict::Ready)) => plan.ready.push(change),
            Ok((change, FileVerdict::AlreadyMade)) => plan.already_made.push(change),
            Ok((change, FileVerdict::Skip(obstacle, why))) => plan.skipped.push(SkippedChange {
                change,
                obstacle,
                why,
            }),
            Err(e) => tracing::error!("a file could not be examined: {e}"),
        }
    }
    plan
}

/// Applies a change to its file.
async fn apply_change(change: &FileChange, cx: &RestoreContext) -> Result<(), String> {
    let tracker = cx.tracker.clone();
    let change = change.clone();
    let root = cx.worktree.root.clone();
    let begun = spawn_blocking(move || FileRestoration::begin(&tracker, change, root)).await;
    let file = Arc::new(begun.map_err(|e| e.to_string())??);
    let step = |work: fn(&FileRestoration) -> Result<(), disk::Error>| {
        let file = file.clone();
        let working = spawn_blocking(move || work(&file).map_err(|e| e.to_string()));
        async { working.await.map_err(|e| e.to_string())? }
    };
    let done = match file.write_in_editor(cx).await {
        Some(why) => Err(format!("the editor refused: {}", why.trim_end_matches('.'))),
        None => step(FileRestoration::finish).await,
    };
    if done.is_err()
        && let Err(e) = step(FileRestoration::roll_back).await
    {
        tracing::warn!(
            "{} may not have the permission bits it had: {e}",
            file.path.display()
        );
    }
    done
}

/// A file that is being restored.
struct FileRestoration {
    path: PathBuf,
    change: FileChange,
    /// The new content; `None` if the file is to be deleted.
    bytes: Option<Vec<u8>>,
    access: FileAccess,
    /// The root of the project.
    root: PathBuf,
}

impl FileRestoration {
    /// Restricts the access to the file before any new content is written, also by the client:
    /// an existing file is made private, a missing one is created private.
    fn begin(tracker: &Tracker, change: FileChange, root: PathBuf) -> Result<Self, String> {
        let bytes = change
            .new
            .as_ref()
            .map(|new| tracker.content(new))
            .transpose()
            .map_err(|e| e.to_string())?;
        let file = Self {
            path: change.path.clone().into(),
            access: tracker.access(&change),
            bytes,
            change,
            root,
        };
        file.access.narrow().map_err(|e| e.to_string())?;
        match file.text() {
            Some(text) if file.access.must_restrict_creation() => {
                file.make(text.as_bytes()).map_err(|e| e.to_string())?
            }
            _ => {}
        }
        Ok(file)
    }

    /// Returns the text that the client can write.
    fn text(&self) -> Option<&str> {
        let link = |state: &Option<FileState>| {
            state
                .as_ref()
                .is_some_and(|state| state.kind == FileKind::Link)
        };
        let text = std::str::from_utf8(self.bytes.as_deref()?).ok()?;
        // Editors change text that is not plain text with plain line ends.
        let plain = !link(&self.change.old)
            && !link(&self.change.new)
            && !text.contains(['\r', '\0', '\u{feff}']);
        plain.then_some(text)
    }

    /// Lets the client write the file. The client may refuse to write a file of the project.
    /// Any other answer is ignored, because only the file on the disk counts.
    async fn write_in_editor(&self, cx: &RestoreContext) -> Option<String> {
        let answer = cx
            .editor
            .as_ref()?
            .write_buffer(&self.path, self.text()?)
            .await;
        let own = || {
            iter::once(&cx.worktree.root)
                .chain(&cx.worktree.extra)
                .any(|root| self.path.starts_with(root))
        };
        match answer {
            Some(Err(NotWritten::Refused(why))) if own() => Some(why),
            _ => None,
        }
    }

    /// Gives the file its new content and mode, unless it has them.
    fn finish(&self) -> Result<(), disk::Error> {
        let (Some(new), Some(bytes)) = (&self.change.new, &self.bytes) else {
            return self.remove();
        };
        let dir = self.path.parent().ok_or(disk::Error::Directory)?;
        fs::create_dir_all(dir)?;
        if new.kind == FileKind::Link {
            let target: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(bytes);
            // A link is created under a temporary name and renamed, so that there is
            // always one of the two.
            let make = |fresh: &Path| std::os::unix::fs::symlink(target, fresh);
            let fresh = disk::temporary_names().make_in(dir, make)?;
            return fresh.persist(&self.path).map_err(|e| e.error.into());
        }
        if fs::symlink_metadata(&self.path).map_or(true, |data| data.is_symlink()) {
            return self.make(bytes);
        }
        if !base::file::read_regular(&self.path).is_ok_and(|now| now == *bytes) {
            disk::write(&self.path, bytes)?;
        }
        Ok(self.access.set_final_mode(&self.path)?)
    }

    /// Creates the file. Only its owner can access it until it is complete.
    fn make(&self, bytes: &[u8]) -> Result<(), disk::Error> {
        let dir = self.path.parent().ok_or(disk::Error::Directory)?;
        fs::create_dir_all(dir)?;
        // The temporary file, which only its owner can read, gives its mode to the written
        // one.
        let fresh = disk::temporary_names().tempfile_in(dir)?;
        disk::write(fresh.path(), bytes)?;
        self.access.set_final_mode(fresh.path())?;
        fresh.persist(&self.path).map_err(|e| e.error)?;
        Ok(())
    }

    fn remove(&self) -> Result<(), disk::Error> {
        if fs::symlink_metadata(&self.path).is_ok_and(|data| data.is_symlink()) {
            fs::remove_file(&self.path)?;
        } else {
            match disk::remove(&self.path) {
                Ok(()) | Err(disk::Error::Missing) => {}
                Err(e) => return Err(e),
            }
        }
        // Also removes directories that were made for the file and are empty now.
        let above = self.path.ancestors().skip(1);
        for dir in above.take_while(|dir| *dir != self.root && dir.starts_with(&self.root)) {
            if fs::remove_dir(dir).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Reverts the preparations of [`Self::begin`].
    fn roll_back(&self) -> Result<(), disk::Error> {
        match self.text() {
            Some(_) if self.access.must_restrict_creation() => self.remove(),
            _ => Ok(self.access.restore()?),
        }
    }
}

impl RestoreContext {
    /// Returns the number of files to read or write concurrently: a client is asked about one
    /// after the other.
    fn max_concurrent_files(&self) -> usize {
        let files = self.editor.as_ref().map(|editor| &editor.client.files);
        if files.is_some_and(|files| files.read || files.write) {
            1
        } else {
            MAX_CONCURRENT_FILES
        }
    }

    /// Returns the text of the client's buffer if it differs from the saved file.
    async fn unsaved(&self, path: &Path) -> Option<String> {
        let editor = self
            .editor
            .as_ref()
            .filter(|editor| editor.client.files.read)?;
        let saved = base::file::read_regular_text(path).ok()?;
        let buffer = editor.read_buffer(path).await?;
        (TextFingerprint::of(&buffer) != TextFingerprint::of(&saved)).then_some(buffer)
    }

    fn name(&self, change: &FileChange) -> String {
        text::escaped(&self.worktree.relative(change.path.as_ref()))
    }
}

#[cfg(test)]
mod tests;
