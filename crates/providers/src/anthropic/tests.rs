use std::sync::Arc;

use super::encode::MIN_BYTES_PER_TOKEN;
use super::*;
use crate::delta::lines;
use crate::request::{
    Attachment, BodyCache, CallResult, ModelInput, ModelMessage, ModelOutput, ModelParams, ToolSpec,
};
use crate::secret::Secret;
use crate::sse::Flow;
use transcript::ModelRef;

fn read(events: &[Value]) -> Result<String, Error> {
    let mut decoder = Messages.decoder(&RequestTarget {
        name: "Acme".into(),
        ..RequestTarget::default()
    });
    let mut out = Vec::new();
    for event in events {
        if decoder.decode("", &event.to_string(), &mut out)? == Flow::Done {
            return Ok(lines(&out));
        }
    }
    decoder.end(&mut out)?;
    Ok(lines(&out))
}

fn start(index: usize, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: usize, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(index: usize) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn finish(reason: &str) -> Vec<Value> {
    vec![
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 50}}),
        json!({"type": "message_stop"}),
    ]
}

/// An answer with most kinds of blocks (thinking, text, redacted thinking, calls) and an unknown
/// event.
fn everything() -> Vec<Value> {
    let mut events = vec![
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 100, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 30, "output_tokens": 1}}}),
        json!({"type": "ping"}),
        start(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
        delta(0, json!({"type": "thinking_delta", "thinking": "hm "})),
        delta(0, json!({"type": "thinking_delta", "thinking": "so"})),
        delta(0, json!({"type": "signature_delta", "signature": "SIG=="})),
        stop(0),
        start(1, json!({"type": "text", "text": ""})),
        delta(
            1,
            json!({"type": "text_delta", "text": "I look \"there\"."}),
        ),
        delta(
            1,
            json!({"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "x"}}),
        ),
        stop(1),
        start(2, json!({"type": "redacted_thinking", "data": "ENC"})),
        stop(2),
        start(
            3,
            json!({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}),
        ),
        delta(
            3,
            json!({"type": "input_json_delta", "partial_json": "{\"q\":"}),
        ),
        delta(3, json!({"type": "input_json_delta", "partial_json": "1}"})),
        stop(3),
        start(
            4,
            json!({"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"a": 1}]}),
        ),
        stop(4),
        json!({"type": "something_new", "index": 9, "delta": {"type": "odd_delta"}}),
        start(
            5,
            json!({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}),
        ),
        delta(5, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(
            5,
            json!({"type": "input_json_delta", "partial_json": "{\"p\": \"a"}),
        ),
        delta(
            5,
            json!({"type": "input_json_delta", "partial_json": "b\"}"}),
        ),
        stop(5),
        start(
            6,
            json!({"type": "tool_use", "id": "toolu_2", "name": "list", "input": {"whole": true}}),
        ),
        stop(6),
    ];
    events.extend(finish("tool_use"));
    events
}

#[test]
fn answer_with_every_block_is_decoded_in_order() {
    let expected = [
        r#"0 reasoning hm so"#,
        r#"0 provider {"signature":"SIG=="}"#,
        r#"1 text I look "there"."#,
        r#"1 provider {"citations":[{"type":"char_location","cited_text":"x"}]}"#,
        r#"2 reasoning "#,
        r#"2 provider {"redacted":"ENC"}"#,
        r#"3 reasoning "#,
        r#"3 provider {"block":{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{"q":1}}}"#,
        r#"4 reasoning "#,
        r#"4 provider {"block":{"type":"web_search_tool_result","tool_use_id":"srv_1","content":[{"a":1}]}}"#,
        r#"5 call toolu_1 read {"p": "ab"}"#,
        r#"6 call toolu_2 list {"whole":true}"#,
        "usage 100 50 0 900 30",
        "finish ToolCalls",
    ];
    assert_eq!(
        read(&everything()).unwrap().lines().collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn stop_reasons_and_errors_end_answer() {
    let text = [start(0, json!({"type": "text", "text": "x"})), stop(0)];
    for (reason, expected) in [
        ("end_turn", "Stop"),
        ("stop_sequence", "Stop"),
        ("max_tokens", "Length"),
        ("model_context_window_exceeded", "Length"),
        ("refusal", "Refusal"),
        ("pause_turn", "Other"),
    ] {
        let events = [text.to_vec(), finish(reason)].concat();
        assert!(
            read(&events)
                .unwrap()
                .ends_with(&format!("finish {expected}")),
            "{reason}"
        );
        // The finish reason suffices, even if the last event is missing.
        assert!(
            read(&events[..3])
                .unwrap()
                .ends_with(&format!("finish {expected}")),
            "{reason}"
        );
    }
    assert!(matches!(read(&text), Err(Error::InvalidAnswer(_))));
    assert!(matches!(read(&[]), Err(Error::InvalidAnswer(_))));
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "m"}});
    assert!(matches!(
        read(&[text[0].clone(), error("overloaded_error")]),
        Err(Error::Overloaded { .. })
    ));
    assert!(matches!(
        read(&[error("rate_limit_error")]),
        Err(Error::RateLimited { .. })
    ));
    assert!(matches!(
        read(&[json!("half")]),
        Err(Error::InvalidAnswer(_))
    ));
    let whole = json!({"type": "message", "content": [{"type": "text", "text": "all"}, {"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1}}], "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2}});
    assert_eq!(
        read(&[whole]).unwrap(),
        "0 text all\n1 call t n {\"a\":1}\nusage 1 2 0 0 0\nfinish ToolCalls"
    );
}

fn model() -> Model {
    let id = ModelRef {
        provider: "anthropic".into(),
        model: "claude-sonnet-4-5".into(),
        effort: None,
    };
    Model {
        output: Some(64_000),
        pdf: true,
        reasoning: true,
        ..Model::unknown(id)
    }
}

fn request(messages: Vec<ModelMessage>) -> Request {
    Request {
        model: Arc::new(model()),
        system: vec![
            "Be brief.".into(),
            "Middle.".into(),
            "The day is Monday.".into(),
        ],
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
    let file = |mime: &str| Attachment {
        mime: mime.into(),
        data: "AAAA".into(),
        name: Some("f".into()),
    };
    let text = |text: &str| ModelOutput::Text {
        text: text.into(),
        provider: Map::new(),
    };
    vec![
        ModelMessage::User(vec![
            ModelInput::Text("Look".into()),
            ModelInput::Text(" ".into()),
            ModelInput::File(file("application/pdf")),
        ]),
        ModelMessage::Assistant(vec![
            ModelOutput::Reasoning {
                text: "hm".into(),
                provider: single_entry("signature", "SIG=="),
            },
            ModelOutput::Reasoning {
                text: String::new(),
                provider: single_entry("redacted", "ENC"),
            },
            text("I look."),
            ModelOutput::Reasoning {
                text: String::new(),
                provider: single_entry("block", json!({"type": "new", "z": 1, "a": 2})),
            },
            ModelOutput::Reasoning {
                text: "unsigned".into(),
                provider: Map::new(),
            },
            ModelOutput::Call {
                id: "call_1".into(),
                provider_id: Some("a.b:c".into()),
                name: "read".into(),
                arguments: json!({"b": 1, "a": 2}).into(),
                provider: Map::new(),
            },
        ]),
        ModelMessage::Results(vec![CallResult {
            id: "call_1".into(),
            provider_id: None,
            name: "read".into(),
            text: "no".into(),
            failed: true,
            attachments: vec![file("image/png")],
        }]),
        ModelMessage::User(vec![ModelInput::Text("Go on".into())]),
    ]
}

fn target() -> RequestTarget {
    RequestTarget {
        provider: "anthropic".into(),
        base_url: "http://h/v1".into(),
        key: Some(Secret::new("k")),
        headers: vec![(
            "anthropic-beta".into(),
            "mine-1, interleaved-thinking-2025-05-14".into(),
        )],
        ..RequestTarget::default()
    }
}

fn encode(request: &Request, options: Value) -> Value {
    let Value::Object(options) = options else {
        panic!()
    };
    let request_options = RequestOptions {
        max_output: Some(32_000),
        temperature: Some(0.5),
        options,
        ..RequestOptions::default()
    };
    serde_json::from_slice(
        &Messages
            .encode(request, &target(), &request_options)
            .unwrap()
            .body,
    )
    .unwrap()
}

#[test]
fn conversation_is_encoded() {
    let call = Messages
        .encode(
            &request(conversation()),
            &target(),
            &RequestOptions::default(),
        )
        .unwrap();
    assert_eq!(call.url, "http://h/v1/messages");
    let header = |name: &str| {
        call.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    };
    assert_eq!(header("x-api-key"), Some("k"));
    assert_eq!(header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(
        header("anthropic-beta"),
        Some("interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14,mine-1")
    );
    let expected = concat!(
        r#"{"model":"claude-sonnet-4-5","stream":true,"max_tokens":32000,"#,
        r#""tools":[{"name":"read","description":"Reads.","input_schema":{"type":"object"}}],"#,
        r#""system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}},{"type":"text","text":"Middle.","cache_control":{"type":"ephemeral"}},{"type":"text","text":"The day is Monday."}],"#,
        r#""messages":[{"role":"user","content":[{"type":"text","text":"Look"},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"},"title":"f"}]},"#,
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"SIG=="},{"type":"redacted_thinking","data":"ENC"},{"type":"text","text":"I look."},{"type":"new","z":1,"a":2},{"type":"tool_use","id":"a_b_c","name":"read","input":{"b":1,"a":2},"cache_control":{"type":"ephemeral"}}]},"#,
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a_b_c","content":[{"type":"text","text":"no"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}],"is_error":true},{"type":"text","text":"Go on","cache_control":{"type":"ephemeral"}}]}]}"#,
    );
    assert_eq!(std::str::from_utf8(&call.body).unwrap(), expected);
}

#[test]
fn request_without_cache_control_extends_previous_one() {
    let quiet = RequestTarget {
        cache_key: Some(false),
        ..target()
    };
    let all = conversation();
    let body = |n: usize| {
        Messages
            .encode(
                &request(all[..n].to_vec()),
                &quiet,
                &RequestOptions::default(),
            )
            .unwrap()
            .body
    };
    for n in 2..=3 {
        let before = body(n - 1);
        assert!(body(n).starts_with(&before[..before.len() - 2]), "{n}");
    }
}

#[test]
fn options_that_request_forbids_are_removed() {
    let simple = request(vec![ModelMessage::User(vec![ModelInput::Text(
        "hi".into(),
    )])]);
    let plain = encode(&simple, json!({"sendReasoning": true}));
    assert_eq!(
        (&plain["temperature"], plain.get("sendReasoning")),
        (&json!(0.5), None)
    );

    let thinks = encode(
        &simple,
        json!({"thinking": {"type": "enabled", "budgetTokens": 16000}}),
    );
    assert_eq!(
        thinks["thinking"],
        json!({"type": "enabled", "budget_tokens": 16000})
    );
    assert_eq!(
        (&thinks["max_tokens"], thinks.get("temperature")),
        (&json!(48_000), None)
    );
    assert_eq!(
        encode(&simple, json!({"effort": "low"}))["output_config"]["effort"],
        "low"
    );
    assert_eq!(
        encode(&simple, json!({"cacheTtl": "1h"}))["system"][0]["cache_control"]["ttl"],
        "1h"
    );

    let mut forced = simple.clone();
    forced.must_call = true;
    let sent = encode(&forced, json!({"thinking": {"type": "adaptive"}}));
    assert_eq!(
        (&sent["tool_choice"]["type"], sent.get("thinking")),
        (&json!("any"), None)
    );

    // Thinking cannot begin in the middle of a sequence of calls that were made without it.
    let mut amid = conversation();
    amid.pop();
    let ModelMessage::Assistant(outputs) = &mut amid[1] else {
        panic!()
    };
    outputs.drain(..2);
    assert_eq!(
        encode(
            &request(amid),
            json!({"thinking": {"type": "enabled", "budget_tokens": 2000}})
        )
        .get("thinking"),
        None
    );

    let mut bare = request(conversation());
    bare.tools.clear();
    let sent = encode(&bare, json!({}));
    assert_eq!(
        (&sent["tools"][0]["name"], &sent["tool_choice"]["type"]),
        (&json!("_noop"), &json!("none"))
    );
}

#[test]
fn vertex_has_the_model_in_the_path() {
    let base =
        "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/anthropic";
    let vertex = RequestTarget {
        base_url: base.into(),
        ..RequestTarget::default()
    };
    let request = request(conversation());
    let call = Messages
        .encode(&request, &vertex, &RequestOptions::default())
        .unwrap();
    let sent: Value = serde_json::from_slice(&call.body).unwrap();
    assert_eq!(
        call.url,
        format!("{base}/models/claude-sonnet-4-5:streamRawPredict")
    );
    assert_eq!(
        (sent.get("model"), &sent["anthropic_version"]),
        (None, &json!("vertex-2023-10-16"))
    );
}

#[test]
fn input_and_output_fit_into_the_window() {
    const USUAL_BYTES_PER_TOKEN: usize = 4;
    let sent = |bytes: usize, context: Option<u64>| {
        let mut request = request(vec![ModelMessage::User(vec![ModelInput::Text(
            "x".repeat(bytes).into(),
        )])]);
        request.params.max_output = 32_000;
        request.model = Model {
            context,
            output: Some(64_000),
            ..model()
        }
        .into();
        encode(
            &request,
            json!({"thinking": {"type": "enabled", "budget_tokens": 16_000}}),
        )["max_tokens"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(sent(10, Some(200_000)), 48_000);
    assert_eq!(sent(10, None), 48_000);
    // Close to the size at which it is compacted: 168,000 tokens.
    assert_eq!(sent(USUAL_BYTES_PER_TOKEN * 167_000, Some(200_000)), 32_000);
    // `max_tokens` stays the same from step to step for as long as possible, so that the requests
    // have the same first bytes.
    assert_eq!(sent(MIN_BYTES_PER_TOKEN * 151_000, Some(200_000)), 48_000);
    assert_eq!(sent(MIN_BYTES_PER_TOKEN * 153_000, Some(200_000)), 32_000);
}

#[test]
fn efforts_follow_model_version() {
    for (id, version, efforts) in [
        ("claude-3-7-sonnet-20250219", Some((3, 7)), "high max"),
        ("claude-sonnet-4-20250514", Some((4, 0)), "high max"),
        ("claude-opus-4-5-20251101", Some((4, 5)), "low medium high"),
        (
            "anthropic/claude-opus-4.6",
            Some((4, 6)),
            "low medium high max",
        ),
        (
            "us.anthropic.claude-opus-4-7-v1:0",
            Some((4, 7)),
            "low medium high xhigh max",
        ),
        (
            "eu.anthropic.claude-sonnet-4-20250514-v1:0",
            Some((4, 0)),
            "high max",
        ),
        (
            "anthropic.claude-3-5-sonnet-20241022-v2:0",
            Some((3, 5)),
            "high max",
        ),
        ("anthropic.claude-v2:1", Some((2, 1)), "high max"),
        ("claude-opus-5", Some((5, 0)), "low medium high xhigh max"),
        ("MiniMax-M2", None, "high max"),
    ] {
        let named = Model {
            api_id: id.into(),
            ..model()
        };
        assert_eq!(claude_version(id), version, "{id}");
        assert_eq!(Messages.efforts(&named).join(" "), efforts, "{id}");
    }
    let effort = |id: &str, effort: &str| {
        Value::Object(Messages.effort(
            &Model {
                api_id: id.into(),
                ..model()
            },
            &target(),
            effort,
        ))
    };
    assert_eq!(
        effort("claude-sonnet-4-5", "high"),
        json!({"thinking": {"type": "enabled", "budget_tokens": 16000}})
    );
    assert_eq!(
        effort("claude-opus-4-6", "max"),
        json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}})
    );
}

#[test]
fn search_results_and_citations_are_found_pages() {
    let result = |url: &str| json!({"type": "web_search_result", "title": "T", "url": url, "page_age": "May"});
    let cited = json!({"type": "web_search_result_location", "title": "T", "url": "u1", "cited_text": "words"});
    let mut events = vec![
        start(
            0,
            json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [result("u1"), result("u2")]}),
        ),
        stop(0),
        start(
            1,
            json!({"type": "web_search_tool_result", "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"}}),
        ),
        stop(1),
        start(2, json!({"type": "text", "text": "So."})),
        delta(2, json!({"type": "citations_delta", "citation": cited})),
        stop(2),
    ];
    events.extend(finish("end_turn"));
    let deltas = read(&events).unwrap();
    let found: Vec<&str> = deltas
        .lines()
        .filter(|line| line.starts_with("found"))
        .collect();
    assert_eq!(
        found,
        [
            r#"found T <u1> "May" """#,
            r#"found T <u2> "May" """#,
            r#"found T <u1> "" "words""#
        ],
        "{deltas}"
    );
}

#[test]
fn search_requires_recent_model() {
    for (id, wanted) in [
        ("claude-sonnet-4-5", true),
        ("claude-3-5-haiku-latest", true),
        ("claude-3-opus", false),
        ("kimi", false),
    ] {
        assert_eq!(can_search_web(id), wanted, "{id}");
    }
    let mut request = request(vec![ModelMessage::User(vec![ModelInput::Text("x".into())])]);
    (request.tools, request.params.search) = (Vec::new(), true);
    let tools = encode(&request, json!({}))["tools"].clone();
    assert_eq!(
        tools,
        json!([{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}])
    );
}
