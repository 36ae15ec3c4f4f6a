//! Logging in at MCP servers, with an authorization server of the tests' own on the loopback.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Client;
use crate::editor::{Editor, RESPONSE_TIMEOUT};
use crate::invariants::Invariants;
use crate::loopback::Server;
use crate::mcp;
use crate::model::{self, Model};
use crate::program::{adjutant, list_of, stderr_of, stdout_of};
use crate::project::Project;
use crate::providers::{browse, log_in, query};

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 8] = [
    ("login is stored and renewed", login_is_stored_and_renewed),
    ("failed logins are reported", failed_logins_are_reported),
    ("OpenCode's login is used", opencodes_login_is_used),
    ("login belongs to one address", login_belongs_to_one_address),
    (
        "login with a missing scope asks for it",
        login_with_a_missing_scope_asks_for_it,
    ),
    (
        "login in a session connects the server",
        login_in_a_session_connects_the_server,
    ),
    (
        "login is shown as a link in the client",
        login_is_shown_as_a_link_in_the_client,
    ),
    (
        "client can be a metadata document",
        client_can_be_a_metadata_document,
    ),
];

/// Returns an authorization server and, behind the same port, the MCP server it guards. Tokens are
/// `access-1`, `access-2` …; the first expires at once. The tool's text `narrow` needs the scope
/// `write`.
fn guarded() -> Server {
    let tokens = Mutex::new(0);
    let wide = Mutex::new(false);
    let server = mcp::Server::default();
    Server::start(move |received| {
        let base = format!("http://{}", received.header("host").unwrap());
        let json = |body: Value| {
            (
                200,
                "content-type: application/json\r\n".to_owned(),
                body.to_string(),
            )
        };
        let form = |name: &str| {
            received
                .body
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        match received.path().split('?').next().unwrap() {
            "/.well-known/oauth-protected-resource/mcp" => {
                json(json!({ "resource": format!("{base}/mcp"),
                "authorization_servers": [base], "scopes_supported": ["read"] }))
            }
            "/.well-known/oauth-authorization-server" => json(json!({ "issuer": base,
                "authorization_endpoint": format!("{base}/authorize"), "token_endpoint": format!("{base}/token"),
                "registration_endpoint": format!("{base}/register"), "code_challenge_methods_supported": ["S256"],
                "response_types_supported": ["code"] })),
            "/register" => {
                let asked: Value = serde_json::from_str(&received.body).unwrap();
                json(
                    json!({ "client_id": "c1", "client_name": asked["client_name"],
                    "redirect_uris": asked["redirect_uris"] }),
                )
            }
            "/token" => {
                let granted = match form("grant_type") {
                    Some("authorization_code") => {
                        form("code") == Some("c0de") && form("code_verifier").is_some()
                    }
                    _ => form("refresh_token") == Some("refresh-1"),
                };
                if !granted || form("client_id") != Some("c1") {
                    let body = json!({ "error": "invalid_grant" }).to_string();
                    return (400, "content-type: application/json\r\n".into(), body);
                }
                if form("code").is_some() && *tokens.lock().unwrap() > 0 {
                    *wide.lock().unwrap() = true;
                }
                let mut number = tokens.lock().unwrap();
                *number += 1;
                json(
                    json!({ "access_token": format!("access-{number}"), "token_type": "bearer",
                    "expires_in": if *number == 1 { 1 } else { 3600 }, "refresh_token": format!("refresh-{number}") }),
                )
            }
            "/mcp" => {
                let known = *tokens.lock().unwrap();
                let token = received
                    .header("authorization")
                    .and_then(|it| it.strip_prefix("Bearer access-"));
                if token
                    .and_then(|number| number.parse().ok())
                    .is_none_or(|number: u32| number == 0 || number > known.max(7))
                {
                    let metadata = format!("{base}/.well-known/oauth-protected-resource/mcp");
                    let challenge =
                        format!("www-authenticate: Bearer resource_metadata=\"{metadata}\"\r\n");
                    return (401, challenge, String::new());
                }
                if received.body.contains("narrow") && !*wide.lock().unwrap() {
                    let challenge = "www-authenticate: Bearer error=\"insufficient_scope\", scope=\"write\"\r\n";
                    return (403, challenge.into(), String::new());
                }
                if !received.head[0].starts_with("POST") {
                    return (405, String::new(), String::new());
                }
                struct NoClient;
                impl mcp::McpPeer for NoClient {
                    fn tell(&mut self, _: &Value) {}
                    fn ask(&mut self, _: &str, _: Value) -> Value {
                        Value::Null
                    }
                }
                let message = serde_json::from_str(&received.body).unwrap();
                match server.answer(&message, &received.head.join("\n"), &mut NoClient) {
                    Some(answer) => json(answer),
                    None => (202, String::new(), String::new()),
                }
            }
            _ => (404, String::new(), String::new()),
        }
    })
}

fn behind(server: &Server, oauth: &Value) -> Project {
    let project = Project::new();
    let entry =
        json!({ "type": "remote", "url": format!("{}/mcp", server.base()), "oauth": oauth });
    project.write(
        "~/.config/opencode/opencode.json",
        &json!({ "mcp": { "guard": entry } }).to_string(),
    );
    project
}

/// Acts as the browser of a user who consents.
fn agree(address: &str) {
    let back = query(address, "redirect_uri");
    let state = query(address, "state");
    assert!(
        browse(&format!("{back}?code=c0de&state={state}")).contains("You are logged in."),
        "{address}"
    );
}

const CREDENTIALS_FILE: &str = "~/.local/share/adjutant/mcp-auth.json";

fn login_is_stored_and_renewed() {
    let server = guarded();
    let project = behind(&server, &json!({}));
    let listed = list_of(&project, &["mcp"]);
    assert!(
        listed.contains("guard needs login it needs a login: run `adjutant mcp login guard`: "),
        "{listed}"
    );
    let done = log_in(&project, &["mcp", "login", "guard"], |address| {
        assert_eq!(
            (query(address, "client_id"), query(address, "scope")),
            ("c1".into(), "read".into())
        );
        assert_eq!(query(address, "code_challenge_method"), "S256");
        assert_eq!(query(address, "resource"), format!("{}/mcp", server.base()));
        // The answer to another login is rejected.
        let back = query(address, "redirect_uri");
        assert!(browse(&format!("{back}?code=other&state=forged")).starts_with("HTTP/1.1 404"));
        agree(address);
    });
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        std::fs::metadata(project.path(CREDENTIALS_FILE))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );

    // The first token has expired: it is exchanged once, and the new one is stored.
    assert!(
        list_of(&project, &["mcp"])
            .contains("guard active connected, 17 tools, 2 prompts, 2 resources, in ")
    );
    let call = [
        "mcp",
        "call",
        "guard",
        "say",
        r#"{"text":"header authorization"}"#,
        "--allow",
    ];
    assert_eq!(
        stdout_of(&project, &call),
        "authorization: Bearer access-2\n"
    );
    let renewed = server
        .received()
        .iter()
        .filter(|received| received.body.contains("grant_type=refresh_token"))
        .count();
    assert_eq!(renewed, 1);
    let kept = std::fs::read_to_string(project.path(CREDENTIALS_FILE)).unwrap();
    assert!(
        kept.contains("access-2") && kept.contains("refresh-2"),
        "{kept}"
    );

    // A login that can no longer be renewed is reported.
    let mut stale: Value = serde_json::from_str(&kept).unwrap();
    stale["guard"]["tokens"]["expiresAt"] = json!(1);
    project.write(CREDENTIALS_FILE, &stale.to_string());
    assert!(list_of(&project, &["mcp"]).contains("run `adjutant mcp login guard`"));
    assert_eq!(
        stdout_of(&project, &["mcp", "logout", "guard"]),
        "guard: forgotten.\n"
    );
    assert!(
        stderr_of(&project, &["mcp", "logout", "guard"])
            .contains("no login is stored for \"guard\"")
    );
}

