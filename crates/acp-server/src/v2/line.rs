//! Encodes updates as the lines that are sent to the client.

use protocol::acp::{self, v2};
use protocol::rpc::{self, Peer};

use base::id::SessionId;

/// Returns a `session/update` notification without its line end.
pub(super) fn line(session: &SessionId, update: v2::SessionUpdate) -> Vec<u8> {
    let notification = v2::UpdateSessionNotification::new(session.share(), update);
    rpc::notification_line(
        <v2::UpdateSessionNotification as acp::Method>::NAME,
        &notification,
    )
}

/// Sends an update. Blocks only if the outbox is full because the client does not read.
pub(super) async fn send(peer: &Peer, session: &SessionId, update: v2::SessionUpdate) {
    peer.outbox().send(line(session, update)).await;
}
