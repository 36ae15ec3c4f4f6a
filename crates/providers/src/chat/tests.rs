use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::*;
use crate::request::{
    Attachment, BodyCache, CallResult, ModelInput, ModelMessage, ModelOutput, ModelParams, ToolSpec,
};
use crate::secret::Secret;
use crate::sse::Flow;
use crate::wire_format::single_entry;
use crate::{Delta, Model};
use transcript::{Finish, ModelRef, Usage};

/// Decodes an answer and formats it, one line per block.
fn read(events: &[&str]) -> Result<String, Error> {
    let target = RequestTarget {
        name: "Acme".into(),
        ..RequestTarget::default()
    };
    let mut decoder = Chat.decoder(&target);
    let mut out = Vec::new();
    for event in events {
        if decoder.decode("", event, &mut out)? == Flow::Done {
            return Ok(crate::delta::lines(&out));
        }
    }
    decoder.end(&mut out)?;
    Ok(crate::delta::lines(&out))
}

fn delta(delta: &str) -> String {
    format!(
        r#"{{"id":"x","object":"chat.completion.chunk","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#
    )
}

const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

fn deltas(pieces: &[&str]) -> Result<String, Error> {
    let mut events: Vec<String> = pieces.iter().map(|piece| delta(piece)).collect();
    events.push(STOP.into());
    events.push("[DONE]".into());
    read(&events.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn answer_variants_are_decoded() {
    let cases: &[(&[&str], &str)] = &[
        (
            &[
                r#"{"role":"assistant","content":""}"#,
                r#"{"content":"Hel"}"#,
                r#"{"content":"lo"}"#,
            ],
            "0 text Hello\nfinish Stop",
        ),
        (
            &[
                r#"{"content":null,"role":"assistant"}"#,
                r#"{"content":"a\nb \ud83e\udd80"}"#,
            ],
            "0 text a\\nb 🦀\nfinish Stop",
        ),
        // Reasoning, in each of its fields.
        (
            &[
                r#"{"reasoning_content":"hm"}"#,
                r#"{"reasoning_content":" so","content":null}"#,
                r#"{"content":"yes"}"#,
            ],
            "0 reasoning hm so\n0 provider {\"field\":\"reasoning_content\"}\n1 text yes\nfinish Stop",
        ),
        (
            &[r#"{"reasoning":"hm"}"#, r#"{"content":"yes"}"#],
            "0 reasoning hm\n0 provider {\"field\":\"reasoning\"}\n1 text yes\nfinish Stop",
        ),
        (
            &[
                r#"{"content":"<thi"}"#,
                r#"{"content":"nk>hm</think>\n\nyes"}"#,
            ],
            "0 reasoning hm\n0 provider {\"field\":\"think\"}\n1 text yes\nfinish Stop",
        ),
        (
            &[
                r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#,
                r#"{"content":[{"type":"text","text":"yes"}]}"#,
            ],
            "0 reasoning hm\n0 provider {\"field\":\"thinking\"}\n1 text yes\nfinish Stop",
        ),
        // OpenRouter: details are joined and stored whole; their text is not duplicated.
        (
            &[
                r#"{"reasoning":"h","reasoning_details":[{"type":"reasoning.text","text":"h","index":0,"format":"f"}]}"#,
                r#"{"reasoning":"m","reasoning_details":[{"type":"reasoning.text","text":"m","index":0}]}"#,
                r#"{"reasoning_details":[{"type":"reasoning.text","text":"","signature":"sig","index":0}]}"#,
                r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"xyz","index":1}]}"#,
                r#"{"content":"yes"}"#,
            ],
            "0 reasoning hm\n0 provider {\"field\":\"reasoning\",\"reasoning_details\":[{\"type\":\"reasoning.text\",\"text\":\"hm\",\"index\":0,\"format\":\"f\",\"signature\":\"sig\"},{\"type\":\"reasoning.encrypted\",\"data\":\"xyz\",\"index\":1}]}\n1 text yes\nfinish Stop",
        ),
        // Reasoning, text, call, reasoning, text, call: in the order of arrival.
        (
            &[
                r#"{"reasoning_content":"a"}"#,
                r#"{"content":"b"}"#,
                r#"{"tool_calls":[{"index":0,"id":"1","function":{"name":"t","arguments":"{}"}}]}"#,
                r#"{"reasoning_content":"c"}"#,
                r#"{"content":"d"}"#,
                r#"{"tool_calls":[{"index":1,"id":"2","function":{"name":"u","arguments":"{}"}}]}"#,
            ],
            "0 reasoning a\n0 provider {\"field\":\"reasoning_content\"}\n1 text b\n2 call 1 t {}\n3 reasoning c\n3 provider {\"field\":\"reasoning_content\"}\n4 text d\n5 call 2 u {}\nfinish ToolCalls",
        ),
        // Refusals.
        (
            &[r#"{"refusal":"I will "}"#, r#"{"refusal":"not."}"#],
            "0 text I will not.\n0 provider {\"refusal\":true}\nfinish Refusal",
        ),
    ];
    for (pieces, expected) in cases {
        assert_eq!(deltas(pieces).unwrap(), *expected, "{pieces:#?}");
    }
}

#[test]
fn calls_are_distinguished_despite_missing_fields() {
    let cases: &[(&str, &[&str], &str)] = &[
        (
            "in pieces, two at once",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"read","arguments":""}}]}"#,
                r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"list","arguments":"{\"x\""}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"p\":1}"}}]}"#,
                r#"{"tool_calls":[{"index":1,"function":{"arguments":":2}"}}]}"#,
            ],
            "0 call a read {\"p\":1}\n1 call b list {\"x\":2}\nfinish ToolCalls",
        ),
        (
            "no ids",
            &[
                r#"{"tool_calls":[{"index":0,"function":{"name":"read","arguments":"{}"}},{"index":1,"function":{"name":"read","arguments":"{}"}}]}"#,
            ],
            "0 call - read {}\n1 call - read {}\nfinish ToolCalls",
        ),
        (
            "empty ids later",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"","function":{"name":"","arguments":"}"}}]}"#,
            ],
            "0 call a read {}\nfinish ToolCalls",
        ),
        (
            "an id that changes within a call",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"zz","function":{"arguments":"}"}}]}"#,
            ],
            "0 call a read {}\nfinish ToolCalls",
        ),
        (
            "the name in every piece",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{\"p\""}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":":\"}\""}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"}"}}]}"#,
            ],
            "0 call a read {\"p\":\"}\"}\nfinish ToolCalls",
        ),
        (
            "no index, names in every piece, no ids",
            &[
                r#"{"tool_calls":[{"function":{"name":"read","arguments":"{"}}]}"#,
                r#"{"tool_calls":[{"function":{"name":"read","arguments":"}"}}]}"#,
                r#"{"tool_calls":[{"function":{"name":"read","arguments":"{}"}}]}"#,
                r#"{"tool_calls":[{"function":{"name":"list","arguments":"{}"}}]}"#,
            ],
            "0 call - read {}\n1 call - read {}\n2 call - list {}\nfinish ToolCalls",
        ),
        (
            "no index, with ids",
            &[
                r#"{"tool_calls":[{"id":"a","function":{"name":"read","arguments":"{}"}}]}"#,
                r#"{"tool_calls":[{"id":"b","function":{"name":"read","arguments":"{}"}}]}"#,
            ],
            "0 call a read {}\n1 call b read {}\nfinish ToolCalls",
        ),
        (
            "every index 0",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}]}"#,
                r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"read","arguments":"{}"}}]}"#,
            ],
            "0 call a read {}\n1 call b read {}\nfinish ToolCalls",
        ),
        (
            "one id for two calls",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}]}"#,
                r#"{"tool_calls":[{"index":1,"id":"a","function":{"name":"list","arguments":"{}"}}]}"#,
            ],
            "0 call a read {}\n1 call - list {}\nfinish ToolCalls",
        ),
        (
            "the arguments as an object",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":{"p":1}}}]}"#,
            ],
            "0 call a read {\"p\":1}\nfinish ToolCalls",
        ),
        (
            "a signature beside it",
            &[
                r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"},"extra_content":{"google":{"thought_signature":"s"}}}]}"#,
            ],
            "0 call a read {}\n0 provider {\"extra_content\":{\"google\":{\"thought_signature\":\"s\"}}}\nfinish ToolCalls",
        ),
        (
            "the old form",
            &[
                r#"{"function_call":{"name":"read","arguments":"{"}}"#,
                r#"{"function_call":{"arguments":"}"}}"#,
            ],
            "0 call - read {}\nfinish ToolCalls",
        ),
    ];
    for (name, pieces, expected) in cases {
        assert_eq!(deltas(pieces).unwrap(), *expected, "{name}");
    }
}

