//! Files that go through the editor, where it declared that it reads and writes them.

use protocol::rpc::{CallError, code};
use tokio::sync::oneshot;

use super::face::EditorAnswer;
use events::NotWritten;

/// Gives a file that the editor reads to whoever waits for it.
pub async fn read(asking: EditorAnswer<String>, mut reply: oneshot::Sender<Result<String, String>>) {
    let answer = tokio::select! {
        answer = asking => answer,
        () = reply.closed() => return,
    };
    // Whoever asked may have been cancelled since.
    reply.send(answer.map_err(|e| e.to_string())).ok();
}

/// Says whether the editor has written a file. What it does not know may be written past it; what it
/// refuses may not.
pub async fn write(asking: EditorAnswer<()>, reply: oneshot::Sender<Result<(), NotWritten>>) {
    let refused = |error: CallError| match error {
        CallError::Refused(error) if ![code::NOT_FOUND, code::METHOD_NOT_FOUND].contains(&error.code) => {
            let details = error.data.as_ref().and_then(|data| data["details"].as_str());
            NotWritten::Refused(details.unwrap_or(&error.message).to_owned())
        }
        _ => NotWritten::Unknown,
    };
    // Whoever asked may have been cancelled since.
    reply.send(asking.await.map_err(refused)).ok();
}
