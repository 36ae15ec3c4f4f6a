//! The hooks of a turn: the input of each hook event, and the effect of its outcome. Without hooks,
//! each of these functions only checks an empty list.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::step_context::StepContext;
use super::{
    History, TurnContext, TurnOutcome, cancelled_fault, next, remind, step_context, tool_context,
};
use base::id::MessageId;
use base::text;
use base::text::shared::SharedText;
use config::contribution::Contribution;
use config::settings::HookPoint;
use events::{Event, Severity, Status};
use extensions::hook_event::HookEvent;
use extensions::hook_outcome::HookOutcome;
use extensions::subagents::PluginTurnAccess;
use extensions::{ChangedText, has_handler, may_refuse};
use permission::{AccessRequest, Action, Verdict};
use project::agent::Agent;
use providers::Request;
use store::Record;
use tools::edits::edit::{EditTool, MULTIEDIT, has_several_edits};
use tools::{Failure, Tool, ToolContext, ToolOutput};
use transcript::{Call, Change, Content, Message, ModelRef, Text};

/// The maximum number of times that hooks may continue a turn that the model considers finished.
const MAX_CONTINUATIONS: u32 = 5;

/// The time limit of all hooks at a session's end together.
const SESSION_END_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

/// A call, the message that it is a part of, and its context.
#[derive(Clone, Copy)]
pub(super) struct PlacedCall<'a> {
    pub(super) call: &'a Call,
    pub(super) message: &'a MessageId,
    pub(super) context: &'a ToolContext,
}

/// Returns the hook event of a call.
fn call_event(
    on: HookPoint,
    agent: &str,
    call: &Call,
    requests: &[AccessRequest],
    context: &ToolContext,
) -> HookEvent {
    let mut hook_event = HookEvent::new(on, agent)
        .with("call", call.call.as_str())
        .with("title", call.title.as_str())
        .with("input", Value::clone(&call.input));
    let is_multiedit = call.tool == EditTool::NAME && has_several_edits(&call.input);
    let name = if is_multiedit {
        MULTIEDIT
    } else {
        call.tool.as_str()
    };
    hook_event.tool = Some(name.to_owned());
    hook_event.analysis = context.call.analysis.clone();
    let changed = requests
        .iter()
        .flat_map(|request| &request.changes)
        .map(|change| context.absolute(&change.path));
    let looked_at = call.locations.iter().map(|location| location.path.clone());
    hook_event.files = changed.chain(looked_at).collect();
    hook_event.files.dedup();
    hook_event.subjects = hook_event
        .files
        .iter()
        .map(|file| context.relative(file))
        .collect();
    for request in requests {
        hook_event.subjects.extend(request.patterns.iter().cloned());
        hook_event
            .subjects
            .extend(request.command.as_ref().map(|line| line.text.clone()));
    }
    hook_event
}

/// Runs the hooks before a call's permission is checked.
///
/// # Errors
/// To the model, if a hook refuses the call; if the user cancels.
pub(super) async fn run_before_call(
    turn: &TurnContext,
    agent: &Agent,
    call: &Call,
    requests: &[AccessRequest],
    context: &ToolContext,
) -> Result<HookOutcome, Failure> {
    let hook_event = call_event(HookPoint::ToolBefore, &agent.name, call, requests, context);
    let hook_outcome = turn
        .session
        .common
        .extensions
        .run_hooks(hook_event, context)
        .await?;
    match hook_outcome.deny {
        Some(why) => Err(Failure::ForModel(why)),
        None => Ok(hook_outcome),
    }
}

