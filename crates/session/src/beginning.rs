//! The first events of a session, which the client is shown before all of its history is read. Only
//! messages are shown whose events cannot depend on the rest; the replay then skips their parts.

use std::collections::HashSet;

use tokio::sync::oneshot;

use super::replay;
use crate::turn::{History, recover};
use base::id::PartId;
use events::Event;
use store::{Record, StoredSession, visible};
use transcript::Message;

/// Receives the first events of a history while the rest of it is read.
pub type BeginningSender = oneshot::Sender<Vec<Event>>;

/// The first events of a history, and the parts that they show.
#[derive(Debug, Default)]
struct ShownBeginning {
    events: Vec<Event>,
    sent: HashSet<PartId>,
}

impl ShownBeginning {
    /// Returns the events of the first messages. Stops before the first message whose events may
    /// depend on the rest of the history.
    fn of(stored: StoredSession) -> Self {
        let end = visible(&stored.messages, &stored.record.undone);
        let mut shown = Self::default();
        for message in stored.messages.into_iter().take(end) {
            let Some(message) = independent_message(message) else {
                break;
            };
            shown.events.extend(
                message
                    .parts
                    .iter()
                    .filter_map(|part| replay::part_event(&message, part)),
            );
            shown
                .sent
                .extend(message.parts.into_iter().map(|part| part.id));
        }
        shown
    }
}

/// Returns the message if its events do not depend on the rest of the history: it ended without a
/// fault, is not a summary, and has no subagents. `None` otherwise.
fn independent_message(message: Message) -> Option<Message> {
    let ended = message
        .assistant()
        .is_none_or(|answer| answer.fault.is_none() && !answer.summary);
    let alone = message
        .calls()
        .filter_map(|call| call.state.facts())
        .all(|facts| facts.child.is_none() && facts.asked_calls.is_empty());
    if !ended || !alone {
        return None;
    }
    let mut history = History::from(vec![message]);
    let changed = recover::recover(&mut history);
    if changed.is_empty() {
        history.messages.pop()
    } else {
        None
    }
}

