//! The thread that owns every connection. It does one session's work at a time, and looks at what has
//! come meanwhile before it turns to the next: see [`Queue`] for who that is. What of a session waits
//! together is written in one transaction, with one flush for all who asked.
//!
//! What takes a while, a file that has to be made or much that has to be packed, is done by a thread of
//! its own, which is lent the session's file ([`BackgroundWriter`]); what else is wanted of the session waits until
//! the file is back, and no other session does.

mod whole;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::mpsc as done;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::beside::{BackgroundWriter, Hands, WriteBatch, WriteJob, WriteResult};
use super::find::{self, Indexer};
use super::index::SessionIndex;
use super::lock::{Lock, LockError};
use super::open_files::OpenFiles;
use super::queue::{Batch, FileStatus, Queue};
use super::session::{IndexUpdate, SessionFile};
use super::words::{self, WordIndex};
use super::{index, recent, session, takeover};
use crate::job::{JobScope, StoreJob};
use crate::takeover::RequestSource;
use crate::write::SessionWrite;
use crate::{BackendState, Error, Record, ReplySender, StoredGrants};
use base::channel::Receiver;
use base::id::SessionId;

/// How many jobs may wait sorted: a store that cannot keep up slows the turn down.
const SORTED: usize = 512;

/// How many sessions are written to beside the others at a time. They wait for the disk most of the time.
const BESIDE: usize = 3;

/// How many files are left for everything but sessions: connections, programs, the index, the log.
const RESERVE: u64 = 36;

/// How many files a session of ours takes besides its own: its lock, and the connection to its model.
const BESIDES: u64 = 2;

/// How many files a session file takes: itself and its log.
const EACH: u64 = 2;

/// How many session files stay open at least, and at most, for each takes memory.
const FEWEST: u64 = 2;
const MOST: u64 = 4096;

/// How long somebody who was asked for a session may take to let go of it.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many rows of a session are kept in memory when they cannot be written.
const UNWRITTEN: usize = 4096;

/// Returns how many session files may be open where the process may open so many `files` and has so many `sessions`:
/// half of the files at most, for programs take some as well.
fn most_open(files: u64, sessions: u64) -> usize {
    let left = files.saturating_sub(RESERVE + BESIDES * sessions).min(files / 2);
    usize::try_from((left / EACH).clamp(FEWEST, MOST)).unwrap_or(usize::MAX)
}

/// Does jobs about the sessions below `dir` until the last [`crate::Store`] is gone.
pub(crate) fn work(dir: PathBuf, mut jobs: Receiver<StoreJob>, hands: Hands) {
    let (written, done) = done::channel();
    let mut thread = Thread {
        indexer: Indexer::new(dir.clone()),
        words: None,
        dir,
        index: None,
        locks: HashMap::new(),
        open: OpenFiles::default(),
        created: HashMap::new(),
        unwritten: HashMap::new(),
        failed: HashMap::new(),
        away: HashSet::new(),
        beside: BackgroundWriter::new(written, hands),
        done,
    };
    if let Some(stopped) = thread.run(&mut jobs) {
        drop(thread);
        // Nobody needs to wait for it.
        stopped.send(()).ok();
    }
}

struct Thread {
    dir: PathBuf,
    index: Option<SessionIndex>,
    /// The sessions that are ours, whether they have a file yet or not.
    locks: HashMap<SessionId, Lock>,
    open: OpenFiles,
    /// Sessions of ours that have no file yet, because their user has told them nothing. Nothing else knows of
    /// them: they go when they are closed.
    created: HashMap<SessionId, Record>,
    /// What could not be written, oldest first.
    unwritten: HashMap<SessionId, Vec<SessionWrite>>,
    /// Sessions whose last write failed, until someone asked.
    failed: HashMap<SessionId, Error>,
    /// Sessions that are written to beside the others, and what comes of it.
    away: HashSet<SessionId>,
    beside: BackgroundWriter,
    done: done::Receiver<WriteResult>,
    /// The search index, while there is one.
    words: Option<WordIndex>,
    indexer: Indexer,
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.indexer.end();
        let ours: Vec<SessionId> = self.locks.keys().cloned().collect();
        ours.iter().for_each(|session| self.release(session));
    }
}

