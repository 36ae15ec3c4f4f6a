//! Past undos: turns that were undone before the conversation continued. Their messages are
//! deleted, but their files can still be restored; so can every stored version of a file.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use super::judge::RevertCare;
use super::{
    RestoreContext, RevertError, RevertReport, SkippedChange, apply_all, is_prompt, plan_changes,
    remove_leftovers, reversed, store_record,
};
use crate::changes;
use crate::turn::record::Recorder;
use crate::turn::{History, add_costs, cost, evict};
use base::environment::Timestamp;
use base::id::MessageId;
use base::text;
use store::{PastUndo, Record, UndoEntry, visible};
use transcript::{Content, FileChange, FileState, Message, Part};

/// The past undos that are stored.
const MAX_PAST_UNDOS: usize = 50;

/// Deletes the messages of undone turns, so that the conversation can continue without them.
pub async fn delete_undone_turns(history: &mut History, record: &mut Record, recorder: &Recorder) {
    let Some(from) = record.undone.last().map(|last| last.from.clone()) else {
        return;
    };
    let end = visible(&history.messages, &record.undone);
    // The cost of the deleted turns still counts.
    history.undone_cost = add_costs(history.undone_cost, cost(&history.messages[end..]));
    record.undone_cost = history.undone_cost;
    let in_effect = changes::entries_of_deleted(&history.messages, end, record);
    move_to_past_undos(record, &history.messages);
    let removed = history.messages.split_off(end);
    let is_deleted = |id: &MessageId| removed.iter().any(|message| message.id == *id);
    record
        .file_log
        .retain(|entry| !entry.after.as_ref().is_some_and(&is_deleted));
    for entry in in_effect {
        changes::add_to_log(record, entry);
    }
    for (message, part) in place_late_changes(&mut history.messages, is_deleted) {
        recorder.part(&message, &part).await;
    }
    recorder.truncate_from(&from, &removed).await;
    evict::reload_history(history, recorder).await;
}

/// Places the late changes that follow deleted messages after the last remaining one. Returns these
/// parts, with their messages.
pub(super) fn place_late_changes(
    messages: &mut [Message],
    is_deleted: impl Fn(&MessageId) -> bool,
) -> Vec<(MessageId, Part)> {
    let mut placed = Vec::new();
    let Some(last) = messages.last().map(|last| last.id.clone()) else {
        return placed;
    };
    for message in messages {
        for part in &mut message.parts {
            if let Content::Patch {
                late: Some(late), ..
            } = &mut part.content
                && is_deleted(&late.after)
            {
                late.after.clone_from(&last);
                placed.push((message.id.clone(), part.clone()));
            }
        }
    }
    placed
}

/// Does the same for the late changes of a copy, which has no undone messages that they may follow.
pub fn place_late_changes_of_copy(messages: &mut [Message]) -> Vec<(MessageId, Part)> {
    let mut parts = messages.iter().flat_map(|message| &message.parts);
    let has_late = parts.any(|part| matches!(&part.content, Content::Patch { late: Some(_), .. }));
    if !has_late {
        return Vec::new();
    }
    let known: HashSet<MessageId> = messages.iter().map(|message| message.id.clone()).collect();
    place_late_changes(messages, |id| !known.contains(id))
}

/// Turns undone turns into past undos, with their file changes.
pub fn move_to_past_undos(record: &mut Record, messages: &[Message]) {
    for UndoEntry { from, files, .. } in std::mem::take(&mut record.undone) {
        if !files.is_empty() {
            let title = messages
                .iter()
                .find(|message| message.id == from)
                .map(title)
                // Of a picture alone; an empty one would say that a version was restored.
                .filter(|title| !title.is_empty());
            let text = title.unwrap_or_else(|| "an earlier turn".to_owned());
            record.past_undos.push(PastUndo {
                prompt_title: text,
                files,
                redone: false,
            });
        }
    }
    let surplus = record.past_undos.len().saturating_sub(MAX_PAST_UNDOS);
    record.past_undos.drain(..surplus);
}

/// Restores the files of the last past undo that was not redone.
pub(super) async fn redo(
    messages: &[Message],
    record: &mut Record,
    recorder: &Recorder,
    cx: &RestoreContext,
) -> Result<RevertReport, RevertError> {
    let last = record
        .past_undos
        .iter()
        .rposition(|past| !past.redone)
        .ok_or(RevertError::NothingToRedo)?;
    let PastUndo {
        prompt_title: words,
        files,
        ..
    } = record.past_undos[last].clone();
    // A redo that was killed may have left temporary files.
    remove_leftovers(&files).await;
    let back: Vec<FileChange> = files.into_iter().map(reversed).collect();
    recorder.fetch_contents(&cx.tracker, &back).await;
    let planned = plan_changes(back, cx, RevertCare::Redo).await;
    let mut report = RevertReport {
        prompt_title: words,
        files_only: true,
        ..RevertReport::default()
    };
    let already = planned.already_made.clone();
    let (done, left) = apply_all(planned, &mut report, cx).await;
    record.past_undos[last].redone = true;
    // An earlier redo that could not be saved has restored the others.
    changes::log_changes(record, messages, already.into_iter().chain(done));
    report.record_skipped(left, cx);
    // If this cannot be saved, the next redo finds the files in their final state already.
    if let Err(e) = store_record(record, recorder, cx).await {
        tracing::error!("the restoration of a turn's files is not saved: {e}");
    }
    Ok(report)
}

