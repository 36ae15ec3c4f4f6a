//! One step: requests an answer, collects its deltas into message parts, and makes its calls.
//!
//! Calls start when the answer is complete, not while it streams: an answer that breaks off is
//! requested again, and no tool may run for an answer that never became complete.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::Peekable;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::change_recorder::{ChangeRecorder, StepChanges};
use super::refused_tools::Refusals;
use super::step_context::StepContext;
use super::trace::RequestPurpose;
use super::{
    History, TurnContext, call, cancelled_fault, hooks, late_changes, next, request, request_cost,
    retry, size, trace, wrapped_calls,
};
use base::environment::Timestamp;
use base::id::MessageId;
use base::task::{MAX_IN_PLACE_BYTES, poll_by_size};
use events::{CallUpdate, Event, Progress, Severity, Status};
use providers::request::BodyCache;
use providers::{AnswerStream, Delta, Error, Model, Request};
use tools::argument_repair;
use transcript::{
    Assistant, Call, CallState, Content, Fault, Finish, Message, Part, Reasoning, Role, Text, Usage,
};

/// The minimum time between two saves of a growing part, while it is short.
const SAVE_INTERVAL: Duration = Duration::from_millis(200);
/// The maximum time that a growing part stays unsaved.
const MAX_SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes of a growing part that may be unsaved, whatever the time. They are lost if the process is
/// killed.
const MAX_UNSAVED_BYTES: usize = 64 << 10;
/// The divisor of a very long part's length that gives the bytes that may be unsaved.
const UNSAVED_SHARE: usize = 16;

/// The pause in an answer after which it is saved, whatever its length, so that the text on the
/// screen survives the process even if the model stalls. Longer than the pause between two deltas
/// of a slow answer, which would be saved one by one otherwise.
const SAVE_PAUSE_INTERVAL: Duration = Duration::from_millis(500);

/// The size from which collected text is sent without waiting for more, so that no line becomes
/// large.
const MAX_DELTA_BYTES: usize = 16 << 10;

/// The result of calls in an incomplete answer.
const INCOMPLETE_ANSWER: &str = "Not run: the model's answer was incomplete.";

/// Makes one step and appends its message to the history. In the `first` step of a turn nothing is
/// shown before the prompt is stored. `last_request` is the request of the step before, and is set
/// to the request of this one: the encoded part of it is used again. `changed` contains the file
/// changes of the step before, which are determined while the model answers; it is set to those of
/// this step.
pub async fn run(
    history: &mut History,
    turn: &TurnContext,
    step: &StepContext,
    last_request: &mut Option<Request>,
    changed: &mut Option<StepChanges>,
    first: bool,
) {
    let mut request = request::request(history, step, turn.session.id.as_str());
    request.params.omitted = turn.session.common.refused_tools.fields(&step.model);
    request.body_cache = last_request
        .take()
        .map(BodyCache::after)
        .unwrap_or_default();
    hooks::share_conversation(history, turn, true);
    hooks::share_with_plugins(turn, step);
    hooks::rewrite_request(turn, step, &mut request).await;
    let mut request = Arc::new(request);
    let parent = history.messages.iter().rev().find(|m| m.user().is_some());
    let assistant = Assistant {
        parent: parent.map_or_else(|| MessageId::new(""), |m| m.id.clone()),
        agent: step.agent.name.clone(),
        model: step.model.id.clone(),
        finish: None,
        fault: None,
        summary: false,
        usage: Usage::default(),
        cost: None,
        completed: None,
    };
    let mut message = Message {
        id: turn.new_message_id(),
        created: turn.now(),
        role: Role::Assistant(assistant),
        parts: Vec::new(),
    };
    turn.session.recorder.message(&message).await;

    let changes = ChangeRecorder::new(turn, &message.id);
    let answered = request_answer(turn, step, &mut request, &mut message, &changes, first);
    let (answered, ()) = tokio::join!(answered, add_file_changes(history, turn, changed.take()));
    *last_request = Arc::into_inner(request);
    let mut paid = None;
    if let Ok((_, usage)) = &answered {
        paid = request_cost(&step.model, usage);
        // Before the calls are made: they may start subagents, which share the rest of the budget.
        turn.budget.add_usage(usage, paid);
    }
    if let Ok((finish, _)) = &answered {
        hooks::rewrite_answer(turn, step, &mut message).await;
        call::fail_cut_off_calls(turn, &mut message, *finish).await;
        wrapped_calls::unwrap_calls(turn, step, &mut message, &changes).await;
        // The writes of background jobs so far precede the edits of these calls.
        late_changes::collect(history, &turn.session).await;
        call::make_calls(history, turn, step, &mut message, &changes).await;
    } else {
        call::fail_pending_calls(turn, &mut message, INCOMPLETE_ANSWER).await;
    }
    *changed = changes.finish(turn);
    if let Role::Assistant(assistant) = &mut message.role {
        assistant.completed = Some(turn.now());
        match answered {
            Ok((finish, usage)) => {
                assistant.finish = Some(finish);
                assistant.usage = usage;
                assistant.cost = paid;
            }
            Err(fault) => assistant.fault = Some(fault),
        }
        // The cost of its subagents belongs to this step.
        assistant.cost = super::add_costs(assistant.cost, turn.session.unrecorded_cost.take());
    }
    turn.session.recorder.message(&message).await;
    history.messages.push(message);
    send_usage(history, turn, &step.model).await;
}