#[test]
fn finish_reasons_are_mapped() {
    let text = delta(r#"{"content":"x"}"#);
    let end =
        |reason: &str| format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{reason}"}}]}}"#);
    for (reason, finish) in [
        ("stop", "Stop"),
        ("length", "Length"),
        ("content_filter", "Refusal"),
        ("tool_calls", "Stop"),
        ("banana", "Other"),
    ] {
        assert_eq!(
            read(&[&text, &end(reason)]).unwrap(),
            format!("0 text x\nfinish {finish}"),
            "{reason}"
        );
    }
    // An end without a reason is valid; an answer without an end was cut off, and so was an empty
    // one.
    assert_eq!(read(&[&text, "[DONE]"]).unwrap(), "0 text x\nfinish Stop");
    for cut in [&[text.as_str()][..], &[], &["[DONE]"]] {
        assert!(matches!(read(cut), Err(Error::InvalidAnswer(_))), "{cut:?}");
    }
    assert!(matches!(
        read(&[&text, &end("error")]),
        Err(Error::Overloaded { .. })
    ));
    let whole = r#"{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":"all at once"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
    assert_eq!(
        read(&[whole]).unwrap(),
        "0 text all at once\nusage 3 2 0 0 0\nfinish Stop"
    );
}

#[test]
fn errors_inside_an_answer_are_classified() {
    let text = delta(r#"{"content":"x"}"#);
    let of = |event: &str| read(&[&text, event]).unwrap_err();
    assert!(matches!(
        of(r#"{"error":{"code":429,"message":"slow"}}"#),
        Error::RateLimited { .. }
    ));
    assert!(matches!(
        of(r#"{"error":{"message":"context_length_exceeded"},"choices":[]}"#),
        Error::ContextOverflow(_)
    ));
    assert!(matches!(
        of(r#"{"object":"error","message":"boom","code":500}"#),
        Error::Overloaded { .. }
    ));
    assert!(matches!(
        of(r#"{"choices":[{"delta":{"con"#),
        Error::InvalidAnswer(_)
    ));
    assert!(matches!(
        of("ceci n'est pas du JSON"),
        Error::InvalidAnswer(_)
    ));
    // Unusual content is not an error.
    for odd in [
        "{}",
        r#"{"choices":null}"#,
        r#"{"choices":[]}"#,
        r#"{"choices":[{}]}"#,
        r#"{"error":null}"#,
        r#"{"choices":[{"delta":null}],"usage":null}"#,
    ] {
        assert_eq!(
            read(&[&text, odd, STOP]).unwrap(),
            "0 text x\nfinish Stop",
            "{odd}"
        );
    }
}

#[test]
fn token_counts_are_read_from_every_field() {
    let cases = [
        (
            json!({"prompt_tokens": 1000, "completion_tokens": 50}),
            [1000, 50, 0, 0, 0],
        ),
        (
            json!({"prompt_tokens": 1000, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 900}, "completion_tokens_details": {"reasoning_tokens": 30}}),
            [100, 20, 30, 900, 0],
        ),
        (
            json!({"prompt_tokens": 1000, "completion_tokens": 50, "prompt_cache_hit_tokens": 600}),
            [400, 50, 0, 600, 0],
        ),
        (
            json!({"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1050, "completion_tokens_details": {"reasoning_tokens": 30}}),
            [1000, 20, 30, 0, 0],
        ),
        (
            json!({"prompt_tokens": 1000, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 500, "cache_write_tokens": 400}}),
            [100, 50, 0, 500, 400],
        ),
        (
            json!({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": null, "completion_tokens_details": {"reasoning_tokens": 9}}),
            [10, 0, 9, 0, 0],
        ),
    ];
    for (usage, [input, output, reasoning, read_, write]) in cases {
        let event = json!({"choices": [], "usage": usage}).to_string();
        let seen = read(&[&delta(r#"{"content":"x"}"#), STOP, &event]).unwrap();
        assert!(
            seen.contains(&format!(
                "usage {input} {output} {reasoning} {read_} {write}"
            )),
            "{usage}: {seen}"
        );
    }
    assert_eq!(Usage::default().context(), 0);
}

fn model() -> Model {
    Model::unknown(ModelRef {
        provider: "acme".into(),
        model: "m".into(),
        effort: None,
    })
}

fn request(model: Model, messages: Vec<ModelMessage>) -> Request {
    Request {
        model: Arc::new(model),
        system: vec!["Be brief.".into(), "The day is Monday.".into()],
        messages,
        tools: vec![ToolSpec {
            name: "read".into(),
            description: "Reads.".into(),
            schema: json!({"type": "object"}).into(),
        }],
        must_call: false,
        params: ModelParams {
            max_output: 32_000,
            ..ModelParams::default()
        },
        session: "ses_1".into(),
        body_cache: BodyCache::default(),
    }
}

fn conversation() -> Vec<ModelMessage> {
    let image = Attachment {
        mime: "image/png".into(),
        data: "AAAA".into(),
        name: None,
    };
    vec![
        ModelMessage::User(vec![
            ModelInput::Text("Look".into()),
            ModelInput::File(image.clone()),
        ]),
        ModelMessage::Assistant(vec![
            ModelOutput::Reasoning {
                text: "hm".into(),
                provider: single_entry("field", "reasoning_content"),
            },
            ModelOutput::Text {
                text: "I look.".into(),
                provider: Map::new(),
            },
            ModelOutput::Call {
                id: "call_1".into(),
                provider_id: Some("wire_1".into()),
                name: "read".into(),
                arguments: json!({"b": 1, "a": 2}).into(),
                provider: single_entry("extra_content", json!({"s": 1})),
            },
            ModelOutput::Call {
                id: "call_2".into(),
                provider_id: Some("wire_1".into()),
                name: "read".into(),
                arguments: json!({}).into(),
                provider: Map::new(),
            },
        ]),
        ModelMessage::Results(vec![
            CallResult {
                id: "call_1".into(),
                provider_id: Some("wire_1".into()),
                name: "read".into(),
                text: "done".into(),
                failed: false,
                attachments: vec![image],
            },
            CallResult {
                id: "call_2".into(),
                provider_id: None,
                name: "read".into(),
                text: "no".into(),
                failed: true,
                attachments: vec![],
            },
        ]),
        ModelMessage::User(vec![
            ModelInput::Text("Thanks".into()),
            ModelInput::Text("Go on".into()),
        ]),
    ]
}

fn body(request: &Request, target: &RequestTarget) -> Value {
    body_with(request, target, &RequestOptions::default())
}

fn body_with(request: &Request, target: &RequestTarget, request_options: &RequestOptions) -> Value {
    serde_json::from_slice(&Chat.encode(request, target, request_options).unwrap().body).unwrap()
}

#[test]
fn conversation_is_encoded() {
    let target = RequestTarget {
        base_url: "http://h/v1/".into(),
        key: Some(Secret::new("k")),
        headers: vec![("x-a".into(), "b".into())],
        ..RequestTarget::default()
    };
    let call = Chat
        .encode(
            &request(model(), conversation()),
            &target,
            &RequestOptions::default(),
        )
        .unwrap();
    assert_eq!(call.url, "http://h/v1/chat/completions");
    assert_eq!(
        call.headers,
        [
            ("authorization".into(), "Bearer k".into()),
            ("x-session-affinity".into(), "ses_1".into()),
            ("x-a".into(), "b".into())
        ]
    );
    let expected = concat!(
        r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"#,
        r#""tools":[{"type":"function","function":{"name":"read","description":"Reads.","parameters":{"type":"object"}}}],"messages":["#,
        r#"{"role":"system","content":"Be brief.\n\nThe day is Monday."},"#,
        r#"{"role":"user","content":[{"type":"text","text":"Look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},"#,
        r#"{"role":"assistant","content":"I look.","reasoning_content":"hm","tool_calls":["#,
        r#"{"id":"wire_1","type":"function","function":{"name":"read","arguments":"{\"b\":1,\"a\":2}"},"extra_content":{"s":1}},"#,
        r#"{"id":"call_2","type":"function","function":{"name":"read","arguments":"{}"}}]},"#,
        r#"{"role":"tool","tool_call_id":"wire_1","content":"done"},"#,
        r#"{"role":"tool","tool_call_id":"call_2","content":"no"},"#,
        r#"{"role":"user","content":[{"type":"text","text":"Attached media from tool result:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},"#,
        r#"{"role":"user","content":"Thanks\n\nGo on"}]}"#,
    );
    assert_eq!(std::str::from_utf8(&call.body).unwrap(), expected);
}

#[test]
fn request_extends_previous_one() {
    let target = RequestTarget {
        base_url: "http://h".into(),
        ..RequestTarget::default()
    };
    let all = conversation();
    let mut before: Option<Vec<u8>> = None;
    for n in 1..=all.len() {
        let bytes = Chat
            .encode(
                &request(model(), all[..n].to_vec()),
                &target,
                &RequestOptions::default(),
            )
            .unwrap()
            .body;
        assert_eq!(
            bytes,
            Chat.encode(
                &request(model(), all[..n].to_vec()),
                &target,
                &RequestOptions::default()
            )
            .unwrap()
            .body
        );
        if let Some(before) = before {
            assert!(
                bytes.starts_with(&before[..before.len() - 2]),
                "request {n}"
            );
        }
        before = Some(bytes.to_vec());
    }
}

#[test]
fn request_follows_server_and_model() {
    let openai = RequestTarget {
        provider: "openai".into(),
        base_url: "https://api.openai.com/v1".into(),
        ..RequestTarget::default()
    };
    let mut sample = request(
        model(),
        vec![ModelMessage::User(vec![ModelInput::Text("hi".into())])],
    );
    sample.must_call = true;
    let request_options = RequestOptions {
        max_output: Some(8000),
        temperature: Some(0.5),
        options: single_entry("reasoningEffort", "high"),
        ..RequestOptions::default()
    };
    let sent = body_with(&sample, &openai, &request_options);
    assert_eq!(sent["max_completion_tokens"], 8000);
    assert_eq!(sent["prompt_cache_key"], "ses_1");
    assert_eq!(sent["temperature"], 0.5);
    assert_eq!(sent["tool_choice"], "required");
    assert_eq!(sent["reasoning_effort"], "high");

    let mistral = RequestTarget {
        provider: "mistral".into(),
        base_url: "https://h".into(),
        ..RequestTarget::default()
    };
    let sent = body(&request(model(), conversation()), &mistral);
    assert_eq!(sent["messages"][2]["tool_calls"][0]["id"], "wire10000");
    assert_eq!(
        sent["messages"][5],
        json!({"role": "assistant", "content": "Done."})
    );
    let roles: Vec<&str> = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert!(
        !roles.windows(2).any(|pair| pair == ["tool", "user"]),
        "{roles:?}"
    );

    let claude = Model {
        api_id: "anthropic/claude-x".into(),
        ..model()
    };
    let mut sample = request(claude, conversation());
    sample.tools.clear();
    let sent = body(
        &sample,
        &RequestTarget {
            provider: "openrouter".into(),
            base_url: "https://h".into(),
            ..RequestTarget::default()
        },
    );
    assert_eq!(sent["tools"][0]["function"]["name"], "_noop");
    assert_eq!(sent["tool_choice"], "none");
    assert_eq!(
        sent["messages"][0]["content"][0]["cache_control"]["type"],
        "ephemeral"
    );
    assert_eq!(
        sent["messages"][6]["content"][1]["cache_control"]["type"],
        "ephemeral"
    );
    assert_eq!(
        sent["messages"]
            .to_string()
            .matches("cache_control")
            .count(),
        3
    );

    let mut sample = request(model(), conversation());
    sample.tools.clear();
    assert_eq!(body(&sample, &openai).get("tools"), None);
}

#[test]
fn unsupported_attachment_is_replaced_by_text() {
    let blind = Model {
        images: false.into(),
        ..model()
    };
    let files = ["image/png", "application/pdf", "audio/mpeg"].map(|mime| {
        ModelInput::File(Attachment {
            mime: mime.into(),
            data: "AA".into(),
            name: Some("f".into()),
        })
    });
    let sent = body(
        &request(blind, vec![ModelMessage::User(files.to_vec())]),
        &RequestTarget {
            base_url: "http://h".into(),
            ..RequestTarget::default()
        },
    );
    for i in 0..3 {
        let text = sent["messages"][1]["content"][i]["text"].as_str().unwrap();
        assert!(
            text.starts_with("ERROR: \"f\" could not be attached"),
            "{text}"
        );
    }
    let sighted = Model {
        pdf: true,
        audio: true,
        ..model()
    };
    let sent = body(
        &request(sighted, vec![ModelMessage::User(files.to_vec())]),
        &RequestTarget {
            base_url: "http://h".into(),
            ..RequestTarget::default()
        },
    );
    assert_eq!(
        sent["messages"][1]["content"][1]["file"]["file_data"],
        "data:application/pdf;base64,AA"
    );
    assert_eq!(
        sent["messages"][1]["content"][2]["input_audio"],
        json!({"data": "AA", "format": "mp3"})
    );
}

#[test]
fn finish_is_the_last_delta() {
    let mut decoder = Chat.decoder(&RequestTarget::default());
    let mut out = Vec::new();
    decoder.decode("", STOP, &mut out).unwrap();
    decoder
        .decode(
            "",
            r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#,
            &mut out,
        )
        .unwrap();
    decoder.end(&mut out).unwrap();
    decoder.end(&mut out).unwrap();
    assert!(matches!(
        out.as_slice(),
        [Delta::Usage(_), Delta::Finish(Finish::Stop)]
    ));
}
