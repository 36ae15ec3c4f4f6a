//! Models, keys and logins: the output of the commands, and the requests that run next to a
//! conversation. All of them go to servers of these tests.

mod endpoints;
mod login;
mod network;
mod surrogates;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use crate::client::Client;
use crate::editor::RESPONSE_TIMEOUT;
use crate::loopback::Server;
use crate::program::{adjutant, stderr_of, stdout_of};
use crate::project::Project;
use login::{
    browser_login_yields_tokens_that_are_renewed, device_code_login_works,
    logout_removes_stored_credentials, openrouter_login_yields_a_key,
};
use network::{
    one_connection_serves_all_steps, only_the_users_own_authority_is_trusted,
    proxies_are_used_and_their_refusals_reported,
};

pub use login::{browse, log_in, query};
pub use network::serve_with_own_authority;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 16] = [
    (
        "models are listed with prices and keys",
        models_are_listed_with_prices_and_keys,
    ),
    (
        "catalogue is fetched once and revalidated",
        catalogue_is_fetched_once_and_revalidated,
    ),
    (
        "newer catalogue is fetched in parallel",
        newer_catalogue_is_fetched_in_parallel,
    ),
    (
        "keys are stored, listed and removed",
        keys_are_stored_listed_and_removed,
    ),
    (
        "browser login yields tokens that are renewed",
        browser_login_yields_tokens_that_are_renewed,
    ),
    ("device code login works", device_code_login_works),
    (
        "OpenRouter login yields a key",
        openrouter_login_yields_a_key,
    ),
    (
        "logout removes stored credentials",
        logout_removes_stored_credentials,
    ),
    (
        "traffic is recorded without keys and replayed",
        traffic_is_recorded_without_keys_and_replayed,
    ),
    (
        "model choice applies to the project",
        model_choice_applies_to_the_project,
    ),
    (
        "editor's endpoint is asked with its keys only",
        endpoints::editors_endpoint_is_asked_with_its_keys_only,
    ),
    (
        "editor's endpoint makes models available",
        endpoints::editors_endpoint_makes_models_available,
    ),
    (
        "only the user's own authority is trusted",
        only_the_users_own_authority_is_trusted,
    ),
    (
        "one connection serves all steps",
        one_connection_serves_all_steps,
    ),
    (
        "halves of an emoji are joined",
        surrogates::halves_of_an_emoji_are_joined,
    ),
    (
        "proxies are used and their refusals reported",
        proxies_are_used_and_their_refusals_reported,
    ),
];

fn models_are_listed_with_prices_and_keys() {
    let mut project = Project::new();
    project.set("ANTHROPIC_API_KEY", Some("a-key"));
    let own = json!({ "model": "own/large", "provider": {
        "own": { "name": "Own", "npm": "@ai-sdk/openai-compatible", "options": { "baseURL": "http://127.0.0.1:9/v1" },
            "models": {
                "large": { "limit": { "context": 131_072, "output": 16_384 }, "cost": { "input": 1, "output": 2.5,
                    "cache_read": 0.1, "tiers": [{ "input": 2, "output": 5, "tier": { "type": "context", "size": 32_000 } }] },
                    "reasoning": true, "variants": { "deep": { "reasoning_effort": "high" }, "low": { "disabled": true } } },
                "small": {}, "hidden": {} },
            "blacklist": ["hidden"] },
        "mistral": { "whitelist": ["mistral-large-latest"] },
        "mine": { "id": "anthropic", "options": { "apiKey": "b-key" }, "whitelist": ["claude-sonnet-4-5"],
            "models": { "claude-sonnet-4-5": { "limit": { "output": 1_000 } } } },
    } });
    project.write("~/.config/opencode/opencode.json", &own.to_string());

    let text = stdout_of(&project, &["models"]);
    for line in [
        "own (Own): no key needed",
        "   model      context/out  $ in/out   can",
        "*  own/large  131k / 16k   $1 / $2.5  RT---",
        "anthropic (Anthropic): key from ANTHROPIC_API_KEY",
        "mistral (Mistral): There is no key for Mistral. Set MISTRAL_API_KEY, or run `adjutant auth login mistral`.",
        "mine (Anthropic): key from the settings",
        "offline (Offline): no key needed",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line:?} is not in\n{text}"
        );
    }
    assert!(
        !text.contains("hidden") && !text.contains("a-key") && !text.contains("openrouter"),
        "{text}"
    );

    let all: Value = serde_json::from_str(&stdout_of(&project, &["models", "--json"])).unwrap();
    assert_eq!(all["default"], "own/large");
    let of = |id: &str| {
        all["providers"]
            .as_array()
            .unwrap()
            .iter()
            .find(|provider| provider["id"] == id)
            .unwrap()
            .clone()
    };
    let large = &of("own")["models"][0];
    assert_eq!(
        *large,
        json!({ "id": "own/large", "name": "large", "context": 131_072, "input": null, "output": 16_384,
            "price": { "input": 1.0, "output": 2.5, "cacheRead": 0.1, "cacheWrite": 1.0, "longer": [
                { "inputOver": 32_000, "price": { "input": 2.0, "output": 5.0, "cacheRead": 2.0, "cacheWrite": 2.0 } }] },
            "abilities": ["reasoning", "tools"], "efforts": ["medium", "high", "deep"] })
    );
    assert_eq!(
        (
            &of("mistral")["hasKey"],
            &of("mistral")["models"].as_array().unwrap().len()
        ),
        (&json!(false), &1)
    );
    // The settings override the catalogue.
    let mine = &of("mine")["models"];
    assert_eq!(
        (mine.as_array().unwrap().len(), &mine[0]["output"]),
        (1, &json!(1_000))
    );
    assert_eq!(mine[0]["price"]["input"], 3.0);

    let everyone = stdout_of(&project, &["models", "--all", "openrouter"]);
    assert!(
        everyone.starts_with(
            "openrouter (OpenRouter): There is no key for OpenRouter. Set OPENROUTER_API_KEY"
        ),
        "{everyone}"
    );
    let missing = stderr_of(&project, &["models", "mistrall"]);
    assert!(
        missing.contains("no provider \"mistrall\". Did you mean mistral?"),
        "{missing}"
    );
}

