//! The time limit of calls to external programs: MCP servers and a project's own tools.

use std::time::Duration;

use tokio::time::Instant;

/// The maximum duration of a call as a multiple of its limit, however often it reports progress: an
/// hour for a limit of a minute.
const TOTAL_FACTOR: u32 = 60;

/// The deadline of a call: its limit after the last sign of progress, and `TOTAL_FACTOR` times
/// its limit in all. It is suspended while the user answers a question of the call. A question
/// counts as progress, but extends the total only by the time of the answer.
#[derive(Debug, Clone, Copy)]
pub struct CallTimeout {
    /// The maximum time without progress.
    limit: Duration,
    /// The time by which progress must be reported.
    progress_deadline: Instant,
    /// The time by which the call must end, whatever its progress.
    total_deadline: Instant,
    /// The time since which the call waits for the user; `None` if no question is open.
    waiting_since: Option<Instant>,
}

impl CallTimeout {
    pub fn start(limit: Duration, now: Instant) -> Self {
        Self {
            limit,
            progress_deadline: now + limit,
            total_deadline: now + limit.saturating_mul(TOTAL_FACTOR),
            waiting_since: None,
        }
    }

    /// Records that the call has reported progress.
    pub fn record_progress(&mut self, now: Instant) {
        self.progress_deadline = now + self.limit;
    }

    /// Records whether the user is being asked now.
    pub fn set_waits_for_user(&mut self, waits: bool, now: Instant) {
        self.record_progress(now);
        match self.waiting_since {
            None if waits => self.waiting_since = Some(now),
            Some(since) if !waits => {
                self.total_deadline += now - since;
                self.waiting_since = None;
            }
            _ => {}
        }
    }

    /// Returns the deadline; `None` while the user is being asked.
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting_since
            .is_none()
            .then(|| self.progress_deadline.min(self.total_deadline))
    }

    /// Waits until the deadline; forever while the user is being asked.
    pub async fn run_out(&self) {
        match self.deadline() {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }

    /// Returns the reason for the timeout, as the end of a sentence.
    pub fn why(&self, now: Instant) -> String {
        if now >= self.total_deadline {
            format!(
                "it took longer than {} s in all",
                self.limit.saturating_mul(TOTAL_FACTOR).as_secs_f64()
            )
        } else {
            format!("it reported nothing for {} s", self.limit.as_secs_f64())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Heard {
        Word,
        Asks,
        Answered,
    }
    use Heard::{Answered, Asks, Word};

    /// The events by second, and the second in which a call with a limit of ten is given up.
    #[test]
    fn only_user_questions_extend_the_deadline() {
        let words: Vec<_> = (1..200).map(|n| (n * 5, Word)).collect();
        let questions: Vec<_> = (1..500)
            .flat_map(|n| [(n * 2, Asks), (n * 2, Answered)])
            .collect();
        let table = [
            ("silence", vec![], Some(10)),
            ("one word", vec![(9, Word)], Some(19)),
            ("words for ever", words, Some(600)),
            ("the user thinks", vec![(5, Asks)], None),
            (
                "the user has thought",
                vec![(5, Asks), (1005, Answered)],
                Some(1015),
            ),
            ("questions that answer themselves", questions, Some(600)),
            (
                "a word while the user thinks",
                vec![(5, Asks), (500, Word)],
                None,
            ),
        ];
        for (name, heard, expected) in table {
            let start = Instant::now();
            let mut clock = CallTimeout::start(Duration::from_secs(10), start);
            for (second, what) in heard {
                let now = start + Duration::from_secs(second);
                if clock.deadline().is_some_and(|until| until <= now) {
                    break;
                }
                match what {
                    Word => clock.record_progress(now),
                    Asks => clock.set_waits_for_user(true, now),
                    Answered => clock.set_waits_for_user(false, now),
                }
            }
            assert_eq!(
                clock.deadline().map(|until| (until - start).as_secs()),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn time_of_questions_is_added_to_the_total() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut clock = CallTimeout::start(Duration::from_secs(10), start);
        clock.set_waits_for_user(true, after(1));
        clock.set_waits_for_user(false, after(1001));
        (1..=400).for_each(|n| clock.record_progress(after(1001 + n * 2)));
        assert_eq!(clock.deadline(), Some(after(1600)));
        assert_eq!(clock.why(after(1599)), "it reported nothing for 10 s");
        assert_eq!(clock.why(after(1600)), "it took longer than 600 s in all");
    }
}
