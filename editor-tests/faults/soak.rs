//! A random client and a random model. The client opens, forks, loads, closes and deletes sessions,
//! sends prompts (also during turns), cancels, sets modes and options, sends invalid lines, and
//! leaves questions unanswered. The model fails, hangs, breaks off, and calls any tool. The server
//! is started three times and ended in three ways: its input is closed, SIGTERM, SIGKILL. Checks
//! that every request gets one answer, that every line is valid, that memory, open files and
//! threads do not grow, and that no process or file is left behind.
//!
//! `ADJUTANT_SOAK` is the duration of all three processes in seconds; `ADJUTANT_SOAK_SEED` is the
//! seed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::editor::{Editor, RESPONSE_TIMEOUT};
use crate::invariants::Invariants;
use crate::long_run::proc;
use crate::loopback::read_request;
use crate::parallel::repetitions;
use crate::project::Project;

/// The maximum numbers of open and of known sessions.
const MAX_OPEN_SESSIONS: usize = 10;
const MAX_KNOWN_SESSIONS: usize = 16;

/// The maximum number of unanswered requests.
const MAX_PENDING_REQUESTS: usize = 40;

/// The maximum growth of a process after its first third: resident memory in kB, open files, and
/// threads.
const MAX_GROWTH_KB: u64 = 32 << 10;
const MAX_NEW_FILES: usize = 8;
/// The time allowed for the runtime's pool to end its idle threads, which it does after 10 seconds.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(15);

pub fn random_client_and_random_model_get_valid_answers() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let seconds = number("ADJUTANT_SOAK").unwrap_or(repetitions(60, 21) as u64);
    let seed = number("ADJUTANT_SOAK_SEED").unwrap_or(7);
    let mut soak = Soak::new(seed);
    for end in [End::Input, End::Term, End::Kill] {
        soak.live(Duration::from_secs(seconds) / 3, end);
    }
    let Soak { wrong, asked, .. } = soak;
    eprintln!("{asked} requests in {seconds} s, {} wrong", wrong.len());
    assert!(
        wrong.is_empty(),
        "seed {seed}, {asked} requests:\n{}",
        wrong.join("\n")
    );
}

/// The way in which a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Input,
    Term,
    Kill,
}

/// The system resources of a process.
#[derive(Debug, Clone, Copy)]
struct ResourceSample {
    resident: u64,
    files: usize,
    threads: usize,
}

struct Soak {
    random: Rng,
    project: Project,
    _model: UnpredictableModel,
    editor: Option<Editor>,
    invariants: Invariants,
    next: u64,
    asked: usize,
    /// Requests without an answer: method and session.
    waiting: BTreeMap<u64, (String, String)>,
    open: BTreeSet<String>,
    known: BTreeSet<String>,
    /// Every session that may be open, including those with a close or delete request, which may
    /// have been refused.
    opened: BTreeSet<String>,
    /// Questions that were not answered.
    questions: Vec<(Value, Value)>,
    wrong: Vec<String>,
}

impl Soak {
    fn new(seed: u64) -> Self {
        let model = UnpredictableModel::start(seed);
        let project = Project::new();
        let options = json!({ "baseURL": format!("{}/v1", model.base), "apiKey": "a-key", "headerTimeout": 2_000,
            "chunkTimeout": 1_000 });
        let limit = json!({ "limit": { "context": 60_000, "output": 4_000 } });
        let rules = json!({ "bash": { "*": "allow", "printf *": "ask" }, "edit": { "*": "allow", "*.asked": "ask" },
            "question": "allow", "doom_loop": "ask" });
        project.settings(&json!({ "model": "bench/one", "permission": rules,
            "command": { "look": { "template": "Look: !`echo looked` @a.txt" } },
            "provider": { "bench": { "npm": "@ai-sdk/openai-compatible", "options": options,
                "models": { "one": limit, "two": limit } } } }));
        project.write("a.txt", &"a line of the file\n".repeat(300));
        let (invariants, waiting, open, known, opened, questions, wrong) = Default::default();
        let random = Rng::with_seed(seed);
        Self {
            random,
            project,
            _model: model,
            editor: None,
            invariants,
            next: 0,
            asked: 0,
            waiting,
            open,
            known,
            opened,
            questions,
            wrong,
        }
    }

