//! Control files: files that determine what runs on this machine or what an agent may do. Finds
//! those of a project, and detects whether a command has changed any, since the system cannot
//! protect all of them.
//!
//! They are compared by content, because sizes and times can be forged. No mechanism can prevent a
//! new one below the project: bubblewrap hides only existing files, and placeholders would be
//! visible to everyone who works in the project.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

use base::worktree::Worktree;
use permission::protected;

/// Returns the control files and directories of a project: the entries of its directories, and of
/// hidden directories in them, that `crates/permission/src/protected.rs` lists; and in its git
/// directories the files that git obeys. Reads the disk.
pub fn control_files(worktree: &Worktree) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for root in std::iter::once(&worktree.root).chain(&worktree.extra) {
        for (name, path) in entries(root) {
            let name = PathBuf::from(name);
            let hidden = name.as_os_str().as_encoded_bytes().starts_with(b".");
            if name.as_os_str().eq_ignore_ascii_case(".git") && path.is_dir() {
                // Most of it changes with every commit; the relevant files follow below.
            } else if protected::control(&name) {
                found.push(path);
            } else if hidden && path.is_dir() {
                let inside = entries(&path).into_iter();
                found.extend(
                    inside
                        .filter(|(entry, _)| protected::control(&name.join(entry)))
                        .map(|(_, path)| path),
                );
            }
        }
    }
    for dir in git_dirs(worktree) {
        found.extend(
            protected::GIT
                .iter()
                .map(|name| dir.join(name))
                .filter(|path| path.symlink_metadata().is_ok()),
        );
    }
    found
}

/// Returns the project's git directories, with those for submodules and linked worktrees.
fn git_dirs(worktree: &Worktree) -> Vec<PathBuf> {
    /// The maximum number of git directories.
    const MAX_GIT_DIRS: usize = 64;
    let mut dirs: Vec<PathBuf> = worktree.git_dirs();
    dirs.extend(
        worktree
            .extra
            .iter()
            .map(|root| root.join(".git"))
            .filter(|dir| dir.is_dir()),
    );
    let mut waiting: VecDeque<PathBuf> = dirs.iter().map(|dir| dir.join("modules")).collect();
    let trees: Vec<PathBuf> = dirs.iter().map(|dir| dir.join("worktrees")).collect();
    dirs.extend(
        trees
            .iter()
            .flat_map(|trees| entries(trees))
            .map(|(_, path)| path),
    );
    while dirs.len() < MAX_GIT_DIRS
        && let Some(folder) = waiting.pop_front()
    {
        // A submodule's name may contain slashes.
        for (_, path) in entries(&folder) {
            if path.join("HEAD").is_file() {
                waiting.push_back(path.join("modules"));
                dirs.push(path);
            } else if path.is_dir() {
                waiting.push_back(path);
            }
        }
    }
    dirs.truncate(MAX_GIT_DIRS);
    dirs
}

/// Creates the paths in git directories that can only be protected if they exist. Git creates most
/// of them on its own; empty ones have no effect, and they are not part of the work tree.
pub fn prepare(worktree: &Worktree) {
    for dir in worktree
        .git_dirs()
        .into_iter()
        .filter(|dir| dir.join("HEAD").is_file() && !dir.join("commondir").exists())
    {
        // A path that cannot be created is still observed.
        fs::create_dir(dir.join("hooks")).ok();
        fs::create_dir(dir.join("info")).ok();
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(dir.join("info/attributes"))
            .ok();
    }
}

/// Returns the entries of a directory, each with its name and path.
fn entries(dir: &Path) -> Vec<(std::ffi::OsString, PathBuf)> {
    /// The maximum number of entries of a directory that are read.
    const MAX_ENTRIES: usize = 4096;
    let entries = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_ENTRIES);
    entries
        .map(|entry| (entry.file_name(), entry.path()))
        .collect()
}

/// The state of a project's control files before a command.
#[derive(Debug, PartialEq, Eq)]
pub struct ControlFiles(BTreeMap<PathBuf, WatchedFile>);

