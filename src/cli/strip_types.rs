//! `adjutant strip-types`: TypeScript from standard input as JavaScript. The host of plugins runs
//! it for each module if its runtime does not remove types; it is not a subcommand for users.

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
    // One byte more, so that a larger module is not cut off.
    let read = input.take(MAX_MODULE_BYTES + 1).read_to_string(&mut source);
    if let Err(e) = read {
        return terminal::complain(&e.to_string());
    }
    if u64::try_from(source.len()).map_or(true, |bytes| bytes > MAX_MODULE_BYTES) {
        return terminal::complain("the module is larger than 16 MiB");
    }
    match typescript::strip(&source) {
        Ok(module) => {
            terminal::exact(&module);
            ExitCode::SUCCESS
        }
        Err(why) => terminal::complain(&why.to_string()),
    }
}
