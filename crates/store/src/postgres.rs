//! Sessions in a PostgreSQL database, for processes on many machines.
//!
//! One thread does the jobs, over one connection with its own small runtime: nothing here waits on the thread that
//! reads what editors say. What is written about any session while a batch is on its way goes with the next one: a
//! statement, a transaction and a round trip for all of them.
//!
//! A session is one process's by its row in `lease`. Each change of hands counts its `epoch` up, and each statement
//! that writes locks the row and looks at the epoch: whoever was stopped for so long that somebody else took the
//! session writes nothing any more, and is told. How long a process is taken to be alive is measured by the clock of
//! the database alone (`owner.until`).
//!
//! While the database is away, sessions go on in memory up to a bound ([`base::store_place::DatabasePlace`]).

mod fault;
mod fill;
mod filling;
mod find;
mod fleet;
mod grams;
mod keeper;
mod lease;
mod lines;
mod link;
mod ours;
mod own_index;
mod place;
mod read;
mod rounds;
mod rows;
mod schema;
mod tls;
mod words;
mod write;

#[cfg(test)]
mod tests;

use base::store_place::DatabasePlace;
use std::sync::Arc;

use super::StoreMeters;
use super::job::StoreJob;
use base::channel::Receiver;

/// Does jobs until the last [`super::Store`] is gone.
pub(super) fn work(place: DatabasePlace, jobs: Receiver<StoreJob>, meters: Arc<StoreMeters>) {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => tokio::task::LocalSet::new().block_on(&runtime, rounds::run(place, jobs, meters)),
        Err(e) => tracing::error!("no runtime for the store: {e}"),
    }
}
