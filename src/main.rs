//! Runs the command line. The only place that ends the process with an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    adjutant::cli::main()
}
