//! Characters that cannot be seen, or that change how others are read: the one list of them, and what
//! is done with them. A terminal acts on some, people overlook all, and a model reads them.
//!
//! A joiner between two emoji, or within a word of a script that needs it, is no such character
//! there; neither is the mark that makes an emoji of the sign before it, nor a carriage return before
//! a line feed.

use std::borrow::Cow;

/// Whether a character has no form of its own, or changes the order or the form of others: control
/// characters, line breaks, directions, zero widths, joiners, fillers, variation selectors, tags.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Whether a character is hidden, or a blank that is not the one people type: in a command or a path
/// it could pretend to be something else.
pub fn is_odd(c: char) -> bool {
    is_hidden(c) || (c.is_whitespace() && !c.is_ascii())
}

/// Writes out what is hidden, line breaks and tabs included, so that the text stays one line.
pub fn escaped(text: &str) -> String {
    written(text, |c, fine| fine && !c.is_control())
}

/// As [`escaped`], and blanks that are not the one people type too: for commands and paths.
pub fn spelled(text: &str) -> String {
    written(text, |c, fine| fine && !c.is_control() && !is_odd(c))
}

/// Writes out what is hidden; the text keeps its lines and tabs.
pub fn shown(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return text.into();
    }
    let mut all = UnseenFilter::default();
    let begun = all.push(text).into_owned();
    (begun + &all.end()).into()
}

/// JSON without anything hidden in it: its texts can say the same in escapes.
pub fn json(text: &str) -> Cow<'_, str> {
    let raw = |c: char| c > '\u{7e}' && is_hidden(c);
    if !text.chars().any(raw) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if raw(c) {
            let units = &mut [0; 2];
            out.extend(c.encode_utf16(units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    out.into()
}

/// A text without what is hidden, and how much was taken out. Control characters and line breaks stay:
/// models take them for what they are.
pub fn visible(text: &str) -> (String, usize) {
    if text.is_ascii() {
        return (text.to_owned(), 0);
    }
    let (mut out, mut removed) = (String::with_capacity(text.len()), 0);
    let mut all = UnseenFilter::default();
    let mut take = |c: char, fine: bool| {
        if fine || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            out.push(c);
        } else {
            removed += 1;
        }
    };
    all.each(text, &mut take);
    all.last_one(&mut take);
    (out, removed)
}

/// A text that arrives in pieces, as [`shown`] shows it.
#[derive(Debug, Default)]
pub struct UnseenFilter {
    last: char,
    /// One that may stay or not: the next character tells.
    held: Option<char>,
}

impl UnseenFilter {
    /// What is shown of the next piece.
    pub fn push<'a>(&mut self, piece: &'a str) -> Cow<'a, str> {
        if self.held.is_none() && piece.chars().all(is_plain) {
            self.last = piece.chars().next_back().unwrap_or(self.last);
            return piece.into();
        }
        let mut out = String::with_capacity(piece.len() + 16);
        self.each(piece, &mut |c, fine| if fine { out.push(c) } else { write_out(c, &mut out) });
        out.into()
    }

    /// What is shown of a character that was waiting for the next one.
    pub fn end(&mut self) -> String {
        let mut out = String::new();
        self.last_one(&mut |c, _| write_out(c, &mut out));
        out
    }

    /// Gives each character, and whether it may stay where it stands.
    fn each(&mut self, piece: &str, take: &mut impl FnMut(char, bool)) {
        for c in piece.chars() {
            if let Some(held) = self.held.take() {
                let fine = match held {
                    '\r' => c == '\n',
                    '\u{fe0f}' => c == '\u{20e3}',
                    _ => joins(c),
                };
                take(held, fine);
                self.last = held;
            }
            let waits = match c {
                '\r' => true,
                '\u{200c}' | '\u{200d}' => joins(self.last),
                // The key with a digit on it.
                '\u{fe0f}' => matches!(self.last, '0'..='9' | '#' | '*'),
                _ => false,
            };
            if waits {
                self.held = Some(c);
                continue;
            }
            let forms = matches!(c, '\u{fe0e}' | '\u{fe0f}') && has_forms(self.last);
            take(c, is_plain(c) || forms);
            self.last = c;
        }
    }

    fn last_one(&mut self, take: &mut impl FnMut(char, bool)) {
        if let Some(held) = self.held.take() {
            take(held, false);
        }
    }
}

fn is_plain(c: char) -> bool {
    matches!(c, '\n' | '\t' | ' '..='\u{7e}') || !is_hidden(c)
}

