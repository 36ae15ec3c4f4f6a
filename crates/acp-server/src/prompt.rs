//! Prompts, from their arrival to the end of the turn, in all protocol versions. [`queue`] puts a
//! prompt into its session's mailbox and returns a [`TurnStream`], which sends the updates of the turn
//! and then its end.
//!
//! One task sends all updates of a turn and its end, through one [`UpdateSender`], so that every update
//! precedes the end. With `adjutant serve`, a turn can move to another connection while it runs; see
//! `ObservableTurn`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::oneshot::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

use super::command_list::TurnGuard;
use super::error::RequestError;
use super::meta::{
    IDEMPOTENCY_KEY, META_KEY, Meta, SCHEMA, SYSTEM, TOOLS, flat_key_problem, member,
};
use super::metrics::Metrics;
use super::server::Server;
use super::updates::UpdateSender;
use super::user_sessions::{CountedTurn, Observer, RegisteredTurn};
use super::view::{EndedTurn, SessionActivity};
use base::id::{MessageId, SessionId};
use base::trace::TraceContext;
use events::{Event, SubagentState, TurnMessage};
use session::SessionHandle;
use session::builtin::BuiltinName;
use session::handle::{PromptInput, TurnHandle, TurnResult};
use session::turn::TurnOutcome;
use tools::conversation::structured_output::StructuredOutputTool;
use tools::edits::edit::MULTIEDIT;
use tools::invalid::InvalidTool;
use tools::{BUILT_IN_TOOLS, PARTIAL_KEYS, Tool};
use transcript::{Content, Fault, FaultKind, PromptOptions, Text};

/// A turn that a prompt has requested, with the sender of its updates.
pub struct TurnStream {
    turn: TurnHandle,
    session: SessionHandle,
    updates: UpdateSender,
    /// The messages that arrived together with the id of the prompt's message. They are sent after
    /// the client knows that id.
    held: Vec<TurnMessage>,
    /// More messages of the turn may arrive.
    is_open: bool,
    /// The client knows that the turn runs.
    is_begun: bool,
    /// The user has cancelled the prompt, and the session was notified.
    is_cancelled: bool,
    /// The result of the turn, once it has ended; an error if its session has ended.
    outcome: Option<Result<TurnResult, RecvError>>,
    /// Set if the turn can move to another connection.
    observable: Option<ObservableTurn>,
}

/// Held until the client has received the end of a turn. Until then no list of commands is sent, and
/// the next turn does not begin.
pub struct TurnEndGuard {
    _commands: Option<TurnGuard>,
    _next_turn: oneshot::Sender<()>,
}

/// The state of a turn of `adjutant serve`, which another connection can take over while it runs.
struct ObservableTurn {
    registration: RegisteredTurn<Server>,
    /// The events sent so far.
    log: EventLog,
    /// The time when the prompt arrived.
    begun: Instant,
    /// The client was sent at least one update of the turn.
    has_update: bool,
    metrics: Arc<Metrics>,
    /// Counts the turn among those of its user.
    _count: CountedTurn,
}

/// The events of a turn so far, for a client that connects later.
#[derive(Default)]
struct EventLog {
    /// The id of the prompt's message. Everything before it is in the history.
    prompt: Option<MessageId>,
    /// All events, or the last states of the running subagents if the log has overflowed.
    events: Vec<Event>,
    /// There were more than [`EventLog::MAX_EVENTS`]. The observer then gets the events from the
    /// store, which does not have the states of subagents.
    overflowed: bool,
}

impl EventLog {
    /// The maximum number of events, where consecutive deltas of one part count as one.
    const MAX_EVENTS: usize = 20_000;

