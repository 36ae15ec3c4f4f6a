//! `adjutant sessions revert`, `restore` and `diff`: what a session did to the files, and the way back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};

use base::environment::Environment;
use base::id::SessionId;
use base::text;
use base::worktree::Worktree;
use session::revert::{self, FileVersion, RestoreContext, RevertPoint};
use session::turn::record::Recorder;
use session::{changes, diff};
use snapshot::Tracker;
use store::{Record, Store, StoredSession, visible};

/// Which way a session goes.
pub(in crate::cli) enum Way {
    /// Back, to before the last turn or to before a message or part; by force over what has changed.
    Back { to: Option<String>, force: bool },
    /// Forth again, by one.
    Forth,
}

/// Takes turns back, or brings them back. The session must not be open elsewhere. Exit code 1 when
/// files were left alone.
pub(in crate::cli) async fn revert(
    store: &Store,
    environment: &Environment,
    id: &SessionId,
    way: Way,
) -> anyhow::Result<u8> {
    // What it has changed may have been kept on another machine.
    store.is_shared().await;
    let stored = store.load(id).await?;
    let mut record = stored.record;
    let (messages, keep) = (&stored.messages, Recorder::new(store.clone(), id.clone()));
    let hands = hands(&record, environment)?;
    let (done, phrases) = match way {
        Way::Back { to, force } => {
            let point = to.map_or(RevertPoint::LastTurn, RevertPoint::Before);
            let done = revert::undo(messages, &mut record, &keep, &hands, &point, force).await;
            let phrases = revert::RevertHints {
                force: "Run it again with `--force` to restore those as well.".into(),
                redo: format!(
                    "`adjutant sessions revert {id} --redo` brings everything back; after the next prompt, the files alone."
                ),
            };
            (done, Some(phrases))
        }
        Way::Forth => (revert::redo(messages, &mut record, &keep, &hands).await, None),
    };
    let tracker = hands.tracker.clone();
    base::task::spawn_blocking(move || tracker.save()).await.ok();
    store.close(id).await;
    let report = done.map_err(|nothing| anyhow!(nothing))?;
    super::super::say(&match phrases {
        Some(phrases) => report.undone(&hands.worktree, &phrases),
        None => report.redone(),
    });
    Ok(u8::from(!report.left.is_empty()))
}

/// Prints the files of which a session has kept versions. The session may be open elsewhere.
pub(in crate::cli) async fn list_kept(store: &Store, id: &SessionId) -> anyhow::Result<u8> {
    let stored = store.peek(id).await?;
    let files = revert::files(&stored.messages, &stored.record);
    if files.is_empty() {
        bail!("session {id} has not changed any files, or none were recorded");
    }
    for (path, versions) in files {
        super::super::say(&format!("{}: {}", text::escaped(&path), text::count(versions, "version")));
    }
    Ok(0)
}

/// Prints the versions of a file. The session may be open elsewhere.
pub(in crate::cli) async fn list_versions(
    store: &Store,
    environment: &Environment,
    id: &SessionId,
    file: &Path,
) -> anyhow::Result<u8> {
    let stored = store.peek(id).await?;
    let (path, versions) = versions(&stored, environment, file)?;
    super::super::say(&text::escaped(&path.display().to_string()));
    for (number, version) in (1..).zip(versions) {
        super::super::say(&format!("{number:>3}  {}", version.when));
    }
    super::super::say(&format!("\n`adjutant sessions restore {id} {} N` brings back version N.", file.display()));
    Ok(0)
}

/// Makes a file the version with this number. The session must not be open elsewhere.
pub(in crate::cli) async fn restore(
    store: &Store,
    environment: &Environment,
    id: &SessionId,
    file: &Path,
    number: usize,
) -> anyhow::Result<u8> {
    store.is_shared().await;
    let mut stored = store.load(id).await?;
    let done = restore_of(&mut stored, store, environment, file, number).await;
    store.close(id).await;
    super::super::say(&done?);
    Ok(0)
}

