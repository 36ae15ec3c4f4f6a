//! Stores the messages of a turn as they arise.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::SessionChoices;
use crate::published::SessionEvents;
use base::id::{MessageId, SessionId};
use base::lock::lock;
use snapshot::Tracker;
use store::{Error, Record, Store, StoredSession};
use transcript::{CallState, Content, FileChange, FileState, Message, Part};

/// The largest full result of a tool that is shared with other machines.
const MAX_OUTPUT_BYTES: u64 = 32 << 20;

/// The number of file contents that are fetched at once.
const FETCH_BATCH: usize = 32;

/// Returns the name of a tool's full result in the store.
pub fn output_name(path: &Path) -> Option<String> {
    Some(format!("output/{}", path.file_name()?.to_str()?))
}

fn states(files: &[FileChange]) -> impl Iterator<Item = &FileState> {
    files
        .iter()
        .flat_map(|change| change.old.iter().chain(&change.new))
}

/// The writer of one session's messages and parts. Writes are queued and do not wait for the disk.
#[derive(Debug, Clone)]
pub struct Recorder {
    store: Store,
    session: SessionId,
    /// True if the user was notified that the session is not stored.
    notified: Arc<AtomicBool>,
    /// True if the last flush failed because the store has been unreachable for too long or too
    /// many changes are unsaved.
    is_outage_too_long: Arc<AtomicBool>,
    /// The names of contents that were shared with other machines. The lock is never held
    /// across an await.
    sent: Arc<Mutex<HashSet<String>>>,
    /// The user's current choices; `None` for a session without choices.
    choice: Option<watch::Receiver<SessionChoices>>,
    /// The publisher of all changes.
    pub events: SessionEvents,
}

impl Recorder {
    pub fn new(store: Store, session: SessionId) -> Self {
        Self {
            events: SessionEvents::silent(session.clone()),
            store,
            session,
            notified: Arc::default(),
            is_outage_too_long: Arc::default(),
            sent: Arc::default(),
            choice: None,
        }
    }

    /// Returns a recorder that publishes all changes to the conversation as well.
    #[must_use]
    pub fn publishing(self, events: SessionEvents) -> Self {
        Self { events, ..self }
    }

    /// Returns a recorder that stores the user's current choices instead of those in a record,
    /// because the user may change them while a turn works with its own copy.
    #[must_use]
    pub fn choosing(self, choice: watch::Receiver<SessionChoices>) -> Self {
        Self {
            choice: Some(choice),
            ..self
        }
    }

    /// Stores and publishes a message without its parts.
    pub async fn message(&self, message: &Message) {
        self.events.message(message);
        self.store.write_message(&self.session, message).await;
    }

    /// Stores and publishes a part.
    pub async fn part(&self, message: &MessageId, part: &Part) {
        self.events.part(message, part);
        if self.store.is_known_shared()
            && let Content::Tool(call) = &part.content
            && let CallState::Completed(_) | CallState::Failed { .. } = call.state
            && let Some(path) = call
                .state
                .facts()
                .and_then(|facts| facts.output_path.as_deref())
        {
            self.share_output(path).await;
        }
        self.store.write_part(&self.session, message, part).await;
    }

    /// Stores a part of an answer that is still growing, without publishing it. The deltas are
    /// published separately.
    pub async fn growing_part(&self, message: &MessageId, part: &Part) {
        self.store
            .write_growing_part(&self.session, message, part)
            .await;
    }

    /// Shares the full result of a tool with other machines.
    async fn share_output(&self, path: &Path) {
        let Some(name) = output_name(path) else {
            return;
        };
        let file = path.to_owned();
        let read = base::task::spawn_blocking(move || {
            base::file::read_small(&file, MAX_OUTPUT_BYTES).ok()
        });
        let Some(bytes) = read.await.ok().flatten() else {
            return;
        };
        // A result that has grown is stored again.
        if lock(&self.sent).insert(format!("{name} {}", bytes.len())) {
            self.store.write_content(&self.session, name, bytes).await;
        }
    }

