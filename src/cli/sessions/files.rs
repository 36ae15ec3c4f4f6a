//! `adjutant sessions revert`, `restore` and `diff`: the file changes of a session, and undoing
//! them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};

use crate::cli::terminal;
use base::environment::{Environment, Timestamp};
use base::id::SessionId;
use base::text;
use base::worktree::Worktree;
use export::conversation::minute;
use session::revert::{self, FileVersion, RestoreContext, RevertPoint};
use session::turn::record::Recorder;
use session::{changes, diff};
use snapshot::Tracker;
use store::{Record, Store, StoredSession};

/// The direction of an undo.
pub(in crate::cli) enum UndoDirection {
    /// Undo; `force` also restores files that have changed since.
    Back { point: RevertPoint, force: bool },
    /// Redo by one step.
    Forth,
}

/// Undoes or redoes turns. The session must not be open elsewhere. Exit code 1 if files were left
/// alone.
pub(in crate::cli) async fn revert(
    store: &Store,
    environment: &Environment,
    id: &SessionId,
    way: UndoDirection,
) -> anyhow::Result<u8> {
    // The changes may have been recorded on another machine.
    store.is_shared().await;
    let stored = store.load(id).await?;
    let mut record = stored.record;
    let messages = &stored.messages;
    let keep = Recorder::new(store.clone(), id.clone());
    let context = restore_context(&record, environment)?;
    let (done, hints) = match way {
        UndoDirection::Back { point, force } => {
            let done = revert::undo(messages, &mut record, &keep, &context, &point, force).await;
            let hints = revert::RevertHints {
                force: "Run it again with `--force` to restore those as well.".into(),
                retry: "Run it again with `--force` to try again.".into(),
                redo: format!(
                    "`adjutant sessions revert {id} --redo` restores everything; after the next prompt, only the files."
                ),
            };
            (done, Some(hints))
        }
        UndoDirection::Forth => (
            revert::redo(messages, &mut record, &keep, &context).await,
            None,
        ),
    };
    let tracker = context.tracker.clone();
    base::task::spawn_blocking(move || tracker.save())
        .await
        .ok();
    store.close(id).await;
    let report = done.map_err(|nothing| anyhow!(nothing))?;
    let text = match hints {
        Some(hints) => report.undo_text(&context.worktree, &hints),
        None => report.redo_text(),
    };
    terminal::markdown(&text, environment);
    Ok(u8::from(report.not_restored().next().is_some()))
}

/// Prints the files with recorded versions. The session may be open elsewhere.
pub(in crate::cli) async fn list_recorded(
    store: &Store,
    id: &SessionId,
    json: bool,
) -> anyhow::Result<u8> {
    let stored = store.peek(id).await?;
    let files = revert::files_with_versions(&stored.messages, &stored.record);
    if json {
        let all: Vec<Value> = files
            .iter()
            .map(|(path, versions)| json!({ "path": path, "versions": versions }))
            .collect();
        terminal::json(&serde_json::to_string_pretty(&all)?);
        return Ok(u8::from(all.is_empty()));
    }
    if files.is_empty() {
        bail!("session {id} has not changed any files, or none were recorded");
    }
    for (path, versions) in files {
        super::super::say(&format!(
            "{}: {}",
            text::escaped(&path),
            text::count(versions, "version")
        ));
    }
    if terminal::is_watched() {
        super::super::say(&format!(
            "\n`adjutant sessions restore {id} FILE` lists the versions of a file."
        ));
    }
    Ok(0)
}

/// Prints the versions of a file. The session may be open elsewhere.
pub(in crate::cli) async fn list_versions(
    store: &Store,
    environment: &Environment,
    id: &SessionId,
    file: &Path,
    json: bool,
) -> anyhow::Result<u8> {
    let stored = store.peek(id).await?;
    let (path, versions) = versions(&stored, environment, file)?;
    let tracker = restore_context(&stored.record, environment)?.tracker;
    // Contents from another machine are fetched only when a version is restored.
    let size = |version: &FileVersion| {
        let content = tracker.content(&version.state).ok()?;
        Some(content.len())
    };
    if json {
        let all: Vec<Value> = (1..)
            .zip(&versions)
            .map(|(number, version): (usize, _)| {
                json!({
                    "path": path, "version": number, "when": version.when,
                    "created": version.time.map(Timestamp::iso), "bytes": size(version),
                })
            })
            .collect();
        terminal::json(&serde_json::to_string_pretty(&all)?);
        return Ok(0);
    }
    super::super::say(&text::escaped(&path.display().to_string()));
    for (number, version) in (1..).zip(&versions) {
        let size = size(version)
            .map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX))
            .map(export::file::size);
        let time = version.time.map(minute);
        let facts: Vec<String> = [size, time].into_iter().flatten().collect();
        let facts = if facts.is_empty() {
            String::new()
        } else {
            format!(" ({})", facts.join(", "))
        };
        super::super::say(&format!("{number:>3}  {}{facts}", version.when));
    }
    super::super::say(&format!(
        "\n`adjutant sessions restore {id} {} N` brings back version N.",
        file.display()
    ));
    Ok(0)
}

