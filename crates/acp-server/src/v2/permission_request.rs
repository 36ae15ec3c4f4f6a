//! Sends permission requests with the types of version 2, and decodes their answers.

use protocol::acp::v2;
use protocol::rpc::Peer;

use super::tool_call_view::ToolCallViews;
use crate::meta;
use crate::view::{AnswerKind, AnswerOption, ChoiceRequest, ClientReply, PickedAnswer};
use base::id::SessionId;

/// Sends a question to the client. It contains all that the user has to know, and does not change
/// its tool call.
pub(super) fn send(
    peer: &Peer,
    session: &SessionId,
    choice: ChoiceRequest,
    tool_calls: &mut ToolCallViews,
) -> ClientReply<Option<PickedAnswer>> {
    let encode_answer = |answer: AnswerOption| {
        v2::PermissionOption::new(answer.id.to_owned(), answer.label, kind(answer.kind))
    };
    let options = choice.answers.into_iter().map(encode_answer).collect();
    let title = choice
        .call
        .title
        .clone()
        .unwrap_or_else(|| "May this be done?".to_owned());
    let call = tool_calls.question(&choice.call);
    let subject = call.map(|call| {
        v2::RequestPermissionSubject::ToolCall(Box::new(v2::ToolCallPermissionSubject::new(call)))
    });
    let request =
        v2::RequestPermissionRequest::new(session.share(), title, options).description(choice.text);
    let request = request.subject(subject).meta(choice.meta);
    let peer = peer.clone();
    Box::pin(async move { Ok(picked(peer.call(&request, None).await?.outcome)) })
}

fn kind(kind: AnswerKind) -> v2::PermissionOptionKind {
    match kind {
        AnswerKind::AllowOnce => v2::PermissionOptionKind::AllowOnce,
        AnswerKind::AllowAlways => v2::PermissionOptionKind::AllowAlways,
        AnswerKind::Reject => v2::PermissionOptionKind::RejectOnce,
    }
}

/// Returns the answer that the user picked; `None` if there is none.
fn picked(outcome: v2::RequestPermissionOutcome) -> Option<PickedAnswer> {
    // Any other outcome is not a permission.
    let v2::RequestPermissionOutcome::Selected(chosen) = outcome else {
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
    fn unknown_outcome_is_no_permission() {
        let picked = |outcome| picked(serde_json::from_value(outcome).unwrap());
        let chosen = picked(json!({ "outcome": "selected", "optionId": "once" }));
        assert_eq!(
            chosen,
            Some(PickedAnswer {
                id: "once".into(),
                comment: None
            })
        );
        assert_eq!(picked(json!({ "outcome": "cancelled" })), None);
        assert_eq!(
            picked(json!({ "outcome": "_granted", "optionId": "once" })),
            None
        );
    }
}