/// The state of one control file or directory.
#[derive(Debug, PartialEq, Eq)]
enum WatchedFile {
    Directory,
    /// Its mode and the digest of its content.
    File(u32, [u8; 32]),
    /// Its target, and the state of the target.
    Link(PathBuf, Option<Box<WatchedFile>>),
    /// Not read, because it is too large, one too many, or not a regular file: its mode, size,
    /// inode and change time, which cannot be forged.
    Unread(u32, u64, u64, (i64, i64)),
}

impl ControlFiles {
    /// The maximum number of bytes that are read; files beyond it are compared by their change
    /// time.
    const MAX_BYTES: u64 = 8 << 20;
    /// The maximum number of files; those beyond it are not compared.
    const MAX_FILES: usize = 4096;

    /// Records the state of the control files, without the content of `node_modules`.
    pub fn read(worktree: &Worktree) -> Self {
        let mut left = Self::MAX_BYTES;
        let mut seen = BTreeMap::new();
        let mut waiting: VecDeque<PathBuf> = control_files(worktree).into();
        while seen.len() < Self::MAX_FILES
            && let Some(path) = waiting.pop_front()
        {
            let Some(what) = WatchedFile::read(&path, &mut left) else {
                continue;
            };
            if what == WatchedFile::Directory {
                let wanted = |(name, path): &(std::ffi::OsString, PathBuf)| {
                    let shown = path.strip_prefix(&worktree.root).unwrap_or(path);
                    // Agents may write plans, and sample hooks do not run.
                    name != "node_modules"
                        && !protected::is_plan(shown)
                        && !name.as_encoded_bytes().ends_with(b".sample")
                };
                waiting.extend(
                    entries(&path)
                        .into_iter()
                        .filter(wanted)
                        .map(|(_, path)| path),
                );
            }
            seen.insert(path, what);
        }
        Self(seen)
    }

    /// Returns the paths that are new, changed or removed since, relative to the project.
    pub fn changes(&self, worktree: &Worktree) -> Vec<String> {
        let now = Self::read(worktree);
        let paths = self
            .0
            .keys()
            .chain(now.0.keys().filter(|path| !self.0.contains_key(*path)));
        let changed = paths.filter(|path| self.0.get(*path) != now.0.get(*path));
        changed
            .map(|path| base::text::escaped(&worktree.relative(path)))
            .collect()
    }
}

impl WatchedFile {
    /// Returns the state of a path; `None` if it does not exist. `left` is the number of bytes that
    /// may still be read.
    fn read(path: &Path, left: &mut u64) -> Option<Self> {
        let data = fs::symlink_metadata(path).ok()?;
        if data.is_symlink() {
            let target = fs::read_link(path).unwrap_or_default();
            let there = fs::metadata(path)
                .ok()
                .map(|data| Box::new(Self::of(path, &data, left)));
            return Some(Self::Link(target, there));
        }
        Some(Self::of(path, &data, left))
    }

