//! Contents, each stored under its digest: written once, never changed, shared by all files with
//! the same content.
//!
//! Contents of small files that a command changes by the hundred are stored in packs (`packs.rs`).
//! `aging.rs` decides on the removal of contents.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use super::aging::{note_use, possible_paths, remove_unused, usual_name};
use super::digest::{digest, parse_name};
use super::packs::Packs;

/// The size from which contents are compressed. Smaller ones occupy a block of the disk anyway.
const MIN_COMPRESSED_BYTES: usize = 4 << 10;

/// The reason why a content is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// It was too large to be stored.
    #[error("its content was too large to be stored")]
    NotStored,
    /// It was stored, and has been removed.
    #[error("its content is no longer stored")]
    Gone,
    /// The stored data is damaged.
    #[error("its stored content is damaged")]
    Damaged,
}

/// Unpacks a stored content. Returns `None` if it is damaged.
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

/// Unpacks a content, if it has the digest under which it is stored.
fn genuine(hash: &str, stored: &[u8]) -> Option<Vec<u8>> {
    unpacked(stored).filter(|bytes| digest(bytes) == hash)
}

/// Packs a content. A small one is not compressed.
fn packed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = Vec::with_capacity(bytes.len() / 2 + 1);
    if bytes.len() < MIN_COMPRESSED_BYTES {
        packed.push(b'=');
        packed.extend_from_slice(bytes);
        return Ok(packed);
    }
    packed.push(b'z');
    let mut encoder = ZlibEncoder::new(packed, Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

#[derive(Debug)]
pub(super) struct Objects {
    dir: PathBuf,
    packs: Packs,
}

impl Objects {
    /// Stores contents below `dir`, and packs below `packs`.
    pub(super) fn new(dir: PathBuf, packs: PathBuf) -> Self {
        Self {
            dir,
            packs: Packs::new(packs),
        }
    }

    fn path(&self, hash: &str) -> Option<PathBuf> {
        parse_name(hash).map(|_| self.dir.join(&hash[..2]).join(&hash[2..]))
    }

    /// Stores a content, and returns its digest. A process that is killed meanwhile leaves nothing
    /// or a complete content behind.
    pub(super) fn put(&self, bytes: &[u8]) -> io::Result<String> {
        let hash = digest(bytes);
        let path = self
            .path(&hash)
            .ok_or_else(|| io::Error::other("a digest is a digest"))?;
        // A small content may also be in a file: looking for it would take longer than storing it.
        let is_cheap = bytes.len() < MIN_COMPRESSED_BYTES && self.packs.takes(bytes.len() + 1);
        if self.packs.note_use(&hash) || !is_cheap && note_use(&path) {
            return Ok(hash);
        }
        let packed = packed(bytes)?;
        if !self.packs.put(&hash, &packed)? {
            self.write(&path, &packed)?;
        }
        Ok(hash)
    }

    /// Returns whether a content is in a file of its own, or in a pack that this process knows. Marks it
    /// as in use then.
    pub(super) fn is_stored(&self, hash: &str) -> bool {
        self.packs.note_use(hash) || self.path(hash).is_some_and(|path| note_use(&path))
    }

    /// Writes a packed content to a file of its own.
    fn write(&self, path: &Path, packed: &[u8]) -> io::Result<()> {
        let dir = path.parent().unwrap_or(&self.dir);
        if !dir.exists() {
            base::environment::private_dir(&self.dir)?;
            base::environment::private_dir(dir)?;
        }
        let mut fresh = tempfile::Builder::new().prefix(".new-").tempfile_in(dir)?;
        fresh.write_all(packed)?;
        fresh.persist(path).map_err(|e| e.error)?;
        Ok(())
    }

    /// Marks a content as in use now, so that its age begins anew.
    pub(super) fn note_use(&self, hash: &str) {
        if !self.packs.note_use(hash)
            && let Some(path) = self.path(hash)
            && !note_use(&path)
            && self.packs.has(hash)
        {
            self.packs.note_use(hash);
        }
    }

    /// Returns a content in its stored form.
    pub(super) fn packed(&self, hash: &str) -> Option<Vec<u8>> {
        self.own_file(hash)
            .or_else(|| self.packs.packed(hash))
            .or_else(|| self.own_file(hash))
    }

    /// Reads the file of a content. Callers look for it before and after the packs, because a
    /// process that removes a pack may have written one of its contents to a file meanwhile.
    fn own_file(&self, hash: &str) -> Option<Vec<u8>> {
        possible_paths(&self.path(hash)?)
            .iter()
            .find_map(|path| fs::read(path).ok())
    }

    pub(super) fn has(&self, hash: &str) -> bool {
        let has_file = || {
            self.path(hash)
                .is_some_and(|path| possible_paths(&path).iter().any(|path| path.exists()))
        };
        has_file() || self.packs.has(hash) || has_file()
    }

    /// Returns a content by its digest, which is verified.
    pub(super) fn get(&self, hash: &str) -> Result<Vec<u8>, Missing> {
        let stored = self.packed(hash).ok_or(Missing::Gone)?;
        if let Some(bytes) = genuine(hash, &stored) {
            return Ok(bytes);
        }
        // If the file is damaged, a pack may contain an intact copy.
        self.packs
            .packed(hash)
            .and_then(|stored| genuine(hash, &stored))
            .ok_or(Missing::Damaged)
    }

    /// Removes contents that were last used before `limit`, unless they are `wanted`.
    pub(super) fn clean(&self, limit: SystemTime, wanted: impl Fn(&str) -> bool) {
        for dir in list(&self.dir) {
            let first = dir.file_name().to_string_lossy().into_owned();
            for file in list(&dir.path()) {
                let name = usual_name(&file.file_name());
                let hash = format!("{first}{}", name.to_string_lossy());
                remove_unused(&dir.path().join(&name), limit, |_| wanted(&hash));
            }
        }
        let keep = |hash: &str, packed: &[u8]| match self.path(hash) {
            Some(path) if genuine(hash, packed).is_some() && !note_use(&path) => {
                self.write(&path, packed)
            }
            _ => Ok(()),
        };
        self.packs.clean(limit, wanted, keep);
    }
}

/// Returns the entries of a directory, as far as it can be read.
fn list(dir: &Path) -> Vec<fs::DirEntry> {
    fs::read_dir(dir).into_iter().flatten().flatten().collect()
}
