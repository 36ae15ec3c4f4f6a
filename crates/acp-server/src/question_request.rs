//! The model's questions to the user (the tool `question`). [`send_questions`] sends them to the client as
//! one form, and [`await_answers`] passes the answers on. For a client without forms, each question
//! becomes a permission request, if it has few enough options.

use protocol::rpc::CallError;
use serde_json::json;

use super::markdown::escape;
use super::view::{
    AnswerKind, AnswerOption, ChoiceRequest, ClientReply, Form, FormAnswer, FormValues,
    PickedAnswer, SessionView,
};
use base::id::SessionId;
use events::{
    CallUpdate, ChoiceLimits, FieldKind, FormField, FormPage, Progress, Question, QuestionReply,
    QuestionRequest, TextLimits, ToolKind,
};

/// The ids of the answers in a permission request.
const ANSWER_IDS: [&str; 2] = ["answer-1", "answer-2"];

/// The id of the answer that picks none of the options.
const NEITHER: &str = "neither";

/// The maximum length of an answer in bytes; the rest is cut off.
const MAX_ANSWER_BYTES: usize = 16 << 10;

/// Questions as they were sent to the client, with the pending answers.
pub enum QuestionDelivery {
    /// Sent as one form.
    Form(ClientReply<FormAnswer>),
    /// Sent as one permission request for each question.
    Permissions(Vec<ClientReply<Option<PickedAnswer>>>),
    /// Not sent, because the client cannot show them.
    Unsupported,
}

/// Sends the questions to the client: as a form if it `shows_forms`, otherwise as permission requests
/// if their options fit.
pub fn send_questions(
    session: &SessionId,
    request: &QuestionRequest,
    shows_forms: bool,
    view: &mut dyn SessionView,
) -> QuestionDelivery {
    if shows_forms {
        return QuestionDelivery::Form(view.request_form(session, form_of(request)));
    }
    let fits = |question: &Question| {
        !question.multiple && (1..=ANSWER_IDS.len()).contains(&question.options.len())
    };
    if !request.questions.iter().all(fits) {
        return QuestionDelivery::Unsupported;
    }
    let replies = request
        .questions
        .iter()
        .map(|question| view.request_permission(session, permission_of(request, question)));
    QuestionDelivery::Permissions(replies.collect())
}

/// Builds the form: a field for each question, and a text field for an answer of the user's own.
fn form_of(request: &QuestionRequest) -> Form {
    let mut fields = Vec::new();
    let text = || FieldKind::Text(TextLimits::default());
    for (at, question) in request.questions.iter().enumerate() {
        let options = || question.options.iter().cloned().map(Into::into).collect();
        let kind = match (question.options.is_empty(), question.multiple) {
            (true, _) => text(),
            (false, true) => FieldKind::MultipleChoice(options(), ChoiceLimits::default()),
            (false, false) => FieldKind::SingleChoice(options(), None),
        };
        fields.push(FormField {
            key: field_key(at),
            title: question.header.clone(),
            description: Some(question.text.clone()),
            required: false,
            kind,
        });
        if !question.options.is_empty() {
            let title = format!("{}: something else", question.header);
            fields.push(FormField {
                key: own_text_key(at),
                title,
                description: None,
                required: false,
                kind: text(),
            });
        }
    }
    let message = match request.questions.as_slice() {
        [one] => one.text.clone(),
        many => format!("{} questions", many.len()),
    };
    Form {
        call: Some(request.call.clone()),
        message,
        page: FormPage::Fields(fields),
        finished: None,
    }
}

/// Returns the key of the field for the question at an index.
fn field_key(at: usize) -> String {
    format!("question{}", at + 1)
}

/// Returns the key of the text field for the user's own answer to the question at an index.
fn own_text_key(at: usize) -> String {
    format!("question{}_own", at + 1)
}

