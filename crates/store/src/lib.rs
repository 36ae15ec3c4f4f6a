//! Storage of sessions, messages, parts and grants. All SQL is in this crate, behind domain types:
//! no row id, file path or SQL statement is public.
//!
//! The interface to a backend is a queue of jobs (`job.rs`). A backend is a thread that executes
//! them, and callers cannot distinguish the backends. A write is queued when its call is first
//! polled, waits only if the queue is full, and is executed in order with the other writes of its
//! session. [`Store::flush`] waits until everything written so far about a session is durable;
//! writes of other sessions hardly delay it. A session is open in one process at a time.

mod assembly;
mod compression;
mod copy;
mod error;
mod fleet;
mod holder;
mod job;
mod list;
mod list_requests;
mod metrics;
pub mod opencode;
mod postgres;
mod record;
mod search;
mod shared;
mod sqlite;
mod streamed;
mod takeover;
mod write;

use base::store_location::StoreLocation;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use self::job::StoreJob;
use self::write::{PartJson, SessionWrite};
use base::channel::{self, Sender};
use base::environment::Timestamp;
use base::id::{MessageId, PartId, SessionId};
use transcript::{Message, ModelRef, Part};

pub use copy::{forked, renamed};
pub use error::Error;
pub use fleet::{BusySession, ClaimedTask, TaskState, TaskStatus};
pub use holder::LockHolder;
pub use job::OwnerRequest;
pub use list::{ListCursor, ListFilling, ListQuery, SessionPage};
pub use metrics::{StoreMetric, StoreMetrics};
pub use record::{
    DiffStats, FileLogEntry, InheritedRestrictions, LeftOutTools, PastUndo, Record, RecordChange,
    RefusedDeclaration, SessionSummary, TitleSource, UndoEntry, Undos, visible,
};
pub use search::{SearchCut, SearchHit, SearchPage};
pub use streamed::StreamedSession;
pub use takeover::TakeoverRequests;

/// The sender of a job's answer.
type ReplySender<T> = oneshot::Sender<Result<T, Error>>;

/// A session as it was stored. Its JSON is the format of export and import.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSession {
    pub record: Record,
    /// The history, oldest first.
    pub messages: Vec<Message>,
    /// Descriptions of the contents that could not be read, for the user; empty if the session is
    /// intact.
    pub damage: Vec<String>,
}

impl StoredSession {
    /// True if the session remains after it is closed: it has a message, or a title chosen by the
    /// user.
    pub fn is_lasting(&self) -> bool {
        !self.messages.is_empty() || self.record.title_source == TitleSource::User
    }
}

/// Options for reading a session.
#[derive(Debug, Default)]
pub struct LoadOptions {
    /// True to leave out the results of calls that no model will see: see
    /// [`Store::load_without_old_results`].
    pub without_old_results: bool,
    /// The record to use if a damaged file has none and the index has lost it, so that the session
    /// can be continued.
    pub fallback_record: Option<Box<Record>>,
    /// Receives the first messages as soon as they are read. Nothing is sent if one of them has
    /// changed since it was first written, or if the backend cannot read them separately. A part
    /// that was written long after its message may be missing.
    pub first_messages: Option<oneshot::Sender<StoredSession>>,
}

/// A permission that is stored because the user chose "always".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The key of the project.
    pub project: String,
    /// The agent that it was granted to.
    pub agent: String,
    /// The name of the permission, such as `bash`.
    pub permission: String,
    /// The pattern that the user was shown.
    pub pattern: String,
    pub granted_at: Timestamp,
}

/// The grants of one project, or of all projects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredGrants {
    pub grants: Vec<Grant>,
    /// The path of a damaged index whose grants could not be read, if this has not been reported
    /// yet.
    pub damaged_index: Option<String>,
}

/// The state of the backend, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendState {
    /// The name of the kind of storage.
    pub kind: &'static str,
    /// A directory, or an address without its password.
    pub location: String,
    /// Further facts, for display.
    pub details: Vec<String>,
    /// The reason why nothing can be saved at the moment; `None` if saving works.
    pub problem: Option<String>,
}

/// The capacity of the job queue. A backend that cannot keep up slows the turn down.
const MAX_WAITING_JOBS: usize = 512;

