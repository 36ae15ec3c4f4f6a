//! The loop of a turn, from its prompt to its end.

use super::budget::{self, BudgetState};
use super::change_recorder::StepChanges;
use super::next::{self, CompactionTrigger, Limits, NextAction};
use super::note::{append_content, append_note, append_user_message};
use super::step_context::{self, StepContext};
use super::{
    History, TurnContext, TurnOutcome, compact, evict, hooks, images, jobs, prune, remind, size,
    step, subtask, unset_key,
};
use crate::models::without_tools;
use base::text;
use events::{Event, Severity, Status};
use mcp::resource::ChangedResource;
use project::agent::Agent;
use prompts::CONTENTS_OF;
use providers::registry::Registry;
use transcript::{Content, Fault, FaultKind, Message, ModelRef, Text};

/// Runs the turn whose prompt is the history's last message. Events are sent and messages are
/// stored as they arise; the history is returned with the outcome.
pub async fn run(mut history: History, turn: TurnContext) -> (History, TurnOutcome) {
    turn.report_status(Status::Busy).await;
    let mut outcome = make_steps(&mut history, &turn).await;
    let mut continuations = 0;
    while let Some(prompt) = hooks::run_at_turn_end(&history, &turn, &outcome, continuations).await
    {
        let Ok(step) = step_context::capture(&turn, false, &history) else {
            break;
        };
        append_user_message(&mut history, &turn, &step, remind::note(&prompt)).await;
        continuations += 1;
        outcome = make_steps(&mut history, &turn).await;
    }
    prune::prune(&mut history, &turn).await;
    evict::evict(&mut history, &turn).await;
    turn.report_status(Status::Idle).await;
    (history, outcome)
}

/// Summarises the history at the user's request, with an optional focus.
pub async fn summarise(
    history: &mut History,
    turn: &TurnContext,
    focus: Option<String>,
) -> TurnOutcome {
    let made = match step_context::capture(turn, false, history) {
        Ok(step) => {
            compact::compact(history, turn, &step, CompactionTrigger::Requested, focus).await
        }
        Err(fault) => Err(TurnOutcome::Failed(fault)),
    };
    evict::evict(history, turn).await;
    turn.publish_status(&Status::Idle);
    turn.session.recorder.events.idle();
    made.map_or_else(|outcome| outcome, |()| TurnOutcome::Ended)
}

/// Returns the notice about the limit that has ended the turn.
pub fn limit_notice(history: &History, turn: &TurnContext) -> Event {
    let title = match turn.project.context.settings.budget.cost {
        Some(max) if turn.budget.is_spent(Some(max)) => budget::spent_message(max),
        _ => next::step_limit_text(history),
    };
    let details = Some("Say \"continue\" to continue.".to_owned());
    Event::Notice {
        severity: Severity::Warning,
        title,
        details,
    }
}

/// Makes steps until the turn ends. Their file changes are in the history afterwards.
async fn make_steps(history: &mut History, turn: &TurnContext) -> TurnOutcome {
    let mut changed = None;
    let outcome = make_steps_until_end(history, turn, &mut changed).await;
    step::add_file_changes(history, turn, changed).await;
    if outcome == TurnOutcome::Rejected {
        step::announce_rejected_calls(history, turn).await;
    }
    outcome
}

/// Adds a note about interrupted work to the prompt that follows it.
async fn note_interrupted_work(history: &mut History, turn: &TurnContext) {
    if let Some(note) = remind::interrupted(history)
        && let Some(prompt) = history.messages.last_mut()
    {
        let part = turn.new_part(remind::note(&note));
        turn.session.recorder.part(&prompt.id, &part).await;
        prompt.parts.push(part);
    }
}

