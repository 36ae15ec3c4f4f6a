//! Deletion of old sessions, by the age that the user has set.

use base::environment::Timestamp;
use base::id::SessionId;
use store::{Error, Record, Store};

/// A session that is old enough to be deleted.
#[derive(Debug)]
pub struct Prunable {
    pub record: Record,
    /// True if it is deleted because it has no messages, and only as long as it has none.
    is_empty: bool,
}

#[derive(Debug, Default)]
pub struct Pruned {
    pub deleted: Vec<Record>,
    /// Sessions that could not be deleted, and why.
    pub failed: Vec<(SessionId, Error)>,
}

impl Pruned {
    fn add(&mut self, record: Record, gone: Result<bool, Error>) {
        match gone {
            Ok(true) => self.deleted.push(record),
            Ok(false) => {} // it is in use by now
            Err(e) => self.failed.push((record.id, e)),
        }
    }
}

const DAY_MILLIS: u64 = 24 * 60 * 60 * 1000;

/// True if a session was not used for a number of days.
fn is_unused(record: &Record, now: Timestamp, days: u64) -> bool {
    now.0.saturating_sub(record.updated.0) > days.saturating_mul(DAY_MILLIS)
}

/// Returns the sessions that were not used for longer than `keep_days`, if that is given, and
/// day-old empty sessions that killed processes have left.
///
/// # Errors
/// The store's, if the sessions cannot be listed.
pub async fn find_prunable(
    store: &Store,
    now: Timestamp,
    keep_days: Option<u64>,
) -> Result<Vec<Prunable>, Error> {
    let mut found = Vec::new();
    for record in store.empty_sessions().await? {
        if is_unused(&record, now, 1) {
            found.push(Prunable {
                record,
                is_empty: true,
            });
        }
    }
    let mut after = None;
    while let Some(days) = keep_days {
        let page = store.list(None, after, 500).await?;
        for record in page.sessions {
            if is_unused(&record, now, days) {
                found.push(Prunable {
                    record,
                    is_empty: false,
                });
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(found)
}

/// Deletes sessions that were found, together with their children. Those that are open anywhere are
/// not deleted.
pub async fn delete(store: &Store, found: Vec<Prunable>) -> Pruned {
    let mut pruned = Pruned::default();
    for Prunable { record, is_empty } in found {
        let gone = store.delete_if_not_open(&record.id, is_empty).await;
        pruned.add(record, gone);
    }
    pruned
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::id::MessageId;
    use store::RecordChange;
    use transcript::{Message, ModelRef, Role, User};

    #[tokio::test]
    async fn old_and_empty_sessions_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::start(dir.path());
        let now = Timestamp(100 * DAY_MILLIS);
        // The days of creation and last use, whether there is a message, whether the user
        // gave a title.
        let cases = [
            ("empty", 98, 98, false, false),
            ("empty today", 100, 100, false, false),
            ("empty and named", 98, 98, false, true),
            ("its first turn was killed", 98, 98, true, false),
            ("used long ago", 1, 2, true, false),
            ("used lately", 1, 80, true, false),
        ];
        let id = |n: usize| SessionId::new(format!("ses_0000000{n}"));
        for (n, (_, created, updated, has_message, named)) in cases.into_iter().enumerate() {
            let new = Record::new(id(n), "/w".into(), Timestamp(created * DAY_MILLIS));
            let record = Record {
                updated: Timestamp(updated * DAY_MILLIS),
                ..new
            };
            store.create(&record).await.unwrap();
            let choice = RecordChange::Choice {
                agent: "plan".into(),
                model: None,
                steer: None,
                approvals: None,
            };
            store.queue_record_change(&record.id, choice).await;
            if named {
                store
                    .queue_record_change(&record.id, RecordChange::Title("Mine".into()))
                    .await;
            }
            if has_message {
                let model = ModelRef {
                    provider: "p".into(),
                    model: "m".into(),
                    effort: None,
                };
                let role = Role::User(User {
                    agent: "build".into(),
                    model,
                });
                let message = Message {
                    id: MessageId::new("m"),
                    created: now,
                    role,
                    parts: Vec::new(),
                };
                store.write_message(&record.id, &message).await;
            }
            store.flush(&record.id).await.unwrap();
            // The state after a process was killed.
            store.close(&record.id).await;
        }
        for (keep, expected) in [(None, vec!["empty"]), (Some(30), vec!["used long ago"])] {
            let names = |ids: Vec<SessionId>| -> Vec<&str> {
                (0..cases.len())
                    .filter(|n| ids.contains(&id(*n)))
                    .map(|n| cases[n].0)
                    .collect()
            };
            let found = find_prunable(&store, now, keep).await.unwrap();
            let found_ids = found.iter().map(|found| found.record.id.clone()).collect();
            assert_eq!(names(found_ids), expected, "{keep:?}");
            let pruned = delete(&store, found).await;
            let gone = pruned.deleted.into_iter().map(|gone| gone.id).collect();
            assert_eq!(names(gone), expected, "{keep:?}");
            assert!(pruned.failed.is_empty());
        }
    }
}
