//! The index of a project: the state of every file when it was last read, and its update.
//!
//! A file is unchanged if its stamp is: size, times, inode. The clock of these times ticks every
//! few milliseconds, so a file that changed in the same tick in which it was read could have the
//! same stamp. Such entries are *unsettled*, and are read again the next time. The relevant clock
//! is the one of the file system, which is read by touching a file of adjutant.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ignore::gitignore::Gitignore;
use rustix::fs::{AtFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::digest::is_blob_name;
use super::file::{FileStamp, creation_time, kind, large_state, read_known};
use super::git::{GitIndex, GitObjects, ObjectLookup};
use super::ignored::{REPOSITORIES, excluding, rules};
use super::modes::FileModes;
use super::objects::Objects;
use super::{Deadline, MAX_FILE_BYTES, MAX_PROJECT_BYTES, MAX_PROJECT_FILES, Untracked};
use base::environment::write_private_file;
use transcript::{FileChange, FileKind, FileState};

/// The number of changed files that makes it worthwhile to save the index at once, rather than at
/// the end.
pub(super) const WORTH_SAVING: usize = 500;

/// Two ticks of the coarsest clock of file systems, in nanoseconds.
const CLOCK_TICK_NANOS: i128 = 20_000_000;

/// The age at which contents that no file has any more are removed, counted from their last use.
const MAX_UNUSED_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The interval between two removals of old contents.
const CLEANING_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// The version of the format of `index.json`. Since 2, contents that are stored by git have their
/// blob id as hash.
const FORMAT_VERSION: u32 = 2;

/// A file when it was last read.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct FileEntry {
    /// Its metadata; `None` if it was not read yet.
    #[serde(rename = "p")]
    stamp: Option<FileStamp>,
    /// Its state; `None` if it was not read yet, or had disappeared by then.
    #[serde(rename = "s")]
    state: Option<FileState>,
    /// True if a later change is certain to change the stamp.
    #[serde(rename = "t")]
    is_settled: bool,
}

/// A directory when it was last listed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct DirEntry {
    /// The times of the last change of its content and of its inode, and its inode number.
    #[serde(rename = "print")]
    stamp: Option<(i128, i128, u64)>,
    /// True if a later change is certain to change the stamp.
    #[serde(rename = "settled")]
    is_settled: bool,
    files: BTreeMap<String, FileEntry>,
    dirs: Vec<String>,
}

/// The index, as it is saved in `index.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FileIndex {
    /// See [`FORMAT_VERSION`].
    format: u32,
    root: PathBuf,
    /// The time of the last update, by the clock of the file system.
    at: i128,
    /// The stamp of the file that excludes files from the whole project. If it changes, everything
    /// is listed again.
    excluded: Option<FileStamp>,
    /// Directories by their path below the root; `""` is the root itself.
    dirs: HashMap<String, DirEntry>,
    /// The directory of all of adjutant's data, which may be inside the project.
    #[serde(skip)]
    data: PathBuf,
    /// Files that are not listed any more, and whose removal was not yet reported.
    #[serde(skip)]
    removed: Vec<(String, FileEntry)>,
    /// The objects of git; `None` if the project has none, or they were not yet opened.
    #[serde(skip)]
    git: Option<GitObjects>,
    /// True if opening `git` was tried.
    #[serde(skip)]
    was_git_opened: bool,
}

/// The result of an update.
pub(super) struct Refreshed {
    /// Changes, each with the modes before and after; their contents are stored. Empty unless
    /// requested.
    pub(super) changes: Vec<(FileChange, [Option<u32>; 2])>,
    /// The number of files that differ from the index.
    pub(super) differing: usize,
}

/// A file that has to be read.
struct ReadTask {
    /// Its directory, below the root.
    dir: String,
    name: String,
    stamp: FileStamp,
    /// True if it is not in the index.
    is_new: bool,
    /// The state in the index, if its content is stored by git.
    in_git: Option<FileState>,
}