/// Makes steps until the turn ends. `changed` contains the file changes of the last step until they
/// are entered.
#[expect(
    clippy::cognitive_complexity,
    reason = "one loop, with each way to end a turn"
)]
async fn make_steps_until_end(
    history: &mut History,
    turn: &TurnContext,
    changed: &mut Option<StepChanges>,
) -> TurnOutcome {
    let mut last_request = None;
    if let Ok(agent) = step_context::chosen_agent(turn) {
        let wanted = step_context::chosen_model(turn, &agent);
        tokio::select! {
            () = turn.project.models.prepare(&wanted) => {}
            () = turn.cancelled.cancelled() => {}
        }
    }
    // Whether the last step without budget has been made, for the model's final text.
    let mut has_made_final_step = false;
    // Before a compaction or a subtask, because the note is about the work before the prompt.
    note_interrupted_work(history, turn).await;
    loop {
        if turn.cancelled.is_cancelled() || turn.session.common.exit_requested.is_cancelled() {
            return TurnOutcome::Cancelled;
        }
        if turn.session.recorder.is_exhausted().await {
            return TurnOutcome::Failed(unsaved_fault());
        }
        let agent = match step_context::chosen_agent(turn) {
            Ok(agent) => agent,
            Err(fault) => return TurnOutcome::Failed(fault),
        };
        let limits = turn_limits(turn, &agent, has_made_final_step);
        let next = next::decide_next(history, &limits);
        if !matches!(next, NextAction::Step { .. }) {
            step::add_file_changes(history, turn, changed.take()).await;
        }
        let (made, last) = match next {
            NextAction::Finish(outcome) => return outcome,
            work @ (NextAction::RunSubtasks
            | NextAction::LeaveOutImages
            | NextAction::RequestResult
            | NextAction::ContinueCutOff
            | NextAction::ContinueUnexplained) => {
                match perform_between_steps(&work, history, turn).await {
                    Ok(()) => continue,
                    Err(fault) => return TurnOutcome::Failed(fault),
                }
            }
            // A message sent in the meantime comes with its own turn.
            NextAction::Step { made: 1.., .. } if *turn.session.has_steering_message.borrow() => {
                return TurnOutcome::Steered;
            }
            NextAction::Step { made, last } => (made, last),
            // Old results are cleared first; if that is enough, no summary is needed.
            NextAction::Compact(CompactionTrigger::Full) if prune::prune(history, turn).await => {
                continue;
            }
            NextAction::Compact(why) => {
                last_request = None;
                match compact_to_continue(history, turn, &limits, why).await {
                    Ok(()) => continue,
                    Err(outcome) => return outcome,
                }
            }
        };
        turn.session
            .common
            .servers
            .refresh(&turn.event_sender, &turn.cancelled)
            .await;
        let step = match step_context::capture(turn, last, history).and_then(check_fits) {
            Ok(step) => step,
            Err(fault) => return TurnOutcome::Failed(fault),
        };
        if size::next_request_tokens(history) == 0
            && next::exceeds_window(history, &limits, step.fixed_tokens())
        {
            last_request = None;
            step::add_file_changes(history, turn, changed.take()).await;
            if !prune::prune(history, turn).await
                && let Err(outcome) =
                    compact_to_continue(history, turn, &limits, CompactionTrigger::Full).await
            {
                return outcome;
            }
            continue;
        }
        if made == 0 {
            report_limits(history, turn, &step).await;
            unset_key::report(turn, &step.model).await;
        }
        if !last {
            turn.session.left_out_tools.report(turn, &step).await;
        }
        append_step_notes(history, turn, &step, made, last).await;
        if let Some(news) = jobs::take_note_on_ended_jobs(history, turn).await {
            append_note(history, turn, &step, &news).await;
        }
        has_made_final_step |= limits.budget == BudgetState::Spent;
        step::run(history, turn, &step, &mut last_request, changed, made == 0).await;
    }
}

/// Returns the fault of a turn whose conversation cannot be saved.
fn unsaved_fault() -> Fault {
    Fault {
        kind: FaultKind::Store,
        message: "The database that stores the conversation has been unreachable for too long."
            .into(),
        advice: Some(
            "Newer messages are in memory; send a prompt again when the database is back.".into(),
        ),
    }
}

/// Performs an action between two steps that does not need the model itself.
async fn perform_between_steps(
    work: &NextAction,
    history: &mut History,
    turn: &TurnContext,
) -> Result<(), Fault> {
    let text = match work {
        NextAction::LeaveOutImages => return leave_out_images(history, turn).await,
        NextAction::RequestResult => prompts::reminder::STRUCTURED,
        NextAction::ContinueCutOff => prompts::reminder::CUT_OFF,
        NextAction::ContinueUnexplained => prompts::reminder::GO_ON,
        _ => return subtask::subtasks(history, turn).await,
    };
    let step = step_context::capture(turn, false, history)?;
    append_user_message(history, turn, &step, remind::note(text)).await;
    Ok(())
}

/// Leaves out the pictures that the provider has just rejected, so that the turn can continue.
async fn leave_out_images(history: &mut History, turn: &TurnContext) -> Result<(), Fault> {
    let step = step_context::capture(turn, false, history)?;
    let fault = history
        .messages
        .last()
        .and_then(Message::assistant)
        .and_then(|answer| answer.fault.clone());
    let why = fault.map(|fault| fault.message).unwrap_or_default();
    let text = images::reject_images(history, turn, &step.model.name, &why).await;
    append_user_message(history, turn, &step, remind::note(&text)).await;
    Ok(())
}

/// Summarises the history, so that the turn can continue.
async fn compact_to_continue(
    history: &mut History,
    turn: &TurnContext,
    limits: &Limits,
    why: CompactionTrigger,
) -> Result<(), TurnOutcome> {
    if let Some(fault) = next::futile_summaries_fault(history, limits) {
        return Err(TurnOutcome::Failed(fault));
    }
    let step = step_context::capture(turn, false, history).map_err(TurnOutcome::Failed)?;
    // As before a turn's first step: the prompt is stored before it has any effect.
    if let Err(e) = turn.session.recorder.flush().await {
        tracing::error!("the conversation is not saved: {e}");
        turn.notify_unsaved(&e).await;
    }
    compact::compact(history, turn, &step, why, None).await?;
    evict::evict(history, turn).await;
    let overflow = why == CompactionTrigger::Refused;
    if hooks::continues_after_compaction(turn, &step, overflow).await {
        Ok(())
    } else {
        Err(TurnOutcome::Ended)
    }
}

