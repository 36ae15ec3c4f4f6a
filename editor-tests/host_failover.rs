//! Clients whose host is lost, or stops: their sessions continue on another one.

use std::sync::{Arc, Mutex, mpsc};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::Client;
use crate::database::Database;
use crate::fleet::{host, until};
use crate::loopback::Server;
use crate::model::{self, Model};
use crate::project::Project;
use crate::remote::{CuttingProxy, Served, bridge};

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 5] = [
    (
        "turn of a lost host continues on another",
        turn_of_a_lost_host_continues_on_another,
    ),
    (
        "turn of a stopping host continues on another",
        turn_of_a_stopping_host_continues_on_another,
    ),
    (
        "session without messages continues on another host",
        session_without_messages_continues_on_another_host,
    ),
    (
        "host that refuses an endpoint continues the other sessions",
        host_that_refuses_an_endpoint_continues_the_other_sessions,
    ),
    (
        "session starts with a given id",
        session_starts_with_a_given_id,
    ),
];

/// Returns the text that a client sees of a turn whose first host is lost, or stops, while a
/// command runs; and the lists of commands that it gets after the response.
fn moved(url: Option<String>, leave: impl FnOnce(&mut Served, &Project)) -> (String, Vec<Value>) {
    let model = Model::answering_with(|request| {
        let messages = request["messages"].as_array().unwrap();
        let results: Vec<&Value> = messages
            .iter()
            .filter(|message| message["role"] == "tool")
            .collect();
        let is_reported = messages.iter().any(|message| {
            message["content"]
                .to_string()
                .contains("another one continues it")
        });
        let wait = json!({ "command": "echo begun >>log; while [ ! -e go ]; do sleep 0.05; done; echo done >>log" });
        let script = match (results.len(), is_reported) {
            (0, false) => format!("text: First, \u{2026}\ncall bash {wait}"),
            (_, true) => "text: and last.".into(),
            (n, false) => panic!("{n} results, and nobody said that the host was lost"),
        };
        model::script(&script).unwrap()
    });
    let mut project = host("", &model, &json!({ "serve": { "drain": 0 } }));
    project.set("ADJUTANT_STORE", url.as_deref());
    let project = Arc::new(project);
    let mut first = Served::start(&project, &[]);
    let between = CuttingProxy::before(&first.address);
    let mut client = Client::of(project.clone(), bridge(&project, &between.address));
    let session = client.open();
    client.prompt(2, &session, "Do it.");
    until("the command has begun", || project.path("log").exists());
    let second = Served::start(&project, &[]);
    between.turn_to(&second.address);
    leave(&mut first, &project);
    between.cut();
    let (answer, shown) = client.answer(2);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let of = |kind: &'static str| {
        shown
            .iter()
            .filter(move |update| update["sessionUpdate"] == kind)
    };
    let text: String = of("agent_message_chunk")
        .filter_map(|update| update["content"]["text"].as_str())
        .collect();
    assert_eq!(of("user_message_chunk").count(), 0, "{shown:?}");
    // The session is the editor's as before.
    client.request(
        3,
        "session/set_mode",
        &json!({ "sessionId": session, "modeId": "plan" }),
    );
    let (answer, after) = client.answer(3);
    assert!(answer.get("result").is_some(), "{answer}");
    let lists = after
        .into_iter()
        .filter(|update| update["sessionUpdate"] == "available_commands_update")
        .collect();
    assert_eq!(client.invariants.problems(), Vec::<String>::new());
    assert_eq!(model.problems(), Vec::<String>::new());
    let log = std::fs::read_to_string(project.path("log")).unwrap();
    assert_eq!(log.matches("begun").count(), 1, "{log}");
    (text, lists)
}

