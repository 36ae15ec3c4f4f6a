//! What a turn does next. Pure: the history says it all.

use super::{History, Outcome};
use crate::message::{CallState, Content, Finish, Message, Part, Role};

/// What a turn does next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Ask the model.
    Step {
        /// How many steps the turn has made already.
        made: u32,
        /// It is the last one allowed: no tools are offered.
        last: bool,
    },
    /// Do what the user gave to subagents.
    Subtask,
    /// Stop.
    Finish(Outcome),
}

/// Limits of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Steps at most; none: as many as it takes.
    pub steps: Option<u32>,
    /// Go on after the user rejected a call without words.
    pub continue_on_deny: bool,
}

/// Decides. The turn begins after the last user message that is not synthetic.
pub fn next(history: &History, limits: &Limits) -> Next {
    let made = u32::try_from(turn(history).iter().filter(|m| m.assistant().is_some()).count()).unwrap_or(u32::MAX);
    let step = || match limits.steps {
        Some(most) if made >= most => Next::Finish(Outcome::StepLimit),
        Some(most) => Next::Step { made, last: made + 1 >= most },
        None => Next::Step { made, last: false },
    };
    let Some(last) = history.messages.last() else {
        return Next::Finish(Outcome::Ended);
    };
    let Role::Assistant(assistant) = &last.role else {
        let work = |part: &Part| matches!(part.content, Content::Subtask { .. });
        return if last.parts.iter().any(work) { Next::Subtask } else { step() };
    };
    if let Some(fault) = &assistant.fault {
        return Next::Finish(Outcome::Failed(fault.clone()));
    }
    if !limits.continue_on_deny && last.calls().any(|call| rejected(&call.state)) {
        return Next::Finish(Outcome::Ended);
    }
    // Some providers say "stop" although they called something.
    if last.calls().next().is_some() && assistant.finish != Some(Finish::Length) {
        return step();
    }
    Next::Finish(match assistant.finish {
        Some(Finish::Length) => Outcome::MaxTokens,
        Some(Finish::Refusal) => Outcome::Refused,
        _ => Outcome::Ended,
    })
}

/// The messages of the running turn, its prompt included.
pub fn turn(history: &History) -> &[Message] {
    let prompted = |m: &Message| m.user().is_some() && m.parts.iter().any(spoken);
    let start = history.messages.iter().rposition(prompted).unwrap_or(0);
    &history.messages[start..]
}

/// The subagents the user has named with `@` in the running turn.
pub fn named(history: &History) -> Vec<String> {
    let parts = turn(history).iter().filter(|m| m.user().is_some()).flat_map(|m| &m.parts);
    let name = |part: &Part| match &part.content {
        Content::Agent { name } => Some(name.clone()),
        _ => None,
    };
    parts.filter_map(name).collect()
}

fn spoken(part: &Part) -> bool {
    match &part.content {
        Content::Text(text) => !text.synthetic,
        Content::File(_) | Content::Subtask { .. } => true,
        _ => false,
    }
}

/// The key in a failed call's metadata that says the user rejected it without words.
pub const REJECTED: &str = "rejected";

pub(super) fn rejected(state: &CallState) -> bool {
    matches!(state, CallState::Failed { metadata, .. } if metadata.contains_key(REJECTED))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::environment::Timestamp;
    use crate::id::{CallId, MessageId, PartId};
    use crate::message::{Assistant, Call, Completed, Fault, FaultKind, ModelRef, Text, Usage, User};

    pub(in crate::turn) fn model() -> ModelRef {
        ModelRef { provider: "p".into(), model: "m".into(), effort: None }
    }

    pub(in crate::turn) fn user(words: &str, synthetic: bool) -> Message {
        let text = Content::Text(Text { text: words.into(), synthetic, ..Text::default() });
        Message {
            id: MessageId::new("u"),
            created: Timestamp(0),
            role: Role::User(User { agent: "build".into(), model: model(), system: None }),
            parts: vec![Part { id: PartId::new("p"), content: text }],
        }
    }

    pub(in crate::turn) fn assistant(finish: Option<Finish>, parts: Vec<Content>) -> Message {
        let assistant = Assistant {
            parent: MessageId::new("u"),
            agent: "build".into(),
            model: model(),
            finish,
            fault: None,
            summary: false,
            usage: Usage::default(),
            cost: None,
            completed: None,
        };
        let part = |content| Part { id: PartId::new("p"), content };
        Message {
            id: MessageId::new("a"),
            created: Timestamp(0),
            role: Role::Assistant(assistant),
            parts: parts.into_iter().map(part).collect(),
        }
    }

    pub(in crate::turn) fn call(id: &str, tool: &str, input: Value, state: CallState) -> Content {
        Content::Tool(Call {
            call: CallId::new(id),
            provider_id: None,
            tool: tool.into(),
            input,
            kind: crate::message::Kind::Other,
            title: String::new(),
            locations: Vec::new(),
            state,
            provider: Map::new(),
        })
    }

    fn done() -> Content {
        call("c", "read", json!({}), CallState::Completed(Completed::default()))
    }

    fn failed(metadata: Value) -> Content {
        let Value::Object(metadata) = metadata else { panic!("an object") };
        call("c", "bash", json!({}), CallState::Failed { error: "no".into(), metadata })
    }

    #[test]
    fn the_history_decides() {
        let stop = || assistant(Some(Finish::Stop), vec![]);
        let called = || assistant(Some(Finish::ToolCalls), vec![done()]);
        let mut faulty = stop();
        let fault = Fault { kind: FaultKind::Provider, message: "x".into(), advice: None };
        if let Role::Assistant(a) = &mut faulty.role {
            a.fault = Some(fault.clone());
        }
        let table = [
            (vec![], None, Next::Finish(Outcome::Ended)),
            (vec![user("hi", false)], None, Next::Step { made: 0, last: false }),
            (vec![user("hi", false), stop()], None, Next::Finish(Outcome::Ended)),
            (vec![user("hi", false), called()], None, Next::Step { made: 1, last: false }),
            (vec![user("hi", false), called()], Some(2), Next::Step { made: 1, last: true }),
            (vec![user("hi", false), called(), called()], Some(2), Next::Finish(Outcome::StepLimit)),
            (vec![user("hi", false), called(), user("go on", true)], Some(5), Next::Step { made: 1, last: false }),
            (vec![user("hi", false), stop(), user("again", false)], Some(1), Next::Step { made: 0, last: true }),
            (
                vec![user("hi", false), assistant(Some(Finish::Stop), vec![done()])],
                None,
                Next::Step { made: 1, last: false },
            ),
            (vec![user("hi", false), assistant(Some(Finish::Length), vec![])], None, Next::Finish(Outcome::MaxTokens)),
            (vec![user("hi", false), assistant(Some(Finish::Refusal), vec![])], None, Next::Finish(Outcome::Refused)),
            (
                vec![user("hi", false), assistant(Some(Finish::ToolCalls), vec![failed(json!({"rejected": true}))])],
                None,
                Next::Finish(Outcome::Ended),
            ),
            (
                vec![user("hi", false), assistant(Some(Finish::ToolCalls), vec![failed(json!({}))])],
                None,
                Next::Step { made: 1, last: false },
            ),
            (vec![user("hi", false), faulty], None, Next::Finish(Outcome::Failed(fault))),
        ];
        for (n, (messages, steps, expected)) in table.into_iter().enumerate() {
            let limits = Limits { steps, continue_on_deny: false };
            assert_eq!(next(&History { messages }, &limits), expected, "row {n}");
        }
    }
}
