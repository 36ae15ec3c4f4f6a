//! The scheduling of jobs: those of one session in order, many sessions concurrently.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::fill::IndexedPiece;
use super::keeper::Keeper;
use super::lines::{Lines, SessionBatch};
use super::link::LinkEvent;
use crate::StoreMeters;
use crate::job::{JobScope, StoreJob};
use base::channel::Receiver;
use base::id::SessionId;
use base::store_place::DatabasePlace;

/// The maximum number of jobs that are sorted and not started.
const SORTED: usize = 4096;

/// The interval at which failed writes are retried.
const AGAIN: Duration = Duration::from_millis(250);

/// The longest interval between renewals, within which requests for a session are seen without
/// notifications.
const LONGEST: Duration = Duration::from_secs(5);

enum Done {
    Written(Vec<SessionId>),
    Job(SessionId),
    Alone,
    Indexed(IndexedPiece),
    Other,
}

/// The pending jobs, and those in progress.
struct Rounds<'a> {
    keeper: &'a Keeper,
    lines: Lines,
    /// The sessions that a job is working on.
    busy: HashSet<SessionId>,
    doing: FuturesUnordered<LocalBoxFuture<'a, Done>>,
    writing: bool,
    /// A job that must follow all earlier jobs and precede all later ones.
    waits: Option<StoreJob>,
    /// Whether a job is in progress that excludes all others.
    alone: bool,
    /// Whether indexing is in progress.
    indexing: bool,
    /// The time at which indexing may continue.
    index_at: Instant,
    /// Whether further jobs may arrive: a sender is left.
    open: bool,
}

/// Executes jobs until all senders are dropped, or a stop job arrives.
pub(super) async fn run(place: DatabasePlace, mut jobs: Receiver<StoreJob>, meters: Arc<StoreMeters>) {
    let (events, mut happened) = mpsc::unbounded_channel();
    let keeper = Keeper::new(&place, events, meters);
    let lease = keeper.link.address().map_or(place.lease, |address| address.lease);
    let mut renewals = tokio::time::interval((lease / 3).min(LONGEST));
    let mut retries = tokio::time::interval(AGAIN);
    for ticks in [&mut renewals, &mut retries] {
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    }
    let mut rounds = Rounds {
        keeper: &keeper,
        lines: Lines::default(),
        busy: HashSet::new(),
        doing: FuturesUnordered::new(),
        writing: false,
        waits: None,
        alone: false,
        indexing: false,
        index_at: Instant::now(),
        open: true,
    };
    loop {
        // Jobs that arrived together are written together.
        while rounds.has_room() {
            let Ok(job) = jobs.try_recv() else { break };
            rounds.sort(job);
        }
        rounds.begin();
        if let Some(stopped) = rounds.over() {
            keeper.end().await;
            if let Some(stopped) = stopped {
                // The receiver may have been dropped.
                stopped.send(()).ok();
            }
            return;
        }
        tokio::select! {
            job = jobs.recv(), if rounds.has_room() => match job {
                Some(job) => rounds.sort(job),
                None => {
                    rounds.open = false;
                    keeper.filling.end();
                }
            },
            Some(done) = rounds.doing.next(), if !rounds.doing.is_empty() => rounds.settle(done),
            Some(event) = happened.recv() => match event {
                LinkEvent::Wanted(session) => keeper.wanted(&session),
                LinkEvent::Cancel(session) => keeper.cancel(&session),
                LinkEvent::Closed => keeper.link.lost(),
            },
            _ = renewals.tick(), if keeper.holds_any() => {
                rounds.doing.push(keeper.renew().map(|()| Done::Other).boxed_local());
            }
            _ = retries.tick(), if keeper.has_unwritten() => rounds.retry(),
            () = tokio::time::sleep_until(rounds.index_at), if rounds.may_index() => rounds.index(),
        }
    }
}

impl Rounds<'_> {
    fn has_room(&self) -> bool {
        self.open && self.waits.is_none() && !self.alone && self.lines.len() < SORTED
    }

    /// Queues a job, or starts it if it concerns no session.
    fn sort(&mut self, job: StoreJob) {
        match job.scope() {
            JobScope::Session(session) => self.lines.push(session, job),
            JobScope::None => self.doing.push(self.keeper.job(job).map(|()| Done::Other).boxed_local()),
            JobScope::All => self.waits = Some(job),
        }
    }

    /// Starts every job that can be started.
    fn begin(&mut self) {
        if !self.writing {
            let batches = self.lines.writes(&self.busy);
            self.write(batches);
        }
        while let Some((session, job)) = self.lines.next(&self.busy) {
            self.busy.insert(session.clone());
            self.doing.push(self.keeper.job(job).map(|()| Done::Job(session)).boxed_local());
        }
        if self.is_idle()
            && let Some(job) = self.waits.take_if(|job| !matches!(job, StoreJob::Stop { .. }))
        {
            self.alone = true;
            self.doing.push(self.keeper.job(job).map(|()| Done::Alone).boxed_local());
        }
    }

    fn is_idle(&self) -> bool {
        self.lines.is_empty() && self.busy.is_empty() && !self.alone
    }

    /// Whether all work is done, with the reply channel of the stop job if there is one.
    fn over(&mut self) -> Option<Option<oneshot::Sender<()>>> {
        match self.waits.take_if(|job| matches!(job, StoreJob::Stop { .. })) {
            Some(StoreJob::Stop { reply }) if self.is_idle() => Some(Some(reply)),
            None if !self.open && self.waits.is_none() && self.is_idle() && self.doing.is_empty() => Some(None),
            job => {
                self.waits = job.or(self.waits.take());
                None
            }
        }
    }

    fn write(&mut self, batches: Vec<SessionBatch>) {
        if !batches.is_empty() {
            self.writing = true;
            self.busy.extend(batches.iter().map(|batch| batch.session.clone()));
            self.doing.push(self.keeper.write(batches).map(Done::Written).boxed_local());
        }
    }

    /// Retries failed writes. If the database is unreachable, it first retries the connection,
    /// while other jobs continue.
    fn retry(&mut self) {
        if self.keeper.link.is_away() {
            self.doing.push(self.keeper.link.wire().map(|_| Done::Other).boxed_local());
        } else if !self.writing {
            let left = self.keeper.unwritten(&self.busy);
            self.write(left.into_iter().map(SessionBatch::of).collect());
        }
    }

    fn may_index(&self) -> bool {
        self.open && self.waits.is_none() && !self.alone && !self.indexing && self.keeper.has_to_index()
    }

    fn index(&mut self) {
        let Some((own, piece)) = self.keeper.next_piece(&self.busy) else {
            self.index_at = Keeper::next_look();
            return;
        };
        self.indexing = true;
        self.busy.extend(own);
        self.doing.push(piece.map(Done::Indexed).boxed_local());
    }

    fn settle(&mut self, done: Done) {
        match done {
            Done::Written(sessions) => {
                self.writing = false;
                self.busy.retain(|session| !sessions.contains(session));
            }
            Done::Job(session) => self.busy.retain(|other| *other != session),
            Done::Alone => self.alone = false,
            Done::Indexed(piece) => {
                (self.indexing, self.index_at) = (false, piece.next);
                self.busy.retain(|session| Some(session) != piece.own.as_ref());
            }
            Done::Other => {}
        }
    }
}
