//! Searches by the model's own provider: the same tool at four of them, each in its wire format.

use serde_json::{Value, json};

use crate::loopback::{ReceivedRequest, Server};
use crate::program::{adjutant, stdout_of};
use crate::project::Project;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 3] = [
    (
        "model's provider searches in its wire format",
        models_provider_searches_in_its_wire_format,
    ),
    (
        "provider search is subject to the rules",
        provider_search_is_subject_to_the_rules,
    ),
    (
        "provider without search is not offered",
        provider_without_search_is_not_offered,
    ),
];

/// A provider, one of its models, and the shape of its answers.
struct Dialect {
    provider: &'static str,
    model: &'static str,
    /// Name of the provider's search in a request.
    search: &'static str,
    /// A call of `websearch`, some text, and the results.
    call: fn() -> Vec<Value>,
    words: fn() -> Vec<Value>,
    found: fn() -> Vec<Value>,
}

const QUERY: &str = r#"{"query":"adjutant 9"}"#;

const DIALECTS: [Dialect; 4] = [
    Dialect {
        provider: "anthropic",
        model: "claude-sonnet-4-5",
        search: r#"{"type":"web_search_20250305","name":"web_search","max_uses":3}"#,
        call: || {
            message(&[
                json!({ "type": "tool_use", "id": "t", "name": "websearch", "input": { "query": "adjutant 9" } }),
            ])
        },
        words: || message(&[json!({ "type": "text", "text": "Nine it is." })]),
        found: || {
            let result = json!({ "type": "web_search_result", "title": "Nine", "url": "https://a.example/9", "page_age": "May 1", "encrypted_content": "E" });
            let cited = json!({ "type": "web_search_result_location", "title": "Nine", "url": "https://a.example/9", "cited_text": "Nine came out." });
            message(&[
                json!({ "type": "server_tool_use", "id": "s", "name": "web_search", "input": { "query": "adjutant 9" } }),
                json!({ "type": "web_search_tool_result", "tool_use_id": "s", "content": [result] }),
                json!({ "type": "text", "text": "Nine is out.", "citations": [cited] }),
            ])
        },
    },
    Dialect {
        provider: "openai",
        model: "gpt-5",
        ..RESPONSES
    },
    Dialect {
        provider: "google",
        model: "gemini-2.5-pro",
        search: r#"[{"google_search":{}}]"#,
        call: || {
            candidate(
                &json!([{ "functionCall": { "name": "websearch", "args": { "query": "adjutant 9" } } }]),
                Value::Null,
            )
        },
        words: || candidate(&json!([{ "text": "Nine it is." }]), Value::Null),
        found: || {
            let chunks = json!([{ "web": { "title": "Nine", "uri": "https://a.example/9" } }]);
            let supports = json!([{ "segment": { "text": "Nine came out." }, "groundingChunkIndices": [0, 7] }]);
            let grounding = json!({ "groundingChunks": chunks, "groundingSupports": supports });
            candidate(&json!([{ "text": "Nine is out." }]), grounding)
        },
    },
    // It speaks Chat Completions, and searches in Responses.
    Dialect {
        provider: "xai",
        model: "grok-4",
        call: || {
            chat(
                &json!({ "tool_calls": [{ "index": 0, "id": "t", "function": { "name": "websearch", "arguments": QUERY } }] }),
                "tool_calls",
            )
        },
        words: || chat(&json!({ "content": "Nine it is." }), "stop"),
        ..RESPONSES
    },
];

const RESPONSES: Dialect = Dialect {
    provider: "",
    model: "",
    search: r#"[{"type":"web_search"}]"#,
    call: || {
        response(&[
            json!({ "type": "function_call", "call_id": "t", "name": "websearch", "arguments": QUERY }),
        ])
    },
    words: || {
        response(&[
            json!({ "type": "message", "content": [{ "type": "output_text", "text": "Nine it is." }] }),
        ])
    },
    found: || {
        let cited = json!({ "type": "url_citation", "title": "Nine", "url": "https://a.example/9", "start_index": 0, "end_index": 4 });
        response(&[
            json!({ "type": "web_search_call", "id": "w", "status": "completed" }),
            json!({ "type": "message", "content": [{ "type": "output_text", "text": "Nine is out.", "annotations": [cited] }] }),
        ])
    },
};

fn message(blocks: &[Value]) -> Vec<Value> {
    let calls = blocks.iter().any(|block| block["type"] == "tool_use");
    let reason = if calls { "tool_use" } else { "end_turn" };
    vec![
        json!({ "type": "message", "content": blocks, "stop_reason": reason, "usage": { "input_tokens": 9, "output_tokens": 9 } }),
    ]
}

fn response(items: &[Value]) -> Vec<Value> {
    let usage = json!({ "input_tokens": 9, "output_tokens": 9 });
    let response =
        json!({ "object": "response", "status": "completed", "output": items, "usage": usage });
    vec![json!({ "type": "response.completed", "response": response })]
}

