//! Counters of a store, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters that the handles of the store and its thread update.
#[derive(Debug, Default)]
pub struct StoreMetrics {
    flushes: AtomicU64,
    failures: AtomicU64,
    micros: AtomicU64,
    batches: AtomicU64,
    entries: AtomicU64,
    waiting: AtomicU64,
    connections: AtomicU64,
    renewals: AtomicU64,
    late: AtomicU64,
    lost: AtomicU64,
}

/// A counter or gauge with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreMetric {
    pub name: &'static str,
    /// The metric type of Prometheus: `counter` or `gauge`.
    pub kind: &'static str,
    pub help: &'static str,
    pub value: f64,
}

impl StoreMetrics {
    /// Counts a flush and its duration.
    pub(super) fn count_flush(&self, took: Duration, failed: bool) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.failures
            .fetch_add(u64::from(failed), Ordering::Relaxed);
        self.micros.fetch_add(
            u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    /// Counts a batch and its entries.
    pub(super) fn count_batch(&self, entries: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.entries.fetch_add(entries as u64, Ordering::Relaxed);
    }

    /// Sets the number of entries that could not be written yet.
    pub(super) fn set_waiting(&self, entries: usize) {
        self.waiting.store(entries as u64, Ordering::Relaxed);
    }

    pub(super) fn count_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a successful or failed renewal of the leases.
    pub(super) fn count_renewal(&self, succeeded: bool) {
        let counter = if succeeded {
            &self.renewals
        } else {
            &self.late
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a session that another process has taken over.
    pub(super) fn count_lost_lease(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns all numbers, always in the same order.
    pub fn read(&self) -> Vec<StoreMetric> {
        let seconds = Duration::from_micros(self.micros.load(Ordering::Relaxed)).as_secs_f64();
        let number = |name, kind, help, value| StoreMetric {
            name,
            kind,
            help,
            value,
        };
        let count = |name, help, counter: &AtomicU64| {
            let value = u32::try_from(counter.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
            number(name, "counter", help, f64::from(value))
        };
        let waiting = u32::try_from(self.waiting.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        vec![
            count(
                "adjutant_store_flushes_total",
                "Waits until writes were on the disk.",
                &self.flushes,
            ),
            number(
                "adjutant_store_flush_seconds_total",
                "counter",
                "Total duration of these waits.",
                seconds,
            ),
            count(
                "adjutant_store_flushes_failed_total",
                "These waits that failed.",
                &self.failures,
            ),
            count(
                "adjutant_store_batches_total",
                "Transactions that wrote something.",
                &self.batches,
            ),
            count(
                "adjutant_store_entries_total",
                "Messages, parts and records that were written.",
                &self.entries,
            ),
            number(
                "adjutant_store_entries_waiting",
                "gauge",
                "Entries that could not be written yet.",
                f64::from(waiting),
            ),
            count(
                "adjutant_store_connections_total",
                "Connections to the database.",
                &self.connections,
            ),
            count(
                "adjutant_store_lease_renewals_total",
                "Renewals of the sessions' leases.",
                &self.renewals,
            ),
            count(
                "adjutant_store_lease_renewals_failed_total",
                "Renewals that did not succeed.",
                &self.late,
            ),
            count(
                "adjutant_store_leases_lost_total",
                "Sessions that were taken over by others.",
                &self.lost,
            ),
        ]
    }
}
