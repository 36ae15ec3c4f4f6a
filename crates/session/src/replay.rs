//! The replay of a stored history: the same events that were sent while it was made.

mod children;

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::oneshot;

use self::children::Children;
use crate::turn::{History, size};
use base::id::{PartId, SessionId};
use events::{self, CallUpdate, Event, UserPiece};
use project::agent::registry::Agents;
use providers::Model;
use store::{Record, Store};
use transcript::{Call, CallState, Compaction, Content, FaultKind, Message, Part};

/// The number of results that are read from the store at once.
const RESULT_BATCH: usize = 32;

/// Returns the calls of a subagent that the user was asked about: the client has seen them next to
/// the call that started the subagent.
fn asked_subagent_calls<'a>(
    store: &'a Store,
    call: &'a Call,
) -> Pin<Box<dyn Future<Output = Vec<Event>> + Send + 'a>> {
    Box::pin(async move {
        let Some(facts) = call
            .state
            .facts()
            .filter(|facts| !facts.asked_calls.is_empty())
        else {
            return Vec::new();
        };
        let child = facts.child.as_ref().map(|child| child.session.clone());
        let Some(child) = child.filter(SessionId::is_well_formed) else {
            return Vec::new();
        };
        // A deleted session is not shown.
        let Ok(stored) = store.peek(&child).await else {
            return Vec::new();
        };
        let agent = stored.record.agent.unwrap_or_default();
        let mut events = Vec::new();
        for call in stored.messages.iter().flat_map(Message::calls) {
            if facts.asked_calls.contains(&call.call) {
                events.push(Event::Call(Box::new(finished_call(call))));
            }
            events.extend(asked_subagent_calls(store, call).await);
        }
        for event in &mut events {
            if let Event::Call(update) = event {
                update.title = update
                    .title
                    .take()
                    .map(|title| base::text::title(&format!("{agent}: {title}")));
            }
        }
        events
    })
}

/// The events of a history, oldest first; after them the title, the plan and the size of the
/// context.
///
/// The events of one message are made at a time, because all of them together would have the size
/// of the history. When this is dropped, the history is sent to its session.
pub struct Replay {
    history: History,
    store: Store,
    session: SessionId,
    /// The index of the next message.
    next_index: usize,
    /// The index after the last visible message.
    end: usize,
    waiting: VecDeque<Event>,
    /// Parts that were shown before all of the history was read.
    pub(super) sent_parts: HashSet<PartId>,
    /// Events after the last message.
    pub(super) final_events: Vec<Event>,
    /// Results of the next messages that were not loaded with the history.
    results: HashMap<PartId, Part>,
    /// The sessions of subagents, if the client shows them.
    children: Option<Children>,
    info: Option<Event>,
    history_sender: Option<oneshot::Sender<History>>,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if let Some(back) = self.history_sender.take() {
            // The receiver is dropped if the session has ended.
            back.send(std::mem::take(&mut self.history)).ok();
        }
    }
}

impl Replay {
    /// Returns the replay of the first `end` messages of a history, and the receiver of the
    /// history afterwards. With `agents`, the replay includes subagents' sessions.
    pub fn new(
        mut history: History,
        (store, record): (Store, &Record),
        end: usize,
        (window, agents): (Option<u64>, Option<Arc<Agents>>),
    ) -> (Self, oneshot::Receiver<History>) {
        let info = record.title.clone();
        let info = info.map(|title| Event::Info {
            title: Some(title),
            updated: record.updated,
        });
        let mut last: Vec<Event> = info.clone().into_iter().collect();
        if !record.todos.is_empty() {
            last.push(Event::Plan(record.todos.clone()));
        }
        // Hidden messages count for the cost, but not for the size of the context.
        let cost = history.cost();
        let hidden = history.messages.split_off(end.min(history.messages.len()));
        if let Some(used) = size::used_tokens(&history) {
            last.push(Event::Usage {
                used,
                size: window.unwrap_or(Model::ASSUMED_CONTEXT_TOKENS),
                cost,
            });
        }
        history.messages.extend(hidden);
        let (back, received) = oneshot::channel();
        let replay = Self {
            history,
            store: store.clone(),
            session: record.id.clone(),
            next_index: 0,
            end,
            waiting: VecDeque::new(),
            sent_parts: HashSet::new(),
            final_events: last,
            results: HashMap::new(),
            children: agents.map(|agents| Children::new(agents, store)),
            info,
            history_sender: Some(back),
        };
        (replay, received)
    }

