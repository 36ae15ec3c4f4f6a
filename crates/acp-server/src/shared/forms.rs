//! Elicitation: encodes forms and URLs for the client, sends them, and decodes the answers.

/// Defines `send_form` with the types of one protocol version.
macro_rules! forms {
    ($version:ident) => {
        use std::sync::atomic::{AtomicU64, Ordering};

        use protocol::acp::$version as acp;
        use protocol::rpc::Peer;

        use crate::view::{ClientReply, Form, FormAnswer};
        use base::id::SessionId;
        use events::{
            ChoiceLimits, FieldKind, FieldOption, FormField, FormPage, TextFormat, TextLimits,
        };

        /// Sends a form or a URL to the client. Returns the user's pending answer.
        pub(crate) fn send_form(
            peer: &Peer,
            session: &SessionId,
            form: Form,
        ) -> ClientReply<FormAnswer> {
            /// The number of the next URL: its id must be unique on the connection.
            static NEXT_URL: AtomicU64 = AtomicU64::new(1);
            let call = form.call.map(|call| acp::ToolCallId::from(call.share()));
            let scope = acp::ElicitationSessionScope::new(session.share()).tool_call_id(call);
            let mut completion = None;
            let mode: acp::ElicitationMode = match form.page {
                FormPage::Fields(fields) => {
                    acp::ElicitationFormMode::new(scope, schema(fields)).into()
                }
                FormPage::Url(url) => {
                    let id = format!("address-{}", NEXT_URL.fetch_add(1, Ordering::Relaxed));
                    completion = form.finished.map(|finished| {
                        (
                            acp::CompleteElicitationNotification::new(id.clone()),
                            finished,
                        )
                    });
                    acp::ElicitationUrlMode::new(scope, id, url).into()
                }
            };
            let request = acp::CreateElicitationRequest::new(mode, form.message);
            let peer = peer.clone();
            Box::pin(async move {
                let reply = decode_answer(peer.call(&request, None).await?.action);
                if let (FormAnswer::Submitted(_), Some((done, finished))) = (&reply, completion) {
                    // The session does not wait for this notification.
                    base::task::spawn(async move {
                        if finished.await.is_ok() {
                            peer.notify("elicitation/complete", &done).await;
                        }
                    });
                }
                Ok(reply)
            })
        }

        fn schema(fields: Vec<FormField>) -> acp::ElicitationSchema {
            let mut schema = acp::ElicitationSchema::new();
            for FormField {
                key,
                title,
                description,
                required,
                kind,
            } in fields
            {
                schema = schema.property(key, property(title, description, kind), required);
            }
            schema
        }

        fn property(
            title: String,
            description: Option<String>,
            kind: FieldKind,
        ) -> acp::ElicitationPropertySchema {
            match kind {
                FieldKind::Text(TextLimits {
                    min_length,
                    max_length,
                    format,
                    default,
                }) => {
                    let text = acp::StringPropertySchema::new()
                        .title(title)
                        .description(description)
                        .default_value(default);
                    text.min_length(min_length)
                        .max_length(max_length)
                        .format(format.map(text_format))
                        .into()
                }
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "a limit of a whole number that has a fraction is truncated"
                )]
                FieldKind::Number {
                    whole: true,
                    min,
                    max,
                    default,
                } => {
                    let number = acp::IntegerPropertySchema::new()
                        .title(title)
                        .description(description);
                    let whole = |limit: f64| limit as i64;
                    number
                        .minimum(min.map(whole))
                        .maximum(max.map(whole))
                        .default_value(default.map(whole))
                        .into()
                }
                FieldKind::Number {
                    min, max, default, ..
                } => {
                    let number = acp::NumberPropertySchema::new()
                        .title(title)
                        .description(description);
                    number
                        .minimum(min)
                        .maximum(max)
                        .default_value(default)
                        .into()
                }
                FieldKind::Switch(default) => acp::BooleanPropertySchema::new()
                    .title(title)
                    .description(description)
                    .default_value(default)
                    .into(),
                FieldKind::SingleChoice(options, default) => {
                    let text = acp::StringPropertySchema::new()
                        .title(title)
                        .description(description);
                    text.one_of(enum_options(options))
                        .default_value(default)
                        .into()
                }
                FieldKind::MultipleChoice(
                    options,
                    ChoiceLimits {
                        min_items,
                        max_items,
                        default,
                    },
                ) => {
                    let many = acp::MultiSelectPropertySchema::titled(enum_options(options))
                        .title(title)
                        .description(description);
                    many.min_items(min_items)
                        .max_items(max_items)
                        .default_value(default)
                        .into()
                }
            }
        }

        fn text_format(format: TextFormat) -> acp::StringFormat {
            match format {
                TextFormat::Email => acp::StringFormat::Email,
                TextFormat::Uri => acp::StringFormat::Uri,
                TextFormat::Date => acp::StringFormat::Date,
                TextFormat::DateTime => acp::StringFormat::DateTime,
            }
        }

        fn enum_options(options: Vec<FieldOption>) -> Vec<acp::EnumOption> {
            let encode_option = |option: FieldOption| {
                let description = Some(option.description).filter(|text| !text.is_empty());
                acp::EnumOption::new(option.value, option.label).description(description)
            };
            options.into_iter().map(encode_option).collect()
        }

        pub(crate) fn decode_answer(action: acp::ElicitationAction) -> FormAnswer {
            let accepted = match action {
                acp::ElicitationAction::Accept(accepted) => accepted,
                acp::ElicitationAction::Decline => return FormAnswer::Declined,
                _ => return FormAnswer::Cancelled,
            };
            let text = |value| match value {
                acp::ElicitationContentValue::String(text) => vec![text],
                acp::ElicitationContentValue::StringArray(many) => many,
                acp::ElicitationContentValue::Integer(number) => vec![number.to_string()],
                acp::ElicitationContentValue::Number(number) => vec![number.to_string()],
                acp::ElicitationContentValue::Boolean(yes) => {
                    vec![if yes { "yes" } else { "no" }.to_owned()]
                }
                _ => Vec::new(),
            };
            FormAnswer::Submitted(
                accepted
                    .content
                    .unwrap_or_default()
                    .into_iter()
                    .map(|(key, value)| (key, text(value)))
                    .collect(),
            )
        }
    };
}

pub(crate) use forms;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use crate::view::FormAnswer;
    use crate::{v1, v2};

    fn assert_answers(decode: impl Fn(Value) -> FormAnswer) {
        let content = json!({ "a": "x", "b": ["x", "y"], "c": 7, "d": true, "e": 1.5 });
        let FormAnswer::Submitted(filled) =
            decode(json!({ "action": "accept", "content": content }))
        else {
            panic!("the form is not filled in")
        };
        let texts: Vec<String> = filled.values().map(|texts| texts.join("+")).collect();
        assert_eq!(texts, ["x", "x+y", "7", "yes", "1.5"]);
        assert_eq!(
            decode(json!({ "action": "accept" })),
            FormAnswer::Submitted(BTreeMap::new())
        );
        assert_eq!(decode(json!({ "action": "decline" })), FormAnswer::Declined);
        for action in ["cancel", "postpone"] {
            assert_eq!(
                decode(json!({ "action": action })),
                FormAnswer::Cancelled,
                "{action}"
            );
        }
    }

    #[test]
    fn values_of_every_type_become_text() {
        assert_answers(|action| v1::forms::decode_answer(serde_json::from_value(action).unwrap()));
        assert_answers(|action| v2::forms::decode_answer(serde_json::from_value(action).unwrap()));
    }
}
