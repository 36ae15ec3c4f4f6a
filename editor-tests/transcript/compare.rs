//! Comparison of received lines with the lines of a page, and merging of two lines.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::replayed::CLEAR;

/// A line of the agent, with placeholders.
#[derive(Clone)]
pub(super) struct ReceivedLine {
    pub(super) value: Value,
    pub(super) stream: String,
}

/// Returns whether `next` only adds to `last`: text of the same message, or further output of a
/// running call. If so, merges it.
pub(super) fn joined(last: &mut Value, next: &Value) -> bool {
    let was = &last["params"]["update"];
    let is = &next["params"]["update"];
    let same = |member: &str| was[member] == is[member];
    match is["sessionUpdate"].as_str() {
        Some("agent_message_chunk" | "agent_thought_chunk")
            if same("sessionUpdate")
                && same("messageId")
                && was["content"]["type"] == "text"
                && is["content"]["type"] == "text" =>
        {
            let text = format!(
                "{}{}",
                was["content"]["text"].as_str().unwrap_or(""),
                is["content"]["text"].as_str().unwrap_or("")
            );
            last["params"]["update"]["content"]["text"] = text.into();
            true
        }
        Some("tool_call_update")
            if same("sessionUpdate") && same("toolCallId") && prints(was) && prints(is) =>
        {
            *last = next.clone();
            true
        }
        Some("compaction_summary_chunk") if same("sessionUpdate") && same("compactionId") => {
            let text = format!(
                "{}{}",
                was["content"]["text"].as_str().unwrap_or(""),
                is["content"]["text"].as_str().unwrap_or("")
            );
            last["params"]["update"]["content"]["text"] = text.into();
            true
        }
        Some("tool_call_update") if same("sessionUpdate") && same("toolCallId") => {
            let (Some(before), Some(more)) = (terminal_output(was), terminal_output(is)) else {
                return false;
            };
            if more.starts_with(CLEAR) {
                return false;
            }
            let text = format!("{before}{more}");
            last["params"]["update"]["_meta"]["terminal_output"]["data"] = text.into();
            true
        }
        Some("terminal_output_chunk") if same("sessionUpdate") && same("terminalId") => {
            let text = format!(
                "{}{}",
                was["data"].as_str().unwrap_or(""),
                is["data"].as_str().unwrap_or("")
            );
            last["params"]["update"]["data"] = text.into();
            true
        }
        _ => false,
    }
}

/// Returns the output for a terminal in an update of a call that has nothing else.
fn terminal_output(update: &Value) -> Option<&str> {
    let own = ["sessionUpdate", "toolCallId", "_meta"];
    let mut members = update.as_object()?.keys();
    members
        .all(|member| own.contains(&member.as_str()))
        .then(|| update["_meta"]["terminal_output"]["data"].as_str())?
}

/// Shows the bytes of a terminal as text.
pub(super) fn printed(value: &mut Value) {
    for at in ["/params/update/data", "/params/update/output/data"] {
        if value["params"]["update"]["sessionUpdate"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("terminal_"))
            && let Some(data) = value.pointer_mut(at)
        {
            let bytes = BASE64
                .decode(data.as_str().unwrap_or_default())
                .expect("base64");
            *data = String::from_utf8_lossy(&bytes).into_owned().into();
        }
    }
}

/// Returns whether an update of a running call has nothing but the output so far.
pub(super) fn prints(update: &Value) -> bool {
    let running = update["sessionUpdate"] == "tool_call_update" && update["status"].is_null();
    let same = update["rawOutput"]
        .as_object()
        .is_none_or(|raw| raw.keys().all(|key| key == "output"));
    let news = |key: &String| {
        !matches!(
            key.as_str(),
            "sessionUpdate" | "toolCallId" | "content" | "rawOutput"
        )
    };
    let members = update.as_object();
    running
        && update["content"].is_array()
        && same
        && members.is_some_and(|members| !members.keys().any(news))
}

/// Returns the places of the lines that the expected ones are, if they are there.
pub(super) fn claim(
    expected: &[ReceivedLine],
    received: &[ReceivedLine],
    unordered: bool,
) -> Option<Vec<usize>> {
    let mut places = Vec::new();
    let mut streams: Vec<&str> = expected.iter().map(|line| line.stream.as_str()).collect();
    streams.sort_unstable();
    streams.dedup();
    for stream in streams {
        let wanted: Vec<_> = expected
            .iter()
            .filter(|line| line.stream == stream)
            .cloned()
            .collect();
        let of_stream = received
            .iter()
            .enumerate()
            .filter(|(_, line)| line.stream == stream);
        let (at, mut lines): (Vec<usize>, Vec<ReceivedLine>) = of_stream
            .take(wanted.len())
            .map(|(at, h)| (at, h.clone()))
            .unzip();
        if unordered {
            by_call(&mut lines);
        }
        if lines.len() < wanted.len()
            || !wanted
                .iter()
                .zip(&lines)
                .all(|(w, l)| matches(&w.value, &l.value))
        {
            return None;
        }
        places.extend(at);
    }
    places.sort_unstable();
    Some(places)
}

