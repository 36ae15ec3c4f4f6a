//! Breaks off, stops, damages or repeats a provider's answer at any byte, on every wire format; the
//! answer has text and two calls. In each case the prompt is answered once, no call is run with
//! half of its arguments, none is run twice, and the next prompt works.
//!
//! Plain `cargo test` tries some bytes; `ADJUTANT_OFFSETS=n` every n-th one.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::editor::{Editor, RESPONSE_TIMEOUT};
use crate::invariants::Invariants;
use crate::loopback::read_request;
use crate::parallel::{repetitions, run_in_parallel};
use crate::project::Project;

/// Number of concurrent sessions; most of them wait for a retry.
const AT_ONCE: usize = 96;

/// The longest duration of a prompt: a failed attempt, the wait before the next one, and a busy
/// machine.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(60);

/// The most that may be resident, in kB.
pub const MAX_RESIDENT_KIB: u64 = 200 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    Chat,
    Messages,
    Responses,
    Gemini,
}

pub const WIRES: [Wire; 4] = [Wire::Chat, Wire::Messages, Wire::Responses, Wire::Gemini];

/// The fault at a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The connection is closed.
    Cut,
    /// Nothing more comes.
    Stall,
    /// The byte is none of a text.
    Byte,
    /// The event with this byte comes twice.
    Twice,
    /// The body ends, as if that were all.
    End,
}

const FAULTS: [Fault; 5] = [
    Fault::Cut,
    Fault::Stall,
    Fault::Byte,
    Fault::Twice,
    Fault::End,
];

pub fn provider_that_fails_at_any_byte_gets_one_answer() {
    let number = std::env::var("ADJUTANT_OFFSETS")
        .ok()
        .and_then(|text| text.parse::<usize>().ok());
    let step = number.unwrap_or(repetitions(31, 211)).max(1);
    let wrong = Mutex::new(Vec::new());
    let tried = Mutex::new(0);
    run_in_parallel(WIRES.len(), |at| {
        let cases = WIRES[at].cases(step);
        *tried.lock().unwrap() += cases.len();
        let found = Run::new(WIRES[at], cases).run();
        wrong.lock().unwrap().extend(found);
    });
    let wrong = wrong.into_inner().unwrap();
    let tried = tried.into_inner().unwrap();
    eprintln!("{tried} faults tried, {} wrong", wrong.len());
    assert!(
        wrong.is_empty(),
        "{} of {tried}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// A tool, and its arguments in pieces.
type ToolCall<'a> = (&'a str, [String; 3]);

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn named(value: &Value) -> String {
    format!(
        "event: {}\ndata: {value}\n\n",
        value["type"].as_str().unwrap()
    )
}

fn chat_events(words: &str, calls: &[ToolCall<'_>]) -> Vec<String> {
    let mut out = Vec::new();
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        data(
            &json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
                "choices": [choice] }),
        )
    };
    out.push(chunk(
        json!({ "role": "assistant", "content": "" }),
        Value::Null,
    ));
    let (first, second) = words.split_at(words.len() / 2);
    out.extend([first, second].map(|text| chunk(json!({ "content": text }), Value::Null)));
    for (at, (name, pieces)) in calls.iter().enumerate() {
        for (index, piece) in pieces.iter().enumerate() {
            let call = match index {
                0 => json!({ "index": at, "id": format!("call_{at}"), "type": "function",
                        "function": { "name": name, "arguments": piece } }),
                _ => json!({ "index": at, "function": { "arguments": piece } }),
            };
            out.push(chunk(json!({ "tool_calls": [call] }), Value::Null));
        }
    }
    out.push(chunk(
        json!({}),
        json!(if calls.is_empty() {
            "stop"
        } else {
            "tool_calls"
        }),
    ));
    out.push(data(&json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 } })));
    out.push("data: [DONE]\n\n".into());
    out
}

