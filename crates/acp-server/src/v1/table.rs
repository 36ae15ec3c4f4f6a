//! The routing table: one line for each ACP method, in the protocol's order. Contains no logic.

use std::sync::Arc;

use protocol::table::Table;

use super::{initialize, options, prompt, requests, sessions};
use crate::server::Server;

/// Returns the methods that a client can call.
pub fn table(server: &Arc<Server>) -> Table<Server> {
    Table::new(server.clone())
        .gate(Server::gate)
        .request(initialize::initialize)
        .request(initialize::authenticate)
        .request(initialize::logout)
        .request(requests::auth_status)
        .request(sessions::new)
        .request(sessions::load)
        .request(sessions::resume)
        .request(sessions::list)
        .request(requests::close)
        .request(requests::delete)
        .request(sessions::fork)
        .request(requests::set_title)
        .request(requests::status)
        .request(requests::archive)
        .request(requests::unarchive)
        .request(options::set_mode)
        .request(options::set_config_option)
        .request(options::set_model)
        .request(prompt::prompt)
        .notification(sessions::cancel)
}
