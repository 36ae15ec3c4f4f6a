//! The editor's buffers: reads unsaved text, writes through the editor so that the user can review
//! and undo. Both are called only where the editor declared them.

use std::time::Duration;

use protocol::acp::v1;
use protocol::rpc::{CallError, Peer, code};

use crate::event::{NotWritten, ReadFile, WriteFile};
use crate::id::SessionId;

/// How long an editor may take over a file. Some never answer what they do not know.
const LIMIT: Duration = Duration::from_secs(20);

/// Reads a file through the editor: whole, because editors disagree about lines.
pub async fn read(peer: &Peer, session: &SessionId, read: ReadFile) {
    let ReadFile { path, mut reply } = read;
    let request = v1::ReadTextFileRequest::new(session.share(), path);
    let answer = tokio::select! {
        answer = peer.call(&request, Some(LIMIT)) => answer,
        () = reply.closed() => return,
    };
    // Whoever asked may have been cancelled since.
    reply.send(answer.map(|answer| answer.content).map_err(|e| e.to_string())).ok();
}

/// Writes a file through the editor.
pub async fn write(peer: &Peer, session: &SessionId, write: WriteFile) {
    let WriteFile { path, text, reply } = write;
    let request = v1::WriteTextFileRequest::new(session.share(), path, text);
    let answer = peer.call(&request, Some(LIMIT)).await;
    let refused = |error: CallError| match error {
        CallError::Refused(error) if ![code::NOT_FOUND, code::METHOD_NOT_FOUND].contains(&error.code) => {
            let details = error.data.as_ref().and_then(|data| data["details"].as_str());
            NotWritten::Refused(details.unwrap_or(&error.message).to_owned())
        }
        _ => NotWritten::Unknown,
    };
    // Whoever asked may have been cancelled since.
    reply.send(answer.map(drop).map_err(refused)).ok();
}
