//! The display of a run: the answer, messages, and a spinner.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::echo::Echo;
use super::markdown::MarkdownStream;
use super::styled::{Palette, Styled};
use base::environment::Environment;
use base::lock::locked;
use base::text::{self, UnseenFilter};

/// The interval of the spinner.
const SPINNER_INTERVAL: Duration = Duration::from_millis(120);

/// The columns next to the text: the spinner, the time and a margin.
const SPINNER_COLUMNS: usize = 12;

/// The two output streams and their state. A terminal receives the answer in rendered blocks, so
/// that the spinner always has a line of its own. A pipe receives it byte for byte.
pub(in crate::cli) struct Screen {
    /// The palette of standard output.
    words: Palette,
    /// The palette of standard error.
    pub(in crate::cli) aside: Palette,
    /// Whether standard output is a terminal.
    watched: bool,
    /// True if calls are shown, which needs a terminal on standard error.
    shows_calls: bool,
    /// True if the spinner is shown, which needs a terminal that can erase a line.
    turns: bool,
    // A std mutex, a leaf lock.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    spinner: Option<ProgressBar>,
    /// The text next to the spinner, also while it is hidden.
    doing: Option<String>,
    /// The time for which it was shown before.
    turned: Duration,
    shown: UnseenFilter,
    markdown: MarkdownStream,
    echo: Echo,
    /// Whether the last output did not end a line.
    within: bool,
    /// True if the run is over, so that a late message starts no spinner.
    is_finished: bool,
    /// True if our own marks are limited to ASCII.
    ascii: bool,
}

impl Screen {
    /// Creates the display; `quiet` disables the spinner.
    pub(in crate::cli) fn new(quiet: bool, environment: &Environment) -> Self {
        let moves = environment.var("TERM") != Some("dumb");
        let shows_calls = !quiet && io::stderr().is_terminal();
        let aside = Palette::of(&io::stderr(), environment);
        let state = State {
            ascii: aside.look(0).ascii,
            ..State::default()
        };
        Self {
            words: Palette::of(&io::stdout(), environment),
            aside,
            watched: io::stdout().is_terminal(),
            shows_calls,
            turns: shows_calls && moves,
            state: Mutex::new(state),
        }
    }

    /// Prints a part of the answer.
    pub(in crate::cli) fn words(&self, piece: &str) {
        let mut state = self.state();
        if !self.watched {
            state.within = if piece.is_empty() {
                state.within
            } else {
                !piece.ends_with('\n')
            };
            return state.without_spinner(|| super::print(&[piece.as_bytes()]));
        }
        let piece = state.shown.push(piece).into_owned();
        self.render(&mut state, &piece);
    }

    fn render(&self, state: &mut State, piece: &str) {
        let shown = state
            .markdown
            .push(piece, self.words.look(super::columns()));
        print_rendered(state, &shown);
    }

    /// Ends the paragraph, because another message follows.
    pub(in crate::cli) fn paragraph(&self) {
        self.end_line();
        self.state().without_spinner(|| super::print(&[b"\n"]));
    }

    /// Ends the current block, if one has begun.
    pub(in crate::cli) fn end_line(&self) {
        let mut state = self.state();
        let rest = state.shown.end();
        self.render(&mut state, &rest);
        let shown = state.markdown.end(self.words.look(super::columns()));
        print_rendered(&state, &shown);
        if std::mem::take(&mut state.within) {
            state.without_spinner(|| super::print(&[b"\n"]));
        }
    }

    /// Prints a message on standard error.
    pub(in crate::cli) fn aside(&self, words: &str) {
        self.message(&Palette::plain(&super::fitted(&text::shown(words))));
    }

    pub(in crate::cli) fn message(&self, words: &Styled) {
        self.state().without_spinner(|| super::message(words));
    }

    /// Returns whether the answer is shown while it arrives.
    pub(in crate::cli) fn is_watched(&self) -> bool {
        self.watched
    }

    /// Returns whether calls are shown.
    pub(in crate::cli) fn shows_calls(&self) -> bool {
        self.shows_calls
    }

    /// Shows the spinner with a description of the current activity.
    pub(in crate::cli) fn doing(&self, what: &str) {
        if self.turns {
            let mut state = self.state();
            if state.is_finished {
                return;
            }
            state.doing = Some(text::escaped(what));
            state.turn();
        }
    }

    /// Shows a question, and hides the spinner until [`Self::asked`].
    pub(in crate::cli) fn ask(&self, question: &Styled) -> io::Result<()> {
        let mut state = self.state();
        state.stop();
        state.echo.show();
        super::question_of(question)
    }

    pub(in crate::cli) fn asked(&self) {
        self.state().turn();
    }

    /// Removes the spinner for good.
    pub(in crate::cli) fn finish(&self) {
        let mut state = self.state();
        state.stop();
        state.is_finished = true;
        state.doing = None;
        state.echo.restore();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

fn print_rendered(state: &State, shown: &str) {
    if !shown.is_empty() {
        state.without_spinner(|| super::print(&[shown.as_bytes()]));
    }
}

impl State {
    fn without_spinner(&self, write: impl FnOnce()) {
        match &self.spinner {
            Some(spinner) => spinner.suspend(write),
            None => write(),
        }
    }

    fn turn(&mut self) {
        let Some(doing) = &self.doing else { return };
        self.echo.hide();
        let spinner = self.spinner.get_or_insert_with(|| {
            let spinner = ProgressBar::new_spinner().with_elapsed(self.turned);
            // Without padding: a full line would wrap when the window gets narrower.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}, {elapsed}") {
                let style = if self.ascii {
                    style.tick_chars("|/-\\ ")
                } else {
                    style
                };
                spinner.set_style(style);
            }
            spinner.enable_steady_tick(SPINNER_INTERVAL);
            spinner
        });
        // One line regardless of its length, because only one line is erased.
        let room = super::columns().saturating_sub(SPINNER_COLUMNS);
        spinner.set_message(super::markdown::cut(doing, room));
    }

    fn stop(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            self.turned = spinner.elapsed();
            spinner.finish_and_clear();
        }
    }
}
