//! Sessions that are read or written one message at a time, because they may be too large for
//! memory.

use std::sync::{Arc, Mutex};

use super::{Error, Record, StoredSession};
use transcript::Message;

/// A session whose messages arrive one at a time, oldest first. An error ends the messages.
pub struct SessionFeed {
    /// The record, which is available before the messages.
    pub record: Record,
    pub(super) messages: Box<dyn Iterator<Item = Result<Message, Error>> + Send>,
    damage: Arc<Mutex<Vec<String>>>,
}

impl SessionFeed {
    pub fn new(
        record: Record,
        messages: impl Iterator<Item = Result<Message, Error>> + Send + 'static,
    ) -> Self {
        Self {
            record,
            messages: Box::new(messages),
            damage: Arc::default(),
        }
    }

    /// Returns the damage found in the messages so far, for the user.
    pub fn damage(&self) -> Arc<Mutex<Vec<String>>> {
        self.damage.clone()
    }

    /// Replaces the record, and transforms each message with `change`, until that returns `None`.
    #[must_use]
    pub fn rewritten(
        self,
        record: Record,
        mut change: impl FnMut(Message) -> Option<Message> + Send + 'static,
    ) -> Self {
        let changed = self.messages.map_while(move |message| match message {
            Ok(message) => change(message).map(Ok),
            Err(e) => Some(Err(e)),
        });
        Self {
            record,
            messages: Box::new(changed),
            damage: self.damage,
        }
    }

    pub(super) fn with_damage(self, damage: Arc<Mutex<Vec<String>>>) -> Self {
        Self { damage, ..self }
    }

    /// Reads the whole session.
    #[cfg(test)]
    pub(super) fn whole(mut self) -> Result<StoredSession, Error> {
        let messages = self.by_ref().collect::<Result<_, _>>()?;
        let damage = std::mem::take(&mut *base::lock::locked(&self.damage));
        Ok(StoredSession {
            record: self.record,
            messages,
            damage,
        })
    }
}

impl Iterator for SessionFeed {
    type Item = Result<Message, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.messages.next()
    }
}

impl From<StoredSession> for SessionFeed {
    fn from(stored: StoredSession) -> Self {
        let damage = Arc::new(Mutex::new(stored.damage));
        Self::new(stored.record, stored.messages.into_iter().map(Ok)).with_damage(damage)
    }
}
