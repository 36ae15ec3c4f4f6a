//! Who can be asked: what the commands about models and keys say, and what is fetched beside the
//! conversation. Everything that is fetched comes from servers of these tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use crate::editor::PATIENCE;
use crate::project::Project;
use crate::talk::Talk;

/// A name, and what to do.
pub const ALL: [(&str, fn()); 13] = [
    ("models are listed with prices and keys", models_are_listed),
    ("the catalogue is fetched once and asked for by its mark", the_catalogue_is_refreshed),
    ("a newer catalogue is fetched beside the conversation", refreshed_beside_the_conversation),
    ("keys are kept, listed and forgotten", keys_are_kept),
    ("a login with a browser gives tokens that are exchanged when they run out", login_with_a_browser),
    ("a login with a code that is typed elsewhere", login_with_a_code),
    ("a login at OpenRouter gives a key", login_for_a_key),
    ("logout forgets what adjutant keeps", logout),
    ("traffic is recorded without keys and played back", recorded_and_replayed),
    ("a choice holds for the project", a_choice_holds),
    ("an authority of one's own is trusted, and nobody else's", certificates),
    ("one connection serves all steps", one_connection),
    ("proxies are used, and their refusals told", proxies),
];

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Heard {
    /// `GET /x HTTP/1.1`, then the headers.
    pub head: Vec<String>,
    /// The body.
    pub body: String,
}

impl Heard {
    /// Its path and query.
    pub fn path(&self) -> &str {
        self.head[0].split(' ').nth(1).unwrap_or_default()
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.iter().skip(1).filter_map(|line| line.split_once(": "));
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// A server on a loopback port that answers with what a function makes of each request.
pub struct Server {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    stopped: Arc<AtomicBool>,
}

impl Server {
    /// Starts it. The answer is a status line's number, headers and a body.
    pub fn start(answer: impl Fn(&Heard) -> (u16, String, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (heard, stopped) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (answer, all, over) = (Arc::new(answer), heard.clone(), stopped.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (answer, all) = (answer.clone(), all.clone());
                std::thread::spawn(move || {
                    let Some(request) = hear(&stream) else { return };
                    all.lock().unwrap().push(request.clone());
                    let (status, headers, body) = answer(&request);
                    let length = body.len();
                    let text = format!(
                        "HTTP/1.1 {status} Status\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
                    );
                    (&stream).write_all(text.as_bytes()).ok();
                });
            }
        });
        Self { address, heard, stopped }
    }

    /// `http://127.0.0.1:port`.
    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it was asked.
    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        TcpStream::connect(self.address).ok();
    }
}

/// Reads a request.
pub fn hear(stream: &TcpStream) -> Option<Heard> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim_end().to_owned());
    }
    let mut heard = Heard { head, body: String::new() };
    let length = heard.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    heard.body = String::from_utf8_lossy(&body).into_owned();
    Some(heard)
}

/// Runs `adjutant` with these words, and something on its standard input.
pub fn adjutant(project: &Project, words: &[&str], input: &str) -> Output {
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command.args(words).current_dir(project.cwd());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    child.wait_with_output().unwrap()
}

