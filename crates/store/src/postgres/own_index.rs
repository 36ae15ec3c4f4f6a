//! The part of a session of this process that the search index lacks.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// How long nothing is written to a session before it is indexed.
const QUIET: Duration = Duration::from_secs(1);

/// How many messages are read at a time.
pub(super) const MESSAGES: usize = 16;

/// The name of a session's title among its messages.
pub(super) const TITLE: &str = "";

/// The changes to a session since it was indexed.
#[derive(Debug, Default)]
pub(super) struct OwnIndex {
    /// All that was said before this process had the session is indexed, or is among `changed`.
    pub(super) is_based: bool,
    /// The messages that are to be indexed, and the title.
    pub(super) changed: BTreeSet<String>,
    /// The database knows that all is indexed.
    pub(super) is_current: bool,
    /// When something was last written.
    written: Option<Instant>,
}

impl OwnIndex {
    pub(super) fn of_new() -> Self {
        Self { is_based: true, changed: BTreeSet::from([TITLE.to_owned()]), ..Self::default() }
    }

    pub(super) fn at_taking(is_indexed: bool) -> Self {
        Self { is_based: is_indexed, is_current: is_indexed, ..Self::default() }
    }

    /// Something is written that no search looks at.
    pub(super) fn wrote(&mut self) {
        (self.is_current, self.written) = (false, Some(Instant::now()));
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
        self.written.is_none_or(|written| written.elapsed() >= QUIET)
    }

    /// Whether indexing the rest takes no longer than somebody may wait who closes the session.
    pub(super) fn is_little(&self) -> bool {
        !self.is_current && self.is_based && self.changed.len() <= MESSAGES
    }
}
