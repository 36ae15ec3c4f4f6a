//! Whether what was heard is what a page says, and how two lines of it become one.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

/// A line the agent has said, with names in it.
#[derive(Clone)]
pub(super) struct Heard {
    pub(super) value: Value,
    pub(super) stream: String,
}

/// Whether `next` only adds to `last`: text of the same message, or more of what a running call
/// prints.
pub(super) fn joined(last: &mut Value, next: &Value) -> bool {
    let (was, is) = (&last["params"]["update"], &next["params"]["update"]);
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
        Some("tool_call_update") if same("sessionUpdate") && same("toolCallId") && prints(was) && prints(is) => {
            *last = next.clone();
            true
        }
        Some("terminal_output_chunk") if same("sessionUpdate") && same("terminalId") => {
            let text = format!("{}{}", was["data"].as_str().unwrap_or(""), is["data"].as_str().unwrap_or(""));
            last["params"]["update"]["data"] = text.into();
            true
        }
        _ => false,
    }
}

/// Shows the bytes of a terminal as text.
pub(super) fn printed(value: &mut Value) {
    for at in ["/params/update/data", "/params/update/output/data"] {
        if value["params"]["update"]["sessionUpdate"].as_str().is_some_and(|kind| kind.starts_with("terminal_"))
            && let Some(data) = value.pointer_mut(at)
        {
            let bytes = BASE64.decode(data.as_str().unwrap_or_default()).expect("base64");
            *data = String::from_utf8_lossy(&bytes).into_owned().into();
        }
    }
}

/// News of a running call that say nothing but what it printed so far.
pub(super) fn prints(update: &Value) -> bool {
    let running = update["sessionUpdate"] == "tool_call_update" && update["status"].is_null();
    let same = update["rawOutput"].as_object().is_none_or(|raw| raw.keys().all(|key| key == "output"));
    let news = |key: &String| !matches!(key.as_str(), "sessionUpdate" | "toolCallId" | "content" | "rawOutput");
    let members = update.as_object();
    running && update["content"].is_array() && same && members.is_some_and(|members| !members.keys().any(news))
}

/// The places of the lines that the expected ones are, if they are there.
pub(super) fn claim(expected: &[Heard], heard: &[Heard], unordered: bool) -> Option<Vec<usize>> {
    let mut places = Vec::new();
    let mut streams: Vec<&str> = expected.iter().map(|line| line.stream.as_str()).collect();
    streams.sort_unstable();
    streams.dedup();
    for stream in streams {
        let wanted: Vec<_> = expected.iter().filter(|line| line.stream == stream).cloned().collect();
        let of_stream = heard.iter().enumerate().filter(|(_, line)| line.stream == stream);
        let (at, mut lines): (Vec<usize>, Vec<Heard>) =
            of_stream.take(wanted.len()).map(|(at, h)| (at, h.clone())).unzip();
        if unordered {
            by_call(&mut lines);
        }
        if lines.len() < wanted.len() || !wanted.iter().zip(&lines).all(|(w, l)| matches(&w.value, &l.value)) {
            return None;
        }
        places.extend(at);
    }
    places.sort_unstable();
    Some(places)
}

/// Sorts each unbroken run of lines about calls by call: how the lines of calls that run side by
/// side interleave is a matter of luck, what is said of each is not.
pub(super) fn by_call(lines: &mut [Heard]) {
    let call = |line: &Heard| {
        let params = &line.value["params"];
        let id = params["update"]["toolCallId"].as_str().or(params["toolCall"]["toolCallId"].as_str());
        let id = id.or(params["update"]["terminalId"].as_str());
        id.map(|id| (id.len(), id.to_owned()))
    };
    for run in lines.chunk_by_mut(|a, b| call(a).is_some() && call(b).is_some()) {
        run.sort_by_key(call);
    }
}

/// Whether a line is as expected; `…` stands for anything.
pub(super) fn matches(expected: &Value, heard: &Value) -> bool {
    match (expected, heard) {
        (Value::String(pattern), _) if pattern == "…" => true,
        (Value::String(pattern), Value::String(text)) if pattern.contains('…') => {
            let pieces: Vec<&str> = pattern.split('…').collect();
            let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
            let Some(middle) = text.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else { return false };
            let mut rest = middle;
            pieces[1..pieces.len() - 1].iter().all(|piece| match rest.split_once(piece) {
                Some((_, after)) => {
                    rest = after;
                    true
                }
                None => false,
            })
        }
        (Value::Object(expected), Value::Object(heard)) => {
            let open = expected.contains_key("…");
            expected.iter().filter(|(key, _)| *key != "…").all(|(k, e)| heard.get(k).is_some_and(|h| matches(e, h)))
                && (open || heard.keys().all(|key| expected.contains_key(key)))
        }
        (Value::Array(expected), Value::Array(heard)) => {
            let (expected, open) = match expected.split_last() {
                Some((Value::String(last), before)) if last == "…" => (before, true),
                _ => (expected.as_slice(), false),
            };
            (open && heard.len() >= expected.len() || heard.len() == expected.len())
                && expected.iter().zip(heard).all(|(e, h)| matches(e, h))
        }
        (expected, heard) => expected == heard,
    }
}

pub(super) fn difference(expected: &[Heard], heard: &[Heard]) -> String {
    let mut text = String::new();
    for at in 0..expected.len().max(heard.len()) {
        match (expected.get(at), heard.get(at)) {
            (Some(e), Some(h)) if matches(&e.value, &h.value) => writeln!(text, "    {}", h.value).unwrap(),
            (e, h) => {
                e.iter().for_each(|e| writeln!(text, "  - {}", e.value).unwrap());
                h.iter().for_each(|h| writeln!(text, "  + {}", h.value).unwrap());
            }
        }
    }
    text
}

/// Tests of this file's own judgement.
pub fn own_tests() {
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
    for (expected, heard, fits) in table {
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(matches(&parse(expected), &parse(heard)), fits, "{expected} {heard}");
    }
}
