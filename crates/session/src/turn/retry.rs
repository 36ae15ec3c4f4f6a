//! When a failed request is repeated, and how long to wait before.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

use providers::Error;

/// How often a request is repeated at most.
pub const LIMIT: u32 = 5;

/// The longest wait a provider may ask for. Longer ones end the turn with the time it named.
const PATIENCE: Duration = Duration::from_secs(60);

/// The waits between attempts: 2 s, doubling, with jitter, at most 30 s each.
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
        Self { waits: waits.build() }
    }
}

impl Backoff {
    /// How long to wait before asking again; none: give up. The provider's own wish wins over ours.
    pub fn after(&mut self, error: &Error) -> Option<Duration> {
        if !error.is_transient() {
            return None;
        }
        let ours = self.waits.next()?;
        match error.after() {
            Some(theirs) if theirs > PATIENCE => None,
            Some(theirs) => Some(theirs),
            None => Some(ours),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_providers_wish_is_honoured_up_to_a_limit() {
        let limited = |after| Error::RateLimited { message: "x".into(), after };
        let mut waits = Backoff::default();
        assert_eq!(waits.after(&limited(Some(Duration::from_secs(7)))), Some(Duration::from_secs(7)));
        assert_eq!(waits.after(&limited(Some(Duration::from_secs(3600)))), None);
        assert_eq!(waits.after(&Error::Auth("x".into())), None);
    }

    /// Processes that failed together must not all come back together.
    #[test]
    fn no_two_wait_alike() {
        let times = || {
            let mut waits = Backoff::default();
            std::iter::from_fn(|| waits.after(&Error::Network("x".into()))).collect::<Vec<_>>()
        };
        assert_ne!(times(), times());
    }

    #[test]
    fn it_gives_up_after_five() {
        let mut waits = Backoff::default();
        let times: Vec<_> = std::iter::from_fn(|| waits.after(&Error::Network("x".into()))).collect();
        assert_eq!(times.len(), LIMIT as usize);
        assert!(times.iter().all(|t| *t >= Duration::from_secs(2) && *t <= Duration::from_secs(60)), "{times:?}");
    }
}