/// Restores a version of a file by its number. The session must not be open elsewhere.
pub(in crate::cli) async fn restore(
    store: &Store,
    environment: &Environment,
    id: &SessionId,
    file: &Path,
    number: usize,
    json: bool,
) -> anyhow::Result<u8> {
    store.is_shared().await;
    let mut stored = store.load(id).await?;
    let done = restore_of(&mut stored, store, environment, file, number).await;
    store.close(id).await;
    let Restored {
        path,
        was_changed,
        message,
    } = done?;
    if json {
        let document = json!({ "path": path, "version": number, "changed": was_changed });
        terminal::json(&serde_json::to_string_pretty(&document)?);
    } else {
        super::super::say(&message);
    }
    Ok(0)
}

/// A file of which a version is in place.
struct Restored {
    path: PathBuf,
    /// True if it had another content before.
    was_changed: bool,
    /// The report for the user.
    message: String,
}

/// Restores a version of a file of a session that is open here.
async fn restore_of(
    stored: &mut StoredSession,
    store: &Store,
    environment: &Environment,
    file: &Path,
    number: usize,
) -> anyhow::Result<Restored> {
    let (path, versions) = versions(stored, environment, file)?;
    let there = text::count(versions.len(), "version");
    let version = number
        .checked_sub(1)
        .and_then(|at| versions.into_iter().nth(at));
    let version = version.with_context(|| {
        format!(
            "there is no version {number} of {}: {there}",
            path.display()
        )
    })?;
    let context = restore_context(&stored.record, environment)?;
    let keep = Recorder::new(store.clone(), stored.record.id.clone());
    let name = text::escaped(&context.worktree.relative(&path));
    let first = if stored.record.undone.is_empty() {
        ""
    } else {
        "After what is undone, "
    };
    let when = version.when.clone();
    let StoredSession {
        messages, record, ..
    } = stored;
    let done =
        revert::restore_version(messages, record, &keep, &context, path.clone(), version).await;
    let report = done.map_err(|why| anyhow!("{name} is left as it is: {why}"))?;
    let tracker = context.tracker.clone();
    base::task::spawn_blocking(move || tracker.save())
        .await
        .ok();
    let was_changed = !report.restored.is_empty();
    let message = if was_changed {
        format!(
            "{name} is as it was {when}. {first}`adjutant sessions revert {} --redo` brings back what it replaced.",
            stored.record.id
        )
    } else {
        format!("{name} already has this content: {when}.")
    };
    Ok(Restored {
        path,
        was_changed,
        message,
    })
}

/// Returns a file's full path and its versions. The file may be given relative to the current
/// directory or to the project's root.
fn versions(
    stored: &StoredSession,
    environment: &Environment,
    file: &Path,
) -> anyhow::Result<(PathBuf, Vec<FileVersion>)> {
    let root = restore_context(&stored.record, environment)?
        .worktree
        .root
        .clone();
    for path in [std::path::absolute(file)?, root.join(file)] {
        // The directory may be deleted together with the file.
        let parent = path
            .parent()
            .and_then(|dir| std::fs::canonicalize(dir).ok());
        let path = parent
            .zip(path.file_name())
            .map_or(path.clone(), |(dir, name)| dir.join(name));
        let versions = revert::versions(&stored.messages, &stored.record, &path);
        if !versions.is_empty() {
            return Ok((path, versions));
        }
    }
    bail!(
        "session {} has saved no version of {}",
        stored.record.id,
        file.display()
    )
}

/// Prints the changes of a session as a unified diff, or per file. The session may be open
/// elsewhere.
pub(in crate::cli) async fn diff(
    store: &Store,
    environment: &Environment,
    id: &SessionId,
    stat: bool,
    json: bool,
) -> anyhow::Result<u8> {
    store.is_shared().await;
    let stored = store.peek(id).await?;
    let RestoreContext {
        tracker, worktree, ..
    } = restore_context(&stored.record, environment)?;
    let runs = changes::session_changes(&stored.messages, &stored.record);
    if runs.is_empty() && json {
        terminal::json("[]");
        return Ok(1);
    }
    if runs.is_empty() {
        bail!("session {id} has not changed any files, or none were recorded");
    }
    Recorder::new(store.clone(), id.clone())
        .fetch_contents(&tracker, &runs)
        .await;
    let diffs =
        base::task::spawn_blocking(move || diff::compute_diffs(&runs, &tracker, &worktree)).await?;
    if json {
        let entry = |diff: &diff::Diff| {
            let mut entry = json!({
                "path": diff.path, "additions": diff.additions, "deletions": diff.deletions,
            });
            if !stat {
                entry["diff"] = diff.text.as_str().into();
            }
            entry
        };
        let all: Vec<Value> = diffs.iter().map(entry).collect();
        terminal::json(&serde_json::to_string_pretty(&all)?);
    } else if stat {
        for diff in &diffs {
            super::super::say(&format!(
                "{} +{} −{}",
                diff.path, diff.additions, diff.deletions
            ));
        }
        super::super::say(&diff::changes_summary(&diffs));
    } else {
        let all: String = diffs.into_iter().map(|diff| diff.text).collect();
        terminal::diff(&all, environment);
    }
    Ok(0)
}

fn restore_context(record: &Record, environment: &Environment) -> anyhow::Result<RestoreContext> {
    if !record.cwd.is_dir() {
        bail!(
            "{}, where session {} worked, no longer exists",
            record.cwd.display(),
            record.id
        );
    }
    let home = environment.home.as_deref();
    let worktree = Worktree::find(&record.cwd, &record.additional_directories, home);
    let tracker = Tracker::new(&environment.dirs.data, &worktree.root, home);
    Ok(RestoreContext {
        tracker: Arc::new(tracker),
        worktree: Arc::new(worktree),
        editor: None,
    })
}
