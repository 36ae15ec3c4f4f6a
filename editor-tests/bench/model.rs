//! Benchmarks of the wire formats: bytes into deltas, a long history into a request body.

use std::sync::Arc;

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use providers::anthropic::Messages;
use providers::chat::Chat;
use providers::gemini::Gemini;
use providers::request::{
    BodyCache, CallResult, ModelInput, ModelMessage, ModelOutput, ModelParams, ToolSpec,
};
use providers::request_target::{RequestOptions, RequestTarget};
use providers::responses::Responses;
use providers::sse::SseParser;
use providers::wire_format::WireFormat;
use providers::{Error, Model, Request};
use serde_json::{Map, json};
use transcript::ModelRef;

const WIRES: [&str; 4] = ["chat", "messages", "responses", "gemini"];

fn wire(name: &str) -> &'static dyn WireFormat {
    match name {
        "chat" => &Chat,
        "messages" => &Messages,
        "responses" => &Responses,
        _ => &Gemini,
    }
}

/// Returns an answer of words, as this provider streams it: pieces of a few words each.
fn stream(name: &str) -> String {
    let words = "the quick brown fox jumps over the lazy dog, and then again; ".repeat(2);
    let encode = |event: &str, data: serde_json::Value| match event {
        "" => format!("data: {data}\n\n"),
        event => format!("event: {event}\ndata: {data}\n\n"),
    };
    let piece = match name {
        "chat" => encode(
            "",
            json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m",
            "choices": [{"index": 0, "delta": {"content": words}, "finish_reason": null}]}),
        ),
        "messages" => encode(
            "content_block_delta",
            json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": words}}),
        ),
        "responses" => encode(
            "response.output_text.delta",
            json!({"type": "response.output_text.delta", "item_id": "msg_1",
            "output_index": 0, "content_index": 0, "delta": words, "sequence_number": 7}),
        ),
        _ => encode(
            "",
            json!({"candidates": [{"content": {"parts": [{"text": words}], "role": "model"}, "index": 0}],
            "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}, "modelVersion": "m"}),
        ),
    };
    let begin = match name {
        "messages" => encode(
            "content_block_start",
            json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""}}),
        ),
        _ => String::new(),
    };
    begin + &piece.repeat((4 << 20) / piece.len())
}

#[divan::bench(args = WIRES, sample_count = 20)]
fn decode(bencher: Bencher, name: &str) {
    let text = stream(name);
    bencher
        .counter(BytesCount::new(text.len()))
        .bench_local(|| {
            let mut parser = SseParser::default();
            let mut decoder = wire(name).decoder(&RequestTarget::default());
            let mut deltas = Vec::new();
            let mut pieces = 0;
            for packet in text.as_bytes().chunks(16 << 10) {
                parser
                    .push::<Error>(packet, |event, data| {
                        decoder.decode(event, data, &mut deltas)
                    })
                    .ok();
                pieces += deltas.len();
                deltas.clear();
            }
            black_box(pieces)
        });
}

/// Returns a thousand messages: questions, answers, calls and results of 2 KB.
fn history() -> Request {
    let code = "    let found = rows.iter().find(|row| row.id == id)?;\n".repeat(40);
    let messages = (0..250).flat_map(|turn| {
        let id: Arc<str> = format!("call_{turn}").into();
        [
            ModelMessage::User(vec![ModelInput::Text(
                format!("Question {turn}: {}", &code[..200]).into(),
            )]),
            ModelMessage::Assistant(vec![
                ModelOutput::Text {
                    text: format!("I shall look. {}", &code[..100]),
                    provider: Map::new(),
                },
                ModelOutput::Call {
                    id: id.clone(),
                    provider_id: None,
                    name: "read".into(),
                    arguments: json!({"filePath": "/a/b.rs"}).into(),
                    provider: Map::new(),
                },
            ]),
            ModelMessage::Results(vec![CallResult {
                id,
                provider_id: None,
                name: "read".into(),
                text: code.as_str().into(),
                failed: false,
                attachments: Vec::new(),
            }]),
            ModelMessage::Assistant(vec![ModelOutput::Text {
                text: format!("Here is why. {}", &code[..500]),
                provider: Map::new(),
            }]),
        ]
    });
    let tool = |name: &str| {
        ToolSpec {
        name: name.into(),
        description: "Does something with a file. ".repeat(20),
        schema: json!({"type": "object", "properties": {"filePath": {"type": "string"}}, "required": ["filePath"]})
            .into(),
    }
    };
    Request {
        model: Arc::new(Model::unknown(ModelRef {
            provider: "p".into(),
            model: "m".into(),
            effort: None,
        })),
        system: vec!["You are an agent. ".repeat(500)],
        messages: messages.collect(),
        tools: ["bash", "edit", "glob", "grep", "read", "write"]
            .map(tool)
            .to_vec(),
        must_call: false,
        params: ModelParams::default(),
        session: "ses_1".into(),
        body_cache: BodyCache::default(),
    }
}

#[divan::bench(args = WIRES, sample_count = 50)]
fn encode_a_thousand_messages(bencher: Bencher, name: &str) {
    let request = history();
    let target = RequestTarget {
        base_url: "http://127.0.0.1:9/v1".into(),
        ..RequestTarget::default()
    };
    let encode = |request: Request| {
        wire(name)
            .encode(&request, &target, &RequestOptions::default())
            .map(|call| call.body.len())
    };
    bencher
        .with_inputs(|| request.clone())
        .bench_local_values(encode);
}

/// The same, where all but the last two were written before.
#[divan::bench(args = WIRES, sample_count = 50)]
fn encode_what_is_new_in_a_thousand_messages(bencher: Bencher, name: &str) {
    let request = history();
    let target = RequestTarget {
        base_url: "http://127.0.0.1:9/v1".into(),
        ..RequestTarget::default()
    };
    let encode = |request: &Request| {
        wire(name)
            .encode(request, &target, &RequestOptions::default())
            .map(|call| call.body.len())
    };
    let next = || {
        let mut before = request.clone();
        before.messages.truncate(request.messages.len() - 2);
        drop(encode(&before));
        Request {
            body_cache: BodyCache::after(before),
            ..request.clone()
        }
    };
    bencher
        .with_inputs(next)
        .bench_local_refs(|request| encode(request));
}
