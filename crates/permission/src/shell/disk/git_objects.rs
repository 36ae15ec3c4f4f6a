//! Reads commits and trees of a repository without git, to find the files in which two of them
//! differ.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gix_hash::ObjectId;
use gix_object::{Find as _, Kind};
use gix_odb::Store;
use gix_odb::store::{self, Handle};

use base::git;

/// The maximum number of directories in commits that are read for one command.
const MAX_TREES: usize = 4_096;
/// The maximum size of an object in memory, in bytes.
const MAX_OBJECT_BYTES: usize = 16 << 20;
/// The maximum number of commits between the present one and the first one of a repository.
const MAX_HISTORY: usize = 4_096;
/// The maximum length of a chain of references.
const MAX_REFERENCES: usize = 5;

/// The reason why the objects shown by a git command are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectUnreadable {
    /// A word names no revision known here.
    Revision,
    /// An object is missing or damaged.
    Object,
    /// There are more objects than are read for one command.
    TooMuch,
}

type Read<T> = Result<T, ObjectUnreadable>;

/// The objects of a repository, for one command.
pub(super) struct CommitReader {
    handle: Handle<Arc<Store>>,
    /// The directories of its own references, and of those shared by all its working trees.
    dirs: Vec<PathBuf>,
    /// Commits of a shallow clone whose parents are missing: git treats them as root commits.
    shallow: HashSet<ObjectId>,
    trees: usize,
}

/// Returns the id of the first commit of a working tree's repository, along first parents. `None`
/// if there is no commit, or the history is long, incomplete or damaged. Blocks on file access.
pub fn root_commit(top: &Path) -> Option<String> {
    let reader = CommitReader::open(top).ok()?;
    let mut id = reader.peeled(reader.resolve("HEAD").ok()?).ok()?;
    for _ in 0..MAX_HISTORY {
        if reader.shallow.contains(&id) {
            return None;
        }
        match reader.commit(id).ok()?.parents.first() {
            Some(parent) => id = *parent,
            None => return Some(id.to_string()),
        }
    }
    None
}

/// The parts of a commit that determine its changes.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) tree: ObjectId,
    pub(super) parents: Vec<ObjectId>,
}

/// An entry of a tree: its name, its object, and `true` if that is a tree.
type TreeEntry = (Vec<u8>, ObjectId, bool);

impl CommitReader {
    /// Opens the objects of a working tree's repository. Without a directory of objects git does
    /// not recognise it.
    pub(super) fn open(top: &Path) -> Read<Self> {
        let dirs = git::dirs(top);
        let options = store::init::Options {
            // Otherwise the library would read the current directory.
            current_dir: Some(top.to_owned()),
            alloc_limit_bytes: Some(MAX_OBJECT_BYTES),
            ..Default::default()
        };
        let common = dirs.last().ok_or(ObjectUnreadable::Revision)?;
        let objects = common.join("objects");
        if !objects.is_dir() {
            return Err(ObjectUnreadable::Revision);
        }
        let store = Store::at_opts(
            objects,
            gix_hash::Kind::Sha1,
            &mut std::iter::empty(),
            options,
        )
        .map_err(|_| ObjectUnreadable::Object)?;
        let shallow = base::file::read_regular_text(&common.join("shallow")).unwrap_or_default();
        let shallow = shallow
            .lines()
            .filter_map(|line| ObjectId::from_hex(line.as_bytes()).ok())
            .collect();
        Ok(Self {
            handle: Arc::new(store).to_handle_arc(),
            dirs,
            shallow,
            trees: 0,
        })
    }

    fn object(&self, id: ObjectId) -> Read<(Kind, Vec<u8>)> {
        let mut bytes = Vec::new();
        let kind = self
            .handle
            .try_find(&id, &mut bytes)
            .map_err(|_| ObjectUnreadable::Object)?
            .ok_or(ObjectUnreadable::Object)?
            .kind;
        Ok((kind, bytes))
    }

    pub(super) fn kind(&self, id: ObjectId) -> Read<Kind> {
        Ok(self.object(id)?.0)
    }

