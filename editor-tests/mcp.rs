//! A mock MCP server: as a program (the tests' own, started with `--mcp-server`; `${MCP}` on a
//! page) and at an address (`=== /path mcp …` in a `web` block), over streamable HTTP or the older
//! HTTP with events.
//!
//! The rest of a page's line after `mcp` selects its behaviour at the address: `events` (it answers
//! with streams), `older` (only HTTP with events), `needs Name:value` (a header without which it
//! answers 401), `moved URL` (a redirect), `login` (see `oauth.rs`). Its tools are in [`TOOLS`].

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The other side of a conversation.
pub trait McpPeer {
    /// Sends a message.
    fn tell(&mut self, message: &Value);
    /// Asks something, and waits for the answer.
    fn ask(&mut self, method: &str, params: Value) -> Value;
}

/// The mock server.
#[derive(Default)]
pub struct Server {
    /// It speaks only the newest protocol.
    modern: bool,
    /// It has learnt another tool, and another prompt.
    grown: AtomicBool,
    /// The first note holds something else now.
    rewritten: AtomicBool,
    /// Least severity of log messages that the client wants.
    level: Mutex<String>,
    calls: AtomicU64,
    /// Requests to the client that wait for an answer, by id.
    asked: Mutex<BTreeMap<u64, Sender<Value>>>,
    asks: AtomicU64,
    /// The streams of the older way, by their number.
    streams: Mutex<BTreeMap<u64, TcpStream>>,
}

