//! Compression of long texts, to about a third of their size. The length is stored in front, so
//! that the buffer need not grow while a text is decompressed.

use std::cell::RefCell;
use std::io::{self, Write};

use flate2::write::DeflateEncoder;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// The maximum length of a text that is not compressed, in bytes.
const MAX_UNCOMPRESSED_BYTES: usize = 512;

/// The maximum compression ratio of the format; a higher one indicates damage.
const MAX_RATIO: usize = 1_032;

/// The maximum length of a growing text that is not compressed, in bytes. Compressing takes longer
/// than writing it, and it is written again soon.
const MAX_GROWING_BYTES: usize = 16 << 10;

/// The first level with codes made for the text; level 1 is a third faster, but a quarter larger,
/// and leaves some texts as they are.
const COMPRESSION: Compression = Compression::new(2);

thread_local! {
    // Creating them costs more than compressing most texts. A store has one thread, and reads on a
    // few others.
    static COMPRESSOR: RefCell<Compress> = RefCell::new(Compress::new(COMPRESSION, false));
    static DECOMPRESSOR: RefCell<Decompress> = RefCell::new(Decompress::new(false));
}

/// Compresses a text if that makes it smaller.
pub(super) fn compress(text: &str) -> Option<Vec<u8>> {
    if text.len() <= MAX_UNCOMPRESSED_BYTES {
        return None;
    }
    let mut compressed = Vec::with_capacity(text.len());
    compressed.extend_from_slice(&u32::try_from(text.len()).ok()?.to_le_bytes());
    let status = COMPRESSOR.with_borrow_mut(|compressor| {
        compressor.reset();
        compressor.compress_vec(text.as_bytes(), &mut compressed, FlushCompress::Finish)
    });
    // A text that does not become smaller does not fit into the buffer.
    let compressed = (status.ok()? == Status::StreamEnd).then_some(compressed)?;
    Some(compressed.into_boxed_slice().into_vec())
}

/// Compresses a text that is written in pieces.
pub(super) struct Compressor {
    encoder: DeflateEncoder<Vec<u8>>,
    length: usize,
}

/// The bytes in front of a compressed text, which are its length.
const LENGTH_BYTES: usize = size_of::<u32>();

impl Default for Compressor {
    fn default() -> Self {
        Self {
            encoder: DeflateEncoder::new(vec![0; LENGTH_BYTES], COMPRESSION),
            length: 0,
        }
    }
}

impl Write for Compressor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.encoder.write(bytes)?;
        self.length += written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Compressor {
    /// Returns the compressed text. `None` if it is too long, which is 4 GiB.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        let length = u32::try_from(self.length).ok()?;
        let mut compressed = self.encoder.finish().ok()?;
        let front = compressed.first_chunk_mut::<LENGTH_BYTES>()?;
        *front = length.to_le_bytes();
        Some(compressed)
    }
}

/// Compresses a text if that makes it smaller, except for one that is short and will be replaced
/// soon.
pub(super) fn compress_unless_growing(text: &str, is_growing: bool) -> Option<Vec<u8>> {
    if is_growing && text.len() <= MAX_GROWING_BYTES {
        return None;
    }
    compress(text)
}

/// Decompresses a text. Returns `None` if it is damaged.
pub(super) fn decompress(compressed: &[u8]) -> Option<String> {
    let (length, compressed) = compressed.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if length > compressed.len().saturating_mul(MAX_RATIO) {
        return None;
    }
    let mut text = Vec::with_capacity(length);
    let status = DECOMPRESSOR.with_borrow_mut(|decompressor| {
        decompressor.reset(false);
        decompressor.decompress_vec(compressed, &mut text, FlushDecompress::Finish)
    });
    let whole = status.ok()? == Status::StreamEnd && text.len() == length;
    whole.then(|| String::from_utf8(text).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_text_is_compressed_when_it_is_long() {
        for (length, is_growing, is_compressed) in [
            (MAX_UNCOMPRESSED_BYTES, false, false),
            (MAX_UNCOMPRESSED_BYTES + 1, false, true),
            (MAX_GROWING_BYTES, true, false),
            (MAX_GROWING_BYTES, false, true),
            (MAX_GROWING_BYTES + 1, true, true),
        ] {
            let found = compress_unless_growing(&"a".repeat(length), is_growing);
            assert_eq!(found.is_some(), is_compressed, "{length} {is_growing}");
        }
    }

    #[test]
    fn text_compressed_in_pieces_is_restored() {
        for text in ["", "short", "ü 🎉 words\n".repeat(50_000).as_str()] {
            let mut compressor = Compressor::default();
            for piece in text.as_bytes().chunks(1_000) {
                compressor.write_all(piece).unwrap();
            }
            let compressed = compressor.finish().unwrap();
            assert_eq!(decompress(&compressed).as_deref(), Some(text));
        }
    }

    #[test]
    fn compressed_text_is_restored() {
        let mut random = fastrand::Rng::with_seed(7);
        let noise: String = (0..2_000).map(|_| random.char('\u{100}'..)).collect();
        for (text, worth) in [
            ("", false),
            ("short", false),
            ("words ".repeat(100).as_str(), true),
            ("ü 🎉\n".repeat(50_000).as_str(), true),
            ("\0".repeat(1_000_000).as_str(), true),
            (noise.as_str(), true),
        ] {
            match compress(text) {
                Some(compressed) => {
                    assert!(worth && compressed.len() < text.len());
                    assert_eq!(decompress(&compressed).as_deref(), Some(text));
                    assert_eq!(decompress(&compressed[..compressed.len() - 1]), None);
                    assert_eq!(decompress(&compressed[1..]), None);
                }
                None => assert!(!worth, "{} bytes are not compressed", text.len()),
            }
        }
        for nonsense in [&b""[..], b"abc", b"\xff\xff\xff\xffabc", b"\x05\0\0\0hello"] {
            assert_eq!(decompress(nonsense), None);
        }
    }
}
