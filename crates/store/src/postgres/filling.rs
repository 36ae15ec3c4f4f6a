//! Fills the search index with the sessions that nobody has.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use base::id::SessionId;

/// How often a process that stays looks for sessions that are not indexed.
const FILL_INTERVAL: Duration = Duration::from_secs(600);

/// How often it is tried to get the turn while another process has it.
const TURN_INTERVAL: Duration = Duration::from_secs(2);

/// How much longer it waits than it works, so that others' statements go first.
const IDLE_SHARE: u32 = 3;
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How far the sessions are indexed that nobody has.
#[derive(Default)]
pub(super) struct IndexFilling {
    wish: Cell<FillWish>,
    /// This process stays, and looks again later.
    stays: Cell<bool>,
    last: Cell<Option<Instant>>,
    /// When it is tried again whether it is this process's turn.
    again: Cell<Option<Instant>>,
    pub(super) has_turn: Cell<bool>,
    /// Sessions and their epochs, the next one first.
    pub(super) left: RefCell<VecDeque<(SessionId, i64)>>,
    /// The one that was looked up last.
    pub(super) before: RefCell<Option<String>>,
    is_over: Cell<bool>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FillWish {
    #[default]
    None,
    AtLeisure,
    /// Somebody searches.
    Soon,
}

impl IndexFilling {
    /// Has all sessions indexed that nobody has, and again from time to time.
    pub(super) fn at_leisure(&self) {
        self.stays.set(true);
        if self.wish.get() == FillWish::None {
            self.wish.set(FillWish::AtLeisure);
        }
    }

    pub(super) fn soon(&self) {
        self.wish.set(FillWish::Soon);
    }

    /// All are indexed.
    pub(super) fn rest(&self) {
        self.wish.set(FillWish::None);
        self.last.set(Some(Instant::now()));
    }

    /// Another process has its turn.
    pub(super) fn wait(&self) {
        self.again.set(Some(Instant::now() + TURN_INTERVAL));
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_wanted() && self.again.get().is_none_or(|again| Instant::now() >= again)
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Ends after the messages that are being indexed.
    pub(super) fn end(&self) {
        self.is_over.set(true);
    }

    pub(super) fn is_wanted(&self) -> bool {
        let again = || self.stays.get() && self.last.get().is_some_and(|last| last.elapsed() >= FILL_INTERVAL);
        !self.is_over.get() && (self.wish.get() != FillWish::None || again())
    }

    pub(super) fn pause(&self, took: Duration) -> Duration {
        let pause = if self.wish.get() == FillWish::Soon { took / 10 } else { took * IDLE_SHARE };
        pause.min(LONGEST_PAUSE)
    }
}
