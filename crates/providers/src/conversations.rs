//! Tests of the guarantees that all wire formats share: conversations that every format must
//! encode, and answers that every decoder must survive. The `tests.rs` of a format tests the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::WIRE_FORMATS;
use super::anthropic::Messages;
use super::chat::Chat;
use super::gemini::Gemini;
use super::request::{
    Attachment, BodyCache, CallResult, ModelInput, ModelMessage, ModelOutput, ModelParams, ToolSpec,
};
use super::request_target::{RequestOptions, RequestTarget};
use super::responses::Responses;
use super::wire_format::WireFormat;
use super::{Delta, Model, Request};
use transcript::ModelRef;

fn user(text: &str) -> ModelMessage {
    ModelMessage::User(vec![ModelInput::Text(text.into())])
}

fn assistant(text: &str) -> ModelMessage {
    ModelMessage::Assistant(vec![ModelOutput::Text {
        text: text.into(),
        provider: Map::new(),
    }])
}

fn calls(ids: &[(&str, Option<&str>)]) -> ModelMessage {
    let call = |(id, wire): &(&str, Option<&str>)| ModelOutput::Call {
        id: (*id).into(),
        provider_id: wire.map(str::to_owned),
        name: "read".into(),
        arguments: json!({"path": "ä\u{0}\"\\\n🦀"}).into(),
        provider: Map::new(),
    };
    ModelMessage::Assistant(ids.iter().map(call).collect())
}

fn results(ids: &[(&str, Option<&str>)]) -> ModelMessage {
    let result = |(id, wire): &(&str, Option<&str>)| CallResult {
        id: (*id).into(),
        provider_id: wire.map(str::to_owned),
        name: "read".into(),
        text: format!("result of {id}").into(),
        failed: false,
        attachments: vec![Attachment {
            mime: "image/png".into(),
            data: "AAAA".into(),
            name: None,
        }],
    };
    ModelMessage::Results(ids.iter().map(result).collect())
}

fn file(mime: &str) -> ModelInput {
    ModelInput::File(Attachment {
        mime: mime.into(),
        data: "AAAA".into(),
        name: Some("a file".into()),
    })
}

fn failed(id: &str, wire: Option<&str>) -> CallResult {
    CallResult {
        id: id.into(),
        provider_id: wire.map(str::to_owned),
        name: "read".into(),
        text: "[Tool execution was interrupted]".into(),
        failed: true,
        attachments: Vec::new(),
    }
}

fn long() -> Vec<ModelMessage> {
    let turn = |n: usize| {
        let id = format!("call_{n}");
        let wire = format!("w{}", n % 7);
        let one = [(id.as_str(), Some(wire.as_str()))];
        [user("more"), calls(&one), results(&one), assistant("so")]
    };
    (0..250).flat_map(turn).collect()
}

