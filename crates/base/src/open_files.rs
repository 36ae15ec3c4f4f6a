//! The limit on the files that a process may have open, and its division among their uses.
//!
//! Sockets of clients, sessions and programs each have a share, so that none of them can take the
//! files of a running turn: a server with too many clients refuses clients, one with too many
//! sessions refuses sessions, and a command waits until another one has ended.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
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

/// Returns the limit for child processes, which is the one before [`raise`], or `None` if it was
/// not raised.
pub fn of_programs() -> Option<u64> {
    AT_START.get().copied()
}

/// The descriptors of everything that has no share: standard streams, the runtime, the log, caches,
/// the files that tools read, and a program that is being started.
const UNSHARED: u64 = 32;

/// The minimum share of turns, in files.
const MIN_TURNS: u64 = 44;

/// The descriptors of a running program: its pipes, its process and the reports of its writes.
pub const PER_PROGRAM: u64 = 4;

/// The sockets that a server keeps for monitoring and for refusals, if it has enough.
const MAX_SPARE_SOCKETS: u64 = 32;

/// The division of the files that a process may have open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileBudget {
    /// All files.
    pub limit: u64,
    /// The sockets of clients.
    pub sockets: u64,
    /// The sockets beyond these, for monitoring and for refusals.
    pub spare_sockets: u64,
    /// The files of sessions: locks, databases, and in a server the connections to models.
    pub sessions: u64,
    /// The files that an open session needs, even if its database is closed.
    pub per_session: u64,
    /// The maximum number of programs that run at the same time.
    pub programs: usize,
}

impl FileBudget {
    /// Divides the files of a process that serves clients on at most `sockets` sockets, the spare
    /// ones included; 0 means that it serves one client on its standard streams.
    fn new(limit: u64, sockets: u64) -> Self {
        let sockets = sockets.min(limit / 2);
        // Few clients must not mean few spare sockets: monitoring does not depend on their number.
        let spare_sockets = MAX_SPARE_SOCKETS.min(limit / 16).min(sockets);
        let rest = limit - sockets;
        // A client on standard streams has few turns at a time, and may have many sessions open.
        let turns = if sockets > 0 { rest / 2 } else { rest / 8 };
        let turns = turns.max(MIN_TURNS).min(rest);
        let programs = (turns.saturating_sub(UNSHARED) / PER_PROGRAM).max(1);
        Self {
            limit,
            sockets: sockets - spare_sockets,
            spare_sockets,
            sessions: rest - turns,
            per_session: if sockets > 0 { 2 } else { 1 },
            programs: usize::try_from(programs).unwrap_or(usize::MAX),
        }
    }
}

/// The sockets that this process serves, the spare ones included; unset means none.
static SOCKETS: OnceLock<u64> = OnceLock::new();

/// Declares that this process serves up to `sockets` clients, and returns the budget. Only the
/// first call has an effect; it has to be after [`raise`], and before a program is started.
pub fn serve(sockets: u64) -> FileBudget {
    SOCKETS.get_or_init(|| sockets.saturating_add(MAX_SPARE_SOCKETS));
    budget()
}

/// Returns the division of the files of this process.
pub fn budget() -> FileBudget {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    let limit = LIMIT.get_or_init(|| {
        let limit = getrlimit(Resource::Nofile);
        limit.current.unwrap_or(MAX_OPEN_FILES)
    });
    FileBudget::new(*limit, SOCKETS.get().copied().unwrap_or_default())
}

/// The files in the share of sessions that this process has open, for all users.
static OF_SESSIONS: AtomicU64 = AtomicU64::new(0);

/// Those of them that can be closed at any time.
static CACHED: AtomicU64 = AtomicU64::new(0);

/// Files in the share of sessions. Dropping them frees them.
#[derive(Debug)]
pub struct SessionFiles {
    /// The number of files.
    files: u64,
    /// True if they can be closed at any time.
    is_cached: bool,
}

impl SessionFiles {
    /// Takes files that a session cannot do without. Returns `None` if the share has no more.
    pub fn needed(files: u64) -> Option<Self> {
        let share = budget().sessions;
        let cached = CACHED.load(Ordering::Relaxed);
        let taken = OF_SESSIONS.try_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            (used.saturating_sub(cached) + files <= share).then_some(used + files)
        });
        taken.ok().map(|_| Self {
            files,
            is_cached: false,
        })
    }

    /// Takes files that are open already or cannot be refused, even if the share has no more.
    pub fn take_unconditionally(files: u64) -> Self {
        OF_SESSIONS.fetch_add(files, Ordering::Relaxed);
        Self {
            files,
            is_cached: false,
        }
    }

    /// Takes files that can be closed at any time, even if the share has no more: [`surplus`] tells
    /// how many have to be closed then.
    pub fn cached(files: u64) -> Self {
        OF_SESSIONS.fetch_add(files, Ordering::Relaxed);
        CACHED.fetch_add(files, Ordering::Relaxed);
        Self {
            files,
            is_cached: true,
        }
    }
}

impl Drop for SessionFiles {
    fn drop(&mut self) {
        OF_SESSIONS.fetch_sub(self.files, Ordering::Relaxed);
        if self.is_cached {
            CACHED.fetch_sub(self.files, Ordering::Relaxed);
        }
    }
}

/// Returns the number of files in the share of sessions that cannot be closed at any time.
pub fn in_use() -> u64 {
    let used = OF_SESSIONS.load(Ordering::Relaxed);
    used.saturating_sub(CACHED.load(Ordering::Relaxed))
}

/// Returns whether an error means that this process or the system has too many files or processes,
/// or too little memory, at present.
pub fn is_exhaustion(e: &io::Error) -> bool {
    let passing = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
    Errno::from_io_error(e).is_some_and(|errno| passing.contains(&errno))
}

/// Returns the number of files that sessions have open beyond their share.
pub fn surplus() -> u64 {
    OF_SESSIONS
        .load(Ordering::Relaxed)
        .saturating_sub(budget().sessions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fit_into_the_limit() {
        for limit in [128, 256, 300, 1_024, 4_096, 65_536] {
            for sockets in [0, 1, 40, 500, 2_032, 100_000] {
                let budget = FileBudget::new(limit, sockets);
                let programs = u64::try_from(budget.programs).unwrap() * PER_PROGRAM;
                let sum = budget.sockets + budget.spare_sockets + budget.sessions + UNSHARED;
                assert!(sum + programs <= limit, "{limit} {sockets}: {budget:?}");
                assert!(budget.sockets <= sockets, "{budget:?}");
                assert!(budget.programs > 0, "{budget:?}");
            }
        }
        let stdio = FileBudget::new(256, 0);
        assert_eq!((stdio.sessions, stdio.programs), (212, 3));
        let server = FileBudget::new(1_024, 2_032);
        assert_eq!(
            (server.sockets, server.spare_sockets, server.sessions),
            (480, 32, 256)
        );
        assert_eq!(server.programs, 56);
        let small = FileBudget::new(65_536, 36);
        assert_eq!((small.sockets, small.spare_sockets), (4, 32));
    }
}