/// A PNG of one dot.
pub const TINY: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Name, description, annotations.
const TOOLS: &[(&str, &str, &str)] = &[
    (
        "say",
        "Says what it is told.",
        r#"{"readOnlyHint":true,"title":"Say it"}"#,
    ),
    ("count", "Counts, and says how far it is.", "{}"),
    ("grow", "Learns another tool.", "{}"),
    ("paint", "Paints a dot.", "{}"),
    ("weigh", "Weighs, and answers with structure.", "{}"),
    ("link", "Links to a resource.", "{}"),
    ("sing", "Sings.", "{}"),
    ("fail", "Fails.", r#"{"destructiveHint":true}"#),
    ("break", "Answers with an error of the protocol.", "{}"),
    ("die", "Ends the server, without an answer.", "{}"),
    ("ask", "Asks the user for a name and a size.", "{}"),
    ("visit", "Asks the user to visit a page.", "{}"),
    ("think", "Asks a model.", "{}"),
    ("roots", "Says which directories the client has.", "{}"),
    ("log", "Writes to the log.", "{}"),
    ("rewrite", "Rewrites the first note.", "{}"),
    ("confirm", "Asks the user for a yes.", "{}"),
];

fn schema(name: &str) -> Value {
    match name {
        "say" => {
            json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
        }
        _ => json!({"type": "object", "properties": {}}),
    }
}

impl Server {
    /// Returns a server that speaks only the newest protocol.
    pub fn modern() -> Self {
        Self {
            modern: true,
            ..Self::default()
        }
    }

    fn tools(&self) -> Vec<Value> {
        // The number of tools can be set.
        if let Some(n) =
            std::env::args().find_map(|word| word.strip_prefix("--tools=")?.parse::<usize>().ok())
        {
            let said =
                "Does something of its own that nobody else does, and says how it went. ".repeat(5);
            let one = |n: usize| json!({"name": format!("tool_{n:04}"), "description": said, "inputSchema": schema("say")});
            return (0..n).map(one).collect();
        }
        // With mistakes that published servers make.
        if std::env::args().any(|word| word == "--sloppy") {
            return vec![
                json!({"name": "tool_bare", "description": "Has no schema."}),
                json!({"description": "Has no name.", "inputSchema": {}}),
                json!({"name": "text", "inputSchema": "{}"}),
                json!({"name": "say", "description": 7, "inputSchema": schema("say"), "annotations": "safe"}),
            ];
        }
        let grown = ("grown", "Came later.", "{}");
        let grown = self.grown.load(Ordering::Relaxed).then_some(&grown);
        let all = TOOLS.iter().chain(grown);
        let one = |(name, description, hints): &(&str, &str, &str)| {
            let hints: Value = serde_json::from_str(hints).unwrap();
            json!({"name": name, "description": description, "inputSchema": schema(name), "annotations": hints})
        };
        all.map(one).collect()
    }

    /// Answers a request; nothing for a notification, or an answer.
    pub fn answer(&self, message: &Value, headers: &str, other: &mut dyn McpPeer) -> Option<Value> {
        let is_request = message.get("method").is_some();
        let id = if is_request { message.get("id") } else { None };
        let Some(id) = id else {
            if let Some(waiting) = message["id"]
                .as_u64()
                .and_then(|id| self.asked.lock().unwrap().remove(&id))
            {
                waiting.send(message.clone()).ok();
            }
            return None;
        };
        let params = &message["params"];
        let modern = self.modern || std::env::args().any(|word| word == "--modern");
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" if modern => {
                let error = json!({"code": -32022, "message": "unsupported", "data": {"supported": ["2026-07-28"]}});
                return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
            "server/discover" if modern => {
                json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}}, "instructions": "Say it plainly.", "ttlMs": 0,
                "cacheScope": "private"})
            }
            "tools/call" if modern && params["name"] == "ask" => {
                match params["inputResponses"].get("who") {
                    None => {
                        json!({"resultType": "input_required", "requestState": "s1", "inputRequests": {"who": {
                    "method": "elicitation/create", "params": {"mode": "form", "message": "Who is it for?",
                    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}}}})
                    }
                    Some(said) => json!({"resultType": "complete",
                    "content": [{"type": "text", "text": format!("{said} in {}", params["requestState"])}]}),
                }
            }
            "initialize" => json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}, "logging": {}, "prompts": {}, "completions": {},
                    "resources": {"subscribe": true}},
                "serverInfo": {"name": "mock", "version": "1"},
                "instructions": "Say it plainly.",
            }),
            "tools/list" => json!({"tools": self.tools()}),
            "tools/call" => match self.call(params, headers, other) {
                Ok(result) => result,
                Err(why) => {
                    return Some(
                        json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": why}}),
                    );
                }
            },
            "completion/complete" => {
                json!({"completion": {"values": ["Ann", "Bob"], "hasMore": false}})
            }
            "logging/setLevel" => {
                *self.level.lock().unwrap() =
                    params["level"].as_str().unwrap_or_default().to_owned();
                json!({})
            }
            "ping" | "resources/subscribe" => json!({}),
            method => match self.look_up(method, params) {
                Ok(result) => result,
                Err(error) => return Some(json!({"jsonrpc": "2.0", "id": id, "error": error})),
            },
        };
        Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    /// Answers the requests that do not concern tools.
    fn look_up(&self, method: &str, params: &Value) -> Result<Value, Value> {
        Ok(match method {
            "prompts/list" => {
                let mut prompts = json!([
                    {"name": "greet", "description": "Greets somebody.",
                        "arguments": [{"name": "who", "required": true}, {"name": "how"}]},
                    {"name": "plain", "description": "Says hello."}]);
                if self.grown.load(Ordering::Relaxed) {
                    prompts
                        .as_array_mut()
                        .unwrap()
                        .push(json!({"name": "grown", "description": "Came later."}));
                }
                json!({"prompts": prompts})
            }
            "prompts/get" => {
                let who = params["arguments"]["who"].as_str().unwrap_or("everybody");
                let how = params["arguments"]["how"].as_str().unwrap_or("kindly");
                json!({"messages": [{"role": "user", "content": {"type": "text", "text": format!("Greet {who} {how}.")}}]})
            }
            "resources/list" => json!({"resources": [
                {"uri": "note://one", "name": "one", "description": "The first note.", "mimeType": "text/plain"},
                {"uri": "note://dot", "name": "dot", "mimeType": "image/png"}]}),
            "resources/templates/list" => json!({"resourceTemplates": [
                {"uriTemplate": "note://{name}", "name": "notes"}]}),
            "resources/read" => match params["uri"].as_str().unwrap_or_default() {
                "note://one" => {
                    let text = if self.rewritten.load(Ordering::Relaxed) {
                        "Buy bread."
                    } else {
                        "Buy milk."
                    };
                    json!({"contents": [{"uri": "note://one", "mimeType": "text/plain", "text": text}]})
                }
                "note://dot" => {
                    json!({"contents": [{"uri": "note://dot", "mimeType": "image/png", "blob": TINY}]})
                }
                uri => {
                    return Err(json!({"code": -32002, "message": format!("There is no {uri}.")}));
                }
            },
            method => {
                return Err(json!({"code": -32601, "message": format!("no method {method}")}));
            }
        })
    }

    fn call(
        &self,
        params: &Value,
        headers: &str,
        other: &mut dyn McpPeer,
    ) -> Result<Value, String> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let text = |text: &str| json!([{"type": "text", "text": text}]);
        let note = |other: &mut dyn McpPeer, method: &str, params: Value| {
            other.tell(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
        };
        let content = match params["name"].as_str().unwrap_or_default() {
            "say" => text(
                &match params["arguments"]["text"].as_str().unwrap_or_default() {
                    // A header of the client.
                    name if name.starts_with("header ") => {
                        let name = format!("{}:", &name[7..]);
                        let line = headers
                            .lines()
                            .find(|line| line.to_lowercase().starts_with(&name));
                        line.unwrap_or("none").to_owned()
                    }
                    words => words.to_owned(),
                },
            ),
            "count" => {
                for n in 1..=3 {
                    let token = &params["_meta"]["progressToken"];
                    let said = json!({"progressToken": token, "progress": n, "total": 3, "message": "counting"});
                    note(other, "notifications/progress", said);
                }
                text("three")
            }
            "grow" => {
                self.grown.store(true, Ordering::Relaxed);
                note(other, "notifications/tools/list_changed", json!({}));
                note(other, "notifications/prompts/list_changed", json!({}));
                text("grown")
            }
            "grown" => text("I came later."),
            "paint" => {
                json!([{"type": "text", "text": "A dot:"}, {"type": "image", "mimeType": "image/png", "data": TINY}])
            }
            "weigh" => return Ok(json!({"content": text("2 kg"), "structuredContent": {"kg": 2}})),
            "link" => {
                json!([{"type": "resource_link", "uri": "note://one", "name": "one", "description": "The first note."}])
            }
            "sing" => json!([{"type": "audio", "mimeType": "audio/wav", "data": "UklGRg=="}]),
            "fail" => return Ok(json!({"content": text("It does not work."), "isError": true})),
            "die" => std::process::exit(1),
            "rewrite" => {
                self.rewritten.store(true, Ordering::Relaxed);
                note(
                    other,
                    "notifications/resources/updated",
                    json!({"uri": "note://one"}),
                );
                text("rewritten")
            }
            "log" => {
                note(
                    other,
                    "notifications/message",
                    json!({"level": "warning", "data": "the disk is nearly full"}),
                );
                text(&format!("logged, from {} on", self.level.lock().unwrap()))
            }
            name @ ("ask" | "visit" | "think" | "confirm" | "roots") => {
                text(&asked(name, params, other))
            }
            name if name.starts_with("tool_") => {
                text(&format!("{name} was called with {}", params["arguments"]))
            }
            _ => return Err("it went wrong".to_owned()),
        };
        Ok(json!({"content": content}))
    }

    fn asking(&self, method: &str, params: Value) -> (Value, Receiver<Value>) {
        let id = 1000 + self.asks.fetch_add(1, Ordering::Relaxed);
        let (answers, answer) = channel();
        self.asked.lock().unwrap().insert(id, answers);
        (
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}),
            answer,
        )
    }
}