/// The name of a case and its conversation.
type Row = (&'static str, Vec<ModelMessage>);

#[expect(clippy::too_many_lines, reason = "a table")]
fn conversations() -> Vec<Row> {
    let doubled = [
        ("call_a", Some("same")),
        ("call_b", Some("same")),
        ("call_c", None),
    ];
    let odd = [("call_ä/…", Some("fc:1.2|x")), ("call_z", Some(""))];
    vec![
        ("nothing", vec![]),
        ("a word", vec![user("hi")]),
        ("blank words", vec![user(" "), assistant(" "), user("")]),
        ("the user twice", vec![user("a"), user("b")]),
        ("the model first", vec![assistant("a"), user("b")]),
        (
            "calls with one id",
            vec![user("a"), calls(&doubled), results(&doubled), user("b")],
        ),
        (
            "ids nobody takes",
            vec![user("a"), calls(&odd), results(&odd)],
        ),
        (
            "the same id in two answers",
            vec![
                user("a"),
                calls(&[("call_1", Some("0"))]),
                results(&[("call_1", Some("0"))]),
                calls(&[("call_2", Some("0"))]),
                results(&[("call_2", Some("0"))]),
            ],
        ),
        (
            "reasoning of nobody's",
            vec![
                user("a"),
                ModelMessage::Assistant(vec![
                    ModelOutput::Reasoning {
                        text: "hm".into(),
                        provider: Map::new(),
                    },
                    ModelOutput::Text {
                        text: "b".into(),
                        provider: Map::new(),
                    },
                ]),
                user("c"),
            ],
        ),
        (
            "images and PDF from the user",
            vec![ModelMessage::User(vec![
                ModelInput::Text("look".into()),
                file("image/png"),
                file("application/pdf"),
            ])],
        ),
        (
            "calls that were interrupted or failed",
            vec![
                user("a"),
                calls(&[("call_a", Some("wa")), ("call_b", None)]),
                ModelMessage::Results(vec![failed("call_a", Some("wa")), failed("call_b", None)]),
                user("go on"),
            ],
        ),
        (
            "words and calls in one answer, and nothing after the results",
            vec![
                user("a"),
                ModelMessage::Assistant(vec![
                    ModelOutput::Text {
                        text: "I look.".into(),
                        provider: Map::new(),
                    },
                    ModelOutput::Call {
                        id: "call_w".into(),
                        provider_id: Some("w".into()),
                        name: "read".into(),
                        arguments: json!({}).into(),
                        provider: Map::new(),
                    },
                ]),
                results(&[("call_w", Some("w"))]),
            ],
        ),
        (
            "a refusal",
            vec![
                user("a"),
                ModelMessage::Assistant(vec![ModelOutput::Text {
                    text: "I will not.".into(),
                    provider: Map::from_iter([("refusal".to_owned(), true.into())]),
                }]),
                user("and now?"),
            ],
        ),
        (
            "another model's signatures",
            vec![
                user("a"),
                ModelMessage::Assistant(vec![
                    ModelOutput::Reasoning {
                        text: "hm".into(),
                        provider: Map::from_iter([("unknown".to_owned(), json!({"x": [1]}))]),
                    },
                    ModelOutput::Text {
                        text: "b".into(),
                        provider: Map::from_iter([("unknown".to_owned(), json!(1))]),
                    },
                ]),
                user("c"),
            ],
        ),
        ("a long history", long()),
        (
            "a file nobody reads",
            vec![ModelMessage::User(vec![ModelInput::File(Attachment {
                mime: "video/mp4".into(),
                data: "AAAA".into(),
                name: Some("v".into()),
            })])],
        ),
    ]
}

fn request(messages: Vec<ModelMessage>, tools: bool) -> Request {
    let id = ModelRef {
        provider: "p".into(),
        model: "m".into(),
        effort: None,
    };
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    Request {
        model: Arc::new(Model {
            reasoning: true,
            ..Model::unknown(id)
        }),
        system: vec!["s".into()],
        messages,
        tools: if tools {
            vec![ToolSpec {
                name: "read".into(),
                description: "d".into(),
                schema: schema.into(),
            }]
        } else {
            Vec::new()
        },
        must_call: false,
        params: ModelParams::default(),
        session: "ses_1".into(),
        body_cache: BodyCache::default(),
    }
}

/// Returns the sorted string values of all members called `name`.
pub(crate) fn strings<'a>(value: &'a Value, name: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    collect(value, name, &mut found);
    found.sort_unstable();
    found
}

/// Collects the string values of all members called `name`.
fn collect<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                if key == name {
                    found.extend(inner.as_str());
                }
                collect(inner, name, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| collect(inner, name, found)),
        _ => {}
    }
}

#[test]
fn every_format_encodes_every_conversation_and_pairs_calls_with_results() {
    let target = RequestTarget {
        base_url: "http://h".into(),
        ..RequestTarget::default()
    };
    for wire in WIRE_FORMATS {
        let name = wire.name();
        for (case, messages) in conversations() {
            for tools in [true, false] {
                let request = request(messages.clone(), tools);
                let encode = || {
                    wire.encode(&request, &target, &RequestOptions::default())
                        .unwrap()
                };
                let body = encode().body;
                assert_eq!(body, encode().body, "{name}: {case}");
                let sent: Value =
                    serde_json::from_slice(&body).unwrap_or_else(|e| panic!("{name}: {case}: {e}"));
                let [made, answered] = (wire.samples().call_ids)(&sent);
                assert_eq!(made, answered, "{name}: {case}: {sent}");
                let mut once = made.clone();
                once.dedup();
                assert_eq!(once, made, "{name}: {case}");
            }
        }
    }
}

