//! How the store fails.

use super::LockHolder;
use base::id::SessionId;

/// For the log, and for the user where a session cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such session.
    #[error("there is no session {0}")]
    NotFound(SessionId),
    /// Another process has the session open.
    #[error("session {id} is open in {holder}; close it there first")]
    Locked { id: SessionId, holder: LockHolder },
    /// A session cannot be imported under an id that is in use.
    #[error("there is a session {0} already")]
    Taken(SessionId),
    /// The import could not be read to its end.
    #[error("{0}")]
    Source(String),
    /// A session's file was written to while it was read a message at a time.
    #[error("the session was changed while it was read; try again: {0}")]
    Changed(String),
    /// The file cannot be read as a session.
    #[error("the file of session {id} is damaged ({reason}); it was left as it is: {path}")]
    Damaged { id: SessionId, reason: String, path: String },
    /// The file was written by a newer adjutant.
    #[error(
        "session {id} was written by a newer adjutant (format {found}, this one knows {known}); update adjutant to open it"
    )]
    Newer {
        id: SessionId,
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// The index cannot be read; it is made again from the sessions.
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
    /// This process may have no more files open.
    #[error(
        "{open} sessions are open here, and the system allows this process {files} files; close some sessions, or raise the limit (ulimit -n)"
    )]
    TooMany { open: usize, files: u64 },
    /// Somebody removed the file, or put another in its place, while it was open here.
    #[error(
        "the session's file was removed or replaced while it was in use: what was said before is lost with it, and what comes from now on is kept: {0}"
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
    /// The database cannot be reached: what is to be written waits in memory.
    #[error("the database is away ({0}); the conversation goes on in memory and is saved when it is back")]
    Away(String),
    /// The database has been away for longer, or more waits for it, than the settings allow.
    #[error("the database has been away for too long ({0}); what was said since it went is not saved")]
    AwayTooLong(String),
    /// Another process took the session while this one did not show that it is alive.
    #[error("session {0} was taken over by another process; what was said here since is not saved")]
    TakenOver(SessionId),
    /// The sessions there are could not be found out.
    #[error("the sessions could not be listed: {0}")]
    Unlisted(String),
    /// It could not be written: a full disk, a read-only directory.
    #[error("the session could not be saved: {0}")]
    Unwritable(String),
}

impl Error {
    /// The same failure for whoever lists sessions, where nothing is to be saved.
    pub(super) fn of_list(self) -> Self {
        match self {
            Self::Unwritable(reason) => Self::Unlisted(reason),
            Self::Away(reason) | Self::AwayTooLong(reason) => {
                Self::Unlisted(format!("the database is away ({reason})"))
            }
            other => other,
        }
    }
}