/// Adds the file changes of a step to its message, and late changes of background jobs to earlier
/// messages.
pub async fn add_file_changes(
    history: &mut History,
    turn: &TurnContext,
    changed: Option<StepChanges>,
) {
    if let Some(changed) = changed
        && let Some((message, part)) = changed.into_part(turn).await
        && let Some(message) = history
            .messages
            .iter_mut()
            .rev()
            .find(|known| known.id == message)
    {
        message.parts.push(part);
    }
    late_changes::collect(history, &turn.session).await;
}

/// Requests an answer until one is complete or another attempt would not help. Returns the reason
/// of its end, and its tokens.
async fn request_answer(
    turn: &TurnContext,
    step: &StepContext,
    request: &mut Arc<Request>,
    message: &mut Message,
    changes: &ChangeRecorder,
    first: bool,
) -> Result<(Finish, Usage), Fault> {
    let mut refusals = Refusals::new(&turn.session.common.refused_tools, &step.model);
    let mut waits = retry::Backoff::new(!first);
    let mut attempt = 0;
    // The last failure's.
    let mut cause: Option<String> = None;
    let mut empty = 0;
    let mut shown = 0;
    loop {
        let answer = step.provider.stream(request.clone());
        let purpose = RequestPurpose::Step(&message.id);
        let mut answer = trace::observe_answer(turn, &step.model, purpose, answer).peekable();
        if first && attempt == 0 && empty == 0 {
            // The store and the model work in parallel.
            let has_begun = async { Pin::new(&mut answer).peek().await.is_some() };
            let both = async { tokio::join!(turn.session.recorder.flush(), has_begun) };
            tokio::select! {
                biased;
                () = turn.cancelled.cancelled() => {}
                (flushed, _) = both => report_unsaved(turn, flushed).await,
            }
        }
        let first = message.parts.len();
        let ended = fold(turn, step, answer, message, changes, &mut shown).await;
        let error = match ended {
            None => return Err(cancelled_fault()),
            Some(Ok((finish, usage))) => {
                refusals.disable_refused(turn, step).await;
                let has_content = message.parts[first..]
                    .iter()
                    .any(|part| !matches!(part.content, Content::Reasoning(_)));
                empty += 1;
                if has_content || finish == Finish::Refusal || finish == Finish::Length || empty > 1
                {
                    match finish {
                        Finish::Stop if !has_content => {
                            add_remark(turn, message, EMPTY_ANSWER).await
                        }
                        Finish::Refusal if !has_content => {
                            add_remark(turn, message, REFUSED_ANSWER).await
                        }
                        _ => {}
                    }
                    return Ok((finish, usage));
                }
                count_unused_answer(turn, &step.model, &usage);
                Error::InvalidAnswer("the model's answer was empty".into())
            }
            Some(Err(error)) => error,
        };
        tracing::warn!("asking {} failed: {error}", step.model.id);
        // No part of the answer had arrived.
        if message.parts.len() == first
            && let Some(fewer) = refusals.without(step, request, &error)
        {
            *request = Arc::new(fewer);
            continue;
        }
        let Some(again) = waits.next_retry(&error) else {
            return Err(error.fault());
        };
        attempt += 1;
        let part = turn.new_part(Content::Retry {
            attempt,
            reason: error.to_string(),
        });
        turn.session.recorder.part(&message.id, &part).await;
        call::fail_pending_calls(turn, message, INCOMPLETE_ANSWER).await;
        message.parts.push(part);
        let next =
            Timestamp(turn.now().0 + u64::try_from(again.delay.as_millis()).unwrap_or_default());
        let status = Status::Retrying {
            attempt,
            limit: again.limit,
            next,
            wait: again.delay,
            cause: error.to_string(),
            is_repeated: cause.replace(error.to_string()) == Some(error.to_string()),
        };
        turn.report_status(status).await;
        tokio::select! {
            () = tokio::time::sleep(again.delay) => {} // the backoff before a retry
            () = turn.cancelled.cancelled() => return Err(cancelled_fault()),
        }
        turn.publish_status(&Status::Busy);
    }
}