/// Runs the hooks after a call; their notes go to the model with the result.
pub(super) async fn run_after_call(
    turn: &TurnContext,
    agent: &Agent,
    call: &Call,
    done: Result<ToolOutput, Failure>,
    context: &ToolContext,
) -> Result<ToolOutput, Failure> {
    let (ok, text, changes) = match &done {
        Ok(output) => (true, output.text.as_str(), output.changes.as_slice()),
        Err(Failure::ForModel(text)) => (false, text.as_str(), &[][..]),
        Err(_) => return done,
    };
    let named = |change: &Change| {
        let Change {
            path,
            deleted,
            part,
            ..
        } = change;
        Arc::new(Change {
            path: path.clone(),
            old: None,
            new: SharedText::default(),
            deleted: *deleted,
            part: *part,
        })
    };
    let request = AccessRequest {
        changes: changes.iter().map(named).collect(),
        patterns: call_subjects(call),
        ..AccessRequest::default()
    };
    let hook_event = call_event(HookPoint::ToolAfter, &agent.name, call, &[request], context);
    let hook_event = hook_event.with("ok", ok).with("output", text);
    let hook_outcome = match turn
        .session
        .common
        .extensions
        .run_hooks(hook_event, context)
        .await
    {
        Ok(hook_outcome) => hook_outcome,
        // The call has ended, so its result stays.
        Err(Failure::Cancelled) => return done,
        Err(failure) => return Err(failure),
    };
    let notes = hook_outcome
        .deny
        .into_iter()
        .chain(hook_outcome.context)
        .collect::<Vec<_>>()
        .join("\n");
    Ok(match done {
        _ if notes.is_empty() && hook_outcome.output.is_none() => return done,
        Ok(mut output) => {
            if let Some(text) = hook_outcome.output {
                output.display = Some(text.clone());
                output.coloured = None;
                output.cut = false;
                output.text = text;
            }
            let apart = if output.note.is_empty() { "" } else { "\n" };
            if !notes.is_empty() {
                output.note = format!("{}{apart}{notes}", output.note);
            }
            output
        }
        Err(failure) if notes.is_empty() => return Err(failure),
        Err(failure) => return Err(Failure::ForModel(format!("{failure}\n\n{notes}"))),
    })
}

/// Returns the subjects of a call according to its arguments, because its access requests are no
/// longer available.
fn call_subjects(call: &Call) -> Vec<String> {
    let texts = ["command", "url", "pattern", "filePath", "path"];
    texts
        .iter()
        .filter_map(|key| call.input.get(key)?.as_str())
        .map(str::to_owned)
        .collect()
}

/// Applies hooks to a verdict. They may make it stricter, and hooks of the user may answer a
/// question that only rules ask, never one that is above the rules. A question that a hook requires
/// becomes part of the request.
///
/// # Errors
/// To the model, if a hook refuses the call; if the user cancels.
pub(super) async fn apply_to_verdict(
    turn: &TurnContext,
    agent: &Agent,
    PlacedCall { call, context, .. }: PlacedCall<'_>,
    request: &mut Cow<'_, AccessRequest>,
    mut verdict: Verdict,
) -> Result<Verdict, Failure> {
    if verdict.action == Action::Deny
        || !has_handler(&turn.project.context.settings, HookPoint::Permission)
    {
        return Ok(verdict);
    }
    let word = if verdict.action == Action::Ask {
        "ask"
    } else {
        "allow"
    };
    let hook_event = call_event(
        HookPoint::Permission,
        &agent.name,
        call,
        std::slice::from_ref(&**request),
        context,
    )
    .with("permission", request.permission.as_str())
    .with("patterns", request.patterns.clone())
    .with("verdict", word);
    let hook_outcome = turn
        .session
        .common
        .extensions
        .run_hooks(hook_event, context)
        .await?;
    if let Some(why) = hook_outcome.deny {
        return Err(Failure::ForModel(why));
    }
    if let Some(why) = hook_outcome.ask {
        let request = request.to_mut();
        let why = request.hook_question.get_or_insert(why);
        verdict = verdict.with_reason_to_ask(why);
    } else if hook_outcome.allow && is_asked_by_rules(request, &verdict) {
        verdict.action = Action::Allow;
    }
    Ok(verdict)
}

/// True if only rules, or the lack of one, make this a question.
fn is_asked_by_rules(request: &AccessRequest, verdict: &Verdict) -> bool {
    let units = verdict
        .units
        .iter()
        .filter(|unit| unit.action == Action::Ask);
    request.hook_question.is_none()
        && request.minimum.is_none()
        && request.why_only_harmless.is_none()
        && request.permission != "doom_loop"
        && verdict.reason.is_none()
        && units.clone().all(|unit| unit.reason.is_none())
}

