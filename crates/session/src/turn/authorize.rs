//! Authorization of calls. The rules decide, and if they require it the user is asked; permission
//! questions are asked only here.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::oneshot;

use super::hooks::PlacedCall;
use super::live_denies::{self, PassedDenies};
use super::{TurnContext, hooks, tool_context};
use base::approvals::Approvals;
use base::task::{MAX_IN_PLACE_BYTES, poll_by_size, poll_on_blocking_threads};
use events::{
    CallUpdate, OfferedGrant, PermissionReply, PermissionRequest, Progress, SandboxFacts,
    TurnMessage,
};
use permission::approve::isolated;
use permission::explain::explain;
use permission::remedy;
use permission::wording::{self, QuestionWording};
use permission::{AccessRequest, Action, Denial, Policy, RequestEffect, Verdict};
use project::agent::Agent;
use tools::{Failure, ToolContext, denial_message};
use transcript::{Call, Change};

/// An access request that is allowed, or that the user is asked about.
struct JudgedRequest<'n> {
    request: Cow<'n, AccessRequest>,
    /// The policy under which it was judged.
    policy: Policy,
    /// The verdict of the rules and hooks.
    verdict: Verdict,
    passed: PassedDenies,
}

impl JudgedRequest<'_> {
    fn owned(&self) -> JudgedRequest<'static> {
        let request = Cow::Owned(AccessRequest::clone(&self.request));
        JudgedRequest {
            request,
            policy: self.policy.clone(),
            verdict: self.verdict.clone(),
            passed: self.passed.clone(),
        }
    }
}

/// An answer that allows what the user was asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consent {
    Once,
    Always,
}

/// Authorizes the access requests of a call, and asks the user if the rules require it. All
/// requests are evaluated first, so that no question is asked about a call that another request
/// forbids; there is one question per file. `reason` explains requests whose verdict has no
/// reason; with `is_allowed`, only hooks ask; `asks` is called for each question that is sent.
pub(super) async fn authorize(
    turn: &TurnContext,
    agent: &Agent,
    call: PlacedCall<'_>,
    requests: &[AccessRequest],
    reason: Option<&str>,
    is_allowed: bool,
    asks: impl Fn(),
) -> Result<(), Failure> {
    let mut judged_requests = Vec::with_capacity(requests.len());
    for request in requests {
        judged_requests.push(judge_request(turn, agent, call, request).await?);
    }
    let is_asked = |judged_request: &&JudgedRequest<'_>| {
        judged_request.verdict.action == Action::Ask
            && (!is_allowed || judged_request.request.hook_question.is_some())
    };
    let questions = group_questions(judged_requests.iter().filter(is_asked));
    if questions.is_empty() {
        return Ok(());
    }
    // Stored before the question, because the process may end before the answer arrives.
    if let Err(e) = turn.session.recorder.flush().await {
        tracing::warn!("asking although the call could not be recorded: {e}");
    }
    for question in &questions {
        let consent = ask(turn, agent, call, question, reason, &asks).await?;
        // Those that needed no question, or whose question was answered before, may be denied by
        // now too.
        check_still_allowed(turn, agent, &judged_requests).await?;
        if consent == Consent::Always {
            grant_always(turn, agent, question).await;
        }
    }
    Ok(())
}

/// Returns the access requests that the user is asked about together.
fn group_questions<'j, 'n>(
    asked: impl Iterator<Item = &'j JudgedRequest<'n>>,
) -> Vec<Vec<&'j JudgedRequest<'n>>> {
    let mut questions: Vec<Vec<&JudgedRequest<'n>>> = Vec::new();
    for judged_request in asked {
        let together = |question: &&mut Vec<&JudgedRequest<'n>>| {
            question
                .iter()
                .any(|other| is_one_question(&other.request, &judged_request.request))
        };
        match questions.iter_mut().find(together) {
            Some(question) => question.push(judged_request),
            None => questions.push(vec![judged_request]),
        }
    }
    questions
}

fn is_one_question(one: &AccessRequest, other: &AccessRequest) -> bool {
    matches!((&one.file, &other.file), (Some(one), Some(other)) if one.is_same(other))
}

