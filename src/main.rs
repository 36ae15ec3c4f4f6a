//! argv to subcommand. The only place that ends the process with a code.

use std::process::ExitCode;

fn main() -> ExitCode {
    adjutant::cli::main()
}
