//! Character encodings of files: a file's bytes as text, and a changed text as bytes.
//!
//! A changed text is not encoded as a whole. It is compared with the text that was read, and only
//! the differing places become new bytes, so that all other bytes remain, even those that are not
//! valid in the file's encoding. The result is decoded again before it is used.
//!
//! Detection can be wrong. Only a file whose encoding is certain gets every change. Otherwise a
//! change is made if its bytes are the same in each encoding that the file may have, which is the
//! case for most changes of ASCII text.

mod boundaries;
mod detect;
mod hints;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use base::text::diff::{LineDiff, pieces};
use boundaries::{Boundaries, Boundary};
use encoding_rs::{EncoderResult, Encoding, ISO_2022_JP, UTF_8, UTF_16BE, UTF_16LE};
use similar::DiffOp;

pub use detect::{decode, search_encoding};
pub use hints::{EncodingHint, EncodingHints};

/// The character that represents bytes that are not valid in the encoding.
const INVALID: char = '\u{fffd}';
/// The character that represents a NUL byte, which neither models nor stores accept.
const NUL: char = '\u{2400}';

/// The maximum product of lengths, in characters, for which two pieces are compared by character.
const MAX_COMPARED_PRODUCT: usize = 1 << 20;

/// The maximum number of encodings that a message names.
const MAX_NAMED_ENCODINGS: usize = 5;

/// The text of a file.
#[derive(Debug, Clone)]
pub struct DecodedText {
    /// The text, with a byte order mark if the file has one.
    pub text: String,
    /// The origin of the text; `None` if the file's bytes are those of the text in UTF-8.
    pub source: Option<Arc<EncodedSource>>,
}

/// The reason why a file has no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotText {
    Binary,
    /// The name of an encoding of texts that is not supported.
    Unsupported(&'static str),
}

/// The bytes of a file with their encoding.
#[derive(Debug, Clone)]
pub struct EncodedSource {
    encoding: &'static Encoding,
    bytes: Vec<u8>,
    /// The whole decoded text.
    text: String,
    /// True if the encoding is certain enough for any change.
    is_certain: bool,
    /// True if it was guessed from the characters of the text.
    is_guess: bool,
    /// Further encodings in which changes must have the same bytes, the likelier ones first.
    possible: Vec<&'static Encoding>,
    /// True if the text has placeholders for invalid bytes.
    has_invalid: bool,
    /// True if the text has placeholders for NUL bytes.
    has_nul: bool,
}

/// The reason why a changed text cannot be written in the encoding of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    #[error(
        "{character} (U+{:04X}) is not in {encoding}, the encoding of the file. Write it in other characters or as an escape sequence of the file's language, or ask the user to convert the file",
        u32::from(*.character)
    )]
    Missing {
        character: char,
        encoding: &'static str,
    },
    #[error(
        "{character} (U+{:04X}) in it represents a byte that is not text, and the new text has it at another place, or it is not clear which of them is removed. Leave such bytes where they are",
        u32::from(*.character)
    )]
    Placeholder { character: char },
    /// The encodings that the file may have, as a list in text, and the likeliest of them.
    #[error(
        "its encoding is not certain: it may be {0}, and the change would have other bytes in each. Set charset in .editorconfig or \"file_encoding\" in the settings (for example \"file_encoding\": \"{1}\"), or ask the user which encoding it is. Changes of ASCII text need neither"
    )]
    Uncertain(String, &'static str),
    /// The encoding of the file.
    #[error("the change cannot be written in {0} without changing text around it")]
    Unfaithful(&'static str),
}

/// A differing place: a range of the old text and one of the new text, in bytes of UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Splice {
    old: Range<usize>,
    new: Range<usize>,
}

/// A range of the file that gets new bytes.
#[derive(Debug)]
struct Cut {
    from: Boundary,
    to: Boundary,
    /// The new text of the range.
    text: String,
}