/// Prepares plugins for a prompt, and returns their contributions to the settings.
pub async fn load_contributions(turn: &TurnContext) -> Vec<Contribution> {
    let scripts = &turn.session.common.extensions.scripts;
    if turn.project.context.settings.scripts.is_empty() {
        return Vec::new();
    }
    let Ok(agent) = step_context::chosen_agent(turn) else {
        return Vec::new();
    };
    let context = tool_context::call_context(turn, &agent, &turn.new_call_id());
    // The next wait of the turn notices a cancel.
    scripts.prepare_turn(&context).await.ok();
    scripts.contributions()
}

/// Runs the hooks of a prompt before it reaches the model, and those of the session start before
/// the first prompt of an opened session. Their notes are appended to the prompt. Returns `None` if
/// a hook refuses the prompt; the user has been notified.
pub async fn run_on_prompt(
    turn: &TurnContext,
    (record, resumed): (&Record, bool),
    mut content: Vec<Content>,
) -> Option<Vec<Content>> {
    let settings = &turn.project.context.settings;
    let scripts = &turn.session.common.extensions.scripts;
    let first = turn.session.common.extensions.begin_session()
        && has_handler(settings, HookPoint::SessionStart);
    if !first && !has_handler(settings, HookPoint::Prompt) {
        // Plugins that were removed from the settings are stopped.
        scripts.end().await;
        return Some(content);
    }
    // If there is no agent, the turn reports the error.
    let Ok(agent) = step_context::chosen_agent(turn) else {
        return Some(content);
    };
    let context = tool_context::call_context(turn, &agent, &turn.new_call_id());
    // The next wait of the turn notices a cancel.
    scripts.prepare_turn(&context).await.ok();
    let mut notes = Vec::new();
    if first {
        let kind = if resumed {
            "session.updated"
        } else {
            "session.created"
        };
        // Other observers learnt of it when it was opened.
        scripts.send_event(
            kind,
            &turn.session.recorder.events.session_properties(record),
        );
        let start = HookEvent::new(HookPoint::SessionStart, &agent.name).with("resumed", resumed);
        let hook_outcome = turn
            .session
            .common
            .extensions
            .run_hooks(start, &context)
            .await
            .unwrap_or_default();
        notes.extend(hook_outcome.context);
    }
    let typed = content.iter().filter_map(|content| match content {
        Content::Text(text) if !text.synthetic => Some(text.text.as_str()),
        _ => None,
    });
    let typed = typed.collect::<Vec<_>>().join("\n\n");
    let mut hook_event =
        HookEvent::new(HookPoint::Prompt, &agent.name).with("text", typed.as_str());
    hook_event.subjects.push(typed);
    let hook_outcome = turn
        .session
        .common
        .extensions
        .run_hooks(hook_event, &context)
        .await
        .unwrap_or_default();
    if let Some(why) = hook_outcome.deny {
        let title = text::title(&why);
        let details = Some("The prompt was not sent to the model.".to_owned());
        turn.event_sender
            .event(Event::Notice {
                severity: Severity::Warning,
                title,
                details,
            })
            .await;
        return None;
    }
    notes.extend(hook_outcome.context);
    notes.extend(scripts.take_notes());
    notes.extend(plugin_prompts(turn).await);
    content = rewrite_texts(content, async |texts| {
        let model = step_context::chosen_model(turn, &agent);
        turn.session
            .common
            .extensions
            .change_prompt(&model, texts, &context)
            .await
            .ok()
            .flatten()
    })
    .await;
    content.extend(notes.iter().map(|note| remind::note(note)));
    Some(content)
}

/// Stores the conversation for requests of plugins.
pub(super) fn share_conversation(history: &History, turn: &TurnContext, busy: bool) {
    if turn.session.depth == 0 {
        turn.session.common.extensions.scripts.update_conversation(
            &turn.session.recorder.events.message_context(),
            &history.messages,
            busy,
        );
    }
}

