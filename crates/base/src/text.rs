//! Small operations on text: cutting, and making untrusted text safe to display.
//!
//! File names, commands and model output may contain terminal escapes, line breaks, or characters
//! that reverse the reading direction. In a title or a question these could disguise the text, so
//! they are escaped there: `\x1b`, `\n`, `\u{202e}`.

pub mod diff;
pub mod mark;
pub mod mention;
mod nearest;
pub mod shared;
pub mod surrogates;
mod unseen;
mod wrapped;

use std::borrow::Cow;

use serde_json::Value;

pub use nearest::nearest;
pub use unseen::{UnseenFilter, escaped, is_deceptive, is_hidden, json, shown, spelled, visible};
pub use wrapped::without_tags;

/// The maximum length of a title, in characters.
pub const MAX_TITLE_CHARS: usize = 120;

/// Returns a single line of at most [`MAX_TITLE_CHARS`] characters. Invisible characters are
/// escaped, and a text that is too long ends in `…`.
pub fn title(text: &str) -> String {
    cut_chars(&escaped(text.trim()), MAX_TITLE_CHARS)
}

/// Returns the title of a command: its only line, or the first one with the number of all lines.
pub fn command_title(command: &str) -> String {
    let command = command.trim();
    let Some((first, rest)) = command.split_once('\n') else {
        return title(command);
    };
    let lines = 1 + rest.lines().count();
    let count = format!("({lines} lines)");
    let first = escaped(first.trim_end());
    let room = MAX_TITLE_CHARS - " … ".chars().count() - count.chars().count();
    let shown = cut_chars(&first, room);
    if shown == first {
        format!("{shown} … {count}")
    } else {
        format!("{shown} {count}")
    }
}

/// Returns whether a value is longer than `most` bytes as JSON, estimated from its texts and the
/// number of its values. Reading stops at the limit.
pub fn is_longer(value: &Value, most: usize) -> bool {
    fn fits(value: &Value, remaining: &mut usize) -> bool {
        let own = if let Value::String(text) = value {
            text.len()
        } else {
            0
        };
        let Some(left) = remaining.checked_sub(own + 1) else {
            return false;
        };
        *remaining = left;
        match value {
            Value::Array(values) => values.iter().all(|value| fits(value, remaining)),
            Value::Object(members) => members.iter().all(|(name, value)| {
                *remaining = remaining.saturating_sub(name.len());
                fits(value, remaining)
            }),
            _ => true,
        }
    }
    let mut remaining = most;
    !fits(value, &mut remaining)
}

/// Quotes an argument of a command line for a shell, unless it is plain.
pub fn shell_quoted(argument: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./,:=@%+".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        return argument.into();
    }
    format!("'{}'", argument.replace('\'', r"'\''")).into()
}

