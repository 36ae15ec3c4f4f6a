//! Logging in at a provider, and out again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::client::Client;
use crate::loopback::Server;
use crate::program::{stderr_of, stdout_of};
use crate::project::Project;

/// Returns an authorisation server and, behind the same port, the model it guards. Tokens are
/// `access-1`, `access-2` …; the model takes the second only.
fn guarded() -> Server {
    let tokens = Mutex::new(0);
    let pending = AtomicBool::new(true);
    Server::start(move |received| {
        let form = |name: &str| {
            received
                .body
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        match received.path() {
            "/device" => {
                let body = json!({ "device_code": "d", "user_code": "ABCD-1234", "verification_uri": "https://where.example/", "expires_in": 600, "interval": 0 });
                (200, String::new(), body.to_string())
            }
            "/token" => {
                let granted = match form("grant_type") {
                    Some("authorization_code") => {
                        form("code") == Some("c0de") && form("code_verifier").is_some()
                    }
                    Some("refresh_token") => form("refresh_token") == Some("refresh-1"),
                    _ if pending.swap(false, Ordering::Relaxed) => {
                        return (
                            400,
                            String::new(),
                            json!({ "error": "authorization_pending" }).to_string(),
                        );
                    }
                    _ => form("device_code") == Some("d"),
                };
                if !granted || form("client_id") != Some("adj") {
                    let body =
                        json!({ "error": "invalid_grant", "error_description": "That was wrong." });
                    return (400, String::new(), body.to_string());
                }
                let mut number = tokens.lock().unwrap();
                *number += 1;
                let body = json!({ "access_token": format!("access-{number}"), "token_type": "bearer", "expires_in": if *number == 1 { 1 } else { 3600 },
                    "refresh_token": format!("refresh-{number}") });
                (
                    200,
                    "content-type: application/json\r\n".into(),
                    body.to_string(),
                )
            }
            "/v1/chat/completions"
                if received.header("authorization") == Some("Bearer access-2") =>
            {
                let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "You may enter." }, "finish_reason": "stop" }] });
                (
                    200,
                    "content-type: text/event-stream\r\n".into(),
                    format!("data: {chunk}\n\ndata: [DONE]\n\n"),
                )
            }
            _ => (
                401,
                String::new(),
                json!({ "error": { "message": "not this token" } }).to_string(),
            ),
        }
    })
}

fn behind(server: &Server, project: &Project) {
    let base = server.base();
    let settings = json!({ "model": "gate/m", "provider": { "gate": { "name": "Gate", "npm": "@ai-sdk/openai-compatible", "env": ["GATE_KEY"],
        "options": { "baseURL": format!("{base}/v1") }, "models": { "m": {} },
        "login": { "clientId": "adj", "authorizeUrl": format!("{base}/authorize"), "tokenUrl": format!("{base}/token"),
            "deviceUrl": format!("{base}/device"), "scopes": ["models"] } } } });
    project.write("~/.config/opencode/opencode.json", &settings.to_string());
}

/// Runs a login, and acts as the user on its output.
pub fn log_in(project: &Project, words: &[&str], person: impl FnOnce(&str)) -> Output {
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command
        .args(words)
        .current_dir(project.cwd())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let shown = lines
        .by_ref()
        .find(|line| line.starts_with("  "))
        .expect("nothing was shown");
    person(shown.trim());
    let rest: Vec<String> = lines.collect();
    Output {
        stderr: rest.join("\n").into_bytes(),
        ..child.wait_with_output().unwrap()
    }
}

/// Returns the response that a browser gets at an address.
pub fn browse(address: &str) -> String {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host.replace("localhost", "127.0.0.1")).unwrap();
    stream
        .write_all(format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes())
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Returns the value of a name in an address's query, decoded.
pub fn query(address: &str, name: &str) -> String {
    let (_, query) = address.split_once('?').unwrap();
    let value = query
        .split('&')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        .unwrap_or_default();
    value
        .replace("%3A", ":")
        .replace("%2F", "/")
        .replace("%3a", ":")
        .replace("%2f", "/")
}

/// Returns the challenge that belongs to a verifier.
fn challenge(verifier: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(ring::digest::digest(
        &ring::digest::SHA256,
        verifier.as_bytes(),
    ))
}

