//! A turn in its session. [`run`] polls the turn, and in the meantime serves its requests to the
//! session: start a subagent ([`child`]), switch to another agent, send a single request to the model
//! ([`super::sample`]).

pub(super) mod child;

use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, watch};

use super::sample;
use super::sessions::Sessions;
use crate::turn::{self, History, SessionChoices, TurnContext, TurnOutcome, jobs, trace};
use events::{Event, SessionRequest, SwitchAgent};

/// The capacity of the queue of a turn's session requests.
const MAX_QUEUED_REQUESTS: usize = 16;

pub(super) type TurnFuture<'a> = Pin<Box<dyn Future<Output = (History, TurnOutcome)> + Send + 'a>>;

/// The senders of a turn's choices: the session's, and the turn's own if a command names its agent or
/// model. Both `None` for a subagent, whose agent cannot change.
type ChoiceSenders<'a> = [Option<&'a watch::Sender<SessionChoices>>; 2];

/// Runs a turn of the user's session or of a subagent's, and serves its requests to the session.
/// Returns the history with the outcome when the turn and all its subagents have ended.
pub(super) fn run<'a>(
    shared: &'a Sessions,
    choices: ChoiceSenders<'a>,
    history: History,
    mut turn: TurnContext,
) -> TurnFuture<'a> {
    Box::pin(async move {
        let (session_requests, mut requests) = mpsc::channel(MAX_QUEUED_REQUESTS);
        turn.session_requests = session_requests;
        // Before it is copied for subagents, which are below their calls.
        let turn = trace::begin(&history, turn);
        let parent = turn.clone();
        let mut work = std::pin::pin!(turn::run::run(history, turn));
        let mut children = FuturesUnordered::new();
        let mut samples = FuturesUnordered::new();
        jobs::show_ended_jobs(&parent).await;
        let done = loop {
            tokio::select! {
                biased;
                () = parent.session.shared.jobs.await_end() => jobs::show_ended_jobs(&parent).await,
                done = &mut work => break done,
                Some(request) = requests.recv() => match request {
                    SessionRequest::Spawn(spawn) => children.push(child::run_child(shared, &parent, *spawn)),
                    SessionRequest::Switch(switch) => switch_agent(shared, choices, &parent, switch).await,
                    SessionRequest::Sample(wanted) => samples.push(sample::sample(&parent, *wanted)),
                },
                Some(()) = samples.next(), if !samples.is_empty() => {}
                Some(()) = children.next(), if !children.is_empty() => {}
            }
        };
        // After a cancel a child may still be cleaning up.
        while children.next().await.is_some() {}
        // The limit of a subagent is reported to its parent instead.
        if done.1 == TurnOutcome::StepLimit && choices[0].is_some() {
            parent
                .event_sender
                .event(turn::run::limit_notice(&done.0, &parent))
                .await;
        }
        trace::end(&parent, &done.1);
        done
    })
}

/// Switches to another agent and replies with its name; with `None` if the agent does not exist, or if
/// this is the turn of a subagent.
async fn switch_agent(
    shared: &Sessions,
    choices: ChoiceSenders<'_>,
    turn: &TurnContext,
    switch: SwitchAgent,
) {
    let modes = turn.project.agents.modes();
    let named = modes
        .iter()
        .find(|agent| agent.name == switch.agent)
        .cloned();
    let agent = named.or_else(|| (switch.agent == "build").then(|| turn.project.agents.default()));
    let agent_name = choices[0].and(agent).map(|agent| {
        for choice in choices.into_iter().flatten() {
            choice.send_modify(|choice| choice.agent.clone_from(&agent.name));
        }
        agent.name.clone()
    });
    if agent_name.is_some()
        && let Some(choice) = choices[0]
    {
        let change = choice.borrow().record_change();
        shared
            .store
            .queue_record_change(&turn.session.id, change)
            .await;
    }
    if let Some(agent_name) = &agent_name {
        turn.event_sender
            .event(Event::Mode(agent_name.clone()))
            .await;
    }
    // The receiver is dropped if the call was cancelled in the meantime.
    switch.reply.send(agent_name).ok();
}
