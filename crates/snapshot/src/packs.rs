//! Contents of many small files, concatenated in few files. Ten thousand files that a command has
//! written cost one file in the store, not ten thousand.
//!
//! A process appends to its own pack, which it locks, so no process waits for another. A record is
//! the mark `P`, the digest (32 bytes), the length of the content (four bytes, big-endian), and the
//! content as [`Objects`](super::objects::Objects) packs it. A killed process may leave its last
//! record incomplete; it is ignored.
//!
//! The modification time of a pack is the time of the last use of one of its contents.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use rustix::fs::FlockOperation;

use super::aging::{mark_used, possible_paths, remove_unused, usual_name};
use super::digest::{DIGEST_BYTES, Digest, hex, parse_name};
use base::environment::private_file;
use base::lock::lock;

/// The maximum size of an object in a pack, in bytes. A larger one has its own file.
const MAX_CONTENT_BYTES: usize = 64 << 10;

/// The number of contents of a process that have their own files, so that a process with few
/// contents creates no pack.
const MIN_OBJECTS_BEFORE_PACKS: usize = 64;

/// The size from which a pack is followed by another, in bytes, so that unused packs can be
/// removed.
const MAX_PACK_BYTES: u64 = 64 << 20;

/// A pack is not removed if more than one part in this number of its bytes is wanted.
const WANTED_PARTS: u64 = 4;

/// The first byte of a record.
const RECORD_MARK: u8 = b'P';

/// The length of a record before its content, in bytes.
const HEADER_BYTES: usize = 1 + DIGEST_BYTES + 4;

/// The packs of a project.
#[derive(Debug)]
pub(super) struct Packs {
    dir: PathBuf,
    // A std mutex, held while a pack is read or appended to, on threads that may block.
    state: Mutex<PacksState>,
}

/// The knowledge of this process about the packs.
#[derive(Debug, Default)]
struct PacksState {
    /// The number of contents that were to be stored so far.
    stored: usize,
    /// The pack that this process appends to, if it has created one.
    own: Option<OwnPack>,
    /// True if no pack can be created here, for example because the file system has no locks.
    is_unsupported: bool,
    /// The locations of contents.
    known: HashMap<Digest, PackedContent>,
    /// The number of bytes that were read from each pack.
    read: HashMap<Arc<Path>, u64>,
}

/// The pack that this process appends to.
#[derive(Debug)]
struct OwnPack {
    file: File,
    /// The name of the file.
    name: Arc<Path>,
    /// The length of the file in bytes.
    length: u64,
}

/// The location of an object.
#[derive(Debug, Clone)]
struct PackedContent {
    /// The name of the pack.
    pack: Arc<Path>,
    /// The offset of the content in the pack.
    at: u64,
    /// The length of the content in bytes.
    length: u32,
}

