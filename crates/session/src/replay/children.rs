//! The sessions of subagents in a replay, for clients that show them: each is announced at the call
//! that started it, and its stored events are sent there again. None of them runs, so none can be
//! stopped.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;

use super::{compaction_event, fault_event, finished_call, part_event};
use crate::session_turn::child::subagent_info;
use crate::turn::{History, recover};
use base::id::SessionId;
use events::{CallUpdate, Event, Progress, Subagent, SubagentInfo, SubagentState, SubagentStop};
use project::agent::registry::Agents;
use store::Store;
use transcript::{Call, CallFacts, Content, FailureCause, FaultKind, Finish, Message};

pub(super) struct Children {
    agents: Arc<Agents>,
    store: Store,
    /// The number of messages of each child that were sent.
    sent: HashMap<SessionId, usize>,
}

impl Children {
    pub(super) fn new(agents: Arc<Agents>, store: Store) -> Self {
        Self {
            agents,
            store,
            sent: HashMap::new(),
        }
    }

    /// Returns the children that a session has started, in order, with their latest
    /// descriptions.
    pub(super) fn associations(&self, session: &SessionId, messages: &[Message]) -> Vec<Event> {
        let mut known: Vec<Subagent> = Vec::new();
        for call in messages.iter().flat_map(Message::calls) {
            let Some(child) = child_of_call(session, call) else {
                continue;
            };
            let subagent = Subagent {
                info: Some(self.subagent_info(call)),
                ..without_details(&child, call)
            };
            match known
                .iter_mut()
                .find(|known_subagent| known_subagent.session == child)
            {
                Some(known_subagent) => *known_subagent = subagent,
                None => known.push(subagent),
            }
        }
        known
            .into_iter()
            .map(|known_subagent| Event::Subagent(Box::new(known_subagent)))
            .collect()
    }

    /// Returns the events of a finished call of `session`, with those of the child that it
    /// started.
    pub(super) fn call_events<'a>(
        &'a mut self,
        session: &'a SessionId,
        call: &'a Call,
    ) -> Pin<Box<dyn Future<Output = Vec<Event>> + Send + 'a>> {
        Box::pin(async move {
            let whole = finished_call(call);
            let Some(child) = child_of_call(session, call) else {
                return vec![Event::Call(Box::new(whole))];
            };
            let announced = CallUpdate {
                progress: Some(Progress::Pending),
                metadata: None,
                output: None,
                changes: None,
                attachments: None,
                exit: None,
                ..whole.clone()
            };
            let begun = CallUpdate {
                progress: Some(Progress::Running),
                metadata: call.state.facts().and_then(CallFacts::link),
                ..CallUpdate::of(&call.call)
            };
            let ended = CallUpdate {
                tool: None,
                title: None,
                kind: None,
                input: None,
                locations: None,
                ..whole
            };
            let subagent = Subagent {
                info: Some(self.subagent_info(call)),
                ..without_details(&child, call)
            };
            let mut events = vec![
                Event::Call(Box::new(announced)),
                Event::Call(Box::new(begun)),
            ];
            events.push(Event::Subagent(Box::new(subagent)));
            let (child_events, stop) = self.child_turn_events(session, &child, call).await;
            events.extend(child_events);
            if let Some(stop) = stop {
                let subagent = Subagent {
                    state: Some(SubagentState::Over(stop)),
                    ..without_details(&child, call)
                };
                events.push(Event::Subagent(Box::new(subagent)));
            }
            events.push(Event::Call(Box::new(ended)));
            events
        })
    }

    /// Returns the events of the child's turn for a call, and how it ended if that is known.
    async fn child_turn_events(
        &mut self,
        session: &SessionId,
        child: &SessionId,
        call: &Call,
    ) -> (Vec<Event>, Option<SubagentStop>) {
        // A deleted session is not shown.
        let Ok(stored) = self.store.peek(child).await else {
            return (Vec::new(), None);
        };
        if stored.record.parent.as_ref() != Some(session) {
            return (Vec::new(), None);
        }
        let mut history = History::from(stored.messages);
        // Only in memory: the stored session is marked as interrupted when it continues.
        recover::recover(&mut history);
        let from = self.sent.get(child).copied().unwrap_or_default();
        let Some((start, end)) = find_turn(
            &history.messages,
            from,
            call.input.get("prompt").and_then(Value::as_str),
        ) else {
            return (Vec::new(), None);
        };
        self.sent.insert(child.clone(), end);
        let mut events = Vec::new();
        for message in &history.messages[start..end] {
            if message.is_prompt() {
                let id = message.id.clone();
                let text = message.visible_text();
                events.push(in_child_session(
                    child,
                    Event::SessionMessage {
                        message: id,
                        sender: session.clone(),
                        text,
                    },
                ));
                continue;
            }
            if message.is_summary() {
                events.extend(
                    compaction_event(&history, message).map(|event| in_child_session(child, event)),
                );
                continue;
            }
            if message.assistant().is_none() {
                continue;
            }
            for part in &message.parts {
                match &part.content {
                    Content::Tool(call) => {
                        events.extend(
                            self.call_events(child, call)
                                .await
                                .into_iter()
                                .map(|event| in_child_session(child, event)),
                        );
                    }
                    _ => events.extend(
                        part_event(message, part).map(|event| in_child_session(child, event)),
                    ),
                }
            }
            events.extend(fault_event(message).map(|event| in_child_session(child, event)));
        }
        let stop = turn_end(&history.messages[start..end]);
        (events, stop)
    }

    fn subagent_info(&self, call: &Call) -> SubagentInfo {
        // The tool's title has the form "agent: description".
        let (agent, description) = call.title.split_once(": ").unwrap_or(("", &call.title));
        let text = |key| call.input.get(key).and_then(Value::as_str);
        let name = text("subagent_type").unwrap_or(agent);
        let about = subagent_info(
            text("description").unwrap_or(description),
            name,
            self.agents.get(name).as_deref(),
        );
        SubagentInfo {
            is_stoppable: false,
            ..about
        }
    }
}

