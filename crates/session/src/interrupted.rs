//! Work that was interrupted when a process was killed. The process had recorded in advance the file
//! changes that its last step was about to make. When the session is opened again, these functions
//! determine the changes that were made, so that the step can be undone like any other.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use base::task::spawn_blocking;

use crate::turn::{History, change_recorder};
use base::id::MessageId;
use snapshot::Tracker;
use store::Record;
use tools::files::disk;
use transcript::{CallState, Content, FailureCause, FileChange, Message, Part};

/// Replaces the planned file changes of interrupted steps by those that were made, and removes the
/// temporary files of such steps and of interrupted undos. Returns the parts that have changed, for the
/// store.
pub(super) async fn record_changes_of_interrupted_steps(
    history: History,
    record: &Record,
    tracker: Arc<Tracker>,
) -> (History, Vec<(MessageId, Part)>) {
    let begun = |part: &Part| matches!(part.content, Content::Patch { begun: true, .. });
    let cut_off = history
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .any(begun);
    let half_undone: Vec<FileChange> = record
        .undone
        .iter()
        .filter(|undone| !undone.is_complete)
        .flat_map(|undone| undone.files.clone())
        .collect();
    if !cut_off && half_undone.is_empty() {
        return (history, Vec::new());
    }
    let original = history.clone();
    let work = move || {
        remove_temporary_files(&half_undone);
        determine_changes(history, &tracker)
    };
    spawn_blocking(work).await.unwrap_or_else(|e| {
        tracing::error!("the changes of an interrupted step are unknown: {e}");
        (original, Vec::new())
    })
}

fn determine_changes(mut history: History, tracker: &Tracker) -> (History, Vec<(MessageId, Part)>) {
    let mut completed = Vec::new();
    for message in &mut history.messages {
        for part in &mut message.parts {
            if let Content::Patch { files, begun, .. } = &mut part.content
                && *begun
            {
                remove_temporary_files(files);
                *begun = false;
                *files = edits_made(std::mem::take(files), tracker);
                completed.push((message.id.clone(), part.clone()));
            }
        }
    }
    (history, completed)
}

/// Removes temporary files that were left next to these files.
pub(super) fn remove_temporary_files(files: &[FileChange]) {
    let dirs: BTreeSet<&Path> = files
        .iter()
        .filter_map(|change| Path::new(&change.path).parent())
        .collect();
    dirs.into_iter().for_each(disk::remove_leftovers);
}

/// Returns those planned edits that were made. If a file is in none of the planned states, another
/// process has changed it since; then all its edits are returned, and an undo leaves the file alone and
/// reports it.
fn edits_made(planned: Vec<FileChange>, tracker: &Tracker) -> Vec<FileChange> {
    let paths: BTreeSet<String> = planned.iter().map(|change| change.path.clone()).collect();
    let mut made = Vec::new();
    for path in paths {
        let mut edits: Vec<FileChange> = planned
            .iter()
            .filter(|change| change.path == path)
            .cloned()
            .collect();
        let now = match tracker.record_file(Path::new(&path)) {
            Ok(now) => now,
            Err(e) => {
                tracing::warn!("the change of an interrupted step to {path} is unknown: {e}");
                made.append(&mut edits);
                continue;
            }
        };
        let nothing = tracker
            .store(b"")
            .map(|state| state.hash)
            .unwrap_or_default();
        // A file that was to be empty may exist with no content.
        let empty = now.as_ref().is_some_and(|now| now.hash == nothing);
        let is = |edit: &FileChange| edit.new == now || (edit.new.is_none() && empty);
        match edits.iter().rposition(is) {
            Some(last) => {
                edits.truncate(last + 1);
                edits[last].new = now;
                made.append(&mut edits);
            }
            None if edits.first().is_some_and(|first| first.old == now) => {}
            None => made.append(&mut edits),
        }
    }
    made
}

/// Returns the titles of the calls that the end of a process has interrupted, and whose file changes are
/// therefore unknown.
pub(super) fn interrupted_commands(messages: &[Message]) -> Vec<String> {
    let calls = messages.iter().flat_map(Message::calls);
    let unknown = calls.filter(|call| match &call.state {
        CallState::Failed {
            cause: FailureCause::ProcessEnded,
            ..
        } => change_recorder::may_change_unnamed_files(call.kind, &call.tool),
        _ => false,
    });
    unknown.map(|call| call.title.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Checks the number of planned edits that were made, for every state in which a file can
    /// be found.
    #[test]
    fn planned_edits_are_compared_with_present_file() {
        let dir = tempfile::tempdir().unwrap();
        let tracker = Tracker::new(&dir.path().join("data"), dir.path(), None);
        let path = dir.path().join("f");
        let state = |text: &str| (text != "-").then(|| tracker.store(text.as_bytes()).unwrap());
        let edit = |(old, new): &(&str, &str)| FileChange {
            path: path.display().to_string(),
            old: state(old),
            new: state(new),
            compared: false,
            sequence: 0,
        };
        for (planned, found, made) in [
            (&[("a", "b")][..], "b", 1),
            (&[("a", "b")], "a", 0),
            (&[("a", "b")], "someone else", 1),
            (&[("a", "b")], "-", 1),
            (&[("a", "b"), ("b", "c")], "c", 2),
            (&[("a", "b"), ("b", "c")], "b", 1),
            (&[("a", "b"), ("b", "c")], "a", 0),
            (&[("-", "b")], "b", 1),
            (&[("-", "b")], "-", 0),
            (&[("a", "-")], "-", 1),
            (&[("a", "-")], "", 1),
            (&[("a", "-")], "a", 0),
        ] {
            match found {
                "-" => drop(fs::remove_file(&path)),
                found => fs::write(&path, found).unwrap(),
            }
            let edits: Vec<FileChange> = planned.iter().map(edit).collect();
            let found_made = edits_made(edits.clone(), &tracker);
            assert_eq!(found_made.len(), made, "{planned:?}, found {found:?}");
            assert!(
                found_made
                    .iter()
                    .zip(&edits)
                    .all(|(made, planned)| made.old == planned.old)
            );
        }
    }
}