const EMPTY_ANSWER: &str = "(The model gave an empty answer.)";
const REFUSED_ANSWER: &str = "(The model, or a filter at its provider, refused to answer.)";

/// Adds a text that lists the rejected calls and announces the end of the turn, for clients that
/// show only the answer. The model knows it from the calls. Without an answer it is a notice.
pub async fn announce_rejected_calls(history: &mut History, turn: &TurnContext) {
    let Some(message) = history.messages.last_mut() else {
        return;
    };
    let text = next::rejection_text(message, turn.session.permissions.attended);
    if message.user().is_some() {
        let notice = Event::Notice {
            severity: Severity::Info,
            title: text,
            details: None,
        };
        return turn.event_sender.event(notice).await;
    }
    add_text(
        turn,
        message,
        Text {
            text: text.into(),
            ignored: true,
            ..Text::default()
        },
    )
    .await;
}

/// Adds a text to an answer without one, because a turn must not end without any text.
async fn add_remark(turn: &TurnContext, message: &mut Message, text: &str) {
    add_text(
        turn,
        message,
        Text {
            text: text.into(),
            ..Text::default()
        },
    )
    .await;
}

async fn add_text(turn: &TurnContext, message: &mut Message, text: Text) {
    let delta = text.text.to_string();
    let part = turn.new_part(Content::Text(text));
    turn.event_sender
        .event(Event::Text {
            part: part.id.clone(),
            delta,
        })
        .await;
    turn.session.recorder.part(&message.id, &part).await;
    message.parts.push(part);
}

struct AnswerBuilder<'a> {
    turn: &'a TurnContext,
    step: &'a StepContext,
    message: &'a mut Message,
    changes: &'a ChangeRecorder,
    /// Maps the provider's block number to an index of `message.parts`.
    part_indexes: HashMap<usize, usize>,
    /// The arguments of calls received so far, as JSON text.
    arguments: HashMap<usize, String>,
    /// Unsent text: an index of `message.parts`, and the offset of its first unsent byte.
    unsent: Vec<(usize, usize)>,
    /// Parts that have changed since they were saved.
    unsaved: Vec<usize>,
    /// Parts that were saved while they grew.
    growing: Vec<usize>,
    /// The time of the last save.
    last_save: Instant,
    /// The length of the saved parts at the last save, in bytes.
    saved_bytes: usize,
    /// Text is held back until there is more of it than this, in bytes.
    held_back_bytes: usize,
    /// Bytes of text that were sent.
    sent_bytes: usize,
    usage: Usage,
    finish: Option<Finish>,
}

/// The reason to save the parts of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SaveReason {
    /// They have grown.
    Growth,
    /// The model pauses.
    Pause,
    /// The answer has ended.
    End,
}

/// Reports that the prompt could not be stored; the turn continues in memory.
async fn report_unsaved(turn: &TurnContext, flushed: Result<(), store::Error>) {
    if let Err(e) = flushed {
        tracing::error!("the prompt is not saved: {e}");
        turn.notify_unsaved(&e).await;
    }
}

