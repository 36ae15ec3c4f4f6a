//! Directory walks with git's view of files: ignored files are left out, hidden ones are not,
//! `.git` is never entered, symlinks are not followed. Parallel and blocking, so it is called
//! through [`blocking`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use ignore::{WalkBuilder, WalkState};
use tokio_util::sync::CancellationToken;

use crate::files::path::{Access, ResolvedPath, resolve};
use crate::files::rooted_fs::SearchReader;
use crate::{Failure, ToolContext};
use base::lock::{locked, unlocked};
use base::text;
use base::text::nearest;
use permission::Action;
use permission::locate::PathRefusal;
use permission::path_gate::{self, PathDenied};
use permission::search_filter::{Omitted, SearchFilter};

/// The maximum number of results that are shown.
pub const LIMIT: usize = 100;

/// The sort key of a result: the newest file first, then by path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The modification time, the latest first.
    pub modified: std::cmp::Reverse<SystemTime>,
    /// The absolute path.
    pub path: PathBuf,
}

impl Rank {
    /// Returns the rank of a file; `None` if it is not below the searched directory.
    pub fn of(path: &Path, look: &mut SearchReader) -> Option<Self> {
        Some(Self {
            modified: std::cmp::Reverse(look.modified(path)?),
            path: path.into(),
        })
    }
}

/// Visits every regular file below `root` that is `wanted`, from several threads, until
/// `cancelled`. Each thread has a visitor of its own. Returns the files that were left out because
/// they may not be read.
pub fn files<V: FnMut(&Path) + Send>(
    root: &Path,
    cancelled: &CancellationToken,
    wanted: impl Fn(&Path) -> bool + Sync,
    sight: &SearchFilter,
    visitor: impl Fn() -> V + Sync,
) -> Omitted {
    let left_out: Mutex<Omitted> = Mutex::default();
    walker(root).build_parallel().run(|| {
        let mut visit = visitor();
        let mut reader = sight.reader();
        let left_out = &left_out;
        let wanted = &wanted;
        Box::new(move |entry| {
            if cancelled.is_cancelled() {
                return WalkState::Quit;
            }
            // Unreadable entries are skipped; a search does not report permissions.
            let Ok(entry) = entry else {
                return WalkState::Continue;
            };
            if entry.file_type().is_some_and(|kind| kind.is_file()) && wanted(entry.path()) {
                match reader.judge(entry.path()) {
                    Action::Allow => visit(entry.path()),
                    // A leaf lock: naming the file takes no other lock.
                    action => locked(left_out).add(action, || sight.name(entry.path())),
                }
            }
            WalkState::Continue
        })
    });
    unlocked(left_out)
}

/// Returns whether git ignores a `wanted` file below `root`, in which [`files`] has found `seen`
/// ones. Stops at the first file beyond these; does not count more than 200,000.
pub fn ignores_any(
    root: &Path,
    cancelled: &CancellationToken,
    wanted: impl Fn(&Path) -> bool + Sync,
    seen: usize,
) -> bool {
    let visited = AtomicUsize::new(0);
    let found = AtomicUsize::new(0);
    let mut walker = walker(root);
    walker
        .parents(false)
        .ignore(false)
        .git_ignore(false)
        .git_global(false)
        .git_exclude(false);
    walker.build_parallel().run(|| {
        Box::new(|entry| {
            let is_over = visited.fetch_add(1, Ordering::Relaxed) > MAX_COMPARED_FILES;
            if is_over || cancelled.is_cancelled() || found.load(Ordering::Relaxed) > seen {
                return WalkState::Quit;
            }
            if let Ok(entry) = entry
                && entry.file_type().is_some_and(|kind| kind.is_file())
                && wanted(entry.path())
            {
                found.fetch_add(1, Ordering::Relaxed);
            }
            WalkState::Continue
        })
    });
    found.into_inner() > seen
}

