//! The thread that owns every connection. What waits in its queue is written together: one
//! transaction per session, one flush for all who asked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tokio::sync::{mpsc, oneshot};

use super::index::Index;
use super::session::{self, File};
use super::{Cursor, Entry, Error, Grant, Page, Record, Stored};
use crate::id::SessionId;

type Reply<T> = oneshot::Sender<Result<T, Error>>;

pub(super) enum Job {
    Create { record: Box<Record>, reply: Reply<()> },
    Write { session: SessionId, entry: Entry },
    Flush { session: SessionId, reply: Reply<()> },
    Load { session: SessionId, reply: Reply<Stored> },
    List { cwd: Option<PathBuf>, after: Option<Cursor>, limit: usize, reply: Reply<Page> },
    Delete { session: SessionId, reply: Reply<()> },
    Close { session: SessionId },
    Grants { project: Option<String>, reply: Reply<Vec<Grant>> },
    Grant { grant: Box<Grant>, reply: Reply<()> },
    Revoke { grant: Box<Grant>, reply: Reply<()> },
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
        let mut thread =
            Thread { dir, index: None, open: HashMap::new(), unwritten: HashMap::new(), failed: HashMap::new() };
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
        let known = if fresh { self.index()?.get(session)? } else { None };
        let file = self.file(session, true)?;
        if let Some(record) = known {
            file.write(&[Entry::Record(Box::new(record))], false)?;
        }
        file.write(entries, flush)?;
        if let Some(record) = records.last()
            && let Err(e) = self.index().and_then(|index| index.put(record))
        {
            // The session's own file has it; the index gets it with the next one.
            tracing::warn!("the index does not know the latest of {session}: {e}");
        }
        Ok(())
    }

    fn file(&mut self, session: &SessionId, create: bool) -> Result<&mut File, Error> {
        if !self.open.contains_key(session) {
            let file = File::open(&self.dir, session, create)?;
            self.open.insert(session.clone(), file);
        }
        self.open.get_mut(session).ok_or_else(|| Error::NotFound(session.clone()))
    }

    fn index(&mut self) -> Result<&Index, Error> {
        if self.index.is_none() {
            self.index = Some(Index::open(&self.dir)?);
        }
        self.index.as_ref().ok_or_else(|| Error::Unwritable("there is no index".into()))
    }

    fn other(&mut self, job: Job) {
        // A reply that nobody waits for any more is dropped.
        match job {
            Job::Create { record, reply } => drop(reply.send(self.index().and_then(|index| index.put(&record)))),
            Job::Load { session, reply } => drop(reply.send(self.load(&session))),
            Job::List { cwd, after, limit, reply } => {
                drop(reply.send(self.index().and_then(|index| index.list(cwd.as_deref(), after.as_ref(), limit))));
            }
            Job::Delete { session, reply } => drop(reply.send(self.delete(&session))),
            Job::Close { session } => {
                self.open.remove(&session);
            }
            Job::Grants { project, reply } => {
                drop(reply.send(self.index().and_then(|index| index.grants(project.as_deref()))));
            }
            Job::Grant { grant, reply } => drop(reply.send(self.index().and_then(|index| index.grant(&grant)))),
            Job::Revoke { grant, reply } => drop(reply.send(self.index().and_then(|index| index.revoke(&grant)))),
            // Taken out before.
            Job::Write { .. } | Job::Flush { .. } | Job::Stop { .. } => {}
        }
    }

    fn load(&mut self, session: &SessionId) -> Result<Stored, Error> {
        let known = match self.index().and_then(|index| index.get(session)) {
            Ok(known) => known,
            Err(e) => {
                tracing::warn!("loading without the index: {e}");
                None
            }
        };
        if !session::path(&self.dir, session).exists() {
            let record = known.ok_or_else(|| Error::NotFound(session.clone()))?;
            return Ok(Stored { record, messages: Vec::new(), damage: Vec::new() });
        }
        self.file(session, false)?.load(known)
    }

    fn delete(&mut self, session: &SessionId) -> Result<(), Error> {
        for child in self.index()?.children(session)? {
            self.delete(&child)?;
        }
        let path = session::path(&self.dir, session);
        if path.exists() {
            // A file that is open elsewhere is not ours to remove; a damaged one may go.
            if let Err(e @ Error::Locked(_)) = self.file(session, false) {
                return Err(e);
            }
        }
        self.open.remove(session);
        for file in [path.clone(), with_suffix(&path, "-wal"), with_suffix(&path, "-journal")] {
            match std::fs::remove_file(&file) {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::Unwritable(format!("{}: {e}", file.display()))),
            }
        }
        self.index()?.remove(session)
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
