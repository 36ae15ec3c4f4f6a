//! Our own program, started in between: locks itself up and becomes the command. That way nothing
//! has to be done between fork and exec, where little is safe.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, setsid};
use serde::{Deserialize, Serialize};

use super::{calls, restrict, trial};

/// The hidden word on our own command line.
const WORD: &str = "confined";

/// What is to be done before the command begins.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Orders {
    /// Begin a session: it has no terminal then, and all it starts can be ended together.
    #[serde(default)]
    pub(super) session: bool,
    /// Wait until the first process of this namespace watches over it, and see whether adjutant is still there: what
    /// binds the namespace to its life begins only then.
    #[serde(default)]
    pub(super) watched: bool,
    /// Lock the files with Landlock, but for these.
    pub(super) lock: Option<Vec<PathBuf>>,
    /// Refuse system calls, and give up what a superuser may.
    pub(super) seccomp: Option<calls::Seccomp>,
    /// Keep what root needs to work with files of other users.
    #[serde(default)]
    pub(super) foreign: bool,
    /// End when this process does.
    pub(super) parent: Option<u32>,
    /// How many files it may have open.
    #[serde(default)]
    pub(super) files: Option<u64>,
    /// Have what it writes reported, through the socket that it was started with under this number.
    #[serde(default)]
    pub(super) report: Option<RawFd>,
    /// There is no command: answer reports in the place of adjutant when it has ended. The listeners come through the
    /// socket that it was started with under this number.
    #[serde(default)]
    pub(super) hold: Option<RawFd>,
    /// There is no command: try what is forbidden instead, and report.
    pub(super) trial: Option<trial::Trial>,
}

impl Orders {
    /// As arguments of our own program. Paths that are no Unicode are left out: they are not
    /// writable then.
    pub(super) fn args(mut self) -> Vec<OsString> {
        if let Some(paths) = &mut self.lock {
            paths.retain(|path| path.to_str().is_some());
        }
        self.files = base::open_files::of_programs();
        let orders = serde_json::to_string(&self).unwrap_or_default();
        vec![WORD.into(), orders.into()]
    }
}

/// Does the hidden subcommand, if this is what the process was started for. It does not come back
/// unless the command cannot be started; a lock that does not close is a reason for that.
pub fn confined() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != WORD {
        return None;
    }
    let orders = args.next()?;
    let why = match serde_json::from_str(&orders.to_string_lossy()) {
        Ok(orders) => match become_it(orders, args.collect()) {
            Ok(code) => return Some(code),
            Err(why) => why,
        },
        Err(e) => format!("its orders are not understood: {e}"),
    };
    complain(&why);
    Some(ExitCode::from(126))
}

#[expect(clippy::print_stderr, reason = "the only way to be heard where a command was expected")]
fn complain(why: &str) {
    eprintln!("adjutant: the command was not started in its sandbox: {why}");
}

/// Until process 1 sleeps, which bubblewrap's does when it waits for its child, and nowhere before.
#[cfg(target_os = "linux")]
fn await_watch() -> Result<(), String> {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
    loop {
        let stat = std::fs::read("/proc/1/stat").map_err(|e| format!("/proc/1/stat: {e}"))?;
        let state = stat.rsplit(|byte| *byte == b')').next().and_then(|rest| rest.trim_ascii().first());
        if state == Some(&b'S') {
            return Ok(());
        }
        if std::time::Instant::now() > until {
            return Err("nobody watches over it".into());
        }
        rustix::thread::sched_yield();
    }
}

/// Whether nobody reads any more what it would print: that was adjutant.
#[cfg(target_os = "linux")]
fn is_unheard() -> Result<bool, String> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = std::io::stdout();
    let mut end = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut end, Some(&now)).map_err(|e| format!("its output: {e}"))?;
    Ok(end[0].revents().contains(PollFlags::ERR))
}

#[expect(clippy::disallowed_methods, reason = "this process becomes the program, it starts none")]
fn become_it(orders: Orders, command: Vec<OsString>) -> Result<ExitCode, String> {
    if orders.session {
        setsid().map_err(|e| format!("it has no session of its own: {e}"))?;
    }
    #[cfg(target_os = "linux")]
    if let Some(socket) = orders.hold {
        return super::writes::hold(socket).map(|()| ExitCode::SUCCESS);
    }
    #[cfg(target_os = "linux")]
    if orders.watched {
        await_watch()?;
        if is_unheard()? {
            return Err("adjutant has ended".into());
        }
    }
    #[cfg(target_os = "linux")]
    if let Some(parent) = orders.parent {
        let ended = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        if let Err(e) = ended {
            return Err(format!("it could not be bound to the life of adjutant: {e}"));
        }
        // It may have ended before we said so.
        let now = rustix::process::getppid().map(|id| id.as_raw_nonzero().get());
        if now.and_then(|now| u32::try_from(now).ok()) != Some(parent) {
            return Err("adjutant has ended".into());
        }
    }
    if let Some(files) = orders.files {
        let limit = Rlimit { current: Some(files), maximum: getrlimit(Resource::Nofile).maximum };
        setrlimit(Resource::Nofile, limit).map_err(|e| format!("its limit on open files: {e}"))?;
    }
    if orders.seccomp.is_some() {
        restrict::step_down(orders.foreign)?;
    }
    if let Some(writable) = &orders.lock {
        let read_only = orders.seccomp.as_ref().is_some_and(|seccomp| seccomp.read_only);
        restrict::lock(writable, read_only)?;
    }
    if let Some(seccomp) = &orders.seccomp {
        calls::filter(*seccomp)?;
    }
    #[cfg(target_os = "linux")]
    if let Some(socket) = orders.report {
        super::writes::install(socket)?;
    }
    if let Some(trial) = &orders.trial {
        return Ok(trial.run());
    }
    let Some((program, args)) = command.split_first() else {
        return Err("there is no command".into());
    };
    let failed = std::os::unix::process::CommandExt::exec(std::process::Command::new(program).args(args));
    Err(format!("{}: {failed}", program.to_string_lossy()))
}
