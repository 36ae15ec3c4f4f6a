//! Prompts, from arrival to the end of the turn, in all protocol versions.
//!
//! One task sends the updates of a turn and then its end, through one [`UpdateSender`], so that
//! every update precedes the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::oneshot::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

use super::command_list::TurnGuard;
use super::detached::{Observer, ShownTurn, TurnCount};
use super::error::RequestError;
use super::meta::{
    IDEMPOTENCY_KEY, META_KEY, Meta, SCHEMA, SYSTEM, TOOLS, member, wrong_in_prompt,
};
use super::metrics::Metrics;
use super::server::Server;
use super::updates::UpdateSender;
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

/// A turn that a prompt has requested.
pub struct TurnStream {
    turn: TurnHandle,
    session: SessionHandle,
    updates: UpdateSender,
    /// The messages that arrived together with the prompt's place in the conversation. They are
    /// shown after the client knows that place.
    held: Vec<TurnMessage>,
    open: bool,
    /// The client knows that the turn runs.
    begun: bool,
    /// The user has cancelled the prompt, and the session was notified.
    withdrawn: bool,
    /// The outcome, if the turn ended before it was awaited.
    over: Option<Result<TurnResult, RecvError>>,
    /// The state of a turn that can move to another connection.
    hosted: Option<HostedTurn>,
}

/// The end of a turn that the client has not received. Until then no list of commands is sent, and
/// the next turn does not begin.
pub struct TurnEndGuard {
    _commands: Option<TurnGuard>,
    _next_turn: oneshot::Sender<()>,
}

/// The state of a turn that another connection can observe.
struct HostedTurn {
    shown_turn: ShownTurn<Server>,
    /// The events shown so far.
    log: EventLog,
    begun: Instant,
    has_update: bool,
    metrics: Arc<Metrics>,
    _count: TurnCount,
}

