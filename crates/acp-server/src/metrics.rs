//! Metrics of a server with many clients, for monitoring: [`Metrics`] counts the turns of all sessions, and
//! writes the counters in the text format of Prometheus.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use base::lock::lock;
use session::turn::TurnOutcome;
use transcript::{FaultKind, Usage};

/// A monotonic counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    /// One bucket for each bound, and one above the last.
    buckets: [Counter; BOUNDS.len() + 1],
    /// The sum of all durations, in microseconds.
    sum_micros: Counter,
}

/// The upper bounds of the buckets, in seconds.
const BOUNDS: [f64; 12] = [
    0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0, 1800.0,
];

impl DurationHistogram {
    pub fn add(&self, duration: Duration) {
        let bucket = BOUNDS
            .iter()
            .position(|bound| duration.as_secs_f64() <= *bound)
            .unwrap_or(BOUNDS.len());
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.add(1);
        }
        self.sum_micros
            .add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    fn write(&self, out: &mut String, name: &str, help: &str) {
        write!(out, "# HELP {name} {help}\n# TYPE {name} histogram\n").ok();
        // A bucket counts all durations up to its bound, so it includes the smaller buckets.
        let mut total = 0;
        let bounds = BOUNDS
            .iter()
            .map(ToString::to_string)
            .chain(["+Inf".to_owned()]);
        for (bucket, bound) in self.buckets.iter().zip(bounds) {
            total += bucket.get();
            writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {total}").ok();
        }
        let seconds = Duration::from_micros(self.sum_micros.get()).as_secs_f64();
        write!(out, "{name}_sum {seconds}\n{name}_count {total}\n").ok();
    }
}

/// The metrics of turns.
#[derive(Debug, Default)]
pub struct Metrics {
    /// The time from the prompt to the first update of its turn.
    pub time_to_first_update: DurationHistogram,
    /// The time from the prompt to the end of its turn.
    pub turn_duration: DurationHistogram,
    /// The outcomes of turns, in the order of [`OUTCOME_LABELS`].
    outcomes: [Counter; OUTCOME_LABELS.len()],
    /// The faults that ended turns, in the order of [`FAULT_LABELS`].
    faults: [Counter; FAULT_LABELS.len()],
    // A leaf lock.
    cost_dollars: Mutex<f64>,
    tokens: Counter,
    /// Notified when a turn no longer counts as running.
    pub turn_finished: Notify,
}

/// The label values of outcomes. They are part of the interface to monitoring.
const OUTCOME_LABELS: [&str; 8] = [
    "ended",
    "cancelled",
    "refused",
    "max_tokens",
    "step_limit",
    "steered",
    "failed",
    "rejected",
];
/// The label values of faults.
const FAULT_LABELS: [&str; 7] = [
    "auth",
    "provider",
    "context_overflow",
    "image",
    "interrupted",
    "store",
    "internal",
];

impl Metrics {
    /// Counts the outcome of a turn, and the fault if it failed.
    pub fn count_outcome(&self, outcome: &TurnOutcome) {
        let (kind, fault) = match outcome {
            // A turn that did nothing has ended normally.
            TurnOutcome::Ended | TurnOutcome::NotDone => (0, None),
            TurnOutcome::Cancelled => (1, None),
            TurnOutcome::Refused => (2, None),
            TurnOutcome::MaxTokens => (3, None),
            TurnOutcome::StepLimit => (4, None),
            TurnOutcome::Steered => (5, None),
            TurnOutcome::Failed(fault) => (6, Some(fault.kind)),
            TurnOutcome::Rejected => (7, None),
        };
        let fault = fault.map(|kind| match kind {
            FaultKind::Auth => 0,
            FaultKind::Provider => 1,
            FaultKind::ContextOverflow => 2,
            FaultKind::Image => 3,
            FaultKind::Interrupted => 4,
            FaultKind::Store => 5,
            FaultKind::Internal => 6,
        });
        self.outcomes[kind].add(1);
        if let Some(fault) = fault {
            self.faults[fault].add(1);
        }
    }

    /// Adds to the cost, in US dollars. Zero and negative amounts are ignored.
    pub fn add_cost(&self, dollars: f64) {
        if dollars > 0.0 {
            *lock(&self.cost_dollars) += dollars;
        }
    }

    /// Adds the input and output tokens that a turn and its subagents have used.
    pub fn add_tokens(&self, usage: &Usage) {
        self.tokens.add(usage.context());
    }

    /// Writes the metrics in the text format of Prometheus.
    pub fn write(&self, out: &mut String) {
        let mut family =
            |name: &str, help: &str, label: &str, kinds: &[&str], counters: &[Counter]| {
                write!(out, "# HELP {name} {help}\n# TYPE {name} counter\n").ok();
                for (kind, counter) in kinds.iter().zip(counters) {
                    writeln!(out, "{name}{{{label}=\"{kind}\"}} {}", counter.get()).ok();
                }
            };
        family(
            "adjutant_turns_total",
            "Turns that have ended, by outcome.",
            "end",
            &OUTCOME_LABELS,
            &self.outcomes,
        );
        family(
            "adjutant_faults_total",
            "Faults that ended turns, by kind.",
            "kind",
            &FAULT_LABELS,
            &self.faults,
        );
        let name = "adjutant_cost_dollars_total";
        write!(
            out,
            "# HELP {name} US dollars spent, where the price is known.\n# TYPE {name} counter\n"
        )
        .ok();
        writeln!(out, "{name} {}", *lock(&self.cost_dollars)).ok();
        let name = "adjutant_tokens_total";
        write!(
            out,
            "# HELP {name} Tokens of requests to models in turns that have ended, in and out.\n# TYPE {name} counter\n"
        )
        .ok();
        writeln!(out, "{name} {}", self.tokens.get()).ok();
        self.time_to_first_update.write(
            out,
            "adjutant_first_update_seconds",
            "From a prompt to the first update of its turn.",
        );
        self.turn_duration.write(
            out,
            "adjutant_turn_seconds",
            "From a prompt to the end of its turn.",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_written_in_prometheus_format() {
        let metrics = Metrics::default();
        metrics.count_outcome(&TurnOutcome::Ended);
        metrics.count_outcome(&TurnOutcome::Ended);
        metrics.add_cost(0.25);
        metrics.add_cost(-1.0);
        metrics.add_tokens(&Usage {
            input: 5,
            cache_read: 20,
            output: 3,
            ..Usage::default()
        });
        metrics.time_to_first_update.add(Duration::from_millis(3));
        metrics.time_to_first_update.add(Duration::from_secs(4000));
        let mut out = String::new();
        metrics.write(&mut out);
        for line in [
            "adjutant_turns_total{end=\"ended\"} 2",
            "adjutant_cost_dollars_total 0.25",
            "adjutant_tokens_total 28",
            "adjutant_first_update_seconds_bucket{le=\"0.001\"} 0",
            "adjutant_first_update_seconds_bucket{le=\"0.005\"} 1",
            "adjutant_first_update_seconds_bucket{le=\"1800\"} 1",
            "adjutant_first_update_seconds_bucket{le=\"+Inf\"} 2",
            "adjutant_first_update_seconds_count 2",
        ] {
            assert!(
                out.lines().any(|written| written == line),
                "{line} is missing in\n{out}"
            );
        }
    }
}
