//! The thread that owns every connection. It executes one batch of one session at a time, and
//! receives new jobs before the next batch, which [`Queue`] chooses. The pending writes of a
//! session form one transaction, with one flush for all that requested it.
//!
//! Slow work, such as creating a file or compressing much text, runs on another thread, which
//! borrows the session's file ([`BackgroundWriter`]). The other jobs of the session wait until the
//! file is returned; other sessions do not wait.

mod whole_session;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::mpsc as done;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::background_writer::{
    BackgroundResult, BackgroundWriter, JobsAndMetrics, WriteBatch, WriteJob, WriteResult,
};
use super::fill::IndexFill;
use super::find::{self, Indexer};
use super::index::SessionIndex;
use super::lock::{Lock, LockError};
use super::open_files::OpenFiles;
use super::queue::{Batch, FileStatus, Queue};
use super::search_index::{self, SearchIndex};
use super::session::{IndexUpdate, SessionFile};
use super::{index, lock, recent, session, takeover};
use crate::fleet::FleetJob;
use crate::holder::LockHolder;
use crate::job::{JobScope, RequestSource, StoreJob};
use crate::write::SessionWrite;
use crate::{BackendState, Error, Record, ReplySender, StoredGrants};
use base::channel::Receiver;
use base::id::SessionId;
use base::open_files::{self, SessionFiles};

/// The maximum number of sorted jobs. A store that cannot keep up slows the turn down.
const MAX_SORTED_JOBS: usize = 512;

/// The maximum number of concurrent background writers. They wait for the disk most of the time.
const MAX_BACKGROUND_WRITERS: usize = 3;

/// The number of descriptors of a store: the index, the search index, and the pipe for requests.
const FILES_PER_STORE: u64 = 8;

/// The time within which an owner is expected to release a session.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of unwritten entries of a session that are held in memory.
const MAX_UNWRITTEN_ENTRIES: usize = 4096;

/// Executes jobs about the sessions below `dir` until the last [`crate::Store`] is dropped.
pub(crate) fn work(dir: PathBuf, mut jobs: Receiver<StoreJob>, jobs_and_metrics: JobsAndMetrics) {
    let (finished, done) = done::channel();
    let mut thread = Thread {
        indexer: Indexer::new(dir.clone()),
        search_index: None,
        dir,
        index: None,
        locks: HashMap::new(),
        open: OpenFiles::default(),
        created: HashMap::new(),
        unwritten: HashMap::new(),
        failed: HashMap::new(),
        in_background: HashSet::new(),
        background_writer: BackgroundWriter::new(finished, jobs_and_metrics),
        done,
        _files: SessionFiles::take_unconditionally(FILES_PER_STORE),
    };
    if let Some(stopped) = thread.run(&mut jobs) {
        drop(thread);
        // The receiver may have been dropped.
        stopped.send(()).ok();
    }
}

/// The lock of a session.
struct OwnedSession {
    /// Set by the first write to it.
    is_written: bool,
    _lock: Lock,
    _files: SessionFiles,
}

struct Thread {
    dir: PathBuf,
    index: Option<SessionIndex>,
    /// The locks of the owned sessions, with or without a file.
    locks: HashMap<SessionId, OwnedSession>,
    open: OpenFiles,
    /// Owned sessions that have no file yet, because they have no input from the user. They are
    /// stored nowhere else, and are lost when they are closed.
    created: HashMap<SessionId, Record>,
    /// The entries that could not be written, oldest first.
    unwritten: HashMap<SessionId, Vec<SessionWrite>>,
    /// Sessions whose last write failed, until a flush reports it.
    failed: HashMap<SessionId, Error>,
    /// Sessions that a background writer is writing.
    in_background: HashSet<SessionId>,
    background_writer: BackgroundWriter,
    done: done::Receiver<BackgroundResult>,
    /// The search index, if there is one.
    search_index: Option<SearchIndex>,
    indexer: Indexer,
    _files: SessionFiles,
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.indexer.end();
        let owned: Vec<SessionId> = self.locks.keys().cloned().collect();
        owned.iter().for_each(|session| self.release(session));
    }
}