    /// One process, from its start to its end.
    fn live(&mut self, time: Duration, end: End) {
        self.editor = Some(Editor::start(&self.project));
        self.invariants = Invariants::default();
        let can = json!({ "elicitation": { "form": {} } });
        self.ask(
            "initialize",
            "",
            json!({ "protocolVersion": 1, "clientCapabilities": can }),
        );
        self.quiet(end);
        for session in self.known.clone() {
            self.load(&session);
        }
        self.act(time / 3);
        self.quiet(end);
        let before = self.look();
        self.act(time * 2 / 3);
        self.quiet(end);
        let mut after = self.look();
        let start = Instant::now();
        while after.threads > before.threads + MAX_NEW_FILES && start.elapsed() < POOL_IDLE_TIMEOUT
        {
            self.receive(Duration::from_millis(200));
            after = self.look();
        }
        if after.resident > before.resident + MAX_GROWTH_KB
            || after.files > before.files + MAX_NEW_FILES
            || after.threads > before.threads + MAX_NEW_FILES
        {
            self.wrong
                .push(format!("{end:?}: it grew from {before:?} to {after:?}"));
        }
        eprintln!("{end:?}: {before:?}, {after:?}, {} requests", self.asked);
        // Ends in the middle of something, unless its input is closed.
        if end != End::Input {
            let moment = self.random.u64(100..900);
            self.act(Duration::from_millis(moment));
        }
        let Some(mut editor) = self.editor.take() else {
            return;
        };
        match end {
            End::Input => {}
            End::Term => editor.signal(Signal::TERM),
            End::Kill => editor.signal(Signal::KILL),
        }
        let exit = editor.finish();
        match end {
            End::Input => self.wrong.extend(exit.problems(0)),
            _ if exit.status.is_none() => self.wrong.push(format!("{end:?}: it did not end")),
            _ => {}
        }
        for line in &exit.lines {
            // If it was killed, the last line may be incomplete.
            if end != End::Kill {
                self.invariants.observe_agent(line);
            }
        }
        self.wrong.extend(
            self.invariants
                .problems()
                .iter()
                .map(|problem| problem.chars().take(600).collect::<String>()),
        );
        if end == End::Kill {
            self.project.end_leftovers();
        }
        let left = self.project.leftovers();
        if !left.is_empty() {
            self.wrong.push(format!("{end:?}: it left behind {left:?}"));
        }
        self.waiting.clear();
        self.questions.clear();
        self.open.clear();
        self.opened.clear();
    }

    fn look(&self) -> ResourceSample {
        let pid = self.editor.as_ref().map_or(0, Editor::pid);
        let entries = |what: &str| std::fs::read_dir(proc(pid, what)).map_or(0, Iterator::count);
        let status = std::fs::read_to_string(proc(pid, "status")).unwrap_or_default();
        let resident = status.lines().find_map(|line| {
            line.strip_prefix("VmRSS:")?
                .trim()
                .strip_suffix(" kB")?
                .parse()
                .ok()
        });
        ResourceSample {
            resident: resident.unwrap_or_default(),
            files: entries("fd"),
            threads: entries("task"),
        }
    }

