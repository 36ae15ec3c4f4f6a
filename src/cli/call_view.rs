//! Ended calls at a terminal, in a run and in the conversation of an earlier session: a line with
//! the title, and below it the end of the output.

use std::path::Path;
use std::time::Duration;

use anstyle::Style;

use super::terminal::style::{BAD, FAINT, GOOD};
use super::terminal::styled::{Palette, Styled};
use super::terminal::{self, format_duration};
use base::text;

/// The number of lines shown of a failed call's output.
pub(super) const MAX_OUTPUT_LINES: usize = 10;

/// The number of lines shown of the output of a command that succeeded, from its end.
pub(super) const MAX_GOOD_OUTPUT_LINES: usize = 3;

/// The number of lines beyond a limit that are shown all the same: hiding them would save little.
const MAX_SPARED_OUTPUT_LINES: usize = 4;

/// An ended call.
pub(super) struct EndedCall<'a> {
    pub(super) title: &'a str,
    pub(super) has_failed: bool,
    /// The kind of its failure in a few words, with their style.
    pub(super) failure: Option<(Style, String)>,
    /// Its time, if that is worth showing.
    pub(super) time: Option<Duration>,
    pub(super) output: Option<CallOutput<'a>>,
}

/// The output of a call.
pub(super) struct CallOutput<'a> {
    pub(super) text: &'a str,
    pub(super) shown: ShownLines,
    /// The file that has all of it if the call's result is cut.
    pub(super) whole: Option<&'a Path>,
}

/// The lines of a call's output that are shown.
#[derive(Debug, Clone, Copy)]
pub(super) enum ShownLines {
    All,
    /// At most this many from its beginning: those of an error, which begins with the reason.
    First(usize),
    /// At most this many from its end.
    Last(usize),
}

impl EndedCall<'_> {
    /// Renders the call. If lines of its output are left out, the command that shows all is taken
    /// from `hint` and named.
    pub(super) fn render(&self, palette: Palette, hint: &mut Option<String>) -> Styled {
        let (style, mark) = if self.has_failed {
            (BAD, palette.mark("✗ ", "x "))
        } else {
            (GOOD, palette.mark("• ", "* "))
        };
        let mut out = palette.styled(style, mark);
        out.push(&palette.line(Style::new(), self.title));
        if let Some((style, failure)) = &self.failure {
            out.push(&palette.line(*style, &format!(" ({failure})")));
        }
        if let Some(time) = self.time {
            out.push(&palette.line(FAINT, &format!(" ({})", format_duration(time))));
        }
        if let Some(output) = &self.output {
            output.push(palette, hint, &mut out);
        }
        out
    }
}

impl CallOutput<'_> {
    /// Appends the shown lines, and the place of the others.
    pub(super) fn push(&self, palette: Palette, hint: &mut Option<String>, out: &mut Styled) {
        let lines: Vec<&str> = self.text.trim_end().lines().collect();
        let limit = match self.shown {
            ShownLines::All => lines.len(),
            ShownLines::First(limit) | ShownLines::Last(limit) => limit,
        };
        let hidden = lines.len().saturating_sub(limit);
        if hidden == 0 || self.whole.is_none() && hidden <= MAX_SPARED_OUTPUT_LINES {
            return push_lines(palette, FAINT, &lines, out);
        }
        let dots = palette.mark("…", "...");
        let is_end = matches!(self.shown, ShownLines::Last(_));
        let count = if is_end {
            format!("{} before", text::count(hidden, "line"))
        } else {
            text::count(hidden, "more line")
        };
        let others = match (self.whole, hint.take()) {
            // The result does not have all lines, so they are not counted.
            (Some(file), unused) => {
                *hint = unused;
                format!("{dots} all lines: {}", file.display())
            }
            (None, Some(command)) => format!("{dots} {count}; `{command}` has all"),
            (None, None) => format!("{dots} {count}"),
        };
        if is_end {
            push_lines(palette, FAINT, &[&others], out);
            push_lines(palette, FAINT, &lines[hidden..], out);
        } else {
            push_lines(palette, FAINT, &lines[..limit], out);
            push_lines(palette, FAINT, &[&others], out);
        }
    }
}

/// Appends lines below a call.
pub(super) fn push_lines(palette: Palette, style: Style, lines: &[&str], out: &mut Styled) {
    for line in lines {
        out.push(&Palette::plain("\n    "));
        out.push(&palette.line(style, &terminal::expanded(line, terminal::TAB_STOP)));
    }
}
