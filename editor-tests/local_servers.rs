//! Model servers of this machine, as they answer today: Ollama, LM Studio, llama.cpp and vLLM, also
//! slow ones, with models that cannot call tools or have a small context window.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::editor::RESPONSE_TIMEOUT;
use crate::loopback::{ReceivedRequest, Server};
use crate::program::{adjutant, stdout_of};
use crate::project::Project;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 13] = [
    ("slow Ollama is found", slow_ollama_is_found),
    (
        "model of a local server is completed",
        model_of_local_server_is_completed,
    ),
    (
        "prompt is cancelled while servers are searched",
        prompt_is_cancelled_while_servers_are_searched,
    ),
    ("Ollama's own window is used", ollamas_own_window_is_used),
    (
        "small window names the remedy",
        small_window_names_the_remedy,
    ),
    (
        "small window is reported before the first prompt",
        small_window_is_reported_before_the_first_prompt,
    ),
    (
        "small window of a model's own parameters names their remedy",
        small_window_of_a_models_own_parameters_names_their_remedy,
    ),
    (
        "smaller window gets fewer tools",
        smaller_window_gets_fewer_tools,
    ),
    (
        "missing model is refused by its name",
        missing_model_is_refused_by_its_name,
    ),
    (
        "stopped server is named with its remedy",
        stopped_server_is_named_with_its_remedy,
    ),
    (
        "model of another name, without tools, is reported",
        model_of_another_name_without_tools_is_reported,
    ),
    (
        "wanted server is found in addition to a key",
        wanted_server_is_found_in_addition_to_a_key,
    ),
    (
        "servers report abilities and windows",
        servers_report_abilities_and_windows,
    ),
];

type Response = (u16, String, String);

fn ok(body: &Value) -> Response {
    (200, String::new(), body.to_string())
}

fn list(names: &[&str]) -> Value {
    let entry = |name: &&str| json!({ "id": name, "object": "model", "owned_by": "library" });
    json!({ "object": "list", "data": names.iter().map(entry).collect::<Vec<_>>() })
}

fn answer(text: &str) -> Response {
    let chunk = |delta: Value, finish: Value| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
    let body = format!(
        "data: {}\n\ndata: {}\n\ndata: [DONE]\n\n",
        chunk(json!({ "content": text }), Value::Null),
        chunk(json!({}), json!("stop"))
    );
    (200, "content-type: text/event-stream\r\n".into(), body)
}

/// Starts an Ollama with a model that cannot call tools and one that can, whose window is known
/// when it is loaded.
fn ollama(delay: Duration, window: u64) -> Server {
    ollama_that_waits(move || sleep(delay), window)
}

/// Starts a mock Ollama that calls `wait` before it lists its models.
fn ollama_that_waits(wait: impl Fn() + Send + Sync + 'static, window: u64) -> Server {
    let loaded = Arc::new(AtomicBool::new(false));
    Server::start(move |request: &ReceivedRequest| match request.path() {
        "/v1/models" => {
            wait();
            ok(&list(&[
                "llama3.2:latest",
                "qwen3-coder:30b",
                "nomic-embed-text:latest",
            ]))
        }
        "/api/show" => {
            let tools = request.body.contains("qwen3-coder");
            let capabilities = if tools {
                json!(["completion", "tools"])
            } else {
                json!(["completion"])
            };
            ok(
                &json!({ "capabilities": capabilities, "parameters": "stop \"<|im_end|>\"",
                    "model_info": { "general.architecture": "qwen3moe", "qwen3moe.context_length": 262_144 } }),
            )
        }
        "/api/ps" if loaded.load(Ordering::SeqCst) => {
            ok(&json!({ "models": [{ "name": "qwen3-coder:30b",
                "model": "qwen3-coder:30b", "context_length": window }] }))
        }
        "/api/ps" => ok(&json!({ "models": [] })),
        "/api/generate" => {
            loaded.store(true, Ordering::SeqCst);
            ok(
                &json!({ "model": "qwen3-coder:30b", "response": "", "done": true, "done_reason": "load" }),
            )
        }
        "/v1/chat/completions" => answer("Here I am."),
        _ => (404, String::new(), "404 page not found".into()),
    })
}

