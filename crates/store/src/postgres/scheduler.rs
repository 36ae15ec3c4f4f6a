//! The scheduling of jobs: those of one session in order, many sessions concurrently.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::backfill::IndexedPiece;
use super::connection::ConnectionEvent;
use super::job_queues::{JobQueues, SessionBatch};
use super::worker::Worker;
use crate::StoreMetrics;
use crate::job::{JobScope, StoreJob};
use base::channel::Receiver;
use base::id::SessionId;
use base::store_location::DatabaseLocation;

/// The maximum number of jobs that are sorted and not started.
const MAX_SORTED_JOBS: usize = 4096;

/// The interval at which failed writes are retried.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The longest interval between renewals, within which requests for a session are seen without
/// notifications.
const MAX_RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

enum Done {
    Written(Vec<SessionId>),
    Job(SessionId),
    Exclusive,
    Indexed(IndexedPiece),
    Other,
}

/// The pending jobs, and those in progress.
struct Scheduler<'a> {
    worker: &'a Worker,
    queues: JobQueues,
    /// The sessions that a job is working on.
    busy: HashSet<SessionId>,
    in_progress: FuturesUnordered<LocalBoxFuture<'a, Done>>,
    is_writing: bool,
    /// A job that must follow all earlier jobs and precede all later ones.
    exclusive: Option<StoreJob>,
    /// True if a job is in progress that excludes all others.
    is_exclusive_running: bool,
    /// True if indexing is in progress.
    is_indexing: bool,
    /// The time at which indexing may continue.
    index_at: Instant,
    /// True if further jobs may arrive: a sender is left.
    is_open: bool,
}

/// Executes jobs until all senders are dropped, or a stop job arrives.
pub(super) async fn run(
    location: DatabaseLocation,
    mut jobs: Receiver<StoreJob>,
    metrics: Arc<StoreMetrics>,
) {
    let (events, mut connection_events) = mpsc::unbounded_channel();
    let worker = Worker::new(&location, events, metrics);
    let lease = worker
        .connection
        .address()
        .map_or(location.lease, |address| address.lease);
    let mut renewals = tokio::time::interval((lease / 3).min(MAX_RENEWAL_INTERVAL));
    let mut retries = tokio::time::interval(RETRY_INTERVAL);
    for ticks in [&mut renewals, &mut retries] {
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    }
    let mut scheduler = Scheduler {
        worker: &worker,
        queues: JobQueues::default(),
        busy: HashSet::new(),
        in_progress: FuturesUnordered::new(),
        is_writing: false,
        exclusive: None,
        is_exclusive_running: false,
        is_indexing: false,
        index_at: Instant::now(),
        is_open: true,
    };
    loop {
        // Jobs that arrived together are written together.
        while scheduler.accepts_jobs() {
            let Ok(job) = jobs.try_recv() else { break };
            scheduler.sort(job);
        }
        scheduler.begin();
        if let Some(stopped) = scheduler.finished() {
            worker.end().await;
            if let Some(stopped) = stopped {
                // The receiver may have been dropped.
                stopped.send(()).ok();
            }
            return;
        }
        tokio::select! {
            job = jobs.recv(), if scheduler.accepts_jobs() => match job {
                Some(job) => scheduler.sort(job),
                None => {
                    scheduler.is_open = false;
                    worker.backfill.stop();
                }
            },
            Some(done) = scheduler.in_progress.next(), if !scheduler.in_progress.is_empty() => scheduler.finish(done),
            Some(event) = connection_events.recv() => match event {
                ConnectionEvent::SessionRequested(session) => worker.report_request(&session),
                ConnectionEvent::CancelTurn(session) => worker.cancel(&session),
                ConnectionEvent::Closed => worker.connection.handle_close(),
            },
            _ = renewals.tick(), if worker.holds_any() => {
                scheduler.in_progress.push(worker.renew().map(|()| Done::Other).boxed_local());
            }
            _ = retries.tick(), if worker.has_unwritten() => scheduler.retry(),
            () = tokio::time::sleep_until(scheduler.index_at), if scheduler.can_index() => scheduler.index(),
        }
    }
}

