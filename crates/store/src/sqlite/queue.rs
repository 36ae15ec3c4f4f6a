//! What waits for the store's thread, sorted by session, and who is next.
//!
//! What belongs to one session is done in the order it came. Between sessions there is no order: one
//! that somebody waits for goes before one that merely writes, or the end of a turn would wait for
//! the words of all the others.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::ReplySender;
use crate::job::StoreJob;
use crate::write::{SessionWrite, latest};
use base::id::SessionId;

/// How often a session may be passed over.
const PATIENCE: u32 = 8;

/// How many entries are written in one transaction, and bytes of them, about.
const ENTRIES: usize = 256;
const BYTES: usize = 8 << 20;

/// More bytes than this take a while.
const LONG: usize = 128 << 10;

#[derive(Default)]
pub(super) struct Queue {
    /// The sessions in the order in which they began to wait.
    lines: BTreeMap<u64, SessionQueue>,
    /// The number of each session's line.
    numbers: HashMap<SessionId, u64>,
    last: u64,
    jobs: usize,
    /// How many jobs somebody waits for, and how many lines may not be passed over again: while there are none, the
    /// first line that can be served is the next one.
    waited: usize,
    overdue: usize,
}

/// What waits for one session, in order.
struct SessionQueue {
    session: SessionId,
    jobs: VecDeque<StoreJob>,
    /// How many of them somebody waits for.
    waited: usize,
    /// How much there is to be written.
    bytes: usize,
    /// How often others went first.
    passed: u32,
}

/// What is done for one session in one go.
pub(super) struct Batch {
    pub(super) session: SessionId,
    pub(super) entries: Vec<SessionWrite>,
    /// Who waits until they are on the disk.
    pub(super) flushes: Vec<ReplySender<()>>,
    /// What is done after that.
    pub(super) then: Option<StoreJob>,
    /// It takes a while, and should not be done while others wait.
    pub(super) long: bool,
}

/// How it stands with a session's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileStatus {
    Open,
    /// Opening it, or making it, takes a while.
    Closed,
    /// It is being written to: nothing else can be done for the session.
    Away,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.jobs == 0
    }

    pub(super) fn len(&self) -> usize {
        self.jobs
    }

    /// Puts a job behind those of its session.
    pub(super) fn push(&mut self, session: SessionId, job: StoreJob) {
        let (waited, bytes) = (usize::from(waited(&job)), bytes(&job));
        self.jobs += 1;
        self.waited += waited;
        let number = *self.numbers.entry(session.clone()).or_insert_with(|| {
            self.last += 1;
            self.last
        });
        let line = self.lines.entry(number).or_insert_with(|| SessionQueue {
            session,
            jobs: VecDeque::new(),
            waited: 0,
            bytes: 0,
            passed: 0,
        });
        line.waited += waited;
        line.bytes += bytes;
        line.jobs.push_back(job);
    }

    /// Takes out what is to be done next, if there is something that can be done now. What takes a while
    /// can be only where somebody is `free` to do it beside the others.
    pub(super) fn next(&mut self, state: impl Fn(&SessionId) -> FileStatus, free: bool) -> Option<Batch> {
        let (number, long) = self.first(state, free)?;
        let mut line = self.lines.remove(&number)?;
        self.numbers.remove(&line.session);
        self.overdue -= usize::from(line.passed >= PATIENCE);
        for (_, passed) in self.lines.range_mut(..number) {
            passed.passed += 1;
            self.overdue += usize::from(passed.passed == PATIENCE);
        }
        let before = line.jobs.len();
        let session = line.session.clone();
        let mut piece = Batch { session, entries: Vec::new(), flushes: Vec::new(), then: None, long };
        let mut taken = 0;
        while piece.entries.len() < ENTRIES && taken < BYTES && piece.then.is_none() {
            match line.jobs.pop_front() {
                None => break,
                Some(StoreJob::Write { entry, .. }) => {
                    taken += entry.bytes();
                    piece.entries.push(entry);
                }
                Some(StoreJob::Flush { reply, .. }) => piece.flushes.push(reply),
                Some(job) => piece.then = Some(job),
            }
        }
        line.bytes -= taken;
        let served = piece.flushes.len() + usize::from(piece.then.as_ref().is_some_and(waited));
        line.waited -= served;
        self.waited -= served;
        self.jobs -= before - line.jobs.len();
        if !line.jobs.is_empty() {
            line.passed = 0;
            self.last += 1;
            self.numbers.insert(line.session.clone(), self.last);
            self.lines.insert(self.last, line);
        }
        piece.entries = latest(piece.entries);
        Some(piece)
    }

    /// Returns the number of the line that is next, and whether what it has takes a while.
    fn first(&self, state: impl Fn(&SessionId) -> FileStatus, free: bool) -> Option<(u64, bool)> {
        let mut ranked = self.lines.iter().filter_map(|(number, line)| {
            let state = state(&line.session);
            let long = state == FileStatus::Closed || line.bytes > LONG;
            let rank = match (line.passed >= PATIENCE, line.waited > 0) {
                _ if state == FileStatus::Away || (long && !free) => return None,
                (true, _) => 0,
                (false, true) if !long => 1,
                (false, true) => 2,
                (false, false) => 3,
            };
            Some((rank, *number, long))
        });
        let first = if self.waited == 0 && self.overdue == 0 { ranked.next() } else { ranked.min() };
        first.map(|(_, number, long)| (number, long))
    }
}

fn bytes(job: &StoreJob) -> usize {
    match job {
        StoreJob::Write { entry, .. } => entry.bytes(),
        _ => 0,
    }
}