/// Asks the client the question of a tool and returns its answer.
fn asked(tool: &str, params: &Value, other: &mut dyn McpPeer) -> String {
    match tool {
        "ask" => {
            let schema = json!({"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "title": "Name"},
                "size": {"type": "string", "enum": ["small", "large"]}}});
            let params = json!({"message": "Who is it for?", "requestedSchema": schema});
            other.ask("elicitation/create", params)["result"].to_string()
        }
        "visit" => {
            let paid = params["arguments"]["paid"] == true;
            let params = json!({"mode": "url", "message": "Please pay.", "url": "https://pay.example/1",
                "elicitationId": "e1"});
            let said = other.ask("elicitation/create", params)["result"].to_string();
            if paid {
                let done = json!({"elicitationId": "e1"});
                other.tell(&json!({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": done}));
            }
            said
        }
        "think" => {
            let messages =
                json!([{"role": "user", "content": {"type": "text", "text": "What is 2 + 2?"}}]);
            let said = other.ask(
                "sampling/createMessage",
                json!({"messages": messages, "maxTokens": 100}),
            );
            said.get("result").unwrap_or(&said["error"]).to_string()
        }
        "confirm" => {
            let twice = params["arguments"]["twice"] == true;
            let schema = json!({"type": "object", "properties": {}});
            let params = json!({"message": "Are you sure?", "requestedSchema": schema});
            let said = other.ask("elicitation/create", params.clone())["result"].to_string();
            if twice {
                other.ask("elicitation/create", params)["result"].to_string()
            } else {
                said
            }
        }
        _ => other.ask("roots/list", json!({}))["result"]["roots"].to_string(),
    }
}

/// Serves on standard input and output, if this process was started for that.
pub fn serve_if_asked() {
    if !std::env::args().any(|argument| argument == "--mcp-server") {
        return;
    }
    struct Pipe;
    impl McpPeer for Pipe {
        fn tell(&mut self, message: &Value) {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{message}").and_then(|()| out.flush()).ok();
        }
        fn ask(&mut self, method: &str, params: Value) -> Value {
            self.tell(&json!({"jsonrpc": "2.0", "id": 1000, "method": method, "params": params}));
            for line in std::io::stdin().lock().lines() {
                let said: Value = serde_json::from_str(&line.unwrap()).unwrap();
                if said["id"] == 1000 && said.get("method").is_none() {
                    return said;
                }
            }
            Value::Null
        }
    }
    let server = Server::default();
    eprintln!("the mock server has started");
    let mut line = String::new();
    while matches!(std::io::stdin().lock().read_line(&mut line), Ok(1..)) {
        let message: Value = serde_json::from_str(&line).unwrap();
        if let Some(answer) = server.answer(&message, "", &mut Pipe) {
            Pipe.tell(&answer);
        }
        line.clear();
    }
    std::process::exit(0);
}

/// A request, as the web has read it.
pub struct Asked<'a> {
    pub method: &'a str,
    pub target: &'a str,
    pub headers: &'a str,
    pub body: &'a [u8],
}

impl Asked<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        let of = |line: &'_ str| {
            line.split_once(':')
                .is_some_and(|(known, _)| known.eq_ignore_ascii_case(name))
        };
        self.headers
            .lines()
            .find(|line| of(line))
            .and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim())
    }
}