/// The events of a turn so far, for a client that connects later.
#[derive(Default)]
struct EventLog {
    /// The prompt's message: everything before it is in the history.
    prompt: Option<MessageId>,
    events: Vec<Event>,
    /// There were more events than fit. The observer reads the store instead, which does not have
    /// the states of subagents: `events` has the last one of each that runs.
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
            return self.keep_state(event);
        }
        let last = self.events.last_mut();
        if last.is_some_and(|last| last.absorb(event)) {
            return;
        }
        self.events.push(event.clone());
        if self.events.len() > Self::MAX_EVENTS {
            self.overflowed = true;
            for event in std::mem::take(&mut self.events) {
                self.keep_state(&event);
            }
        }
    }

    /// Keeps an event if it has the state of a subagent that runs, in place of the earlier one.
    fn keep_state(&mut self, event: &Event) {
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

impl HostedTurn {
    /// Reserves a place for a turn among the user's turns, and returns the function that registers
    /// it under its number. `None` if sessions do not outlive the connection.
    ///
    /// # Errors
    /// The user has too many turns, the server is about to stop, or the session is not live.
    fn begin(
        server: &Arc<Server>,
        session: &str,
    ) -> Result<Option<impl FnOnce(u64) -> Self + use<>>, RequestError> {
        let Some(hosted) = server.hosted() else {
            return Ok(None);
        };
        if hosted.draining.is_cancelled() {
            return Err(RequestError::Leaving);
        }
        let count = hosted.turn().ok_or_else(|| RequestError::Failed {
            message: format!(
                "{} prompts are running or waiting, which is the limit.",
                hosted.limits.user_turns
            ),
            advice: Some("Wait for answers or cancel.".into()),
        })?;
        let live_turns = server.live(session)?.live_turns;
        let metrics = hosted.metrics.clone();
        Ok(Some(move |number| Self {
            shown_turn: live_turns.enter(number),
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
                self.metrics.add_cost(self.shown_turn.cost_increase(*cost));
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

/// Waits for a client that wants to observe the turn.
async fn viewer(hosted: &mut Option<HostedTurn>) -> Observer<Server> {
    match hosted {
        Some(hosted) => hosted.shown_turn.viewer().await,
        None => std::future::pending().await,
    }
}

/// Queues a prompt for the session of an id before it returns. The turn is `None` if the prompt is
/// empty.
///
/// # Errors
/// There is no such session, its mailbox is full, the schema is invalid, or the user has too many
/// turns.
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
            let wrong = |why| {
                RequestError::Invalid(format!(
                    "_meta.{META_KEY}.{SCHEMA} is not a JSON Schema: {why}"
                ))
            };
            StructuredOutputTool::new(schema).map_err(wrong)?;
        }
    }
    if let Some(Content::Text(typed)) = parts.first()
        && let Some(why) = session.configured_commands().describe_misspelt(&typed.text)
        // The turn reads changed files first: it may be a new command.
        && !session.project().deny_watcher.is_stale()
    {
        return Err(RequestError::Invalid(why));
    }
    let hosted = HostedTurn::begin(server, id)?;
    let turn = session.prompt(input(&session, parts))?;
    let hosted = hosted.map(|begin| begin(turn.number));
    let prompt_turn = TurnStream {
        turn,
        session: session.clone(),
        updates: UpdateSender::new(server, &session),
        held: Vec::new(),
        open: true,
        begun: false,
        withdrawn: false,
        over: None,
        hosted,
    };
    Ok((session, Some(prompt_turn)))
}

/// The maximum length of an idempotency key in bytes.
const MAX_KEY_BYTES: usize = 200;

/// Returns the parts of a prompt's message that `_meta` adds: its own options, and the JSON Schema
/// that the result must fit. `key`: the idempotency key, if the protocol version has one.
///
/// # Errors
/// Same as `options`.
pub fn meta_parts(meta: Option<&Meta>, key: Option<&str>) -> Result<Vec<Content>, RequestError> {
    let options = options(meta, key)?.map(Content::PromptOptions);
    let schema = member(meta, SCHEMA).cloned();
    let format = schema.map(|schema| Content::Format { schema });
    Ok(options.into_iter().chain(format).collect())
}

/// Decodes a prompt's own options: an addition to the system prompt, disabled tools, and the
/// idempotency key.
///
/// # Errors
/// [`RequestError::Invalid`] for a value of the wrong type, an unknown tool, an unknown flat key or
/// a second idempotency key.
fn options(meta: Option<&Meta>, key: Option<&str>) -> Result<Option<PromptOptions>, RequestError> {
    let wrong =
        |key: &str, why: String| RequestError::Invalid(format!("_meta.{META_KEY}.{key} {why}"));
    if let Some(why) = wrong_in_prompt(meta) {
        return Err(RequestError::Invalid(why));
    }
    let system = match member(meta, SYSTEM) {
        None | Some(Value::Null) => None,
        Some(Value::String(system)) => Some(system.clone()),
        Some(_) => return Err(wrong(SYSTEM, "must be a string".into())),
    };
    let tools = match member(meta, TOOLS) {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(tools) => {
            serde_json::from_value::<BTreeMap<String, bool>>(tools.clone()).map_err(|_| {
                wrong(
                    TOOLS,
                    "must be an object of tools, each true or false".into(),
                )
            })?
        }
    };
    if let Some(key) = tools.keys().find(|key| !may_be_tool(key)) {
        return Err(wrong(
            TOOLS,
            format!("names a tool that does not exist: {key}"),
        ));
    }
    let idempotency_key = match member(meta, IDEMPOTENCY_KEY) {
        None | Some(Value::Null) => key.map(str::to_owned),
        Some(_) if key.is_some() => {
            let why = "is a second key; leave out one of them".to_owned();
            return Err(wrong(IDEMPOTENCY_KEY, why));
        }
        Some(Value::String(key)) if (1..=MAX_KEY_BYTES).contains(&key.len()) => Some(key.clone()),
        Some(_) => {
            return Err(wrong(
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

/// Returns whether a key can be the name or the pattern of a tool. The tools of MCP servers are
/// named `server_tool`, and may become known later.
pub fn may_be_tool(key: &str) -> bool {
    let built_in = BUILT_IN_TOOLS
        .iter()
        .any(|tool| tool.name == key || tool.permission == key);
    let partial = PARTIAL_KEYS.iter().any(|(partial, _)| *partial == key);
    built_in || partial || key == MULTIEDIT || key.contains(['*', '?', '_'])
}

/// Returns the fault of a turn whose session has ended unexpectedly.
fn lost() -> Fault {
    let message = "The session ended unexpectedly.".to_owned();
    let advice = Some("Load it again to continue; the log has details.".to_owned());
    Fault {
        kind: FaultKind::Internal,
        message,
        advice,
    }
}

/// Returns whether it is input of the user, rather than an option of the prompt.
fn is_input(content: &Content) -> bool {
    !matches!(content, Content::PromptOptions(_) | Content::Format { .. }) && has_content(content)
}

fn has_content(content: &Content) -> bool {
    !matches!(content, Content::Text(Text { text, .. }) if text.trim().is_empty())
}

/// Returns the input that a prompt is for its session: separates a built-in command from the
/// message for the model.
fn input(session: &SessionHandle, mut content: Vec<Content>) -> PromptInput {
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

/// Queues a prompt after all earlier requests of its session, in particular the one that opens it.
/// `None` if it was cancelled before.
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
    let first = tokio::select! {
        first = place.first_unless_cancelled() => first,
        () = cancelled.cancelled() => false,
    };
    // `place` lives until the prompt is in the session's mailbox, so that later requests follow it
    // there.
    if first {
        queue(server, id, decode()?).map(Some)
    } else {
        Ok(None)
    }
}

impl TurnStream {
    /// Shows messages until the prompt is part of the conversation, and none after that. Returns
    /// the id of the prompt's message.
    ///
    /// # Errors
    /// The prompt was cancelled before, the server is about to stop, or the session has ended.
    pub async fn inserted(
        &mut self,
        cancelled: &CancellationToken,
    ) -> Result<MessageId, RequestError> {
        let mut batch = Vec::new();
        loop {
            // The turn may have ended while its beginning was shown.
            if self.over.is_none() {
                self.next(cancelled, &mut batch).await;
            }
            let is_over = self.over.is_some();
            if is_over {
                self.drain(&mut batch);
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
            self.show(&mut batch, cancelled).await;
            if let Some((_, message)) = inserted {
                return Ok(message);
            }
            if is_over {
                break;
            }
        }
        Err(match self.over.take() {
            // A prompt that the user has cancelled does not continue on another server.
            Some(Ok(result)) if self.is_handed_over(&result.outcome) && !self.withdrawn => {
                RequestError::Leaving
            }
            Some(Ok(_)) => RequestError::Cancelled,
            Some(Err(_)) | None => self.lost().await,
        })
    }

    /// Shows the turn until it has ended, and returns its result, with a guard that is dropped
    /// after the client has received that.
    ///
    /// # Errors
    /// The session ended before the turn did.
    pub async fn show_until_ended(
        mut self,
        cancelled: &CancellationToken,
    ) -> Result<(EndedTurn, TurnEndGuard), RequestError> {
        self.begin(cancelled).await;
        let mut batch = std::mem::take(&mut self.held);
        self.show(&mut batch, cancelled).await;
        let outcome = loop {
            if let Some(outcome) = self.over.take() {
                break outcome;
            }
            self.next(cancelled, &mut batch).await;
            self.show(&mut batch, cancelled).await;
        };
        self.drain(&mut batch);
        self.show(&mut batch, cancelled).await;
        self.updates.withdraw();
        match outcome {
            Ok(result) => {
                if let Some(hosted) = &self.hosted {
                    hosted.record_result(&result);
                }
                let ended = EndedTurn {
                    is_handed_over: self.is_handed_over(&result.outcome),
                    result,
                };
                let guard = TurnEndGuard {
                    _commands: self.updates.take_turn(),
                    _next_turn: self.turn.notified,
                };
                self.updates
                    .state(SessionActivity::Idle(Some(ended.clone())))
                    .await;
                Ok((ended, guard))
            }
            Err(_) => Err(self.lost().await),
        }
    }

    /// Returns whether the turn ended because this process is about to stop.
    fn is_handed_over(&self, outcome: &TurnOutcome) -> bool {
        *outcome == TurnOutcome::Cancelled && self.updates.is_leaving()
    }

    /// Reports that the session's task has died. The state on disk is intact and can be loaded
    /// again.
    async fn lost(&mut self) -> RequestError {
        if self.begun {
            let ended = EndedTurn {
                result: TurnOutcome::Failed(lost()).into(),
                is_handed_over: false,
            };
            self.updates.state(SessionActivity::Idle(Some(ended))).await;
        }
        lost().into()
    }

    async fn begin(&mut self, cancelled: &CancellationToken) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        self.updates.offer_first_commands().await;
        self.updates.begin().await;
        if self.searched(cancelled).await {
            self.updates.send_initial_notices().await;
        }
    }

    /// Waits until it is known whether there is a model. The turn waits for that too. Returns
    /// `false` if it has ended before.
    async fn searched(&mut self, cancelled: &CancellationToken) -> bool {
        let models = self.session.project().models.clone();
        if models.may_have_online_model() {
            return true;
        }
        let mut searched = std::pin::pin!(models.await_first_search());
        while self.over.is_none() {
            tokio::select! {
                biased;
                () = &mut searched => return true,
                outcome = &mut self.turn.outcome => self.over = Some(outcome),
                () = cancelled.cancelled(), if !self.withdrawn => self.cancel(),
            }
        }
        false
    }

    /// Cancels the turn. The token of the request stays cancelled, so this happens once.
    fn cancel(&mut self) {
        self.withdrawn = true;
        self.session.cancel_one(self.turn.number);
    }

    /// Waits for the next message, answer or observer, or for the end of the turn.
    async fn next(&mut self, cancelled: &CancellationToken, batch: &mut Vec<TurnMessage>) {
        tokio::select! {
            biased;
            outcome = &mut self.turn.outcome => self.over = Some(outcome),
            () = cancelled.cancelled(), if !self.withdrawn => self.cancel(),
            // Messages received so far go to the present client, later ones to the observer.
            n = self.turn.events.recv_many(batch, events::MAX_WAITING_MESSAGES), if self.open => self.open = n > 0,
            works = self.updates.wait_for_answer(), if self.updates.is_waiting() => {
                if works {
                    self.updates.report_activity().await;
                }
                self.count_questions();
            }
            viewer = viewer(&mut self.hosted) => self.welcome(viewer).await,
        }
    }

    fn count_questions(&self) {
        if let Some(hosted) = &self.hosted {
            hosted
                .shown_turn
                .set_waiting_questions(self.updates.unanswered());
        }
    }

    /// Moves the turn to another client, which is first shown the events that it has missed.
    async fn welcome(&mut self, viewer: Observer<Server>) {
        let Some(hosted) = &mut self.hosted else {
            return;
        };
        let updates = &mut self.updates;
        let waits = updates.move_to(&viewer.server).await;
        let log = &hosted.log;
        let mut is_replayed = false;
        if viewer.history {
            // If the log has overflowed, the store has the events of this turn.
            let until = if log.overflowed {
                None
            } else {
                log.prompt.as_ref()
            };
            is_replayed = updates.replay(until).await;
        }
        if self.begun && log.overflowed {
            // Too few events follow to know the state from them.
            updates.resume(waits).await;
        } else if self.begun {
            updates.begin().await;
        }
        for event in &log.events {
            updates.event(event.clone()).await;
        }
        if is_replayed {
            updates.replayed().await;
        }
        updates.ask_again().await;
        self.count_questions();
        // The receiver may be dropped.
        viewer.shown.send(()).ok();
    }

    async fn show(&mut self, batch: &mut Vec<TurnMessage>, cancelled: &CancellationToken) {
        if !batch.is_empty() {
            if let Some(hosted) = &mut self.hosted {
                hosted.record_batch(batch);
            }
            self.begin(cancelled).await;
            self.updates.show(batch).await;
        }
    }

    /// Appends the messages that were sent but not yet received.
    fn drain(&mut self, batch: &mut Vec<TurnMessage>) {
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
            options(meta.as_object(), None).map(|options| options.and_then(|of| of.idempotency_key))
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
        let keyed = |meta: Value| options(meta.as_object(), Some("p")).map_err(|_| ());
        let of_protocol = keyed(json!({ "adjutant.system": "s" }));
        let of_protocol = of_protocol.ok().flatten().and_then(|of| of.idempotency_key);
        assert_eq!(of_protocol.as_deref(), Some("p"));
        assert_eq!(keyed(json!({ "adjutant.idempotencyKey": "k" })), Err(()));
        let options = options(all.as_object(), None)
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
