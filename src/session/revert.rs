//! Taking turns back, files and history together, and bringing them back.
//!
//! What is undone is only hidden at first: its messages stay in the store, and what its files held is
//! kept, so that it can be redone. The next prompt makes it final.
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

use std::collections::BTreeSet;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::task::spawn_blocking;

use self::judge::{FileVerdict, RevertCare, judge};
use super::{changes, interrupted};
use crate::event::NotWritten;
use crate::message::{CallState, Content, FileChange, FileKind, FileState, Message, Todo, UnkeptReason, UnkeptWrite};
use crate::snapshot::{FileAccess, Tracker};
use crate::store::{Record, UndoEntry, visible};
use crate::text;
use crate::tool::seen::TextFingerprint;
use crate::tool::todowrite::TodowriteTool;
use crate::tool::{self, Tool as _, disk};
use crate::turn::record::Recorder;
use crate::turn::{History, cost, release, sum};
use crate::worktree::Worktree;

/// How the ways on are called where the report is read.
pub struct RevertHints {
    /// What to do about files that were left alone, one sentence.
    pub force: String,
    /// How to redo, one sentence.
    pub redo: String,
}

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
    pub editor: Option<tool::ToolContext>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevertReport {
    /// The words the turn began with.
    pub words: String,
    /// How many messages are hidden, or back.
    pub messages: usize,
    /// Files that were set back, or again.
    pub set: Vec<String>,
    pub removed: Vec<String>,
    /// Files that were left alone, and why.
    pub left: Vec<(String, String)>,
    /// Files that others changed between two changes of the session's: they have what was there
    /// between them.
    pub between: Vec<String>,
    /// Commands that were cut off by the end of a process: nobody knows what they changed.
    pub unknown: Vec<String>,
    /// Writes whose earlier state was not kept.
    pub unkept: Vec<UnkeptWrite>,
}

/// Makes final what is undone: it is forgotten.
pub async fn settle(history: &mut History, record: &mut Record, keep: &Recorder) {
    let Some(last) = record.undone.last() else { return };
    let end = visible(&history.messages, &record.undone);
    // What was spent was spent.
    history.undone_cost = sum(history.undone_cost, cost(&history.messages[end..]));
    history.messages.truncate(end);
    keep.cut(&last.from).await;
    record.undone_cost = history.undone_cost;
    record.undone.clear();
    release::again(history, keep).await;
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
        cleared(&entry).await;
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
    for change in planned.ready {
        match put(&change, cx).await {
            Ok(()) => {
                report.note(&change, cx);
                undone.push(change);
            }
            Err(e) => planned.left.push((change, e)),
        }
    }
    if let Some(entry) = record.undone.last_mut() {
        entry.files = undone;
        entry.left = planned.left.iter().map(|(change, _)| change.clone()).collect();
        entry.done = true;
    }
    report.left = planned.left.into_iter().map(|(change, why)| (cx.name(&change), why)).collect();
    let earlier = record.undone.split_last().map_or(&[][..], |(_, earlier)| earlier);
    let hidden = visible(messages, &record.undone)..visible(messages, earlier);
    report.describe(messages.get(hidden).unwrap_or_default());
    finish(messages, record, keep, cx).await;
    Ok(report)
}

/// Brings back what was undone last.
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
    let Some(entry) = record.undone.last_mut() else { return Err(RevertError::ToRedo) };
    if !entry.done {
        cleared(entry).await;
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
    let mut left = planned.left;
    for change in planned.ready {
        match put(&change, cx).await {
            Ok(()) => report.note(&change, cx),
            Err(e) => left.push((change, e)),
        }
    }
    record.undone.pop();
    let end = visible(messages, &record.undone);
    report.left = left.into_iter().map(|(change, why)| (cx.name(&change), why)).collect();
    report.describe(messages.get(start..end).unwrap_or_default());
    finish(messages, record, keep, cx).await;
    Ok(report)
}

