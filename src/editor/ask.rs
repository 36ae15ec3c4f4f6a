//! A question put to the user, the answer brought back.
//!
//! What counts as a yes is decided by our own table of answers: one we did not offer, an
//! error, a garbled answer or none at all is a no.

use protocol::rpc::CallError;
use serde_json::Value;
use tokio::sync::oneshot;

use super::face::{AnswerKind, AnswerOption, ChoiceRequest, EditorAnswer, PickedAnswer};
use super::markdown::{fenced, plainly};
use crate::event::{CallUpdate, Confirmation, PermissionReply, PermissionRequest, Progress, ToolKind};
use crate::permission::Denial;
use crate::text::{self, shown};

const ONCE: &str = "once";
const ALWAYS: &str = "always";
const REJECT: &str = "reject";

/// The answers to a question about the session.
pub const YES: &str = "yes";
const NO: &str = "no";

/// Longest name of an option, in characters: some editors lay them out in a row.
const NAME: usize = 60;

/// May this call go on? One answer per kind. What is to be run stands first, then one sentence why it is
/// asked, then what else there is to know.
pub fn question(ask: &PermissionRequest) -> ChoiceRequest {
    let answer = |id, name: String, kind| AnswerOption { id, name, kind };
    let mut answers = vec![answer(ONCE, "Allow once".into(), AnswerKind::Once)];
    let whose = ask.agent.as_ref().map_or_else(|| "The agent".to_owned(), |agent| format!("The {agent} subagent"));
    let command = ask.show.metadata.as_ref().and_then(|facts| facts.get("command")).and_then(Value::as_str);
    let mut text: Vec<String> = command.map(|command| fenced("sh", &shown(command))).into_iter().collect();
    text.push(plainly(&shown(&text::sentences([format!("{whose} asks {}", ask.reason).as_str()]))));
    let mut details = ask.details.clone();
    if let Some(always) = &ask.always {
        let whole = text::escaped(always);
        let short = text::cut_chars(&whole, NAME - "Always allow ".len());
        if short != whole {
            // What is granted must be seen word for word.
            details = format!("{details}\n\"Always\" would allow: {whole}");
        }
        answers.push(answer(ALWAYS, format!("Always allow {short}"), AnswerKind::Always));
    }
    answers.push(answer(REJECT, "Reject".into(), AnswerKind::No));
    if !details.is_empty() {
        text.push(fenced("", &shown(details.trim_start())));
    }
    ChoiceRequest { show: ask.show.clone(), text: text.join("\n\n"), answers }
}

/// Waits for the answer, and gives it to whoever waits for it. When nobody waits any more — a grant, a
/// cancel — the question is withdrawn. It comes back when the connection has ended before its answer.
pub async fn ask(asking: EditorAnswer<Option<PickedAnswer>>, mut ask: PermissionRequest) -> Option<PermissionRequest> {
    let answer = answered(asking, &mut ask.reply).await?;
    let answer = match answer {
        Ok(Some(PickedAnswer { id, words })) => match &*id {
            ONCE => PermissionReply::Once,
            ALWAYS if ask.always.is_some() => PermissionReply::Always,
            REJECT => PermissionReply::No(words.map_or(Denial::Rejected, Denial::Corrected)),
            _ => PermissionReply::No(Denial::Rejected),
        },
        Ok(None) => PermissionReply::No(Denial::Rejected),
        Err(CallError::Closed) => return Some(ask),
        Err(e) => {
            tracing::warn!("a question was not answered: {e}");
            PermissionReply::No(Denial::Rejected)
        }
    };
    // Whoever asked may have been cancelled since.
    ask.reply.send(answer).ok();
    None
}

/// Waits for an answer as long as somebody waits for it here.
async fn answered<T, R>(asking: EditorAnswer<T>, reply: &mut oneshot::Sender<R>) -> Option<Result<T, CallError>> {
    tokio::select! {
        answer = asking => Some(answer),
        () = reply.closed() => None,
    }
}

pub fn choice(choose: &Confirmation) -> ChoiceRequest {
    let show = CallUpdate {
        title: Some(text::escaped(&choose.title)),
        kind: Some(ToolKind::Other),
        progress: Some(Progress::Pending),
        input: Some(choose.facts.clone()),
        ..CallUpdate::of(&choose.call)
    };
    let answers = vec![
        AnswerOption { id: YES, name: choose.yes.to_owned(), kind: AnswerKind::Always },
        AnswerOption { id: NO, name: choose.no.to_owned(), kind: AnswerKind::No },
    ];
    ChoiceRequest { show, text: shown(&choose.text).into_owned(), answers }
}

/// Waits for its answer. Only one that was offered is one. It comes back when the connection has ended before.
pub async fn choose(asking: EditorAnswer<Option<PickedAnswer>>, mut choose: Confirmation) -> Option<Confirmation> {
    let answer = match answered(asking, &mut choose.reply).await? {
        Ok(Some(picked)) => match &*picked.id {
            YES => true,
            NO => false,
            _ => return None,
        },
        Ok(None) => return None,
        Err(CallError::Closed) => return Some(choose),
        Err(e) => {
            tracing::warn!("a question was not answered: {e}");
            return None;
        }
    };
    // Whoever asked may have been cancelled since.
    choose.reply.send(answer).ok();
    None
}