    fn add(&mut self, message: &TurnMessage) {
        let TurnMessage::Event(event) = message else {
            return;
        };
        if let Event::Prompted { message, .. } = event {
            self.prompt = Some(message.clone());
        }
        if self.overflowed {
            return self.record_state(event);
        }
        let last = self.events.last_mut();
        if last.is_some_and(|last| last.absorb(event)) {
            return;
        }
        self.events.push(event.clone());
        if self.events.len() > Self::MAX_EVENTS {
            self.overflowed = true;
            for event in std::mem::take(&mut self.events) {
                self.record_state(&event);
            }
        }
    }

    /// Stores an event if it has the state of a subagent, in place of that subagent's earlier state.
    /// The state of a subagent that has ended is only removed.
    fn record_state(&mut self, event: &Event) {
        let Some((session, state)) = subagent_state(event) else {
            return;
        };
        self.events
            .retain(|other| subagent_state(other).is_none_or(|(other, _)| other != session));
        if !matches!(state, SubagentState::Over(_)) {
            self.events.push(event.clone());
        }
    }
}

/// Returns the subagent whose state an event reports, with that state.
fn subagent_state(event: &Event) -> Option<(&SessionId, &SubagentState)> {
    match event {
        Event::Subagent(subagent) => Some((&subagent.session, subagent.state.as_ref()?)),
        Event::InChildSession { event, .. } => subagent_state(event),
        _ => None,
    }
}

impl ObservableTurn {
    /// Counts a new turn among those of the user. Returns the function that registers the turn under
    /// its number, or `None` if sessions do not outlive the connection.
    ///
    /// # Errors
    /// The user has too many turns, the server is about to stop, or the session is not live.
    fn begin(
        server: &Arc<Server>,
        session: &str,
    ) -> Result<Option<impl FnOnce(u64) -> Self + use<>>, RequestError> {
        let Some(user_sessions) = server.user_sessions() else {
            return Ok(None);
        };
        if user_sessions.draining.is_cancelled() {
            return Err(RequestError::ShuttingDown);
        }
        let count = user_sessions
            .count_turn()
            .ok_or_else(|| RequestError::Failed {
                message: format!(
                    "{} prompts are running or waiting, which is the limit.",
                    user_sessions.limits.user_turns
                ),
                advice: Some("Wait for answers or cancel.".into()),
            })?;
        let live_turns = server.live_session(session)?.live_turns;
        let metrics = user_sessions.metrics.clone();
        Ok(Some(move |number| Self {
            registration: live_turns.register(number),
            log: EventLog::default(),
            begun: Instant::now(),
            has_update: false,
            metrics,
            _count: count,
        }))
    }

    /// Records a batch of messages in the log and in the metrics.
    fn record_batch(&mut self, batch: &[TurnMessage]) {
        if !self.has_update && !batch.is_empty() {
            self.has_update = true;
            self.metrics.time_to_first_update.add(self.begun.elapsed());
        }
        for message in batch {
            if let TurnMessage::Event(Event::Usage { cost, .. }) = message {
                self.metrics
                    .add_cost(self.registration.cost_increase(*cost));
            }
            self.log.add(message);
        }
    }

    /// Records the result of the turn in the metrics.
    fn record_result(&self, result: &TurnResult) {
        self.metrics.turn_duration.add(self.begun.elapsed());
        self.metrics.count_outcome(&result.outcome);
        self.metrics.add_tokens(&result.usage);
    }
}

/// Waits for a client that wants to observe the turn; forever if the turn cannot move.
async fn next_observer(observable: &mut Option<ObservableTurn>) -> Observer<Server> {
    match observable {
        Some(observable) => observable.registration.next_observer().await,
        None => std::future::pending().await,
    }
}

