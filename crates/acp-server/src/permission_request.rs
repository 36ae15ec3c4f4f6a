//! Permission requests and confirmations: builds the question to the user and decodes the answer.
//!
//! Only an answer that was offered can permit a call. Any other id, an error, or no answer is treated as
//! a rejection.

use protocol::rpc::CallError;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::markdown::{code_block, escape, inline_code, list};
use super::meta::{DETAILS, UNATTENDED, WHY_NOT_ALWAYS, with_members};
use super::view::{AnswerKind, AnswerOption, ChoiceRequest, ClientReply, PickedAnswer};
use base::text::{self, shown};
use events::{CallUpdate, Confirmation, PermissionReply, PermissionRequest, Progress, ToolKind};
use permission::Denial;
use permission::wording::{QuestionWording, Reason};

const ONCE: &str = "once";
const ALWAYS: &str = "always";
const REJECT: &str = "reject";

/// The id of the answer that accepts a [`Confirmation`].
pub const YES: &str = "yes";
/// The id of the answer that rejects a [`Confirmation`].
const NO: &str = "no";

/// The maximum length of an answer's label in characters: some editors show the answers in a row.
const MAX_LABEL_CHARS: usize = 60;

/// Builds the question whether a call may continue. The answers are "once", "always" if it is offered,
/// and "reject". The text consists of the command, unless the title shows it in full, of a sentence
/// with the reasons, and of the details. With `is_short`, the client shows some of these on request.
pub fn permission_choice(request: &PermissionRequest, is_short: bool) -> ChoiceRequest {
    let answer = |id, label: String, kind| AnswerOption { id, label, kind };
    let mut answers = vec![answer(ONCE, "Allow once".into(), AnswerKind::AllowOnce)];
    let command = request
        .show
        .metadata
        .as_ref()
        .and_then(|facts| facts.get("command"))
        .and_then(Value::as_str);
    let command = command.filter(|command| request.show.title.as_deref() != Some(*command));
    let mut text: Vec<String> = command
        .map(|command| code_block("sh", &shown(command)))
        .into_iter()
        .collect();
    text.extend(action_and_reasons(request));
    let mut details: Vec<String> = request
        .details
        .iter()
        .map(|line| escape(&shown(line)))
        .collect();
    if let Some(sandbox) = &request.sandbox {
        let short = sandbox.effect.as_ref().filter(|_effect| is_short);
        let described = short.unwrap_or(&sandbox.restrictions);
        details.push(escape(&shown(&format!("Sandbox: {described}."))));
    }
    details.extend(
        request
            .wording
            .rules
            .iter()
            .map(|rule| format!("Rule: {}", inline_code(&text::escaped(rule)))),
    );
    if let Some(always) = &request.always {
        let pattern = text::escaped(&always.text);
        let short = if is_short {
            pattern.clone()
        } else {
            text::cut_chars(&pattern, MAX_LABEL_CHARS - "Always allow ".len())
        };
        if short != pattern {
            // The user must see the exact pattern that is granted.
            details.push(format!("\"Always\" would allow: {}", escape(&pattern)));
        }
        answers.push(answer(
            ALWAYS,
            format!("Always allow {short}"),
            AnswerKind::AllowAlways,
        ));
    }
    answers.push(answer(REJECT, "Reject".into(), AnswerKind::Reject));
    if !details.is_empty() {
        // A list after the list of reasons would continue it.
        match details.as_slice() {
            [only] if request.wording.has_listed_reasons() => text.push(only.clone()),
            _ => {
                if request.wording.has_listed_reasons() {
                    text.push("Details:".to_owned());
                }
                text.push(list(&details));
            }
        }
    }
    let unattended = request.unattended.as_ref().map(
        |allowing| json!({ "reason": request.wording.short_reason(), "permission": allowing }),
    );
    let why_not_always = request.why_not_always.as_deref().map(Value::from);
    let meta = with_members([
        (UNATTENDED, unattended),
        (WHY_NOT_ALWAYS, why_not_always),
        (DETAILS, is_short.then(|| question_details(request))),
    ]);
    ChoiceRequest {
        call: request.show.clone(),
        text: text.join("\n\n"),
        answers,
        meta,
    }
}

/// Returns the details that a client shows on request.
fn question_details(request: &PermissionRequest) -> Value {
    let sandbox = request.sandbox.as_ref();
    let always = request.always.as_ref().map(|grant| {
        json!({ "text": grant.text, "permissions": grant.permissions, "agent": grant.agent })
    });
    json!({ "sandbox": sandbox.map(|sandbox| &sandbox.restrictions), "always": always })
}

