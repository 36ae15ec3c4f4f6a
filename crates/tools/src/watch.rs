//! Files that decide what runs on this machine or what an agent may do: which of them a project has,
//! and whether a command has changed any. What the system cannot protect is at least seen.
//!
//! They are compared by what they hold, because sizes and times can be made to look the same. A new
//! one below the project cannot be kept from being made by any mechanism: bubblewrap hides only what
//! is there, and files made to be hidden would be seen by everybody else who works in the project.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

use base::worktree::Worktree;
use permission::protected;

/// The control files and directories that a project has: what `permission/protected.rs` calls so among
/// the entries of its directories and of the hidden ones in them, and in its git directories what git
/// obeys. Looks at the disk.
pub fn control_files(worktree: &Worktree) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for root in std::iter::once(&worktree.root).chain(&worktree.extra) {
        for (name, path) in entries(root) {
            let name = PathBuf::from(name);
            let hidden = name.as_os_str().as_encoded_bytes().starts_with(b".");
            if name.as_os_str().eq_ignore_ascii_case(".git") && path.is_dir() {
                // Most of it changes with every commit: what matters follows.
            } else if protected::control(&name) {
                found.push(path);
            } else if hidden && path.is_dir() {
                let inside = entries(&path).into_iter();
                found.extend(inside.filter(|(entry, _)| protected::control(&name.join(entry))).map(|(_, path)| path));
            }
        }
    }
    for dir in git_dirs(worktree) {
        found.extend(protected::GIT.iter().map(|name| dir.join(name)).filter(|path| path.symlink_metadata().is_ok()));
    }
    found
}

/// The project's git directories, and those that they hold for submodules and linked work trees.
fn git_dirs(worktree: &Worktree) -> Vec<PathBuf> {
    /// So many are looked into, and no deeper.
    const MOST: usize = 64;
    let mut dirs: Vec<PathBuf> = worktree.git_dirs();
    dirs.extend(worktree.extra.iter().map(|root| root.join(".git")).filter(|dir| dir.is_dir()));
    let mut waiting: VecDeque<PathBuf> = dirs.iter().map(|dir| dir.join("modules")).collect();
    let trees: Vec<PathBuf> = dirs.iter().map(|dir| dir.join("worktrees")).collect();
    dirs.extend(trees.iter().flat_map(|trees| entries(trees)).map(|(_, path)| path));
    while let Some(folder) = waiting.pop_front().filter(|_| dirs.len() < MOST) {
        // A submodule's name may have slashes in it.
        for (_, path) in entries(&folder) {
            if path.join("HEAD").is_file() {
                waiting.push_back(path.join("modules"));
                dirs.push(path);
            } else if path.is_dir() {
                waiting.push_back(path);
            }
        }
    }
    dirs.truncate(MOST);
    dirs
}

/// Makes the places in git directories that can only be protected when they are there. Git makes most of
/// them by itself; empty, they mean nothing, and they are no part of the work tree.
pub fn prepare(worktree: &Worktree) {
    for dir in
        worktree.git_dirs().into_iter().filter(|dir| dir.join("HEAD").is_file() && !dir.join("commondir").exists())
    {
        // What cannot be made is watched all the same.
        fs::create_dir(dir.join("hooks")).ok();
        fs::create_dir(dir.join("info")).ok();
        fs::OpenOptions::new().write(true).create_new(true).open(dir.join("info/attributes")).ok();
    }
}

fn entries(dir: &Path) -> Vec<(std::ffi::OsString, PathBuf)> {
    /// More entries than this in one directory are not looked at.
    const MOST: usize = 4096;
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().take(MOST);
    entries.map(|entry| (entry.file_name(), entry.path())).collect()
}

/// What the control files of a project were before a command.
#[derive(Debug, PartialEq, Eq)]
pub struct ControlFiles(BTreeMap<PathBuf, WatchedFile>);

#[derive(Debug, PartialEq, Eq)]
enum WatchedFile {
    Directory,
    /// Its mode and the digest of what it holds.
    File(u32, [u8; 32]),
    /// Where it points, and what is there.
    Link(PathBuf, Option<Box<WatchedFile>>),
    /// Too large, too many, or no file to be read: its mode, size, number and time of change, which
    /// nobody can set.
    Unread(u32, u64, u64, (i64, i64)),
}

