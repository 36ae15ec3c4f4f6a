//! Decides whether a failed request is repeated, and after which delay.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

use providers::Error;

/// The maximum number of repetitions of a request.
pub const LIMIT: u32 = 5;

/// The longest delay that a provider may request. A longer one ends the turn with the requested
/// time in the error.
const MAX_REQUESTED_DELAY: Duration = Duration::from_secs(60);

/// The delays between attempts: 2 s, doubling, with jitter, at most 30 s each.
pub struct Backoff {
    waits: backon::ExponentialBackoff,
}

impl Default for Backoff {
    fn default() -> Self {
        let waits = ExponentialBuilder::new()
            .with_min_delay(Duration::from_secs(2))
            .with_max_delay(Duration::from_secs(30))
            .with_max_times(LIMIT as usize)
            .with_jitter();
        Self {
            waits: waits.build(),
        }
    }
}

impl Backoff {
    /// Returns the delay before the next attempt; `None` to give up. A delay requested by the
    /// provider takes precedence.
    pub fn after(&mut self, error: &Error) -> Option<Duration> {
        if !error.is_transient() {
            return None;
        }
        let ours = self.waits.next()?;
        match error.after() {
            Some(theirs) if theirs > MAX_REQUESTED_DELAY => None,
            Some(theirs) => Some(theirs),
            None => Some(ours),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_delay_is_respected_up_to_limit() {
        let limited = |after| Error::RateLimited {
            message: "x".into(),
            after,
        };
        let mut waits = Backoff::default();
        assert_eq!(
            waits.after(&limited(Some(Duration::from_secs(7)))),
            Some(Duration::from_secs(7))
        );
        assert_eq!(waits.after(&limited(Some(Duration::from_secs(3600)))), None);
        assert_eq!(waits.after(&Error::Auth("x".into())), None);
    }

    /// Processes that failed at the same time must not all retry at the same time.
    #[test]
    fn delays_are_random() {
        let times = || {
            let mut waits = Backoff::default();
            std::iter::from_fn(|| waits.after(&Error::Network("x".into()))).collect::<Vec<_>>()
        };
        assert_ne!(times(), times());
    }

    #[test]
    fn backoff_gives_up_after_five_attempts() {
        let mut waits = Backoff::default();
        let times: Vec<_> =
            std::iter::from_fn(|| waits.after(&Error::Network("x".into()))).collect();
        assert_eq!(times.len(), LIMIT as usize);
        assert!(
            times
                .iter()
                .all(|t| *t >= Duration::from_secs(2) && *t <= Duration::from_secs(60)),
            "{times:?}"
        );
    }
}
