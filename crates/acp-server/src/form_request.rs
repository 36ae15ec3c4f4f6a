//! Requests to the user to fill in a form or to open a URL, mostly from MCP servers (elicitation).
//! [`send_form`] sends a request to the client, and [`await_form_reply`] passes the answer on. If the
//! client supports neither forms nor URLs, a request that needs at most two buttons is sent as a
//! permission request.

use protocol::rpc::CallError;
use serde_json::{Map, Value, json};

use super::markdown::{code_block, escape};
use super::server::Capabilities;
use super::view::{
    AnswerKind, AnswerOption, ChoiceRequest, ClientReply, Form, FormAnswer, FormValues,
    PickedAnswer, SessionView,
};
use base::id::SessionId;
use base::text::{self, shown};
use events::{
    CallUpdate, FieldKind, FormField, FormPage, FormReply, FormRequest, Progress, ToolKind,
};

/// The ids of the answers in a permission request.
const ANSWER_IDS: [&str; 2] = ["answer-1", "answer-2"];
/// The id of the answer that declines the request.
const DECLINE_ID: &str = "decline";

/// The maximum length of a value in bytes; the rest is cut off.
const MAX_VALUE_BYTES: usize = 16 << 10;

/// A request as it was sent to the client, with the pending answer.
pub enum FormDelivery {
    /// Sent as a form or a URL.
    Form(ClientReply<FormAnswer>),
    /// Sent as a permission request.
    Permission {
        answer: ClientReply<Option<PickedAnswer>>,
        /// The values of the form that each of the buttons selects.
        values: [FormValues; 2],
    },
    /// Not sent, because the client cannot show it.
    Unsupported,
}

/// Sends a request to the client: as a form or URL if it supports that, as a permission request if
/// two buttons suffice, otherwise not at all. In the first case, it takes `request.finished`, which
/// completes when the URL is no longer needed. `turn_session` is the session that asks unless the
/// request names another.
pub fn send_form(
    turn_session: &SessionId,
    request: &mut FormRequest,
    capabilities: &Capabilities,
    view: &mut dyn SessionView,
) -> FormDelivery {
    let is_supported = match request.page {
        FormPage::Fields(_) => capabilities.forms,
        FormPage::Url(_) => capabilities.urls,
    };
    if is_supported {
        let message = format!("{}: {}", request.requester, request.message);
        let form = Form {
            call: request.call.clone(),
            message,
            page: request.page.clone(),
            finished: request.finished.take(),
        };
        let session = request.session.as_ref().unwrap_or(turn_session);
        return FormDelivery::Form(view.request_form(session, form));
    }
    match as_permission(request) {
        Some((question, values)) => {
            let session = request.session.as_ref().unwrap_or(turn_session);
            FormDelivery::Permission {
                answer: view.request_permission(session, question),
                values,
            }
        }
        None => FormDelivery::Unsupported,
    }
}

/// Returns the values of a form with one field.
fn single_value(key: &str, value: &str) -> FormValues {
    FormValues::from([(key.to_owned(), vec![value.to_owned()])])
}

/// Returns the labels of the buttons, with the values of the form that each selects. Returns
/// `None` if there would be more than two.
fn buttons(page: &FormPage) -> Option<(Vec<String>, [FormValues; 2])> {
    Some(match page {
        FormPage::Url(_) => (vec!["I have opened it".into()], Default::default()),
        FormPage::Fields(fields) => match fields.as_slice() {
            [] => (vec!["Yes".into()], Default::default()),
            [
                FormField {
                    key,
                    kind: FieldKind::Switch(_),
                    ..
                },
            ] => (
                vec!["Yes".into(), "No".into()],
                [single_value(key, "yes"), single_value(key, "no")],
            ),
            [
                FormField {
                    key,
                    kind: FieldKind::SingleChoice(options, _),
                    ..
                },
            ] => match options.as_slice() {
                [one] => (
                    vec![one.label.clone()],
                    [single_value(key, &one.value), FormValues::new()],
                ),
                [one, two] => (
                    vec![one.label.clone(), two.label.clone()],
                    [single_value(key, &one.value), single_value(key, &two.value)],
                ),
                _ => return None,
            },
            _ => return None,
        },
    })
}

