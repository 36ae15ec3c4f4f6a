//! The client for HTTP and WebSocket of the protocol's authors, as Rust editors use it, and a server of ours:
//! `cargo run -- path/to/adjutant`. One line per check, then how many passed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agent_client_protocol::{Channel, Client, ConnectTo, ConnectionDriver, TransportFrame};
use agent_client_protocol_http::HttpClient;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

struct Peer {
    channel: Channel,
    driver: tokio::task::JoinHandle<agent_client_protocol::Result<()>>,
}

impl Peer {
    fn connect(url: &str) -> Self {
        let client = HttpClient::builder(url).configure_http(|http| http.no_proxy()).build().expect("a client");
        let (channel, driver): (Channel, Option<ConnectionDriver>) =
            ConnectTo::<Client>::into_channel_and_future(client);
        Self { channel, driver: tokio::spawn(driver.expect("a driver")) }
    }

    fn say(&self, message: &Value) {
        self.channel.tx.unbounded_send(TransportFrame::parse_json(&message.to_string())).expect("it is open");
    }

    fn request(&self, id: u64, method: &str, params: Value) {
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    /// The answer to a request and what came before it; questions are answered with yes.
    async fn answer(&mut self, id: u64) -> (Value, Vec<Value>) {
        let mut before = Vec::new();
        loop {
            let frame = timeout(PATIENCE, self.channel.rx.next()).await.expect("in time").expect("it is open");
            let message: Value = serde_json::from_str(&frame.to_json().expect("JSON")).expect("JSON");
            if message["id"] == id && message.get("method").is_none() {
                return (message, before);
            }
            if message["method"] == "session/request_permission" {
                self.say(&json!({ "jsonrpc": "2.0", "id": message["id"],
                    "result": { "outcome": { "outcome": "selected", "optionId": "once" } } }));
            }
            before.push(message);
        }
    }

    async fn close(self) {
        drop(self.channel);
        timeout(PATIENCE, self.driver).await.expect("in time").expect("no panic").expect("an orderly end");
    }
}

fn serve(binary: &str, home: &std::path::Path) -> (Child, String) {
    let settings = home.join(".config/adjutant");
    std::fs::create_dir_all(&settings).expect("a home");
    let says = json!({ "model": "offline/offline", "permission": { "bash": "ask" } });
    std::fs::write(settings.join("adjutant.json"), says.to_string()).expect("settings");
    let mut server = Command::new(binary)
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env_clear()
        .envs([("HOME", home), ("TMPDIR", home)])
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut line = String::new();
    BufReader::new(server.stderr.take().expect("stderr")).read_line(&mut line).expect("a line");
    let address = line.split("://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
    (server, address.to_owned())
}

#[tokio::main]
async fn main() {
    let binary = std::env::args().nth(1).expect("the path of adjutant");
    let place = std::env::temp_dir().join(format!("adjutant-http-{}", std::process::id()));
    let project = place.join("project");
    std::fs::create_dir_all(&project).expect("a place");
    let (mut server, address) = serve(&binary, &place);
    let mut passed = 0;
    let mut check = |name: String, right: bool, found: &Value| {
        println!("{} {name}{}", if right { "ok   " } else { "FAIL " }, if right { String::new() } else { format!(": {found}") });
        passed += usize::from(right);
    };
    for scheme in ["http", "ws"] {
        let mut peer = Peer::connect(&format!("{scheme}://{address}"));
        peer.request(1, "initialize", json!({ "protocolVersion": 1 }));
        let hello = peer.answer(1).await.0;
        check(format!("{scheme}: shakes hands"), hello["result"]["agentInfo"]["name"] == "adjutant", &hello);
        peer.request(2, "session/new", json!({ "cwd": project, "mcpServers": [] }));
        let opened = peer.answer(2).await.0;
        let session = opened["result"]["sessionId"].clone();
        check(format!("{scheme}: opens a session"), session.is_string(), &opened);
        let file = project.join(scheme);
        let words = json!([{ "type": "text", "text": format!("run `touch {scheme}`") }]);
        peer.request(3, "session/prompt", json!({ "sessionId": session, "prompt": words }));
        let (end, updates) = peer.answer(3).await;
        check(format!("{scheme}: works and asks"), end["result"]["stopReason"] == "end_turn" && file.exists(), &end);
        let says = |message: &&Value| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk";
        check(format!("{scheme}: shows it before the answer"), updates.iter().any(|u| says(&u)), &json!(updates));
        peer.request(4, "session/prompt", json!({ "sessionId": "made-up", "prompt": [] }));
        let unknown = peer.answer(4).await.0;
        check(format!("{scheme}: says what is unknown"), unknown["error"]["code"].is_i64(), &unknown);
        peer.close().await;
        // Another connection goes on with it.
        let mut peer = Peer::connect(&format!("{scheme}://{address}"));
        peer.request(1, "initialize", json!({ "protocolVersion": 1 }));
        peer.answer(1).await;
        let load = json!({ "sessionId": session, "cwd": project, "mcpServers": [] });
        peer.request(2, "session/load", load.clone());
        let (mut loaded, mut shown) = peer.answer(2).await;
        if loaded.get("result").is_none() {
            peer.request(3, "session/load", load);
            (loaded, shown) = peer.answer(3).await;
        }
        let mine = |message: &Value| message["params"]["update"]["sessionUpdate"] == "user_message_chunk";
        check(format!("{scheme}: comes back"), loaded.get("result").is_some() && shown.iter().any(mine), &loaded);
        peer.close().await;
    }
    server.kill().ok();
    server.wait().ok();
    std::fs::remove_dir_all(&place).ok();
    println!("{passed} passed, {} failed", 12 - passed);
    std::process::exit(i32::from(passed != 12));
}