/// Evaluates an access request.
///
/// # Errors
/// Refuses the call if the rules or a hook deny the access; if the user cancels.
async fn judge_request<'n>(
    turn: &TurnContext,
    agent: &Agent,
    call: PlacedCall<'_>,
    request: &'n AccessRequest,
) -> Result<JudgedRequest<'n>, Failure> {
    let mut request = with_sandbox_guarantee(turn, call.context, request).await;
    let passed = live_denies::check(turn, agent, &request).await?;
    let policy = tool_context::current_rules(turn, agent);
    let verdict = judge(&policy, &request).await;
    tracing::info!(
        "for {}: {}",
        agent.name,
        explain(&verdict, &request, &agent.rules, &[])
    );
    let verdict = hooks::apply_to_verdict(turn, agent, call, &mut request, verdict).await?;
    if verdict.action == Action::Deny {
        return Err(Failure::Denied(Denial::Rule(denial_message::explain(
            &verdict,
            &request,
            &agent.rules,
        ))));
    }
    Ok(JudgedRequest {
        request,
        policy,
        verdict,
        passed,
    })
}

/// Evaluates an access request, unless that was done under the same rules when it was planned: a
/// command on the thread pool, because it can be very long.
async fn judge(policy: &Policy, request: &AccessRequest) -> Verdict {
    if let Some(verdict) = request
        .planned_verdict
        .as_ref()
        .and_then(|plan| plan.under(policy, request))
    {
        return verdict;
    }
    if request.command.is_none() {
        return policy.judge(request);
    }
    let policy = policy.clone();
    let request = request.clone();
    poll_on_blocking_threads(async move { policy.judge(&request) }).await
}

/// The text of a question, and the effect of an answer.
struct QuestionText {
    wording: QuestionWording,
    details: Vec<String>,
    sandbox: Option<SandboxFacts>,
    /// The setting that would allow it, if no user is present to answer.
    unattended: Option<Option<Value>>,
    always: Option<OfferedGrant>,
    why_not_always: Option<String>,
}

