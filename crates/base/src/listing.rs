//! Lists for a terminal: the states of their entries, and a table that fits a terminal of the usual
//! width.

/// The width of a table, in characters.
const WIDTH: usize = 80;

/// The characters between two columns.
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

/// Formats rows in columns. Cells that are too wide for a terminal are wrapped, so that nothing is
/// cut. The head may be empty. Without rows there is no text.
pub fn table<const N: usize>(head: &[&str; N], rows: &[[String; N]]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let natural: Vec<usize> = (0..N)
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([head[column].len()]).max().unwrap_or(0)
        })
        .collect();
    let widths = fitted(&natural, WIDTH.saturating_sub(GAP * N.saturating_sub(1)));
    let mut text = String::new();
    if head.iter().any(|title| !title.is_empty()) {
        line(head.iter().copied(), &widths, &mut text);
    }
    for row in rows {
        let cells: Vec<Vec<String>> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| wrapped(cell, *width))
            .collect();
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

fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize], out: &mut String) {
    let padded: Vec<String> = cells
        .zip(widths)
        .map(|(cell, width)| format!("{cell:<width$}"))
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
        let room = width.saturating_sub(current.chars().count() + 1);
        if !current.is_empty() && word.chars().count() > room {
            lines.push(std::mem::take(&mut current));
        }
        while word.chars().count() > width {
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

/// Splits a word that is longer than `width` characters.
fn broken(word: &str, width: usize) -> (&str, &str) {
    let end = word
        .char_indices()
        .nth(width.max(1))
        .map_or(word.len(), |(at, _)| at);
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
        let table = table(&["name", "state", "about"], &rows);
        assert_eq!(table, expected);
        assert!(table.lines().all(|line| line.chars().count() <= WIDTH));
        assert_eq!(super::table(&["a", "b"], &[]), "");
        assert_eq!(
            super::table(&["", ""], &[["a".into(), "b".into()]]),
            "a  b\n"
        );
    }

    #[test]
    fn word_without_a_break_is_cut_to_the_width() {
        assert_eq!(wrapped("abcdef g", 4), ["abcd", "ef g"]);
        assert_eq!(wrapped("a-bcdef", 4), ["a-", "bcde", "f"]);
        assert_eq!(wrapped("", 4), Vec::<String>::new());
    }
}
