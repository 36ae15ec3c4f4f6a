use serde_json::{Value, json};

use super::*;
use base::id::{CallId, SessionId};

/// Parts as stored by the first version, with everything that affects behaviour among the facts for
/// the client.
const FIRST: &str = include_str!("parts-0.1.jsonl");

fn states() -> Vec<CallState> {
    let state = |line| match serde_json::from_str::<Part>(line).unwrap().content {
        Content::Tool(call) => call.state,
        other => panic!("{other:?}"),
    };
    FIRST.lines().map(state).collect()
}

#[test]
fn parts_are_stored_unchanged() {
    for line in FIRST.lines() {
        let part: Part = serde_json::from_str(line).unwrap();
        let stored: Value = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_value(&part).unwrap(), stored);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn facts_are_read_from_old_stores() {
    let child = |id: &str| {
        let model = ModelRef {
            provider: "p".into(),
            model: "m".into(),
            effort: None,
        };
        Some(ChildSession {
            parent: Some(SessionId::new("ses_1")),
            session: SessionId::new(id),
            model: Some(model),
        })
    };
    let job = |id: &str, state| {
        Some(BackgroundJob {
            id: id.into(),
            state,
        })
    };
    let exit = |code| Some(ProgramExit { code, signal: None });
    let none = CallFacts::default;
    let details = |json: Value| serde_json::from_value(json).unwrap();
    let expected = [
        (Some(FailureCause::Rejected), none()),
        (
            Some(FailureCause::Cancelled),
            CallFacts {
                child: child("ses_2"),
                ..none()
            },
        ),
        (
            None,
            CallFacts {
                exit: exit(Some(1)),
                sandbox: Some("read-only, no network".into()),
                details: details(json!({ "truncated": false })),
                ..none()
            },
        ),
        (
            None,
            CallFacts {
                exit: exit(None),
                output_path: Some("/tmp/all".into()),
                details: details(json!({ "truncated": true })),
                ..none()
            },
        ),
        (
            None,
            CallFacts {
                job: job("bash_1", JobState::Running),
                output_path: Some("/tmp/all".into()),
                ..none()
            },
        ),
        (
            None,
            CallFacts {
                job: job("bash_2", JobState::Ended("exit code 3".into())),
                exit: exit(Some(3)),
                output_path: Some("/tmp/all".into()),
                ..none()
            },
        ),
        (
            None,
            CallFacts {
                job: job("bash_3", JobState::Reported("exit code 0".into())),
                exit: exit(Some(0)),
                ..none()
            },
        ),
        (
            None,
            CallFacts {
                child: child("ses_3"),
                asked_calls: vec![CallId::new("call_9")],
                ..none()
            },
        ),
        (
            None,
            CallFacts {
                loaded: vec!["/p/a/AGENTS.md".into()],
                details: details(json!({ "type": "file" })),
                ..none()
            },
        ),
        (
            None,
            CallFacts {
                has_new_information: Some(true),
                exit: exit(None),
                details: details(json!({ "bash_id": "bash_1", "running": true })),
                ..none()
            },
        ),
        (
            None,
            CallFacts {
                result: Some(json!({ "a": 1 })),
                ..none()
            },
        ),
        (
            None,
            CallFacts {
                child: child("ses_4"),
                ..none()
            },
        ),
        (Some(FailureCause::Error), none()),
    ];
    let states = states();
    assert_eq!(states.last(), Some(&CallState::Pending));
    for (n, (state, (cause, facts))) in states.iter().zip(&expected).enumerate() {
        assert_eq!(
            (state.cause(), state.facts()),
            (*cause, Some(facts)),
            "line {}",
            n + 1
        );
    }
    assert_eq!(states.len(), expected.len() + 1);
}

/// Reads states of the first versions, which distinguished the causes by the error's text only.
#[test]
fn call_interrupted_by_process_end_is_not_cancelled() {
    let read = |metadata: Value| -> CallState {
        let error = "The call was interrupted before it ended. What it did so far is unknown.";
        serde_json::from_value(json!({ "status": "failed", "error": error, "metadata": metadata }))
            .unwrap()
    };
    let old = read(json!({ "interrupted": true }));
    assert_eq!(old.cause(), Some(FailureCause::ProcessEnded));
    assert_eq!(
        serde_json::from_value::<CallState>(serde_json::to_value(&old).unwrap()).unwrap(),
        old
    );
    assert_eq!(read(json!({})).cause(), Some(FailureCause::Error));
    let state = CallState::Failed {
        error: "x".into(),
        cause: FailureCause::ProcessEnded,
        coloured: Some("\u{1b}[31mx\u{1b}[0m".into()),
        facts: CallFacts::default(),
    };
    assert_eq!(
        serde_json::from_value::<CallState>(serde_json::to_value(&state).unwrap()).unwrap(),
        state
    );
}

#[test]
fn unexpected_values_remain_in_details() {
    let json = json!({ "model": "gpt", "exit": "soon", "background": 3, "asked": "me" });
    let facts: CallFacts = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(Value::Object(facts.details.clone()), json);
    assert_eq!(Value::Object(facts.to_json()), json);
}

#[test]
fn visible_beginning_is_a_prefix_of_visible_text() {
    let text = |text: &str, synthetic: bool| Part {
        id: PartId::new("prt_1"),
        content: Content::Text(Text {
            text: text.into(),
            synthetic,
            ..Text::default()
        }),
    };
    let model = ModelRef {
        provider: "p".into(),
        model: "m".into(),
        effort: None,
    };
    let attached = attach("file:///p/a.rs", "fn a() {}");
    let parts = vec![
        text(&attached, false),
        text("h\u{e9}llo", false),
        text("not shown", true),
        text("", false),
        text("x", false),
    ];
    let message = Message {
        id: MessageId::new("msg_1"),
        created: Timestamp(1),
        role: Role::User(User {
            agent: "build".into(),
            model,
        }),
        parts,
    };
    let whole = message.visible_text();
    assert_eq!(whole, "h\u{e9}llo\n\nx\n[attached: a.rs]");
    for bytes in 0..whole.len() + 5 {
        assert_eq!(
            message.visible_beginning(bytes),
            text::head(&whole, bytes),
            "{bytes}"
        );
    }
}

#[test]
fn exit_code_of_a_signal_has_its_name() {
    for (code, text) in [
        (0, "0"),
        (-1, "-1"),
        (2, "2"),
        (127, "127"),
        (128, "128"),
        (129, "129"), // git's usage errors
        (130, "130 (SIGINT)"),
        (137, "137 (SIGKILL)"),
        (139, "139 (SIGSEGV)"),
        (143, "143 (SIGTERM)"),
        (255, "255"),
    ] {
        assert_eq!(ExitCode(code).to_string(), text);
    }
}
