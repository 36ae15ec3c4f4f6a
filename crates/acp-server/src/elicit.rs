//! Elicitation requests of MCP servers: a form to fill in, or an address to open. For clients
//! without forms, a page with at most two answers becomes a permission request.

use protocol::rpc::CallError;
use serde_json::{Map, Value, json};

use super::markdown::plainly;
use super::server::Capabilities;
use super::view::{
    AnswerKind, AnswerOption, ChoiceRequest, EditorAnswer, Filled, Form, FormAnswer, PickedAnswer,
    SessionView,
};
use base::id::SessionId;
use base::text::{self, shown};
use events::{
    CallUpdate, FieldKind, FormField, FormPage, FormReply, FormRequest, Progress, ToolKind,
};

/// The ids of the answers in a permission request.
const ANSWERS: [&str; 2] = ["answer-1", "answer-2"];
const NO: &str = "decline";

/// The maximum length of a value in bytes; the rest is cut off.
const MAX_VALUE_BYTES: usize = 16 << 10;

pub enum FormPrompt {
    Form(EditorAnswer<FormAnswer>),
    /// A permission request, with the values that each answer fills in.
    Permission(EditorAnswer<Option<PickedAnswer>>, [Filled; 2]),
    None,
}

pub fn way(
    own: &SessionId,
    asked: &mut FormRequest,
    editor: &Capabilities,
    view: &mut dyn SessionView,
) -> FormPrompt {
    let has = match asked.asks {
        FormPage::Fields(_) => editor.forms,
        FormPage::Address(_) => editor.addresses,
    };
    if has {
        let message = format!("{}: {}", asked.who, asked.message);
        let form = Form {
            call: asked.call.clone(),
            message,
            page: asked.asks.clone(),
            finished: asked.finished.take(),
        };
        let session = asked.session.as_ref().unwrap_or(own);
        return FormPrompt::Form(view.fill(session, form));
    }
    match as_permission(asked) {
        Some((question, puts)) => FormPrompt::Permission(
            view.ask(asked.session.as_ref().unwrap_or(own), question),
            puts,
        ),
        None => FormPrompt::None,
    }
}

/// Returns the request as a permission request, if it needs at most two answers and a refusal.
fn as_permission(asked: &FormRequest) -> Option<(ChoiceRequest, [Filled; 2])> {
    let put = |key: &str, value: &str| Filled::from([(key.to_owned(), vec![value.to_owned()])]);
    let call = asked.call.as_ref()?;
    let (answers, puts): (Vec<String>, [Filled; 2]) = match &asked.asks {
        FormPage::Address(_) => (vec!["I have opened it".into()], Default::default()),
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
                [put(key, "yes"), put(key, "no")],
            ),
            [
                FormField {
                    key,
                    kind: FieldKind::One(options, _),
                    ..
                },
            ] => match options.as_slice() {
                [one] => (
                    vec![one.label.clone()],
                    [put(key, &one.value), Filled::new()],
                ),
                [one, two] => (
                    vec![one.label.clone(), two.label.clone()],
                    [put(key, &one.value), put(key, &two.value)],
                ),
                _ => return None,
            },
            _ => return None,
        },
    };
    let mut text = plainly(&shown(&asked.message));
    let mut facts = Map::from_iter([("message".to_owned(), Value::from(asked.message.clone()))]);
    match &asked.asks {
        FormPage::Address(url) => {
            text += &format!("\n\n{}", super::markdown::fenced("", &shown(url)));
            facts.insert("url".into(), json!(url));
        }
        FormPage::Fields(fields) => {
            for field in fields {
                let words = field
                    .words
                    .as_deref()
                    .map_or_else(String::new, |words| format!(": {words}"));
                text += &format!(
                    "\n\n{}",
                    plainly(&shown(&format!("{}{words}", field.title)))
                );
            }
        }
    }
    let show = CallUpdate {
        title: Some(text::title(&asked.who)),
        kind: Some(ToolKind::Other),
        progress: Some(Progress::Pending),
        input: Some(Value::Object(facts)),
        ..CallUpdate::of(call)
    };
    let answers = answers.into_iter().zip(ANSWERS);
    let answers = answers.map(|(name, id)| AnswerOption {
        id,
        name: text::title(&name),
        kind: AnswerKind::Once,
    });
    let no = AnswerOption {
        id: NO,
        name: "Decline".into(),
        kind: AnswerKind::No,
    };
    Some((
        ChoiceRequest {
            show,
            text,
            answers: answers.chain([no]).collect(),
            meta: None,
        },
        puts,
    ))
}

