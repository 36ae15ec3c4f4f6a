//! Decides whether a failed request is repeated, and after which delay.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

use providers::Error;

/// The maximum number of repetitions of a request.
const MAX_RETRIES: u32 = 5;

/// The delays if there is no connection: a port of this machine at which no program listens, a host
/// that is unknown or cannot be reached. A server that is just starting is there by then; one that
/// is not running does not start by waiting, and a wrong name does not become a right one.
const UNCONNECTED_DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// The longest delay that a provider may request. A longer one ends the turn with the requested
/// time in the error.
const MAX_REQUESTED_DELAY: Duration = Duration::from_secs(60);

/// A repetition of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    pub delay: Duration,
    /// The number of repetitions after errors of this kind.
    pub limit: u32,
}

/// The delays between attempts: up to 2 s, doubling, at most 30 s each. A random part of at most
/// half of each is left out.
pub struct Backoff {
    waits: backon::ExponentialBackoff,
    /// The repetitions so far.
    repetitions: usize,
    /// Those of them without a connection, as in [`UNCONNECTED_DELAYS`].
    unconnected: usize,
    /// True if the turn has had a connection to the provider. If it is lost, the network is waited
    /// for as long as a busy provider.
    has_connected: bool,
}

impl Backoff {
    /// Creates the delays of a request. `has_connected`: an earlier request of the turn has had an
    /// answer.
    pub fn new(has_connected: bool) -> Self {
        // The jitter of `backon` adds up to the delay itself, so these are the lower halves.
        let waits = ExponentialBuilder::new()
            .with_min_delay(Duration::from_secs(1))
            .with_max_delay(Duration::from_secs(15))
            .with_max_times(MAX_RETRIES as usize)
            .with_jitter();
        Self {
            waits: waits.build(),
            repetitions: 0,
            unconnected: 0,
            has_connected,
        }
    }

    /// Returns the next repetition; `None` to give up. A delay requested by the provider takes
    /// precedence.
    pub fn next_retry(&mut self, error: &Error) -> Option<Retry> {
        if !error.is_transient() {
            return None;
        }
        let ours = self.waits.next()?;
        let before = self.repetitions;
        self.repetitions += 1;
        let is_unconnected = match error {
            // A server that broke off and starts again is waited for as long as one that starts.
            Error::ConnectionRefused(_) => true,
            Error::Unreachable(_) => !self.has_connected,
            _ => {
                self.has_connected = true;
                false
            }
        };
        if is_unconnected {
            let delay = *UNCONNECTED_DELAYS.get(self.unconnected)?;
            let limit = before - self.unconnected + UNCONNECTED_DELAYS.len();
            self.unconnected += 1;
            let limit = u32::try_from(limit).map_or(MAX_RETRIES, |limit| limit.min(MAX_RETRIES));
            return Some(Retry { delay, limit });
        }
        let delay = match error.retry_after() {
            Some(theirs) if theirs > MAX_REQUESTED_DELAY => return None,
            Some(theirs) => theirs,
            None => ours,
        };
        Some(Retry {
            delay,
            limit: MAX_RETRIES,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(error: &Error) -> Vec<Duration> {
        let mut waits = Backoff::new(false);
        std::iter::from_fn(|| waits.next_retry(error))
            .map(|retry| retry.delay)
            .collect()
    }

    #[test]
    fn requested_delay_is_respected_up_to_limit() {
        let limited = |retry_after| Error::RateLimited {
            message: "x".into(),
            retry_after,
        };
        let mut waits = Backoff::new(false);
        let requested = Duration::from_secs(7);
        assert_eq!(
            waits.next_retry(&limited(Some(requested))),
            Some(Retry {
                delay: requested,
                limit: MAX_RETRIES
            })
        );
        assert_eq!(
            waits.next_retry(&limited(Some(Duration::from_secs(3600)))),
            None
        );
        assert_eq!(waits.next_retry(&Error::Auth("x".into())), None);
    }

    /// Processes that failed at the same time must not all retry at the same time.
    #[test]
    fn delays_are_random() {
        let broken = Error::Network("x".into());
        assert_ne!(delays(&broken), delays(&broken));
    }

    #[test]
    fn delays_double_up_to_half_a_minute() {
        for _ in 0..100 {
            let times = delays(&Error::Network("x".into()));
            assert_eq!(times.len(), MAX_RETRIES as usize);
            for (time, most) in times.iter().zip([2, 4, 8, 16, 30]) {
                let most = Duration::from_secs(most);
                assert!(*time >= most / 2 && *time <= most, "{times:?}");
            }
        }
    }

    #[test]
    fn missing_connection_is_reported_after_three_seconds() {
        let refused = Error::ConnectionRefused("x".into());
        let unreachable = Error::Unreachable("x".into());
        assert_eq!(delays(&refused), UNCONNECTED_DELAYS);
        assert_eq!(delays(&unreachable), UNCONNECTED_DELAYS);
        // A connection that was there may come back.
        let mut waits = Backoff::new(true);
        let count = std::iter::from_fn(|| waits.next_retry(&unreachable)).count();
        assert_eq!(count, MAX_RETRIES as usize);
        let mut waits = Backoff::new(true);
        let count = std::iter::from_fn(|| waits.next_retry(&refused)).count();
        assert_eq!(count, UNCONNECTED_DELAYS.len());
        let mut waits = Backoff::new(false);
        let broken = Error::Network("x".into());
        assert!(waits.next_retry(&broken).is_some());
        let limits = std::iter::from_fn(|| waits.next_retry(&refused)).map(|retry| retry.limit);
        assert_eq!(limits.collect::<Vec<_>>(), [3, 3]);
        let mut waits = Backoff::new(false);
        for _ in 0..MAX_RETRIES {
            assert!(waits.next_retry(&broken).is_some());
        }
        assert_eq!(waits.next_retry(&refused), None);
        assert_eq!(waits.next_retry(&broken), None);
    }
}
