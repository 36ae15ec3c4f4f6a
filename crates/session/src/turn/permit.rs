//! May a call go on? The rules decide, and where they say so the user is asked: here and nowhere else.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::oneshot;

use super::{TurnContext, hooks, later};
use base::approvals::Approvals;
use base::task::on_threads;
use events::{CallUpdate, PermissionReply, PermissionRequest, Progress, TurnMessage};
use permission::approve::{self, settles};
use permission::explain::explain;
use permission::wording::{self, Wording};
use permission::{Action, Denial, Need, Rule, Rules, Verdict};
use project::agent::Agent;
use tools::{Failure, refusal};
use transcript::{Call, Change};

/// A need that the user is asked about.
struct AskedNeed<'n> {
    need: Cow<'n, Need>,
    verdict: Verdict,
    /// A hook asks, or the verdict was another without one: no grant answers it.
    hooked: bool,
}

impl AskedNeed<'_> {
    fn owned(&self) -> AskedNeed<'static> {
        let need = Cow::Owned(Need::clone(&self.need));
        AskedNeed { need, verdict: self.verdict.clone(), hooked: self.hooked }
    }
}

/// Judges what a call needs, and asks where the rules say so: after all of it was judged, so that nothing is asked
/// that another need forbids, and once for each file. `reason` is why the needs arise, where they do not say it; `asks` is told
/// of each question that is on its way.
pub(super) async fn permit(
    scope: &TurnContext,
    agent: &Agent,
    call: &Call,
    needs: &[Need],
    reason: Option<&str>,
    asks: impl Fn(),
) -> Result<(), Failure> {
    let mut asked: Vec<Vec<AskedNeed<'_>>> = Vec::new();
    for need in needs {
        let Some(one) = judged(scope, agent, call, need).await? else { continue };
        let together =
            |group: &&mut Vec<AskedNeed<'_>>| group.iter().any(|other| is_one_question(&other.need, &one.need));
        match asked.iter_mut().find(together) {
            Some(group) => group.push(one),
            None => asked.push(vec![one]),
        }
    }
    if asked.is_empty() {
        return Ok(());
    }
    // What the user is asked about is kept first: the process may not live to hear the answer.
    if let Err(e) = scope.record.flush().await {
        tracing::warn!("asking although the call could not be recorded: {e}");
    }
    for group in &asked {
        ask(scope, agent, call, group, reason, &asks).await?;
    }
    Ok(())
}

fn is_one_question(one: &Need, other: &Need) -> bool {
    matches!((&one.file, &other.file), (Some(one), Some(other)) if one.is_same(other))
}

/// Judges a need. None: it is allowed.
async fn judged<'n>(
    scope: &TurnContext,
    agent: &Agent,
    call: &Call,
    need: &'n Need,
) -> Result<Option<AskedNeed<'n>>, Failure> {
    let need = as_held(scope, agent, need, approvals(scope)).await;
    later::forbidden(scope, agent, &need, false).await?;
    let verdict = judge(scope, agent, &need).await;
    tracing::info!("for {}: {}", agent.name, explain(&verdict, &need, &agent.rules));
    let verdict = hooks::judged(scope, agent, call, &need, verdict).await?;
    match verdict.action {
        Action::Allow => Ok(None),
        Action::Deny => Err(Failure::Denied(Denial::Rule(refusal::words(&verdict, &need, &agent.rules)))),
        Action::Ask if need.agreed => Ok(None),
        Action::Ask => {
            let hooked = judge(scope, agent, &need).await.action == Action::Allow;
            Ok(Some(AskedNeed { need, verdict, hooked }))
        }
    }
}

fn approvals(scope: &TurnContext) -> Approvals {
    scope.permissions.chosen.borrow().approvals()
}

/// Judges a need by what is granted by now: a command on a thread, for it may be of very many.
async fn judge(scope: &TurnContext, agent: &Agent, need: &Need) -> Verdict {
    let bench = Bench::of(scope, agent);
    if need.command.is_none() {
        return bench.judge(need);
    }
    let need = need.clone();
    on_threads(async move { bench.judge(&need) }).await
}

