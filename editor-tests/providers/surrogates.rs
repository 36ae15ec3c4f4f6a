//! Emoji whose UTF-16 halves arrive in different pieces of an answer, in every wire format.

use serde_json::{Value, json};

use crate::client::Client;
use crate::loopback::{ReceivedRequest, Server};
use crate::program::stdout_of;
use crate::project::Project;

/// The provider's package, the version in its base URL, and its answer of a text in pieces and of a
/// call whose arguments arrive in pieces.
struct Wire {
    package: &'static str,
    base: &'static str,
    text: fn(&[&str]) -> Vec<Value>,
    call: fn(&[&str]) -> Vec<Value>,
}

const WIRES: [Wire; 4] = [
    Wire {
        package: "@ai-sdk/openai-compatible",
        base: "/v1",
        text: |pieces| {
            let piece = |piece: &&str| json!({ "choices": [{ "index": 0, "delta": { "content": piece } }] });
            let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
            pieces.iter().map(piece).chain([end]).collect()
        },
        call: |pieces| {
            let call = |call: Value| json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] } }] });
            let begin = call(
                json!({ "index": 0, "id": "call_1", "function": { "name": "write", "arguments": "" } }),
            );
            let piece =
                |piece: &&str| call(json!({ "index": 0, "function": { "arguments": piece } }));
            let end =
                json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] });
            [begin]
                .into_iter()
                .chain(pieces.iter().map(piece))
                .chain([end])
                .collect()
        },
    },
    Wire {
        package: "@ai-sdk/anthropic",
        base: "/v1",
        text: |pieces| {
            let piece = |piece: &&str| {
                json!({ "type": "content_block_delta", "index": 0,
                    "delta": { "type": "text_delta", "text": piece } })
            };
            let block = json!({ "type": "text", "text": "" });
            messages(&block, pieces.iter().map(piece).collect(), "end_turn")
        },
        call: |pieces| {
            let piece = |piece: &&str| {
                json!({ "type": "content_block_delta", "index": 0,
                    "delta": { "type": "input_json_delta", "partial_json": piece } })
            };
            let block = json!({ "type": "tool_use", "id": "call_1", "name": "write", "input": {} });
            messages(&block, pieces.iter().map(piece).collect(), "tool_use")
        },
    },
    Wire {
        package: "@ai-sdk/openai",
        base: "/v1",
        text: |pieces| {
            let piece = |piece: &&str| {
                json!({ "type": "response.output_text.delta", "output_index": 0, "content_index": 0,
                    "item_id": "msg_1", "delta": piece })
            };
            let end =
                json!({ "type": "response.completed", "response": { "status": "completed" } });
            pieces.iter().map(piece).chain([end]).collect()
        },
        call: |pieces| {
            let item = json!({ "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "write",
                "arguments": "" });
            let begin =
                json!({ "type": "response.output_item.added", "output_index": 0, "item": item });
            let piece = |piece: &&str| {
                json!({ "type": "response.function_call_arguments.delta", "output_index": 0,
                    "item_id": "fc_1", "delta": piece })
            };
            let end =
                json!({ "type": "response.completed", "response": { "status": "completed" } });
            [begin]
                .into_iter()
                .chain(pieces.iter().map(piece))
                .chain([end])
                .collect()
        },
    },
    Wire {
        package: "@ai-sdk/google",
        base: "/v1beta",
        text: |pieces| {
            let piece = |piece: &&str| json!({ "candidates": [{ "content": { "parts": [{ "text": piece }] } }] });
            let end = json!({ "candidates": [{ "finishReason": "STOP" }] });
            pieces.iter().map(piece).chain([end]).collect()
        },
        call: |pieces| {
            // The arguments are not text here, so they come in one piece.
            let arguments: Value = serde_json::from_str(&pieces.concat()).unwrap();
            let call =
                json!({ "functionCall": { "id": "call_1", "name": "write", "args": arguments } });
            vec![
                json!({ "candidates": [{ "content": { "parts": [call] } }] }),
                json!({ "candidates": [{ "finishReason": "STOP" }] }),
            ]
        },
    },
];

/// Returns the events of a Messages answer with one block.
fn messages(block: &Value, pieces: Vec<Value>, reason: &str) -> Vec<Value> {
    let begin = [
        json!({ "type": "message_start", "message": { "role": "assistant", "content": [], "usage": {} } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
    ];
    let end = [
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": reason } }),
        json!({ "type": "message_stop" }),
    ];
    begin.into_iter().chain(pieces).chain(end).collect()
}

/// Returns an answer to a request: a call if its conversation has none, otherwise a text. `FIRST`
/// and `SECOND` stand for the halves of an emoji, which a string of Rust cannot hold.
fn answer(wire: &Wire, request: &ReceivedRequest) -> (u16, String, String) {
    let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
    let events = if body["tools"].as_array().is_none_or(Vec::is_empty) {
        (wire.text)(&["A title"])
    } else if request.body.contains("emoji.txt") {
        (wire.text)(&["Done FIRST", "SECOND, but not FIRST", " or ", "SECOND."])
    } else {
        (wire.call)(&[
            r#"{"filePath":"emoji.txt","content":"a FIRST"#,
            r#"SECOND b FIRST"#,
            r#"."}"#,
        ])
    };
    let lines: String = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    let done = if wire.package.ends_with("compatible") {
        "data: [DONE]\n\n"
    } else {
        ""
    };
    let body = (lines + done)
        .replace("FIRST", "\\ud83d")
        .replace("SECOND", "\\ude00");
    (200, "content-type: text/event-stream\r\n".into(), body)
}

pub(super) fn halves_of_an_emoji_are_joined() {
    const TEXT: &str = "Done 😀, but not \u{fffd} or \u{fffd}.";
    for wire in &WIRES {
        let server = Server::start(move |request| answer(wire, request));
        let project = Project::new();
        let base = format!("{}{}", server.base(), wire.base);
        let settings = json!({ "model": "own/m", "provider": { "own": { "npm": wire.package,
            "options": { "baseURL": base, "apiKey": "a-key" },
            "models": { "m": { "limit": { "context": 100_000, "output": 8_000 } } } } } });
        project.write("~/.config/opencode/opencode.json", &settings.to_string());

        let mut client = Client::new(project);
        let session = client.open();
        client.prompt(2, &session, "Hello");
        let (end, updates) = client.answer(2);
        assert_eq!(
            end["result"]["stopReason"], "end_turn",
            "{}: {end}",
            wire.package
        );
        let live: String = updates
            .iter()
            .filter(|update| update["sessionUpdate"] == "agent_message_chunk")
            .filter_map(|update| update["content"]["text"].as_str())
            .collect();
        assert_eq!(live, TEXT, "{}", wire.package);
        let project = client.leave();
        let written = std::fs::read_to_string(project.path("emoji.txt")).unwrap();
        assert_eq!(written, "a 😀 b \u{fffd}.", "{}", wire.package);

        let stored = stdout_of(&project, &["sessions", "show", &session]);
        assert!(stored.contains(TEXT), "{}: {stored}", wire.package);
        std::fs::remove_file(project.path("emoji.txt")).unwrap();
        let printed = stdout_of(&project, &["run", "Hello"]);
        assert_eq!(printed, format!("{TEXT}\n"), "{}", wire.package);
    }
}
