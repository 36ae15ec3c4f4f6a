//! Where sessions are kept, as the user says: a project has no say in it.

use std::path::PathBuf;
use std::time::Duration;

use super::file::StoreConfig;
use crate::environment::Environment;
use crate::store::{AwayLimits, DatabasePlace, Store, StorePlace};
use crate::worktree::Worktree;

/// The user's sessions. The settings are read by the store's own thread.
pub fn store(environment: &Environment) -> Store {
    let environment = environment.clone();
    Store::open(move || place(&environment))
}

/// The sessions of one of the users of a process that serves many: nobody else's are seen in it.
pub fn store_of(environment: &Environment, user: &str) -> Store {
    let (environment, user) = (environment.clone(), user.to_owned());
    Store::open(move || match place(&environment) {
        StorePlace::Files(dir) => StorePlace::Files(dir.join("users").join(user)),
        StorePlace::Database(place) => StorePlace::Database(DatabasePlace { user: Some(user), ..place }),
    })
}

/// Where they are. Reads files, and blocks while it does.
fn place(environment: &Environment) -> StorePlace {
    let own = environment.home.clone().unwrap_or_else(|| PathBuf::from("/"));
    let worktree = Worktree::find(&own, &[], environment.home.as_deref());
    let database = super::load(environment, &worktree, &own).settings.store;
    database.map_or_else(|| StorePlace::Files(environment.dirs.data.clone()), StorePlace::Database)
}

/// The database that is meant; none where no address is given.
pub(super) fn database(written: &StoreConfig) -> Option<DatabasePlace> {
    let mut place = DatabasePlace::new(written.url.as_deref().map(str::trim).filter(|url| !url.is_empty())?);
    let usual = AwayLimits::default();
    place.namespace = written.namespace.clone().unwrap_or(place.namespace);
    place.lease = written.lease_seconds.map_or(place.lease, Duration::from_secs);
    let bytes = written.away_mib.and_then(|mib| usize::try_from(mib.saturating_mul(1 << 20)).ok());
    let time = written.away_minutes.map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
    place.away = AwayLimits { bytes: bytes.unwrap_or(usual.bytes), time: time.unwrap_or(usual.time) };
    Some(place)
}
