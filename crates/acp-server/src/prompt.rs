//! A prompt from its arrival to the end of its turn, whichever version it came in.
//!
//! One task shows the updates of a turn and then its end, through one [`UpdateSender`]: that is why every
//! update precedes the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::error::Refusal;
use super::face::{SessionActivity, TurnResult};
use super::hosted::{ShownTurn, TurnCount, Viewer};
use super::meta::{IDEMPOTENCY_KEY, Meta, OWN, SCHEMA, SYSTEM, TOOLS, of_ours, wrong_in_prompt};
use super::meters::Meters;
use super::server::Server;
use super::updates::UpdateSender;
use base::id::MessageId;
use events::{Event, TurnMessage};
use session::Handle;
use session::handle::{PendingTurn, PromptInput, TurnEnd};
use session::turn::Outcome;
use tools::invalid::InvalidTool;
use tools::registry::PROPERTIES;
use tools::structured_output::StructuredOutputTool;
use tools::{Offer, Tool};
use transcript::{Content, Fault, FaultKind, PromptOptions, Text};

/// What was said, to a session.
pub struct IncomingPrompt {
    pub session: String,
    pub parts: Vec<Content>,
    /// What it says about itself.
    pub options: Option<PromptOptions>,
    /// The JSON Schema that the result must fit.
    pub schema: Option<Value>,
}

/// A turn that was asked for.
pub struct PromptTurn {
    turn: PendingTurn,
    session: Handle,
    updates: UpdateSender,
    /// What came up together with the place of the prompt in the conversation, and is shown after that was told.
    held: Vec<TurnMessage>,
    open: bool,
    /// The user was told that it runs.
    begun: bool,
    /// The user has withdrawn it, and the session was told.
    withdrawn: bool,
    /// It ended before anybody asked.
    over: Option<Result<TurnEnd, RecvError>>,
    /// What there is beyond one connection.
    hosted: Option<HostedTurn>,
}

/// What a turn has that may be shown on another connection than the one it was asked for on.
struct HostedTurn {
    shown_turn: ShownTurn<Server>,
    /// What was shown of it.
    log: EventLog,
    asked: Instant,
    meters: Arc<Meters>,
    _count: TurnCount,
}

/// What was shown of a turn, for an editor that comes later.
#[derive(Default)]
struct EventLog {
    /// The message it is about: what is before it is in the history.
    prompt: Option<MessageId>,
    events: Vec<Event>,
    /// There was more than is kept: what the store has stands for it.
    overflowed: bool,
}

impl EventLog {
    /// How many events are kept, words of one part counted as one.
    const MOST: usize = 20_000;

    fn add(&mut self, up: &TurnMessage) {
        let TurnMessage::Event(event) = up else { return };
        if let Event::Prompted { message } = event {
            self.prompt = Some(message.clone());
        }
        if self.overflowed || self.events.last_mut().is_some_and(|last| last.absorb(event)) {
            return;
        }
        if self.events.len() >= Self::MOST {
            (self.overflowed, self.events) = (true, Vec::new());
            return;
        }
        self.events.push(event.clone());
    }
}

impl HostedTurn {
    /// Adds a turn to those of its session; nothing where there is none.
    ///
    /// # Errors
    /// There are too many turns, or no new ones may begin.
    fn begin(server: &Arc<Server>, session: &str) -> Result<Option<impl FnOnce(u64) -> Self + use<>>, Refusal> {
        let Some(hosted) = server.hosted() else { return Ok(None) };
        if hosted.draining.is_cancelled() {
            return Err(Refusal::Leaving);
        }
        let count = hosted.turn().ok_or_else(|| Refusal::Failed {
            message: format!("{} prompts are worked on or wait, and no more are allowed.", hosted.limits.user_turns),
            advice: Some("Wait for answers or cancel.".into()),
        })?;
        let (live_turns, meters) = (server.live(session)?.live_turns, hosted.meters.clone());
        Ok(Some(move |number| Self {
            shown_turn: live_turns.enter(number),
            log: EventLog::default(),
            asked: Instant::now(),
            meters,
            _count: count,
        }))
    }

