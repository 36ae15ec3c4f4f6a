//! Credentials that the user gives at the terminal or through a pipe: reads them, and reports the
//! file that stores them.

use std::io::BufRead;
use std::path::Path;

use anyhow::Context as _;

use super::{say, terminal};

/// Reads a line from the user at the terminal, without echo if it is secret.
pub(super) fn ask(question: &str, echo: bool) -> anyhow::Result<String> {
    terminal::ask(question)?;
    let quiet = if echo { None } else { HiddenInput::new() };
    let answer = line();
    if quiet.is_some() {
        drop(quiet);
        terminal::print_note("");
    }
    answer
}

/// Reads one line of standard input.
pub(super) fn line() -> anyhow::Result<String> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .context("standard input cannot be read")?;
    Ok(line.trim().to_owned())
}

/// A guard that turns off the terminal's echo until it is dropped.
pub(super) struct HiddenInput(rustix::termios::Termios);

impl HiddenInput {
    pub(super) fn new() -> Option<Self> {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Now, &quiet).ok()?;
        Some(Self(before))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        // Fails only if the terminal is gone.
        tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0).ok();
    }
}

/// Reports the file that stores a credential. `is_replaced` is true if variables replace the stored
/// ones.
pub(super) fn report_stored(name: &str, path: &Path, is_replaced: bool) {
    say(&format!(
        "{name}: saved in {}, readable only by you.",
        path.display()
    ));
    if is_replaced {
        say("OPENCODE_AUTH_CONTENT or ADJUTANT_AUTH_CONTENT is set and replaces the stored keys.");
    }
}
