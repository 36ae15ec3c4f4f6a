//! Directory walks that leave out files excluded by `.gitignore`, `.ignore` or git's exclude files.
//! Hidden files are included, `.git` is never entered, symlinks are not followed. The walks are
//! parallel and block their thread, so call them through [`run_blocking`].

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
use base::lock::{into_inner, lock};
use base::text;
use base::text::nearest;
use permission::Action;
use permission::locate::PathRefusal;
use permission::path_gate::{self, PathDenied};
use permission::search_filter::{Omitted, SearchFilter};

/// The maximum number of results of a search that are shown.
pub const MAX_SEARCH_RESULTS: usize = 100;

/// The sort key of a result: the newest file first, then by path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The modification time, the latest first.
    pub modified: std::cmp::Reverse<SystemTime>,
    /// The absolute path.
    pub path: PathBuf,
}

impl Rank {
    /// Returns the rank of a file; `None` if it is not a readable regular file below the searched
    /// directory.
    pub fn of(path: &Path, reader: &mut SearchReader) -> Option<Self> {
        Some(Self {
            modified: std::cmp::Reverse(reader.modified(path)?),
            path: path.into(),
        })
    }
}

/// Visits every regular file below `root` that `is_wanted` accepts and the filter allows, on
/// several threads, until `cancelled`. `new_visitor` is called once per thread. Returns the counts
/// of files that the filter left out, with up to three names.
pub fn visit_files<V: FnMut(&Path) + Send>(
    root: &Path,
    cancelled: &CancellationToken,
    is_wanted: impl Fn(&Path) -> bool + Sync,
    filter: &SearchFilter,
    new_visitor: impl Fn() -> V + Sync,
) -> Omitted {
    let left_out: Mutex<Omitted> = Mutex::default();
    walker(root).build_parallel().run(|| {
        let mut visit = new_visitor();
        let mut reader = filter.reader();
        let left_out = &left_out;
        let is_wanted = &is_wanted;
        Box::new(move |entry| {
            if cancelled.is_cancelled() {
                return WalkState::Quit;
            }
            // Entries that cannot be read are skipped silently.
            let Ok(entry) = entry else {
                return WalkState::Continue;
            };
            if entry.file_type().is_some_and(|kind| kind.is_file()) && is_wanted(entry.path()) {
                match reader.judge(entry.path()) {
                    Action::Allow => visit(entry.path()),
                    // No other lock is taken while this one is held.
                    action => lock(left_out).add(action, || filter.name(entry.path())),
                }
            }
            WalkState::Continue
        })
    });
    into_inner(left_out)
}

/// Returns whether ignore rules hide a wanted file below `root`: walks again without the rules,
/// until there are more wanted files than the `visible_count` of the first walk or 200,000 entries
/// were passed.
pub fn has_ignored_files(
    root: &Path,
    cancelled: &CancellationToken,
    is_wanted: impl Fn(&Path) -> bool + Sync,
    visible_count: usize,
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
            let is_over = visited.fetch_add(1, Ordering::Relaxed) > MAX_WALKED_ENTRIES;
            if is_over || cancelled.is_cancelled() || found.load(Ordering::Relaxed) > visible_count
            {
                return WalkState::Quit;
            }
            if let Ok(entry) = entry
                && entry.file_type().is_some_and(|kind| kind.is_file())
                && is_wanted(entry.path())
            {
                found.fetch_add(1, Ordering::Relaxed);
            }
            WalkState::Continue
        })
    });
    found.into_inner() > visible_count
}

/// The maximum number of entries that a walk passes.
const MAX_WALKED_ENTRIES: usize = 200_000;

/// The maximum number of suggested paths.
const MAX_SUGGESTIONS: usize = 3;

/// Resolves a path like [`resolve`]; the error for a missing path lists similar ones.
///
/// # Errors
/// Same as [`resolve`].
pub async fn resolve_or_suggest(
    context: &ToolContext,
    path_text: &str,
    access: Access,
) -> Result<ResolvedPath, Failure> {
    let checked = path_gate::check_path(&context.policy, access, path_text);
    if let Err(PathDenied::Refused(missing @ PathRefusal::Missing(path))) = &checked {
        let suggestions = suggest_similar_paths(context, Path::new(path)).await;
        return Err(Failure::ForModel(format!("{missing}{suggestions}")));
    }
    resolve(context, path_text, access)
}

