//! Updates as encoded lines.

use serde::Serialize;

use protocol::acp::{self, v1};
use protocol::rpc::{self, Peer};

use base::id::SessionId;

/// Returns a `session/update` notification without its line end.
pub(super) fn line(session: &SessionId, update: v1::SessionUpdate) -> Vec<u8> {
    let note = v1::SessionNotification::new(session.share(), update);
    rpc::notification_line(
        <v1::SessionNotification as acp::Method>::NAME,
        &acp::WithExplicitNull(note),
    )
}

/// The kind of a text that the agent sends in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    Message,
    Thought,
}

/// Returns a `session/update` notification with a piece of a text, like [`line`]. There is one for
/// each packet of an answer, and building the schema's type costs more than writing it.
pub(super) fn text_line(session: &SessionId, kind: TextKind, text: &str, message: &str) -> Vec<u8> {
    let session_update = match kind {
        TextKind::Message => "agent_message_chunk",
        TextKind::Thought => "agent_thought_chunk",
    };
    let params = TextNotification {
        session_id: session.as_str(),
        update: TextChunk {
            session_update,
            content: TextBlock { kind: "text", text },
            message_id: message,
        },
    };
    rpc::notification_line(<v1::SessionNotification as acp::Method>::NAME, &params)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TextNotification<'a> {
    session_id: &'a str,
    update: TextChunk<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TextChunk<'a> {
    session_update: &'static str,
    content: TextBlock<'a>,
    message_id: &'a str,
}

#[derive(Serialize)]
struct TextBlock<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

/// Sends an update. Blocks only if the outbox is full because the client does not read.
pub(super) async fn send(peer: &Peer, session: &SessionId, update: v1::SessionUpdate) {
    peer.outbox().send(line(session, update)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_line_is_that_of_the_schema() {
        let session = SessionId::new("ses_00000001");
        for text in [
            "",
            "plain",
            "\"quoted\" \\ \n\t\u{1}\u{7f}",
            "ü 🦀 \u{2028}",
        ] {
            for kind in [TextKind::Message, TextKind::Thought] {
                let chunk = v1::ContentChunk::new(text.into());
                let chunk = chunk.message_id(v1::MessageId::new("prt_\"1"));
                let update = match kind {
                    TextKind::Message => v1::SessionUpdate::AgentMessageChunk(chunk),
                    TextKind::Thought => v1::SessionUpdate::AgentThoughtChunk(chunk),
                };
                let written = text_line(&session, kind, text, "prt_\"1");
                let expected = line(&session, update);
                assert_eq!(
                    String::from_utf8(written).unwrap(),
                    String::from_utf8(expected).unwrap()
                );
            }
        }
    }
}