/// Converts a request to a permission request, with the values that each button selects. Returns
/// `None` if the request belongs to no call, or needs more than two buttons in addition to
/// "Decline".
fn as_permission(request: &FormRequest) -> Option<(ChoiceRequest, [FormValues; 2])> {
    let call = request.call.as_ref()?;
    let (answers, button_values) = buttons(&request.page)?;
    let mut text = escape(&shown(&request.message));
    let mut input = Map::from_iter([("message".to_owned(), Value::from(request.message.clone()))]);
    match &request.page {
        FormPage::Url(url) => {
            text += &format!("\n\n{}", code_block("", &shown(url)));
            input.insert("url".into(), json!(url));
        }
        FormPage::Fields(fields) => {
            for field in fields {
                let description = field
                    .description
                    .as_deref()
                    .map_or_else(String::new, |description| format!(": {description}"));
                text += &format!(
                    "\n\n{}",
                    escape(&shown(&format!("{}{description}", field.title)))
                );
            }
        }
    }
    let shown_call = CallUpdate {
        title: Some(text::title(&request.requester)),
        kind: Some(ToolKind::Other),
        progress: Some(Progress::Pending),
        input: Some(Value::Object(input)),
        ..CallUpdate::of(call)
    };
    let answers = answers.into_iter().zip(ANSWER_IDS);
    let answers = answers.map(|(name, id)| AnswerOption {
        id,
        label: text::title(&name),
        kind: AnswerKind::AllowOnce,
    });
    let decline = AnswerOption {
        id: DECLINE_ID,
        label: "Decline".into(),
        kind: AnswerKind::Reject,
    };
    Some((
        ChoiceRequest {
            call: shown_call,
            text,
            answers: answers.chain([decline]).collect(),
            meta: None,
        },
        button_values,
    ))
}

/// Waits for the user's answer and sends it to `request.reply`. Stops if the receiver of the reply is
/// dropped. Returns the request if the connection ended first, so that it can be sent again.
pub async fn await_form_reply(
    delivery: FormDelivery,
    mut request: FormRequest,
) -> Option<FormRequest> {
    let page = &request.page;
    let reply = async {
        match delivery {
            FormDelivery::Unsupported => Some(FormReply::NotShown),
            FormDelivery::Form(answer) => match answer.await {
                Ok(FormAnswer::Submitted(filled)) => Some(validated_reply(page, &filled)),
                Ok(FormAnswer::Declined) => Some(FormReply::Declined),
                Ok(FormAnswer::Cancelled) => Some(FormReply::Cancelled),
                Err(e) => reply_for_failure(&e),
            },
            FormDelivery::Permission { answer, values } => match answer.await {
                Ok(Some(PickedAnswer { id, .. })) => {
                    Some(match ANSWER_IDS.iter().position(|answer| *answer == id) {
                        Some(at) => validated_reply(page, &values[at]),
                        None => FormReply::Declined,
                    })
                }
                Ok(None) => Some(FormReply::Cancelled),
                Err(e) => reply_for_failure(&e),
            },
        }
    };
    let reply = tokio::select! {
        reply = reply => reply,
        () = request.reply.closed() => return None,
    };
    let Some(reply) = reply else {
        return Some(request);
    };
    // The receiver may have been dropped in the meantime.
    request.reply.send(reply).ok();
    None
}

/// Returns the reply for a failed request, or `None` if the connection has ended.
fn reply_for_failure(e: &CallError) -> Option<FormReply> {
    if matches!(e, CallError::Closed) {
        return None;
    }
    tracing::warn!("a form was not answered: {e}");
    Some(if matches!(e, CallError::Refused(_)) {
        FormReply::NotShown
    } else {
        FormReply::Cancelled
    })
}