impl Thread {
    /// Executes jobs until every handle is dropped. Returns the reply channel of a stop job, if
    /// there is one.
    fn run(&mut self, jobs: &mut Receiver<StoreJob>) -> Option<oneshot::Sender<()>> {
        let mut queue = Queue::default();
        // Whether there may be work that can be done without waiting.
        let mut ready = false;
        loop {
            while let Ok(finished) = self.done.try_recv() {
                self.finish(finished);
                ready = true;
            }
            let has_capacity = queue.len() < MAX_SORTED_JOBS;
            let mut next = None;
            if has_capacity && ready {
                next = jobs.try_recv().ok();
            } else if has_capacity {
                next = jobs.blocking_recv();
                if next.is_none() {
                    self.drain(&mut queue);
                    return None;
                }
            } else if !ready {
                self.wait();
            }
            while let Some(job) = next {
                match job.scope() {
                    JobScope::Session(session) => queue.push(session, job),
                    JobScope::None => self.execute(job),
                    JobScope::All => {
                        self.drain(&mut queue);
                        match job {
                            StoreJob::Stop { reply } => return Some(reply),
                            job => self.execute(job),
                        }
                    }
                }
                next = if queue.len() < MAX_SORTED_JOBS {
                    jobs.try_recv().ok()
                } else {
                    None
                };
            }
            ready = self.execute_next(&mut queue);
        }
    }

    /// Executes all pending jobs, and waits for the background writers.
    fn drain(&mut self, queue: &mut Queue) {
        while !(queue.is_empty() && self.in_background.is_empty()) {
            if !self.execute_next(queue) {
                self.wait();
            }
        }
    }

    /// Waits until a background writer has finished.
    fn wait(&mut self) {
        // This thread owns a sender itself, so the channel is never closed.
        if let Ok(finished) = self.done.recv() {
            self.finish(finished);
        }
    }

    fn finish(&mut self, finished: BackgroundResult) {
        match finished {
            BackgroundResult::Write(written) => self.take_back(*written),
            BackgroundResult::Import(imported) => self.finish_import(*imported),
        }
    }

    /// Executes the next batch. Returns false if nothing can be done now.
    fn execute_next(&mut self, queue: &mut Queue) -> bool {
        let state = |session: &SessionId| {
            if self.in_background.contains(session) {
                FileStatus::InBackground
            } else if self.open.contains(session) {
                FileStatus::Open
            } else {
                FileStatus::Closed
            }
        };
        let Some(batch) = queue.next(state, self.in_background.len() < MAX_BACKGROUND_WRITERS)
        else {
            return false;
        };
        let Batch {
            session,
            entries,
            flushes,
            then,
            is_long,
        } = batch;
        if entries.is_empty() && flushes.is_empty() {
            then.into_iter().for_each(|job| self.execute(job));
        } else {
            self.write(
                WriteBatch {
                    session,
                    entries,
                    flushes,
                    then,
                },
                is_long,
            );
        }
        true
    }

    /// Writes a batch, in the background if it is `is_long`.
    fn write(&mut self, mut batch: WriteBatch, is_long: bool) {
        // Failed entries are retried first: a full disk may have space again.
        if let Some(mut entries) = self.unwritten.remove(&batch.session) {
            entries.append(&mut batch.entries);
            batch.entries = entries;
        }
        self.remember_created(&mut batch);
        if batch.entries.is_empty() && !self.open.contains(&batch.session) {
            return self.finish_batch(batch, Ok(()));
        }
        let known = match self.lock_for_write(&batch.session) {
            Ok(known) => known,
            Err(e) => {
                return self.take_back(WriteResult {
                    file: Err(e),
                    update: None,
                    batch,
                });
            }
        };
        if !batch.entries.is_empty() {
            self.mark_written(&batch.session);
        }
        let file = self.open.remove(&batch.session);
        let job = WriteJob {
            dir: self.dir.clone(),
            file,
            known,
            batch,
        };
        if !is_long {
            return self.take_back(job.run());
        }
        self.in_background.insert(job.batch.session.clone());
        if let Err(job) = self.background_writer.start_write(job) {
            // No thread could be started.
            self.take_back(job.run());
        }
    }

    /// Changes only the record in memory if the session has no file and no input from the user yet.
    /// The file is created by the first message, title, mode or option, which must survive a kill.
    fn remember_created(&mut self, batch: &mut WriteBatch) {
        let has_records_only = batch
            .entries
            .iter()
            .all(|entry| matches!(entry, SessionWrite::Record(_)));
        if !has_records_only {
            return;
        }
        let Some(record) = self.created.get_mut(&batch.session) else {
            return;
        };
        for entry in batch.entries.drain(..) {
            if let SessionWrite::Record(new) = entry {
                *record = new.after(Some(record));
            }
        }
    }

