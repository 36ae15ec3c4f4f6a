//! Resolves the paths that a model writes. `crates/permission/src/path_gate.rs` decides about
//! target and access; this module adds the messages for the model and the path that the editor
//! knows.

use std::path::{Path, PathBuf};

use crate::{Failure, ToolContext, denial_message};
use base::text;
pub use permission::Access;
pub use permission::locate::PathKind;
use permission::locate::{self, Located};
use permission::path_gate::{self, PathDenied};
use permission::{AccessRequest, Denial};

/// A path that the path gate has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPath {
    /// The path for people and the model: relative to the worktree, control characters escaped.
    pub shown: String,
    /// The absolute path as the editor knows it: below the session's cwd in the editor's spelling.
    pub path: PathBuf,
    /// The actual target, which is judged and opened.
    pub real: Located,
}

impl ResolvedPath {
    /// Returns the access requests for using it, then `own`.
    pub fn requests(&self, access: Access, own: AccessRequest) -> Vec<AccessRequest> {
        self.real
            .requests(access)
            .into_iter()
            .chain([own])
            .collect()
    }

    /// Resolves the path again, immediately before it is used.
    ///
    /// # Errors
    /// A message for the model if it now leads elsewhere.
    pub fn check_unchanged(&self) -> Result<(), Failure> {
        if locate::real(&self.path).as_deref() == Some(&self.real.path) {
            return Ok(());
        }
        Err(Failure::ForModel(format!(
            "{} was moved or replaced since it was checked. Nothing was done; check the path again.",
            self.shown
        )))
    }
}

/// Resolves a path of the model and checks it with the path gate. Reads the disk, opens nothing.
///
/// # Errors
/// A denial if a rule or a minimum verdict forbids this access; a message for the model if the path
/// cannot be used so at all.
pub fn resolve(
    context: &ToolContext,
    written: &str,
    access: Access,
) -> Result<ResolvedPath, Failure> {
    let real =
        path_gate::check_path(&context.policy, access, written).map_err(|barred| match barred {
            PathDenied::Denied(denied) => Failure::Denied(Denial::Rule(denial_message::explain(
                &denied.1,
                &denied.0,
                &context.policy.rules,
            ))),
            PathDenied::Refused(refusal) => Failure::ForModel(refusal.to_string()),
        })?;
    Ok(ResolvedPath {
        shown: text::escaped(&real.relative),
        path: in_session_spelling(context, &real.path),
        real,
    })
}