pub(super) fn browser_login_yields_tokens_that_are_renewed() {
    let server = guarded();
    let project = Project::new();
    behind(&server, &project);
    let refused = stderr_of(&project, &["run", "Hello"]);
    let missing = "here is no key for Gate. Set GATE_KEY, or run `adjutant auth login gate`.";
    assert_eq!(refused.matches(missing).count(), 1, "{refused}");
    let mut asked = String::new();
    let done = log_in(&project, &["auth", "login", "gate"], |address| {
        let back = query(address, "redirect_uri");
        let state = query(address, "state");
        assert_eq!(
            (query(address, "client_id"), query(address, "scope")),
            ("adj".into(), "models".into())
        );
        asked = query(address, "code_challenge");
        assert!(browse(&format!("{back}?code=other&state=forged")).starts_with("HTTP/1.1 404"));
        assert!(browse(&format!("{back}?code=c0de&state={state}")).contains("You are logged in."));
    });
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let received = server.received();
    let verifier = received[0]
        .body
        .split('&')
        .find_map(|pair| pair.strip_prefix("code_verifier="))
        .unwrap();
    assert_eq!(challenge(verifier), asked);
    assert_eq!(
        stdout_of(&project, &["auth"]),
        "provider  from                                       opens (its default)\n\
         gate      ~/.local/share/adjutant/auth.json (login)  m\n"
    );

    // The first token has expired by now: it is exchanged once, and the new one is stored.
    assert_eq!(stdout_of(&project, &["run", "Hello"]), "You may enter.\n");
    assert_eq!(
        stdout_of(&project, &["run", "Hello again"]),
        "You may enter.\n"
    );
    let exchanged = server
        .received()
        .iter()
        .filter(|received| received.body.contains("grant_type=refresh_token"))
        .count();
    assert_eq!(exchanged, 1);
    let kept = std::fs::read_to_string(project.path("~/.local/share/adjutant/auth.json")).unwrap();
    assert!(
        kept.contains("access-2") && kept.contains("refresh-2"),
        "{kept}"
    );

    // A failed renewal names the next step.
    let stale = kept
        .replace("refresh-2", "refresh-9")
        .replace("access-2", "access-0");
    let mut stale: Value = serde_json::from_str(&stale).unwrap();
    stale["gate"]["expires"] = json!(1);
    project.write("~/.local/share/adjutant/auth.json", &stale.to_string());
    let stderr = stderr_of(&project, &["run", "Hello"]);
    assert!(
        stderr.contains("That was wrong; run `adjutant auth login gate`."),
        "{stderr}"
    );
    // So does a user who refuses.
    let done = log_in(&project, &["auth", "login", "gate"], |address| {
        browse(&format!(
            "{}?error=access_denied&state={}",
            query(address, "redirect_uri"),
            query(address, "state")
        ));
    });
    assert!(
        String::from_utf8_lossy(&done.stderr).contains("gate refused the login: access_denied.")
    );
}

pub(super) fn device_code_login_works() {
    let server = guarded();
    let project = Project::new();
    behind(&server, &project);
    let done = log_in(&project, &["auth", "login", "gate", "--device"], |code| {
        assert_eq!(code, "ABCD-1234")
    });
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert_eq!(
        server
            .received()
            .iter()
            .filter(|received| received.path() == "/token")
            .count(),
        2
    );
    assert_eq!(
        stdout_of(&project, &["auth"]),
        "provider  from                                       opens (its default)\n\
         gate      ~/.local/share/adjutant/auth.json (login)  m\n"
    );
}

pub(super) fn openrouter_login_yields_a_key() {
    let server = Server::start(|received| {
        let body: Value = serde_json::from_str(&received.body).unwrap_or_default();
        match (received.path(), body["code"].as_str()) {
            ("/api/v1/auth/keys", Some("c0de")) if body["code_verifier"].is_string() => {
                (200, String::new(), json!({ "key": "sk-or-1" }).to_string())
            }
            _ => (403, String::new(), String::new()),
        }
    });
    let project = Project::new();
    let settings = json!({ "provider": { "openrouter": { "options": { "baseURL": format!("{}/api/v1", server.base()) } } } });
    project.write("~/.config/opencode/opencode.json", &settings.to_string());
    let done = log_in(&project, &["auth", "login", "openrouter"], |address| {
        assert!(
            address.starts_with(&format!(
                "{}/auth?callback_url=http%3A%2F%2Flocalhost%3A",
                server.base()
            )),
            "{address}"
        );
        assert!(
            browse(&format!("{}?code=c0de", query(address, "callback_url")))
                .contains("You are logged in.")
        );
    });
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let kept = std::fs::read_to_string(project.path("~/.local/share/adjutant/auth.json")).unwrap();
    assert!(kept.contains("sk-or-1"), "{kept}");
}

pub(super) fn logout_removes_stored_credentials() {
    let project = Project::new();
    let kept = json!({ "mistral": { "type": "api", "key": "our-key" } });
    project.write("~/.local/share/adjutant/auth.json", &kept.to_string());
    project.write(
        "~/.config/opencode/opencode.json",
        &json!({ "model": "mistral/mistral-large-latest", "provider": { "mistral": {} } })
            .to_string(),
    );
    let mut client = Client::new(project);
    client.request(1, "logout", &json!({}));
    assert_eq!(client.answer(1).0["result"], json!({}));
    let cwd = client.project.cwd();
    client.request(2, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
    let session = client.answer(2).0["result"]["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    client.prompt(3, &session, "Hello");
    let error = client.answer(3).0["error"].clone();
    assert_eq!(error["code"], -32000);
    let fix =
        "There is no key for Mistral. Set MISTRAL_API_KEY, or run `adjutant auth login mistral`.";
    assert!(
        error["data"]["details"].as_str().unwrap().starts_with(fix),
        "{error}"
    );
    let project = client.leave();
    assert_eq!(
        std::fs::read_to_string(project.path("~/.local/share/adjutant/auth.json")).unwrap(),
        "{}"
    );
}