/// Returns a paragraph for the model, after a blank line, with up to three existing paths that have
/// the name of a missing one or a similar name; empty if there are none. Files that a search would
/// leave out are not suggested.
pub async fn suggest_similar_paths(context: &ToolContext, missing: &Path) -> String {
    let root = context.policy.context.root.clone();
    let filter = SearchFilter::new(&context.policy);
    let stop = context.cancelled.child_token();
    let missing = missing.to_path_buf();
    let project_root = root.clone();
    let cwd = context.policy.context.cwd.clone();
    let found = run_blocking(context, move || {
        let found: Mutex<BTreeSet<SimilarPath>> = Mutex::default();
        let seen = AtomicUsize::new(0);
        let wanted = |path: &Path| {
            if seen.fetch_add(1, Ordering::Relaxed) > MAX_WALKED_ENTRIES {
                stop.cancel();
            }
            SimilarPath::of(path, &project_root, &missing).is_some()
        };
        visit_files(&root, &stop, wanted, &filter, || {
            |path: &Path| {
                // No other lock is taken while this one is held.
                if let Some(candidate) = SimilarPath::of(path, &project_root, &missing) {
                    let mut found = lock(&found);
                    found.insert(candidate);
                    if found.len() > MAX_SUGGESTIONS {
                        found.pop_last();
                    }
                }
            }
        });
        into_inner(found)
    })
    .await
    .unwrap_or_default();
    if found.is_empty() {
        return String::new();
    }
    let shown = |candidate: &SimilarPath| {
        text::escaped(
            &candidate
                .path
                .strip_prefix(&cwd)
                .unwrap_or(&candidate.path)
                .display()
                .to_string(),
        )
    };
    let best = found.first().map(|candidate| candidate.name);
    let lines: Vec<String> = found
        .iter()
        .filter(|candidate| Some(candidate.name) == best)
        .map(shown)
        .collect();
    format!("\n\nDid you mean one of these?\n{}", lines.join("\n"))
}

/// The similarity of a name to a missing one, the most similar first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameMatch {
    /// The same name in any ASCII case.
    Same,
    /// A name in the same directory with the same beginning.
    SamePrefix,
    /// A name that differs by a few characters.
    Similar,
}

/// A path that may have been meant; smaller is likelier.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SimilarPath {
    name: NameMatch,
    /// The number of parent directories that differ.
    differing_parents: usize,
    path: PathBuf,
}

impl SimilarPath {
    /// Returns the best match among a file and its directories below `root`; `None` if none is
    /// similar.
    fn of(path: &Path, root: &Path, missing: &Path) -> Option<Self> {
        let wanted = missing.file_name()?.to_str()?;
        let near = |path: &Path| {
            let name = path.file_name()?.to_str()?;
            let name = if name.eq_ignore_ascii_case(wanted) {
                NameMatch::Same
            } else if path.parent() == missing.parent() && begins_alike(name, wanted) {
                NameMatch::SamePrefix
            } else if is_close(name, wanted) && nearest(wanted, [name]).is_some() {
                NameMatch::Similar
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
                differing_parents: folders,
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
fn is_close(name: &str, wanted: &str) -> bool {
    first_letter(name) == first_letter(wanted) && name.len().abs_diff(wanted.len()) <= 2
}

/// Returns the first character of a name, in lower case.
fn first_letter(name: &str) -> Option<char> {
    name.chars().next().map(|c| c.to_ascii_lowercase())
}

/// Returns whether the stem of one name begins with that of the other.
fn begins_alike(name: &str, wanted: &str) -> bool {
    let name = stem(name);
    let wanted = stem(wanted);
    !name.is_empty()
        && !wanted.is_empty()
        && (name.starts_with(&wanted) || wanted.starts_with(&name))
}

/// Returns the first non-empty part of a name between its dots, in lower case: `a` of `a.test.ts`,
/// `gitignore` of `.gitignore`.
fn stem(name: &str) -> String {
    name.split('.')
        .find(|part| !part.is_empty())
        .unwrap_or_default()
        .to_lowercase()
}

/// Returns a walker over `root` that skips ignored files and `.git`.
pub fn walker(root: &Path) -> WalkBuilder {
    base::git::walker(root, |entry| {
        entry.depth() == 0 || entry.file_name() != ".git"
    })
}

/// Compiles globs. Without a slash, a glob matches the name of a file in any directory; with one,
/// it matches the path relative to the searched directory. Supports `{a,b}`, `[ab]`, `*`, `**` and
/// `?`.
///
/// # Errors
/// Returns [`Failure::ForModel`] if a glob is invalid.
pub fn compile_globs(patterns: &[&str]) -> Result<GlobSet, Failure> {
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

/// Runs `work` on the blocking thread pool, and waits for it or for a cancel. After a cancel the
/// thread continues, so `work` must check `context.cancelled` itself.
///
/// # Errors
/// `Cancelled` after a cancel by the user; `Broken` if the work panicked.
pub async fn run_blocking<T: Send + 'static>(
    context: &ToolContext,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::select! {
        done = base::task::spawn_blocking(work) => {
            if context.cancelled.is_cancelled() {
                return Err(Failure::Cancelled);
            }
            done.map_err(|e| Failure::Broken(format!("the work panicked: {e}")))
        }
        () = context.cancelled.cancelled() => Err(Failure::Cancelled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opening a pipe would wait for its writer.
    #[test]
    fn pipe_as_ignore_file_is_not_opened_by_walk() {
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
                compile_globs(&[pattern]).unwrap().is_match(path),
                expected,
                "{pattern} {path}"
            );
        }
        assert!(
            compile_globs(&["[a"])
                .unwrap_err()
                .to_string()
                .contains("not a valid glob")
        );
    }
}