/// Returns the messages with new ids.
fn with_new_ids(messages: &[ModelMessage], number: usize) -> Vec<ModelMessage> {
    let own = |id: &mut Arc<str>| *id = format!("{id}-{number}").into();
    let mut messages = messages.to_vec();
    for message in &mut messages {
        match message {
            ModelMessage::User(_) => {}
            ModelMessage::Results(results) => {
                results.iter_mut().for_each(|result| own(&mut result.id))
            }
            ModelMessage::Assistant(outputs) => outputs.iter_mut().for_each(|output| {
                if let ModelOutput::Call { id, .. } = output {
                    own(id);
                }
            }),
        }
    }
    messages
}

/// Tests a conversation that grows, is undone, and loses a result to pruning: with a cached body,
/// the bytes are those of a request that is encoded on its own.
#[test]
fn cached_body_changes_no_byte() {
    let mut random = fastrand::Rng::with_seed(7);
    let all: Vec<Vec<ModelMessage>> = conversations()
        .into_iter()
        .map(|(_, messages)| messages)
        .collect();
    for wire in WIRE_FORMATS {
        let name = wire.name();
        for model in ["m", "claude-sonnet-4-5", "gemini-3-pro", "mistral-large"] {
            let target = RequestTarget {
                base_url: "http://h".into(),
                ..RequestTarget::default()
            };
            let mut messages = Vec::new();
            let mut before: Option<Request> = None;
            for step in 0..60 {
                match random.u8(..8) {
                    0 => messages.truncate(random.usize(..=messages.len())),
                    1 if !messages.is_empty() => {
                        let at = random.usize(..messages.len());
                        match &mut messages[at] {
                            ModelMessage::Results(results) => results[0].text = "gone".into(),
                            other => *other = user("other words"),
                        }
                    }
                    _ => messages.extend(with_new_ids(&all[random.usize(..all.len())], step)),
                }
                let id = ModelRef {
                    provider: "p".into(),
                    model: model.into(),
                    effort: None,
                };
                let mut request = Request {
                    model: Arc::new(Model::unknown(id)),
                    ..request(messages.clone(), random.u8(..9) > 0)
                };
                let encode = |request: &Request| {
                    wire.encode(request, &target, &RequestOptions::default())
                        .unwrap()
                        .body
                };
                let alone = encode(&request);
                request.body_cache = before.take().map(BodyCache::after).unwrap_or_default();
                assert_eq!(encode(&request), alone, "{name}, {model}, step {step}");
                before = Some(request);
            }
        }
    }
}

/// Assembles deltas as the step of a turn does, as far as the wire formats depend on it.
fn outputs(deltas: &[Delta]) -> Vec<ModelOutput> {
    let mut blocks: BTreeMap<usize, (Option<ModelOutput>, Map<String, Value>)> = BTreeMap::new();
    let mut arguments: BTreeMap<usize, String> = BTreeMap::new();
    let mut order = Vec::new();
    for delta in deltas {
        let (index, new) = match delta {
            Delta::Text { index, .. } => (
                *index,
                Some(ModelOutput::Text {
                    text: String::new(),
                    provider: Map::new(),
                }),
            ),
            Delta::Reasoning { index, .. } => (
                *index,
                Some(ModelOutput::Reasoning {
                    text: String::new(),
                    provider: Map::new(),
                }),
            ),
            Delta::Call { index, id, name } => {
                let call = ModelOutput::Call {
                    id: format!("call_{index}").into(),
                    provider_id: id.clone(),
                    name: name.clone(),
                    arguments: json!({}).into(),
                    provider: Map::new(),
                };
                (*index, Some(call))
            }
            Delta::Arguments { index, .. } | Delta::ProviderData { index, .. } => (*index, None),
            Delta::FoundPages(_) | Delta::Usage(_) | Delta::Finish(_) => continue,
        };
        if !order.contains(&index) {
            order.push(index);
        }
        let block = blocks.entry(index).or_default();
        block.0 = block.0.take().or(new);
        match (delta, &mut block.0) {
            (Delta::Text { text: more, .. }, Some(ModelOutput::Text { text, .. }))
            | (Delta::Reasoning { text: more, .. }, Some(ModelOutput::Reasoning { text, .. })) => {
                text.push_str(more)
            }
            (Delta::Arguments { json, .. }, _) => {
                arguments.entry(index).or_default().push_str(json)
            }
            (Delta::ProviderData { data, .. }, _) => block.1.extend(data.clone()),
            _ => {}
        }
    }
    let whole = |index: usize| {
        let (mut output, data) = blocks.get(&index).cloned()?;
        match output.as_mut()? {
            ModelOutput::Text { provider, .. } | ModelOutput::Reasoning { provider, .. } => {
                *provider = data
            }
            ModelOutput::Call {
                provider,
                arguments: to,
                ..
            } => {
                *provider = data;
                *to = Arc::new(
                    serde_json::from_str(arguments.get(&index).map_or("{}", String::as_str))
                        .unwrap(),
                );
            }
        }
        output
    };
    order.into_iter().filter_map(whole).collect()
}

