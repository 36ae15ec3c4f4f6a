//! Contents of many small files, one after the other in few files. Ten thousand files that a command has written cost
//! one file of ours, not ten thousand.
//!
//! A process appends to a pack of its own, which it keeps locked, so no process waits for another. A record is the
//! mark `P`, the digest (32 bytes), the length of what follows (four bytes, big-endian), and the content as
//! [`Objects`](super::objects::Objects) packs it. A killed process may leave its last record incomplete; that is ignored.
//!
//! A pack's time of modification says when one of its contents was last in use.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use rustix::fs::FlockOperation;

use super::aging::{note_use, places, remove_unused, usual_name};
use super::digest::{DIGEST, Digest, hex, parse_name};
use crate::lock::locked;

/// Larger contents have a file of their own.
const MAX_CONTENT: usize = 64 << 10;

/// How many contents of a process have a file of their own, so that a process that keeps few makes no pack.
const LOOSE: usize = 64;

/// A pack that has become larger is followed by another, so that unused ones can be removed.
const MAX_PACK: u64 = 64 << 20;

/// The first byte of a record.
const MARK: u8 = b'P';

/// The bytes of a record before its content.
const HEADER: usize = 1 + DIGEST + 4;

#[derive(Debug)]
pub(super) struct Packs {
    dir: PathBuf,
    // A std mutex, held while a pack is read or appended to, on threads that may block.
    state: Mutex<PacksState>,
}

#[derive(Debug, Default)]
struct PacksState {
    /// How many contents were kept so far.
    kept: usize,
    own: Option<OwnPack>,
    known: HashMap<Digest, PackedContent>,
    /// How far each pack was read.
    read: HashMap<OsString, u64>,
}

/// The pack that this process appends to.
#[derive(Debug)]
struct OwnPack {
    file: File,
    name: OsString,
    length: u64,
}

/// The place of a content.
#[derive(Debug, Clone)]
struct PackedContent {
    pack: OsString,
    at: u64,
    length: usize,
}

impl Packs {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, state: Mutex::default() }
    }

    /// Keeps a content. Returns false if it is to have a file of its own.
    ///
    /// # Errors
    /// The system's; nothing of the content is left then.
    pub(super) fn put(&self, hash: &str, packed: &[u8]) -> io::Result<bool> {
        let Some(digest) = parse_name(hash) else { return Ok(false) };
        let Ok(length) = u32::try_from(packed.len()) else { return Ok(false) };
        let mut state = locked(&self.state);
        state.kept += 1;
        if state.kept <= LOOSE || packed.len() > MAX_CONTENT {
            return Ok(false);
        }
        let mut own = match state.own.take() {
            // Somebody may have removed it.
            Some(own) if own.length < MAX_PACK && self.dir.join(&own.name).exists() => own,
            _ => OwnPack::create(&self.dir)?,
        };
        let mut record = Vec::with_capacity(HEADER + packed.len());
        record.push(MARK);
        record.extend_from_slice(&digest);
        record.extend_from_slice(&length.to_be_bytes());
        record.extend_from_slice(packed);
        own.append(&record)?;
        let at = own.length - packed.len() as u64;
        state.known.insert(digest, PackedContent { pack: own.name.clone(), at, length: packed.len() });
        state.read.insert(own.name.clone(), own.length);
        state.own = Some(own);
        Ok(true)
    }

    /// Notes that a content is in use. Returns whether this process knows that a pack has it.
    pub(super) fn note_use(&self, hash: &str) -> bool {
        let Some(digest) = parse_name(hash) else { return false };
        let mut state = locked(&self.state);
        let Some(place) = state.known.get(&digest) else { return false };
        if note_use(&self.dir.join(&place.pack)) {
            return true;
        }
        state.known.remove(&digest);
        false
    }

    /// The content as it is packed.
    pub(super) fn packed(&self, hash: &str) -> Option<Vec<u8>> {
        let place = self.find(hash)?;
        let mut packed = vec![0; place.length];
        let file = places(&self.dir.join(&place.pack)).iter().find_map(|path| File::open(path).ok())?;
        file.read_exact_at(&mut packed, place.at).ok()?;
        Some(packed)
    }

    pub(super) fn has(&self, hash: &str) -> bool {
        self.find(hash).is_some()
    }

    /// Finds a content in the packs, those of other processes included.
    fn find(&self, hash: &str) -> Option<PackedContent> {
        let digest = parse_name(hash)?;
        let mut state = locked(&self.state);
        if let Some(place) = state.known.get(&digest)
            && places(&self.dir.join(&place.pack)).iter().any(|path| path.exists())
        {
            return Some(place.clone());
        }
        state.known.remove(&digest);
        state.refresh(&self.dir);
        state.known.get(&digest).cloned()
    }

    /// Removes packs that were last used before `limit` and belong to no process. Contents of them that are `wanted`
    /// are passed to `keep` first; if that fails, the pack stays.
    pub(super) fn clean(
        &self,
        limit: SystemTime,
        wanted: impl Fn(&str) -> bool,
        keep: impl Fn(&str, &[u8]) -> io::Result<()>,
    ) {
        for name in names(&self.dir) {
            let path = self.dir.join(&name);
            remove_unused(&path, limit, |path| !is_unlocked(path) || keep_wanted(path, &wanted, &keep).is_err());
        }
    }
}