impl Thread {
    /// Does what comes until everyone is gone. Gives back who wants the thread to stop, if someone does.
    fn run(&mut self, jobs: &mut Receiver<StoreJob>) -> Option<oneshot::Sender<()>> {
        let mut queue = Queue::default();
        // Whether there may be something that can be done without waiting.
        let mut ready = false;
        loop {
            while let Ok(written) = self.done.try_recv() {
                self.back(written);
                ready = true;
            }
            let mut next = match queue.len() < SORTED {
                true if ready => jobs.try_recv().ok(),
                true => match jobs.blocking_recv() {
                    None => {
                        self.drain(&mut queue);
                        return None;
                    }
                    job => job,
                },
                false if ready => None,
                false => {
                    self.wait();
                    None
                }
            };
            while let Some(job) = next {
                match job.scope() {
                    JobScope::Session(session) => queue.push(session, job),
                    JobScope::None => self.other(job),
                    JobScope::All => {
                        self.drain(&mut queue);
                        match job {
                            StoreJob::Stop { reply } => return Some(reply),
                            job => self.other(job),
                        }
                    }
                }
                next = if queue.len() < SORTED { jobs.try_recv().ok() } else { None };
            }
            ready = self.one(&mut queue);
        }
    }

    /// Does all that waits, and waits for what is done beside.
    fn drain(&mut self, queue: &mut Queue) {
        while !(queue.is_empty() && self.away.is_empty()) {
            if !self.one(queue) {
                self.wait();
            }
        }
    }

    /// Waits until something was written beside the others.
    fn wait(&mut self) {
        // This thread has a sender itself: there is always one.
        if let Ok(written) = self.done.recv() {
            self.back(written);
        }
    }

    /// Does one piece of what waits. False: nothing can be done now.
    fn one(&mut self, queue: &mut Queue) -> bool {
        let state = |session: &SessionId| match self.open.contains(session) {
            _ if self.away.contains(session) => FileStatus::Away,
            true => FileStatus::Open,
            false => FileStatus::Closed,
        };
        let Some(piece) = queue.next(state, self.away.len() < BESIDE) else { return false };
        let Batch { session, entries, flushes, then, long } = piece;
        if entries.is_empty() && flushes.is_empty() {
            then.into_iter().for_each(|job| self.other(job));
        } else {
            self.write(WriteBatch { session, entries, flushes, then }, long);
        }
        true
    }

    /// Writes, or has it written beside the others where that is `long`.
    fn write(&mut self, mut what: WriteBatch, long: bool) {
        // What could not be written is tried again first: a full disk may have room by now.
        if let Some(mut entries) = self.unwritten.remove(&what.session) {
            entries.append(&mut what.entries);
            what.entries = entries;
        }
        self.remember_created(&mut what);
        if what.entries.is_empty() && !self.open.contains(&what.session) {
            return self.settle(what, Ok(()));
        }
        let known = match self.ours(&what.session) {
            Ok(known) => known,
            Err(e) => return self.back(WriteResult { file: Err(e), kept: None, what }),
        };
        let file = self.open.remove(&what.session);
        let writing = WriteJob { dir: self.dir.clone(), file, known, what };
        if !long {
            return self.back(writing.run());
        }
        self.away.insert(writing.what.session.clone());
        if let Err(writing) = self.beside.start(writing) {
            // There is no thread to be had.
            self.back(writing.run());
        }
    }

    /// Where a session has no file yet, and its user has told it nothing, its record is changed here only: the
    /// file is made with the first message, title, mode or option, which must be there after a kill.
    fn remember_created(&mut self, what: &mut WriteBatch) {
        let ours = |entry: &SessionWrite| matches!(entry, SessionWrite::Record(_));
        let Some(record) = self.created.get_mut(&what.session).filter(|_| what.entries.iter().all(ours)) else {
            return;
        };
        for entry in what.entries.drain(..) {
            if let SessionWrite::Record(new) = entry {
                *record = new.after(Some(record));
            }
        }
    }

    /// A session's file is back.
    fn back(&mut self, WriteResult { file, kept, mut what }: WriteResult) {
        self.away.remove(&what.session);
        let written = file.map(|file| self.opened(&what.session, file));
        let entries = std::mem::take(&mut what.entries);
        match &written {
            Ok(()) => {
                self.beside.meters.wrote(entries.len());
                self.created.remove(&what.session);
                if let Some(kept) = kept {
                    self.note(&kept);
                }
            }
            Err(e) => {
                tracing::error!("{e}");
                // What a file really holds after a failure is seen when it is opened again. The session stays ours.
                let surplus = entries.len().saturating_sub(UNWRITTEN);
                self.unwritten.insert(what.session.clone(), entries.into_iter().skip(surplus).collect());
                self.failed.entry(what.session.clone()).or_insert_with(|| e.clone());
            }
        }
        self.beside.meters.waits(self.unwritten.values().map(Vec::len).sum());
        self.settle(what, written);
    }

    /// A session's file is open.
    fn opened(&mut self, session: &SessionId, file: SessionFile) {
        self.open.insert(session.clone(), file, Instant::now());
        self.close_idle();
    }

