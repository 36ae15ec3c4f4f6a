//! The positions between the characters of an encoded text.

use encoding_rs::{Decoder, DecoderResult, Encoding, ISO_2022_JP};

/// A position in a file: the offset in its bytes, and in the UTF-8 of its decoded text, which has
/// placeholders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Boundary {
    pub(super) byte: usize,
    pub(super) text: usize,
}

/// The positions at which an encoded text can be divided into parts that are read as before, except
/// the first one. In ISO-2022-JP, whose characters depend on earlier bytes, these are the
/// beginnings of lines.
pub(super) struct Boundaries<'a> {
    encoding: &'static Encoding,
    decoder: Decoder,
    bytes: &'a [u8],
    at: Boundary,
    /// True if the decoder is between two characters.
    is_idle: bool,
    /// True if ISO-2022-JP has left ASCII.
    is_shifted: bool,
    /// True if the decoder has reached the end of the bytes.
    is_over: bool,
}

impl<'a> Boundaries<'a> {
    pub(super) fn of(encoding: &'static Encoding, bytes: &'a [u8]) -> Self {
        Self {
            encoding,
            decoder: encoding.new_decoder_without_bom_handling(),
            bytes,
            at: Boundary::default(),
            is_idle: true,
            is_shifted: false,
            is_over: false,
        }
    }

    /// Feeds the bytes up to `end` to the decoder. Returns the boundary that they complete, if any.
    fn feed(&mut self, end: usize, is_last: bool) -> Option<Boundary> {
        let mut buffer = [0; 64];
        let piece = &self.bytes[self.at.byte..end];
        let (result, read, written) =
            self.decoder
                .decode_to_utf8_without_replacement(piece, &mut buffer, is_last);
        self.at.byte += read;
        // A NUL is represented by a character of three bytes.
        let nuls = buffer[..written].iter().filter(|byte| **byte == 0).count();
        self.at.text += written + 2 * nuls;
        match result {
            DecoderResult::InputEmpty | DecoderResult::OutputFull => {
                self.is_idle = written > 0;
                self.is_idle.then_some(self.at)
            }
            DecoderResult::Malformed(_, after) => {
                self.at.text += super::INVALID.len_utf8();
                self.is_idle = after == 0;
                Some(Boundary {
                    byte: self.at.byte - usize::from(after),
                    text: self.at.text,
                })
            }
        }
    }

    /// Updates the state of ISO-2022-JP. Returns whether a line begins here in ASCII.
    fn begins_line(&mut self) -> bool {
        match &self.bytes[..self.at.byte] {
            [.., 0x1b, b'(', b'B'] => self.is_shifted = false,
            [.., 0x1b, b'(', b'J' | b'I'] | [.., 0x1b, b'$', b'@' | b'B'] => self.is_shifted = true,
            _ => {}
        }
        !self.is_shifted && self.is_idle && self.bytes[..self.at.byte].last() == Some(&b'\n')
    }
}

impl Iterator for Boundaries<'_> {
    type Item = Boundary;

    fn next(&mut self) -> Option<Boundary> {
        let stateful = self.encoding == ISO_2022_JP;
        while let Some(byte) = self.bytes.get(self.at.byte).copied() {
            if self.is_idle && byte < 0x80 && self.encoding.is_ascii_compatible() {
                self.at.byte += 1;
                self.at.text += if byte == 0 { super::NUL.len_utf8() } else { 1 };
                return Some(self.at);
            }
            let complete = self.feed(self.at.byte + 1, false);
            if stateful {
                if self.begins_line() && complete.is_some() {
                    return Some(self.at);
                }
            } else if complete.is_some() {
                return complete;
            }
        }
        if self.is_over {
            return None;
        }
        // An incomplete character at the end is invalid.
        let before = self.at;
        let incomplete = self.feed(self.at.byte, true);
        self.is_over = true;
        match incomplete {
            Some(_) => Some(self.at),
            None if stateful => Some(before),
            None => None,
        }
    }
}