    /// Shares the contents of these files, before and after the change, with other machines.
    pub async fn share_contents(&self, tracker: &Arc<Tracker>, files: &[FileChange]) {
        if !self.store.is_known_shared() {
            return;
        }
        let fresh: Vec<FileState> = {
            let mut sent = lock(&self.sent);
            states(files)
                .filter(|state| !state.large && sent.insert(state.hash.clone()))
                .cloned()
                .collect()
        };
        for state in fresh {
            let tracker = tracker.clone();
            let hash = state.hash.clone();
            match base::task::spawn_blocking(move || tracker.stored_bytes(&state)).await {
                Ok(Some(bytes)) => self.store.write_content(&self.session, hash, bytes).await,
                Ok(None) => tracing::debug!("the content {hash} is not stored on this machine"),
                Err(e) => tracing::warn!("the content {hash} could not be read: {e}"),
            }
        }
    }

    /// Fetches missing contents of these files from other machines.
    pub async fn fetch_contents(&self, tracker: &Arc<Tracker>, files: &[FileChange]) {
        if !self.store.is_known_shared() {
            return;
        }
        let wanted: Vec<FileState> = states(files).cloned().collect();
        let tracker_here = tracker.clone();
        let lacking = base::task::spawn_blocking(move || {
            wanted
                .into_iter()
                .filter(|state| tracker_here.is_content_missing(state))
                .map(|state| state.hash)
                .collect::<Vec<_>>()
        });
        let lacking = lacking.await.unwrap_or_default();
        for names in lacking.chunks(FETCH_BATCH) {
            let found = match self
                .store
                .read_contents(&self.session, names.to_vec())
                .await
            {
                Ok(found) => found,
                Err(e) => {
                    return tracing::warn!(
                        "contents stored by other machines cannot be fetched: {e}"
                    );
                }
            };
            let tracker = tracker.clone();
            let unpacked = base::task::spawn_blocking(move || {
                for (hash, packed) in found {
                    if let Err(e) = tracker.store_encoded(&hash, &packed) {
                        tracing::warn!("the content {hash} could not be stored: {e}");
                    }
                }
            });
            if let Err(e) = unpacked.await {
                tracing::warn!("contents could not be stored: {e}");
            }
        }
    }

    /// Stores and publishes a message with all its parts.
    pub async fn store_message(&self, message: &Message) {
        self.message(message).await;
        for part in &message.parts {
            self.part(&message.id, part).await;
        }
    }

    /// Shares a decision about a project's trust with other machines.
    ///
    /// # Errors
    /// Returns the store's errors.
    pub async fn share_trust(&self, project: &str, entry: String) -> Result<(), Error> {
        if !self.store.is_known_shared() {
            return Ok(());
        }
        self.store.store_trust_decision(project, entry).await
    }

    /// True if the user must be notified that the session is not stored: `true` only for
    /// the first call.
    pub fn must_notify(&self) -> bool {
        !self.notified.swap(true, Ordering::Relaxed)
    }

    /// Stores the record of the session.
    pub async fn session(&self, record: &Record) {
        let mut record = record.clone();
        if let Some(choice) = &self.choice {
            choice.borrow().record_change().apply(&mut record);
        }
        self.events.updated(&record);
        self.store.write_record(&record).await;
    }

    /// Deletes a message and all later ones. `removed` contains all deleted messages.
    pub async fn truncate_from(&self, from: &MessageId, removed: &[Message]) {
        for message in removed {
            self.events.removed(&message.id);
        }
        self.store.truncate_from(&self.session, from).await;
    }

    /// Waits until all changes so far would survive the end of this process.
    pub async fn await_saved(&self) {
        self.store.await_written(&self.session).await;
    }

    /// Waits like [`Self::await_saved`], but for the session of a subagent.
    pub async fn await_saved_session(&self, session: &SessionId) {
        self.store.await_written(session).await;
    }

    /// Returns the stored session.
    ///
    /// # Errors
    /// Returns the store's errors.
    pub async fn read_session(&self) -> Result<StoredSession, Error> {
        self.store.peek(&self.session).await
    }

    /// Waits until all changes so far are on the disk.
    ///
    /// # Errors
    /// Returns the store's errors since the last flush.
    pub async fn flush(&self) -> Result<(), Error> {
        let flushed = self.store.flush(&self.session).await;
        self.is_outage_too_long.store(
            matches!(flushed, Err(Error::OutageTooLong(_))),
            Ordering::Relaxed,
        );
        flushed
    }

    /// True if a turn must not continue, because the store has been unreachable for too
    /// long or too many changes are unsaved.
    pub async fn is_exhausted(&self) -> bool {
        // The flush detects whether the store is available again.
        self.is_outage_too_long.load(Ordering::Relaxed)
            && matches!(self.flush().await, Err(Error::OutageTooLong(_)))
    }
}
