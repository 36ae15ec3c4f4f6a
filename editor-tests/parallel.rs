//! Repetition of test cases, in parallel and in number.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs jobs on four threads, or `ADJUTANT_AT_ONCE`; they spend most of their time waiting.
pub fn run_in_parallel(count: usize, job: impl Fn(usize) + Sync) {
    let at_once = std::env::var("ADJUTANT_AT_ONCE")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(4);
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

/// Returns the number of repetitions: `all` if `ADJUTANT_FAULTS=all` is set, otherwise `short`.
pub fn repetitions(all: usize, short: usize) -> usize {
    if std::env::var_os("ADJUTANT_FAULTS").is_some_and(|value| value == "all") {
        all
    } else {
        short
    }
}
