//! May a call go on? The rules decide, and where they say so the user is asked: here and nowhere else.

use std::borrow::Cow;

use serde_json::Value;
use tokio::sync::oneshot;

use super::{TurnContext, hooks, later};
use crate::agent::Agent;
use crate::approvals::Approvals;
use crate::event::{CallUpdate, PermissionReply, PermissionRequest, Progress, TurnMessage};
use crate::message::Call;
use crate::permission::approve::{self, settles};
use crate::permission::explain::{explain, unit_line};
use crate::permission::{Action, Denial, Need, Verdict};
use crate::tool::{Failure, refusal};

/// Judges a need, and asks where the rules say so.
pub(super) async fn permit(
    scope: &TurnContext,
    agent: &Agent,
    call: &Call,
    need: &Need,
    reason: Option<String>,
) -> Result<(), Failure> {
    let approvals = || scope.permissions.chosen.borrow().approvals();
    let need = &as_held(scope, agent, need, approvals()).await;
    later::forbidden(scope, agent, need, false).await?;
    let doubt = scope.project.settings.doubt();
    let doubt = doubt.as_deref();
    let grants = || scope.permissions.grants.of(&agent.name);
    let judge = || approve::judge_in_doubt(doubt, approvals(), &agent.rules, &grants(), need);
    // Subscribed before judging: a grant given in between is not missed.
    let mut changes = scope.permissions.grants.changes();
    let verdict = judge();
    tracing::info!("for {}: {}", agent.name, explain(&verdict, need, &agent.rules));
    let verdict = hooks::judged(scope, agent, call, need, verdict).await?;
    match verdict.action {
        Action::Allow => return Ok(()),
        Action::Deny => return Err(Failure::Denied(Denial::Rule(refusal::words(&verdict, need, &agent.rules)))),
        Action::Ask if need.agreed => return Ok(()),
        Action::Ask => {}
    }
    // What the user is asked about is kept first: the process may not live to hear the answer.
    if let Err(e) = scope.record.flush().await {
        tracing::warn!("asking although the call could not be recorded: {e}");
    }
    let (reply, mut answer) = oneshot::channel();
    let hooked = verdict.action == Action::Ask && judge().action == Action::Allow;
    let lasting = !hooked && settles(doubt, approvals(), &agent.rules, &grants(), need);
    let ask = PermissionRequest {
        call: call.call.clone(),
        show: question(call, need),
        reason: asks(need, reason.as_ref().or(verdict.reason.as_ref())),
        details: details(need, &verdict, lasting),
        always: lasting.then(|| shown(need)),
        agent: None,
        session: None,
        reply,
    };
    hooks::asked(scope, call, need).await;
    if !scope.outlet.send(TurnMessage::AskPermission(Box::new(ask))).await {
        return Err(Failure::Cancelled);
    }
    loop {
        tokio::select! {
            biased;
            () = scope.cancelled.cancelled() => return Err(Failure::Cancelled),
            answer = &mut answer => return match answer {
                Ok(PermissionReply::Once) => later::forbidden(scope, agent, need, true).await,
                Ok(PermissionReply::Always) => {
                    later::forbidden(scope, agent, need, true).await?;
                    scope.permissions.grants.give(&agent.name, &need.permission, &need.always).await;
                    Ok(())
                }
                Ok(PermissionReply::No(denial)) => Err(Failure::Denied(denial)),
                // The editor went away, or answered with an error: that is no approval.
                Err(_) => Err(Failure::Denied(Denial::Rejected)),
            },
            Ok(()) = changes.changed() => {
                if !hooked && judge().action == Action::Allow {
                    return Ok(());
                }
            }
        }
    }
}

/// The use of a file that a command could make as well: of a short-lived one, or a change where the user wants no
/// question about what the sandbox holds. Commands say themselves what holds them.
async fn as_held<'n>(scope: &TurnContext, agent: &Agent, need: &'n Need, approvals: Approvals) -> Cow<'n, Need> {
    let changes = approvals == Approvals::Sandboxed && need.within;
    if need.command.is_some() || !(changes || need.temporary) {
        return Cow::Borrowed(need);
    }
    let confinement = scope.permissions.confinement.for_agent(&agent.rules, &scope.project.settings);
    let mut held = need.clone();
    if need.temporary && scope.resources.exec.is_empty() {
        held.guarantee = confinement.guarantee().await;
    }
    if changes && confinement.holds().await {
        held = approve::held(held);
    }
    Cow::Owned(held)
}

/// The call as the question shows it: complete, because some editors show nothing else.
fn question(call: &Call, need: &Need) -> CallUpdate {
    let mut facts = need.metadata.clone();
    let words = [("sandbox", &need.sandbox), ("from", &need.origin)];
    facts.extend(words.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text.as_deref()?.into()))));
    CallUpdate {
        title: Some(call.title.clone()),
        tool: Some(call.tool.clone()),
        kind: Some(call.kind),
        progress: Some(Progress::Pending),
        input: call.input.is_object().then(|| Value::clone(&call.input)),
        locations: (!call.locations.is_empty()).then(|| call.locations.clone()),
        changes: (!need.changes.is_empty()).then(|| need.changes.clone()),
        metadata: Some(facts).filter(|facts| !facts.is_empty()),
        ..CallUpdate::of(&call.call)
    }
}

/// Why the user is asked, as the end of a sentence.
fn asks(need: &Need, reason: Option<&String>) -> String {
    match reason {
        Some(reason) => format!("because {}", reason.trim_end_matches('.')),
        None if need.command.is_some() => "to run this command".to_owned(),
        None => format!("for {}: {}", need.permission, need.patterns.join(", ")),
    }
}

/// Which parts of a command make it a question, where a page leads from, what holds the command, why it
/// cannot be allowed for good.
fn details(need: &Need, verdict: &Verdict, lasting: bool) -> String {
    let asked = verdict.units.iter().filter(|unit| unit.action == Action::Ask);
    let several = verdict.units.len() > 1 || verdict.reason.is_none();
    let asked = asked.filter(|_| need.command.is_some() && several);
    let mut lines: Vec<String> = asked.map(|unit| unit_line(unit).trim_start().to_owned()).collect();
    lines.extend(need.origin.as_ref().map(|from| format!("{from} leads there.")));
    lines.extend(need.sandbox.as_ref().map(|sandbox| format!("Sandbox: {sandbox}.")));
    if !lasting && need.command.is_some() {
        let reason = need.once.as_deref().unwrap_or("the same question would come again");
        lines.push(format!("No \"always\": {reason}."));
    }
    lines.join("\n")
}

/// What "always" would store, in the words it is stored in.
fn shown(need: &Need) -> String {
    need.always.iter().map(|pattern| format!("{} {pattern}", need.permission)).collect::<Vec<_>>().join(", ")
}
