//! The routing table of version 2: adds the handlers that differ between the versions to the shared
//! ones (`shared/requests.rs`).

use std::sync::Arc;

use protocol::table::Table;

use super::{initialize, options, prompt, requests, sessions};
use crate::server::Server;

/// Returns the routing table of version 2.
pub fn table(server: &Arc<Server>) -> Table<Server> {
    requests::register(Table::new(server.clone()).check_before(Server::check_initialized))
        .request(initialize::initialize)
        .request(initialize::login)
        .request(initialize::logout)
        .request(sessions::new)
        .request(sessions::resume)
        .request(sessions::list)
        .request(sessions::fork)
        .request(sessions::cancel_call)
        .request(sessions::cancel_terminal)
        .request(options::set_config_option)
        .request(prompt::prompt)
        .notification(sessions::cancel)
}