/// Sends the events of the first messages to `shown` while the session is being read. `fits` decides
/// by the record if the session will probably be opened; otherwise nothing is sent. Returns the parts
/// that were shown.
pub(super) async fn show_first_messages(
    beginning: oneshot::Receiver<StoredSession>,
    fits: impl FnOnce(&Record) -> bool,
    shown: Option<BeginningSender>,
) -> HashSet<PartId> {
    let Some(shown) = shown else {
        return HashSet::new();
    };
    if shown.is_closed() {
        return HashSet::new();
    }
    let Some(stored) = beginning.await.ok().filter(|stored| fits(&stored.record)) else {
        return HashSet::new();
    };
    let ShownBeginning { events, sent } = ShownBeginning::of(stored);
    match shown.send(events) {
        Ok(()) => sent,
        Err(_) => HashSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::{Map, json};

    use super::super::replay::Replay;
    use super::*;
    use base::environment::Timestamp;
    use base::id::{CallId, MessageId, SessionId};
    use store::{Store, UndoEntry};
    use transcript::{
        Assistant, BackgroundJob, Call, CallFacts, CallState, ChildSession, Completed, Content,
        Fault, FaultKind, Finish, JobState, ModelRef, Part, Role, Text, ToolKind, Usage, User,
    };

    fn model() -> ModelRef {
        ModelRef {
            provider: "p".into(),
            model: "m".into(),
            effort: None,
        }
    }

    fn text(text: &str) -> Content {
        Content::Text(Text {
            text: text.into(),
            ..Text::default()
        })
    }

    fn message(id: &str, role: Role, contents: Vec<Content>) -> Message {
        let part = |(n, content)| Part {
            id: PartId::new(format!("{id}-{n}")),
            content,
        };
        let parts = contents.into_iter().enumerate().map(part).collect();
        Message {
            id: MessageId::new(id),
            created: Timestamp(1),
            role,
            parts,
        }
    }

    fn prompt(id: &str) -> Message {
        message(
            id,
            Role::User(User {
                agent: "build".into(),
                model: model(),
            }),
            vec![text(id)],
        )
    }

    fn answer(id: &str, change: impl Fn(&mut Assistant), more: Vec<Content>) -> Message {
        let mut assistant = Assistant {
            parent: MessageId::new("p"),
            agent: "build".into(),
            model: model(),
            finish: Some(Finish::Stop),
            fault: None,
            summary: false,
            usage: Usage::default(),
            cost: None,
            completed: Some(Timestamp(1)),
        };
        change(&mut assistant);
        message(
            id,
            Role::Assistant(assistant),
            std::iter::once(text(id)).chain(more).collect(),
        )
    }

    fn call(state: CallState) -> Vec<Content> {
        vec![Content::Tool(Call {
            call: CallId::new("c"),
            provider_id: None,
            tool: "read".into(),
            input: json!({}).into(),
            kind: ToolKind::Read,
            title: "Read".into(),
            locations: Vec::new(),
            state,
            provider: Map::new(),
        })]
    }

    fn done(facts: CallFacts) -> Vec<Content> {
        call(CallState::Completed(Completed {
            output: "words".into(),
            facts,
            ..Completed::default()
        }))
    }

    async fn replayed(store: &Store, stored: StoredSession, sent: HashSet<PartId>) -> Vec<Event> {
        let mut history = History::from(stored.messages);
        recover::recover(&mut history);
        let end = visible(&history.messages, &stored.record.undone);
        let mut replay = Replay::new(history, (store.clone(), &stored.record), end, (None, None)).0;
        replay.sent_parts = sent;
        let mut events = Vec::new();
        while let Some(event) = replay.next().await {
            events.push(event);
        }
        events
    }

    /// For every length of the beginning, its events and the rest equal the events of the whole
    /// replay.
    #[tokio::test]
    async fn beginning_and_rest_equal_the_whole() {
        let fault = |a: &mut Assistant| {
            a.finish = None;
            a.fault = Some(Fault {
                kind: FaultKind::Interrupted,
                message: "Stopped.".into(),
                advice: None,
            });
        };
        let child = ChildSession {
            parent: None,
            session: SessionId::new("ses_child"),
            model: None,
        };
        let child = CallFacts {
            child: Some(child),
            ..CallFacts::default()
        };
        let job = BackgroundJob {
            id: "job1".into(),
            state: JobState::Running,
        };
        let job = CallFacts {
            job: Some(job),
            ..CallFacts::default()
        };
        let plain = |id| answer(id, |_| {}, done(CallFacts::default()));
        // With the number of messages that may be shown before all are read.
        let table = [
            ("ended well", plain("plain"), 6),
            ("cut off", answer("cut", fault, vec![]), 1),
            ("not ended", answer("open", |a| a.finish = None, vec![]), 1),
            (
                "a summary",
                answer("summary", |a| a.summary = true, vec![]),
                1,
            ),
            (
                "a call that runs",
                answer("runs", |_| {}, call(CallState::Pending)),
                1,
            ),
            ("a subagent", answer("child", |_| {}, done(child)), 1),
            (
                "a command in the background",
                answer("job", |_| {}, done(job)),
                1,
            ),
        ];
        let dir = tempfile::tempdir().unwrap();
        let store = Store::start(dir.path());
        for (name, odd, max) in table {
            let messages = vec![
                prompt("a"),
                odd,
                prompt("b"),
                plain("second"),
                prompt("c"),
                plain("third"),
            ];
            for undone in [None, Some("a"), Some("b"), Some("c")] {
                let mut record =
                    Record::new(SessionId::new("ses_1"), PathBuf::from("/w"), Timestamp(1));
                let entry = |from| UndoEntry {
                    from: MessageId::new(from),
                    files: vec![],
                    skipped_files: vec![],
                    is_complete: true,
                    is_logged: true,
                };
                record.undone.extend(undone.map(entry));
                let stored = StoredSession {
                    record,
                    messages: messages.clone(),
                    damage: Vec::new(),
                };
                let expected = replayed(&store, stored.clone(), HashSet::new()).await;
                for read in 0..=messages.len() {
                    let first = StoredSession {
                        messages: messages[..read].to_vec(),
                        ..stored.clone()
                    };
                    let ShownBeginning { mut events, sent } = ShownBeginning::of(first);
                    let shown = messages
                        .iter()
                        .filter(|message| sent.contains(&message.parts[0].id))
                        .count();
                    assert!(
                        shown <= max,
                        "{name}, undone from {undone:?}, {read} read: {shown} shown"
                    );
                    assert!(
                        shown == max.min(read) || undone.is_some(),
                        "{name}, {read} read: {shown} shown"
                    );
                    events.extend(replayed(&store, stored.clone(), sent).await);
                    assert_eq!(
                        events, expected,
                        "{name}, undone from {undone:?}, {read} read"
                    );
                }
            }
        }
    }

    #[tokio::test]
    async fn late_part_is_shown_with_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::start(dir.path());
        let record = Record::new(SessionId::new("ses_1"), PathBuf::from("/w"), Timestamp(1));
        let messages = vec![
            prompt("a"),
            answer("b", |_| {}, done(CallFacts::default())),
            prompt("c"),
        ];
        let stored = StoredSession {
            record,
            messages,
            damage: Vec::new(),
        };
        let mut first = stored.clone();
        first.messages.truncate(2);
        first.messages[1].parts.pop();
        let ShownBeginning { events, sent } = ShownBeginning::of(first);
        assert_eq!(events.len(), 2);
        let rest = replayed(&store, stored, sent).await;
        assert!(
            matches!(&rest[..], [Event::Call(_), Event::User { .. }]),
            "{rest:?}"
        );
    }
}