impl Packs {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            state: Mutex::default(),
        }
    }

    /// Returns whether [`Packs::put`] will take a packed content of this size, as far as is known.
    pub(super) fn takes(&self, length: usize) -> bool {
        lock(&self.state).takes(length)
    }

    /// Stores an object. Returns `false` if it needs its own file.
    ///
    /// # Errors
    /// Errors of the system. Nothing of the content is stored then.
    pub(super) fn put(&self, hash: &str, packed: &[u8]) -> io::Result<bool> {
        let Some(digest) = parse_name(hash) else {
            return Ok(false);
        };
        let Ok(length) = u32::try_from(packed.len()) else {
            return Ok(false);
        };
        let mut state = lock(&self.state);
        let is_taken = state.takes(packed.len());
        state.stored += 1;
        if !is_taken {
            return Ok(false);
        }
        let mut record = Vec::with_capacity(HEADER_BYTES + packed.len());
        record.push(RECORD_MARK);
        record.extend_from_slice(&digest);
        record.extend_from_slice(&length.to_be_bytes());
        record.extend_from_slice(packed);
        let Some(own) = state.own_pack(&self.dir) else {
            return Ok(false);
        };
        own.append(&record)?;
        let name = own.name.clone();
        let end = own.length;
        let at = end - u64::from(length);
        state.known.insert(
            digest,
            PackedContent {
                pack: name.clone(),
                at,
                length,
            },
        );
        state.read.insert(name, end);
        Ok(true)
    }

    /// Marks an object as in use. Returns whether this process knows a pack that has it.
    pub(super) fn mark_used(&self, hash: &str) -> bool {
        let Some(digest) = parse_name(hash) else {
            return false;
        };
        let mut state = lock(&self.state);
        let Some(location) = state.known.get(&digest) else {
            return false;
        };
        if mark_used(&self.dir.join(&location.pack)) {
            return true;
        }
        state.known.remove(&digest);
        false
    }

    /// Returns an object in its stored form.
    pub(super) fn stored_bytes(&self, hash: &str) -> Option<Vec<u8>> {
        // If a pack is removed in the meantime, another one may have the content too.
        for _ in 0..2 {
            let location = self.find(hash)?;
            let path = self.dir.join(&location.pack);
            if let Some(file) = possible_paths(&path)
                .iter()
                .find_map(|path| File::open(path).ok())
            {
                return read_content(&file, location.at, location.length).ok();
            }
        }
        None
    }

    /// Returns whether an object is in a pack of any process.
    pub(super) fn has(&self, hash: &str) -> bool {
        self.find(hash).is_some()
    }

    /// Finds an object in the packs of all processes.
    fn find(&self, hash: &str) -> Option<PackedContent> {
        let digest = parse_name(hash)?;
        let mut state = lock(&self.state);
        if let Some(location) = state.known.get(&digest)
            && possible_paths(&self.dir.join(&location.pack))
                .iter()
                .any(|path| path.exists())
        {
            return Some(location.clone());
        }
        state.refresh(&self.dir);
        state.known.get(&digest).cloned()
    }

    /// Removes packs that were last used before `limit` and belong to no process. Their contents
    /// that are `wanted` are passed to `keep` first; if that fails, or much of a pack is wanted,
    /// the pack stays.
    pub(super) fn clean(
        &self,
        limit: SystemTime,
        wanted: impl Fn(&str) -> bool,
        keep: impl Fn(&str, &[u8]) -> io::Result<()>,
    ) {
        for name in names(&self.dir) {
            let path = self.dir.join(&name);
            remove_unused(&path, limit, |path| {
                !is_unlocked(path) || must_stay(path, &wanted, &keep).unwrap_or(true)
            });
        }
    }
}

impl PacksState {
    /// Returns whether a content of this size goes into a pack.
    fn takes(&self, length: usize) -> bool {
        self.stored >= MIN_OBJECTS_BEFORE_PACKS
            && length <= MAX_CONTENT_BYTES
            && !self.is_unsupported
    }

    /// Returns the pack to append to, or `None` if none can be created here.
    fn own_pack(&mut self, dir: &Path) -> Option<&mut OwnPack> {
        if !self
            .own
            .as_ref()
            .is_some_and(|own| own.length < MAX_PACK_BYTES && own.has_name())
        {
            self.own = match OwnPack::create(dir) {
                Ok(own) => Some(own),
                Err(e) => {
                    tracing::warn!("no pack can be made in {}: {e}", dir.display());
                    self.is_unsupported = true;
                    None
                }
            };
        }
        self.own.as_mut()
    }

    /// Reads records that were added to the packs since the last time.
    fn refresh(&mut self, dir: &Path) {
        let names = names(dir);
        let is_removed = |name: &Path| {
            names
                .binary_search_by(|other| other.as_os_str().cmp(name.as_os_str()))
                .is_err()
        };
        if self.read.keys().any(|name| is_removed(name)) {
            // Contents of a removed pack may be in another one as well.
            self.read.clear();
            self.known.clear();
        }
        for name in names {
            let from = self.read.get(Path::new(&name)).copied().unwrap_or(0);
            let path = dir.join(&name);
            let is_longer = |path: &PathBuf| fs::metadata(path).is_ok_and(|data| data.len() > from);
            let Some(longer) = possible_paths(&path).into_iter().find(is_longer) else {
                continue;
            };
            let pack: Arc<Path> = Path::new(&name).into();
            let known = &mut self.known;
            let add = |digest: Digest, at: u64, length: u32| {
                known.insert(
                    digest,
                    PackedContent {
                        pack: pack.clone(),
                        at,
                        length,
                    },
                );
            };
            match File::open(longer).and_then(|file| read_records(&file, from, add)) {
                Ok(end) => {
                    self.read.insert(pack, end);
                }
                Err(e) => tracing::warn!("the pack {} cannot be read: {e}", path.display()),
            }
        }
    }
}