    pub(super) fn commit(&self, id: ObjectId) -> Read<Commit> {
        let (Kind::Commit, bytes) = self.object(id)? else {
            return Err(ObjectUnreadable::Object);
        };
        let head = bytes
            .split(|byte| *byte == b'\n')
            .take_while(|line| !line.is_empty());
        let mut tree = None;
        let mut parents = vec![];
        for line in head {
            if let Some(hex) = line.strip_prefix(b"tree ") {
                tree = ObjectId::from_hex(hex).ok();
            } else if let Some(hex) = line.strip_prefix(b"parent ") {
                parents.push(ObjectId::from_hex(hex).map_err(|_| ObjectUnreadable::Object)?);
            }
        }
        if self.shallow.contains(&id) {
            parents.clear();
        }
        Ok(Commit {
            tree: tree.ok_or(ObjectUnreadable::Object)?,
            parents,
        })
    }

    /// Follows tags to their objects, and commits to their trees.
    pub(super) fn tree_of(&self, mut id: ObjectId) -> Read<ObjectId> {
        for _ in 0..MAX_REFERENCES {
            match self.object(id)? {
                (Kind::Tree, _) => return Ok(id),
                (Kind::Commit, _) => return Ok(self.commit(id)?.tree),
                (Kind::Tag, bytes) => id = target(&bytes)?,
                (Kind::Blob, _) => return Err(ObjectUnreadable::Object),
            }
        }
        Err(ObjectUnreadable::Object)
    }

    fn tree(&mut self, id: ObjectId) -> Read<Vec<TreeEntry>> {
        self.trees += 1;
        if self.trees > MAX_TREES {
            return Err(ObjectUnreadable::TooMuch);
        }
        let (Kind::Tree, bytes) = self.object(id)? else {
            return Err(ObjectUnreadable::Object);
        };
        let mut rest = bytes.as_slice();
        let mut entries = vec![];
        while !rest.is_empty() {
            let end = rest
                .iter()
                .position(|byte| *byte == 0)
                .ok_or(ObjectUnreadable::Object)?;
            let head = &rest[..end];
            let behind = &rest[end + 1..];
            let blank = head
                .iter()
                .position(|byte| *byte == b' ')
                .ok_or(ObjectUnreadable::Object)?;
            let id = behind
                .get(..20)
                .and_then(|id| ObjectId::try_from(id).ok())
                .ok_or(ObjectUnreadable::Object)?;
            entries.push((
                head[blank + 1..].to_vec(),
                id,
                head[..blank].ends_with(b"40000"),
            ));
            rest = &behind[20..];
        }
        Ok(entries)
    }

