//! Text for a terminal: cleaned first, then coloured.

use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};

use super::markdown::{Look, MarkdownStream};
use base::environment::Environment;
use base::text;

/// The style of less important text.
pub(in crate::cli) const FAINT: Style = Style::new().dimmed();
pub(in crate::cli) const STRONG: Style = Style::new().bold();
pub(in crate::cli) const GOOD: Style = AnsiColor::Green.on_default();
pub(in crate::cli) const BAD: Style = AnsiColor::Red.on_default();
pub(super) const CODE: Style = AnsiColor::Cyan.on_default();

/// The number of lines shown of a change.
const MAX_CHANGE_LINES: usize = 40;

/// Text that is safe for a terminal: it contains no control sequences except our own colours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct Styled(String);

impl Styled {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Appends another text.
    pub(in crate::cli) fn push(&mut self, more: &Self) {
        self.0.push_str(&more.0);
    }
}

/// The colours of a stream.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct Palette {
    colours: bool,
    /// Whether our own marks are limited to ASCII.
    ascii: bool,
}

impl Palette {
    /// Returns colours if the stream is a terminal that has them, unless `NO_COLOR` is set.
    pub(in crate::cli) fn of(stream: &impl IsTerminal, environment: &Environment) -> Self {
        let plain =
            environment.var("NO_COLOR").is_some() || environment.var("TERM") == Some("dumb");
        Self {
            colours: stream.is_terminal() && !plain,
            ascii: is_ascii_locale(environment),
        }
    }

    /// Returns one of two marks, by the characters that the locale has.
    pub(in crate::cli) fn mark(self, mark: &'static str, ascii: &'static str) -> &'static str {
        if self.ascii { ascii } else { mark }
    }

    pub(in crate::cli) fn plain(words: &str) -> Styled {
        Styled(text::shown(words).into_owned())
    }

    pub(in crate::cli) fn styled(self, style: Style, words: &str) -> Styled {
        Styled(self.paint(style, &text::shown(words)))
    }

    /// Returns one line in a style, with line breaks escaped.
    pub(in crate::cli) fn line(self, style: Style, words: &str) -> Styled {
        Styled(self.paint(style, &text::escaped(words)))
    }

    /// Renders a Markdown text, indented by `indent` blanks.
    pub(in crate::cli) fn markdown(self, words: &str, indent: usize) -> Styled {
        let look = self.look(super::columns().saturating_sub(indent));
        let mut stream = MarkdownStream::default();
        let mut all = stream.push(&text::shown(words), look);
        all.push_str(&stream.end(look));
        let blank = " ".repeat(indent);
        Styled(all.lines().map(|line| format!("{blank}{line}\n")).collect())
    }

    /// Renders a file's change as a unified diff of at most [`MAX_CHANGE_LINES`] lines.
    pub(in crate::cli) fn change(self, path: &str, old: &str, new: &str, indent: usize) -> Styled {
        let all = text::diff::LineDiff::of(old, new).unified(Some((path, path)));
        let all = text::shown(&all);
        let blank = " ".repeat(indent);
        let mut out = String::new();
        for line in all.lines().take(MAX_CHANGE_LINES) {
            out += &format!("{blank}{}\n", self.paint(of_change(line), line));
        }
        let more = all.lines().count().saturating_sub(MAX_CHANGE_LINES);
        if more > 0 {
            out += &format!(
                "{blank}{}\n",
                self.paint(FAINT, &format!("… {} more", text::count(more, "line")))
            );
        }
        Styled(out)
    }

    /// Returns the look of Markdown in a terminal of a width.
    pub(super) fn look(self, width: usize) -> Look {
        Look {
            width,
            colours: self.colours,
            ascii: self.ascii,
        }
    }

    fn paint(self, style: Style, words: &str) -> String {
        if !self.colours || words.is_empty() || style.is_plain() {
            return words.to_owned();
        }
        // A style across several lines would also colour text that a pager or an editor inserts
        // between them.
        let lines = words.split('\n').map(|line| {
            if line.is_empty() {
                String::new()
            } else {
                painted(style, line)
            }
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Returns whether the locale is set to one without UTF-8. An unset locale says nothing of the
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

pub(super) fn painted(style: Style, words: &str) -> String {
    format!("{style}{words}{style:#}")
}

pub(super) fn of_change(line: &str) -> Style {
    match line.as_bytes().first() {
        _ if line.starts_with("+++") || line.starts_with("---") => STRONG,
        Some(b'+') => GOOD,
        Some(b'-') => BAD,
        Some(b'@') => CODE,
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLOURS: Palette = Palette {
        colours: true,
        ascii: false,
    };

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
    fn change_is_cut_and_cleaned() {
        let new: String = (0..100).map(|n| format!("{n}\u{1b}[31m\n")).collect();
        let shown = tags(&COLOURS.change("a.rs", "x\n", &new, 2));
        assert!(
            shown.starts_with(
                "  <b>--- a.rs</>\n  <b>+++ a.rs</>\n  <code>@@ -1 +1,100 @@</>\n  <bad>-x</>\n  <good>+0\\x1b[31m</>\n"
            ),
            "{shown}"
        );
        assert!(shown.ends_with("  <faint>… 64 lines more</>\n"), "{shown}");
    }
}