/// All that a need is judged by, as it is now.
struct Bench {
    doubt: Option<String>,
    approvals: Approvals,
    rules: Rules,
    grants: Rules,
}

impl Bench {
    fn of(scope: &TurnContext, agent: &Agent) -> Self {
        Self {
            doubt: scope.project.settings.doubt(),
            approvals: approvals(scope),
            rules: agent.rules.clone(),
            grants: scope.permissions.grants.of(&agent.name),
        }
    }

    fn judge(&self, need: &Need) -> Verdict {
        self.judge_by(&self.rules, need)
    }

    fn judge_by(&self, rules: &Rules, need: &Need) -> Verdict {
        approve::judge_in_doubt(self.doubt.as_deref(), self.approvals, rules, &self.grants, need)
    }

    /// Whether "always" would settle it.
    fn settles(&self, need: &Need) -> bool {
        settles(self.doubt.as_deref(), self.approvals, &self.rules, &self.grants, need)
    }
}

/// The text of a question, and the effect of an answer.
struct QuestionWords {
    wording: Wording,
    details: Vec<String>,
    /// What would allow it, where nobody is there to answer.
    unattended: Option<Option<Value>>,
    always: Option<String>,
}

impl QuestionWords {
    fn of(asked: &[AskedNeed<'_>], bench: &Bench, attended: bool, reason: Option<&str>) -> Self {
        let pairs: Vec<(&Need, &Verdict)> = asked.iter().map(|one| (&*one.need, &one.verdict)).collect();
        let needs: Vec<&Need> = pairs.iter().map(|(need, _)| *need).collect();
        let lasting = asked.iter().all(|one| !one.hooked && bench.settles(&one.need));
        let wording = Wording::new(&pairs, reason);
        let allows = |need: &Need, rules: &[Rule]| {
            let rules = bench.rules.clone().then(&Rules::from(rules.to_vec()));
            !asked.iter().any(|one| one.hooked) && bench.judge_by(&rules, need).action == Action::Allow
        };
        let unattended = (!attended).then(|| wording::allowing(&needs, allows));
        let details = details(&pairs, &wording, lasting);
        let always = lasting.then(|| needs.into_iter().map(wording::granting).collect::<Vec<_>>().join(", "));
        Self { wording, details, unattended, always }
    }
}

/// Whether all that is asked was granted meanwhile.
async fn granted(scope: &TurnContext, agent: &Agent, asked: &[AskedNeed<'_>]) -> bool {
    for one in asked {
        if one.hooked || judge(scope, agent, &one.need).await.action != Action::Allow {
            return false;
        }
    }
    true
}

/// Asks one question about needs that belong together.
async fn ask(
    scope: &TurnContext,
    agent: &Agent,
    call: &Call,
    asked: &[AskedNeed<'_>],
    reason: Option<&str>,
    asks: &impl Fn(),
) -> Result<(), Failure> {
    // Subscribed before judging: a grant given in between is not missed.
    let mut changes = scope.permissions.grants.changes();
    if granted(scope, agent, asked).await {
        return Ok(());
    }
    let pairs: Vec<(&Need, &Verdict)> = asked.iter().map(|one| (&*one.need, &one.verdict)).collect();
    let attended = scope.permissions.attended;
    let bench = Bench::of(scope, agent);
    let reason = reason.map(str::to_owned);
    let owned: Vec<AskedNeed<'static>> = asked.iter().map(AskedNeed::owned).collect();
    let words = async move { QuestionWords::of(&owned, &bench, attended, reason.as_deref()) };
    let QuestionWords { wording, details, unattended, always } = on_threads(words).await;
    let (reply, mut answer) = oneshot::channel();
    let request = PermissionRequest {
        call: call.call.clone(),
        show: question(call, &pairs).await,
        details,
        wording: wording.clone(),
        unattended,
        always,
        agent: None,
        session: None,
        reply,
    };
    for one in asked {
        hooks::asked(scope, call, &one.need).await;
    }
    if !scope.outlet.send(TurnMessage::AskPermission(Box::new(request))).await {
        return Err(Failure::Cancelled);
    }
    asks();
    loop {
        tokio::select! {
            biased;
            () = scope.cancelled.cancelled() => return Err(Failure::Cancelled),
            answer = &mut answer => return match answer {
                Ok(PermissionReply::Once) => still_allowed(scope, agent, asked).await,
                Ok(PermissionReply::Always) => {
                    still_allowed(scope, agent, asked).await?;
                    for one in asked {
                        let Need { permission, always, .. } = &*one.need;
                        scope.permissions.grants.give(&agent.name, permission, always).await;
                    }
                    Ok(())
                }
                Ok(PermissionReply::No(Denial::Rejected)) if !attended => Err(refusal::unanswered(&pairs, &wording)),
                Ok(PermissionReply::No(denial)) => Err(Failure::Denied(denial)),
                // The editor went away, or answered with an error: that is no approval.
                Err(_) => Err(Failure::Denied(Denial::Rejected)),
            },
            Ok(()) = changes.changed() => {
                if granted(scope, agent, asked).await {
                    return Ok(());
                }
            }
        }
    }
}

/// Refuses what was allowed just now where the settings have come to deny it meanwhile.
async fn still_allowed(scope: &TurnContext, agent: &Agent, asked: &[AskedNeed<'_>]) -> Result<(), Failure> {
    for one in asked {
        later::forbidden(scope, agent, &one.need, true).await?;
    }
    Ok(())
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
async fn question(call: &Call, asked: &[(&Need, &Verdict)]) -> CallUpdate {
    let needs = || asked.iter().map(|(need, _)| *need);
    let mut facts = serde_json::Map::new();
    for need in needs() {
        facts.extend(need.metadata.clone());
        let words = [("sandbox", &need.sandbox), ("from", &need.origin)];
        facts.extend(words.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text.as_deref()?.into()))));
    }
    let changes: Vec<Arc<Change>> = needs().flat_map(|need| need.changes.iter().cloned()).collect();
    let parts = async move { changes.iter().flat_map(|change| change.parts()).collect() };
    let changes: Vec<Change> = on_threads(parts).await;
    CallUpdate {
        title: Some(call.title.clone()),
        tool: Some(call.tool.clone()),
        kind: Some(call.kind),
        progress: Some(Progress::Pending),
        input: call.input.is_object().then(|| Value::clone(&call.input)),
        locations: (!call.locations.is_empty()).then(|| call.locations.clone()),
        changes: (!changes.is_empty()).then_some(changes),
        metadata: Some(facts).filter(|facts| !facts.is_empty()),
        ..CallUpdate::of(&call.call)
    }
}

/// Where a page leads from, what holds a command, why it cannot be allowed for good.
fn details(asked: &[(&Need, &Verdict)], wording: &Wording, lasting: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for (need, _) in asked {
        lines.extend(need.origin.as_ref().map(|from| format!("{from} leads there.")));
        lines.extend(need.sandbox.as_ref().map(|sandbox| format!("Sandbox: {sandbox}.")));
    }
    if !lasting && wording.whole.is_none() {
        lines.push(format!("No \"always\": {}.", once(asked)));
    }
    lines
}

/// Why nothing can be allowed for good.
fn once(asked: &[(&Need, &Verdict)]) -> String {
    if let Some(why) = asked.iter().find_map(|(need, _)| need.once.clone()) {
        return why;
    }
    let floored = |(need, verdict): &&(&Need, &Verdict)| {
        need.floor.as_ref().is_some_and(|(_, reason)| verdict.reason.as_ref() == Some(reason))
    };
    match asked.iter().find(floored) {
        Some((need, _)) if need.file.is_some() => "such a file is asked about each time".to_owned(),
        _ => "the same question would come again".to_owned(),
    }
}