impl ReadTask {
    fn new(dir: &str, name: &str, stamp: FileStamp, entry: &FileEntry) -> Self {
        let in_git = entry
            .state
            .clone()
            .filter(|state| !state.large && is_blob_name(&state.hash));
        Self {
            dir: dir.to_owned(),
            name: name.to_owned(),
            stamp,
            is_new: entry.stamp.is_none(),
            in_git,
        }
    }
}

impl FileIndex {
    fn new(root: &Path) -> Self {
        Self {
            data: PathBuf::new(),
            format: FORMAT_VERSION,
            root: root.to_owned(),
            at: 0,
            excluded: None,
            dirs: HashMap::new(),
            removed: Vec::new(),
            git: None,
            was_git_opened: false,
        }
    }

    /// Loads the saved index, or returns an empty one.
    pub(super) fn load(dir: &Path, root: &Path) -> Self {
        let saved = fs::read(dir.join("index.json")).ok();
        let saved = saved.and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        let index = saved.filter(|index| index.format == FORMAT_VERSION && index.root == root);
        let data = dir.ancestors().nth(2).unwrap_or(dir).to_owned();
        Self {
            data,
            ..index.unwrap_or_else(|| Self::new(root))
        }
    }

    /// Returns whether the index contains a file.
    pub(super) fn has(&self, path: &Path) -> bool {
        let rel = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
        let (dir, name) = rel.map_or(("", ""), |rel| rel.rsplit_once('/').unwrap_or(("", rel)));
        self.dirs
            .get(dir)
            .is_some_and(|dir| dir.files.contains_key(name))
    }

    /// Returns whether the index was never updated.
    pub(super) fn is_new(&self) -> bool {
        self.at == 0
    }

    /// Saves the index. It is only a cache: if it cannot be saved, it will be built again.
    pub(super) fn save(&self, dir: &Path) {
        let write = || -> io::Result<()> {
            let mut file = tempfile::Builder::new()
                .prefix(".index-")
                .tempfile_in(dir)?;
            serde_json::to_writer(io::BufWriter::new(&mut file), self)?;
            file.persist(dir.join("index.json")).map_err(|e| e.error)?;
            Ok(())
        };
        if let Err(e) = write() {
            tracing::warn!("the index of {} is not saved: {e}", self.root.display());
        }
    }