/// The maximum number of files that are compared with a missing name, and of proposals.
const MAX_COMPARED_FILES: usize = 200_000;
const MAX_PROPOSALS: usize = 3;

/// Resolves a path for reading, like [`resolve`], and proposes similar paths if it does not exist.
///
/// # Errors
/// Those of [`resolve`].
pub async fn look_up(
    context: &ToolContext,
    written: &str,
    access: Access,
) -> Result<ResolvedPath, Failure> {
    let admitted = path_gate::check_path(&context.policy, access, written);
    if let Err(PathDenied::Refused(missing @ PathRefusal::Missing(path))) = &admitted {
        let instead = elsewhere(context, Path::new(path)).await;
        return Err(Failure::ForModel(format!("{missing}{instead}")));
    }
    resolve(context, written, access)
}

/// Proposes paths of the project that have the name of a missing one, or a similar name: lines for
/// the model, empty if there are none. Files that a search would leave out are not proposed.
pub async fn elsewhere(context: &ToolContext, missing: &Path) -> String {
    let root = context.policy.place.root.clone();
    let sight = SearchFilter::new(&context.policy);
    let enough = context.cancelled.child_token();
    let missing = missing.to_path_buf();
    let from = root.clone();
    let cwd = context.policy.place.cwd.clone();
    let found = blocking(context, move || {
        let found: Mutex<BTreeSet<SimilarPath>> = Mutex::default();
        let seen = AtomicUsize::new(0);
        let wanted = |path: &Path| {
            if seen.fetch_add(1, Ordering::Relaxed) > MAX_COMPARED_FILES {
                enough.cancel();
            }
            SimilarPath::of(path, &from, &missing).is_some()
        };
        files(&root, &enough, wanted, &sight, || {
            |path: &Path| {
                // A leaf lock: nothing is called while it is held.
                if let Some(near) = SimilarPath::of(path, &from, &missing) {
                    let mut found = locked(&found);
                    found.insert(near);
                    if found.len() > MAX_PROPOSALS {
                        found.pop_last();
                    }
                }
            }
        });
        unlocked(found)
    })
    .await
    .unwrap_or_default();
    if found.is_empty() {
        return String::new();
    }
    let shown = |near: &SimilarPath| {
        text::escaped(
            &near
                .path
                .strip_prefix(&cwd)
                .unwrap_or(&near.path)
                .display()
                .to_string(),
        )
    };
    let best = found.first().map(|near| near.name);
    let lines: Vec<String> = found
        .iter()
        .filter(|near| Some(near.name) == best)
        .map(shown)
        .collect();
    format!("\n\nDid you mean one of these?\n{}", lines.join("\n"))
}

/// A path that may have been meant; smaller is likelier.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SimilarPath {
    /// 0 for the same name, 1 for a name in the same directory with the same beginning, 2 for a
    /// similar name.
    name: u8,
    /// The number of parent directories that differ.
    folders: usize,
    path: PathBuf,
}

impl SimilarPath {
    /// Compares a file, and the directories that contain it, with a missing path.
    fn of(path: &Path, root: &Path, missing: &Path) -> Option<Self> {
        let wanted = missing.file_name()?.to_str()?;
        let near = |path: &Path| {
            let name = path.file_name()?.to_str()?;
            let name = if name.eq_ignore_ascii_case(wanted) {
                0
            } else if path.parent() == missing.parent() && begins_alike(name, wanted) {
                1
            } else if close(name, wanted) && nearest(wanted, [name]).is_some() {
                2
            } else {
                return None;
            };
            let one = path.components().rev().skip(1);
            let other = missing.components().rev().skip(1);
            let same = one
                .zip(other)
                .take_while(|(one, other)| one == other)
                .count();
            let folders = missing.components().count().saturating_sub(same + 1);
            Some(Self {
                name,
                folders,
                path: path.into(),
            })
        };
        path.ancestors()
            .take_while(|path| *path != root)
            .filter_map(near)
            .min()
    }
}

