//! The place where sessions are stored: files on this machine, or a database that processes on
//! other machines share.

use std::path::PathBuf;
use std::time::Duration;

/// The place where sessions are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// Files below a directory.
    Files(PathBuf),
    /// A database that processes on other machines share.
    Database(DatabaseLocation),
}

/// Limits on how long a conversation may continue while the database is unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutageLimits {
    /// The maximum amount of unwritten data of all sessions of the process.
    pub bytes: usize,
    pub time: Duration,
}

impl Default for OutageLimits {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            time: Duration::from_secs(10 * 60),
        }
    }
}

/// A database that stores sessions.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseLocation {
    /// `postgres://user:password@host/database`, with libpq's parameters `sslmode`, `sslrootcert`,
    /// `connect_timeout`, and adjutant's own, `namespace` and `lease`.
    pub url: String,
    /// The schema that contains the tables.
    pub namespace: String,
    /// The owner of the sessions, if each user has a schema, which is named after the namespace and
    /// a digest of the user.
    pub user: Option<String>,
    /// The time after which a silent process is considered dead.
    pub lease: Duration,
    pub outage_limits: OutageLimits,
}

impl std::fmt::Debug for DatabaseLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatabasePlace")
            .field("url", &self.shown())
            .field("namespace", &self.namespace)
            .finish()
    }
}

impl DatabaseLocation {
    /// The schema if the address names none.
    pub const NAMESPACE: &'static str = "adjutant";
    /// The time after which a silent process is considered dead, if the address names none.
    pub const LEASE_TIMEOUT: Duration = Duration::from_secs(5);

    /// Returns the database at an address, with the defaults for everything else. The parameters of
    /// the address are not read.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.into(),
            namespace: Self::NAMESPACE.into(),
            user: None,
            lease: Self::LEASE_TIMEOUT,
            outage_limits: OutageLimits::default(),
        }
    }

    /// Returns the address without its password and parameters.
    pub fn shown(&self) -> String {
        let Some((scheme, rest)) = self.url.split_once("://") else {
            return "not an address".into();
        };
        let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
        let rest = match rest.rsplit_once('@') {
            Some((user, host)) => format!(
                "{}@{host}",
                user.split_once(':').map_or(user, |(user, _)| user)
            ),
            None => rest.to_owned(),
        };
        format!("{scheme}://{rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_not_displayed() {
        let table = [
            ("postgres://u:secret@h/d?x=secret", "postgres://u@h/d"),
            ("postgres://h:5432/d", "postgres://h:5432/d"),
            ("postgres://u:se@cret@h/d", "postgres://u@h/d"),
            ("secret", "not an address"),
        ];
        for (url, shown) in table {
            let location = DatabaseLocation::new(url);
            assert_eq!(location.shown(), shown);
            assert!(!format!("{location:?}").contains("cret"));
        }
    }
}