/// Whether a joiner beside a character means something: in scripts whose letters change their form,
/// and between emoji.
fn joins(c: char) -> bool {
    matches!(c,
        '\u{600}'..='\u{61b}' | '\u{61d}'..='\u{dff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17b3}'
        | '\u{1820}'..='\u{18af}' | '\u{2190}'..='\u{2bff}' | '\u{fe0f}' | '\u{1f000}'..='\u{1faff}')
}

/// Whether a sign has a form as text and one as a picture.
fn has_forms(c: char) -> bool {
    matches!(c, '\u{a9}' | '\u{ae}') || (c >= '\u{2000}' && !is_hidden(c))
}

fn written(text: &str, stays: impl Fn(char, bool) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut all = UnseenFilter::default();
    let mut take = |c: char, fine: bool| if stays(c, fine) { out.push(c) } else { write_out(c, &mut out) };
    all.each(text, &mut take);
    all.last_one(&mut take);
    out
}

fn write_out(c: char, out: &mut String) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if u32::from(c) < 0x100 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
        c => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written in a list, what is shown, and how it is shown on one line.
    const TABLE: &[(&str, &str, &str)] = &[
        ("plain ä 日本\u{3000}語\u{a0}!", "plain ä 日本\u{3000}語\u{a0}!", "plain ä 日本\u{3000}語\u{a0}!"),
        ("a\nb\tc\r\nd", "a\nb\tc\r\nd", "a\\nb\\tc\\r\\nd"),
        ("rm x\rls", "rm x\\rls", "rm x\\rls"),
        ("end\r", "end\\r", "end\\r"),
        ("\x1b]0;x\x07.md", "\\x1b]0;x\\x07.md", "\\x1b]0;x\\x07.md"),
        ("\x1b]52;c;aGk=\x1b\\", "\\x1b]52;c;aGk=\\x1b\\", "\\x1b]52;c;aGk=\\x1b\\"),
        ("\u{9b}31m\u{7f}\u{85}", "\\x9b31m\\x7f\\x85", "\\x9b31m\\x7f\\x85"),
        ("abc\u{202e}gpj.exe", "abc\\u{202e}gpj.exe", "abc\\u{202e}gpj.exe"),
        ("a\u{200b}b\u{e0041}\u{2028}", "a\\u{200b}b\\u{e0041}\\u{2028}", "a\\u{200b}b\\u{e0041}\\u{2028}"),
        ("a\u{200d}b \u{434}\u{200c}\u{430}", "a\\u{200d}b д\\u{200c}а", "a\\u{200d}b д\\u{200c}а"),
        (
            "👩\u{200d}💻 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}",
            "👩\u{200d}💻 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}",
            "👩\u{200d}💻 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}",
        ),
        ("می\u{200c}خواهم क्\u{200d}ष", "می\u{200c}خواهم क्\u{200d}ष", "می\u{200c}خواهم क्\u{200d}ष"),
        (
            "👩\u{200d}\u{200d}💻 1\u{fe0f}2 ❤\u{fe0f}\u{fe0e}",
            "👩\\u{200d}\\u{200d}💻 1\\u{fe0f}2 ❤\u{fe0f}\\u{fe0e}",
            "👩\\u{200d}\\u{200d}💻 1\\u{fe0f}2 ❤\u{fe0f}\\u{fe0e}",
        ),
        ("👩\u{200d}", "👩\\u{200d}", "👩\\u{200d}"),
    ];

    #[test]
    fn what_cannot_be_seen_is_written_out() {
        for (text, lines, line) in TABLE {
            assert_eq!(shown(text), *lines, "{text:?}");
            assert_eq!(escaped(text), *line, "{text:?}");
        }
        assert_eq!(spelled("rm\u{a0}-rf\u{3000}x\u{202e}"), "rm\\xa0-rf\\u{3000}x\\u{202e}");
    }

    #[test]
    fn pieces_are_shown_like_the_whole() {
        for (text, lines, _) in TABLE {
            for size in 1..5 {
                let characters: Vec<char> = text.chars().collect();
                let mut all = UnseenFilter::default();
                let mut out = String::new();
                for piece in characters.chunks(size) {
                    out += &all.push(&piece.iter().collect::<String>());
                }
                out += &all.end();
                assert_eq!(out, *lines, "{text:?} by {size}");
            }
        }
    }

    #[test]
    fn json_says_the_same_in_escapes() {
        for (text, _, _) in TABLE {
            let raw = serde_json::to_string_pretty(&[text]).unwrap();
            let clean = json(&raw);
            assert!(!clean.chars().any(|c| c != '\n' && is_hidden(c)), "{clean:?}");
            assert_eq!(serde_json::from_str::<Vec<String>>(&clean).unwrap(), [*text]);
        }
        assert_eq!(json("\"\u{e0041}\u{202e}\""), "\"\\udb40\\udc41\\u202e\"");
    }
}