    /// Does things for a while.
    fn act(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            if self.waiting.len() < MAX_PENDING_REQUESTS {
                self.act_once();
            }
            let timeout = Duration::from_millis(self.random.u64(0..40));
            while self.receive(timeout).is_some() && self.random.u32(..30) > 0 {}
        }
    }

    /// Cancels all turns until every request is answered, then closes all sessions.
    fn quiet(&mut self, end: End) {
        let start = Instant::now();
        let mut cancelled = Instant::now();
        for session in self.opened.clone() {
            self.cancel(&session);
        }
        while !self.waiting.is_empty() {
            if self.receive(Duration::from_millis(200)).is_none()
                && start.elapsed() > RESPONSE_TIMEOUT * 3
            {
                let waiting = std::mem::take(&mut self.waiting);
                self.wrong.push(format!(
                    "{end:?}: no answer for {:?}: {waiting:?}",
                    start.elapsed()
                ));
                return;
            }
            // For sessions that were opened since the last cancel, and turns that started after it.
            if cancelled.elapsed() > Duration::from_secs(1) {
                cancelled = Instant::now();
                for session in self.opened.clone() {
                    self.cancel(&session);
                }
            }
        }
        self.open.clear();
        for session in std::mem::take(&mut self.opened) {
            self.ask("session/close", &session, json!({ "sessionId": session }));
        }
        while !self.waiting.is_empty() {
            if self.receive(RESPONSE_TIMEOUT).is_none() {
                let waiting = std::mem::take(&mut self.waiting);
                self.wrong.push(format!("{end:?}: not closed: {waiting:?}"));
            }
        }
        self.questions.clear();
    }

    fn cancel(&mut self, session: &str) {
        self.send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
    }

    fn load(&mut self, session: &str) {
        let cwd = self.project.cwd();
        let params = json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] });
        self.opened.insert(session.to_owned());
        self.ask("session/load", session, params);
    }

    fn act_once(&mut self) {
        let open: Vec<String> = self.open.iter().cloned().collect();
        let known: Vec<String> = self.known.iter().cloned().collect();
        let one = self.random.choice(&open).cloned();
        let any = self.random.choice(&known).cloned();
        let cwd = self.project.cwd();
        match (self.random.usize(..34), one, any) {
            (0..=1, ..) | (_, None, None)
                if self.known.len() < MAX_KNOWN_SESSIONS && self.open.len() < MAX_OPEN_SESSIONS =>
            {
                self.ask("session/new", "", json!({ "cwd": cwd, "mcpServers": [] }));
            }
            (2, Some(session), _) if self.known.len() < MAX_KNOWN_SESSIONS => {
                self.ask(
                    "session/fork",
                    "",
                    json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }),
                );
            }
            (3, Some(session), _) => {
                self.open.remove(&session);
                self.ask("session/close", &session, json!({ "sessionId": session }));
            }
            (4, _, Some(session)) if self.known.len() > MAX_KNOWN_SESSIONS / 2 => {
                self.open.remove(&session);
                self.known.remove(&session);
                self.ask("session/delete", &session, json!({ "sessionId": session }));
            }
            (5..=6, _, Some(session)) if self.open.len() < MAX_OPEN_SESSIONS => self.load(&session),
            (7..=9, Some(session), _) => self.cancel(&session),
            (10, Some(session), _) => {
                let mode = ["plan", "build", "nothing"][self.random.usize(..3)];
                self.ask(
                    "session/set_mode",
                    &session,
                    json!({ "sessionId": session, "modeId": mode }),
                );
            }
            (11, Some(session), _) => {
                let (option, value) = [
                    ("model", "bench/two"),
                    ("model", "bench/one"),
                    ("steer", "on"),
                    ("steer", "off"),
                    ("effort", "none"),
                ][self.random.usize(..5)];
                let params = json!({ "sessionId": session, "configId": option, "value": value });
                self.ask("session/set_config_option", &session, params);
            }
            (12, Some(session), _) => {
                let title = format!("Title {}", self.random.u32(..));
                self.ask(
                    "session/set_title",
                    &session,
                    json!({ "sessionId": session, "title": title }),
                );
            }
            (13, ..) => self.ask("session/list", "", json!({})),
            (14, ..) => self.noise(),
            (15, ..) if !self.waiting.is_empty() => {
                let ids: Vec<u64> = self.waiting.keys().copied().collect();
                let id = ids[self.random.usize(..ids.len())];
                self.send(&json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": id } }));
            }
            (16, ..) if !self.questions.is_empty() => {
                let at = self.random.usize(..self.questions.len());
                let (id, result) = self.questions.swap_remove(at);
                self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
            }
            (_, Some(session), _) => {
                let text = [
                    "Go on.",
                    "Look at it.",
                    "/look",
                    "/compact",
                    "/undo",
                    "Write it.",
                    "",
                    "@general Do it.",
                ];
                let text = text[self.random.usize(..text.len())].to_owned()
                    + &" x".repeat(self.random.usize(..3));
                let prompt = json!([{ "type": "text", "text": text }]);
                self.ask(
                    "session/prompt",
                    &session,
                    json!({ "sessionId": session, "prompt": prompt }),
                );
            }
            _ => {}
        }
    }

    /// Sends a line that no client should send.
    fn noise(&mut self) {
        let lines = [
            "{\"jsonrpc\":\"2.0\",\"method\":\"session/prompt\"".to_owned(),
            "not JSON at all \u{1}".into(),
            "[]".into(),
            "null".into(),
            json!({ "jsonrpc": "2.0", "method": "session/nothing", "params": {} }).to_string(),
            json!({ "jsonrpc": "2.0", "id": "of nobody", "result": {} }).to_string(),
            json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": 5 } })
                .to_string(),
            "{".repeat(self.random.usize(1..2_000)),
        ];
        let line = &lines[self.random.usize(..lines.len())];
        if let Some(editor) = &mut self.editor {
            editor.send(line);
        }
        if self.random.bool() {
            self.ask(
                "session/prompt",
                "",
                json!({ "sessionId": "ses_none", "prompt": "words" }),
            );
        }
    }

    fn ask(&mut self, method: &str, session: &str, params: Value) {
        self.next += 1;
        self.asked += 1;
        self.waiting
            .insert(self.next, (method.to_owned(), session.to_owned()));
        self.send(
            &json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }),
        );
    }

    fn send(&mut self, message: &Value) {
        let line = message.to_string();
        self.invariants.observe_client(&line);
        if let Some(editor) = &mut self.editor {
            editor.send(&line);
        }
    }

    fn receive(&mut self, timeout: Duration) -> Option<()> {
        let line = self.editor.as_ref()?.receive(timeout)?;
        let Some(message) = self.invariants.observe_agent(&line) else {
            return Some(());
        };
        let Some(method) = message["method"].as_str() else {
            self.answered(&message);
            return Some(());
        };
        if message.get("id").is_none() {
            return Some(());
        }
        let option = ["once", "once", "once", "reject"][self.random.usize(..4)];
        let result = match method {
            "session/request_permission" => {
                json!({ "outcome": { "outcome": "selected", "optionId": option } })
            }
            _ => json!({ "action": "decline" }),
        };
        match self.random.usize(..10) {
            0..=5 => self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })),
            6 => {
                let error = json!({ "code": -32_603, "message": "the editor cannot" });
                self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }));
            }
            // Later, or never.
            _ => self.questions.push((message["id"].clone(), result)),
        }
        Some(())
    }

    fn answered(&mut self, message: &Value) {
        let Some(id) = message["id"].as_u64() else {
            return;
        };
        let Some((method, session)) = self.waiting.remove(&id) else {
            return self.wrong.push(format!("an answer to nothing: {message}"));
        };
        match (method.as_str(), message.get("result")) {
            ("session/new" | "session/fork", Some(result)) => {
                if let Some(session) = result["sessionId"].as_str() {
                    self.opened.insert(session.to_owned());
                    self.open.insert(session.to_owned());
                    self.known.insert(session.to_owned());
                }
            }
            ("session/load", Some(_)) => {
                self.opened.insert(session.clone());
                if self.known.contains(&session) {
                    self.open.insert(session);
                }
            }
            _ => {}
        }
    }
}

