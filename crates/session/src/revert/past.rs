//! What was undone before the conversation went on: its messages are gone, its files can still come back. So can
//! every version of a file that the session has kept.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use super::judge::RevertCare;
use super::{RestoreContext, RevertError, RevertReport, cleared, is_prompt, plan, put_all, reversed, written};
use crate::turn::record::Recorder;
use crate::turn::{History, cost, release, sum};
use base::text;
use store::{PastUndo, Record, UndoEntry, visible};
use transcript::{Content, FileChange, FileState, Message};

/// How many past undos are remembered.
const REMEMBERED: usize = 50;

/// Goes on without what is undone: its messages are forgotten.
pub async fn settle(history: &mut History, record: &mut Record, keep: &Recorder) {
    let Some(from) = record.undone.last().map(|last| last.from.clone()) else { return };
    let end = visible(&history.messages, &record.undone);
    // What was spent was spent.
    history.undone_cost = sum(history.undone_cost, cost(&history.messages[end..]));
    record.undone_cost = history.undone_cost;
    remember(record, &history.messages);
    history.messages.truncate(end);
    keep.cut(&from).await;
    release::again(history, keep).await;
}

/// Makes past what is undone, and what it did to the files.
pub fn remember(record: &mut Record, messages: &[Message]) {
    for UndoEntry { from, files, .. } in std::mem::take(&mut record.undone) {
        if !files.is_empty() {
            let words = messages.iter().find(|message| message.id == from).map(words);
            let words = words.unwrap_or_else(|| "an earlier turn".to_owned());
            record.past_undos.push(PastUndo { words, files, redone: false });
        }
    }
    let surplus = record.past_undos.len().saturating_sub(REMEMBERED);
    record.past_undos.drain(..surplus);
}

/// Brings back the files of the last past undo that was not redone.
pub(super) async fn redo(
    record: &mut Record,
    keep: &Recorder,
    cx: &RestoreContext,
) -> Result<RevertReport, RevertError> {
    let last = record.past_undos.iter().rposition(|past| !past.redone).ok_or(RevertError::ToRedo)?;
    let PastUndo { words, files, .. } = record.past_undos[last].clone();
    // A redo that was killed may have left something beside them.
    cleared(&files).await;
    let back: Vec<FileChange> = files.into_iter().map(reversed).collect();
    keep.fetch(&cx.tracker, &back).await;
    let planned = plan(back, cx, RevertCare::Redo).await;
    let mut report = RevertReport { words, files_only: true, ..RevertReport::default() };
    let (_, left) = put_all(planned, &mut report, cx).await;
    report.left = left.into_iter().map(|(change, why)| (cx.name(&change), why)).collect();
    record.past_undos[last].redone = true;
    // Where this cannot be saved, the next redo finds the files as they are to be.
    if let Err(e) = written(record, keep, cx).await {
        tracing::error!("that a turn's files are back is not saved: {e}");
    }
    Ok(report)
}

/// A state of a file that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVersion {
    pub state: FileState,
    /// When the file was like this, in words.
    pub when: String,
}

/// The files of which the session keeps versions, sorted, and how many.
pub fn files(messages: &[Message], record: &Record) -> Vec<(String, usize)> {
    let mut hashes: BTreeMap<&str, HashSet<&str>> = BTreeMap::new();
    for (_, change) in changes(messages, record) {
        let states = [&change.old, &change.new].into_iter().flatten().filter(|state| !state.large);
        hashes.entry(&change.path).or_default().extend(states.map(|state| state.hash.as_str()));
    }
    let counted = hashes.into_iter().map(|(path, hashes)| (path.to_owned(), hashes.len()));
    counted.filter(|(_, count)| *count > 0).collect()
}

/// The versions of a file that the session keeps, the oldest first and each once.
pub fn versions(messages: &[Message], record: &Record, path: &Path) -> Vec<FileVersion> {
    let mut versions: Vec<FileVersion> = Vec::new();
    let mut seen = HashSet::new();
    for (moment, change) in changes(messages, record).filter(|(_, change)| Path::new(&change.path) == path) {
        for (state, when) in [(&change.old, "before"), (&change.new, "after")] {
            let Some(state) = state.as_ref().filter(|state| !state.large) else { continue };
            if seen.insert(&state.hash) {
                versions.push(FileVersion { state: state.clone(), when: format!("{when} {}", moment.name()) });
            }
        }
    }
    versions
}

/// When a change was made.
#[derive(Clone, Copy)]
enum ChangeMoment<'a> {
    /// While a turn was undone whose messages are gone.
    Past(&'a PastUndo),
    /// In the turn of a prompt; none for what came before any.
    Turn(Option<&'a Message>),
    /// While a turn was undone that can be redone whole.
    Undo,
}

impl ChangeMoment<'_> {
    fn name(self) -> String {
        match self {
            Self::Past(past) if past.words.is_empty() => "it was restored".to_owned(),
            Self::Past(past) => format!("the undo of \"{}\"", past.words),
            Self::Turn(Some(prompt)) => format!("\"{}\"", words(prompt)),
            Self::Turn(None) => "the first turn".to_owned(),
            Self::Undo => "the undo".to_owned(),
        }
    }
}

/// Every change that the session knows of.
fn changes<'a>(
    messages: &'a [Message],
    record: &'a Record,
) -> impl Iterator<Item = (ChangeMoment<'a>, &'a FileChange)> {
    let past = record.past_undos.iter();
    let past = past.flat_map(|past| past.files.iter().map(move |change| (ChangeMoment::Past(past), change)));
    let mut prompt = None;
    let made = messages.iter().flat_map(move |message| {
        if is_prompt(message) {
            prompt = Some(message);
        }
        let turn = ChangeMoment::Turn(prompt);
        let patches = message.parts.iter().filter_map(|part| match &part.content {
            Content::Patch { files, .. } => Some(files),
            _ => None,
        });
        patches.flatten().map(move |change| (turn, change))
    });
    let undone = record.undone.iter().flat_map(|entry| &entry.files).map(|change| (ChangeMoment::Undo, change));
    past.chain(made).chain(undone)
}

fn words(message: &Message) -> String {
    text::title(&message.visible_text())
}

/// Makes a file a version of it. What it is now is kept, so that a redo brings it back.
///
/// # Errors
/// In words: the reason the file is left as it is.
pub async fn restore(
    record: &mut Record,
    keep: &Recorder,
    cx: &RestoreContext,
    path: PathBuf,
    version: FileVersion,
) -> Result<RevertReport, String> {
    let change = FileChange { path: path.display().to_string(), old: None, new: Some(version.state), compared: false };
    keep.fetch(&cx.tracker, std::slice::from_ref(&change)).await;
    let planned = plan(vec![change], cx, RevertCare::Force).await;
    if !planned.ready.is_empty() {
        record.past_undos.push(PastUndo { words: String::new(), files: planned.ready.clone(), redone: false });
        written(record, keep, cx).await?;
    }
    let mut report = RevertReport::default();
    let (_, left) = put_all(planned, &mut report, cx).await;
    let Some((_, why)) = left.into_iter().next() else { return Ok(report) };
    record.past_undos.pop_if(|past| past.words.is_empty() && !past.redone && report.set.is_empty());
    written(record, keep, cx).await?;
    Err(why)
}