impl EncodedSource {
    /// Decodes the bytes of a file.
    fn new(encoding: &'static Encoding, bytes: Vec<u8>, is_certain: bool) -> Self {
        let (text, has_invalid) = decoded(encoding, &bytes);
        let has_nul = if is_utf16(encoding) {
            text.contains(NUL)
        } else {
            bytes.contains(&0)
        };
        Self {
            encoding,
            has_nul,
            bytes,
            text,
            is_certain,
            is_guess: false,
            possible: Vec::new(),
            has_invalid,
        }
    }

    /// Returns the source of a file that does not exist yet.
    pub fn empty(encoding: &'static Encoding) -> Self {
        Self::new(encoding, Vec::new(), true)
    }

    /// Returns the bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns whether the bytes are those of the text in UTF-8, as in a file that is all ASCII.
    pub fn is_utf8(&self) -> bool {
        self.bytes == self.text.as_bytes()
    }

    /// Returns whether the file is all ASCII, and remains so with this text.
    pub fn remains_ascii(&self, new: &str) -> bool {
        self.encoding.is_ascii_compatible() && self.is_utf8() && new.is_ascii()
    }

    /// Returns the name of the encoding.
    pub fn name(&self) -> &'static str {
        self.encoding.name()
    }

    /// Decodes other bytes of the same file, such as those that an editor has saved.
    pub fn decode(&self, bytes: &[u8]) -> String {
        decoded(self.encoding, bytes).0
    }

    /// Returns whether a text is that of the file's bytes in any encoding, as an editor shows it
    /// that reads the file in another one.
    pub fn is_misread_as(&self, text: &str) -> bool {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let same = |encoding: &&'static Encoding| {
            let (read, _) = encoding.decode_without_bom_handling(&self.bytes);
            let read = read.strip_prefix('\u{feff}').unwrap_or(&read);
            read == text || read.replace("\r\n", "\n") == text.replace("\r\n", "\n")
        };
        detect::CANDIDATES.iter().chain([&UTF_8]).any(same)
    }

    /// Describes the encoding to the model, if it is not just UTF-8.
    pub fn note(&self) -> Option<String> {
        let mut notes = Vec::new();
        let name = self.name();
        if self.is_utf8() {
            return None;
        }
        if !self.is_certain {
            let others = self.names(false);
            let others = if others.is_empty() {
                String::new()
            } else {
                format!(", or {others}")
            };
            notes.push(format!(
                "This file is not UTF-8. Encoding, as a guess: {name}{others}. ASCII text in it can be edited; for other text set charset in .editorconfig or file_encoding in the settings."
            ));
        } else if self.encoding != UTF_8 {
            notes.push(format!("Encoding: {name}. Edits are written in it."));
        }
        if self.has_invalid {
            notes.push(format!(
                "{INVALID} represents bytes that are not valid {name}. Edits around them leave them as they are."
            ));
        }
        if self.has_nul {
            notes.push(format!("{NUL} represents a NUL byte."));
        }
        (!notes.is_empty()).then(|| format!("({})", notes.join(" ")))
    }

    /// Lists the possible encodings; with `whole`, the likeliest one too.
    fn names(&self, whole: bool) -> String {
        let first = whole.then_some(self.name());
        let all: Vec<&str> = first
            .into_iter()
            .chain(self.possible.iter().map(|encoding| encoding.name()))
            .collect();
        let more = if all.len() > MAX_NAMED_ENCODINGS {
            ", …"
        } else {
            ""
        };
        format!(
            "{}{more}",
            all[..all.len().min(MAX_NAMED_ENCODINGS)].join(", ")
        )
    }

    /// Returns the bytes of a changed text, which includes the byte order mark. The bytes outside
    /// the changed places are those of the file.
    ///
    /// # Errors
    /// See [`EncodeError`].
    pub fn encode(&self, new: &str) -> Result<Vec<u8>, EncodeError> {
        let splices = splices(&self.text, new);
        if splices.iter().any(|splice| self.is_ambiguous(splice)) {
            return Err(EncodeError::Placeholder { character: INVALID });
        }
        let cuts = self.cuts(&splices, new);
        let mut out = Vec::with_capacity(self.bytes.len() + new.len());
        let mut copied = 0;
        let mut encoded = Vec::with_capacity(cuts.len());
        for cut in &cuts {
            self.check_placeholders(&cut.text)?;
            let fresh =
                encode_text(self.encoding, &cut.text).map_err(|e| self.unless_certain(e))?;
            out.extend_from_slice(&self.bytes[copied..cut.from.byte]);
            out.extend_from_slice(&fresh);
            copied = cut.to.byte;
            encoded.push(fresh);
        }
        out.extend_from_slice(&self.bytes[copied..]);
        self.check_faithful(&out, new, &cuts)
            .map_err(|e| self.unless_certain(e))?;
        for cut in &cuts {
            self.check_script(&cut.text)?;
        }
        let differs = |other: &&'static Encoding| !is_same_in(other, &self.bytes, &cuts, &encoded);
        if self.possible.iter().any(differs) {
            return Err(self.uncertain());
        }
        Ok(out)
    }

    /// Returns whether a removal may as well be a neighbouring one that leaves the same text but
    /// other invalid bytes.
    fn is_ambiguous(&self, splice: &Splice) -> bool {
        let Range { start, end } = splice.old;
        if !self.has_invalid || !splice.new.is_empty() {
            return false;
        }
        let is_same = |(c, other): &(char, char)| c == other;
        let is_invalid = |(c, _): (char, char)| c == INVALID;
        let last = self.text[..end].chars().rev();
        let mut earlier = self.text[..start]
            .chars()
            .rev()
            .zip(last)
            .take_while(is_same);
        let next = self.text[end..].chars();
        let mut later = self.text[start..].chars().zip(next).take_while(is_same);
        earlier.any(is_invalid) || later.any(is_invalid)
    }

    /// Checks that a new text has no placeholder.
    fn check_placeholders(&self, text: &str) -> Result<(), EncodeError> {
        for (is_used, character) in [(self.has_invalid, INVALID), (self.has_nul, NUL)] {
            if is_used && text.contains(character) {
                return Err(EncodeError::Placeholder { character });
            }
        }
        Ok(())
    }

    /// Checks that a guessed encoding has shown characters of the script of a new text. A wrong
    /// guess shows another script, while the new text has the right one.
    fn check_script(&self, text: &str) -> Result<(), EncodeError> {
        if !self.is_guess {
            return Ok(());
        }
        let mut scripts = Vec::new();
        for script in text.chars().filter_map(Script::of) {
            if !scripts.contains(&script) {
                scripts.push(script);
            }
        }
        let is_shown = |script: &Script| self.text.chars().any(|c| Script::of(c) == Some(*script));
        if scripts.iter().all(is_shown) {
            Ok(())
        } else {
            Err(self.uncertain())
        }
    }

    /// Returns an error of encoding, without a claim about the file if the encoding is not certain.
    fn unless_certain(&self, error: EncodeError) -> EncodeError {
        if self.is_certain {
            error
        } else {
            self.uncertain()
        }
    }

    /// Returns the error for a file whose encoding is not certain.
    fn uncertain(&self) -> EncodeError {
        let names = if self.possible.is_empty() {
            format!("{} or another", self.name())
        } else {
            self.names(true)
        };
        EncodeError::Uncertain(names, self.name())
    }

    /// Checks that the bytes are read as the wanted text. Some encoders write a similar character
    /// for one that the encoding does not have.
    fn check_faithful(&self, out: &[u8], new: &str, cuts: &[Cut]) -> Result<(), EncodeError> {
        let (read, _) = decoded(self.encoding, out);
        if read == with_visible_nul(new) {
            return Ok(());
        }
        let is_replaced = |c: &char| {
            let mut buffer = [0; 4];
            encode_text(self.encoding, c.encode_utf8(&mut buffer)).is_ok_and(|bytes| {
                decoded(self.encoding, &bytes).0 != with_visible_nul(&c.to_string())
            })
        };
        let replaced = cuts
            .iter()
            .flat_map(|cut| cut.text.chars())
            .find(is_replaced);
        Err(match replaced {
            Some(character) => EncodeError::Missing {
                character,
                encoding: self.name(),
            },
            None => EncodeError::Unfaithful(self.name()),
        })
    }

    /// Extends differing places to whole characters of the file.
    fn cuts(&self, splices: &[Splice], new: &str) -> Vec<Cut> {
        let mut boundaries = Boundaries::of(self.encoding, &self.bytes);
        // The end of an unfinished line in ISO-2022-JP depends on the characters before it.
        let is_open = self.encoding == ISO_2022_JP && self.bytes.last() != Some(&b'\n');
        let can_begin = |boundary: &Boundary| !is_open || boundary.byte < self.bytes.len();
        let mut here = Boundary::default();
        let mut next = boundaries.next();
        let mut cuts: Vec<Cut> = Vec::new();
        // The end of the old text that the last cut contains.
        let mut done = 0;
        for splice in splices {
            while let Some(boundary) = next
                && boundary.text <= splice.old.start
                && can_begin(&boundary)
            {
                here = boundary;
                next = boundaries.next();
            }
            let from = here;
            // In ISO-2022-JP a place ends with a line.
            let is_unfinished =
                self.encoding == ISO_2022_JP && !new[splice.new.clone()].ends_with('\n');
            while (here.text < splice.old.end || is_unfinished && here.text == splice.old.end)
                && let Some(boundary) = next
            {
                here = boundary;
                next = boundaries.next();
            }
            match cuts.last_mut() {
                // The place is in a character that is already replaced.
                Some(last) if splice.old.start < last.to.text => {
                    let surplus = last.to.text - done;
                    last.text.truncate(last.text.len() - surplus);
                    last.text.push_str(&self.text[done..splice.old.start]);
                    last.to = here;
                }
                _ => cuts.push(Cut {
                    from,
                    to: here,
                    text: self.text[from.text..splice.old.start].to_owned(),
                }),
            }
            if let Some(last) = cuts.last_mut() {
                last.text.push_str(&new[splice.new.clone()]);
                last.text.push_str(&self.text[splice.old.end..here.text]);
            }
            done = splice.old.end;
        }
        cuts
    }
}

