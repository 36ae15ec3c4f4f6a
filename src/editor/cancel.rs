//! session/cancel. (`$/cancel_request` ends the token of a request; `prompt.rs` treats it alike.)

use std::sync::Arc;

use protocol::acp::v1;

use super::server::Server;
use crate::id::SessionId;

/// Stops the session's turn and forgets its waiting prompts; stops a subagent. Idle and unknown sessions: nothing.
pub fn cancel(server: &Arc<Server>, note: v1::CancelNotification) {
    server.cancel_waiting(&note.session_id.0);
    match server.session(&note.session_id.0) {
        Ok(session) => session.cancel(),
        Err(_) if server.shared.stop_subagent(&SessionId::new(note.session_id.0.clone())) => {}
        Err(_) => tracing::info!("a cancel for no session"),
    }
}
