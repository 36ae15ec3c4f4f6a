//! Protected files under their other names. A hard link is the file itself, so the protection
//! applies under every name.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::PermissionContext;
use super::protected::{self, Protected};

/// Directory entries that are read in search of the protected files of one place.
const MAX_ENTRIES: usize = 20_000;
/// Depth of the search in the home directory; its own files are at depth 1.
const MAX_HOME_DEPTH: usize = 3;
/// Depth of the search in our own data; its keys are at depth 1.
const MAX_DATA_DEPTH: usize = 2;
/// Directories whose files come from elsewhere.
const SKIPPED: [&str; 10] = [
    "node_modules",
    "target",
    "dist",
    "build",
    ".venv",
    "objects",
    ".cache",
    ".rustup",
    ".npm",
    "registry",
];

/// Lifetime of a result. The search walks the project and the home directory, and without this a
/// package manager's linked store would repeat it for each file.
const MAX_AGE: Duration = Duration::from_secs(5);
/// Places whose results are cached.
const MAX_PLACES: usize = 16;

/// Recent results.
static RECENT: Mutex<Vec<Recent>> = Mutex::new(Vec::new());

/// The device and inode of a file.
pub(super) type FileId = (u64, u64);

/// The protected files of a context, by device and inode. Files with one name are included, since
/// they may get a second one while the result is in use.
#[derive(Debug, Default)]
pub(super) struct LinkedFiles {
    files: HashMap<FileId, Protected>,
    /// The files that may not be read without a question.
    unreadable: Vec<PathBuf>,
}

/// The directories that are searched.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SearchedDirs {
    data: PathBuf,
    home: Option<PathBuf>,
    roots: Vec<PathBuf>,
}

/// A search result with its time.
#[derive(Debug)]
struct Recent {
    dirs: SearchedDirs,
    at: Instant,
    files: Arc<LinkedFiles>,
}

impl SearchedDirs {
    fn of(context: &PermissionContext) -> Self {
        let roots = std::iter::once(&context.root)
            .chain(&context.extra_dirs)
            .cloned()
            .collect();
        Self {
            data: context.data_dir.clone(),
            home: context.home.clone(),
            roots,
        }
    }
}

impl LinkedFiles {
    /// Returns the protected files of the project, the home directory and our own data, at most
    /// [`MAX_AGE`] old.
    pub(super) fn of(context: &PermissionContext) -> Arc<Self> {
        let dirs = SearchedDirs::of(context);
        let mut recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|known| known.at.elapsed() < MAX_AGE);
        if let Some(known) = recent.iter().find(|known| known.dirs == dirs) {
            return known.files.clone();
        }
        let files = Arc::new(Self::find(&dirs));
        if recent.len() >= MAX_PLACES {
            recent.remove(0);
        }
        recent.push(Recent {
            dirs,
            at: Instant::now(),
            files: files.clone(),
        });
        files
    }

    fn find(dirs: &SearchedDirs) -> Self {
        let mut found = Self::default();
        if !dirs.data.as_os_str().is_empty() {
            let is_closed = |name: &OsStr, _: usize| {
                !["tool-output", "plans", "scratch"]
                    .iter()
                    .any(|open| name == *open)
            };
            found.below(&dirs.data, MAX_DATA_DEPTH, &is_closed, &|_| {
                Some(Protected::Own)
            });
        }
        if let Some(home) = &dirs.home {
            // Keys and settings lie below hidden directories, under names of any kind:
            // `~/.config/gh`.
            let is_hidden =
                |name: &OsStr, level: usize| level > 1 || name.as_encoded_bytes().starts_with(b".");
            found.below(home, MAX_HOME_DEPTH, &is_hidden, &|path| {
                by_name(path, home)
            });
        }
        for root in &dirs.roots {
            found.below(root, usize::MAX, &|_, _| true, &|path| by_name(path, root));
        }
        found
    }

    /// Returns the protection that a file has under one of its names.
    pub(super) fn protection(&self, file: &Metadata) -> Option<Protected> {
        self.files.get(&(file.dev(), file.ino())).copied()
    }

    /// Returns the files that may not be read without a question and have a second name now. There
    /// are nearly always none, and then a search need not check each file.
    pub(super) fn unreadable(&self) -> HashSet<FileId> {
        let files = self
            .unreadable
            .iter()
            .filter_map(|path| fs::metadata(path).ok());
        files
            .filter(|file| file.nlink() > 1)
            .map(|file| (file.dev(), file.ino()))
            .collect()
    }

    /// Adds the files below a directory. `enters` decides by name and depth which subdirectories
    /// are searched.
    fn below(
        &mut self,
        top: &Path,
        depth: usize,
        enters: &dyn Fn(&OsStr, usize) -> bool,
        kind: &dyn Fn(&Path) -> Option<Protected>,
    ) {
        let mut left = MAX_ENTRIES;
        let mut dirs: VecDeque<(PathBuf, usize)> = VecDeque::from([(top.to_owned(), 1)]);
        while let Some((dir, level)) = dirs.pop_front() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                if left == 0 {
                    return;
                }
                left -= 1;
                let Ok(of_entry) = entry.file_type() else {
                    continue;
                };
                let name = entry.file_name();
                if of_entry.is_dir() {
                    if level < depth
                        && SKIPPED.iter().all(|skipped| name != *skipped)
                        && enters(&name, level)
                    {
                        dirs.push_back((entry.path(), level + 1));
                    }
                } else if of_entry.is_file() {
                    self.add(&entry.path(), kind);
                }
            }
        }
    }

    fn add(&mut self, path: &Path, kind: &dyn Fn(&Path) -> Option<Protected>) {
        let Some(protected) = kind(path) else { return };
        let Ok(file) = fs::metadata(path) else { return };
        if protected != Protected::Control {
            self.unreadable.push(path.to_owned());
        }
        self.files
            .entry((file.dev(), file.ino()))
            .or_insert(protected);
    }
}

