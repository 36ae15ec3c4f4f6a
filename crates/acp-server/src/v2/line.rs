//! An update as a line.

use protocol::acp::{self, v2};
use protocol::rpc::{self, Peer};

use base::id::SessionId;

/// The `session/update` notification, without its line end.
pub(super) fn line(session: &SessionId, update: v2::SessionUpdate) -> Vec<u8> {
    let note = v2::UpdateSessionNotification::new(session.share(), update);
    rpc::note(<v2::UpdateSessionNotification as acp::Method>::NAME, &note)
}

/// Sends an update. Waits only while the editor does not read.
pub(super) async fn send(peer: &Peer, session: &SessionId, update: v2::SessionUpdate) {
    peer.outbox().send(line(session, update)).await;
}