impl OwnPack {
    /// Creates an empty pack, and locks it.
    fn create(dir: &Path) -> io::Result<Self> {
        base::environment::private_dir(dir)?;
        let temporary = tempfile::Builder::new()
            .prefix("")
            .suffix(".pack")
            .rand_bytes(12)
            .tempfile_in(dir)?;
        // Lock it before its name is permanent, so that no cleaning removes it.
        rustix::fs::flock(temporary.as_file(), FlockOperation::NonBlockingLockShared)?;
        let (file, path) = temporary.keep().map_err(|e| e.error)?;
        let name = Path::new(path.file_name().unwrap_or_default()).into();
        Ok(Self {
            file,
            name,
            length: 0,
        })
    }

    /// Returns whether the file still exists. Looking for it by its path would take longer than
    /// the record of a small content.
    fn has_name(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|data| data.st_nlink > 0)
    }

    /// Appends a complete record, or nothing.
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

/// Returns the names of the packs in a directory, including those that are renamed for removal, by
/// their usual names.
fn names(dir: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| usual_name(&entry.file_name()));
    let mut names: Vec<OsString> = names
        .filter(|name| Path::new(name).extension().is_some_and(|e| e == "pack"))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns whether no process appends to a pack.
fn is_unlocked(path: &Path) -> bool {
    // Some network file systems lock only files that are open for writing.
    let Ok(file) = private_file().read(true).write(true).open(path) else {
        return false;
    };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Decides whether a pack must stay. If few of its contents are wanted, passes those to `keep`, so
/// that it can be removed.
fn must_stay(
    path: &Path,
    wanted: &impl Fn(&str) -> bool,
    keep: &impl Fn(&str, &[u8]) -> io::Result<()>,
) -> io::Result<bool> {
    let file = File::open(path)?;
    let mut wanted_records = Vec::new();
    let end = read_records(&file, 0, |digest, at, length| {
        let hash = hex(&digest);
        if wanted(&hash) {
            wanted_records.push((hash, at, length));
        }
    })?;
    let bytes: u64 = wanted_records
        .iter()
        .map(|(_, _, length)| u64::from(*length))
        .sum();
    if bytes > end / WANTED_PARTS {
        mark_used(path);
        return Ok(true);
    }
    for (hash, at, length) in wanted_records {
        keep(&hash, &read_content(&file, at, length)?)?;
    }
    Ok(false)
}

/// Reads a content at its location.
fn read_content(file: &File, at: u64, length: u32) -> io::Result<Vec<u8>> {
    let mut packed = vec![0; length as usize];
    file.read_exact_at(&mut packed, at)?;
    Ok(packed)
}

/// Passes the digest, offset and length of each content after an offset to `add`. Returns the end
/// of the last complete record.
fn read_records(file: &File, from: u64, mut add: impl FnMut(Digest, u64, u32)) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let mut reader = BufReader::with_capacity(256 << 10, file);
    reader.seek(SeekFrom::Start(from))?;
    let mut end = from;
    let mut header = [0; HEADER_BYTES];
    while end + HEADER_BYTES as u64 <= length {
        reader.read_exact(&mut header)?;
        let Some((digest, size)) = parse_header(&header) else {
            break;
        };
        let at = end + HEADER_BYTES as u64;
        if at + u64::from(size) > length {
            break;
        }
        reader.seek_relative(i64::from(size))?;
        add(digest, at, size);
        end = at + u64::from(size);
    }
    Ok(end)
}

