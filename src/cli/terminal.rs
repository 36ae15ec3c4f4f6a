//! The only way to a terminal. Whatever is shown to people goes through here, on a terminal as in a
//! pipe, and what is hidden in it is written out (see [`crate::text::shown`]): what models, tools,
//! files, settings and servers say cannot move the cursor, set a title, fill the clipboard, or
//! reverse the direction of reading. JSON says it in escapes.
//!
//! Exact are, in a pipe or a file, the answer of a run and a patch: somebody works on with those. On a
//! terminal they are cleaned like everything else.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::panic::PanicHookInfo;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::text::{self, Shown};

/// How often the spinner turns.
const TICK: Duration = Duration::from_millis(120);

/// Whether somebody sees what is said.
pub(super) fn is_watched() -> bool {
    io::stdout().is_terminal()
}

/// Prints an answer. When nobody reads it any more there is nobody to tell.
pub(super) fn say(words: &str) {
    let end = if words.ends_with('\n') { "" } else { "\n" };
    print(&[text::shown(words).as_bytes(), end.as_bytes()]);
}

/// Prints JSON, as it is but for what is hidden.
pub(super) fn json(words: &str) {
    let end = if words.ends_with('\n') { "" } else { "\n" };
    print(&[text::json(words).as_bytes(), end.as_bytes()]);
}

/// Prints what somebody works on with: to the byte, unless it goes to a terminal.
pub(super) fn exact(words: &str) {
    if io::stdout().is_terminal() { say(words) } else { print(&[words.as_bytes()]) }
}

fn print(pieces: &[&[u8]]) {
    let mut stdout = io::stdout().lock();
    pieces.iter().try_for_each(|piece| stdout.write_all(piece)).and_then(|()| stdout.flush()).ok();
}

/// Prints many lines of JSON.
pub(super) struct Lines(BufWriter<StdoutLock<'static>>);

impl Lines {
    pub(super) fn new() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }

    /// One more.
    pub(super) fn line(&mut self, words: &str) -> io::Result<()> {
        writeln!(self.0, "{}", text::json(words))
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Says something beside the answer.
pub(super) fn aside(words: &str) {
    writeln!(io::stderr().lock(), "{}", text::shown(words)).ok();
}

/// Says on standard error why nothing could be done.
pub(super) fn complain(message: &str) -> ExitCode {
    aside(&format!("adjutant: {message}"));
    ExitCode::FAILURE
}

/// Says what somebody at the terminal is to answer, and stays on the line.
pub(super) fn ask(question: &str) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    write!(stderr, "{}", text::shown(question)).and_then(|()| stderr.flush())
}

/// Prints what the parser of the command line has to say. Complaints repeat what was typed; help and
/// version are our own words alone, and keep their colours.
pub(super) fn parsed(said: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    if matches!(said.kind(), DisplayHelp | DisplayVersion) {
        return if said.print().is_ok() { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    aside(said.render().to_string().trim_end());
    ExitCode::from(2)
}

/// Prints what there is to say to a command line without a word.
pub(super) fn help(mut command: clap::Command) -> ExitCode {
    if command.print_help().is_ok() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// Tells of a panic, until there is a log.
pub(super) fn panicked(info: &PanicHookInfo<'_>) {
    aside(&format!("adjutant: {info}"));
}

/// An answer that arrives in pieces, and what turns beside it. The spinner is there only where
/// standard error is a terminal.
pub(super) struct Screen {
    spinner: Option<ProgressBar>,
    /// Words go to a terminal.
    watched: bool,
    /// The words so far. A std mutex, a leaf.
    words: Mutex<Words>,
}

#[derive(Default)]
struct Words {
    shown: Shown,
    /// The last thing printed did not end a line.
    within: bool,
}

impl Screen {
    pub(super) fn new(spinner: bool) -> Self {
        let spinner = (spinner && io::stderr().is_terminal()).then(ProgressBar::new_spinner);
        if let Some(spinner) = &spinner
            && let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}")
        {
            spinner.set_style(style);
        }
        Self { spinner, watched: io::stdout().is_terminal(), words: Mutex::default() }
    }

    /// Prints more of the answer.
    pub(super) fn words(&self, piece: &str) {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if !piece.is_empty() {
            words.within = !piece.ends_with('\n');
        }
        let piece = if self.watched { words.shown.push(piece) } else { piece.into() };
        self.beside(|| print(&[piece.as_bytes()]));
    }

    /// Ends the paragraph: what comes next is another message.
    pub(super) fn paragraph(&self) {
        self.end_line();
        self.words("\n");
    }

    /// Ends the line where one has begun.
    pub(super) fn end_line(&self) {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = words.shown.end();
        let end = if std::mem::take(&mut words.within) { "\n" } else { "" };
        if !rest.is_empty() || !end.is_empty() {
            self.beside(|| print(&[rest.as_bytes(), end.as_bytes()]));
        }
    }

    /// Says something beside the answer.
    pub(super) fn aside(&self, words: &str) {
        self.beside(|| aside(words));
    }

    /// Begins to turn.
    pub(super) fn busy(&self, doing: &str) {
        if let Some(spinner) = &self.spinner {
            spinner.set_message(text::escaped(doing));
            spinner.enable_steady_tick(TICK);
        }
    }

    /// What is being done, beside the spinner.
    pub(super) fn doing(&self, title: &str) {
        if let Some(spinner) = &self.spinner {
            spinner.set_message(text::escaped(title));
        }
    }

    /// What was done: a line of its own on a terminal, nothing in a pipe.
    pub(super) fn did(&self, title: &str) {
        self.doing(title);
        if let Some(spinner) = &self.spinner {
            spinner.println(format!("• {}", text::escaped(title)));
        }
    }

    /// Shows a question and waits for what `answer` reads, while nothing turns.
    pub(super) fn ask<T>(&self, question: &str, answer: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if let Some(spinner) = &self.spinner {
            spinner.disable_steady_tick();
        }
        let answer = ask(question).and_then(|()| answer());
        if let Some(spinner) = &self.spinner {
            spinner.enable_steady_tick(TICK);
        }
        answer
    }

    /// Leaves the terminal as it should be.
    pub(super) fn finish(&self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }

    fn beside(&self, write: impl FnOnce()) {
        match &self.spinner {
            Some(spinner) => spinner.suspend(write),
            None => write(),
        }
    }
}