/// A handle to the store's thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    jobs: Sender<StoreJob>,
    /// True if several machines share the store; set by the first query.
    shared: Arc<OnceLock<bool>>,
    metrics: Arc<StoreMetrics>,
}

impl Store {
    /// Starts a store in files below `dir`. Nothing is opened until it is needed.
    pub fn start(dir: &Path) -> Self {
        let dir = dir.to_path_buf();
        Self::open(move || StoreLocation::Files(dir))
    }

    /// Starts a store at the location that `locate` returns. The store's own thread calls `locate`
    /// and executes the jobs; it ends when the last handle is dropped. Nothing is opened until it
    /// is needed.
    pub fn open(locate: impl FnOnce() -> StoreLocation + Send + 'static) -> Self {
        let (jobs, received) = channel::channel(MAX_WAITING_JOBS);
        let wake = jobs.downgrade();
        let metrics = Arc::<StoreMetrics>::default();
        let counted = metrics.clone();
        let work = move || match locate() {
            StoreLocation::Files(dir) => sqlite::work(dir, received, (wake, counted)),
            StoreLocation::Database(location) => postgres::work(location, received, counted),
        };
        if let Err(e) = std::thread::Builder::new().name("store".into()).spawn(work) {
            tracing::error!("no thread for the store: {e}");
        }
        Self {
            jobs,
            shared: Arc::default(),
            metrics,
        }
    }

    /// Returns the counters of the store.
    pub fn metrics(&self) -> Vec<StoreMetric> {
        self.metrics.read()
    }

    /// Returns the state of the backend.
    ///
    /// # Errors
    /// Returns [`Error::Unwritable`] if the store has stopped.
    pub async fn backend_state(&self) -> Result<BackendState, Error> {
        self.request(|reply| StoreJob::BackendState { reply }).await
    }

    /// Registers a session, and makes this process its owner. Its file is created by the first
    /// input from the user: a message, a title, a mode or an option.
    ///
    /// # Errors
    /// Returns [`Error::Unwritable`].
    pub async fn create(&self, record: &Record) -> Result<(), Error> {
        let record = Box::new(record.clone());
        self.request(|reply| StoreJob::Create { record, reply })
            .await
    }

    /// Writes a session's record. It does not replace a title that the user gave: only
    /// [`RecordChange::Title`] does.
    pub async fn write_record(&self, record: &Record) {
        self.write(&record.id, SessionWrite::Record(Box::new(record.clone())))
            .await;
    }

    /// Changes one aspect of a session's record, in order with the other writes of the session; see
    /// [`Store::change_record`] for a durable change.
    pub async fn queue_record_change(&self, session: &SessionId, change: RecordChange) {
        self.write(session, SessionWrite::Amend(change)).await;
    }

    /// Writes a message without its parts. A message with the same id is replaced.
    pub async fn write_message(&self, session: &SessionId, message: &Message) {
        match serde_json::to_string(message) {
            Ok(json) => {
                self.write(
                    session,
                    SessionWrite::Message {
                        id: message.id.to_string(),
                        json,
                    },
                )
                .await
            }
            Err(e) => tracing::error!("message {} cannot be written as JSON: {e}", message.id),
        }
    }

    /// Removes a message and all later ones.
    pub async fn truncate_from(&self, session: &SessionId, from: &MessageId) {
        self.write(
            session,
            SessionWrite::Cut {
                from: from.to_string(),
            },
        )
        .await;
    }

    /// Writes a part. A part with the same id is replaced.
    pub async fn write_part(&self, session: &SessionId, message: &MessageId, part: &Part) {
        self.write_part_with(session, message, part, false).await;
    }

    /// Writes a part that a longer one with the same id will replace soon.
    pub async fn write_growing_part(&self, session: &SessionId, message: &MessageId, part: &Part) {
        self.write_part_with(session, message, part, true).await;
    }

    async fn write_part_with(
        &self,
        session: &SessionId,
        message: &MessageId,
        part: &Part,
        is_growing: bool,
    ) {
        let id = part.id.to_string();
        let message = message.to_string();
        // A large part is not serialized on the thread that reads messages.
        let json = if part.is_large() {
            let part = part.clone();
            base::task::poll_on_blocking_threads(async move { PartJson::of(&part) }).await
        } else {
            PartJson::of(part)
        };
        match json {
            Ok(json) => {
                let part = SessionWrite::Part {
                    id,
                    message,
                    json,
                    is_growing,
                };
                self.write(session, part).await
            }
            Err(e) => tracing::error!("part {id} cannot be written as JSON: {e}"),
        }
    }

