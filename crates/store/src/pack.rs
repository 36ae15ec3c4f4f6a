//! Compression of long texts, to about a third of their size. The length is stored in front, so
//! that the buffer need not grow while a text is decompressed.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// The maximum length of a text that is not compressed, in bytes.
const SHORT: usize = 512;

/// The maximum compression ratio of the format; a higher one indicates damage.
const MOST: usize = 1_032;

thread_local! {
    // Creating them costs more than compressing most texts. A store has one thread, and reads on a
    // few others.
    static PACKER: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), false));
    static UNPACKER: RefCell<Decompress> = RefCell::new(Decompress::new(false));
}

/// Compresses a text if that makes it smaller.
pub(super) fn pack(text: &str) -> Option<Vec<u8>> {
    if text.len() <= SHORT {
        return None;
    }
    let mut packed = Vec::with_capacity(text.len());
    packed.extend_from_slice(&u32::try_from(text.len()).ok()?.to_le_bytes());
    let status = PACKER.with_borrow_mut(|packer| {
        packer.reset();
        packer.compress_vec(text.as_bytes(), &mut packed, FlushCompress::Finish)
    });
    // A text that does not become smaller does not fit into the buffer.
    let packed = (status.ok()? == Status::StreamEnd).then_some(packed)?;
    Some(packed.into_boxed_slice().into_vec())
}

/// Decompresses a text. Returns `None` if it is damaged.
pub(super) fn unpack(packed: &[u8]) -> Option<String> {
    let (length, packed) = packed.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if length > packed.len().saturating_mul(MOST) {
        return None;
    }
    let mut text = Vec::with_capacity(length);
    let status = UNPACKER.with_borrow_mut(|unpacker| {
        unpacker.reset(false);
        unpacker.decompress_vec(packed, &mut text, FlushDecompress::Finish)
    });
    let whole = status.ok()? == Status::StreamEnd && text.len() == length;
    whole.then(|| String::from_utf8(text).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_back() {
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
            match pack(text) {
                Some(packed) => {
                    assert!(worth && packed.len() < text.len());
                    assert_eq!(unpack(&packed).as_deref(), Some(text));
                    assert_eq!(unpack(&packed[..packed.len() - 1]), None);
                    assert_eq!(unpack(&packed[1..]), None);
                }
                None => assert!(!worth, "{} bytes are not packed", text.len()),
            }
        }
        for nonsense in [&b""[..], b"abc", b"\xff\xff\xff\xffabc", b"\x05\0\0\0hello"] {
            assert_eq!(unpack(nonsense), None);
        }
    }
}
