//! Taking turns back, files and history together, and bringing them back.
//!
//! What is undone is only hidden at first: its messages stay in the store, and what its files held is
//! kept, so that it can be redone. The next prompt forgets the messages; the files can still come back.
//!
//! A file is set back only where it still is what the session made of it. One that somebody else has
//! changed since, on the disk or in the editor, is left alone and named; so is one that somebody else may have
//! changed while a command ran, and one that a redo could not bring back. By force they are set back as
//! well, and what they held then comes back with the redo, if it can be kept. What is about to be done to the files is
//! written down before the first of them is touched: a process that is killed half-way leaves each
//! file old or new, and an undo that can be finished or taken back.
//!
//! A file that is made anew has the mode it had, and is nobody's but its owner's where that is not known. At no
//! moment can its words be read by more than may read it in the end.

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

use self::judge::{FileVerdict, RevertCare, judge};
pub use self::past::{FileVersion, files, remember, restore, settle, versions};
pub use self::report::{RevertHints, RevertReport};
use super::{changes, interrupted};
use crate::turn::record::Recorder;
use base::text;
use base::worktree::Worktree;
use events::NotWritten;
use snapshot::{FileAccess, Tracker};
use store::{Record, UndoEntry, visible};
use tools::seen::TextFingerprint;
use tools::todowrite::TodowriteTool;
use tools::{self, Tool as _, disk};
use transcript::{CallState, Content, FileChange, FileKind, FileState, Message, Todo};