fn project_with(name: &str, server: &Server) -> Project {
    let mut project = Project::new();
    let (_, port) = server
        .base()
        .rsplit_once(':')
        .map(|(host, port)| (host.to_owned(), port.to_owned()))
        .unwrap();
    project.set("ADJUTANT_LOCAL_SERVERS", Some(&format!("{name}={port}")));
    project
}

/// Prompts in a new session, and returns the response and the texts of the updates.
fn prompted(project: Project) -> (Value, String) {
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Hello?");
    let (response, updates) = client.answer(2);
    let updates = updates
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join("\n");
    client.leave();
    (response, updates)
}

fn slow_ollama_is_found() {
    for delay in [150, 1500] {
        let server = ollama(Duration::from_millis(delay), 65_536);
        let project = project_with("ollama", &server);
        let text = stdout_of(&project, &["models"]);
        assert!(
            text.contains("ollama (Ollama): no key needed"),
            "{delay}: {text}"
        );
        assert!(
            text.lines()
                .any(|line| line.starts_with("*  ollama/qwen3-coder:30b")),
            "{delay}: {text}"
        );
        assert!(!text.contains("nomic"), "{delay}: {text}");
        for words in [&["models", "--all"][..], &["models", "--all", "ollama"]] {
            let text = stdout_of(&project, words);
            assert!(
                text.lines()
                    .any(|line| line.starts_with("*  ollama/qwen3-coder:30b")),
                "{delay}, {words:?}: {text}"
            );
        }
        let (response, updates) = prompted(project);
        assert_eq!(
            response["result"]["stopReason"], "end_turn",
            "{delay}: {response}"
        );
        assert!(updates.contains("Here I am."), "{delay}: {updates}");
        assert!(
            !updates.contains("No model is connected"),
            "{delay}: {updates}"
        );
        // A model that is named before the server has answered.
        let mut project = project_with("ollama", &server);
        project.set("NO_COLOR", Some("1"));
        let run = ["run", "-m", "ollama/qwen3-coder:30b", "Hello?"];
        assert_eq!(stdout_of(&project, &run).trim(), "Here I am.", "{delay}");
        // A variant is one of the model that the session will use.
        let output = adjutant(&project, &["run", "--variant", "high", "Hello?"], "");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{delay}: {stderr}");
        assert!(
            stderr.contains("ollama/qwen3-coder:30b has no efforts to choose from"),
            "{delay}: {stderr}"
        );
    }
}

fn model_of_local_server_is_completed() {
    let server = ollama(Duration::ZERO, 65_536);
    let mut project = project_with("ollama", &server);
    project.set("ADJUTANT_COMPLETE", Some("fish"));
    // On a busy machine the answer may be late for a key press.
    let is_completed = (0..20).any(|_| {
        let text = stdout_of(&project, &["--", "adjutant", "run", "--model", "ollama/q"]);
        text.starts_with("ollama/qwen3-coder:30b")
    });
    assert!(is_completed);
}

/// The search continues, and the next prompt waits for it.
fn prompt_is_cancelled_while_servers_are_searched() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let closed_gate = gate.clone();
    let wait = move || {
        let (is_open, opened) = &*closed_gate;
        // A test that fails before it opens the gate ends as well.
        let closed = is_open.lock().unwrap();
        drop(opened.wait_timeout_while(closed, RESPONSE_TIMEOUT, |is_open| !*is_open));
    };
    let server = ollama_that_waits(wait, 65_536);
    let mut client = Client::new(Arc::new(project_with("ollama", &server)));
    let session = client.open();
    client.prompt(2, &session, "Hello?");
    client.send(&json!({ "jsonrpc": "2.0", "method": "session/cancel",
        "params": { "sessionId": session } }));
    let (cancelled, before) = client.answer(2);
    assert_eq!(
        cancelled["result"]["stopReason"], "cancelled",
        "{cancelled}"
    );
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    client.prompt(3, &session, "Hello again?");
    let (answered, after) = client.answer(3);
    assert_eq!(answered["result"]["stopReason"], "end_turn", "{answered}");
    let shown = json!([before, after]).to_string();
    assert!(shown.contains("Here I am."), "{shown}");
    assert!(!shown.contains("No model is connected"), "{shown}");
    client.leave();
}

