//! Mentions: `@word` in a text, where the word is a path or a name.

use std::collections::HashSet;

use percent_encoding::percent_decode_str;

/// One mention in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mention<'a> {
    word: &'a str,
    quoted: bool,
}

impl<'a> Mention<'a> {
    /// Returns the possible readings, the longest first: with the punctuation at its end, and
    /// without. Quoted text has one reading.
    pub fn spellings(self) -> impl Iterator<Item = &'a str> {
        let shorter = move |word: &&'a str| {
            let last = word.chars().next_back()?;
            if self.quoted || last.is_alphanumeric() {
                return None;
            }
            word.get(..word.len() - last.len_utf8())
                .filter(|word| !word.is_empty())
        };
        std::iter::successors(Some(self.word), shorter)
    }
}

/// Returns the mentions in a text in order, without duplicates.
///
/// `@` counts at the start of a word, so that an e-mail address is not a mention, and not after a
/// backtick. A word ends at white space, a comma, a backtick or another `@` that does not begin a
/// part of a path (`node_modules/@types`). `@"…"` may contain anything but quotes and line breaks.
pub fn mentions(text: &str) -> Vec<Mention<'_>> {
    let mut found: Vec<Mention<'_>> = Vec::new();
    let mut known: HashSet<Mention<'_>> = HashSet::new();
    let mut done = 0;
    for (at, _) in text.match_indices('@') {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let inside =
            before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '`' | '@' | '/' | '.'));
        if at < done || inside {
            continue;
        }
        let rest = text.get(at + 1..).unwrap_or_default();
        let mention = match rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
            Some((word, _)) if !word.contains('\n') => Mention { word, quoted: true },
            _ => Mention {
                word: word(rest),
                quoted: false,
            },
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

/// A range of lines in a file, counted from 1 and including the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LineRange {
    pub first: u64,
    pub last: u64,
}

/// Separates a path from the lines after it: `a.rs:10`, `a.rs:10-40`, `a.rs#L10-L40`, and
/// `a.rs:10:5`, as compilers print it.
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

/// Parses the lines in a fragment or after a colon: `10`, `10-40`, `10-L40`. With `colons`, `10:40`
/// is a range too; otherwise it is a line and a column.
pub fn lines_of(text: &str, colons: bool) -> Option<LineRange> {
    let (first, last) = text.split_once(['-', ':']).unwrap_or((text, text));
    let first = line_number(first)?;
    let last = line_number(last)?;
    let has_column = text.contains(':') && !colons;
    let lines = LineRange {
        first,
        last: if has_column { first } else { last },
    };
    (lines.first <= lines.last).then_some(lines)
}

fn line_number(text: &str) -> Option<u64> {
    text.trim_start_matches('L')
        .parse()
        .ok()
        .filter(|line| *line > 0)
}

/// Decodes percent escapes, as in `a%20b`. Returns `None` if the word has none, or does not decode
/// to a possible path.
pub fn decoded(word: &str) -> Option<String> {
    let text = percent_decode_str(word).decode_utf8().ok()?;
    (text != word && !text.contains('\0')).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mentions_are_found_at_word_starts() {
        let table = [
            ("see @src/lib.rs and @a.b.", &["src/lib.rs", "a.b."][..]),
            ("@a, @b; (@c)", &["a", "b;", "c)"]),
            ("me@example.org `@x` @@y a/@z b.@z", &[]),
            ("@~/notes.md @a @a", &["~/notes.md", "a"]),
            (
                "@node_modules/@types/node and @a@b",
                &["node_modules/@types/node", "a"],
            ),
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
    fn trailing_punctuation_is_optional() {
        let spellings = |text| mentions(text)[0].spellings().collect::<Vec<_>>();
        assert_eq!(spellings("@a.b.)"), ["a.b.)", "a.b.", "a.b"]);
        assert_eq!(spellings("@src/: there"), ["src/:", "src/", "src"]);
        assert_eq!(spellings("@\"a b.\""), ["a b."]);
    }

    #[test]
    fn percent_escapes_are_decoded() {
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
    fn lines_after_path_are_parsed() {
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