/// A group of scripts that are written in the same encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Script {
    Latin,
    Greek,
    Cyrillic,
    Hebrew,
    Arabic,
    Thai,
    /// Chinese characters, kana and hangul.
    EastAsian,
}

impl Script {
    /// Returns the script of a letter outside ASCII; `None` for signs and other scripts.
    fn of(c: char) -> Option<Self> {
        match c {
            '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' if c.is_alphabetic() => {
                Some(Self::Latin)
            }
            '\u{370}'..='\u{3ff}' => Some(Self::Greek),
            '\u{400}'..='\u{52f}' => Some(Self::Cyrillic),
            '\u{590}'..='\u{5ff}' => Some(Self::Hebrew),
            '\u{600}'..='\u{6ff}' => Some(Self::Arabic),
            '\u{e00}'..='\u{e7f}' => Some(Self::Thai),
            '\u{3040}'..='\u{30ff}'
            | '\u{3400}'..='\u{9fff}'
            | '\u{ac00}'..='\u{d7a3}'
            | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{3ffff}' => Some(Self::EastAsian),
            _ => None,
        }
    }
}

/// Returns whether the `cuts` of a file would get the same bytes, `encoded`, if it had another
/// encoding.
fn is_same_in(other: &'static Encoding, bytes: &[u8], cuts: &[Cut], encoded: &[Vec<u8>]) -> bool {
    let same = |(cut, fresh): (&Cut, &Vec<u8>)| {
        encode_text(other, &cut.text).is_ok_and(|bytes| bytes == *fresh)
    };
    if !cuts.iter().zip(encoded).all(same) {
        return false;
    }
    let mut places = cuts
        .iter()
        .flat_map(|cut| [cut.from.byte, cut.to.byte])
        .filter(|offset| *offset > 0)
        .peekable();
    for boundary in Boundaries::of(other, bytes) {
        while places.next_if_eq(&boundary.byte).is_some() {}
        match places.peek() {
            None => return true,
            Some(offset) if *offset < boundary.byte => return false,
            Some(_) => {}
        }
    }
    places.peek().is_none()
}

