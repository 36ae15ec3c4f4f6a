//! Lists for a terminal: the states of their entries, and a table that fits the terminal. Widths
//! are in columns of a terminal, of which a character takes none, one or two.

use crate::environment::Timestamp;
use crate::text;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The width of the narrowest table; a narrower terminal wraps its lines.
const MIN_WIDTH: usize = 40;

/// The width of the narrowest column whose cells are wrapped. If one would be narrower, the table
/// is replaced by rows whose cells are below each other.
const MIN_CELL: usize = 20;

/// The width of the space between two columns.
const GAP: usize = 2;

/// The characters after which a word that is too long is broken.
const BREAKS: &str = "/-_,=@|";

/// The state of an entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryState {
    Active,
    WaitsForTrust,
    /// The user has declined to trust the project.
    NotTrusted,
    NotInstalled,
    /// Switched off by the settings or a variable, or not for this project.
    Off,
    NeedsLogin,
    Failed,
}

impl EntryState {
    /// Returns the state as in a table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::WaitsForTrust => "waits for trust",
            Self::NotTrusted => "not trusted",
            Self::NotInstalled => "not installed",
            Self::Off => "off",
            Self::NeedsLogin => "needs login",
            Self::Failed => "failed",
        }
    }

    /// Returns the state as in JSON.
    pub fn code(self) -> String {
        self.as_str().replace(' ', "-")
    }
}

/// Returns the width of the terminal that standard output is, or `None` if it is not a terminal or
/// has no known width.
pub fn terminal_width() -> Option<usize> {
    // Fails for everything that is not a terminal.
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Describes how long ago a time was.
pub fn age(then: Timestamp, now: Timestamp) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const MONTH: u64 = 30 * DAY;
    const YEAR: u64 = 365 * DAY;
    let seconds = now.0.saturating_sub(then.0) / 1000;
    let days = |days: u64, noun: &str| {
        let days = usize::try_from(days).unwrap_or(usize::MAX);
        format!("{} ago", text::count(days, noun))
    };
    match seconds {
        0..MINUTE => "just now".to_owned(),
        MINUTE..HOUR => format!("{} min ago", seconds / MINUTE),
        HOUR..DAY => format!("{} h ago", seconds / HOUR),
        DAY..MONTH => days(seconds / DAY, "day"),
        MONTH..YEAR => days(seconds / MONTH, "month"),
        _ => days(seconds / YEAR, "year"),
    }
}

/// Returns the number of columns that a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Shortens a text to a number of columns, with an ellipsis if something is missing.
pub fn shortened(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let (start, _) = text.split_at(fitting(text, columns.saturating_sub(1)));
    format!("{}…", start.trim_end())
}

/// Shortens a text to its end in a number of columns, with an ellipsis if something is missing: of
/// a path, the last names say the most.
pub fn shortened_start(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut available = columns.saturating_sub(1);
    let mut start = text.len();
    for (at, c) in text.char_indices().rev() {
        let Some(rest) = available.checked_sub(c.width().unwrap_or(0)) else {
            break;
        };
        available = rest;
        start = at;
    }
    format!("…{}", &text[start..])
}

/// Returns the length in bytes of the longest start of a text that fits into a number of columns.
fn fitting(text: &str, columns: usize) -> usize {
    let mut used = 0;
    text.char_indices()
        .find(|(_, c)| {
            used += c.width().unwrap_or(0);
            used > columns
        })
        .map_or(text.len(), |(at, _)| at)
}

/// Formats rows in columns, in the width of the terminal. Cells that are too wide for it are
/// wrapped, so that nothing is cut. In a pipe or a file each row is one line. The head may be
/// empty. Without rows there is no text.
pub fn table<const N: usize>(head: &[&str; N], rows: &[[String; N]]) -> String {
    table_in(width_of_tables(), None, head, rows)
}

/// Formats rows like [`table`]. The column with the index `name` contains names that can be typed
/// as they are printed: none is broken. One that is too long for its column ends its line, and the
/// rest of the row follows below it.
pub fn table_of_names<const N: usize>(
    name: usize,
    head: &[&str; N],
    rows: &[[String; N]],
) -> String {
    table_in(width_of_tables(), Some(name), head, rows)
}

fn width_of_tables() -> usize {
    terminal_width().unwrap_or(usize::MAX).max(MIN_WIDTH)
}