fn messages_events(words: &str, calls: &[ToolCall<'_>]) -> Vec<String> {
    let mut out = Vec::new();
    let usage = json!({ "input_tokens": 10, "output_tokens": 1 });
    out.push(named(
        &json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message",
            "role": "assistant", "model": "m", "content": [], "usage": usage } }),
    ));
    let mut block = |index: usize, start: Value, pieces: Vec<Value>| {
        out.push(named(
            &json!({ "type": "content_block_start", "index": index, "content_block": start }),
        ));
        out.extend(pieces.into_iter().map(|delta| {
            named(&json!({ "type": "content_block_delta", "index": index, "delta": delta }))
        }));
        out.push(named(
            &json!({ "type": "content_block_stop", "index": index }),
        ));
    };
    let text = vec![json!({ "type": "text_delta", "text": words })];
    block(0, json!({ "type": "text", "text": "" }), text);
    for (at, (name, pieces)) in calls.iter().enumerate() {
        let start =
            json!({ "type": "tool_use", "id": format!("toolu_{at}"), "name": name, "input": {} });
        let piece = |json: &String| json!({ "type": "input_json_delta", "partial_json": json });
        block(at + 1, start, pieces.iter().map(piece).collect());
    }
    let reason = if calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    out.push(named(
        &json!({ "type": "message_delta", "delta": { "stop_reason": reason },
            "usage": { "output_tokens": 5 } }),
    ));
    out.push(named(&json!({ "type": "message_stop" })));
    out
}

