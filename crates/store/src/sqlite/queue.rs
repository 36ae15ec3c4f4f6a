//! The pending jobs of the store's thread, sorted by session, and the choice of the next one.
//!
//! The jobs of one session are executed in order. There is no order between sessions: one with a
//! job whose caller waits precedes one with only writes, because otherwise the end of a turn would
//! wait for the texts of all other sessions.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::ReplySender;
use crate::job::StoreJob;
use crate::write::{SessionWrite, latest};
use base::id::SessionId;

/// The maximum number of times that a session is passed over.
const MAX_PASSED_OVER: u32 = 8;

/// The maximum number of entries in one transaction, and their approximate size in bytes.
const MAX_BATCH_ENTRIES: usize = 256;
const MAX_BATCH_BYTES: usize = 8 << 20;

/// The size from which writing takes a while, in bytes.
const LONG_BATCH_BYTES: usize = 128 << 10;

#[derive(Default)]
pub(super) struct Queue {
    /// The sessions in the order in which they began to wait.
    queues: BTreeMap<u64, SessionQueue>,
    /// The number of each session's queue.
    numbers: HashMap<SessionId, u64>,
    last: u64,
    jobs: usize,
    /// The number of jobs whose callers wait, and of queues that may not be passed over again.
    /// While both are 0, the first queue that can be served is the next one.
    waiting: usize,
    overdue: usize,
}

/// The pending jobs of one session, in order.
struct SessionQueue {
    session: SessionId,
    jobs: VecDeque<StoreJob>,
    /// The number of jobs whose callers wait.
    waiting: usize,
    /// The size of the pending writes, in bytes.
    bytes: usize,
    /// The number of times that others were served first.
    times_passed: u32,
}

/// The jobs of one session that are executed together.
pub(super) struct Batch {
    pub(super) session: SessionId,
    pub(super) entries: Vec<SessionWrite>,
    /// The callers that wait until the entries are on the disk.
    pub(super) flushes: Vec<ReplySender<()>>,
    /// The job that is executed afterwards.
    pub(super) then: Option<StoreJob>,
    /// True if it takes a while, and should not block other sessions.
    pub(super) is_long: bool,
}

/// The state of a session's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileStatus {
    Open,
    /// Not open: opening or creating it takes a while.
    Closed,
    /// Being written in the background: nothing else can be done for the session.
    InBackground,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.jobs == 0
    }

    pub(super) fn len(&self) -> usize {
        self.jobs
    }

    /// Appends a job to the queue of its session.
    pub(super) fn push(&mut self, session: SessionId, job: StoreJob) {
        let waiting = usize::from(has_waiting_caller(&job));
        let bytes = bytes(&job);
        self.jobs += 1;
        self.waiting += waiting;
        let number = *self.numbers.entry(session.clone()).or_insert_with(|| {
            self.last += 1;
            self.last
        });
        let queue = self.queues.entry(number).or_insert_with(|| SessionQueue {
            session,
            jobs: VecDeque::new(),
            waiting: 0,
            bytes: 0,
            times_passed: 0,
        });
        queue.waiting += waiting;
        queue.bytes += bytes;
        queue.jobs.push_back(job);
    }

    /// Takes the next batch, if one can be executed now. A long batch can be executed only if a
    /// background writer is free.
    pub(super) fn next(
        &mut self,
        state: impl Fn(&SessionId) -> FileStatus,
        is_writer_free: bool,
    ) -> Option<Batch> {
        let (number, is_long) = self.first(state, is_writer_free)?;
        let mut queue = self.queues.remove(&number)?;
        self.numbers.remove(&queue.session);
        self.overdue -= usize::from(queue.times_passed >= MAX_PASSED_OVER);
        for (_, earlier) in self.queues.range_mut(..number) {
            earlier.times_passed += 1;
            self.overdue += usize::from(earlier.times_passed == MAX_PASSED_OVER);
        }
        let before = queue.jobs.len();
        let session = queue.session.clone();
        let mut batch = Batch {
            session,
            entries: Vec::new(),
            flushes: Vec::new(),
            then: None,
            is_long,
        };
        let mut taken = 0;
        while batch.entries.len() < MAX_BATCH_ENTRIES
            && taken < MAX_BATCH_BYTES
            && batch.then.is_none()
        {
            match queue.jobs.pop_front() {
                None => break,
                Some(StoreJob::Write { entry, .. }) => {
                    taken += entry.bytes();
                    batch.entries.push(entry);
                }
                Some(StoreJob::Flush { reply, .. }) => batch.flushes.push(reply),
                Some(job) => batch.then = Some(job),
            }
        }
        queue.bytes -= taken;
        let served =
            batch.flushes.len() + usize::from(batch.then.as_ref().is_some_and(has_waiting_caller));
        queue.waiting -= served;
        self.waiting -= served;
        self.jobs -= before - queue.jobs.len();
        if !queue.jobs.is_empty() {
            queue.times_passed = 0;
            self.last += 1;
            self.numbers.insert(queue.session.clone(), self.last);
            self.queues.insert(self.last, queue);
        }
        batch.entries = latest(batch.entries);
        Some(batch)
    }

    /// Returns the number of the next queue, and whether its batch takes a while.
    fn first(
        &self,
        state: impl Fn(&SessionId) -> FileStatus,
        is_writer_free: bool,
    ) -> Option<(u64, bool)> {
        let mut ranked = self.queues.iter().filter_map(|(number, queue)| {
            let state = state(&queue.session);
            let is_long = state == FileStatus::Closed || queue.bytes > LONG_BATCH_BYTES;
            let rank = match (queue.times_passed >= MAX_PASSED_OVER, queue.waiting > 0) {
                _ if state == FileStatus::InBackground || (is_long && !is_writer_free) => {
                    return None;
                }
                (true, _) => 0,
                (false, true) if !is_long => 1,
                (false, true) => 2,
                (false, false) => 3,
            };
            Some((rank, *number, is_long))
        });
        let first = if self.waiting == 0 && self.overdue == 0 {
            ranked.next()
        } else {
            ranked.min()
        };
        first.map(|(_, number, is_long)| (number, is_long))
    }
}

