//! Files that are protected under another of their names. A hard link is the file itself: what holds keys or
//! decides what runs does so under every name it has.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::PermissionContext;
use super::protected::{self, Protected};

/// Entries of directories that are looked at for the protected files of one place.
const MAX_ENTRIES: usize = 20_000;
/// How deep directories of the home directory are looked at; its own files are at depth 1.
const MAX_HOME_DEPTH: usize = 3;
/// How deep our own data is looked at; its keys are at depth 1.
const MAX_DATA_DEPTH: usize = 2;
/// Directories whose files come from elsewhere.
const SKIPPED: [&str; 10] =
    ["node_modules", "target", "dist", "build", ".venv", "objects", ".cache", ".rustup", ".npm", "registry"];

/// The protected files that have more than one name, by device and inode.
#[derive(Debug, Default)]
pub(super) struct LinkedFiles(HashMap<(u64, u64), Protected>);

impl LinkedFiles {
    /// Looks for them in the project, in the home directory and in our own data.
    pub(super) fn find(place: &PermissionContext) -> Self {
        let mut found = Self::default();
        if !place.data.as_os_str().is_empty() {
            let is_open = |name: &OsStr| !["tool-output", "plans", "scratch"].iter().any(|open| name == *open);
            found.below(&place.data, MAX_DATA_DEPTH, &is_open, &|_| Some(Protected::Own));
        }
        if let Some(home) = &place.home {
            let is_hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
            found.below(home, MAX_HOME_DEPTH, &is_hidden, &|path| by_name(path, home));
        }
        for root in std::iter::once(&place.root).chain(&place.extra) {
            found.below(root, usize::MAX, &|_| true, &|path| by_name(path, root));
        }
        found
    }

    /// Returns why a file is special under one of its names.
    pub(super) fn protection(&self, file: &Metadata) -> Option<Protected> {
        self.0.get(&(file.dev(), file.ino())).copied()
    }

    /// Adds what lies below a directory, in those directories of which `enters` takes the name.
    fn below(
        &mut self,
        top: &Path,
        depth: usize,
        enters: &dyn Fn(&OsStr) -> bool,
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
                let Ok(of_entry) = entry.file_type() else { continue };
                let name = entry.file_name();
                if of_entry.is_dir() {
                    if level < depth && SKIPPED.iter().all(|skipped| name != *skipped) && enters(&name) {
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
        if file.nlink() > 1 {
            self.0.entry((file.dev(), file.ino())).or_insert(protected);
        }
    }
}

/// Returns why a file below a directory, the project or the home, is protected by its name.
fn by_name(path: &Path, top: &Path) -> Option<Protected> {
    if protected::secret(path) {
        return Some(Protected::Secret);
    }
    protected::control(path.strip_prefix(top).unwrap_or(path)).then_some(Protected::Control)
}

#[cfg(test)]
mod tests {
    use std::fs::hard_link;

    use crate::permission::cases::{Lab, judge, with};
    use crate::permission::paths::locate;
    use crate::permission::protected::Protected;
    use crate::permission::{Action, Rules};

    #[test]
    fn hard_link_to_a_protected_file_is_judged_by_what_it_is() {
        let lab = Lab::new();
        let root = &lab.place.root;
        let home = lab.place.home.clone().unwrap();
        for dir in [home.join(".ssh"), root.join("deploy/deep"), lab.place.data.clone()] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let files = [home.join(".ssh/id_rsa"), root.join("deploy/deep/server.pem"), lab.place.data.join("auth.json")];
        for file in files.iter().chain([&root.join("src/plain")]) {
            std::fs::write(file, "x").unwrap();
        }
        hard_link(root.join(".env"), root.join("notes.txt")).unwrap();
        hard_link(&files[0], root.join("k")).unwrap();
        hard_link(&files[1], root.join("src/p")).unwrap();
        hard_link(&files[2], root.join("a")).unwrap();
        hard_link(root.join(".git/config"), root.join("c")).unwrap();
        hard_link(root.join("src/plain"), root.join("src/second")).unwrap();
        let table = [
            ("notes.txt", Some(Protected::Secret)),
            ("k", Some(Protected::Secret)),
            ("src/p", Some(Protected::Secret)),
            ("a", Some(Protected::Own)),
            ("c", Some(Protected::Control)),
            ("src/second", None),
            ("a.txt", None),
        ];
        for (name, wanted) in table {
            assert_eq!(locate(name, &lab.place).unwrap().protected, wanted, "{name}");
        }
        let free = with(&lab.place, &[("*", Action::Allow)]).then(&Rules::built_in(&[("*", "*", Action::Allow)]));
        for (line, wanted) in [
            ("cat notes.txt", Action::Ask),
            ("grep x src/p", Action::Ask),
            ("cat a", Action::Deny),
            ("cat src/second", Action::Allow),
            ("cat c", Action::Allow),
        ] {
            assert_eq!(judge(&free, line, &lab.place).action, wanted, "{line}");
        }
    }
}
