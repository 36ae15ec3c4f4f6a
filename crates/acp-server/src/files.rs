//! Passes the client's answers to file requests on to the tool that waits for them. Used if the client
//! declared that it reads or writes files.

use protocol::rpc::{CallError, code};
use tokio::sync::oneshot;

use super::view::ClientReply;
use events::NotWritten;

/// Waits for the contents of a file and sends them to the tool that reads it. Stops if the tool no
/// longer waits.
pub async fn await_read(
    client_reply: ClientReply<String>,
    mut reply: oneshot::Sender<Result<String, String>>,
) {
    let answer = tokio::select! {
        answer = client_reply => answer,
        () = reply.closed() => return,
    };
    // The receiver may have been cancelled.
    reply.send(answer.map_err(|e| e.to_string())).ok();
}

/// Waits until the client has written a file and tells the tool so. If the client refuses, the tool
/// must not write the file itself ([`NotWritten::Refused`]). If the client does not know the file or
/// the method, or gives no valid answer, the tool may ([`NotWritten::Unknown`]).
pub async fn await_write(
    client_reply: ClientReply<()>,
    reply: oneshot::Sender<Result<(), NotWritten>>,
) {
    let refused = |error: CallError| match error {
        CallError::Refused(error)
            if ![code::NOT_FOUND, code::METHOD_NOT_FOUND].contains(&error.code) =>
        {
            let details = error
                .data
                .as_ref()
                .and_then(|data| data["details"].as_str());
            NotWritten::Refused(details.unwrap_or(&error.message).to_owned())
        }
        _ => NotWritten::Unknown,
    };
    // The receiver may have been cancelled.
    reply.send(client_reply.await.map_err(refused)).ok();
}
