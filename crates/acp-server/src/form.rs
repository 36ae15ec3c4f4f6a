//! The model's questions as a form for the client, and the form's values as answers. For clients
//! without forms, each question becomes a permission request, if it has few enough answers.

use protocol::rpc::CallError;
use serde_json::json;

use super::markdown::plainly;
use super::view::{
    AnswerKind, AnswerOption, ChoiceRequest, Form, FormAnswer, FormValues, PickedAnswer,
    SessionView,
};
use base::id::SessionId;
use events::{
    CallUpdate, ChoiceLimits, FieldKind, FormField, FormPage, Progress, Question, QuestionReply,
    QuestionRequest, TextLimits, ToolKind,
};

/// The ids of the answers in a permission request.
const ANSWERS: [&str; 2] = ["answer-1", "answer-2"];

const NEITHER: &str = "neither";

/// The maximum length of an answer in bytes; the rest is cut off.
const MAX_ANSWER_BYTES: usize = 16 << 10;

pub enum QuestionPrompt {
    Form(super::view::ClientReply<FormAnswer>),
    /// One permission request for each question.
    Permissions(Vec<super::view::ClientReply<Option<PickedAnswer>>>),
    None,
}

/// Shows the questions: as a form if the client has `forms`, otherwise as permission requests if
/// they fit.
pub fn send_questions(
    session: &SessionId,
    inquiry: &QuestionRequest,
    forms: bool,
    view: &mut dyn SessionView,
) -> QuestionPrompt {
    if forms {
        return QuestionPrompt::Form(view.request_form(session, form(inquiry)));
    }
    let fits = |question: &Question| {
        !question.multiple && (1..=ANSWERS.len()).contains(&question.options.len())
    };
    if !inquiry.questions.iter().all(fits) {
        return QuestionPrompt::None;
    }
    let replies = inquiry
        .questions
        .iter()
        .map(|question| view.request_permission(session, permission(inquiry, question)));
    QuestionPrompt::Permissions(replies.collect())
}

fn form(inquiry: &QuestionRequest) -> Form {
    let mut fields = Vec::new();
    let text = || FieldKind::Text(TextLimits::default());
    for (at, question) in inquiry.questions.iter().enumerate() {
        let options = || question.options.iter().cloned().map(Into::into).collect();
        let kind = match (question.options.is_empty(), question.multiple) {
            (true, _) => text(),
            (false, true) => FieldKind::MultipleChoice(options(), ChoiceLimits::default()),
            (false, false) => FieldKind::SingleChoice(options(), None),
        };
        let words = Some(question.text.clone());
        fields.push(FormField {
            key: name(at),
            title: question.header.clone(),
            description: words,
            required: false,
            kind,
        });
        if !question.options.is_empty() {
            let title = format!("{}: something else", question.header);
            fields.push(FormField {
                key: own(at),
                title,
                description: None,
                required: false,
                kind: text(),
            });
        }
    }
    let message = match inquiry.questions.as_slice() {
        [one] => one.text.clone(),
        many => format!("{} questions", many.len()),
    };
    Form {
        call: Some(inquiry.call.clone()),
        message,
        page: FormPage::Fields(fields),
        finished: None,
    }
}

fn name(at: usize) -> String {
    format!("question{}", at + 1)
}

/// Returns the key of the text field for an answer that is not among the options.
fn own(at: usize) -> String {
    format!("question{}_own", at + 1)
}