/// Where a point is among the first `end` messages.
pub(super) fn start(messages: &[Message], end: usize, point: &RevertPoint) -> Result<usize, RevertError> {
    let prompt = |before: usize| messages.iter().take(before).rposition(spoken);
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
fn spoken(message: &Message) -> bool {
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
async fn cleared(entry: &UndoEntry) {
    let files = entry.files.clone();
    let work = move || interrupted::sweep(&files);
    if let Err(e) = spawn_blocking(work).await {
        tracing::warn!("what a killed undo has left was not looked for: {e}");
    }
}

async fn written(record: &Record, keep: &Recorder, cx: &RestoreContext) -> Result<(), String> {
    for undone in &record.undone {
        keep.contents(&cx.tracker, &undone.files).await;
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
    for change in wanted {
        let path = PathBuf::from(&change.path);
        let unsaved = cx.unsaved(&path).await;
        let tracker = cx.tracker.clone();
        let judged = spawn_blocking(move || judge(&tracker, change, unsaved.as_deref(), care)).await;
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

impl RevertReport {
    fn note(&mut self, change: &FileChange, cx: &RestoreContext) {
        if let Some(editor) = &cx.editor {
            editor.session.seen.forget(change.path.as_ref());
        }
        if change.new.is_some() { &mut self.set } else { &mut self.removed }.push(cx.name(change));
    }

    fn describe(&mut self, messages: &[Message]) {
        self.messages = messages.len();
        self.unknown = interrupted::commands(messages);
        self.unkept = changes::unkept(messages);
        self.words = messages.iter().find(|m| spoken(m)).map(|m| text::title(&m.visible_text())).unwrap_or_default();
    }

    /// What was undone, in words for the conversation.
    pub fn undone(&self, worktree: &Worktree, phrases: &RevertHints) -> String {
        let mut said = match self.words.as_str() {
            "" => "Undone.".to_owned(),
            words => format!("Undone: \"{words}\""),
        };
        said += &self.files();
        if !self.between.is_empty() {
            said += "\n\nChanges of yours lie between those of the session; what you had made of it is back:\n";
            for path in &self.between {
                said += &format!("- `{}`\n", text::escaped(&worktree.relative(path.as_ref())));
            }
        }
        if !self.unknown.is_empty() {
            said = said.trim_end().to_owned()
                + "\n\nWhat these changed is not known, because adjutant was ended while they ran:\n";
            for command in &self.unknown {
                said += &format!("- `{}`\n", command.replace('`', "'"));
            }
        }
        if !self.left.is_empty() {
            said = said.trim_end().to_owned() + &format!("\n\n{}", phrases.force);
        }
        said = said.trim_end().to_owned() + &self.not_recorded(worktree);
        format!("{}\n\n{}", said.trim_end(), phrases.redo)
    }

    /// What was brought back, in words for the conversation.
    pub fn redone(&self) -> String {
        let said = match self.words.as_str() {
            "" => "Brought back.".to_owned(),
            words => format!("Brought back: \"{words}\""),
        };
        (said + &self.files()).trim_end().to_owned()
    }

    /// What an undo leaves as it is, because nobody knows what it was.
    fn not_recorded(&self, worktree: &Worktree) -> String {
        let mut said = String::new();
        for UnkeptWrite { what, why } in &self.unkept {
            let (name, why) = match why {
                UnkeptReason::Ignored => (worktree.relative(what.as_ref()), "it is ignored"),
                UnkeptReason::Unreadable => (worktree.relative(what.as_ref()), "it could not be read"),
                UnkeptReason::Large => (worktree.relative(what.as_ref()), "too many files are below it"),
                UnkeptReason::Unreported => (what.replace('`', "'"), "what this changed is not known"),
            };
            said += &format!("- `{}`: {why}\n", text::escaped(&name));
        }
        if said.is_empty() { said } else { format!("\n\nNot recorded, and left as it is:\n{said}") }
    }

    fn files(&self) -> String {
        let mut said = String::new();
        if self.set.is_empty() && self.removed.is_empty() && self.left.is_empty() {
            let nothing = if self.unkept.is_empty() { "\n\nNo file had to be changed." } else { "" };
            return nothing.into();
        }
        if !(self.set.is_empty() && self.removed.is_empty()) {
            said += "\n\n";
            self.set.iter().for_each(|name| said += &format!("- `{name}` is as it was\n"));
            self.removed.iter().for_each(|name| said += &format!("- `{name}` is gone\n"));
        }
        if !self.left.is_empty() {
            said = said.trim_end().to_owned() + "\n\nLeft alone:\n";
            self.left.iter().for_each(|(name, why)| said += &format!("- `{name}`: {why}\n"));
        }
        said
    }
}

#[cfg(test)]
mod tests;