/// A model that does anything.
struct UnpredictableModel {
    base: String,
    listener: Arc<TcpListener>,
    stopped: Arc<AtomicBool>,
}

impl UnpredictableModel {
    fn start(seed: u64) -> Self {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let base = format!("http://{}", listener.local_addr().unwrap());
        let stopped = Arc::new(AtomicBool::new(false));
        let accepting = listener.clone();
        let over = stopped.clone();
        let number = AtomicUsize::new(0);
        thread::spawn(move || {
            for stream in accepting.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let number = number.fetch_add(1, Ordering::Relaxed) as u64;
                let random = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                // A client that hangs up is none of our business.
                thread::spawn(move || wild(&stream, random).ok());
            }
        });
        Self {
            base,
            listener,
            stopped,
        }
    }
}

impl Drop for UnpredictableModel {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        TcpStream::connect(self.listener.local_addr().unwrap()).ok();
    }
}

fn wild(mut stream: &TcpStream, mut random: Rng) -> std::io::Result<()> {
    let Some(request) = read_request(stream) else {
        return Ok(());
    };
    let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
    let messages = body["messages"].as_array().map_or(0, Vec::len);
    let tools = body["tools"]
        .as_array()
        .is_some_and(|tools| !tools.is_empty());
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        let chunk = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice] });
        format!("data: {chunk}\n\n")
    };
    let words = |text: &str| chunk(json!({ "content": text }), Value::Null);
    let refuse = |mut stream: &TcpStream, status: u16, more: &str, text: &str| {
        let body = json!({ "error": { "message": text } }).to_string();
        write!(
            stream,
            "HTTP/1.1 {status} No\r\nconnection: close\r\n{more}content-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    // Turns come to an end.
    let kind = if tools && messages % 40 < 30 {
        random.usize(..40)
    } else {
        0
    };
    match kind {
        30 => return refuse(stream, 500, "", "it broke"),
        31 => return refuse(stream, 429, "retry-after: 1\r\n", "slow down"),
        32 => {
            return refuse(
                stream,
                400,
                "",
                "This model's maximum context length is 60000 tokens.",
            );
        }
        33 => {
            stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
            return stream.read(&mut [0]).map(drop);
        }
        _ => {}
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    )?;
    match kind {
        0..=9 => {
            stream.write_all((words("Fine.") + &chunk(json!({}), json!("stop"))).as_bytes())?
        }
        10..=12 => {
            for _ in 0..random.usize(1..40) {
                stream.write_all(words(&"many words ".repeat(random.usize(1..300))).as_bytes())?;
            }
            stream.write_all(chunk(json!({}), json!("stop")).as_bytes())?;
        }
        34 => stream.write_all(words("and then").as_bytes())?,
        35 => {
            stream.write_all(words("and then").as_bytes())?;
            return stream.shutdown(Shutdown::Both);
        }
        36 => {
            stream.write_all(words("and then").as_bytes())?;
            stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
            return stream.read(&mut [0]).map(drop);
        }
        37 => stream.write_all(b"data: {\"choices\":[{\"delta\":\n\ndata: nonsense\n\n")?,
        _ => {
            for at in 0..random.usize(1..5) {
                let (name, input) = call(&mut random);
                let function = json!({ "name": name, "arguments": input });
                let call = json!({ "index": at, "id": format!("call_{at}"), "type": "function", "function": function });
                stream.write_all(chunk(json!({ "tool_calls": [call] }), Value::Null).as_bytes())?;
            }
            stream.write_all(chunk(json!({}), json!("tool_calls")).as_bytes())?;
        }
    }
    stream.write_all(b"data: [DONE]\n\n")
}

/// Returns a random tool call.
fn call(random: &mut Rng) -> (&'static str, String) {
    let name = format!("w{}.txt", random.usize(..6));
    let path: PathBuf = name.clone().into();
    let options =
        json!([{ "label": "This", "description": "" }, { "label": "That", "description": "" }]);
    let all = [
        ("bash", json!({ "command": "echo hello" })),
        ("bash", json!({ "command": "printf asked" })),
        ("bash", json!({ "command": "sleep 0.3; seq 2000" })),
        ("bash", json!({ "command": "sleep 30", "timeout": 1000 })),
        ("bash", json!({ "command": "exit 3" })),
        ("read", json!({ "filePath": "a.txt" })),
        ("read", json!({ "filePath": "missing.txt" })),
        (
            "write",
            json!({ "filePath": path, "content": "some words\n".repeat(random.usize(1..50)) }),
        ),
        (
            "write",
            json!({ "filePath": path.with_extension("asked"), "content": "words\n" }),
        ),
        (
            "edit",
            json!({ "filePath": path, "oldString": "some", "newString": "other" }),
        ),
        ("list", json!({})),
        ("glob", json!({ "pattern": "**/*.txt" })),
        ("grep", json!({ "pattern": "line" })),
        (
            "todowrite",
            json!({ "todos": [{ "content": "one", "status": "pending" }] }),
        ),
        (
            "question",
            json!({ "questions": [{ "question": "Which?", "header": "Which", "options": options }] }),
        ),
        (
            "task",
            json!({ "description": "part", "prompt": "Do a part.", "subagent_type": "general" }),
        ),
        ("nothing", json!({ "a": 1 })),
        (
            "webfetch",
            json!({ "url": "http://127.0.0.1:9/", "format": "text" }),
        ),
    ];
    let (name, input) = &all[random.usize(..all.len())];
    match random.usize(..20) {
        0 => (name, "{\"half".into()),
        1 => (name, "[]".into()),
        _ => (name, input.to_string()),
    }
}