    /// Updates the index, and returns the changes if `wants_changes`.
    ///
    /// The first update reads all files that are not in git, and returns no changes. Contents of
    /// changed files that are in git are copied from it if changes are wanted.
    pub(super) fn refresh(
        &mut self,
        dir: &Path,
        objects: &Objects,
        wants_changes: bool,
        stop: &Deadline<'_>,
    ) -> Result<Refreshed, Untracked> {
        let failed = |e: io::Error| Untracked::Failed(format!("{}: {e}", dir.display()));
        let at = file_system_time(dir).map_err(failed)?;
        let excluded = FileStamp::at(&excluding(&self.root));
        let is_first = self.is_new();
        let everything = is_first || excluded != self.excluded;
        if !std::mem::replace(&mut self.was_git_opened, true) {
            self.git = GitObjects::open(&self.root);
            self.discard_lost_blobs();
        }
        let mut tasks = self.walk(everything, at, stop)?;
        let has_new_rules = tasks.iter().any(|task| is_ignore_file(&task.name))
            || self
                .removed
                .iter()
                .any(|(path, _)| is_ignore_file(path.rsplit('/').next().unwrap_or(path)));
        if has_new_rules && !everything {
            tasks = self.walk(true, at, stop)?;
        }
        self.excluded = excluded;
        if is_first {
            tasks = self.without_blobs(tasks, at);
        }
        let mut bytes = 0;
        for entry in self.dirs.values().flat_map(|dir| dir.files.values()) {
            bytes += entry.stamp.map_or(0, |stamp| stored_size(stamp.size));
        }
        bytes += tasks
            .iter()
            .filter(|task| task.is_new)
            .map(|task| stored_size(task.stamp.size))
            .sum::<u64>();
        if bytes > MAX_PROJECT_BYTES {
            return Err(Untracked::ManyBytes(self.root.clone()));
        }
        // From this point on the update may be cancelled: changes that are not yet reported are
        // reported by the next one.
        let states = self.read_all(&tasks, objects, &stop.of_reading())?;
        let mut changes = Vec::new();
        let mut differing = 0;
        // A new name belongs to a new file, or to a renamed one. A file that existed unseen before
        // (because it was ignored, or was moved into the project) was not created by the command,
        // and must not be removed by an undo.
        let removed = std::mem::take(&mut self.removed);
        let removed_inodes: HashSet<u64> = removed
            .iter()
            .filter_map(|(_, entry)| Some(entry.stamp?.inode))
            .collect();
        for (task, state) in tasks.into_iter().zip(states) {
            let path = self.absolute(&task.dir, &task.name);
            let is_known = !task.is_new || removed_inodes.contains(&task.stamp.inode);
            let was_made = is_known || creation_time(&path) >= self.at;
            let Some(entry) = self
                .dirs
                .get_mut(&task.dir)
                .and_then(|dir| dir.files.get_mut(&task.name))
            else {
                continue;
            };
            let old = std::mem::replace(&mut entry.state, state.clone());
            let before = entry.stamp.replace(task.stamp);
            entry.is_settled = task.stamp.changed < at - CLOCK_TICK_NANOS;
            if old == state {
                continue;
            }
            differing += 1;
            note_last_use(old.as_ref(), objects);
            if !is_first && wants_changes && was_made {
                let old = self.stored_state(old, objects);
                let new = self.stored_state(state, objects);
                let change = FileChange {
                    path: path.display().to_string(),
                    old,
                    new,
                    compared: true,
                    sequence: 0,
                };
                changes.push((
                    change,
                    [before.map(|stamp| stamp.mode), Some(task.stamp.mode)],
                ));
            }
        }
        for (path, entry) in removed {
            let path = self.root.join(path);
            // A file that exists is ignored now, and was not removed.
            let is_ignored = fs::symlink_metadata(&path).is_ok_and(|data| !data.is_dir());
            differing += 1;
            note_last_use(entry.state.as_ref(), objects);
            if wants_changes && entry.state.is_some() && !is_ignored {
                let old = self.stored_state(entry.state, objects);
                let change = FileChange {
                    path: path.display().to_string(),
                    old,
                    new: None,
                    compared: true,
                    sequence: 0,
                };
                changes.push((change, [entry.stamp.map(|stamp| stamp.mode), None]));
            }
        }
        self.at = at;
        Ok(Refreshed { changes, differing })
    }

    /// Discards entries whose content is not in git any more, so that their files are read again.
    fn discard_lost_blobs(&mut self) {
        let mut all: Vec<&mut FileEntry> = self
            .dirs
            .values_mut()
            .flat_map(|dir| dir.files.values_mut())
            .collect();
        let Some(git) = &self.git else {
            for entry in all {
                if entry
                    .state
                    .as_ref()
                    .is_some_and(|state| is_blob_name(&state.hash))
                {
                    entry.stamp = None;
                    entry.state = None;
                }
            }
            return;
        };
        let discard_lost = |chunk: &mut [&mut FileEntry]| {
            let lookup = git.lookup();
            for entry in chunk {
                let size = entry.stamp.map_or(0, |stamp| stamp.size);
                let is_lost = |state: &FileState| {
                    is_blob_name(&state.hash) && !lookup.has_blob(&state.hash, size)
                };
                if entry.state.as_ref().is_some_and(is_lost) {
                    entry.stamp = None;
                    entry.state = None;
                }
            }
        };
        let chunk_length = all.len().div_ceil(threads()).max(64);
        std::thread::scope(|scope| {
            for chunk in all.chunks_mut(chunk_length) {
                scope.spawn(|| discard_lost(chunk));
            }
        });
    }

