//! Who can be asked: what the commands about models and keys say, and what is fetched beside the
//! conversation. Everything that is fetched comes from servers of these tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use crate::conversations::Talk;
use crate::editor::PATIENCE;
use crate::project::Project;

/// A name, and what to do.
pub const ALL: [(&str, fn()); 3] = [
    ("models are listed with prices and keys", models_are_listed),
    ("the catalogue is fetched once and asked for by its mark", the_catalogue_is_refreshed),
    ("a newer catalogue is fetched beside the conversation", refreshed_beside_the_conversation),
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

fn hear(stream: &TcpStream) -> Option<Heard> {
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
        "* large    131k / 16k  $1 / $2.5       reasoning tools images temperature",
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
            "abilities": ["reasoning", "tools", "images", "temperature"], "efforts": ["medium", "high", "deep"] })
    );
    assert_eq!((&of("mistral")["hasKey"], &of("mistral")["models"].as_array().unwrap().len()), (&json!(false), &1));
    // What the settings say lies over what the catalogue knows.
    let mine = &of("mine")["models"];
    assert_eq!((mine.as_array().unwrap().len(), &mine[0]["output"]), (1, &json!(1_000)));
    assert_eq!(mine[0]["price"]["input"], 3.0);

    let everyone = says(&project, &["models", "--all", "openrouter"]);
    assert!(everyone.starts_with("openrouter (OpenRouter): There is no key for OpenRouter. Set OPENROUTER_API_KEY"));
    let missing = complains(&project, &["models", "mistrall"]);
    assert!(missing.contains("there is no provider \"mistrall\" here. Did you mean mistral?"), "{missing}");
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
        fetched.starts_with("The catalogue is new: 2 models.") && fetched.contains("acme (Acme): key from ACME_KEY")
    );
    assert!(says(&project, &["models", "--refresh"]).starts_with("The catalogue is the newest."));
    let paths: Vec<_> = server.heard().iter().map(|heard| heard.path().to_owned()).collect();
    assert_eq!(paths, ["/api.json", "/api.json"]);
    // Without a server what was kept holds.
    drop(server);
    assert!(says(&project, &["models", "acme"]).contains("two"));
    assert!(
        complains(&project, &["models", "--refresh"]).contains("The model catalogue (127.0.0.1) could not be reached")
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
