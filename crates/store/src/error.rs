//! Errors of the store.

use super::LockHolder;
use base::id::SessionId;

/// A failure of the store. Its text goes to the log, and to the user if a session is unavailable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("there is no session {0}")]
    NotFound(SessionId),
    #[error("session {id} is open in {holder}; close it there first")]
    Locked { id: SessionId, holder: LockHolder },
    /// A session cannot be imported under an id that is in use.
    #[error("session {0} already exists")]
    AlreadyExists(SessionId),
    /// The import could not be read to its end.
    #[error("{0}")]
    ImportUnreadable(String),
    /// The file was changed while it was being read message by message.
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
    /// The sessions have used up their share of the files that this process may open.
    #[error(
        "the {share} files that this process may open for sessions are in use: {session_files} by the {open} sessions that are open here, {other_files} by MCP servers, language servers, plugins, background jobs and the sessions of other users; close some sessions, or raise the limit of {limit} open files (ulimit -n)"
    )]
    TooManyOpenFiles {
        open: usize,
        /// The files of these sessions.
        session_files: u64,
        /// The other files in the share of sessions.
        other_files: u64,
        /// The files that sessions may have open together.
        share: u64,
        /// The number of files that the system allows this process.
        limit: u64,
    },
    /// The file was removed or replaced while it was open here.
    #[error(
        "the session's file was removed or replaced while it was in use: earlier messages are lost; new ones are saved to a new file: {0}"
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
    /// Only a database has a queue of prompts.
    #[error("prompts can be queued only in a database: set store.url in your settings")]
    NoQueue,
    /// The sessions could not be listed.
    #[error("the sessions could not be listed: {0}")]
    ListFailed(String),
    /// The session could not be written (a full disk, a read-only directory), or the store refused
    /// the operation.
    #[error("the session could not be saved: {0}")]
    Unwritable(String),
}

impl Error {
    /// Converts an error of saving into the corresponding error of listing.
    pub(super) fn into_list_error(self) -> Self {
        match self {
            Self::Unwritable(reason) => Self::ListFailed(reason),
            Self::Unreachable(reason) | Self::OutageTooLong(reason) => {
                Self::ListFailed(format!("the database cannot be reached ({reason})"))
            }
            other => other,
        }
    }
}