/// Escapes a text for use between tags.
pub fn tagged(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Replaces characters that some provider of models rejects in names, all but ASCII letters,
/// digits, `_` and `-`, by `_`.
pub fn plain(name: &str) -> Cow<'_, str> {
    if name.chars().all(is_plain) {
        return name.into();
    }
    name.chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect()
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Returns at most `chars` characters. The last one is `…` if text was cut off.
pub fn cut_chars(text: &str, chars: usize) -> String {
    if text.char_indices().nth(chars).is_none() {
        return text.to_owned();
    }
    let end = text
        .char_indices()
        .nth(chars.saturating_sub(1))
        .map_or(0, |(at, _)| at);
    format!("{}…", &text[..end])
}

/// Returns a text without blank lines at its beginning and blanks at its end. The first line keeps
/// its indentation.
pub fn without_blank_ends(text: &str) -> &str {
    let text = text.trim_end();
    let blank = text.len() - text.trim_start().len();
    let begin = text[..blank].rfind('\n').map_or(0, |at| at + 1);
    &text[begin..]
}

/// Returns the longest prefix of at most `bytes` bytes that ends between two characters.
pub fn head(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Returns the longest suffix of at most `bytes` bytes that begins between two characters.
pub fn tail(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// Returns the longest suffix of at most `bytes` bytes that begins with a whole line, or between
/// two characters if a single line is longer.
pub fn tail_lines(text: &str, bytes: usize) -> &str {
    let end = tail(text, bytes);
    let is_line = text[..text.len() - end.len()].ends_with('\n');
    match end.split_once('\n') {
        Some((_, lines)) if end.len() < text.len() && !is_line && !lines.is_empty() => lines,
        _ => end,
    }
}

/// Joins sentences, adds missing full stops, and omits empty sentences.
pub fn sentences<'a>(all: impl IntoIterator<Item = &'a str>) -> String {
    let mut complete = Vec::new();
    for sentence in all
        .into_iter()
        .map(str::trim)
        .filter(|sentence| !sentence.is_empty())
    {
        let stop = if sentence.ends_with(['.', '!', '?', ':', '…']) {
            ""
        } else {
            "."
        };
        complete.push(format!("{sentence}{stop}"));
    }
    complete.join(" ")
}

/// Joins alternatives: "a, b or c".
pub fn alternatives(names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Returns the text with its first letter in upper case: `Build` for `build`.
pub fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// Returns the text of a piece of HTML in Markdown without comments and the tags that only format.
pub fn without_formatting_tags(html: &str) -> String {
    const FORMATTING: &[&str] = &[
        "b", "br", "center", "details", "div", "em", "i", "kbd", "p", "strong", "sub", "summary",
        "sup", "u",
    ];
    let mut out = String::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = if rest.starts_with("<!--") {
            rest.find("-->").map(|end| end + 3)
        } else {
            rest.find('>').map(|end| end + 1)
        };
        let Some(length) = length else { break };
        let tag = &rest[..length];
        let name: String = tag
            .trim_start_matches(['<', '/'])
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        let name = name.to_lowercase();
        let ends_line = tag.starts_with("</")
            && matches!(name.as_str(), "div" | "p" | "summary")
            && !rest[length..].starts_with('\n');
        if name == "br" || ends_line {
            out.push('\n');
        } else if !tag.starts_with("<!--") && !FORMATTING.contains(&name.as_str()) {
            out.push_str(tag);
        }
        rest = &rest[length..];
    }
    out.push_str(rest);
    out
}

/// Returns two lower-case hexadecimal digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| char::from(DIGITS.get(usize::from(n)).copied().unwrap_or(b'0'));
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// Returns a number with its noun: `1 line`, `2 lines`.
pub fn count(n: usize, noun: &str) -> String {
    let plural = if n == 1 {
        ""
    } else if noun.ends_with("ch") {
        "es"
    } else {
        "s"
    };
    format!("{n} {noun}{plural}")
}

/// Decodes bytes that arrive in pieces. A character that is split over two pieces is joined;
/// invalid UTF-8 becomes U+FFFD.
#[derive(Debug, Default, Clone)]
pub struct Utf8Decoder {
    /// The bytes of an incomplete character at the end of the last piece.
    rest: Vec<u8>,
}

impl Utf8Decoder {
    /// Decodes the next piece.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let complete = self.rest.len() - unfinished(&self.rest);
        let text = String::from_utf8_lossy(&self.rest[..complete]).into_owned();
        self.rest.drain(..complete);
        text
    }

    /// Returns U+FFFD if the last piece ended within a character, otherwise nothing.
    pub fn end(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned()
    }
}

/// Returns the number of bytes at the end that begin an incomplete character.
fn unfinished(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        if byte & 0b1100_0000 != 0b1000_0000 {
            let needs = match byte {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => 1,
            };
            return if needs > back { back } else { 0 };
        }
    }
    0
}