/// Returns a catalogue with one provider, whose models have these names.
fn catalogue(names: &[&str]) -> String {
    let model = |name: &&str| {
        (
            (*name).to_owned(),
            json!({ "id": name, "name": name, "limit": { "context": 10, "output": 5 } }),
        )
    };
    let models: serde_json::Map<String, Value> = names.iter().map(model).collect();
    json!({ "acme": { "id": "acme", "name": "Acme", "env": ["ACME_KEY"], "npm": "@ai-sdk/openai-compatible",
        "api": "http://127.0.0.1:9/v1", "models": models } })
    .to_string()
}

fn catalogue_is_fetched_once_and_revalidated() {
    let server = Server::start(|received| match received.header("if-none-match") {
        Some("\"v1\"") => (304, "etag: \"v1\"\r\n".into(), String::new()),
        _ => (200, "etag: \"v1\"\r\n".into(), catalogue(&["one", "two"])),
    });
    let mut project = Project::new();
    project.set("ADJUTANT_MODELS_URL", Some(&server.base()));
    project.set("ACME_KEY", Some("a-key"));
    assert!(!stdout_of(&project, &["models"]).contains("acme"));
    let fetched = stdout_of(&project, &["models", "--refresh"]);
    assert!(
        fetched.starts_with("Updated the catalogue: 2 models.")
            && fetched.contains("acme (Acme): key from ACME_KEY")
    );
    assert!(
        stdout_of(&project, &["models", "--refresh"]).starts_with("The catalogue is up to date.")
    );
    let paths: Vec<_> = server
        .received()
        .iter()
        .map(|received| received.path().to_owned())
        .collect();
    assert_eq!(paths, ["/api.json", "/api.json"]);
    // Without a server the stored catalogue applies.
    drop(server);
    assert!(stdout_of(&project, &["models", "acme"]).contains("two"));
    assert!(
        stderr_of(&project, &["models", "--refresh"])
            .contains("the model catalogue (127.0.0.1) could not be reached")
    );
}

fn newer_catalogue_is_fetched_in_parallel() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let own = gate.clone();
    let server = Server::start(move |_| {
        let open = own.0.lock().unwrap();
        drop(
            own.1
                .wait_timeout_while(open, RESPONSE_TIMEOUT, |open| !*open),
        );
        (200, String::new(), catalogue(&["fresh"]))
    });
    let mut project = Project::new();
    project.set("ADJUTANT_MODELS_URL", Some(&server.base()));
    project.set("ADJUTANT_DISABLE_MODELS_FETCH", None);
    project.set("MISTRAL_API_KEY", Some("a-key"));
    project.set("ACME_KEY", Some("a-key"));
    let mut client = Client::new(project);
    // Sessions open before the server answers.
    let models = |client: &mut Client, id: u64| {
        let cwd = client.project.cwd();
        client.request(id, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
        client.answer(id).0["result"]["configOptions"].to_string()
    };
    assert!(!models(&mut client, 1).contains("acme/fresh"));
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    let started = Instant::now();
    let found = (2..).find(|id| {
        models(&mut client, *id).contains("acme/fresh") || started.elapsed() > RESPONSE_TIMEOUT
    });
    assert!(
        started.elapsed() <= RESPONSE_TIMEOUT,
        "not there after {found:?} sessions"
    );
    assert_eq!(server.received().len(), 1);
    client.leave();
}