fn turn_limits(turn: &TurnContext, agent: &Agent, has_made_final_step: bool) -> Limits {
    let settings = &turn.project.context.settings.compaction;
    // If there is no model, the step reports the error.
    let model = if settings.auto {
        turn.project
            .models
            .find(&step_context::chosen_model(turn, agent))
            .ok()
    } else {
        None
    };
    let budget = turn.project.context.settings.budget;
    let money = if !turn.budget.is_spent(budget.cost) {
        BudgetState::Left
    } else if has_made_final_step {
        BudgetState::Over
    } else {
        BudgetState::Spent
    };
    Limits {
        max_steps: Some(
            agent
                .steps
                .map_or(budget.steps, |steps| steps.min(budget.steps)),
        ),
        budget: money,
        continues_after_rejection: turn.continues_after_rejection(),
        usable_tokens: model.map(|(model, _)| model.usable_tokens(settings.reserved)),
    }
}

/// Returns the inputs of a step if they leave space for messages in the model's window.
fn check_fits(step: StepContext) -> Result<StepContext, Fault> {
    if step.fits() {
        return Ok(step);
    }
    let fixed = step.fixed_tokens();
    Err(compact::window_too_small_fault(&step.model, fixed, 0))
}

/// Reports before the model's first answer in the session that it cannot call tools, or that it
/// answers in place of another.
async fn report_limits(history: &History, turn: &TurnContext, step: &StepContext) {
    let model = &step.model.id;
    let title = if let Some(other) = passed_over_model(turn, step) {
        format!(
            "No model here can call tools, so adjutant's offline model answers. `adjutant run -m {other}` asks one \
             that only answers in text; `adjutant models` lists all."
        )
    } else if let Some(why) = unavailable_model_text(turn, step) {
        why
    } else if !step.model.tools {
        without_tools(model)
    } else {
        return;
    };
    let is_of_model = |message: &Message| {
        let answer = message.assistant();
        answer.is_some_and(|answer| {
            (&answer.model.provider, &answer.model.model) == (&model.provider, &model.model)
        })
    };
    if history.messages.iter().any(is_of_model) {
        return;
    }
    let notice = Event::Notice {
        severity: Severity::Warning,
        title,
        details: None,
    };
    turn.event_sender.event(notice).await;
}

/// Returns a model that is not used because it cannot call tools, if the offline model answers in
/// its place.
fn passed_over_model(turn: &TurnContext, step: &StepContext) -> Option<ModelRef> {
    let is_chosen =
        turn.choice.borrow().model.is_some() || turn.project.context.settings.model.is_some();
    if is_chosen || step.model.id.provider != Registry::OFFLINE {
        return None;
    }
    let all = turn.project.models.all();
    all.iter()
        .find(|model| !model.tools)
        .map(|model| model.id.clone())
}

/// Returns the reason why the model that was chosen last in this project does not answer, if
/// nothing else was chosen since.
fn unavailable_model_text(turn: &TurnContext, step: &StepContext) -> Option<String> {
    let is_chosen = turn.choice.borrow().model.is_some()
        || turn.project.context.settings.model.is_some()
        || step.agent.model.is_some();
    if is_chosen {
        return None;
    }
    let models = &turn.project.models;
    let missing = models.find(models.recent().first()?).err()?;
    let name = match &step.model.id {
        id if id.provider == Registry::OFFLINE => "adjutant's offline model".to_owned(),
        id => id.to_string(),
    };
    Some(format!("{missing} {name} answers instead."))
}

/// Adds the notes that belong before this step.
async fn append_step_notes(
    history: &mut History,
    turn: &TurnContext,
    step: &StepContext,
    made: u32,
    last: bool,
) {
    if let Some(text) = remind::switched(history, &step.agent.name) {
        append_note(history, turn, step, &text).await;
    }
    match made {
        _ if !last => {}
        0 => append_note(history, turn, step, prompts::reminder::STEPS).await,
        _ => append_user_message(history, turn, step, remind::note(prompts::reminder::STEPS)).await,
    }
    append_changed_resources(history, turn, step).await;
}

/// Notifies the model of MCP resources that have changed since they were read. Their contents are
/// data, and are added as a part of their own after the note.
async fn append_changed_resources(history: &mut History, turn: &TurnContext, step: &StepContext) {
    let servers = &turn.session.common.servers;
    // Nothing that the session asks about is read unasked.
    let rules = step
        .agent
        .rules
        .clone()
        .then(&turn.session.permissions.ask_rules);
    for changed in servers.changed_resources(&rules, &turn.cancelled).await {
        let ChangedResource {
            server,
            uri,
            contents,
        } = changed;
        let text = prompts::reminder::RESOURCE_CHANGED;
        let text = text
            .replace("{uri}", &text::title(&uri))
            .replace("{server}", &text::title(&server));
        append_note(history, turn, step, &text).await;
        if let Some(contents) = contents {
            let text = format!("{CONTENTS_OF}{uri}, of the MCP server {server}:\n{contents}");
            let text = Text {
                text: text.into(),
                synthetic: true,
                ..Text::default()
            };
            append_content(history, turn, step, Content::Text(text)).await;
        }
    }
}