    /// Returns the first wanted file in which two trees differ; without a second tree, the first
    /// wanted file.
    pub(super) fn differing(
        &mut self,
        one: Option<ObjectId>,
        other: Option<ObjectId>,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Read<Option<String>> {
        let mut ahead = VecDeque::from([(String::new(), one, other)]);
        while let Some((dir, one, other)) = ahead.pop_front() {
            if one == other {
                continue;
            }
            let left = one.map_or(Ok(vec![]), |id| self.tree(id))?;
            let right = other.map_or(Ok(vec![]), |id| self.tree(id))?;
            let mut seen = HashSet::new();
            let left = by_name(&left);
            let right = by_name(&right);
            for name in left.keys().chain(right.keys()) {
                let before = left.get(name).copied();
                let after = right.get(name).copied();
                if before == after || !seen.insert(*name) {
                    continue;
                }
                let path = format!("{dir}{}", String::from_utf8_lossy(name));
                if (is_file(before) || is_file(after)) && wanted(&path) {
                    return Ok(Some(path));
                }
                if tree_id(before).is_some() || tree_id(after).is_some() {
                    ahead.push_back((format!("{path}/"), tree_id(before), tree_id(after)));
                }
            }
        }
        Ok(None)
    }

    /// Returns the id of a file in a tree.
    pub(super) fn at(&mut self, tree: ObjectId, path: &str) -> Read<Option<ObjectId>> {
        let mut id = tree;
        let mut is_tree = true;
        for part in path.split('/') {
            if !is_tree {
                return Ok(None);
            }
            let found = self
                .tree(id)?
                .into_iter()
                .find(|(name, ..)| name == part.as_bytes());
            let Some((_, next, tree)) = found else {
                return Ok(None);
            };
            id = next;
            is_tree = tree;
        }
        Ok((!is_tree).then_some(id))
    }

    /// Resolves a revision: a reference, an id or its prefix, with suffixes such as `~2`, `^`,
    /// `^2`, `@{1}`.
    pub(super) fn resolve(&self, revision: &str) -> Read<ObjectId> {
        // `@` alone is `HEAD`.
        let from = usize::from(revision.starts_with('@') && !revision.starts_with("@{"));
        let end = revision[from..]
            .find(['~', '^', '@'])
            .map(|at| at + from)
            .filter(|at| *at > 0);
        let end = end.unwrap_or(revision.len());
        let (name, mut rest) = revision.split_at(end);
        let (name, log) = match rest
            .strip_prefix("@{")
            .and_then(|rest| rest.split_once('}'))
        {
            Some((number, behind)) => {
                rest = behind;
                (
                    name,
                    Some(
                        number
                            .parse::<usize>()
                            .map_err(|_| ObjectUnreadable::Revision)?,
                    ),
                )
            }
            None => (name, None),
        };
        let mut id = match log {
            Some(number) => self.logged(name, number)?,
            None => self.named(name)?,
        };
        while !rest.is_empty() {
            let (sign, behind) = rest.split_at(1);
            let digits = behind
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(behind.len());
            let number = if digits == 0 {
                1
            } else {
                behind[..digits]
                    .parse()
                    .map_err(|_| ObjectUnreadable::Revision)?
            };
            rest = &behind[digits..];
            id = match sign {
                "^" if number == 0 => id,
                "^" => *self
                    .commit(self.peeled(id)?)?
                    .parents
                    .get(number - 1)
                    .ok_or(ObjectUnreadable::Revision)?,
                "~" => self.ancestor(id, number)?,
                _ => return Err(ObjectUnreadable::Revision),
            };
        }
        Ok(id)
    }

    fn ancestor(&self, id: ObjectId, number: usize) -> Read<ObjectId> {
        let mut id = self.peeled(id)?;
        for _ in 0..number.min(MAX_TREES) {
            id = *self
                .commit(id)?
                .parents
                .first()
                .ok_or(ObjectUnreadable::Revision)?;
        }
        Ok(id)
    }

    /// Follows tags to their objects.
    pub(super) fn peeled(&self, mut id: ObjectId) -> Read<ObjectId> {
        for _ in 0..MAX_REFERENCES {
            match self.object(id)? {
                (Kind::Tag, bytes) => id = target(&bytes)?,
                _ => return Ok(id),
            }
        }
        Err(ObjectUnreadable::Object)
    }

    fn named(&self, name: &str) -> Read<ObjectId> {
        let name = if name == "@" { "HEAD" } else { name };
        if name.split('/').any(|part| part == "..") {
            return Err(ObjectUnreadable::Revision);
        }
        for prefix in ["", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/"] {
            if let Some(id) = self.reference(&format!("{prefix}{name}"), MAX_REFERENCES) {
                return Ok(id);
            }
        }
        if let Some(id) = self.reference(&format!("refs/remotes/{name}/HEAD"), MAX_REFERENCES) {
            return Ok(id);
        }
        if let Ok(id) = ObjectId::from_hex(name.as_bytes()) {
            return Ok(id);
        }
        let prefix = gix_hash::Prefix::from_hex(name).map_err(|_| ObjectUnreadable::Revision)?;
        self.handle
            .lookup_prefix(prefix, None)
            .ok()
            .flatten()
            .and_then(Result::ok)
            .ok_or(ObjectUnreadable::Revision)
    }

    fn reference(&self, name: &str, depth: usize) -> Option<ObjectId> {
        let depth = depth.checked_sub(1)?;
        let loose = self
            .dirs
            .iter()
            .find_map(|dir| base::file::read_regular_text(&dir.join(name)).ok());
        if let Some(text) = loose {
            return match text.strip_prefix("ref: ") {
                Some(other) => self.reference(other.trim_end(), depth),
                None => ObjectId::from_hex(text.trim_end().as_bytes()).ok(),
            };
        }
        let packed = base::file::read_regular_text(&self.dirs.last()?.join("packed-refs")).ok()?;
        let line = packed
            .lines()
            .find(|line| line.split_once(' ').is_some_and(|(_, known)| known == name))?;
        ObjectId::from_hex(line.split_once(' ')?.0.as_bytes()).ok()
    }

    /// Returns the objects that all references name, and that they named before as far as the logs
    /// show.
    pub(super) fn everything(&self) -> Read<Vec<ObjectId>> {
        if self.dirs.iter().any(|dir| dir.join("reftable").exists()) {
            return Err(ObjectUnreadable::Object);
        }
        let mut found = vec![];
        let mut ahead: Vec<PathBuf> = self
            .dirs
            .iter()
            .flat_map(|dir| [dir.join("refs"), dir.join("logs")])
            .collect();
        let mut looked = 0;
        while let Some(path) = ahead.pop() {
            looked += 1;
            if looked > MAX_TREES {
                return Err(ObjectUnreadable::TooMuch);
            }
            if path.is_dir() {
                let entries = std::fs::read_dir(&path).map_err(|_| ObjectUnreadable::Object)?;
                ahead.extend(entries.flatten().map(|entry| entry.path()));
            } else if path.is_file() {
                found.extend(ids_in(
                    &base::file::read_regular_text(&path).map_err(|_| ObjectUnreadable::Object)?,
                ));
            }
        }
        for dir in &self.dirs {
            for name in ["HEAD", "packed-refs"] {
                found.extend(ids_in(
                    &base::file::read_regular_text(&dir.join(name)).unwrap_or_default(),
                ));
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Returns the object that a reference named a number of changes ago.
    fn logged(&self, name: &str, number: usize) -> Read<ObjectId> {
        let name = if name.is_empty() || name == "@" {
            "HEAD"
        } else {
            name
        };
        let logs = ["", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/"]
            .map(|prefix| format!("logs/{prefix}{name}"));
        let mut files = logs
            .iter()
            .flat_map(|log| self.dirs.iter().map(move |dir| dir.join(log)));
        let text = files
            .find_map(|file| base::file::read_regular_text(&file).ok())
            .ok_or(ObjectUnreadable::Revision)?;
        let line = text
            .lines()
            .rev()
            .nth(number)
            .ok_or(ObjectUnreadable::Revision)?;
        let id = line.split(' ').nth(1).ok_or(ObjectUnreadable::Revision)?;
        ObjectId::from_hex(id.as_bytes()).map_err(|_| ObjectUnreadable::Revision)
    }
}

fn is_file(entry: Option<(ObjectId, bool)>) -> bool {
    entry.is_some_and(|(_, is_tree)| !is_tree)
}

fn tree_id(entry: Option<(ObjectId, bool)>) -> Option<ObjectId> {
    entry.filter(|(_, is_tree)| *is_tree).map(|(id, _)| id)
}

/// Returns the ids at the beginnings of lines, without the null id; in a reference log, the ids
/// before and after each change.
fn ids_in(text: &str) -> Vec<ObjectId> {
    let words = text
        .lines()
        .flat_map(|line| line.trim_start_matches('^').split(' ').take(2));
    words
        .filter_map(|word| ObjectId::from_hex(word.as_bytes()).ok())
        .filter(|id| !id.is_null())
        .collect()
}

/// Returns the entries of a tree by name.
fn by_name(entries: &[TreeEntry]) -> BTreeMap<&[u8], (ObjectId, bool)> {
    entries
        .iter()
        .map(|(name, id, is_tree)| (name.as_slice(), (*id, *is_tree)))
        .collect()
}

/// Returns the object of a tag.
fn target(tag: &[u8]) -> Read<ObjectId> {
    let line = tag.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let id = line
        .strip_prefix(b"object ")
        .and_then(|hex| ObjectId::from_hex(hex).ok());
    id.ok_or(ObjectUnreadable::Object)
}