/// Builds the permission request in place of a question.
fn permission_of(request: &QuestionRequest, question: &Question) -> ChoiceRequest {
    let labels: Vec<&str> = question
        .options
        .iter()
        .map(|option| option.label.as_str())
        .collect();
    let call = CallUpdate {
        title: Some(base::text::title(&question.text)),
        kind: Some(ToolKind::Other),
        progress: Some(Progress::Pending),
        input: Some(json!({ "question": question.text, "options": labels })),
        ..CallUpdate::of(&request.call)
    };
    let mut text = escape(&question.text);
    for option in question
        .options
        .iter()
        .filter(|option| !option.description.is_empty())
    {
        text += &format!(
            "\n- {}",
            escape(&format!("{}: {}", option.label, option.description))
        );
    }
    // An answer is never stored, so all options are of the kind "once".
    let answers = question.options.iter().zip(ANSWER_IDS);
    let answers = answers.map(|(option, id)| AnswerOption {
        id,
        label: option.label.clone(),
        kind: AnswerKind::AllowOnce,
    });
    let neither = AnswerOption {
        id: NEITHER,
        label: "Something else".into(),
        kind: AnswerKind::Reject,
    };
    ChoiceRequest {
        call,
        text,
        answers: answers.chain([neither]).collect(),
        meta: None,
    }
}

/// Waits for the answers and sends them to the tool. Withdraws the questions if the receiver of the
/// reply is dropped. Returns the request if the connection ended before the answers.
pub async fn await_answers(
    delivery: QuestionDelivery,
    mut request: QuestionRequest,
) -> Option<QuestionRequest> {
    let questions = &request.questions;
    let reply = async {
        match delivery {
            QuestionDelivery::Unsupported => Some(QuestionReply::Unshown),
            QuestionDelivery::Form(client_reply) => match client_reply.await {
                Ok(FormAnswer::Submitted(filled)) => Some(form_answers(questions, &filled)),
                Ok(FormAnswer::Declined | FormAnswer::Cancelled) => Some(QuestionReply::Dismissed),
                Err(e) => reply_for_failure(&e),
            },
            QuestionDelivery::Permissions(all) => {
                let mut answers = Vec::new();
                for (client_reply, question) in all.into_iter().zip(questions) {
                    match client_reply.await {
                        Ok(picked) => match picked_option(question, picked) {
                            Some(answer) => answers.push(vec![answer]),
                            None => return Some(QuestionReply::Dismissed),
                        },
                        Err(e) => return reply_for_failure(&e),
                    }
                }
                Some(QuestionReply::Answers(answers))
            }
        }
    };
    let reply = tokio::select! {
        reply = reply => reply,
        () = request.reply.closed() => return None,
    };
    let Some(reply) = reply else {
        return Some(request);
    };
    // The receiver may have been cancelled.
    request.reply.send(reply).ok();
    None
}

/// Returns the reply for a failed request, or `None` if the connection has ended.
fn reply_for_failure(e: &CallError) -> Option<QuestionReply> {
    if matches!(e, CallError::Closed) {
        return None;
    }
    tracing::warn!("a question was not answered: {e}");
    // If the client refuses the form, the model can still ask in its message.
    Some(if matches!(e, CallError::Refused(_)) {
        QuestionReply::Unshown
    } else {
        QuestionReply::Dismissed
    })
}

/// Returns the option that was chosen in a permission request, or the user's comment if none was.
fn picked_option(question: &Question, picked: Option<PickedAnswer>) -> Option<String> {
    let PickedAnswer { id, comment } = picked?;
    if id == NEITHER {
        return comment;
    }
    let at = ANSWER_IDS.iter().position(|answer| *answer == id)?;
    question.options.get(at).map(|option| option.label.clone())
}

/// Returns the values of a form as answers. A value that was not offered is not an answer.
fn form_answers(questions: &[Question], filled: &FormValues) -> QuestionReply {
    QuestionReply::Answers(
        questions
            .iter()
            .enumerate()
            .map(|(at, question)| answers_to(question, at, filled))
            .collect(),
    )
}