/// The other host may be the same one, started again. It has another command.
fn turn_of_a_lost_host_continues_on_another() {
    let database = Database::get().map(|database| database.fresh(1));
    for url in std::iter::once(None).chain(database.map(Some)) {
        let (words, lists) = moved(url, |first, project| {
            first.child.kill().unwrap();
            first.child.wait().unwrap();
            project.write(".opencode/command/more.md", "Do more.");
        });
        assert_eq!(
            words,
            "First, \u{2026}(The turn was interrupted before it ended.)and last."
        );
        assert_eq!(lists.len(), 1, "{lists:?}");
        assert!(json!(lists).to_string().contains("\"more\""), "{lists:?}");
    }
}

fn turn_of_a_stopping_host_continues_on_another() {
    let Some(database) = Database::get() else {
        return;
    };
    let (words, lists) = moved(Some(database.fresh(1)), |first, project| {
        first.signal(Signal::TERM);
        first.wait_for_stderr("end at their next step");
        project.write("go", "");
        first.child.wait().unwrap();
    });
    assert_eq!(words, "First, \u{2026}and last.");
    assert_eq!(lists, Vec::<Value>::new());
}

/// Moves a session without messages: it is not stored, yet its options are preserved.
///
/// The next host is there at once, and the database still holds the session for the lost one: its
/// lease is as long as by default.
fn session_without_messages_continues_on_another_host() {
    let database = Database::get().map(|database| database.fresh(5));
    for url in std::iter::once(None).chain(database.map(Some)) {
        let model = Model::start(model::script("text: Forty-two.").unwrap());
        let agents = json!({ "mine": { "mode": "primary", "prompt": "You count." },
            "theirs": { "mode": "primary", "prompt": "You spell." } });
        let mut project = host("", &model, &json!({ "agent": agents }));
        project.set("ADJUTANT_STORE", url.as_deref());
        let project = Arc::new(project);
        let mut first = Served::start(&project, &[]);
        let between = CuttingProxy::before(&first.address);
        let mut client = Client::of(project.clone(), bridge(&project, &between.address));
        let session = client.open();
        let option = json!({ "sessionId": session, "configId": "approvals", "value": "ask" });
        client.request(2, "session/set_config_option", &option);
        assert!(client.answer(2).0.get("result").is_some());
        for (id, mode) in [(3, "theirs"), (4, "mine")] {
            client.request(
                id,
                "session/set_mode",
                &json!({ "sessionId": session, "modeId": mode }),
            );
            assert!(client.answer(id).0.get("result").is_some());
        }
        let second = Served::start(&project, &[]);
        between.turn_to(&second.address);
        first.child.kill().unwrap();
        first.child.wait().unwrap();
        between.cut();
        client.prompt(5, &session, "What is it?");
        let (answer, shown) = client.answer(5);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        let is_answer = |update: &&Value| update["content"]["text"] == "Forty-two.";
        assert_eq!(shown.iter().filter(is_answer).count(), 1, "{shown:?}");
        let asked = model.requests().pop().unwrap().to_string();
        assert!(asked.contains("You count."), "{asked}");
        let option = json!({ "sessionId": session, "configId": "steer", "value": "off" });
        client.request(6, "session/set_config_option", &option);
        let options = client.answer(6).0["result"]["configOptions"].take();
        let approvals = options
            .as_array()
            .unwrap()
            .iter()
            .find(|option| option["id"] == "approvals")
            .unwrap();
        assert_eq!(approvals["currentValue"], "ask", "{options}");
        assert_eq!(client.invariants.problems(), Vec::<String>::new());
        assert_eq!(model.problems(), Vec::<String>::new());
    }
}

