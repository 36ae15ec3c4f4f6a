//! Finds the paths that an allowed command line writes although the sandbox protects them. They are
//! made writable for that call alone, so that the permission has an effect.
//!
//! If the line's effects are all known, the whole directory is made writable, because programs
//! write a new file and rename it. If it runs something unknown too, only the file itself is.

use std::path::{Path, PathBuf};

use crate::files::disk;
use base::text::spelled;
use permission::PermissionContext;
use permission::credentials::git_command;
use permission::shell::{CommandAnalysis, CommandUnit, Effect};

/// A path that a command line writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedWrite {
    /// The path, with symlinks resolved as far as it exists.
    path: PathBuf,
    /// True if all effects of the line are known.
    is_known: bool,
}

/// Returns the paths that a command line names to be written.
pub(crate) fn named_writes(
    line: &CommandAnalysis,
    context: &PermissionContext,
    git_dirs: &[PathBuf],
) -> Vec<NamedWrite> {
    let known = |unit: &CommandUnit| {
        unit.opaque.is_none() && (unit.effect != Effect::Unproven || configures_git(unit))
    };
    let is_known =
        line.opaque.is_none() && line.unparsed_texts.is_empty() && line.units.iter().all(known);
    let touched = line
        .units
        .iter()
        .flat_map(|unit| &unit.path_uses)
        .filter(|path_use| path_use.permission == "edit");
    let paths = touched
        .flat_map(|path_use| &path_use.patterns)
        .map(|pattern| context.root.join(pattern));
    let configured = line
        .units
        .iter()
        .filter(|unit| configures_git(unit))
        .flat_map(|unit| {
            let has_option = |option: &str| unit.normalized.split(' ').any(|word| word == option);
            match &context.home {
                Some(home) if has_option("--global") => {
                    vec![home.join(".gitconfig"), home.join(".config/git/config")]
                }
                _ if has_option("--global") || has_option("--system") => vec![],
                _ => git_dirs.iter().map(|dir| dir.join("config")).collect(),
            }
        });
    let configured = configured.filter(|path| path.exists()).collect::<Vec<_>>();
    paths
        .chain(configured)
        .map(|path| NamedWrite {
            path: real(&path),
            is_known,
        })
        .collect()
}

/// Returns the paths outside of the project and the temporary directories that a command line could
/// write in its sandbox if the user allowed it.
fn opened_by_consent(line: &CommandAnalysis, context: &PermissionContext) -> Vec<PathBuf> {
    let inside = std::iter::once(&context.root)
        .chain(&context.extra_dirs)
        .chain(&context.scratch_dir)
        .chain(context.temporary_dirs.iter());
    let inside: Vec<&PathBuf> = inside.collect();
    let mut opened: Vec<PathBuf> = Vec::new();
    for named in named_writes(line, context, &[]) {
        let is_inside = inside.iter().any(|dir| named.path.starts_with(dir));
        let path = named.openable().filter(|path| path.parent().is_some());
        if let Some(path) = path
            && !is_inside
            && !opened.contains(&path)
        {
            opened.push(path);
        }
    }
    opened
}

/// Describes the paths that a command line could also write if the user allowed it, as a clause that
/// follows the effect of its sandbox. Empty without such paths.
pub fn describe_opened_by_consent(line: &CommandAnalysis, context: &PermissionContext) -> String {
    let opened: Vec<String> = opened_by_consent(line, context)
        .iter()
        .map(|path| spelled(&path.display().to_string()))
        .collect();
    if opened.is_empty() {
        return String::new();
    }
    format!(", and if you allow it, {}", opened.join(", "))
}

/// Returns whether a unit changes settings of git. The permission for that names no file.
fn configures_git(unit: &CommandUnit) -> bool {
    unit.program.as_deref() == Some("git")
        && unit.untrusted_program.is_none()
        && unit.minimum.is_some()
        && git_command(&unit.normalized) == Some("config")
}

/// Resolves the links of a path as far as it exists.
fn real(path: &Path) -> PathBuf {
    let exists = path
        .ancestors()
        .find_map(|above| Some((above, std::fs::canonicalize(above).ok()?)));
    let Some((above, real)) = exists else {
        return path.to_owned();
    };
    path.strip_prefix(above)
        .ok()
        .filter(|rest| rest.iter().next().is_some())
        .map_or(real.clone(), |rest| real.join(rest))
}

impl NamedWrite {
    /// Returns whether only the path itself is made writable in a protected directory, because the
    /// line runs something unknown too.
    fn is_alone_in(&self, protected: &Path) -> bool {
        !self.is_known
            && self.path.starts_with(protected)
            && (self.path != protected || protected.is_dir())
    }

    /// Returns the path that must be made writable: the file or its directory. `None` if it is
    /// writable already, or must not be. Creates the file if it alone is made writable.
    pub(crate) fn path_to_open(
        &self,
        writable: &[PathBuf],
        protected: &[PathBuf],
    ) -> Option<PathBuf> {
        let is_closed = protected.iter().any(|path| self.is_alone_in(path));
        if !is_closed && writable.iter().any(|root| self.path.starts_with(root)) {
            return None;
        }
        if !self.is_known && !self.path.exists() {
            // The command would have created it; if that is impossible, the command fails as it would
            // have.
            disk::write(&self.path, b"").ok();
        }
        self.openable()
            .filter(|path| path.exists() && path.parent().is_some())
    }

