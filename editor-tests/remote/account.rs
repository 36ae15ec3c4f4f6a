//! Shared account data of a server, which no user may change. The table of
//! `crates/remote/README.md` states the owner of every method, command and answer; these tests
//! compare it with the program, in both versions of the protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use super::entry::new_token;
use super::socket::Socket;
use super::{Served, project};
use crate::model::Model;
use crate::project::Project;

/// The setting that lifts a refusal, and that every refusal names.
const SETTING: &str = "serve.account_users";

/// Keys of the account before the first connection.
const KEYS: &str = r#"{"mistral":{"type":"api","key":"a-key"}}"#;

/// Returns the cells of the table between two marks of a page.
fn rows(page: &str, mark: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let table = text
        .split(&format!("<!-- {mark}:begin"))
        .nth(1)
        .and_then(|rest| rest.split("<!-- ").next())
        .unwrap();
    let lines = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    lines
        .skip(1)
        .map(|line| {
            line.trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().to_owned())
                .collect()
        })
        .collect()
}

/// Returns the owner of each method and command, from the page: `connection`, `user` or `account`.
fn owners() -> BTreeMap<String, String> {
    let rows = rows("crates/remote/README.md", "whose");
    let names = |row: Vec<String>| {
        let names: Vec<String> = row[0]
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect();
        names.into_iter().map(move |name| (name, row[1].clone()))
    };
    rows.into_iter().flat_map(names).collect()
}

/// Returns the methods that are served: in which versions.
fn methods() -> BTreeMap<String, String> {
    let rows = rows("protocol/README.md", "acp");
    let served = rows
        .into_iter()
        .filter(|row| row[2].starts_with("editor") && row[3] == "served");
    served
        .map(|row| (row[0].trim_matches('`').to_owned(), row[1].clone()))
        .collect()
}

/// Returns the owner of a method: that of its own row, or else that of the methods of its kind.
fn owner<'o>(owners: &'o BTreeMap<String, String>, method: &str) -> Option<&'o str> {
    let kind = method.split_once('/').map(|(kind, _)| format!("{kind}/*"));
    let owner = owners.get(method).or_else(|| owners.get(&kind?))?;
    Some(owner)
}

/// Returns the parameters of all methods together: each reads those that it knows.
fn params(session: &str, project: &Project) -> Value {
    json!({
        "methodId": "adjutant-keys",
        "providerId": "openai",
        "apiType": "openai",
        "baseUrl": "https://gateway.example.com/v1",
        "sessionId": session,
        "cwd": project.cwd(),
        "mcpServers": [],
        "title": "A title",
        "modeId": "plan",
        "modelId": "bench/bench-model",
        "configId": "mode",
        "type": "id",
        "value": "plan",
    })
}

/// A server with three users: `ada`, `bob`, and the unnamed one of the third token.
struct Shared {
    project: Project,
    _model: Model,
    tokens: [String; 3],
}

impl Shared {
    fn new() -> Self {
        let (project, model) = project();
        let file = project.path("~/tokens").display().to_string();
        let tokens = [&["--user", "ada"][..], &["--user", "bob"], &[]]
            .map(|user| new_token(&project, &file, user.last().unwrap_or(&"own"), user));
        // It would run something: that is asked about.
        project.write(
            "opencode.json",
            r#"{"mcp":{"theirs":{"type":"local","command":["true"]}}}"#,
        );
        let shared = Self {
            project,
            _model: model,
            tokens,
        };
        shared
            .project
            .write("~/.local/share/adjutant/auth.json", KEYS);
        shared
    }

    fn served(&self) -> Served {
        Served::start(
            &self.project,
            &[
                "--acp-v2",
                "--token-file",
                &self.project.path("~/tokens").display().to_string(),
            ],
        )
    }

    fn connect(&self, served: &Served, user: usize, version: u8) -> Socket {
        let mut socket = Socket::try_open(
            &served.address,
            &format!("Authorization: Bearer {}\r\n", self.tokens[user]),
        );
        match version {
            1 => socket.hello(),
            _ => assert_eq!(socket.hello_in_second(), 2),
        }
        socket
    }

