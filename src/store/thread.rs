//! The thread that owns every connection. It does one session's work at a time, and looks at what has
//! come meanwhile before it turns to the next: see [`Queue`] for who that is. What of a session waits
//! together is written in one transaction, with one flush for all who asked.
//!
//! What takes a while, a file that has to be made or much that has to be packed, is done by a thread of
//! its own, which is lent the session's file ([`Beside`]); what else is wanted of the session waits until
//! the file is back, and no other session does.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc as done;

use tokio::sync::{mpsc, oneshot};

use super::beside::{Beside, What, Writing, Written};
use super::index::Index;
use super::lock::{Lock, Refused};
use super::queue::{Piece, Queue, State};
use super::session::{self, File};
use super::{Cursor, Entry, Error, Grant, Page, Record, Stored, Titled, peek, salvage, takeover};
use crate::id::{PartId, SessionId};
use crate::message::Part;

pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

pub(super) enum Job {
    Create { record: Box<Record>, reply: Reply<()> },
    Write { session: SessionId, entry: Entry },
    Flush { session: SessionId, reply: Reply<()> },
    Load { session: SessionId, lean: bool, reply: Reply<(Stored, usize)> },
    Parts { session: SessionId, ids: Vec<PartId>, reply: Reply<Vec<Part>> },
    Peek { session: SessionId, reply: Reply<Stored> },
    Has { session: SessionId, reply: Reply<bool> },
    Import { stored: Box<Stored>, reply: Reply<()> },
    Rename { session: SessionId, title: String, reply: Reply<Record> },
    Children { session: SessionId, reply: Reply<Vec<SessionId>> },
    List { cwd: Option<PathBuf>, after: Option<Cursor>, limit: usize, reply: Reply<Page> },
    Delete { session: SessionId, reply: Reply<()> },
    Close { session: SessionId },
    Grants { project: Option<String>, reply: Reply<Vec<Grant>> },
    Grant { grant: Box<Grant>, reply: Reply<()> },
    Revoke { grant: Box<Grant>, reply: Reply<()> },
    HandOver { session: SessionId, reply: Reply<()> },
    Wake,
    Stop { reply: oneshot::Sender<()> },
}

/// How many jobs may wait unseen, and how many sorted: a store that cannot keep up slows the turn down.
const WAITING: usize = 512;
const SORTED: usize = 512;

/// How many sessions are written to beside the others at a time. They wait for the disk most of the time.
const BESIDE: usize = 3;

/// How many rows of a session are kept in memory when they cannot be written.
const UNWRITTEN: usize = 4096;

/// Starts the thread. It ends when the last [`super::Store`] is gone.
pub(super) fn start(dir: PathBuf) -> mpsc::Sender<Job> {
    let (tx, mut rx) = mpsc::channel(WAITING);
    let wake = tx.downgrade();
    let work = move || {
        let (written, done) = done::channel();
        let mut thread = Thread {
            dir,
            index: None,
            locks: HashMap::new(),
            open: HashMap::new(),
            unwritten: HashMap::new(),
            failed: HashMap::new(),
            away: HashSet::new(),
            beside: Beside::new(written, wake),
            done,
        };
        if let Some(stopped) = thread.run(&mut rx) {
            drop(thread);
            // Nobody needs to wait for it.
            stopped.send(()).ok();
        }
    };
    if let Err(e) = std::thread::Builder::new().name("store".into()).spawn(work) {
        tracing::error!("no thread for the store: {e}");
    }
    tx
}

struct Thread {
    dir: PathBuf,
    index: Option<Index>,
    /// The sessions that are ours, whether they have a file yet or not.
    locks: HashMap<SessionId, Lock>,
    open: HashMap<SessionId, File>,
    /// What could not be written, oldest first.
    unwritten: HashMap<SessionId, Vec<Entry>>,
    /// Sessions whose last write failed, until someone asked.
    failed: HashMap<SessionId, Error>,
    /// Sessions that are written to beside the others, and what comes of it.
    away: HashSet<SessionId>,
    beside: Beside,
    done: done::Receiver<Written>,
}