fn bytes(job: &StoreJob) -> usize {
    match job {
        StoreJob::Write { entry, .. } => entry.bytes(),
        _ => 0,
    }
}

/// True if a caller waits for the job, which is true of all jobs except writes.
fn has_waiting_caller(job: &StoreJob) -> bool {
    !matches!(job, StoreJob::Write { .. })
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::write::PartJson;

    fn id(session: &str) -> SessionId {
        SessionId::new(session)
    }

    /// Adds a job: `a p1=x` writes part p1 of session a. Others: `a flush`, `a close`, `a peek`, `a
    /// cut`, `a record`.
    fn push(queue: &mut Queue, job: &str) {
        let (session, what) = job.split_once(' ').unwrap();
        let session = id(session);
        let own = session.clone();
        let write = |entry| StoreJob::Write {
            session: own.clone(),
            entry,
        };
        let job = match what {
            "flush" => StoreJob::Flush {
                session: own,
                reply: oneshot::channel().0,
            },
            "close" => StoreJob::Close {
                session: own,
                reply: oneshot::channel().0,
            },
            "peek" => StoreJob::Peek {
                session: own,
                reply: oneshot::channel().0,
            },
            "cut" => write(SessionWrite::Cut { from: "m".into() }),
            what => {
                let (part, json) = what.split_once('=').unwrap();
                write(SessionWrite::Part {
                    id: part.into(),
                    message: "m".into(),
                    json: PartJson::Plain(json.into()),
                    is_growing: false,
                })
            }
        };
        queue.push(session, job);
    }

    fn show(batch: &Batch) -> String {
        let mut out = batch.session.to_string();
        for entry in &batch.entries {
            out += &match entry {
                SessionWrite::Part {
                    id,
                    json: PartJson::Plain(json),
                    ..
                } => format!(" {id}={json}"),
                SessionWrite::Cut { .. } => " cut".into(),
                entry => format!(" {entry:?}"),
            };
        }
        out += &" flush".repeat(batch.flushes.len());
        out + match &batch.then {
            None => "",
            Some(StoreJob::Close { .. }) => " close",
            Some(_) => " peek",
        }
    }

    fn state(session: &SessionId) -> FileStatus {
        match session.as_str() {
            name if name.starts_with("new") => FileStatus::Closed,
            name if name.starts_with("away") => FileStatus::InBackground,
            _ => FileStatus::Open,
        }
    }

    fn order(jobs: &[&str], is_writer_free: bool) -> Vec<String> {
        let mut queue = Queue::default();
        jobs.iter().for_each(|job| push(&mut queue, job));
        let batches: Vec<Batch> =
            std::iter::from_fn(|| queue.next(state, is_writer_free)).collect();
        let left = jobs
            .iter()
            .filter(|job| job.starts_with("away") || (!is_writer_free && job.starts_with("new")))
            .count();
        assert_eq!(queue.len(), left, "{jobs:?}");
        batches.iter().map(show).collect()
    }

    #[test]
    fn session_with_waiting_caller_is_next() {
        let table: [(&[&str], &[&str]); 10] = [
            (&[], &[]),
            (&["a p=1", "a q=1", "a flush"], &["a p=1 q=1 flush"]),
            // A flush is not delayed by writes of other sessions.
            (
                &["a p=1", "b p=1", "c p=1", "c flush"],
                &["c p=1 flush", "a p=1", "b p=1"],
            ),
            (
                &["a p=1", "b flush", "c flush", "a flush"],
                &["a p=1 flush", "b flush", "c flush"],
            ),
            // Nor by files that have to be created.
            (
                &["new1 p=1", "new1 flush", "new2 peek", "a p=1", "a flush"],
                &["a p=1 flush", "new1 p=1 flush", "new2 peek"],
            ),
            // A session in the background is not touched.
            (&["away p=1", "away flush", "a p=1"], &["a p=1"]),
            // The jobs of a session stay in order.
            (
                &["a p=1", "a peek", "a p=2", "a close"],
                &["a p=1 peek", "a p=2 close"],
            ),
            (
                &["a close", "b p=1", "a p=1", "a flush"],
                &["a close", "a p=1 flush", "b p=1"],
            ),
            // An entry that is written again is written once, at its first position.
            (
                &["a p=1", "a q=1", "a p=2", "a flush", "a p=3"],
                &["a p=3 q=1 flush"],
            ),
            (&["a p=1", "a cut", "a p=2", "a p=3"], &["a p=1 cut p=3"]),
        ];
        for (jobs, expected) in table {
            assert_eq!(order(jobs, true), expected, "{jobs:?}");
        }
        assert_eq!(order(&["new p=1", "new flush", "a p=1"], false), ["a p=1"]);
    }

    #[test]
    fn long_batch_waits_for_free_writer() {
        let large_write = format!("a p={}", "x".repeat(LONG_BATCH_BYTES + 1));
        let mut queue = Queue::default();
        for job in [large_write.as_str(), "a flush", "b p=1"] {
            push(&mut queue, job);
        }
        let next = |queue: &mut Queue, is_writer_free| {
            queue
                .next(state, is_writer_free)
                .map(|batch| (batch.session.to_string(), batch.is_long))
        };
        assert_eq!(next(&mut queue, false), Some(("b".into(), false)));
        assert_eq!(next(&mut queue, false), None);
        assert_eq!(next(&mut queue, true), Some(("a".into(), true)));
        assert!(queue.is_empty());
    }

    #[test]
    fn passed_over_session_is_served() {
        let mut queue = Queue::default();
        for job in ["slow p=1", "new p=1", "new flush"] {
            push(&mut queue, job);
        }
        let mut done = Vec::new();
        for _ in 0..12 {
            push(&mut queue, "busy flush");
            done.push(queue.next(state, true).unwrap().session.to_string());
        }
        assert_eq!(done.iter().position(|session| session == "slow"), Some(8));
        assert_eq!(done.iter().position(|session| session == "new"), Some(9));
    }

    #[test]
    fn next_without_waiting_callers_checks_one_session() {
        let mut queue = Queue::default();
        for n in 0..500 {
            push(&mut queue, &format!("a{n} p=1"));
        }
        let looked = std::cell::Cell::new(0);
        let counted = |session: &SessionId| {
            looked.set(looked.get() + 1);
            state(session)
        };
        while queue.next(counted, true).is_some() {}
        assert!(looked.get() <= 500, "{}", looked.get());
        assert!(queue.is_empty() && queue.numbers.is_empty() && queue.queues.is_empty());
    }

    #[test]
    fn batch_is_limited() {
        let mut queue = Queue::default();
        for n in 0..=MAX_BATCH_ENTRIES {
            push(&mut queue, &format!("a p{n}=1"));
        }
        push(&mut queue, "a flush");
        let batches: Vec<Batch> = std::iter::from_fn(|| queue.next(state, true)).collect();
        let shape: Vec<_> = batches
            .iter()
            .map(|batch| (batch.entries.len(), batch.flushes.len()))
            .collect();
        assert_eq!(shape, [(MAX_BATCH_ENTRIES, 0), (1, 1)]);
        let large = "x".repeat(MAX_BATCH_BYTES);
        push(&mut queue, &format!("a p={large}"));
        push(&mut queue, "a q=1");
        assert_eq!(queue.next(state, true).unwrap().entries.len(), 1);
        assert_eq!(queue.len(), 1);
    }
}
