//! The limit on the files that a process may have open.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that this process requests. A higher one would only make tables larger.
const MAX_OPEN_FILES: u64 = 65_536;

/// The limit at the start of this process, if it was raised.
static AT_START: OnceLock<u64> = OnceLock::new();

/// Raises the limit on open files as far as the system allows. Some systems begin with 256, and
/// every session, connection and program needs several. Child processes get the old limit back.
pub fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let requested = maximum.map_or(MAX_OPEN_FILES, |most| most.min(MAX_OPEN_FILES));
    let Some(before) = current.filter(|before| *before < requested) else {
        return;
    };
    match setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(requested),
            maximum,
        },
    ) {
        Ok(()) => drop(AT_START.set(before)),
        Err(e) => tracing::info!("the limit of {before} open files stays: {e}"),
    }
}

/// Returns the number of files that this process may have open.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile)
        .current
        .unwrap_or(MAX_OPEN_FILES)
}

/// Returns the limit for child processes, which is the one before [`raise`], or `None` if it was
/// not raised.
pub fn of_programs() -> Option<u64> {
    AT_START.get().copied()
}