impl PacksState {
    /// Reads what was added to the packs since they were read last.
    fn refresh(&mut self, dir: &Path) {
        let names = names(dir);
        self.read.retain(|name, _| names.contains(name));
        self.known.retain(|_, place| names.contains(&place.pack));
        for name in names {
            let from = self.read.get(&name).copied().unwrap_or(0);
            let known = &mut self.known;
            let add = |digest: Digest, at: u64, length: usize| {
                known.insert(digest, PackedContent { pack: name.clone(), at, length });
            };
            let path = dir.join(&name);
            let Some(file) = places(&path).iter().find_map(|path| File::open(path).ok()) else { continue };
            match read_records(&file, from, add) {
                Ok(end) => {
                    self.read.insert(name, end);
                }
                Err(e) => tracing::warn!("the pack {} cannot be read: {e}", path.display()),
            }
        }
    }
}

impl OwnPack {
    fn create(dir: &Path) -> io::Result<Self> {
        crate::environment::private_dir(dir)?;
        let temporary = tempfile::Builder::new().prefix("").suffix(".pack").rand_bytes(12).tempfile_in(dir)?;
        // Locked before its name stays: who cleans up leaves it alone from the beginning.
        rustix::fs::flock(temporary.as_file(), FlockOperation::NonBlockingLockShared)?;
        let (file, path) = temporary.keep().map_err(|e| e.error)?;
        let name = path.file_name().unwrap_or_default().to_owned();
        Ok(Self { file, name, length: 0 })
    }

    /// Appends a record; all of it, or nothing.
    fn append(&mut self, record: &[u8]) -> io::Result<()> {
        if let Err(e) = self.file.write_all(record) {
            self.file.set_len(self.length).ok();
            self.file.seek(SeekFrom::Start(self.length)).ok();
            return Err(e);
        }
        self.length += record.len() as u64;
        Ok(())
    }
}

/// The names of the packs in a directory, without those that a killed process has put aside.
fn names(dir: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| usual_name(&entry.file_name()));
    let mut names: Vec<OsString> =
        names.filter(|name| Path::new(name).extension().is_some_and(|e| e == "pack")).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether no process appends to a pack.
fn is_unlocked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Passes the contents of a pack that are wanted to `keep`.
fn keep_wanted(
    path: &Path,
    wanted: &impl Fn(&str) -> bool,
    keep: &impl Fn(&str, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let file = File::open(path)?;
    let mut found = Vec::new();
    read_records(&file, 0, |digest, at, length| found.push((hex(&digest), at, length)))?;
    for (hash, at, length) in found {
        if wanted(&hash) {
            let mut packed = vec![0; length];
            file.read_exact_at(&mut packed, at)?;
            keep(&hash, &packed)?;
        }
    }
    Ok(())
}

/// Reads the records from a place on. Returns where the last complete one ends.
fn read_records(file: &File, from: u64, mut found: impl FnMut(Digest, u64, usize)) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let mut reader = BufReader::with_capacity(256 << 10, file);
    reader.seek(SeekFrom::Start(from))?;
    let mut end = from;
    let mut header = [0; HEADER];
    while end + HEADER as u64 <= length {
        reader.read_exact(&mut header)?;
        let Some((digest, size)) = parse_header(&header) else { break };
        let at = end + HEADER as u64;
        if at + u64::from(size) > length {
            break;
        }
        reader.seek_relative(i64::from(size))?;
        found(digest, at, size as usize);
        end = at + u64::from(size);
    }
    Ok(end)
}

