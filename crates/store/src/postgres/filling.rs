//! The progress of indexing the sessions without an owner.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use base::id::SessionId;

/// The interval at which a long-running process looks for sessions that are not indexed.
const FILL_INTERVAL: Duration = Duration::from_secs(600);

/// The interval of attempts to take the lock for indexing while another process holds it.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// The pause after a piece of background work, as a multiple of its duration, so that other
/// statements are not delayed.
const PAUSE_FACTOR: u32 = 3;

/// The same for requested work, as a fraction: the duration is divided by it.
const REQUESTED_PAUSE_DIVISOR: u32 = 10;

/// The longest pause after a piece of work, and the pause after one that failed.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The state of indexing the sessions without an owner.
#[derive(Default)]
pub(super) struct IndexFilling {
    priority: Cell<IndexPriority>,
    /// Whether this process is long-running, and looks again later.
    is_long_running: Cell<bool>,
    completed_at: Cell<Option<Instant>>,
    /// The time of the next attempt to take the lock.
    retry_at: Cell<Option<Instant>>,
    pub(super) holds_lock: Cell<bool>,
    /// Sessions and their epochs, the next one first.
    pub(super) remaining: RefCell<VecDeque<(SessionId, i64)>>,
    /// The last session that was looked up.
    pub(super) last_looked_up: RefCell<Option<String>>,
    is_over: Cell<bool>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum IndexPriority {
    #[default]
    None,
    Background,
    /// A search has requested it.
    Requested,
}

impl IndexFilling {
    /// Requests the indexing of all sessions without an owner, now and periodically.
    pub(super) fn request_full_indexing(&self) {
        self.is_long_running.set(true);
        if self.priority.get() == IndexPriority::None {
            self.priority.set(IndexPriority::Background);
        }
    }

    pub(super) fn request_soon(&self) {
        self.priority.set(IndexPriority::Requested);
    }

    /// Records that all sessions are indexed.
    pub(super) fn record_completed(&self) {
        self.priority.set(IndexPriority::None);
        self.completed_at.set(Some(Instant::now()));
    }

    /// Schedules the next attempt, because another process holds the lock.
    pub(super) fn schedule_retry(&self) {
        self.retry_at
            .set(Some(Instant::now() + LOCK_RETRY_INTERVAL));
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_wanted()
            && self
                .retry_at
                .get()
                .is_none_or(|retry_at| Instant::now() >= retry_at)
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Ends indexing after the messages that are being indexed.
    pub(super) fn stop(&self) {
        self.is_over.set(true);
    }

    pub(super) fn is_wanted(&self) -> bool {
        let is_repeated = || {
            self.is_long_running.get()
                && self
                    .completed_at
                    .get()
                    .is_some_and(|completed| completed.elapsed() >= FILL_INTERVAL)
        };
        !self.is_over.get() && (self.priority.get() != IndexPriority::None || is_repeated())
    }

    pub(super) fn pause(&self, took: Duration) -> Duration {
        let pause = if self.priority.get() == IndexPriority::Requested {
            took / REQUESTED_PAUSE_DIVISOR
        } else {
            took * PAUSE_FACTOR
        };
        pause.min(MAX_PAUSE)
    }
}