    /// Enters files whose content is in git into the index, and returns the other tasks.
    fn without_blobs(&mut self, tasks: Vec<ReadTask>, at: i128) -> Vec<ReadTask> {
        let Some(git) = &self.git else { return tasks };
        let attributes = |(dir, entry): (&String, &DirEntry)| {
            entry
                .files
                .contains_key(".gitattributes")
                .then(|| self.absolute(dir, ".gitattributes"))
        };
        let index = GitIndex::read(
            &self.root,
            &self.dirs.iter().filter_map(attributes).collect::<Vec<_>>(),
        );
        if index.is_empty() {
            return tasks;
        }
        let blob_id = |lookup: &ObjectLookup, task: &ReadTask| {
            if task.stamp.size > MAX_FILE_BYTES {
                return None;
            }
            let path = if task.dir.is_empty() {
                task.name.clone()
            } else {
                format!("{}/{}", task.dir, task.name)
            };
            let id = index.unchanged(&path, &task.stamp)?;
            lookup.has_blob(id, task.stamp.size).then(|| id.to_owned())
        };
        let find_blobs = |chunk: &[ReadTask]| -> Vec<Option<String>> {
            let lookup = git.lookup();
            chunk.iter().map(|task| blob_id(&lookup, task)).collect()
        };
        let chunk_length = tasks.len().div_ceil(threads()).max(64);
        let blob_ids: Vec<Option<String>> = std::thread::scope(|scope| {
            let running: Vec<_> = tasks
                .chunks(chunk_length)
                .map(|chunk| (chunk.len(), scope.spawn(|| find_blobs(chunk))))
                .collect();
            // The files of a panicked thread are read.
            running
                .into_iter()
                .flat_map(|(len, thread)| thread.join().unwrap_or_else(|_| vec![None; len]))
                .collect()
        });
        let mut remaining = Vec::new();
        for (task, blob_id) in tasks.into_iter().zip(blob_ids) {
            let entry = self
                .dirs
                .get_mut(&task.dir)
                .and_then(|dir| dir.files.get_mut(&task.name));
            match (blob_id, entry) {
                (Some(hash), Some(entry)) => {
                    entry.state = Some(FileState {
                        hash,
                        kind: kind(&task.stamp),
                        large: false,
                    });
                    entry.stamp = Some(task.stamp);
                    entry.is_settled = task.stamp.changed < at - CLOCK_TICK_NANOS;
                }
                _ => remaining.push(task),
            }
        }
        remaining
    }

    /// Returns a state whose content is in the store, copied from git if necessary. If git does not
    /// have it any more, the state still has the blob id, under which nothing is stored.
    fn stored_state(&self, state: Option<FileState>, objects: &Objects) -> Option<FileState> {
        let state = state?;
        if state.large || !is_blob_name(&state.hash) {
            return Some(state);
        }
        let content = self.git.as_ref().and_then(|git| git.content(&state.hash));
        let hash = content.and_then(|bytes| objects.put(&bytes).ok());
        if hash.is_none() {
            tracing::warn!("git no longer has {}", state.hash);
        }
        Some(FileState {
            hash: hash.unwrap_or(state.hash),
            ..state
        })
    }