    /// Returns the file or directory that an allowed command can write, which may not exist yet.
    fn openable(&self) -> Option<PathBuf> {
        match (self.is_known, self.path.is_dir()) {
            (true, true) => Some(self.path.clone()),
            // Unknown code could write anything in the directory.
            (false, true) => None,
            (true, false) => {
                let mut above = self.path.ancestors().skip(1);
                above.find(|above| above.is_dir()).map(Path::to_owned)
            }
            (false, false) => Some(self.path.clone()),
        }
    }
}

/// Returns the paths that stay protected if a path is to be written: all others, including the
/// existing siblings of the path in a protected directory. A write to the parent of a protected
/// path, as in `cp a .`, leaves the path protected.
pub(crate) fn without_named(protected: Vec<PathBuf>, named: &NamedWrite) -> Vec<PathBuf> {
    let mut remaining = Vec::new();
    for protected_path in protected {
        let below = match named.path.strip_prefix(&protected_path) {
            Ok(below) if !named.is_alone_in(&protected_path) => below.to_owned(),
            _ => {
                remaining.push(protected_path);
                continue;
            }
        };
        let mut folder = protected_path;
        for part in &below {
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            remaining.extend(
                entries
                    .filter(|entry| entry.file_name() != part)
                    .map(|entry| entry.path()),
            );
            folder.push(part);
        }
    }
    remaining
}

#[cfg(test)]
mod tests {
    use super::*;
    use permission::shell::analyze;

    #[test]
    fn named_writes_are_unprotected_but_not_their_siblings() {
        let dir = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(dir.path()).unwrap();
        let path = |name: &str| dir.join(name);
        std::fs::create_dir_all(path(".git/hooks/sub")).unwrap();
        for name in [
            ".git/hooks/pre-push",
            ".git/hooks/pre-commit",
            ".git/config",
        ] {
            std::fs::write(path(name), "").unwrap();
        }
        let named = |name: &str| NamedWrite {
            path: path(name),
            is_known: true,
        };
        let lifted = |name: &str| {
            let mut kept =
                without_named(vec![path(".git/hooks"), path(".git/config")], &named(name));
            kept.sort();
            kept.iter()
                .map(|kept| kept.strip_prefix(&dir).unwrap().display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(lifted(".git/config"), [".git/hooks"]);
        assert_eq!(lifted(".git/hooks"), [".git/config"]);
        assert_eq!(
            lifted(".git/hooks/new"),
            [
                ".git/config",
                ".git/hooks/pre-commit",
                ".git/hooks/pre-push",
                ".git/hooks/sub"
            ]
        );
        assert_eq!(
            lifted(".git/hooks/pre-push"),
            [".git/config", ".git/hooks/pre-commit", ".git/hooks/sub"]
        );
        assert_eq!(lifted("file"), [".git/config", ".git/hooks"]);
        // The parent of protected files names none of them, neither in `cp a .` nor in `tar xf
        // a.tar`.
        assert_eq!(lifted(".git"), [".git/config", ".git/hooks"]);
        assert_eq!(lifted(""), [".git/config", ".git/hooks"]);
        // Next to unknown code the directory stays protected, and only the file becomes writable.
        let beside = NamedWrite {
            path: path(".git/hooks/new"),
            is_known: false,
        };
        let closed = vec![path(".git/hooks")];
        assert_eq!(without_named(closed.clone(), &beside), closed);
        assert_eq!(
            beside.path_to_open(std::slice::from_ref(&dir), &closed),
            Some(path(".git/hooks/new"))
        );
        let folder = NamedWrite {
            path: path(".git/hooks/sub"),
            is_known: false,
        };
        assert_eq!(folder.path_to_open(&[], &closed), None);
    }

    #[test]
    fn only_a_known_line_gets_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(dir.path()).unwrap();
        let known = |name: &str, is_known| NamedWrite {
            path: dir.join(name),
            is_known,
        };
        std::fs::write(dir.join("old"), "").unwrap();
        assert_eq!(known("old", true).path_to_open(&[], &[]), Some(dir.clone()));
        assert_eq!(
            known("old", false).path_to_open(&[], &[]),
            Some(dir.join("old"))
        );
        assert_eq!(
            known("old", true).path_to_open(std::slice::from_ref(&dir), &[]),
            None
        );
        assert_eq!(
            known("a/b/new", true).path_to_open(&[], &[]),
            Some(dir.clone())
        );
        assert_eq!(known("a/b/new", false).path_to_open(&[], &[]), None);
        assert_eq!(
            known("new", false).path_to_open(&[], &[]),
            Some(dir.join("new"))
        );
        assert!(dir.join("new").exists());
    }

    #[test]
    fn paths_written_by_a_line_are_found() {
        let lab = permission::testing::PathFixture::new();
        let root = &lab.context.root;
        for (text, names, is_known) in [
            (
                "echo x > .git/hooks/pre-commit",
                vec![root.join(".git/hooks/pre-commit")],
                true,
            ),
            (
                "git config user.email a@b.c",
                vec![root.join(".git/config")],
                true,
            ),
            (
                "./x; echo x >> /etc/hosts",
                vec!["/etc/hosts".into()],
                false,
            ),
            ("sed -i s/a/b/ /etc/hosts", vec!["/etc/hosts".into()], true),
            ("cat /etc/hosts", vec![], true),
        ] {
            let found = named_writes(
                &analyze(text, &lab.context),
                &lab.context,
                &[root.join(".git")],
            );
            let wanted: Vec<NamedWrite> = names
                .into_iter()
                .map(|path| NamedWrite { path, is_known })
                .collect();
            assert_eq!(found, wanted, "{text}");
        }
    }
}
