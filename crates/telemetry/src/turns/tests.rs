use std::path::Path;

use serde_json::{Value, json};

use super::*;
use base::id::SessionId;
use events::bus::{EventBus, EventFilter, Publisher};

/// Events with the times at which they occur, in milliseconds, and the spans that they complete:
/// name, start, end and error.
fn spans(content: bool, events: &[(u64, &'static str, Value)]) -> Vec<String> {
    let (turns, seen) = unfinished(content, events);
    assert!(
        turns.turns.is_empty() && turns.requests.is_empty(),
        "{turns:?}"
    );
    seen
}

/// Returns the state after these events, and the spans that have ended.
fn unfinished(content: bool, events: &[(u64, &'static str, Value)]) -> (Turns, Vec<String>) {
    let bus = EventBus::default();
    let mut traces = bus.subscribe(EventFilter {
        traces: true,
        ..EventFilter::default()
    });
    let publisher = Publisher::silent(SessionId::new("ses_1"));
    let mut turns = Turns::new(content, Sampler::default());
    let mut seen = Vec::new();
    for (at, kind, properties) in events {
        bus.publish(&publisher.event(kind, None, properties.clone()));
        let mut event = traces.try_next_event().expect("it was published");
        event.at = Timestamp(*at);
        event.directory = Path::new("/p").into();
        seen.extend(shown(turns.record(&event)));
    }
    (turns, seen)
}

fn shown(finished: Vec<Finished>) -> Vec<String> {
    let mut seen = Vec::new();
    for item in finished {
        if let Finished::Span(span) = item {
            let error = span.error.map(|error| format!(" {error}"));
            seen.push(format!(
                "{} {}-{}{}",
                span.name,
                span.start.0,
                span.end.0,
                error.unwrap_or_default()
            ));
        }
    }
    seen
}

#[test]
fn exit_ends_what_has_not_ended() {
    let events = [
        turn_started(10),
        step(11, None),
        request_started(11),
        call(12, "running"),
    ];
    let (mut turns, seen) = unfinished(false, &events);
    assert_eq!(seen, Vec::<String>::new());
    assert_eq!(
        shown(turns.cut_off(Timestamp(40))),
        [
            "chat m 11-40 interrupted",
            "execute_tool bash 12-40 cancelled",
            "step 11-40",
            "invoke_agent build 10-40 interrupted",
        ]
    );
    assert_eq!(turns.cut_off(Timestamp(41)), vec![]);
}

fn turn_started(at: u64) -> (u64, &'static str, Value) {
    let trace = TraceContext::root("msg_1");
    let members: serde_json::Map<String, Value> = trace
        .members()
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect();
    let about = json!({ "agent": "build", "modelID": "m", "depth": 0, "trace": members });
    (at, TURN_STARTED, about)
}

fn turn_ended(at: u64, outcome: &str, error: Option<&str>) -> (u64, &'static str, Value) {
    (
        at,
        TURN_ENDED,
        json!({ "outcome": outcome, "error": error }),
    )
}

fn step(at: u64, completed: Option<u64>) -> (u64, &'static str, Value) {
    let info = json!({ "id": "msg_2", "role": "assistant", "time": { "created": 1, "completed": completed } });
    (at, "message.updated", json!({ "info": info }))
}

fn call(at: u64, status: &str) -> (u64, &'static str, Value) {
    let part = json!({
        "type": "tool", "callID": "call_1", "tool": "bash", "messageID": "msg_2", "state": { "status": status },
    });
    (at, "message.part.updated", json!({ "part": part }))
}

fn asked(at: u64) -> (u64, &'static str, Value) {
    let about = json!({ "id": "per_1", "callID": "call_1", "permission": "bash" });
    (at, "permission.asked", about)
}

fn replied(at: u64, reply: &str) -> (u64, &'static str, Value) {
    (
        at,
        "permission.replied",
        json!({ "requestID": "per_1", "reply": reply }),
    )
}

fn request_started(at: u64) -> (u64, &'static str, Value) {
    (
        at,
        REQUEST_STARTED,
        json!({ "requestID": "req_1", "modelID": "m" }),
    )
}

fn request_ended(at: u64, error: Option<&str>) -> (u64, &'static str, Value) {
    (
        at,
        REQUEST_ENDED,
        json!({ "requestID": "req_1", "error": error }),
    )
}

#[test]
fn events_become_spans() {
    let table: Vec<(&str, Vec<_>, Vec<&str>)> = vec![
        (
            "call after a question",
            vec![
                turn_started(10),
                step(11, None),
                call(12, "pending"),
                asked(13),
                replied(20, "once"),
                call(21, "running"),
                call(30, "completed"),
                step(31, Some(31)),
                turn_ended(40, "ended", None),
            ],
            vec![
                "question 13-20",
                "execute_tool bash 13-30",
                "step 11-31",
                "invoke_agent build 10-40",
            ],
        ),
        (
            "call that was rejected never ran",
            vec![
                turn_started(10),
                step(11, None),
                call(12, "pending"),
                asked(13),
                replied(20, "reject"),
                call(21, "error"),
                step(31, Some(31)),
                turn_ended(40, "rejected", None),
            ],
            vec![
                "question 13-20",
                "execute_tool bash 13-21 tool_error",
                "step 11-31",
                "invoke_agent build 10-40",
            ],
        ),
        (
            "result that is shortened later is no second call",
            vec![
                turn_started(10),
                call(12, "running"),
                call(13, "completed"),
                call(20, "completed"),
                turn_ended(40, "ended", None),
            ],
            vec!["execute_tool bash 12-13", "invoke_agent build 10-40"],
        ),
        (
            "everything ends with its turn",
            vec![
                turn_started(10),
                step(11, None),
                call(12, "running"),
                asked(13),
                turn_ended(40, "cancelled", None),
            ],
            vec![
                "question 13-40",
                "execute_tool bash 12-40 cancelled",
                "step 11-40",
                "invoke_agent build 10-40",
            ],
        ),
        (
            "call that was not made lasts from its answer on",
            vec![
                turn_started(10),
                step(11, None),
                call(12, "pending"),
                call(15, "error"),
                step(31, Some(31)),
                turn_ended(40, "ended", None),
            ],
            vec![
                "execute_tool bash 12-15 not_run",
                "step 11-31",
                "invoke_agent build 10-40",
            ],
        ),
        (
            "call of an answer that was not used is no span",
            vec![
                turn_started(10),
                call(12, "pending"),
                turn_ended(40, "failed", Some("provider")),
            ],
            vec!["invoke_agent build 10-40 provider"],
        ),
        (
            "request outlives its turn",
            vec![
                turn_started(10),
                request_started(11),
                turn_ended(40, "ended", None),
                request_ended(50, Some("timeout")),
            ],
            vec!["invoke_agent build 10-40", "chat m 11-50 timeout"],
        ),
    ];
    for (name, events, expected) in table {
        assert_eq!(spans(false, &events), expected, "{name}");
    }
}

#[test]
fn events_without_a_turn_become_no_spans_of_it() {
    let table: Vec<(&str, Vec<_>, Vec<&str>)> = vec![
        (
            "request without a turn begins a trace",
            vec![request_started(11), request_ended(12, None)],
            vec!["chat m 11-12"],
        ),
        (
            "events whose beginning was lost complete nothing",
            vec![
                step(31, Some(31)),
                call(32, "completed"),
                replied(33, "once"),
                request_ended(34, None),
                turn_ended(40, "ended", None),
            ],
            vec![],
        ),
        (
            "turn without a place in a trace is none",
            vec![(1, TURN_STARTED, json!({ "trace": { "traceparent": "x" } }))],
            vec![],
        ),
    ];
    for (name, events, expected) in table {
        assert_eq!(spans(false, &events), expected, "{name}");
    }
}

#[test]
fn unfinished_turns_are_forgotten_oldest_first() {
    let mut turns = HashMap::from([
        ("a".to_owned(), Timestamp(2)),
        ("b".to_owned(), Timestamp(1)),
    ]);
    forget_oldest(&mut turns, |start| *start);
    assert_eq!(turns.len(), 2);
    turns.extend((0..MAX_UNFINISHED).map(|n| (n.to_string(), Timestamp(3))));
    forget_oldest(&mut turns, |start| *start);
    assert!(!turns.contains_key("b") && turns.contains_key("a"));
}

#[test]
fn cached_input_is_input_and_reasoning_is_output() {
    let counts = TokenCounts::read(&json!({
        "input": 10, "output": 5, "reasoning": 2, "cacheRead": 100, "cacheWrite": 0,
    }));
    let shown: Vec<String> = counts
        .attributes()
        .iter()
        .map(|pair| format!("{}={}", pair.key, pair.value))
        .collect();
    assert_eq!(
        shown,
        [
            "gen_ai.usage.input_tokens=110",
            "gen_ai.usage.output_tokens=7",
            "gen_ai.usage.reasoning.output_tokens=2",
            "gen_ai.usage.cache_read.input_tokens=100",
        ]
    );
    assert!(TokenCounts::default().attributes().is_empty());
}
