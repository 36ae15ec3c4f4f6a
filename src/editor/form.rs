//! The model's questions as a form for the editor, and what was filled in as answers. Editors without
//! forms are asked in the way of a permission, where a question has no more answers than that has.

use std::collections::BTreeMap;

use protocol::acp::v1;
use protocol::rpc::{CallError, Peer};
use serde_json::json;

use super::card::plainly;
use super::update::ShownState;
use crate::event::{CallUpdate, Kind, Progress, Question, QuestionOption, QuestionReply, QuestionRequest};
use crate::id::SessionId;

/// The answers of a question in the way of a permission.
const ANSWERS: [&str; 2] = ["answer-1", "answer-2"];

/// None of them.
const NEITHER: &str = "neither";

/// The longest answer that is passed on, in bytes.
const LONGEST: usize = 16 << 10;

/// What goes to the editor.
#[derive(Debug)]
pub enum QuestionPrompt {
    /// A form with all questions.
    Form(Box<v1::CreateElicitationRequest>),
    /// One after the other, each like a permission.
    Permissions(Vec<v1::RequestPermissionRequest>),
    /// It cannot show them.
    None,
}

/// How questions are shown. `forms`: the editor has them.
pub fn way(session: &SessionId, inquiry: &QuestionRequest, forms: bool, seen: &mut ShownState) -> QuestionPrompt {
    if forms {
        return QuestionPrompt::Form(Box::new(form(session, inquiry)));
    }
    let fits = |question: &Question| !question.multiple && (1..=ANSWERS.len()).contains(&question.options.len());
    if !inquiry.questions.iter().all(fits) {
        return QuestionPrompt::None;
    }
    QuestionPrompt::Permissions(
        inquiry.questions.iter().map(|question| permission(session, inquiry, question, seen)).collect(),
    )
}

fn form(session: &SessionId, inquiry: &QuestionRequest) -> v1::CreateElicitationRequest {
    let mut schema = v1::ElicitationSchema::new();
    for (at, question) in inquiry.questions.iter().enumerate() {
        let option = |option: &QuestionOption| {
            let description = Some(option.description.clone()).filter(|words| !words.is_empty());
            v1::EnumOption::new(option.label.clone(), option.label.clone()).description(description)
        };
        let options: Vec<_> = question.options.iter().map(option).collect();
        let (title, words) = (Some(question.header.clone()), Some(question.text.clone()));
        let chosen: v1::ElicitationPropertySchema = match (options.is_empty(), question.multiple) {
            (true, _) => v1::StringPropertySchema::new().title(title).description(words).into(),
            (false, true) => v1::MultiSelectPropertySchema::titled(options).title(title).description(words).into(),
            (false, false) => v1::StringPropertySchema::new().title(title).description(words).one_of(options).into(),
        };
        schema = schema.property(name(at), chosen, false);
        if !question.options.is_empty() {
            let title = format!("{}: something else", question.header);
            schema = schema.property(own(at), v1::StringPropertySchema::new().title(title), false);
        }
    }
    let scope =
        v1::ElicitationSessionScope::new(session.share()).tool_call_id(v1::ToolCallId::from(inquiry.call.share()));
    let message = match inquiry.questions.as_slice() {
        [one] => one.text.clone(),
        many => format!("{} questions", many.len()),
    };
    v1::CreateElicitationRequest::new(v1::ElicitationFormMode::new(scope, schema), message)
}

fn name(at: usize) -> String {
    format!("question{}", at + 1)
}

/// Where an answer in words of one's own goes.
fn own(at: usize) -> String {
    format!("question{}_own", at + 1)
}

