//! One prompt to its stop.

use super::budget::{self, Remaining};
use super::change_recorder::StepChanges;
use super::frame::{self, Frame};
use super::next::{self, CompactionTrigger, Limits, Next};
use super::note::{add, note, put};
use super::{
    History, Outcome, TurnContext, compact, hooks, jobs, pictures, prune, release, remind, request, size, step, subtask,
};
use base::text;
use events::{Event, Severity, Status};
use mcp::resource::ChangedResource;
use project::agent::Agent;
use prompts::CONTENTS_OF;
use transcript::{Content, Fault, FaultKind, Message, Text};

/// Runs the turn whose prompt is the history's last message. Everything that happens is told and
/// kept as it happens; the history comes back with it.
pub async fn run(mut history: History, scope: TurnContext) -> (History, Outcome) {
    scope.outlet.event(Event::Status(Status::Busy)).await;
    let mut outcome = make_steps(&mut history, &scope).await;
    let mut sent_on = 0;
    while let Some(words) = hooks::ended(&history, &scope, &outcome, sent_on).await {
        let Ok(frame) = frame::freeze(&scope, false, &history) else { break };
        add(&mut history, &scope, &frame, remind::note(&words)).await;
        sent_on += 1;
        outcome = make_steps(&mut history, &scope).await;
    }
    prune::prune(&mut history, &scope).await;
    release::let_go(&mut history, &scope).await;
    scope.outlet.event(Event::Status(Status::Idle)).await;
    (history, outcome)
}

/// Summarises the history because the user wants it, keeping above all what they say.
pub async fn summarise(history: &mut History, scope: &TurnContext, focus: Option<String>) -> Outcome {
    let made = match frame::freeze(scope, false, history) {
        Ok(frame) => compact::compact(history, scope, &frame, CompactionTrigger::Asked, focus).await,
        Err(fault) => Err(Outcome::Failed(fault)),
    };
    release::let_go(history, scope).await;
    made.map_or_else(|outcome| outcome, |()| Outcome::Ended)
}

/// Which limit has ended the turn, for the user.
pub fn limit(history: &History, scope: &TurnContext) -> Event {
    let most = scope.project.settings.budget.cost;
    let title = match most.filter(|_| scope.budget.is_empty(most)) {
        Some(most) => budget::spent(most),
        None => next::steps(history),
    };
    let details = Some("Say \"go on\" to let it continue.".to_owned());
    Event::Notice { severity: Severity::Warning, title, details }
}

/// Makes steps until there are no more to make. What they changed is entered by then.
async fn make_steps(history: &mut History, scope: &TurnContext) -> Outcome {
    let mut changed = None;
    let outcome = steps(history, scope, &mut changed).await;
    step::enter(history, scope, changed).await;
    if outcome == Outcome::Rejected {
        step::say_rejected(history, scope).await;
    }
    outcome
}

/// Says with the prompt what was interrupted before it.
async fn interrupted(history: &mut History, scope: &TurnContext) {
    if let Some(note) = remind::interrupted(history)
        && let Some(prompt) = history.messages.last_mut()
    {
        let part = scope.part(remind::note(&note));
        scope.record.part(&prompt.id, &part).await;
        prompt.parts.push(part);
    }
}

/// `changed` is what the last step changed, as long as that is not entered.
async fn steps(history: &mut History, scope: &TurnContext, changed: &mut Option<StepChanges>) -> Outcome {
    let mut asked = None;
    // A step was made for the last words, because all the money is spent.
    let mut spoken_last = false;
    // Before anything is summarised or handed on: it is about what came before the prompt.
    interrupted(history, scope).await;
    loop {
        if scope.cancelled.is_cancelled() || scope.leaving.is_cancelled() {
            return Outcome::Cancelled;
        }
        if scope.record.is_exhausted().await {
            return Outcome::Failed(exhausted());
        }
        let agent = match frame::agent(scope) {
            Ok(agent) => agent,
            Err(fault) => return Outcome::Failed(fault),
        };
        let limits = limits(scope, &agent, spoken_last);
        let next = next::next(history, &limits);
        if !matches!(next, Next::Step { .. }) {
            step::enter(history, scope, changed.take()).await;
        }
        let (made, last) = match next {
            Next::Finish(outcome) => return outcome,
            work @ (Next::Subtask | Next::LeaveOut | Next::Insist | Next::Resume | Next::GoOn) => {
                match aside(&work, history, scope).await {
                    Ok(()) => continue,
                    Err(fault) => return Outcome::Failed(fault),
                }
            }
            // What the user said meanwhile comes with the turn it belongs to.
            Next::Step { made: 1.., .. } if *scope.spoken.borrow() => return Outcome::Steered,
            Next::Step { made, last } => (made, last),
            // What is old goes first; where that is enough, nothing needs to be summarised.
            Next::Compact(CompactionTrigger::Full) if prune::prune(history, scope).await => continue,
            Next::Compact(why) => {
                asked = None;
                match make_room(history, scope, &limits, why).await {
                    Ok(()) => continue,
                    Err(outcome) => return outcome,
                }
            }
        };
        scope.resources.servers.refresh(&scope.outlet, &scope.cancelled).await;
        let frozen = frame::freeze(scope, last, history).and_then(|frame| frame.with_format(history));
        let frame = match frozen.and_then(fitting) {
            Ok(frame) => frame,
            Err(fault) => return Outcome::Failed(fault),
        };
        if size::load(history) == 0 && next::overfull(history, &limits, fixed(&frame)) {
            asked = None;
            step::enter(history, scope, changed.take()).await;
            if !prune::prune(history, scope).await
                && let Err(outcome) = make_room(history, scope, &limits, CompactionTrigger::Full).await
            {
                return outcome;
            }
            continue;
        }
        remind_of(history, scope, &frame, made, last).await;
        if let Some(news) = jobs::news(history, scope).await {
            note(history, scope, &frame, &news).await;
        }
        spoken_last |= limits.money == Remaining::Spent;
        step::step(history, scope, &frame, &mut asked, changed, made == 0).await;
    }
}