    fn data(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.project.path("~/.local/share/adjutant").join(name)).ok()
    }

    /// Logs out as a user, checks that the keys are removed unless it is refused, and returns the
    /// answer.
    fn logs_out(&self, served: &Served, user: usize, version: u8) -> Value {
        self.project
            .write("~/.local/share/adjutant/auth.json", KEYS);
        let mut socket = self.connect(served, user, version);
        socket.request(
            9,
            if version == 1 {
                "logout"
            } else {
                "auth/logout"
            },
            &json!({}),
        );
        let answer = socket.answer(9).0;
        let gone = self.data("auth.json").as_deref() != Some(KEYS);
        assert_eq!(gone, answer.get("error").is_none(), "{answer}");
        answer
    }

    /// Sends a command as a user, and returns its answer.
    fn answer_to(&self, served: &Served, user: usize, version: u8, command: &str) -> String {
        let mut socket = self.connect(served, user, version);
        let session = socket.session(&self.project);
        socket.prompt(2, &session, command);
        loop {
            let message = socket.receive();
            assert!(message.get("error").is_none(), "{message}");
            let update = &message["params"]["update"];
            if update["sessionUpdate"] == "agent_message_chunk" {
                return update["content"]["text"].as_str().unwrap().to_owned();
            }
        }
    }

    /// Sends a user's prompt; `Err` has the reply if the project's trust is not asked about.
    fn asked_for_trust(&self, served: &Served, user: usize, version: u8) -> Result<(), String> {
        let mut socket = self.connect(served, user, version);
        let session = socket.session(&self.project);
        socket.prompt(2, &session, "Hello.");
        loop {
            let message = socket.receive();
            if message["method"] == "session/request_permission" {
                assert!(
                    message.to_string().contains("Trust this project?"),
                    "{message}"
                );
                return Ok(());
            }
            let text = message.to_string();
            assert!(message.get("error").is_none(), "{text}");
            if text.contains(SETTING) {
                return Err(text);
            }
        }
    }
}

pub(super) fn every_method_and_command_has_an_owner() {
    let shared = Shared::new();
    // Commands are listed if there is something for them to do: keys, a server, a skill.
    shared
        .project
        .settings(&json!({ "mcp": { "own": { "type": "local", "command": ["true"] } } }));
    shared.project.write(
        "~/.config/opencode/skills/carving/SKILL.md",
        "---\nname: carving\ndescription: Carves wood\n---\nCarve.\n",
    );
    let served = shared.served();
    let mut socket = shared.connect(&served, 2, 1);
    socket.request(
        1,
        "session/new",
        &json!({ "cwd": shared.project.cwd(), "mcpServers": [] }),
    );
    let words = loop {
        let update = &socket.receive()["params"]["update"];
        if update["sessionUpdate"] == "available_commands_update" {
            break update["availableCommands"].as_array().unwrap().clone();
        }
    };
    let words = words
        .iter()
        .map(|word| format!("/{}", word["name"].as_str().unwrap()))
        .filter(|word| word != "/carving");
    let owners = owners();
    let methods: BTreeSet<String> = methods().into_keys().collect();
    let missing: Vec<&String> = methods
        .iter()
        .filter(|method| owner(&owners, method).is_none())
        .collect();
    assert!(
        missing.is_empty(),
        "the table of crates/remote/README.md does not list {missing:?}"
    );
    let is_request = |name: &&String| {
        name.starts_with('/')
            || name
                .chars()
                .all(|c| c.is_ascii_lowercase() || "/_$".contains(c))
    };
    let listed: BTreeSet<String> = owners.keys().filter(is_request).cloned().collect();
    let listed_methods = methods.intersection(&listed).cloned();
    let known: BTreeSet<String> = listed_methods.chain(words).collect();
    assert_eq!(
        listed, known,
        "the table of crates/remote/README.md is not that of the program"
    );
    assert!(
        owners
            .values()
            .all(|owner| ["connection", "user", "account"].contains(&owner.as_str())),
        "{owners:?}"
    );
}