/// Describes the action and the reasons of the question as Markdown: a paragraph, then a list if there
/// is more than one reason, then a quote if there is one.
fn action_and_reasons(request: &PermissionRequest) -> Vec<String> {
    let QuestionWording {
        action,
        object,
        object_clauses,
        quote,
        complete_question,
        ..
    } = &request.wording;
    if let Some(question) = complete_question {
        return vec![escape(&shown(&text::sentences([question.as_str()])))];
    }
    let subject = request.agent.as_ref().map_or_else(
        || "The agent".to_owned(),
        |agent| format!("The {agent} subagent"),
    );
    let mut sentence = escape(&shown(&format!("{subject} wants to {action}")));
    if let Some(object) = object {
        sentence.push_str(&format!(" {}", inline_code(&text::escaped(object))));
    }
    let clauses: Vec<String> = object_clauses
        .iter()
        .map(|clause| format!("which {}", escape(&shown(clause))))
        .collect();
    if !clauses.is_empty() {
        sentence.push_str(&format!(", {}", clauses.join(" and ")));
    }
    sentence.push('.');
    let format_reason = |Reason { part, clause }: &Reason| match part {
        Some(part) => format!("{}: {}", inline_code(part), escape(&shown(clause))),
        None => escape(&shown(clause)),
    };
    let mut all = match request.wording.stated_reasons() {
        [] => vec![sentence],
        [one @ Reason { part: None, .. }] => {
            vec![format!(
                "{sentence} You are asked because {}.",
                format_reason(one)
            )]
        }
        [one] => vec![format!(
            "{sentence} You are asked because of {}.",
            format_reason(one)
        )],
        several => {
            let lines: Vec<String> = several.iter().map(format_reason).collect();
            vec![
                format!("{sentence} You are asked because of:"),
                list(&lines),
            ]
        }
    };
    all.extend(quote.as_ref().map(|quote| code_block("", &shown(quote))));
    all
}

/// Waits for the answer and sends it to the turn. If the turn no longer waits for it, for example
/// after a grant or a cancellation, the question is withdrawn. Returns the request if the
/// connection ended before the answer.
pub async fn await_permission(
    client_reply: ClientReply<Option<PickedAnswer>>,
    mut request: PermissionRequest,
) -> Option<PermissionRequest> {
    let answer = await_answer(client_reply, &mut request.reply).await?;
    let answer = match answer {
        Ok(Some(PickedAnswer { id, comment })) => match &*id {
            ONCE => PermissionReply::Once,
            ALWAYS if request.always.is_some() => PermissionReply::Always,
            REJECT => PermissionReply::No(comment.map_or(Denial::Rejected, Denial::Corrected)),
            _ => PermissionReply::No(Denial::Rejected),
        },
        Ok(None) => PermissionReply::No(Denial::Rejected),
        Err(CallError::Closed) => return Some(request),
        Err(e) => {
            tracing::warn!("a question was not answered: {e}");
            PermissionReply::No(Denial::Rejected)
        }
    };
    // The receiver may have been cancelled.
    request.reply.send(answer).ok();
    None
}

/// Waits for an answer. Returns `None` if the receiver of the reply is dropped first.
async fn await_answer<T, R>(
    client_reply: ClientReply<T>,
    reply: &mut oneshot::Sender<R>,
) -> Option<Result<T, CallError>> {
    tokio::select! {
        answer = client_reply => Some(answer),
        () = reply.closed() => None,
    }
}

/// Builds the question of a confirmation, with its two answers.
pub fn confirmation_choice(confirmation: &Confirmation) -> ChoiceRequest {
    let call = CallUpdate {
        title: Some(text::escaped(&confirmation.title)),
        kind: Some(ToolKind::Other),
        progress: Some(Progress::Pending),
        input: Some(confirmation.facts.clone()),
        changes: (!confirmation.changes.is_empty()).then(|| confirmation.changes.clone()),
        ..CallUpdate::of(&confirmation.call)
    };
    let answers = vec![
        AnswerOption {
            id: YES,
            label: confirmation.yes.to_owned(),
            kind: AnswerKind::AllowAlways,
        },
        AnswerOption {
            id: NO,
            label: confirmation.no.to_owned(),
            kind: AnswerKind::Reject,
        },
    ];
    ChoiceRequest {
        call,
        text: shown(&confirmation.text).into_owned(),
        answers,
        meta: None,
    }
}

/// Waits for the answer to a confirmation and sends it to the turn. An id that was not offered is
/// ignored. Returns the confirmation if the connection ended before the answer.
pub async fn await_confirmation(
    client_reply: ClientReply<Option<PickedAnswer>>,
    mut confirmation: Confirmation,
) -> Option<Confirmation> {
    let answer = match await_answer(client_reply, &mut confirmation.reply).await? {
        Ok(Some(picked)) => match &*picked.id {
            YES => true,
            NO => false,
            _ => return None,
        },
        Ok(None) => return None,
        Err(CallError::Closed) => return Some(confirmation),
        Err(e) => {
            tracing::warn!("a question was not answered: {e}");
            return None;
        }
    };
    // The receiver may have been cancelled.
    confirmation.reply.send(answer).ok();
    None
}
