//! `adjutant sessions move`: sessions follow a directory that was moved or renamed.

use std::cell::LazyCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::listed;
use crate::cli::project_context::ProjectContext;
use crate::cli::{say, terminal};
use base::environment::Environment;
use base::id::SessionId;
use base::text;
use base::worktree::normal;
use session::relocate::{first_commit, is_first_commit};
use store::{ListQuery, Record, Store, StoredSession};

/// The largest number of sessions that are examined for a moved directory, the newest first.
const MAX_EXAMINED: usize = 1_000;

/// Moves the sessions of a directory, and of those below it, to another one. Exit code 1 if some
/// were not moved.
pub(in crate::cli) async fn relocate(
    store: &Store,
    environment: &Environment,
    old: &Path,
    new: &Path,
) -> anyhow::Result<u8> {
    let new = std::fs::canonicalize(new)
        .with_context(|| format!("{} cannot be entered", new.display()))?;
    if !new.is_dir() {
        bail!("{} is not a directory", new.display());
    }
    let old = resolved(old)?;
    if old == new {
        bail!("both are the directory {}", new.display());
    }
    let query = ListQuery {
        cwd: Some(old.clone()),
        is_recursive: true,
        limit: usize::MAX - 1,
        ..ListQuery::default()
    };
    let records = listed(store, query).await?.sessions;
    if records.is_empty() {
        bail!(
            "no session belongs to {} or a directory below it",
            old.display()
        );
    }
    let mut moved = 0;
    let mut failed = 0;
    let mut ids: VecDeque<SessionId> = records.into_iter().map(|record| record.id).collect();
    let users = ids.len();
    let mut at = 0;
    while let Some(id) = ids.pop_front() {
        ids.extend(store.children(&id).await?);
        let is_user = at < users;
        at += 1;
        match move_one(store, environment, &id, &old, &new).await {
            Ok(is_moved) => moved += usize::from(is_user && is_moved),
            Err(e) => {
                failed += 1;
                terminal::print_note(&format!("{id} is not moved: {e:#}"));
            }
        }
    }
    say(&format!(
        "moved {} from {} to {}",
        text::count(moved, "session"),
        old.display(),
        new.display()
    ));
    if moved > 0 {
        say("Trust, and permissions granted with \"always\", are asked for again there.");
    }
    Ok(u8::from(failed > 0))
}

/// Returns an absolute path without links, also of a directory that is gone.
fn resolved(path: &Path) -> anyhow::Result<PathBuf> {
    if let Ok(path) = std::fs::canonicalize(path) {
        return Ok(path);
    }
    let path = normal(&std::path::absolute(path)?);
    let existing = path.ancestors().find_map(|above| {
        let real = std::fs::canonicalize(above).ok()?;
        Some(real.join(path.strip_prefix(above).ok()?))
    });
    Ok(existing.unwrap_or(path))
}

/// Moves a session. Returns whether it belongs to the moved directory.
async fn move_one(
    store: &Store,
    environment: &Environment,
    id: &SessionId,
    old: &Path,
    new: &Path,
) -> anyhow::Result<bool> {
    let stored = store.load(id).await?;
    let moved = follow_directory(store, environment, stored, old, new).await;
    let written = store.flush(id).await;
    store.close(id).await;
    let is_moved = moved?;
    written?;
    Ok(is_moved)
}

async fn follow_directory(
    store: &Store,
    environment: &Environment,
    mut stored: StoredSession,
    old: &Path,
    new: &Path,
) -> anyhow::Result<bool> {
    let follow = |path: &Path| new_place(path, old, new);
    let Some(cwd) = follow(&stored.record.cwd) else {
        return Ok(false);
    };
    session::relocate::copy_recorded_contents(environment, &stored.record.cwd, &cwd)
        .await
        .context("the stored contents of its changes cannot be copied")?;
    for extra in &mut stored.record.additional_directories {
        *extra = follow(extra).unwrap_or_else(|| std::mem::take(extra));
    }
    session::relocate::relocate(store, environment, &mut stored, &cwd).await;
    Ok(true)
}

/// Returns the new path of a directory. `None` if it did not move: files in the new directory
/// already may be below the old one too.
fn new_place(path: &Path, old: &Path, new: &Path) -> Option<PathBuf> {
    let rest = path.strip_prefix(old).ok()?;
    if new.starts_with(old) && path.starts_with(new) {
        return None;
    }
    Some(new.join(rest))
}