/// Returns answers, and for each the text that the next request must contain, byte for byte.
fn answers() -> Vec<(&'static dyn WireFormat, Vec<Value>, Vec<&'static str>)> {
    let start = |i: u32, block: Value| json!({"type": "content_block_start", "index": i, "content_block": block});
    let more =
        |i: u32, delta: Value| json!({"type": "content_block_delta", "index": i, "delta": delta});
    let stop = |i: u32| json!({"type": "content_block_stop", "index": i});
    let chat = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]});
    let part = |part: Value| json!({"candidates": [{"content": {"parts": [part]}}]});
    let done = |i: u32, item: Value| json!({"type": "response.output_item.done", "output_index": i, "item": item});
    vec![
        (
            &Messages,
            vec![
                start(0, json!({"type": "thinking", "thinking": ""})),
                more(0, json!({"type": "thinking_delta", "thinking": "a"})),
                more(0, json!({"type": "signature_delta", "signature": "S1"})),
                stop(0),
                start(1, json!({"type": "text", "text": "b"})),
                stop(1),
                start(2, json!({"type": "redacted_thinking", "data": "ENC"})),
                stop(2),
                start(
                    3,
                    json!({"type": "tool_use", "id": "t1", "name": "n", "input": {}}),
                ),
                more(
                    3,
                    json!({"type": "input_json_delta", "partial_json": "{\"z\":1,\"a\":2}"}),
                ),
                stop(3),
                start(
                    4,
                    json!({"type": "thinking", "thinking": "c", "signature": "S2"}),
                ),
                stop(4),
                start(5, json!({"type": "unheard_of", "z": 1, "a": [2]})),
                stop(5),
                start(
                    6,
                    json!({"type": "tool_use", "id": "t2", "name": "n", "input": {}}),
                ),
                stop(6),
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
            ],
            vec![
                r#"[{"type":"thinking","thinking":"a","signature":"S1"},{"type":"text","text":"b"},{"type":"redacted_thinking","data":"ENC"},{"type":"tool_use","id":"t1","name":"n","input":{"z":1,"a":2}},{"type":"thinking","thinking":"c","signature":"S2"},{"type":"unheard_of","z":1,"a":[2]},{"type":"tool_use","id":"t2","name":"n","input":{}"#,
            ],
        ),
        (
            &Responses,
            vec![
                done(
                    0,
                    json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ENC"}),
                ),
                done(
                    1,
                    json!({"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "b"}]}),
                ),
                done(
                    2,
                    json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "n", "arguments": "{\"z\":1,\"a\":2}"}),
                ),
                json!({"type": "response.completed", "response": {"status": "completed"}}),
            ],
            vec![
                r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"ENC"},{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"b","annotations":[]}]},{"type":"function_call","id":"fc_1","call_id":"c1","name":"n","arguments":"{\"z\":1,\"a\":2}","status":"completed"}"#,
            ],
        ),
        (
            &Chat,
            vec![
                chat(
                    json!({"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a", "signature": "S"}]}),
                ),
                chat(json!({"content": "b"})),
                chat(
                    json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "n", "arguments": "{}"}, "extra_content": {"google": {"thought_signature": "T"}}}]}),
                ),
                json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            ],
            vec![
                r#""content":"b","reasoning_details":[{"type":"reasoning.text","text":"a","signature":"S"}],"tool_calls":[{"id":"c1","type":"function","function":{"name":"n","arguments":"{}"},"extra_content":{"google":{"thought_signature":"T"}}}]"#,
            ],
        ),
        (
            &Gemini,
            vec![
                part(json!({"text": "b", "thoughtSignature": "S1"})),
                part(
                    json!({"functionCall": {"name": "n", "args": {"z": 1, "a": 2}}, "thoughtSignature": "S2"}),
                ),
                part(json!({"executableCode": {"code": "1"}})),
                part(json!({"text": "", "thoughtSignature": "S3"})),
                json!({"candidates": [{"finishReason": "STOP"}]}),
            ],
            vec![
                r#"[{"text":"b","thoughtSignature":"S1"},{"functionCall":{"name":"n","args":{"z":1,"a":2}},"thoughtSignature":"S2"},{"executableCode":{"code":"1"}},{"text":"","thoughtSignature":"S3"}]"#,
            ],
        ),
    ]
}

