//! Contents that git keeps anyway, so that they need not be kept twice.
//!
//! Where the index of a work tree says that a file is what git stored, and nothing may stand between
//! the two (a filter, another encoding), the file is known without being opened, by the name of its
//! blob. When it changes, its content is taken from git and kept with the others: only then, so that
//! undo never depends on what git still has. Nothing is written, and no program is started.
//!
//! A content counts only while it lies in a pack: packs stay mapped, so that even a command that
//! removes the whole repository leaves them readable here.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use gix_hash::ObjectId;
use gix_object::{Find as _, Kind};
use gix_odb::Header as _;
use gix_odb::Store;
use gix_odb::find::Header;
use gix_odb::store::{self, Handle};

use super::digest::{blob_name, hex};
use super::file::FileStamp;
use base::git;
use base::lock::locked;

/// A file changed in the same tick as the index was written may look as if it had not: such entries do
/// not count. Two ticks of the coarsest clock file systems use, in nanoseconds.
const TICK: i128 = 20_000_000;

/// The largest list of attributes that is read, in bytes.
const LARGEST_LIST: u64 = 1 << 20;

/// The most memory that one object may want, in bytes: what git compressed against another is as large as that.
const LARGEST_OBJECT: usize = 64 << 20;

pub(super) struct GitObjects {
    store: Arc<Store>,
    /// Keeps every pack mapped that was used once. A leaf lock.
    own: Mutex<Handle<Arc<Store>>>,
}

impl std::fmt::Debug for GitObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GitObjects").field(&self.store.path()).finish()
    }
}

/// What one thread looks objects up with.
pub(super) struct ObjectLookup(Handle<Arc<Store>>);

impl GitObjects {
    /// Those of the work tree at `root`; none where it is no work tree of git, or one that names its contents by
    /// SHA-256.
    pub(super) fn open(root: &Path) -> Option<Self> {
        let objects = git::dirs(root).last()?.join("objects");
        // The current directory would be asked for otherwise. No content that counts is larger than the limit.
        let options = store::init::Options {
            current_dir: Some(root.to_owned()),
            alloc_limit_bytes: Some(LARGEST_OBJECT),
            ..Default::default()
        };
        let store = Store::at_opts(objects, gix_hash::Kind::Sha1, &mut std::iter::empty(), options).ok()?;
        let store = Arc::new(store);
        let mut own = store.to_handle_arc();
        own.prevent_pack_unload();
        own.refresh_never();
        Some(Self { store, own: Mutex::new(own) })
    }

    pub(super) fn lookup(&self) -> ObjectLookup {
        let mut handle = self.store.to_handle_arc();
        handle.prevent_pack_unload();
        handle.refresh_never();
        ObjectLookup(handle)
    }

    /// A content by its name. What git has is not believed: it is what it is called, or it is not there.
    pub(super) fn content(&self, name: &str) -> Option<Vec<u8>> {
        let id = ObjectId::from_hex(name.as_bytes()).ok()?;
        let mut bytes = Vec::new();
        let found = locked(&self.own).try_find(&id, &mut bytes).ok()??;
        (found.kind == Kind::Blob).then_some(())?;
        (blob_name(&bytes) == name).then_some(bytes)
    }
}

impl ObjectLookup {
    /// Whether a content of this size lies in a pack.
    pub(super) fn holds(&self, name: &str, size: u64) -> bool {
        let Ok(id) = ObjectId::from_hex(name.as_bytes()) else { return false };
        match self.0.try_header(&id) {
            Ok(Some(header @ Header::Packed(_))) => header.kind() == Kind::Blob && header.size() == size,
            _ => false,
        }
    }
}

/// What the index of a work tree says about its files.
#[derive(Debug, Default)]
pub(super) struct GitIndex(HashMap<String, (FileStamp, String)>);

impl GitIndex {
    /// Empty where it says nothing for certain. `lists` are the files of the project that say how git stores others.
    pub(super) fn read(root: &Path, lists: &[PathBuf]) -> Self {
        let dirs = git::dirs(root);
        let Some(own) = dirs.first() else { return Self::default() };
        let further = dirs.iter().map(|dir| dir.join("info/attributes"));
        if lists.iter().cloned().chain(further).any(|list| changes_contents(&list)) {
            return Self::default();
        }
        let Some(written) = FileStamp::at(&own.join("index")).map(|stamp| stamp.modified) else {
            return Self::default();
        };
        let mut files = HashMap::new();
        let whole = git::index(own, 20, &mut |entry| {
            let Ok(path) = std::str::from_utf8(entry.path) else { return };
            if entry.plain && entry.modified < written - TICK && entry.changed < written - TICK {
                let stamp = FileStamp {
                    size: entry.size.into(),
                    modified: entry.modified,
                    changed: entry.changed,
                    inode: entry.inode.into(),
                    mode: entry.mode,
                };
                files.insert(path.to_owned(), (stamp, hex(entry.id)));
            }
        });
        if whole { Self(files) } else { Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of a file's content, where the file is what the index remembers.
    pub(super) fn unchanged(&self, path: &str, now: &FileStamp) -> Option<&str> {
        const LOWER: u64 = 0xffff_ffff;
        const KIND: u32 = 0o170_000;
        let (then, name) = self.0.get(path)?;
        let same = then.modified == now.modified
            && then.changed == now.changed
            && then.size == now.size
            && then.inode == now.inode & LOWER
            && then.mode & KIND == now.mode & KIND;
        same.then_some(name)
    }
}

/// Whether a list of attributes names a filter or another encoding. Line ends and `ident` change a content's size,
/// which is compared. One that cannot be read may say anything.
fn changes_contents(list: &Path) -> bool {
    match fs::metadata(list) {
        // A pipe would have to be waited for.
        Ok(data) if !data.is_file() || data.len() > LARGEST_LIST => true,
        Ok(_) => fs::read(list).map_or(true, |text| {
            ["filter", "working-tree-encoding"]
                .iter()
                .any(|word| memchr::memmem::find(&text, word.as_bytes()).is_some())
        }),
        Err(e) => e.kind() != std::io::ErrorKind::NotFound,
    }
}
