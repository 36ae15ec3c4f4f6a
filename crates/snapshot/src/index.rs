//! What every file of a project was when it was read last, and how that is brought up to date.
//!
//! A file is the same as before when its print is: size, times, inode. Times come from a clock that
//! ticks every few milliseconds, so a file that changed in the same tick in which it was read could
//! keep its print. Such entries are *unsettled*, and read again the next time. The clock that counts
//! is the one file systems use; it is asked by touching a file of our own.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::digest::is_blob_name;
use super::file::{FileStamp, born, kind, large, read_known};
use super::git::{GitIndex, GitObjects, ObjectLookup};
use super::ignored::{REPOSITORIES, excluding};
use super::modes::FileModes;
use super::objects::Objects;
use super::{Deadline, LARGEST, MOST_BYTES, MOST_FILES, Untracked};
use base::environment::private_note;
use transcript::{FileChange, FileKind, FileState};

/// How many changed files make it worth to write the index at once, rather than at the end.
pub(super) const WORTH_SAVING: usize = 500;

/// Two ticks of the coarsest clock file systems use, in nanoseconds.
const TICK: i128 = 20_000_000;

/// How long contents are kept that no file has any more, from their last use on.
const KEEP: Duration = Duration::from_secs(30 * 24 * 3600);

/// How often they are looked for.
const CLEAN_EVERY: Duration = Duration::from_secs(24 * 3600);