#[test]
fn provider_data_is_sent_back_in_order_and_unchanged() {
    let target = RequestTarget {
        base_url: "http://h".into(),
        cache_key: Some(false),
        ..RequestTarget::default()
    };
    for (wire, events, expected) in answers() {
        let mut decoder = wire.decoder(&target);
        let mut deltas = Vec::new();
        for event in &events {
            decoder.decode("", &event.to_string(), &mut deltas).unwrap();
        }
        decoder.end(&mut deltas).unwrap();
        let messages = vec![
            user("a"),
            ModelMessage::Assistant(outputs(&deltas)),
            user("go on"),
        ];
        let body = wire
            .encode(
                &request(messages, true),
                &target,
                &RequestOptions::default(),
            )
            .unwrap()
            .body;
        let body = std::str::from_utf8(&body).unwrap();
        for part in expected {
            assert!(body.contains(part), "{part}\nis not in\n{body}");
        }
    }
}

/// Tests truncated events, exchanged values and wrong order: a decoder returns deltas or an error,
/// and never panics.
#[test]
fn decoders_survive_malformed_events() {
    let odd = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!("x"),
        json!([]),
        json!({}),
        json!([[{}]]),
        json!(true),
    ];
    let mut random = fastrand::Rng::with_seed(7);
    for (_, events, _) in answers() {
        for wire in WIRE_FORMATS {
            for _ in 0..300 {
                let mut decoder = wire.decoder(&RequestTarget::default());
                let mut out = Vec::new();
                for _ in 0..6 {
                    let mut event = events[random.usize(..events.len())].clone();
                    for _ in 0..random.usize(..3) {
                        exchange(&mut event, &odd[random.usize(..odd.len())], &mut random);
                    }
                    let mut text = event.to_string();
                    if random.u8(..4) == 0 {
                        let cut = random.usize(..=text.len());
                        text.truncate(
                            (0..=cut)
                                .rev()
                                .find(|at| text.is_char_boundary(*at))
                                .unwrap(),
                        );
                    }
                    if decoder.decode("", &text, &mut out).is_err() {
                        break;
                    }
                }
                let _ = decoder.end(&mut out);
            }
        }
    }
}

fn exchange(value: &mut Value, with: &Value, random: &mut fastrand::Rng) {
    let here = random.u8(..4) == 0;
    match value {
        Value::Object(map) if !here && !map.is_empty() => {
            let at = random.usize(..map.len());
            if let Some(inner) = map.values_mut().nth(at) {
                exchange(inner, with, random);
            }
        }
        Value::Array(list) if !here && !list.is_empty() => {
            let at = random.usize(..list.len());
            exchange(&mut list[at], with, random);
        }
        other => *other = with.clone(),
    }
}