    /// Examines all directories and files without opening files, and returns the files that have to
    /// be read.
    fn walk(
        &mut self,
        everything: bool,
        at: i128,
        stop: &Deadline<'_>,
    ) -> Result<Vec<ReadTask>, Untracked> {
        let mut tasks = Vec::new();
        let mut listing = if everything {
            Some(self.list("", None, stop)?)
        } else {
            None
        };
        let mut unchanged = if everything {
            HashMap::new()
        } else {
            self.unchanged_directories()
        };
        let mut waiting = vec![String::new()];
        let mut seen = 0;
        while let Some(rel) = waiting.pop() {
            let prefix = if rel.is_empty() {
                String::new()
            } else {
                format!("{rel}/")
            };
            if let (Some(found_tasks), Some(dir)) = (unchanged.remove(&rel), self.dirs.get(&rel)) {
                tasks.extend(found_tasks);
                seen += dir.files.len();
                waiting.extend(dir.dirs.iter().map(|name| format!("{prefix}{name}")));
                continue;
            }
            let path = self.root.join(&rel);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::open(&path, flags, Mode::empty());
            let Some((open, data)) = opened
                .ok()
                .and_then(|open| rustix::fs::fstat(&open).ok().map(|data| (open, data)))
            else {
                self.remove_directory(&rel);
                continue;
            };
            let stamp = FileStamp::of(&data);
            let now = (stamp.modified, stamp.changed, stamp.inode);
            let mut dir = self.dirs.remove(&rel).unwrap_or_default();
            let is_changed = dir.stamp != Some(now) || !dir.is_settled;
            if is_changed || everything {
                if is_changed
                    && listing
                        .as_ref()
                        .is_none_or(|listing| !listing.contains_key(&rel))
                {
                    // A new directory is listed with everything below it.
                    let depth = if dir.stamp.is_some() { Some(1) } else { None };
                    let more = self.list(&rel, depth, &stop.unstopped())?;
                    listing.get_or_insert_default().extend(more);
                }
                let (files, dirs) = listing
                    .as_mut()
                    .and_then(|listing| listing.remove(&rel))
                    .unwrap_or_default();
                let mut old = std::mem::take(&mut dir.files);
                for name in files {
                    let entry = old.remove(&name).unwrap_or(FileEntry {
                        stamp: None,
                        state: None,
                        is_settled: false,
                    });
                    dir.files.insert(name, entry);
                }
                self.removed.extend(
                    old.into_iter()
                        .map(|(name, entry)| (format!("{prefix}{name}"), entry)),
                );
                let present: HashSet<&String> = dirs.iter().collect();
                for name in dir.dirs.iter().filter(|name| !present.contains(name)) {
                    self.remove_directory(&format!("{prefix}{name}"));
                }
                dir.dirs = dirs;
                dir.stamp = Some(now);
                dir.is_settled =
                    stamp.changed < at - CLOCK_TICK_NANOS && stamp.modified < at - CLOCK_TICK_NANOS;
            }
            for (name, entry) in &dir.files {
                let Ok(data) = rustix::fs::statat(&open, name.as_str(), AtFlags::SYMLINK_NOFOLLOW)
                else {
                    // The file was removed after the listing. The directory is unsettled, so that
                    // the next update reports it.
                    dir.is_settled = false;
                    continue;
                };
                let stamp = FileStamp::of(&data);
                if entry.stamp == Some(stamp) && entry.is_settled {
                    continue;
                }
                tasks.push(ReadTask::new(&rel, name, stamp, entry));
            }
            seen += dir.files.len();
            waiting.extend(dir.dirs.iter().map(|name| format!("{prefix}{name}")));
            self.dirs.insert(rel, dir);
            if seen > MAX_PROJECT_FILES {
                return Err(Untracked::ManyFiles(self.root.clone()));
            }
        }
        Ok(tasks)
    }

    /// Returns the directories whose listing is unchanged, with their files that have to be read.
    /// Most of the work is waiting for the system, so several threads do it.
    fn unchanged_directories(&self) -> HashMap<String, Vec<ReadTask>> {
        let dirs: Vec<(&String, &DirEntry)> = self.dirs.iter().collect();
        let find_changed = |chunk: &[(&String, &DirEntry)]| -> Vec<(String, Vec<ReadTask>)> {
            chunk
                .iter()
                .filter_map(|(rel, dir)| Some(((*rel).clone(), self.changed_files(rel, dir)?)))
                .collect()
        };
        let threads = threads();
        if dirs.len() < 32 || threads == 1 {
            return find_changed(&dirs).into_iter().collect();
        }
        std::thread::scope(|scope| {
            let find_changed = &find_changed;
            let chunks = dirs.chunks(dirs.len().div_ceil(threads));
            let running: Vec<_> = chunks
                .map(|chunk| scope.spawn(move || find_changed(chunk)))
                .collect();
            // The directories of a panicked thread are listed again.
            running
                .into_iter()
                .flat_map(|thread| thread.join().unwrap_or_default())
                .collect()
        })
    }