/// Converts the values to the types of the fields. Returns [`FormReply::Cancelled`] if one is
/// invalid, or a required one is missing.
fn validated_reply(page: &FormPage, filled: &FormValues) -> FormReply {
    let cut = |value: &String| text::head(value, MAX_VALUE_BYTES).to_owned();
    page.accepted(|key| filled.get(key).into_iter().flatten().map(cut).collect())
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use base::id::CallId;
    use events::{FieldOption, TextLimits};

    fn field(key: &str, required: bool, kind: FieldKind) -> FormField {
        FormField {
            key: key.into(),
            title: key.into(),
            description: None,
            required,
            kind,
        }
    }

    fn one(values: &[&str]) -> FieldKind {
        let option = |value: &&str| FieldOption {
            value: (*value).into(),
            label: value.to_uppercase(),
            description: String::new(),
        };
        FieldKind::SingleChoice(values.iter().map(option).collect(), None)
    }

    #[test]
    fn form_with_at_most_two_answers_becomes_permission() {
        let text = || FieldKind::Text(TextLimits::default());
        let table = [
            (vec![], Some(vec!["Yes", "Decline"])),
            (
                vec![field("a", true, FieldKind::Switch(None))],
                Some(vec!["Yes", "No", "Decline"]),
            ),
            (
                vec![field("a", true, one(&["x", "y"]))],
                Some(vec!["X", "Y", "Decline"]),
            ),
            (vec![field("a", true, one(&["x", "y", "z"]))], None),
            (vec![field("a", true, text())], None),
            (
                vec![field("a", true, one(&["x"])), field("b", false, text())],
                None,
            ),
        ];
        for (fields, expected) in table {
            let (reply, _) = oneshot::channel();
            let page = FormPage::Fields(fields);
            let call = Some(CallId::new("c"));
            let requester = "The MCP server a asks".into();
            let message = "M?".into();
            let form_request = FormRequest {
                call,
                session: None,
                requester,
                message,
                page,
                finished: None,
                reply,
            };
            let names = as_permission(&form_request).map(|(permission, _)| {
                permission
                    .answers
                    .iter()
                    .map(|answer| answer.label.clone())
                    .collect::<Vec<_>>()
            });
            assert_eq!(
                names,
                expected.map(|names| names.into_iter().map(str::to_owned).collect()),
                "{:?}",
                form_request.page
            );
        }
    }

    #[test]
    fn required_field_is_in_accepted_form() {
        let text = || FieldKind::Text(TextLimits::default());
        let page = FormPage::Fields(vec![
            field("a", true, text()),
            field("b", false, one(&["x"])),
        ]);
        let filled = |pairs: &[(&str, &str)]| -> FormValues {
            pairs
                .iter()
                .map(|(key, word)| ((*key).to_owned(), vec![(*word).to_owned()]))
                .collect()
        };
        let content = |json: Value| FormReply::Accepted(json.as_object().unwrap().clone());
        assert_eq!(
            validated_reply(&page, &filled(&[("a", "1"), ("b", "x"), ("c", "2")])),
            content(json!({"a": "1", "b": "x"}))
        );
        assert_eq!(
            validated_reply(&page, &filled(&[("a", "1"), ("b", "y")])),
            content(json!({"a": "1"}))
        );
        assert_eq!(
            validated_reply(&page, &filled(&[("b", "x")])),
            FormReply::Cancelled
        );
        let size = FieldKind::SingleChoice(Vec::new(), Some("large".into()));
        let defaults = FormPage::Fields(vec![
            field("a", true, size),
            field("b", false, FieldKind::Switch(Some(true))),
        ]);
        assert_eq!(
            validated_reply(&defaults, &filled(&[])),
            content(json!({"a": "large", "b": true}))
        );
        assert_eq!(
            validated_reply(&defaults, &filled(&[("a", "no such")])),
            FormReply::Cancelled
        );
        assert_eq!(
            validated_reply(&FormPage::Url("https://a".into()), &filled(&[])),
            content(json!({}))
        );
    }
}
