//! `@word` in a text: the path or the name it refers to.

use std::collections::HashSet;

use percent_encoding::percent_decode_str;

/// What one `@` refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mention<'a> {
    word: &'a str,
    quoted: bool,
}

impl<'a> Mention<'a> {
    /// The ways to take it, the longest first: with the punctuation at its end, and without. What stands in
    /// quotes is taken as it is.
    pub fn spellings(self) -> impl Iterator<Item = &'a str> {
        let shorter = move |word: &&'a str| {
            let last = word.chars().next_back().filter(|c| !self.quoted && !c.is_alphanumeric())?;
            word.get(..word.len() - last.len_utf8()).filter(|word| !word.is_empty())
        };
        std::iter::successors(Some(self.word), shorter)
    }
}

/// What a text mentions, in order, each once. `@` counts at the start of a word, so that an address is none,
/// and not behind a backtick. A word ends at white space, a comma, a backtick or another `@` that does not
/// begin a part of a path (`node_modules/@types`); `@"…"` may hold anything but quotes and new lines.
pub fn mentions(text: &str) -> Vec<Mention<'_>> {
    let mut found: Vec<Mention<'_>> = Vec::new();
    let mut known: HashSet<Mention<'_>> = HashSet::new();
    let mut done = 0;
    for (at, _) in text.match_indices('@') {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let inside = before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '`' | '@' | '/' | '.'));
        if at < done || inside {
            continue;
        }
        let rest = text.get(at + 1..).unwrap_or_default();
        let mention = match rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
            Some((word, _)) if !word.contains('\n') => Mention { word, quoted: true },
            _ => Mention { word: word(rest), quoted: false },
        };
        done = at + 1 + mention.word.len() + if mention.quoted { 2 } else { 0 };
        if !mention.word.is_empty() && known.insert(mention) {
            found.push(mention);
        }
    }
    found
}

fn word(rest: &str) -> &str {
    let mut before = None;
    let end = rest.find(|c: char| {
        let ends = c.is_whitespace() || matches!(c, '`' | ',') || (c == '@' && before != Some('/'));
        before = Some(c);
        ends
    });
    rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
}

/// Lines of a file, counted from 1; the last is one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LineRange {
    pub first: u64,
    pub last: u64,
}

/// A path without the lines behind it, and those: `a.rs:10`, `a.rs:10-40`, `a.rs#L10-L40`, and what a
/// compiler prints, `a.rs:10:5`.
pub fn with_lines(word: &str) -> (&str, Option<LineRange>) {
    let split = word
        .rsplit_once("#L")
        .or_else(|| word.split_once(':'))
        .and_then(|(path, lines)| Some((path, lines_of(lines, word.contains("#L"))?)));
    match split {
        Some((path, lines)) if !path.is_empty() => (path, Some(lines)),
        _ => (word, None),
    }
}

/// Lines as they stand in a fragment or behind a colon: `10`, `10-40`, `10-L40`; with `colons`, `10:40` as
/// well, which is a line and a column elsewhere.
pub fn lines_of(text: &str, colons: bool) -> Option<LineRange> {
    let number = |text: &str| text.trim_start_matches('L').parse().ok().filter(|line| *line > 0);
    let (first, last) = text.split_once(['-', ':']).unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    let column = text.contains(':') && !colons;
    let lines = LineRange { first, last: if column { first } else { last } };
    (lines.first <= lines.last).then_some(lines)
}

/// A word with its percent signs resolved, as in `a%20b`; none where nothing in it is spelled so.
pub fn decoded(word: &str) -> Option<String> {
    let text = percent_decode_str(word).decode_utf8().ok()?;
    (text != word && !text.contains('\0')).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_as_a_mention() {
        let table = [
            ("see @src/lib.rs and @a.b.", &["src/lib.rs", "a.b."][..]),
            ("@a, @b; (@c)", &["a", "b;", "c)"]),
            ("me@example.org `@x` @@y a/@z b.@z", &[]),
            ("@~/notes.md @a @a", &["~/notes.md", "a"]),
            ("@node_modules/@types/node and @a@b", &["node_modules/@types/node", "a"]),
            ("@\"My notes.md\", @\"no end", &["My notes.md", "\"no"]),
            ("„@explore“", &["explore“"]),
            ("@", &[]),
        ];
        for (text, expected) in table {
            let words: Vec<&str> = mentions(text).iter().map(|mention| mention.word).collect();
            assert_eq!(words, expected, "{text}");
        }
    }

    #[test]
    fn punctuation_may_belong_to_it_or_not() {
        let spellings = |text| mentions(text)[0].spellings().collect::<Vec<_>>();
        assert_eq!(spellings("@a.b.)"), ["a.b.)", "a.b.", "a.b"]);
        assert_eq!(spellings("@src/: there"), ["src/:", "src/", "src"]);
        assert_eq!(spellings("@\"a b.\""), ["a b."]);
    }

    #[test]
    fn percent_signs() {
        let table = [
            ("a%20b.txt", Some("a b.txt")),
            ("%C3%A9", Some("é")),
            ("100%", None),
            ("a%2", None),
            ("a%zz", None),
            ("%ff", None),
            ("a%00", None),
            ("plain", None),
        ];
        for (word, expected) in table {
            assert_eq!(decoded(word).as_deref(), expected, "{word}");
        }
    }

    #[test]
    fn lines_behind_a_path() {
        let lines = |first, last| Some(LineRange { first, last });
        let table = [
            ("a.rs", ("a.rs", None)),
            ("a.rs:10", ("a.rs", lines(10, 10))),
            ("a.rs:10-40", ("a.rs", lines(10, 40))),
            ("a.rs:10:5", ("a.rs", lines(10, 10))),
            ("a.rs#L10", ("a.rs", lines(10, 10))),
            ("a.rs#L10-L40", ("a.rs", lines(10, 40))),
            ("a.rs#L10:40", ("a.rs", lines(10, 40))),
            ("a.rs:40-10", ("a.rs:40-10", None)),
            ("a.rs:0", ("a.rs:0", None)),
            ("c:note", ("c:note", None)),
            (":10", (":10", None)),
        ];
        for (word, expected) in table {
            assert_eq!(with_lines(word), expected, "{word}");
        }
    }
}