fn keys_are_stored_listed_and_removed() {
    let mut project = Project::new();
    let theirs = json!({ "groq": { "type": "api", "key": "their-key" }, "openai": { "type": "oauth", "access": "x", "refresh": "y", "expires": 1 } });
    project.write("~/.local/share/opencode/auth.json", &theirs.to_string());
    let output = adjutant(&project, &["auth", "login", "mistral"], "our-key\n");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let path = project.path("~/.local/share/adjutant/auth.json");
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(
        kept,
        json!({ "mistral": { "type": "api", "key": "our-key" } })
    );
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    project.set("XAI_API_KEY", Some("a-key"));
    let listed = stdout_of(&project, &["auth", "list"]);
    let lines: Vec<Vec<&str>> = listed
        .lines()
        .filter(|line| !line.starts_with(' '))
        .map(|line| line.split_whitespace().take(2).collect())
        .collect();
    assert_eq!(
        lines,
        [
            ["provider", "from"],
            ["mistral", "~/.local/share/adjutant/auth.json"],
            ["groq", "~/.local/share/opencode/auth.json"],
            ["xai", "XAI_API_KEY"],
        ],
        "{listed}"
    );
    assert_eq!(listed.matches(" models").count(), 3, "{listed}");
    assert!(
        stdout_of(&project, &["models", "mistral"])
            .starts_with("mistral (Mistral): key from auth.json")
    );

    assert_eq!(
        stdout_of(&project, &["auth", "logout", "mistral"]),
        "mistral: forgotten.\n"
    );
    assert!(stdout_of(&project, &["auth", "logout", "groq"]).contains("`opencode auth logout`"));
    assert_eq!(
        std::fs::read_to_string(project.path("~/.local/share/opencode/auth.json")).unwrap(),
        theirs.to_string()
    );
    for (words, complaint) in [
        (
            &["auth", "logout", "mistral"][..],
            "nothing is stored for \"mistral\"",
        ),
        (&["auth", "login", "mistrall"], "Did you mean mistral?"),
        (
            &["auth", "login", "mistral"],
            "no key was given; nothing was changed",
        ),
        (&["auth", "login"], "name a provider"),
        (
            &["auth", "login", "mistral", "--device"],
            "Mistral has no login with a code",
        ),
    ] {
        let stderr = stderr_of(&project, words);
        assert!(stderr.contains(complaint), "{words:?}: {stderr}");
    }
}

/// Returns a model that answers every request with these words; the key is `secret-key-1`.
fn model_saying(text: &'static str) -> Server {
    Server::start(move |received| {
        if received.header("authorization") != Some("Bearer secret-key-1") {
            return (
                401,
                String::new(),
                json!({ "error": { "message": "Incorrect API key provided: wrong-key-22" } })
                    .to_string(),
            );
        }
        let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 1_000_000, "completion_tokens": 0 } });
        (
            200,
            "content-type: text/event-stream\r\nx-secret: secret-key-1\r\n".into(),
            format!("data: {chunk}\n\ndata: [DONE]\n\n"),
        )
    })
}

fn one_provider(project: &Project, base: &str, key: &str) {
    let settings = json!({ "model": "own/m", "provider": { "own": { "name": "Own", "npm": "@ai-sdk/openai-compatible",
        "options": { "baseURL": base, "apiKey": key }, "models": { "m": { "cost": { "input": 2, "output": 1 } } } } } });
    project.write("~/.config/opencode/opencode.json", &settings.to_string());
}