/// What it says on standard output; it must succeed.
pub fn says(project: &Project, words: &[&str]) -> String {
    let output = adjutant(project, words, "");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What it says on standard error; it must fail.
pub fn complains(project: &Project, words: &[&str]) -> String {
    let output = adjutant(project, words, "");
    assert!(!output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

fn models_are_listed() {
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

    let text = says(&project, &["models"]);
    for line in [
        "own (Own): no key needed",
        "* large    131k / 16k  $1 / $2.5       reasoning tools temperature",
        "anthropic (Anthropic): key from ANTHROPIC_API_KEY",
        "mistral (Mistral): There is no key for Mistral. Set MISTRAL_API_KEY, or run `adjutant auth login mistral`.",
        "mine (Anthropic): key from the settings",
        "offline (Offline): no key needed",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
    }
    assert!(!text.contains("hidden") && !text.contains("a-key") && !text.contains("openrouter"), "{text}");

    let all: Value = serde_json::from_str(&says(&project, &["models", "--json"])).unwrap();
    assert_eq!(all["default"], "own/large");
    let of =
        |id: &str| all["providers"].as_array().unwrap().iter().find(|provider| provider["id"] == id).unwrap().clone();
    let large = &of("own")["models"][0];
    assert_eq!(
        *large,
        json!({ "id": "own/large", "name": "large", "context": 131_072, "input": null, "output": 16_384,
            "price": { "input": 1.0, "output": 2.5, "cacheRead": 0.1, "cacheWrite": 1.0, "longer": [
                { "inputOver": 32_000, "price": { "input": 2.0, "output": 5.0, "cacheRead": 2.0, "cacheWrite": 2.0 } }] },
            "abilities": ["reasoning", "tools", "temperature"], "efforts": ["medium", "high", "deep"] })
    );
    assert_eq!((&of("mistral")["hasKey"], &of("mistral")["models"].as_array().unwrap().len()), (&json!(false), &1));
    // What the settings say lies over what the catalogue knows.
    let mine = &of("mine")["models"];
    assert_eq!((mine.as_array().unwrap().len(), &mine[0]["output"]), (1, &json!(1_000)));
    assert_eq!(mine[0]["price"]["input"], 3.0);

    let everyone = says(&project, &["models", "--all", "openrouter"]);
    assert!(
        everyone.starts_with("openrouter (OpenRouter): There is no key for OpenRouter. Set OPENROUTER_API_KEY"),
        "{everyone}"
    );
    let missing = complains(&project, &["models", "mistrall"]);
    assert!(missing.contains("no provider \"mistrall\". Did you mean mistral?"), "{missing}");
}

/// A catalogue with one provider, whose models have these names.
fn catalogue(names: &[&str]) -> String {
    let model = |name: &&str| {
        ((*name).to_owned(), json!({ "id": name, "name": name, "limit": { "context": 10, "output": 5 } }))
    };
    let models: serde_json::Map<String, Value> = names.iter().map(model).collect();
    json!({ "acme": { "id": "acme", "name": "Acme", "env": ["ACME_KEY"], "npm": "@ai-sdk/openai-compatible",
        "api": "http://127.0.0.1:9/v1", "models": models } })
    .to_string()
}

fn the_catalogue_is_refreshed() {
    let server = Server::start(|heard| match heard.header("if-none-match") {
        Some("\"v1\"") => (304, "etag: \"v1\"\r\n".into(), String::new()),
        _ => (200, "etag: \"v1\"\r\n".into(), catalogue(&["one", "two"])),
    });
    let mut project = Project::new();
    project.set("ADJUTANT_MODELS_URL", Some(&server.base()));
    project.set("ACME_KEY", Some("a-key"));
    assert!(!says(&project, &["models"]).contains("acme"));
    let fetched = says(&project, &["models", "--refresh"]);
    assert!(
        fetched.starts_with("Updated the catalogue: 2 models.") && fetched.contains("acme (Acme): key from ACME_KEY")
    );
    assert!(says(&project, &["models", "--refresh"]).starts_with("The catalogue is up to date."));
    let paths: Vec<_> = server.heard().iter().map(|heard| heard.path().to_owned()).collect();
    assert_eq!(paths, ["/api.json", "/api.json"]);
    // Without a server what was kept holds.
    drop(server);
    assert!(says(&project, &["models", "acme"]).contains("two"));
    assert!(
        complains(&project, &["models", "--refresh"]).contains("the model catalogue (127.0.0.1) could not be reached")
    );
}

fn refreshed_beside_the_conversation() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let own = gate.clone();
    let server = Server::start(move |_| {
        let open = own.0.lock().unwrap();
        drop(own.1.wait_timeout_while(open, PATIENCE, |open| !*open));
        (200, String::new(), catalogue(&["fresh"]))
    });
    let mut project = Project::new();
    project.set("ADJUTANT_MODELS_URL", Some(&server.base()));
    project.set("ADJUTANT_DISABLE_MODELS_FETCH", None);
    project.set("MISTRAL_API_KEY", Some("a-key"));
    project.set("ACME_KEY", Some("a-key"));
    let mut talk = Talk::new(project);
    // Sessions open while the server has not said a word.
    let models = |talk: &mut Talk, id: u64| {
        let cwd = talk.project.cwd();
        talk.request(id, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
        talk.answer(id).0["result"]["configOptions"].to_string()
    };
    assert!(!models(&mut talk, 1).contains("acme/fresh"));
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    let begun = Instant::now();
    let found = (2..).find(|id| models(&mut talk, *id).contains("acme/fresh") || begun.elapsed() > PATIENCE);
    assert!(begun.elapsed() <= PATIENCE, "not there after {found:?} sessions");
    assert_eq!(server.heard().len(), 1);
    talk.leave();
}

fn keys_are_kept() {
    let mut project = Project::new();
    let theirs = json!({ "groq": { "type": "api", "key": "their-key" }, "openai": { "type": "oauth", "access": "x", "refresh": "y", "expires": 1 } });
    project.write("~/.local/share/opencode/auth.json", &theirs.to_string());
    let output = adjutant(&project, &["auth", "login", "mistral"], "our-key\n");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = project.path("~/.local/share/adjutant/auth.json");
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(kept, json!({ "mistral": { "type": "api", "key": "our-key" } }));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    project.set("XAI_API_KEY", Some("a-key"));
    let listed =
        "mistral: key, in adjutant's auth.json\ngroq: key, in OpenCode's auth.json\nxai: key, from XAI_API_KEY\n";
    assert_eq!(says(&project, &["auth", "list"]), listed);
    assert!(says(&project, &["models", "mistral"]).starts_with("mistral (Mistral): key from auth.json"));

    assert_eq!(says(&project, &["auth", "logout", "mistral"]), "mistral: forgotten.\n");
    assert!(says(&project, &["auth", "logout", "groq"]).contains("`opencode auth logout`"));
    assert_eq!(std::fs::read_to_string(project.path("~/.local/share/opencode/auth.json")).unwrap(), theirs.to_string());
    for (words, complaint) in [
        (&["auth", "logout", "mistral"][..], "nothing is kept for \"mistral\""),
        (&["auth", "login", "mistrall"], "Did you mean mistral?"),
        (&["auth", "login", "mistral"], "no key was given; nothing was changed"),
        (&["auth", "login"], "name a provider"),
        (&["auth", "login", "mistral", "--device"], "Mistral has no login with a code"),
    ] {
        let said = complains(&project, words);
        assert!(said.contains(complaint), "{words:?}: {said}");
    }
}

/// An authorisation server and, behind the same port, the model it guards. Tokens are `access-1`,
/// `access-2` …; the model takes the second only.
fn guarded() -> Server {
    let tokens = Mutex::new(0);
    let pending = AtomicBool::new(true);
    Server::start(move |heard| {
        let form = |name: &str| heard.body.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        match heard.path() {
            "/device" => {
                let body = json!({ "device_code": "d", "user_code": "ABCD-1234", "verification_uri": "https://where.example/", "expires_in": 600, "interval": 0 });
                (200, String::new(), body.to_string())
            }
            "/token" => {
                let granted = match form("grant_type") {
                    Some("authorization_code") => form("code") == Some("c0de") && form("code_verifier").is_some(),
                    Some("refresh_token") => form("refresh_token") == Some("refresh-1"),
                    _ if pending.swap(false, Ordering::Relaxed) => {
                        return (400, String::new(), json!({ "error": "authorization_pending" }).to_string());
                    }
                    _ => form("device_code") == Some("d"),
                };
                if !granted || form("client_id") != Some("adj") {
                    let body = json!({ "error": "invalid_grant", "error_description": "That was wrong." });
                    return (400, String::new(), body.to_string());
                }
                let mut number = tokens.lock().unwrap();
                *number += 1;
                let body = json!({ "access_token": format!("access-{number}"), "token_type": "bearer", "expires_in": if *number == 1 { 1 } else { 3600 },
                    "refresh_token": format!("refresh-{number}") });
                (200, "content-type: application/json\r\n".into(), body.to_string())
            }
            "/v1/chat/completions" if heard.header("authorization") == Some("Bearer access-2") => {
                let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "You may enter." }, "finish_reason": "stop" }] });
                (200, "content-type: text/event-stream\r\n".into(), format!("data: {chunk}\n\ndata: [DONE]\n\n"))
            }
            _ => (401, String::new(), json!({ "error": { "message": "not this token" } }).to_string()),
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

/// Runs a login, and does with what it shows what a person would.
pub fn log_in(project: &Project, words: &[&str], person: impl FnOnce(&str)) -> Output {
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command.args(words).current_dir(project.cwd()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let shown = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("  ")).expect("nothing was shown");
    person(shown.trim());
    lines.for_each(drop);
    child.wait_with_output().unwrap()
}

/// What a browser gets at an address.
pub fn browse(address: &str) -> String {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host.replace("localhost", "127.0.0.1")).unwrap();
    stream.write_all(format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The value of a name in an address's query, decoded.
pub fn query(address: &str, name: &str) -> String {
    let (_, query) = address.split_once('?').unwrap();
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default();
    value.replace("%3A", ":").replace("%2F", "/").replace("%3a", ":").replace("%2f", "/")
}

/// The challenge that belongs to a verifier.
fn challenge(verifier: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD
        .encode(ring::digest::digest(&ring::digest::SHA256, verifier.as_bytes()))
}

fn login_with_a_browser() {
    let server = guarded();
    let project = Project::new();
    behind(&server, &project);
    assert!(
        complains(&project, &["run", "Hello"])
            .contains("There is no key for Gate. Set GATE_KEY, or run `adjutant auth login gate`.")
    );
    let mut asked = String::new();
    let done = log_in(&project, &["auth", "login", "gate"], |address| {
        let (back, state) = (query(address, "redirect_uri"), query(address, "state"));
        assert_eq!((query(address, "client_id"), query(address, "scope")), ("adj".into(), "models".into()));
        asked = query(address, "code_challenge");
        assert!(browse(&format!("{back}?code=other&state=forged")).starts_with("HTTP/1.1 404"));
        assert!(browse(&format!("{back}?code=c0de&state={state}")).contains("You are logged in."));
    });
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let heard = server.heard();
    let verifier = heard[0].body.split('&').find_map(|pair| pair.strip_prefix("code_verifier=")).unwrap();
    assert_eq!(challenge(verifier), asked);
    assert_eq!(says(&project, &["auth"]), "gate: login, in adjutant's auth.json\n");

    // The first token has run out by now: it is exchanged, once, and the new one is kept.
    assert_eq!(says(&project, &["run", "Hello"]), "You may enter.\n");
    assert_eq!(says(&project, &["run", "Hello again"]), "You may enter.\n");
    let exchanged = server.heard().iter().filter(|heard| heard.body.contains("grant_type=refresh_token")).count();
    assert_eq!(exchanged, 1);
    let kept = std::fs::read_to_string(project.path("~/.local/share/adjutant/auth.json")).unwrap();
    assert!(kept.contains("access-2") && kept.contains("refresh-2"), "{kept}");

    // A login that cannot be renewed says what to do.
    let stale = kept.replace("refresh-2", "refresh-9").replace("access-2", "access-0");
    let mut stale: Value = serde_json::from_str(&stale).unwrap();
    stale["gate"]["expires"] = json!(1);
    project.write("~/.local/share/adjutant/auth.json", &stale.to_string());
    let said = complains(&project, &["run", "Hello"]);
    assert!(said.contains("That was wrong; run `adjutant auth login gate`."), "{said}");
    // So does a person who says no.
    let done = log_in(&project, &["auth", "login", "gate"], |address| {
        browse(&format!("{}?error=access_denied&state={}", query(address, "redirect_uri"), query(address, "state")));
    });
    assert!(String::from_utf8_lossy(&done.stderr).contains("gate refused the login: access_denied."));
}

fn login_with_a_code() {
    let server = guarded();
    let project = Project::new();
    behind(&server, &project);
    let done = log_in(&project, &["auth", "login", "gate", "--device"], |code| assert_eq!(code, "ABCD-1234"));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(server.heard().iter().filter(|heard| heard.path() == "/token").count(), 2);
    assert_eq!(says(&project, &["auth"]), "gate: login, in adjutant's auth.json\n");
}

fn login_for_a_key() {
    let server = Server::start(|heard| {
        let body: Value = serde_json::from_str(&heard.body).unwrap_or_default();
        match (heard.path(), body["code"].as_str()) {
            ("/api/v1/auth/keys", Some("c0de")) if body["code_verifier"].is_string() => {
                (200, String::new(), json!({ "key": "sk-or-1" }).to_string())
            }
            _ => (403, String::new(), String::new()),
        }
    });
    let project = Project::new();
    let settings =
        json!({ "provider": { "openrouter": { "options": { "baseURL": format!("{}/api/v1", server.base()) } } } });
    project.write("~/.config/opencode/opencode.json", &settings.to_string());
    let done = log_in(&project, &["auth", "login", "openrouter"], |address| {
        assert!(
            address.starts_with(&format!("{}/auth?callback_url=http%3A%2F%2Flocalhost%3A", server.base())),
            "{address}"
        );
        assert!(browse(&format!("{}?code=c0de", query(address, "callback_url"))).contains("You are logged in."));
    });
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let kept = std::fs::read_to_string(project.path("~/.local/share/adjutant/auth.json")).unwrap();
    assert!(kept.contains("sk-or-1"), "{kept}");
}

fn logout() {
    let project = Project::new();
    let kept = json!({ "mistral": { "type": "api", "key": "our-key" } });
    project.write("~/.local/share/adjutant/auth.json", &kept.to_string());
    project.write(
        "~/.config/opencode/opencode.json",
        &json!({ "model": "mistral/mistral-large-latest", "provider": { "mistral": {} } }).to_string(),
    );
    let mut talk = Talk::new(project);
    talk.request(1, "logout", &json!({}));
    assert_eq!(talk.answer(1).0["result"], json!({}));
    let cwd = talk.project.cwd();
    talk.request(2, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
    let session = talk.answer(2).0["result"]["sessionId"].as_str().unwrap().to_owned();
    talk.prompt(3, &session, "Hello");
    let error = talk.answer(3).0["error"].clone();
    assert_eq!(error["code"], -32000);
    let fix = "There is no key for Mistral. Set MISTRAL_API_KEY, or run `adjutant auth login mistral`.";
    assert!(error["data"]["details"].as_str().unwrap().starts_with(fix), "{error}");
    let project = talk.leave();
    assert_eq!(std::fs::read_to_string(project.path("~/.local/share/adjutant/auth.json")).unwrap(), "{}");
}

/// A model that answers every request with these words; the key is `secret-key-1`.
fn words(words: &'static str) -> Server {
    Server::start(move |heard| {
        if heard.header("authorization") != Some("Bearer secret-key-1") {
            return (
                401,
                String::new(),
                json!({ "error": { "message": "Incorrect API key provided: wrong-key-22" } }).to_string(),
            );
        }
        let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": words }, "finish_reason": "stop" }],
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

fn recorded_and_replayed() {
    let server = words("Remember me.");
    let mut project = Project::new();
    let tapes = project.path("tmp:tapes").display().to_string();
    one_provider(&project, &format!("{}/v1?key=secret-key-1", server.base()), "secret-key-1");
    project.set("ADJUTANT_RECORD", Some(&tapes));
    assert_eq!(says(&project, &["run", "Hello"]), "Remember me.\n");
    one_provider(&project, &format!("{}/v1", server.base()), "wrong-key-22");
    let refused = complains(&project, &["run", "Hello again"]);
    project.set("ADJUTANT_RECORD", None);
    drop(server);

    let mut all = String::new();
    for entry in std::fs::read_dir(&tapes).unwrap().flatten() {
        all.push_str(&std::fs::read_to_string(entry.path()).unwrap());
    }
    assert!(!all.contains("secret-key-1") && !all.contains("wrong-key-22"), "{all}");
    assert!(all.contains("Hello") && all.contains("Remember me.") && all.contains("[key]"), "{all}");

    // Without the server and without a key: the same words, the same refusal, in their order.
    std::fs::remove_file(project.path("~/.config/opencode/opencode.json")).unwrap();
    let model = format!("replay:{tapes}");
    let mut talk = Talk::new(project);
    let session = talk.open();
    talk.request(2, "session/set_config_option", &json!({ "sessionId": session, "configId": "model", "value": model }));
    assert!(talk.answer(2).0.get("error").is_none());
    talk.prompt(3, &session, "Hello");
    let (answer, updates) = talk.answer(3);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    let updates = json!(updates).to_string();
    assert!(updates.contains("Remember me.") && updates.contains(r#""cost":{"amount":2.0"#), "{updates}");
    talk.prompt(4, &session, "Hello again");
    let again = talk.answer(4).0["error"]["data"]["details"].as_str().unwrap().to_owned();
    assert!(again.contains("401") && refused.contains("401"), "{again}");
    talk.prompt(5, &session, "And now?");
    let over = talk.answer(5).0["error"]["message"].as_str().unwrap().to_owned();
    assert!(over.contains(&format!("Everything has been played in {tapes}.")), "{over}");
    talk.leave();
}

fn a_choice_holds() {
    let project = Project::new();
    let of = |id: &str, names: &[&str]| {
        let models: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({ "reasoning": true }))).collect();
        json!({ "name": id.to_uppercase(), "npm": "@ai-sdk/openai-compatible", "options": { "baseURL": "http://127.0.0.1:9/v1" }, "models": models })
    };
    let letters = ["a", "b", "c", "d", "e", "f", "g"];
    let settings = json!({ "provider": { "one": of("one", &letters), "two": of("two", &letters) } });
    project.write("~/.config/opencode/opencode.json", &settings.to_string());
    let option = |options: &Value, id: &str| {
        options.as_array().unwrap().iter().find(|option| option["id"] == id).cloned().unwrap_or_default()
    };
    let open = |talk: &mut Talk, id: u64, cwd: &std::path::Path| {
        talk.request(id, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
        let result = talk.answer(id).0["result"].clone();
        (result["sessionId"].as_str().unwrap().to_owned(), result["configOptions"].clone())
    };
    let mut talk = Talk::new(project);
    let cwd = talk.project.cwd();
    let (session, first) = open(&mut talk, 1, &cwd);
    let groups = |options: &Value| -> Vec<String> {
        let model = option(options, "model");
        let groups = model["options"].as_array().unwrap().iter();
        groups
            .map(|group| format!("{}: {}", group["name"].as_str().unwrap(), group["options"].as_array().unwrap().len()))
            .collect()
    };
    assert_eq!(groups(&first), ["ONE: 7", "TWO: 7", "adjutant: 1"]);
    for (id, (option, value)) in (2..).zip([("model", "two/c"), ("model", "one/d"), ("effort", "high")]) {
        talk.request(
            id,
            "session/set_config_option",
            &json!({ "sessionId": session, "configId": option, "value": value }),
        );
        assert!(talk.answer(id).0.get("error").is_none());
    }
    // A session that was opened hears of choices when it does something; closing waits for it.
    talk.request(5, "session/close", &json!({ "sessionId": session }));
    talk.answer(5);
    let (_, next) = open(&mut talk, 6, &cwd);
    assert_eq!(groups(&next), ["Recently used: 2", "ONE: 6", "TWO: 6", "adjutant: 1"]);
    assert_eq!(
        (&option(&next, "model")["currentValue"], &option(&next, "effort")["currentValue"]),
        (&json!("one/d"), &json!("high"))
    );
    assert_eq!(option(&next, "model")["options"][0]["options"][1]["name"], "TWO/c");
    // Another project begins afresh.
    std::fs::create_dir_all(talk.project.path("~/elsewhere")).unwrap();
    let elsewhere = talk.project.path("~/elsewhere");
    assert_eq!(groups(&open(&mut talk, 7, &elsewhere).1), groups(&first));
    talk.leave();
}

/// A TLS server whose answers, their kind and their body, are made of a request's body.
fn guarded_by(
    certificate: &rcgen::Certificate,
    key: &rcgen::KeyPair,
    answer: impl Fn(&str) -> (u16, &'static str, String) + Send + 'static,
) -> (SocketAddr, Arc<AtomicBool>) {
    let chain = vec![certificate.der().clone()];
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stopped = Arc::new(AtomicBool::new(false));
    let over = stopped.clone();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            if over.load(Ordering::Relaxed) {
                return;
            }
            socket.set_read_timeout(Some(PATIENCE)).ok();
            let mut tls = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::Stream::new(&mut tls, &mut socket);
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            let mut asked = vec![0; length.unwrap_or(0)];
            if stream.read_exact(&mut asked).is_err() {
                continue;
            }
            let (status, kind, body) = answer(&String::from_utf8_lossy(&asked));
            let head = format!("HTTP/1.1 {status} Whatever\r\ncontent-type: {kind}\r\nconnection: close\r\n");
            let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).ok();
            stream.flush().ok();
        }
    });
    (address, stopped)
}

/// A TLS server with a certificate of an authority of the test's own: its port, what ends it, and the authority.
pub fn vouched(
    answer: impl Fn(&str) -> (u16, &'static str, String) + Send + 'static,
) -> (SocketAddr, Arc<AtomicBool>, String) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap().signed_by(&key, &issuer).unwrap();
    let (address, stopped) = guarded_by(&certificate, &key, answer);
    (address, stopped, authority_pem)
}

fn certificates() {
    let (address, stopped, authority_pem) = vouched(|_| {
        let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "Trusted." }, "finish_reason": "stop" }] });
        (200, "text/event-stream", format!("data: {chunk}\n\ndata: [DONE]\n\n"))
    });
    let mut project = Project::new();
    project.write("~/authority.pem", &authority_pem);
    let pem = project.path("~/authority.pem").display().to_string();
    one_provider(&project, &format!("https://localhost:{}/v1", address.port()), "a-key");
    // Nobody vouches for it: told at once, not tried again.
    let said = complains(&project, &["run", "Hello"]);
    assert!(
        said.contains("Own could not prove who it is") && said.contains("SSL_CERT_FILE or NODE_EXTRA_CA_CERTS"),
        "{said}"
    );
    for variable in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"] {
        project.set(variable, Some(&pem));
        assert_eq!(says(&project, &["run", "Hello"]), "Trusted.\n", "{variable}");
        project.set(variable, None);
    }
    // For another name it is not good.
    project.set("SSL_CERT_FILE", Some(&pem));
    one_provider(&project, &format!("https://127.0.0.1:{}/v1", address.port()), "a-key");
    assert!(complains(&project, &["run", "Hello"]).contains("Own could not prove who it is"));
    stopped.store(true, Ordering::Relaxed);
    TcpStream::connect(address).ok();
}

