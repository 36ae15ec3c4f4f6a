//! File changes of background jobs after their step has ended, and of subagents. Changes of a
//! background job whose step was undone and deleted go to the session's log of changes.

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

/// The write journals of a session's steps whose programs may still write, and the changes of deleted
/// steps. A std mutex is enough for each: it only guards a list.
#[derive(Debug, Default)]
pub struct LateChanges {
    journals: Mutex<Vec<LateJournal>>,
    of_deleted_steps: Mutex<Vec<FileLogEntry>>,
}

#[derive(Debug, Clone)]
struct LateJournal {
    message_id: MessageId,
    journal: Arc<WriteJournal>,
}

impl LateChanges {
    /// Registers a journal, whose later entries belong to this message.
    pub fn register(&self, message: &MessageId, journal: &Arc<WriteJournal>) {
        let late = LateJournal {
            message_id: message.clone(),
            journal: journal.clone(),
        };
        lock(&self.journals).push(late);
    }

    /// Returns all journals, of which only the open ones remain for the next call.
    fn drain_closed(&self) -> Vec<LateJournal> {
        let mut journals = lock(&self.journals);
        let all = journals.clone();
        journals.retain(|late| late.journal.is_open());
        all
    }
}

/// Adds the writes of background jobs so far to the steps that started them. Those of deleted steps
/// wait until [`log_changes_of_deleted_steps`] is called.
pub async fn collect(history: &mut History, session: &SessionContext) {
    for LateJournal {
        message_id,
        journal,
    } in session.late_changes.drain_closed()
    {
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
        let last_late_number = changes::last_late(&history.messages);
        let last = history.messages.last().map(|last| last.id.clone());
        let step_message = history
            .messages
            .iter_mut()
            .rev()
            .find(|known| known.id == message_id);
        let (Some(message), Some(after)) = (step_message, last.clone()) else {
            // The log has no place for unrecorded writes.
            let entry = FileLogEntry {
                after: last,
                after_late: last_late_number,
                files,
            };
            lock(&session.late_changes.of_deleted_steps).push(entry);
            continue;
        };
        let place = LatePlace {
            after,
            number: last_late_number.saturating_add(1),
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

/// Adds the collected changes of deleted steps to the session's log of changes.
pub fn log_changes_of_deleted_steps(record: &mut Record, session: &SessionContext) {
    let deleted = std::mem::take(&mut *lock(&session.late_changes.of_deleted_steps));
    for entry in deleted {
        changes::add_to_log(record, entry);
    }
}
