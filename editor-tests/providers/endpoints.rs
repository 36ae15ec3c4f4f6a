//! Endpoints of providers that an editor sets: which server is asked, and with which keys.

use serde_json::{Value, json};

use crate::client::Client;
use crate::loopback::{ReceivedRequest, Server};
use crate::project::Project;

const USERS_KEY: &str = "users-key-1234";
const USERS_HEADER: &str = "users-header-1234";
const EDITORS_KEY: &str = "editors-key-1234";

/// Returns a provider that answers with these words, or refuses a request without the key that it
/// repeats in its error.
fn provider(text: &'static str) -> Server {
    Server::start(move |received| {
        if received.path().ends_with("/messages") {
            return (400, String::new(), r#"{"error":{"message":"no"}}"#.into());
        }
        if received.header("x-refuse").is_some() {
            let all = received.head.join(" ");
            let error = json!({ "error": { "message": format!("Not with {all}") } });
            return (401, String::new(), error.to_string());
        }
        let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": "stop" }] });
        (
            200,
            "content-type: text/event-stream\r\n".into(),
            format!("data: {chunk}\n\ndata: [DONE]\n\n"),
        )
    })
}

fn project(base: &str) -> Project {
    let mut project = Project::new();
    let wire = project.path("tmp:wire.jsonl").display().to_string();
    let tapes = project.path("tmp:tapes").display().to_string();
    project.set("ADJUTANT_WIRE", Some(&wire));
    project.set("ADJUTANT_RECORD", Some(&tapes));
    project.set("ADJUTANT_LOG", Some("trace"));
    let model = json!({ "headers": { "x-model": USERS_HEADER } });
    let settings = json!({ "model": "own/m", "provider": { "own": { "name": "Own", "npm": "@ai-sdk/openai-compatible",
        "options": { "baseURL": base, "apiKey": USERS_KEY, "headers": { "x-mine": USERS_HEADER } }, "models": { "m": model } } } });
    project.write("~/.config/opencode/opencode.json", &settings.to_string());
    project
}

/// Asks for something and returns the result.
fn result(client: &mut Client, id: u64, method: &str, params: &Value) -> Value {
    client.request(id, method, params);
    let answer = client.answer(id).0;
    assert!(answer.get("error").is_none(), "{method}: {answer}");
    answer["result"].clone()
}

fn set(base: &str, headers: &Value) -> Value {
    json!({ "providerId": "own", "apiType": "openai", "baseUrl": base, "headers": headers })
}

fn prompt(client: &mut Client, id: u64, session: &str, text: &str) -> (Value, String) {
    client.prompt(id, session, text);
    let (answer, updates) = client.answer(id);
    (answer, json!(updates).to_string())
}

fn turns(server: &Server) -> Vec<ReceivedRequest> {
    let received = server.received();
    let turns = received
        .into_iter()
        .filter(|request| request.body.contains("\"tools\""));
    turns.collect()
}

pub(super) fn editors_endpoint_is_asked_with_its_keys_only() {
    let users = provider("From the provider.");
    let gateway = provider("From the gateway.");
    let mut client = Client::new(project(&format!("{}/v1", users.base())));
    let session = client.open();
    let (_, updates) = prompt(&mut client, 2, &session, "Hello");
    assert!(updates.contains("From the provider."), "{updates}");

    // A session that is open uses it from its next request on.
    let base = format!("{}/gateway", gateway.base());
    let headers = json!({ "Authorization": format!("Bearer {EDITORS_KEY}"), "x-team": "a" });
    result(&mut client, 3, "providers/set", &set(&base, &headers));
    let (answer, updates) = prompt(&mut client, 4, &session, "Hello again");
    assert!(updates.contains("From the gateway."), "{answer} {updates}");
    assert_eq!(turns(&users).len(), 1);
    let asked = turns(&gateway);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].path(), "/gateway/chat/completions");
    assert_eq!(
        asked[0].header("authorization"),
        Some(&*format!("Bearer {EDITORS_KEY}"))
    );
    assert_eq!(asked[0].header("x-team"), Some("a"));
    for request in gateway.received() {
        let all = format!("{request:?}");
        assert!(
            !all.contains(USERS_KEY) && !all.contains(USERS_HEADER),
            "{all}"
        );
    }

    // So does a new one; both show whose address it is.
    let new = json!({ "cwd": client.project.cwd(), "mcpServers": [] });
    let opened = result(&mut client, 5, "session/new", &new);
    let origin = format!("{base}, set by the editor");
    assert!(
        opened.to_string().contains(&format!("At {origin}.")),
        "{opened}"
    );
    let models = opened["models"]["availableModels"].as_array().unwrap();
    let current = models
        .iter()
        .find(|model| model["modelId"] == "own/m")
        .unwrap();
    assert_eq!(current["description"], format!("At {origin}."), "{opened}");
    let (_, updates) = prompt(&mut client, 6, &session, "/status");
    assert!(updates.contains(&format!("own/m at {origin}")), "{updates}");
    let listed = result(&mut client, 7, "providers/list", &json!({})).to_string();
    assert!(
        listed.contains(&base) && !listed.contains(EDITORS_KEY),
        "{listed}"
    );

    // A provider that repeats what it was sent.
    let headers = json!({ "Authorization": format!("Bearer {EDITORS_KEY}"), "x-refuse": "yes" });
    result(&mut client, 8, "providers/set", &set(&base, &headers));
    let (refused, _) = prompt(&mut client, 9, &session, "Hello once more");
    let refused = refused["error"]["data"]["details"].to_string();
    assert!(
        refused.contains("the headers that the editor has set") && refused.contains("[key]"),
        "{refused}"
    );
    assert!(
        !refused.contains(EDITORS_KEY) && !refused.contains("auth list"),
        "{refused}"
    );

    result(
        &mut client,
        10,
        "providers/disable",
        &json!({ "providerId": "own" }),
    );
    let (disabled, _) = prompt(&mut client, 11, &session, "Are you there?");
    let disabled = disabled["error"]["message"].to_string();
    assert!(
        disabled.contains("The editor has disabled Own for this connection."),
        "{disabled}"
    );

    // No key is written anywhere: not to the logs, the recordings, or the session.
    let project = client.leave();
    let found = project.shell(&format!(
        "grep -rl {EDITORS_KEY} \"$HOME\" {} {} . || true",
        project.path("tmp:wire.jsonl").display(),
        project.path("tmp:tapes").display()
    ));
    assert_eq!(found, "");
    let wire = std::fs::read_to_string(project.path("tmp:wire.jsonl")).unwrap();
    assert!(
        wire.contains("providers/set") && wire.contains("(redacted)"),
        "{wire}"
    );

    // Nothing is left of it in the next process.
    let mut next = Client::new(project);
    let listed = result(&mut next, 1, "providers/list", &json!({})).to_string();
    assert!(
        listed.contains(&users.base()) && !listed.contains(&base),
        "{listed}"
    );
    next.leave();
}