/// Puts a prompt into the mailbox of the session `id`. Returns the session with the requested turn,
/// which is `None` if the prompt is empty.
///
/// # Errors
/// There is no such session, its mailbox is full, the schema is invalid, a command is misspelt, the
/// server is about to stop, or the user has too many turns.
pub fn queue(
    server: &Arc<Server>,
    id: &str,
    parts: Vec<Content>,
) -> Result<(SessionHandle, Option<TurnStream>), RequestError> {
    let session = server.session(id)?;
    if !parts.iter().any(is_input) {
        return Ok((session, None));
    }
    for part in &parts {
        if let Content::Format { schema } = part {
            let invalid = |why| {
                RequestError::Invalid(format!(
                    "_meta.{META_KEY}.{SCHEMA} is not a JSON Schema: {why}"
                ))
            };
            StructuredOutputTool::new(schema).map_err(invalid)?;
        }
    }
    if let Some(Content::Text(typed)) = parts.first()
        && let Some(why) = session.configured_commands().describe_misspelt(&typed.text)
        // The turn reads changed files first: it may be a new command.
        && !session.project().deny_watcher.is_stale()
    {
        return Err(RequestError::Invalid(why));
    }
    let observable = ObservableTurn::begin(server, id)?;
    let turn = session.prompt(split_builtin(&session, parts))?;
    let observable = observable.map(|begin| begin(turn.number));
    let stream = TurnStream {
        turn,
        session: session.clone(),
        updates: UpdateSender::new(server, &session),
        held: Vec::new(),
        is_open: true,
        is_begun: false,
        is_cancelled: false,
        outcome: None,
        observable,
    };
    Ok((session, Some(stream)))
}

/// The maximum length of an idempotency key in bytes.
const MAX_KEY_BYTES: usize = 200;

/// Returns the parts that a prompt's `_meta` adds to its message: the prompt's own options, and the
/// JSON Schema that the result must fit. `key` is the idempotency key in the protocol's own field,
/// which only version 2 has.
///
/// # Errors
/// [`RequestError::Invalid`] for a value of the wrong type, an unknown tool, an unknown flat key or
/// a second idempotency key.
pub fn meta_parts(meta: Option<&Meta>, key: Option<&str>) -> Result<Vec<Content>, RequestError> {
    let options = prompt_options(meta, key)?.map(Content::PromptOptions);
    let schema = member(meta, SCHEMA).cloned();
    let format = schema.map(|schema| Content::Format { schema });
    Ok(options.into_iter().chain(format).collect())
}

/// Decodes a prompt's own options: an addition to the system prompt, enabled and disabled tools, the
/// idempotency key and the trace context. Returns `None` if there are none. Fails as [`meta_parts`]
/// does.
fn prompt_options(
    meta: Option<&Meta>,
    key: Option<&str>,
) -> Result<Option<PromptOptions>, RequestError> {
    let invalid =
        |key: &str, why: String| RequestError::Invalid(format!("_meta.{META_KEY}.{key} {why}"));
    if let Some(why) = flat_key_problem(meta) {
        return Err(RequestError::Invalid(why));
    }
    let system = match member(meta, SYSTEM) {
        None | Some(Value::Null) => None,
        Some(Value::String(system)) => Some(system.clone()),
        Some(_) => return Err(invalid(SYSTEM, "must be a string".into())),
    };
    let tools = match member(meta, TOOLS) {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(tools) => {
            serde_json::from_value::<BTreeMap<String, bool>>(tools.clone()).map_err(|_| {
                invalid(
                    TOOLS,
                    "must be an object of tools, each true or false".into(),
                )
            })?
        }
    };
    if let Some(key) = tools.keys().find(|key| !can_be_tool(key)) {
        return Err(invalid(
            TOOLS,
            format!("names a tool that does not exist: {key}"),
        ));
    }
    let idempotency_key = match member(meta, IDEMPOTENCY_KEY) {
        None | Some(Value::Null) => key.map(str::to_owned),
        Some(_) if key.is_some() => {
            let why = "is a second key; leave out one of them".to_owned();
            return Err(invalid(IDEMPOTENCY_KEY, why));
        }
        Some(Value::String(key)) if (1..=MAX_KEY_BYTES).contains(&key.len()) => Some(key.clone()),
        Some(_) => {
            return Err(invalid(
                IDEMPOTENCY_KEY,
                format!("must be a string of 1 to {MAX_KEY_BYTES} bytes"),
            ));
        }
    };
    let options = PromptOptions {
        system,
        tools,
        idempotency_key,
        trace: meta.and_then(TraceContext::read),
    };
    Ok((options != PromptOptions::default()).then_some(options))
}