fn permission(
    session: &SessionId,
    inquiry: &QuestionRequest,
    question: &Question,
    seen: &mut ShownState,
) -> v1::RequestPermissionRequest {
    let labels: Vec<&str> = question.options.iter().map(|option| option.label.as_str()).collect();
    let show = CallUpdate {
        title: Some(crate::text::title(&question.text)),
        kind: Some(Kind::Other),
        progress: Some(Progress::Pending),
        input: Some(json!({ "question": question.text, "options": labels })),
        ..CallUpdate::of(&inquiry.call)
    };
    let mut words = plainly(&question.text);
    for option in question.options.iter().filter(|option| !option.description.is_empty()) {
        words += &format!("\n- {}", plainly(&format!("{}: {}", option.label, option.description)));
    }
    // An answer is for this once, whichever it is.
    let once = |(option, id): (&QuestionOption, &str)| {
        v1::PermissionOption::new(id.to_owned(), option.label.clone(), v1::PermissionOptionKind::AllowOnce)
    };
    let mut options: Vec<_> = question.options.iter().zip(ANSWERS).map(once).collect();
    options.push(v1::PermissionOption::new(NEITHER, "Something else", v1::PermissionOptionKind::RejectOnce));
    v1::RequestPermissionRequest::new(session.share(), seen.cards.question(&show, &words), options)
}

/// Asks, and gives the answers to whoever waits for them. When nobody does any more, the questions are
/// withdrawn.
pub async fn inquire(peer: &Peer, way: QuestionPrompt, inquiry: QuestionRequest) {
    let QuestionRequest { questions, mut reply, .. } = inquiry;
    let said = async {
        match way {
            QuestionPrompt::None => QuestionReply::Unshown,
            QuestionPrompt::Form(request) => match peer.call(&*request, None).await {
                Ok(response) => filled(&questions, response.action),
                Err(e) => refused(&e),
            },
            QuestionPrompt::Permissions(requests) => {
                let mut answers = Vec::new();
                for (request, question) in requests.iter().zip(&questions) {
                    match peer.call(request, None).await {
                        Ok(response) => match chosen(question, response.outcome) {
                            Some(answer) => answers.push(vec![answer]),
                            None => return QuestionReply::Dismissed,
                        },
                        Err(e) => return refused(&e),
                    }
                }
                QuestionReply::Answers(answers)
            }
        }
    };
    let said = tokio::select! {
        said = said => said,
        () = reply.closed() => return,
    };
    // Whoever asked may have been cancelled since.
    reply.send(said).ok();
}

fn refused(e: &CallError) -> QuestionReply {
    tracing::warn!("a question was not answered: {e}");
    // A form that the editor does not take can still be asked in words.
    if matches!(e, CallError::Refused(_)) { QuestionReply::Unshown } else { QuestionReply::Dismissed }
}

/// The option that was chosen in the way of a permission, or the words beside none of them.
fn chosen(question: &Question, outcome: v1::RequestPermissionOutcome) -> Option<String> {
    let v1::RequestPermissionOutcome::Selected(chosen) = outcome else { return None };
    if &*chosen.option_id.0 == NEITHER {
        return super::ask::words(&chosen);
    }
    let at = ANSWERS.iter().position(|id| *id == &*chosen.option_id.0)?;
    question.options.get(at).map(|option| option.label.clone())
}

/// What was filled into a form. What was not offered is no answer.
fn filled(questions: &[Question], action: v1::ElicitationAction) -> QuestionReply {
    let v1::ElicitationAction::Accept(accepted) = action else { return QuestionReply::Dismissed };
    let content = accepted.content.unwrap_or_default();
    QuestionReply::Answers(questions.iter().enumerate().map(|(at, question)| answers(question, at, &content)).collect())
}