fn ollamas_own_window_is_used() {
    let server = ollama(Duration::ZERO, 65_536);
    let project = project_with("ollama", &server);
    let models = || {
        let all: Value = serde_json::from_str(&stdout_of(&project, &["models", "--json"])).unwrap();
        all["providers"][0]["models"].clone()
    };
    let before = models();
    assert_eq!(
        (&before[0]["id"], &before[0]["abilities"]),
        (&json!("ollama/llama3.2:latest"), &json!([]))
    );
    assert_eq!(
        (&before[1]["context"], &before[1]["abilities"]),
        (&Value::Null, &json!(["tools"]))
    );
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Hello?");
    assert_eq!(client.answer(2).0["result"]["stopReason"], "end_turn");
    let project = client.leave();
    let all: Value = serde_json::from_str(&stdout_of(&project, &["models", "--json"])).unwrap();
    assert_eq!(all["providers"][0]["models"][1]["context"], 65_536);
    let paths: Vec<String> = server
        .received()
        .iter()
        .map(|request| request.path().to_owned())
        .collect();
    let at = |path: &str| paths.iter().position(|other| other == path).unwrap();
    assert!(
        at("/api/generate") < at("/v1/chat/completions"),
        "{paths:?}"
    );
}

/// The window of Ollama's default holds the essential tools.
fn smaller_window_gets_fewer_tools() {
    let server = ollama(Duration::ZERO, 4096);
    let (response, updates) = prompted(project_with("ollama", &server));
    assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
    assert!(
        updates.contains(
            "has 4.1k tokens, so only these tools are offered: bash, edit, grep, read, write."
        ) && updates.contains("`OLLAMA_CONTEXT_LENGTH=64000 ollama serve`"),
        "{updates}"
    );
    let received = server.received();
    let asked = received
        .iter()
        .find(|request| request.path() == "/v1/chat/completions");
    let body: Value = serde_json::from_str(&asked.unwrap().body).unwrap();
    let tools = body["tools"].as_array().unwrap().iter();
    let names: Vec<&str> = tools
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    assert_eq!(names, ["bash", "edit", "grep", "read", "write"]);
    let prompt = body["messages"][0]["content"].as_str().unwrap();
    assert!(!prompt.contains("todowrite"), "{prompt}");
}

/// Without its server, the offline model answers, with the reason.
fn stopped_server_is_named_with_its_remedy() {
    let server = ollama(Duration::ZERO, 65_536);
    let mut project = project_with("ollama", &server);
    let output = adjutant(&project, &["run", "Hello?"], "");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("model ollama/"), "{said}");
    project.set("ADJUTANT_LOCAL_SERVERS", Some("ollama=1"));
    let output = adjutant(&project, &["run", "Hello?"], "");
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = "Ollama does not answer at 127.0.0.1:1, from ADJUTANT_LOCAL_SERVERS: start it with `ollama serve`";
    assert!(said.contains(expected), "{said}");
}

fn model_of_another_name_without_tools_is_reported() {
    let server = ollama(Duration::ZERO, 65_536);
    let project = project_with("ollama", &server);
    // Without a tag, Ollama's `latest` is meant.
    let run = |words: &[&str]| {
        let output = adjutant(&project, words, "");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {stderr}");
        stderr
    };
    let without_tools = "ollama/llama3.2:latest cannot call tools";
    let first = run(&["run", "-m", "ollama/llama3.2", "Hello?"]);
    assert!(
        first.contains("model ollama/llama3.2") && first.contains(without_tools),
        "{first}"
    );
    let second = run(&["run", "-c", "And now?"]);
    assert!(!second.contains(without_tools), "{second}");
    run(&["config", "set", "model", "ollama/llama3.2"]);
    let doctor = stdout_of(&project, &["doctor"]);
    assert!(doctor.contains(without_tools), "{doctor}");

    // Such a model is never the default.
    let server = Server::start(|request: &ReceivedRequest| match request.path() {
        "/v1/models" => ok(&list(&["gemma3:4b"])),
        "/api/show" => ok(&json!({ "capabilities": ["completion"] })),
        "/api/ps" => ok(&json!({ "models": [] })),
        _ => (404, String::new(), "404 page not found".into()),
    });
    let project = project_with("ollama", &server);
    let output = adjutant(&project, &["run", "Hello?"], "");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("No model here can call tools")
            && stderr.contains("`adjutant run -m ollama/gemma3:4b`"),
        "{stderr}"
    );
}