    /// Takes note of what comes up.
    fn heard(&mut self, batch: &[TurnMessage]) {
        if self.log.events.is_empty() && !batch.is_empty() {
            self.meters.first.add(self.asked.elapsed());
        }
        for up in batch {
            if let TurnMessage::Event(Event::Usage { used, cost, .. }) = up {
                self.meters.took(*used);
                self.meters.spent(self.shown_turn.spent(*cost));
            }
            self.log.add(up);
        }
    }

    fn ended(&self, outcome: &Outcome) {
        self.meters.whole.add(self.asked.elapsed());
        self.meters.ended(outcome);
    }
}

/// Waits for somebody else who is to be shown a turn.
async fn viewer(hosted: &mut Option<HostedTurn>) -> Viewer<Server> {
    match hosted {
        Some(hosted) => hosted.shown_turn.viewer().await,
        None => std::future::pending().await,
    }
}

pub struct Ended {
    pub result: TurnResult,
    /// To be dropped when the editor has been told.
    pub told: oneshot::Sender<()>,
}

/// Queues a prompt, before this returns. None for a prompt that says nothing.
///
/// # Errors
/// There is no such session, or it takes no more.
pub fn queue(server: &Arc<Server>, said: IncomingPrompt) -> Result<(Handle, Option<PromptTurn>), Refusal> {
    let session = server.session(&said.session)?;
    let mut parts = said.parts;
    if !parts.iter().any(says_something) {
        return Ok((session, None));
    }
    if let Some(options) = said.options {
        parts.push(Content::PromptOptions(options));
    }
    if let Some(schema) = said.schema {
        let wrong = |why| Refusal::Invalid(format!("_meta.{OWN}.{SCHEMA} is not a JSON Schema: {why}"));
        StructuredOutputTool::new(&schema).map_err(wrong)?;
        parts.push(Content::Format { schema });
    }
    let hosted = HostedTurn::begin(server, &said.session)?;
    let turn = session.prompt(work(&session, parts))?;
    let hosted = hosted.map(|begin| begin(turn.number));
    let (updates, asked) = (UpdateSender::new(server, &session), session.clone());
    let (held, open, begun, withdrawn, over) = (Vec::new(), true, false, false, None);
    Ok((session, Some(PromptTurn { turn, session: asked, updates, held, open, begun, withdrawn, over, hosted })))
}

/// The longest idempotency key, in bytes.
const KEY_AT_MOST: usize = 200;

/// What a prompt says about itself: further words for the system prompt, tools that it does without, and whether it
/// is one that was sent before.
///
/// # Errors
/// [`Refusal::Invalid`] for what is of no such shape.
pub fn options(meta: Option<&Meta>) -> Result<Option<PromptOptions>, Refusal> {
    let wrong = |key: &str, why: String| Refusal::Invalid(format!("_meta.{OWN}.{key} {why}"));
    if let Some(why) = wrong_in_prompt(meta) {
        return Err(Refusal::Invalid(why));
    }
    let system = match of_ours(meta, SYSTEM) {
        None | Some(Value::Null) => None,
        Some(Value::String(system)) => Some(system.clone()),
        Some(_) => return Err(wrong(SYSTEM, "must be a string".into())),
    };
    let tools = match of_ours(meta, TOOLS) {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(tools) => serde_json::from_value::<BTreeMap<String, bool>>(tools.clone())
            .map_err(|_| wrong(TOOLS, "must be an object of tools, each true or false".into()))?,
    };
    if let Some(key) = tools.keys().find(|key| !may_be_tool(key)) {
        return Err(wrong(TOOLS, format!("names a tool that does not exist: {key}")));
    }
    let idempotency_key = match of_ours(meta, IDEMPOTENCY_KEY) {
        None | Some(Value::Null) => None,
        Some(Value::String(key)) if (1..=KEY_AT_MOST).contains(&key.len()) => Some(key.clone()),
        Some(_) => return Err(wrong(IDEMPOTENCY_KEY, format!("must be a string of 1 to {KEY_AT_MOST} bytes"))),
    };
    let options = PromptOptions { system, tools, idempotency_key };
    Ok((options != PromptOptions::default()).then_some(options))
}

/// The names of the tools that need no server.
pub fn built_in_tools() -> Vec<&'static str> {
    let listed = PROPERTIES.iter().filter(|tool| tool.offer != Offer::Unlisted && tool.name != InvalidTool::NAME);
    listed.map(|tool| tool.name).collect()
}

