//! Credentials that the user gives at the terminal or through a pipe: reads them, and reports the
//! file that stores them.

use std::io::BufRead;
use std::path::Path;

use anyhow::{Context as _, bail};

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
    let Some(answer) = terminal::secret_answer(question)? else {
        return Ok(None);
    };
    let secret = answer.trim();
    if secret.contains(['\r', '\n']) {
        bail!("several lines were pasted, but a key or a token is one line; nothing was changed");
    }
    Ok(Some(secret.to_owned()))
}

/// Reads one line of standard input, which is empty at the end.
pub(super) fn line() -> anyhow::Result<String> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .context("standard input cannot be read")?;
    Ok(line.trim().to_owned())
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
