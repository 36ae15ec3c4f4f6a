//! The routing table of version 2: one line for each method that differs between the versions. The
//! others are in `shared/requests.rs`. Contains no logic.

use std::sync::Arc;

use protocol::table::Table;

use super::{initialize, options, prompt, requests, sessions};
use crate::server::Server;

/// Returns the methods that a client can call in version 2.
pub fn table(server: &Arc<Server>) -> Table<Server> {
    requests::add_to(Table::new(server.clone()).gate(Server::gate))
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
        .notification(requests::mcp_message)
}
