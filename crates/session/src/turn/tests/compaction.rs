//! Tests of compaction: summaries that are requested, and old output that is removed.

use serde_json::json;

use super::fixture::{Fixture, Played};
use crate::turn::{TurnOutcome, run};
use providers::scripted::{ScriptedAnswer, ScriptedProvider};
use providers::{Delta, Error};
use transcript::{CallState, FaultKind, Finish, Message, Usage};

/// Returns a step that lists a directory, and reports a usage of `tokens`.
fn filling(tokens: u64, path: &str) -> ScriptedAnswer {
    ScriptedAnswer::from_iter([
        Delta::Call {
            index: 0,
            id: None,
            name: "list".into(),
        },
        Delta::Arguments {
            index: 0,
            json: json!({ "path": path }).to_string(),
        },
        Delta::Usage(Usage {
            input: tokens,
            ..Usage::default()
        }),
        Delta::Finish(Finish::ToolCalls),
    ])
}

#[tokio::test(start_paused = true)]
async fn summary_is_requested_again_and_failure_leaves_history_unchanged() {
    let bad = [
        ScriptedAnswer::text(" "),
        ScriptedAnswer::calls(&[("bash", json!({}))]),
        ScriptedAnswer::text(&"x".repeat(400_000)),
        ScriptedAnswer::from_iter([
            Delta::Text {
                index: 0,
                text: "a".into(),
            },
            Delta::Finish(Finish::Length),
        ]),
        ScriptedAnswer::from_iter([
            Delta::Text {
                index: 0,
                text: "a".into(),
            },
            Delta::Finish(Finish::Refusal),
        ]),
    ];
    for script in bad {
        let tries = [script.clone(), script.clone(), script];
        let mut fixture = Fixture::new([filling(97_000, ".")].into_iter().chain(tries));
        let played = fixture.play("go").await;
        assert!(
            matches!(&played.outcome, TurnOutcome::Failed(fault) if fault.message.contains("is unchanged")),
            "{:?}",
            played.outcome
        );
        assert_eq!(
            (fixture.model.left(), played.history.messages.len()),
            (0, 2),
            "{:?}",
            played.events
        );
        assert!(
            played.events.last().is_some_and(|e| e.contains("Failed")),
            "{:?}",
            played.events
        );
    }
}

/// A requested summary of a short history may be longer than the history, but not by much.
#[tokio::test(start_paused = true)]
async fn requested_summary_may_be_longer_than_history_but_not_long() {
    for (text, good) in [
        (
            "## Objective\n\n- to say hello, and nothing else that anybody knows of",
            true,
        ),
        (LONG, false),
    ] {
        let text = text.repeat(if good { 1 } else { 1_000 });
        let mut fixture =
            Fixture::new([ScriptedAnswer::text("hello"), ScriptedAnswer::text(&text)]);
        let before = fixture.play("hi").await.history;
        let played = fixture.play_with("/compact", |_, mut history, turn| {
            Box::pin(async move {
                // The command itself is not a message.
                history.messages.pop();
                let outcome = run::summarise(&mut history, &turn, None).await;
                (history, outcome)
            })
        });
        let played = played.await;
        assert_eq!(
            played.outcome == TurnOutcome::Ended,
            good,
            "{:?}",
            played.outcome
        );
        assert_eq!(played.history == before, !good);
    }
}

const LONG: &str = "and so on and on ";

#[tokio::test(start_paused = true)]
async fn summary_request_that_does_not_fit_is_shortened() {
    let overflow = || ScriptedAnswer::failing(Error::ContextOverflow("too long".into()));
    let long = ScriptedAnswer::text(&"long story ".repeat(40_000));
    let mut fixture = Fixture::new([
        long,
        overflow(),
        overflow(),
        ScriptedAnswer::text("## Objective"),
        ScriptedAnswer::text("on"),
    ]);
    fixture.play("tell").await;
    let played = fixture.play("go on").await;
    assert_eq!(played.outcome, TurnOutcome::Ended);
    let requests = fixture.model.requests();
    let size = |n: usize| crate::turn::size::request(&requests[n]);
    assert!(size(3) < size(2) * 2 / 3, "{} {}", size(2), size(3));
    let mut fixture = Fixture::new([
        ScriptedAnswer::text(&"long story ".repeat(40_000)),
        overflow(),
        overflow(),
        overflow(),
        overflow(),
    ]);
    fixture.play("tell").await;
    let TurnOutcome::Failed(fault) = fixture.play("go on").await.outcome else {
        panic!("a fault")
    };
    assert_eq!(
        (fault.kind, fixture.model.left()),
        (FaultKind::ContextOverflow, 0),
        "{}",
        fault.message
    );
}

#[tokio::test(start_paused = true)]
async fn old_output_is_removed_before_compaction() {
    let large = |n: u32| {
        ScriptedAnswer::calls(&[("bash", json!({ "command": format!("printf %040000d {n}") }))])
    };
    let mut fixture = Fixture::new((0..8).map(large).chain([ScriptedAnswer::text("printed")]));
    tokio::time::resume();
    fixture.play("print").await;
    let cleared = |played: &Played| {
        let calls = played.history.messages.iter().flat_map(Message::calls);
        calls
            .filter(
                |call| matches!(&call.state, CallState::Completed(done) if done.cleared.is_some()),
            )
            .count()
    };
    for (n, expected) in [(1, 0), (2, 5), (3, 5)] {
        fixture.model = ScriptedProvider::new([ScriptedAnswer::text("yes")]);
        let played = fixture.play("and?").await;
        assert_eq!(cleared(&played), expected, "after {n} more turns");
    }
    fixture.model = ScriptedProvider::new([ScriptedAnswer::text("yes")]);
    fixture.play("and?").await;
    let text = format!("{:?}", fixture.model.requests()[0].messages);
    assert_eq!(text.matches("[Old tool result content cleared]").count(), 5);
}

#[tokio::test(start_paused = true)]
async fn summary_asks_for_the_least_effort() {
    let mut fixture = Fixture::new([
        filling(97_000, "."),
        ScriptedAnswer::text("## Objective"),
        ScriptedAnswer::text("on"),
    ]);
    assert_eq!(fixture.play("go").await.outcome, TurnOutcome::Ended);
    let efforts: Vec<bool> = fixture
        .model
        .requests()
        .iter()
        .map(|request| request.params.least_effort)
        .collect();
    assert_eq!(efforts, [false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn disabled_compaction_never_happens() {
    let mut fixture = Fixture::new([filling(97_000, "."), ScriptedAnswer::text("done")]);
    fixture.settings.compaction.auto = false;
    assert_eq!(fixture.play("go").await.outcome, TurnOutcome::Ended);
    fixture.model = ScriptedProvider::new([ScriptedAnswer::failing(Error::ContextOverflow(
        "too long".into(),
    ))]);
    assert!(matches!(
        fixture.play("on").await.outcome,
        TurnOutcome::Failed(_)
    ));
}
