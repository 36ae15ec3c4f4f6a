//! Small operations on text: cutting, and making what strangers wrote safe to show.
//!
//! File names, commands and model output may hold terminal escapes, line breaks, or characters
//! that reverse the direction of reading. In a title or a question they could pretend to be
//! something else, so there they are written out: `\x1b`, `\n`, `\u{202e}`.

pub mod diff;
pub mod mark;
pub mod mention;
mod nearest;
pub mod shared;
mod unseen;

use std::borrow::Cow;

use serde_json::Value;

pub use nearest::nearest;
pub use unseen::{UnseenFilter, escaped, is_hidden, is_odd, json, shown, spelled, visible};

/// The longest title, in characters.
pub const TITLE: usize = 120;

/// Makes one line of at most [`TITLE`] characters: what cannot be seen is written out, what is too
/// long ends in `…`.
pub fn title(text: &str) -> String {
    cut_chars(&escaped(text.trim()), TITLE)
}

/// Whether a value is longer than this as JSON, by the texts and the number of values in it. Of a longer one, no more is
/// looked at than that.
pub fn is_longer(value: &Value, most: usize) -> bool {
    fn takes(value: &Value, room: &mut usize) -> bool {
        let own = if let Value::String(text) = value { text.len() } else { 0 };
        let Some(left) = room.checked_sub(own + 1) else { return false };
        *room = left;
        match value {
            Value::Array(values) => values.iter().all(|value| takes(value, room)),
            Value::Object(members) => members.iter().all(|(name, value)| {
                *room = room.saturating_sub(name.len());
                takes(value, room)
            }),
            _ => true,
        }
    }
    let mut room = most;
    !takes(value, &mut room)
}

/// A text that may stand between tags.
pub fn tagged(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A name in the letters that every provider of models takes: those of ASCII, digits, `_` and `-`; `_` for any
/// other.
pub fn plain(name: &str) -> Cow<'_, str> {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.chars().all(fine) {
        return name.into();
    }
    name.chars().map(|c| if fine(c) { c } else { '_' }).collect()
}

/// At most `chars` characters; the last one is `…` when something was cut off.
pub fn cut_chars(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some(_) => {
            let end = text.char_indices().nth(chars.saturating_sub(1)).map_or(0, |(at, _)| at);
            format!("{}…", &text[..end])
        }
    }
}

/// The longest beginning of at most `bytes` bytes that ends between two characters.
pub fn head(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// The longest end of at most `bytes` bytes that begins between two characters.
pub fn tail(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// Sentences one after the other, each with a full stop where it has no end; empty ones are left out.
pub fn sentences<'a>(all: impl IntoIterator<Item = &'a str>) -> String {
    let ended = |sentence: &str| {
        let stop = if sentence.ends_with(['.', '!', '?', ':', '…']) { "" } else { "." };
        format!("{sentence}{stop}")
    };
    let all = all.into_iter().map(str::trim).filter(|sentence| !sentence.is_empty());
    all.map(ended).collect::<Vec<_>>().join(" ")
}

/// `build` as `Build`.
pub fn capitalised(words: &str) -> String {
    let mut chars = words.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// Bytes as two lower-case digits each.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| char::from(DIGITS.get(usize::from(n)).copied().unwrap_or(b'0'));
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// A number with its noun: `1 line`, `2 lines`.
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

/// Bytes that arrive in pieces, as text: a character that is split over two pieces is kept whole,
/// what is no UTF-8 becomes U+FFFD.
#[derive(Debug, Default)]
pub struct Utf8Decoder {
    rest: Vec<u8>,
}

impl Utf8Decoder {
    /// The text of the next piece.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.len() - unfinished(&self.rest);
        let text = String::from_utf8_lossy(&self.rest[..whole]).into_owned();
        self.rest.drain(..whole);
        text
    }

    /// What was left of a character that never ended.
    pub fn end(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned()
    }
}

/// How many bytes at the end are the beginning of a character.
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

/// A large number for people: `842`, `9.5k`, `142k`.
pub fn thousands(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..9_950 => format!("{}.{}k", (n + 50) / 1_000, (n + 50) % 1_000 / 100),
        _ => format!("{}k", (n + 500) / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_short_line() {
        assert_eq!(title(" ls -la\nrm x "), "ls -la\\nrm x");
        let long = title(&"é".repeat(500));
        assert_eq!(long.chars().count(), TITLE);
        assert!(long.ends_with('…'));
        assert_eq!(title(&"é".repeat(TITLE)).chars().count(), TITLE);
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
    fn split_characters_are_put_together() {
        let text = "aé日🎉z";
        for size in 1..6 {
            let mut lossy = Utf8Decoder::default();
            let mut out: String = text.as_bytes().chunks(size).map(|piece| lossy.push(piece)).collect();
            out.push_str(&lossy.end());
            assert_eq!(out, text, "{size}");
        }
        let mut lossy = Utf8Decoder::default();
        assert_eq!(lossy.push(b"a\xffb\xe6"), "a\u{fffd}b");
        assert_eq!(lossy.end(), "\u{fffd}");
    }

    #[test]
    fn sentences_have_ends() {
        assert_eq!(sentences(["It failed", "", " Try again. ", "Why?", "So"]), "It failed. Try again. Why? So.");
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
            (1_000_000, "1000k"),
        ];
        for (n, text) in table {
            assert_eq!(thousands(n), text);
        }
    }
}