/// Returns the child that a call of `session` started. Calls that a fork has copied from another
/// session do not count.
fn child_of_call(session: &SessionId, call: &Call) -> Option<SessionId> {
    let child = call.state.facts()?.child.as_ref()?;
    (child.parent.as_ref() == Some(session) && child.session.is_well_formed())
        .then(|| child.session.clone())
}

fn without_details(child: &SessionId, call: &Call) -> Subagent {
    Subagent {
        session: child.clone(),
        call: call.call.clone(),
        info: None,
        state: None,
    }
}

fn in_child_session(session: &SessionId, event: Event) -> Event {
    match event {
        Event::InChildSession { .. } => event,
        event => Event::InChildSession {
            session: session.clone(),
            event: Box::new(event),
        },
    }
}

/// Returns the range of a child's messages that begins with a prompt of this text, not before
/// `from`, and ends before the next prompt.
fn find_turn(messages: &[Message], from: usize, text: Option<&str>) -> Option<(usize, usize)> {
    let is = |message: &Message| {
        message.is_prompt() && text.is_none_or(|text| message.visible_text() == text)
    };
    let start = from + messages.get(from..)?.iter().position(is)?;
    let next = messages[start + 1..].iter().position(Message::is_prompt);
    Some((start, next.map_or(messages.len(), |next| start + 1 + next)))
}