fn answers(question: &Question, at: usize, content: &BTreeMap<String, v1::ElicitationContentValue>) -> Vec<String> {
    let words = |key: String| match content.get(&key) {
        Some(v1::ElicitationContentValue::String(words)) => vec![words.clone()],
        Some(v1::ElicitationContentValue::StringArray(many)) => many.clone(),
        Some(v1::ElicitationContentValue::Integer(number)) => vec![number.to_string()],
        Some(v1::ElicitationContentValue::Number(number)) => vec![number.to_string()],
        Some(v1::ElicitationContentValue::Boolean(yes)) => vec![if *yes { "yes" } else { "no" }.to_owned()],
        _ => Vec::new(),
    };
    let cut = |words: String| crate::text::head(words.trim(), LONGEST).to_owned();
    if question.options.is_empty() {
        return words(name(at)).into_iter().map(cut).filter(|words| !words.is_empty()).take(1).collect();
    }
    let offered = |word: &String| question.options.iter().any(|option| option.label == *word);
    let mut given: Vec<String> = words(name(at)).into_iter().filter(offered).collect();
    if !question.multiple {
        given.truncate(1);
    }
    let own: Vec<String> = words(own(at)).into_iter().map(cut).filter(|words| !words.is_empty()).take(1).collect();
    // Where only one answer counts, it is the one that was written.
    if !own.is_empty() && !question.multiple {
        given.clear();
    }
    given.extend(own);
    given
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn question(labels: &[&str], multiple: bool) -> Question {
        let option = |label: &&str| QuestionOption { label: (*label).to_owned(), description: String::new() };
        Question { header: "H".into(), text: "Q?".into(), options: labels.iter().map(option).collect(), multiple }
    }

    fn said(questions: &[Question], action: Value) -> QuestionReply {
        filled(questions, serde_json::from_value(action).unwrap())
    }

    #[test]
    fn only_what_was_offered_or_written_is_an_answer() {
        let (one, many, words) = (question(&["a", "b"], false), question(&["a", "b"], true), question(&[], false));
        let table = [
            (&one, json!({ "question1": "a" }), vec!["a"]),
            (&one, json!({ "question1": "z" }), vec![]),
            (&one, json!({ "question1": ["a", "b"] }), vec!["a"]),
            (&one, json!({ "question1": "a", "question1_own": " mine " }), vec!["mine"]),
            (&one, json!({ "question1": 7 }), vec![]),
            (&one, json!({}), vec![]),
            (&many, json!({ "question1": ["b", "z", "a"] }), vec!["b", "a"]),
            (&many, json!({ "question1": ["b"], "question1_own": "mine" }), vec!["b", "mine"]),
            (&words, json!({ "question1": "as I say" }), vec!["as I say"]),
            (&words, json!({ "question1": "  " }), vec![]),
            (&words, json!({ "question1": true }), vec!["yes"]),
        ];
        for (question, content, expected) in table {
            let answers = QuestionReply::Answers(vec![expected.iter().map(|word| (*word).to_owned()).collect()]);
            let shown = content.to_string();
            assert_eq!(
                said(std::slice::from_ref(question), json!({ "action": "accept", "content": content })),
                answers,
                "{shown}"
            );
        }
        for action in ["decline", "cancel", "postpone"] {
            assert_eq!(
                said(&[question(&["a"], false)], json!({ "action": action })),
                QuestionReply::Dismissed,
                "{action}"
            );
        }
        assert_eq!(
            said(&[question(&["a"], false)], json!({ "action": "accept" })),
            QuestionReply::Answers(vec![vec![]])
        );
    }

    #[test]
    fn an_option_that_was_not_offered_is_no_answer() {
        let two = question(&["a", "b"], false);
        let outcome =
            |id: &str| v1::RequestPermissionOutcome::Selected(v1::SelectedPermissionOutcome::new(id.to_owned()));
        for (id, expected) in [("answer-1", Some("a")), ("answer-2", Some("b")), ("neither", None), ("once", None)] {
            assert_eq!(chosen(&two, outcome(id)).as_deref(), expected, "{id}");
        }
        assert_eq!(chosen(&question(&["a"], false), outcome("answer-2")), None);
        let beside =
            json!({ "outcome": "selected", "optionId": "neither", "_meta": { "adjutant": { "words": " both " } } });
        let outcome = serde_json::from_value(beside).unwrap();
        assert_eq!(chosen(&two, outcome).as_deref(), Some("both"));
        assert_eq!(chosen(&two, v1::RequestPermissionOutcome::Cancelled), None);
    }
}