    /// Closes files that were not used for longest, where there are too many. Their sessions stay ours, and the
    /// files are opened again when they are needed.
    fn close_idle(&mut self) {
        self.open.close_surplus(most_open(base::open_files::limit(), self.locks.len() as u64), Instant::now());
    }

    /// Tells the index what a session's file holds now. Where that fails, the file has it all the same, and
    /// the index gets it with the next change.
    fn note(&mut self, kept: &IndexUpdate) {
        if let Err(e) = self.indexed(|index| index.put(&kept.record, kept.messages)) {
            tracing::warn!("the index does not know the latest of {}: {e}", kept.record.id);
        }
    }

    /// Answers whoever waited for a write, and does what comes after it.
    fn settle(&mut self, what: WriteBatch, written: Result<(), Error>) {
        if !what.flushes.is_empty() {
            let failed = match (self.failed.remove(&what.session), written) {
                // What went with a file is not made good by another one.
                (Some(e @ Error::Removed(_)), _) => Err(e),
                // Any other failure that was made good in the end is none.
                (_, Ok(())) | (None, _) => Ok(()),
                (Some(e), Err(_)) => Err(e),
            };
            for reply in what.flushes {
                // Whoever asked may have been cancelled since.
                drop(reply.send(failed.clone()));
            }
        }
        if let Some(job) = what.then {
            self.other(job);
        }
    }

    /// Makes a session ours before its file is written to. Gives back what the index knows about one whose file
    /// is not open yet.
    fn ours(&mut self, session: &SessionId) -> Result<Option<Record>, Error> {
        if self.open.contains(session) {
            return Ok(None);
        }
        let known = self.known(session).map(|(record, _)| record);
        self.hold(session)?;
        Ok(known)
    }

    /// Makes a session ours, before its file is touched.
    fn hold(&mut self, session: &SessionId) -> Result<(), Error> {
        if self.locks.contains_key(session) {
            return Ok(());
        }
        let (open, files) = (self.locks.len(), base::open_files::limit());
        if open as u64 + RESERVE >= files {
            return Err(Error::TooMany { open, files });
        }
        let sessions = self.dir.join("sessions");
        base::environment::private_dir(&sessions).map_err(|e| Error::Unwritable(e.to_string()))?;
        let lock = Lock::take(&sessions.join(format!("{session}.lock")), takeover::own());
        let lock = lock.map_err(|refused| match refused {
            LockError::Held(holder) => Error::Locked { id: session.clone(), holder },
            LockError::Io(e) => Error::Unwritable(e.to_string()),
        })?;
        self.locks.insert(session.clone(), lock);
        self.close_idle();
        Ok(())
    }

    fn release(&mut self, session: &SessionId) {
        self.open.remove(session);
        self.created.remove(session);
        if self.locks.contains_key(session) && session::path(&self.dir, session).exists() {
            self.mark_changed(session);
        }
        if self.locks.remove(session).is_some() {
            self.indexer.session(session);
        }
    }

    /// Says in the search index, if there is one, that a session is not as it was, before anybody else may open it.
    fn mark_changed(&mut self, session: &SessionId) {
        let marked = self.words().and_then(|words| words.map_or(Ok(()), |words| words.mark_changed(session)));
        if let Err(e) = marked {
            // A search would miss what was said in it. The index is a cache, and is made again.
            tracing::warn!("the search index cannot be written to ({e}), and is removed");
            self.words = None;
            words::discard(&self.dir).unwrap_or_else(|e| tracing::error!("the search index stays: {e}"));
        }
    }

    /// The search index that is in place now, if there is one.
    fn words(&mut self) -> Result<Option<&WordIndex>, Error> {
        if !self.words.as_ref().is_some_and(WordIndex::is_in_place) {
            self.words = WordIndex::open(&self.dir)?;
        }
        Ok(self.words.as_ref())
    }

    fn file(&mut self, session: &SessionId, create: bool) -> Result<&mut SessionFile, Error> {
        if !self.open.contains(session) {
            self.hold(session)?;
            let file = SessionFile::open(&self.dir, session, create)?;
            self.opened(session, file);
        }
        self.open.get_mut(session).ok_or_else(|| Error::NotFound(session.clone()))
    }

    /// Asks the index; one that turns out to be damaged is made again, and asked again.
    fn indexed<T>(&mut self, ask: impl Fn(&mut SessionIndex) -> Result<T, Error>) -> Result<T, Error> {
        let mut index = match self.index.take() {
            Some(index) => index,
            None => SessionIndex::open(&self.dir)?,
        };
        match ask(&mut index) {
            Err(Error::DamagedIndex(reason)) => ask(self.index.insert(index.again(&self.dir, &reason)?)),
            answer => {
                self.index = Some(index);
                answer
            }
        }
    }

