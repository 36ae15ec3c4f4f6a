//! Counters with a maximum.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A counted item. Dropping it decrements the counter.
#[derive(Debug)]
pub struct CountedItem(Arc<AtomicUsize>);

impl CountedItem {
    /// Counts one more item, unless the maximum `most` is reached.
    pub fn try_count(all: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let counted = all.try_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            (n < most).then_some(n + 1)
        });
        counted.ok().map(|_| Self(all.clone()))
    }
}

impl Drop for CountedItem {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The slot of an open socket. The socket is counted until the last clone is dropped.
pub type SocketSlot = Arc<CountedItem>;