fn failed_logins_are_reported() {
    let server = guarded();
    let project = behind(&server, &json!({}));
    let failed = |answer: &str| {
        let done = log_in(&project, &["mcp", "login", "guard"], |address| {
            let back = query(address, "redirect_uri");
            let state = query(address, "state");
            browse(&format!("{back}?{answer}&state={state}"));
        });
        assert!(!done.status.success() && !project.path(CREDENTIALS_FILE).exists());
        String::from_utf8(done.stderr).unwrap()
    };
    assert!(
        failed("error=access_denied")
            .contains("The MCP server guard refused the login: access_denied")
    );
    assert!(failed("code=wrong").contains("the login to guard failed"));
    let stderr = failed("code=c0de&iss=https://evil.example");
    assert!(
        stderr.contains("the answer came from another server (https://evil.example)"),
        "{stderr}"
    );
    let stderr = stderr_of(&project, &["mcp", "login", "gard"]);
    assert!(
        stderr.contains("the settings have no MCP server \"gard\". Did you mean guard?"),
        "{stderr}"
    );

    // A port in use cannot receive the code.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let project = behind(&server, &json!({ "callbackPort": port }));
    let stderr = stderr_of(&project, &["mcp", "login", "guard"]);
    assert!(
        stderr.contains(&format!(
            "the port {port}, to which the browser returns, is in use"
        )),
        "{stderr}"
    );
    let project = behind(&server, &json!(false));
    assert!(
        stderr_of(&project, &["mcp", "login", "guard"]).contains("\"oauth\" is false for guard")
    );
    let output = adjutant(&project, &["mcp"], "");
    let list = String::from_utf8_lossy(&output.stdout);
    let words: Vec<&str> = list.split_whitespace().collect();
    assert!(
        words
            .join(" ")
            .contains("it needs a login, and its \"oauth\" is false")
    );
    let stderr = stderr_of(
        &project,
        &["mcp", "login", "far", "--url", "http://8.8.8.8/mcp"],
    );
    assert!(
        stderr.contains("begins with http: and its host is public"),
        "{stderr}"
    );
}