/// Writes are the only jobs that nobody waits for.
fn waited(job: &StoreJob) -> bool {
    !matches!(job, StoreJob::Write { .. })
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn id(session: &str) -> SessionId {
        SessionId::new(session)
    }

    /// `a p1=x`: session a writes part p1. `a flush`, `a close`, `a peek`, `a cut`, `a record`.
    fn push(queue: &mut Queue, job: &str) {
        let (session, what) = job.split_once(' ').unwrap();
        let session = id(session);
        let own = session.clone();
        let write = |entry| StoreJob::Write { session: own.clone(), entry };
        let job = match what {
            "flush" => StoreJob::Flush { session: own, reply: oneshot::channel().0 },
            "close" => StoreJob::Close { session: own, reply: oneshot::channel().0 },
            "peek" => StoreJob::Peek { session: own, reply: oneshot::channel().0 },
            "cut" => write(SessionWrite::Cut { from: "m".into() }),
            what => {
                let (part, json) = what.split_once('=').unwrap();
                write(SessionWrite::Part { id: part.into(), message: "m".into(), json: json.into() })
            }
        };
        queue.push(session, job);
    }

    fn show(piece: &Batch) -> String {
        let mut out = piece.session.to_string();
        for entry in &piece.entries {
            out += &match entry {
                SessionWrite::Part { id, json, .. } => format!(" {id}={json}"),
                SessionWrite::Cut { .. } => " cut".into(),
                entry => format!(" {entry:?}"),
            };
        }
        out += &" flush".repeat(piece.flushes.len());
        out + match &piece.then {
            None => "",
            Some(StoreJob::Close { .. }) => " close",
            Some(_) => " peek",
        }
    }

    fn state(session: &SessionId) -> FileStatus {
        match session.as_str() {
            name if name.starts_with("new") => FileStatus::Closed,
            name if name.starts_with("away") => FileStatus::Away,
            _ => FileStatus::Open,
        }
    }

    fn order(jobs: &[&str], free: bool) -> Vec<String> {
        let mut queue = Queue::default();
        jobs.iter().for_each(|job| push(&mut queue, job));
        let pieces: Vec<Batch> = std::iter::from_fn(|| queue.next(state, free)).collect();
        let left = jobs.iter().filter(|job| job.starts_with("away") || (!free && job.starts_with("new"))).count();
        assert_eq!(queue.len(), left, "{jobs:?}");
        pieces.iter().map(show).collect()
    }

    #[test]
    fn who_is_waited_for_goes_first() {
        let table: [(&[&str], &[&str]); 10] = [
            (&[], &[]),
            (&["a p=1", "a q=1", "a flush"], &["a p=1 q=1 flush"]),
            // A flush is not behind what others write.
            (&["a p=1", "b p=1", "c p=1", "c flush"], &["c p=1 flush", "a p=1", "b p=1"]),
            (&["a p=1", "b flush", "c flush", "a flush"], &["a p=1 flush", "b flush", "c flush"]),
            // Nor behind files that have to be made.
            (
                &["new1 p=1", "new1 flush", "new2 peek", "a p=1", "a flush"],
                &["a p=1 flush", "new1 p=1 flush", "new2 peek"],
            ),
            // What is being worked on stays.
            (&["away p=1", "away flush", "a p=1"], &["a p=1"]),
            // What belongs to a session stays in order.
            (&["a p=1", "a peek", "a p=2", "a close"], &["a p=1 peek", "a p=2 close"]),
            (&["a close", "b p=1", "a p=1", "a flush"], &["a close", "a p=1 flush", "b p=1"]),
            // What is written again is written once, where it was first.
            (&["a p=1", "a q=1", "a p=2", "a flush", "a p=3"], &["a p=3 q=1 flush"]),
            (&["a p=1", "a cut", "a p=2", "a p=3"], &["a p=1 cut p=3"]),
        ];
        for (jobs, expected) in table {
            assert_eq!(order(jobs, true), expected, "{jobs:?}");
        }
        assert_eq!(order(&["new p=1", "new flush", "a p=1"], false), ["a p=1"]);
    }

    #[test]
    fn what_is_long_waits_for_somebody_who_is_free() {
        let long = format!("a p={}", "x".repeat(LONG + 1));
        let mut queue = Queue::default();
        for job in [long.as_str(), "a flush", "b p=1"] {
            push(&mut queue, job);
        }
        let next =
            |queue: &mut Queue, free| queue.next(state, free).map(|piece| (piece.session.to_string(), piece.long));
        assert_eq!(next(&mut queue, false), Some(("b".into(), false)));
        assert_eq!(next(&mut queue, false), None);
        assert_eq!(next(&mut queue, true), Some(("a".into(), true)));
        assert!(queue.is_empty());
    }

    #[test]
    fn nobody_waits_for_ever() {
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
    fn next_looks_at_one_session_where_nobody_waits() {
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
        assert!(queue.is_empty() && queue.numbers.is_empty() && queue.lines.is_empty());
    }

    #[test]
    fn so_much_at_a_time() {
        let mut queue = Queue::default();
        for n in 0..=ENTRIES {
            push(&mut queue, &format!("a p{n}=1"));
        }
        push(&mut queue, "a flush");
        let pieces: Vec<Batch> = std::iter::from_fn(|| queue.next(state, true)).collect();
        let shape: Vec<_> = pieces.iter().map(|piece| (piece.entries.len(), piece.flushes.len())).collect();
        assert_eq!(shape, [(ENTRIES, 0), (1, 1)]);
        let long = "x".repeat(BYTES);
        push(&mut queue, &format!("a p={long}"));
        push(&mut queue, "a q=1");
        assert_eq!(queue.next(state, true).unwrap().entries.len(), 1);
        assert_eq!(queue.len(), 1);
    }
}
