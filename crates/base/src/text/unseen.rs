//! Invisible characters, and characters that change how others are read: their only list, and the
//! functions that escape or remove them. Terminals act on some, people overlook all, and models
//! read them.
//!
//! Some of them are legitimate in their context: a joiner between two emoji or within a word of a
//! script that needs it, the selector that turns the preceding symbol into an emoji, and a carriage
//! return before a line feed.

use std::borrow::Cow;

/// Returns whether a character is invisible, or changes the order or the form of others: control
/// characters, line breaks, directions, zero widths, joiners, fillers, variation selectors, tags.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns whether a character is hidden, or a space other than the ASCII one, and so could
/// disguise a command or a path.
pub fn is_deceptive(c: char) -> bool {
    is_hidden(c) || (c.is_whitespace() && !c.is_ascii())
}

/// Escapes hidden characters, line breaks and tabs included, so that the text stays on one line.
pub fn escaped(text: &str) -> String {
    written(text, |c, is_legitimate| is_legitimate && !c.is_control())
}

/// Escapes what [`escaped`] does, and unusual spaces as well: for commands and paths.
pub fn spelled(text: &str) -> String {
    written(text, |c, is_legitimate| {
        is_legitimate && !c.is_control() && !is_deceptive(c)
    })
}

/// Escapes hidden characters, except line breaks and tabs.
pub fn shown(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return text.into();
    }
    let mut filter = UnseenFilter::default();
    let start = filter.push(text).into_owned();
    (start + &filter.end()).into()
}

/// Replaces hidden characters in JSON by its own escapes, which keeps the value.
pub fn json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(needs_escape) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if needs_escape(c) {
            let units = &mut [0; 2];
            out.extend(
                c.encode_utf16(units)
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}")),
            );
        } else {
            out.push(c);
        }
    }
    out.into()
}

/// Returns whether JSON does not escape a hidden character by itself.
fn needs_escape(c: char) -> bool {
    c > '\u{7e}' && is_hidden(c)
}

/// Removes hidden characters from a text, and returns the text and the number of removed
/// characters. Control characters and line breaks remain: models recognize them.
pub fn visible(text: &str) -> (String, usize) {
    if text.is_ascii() {
        return (text.to_owned(), 0);
    }
    let mut out = String::with_capacity(text.len());
    let mut removed = 0;
    let mut filter = UnseenFilter::default();
    let mut take = |c: char, is_legitimate: bool| {
        if is_legitimate || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            out.push(c);
        } else {
            removed += 1;
        }
    };
    filter.each(text, &mut take);
    filter.finish(&mut take);
    (out, removed)
}

/// A filter for text that arrives in pieces, with the result of [`shown`].
#[derive(Debug, Default)]
pub struct UnseenFilter {
    /// The last character that was passed on.
    last: char,
    /// A character whose legitimacy depends on the next one.
    pending: Option<char>,
}

impl UnseenFilter {
    /// Returns the visible form of the next piece.
    pub fn push<'a>(&mut self, piece: &'a str) -> Cow<'a, str> {
        if self.pending.is_none() && piece.chars().all(is_plain) {
            self.last = piece.chars().next_back().unwrap_or(self.last);
            return piece.into();
        }
        let mut out = String::with_capacity(piece.len() + 16);
        self.each(piece, &mut |c, is_legitimate| {
            if is_legitimate {
                out.push(c)
            } else {
                push_escaped(c, &mut out)
            }
        });
        out.into()
    }

    /// Returns the visible form of a character that was waiting for the next one.
    pub fn end(&mut self) -> String {
        let mut out = String::new();
        self.finish(&mut |c, _| push_escaped(c, &mut out));
        out
    }

    /// Passes on each character with whether it is legitimate in its context.
    fn each(&mut self, piece: &str, take: &mut impl FnMut(char, bool)) {
        for c in piece.chars() {
            if let Some(pending) = self.pending.take() {
                let is_legitimate = match pending {
                    '\r' => c == '\n',
                    '\u{fe0f}' => c == '\u{20e3}',
                    _ => joins(c),
                };
                take(pending, is_legitimate);
                self.last = pending;
            }
            let depends_on_next = match c {
                '\r' => true,
                '\u{200c}' | '\u{200d}' => joins(self.last),
                // The beginning of a keycap emoji.
                '\u{fe0f}' => matches!(self.last, '0'..='9' | '#' | '*'),
                _ => false,
            };
            if depends_on_next {
                self.pending = Some(c);
                continue;
            }
            let selects_form = matches!(c, '\u{fe0e}' | '\u{fe0f}') && has_forms(self.last);
            take(c, is_plain(c) || selects_form);
            self.last = c;
        }
    }

    fn finish(&mut self, take: &mut impl FnMut(char, bool)) {
        if let Some(pending) = self.pending.take() {
            take(pending, false);
        }
    }
}

fn is_plain(c: char) -> bool {
    matches!(c, '\n' | '\t' | ' '..='\u{7e}') || !is_hidden(c)
}

