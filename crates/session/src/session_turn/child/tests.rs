//! Tests of turns with subagents, and of a cancel at every moment of one.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::session_turn::{self, TurnFuture};
use crate::turn::tests::{Fixture, Played, full, paired};
use events::PermissionReply;
use providers::Error;
use providers::scripted::{ScriptedAnswer, ScriptedProvider};

async fn play(fixture: &mut Fixture, prompt: &str) -> Played {
    play_until(fixture, prompt, usize::MAX).await.0
}

/// Plays a turn that is cancelled just before it is polled for the `moment`th time. Returns the
/// number of polls as well.
async fn play_until(fixture: &mut Fixture, prompt: &str, moment: usize) -> (Played, usize) {
    let woken = Arc::new(AtomicUsize::new(0));
    let counted = woken.clone();
    let run = move |environment, history, turn: TurnContext| -> TurnFuture<'static> {
        Box::pin(async move {
            let shared = Sessions::new(environment, CancellationToken::new());
            let cancelled = turn.cancelled.clone();
            let mut work = session_turn::run(&shared, [None; 2], history, turn);
            let done = poll_fn(|context| {
                if counted.fetch_add(1, Ordering::Relaxed) + 1 == moment {
                    cancelled.cancel();
                }
                work.as_mut().poll(context)
            })
            .await;
            drop(work);
            shared.store.stop().await;
            done
        })
    };
    let played = fixture.play_with(prompt, run).await;
    (played, woken.load(Ordering::Relaxed))
}

fn task(name: &str) -> (&'static str, Value) {
    (
        "task",
        json!({ "description": "do it", "prompt": "Do it.", "subagent_type": name }),
    )
}

#[tokio::test(start_paused = true)]
async fn task_returns_last_text() {
    let mut fixture = Fixture::new([
        ScriptedAnswer::calls(&[task("general")]),
        ScriptedAnswer::calls(&[("list", json!({}))]),
        ScriptedAnswer::text("Nothing there."),
        ScriptedAnswer::text("There is nothing."),
    ]);
    let played = play(&mut fixture, "look").await;
    assert_eq!(
        played.events.last().map(String::as_str),
        Some("text: There is nothing.")
    );
    assert!(
        played.events.contains(&"done: - Read .".to_owned()),
        "{:?}",
        played.events
    );
    let requests = fixture.model.requests();
    let tools = |n: usize| {
        requests[n]
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect::<Vec<_>>()
    };
    assert!(tools(0).contains(&"task"));
    assert!(!tools(1).contains(&"task"), "the depth is 1");
    assert!(!tools(1).contains(&"todowrite"), "general has no plan");
    assert_eq!(requests[1].messages.len(), 1, "a conversation of its own");
    assert_eq!(played.outcome, TurnOutcome::Ended);
}

