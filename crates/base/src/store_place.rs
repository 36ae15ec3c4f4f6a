//! Where sessions are stored: files on this machine, or a database that processes on other machines share.

use std::path::PathBuf;
use std::time::Duration;

/// Where sessions are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorePlace {
    /// In files below a directory.
    Files(PathBuf),
    /// In a database, which processes on other machines share.
    Database(DatabasePlace),
}

/// How long a conversation may go on while the database is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwayLimits {
    /// What may wait to be written, of all sessions of the process.
    pub bytes: usize,
    pub time: Duration,
}

impl Default for AwayLimits {
    fn default() -> Self {
        Self { bytes: 64 << 20, time: Duration::from_secs(10 * 60) }
    }
}

/// A database that keeps sessions.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabasePlace {
    /// `postgres://user:password@host/database`, with libpq's parameters `sslmode`, `sslrootcert`, `connect_timeout`
    /// and ours: `namespace`, `lease`.
    pub url: String,
    /// The schema that holds the tables.
    pub namespace: String,
    /// Whose sessions they are, where users have a schema each: the namespace's name, and a digest of theirs.
    pub user: Option<String>,
    /// How long a process that is not heard of is taken to be alive.
    pub lease: Duration,
    pub away: AwayLimits,
}

impl std::fmt::Debug for DatabasePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatabasePlace").field("url", &self.shown()).field("namespace", &self.namespace).finish()
    }
}

impl DatabasePlace {
    pub const NAMESPACE: &'static str = "adjutant";
    pub const LEASE: Duration = Duration::from_secs(5);

    pub fn new(url: &str) -> Self {
        Self {
            url: url.into(),
            namespace: Self::NAMESPACE.into(),
            user: None,
            lease: Self::LEASE,
            away: AwayLimits::default(),
        }
    }

    /// The address without its password.
    pub fn shown(&self) -> String {
        let Some((scheme, rest)) = self.url.split_once("://") else { return "not an address".into() };
        let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
        let rest = match rest.rsplit_once('@') {
            Some((user, host)) => format!("{}@{host}", user.split_once(':').map_or(user, |(user, _)| user)),
            None => rest.to_owned(),
        };
        format!("{scheme}://{rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let table = [
            ("postgres://u:secret@h/d?x=secret", "postgres://u@h/d"),
            ("postgres://h:5432/d", "postgres://h:5432/d"),
            ("postgres://u:se@cret@h/d", "postgres://u@h/d"),
            ("secret", "not an address"),
        ];
        for (url, shown) in table {
            let place = DatabasePlace::new(url);
            assert_eq!(place.shown(), shown);
            assert!(!format!("{place:?}").contains("cret"));
        }
    }
}
