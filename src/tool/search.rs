//! Walking directories the way `git` sees them: ignored files are left out, hidden ones are not,
//! `.git` is never entered, symlinks are not followed. In parallel; blocks, so it is called through
//! [`blocking`].

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use ignore::{WalkBuilder, WalkState};
use tokio_util::sync::CancellationToken;

use super::beneath::Looker;
use super::{Context, Failure};
use crate::permission::Action;
use crate::permission::sight::{LeftOut, Sight};
use crate::text;

/// How many results are shown.
pub const LIMIT: usize = 100;

/// A place in the order of results: the newest file first, then by path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Modification time, the latest first.
    pub modified: std::cmp::Reverse<SystemTime>,
    /// Absolute.
    pub path: PathBuf,
}

impl Rank {
    /// The rank of a file; none where it is not below the directory that is searched.
    pub fn of(path: &Path, look: &mut Looker) -> Option<Self> {
        Some(Self { modified: std::cmp::Reverse(look.modified(path)?), path: path.into() })
    }
}

/// Visits every regular file below `root` that is `wanted`, from several threads, until `cancelled`.
/// Each thread gets a visitor of its own. Returns what was left out because it may not be read.
pub fn files<V: FnMut(&Path) + Send>(
    root: &Path,
    cancelled: &CancellationToken,
    wanted: impl Fn(&Path) -> bool + Sync,
    sight: &Sight,
    visitor: impl Fn() -> V + Sync,
) -> LeftOut {
    let left_out: Mutex<LeftOut> = Mutex::default();
    walker(root).build_parallel().run(|| {
        let mut visit = visitor();
        let (left_out, wanted) = (&left_out, &wanted);
        Box::new(move |entry| {
            if cancelled.is_cancelled() {
                return WalkState::Quit;
            }
            // What cannot be read is skipped; a search is not the place to report permissions.
            let Ok(entry) = entry else {
                return WalkState::Continue;
            };
            if entry.file_type().is_some_and(|kind| kind.is_file()) && wanted(entry.path()) {
                match sight.judge(entry.path()) {
                    Action::Allow => visit(entry.path()),
                    // A leaf lock: naming takes no other.
                    action => {
                        left_out.lock().unwrap_or_else(PoisonError::into_inner).add(action, || sight.name(entry.path()))
                    }
                }
            }
            WalkState::Continue
        })
    });
    left_out.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// How directories are walked.
pub fn walker(root: &Path) -> WalkBuilder {
    let mut walker = WalkBuilder::new(root);
    walker.hidden(false).require_git(false).filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git");
    walker
}

/// A filter by glob, as people write it: without a slash it is about the file's name, anywhere; with
/// one it is about the path below the root. `{a,b}`, `[ab]`, `*`, `**` and `?` as usual.
///
/// # Errors
/// To the model, for what is no glob.
pub fn globs(patterns: &[&str]) -> Result<GlobSet, Failure> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let bare = pattern.strip_prefix("./").unwrap_or(pattern);
        let bare = bare.strip_prefix('/').unwrap_or(bare);
        let anywhere = if pattern.contains('/') { bare.to_owned() } else { format!("**/{bare}") };
        let glob = GlobBuilder::new(&anywhere).literal_separator(true).build();
        set.add(
            glob.map_err(|e| {
                Failure::Tell(format!("\"{}\" is not a valid glob: {}", text::escaped(pattern), e.kind()))
            })?,
        );
    }
    set.build().map_err(|e| Failure::Tell(format!("The glob cannot be used: {e}")))
}

/// Does blocking work on a thread for it. The work looks at `context.cancelled` itself.
///
/// # Errors
/// Cancelled when the user did; broken when the work panicked.
pub async fn blocking<T: Send + 'static>(
    context: &Context,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::select! {
        done = tokio::task::spawn_blocking(work) => {
            if context.cancelled.is_cancelled() {
                return Err(Failure::Cancelled);
            }
            done.map_err(|e| Failure::Broken(format!("the search broke: {e}")))
        }
        () = context.cancelled.cancelled() => Err(Failure::Cancelled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_are_about_names_or_paths() {
        let table = [
            ("*.rs", "src/a.rs", true),
            ("*.rs", "a.rs", true),
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/b/a.rs", false),
            ("src/**/*.rs", "src/b/c/a.rs", true),
            ("**/*.{ts,tsx}", "x/y.tsx", true),
            ("./a/*", "a/b", true),
            ("[ab].c", "d/b.c", true),
            ("*", "x/y", true),
            ("a?c", "abc", true),
            ("a*.txt", "a/b.txt", false),
        ];
        for (pattern, path, expected) in table {
            assert_eq!(globs(&[pattern]).unwrap().is_match(path), expected, "{pattern} {path}");
        }
        assert!(globs(&["[a"]).unwrap_err().to_string().contains("not a valid glob"));
    }
}
