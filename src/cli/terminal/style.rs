//! The styles of texts for a terminal.

use anstyle::{AnsiColor, Style};

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
