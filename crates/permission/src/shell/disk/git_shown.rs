//! The files with secrets that a git command shows: those in the index, in a commit, or in the
//! difference of two commits.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gix_hash::ObjectId;
use gix_object::Kind;

use super::Disk;
use super::git_objects::{CommitReader, ObjectUnreadable};
use crate::protected;
use base::git;

/// The maximum number of commits whose changes are read for one command.
const MAX_COMMITS: usize = 500;

/// The maximum size of a file whose content is compared with git's, in bytes.
const MAX_SECRET_BYTES: u64 = 1 << 20;

/// A set of files that a git command shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShownFiles {
    /// Files in the index.
    Tracked,
    /// Differences between the index and the working tree.
    Unstaged,
    /// Differences between a commit and the index.
    Staged(String),
    /// Differences between a commit and the working tree.
    Since(String),
    /// Differences between two commits.
    Between(String, String),
    /// Changes of the second commit since its merge base with the first.
    SinceMergeBase(String, String),
    /// Changes of a commit, or a blob.
    Change(String),
    /// Changes of the commits reachable from the first list but not from the second, up to a number
    /// of commits.
    History(Vec<String>, Vec<String>, Option<usize>),
    /// All files of a commit.
    Tree(String),
    /// Changes of all commits that references name or named before.
    Everything,
    /// Changes of an unknown commit: any of them.
    Unknown,
}

/// A file with secrets that is in the index.
#[derive(Debug)]
pub(super) struct TrackedSecret {
    path: String,
    id: ObjectId,
    /// The content in the working tree may differ.
    may_have_changed: bool,
}

impl TrackedSecret {
    /// Returns the secret of an index entry, if it is one. It is assumed to have changed.
    fn of(entry: &git::IndexEntry<'_>) -> Option<Self> {
        let path = String::from_utf8_lossy(entry.path);
        let id = ObjectId::try_from(entry.id).ok()?;
        protected::secret(Path::new(&*path)).then(|| Self {
            path: path.into_owned(),
            id,
            may_have_changed: true,
        })
    }
}

/// The tracked secrets of working trees, by their top directories; `None` if the index cannot be
/// read.
pub(super) type TrackedSecrets = HashMap<PathBuf, Option<Rc<[TrackedSecret]>>>;

/// The reason why the files that a command shows are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotKnown {
    /// The index exists but cannot be read: its format is unknown, or it is too large.
    Index,
    /// There are more commits than are read, or objects that cannot be read.
    History,
}

impl Disk<'_> {
    /// Returns the top of the working tree that git would work in.
    pub(in crate::shell) fn work_tree(&mut self, cwd: &Path) -> Option<PathBuf> {
        self.repository(cwd).top.clone()
    }

    /// Returns the first shown file with secrets, among those whose paths below `top` are `wanted`.
    /// If a word names no commit, git fails, and the files in the index count.
    ///
    /// # Errors
    /// The shown files are unknown because the index or the commits cannot be read.
    pub(in crate::shell) fn secret_shown(
        &mut self,
        top: &Path,
        shown: &ShownFiles,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Option<String>, NotKnown> {
        let tracked = self.tracked_secrets(top).ok_or(NotKnown::Index)?;
        let mut tracked_here = tracked.iter().filter(|secret| wanted(&secret.path));
        let first = |secret: &TrackedSecret| secret.path.clone();
        match shown {
            ShownFiles::Tracked => return Ok(tracked_here.next().map(first)),
            ShownFiles::Unstaged => {
                return Ok(tracked_here
                    .find(|secret| secret.may_have_changed)
                    .map(first));
            }
            _ => {}
        }
        let is_secret = |path: &str| protected::secret(Path::new(path)) && wanted(path);
        let found = CommitReader::open(top).and_then(|objects| {
            let mut reader = Reader {
                objects,
                tracked: &tracked,
                is_secret: &is_secret,
            };
            reader.shown(shown)
        });
        match (found, shown) {
            (Ok(path), ShownFiles::Unknown) => Ok(tracked_here.next().map(first).or(path)),
            (Ok(path), _) => Ok(path),
            (Err(_), ShownFiles::Unknown) | (Err(ObjectUnreadable::Revision), _) => {
                Ok(tracked_here.next().map(first))
            }
            (Err(ObjectUnreadable::Object | ObjectUnreadable::TooMuch), _) => {
                match tracked_here.next() {
                    Some(secret) => Ok(Some(first(secret))),
                    None => Err(NotKnown::History),
                }
            }
        }
    }

    /// Returns whether a word names a commit or a tree.
    pub(in crate::shell) fn is_revision(&mut self, top: &Path, word: &str) -> bool {
        CommitReader::open(top).is_ok_and(|objects| objects.resolve(word).is_ok())
    }

    fn tracked_secrets(&mut self, top: &Path) -> Option<Rc<[TrackedSecret]>> {
        if let Some(known) = self.tracked.get(top) {
            return known.clone();
        }
        let found = tracked_secrets(top).map(Rc::from);
        self.tracked.insert(top.to_owned(), found.clone());
        found
    }
}

