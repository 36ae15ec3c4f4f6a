//! File contents, stored under their SHA-256 digest and shared by all files with the same content.
//! A stored object is never modified.
//!
//! Once a process has stored 64 objects, further ones of at most 64 KiB go into packs (`packs.rs`).
//! `aging.rs` decides on the removal of objects.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use super::aging::{mark_used, possible_paths, remove_unused, usual_name};
use super::digest::{digest, parse_name};
use super::packs::Packs;

/// The minimum length of an object that is compressed, in bytes. A smaller file would rarely occupy
/// fewer disk blocks.
const MIN_COMPRESSED_BYTES: usize = 4 << 10;

/// The first level with Huffman codes made for the text; at level 1 the result is a quarter larger.
const COMPRESSION: Compression = Compression::new(2);

/// The reason why an object is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentUnavailable {
    /// It was too large to be stored.
    #[error("its content was too large to be stored")]
    NotStored,
    /// No stored object has this digest: it was removed, or never stored.
    #[error("its content is not stored")]
    NotFound,
    /// The stored data is damaged.
    #[error("its stored content is damaged")]
    Damaged,
}

/// Decodes the stored form of an object; see [`encode_content`]. Returns `None` if it is damaged.
pub(super) fn decode_content(stored: &[u8]) -> Option<Vec<u8>> {
    match stored.split_first()? {
        (b'=', plain) => Some(plain.to_vec()),
        (b'z', compressed) => {
            let mut bytes = Vec::new();
            ZlibDecoder::new(compressed).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        }
        _ => None,
    }
}

/// Decodes an object. Returns `None` if it does not have this digest.
fn decode_verified(expected: &str, stored: &[u8]) -> Option<Vec<u8>> {
    decode_content(stored).filter(|bytes| digest(bytes) == expected)
}

