//! Faults of the database.

use crate::Error;

/// The maximum number of attempts for a statement that conflicts with another transaction.
pub(super) const MAX_ATTEMPTS: usize = 5;

/// The reason why a statement failed. Each variant needs another reaction.
#[derive(Debug, Clone)]
pub(super) enum DatabaseFault {
    /// The database is unreachable, or accepts no writes at the moment.
    Unreachable(String),
    /// The database is reachable, and has no space for the data.
    Full(String),
    /// The statement conflicted with another transaction, and can be retried.
    Again,
    /// Any other failure, for the given reason: retrying does not help.
    Refused(String),
    /// An error that is no fault of the database, such as a session that another process has open.
    Store(Error),
}

impl DatabaseFault {
    /// Returns the bare reason if the fault has one, otherwise the message of its [`Error`].
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Unreachable(reason) | Self::Full(reason) | Self::Refused(reason) => {
                reason.clone()
            }
            Self::Again | Self::Store(_) => Error::from(self.clone()).to_string(),
        }
    }
}

impl From<Error> for DatabaseFault {
    fn from(e: Error) -> Self {
        Self::Store(e)
    }
}

impl From<tokio_postgres::Error> for DatabaseFault {
    fn from(e: tokio_postgres::Error) -> Self {
        let Some(db_error) = e.as_db_error() else {
            let source = std::error::Error::source(&e);
            let broken =
                e.is_closed() || source.is_some_and(|source| source.is::<std::io::Error>());
            let reason = source.map_or_else(|| e.to_string(), |source| format!("{e}: {source}"));
            return if broken {
                Self::Unreachable(reason)
            } else {
                Self::Refused(reason)
            };
        };
        match db_error.code().code() {
            // Serialization failure and deadlock.
            "40001" | "40P01" => Self::Again,
            // 25006 is a standby, which accepts no writes; the others mean that the server ends or
            // starts.
            "25006" | "57P01" | "57P02" | "57P03" => {
                Self::Unreachable(db_error.message().to_owned())
            }
            // The connection is lost, or there are too many.
            code if code.starts_with("08") || code == "53300" => {
                Self::Unreachable(db_error.message().to_owned())
            }
            // The disk or the memory is full.
            code if code.starts_with("53") => Self::Full(db_error.message().to_owned()),
            _ => Self::Refused(db_error.message().to_owned()),
        }
    }
}

impl From<DatabaseFault> for Error {
    fn from(fault: DatabaseFault) -> Self {
        match fault {
            // A full database is treated like an outage: it may have space again later.
            DatabaseFault::Unreachable(reason) | DatabaseFault::Full(reason) => {
                Self::Unreachable(reason)
            }
            DatabaseFault::Again => {
                Self::Unwritable("the database was busy with other changes of the same data".into())
            }
            DatabaseFault::Refused(reason) => Self::Unwritable(reason),
            DatabaseFault::Store(e) => e,
        }
    }
}
