//! Contents that git already stores, so that they need not be stored twice.
//!
//! If the index of a work tree states that a file is equal to a blob, and nothing may convert
//! between the two (a filter, another encoding), the file is identified by its blob id without
//! being opened. When it changes, its old content is copied from git into the store, so that an
//! undo never depends on git. Nothing is written to the repository, and no program is started.
//!
//! A blob is used only while it is in a pack: packs stay mapped, so that they remain readable
//! here even if a command removes the whole repository. On a network file system that holds only
//! for this machine, so contents of such a repository are stored like all others.

use std::collections::HashMap;
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
use base::file::is_on_network;
use base::git;
use base::lock::lock;

/// Two ticks of the coarsest clock of file systems, in nanoseconds. A file that changed in the same
/// tick in which the index was written may look unchanged, so such entries do not count.
const CLOCK_TICK_NANOS: i128 = 20_000_000;

/// The size of the largest attributes file that is read, in bytes.
const MAX_ATTRIBUTES_BYTES: u64 = 1 << 20;

/// The memory limit for reading one object, in bytes. It covers delta bases as well.
const MAX_OBJECT_BYTES: usize = 64 << 20;

/// The object database of a repository.
pub(super) struct GitObjects {
    store: Arc<Store>,
    /// A handle that keeps every used pack mapped. A leaf lock.
    own: Mutex<Handle<Arc<Store>>>,
}

impl std::fmt::Debug for GitObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GitObjects")
            .field(&self.store.path())
            .finish()
    }
}

/// Access to the object database for one thread.
pub(super) struct ObjectLookup(Handle<Arc<Store>>);

impl GitObjects {
    /// Opens the objects of the work tree at `root`. Returns `None` if it is not a work tree of
    /// git, its object ids are SHA-256, or its objects, or those that it borrows from another
    /// repository, are on a network file system.
    pub(super) fn open(root: &Path) -> Option<Self> {
        let objects = git::dirs(root).last()?.join("objects");
        let borrowed = gix_odb::alternate::resolve(objects.clone(), root).ok()?;
        if is_on_network(&objects) || borrowed.iter().any(|dir| is_on_network(dir)) {
            return None;
        }
        // Without `current_dir`, the library would ask the system for it. All contents that count
        // are smaller than the limit.
        let options = store::init::Options {
            current_dir: Some(root.to_owned()),
            alloc_limit_bytes: Some(MAX_OBJECT_BYTES),
            ..Default::default()
        };
        let store = Store::at_opts(
            objects,
            gix_hash::Kind::Sha1,
            &mut std::iter::empty(),
            options,
        )
        .ok()?;
        let store = Arc::new(store);
        let mut own = store.to_handle_arc();
        own.prevent_pack_unload();
        own.refresh_never();
        Some(Self {
            store,
            own: Mutex::new(own),
        })
    }

    /// Returns access for a further thread.
    pub(super) fn lookup(&self) -> ObjectLookup {
        let mut handle = self.store.to_handle_arc();
        handle.prevent_pack_unload();
        handle.refresh_never();
        ObjectLookup(handle)
    }

    /// Returns a blob by its id, or `None` if it is not found or its content does not have this id.
    pub(super) fn content(&self, name: &str) -> Option<Vec<u8>> {
        let id = ObjectId::from_hex(name.as_bytes()).ok()?;
        let mut bytes = Vec::new();
        let found = lock(&self.own).try_find(&id, &mut bytes).ok()??;
        (found.kind == Kind::Blob).then_some(())?;
        (blob_name(&bytes) == name).then_some(bytes)
    }
}

impl ObjectLookup {
    /// Returns whether a blob of this size is in a pack.
    pub(super) fn has_blob(&self, name: &str, size: u64) -> bool {
        let Ok(id) = ObjectId::from_hex(name.as_bytes()) else {
            return false;
        };
        match self.0.try_header(&id) {
            Ok(Some(header @ Header::Packed(_))) => {
                header.kind() == Kind::Blob && header.size() == size
            }
            _ => false,
        }
    }
}

/// Files in the index of a work tree, with their stamps and blob ids.
#[derive(Debug, Default)]
pub(super) struct GitIndex(HashMap<String, (FileStamp, String)>);

impl GitIndex {
    /// Reads the index. Returns an empty one if its data may be wrong. `lists` are the attributes
    /// files of the project.
    pub(super) fn read(root: &Path, lists: &[PathBuf]) -> Self {
        let dirs = git::dirs(root);
        let Some(own) = dirs.first() else {
            return Self::default();
        };
        let further = dirs.iter().map(|dir| dir.join("info/attributes"));
        if lists
            .iter()
            .cloned()
            .chain(further)
            .any(|list| changes_contents(&list))
        {
            return Self::default();
        }
        let Some(index_time) = FileStamp::at(&own.join("index")).map(|stamp| stamp.modified) else {
            return Self::default();
        };
        let mut files = HashMap::new();
        let is_complete = git::index(own, 20, &mut |entry| {
            let Ok(path) = std::str::from_utf8(entry.path) else {
                return;
            };
            let is_older = entry.modified < index_time - CLOCK_TICK_NANOS
                && entry.changed < index_time - CLOCK_TICK_NANOS;
            if entry.plain && is_older {
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
        if is_complete {
            Self(files)
        } else {
            Self::default()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the blob id of a file, if the file matches the index.
    pub(super) fn unchanged(&self, path: &str, stamp: &FileStamp) -> Option<&str> {
        const LOWER: u64 = 0xffff_ffff;
        const KIND: u32 = 0o170_000;
        let (indexed, id) = self.0.get(path)?;
        let is_same = indexed.modified == stamp.modified
            && indexed.changed == stamp.changed
            && indexed.size == stamp.size
            && indexed.inode == stamp.inode & LOWER
            && indexed.mode & KIND == stamp.mode & KIND;
        is_same.then_some(id)
    }
}

/// Returns whether an attributes file names a filter or another encoding, or cannot be read. Line
/// endings and `ident` change the size of a file, which is compared.
fn changes_contents(list: &Path) -> bool {
    match base::file::read_small(list, MAX_ATTRIBUTES_BYTES) {
        Ok(text) => ["filter", "working-tree-encoding"]
            .iter()
            .any(|word| memchr::memmem::find(&text, word.as_bytes()).is_some()),
        Err(e) => e.kind() != std::io::ErrorKind::NotFound,
    }
}
