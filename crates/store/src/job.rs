//! The interface between the store and its backends. A backend executes these jobs: those of one
//! session in order, each answered through its reply channel, and none left unanswered while the
//! backend lives. Nothing else passes between a backend and the rest of the program.

use tokio::sync::{mpsc, oneshot};

use super::fleet::FleetJob;
use super::write::SessionWrite;
use super::{
    BackendState, Error, Grant, ListQuery, LoadOptions, LockHolder, Record, RecordChange,
    ReplySender, SearchPage, SessionPage, StoredGrants, StoredSession, StreamedSession,
};
use base::id::{PartId, SessionId};
use std::path::PathBuf;
use std::time::Duration;
use transcript::{ModelRef, Part};

/// A request of another process to the one that has a session open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerRequest {
    /// Requests the session's release, or reports that it has been taken over already.
    TakeOver(SessionId),
    /// Requests the end of the running turn.
    Cancel(SessionId),
}

/// The source of the requests of other processes to this one.
#[derive(Debug)]
pub(super) enum RequestSource {
    /// A pipe below the directory.
    Pipe(PathBuf),
    /// A channel from the database thread, which receives the requests.
    Channel(mpsc::UnboundedReceiver<OwnerRequest>),
}

/// Sends an answer. The receiver may have been cancelled.
pub(super) fn answer<T, E: Into<Error>>(reply: ReplySender<T>, answer: Result<T, E>) {
    drop(reply.send(answer.map_err(Into::into)));
}

/// A job for the backend. Each one except `Write`, `DeleteOrphans` and `Wake` has a reply channel.
pub(super) enum StoreJob {
    /// Registers a session, and makes this process its owner.
    Create {
        record: Box<Record>,
        reply: ReplySender<()>,
    },
    /// Queues one write of a session. Failures are reported by the next `Flush`.
    Write {
        session: SessionId,
        entry: SessionWrite,
    },
    /// Waits until the writes of a session are on the disk.
    Flush {
        session: SessionId,
        reply: ReplySender<()>,
    },
    Load {
        session: SessionId,
        options: LoadOptions,
        reply: ReplySender<(StoredSession, usize)>,
    },
    Parts {
        session: SessionId,
        ids: Vec<PartId>,
        reply: ReplySender<Vec<Part>>,
    },
    Peek {
        session: SessionId,
        reply: ReplySender<StoredSession>,
    },
    /// Returns true if the session exists.
    Contains {
        session: SessionId,
        reply: ReplySender<bool>,
    },
    /// Reads a session one message at a time.
    Stream {
        session: SessionId,
        reply: ReplySender<StreamedSession>,
    },
    Import {
        feed: Box<StreamedSession>,
        /// The session from which it was copied, if it is a copy.
        original: Option<SessionId>,
        reply: ReplySender<()>,
    },
    Change {
        session: SessionId,
        change: RecordChange,
        reply: ReplySender<Record>,
    },
    Children {
        session: SessionId,
        reply: ReplySender<Vec<SessionId>>,
    },
    List {
        query: Box<ListQuery>,
        reply: ReplySender<SessionPage>,
    },
    /// Returns the listed sessions whose ids begin with `beginning`.
    Beginning {
        beginning: String,
        limit: usize,
        reply: ReplySender<Vec<SessionId>>,
    },
    /// Returns the listed sessions next to these in the order of their ids.
    Neighbours {
        sessions: Vec<SessionId>,
        reply: ReplySender<Vec<SessionId>>,
    },
    /// Waits until the list has all sessions.
    Filled {
        reply: ReplySender<()>,
    },
    /// Deletes the children of a session that was deleted while its children were unknown.
    DeleteOrphans {
        session: SessionId,
    },
    Delete {
        session: SessionId,
        reply: ReplySender<()>,
    },
    Close {
        session: SessionId,
        reply: ReplySender<()>,
    },
    /// Closes a session, and deletes it if it is empty. Returns true if it was deleted.
    CloseAndDeleteIfEmpty {
        session: SessionId,
        reply: ReplySender<bool>,
    },
    DeleteIfNotOpen {
        session: SessionId,
        only_if_empty: bool,
        reply: ReplySender<bool>,
    },
    EmptySessions {
        reply: ReplySender<Vec<Record>>,
    },
    Grants {
        project: Option<String>,
        reply: ReplySender<StoredGrants>,
    },
    Grant {
        grant: Box<Grant>,
        reply: ReplySender<()>,
    },
    Revoke {
        grant: Box<Grant>,
        reply: ReplySender<()>,
    },
    /// Waits until the writes of a session have been passed to the operating system.
    AwaitWritten {
        session: SessionId,
        reply: ReplySender<()>,
    },
    Search {
        query: Box<ListQuery>,
        words: String,
        limit: usize,
        reply: ReplySender<SearchPage>,
    },
    /// Requests a holder to release a session. Returns the time that this may take; `None` if the
    /// holder cannot be notified.
    RequestRelease {
        holder: LockHolder,
        session: SessionId,
        reply: ReplySender<Option<Duration>>,
    },
    /// Returns the source of other processes' requests for the sessions of this one.
    Requests {
        reply: ReplySender<RequestSource>,
    },
    /// Returns the state of the backend, for display.
    BackendState {
        reply: ReplySender<BackendState>,
    },
    /// Returns the models chosen last in a project, the newest first.
    RecentModels {
        project: String,
        reply: ReplySender<Vec<ModelRef>>,
    },
    SetRecentModels {
        project: String,
        models: Vec<ModelRef>,
        reply: ReplySender<()>,
    },
    /// True if several machines share this store.
    Shared {
        reply: ReplySender<bool>,
    },
    /// Returns the named contents of a session that are stored.
    Contents {
        session: SessionId,
        names: Vec<String>,
        reply: ReplySender<Vec<(String, Vec<u8>)>>,
    },
    /// Returns the decision about a project's own settings, or stores it if there is an `entry`.
    Trust {
        project: String,
        entry: Option<String>,
        reply: ReplySender<Option<String>>,
    },
    Fleet(FleetJob),
    Wake,
    Stop {
        reply: oneshot::Sender<()>,
    },
}