/// How many files are looked at or written at a time, where no editor is asked about them.
const AT_ONCE: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RevertPoint {
    LastTurn,
    /// To before a message, or the one a part belongs to. The first answer to a prompt stands for the
    /// prompt.
    Before(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RevertError {
    #[error("There is nothing to undo.")]
    ToUndo,
    #[error("There is nothing to redo.")]
    ToRedo,
    #[error("This session has no message or part {0}.")]
    Unknown(String),
    #[error("{0} is undone already; redo brings it back.")]
    Hidden(String),
    /// It could not be written down beforehand.
    #[error("Nothing was changed, because the session could not be saved: {0}")]
    Unsaved(String),
}

pub struct RestoreContext {
    pub tracker: Arc<Tracker>,
    pub worktree: Arc<Worktree>,
    /// The way to the editor's buffers, where there is an editor.
    pub editor: Option<tools::ToolContext>,
}

/// Undoes. Where files of the last undo were left alone, `force` sets those back instead.
///
/// # Errors
/// [`RevertError`].
pub async fn undo(
    messages: &[Message],
    record: &mut Record,
    keep: &Recorder,
    cx: &RestoreContext,
    point: &RevertPoint,
    force: bool,
) -> Result<RevertReport, RevertError> {
    let before = record.clone();
    let unfinished = record.undone.last().is_some_and(|last| !last.done);
    let more =
        force && *point == RevertPoint::LastTurn && record.undone.last().is_some_and(|last| !last.left.is_empty());
    let mut report = RevertReport::default();
    let mut entry = match record.undone.pop_if(|_| unfinished || more) {
        Some(last) => last,
        None => {
            let end = visible(messages, &record.undone);
            let start = start(messages, end, point)?;
            let hidden = messages.get(start..end).unwrap_or_default();
            report.between = between(hidden);
            let left = changes::last_runs(hidden).into_iter().map(reversed).collect();
            UndoEntry { from: messages[start].id.clone(), files: Vec::new(), left, done: true }
        }
    };
    let mut wanted = std::mem::take(&mut entry.left);
    if unfinished {
        cleared(&entry.files).await;
        wanted.append(&mut entry.files);
    }
    keep.fetch(&cx.tracker, &wanted).await;
    let care = if force { RevertCare::Force } else { RevertCare::Undo };
    let mut planned = plan(wanted, cx, care).await;
    if unfinished {
        // Done by the one that was interrupted, and part of what can be redone.
        entry.files.append(&mut planned.already);
    }
    let mut undone = entry.files.clone();
    entry.done = false;
    entry.left = planned.left.iter().map(|(change, _)| change.clone()).collect();
    entry.files.extend_from_slice(&planned.ready);
    record.undone.push(entry);
    if let Err(e) = written(record, keep, cx).await {
        *record = before;
        return Err(RevertError::Unsaved(e));
    }
    let (done, left) = put_all(planned, &mut report, cx).await;
    undone.extend(done);
    if let Some(entry) = record.undone.last_mut() {
        entry.files = undone;
        entry.left = left.iter().map(|(change, _)| change.clone()).collect();
        entry.done = true;
    }
    report.left = left.into_iter().map(|(change, why)| (cx.name(&change), why)).collect();
    let earlier = record.undone.split_last().map_or(&[][..], |(_, earlier)| earlier);
    let hidden = visible(messages, &record.undone)..visible(messages, earlier);
    report.describe(messages.get(hidden).unwrap_or_default());
    finish(messages, record, keep, cx).await;
    Ok(report)
}

/// Brings back what was undone last: the whole turn, or its files where the conversation went on since.
///
/// # Errors
/// [`RevertError`].
pub async fn redo(
    messages: &[Message],
    record: &mut Record,
    keep: &Recorder,
    cx: &RestoreContext,
) -> Result<RevertReport, RevertError> {
    let (before, start) = (record.clone(), visible(messages, &record.undone));
    let Some(entry) = record.undone.last_mut() else { return past::redo(record, keep, cx).await };
    if !entry.done {
        cleared(&entry.files).await;
    }
    // Until it is done, what is on the disk is somewhere between.
    entry.done = false;
    let back: Vec<FileChange> = entry.files.iter().cloned().map(reversed).collect();
    keep.fetch(&cx.tracker, &back).await;
    let planned = plan(back, cx, RevertCare::Redo).await;
    if let Err(e) = written(record, keep, cx).await {
        *record = before;
        return Err(RevertError::Unsaved(e));
    }
    let mut report = RevertReport::default();
    let (_, left) = put_all(planned, &mut report, cx).await;
    record.undone.pop();
    let end = visible(messages, &record.undone);
    report.left = left.into_iter().map(|(change, why)| (cx.name(&change), why)).collect();
    report.describe(messages.get(start..end).unwrap_or_default());
    finish(messages, record, keep, cx).await;
    Ok(report)
}

/// Where a point is among the first `end` messages.
pub(super) fn start(messages: &[Message], end: usize, point: &RevertPoint) -> Result<usize, RevertError> {
    let prompt = |before: usize| messages.iter().take(before).rposition(is_prompt);
    let id = match point {
        RevertPoint::LastTurn => return prompt(end).ok_or(RevertError::ToUndo),
        RevertPoint::Before(id) => id,
    };
    let named = |m: &Message| m.id.as_str() == id || m.parts.iter().any(|part| part.id.as_str() == id);
    let at = messages.iter().position(named).ok_or_else(|| RevertError::Unknown(id.clone()))?;
    if at >= end {
        return Err(RevertError::Hidden(id.clone()));
    }
    // A prompt without its answer is no place to go on from.
    let prompt = prompt(at + 1).unwrap_or(0);
    let answered = messages.get(prompt..at).unwrap_or_default().iter().any(|m| m.assistant().is_some());
    Ok(if answered { at } else { prompt })
}

/// Whether the user said something in a message.
fn is_prompt(message: &Message) -> bool {
    message.user().is_some()
        && message.parts.iter().any(|part| match &part.content {
            Content::Text(text) => !text.synthetic,
            Content::File(_) => true,
            _ => false,
        })
}

fn reversed(change: FileChange) -> FileChange {
    FileChange { old: change.new, new: change.old, ..change }
}

fn between(messages: &[Message]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let twice = changes::runs(messages).into_iter().filter(|run| !seen.insert(run.path.clone()));
    twice.map(|run| run.path).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Clears away what an undo or a redo that was killed has left beside its files.
async fn cleared(files: &[FileChange]) {
    let files = files.to_vec();
    let work = move || interrupted::sweep(&files);
    if let Err(e) = spawn_blocking(work).await {
        tracing::warn!("what a killed undo has left was not looked for: {e}");
    }
}

async fn written(record: &Record, keep: &Recorder, cx: &RestoreContext) -> Result<(), String> {
    let past = record.past_undos.last().map(|past| &past.files);
    for files in record.undone.iter().map(|undone| &undone.files).chain(past) {
        keep.contents(&cx.tracker, files).await;
    }
    keep.session(record).await;
    keep.flush().await.map_err(|e| e.to_string())
}

/// The plan and what the model has seen are what they were at the end of what is visible.
async fn finish(messages: &[Message], record: &mut Record, keep: &Recorder, cx: &RestoreContext) {
    let end = visible(messages, &record.undone);
    record.todos = todos(messages.get(..end).unwrap_or_default()).unwrap_or_default();
    if let Some(editor) = &cx.editor {
        editor.session.todos.set(record.todos.clone());
        for call in messages.get(end..).unwrap_or_default().iter().flat_map(Message::calls) {
            for location in &call.locations {
                editor.session.seen.forget(&location.path);
            }
        }
    }
    if let Err(e) = written(record, keep, cx).await {
        tracing::error!("what was undone is not saved: {e}");
    }
}

/// The plan as the messages' last call left it; none where no call made one. One that was cut off while it
/// ran had told the plan, or was about to.
pub(super) fn todos(messages: &[Message]) -> Option<Vec<Todo>> {
    let calls = messages.iter().rev().flat_map(|m| m.calls().collect::<Vec<_>>().into_iter().rev());
    let made = |state: &CallState| match state {
        CallState::Completed(_) | CallState::Running { .. } => true,
        CallState::Failed { cause, .. } => cause.is_interruption(),
        CallState::Pending => false,
    };
    let mut plans = calls.filter(|call| call.tool == TodowriteTool::NAME && made(&call.state));
    plans.next().and_then(|call| serde_json::from_value(call.input.get("todos")?.clone()).ok())
}

/// Makes what is ready; gives back what was done, and what was not with the reason.
async fn put_all(
    planned: RevertPlan,
    report: &mut RevertReport,
    cx: &RestoreContext,
) -> (Vec<FileChange>, Vec<(FileChange, String)>) {
    let mut results = Vec::new();
    // What goes takes empty directories with it, which what comes may need.
    let (goes, comes): (Vec<_>, Vec<_>) =
        planned.ready.into_iter().enumerate().partition(|(_, change)| change.new.is_none());
    for changes in [goes, comes] {
        let mut attempts = stream::iter(changes)
            .map(async |(place, change)| {
                let result = put(&change, cx).await;
                (place, change, result)
            })
            .buffered(cx.at_once());
        while let Some(result) = attempts.next().await {
            results.push(result);
        }
    }
    results.sort_by_key(|(place, ..)| *place);
    let (mut done, mut left) = (Vec::new(), planned.left);
    for (_, change, result) in results {
        match result {
            Ok(()) => {
                report.note(&change, cx);
                done.push(change);
            }
            Err(why) => left.push((change, why)),
        }
    }
    (done, left)
}

/// What can be done, and what cannot.
#[derive(Default)]
struct RevertPlan {
    ready: Vec<FileChange>,
    already: Vec<FileChange>,
    left: Vec<(FileChange, String)>,
}

/// Looks at every file. A change is ready where the file is what it begins with; by `force` whatever
/// the file is, which is kept then.
async fn plan(wanted: Vec<FileChange>, cx: &RestoreContext, care: RevertCare) -> RevertPlan {
    let mut plan = RevertPlan::default();
    let mut verdicts = stream::iter(wanted)
        .map(async |change| {
            let unsaved = cx.unsaved(Path::new(&change.path)).await;
            let tracker = cx.tracker.clone();
            spawn_blocking(move || judge(&tracker, change, unsaved.as_deref(), care)).await
        })
        .buffered(cx.at_once());
    while let Some(judged) = verdicts.next().await {
        match judged {
            Ok((change, FileVerdict::Ready)) => plan.ready.push(change),
            Ok((change, FileVerdict::Already)) => plan.already.push(change),
            Ok((change, FileVerdict::Left(why))) => plan.left.push((change, why)),
            Err(e) => tracing::error!("a file could not be looked at: {e}"),
        }
    }
    plan
}

/// Makes a file what a change makes of it.
async fn put(change: &FileChange, cx: &RestoreContext) -> Result<(), String> {
    let (tracker, change, root) = (cx.tracker.clone(), change.clone(), cx.worktree.root.clone());
    let begun = spawn_blocking(move || FileRestoration::begin(&tracker, change, root)).await;
    let file = Arc::new(begun.map_err(|e| e.to_string())??);
    let step = |work: fn(&FileRestoration) -> Result<(), disk::Error>| {
        let file = file.clone();
        let working = spawn_blocking(move || work(&file).map_err(|e| e.to_string()));
        async { working.await.map_err(|e| e.to_string())? }
    };
    let done = match file.refused(cx).await {
        Some(why) => Err(format!("the editor refused: {}", why.trim_end_matches('.'))),
        None => step(FileRestoration::finish).await,
    };
    if done.is_err()
        && let Err(e) = step(FileRestoration::give_up).await
    {
        tracing::warn!("{} may not have the mode it had: {e}", file.path.display());
    }
    done
}

/// A file that is being set back.
struct FileRestoration {
    path: PathBuf,
    change: FileChange,
    /// None where there is to be no file.
    bytes: Option<Vec<u8>>,
    access: FileAccess,
    /// Of the project.
    root: PathBuf,
}

impl FileRestoration {
    /// Sees to it that nobody reads what comes who may not, whoever writes it: a file is closed, or made, before
    /// an editor hears of it.
    fn begin(tracker: &Tracker, change: FileChange, root: PathBuf) -> Result<Self, String> {
        let bytes = change.new.as_ref().map(|new| tracker.content(new)).transpose().map_err(|e| e.to_string())?;
        let file = Self { path: change.path.clone().into(), access: tracker.access(&change), bytes, change, root };
        file.access.narrow().map_err(|e| e.to_string())?;
        match file.text() {
            Some(text) if file.access.is_closed() => file.make(text.as_bytes()).map_err(|e| e.to_string())?,
            _ => {}
        }
        Ok(file)
    }

    /// What an editor can write.
    fn text(&self) -> Option<&str> {
        let link = |state: &Option<FileState>| state.as_ref().is_some_and(|state| state.kind == FileKind::Link);
        let text = std::str::from_utf8(self.bytes.as_deref()?).ok()?;
        // Editors spoil what is not plain text with plain line ends.
        let plain = !link(&self.change.old) && !link(&self.change.new) && !text.contains(['\r', '\0', '\u{feff}']);
        plain.then_some(text)
    }

    /// Has the editor write it. A file of the project is the editor's to refuse. Whatever else it says, what counts
    /// is what is on the disk then.
    async fn refused(&self, cx: &RestoreContext) -> Option<String> {
        let answer = cx.editor.as_ref()?.write_buffer(&self.path, self.text()?).await;
        let own = || iter::once(&cx.worktree.root).chain(&cx.worktree.extra).any(|root| self.path.starts_with(root));
        match answer {
            Some(Err(NotWritten::Refused(why))) if own() => Some(why),
            _ => None,
        }
    }

    /// Makes it what it is to be, as far as it is not.
    fn finish(&self) -> Result<(), disk::Error> {
        let (Some(new), Some(bytes)) = (&self.change.new, &self.bytes) else { return self.remove() };
        let dir = self.path.parent().ok_or(disk::Error::Directory)?;
        fs::create_dir_all(dir)?;
        if new.kind == FileKind::Link {
            let target: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(bytes);
            // A link is made beside it and takes its name: there is no moment without one of them.
            let make = |fresh: &Path| std::os::unix::fs::symlink(target, fresh);
            let fresh = disk::fresh_name().make_in(dir, make)?;
            return fresh.persist(&self.path).map_err(|e| e.error.into());
        }
        if fs::symlink_metadata(&self.path).map_or(true, |data| data.is_symlink()) {
            return self.make(bytes);
        }
        if !fs::read(&self.path).is_ok_and(|now| now == *bytes) {
            disk::write(&self.path, bytes)?;
        }
        Ok(self.access.settle(&self.path)?)
    }

    /// Makes a file. It is its owner's alone until it is whole.
    fn make(&self, bytes: &[u8]) -> Result<(), disk::Error> {
        let dir = self.path.parent().ok_or(disk::Error::Directory)?;
        fs::create_dir_all(dir)?;
        // What is written takes over the mode of what it replaces, which nobody else may read.
        let fresh = disk::fresh_name().tempfile_in(dir)?;
        disk::write(fresh.path(), bytes)?;
        self.access.settle(fresh.path())?;
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
        // Directories that were made for it, and are empty now, go with it.
        let above = self.path.ancestors().skip(1);
        for dir in above.take_while(|dir| *dir != self.root && dir.starts_with(&self.root)) {
            if fs::remove_dir(dir).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Takes back what was begun.
    fn give_up(&self) -> Result<(), disk::Error> {
        match self.text() {
            Some(_) if self.access.is_closed() => self.remove(),
            _ => Ok(self.access.restore()?),
        }
    }
}

impl RestoreContext {
    /// How many files are looked at or written at a time: an editor is asked about one after the other.
    fn at_once(&self) -> usize {
        let files = self.editor.as_ref().map(|editor| &editor.client.files);
        if files.is_some_and(|files| files.read || files.write) { 1 } else { AT_ONCE }
    }

    /// What the editor has not saved of a file.
    async fn unsaved(&self, path: &Path) -> Option<String> {
        let editor = self.editor.as_ref().filter(|editor| editor.client.files.read)?;
        let saved = fs::read(path).ok().and_then(|bytes| String::from_utf8(bytes).ok())?;
        let buffer = editor.buffer(path).await?;
        (TextFingerprint::of(&buffer) != TextFingerprint::of(&saved)).then_some(buffer)
    }

    fn name(&self, change: &FileChange) -> String {
        text::escaped(&self.worktree.relative(change.path.as_ref()))
    }
}

#[cfg(test)]
mod tests;
