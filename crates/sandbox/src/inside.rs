//! The hidden subcommand of adjutant that is started in place of a command, restricts itself and
//! executes the command. Nothing has to be done between fork and exec, where few operations are
//! safe.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, setsid};
use serde::{Deserialize, Serialize};

use super::{calls, restrict, trial};

/// The hidden subcommand.
const SUBCOMMAND: &str = "confined";

/// The steps before the command is executed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct LaunchSpec {
    /// Begin a session, so that the command has no terminal and all its processes can be ended
    /// together.
    #[serde(default)]
    pub(super) session: bool,
    /// Wait until the first process of this namespace waits for its child, and check that adjutant
    /// still lives: the binding of the namespace to adjutant's life begins only then.
    #[serde(default)]
    pub(super) watched: bool,
    /// Restrict writing to these paths with Landlock.
    #[serde(rename = "lock")]
    pub(super) writable: Option<Vec<PathBuf>>,
    /// Refuse system calls, and drop the privileges of root.
    pub(super) seccomp: Option<calls::Seccomp>,
    /// Keep the capabilities that root needs to work with files of other users.
    #[serde(default)]
    pub(super) foreign: bool,
    /// End when this process ends.
    pub(super) parent: Option<u32>,
    /// Set the limit on open files.
    #[serde(default)]
    pub(super) files: Option<u64>,
    /// Report writes through the socket that was inherited under this number.
    #[serde(default)]
    pub(super) report: Option<RawFd>,
    /// Execute no command, but wait for the end of adjutant, and end its programs.
    #[serde(default)]
    pub(super) hold: Option<HolderSpec>,
    /// Execute no command, but attempt forbidden operations and report the results.
    pub(super) trial: Option<trial::Trial>,
}

/// The input of the process that remains when adjutant has ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct HolderSpec {
    /// The number under which it inherits a socket to adjutant. Listeners arrive through it.
    pub(super) socket: RawFd,
    /// The process id of adjutant.
    pub(super) adjutant: u32,
}

impl LaunchSpec {
    /// Returns the arguments for adjutant's executable. Paths that are not Unicode are left out,
    /// which makes them read-only.
    pub(super) fn args(mut self) -> Vec<OsString> {
        if let Some(paths) = &mut self.writable {
            paths.retain(|path| path.to_str().is_some());
        }
        self.files = base::open_files::of_programs();
        let spec = serde_json::to_string(&self).unwrap_or_default();
        vec![SUBCOMMAND.into(), spec.into()]
    }
}

/// Runs the hidden subcommand, if the process was started for it. Returns only if the command
/// cannot be started, for example because a restriction cannot be applied, or if the subcommand has
/// no command.
pub fn confined() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != SUBCOMMAND {
        return None;
    }
    let spec = args.next()?;
    let why = match serde_json::from_str(&spec.to_string_lossy()) {
        Ok(spec) => match become_command(spec, args.collect()) {
            Ok(code) => return Some(code),
            Err(why) => why,
        },
        Err(e) => format!("its orders are not understood: {e}"),
    };
    print_failure(&why);
    Some(ExitCode::from(126))
}

#[expect(
    clippy::print_stderr,
    reason = "the only way to be heard where a command was expected"
)]
fn print_failure(why: &str) {
    eprintln!("adjutant: the command was not started in its sandbox: {why}");
}

/// Waits until process 1 sleeps. The one of bubblewrap does that when it waits for its child, and
/// not earlier.
#[cfg(target_os = "linux")]
fn wait_for_guard() -> Result<(), String> {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    loop {
        let stat = std::fs::read("/proc/1/stat").map_err(|e| format!("/proc/1/stat: {e}"))?;
        let state = stat
            .rsplit(|byte| *byte == b')')
            .next()
            .and_then(|rest| rest.trim_ascii().first());
        if state == Some(&b'S') {
            return Ok(());
        }
        if std::time::Instant::now() > deadline {
            return Err("no process supervises it".into());
        }
        rustix::thread::sched_yield();
    }
}

/// Returns whether adjutant, the reader of this process's output, has ended.
#[cfg(target_os = "linux")]
fn is_output_closed() -> Result<bool, String> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = std::io::stdout();
    let mut end = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut end, Some(&now)).map_err(|e| format!("its output: {e}"))?;
    Ok(end[0].revents().contains(PollFlags::ERR))
}

#[expect(
    clippy::disallowed_methods,
    reason = "this process becomes the program, it starts none"
)]
fn become_command(spec: LaunchSpec, command: Vec<OsString>) -> Result<ExitCode, String> {
    if spec.session {
        setsid().map_err(|e| format!("it has no session of its own: {e}"))?;
    }
    #[cfg(target_os = "linux")]
    if let Some(HolderSpec { socket, adjutant }) = spec.hold {
        return super::writes::hold(socket, adjutant).map(|()| ExitCode::SUCCESS);
    }
    #[cfg(target_os = "linux")]
    if spec.watched {
        wait_for_guard()?;
        if is_output_closed()? {
            return Err("adjutant has ended".into());
        }
    }
    #[cfg(target_os = "linux")]
    if let Some(parent) = spec.parent {
        let ended =
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        if let Err(e) = ended {
            return Err(format!(
                "it could not be bound to the life of adjutant: {e}"
            ));
        }
        // It may have ended before the signal was set.
        let now = rustix::process::getppid().map(|id| id.as_raw_nonzero().get());
        if now.and_then(|now| u32::try_from(now).ok()) != Some(parent) {
            return Err("adjutant has ended".into());
        }
    }
    if let Some(files) = spec.files {
        let limit = Rlimit {
            current: Some(files),
            maximum: getrlimit(Resource::Nofile).maximum,
        };
        setrlimit(Resource::Nofile, limit).map_err(|e| format!("its limit on open files: {e}"))?;
    }
    if spec.seccomp.is_some() {
        restrict::step_down(spec.foreign)?;
    }
    if let Some(writable) = &spec.writable {
        let read_only = spec
            .seccomp
            .as_ref()
            .is_some_and(|seccomp| seccomp.read_only);
        restrict::lock(writable, read_only)?;
    }
    if let Some(seccomp) = &spec.seccomp {
        calls::filter(*seccomp)?;
    }
    #[cfg(target_os = "linux")]
    if let Some(socket) = spec.report {
        super::writes::install(socket)?;
    }
    if let Some(trial) = &spec.trial {
        return Ok(trial.run());
    }
    let Some((program, args)) = command.split_first() else {
        return Err("there is no command".into());
    };
    let failed =
        std::os::unix::process::CommandExt::exec(std::process::Command::new(program).args(args));
    Err(format!("{}: {failed}", program.to_string_lossy()))
}