/// Formats a large number for display: `842`, `9.5k`, `142k`, `1M`, `1.1M`.
pub fn thousands(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..9_950 => format!("{}.{}k", (n + 50) / 1_000, (n + 50) % 1_000 / 100),
        9_950..999_500 => format!("{}k", (n + 500) / 1_000),
        _ => match (n.saturating_add(50_000)) / 100_000 {
            tenths if tenths % 10 == 0 => format!("{}M", tenths / 10),
            tenths => format!("{}.{}M", tenths / 10, tenths % 10),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_ends_are_removed() {
        for (text, rest) in [
            ("a", "a"),
            ("\n \n    a\n  b\n \n", "    a\n  b"),
            ("  a  ", "  a"),
            (" \n\t\n", ""),
            ("", ""),
        ] {
            assert_eq!(without_blank_ends(text), rest, "{text:?}");
        }
    }

    #[test]
    fn title_of_a_command_is_one_line() {
        for (command, expected) in [
            ("ls -la\n", "ls -la"),
            ("cat > a <<EOF\none\ntwo\nEOF", "cat > a <<EOF … (4 lines)"),
            ("\n  a \\\n  b", "a \\ … (2 lines)"),
        ] {
            assert_eq!(command_title(command), expected);
        }
        let long = format!("echo {}\nls", "a".repeat(MAX_TITLE_CHARS));
        let title = command_title(&long);
        assert!(title.ends_with("aa… (2 lines)"), "{title}");
        assert!(title.chars().count() <= MAX_TITLE_CHARS, "{title}");
    }

    #[test]
    fn tail_begins_with_a_whole_line() {
        for (text, bytes, wanted) in [
            ("short\n", 100, "short\n"),
            ("one\ntwo\n", 5, "two\n"),
            ("one\ntwo\n", 4, "two\n"),
            ("one\ntwo\n", 3, "wo\n"),
            ("one\ntwo", 2, "wo"),
            ("ééé", 5, "éé"),
        ] {
            assert_eq!(tail_lines(text, bytes), wanted, "{text:?} {bytes}");
        }
    }

    #[test]
    fn argument_is_quoted_if_a_shell_would_split_or_expand_it() {
        let table = [
            ("cargo", "cargo"),
            ("--to=a/b:1,2@c%+", "--to=a/b:1,2@c%+"),
            ("", "''"),
            ("a b", "'a b'"),
            ("*.rs", "'*.rs'"),
            ("it's", r"'it'\''s'"),
            ("~", "'~'"),
        ];
        for (argument, expected) in table {
            assert_eq!(shell_quoted(argument), expected);
        }
    }

    #[test]
    fn title_is_one_short_line() {
        assert_eq!(title(" ls -la\nrm x "), "ls -la\\nrm x");
        let long = title(&"é".repeat(500));
        assert_eq!(long.chars().count(), MAX_TITLE_CHARS);
        assert!(long.ends_with('…'));
        assert_eq!(
            title(&"é".repeat(MAX_TITLE_CHARS)).chars().count(),
            MAX_TITLE_CHARS
        );
    }

    #[test]
    fn cuts_fall_between_characters() {
        for bytes in 0..8 {
            assert!(head("aé日z", bytes).len() <= bytes);
            assert!(tail("aé日z", bytes).len() <= bytes);
        }
        assert_eq!((head("aé日z", 3), tail("aé日z", 4)), ("aé", "日z"));
    }

    #[test]
    fn split_characters_are_joined() {
        let text = "aé日🎉z";
        for size in 1..6 {
            let mut lossy = Utf8Decoder::default();
            let mut out: String = text
                .as_bytes()
                .chunks(size)
                .map(|piece| lossy.push(piece))
                .collect();
            out.push_str(&lossy.end());
            assert_eq!(out, text, "{size}");
        }
        let mut lossy = Utf8Decoder::default();
        assert_eq!(lossy.push(b"a\xffb\xe6"), "a\u{fffd}b");
        assert_eq!(lossy.end(), "\u{fffd}");
    }

    #[test]
    fn missing_full_stops_are_added() {
        assert_eq!(
            sentences(["It failed", "", " Try again. ", "Why?", "So"]),
            "It failed. Try again. Why? So."
        );
        assert_eq!(sentences([""]), "");
    }

    #[test]
    fn large_numbers_are_rounded() {
        let table = [
            (0, "0"),
            (999, "999"),
            (1_000, "1.0k"),
            (9_460, "9.5k"),
            (9_950, "10k"),
            (141_600, "142k"),
            (999_499, "999k"),
            (999_500, "1M"),
            (1_000_000, "1M"),
            (1_049_000, "1M"),
            (1_050_000, "1.1M"),
        ];
        for (n, text) in table {
            assert_eq!(thousands(n), text);
        }
    }
}
