//! The changes of an owned session that the search index lacks.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// The time without writes after which a session is indexed.
const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// The number of messages that are read at a time.
pub(super) const MESSAGES_PER_READ: usize = 16;

/// The name of a session's title among its messages.
pub(super) const TITLE: &str = "";

/// The changes to a session since it was indexed.
#[derive(Debug, Default)]
pub(super) struct PendingIndex {
    /// True if everything written before this process took the session is indexed, or listed in
    /// `changed`.
    pub(super) is_based: bool,
    /// The messages that are to be indexed, and the title.
    pub(super) changed: BTreeSet<String>,
    /// True if the session is marked as indexed in the database.
    pub(super) is_current: bool,
    /// The time of the last write.
    written: Option<Instant>,
}

impl PendingIndex {
    pub(super) fn of_new() -> Self {
        Self {
            is_based: true,
            changed: BTreeSet::from([TITLE.to_owned()]),
            ..Self::default()
        }
    }

    pub(super) fn when_taken(is_indexed: bool) -> Self {
        Self {
            is_based: is_indexed,
            is_current: is_indexed,
            ..Self::default()
        }
    }

    /// Records a write that does not change searchable text.
    pub(super) fn wrote(&mut self) {
        self.is_current = false;
        self.written = Some(Instant::now());
    }

    pub(super) fn wrote_message(&mut self, message: &str) {
        if !self.changed.contains(message) {
            self.changed.insert(message.to_owned());
        }
    }

    pub(super) fn wrote_title(&mut self) {
        self.wrote_message(TITLE);
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.written
            .is_none_or(|written| written.elapsed() >= QUIET_PERIOD)
    }

    /// True if the rest is so small that closing the session can wait for its indexing.
    pub(super) fn is_small(&self) -> bool {
        !self.is_current && self.is_based && self.changed.len() <= MESSAGES_PER_READ
    }
}