pub(super) fn account_methods_are_refused_to_users() {
    let shared = Shared::new();
    let served = shared.served();
    let owners = owners();
    let methods = methods();
    for version in [1, 2] {
        let mut socket = shared.connect(&served, 0, version);
        let session = socket.session(&shared.project);
        let params = params(&session, &shared.project);
        let spoken = methods
            .iter()
            .filter(|(_, versions)| versions.contains(&version.to_string()));
        for (at, (method, _)) in spoken
            .filter(|(method, _)| *method != "initialize")
            .enumerate()
        {
            if ["session/cancel", "$/cancel_request"].contains(&method.as_str()) {
                socket.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
                continue;
            }
            // Both would have to end before the rest is answered.
            if ["session/prompt", "session/close", "session/delete"].contains(&method.as_str()) {
                continue;
            }
            socket.request(100 + at as u64, method, &params);
            let answer = socket.answer(100 + at as u64).0;
            let error = answer["error"]["message"].as_str().unwrap_or_default();
            assert!(
                !error.contains("missing field"),
                "params() has not all parameters of {method} in version {version}: {error}"
            );
            assert_eq!(
                error.contains(SETTING),
                owner(&owners, method) == Some("account"),
                "{method} in version {version}: {answer}"
            );
        }
        let why = shared.logs_out(&served, 1, version)["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            why.starts_with("Keys of providers belong to the account")
                && why.contains("bob may not"),
            "{why}"
        );
        assert!(why.contains("`adjutant auth logout PROVIDER`"), "{why}");
        for command in ["/logout", "/logout mistral", "/logout all"] {
            let why = shared.answer_to(&served, 1, version, command);
            assert!(
                why.starts_with("Keys of providers belong to the account")
                    && why.contains("bob may not"),
                "{command}: {why}"
            );
            assert_eq!(shared.data("auth.json").as_deref(), Some(KEYS), "{command}");
        }
        let why = shared.answer_to(&served, 1, version, "/export talk.md");
        assert!(
            why.starts_with("Files of exports belong to the account")
                && why.contains("`/export` without a file"),
            "{why}"
        );
        assert!(!shared.project.path("talk.md").exists());
        let why = shared.asked_for_trust(&served, 0, version).unwrap_err();
        assert!(
            why.contains("Trust in a project belongs to the account")
                && why.contains("`adjutant trust`"),
            "{why}"
        );
    }
    for name in ["trust.json", "mcp-auth.json"] {
        assert_eq!(shared.data(name), None, "{name}");
    }
}

pub(super) fn account_methods_are_allowed_to_listed_users() {
    let shared = Shared::new();
    for (allowed, users) in [("ada", [true, false, true]), ("*", [true, true, true])] {
        shared
            .project
            .settings(&json!({ "serve": { "account_users": [allowed] } }));
        let served = shared.served();
        for version in [1, 2] {
            for (user, may) in users.into_iter().enumerate() {
                let answer = shared.logs_out(&served, user, version);
                assert_eq!(
                    answer.get("error").is_none(),
                    may,
                    "{allowed} {user}: {answer}"
                );
                shared
                    .project
                    .write("~/.local/share/adjutant/auth.json", KEYS);
                let answer = shared.answer_to(&served, user, version, "/logout all");
                let gone = shared.data("auth.json").as_deref() != Some(KEYS);
                assert_eq!(gone, may, "{allowed} {user}: {answer}");
                assert_eq!(
                    shared.asked_for_trust(&served, user, version).is_ok(),
                    may,
                    "{allowed} {user}"
                );
            }
        }
    }
}

/// Returns the error of a request to set an endpoint, or an empty text.
fn refused_endpoint(socket: &mut Socket, id: u64, base: &str) -> String {
    let endpoint = json!({ "providerId": "openai", "apiType": "openai", "baseUrl": base });
    socket.request(id, "providers/set", &endpoint);
    let answer = socket.answer(id).0;
    answer["error"]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

pub(super) fn endpoints_follow_the_rules_of_webfetch() {
    let shared = Shared::new();
    shared.project.settings(
        &json!({ "serve": { "account_users": ["ada"] }, "webfetch": { "private": ["127.0.0.1:9"] } }),
    );
    let served = shared.served();
    for version in [1, 2] {
        // The owner of the account, and a user who may.
        for user in [2, 0] {
            let mut socket = shared.connect(&served, user, version);
            for (id, base) in
                (10..).zip(["https://gateway.example.com/v1", "http://127.0.0.1:9/v1"])
            {
                assert_eq!(refused_endpoint(&mut socket, id, base), "", "{base}");
            }
            let inside = [
                "http://127.0.0.1:10/v1",
                "http://169.254.169.254/v1",
                "http://db/v1",
            ];
            for (id, base) in (20..).zip(inside) {
                let why = refused_endpoint(&mut socket, id, base);
                assert!(why.contains("`webfetch.private`"), "{base}: {why}");
            }
        }
        let mut socket = shared.connect(&served, 1, version);
        let why = refused_endpoint(&mut socket, 10, "https://gateway.example.com/v1");
        assert!(
            why.contains("bob may not") && why.contains(SETTING),
            "{why}"
        );
    }
}