/// Reads one answer to its end. Returns `None` if the user cancelled. After an answer that broke
/// off, the next one is shown only when it is longer than the `shown` bytes of text already sent,
/// so that half an answer is not shown twice.
async fn fold(
    turn: &TurnContext,
    step: &StepContext,
    mut answer: Peekable<AnswerStream>,
    message: &mut Message,
    changes: &ChangeRecorder,
    shown: &mut usize,
) -> Option<Result<(Finish, Usage), Error>> {
    let mut folded = AnswerBuilder {
        turn,
        step,
        message,
        changes,
        part_indexes: HashMap::new(),
        arguments: HashMap::new(),
        unsent: Vec::new(),
        unsaved: Vec::new(),
        growing: Vec::new(),
        last_save: Instant::now(),
        saved_bytes: 0,
        held_back_bytes: *shown,
        sent_bytes: 0,
        usage: Usage::default(),
        finish: None,
    };
    // Moved, not made again for each delta: a new timer that is due before all others wakes the
    // runtime.
    let mut pause = std::pin::pin!(tokio::time::sleep(SAVE_PAUSE_INTERVAL));
    let failed = loop {
        if !folded.unsaved.is_empty() {
            pause.as_mut().reset(Instant::now() + SAVE_PAUSE_INTERVAL);
        }
        let delta = tokio::select! {
            biased;
            () = turn.cancelled.cancelled() => {
                folded.save(SaveReason::End).await;
                count_unused_answer(turn, &step.model, &folded.usage);
                return None;
            }
            delta = answer.next() => delta,
            () = pause.as_mut(), if !folded.unsaved.is_empty() => {
                folded.save(SaveReason::Pause).await;
                continue;
            }
        };
        let mut ended = match delta {
            None => Some(None),
            Some(Err(error)) => Some(Some(error)),
            Some(Ok(delta)) => {
                folded.add_delta(delta).await;
                None
            }
        };
        // Merges deltas that have already arrived, without waiting for more.
        let mut is_burst = true;
        while ended.is_none() && folded.unsent_bytes() < MAX_DELTA_BYTES {
            let Some(next) = answer.next().now_or_never() else {
                is_burst = false;
                break;
            };
            match next {
                None => ended = Some(None),
                Some(Err(error)) => ended = Some(Some(error)),
                Some(Ok(delta)) => folded.add_delta(delta).await,
            }
        }
        folded.send_unsent().await;
        folded
            .save(if ended.is_some() {
                SaveReason::End
            } else {
                SaveReason::Growth
            })
            .await;
        if let Some(error) = ended {
            break error;
        }
        // Lets other tasks run during a long burst of deltas; otherwise the wait for the next one
        // does.
        if is_burst {
            tokio::task::yield_now().await;
        }
    };
    folded
        .finish(failed.is_none() && folded.finish.is_some())
        .await;
    *shown = folded.sent_bytes.max(*shown);
    let usage = folded.usage;
    let finish = folded.finish;
    if failed.is_some() || finish.is_none() {
        count_unused_answer(turn, &step.model, &usage);
    }
    Some(match (failed, finish) {
        (Some(error), _) => Err(error),
        (None, Some(finish)) => Ok((finish, usage)),
        (None, None) => Err(Error::InvalidAnswer(
            "the model's answer was cut off".into(),
        )),
    })
}

