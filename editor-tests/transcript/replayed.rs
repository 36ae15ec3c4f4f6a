//! The calls of a session as its client has them, live and after a load: both must be the same.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The members of a call that a load shows again.
const MEMBERS: [&str; 6] = [
    "title",
    "kind",
    "status",
    "locations",
    "content",
    "rawOutput",
];

/// The output of the terminal of a call, as a client shows it.
const TERMINAL: &str = "terminal output";

/// The control sequences that empty a terminal.
pub(super) const CLEAR: &str = "\u{1b}[H\u{1b}[2J\u{1b}[3J";

/// A session and a call.
type Key = (String, String);

/// The calls of all sessions, with the members that their updates have set.
#[derive(Default)]
pub(super) struct ShownCalls {
    live: BTreeMap<Key, Map<String, Value>>,
    replayed: BTreeMap<Key, Map<String, Value>>,
    /// The sessions that are being loaded, by the ids of the requests.
    loads: BTreeMap<String, String>,
}

impl ShownCalls {
    /// Observes a message of the client.
    pub(super) fn observe_client(&mut self, message: &Value) {
        let id = message["id"].to_string();
        let session = message["params"]["sessionId"].as_str();
        if let ("session/load", Some(session)) =
            (message["method"].as_str().unwrap_or_default(), session)
        {
            self.loads.insert(id, session.to_owned());
        }
    }

    /// Observes a message of the agent. Returns the differences that a load has shown.
    pub(super) fn observe_agent(&mut self, message: &Value) -> Vec<String> {
        if message["method"] == "session/update" {
            self.update(&message["params"]);
            return Vec::new();
        }
        // A request of the agent has an id of its own, which may be that of a load.
        if message.get("method").is_some() {
            return Vec::new();
        }
        let Some(session) = self.loads.remove(&message["id"].to_string()) else {
            return Vec::new();
        };
        let replayed = std::mem::take(&mut self.replayed);
        if message.get("result").is_none() {
            return Vec::new();
        }
        replayed
            .iter()
            .filter(|((of, _), _)| *of == session)
            .filter_map(|(key, call)| Some((key, call, self.live.get(key)?)))
            .flat_map(|(key, call, live)| differences(&key.1, live, call))
            .collect()
    }

    fn update(&mut self, params: &Value) {
        let session = params["sessionId"].as_str().unwrap_or_default();
        let update = &params["update"];
        let Some(call) = update["toolCallId"].as_str() else {
            return;
        };
        let is_load = self.loads.values().any(|loaded| loaded == session);
        let calls = if is_load {
            &mut self.replayed
        } else {
            &mut self.live
        };
        let call = calls
            .entry((session.to_owned(), call.to_owned()))
            .or_default();
        for member in MEMBERS {
            if let Some(value) = update.get(member) {
                call.insert(member.to_owned(), value.clone());
            }
        }
        if let Some(data) = update["_meta"]["terminal_output"]["data"].as_str() {
            let before = call.get(TERMINAL).and_then(Value::as_str);
            let all = format!("{}{data}", before.unwrap_or_default());
            let shown = all.rsplit(CLEAR).next().unwrap_or_default();
            call.insert(TERMINAL.to_owned(), shown.into());
        }
    }

    /// Forgets what the client waits for: the process has ended.
    pub(super) fn forget_pending(&mut self) {
        self.loads.clear();
        self.replayed.clear();
    }
}

/// Describes the differences between a call that had ended and the same call after a load. A failed
/// call is stored without the changes that were proposed.
fn differences(id: &str, live: &Map<String, Value>, replayed: &Map<String, Value>) -> Vec<String> {
    let status = live.get("status").and_then(Value::as_str);
    if !matches!(status, Some("completed" | "failed")) {
        return Vec::new();
    }
    // A background command may have ended while no client was connected.
    let has_ended = |call: &Map<String, Value>| {
        call.get("rawOutput")
            .is_some_and(|output| !output["ended"].is_null())
    };
    if has_ended(replayed) && !has_ended(live) {
        return Vec::new();
    }
    let is_failed = status == Some("failed");
    let shown = |call: &Map<String, Value>, member: &str| {
        let mut value = call.get(member).cloned().unwrap_or_default();
        // The last line may end with the output or with a line break.
        if member == TERMINAL {
            let output = value.as_str().unwrap_or_default();
            return output.trim_end_matches('\n').into();
        }
        if let Some(list) = value.as_array_mut() {
            list.retain(|part| !(is_failed && part["type"] == "diff"));
            if list.is_empty() {
                return Value::Null;
            }
        }
        value
    };
    let has_terminal = |value: &Value| {
        value
            .as_array()
            .is_some_and(|parts| parts.iter().any(|part| part["type"] == "terminal"))
    };
    // Another client may show no terminal.
    let [before, after] =
        [live, replayed].map(|call| call.get("content").is_some_and(has_terminal));
    let is_same_kind = before == after;
    MEMBERS
        .iter()
        .chain(is_same_kind.then_some(&TERMINAL))
        .map(|member| (member, shown(live, member), shown(replayed, member)))
        .filter(|(member, before, after)| {
            before != after && (is_same_kind || **member != "content")
        })
        .map(|(member, before, after)| {
            format!("a load shows another {member} of {id}: {after} instead of {before}")
        })
        .collect()
}

/// Tests of this module's own comparison.
pub(super) fn own_tests() {
    let update = |status: &str, text: &str| {
        serde_json::json!({ "method": "session/update", "params": { "sessionId": "s", "update": {
            "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": status, "title": text } } })
    };
    for (status, text, wanted) in [
        ("completed", "a", 0),
        ("completed", "b", 1),
        ("failed", "b", 2),
    ] {
        let mut calls = ShownCalls::default();
        calls.observe_agent(&update("completed", "a"));
        calls.observe_client(
            &serde_json::json!({ "id": 1, "method": "session/load", "params": { "sessionId": "s" } }),
        );
        calls.observe_agent(&serde_json::json!({ "id": 1, "method": "mcp/message" }));
        calls.observe_agent(&update(status, text));
        let found = calls.observe_agent(&serde_json::json!({ "id": 1, "result": {} }));
        assert_eq!(found.len(), wanted, "{found:?}");
    }
    own_tests_of_terminals();
}

/// The terminal of a command that has ended has the same output after a load.
fn own_tests_of_terminals() {
    let update = |data: &str, ended: bool| {
        let output = if ended {
            serde_json::json!({ "ended": "exit code 0" })
        } else {
            Value::Null
        };
        serde_json::json!({ "method": "session/update", "params": { "sessionId": "s", "update": {
            "toolCallId": "c", "status": "completed", "content": [{ "type": "terminal" }],
            "_meta": { "terminal_output": { "data": data } }, "rawOutput": output } } })
    };
    for (last, replayed, wanted) in [
        (format!("{CLEAR}done"), "done", 0),
        (format!("{CLEAR}done"), "other", 1),
        ("done".to_owned(), "done", 1),
    ] {
        let mut calls = ShownCalls::default();
        calls.observe_agent(&update("runs", false));
        calls.observe_agent(&update(&last, true));
        calls.observe_client(
            &serde_json::json!({ "id": 1, "method": "session/load", "params": { "sessionId": "s" } }),
        );
        calls.observe_agent(&update(replayed, true));
        let found = calls.observe_agent(&serde_json::json!({ "id": 1, "result": {} }));
        assert_eq!(found.len(), wanted, "{last:?} {replayed}: {found:?}");
    }
}
