//! Texts and replacements with different line ends.

use std::borrow::Cow;

use base::text::diff::{common_prefix, common_suffix};

use super::strategies::Match;

/// A text with `\n` for `\r\n`, and its mapping to the original. A lone `\r` is an ordinary
/// character.
pub(super) struct NormalizedText<'a> {
    pub(super) text: Cow<'a, str>,
    /// The positions in `text` of each `\n` that was a `\r\n`.
    missing: Vec<usize>,
}

impl<'a> NormalizedText<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        if memchr::memmem::find(text.as_bytes(), b"\r\n").is_none() {
            return Self {
                text: text.into(),
                missing: Vec::new(),
            };
        }
        let mut out = String::with_capacity(text.len());
        let mut missing = Vec::new();
        for (n, piece) in text.split("\r\n").enumerate() {
            if n > 0 {
                missing.push(out.len());
                out.push('\n');
            }
            out.push_str(piece);
        }
        Self {
            text: out.into(),
            missing,
        }
    }

    /// Returns the position in the original text; before a `\r\n`, not inside it.
    fn original(&self, at: usize) -> usize {
        at + self.missing.partition_point(|missing| *missing < at)
    }

    /// Applies replacements to the original. Only differing bytes are replaced, with the line ends
    /// of their surroundings; all other bytes are unchanged.
    pub(super) fn put(&self, original: &str, places: &[Match]) -> String {
        let mut out = String::with_capacity(original.len());
        let mut copied = 0;
        for Match { span, new } in places {
            let old = &self.text[span.clone()];
            let (same, rest) = shared(old, new);
            let start = span.start + same;
            let end = span.end - rest;
            let fresh = &new[same..new.len() - rest];
            out.push_str(&original[copied..self.original(start)]);
            if self.returns_near(start) {
                out.push_str(&fresh.replace('\n', "\r\n"));
            } else {
                out.push_str(fresh);
            }
            copied = self.original(end);
        }
        out.push_str(&original[copied..]);
        out
    }

    /// Returns whether the line at this position, or without a line end the previous one, ends in
    /// `\r\n`.
    fn returns_near(&self, at: usize) -> bool {
        let next = self.text[at..].find('\n').map(|found| at + found);
        let near = next.or_else(|| self.text[..at].rfind('\n'));
        near.is_some_and(|at| self.missing.binary_search(&at).is_ok())
    }
}

/// Returns the number of bytes that two texts share at their beginning and at their end, in whole
/// characters.
pub fn shared(old: &str, new: &str) -> (usize, usize) {
    let start = old.floor_char_boundary(common_prefix(old.as_bytes(), new.as_bytes()));
    let old = &old[start..];
    let new = &new[start..];
    let end = common_suffix(old.as_bytes(), new.as_bytes());
    (start, old.len() - old.ceil_char_boundary(old.len() - end))
}