fn table_in<const N: usize>(
    width: usize,
    name: Option<usize>,
    head: &[&str; N],
    rows: &[[String; N]],
) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let natural: Vec<usize> = (0..N)
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].width());
            cells.chain([head[column].width()]).max().unwrap_or(0)
        })
        .collect();
    let widths = fitted(&natural, width.saturating_sub(GAP * N.saturating_sub(1)));
    let is_narrow = |(width, natural): (&usize, &usize)| width < natural && *width < MIN_CELL;
    if widths.iter().zip(&natural).any(is_narrow) {
        return stacked(width, name, head, rows);
    }
    let mut text = String::new();
    if head.iter().any(|title| !title.is_empty()) {
        line(head.iter().copied(), &widths, &mut text);
    }
    for row in rows {
        let mut cells: Vec<Vec<String>> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| wrapped(cell, *width))
            .collect();
        if let Some(name) = name.filter(|name| row[*name].width() > widths[*name]) {
            let before = row[..name].iter().map(String::as_str);
            line(
                before.chain([row[name].as_str()]),
                &widths[..=name],
                &mut text,
            );
            cells[..=name].fill(Vec::new());
            if cells.iter().all(Vec::is_empty) {
                continue;
            }
        }
        let height = cells.iter().map(Vec::len).max().unwrap_or(0).max(1);
        for at in 0..height {
            let cells = cells
                .iter()
                .map(|lines| lines.get(at).map_or("", String::as_str));
            line(cells, &widths, &mut text);
        }
    }
    text
}

/// Formats rows one below the other, for a terminal that is too narrow for the columns: the first
/// cell after the marks of the row, and below it each of the others after the title of its column.
/// A name that is too long is left to the terminal to wrap.
fn stacked<const N: usize>(
    width: usize,
    name: Option<usize>,
    head: &[&str; N],
    rows: &[[String; N]],
) -> String {
    const INDENT: &str = "  ";
    let mut text = String::new();
    for row in rows {
        let mut is_first = true;
        let mut marks = String::new();
        for (column, (title, cell)) in head.iter().zip(row).enumerate() {
            let cell = cell.trim();
            if cell.is_empty() || cell == "-" {
                continue;
            }
            if is_first && title.is_empty() && column + 1 < N {
                marks.push_str(&format!("{cell} "));
                continue;
            }
            let cell = match (is_first, title.is_empty()) {
                (true, _) => format!("{}{cell}", std::mem::take(&mut marks)),
                (_, true) => cell.to_owned(),
                (false, false) => format!("{title}: {cell}"),
            };
            let indent = if is_first { "" } else { INDENT };
            is_first = false;
            if name == Some(column) {
                text.push_str(&format!("{indent}{cell}\n"));
                continue;
            }
            for (at, part) in wrapped(&cell, width - 2 * INDENT.len()).iter().enumerate() {
                let hanging = if at == 0 { "" } else { INDENT };
                text.push_str(&format!("{indent}{hanging}{part}\n"));
            }
        }
    }
    text
}

/// Appends a line with the cells, padded to the widths of their columns.
fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize], out: &mut String) {
    let padded: Vec<String> = cells
        .zip(widths)
        .map(|(cell, width)| format!("{cell}{}", " ".repeat(width.saturating_sub(cell.width()))))
        .collect();
    out.push_str(padded.join(&" ".repeat(GAP)).trim_end());
    out.push('\n');
}

/// Limits the widest columns to one width, so that the sum is not above `room`.
fn fitted(natural: &[usize], room: usize) -> Vec<usize> {
    let sum = |limit: usize| {
        natural
            .iter()
            .map(|width| (*width).min(limit))
            .sum::<usize>()
    };
    let mut limit = natural.iter().copied().max().unwrap_or(0);
    while limit > 1 && sum(limit) > room {
        limit -= 1;
    }
    // The remaining width goes to the first column that was limited.
    let mut rest = room.saturating_sub(sum(limit));
    natural
        .iter()
        .map(|width| {
            let more = rest.min(width.saturating_sub(limit));
            rest -= more;
            (*width).min(limit) + more
        })
        .collect()
}

/// Breaks a text into lines: between words, and within a word that is longer than a line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut current = String::new();
    for word in text.split_whitespace() {
        let mut word = word;
        let available = width.saturating_sub(current.width() + 1);
        if !current.is_empty() && word.width() > available {
            lines.push(std::mem::take(&mut current));
        }
        while word.width() > width {
            let (piece, rest) = broken(word, width);
            lines.push(piece.to_owned());
            word = rest;
        }
        if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(word);
    }
    if !current.is_empty() {
        lines.push(current);
    }
    lines
}