/// Whether a key may stand for a tool. Those of servers are named `server_tool`, and may come later.
pub fn may_be_tool(key: &str) -> bool {
    let built_in = PROPERTIES.iter().any(|tool| tool.name == key || tool.permission == key);
    built_in || key.contains(['*', '?', '_'])
}

/// Why a turn ends whose session has died.
fn lost() -> Fault {
    let message = "The session ended unexpectedly.".to_owned();
    let advice = Some("Load it again to go on; the log says more.".to_owned());
    Fault { kind: FaultKind::Internal, message, advice }
}

fn says_something(content: &Content) -> bool {
    !matches!(content, Content::Text(Text { text, .. }) if text.trim().is_empty())
}

/// What a prompt asks for: an order to the session, or a turn of the model.
fn work(session: &Handle, parts: Vec<Content>) -> PromptInput {
    let order = match parts.first() {
        Some(Content::Text(typed)) => session.project().commands.order(&typed.text),
        _ => None,
    };
    order.map_or(PromptInput::Message(parts), PromptInput::Builtin)
}

/// Queues a prompt when all that came before it for its session was carried out, the opening of it above all. None
/// where it was cancelled before.
///
/// # Errors
/// As [`queue`].
pub async fn queue_when_open(
    server: &Arc<Server>,
    said: impl FnOnce() -> Result<IncomingPrompt, Refusal>,
    place: super::server::QueuePlace,
    cancelled: &CancellationToken,
) -> Result<Option<(Handle, Option<PromptTurn>)>, Refusal> {
    let first = tokio::select! {
        first = place.first_unless_cancelled() => first,
        () = cancelled.cancelled() => false,
    };
    // The place is kept until the prompt has one in its session: what waits behind it comes after it there.
    if first { queue(server, said()?).map(Some) } else { Ok(None) }
}

impl PromptTurn {
    /// Shows what comes up until the prompt is part of the conversation, and nothing of what follows: the id of its
    /// message.
    ///
    /// # Errors
    /// It was cancelled before, the server is about to stop, or the session has ended.
    pub async fn inserted(&mut self, cancelled: &CancellationToken) -> Result<MessageId, Refusal> {
        let mut batch = Vec::new();
        while self.over.is_none() {
            self.next(cancelled, &mut batch).await;
            if self.over.is_some() {
                self.drain(&mut batch);
            }
            let inserted = batch.iter().enumerate().find_map(|(at, up)| match up {
                TurnMessage::Event(Event::Prompted { message }) => Some((at, message.clone())),
                _ => None,
            });
            if let Some((at, _)) = inserted {
                self.held = batch.split_off(at + 1);
            }
            self.show(&mut batch).await;
            if let Some((_, message)) = inserted {
                return Ok(message);
            }
        }
        Err(match self.over.take() {
            // What the user has taken back goes on nowhere.
            Some(Ok(end)) if self.is_handed_over(&end.outcome) && !self.withdrawn => Refusal::Leaving,
            Some(Ok(_)) => Refusal::Cancelled,
            Some(Err(_)) | None => self.lost().await,
        })
    }

    /// Shows the turn until it has ended, then says how.
    ///
    /// # Errors
    /// The session ended before the turn did.
    pub async fn ended(mut self, cancelled: &CancellationToken) -> Result<Ended, Refusal> {
        self.begin().await;
        let mut batch = std::mem::take(&mut self.held);
        self.show(&mut batch).await;
        let outcome = loop {
            if let Some(outcome) = self.over.take() {
                break outcome;
            }
            self.next(cancelled, &mut batch).await;
            self.show(&mut batch).await;
        };
        self.drain(&mut batch);
        self.show(&mut batch).await;
        self.updates.withdraw();
        match outcome {
            Ok(TurnEnd { outcome, structured, told }) => {
                if let Some(hosted) = &self.hosted {
                    hosted.ended(&outcome);
                }
                let handed_over = self.is_handed_over(&outcome);
                let result = TurnResult { outcome, structured, handed_over };
                self.updates.state(SessionActivity::Idle(Some(result.clone()))).await;
                Ok(Ended { result, told })
            }
            Err(_) => Err(self.lost().await),
        }
    }

