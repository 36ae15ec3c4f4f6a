//! Mentions: `@word` in a text, where the word is a path or a name.

use std::collections::HashSet;

use percent_encoding::percent_decode_str;

/// One mention in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mention<'a> {
    /// The text after `@`, without quotation marks.
    word: &'a str,
    /// True if it is in quotation marks.
    quoted: bool,
}

/// The maximum number of places at which text may follow a mention without a space.
const MAX_CUTS: usize = 32;

/// The longest reading in bytes: no path is longer.
const MAX_READING_BYTES: usize = 4096;

impl<'a> Mention<'a> {
    /// Returns whether it is in quotation marks.
    pub fn is_quoted(self) -> bool {
        self.quoted
    }

    /// Returns the possible readings, the longest first: with the punctuation at its end, and
    /// without; with the text that follows it without a space, as many languages are written, and
    /// without. Quoted text has one reading.
    pub fn spellings(self) -> impl Iterator<Item = &'a str> {
        let word = self.word;
        let mut ends = Vec::new();
        if !self.quoted {
            let pairs = word.char_indices().zip(word.char_indices().skip(1));
            let cuts = pairs.filter(|((_, before), (_, after))| may_end(*before, *after));
            ends.extend(cuts.map(|(_, (at, _))| at).take(MAX_CUTS));
        }
        ends.push(word.len());
        ends.retain(|end| *end <= MAX_READING_BYTES);
        let mut readings: Vec<&str> = Vec::new();
        for end in ends.into_iter().rev() {
            let mut reading = word.get(..end).unwrap_or_default();
            while !reading.is_empty() && readings.last() != Some(&reading) {
                // The next cut may be within the punctuation at the end of this one.
                if readings
                    .last()
                    .is_none_or(|last| reading.len() < last.len())
                {
                    readings.push(reading);
                }
                match reading.chars().next_back() {
                    Some(last) if !self.quoted && !last.is_alphanumeric() => {
                        reading = &reading[..reading.len() - last.len_utf8()];
                    }
                    _ => break,
                }
            }
        }
        readings.into_iter()
    }
}

/// Returns whether a mention may end between two characters: before quotation marks, brackets, the
/// punctuation of other scripts, and letters other than Latin ones.
fn may_end(before: char, after: char) -> bool {
    if !after.is_alphanumeric() {
        let is_mark = !after.is_ascii() && !is_combining(after);
        return is_mark || matches!(after, '\'' | '"' | ';' | '!' | '?' | '(' | ')' | '<' | '>');
    }
    let is_other = !is_latin(after) && !before.is_ascii_punctuation();
    is_other && (is_latin(before) || !before.is_alphanumeric() || is_unspaced(after))
}

/// Returns whether a character is a Latin letter, or an ASCII digit.
fn is_latin(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || c.is_alphanumeric() && matches!(c, '\u{80}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}')
}

/// Returns whether a character changes the letter before it.
fn is_combining(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}')
}

/// Returns whether a letter is of a script that puts no spaces between words, or, as in Korean,
/// none before particles.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{e00}'..='\u{eff}' // Thai, Lao
        | '\u{1000}'..='\u{109f}' // Myanmar
        | '\u{1780}'..='\u{17ff}' // Khmer
        | '\u{3005}'..='\u{30ff}' // Kana
        | '\u{3400}'..='\u{9fff}' // Han
        | '\u{ac00}'..='\u{d7af}' // Hangul
        | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}')
}