fn small_window_names_the_remedy() {
    let server = ollama(Duration::ZERO, 2048);
    let (response, _) = prompted(project_with("ollama", &server));
    let error = response["error"].to_string();
    assert!(
        error.contains("the window of ollama/qwen3-coder:30b has 2.0k tokens"),
        "{error}"
    );
    assert!(
        error.contains("`OLLAMA_CONTEXT_LENGTH=64000 ollama serve`"),
        "{error}"
    );
    assert!(
        server
            .received()
            .iter()
            .all(|request| request.path() != "/v1/chat/completions")
    );
}

fn small_window_is_reported_before_the_first_prompt() {
    let remedy = "`OLLAMA_CONTEXT_LENGTH=64000 ollama serve`";
    let server = ollama(Duration::ZERO, 2048);
    let project = project_with("ollama", &server);
    let list = |words: &[&str]| {
        let output = adjutant(&project, words, "");
        let text = String::from_utf8(output.stdout).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        (output.status.code(), text)
    };
    // Before the model is loaded, its window is unknown.
    let unknown = "The context window of ollama/qwen3-coder:30b is known once it is loaded";
    let (_, models) = list(&["models"]);
    assert!(
        models.contains(unknown) && models.contains(remedy),
        "{models}"
    );
    let (_, doctor) = list(&["doctor"]);
    assert!(
        doctor.contains("ollama/qwen3-coder:30b by default") && doctor.contains(unknown),
        "{doctor}"
    );
    // The run makes the server load it.
    assert_eq!(list(&["run", "Hello?"]).0, Some(1));
    let small = "The context window of ollama/qwen3-coder:30b has 2.0k tokens: too small";
    let (_, models) = list(&["models"]);
    assert!(
        models.contains(small) && models.contains(remedy),
        "{models}"
    );
    let (code, doctor) = list(&["doctor"]);
    assert_eq!(code, Some(1), "{doctor}");
    assert!(
        doctor.contains(&format!("Does not work: - {small}"))
            || doctor.contains(&format!("- {small}")),
        "{doctor}"
    );
}

/// Ollama prefers `num_ctx` of a model to its own default, which a larger one would not change.
fn small_window_of_a_models_own_parameters_names_their_remedy() {
    let server = Server::start(|request: &ReceivedRequest| match request.path() {
        "/v1/models" => ok(&list(&["mine:7b"])),
        "/api/show" => ok(
            &json!({ "capabilities": ["completion", "tools"], "parameters": "num_ctx    4096",
                "model_info": { "general.architecture": "qwen2", "qwen2.context_length": 131_072 } }),
        ),
        "/api/ps" => ok(&json!({ "models": [] })),
        "/v1/chat/completions" => answer("Here I am."),
        _ => (404, String::new(), "404 page not found".into()),
    });
    let project = project_with("ollama", &server);
    for words in [&["models"][..], &["doctor"], &["run", "Hello?"]] {
        let output = adjutant(&project, words, "");
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            printed.contains(
                "`printf 'FROM mine:7b\\nPARAMETER num_ctx 64000\\n' | ollama create mine:7b -f /dev/stdin`"
            ) && !printed.contains("OLLAMA_CONTEXT_LENGTH"),
            "{words:?}: {printed}"
        );
    }
}

