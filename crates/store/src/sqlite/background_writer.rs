//! Writing one session's file on a thread of its own, while the store's thread serves the other
//! sessions: a long batch, or a complete new session.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};

use super::session::{IndexUpdate, SessionFile};
use crate::ReplySender;
use crate::job::StoreJob;
use crate::write::SessionWrite;
use crate::{Error, Record, StoreMetrics, StreamedSession};
use base::channel::WeakSender;
use base::id::SessionId;
use base::lock::lock;

/// A batch, with everything needed to write it to its file.
pub(super) struct WriteJob {
    /// The store's directory.
    pub(super) dir: PathBuf,
    /// `None` if the file is still to be opened or created.
    pub(super) file: Option<SessionFile>,
    /// The index's record of a session whose file is not open yet.
    pub(super) known: Option<Record>,
    pub(super) batch: WriteBatch,
}

/// The entries to write, and the requests that came with them.
pub(super) struct WriteBatch {
    pub(super) session: SessionId,
    pub(super) entries: Vec<SessionWrite>,
    /// The callers that wait until the entries are on the disk.
    pub(super) flushes: Vec<ReplySender<()>>,
    /// The job that is executed afterwards.
    pub(super) then: Option<StoreJob>,
}

/// A complete new session on the way to its file.
pub(super) struct ImportJob {
    /// The store's directory.
    pub(super) dir: PathBuf,
    pub(super) session: StreamedSession,
    pub(super) reply: ReplySender<()>,
}

pub(super) struct ImportResult {
    pub(super) session: SessionId,
    /// The update for the index.
    pub(super) update: Result<IndexUpdate, Error>,
    /// `None` if writing panicked; the sender is then dropped, which tells the caller.
    pub(super) reply: Option<ReplySender<()>>,
}

/// The result of a background write.
pub(super) enum BackgroundResult {
    Write(Box<WriteResult>),
    Import(Box<ImportResult>),
}

pub(super) struct WriteResult {
    pub(super) file: Result<SessionFile, Error>,
    /// The update for the index; `None` if nothing was written.
    pub(super) update: Option<IndexUpdate>,
    pub(super) batch: WriteBatch,
}

impl WriteJob {
    /// Opens the file if necessary, and writes the batch.
    pub(super) fn run(self) -> WriteResult {
        let Self {
            dir,
            file,
            known,
            batch,
        } = self;
        let write = || {
            let mut file = match file {
                Some(file) => file,
                None => SessionFile::open(&dir, &batch.session, true)?,
            };
            let update = file.remember(known)?;
            let update = file
                .write(&batch.entries, !batch.flushes.is_empty())?
                .or(update);
            Ok((file, update))
        };
        match write() {
            Ok((file, update)) => WriteResult {
                file: Ok(file),
                update,
                batch,
            },
            Err(e) => WriteResult {
                file: Err(e),
                update: None,
                batch,
            },
        }
    }
}

impl ImportJob {
    /// Writes the session, and closes its file.
    pub(super) fn run(self) -> ImportResult {
        let session = self.session.record.id.clone();
        let update = SessionFile::open(&self.dir, &session, true)
            .and_then(|mut file| file.fill(self.session));
        ImportResult {
            session,
            update,
            reply: Some(self.reply),
        }
    }
}

/// Starts writing threads, and reports their results to the store's thread.
#[derive(Clone)]
pub(super) struct BackgroundWriter {
    finished: mpsc::Sender<BackgroundResult>,
    /// Sends jobs to the store's thread, without keeping it alive.
    jobs: WeakSender<StoreJob>,
    pub(super) metrics: Arc<StoreMetrics>,
}

/// The weak sender of jobs to the store's thread, and the store's counters.
pub(crate) type JobsAndMetrics = (WeakSender<StoreJob>, Arc<StoreMetrics>);

impl BackgroundWriter {
    pub(super) fn new(
        finished: mpsc::Sender<BackgroundResult>,
        (jobs, metrics): JobsAndMetrics,
    ) -> Self {
        Self {
            finished,
            jobs,
            metrics,
        }
    }

    /// Returns a sender of jobs that does not keep the store's thread alive.
    pub(super) fn jobs(&self) -> WeakSender<StoreJob> {
        self.jobs.clone()
    }

    /// Writes on a new thread. Returns the job if no thread can be started.
    pub(super) fn start_write(&self, job: WriteJob) -> Result<(), Box<WriteJob>> {
        let failed = WriteResult {
            file: Err(unexpected_end()),
            update: None,
            batch: WriteBatch {
                session: job.batch.session.clone(),
                entries: Vec::new(),
                flushes: Vec::new(),
                then: None,
            },
        };
        self.spawn(
            job,
            |job| BackgroundResult::Write(Box::new(job.run())),
            BackgroundResult::Write(Box::new(failed)),
        )
    }

    /// Writes a complete session on a new thread. Returns the job if no thread can be started.
    pub(super) fn start_import(&self, job: ImportJob) -> Result<(), Box<ImportJob>> {
        let failed = ImportResult {
            session: job.session.record.id.clone(),
            update: Err(unexpected_end()),
            reply: None,
        };
        self.spawn(
            job,
            |job| BackgroundResult::Import(Box::new(job.run())),
            BackgroundResult::Import(Box::new(failed)),
        )
    }

    /// Runs a job on a new thread, and reports its result, or `failed` if it panics.
    fn spawn<J: Send + 'static>(
        &self,
        job: J,
        run: fn(J) -> BackgroundResult,
        failed: BackgroundResult,
    ) -> Result<(), Box<J>> {
        // A thread that cannot be started drops its closure, so the job is shared with it.
        let lent = Arc::new(Mutex::new(Some(job)));
        let writer = self.clone();
        let own = lent.clone();
        let work = move || {
            let Some(job) = take(&own) else { return };
            let finished = catch_unwind(AssertUnwindSafe(|| run(job)));
            writer.report(finished.unwrap_or(failed));
        };
        let started = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(work);
        match started.map_err(|e| (e, take(&lent))) {
            Err((e, Some(job))) => {
                tracing::warn!("cannot start a thread to write a session: {e}");
                Err(Box::new(job))
            }
            Ok(_) | Err((_, None)) => Ok(()),
        }
    }

    fn report(self, finished: BackgroundResult) {
        // The store's thread may have died.
        self.finished.send(finished).ok();
        if let Some(jobs) = self.jobs.upgrade() {
            jobs.put(StoreJob::Wake);
        }
    }
}

fn unexpected_end() -> Error {
    Error::Unwritable("writing to its file ended unexpectedly".into())
}

fn take<T>(lent: &Mutex<Option<T>>) -> Option<T> {
    lock(lent).take()
}
