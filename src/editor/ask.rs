//! A question put to the user, the answer brought back.
//!
//! What counts as a yes is decided by our own table of options: an option we did not offer, an
//! error, a garbled answer or none at all is a no.

use protocol::acp::{Explicit, v1};
use protocol::rpc::{CallError, Peer};

use super::prompt::{WORDS, of_ours};
use super::update::{self, Seen};
use crate::event::{Answer, Ask, CallUpdate, Choose, Kind, Progress};
use crate::id::SessionId;
use crate::permission::Denial;

const ONCE: &str = "once";
const ALWAYS: &str = "always";
const REJECT: &str = "reject";

/// The answers to a question about the session.
pub const YES: &str = "yes";
const NO: &str = "no";

/// Longest name of an option, in characters: some editors lay them out in a row.
const NAME: usize = 60;

/// The question as it goes to the editor: one option per kind.
pub fn question(session: &SessionId, ask: &Ask, seen: &Seen) -> v1::RequestPermissionRequest {
    use v1::PermissionOptionKind::{AllowAlways, AllowOnce, RejectOnce};
    let mut options = vec![v1::PermissionOption::new(ONCE, "Allow once", AllowOnce)];
    let mut reason = match &ask.agent {
        Some(agent) => format!("The {agent} subagent {}", ask.reason),
        None => ask.reason.clone(),
    };
    if let Some(always) = &ask.always {
        let whole = crate::text::escaped(always);
        let shown = crate::text::cut_chars(&whole, NAME - "Always allow ".len());
        if shown != whole {
            // What is granted must be seen word for word.
            reason += &format!("\n\n\"Always\" would allow: {whole}");
        }
        options.push(v1::PermissionOption::new(ALWAYS, format!("Always allow {shown}"), AllowAlways));
    }
    options.push(v1::PermissionOption::new(REJECT, "Reject", RejectOnce));
    v1::RequestPermissionRequest::new(
        session.share(),
        update::question(&ask.show, &crate::text::shown(&reason), seen),
        options,
    )
}

/// Asks, and gives the answer to whoever waits for it. When nobody waits any more — a grant, a
/// cancel — the question is withdrawn with `$/cancel_request`.
pub async fn ask(peer: &Peer, request: v1::RequestPermissionRequest, ask: Ask) {
    let mut reply = ask.reply;
    let request = Explicit(request);
    let answer = tokio::select! {
        answer = peer.call(&request, None) => answer,
        () = reply.closed() => return,
    };
    let offered = |id: &str| request.0.options.iter().any(|option| *option.option_id.0 == *id);
    let answer = match answer.map(|answer| answer.outcome) {
        Ok(v1::RequestPermissionOutcome::Selected(chosen)) => match &*chosen.option_id.0 {
            ONCE => Answer::Once,
            ALWAYS if offered(ALWAYS) => Answer::Always,
            REJECT => Answer::No(words(&chosen).map_or(Denial::Rejected, Denial::Corrected)),
            _ => Answer::No(Denial::Rejected),
        },
        Ok(_) => Answer::No(Denial::Rejected),
        Err(CallError::Closed) => return,
        Err(e) => {
            tracing::warn!("a question was not answered: {e}");
            Answer::No(Denial::Rejected)
        }
    };
    // Whoever asked may have been cancelled since.
    reply.send(answer).ok();
}

/// What the user says beside a no: the protocol has no place for it, so it comes in our `_meta`.
pub(super) fn words(chosen: &v1::SelectedPermissionOutcome) -> Option<String> {
    let words = of_ours(chosen.meta.as_ref(), WORDS)?.as_str()?.trim();
    (!words.is_empty()).then(|| words.to_owned())
}

/// A question about the session as it goes to the editor.
pub fn choice(session: &SessionId, choose: &Choose, seen: &Seen) -> v1::RequestPermissionRequest {
    use v1::PermissionOptionKind::{AllowAlways, RejectOnce};
    let show = CallUpdate {
        title: Some(crate::text::escaped(&choose.title)),
        kind: Some(Kind::Other),
        progress: Some(Progress::Pending),
        input: Some(choose.facts.clone()),
        ..CallUpdate::of(&choose.call)
    };
    let options = vec![
        v1::PermissionOption::new(YES, choose.yes, AllowAlways),
        v1::PermissionOption::new(NO, choose.no, RejectOnce),
    ];
    v1::RequestPermissionRequest::new(
        session.share(),
        update::question(&show, &crate::text::shown(&choose.text), seen),
        options,
    )
}

/// Asks it. Only an answer that was offered is one.
pub async fn choose(peer: &Peer, request: v1::RequestPermissionRequest, choose: Choose) {
    let mut reply = choose.reply;
    let request = Explicit(request);
    let answer = tokio::select! {
        answer = peer.call(&request, None) => answer,
        () = reply.closed() => return,
    };
    let answer = match answer.map(|answer| answer.outcome) {
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