    /// Returns the state of a file or directory that is not a symlink.
    fn of(path: &Path, data: &Metadata, left: &mut u64) -> Self {
        if data.is_dir() {
            return Self::Directory;
        }
        let unread = || {
            Self::Unread(
                data.mode(),
                data.len(),
                data.ino(),
                (data.ctime(), data.ctime_nsec()),
            )
        };
        if !data.is_file() || data.len() > *left {
            return unread();
        }
        // It may have become a pipe since, and opening a pipe must not block.
        let open = fs::OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(path);
        let mut bytes = Vec::new();
        match open.and_then(|file| file.take(*left).read_to_end(&mut bytes)) {
            Ok(read) => {
                *left -= u64::try_from(read).unwrap_or(*left).min(*left);
                let sum = digest(&SHA256, &bytes);
                sum.as_ref()
                    .try_into()
                    .map_or_else(|_| unread(), |sum| Self::File(data.mode(), sum))
            }
            Err(_) => unread(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::test::TestProject;

    /// The files before, the changes to the project, the reported paths.
    type Row = (
        &'static str,
        &'static [&'static str],
        fn(&Path),
        &'static [&'static str],
    );

    fn put(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    const TABLE: &[Row] = &[
        ("nothing", &[".git/config", "AGENTS.md"], |_| {}, &[]),
        (
            "an ordinary file",
            &["src/a.rs"],
            |p| put(p.join("src/a.rs"), "after"),
            &[],
        ),
        (
            "a commit",
            &[".git/HEAD"],
            |p| put(p.join(".git/objects/aa/b"), "x"),
            &[],
        ),
        (
            "a hook",
            &[".git/config"],
            |p| put(p.join(".git/hooks/pre-push"), "x"),
            &[".git/hooks", ".git/hooks/pre-push"],
        ),
        (
            "a sample",
            &[".git/hooks/a"],
            |p| put(p.join(".git/hooks/b.sample"), "x"),
            &[],
        ),
        (
            "a removed hook",
            &[".git/hooks/a"],
            |p| fs::remove_file(p.join(".git/hooks/a")).unwrap(),
            &[".git/hooks/a"],
        ),
        (
            "a hook that runs now",
            &[".git/hooks/a"],
            |p| {
                fs::set_permissions(p.join(".git/hooks/a"), fs::Permissions::from_mode(0o755))
                    .unwrap()
            },
            &[".git/hooks/a"],
        ),
        (
            "of the same size and time",
            &[".git/config"],
            |p| {
                let path = p.join(".git/config");
                let time = fs::metadata(&path).unwrap().modified().unwrap();
                fs::write(&path, "BEFORE").unwrap();
                fs::File::options()
                    .write(true)
                    .open(&path)
                    .unwrap()
                    .set_modified(time)
                    .unwrap();
            },
            &[".git/config"],
        ),
        (
            "the same again",
            &[".git/config"],
            |p| put(p.join(".git/config"), "before"),
            &[],
        ),
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
        (
            "instructions",
            &[".git/HEAD"],
            |p| put(p.join("AGENTS.md"), "x"),
            &["AGENTS.md"],
        ),
        (
            "in any case",
            &[".git/HEAD"],
            |p| put(p.join("Claude.MD"), "x"),
            &["Claude.MD"],
        ),
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
        (
            "a plan",
            &[".opencode/plans/a.md"],
            |p| put(p.join(".opencode/plans/b.md"), "x"),
            &[],
        ),
        (
            "through a link",
            &["docs/agents.txt", "AGENTS.md:docs/agents.txt"],
            |p| put(p.join("docs/agents.txt"), "x"),
            &["AGENTS.md"],
        ),
    ];

    #[test]
    fn changed_control_files_are_detected() {
        for (what, before, act, told) in TABLE {
            let fixture = TestProject::new();
            fs::create_dir_all(fixture.cwd().join(".git")).unwrap();
            for path in *before {
                match path.split_once(':') {
                    Some((link, to)) => {
                        std::os::unix::fs::symlink(to, fixture.cwd().join(link)).unwrap()
                    }
                    None => fixture.write(path, "before"),
                }
            }
            let tree = Worktree::find(&fixture.cwd(), &[], None);
            let watch = ControlFiles::read(&tree);
            act(&fixture.cwd());
            let mut changes = watch.changes(&tree);
            changes.sort();
            assert_eq!(changes, *told, "{what}");
        }
    }

    /// A pipe in place of a file does not block, and a large file is not read.
    #[test]
    fn unreadable_control_files_are_detected() {
        let fixture = TestProject::new();
        fixture.write(".git/HEAD", "x");
        let tree = Worktree::find(&fixture.cwd(), &[], None);
        let path = fixture.cwd().join("AGENTS.md");
        let large = fs::File::create(&path).unwrap();
        large.set_len(ControlFiles::MAX_BYTES * 4).unwrap();
        let watch = ControlFiles::read(&tree);
        assert_eq!(watch.changes(&tree), Vec::<String>::new());
        large.set_len(ControlFiles::MAX_BYTES * 5).unwrap();
        assert_eq!(watch.changes(&tree), ["AGENTS.md"]);
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(watch.changes(&tree), ["AGENTS.md"]);
    }

    #[test]
    fn protectable_paths_are_created() {
        let fixture = TestProject::new();
        fixture.write(".git/HEAD", "x");
        let tree = Worktree::find(&fixture.cwd(), &[], None);
        prepare(&tree);
        prepare(&tree);
        let mut found: Vec<String> = control_files(&tree)
            .iter()
            .map(|path| tree.relative(path))
            .collect();
        found.sort();
        assert_eq!(found, [".git/hooks", ".git/info/attributes"]);
    }
}
