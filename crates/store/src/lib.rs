//! What is kept: sessions, messages, parts, grants, and by whom: a backend. All SQL lives in this folder, behind
//! domain types: no row id, file path or SQL leaks upward.
//!
//! The seam is a queue of jobs (`store/job.rs`): a backend is a thread that does them, and nothing above can tell
//! which one does. Writes are in its queue when their call is first polled, do not wait but for room, and are done in
//! order for each session; [`Store::flush`] waits until everything before it about its session is kept for good,
//! and hardly for what is written about others. A session is open in one process at a time.

mod assembly;
mod copy;
mod error;
mod feed;
mod fleet;
mod holder;
mod job;
mod list;
mod meters;
mod pack;
mod postgres;
mod record;
mod search;
mod shared;
mod sqlite;
mod takeover;
mod write;

use base::store_place::StorePlace;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use self::job::StoreJob;
use self::write::SessionWrite;
use base::channel::{self, Sender};
use base::environment::Timestamp;
use base::id::{MessageId, PartId, SessionId};
use transcript::{Message, ModelRef, Part};

pub use copy::{forked, renamed};
pub use error::Error;
pub use feed::SessionFeed;
pub use fleet::{BusySession, ClaimedTask, TaskState, TaskStatus};
pub use holder::LockHolder;
pub use list::{ListCursor, ListFilling, ListQuery, SessionPage};
pub use meters::{StoreMeters, StoreNumber};
pub use record::{DiffStats, PastUndo, Record, RecordChange, TitleSource, UndoEntry, visible};
pub use search::{SearchCut, SearchHit, SearchPage};
pub use takeover::{OwnerRequest, TakeoverRequests};

/// Where the answer to a job goes.
type ReplySender<T> = oneshot::Sender<Result<T, Error>>;

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

/// The way in which a session is read.
#[derive(Debug, Default)]
pub struct LoadOptions {
    /// Without the results of calls that no model will see: see [`Store::load_lean`].
    pub lean: bool,
    /// Its record where a damaged file says nothing of it and the index has lost it: it can be gone on with all the
    /// same.
    pub unknown: Option<Box<Record>>,
    /// Where its first messages go as soon as these are read, if all of them is as it was written. A part that was
    /// written long after its message may be missing from them. Nothing may be sent.
    pub beginning: Option<oneshot::Sender<StoredSession>>,
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
    pub given: Timestamp,
}

/// The grants of a project, or of all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredGrants {
    pub grants: Vec<Grant>,
    /// Grants could not be read from a damaged index, which lies there, and nobody was told of it yet.
    pub lost_with: Option<String>,
}

/// What holds the sessions, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendState {
    /// The name of the engine.
    pub kind: &'static str,
    /// A directory, or an address without its password.
    pub place: String,
    /// What else is to be known of it.
    pub details: Vec<String>,
    /// Why nothing can be kept at the moment.
    pub problem: Option<String>,
}

/// How many jobs may wait unseen: a backend that cannot keep up slows the turn down.
const WAITING: usize = 512;

/// The way to the store's thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    jobs: Sender<StoreJob>,
    /// Whether machines share it, as soon as somebody wanted to know.
    shared: Arc<OnceLock<bool>>,
    meters: Arc<StoreMeters>,
}

impl Store {
    /// A store in files below `dir`. Nothing is opened until it is needed.
    pub fn start(dir: &Path) -> Self {
        let dir = dir.to_path_buf();
        Self::open(move || StorePlace::Files(dir))
    }

    /// A store in the place that is found. Both looking for it and keeping are done by a thread of the store's own,
    /// which ends when the last hand on the store is gone; nothing is opened until it is needed.
    pub fn open(find: impl FnOnce() -> StorePlace + Send + 'static) -> Self {
        let (jobs, received) = channel::channel(WAITING);
        let wake = jobs.downgrade();
        let meters = Arc::<StoreMeters>::default();
        let counted = meters.clone();
        let work = move || match find() {
            StorePlace::Files(dir) => sqlite::work(dir, received, (wake, counted)),
            StorePlace::Database(place) => postgres::work(place, received, counted),
        };
        if let Err(e) = std::thread::Builder::new().name("store".into()).spawn(work) {
            tracing::error!("no thread for the store: {e}");
        }
        Self { jobs, shared: Arc::default(), meters }
    }

    /// What is counted of it.
    pub fn numbers(&self) -> Vec<StoreNumber> {
        self.meters.read()
    }

    /// What holds the sessions.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where the store has stopped.
    pub async fn about(&self) -> Result<BackendState, Error> {
        self.ask(|reply| StoreJob::About { reply }).await
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
        // A large one is not written as JSON where messages are read.
        let json = match part.is_large().then(|| part.clone()) {
            Some(part) => base::task::on_threads(async move { serde_json::to_string(&part) }).await,
            None => serde_json::to_string(part),
        };
        match json {
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
        let (session, began) = (session.clone(), Instant::now());
        let flushed = self.ask(|reply| StoreJob::Flush { session, reply }).await;
        self.meters.flushed(began.elapsed(), flushed.is_err());
        flushed
    }

    /// Reads a session, and keeps it open for this process.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn load(&self, session: &SessionId) -> Result<StoredSession, Error> {
        self.load_with(session, LoadOptions::default()).await.map(|(stored, _)| stored)
    }