    /// Returns the files of a directory that have to be read, or `None` if the directory itself has
    /// changed.
    fn changed_files(&self, rel: &str, dir: &DirEntry) -> Option<Vec<ReadTask>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = rustix::fs::open(self.root.join(rel), flags, Mode::empty()).ok()?;
        let stamp = FileStamp::of(&rustix::fs::fstat(&open).ok()?);
        if !dir.is_settled || dir.stamp != Some((stamp.modified, stamp.changed, stamp.inode)) {
            return None;
        }
        let mut tasks = Vec::new();
        for (name, entry) in &dir.files {
            let stamp = FileStamp::of(
                &rustix::fs::statat(&open, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?,
            );
            if entry.stamp != Some(stamp) || !entry.is_settled {
                tasks.push(ReadTask::new(rel, name, stamp, entry));
            }
        }
        Some(tasks)
    }

    /// Removes a directory with everything below it from the index.
    fn remove_directory(&mut self, rel: &str) {
        let Some(dir) = self.dirs.remove(rel) else {
            return;
        };
        let prefix = if rel.is_empty() {
            String::new()
        } else {
            format!("{rel}/")
        };
        self.removed.extend(
            dir.files
                .into_iter()
                .map(|(name, entry)| (format!("{prefix}{name}"), entry)),
        );
        for name in dir.dirs {
            self.remove_directory(&format!("{prefix}{name}"));
        }
    }

    /// Lists files and directories below a directory, to a depth, except for ignored ones.
    fn list(
        &self,
        rel: &str,
        depth: Option<usize>,
        stop: &Deadline<'_>,
    ) -> Result<DirListing, Untracked> {
        let top = self.root.join(rel);
        // Without a repository there may be no ignore rules, so this directory is ignored by
        // default.
        let is_bare = !self.root.join(".git").exists();
        let data = self.data.clone();
        // If the directory of git is elsewhere, as for a submodule, the library does not read its
        // excluding file.
        let excluded = if self.root.join(".git").is_file() {
            rules(&self.root, &excluding(&self.root))
        } else {
            Gitignore::empty()
        };
        let mut walker = base::git::walker(&top, move |entry| {
            if entry.depth() == 0 {
                return true;
            }
            let name = entry.file_name().to_str().unwrap_or_default();
            let is_directory = entry.file_type().is_some_and(|kind| kind.is_dir());
            let is_excluded = REPOSITORIES.contains(&name)
                || is_bare && name == "node_modules"
                || entry.path() == data
                || excluded.matched(entry.path(), is_directory).is_ignore();
            !is_excluded
        });
        walker.max_depth(depth);
        let mut listing = DirListing::default();
        listing.insert(rel.to_owned(), (Vec::new(), Vec::new()));
        let mut count = 0;
        for entry in walker.build() {
            // Unreadable entries are not recorded.
            let Ok(entry) = entry else { continue };
            if entry.depth() == 0 {
                continue;
            }
            let Some(kind) = entry.file_type() else {
                continue;
            };
            let Some(path) = entry
                .path()
                .strip_prefix(&self.root)
                .ok()
                .and_then(Path::to_str)
            else {
                continue;
            };
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            let Some((files, dirs)) = listing.get_mut(parent) else {
                continue;
            };
            if kind.is_dir() {
                dirs.push(name.to_owned());
                if depth.is_none() {
                    listing.insert(path.to_owned(), (Vec::new(), Vec::new()));
                }
            } else if kind.is_file() || kind.is_symlink() {
                files.push(name.to_owned());
            }
            count += 1;
            if count % 256 == 0 {
                stop.check()?;
            }
            if count > 2 * MAX_PROJECT_FILES {
                return Err(Untracked::ManyFiles(self.root.clone()));
            }
        }
        Ok(listing)
    }

    /// Returns the path of a file in a directory below the root.
    fn absolute(&self, dir: &str, name: &str) -> PathBuf {
        let mut path = self.root.join(dir);
        path.push(name);
        path
    }