/// A directory that is gone, and may be this project now.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MissingDirectory {
    old: PathBuf,
    new: PathBuf,
}

/// Returns the directories that are gone and whose sessions belong to this project's repository,
/// with the numbers of their sessions.
async fn left_behind(
    store: &Store,
    environment: &Environment,
) -> BTreeMap<MissingDirectory, usize> {
    let mut gone = BTreeMap::new();
    // A directory of a session in a shared database may be on another machine.
    if store.is_shared().await {
        return gone;
    }
    let Ok(here) = ProjectContext::read(Path::new("."), environment) else {
        return gone;
    };
    let root = &here.worktree.root;
    let query = ListQuery {
        limit: MAX_EXAMINED,
        ..ListQuery::default()
    };
    let Ok(page) = store.list_where(query).await else {
        return gone;
    };
    let origin = here.worktree.origin();
    // It may read the whole history, so it is only looked up for a session that is left behind.
    let first = LazyCell::new(|| first_commit(&here.worktree));
    let is_left = |record: &&Record| {
        let may_be_ours = |name: &&String| Some(*name) == origin.as_ref() || is_first_commit(name);
        // A repository that has an origin now may have had none.
        let is_ours = |name: &String| Some(name) == origin.as_ref() || Some(name) == first.as_ref();
        let name = record.origin.as_ref().filter(may_be_ours);
        name.is_some_and(|name| !record.cwd.exists() && is_ours(name))
    };
    for record in page.sessions.iter().filter(is_left) {
        let old = gone_root(&record.cwd, root).to_path_buf();
        let new = root.clone();
        *gone.entry(MissingDirectory { old, new }).or_default() += 1;
    }
    gone
}

/// Returns the directory that may have been moved to `root`, given a directory in it that is gone:
/// the highest one that is gone too, and below which the rest of the path is as it is below `root`.
fn gone_root<'p>(cwd: &'p Path, root: &Path) -> &'p Path {
    cwd.ancestors()
        .take_while(|above| !above.exists())
        .filter(|above| {
            cwd.strip_prefix(above)
                .is_ok_and(|rest| root.join(rest).is_dir())
        })
        .last()
        .unwrap_or(cwd)
}

/// Offers to move the sessions of this project's repository whose directory is gone.
pub(in crate::cli) async fn offer(store: &Store, environment: &Environment) {
    let here = std::fs::canonicalize(".").ok();
    for (gone, count) in left_behind(store, environment).await {
        let directory = gone.old.display();
        let new = if here.as_ref() == Some(&gone.new) {
            Path::new(".").display()
        } else {
            gone.new.display()
        };
        let (sessions, pronoun) = if count == 1 {
            ("session of this repository belongs", "it")
        } else {
            ("sessions of this repository belong", "them")
        };
        terminal::print_note(&format!(
            "{count} {sessions} to {directory}, which no longer exists. If it was moved here, `adjutant sessions move {directory} {new}` brings {pronoun} along."
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_below_the_old_one_follow_unless_they_are_in_the_new_one() {
        for (path, old, new, moved) in [
            ("/a/p", "/a/p", "/b/q", Some("/b/q")),
            ("/a/p/src", "/a/p", "/b/q", Some("/b/q/src")),
            ("/a/pq", "/a/p", "/b/q", None),
            ("/a/p/src", "/a/p", "/a/p/main", Some("/a/p/main/src")),
            ("/a/p/main/src", "/a/p", "/a/p/main", None),
            ("/a/p/x", "/a/p", "/a", Some("/a/x")),
        ] {
            assert_eq!(
                new_place(path.as_ref(), old.as_ref(), new.as_ref()),
                moved.map(PathBuf::from),
                "{path}"
            );
        }
    }

    #[test]
    fn root_is_the_highest_directory_that_is_gone_and_fits() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("new");
        std::fs::create_dir_all(root.join("src")).unwrap();
        for (cwd, old) in [
            ("old/src", "old"),
            ("old", "old"),
            ("old/gone", "old/gone"),
            ("new/gone", "new/gone"),
        ] {
            let cwd = dir.path().join(cwd);
            assert_eq!(gone_root(&cwd, &root), dir.path().join(old));
        }
    }
}
