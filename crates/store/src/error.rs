//! Errors of the store.

use super::LockHolder;
use base::id::SessionId;

/// A failure of the store, for the log, and for the user if a session is unavailable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("there is no session {0}")]
    NotFound(SessionId),
    #[error("session {id} is open in {holder}; close it there first")]
    Locked { id: SessionId, holder: LockHolder },
    /// A session cannot be imported under an id that is in use.
    #[error("there is a session {0} already")]
    Taken(SessionId),
    /// The import could not be read to its end.
    #[error("{0}")]
    Source(String),
    /// The file was changed while it was read a message at a time.
    #[error("the session was changed while it was read; try again: {0}")]
    Changed(String),
    /// The file cannot be read as a session.
    #[error("the file of session {id} is damaged ({reason}); it was left as it is: {path}")]
    Damaged {
        id: SessionId,
        reason: String,
        path: String,
    },
    #[error(
        "session {id} was written by a newer adjutant (format {found}, this one knows {known}); update adjutant to open it"
    )]
    Newer {
        id: SessionId,
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// The index cannot be read; it is rebuilt from the sessions.
    #[error("the session index is damaged ({0})")]
    DamagedIndex(String),
    #[error(
        "the session index was written by a newer adjutant (format {found}, this one knows {known}); update adjutant"
    )]
    NewerIndex {
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// The process has reached its limit of open files.
    #[error(
        "the {share} files that this process may open for sessions are in use: {own} by the {open} sessions that are open here, {others} by MCP servers, language servers, plugins, background jobs and other users; close some of them, or raise the limit of {limit} open files (ulimit -n)"
    )]
    TooMany {
        open: usize,
        /// The files of these sessions.
        own: u64,
        /// The other files in the share of sessions.
        others: u64,
        share: u64,
        /// The number of files that the system allows this process.
        limit: u64,
    },
    /// The file was removed or replaced while it was open here.
    #[error(
        "the session's file was removed or replaced while it was in use: earlier messages are lost, and new ones are saved: {0}"
    )]
    Removed(String),
    #[error(
        "the store's database was written by a newer adjutant (format {found}, this one knows {known}); update adjutant"
    )]
    NewerDatabase {
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// The database is unreachable; pending writes wait in memory.
    #[error(
        "the database cannot be reached ({0}); the conversation continues in memory and is saved when the database is back"
    )]
    Unreachable(String),
    /// The database has been unreachable for longer than the settings allow, or too many writes are
    /// pending.
    #[error("the database has been unreachable for too long ({0}); newer messages are not saved")]
    OutageTooLong(String),
    /// Another process took the session over because this one had not renewed its lease.
    #[error("session {0} was taken over by another process; newer messages here are not saved")]
    TakenOver(SessionId),
    /// The files of one machine have no queue of prompts.
    #[error("prompts can be queued only in a database: set store.url in your settings")]
    NoQueue,
    /// The sessions could not be determined.
    #[error("the sessions could not be listed: {0}")]
    Unlisted(String),
    /// The session could not be written: a full disk, a read-only directory.
    #[error("the session could not be saved: {0}")]
    Unwritable(String),
}

impl Error {
    /// Converts an error of saving into the corresponding error of listing.
    pub(super) fn of_list(self) -> Self {
        match self {
            Self::Unwritable(reason) => Self::Unlisted(reason),
            Self::Unreachable(reason) | Self::OutageTooLong(reason) => {
                Self::Unlisted(format!("the database cannot be reached ({reason})"))
            }
            other => other,
        }
    }
}
