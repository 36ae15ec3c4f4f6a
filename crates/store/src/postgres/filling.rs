//! The progress of indexing the sessions without an owner.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use base::id::SessionId;

/// The interval at which a long-running process looks for sessions that are not indexed.
const FILL_INTERVAL: Duration = Duration::from_secs(600);

/// The interval of attempts to get the turn while another process has it.
const TURN_INTERVAL: Duration = Duration::from_secs(2);

/// The ratio of waiting to working, so that the statements of others go first.
const IDLE_SHARE: u32 = 3;
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The state of indexing the sessions without an owner.
#[derive(Default)]
pub(super) struct IndexFilling {
    wish: Cell<FillWish>,
    /// Whether this process is long-running, and looks again later.
    stays: Cell<bool>,
    last: Cell<Option<Instant>>,
    /// The time of the next attempt to get the turn.
    again: Cell<Option<Instant>>,
    pub(super) has_turn: Cell<bool>,
    /// Sessions and their epochs, the next one first.
    pub(super) left: RefCell<VecDeque<(SessionId, i64)>>,
    /// The last session that was looked up.
    pub(super) before: RefCell<Option<String>>,
    is_over: Cell<bool>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FillWish {
    #[default]
    None,
    AtLeisure,
    /// A search has requested it.
    Soon,
}

impl IndexFilling {
    /// Requests the indexing of all sessions without an owner, now and periodically.
    pub(super) fn request_full_indexing(&self) {
        self.stays.set(true);
        if self.wish.get() == FillWish::None {
            self.wish.set(FillWish::AtLeisure);
        }
    }

    pub(super) fn soon(&self) {
        self.wish.set(FillWish::Soon);
    }

    /// Records that all sessions are indexed.
    pub(super) fn rest(&self) {
        self.wish.set(FillWish::None);
        self.last.set(Some(Instant::now()));
    }

    /// Schedules the next attempt, because another process has the turn.
    pub(super) fn wait(&self) {
        self.again.set(Some(Instant::now() + TURN_INTERVAL));
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_wanted() && self.again.get().is_none_or(|again| Instant::now() >= again)
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Ends indexing after the present messages.
    pub(super) fn end(&self) {
        self.is_over.set(true);
    }

    pub(super) fn is_wanted(&self) -> bool {
        let again = || {
            self.stays.get()
                && self
                    .last
                    .get()
                    .is_some_and(|last| last.elapsed() >= FILL_INTERVAL)
        };
        !self.is_over.get() && (self.wish.get() != FillWish::None || again())
    }

    pub(super) fn pause(&self, took: Duration) -> Duration {
        let pause = if self.wish.get() == FillWish::Soon {
            took / 10
        } else {
            took * IDLE_SHARE
        };
        pause.min(MAX_PAUSE)
    }
}
