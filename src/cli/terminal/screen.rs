//! The display of a run: the answer, messages, and a spinner.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::line_aids::LineAids;
use super::markdown::MarkdownStream;
use super::modes::Modes;
use super::question::Question;
use super::spinner::{Spinner, SpinnerLines};
use super::styled::{Palette, Styled};
use base::environment::Environment;
use base::lock::lock;
use base::text::{self, UnseenFilter};

/// The two output streams and their state. A terminal receives the answer in rendered blocks, so
/// that the spinner always has a line of its own. A pipe receives it byte for byte.
pub(in crate::cli) struct Screen {
    /// The palette of standard output.
    words: Palette,
    /// The palette of standard error.
    pub(in crate::cli) aside: Palette,
    /// Whether standard output is a terminal.
    watched: bool,
    /// True if calls are shown.
    shows_calls: bool,
    /// True if a person reads standard error: it is a terminal.
    is_read: bool,
    /// True if the spinner is shown, which needs a terminal that can erase a line.
    turns: bool,
    /// True if the user can edit answers.
    can_edit: bool,
    // A std mutex, a leaf lock.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    spinner: Option<Spinner>,
    /// The current activity, also while the spinner is hidden.
    doing: Option<Activity>,
    /// The time at which the question on the screen was shown.
    asked_at: Option<Instant>,
    /// The line above the spinner: the beginning of the next line of the answer.
    preview: String,
    /// The output during a question, which follows the answer.
    delayed: Vec<Output>,
    shown: UnseenFilter,
    markdown: MarkdownStream,
    modes: Modes,
    /// Whether the last output did not end a line.
    within: bool,
    /// True once the user has interrupted a run that ends with a line about it.
    is_interrupted: bool,
    /// True if the run is over, so that a late message starts no spinner.
    is_finished: bool,
    /// True if our own marks are limited to ASCII.
    ascii: bool,
}

/// An activity that is shown next to the spinner.
struct Activity {
    name: String,
    /// Its beginning, later by the time that questions took.
    since: Instant,
    /// The end of the wait before it.
    retry_at: Option<Instant>,
    /// The cause of that wait.
    retry_cause: String,
    /// The last lines that its command has printed.
    printed: Vec<String>,
}

/// Text for one of the two streams.
enum Output {
    /// A part of the answer on a terminal, as it is printed.
    Words(String),
    /// A part of the answer in a pipe.
    Piped(String),
    Message(Styled),
}

