//! Sessions in files of this machine: one SQLite file for each, opened by one process at a time, and one index
//! database that can be rebuilt from them.
//!
//! One thread owns every connection (`thread.rs`). Writes are done in order for each session, and hardly wait for
//! what is written about others. What was flushed survives a power cut where the disk honours flushes; what was
//! merely written survives the death of the process.

mod beside;
mod index;
mod lock;
mod migrate;
mod peek;
mod queue;
mod recent;
mod salvage;
mod session;
pub(super) mod takeover;
mod thread;
mod wal;

#[cfg(test)]
mod damage;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod power;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub(super) use thread::work;

/// A path with something after its last letter.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