/// Returns a path without symlinks as the session spells it: below its `cwd`, which may have
/// symlinks.
pub fn in_session_spelling(context: &ToolContext, real: &Path) -> PathBuf {
    let cwd = std::fs::canonicalize(&context.project.cwd).ok();
    match cwd.as_deref().and_then(|cwd| real.strip_prefix(cwd).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => context.project.cwd.clone(),
        Some(rest) => context.project.cwd.join(rest),
        None => real.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::TestProject;

    fn fixture() -> TestProject {
        use std::os::unix::fs::symlink;
        let fixture = TestProject::new();
        fixture.write("src/deep/f", "f");
        fixture.write("a.txt", "a");
        fixture.write(".env", "KEY=1");
        std::fs::create_dir(fixture.outside().join("d")).unwrap();
        std::fs::write(fixture.outside().join("secret"), "s").unwrap();
        symlink(fixture.outside(), fixture.cwd().join("link")).unwrap();
        symlink(
            fixture.outside().join("secret"),
            fixture.cwd().join("linkf"),
        )
        .unwrap();
        symlink("src", fixture.cwd().join("inlink")).unwrap();
        symlink("missing", fixture.cwd().join("dang_in")).unwrap();
        symlink("loop", fixture.cwd().join("loop")).unwrap();
        symlink(".env", fixture.cwd().join(".env.example")).unwrap();
        fixture
    }

    #[test]
    fn paths_resolve_to_their_targets() {
        let fixture = fixture();
        let context = fixture.context();
        let out = |name: &str| fixture.outside().join(name).display().to_string();
        let encoded = format!("file://{}/%2e%2e/x", fixture.cwd().display());
        let twice = format!("file://{}/%252e%252e", fixture.cwd().display());
        // The written path, its target (relative ones are inside), the kind of the target.
        let table: &[(&str, &str, PathKind)] = &[
            ("src/../a.txt", "a.txt", PathKind::File),
            ("src//deep/./f", "src/deep/f", PathKind::File),
            ("..hidden/f", "..hidden/f", PathKind::Missing),
            ("inlink/deep/f", "src/deep/f", PathKind::File),
            ("inlink/../a.txt", "a.txt", PathKind::File),
            ("new/dir/f", "new/dir/f", PathKind::Missing),
            ("dang_in", "missing", PathKind::Missing),
            ("./src/../.env", ".env", PathKind::File),
            (".env.example", ".env", PathKind::File),
            ("a*.txt", "a*.txt", PathKind::Missing),
            ("a.txt\n", "a.txt\n", PathKind::Missing),
            ("C:\\x", "C:\\x", PathKind::Missing),
            ("$postId.tsx", "$postId.tsx", PathKind::Missing),
            (&twice, "%2e%2e", PathKind::Missing),
            ("link/secret", &out("secret"), PathKind::File),
            ("linkf", &out("secret"), PathKind::File),
            ("link/new", &out("new"), PathKind::Missing),
            ("link/d/..", &out(""), PathKind::Directory),
            (
                &encoded,
                &fixture
                    .cwd()
                    .parent()
                    .unwrap()
                    .join("x")
                    .display()
                    .to_string(),
                PathKind::Missing,
            ),
            ("/", "/", PathKind::Directory),
        ];
        for (written, real, found) in table {
            let resolved = resolve(&context, written, Access::Edit).unwrap();
            assert_eq!(resolved.real.path, fixture.cwd().join(real), "{written}");
            let absent = *found == PathKind::Missing && resolved.real.is_absent();
            assert!(resolved.real.kind == *found || absent, "{written}");
            let inside = !real.starts_with('/');
            assert_eq!(resolved.real.is_inside, inside, "{written}");
            assert_eq!(resolved.real.leaving().is_none(), inside, "{written}");
            assert!(!resolved.shown.contains('\n'));
        }
        let home = resolve(&context, "~/x", Access::Read).unwrap();
        assert_eq!(
            home.real.path,
            std::fs::canonicalize(fixture.home()).unwrap().join("x")
        );
        let request = resolve(&context, "link/secret", Access::Read)
            .unwrap()
            .real
            .leaving()
            .unwrap();
        assert_eq!(
            request.patterns,
            [format!("{}/*", fixture.outside().display())]
        );
        let request = resolve(&context, "link/d", Access::Read)
            .unwrap()
            .real
            .leaving()
            .unwrap();
        assert_eq!(
            request.patterns,
            [format!("{}/d/*", fixture.outside().display())]
        );
    }

    #[test]
    fn unusable_paths_are_refused() {
        let fixture = fixture();
        let context = fixture.context();
        let sock = std::os::unix::net::UnixListener::bind(fixture.cwd().join("sock")).unwrap();
        let table = [
            ("", "empty"),
            ("a\0b", "NUL"),
            (".env/", "Not a directory"),
            ("a.txt/.", "Not a directory"),
            ("a.txt/x", "Not a directory"),
            ("loop", "symbolic links"),
            ("$HOME/x", "not expanded"),
            ("~nobody-of-that-name/x", "no user"),
            ("sock", "regular file"),
            ("/dev/zero", "regular file"),
            ("/dev/stdin", "regular file"),
            ("/dev/fd/3", "regular file"),
            ("/proc/self/fd/3", "regular file"),
            ("/proc/self/environ", "holds keys"),
            ("/proc/1/root/etc/passwd", "holds keys"),
        ];
        for (written, why) in table {
            let failure = resolve(&context, written, Access::Edit)
                .unwrap_err()
                .to_string();
            assert!(failure.contains(why), "{written:?}: {failure}");
        }
        drop(sock);
    }
}
