//! File changes that reach a step from elsewhere: from its background jobs, after the step has
//! ended, and from the sessions of its subagents. Changes of a background job whose step was undone
//! and deleted belong to no step: they go to the session's log of changes.

use std::sync::{Arc, Mutex};

use super::{History, SessionContext};
use crate::changes;
use base::id::{MessageId, PartId};
use base::lock::lock;
use base::task::spawn_blocking;
use snapshot::{JournalEntries, WriteJournal};
use store::{FileLogEntry, Record};
use transcript::{Content, FileChange, LatePlace, Part, UnrecordedWrite};

/// The changes of subagents that the parent's step has not taken yet. A std mutex is enough: it
/// only guards two lists.
#[derive(Debug, Default)]
pub struct ChildChanges(Mutex<JournalEntries>);

impl ChildChanges {
    pub fn add(&self, files: &[FileChange], unrecorded: &[UnrecordedWrite]) {
        let mut all = lock(&self.0);
        all.files.extend_from_slice(files);
        all.unrecorded.extend_from_slice(unrecorded);
    }

    pub fn take(&self) -> JournalEntries {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// The journals of a session's steps to which programs still report, and the changes whose steps
/// were deleted. A std mutex is enough for each: it only guards a list.
#[derive(Debug, Default)]
pub struct LateChanges {
    journals: Mutex<Vec<LateJournal>>,
    of_deleted_steps: Mutex<Vec<FileLogEntry>>,
}

#[derive(Debug, Clone)]
struct LateJournal {
    message: MessageId,
    journal: Arc<WriteJournal>,
}

impl LateChanges {
    /// Registers a journal, whose later entries belong to this message.
    pub fn register(&self, message: &MessageId, journal: &Arc<WriteJournal>) {
        let late = LateJournal {
            message: message.clone(),
            journal: journal.clone(),
        };
        lock(&self.journals).push(late);
    }

    /// Returns all journals, and forgets those that are closed.
    fn take_all(&self) -> Vec<LateJournal> {
        let mut journals = lock(&self.journals);
        let all = journals.clone();
        journals.retain(|late| late.journal.is_open());
        all
    }
}

/// Adds the writes of background jobs so far to the steps that started them. Those of deleted steps
/// wait until [`log_deleted`] is called.
pub async fn collect(history: &mut History, session: &SessionContext) {
    for LateJournal { message, journal } in session.late_changes.take_all() {
        let taken = spawn_blocking(move || journal.take()).await;
        let JournalEntries { files, unrecorded } = taken.unwrap_or_else(|e| {
            tracing::error!("the changes of a background command are unknown: {e}");
            JournalEntries::default()
        });
        if files.is_empty() && unrecorded.is_empty() {
            continue;
        }
        if let Some(tracker) = &session.common.snapshots {
            session.recorder.share_contents(tracker, &files).await;
        }
        if let Some(parent) = &session.parent_changes {
            parent.add(&files, &unrecorded);
        }
        let after_late = changes::last_late(&history.messages);
        let last = history.messages.last().map(|last| last.id.clone());
        let of_step = history
            .messages
            .iter_mut()
            .rev()
            .find(|known| known.id == message);
        let (Some(message), Some(after)) = (of_step, last.clone()) else {
            let entry = FileLogEntry {
                after: last,
                after_late,
                files,
            };
            lock(&session.late_changes.of_deleted_steps).push(entry);
            continue;
        };
        let place = LatePlace {
            after,
            number: after_late.saturating_add(1),
        };
        let part = Part {
            id: PartId::new(session.common.environment.fresh(PartId::PREFIX)),
            content: Content::Patch {
                files,
                begun: false,
                unrecorded,
                late: Some(place),
            },
        };
        message.parts.push(part.clone());
        session.recorder.part(&message.id, &part).await;
    }
}

/// Adds the collected writes of background jobs whose steps were deleted to the log of changes.
pub fn log_deleted(record: &mut Record, session: &SessionContext) {
    let deleted = std::mem::take(&mut *lock(&session.late_changes.of_deleted_steps));
    for entry in deleted {
        changes::add_to_log(record, entry);
    }
}
