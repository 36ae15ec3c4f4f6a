//! The pending jobs, in order for each session.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::ReplySender;
use crate::job::StoreJob;
use crate::write::{SessionWrite, latest};
use base::id::SessionId;

/// The approximate limits of the entries, and their bytes, that are written at a time for all
/// sessions.
const MAX_ENTRIES: usize = 4096;
const MAX_BYTES: usize = 8 << 20;

/// The writes of one session that are executed together, and the callers that wait for them.
pub(super) struct SessionBatch {
    pub(super) session: SessionId,
    pub(super) entries: Vec<SessionWrite>,
    /// The callers that learn whether the write succeeded.
    pub(super) flushes: Vec<ReplySender<()>>,
    /// The callers that learn when the write was attempted.
    pub(super) hand_overs: Vec<ReplySender<()>>,
}

impl SessionBatch {
    /// Creates a batch without new entries.
    pub(super) fn of(session: SessionId) -> Self {
        Self {
            session,
            entries: Vec::new(),
            flushes: Vec::new(),
            hand_overs: Vec::new(),
        }
    }
}

#[derive(Default)]
pub(super) struct JobQueues {
    queues: HashMap<SessionId, VecDeque<StoreJob>>,
    /// The sessions in the order in which they began to wait.
    order: VecDeque<SessionId>,
    jobs: usize,
}

impl JobQueues {
    pub(super) fn len(&self) -> usize {
        self.jobs
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs == 0
    }

    pub(super) fn push(&mut self, session: SessionId, job: StoreJob) {
        self.jobs += 1;
        let queue = self.queues.entry(session.clone()).or_default();
        if queue.is_empty() {
            self.order.push_back(session);
        }
        queue.push_back(job);
    }

    /// Takes the writes that can be executed now: of each session without a job in progress, all up
    /// to the first other job.
    pub(super) fn writes(&mut self, busy: &HashSet<SessionId>) -> Vec<SessionBatch> {
        let mut batches = Vec::new();
        let mut entries = 0;
        let mut bytes = 0;
        for session in &self.order {
            if entries >= MAX_ENTRIES || bytes >= MAX_BYTES {
                break;
            }
            if busy.contains(session) {
                continue;
            }
            let Some(queue) = self.queues.get_mut(session) else {
                continue;
            };
            let mut batch = SessionBatch::of(session.clone());
            while entries < MAX_ENTRIES && bytes < MAX_BYTES {
                match queue.pop_front() {
                    Some(StoreJob::Write { entry, .. }) => {
                        entries += 1;
                        bytes += entry.bytes();
                        batch.entries.push(entry);
                    }
                    Some(StoreJob::Flush { reply, .. }) => batch.flushes.push(reply),
                    Some(StoreJob::AwaitWritten { reply, .. }) => batch.hand_overs.push(reply),
                    Some(other) => {
                        queue.push_front(other);
                        break;
                    }
                    None => break,
                }
                self.jobs -= 1;
            }
            if !(batch.entries.is_empty()
                && batch.flushes.is_empty()
                && batch.hand_overs.is_empty())
            {
                batch.entries = latest(batch.entries);
                batches.push(batch);
            }
        }
        self.remove_empty();
        batches
    }

    /// Takes the next job other than a write, of a session without a job in progress.
    pub(super) fn next(&mut self, busy: &HashSet<SessionId>) -> Option<(SessionId, StoreJob)> {
        let writes = |job: &StoreJob| {
            matches!(
                job,
                StoreJob::Write { .. } | StoreJob::Flush { .. } | StoreJob::AwaitWritten { .. }
            )
        };
        let ready = |session: &&SessionId| {
            let first = self.queues.get(*session).and_then(VecDeque::front);
            !busy.contains(*session) && first.is_some_and(|job| !writes(job))
        };
        let session = self.order.iter().find(ready)?.clone();
        let job = self.queues.get_mut(&session)?.pop_front()?;
        self.jobs -= 1;
        self.remove_empty();
        Some((session, job))
    }

    fn remove_empty(&mut self) {
        let queues = &mut self.queues;
        self.order
            .retain(|session| queues.get(session).is_some_and(|queue| !queue.is_empty()));
        queues.retain(|_, queue| !queue.is_empty());
    }
}
