//! Applies ignore rules to a single path, without listing its directory. The results are those of
//! the `ignore` crate, with which `index.rs` walks a project.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Directories of version control, whose contents are not recorded.
pub(super) const REPOSITORIES: &[&str] = &[".git", ".hg", ".svn", ".jj"];

/// Files with ignore rules, in order of precedence.
const IGNORE_FILES: [&str; 2] = [".ignore", ".gitignore"];

/// The ignore rules of a project. They are cached until one of the files with rules is about to
/// change.
#[derive(Debug)]
pub(super) struct IgnoreRules {
    root: PathBuf,
    /// The directory of adjutant's data, which may be inside the project.
    data: PathBuf,
    /// True if there is no repository, and so possibly no ignore rules.
    is_bare: bool,
    /// The rules of `info/exclude`.
    excluded: Gitignore,
    /// The rules of the user's global file.
    global: Gitignore,
    /// The cached rules, by directory.
    dirs: HashMap<PathBuf, Arc<DirRules>>,
    /// True if a file with rules is being changed, so that cached rules must not be used.
    is_changing: bool,
}

/// The ignore rules of a directory.
#[derive(Debug)]
struct DirRules {
    /// In the order of [`IGNORE_FILES`].
    lists: [Gitignore; 2],
    /// True if it is the root of a repository. Rules of git above it do not apply.
    is_repository: bool,
    /// The uppermost ignored directory, which is this one or a parent of it.
    ignored: Option<PathBuf>,
    parent: Option<Arc<Self>>,
}

impl IgnoreRules {
    pub(super) fn new(root: &Path, data: &Path) -> Self {
        Self {
            root: root.to_owned(),
            data: data.to_owned(),
            is_bare: !root.join(".git").exists(),
            excluded: rules(root, &excluding(root)),
            global: Gitignore::global().0,
            dirs: HashMap::new(),
            is_changing: false,
        }
    }

    /// Returns the ignored part of a path below the root: the path itself, or its uppermost ignored
    /// parent.
    pub(super) fn ignored(&mut self, path: &Path) -> Option<PathBuf> {
        if self.is_changing {
            self.dirs.clear();
        }
        let dir = self.dir(path.parent()?);
        if let Some(parent) = &dir.ignored {
            return Some(parent.clone());
        }
        let ignored = self.matches(&dir, path, false);
        if path
            .file_name()
            .is_some_and(|name| IGNORE_FILES.iter().any(|list| name == *list))
        {
            self.is_changing = true;
        }
        ignored.then(|| path.to_owned())
    }

    /// Returns the uppermost ignored directory among a directory below the root and its parents.
    pub(super) fn ignored_dir(&mut self, dir: &Path) -> Option<PathBuf> {
        if self.is_changing {
            self.dirs.clear();
        }
        self.dir(dir).ignored.clone()
    }

    /// Returns the rules of a directory, which are read if necessary.
    fn dir(&mut self, dir: &Path) -> Arc<DirRules> {
        if let Some(known) = self.dirs.get(dir) {
            return known.clone();
        }
        let is_below_root = dir.starts_with(&self.root) && dir != self.root;
        let parent = dir.parent().map(|parent| self.dir(parent));
        let ruling_parent = if is_below_root { parent.as_ref() } else { None };
        let ignored = ruling_parent.and_then(|parent| {
            let name = dir
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let by_name = REPOSITORIES.contains(&name)
                || self.is_bare && name == "node_modules"
                || dir == self.data;
            let ignored_parent = parent.ignored.clone();
            ignored_parent
                .or_else(|| (by_name || self.matches(parent, dir, true)).then(|| dir.to_owned()))
        });
        let rules = Arc::new(DirRules {
            lists: IGNORE_FILES.map(|list| rules(dir, &dir.join(list))),
            is_repository: dir.join(".git").exists(),
            ignored,
            parent,
        });
        self.dirs.insert(dir.to_owned(), rules.clone());
        rules
    }

    /// Returns whether the rules ignore a path in a directory. Rules in a deeper directory take
    /// precedence, and `.ignore` takes precedence over the rules of git.
    fn matches(&self, dir: &DirRules, path: &Path, is_dir: bool) -> bool {
        let mut verdicts = [None, None];
        let mut is_in_repository = true;
        for rules in std::iter::successors(Some(dir), |dir| dir.parent.as_deref()) {
            for (n, list) in rules.lists.iter().enumerate() {
                let applies = n == 0 || is_in_repository;
                if applies && verdicts[n].is_none() {
                    verdicts[n] = verdict(list, path, is_dir);
                }
            }
            is_in_repository &= !rules.is_repository;
        }
        let [from_ignore, from_gitignore] = verdicts;
        let from_files = from_ignore.or(from_gitignore);
        let with_excluded = from_files.or_else(|| verdict(&self.excluded, path, is_dir));
        with_excluded
            .or_else(|| verdict(&self.global, path, is_dir))
            .unwrap_or(false)
    }
}