impl Job {
    /// Whose turn it waits for.
    fn of(&self) -> Of {
        match self {
            Self::Create { record, .. } => Of::Session(record.id.clone()),
            Self::Import { stored, .. } => Of::Session(stored.record.id.clone()),
            Self::Write { session, .. }
            | Self::Flush { session, .. }
            | Self::Load { session, .. }
            | Self::Parts { session, .. }
            | Self::Peek { session, .. }
            | Self::Has { session, .. }
            | Self::Rename { session, .. }
            | Self::HandOver { session, .. }
            | Self::Close { session } => Of::Session(session.clone()),
            Self::Grants { .. } | Self::Grant { .. } | Self::Revoke { .. } | Self::Wake => Of::None,
            Self::Children { .. } | Self::List { .. } | Self::Delete { .. } | Self::Stop { .. } => Of::All,
        }
    }
}

/// What a job has to do with sessions: it comes after all that was said about one, about none, or about
/// all of them.
enum Of {
    Session(SessionId),
    None,
    All,
}

impl Thread {
    /// Does what comes until everyone is gone. Gives back who wants the thread to stop, if someone does.
    fn run(&mut self, jobs: &mut mpsc::Receiver<Job>) -> Option<oneshot::Sender<()>> {
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
                match job.of() {
                    Of::Session(session) => queue.push(session, job),
                    Of::None => self.other(job),
                    Of::All => {
                        self.drain(&mut queue);
                        match job {
                            Job::Stop { reply } => return Some(reply),
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
        let state = |session: &SessionId| match self.open.contains_key(session) {
            _ if self.away.contains(session) => State::Away,
            true => State::Open,
            false => State::Closed,
        };
        let Some(piece) = queue.next(state, self.away.len() < BESIDE) else { return false };
        let Piece { session, entries, flushes, then, long } = piece;
        if entries.is_empty() && flushes.is_empty() {
            then.into_iter().for_each(|job| self.other(job));
        } else {
            self.write(What { session, entries, flushes, then }, long);
        }
        true
    }

    /// Writes, or has it written beside the others where that is `long`.
    fn write(&mut self, mut what: What, long: bool) {
        // What could not be written is tried again first: a full disk may have room by now.
        if let Some(mut entries) = self.unwritten.remove(&what.session) {
            entries.append(&mut what.entries);
            what.entries = entries;
        }
        if what.entries.is_empty() && !self.open.contains_key(&what.session) {
            return self.settle(what, Ok(()));
        }
        let known = match self.ours(&what.session) {
            Ok(known) => known,
            Err(e) => return self.back(Written { file: Err(e), what }),
        };
        let file = self.open.remove(&what.session);
        let writing = Writing { dir: self.dir.clone(), file, known, what };
        if !long {
            return self.back(writing.run());
        }
        self.away.insert(writing.what.session.clone());
        if let Err(writing) = self.beside.start(writing) {
            // There is no thread to be had.
            self.back(writing.run());
        }
    }

    /// A session's file is back.
    fn back(&mut self, Written { file, mut what }: Written) {
        self.away.remove(&what.session);
        let written = file.map(|file| drop(self.open.insert(what.session.clone(), file)));
        let entries = std::mem::take(&mut what.entries);
        match &written {
            Ok(()) => {
                let record = entries.iter().rev().find_map(|entry| match entry {
                    Entry::Record(record) => Some(record),
                    _ => None,
                });
                if let Some(record) = record
                    && let Err(e) = self.indexed(|index| index.put(record))
                {
                    // The session's own file has it; the index gets it with the next one.
                    tracing::warn!("the index does not know the latest of {}: {e}", what.session);
                }
            }
            Err(e) => {
                tracing::error!("{e}");
                // A file of which a write or a flush failed is not trusted any further: what it really
                // holds is seen when it is opened again. The session stays ours.
                let surplus = entries.len().saturating_sub(UNWRITTEN);
                self.unwritten.insert(what.session.clone(), entries.into_iter().skip(surplus).collect());
                self.failed.entry(what.session.clone()).or_insert_with(|| e.clone());
            }
        }
        self.settle(what, written);
    }

    /// Answers whoever waited for a write, and does what comes after it.
    fn settle(&mut self, what: What, written: Result<(), Error>) {
        if !what.flushes.is_empty() {
            let failed = match (self.failed.remove(&what.session), written) {
                // A failure that was made good in the end is none.
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

    /// Makes a session ours before its file is written to. Gives back what the index knows about one that
    /// has no file yet.
    fn ours(&mut self, session: &SessionId) -> Result<Option<Record>, Error> {
        if self.open.contains_key(session) {
            return Ok(None);
        }
        let fresh = !session::path(&self.dir, session).exists();
        let known = if fresh { self.indexed(|index| index.get(session))? } else { None };
        self.hold(session)?;
        Ok(known)
    }

    /// Makes a session ours, before its file is touched.
    fn hold(&mut self, session: &SessionId) -> Result<(), Error> {
        if self.locks.contains_key(session) {
            return Ok(());
        }
        let sessions = self.dir.join("sessions");
        crate::environment::private_dir(&sessions).map_err(|e| Error::Unwritable(e.to_string()))?;
        let lock = Lock::take(&sessions.join(format!("{session}.lock")), takeover::own());
        let lock = lock.map_err(|refused| match refused {
            Refused::Held(holder) => Error::Locked { id: session.clone(), holder },
            Refused::Io(e) => Error::Unwritable(e.to_string()),
        })?;
        self.locks.insert(session.clone(), lock);
        Ok(())
    }

    fn release(&mut self, session: &SessionId) {
        self.open.remove(session);
        self.locks.remove(session);
    }

    fn file(&mut self, session: &SessionId, create: bool) -> Result<&mut File, Error> {
        if !self.open.contains_key(session) {
            self.hold(session)?;
            let file = File::open(&self.dir, session, create)?;
            self.open.insert(session.clone(), file);
        }
        self.open.get_mut(session).ok_or_else(|| Error::NotFound(session.clone()))
    }

    /// Asks the index; one that turns out to be damaged is made again, and asked again.
    fn indexed<T>(&mut self, ask: impl Fn(&Index) -> Result<T, Error>) -> Result<T, Error> {
        let index = match self.index.take() {
            Some(index) => index,
            None => Index::open(&self.dir)?,
        };
        match ask(&index) {
            Err(Error::DamagedIndex(reason)) => ask(self.index.insert(index.again(&self.dir, &reason)?)),
            answer => {
                self.index = Some(index);
                answer
            }
        }
    }

    fn other(&mut self, job: Job) {
        // A reply that nobody waits for any more is dropped.
        match job {
            Job::Create { record, reply } => drop(reply.send(self.create(&record))),
            Job::Load { session, lean, reply } => {
                let loaded = self.load(&session, lean);
                if loaded.is_err() && !self.unwritten.contains_key(&session) {
                    self.release(&session);
                }
                drop(reply.send(loaded));
            }
            Job::Parts { session, ids, reply } => {
                drop(reply.send(self.file(&session, false).and_then(|file| file.parts(&ids))));
            }
            Job::Peek { session, reply } => drop(reply.send(self.peek(&session))),
            Job::Has { session, reply } => drop(reply.send(self.has(&session))),
            Job::Import { stored, reply } => drop(reply.send(self.import(&stored))),
            Job::Rename { session, title, reply } => drop(reply.send(self.rename(&session, title))),
            Job::Children { session, reply } => drop(reply.send(self.indexed(|index| index.children(&session)))),
            Job::List { cwd, after, limit, reply } => {
                drop(reply.send(self.indexed(|index| index.list(cwd.as_deref(), after.as_ref(), limit))));
            }
            Job::Delete { session, reply } => drop(reply.send(self.delete(&session))),
            Job::Close { session } => self.release(&session),
            Job::Grants { project, reply } => {
                drop(reply.send(self.indexed(|index| index.grants(project.as_deref()))));
            }
            Job::Grant { grant, reply } => drop(reply.send(self.indexed(|index| index.grant(&grant)))),
            Job::Revoke { grant, reply } => drop(reply.send(self.indexed(|index| index.revoke(&grant)))),
            // Everything before it has been written by now.
            Job::HandOver { reply, .. } => drop(reply.send(Ok(()))),
            // Taken out before.
            Job::Write { .. } | Job::Flush { .. } | Job::Wake | Job::Stop { .. } => {}
        }
    }

    fn create(&mut self, record: &Record) -> Result<(), Error> {
        self.indexed(|index| index.put(record))?;
        self.hold(&record.id)
    }

    /// What the index knows; a store without one can still be read.
    fn known(&mut self, session: &SessionId) -> Option<Record> {
        self.indexed(|index| index.get(session)).unwrap_or_else(|e| {
            tracing::warn!("reading without the index: {e}");
            None
        })
    }

    fn load(&mut self, session: &SessionId, lean: bool) -> Result<(Stored, usize), Error> {
        let known = self.known(session);
        let path = session::path(&self.dir, session);
        let empty = match std::fs::symlink_metadata(&path) {
            Ok(meta) => meta.is_file() && meta.len() == 0 && !self.open.contains_key(session),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => true,
            Err(e) => return Err(Error::Unwritable(e.to_string())),
        };
        if empty {
            let record = known.ok_or_else(|| Error::NotFound(session.clone()))?;
            self.hold(session)?;
            return Ok((Stored { record, messages: Vec::new(), damage: Vec::new() }, 0));
        }
        self.hold(session)?;
        let torn = if self.open.contains_key(session) { None } else { salvage::torn_log(&path) };
        let fallback = known.clone();
        let read = self.file(session, false).and_then(|file| file.read(fallback, lean));
        let (mut stored, cold) = match read {
            Err(damaged @ Error::Damaged { .. }) => {
                self.open.remove(session);
                (salvage::salvage(&self.dir, session, known.clone(), damaged)?, 0)
            }
            read => read?,
        };
        stored.damage.extend(torn);
        if known.as_ref() != Some(&stored.record)
            && let Err(e) = self.indexed(|index| index.put(&stored.record))
        {
            tracing::warn!("the index does not know the latest of {session}: {e}");
        }
        Ok((stored, cold))
    }

    fn has(&mut self, session: &SessionId) -> Result<bool, Error> {
        Ok(session::path(&self.dir, session).exists() || self.indexed(|index| index.get(session))?.is_some())
    }

    /// Reads a session that may be open elsewhere, and stays closed here.
    fn peek(&mut self, session: &SessionId) -> Result<Stored, Error> {
        let known = self.known(session);
        if let Some(file) = self.open.get(session) {
            return file.load(known);
        }
        match (peek::peek(&self.dir, session, known.clone()), known) {
            // Never prompted.
            (Err(Error::NotFound(_)), Some(record)) => Ok(Stored { record, messages: Vec::new(), damage: Vec::new() }),
            (read, _) => read,
        }
    }

    /// Keeps a whole session that is not here yet. It stays closed.
    fn import(&mut self, stored: &Stored) -> Result<(), Error> {
        let id = &stored.record.id;
        let taken = session::path(&self.dir, id).exists() || self.indexed(|index| index.get(id))?.is_some();
        if taken || self.locks.contains_key(id) {
            return Err(Error::Taken(id.clone()));
        }
        self.hold(id)?;
        let written = self.file(id, true).and_then(|file| file.write(&Entry::of(stored), true));
        let known = written.and_then(|()| self.indexed(|index| index.put(&stored.record)));
        self.release(id);
        if known.is_err() {
            remove_files(&session::path(&self.dir, id)).ok();
        }
        known
    }

    fn rename(&mut self, session: &SessionId, title: String) -> Result<Record, Error> {
        let ours = self.locks.contains_key(session);
        let renamed = self.load(session, true).and_then(|(stored, _)| {
            let record = Record { title: Some(title), titled: Titled::User, ..stored.record };
            if self.open.contains_key(session) {
                self.file(session, false)?.write(&[Entry::Record(Box::new(record.clone()))], true)?;
            }
            self.indexed(|index| index.put(&record))?;
            Ok(record)
        });
        if !ours {
            self.release(session);
        }
        renamed
    }

    fn delete(&mut self, session: &SessionId) -> Result<(), Error> {
        for child in self.indexed(|index| index.children(session))? {
            self.delete(&child)?;
        }
        // One that is open elsewhere is not ours to remove; a damaged one may go.
        self.hold(session)?;
        let path = session::path(&self.dir, session);
        self.open.remove(session);
        self.unwritten.remove(session);
        let gone = remove_files(&path).and_then(|()| self.indexed(|index| index.remove(session)));
        self.release(session);
        gone
    }
}

fn remove_files(path: &Path) -> Result<(), Error> {
    // The database last: without it the others mean nothing.
    for suffix in [session::NEW, "-wal", "-journal", "-shm", ""] {
        let file = super::with_suffix(path, suffix);
        match std::fs::remove_file(&file) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::Unwritable(format!("{}: {e}", file.display()))),
        }
    }
    Ok(())
}