/// Answers a request at an address.
pub fn at_an_address(
    server: &Arc<Server>,
    how: &str,
    asked: &Asked<'_>,
    mut stream: TcpStream,
) -> Option<()> {
    let words: Vec<&str> = how.split(' ').collect();
    let after = |word: &str| {
        words
            .iter()
            .position(|known| *known == word)
            .and_then(|at| words.get(at + 1))
            .copied()
    };
    let mut plain = |status: &str, more: &str, body: &str| {
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\n{more}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
        .ok()
    };
    if let Some(to) = after("moved") {
        return plain("307 Temporary Redirect", &format!("location: {to}\r\n"), "");
    }
    if let Some((name, value)) = after("needs").and_then(|header| header.split_once(':'))
        && asked.header(name) != Some(&value.replace('_', " "))
    {
        return plain("401 Unauthorized", "", "");
    }
    if let Some(status) = after("status") {
        return plain(
            &format!("{status} Whatever"),
            "content-type: text/html\r\n",
            "<h1>Nothing here</h1>",
        );
    }
    let message = || serde_json::from_slice::<Value>(asked.body).unwrap();
    if words.contains(&"older") {
        return match (asked.method, asked.target.split_once("?stream=")) {
            ("GET", _) => {
                let number = server.asks.fetch_add(1, Ordering::Relaxed);
                let path = asked.target.split('?').next()?;
                server
                    .streams
                    .lock()
                    .unwrap()
                    .insert(number, stream.try_clone().ok()?);
                write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: endpoint\ndata: {path}?stream={number}\n\n").ok()
            }
            ("POST", Some((_, number))) => {
                let to = server
                    .streams
                    .lock()
                    .unwrap()
                    .get(&number.parse().ok()?)?
                    .try_clone()
                    .ok()?;
                plain("202 Accepted", "", "")?;
                let mut other = Stream {
                    server: server.clone(),
                    stream: to,
                };
                if let Some(answer) = server.answer(&message(), asked.headers, &mut other) {
                    other.tell(&answer);
                }
                Some(())
            }
            _ => plain("405 Method Not Allowed", "", ""),
        };
    }
    match asked.method {
        "POST"
            if words.contains(&"events")
                && message().get("method").is_some()
                && message().get("id").is_some() =>
        {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\nmcp-session-id: s1\r\n\r\n"
            )
            .ok()?;
            let mut other = Stream {
                server: server.clone(),
                stream,
            };
            let answer = server.answer(&message(), asked.headers, &mut other)?;
            other.tell(&answer);
            Some(())
        }
        "POST" => {
            struct NoClient;
            impl McpPeer for NoClient {
                fn tell(&mut self, _: &Value) {}
                fn ask(&mut self, _: &str, _: Value) -> Value {
                    Value::Null
                }
            }
            match server.answer(&message(), asked.headers, &mut NoClient) {
                Some(answer) => plain(
                    "200 OK",
                    "content-type: application/json\r\n",
                    &answer.to_string(),
                ),
                None => plain("202 Accepted", "", ""),
            }
        }
        "DELETE" => plain("200 OK", "", ""),
        _ => plain("405 Method Not Allowed", "", ""),
    }
}

struct Stream {
    server: Arc<Server>,
    stream: TcpStream,
}

impl McpPeer for Stream {
    fn tell(&mut self, message: &Value) {
        // In one piece: others may write to the same stream.
        self.stream
            .write_all(format!("event: message\ndata: {message}\n\n").as_bytes())
            .ok();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let (question, answer) = self.server.asking(method, params);
        self.tell(&question);
        answer
            .recv_timeout(crate::editor::RESPONSE_TIMEOUT)
            .unwrap_or_default()
    }
}
