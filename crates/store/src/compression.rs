//! Compression of long texts, to about a third of their size. The length is stored in front, so
//! that the buffer need not grow while a text is decompressed.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// The maximum length of a text that is not compressed, in bytes.
const MAX_UNCOMPRESSED_BYTES: usize = 512;

/// The maximum compression ratio of the format; a higher one indicates damage.
const MAX_RATIO: usize = 1_032;

thread_local! {
    // Creating them costs more than compressing most texts. A store has one thread, and reads on a
    // few others.
    static COMPRESSOR: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), false));
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
