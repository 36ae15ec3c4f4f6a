//! The exit status of programs.

use std::process::ExitStatus;

use events::ProgramExit;
use transcript::{ExitCode, signal_name};

/// Returns the exit status of a shell as text ("exit code 1") and in parts.
pub(crate) fn ending(status: ExitStatus) -> (String, ProgramExit) {
    use std::os::unix::process::ExitStatusExt;
    let exit = ProgramExit {
        code: status.code(),
        signal: status.signal().map(|number| {
            signal_name(number).map_or_else(|| format!("signal {number}"), str::to_owned)
        }),
    };
    let how = match (exit.code, &exit.signal) {
        (Some(code), _) => format!("exit code {}", ExitCode(code)),
        (None, signal) => format!("ended by {}", signal.as_deref().unwrap_or("a signal")),
    };
    (how, exit)
}