/// A cancel ends a child in each of its waits, and the parent with it.
#[tokio::test(start_paused = true)]
async fn cancel_ends_every_wait_of_a_child() {
    let ask = [("bash", "*", Action::Ask)];
    let begin = || ScriptedAnswer::calls(&[task("general")]);
    let command = |command: &str| ScriptedAnswer::calls(&[("bash", json!({ "command": command }))]);
    let table: [(&str, Fixture, &'static str); 5] = [
        (
            "the question about the task",
            Fixture::new([begin()]).rules(&[("task", "*", Action::Ask)]),
            "ask",
        ),
        (
            "the stream",
            Fixture::new([
                begin(),
                ScriptedAnswer::calls(&[("list", json!({}))]),
                ScriptedAnswer::hanging(),
            ]),
            "told: - Read .|",
        ),
        (
            "the backoff",
            Fixture::new([
                begin(),
                ScriptedAnswer::failing(Error::Network("reset".into())),
            ]),
            "retry",
        ),
        (
            "the question",
            Fixture::new([begin(), command("echo hi")]).rules(&ask),
            "ask: general: echo hi",
        ),
        (
            "the tool",
            Fixture::new([begin(), command("sleep 600")]),
            "told: - sleep 600 …|",
        ),
    ];
    for (name, mut fixture, at) in table {
        fixture.cancel_at = Some(at);
        let played = play(&mut fixture, "go").await;
        assert_eq!(
            played.outcome,
            TurnOutcome::Cancelled,
            "{name}: {:?}",
            played.events
        );
        let calls: Vec<_> = played
            .history
            .messages
            .iter()
            .flat_map(Message::calls)
            .collect();
        assert_eq!(calls.len(), 1, "{name}");
        assert!(
            matches!(calls[0].state, CallState::Failed { .. }),
            "{name}: {:?}",
            calls[0].state
        );
        assert_eq!(fixture.model.left(), 0, "{name}");
        // The next prompt works.
        fixture.cancel_at = None;
        fixture.cancelled = CancellationToken::new();
        fixture.model = ScriptedProvider::new([ScriptedAnswer::text("fine")]);
        assert_eq!(
            play(&mut fixture, "and now?").await.outcome,
            TurnOutcome::Ended,
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn child_inherits_denies_of_parent() {
    let write = ScriptedAnswer::calls(&[("write", json!({ "filePath": "x", "content": "x" }))]);
    let scripts = [
        ScriptedAnswer::calls(&[task("fixer")]),
        write,
        ScriptedAnswer::text("no"),
        ScriptedAnswer::text("ok"),
    ];
    let mut fixture = Fixture::new(scripts)
        .rules(&[("webfetch", "*", Action::Deny)])
        .answering([PermissionReply::Once]);
    let entry = |name: &str, rules: Rules| config::settings::AgentEntry {
        name: name.into(),
        mode: Some(project::agent::Mode::All),
        rules,
        ..Default::default()
    };
    fixture.settings.agents = vec![
        entry("build", Rules::built_in(&[("edit", "*", Action::Deny)])),
        entry(
            "fixer",
            Rules::built_in(&[
                ("edit", "*", Action::Allow),
                ("webfetch", "*", Action::Allow),
            ]),
        ),
    ];
    play(&mut fixture, "go").await;
    let requests = fixture.model.requests();
    let tools: Vec<_> = requests[1]
        .tools
        .iter()
        .map(|tool| tool.name.as_str())
        .collect();
    assert!(!tools.contains(&"write"), "{tools:?}");
    assert!(!tools.contains(&"edit"), "{tools:?}");
    assert_eq!(
        requests[1]
            .tools
            .iter()
            .filter(|tool| tool.name == "webfetch")
            .count(),
        0
    );
}

/// Returns a turn with all kinds of waits: an answer that breaks off and is requested again,
/// parallel calls, a question, an edit, two subagents with questions of their own, a full window
/// whose summary fails at first, and a last text.
fn rich() -> Fixture {
    let reset = || Error::Network("reset".into());
    let write = |name: &str| {
        ScriptedAnswer::calls(&[("write", json!({ "filePath": name, "content": "new" }))])
    };
    let looks = [
        ("list", json!({})),
        ("read", json!({ "filePath": "missing" })),
        ("glob", json!({ "pattern": "*" })),
    ];
    let scripts = [
        ScriptedAnswer::text("half an ans").then_fails(reset()),
        ScriptedAnswer::calls(&looks),
        write("a"),
        ScriptedAnswer::calls(&[task("general"), task("general")]),
        write("b"),
        ScriptedAnswer::calls(&[("list", json!({}))]),
        ScriptedAnswer::text("one"),
        ScriptedAnswer::text("two"),
        full(),
        ScriptedAnswer::failing(reset()),
        ScriptedAnswer::text("## Objective"),
        ScriptedAnswer::text("done"),
    ];
    let rules = [("edit", "*", Action::Ask)];
    let mut fixture = Fixture::new([])
        .rules(&rules)
        .answering([PermissionReply::Once, PermissionReply::Once]);
    fixture.model = ScriptedProvider::paced(scripts);
    fixture.tracked = true;
    fixture
}

/// Waits until no task is left. A cancelled comparison of the project ends when its thread has
/// noticed the cancel, and the paused clock stops until then.
async fn no_task_is_left(name: &str) {
    let alive = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let none = async {
        while alive() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(
        timeout(Duration::from_secs(1), none).await.is_ok(),
        "{name}: {} tasks are left",
        alive()
    );
}

/// After a cancel at any moment, the turn has ended as cancelled or as it would have ended; no call
/// is open in the client, in memory or in the store, subagents included; no question is open; no
/// task is left; and a provider accepts the next request.
#[tokio::test(start_paused = true)]
async fn cancel_at_any_moment_leaves_usable_session() {
    let mut fixture = rich();
    let (played, all) = play_until(&mut fixture, "go", usize::MAX).await;
    assert_eq!(
        (&played.outcome, fixture.model.left()),
        (&TurnOutcome::Ended, 0),
        "{:#?}",
        played.events
    );
    assert_eq!(played.stored.len(), 3, "two subagents");
    played.assert_complete("not cancelled");
    let mut moment = 1;
    let mut cancelled = 0;
    loop {
        let mut fixture = rich();
        let (played, woken) = play_until(&mut fixture, "go", moment).await;
        let name = format!("moment {moment} of {all}");
        if woken < moment {
            assert_eq!(played.outcome, TurnOutcome::Ended, "{name}");
            break;
        }
        assert!(
            matches!(played.outcome, TurnOutcome::Cancelled | TurnOutcome::Ended),
            "{name}: {:?}",
            played.outcome
        );
        cancelled += usize::from(played.outcome == TurnOutcome::Cancelled);
        played.assert_complete(&name);
        no_task_is_left(&name).await;
        // If the window is full, the first of these is a summary.
        fixture.cancelled = CancellationToken::new();
        fixture.model = ScriptedProvider::new([
            ScriptedAnswer::text("## Objective"),
            ScriptedAnswer::text("fine"),
        ]);
        let next = play(&mut fixture, "and now?").await;
        assert_eq!(next.outcome, TurnOutcome::Ended, "{name}");
        next.assert_complete(&name);
        paired(&fixture.model.requests());
        moment += 1;
    }
    assert!(cancelled > moment / 2, "{cancelled} of {moment}");
}
