//! Encodes updates as the lines that are sent to the client.

use protocol::acp::{self, v1};
use protocol::rpc::{self, Peer};

use base::id::SessionId;

/// Returns a `session/update` notification without its line end.
pub(super) fn line(session: &SessionId, update: v1::SessionUpdate) -> Vec<u8> {
    let notification = v1::SessionNotification::new(session.share(), update);
    rpc::notification_line(
        <v1::SessionNotification as acp::Method>::NAME,
        &acp::WithExplicitNull(notification),
    )
}

/// Sends an update. Blocks only if the outbox is full because the client does not read.
pub(super) async fn send(peer: &Peer, session: &SessionId, update: v1::SessionUpdate) {
    peer.outbox().send(line(session, update)).await;
}
