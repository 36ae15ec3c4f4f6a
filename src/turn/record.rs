//! Keeps what happens in a turn, as it happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use super::Choice;
use crate::id::{MessageId, SessionId};
use crate::message::{Message, Part};
use crate::store::{Error, Record, Store, StoredSession};

/// Writes one session's messages and parts. Writes are queued and do not wait for the disk.
#[derive(Debug, Clone)]
pub struct Recorder {
    store: Store,
    session: SessionId,
    /// The user was told that nothing is kept.
    told: Arc<AtomicBool>,
    /// More is unsaved than may be.
    unsaved: Arc<AtomicBool>,
    /// What is chosen now; none for a session in which nothing can be.
    choice: Option<watch::Receiver<Choice>>,
}

impl Recorder {
    pub fn new(store: Store, session: SessionId) -> Self {
        Self { store, session, told: Arc::default(), unsaved: Arc::default(), choice: None }
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
        self.store.part(&self.session, message, part).await;
    }

    /// Keeps a message with all its parts.
    pub async fn whole(&self, message: &Message) {
        self.message(message).await;
        for part in &message.parts {
            self.part(&message.id, part).await;
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