/// Returns how a child's turn ended; `None` if the process ended first, or the end is unknown.
fn turn_end(turn: &[Message]) -> Option<SubagentStop> {
    let last = turn
        .iter()
        .rev()
        .find(|message| message.assistant().is_some_and(|a| !a.summary))?;
    let assistant = last.assistant()?;
    assistant.completed?;
    if let Some(fault) = &assistant.fault {
        return Some(match fault.kind {
            FaultKind::Interrupted => SubagentStop::Cancelled,
            _ => SubagentStop::Failed(fault.message.clone()),
        });
    }
    let failed =
        |is: fn(FailureCause) -> bool| last.calls().filter_map(|call| call.state.cause()).any(is);
    match assistant.finish? {
        Finish::Length => Some(SubagentStop::MaxTokens),
        Finish::Refusal => Some(SubagentStop::Refused),
        _ if failed(FailureCause::is_interruption) => Some(SubagentStop::Cancelled),
        _ if last.calls().next().is_none() || failed(|cause| cause == FailureCause::Rejected) => {
            Some(SubagentStop::Done)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use base::environment::Timestamp;
    use base::id::{CallId, MessageId, PartId};
    use transcript::{
        Assistant, CallFacts, CallState, Fault, ModelRef, Part, Role, Text, ToolKind, Usage, User,
    };

    fn model() -> ModelRef {
        ModelRef {
            provider: "p".into(),
            model: "m".into(),
            effort: None,
        }
    }

    fn message(role: Role, content: Content) -> Message {
        let parts = vec![Part {
            id: PartId::new("p"),
            content,
        }];
        Message {
            id: MessageId::new("m"),
            created: Timestamp(0),
            role,
            parts,
        }
    }

    fn prompt(text: &str) -> Message {
        let text = Content::Text(Text {
            text: text.into(),
            ..Text::default()
        });
        message(
            Role::User(User {
                agent: "general".into(),
                model: model(),
            }),
            text,
        )
    }

    fn answer(change: impl Fn(&mut Assistant), content: Content) -> Message {
        let mut assistant = Assistant {
            parent: MessageId::new("u"),
            agent: "general".into(),
            model: model(),
            finish: Some(Finish::Stop),
            fault: None,
            summary: false,
            usage: Usage::default(),
            cost: None,
            completed: Some(Timestamp(1)),
        };
        change(&mut assistant);
        message(Role::Assistant(assistant), content)
    }

    fn words() -> Content {
        Content::Text(Text {
            text: "x".into(),
            ..Text::default()
        })
    }

    fn call(cause: FailureCause) -> Content {
        Content::Tool(Call {
            call: CallId::new("c"),
            provider_id: None,
            tool: "list".into(),
            input: json!({}).into(),
            kind: ToolKind::Search,
            title: String::new(),
            locations: Vec::new(),
            state: CallState::Failed {
                error: "x".into(),
                cause,
                coloured: None,
                facts: CallFacts::default(),
            },
            provider: Map::new(),
        })
    }

    #[test]
    fn turn_is_found_by_text_of_its_prompt() {
        let messages = [
            prompt("a"),
            answer(|_| {}, words()),
            prompt("b"),
            prompt("a"),
            answer(|_| {}, words()),
        ];
        let table = [
            (0, Some("a"), Some((0, 2))),
            (2, Some("a"), Some((3, 5))),
            (0, Some("b"), Some((2, 3))),
            (0, Some("c"), None),
            (2, None, Some((2, 3))),
            (5, None, None),
            (9, None, None),
        ];
        for (from, text, expected) in table {
            assert_eq!(
                find_turn(&messages, from, text),
                expected,
                "{text:?} from {from}"
            );
        }
    }

    #[test]
    fn end_of_turn_is_reported_if_known() {
        let fault = |kind| {
            move |a: &mut Assistant| {
                a.finish = None;
                a.fault = Some(Fault {
                    kind,
                    message: "No.".into(),
                    advice: None,
                });
            }
        };
        let finish = |finish| move |a: &mut Assistant| a.finish = Some(finish);
        let table = [
            (vec![], None),
            (vec![answer(|_| {}, words())], Some(SubagentStop::Done)),
            (
                vec![answer(finish(Finish::Length), words())],
                Some(SubagentStop::MaxTokens),
            ),
            (
                vec![answer(finish(Finish::Refusal), words())],
                Some(SubagentStop::Refused),
            ),
            (
                vec![answer(fault(FaultKind::Interrupted), words())],
                Some(SubagentStop::Cancelled),
            ),
            (
                vec![answer(fault(FaultKind::Provider), words())],
                Some(SubagentStop::Failed("No.".into())),
            ),
            (
                vec![answer(
                    finish(Finish::ToolCalls),
                    call(FailureCause::Cancelled),
                )],
                Some(SubagentStop::Cancelled),
            ),
            (
                vec![answer(
                    finish(Finish::ToolCalls),
                    call(FailureCause::Rejected),
                )],
                Some(SubagentStop::Done),
            ),
            // The process ended between two steps, or in one.
            (
                vec![answer(finish(Finish::ToolCalls), call(FailureCause::Error))],
                None,
            ),
            (vec![answer(|a| a.completed = None, words())], None),
            (
                vec![
                    answer(|_| {}, words()),
                    answer(|a| a.summary = true, words()),
                ],
                Some(SubagentStop::Done),
            ),
        ];
        for (n, (turn, expected)) in table.into_iter().enumerate() {
            assert_eq!(turn_end(&turn), expected, "row {n}");
        }
    }
}