fn parse_header(header: &[u8; HEADER]) -> Option<(Digest, u32)> {
    let rest = header.strip_prefix(&[MARK])?;
    let (digest, size) = rest.split_first_chunk::<DIGEST>()?;
    Some((*digest, u32::from_be_bytes(size.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::snapshot::objects::Objects;

    const COUNT: usize = LOOSE + 100;

    fn open(dir: &Path) -> Objects {
        Objects::new(dir.join("objects"), dir.join("packs"))
    }

    fn content(n: usize) -> Vec<u8> {
        format!("content {n}\n").repeat(n % 600).into_bytes()
    }

    /// Keeps [`COUNT`] contents. Returns their names.
    fn fill(objects: &Objects) -> Vec<String> {
        (0..COUNT).map(|n| objects.put(&content(n)).unwrap()).collect()
    }

    fn pack_of(dir: &Path) -> PathBuf {
        let packs = names(&dir.join("packs"));
        assert_eq!(packs.len(), 1, "{packs:?}");
        dir.join("packs").join(&packs[0])
    }

    /// The contents of [`fill`] that are there and whole, by number.
    fn whole(objects: &Objects, names: &[String]) -> Vec<usize> {
        (0..COUNT).filter(|n| objects.get(&names[*n]) == Ok(content(*n))).collect()
    }

    fn make_older(path: &Path) -> SystemTime {
        let old = SystemTime::now() - Duration::from_secs(40 * 24 * 3600);
        File::open(path).unwrap().set_modified(old).unwrap();
        old + Duration::from_secs(24 * 3600)
    }

    #[test]
    fn contents_of_one_process_are_there_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (open(dir.path()), open(dir.path()));
        let names = fill(&one);
        let files = fs::read_dir(dir.path().join("objects")).unwrap().count();
        assert!(files <= LOOSE, "{files}");
        assert_eq!(whole(&one, &names).len(), COUNT);
        assert_eq!(whole(&other, &names).len(), COUNT);
        // What is added later is found, and what is there already is not kept twice.
        let late = one.put(b"late").unwrap();
        assert_eq!(other.get(&late).as_deref(), Ok(&b"late"[..]));
        let length = fs::metadata(pack_of(dir.path())).unwrap().len();
        assert_eq!(fill(&one), names);
        assert_eq!(fs::metadata(pack_of(dir.path())).unwrap().len(), length);
        // A large content has a file of its own.
        let large: Vec<u8> = (0..1_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let large = one.put(&large).unwrap();
        assert!(other.has(&large));
        assert_eq!(fs::metadata(pack_of(dir.path())).unwrap().len(), length);
    }

    #[test]
    fn incomplete_record_costs_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let names = fill(&open(dir.path()));
        let pack = File::options().append(true).open(pack_of(dir.path())).unwrap();
        let length = pack.metadata().unwrap().len();
        let all: Vec<usize> = (0..COUNT).collect();
        for rest in [&b"P"[..], &[0; 100], b"not a record"] {
            pack.set_len(length).unwrap();
            (&pack).write_all(rest).unwrap();
            assert_eq!(whole(&open(dir.path()), &names), all);
        }
        pack.set_len(length - 1).unwrap();
        assert_eq!(whole(&open(dir.path()), &names), all[..COUNT - 1]);
    }

    #[test]
    fn damaged_content_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let names = fill(&open(dir.path()));
        let path = pack_of(dir.path());
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(whole(&open(dir.path()), &names).len(), COUNT - 1);
    }

    #[test]
    fn unused_pack_is_removed_but_for_what_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let one = open(dir.path());
        let names = fill(&one);
        let (path, other) = (pack_of(dir.path()), open(dir.path()));
        let wanted = names[COUNT - 1].clone();
        let limit = make_older(&path);
        other.clean(limit, |name| name == wanted);
        assert!(path.exists(), "its process appends to it");
        drop(one);
        other.clean(limit - Duration::from_secs(10 * 24 * 3600), |_| false);
        assert!(path.exists(), "it was used after the limit");
        assert!(other.has(&wanted));
        other.note_use(&wanted);
        other.clean(limit, |_| false);
        assert!(path.exists(), "one of its contents was used");
        make_older(&path);
        other.clean(limit, |name| name == wanted);
        assert!(!path.exists());
        assert_eq!(other.get(&wanted), Ok(content(COUNT - 1)));
        assert!(!other.has(&names[COUNT - 2]));
        // Somebody who knew the pack keeps it again.
        assert_eq!(fill(&other), names);
        assert_eq!(whole(&open(dir.path()), &names).len(), COUNT);
    }

    #[test]
    fn pack_put_aside_by_a_killed_process_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let names = fill(&open(dir.path()));
        let path = pack_of(dir.path());
        let aside = path.with_file_name(format!(".going-{}", path.file_name().unwrap().display()));
        fs::rename(&path, &aside).unwrap();
        let other = open(dir.path());
        assert_eq!(whole(&other, &names).len(), COUNT);
        other.clean(SystemTime::now() - Duration::from_secs(24 * 3600), |_| false);
        assert!(path.exists() && !aside.exists(), "it was used lately");
    }
}
