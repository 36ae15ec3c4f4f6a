//! The editor's buffers: reads unsaved text, writes through the editor so that the user can review
//! and undo. Both are called only where the editor declared them.

use std::path::PathBuf;
use std::time::Duration;

use protocol::acp::v1;
use protocol::rpc::Peer;

use crate::face::EditorAnswer;
use base::id::SessionId;

/// How long an editor may take over a file. Some never answer what they do not know.
const LIMIT: Duration = Duration::from_secs(20);

/// Reads a file through the editor: whole, because editors disagree about lines.
pub(super) fn read(peer: &Peer, session: &SessionId, path: PathBuf) -> EditorAnswer<String> {
    let request = v1::ReadTextFileRequest::new(session.share(), path);
    let peer = peer.clone();
    Box::pin(async move { Ok(peer.call(&request, Some(LIMIT)).await?.content) })
}

/// Writes a file through the editor.
pub(super) fn write(peer: &Peer, session: &SessionId, path: PathBuf, text: String) -> EditorAnswer<()> {
    let request = v1::WriteTextFileRequest::new(session.share(), path, text);
    let peer = peer.clone();
    Box::pin(async move { peer.call(&request, Some(LIMIT)).await.map(drop) })
}