impl QuestionText {
    fn of(
        asked: &[JudgedRequest<'_>],
        agent: &str,
        policy: &Policy,
        attended: bool,
        reason: Option<&str>,
    ) -> Self {
        let pairs: Vec<(&AccessRequest, &Verdict)> = asked
            .iter()
            .map(|asked_request| (&*asked_request.request, &asked_request.verdict))
            .collect();
        let requests: Vec<&AccessRequest> = pairs.iter().map(|(request, _)| *request).collect();
        let lasting = asked
            .iter()
            .all(|asked_request| policy.is_answered_by_always(&asked_request.request));
        let wording = QuestionWording::new(&pairs, reason);
        let setting = || {
            let requests = asked.iter().map(|asked| (*asked.request).clone());
            remedy::settings_that_allow(policy, &requests.collect::<Vec<_>>())
        };
        let unattended = (!attended).then(setting);
        let details = question_details(&pairs);
        let explains = !lasting && wording.complete_question.is_none();
        let why_not_always = explains.then(|| why_not_always(&pairs));
        let always = lasting.then(|| offered_grant(agent, &requests));
        Self {
            wording,
            details,
            sandbox: sandbox_facts(&pairs),
            unattended,
            always,
            why_not_always,
        }
    }
}

/// True if all requests have been granted in the meantime. `checked_under` is the policy of
/// the last such check, if it was in vain.
async fn are_granted(
    turn: &TurnContext,
    agent: &Agent,
    asked: &[&JudgedRequest<'_>],
    checked_under: &mut Option<Policy>,
) -> bool {
    let policy = tool_context::current_rules(turn, agent);
    if checked_under
        .as_ref()
        .is_some_and(|earlier| earlier.judges_as(&policy))
    {
        return false;
    }
    for asked_request in asked {
        // Under the same rules it would be asked again.
        if policy.judges_as(&asked_request.policy)
            || judge(&policy, &asked_request.request).await.action != Action::Allow
        {
            *checked_under = Some(policy);
            return false;
        }
    }
    true
}

/// Asks one question about access requests that belong together. Grants that were given in the
/// meantime are a consent as well.
///
/// # Errors
/// Refuses the call if the user does; if the user cancels.
async fn ask(
    turn: &TurnContext,
    agent: &Agent,
    placed: PlacedCall<'_>,
    asked: &[&JudgedRequest<'_>],
    reason: Option<&str>,
    asks: &impl Fn(),
) -> Result<Consent, Failure> {
    let call = placed.call;
    // Subscribed before the evaluation, so that a grant given in between is not missed.
    let mut changes = turn.session.permissions.grants.changes();
    let mut checked_under = None;
    if are_granted(turn, agent, asked, &mut checked_under).await {
        return Ok(Consent::Once);
    }
    let pairs: Vec<(&AccessRequest, &Verdict)> = asked
        .iter()
        .map(|asked_request| (&*asked_request.request, &asked_request.verdict))
        .collect();
    let attended = turn.session.permissions.attended;
    let policy = tool_context::current_rules(turn, agent);
    let reason = reason.map(str::to_owned);
    let owned: Vec<JudgedRequest<'static>> = asked
        .iter()
        .map(|asked_request| asked_request.owned())
        .collect();
    // Without a user, the search for a setting that allows it judges the request several times.
    let is_large = !attended
        || asked
            .iter()
            .any(|asked_request| is_large(&asked_request.request));
    let agent_name = agent.name.clone();
    let text =
        async move { QuestionText::of(&owned, &agent_name, &policy, attended, reason.as_deref()) };
    let QuestionText {
        wording,
        details,
        sandbox,
        unattended,
        always,
        why_not_always,
    } = poll_by_size(is_large, text).await;
    let (reply, mut answer) = oneshot::channel();
    let request = PermissionRequest {
        call: call.call.clone(),
        show: shown_call(call, &pairs).await,
        details,
        sandbox,
        wording: wording.clone(),
        unattended,
        always,
        why_not_always,
        agent: None,
        session: None,
        reply,
    };
    let requests: Vec<&AccessRequest> = pairs.iter().map(|(request, _)| *request).collect();
    let id = hooks::publish_question(turn, placed, &requests);
    let events = &turn.session.recorder.events;
    if !turn
        .event_sender
        .send(TurnMessage::AskPermission(Box::new(request)))
        .await
    {
        events.permission_replied(&id, "reject");
        return Err(Failure::Cancelled);
    }
    asks();
    loop {
        tokio::select! {
            biased;
            () = turn.cancelled.cancelled() => {
                events.permission_replied(&id, "reject");
                return Err(Failure::Cancelled);
            }
            answer = &mut answer => {
                events.permission_replied(&id, reply_name(&answer));
                return match answer {
                    Ok(PermissionReply::Once) => Ok(Consent::Once),
                    Ok(PermissionReply::Always) => Ok(Consent::Always),
                    Ok(PermissionReply::No(Denial::Rejected)) if !attended => Err(denial_message::unanswered(&pairs, &wording)),
                    Ok(PermissionReply::No(denial)) => Err(Failure::Denied(denial)),
                    // The client disconnected or answered with an error, which is not
                    // an approval.
                    Err(_) => Err(Failure::Denied(Denial::Rejected)),
                };
            }
            Ok(()) = changes.changed() => {
                if are_granted(turn, agent, asked, &mut checked_under).await {
                    events.permission_replied(&id, "once");
                    return Ok(Consent::Once);
                }
            }
        }
    }
}

/// Returns the name of an answer in OpenCode.
fn reply_name(answer: &Result<PermissionReply, oneshot::error::RecvError>) -> &'static str {
    match answer {
        Ok(PermissionReply::Once) => "once",
        Ok(PermissionReply::Always) => "always",
        Ok(PermissionReply::No(_)) | Err(_) => "reject",
    }
}

/// Refuses a call that the user has just allowed, if the settings have come to deny one of its
/// access requests in the meantime.
async fn check_still_allowed(
    turn: &TurnContext,
    agent: &Agent,
    judged_requests: &[JudgedRequest<'_>],
) -> Result<(), Failure> {
    let accesses = judged_requests
        .iter()
        .map(|judged_request| (&*judged_request.request, &judged_request.passed));
    live_denies::check_all(turn, agent, accesses).await
}

/// Grants what the user has answered "always" to.
async fn grant_always(turn: &TurnContext, agent: &Agent, asked: &[&JudgedRequest<'_>]) {
    let grants = &turn.session.permissions.grants;
    for asked_request in asked {
        let request = &asked_request.request;
        grants
            .add(&agent.name, request.granted_permission(), &request.always)
            .await;
    }
}

/// Returns a file access with the guarantees of the sandbox that a command would have: for
/// temporary files, and for changes if the user wants no question about sandboxed ones. Commands
/// contain their guarantees already.
async fn with_sandbox_guarantee<'n>(
    turn: &TurnContext,
    context: &ToolContext,
    request: &'n AccessRequest,
) -> Cow<'n, AccessRequest> {
    let approvals = turn.session.permissions.approvals();
    let changes =
        approvals == Approvals::Sandboxed && request.effect == RequestEffect::ChangesProject;
    if request.command.is_some() || !(changes || request.is_temporary) {
        return Cow::Borrowed(request);
    }
    let sandbox_choice = &context.sandbox_choice;
    let mut request = request.clone();
    if request.is_temporary && context.session.exec.is_empty() {
        request.guarantee = sandbox_choice.guarantee().await;
    }
    if changes && sandbox_choice.is_protective().await {
        request = isolated(request);
    }
    Cow::Owned(request)
}

/// True if the text of a question about a request may take long to compose. Whether
/// "always" settles it is a verdict, and that on a command is given on the thread pool, as in
/// [`judge`].
fn is_large(request: &AccessRequest) -> bool {
    let patterns = request.patterns.iter().chain(&request.always);
    request.command.is_some()
        || !request.changes.is_empty()
        || patterns.map(String::len).sum::<usize>() > MAX_IN_PLACE_BYTES
}

/// Returns the call as the question shows it: complete, because some clients show only the
/// question.
async fn shown_call(call: &Call, asked: &[(&AccessRequest, &Verdict)]) -> CallUpdate {
    let requests = || asked.iter().map(|(request, _)| *request);
    let mut facts = serde_json::Map::new();
    for request in requests() {
        facts.extend(request.metadata.clone());
        let texts = [
            ("sandbox", &request.sandbox),
            ("from", &request.redirected_from),
        ];
        facts.extend(
            texts
                .into_iter()
                .filter_map(|(key, text)| Some((key.to_owned(), text.as_deref()?.into()))),
        );
    }
    let changes: Vec<Arc<Change>> = requests()
        .flat_map(|request| request.changes.iter().cloned())
        .collect();
    let parts = async move { changes.iter().flat_map(|change| change.parts()).collect() };
    let is_large = requests().any(|request| !request.changes.is_empty());
    let changes: Vec<Change> = poll_by_size(is_large, parts).await;
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

/// Returns the details of a question: the page that links to an address.
fn question_details(asked: &[(&AccessRequest, &Verdict)]) -> Vec<String> {
    let origins = asked
        .iter()
        .filter_map(|(request, _)| request.redirected_from.as_ref());
    origins
        .map(|from| format!("Redirected from {from}."))
        .collect()
}

fn sandbox_facts(asked: &[(&AccessRequest, &Verdict)]) -> Option<SandboxFacts> {
    asked.iter().find_map(|(request, _)| {
        Some(SandboxFacts {
            restrictions: request.sandbox.clone()?,
            effect: request.sandbox_effect.clone(),
        })
    })
}

/// Returns the grant that "always" would store for an agent.
fn offered_grant(agent: &str, requests: &[&AccessRequest]) -> OfferedGrant {
    let texts = requests
        .iter()
        .map(|request| wording::describe_grant(request));
    let mut permissions: Vec<String> = Vec::new();
    for request in requests {
        let permission = request.granted_permission();
        if !request.always.is_empty() && permissions.iter().all(|known| known != permission) {
            permissions.push(permission.to_owned());
        }
    }
    OfferedGrant {
        text: texts.collect::<Vec<_>>().join(", "),
        permissions,
        agent: agent.to_owned(),
    }
}

/// Returns the reason why "always" is not offered.
fn why_not_always(asked: &[(&AccessRequest, &Verdict)]) -> String {
    if let Some(why) = asked
        .iter()
        .find_map(|(request, _)| request.why_not_always.clone())
    {
        return why;
    }
    let floored = |(request, verdict): &&(&AccessRequest, &Verdict)| {
        request
            .minimum
            .as_ref()
            .is_some_and(|(_, reason)| verdict.reason.as_ref() == Some(reason))
    };
    match asked.iter().find(floored) {
        Some((request, _)) if request.file.is_some() => {
            "such files need permission each time".to_owned()
        }
        _ => "you would be asked again anyway".to_owned(),
    }
}