/// Gives plugins access to this step: to the subagents that the current agent may start without a
/// question.
pub(super) fn share_with_plugins(turn: &TurnContext, step: &StepContext) {
    if turn.session.depth > 0 {
        return;
    }
    turn.session.common.extensions.scripts.set_turn_access(|| {
        let rules = &step.agent.rules;
        let settings = &turn.project.context.settings;
        let speaker = step.agent.name.as_str();
        let policy = tool_context::current_rules(turn, &step.agent);
        let unasked = |name: &str| {
            policy.judge(&AccessRequest::new("task", name)).action == Action::Allow
                && !may_refuse(settings, speaker, "task", name)
        };
        let deeper = turn.session.depth < settings.general.subagent_depth && !rules.hides("task");
        let agents = if deeper {
            turn.project.agents.subagents_for(rules)
        } else {
            Vec::new()
        };
        Some(PluginTurnAccess {
            requests: turn.session_requests.clone(),
            agents: agents
                .iter()
                .map(|agent| agent.name.clone())
                .filter(|name| unasked(name))
                .collect(),
            model: step.model.id.clone(),
            rules: rules.clone(),
        })
    });
}

/// Returns the prompts of plugins for the model, and shows their first lines to the user.
async fn plugin_prompts(turn: &TurnContext) -> Vec<String> {
    let mut prompts = Vec::new();
    for prompt in turn.session.common.extensions.scripts.take_prompts() {
        let first_line = prompt
            .text
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default();
        let title = format!(
            "The plugin {} tells the model: {}",
            prompt.plugin,
            text::title(first_line)
        );
        turn.event_sender
            .event(Event::Notice {
                severity: Severity::Info,
                title,
                details: None,
            })
            .await;
        prompts.push(prompt.text);
    }
    prompts
}

/// Runs the hooks at the end of a turn, which hooks have continued `continuations` times. Returns the
/// prompt of a hook that continues the turn again.
pub(super) async fn run_at_turn_end(
    history: &History,
    turn: &TurnContext,
    outcome: &TurnOutcome,
    continuations: u32,
) -> Option<String> {
    let scripts = &turn.session.common.extensions.scripts;
    if turn.session.depth == 0 {
        scripts.set_turn_access(|| None);
    }
    share_conversation(history, turn, false);
    report_end(turn, outcome);
    let word = match outcome {
        TurnOutcome::Ended | TurnOutcome::NotDone | TurnOutcome::Rejected => "ended",
        TurnOutcome::Refused => "refused",
        TurnOutcome::MaxTokens | TurnOutcome::StepLimit => "limit",
        TurnOutcome::Failed(_) => "failed",
        TurnOutcome::Cancelled | TurnOutcome::Steered => return None,
    };
    if turn.session.depth > 0 || !has_handler(&turn.project.context.settings, HookPoint::TurnEnd) {
        return None;
    }
    let agent = step_context::chosen_agent(turn).ok()?;
    let context = tool_context::call_context(turn, &agent, &turn.new_call_id());
    let last = next::current_turn(history)
        .iter()
        .rev()
        .find(|message| message.assistant().is_some());
    let hook_event = HookEvent::new(HookPoint::TurnEnd, &agent.name)
        .with("outcome", word)
        .with("continued", continuations > 0)
        .with("text", last.map(Message::visible_text).unwrap_or_default());
    let hook_outcome = turn
        .session
        .common
        .extensions
        .run_hooks(hook_event, &context)
        .await
        .ok()?;
    if *outcome != TurnOutcome::Ended {
        return None;
    }
    let more = scripts.await_added_prompt().await;
    if hook_outcome.remaining_work.is_none() && !more {
        return None;
    }
    if continuations >= MAX_CONTINUATIONS {
        let title = format!(
            "A hook or plugin asked again to continue the turn; it ends after {MAX_CONTINUATIONS} times."
        );
        turn.event_sender
            .event(Event::Notice {
                severity: Severity::Warning,
                title,
                details: None,
            })
            .await;
        return None;
    }
    let prompts: Vec<String> = hook_outcome
        .remaining_work
        .into_iter()
        .chain(plugin_prompts(turn).await)
        .collect();
    turn.session.recorder.events.status(&Status::Busy);
    Some(prompts.join("\n\n"))
}

