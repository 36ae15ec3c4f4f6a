//! The progress of indexing the sessions that no process has open.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use base::id::SessionId;

/// The interval at which a long-running process looks for sessions that are not indexed.
const BACKFILL_INTERVAL: Duration = Duration::from_secs(600);

/// The interval of attempts to take the lock for indexing while another process holds it.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// The pause after a piece of background work, as a multiple of its duration, so that other
/// SQL statements are not delayed.
const PAUSE_FACTOR: u32 = 3;

/// The pause after a piece of requested work is its duration divided by this.
const REQUESTED_PAUSE_DIVISOR: u32 = 10;

/// The longest pause after a piece of work, and the pause after one that failed.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The state of indexing the sessions that no process has open.
#[derive(Default)]
pub(super) struct BackfillState {
    priority: Cell<IndexPriority>,
    /// True if this process looks for new sessions again after [`BACKFILL_INTERVAL`].
    is_periodic: Cell<bool>,
    completed_at: Cell<Option<Instant>>,
    /// The time of the next attempt to take the lock.
    retry_at: Cell<Option<Instant>>,
    /// True if this process holds the advisory lock for indexing.
    pub(super) holds_lock: Cell<bool>,
    /// Sessions and the epochs of their leases, the next one first.
    pub(super) remaining: RefCell<VecDeque<(SessionId, i64)>>,
    /// The last session of the latest query, where the next one continues; `None` to begin with the
    /// newest.
    pub(super) cursor: RefCell<Option<String>>,
    is_stopped: Cell<bool>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum IndexPriority {
    #[default]
    None,
    Background,
    /// A search has requested it.
    Requested,
}

impl BackfillState {
    /// Requests the indexing of all sessions that no process has open, now and periodically.
    pub(super) fn request_periodic(&self) {
        self.is_periodic.set(true);
        if self.priority.get() == IndexPriority::None {
            self.priority.set(IndexPriority::Background);
        }
    }

    /// Requests it with short pauses, because a search waits for it.
    pub(super) fn request_now(&self) {
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

    /// Returns whether a piece may be indexed now.
    pub(super) fn is_due(&self) -> bool {
        self.is_wanted()
            && self
                .retry_at
                .get()
                .is_none_or(|retry_at| Instant::now() >= retry_at)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }

    /// Ends indexing once the current batch of messages is done.
    pub(super) fn stop(&self) {
        self.is_stopped.set(true);
    }

    /// Returns whether there may be something to index, even if another process holds the lock.
    pub(super) fn is_wanted(&self) -> bool {
        let is_interval_over = || {
            self.is_periodic.get()
                && self
                    .completed_at
                    .get()
                    .is_some_and(|completed| completed.elapsed() >= BACKFILL_INTERVAL)
        };
        !self.is_stopped.get() && (self.priority.get() != IndexPriority::None || is_interval_over())
    }

    /// Returns the pause after a piece of work that took this long.
    pub(super) fn pause(&self, took: Duration) -> Duration {
        let pause = if self.priority.get() == IndexPriority::Requested {
            took / REQUESTED_PAUSE_DIVISOR
        } else {
            took * PAUSE_FACTOR
        };
        pause.min(MAX_PAUSE)
    }
}