impl AnswerBuilder<'_> {
    async fn add_delta(&mut self, delta: Delta) {
        match delta {
            Delta::Text { index, text } => {
                let part_index = self
                    .part_index(index, || Content::Text(Text::default()))
                    .await;
                if let Content::Text(part) = &mut self.message.parts[part_index].content {
                    let from = part.text.len();
                    part.text.to_mut().push_str(&text);
                    self.mark_grown(part_index, from);
                }
            }
            Delta::Reasoning { index, text } => {
                let part_index = self
                    .part_index(index, || Content::Reasoning(Reasoning::default()))
                    .await;
                if let Content::Reasoning(part) = &mut self.message.parts[part_index].content {
                    let from = part.text.len();
                    part.text.push_str(&text);
                    self.mark_grown(part_index, from);
                }
            }
            Delta::Call { index, id, name } => self.begin_call(index, id, name).await,
            Delta::Arguments { index, json } => {
                self.arguments.entry(index).or_default().push_str(&json)
            }
            Delta::ProviderData { index, data } => {
                let part_index = self
                    .part_index(index, || Content::Reasoning(Reasoning::default()))
                    .await;
                match &mut self.message.parts[part_index].content {
                    Content::Text(Text { provider, .. })
                    | Content::Reasoning(Reasoning { provider, .. })
                    | Content::Tool(Call { provider, .. }) => provider.extend(data),
                    _ => {}
                }
                self.mark_changed(part_index);
            }
            // The text of the answer contains them, too.
            Delta::FoundPages(_) => {}
            Delta::Usage(usage) => self.usage = usage,
            Delta::Finish(finish) => self.finish = Some(finish),
        }
    }

    async fn begin_call(&mut self, index: usize, id: Option<String>, name: String) {
        if let Some(part_index) = self.part_indexes.get(&index) {
            // Some wire formats repeat the name with every delta, or send the id later.
            if let Content::Tool(call) = &mut self.message.parts[*part_index].content
                && call.provider_id.is_none()
            {
                call.provider_id = id;
            }
            return;
        }
        self.held_back_bytes = 0;
        self.send_unsent().await;
        let call = Call {
            call: self.turn.new_call_id(),
            provider_id: id,
            tool: name.clone(),
            input: Arc::new(Map::new().into()),
            kind: match self.turn.session.common.tools.find(&name) {
                Some(tool) => tool.kind(),
                None => argument_repair::tool_kind(&self.step.tools, &name),
            },
            title: base::text::title(&name),
            locations: Vec::new(),
            state: CallState::Pending,
            provider: Map::new(),
        };
        self.changes.tool_announced(self.turn, call.kind, &name);
        let update = CallUpdate {
            title: Some(call.title.clone()),
            tool: Some(name),
            kind: Some(call.kind),
            progress: Some(Progress::Pending),
            ..CallUpdate::of(&call.call)
        };
        self.part_index(index, || Content::Tool(call)).await;
        self.turn
            .event_sender
            .event(Event::Call(Box::new(update)))
            .await;
    }

    async fn part_index(&mut self, index: usize, content: impl FnOnce() -> Content) -> usize {
        if let Some(part_index) = self.part_indexes.get(&index) {
            return *part_index;
        }
        let part_index = self.message.parts.len();
        let part = self.turn.new_part(content());
        self.turn
            .session
            .recorder
            .part(&self.message.id, &part)
            .await;
        self.message.parts.push(part);
        self.part_indexes.insert(index, part_index);
        part_index
    }

    fn mark_grown(&mut self, part_index: usize, from: usize) {
        if !self
            .unsent
            .iter()
            .any(|(waiting, _)| *waiting == part_index)
        {
            self.unsent.push((part_index, from));
        }
        self.mark_changed(part_index);
    }

    fn mark_changed(&mut self, part_index: usize) {
        if !self.unsaved.contains(&part_index) {
            self.unsaved.push(part_index);
        }
    }

    /// Returns the number of unsent bytes.
    fn unsent_bytes(&self) -> usize {
        self.unsent
            .iter()
            .map(|(part_index, from)| text_of(&self.message.parts[*part_index]).len() - from)
            .sum()
    }

    /// Sends the unsent text, unless it is held back.
    async fn send_unsent(&mut self) {
        if self.held_back_bytes > 0 && self.unsent_bytes() <= self.held_back_bytes {
            return;
        }
        self.held_back_bytes = 0;
        for (part_index, from) in std::mem::take(&mut self.unsent) {
            let part = &self.message.parts[part_index];
            let delta = text_of(part)[from..].to_owned();
            if delta.is_empty() {
                continue;
            }
            self.sent_bytes += delta.len();
            let events = &self.turn.session.recorder.events;
            events.delta(&self.message.id, &part.id, &delta);
            let event = match part.content {
                Content::Reasoning(_) => Event::Thought {
                    part: part.id.clone(),
                    delta,
                },
                _ => Event::Text {
                    part: part.id.clone(),
                    delta,
                },
            };
            self.turn.event_sender.event(event).await;
        }
    }

    /// Saves changed parts, from time to time while they grow. A part is saved as a whole, so a
    /// long one is saved again only when it has grown by a quarter, by more than
    /// [`MAX_UNSAVED_BYTES`], or when a second has passed.
    async fn save(&mut self, reason: SaveReason) {
        let length: usize = self
            .unsaved
            .iter()
            .map(|part_index| text_of(&self.message.parts[*part_index]).len())
            .sum();
        let due = || {
            let waited = self.last_save.elapsed();
            let fresh = length.saturating_sub(self.saved_bytes);
            fresh >= MAX_UNSAVED_BYTES.max(length / UNSAVED_SHARE)
                || waited >= MAX_SAVE_INTERVAL
                || (waited >= SAVE_INTERVAL && length >= self.saved_bytes + self.saved_bytes / 4)
        };
        let is_due = match reason {
            SaveReason::Growth => !self.unsaved.is_empty() && due(),
            SaveReason::Pause => !self.unsaved.is_empty(),
            SaveReason::End => {
                // The stored form of a part that grows is not its last one.
                let growing = std::mem::take(&mut self.growing);
                growing
                    .into_iter()
                    .for_each(|part_index| self.mark_changed(part_index));
                !self.unsaved.is_empty()
            }
        };
        if !is_due {
            return;
        }
        self.saved_bytes = length;
        for part_index in std::mem::take(&mut self.unsaved) {
            let part = &self.message.parts[part_index];
            let record = &self.turn.session.recorder;
            if reason == SaveReason::End {
                record.part(&self.message.id, part).await;
                continue;
            }
            record.growing_part(&self.message.id, part).await;
            if !self.growing.contains(&part_index) {
                self.growing.push(part_index);
            }
        }
        self.last_save = Instant::now();
    }

    /// Sets the arguments of the calls. Text that is not a JSON object remains a string, and
    /// the call fails with a reason when it is made.
    async fn finish(&mut self, whole: bool) {
        if whole {
            self.held_back_bytes = 0;
            self.send_unsent().await;
        }
        // Text that was never shown is dropped.
        for (part_index, from) in std::mem::take(&mut self.unsent) {
            match &mut self.message.parts[part_index].content {
                Content::Text(Text { text, .. }) => text.to_mut().truncate(from),
                Content::Reasoning(Reasoning { text, .. }) => text.truncate(from),
                _ => {}
            }
            self.turn
                .session
                .recorder
                .part(&self.message.id, &self.message.parts[part_index])
                .await;
        }
        tracing::debug!(
            "{} answered with {} parts",
            self.step.model.id,
            self.message.parts.len()
        );
        let written = std::mem::take(&mut self.arguments);
        if written.is_empty() {
            return;
        }
        let bytes: usize = written.values().map(String::len).sum();
        let read = async move {
            written
                .into_iter()
                .map(|(index, json)| (index, arguments(json)))
                .collect()
        };
        let read: Vec<(usize, Value)> = poll_by_size(bytes > MAX_IN_PLACE_BYTES, read).await;
        for (index, input) in read {
            let Some(part_index) = self.part_indexes.get(&index).copied() else {
                continue;
            };
            if let Content::Tool(call) = &mut self.message.parts[part_index].content {
                call.input = Arc::new(input);
            }
            self.turn
                .session
                .recorder
                .part(&self.message.id, &self.message.parts[part_index])
                .await;
        }
    }
}

