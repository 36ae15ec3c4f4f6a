//! The store of a user's sessions, in the place that the settings name: a project has no say in it.

use std::path::PathBuf;

use base::environment::Environment;
use base::store_place::{DatabasePlace, StorePlace};
use base::worktree::Worktree;
use store::Store;

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
    let database = config::load(environment, &worktree, &own).settings.store;
    database.map_or_else(|| StorePlace::Files(environment.dirs.data.clone()), StorePlace::Database)
}
