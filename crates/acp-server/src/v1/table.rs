//! The routing table: one line for each ACP method that differs between the versions. The others
//! are in `shared/requests.rs`. Contains no logic.

use std::sync::Arc;

use protocol::table::Table;

use super::{initialize, options, prompt, requests, sessions};
use crate::server::Server;

/// Returns the methods that a client can call.
pub fn table(server: &Arc<Server>) -> Table<Server> {
    requests::add_to(Table::new(server.clone()).gate(Server::gate))
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
        .notification(requests::mcp_message)
}
