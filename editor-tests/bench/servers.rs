//! Costs of MCP servers: ten of them, two dead, before the first request; a call beyond its round
//! trip; a thousand tools in a request; the memory of an idle server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::environment::Environment;
use config::Settings;
use config::settings::{McpEntry, Transport};
use events::EventSender;
use mcp::{McpServers, McpSessionOptions};
use providers::http::HttpClient;
use serde_json::{Map, Value, json};

use crate::long_run::{Client, proc};
use crate::median;
use crate::model::{self, Model};
use crate::project::Project;
use crate::runtime::block_on;

/// Returns a server on the loopback with this many tools; it lives as long as the process.
fn server(tools: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                stream.set_nodelay(true).ok();
                let mut lines = BufReader::new(stream.try_clone().unwrap());
                while serve(&mut lines, &stream, tools).is_some() {}
            });
        }
    });
    address
}

fn serve(lines: &mut BufReader<TcpStream>, mut stream: &TcpStream, tools: usize) -> Option<()> {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body).ok()?;
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let description =
        "Does something of its own that nobody else does, and says how it went. ".repeat(5);
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let result = match asked["method"].as_str() {
        Some("initialize") => {
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "bench", "version": "1"}})
        }
        Some("tools/list") => {
            let one = |n| json!({"name": format!("tool_{n:04}"), "description": description, "inputSchema": schema});
            json!({"tools": (0..tools).map(one).collect::<Vec<_>>()})
        }
        Some("tools/call") => json!({"content": [{"type": "text", "text": "done"}]}),
        _ => Value::Null,
    };
    let (status, body) = match (&asked["id"], result) {
        (Value::Null, _) if asked.is_null() => ("405 No", String::new()),
        (Value::Null, _) => ("202 Accepted", String::new()),
        (id, result) => (
            "200 OK",
            json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string(),
        ),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()
}

fn remote(address: SocketAddr) -> Value {
    json!({"type": "remote", "url": format!("http://{address}/mcp"), "oauth": false})
}

/// A session with these servers: how long it took to open, how long until the model was asked after
/// that, the bytes it was asked with, and the memory of the process.
fn session(servers: &Value) -> (Duration, Duration, usize, u64) {
    let model = Model::unwatched(model::script("text: Hello.").unwrap());
    let project = Project::new();
    project.provider(&model.base(), &json!({ "mcp": servers }));
    let mut client = Client::new(&project);
    let start = Instant::now();
    let id = client.open(&project);
    let opened = start.elapsed();
    // As while a user types: the servers are ready when the prompt comes, except those that never
    // start.
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    client.prompt(1, &id);
    while client.receive()["id"] != 1 {}
    let answered = start.elapsed();
    let text =
        std::fs::read_to_string(proc(client.editor.pid(), "smaps_rollup")).unwrap_or_default();
    let share = text.lines().find_map(|line| {
        line.strip_prefix("Pss:")?
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .ok()
    });
    let bytes = model
        .received_requests()
        .first()
        .map_or(0, |request| request.bytes);
    drop(client.editor.finish());
    (opened, answered, bytes, share.unwrap_or(0))
}

/// Measures a call through adjutant, and the same request without it.
fn calls(address: SocketAddr) -> (Duration, Duration) {
    const CALLS: usize = 500;
    let raw = {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "tool_0001"}}).to_string();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let once = || {
            let start = Instant::now();
            (&stream).write_all(request.as_bytes()).unwrap();
            let mut length = 0;
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                lines.read_line(&mut line).unwrap();
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.trim().parse().unwrap();
                }
            }
            lines.read_exact(&mut vec![0; length]).unwrap();
            start.elapsed()
        };
        median(std::iter::repeat_with(once).take(CALLS).collect())
    };
    let ours = block_on(async {
        let environment = Environment::read();
        let transport = Transport::Remote {
            url: format!("http://{address}/mcp"),
            headers: Vec::new(),
            oauth: None,
            sse: false,
        };
        let entry = McpEntry {
            name: "bench".into(),
            enabled: true,
            timeout: Duration::from_secs(10),
            call_timeout: None,
            sampling: false,
            log: None,
            transport,
            source: "a benchmark".into(),
        };
        let client = Arc::new(HttpClient::new(&environment));
        let dir = std::env::temp_dir();
        let session = McpSessionOptions::default();
        let servers = McpServers::new(
            (&dir, &[]),
            &environment,
            &Settings::default(),
            client,
            session,
        );
        servers.test_servers(std::slice::from_ref(&entry)).await;
        let mut took = Vec::new();
        for _ in 0..CALLS {
            let (event_sender, _up) = EventSender::new();
            let start = Instant::now();
            servers
                .call("bench", "tool_0001", Map::new(), event_sender)
                .await
                .unwrap();
            took.push(start.elapsed());
        }
        servers.end().await;
        median(took)
    });
    (ours, raw)
}

/// Prints all of them.
pub fn print_figures() {
    let few = server(3);
    let two = json!({"s0": remote(few), "s1": remote(few)});
    let mut ten: Map<String, Value> = (0..8).map(|n| (format!("s{n}"), remote(few))).collect();
    ten.insert(
        "dead".into(),
        json!({"type": "local", "command": ["false"]}),
    );
    ten.insert(
        "gone".into(),
        json!({"type": "remote", "url": "http://127.0.0.1:9/mcp"}),
    );
    let ten = Value::Object(ten);
    let none = json!({});
    let runs = |servers: &Value| -> Vec<(Duration, Duration, usize, u64)> {
        (0..9).map(|_| session(servers)).collect()
    };
    let with = runs(&ten);
    let some = runs(&two);
    let without = runs(&none);
    let opened =
        |runs: &[(Duration, Duration, usize, u64)]| median(runs.iter().map(|run| run.0).collect());
    let answered =
        |runs: &[(Duration, Duration, usize, u64)]| median(runs.iter().map(|run| run.1).collect());
    println!("\nMCP servers, medians of nine:");
    println!(
        "  session/new without {:.2?}, with ten of which two are dead {:.2?}",
        opened(&without),
        opened(&with)
    );
    println!(
        "  a turn of one answer without {:.2?}, with ten {:.2?}",
        answered(&without),
        answered(&with)
    );
    let memory = |runs: &[(Duration, Duration, usize, u64)]| {
        let mut all: Vec<u64> = runs.iter().map(|run| run.3).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    // The first brings the code of the protocol with it.
    let each = memory(&with).saturating_sub(memory(&some)) / 6;
    println!(
        "  memory (PSS) without {} KiB, with two {} KiB, with ten {} KiB: {each} KiB for each more that works",
        memory(&without),
        memory(&some),
        memory(&with)
    );
    let (ours, raw) = calls(few);
    println!("  a call at an address {ours:.2?}, the same request by itself {raw:.2?}");
    let many = session(&json!({ "many": remote(server(1_000)) }));
    println!(
        "  first request without {} bytes, with a thousand tools {} bytes",
        without[0].2, many.2
    );
}