    /// Reads files, on several threads if they are many.
    fn read_all(
        &self,
        tasks: &[ReadTask],
        objects: &Objects,
        stop: &Deadline<'_>,
    ) -> Result<Vec<Option<FileState>>, Untracked> {
        let read_one = |task: &ReadTask| -> Result<Option<FileState>, Untracked> {
            stop.check()?;
            let path = self.absolute(&task.dir, &task.name);
            // A file that cannot be read now has a state that is equal to no other one.
            read_known(&path, MAX_FILE_BYTES, Some(objects), task.in_git.as_ref()).or_else(|e| {
                match e.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::ReadOnlyFilesystem => {
                        Err(Untracked::Failed(e.to_string()))
                    }
                    _ => Ok(Some(large_state(&task.stamp, FileKind::Plain))),
                }
            })
        };
        let threads = threads();
        if tasks.len() < 64 || threads == 1 {
            return tasks.iter().map(read_one).collect();
        }
        let chunks: Vec<_> = tasks.chunks(tasks.len().div_ceil(threads)).collect();
        let results = std::thread::scope(|scope| {
            let running: Vec<_> = chunks
                .into_iter()
                .map(|chunk| {
                    scope.spawn(move || {
                        chunk
                            .iter()
                            .map(read_one)
                            .collect::<Result<Vec<_>, Untracked>>()
                    })
                })
                .collect();
            running
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join)
                .collect::<Vec<_>>()
        });
        let mut states = Vec::with_capacity(tasks.len());
        for result in results {
            states.extend(
                result.map_err(|_| Untracked::Failed("a thread ended unexpectedly".into()))??,
            );
        }
        Ok(states)
    }

    /// Removes contents that have not been used for long and that no file has, at most once a day.
    pub(super) fn clean(&self, dir: &Path, objects: &Objects, modes: &FileModes) {
        let Some(now) = cleaning_time(dir) else {
            return;
        };
        let entries = self.dirs.values().flat_map(|dir| dir.files.values());
        let wanted: HashSet<&str> = entries
            .filter_map(|entry| Some(entry.state.as_ref()?.hash.as_str()))
            .collect();
        let limit = now.checked_sub(MAX_UNUSED_AGE).unwrap_or(UNIX_EPOCH);
        objects.clean(limit, |hash| wanted.contains(hash));
        modes.clean(limit);
        write_private_file(&dir.join(CLEANED), b"").ok();
    }
}

/// The file whose modification time is the time of the last cleaning.
const CLEANED: &str = "cleaned";

/// Returns whether the last cleaning is more than a day ago.
pub(super) fn is_cleaning_due(dir: &Path) -> bool {
    cleaning_time(dir).is_some()
}

/// Returns the present time, if the last cleaning is more than a day ago.
fn cleaning_time(dir: &Path) -> Option<SystemTime> {
    let now =
        UNIX_EPOCH + Duration::from_nanos(u64::try_from(file_system_time(dir).ok()?).unwrap_or(0));
    let last = fs::metadata(dir.join(CLEANED))
        .and_then(|data| data.modified())
        .unwrap_or(UNIX_EPOCH);
    now.duration_since(last)
        .is_ok_and(|past| past > CLEANING_INTERVAL)
        .then_some(now)
}

/// Records the use of an object that a file had until now, which may be longer than unused contents
/// are stored.
fn note_last_use(state: Option<&FileState>, objects: &Objects) {
    if let Some(state) = state {
        objects.mark_used(&state.hash);
    }
}

/// Returns the number of threads for examining and reading files.
fn threads() -> usize {
    std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(4)
}

/// The names of files and of directories, by directory.
type DirListing = HashMap<String, (Vec<String>, Vec<String>)>;

/// Returns the size that a file contributes to the size of the project.
fn stored_size(size: u64) -> u64 {
    if size > MAX_FILE_BYTES { 0 } else { size }
}

/// Returns whether a file has ignore rules, by its name.
fn is_ignore_file(name: &str) -> bool {
    name == ".gitignore" || name == ".ignore"
}

/// Returns the time of the file system's clock, in nanoseconds since 1970.
fn file_system_time(dir: &Path) -> io::Result<i128> {
    let path = dir.join("tick");
    write_private_file(&path, b".")?;
    FileStamp::at(&path)
        .map(|stamp| stamp.changed)
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}