/// Makes a file of a session that is open here a version of it; says what was done.
async fn restore_of(
    stored: &mut StoredSession,
    store: &Store,
    environment: &Environment,
    file: &Path,
    number: usize,
) -> anyhow::Result<String> {
    let (path, versions) = versions(stored, environment, file)?;
    let there = text::count(versions.len(), "version");
    let version = number.checked_sub(1).and_then(|at| versions.into_iter().nth(at));
    let version = version.with_context(|| format!("there is no version {number} of {}: {there}", path.display()))?;
    let hands = hands(&stored.record, environment)?;
    let keep = Recorder::new(store.clone(), stored.record.id.clone());
    let name = text::escaped(&hands.worktree.relative(&path));
    let first = if stored.record.undone.is_empty() { "" } else { "After what is undone, " };
    let when = version.when.clone();
    let done = revert::restore(&mut stored.record, &keep, &hands, path, version).await;
    let report = done.map_err(|why| anyhow!("{name} is left as it is: {why}"))?;
    let tracker = hands.tracker.clone();
    base::task::spawn_blocking(move || tracker.save()).await.ok();
    Ok(match report.set.is_empty() {
        true => format!("{name} is like this already: {when}."),
        false => format!(
            "{name} is as it was {when}. {first}`adjutant sessions revert {} --redo` brings back what it replaced.",
            stored.record.id
        ),
    })
}

/// A file's full path and its versions. It may be named from here or from the root of the project.
fn versions(
    stored: &StoredSession,
    environment: &Environment,
    file: &Path,
) -> anyhow::Result<(PathBuf, Vec<FileVersion>)> {
    let root = hands(&stored.record, environment)?.worktree.root.clone();
    for path in [std::path::absolute(file)?, root.join(file)] {
        // The directory may be gone together with the file.
        let parent = path.parent().and_then(|dir| std::fs::canonicalize(dir).ok());
        let path = parent.zip(path.file_name()).map_or(path.clone(), |(dir, name)| dir.join(name));
        let versions = revert::versions(&stored.messages, &stored.record, &path);
        if !versions.is_empty() {
            return Ok((path, versions));
        }
    }
    bail!("session {} has kept no version of {}", stored.record.id, file.display())
}

/// Prints what a session changed as a unified diff, or per file. The session may be open elsewhere.
pub(in crate::cli) async fn diff(
    store: &Store,
    environment: &Environment,
    id: &SessionId,
    stat: bool,
) -> anyhow::Result<u8> {
    store.is_shared().await;
    let stored = store.peek(id).await?;
    let RestoreContext { tracker, worktree, .. } = hands(&stored.record, environment)?;
    let seen = stored.messages.get(..visible(&stored.messages, &stored.record.undone)).unwrap_or_default();
    let runs = changes::runs(seen);
    if runs.is_empty() {
        bail!("session {id} has not changed any files, or none were recorded");
    }
    Recorder::new(store.clone(), id.clone()).fetch(&tracker, &runs).await;
    let diffs = base::task::spawn_blocking(move || diff::diffs(&runs, &tracker, &worktree)).await?;
    if stat {
        for diff in &diffs {
            super::super::say(&format!("{} +{} −{}", diff.path, diff.additions, diff.deletions));
        }
        super::super::say(&diff::sum(&diffs));
    } else {
        let all: String = diffs.into_iter().map(|diff| diff.text).collect();
        super::super::terminal::exact(&all);
    }
    Ok(0)
}

fn hands(record: &Record, environment: &Environment) -> anyhow::Result<RestoreContext> {
    if !record.cwd.is_dir() {
        bail!("{}, where session {} worked, no longer exists", record.cwd.display(), record.id);
    }
    let home = environment.home.as_deref();
    let worktree = Worktree::find(&record.cwd, &record.extra, home);
    let tracker = Tracker::new(&environment.dirs.data, &worktree.root, home);
    Ok(RestoreContext { tracker: Arc::new(tracker), worktree: Arc::new(worktree), editor: None })
}