    /// Whether it ended because this process is about to stop.
    fn is_handed_over(&self, outcome: &Outcome) -> bool {
        *outcome == Outcome::Cancelled && self.updates.is_leaving()
    }

    /// The session's task has died: its state on disk is whole, and can be loaded again.
    async fn lost(&mut self) -> Refusal {
        if self.begun {
            self.updates.state(SessionActivity::Idle(Some(Outcome::Failed(lost()).into()))).await;
        }
        lost().into()
    }

    async fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.updates.begin().await;
            self.updates.greet().await;
        }
    }

    /// Waits for what happens next: something comes up, is answered, or the turn is over.
    async fn next(&mut self, cancelled: &CancellationToken, batch: &mut Vec<TurnMessage>) {
        tokio::select! {
            biased;
            outcome = &mut self.turn.outcome => self.over = Some(outcome),
            // The token stays cancelled; once is enough.
            () = cancelled.cancelled(), if !self.withdrawn => {
                self.withdrawn = true;
                self.session.cancel_one(self.turn.number);
            }
            // What has come up goes to whoever has been there; the rest to the viewer.
            n = self.turn.events.recv_many(batch, events::WAITING), if self.open => self.open = n > 0,
            works = self.updates.answered(), if self.updates.is_waiting() => {
                if works {
                    self.updates.tell_work().await;
                }
                self.count_questions();
            }
            viewer = viewer(&mut self.hosted) => self.welcome(viewer).await,
        }
    }

    fn count_questions(&self) {
        if let Some(hosted) = &self.hosted {
            hosted.shown_turn.asks(self.updates.unanswered());
        }
    }

    /// Shows the turn to somebody else from here on, and first what they have missed.
    async fn welcome(&mut self, viewer: Viewer<Server>) {
        let Some(hosted) = &mut self.hosted else { return };
        let updates = &mut self.updates;
        updates.move_to(&viewer.server).await;
        let (log, all) = (&hosted.log, hosted.log.overflowed);
        if viewer.history {
            updates.replay(log.prompt.as_ref().filter(|_| !all)).await;
        }
        if self.begun {
            updates.begin().await;
        }
        for event in &log.events {
            updates.event(event.clone()).await;
        }
        updates.ask_again().await;
        self.count_questions();
        // Whoever waits for it may have gone.
        viewer.shown.send(()).ok();
    }

    async fn show(&mut self, batch: &mut Vec<TurnMessage>) {
        if !batch.is_empty() {
            if let Some(hosted) = &mut self.hosted {
                hosted.heard(batch);
            }
            self.begin().await;
            self.updates.show(batch).await;
        }
    }

    /// What has come up and was not heard.
    fn drain(&mut self, batch: &mut Vec<TurnMessage>) {
        while let Ok(up) = self.turn.events.try_recv() {
            batch.push(up);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_flat_key_works_or_is_refused() {
        let read = |meta: Value| options(meta.as_object()).map(|options| options.and_then(|of| of.idempotency_key));
        let table = [
            ("nested", json!({ "adjutant": { "idempotencyKey": "k" } }), Some("k")),
            ("flat", json!({ "adjutant.idempotencyKey": "k" }), Some("k")),
            (
                "flat beside another nested one",
                json!({ "adjutant": { "system": "s" }, "adjutant.idempotencyKey": "k" }),
                Some("k"),
            ),
            (
                "the same in both",
                json!({ "adjutant": { "idempotencyKey": "k" }, "adjutant.idempotencyKey": "k" }),
                Some("k"),
            ),
            ("somebody else's", json!({ "other.idempotencyKey": "k" }), None),
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
            let Err(Refusal::Invalid(why)) = read(meta.clone()) else { panic!("{meta}") };
            assert!(why.contains("adjutant."), "{why}");
        }
        let all = json!({ "adjutant.system": "s", "adjutant.tools": { "bash": false } });
        let options = options(all.as_object()).ok().flatten().expect("both count");
        assert_eq!((options.system.as_deref(), options.tools.get("bash")), (Some("s"), Some(&false)));
        assert_eq!(of_ours(json!({ "adjutant.schema": 1 }).as_object(), SCHEMA), Some(&json!(1)));
    }
}
