//! `adjutant sessions revert` and `diff`: what a session did to the files, and the way back.

use std::sync::Arc;

use anyhow::{anyhow, bail};

use crate::environment::Environment;
use crate::id::SessionId;
use crate::session::revert::{self, RestoreContext, RevertPoint};
use crate::session::{changes, diff};
use crate::snapshot::Tracker;
use crate::store::{Record, Store, visible};
use crate::turn::record::Recorder;
use crate::worktree::Worktree;

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
                redo: format!("`adjutant sessions revert {id} --redo` brings everything back, until the next prompt."),
            };
            (done, Some(phrases))
        }
        Way::Forth => (revert::redo(messages, &mut record, &keep, &hands).await, None),
    };
    let tracker = hands.tracker.clone();
    crate::task::spawn_blocking(move || tracker.save()).await.ok();
    store.close(id).await;
    let report = done.map_err(|nothing| anyhow!(nothing))?;
    super::super::say(&match phrases {
        Some(phrases) => report.undone(&hands.worktree, &phrases),
        None => report.redone(),
    });
    Ok(u8::from(!report.left.is_empty()))
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
    let diffs = crate::task::spawn_blocking(move || diff::diffs(&runs, &tracker, &worktree)).await?;
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
