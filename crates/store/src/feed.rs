//! A session on its way out of a store or into one, a message at a time: it may be larger than what memory is for.

use std::sync::{Arc, Mutex};

use super::{Error, Record, StoredSession};
use transcript::Message;

/// A session whose messages come one after the other, oldest first. An error is the last that comes.
pub struct SessionFeed {
    /// Everything known about it but its messages.
    pub record: Record,
    pub(super) messages: Box<dyn Iterator<Item = Result<Message, Error>> + Send>,
    damage: Arc<Mutex<Vec<String>>>,
}

impl SessionFeed {
    pub fn new(record: Record, messages: impl Iterator<Item = Result<Message, Error>> + Send + 'static) -> Self {
        Self { record, messages: Box::new(messages), damage: Arc::default() }
    }

    /// The damage found in what has come so far, for the user.
    pub fn damage(&self) -> Arc<Mutex<Vec<String>>> {
        self.damage.clone()
    }

    /// The same messages under this record, as `change` makes them, until it gives none.
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
        Self { record, messages: Box::new(changed), damage: self.damage }
    }

    pub(super) fn with_damage(self, damage: Arc<Mutex<Vec<String>>>) -> Self {
        Self { damage, ..self }
    }

    /// Reads all of it.
    #[cfg(test)]
    pub(super) fn whole(mut self) -> Result<StoredSession, Error> {
        let messages = self.by_ref().collect::<Result<_, _>>()?;
        let damage = std::mem::take(&mut *base::lock::locked(&self.damage));
        Ok(StoredSession { record: self.record, messages, damage })
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
