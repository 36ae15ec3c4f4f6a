//! The project of a session: its root, its identity, and the paths that belong to it.

use std::path::{Component, Path, PathBuf};

use crate::git;

/// The directories of a session's project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worktree {
    /// The top level of the git work tree that contains the session's working directory; without
    /// git, the working directory itself. Symlinks are resolved.
    pub root: PathBuf,
    /// True if the root is a git work tree.
    pub git: bool,
    /// Further directories that belong to the session. Symlinks are resolved.
    pub extra: Vec<PathBuf>,
}

impl Worktree {
    /// Finds the project of a directory by looking for `.git` in it and its parents. `.git` is a
    /// directory, or the file of a linked work tree or submodule. Starts no program.
    ///
    /// A directory below a `.git` in `/` or in the home directory is a project of its own, because
    /// that work tree would contain everything. The two are projects if they are the working
    /// directory.
    pub fn find(cwd: &Path, extra: &[PathBuf], home: Option<&Path>) -> Self {
        let cwd = resolve(cwd);
        let git = cwd.ancestors().find(|dir| dir.join(".git").exists());
        let git = git.filter(|dir| dir.parent().is_some() && Some(*dir) != home || **dir == cwd);
        Self {
            root: git.map_or_else(|| cwd.clone(), Path::to_path_buf),
            git: git.is_some(),
            extra: extra.iter().map(|path| resolve(path)).collect(),
        }
    }

    /// Returns the directories of [`git::dirs`].
    pub fn git_dirs(&self) -> Vec<PathBuf> {
        git::dirs(&self.root)
    }

    /// Returns the address of the repository's `origin`, as `host/path`.
    pub fn origin(&self) -> Option<String> {
        self.git_dirs().last().and_then(|dir| git::origin(dir))
    }

    /// Returns the name of the project on all machines that share a store: the address of its
    /// repository, otherwise its path.
    pub fn shared_name(&self) -> String {
        self.origin().map_or_else(
            || self.root.display().to_string(),
            |origin| format!("git:{origin}"),
        )
    }

    /// Returns the name of a directory of the project on all machines that share a store.
    pub fn shared_directory_name(&self, cwd: &Path) -> String {
        let name = self.shared_name();
        let cwd = resolve(cwd);
        match cwd.strip_prefix(&self.root) {
            Ok(rest) if !rest.as_os_str().is_empty() => format!("{name}//{}", rest.display()),
            _ => name,
        }
    }

    /// Returns a path for display and for rules: relative to the root, with `..` if it is outside,
    /// always with `/`. A path that has only `/` in common with the root stays absolute.
    pub fn relative(&self, path: &Path) -> String {
        let path = normal(path);
        let inside = |root: &Path| {
            path.strip_prefix(root)
                .ok()
                .map(|rest| rest.display().to_string())
        };
        match inside(&self.root) {
            Some(rest) if rest.is_empty() => ".".into(),
            Some(rest) => rest.replace('\\', "/"),
            None => {
                let shared = self
                    .root
                    .ancestors()
                    .find(|dir| dir.parent().is_some() && path.starts_with(dir));
                let Some(shared) = shared else {
                    return path.display().to_string();
                };
                let up = self
                    .root
                    .strip_prefix(shared)
                    .map_or(0, |rest| rest.components().count());
                let rest = path.strip_prefix(shared).unwrap_or(&path);
                format!("{}{}", "../".repeat(up), rest.display())
            }
        }
    }

    /// Returns whether a resolved path lies in the project or one of the further directories. `/`
    /// counts as none of them.
    pub fn contains(&self, resolved: &Path) -> bool {
        let is_below = |root: &PathBuf| root.parent().is_some() && resolved.starts_with(root);
        is_below(&self.root) || self.extra.iter().any(is_below)
    }
}

/// Resolves symlinks, or only the text of a path that does not exist.
fn resolve(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| normal(path))
}

/// Removes `.` and resolves `..` in the text of a path, for display and for paths that do not
/// exist. It ignores symlinks, so it cannot decide whether a path is contained in a directory.
pub fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_from_the_root() {
        let tree = Worktree {
            root: "/w/p".into(),
            git: false,
            extra: vec![],
        };
        let table = [
            ("/w/p/src/a.rs", "src/a.rs"),
            ("/w/p", "."),
            ("/w/p/./x/../y", "y"),
            ("/w/other/f", "../other/f"),
            ("/etc/passwd", "/etc/passwd"),
            ("/w/p..hidden/f", "../p..hidden/f"),
        ];
        for (path, shown) in table {
            assert_eq!(tree.relative(Path::new(path)), shown, "{path}");
        }
    }

    #[test]
    fn git_directories_point_back() {
        let dir = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(dir.path()).unwrap();
        let main = dir.join("main/.git");
        for name in [
            "main/.git/worktrees/w",
            "main/.git/modules/m",
            "w",
            "m",
            "thief",
            ".ssh",
        ] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
        }
        let write = |path: &str, text: String| std::fs::write(dir.join(path), text).unwrap();
        write(
            "w/.git",
            format!("gitdir: {}\n", main.join("worktrees/w").display()),
        );
        write(
            "main/.git/worktrees/w/gitdir",
            format!("{}\n", dir.join("w/.git").display()),
        );
        write("main/.git/worktrees/w/commondir", "../..\n".into());
        write("m/.git", "gitdir: ../main/.git/modules/m\n".into());
        write(
            "main/.git/modules/m/config",
            "[core]\n\tworktree = ../../../../m\n".into(),
        );
        write(
            "thief/.git",
            format!("gitdir: {}\n", dir.join(".ssh").display()),
        );
        let dirs = |name: &str| Worktree::find(&dir.join(name), &[], None).git_dirs();
        assert_eq!(dirs("main"), std::slice::from_ref(&main));
        assert_eq!(dirs("w"), [main.join("worktrees/w"), main.clone()]);
        assert_eq!(dirs("m"), [main.join("modules/m")]);
        assert_eq!(dirs("thief"), Vec::<PathBuf>::new());
        write(
            "thief/.git",
            format!("gitdir: {}\n", main.join("worktrees/w").display()),
        );
        assert_eq!(dirs("thief"), Vec::<PathBuf>::new());
    }

    #[test]
    fn root_is_the_nearest_git_directory() {
        let dir = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir_all(dir.join("repo/.git")).unwrap();
        std::fs::create_dir_all(dir.join("repo/sub/deep")).unwrap();
        std::fs::write(dir.join("repo/sub/.git"), "gitdir: ../elsewhere").unwrap();
        assert_eq!(
            Worktree::find(&dir.join("repo"), &[], None).root,
            dir.join("repo")
        );
        assert_eq!(
            Worktree::find(&dir.join("repo/sub/deep"), &[], None).root,
            dir.join("repo/sub")
        );
        let outside = Worktree::find(&dir, &[], None);
        assert!(!outside.contains(Path::new("/etc/passwd")));
        assert!(outside.contains(&dir.join("x")));
    }
}
