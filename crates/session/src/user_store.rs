//! The store of a user's sessions, at the location that the user's settings name; a project cannot
//! change it.

use super::configuration::own_settings;
use base::environment::Environment;
use base::store_location::{DatabaseLocation, StoreLocation};
use store::Store;

/// Opens the store of the user's sessions. The settings are read by the store's own thread.
pub fn store(environment: &Environment) -> Store {
    let environment = environment.clone();
    Store::open(move || location(&environment))
}

/// Opens the store of one of the users of a process that serves many; it contains only that user's
/// sessions.
pub fn store_of(environment: &Environment, user: &str) -> Store {
    let environment = environment.clone();
    let user = user.to_owned();
    Store::open(move || match location(&environment) {
        StoreLocation::Files(dir) => StoreLocation::Files(dir.join("users").join(user)),
        StoreLocation::Database(location) => StoreLocation::Database(DatabaseLocation {
            user: Some(user),
            ..location
        }),
    })
}

/// Returns the location of the store. Reads files: blocks.
fn location(environment: &Environment) -> StoreLocation {
    let database = own_settings(environment).store;
    database.map_or_else(
        || StoreLocation::Files(environment.dirs.data.clone()),
        StoreLocation::Database,
    )
}
