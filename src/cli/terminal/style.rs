//! The styles of texts for a terminal.

use anstyle::{AnsiColor, Style};

use base::environment::Environment;

/// The style of less important text.
pub(in crate::cli) const FAINT: Style = Style::new().dimmed();
pub(in crate::cli) const STRONG: Style = Style::new().bold();
pub(in crate::cli) const GOOD: Style = AnsiColor::Green.on_default();
pub(in crate::cli) const BAD: Style = AnsiColor::Red.on_default();
const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
pub(super) const CODE: Style = AnsiColor::Cyan.on_default();

/// The sequence that ends all styles.
pub(super) const RESET: &str = "\u{1b}[0m";

/// Returns the sequences of the style that is on after a text, if those of `before` were on at its
/// beginning.
pub(super) fn open_colour(before: &str, text: &str) -> String {
    let mut open = before.to_owned();
    let mut rest = text;
    while let Some(at) = rest.find("\u{1b}[") {
        rest = &rest[at..];
        let Some(end) = rest.find('m') else { break };
        let sequence = &rest[..=end];
        if sequence == RESET {
            open.clear();
        } else {
            open.push_str(sequence);
        }
        rest = &rest[end + 1..];
    }
    open
}

/// Returns a text without our sequences for styles.
pub(super) fn without_styles(text: &str) -> String {
    let mut pieces = text.split('\u{1b}');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    out.extend(
        pieces
            .filter_map(|piece| piece.split_once('m'))
            .map(|(_, words)| words),
    );
    out
}

/// The styles that a stream shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StyleSupport {
    /// None: a pipe, a file, or a terminal that has none.
    Plain,
    /// Bold, faint and underlined text without colours, as `NO_COLOR` wants it.
    Effects,
    Colours,
}

impl StyleSupport {
    /// Returns the styles that a stream shows. As in other programs, `NO_COLOR` takes precedence over
    /// `CLICOLOR_FORCE` and `FORCE_COLOR`, which show colours in a pipe and on any terminal.
    pub(super) fn of(is_terminal: bool, environment: &Environment) -> Self {
        let is_on = |name: &&str| {
            let value = environment.var(name);
            value.is_some_and(|value| !matches!(value, "0" | "false"))
        };
        let is_plain = !is_terminal || environment.var("TERM") == Some("dumb");
        let is_colourless = environment.var("NO_COLOR").is_some();
        if !is_colourless && ["CLICOLOR_FORCE", "FORCE_COLOR"].iter().any(is_on) {
            return Self::Colours;
        }
        if is_plain {
            return Self::Plain;
        }
        if is_colourless {
            return Self::Effects;
        }
        Self::Colours
    }

    /// Returns the part of a style that is shown.
    pub(super) fn shown(self, style: Style) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Effects => Style::new().effects(style.get_effects()),
            Self::Colours => style,
        }
    }
}

pub(super) fn painted(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Returns the style of a verdict; other words are plain.
pub(super) fn of_verdict(word: &str) -> Style {
    match word {
        "allowed" => GOOD,
        "asks" => DOUBTFUL,
        "refused" | "does" => BAD,
        _ => Style::new(),
    }
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

    #[test]
    fn variables_decide_on_colours() {
        use StyleSupport::{Colours, Effects, Plain};
        let table: [(&[(&str, &str)], _, _); 10] = [
            (&[], Colours, Plain),
            (&[("TERM", "dumb")], Plain, Plain),
            (&[("NO_COLOR", "1")], Effects, Plain),
            (&[("NO_COLOR", "")], Colours, Plain),
            (&[("CLICOLOR_FORCE", "1")], Colours, Colours),
            (&[("FORCE_COLOR", "3")], Colours, Colours),
            (&[("FORCE_COLOR", "0")], Colours, Plain),
            (
                &[("CLICOLOR_FORCE", "1"), ("TERM", "dumb")],
                Colours,
                Colours,
            ),
            (
                &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")],
                Effects,
                Plain,
            ),
            (&[("NO_COLOR", "1"), ("TERM", "dumb")], Plain, Plain),
        ];
        for (variables, on_terminal, in_pipe) in table {
            let variables_of = variables.iter();
            let owned = variables_of.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let environment = Environment::from_vars(owned.collect());
            let both = [true, false].map(|is_terminal| StyleSupport::of(is_terminal, &environment));
            assert_eq!(both, [on_terminal, in_pipe], "{variables:?}");
        }
    }
}