fn proxies() {
    let proxy = Server::start(|heard| match heard.head[0].split(' ').next() {
        Some("CONNECT") => (403, String::new(), "Not through here.".into()),
        _ => {
            let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "Through the proxy." }, "finish_reason": "stop" }] });
            (200, "content-type: text/event-stream\r\n".into(), format!("data: {chunk}\n\ndata: [DONE]\n\n"))
        }
    });
    let mut project = Project::new();
    project.set("http_proxy", Some(&proxy.base()));
    project.set("https_proxy", Some(&proxy.base()));
    one_provider(&project, "http://gateway.example/v1", "a-key");
    assert_eq!(says(&project, &["run", "Hello"]), "Through the proxy.\n");
    assert_eq!(proxy.heard()[0].path(), "http://gateway.example/v1/chat/completions");
    // Who is excepted is asked directly.
    let direct = words("Directly.");
    one_provider(&project, &format!("{}/v1", direct.base()), "secret-key-1");
    assert_eq!(says(&project, &["run", "Hello"]), "Directly.\n");
    // A proxy that says no is told as what it is, at the first attempt.
    one_provider(&project, "https://gateway.example/v1", "a-key");
    let mut talk = Talk::new(project);
    let session = talk.open();
    talk.prompt(2, &session, "Hello");
    let heard = loop {
        let update = talk.hear();
        if update["params"]["update"]["sessionUpdate"] == "agent_thought_chunk" {
            break update.to_string();
        }
    };
    assert!(heard.contains("The proxy on the way to Own (gateway.example) did not let us through"), "{heard}");
    talk.say(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
    assert_eq!(talk.answer(2).0["result"]["stopReason"], "cancelled");
    talk.leave();
}

