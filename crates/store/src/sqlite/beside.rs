//! Writing one session's file on a thread of its own, while the store's thread serves the other
//! sessions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc as done};

use super::session::{IndexUpdate, SessionFile};
use crate::ReplySender;
use crate::job::StoreJob;
use crate::write::SessionWrite;
use crate::{Error, Record, StoreMeters};
use base::channel::WeakSender;
use base::id::SessionId;
use base::lock::locked;

/// A batch on the way to its file, with everything that writing it needs.
pub(super) struct WriteJob {
    pub(super) dir: PathBuf,
    /// `None` if the file is still to be opened or created.
    pub(super) file: Option<SessionFile>,
    /// The index's record of a session whose file is not open yet.
    pub(super) known: Option<Record>,
    pub(super) what: WriteBatch,
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

pub(super) struct WriteResult {
    pub(super) file: Result<SessionFile, Error>,
    /// The update for the index.
    pub(super) kept: Option<IndexUpdate>,
    pub(super) what: WriteBatch,
}

impl WriteJob {
    pub(super) fn run(self) -> WriteResult {
        let Self { dir, file, known, what } = self;
        let write = || {
            let mut file = match file {
                Some(file) => file,
                None => SessionFile::open(&dir, &what.session, true)?,
            };
            let kept = file.remember(known)?;
            let kept = file.write(&what.entries, !what.flushes.is_empty())?.or(kept);
            Ok((file, kept))
        };
        match write() {
            Ok((file, kept)) => WriteResult { file: Ok(file), kept, what },
            Err(e) => WriteResult { file: Err(e), kept: None, what },
        }
    }
}

/// Starts writing threads, and reports their results to the store's thread.
#[derive(Clone)]
pub(super) struct BackgroundWriter {
    written: done::Sender<WriteResult>,
    /// Wakes the store's thread when it waits for jobs, without keeping it alive.
    wake: WeakSender<StoreJob>,
    pub(super) meters: Arc<StoreMeters>,
}

/// The store's wake-up channel and its counters.
pub(crate) type Hands = (WeakSender<StoreJob>, Arc<StoreMeters>);

impl BackgroundWriter {
    pub(super) fn new(written: done::Sender<WriteResult>, (wake, meters): Hands) -> Self {
        Self { written, wake, meters }
    }

    /// Returns the sender of jobs to the store's thread, which does not keep it alive.
    pub(super) fn jobs(&self) -> WeakSender<StoreJob> {
        self.wake.clone()
    }

    /// Writes on a new thread. Returns the job if no thread can be started.
    pub(super) fn start(&self, writing: WriteJob) -> Result<(), Box<WriteJob>> {
        // A thread that cannot be started drops its closure, so the job is shared with it.
        let lent = Arc::new(Mutex::new(Some(writing)));
        let (beside, own) = (self.clone(), lent.clone());
        let work = move || {
            let Some(writing) = taken(&own) else { return };
            let session = writing.what.session.clone();
            let written = catch_unwind(AssertUnwindSafe(|| writing.run()));
            beside.tell(written.unwrap_or_else(|_| {
                let file = Err(Error::Unwritable("writing to its file ended unexpectedly".into()));
                let what = WriteBatch { session, entries: Vec::new(), flushes: Vec::new(), then: None };
                WriteResult { file, kept: None, what }
            }));
        };
        let started = std::thread::Builder::new().name("store-beside".into()).spawn(work);
        match started.map_err(|e| (e, taken(&lent))) {
            Err((e, Some(writing))) => {
                tracing::warn!("no further thread for the store: {e}");
                Err(Box::new(writing))
            }
            Ok(_) | Err((_, None)) => Ok(()),
        }
    }

    fn tell(self, written: WriteResult) {
        // The store's thread may have died.
        self.written.send(written).ok();
        if let Some(jobs) = self.wake.upgrade() {
            jobs.put(StoreJob::Wake);
        }
    }
}

fn taken<T>(lent: &Mutex<Option<T>>) -> Option<T> {
    locked(lent).take()
}
