//! `question`: asks the user questions, if a user is present to answer.
//!
//! Limits: five questions with twelve answers each.
//!
//! It needs no permission, because the question itself is shown to the user. It is not offered if
//! the user cannot be asked (without an editor, in a subagent).

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use crate::aliases::Aliases;
use crate::{Availability, CallDescription, Failure, PermissionKey, Tool, ToolContext, ToolOutput};
use base::text;
use events::{self, QuestionReply, QuestionRequest, ToolKind, TurnMessage};
use permission::AccessRequest;
use transcript::CallFacts;

/// The maximum number of questions of a call.
const MAX_QUESTIONS: usize = 5;

/// The maximum number of options of a question.
const MAX_OPTIONS: usize = 12;

/// The maximum length of a header, in characters.
const MAX_HEADER_CHARS: usize = 30;

/// The maximum length of a label, in characters.
const MAX_LABEL_CHARS: usize = 100;

#[derive(Default)]
pub struct QuestionTool;

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    pub questions: Vec<QuestionInput>,
}

// A schema costs tokens in every request, so self-explanatory names have no descriptions here.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct QuestionInput {
    pub question: String,
    /// Two or three words
    pub header: String,
    /// None if it is answered in words
    #[serde(default)]
    #[schemars(with = "Vec<ChoiceInput>")]
    pub options: Option<Vec<ChoiceInput>>,
    pub multiple: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub struct ChoiceInput {
    pub label: String,
    #[serde(default)]
    #[schemars(with = "String")]
    pub description: Option<String>,
}

impl Tool for QuestionTool {
    const NAME: &'static str = "question";
    const DESCRIPTION: &'static str = include_str!("question.md");
    const KIND: ToolKind = ToolKind::Other;
    // Two forms at once could be answered in the wrong order.
    const CONCURRENT: bool = false;
    const AVAILABILITY: Availability = Availability::ByName;
    const PERMISSION_KEY: Option<PermissionKey> =
        Some(PermissionKey::acting("Asking you a question."));
    const ALIASES: Aliases = Aliases {
        tool_names: &["ask", "askuser", "askuserquestion", "askquestion"],
        field_values: &[],
        fields: &[],
    };
    type Input = Input;
    type Ready = Vec<events::Question>;

