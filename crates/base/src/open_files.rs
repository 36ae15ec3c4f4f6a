//! The limit on the files that a process may have open.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit this process asks for. A higher one would only make tables larger.
const WANTED: u64 = 65_536;

/// The limit at our start, if it was raised.
static AT_START: OnceLock<u64> = OnceLock::new();

/// Raises the limit on open files as far as the system allows: some begin with 256, and every session, connection
/// and program takes some. Programs we start get the old one back.
pub fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(WANTED, |most| most.min(WANTED));
    let Some(before) = current.filter(|before| *before < wanted) else {
        return;
    };
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        Ok(()) => drop(AT_START.set(before)),
        Err(e) => tracing::info!("the limit of {before} open files stays: {e}"),
    }
}

/// Returns how many files this process may have open.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(WANTED)
}

/// Returns the limit for the programs we start if it differs from ours: the one before [`raise`].
pub fn of_programs() -> Option<u64> {
    AT_START.get().copied()
}