/// Returns whether two names are similar enough to compare them by character.
fn close(name: &str, wanted: &str) -> bool {
    first_letter(name) == first_letter(wanted) && name.len().abs_diff(wanted.len()) <= 2
}

/// Returns the first character of a name, in lower case.
fn first_letter(name: &str) -> Option<char> {
    name.chars().next().map(|c| c.to_ascii_lowercase())
}

fn begins_alike(name: &str, wanted: &str) -> bool {
    let name = stem(name);
    let wanted = stem(wanted);
    !name.is_empty()
        && !wanted.is_empty()
        && (name.starts_with(&wanted) || wanted.starts_with(&name))
}

/// Returns a name up to its extension, in lower case.
fn stem(name: &str) -> String {
    name.split('.')
        .find(|part| !part.is_empty())
        .unwrap_or_default()
        .to_lowercase()
}

pub fn walker(root: &Path) -> WalkBuilder {
    base::git::walker(root, |entry| {
        entry.depth() == 0 || entry.file_name() != ".git"
    })
}

/// Compiles globs in their usual form: without a slash a glob applies to the file's name, in any
/// directory; with one it applies to the path below the root. Supports `{a,b}`, `[ab]`, `*`, `**`
/// and `?`.
///
/// # Errors
/// A message for the model on an invalid glob.
pub fn globs(patterns: &[&str]) -> Result<GlobSet, Failure> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let bare = pattern.strip_prefix("./").unwrap_or(pattern);
        let bare = bare.strip_prefix('/').unwrap_or(bare);
        let anywhere = if pattern.contains('/') {
            bare.to_owned()
        } else {
            format!("**/{bare}")
        };
        let glob = GlobBuilder::new(&anywhere).literal_separator(true).build();
        set.add(glob.map_err(|e| {
            Failure::ForModel(format!(
                "\"{}\" is not a valid glob: {}",
                text::escaped(pattern),
                e.kind()
            ))
        })?);
    }
    set.build()
        .map_err(|e| Failure::ForModel(format!("The glob cannot be used: {e}")))
}

/// Runs blocking work on a thread for it. The work must check `context.cancelled` itself.
///
/// # Errors
/// `Cancelled` after a cancel by the user; `Broken` if the work panicked.
pub async fn blocking<T: Send + 'static>(
    context: &ToolContext,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::select! {
        done = base::task::spawn_blocking(work) => {
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

    /// Opening a pipe would wait for its writer.
    #[test]
    fn walk_pipe_in_place_of_an_ignore_file_is_not_opened() {
        for name in [
            ".gitignore",
            ".ignore",
            "below/.gitignore",
            ".git/info/exclude",
        ] {
            let dir = tempfile::tempdir().unwrap();
            for folder in ["below", "beside", ".git/info"] {
                std::fs::create_dir_all(dir.path().join(folder)).unwrap();
            }
            std::fs::write(dir.path().join("beside/f"), "").unwrap();
            nix::unistd::mkfifo(&dir.path().join(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
            let (done, walked) = std::sync::mpsc::channel();
            let root = dir.path().to_path_buf();
            std::thread::spawn(move || {
                let paths = walker(&root).build().flatten();
                done.send(
                    paths
                        .filter(|entry| entry.path().ends_with("beside/f"))
                        .count(),
                )
                .ok()
            });
            let found = walked.recv_timeout(std::time::Duration::from_secs(10));
            assert_eq!(found, Ok(1), "{name}");
        }
    }

    #[test]
    fn globs_match_names_or_paths() {
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
            assert_eq!(
                globs(&[pattern]).unwrap().is_match(path),
                expected,
                "{pattern} {path}"
            );
        }
        assert!(
            globs(&["[a"])
                .unwrap_err()
                .to_string()
                .contains("not a valid glob")
        );
    }
}
