//! The tasks of a fork. Its history names the child sessions of the session that it was copied
//! from; to continue with one of them, the fork copies it, as it was when the fork's history ends with
//! it.

use base::id::SessionId;
use serde_json::Value;
use transcript::{Call, ChildSession, Message};

/// A task that a fork's history names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ForkedTask {
    /// The fork has a session of its own for it.
    Own(SessionId),
    /// It is a session of another parent, with the turns that these prompts began.
    Foreign(SessionId, Vec<String>),
}

/// Returns the present session of the task `id` in the history of `session`; `None` if the history
/// has no such task.
pub(super) fn find_task(
    messages: &[Message],
    session: &SessionId,
    id: &SessionId,
) -> Option<ForkedTask> {
    let mut known = id;
    let mut prompts = Vec::new();
    let mut owner = None;
    for (call, child) in messages.iter().flat_map(Message::calls).filter_map(child) {
        let text = |key| call.input.get(key).and_then(Value::as_str);
        // A call that went on with a task under another id has copied it.
        let is_copied = owner.is_some() && text("task_id") == Some(known.as_str());
        if child.session != *known && !is_copied {
            continue;
        }
        known = &child.session;
        owner = child.parent.as_ref();
        prompts.push(text("prompt").unwrap_or_default().to_owned());
    }
    let owner = owner?;
    Some(if owner == session {
        ForkedTask::Own(known.clone())
    } else {
        ForkedTask::Foreign(known.clone(), prompts)
    })
}

/// Returns a call that started or continued a task, with its session.
fn child(call: &Call) -> Option<(&Call, &ChildSession)> {
    let child = call.state.facts()?.child.as_ref()?;
    child.session.is_well_formed().then_some((call, child))
}

/// Returns the number of a task's messages up to the end of the turns that these prompts began.
pub(super) fn end_of_turns(messages: &[Message], prompts: &[String]) -> usize {
    let mut end = 0;
    for prompt in prompts {
        let rest = messages.get(end..).unwrap_or_default();
        let Some(start) = rest
            .iter()
            .position(|message| message.is_prompt() && message.visible_text() == *prompt)
        else {
            continue;
        };
        let turn = &rest[start + 1..];
        let length = turn
            .iter()
            .position(Message::is_prompt)
            .unwrap_or(turn.len());
        end += start + 1 + length;
    }
    end
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use base::environment::Timestamp;
    use base::id::{CallId, MessageId, PartId};
    use transcript::{
        Assistant, CallFacts, CallState, Completed, Content, ModelRef, Part, Role, Text, Usage,
        User,
    };

    fn model() -> ModelRef {
        ModelRef {
            provider: "p".into(),
            model: "m".into(),
            effort: None,
        }
    }

    fn message(role: Role, content: Content) -> Message {
        Message {
            id: MessageId::new("m"),
            created: Timestamp(0),
            role,
            parts: vec![Part {
                id: PartId::new("p"),
                content,
            }],
        }
    }

    fn prompted(text: &str) -> Message {
        let user = User {
            agent: "general".into(),
            model: model(),
        };
        let text = Text {
            text: text.into(),
            ..Text::default()
        };
        message(Role::User(user), Content::Text(text))
    }

    fn answered(content: Content) -> Message {
        let assistant = Assistant {
            parent: MessageId::new("m"),
            agent: "build".into(),
            model: model(),
            finish: None,
            fault: None,
            summary: false,
            usage: Usage::default(),
            cost: None,
            completed: None,
        };
        message(Role::Assistant(assistant), content)
    }

    fn id(name: &str) -> SessionId {
        SessionId::new(format!("ses_{name:0>16}"))
    }

    /// Returns a call of a parent that continued or began a task in a session.
    fn task(parent: &str, wanted: Option<&str>, session: &str, prompt: &str) -> Message {
        let mut input = json!({ "prompt": prompt });
        if let Some(wanted) = wanted {
            input["task_id"] = id(wanted).as_str().into();
        }
        let child = ChildSession {
            parent: Some(id(parent)),
            session: id(session),
            model: None,
        };
        let done = Completed {
            facts: CallFacts {
                child: Some(child),
                ..CallFacts::default()
            },
            ..Completed::default()
        };
        answered(Content::Tool(Call {
            call: CallId::new("c"),
            provider_id: None,
            tool: "task".into(),
            input: input.into(),
            kind: transcript::ToolKind::Think,
            title: String::new(),
            locations: Vec::new(),
            state: CallState::Completed(done),
            provider: serde_json::Map::new(),
        }))
    }

    #[test]
    fn task_of_a_fork_is_found_under_its_old_id() {
        let foreign = |session: &str, prompts: &[&str]| {
            let prompts = prompts.iter().map(|prompt| (*prompt).to_owned()).collect();
            Some(ForkedTask::Foreign(id(session), prompts))
        };
        let own = |session: &str| Some(ForkedTask::Own(id(session)));
        let begun = || task("a", None, "1", "one");
        let further = || task("a", Some("1"), "1", "two");
        let copied = || task("f", Some("1"), "2", "three");
        let table: [(&str, Vec<Message>, &str, Option<ForkedTask>); 8] = [
            ("no tasks", vec![prompted("hi")], "1", None),
            ("another task", vec![begun()], "3", None),
            ("of the parent", vec![begun()], "1", foreign("1", &["one"])),
            (
                "continued by the parent",
                vec![begun(), further()],
                "1",
                foreign("1", &["one", "two"]),
            ),
            (
                "copied before",
                vec![begun(), further(), copied()],
                "1",
                own("2"),
            ),
            (
                "copied before, under its new id",
                vec![begun(), copied(), task("f", Some("2"), "2", "four")],
                "2",
                own("2"),
            ),
            (
                "copied by a fork that was forked",
                vec![begun(), task("b", Some("1"), "2", "three")],
                "1",
                foreign("2", &["one", "three"]),
            ),
            (
                "another one's call with the same id before it exists",
                vec![task("f", Some("1"), "5", "x")],
                "1",
                None,
            ),
        ];
        for (name, messages, wanted, expected) in table {
            assert_eq!(
                find_task(&messages, &id("f"), &id(wanted)),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn copy_ends_with_the_last_known_turn() {
        let answer = || {
            answered(Content::Text(Text {
                text: "yes".into(),
                ..Text::default()
            }))
        };
        let messages = [
            prompted("one"),
            answer(),
            answer(),
            prompted("by the user"),
            answer(),
            prompted("two"),
            answer(),
            prompted("two"),
            answer(),
        ];
        let table: [(&[&str], usize); 6] = [
            (&[], 0),
            (&["one"], 3),
            (&["one", "two"], 7),
            (&["one", "two", "two"], 9),
            (&["one", "gone"], 3),
            (&["two", "two", "two"], 9),
        ];
        for (prompts, expected) in table {
            let prompts: Vec<String> = prompts.iter().map(|prompt| (*prompt).to_owned()).collect();
            assert_eq!(end_of_turns(&messages, &prompts), expected, "{prompts:?}");
        }
    }
}