/// Decodes bytes, with placeholders. Also returns whether some of them are invalid.
fn decoded(encoding: &'static Encoding, bytes: &[u8]) -> (String, bool) {
    let (text, is_invalid) = encoding.decode_without_bom_handling(bytes);
    (with_visible_nul(&text), is_invalid)
}

/// Replaces NUL characters by placeholders.
fn with_visible_nul(text: &str) -> String {
    text.replace('\0', &NUL.to_string())
}

/// Returns whether an encoding is UTF-16, which no file of ASCII bytes is in.
pub(crate) fn is_utf16(encoding: &'static Encoding) -> bool {
    encoding == UTF_16LE || encoding == UTF_16BE
}

/// Encodes a text, without byte order mark.
fn encode_text(encoding: &'static Encoding, text: &str) -> Result<Vec<u8>, EncodeError> {
    if encoding == UTF_8 {
        return Ok(text.as_bytes().to_vec());
    }
    if encoding == UTF_16LE {
        return Ok(text.encode_utf16().flat_map(u16::to_le_bytes).collect());
    }
    if encoding == UTF_16BE {
        return Ok(text.encode_utf16().flat_map(u16::to_be_bytes).collect());
    }
    let mut encoder = encoding.new_encoder();
    let mut out = Vec::new();
    let mut rest = text;
    loop {
        let needed = encoder.max_buffer_length_from_utf8_without_replacement(rest.len());
        out.reserve(needed.unwrap_or(rest.len() * 8).max(64));
        let (result, read) =
            encoder.encode_from_utf8_to_vec_without_replacement(rest, &mut out, true);
        match result {
            EncoderResult::InputEmpty => return Ok(out),
            EncoderResult::OutputFull => rest = &rest[read..],
            EncoderResult::Unmappable(character) => {
                return Err(EncodeError::Missing {
                    character,
                    encoding: encoding.name(),
                });
            }
        }
    }
}