impl ControlFiles {
    /// At most so much is read of them.
    const MOST_BYTES: u64 = 8 << 20;
    /// The rest is told apart by its time of change, up to so many.
    const MOST_ENTRIES: usize = 4096;

    /// Looks at the control files. What a directory of modules holds is not looked at.
    pub fn look(worktree: &Worktree) -> Self {
        let mut left = Self::MOST_BYTES;
        let mut seen = BTreeMap::new();
        let mut waiting: VecDeque<PathBuf> = control_files(worktree).into();
        while let Some(path) = waiting.pop_front().filter(|_| seen.len() < Self::MOST_ENTRIES) {
            let Some(what) = WatchedFile::look(&path, &mut left) else { continue };
            if what == WatchedFile::Directory {
                let wanted = |(name, path): &(std::ffi::OsString, PathBuf)| {
                    let shown = path.strip_prefix(&worktree.root).unwrap_or(path);
                    // Plans are for agents to write; samples of hooks are not run.
                    name != "node_modules"
                        && !protected::is_plan(shown)
                        && !name.as_encoded_bytes().ends_with(b".sample")
                };
                waiting.extend(entries(&path).into_iter().filter(wanted).map(|(_, path)| path));
            }
            seen.insert(path, what);
        }
        Self(seen)
    }

    /// What is new, changed or gone since, relative to the project.
    pub fn changes(&self, worktree: &Worktree) -> Vec<String> {
        let now = Self::look(worktree);
        let paths = self.0.keys().chain(now.0.keys().filter(|path| !self.0.contains_key(*path)));
        let changed = paths.filter(|path| self.0.get(*path) != now.0.get(*path));
        changed.map(|path| base::text::escaped(&worktree.relative(path))).collect()
    }
}

impl WatchedFile {
    fn look(path: &Path, left: &mut u64) -> Option<Self> {
        let data = fs::symlink_metadata(path).ok()?;
        if data.is_symlink() {
            let target = fs::read_link(path).unwrap_or_default();
            let there = fs::metadata(path).ok().map(|data| Box::new(Self::of(path, &data, left)));
            return Some(Self::Link(target, there));
        }
        Some(Self::of(path, &data, left))
    }