/// Returns the names of the tools that no MCP server provides.
pub fn built_in_tools() -> Vec<&'static str> {
    let listed = BUILT_IN_TOOLS
        .iter()
        .filter(|tool| tool.name != InvalidTool::NAME);
    listed.map(|tool| tool.name).collect()
}

/// Returns whether a key can be the name of a tool or a pattern for tools. Any name with `_` can:
/// the tools of MCP servers are named `server_tool`, and may become known later.
pub fn can_be_tool(key: &str) -> bool {
    let built_in = BUILT_IN_TOOLS
        .iter()
        .any(|tool| tool.name == key || tool.permission == key);
    let partial = PARTIAL_KEYS.iter().any(|(partial, _)| *partial == key);
    built_in || partial || key == MULTIEDIT || key.contains(['*', '?', '_'])
}

/// Returns the fault of a turn whose session has ended unexpectedly.
fn session_ended_fault() -> Fault {
    Fault {
        kind: FaultKind::Internal,
        message: "The session ended unexpectedly.".to_owned(),
        advice: Some("Load it again to continue; the log has details.".to_owned()),
    }
}

/// Returns whether a part is input of the user, rather than an option of the prompt.
fn is_input(content: &Content) -> bool {
    !matches!(content, Content::PromptOptions(_) | Content::Format { .. }) && has_content(content)
}

/// Returns whether a part is anything but blank text.
fn has_content(content: &Content) -> bool {
    !matches!(content, Content::Text(Text { text, .. }) if text.trim().is_empty())
}

/// Separates a built-in command at the beginning of a prompt from the message for the model.
fn split_builtin(session: &SessionHandle, mut content: Vec<Content>) -> PromptInput {
    let mut builtin = match content.first() {
        Some(Content::Text(typed)) => {
            let commands = session.configured_commands();
            commands.parse_builtin(&typed.text, || session.commands())
        }
        _ => None,
    };
    if let Some(command) = &mut builtin {
        if command.name == BuiltinName::Plan
            && let Some(Content::Text(typed)) = content.first_mut()
        {
            typed.text = std::mem::take(&mut command.arguments).into();
            content.retain(has_content);
        } else {
            content.clear();
        }
    }
    PromptInput { content, builtin }
}

/// Waits for all earlier requests of a session, in particular the one that opens it, and then acts
/// like [`queue`] on the decoded prompt. Returns `None` if the prompt was cancelled before.
///
/// # Errors
/// Same as [`queue`].
pub async fn queue_when_open(
    server: &Arc<Server>,
    id: &str,
    decode: impl FnOnce() -> Result<Vec<Content>, RequestError>,
    place: super::server::QueuePlace,
    cancelled: &CancellationToken,
) -> Result<Option<(SessionHandle, Option<TurnStream>)>, RequestError> {
    let is_first = tokio::select! {
        is_first = place.reach_front_unless_cancelled() => is_first,
        () = cancelled.cancelled() => false,
    };
    // `place` lives until the prompt is in the session's mailbox, so that later requests follow it
    // there.
    if is_first {
        queue(server, id, decode()?).map(Some)
    } else {
        Ok(None)
    }
}

