//! Forms (elicitations), and what was filled in: the same in both versions, for each of which this file is compiled.

use protocol::rpc::Peer;

use super::acp;
use crate::editor::face::{Asking, Field, FieldKind, Filled, Form};
use crate::event::QuestionOption;
use crate::id::SessionId;

/// Shows a form.
pub(super) fn fill(peer: &Peer, session: &SessionId, form: Form) -> Asking<Option<Filled>> {
    let mut schema = acp::ElicitationSchema::new();
    for Field { key, title, words, kind } in form.fields {
        let (title, words) = (Some(title), words);
        let property: acp::ElicitationPropertySchema = match kind {
            FieldKind::Text => acp::StringPropertySchema::new().title(title).description(words).into(),
            FieldKind::Many(options) => {
                acp::MultiSelectPropertySchema::titled(all(options)).title(title).description(words).into()
            }
            FieldKind::One(options) => {
                acp::StringPropertySchema::new().title(title).description(words).one_of(all(options)).into()
            }
        };
        schema = schema.property(key, property, false);
    }
    let call = acp::ToolCallId::from(form.call.share());
    let scope = acp::ElicitationSessionScope::new(session.share()).tool_call_id(call);
    let request = acp::CreateElicitationRequest::new(acp::ElicitationFormMode::new(scope, schema), form.message);
    let peer = peer.clone();
    Box::pin(async move { Ok(filled(peer.call(&request, None).await?.action)) })
}

fn all(options: Vec<QuestionOption>) -> Vec<acp::EnumOption> {
    let one = |option: QuestionOption| {
        let description = Some(option.description).filter(|words| !words.is_empty());
        acp::EnumOption::new(option.label.clone(), option.label).description(description)
    };
    options.into_iter().map(one).collect()
}

fn filled(action: acp::ElicitationAction) -> Option<Filled> {
    let acp::ElicitationAction::Accept(accepted) = action else { return None };
    let words = |value| match value {
        acp::ElicitationContentValue::String(words) => vec![words],
        acp::ElicitationContentValue::StringArray(many) => many,
        acp::ElicitationContentValue::Integer(number) => vec![number.to_string()],
        acp::ElicitationContentValue::Number(number) => vec![number.to_string()],
        acp::ElicitationContentValue::Boolean(yes) => vec![if yes { "yes" } else { "no" }.to_owned()],
        _ => Vec::new(),
    };
    Some(accepted.content.unwrap_or_default().into_iter().map(|(key, value)| (key, words(value))).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn said(action: Value) -> Option<Filled> {
        filled(serde_json::from_value(action).unwrap())
    }

    #[test]
    fn whatever_was_put_in_is_words() {
        let content = json!({ "a": "x", "b": ["x", "y"], "c": 7, "d": true, "e": 1.5 });
        let filled = said(json!({ "action": "accept", "content": content })).unwrap();
        let words: Vec<String> = filled.values().map(|words| words.join("+")).collect();
        assert_eq!(words, ["x", "x+y", "7", "yes", "1.5"]);
        assert_eq!(said(json!({ "action": "accept" })), Some(Filled::new()));
        for action in ["decline", "cancel", "postpone"] {
            assert_eq!(said(json!({ "action": action })), None, "{action}");
        }
    }
}