    fn of(path: &Path, data: &Metadata, left: &mut u64) -> Self {
        if data.is_dir() {
            return Self::Directory;
        }
        let unread = || Self::Unread(data.mode(), data.len(), data.ino(), (data.ctime(), data.ctime_nsec()));
        if !data.is_file() || data.len() > *left {
            return unread();
        }
        // It may have become a pipe since, which must not be waited for.
        let open = fs::OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(path);
        let mut bytes = Vec::new();
        match open.and_then(|file| file.take(*left).read_to_end(&mut bytes)) {
            Ok(read) => {
                *left -= u64::try_from(read).unwrap_or(*left).min(*left);
                let sum = digest(&SHA256, &bytes);
                sum.as_ref().try_into().map_or_else(|_| unread(), |sum| Self::File(data.mode(), sum))
            }
            Err(_) => unread(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::test::TestProject;
    use super::*;

    /// What is there before, what is done to the project, which paths are told.
    type Row = (&'static str, &'static [&'static str], fn(&Path), &'static [&'static str]);

    fn put(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    const TABLE: &[Row] = &[
        ("nothing", &[".git/config", "AGENTS.md"], |_| {}, &[]),
        ("an ordinary file", &["src/a.rs"], |p| put(p.join("src/a.rs"), "after"), &[]),
        ("a commit", &[".git/HEAD"], |p| put(p.join(".git/objects/aa/b"), "x"), &[]),
        (
            "a hook",
            &[".git/config"],
            |p| put(p.join(".git/hooks/pre-push"), "x"),
            &[".git/hooks", ".git/hooks/pre-push"],
        ),
        ("a sample", &[".git/hooks/a"], |p| put(p.join(".git/hooks/b.sample"), "x"), &[]),
        ("a removed hook", &[".git/hooks/a"], |p| fs::remove_file(p.join(".git/hooks/a")).unwrap(), &[".git/hooks/a"]),
        (
            "a hook that runs now",
            &[".git/hooks/a"],
            |p| fs::set_permissions(p.join(".git/hooks/a"), fs::Permissions::from_mode(0o755)).unwrap(),
            &[".git/hooks/a"],
        ),
        (
            "of the same size and time",
            &[".git/config"],
            |p| {
                let path = p.join(".git/config");
                let time = fs::metadata(&path).unwrap().modified().unwrap();
                fs::write(&path, "BEFORE").unwrap();
                fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            },
            &[".git/config"],
        ),
        ("the same again", &[".git/config"], |p| put(p.join(".git/config"), "before"), &[]),
        (
            "a submodule's",
            &[".git/modules/a/b/HEAD", ".git/modules/a/b/config"],
            |p| put(p.join(".git/modules/a/b/config"), "x"),
            &[".git/modules/a/b/config"],
        ),
        (
            "a linked work tree's",
            &[".git/worktrees/w/HEAD"],
            |p| put(p.join(".git/worktrees/w/config.worktree"), "x"),
            &[".git/worktrees/w/config.worktree"],
        ),
        ("instructions", &[".git/HEAD"], |p| put(p.join("AGENTS.md"), "x"), &["AGENTS.md"]),
        ("in any case", &[".git/HEAD"], |p| put(p.join("Claude.MD"), "x"), &["Claude.MD"]),
        (
            "an agent's settings",
            &[".claude/settings.json"],
            |p| put(p.join(".claude/settings.json"), "x"),
            &[".claude/settings.json"],
        ),
        (
            "deep in there",
            &[".cursor/rules/a"],
            |p| put(p.join(".cursor/rules/b/c"), "x"),
            &[".cursor/rules/b", ".cursor/rules/b/c"],
        ),
        (
            "a new folder",
            &[".git/HEAD"],
            |p| put(p.join(".vscode/tasks.json"), "x"),
            &[".vscode", ".vscode/tasks.json"],
        ),
        (
            "a hidden folder's",
            &[".cargo/credentials"],
            |p| put(p.join(".cargo/config.toml"), "x"),
            &[".cargo/config.toml"],
        ),
        ("a plan", &[".opencode/plans/a.md"], |p| put(p.join(".opencode/plans/b.md"), "x"), &[]),
        (
            "through a link",
            &["docs/agents.txt", "AGENTS.md:docs/agents.txt"],
            |p| put(p.join("docs/agents.txt"), "x"),
            &["AGENTS.md"],
        ),
    ];

    #[test]
    fn changed_control_files_are_seen() {
        for (what, before, act, told) in TABLE {
            let stage = TestProject::new();
            fs::create_dir_all(stage.cwd().join(".git")).unwrap();
            for path in *before {
                match path.split_once(':') {
                    Some((link, to)) => std::os::unix::fs::symlink(to, stage.cwd().join(link)).unwrap(),
                    None => stage.write(path, "before"),
                }
            }
            let tree = Worktree::find(&stage.cwd(), &[], None);
            let watch = ControlFiles::look(&tree);
            act(&stage.cwd());
            let mut changes = watch.changes(&tree);
            changes.sort();
            assert_eq!(changes, *told, "{what}");
        }
    }

    /// A pipe in the place of a file is not waited for, a flood is not read.
    #[test]
    fn what_cannot_be_read_is_seen_all_the_same() {
        let stage = TestProject::new();
        stage.write(".git/HEAD", "x");
        let tree = Worktree::find(&stage.cwd(), &[], None);
        let path = stage.cwd().join("AGENTS.md");
        let large = fs::File::create(&path).unwrap();
        large.set_len(ControlFiles::MOST_BYTES * 4).unwrap();
        let watch = ControlFiles::look(&tree);
        assert_eq!(watch.changes(&tree), Vec::<String>::new());
        large.set_len(ControlFiles::MOST_BYTES * 5).unwrap();
        assert_eq!(watch.changes(&tree), ["AGENTS.md"]);
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(watch.changes(&tree), ["AGENTS.md"]);
    }

    #[test]
    fn what_can_be_protected_is_made() {
        let stage = TestProject::new();
        stage.write(".git/HEAD", "x");
        let tree = Worktree::find(&stage.cwd(), &[], None);
        prepare(&tree);
        prepare(&tree);
        let mut found: Vec<String> = control_files(&tree).iter().map(|path| tree.relative(path)).collect();
        found.sort();
        assert_eq!(found, [".git/hooks", ".git/info/attributes"]);
    }
}
