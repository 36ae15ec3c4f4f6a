//! What a line that was allowed names to be written, and the sandbox would refuse: it is opened for that call alone, so
//! that a yes is worth something.
//!
//! A line that does nothing but what is known gets the folder, because programs write a new file beside the old one and
//! rename it. Where something else runs as well, only the file itself is opened.

use std::path::{Path, PathBuf};

use super::disk;
use permission::PermissionContext;
use permission::credentials::git_command;
use permission::shell::{Effect, JudgedLine, Unit};

/// A path that a line writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedWrite {
    path: PathBuf,
    /// All that the line does is known.
    is_known: bool,
}

/// Returns the paths that a line names to be written.
pub(super) fn opened(line: &JudgedLine, place: &PermissionContext, git_dirs: &[PathBuf]) -> Vec<NamedWrite> {
    let known = |unit: &Unit| unit.opaque.is_none() && (unit.effect != Effect::Unproven || configures_git(unit));
    let is_known = line.opaque.is_none() && line.unread.is_empty() && line.units.iter().all(known);
    let touched = line.units.iter().flat_map(|unit| &unit.touches).filter(|need| need.permission == "edit");
    let paths = touched.flat_map(|need| &need.patterns).map(|pattern| place.root.join(pattern));
    let configured = line.units.iter().filter(|unit| configures_git(unit)).flat_map(|unit| {
        let says = |option: &str| unit.normal.split(' ').any(|word| word == option);
        match &place.home {
            Some(home) if says("--global") => vec![home.join(".gitconfig"), home.join(".config/git/config")],
            _ if says("--global") || says("--system") => vec![],
            _ => git_dirs.iter().map(|dir| dir.join("config")).collect(),
        }
    });
    let configured = configured.filter(|path| path.exists()).collect::<Vec<_>>();
    paths.chain(configured).map(|path| NamedWrite { path: real(&path), is_known }).collect()
}

/// Whether a unit changes settings of git, which is asked about as a whole and names no file.
fn configures_git(unit: &Unit) -> bool {
    unit.program.as_deref() == Some("git")
        && unit.foreign.is_none()
        && unit.floor.is_some()
        && git_command(&unit.normal) == Some("config")
}

/// Follows the links of a path as far as it exists.
fn real(path: &Path) -> PathBuf {
    let exists = path.ancestors().find_map(|above| Some((above, std::fs::canonicalize(above).ok()?)));
    let Some((above, real)) = exists else { return path.to_owned() };
    path.strip_prefix(above)
        .ok()
        .filter(|rest| rest.iter().next().is_some())
        .map_or(real.clone(), |rest| real.join(rest))
}

impl NamedWrite {
    /// Whether it lies in a protected folder that stays closed, because something unknown runs beside it.
    fn is_alone_in(&self, place: &Path) -> bool {
        !self.is_known && self.path.starts_with(place) && (self.path != place || place.is_dir())
    }

    /// Returns what has to be writable for it, unless it is already. Makes the file if nothing else could be opened.
    pub(super) fn place(&self, writable: &[PathBuf], protected: &[PathBuf]) -> Option<PathBuf> {
        let is_closed = protected.iter().any(|place| self.is_alone_in(place));
        if !is_closed && writable.iter().any(|root| self.path.starts_with(root)) {
            return None;
        }
        let folder = || self.path.ancestors().skip(1).find(|above| above.is_dir()).map(Path::to_owned);
        let place = match (self.is_known, self.path.is_dir()) {
            (true, true) => Some(self.path.clone()),
            // What else runs could write anything in it.
            (false, true) => None,
            (true, false) => folder(),
            (false, false) => {
                if !self.path.exists() {
                    // What it would have made itself; if that cannot be, it fails as it would have.
                    disk::write(&self.path, b"").ok();
                }
                self.path.exists().then(|| self.path.clone())
            }
        };
        place.filter(|place| place.parent().is_some())
    }
}

