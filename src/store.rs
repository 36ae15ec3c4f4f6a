//! What is kept: sessions, messages, parts, grants. One SQLite file per session, opened by one
//! process at a time, and one index database that can be rebuilt from them: a damaged file hides
//! no other session, and the lock on a file is how a session open elsewhere is noticed.
//!
//! All SQL lives in this folder, behind domain types: no row id, file path or SQL leaks upward.
//!
//! One thread owns every connection (`store/thread.rs`). Writes are in its queue when their call is first
//! polled, do not wait but for room, and are done in order for each session; [`Store::flush`] waits until everything before it about its session is on the
//! disk, and hardly for what is written about others. What was flushed
//! survives a power cut where the disk honours flushes; what was merely written survives the
//! death of the process.

mod beside;
mod copy;
mod error;
mod index;
mod job;
mod lock;
mod migrate;
mod pack;
mod peek;
mod queue;
mod record;
mod salvage;
mod search;
mod session;
pub mod takeover;
mod thread;
mod wal;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::oneshot;

use self::job::StoreJob;
use crate::channel::Sender;
use crate::environment::Timestamp;
use crate::id::{MessageId, PartId, SessionId};
use crate::message::{Message, Part};

pub use copy::{forked, renamed};
pub use error::Error;
pub use lock::LockHolder;
pub use record::{DiffStats, Record, RecordChange, TitleSource, UndoEntry, visible};
pub use search::{SearchHit, search};

/// A session as it was kept. Its JSON is what is exported and imported.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSession {
    /// What is known about it.
    pub record: Record,
    /// Its history, oldest first.
    pub messages: Vec<Message>,
    /// What could not be read, for the user: empty when all is well.
    pub damage: Vec<String>,
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPage {
    /// Newest first.
    pub sessions: Vec<Record>,
    /// Where the next page starts, if there is one.
    pub next: Option<ListCursor>,
}

/// A place in a listing: after this moment and id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListCursor {
    /// The last session's `updated`.
    pub updated: Timestamp,
    /// The last session's id.
    pub id: SessionId,
}

/// Something kept because the user said "always".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub project: String,
    /// The agent it was given to.
    pub agent: String,
    pub permission: String,
    /// The pattern, as it was shown.
    pub pattern: String,
    /// When.
    pub given: Timestamp,
}

/// The way to the store's thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    jobs: Sender<StoreJob>,
    dir: Arc<Path>,
}

/// Something to be written about a session.
#[derive(Debug)]
enum SessionWrite {
    Record(Box<Record>),
    Amend(RecordChange),
    Message {
        id: String,
        json: String,
    },
    Part {
        id: String,
        message: String,
        json: String,
    },
    /// A message and all after it are gone.
    Cut {
        from: String,
    },
}

impl SessionWrite {
    /// About how much of it there is to be written.
    fn bytes(&self) -> usize {
        match self {
            Self::Message { json, .. } | Self::Part { json, .. } => json.len(),
            Self::Record(_) | Self::Amend(_) | Self::Cut { .. } => 0,
        }
    }

    /// A whole session, in order.
    fn of(stored: &StoredSession) -> Vec<Self> {
        let mut entries = vec![Self::Record(Box::new(stored.record.clone()))];
        for message in &stored.messages {
            let json = serde_json::to_string(message).unwrap_or_default();
            entries.push(Self::Message { id: message.id.to_string(), json });
            for part in &message.parts {
                let json = serde_json::to_string(part).unwrap_or_default();
                entries.push(Self::Part { id: part.id.to_string(), message: message.id.to_string(), json });
            }
        }
        entries
    }
}

