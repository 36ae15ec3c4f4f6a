//! SHA-256 digests, which are the names of objects, and the blob ids of git.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest as sha};

/// The length of a digest, in bytes.
pub(super) const DIGEST_BYTES: usize = 32;

/// A digest; its hexadecimal form is the name of an object.
pub(super) type Digest = [u8; DIGEST_BYTES];

/// Returns the name of an object.
pub(super) fn digest(bytes: &[u8]) -> String {
    hex(sha(&SHA256, bytes).as_ref())
}

/// The digest of an object that is read piece by piece.
pub(super) struct StreamedDigest(Context);

impl Default for StreamedDigest {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl StreamedDigest {
    /// Adds the next bytes of the object.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the name of the object, as [`digest`] does.
    pub(super) fn finish(self) -> String {
        hex(self.0.finish().as_ref())
    }
}

/// Returns whether a name is a blob id of git.
pub(super) fn is_blob_name(name: &str) -> bool {
    name.len() == 40
}

/// Returns the blob id of an object.
pub(super) fn blob_name(bytes: &[u8]) -> String {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    context.update(format!("blob {}\0", bytes.len()).as_bytes());
    context.update(bytes);
    hex(context.finish().as_ref())
}

/// Returns two lower-case hexadecimal digits for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| char::from(HEX.get(usize::from(n)).copied().unwrap_or(b'0'));
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// Parses the name of an object. Returns `None` for a blob id of git, and for any other text.
pub(super) fn parse_name(name: &str) -> Option<Digest> {
    if name.len() != 2 * DIGEST_BYTES || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; DIGEST_BYTES];
    for (n, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(name.get(2 * n..2 * n + 2)?, 16).ok()?;
    }
    Some(digest)
}