/// Splits a word that is wider than `width` columns. The first part is never empty.
fn broken(word: &str, width: usize) -> (&str, &str) {
    let first = word.chars().next().map_or(0, char::len_utf8);
    let end = fitting(word, width).max(first);
    let at = word[..end]
        .rfind(|c| BREAKS.contains(c))
        .map(|at| at + 1)
        .filter(|at| *at > 1)
        .unwrap_or(end);
    word.split_at(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The width of a usual terminal.
    const WIDTH: usize = 80;

    #[test]
    fn table_fits_a_terminal_and_loses_nothing() {
        let cells = |row: [&str; 3]| row.map(str::to_owned);
        let rows = [
            cells(["a", "active", "short"]),
            cells([
                "./a/very/long/path/that/does/not/fit/into/half/of/a/line.ts",
                "not installed",
                "several words that go on and on, until they need more than one line",
            ]),
            cells(["é", "", ""]),
        ];
        let expected = "\
name                              state          about
a                                 active         short
./a/very/long/path/that/does/     not installed  several words that go on and
not/fit/into/half/of/a/line.ts                   on, until they need more than
                                                 one line
é
";
        let table = table_in(WIDTH, None, &["name", "state", "about"], &rows);
        assert_eq!(table, expected);
        assert!(table.lines().all(|line| line.width() <= WIDTH));
        assert_eq!(super::table(&["a", "b"], &[]), "");
        assert_eq!(
            super::table(&["", ""], &[["a".into(), "b".into()]]),
            "a  b\n"
        );
    }

    #[test]
    fn narrow_terminal_shows_cells_below_each_other() {
        let rows = [
            [
                "build",
                "primary",
                "-",
                "Does the work: reads, edits and runs what is needed",
            ],
            ["plan", "primary", "a/b", ""],
        ]
        .map(|row| row.map(str::to_owned));
        let expected = "\
build
  mode: primary
  about: Does the work: reads, edits
    and runs what is needed
plan
  mode: primary
  model: a/b
";
        let head = ["name", "mode", "model", "about"];
        assert_eq!(table_in(40, None, &head, &rows), expected);
        assert!(table_in(80, None, &head, &rows).starts_with("name   mode"));
    }

    #[test]
    fn name_is_never_broken_and_follows_its_mark() {
        let rows = [
            ["*", "ollama/qwen3:8b", "40k", "-T---"],
            [
                " ",
                "amazon-bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
                "200k / 64k",
                "RTIP-",
            ],
        ]
        .map(|row| row.map(str::to_owned));
        let head = ["", "model", "context/out", "can"];
        let wide = "\
\x20  model                                                      context/out  can
*  ollama/qwen3:8b                                            40k          -T---
   amazon-bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0
                                                              200k / 64k   RTIP-
";
        let narrow = "\
* ollama/qwen3:8b
  context/out: 40k
  can: -T---
amazon-bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0
  context/out: 200k / 64k
  can: RTIP-
";
        assert_eq!(table_in(WIDTH, Some(1), &head, &rows), wide);
        assert_eq!(table_in(30, Some(1), &head, &rows), narrow);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let rows = [
            ["日本語".to_owned(), "文字列は二桁".to_owned()],
            ["🦀".to_owned(), "crab".to_owned()],
            ["e\u{301}".to_owned(), "accent".to_owned()],
        ];
        let expected = "日本語  文字列は二桁\n🦀      crab\ne\u{301}       accent\n";
        assert_eq!(table_in(WIDTH, None, &["", ""], &rows), expected);
        assert_eq!(wrapped("文字列は", 5), ["文字", "列は"]);
        assert_eq!(wrapped("文字", 1), ["文", "字"]);
        assert_eq!(shortened("文字列は", 6), "文字…");
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcd", 3), "ab…");
        assert_eq!(shortened_start("/a/b", 4), "/a/b");
        assert_eq!(shortened_start("/a/bcd", 4), "…bcd");
        assert_eq!(shortened_start("/文字列は", 6), "…列は");
    }

    #[test]
    fn table_has_the_width_of_the_terminal() {
        let rows = [["a".to_owned(), "word ".repeat(40)]];
        let lines = |width| table_in(width, None, &["", ""], &rows).lines().count();
        assert_eq!(lines(40), 6);
        assert_eq!(lines(210), 1);
        assert_eq!(lines(usize::MAX), 1);
    }

    #[test]
    fn word_without_a_break_is_cut_to_the_width() {
        assert_eq!(wrapped("abcdef g", 4), ["abcd", "ef g"]);
        assert_eq!(wrapped("a-bcdef", 4), ["a-", "bcde", "f"]);
        assert_eq!(wrapped("", 4), Vec::<String>::new());
    }

    #[test]
    fn times_are_ages() {
        for (minutes, expected) in [
            (0, "just now"),
            (59, "59 min ago"),
            (119, "1 h ago"),
            (24 * 60, "1 day ago"),
            (29 * 24 * 60, "29 days ago"),
            (70 * 24 * 60, "2 months ago"),
            (800 * 24 * 60, "2 years ago"),
        ] {
            let now = Timestamp(minutes * 60_000);
            assert_eq!(age(Timestamp(0), now), expected);
        }
    }
}