    /// Returns the title, the notices about damaged parts, and the subagents' sessions, for a
    /// client that does not want the rest of the history.
    pub fn essential_events(&self) -> Vec<Event> {
        let seen = &self.history.messages[..self.end.min(self.history.messages.len())];
        let children = self.children.as_ref();
        let children = children
            .map(|children| children.associations(&self.session, seen))
            .unwrap_or_default();
        let notices = self
            .final_events
            .iter()
            .filter(|event| matches!(event, Event::Notice { .. }));
        self.info
            .iter()
            .chain(notices)
            .cloned()
            .chain(children)
            .collect()
    }

    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.next_index >= self.end {
                self.waiting.extend(self.final_events.drain(..));
                self.end = 0;
                return self.waiting.pop_front();
            }
            let parts = &self.history.messages[self.next_index].parts;
            let is_sent =
                !parts.is_empty() && parts.iter().all(|part| self.sent_parts.contains(&part.id));
            if is_sent || is_superseded(&self.history.messages[..self.end], self.next_index) {
                self.next_index += 1;
                continue;
            }
            if self.next_index < self.history.messages_without_results {
                self.fetch_results().await;
            }
            let mut children = self.children.take();
            let message = &self.history.messages[self.next_index];
            let events = self.events(message, children.as_mut()).await;
            self.children = children;
            for part in &message.parts {
                self.results.remove(&part.id);
            }
            self.waiting.extend(events);
            self.next_index += 1;
        }
    }

    /// Returns the events of a message, with the results that were read from the store.
    async fn events(&self, message: &Message, mut children: Option<&mut Children>) -> Vec<Event> {
        if message.assistant().is_some_and(|a| a.summary) {
            return compaction_event(&self.history, message)
                .into_iter()
                .collect();
        }
        let mut out = Vec::new();
        for part in message
            .parts
            .iter()
            .filter(|part| !self.sent_parts.contains(&part.id))
        {
            let part = self.results.get(&part.id).unwrap_or(part);
            match (&part.content, children.as_deref_mut()) {
                (Content::Tool(call), Some(children)) => {
                    out.extend(children.call_events(&self.session, call).await)
                }
                (Content::Tool(call), None) => {
                    out.extend(part_event(message, part));
                    out.extend(asked_subagent_calls(&self.store, call).await);
                }
                _ => out.extend(part_event(message, part)),
            }
        }
        out.extend(fault_event(message));
        out
    }

    /// Reads the results of the next message, and of some that follow.
    async fn fetch_results(&mut self) {
        let wanted = |messages: &[Message]| {
            let parts = messages.iter().flat_map(|message| &message.parts);
            let done = |part: &&Part| {
                matches!(
                    &part.content,
                    Content::Tool(Call {
                        state: CallState::Completed(_),
                        ..
                    })
                )
            };
            parts
                .filter(done)
                .take(RESULT_BATCH)
                .map(|part| part.id.clone())
                .collect::<Vec<_>>()
        };
        let here = wanted(&self.history.messages[self.next_index..=self.next_index]);
        if here.iter().all(|id| self.results.contains_key(id)) {
            return;
        }
        match self
            .store
            .read_parts(
                &self.session,
                wanted(
                    &self.history.messages[self.next_index..self.history.messages_without_results],
                ),
            )
            .await
        {
            Ok(parts) => {
                self.results = parts
                    .into_iter()
                    .map(|part| (part.id.clone(), part))
                    .collect()
            }
            Err(e) => tracing::warn!("earlier results cannot be shown: {e}"),
        }
    }
}

/// True if an answer was cut off and made again in the same turn, so that its text would be
/// shown twice. An answer with calls was not made again.
fn is_superseded(messages: &[Message], at: usize) -> bool {
    let message = &messages[at];
    let is_cut_off = |message: &Message| {
        let fault = message
            .assistant()
            .and_then(|assistant| assistant.fault.as_ref());
        fault.is_some_and(|fault| fault.kind == FaultKind::Interrupted)
            && message.calls().next().is_none()
    };
    if !is_cut_off(message) {
        return false;
    }
    let text = message.visible_text();
    let text = text.trim_end();
    let thought = |part: &Part| matches!(&part.content, Content::Reasoning(reasoning) if !reasoning.text.is_empty());
    if text.is_empty() && message.parts.iter().any(thought) {
        return false;
    }
    let mut later = messages[at + 1..]
        .iter()
        .take_while(|message| !message.is_prompt());
    let next = later.find(|message| message.assistant().is_some() && !is_cut_off(message));
    next.is_some_and(|next| {
        next.assistant().is_some_and(|next| !next.summary) && next.visible_text().starts_with(text)
    })
}

/// Returns the fault of a message that is incomplete, as a text.
fn fault_event(message: &Message) -> Option<Event> {
    let fault = message.assistant()?.fault.as_ref()?;
    let part = PartId::new(format!("{}-fault", message.id));
    Some(Event::Text {
        part,
        delta: format!("({})", fault.message),
    })
}

