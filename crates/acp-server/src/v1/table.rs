//! The routing table of version 1: adds the handlers that differ between the versions to the shared
//! ones (`shared/requests.rs`).

use std::sync::Arc;

use protocol::table::Table;

use super::{initialize, options, prompt, requests, sessions};
use crate::server::Server;

/// Returns the routing table of version 1.
pub fn table(server: &Arc<Server>) -> Table<Server> {
    requests::register(Table::new(server.clone()).check_before(Server::check_initialized))
        .request(initialize::initialize)
        .request(initialize::authenticate)
        .request(initialize::logout)
        .request(sessions::new)
        .request(sessions::load)
        .request(sessions::resume)
        .request(sessions::list)
        .request(sessions::fork)
        .request(options::set_mode)
        .request(options::set_config_option)
        .request(options::set_model)
        .request(prompt::prompt)
        .notification(sessions::cancel)
}