/// Returns the mentions in a text in order, without duplicates.
///
/// `@` counts at the start of a word and after letters of other scripts than the Latin one, which
/// often put no space there; it does not count in an e-mail address or after a backtick. A word
/// ends at white space, a comma of any script, a backtick or another `@` that does not begin a part
/// of a path (`node_modules/@types`), unless a backslash before a blank keeps it in the word.
/// `@"…"` and `@'…'` may contain anything but their quotes and line breaks.
pub fn mentions(text: &str) -> Vec<Mention<'_>> {
    let mut found: Vec<Mention<'_>> = Vec::new();
    let mut known: HashSet<Mention<'_>> = HashSet::new();
    let mut done = 0;
    for (at, _) in text.match_indices('@') {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let inside =
            before.is_some_and(|c| is_latin(c) || matches!(c, '_' | '`' | '@' | '/' | '.'));
        if at < done || inside {
            continue;
        }
        let rest = text.get(at + 1..).unwrap_or_default();
        let quotation = ['"', '\'']
            .into_iter()
            .find_map(|quote| rest.strip_prefix(quote)?.split_once(quote));
        let mention = match quotation {
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

/// Returns the unquoted word at the beginning of a text.
fn word(rest: &str) -> &str {
    let mut before = None;
    let end = rest.find(|c: char| {
        let ends = (c.is_whitespace() && (c, before) != (' ', Some('\\')))
            || matches!(c, '`' | ',' | '，' | '、' | '،')
            || (c == '@' && before != Some('/'));
        before = Some(c);
        ends
    });
    rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
}

/// A range of lines in a file, counted from 1 and including the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LineRange {
    /// The first line, from 1.
    pub first: u64,
    /// `None` for the last line of the file.
    pub last: Option<u64>,
}

/// Separates a path from the lines after it: `a.rs:10`, `a.rs:10-40`, `a.rs:10-`, `a.rs#L10-L40`,
/// and `a.rs:10:5`, as compilers print it.
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

/// Parses the lines in a fragment or after a colon: `10`, `10-40` in either order, `10-L40`, `10-`
/// to the end. With `colons`, `10:40` is a range too; otherwise it is a line and a column.
pub fn lines_of(text: &str, colons: bool) -> Option<LineRange> {
    if let Some(first) = text.strip_suffix('-') {
        let first = line_number(first)?;
        return Some(LineRange { first, last: None });
    }
    let (first, last) = text.split_once(['-', ':']).unwrap_or((text, text));
    let first = line_number(first)?;
    let last = line_number(last)?;
    let has_column = text.contains(':') && !colons;
    let last = if has_column { first } else { last };
    Some(LineRange {
        first: first.min(last),
        last: Some(first.max(last)),
    })
}

fn line_number(text: &str) -> Option<u64> {
    text.trim_start_matches('L')
        .parse()
        .ok()
        .filter(|line| *line > 0)
}

/// Decodes the escapes of addresses and of shells, as in `a%20b` and `a\ b`. Returns `None` if the
/// word has none, or does not decode to a possible path.
pub fn decoded(word: &str) -> Option<String> {
    let text = if word.contains("\\ ") {
        word.replace("\\ ", " ")
    } else {
        percent_decode_str(word).decode_utf8().ok()?.into_owned()
    };
    (text != word && !text.contains('\0')).then_some(text)
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
            ("@'My notes.md', @'no end", &["My notes.md", "'no"]),
            ("@My\\ notes.md, @a", &["My\\ notes.md", "a"]),
            ("@dir\\\nnext line", &["dir\\"]),
            ("„@explore“", &["explore“"]),
            ("看 @a.txt，然后", &["a.txt"]),
            ("请看@a.txt并解释", &["a.txt并解释"]),
            ("انظر و@a.txt، ثم @b", &["a.txt", "b"]),
            ("ב@a.txt", &["a.txt"]),
            ("看me@example.org é@x 5@x", &[]),
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
        // A line of punctuation is not a path.
        let line = format!("@{}", ".".repeat(MAX_READING_BYTES + 1));
        assert_eq!(mentions(&line)[0].spellings().count(), 0);
    }

    #[test]
    fn text_without_a_space_may_follow() {
        let table: &[(&str, &[&str])] = &[
            (
                "@a.txt并解释",
                &["a.txt并解释", "a.txt并解", "a.txt并", "a.txt"],
            ),
            (
                "@说明.md。再",
                &["说明.md。再", "说明.md。", "说明.md", "说"],
            ),
            ("@explore帮", &["explore帮", "explore"]),
            ("@a.txt를", &["a.txt를", "a.txt"]),
            ("@a.txtو", &["a.txtو", "a.txt"]),
            ("@مجلد/ملف", &["مجلد/ملف"]),
            ("@explore's", &["explore's", "explore"]),
            ("@「a」）", &["「a」）", "「a」", "「a"]),
            ("@exploreé", &["exploreé"]),
            ("@explorer.", &["explorer.", "explorer"]),
            ("@src/gone.rs", &["src/gone.rs"]),
            ("@src/没有", &["src/没有", "src/没"]),
            ("@\"a并 b'\"", &["a并 b'"]),
        ];
        for (text, expected) in table {
            let found: Vec<&str> = mentions(text)[0].spellings().collect();
            assert_eq!(found, *expected, "{text}");
        }
        let long = format!("@a.txt{}", "看".repeat(10_000));
        assert!(mentions(&long)[0].spellings().count() <= MAX_CUTS + 1);
        assert_eq!(mentions(&long)[0].spellings().last(), Some("a.txt"));
    }

    #[test]
    fn escapes_are_decoded() {
        let table = [
            ("a\\ b\\ c.txt", Some("a b c.txt")),
            ("a\\b", None),
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
        let lines = |first, last| {
            Some(LineRange {
                first,
                last: Some(last),
            })
        };
        let to_the_end = |first| Some(LineRange { first, last: None });
        let table = [
            ("a.rs", ("a.rs", None)),
            ("a.rs:10", ("a.rs", lines(10, 10))),
            ("a.rs:10-40", ("a.rs", lines(10, 40))),
            ("a.rs:10:5", ("a.rs", lines(10, 10))),
            ("a.rs#L10", ("a.rs", lines(10, 10))),
            ("a.rs#L10-L40", ("a.rs", lines(10, 40))),
            ("a.rs#L10:40", ("a.rs", lines(10, 40))),
            ("a.rs:40-10", ("a.rs", lines(10, 40))),
            ("a.rs:10-", ("a.rs", to_the_end(10))),
            ("a.rs#L10-", ("a.rs", to_the_end(10))),
            ("a.rs:-", ("a.rs:-", None)),
            ("a.rs:0", ("a.rs:0", None)),
            ("c:note", ("c:note", None)),
            (":10", (":10", None)),
        ];
        for (word, expected) in table {
            assert_eq!(with_lines(word), expected, "{word}");
        }
    }
}
