//! Sends permission requests with the types of version 1, and decodes their answers.

use protocol::acp::{WithExplicitNull, v1};
use protocol::rpc::Peer;

use super::tool_call_view::ToolCallViews;
use crate::meta;
use crate::view::{AnswerKind, AnswerOption, ChoiceRequest, ClientReply, PickedAnswer};
use base::id::SessionId;

/// Sends a question to the client, with the whole content of its tool call.
pub(super) fn send(
    peer: &Peer,
    session: &SessionId,
    choice: ChoiceRequest,
    tool_calls: &mut ToolCallViews,
) -> ClientReply<Option<PickedAnswer>> {
    let encode_answer = |answer: AnswerOption| {
        v1::PermissionOption::new(answer.id.to_owned(), answer.label, kind(answer.kind))
    };
    let options = choice.answers.into_iter().map(encode_answer).collect();
    let call = tool_calls.question(&choice.call, &choice.text);
    let request =
        v1::RequestPermissionRequest::new(session.share(), call, options).meta(choice.meta);
    let request = WithExplicitNull(request);
    let peer = peer.clone();
    Box::pin(async move { Ok(picked(peer.call(&request, None).await?.outcome)) })
}

fn kind(kind: AnswerKind) -> v1::PermissionOptionKind {
    match kind {
        AnswerKind::AllowOnce => v1::PermissionOptionKind::AllowOnce,
        AnswerKind::AllowAlways => v1::PermissionOptionKind::AllowAlways,
        AnswerKind::Reject => v1::PermissionOptionKind::RejectOnce,
    }
}

/// Returns the answer that the user picked; `None` if there is none.
fn picked(outcome: v1::RequestPermissionOutcome) -> Option<PickedAnswer> {
    let v1::RequestPermissionOutcome::Selected(chosen) = outcome else {
        return None;
    };
    Some(PickedAnswer {
        id: chosen.option_id.0.to_string(),
        comment: meta::comment(chosen.meta.as_ref()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn comment_is_read_from_meta_of_rejection() {
        let rejected = json!({ "outcome": "selected", "optionId": "neither", "_meta": { "adjutant": { "words": " both " } } });
        let chosen = picked(serde_json::from_value(rejected).unwrap());
        assert_eq!(
            chosen,
            Some(PickedAnswer {
                id: "neither".into(),
                comment: Some("both".into())
            })
        );
        assert_eq!(picked(v1::RequestPermissionOutcome::Cancelled), None);
    }
}
