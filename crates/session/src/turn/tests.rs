//! Tests of whole turns with a scripted model, a temporary store and a paused clock. The
//! expectation is the list of events as text.

mod compaction;
mod fixture;

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{History, TurnOutcome, run};
use events::PermissionReply;
use permission::{Action, Denial};
use providers::request;
use providers::scripted::{ScriptedAnswer, ScriptedProvider};
use providers::{Delta, Error};
use store::{Store, StoredSession};
use transcript::{CallState, Fault, FaultKind, Finish, Message};

pub(crate) use fixture::{Fixture, Played, full, paired};

#[tokio::test(start_paused = true)]
async fn answer_is_sent_as_text() {
    let mut fixture = Fixture::new([ScriptedAnswer::text("hello")]);
    let played = fixture.play("hi").await;
    assert_eq!(played.events, ["text: hello"]);
    assert_eq!(played.outcome, TurnOutcome::Ended);
}

#[tokio::test(start_paused = true)]
async fn call_is_announced_shown_run_and_answered() {
    let mut fixture = Fixture::new([
        ScriptedAnswer::calls(&[("list", json!({}))]),
        ScriptedAnswer::text("empty"),
    ]);
    let played = fixture.play("look").await;
    let expected = ["call: list", "shown: Read .", "running"];
    assert_eq!(played.events[..3], expected);
    assert!(
        played.events[3].starts_with("done: "),
        "{:?}",
        played.events
    );
    assert_eq!(played.events[4..], ["text: empty"]);
    assert_eq!(fixture.model.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn request_begins_with_previous_one_and_pairs_its_calls() {
    let mut fixture = Fixture::new([
        ScriptedAnswer::calls(&[
            ("list", json!({})),
            ("nosuch", json!({})),
            ("read", json!({"filePath": "missing"})),
        ]),
        ScriptedAnswer::text("done"),
        ScriptedAnswer::text("again"),
    ]);
    fixture.play("look").await;
    fixture.play("and now?").await;
    let requests = fixture.model.requests();
    for pair in requests.windows(2) {
        assert_eq!(
            pair[1].messages[..pair[0].messages.len()],
            pair[0].messages[..]
        );
        // Each turn of a fixture has its own session, and so another scratch directory.
        let system = |n: usize| {
            pair[n]
                .system
                .iter()
                .map(|block| block.split("/scratch/").next())
                .collect::<Vec<_>>()
        };
        assert_eq!(system(1), system(0));
        assert_eq!(pair[1].tools, pair[0].tools);
    }
    paired(&requests);
    assert_eq!(
        fixture.model.has_preceding(),
        [false, true, false],
        "the encoded body is reused within a turn only"
    );
}

#[tokio::test(start_paused = true)]
async fn mistakes_are_reported_to_model() {
    let broken = ScriptedAnswer::from_iter([
        Delta::Call {
            index: 0,
            id: None,
            name: "read".into(),
        },
        Delta::Arguments {
            index: 0,
            json: "{\"filePath\":".into(),
        },
        Delta::Finish(Finish::ToolCalls),
    ]);
    let mut fixture = Fixture::new([
        broken,
        ScriptedAnswer::calls(&[("fly", json!({}))]),
        ScriptedAnswer::text("sorry"),
    ]);
    let played = fixture.play("go").await;
    let failures: Vec<_> = played
        .events
        .iter()
        .filter(|e| e.starts_with("failed"))
        .collect();
    assert!(failures[0].contains("not a JSON object"), "{failures:?}");
    assert!(
        failures[1].contains("no tool named \"fly\""),
        "{failures:?}"
    );
    assert!(failures[1].contains("bash"), "{failures:?}");
    assert_eq!(played.outcome, TurnOutcome::Ended);
}

#[tokio::test(start_paused = true)]
async fn failed_attempt_is_repeated_and_left_out_of_next_request() {
    let limited = Error::RateLimited {
        message: "slow down".into(),
        retry_after: Some(Duration::from_secs(12)),
    };
    let mut fixture = Fixture::new([
        ScriptedAnswer::text("half an ans").then_fails(limited),
        ScriptedAnswer::text("whole answer"),
        ScriptedAnswer::text("yes"),
    ]);
    let before = tokio::time::Instant::now();
    let played = fixture.play("hi").await;
    assert_eq!(before.elapsed().as_secs(), 12);
    assert_eq!(
        played.events,
        [
            "text: half an ans",
            "retry 1: slow down",
            "text: whole answer"
        ]
    );
    fixture.play("sure?").await;
    let request::ModelMessage::Assistant(outputs) = &fixture.model.requests()[2].messages[1] else {
        panic!("an answer")
    };
    assert_eq!(outputs.len(), 1, "{outputs:?}");
}

#[tokio::test(start_paused = true)]
async fn permanent_failure_is_a_fault_with_advice() {
    let mut fixture = Fixture::new([ScriptedAnswer::failing(Error::Auth(
        "the key is wrong".into(),
    ))]);
    let TurnOutcome::Failed(fault) = fixture.play("hi").await.outcome else {
        panic!("a fault")
    };
    assert_eq!(fault.kind, FaultKind::Auth);
    assert!(fault.advice.is_some());
    let mut fixture =
        Fixture::new((0..6).map(|_| ScriptedAnswer::failing(Error::Network("reset".into()))));
    let played = fixture.play("hi").await;
    assert_eq!(
        played.events.len(),
        5,
        "five repetitions are shown: {:?}",
        played.events
    );
    assert!(matches!(played.outcome, TurnOutcome::Failed(_)));
    assert_eq!(fixture.model.left(), 0);
    // The session can be used afterwards, and the model sees a valid conversation.
    fixture.model = ScriptedProvider::new([ScriptedAnswer::text("back")]);
    assert_eq!(fixture.play("again").await.outcome, TurnOutcome::Ended);
}

#[tokio::test(start_paused = true)]
async fn calls_of_interrupted_answer_are_not_run() {
    let cut = ScriptedAnswer::calls(&[("bash", json!({"command": "touch ran"}))])
        .then_fails(Error::Network("reset".into()));
    let mut fixture = Fixture::new([cut, ScriptedAnswer::text("never mind")]);
    let played = fixture.play("go").await;
    assert!(!fixture.dir.path().join("work/ran").exists());
    assert_eq!(played.outcome, TurnOutcome::Ended);
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_every_wait() {
    let ask = [("bash", "*", Action::Ask)];
    let command = |command: &str| ScriptedAnswer::calls(&[("bash", json!({ "command": command }))]);
    let refused = ScriptedAnswer::failing(Error::Network("reset".into()));
    let table: [(&str, Fixture, &'static str); 6] = [
        (
            "the stream",
            Fixture::new([ScriptedAnswer::text("one").then_hangs()]),
            "one",
        ),
        (
            "the backoff",
            Fixture::new([ScriptedAnswer::failing(Error::Network("reset".into()))]),
            "retry",
        ),
        (
            "the question",
            Fixture::new([command("echo hi")]).rules(&ask),
            "ask",
        ),
        ("the tool", Fixture::new([command("sleep 600")]), "running"),
        (
            "the summary",
            Fixture::new([full(), ScriptedAnswer::hanging()]),
            "InProgress",
        ),
        (
            "the summary's backoff",
            Fixture::new([full(), refused]),
            "retry",
        ),
    ];
    for (name, mut fixture, at) in table {
        fixture.cancel_at = Some(at);
        let played = fixture.play("go").await;
        assert_eq!(played.outcome, TurnOutcome::Cancelled, "{name}");
        played.assert_complete(name);
        for call in played.history.messages.iter().flat_map(Message::calls) {
            let done = call.tool == "read";
            assert_eq!(
                matches!(call.state, CallState::Failed { .. }),
                !done,
                "{name}: {:?}",
                call.state
            );
        }
        assert!(
            played
                .history
                .messages
                .iter()
                .all(|m| m.compaction().is_none()),
            "{name}"
        );
        assert_eq!(fixture.model.left(), 0, "{name}");
        // The next prompt works.
        fixture.cancel_at = None;
        fixture.cancelled = CancellationToken::new();
        let summary = name
            .starts_with("the summary")
            .then(|| ScriptedAnswer::text("## Objective"));
        fixture.model =
            ScriptedProvider::new(summary.into_iter().chain([ScriptedAnswer::text("fine")]));
        assert_eq!(
            fixture.play("and now?").await.outcome,
            TurnOutcome::Ended,
            "{name}"
        );
    }
}

// Real time: a paused clock would advance to the time limit of a real process.
#[tokio::test]
async fn answers_to_questions_are_applied() {
    let ask = [("bash", "*", Action::Ask)];
    let scripts = || {
        [
            ScriptedAnswer::calls(&[("bash", json!({"command": "echo hi"}))]),
            ScriptedAnswer::text("ok"),
        ]
    };
    let mut once = Fixture::new(scripts())
        .rules(&ask)
        .answering([PermissionReply::Once]);
    assert!(
        once.play("go")
            .await
            .events
            .contains(&"done: hi".to_owned())
    );
    let mut no = Fixture::new(scripts())
        .rules(&ask)
        .answering([PermissionReply::No(Denial::Rejected)]);
    let played = no.play("go").await;
    assert_eq!(
        (played.outcome, no.model.left()),
        (TurnOutcome::Rejected, 1),
        "a rejection ends the turn"
    );
    let reply = Denial::Corrected("use ls".into());
    let mut corrected = Fixture::new(scripts())
        .rules(&ask)
        .answering([PermissionReply::No(reply)]);
    let played = corrected.play("go").await;
    assert_eq!(
        (played.outcome, corrected.model.left()),
        (TurnOutcome::Ended, 0),
        "the comment goes to the model"
    );
    assert!(
        played.events.iter().any(|e| e.contains("use ls")),
        "{:?}",
        played.events
    );
    let mut denied = Fixture::new(scripts()).rules(&[
        ("bash", "*", Action::Allow),
        ("bash", "echo *", Action::Deny),
    ]);
    let played = denied.play("go").await;
    assert!(
        played
            .events
            .iter()
            .any(|e| e.starts_with("failed: Not allowed")),
        "{:?}",
        played.events
    );
    assert_eq!(denied.model.left(), 0, "a denial by rule goes to the model");
}

#[tokio::test]
async fn rejection_without_comment_ends_with_list_of_rejected_calls() {
    let call = ScriptedAnswer::calls(&[("bash", json!({"command": "touch x"}))]);
    let mut fixture = Fixture::new([call, ScriptedAnswer::text("I see.")])
        .rules(&[("bash", "*", Action::Ask)])
        .answering([PermissionReply::No(Denial::Rejected)]);
    let played = fixture.play("go").await;
    let text = "text: You rejected touch x, so I stopped here. What should be done instead?";
    assert_eq!(
        played.events.last().map(String::as_str),
        Some(text),
        "{:?}",
        played.events
    );
    played.assert_complete("the text is stored");
    fixture.play("why?").await;
    let messages = format!("{:?}", fixture.model.requests().last().unwrap().messages);
    assert!(messages.contains("The user rejected"), "{messages}");
    assert!(!messages.contains("so I stopped here"), "{messages}");
}

#[tokio::test]
async fn question_without_user_is_refused_to_model() {
    let no = || std::iter::repeat_n(PermissionReply::No(Denial::Rejected), 9);
    let bash = |command: &str| ScriptedAnswer::calls(&[("bash", json!({ "command": command }))]);
    let ask = [("bash", "touch *", Action::Ask)];
    let unattended = |scripts: Vec<ScriptedAnswer>| {
        let mut fixture = Fixture::new(scripts).rules(&ask).answering(no());
        fixture.attended = false;
        fixture.settings.experimental.continue_loop_on_deny = true;
        fixture
    };
    let mut fixture = unattended(vec![
        bash("touch x"),
        ScriptedAnswer::text("I left it out."),
    ]);
    let played = fixture.play("go").await;
    assert_eq!(
        (played.outcome.clone(), fixture.model.left()),
        (TurnOutcome::Ended, 0),
        "the turn goes on"
    );
    let failure = "failed: Not allowed: this needs the user's permission (this needs permission by default), and no user is present.";
    assert!(
        played.events.iter().any(|event| event.starts_with(failure)),
        "{:?}",
        played.events
    );
    played.assert_complete("unanswered");
    // The same call for the third time, with other calls in between.
    let mut fixture = unattended(vec![
        bash("touch x"),
        bash("echo a"),
        bash("touch x"),
        bash("echo b"),
        bash("touch x"),
    ]);
    let played = fixture.play("go").await;
    assert_eq!(
        (played.outcome.clone(), fixture.model.left()),
        (TurnOutcome::Rejected, 0),
        "{:?}",
        played.events
    );
    let end = "text: Refused repeatedly, because no user is present to allow it: touch x. The turn ends here.";
    assert_eq!(played.events.last().map(String::as_str), Some(end));
    // A model that repeats itself.
    let list = || ScriptedAnswer::calls(&[("list", json!({}))]);
    let mut fixture = unattended(vec![
        list(),
        list(),
        list(),
        ScriptedAnswer::text("never said"),
    ]);
    let played = fixture.play("go").await;
    assert_eq!(
        (played.outcome, fixture.model.left()),
        (TurnOutcome::Rejected, 1),
        "{:?}",
        played.events
    );
}

#[tokio::test]
async fn one_file_is_asked_about_once() {
    let call = || {
        ScriptedAnswer::calls(&[(
            "write",
            json!({"filePath": "../elsewhere/x", "content": "x"}),
        )])
    };
    let rules = [("edit", "*", Action::Ask)];
    let mut fixture = Fixture::new([call(), ScriptedAnswer::text("done")])
        .rules(&rules)
        .answering([PermissionReply::Once]);
    let played = fixture.play("go").await;
    assert_eq!(
        played
            .events
            .iter()
            .filter(|event| event.starts_with("ask"))
            .count(),
        1,
        "{:?}",
        played.events
    );
    assert!(fixture.dir.path().join("elsewhere/x").exists());
}

#[tokio::test(start_paused = true)]
async fn third_identical_call_asks() {
    let call = || ScriptedAnswer::calls(&[("list", json!({}))]);
    let mut fixture = Fixture::new([call(), call(), call(), ScriptedAnswer::text("enough")])
        .answering([PermissionReply::Once]);
    let played = fixture.play("loop").await;
    assert_eq!(
        played
            .events
            .iter()
            .filter(|e| e.starts_with("ask"))
            .count(),
        1,
        "{:?}",
        played.events
    );
    assert_eq!(played.outcome, TurnOutcome::Ended);
}

#[tokio::test(start_paused = true)]
async fn step_limit_is_hard() {
    let call = |n: u32| ScriptedAnswer::calls(&[("list", json!({ "path": format!("{n}") }))]);
    let mut fixture = Fixture::new([call(0), ScriptedAnswer::text("had to stop")]);
    fixture.settings.agents = vec![config::settings::AgentEntry {
        name: "build".into(),
        steps: Some(2),
        ..Default::default()
    }];
    let played = fixture.play("go").await;
    assert_eq!(played.outcome, TurnOutcome::Ended);
    let last = &fixture.model.requests()[1];
    assert!(last.tools.is_empty(), "no tools on the last step");
    assert_eq!(fixture.model.left(), 0);
}

#[tokio::test(start_paused = true)]
async fn empty_answer_is_requested_again_and_replaced_by_text() {
    let nothing = || ScriptedAnswer::from_iter([Delta::Finish(Finish::Stop)]);
    let mut fixture = Fixture::new([nothing(), nothing()]);
    let played = fixture.play("hi").await;
    assert_eq!(played.outcome, TurnOutcome::Ended);
    assert!(
        played
            .events
            .last()
            .is_some_and(|e| e.starts_with("text: (The model")),
        "{:?}",
        played.events
    );
    let mut fixture = Fixture::new([nothing(), ScriptedAnswer::text("here I am")]);
    assert!(
        fixture
            .play("hi")
            .await
            .events
            .contains(&"text: here I am".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn finish_reason_determines_outcome() {
    let ends = |finish| {
        ScriptedAnswer::from_iter([
            Delta::Text {
                index: 0,
                text: "x".into(),
            },
            Delta::Finish(finish),
        ])
    };
    for (finish, outcome) in [
        (Finish::Length, TurnOutcome::MaxTokens),
        (Finish::Refusal, TurnOutcome::Refused),
        (Finish::Other, TurnOutcome::Ended),
        (Finish::Stop, TurnOutcome::Ended),
    ] {
        // An answer that is cut off at the output limit, or stops for an unknown reason, is
        // continued at first.
        let answers = match finish {
            Finish::Length => 3,
            Finish::Other => 2,
            _ => 1,
        };
        let mut fixture = Fixture::new((0..answers).map(|_| ends(finish)));
        assert_eq!(fixture.play("hi").await.outcome, outcome, "{finish:?}");
    }
}

/// A call that was cut off by a limit or a filter is answered but not run; complete calls before it
/// run, and the turn continues.
#[tokio::test(start_paused = true)]
async fn call_that_was_cut_off_is_not_run() {
    let list = |path: &str| ("list", json!({ "path": path }));
    let text = Delta::Text {
        index: 9,
        text: "and so on".into(),
    };
    // Whether each call has run.
    let table = [
        (ScriptedAnswer::calls(&[list(".")]), vec![false]),
        (
            ScriptedAnswer::calls(&[list("."), list("src")]),
            vec![true, false],
        ),
        (
            ScriptedAnswer::calls(&[list(".")]).with_delta(text),
            vec![true],
        ),
    ];
    for finish in [Finish::Length, Finish::Refusal] {
        for (script, ran) in table.clone() {
            let mut fixture =
                Fixture::new([script.with_finish(finish), ScriptedAnswer::text("done")]);
            std::fs::create_dir(fixture.dir.path().join("src")).unwrap();
            let played = fixture.play("go").await;
            assert_eq!(played.outcome, TurnOutcome::Ended);
            let calls: Vec<&transcript::Call> = played
                .history
                .messages
                .iter()
                .flat_map(Message::calls)
                .collect();
            let found: Vec<bool> = calls
                .iter()
                .map(|call| matches!(call.state, CallState::Completed(_)))
                .collect();
            assert_eq!(found, ran, "{finish:?} {calls:?}");
            for call in calls {
                if let CallState::Failed { error, .. } = &call.state {
                    assert!(error.starts_with("Not run: "), "{error}");
                }
            }
            paired(&fixture.model.requests());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn message_during_turn_is_received_between_steps() {
    let look = || ScriptedAnswer::calls(&[("list", json!({}))]);
    let mut fixture = Fixture::new([look(), ScriptedAnswer::text("done")]);
    fixture.has_steering_message = watch::channel(true).1;
    let played = fixture.play("go").await;
    assert_eq!(
        (played.outcome, fixture.model.left()),
        (TurnOutcome::Steered, 1),
        "after the step, with its results"
    );
    let mut fixture = Fixture::new([ScriptedAnswer::text("done")]);
    fixture.has_steering_message = watch::channel(true).1;
    assert_eq!(
        fixture.play("go").await.outcome,
        TurnOutcome::Ended,
        "an answer that is complete is the end"
    );
}

#[tokio::test(start_paused = true)]
async fn interrupted_call_is_reported_once() {
    let mut fixture = Fixture::new([ScriptedAnswer::calls(&[(
        "bash",
        json!({"command": "sleep 600"}),
    )])]);
    fixture.cancel_at = Some("running");
    fixture.play("wait").await;
    fixture.cancel_at = None;
    fixture.cancelled = CancellationToken::new();
    fixture.model =
        ScriptedProvider::new([ScriptedAnswer::text("fine"), ScriptedAnswer::text("fine")]);
    fixture.play("and now?").await;
    fixture.play("and then?").await;
    let requests = fixture.model.requests();
    let last = |n: usize| format!("{:?}", requests[n].messages.last());
    assert!(last(0).contains("was interrupted"), "{}", last(0));
    assert!(last(0).contains("sleep 600"), "{}", last(0));
    assert!(!last(1).contains("was interrupted"), "{}", last(1));
}

/// Runs in real time, because it waits for the disk.
#[tokio::test]
async fn shown_text_is_stored_when_model_stalls() {
    let mut fixture = Fixture::new([ScriptedAnswer::text("half an answer").then_hangs()]);
    let played = fixture.play_with("go", |environment, history, turn| {
        Box::pin(async move {
            let store = Store::start(&environment.dirs.data);
            let session = turn.session.id.clone();
            let stored = async {
                let has_text = |stored: &StoredSession| {
                    stored.messages.last().is_some_and(|m| m.visible_text() == "half an answer")
                };
                while !store.peek(&session).await.is_ok_and(|stored| has_text(&stored)) {
                    tokio::time::sleep(Duration::from_millis(10)).await; // looks again
                }
            };
            // As if the process had been killed at this point.
            let done = tokio::select! {
                done = run::run(history, turn) => done,
                stored = tokio::time::timeout(Duration::from_secs(20), stored) => {
                    let outcome = if stored.is_ok() { TurnOutcome::Cancelled } else { TurnOutcome::Ended };
                    (History::default(), outcome)
                }
            };
            store.stop().await;
            done
        })
    });
    assert_eq!(played.await.outcome, TurnOutcome::Cancelled);
}

/// However a turn ends, it leaves no open state, and the next one works.
#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn every_outcome_leaves_usable_session() {
    let call = || ScriptedAnswer::calls(&[("list", json!({})), ("nosuch", json!({}))]);
    let end = |finish| {
        ScriptedAnswer::from_iter([
            Delta::Text {
                index: 0,
                text: "x".into(),
            },
            Delta::Finish(finish),
        ])
    };
    let fails = |error: Error| ScriptedAnswer::failing(error);
    let network = || fails(Error::Network("reset".into()));
    let overflow = || fails(Error::ContextOverflow("too long".into()));
    let steps = |fixture: Fixture, max: u32| {
        let mut fixture = fixture;
        let entry = config::settings::AgentEntry {
            name: "build".into(),
            steps: Some(max),
            ..Default::default()
        };
        fixture.settings.agents = vec![entry];
        fixture
    };
    let has_steering_message = |mut fixture: Fixture| {
        fixture.has_steering_message = watch::channel(true).1;
        fixture
    };
    let failed = |kind: FaultKind| Fault {
        kind,
        message: String::new(),
        advice: None,
    };
    let ask = [("list", "*", Action::Ask)];
    let no = || [PermissionReply::No(Denial::Rejected)];
    let table: Vec<(&str, Fixture, TurnOutcome)> = vec![
        (
            "done",
            Fixture::new([call(), ScriptedAnswer::text("done")]),
            TurnOutcome::Ended,
        ),
        (
            "cancelled before it began",
            Fixture::new([]),
            TurnOutcome::Cancelled,
        ),
        (
            "refused",
            Fixture::new([call(), end(Finish::Refusal)]),
            TurnOutcome::Refused,
        ),
        (
            "output limit, once",
            Fixture::new([call(), end(Finish::Length), ScriptedAnswer::text("done")]),
            TurnOutcome::Ended,
        ),
        (
            "output limit",
            Fixture::new(std::iter::once(call()).chain((0..3).map(|_| end(Finish::Length)))),
            TurnOutcome::MaxTokens,
        ),
        (
            "output limit in every call",
            Fixture::new((0..3).map(|_| call().with_finish(Finish::Length))),
            TurnOutcome::MaxTokens,
        ),
        (
            "a filter in every call",
            Fixture::new((0..3).map(|_| call().with_finish(Finish::Refusal))),
            TurnOutcome::Refused,
        ),
        (
            "rejected",
            Fixture::new([call()]).rules(&ask).answering(no()),
            TurnOutcome::Rejected,
        ),
        (
            "steered",
            has_steering_message(Fixture::new([call()])),
            TurnOutcome::Steered,
        ),
        (
            "step limit",
            steps(Fixture::new([call(), call()]), 2),
            TurnOutcome::StepLimit,
        ),
        (
            "wrong key",
            Fixture::new([call(), fails(Error::Auth("no".into()))]),
            TurnOutcome::Failed(failed(FaultKind::Auth)),
        ),
        (
            "retries",
            Fixture::new((0..6).map(|_| network())),
            TurnOutcome::Failed(failed(FaultKind::Provider)),
        ),
        (
            "retries half-way",
            Fixture::new((0..6).map(|_| call().then_fails(Error::Network("reset".into())))),
            TurnOutcome::Failed(failed(FaultKind::Provider)),
        ),
        (
            "overflow, and the summary does not help",
            Fixture::new([
                call(),
                overflow(),
                ScriptedAnswer::text("## Objective"),
                overflow(),
            ]),
            TurnOutcome::Failed(failed(FaultKind::ContextOverflow)),
        ),
        (
            "a summary that fails",
            Fixture::new([
                full(),
                end(Finish::Refusal),
                end(Finish::Refusal),
                end(Finish::Refusal),
            ]),
            TurnOutcome::Failed(failed(FaultKind::Provider)),
        ),
    ];
    for (name, mut fixture, expected) in table {
        if expected == TurnOutcome::Cancelled {
            fixture.cancelled.cancel();
        }
        let played = fixture.play("go").await;
        match (&played.outcome, &expected) {
            (TurnOutcome::Failed(found), TurnOutcome::Failed(expected)) => {
                assert_eq!(found.kind, expected.kind, "{name}")
            }
            (found, expected) => assert_eq!(found, expected, "{name}"),
        }
        assert_eq!(fixture.model.left(), 0, "{name}");
        played.assert_complete(name);
        fixture.cancelled = CancellationToken::new();
        fixture.has_steering_message = watch::channel(false).1;
        // If the window is full, the first of these is a summary.
        fixture.model = ScriptedProvider::new([
            ScriptedAnswer::text("## Objective"),
            ScriptedAnswer::text("fine"),
        ]);
        let played = fixture.play("and now?").await;
        assert_eq!(played.outcome, TurnOutcome::Ended, "{name}");
        played.assert_complete(name);
        paired(&fixture.model.requests());
    }
}