/// Returns what stays protected if a path is to be written: everything else, what lies beside it in a protected folder
/// included. A folder above a protected place is no name of it: `cp a .` opens nothing.
pub(super) fn lift(protected: Vec<PathBuf>, named: &NamedWrite) -> Vec<PathBuf> {
    let mut kept = Vec::new();
    for place in protected {
        let below = match named.path.strip_prefix(&place) {
            Ok(below) if !named.is_alone_in(&place) => below.to_owned(),
            _ => {
                kept.push(place);
                continue;
            }
        };
        let mut folder = place;
        for part in &below {
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            kept.extend(entries.filter(|entry| entry.file_name() != part).map(|entry| entry.path()));
            folder.push(part);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use permission::shell::analyse;

    #[test]
    fn named_writes_are_lifted_and_what_lies_beside_them_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(dir.path()).unwrap();
        let path = |name: &str| dir.join(name);
        std::fs::create_dir_all(path(".git/hooks/sub")).unwrap();
        for name in [".git/hooks/pre-push", ".git/hooks/pre-commit", ".git/config"] {
            std::fs::write(path(name), "").unwrap();
        }
        let named = |name: &str| NamedWrite { path: path(name), is_known: true };
        let lifted = |name: &str| {
            let mut kept = lift(vec![path(".git/hooks"), path(".git/config")], &named(name));
            kept.sort();
            kept.iter().map(|kept| kept.strip_prefix(&dir).unwrap().display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(lifted(".git/config"), [".git/hooks"]);
        assert_eq!(lifted(".git/hooks"), [".git/config"]);
        assert_eq!(
            lifted(".git/hooks/new"),
            [".git/config", ".git/hooks/pre-commit", ".git/hooks/pre-push", ".git/hooks/sub"]
        );
        assert_eq!(lifted(".git/hooks/pre-push"), [".git/config", ".git/hooks/pre-commit", ".git/hooks/sub"]);
        assert_eq!(lifted("file"), [".git/config", ".git/hooks"]);
        // What lies above names none of them, be it `cp a .` or `tar xf a.tar`.
        assert_eq!(lifted(".git"), [".git/config", ".git/hooks"]);
        assert_eq!(lifted(""), [".git/config", ".git/hooks"]);
        // Beside something unknown the folder stays closed, and the file is opened alone.
        let beside = NamedWrite { path: path(".git/hooks/new"), is_known: false };
        let closed = vec![path(".git/hooks")];
        assert_eq!(lift(closed.clone(), &beside), closed);
        assert_eq!(beside.place(std::slice::from_ref(&dir), &closed), Some(path(".git/hooks/new")));
        let folder = NamedWrite { path: path(".git/hooks/sub"), is_known: false };
        assert_eq!(folder.place(&[], &closed), None);
    }

    #[test]
    fn only_a_known_line_gets_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(dir.path()).unwrap();
        let known = |name: &str, is_known| NamedWrite { path: dir.join(name), is_known };
        std::fs::write(dir.join("old"), "").unwrap();
        assert_eq!(known("old", true).place(&[], &[]), Some(dir.clone()));
        assert_eq!(known("old", false).place(&[], &[]), Some(dir.join("old")));
        assert_eq!(known("old", true).place(std::slice::from_ref(&dir), &[]), None);
        assert_eq!(known("a/b/new", true).place(&[], &[]), Some(dir.clone()));
        assert_eq!(known("a/b/new", false).place(&[], &[]), None);
        assert_eq!(known("new", false).place(&[], &[]), Some(dir.join("new")));
        assert!(dir.join("new").exists());
    }

    #[test]
    fn lines_name_what_they_write() {
        let lab = permission::testing::Lab::new();
        let root = &lab.place.root;
        for (text, names, is_known) in [
            ("echo x > .git/hooks/pre-commit", vec![root.join(".git/hooks/pre-commit")], true),
            ("git config user.email a@b.c", vec![root.join(".git/config")], true),
            ("./x; echo x >> /etc/hosts", vec!["/etc/hosts".into()], false),
            ("sed -i s/a/b/ /etc/hosts", vec!["/etc/hosts".into()], true),
            ("cat /etc/hosts", vec![], true),
        ] {
            let found = opened(&analyse(text, &lab.place), &lab.place, &[root.join(".git")]);
            let wanted: Vec<NamedWrite> = names.into_iter().map(|path| NamedWrite { path, is_known }).collect();
            assert_eq!(found, wanted, "{text}");
        }
    }
}
