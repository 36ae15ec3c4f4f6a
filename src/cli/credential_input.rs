//! Credentials that the user gives at the terminal or through a pipe: reads them, and reports the
//! file that stores them.

use std::io::BufRead;
use std::path::Path;

use anyhow::Context as _;

use base::environment::Environment;

use super::{say, terminal};

/// Reads a line from the user at the terminal.
pub(super) fn ask(question: &str, environment: &Environment) -> anyhow::Result<String> {
    let line = terminal::answer(question, environment)?;
    Ok(line.unwrap_or_default().trim().to_owned())
}

/// Reads a secret from the user at the terminal, without echo; returns `None` at the end of the
/// input.
pub(super) fn ask_secret(question: &str) -> anyhow::Result<Option<String>> {
    terminal::ask(question)?;
    let quiet = HiddenInput::new();
    let answer = next_line();
    if quiet.is_some() {
        drop(quiet);
        terminal::print_note("");
    }
    answer
}

/// Reads one line of standard input, which is empty at the end.
pub(super) fn line() -> anyhow::Result<String> {
    Ok(next_line()?.unwrap_or_default())
}

fn next_line() -> anyhow::Result<Option<String>> {
    let mut line = String::new();
    let size = std::io::stdin()
        .lock()
        .read_line(&mut line)
        .context("standard input cannot be read")?;
    Ok((size > 0).then(|| line.trim().to_owned()))
}

/// A guard that turns off the terminal's echo until it is dropped.
struct HiddenInput(rustix::termios::Termios);

impl HiddenInput {
    fn new() -> Option<Self> {
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