fn traffic_is_recorded_without_keys_and_replayed() {
    let server = model_saying("Remember me.");
    let mut project = Project::new();
    let tapes = project.path("tmp:tapes").display().to_string();
    one_provider(
        &project,
        &format!("{}/v1?key=secret-key-1", server.base()),
        "secret-key-1",
    );
    project.set("ADJUTANT_RECORD", Some(&tapes));
    assert_eq!(stdout_of(&project, &["run", "Hello"]), "Remember me.\n");
    one_provider(&project, &format!("{}/v1", server.base()), "wrong-key-22");
    let refused = stderr_of(&project, &["run", "Hello again"]);
    project.set("ADJUTANT_RECORD", None);
    drop(server);

    let mut all = String::new();
    for entry in std::fs::read_dir(&tapes).unwrap().flatten() {
        all.push_str(&std::fs::read_to_string(entry.path()).unwrap());
    }
    assert!(
        !all.contains("secret-key-1") && !all.contains("wrong-key-22"),
        "{all}"
    );
    assert!(
        all.contains("Hello") && all.contains("Remember me.") && all.contains("[key]"),
        "{all}"
    );

    // Without the server and without a key: the same words, the same refusal, in their order.
    std::fs::remove_file(project.path("~/.config/opencode/opencode.json")).unwrap();
    let model = format!("replay:{tapes}");
    let mut client = Client::new(project);
    let session = client.open();
    client.request(
        2,
        "session/set_config_option",
        &json!({ "sessionId": session, "configId": "model", "value": model }),
    );
    assert!(client.answer(2).0.get("error").is_none());
    client.prompt(3, &session, "Hello");
    let (answer, updates) = client.answer(3);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    let updates = json!(updates).to_string();
    assert!(
        updates.contains("Remember me.") && updates.contains(r#""cost":{"amount":2.0"#),
        "{updates}"
    );
    client.prompt(4, &session, "Hello again");
    let again = client.answer(4).0["error"]["data"]["details"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(again.contains("401") && refused.contains("401"), "{again}");
    client.prompt(5, &session, "And now?");
    let over = client.answer(5).0["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        over.contains(&format!("Everything has been played in {tapes}.")),
        "{over}"
    );
    client.leave();
}

fn model_choice_applies_to_the_project() {
    let project = Project::new();
    let of = |id: &str, names: &[&str]| {
        let models: serde_json::Map<String, Value> = names
            .iter()
            .map(|name| ((*name).to_owned(), json!({ "reasoning": true })))
            .collect();
        json!({ "name": id.to_uppercase(), "npm": "@ai-sdk/openai-compatible", "options": { "baseURL": "http://127.0.0.1:9/v1" }, "models": models })
    };
    let letters = ["a", "b", "c", "d", "e", "f", "g"];
    let settings =
        json!({ "provider": { "one": of("one", &letters), "two": of("two", &letters) } });
    project.write("~/.config/opencode/opencode.json", &settings.to_string());
    let option = |options: &Value, id: &str| {
        options
            .as_array()
            .unwrap()
            .iter()
            .find(|option| option["id"] == id)
            .cloned()
            .unwrap_or_default()
    };
    let open = |client: &mut Client, id: u64, cwd: &std::path::Path| {
        client.request(id, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
        let result = client.answer(id).0["result"].clone();
        (
            result["sessionId"].as_str().unwrap().to_owned(),
            result["configOptions"].clone(),
        )
    };
    let mut client = Client::new(project);
    let cwd = client.project.cwd();
    let (session, first) = open(&mut client, 1, &cwd);
    let groups = |options: &Value| -> Vec<String> {
        let model = option(options, "model");
        let groups = model["options"].as_array().unwrap().iter();
        groups
            .map(|group| {
                format!(
                    "{}: {}",
                    group["name"].as_str().unwrap(),
                    group["options"].as_array().unwrap().len()
                )
            })
            .collect()
    };
    assert_eq!(groups(&first), ["ONE: 7", "TWO: 7", "adjutant: 1"]);
    for (id, (option, value)) in
        (2..).zip([("model", "two/c"), ("model", "one/d"), ("effort", "high")])
    {
        client.request(
            id,
            "session/set_config_option",
            &json!({ "sessionId": session, "configId": option, "value": value }),
        );
        assert!(client.answer(id).0.get("error").is_none());
    }
    // An open session gets choices when it does something; closing waits for that.
    client.request(5, "session/close", &json!({ "sessionId": session }));
    client.answer(5);
    let (_, next) = open(&mut client, 6, &cwd);
    assert_eq!(
        groups(&next),
        ["Recently used: 2", "ONE: 6", "TWO: 6", "adjutant: 1"]
    );
    assert_eq!(
        (
            &option(&next, "model")["currentValue"],
            &option(&next, "effort")["currentValue"]
        ),
        (&json!("one/d"), &json!("high"))
    );
    assert_eq!(
        option(&next, "model")["options"][0]["options"][1]["name"],
        "TWO/c"
    );
    // The choice does not apply to another project.
    std::fs::create_dir_all(client.project.path("~/elsewhere")).unwrap();
    let elsewhere = client.project.path("~/elsewhere");
    assert_eq!(groups(&open(&mut client, 7, &elsewhere).1), groups(&first));
    client.leave();
}
