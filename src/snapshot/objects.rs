//! Contents, each under the name of what it is: written once, never changed, shared by everyone who
//! had the same.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest as sha};

/// Smaller contents are not compressed: they take a block of the disk anyway.
const SMALL: usize = 4 << 10;

/// Why a content cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// It was too large.
    #[error("its content was too large to be kept")]
    NeverKept,
    /// It was kept once.
    #[error("its content is not kept any more")]
    Gone,
    /// What is kept is something else.
    #[error("its content was kept but is damaged")]
    Damaged,
}

/// The name of a content.
pub(super) fn digest(bytes: &[u8]) -> String {
    hex(sha(&SHA256, bytes).as_ref())
}

/// Whether a name is one that git gives.
pub(super) fn is_blob_name(name: &str) -> bool {
    name.len() == 40
}

/// The name that git gives a content.
pub(super) fn blob_name(bytes: &[u8]) -> String {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    context.update(format!("blob {}\0", bytes.len()).as_bytes());
    context.update(bytes);
    hex(context.finish().as_ref())
}

/// Bytes as two lower-case digits each.
pub(super) fn hex(bytes: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| char::from(HEX.get(usize::from(n)).copied().unwrap_or(b'0'));
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// What was packed; none where that is damaged.
pub(super) fn unpacked(stored: &[u8]) -> Option<Vec<u8>> {
    match stored.split_first()? {
        (b'=', plain) => Some(plain.to_vec()),
        (b'z', packed) => {
            let mut bytes = Vec::new();
            ZlibDecoder::new(packed).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        }
        _ => None,
    }
}

#[derive(Debug)]
pub(super) struct Objects {
    dir: PathBuf,
}

impl Objects {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn path(&self, hash: &str) -> Option<PathBuf> {
        let well_formed = hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
        well_formed.then(|| self.dir.join(&hash[..2]).join(&hash[2..]))
    }

    /// Keeps a content, and gives its name. A process that is killed meanwhile leaves none behind, or
    /// a whole one.
    pub(super) fn put(&self, bytes: &[u8]) -> io::Result<String> {
        let hash = digest(bytes);
        let path = self.path(&hash).ok_or_else(|| io::Error::other("a digest is a digest"))?;
        if path.exists() {
            return Ok(hash);
        }
        let dir = path.parent().unwrap_or(&self.dir);
        if !dir.exists() {
            crate::environment::private_dir(&self.dir)?;
            crate::environment::private_dir(dir)?;
        }
        let mut fresh = tempfile::Builder::new().prefix(".new-").tempfile_in(dir)?;
        if bytes.len() < SMALL {
            fresh.write_all(b"=")?;
            fresh.write_all(bytes)?;
        } else {
            fresh.write_all(b"z")?;
            let mut packed = ZlibEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::fast());
            packed.write_all(bytes)?;
            fresh.write_all(&packed.finish()?)?;
        }
        fresh.persist(&path).map_err(|e| e.error)?;
        Ok(hash)
    }

    /// A content as it is kept.
    pub(super) fn packed(&self, hash: &str) -> Option<Vec<u8>> {
        self.path(hash).and_then(|path| fs::read(path).ok())
    }

    pub(super) fn has(&self, hash: &str) -> bool {
        self.path(hash).is_some_and(|path| path.exists())
    }

    /// A content by its name. What is kept is not believed: it is what it is called, or it is damaged.
    pub(super) fn get(&self, hash: &str) -> Result<Vec<u8>, Missing> {
        let stored = self.packed(hash).ok_or(Missing::Gone)?;
        let bytes = unpacked(&stored).ok_or(Missing::Damaged)?;
        if digest(&bytes) == hash { Ok(bytes) } else { Err(Missing::Damaged) }
    }

    /// Removes contents that are older than `limit`, but for those that are `wanted`.
    pub(super) fn clean(&self, limit: SystemTime, wanted: impl Fn(&str) -> bool) {
        let list = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().collect::<Vec<_>>();
        for dir in list(&self.dir) {
            let first = dir.file_name().to_string_lossy().into_owned();
            for file in list(&dir.path()) {
                let hash = format!("{first}{}", file.file_name().to_string_lossy());
                let old = file.metadata().and_then(|data| data.modified()).is_ok_and(|modified| modified < limit);
                if old && !wanted(&hash) {
                    // Another process may have been faster.
                    fs::remove_file(file.path()).ok();
                }
            }
        }
    }
}
