//! File changes that reach a step from elsewhere: from its background jobs, after the step has
//! ended, and from the sessions of its subagents.

use std::sync::{Arc, Mutex};

use super::{History, SessionContext};
use base::id::{MessageId, PartId};
use base::lock::locked;
use base::task::spawn_blocking;
use snapshot::{JournalEntries, WriteJournal};
use transcript::{Content, FileChange, Part, UnrecordedWrite};

/// The changes of subagents that the parent's step has not taken yet. A std mutex is enough: it
/// only guards two lists.
#[derive(Debug, Default)]
pub struct ChildChanges(Mutex<JournalEntries>);

impl ChildChanges {
    pub fn add(&self, files: &[FileChange], unrecorded: &[UnrecordedWrite]) {
        let mut all = locked(&self.0);
        all.files.extend_from_slice(files);
        all.unrecorded.extend_from_slice(unrecorded);
    }

    pub fn take(&self) -> JournalEntries {
        std::mem::take(&mut *locked(&self.0))
    }
}

/// The journals of a session's steps to which programs still report. A std mutex is enough: it only
/// guards a list.
#[derive(Debug, Default)]
pub struct LateChanges(Mutex<Vec<LateJournal>>);

#[derive(Debug, Clone)]
struct LateJournal {
    message: MessageId,
    part: PartId,
    journal: Arc<WriteJournal>,
}

impl LateChanges {
    /// Registers a journal, whose later entries belong to this part of this message. The part
    /// need not exist yet.
    pub fn expect(&self, message: &MessageId, part: &PartId, journal: &Arc<WriteJournal>) {
        let late = LateJournal {
            message: message.clone(),
            part: part.clone(),
            journal: journal.clone(),
        };
        locked(&self.0).push(late);
    }

    /// Returns all journals, and forgets those that are closed.
    fn all(&self) -> Vec<LateJournal> {
        let mut journals = locked(&self.0);
        let all = journals.clone();
        journals.retain(|late| late.journal.is_open());
        all
    }
}

/// Adds the writes of background jobs so far to the steps that started them.
pub async fn collect(history: &mut History, session: &SessionContext) {
    for LateJournal {
        message,
        part,
        journal,
    } in session.late_changes.all()
    {
        let taken = spawn_blocking(move || journal.take()).await;
        let JournalEntries { files, unrecorded } = taken.unwrap_or_else(|e| {
            tracing::error!("the changes of a background command are unknown: {e}");
            JournalEntries::default()
        });
        let Some(message) = history
            .messages
            .iter_mut()
            .rev()
            .find(|known| known.id == message)
        else {
            continue;
        };
        if files.is_empty() && unrecorded.is_empty() {
            continue;
        }
        if let Some(tracker) = &session.snapshots {
            session.recorder.contents(tracker, &files).await;
        }
        if let Some(parent) = &session.parent_changes {
            parent.add(&files, &unrecorded);
        }
        let known = message.parts.iter_mut().find(|known| known.id == part);
        let part = match known {
            Some(known) => {
                if let Content::Patch {
                    files: earlier,
                    unrecorded: unrecorded_earlier,
                    ..
                } = &mut known.content
                {
                    earlier.extend(files);
                    unrecorded_earlier.extend(unrecorded);
                }
                known.clone()
            }
            None => {
                let part = Part {
                    id: part,
                    content: Content::Patch {
                        files,
                        begun: false,
                        unrecorded,
                    },
                };
                message.parts.push(part.clone());
                part
            }
        };
        session.recorder.part(&message.id, &part).await;
    }
}
