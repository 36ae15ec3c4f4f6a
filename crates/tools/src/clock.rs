//! How long somebody else's program may take over a call of ours: an MCP server, a tool of the project's own.

use std::time::Duration;

use tokio::time::Instant;

/// How many times its limit a call may take, however often it says that it goes on: an hour where the limit is a
/// minute.
const ALTOGETHER: u32 = 60;

/// When a call is given up: after its limit without a word, or after sixty times its limit in all. While the user
/// thinks about a question of the call it stands still; a question that answers itself gains the call nothing.
#[derive(Debug, Clone, Copy)]
pub struct CallClock {
    limit: Duration,
    /// Until when something has to be heard.
    word: Instant,
    end: Instant,
    /// Since when the user has been asked.
    asked: Option<Instant>,
}

impl CallClock {
    pub fn start(limit: Duration, now: Instant) -> Self {
        Self { limit, word: now + limit, end: now + limit.saturating_mul(ALTOGETHER), asked: None }
    }

    /// The call has said that it goes on.
    pub fn heard(&mut self, now: Instant) {
        self.word = now + self.limit;
    }

    /// Whether the user is being asked now.
    pub fn asking(&mut self, asking: bool, now: Instant) {
        self.heard(now);
        match self.asked {
            None if asking => self.asked = Some(now),
            Some(since) if !asking => {
                self.end += now - since;
                self.asked = None;
            }
            _ => {}
        }
    }

    /// When the call is given up; never while the user is asked.
    pub fn until(&self) -> Option<Instant> {
        self.asked.is_none().then(|| self.word.min(self.end))
    }

    /// Waits until the call is to be given up.
    pub async fn run_out(&self) {
        match self.until() {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }

    /// Why it was given up, as the end of a sentence.
    pub fn why(&self, now: Instant) -> String {
        match now >= self.end {
            true => format!("it took longer than {} s in all", self.limit.saturating_mul(ALTOGETHER).as_secs_f64()),
            false => format!("nothing was heard of it for {} s", self.limit.as_secs_f64()),
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

    /// What is heard in which second, and in which second a call with a limit of ten is given up.
    #[test]
    fn no_call_gains_time_but_while_the_user_thinks() {
        let words: Vec<_> = (1..200).map(|n| (n * 5, Word)).collect();
        let questions: Vec<_> = (1..500).flat_map(|n| [(n * 2, Asks), (n * 2, Answered)]).collect();
        let table = [
            ("silence", vec![], Some(10)),
            ("one word", vec![(9, Word)], Some(19)),
            ("words for ever", words, Some(600)),
            ("the user thinks", vec![(5, Asks)], None),
            ("the user has thought", vec![(5, Asks), (1005, Answered)], Some(1015)),
            ("questions that answer themselves", questions, Some(600)),
            ("a word while the user thinks", vec![(5, Asks), (500, Word)], None),
        ];
        for (name, heard, expected) in table {
            let start = Instant::now();
            let mut clock = CallClock::start(Duration::from_secs(10), start);
            for (second, what) in heard {
                let now = start + Duration::from_secs(second);
                if clock.until().is_some_and(|until| until <= now) {
                    break;
                }
                match what {
                    Word => clock.heard(now),
                    Asks => clock.asking(true, now),
                    Answered => clock.asking(false, now),
                }
            }
            assert_eq!(clock.until().map(|until| (until - start).as_secs()), expected, "{name}");
        }
    }

    #[test]
    fn a_thought_of_the_user_is_added_to_the_whole() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut clock = CallClock::start(Duration::from_secs(10), start);
        clock.asking(true, after(1));
        clock.asking(false, after(1001));
        (1..=400).for_each(|n| clock.heard(after(1001 + n * 2)));
        assert_eq!(clock.until(), Some(after(1600)));
        assert_eq!(clock.why(after(1599)), "nothing was heard of it for 10 s");
        assert_eq!(clock.why(after(1600)), "it took longer than 600 s in all");
    }
}
