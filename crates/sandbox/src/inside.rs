//! The hidden subcommands with which adjutant starts its own executable: for a trial of a sandbox,
//! for the process that remains when adjutant is killed, and as the launcher, if the one in
//! memory cannot be executed.

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(target_os = "linux")]
use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::trial::Trial;

/// The subcommand that restricts itself and becomes a command (`launcher.rs`).
#[cfg(target_os = "linux")]
pub(super) const LAUNCH: &str = "confined";

/// The subcommand that attempts forbidden operations, and reports the results.
const TRIAL: &str = "confined-trial";

/// The subcommand that waits for the end of adjutant, and ends its programs.
#[cfg(target_os = "linux")]
const HOLD: &str = "confined-holder";

/// The input of the process that remains when adjutant has ended.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct HolderSpec {
    /// The number under which it inherits a socket to adjutant. Listeners arrive through it.
    pub(super) socket: std::os::fd::RawFd,
    /// The process id of adjutant.
    pub(super) adjutant: u32,
}

/// Returns the arguments with which adjutant's executable runs a trial.
pub(super) fn trial_args(trial: &Trial) -> [OsString; 2] {
    args(TRIAL, trial)
}

/// Returns the arguments with which adjutant's executable becomes a holder.
#[cfg(target_os = "linux")]
pub(super) fn holder_args(spec: &HolderSpec) -> [OsString; 2] {
    args(HOLD, spec)
}

/// Returns the arguments of a subcommand with its input as JSON.
fn args(subcommand: &str, input: &impl Serialize) -> [OsString; 2] {
    let input = serde_json::to_string(input).unwrap_or_default();
    [subcommand.into(), input.into()]
}

/// Runs a hidden subcommand, if the process was started for one; otherwise returns `None`.
pub fn run_hidden_subcommand() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let subcommand = args.next()?;
    #[cfg(target_os = "linux")]
    if subcommand == LAUNCH {
        return Some(super::launcher::launch(args));
    }
    #[cfg(target_os = "linux")]
    if subcommand == HOLD {
        return Some(exit_code(input(args).and_then(hold)));
    }
    if subcommand == TRIAL {
        return Some(exit_code(input(args).and_then(|trial: Trial| trial.run())));
    }
    None
}

/// Runs the subcommand [`HOLD`].
#[cfg(target_os = "linux")]
fn hold(HolderSpec { socket, adjutant }: HolderSpec) -> Result<(), String> {
    rustix::process::setsid().map_err(|e| format!("it has no session of its own: {e}"))?;
    super::writes::hold(socket, adjutant)
}

/// Parses the input of a subcommand.
fn input<T: DeserializeOwned>(mut args: impl Iterator<Item = OsString>) -> Result<T, String> {
    let input = args.next().ok_or("it has no input")?;
    serde_json::from_str(&input.to_string_lossy()).map_err(|e| format!("its input: {e}"))
}

/// Prints an error, and returns the exit code.
#[expect(
    clippy::print_stderr,
    reason = "the process that started this one reads it"
)]
fn exit_code(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("adjutant: a process of the sandbox failed: {why}");
            ExitCode::from(126)
        }
    }
}