    /// As [`Store::load`], but results of calls that no model will see are left in the file: those from
    /// before what the last summary kept. Gives back how many messages that are, from the beginning.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn load_lean(&self, session: &SessionId) -> Result<(StoredSession, usize), Error> {
        self.load_with(session, LoadOptions { lean: true, ..LoadOptions::default() }).await
    }

    /// As [`Store::load`], in a way of one's own. Gives back how many messages at the beginning lack the results of
    /// their calls.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn load_with(&self, session: &SessionId, options: LoadOptions) -> Result<(StoredSession, usize), Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Load { session, options, reply }).await
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

    /// Reads a session as [`Store::peek`] does, a message at a time: it is not in memory as a whole unless another
    /// program writes to it, it is open here, or is kept in a database.
    ///
    /// # Errors
    /// Any of [`Error`] but [`Error::Locked`].
    pub async fn read_out(&self, session: &SessionId) -> Result<SessionFeed, Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::ReadOut { session, reply }).await
    }

    /// Keeps a whole session under its id, which must be free; see [`forked`] and [`renamed`]. Its messages are asked
    /// for one at a time, by the store's own thread: they must not come from this store's answers.
    ///
    /// # Errors
    /// [`Error::Taken`] and [`Error::Unwritable`], and what the feed ends with; nothing of it is kept then.
    pub async fn import(&self, feed: impl Into<SessionFeed>) -> Result<(), Error> {
        let feed = Box::new(feed.into());
        self.ask(|reply| StoreJob::Import { feed, of: None, reply }).await
    }

    /// The same for a copy of a session, whose changes can be undone in it as well.
    ///
    /// # Errors
    /// As [`Store::import`].
    pub async fn import_copy(&self, feed: SessionFeed, of: &SessionId) -> Result<(), Error> {
        let feed = Box::new(feed);
        let of = Some(of.clone());
        self.ask(|reply| StoreJob::Import { feed, of, reply }).await
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

    /// Asks who has a session to let go of it. Gives back how long that may take; none where it cannot be asked: it
    /// runs on another machine with files of its own, or is no longer there.
    pub async fn request(&self, holder: &LockHolder, session: &SessionId) -> Option<Duration> {
        let (holder, session) = (holder.clone(), session.clone());
        self.ask(|reply| StoreJob::Ask { holder, session, reply }).await.ok()?
    }

    /// Hears from now on who wants sessions that are open here. One hand on the store can do so.
    ///
    /// # Errors
    /// Where nobody can be heard.
    pub async fn requests(&self) -> Result<TakeoverRequests, Error> {
        let source = self.ask(|reply| StoreJob::Requests { reply }).await?;
        TakeoverRequests::listen(source).map_err(|e| Error::Unwritable(e.to_string()))
    }

    /// Searches sessions for words, all of which must be in a message or in the title, in whatever case: all that `query`
    /// lists, whatever its own limit. The newest come first; `limit` of them at most.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where nothing can be read.
    pub async fn search(&self, query: ListQuery, words: &str, limit: usize) -> Result<SearchPage, Error> {
        let (query, words) = (Box::new(query), words.to_owned());
        self.ask(|reply| StoreJob::Search { query, words, limit, reply }).await
    }

    /// The models chosen last in a project, the newest first.
    pub async fn recent(&self, project: &str) -> Vec<ModelRef> {
        let project = project.to_owned();
        let read = self.ask(|reply| StoreJob::Recent { project, reply }).await;
        read.unwrap_or_else(|e| {
            tracing::warn!("what was chosen last is not known: {e}");
            Vec::new()
        })
    }

    /// Keeps the models chosen last in a project, the newest first.
    ///
    /// # Errors
    /// [`Error::Unwritable`]; what was kept is then as it was.
    pub async fn chosen(&self, project: &str, models: Vec<ModelRef>) -> Result<(), Error> {
        let project = project.to_owned();
        self.ask(|reply| StoreJob::Chosen { project, models, reply }).await
    }

    /// Returns what the user granted in a project. That grants were lost is said once.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where there is no index to be had.
    pub async fn grants(&self, project: &str) -> Result<StoredGrants, Error> {
        let project = project.to_owned();
        self.ask(|reply| StoreJob::Grants { project: Some(project), reply }).await
    }

    /// Returns what the user granted in any project. That grants were lost stays to be said.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where there is no index to be had.
    pub async fn all_grants(&self) -> Result<StoredGrants, Error> {
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
mod tests;
