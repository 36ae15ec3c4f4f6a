//! Halves of a character in JSON: unpaired UTF-16 surrogates.
//!
//! Programs that cut text by UTF-16 units write one half of an emoji at the end of a text
//! (`\ud83d`) and the other half at the beginning of the next (`\ude00`). JSON can express a half,
//! but neither a Rust string nor a JSON parser for one can. [`with_placeholders`] therefore replaces a
//! half by a placeholder, a character for private use, which survives parsing and concatenation;
//! [`joined`] turns placeholders into characters. A text that contains these 2,048 private characters itself
//! is not affected unless it is passed to [`joined`].

use std::borrow::Cow;

/// The difference between a placeholder and its surrogate.
const OFFSET: u32 = 0x10_0000;

/// Replaces every unpaired surrogate of a JSON text by U+FFFD.
pub fn replaced(json: &str) -> Cow<'_, str> {
    rewritten(json, |_| char::REPLACEMENT_CHARACTER)
}

/// Replaces every unpaired surrogate of a JSON text by its placeholder. The result is owned if
/// there is one.
pub fn with_placeholders(json: &str) -> Cow<'_, str> {
    rewritten(json, |unit| {
        char::from_u32(OFFSET + u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER)
    })
}

/// Turns pairs of placeholders into characters, and any other placeholder into U+FFFD.
pub fn joined(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let Some(unit) = unit_of(c) else {
            out.push(c);
            continue;
        };
        let second = chars.peek().copied().and_then(unit_of);
        match second.and_then(|second| char::decode_utf16([unit, second]).next()?.ok()) {
            Some(whole) => {
                out.push(whole);
                chars.next();
            }
            None => out.push(char::REPLACEMENT_CHARACTER),
        }
    }
    out
}

/// Removes the placeholder of a first half from the end of a text and returns it.
pub fn split_first_half(text: &mut String) -> Option<char> {
    let last = text.chars().next_back()?;
    if !unit_of(last).is_some_and(is_first) {
        return None;
    }
    text.pop()
}

/// Returns the surrogate of a placeholder.
fn unit_of(c: char) -> Option<u16> {
    let unit = u16::try_from(u32::from(c).checked_sub(OFFSET)?).ok()?;
    is_surrogate(unit).then_some(unit)
}

fn is_surrogate(unit: u16) -> bool {
    (0xD800..0xE000).contains(&unit)
}

fn is_first(unit: u16) -> bool {
    (0xD800..0xDC00).contains(&unit)
}

/// Replaces every unpaired surrogate by the character that `half` returns for it.
fn rewritten(json: &str, half: impl Fn(u16) -> char) -> Cow<'_, str> {
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return Cow::Borrowed(json);
    }
    let bytes = json.as_bytes();
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(next) = bytes.get(at..).and_then(escape) {
        at += next;
        let Some(unit) = escaped_surrogate(bytes, at) else {
            // Another escape: its second byte begins no escape.
            at += 2;
            continue;
        };
        let second = escaped_surrogate(bytes, at + 6);
        if is_first(unit) && second.is_some_and(|second| !is_first(second)) {
            at += 12;
            continue;
        }
        out.push_str(&json[copied..at]);
        out.push(half(unit));
        at += 6;
        copied = at;
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[copied..]);
    Cow::Owned(out)
}

/// Returns the position of the next backslash.
fn escape(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\\')
}

/// Returns the surrogate that the escape at this position expresses.
fn escaped_surrogate(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let unit = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    is_surrogate(unit).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpaired_surrogates_are_replaced() {
        for (sent, expected) in [
            (r"a \ud83d\ude00 b", r"a \ud83d\ude00 b"),
            (r"a \uD83D\uDE00 b", r"a \uD83D\uDE00 b"),
            (r"a \ud83d", "a \u{fffd}"),
            (r"\ude00 b", "\u{fffd} b"),
            (r"\ud83d\ud83d\ude00", "\u{fffd}\\ud83d\\ude00"),
            (r"\ude00\ud83d\u0041", "\u{fffd}\u{fffd}\\u0041"),
            (r"\\ud83d \\\ud83d", "\\\\ud83d \\\\\u{fffd}"),
            (r"\ud8 \udxyz ü\ud83dü", "\\ud8 \\udxyz ü\u{fffd}ü"),
            (r"\ud83d\é", "\u{fffd}\\é"),
            ("\\ud83", "\\ud83"),
            ("\\ud\\", "\\ud\\"),
            ("\\", "\\"),
        ] {
            assert_eq!(replaced(sent), expected, "{sent}");
        }
    }

    #[test]
    fn halves_are_joined_across_texts() {
        let halves = |json: &str| with_placeholders(json).into_owned();
        let first = halves(r"a \ud83d");
        let second = halves(r"\ude00 b");
        for (text, expected) in [
            (first.clone() + &second, "a 😀 b"),
            (first.clone() + " " + &second, "a \u{fffd} \u{fffd} b"),
            (second.clone() + &first, "\u{fffd} ba \u{fffd}"),
            (first.clone() + &first + &second, "a \u{fffd}a 😀 b"),
            ("plain 😀".to_owned(), "plain 😀"),
            (String::new(), ""),
        ] {
            assert_eq!(joined(&text), expected);
        }
    }

    #[test]
    fn only_a_first_half_at_the_end_is_split() {
        for (json, rest, is_split) in [
            (r"a \ud83d", "a ", true),
            (r"\ud83d", "", true),
            (r"a \ude00", "a \u{10de00}", false),
            (r"\ud83d b", "\u{10d83d} b", false),
            ("a", "a", false),
            ("", "", false),
        ] {
            let mut text = with_placeholders(json).into_owned();
            assert_eq!(split_first_half(&mut text).is_some(), is_split, "{json}");
            assert_eq!(text, rest, "{json}");
        }
    }
}