/// Waits for the answer and sends it to the MCP server. The request is withdrawn if the receiver of
/// the reply is dropped. Returns the request if the connection ended before the answer.
pub async fn elicit(way: FormPrompt, mut asked: FormRequest) -> Option<FormRequest> {
    let asks = &asked.asks;
    let reply = async {
        match way {
            FormPrompt::None => Some(FormReply::Unshown),
            FormPrompt::Form(asking) => match asking.await {
                Ok(FormAnswer::Filled(filled)) => Some(accepted(asks, &filled)),
                Ok(FormAnswer::Declined) => Some(FormReply::Declined),
                Ok(FormAnswer::Cancelled) => Some(FormReply::Cancelled),
                Err(e) => refused(&e),
            },
            FormPrompt::Permission(asking, puts) => match asking.await {
                Ok(Some(PickedAnswer { id, .. })) => {
                    Some(match ANSWERS.iter().position(|answer| *answer == id) {
                        Some(at) => accepted(asks, &puts[at]),
                        None => FormReply::Declined,
                    })
                }
                Ok(None) => Some(FormReply::Cancelled),
                Err(e) => refused(&e),
            },
        }
    };
    let reply = tokio::select! {
        reply = reply => reply,
        () = asked.reply.closed() => return None,
    };
    let Some(reply) = reply else {
        return Some(asked);
    };
    // The receiver may have been cancelled.
    asked.reply.send(reply).ok();
    None
}

/// Returns the reply for a failed request, or `None` if the connection has ended.
fn refused(e: &CallError) -> Option<FormReply> {
    if matches!(e, CallError::Closed) {
        return None;
    }
    tracing::warn!("a form was not answered: {e}");
    Some(if matches!(e, CallError::Refused(_)) {
        FormReply::Unshown
    } else {
        FormReply::Cancelled
    })
}

/// Checks the values against the form's fields, and converts them to the fields' types.
fn accepted(asks: &FormPage, filled: &Filled) -> FormReply {
    let cut = |value: &String| text::head(value, MAX_VALUE_BYTES).to_owned();
    asks.accepted(|key| filled.get(key).into_iter().flatten().map(cut).collect())
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
            words: None,
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
        FieldKind::One(values.iter().map(option).collect(), None)
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
            let asks = FormPage::Fields(fields);
            let call = Some(CallId::new("c"));
            let who = "The MCP server a asks".into();
            let message = "M?".into();
            let asked = FormRequest {
                call,
                session: None,
                who,
                message,
                asks,
                finished: None,
                reply,
            };
            let names = as_permission(&asked).map(|(asked, _)| {
                asked
                    .answers
                    .iter()
                    .map(|answer| answer.name.clone())
                    .collect::<Vec<_>>()
            });
            assert_eq!(
                names,
                expected.map(|names| names.into_iter().map(str::to_owned).collect()),
                "{:?}",
                asked.asks
            );
        }
    }

    #[test]
    fn required_field_is_in_accepted_form() {
        let text = || FieldKind::Text(TextLimits::default());
        let asks = FormPage::Fields(vec![
            field("a", true, text()),
            field("b", false, one(&["x"])),
        ]);
        let filled = |pairs: &[(&str, &str)]| -> Filled {
            pairs
                .iter()
                .map(|(key, word)| ((*key).to_owned(), vec![(*word).to_owned()]))
                .collect()
        };
        let content = |json: Value| FormReply::Accepted(json.as_object().unwrap().clone());
        assert_eq!(
            accepted(&asks, &filled(&[("a", "1"), ("b", "x"), ("c", "2")])),
            content(json!({"a": "1", "b": "x"}))
        );
        assert_eq!(
            accepted(&asks, &filled(&[("a", "1"), ("b", "y")])),
            content(json!({"a": "1"}))
        );
        assert_eq!(
            accepted(&asks, &filled(&[("b", "x")])),
            FormReply::Cancelled
        );
        let size = FieldKind::One(Vec::new(), Some("large".into()));
        let defaults = FormPage::Fields(vec![
            field("a", true, size),
            field("b", false, FieldKind::Switch(Some(true))),
        ]);
        assert_eq!(
            accepted(&defaults, &filled(&[])),
            content(json!({"a": "large", "b": true}))
        );
        assert_eq!(
            accepted(&defaults, &filled(&[("a", "no such")])),
            FormReply::Cancelled
        );
        assert_eq!(
            accepted(&FormPage::Address("https://a".into()), &filled(&[])),
            content(json!({}))
        );
    }
}