/// An endpoint of a provider that the user has no key for brings its models with it.
pub(super) fn editors_endpoint_makes_models_available() {
    let gateway = provider("From the gateway.");
    let mut client = Client::new(Project::new());
    let endpoint = json!({ "providerId": "openai", "apiType": "anthropic", "baseUrl": format!("{}/v1", gateway.base()) });
    result(&mut client, 1, "providers/set", &endpoint);
    let new = json!({ "cwd": client.project.cwd(), "mcpServers": [] });
    let opened = result(&mut client, 2, "session/new", &new);
    let options = opened["configOptions"].as_array().unwrap();
    let model = options
        .iter()
        .find(|option| option["id"] == "model")
        .unwrap();
    let now = model["currentValue"].as_str().unwrap();
    assert!(now.starts_with("openai/"), "{model}");
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    // A model that only the gateway knows.
    let own =
        json!({ "sessionId": session, "configId": "model", "value": "openai/of-the-gateway" });
    let chosen = result(&mut client, 3, "session/set_config_option", &own);
    // The list of models shows where it is, in the form of every version.
    let origin = format!("At {}/v1, set by the editor.", gateway.base());
    let models = chosen["configOptions"].as_array().unwrap();
    let model = models
        .iter()
        .find(|option| option["id"] == "model")
        .unwrap();
    let listed = model["options"][0]["options"].as_array();
    let listed = listed.or(model["options"].as_array()).unwrap();
    let shown = listed
        .iter()
        .find(|one| one["value"] == "openai/of-the-gateway")
        .unwrap();
    assert_eq!(shown["description"], origin, "{model}");
    prompt(&mut client, 4, &session, "Hello");
    let asked = turns(&gateway);
    assert_eq!(asked[0].path(), "/v1/messages");
    assert!(asked[0].body.contains(r#""model":"of-the-gateway""#));
    assert_eq!(asked[0].header("x-api-key"), None);
    client.leave();
}
