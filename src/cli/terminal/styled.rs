//! Text for a terminal: cleaned first, then coloured.

use std::io::IsTerminal;

use anstyle::Style;

use super::markdown::{MarkdownStream, RenderStyle};
use super::style::{FAINT, STRONG, StyleSupport, of_change, painted};
use base::environment::Environment;
use base::text;
use base::text::diff::LineDiff;

/// The number of lines shown of a change, unless the whole of it is wanted.
pub(in crate::cli) const MAX_CHANGE_LINES: usize = 40;

/// The number of lines beyond a limit that are shown all the same: a line about them would not be
/// shorter.
pub(in crate::cli) const MAX_SPARED_LINES: usize = 2;

/// Text that is safe for a terminal: it contains no control sequences except our own colours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct Styled(String);

impl Styled {
    /// Returns the last lines. The renderer begins no style in one line that ends in another.
    pub(in crate::cli) fn last_lines(&self, number: usize) -> Self {
        let lines: Vec<&str> = self.0.lines().collect();
        let first = lines.len().saturating_sub(number);
        Self(lines[first..].join("\n"))
    }

    pub(in crate::cli) fn as_str(&self) -> &str {
        &self.0
    }

    /// Indents each line by `indent` spaces.
    pub(in crate::cli) fn indented(&self, indent: usize) -> Self {
        let blank = " ".repeat(indent);
        let lines = self.0.split_inclusive('\n');
        Self(lines.map(|line| format!("{blank}{line}")).collect())
    }

    /// Wraps each line at spaces to a width. The parts of a line continue next to its text.
    pub(super) fn wrapped(&self, columns: usize) -> Self {
        Self(super::fitted_to(&self.0, columns))
    }

    /// Wraps each line at spaces to the width of the terminal.
    pub(in crate::cli) fn wrapped_to_terminal(&self) -> Self {
        self.wrapped(super::columns())
    }

    /// Appends another text.
    pub(in crate::cli) fn push(&mut self, more: &Self) {
        self.0.push_str(&more.0);
    }
}

/// The colours of a stream.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct Palette {
    ink: StyleSupport,
    /// True if our own marks are limited to ASCII.
    ascii: bool,
}

impl Palette {
    /// Returns the colours of a stream.
    pub(in crate::cli) fn of(stream: &impl IsTerminal, environment: &Environment) -> Self {
        Self {
            ink: StyleSupport::of(stream.is_terminal(), environment),
            ascii: is_ascii_locale(environment),
        }
    }

    pub(super) fn has_colours(self) -> bool {
        self.ink == StyleSupport::Colours
    }