/// Returns the digest and the length of the content of a record.
fn parse_header(header: &[u8; HEADER_BYTES]) -> Option<(Digest, u32)> {
    let rest = header.strip_prefix(&[RECORD_MARK])?;
    let (digest, size) = rest.split_first_chunk::<DIGEST_BYTES>()?;
    Some((*digest, u32::from_be_bytes(size.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::objects::Objects;

    const COUNT: usize = MIN_OBJECTS_BEFORE_PACKS + 100;

    fn open(dir: &Path) -> Objects {
        Objects::new(dir.join("objects"), dir.join("packs"))
    }

    fn content(n: usize) -> Vec<u8> {
        format!("content {n}\n").repeat(n % 600).into_bytes()
    }

    /// Stores [`COUNT`] contents. Returns their names.
    fn fill(objects: &Objects) -> Vec<String> {
        (0..COUNT)
            .map(|n| objects.put(&content(n)).unwrap())
            .collect()
    }

    fn pack_of(dir: &Path) -> PathBuf {
        let packs = names(&dir.join("packs"));
        assert_eq!(packs.len(), 1, "{packs:?}");
        dir.join("packs").join(&packs[0])
    }

    /// Returns the numbers of the contents of [`fill`] that are present and intact.
    fn intact(objects: &Objects, names: &[String]) -> Vec<usize> {
        (0..COUNT)
            .filter(|n| objects.get(&names[*n]) == Ok(content(*n)))
            .collect()
    }

    /// Makes the last use of a pack forty days older. Returns a time soon after its last use.
    fn make_older(path: &Path) -> SystemTime {
        let old =
            fs::metadata(path).unwrap().modified().unwrap() - Duration::from_secs(40 * 24 * 3600);
        File::open(path).unwrap().set_modified(old).unwrap();
        old + Duration::from_secs(24 * 3600)
    }

    #[test]
    fn contents_are_shared_between_processes() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path());
        let other = open(dir.path());
        let names = fill(&first);
        let files = fs::read_dir(dir.path().join("objects")).unwrap().count();
        assert!(files <= MIN_OBJECTS_BEFORE_PACKS, "{files}");
        assert_eq!(intact(&first, &names).len(), COUNT);
        assert_eq!(intact(&other, &names).len(), COUNT);
        // An object that is added later is found, and one in a pack is not stored again.
        let late = first.put(b"late").unwrap();
        assert_eq!(other.get(&late).as_deref(), Ok(&b"late"[..]));
        assert_eq!(fill(&first), names);
        let length = fs::metadata(pack_of(dir.path())).unwrap().len();
        assert_eq!(fill(&first), names);
        assert_eq!(fs::metadata(pack_of(dir.path())).unwrap().len(), length);
        // A large content has its own file.
        let large: Vec<u8> = (0..1_000_000_u32)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        let large = first.put(&large).unwrap();
        assert!(other.has(&large));
        assert_eq!(fs::metadata(pack_of(dir.path())).unwrap().len(), length);
    }

    #[test]
    fn incomplete_record_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let names = fill(&open(dir.path()));
        let pack = File::options()
            .append(true)
            .open(pack_of(dir.path()))
            .unwrap();
        let length = pack.metadata().unwrap().len();
        let all: Vec<usize> = (0..COUNT).collect();
        for rest in [&b"P"[..], &[0; 100], b"not a record"] {
            pack.set_len(length).unwrap();
            (&pack).write_all(rest).unwrap();
            assert_eq!(intact(&open(dir.path()), &names), all);
        }
        pack.set_len(length - 1).unwrap();
        assert_eq!(intact(&open(dir.path()), &names), all[..COUNT - 1]);
    }

    #[test]
    fn damaged_content_is_not_returned() {
        let dir = tempfile::tempdir().unwrap();
        let names = fill(&open(dir.path()));
        let path = pack_of(dir.path());
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(intact(&open(dir.path()), &names).len(), COUNT - 1);
    }

    #[test]
    fn unused_pack_is_removed_except_wanted_contents() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path());
        let names = fill(&first);
        let path = pack_of(dir.path());
        let other = open(dir.path());
        let wanted = names[COUNT - 1].clone();
        let limit = make_older(&path);
        other.clean(limit, |name| name == wanted);
        assert!(path.exists(), "its process appends to it");
        drop(first);
        other.clean(limit - Duration::from_secs(10 * 24 * 3600), |_| false);
        assert!(path.exists(), "it was used after the limit");
        assert!(other.has(&wanted));
        other.mark_used(&wanted);
        other.clean(limit, |_| false);
        assert!(path.exists(), "one of its contents was used");
        make_older(&path);
        other.clean(limit, |name| name == wanted);
        assert!(!path.exists());
        assert_eq!(other.get(&wanted), Ok(content(COUNT - 1)));
        assert!(!other.has(&names[COUNT - 2]));
        // A process that knew the pack stores its contents again.
        assert_eq!(fill(&other), names);
        assert_eq!(intact(&open(dir.path()), &names).len(), COUNT);
    }

    #[test]
    fn content_in_two_packs_outlives_one() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path());
        let other = open(dir.path());
        let names = fill(&first);
        let path = pack_of(dir.path());
        fill(&other);
        let reader = open(dir.path());
        assert_eq!(intact(&reader, &names).len(), COUNT);
        drop(first);
        let limit = make_older(&path);
        reader.clean(limit, |_| false);
        assert!(!path.exists());
        assert_eq!(intact(&reader, &names).len(), COUNT);
        assert_eq!(intact(&other, &names).len(), COUNT);
    }

    #[test]
    fn mostly_wanted_pack_stays() {
        let dir = tempfile::tempdir().unwrap();
        let names = fill(&open(dir.path()));
        let path = pack_of(dir.path());
        let limit = make_older(&path);
        let other = open(dir.path());
        other.clean(limit, |_| true);
        assert!(path.exists());
        assert_eq!(intact(&other, &names).len(), COUNT);
        assert!(
            fs::metadata(&path).unwrap().modified().unwrap() > limit,
            "it is looked at again when it is as old again"
        );
    }

    /// Checks that an object that was reported as stored is available, whatever another process
    /// does at the same moment.
    #[test]
    fn stored_content_survives_concurrent_cleaning() {
        let dir = tempfile::tempdir().unwrap();
        let names = fill(&open(dir.path()));
        let path = pack_of(dir.path());
        let first = open(dir.path());
        let other = open(dir.path());
        let limit = make_older(&path);
        let over = std::sync::atomic::AtomicBool::new(false);
        let last = content(COUNT - 1);
        let lost = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    other.clean(limit, |_| false);
                }
            });
            let round = |_: &u32| {
                if let Ok(file) = File::open(&path) {
                    file.set_modified(limit - Duration::from_secs(60)).unwrap();
                }
                first.put(&last).is_err() || first.get(&names[COUNT - 1]).is_err()
            };
            let lost = (0..1_000).filter(round).count();
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            lost
        });
        assert_eq!(lost, 0);
    }

    #[test]
    fn failed_append_leaves_pack_unchanged() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let mut own = OwnPack {
            file,
            name: Path::new("own").into(),
            length: 7,
        };
        assert!(own.append(b"record").is_err());
        assert_eq!(own.length, 7);
    }

    #[test]
    fn pack_renamed_by_killed_process_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let names = fill(&open(dir.path()));
        let path = pack_of(dir.path());
        let aside = path.with_file_name(format!(".going-{}", path.file_name().unwrap().display()));
        let limit =
            fs::metadata(&path).unwrap().modified().unwrap() - Duration::from_secs(24 * 3600);
        fs::rename(&path, &aside).unwrap();
        let other = open(dir.path());
        assert_eq!(intact(&other, &names).len(), COUNT);
        other.clean(limit, |_| false);
        assert!(path.exists() && !aside.exists(), "it was used lately");
    }
}