    /// The same, of an index that knows every session, or will.
    fn complete<T>(&mut self, ask: impl Fn(&SessionIndex) -> Result<T, Error>) -> Result<T, Error> {
        let dir = self.dir.clone();
        self.indexed(|index| index.complete(&dir).and_then(|()| ask(index)))
    }

    fn other(&mut self, job: StoreJob) {
        // A reply that nobody waits for any more is dropped.
        match job {
            StoreJob::Create { record, reply } => drop(reply.send(self.create(&record))),
            StoreJob::Load { session, options, reply } => {
                let loaded = self.load(&session, options);
                if loaded.is_err() && !self.unwritten.contains_key(&session) {
                    self.release(&session);
                }
                drop(reply.send(loaded));
            }
            StoreJob::Parts { session, ids, reply } => {
                drop(reply.send(self.file(&session, false).and_then(|file| file.parts(&ids))));
            }
            StoreJob::Peek { session, reply } => drop(reply.send(self.peek(&session))),
            StoreJob::Has { session, reply } => drop(reply.send(self.has(&session))),
            StoreJob::ReadOut { session, reply } => drop(reply.send(self.read_out(&session))),
            StoreJob::Import { feed, reply, .. } => drop(reply.send(self.import(*feed))),
            StoreJob::Change { session, change, reply } => drop(reply.send(self.change(&session, change))),
            StoreJob::Children { session, reply } => drop(reply.send(self.complete(|index| index.children(&session)))),
            StoreJob::List { query, reply } => drop(reply.send(self.complete(|index| index.list(&query)))),
            StoreJob::Beginning { beginning, limit, reply } => {
                drop(reply.send(self.complete(|index| index.beginning_with(&beginning, limit))));
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
            StoreJob::Leave { session, reply } => {
                let left = self.leave(&session);
                self.release(&session);
                drop(reply.send(left));
            }
            StoreJob::Discard { session, unsaid, reply } => drop(reply.send(self.discard(&session, unsaid))),
            StoreJob::Unsaid { reply } => {
                drop(reply.send(self.complete(|index| index.unsaid())));
                // A process that looks for them stays for a while.
                self.indexer.all(true);
            }
            StoreJob::Grants { project, reply } => {
                let grants = self.indexed(|index| index.grants(project.as_deref()));
                let is_told = project.is_some();
                let stored = |grants| StoredGrants { grants, lost_with: index::lost_grants(&self.dir, is_told) };
                drop(reply.send(grants.map(stored)));
            }
            StoreJob::Grant { grant, reply } => drop(reply.send(self.indexed(|index| index.grant(&grant)))),
            StoreJob::Revoke { grant, reply } => drop(reply.send(self.indexed(|index| index.revoke(&grant)))),
            StoreJob::Search { query, words, limit, reply } => match self.complete(|_| Ok(())) {
                Ok(()) => {
                    find::start(self.dir.clone(), *query, words, limit, reply);
                    self.indexer.all(false);
                }
                Err(e) => drop(reply.send(Err(e))),
            },
            StoreJob::Ask { holder, session, reply } => {
                drop(reply.send(Ok(takeover::ask(&self.dir, &holder, &session).then_some(PATIENCE))));
            }
            StoreJob::Requests { reply } => drop(reply.send(Ok(RequestSource::Pipe(self.dir.clone())))),
            StoreJob::About { reply } => drop(reply.send(Ok(self.about()))),
            StoreJob::Recent { project, reply } => drop(reply.send(Ok(recent::read(&self.dir, &project)))),
            StoreJob::Chosen { project, models, reply } => {
                let written = recent::write(&self.dir, project, models);
                drop(reply.send(written.map_err(|e| Error::Unwritable(e.to_string()))));
            }
            // Everything before it has been written by now.
            StoreJob::HandOver { reply, .. } => drop(reply.send(Ok(()))),
            // What is left is for machines that share a store, or was taken out before.
            job => job.answer_alone(),
        }
    }

    fn answer_when_filled(&mut self, reply: ReplySender<()>) {
        match self.complete(|index| Ok(index.fill())) {
            // Whoever asked may have been cancelled since.
            Ok(Some(fill)) => fill.when_over(|| drop(reply.send(Ok(())))),
            Ok(None) => drop(reply.send(Ok(()))),
            Err(e) => drop(reply.send(Err(e))),
        }
    }

    fn about(&self) -> BackendState {
        BackendState { kind: "SQLite", place: self.dir.display().to_string(), details: Vec::new(), problem: None }
    }
}