    /// Returns one of two marks, by the characters that the locale has.
    pub(in crate::cli) fn mark(self, mark: &'static str, ascii: &'static str) -> &'static str {
        if self.ascii { ascii } else { mark }
    }

    pub(in crate::cli) fn plain(text: &str) -> Styled {
        Styled(text::shown(text).into_owned())
    }

    pub(in crate::cli) fn styled(self, style: Style, text: &str) -> Styled {
        Styled(self.paint(style, &text::shown(text)))
    }

    /// Returns one line in a style, with line breaks escaped.
    pub(in crate::cli) fn line(self, style: Style, text: &str) -> Styled {
        let text = text::escaped(text);
        // The mark of a cut title.
        let text = if self.ascii {
            text.replace('…', "...")
        } else {
            text
        };
        Styled(self.paint(style, &text))
    }

    /// Styles each line of a text by its content.
    pub(in crate::cli) fn lines(self, text: &str, style: impl Fn(&str) -> Style) -> Styled {
        let text = text::shown(text);
        let lines = text
            .lines()
            .map(|line| format!("{}\n", self.paint(style(line), line)));
        Styled(lines.collect())
    }

    /// Styles the first word of each line of a text.
    pub(super) fn first_words(self, text: &str, style: impl Fn(&str) -> Style) -> Styled {
        let text = text::shown(text);
        let lines = text.lines().map(|line| {
            let indent = line.len() - line.trim_start().len();
            let (blank, rest) = line.split_at(indent);
            let end = rest.find([' ', ':']).unwrap_or(rest.len());
            let (first, rest) = rest.split_at(end);
            format!("{blank}{}{rest}\n", self.paint(style(first), first))
        });
        Styled(lines.collect())
    }

    /// Renders a Markdown text, indented by `indent` spaces.
    pub(in crate::cli) fn markdown(self, text: &str, indent: usize) -> Styled {
        self.rendered(text, indent, false)
    }

    /// Renders the Markdown text of a question, indented by `indent` spaces. A long command in it is
    /// broken, because it is read and not copied.
    pub(in crate::cli) fn question(self, text: &str, indent: usize) -> Styled {
        self.rendered(text, indent, true)
    }

    fn rendered(self, text: &str, indent: usize, breaks_commands: bool) -> Styled {
        let look = RenderStyle {
            breaks_commands,
            ..self.look(super::columns().saturating_sub(indent))
        };
        let mut stream = MarkdownStream::default();
        let mut all = stream.push(&text::shown(text), look);
        all.push_str(&stream.end(look));
        let blank = " ".repeat(indent);
        Styled(all.lines().map(|line| format!("{blank}{line}\n")).collect())
    }

    /// Renders a file's change of at most `limit` lines, each with its number: that in the new
    /// text, or for a removed line that in the old one.
    pub(in crate::cli) fn change(
        self,
        path: &str,
        diff: &LineDiff<'_>,
        indent: usize,
        limit: usize,
    ) -> Styled {
        let blank = " ".repeat(indent);
        let (added, removed) = diff.count();
        let heading = format!("{} +{added} -{removed}", text::escaped(path));
        let mut out = format!("{blank}{}\n", self.paint(STRONG, &heading));
        let rows = self.changed_lines(diff);
        let digits = rows
            .iter()
            .flatten()
            .map(|row| row.number.to_string().len())
            .max();
        let digits = digits.unwrap_or_default();
        let limit = if rows.len() <= limit.saturating_add(MAX_SPARED_LINES) {
            rows.len()
        } else {
            limit
        };
        for row in rows.iter().take(limit) {
            let Some(row) = row else {
                let gap = self.mark("⋮", "...");
                out += &format!("{blank}{}\n", self.paint(FAINT, gap));
                continue;
            };
            let number = self.paint(FAINT, &format!("{:>digits$}", row.number));
            let line = self.paint(of_change(&row.line), &row.line);
            let line = format!("{blank}{number} {line}");
            // Next to the text, after the number and the sign.
            let continuation = " ".repeat(indent + digits + 2);
            out += &super::broken(&line, super::columns(), &continuation);
            out.push('\n');
        }
        let more = rows.iter().skip(limit).flatten().count();
        if more > 0 {
            let dots = self.mark("…", "...");
            let text = format!("{dots} {}", text::count(more, "more line"));
            out += &format!("{blank}{}\n", self.paint(FAINT, &text));
        }
        Styled(out)
    }

    /// Renders all lines of a file with their numbers.
    pub(in crate::cli) fn numbered(self, name: &str, content: &str, indent: usize) -> Styled {
        let blank = " ".repeat(indent);
        let count = content.lines().count();
        let digits = count.to_string().len();
        let heading = self.paint(STRONG, &text::escaped(name));
        let size = self.paint(FAINT, &format!(" ({})", text::count(count, "line")));
        let mut out = format!("{blank}{heading}{size}\n");
        for (number, line) in (1..).zip(content.lines()) {
            let line = text::escaped(&super::expanded(line, super::TAB_STOP));
            let number = self.paint(FAINT, &format!("{number:>digits$}"));
            // Next to the text, after the number and the blanks.
            let continuation = " ".repeat(indent + digits + 2);
            let line = format!("{blank}{number}  {line}");
            out += &super::broken(&line, super::columns(), &continuation);
            out.push('\n');
        }
        Styled(out)
    }

    /// Returns the lines of a change and their context; `None` between two groups.
    fn changed_lines(self, diff: &LineDiff<'_>) -> Vec<Option<ChangedLine>> {
        let mut rows = Vec::new();
        for group in diff.groups() {
            if !rows.is_empty() {
                rows.push(None);
            }
            for change in group.iter().flat_map(|op| diff.changes(op)) {
                let text = text::shown(change.value());
                let text = super::expanded(text.trim_end_matches(['\n', '\r']), super::TAB_STOP);
                let line = format!("{}{text}", change.tag());
                rows.push(Some(ChangedLine {
                    number: diff.number(&change),
                    line,
                }));
            }
        }
        rows
    }

    /// Returns the look of Markdown in a terminal of a width.
    pub(super) fn look(self, width: usize) -> RenderStyle {
        RenderStyle {
            width,
            ink: self.ink,
            ascii: self.ascii,
            breaks_commands: false,
        }
    }

    fn paint(self, style: Style, text: &str) -> String {
        let style = self.ink.shown(style);
        if text.is_empty() || style.is_plain() {
            return text.to_owned();
        }
        // A style across several lines would also colour text that a pager or an editor inserts
        // between them.
        let lines = text.split('\n').map(|line| {
            if line.is_empty() {
                String::new()
            } else {
                painted(style, line)
            }
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// One line of a change, with its sign.
struct ChangedLine {
    number: usize,
    line: String,
}

/// Returns whether the locale is set to one without UTF-8. An unset locale does not name the
/// terminal.
fn is_ascii_locale(environment: &Environment) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(|name| environment.var(name))
        .find(|value| !value.is_empty());
    let Some(locale) = locale else { return false };
    match locale.split_once('.') {
        Some((_, charset)) => !charset.to_lowercase().replace('-', "").starts_with("utf8"),
        None => matches!(locale, "C" | "POSIX"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::style::GOOD;
    use super::*;

    const COLOURS: Palette = Palette {
        ink: StyleSupport::Colours,
        ascii: false,
    };

    #[test]
    fn changed_lines_have_the_numbers_of_their_text() {
        let plain = Palette {
            ink: StyleSupport::Plain,
            ascii: false,
        };
        let old: String = (1..=30).map(|n| format!("line {n}\n")).collect();
        let new = old
            .replace("line 5\n", "line 5\nmore\n")
            .replace("line 25\n", "");
        let shown = plain.change("a.rs", &LineDiff::of(&old, &new), 0, MAX_CHANGE_LINES);
        let expected = [
            "a.rs +1 -1",
            " 3  line 3",
            " 4  line 4",
            " 5  line 5",
            " 6 +more",
            " 7  line 6",
            " 8  line 7",
            " 9  line 8",
            "⋮",
            "23  line 22",
            "24  line 23",
            "25  line 24",
            "25 -line 25",
            "26  line 26",
            "27  line 27",
            "28  line 28",
            "",
        ];
        assert_eq!(shown.as_str(), expected.join("\n"));
    }

    /// Returns the styles as readable tags.
    fn tags(styled: &Styled) -> String {
        let table = [
            ("\u{1b}[0m", "</>"),
            ("\u{1b}[1m", "<b>"),
            ("\u{1b}[2m", "<faint>"),
            ("\u{1b}[3m", "<i>"),
            ("\u{1b}[4m", "<u>"),
            ("\u{1b}[31m", "<bad>"),
            ("\u{1b}[32m", "<good>"),
            ("\u{1b}[36m", "<code>"),
        ];
        table
            .iter()
            .fold(styled.0.clone(), |text, (sequence, tag)| {
                text.replace(sequence, tag)
            })
    }

    #[test]
    fn effects_are_shown_without_colours() {
        let styled = |ink, style| tags(&Palette { ink, ..COLOURS }.styled(style, "word"));
        let table = [
            (StyleSupport::Colours, STRONG, "<b>word</>"),
            (StyleSupport::Effects, STRONG, "<b>word</>"),
            (StyleSupport::Effects, FAINT, "<faint>word</>"),
            (StyleSupport::Effects, GOOD, "word"),
            (StyleSupport::Plain, STRONG, "word"),
        ];
        for (ink, style, expected) in table {
            assert_eq!(styled(ink, style), expected, "{ink:?}");
        }
    }

    #[test]
    fn change_is_cut_and_cleaned() {
        let new: String = (0..100).map(|n| format!("{n}\u{1b}[31m\n")).collect();
        let shown = tags(&COLOURS.change("a.rs", &LineDiff::of("x\n", &new), 2, MAX_CHANGE_LINES));
        assert!(
            shown.starts_with(
                "  <b>a.rs +100 -1</>\n  <faint>  1</> <bad>-x</>\n  <faint>  1</> <good>+0\\x1b[31m</>\n"
            ),
            "{shown}"
        );
        assert!(shown.ends_with("  <faint>… 61 more lines</>\n"), "{shown}");
    }
}