fn missing_model_is_refused_by_its_name() {
    let server = ollama(Duration::ZERO, 65_536);
    let project = project_with("ollama", &server);
    let table: [(&[&str], i32, &str); 9] = [
        (
            &["run", "-m", "ollama/typo", "Hello?"],
            2,
            "there is no model \"ollama/typo\" here. `adjutant models` lists the models you can use. \
             `ollama pull typo` fetches a model of this name.",
        ),
        (
            &["run", "-m", "ollama/qwen3-codr:30b", "Hello?"],
            2,
            "Did you mean ollama/qwen3-coder:30b? `ollama pull qwen3-codr:30b` fetches",
        ),
        (
            &["config", "set", "model", "ollama/typo"],
            1,
            "model: there is no model ollama/typo on this machine; `ollama pull typo` fetches it. \
             Nothing was changed.",
        ),
        (
            &["config", "set", "model", "ollama/qwen3-codr:30b"],
            1,
            "did you mean ollama/qwen3-coder:30b?",
        ),
        (
            &["config", "set", "model", "nowhere/typo"],
            1,
            "there is no model nowhere/typo",
        ),
        (&["config", "set", "model", "ollama/qwen3-coder:30b"], 0, ""),
        (
            &["config", "set", "model", "openai/gpt-5"],
            0,
            "warning: model: the model openai/gpt-5 cannot be used",
        ),
        (
            &["auth", "login", "ollama"],
            1,
            "Ollama on this machine needs no key: `adjutant models ollama` lists its models",
        ),
        (&["auth", "test", "ollama"], 0, ""),
    ];
    for (words, code, expected) in table {
        let output = adjutant(&project, words, "");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
        assert!(stderr.contains(expected), "{words:?}: {stderr}");
    }
    // The test of the login asks a model that can call tools.
    let asked = server.received();
    let asked = asked
        .iter()
        .rfind(|request| request.path() == "/v1/chat/completions");
    assert!(asked.unwrap().body.contains("qwen3-coder:30b"));
    assert_eq!(
        stdout_of(&project, &["sessions", "--all"]),
        "No sessions yet: `adjutant run \"PROMPT\"` starts one, and so does an editor.\n",
        "a refused model leaves a session"
    );

    // A wrong default model is a problem of the settings.
    project.write(
        "~/.config/adjutant/adjutant.json",
        r#"{"model":"ollama/typo"}"#,
    );
    for words in [&["config", "check"][..], &["doctor"]] {
        let output = adjutant(&project, words, "");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {text}");
    }
    let check = adjutant(&project, &["config", "check"], "");
    let check = String::from_utf8_lossy(&check.stdout);
    assert!(
        check.contains("there is no model ollama/typo on this machine"),
        "{check}"
    );

    // The same of a server that the settings name.
    project.write(
        "~/.config/adjutant/adjutant.json",
        &json!({ "model": "mine/typo", "provider": { "mine": {
            "npm": "@ai-sdk/openai-compatible",
            "options": { "baseURL": format!("{}/v1", server.base()) },
            "models": { "typo": {} },
        } } })
        .to_string(),
    );
    let doctor = || {
        let output = adjutant(&project, &["doctor"], "");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        text
    };
    let text = doctor();
    assert!(
        text.contains("does not have the model typo: it has llama3.2:latest, qwen3-coder:30b"),
        "{text}"
    );

    // Without the server, nothing can be checked, so nothing is refused.
    drop(server);
    let text = doctor();
    assert!(
        text.contains("- the default model mine/typo: mine is not running at"),
        "{text}"
    );
    project.write("~/.config/adjutant/adjutant.json", "{}");
    let output = adjutant(&project, &["config", "set", "model", "ollama/other"], "");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains(
            "warning: model: the model ollama/other was not checked: Ollama does not answer"
        ),
        "{stderr}"
    );
}

fn wanted_server_is_found_in_addition_to_a_key() {
    let server = ollama(Duration::from_millis(150), 65_536);
    let mut project = project_with("ollama", &server);
    project.set("MISTRAL_API_KEY", Some("a-key"));
    project.write(
        "~/.config/opencode/opencode.json",
        r#"{"model":"ollama/qwen3-coder:30b"}"#,
    );
    let (response, updates) = prompted(project);
    assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
    assert!(updates.contains("Here I am."), "{updates}");

    // The same without the server.
    drop(server);
    let mut project = Project::new();
    project.set("ADJUTANT_LOCAL_SERVERS", Some("ollama=9"));
    project.set("MISTRAL_API_KEY", Some("a-key"));
    project.write(
        "~/.config/opencode/opencode.json",
        r#"{"model":"ollama/qwen3-coder:30b"}"#,
    );
    let (response, _) = prompted(project);
    let error = response["error"]["message"].to_string();
    assert!(
        error.contains("Ollama does not answer at 127.0.0.1:9, from ADJUTANT_LOCAL_SERVERS: start it with `ollama serve`, \
             correct ADJUTANT_LOCAL_SERVERS, or choose another model (`adjutant models`)."),
        "{response}"
    );
}