/// A stored version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVersion {
    pub state: FileState,
    /// The moment of the version, as a text: `after "PROMPT"`.
    pub when: String,
    /// The time of the message with which it was recorded. `None` if only its later replacement
    /// was recorded, or an undo.
    pub time: Option<Timestamp>,
}

/// Returns the files of which the session has stored versions, sorted, with the number of versions.
pub fn files_with_versions(messages: &[Message], record: &Record) -> Vec<(String, usize)> {
    let mut hashes: BTreeMap<&str, HashSet<&str>> = BTreeMap::new();
    for (.., change) in recorded_changes(messages, record) {
        let states = [&change.old, &change.new]
            .into_iter()
            .flatten()
            .filter(|state| !state.large);
        hashes
            .entry(&change.path)
            .or_default()
            .extend(states.map(|state| state.hash.as_str()));
    }
    let counted = hashes
        .into_iter()
        .map(|(path, hashes)| (path.to_owned(), hashes.len()));
    counted.filter(|(_, count)| *count > 0).collect()
}

/// Returns the stored versions of a file, the oldest first and each once.
pub fn versions(messages: &[Message], record: &Record, path: &Path) -> Vec<FileVersion> {
    let mut versions: Vec<FileVersion> = Vec::new();
    let mut seen = HashSet::new();
    for (moment, time, change) in
        recorded_changes(messages, record).filter(|(.., change)| Path::new(&change.path) == path)
    {
        for (state, when) in [(&change.old, "before"), (&change.new, "after")] {
            let Some(state) = state.as_ref().filter(|state| !state.large) else {
                continue;
            };
            if seen.insert(&state.hash) {
                versions.push(FileVersion {
                    state: state.clone(),
                    when: format!("{when} {}", moment.name()),
                    time: if when == "after" { time } else { None },
                });
            }
        }
    }
    versions
}

/// The moment of a change in the conversation.
#[derive(Clone, Copy)]
enum ChangeMoment<'a> {
    /// The undo of a turn whose messages are deleted.
    Past(&'a PastUndo),
    /// The turn of a prompt; `None` before the first prompt.
    Turn(Option<&'a Message>),
    /// The undo of a turn that can still be redone as a whole.
    Undo,
}

impl ChangeMoment<'_> {
    fn name(self) -> String {
        match self {
            Self::Past(past) if past.prompt_title.is_empty() => "it was restored".to_owned(),
            Self::Past(past) => format!("the undo of \"{}\"", past.prompt_title),
            Self::Turn(Some(prompt)) => format!("\"{}\"", title(prompt)),
            Self::Turn(None) => "the first turn".to_owned(),
            Self::Undo => "the undo".to_owned(),
        }
    }
}

/// Returns all recorded changes with their moments, and the time of the message that has them.
fn recorded_changes<'a>(
    messages: &'a [Message],
    record: &'a Record,
) -> impl Iterator<Item = (ChangeMoment<'a>, Option<Timestamp>, &'a FileChange)> {
    let past = record.past_undos.iter();
    let past = past.flat_map(|past| {
        past.files
            .iter()
            .map(move |change| (ChangeMoment::Past(past), None, change))
    });
    let made = changes::message_changes(messages).map(|(message, change)| {
        let mut until = messages.iter().take(message + 1);
        let prompt = until.rfind(|message| is_prompt(message));
        let time = messages.get(message).map(|message| message.created);
        (ChangeMoment::Turn(prompt), time, change)
    });
    let undone = record
        .undone
        .iter()
        .flat_map(|entry| &entry.files)
        .map(|change| (ChangeMoment::Undo, None, change));
    past.chain(made).chain(undone)
}

fn title(message: &Message) -> String {
    text::title(&message.visible_text())
}

/// Restores a version of a file. The present content is stored, so that a redo restores it.
///
/// # Errors
/// The reason why the file is unchanged, as a text for the user.
pub async fn restore_version(
    messages: &[Message],
    record: &mut Record,
    recorder: &Recorder,
    cx: &RestoreContext,
    path: PathBuf,
    version: FileVersion,
) -> Result<RevertReport, String> {
    let change = FileChange {
        path: path.display().to_string(),
        old: None,
        new: Some(version.state),
        compared: false,
        sequence: 0,
    };
    recorder
        .fetch_contents(&cx.tracker, std::slice::from_ref(&change))
        .await;
    let planned = plan_changes(vec![change], cx, RevertCare::Force).await;
    let log_before = record.file_log.clone();
    if !planned.ready.is_empty() {
        record.past_undos.push(PastUndo {
            prompt_title: String::new(),
            files: planned.ready.clone(),
            redone: false,
        });
        changes::log_changes(record, messages, planned.ready.clone());
        store_record(record, recorder, cx).await?;
    }
    let mut report = RevertReport::default();
    let (_, left) = apply_all(planned, &mut report, cx).await;
    let Some(SkippedChange { why, .. }) = left.into_iter().next() else {
        return Ok(report);
    };
    record
        .past_undos
        .pop_if(|past| past.prompt_title.is_empty() && !past.redone && report.restored.is_empty());
    record.file_log = log_before;
    store_record(record, recorder, cx).await?;
    Err(why)
}