/// Sorts each unbroken run of lines about calls by call: the interleaving of concurrent calls is
/// random, the lines of each are not.
pub(super) fn by_call(lines: &mut [ReceivedLine]) {
    let call = |line: &ReceivedLine| {
        let params = &line.value["params"];
        let id = params["update"]["toolCallId"]
            .as_str()
            .or(params["toolCall"]["toolCallId"].as_str());
        let id = id.or(params["update"]["terminalId"].as_str());
        id.map(|id| (id.len(), id.to_owned()))
    };
    for run in lines.chunk_by_mut(|a, b| call(a).is_some() && call(b).is_some()) {
        run.sort_by_key(call);
    }
}

/// Returns whether a line matches; `…` stands for anything.
pub(super) fn matches(expected: &Value, received: &Value) -> bool {
    match (expected, received) {
        (Value::String(pattern), _) if pattern == "…" => true,
        (Value::String(pattern), Value::String(text)) if pattern.contains('…') => {
            let pieces: Vec<&str> = pattern.split('…').collect();
            let first = pieces[0];
            let last = pieces[pieces.len() - 1];
            let Some(middle) = text
                .strip_prefix(first)
                .and_then(|rest| rest.strip_suffix(last))
            else {
                return false;
            };
            let mut rest = middle;
            pieces[1..pieces.len() - 1]
                .iter()
                .all(|piece| match rest.split_once(piece) {
                    Some((_, after)) => {
                        rest = after;
                        true
                    }
                    None => false,
                })
        }
        (Value::Object(expected), Value::Object(received)) => {
            let open = expected.contains_key("…");
            expected
                .iter()
                .filter(|(key, _)| *key != "…")
                .all(|(k, e)| received.get(k).is_some_and(|h| matches(e, h)))
                && (open || received.keys().all(|key| expected.contains_key(key)))
        }
        (Value::Array(expected), Value::Array(received)) => {
            let (expected, open) = match expected.split_last() {
                Some((Value::String(last), before)) if last == "…" => (before, true),
                _ => (expected.as_slice(), false),
            };
            (open && received.len() >= expected.len() || received.len() == expected.len())
                && expected.iter().zip(received).all(|(e, h)| matches(e, h))
        }
        (expected, received) => expected == received,
    }
}

pub(super) fn difference(expected: &[ReceivedLine], received: &[ReceivedLine]) -> String {
    let mut text = String::new();
    for at in 0..expected.len().max(received.len()) {
        match (expected.get(at), received.get(at)) {
            (Some(e), Some(h)) if matches(&e.value, &h.value) => {
                writeln!(text, "    {}", h.value).unwrap()
            }
            (e, h) => {
                e.iter()
                    .for_each(|e| writeln!(text, "  - {}", e.value).unwrap());
                h.iter()
                    .for_each(|h| writeln!(text, "  + {}", h.value).unwrap());
            }
        }
    }
    text
}

/// Tests of this file's own judgement.
pub(super) fn own_tests() {
    let table = [
        (r#"{"a":"…"}"#, r#"{"a":[1]}"#, true),
        (r#"{"a":"x…z"}"#, r#"{"a":"xyz"}"#, true),
        (r#"{"a":"x…z"}"#, r#"{"a":"xy"}"#, false),
        (r#"{"a":"…b…d…"}"#, r#"{"a":"abcde"}"#, true),
        (r#"{"a":"…d…b…"}"#, r#"{"a":"abcde"}"#, false),
        (r#"{"a":1}"#, r#"{"a":1,"b":2}"#, false),
        (r#"{"a":1,"…":"…"}"#, r#"{"a":1,"b":2}"#, true),
        (r#"[1,"…"]"#, "[1,2,3]", true),
        (r#"[1,"…"]"#, "[2,2,3]", false),
        ("[1,2]", "[1,2,3]", false),
    ];
    for (expected, received, fits) in table {
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(
            matches(&parse(expected), &parse(received)),
            fits,
            "{expected} {received}"
        );
    }
}