/// Returns the places in which two texts differ, in order.
fn splices(old: &str, new: &str) -> Vec<Splice> {
    let mut found = Vec::new();
    compare(old, new, 0, 0, true, &mut found);
    found
}

/// Adds the places in which two pieces differ to `found`. They begin at these positions of their
/// texts, and are compared by line first if `by_line`, then by character.
fn compare(
    old: &str,
    new: &str,
    old_at: usize,
    new_at: usize,
    by_line: bool,
    found: &mut Vec<Splice>,
) {
    let (start, end) = textedit::replace::shared(old, new);
    let old_range = start..old.len() - end;
    let new_range = start..new.len() - end;
    if old_range.is_empty() && new_range.is_empty() {
        return;
    }
    let old = &old[old_range.clone()];
    let new = &new[new_range.clone()];
    let old_at = old_at + start;
    let new_at = new_at + start;
    let whole = Splice {
        old: old_at..old_at + old.len(),
        new: new_at..new_at + new.len(),
    };
    if old.is_empty() || new.is_empty() {
        return found.push(whole);
    }
    if by_line && (old.contains('\n') || new.contains('\n')) {
        let diff = LineDiff::of(old, new);
        let mut old_done = 0;
        let mut new_done = 0;
        for op in diff.ops() {
            let old_end = old_done + diff.old_lines(op.old_range()).len();
            let new_end = new_done + diff.new_lines(op.new_range()).len();
            if !matches!(op, DiffOp::Equal { .. }) {
                compare(
                    &old[old_done..old_end],
                    &new[new_done..new_end],
                    old_at + old_done,
                    new_at + new_done,
                    false,
                    found,
                );
            }
            old_done = old_end;
            new_done = new_end;
        }
        return;
    }
    let old_chars = characters(old);
    let new_chars = characters(new);
    if old_chars.len().saturating_mul(new_chars.len()) > MAX_COMPARED_PRODUCT {
        return found.push(whole);
    }
    let mut old_done = old_at;
    let mut new_done = new_at;
    for op in pieces(&old_chars, &new_chars) {
        let size = |chars: &[&str], range: Range<usize>| chars[range].iter().map(|c| c.len()).sum();
        let old_size: usize = size(&old_chars, op.old_range());
        let new_size: usize = size(&new_chars, op.new_range());
        if !matches!(op, DiffOp::Equal { .. }) {
            found.push(Splice {
                old: old_done..old_done + old_size,
                new: new_done..new_done + new_size,
            });
        }
        old_done += old_size;
        new_done += new_size;
    }
}