fn stored_login(server: &str, token: &str) -> String {
    json!({ "guard": { "tokens": { "accessToken": token, "refreshToken": "r", "expiresAt": 4_102_444_800u64 },
        "clientInfo": { "clientId": "c1" }, "serverUrl": server } })
    .to_string()
}

fn opencodes_login_is_used() {
    let server = guarded();
    let project = behind(&server, &json!({}));
    let theirs = stored_login(&format!("{}/mcp", server.base()), "access-7");
    project.write("~/.local/share/opencode/mcp-auth.json", &theirs);
    assert!(list_of(&project, &["mcp"]).contains("guard active connected"));
    assert!(
        stdout_of(&project, &["mcp", "logout", "guard"]).contains("`opencode mcp logout guard`")
    );
    assert_eq!(
        std::fs::read_to_string(project.path("~/.local/share/opencode/mcp-auth.json")).unwrap(),
        theirs
    );
}

fn login_belongs_to_one_address() {
    let server = guarded();
    let project = behind(&server, &json!({}));
    project.write(
        CREDENTIALS_FILE,
        &stored_login("https://another.example/mcp", "access-7"),
    );
    assert!(list_of(&project, &["mcp"]).contains("run `adjutant mcp login guard`"));
    assert!(
        server
            .received()
            .iter()
            .all(|received| received.header("authorization").is_none())
    );
}

fn login_with_a_missing_scope_asks_for_it() {
    let server = guarded();
    let project = behind(&server, &json!({}));
    assert!(
        log_in(&project, &["mcp", "login", "guard"], agree)
            .status
            .success()
    );
    let call = [
        "mcp",
        "call",
        "guard",
        "say",
        r#"{"text":"narrow"}"#,
        "--allow",
    ];
    let stderr = stderr_of(&project, &call);
    assert!(
        stderr.contains(
            "the login lacks a scope that this requires (\"write\"): run `adjutant mcp login guard`"
        ),
        "{stderr}"
    );
    let done = log_in(&project, &["mcp", "login", "guard"], |address| {
        assert!(query(address, "scope").contains("write"), "{address}");
        agree(address);
    });
    assert!(done.status.success());
    assert_eq!(stdout_of(&project, &call), "narrow\n");
}

