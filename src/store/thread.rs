//! The thread that owns every connection. What waits in its queue is written together: one
//! transaction per session, one flush for all who asked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tokio::sync::{mpsc, oneshot};

use super::index::Index;
use super::lock::{Lock, Refused};
use super::session::{self, File};
use super::{Cursor, Entry, Error, Grant, Page, Record, Stored, Titled, peek, salvage, takeover};
use crate::id::{PartId, SessionId};
use crate::message::Part;

type Reply<T> = oneshot::Sender<Result<T, Error>>;

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
    HandOver { reply: Reply<()> },
    Stop { reply: oneshot::Sender<()> },
}

/// How many jobs may wait: a store that cannot keep up slows the turn down.
const WAITING: usize = 1024;

/// How many rows of a session are kept in memory when they cannot be written.
const UNWRITTEN: usize = 4096;

/// Starts the thread. It ends when the last [`super::Store`] is gone.
pub(super) fn start(dir: PathBuf) -> mpsc::Sender<Job> {
    let (tx, mut rx) = mpsc::channel(WAITING);
    let work = move || {
        let mut thread = Thread {
            dir,
            index: None,
            locks: HashMap::new(),
            open: HashMap::new(),
            unwritten: HashMap::new(),
            failed: HashMap::new(),
        };
        let mut batch = Vec::new();
        while rx.blocking_recv_many(&mut batch, 256) > 0 {
            if let Some(stopped) = thread.work(std::mem::take(&mut batch)) {
                drop(thread);
                // Nobody needs to wait for it.
                stopped.send(()).ok();
                return;
            }
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
}

/// What has been taken from the queue for one session and not yet written.
#[derive(Default)]
struct Batch {
    entries: Vec<Entry>,
    flushes: Vec<Reply<()>>,
}

impl Thread {
    /// Does the jobs. Gives back who wants the thread to stop, if someone does.
    fn work(&mut self, jobs: Vec<Job>) -> Option<oneshot::Sender<()>> {
        let mut batches: HashMap<SessionId, Batch> = HashMap::new();
        for job in jobs {
            match job {
                Job::Write { session, entry } => batches.entry(session).or_default().entries.push(entry),
                Job::Flush { session, reply } => batches.entry(session).or_default().flushes.push(reply),
                Job::Stop { reply } => {
                    self.write(&mut batches);
                    return Some(reply);
                }
                other => {
                    // Everything else sees what was written before it.
                    self.write(&mut batches);
                    self.other(other);
                }
            }
        }
        self.write(&mut batches);
        None
    }

    fn write(&mut self, batches: &mut HashMap<SessionId, Batch>) {
        for (session, batch) in batches.drain() {
            let flush = !batch.flushes.is_empty();
            // What could not be written is tried again first: a full disk may have room by now.
            let mut entries = self.unwritten.remove(&session).unwrap_or_default();
            entries.extend(batch.entries);
            let written = self.put(&session, &entries, flush);
            if let Err(e) = &written {
                tracing::error!("{e}");
                // A file of which a write or a flush failed is not trusted any further: what it really
                // holds is seen when it is opened again. The session stays ours.
                self.open.remove(&session);
                let surplus = entries.len().saturating_sub(UNWRITTEN);
                entries.drain(..surplus);
                self.unwritten.insert(session.clone(), entries);
                self.failed.entry(session.clone()).or_insert_with(|| e.clone());
            }
            if flush {
                let failed = match (self.failed.remove(&session), written) {
                    // A failure that was made good in the end is none.
                    (_, Ok(())) | (None, _) => Ok(()),
                    (Some(e), Err(_)) => Err(e),
                };
                for reply in batch.flushes {
                    // Whoever asked may have been cancelled since.
                    drop(reply.send(failed.clone()));
                }
            }
        }
    }

    fn put(&mut self, session: &SessionId, entries: &[Entry], flush: bool) -> Result<(), Error> {
        let records: Vec<Record> = entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Record(record) => Some((**record).clone()),
                _ => None,
            })
            .collect();
        if entries.is_empty() && !self.open.contains_key(session) {
            return Ok(());
        }
        let fresh = !self.open.contains_key(session) && !session::path(&self.dir, session).exists();
        let known = if fresh { self.indexed(|index| index.get(session))? } else { None };
        let file = self.file(session, true)?;
        if let Some(record) = known {
            file.write(&[Entry::Record(Box::new(record))], false)?;
        }
        file.write(entries, flush)?;
        if let Some(record) = records.last()
            && let Err(e) = self.indexed(|index| index.put(record))
        {
            // The session's own file has it; the index gets it with the next one.
            tracing::warn!("the index does not know the latest of {session}: {e}");
        }
        Ok(())
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
            Job::HandOver { reply } => drop(reply.send(Ok(()))),
            // Taken out before.
            Job::Write { .. } | Job::Flush { .. } | Job::Stop { .. } => {}
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
    for suffix in ["-wal", "-journal", "-shm", ""] {
        let file = super::with_suffix(path, suffix);
        match std::fs::remove_file(&file) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::Unwritable(format!("{}: {e}", file.display()))),
        }
    }
    Ok(())
}