fn responses_events(words: &str, calls: &[ToolCall<'_>]) -> Vec<String> {
    let mut out = Vec::new();
    out.push(named(&json!({ "type": "response.created", "response": { "id": "resp_1", "status": "in_progress" } })));
    let item = |kind: &str, at: usize, item: &Value| {
        named(
            &json!({ "type": format!("response.output_item.{kind}"), "output_index": at, "item": item }),
        )
    };
    let text = json!([{ "type": "output_text", "text": words }]);
    let message = |content: &Value| json!({ "id": "msg_1", "type": "message", "role": "assistant", "content": content });
    out.push(item("added", 0, &message(&json!([]))));
    out.push(named(
        &json!({ "type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": words }),
    ));
    out.push(item("done", 0, &message(&text)));
    for (at, (name, pieces)) in calls.iter().enumerate() {
        let call = |arguments: &str| {
            json!({ "id": format!("fc_{at}"), "type": "function_call",
                "call_id": format!("call_{at}"), "name": name, "arguments": arguments })
        };
        out.push(item("added", at + 1, &call("")));
        for piece in pieces {
            out.push(named(
                &json!({ "type": "response.function_call_arguments.delta", "output_index": at + 1, "delta": piece }),
            ));
        }
        out.push(item("done", at + 1, &call(&pieces.concat())));
    }
    out.push(named(
        &json!({ "type": "response.completed", "response": { "id": "resp_1", "status": "completed",
            "output": [], "usage": { "input_tokens": 10, "output_tokens": 5 } } }),
    ));
    out
}

fn gemini_events(text: &str, calls: &[ToolCall<'_>]) -> Vec<String> {
    let mut out = Vec::new();
    let parts = |parts: Value, finish: Value| {
        let candidate = json!({ "content": { "role": "model", "parts": parts }, "index": 0, "finishReason": finish });
        data(
            &json!({ "candidates": [candidate], "usageMetadata": { "promptTokenCount": 10,
                "candidatesTokenCount": 5, "totalTokenCount": 15 }, "modelVersion": "m" }),
        )
    };
    out.push(parts(json!([{ "text": text }]), Value::Null));
    for (name, pieces) in calls {
        let arguments: Value = serde_json::from_str(&pieces.concat()).unwrap();
        out.push(parts(
            json!([{ "functionCall": { "name": name, "args": arguments } }]),
            Value::Null,
        ));
    }
    out.push(parts(json!([{ "text": "" }]), json!("STOP")));
    out
}

impl Wire {
    fn cases(self, step: usize) -> Vec<(Fault, usize)> {
        let events = self.answer(0);
        let length: usize = events.iter().map(String::len).sum();
        let mut cases = Vec::new();
        for (index, fault) in FAULTS.into_iter().enumerate() {
            if fault == Fault::Twice {
                let starts = events.iter().scan(0, |at, event| {
                    Some(std::mem::replace(at, *at + event.len()))
                });
                let every = if step > 100 { 3 } else { 1 };
                cases.extend(starts.step_by(every).map(|at| (fault, at)));
            } else {
                // Each fault at other bytes than the one before it.
                let first = if step == 1 {
                    0
                } else {
                    index * step / FAULTS.len()
                };
                cases.extend((first..length).step_by(step).map(|at| (fault, at)));
            }
        }
        cases
    }

    /// Returns the name of its folder on the server, and the provider's settings.
    pub fn settings(self, base: &str) -> (&'static str, String) {
        match self {
            Self::Chat => ("@ai-sdk/openai-compatible", format!("{base}/v1")),
            Self::Messages => ("@ai-sdk/anthropic", format!("{base}/v1")),
            Self::Responses => ("@ai-sdk/openai", format!("{base}/v1")),
            Self::Gemini => ("@ai-sdk/google", format!("{base}/v1beta")),
        }
    }

    /// Words and two calls, of the case with this number, event by event.
    fn answer(self, number: usize) -> Vec<String> {
        // Pieces none of which can be missing, or be there twice, without the whole being no
        // object, or another one than the tool takes.
        let calls = [
            (
                "write",
                [
                    format!("{{\"filePath\":\"f{number:05}."),
                    "txt\",\"content\":\"who".into(),
                    "le line\\n\"}".into(),
                ],
            ),
            (
                "bash",
                [
                    "{\"comma".into(),
                    "nd\":\"echo ra".to_owned(),
                    format!("n >> l{number:05}.log\"}}"),
                ],
            ),
        ];
        self.events("I look at it.", &calls)
    }

    pub fn events(self, text: &str, calls: &[ToolCall<'_>]) -> Vec<String> {
        match self {
            Self::Chat => chat_events(text, calls),
            Self::Messages => messages_events(text, calls),
            Self::Responses => responses_events(text, calls),
            Self::Gemini => gemini_events(text, calls),
        }
    }

    /// Returns whether a request contains results of calls.
    fn has_results(self, body: &str) -> bool {
        body.contains(match self {
            Self::Chat => "\"role\":\"tool\"",
            Self::Messages => "\"tool_result\"",
            Self::Responses => "\"function_call_output\"",
            Self::Gemini => "\"functionResponse\"",
        })
    }
}

/// A provider that fails once in each case.
struct Server {
    base: String,
    listener: Arc<TcpListener>,
    stopped: Arc<AtomicBool>,
}

impl Server {
    fn start(wire: Wire, cases: Vec<(Fault, usize)>) -> Self {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let base = format!("http://{}", listener.local_addr().unwrap());
        let stopped = Arc::new(AtomicBool::new(false));
        let accepting = listener.clone();
        let over = stopped.clone();
        let cases = Arc::new(cases);
        let asked = Arc::new(Mutex::new(HashMap::new()));
        thread::spawn(move || {
            for stream in accepting.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let cases = cases.clone();
                let asked = asked.clone();
                // A client that hangs up is none of our business.
                thread::spawn(move || answer(wire, &stream, &cases, &asked).ok());
            }
        });
        Self {
            base,
            listener,
            stopped,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        TcpStream::connect(self.listener.local_addr().unwrap()).ok();
    }
}

fn answer(
    wire: Wire,
    mut stream: &TcpStream,
    cases: &[(Fault, usize)],
    asked: &Mutex<HashMap<usize, usize>>,
) -> std::io::Result<()> {
    let Some(request) = read_request(stream) else {
        return Ok(());
    };
    stream.set_nodelay(true)?;
    if !request.head[0].starts_with("POST ") {
        return write!(
            stream,
            "HTTP/1.1 404 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
    }
    let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
    let tools = body["tools"]
        .as_array()
        .is_some_and(|tools| !tools.is_empty());
    let named = |word: &str| {
        let at = request.body.rfind(word)? + word.len();
        request.body.get(at..at + 5)?.parse::<usize>().ok()
    };
    let is_first_step = tools && named("NEXT-").is_none() && !wire.has_results(&request.body);
    let case = if is_first_step { named("CASE-") } else { None };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    )?;
    let mut write_chunk = |bytes: &[u8]| -> std::io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        write!(stream, "{:x}\r\n", bytes.len())?;
        stream.write_all(bytes)?;
        stream.write_all(b"\r\n")
    };
    let Some(number) = case else {
        write_chunk(wire.events("Done.", &[]).concat().as_bytes())?;
        return stream.write_all(b"0\r\n\r\n");
    };
    let events = wire.answer(number);
    let mut bytes = events.concat().into_bytes();
    let first = {
        let mut asked = asked.lock().unwrap();
        let times = asked.entry(number).or_insert(0);
        *times += 1;
        *times == 1
    };
    match cases[number] {
        _ if !first => {}
        (Fault::Cut, at) => {
            write_chunk(&bytes[..at])?;
            return stream.shutdown(Shutdown::Both);
        }
        (Fault::Stall, at) => {
            write_chunk(&bytes[..at])?;
            stream.set_read_timeout(Some(PROMPT_TIMEOUT))?;
            return stream.read(&mut [0]).map(drop);
        }
        (Fault::End, at) => bytes.truncate(at),
        (Fault::Byte, at) => bytes[at] = 0xff,
        (Fault::Twice, at) => {
            let mut start = 0;
            let event = events.iter().find(|event| {
                start += event.len();
                start > at
            });
            let event = event
                .map(|event| event.clone().into_bytes())
                .unwrap_or_default();
            bytes.splice(start..start, event);
        }
    }
    write_chunk(&bytes)?;
    stream.write_all(b"0\r\n\r\n")
}

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Open(usize),
    First(usize),
    Next(usize),
    Close,
}

struct Run {
    wire: Wire,
    cases: Vec<(Fault, usize)>,
    project: Project,
    editor: Editor,
    invariants: Invariants,
    _server: Server,
    next: u64,
    waiting: BTreeMap<u64, (Asked, Instant)>,
    sessions: HashMap<usize, String>,
    wrong: Vec<String>,
}

impl Run {
    fn new(wire: Wire, cases: Vec<(Fault, usize)>) -> Self {
        let server = Server::start(wire, cases.clone());
        let project = Project::new();
        let (npm, base) = wire.settings(&server.base);
        let options = json!({ "baseURL": base, "apiKey": "a-key", "headerTimeout": 3_000, "chunkTimeout": 1_000 });
        let models =
            json!({ "m": { "name": "M", "limit": { "context": 100_000, "output": 8_000 } } });
        project.settings(
            &json!({ "model": "own/m", "permission": { "bash": "allow", "edit": "allow" },
            "provider": { "own": { "npm": npm, "options": options, "models": models } } }),
        );
        let editor = Editor::start(&project);
        let invariants = Invariants::default();
        let (waiting, sessions) = Default::default();
        Self {
            wire,
            cases,
            project,
            editor,
            invariants,
            _server: server,
            next: 0,
            waiting,
            sessions,
            wrong: Vec::new(),
        }
    }

    fn run(mut self) -> Vec<String> {
        self.send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } }));
        while self.receive().is_some_and(|message| message["id"] != 0) {}
        let mut begun = 0;
        while begun < self.cases.len() || !self.waiting.is_empty() {
            while begun < self.cases.len() && self.waiting.len() < AT_ONCE {
                let cwd = self.project.cwd();
                self.ask(
                    Asked::Open(begun),
                    "session/new",
                    &json!({ "cwd": cwd, "mcpServers": [] }),
                );
                begun += 1;
            }
            let Some(message) = self.receive() else {
                let open: Vec<_> = self
                    .waiting
                    .values()
                    .map(|(asked, since)| (asked, since.elapsed()))
                    .collect();
                self.wrong.push(format!(
                    "{:?}: nothing comes any more; open: {open:?}",
                    self.wire
                ));
                return self.wrong;
            };
            if message.get("method").is_none() {
                self.answered(&message);
            }
        }
        let status = std::fs::read_to_string(crate::long_run::proc(self.editor.pid(), "status"))
            .unwrap_or_default();
        let most = status.lines().find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .trim()
                .strip_suffix(" kB")?
                .parse()
                .ok()
        });
        if most.is_none_or(|most: u64| most > MAX_RESIDENT_KIB) {
            self.wrong
                .push(format!("{:?}: {most:?} kB were resident", self.wire));
        }
        let problems = self.editor.finish().problems(0);
        self.wrong.extend(
            problems
                .into_iter()
                .chain(self.invariants.problems().iter().cloned()),
        );
        self.wrong
    }

    fn ask(&mut self, asked: Asked, method: &str, params: &Value) {
        self.next += 1;
        self.waiting.insert(self.next, (asked, Instant::now()));
        self.send(
            &json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }),
        );
    }

    fn send(&mut self, message: &Value) {
        let line = message.to_string();
        self.invariants.observe_client(&line);
        self.editor.send(&line);
    }

    fn receive(&mut self) -> Option<Value> {
        let line = self.editor.receive(PROMPT_TIMEOUT.max(RESPONSE_TIMEOUT))?;
        self.invariants.observe_agent(&line)
    }

    fn answered(&mut self, message: &Value) {
        let known = message["id"]
            .as_u64()
            .and_then(|id| self.waiting.remove(&id));
        let Some((asked, since)) = known else {
            return self
                .wrong
                .push(format!("{:?}: an answer to nothing: {message}", self.wire));
        };
        let took = since.elapsed();
        match asked {
            Asked::Open(number) => {
                let Some(session) = message["result"]["sessionId"].as_str().map(str::to_owned)
                else {
                    return self.complain(number, &format!("no session: {message}"));
                };
                self.sessions.insert(number, session);
                self.prompt(
                    Asked::First(number),
                    number,
                    &format!("CASE-{number:05} begins."),
                );
            }
            Asked::First(number) => {
                self.look(number, message, took);
                self.prompt(
                    Asked::Next(number),
                    number,
                    &format!("NEXT-{number:05}, please."),
                );
            }
            Asked::Next(number) => {
                self.look(number, message, took);
                let session = self.sessions.remove(&number);
                self.ask(
                    Asked::Close,
                    "session/close",
                    &json!({ "sessionId": session }),
                );
            }
            Asked::Close => {}
        }
    }

    fn prompt(&mut self, asked: Asked, number: usize, text: &str) {
        let params = json!({ "sessionId": self.sessions[&number], "prompt": [{ "type": "text", "text": text }] });
        self.ask(asked, "session/prompt", &params);
    }

    /// Checks the conditions that hold after each of the two prompts.
    fn look(&mut self, number: usize, message: &Value, took: Duration) {
        if message["result"]["stopReason"] != "end_turn" {
            self.complain(number, &format!("it ended with {message}"));
        }
        if took > PROMPT_TIMEOUT {
            self.complain(number, &format!("it took {took:?}"));
        }
        let read =
            |name: String| std::fs::read_to_string(self.project.path(&name)).unwrap_or_default();
        let file = read(format!("f{number:05}.txt"));
        let log = read(format!("l{number:05}.log"));
        // A repeated part may be taken for two calls, or for one that is invalid.
        let right = match self.cases[number].0 {
            Fault::Twice => {
                matches!(&*file, "" | "whole line\n")
                    && matches!(&*log, "" | "ran\n" | "ran\nran\n")
            }
            _ => file == "whole line\n" && log == "ran\n",
        };
        if !right {
            self.complain(
                number,
                &format!("the file holds {file:?}, the other one {log:?}"),
            );
        }
    }

    fn complain(&mut self, number: usize, what: &str) {
        let (fault, at) = self.cases[number];
        let bytes = self.wire.answer(number).concat();
        let mut text = String::new();
        write!(
            text,
            "{:?}, {fault:?} at byte {at} ({:?}): {what}",
            self.wire,
            bytes.get(at..(at + 20).min(bytes.len()))
        )
        .ok();
        self.wrong.push(text);
    }
}