/// A model on a connection that stays open: three calls, then words. Gives back how many connections
/// were made and how many requests came over them.
fn one_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let counted = Arc::new((Mutex::new((0, 0)), AtomicBool::new(false)));
    let shared = counted.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if shared.1.load(Ordering::Relaxed) {
                return;
            }
            shared.0.lock().unwrap().0 += 1;
            let shared = shared.clone();
            std::thread::spawn(move || {
                while let Some(request) = hear(&stream) {
                    shared.0.lock().unwrap().1 += 1;
                    let results = request.body.matches("\"role\":\"tool\"").count();
                    let delta = if results < 3 {
                        let function = json!({ "name": "glob", "arguments": json!({ "pattern": format!("*{results}") }).to_string() });
                        json!({ "tool_calls": [{ "index": 0, "id": format!("c{results}"), "function": function }] })
                    } else {
                        json!({ "content": "Three times the same." })
                    };
                    let why = if results < 3 { "tool_calls" } else { "stop" };
                    let chunk = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": why }] });
                    let body = format!("data: {chunk}\n\ndata: [DONE]\n\n");
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    if (&stream).write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let project = Project::new();
    one_provider(&project, &format!("http://{address}/v1"), "a-key");
    let mut settings: Value =
        serde_json::from_str(&std::fs::read_to_string(project.path("~/.config/opencode/opencode.json")).unwrap())
            .unwrap();
    settings["permission"] = json!({ "*": "allow" });
    project.write("~/.config/opencode/opencode.json", &settings.to_string());
    assert_eq!(says(&project, &["run", "Look three times"]), "Three times the same.\n");
    assert_eq!(*counted.0.lock().unwrap(), (1, 4));
    counted.1.store(true, Ordering::Relaxed);
    TcpStream::connect(address).ok();
}