/// Encodes an object: the first byte is `=` before plain data and `z` before zlib data. A small
/// content is not compressed.
fn encode_content(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut stored = Vec::with_capacity(bytes.len() / 2 + 1);
    if bytes.len() < MIN_COMPRESSED_BYTES {
        stored.push(b'=');
        stored.extend_from_slice(bytes);
        return Ok(stored);
    }
    stored.push(b'z');
    let mut encoder = ZlibEncoder::new(stored, COMPRESSION);
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// The store of objects.
#[derive(Debug)]
pub(super) struct Objects {
    /// The directory of objects with files of their own.
    dir: PathBuf,
    packs: Packs,
}

impl Objects {
    /// Creates a store of objects below `dir`, with packs below `packs`.
    pub(super) fn new(dir: PathBuf, packs: PathBuf) -> Self {
        Self {
            dir,
            packs: Packs::new(packs),
        }
    }

    /// Returns the path of an object's own file; `None` if the text is not a digest.
    fn path(&self, digest: &str) -> Option<PathBuf> {
        parse_name(digest).map(|_| self.dir.join(&digest[..2]).join(&digest[2..]))
    }

    /// Stores an object and returns its digest. If the process is killed, at most a temporary file
    /// or an incomplete pack record remains, which readers ignore.
    pub(super) fn put(&self, bytes: &[u8]) -> io::Result<String> {
        let digest = digest(bytes);
        let path = self
            .path(&digest)
            .ok_or_else(|| io::Error::other("the digest is not a valid object name"))?;
        // A small content may also be in a file: looking for it would take longer than storing it.
        let is_cheap = bytes.len() < MIN_COMPRESSED_BYTES && self.packs.takes(bytes.len() + 1);
        if self.packs.mark_used(&digest) || !is_cheap && mark_used(&path) {
            return Ok(digest);
        }
        let stored = encode_content(bytes)?;
        match self.packs.put(&digest, &stored) {
            Ok(true) => {}
            Ok(false) => self.write(&path, &stored)?,
            // On a full disk, the content may still be in its own file.
            Err(e) => {
                if !mark_used(&path) {
                    return Err(e);
                }
            }
        }
        Ok(digest)
    }

    /// Returns whether an object is in a file of its own, or in a pack that this process knows.
    /// Marks it as in use then.
    pub(super) fn is_stored(&self, digest: &str) -> bool {
        self.packs.mark_used(digest) || self.path(digest).is_some_and(|path| mark_used(&path))
    }

    /// Writes an encoded object to a file of its own.
    fn write(&self, path: &Path, stored: &[u8]) -> io::Result<()> {
        let dir = path.parent().unwrap_or(&self.dir);
        if !dir.exists() {
            base::environment::private_dir(&self.dir)?;
            base::environment::private_dir(dir)?;
        }
        let mut temporary = tempfile::Builder::new().prefix(".new-").tempfile_in(dir)?;
        temporary.write_all(stored)?;
        temporary.persist(path).map_err(|e| e.error)?;
        Ok(())
    }

    /// Marks an object as in use now, so that its age begins anew.
    pub(super) fn mark_used(&self, digest: &str) {
        if !self.packs.mark_used(digest)
            && let Some(path) = self.path(digest)
            && !mark_used(&path)
            && self.packs.has(digest)
        {
            // `has` has read the packs of other processes by now, so try again.
            self.packs.mark_used(digest);
        }
    }

    /// Returns an object in its stored form.
    pub(super) fn stored_bytes(&self, digest: &str) -> Option<Vec<u8>> {
        self.own_file(digest)
            .or_else(|| self.packs.stored_bytes(digest))
            .or_else(|| self.own_file(digest))
    }

    /// Reads the file of an object. Callers look for it before and after the packs, because a
    /// process that removes a pack may have written one of its objects to a file in the meantime.
    fn own_file(&self, digest: &str) -> Option<Vec<u8>> {
        possible_paths(&self.path(digest)?)
            .iter()
            .find_map(|path| fs::read(path).ok())
    }

    /// Returns whether an object is stored.
    pub(super) fn has(&self, digest: &str) -> bool {
        let has_file = || {
            self.path(digest)
                .is_some_and(|path| possible_paths(&path).iter().any(|path| path.exists()))
        };
        has_file() || self.packs.has(digest) || has_file()
    }

    /// Returns an object by its digest, which is verified.
    ///
    /// # Errors
    /// [`ContentUnavailable::NotFound`], or `Damaged` if no copy has the digest.
    pub(super) fn get(&self, digest: &str) -> Result<Vec<u8>, ContentUnavailable> {
        let stored = self
            .stored_bytes(digest)
            .ok_or(ContentUnavailable::NotFound)?;
        if let Some(bytes) = decode_verified(digest, &stored) {
            return Ok(bytes);
        }
        // If the file is damaged, a pack may contain an intact copy.
        self.packs
            .stored_bytes(digest)
            .and_then(|stored| decode_verified(digest, &stored))
            .ok_or(ContentUnavailable::Damaged)
    }

    /// Removes objects last used before `unused_since`, unless `is_needed` accepts their digest.
    pub(super) fn clean(&self, unused_since: SystemTime, is_needed: impl Fn(&str) -> bool) {
        for dir in list(&self.dir) {
            let first = dir.file_name().to_string_lossy().into_owned();
            for file in list(&dir.path()) {
                let name = usual_name(&file.file_name());
                let digest = format!("{first}{}", name.to_string_lossy());
                remove_unused(&dir.path().join(&name), unused_since, |_| {
                    is_needed(&digest)
                });
            }
        }
        let keep = |digest: &str, stored: &[u8]| match self.path(digest) {
            Some(path) if decode_verified(digest, stored).is_some() && !mark_used(&path) => {
                self.write(&path, stored)
            }
            _ => Ok(()),
        };
        self.packs.clean(unused_since, is_needed, keep);
    }
}

/// Returns the entries of a directory, as far as it can be read.
fn list(dir: &Path) -> Vec<fs::DirEntry> {
    fs::read_dir(dir).into_iter().flatten().flatten().collect()
}