/// Runs the hooks before a compaction. Returns the texts that they want in the summary.
pub(super) async fn run_before_compaction(
    turn: &TurnContext,
    step: &StepContext,
    auto: bool,
    focus: Option<&str>,
) -> Vec<String> {
    if !has_handler(&turn.project.context.settings, HookPoint::Compaction) {
        return Vec::new();
    }
    let context = tool_context::step_call_context(turn, step, &turn.new_call_id());
    let hook_event = HookEvent::new(HookPoint::Compaction, &step.agent.name)
        .with("auto", auto)
        .with("text", focus.unwrap_or_default());
    turn.session
        .common
        .extensions
        .run_hooks(hook_event, &context)
        .await
        .unwrap_or_default()
        .context
}

/// True if a turn continues after an automatic compaction: plugins may end it there.
pub(super) async fn continues_after_compaction(
    turn: &TurnContext,
    step: &StepContext,
    overflow: bool,
) -> bool {
    let extensions = &turn.session.common.extensions;
    if !extensions
        .scripts
        .handles_hook("experimental.compaction.autocontinue")
    {
        return true;
    }
    let context = tool_context::step_call_context(turn, step, &turn.new_call_id());
    extensions
        .continues_after_compaction(&step.model, overflow, &context)
        .await
        .unwrap_or(true)
}

/// Returns the model that plugins choose for small tasks, given the current model.
pub async fn small_model(turn: &TurnContext, current: &ModelRef) -> Option<ModelRef> {
    let extensions = &turn.session.common.extensions;
    if !extensions
        .scripts
        .handles_hook("experimental.provider.small_model")
    {
        return None;
    }
    let agent = step_context::chosen_agent(turn).ok()?;
    let context = tool_context::call_context(turn, &agent, &turn.new_call_id());
    extensions.small_model(current, &context).await.ok()?
}

/// Runs the hooks of a closing session, for a limited time. `turn` is a context without a turn:
/// its events have no receiver.
pub async fn run_at_session_end(turn: &TurnContext) {
    if !turn.session.common.extensions.has_begun()
        || !has_handler(&turn.project.context.settings, HookPoint::SessionEnd)
    {
        return;
    }
    let Ok(agent) = step_context::chosen_agent(turn) else {
        return;
    };
    let context = tool_context::call_context(turn, &agent, &turn.new_call_id());
    let hook_event = HookEvent::new(HookPoint::SessionEnd, &agent.name);
    let asked = turn
        .session
        .common
        .extensions
        .run_hooks(hook_event, &context);
    if tokio::time::timeout(SESSION_END_TIMEOUT, asked)
        .await
        .is_err()
    {
        tracing::warn!(
            "the hooks of the session's end took longer than {SESSION_END_TIMEOUT:?} and were ended"
        );
    }
}

/// Publishes the end of a turn.
fn report_end(turn: &TurnContext, outcome: &TurnOutcome) {
    let events = &turn.session.recorder.events;
    match outcome {
        TurnOutcome::Failed(fault) => events.failed(fault),
        TurnOutcome::Cancelled => events.failed(&cancelled_fault()),
        // The turn of the next message continues.
        TurnOutcome::Steered => return,
        TurnOutcome::Ended
        | TurnOutcome::Rejected
        | TurnOutcome::Refused
        | TurnOutcome::MaxTokens
        | TurnOutcome::StepLimit
        | TurnOutcome::NotDone => {}
    }
    events.idle();
}