impl TurnStream {
    /// Sends updates until the prompt is part of the conversation, and none after that. Returns the
    /// id of the prompt's message.
    ///
    /// # Errors
    /// The prompt was cancelled before, the server is about to stop, or the session has ended.
    pub async fn send_until_inserted(
        &mut self,
        cancelled: &CancellationToken,
    ) -> Result<MessageId, RequestError> {
        let mut batch = Vec::new();
        loop {
            // The turn may have ended while its beginning was sent.
            if self.outcome.is_none() {
                self.wait_for_progress(cancelled, &mut batch).await;
            }
            let has_ended = self.outcome.is_some();
            if has_ended {
                self.receive_rest(&mut batch);
            }
            let inserted = batch
                .iter()
                .enumerate()
                .find_map(|(at, message)| match message {
                    TurnMessage::Event(Event::Prompted { message, known_as }) => {
                        Some((at, known_as.as_ref().unwrap_or(message).clone()))
                    }
                    _ => None,
                });
            if let Some((at, _)) = inserted {
                self.held = batch.split_off(at + 1);
            }
            self.send_batch(&mut batch, cancelled).await;
            if let Some((_, message)) = inserted {
                return Ok(message);
            }
            if has_ended {
                break;
            }
        }
        Err(match self.outcome.take() {
            // A prompt that the user has cancelled does not continue on another server.
            Some(Ok(result)) if self.is_handed_over(&result.outcome) && !self.is_cancelled => {
                RequestError::ShuttingDown
            }
            Some(Ok(_)) => RequestError::Cancelled,
            Some(Err(_)) | None => self.report_session_end().await,
        })
    }

    /// Sends the updates of the turn until it has ended. Returns its result, with a guard that the
    /// caller drops after the client has received the result.
    ///
    /// # Errors
    /// The session ended before the turn did.
    pub async fn send_until_ended(
        mut self,
        cancelled: &CancellationToken,
    ) -> Result<(EndedTurn, TurnEndGuard), RequestError> {
        self.report_beginning(cancelled).await;
        let mut batch = std::mem::take(&mut self.held);
        self.send_batch(&mut batch, cancelled).await;
        let outcome = loop {
            if let Some(outcome) = self.outcome.take() {
                break outcome;
            }
            self.wait_for_progress(cancelled, &mut batch).await;
            self.send_batch(&mut batch, cancelled).await;
        };
        self.receive_rest(&mut batch);
        self.send_batch(&mut batch, cancelled).await;
        self.updates.withdraw_questions();
        match outcome {
            Ok(result) => {
                if let Some(observable) = &self.observable {
                    observable.record_result(&result);
                }
                let ended = EndedTurn {
                    is_handed_over: self.is_handed_over(&result.outcome),
                    result,
                };
                let guard = TurnEndGuard {
                    _commands: self.updates.take_turn_guard(),
                    _next_turn: self.turn.notified,
                };
                self.updates
                    .send_activity(SessionActivity::Idle(Some(ended.clone())))
                    .await;
                Ok((ended, guard))
            }
            Err(_) => Err(self.report_session_end().await),
        }
    }

    /// Returns whether the turn ended because this process is about to stop.
    fn is_handed_over(&self, outcome: &TurnOutcome) -> bool {
        *outcome == TurnOutcome::Cancelled && self.updates.is_shutting_down()
    }

    /// Reports that the session's task has ended unexpectedly, and returns the error for the client.
    /// The stored session is intact and can be loaded again.
    async fn report_session_end(&mut self) -> RequestError {
        if self.is_begun {
            let ended = EndedTurn {
                result: TurnOutcome::Failed(session_ended_fault()).into(),
                is_handed_over: false,
            };
            self.updates
                .send_activity(SessionActivity::Idle(Some(ended)))
                .await;
        }
        session_ended_fault().into()
    }