/// Returns the event of a completed compaction.
fn compaction_event(history: &History, summary: &Message) -> Option<Event> {
    let parent = &summary.assistant()?.parent;
    let prompt = history.messages.iter().rev().find(|m| m.id == *parent)?;
    prompt.parts.iter().find_map(|part| match &part.content {
        Content::Compaction(Compaction {
            auto,
            before,
            after,
            ..
        }) => {
            let before = *before;
            let after = *after;
            let state = events::CompactionState::Completed {
                before,
                after,
                summary: summary.visible_text(),
            };
            Some(Event::Compaction {
                id: part.id.clone(),
                auto: *auto,
                state,
            })
        }
        _ => None,
    })
}

pub(super) fn part_event(message: &Message, part: &Part) -> Option<Event> {
    let user = message.user().is_some();
    match &part.content {
        Content::Text(text) if text.synthetic || text.text.is_empty() => None,
        Content::Text(text) if user => Some(Event::User {
            message: message.id.clone(),
            piece: UserPiece::Text(text.text.to_string()),
        }),
        Content::Text(text) => Some(Event::Text {
            part: part.id.clone(),
            delta: text.text.to_string(),
        }),
        Content::Reasoning(reasoning) if !reasoning.text.is_empty() => Some(Event::Thought {
            part: part.id.clone(),
            delta: reasoning.text.clone(),
        }),
        Content::File(file) => Some(Event::User {
            message: message.id.clone(),
            piece: UserPiece::File(file.clone()),
        }),
        Content::Tool(call) => Some(Event::Call(Box::new(finished_call(call)))),
        _ => None,
    }
}

/// Returns a finished call as one update.
fn finished_call(call: &Call) -> CallUpdate {
    CallUpdate {
        tool: Some(call.tool.clone()),
        title: Some(call.title.clone()),
        kind: Some(call.kind),
        input: call.input.is_object().then(|| Value::clone(&call.input)),
        locations: (!call.locations.is_empty()).then(|| call.locations.clone()),
        ..CallUpdate::from(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::environment::Timestamp;
    use base::id::MessageId;
    use transcript::{Assistant, Fault, ModelRef, Role, Text, Usage, User};

    fn message(role: Role, text: &str, synthetic: bool) -> Message {
        let content = Content::Text(Text {
            text: text.into(),
            synthetic,
            ..Text::default()
        });
        let parts = vec![Part {
            id: PartId::new("part"),
            content,
        }];
        Message {
            id: MessageId::new("message"),
            created: Timestamp(1),
            role,
            parts,
        }
    }

    fn model() -> ModelRef {
        ModelRef {
            provider: "p".into(),
            model: "m".into(),
            effort: None,
        }
    }

    fn prompt(text: &str) -> Message {
        message(
            Role::User(User {
                agent: "build".into(),
                model: model(),
            }),
            text,
            false,
        )
    }

    /// Returns the note of a prompt that continues interrupted work.
    fn note() -> Message {
        message(
            Role::User(User {
                agent: "build".into(),
                model: model(),
            }),
            "The machine was lost.",
            true,
        )
    }

    fn answer(text: &str, kind: Option<FaultKind>) -> Message {
        let fault = kind.map(|kind| Fault {
            kind,
            message: "interrupted".into(),
            advice: None,
        });
        let assistant = Assistant {
            parent: MessageId::new("prompt"),
            agent: "build".into(),
            model: model(),
            finish: None,
            fault,
            summary: false,
            usage: Usage::default(),
            cost: None,
            completed: None,
        };
        message(Role::Assistant(assistant), text, false)
    }

    #[test]
    fn answer_cut_off_and_made_again_is_shown_once() {
        let cut = |text: &str| answer(text, Some(FaultKind::Interrupted));
        let whole = || answer("Once upon a time.", None);
        let table = [
            (
                "made again",
                vec![prompt("a"), cut("Once upon "), note(), whole()],
                vec![1],
            ),
            (
                "twice",
                vec![
                    prompt("a"),
                    cut("Once upon"),
                    note(),
                    cut("Once"),
                    note(),
                    whole(),
                ],
                vec![1, 3],
            ),
            (
                "nothing said yet",
                vec![prompt("a"), cut(""), note(), whole()],
                vec![1],
            ),
            (
                "gone on with",
                vec![
                    prompt("a"),
                    cut("Once upon"),
                    note(),
                    answer("a time.", None),
                ],
                vec![],
            ),
            (
                "another prompt",
                vec![prompt("a"), cut("Once upon"), prompt("b"), whole()],
                vec![],
            ),
            ("the last", vec![prompt("a"), cut("Once upon")], vec![]),
            (
                "another fault",
                vec![
                    prompt("a"),
                    answer("Once", Some(FaultKind::Internal)),
                    note(),
                    whole(),
                ],
                vec![],
            ),
        ];
        for (name, messages, hidden) in table {
            let found: Vec<usize> = (0..messages.len())
                .filter(|at| is_superseded(&messages, *at))
                .collect();
            assert_eq!(found, hidden, "{name}");
        }
    }
}