/// Returns the path of `info/exclude`, which contains ignore rules for the whole work tree.
pub(super) fn excluding(root: &Path) -> PathBuf {
    let git = root.join(".git");
    let git_directory = base::file::read_regular_text(&git).ok().and_then(|text| {
        let own = root.join(text.strip_prefix("gitdir:")?.trim());
        // A linked work tree uses the file of the main one.
        let shared = base::file::read_regular_text(&own.join("commondir")).ok();
        Some(shared.map_or_else(|| own.clone(), |shared| own.join(shared.trim())))
    });
    git_directory.unwrap_or(git).join("info/exclude")
}

/// Returns whether rules ignore or re-include a path, or `None` if they do not match it.
fn verdict(list: &Gitignore, path: &Path, is_dir: bool) -> Option<bool> {
    match list.matched(path, is_dir) {
        Match::None => None,
        Match::Ignore(_) => Some(true),
        Match::Whitelist(_) => Some(false),
    }
}

/// Reads the rules for paths below a directory. A missing or unreadable file has none.
///
/// The library would open a file of any type, and wait for the other end of a pipe.
pub(super) fn rules(dir: &Path, list: &Path) -> Gitignore {
    let Ok(bytes) = base::file::read_regular(list) else {
        return Gitignore::empty();
    };
    let mut builder = GitignoreBuilder::new(dir);
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    for line in text.split(|byte| *byte == b'\n') {
        // The library reads no line after one that is not UTF-8.
        let Ok(line) = std::str::from_utf8(line) else {
            tracing::debug!("not all of {} is UTF-8", list.display());
            break;
        };
        let line = line.strip_suffix('\r').unwrap_or(line);
        if let Err(e) = builder.add_line(Some(list.to_owned()), line) {
            tracing::debug!("not all of {} is understood: {e}", list.display());
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ignore::WalkBuilder;

    use super::*;

    /// Compares the results with those of a walk.
    #[test]
    fn path_is_ignored_as_in_a_walk() {
        for repository in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let above = fs::canonicalize(dir.path()).unwrap();
            let root = above.join("project");
            let data = root.join("state");
            let files = [
                "a.txt",
                "a.log",
                "keep.log",
                "deep/b.log",
                "deep/kept/c.log",
                "deep/kept/d.tmp",
                "target/x",
                "sub/target/y",
                "deep/target",
                "node_modules/m/i.js",
                "outer.bak",
                "excluded.x",
                "state/own",
                "deep/.hidden",
                "o/p/q.txt",
                "o/p/r.txt",
                ".jj/store",
            ];
            for file in files {
                fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
                fs::write(root.join(file), "").unwrap();
            }
            if repository {
                fs::create_dir_all(root.join(".git/info")).unwrap();
                fs::write(root.join(".git/info/exclude"), "excluded.x\n").unwrap();
            }
            fs::write(above.join(".gitignore"), "*.bak\n").unwrap();
            fs::write(
                root.join(".gitignore"),
                "*.log\n!keep.log\n/target/\n/o/*\n!/o/p\n",
            )
            .unwrap();
            fs::write(root.join("deep/.gitignore"), "*.tmp\n").unwrap();
            fs::write(root.join("deep/kept/.gitignore"), "!*.log\n").unwrap();
            fs::write(root.join("o/p/.ignore"), "r.txt\n").unwrap();
            let mut walker = WalkBuilder::new(&root);
            let bare = !repository;
            let own = data.clone();
            walker
                .hidden(false)
                .require_git(repository)
                .filter_entry(move |entry| {
                    let name = entry.file_name().to_str().unwrap_or_default();
                    !(REPOSITORIES.contains(&name)
                        || bare && name == "node_modules"
                        || entry.path() == own)
                });
            let walked: std::collections::BTreeSet<PathBuf> = walker
                .build()
                .flatten()
                .map(|entry| entry.path().to_owned())
                .filter(|path| path.is_file())
                .collect();
            let mut rules = IgnoreRules::new(&root, &data);
            for file in files {
                let path = root.join(file);
                let ignored = rules.ignored(&path);
                assert_eq!(
                    ignored.is_none(),
                    walked.contains(&path),
                    "{file}, repository: {repository}: {ignored:?}"
                );
            }
            assert_eq!(
                rules.ignored(&root.join("target/x")),
                Some(root.join("target"))
            );
            assert!(rules.ignored(&root.join("b.new")).is_none());
            // A file with rules that is about to change is read again from then on.
            assert!(rules.ignored(&root.join(".gitignore")).is_none());
            fs::write(root.join(".gitignore"), "*.new\n").unwrap();
            assert!(rules.ignored(&root.join("b.new")).is_some());
        }
    }
}