    fn describe(input: &Input, _: &ToolContext) -> CallDescription {
        let title = match input.questions.as_slice() {
            [one] => text::title(&one.question),
            many => text::title(
                &many
                    .iter()
                    .map(|item| item.header.trim())
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
        };
        CallDescription {
            title,
            locations: Vec::new(),
        }
    }

    async fn prepare(
        &self,
        input: Input,
        _: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Vec<events::Question>), Failure> {
        if input.questions.is_empty() || input.questions.len() > MAX_QUESTIONS {
            return Err(Failure::ForModel(format!(
                "Ask one to {MAX_QUESTIONS} questions, not {}.",
                input.questions.len()
            )));
        }
        let questions = input
            .questions
            .into_iter()
            .map(checked)
            .collect::<Result<_, _>>();
        Ok((Vec::new(), questions.map_err(Failure::ForModel)?))
    }

    async fn run(
        &self,
        questions: Vec<events::Question>,
        context: ToolContext,
    ) -> Result<ToolOutput, Failure> {
        let (reply, answer) = oneshot::channel();
        let inquiry = QuestionRequest {
            call: context.call.id.clone(),
            questions: questions.clone(),
            reply,
        };
        if !context
            .client
            .event_sender
            .send(TurnMessage::AskQuestions(Box::new(inquiry)))
            .await
        {
            return Err(Failure::Cancelled);
        }
        let answer = tokio::select! {
            answer = answer => answer,
            () = context.cancelled.cancelled() => return Err(Failure::Cancelled),
        };
        match answer {
            Ok(QuestionReply::Answers(answers)) => Ok(output(&questions, &answers)),
            Ok(QuestionReply::Dismissed) => Err(Failure::Stopped(
                "The user dismissed the question. Do not ask it again; wait for their message."
                    .into(),
            )),
            // The question was dropped, or the editor cannot show it.
            Ok(QuestionReply::Unshown) | Err(_) => Err(Failure::for_model(
                "The user's editor cannot show this question. Ask it in your answer, with the options as a numbered list, and end your turn.",
            )),
        }
    }
}

/// Checks a question and returns it as it is shown. The error is a message for the model.
fn checked(item: QuestionInput) -> Result<events::Question, String> {
    let words = text::escaped(item.question.trim()).replace("\\n", "\n");
    if words.is_empty() {
        return Err("A question is empty.".into());
    }
    let header = match item.header.trim() {
        "" => text::cut_chars(&text::title(&words), MAX_HEADER_CHARS),
        header => text::cut_chars(&text::title(header), MAX_HEADER_CHARS),
    };
    let options = item.options.unwrap_or_default();
    if options.len() > MAX_OPTIONS {
        return Err(format!(
            "\"{header}\" has {} options; {MAX_OPTIONS} can be shown.",
            options.len()
        ));
    }
    let mut labels = HashSet::new();
    let mut shown = Vec::with_capacity(options.len());
    for option in options {
        let label = text::cut_chars(&text::escaped(option.label.trim()), MAX_LABEL_CHARS);
        if label.is_empty() {
            return Err(format!("An option of \"{header}\" has no label."));
        }
        if !labels.insert(label.clone()) {
            return Err(format!("\"{header}\" has the option \"{label}\" twice."));
        }
        let description = text::escaped(option.description.as_deref().unwrap_or_default().trim());
        shown.push(events::QuestionOption { label, description });
    }
    let multiple = item.multiple == Some(true) && shown.len() > 1;
    Ok(events::Question {
        header,
        text: words,
        options: shown,
        multiple,
    })
}

/// Formats the answers, a list for each question, for the model and for people.
fn output(questions: &[events::Question], answers: &[Vec<String>]) -> ToolOutput {
    let none = Vec::new();
    let answer = |at: usize| answers.get(at).unwrap_or(&none);
    let joined = |at: usize| match answer(at).join(", ") {
        words if words.is_empty() => "(no answer)".to_owned(),
        words => words,
    };
    let lines = questions
        .iter()
        .enumerate()
        .map(|(at, question)| match answer(at).as_slice() {
            [] => format!("\"{}\": no answer", question.text),
            given => {
                let given: Vec<String> = given.iter().map(|words| format!("\"{words}\"")).collect();
                format!("\"{}\": {}", question.text, given.join(", "))
            }
        });
    let lines: Vec<String> = lines.collect();
    let display: Vec<String> = questions
        .iter()
        .enumerate()
        .map(|(at, question)| format!("{}: {}", question.header, joined(at)))
        .collect();
    let all: Vec<Value> = (0..questions.len()).map(|at| json!(answer(at))).collect();
    ToolOutput {
        display: Some(display.join("\n")),
        metadata: Map::from_iter([(CallFacts::ANSWERS.to_owned(), Value::Array(all))]),
        ..ToolOutput::text(format!("The user has answered.\n\n{}", lines.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::erase;
    use crate::test::TestProject;

    async fn ask(input: Value, comment: Option<QuestionReply>) -> Result<ToolOutput, String> {
        let fixture = TestProject::new();
        let (context, mut up) = fixture.listened();
        let tool = erase(QuestionTool);
        let prepared = tool
            .prepare(input, &context)
            .await
            .map_err(|e| e.to_string())?;
        assert!(prepared.requests.is_empty());
        let answering = async {
            let Some(TurnMessage::AskQuestions(inquiry)) = up.recv().await else {
                panic!("nothing was asked")
            };
            if let Some(comment) = comment {
                inquiry.reply.send(comment).unwrap();
            }
        };
        let (output, ()) = tokio::join!((prepared.run)(context), answering);
        output.map_err(|e| {
            format!(
                "{}{e}",
                if matches!(e, Failure::Stopped(_)) {
                    "stopped: "
                } else {
                    ""
                }
            )
        })
    }

    fn which() -> Value {
        json!({ "questions": [
            { "question": "Which one?", "header": "Kind", "options": [{ "label": "A", "description": "first" }, { "label": "B" }] },
            { "question": "Why?", "header": "" },
        ]})
    }

    #[tokio::test]
    async fn answers_are_returned_to_the_model() {
        let answers = QuestionReply::Answers(vec![vec!["B".into()], vec![]]);
        let output = ask(which(), Some(answers)).await.unwrap();
        assert_eq!(
            output.text,
            "The user has answered.\n\n\"Which one?\": \"B\"\n\"Why?\": no answer"
        );
        assert_eq!(output.display.unwrap(), "Kind: B\nWhy?: (no answer)");
        assert_eq!(output.metadata["answers"], json!([["B"], []]));
        assert!(
            ask(which(), Some(QuestionReply::Dismissed))
                .await
                .unwrap_err()
                .starts_with("stopped: The user dismissed")
        );
        for unshown in [Some(QuestionReply::Unshown), None] {
            assert!(
                ask(which(), unshown)
                    .await
                    .unwrap_err()
                    .contains("cannot show this question")
            );
        }
    }

    #[tokio::test]
    async fn invalid_questions_are_refused() {
        let single = |question: Value| json!({ "questions": [question] });
        let label = |label: &str| json!({ "label": label });
        let table = [
            (json!({ "questions": [] }), "Ask one to 5 questions, not 0."),
            (
                json!({ "questions": vec![json!({ "question": "a", "header": "b" }); 6] }),
                "Ask one to 5 questions, not 6.",
            ),
            (
                single(json!({ "question": " ", "header": "b" })),
                "A question is empty.",
            ),
            (
                single(
                    json!({ "question": "a", "header": "b", "options": [label("x"), label("x")] }),
                ),
                "\"b\" has the option \"x\" twice.",
            ),
            (
                single(json!({ "question": "a", "header": "b", "options": [label("")] })),
                "An option of \"b\" has no label.",
            ),
            (
                single(
                    json!({ "question": "a", "header": "b", "options": (0..13).map(|n| label(&n.to_string())).collect::<Vec<_>>() }),
                ),
                "\"b\" has 13 options; 12 can be shown.",
            ),
            (
                single(json!({ "header": "b" })),
                "questions[0].question is missing",
            ),
        ];
        for (input, expected) in table {
            let message = ask(input, None).await.unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
