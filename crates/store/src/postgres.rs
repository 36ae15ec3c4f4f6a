//! Storage in a PostgreSQL database, for processes on many machines.
//!
//! One thread executes the jobs, over one connection with its own small runtime, so nothing here
//! blocks the thread that reads the clients' messages. Writes of all sessions that arrive while a
//! batch is in flight form the next batch: one statement, one transaction and one round trip.
//!
//! A session belongs to one process by its row in `lease`. Each change of ownership increments the
//! row's `epoch`, and every statement that writes locks the row and checks the epoch: a process
//! that was suspended until another one took its session can no longer write, and receives an
//! error. The time for which a process counts as alive is measured by the database's clock only
//! (`owner.until`).
//!
//! While the database is unreachable, sessions continue in memory up to a limit
//! ([`base::store_location::DatabaseLocation`]).

mod address;
mod backfill;
mod backfill_state;
mod connection;
mod fault;
mod find;
mod fleet;
mod job_queues;
mod lease;
mod leased;
mod pending_index;
mod queries;
mod rows;
mod scheduler;
mod schema;
mod search_index;
mod tls;
mod trigrams;
mod worker;
mod write;

#[cfg(test)]
mod tests;

use base::store_location::DatabaseLocation;
use std::sync::Arc;

use super::StoreMetrics;
use super::job::StoreJob;
use base::channel::Receiver;

/// Executes jobs until the last [`super::Store`] is dropped.
pub(super) fn work(
    location: DatabaseLocation,
    jobs: Receiver<StoreJob>,
    metrics: Arc<StoreMetrics>,
) {
    match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => {
            tokio::task::LocalSet::new().block_on(&runtime, scheduler::run(location, jobs, metrics))
        }
        Err(e) => tracing::error!("no runtime for the store: {e}"),
    }
}