fn permission(inquiry: &QuestionRequest, question: &Question) -> ChoiceRequest {
    let labels: Vec<&str> = question
        .options
        .iter()
        .map(|option| option.label.as_str())
        .collect();
    let show = CallUpdate {
        title: Some(base::text::title(&question.text)),
        kind: Some(ToolKind::Other),
        progress: Some(Progress::Pending),
        input: Some(json!({ "question": question.text, "options": labels })),
        ..CallUpdate::of(&inquiry.call)
    };
    let mut text = plainly(&question.text);
    for option in question
        .options
        .iter()
        .filter(|option| !option.description.is_empty())
    {
        text += &format!(
            "\n- {}",
            plainly(&format!("{}: {}", option.label, option.description))
        );
    }
    // An answer is never stored, so all options are of the kind "once".
    let once = question.options.iter().zip(ANSWERS);
    let once = once.map(|(option, id)| AnswerOption {
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
        call: show,
        text,
        answers: once.chain([neither]).collect(),
        meta: None,
    }
}

/// Waits for the answers and sends them to the tool. The questions are withdrawn if the receiver of
/// the reply is dropped. Returns the request if the connection ended before the answers.
pub async fn await_answers(
    prompt: QuestionPrompt,
    mut inquiry: QuestionRequest,
) -> Option<QuestionRequest> {
    let questions = &inquiry.questions;
    let reply = async {
        match prompt {
            QuestionPrompt::None => Some(QuestionReply::Unshown),
            QuestionPrompt::Form(client_reply) => match client_reply.await {
                Ok(FormAnswer::Submitted(filled)) => Some(filled_in(questions, &filled)),
                Ok(FormAnswer::Declined | FormAnswer::Cancelled) => Some(QuestionReply::Dismissed),
                Err(e) => refused(&e),
            },
            QuestionPrompt::Permissions(all) => {
                let mut answers = Vec::new();
                for (client_reply, question) in all.into_iter().zip(questions) {
                    match client_reply.await {
                        Ok(picked) => match chosen(question, picked) {
                            Some(answer) => answers.push(vec![answer]),
                            None => return Some(QuestionReply::Dismissed),
                        },
                        Err(e) => return refused(&e),
                    }
                }
                Some(QuestionReply::Answers(answers))
            }
        }
    };
    let reply = tokio::select! {
        reply = reply => reply,
        () = inquiry.reply.closed() => return None,
    };
    let Some(reply) = reply else {
        return Some(inquiry);
    };
    // The receiver may have been cancelled.
    inquiry.reply.send(reply).ok();
    None
}

/// Returns the reply for a failed request, or `None` if the connection has ended.
fn refused(e: &CallError) -> Option<QuestionReply> {
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
fn chosen(question: &Question, picked: Option<PickedAnswer>) -> Option<String> {
    let PickedAnswer { id, comment: words } = picked?;
    if id == NEITHER {
        return words;
    }
    let at = ANSWERS.iter().position(|answer| *answer == id)?;
    question.options.get(at).map(|option| option.label.clone())
}

/// Returns the values of a form as answers. A value that was not offered is not an answer.
fn filled_in(questions: &[Question], filled: &FormValues) -> QuestionReply {
    QuestionReply::Answers(
        questions
            .iter()
            .enumerate()
            .map(|(at, question)| answers(question, at, filled))
            .collect(),
    )
}

fn answers(question: &Question, at: usize, filled: &FormValues) -> Vec<String> {
    let words = |key: String| filled.get(&key).cloned().unwrap_or_default();
    let cut = |text: String| base::text::head(text.trim(), MAX_ANSWER_BYTES).to_owned();
    if question.options.is_empty() {
        return words(name(at))
            .into_iter()
            .map(cut)
            .filter(|words| !words.is_empty())
            .take(1)
            .collect();
    }
    let offered = |word: &String| question.options.iter().any(|option| option.label == *word);
    let mut given: Vec<String> = words(name(at)).into_iter().filter(offered).collect();
    if !question.multiple {
        given.truncate(1);
    }
    let own: Vec<String> = words(own(at))
        .into_iter()
        .map(cut)
        .filter(|words| !words.is_empty())
        .take(1)
        .collect();
    // If the question takes only one answer, a text of the user's own replaces the option.
    if !own.is_empty() && !question.multiple {
        given.clear();
    }
    given.extend(own);
    given
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
            let answers = filled_in(std::slice::from_ref(question), &filled);
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
            assert_eq!(chosen(&two, picked(id, None)).as_deref(), expected, "{id}");
        }
        assert_eq!(
            chosen(&question(&["a"], false), picked("answer-2", None)),
            None
        );
        assert_eq!(
            chosen(&two, picked("neither", Some("both"))).as_deref(),
            Some("both")
        );
        assert_eq!(chosen(&two, None), None);
    }
}
