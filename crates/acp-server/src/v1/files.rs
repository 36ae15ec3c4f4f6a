//! File access through the client's buffers: reads unsaved text, and writes so that the user can
//! review and undo. Used only if the client declared the capability.

use std::path::PathBuf;
use std::time::Duration;

use protocol::acp::v1;
use protocol::rpc::Peer;

use crate::view::ClientReply;
use base::id::SessionId;

/// The time limit of a file request: some clients never answer a request that they do not know.
const FILE_TIMEOUT: Duration = Duration::from_secs(20);

/// Reads a whole file: clients disagree about line numbers.
pub(super) fn read(peer: &Peer, session: &SessionId, path: PathBuf) -> ClientReply<String> {
    let request = v1::ReadTextFileRequest::new(session.share(), path);
    let peer = peer.clone();
    Box::pin(async move { Ok(peer.call(&request, Some(FILE_TIMEOUT)).await?.content) })
}

/// Writes a file.
pub(super) fn write(
    peer: &Peer,
    session: &SessionId,
    path: PathBuf,
    text: String,
) -> ClientReply<()> {
    let request = v1::WriteTextFileRequest::new(session.share(), path, text);
    let peer = peer.clone();
    Box::pin(async move { peer.call(&request, Some(FILE_TIMEOUT)).await.map(drop) })
}
