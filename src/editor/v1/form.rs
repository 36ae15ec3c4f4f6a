//! Forms and addresses (elicitations), and what became of them.

use std::sync::atomic::{AtomicU64, Ordering};

use protocol::acp::v1;
use protocol::rpc::Peer;

use crate::editor::face::{Asking, Form, FormAnswer};
use crate::event::{FieldKind, FieldOption, FormField, FormPage, ManyLimits, TextFormat, TextLimits};
use crate::id::SessionId;

/// Shows a form, or an address.
pub(super) fn fill(peer: &Peer, session: &SessionId, form: Form) -> Asking<FormAnswer> {
    /// Numbers the addresses: an editor tells them apart by that.
    static ADDRESSES: AtomicU64 = AtomicU64::new(1);
    let call = v1::ToolCallId::from(form.call.share());
    let scope = v1::ElicitationSessionScope::new(session.share()).tool_call_id(call);
    let mode: v1::ElicitationMode = match form.page {
        FormPage::Fields(fields) => v1::ElicitationFormMode::new(scope, schema(fields)).into(),
        FormPage::Address(url) => {
            let id = format!("address-{}", ADDRESSES.fetch_add(1, Ordering::Relaxed));
            v1::ElicitationUrlMode::new(scope, id, url).into()
        }
    };
    let request = v1::CreateElicitationRequest::new(mode, form.message);
    let peer = peer.clone();
    Box::pin(async move { Ok(answer(peer.call(&request, None).await?.action)) })
}

fn schema(fields: Vec<FormField>) -> v1::ElicitationSchema {
    let mut schema = v1::ElicitationSchema::new();
    for FormField { key, title, words, required, kind } in fields {
        schema = schema.property(key, property(title, words, kind), required);
    }
    schema
}

fn property(title: String, words: Option<String>, kind: FieldKind) -> v1::ElicitationPropertySchema {
    match kind {
        FieldKind::Text(TextLimits { shortest, longest, format, default }) => {
            let text = v1::StringPropertySchema::new().title(title).description(words).default_value(default);
            text.min_length(shortest).max_length(longest).format(format.map(text_format)).into()
        }
        #[expect(clippy::cast_possible_truncation, reason = "a limit of whole numbers that is none is the nearest one")]
        FieldKind::Number { whole: true, least, most, default } => {
            let number = v1::IntegerPropertySchema::new().title(title).description(words);
            let whole = |limit: f64| limit as i64;
            number.minimum(least.map(whole)).maximum(most.map(whole)).default_value(default.map(whole)).into()
        }
        FieldKind::Number { least, most, default, .. } => {
            let number = v1::NumberPropertySchema::new().title(title).description(words);
            number.minimum(least).maximum(most).default_value(default).into()
        }
        FieldKind::Switch(default) => {
            v1::BooleanPropertySchema::new().title(title).description(words).default_value(default).into()
        }
        FieldKind::One(options, default) => {
            let text = v1::StringPropertySchema::new().title(title).description(words);
            text.one_of(all(options)).default_value(default).into()
        }
        FieldKind::Many(options, ManyLimits { fewest, most, default }) => {
            let many = v1::MultiSelectPropertySchema::titled(all(options)).title(title).description(words);
            many.min_items(fewest).max_items(most).default_value(default).into()
        }
    }
}

fn text_format(format: TextFormat) -> v1::StringFormat {
    match format {
        TextFormat::Email => v1::StringFormat::Email,
        TextFormat::Uri => v1::StringFormat::Uri,
        TextFormat::Date => v1::StringFormat::Date,
        TextFormat::DateTime => v1::StringFormat::DateTime,
    }
}

fn all(options: Vec<FieldOption>) -> Vec<v1::EnumOption> {
    let one = |option: FieldOption| {
        let description = Some(option.description).filter(|words| !words.is_empty());
        v1::EnumOption::new(option.value, option.label).description(description)
    };
    options.into_iter().map(one).collect()
}

fn answer(action: v1::ElicitationAction) -> FormAnswer {
    let accepted = match action {
        v1::ElicitationAction::Accept(accepted) => accepted,
        v1::ElicitationAction::Decline => return FormAnswer::Declined,
        _ => return FormAnswer::Cancelled,
    };
    let words = |value| match value {
        v1::ElicitationContentValue::String(words) => vec![words],
        v1::ElicitationContentValue::StringArray(many) => many,
        v1::ElicitationContentValue::Integer(number) => vec![number.to_string()],
        v1::ElicitationContentValue::Number(number) => vec![number.to_string()],
        v1::ElicitationContentValue::Boolean(yes) => vec![if yes { "yes" } else { "no" }.to_owned()],
        _ => Vec::new(),
    };
    FormAnswer::Filled(
        accepted.content.unwrap_or_default().into_iter().map(|(key, value)| (key, words(value))).collect(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn said(action: Value) -> FormAnswer {
        answer(serde_json::from_value(action).unwrap())
    }

    #[test]
    fn whatever_was_put_in_is_words() {
        let content = json!({ "a": "x", "b": ["x", "y"], "c": 7, "d": true, "e": 1.5 });
        let FormAnswer::Filled(filled) = said(json!({ "action": "accept", "content": content })) else {
            panic!("nothing was put in")
        };
        let words: Vec<String> = filled.values().map(|words| words.join("+")).collect();
        assert_eq!(words, ["x", "x+y", "7", "yes", "1.5"]);
        assert_eq!(said(json!({ "action": "accept" })), FormAnswer::Filled(std::collections::BTreeMap::new()));
        assert_eq!(said(json!({ "action": "decline" })), FormAnswer::Declined);
        for action in ["cancel", "postpone"] {
            assert_eq!(said(json!({ "action": action })), FormAnswer::Cancelled, "{action}");
        }
    }
}