/// The settings of the next host disable the provider whose endpoint the editor has set. It is not
/// asked there, at any address.
fn host_that_refuses_an_endpoint_continues_the_other_sessions() {
    let model = Model::start(model::script("text: One.\n---\ntext: Two.").unwrap());
    let usual = Server::start(|_| (500, String::new(), String::new()));
    let (sender, go) = mpsc::channel::<()>();
    let go = Mutex::new(go);
    // The answer never ends.
    let gateway = Server::start(move |_| {
        go.lock().unwrap().recv().ok();
        (500, String::new(), String::new())
    });
    let settings = |disabled: &[&str]| {
        let base = gateway.base();
        let (_, private) = base.split_once("//").unwrap();
        let own = json!({ "npm": "@ai-sdk/openai-compatible", "models": { "m": {} },
            "options": { "baseURL": format!("{}/v1", usual.base()), "apiKey": "a-key" } });
        json!({ "disabled_providers": disabled, "provider": { "own": own }, "webfetch": { "private": [private] } })
    };
    let mut project = host("", &model, &settings(&[]));
    project.set("ADJUTANT_STORE", None);
    let project = Arc::new(project);
    let mut first = Served::start(&project, &[]);
    let between = CuttingProxy::before(&first.address);
    let mut client = Client::of(project.clone(), bridge(&project, &between.address));
    let kept = client.open();
    let endpoint = json!({ "providerId": "own", "apiType": "openai", "baseUrl": gateway.base() });
    client.request(2, "providers/set", &endpoint);
    assert!(client.answer(2).0.get("result").is_some());
    let new = json!({ "cwd": project.cwd(), "mcpServers": [] });
    client.request(3, "session/new", &new);
    let lost = client.answer(3).0["result"]["sessionId"].take();
    let lost = lost.as_str().unwrap();
    let option = json!({ "sessionId": lost, "configId": "model", "value": "own/m" });
    client.request(4, "session/set_config_option", &option);
    assert!(client.answer(4).0.get("result").is_some());
    client.prompt(5, &kept, "Hello.");
    assert_eq!(client.answer(5).0["result"]["stopReason"], "end_turn");
    client.prompt(6, lost, "Hello.");
    until("the gateway is asked", || !gateway.received().is_empty());
    project.provider(&model.base(), &settings(&["own"]));
    let second = Served::start(&project, &[]);
    between.turn_to(&second.address);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    between.cut();
    let (answer, _) = client.answer(6);
    let why = answer["error"]["data"]["details"].as_str().unwrap();
    assert!(
        why.contains("refuses the endpoint of the model provider \"own\"")
            && why.contains("`disabled_providers` names it"),
        "{why}"
    );
    client.prompt(7, &kept, "Go on.");
    let (answer, shown) = client.answer(7);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(json!(shown).to_string().contains("Two."), "{shown:?}");
    drop(sender);
    assert!(usual.received().is_empty(), "{:?}", usual.received());
    assert_eq!(client.invariants.problems(), Vec::<String>::new());
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Only an id of the right shape, and none where an id is given a directory.
fn session_starts_with_a_given_id() {
    let model = Model::start(Vec::new());
    for (makes, id, begins) in [
        (false, "ses_00000001", true),
        (false, "../1", false),
        (true, "ses_00000001", false),
    ] {
        let project = Project::new();
        let serve = if makes {
            json!({ "workspace": ["/bin/sh", "-c", "pwd; echo made >&2; touch made"] })
        } else {
            json!({})
        };
        project.provider(&model.base(), &json!({ "serve": serve }));
        let project = Arc::new(project);
        let served = Served::start(&project, &[]);
        let mut client = Client::of(project.clone(), bridge(&project, &served.address));
        client.request(1, "initialize", &json!({ "protocolVersion": 1 }));
        client.answer(1);
        let own = json!({ "adjutant": { "unsaid": true } });
        let load = json!({ "sessionId": id, "cwd": project.cwd(), "mcpServers": [], "_meta": own });
        client.request(2, "session/load", &load);
        let (answer, _) = client.answer(2);
        assert_eq!(answer.get("result").is_some(), begins, "{answer}");
        assert!(begins || answer["error"]["code"] == -32_002, "{answer}");
        assert!(!project.path("made").exists(), "{id}");
        assert_eq!(client.invariants.problems(), Vec::<String>::new(), "{id}");
    }
}