/// Parses the arguments of a call; text that is not a JSON object is returned as a string.
fn arguments(json: String) -> Value {
    match serde_json::from_str::<Value>(&json) {
        Ok(value) if value.is_object() => value,
        _ if json.trim().is_empty() => Value::Object(Map::new()),
        _ => Value::String(json),
    }
}

fn text_of(part: &Part) -> &str {
    match &part.content {
        Content::Text(text) => &text.text,
        Content::Reasoning(reasoning) => &reasoning.text,
        _ => "",
    }
}

/// Counts the tokens and the cost of an answer that is not used, as far as its provider reported
/// usage. The next complete message includes it in its cost.
pub fn count_unused_answer(turn: &TurnContext, model: &Model, usage: &Usage) {
    let dollars = request_cost(model, usage).filter(|dollars| *dollars > 0.0);
    turn.budget.add_usage(usage, dollars);
    if let Some(dollars) = dollars {
        turn.session.unrecorded_cost.add(dollars);
    }
}

/// Sends the current size of the context and the cost so far.
pub(super) async fn send_usage(history: &History, turn: &TurnContext, model: &Model) {
    let cost = history.cost();
    let Some(used) = size::used_tokens(history) else {
        return;
    };
    turn.event_sender
        .event(Event::Usage {
            used,
            size: model.window(),
            cost,
        })
        .await;
}