impl Scheduler<'_> {
    fn accepts_jobs(&self) -> bool {
        self.is_open
            && self.exclusive.is_none()
            && !self.is_exclusive_running
            && self.queues.len() < MAX_SORTED_JOBS
    }

    /// Queues a job, or starts it if it concerns no session.
    fn sort(&mut self, job: StoreJob) {
        match job.scope() {
            JobScope::Session(session) => self.queues.push(session, job),
            JobScope::None => self
                .in_progress
                .push(self.worker.job(job).map(|()| Done::Other).boxed_local()),
            JobScope::All => self.exclusive = Some(job),
        }
    }

    /// Starts every job that can be started.
    fn begin(&mut self) {
        if !self.is_writing {
            let batches = self.queues.writes(&self.busy);
            self.write(batches);
        }
        while let Some((session, job)) = self.queues.next(&self.busy) {
            self.busy.insert(session.clone());
            self.in_progress.push(
                self.worker
                    .job(job)
                    .map(|()| Done::Job(session))
                    .boxed_local(),
            );
        }
        if self.is_idle()
            && let Some(job) = self
                .exclusive
                .take_if(|job| !matches!(job, StoreJob::Stop { .. }))
        {
            self.is_exclusive_running = true;
            self.in_progress
                .push(self.worker.job(job).map(|()| Done::Exclusive).boxed_local());
        }
    }

    fn is_idle(&self) -> bool {
        self.queues.is_empty() && self.busy.is_empty() && !self.is_exclusive_running
    }

    /// True if all work is done, with the reply channel of the stop job if there is one.
    fn finished(&mut self) -> Option<Option<oneshot::Sender<()>>> {
        match self
            .exclusive
            .take_if(|job| matches!(job, StoreJob::Stop { .. }))
        {
            Some(StoreJob::Stop { reply }) if self.is_idle() => Some(Some(reply)),
            None if !self.is_open
                && self.exclusive.is_none()
                && self.is_idle()
                && self.in_progress.is_empty() =>
            {
                Some(None)
            }
            job => {
                self.exclusive = job.or(self.exclusive.take());
                None
            }
        }
    }

    fn write(&mut self, batches: Vec<SessionBatch>) {
        if !batches.is_empty() {
            self.is_writing = true;
            self.busy
                .extend(batches.iter().map(|batch| batch.session.clone()));
            self.in_progress
                .push(self.worker.write(batches).map(Done::Written).boxed_local());
        }
    }

    /// Retries failed writes. If the database is unreachable, it first retries the connection,
    /// while other jobs continue.
    fn retry(&mut self) {
        if self.worker.connection.is_unreachable() {
            self.in_progress.push(
                self.worker
                    .connection
                    .open()
                    .map(|_| Done::Other)
                    .boxed_local(),
            );
        } else if !self.is_writing {
            let left = self.worker.unwritten(&self.busy);
            self.write(left.into_iter().map(SessionBatch::of).collect());
        }
    }

    fn can_index(&self) -> bool {
        self.is_open
            && self.exclusive.is_none()
            && !self.is_exclusive_running
            && !self.is_indexing
            && self.worker.has_to_index()
    }

    fn index(&mut self) {
        let Some((own, piece)) = self.worker.next_piece(&self.busy) else {
            self.index_at = Worker::next_check();
            return;
        };
        self.is_indexing = true;
        self.busy.extend(own);
        self.in_progress
            .push(piece.map(Done::Indexed).boxed_local());
    }

    fn finish(&mut self, done: Done) {
        match done {
            Done::Written(sessions) => {
                self.is_writing = false;
                self.busy.retain(|session| !sessions.contains(session));
            }
            Done::Job(session) => self.busy.retain(|other| *other != session),
            Done::Exclusive => self.is_exclusive_running = false,
            Done::Indexed(piece) => {
                self.is_indexing = false;
                self.index_at = piece.next;
                self.busy
                    .retain(|session| Some(session) != piece.own.as_ref());
            }
            Done::Other => {}
        }
    }
}