/// Returns the files with secrets in the index, or `None` if there is an index that cannot be read.
fn tracked_secrets(top: &Path) -> Option<Vec<TrackedSecret>> {
    let dirs = git::dirs(top);
    let dir = dirs.first()?;
    let mut found = vec![];
    let is_whole = git::index(dir, 20, &mut |entry| {
        if let Some(secret) = TrackedSecret::of(&entry) {
            let changed = !entry.plain || is_changed(&top.join(&secret.path), &entry);
            found.push(TrackedSecret {
                may_have_changed: changed,
                ..secret
            });
        }
    });
    // Before the first `git add` there is no index.
    let is_absent = || {
        dir.join("index")
            .symlink_metadata()
            .is_err_and(|e| e.kind() == ErrorKind::NotFound)
    };
    if is_whole || is_absent() {
        return Some(found);
    }
    found.clear();
    let is_split = git::read_split_index(dir, 20, &mut |entry| {
        if let Some(secret) = TrackedSecret::of(&entry) {
            // Its present id is in the other part of the split index, so it counts as different
            // from every commit.
            found.push(TrackedSecret {
                id: ObjectId::null(gix_hash::Kind::Sha1),
                path: secret.path.clone(),
                may_have_changed: true,
            });
            found.push(secret);
        }
    });
    is_split.then_some(found)
}

/// Returns whether a file differs from the index, by its times and size, or otherwise by its
/// content.
fn is_changed(path: &Path, entry: &git::IndexEntry<'_>) -> bool {
    const LOWER: u64 = 0xffff_ffff;
    let Ok(file) = std::fs::symlink_metadata(path) else {
        return true;
    };
    let has_same_metadata = file.len() & LOWER == u64::from(entry.size)
        && nanoseconds(file.mtime(), file.mtime_nsec()) == entry.modified
        && nanoseconds(file.ctime(), file.ctime_nsec()) == entry.changed;
    if has_same_metadata {
        return false;
    }
    if !file.is_file() || file.len() > MAX_SECRET_BYTES {
        return true;
    }
    let Ok(content) = base::file::read_small(path, MAX_SECRET_BYTES) else {
        return true;
    };
    let id = gix_object::compute_hash(gix_hash::Kind::Sha1, Kind::Blob, &content).ok();
    id.is_none_or(|id| id.as_slice() != entry.id)
}

fn nanoseconds(seconds: i64, rest: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(rest)
}

/// Reads commits for one command.
struct Reader<'r> {
    objects: CommitReader,
    tracked: &'r [TrackedSecret],
    is_secret: &'r dyn Fn(&str) -> bool,
}

