//! Opens the store of a user's sessions, at the location that the user's own settings name. They are
//! read outside of any project, so that a project can neither move the store nor delete sessions.

use std::sync::{Arc, OnceLock};

use super::configuration::own_settings;
use base::environment::Environment;
use base::store_location::{DatabaseLocation, StoreLocation};
use store::Store;

/// The user's own settings about stored sessions. The first thread that needs them reads them, and
/// blocks for it.
pub struct StoreSettings {
    environment: Environment,
    read: OnceLock<(Option<DatabaseLocation>, Option<u64>)>,
}

impl StoreSettings {
    pub fn new(environment: &Environment) -> Arc<Self> {
        Arc::new(Self {
            environment: environment.clone(),
            read: OnceLock::new(),
        })
    }

    fn read(&self) -> &(Option<DatabaseLocation>, Option<u64>) {
        self.read.get_or_init(|| {
            let settings = own_settings(&self.environment);
            (settings.store, settings.sessions.keep_days)
        })
    }

    /// Returns the location of the store.
    fn location(&self) -> StoreLocation {
        self.read().0.clone().map_or_else(
            || StoreLocation::Files(self.environment.dirs.data.clone()),
            StoreLocation::Database,
        )
    }

    /// Returns the age in days at which sessions are deleted; `None` if they never are.
    pub fn keep_days(&self) -> Option<u64> {
        self.read().1
    }
}

/// Opens the store of the user's sessions. The store's own thread reads the settings.
pub fn open_store(environment: &Environment) -> Store {
    open_store_with(&StoreSettings::new(environment))
}

/// Opens the store that these settings name.
pub(super) fn open_store_with(settings: &Arc<StoreSettings>) -> Store {
    let settings = settings.clone();
    Store::open(move || settings.location())
}

/// Opens the store of one of the users of a process that serves many; it contains only that user's
/// sessions.
pub(super) fn open_store_of_user(settings: &Arc<StoreSettings>, user: &str) -> Store {
    let settings = settings.clone();
    let user = user.to_owned();
    Store::open(move || match settings.location() {
        StoreLocation::Files(dir) => StoreLocation::Files(dir.join("users").join(user)),
        StoreLocation::Database(location) => StoreLocation::Database(DatabaseLocation {
            user: Some(user),
            ..location
        }),
    })
}
