//! A question put to the user, the answer brought back.
//!
//! What counts as a yes is decided by our own table of options: an option we did not offer, an
//! error, a garbled answer or none at all is a no.

use protocol::acp::{Explicit, v1};
use protocol::rpc::{CallError, Peer};

use serde_json::Value;
use tokio::sync::oneshot;

use super::card::{fenced, plainly};
use super::prompt::{WORDS, of_ours};
use super::update::ShownState;
use crate::event::{CallUpdate, Confirmation, Kind, PermissionReply, PermissionRequest, Progress};
use crate::id::SessionId;
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

/// The question as it goes to the editor: one option per kind. What is to be run stands first, then one
/// sentence why it is asked, then what else there is to know.
pub fn question(session: &SessionId, ask: &PermissionRequest, seen: &mut ShownState) -> v1::RequestPermissionRequest {
    use v1::PermissionOptionKind::{AllowAlways, AllowOnce, RejectOnce};
    let mut options = vec![v1::PermissionOption::new(ONCE, "Allow once", AllowOnce)];
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
        options.push(v1::PermissionOption::new(ALWAYS, format!("Always allow {short}"), AllowAlways));
    }
    options.push(v1::PermissionOption::new(REJECT, "Reject", RejectOnce));
    if !details.is_empty() {
        text.push(fenced("", &shown(details.trim_start())));
    }
    let show = seen.cards.question(&ask.show, &text.join("\n\n"));
    v1::RequestPermissionRequest::new(session.share(), show, options)
}

/// Asks, and gives the answer to whoever waits for it. When nobody waits any more — a grant, a
/// cancel — the question is withdrawn with `$/cancel_request`.
pub async fn ask(peer: &Peer, request: v1::RequestPermissionRequest, ask: PermissionRequest) {
    let mut reply = ask.reply;
    let request = Explicit(request);
    let Some(answer) = put(peer, &request, &mut reply).await else { return };
    let offered = |id: &str| request.0.options.iter().any(|option| *option.option_id.0 == *id);
    let answer = match answer.map(|answer| answer.outcome) {
        Ok(v1::RequestPermissionOutcome::Selected(chosen)) => match &*chosen.option_id.0 {
            ONCE => PermissionReply::Once,
            ALWAYS if offered(ALWAYS) => PermissionReply::Always,
            REJECT => PermissionReply::No(words(&chosen).map_or(Denial::Rejected, Denial::Corrected)),
            _ => PermissionReply::No(Denial::Rejected),
        },
        Ok(_) => PermissionReply::No(Denial::Rejected),
        Err(CallError::Closed) => return,
        Err(e) => {
            tracing::warn!("a question was not answered: {e}");
            PermissionReply::No(Denial::Rejected)
        }
    };
    // Whoever asked may have been cancelled since.
    reply.send(answer).ok();
}

/// Puts a question, which is withdrawn when nobody waits for its answer any more.
async fn put<T>(
    peer: &Peer,
    request: &Explicit<v1::RequestPermissionRequest>,
    reply: &mut oneshot::Sender<T>,
) -> Option<Result<v1::RequestPermissionResponse, CallError>> {
    tokio::select! {
        answer = peer.call(request, None) => Some(answer),
        () = reply.closed() => None,
    }
}

/// What the user says beside a no: the protocol has no place for it, so it comes in our `_meta`.
pub(super) fn words(chosen: &v1::SelectedPermissionOutcome) -> Option<String> {
    let words = of_ours(chosen.meta.as_ref(), WORDS)?.as_str()?.trim();
    (!words.is_empty()).then(|| words.to_owned())
}

/// A question about the session as it goes to the editor.
pub fn choice(session: &SessionId, choose: &Confirmation, seen: &mut ShownState) -> v1::RequestPermissionRequest {
    use v1::PermissionOptionKind::{AllowAlways, RejectOnce};
    let show = CallUpdate {
        title: Some(text::escaped(&choose.title)),
        kind: Some(Kind::Other),
        progress: Some(Progress::Pending),
        input: Some(choose.facts.clone()),
        ..CallUpdate::of(&choose.call)
    };
    let options = vec![
        v1::PermissionOption::new(YES, choose.yes, AllowAlways),
        v1::PermissionOption::new(NO, choose.no, RejectOnce),
    ];
    v1::RequestPermissionRequest::new(session.share(), seen.cards.question(&show, &shown(&choose.text)), options)
}

/// Asks it. Only an answer that was offered is one.
pub async fn choose(peer: &Peer, request: v1::RequestPermissionRequest, choose: Confirmation) {
    let mut reply = choose.reply;
    let answer = match put(peer, &Explicit(request), &mut reply).await {
        None => return,
        Some(answer) => answer.map(|answer| answer.outcome),
    };
    let answer = match answer {
        Ok(v1::RequestPermissionOutcome::Selected(chosen)) => match &*chosen.option_id.0 {
            YES => true,
            NO => false,
            _ => return,
        },
        Ok(_) | Err(CallError::Closed) => return,
        Err(e) => {
            tracing::warn!("a question was not answered: {e}");
            return;
        }
    };
    // Whoever asked may have been cancelled since.
    reply.send(answer).ok();
}