/// Publishes a permission question. Returns its id.
pub(super) fn publish_question(
    turn: &TurnContext,
    PlacedCall { call, message, .. }: PlacedCall<'_>,
    requests: &[&AccessRequest],
) -> String {
    let id = turn.session.common.environment.fresh("per");
    let all = |of: fn(&AccessRequest) -> &Vec<String>| -> Vec<&String> {
        requests.iter().flat_map(|request| of(request)).collect()
    };
    let first = requests.first();
    turn.session.recorder.events.permission_asked(|| {
        let permission = first.map(|request| &request.permission);
        let patterns = all(|request| &request.patterns);
        json!({
            "id": id, "sessionID": turn.session.id.as_str(), "type": permission, "permission": permission,
            "pattern": patterns, "patterns": patterns, "always": all(|request| &request.always), "title": call.title,
            "callID": call.call.as_str(), "messageID": message.as_str(),
            "tool": { "messageID": message.as_str(), "callID": call.call.as_str() }, "metadata": first.map(|request| &request.metadata),
            "time": { "created": turn.now().0 },
        })
    });
    id
}

/// Publishes the files that a call has changed.
pub(super) fn publish_edits(turn: &TurnContext, output: &ToolOutput) {
    // A change of several parts is one edit of its file.
    let files = output.changes.chunk_by(|a, b| a.path == b.path);
    for change in files.filter_map(<[Change]>::first) {
        turn.session.recorder.events.edited(&change.path);
    }
}

/// Replaces the texts of a prompt by those of plugins; further texts are appended.
async fn rewrite_texts(
    mut content: Vec<Content>,
    change: impl AsyncFnOnce(&[String]) -> Option<Vec<ChangedText>>,
) -> Vec<Content> {
    let is_text = |content: &&mut Content| matches!(content, Content::Text(text) if !text.ignored);
    let texts: Vec<String> = content
        .iter()
        .filter_map(|content| match content {
            Content::Text(text) if !text.ignored => Some(text.text.to_string()),
            _ => None,
        })
        .collect();
    let Some(changed) = change(&texts).await else {
        return content;
    };
    let mut changed = changed.into_iter();
    for part in content.iter_mut().filter(is_text) {
        if let (Content::Text(text), Some(replacement)) = (part, changed.next()) {
            text.text = replacement.text.into();
        }
    }
    content.extend(changed.map(|added| {
        if added.is_for_model_only {
            remind::note(&added.text)
        } else {
            Content::Text(Text {
                text: added.text.into(),
                ..Text::default()
            })
        }
    }));
    content
}

/// Returns the texts of a command as plugins have rewritten them.
pub async fn rewrite_command(
    turn: &TurnContext,
    (name, arguments): (&str, &str),
    content: Vec<Content>,
) -> Vec<Content> {
    let extensions = &turn.session.common.extensions;
    let Ok(agent) = step_context::chosen_agent(turn) else {
        return content;
    };
    if !extensions.scripts.handles_hook("command.execute.before") {
        return content;
    }
    let context = tool_context::call_context(turn, &agent, &turn.new_call_id());
    rewrite_texts(content, async |texts| {
        extensions
            .change_command((name, arguments), texts, &context)
            .await
            .ok()
            .flatten()
    })
    .await
}

/// Lets plugins change a step's request.
pub(super) async fn rewrite_request(turn: &TurnContext, step: &StepContext, request: &mut Request) {
    if turn.project.context.settings.scripts.is_empty() {
        return;
    }
    let context = tool_context::step_call_context(turn, step, &turn.new_call_id());
    // The next wait of the turn notices a cancel.
    turn.session
        .common
        .extensions
        .change_request(request, &context)
        .await
        .ok();
}

/// Lets plugins rewrite the texts of a complete answer.
pub(super) async fn rewrite_answer(turn: &TurnContext, step: &StepContext, message: &mut Message) {
    let extensions = &turn.session.common.extensions;
    if !extensions
        .scripts
        .handles_hook("experimental.text.complete")
    {
        return;
    }
    let context = tool_context::step_call_context(turn, step, &turn.new_call_id());
    let id = message.id.clone();
    for part in &mut message.parts {
        let Content::Text(text) = &mut part.content else {
            continue;
        };
        if text.text.trim().is_empty() || text.synthetic {
            continue;
        }
        let at = (id.as_str(), part.id.as_str());
        if let Ok(Some(replacement)) = extensions.change_answer(at, &text.text, &context).await {
            text.text = replacement.into();
            turn.session.recorder.part(&id, part).await;
        }
    }
}
