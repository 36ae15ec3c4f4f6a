//! Keeps what happens in a turn, as it happens.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::Choice;
use base::id::{MessageId, SessionId};
use base::lock::locked;
use snapshot::Tracker;
use store::{Error, Record, Store, StoredSession};
use transcript::{CallState, Content, FileChange, FileState, Message, Part};

/// The largest whole result of a tool that other machines get, in bytes.
const LARGEST_OUTPUT: u64 = 32 << 20;

/// How many contents are fetched at a time.
const FETCHED: usize = 32;

/// What the whole result of a tool is called in the store.
pub fn output_name(path: &Path) -> Option<String> {
    Some(format!("output/{}", path.file_name()?.to_str()?))
}

fn states(files: &[FileChange]) -> impl Iterator<Item = &FileState> {
    files.iter().flat_map(|change| change.old.iter().chain(&change.new))
}

/// Writes one session's messages and parts. Writes are queued and do not wait for the disk.
#[derive(Debug, Clone)]
pub struct Recorder {
    store: Store,
    session: SessionId,
    /// The user was told that nothing is kept.
    told: Arc<AtomicBool>,
    /// More is unsaved than may be.
    unsaved: Arc<AtomicBool>,
    // A std mutex around a set, a leaf: what other machines have by now.
    sent: Arc<Mutex<HashSet<String>>>,
    /// What is chosen now; none for a session in which nothing can be.
    choice: Option<watch::Receiver<Choice>>,
}

impl Recorder {
    pub fn new(store: Store, session: SessionId) -> Self {
        Self { store, session, told: Arc::default(), unsaved: Arc::default(), sent: Arc::default(), choice: None }
    }

    /// One that keeps what is chosen at the time, whatever a record says about that: the user may choose
    /// while a turn works with its own.
    #[must_use]
    pub fn choosing(self, choice: watch::Receiver<Choice>) -> Self {
        Self { choice: Some(choice), ..self }
    }

    /// Keeps a message, without its parts.
    pub async fn message(&self, message: &Message) {
        self.store.message(&self.session, message).await;
    }

    pub async fn part(&self, message: &MessageId, part: &Part) {
        if self.store.is_known_shared()
            && let Content::Tool(call) = &part.content
            && let CallState::Completed(_) | CallState::Failed { .. } = call.state
            && let Some(path) = call.state.facts().and_then(|facts| facts.output_path.as_deref())
        {
            self.output(path).await;
        }
        self.store.part(&self.session, message, part).await;
    }

    /// Keeps the whole result of a tool for other machines.
    async fn output(&self, path: &Path) {
        let Some(name) = output_name(path) else { return };
        let file = path.to_owned();
        let read = base::task::spawn_blocking(move || {
            let length = std::fs::metadata(&file).map(|data| data.len()).unwrap_or_default();
            (length <= LARGEST_OUTPUT).then(|| std::fs::read(&file).ok()).flatten()
        });
        let Some(bytes) = read.await.ok().flatten() else { return };
        // One that grew is kept again.
        if locked(&self.sent).insert(format!("{name} {}", bytes.len())) {
            self.store.content(&self.session, name, bytes).await;
        }
    }

    /// Keeps for other machines what these files held before and after.
    pub async fn contents(&self, tracker: &Arc<Tracker>, files: &[FileChange]) {
        if !self.store.is_known_shared() {
            return;
        }
        let fresh: Vec<FileState> = {
            let mut sent = locked(&self.sent);
            states(files).filter(|state| !state.large && sent.insert(state.hash.clone())).cloned().collect()
        };
        for state in fresh {
            let (tracker, hash) = (tracker.clone(), state.hash.clone());
            match base::task::spawn_blocking(move || tracker.packed(&state)).await {
                Ok(Some(bytes)) => self.store.content(&self.session, hash, bytes).await,
                Ok(None) => tracing::debug!("the content {hash} is not kept here"),
                Err(e) => tracing::warn!("the content {hash} could not be read: {e}"),
            }
        }
    }

    /// Fetches what these files held, where another machine has kept it.
    pub async fn fetch(&self, tracker: &Arc<Tracker>, files: &[FileChange]) {
        if !self.store.is_known_shared() {
            return;
        }
        let wanted: Vec<FileState> = states(files).cloned().collect();
        let there = tracker.clone();
        let lacking = base::task::spawn_blocking(move || {
            wanted.into_iter().filter(|state| there.lacks(state)).map(|state| state.hash).collect::<Vec<_>>()
        });
        let lacking = lacking.await.unwrap_or_default();
        for names in lacking.chunks(FETCHED) {
            let found = match self.store.contents(&self.session, names.to_vec()).await {
                Ok(found) => found,
                Err(e) => return tracing::warn!("what other machines have kept cannot be had: {e}"),
            };
            let tracker = tracker.clone();
            let kept = base::task::spawn_blocking(move || {
                for (hash, packed) in found {
                    if let Err(e) = tracker.unpack(&hash, &packed) {
                        tracing::warn!("the content {hash} could not be kept: {e}");
                    }
                }
            });
            if let Err(e) = kept.await {
                tracing::warn!("contents could not be kept: {e}");
            }
        }
    }

    /// Keeps a message with all its parts.
    pub async fn whole(&self, message: &Message) {
        self.message(message).await;
        for part in &message.parts {
            self.part(&message.id, part).await;
        }
    }

    /// Keeps what was said about a project's own settings for all machines.
    ///
    /// # Errors
    /// The store's.
    pub async fn decide(&self, project: &str, entry: String) -> Result<(), Error> {
        match self.store.is_known_shared() {
            true => self.store.decide(project, entry).await,
            false => Ok(()),
        }
    }

    /// Whether the user is to be told now that nothing is kept: once in a session.
    pub fn tell(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// Keeps what is known about the session.
    pub async fn session(&self, record: &Record) {
        let mut record = record.clone();
        if let Some(choice) = &self.choice {
            choice.borrow().kept().apply(&mut record);
        }
        self.store.record(&record).await;
    }

    /// Removes a message and all that came after it.
    pub async fn cut(&self, from: &MessageId) {
        self.store.cut(&self.session, from).await;
    }

    /// Waits until everything so far survives the end of the process.
    pub async fn handed_over(&self) {
        self.store.handed_over(&self.session).await;
    }

    /// The same for another session, a subagent's.
    pub async fn handed_over_of(&self, session: &SessionId) {
        self.store.handed_over(session).await;
    }

    /// The session as it is kept now.
    ///
    /// # Errors
    /// The store's.
    pub async fn kept(&self) -> Result<StoredSession, Error> {
        self.store.peek(&self.session).await
    }

    /// Waits until everything so far is on the disk.
    ///
    /// # Errors
    /// The store's, since the last flush.
    pub async fn flush(&self) -> Result<(), Error> {
        let flushed = self.store.flush(&self.session).await;
        self.unsaved.store(matches!(flushed, Err(Error::AwayTooLong(_))), Ordering::Relaxed);
        flushed
    }

    /// Whether so much of the session is unsaved that a turn may not go on.
    pub async fn is_exhausted(&self) -> bool {
        // Where it was so, it may have become better since.
        self.unsaved.load(Ordering::Relaxed) && matches!(self.flush().await, Err(Error::AwayTooLong(_)))
    }
}