/// Returns the answers to the question at an index.
fn answers_to(question: &Question, at: usize, filled: &FormValues) -> Vec<String> {
    let values_of = |key: String| filled.get(&key).cloned().unwrap_or_default();
    let cut = |text: String| base::text::head(text.trim(), MAX_ANSWER_BYTES).to_owned();
    if question.options.is_empty() {
        return values_of(field_key(at))
            .into_iter()
            .map(cut)
            .filter(|text| !text.is_empty())
            .take(1)
            .collect();
    }
    let is_offered = |label: &String| question.options.iter().any(|option| option.label == *label);
    let mut answers: Vec<String> = values_of(field_key(at))
        .into_iter()
        .filter(is_offered)
        .collect();
    if !question.multiple {
        answers.truncate(1);
    }
    let own_text: Vec<String> = values_of(own_text_key(at))
        .into_iter()
        .map(cut)
        .filter(|text| !text.is_empty())
        .take(1)
        .collect();
    // If the question takes only one answer, a text of the user's own replaces the option.
    if !own_text.is_empty() && !question.multiple {
        answers.clear();
    }
    answers.extend(own_text);
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::QuestionOption;

    fn question(labels: &[&str], multiple: bool) -> Question {
        let option = |label: &&str| QuestionOption {
            label: (*label).to_owned(),
            description: String::new(),
        };
        Question {
            header: "H".into(),
            text: "Q?".into(),
            options: labels.iter().map(option).collect(),
            multiple,
        }
    }

    #[test]
    fn answer_is_an_offered_option_or_own_text() {
        let single = question(&["a", "b"], false);
        let many = question(&["a", "b"], true);
        let words = question(&[], false);
        type Table<'a> = [(&'a Question, &'a [(&'a str, &'a [&'a str])], &'a [&'a str]); 9];
        let table: Table<'_> = [
            (&single, &[("question1", &["a"])], &["a"]),
            (&single, &[("question1", &["z"])], &[]),
            (&single, &[("question1", &["a", "b"])], &["a"]),
            (
                &single,
                &[("question1", &["a"]), ("question1_own", &[" mine "])],
                &["mine"],
            ),
            (&single, &[], &[]),
            (&many, &[("question1", &["b", "z", "a"])], &["b", "a"]),
            (
                &many,
                &[("question1", &["b"]), ("question1_own", &["mine"])],
                &["b", "mine"],
            ),
            (&words, &[("question1", &["as I say"])], &["as I say"]),
            (&words, &[("question1", &["  "])], &[]),
        ];
        let own = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        for (question, filled, expected) in table {
            let filled: FormValues = filled
                .iter()
                .map(|(key, words)| ((*key).to_owned(), own(words)))
                .collect();
            let answers = form_answers(std::slice::from_ref(question), &filled);
            assert_eq!(
                answers,
                QuestionReply::Answers(vec![own(expected)]),
                "{filled:?}"
            );
        }
    }

    #[test]
    fn option_that_was_not_offered_is_no_answer() {
        let two = question(&["a", "b"], false);
        let picked = |id: &str, text: Option<&str>| {
            Some(PickedAnswer {
                id: id.into(),
                comment: text.map(Into::into),
            })
        };
        for (id, expected) in [
            ("answer-1", Some("a")),
            ("answer-2", Some("b")),
            ("neither", None),
            ("once", None),
        ] {
            assert_eq!(
                picked_option(&two, picked(id, None)).as_deref(),
                expected,
                "{id}"
            );
        }
        assert_eq!(
            picked_option(&question(&["a"], false), picked("answer-2", None)),
            None
        );
        assert_eq!(
            picked_option(&two, picked("neither", Some("both"))).as_deref(),
            Some("both")
        );
        assert_eq!(picked_option(&two, None), None);
    }
}
