//! Sessions that are read or written one message at a time, because they may be too large for
//! memory.

use std::sync::{Arc, Mutex};

use super::{Error, Record, StoredSession};
use transcript::Message;

/// A session whose messages are read one at a time, oldest first. The producer yields nothing after
/// an error.
pub struct StreamedSession {
    /// The record, read before the first message.
    pub record: Record,
    pub(super) messages: Box<dyn Iterator<Item = Result<Message, Error>> + Send>,
    damage: Arc<Mutex<Vec<String>>>,
}

impl StreamedSession {
    /// Creates a session from its record and its messages. `messages` must end after its first
    /// error.
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

    /// Returns the shared list of damage descriptions, for the user. It grows while messages are
    /// read.
    pub fn damage_log(&self) -> Arc<Mutex<Vec<String>>> {
        self.damage.clone()
    }

    /// Replaces the record and maps the messages. Ends at the first message for which `transform`
    /// returns `None`; errors pass through.
    #[must_use]
    pub fn map_messages_while(
        self,
        record: Record,
        mut transform: impl FnMut(Message) -> Option<Message> + Send + 'static,
    ) -> Self {
        let changed = self.messages.map_while(move |message| match message {
            Ok(message) => transform(message).map(Ok),
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

    /// Reads the remaining messages into memory.
    #[cfg(test)]
    pub(super) fn into_stored(mut self) -> Result<StoredSession, Error> {
        let messages = self.by_ref().collect::<Result<_, _>>()?;
        let damage = std::mem::take(&mut *base::lock::lock(&self.damage));
        Ok(StoredSession {
            record: self.record,
            messages,
            damage,
        })
    }
}

impl Iterator for StreamedSession {
    type Item = Result<Message, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.messages.next()
    }
}

impl From<StoredSession> for StreamedSession {
    fn from(stored: StoredSession) -> Self {
        let damage = Arc::new(Mutex::new(stored.damage));
        Self::new(stored.record, stored.messages.into_iter().map(Ok)).with_damage(damage)
    }
}