/// Why a turn ends whose conversation cannot be saved.
fn exhausted() -> Fault {
    Fault {
        kind: FaultKind::Store,
        message: "The database that keeps the conversation has been away for too long.".into(),
        advice: Some("What was said since it went is in memory; prompt again when it is back.".into()),
    }
}

/// Does what stands between two steps and asks no model itself.
async fn aside(work: &Next, history: &mut History, scope: &TurnContext) -> Result<(), Fault> {
    let words = match work {
        Next::LeaveOut => return leave_out(history, scope).await,
        Next::Insist => prompts::reminder::STRUCTURED,
        Next::Resume => prompts::reminder::CUT_OFF,
        Next::GoOn => prompts::reminder::GO_ON,
        _ => return subtask::subtasks(history, scope).await,
    };
    let frame = frame::freeze(scope, false, history)?;
    add(history, scope, &frame, remind::note(words)).await;
    Ok(())
}

/// Leaves out the pictures that the provider has just refused, so that the turn can go on.
async fn leave_out(history: &mut History, scope: &TurnContext) -> Result<(), Fault> {
    let frame = frame::freeze(scope, false, history)?;
    let fault = history.messages.last().and_then(Message::assistant).and_then(|answer| answer.fault.clone());
    let why = fault.map(|fault| fault.message).unwrap_or_default();
    let words = pictures::leave_out(history, scope, &frame.model.name, &why).await;
    add(history, scope, &frame, remind::note(&words)).await;
    Ok(())
}

/// Summarises the history, so that the turn can go on.
async fn make_room(
    history: &mut History,
    scope: &TurnContext,
    limits: &Limits,
    why: CompactionTrigger,
) -> Result<(), Outcome> {
    if let Some(fault) = next::stuck(history, limits) {
        return Err(Outcome::Failed(fault));
    }
    let frame = frame::freeze(scope, false, history).map_err(Outcome::Failed)?;
    // As before a turn's first step: what was said is on the disk before anything comes of it.
    if let Err(e) = scope.record.flush().await {
        tracing::error!("the conversation is not saved: {e}");
        scope.unsaved(&e).await;
    }
    compact::compact(history, scope, &frame, why, None).await?;
    release::let_go(history, scope).await;
    let overflow = why == CompactionTrigger::Refused;
    if hooks::goes_on(scope, &frame, overflow).await { Ok(()) } else { Err(Outcome::Ended) }
}

fn limits(scope: &TurnContext, agent: &Agent, spoken_last: bool) -> Limits {
    let settings = &scope.project.settings.compaction;
    // Without a model the step says what is wrong.
    let model = scope.project.models.find(&frame::model(scope, agent)).ok().filter(|_| settings.auto);
    let budget = scope.project.settings.budget;
    Limits {
        steps: Some(agent.steps.map_or(budget.steps, |steps| steps.min(budget.steps))),
        money: match scope.budget.is_empty(budget.cost) {
            false => Remaining::Left,
            true if spoken_last => Remaining::Over,
            true => Remaining::Spent,
        },
        continue_on_deny: scope.goes_on_after_rejection(),
        usable: model.map(|(model, _)| model.usable(settings.reserved)),
    }
}

/// A frame that leaves room for words in the model's window.
fn fitting(frame: Frame) -> Result<Frame, Fault> {
    /// No larger window was ever filled by a system prompt.
    const SMALL: u64 = 64_000;
    if let Some(window) = frame.model.context.filter(|window| *window < SMALL) {
        let fixed = fixed(&frame);
        if fixed >= window {
            return Err(compact::too_small(&frame.model, fixed, 0));
        }
    }
    Ok(frame)
}

/// What every request of this frame takes, in tokens.
fn fixed(frame: &Frame) -> u64 {
    size::fixed(&request::request(&History::default(), frame, ""))
}

/// Adds the notes that belong before this step.
async fn remind_of(history: &mut History, scope: &TurnContext, frame: &Frame, made: u32, last: bool) {
    if let Some(words) = remind::switched(history, &frame.agent.name) {
        note(history, scope, frame, &words).await;
    }
    match made {
        _ if !last => {}
        0 => note(history, scope, frame, prompts::reminder::STEPS).await,
        _ => add(history, scope, frame, remind::note(prompts::reminder::STEPS)).await,
    }
    resources(history, scope, frame).await;
}

/// Tells of resources of servers that have changed since they were read: what they hold now is data, and stands
/// beside the note.
async fn resources(history: &mut History, scope: &TurnContext, frame: &Frame) {
    let servers = &scope.resources.servers;
    for changed in servers.changed_resources(&frame.agent.rules, &scope.cancelled).await {
        let ChangedResource { server, uri, now } = changed;
        let words = prompts::reminder::RESOURCE_CHANGED;
        let words = words.replace("{uri}", &text::title(&uri)).replace("{server}", &text::title(&server));
        note(history, scope, frame, &words).await;
        if let Some(now) = now {
            let text = format!("{CONTENTS_OF}{uri}, of the MCP server {server}:\n{now}");
            let text = Text { text: text.into(), synthetic: true, ..Text::default() };
            put(history, scope, frame, Content::Text(text)).await;
        }
    }
}
