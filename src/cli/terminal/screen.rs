//! What a run shows: the answer, what is said beside it, and what turns while nothing is said.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::styled::{Markdown, Palette, Styled};
use base::environment::Environment;
use base::lock::locked;
use base::text::{self, UnseenFilter};

/// How often the spinner turns.
const TICK: Duration = Duration::from_millis(120);

/// The two streams, and what stands on them. A terminal is given the answer in whole lines, each with its
/// colours, so that the spinner always has a line of its own; a pipe is given it to the byte.
pub(in crate::cli) struct Screen {
    /// Of standard output.
    words: Palette,
    /// Of standard error.
    pub(in crate::cli) aside: Palette,
    /// Standard output is a terminal.
    watched: bool,
    /// Standard error is a terminal, where something may turn.
    turns: bool,
    // A std mutex, a leaf.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    spinner: Option<ProgressBar>,
    /// What is turning for, also while it does not.
    doing: Option<String>,
    /// For how long it has turned before.
    turned: Duration,
    shown: UnseenFilter,
    markdown: Markdown,
    /// The line that is not whole yet.
    line: String,
    /// What was printed last did not end a line.
    within: bool,
}

impl Screen {
    /// `quiet`: nothing turns.
    pub(in crate::cli) fn new(quiet: bool, environment: &Environment) -> Self {
        let moves = environment.var("TERM") != Some("dumb");
        Self {
            words: Palette::of(&io::stdout(), environment),
            aside: Palette::of(&io::stderr(), environment),
            watched: io::stdout().is_terminal(),
            turns: !quiet && moves && io::stderr().is_terminal(),
            state: Mutex::default(),
        }
    }

    /// Prints more of the answer.
    pub(in crate::cli) fn words(&self, piece: &str) {
        let mut state = self.state();
        if !self.watched {
            state.within = if piece.is_empty() { state.within } else { !piece.ends_with('\n') };
            return state.beside(|| super::print(&[piece.as_bytes()]));
        }
        let piece = state.shown.push(piece).into_owned();
        state.line.push_str(&piece);
        let whole = state.line.rfind('\n').map_or(0, |at| at + 1);
        let lines: String = state.line.drain(..whole).collect();
        self.lines(&mut state, &lines);
    }

    fn lines(&self, state: &mut State, lines: &str) {
        if !lines.is_empty() {
            let one = |line: &str| format!("{}\n", self.words.of_line(&mut state.markdown, line));
            let lines: String = lines.lines().map(one).collect();
            state.beside(|| super::print(&[lines.as_bytes()]));
        }
    }

    /// Ends the paragraph: what comes next is another message.
    pub(in crate::cli) fn paragraph(&self) {
        self.end_line();
        self.state().markdown = Markdown::default();
        self.words("\n");
    }

    /// Ends the line where one has begun.
    pub(in crate::cli) fn end_line(&self) {
        let mut state = self.state();
        let mut rest = std::mem::take(&mut state.line);
        rest.push_str(&state.shown.end());
        self.lines(&mut state, &rest);
        if std::mem::take(&mut state.within) {
            state.beside(|| super::print(&[b"\n"]));
        }
    }

    /// Says something beside the answer.
    pub(in crate::cli) fn aside(&self, words: &str) {
        self.beside(&Palette::plain(words));
    }

    pub(in crate::cli) fn beside(&self, words: &Styled) {
        self.state().beside(|| super::beside(words));
    }

    /// Whether somebody sees the answer as it comes.
    pub(in crate::cli) fn is_watched(&self) -> bool {
        self.watched
    }

    /// Whether calls are shown: in a pipe nobody follows them.
    pub(in crate::cli) fn shows_calls(&self) -> bool {
        self.turns
    }

    /// What is being done, beside the spinner; begins to turn.
    pub(in crate::cli) fn doing(&self, what: &str) {
        if self.turns {
            let mut state = self.state();
            state.doing = Some(text::escaped(what));
            state.turn();
        }
    }

    /// Shows a question; nothing turns until [`Self::asked`].
    pub(in crate::cli) fn ask(&self, question: &Styled) -> io::Result<()> {
        self.state().stop();
        super::question_of(question)
    }

    pub(in crate::cli) fn asked(&self) {
        self.state().turn();
    }

    /// Leaves the terminal as it should be.
    pub(in crate::cli) fn finish(&self) {
        let mut state = self.state();
        state.stop();
        state.doing = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

impl State {
    fn beside(&self, write: impl FnOnce()) {
        match &self.spinner {
            Some(spinner) => spinner.suspend(write),
            None => write(),
        }
    }

    fn turn(&mut self) {
        let Some(doing) = &self.doing else { return };
        let spinner = self.spinner.get_or_insert_with(|| {
            let spinner = ProgressBar::new_spinner().with_elapsed(self.turned);
            // One line, however long it is: only that much is erased.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
                spinner.set_style(style);
            }
            spinner.enable_steady_tick(TICK);
            spinner
        });
        spinner.set_message(doing.clone());
    }

    fn stop(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            self.turned = spinner.elapsed();
            spinner.finish_and_clear();
        }
    }
}