fn servers_report_abilities_and_windows() {
    let lm_studio = |request: &ReceivedRequest| match request.path() {
        "/v1/models" => ok(&list(&["qwen/qwen3-coder-30b", "text-embedding-nomic"])),
        "/api/v1/models" => ok(
            &json!({ "models": [{ "type": "llm", "key": "qwen/qwen3-coder-30b",
            "max_context_length": 262_144, "capabilities": { "vision": false, "trained_for_tool_use": true },
            "loaded_instances": [{ "id": "qwen/qwen3-coder-30b", "config": { "context_length": 8192 } }] }] }),
        ),
        _ => (
            404,
            String::new(),
            json!({ "error": "Unexpected endpoint or method." }).to_string(),
        ),
    };
    let old_lm_studio = |request: &ReceivedRequest| match request.path() {
        "/v1/models" => ok(&list(&["gemma-3-4b"])),
        "/api/v0/models" => ok(
            &json!({ "object": "list", "data": [{ "id": "gemma-3-4b", "object": "model", "type": "vlm",
            "state": "loaded", "max_context_length": 131_072, "loaded_context_length": 8192, "capabilities": [] }] }),
        ),
        _ => (
            404,
            String::new(),
            json!({ "error": "Unexpected endpoint or method." }).to_string(),
        ),
    };
    let llama_cpp = |request: &ReceivedRequest| match request.path() {
        "/v1/models" => ok(
            &json!({ "object": "list", "data": [{ "id": "gpt-oss-20b", "object": "model", "owned_by": "llamacpp",
            "meta": { "n_vocab": 201_088, "n_ctx_train": 131_072 } }] }),
        ),
        "/props" => ok(
            &json!({ "default_generation_settings": { "n_ctx": 16_384 }, "total_slots": 1,
            "modalities": { "vision": false, "audio": false },
            "chat_template_caps": { "supports_tools": true, "supports_tool_calls": true } }),
        ),
        _ => (
            404,
            String::new(),
            json!({ "error": { "code": 404, "message": "File Not Found" } }).to_string(),
        ),
    };
    let vllm = |request: &ReceivedRequest| match request.path() {
        "/v1/models" => ok(
            &json!({ "object": "list", "data": [{ "id": "Qwen/Qwen3-8B", "object": "model", "owned_by": "vllm",
            "max_model_len": 40_960 }] }),
        ),
        _ => (
            404,
            String::new(),
            json!({ "detail": "Not Found" }).to_string(),
        ),
    };
    type Responder = fn(&ReceivedRequest) -> Response;
    let table: [(&str, Responder, &str, u64, Value); 4] = [
        (
            "lmstudio",
            lm_studio,
            "lmstudio/qwen/qwen3-coder-30b",
            8192,
            json!(["tools"]),
        ),
        (
            "lmstudio",
            old_lm_studio,
            "lmstudio/gemma-3-4b",
            8192,
            json!(["images"]),
        ),
        (
            "llama.cpp",
            llama_cpp,
            "llama.cpp/gpt-oss-20b",
            16_384,
            json!(["tools"]),
        ),
        ("vllm", vllm, "vllm/Qwen/Qwen3-8B", 40_960, json!(["tools"])),
    ];
    for (name, responder, model, context, abilities) in table {
        let server = Server::start(responder);
        let project = project_with(name, &server);
        let all: Value = serde_json::from_str(&stdout_of(&project, &["models", "--json"])).unwrap();
        let models = all["providers"][0]["models"].as_array().unwrap();
        assert_eq!(models.len(), 1, "{all}");
        let found = (
            &models[0]["id"],
            &models[0]["context"],
            &models[0]["abilities"],
        );
        assert_eq!(found, (&json!(model), &json!(context), &abilities));
    }
}