/// Returns each character as a string.
fn characters(text: &str) -> Vec<&str> {
    text.char_indices()
        .map(|(at, c)| &text[at..at + c.len_utf8()])
        .collect()
}

/// Describes a byte order mark and CRLF line ends to the model, if a text has them.
pub fn format_note(text: &str) -> Option<String> {
    let has_mark = text.starts_with('\u{feff}');
    let breaks = memchr::memchr_iter(b'\n', text.as_bytes()).count();
    let returns =
        breaks > 0 && memchr::memmem::find_iter(text.as_bytes(), b"\r\n").count() == breaks;
    let parts = match (has_mark, returns) {
        (false, false) => return None,
        (true, false) => "a byte order mark",
        (false, true) => "CRLF line ends",
        (true, true) => "a byte order mark and CRLF line ends",
    };
    Some(format!("(The file has {parts}; edits preserve that.)"))
}

/// Returns whether the bytes of a file are those of its text in UTF-8. In a file that is all ASCII
/// so far, they are.
pub fn is_plain_utf8(bytes: Vec<u8>) -> bool {
    String::from_utf8(bytes)
        .ok()
        .and_then(|text| decode(text.into_bytes(), EncodingHint::default).ok())
        .is_some_and(|read| read.source.is_none())
}

/// Returns the bytes of a file that is not UTF-8 after a change to a text without byte order mark.
/// `None` if the file is UTF-8, or its encoding is not certain without the user's settings.
pub fn changed_bytes(old: Vec<u8>, new: &str) -> Option<Vec<u8>> {
    let read = decode(old, EncodingHint::default).ok()?;
    let is_marked = read.text.starts_with('\u{feff}') && !new.starts_with('\u{feff}');
    let mark = if is_marked { "\u{feff}" } else { "" };
    read.source?.encode(&format!("{mark}{new}")).ok()
}

/// Decodes two states of a file for a comparison. `None` if one of them is not text.
pub fn decode_both(old: Vec<u8>, new: Vec<u8>) -> Option<(String, String)> {
    let old = decode(old, EncodingHint::default).ok()?;
    // Both have the same encoding, unless the file was converted.
    let shared = old
        .source
        .as_ref()
        .filter(|source| source.encoding != UTF_8 && std::str::from_utf8(&new).is_err());
    let new = match shared {
        Some(source) => source.decode(&new),
        None => decode(new, EncodingHint::default).ok()?.text,
    };
    Some((old.text, new))
}

/// Returns whether bytes begin with so many control characters that they are not a text.
pub(crate) fn has_mostly_control_chars(bytes: &[u8]) -> bool {
    let sample = &bytes[..bytes.len().min(4096)];
    let control = sample
        .iter()
        .filter(|byte| **byte < 9 || (14..32).contains(*byte))
        .count();
    control * 10 > sample.len() * 3
}