    /// Waits until everything written about a session so far has been passed to the operating
    /// system: it survives the end of this process, though not a crash of the machine. The next
    /// flush reports failed writes.
    pub async fn await_written(&self, session: &SessionId) {
        let session = session.clone();
        // A store that has stopped has nothing to write.
        self.request(|reply| StoreJob::AwaitWritten { session, reply })
            .await
            .ok();
    }

    /// Waits until everything written about a session so far is on the disk.
    ///
    /// # Errors
    /// Returns the first failure of a write since the last flush.
    pub async fn flush(&self, session: &SessionId) -> Result<(), Error> {
        let session = session.clone();
        let began = Instant::now();
        let flushed = self
            .request(|reply| StoreJob::Flush { session, reply })
            .await;
        self.metrics.count_flush(began.elapsed(), flushed.is_err());
        flushed
    }

    /// Reads a session, and holds it open for this process.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn load(&self, session: &SessionId) -> Result<StoredSession, Error> {
        self.load_with(session, LoadOptions::default())
            .await
            .map(|(stored, _)| stored)
    }

    /// Like [`Store::load`], but leaves out the results of calls that no model will see: those
    /// that the last compaction replaced by a summary. Also returns the number of leading
    /// messages whose results were left out.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn load_without_old_results(
        &self,
        session: &SessionId,
    ) -> Result<(StoredSession, usize), Error> {
        self.load_with(
            session,
            LoadOptions {
                without_old_results: true,
                ..LoadOptions::default()
            },
        )
        .await
    }

    /// Like [`Store::load`], with options. Also returns the number of messages at the beginning
    /// that lack the results of their calls.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn load_with(
        &self,
        session: &SessionId,
        options: LoadOptions,
    ) -> Result<(StoredSession, usize), Error> {
        let session = session.clone();
        self.request(|reply| StoreJob::Load {
            session,
            options,
            reply,
        })
        .await
    }

    /// Reads the given parts of a session completely. Unreadable parts are left out.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn read_parts(
        &self,
        session: &SessionId,
        ids: Vec<PartId>,
    ) -> Result<Vec<Part>, Error> {
        let session = session.clone();
        self.request(|reply| StoreJob::Parts {
            session,
            ids,
            reply,
        })
        .await
    }

    /// Reads the present state of a session without changing or locking it, even if another process
    /// has it open.
    ///
    /// # Errors
    /// Returns any [`Error`] except [`Error::Locked`].
    pub async fn peek(&self, session: &SessionId) -> Result<StoredSession, Error> {
        let session = session.clone();
        self.request(|reply| StoreJob::Peek { session, reply })
            .await
    }

    /// True if the session exists. Does not open it.
    ///
    /// # Errors
    /// Returns [`Error::Unwritable`] if no index is available.
    pub async fn contains(&self, session: &SessionId) -> Result<bool, Error> {
        let session = session.clone();
        self.request(|reply| StoreJob::Contains { session, reply })
            .await
    }

    /// Reads a session like [`Store::peek`], one message at a time. The whole session is in memory
    /// only if another program writes to it, if it is open here, or if it is in a database.
    ///
    /// # Errors
    /// Returns any [`Error`] except [`Error::Locked`].
    pub async fn stream(&self, session: &SessionId) -> Result<StreamedSession, Error> {
        let session = session.clone();
        self.request(|reply| StoreJob::Stream { session, reply })
            .await
    }

    /// Stores a complete session under its id, which must be free; see [`forked`] and [`renamed`].
    /// The store's thread reads the messages one at a time, so the feed must not wait for an answer
    /// of this store.
    ///
    /// # Errors
    /// Returns [`Error::AlreadyExists`], [`Error::Unwritable`], or the error that ends the feed. Nothing is
    /// stored then.
    pub async fn import(&self, feed: impl Into<StreamedSession>) -> Result<(), Error> {
        let feed = Box::new(feed.into());
        self.request(|reply| StoreJob::Import {
            feed,
            original: None,
            reply,
        })
        .await
    }

    /// Like [`Store::import`], for a copy of a session: the changes of the original can be undone
    /// in it too.
    ///
    /// # Errors
    /// See [`Store::import`].
    pub async fn import_copy(
        &self,
        feed: StreamedSession,
        original: &SessionId,
    ) -> Result<(), Error> {
        let feed = Box::new(feed);
        let original = Some(original.clone());
        self.request(|reply| StoreJob::Import {
            feed,
            original,
            reply,
        })
        .await
    }

    /// Sets the title that the user chose, durably.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn rename(&self, session: &SessionId, title: &str) -> Result<Record, Error> {
        self.change_record(session, RecordChange::Title(title.to_owned()))
            .await
    }

    /// Changes a session's record durably and returns the new record. The session need not be open
    /// here.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn change_record(
        &self,
        session: &SessionId,
        change: RecordChange,
    ) -> Result<Record, Error> {
        let session = session.clone();
        self.request(|reply| StoreJob::Change {
            session,
            change,
            reply,
        })
        .await
    }

    /// Returns the sessions that a session delegated to.
    ///
    /// # Errors
    /// Returns [`Error::Unwritable`] if no index is available.
    pub async fn children(&self, session: &SessionId) -> Result<Vec<SessionId>, Error> {
        let session = session.clone();
        self.request(|reply| StoreJob::Children { session, reply })
            .await
    }

    /// Deletes a session and its children. An unknown session is not an error.
    ///
    /// # Errors
    /// Returns [`Error::Locked`] and [`Error::Unwritable`].
    pub async fn delete(&self, session: &SessionId) -> Result<(), Error> {
        let session = session.clone();
        self.request(|reply| StoreJob::Delete { session, reply })
            .await
    }

    /// Closes a session that has ended, like [`Store::close`], and deletes it if it has no message
    /// and no title chosen by the user. Returns true if it was deleted.
    ///
    /// # Errors
    /// Returns any [`Error`]. The session is closed in any case.
    pub async fn close_and_delete_if_empty(&self, session: &SessionId) -> Result<bool, Error> {
        let session = session.clone();
        self.request(|reply| StoreJob::CloseAndDeleteIfEmpty { session, reply })
            .await
    }

    /// Returns the sessions that have no message according to the index, and no title of their
    /// users: the remains of killed processes. [`Store::delete_if_not_open`] checks before it
    /// deletes one.
    ///
    /// # Errors
    /// Returns [`Error::Unwritable`] if no index is available.
    pub async fn empty_sessions(&self) -> Result<Vec<Record>, Error> {
        self.request(|reply| StoreJob::EmptySessions { reply })
            .await
    }

    /// Deletes a session that is not open in this process, and its children. With `only_if_empty`,
    /// a session that has a message or a title chosen by the user is kept. Returns true if the
    /// session was deleted.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn delete_if_not_open(
        &self,
        session: &SessionId,
        only_if_empty: bool,
    ) -> Result<bool, Error> {
        let session = session.clone();
        self.request(|reply| StoreJob::DeleteIfNotOpen {
            session,
            only_if_empty,
            reply,
        })
        .await
    }

    /// Closes a session's file. Once this returns, another process can open it.
    pub async fn close(&self, session: &SessionId) {
        let session = session.clone();
        // A store that has stopped holds no file.
        self.request(|reply| StoreJob::Close { session, reply })
            .await
            .ok();
    }

    /// Writes everything that is pending, closes every file, and ends the thread. Later calls fail.
    pub async fn stop(&self) {
        let (reply, stopped) = oneshot::channel();
        if self.jobs.put(StoreJob::Stop { reply }) {
            // If the thread ends without an answer, it has stopped as well.
            stopped.await.ok();
        }
    }

    /// Asks the owner of a session to release it. Returns the time that this may take; `None`
    /// if the owner cannot be notified: it runs on another machine with files of its own, or has
    /// ended.
    pub async fn request_takeover(
        &self,
        holder: &LockHolder,
        session: &SessionId,
    ) -> Option<Duration> {
        let holder = holder.clone();
        let session = session.clone();
        self.request(|reply| StoreJob::RequestRelease {
            holder,
            session,
            reply,
        })
        .await
        .ok()?
    }

    /// Receives the requests of other processes for sessions that are open here, from now on. Only
    /// one handle of the store can do so.
    ///
    /// # Errors
    /// Returns an error if requests cannot be received.
    pub async fn receive_takeover_requests(&self) -> Result<TakeoverRequests, Error> {
        let source = self.request(|reply| StoreJob::Requests { reply }).await?;
        TakeoverRequests::listen(source).map_err(|e| Error::Unwritable(e.to_string()))
    }

    /// Searches the sessions of `query`, ignoring the query's limit, for words: all of them must be
    /// in one message or in the title, in any case. Returns at most `limit` hits, the newest first.
    /// Waits until the list has all sessions.
    ///
    /// # Errors
    /// See [`Store::list`].
    pub async fn search(
        &self,
        query: ListQuery,
        words: &str,
        limit: usize,
    ) -> Result<SearchPage, Error> {
        let query = Box::new(query);
        let found = self.search_once(query.clone(), words, limit).await;
        let Err(Error::DamagedIndex(_)) = found else {
            return found;
        };
        // The scan finds the damage as well.
        self.wait_until_filled().await?;
        self.search_once(query, words, limit).await
    }

    async fn search_once(
        &self,
        query: Box<ListQuery>,
        words: &str,
        limit: usize,
    ) -> Result<SearchPage, Error> {
        let words = words.to_owned();
        self.request(|reply| StoreJob::Search {
            query,
            words,
            limit,
            reply,
        })
        .await
        .map_err(Error::into_list_error)
    }

    /// Returns the most recently chosen models of a project, the newest first.
    pub async fn recent_models(&self, project: &str) -> Vec<ModelRef> {
        let project = project.to_owned();
        let read = self
            .request(|reply| StoreJob::RecentModels { project, reply })
            .await;
        read.unwrap_or_else(|e| {
            tracing::warn!("the most recently chosen models are unknown: {e}");
            Vec::new()
        })
    }

    /// Stores the models chosen last in a project, the newest first.
    ///
    /// # Errors
    /// Returns [`Error::Unwritable`]; the stored models are then unchanged.
    pub async fn set_recent_models(
        &self,
        project: &str,
        models: Vec<ModelRef>,
    ) -> Result<(), Error> {
        let project = project.to_owned();
        self.request(|reply| StoreJob::SetRecentModels {
            project,
            models,
            reply,
        })
        .await
    }

    /// Returns the grants of a project. A loss of grants is reported only once.
    ///
    /// # Errors
    /// Returns [`Error::Unwritable`] if no index is available.
    pub async fn grants(&self, project: &str) -> Result<StoredGrants, Error> {
        let project = project.to_owned();
        self.request(|reply| StoreJob::Grants {
            project: Some(project),
            reply,
        })
        .await
    }

    /// Returns the grants of all projects. A loss of grants is left for [`Store::grants`] to
    /// report.
    ///
    /// # Errors
    /// Returns [`Error::Unwritable`] if no index is available.
    pub async fn all_grants(&self) -> Result<StoredGrants, Error> {
        self.request(|reply| StoreJob::Grants {
            project: None,
            reply,
        })
        .await
    }

    /// Deletes a grant.
    ///
    /// # Errors
    /// Returns [`Error::Unwritable`].
    pub async fn revoke(&self, grant: &Grant) -> Result<(), Error> {
        let grant = Box::new(grant.clone());
        self.request(|reply| StoreJob::Revoke { grant, reply })
            .await
    }

    /// Stores a grant.
    ///
    /// # Errors
    /// Returns [`Error::Unwritable`].
    pub async fn add_grant(&self, grant: &Grant) -> Result<(), Error> {
        let grant = Box::new(grant.clone());
        self.request(|reply| StoreJob::Grant { grant, reply }).await
    }

    async fn write(&self, session: &SessionId, entry: SessionWrite) {
        let job = StoreJob::Write {
            session: session.clone(),
            entry,
        };
        if !self.jobs.send(job).await {
            tracing::error!("the store is gone; session {session} is no longer saved");
        }
    }

    async fn request<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> StoreJob,
    ) -> Result<T, Error> {
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