impl Reader<'_> {
    fn shown(&mut self, shown: &ShownFiles) -> Result<Option<String>, ObjectUnreadable> {
        match shown {
            ShownFiles::Tracked | ShownFiles::Unstaged => Ok(None),
            ShownFiles::Staged(revision) => self.staged(revision, false),
            ShownFiles::Since(revision) => self.staged(revision, true),
            ShownFiles::Tree(revision) => {
                let tree = self.tree(revision)?;
                self.objects.differing(Some(tree), None, self.is_secret)
            }
            ShownFiles::Between(one, other) => {
                let one = self.tree(one)?;
                let other = self.tree(other)?;
                self.objects
                    .differing(Some(one), Some(other), self.is_secret)
            }
            // Only the changes of the second one since the merge base.
            ShownFiles::SinceMergeBase(one, other) => {
                let left_out = self.reached(std::slice::from_ref(one), MAX_COMMITS * 4)?;
                let from = self.ids(std::slice::from_ref(other))?;
                self.history(from, &left_out, None)
            }
            ShownFiles::Change(revision) => self.secret_in_change(revision),
            ShownFiles::History(from, without, max_commits) => {
                let from = self.ids(from)?;
                let left_out = self.reached(without, MAX_COMMITS * 4)?;
                self.history(from, &left_out, *max_commits)
            }
            ShownFiles::Everything | ShownFiles::Unknown => {
                let all = self.objects.everything()?;
                let commits = all
                    .into_iter()
                    .filter_map(|id| self.objects.peeled(id).ok());
                let commits = commits
                    .filter(|id| matches!(self.objects.kind(*id), Ok(Kind::Commit)))
                    .collect();
                self.history(commits, &HashSet::new(), None)
            }
        }
    }

    fn tree(&self, revision: &str) -> Result<ObjectId, ObjectUnreadable> {
        self.objects.tree_of(self.objects.resolve(revision)?)
    }

    /// Returns a file that differs between a commit and the index or, with `work_tree`, the working
    /// tree.
    fn staged(
        &mut self,
        revision: &str,
        work_tree: bool,
    ) -> Result<Option<String>, ObjectUnreadable> {
        let tree = match self.tree(revision) {
            Ok(tree) => tree,
            // Before the first commit every file is new.
            Err(_) if revision == "HEAD" => {
                return Ok(self.tracked.iter().map(|secret| secret.path.clone()).next());
            }
            Err(error) => return Err(error),
        };
        for secret in self
            .tracked
            .iter()
            .filter(|secret| (self.is_secret)(&secret.path))
        {
            if (work_tree && secret.may_have_changed)
                || self.objects.at(tree, &secret.path)? != Some(secret.id)
            {
                return Ok(Some(secret.path.clone()));
            }
        }
        // A file that is no longer in the index is shown with its former content.
        let tracked = self.tracked;
        let is_secret = self.is_secret;
        let is_removed_secret =
            |path: &str| is_secret(path) && !tracked.iter().any(|secret| secret.path == path);
        self.objects.differing(Some(tree), None, &is_removed_secret)
    }

    fn secret_in_change(&mut self, revision: &str) -> Result<Option<String>, ObjectUnreadable> {
        let id = self.objects.resolve(revision)?;
        let id = self.objects.peeled(id)?;
        match self.objects.kind(id)? {
            Kind::Blob => Ok(self
                .tracked
                .iter()
                .find(|secret| secret.id == id)
                .map(|secret| secret.path.clone())),
            Kind::Commit => self.changed_by(id),
            _ => Ok(None),
        }
    }

    /// Returns a file that a commit changed relative to one of its parents.
    fn changed_by(&mut self, id: ObjectId) -> Result<Option<String>, ObjectUnreadable> {
        let commit = self.objects.commit(id)?;
        if commit.parents.is_empty() {
            return self
                .objects
                .differing(Some(commit.tree), None, self.is_secret);
        }
        for parent in commit.parents {
            let before = self.objects.commit(parent)?.tree;
            if let Some(path) =
                self.objects
                    .differing(Some(before), Some(commit.tree), self.is_secret)?
            {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    fn history(
        &mut self,
        mut ahead: VecDeque<ObjectId>,
        left_out: &HashSet<ObjectId>,
        max_commits: Option<usize>,
    ) -> Result<Option<String>, ObjectUnreadable> {
        let mut seen = HashSet::new();
        let mut max_commits = max_commits.unwrap_or(usize::MAX);
        while let Some(id) = ahead.pop_front() {
            if left_out.contains(&id) || !seen.insert(id) {
                continue;
            }
            if seen.len() > max_commits {
                return Ok(None);
            }
            if seen.len() > MAX_COMMITS {
                return Err(ObjectUnreadable::TooMuch);
            }
            if let Some(path) = self.changed_by(id)? {
                return Ok(Some(path));
            }
            let parents = self.objects.commit(id)?.parents;
            // The order in which commits are shown is not computed: after a merge, either side may
            // come first, and not every command counts the merge itself.
            if parents.len() > 1 {
                max_commits =
                    max_commits.saturating_add(parents.len() * max_commits.min(MAX_COMMITS) + 1);
            }
            ahead.extend(parents);
        }
        Ok(None)
    }

    fn ids(&self, revisions: &[String]) -> Result<VecDeque<ObjectId>, ObjectUnreadable> {
        revisions
            .iter()
            .map(|revision| self.objects.peeled(self.objects.resolve(revision)?))
            .collect()
    }

    /// Returns the commits that are reachable from some, up to a number of commits.
    fn reached(
        &self,
        from: &[String],
        max_commits: usize,
    ) -> Result<HashSet<ObjectId>, ObjectUnreadable> {
        let mut ahead = self.ids(from)?;
        let mut seen = HashSet::new();
        while let Some(id) = ahead.pop_front() {
            if seen.len() >= max_commits {
                break;
            }
            if seen.insert(id) {
                ahead.extend(self.objects.commit(id)?.parents);
            }
        }
        Ok(seen)
    }
}