/// A path with something after its last letter.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl Store {
    /// A store in `dir`. Nothing is opened until it is needed.
    pub fn start(dir: &Path) -> Self {
        Self { jobs: thread::start(dir.to_path_buf()), dir: dir.into() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes a session known, and ours. Its file is made with the first thing its user tells it: a message, a
    /// title, a mode, an option.
    ///
    /// # Errors
    /// [`Error::Unwritable`].
    pub async fn create(&self, record: &Record) -> Result<(), Error> {
        let record = Box::new(record.clone());
        self.ask(|reply| StoreJob::Create { record, reply }).await
    }

    /// Writes what is known about a session. A title that its user gave stays: that is changed by
    /// [`RecordChange::Title`] alone.
    pub async fn record(&self, record: &Record) {
        self.write(&record.id, SessionWrite::Record(Box::new(record.clone()))).await;
    }

    /// Changes something of what is known about a session.
    pub async fn amend(&self, session: &SessionId, amend: RecordChange) {
        self.write(session, SessionWrite::Amend(amend)).await;
    }

    /// Writes a message, without its parts: a new one, or over the one with the same id.
    pub async fn message(&self, session: &SessionId, message: &Message) {
        match serde_json::to_string(message) {
            Ok(json) => self.write(session, SessionWrite::Message { id: message.id.to_string(), json }).await,
            Err(e) => tracing::error!("message {} cannot be written as JSON: {e}", message.id),
        }
    }

    /// Removes a message and all that came after it.
    pub async fn cut(&self, session: &SessionId, from: &MessageId) {
        self.write(session, SessionWrite::Cut { from: from.to_string() }).await;
    }

    /// Writes a part: a new one, or over the one with the same id.
    pub async fn part(&self, session: &SessionId, message: &MessageId, part: &Part) {
        let (id, message) = (part.id.to_string(), message.to_string());
        match serde_json::to_string(part) {
            Ok(json) => self.write(session, SessionWrite::Part { id, message, json }).await,
            Err(e) => tracing::error!("part {id} cannot be written as JSON: {e}"),
        }
    }

    /// Waits until everything written about a session so far has been handed to the system: it survives
    /// the end of this process, if not that of the machine. What failed to be written is told by the next
    /// flush.
    pub async fn handed_over(&self, session: &SessionId) {
        let session = session.clone();
        // A store that is gone has nothing to hand over.
        self.ask(|reply| StoreJob::HandOver { session, reply }).await.ok();
    }

    /// Waits until everything written about a session so far is on the disk.
    ///
    /// # Errors
    /// The first failure of a write since the last flush.
    pub async fn flush(&self, session: &SessionId) -> Result<(), Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Flush { session, reply }).await
    }

    /// Reads a session, and keeps it open for this process.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn load(&self, session: &SessionId) -> Result<StoredSession, Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Load { session, lean: false, reply }).await.map(|(stored, _)| stored)
    }

    /// As [`Store::load`], but results of calls that no model will see are left in the file: those from
    /// before what the last summary kept. Gives back how many messages that are, from the beginning.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn load_lean(&self, session: &SessionId) -> Result<(StoredSession, usize), Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Load { session, lean: true, reply }).await
    }

    /// Reads some parts of a session whole. What cannot be read is left out.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn parts(&self, session: &SessionId, ids: Vec<PartId>) -> Result<Vec<Part>, Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Parts { session, ids, reply }).await
    }

    /// Reads a session as it is now, whoever has it open, and leaves it alone.
    ///
    /// # Errors
    /// Any of [`Error`] but [`Error::Locked`].
    pub async fn peek(&self, session: &SessionId) -> Result<StoredSession, Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Peek { session, reply }).await
    }

    /// Whether there is such a session. Touches nothing.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where there is no index to be had.
    pub async fn has(&self, session: &SessionId) -> Result<bool, Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Has { session, reply }).await
    }

    /// Keeps a whole session under its id, which must be free; see [`forked`] and [`renamed`].
    ///
    /// # Errors
    /// [`Error::Taken`] and [`Error::Unwritable`].
    pub async fn import(&self, stored: StoredSession) -> Result<(), Error> {
        let stored = Box::new(stored);
        self.ask(|reply| StoreJob::Import { stored, reply }).await
    }

    /// Gives a session the title its user wants, for good.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn rename(&self, session: &SessionId, title: &str) -> Result<Record, Error> {
        self.change(session, RecordChange::Title(title.to_owned())).await
    }

    /// Changes something of a session's record, for good, whether it is open here or not.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn change(&self, session: &SessionId, change: RecordChange) -> Result<Record, Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Change { session, change, reply }).await
    }

    /// The sessions a session delegated to.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where there is no index to be had.
    pub async fn children(&self, session: &SessionId) -> Result<Vec<SessionId>, Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Children { session, reply }).await
    }

    /// Lists sessions, newest first: those with a message or with a title of their user's, children left out.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where there is no index to be had.
    pub async fn list(
        &self,
        cwd: Option<&Path>,
        after: Option<ListCursor>,
        limit: usize,
    ) -> Result<SessionPage, Error> {
        self.list_archived(cwd, None, after, limit).await
    }

    /// The same, of those that are put aside, or of those that are not.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub async fn list_archived(
        &self,
        cwd: Option<&Path>,
        archived: Option<bool>,
        after: Option<ListCursor>,
        limit: usize,
    ) -> Result<SessionPage, Error> {
        let cwd = cwd.map(Path::to_path_buf);
        self.ask(|reply| StoreJob::List { cwd, archived, after, limit, reply }).await
    }

    /// Removes a session and its children. Unknown ones are fine.
    ///
    /// # Errors
    /// [`Error::Locked`] and [`Error::Unwritable`].
    pub async fn delete(&self, session: &SessionId) -> Result<(), Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Delete { session, reply }).await
    }

    /// Lets go of a session that is over: as [`Store::close`], and where nothing was ever said in it and its user
    /// gave it no title, nothing of it stays. Says whether it was removed.
    ///
    /// # Errors
    /// Any of [`Error`]. It is let go of all the same.
    pub async fn leave(&self, session: &SessionId) -> Result<bool, Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Leave { session, reply }).await
    }

    /// The sessions in which nothing was said, as far as the index knows, and which their users gave no title:
    /// what killed processes left. See [`Store::discard`], which looks.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where there is no index to be had.
    pub async fn unsaid(&self) -> Result<Vec<Record>, Error> {
        self.ask(|reply| StoreJob::Unsaid { reply }).await
    }

    /// Removes a session, and its children, that is not open in this process; with `unsaid` only where nothing was
    /// said in it and its user gave it no title. Says whether it was removed.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn discard(&self, session: &SessionId, unsaid: bool) -> Result<bool, Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Discard { session, unsaid, reply }).await
    }

    /// Lets go of a session's file: when this returns, another process may open it.
    pub async fn close(&self, session: &SessionId) {
        let session = session.clone();
        // A store whose thread is gone holds no file.
        self.ask(|reply| StoreJob::Close { session, reply }).await.ok();
    }

    /// Writes what is left, lets go of every file, and ends. Later calls fail.
    pub async fn stop(&self) {
        let (reply, stopped) = oneshot::channel();
        if self.jobs.put(StoreJob::Stop { reply }) {
            // A thread that ends without a word has stopped as well.
            stopped.await.ok();
        }
    }

    /// What the user granted in a project.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where there is no index to be had.
    pub async fn grants(&self, project: &str) -> Result<Vec<Grant>, Error> {
        let project = project.to_owned();
        self.ask(|reply| StoreJob::Grants { project: Some(project), reply }).await
    }

    /// What the user granted in any project.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where there is no index to be had.
    pub async fn all_grants(&self) -> Result<Vec<Grant>, Error> {
        self.ask(|reply| StoreJob::Grants { project: None, reply }).await
    }

    /// Forgets a grant.
    ///
    /// # Errors
    /// [`Error::Unwritable`].
    pub async fn revoke(&self, grant: &Grant) -> Result<(), Error> {
        let grant = Box::new(grant.clone());
        self.ask(|reply| StoreJob::Revoke { grant, reply }).await
    }

    /// Keeps a grant.
    ///
    /// # Errors
    /// [`Error::Unwritable`].
    pub async fn grant(&self, grant: &Grant) -> Result<(), Error> {
        let grant = Box::new(grant.clone());
        self.ask(|reply| StoreJob::Grant { grant, reply }).await
    }

    async fn write(&self, session: &SessionId, entry: SessionWrite) {
        let job = StoreJob::Write { session: session.clone(), entry };
        if !self.jobs.send(job).await {
            tracing::error!("the store is gone; session {session} is not saved any more");
        }
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> StoreJob) -> Result<T, Error> {
        let gone = || Error::Unwritable("the store has stopped".into());
        let (reply, answer) = oneshot::channel();
        if !self.jobs.put(job(reply)) {
            return Err(gone());
        }
        answer.await.map_err(|_| gone())?
    }
}

#[cfg(test)]
mod damage;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod power;
#[cfg(test)]
mod tests;