/// Returns whether a joiner next to a character has a meaning: in scripts whose letters change
/// their form, and between emoji.
fn joins(c: char) -> bool {
    matches!(c,
        '\u{600}'..='\u{61b}' | '\u{61d}'..='\u{dff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17b3}'
        | '\u{1820}'..='\u{18af}' | '\u{2190}'..='\u{2bff}' | '\u{fe0f}' | '\u{1f000}'..='\u{1faff}')
}

/// Returns whether a symbol has a text form and an emoji form.
fn has_forms(c: char) -> bool {
    matches!(c, '\u{a9}' | '\u{ae}') || (c >= '\u{2000}' && !is_hidden(c))
}

/// Escapes the characters for which `stays` returns `false`, given whether they are legitimate in
/// their context.
fn written(text: &str, stays: impl Fn(char, bool) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut filter = UnseenFilter::default();
    let mut take = |c: char, is_legitimate: bool| {
        if stays(c, is_legitimate) {
            out.push(c);
        } else {
            push_escaped(c, &mut out);
        }
    };
    filter.each(text, &mut take);
    filter.finish(&mut take);
    out
}

fn push_escaped(c: char, out: &mut String) {
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

    /// The text, its result of `shown`, and its result of `escaped`.
    const TABLE: &[(&str, &str, &str)] = &[
        (
            "plain ä 日本\u{3000}語\u{a0}!",
            "plain ä 日本\u{3000}語\u{a0}!",
            "plain ä 日本\u{3000}語\u{a0}!",
        ),
        ("a\nb\tc\r\nd", "a\nb\tc\r\nd", "a\\nb\\tc\\r\\nd"),
        ("rm x\rls", "rm x\\rls", "rm x\\rls"),
        ("end\r", "end\\r", "end\\r"),
        ("\x1b]0;x\x07.md", "\\x1b]0;x\\x07.md", "\\x1b]0;x\\x07.md"),
        (
            "\x1b]52;c;aGk=\x1b\\",
            "\\x1b]52;c;aGk=\\x1b\\",
            "\\x1b]52;c;aGk=\\x1b\\",
        ),
        (
            "\u{9b}31m\u{7f}\u{85}",
            "\\x9b31m\\x7f\\x85",
            "\\x9b31m\\x7f\\x85",
        ),
        (
            "abc\u{202e}gpj.exe",
            "abc\\u{202e}gpj.exe",
            "abc\\u{202e}gpj.exe",
        ),
        (
            "a\u{200b}b\u{e0041}\u{2028}",
            "a\\u{200b}b\\u{e0041}\\u{2028}",
            "a\\u{200b}b\\u{e0041}\\u{2028}",
        ),
        (
            "a\u{200d}b \u{434}\u{200c}\u{430}",
            "a\\u{200d}b д\\u{200c}а",
            "a\\u{200d}b д\\u{200c}а",
        ),
        (
            "👩\u{200d}💻 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}",
            "👩\u{200d}💻 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}",
            "👩\u{200d}💻 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}",
        ),
        (
            "می\u{200c}خواهم क्\u{200d}ष",
            "می\u{200c}خواهم क्\u{200d}ष",
            "می\u{200c}خواهم क्\u{200d}ष",
        ),
        (
            "👩\u{200d}\u{200d}💻 1\u{fe0f}2 ❤\u{fe0f}\u{fe0e}",
            "👩\\u{200d}\\u{200d}💻 1\\u{fe0f}2 ❤\u{fe0f}\\u{fe0e}",
            "👩\\u{200d}\\u{200d}💻 1\\u{fe0f}2 ❤\u{fe0f}\\u{fe0e}",
        ),
        ("👩\u{200d}", "👩\\u{200d}", "👩\\u{200d}"),
    ];

    #[test]
    fn hidden_characters_are_escaped() {
        for (text, lines, line) in TABLE {
            assert_eq!(shown(text), *lines, "{text:?}");
            assert_eq!(escaped(text), *line, "{text:?}");
        }
        assert_eq!(
            spelled("rm\u{a0}-rf\u{3000}x\u{202e}"),
            "rm\\xa0-rf\\u{3000}x\\u{202e}"
        );
    }

    #[test]
    fn pieces_are_escaped_like_the_whole() {
        for (text, lines, _) in TABLE {
            for size in 1..5 {
                let characters: Vec<char> = text.chars().collect();
                let mut filter = UnseenFilter::default();
                let mut out = String::new();
                for piece in characters.chunks(size) {
                    out += &filter.push(&piece.iter().collect::<String>());
                }
                out += &filter.end();
                assert_eq!(out, *lines, "{text:?} by {size}");
            }
        }
    }

    #[test]
    fn json_escapes_keep_the_value() {
        for (text, _, _) in TABLE {
            let raw = serde_json::to_string_pretty(&[text]).unwrap();
            let clean = json(&raw);
            assert!(
                !clean.chars().any(|c| c != '\n' && is_hidden(c)),
                "{clean:?}"
            );
            assert_eq!(
                serde_json::from_str::<Vec<String>>(&clean).unwrap(),
                [*text]
            );
        }
        assert_eq!(json("\"\u{e0041}\u{202e}\""), "\"\\udb40\\udc41\\u202e\"");
    }
}