    /// Takes back a session's file after a write.
    fn take_back(
        &mut self,
        WriteResult {
            file,
            update,
            mut batch,
        }: WriteResult,
    ) {
        self.in_background.remove(&batch.session);
        let written = file.map(|file| self.add_open_file(&batch.session, file));
        let entries = std::mem::take(&mut batch.entries);
        match &written {
            Ok(()) => {
                self.background_writer.metrics.count_batch(entries.len());
                self.created.remove(&batch.session);
                if let Some(update) = update {
                    self.update_index(&update);
                }
            }
            Err(e) => {
                tracing::error!("{e}");
                // After a failure, the file's actual contents are determined by opening it again.
                // The session stays owned.
                let surplus = entries.len().saturating_sub(MAX_UNWRITTEN_ENTRIES);
                self.unwritten.insert(
                    batch.session.clone(),
                    entries.into_iter().skip(surplus).collect(),
                );
                self.failed
                    .entry(batch.session.clone())
                    .or_insert_with(|| e.clone());
            }
        }
        self.background_writer
            .metrics
            .set_waiting(self.unwritten.values().map(Vec::len).sum());
        self.finish_batch(batch, written);
    }

    /// Registers an open file.
    fn add_open_file(&mut self, session: &SessionId, file: SessionFile) {
        self.open.insert(session.clone(), file, Instant::now());
        self.close_idle();
    }

    /// Closes the least recently used files if there are too many. Their sessions stay owned, and
    /// the files are opened again on demand.
    fn close_idle(&mut self) {
        self.open.close_beyond_share(Instant::now());
    }

    /// Updates the index entry of a session. If that fails, the index is updated by the next
    /// change; the file has the data in any case.
    fn update_index(&mut self, update: &IndexUpdate) {
        if let Err(e) = self.with_index(|index| index.put(&update.record, update.messages)) {
            tracing::warn!(
                "the index does not know the latest of {}: {e}",
                update.record.id
            );
        }
    }

    /// Answers the flushes of a batch, and executes the job that follows it.
    fn finish_batch(&mut self, batch: WriteBatch, written: Result<(), Error>) {
        if !batch.flushes.is_empty() {
            let failed = match (self.failed.remove(&batch.session), written) {
                // Data that was lost with a removed file is not restored by a new file.
                (Some(e @ Error::Removed(_)), _) => Err(e),
                // Any other failure is void once the entries were written.
                (_, Ok(())) | (None, _) => Ok(()),
                (Some(e), Err(_)) => Err(e),
            };
            for reply in batch.flushes {
                // The receiver may have been cancelled.
                drop(reply.send(failed.clone()));
            }
        }
        if let Some(job) = batch.then {
            self.execute(job);
        }
    }

    /// Locks a session before its file is written. Returns the index's record if the file is not
    /// open yet.
    fn lock_for_write(&mut self, session: &SessionId) -> Result<Option<Record>, Error> {
        if self.open.contains(session) {
            return Ok(None);
        }
        let known = self.known_record(session).map(|(record, _)| record);
        self.lock(session)?;
        Ok(known)
    }

    /// Locks a session, before its file is used.
    fn lock(&mut self, session: &SessionId) -> Result<(), Error> {
        if self.locks.contains_key(session) {
            return Ok(());
        }
        let budget = open_files::budget();
        let Some(files) = SessionFiles::needed(budget.per_session) else {
            let open = self.locks.len();
            let session_files = budget.per_session * u64::try_from(open).unwrap_or(u64::MAX);
            return Err(Error::TooManyOpenFiles {
                open,
                session_files,
                other_files: open_files::in_use().saturating_sub(session_files),
                share: budget.sessions,
                limit: budget.limit,
            });
        };
        let sessions = self.dir.join("sessions");
        base::environment::private_dir(&sessions).map_err(super::unwritable_file(&sessions))?;
        let lock = Lock::take(&sessions.join(format!("{session}.lock")), takeover::own());
        let lock = lock.map_err(|refused| match refused {
            LockError::Held(holder) => Error::Locked {
                id: session.clone(),
                holder: LockHolder {
                    is_exiting: takeover::is_exiting(&self.dir, &holder),
                    ..holder
                },
            },
            LockError::Io(e) => super::unwritable_file(&sessions)(e),
        })?;
        self.locks.insert(
            session.clone(),
            OwnedSession {
                is_written: false,
                _lock: lock,
                _files: files,
            },
        );
        self.close_idle();
        Ok(())
    }

    fn release(&mut self, session: &SessionId) {
        self.open.remove(session);
        self.created.remove(session);
        if self.locks.contains_key(session) && session::path(&self.dir, session).exists() {
            self.mark_changed(session);
        }
        // Without the index nothing has been recorded.
        if self.locks.contains_key(session)
            && self.index.is_some()
            && let Err(e) = self.with_index(|index| index.unmark_written(session))
        {
            tracing::warn!("searches read {session} until it is closed again: {e}");
        }
        if self.locks.remove(session).is_some() {
            self.indexer.session(session);
        }
    }

