//! The pending jobs, in order for each session.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::ReplySender;
use crate::job::StoreJob;
use crate::write::{SessionWrite, latest};
use base::id::SessionId;

/// The approximate limits of the entries, and their bytes, that are written at a time for all
/// sessions.
const ENTRIES: usize = 4096;
const BYTES: usize = 8 << 20;

/// The writes of one session that are executed together, and the callers that wait for them.
pub(super) struct SessionBatch {
    pub(super) session: SessionId,
    pub(super) entries: Vec<SessionWrite>,
    /// The callers that learn whether the write succeeded.
    pub(super) flushes: Vec<ReplySender<()>>,
    /// The callers that learn when the write was attempted.
    pub(super) handed: Vec<ReplySender<()>>,
}

impl SessionBatch {
    /// Creates a batch without new entries.
    pub(super) fn of(session: SessionId) -> Self {
        Self { session, entries: Vec::new(), flushes: Vec::new(), handed: Vec::new() }
    }
}

#[derive(Default)]
pub(super) struct Lines {
    lines: HashMap<SessionId, VecDeque<StoreJob>>,
    /// The sessions in the order in which they began to wait.
    order: VecDeque<SessionId>,
    jobs: usize,
}

impl Lines {
    pub(super) fn len(&self) -> usize {
        self.jobs
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs == 0
    }

    pub(super) fn push(&mut self, session: SessionId, job: StoreJob) {
        self.jobs += 1;
        let line = self.lines.entry(session.clone()).or_default();
        if line.is_empty() {
            self.order.push_back(session);
        }
        line.push_back(job);
    }

    /// Takes the writes that can be executed now: of each session without a job in progress, all up
    /// to the first other job.
    pub(super) fn writes(&mut self, busy: &HashSet<SessionId>) -> Vec<SessionBatch> {
        let (mut batches, mut entries, mut bytes) = (Vec::new(), 0, 0);
        for session in &self.order {
            if entries >= ENTRIES || bytes >= BYTES {
                break;
            }
            let Some(line) = self.lines.get_mut(session).filter(|_| !busy.contains(session)) else { continue };
            let mut batch = SessionBatch::of(session.clone());
            while entries < ENTRIES && bytes < BYTES {
                match line.pop_front() {
                    Some(StoreJob::Write { entry, .. }) => {
                        entries += 1;
                        bytes += entry.bytes();
                        batch.entries.push(entry);
                    }
                    Some(StoreJob::Flush { reply, .. }) => batch.flushes.push(reply),
                    Some(StoreJob::HandOver { reply, .. }) => batch.handed.push(reply),
                    Some(other) => {
                        line.push_front(other);
                        break;
                    }
                    None => break,
                }
                self.jobs -= 1;
            }
            if !(batch.entries.is_empty() && batch.flushes.is_empty() && batch.handed.is_empty()) {
                batch.entries = latest(batch.entries);
                batches.push(batch);
            }
        }
        self.settle();
        batches
    }

    /// Takes the next job other than a write, of a session without a job in progress.
    pub(super) fn next(&mut self, busy: &HashSet<SessionId>) -> Option<(SessionId, StoreJob)> {
        let writes =
            |job: &StoreJob| matches!(job, StoreJob::Write { .. } | StoreJob::Flush { .. } | StoreJob::HandOver { .. });
        let ready = |session: &&SessionId| {
            let first = self.lines.get(*session).and_then(VecDeque::front);
            !busy.contains(*session) && first.is_some_and(|job| !writes(job))
        };
        let session = self.order.iter().find(ready)?.clone();
        let job = self.lines.get_mut(&session)?.pop_front()?;
        self.jobs -= 1;
        self.settle();
        Some((session, job))
    }

    fn settle(&mut self) {
        let lines = &mut self.lines;
        self.order.retain(|session| lines.get(session).is_some_and(|line| !line.is_empty()));
        lines.retain(|_, line| !line.is_empty());
    }
}