    /// Reports the beginning of the turn, unless that was done before.
    async fn report_beginning(&mut self, cancelled: &CancellationToken) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        self.updates.send_first_commands().await;
        self.updates.begin_turn().await;
        if self.wait_for_models(cancelled).await {
            self.updates.send_initial_notices().await;
        }
    }

    /// Waits until it is known whether there is a model other than the offline one. Returns `false`
    /// if the turn ends before.
    async fn wait_for_models(&mut self, cancelled: &CancellationToken) -> bool {
        let models = self.session.project().models.clone();
        if models.may_have_online_model() {
            return true;
        }
        let mut searched = std::pin::pin!(models.await_first_search());
        while self.outcome.is_none() {
            tokio::select! {
                biased;
                () = &mut searched => return true,
                outcome = &mut self.turn.outcome => self.outcome = Some(outcome),
                () = cancelled.cancelled(), if !self.is_cancelled => self.cancel(),
            }
        }
        false
    }

    /// Cancels the turn, and records that: the token of the request stays cancelled.
    fn cancel(&mut self) {
        self.is_cancelled = true;
        self.session.cancel_one(self.turn.number);
    }

    /// Waits for the next messages of the turn, which are added to `batch`, for an answer of the
    /// client, for an observer, or for the end of the turn.
    async fn wait_for_progress(
        &mut self,
        cancelled: &CancellationToken,
        batch: &mut Vec<TurnMessage>,
    ) {
        tokio::select! {
            biased;
            outcome = &mut self.turn.outcome => self.outcome = Some(outcome),
            () = cancelled.cancelled(), if !self.is_cancelled => self.cancel(),
            // Messages received so far go to the present client, later ones to the observer.
            n = self.turn.events.recv_many(batch, events::MAX_WAITING_MESSAGES), if self.is_open => self.is_open = n > 0,
            works = self.updates.wait_for_answer(), if self.updates.has_pending_requests() => {
                if works {
                    self.updates.report_activity().await;
                }
                self.count_questions();
            }
            observer = next_observer(&mut self.observable) => self.move_to(observer).await,
        }
    }

    /// Records the number of questions that wait for a client to reconnect.
    fn count_questions(&self) {
        if let Some(observable) = &self.observable {
            observable
                .registration
                .set_waiting_questions(self.updates.unanswered_count());
        }
    }

    /// Moves the turn to another client, which is first sent the events that it has missed.
    async fn move_to(&mut self, observer: Observer<Server>) {
        let Some(observable) = &mut self.observable else {
            return;
        };
        let updates = &mut self.updates;
        let waits = updates.move_to(&observer.server).await;
        let log = &observable.log;
        let mut has_sent_history = false;
        if observer.wants_history {
            // If the log has overflowed, the store has the events of this turn.
            let history_end = if log.overflowed {
                None
            } else {
                log.prompt.as_ref()
            };
            has_sent_history = updates.send_history(history_end).await;
        }
        if self.is_begun && log.overflowed {
            // The events that follow are too few to derive the state of the turn from them.
            updates.resume_turn(waits).await;
        } else if self.is_begun {
            updates.begin_turn().await;
        }
        for event in &log.events {
            updates.send_event(event.clone()).await;
        }
        if has_sent_history {
            updates.finish_history().await;
        }
        updates.ask_unanswered_again().await;
        self.count_questions();
        // The receiver may be dropped.
        observer.caught_up.send(()).ok();
    }

    /// Sends messages, after the beginning of the turn was reported.
    async fn send_batch(&mut self, batch: &mut Vec<TurnMessage>, cancelled: &CancellationToken) {
        if !batch.is_empty() {
            if let Some(observable) = &mut self.observable {
                observable.record_batch(batch);
            }
            self.report_beginning(cancelled).await;
            self.updates.send_batch(batch).await;
        }
    }

    /// Appends the messages that were sent but not yet received.
    fn receive_rest(&mut self, batch: &mut Vec<TurnMessage>) {
        while let Ok(message) = self.turn.events.try_recv() {
            batch.push(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use base::id::CallId;
    use events::{Subagent, SubagentStop};

    #[test]
    fn log_that_overflowed_has_the_states_of_running_subagents() {
        let id = |n: usize| SessionId::new(format!("ses_{n:08}"));
        let state = |n: usize, state: Option<SubagentState>| {
            Event::Subagent(Box::new(Subagent {
                session: id(n),
                call: CallId::new("c"),
                info: None,
                state,
            }))
        };
        let within = |n: usize, event: Event| Event::InChildSession {
            session: id(n),
            event: Box::new(event),
        };
        let mut log = EventLog::default();
        let mut add = |event: Event| log.add(&TurnMessage::Event(event));
        let working = || Some(SubagentState::Working);
        let waiting = || Some(SubagentState::Waiting);
        for n in 1..4 {
            add(state(n, working()));
        }
        add(state(1, waiting()));
        for _ in 0..EventLog::MAX_EVENTS {
            add(Event::Options);
        }
        add(Event::Options);
        add(state(2, Some(SubagentState::Over(SubagentStop::Done))));
        add(within(3, state(4, working())));
        add(within(3, state(4, waiting())));
        add(state(3, None));
        assert!(log.overflowed);
        let kept: Vec<_> = log.events.iter().filter_map(subagent_state).collect();
        let wanted = [
            (&id(3), &SubagentState::Working),
            (&id(1), &SubagentState::Waiting),
            (&id(4), &SubagentState::Waiting),
        ];
        assert_eq!((kept.as_slice(), log.events.len()), (&wanted[..], 3));
    }

    #[test]
    fn flat_key_is_read_or_refused() {
        let read = |meta: Value| {
            prompt_options(meta.as_object(), None)
                .map(|options| options.and_then(|of| of.idempotency_key))
        };
        let table = [
            (
                "nested",
                json!({ "adjutant": { "idempotencyKey": "k" } }),
                Some("k"),
            ),
            ("flat", json!({ "adjutant.idempotencyKey": "k" }), Some("k")),
            (
                "flat next to another nested one",
                json!({ "adjutant": { "system": "s" }, "adjutant.idempotencyKey": "k" }),
                Some("k"),
            ),
            (
                "the same in both",
                json!({ "adjutant": { "idempotencyKey": "k" }, "adjutant.idempotencyKey": "k" }),
                Some("k"),
            ),
            (
                "of another namespace",
                json!({ "other.idempotencyKey": "k" }),
                None,
            ),
        ];
        for (name, meta, wanted) in table {
            assert_eq!(read(meta).ok().flatten().as_deref(), wanted, "{name}");
        }
        for meta in [
            json!({ "adjutant": { "idempotencyKey": "a" }, "adjutant.idempotencyKey": "b" }),
            json!({ "adjutant.idempotencyKey": 7 }),
            json!({ "adjutant.idempotencykey": "k" }),
            json!({ "adjutant.unsaid": true, "adjutant": { "idempotencyKey": "k" } }),
            json!({ "adjutant.system": 7 }),
            json!({ "adjutant.tools": { "nosuchtool": true } }),
            json!({ "adjutant": { "tools": {} }, "adjutant.tools": { "bash": false } }),
        ] {
            let Err(RequestError::Invalid(why)) = read(meta.clone()) else {
                panic!("{meta}")
            };
            assert!(why.contains("adjutant."), "{why}");
        }
        let all = json!({ "adjutant.system": "s", "adjutant.tools": { "bash": false } });
        let keyed = |meta: Value| prompt_options(meta.as_object(), Some("p")).map_err(|_| ());
        let of_protocol = keyed(json!({ "adjutant.system": "s" }));
        let of_protocol = of_protocol.ok().flatten().and_then(|of| of.idempotency_key);
        assert_eq!(of_protocol.as_deref(), Some("p"));
        assert_eq!(keyed(json!({ "adjutant.idempotencyKey": "k" })), Err(()));
        let options = prompt_options(all.as_object(), None)
            .ok()
            .flatten()
            .expect("both count");
        assert_eq!(
            (options.system.as_deref(), options.tools.get("bash")),
            (Some("s"), Some(&false))
        );
        assert_eq!(
            member(json!({ "adjutant.schema": 1 }).as_object(), SCHEMA),
            Some(&json!(1))
        );
    }
}