    /// Records that this process writes to a session, before the first write: until it is closed, a
    /// search reads it.
    pub(super) fn mark_written(&mut self, session: &SessionId) {
        let Some(owned) = self.locks.get_mut(session) else {
            return;
        };
        if std::mem::replace(&mut owned.is_written, true) {
            return;
        }
        if let Err(e) = self.with_index(|index| index.mark_written(session)) {
            tracing::warn!("the index does not know that {session} is written to: {e}");
            self.mark_changed(session);
        }
    }

    /// Marks a session as changed in the search index, if there is one, before another process can
    /// open it.
    fn mark_changed(&mut self, session: &SessionId) {
        let marked = self
            .search_index()
            .and_then(|index| index.map_or(Ok(()), |index| index.mark_changed(session)));
        if let Err(e) = marked {
            // A search would miss the session's changes. The index is a cache, and is rebuilt.
            tracing::warn!("the search index cannot be written to ({e}), and is removed");
            self.search_index = None;
            search_index::discard(&self.dir)
                .unwrap_or_else(|e| tracing::error!("the search index stays: {e}"));
        }
    }

    /// Returns the search index that is in place now, if there is one.
    fn search_index(&mut self) -> Result<Option<&SearchIndex>, Error> {
        if !self
            .search_index
            .as_ref()
            .is_some_and(SearchIndex::is_in_place)
        {
            self.search_index = SearchIndex::open(&self.dir)?;
        }
        Ok(self.search_index.as_ref())
    }

    fn open_file(&mut self, session: &SessionId, create: bool) -> Result<&mut SessionFile, Error> {
        if !self.open.contains(session) {
            self.lock(session)?;
            let file = SessionFile::open(&self.dir, session, create)?;
            self.add_open_file(session, file);
        }
        self.open
            .get_mut(session)
            .ok_or_else(|| Error::NotFound(session.clone()))
    }

    /// Queries the index. A damaged index is rebuilt, and queried again.
    fn with_index<T>(
        &mut self,
        query: impl Fn(&mut SessionIndex) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut index = match self.index.take() {
            Some(index) => index,
            None => SessionIndex::open(&self.dir)?,
        };
        match query(&mut index) {
            Err(Error::DamagedIndex(reason)) => {
                query(self.index.insert(index.rebuild(&self.dir, &reason)?))
            }
            answer => {
                self.index = Some(index);
                answer
            }
        }
    }

