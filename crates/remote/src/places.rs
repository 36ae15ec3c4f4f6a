//! How many there are of something of which there may be only so many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts one less when it is dropped.
#[derive(Debug)]
pub struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// Counts one more, unless there are as many as there may be.
    pub fn one(all: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let counted = all.try_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < most).then_some(n + 1));
        counted.ok().map(|_| Self(all.clone()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A socket's place among those that are open: it is one of them until the last copy of this is dropped.
pub type SocketPlace = Arc<Counted>;
