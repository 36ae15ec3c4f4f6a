//! Whether one file is ignored, without listing its directory: the rules that `snapshot/index.rs` has `ignore` apply
//! while it walks, applied to a path.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Directories of version control; what is in them is not recorded.
pub(super) const REPOSITORIES: &[&str] = &[".git", ".hg", ".svn", ".jj"];

/// The files that say what is ignored, the stronger first.
const LISTS: [&str; 2] = [".ignore", ".gitignore"];

/// What is ignored in a project. What was read of it stays in memory until one of the lists is about to change.
#[derive(Debug)]
pub(super) struct IgnoreRules {
    root: PathBuf,
    /// Where our own things lie, which may be inside the project.
    data: PathBuf,
    /// There is no repository, so nobody may have said what is to be ignored.
    bare: bool,
    excluded: Gitignore,
    everywhere: Gitignore,
    dirs: HashMap<PathBuf, Arc<DirRules>>,
    /// A list is being changed: nothing that was read may be used again.
    changing: bool,
}

#[derive(Debug)]
struct DirRules {
    /// By place in [`LISTS`].
    lists: [Gitignore; 2],
    /// It is the root of a repository: lists of git above it do not count.
    repository: bool,
    /// The uppermost directory that is ignored, this one or one above it.
    ignored: Option<PathBuf>,
}

impl IgnoreRules {
    pub(super) fn new(root: &Path, data: &Path) -> Self {
        Self {
            root: root.to_owned(),
            data: data.to_owned(),
            bare: !root.join(".git").exists(),
            excluded: rules(root, &excluding(root)),
            everywhere: Gitignore::global().0,
            dirs: HashMap::new(),
            changing: false,
        }
    }

    /// What is ignored of a path below the root: itself, or the uppermost directory above it that is.
    pub(super) fn ignored(&mut self, path: &Path) -> Option<PathBuf> {
        if self.changing {
            self.dirs.clear();
        }
        let dir = path.parent()?.to_owned();
        if let Some(above) = &self.dir(&dir).ignored {
            return Some(above.clone());
        }
        let ignored = self.matches(path, false);
        if path.file_name().is_some_and(|name| LISTS.iter().any(|list| name == *list)) {
            self.changing = true;
        }
        ignored.then(|| path.to_owned())
    }

    /// What is ignored of a directory below the root.
    pub(super) fn ignored_dir(&mut self, dir: &Path) -> Option<PathBuf> {
        if self.changing {
            self.dirs.clear();
        }
        self.dir(dir).ignored.clone()
    }

    fn dir(&mut self, dir: &Path) -> Arc<DirRules> {
        if let Some(known) = self.dirs.get(dir) {
            return known.clone();
        }
        let above = dir.parent().filter(|_| dir.starts_with(&self.root) && dir != self.root);
        let ignored = above.and_then(|above| {
            let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let by_name = REPOSITORIES.contains(&name) || self.bare && name == "node_modules" || dir == self.data;
            let above = self.dir(above).ignored.clone();
            above.or_else(|| (by_name || self.matches(dir, true)).then(|| dir.to_owned()))
        });
        let read = Arc::new(DirRules {
            lists: LISTS.map(|list| rules(dir, &dir.join(list))),
            repository: dir.join(".git").exists(),
            ignored,
        });
        self.dirs.insert(dir.to_owned(), read.clone());
        read
    }

    /// Whether a list names a path. A deeper list is stronger than one above it, lists of our kind than those of git.
    fn matches(&mut self, path: &Path, is_dir: bool) -> bool {
        let mut found = [None, None];
        let mut below_repository = true;
        for dir in path.ancestors().skip(1) {
            let rules = self.dir(dir);
            for (n, list) in rules.lists.iter().enumerate() {
                let counts = found[n].is_none() && (n == 0 || below_repository);
                found[n] = found[n].or_else(|| verdict(list, path, is_dir).filter(|_| counts));
            }
            below_repository &= !rules.repository;
        }
        let [ours, gits] = found;
        let named = ours.or(gits).or_else(|| verdict(&self.excluded, path, is_dir));
        named.or_else(|| verdict(&self.everywhere, path, is_dir)).unwrap_or(false)
    }
}

/// Returns the path of `info/exclude`, which lists ignored files of this work tree outside of it.
pub(super) fn excluding(root: &Path) -> PathBuf {
    let git = root.join(".git");
    let elsewhere = base::file::read_regular_text(&git).ok().and_then(|text| {
        let own = root.join(text.strip_prefix("gitdir:")?.trim());
        // A linked work tree shares it with the main one.
        let shared = base::file::read_regular_text(&own.join("commondir")).ok();
        Some(shared.map_or_else(|| own.clone(), |shared| own.join(shared.trim())))
    });
    elsewhere.unwrap_or(git).join("info/exclude")
}

/// Whether a list has a path ignored, or kept. None where it does not name it.
fn verdict(list: &Gitignore, path: &Path, is_dir: bool) -> Option<bool> {
    match list.matched(path, is_dir) {
        Match::None => None,
        Match::Ignore(_) => Some(true),
        Match::Whitelist(_) => Some(false),
    }
}

/// The rules of a list for what is below a directory. A list that is not there, or cannot be read, has none.
fn rules(dir: &Path, list: &Path) -> Gitignore {
    if fs::metadata(list).map_or(true, |data| !data.is_file()) {
        return Gitignore::empty();
    }
    let mut builder = GitignoreBuilder::new(dir);
    if let Some(e) = builder.add(list) {
        tracing::debug!("not all of {} is understood: {e}", list.display());
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

#[cfg(test)]
mod tests {
    use ignore::WalkBuilder;

    use super::*;

    /// The same files as a walk finds.
    #[test]
    fn a_path_is_ignored_as_a_walk_ignores_it() {
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
            fs::write(root.join(".gitignore"), "*.log\n!keep.log\n/target/\n/o/*\n!/o/p\n").unwrap();
            fs::write(root.join("deep/.gitignore"), "*.tmp\n").unwrap();
            fs::write(root.join("deep/kept/.gitignore"), "!*.log\n").unwrap();
            fs::write(root.join("o/p/.ignore"), "r.txt\n").unwrap();
            let mut walker = WalkBuilder::new(&root);
            let bare = !repository;
            let own = data.clone();
            walker.hidden(false).require_git(repository).filter_entry(move |entry| {
                let name = entry.file_name().to_str().unwrap_or_default();
                !(REPOSITORIES.contains(&name) || bare && name == "node_modules" || entry.path() == own)
            });
            let walked: std::collections::BTreeSet<PathBuf> =
                walker.build().flatten().map(|entry| entry.path().to_owned()).filter(|path| path.is_file()).collect();
            let mut rules = IgnoreRules::new(&root, &data);
            for file in files {
                let path = root.join(file);
                let ignored = rules.ignored(&path);
                assert_eq!(ignored.is_none(), walked.contains(&path), "{file}, repository: {repository}: {ignored:?}");
            }
            assert_eq!(rules.ignored(&root.join("target/x")), Some(root.join("target")));
            assert!(rules.ignored(&root.join("b.new")).is_none());
            // A list that is about to change is read again from then on.
            assert!(rules.ignored(&root.join(".gitignore")).is_none());
            fs::write(root.join(".gitignore"), "*.new\n").unwrap();
            assert!(rules.ignored(&root.join("b.new")).is_some());
        }
    }
}
