//! The exit status of programs.

use std::process::ExitStatus;

use events::ProgramExit;

/// Describes the exit status of a shell, as text and as numbers.
pub(crate) fn ending(status: ExitStatus) -> (String, ProgramExit) {
    use std::os::unix::process::ExitStatusExt;
    let exit = ProgramExit {
        code: status.code(),
        signal: status.signal().map(signal_name),
    };
    let how = match (exit.code, &exit.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, signal) => format!("ended by {}", signal.as_deref().unwrap_or("a signal")),
    };
    (how, exit)
}

fn signal_name(number: i32) -> String {
    let names = [
        (1, "HUP"),
        (2, "INT"),
        (3, "QUIT"),
        (4, "ILL"),
        (6, "ABRT"),
        (8, "FPE"),
        (9, "KILL"),
        (11, "SEGV"),
        (13, "PIPE"),
        (14, "ALRM"),
        (15, "TERM"),
    ];
    names.iter().find(|(n, _)| *n == number).map_or_else(
        || format!("signal {number}"),
        |(_, name)| format!("SIG{name}"),
    )
}