/// 2: files that git keeps have the name that git gives them.
const FORMAT: u32 = 2;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct FileEntry {
    #[serde(rename = "p")]
    print: Option<FileStamp>,
    #[serde(rename = "s")]
    state: Option<FileState>,
    #[serde(rename = "t")]
    settled: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct DirEntry {
    print: Option<(i128, i128, u64)>,
    settled: bool,
    files: BTreeMap<String, FileEntry>,
    dirs: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FileIndex {
    format: u32,
    root: PathBuf,
    /// When it was brought up to date last, by the clock of the file system.
    at: i128,
    /// What is ignored everywhere; when that changes, everything is listed again.
    excluded: Option<FileStamp>,
    /// By path below the root, `""` for the root itself.
    dirs: HashMap<String, DirEntry>,
    /// Where all our own things lie, which may be inside the project.
    #[serde(skip)]
    data: PathBuf,
    /// What is not listed any more, and not yet told.
    #[serde(skip)]
    gone: Vec<(String, FileEntry)>,
    /// Where files lie whose contents are not kept here; none where there is no git, or it was not yet looked for.
    #[serde(skip)]
    git: Option<GitObjects>,
    /// Whether `git` was looked for.
    #[serde(skip)]
    looked: bool,
}

/// What bringing the index up to date has found.
pub(super) struct Refreshed {
    /// Where somebody is told: what has changed, with its contents, and the modes before and after.
    pub(super) changes: Vec<(FileChange, [Option<u32>; 2])>,
    /// How many files are not what the index said, told or not.
    pub(super) differing: usize,
}

/// A file that has to be read.
struct ReadTask {
    dir: String,
    name: String,
    print: FileStamp,
    /// It was not there before.
    fresh: bool,
    /// What it was, where git keeps that.
    in_git: Option<FileState>,
}

impl ReadTask {
    fn new(dir: &str, name: &str, print: FileStamp, entry: &FileEntry) -> Self {
        let in_git = entry.state.clone().filter(|state| !state.large && is_blob_name(&state.hash));
        Self { dir: dir.to_owned(), name: name.to_owned(), print, fresh: entry.print.is_none(), in_git }
    }
}

impl FileIndex {
    fn new(root: &Path) -> Self {
        Self {
            data: PathBuf::new(),
            format: FORMAT,
            root: root.to_owned(),
            at: 0,
            excluded: None,
            dirs: HashMap::new(),
            gone: Vec::new(),
            git: None,
            looked: false,
        }
    }

    /// The index as it was saved, or an empty one.
    pub(super) fn load(dir: &Path, root: &Path) -> Self {
        let saved = fs::read(dir.join("index.json")).ok();
        let saved = saved.and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        let known = saved.filter(|index| index.format == FORMAT && index.root == root);
        let data = dir.ancestors().nth(2).unwrap_or(dir).to_owned();
        Self { data, ..known.unwrap_or_else(|| Self::new(root)) }
    }

    /// Whether a file is in it.
    pub(super) fn has(&self, path: &Path) -> bool {
        let rel = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
        let (dir, name) = rel.map_or(("", ""), |rel| rel.rsplit_once('/').unwrap_or(("", rel)));
        self.dirs.get(dir).is_some_and(|dir| dir.files.contains_key(name))
    }

    /// Whether nothing is known yet.
    pub(super) fn is_new(&self) -> bool {
        self.at == 0
    }

    /// Writes it down. It is only a memory: where it cannot be written, it is found out again.
    pub(super) fn save(&self, dir: &Path) {
        let write = || -> io::Result<()> {
            let mut fresh = tempfile::Builder::new().prefix(".index-").tempfile_in(dir)?;
            serde_json::to_writer(io::BufWriter::new(&mut fresh), self)?;
            fresh.persist(dir.join("index.json")).map_err(|e| e.error)?;
            Ok(())
        };
        if let Err(e) = write() {
            tracing::warn!("the index of {} is not saved: {e}", self.root.display());
        }
    }

    /// Brings it up to date, and says what has changed. The first time everything is read that git does
    /// not keep, and nothing has changed. Contents of changed files that git keeps are taken from it
    /// where somebody is going to be told.
    pub(super) fn refresh(
        &mut self,
        own: &Path,
        objects: &Objects,
        told: bool,
        stop: &Deadline<'_>,
    ) -> Result<Refreshed, Untracked> {
        let failed = |e: io::Error| Untracked::Failed(format!("{}: {e}", own.display()));
        let at = tick(own).map_err(failed)?;
        let excluded = FileStamp::at(&excluding(&self.root));
        let first = self.is_new();
        let everything = first || excluded != self.excluded;
        if !std::mem::replace(&mut self.looked, true) {
            self.git = GitObjects::open(&self.root);
            self.verify();
        }
        let mut tasks = self.walk(everything, at, stop)?;
        let rules = |name: &str| name == ".gitignore" || name == ".ignore";
        let ruled = tasks.iter().any(|task| rules(&task.name))
            || self.gone.iter().any(|(path, _)| rules(path.rsplit('/').next().unwrap_or(path)));
        if ruled && !everything {
            tasks = self.walk(true, at, stop)?;
        }
        self.excluded = excluded;
        if first {
            tasks = self.known_to_git(tasks, at);
        }
        let mut bytes = 0;
        let kept = |size: u64| if size > LARGEST { 0 } else { size };
        for entry in self.dirs.values().flat_map(|dir| dir.files.values()) {
            bytes += entry.print.map_or(0, |print| kept(print.size));
        }
        bytes += tasks.iter().filter(|task| task.fresh).map(|task| kept(task.print.size)).sum::<u64>();
        if bytes > MOST_BYTES {
            return Err(Untracked::ManyBytes(self.root.clone()));
        }
        // From here on it may be broken off: what is not told yet is told the next time.
        let states = self.read_all(&tasks, objects, stop)?;
        let (mut changes, mut differing) = (Vec::new(), 0);
        // A name that is new belongs to a file that is, or to one that had another name here. A file
        // that was there before and was not seen (ignored until now, brought in by a rename) is none
        // that anybody made, and nobody may remove it later.
        let gone = std::mem::take(&mut self.gone);
        let moved: HashSet<u64> = gone.iter().filter_map(|(_, entry)| Some(entry.print?.inode)).collect();
        for (task, state) in tasks.into_iter().zip(states) {
            let path = self.absolute(&task.dir, &task.name);
            let made = !task.fresh || moved.contains(&task.print.inode) || born(&path) >= self.at;
            let Some(entry) = self.dirs.get_mut(&task.dir).and_then(|dir| dir.files.get_mut(&task.name)) else {
                continue;
            };
            let old = std::mem::replace(&mut entry.state, state.clone());
            let before = entry.print.replace(task.print);
            entry.settled = task.print.changed < at - TICK;
            if old == state {
                continue;
            }
            differing += 1;
            let_go(old.as_ref(), objects);
            if !first && told && made {
                let (old, new) = (self.kept(old, objects), self.kept(state, objects));
                let change = FileChange { path: path.display().to_string(), old, new, compared: true };
                changes.push((change, [before.map(|print| print.mode), Some(task.print.mode)]));
            }
        }
        for (path, entry) in gone {
            let path = self.root.join(path);
            // What is ignored from now on is not gone.
            let ignored = fs::symlink_metadata(&path).is_ok_and(|data| !data.is_dir());
            differing += 1;
            let_go(entry.state.as_ref(), objects);
            if told && entry.state.is_some() && !ignored {
                let old = self.kept(entry.state, objects);
                let change = FileChange { path: path.display().to_string(), old, new: None, compared: true };
                changes.push((change, [entry.print.map(|print| print.mode), None]));
            }
        }
        self.at = at;
        Ok(Refreshed { changes, differing })
    }

    /// Of what git keeps, what it does not keep any more has to be read.
    fn verify(&mut self) {
        let Some(git) = &self.git else {
            let all = self.dirs.values_mut().flat_map(|dir| dir.files.values_mut());
            all.filter(|entry| entry.state.as_ref().is_some_and(|state| is_blob_name(&state.hash)))
                .for_each(|entry| (entry.print, entry.state) = (None, None));
            return;
        };
        let lost = |pieces: &mut [&mut FileEntry]| {
            let lookup = git.lookup();
            for entry in pieces {
                let size = entry.print.map_or(0, |print| print.size);
                if entry
                    .state
                    .as_ref()
                    .is_some_and(|state| is_blob_name(&state.hash) && !lookup.holds(&state.hash, size))
                {
                    (entry.print, entry.state) = (None, None);
                }
            }
        };
        let mut all: Vec<&mut FileEntry> = self.dirs.values_mut().flat_map(|dir| dir.files.values_mut()).collect();
        let piece = all.len().div_ceil(threads()).max(64);
        std::thread::scope(|scope| {
            for piece in all.chunks_mut(piece) {
                scope.spawn(|| lost(piece));
            }
        });
    }

    /// Takes out of what has to be read what git keeps already, and enters it.
    fn known_to_git(&mut self, tasks: Vec<ReadTask>, at: i128) -> Vec<ReadTask> {
        let Some(git) = &self.git else { return tasks };
        let below = |(dir, entry): (&String, &DirEntry)| {
            entry.files.contains_key(".gitattributes").then(|| self.absolute(dir, ".gitattributes"))
        };
        let index = GitIndex::read(&self.root, &self.dirs.iter().filter_map(below).collect::<Vec<_>>());
        if index.is_empty() {
            return tasks;
        }
        let name = |lookup: &ObjectLookup, task: &ReadTask| {
            let path = if task.dir.is_empty() { task.name.clone() } else { format!("{}/{}", task.dir, task.name) };
            let name = index.unchanged(&path, &task.print).filter(|_| task.print.size <= LARGEST)?;
            lookup.holds(name, task.print.size).then(|| name.to_owned())
        };
        let look = |piece: &[ReadTask]| -> Vec<Option<String>> {
            let lookup = git.lookup();
            piece.iter().map(|task| name(&lookup, task)).collect()
        };
        let piece = tasks.len().div_ceil(threads()).max(64);
        let names: Vec<Option<String>> = std::thread::scope(|scope| {
            let running: Vec<_> = tasks.chunks(piece).map(|piece| (piece.len(), scope.spawn(|| look(piece)))).collect();
            // What a thread did not find out is read.
            running.into_iter().flat_map(|(len, thread)| thread.join().unwrap_or_else(|_| vec![None; len])).collect()
        });
        let mut left = Vec::new();
        for (task, name) in tasks.into_iter().zip(names) {
            let entry = self.dirs.get_mut(&task.dir).and_then(|dir| dir.files.get_mut(&task.name));
            match (name, entry) {
                (Some(hash), Some(entry)) => {
                    entry.state = Some(FileState { hash, kind: kind(&task.print), large: false });
                    entry.print = Some(task.print);
                    entry.settled = task.print.changed < at - TICK;
                }
                _ => left.push(task),
            }
        }
        left
    }

    /// A state whose content is kept here. Where git had it and has it no more, the name is one that nothing is
    /// kept by.
    fn kept(&self, state: Option<FileState>, objects: &Objects) -> Option<FileState> {
        let state = state?;
        if state.large || !is_blob_name(&state.hash) {
            return Some(state);
        }
        let content = self.git.as_ref().and_then(|git| git.content(&state.hash));
        let hash = content.and_then(|bytes| objects.put(&bytes).ok());
        if hash.is_none() {
            tracing::warn!("git does not keep {} any more", state.hash);
        }
        Some(FileState { hash: hash.unwrap_or(state.hash), ..state })
    }

    /// Looks at every directory and every file, without opening files, and says which have to be read.
    fn walk(&mut self, everything: bool, at: i128, stop: &Deadline<'_>) -> Result<Vec<ReadTask>, Untracked> {
        let mut tasks = Vec::new();
        let mut listing = if everything { Some(self.list("", None, stop)?) } else { None };
        let mut same = if everything { HashMap::new() } else { self.same() };
        let mut waiting = vec![String::new()];
        let mut seen = 0;
        while let Some(rel) = waiting.pop() {
            let prefix = if rel.is_empty() { String::new() } else { format!("{rel}/") };
            if let (Some(found), Some(dir)) = (same.remove(&rel), self.dirs.get(&rel)) {
                tasks.extend(found);
                seen += dir.files.len();
                waiting.extend(dir.dirs.iter().map(|name| format!("{prefix}{name}")));
                continue;
            }
            let path = self.root.join(&rel);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::open(&path, flags, Mode::empty());
            let Some((open, data)) =
                opened.ok().and_then(|open| rustix::fs::fstat(&open).ok().map(|data| (open, data)))
            else {
                self.forget(&rel);
                continue;
            };
            let print = FileStamp::of(&data);
            let now = (print.modified, print.changed, print.inode);
            let mut dir = self.dirs.remove(&rel).unwrap_or_default();
            let changed = dir.print != Some(now) || !dir.settled;
            if changed || everything {
                if changed && listing.as_ref().is_none_or(|listing| !listing.contains_key(&rel)) {
                    // A directory that was not there before is listed with all that is below it.
                    let depth = if dir.print.is_some() { Some(1) } else { None };
                    let more = self.list(&rel, depth, &stop.unstopped())?;
                    listing.get_or_insert_default().extend(more);
                }
                let (files, dirs) = listing.as_mut().and_then(|listing| listing.remove(&rel)).unwrap_or_default();
                let mut old = std::mem::take(&mut dir.files);
                for name in files {
                    let entry = old.remove(&name).unwrap_or(FileEntry { print: None, state: None, settled: false });
                    dir.files.insert(name, entry);
                }
                self.gone.extend(old.into_iter().map(|(name, entry)| (format!("{prefix}{name}"), entry)));
                let kept: HashSet<&String> = dirs.iter().collect();
                for lost in dir.dirs.iter().filter(|name| !kept.contains(name)) {
                    self.forget(&format!("{prefix}{lost}"));
                }
                dir.dirs = dirs;
                dir.print = Some(now);
                dir.settled = print.changed < at - TICK && print.modified < at - TICK;
            }
            for (name, entry) in &dir.files {
                let Ok(data) = rustix::fs::statat(&open, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) else {
                    // It went away since the listing; the directory is unsettled, and tells next time.
                    dir.settled = false;
                    continue;
                };
                let print = FileStamp::of(&data);
                if entry.print == Some(print) && entry.settled {
                    continue;
                }
                tasks.push(ReadTask::new(&rel, name, print, entry));
            }
            seen += dir.files.len();
            waiting.extend(dir.dirs.iter().map(|name| format!("{prefix}{name}")));
            self.dirs.insert(rel, dir);
            if seen > MOST_FILES {
                return Err(Untracked::ManyFiles(self.root.clone()));
            }
        }
        Ok(tasks)
    }

    /// The directories that hold the same names as before, with the files in them that have to be read.
    /// Nearly all of the work is waiting for the system, so it is done on several threads.
    fn same(&self) -> HashMap<String, Vec<ReadTask>> {
        let dirs: Vec<(&String, &DirEntry)> = self.dirs.iter().collect();
        let look = |piece: &[(&String, &DirEntry)]| -> Vec<(String, Vec<ReadTask>)> {
            piece.iter().filter_map(|(rel, dir)| Some(((*rel).clone(), self.look(rel, dir)?))).collect()
        };
        let threads = threads();
        if dirs.len() < 32 || threads == 1 {
            return look(&dirs).into_iter().collect();
        }
        std::thread::scope(|scope| {
            let look = &look;
            let pieces = dirs.chunks(dirs.len().div_ceil(threads));
            let running: Vec<_> = pieces.map(|piece| scope.spawn(move || look(piece))).collect();
            // What a thread did not find out is found out one by one.
            running.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
        })
    }

    /// The files of a directory that have to be read; none where the directory itself has changed.
    fn look(&self, rel: &str, dir: &DirEntry) -> Option<Vec<ReadTask>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = rustix::fs::open(self.root.join(rel), flags, Mode::empty()).ok()?;
        let print = FileStamp::of(&rustix::fs::fstat(&open).ok()?);
        if !dir.settled || dir.print != Some((print.modified, print.changed, print.inode)) {
            return None;
        }
        let mut tasks = Vec::new();
        for (name, entry) in &dir.files {
            let print = FileStamp::of(&rustix::fs::statat(&open, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?);
            if entry.print != Some(print) || !entry.settled {
                tasks.push(ReadTask::new(rel, name, print, entry));
            }
        }
        Some(tasks)
    }

    /// Takes a directory out, with everything below it.
    fn forget(&mut self, rel: &str) {
        let Some(dir) = self.dirs.remove(rel) else {
            return;
        };
        let prefix = if rel.is_empty() { String::new() } else { format!("{rel}/") };
        self.gone.extend(dir.files.into_iter().map(|(name, entry)| (format!("{prefix}{name}"), entry)));
        for name in dir.dirs {
            self.forget(&format!("{prefix}{name}"));
        }
    }

    /// What is in a directory and, to a depth, below it, and is not ignored.
    fn list(&self, rel: &str, depth: Option<usize>, stop: &Deadline<'_>) -> Result<DirListing, Untracked> {
        let top = self.root.join(rel);
        // Where nobody said what is to be ignored, this is.
        let bare = !self.root.join(".git").exists();
        let data = self.data.clone();
        // Where the directory of git is somewhere else, as that of a submodule, nobody but us looks there.
        let mut own = GitignoreBuilder::new(&self.root);
        let excluding = excluding(&self.root);
        // Opening a pipe would wait for its other end.
        if self.root.join(".git").is_file() && excluding.is_file() {
            // A file that cannot be read excludes nothing.
            drop(own.add(excluding));
        }
        let own = own.build().unwrap_or_else(|_| Gitignore::empty());
        let mut walker = base::git::walker(&top, move |entry| {
            let name = entry.file_name().to_str().unwrap_or_default();
            entry.depth() == 0
                || !(REPOSITORIES.contains(&name)
                    || bare && name == "node_modules"
                    || entry.path() == data
                    || own.matched(entry.path(), entry.file_type().is_some_and(|kind| kind.is_dir())).is_ignore())
        });
        walker.max_depth(depth);
        let mut listing = DirListing::default();
        listing.insert(rel.to_owned(), (Vec::new(), Vec::new()));
        let mut count = 0;
        for entry in walker.build() {
            // What cannot be read is not recorded.
            let Ok(entry) = entry else { continue };
            let (Some(kind), Ok(path)) = (entry.file_type(), entry.path().strip_prefix(&self.root)) else { continue };
            let Some(path) = path.to_str().filter(|_| entry.depth() > 0) else { continue };
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            let Some(known) = listing.get_mut(parent) else { continue };
            if kind.is_dir() {
                known.1.push(name.to_owned());
                if depth.is_none() {
                    listing.insert(path.to_owned(), (Vec::new(), Vec::new()));
                }
            } else if kind.is_file() || kind.is_symlink() {
                known.0.push(name.to_owned());
            }
            count += 1;
            if count % 256 == 0 {
                stop.check()?;
            }
            if count > 2 * MOST_FILES {
                return Err(Untracked::ManyFiles(self.root.clone()));
            }
        }
        Ok(listing)
    }

    fn absolute(&self, dir: &str, name: &str) -> PathBuf {
        let mut path = self.root.join(dir);
        path.push(name);
        path
    }

    /// Reads files, on several threads where there are many.
    fn read_all(
        &self,
        tasks: &[ReadTask],
        objects: &Objects,
        stop: &Deadline<'_>,
    ) -> Result<Vec<Option<FileState>>, Untracked> {
        let one = |task: &ReadTask| -> Result<Option<FileState>, Untracked> {
            stop.check()?;
            let path = self.absolute(&task.dir, &task.name);
            // What cannot be read now has a state nobody knows.
            read_known(&path, LARGEST, Some(objects), task.in_git.as_ref()).or_else(|e| match e.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::ReadOnlyFilesystem => Err(Untracked::Failed(e.to_string())),
                _ => Ok(Some(large(&task.print, FileKind::Plain))),
            })
        };
        let threads = threads();
        if tasks.len() < 64 || threads == 1 {
            return tasks.iter().map(one).collect();
        }
        let pieces: Vec<_> = tasks.chunks(tasks.len().div_ceil(threads)).collect();
        let read = std::thread::scope(|scope| {
            let running: Vec<_> = pieces
                .into_iter()
                .map(|piece| scope.spawn(move || piece.iter().map(one).collect::<Result<Vec<_>, Untracked>>()))
                .collect();
            running.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
        });
        let mut states = Vec::with_capacity(tasks.len());
        for piece in read {
            states.extend(piece.map_err(|_| Untracked::Failed("a thread ended unexpectedly".into()))??);
        }
        Ok(states)
    }

    /// Removes what was not used for long and no file holds, once a day.
    pub(super) fn clean(&self, own: &Path, objects: &Objects, modes: &FileModes) {
        let Some(now) = cleaning_time(own) else { return };
        let entries = self.dirs.values().flat_map(|dir| dir.files.values());
        let wanted: HashSet<&str> = entries.filter_map(|entry| Some(entry.state.as_ref()?.hash.as_str())).collect();
        let limit = now.checked_sub(KEEP).unwrap_or(UNIX_EPOCH);
        objects.clean(limit, |hash| wanted.contains(hash));
        modes.clean(limit);
        private_note(&own.join(CLEANED), b"").ok();
    }
}

/// The file whose time says when old contents were looked for last.
const CLEANED: &str = "cleaned";

/// Whether old contents have not been looked for in a day.
pub(super) fn is_cleaning_due(own: &Path) -> bool {
    cleaning_time(own).is_some()
}

/// What time it is, if old contents have not been looked for in a day.
fn cleaning_time(own: &Path) -> Option<SystemTime> {
    let now = UNIX_EPOCH + Duration::from_nanos(u64::try_from(tick(own).ok()?).unwrap_or(0));
    let last = fs::metadata(own.join(CLEANED)).and_then(|data| data.modified()).unwrap_or(UNIX_EPOCH);
    now.duration_since(last).is_ok_and(|past| past > CLEAN_EVERY).then_some(now)
}

/// A file may have held a content for longer than contents are kept: it was in use until now.
fn let_go(state: Option<&FileState>, objects: &Objects) {
    if let Some(state) = state {
        objects.note_use(&state.hash);
    }
}

/// How many threads look and read.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(4)
}

/// By directory: the names of its files, and of its directories.
type DirListing = HashMap<String, (Vec<String>, Vec<String>)>;

/// What time the file system thinks it is.
fn tick(own: &Path) -> io::Result<i128> {
    let path = own.join("tick");
    private_note(&path, b".")?;
    FileStamp::at(&path).map(|print| print.changed).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}
