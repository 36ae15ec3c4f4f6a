//! Contents, each under the name of what it is: written once, never changed, shared by everyone who
//! had the same.
//!
//! A file's time of modification says when its content was last in use: when somebody had it kept, though
//! it was here already, or when the last file let go of it. Contents that were not used for long are
//! removed, by any process, while others keep theirs. So one that is to be removed is put aside first and
//! looked at once more: what was used a moment ago is put back. Who uses it a moment later puts it back or,
//! where it is too late for that, writes it anew. Nobody waits, and no file system needs locks for it.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest as sha};
use rustix::event::Timespec;
use rustix::fs::{AtFlags, CWD, Timestamps, UTIME_NOW};

/// Smaller contents are not compressed: they take a block of the disk anyway.
const SMALL: usize = 4 << 10;

/// How often the use of one content is written down: much more often than contents are removed, and not
/// each time, so that keeping what is kept already stays cheap.
const USE_NOTED_EVERY: Duration = Duration::from_secs(24 * 3600);

/// How the name of a content begins that is about to be removed.
const ASIDE: &str = ".going-";

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
        if note_use(&path) {
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

    /// Says that a content was in use until now, so that it is kept as long from now on as if it were new.
    pub(super) fn note_use(&self, hash: &str) {
        if let Some(path) = self.path(hash) {
            note_use(&path);
        }
    }

    /// A content as it is kept.
    pub(super) fn packed(&self, hash: &str) -> Option<Vec<u8>> {
        places(&self.path(hash)?).iter().find_map(|place| fs::read(place).ok())
    }

    pub(super) fn has(&self, hash: &str) -> bool {
        self.path(hash).is_some_and(|path| places(&path).iter().any(|place| place.exists()))
    }

    /// A content by its name. What is kept is not believed: it is what it is called, or it is damaged.
    pub(super) fn get(&self, hash: &str) -> Result<Vec<u8>, Missing> {
        let stored = self.packed(hash).ok_or(Missing::Gone)?;
        let bytes = unpacked(&stored).ok_or(Missing::Damaged)?;
        if digest(&bytes) == hash { Ok(bytes) } else { Err(Missing::Damaged) }
    }

    /// Removes contents that were last used before `limit`, but for those that are `wanted`.
    pub(super) fn clean(&self, limit: SystemTime, wanted: impl Fn(&str) -> bool) {
        let list = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().collect::<Vec<_>>();
        let old = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).is_ok_and(|used| used < limit);
        for dir in list(&self.dir) {
            let first = dir.file_name().to_string_lossy().into_owned();
            for file in list(&dir.path()) {
                let name = file.file_name().to_string_lossy().into_owned();
                let left = name.strip_prefix(ASIDE);
                let hash = format!("{first}{}", left.unwrap_or(&name));
                let path = dir.path().join(left.unwrap_or(&name));
                let aside = aside(&path);
                // What a cleaning that was killed has put aside is there already. Another process may be faster
                // with any of this.
                if left.is_none() && (!old(&path) || wanted(&hash) || fs::rename(&path, &aside).is_err()) {
                    continue;
                }
                if old(&aside) && (left.is_none() || !wanted(&hash)) {
                    fs::remove_file(&aside).ok();
                } else {
                    fs::rename(&aside, &path).ok();
                }
            }
        }
    }
}

/// Where a content is put that is about to be removed.
fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{ASIDE}{name}"))
}

/// Where to look for a content, in this order: while one looks, it may be put aside, and back again.
fn places(path: &Path) -> [PathBuf; 3] {
    [path.to_owned(), aside(path), path.to_owned()]
}

/// Notes that a content is in use now. Whether it is there, and stays.
fn note_use(path: &Path) -> bool {
    let now = || Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now(), last_modification: now() };
    // Where its time cannot be set, a content is there all the same.
    let touch = |place: &Path| {
        rustix::fs::utimensat(CWD, place, &times, AtFlags::empty()).ok();
    };
    match fs::metadata(path).and_then(|data| data.modified()) {
        // A time that is still to come is one of a clock that is ahead of ours.
        Ok(used) if used.elapsed().map_or(true, |ago| ago < USE_NOTED_EVERY) => return true,
        Ok(_) => touch(path),
        Err(_) => {
            let aside = aside(path);
            touch(&aside);
            fs::rename(&aside, path).ok();
        }
    }
    // Who put it aside before its time was set may have looked at it for the last time already; who does so later
    // sees the time.
    path.exists()
}
