use std::sync::Arc;

use super::*;
use crate::delta::lines;
use crate::request::{
    Attachment, BodyCache, CallResult, ModelInput, ModelMessage, ModelOutput, ModelParams, ToolSpec,
};
use crate::secret::Secret;
use crate::sse::Flow;
use crate::wire_format::single_entry;
use transcript::ModelRef;

fn read(events: &[Value]) -> Result<String, Error> {
    let mut decoder = Responses.decoder(&RequestTarget {
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

fn event(kind: &str, output: u64, rest: Value) -> Value {
    let mut event =
        json!({"type": format!("response.{kind}"), "sequence_number": 1, "output_index": output});
    crate::wire_format::merge(&mut event, &rest);
    event
}

fn completed(rest: Value) -> Value {
    let mut response = json!({"object": "response", "status": "completed", "output": [], "usage": {"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 900}, "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 30}}});
    crate::wire_format::merge(&mut response, &rest);
    json!({"type": "response.completed", "response": response})
}

fn everything() -> Vec<Value> {
    let reasoning = json!({"id": "rs_1", "type": "reasoning", "status": null, "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}], "encrypted_content": "ENC"});
    let call = json!({"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1", "name": "read", "arguments": "{\"p\":1}"});
    let second = json!({"id": "fc_2", "type": "function_call", "call_id": "call_2", "name": "list", "arguments": "{}"});
    vec![
        json!({"type": "response.created", "response": {"status": "in_progress"}}),
        event(
            "output_item.added",
            0,
            json!({"item": {"id": "rs_1", "type": "reasoning", "summary": []}}),
        ),
        event(
            "reasoning_summary_text.delta",
            0,
            json!({"summary_index": 0, "delta": "a"}),
        ),
        event(
            "reasoning_summary_text.delta",
            0,
            json!({"summary_index": 1, "delta": "b"}),
        ),
        event("output_item.done", 0, json!({"item": reasoning})),
        event(
            "output_item.added",
            1,
            json!({"item": {"type": "message", "content": []}}),
        ),
        event(
            "output_text.delta",
            1,
            json!({"content_index": 0, "delta": "I "}),
        ),
        event(
            "output_text.delta",
            1,
            json!({"content_index": 0, "delta": "look."}),
        ),
        event("output_text.done", 1, json!({"text": "I look."})),
        event(
            "output_item.done",
            1,
            json!({"item": {"type": "message", "id": "msg_1", "phase": "commentary", "content": [{"type": "output_text", "text": "I look."}]}}),
        ),
        event("web_search_call.searching", 2, json!({})),
        event(
            "output_item.done",
            2,
            json!({"item": {"type": "web_search_call", "id": "ws_1", "action": {"q": 1}}}),
        ),
        event(
            "output_item.added",
            3,
            json!({"item": {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": ""}}),
        ),
        event(
            "function_call_arguments.delta",
            3,
            json!({"delta": "{\"p\""}),
        ),
        event("function_call_arguments.delta", 3, json!({"delta": ":1}"})),
        event(
            "function_call_arguments.done",
            3,
            json!({"arguments": "{\"p\":1}"}),
        ),
        event("output_item.done", 3, json!({"item": call})),
        event("output_item.done", 4, json!({"item": second})),
        completed(json!({})),
    ]
}

#[test]
fn answer_with_every_item_is_decoded_in_order() {
    let expected = [
        r"0 reasoning a\n\nb",
        r#"0 provider {"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"a"},{"type":"summary_text","text":"b"}],"encrypted_content":"ENC"}}"#,
        "1 text I look.",
        r#"1 provider {"id":"msg_1","phase":"commentary"}"#,
        "2 reasoning ",
        r#"2 provider {"item":{"type":"web_search_call","id":"ws_1","action":{"q":1}}}"#,
        r#"3 call call_1 read {"p":1}"#,
        r#"3 provider {"id":"fc_1"}"#,
        "4 call call_2 list {}",
        r#"4 provider {"id":"fc_2"}"#,
        "usage 100 20 30 900 0",
        "finish ToolCalls",
    ];
    assert_eq!(
        read(&everything()).unwrap().lines().collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn finish_reasons_and_errors_end_answer() {
    let text = event("output_text.delta", 0, json!({"delta": "x"}));
    let with = |last: Value| read(&[text.clone(), last]);
    assert!(with(completed(json!({}))).unwrap().ends_with("finish Stop"));
    let incomplete = |reason: &str| {
        completed(json!({"status": "incomplete", "incomplete_details": {"reason": reason}}))
    };
    assert!(
        with(incomplete("max_output_tokens"))
            .unwrap()
            .ends_with("finish Length")
    );
    assert!(
        with(incomplete("content_filter"))
            .unwrap()
            .ends_with("finish Refusal")
    );
    let refusal = [
        event("refusal.delta", 0, json!({"delta": "No."})),
        completed(json!({})),
    ];
    assert_eq!(
        read(&refusal).unwrap(),
        "0 text No.\n0 provider {\"refusal\":true}\nusage 100 20 30 900 0\nfinish Refusal"
    );
    let failed = |code: &str| {
        completed(json!({"status": "failed", "error": {"code": code, "message": "m"}}))
    };
    assert!(matches!(
        with(failed("rate_limit_exceeded")),
        Err(Error::RateLimited { .. })
    ));
    assert!(matches!(
        with(failed("server_error")),
        Err(Error::Overloaded { .. })
    ));
    assert!(matches!(
        with(failed("context_length_exceeded")),
        Err(Error::ContextOverflow(_))
    ));
    assert!(matches!(
        with(failed("insufficient_quota")),
        Err(Error::Quota(_))
    ));
    assert!(matches!(
        with(json!({"type": "error", "code": "server_is_overloaded", "message": "m"})),
        Err(Error::Overloaded { .. })
    ));
    assert!(matches!(
        with(json!({"type": "error", "error": {"type": "invalid_request_error", "message": "m"}})),
        Err(Error::BadRequest(_))
    ));
    assert!(matches!(
        read(std::slice::from_ref(&text)),
        Err(Error::InvalidAnswer(_))
    ));
    assert!(matches!(with(json!(7)), Err(Error::InvalidAnswer(_))));
    // The whole answer at once, with and without streaming.
    let output = json!({"output": [{"type": "message", "content": [{"type": "output_text", "text": "all"}]}, {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}]});
    let whole = completed(output)["response"].clone();
    assert_eq!(
        read(&[whole]).unwrap(),
        "0 text all\n1 call c n {}\nusage 100 20 30 900 0\nfinish ToolCalls"
    );
}

fn request(messages: Vec<ModelMessage>) -> Request {
    let id = ModelRef {
        provider: "openai".into(),
        model: "gpt-5".into(),
        effort: None,
    };
    Request {
        model: Arc::new(Model {
            reasoning: true,
            pdf: true,
            ..Model::unknown(id)
        }),
        system: vec!["Be brief.".into(), "The day is Monday.".into()],
        messages,
        tools: vec![ToolSpec {
            name: "read".into(),
            description: "Reads.".into(),
            schema: json!({"type": "object"}).into(),
        }],
        must_call: false,
        params: ModelParams::default(),
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
    let item = |item: Value| ModelOutput::Reasoning {
        text: String::new(),
        provider: single_entry("item", item),
    };
    vec![
        ModelMessage::User(vec![
            ModelInput::Text("Look".into()),
            ModelInput::File(file("application/pdf")),
        ]),
        ModelMessage::Assistant(vec![
            item(
                json!({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "ENC"}),
            ),
            ModelOutput::Text {
                text: "I look.".into(),
                provider: Map::from_iter([
                    ("id".to_owned(), "msg_1".into()),
                    ("phase".to_owned(), "commentary".into()),
                ]),
            },
            ModelOutput::Call {
                id: "call_1".into(),
                provider_id: Some("wire_1".into()),
                name: "read".into(),
                arguments: json!({"b": 1, "a": 2}).into(),
                provider: single_entry("id", "fc_1"),
            },
        ]),
        ModelMessage::Results(vec![CallResult {
            id: "call_1".into(),
            provider_id: None,
            name: "read".into(),
            text: "done".into(),
            failed: false,
            attachments: vec![file("image/png")],
        }]),
        ModelMessage::Assistant(vec![
            ModelOutput::Text {
                text: "No.".into(),
                provider: Map::from_iter([
                    ("id".to_owned(), "msg_2".into()),
                    ("refusal".to_owned(), true.into()),
                ]),
            },
            // Of a server whose ids it does not accept itself.
            ModelOutput::Text {
                text: "Or so.".into(),
                provider: single_entry("id", "m".repeat(65)),
            },
        ]),
        ModelMessage::User(vec![ModelInput::Text("Go on".into())]),
    ]
}

fn target() -> RequestTarget {
    RequestTarget {
        base_url: "http://h/v1".into(),
        key: Some(Secret::new("k")),
        ..RequestTarget::default()
    }
}

#[test]
fn conversation_is_encoded_and_extends_previous_one() {
    let call = Responses
        .encode(
            &request(conversation()),
            &target(),
            &RequestOptions::default(),
        )
        .unwrap();
    assert_eq!(call.url, "http://h/v1/responses");
    assert_eq!(call.headers, [("authorization".into(), "Bearer k".into())]);
    let expected = concat!(
        r#"{"model":"gpt-5","stream":true,"store":false,"include":["reasoning.encrypted_content"],"reasoning":{"summary":"auto"},"#,
        r#""instructions":"Be brief.\n\nThe day is Monday.","tools":[{"type":"function","name":"read","description":"Reads.","parameters":{"type":"object"},"strict":false}],"#,
        r#""input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Look"},{"type":"input_file","filename":"f","file_data":"data:application/pdf;base64,AAAA"}]},"#,
        r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"ENC"},"#,
        r#"{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"I look.","annotations":[]}],"phase":"commentary"},"#,
        r#"{"type":"function_call","id":"fc_1","call_id":"wire_1","name":"read","arguments":"{\"b\":1,\"a\":2}","status":"completed"},"#,
        r#"{"type":"function_call_output","call_id":"wire_1","output":[{"type":"input_text","text":"done"},{"type":"input_image","detail":"auto","image_url":"data:image/png;base64,AAAA"}]},"#,
        r#"{"type":"message","id":"msg_2","role":"assistant","status":"completed","content":[{"type":"refusal","refusal":"No."}]},"#,
        r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Or so.","annotations":[]}]},"#,
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"Go on"}]}]}"#,
    );
    assert_eq!(std::str::from_utf8(&call.body).unwrap(), expected);
    let all = conversation();
    for n in 2..=all.len() {
        let body = |n: usize| {
            Responses
                .encode(
                    &request(all[..n].to_vec()),
                    &target(),
                    &RequestOptions::default(),
                )
                .unwrap()
                .body
        };
        let before = body(n - 1);
        assert!(body(n).starts_with(&before[..before.len() - 2]), "{n}");
    }
}

#[test]
fn ids_are_sent_if_the_provider_can_use_them() {
    let reasoning = |id: &str, encrypted: Value| ModelOutput::Reasoning {
        text: String::new(),
        provider: single_entry(
            "item",
            json!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": encrypted}),
        ),
    };
    let long = "r".repeat(65);
    // The reasoning, whether items are stored; whether it is sent, and which ids are.
    let table = [
        (
            "complete",
            reasoning("rs_1", "ENC".into()),
            false,
            true,
            vec!["rs_1", "msg_1", "fc_1"],
        ),
        (
            "not encrypted",
            reasoning("rs_1", Value::Null),
            false,
            false,
            vec![],
        ),
        (
            "in the store",
            reasoning("rs_1", Value::Null),
            true,
            true,
            vec!["rs_1", "msg_1", "fc_1"],
        ),
        (
            "long id",
            reasoning(&long, "ENC".into()),
            false,
            true,
            vec![],
        ),
        (
            "long id in the store",
            reasoning(&long, "ENC".into()),
            true,
            true,
            vec![],
        ),
        (
            "useless",
            reasoning(&long, Value::Null),
            true,
            false,
            vec![],
        ),
    ];
    for (name, reasoning, is_stored, is_sent, ids) in table {
        let answer = ModelMessage::Assistant(vec![
            reasoning,
            ModelOutput::Text {
                text: "I look.".into(),
                provider: single_entry("id", "msg_1"),
            },
            ModelOutput::Call {
                id: "call_1".into(),
                provider_id: None,
                name: "read".into(),
                arguments: json!({}).into(),
                provider: single_entry("id", "fc_1"),
            },
        ]);
        let request_options = RequestOptions {
            options: single_entry("store", is_stored),
            ..RequestOptions::default()
        };
        let call = Responses
            .encode(&request(vec![answer]), &target(), &request_options)
            .unwrap();
        let sent: Value = serde_json::from_slice(&call.body).unwrap();
        let items = sent["input"].as_array().unwrap();
        let found: Vec<&str> = items
            .iter()
            .filter_map(|item| item["id"].as_str())
            .collect();
        assert_eq!(found, ids, "{name}");
        assert_eq!(items.len(), if is_sent { 3 } else { 2 }, "{name}");
    }
}

#[test]
fn options_are_nested() {
    let options = json!({"reasoningEffort": "high", "textVerbosity": "low", "serviceTier": "flex", "store": true, "input": []});
    let Value::Object(options) = options else {
        panic!()
    };
    let request_options = RequestOptions {
        options,
        temperature: Some(0.1),
        max_output: Some(100),
        ..RequestOptions::default()
    };
    let mut request = request(vec![ModelMessage::User(vec![ModelInput::Text(
        "hi".into(),
    )])]);
    request.must_call = true;
    let sent: Value = serde_json::from_slice(
        &Responses
            .encode(&request, &target(), &request_options)
            .unwrap()
            .body,
    )
    .unwrap();
    assert_eq!(
        sent["reasoning"],
        json!({"summary": "auto", "effort": "high"})
    );
    assert_eq!(sent["text"], json!({"verbosity": "low"}));
    assert_eq!(
        (&sent["service_tier"], &sent["store"], &sent["tool_choice"]),
        (&json!("flex"), &json!(true), &json!("required"))
    );
    assert_eq!(
        (
            sent.get("temperature"),
            &sent["max_output_tokens"],
            sent.get("reasoningEffort")
        ),
        (None, &json!(100), None)
    );
    assert_eq!(sent["input"].as_array().unwrap().len(), 1);
}

#[test]
fn efforts_follow_model_version() {
    for (id, expected) in [
        ("gpt-5", "minimal low medium high"),
        ("gpt-5-codex", "low medium high"),
        ("gpt-5.1", "none low medium high"),
        ("gpt-5.1-codex-max", "low medium high xhigh"),
        ("openai/gpt-5.2", "none low medium high xhigh"),
        ("gpt-5.2-pro", "medium high xhigh"),
        ("o3", "low medium high"),
    ] {
        let model = Model {
            api_id: id.into(),
            ..Model::unknown(ModelRef::parse("a/b").unwrap())
        };
        assert_eq!(Responses.efforts(&model).join(" "), expected, "{id}");
    }
    assert_eq!(
        Value::Object(Responses.effort(
            &Model::unknown(ModelRef::parse("a/b").unwrap()),
            &target(),
            "low"
        )),
        json!({"reasoning": {"effort": "low", "summary": "auto"}})
    );
}

#[test]
fn search_requires_recent_model() {
    let table = [
        ("gpt-5.2", true),
        ("gpt-4o", true),
        ("o3", true),
        ("gpt-4.1-nano", false),
        ("gpt-3.5-turbo", false),
    ];
    for (id, wanted) in table {
        assert_eq!(can_search_web(id), wanted, "{id}");
    }
    // Some servers send a number in place of the title.
    let note = |title: &str| json!({"type": "url_citation", "title": title, "url": "u"});
    let content = json!([{"type": "output_text", "text": "x", "annotations": [note("T"), note("1"), {"type": "file_citation"}]}]);
    let item = event(
        "output_item.done",
        0,
        json!({"item": {"type": "message", "content": content}}),
    );
    let deltas = read(&[item, completed(json!({}))]).unwrap();
    assert!(
        deltas.contains("found T <u> \"\" \"\"\nfound  <u> \"\" \"\"\nusage"),
        "{deltas}"
    );
}
