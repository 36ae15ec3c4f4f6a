//! `adjutant strip-types`: TypeScript from standard input as JavaScript. The host of plugins runs it
//! for each module if its runtime does not remove types; it is no subcommand for users.

use std::io::Read as _;
use std::process::ExitCode;

use super::terminal;

/// The argument that requests it.
pub(super) const ARGUMENT: &str = "strip-types";

/// The largest module, in bytes.
const MAX_MODULE_BYTES: u64 = 16 << 20;

/// Removes the types of the module on standard input.
pub(super) fn strip_types() -> ExitCode {
    let mut source = String::new();
    let input = std::io::stdin().lock();
    if let Err(e) = input.take(MAX_MODULE_BYTES + 1).read_to_string(&mut source) {
        return terminal::complain(&e.to_string());
    }
    if source.len() as u64 > MAX_MODULE_BYTES {
        return terminal::complain("the module is longer than 16 MiB");
    }
    match typescript::strip(&source) {
        Ok(module) => {
            terminal::exact(&module);
            ExitCode::SUCCESS
        }
        Err(why) => terminal::complain(&why.to_string()),
    }
}
