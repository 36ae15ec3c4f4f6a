//! Old sessions go, where the user says what old is.

use std::path::PathBuf;

use crate::config;
use crate::environment::{Environment, Timestamp};
use crate::id::SessionId;
use crate::store::{Error, Record, Store};
use crate::worktree::Worktree;

#[derive(Debug, Clone, Copy, Default)]
pub struct Prune {
    /// Sessions not used for longer than this.
    pub keep_days: Option<u64>,
    /// Nothing goes, it is only said what would.
    pub dry: bool,
}

#[derive(Debug, Default)]
pub struct Pruned {
    pub gone: Vec<Record>,
    /// Those that should have gone and did not, and why.
    pub kept: Vec<(SessionId, Error)>,
}

const DAY: u64 = 24 * 60 * 60 * 1000;

/// Whether a session goes. One in which nothing was said in a day never will be of use.
fn goes(record: &Record, now: Timestamp, keep_days: Option<u64>) -> bool {
    let unused = now.0.saturating_sub(record.updated.0);
    let empty = record.updated == record.created && record.title.is_none();
    (empty && unused > DAY) || keep_days.is_some_and(|days| unused > days.saturating_mul(DAY))
}

/// What the user's own settings say; read where no project speaks, so that a project cannot have the
/// user's sessions deleted.
pub fn keep_days(environment: &Environment) -> Option<u64> {
    let own = environment.home.clone().unwrap_or_else(|| PathBuf::from("/"));
    let worktree = Worktree::find(&own, &[], environment.home.as_deref());
    config::load(environment, &worktree, &own).settings.keep_days
}

/// Deletes what is too old, children with their parents. One that is open somewhere stays.
///
/// # Errors
/// The store's, where nothing can be listed.
pub async fn prune(store: &Store, now: Timestamp, prune: &Prune) -> Result<Pruned, Error> {
    let (mut pruned, mut after) = (Pruned::default(), None);
    let mut old = Vec::new();
    loop {
        let page = store.list(None, after, 500).await?;
        old.extend(page.sessions.into_iter().filter(|record| goes(record, now, prune.keep_days)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    for record in old {
        let done = if prune.dry { Ok(()) } else { store.delete(&record.id).await };
        match done {
            Ok(()) => pruned.gone.push(record),
            Err(e) => pruned.kept.push((record.id, e)),
        }
    }
    Ok(pruned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_empty_ones_go() {
        let record = |created: u64, updated: u64, title: Option<&str>| Record {
            updated: Timestamp(updated * DAY),
            title: title.map(str::to_owned),
            ..Record::new(SessionId::new("ses_00000001"), "/w".into(), Timestamp(created * DAY))
        };
        for (case, keep, expected) in [
            (record(1, 1, None), None, true),
            (record(99, 99, None), None, false),
            (record(1, 2, Some("x")), None, false),
            (record(1, 2, Some("x")), Some(30), true),
            (record(1, 80, Some("x")), Some(30), false),
        ] {
            assert_eq!(goes(&case, Timestamp(100 * DAY), keep), expected, "{case:?} {keep:?}");
        }
    }
}