    /// Like [`Self::with_index`], with an index that has every session, or is being filled.
    fn with_complete_index<T>(
        &mut self,
        query: impl Fn(&SessionIndex) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let dir = self.dir.clone();
        self.with_index(|index| index.complete(&dir).and_then(|()| query(index)))
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each job")]
    fn execute(&mut self, job: StoreJob) {
        // A reply whose receiver has been dropped is discarded.
        match job {
            StoreJob::Create { record, reply } => drop(reply.send(self.create(&record))),
            StoreJob::Load {
                session,
                options,
                reply,
            } => {
                // A session that was locked before has an owner, who releases it.
                let was_locked = self.locks.contains_key(&session);
                let loaded = self.load(&session, options);
                if loaded.is_err() && !was_locked && !self.unwritten.contains_key(&session) {
                    self.release(&session);
                }
                drop(reply.send(loaded));
            }
            StoreJob::Parts {
                session,
                ids,
                reply,
            } => {
                drop(
                    reply.send(
                        self.open_file(&session, false)
                            .and_then(|file| file.parts(&ids)),
                    ),
                );
            }
            StoreJob::Peek { session, reply } => drop(reply.send(self.peek(&session))),
            StoreJob::Contains { session, reply } => drop(reply.send(self.has(&session))),
            StoreJob::Stream { session, reply } => drop(reply.send(self.read_out(&session))),
            StoreJob::Import { feed, reply, .. } => self.import(*feed, reply),
            StoreJob::Change {
                session,
                change,
                reply,
            } => drop(reply.send(self.change(&session, change))),
            StoreJob::Children { session, reply } => {
                drop(reply.send(self.with_complete_index(|index| index.children(&session))));
            }
            StoreJob::List { query, reply } => {
                drop(reply.send(self.with_complete_index(|index| index.list(&query))))
            }
            StoreJob::Beginning {
                beginning,
                limit,
                reply,
            } => {
                drop(reply.send(
                    self.with_complete_index(|index| index.beginning_with(&beginning, limit)),
                ));
            }
            StoreJob::Neighbours { sessions, reply } => {
                drop(reply.send(self.with_complete_index(|index| index.neighbours(&sessions))));
            }
            StoreJob::Filled { reply } => self.answer_when_filled(reply),
            StoreJob::Delete { session, reply } => drop(reply.send(self.delete(&session))),
            StoreJob::DeleteOrphans { session } => {
                if let Err(e) = self.delete_orphans(&session) {
                    tracing::warn!("children of the deleted session {session} may be left: {e}");
                }
            }
            StoreJob::Close { session, reply } => {
                self.release(&session);
                drop(reply.send(Ok(())));
            }
            StoreJob::CloseAndDeleteIfEmpty { session, reply } => {
                let left = self.leave(&session);
                self.release(&session);
                drop(reply.send(left));
            }
            StoreJob::DeleteIfNotOpen {
                session,
                only_if_empty,
                reply,
            } => drop(reply.send(self.delete_if_not_open(&session, only_if_empty))),
            StoreJob::EmptySessions { reply } => {
                drop(reply.send(self.with_complete_index(|index| index.empty_sessions())));
                // A process that requests them runs for a while.
                self.indexer.all(true);
            }
            StoreJob::Grants { project, reply } => {
                let grants = self.with_index(|index| index.grants(project.as_deref()));
                let is_reported = project.is_some();
                let stored = |grants| StoredGrants {
                    grants,
                    damaged_index: index::lost_grants(&self.dir, is_reported),
                };
                drop(reply.send(grants.map(stored)));
            }
            StoreJob::Grant { grant, reply } => {
                drop(reply.send(self.with_index(|index| index.grant(&grant))))
            }
            StoreJob::Revoke { grant, reply } => {
                drop(reply.send(self.with_index(|index| index.revoke(&grant))))
            }
            StoreJob::Search {
                query,
                words,
                limit,
                reply,
            } => match self.with_complete_index(|index| Ok(index.fill())) {
                Ok(Some(fill)) if !fill.is_surveyed() => self.put_when_surveyed(
                    &fill,
                    StoreJob::Search {
                        query,
                        words,
                        limit,
                        reply,
                    },
                ),
                Ok(_) => {
                    find::start(self.dir.clone(), *query, words, limit, reply);
                    self.indexer.all(false);
                }
                Err(e) => drop(reply.send(Err(e))),
            },
            StoreJob::RequestRelease {
                holder,
                session,
                reply,
            } => {
                drop(
                    reply.send(Ok(takeover::request_release(&self.dir, &holder, &session)
                        .then_some(RELEASE_TIMEOUT))),
                );
            }
            StoreJob::Requests { reply } => {
                drop(reply.send(Ok(RequestSource::Pipe(self.dir.clone()))))
            }
            StoreJob::BackendState { reply } => drop(reply.send(Ok(self.backend_state()))),
            StoreJob::RecentModels { project, reply } => {
                drop(reply.send(Ok(recent::read(&self.dir, &project))))
            }
            StoreJob::SetRecentModels {
                project,
                models,
                reply,
            } => {
                let written = recent::write(&self.dir, project, models);
                drop(reply.send(written.map_err(super::unwritable_file(&self.dir))));
            }
            StoreJob::Fleet(FleetJob::BusySessions { reply }) => {
                drop(reply.send(Ok(lock::open_sessions(&self.dir.join("sessions")))))
            }
            // All earlier writes have been executed by now.
            StoreJob::AwaitWritten { reply, .. } => drop(reply.send(Ok(()))),
            // The remaining jobs are for shared stores, or were handled before.
            job => job.answer_alone(),
        }
    }

    fn answer_when_filled(&mut self, reply: ReplySender<()>) {
        match self.with_complete_index(|index| Ok(index.fill())) {
            // The receiver may have been cancelled.
            Ok(Some(fill)) => fill.when_over(|| drop(reply.send(Ok(())))),
            Ok(None) => drop(reply.send(Ok(()))),
            Err(e) => drop(reply.send(Err(e))),
        }
    }

    /// Executes a job once the index has all sessions.
    fn put_when_surveyed(&self, fill: &IndexFill, job: StoreJob) {
        let jobs = self.background_writer.jobs();
        fill.when_surveyed(move || {
            if let Some(jobs) = jobs.upgrade() {
                jobs.put(job);
            }
        });
    }

    fn backend_state(&self) -> BackendState {
        BackendState {
            kind: "SQLite",
            location: self.dir.display().to_string(),
            details: Vec::new(),
            problem: None,
        }
    }
}