/// Returns whether a file is one of these, under any name.
pub(super) fn is_among(files: &HashSet<FileId>, path: &Path) -> bool {
    !files.is_empty()
        && fs::metadata(path).is_ok_and(|file| files.contains(&(file.dev(), file.ino())))
}

/// Returns whether a file has more than one name.
pub(super) fn has_other_names(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.nlink() > 1)
}

/// Returns the protection of a file by its name. `top` is the project or the home directory.
fn by_name(path: &Path, top: &Path) -> Option<Protected> {
    if protected::secret(path) {
        return Some(Protected::Secret);
    }
    protected::control(path.strip_prefix(top).unwrap_or(path)).then_some(Protected::Control)
}

#[cfg(test)]
mod tests {
    use std::fs::hard_link;

    use super::LinkedFiles;
    use crate::case_tables::{PathFixture, bash_rules, judge};
    use crate::locate::locate;
    use crate::protected::Protected;
    use crate::search_filter::SearchFilter;
    use crate::{Action, PermissionContext, Policy, Rules};

    #[test]
    fn hard_link_to_a_protected_file_is_protected() {
        let lab = PathFixture::new();
        let root = &lab.context.root;
        let home = lab.context.home.clone().unwrap();
        for dir in [
            home.join(".ssh"),
            home.join(".config/gh"),
            root.join("deploy/deep"),
            lab.context.data_dir.clone(),
        ] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let files = [
            home.join(".ssh/id_rsa"),
            root.join("deploy/deep/server.pem"),
            lab.context.data_dir.join("auth.json"),
            home.join(".config/gh/hosts.yml"),
        ];
        for file in files.iter().chain([&root.join("src/plain")]) {
            std::fs::write(file, "x").unwrap();
        }
        hard_link(root.join(".env"), root.join("notes.txt")).unwrap();
        hard_link(&files[0], root.join("k")).unwrap();
        hard_link(&files[1], root.join("src/p")).unwrap();
        hard_link(&files[2], root.join("a")).unwrap();
        hard_link(&files[3], root.join("g")).unwrap();
        hard_link(root.join(".git/config"), root.join("c")).unwrap();
        hard_link(root.join("src/plain"), root.join("src/second")).unwrap();
        let table = [
            ("notes.txt", Some(Protected::Secret)),
            ("k", Some(Protected::Secret)),
            ("src/p", Some(Protected::Secret)),
            ("a", Some(Protected::Own)),
            ("g", Some(Protected::Secret)),
            ("c", Some(Protected::Control)),
            ("src/second", None),
            ("a.txt", None),
        ];
        for (name, wanted) in table {
            assert_eq!(
                locate(name, &lab.context).unwrap().protected,
                wanted,
                "{name}"
            );
        }
        let free = bash_rules(&lab.context, &[("*", Action::Allow)]).then(&Rules::built_in(&[(
            "*",
            "*",
            Action::Allow,
        )]));
        for (line, wanted) in [
            ("cat notes.txt", Action::Ask),
            ("grep x src/p", Action::Ask),
            ("grep -r x src", Action::Ask),
            ("cat a", Action::Deny),
            ("cat src/second", Action::Allow),
            ("cat c", Action::Allow),
        ] {
            assert_eq!(judge(&free, line, &lab.context).action, wanted, "{line}");
        }
    }

    #[test]
    fn search_leaves_out_a_hard_link_to_a_secret() {
        let lab = PathFixture::new();
        let root = &lab.context.root;
        std::fs::write(root.join("src/plain"), "x").unwrap();
        hard_link(root.join("src/plain"), root.join("src/second")).unwrap();
        hard_link(root.join(".env"), root.join("src/notes.txt")).unwrap();
        let filter = SearchFilter::new(&Policy {
            context: lab.context.clone(),
            ..Policy::default()
        });
        let mut reader = filter.reader();
        for (name, wanted) in [
            ("src/notes.txt", Action::Ask),
            ("src/second", Action::Allow),
            ("src/deep/f", Action::Allow),
        ] {
            assert_eq!(reader.judge(&root.join(name)), wanted, "{name}");
        }
        let free = bash_rules(&lab.context, &[("*", Action::Allow)]);
        assert_eq!(
            judge(&free, "grep -r x src/deep", &lab.context).action,
            Action::Allow
        );
        assert_eq!(
            judge(&free, "grep -r x src", &lab.context).action,
            Action::Ask
        );
    }

    /// A project whose files are all links into a package store is searched once, not for each of
    /// them.
    #[test]
    fn protected_files_are_searched_once_for_many_paths() {
        let lab = PathFixture::new();
        let root = &lab.context.root;
        let first = LinkedFiles::of(&lab.context);
        assert!(std::sync::Arc::ptr_eq(
            &first,
            &LinkedFiles::of(&lab.context)
        ));
        let elsewhere = PermissionContext {
            root: lab.out.clone(),
            ..lab.context.clone()
        };
        assert!(!std::sync::Arc::ptr_eq(
            &first,
            &LinkedFiles::of(&elsewhere)
        ));
        // A new second name of a known file counts at once.
        hard_link(root.join(".env"), root.join("later.txt")).unwrap();
        assert_eq!(
            locate("later.txt", &lab.context).unwrap().protected,
            Some(Protected::Secret)
        );
    }
}