impl Screen {
    /// Creates the display. `has_spinner` allows the spinner, which is shown on a terminal only.
    pub(in crate::cli) fn new(
        has_spinner: bool,
        shows_calls: bool,
        environment: &Environment,
    ) -> Self {
        let can_edit = super::can_edit(environment);
        let is_read = super::stderr().is_terminal();
        let aside = Palette::of(&super::stderr(), environment);
        let state = State {
            ascii: aside.look(0).ascii,
            ..State::default()
        };
        Self {
            words: Palette::of(&super::stdout(), environment),
            aside,
            watched: super::stdout().is_terminal(),
            shows_calls,
            is_read,
            turns: has_spinner && is_read && can_edit,
            can_edit,
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
        state.show_rendered(&shown);
    }

    /// Ends the paragraph, because another message follows.
    pub(in crate::cli) fn paragraph(&self) {
        self.end_line();
        let blank = "\n".to_owned();
        self.state().write(if self.watched {
            Output::Words(blank)
        } else {
            Output::Piped(blank)
        });
    }

    /// Ends the current block, if one has begun.
    pub(in crate::cli) fn end_line(&self) {
        let mut state = self.state();
        let rest = state.shown.end();
        self.render(&mut state, &rest);
        let shown = state.markdown.end(self.words.look(super::columns()));
        state.show_rendered(&shown);
        if std::mem::take(&mut state.within) {
            state.without_spinner(|| super::print(&[b"\n"]));
        }
    }

    /// Prints a message on standard error.
    pub(in crate::cli) fn print_note(&self, text: &str) {
        self.message(&Palette::plain(text));
    }

    pub(in crate::cli) fn message(&self, words: &Styled) {
        self.state().write(Output::Message(words.clone()));
    }

    /// Empties the window of a terminal that can be.
    pub(in crate::cli) fn clear(&self) {
        if self.can_edit {
            super::question::clear_screen();
        }
    }

    /// Returns whether the answer is shown while it arrives.
    pub(in crate::cli) fn is_watched(&self) -> bool {
        self.watched
    }

    /// Returns whether there is a spinner.
    pub(in crate::cli) fn turns(&self) -> bool {
        self.turns
    }

    /// Returns whether a person reads standard error.
    pub(in crate::cli) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Returns whether calls are shown.
    pub(in crate::cli) fn shows_calls(&self) -> bool {
        self.shows_calls
    }

    /// Shows the spinner with a description of the current activity.
    pub(in crate::cli) fn show_activity(&self, what: &str) {
        if self.turns {
            let mut state = self.state();
            let is_same = state.doing.as_ref().is_some_and(|doing| doing.name == what);
            if state.is_finished || is_same {
                return;
            }
            state.doing = Some(Activity {
                name: what.to_owned(),
                since: Instant::now(),
                retry_at: None,
                retry_cause: String::new(),
                printed: Vec::new(),
            });
            state.turn();
        }
    }

    /// Shows the last lines that the command of an activity has printed, below the spinner while the
    /// activity is shown there. They are removed with it.
    pub(in crate::cli) fn show_printed(&self, what: &str, printed: &str) {
        let mut state = self.state();
        let Some(doing) = state.doing.as_mut().filter(|doing| doing.name == what) else {
            return;
        };
        let lines: Vec<&str> = printed.trim_end().lines().collect();
        let first = lines.len().saturating_sub(max_printed_lines());
        let lines: Vec<String> = lines[first..]
            .iter()
            .map(|line| text::escaped(&super::expanded(line, super::TAB_STOP)))
            .collect();
        if doing.printed != lines {
            doing.printed = lines;
            state.turn();
        }
    }

    /// Shows the spinner with the time until a failed request is repeated, and with an activity
    /// afterwards.
    pub(in crate::cli) fn retrying(&self, what: &str, cause: &str, wait: Duration) {
        // A plugin may have written the notice, with a number of seconds that no clock has.
        const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
        let mut state = self.state();
        if !self.turns || state.is_finished {
            return;
        }
        let at = Instant::now() + wait.min(MAX_WAIT);
        state.doing = Some(Activity {
            name: what.to_owned(),
            since: at,
            retry_at: Some(at),
            retry_cause: cause.to_owned(),
            printed: Vec::new(),
        });
        state.turn();
    }

    /// Shows a question, and hides the spinner until [`Self::end_question`]. Other output waits for
    /// the answer, so that it does not come between the question and the typed line. `aids` help to
    /// type a prompt.
    ///
    /// # Errors
    /// Returns an error if the user cannot see the question.
    pub(in crate::cli) fn ask(
        &self,
        question: &Styled,
        aids: Option<LineAids>,
    ) -> io::Result<Question> {
        let mut state = self.state();
        state.stop();
        state.asked_at.get_or_insert_with(Instant::now);
        Question::show(question, &mut state.modes, self.can_edit, aids)
    }

    /// Ends a question. Without an answer, its line has no end yet.
    pub(in crate::cli) fn end_question(&self, is_answered: bool) {
        let mut state = self.state();
        state.end_question(is_answered);
        state.turn();
    }

    /// Ends a question that needs no answer any more.
    pub(in crate::cli) fn withdraw(&self) {
        let mut state = self.state();
        if !state.is_interrupted {
            state
                .delayed
                .insert(0, Output::Message(Palette::plain("(question withdrawn)")));
        }
        state.end_question(false);
        state.turn();
    }

    /// Hides the questions and calls that end from now on, because the user has interrupted the
    /// run.
    pub(in crate::cli) fn interrupt(&self) {
        self.state().is_interrupted = true;
    }

    /// Returns whether the user has interrupted a run that ends with a line about it.
    pub(in crate::cli) fn is_interrupted(&self) -> bool {
        self.state().is_interrupted
    }

    /// Removes the spinner until the next activity, because a turn of a conversation has ended.
    pub(in crate::cli) fn end_turn(&self) {
        let mut state = self.state();
        state.stop();
        state.doing = None;
        state.is_interrupted = false;
    }

    /// Removes the spinner for good.
    pub(in crate::cli) fn finish(&self) {
        let mut state = self.state();
        state.stop();
        state.end_question(false);
        state.is_finished = true;
        state.doing = None;
        state.modes.restore();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Returns the most lines of a running command that are shown: fewer in a low window, whose other
/// lines would scroll away.
fn max_printed_lines() -> usize {
    const MAX_PRINTED_LINES: usize = 3;
    const OTHER_ROWS: usize = 5;
    super::rows().map_or(0, |rows| {
        rows.saturating_sub(OTHER_ROWS).min(MAX_PRINTED_LINES)
    })
}

impl Output {
    fn print(&self) {
        match self {
            Self::Words(words) | Self::Piped(words) => super::print(&[words.as_bytes()]),
            Self::Message(words) => super::message(words),
        }
    }
}

impl State {
    /// Prints a text, or stores it until the question on the screen is answered.
    fn write(&mut self, output: Output) {
        if self.asked_at.is_some() {
            self.delayed.push(output);
            return;
        }
        match (&output, &self.spinner) {
            (Output::Words(words), Some(spinner)) => spinner.print(words, &self.preview),
            _ => self.without_spinner(|| output.print()),
        }
    }

    fn end_question(&mut self, is_answered: bool) {
        let Some(asked_at) = self.asked_at.take() else {
            return;
        };
        if let Some(doing) = &mut self.doing {
            doing.since += asked_at.elapsed();
        }
        if !is_answered {
            super::question::end_line();
        }
        self.modes.show();
        for output in std::mem::take(&mut self.delayed) {
            output.print();
        }
    }

    fn without_spinner(&self, write: impl FnOnce()) {
        match &self.spinner {
            Some(spinner) => spinner.suspend(|lines| {
                lines.preview.clone_from(&self.preview);
                write();
            }),
            None => write(),
        }
    }

    fn turn(&mut self) {
        let Some(doing) = &self.doing else { return };
        if self.asked_at.is_some() {
            return;
        }
        self.modes.hide();
        let since = doing.since;
        let activity = text::escaped(&doing.name);
        let retry_at = doing.retry_at;
        let retry_cause = text::escaped(&doing.retry_cause);
        let printed = doing.printed.clone();
        match &self.spinner {
            Some(spinner) => spinner.change(|lines| {
                lines.activity = activity;
                lines.since = since;
                lines.retry_at = retry_at;
                lines.retry_cause = retry_cause;
                lines.printed = printed;
            }),
            None => {
                let mut lines =
                    SpinnerLines::new(activity, since, self.preview.clone(), self.ascii);
                lines.retry_at = retry_at;
                lines.retry_cause = retry_cause;
                lines.printed = printed;
                self.spinner = Some(Spinner::start(lines));
            }
        }
    }

    /// Prints finished lines of the answer, and shows the beginning of the next one above the
    /// spinner.
    fn show_rendered(&mut self, shown: &str) {
        let is_same = self.preview == self.markdown.preview();
        self.markdown.preview().clone_into(&mut self.preview);
        if !shown.is_empty() {
            return self.write(Output::Words(shown.to_owned()));
        }
        if !is_same && let Some(spinner) = &self.spinner {
            spinner.change(|lines| lines.preview.clone_from(&self.preview));
        }
    }

    fn stop(&mut self) {
        self.spinner = None;
    }
}