/// A session that began without a login has the server's tools once there is one.
fn login_in_a_session_connects_the_server() {
    let server = guarded();
    let script = "has not: \"name\":\"guard_say\"\nsees: it needs a login\ntext: Without.\n---\nhas: \"name\":\"guard_say\"\nbegins anew\ntext: With.";
    let model = Model::start(model::script(script).unwrap());
    let project = behind(&server, &json!({}));
    let entry = json!({ "type": "remote", "url": format!("{}/mcp", server.base()) });
    project.provider(&model.base(), &json!({ "mcp": { "guard": entry } }));
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Before.");
    assert_eq!(client.answer(2).0["result"]["stopReason"], "end_turn");
    assert!(
        log_in(&client.project, &["mcp", "login", "guard"], agree)
            .status
            .success()
    );
    client.prompt(3, &session, "After.");
    assert_eq!(client.answer(3).0["result"]["stopReason"], "end_turn");
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// An editor that shows addresses is given the login as a link, once; the session continues
/// meanwhile, and has the server's tools afterwards.
fn login_is_shown_as_a_link_in_the_client() {
    let server = guarded();
    let script = "has not: \"name\":\"guard_say\"\npause\ntext: Without.\n---\nhas: \"name\":\"guard_say\"\nbegins anew\ntext: With.";
    let model = Model::start(model::script(script).unwrap());
    let project = behind(&server, &json!({}));
    let entry = json!({ "type": "remote", "url": format!("{}/mcp", server.base()) });
    project.provider(&model.base(), &json!({ "mcp": { "guard": entry } }));
    let project = Arc::new(project);
    let mut client = Client {
        editor: Editor::start(&project),
        project,
        invariants: Invariants::default(),
    };
    let capabilities = json!({ "elicitation": { "url": {} } });
    client.request(
        0,
        "initialize",
        &json!({ "protocolVersion": 1, "clientCapabilities": capabilities }),
    );
    client.answer(0);
    let session = client.open();
    client.prompt(2, &session, "Before.");
    let asked = loop {
        let message = client.receive();
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    let params = &asked["params"];
    assert_eq!(
        (&params["mode"], &params["sessionId"]),
        (&json!("url"), &json!(session)),
        "{asked}"
    );
    assert!(
        params.get("toolCallId").is_none()
            && params["message"]
                .as_str()
                .unwrap()
                .contains("MCP server guard")
    );
    client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "accept" } }));
    agree(params["url"].as_str().unwrap());
    let until = Instant::now() + RESPONSE_TIMEOUT;
    while !client.project.path(CREDENTIALS_FILE).exists() {
        assert!(Instant::now() < until, "nothing was saved");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The link is of no more use.
    let done = loop {
        let message = client.receive();
        if message["method"] == "elicitation/complete" {
            break message;
        }
    };
    assert_eq!(done["params"]["elicitationId"], params["elicitationId"]);
    model.resume();
    assert_eq!(client.answer(2).0["result"]["stopReason"], "end_turn");
    client.prompt(3, &session, "After.");
    assert_eq!(client.answer(3).0["result"]["stopReason"], "end_turn");
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// A client that is known by the address of a document about it registers nowhere.
fn client_can_be_a_metadata_document() {
    let server = guarded();
    let document = "https://adjutant.example/client.json";
    let project = behind(&server, &json!({ "clientId": document, "callbackPort": 0 }));
    let done = log_in(&project, &["mcp", "login", "guard"], |address| {
        assert_eq!(query(address, "client_id"), document);
        let back = query(address, "redirect_uri");
        let state = query(address, "state");
        browse(&format!("{back}?error=access_denied&state={state}"));
    });
    assert!(!done.status.success());
    assert!(
        server
            .received()
            .iter()
            .all(|received| received.path() != "/register")
    );
}