impl StoreJob {
    /// Answers the jobs about shared data for a store of one machine, which stores that data
    /// elsewhere.
    pub(super) fn answer_alone(self) {
        match self {
            Self::Shared { reply } => answer(reply, Ok::<_, Error>(false)),
            Self::Contents { reply, .. } => answer(reply, Ok::<_, Error>(Vec::new())),
            Self::Trust { reply, .. } => answer(reply, Ok::<_, Error>(None)),
            Self::Fleet(ask) => ask.refuse(),
            _ => {}
        }
    }

    /// Returns the jobs that it must wait for.
    pub(super) fn scope(&self) -> JobScope {
        match self {
            Self::Create { record, .. } => JobScope::Session(record.id.clone()),
            Self::Import { feed, .. } => JobScope::Session(feed.record.id.clone()),
            Self::Write { session, .. }
            | Self::Flush { session, .. }
            | Self::Load { session, .. }
            | Self::Parts { session, .. }
            | Self::Peek { session, .. }
            | Self::Stream { session, .. }
            | Self::Contains { session, .. }
            | Self::Change { session, .. }
            | Self::AwaitWritten { session, .. }
            | Self::Contents { session, .. }
            | Self::CloseAndDeleteIfEmpty { session, .. }
            | Self::Close { session, .. } => JobScope::Session(session.clone()),
            Self::Grants { .. }
            | Self::Grant { .. }
            | Self::Revoke { .. }
            | Self::Search { .. }
            | Self::RequestRelease { .. }
            | Self::Requests { .. }
            | Self::BackendState { .. }
            | Self::Filled { .. }
            | Self::RecentModels { .. }
            | Self::SetRecentModels { .. }
            | Self::Shared { .. }
            | Self::Trust { .. }
            | Self::Fleet(_)
            | Self::Wake => JobScope::None,
            Self::Children { .. }
            | Self::List { .. }
            | Self::Beginning { .. }
            | Self::Neighbours { .. }
            | Self::EmptySessions { .. }
            | Self::DeleteIfNotOpen { .. }
            | Self::Delete { .. }
            | Self::DeleteOrphans { .. }
            | Self::Stop { .. } => JobScope::All,
        }
    }
}

/// The sessions that a job concerns: it is executed after all earlier jobs of one session, of none,
/// or of all.
pub(super) enum JobScope {
    Session(SessionId),
    None,
    All,
}