fn candidate(parts: &Value, grounding: Value) -> Vec<Value> {
    let content = json!({ "role": "model", "parts": parts });
    vec![
        json!({ "candidates": [{ "content": content, "finishReason": "STOP", "groundingMetadata": grounding }] }),
    ]
}

fn chat(delta: &Value, reason: &str) -> Vec<Value> {
    vec![json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }] })]
}

/// The provider: a search is answered, words without tools are a title, and a call is made until it
/// has a result.
fn serve(dialect: &'static Dialect) -> Server {
    Server::start(move |received: &ReceivedRequest| {
        let body = &received.body;
        let events = if body.contains(dialect.search) {
            (dialect.found)()
        } else if !body.contains(r#""websearch""#) || asked_back(body) {
            (dialect.words)()
        } else {
            (dialect.call)()
        };
        let text: String = events
            .iter()
            .map(|event| format!("data: {event}\n\n"))
            .collect();
        (200, "content-type: text/event-stream\r\n".into(), text)
    })
}

/// Returns whether a request contains a result.
fn asked_back(body: &str) -> bool {
    [
        "tool_result",
        "function_call_output",
        "functionResponse",
        r#""role":"tool""#,
    ]
    .iter()
    .any(|word| body.contains(word))
}

fn project(server: &Server, dialect: &Dialect, permission: &Value) -> Project {
    let project = Project::new();
    let provider = dialect.provider;
    let model = dialect.model;
    let settings = json!({ "model": format!("{provider}/{model}"), "permission": permission, "provider": { provider: {
        "options": { "baseURL": format!("{}/v1", server.base()), "apiKey": "secret-key-1" }, "models": { model: {} } } } });
    project.write("~/.config/opencode/opencode.json", &settings.to_string());
    project
}

fn models_provider_searches_in_its_wire_format() {
    for dialect in &DIALECTS {
        let server = serve(dialect);
        let project = project(&server, dialect, &json!({ "websearch": "allow" }));
        let stdout = stdout_of(&project, &["run", "Which version is the newest?"]);
        assert_eq!(stdout, "Nine it is.\n", "{}", dialect.provider);
        let received = server.received();
        let search: Vec<&ReceivedRequest> = received
            .iter()
            .filter(|received| received.body.contains(dialect.search))
            .collect();
        assert_eq!(search.len(), 1, "{}", dialect.provider);
        assert!(
            search[0].body.contains("Search the web for: adjutant 9"),
            "{}",
            search[0].body
        );
        let told = &received
            .iter()
            .rfind(|received| asked_back(&received.body))
            .unwrap()
            .body;
        let model = format!("{}/{}", dialect.provider, dialect.model);
        let wanted = format!(
            r"Summary of the pages below by {model}:\nNine is out.\n\nNine\nhttps://a.example/9"
        );
        assert!(told.contains(&wanted), "{told}");
        assert_eq!(
            told.contains("Date: May 1"),
            dialect.provider == "anthropic",
            "{told}"
        );
    }
}

fn provider_search_is_subject_to_the_rules() {
    let dialect = &DIALECTS[0];
    let server = serve(dialect);
    // The rule asks, and no user is present.
    let asked = project(&server, dialect, &json!({ "websearch": "ask" }));
    adjutant(&asked, &["run", "Which version?"], "");
    let told = |received: &[ReceivedRequest]| {
        received
            .iter()
            .any(|received| received.body.contains(dialect.search))
    };
    let received = server.received();
    assert!(
        !told(&received)
            && received
                .iter()
                .any(|received| received.body.contains(r#""websearch""#))
    );
    let denied = project(&server, dialect, &json!({ "websearch": "deny" }));
    stdout_of(&denied, &["run", "Which version?"]);
    let received = &server.received()[received.len()..];
    assert!(
        !told(received)
            && received
                .iter()
                .all(|received| !received.body.contains(r#""websearch""#))
    );
}

fn provider_without_search_is_not_offered() {
    let table = [
        ("anthropic", "claude-sonnet-4-5", true),
        ("openai", "gpt-4.1-nano", false),
        ("acme", "m", false),
    ];
    for (provider, model, wanted) in table {
        let dialect: &'static Dialect = if provider == "openai" {
            &DIALECTS[1]
        } else {
            &DIALECTS[0]
        };
        let server = serve(dialect);
        let project = Project::new();
        let settings = json!({ "model": format!("{provider}/{model}"), "provider": { provider: {
            "npm": if provider == "openai" { "@ai-sdk/openai" } else { "@ai-sdk/anthropic" },
            "options": { "baseURL": format!("{}/v1", server.base()), "apiKey": "secret-key-1" }, "models": { model: {} } } } });
        project.write("~/.config/opencode/opencode.json", &settings.to_string());
        adjutant(&project, &["run", "Hello.", "--without", "bash"], "");
        let offered = server
            .received()
            .iter()
            .any(|received| received.body.contains(r#""name":"websearch""#));
        assert_eq!(offered, wanted, "{provider}/{model}");
    }
}
