//! Work that is done many times, some of it at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs jobs on four threads: most of their time is waiting.
pub fn four(count: usize, job: impl Fn(usize) + Sync) {
    let at_once = std::env::var("ADJUTANT_AT_ONCE").ok().and_then(|number| number.parse().ok()).unwrap_or(4);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    job(number);
                }
            });
        }
    });
}

/// How often a row is run: as often as it says where all is asked for.
pub fn count(all: usize, short: usize) -> usize {
    if std::env::var_os("ADJUTANT_FAULTS").is_some_and(|value| value == "all") { all } else { short }
}
