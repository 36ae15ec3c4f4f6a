use std::sync::Arc;

use super::*;
use crate::delta::lines;
use crate::request::{
    Attachment, BodyCache, CallResult, ModelInput, ModelMessage, ModelOutput, ModelParams, ToolSpec,
};
use crate::secret::Secret;
use crate::sse::Flow;
use transcript::ModelRef;

fn read(events: &[Value]) -> Result<String, Error> {
    let mut decoder = Gemini.decoder(&RequestTarget {
        name: "Acme".into(),
        ..RequestTarget::default()
    });
    let mut out = Vec::new();
    for event in events {
        assert_eq!(
            decoder.decode("", &event.to_string(), &mut out)?,
            Flow::More
        );
    }
    decoder.end(&mut out)?;
    Ok(lines(&out))
}

fn parts(parts: Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]})
}

fn finish(reason: &str) -> Value {
    json!({"candidates": [{"finishReason": reason}], "usageMetadata": {"promptTokenCount": 1000, "cachedContentTokenCount": 900, "candidatesTokenCount": 20, "thoughtsTokenCount": 30, "totalTokenCount": 1050}})
}

#[test]
fn answer_with_every_part_is_decoded_in_order() {
    let events = [
        parts(json!([{"text": "h", "thought": true}])),
        parts(json!([{"text": "m", "thought": true}])),
        parts(json!([{"text": "I "}, {"text": "look."}])),
        parts(json!([{"text": "", "thoughtSignature": "S1"}])),
        parts(json!([{"executableCode": {"code": "1+1"}}])),
        parts(
            json!([{"functionCall": {"name": "read", "args": {"p": 1}}, "thoughtSignature": "S2"}, {"functionCall": {"id": "x", "name": "list"}}]),
        ),
        parts(json!([{"text": "", "thoughtSignature": "S3"}])),
        finish("STOP"),
    ];
    let expected = [
        "0 reasoning hm",
        "1 text I look.",
        r#"1 provider {"thoughtSignature":"S1"}"#,
        "2 reasoning ",
        r#"2 provider {"part":{"executableCode":{"code":"1+1"}}}"#,
        r#"3 call - read {"p":1}"#,
        r#"3 provider {"thoughtSignature":"S2"}"#,
        "4 call x list {}",
        "5 reasoning ",
        r#"5 provider {"thoughtSignature":"S3","plain":true}"#,
        "usage 100 20 30 900 0",
        "finish ToolCalls",
    ];
    assert_eq!(read(&events).unwrap().lines().collect::<Vec<_>>(), expected);
    assert_eq!(
        read(&[Value::Array(events.to_vec())])
            .unwrap()
            .lines()
            .collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn finish_reasons_and_errors_end_answer() {
    let text = parts(json!([{"text": "x"}]));
    for (reason, expected) in [
        ("STOP", "Stop"),
        ("MAX_TOKENS", "Length"),
        ("SAFETY", "Refusal"),
        ("LANGUAGE", "Other"),
    ] {
        assert!(
            read(&[text.clone(), finish(reason)])
                .unwrap()
                .ends_with(&format!("finish {expected}")),
            "{reason}"
        );
    }
    assert!(matches!(
        read(std::slice::from_ref(&text)),
        Err(Error::InvalidAnswer(_))
    ));
    assert!(matches!(
        read(&[text.clone(), finish("MALFORMED_FUNCTION_CALL")]),
        Err(Error::InvalidAnswer(_))
    ));
    assert_eq!(
        read(&[json!({"promptFeedback": {"blockReason": "SAFETY"}})]).unwrap(),
        "finish Refusal"
    );
    let error = json!({"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}});
    assert!(matches!(
        read(&[text, error]),
        Err(Error::Overloaded { .. })
    ));
}

fn request(model: &str, messages: Vec<ModelMessage>) -> Request {
    let id = ModelRef {
        provider: "google".into(),
        model: model.into(),
        effort: None,
    };
    Request {
        model: Arc::new(Model { reasoning: true, ..Model::unknown(id) }),
        system: vec!["Be brief.".into(), "The day is Monday.".into()],
        messages,
        tools: vec![ToolSpec {
            name: "read".into(),
            description: "Reads.".into(),
            schema: json!({"type": "object", "properties": {"p": {"type": "string"}}, "additionalProperties": false})
                .into(),
        }],
        must_call: false,
        params: ModelParams::default(),
        session: "ses_1".into(),
        body_cache: BodyCache::default(),
    }
}

fn conversation() -> Vec<ModelMessage> {
    let file = Attachment {
        mime: "image/png".into(),
        data: "AAAA".into(),
        name: None,
    };
    let call = |id: &str, wire: Option<&str>, provider: Map<String, Value>| ModelOutput::Call {
        id: id.into(),
        provider_id: wire.map(str::to_owned),
        name: "read".into(),
        arguments: json!({"p": "x"}).into(),
        provider,
    };
    let result = |id: &str, wire: Option<&str>, failed: bool| CallResult {
        id: id.into(),
        provider_id: wire.map(str::to_owned),
        name: "read".into(),
        text: "out".into(),
        failed,
        attachments: if failed { vec![] } else { vec![file.clone()] },
    };
    vec![
        ModelMessage::User(vec![
            ModelInput::Text("Look".into()),
            ModelInput::File(file.clone()),
        ]),
        ModelMessage::Assistant(vec![
            ModelOutput::Reasoning {
                text: "hm".into(),
                provider: Map::new(),
            },
            ModelOutput::Text {
                text: "I look.".into(),
                provider: single_entry("thoughtSignature", "S1"),
            },
            call("c1", Some("x"), single_entry("thoughtSignature", "S2")),
            call("c2", None, Map::new()),
        ]),
        ModelMessage::Results(vec![
            result("c1", Some("x"), false),
            result("c2", None, true),
        ]),
        ModelMessage::User(vec![ModelInput::Text("Go on".into())]),
        ModelMessage::Assistant(vec![call("c3", None, Map::new())]),
        ModelMessage::Results(vec![result("c3", None, true)]),
    ]
}

#[test]
fn conversation_is_encoded() {
    let target = RequestTarget {
        base_url: "http://h/v1beta".into(),
        key: Some(Secret::new("k")),
        ..RequestTarget::default()
    };
    let call = Gemini
        .encode(
            &request("gemini-3-pro", conversation()),
            &target,
            &RequestOptions::default(),
        )
        .unwrap();
    assert_eq!(
        call.url,
        "http://h/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
    );
    assert_eq!(call.headers, [("x-goog-api-key".into(), "k".into())]);
    let expected = concat!(
        r#"{"generationConfig":{"thinkingConfig":{"includeThoughts":true}},"systemInstruction":{"parts":[{"text":"Be brief."},{"text":"The day is Monday."}]},"#,
        r#""tools":[{"functionDeclarations":[{"name":"read","description":"Reads.","parameters":{"type":"object","properties":{"p":{"type":"string"}}}}]}],"#,
        r#""contents":[{"role":"user","parts":[{"text":"Look"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]},"#,
        r#"{"role":"model","parts":[{"text":"I look.","thoughtSignature":"S1"},{"functionCall":{"id":"x","name":"read","args":{"p":"x"}},"thoughtSignature":"S2"},{"functionCall":{"name":"read","args":{"p":"x"}}}]},"#,
        r#"{"role":"user","parts":[{"functionResponse":{"id":"x","name":"read","response":{"output":"out"}}},{"functionResponse":{"name":"read","response":{"error":"out"}}},{"text":"Attached media from tool result:"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"text":"Go on"}]},"#,
        r#"{"role":"model","parts":[{"functionCall":{"name":"read","args":{"p":"x"}},"thoughtSignature":"skip_thought_signature_validator"}]},"#,
        r#"{"role":"user","parts":[{"functionResponse":{"name":"read","response":{"error":"out"}}}]}]}"#,
    );
    assert_eq!(std::str::from_utf8(&call.body).unwrap(), expected);

    let token = RequestTarget {
        key: Some(Secret::new("ya29.t")),
        ..target
    };
    let call = Gemini
        .encode(
            &request("gemini-2.5-pro", conversation()),
            &token,
            &RequestOptions::default(),
        )
        .unwrap();
    assert_eq!(
        call.headers,
        [("authorization".into(), "Bearer ya29.t".into())]
    );
    assert!(
        !std::str::from_utf8(&call.body)
            .unwrap()
            .contains("skip_thought")
    );
}

#[test]
fn options_and_efforts_are_encoded() {
    let mut request = request(
        "gemini-2.5-flash",
        vec![ModelMessage::User(vec![ModelInput::Text("hi".into())])],
    );
    request.must_call = true;
    let mut options = Gemini.effort(&request.model, &RequestTarget::default(), "high");
    options.insert("safetySettings".into(), json!([]));
    options.insert("seed".into(), 7.into());
    let request_options = RequestOptions {
        temperature: Some(1.0),
        top_k: Some(64),
        max_output: Some(10),
        options,
        ..RequestOptions::default()
    };
    let sent = Gemini
        .encode(&request, &RequestTarget::default(), &request_options)
        .unwrap()
        .body;
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let expected = json!({"temperature": 1.0, "topK": 64, "maxOutputTokens": 10, "seed": 7, "thinkingConfig": {"includeThoughts": true, "thinkingBudget": 16000}});
    assert_eq!(
        (&sent["generationConfig"], &sent["safetySettings"]),
        (&expected, &json!([]))
    );
    assert_eq!(sent["toolConfig"]["functionCallingConfig"]["mode"], "ANY");
    for (id, expected) in [
        ("gemini-2.5-pro", "high max"),
        ("gemini-3-pro-preview", "low high"),
        ("gemini-3.5-flash", "minimal low medium high"),
    ] {
        let model = Model {
            api_id: id.into(),
            ..(*request.model).clone()
        };
        assert_eq!(Gemini.efforts(&model).join(" "), expected);
    }
}

#[test]
fn search_requires_recent_model() {
    let table = [
        ("gemini-2.5-pro", true),
        ("gemini-3-flash", true),
        ("gemini-1.5-pro", false),
        ("gemma-3", false),
        ("gemini-2.5-flash-image", false),
    ];
    for (id, wanted) in table {
        assert_eq!(can_search_web(id), wanted, "{id}");
    }
}
