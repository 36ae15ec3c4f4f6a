//! `adjutant serve` and `adjutant connect`: editors that are somewhere else, whose connections break.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::editor::{Editor, PATIENCE};
use crate::model::{self, Model};
use crate::project::Project;
use crate::talk::Talk;

/// A name, and what to do.
pub const ALL: [(&str, fn()); 16] = [
    ("a conversation over a bridge", over_a_bridge),
    ("many connections", many_connections),
    ("pages of the web are not let in", not_for_pages),
    ("tokens", tokens),
    ("strangers are not served", strangers),
    ("roots", roots),
    ("limits", limits),
    ("a message that is too long", too_long),
    ("who comes back goes on", goes_on),
    ("a question is asked again", asked_again),
    ("a bridge connects again", connects_again),
    ("over plain HTTP", plain_http),
    ("over HTTP/2", over_http_2),
    ("asked to stop", asked_to_stop),
    ("over TLS", over_tls),
    ("taken over", taken_over),
];

/// A server that runs.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn command(project: &Project, arguments: &[&str]) -> Command {
        let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
        command.arg("serve").args(arguments).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn start(project: &Project, arguments: &[&str]) -> Self {
        let mut command = Self::command(project, &[&["--listen", "127.0.0.1:0"], arguments].concat());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = lines.next().expect("the server says where it serves").unwrap();
        let address = first.split("://").nth(1).and_then(|rest| rest.strip_suffix("/acp"));
        let address = address.unwrap_or_else(|| panic!("this names no address: {first}")).to_owned();
        thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// An editor that starts the bridge.
    fn bridge(&self, project: &Project) -> Editor {
        bridge(project, &self.address)
    }

    fn http(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let host = if head.contains("\r\nHost:") { "" } else { "\r\nHost: localhost" };
        write!(stream, "{head}{host}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok();
        answer
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn number(&self, name: &str) -> f64 {
        let page = self.http("GET /metrics HTTP/1.1", "");
        let line = page.lines().find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("{name} is not counted in\n{page}")).split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// Waits until something is counted so often.
    fn until(&self, name: &str, number: f64) {
        let start = Instant::now();
        while self.number(name) != number {
            assert!(start.elapsed() < PATIENCE, "{name} does not become {number}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn bridge(project: &Project, address: &str) -> Editor {
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command.args(["connect", &format!("ws://{address}")]).current_dir("/");
    Editor::run(command)
}

fn project() -> (Project, Model) {
    model_that("")
}

fn model_that(script: &str) -> (Project, Model) {
    let project = Project::new();
    let model = Model::start(model::script(script).unwrap());
    project.provider(&model.base(), &json!({}));
    (project, model)
}

/// A socket of our own, that does what no client does.
struct Socket {
    stream: TcpStream,
    /// What came with the answer to the handshake.
    head: String,
}

impl Socket {
    fn try_open(address: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
        let key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
        write!(
            stream,
            "GET /acp HTTP/1.1\r\n{host}Upgrade: websocket\r\nConnection: Upgrade\r\n{key}\r\n{headers}\r\n"
        )
        .unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        Self { stream, head: String::from_utf8(head).unwrap() }
    }

    fn open(address: &str) -> Self {
        let socket = Self::try_open(address, "");
        assert!(socket.head.starts_with("HTTP/1.1 101"), "{}", socket.head);
        assert!(socket.head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{}", socket.head);
        socket
    }

    fn frame(&mut self, kind: u8, payload: &[u8]) -> std::io::Result<()> {
        let mut frame = vec![0x80 | kind];
        match payload.len() {
            length @ ..126 => frame.push(0x80 | length as u8),
            length @ ..65_536 => {
                frame.push(0x80 | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            length => {
                frame.push(0x80 | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        // A mask of zeros changes nothing.
        frame.extend([0; 4]);
        frame.extend(payload);
        self.stream.write_all(&frame)
    }

    fn say(&mut self, message: &Value) {
        self.frame(1, message.to_string().as_bytes()).unwrap();
    }

    /// The next frame: its kind, and what is in it.
    fn next(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).unwrap();
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.stream.read_exact(&mut length).unwrap();
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.stream.read_exact(&mut length).unwrap();
                u64::from_be_bytes(length)
            }
            length => u64::from(length),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).unwrap();
        (head[0] & 15, payload)
    }

    fn hear(&mut self) -> Value {
        loop {
            let (kind, payload) = self.next();
            match kind {
                1 => return serde_json::from_slice(&payload).unwrap(),
                9 => self.frame(10, &payload).unwrap(),
                8 => panic!("closed: {}", String::from_utf8_lossy(&payload)),
                _ => {}
            }
        }
    }

    fn request(&mut self, id: u64, method: &str, params: &Value) {
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    /// The answer to a request, and what came before it.
    fn answer(&mut self, id: u64) -> (Value, Vec<Value>) {
        let mut before = Vec::new();
        loop {
            let message = self.hear();
            if message["id"] == id && message.get("method").is_none() {
                return (message, before);
            }
            before.push(message);
        }
    }

    fn hello(&mut self) {
        self.request(0, "initialize", &json!({ "protocolVersion": 1 }));
        let hello = self.answer(0).0;
        assert_eq!(hello["result"]["protocolVersion"], 1, "{hello}");
    }

    fn new_session(&mut self, project: &Project) -> Value {
        self.request(1, "session/new", &json!({ "cwd": project.cwd(), "mcpServers": [] }));
        self.answer(1).0
    }

    fn session(&mut self, project: &Project) -> String {
        let opened = self.new_session(project);
        opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned()
    }

    fn prompt(&mut self, id: u64, session: &str, words: &str) {
        let prompt = json!([{ "type": "text", "text": words }]);
        self.request(id, "session/prompt", &json!({ "sessionId": session, "prompt": prompt }));
    }

    fn load(&mut self, id: u64, session: &str, project: &Project) -> (Value, Vec<Value>) {
        self.request(id, "session/load", &json!({ "sessionId": session, "cwd": project.cwd(), "mcpServers": [] }));
        self.answer(id)
    }
}

/// The words of the agent among messages.
fn words(messages: &[Value]) -> String {
    let chunk = |message: &&Value| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk";
    let text = |message: &Value| message["params"]["update"]["content"]["text"].as_str().unwrap_or_default().to_owned();
    messages.iter().filter(chunk).map(text).collect()
}

fn over_a_bridge() {
    let (project, model) = model_that("text: Hello from afar.");
    let served = Served::start(&project, &[]);
    let project = Arc::new(project);
    let mut talk = Talk::of(project.clone(), served.bridge(&project));
    let session = talk.open();
    talk.prompt(2, &session, "Hi.");
    let (answer, updates) = talk.answer(2);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let said: String = updates.iter().filter_map(|update| update["content"]["text"].as_str()).collect();
    assert!(said.contains("Hello from afar."), "{said}");
    talk.leave();
    assert!(served.number("adjutant_store_flushes_total") >= 1.0);
    assert!(served.number("adjutant_store_entries_total") > served.number("adjutant_store_batches_total"));
    assert_eq!(served.number("adjutant_turns_total{end=\"ended\"}"), 1.0);
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn many_connections() {
    let (project, _model) = project();
    let served = Served::start(&project, &[]);
    let mut sockets: Vec<Socket> = (0..50).map(|_| Socket::open(&served.address)).collect();
    sockets.iter_mut().for_each(Socket::hello);
    let sessions: Vec<String> = sockets.iter_mut().map(|socket| socket.session(&project)).collect();
    assert_eq!(served.number("adjutant_connections"), 50.0);
    assert_eq!(served.number("adjutant_sessions"), 50.0);
    // Each knows its own sessions only, and a ping is answered.
    let (first, last) = (&sessions[0], sockets.last_mut().unwrap());
    last.prompt(2, first, "Hi.");
    assert_eq!(last.answer(2).0["error"]["code"], -32002);
    last.frame(9, b"there?").unwrap();
    loop {
        let (kind, payload) = last.next();
        if kind == 10 {
            assert_eq!(payload, b"there?");
            break;
        }
    }
    drop(sockets);
    served.until("adjutant_connections", 0.0);
    assert_eq!(served.number("adjutant_sessions_waiting"), 50.0);
}

fn not_for_pages() {
    let (project, _model) = project();
    let served = Served::start(&project, &[]);
    for (headers, why) in [
        ("Origin: https://evil.example\r\n", "serve.origins"),
        ("Host: evil.example\r\n", "for this machine only"),
        ("Host: evil.example:80\r\nOrigin: http://evil.example\r\n", "for this machine only"),
    ] {
        let mut socket = Socket::try_open(&served.address, headers);
        assert!(socket.head.starts_with("HTTP/1.1 403"), "{headers}: {}", socket.head);
        let mut body = vec![0; 300];
        let length = socket.stream.read(&mut body).unwrap();
        let body = String::from_utf8_lossy(&body[..length]).into_owned();
        assert!(body.contains(why), "{headers}: {body}");
    }
    let posted = served.http("POST /acp HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json", "{}");
    assert!(posted.starts_with("HTTP/1.1 403"), "{posted}");
    assert!(served.http("GET /healthz HTTP/1.1", "").ends_with("ok\n"));
    assert!(served.http("GET /readyz HTTP/1.1", "").ends_with("ready\n"));
    assert!(served.http("GET / HTTP/1.1", "").starts_with("HTTP/1.1 404"));
    assert!(served.http("PUT /acp HTTP/1.1", "").starts_with("HTTP/1.1 405"));
}

/// Makes a token in a file.
fn new_token(project: &Project, file: &str, name: &str, user: &[&str]) -> String {
    let arguments = [&["--token-file", file, "--new-token", name], user].concat();
    let made = Served::command(project, &arguments).stdout(Stdio::piped()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

fn tokens() {
    let (project, _model) = project();
    let file = project.path("~/tokens").display().to_string();
    let ada = new_token(&project, &file, "laptop", &["--user", "ada"]);
    let bob = new_token(&project, &file, "phone", &["--user", "bob"]);
    let served = Served::start(&project, &["--token-file", &file]);
    assert!(Socket::try_open(&served.address, "").head.starts_with("HTTP/1.1 401"));
    let with = |token: &str| Socket::try_open(&served.address, &format!("Authorization: Bearer {token}\r\n"));
    assert!(with("wrong").head.starts_with("HTTP/1.1 401"));
    let mut hers = with(&ada);
    hers.hello();
    let session = hers.session(&project);
    hers.request(2, "session/set_title", &json!({ "sessionId": session, "title": "Hers" }));
    assert!(hers.answer(2).0.get("result").is_some());
    let listed = |socket: &mut Socket| {
        socket.request(3, "session/list", &json!({}));
        socket.answer(3).0["result"]["sessions"].as_array().unwrap().len()
    };
    assert_eq!(listed(&mut hers), 1);
    // Somebody else neither sees it nor can open it.
    let mut his = with(&bob);
    his.hello();
    assert_eq!(listed(&mut his), 0);
    assert_eq!(his.load(4, &session, &project).0["error"]["code"], -32002);
    // A new token takes the place of an old one without a restart.
    std::fs::write(&file, "").unwrap();
    let new = new_token(&project, &file, "laptop", &["--user", "ada"]);
    assert!(with(&ada).head.starts_with("HTTP/1.1 401"));
    let mut again = with(&new);
    again.hello();
    assert_eq!(listed(&mut again), 1);
    // The bridge reads it from a file.
    let kept = project.path("~/token");
    std::fs::write(&kept, format!("{new}\n")).unwrap();
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command.args(["connect", &format!("ws://{}/acp", served.address), "--token-file"]).arg(&kept);
    let project = Arc::new(project);
    Talk::of(project.clone(), Editor::run(command)).leave();
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command.args(["connect", &format!("ws://{}/acp", served.address)]).stdin(Stdio::null());
    let refused = command.output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("401") && why.contains("a token is needed"), "{why}");
}

fn strangers() {
    let (project, _model) = project();
    let root = project.cwd().display().to_string();
    for (arguments, why) in [
        (vec!["--listen", "0.0.0.0:0"], "certificate"),
        (vec!["--listen", "0.0.0.0:0", "--root", &root], "certificate"),
        (vec!["--listen", "nowhere"], "no address and port"),
        (vec!["--listen", "127.0.0.1:0", "--root", "/no/such"], "no directory"),
        (vec!["--listen", "127.0.0.1:0", "--token-file", "/no/such"], "cannot be read"),
    ] {
        let output = Served::command(&project, &arguments).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
    }
}

fn roots() {
    let (project, _model) = project();
    let outside = tempfile::tempdir().unwrap();
    let link = project.path("link");
    std::os::unix::fs::symlink(outside.path(), &link).unwrap();
    let inside = project.path("below");
    std::fs::create_dir(&inside).unwrap();
    let root = project.cwd().display().to_string();
    let served = Served::start(&project, &["--root", &root]);
    let mut socket = Socket::open(&served.address);
    socket.hello();
    for (directory, allowed) in [
        (project.cwd(), true),
        (inside, true),
        (outside.path().to_owned(), false),
        (link, false),
        (PathBuf::from("/"), false),
    ] {
        socket.request(5, "session/new", &json!({ "cwd": directory, "mcpServers": [] }));
        let answer = socket.answer(5).0;
        assert_eq!(answer.get("result").is_some(), allowed, "{}: {answer}", directory.display());
        if !allowed {
            assert!(answer["error"]["data"].to_string().contains("may not be opened"), "{answer}");
        }
    }
    let extra = json!({ "cwd": project.cwd(), "mcpServers": [], "additionalDirectories": [outside.path()] });
    socket.request(6, "session/new", &extra);
    assert!(socket.answer(6).0["error"].to_string().contains("may not be opened"));
}

fn limits() {
    let (project, _model) = project();
    project.settings(
        &json!({ "serve": { "grace": 0, "limits": { "connections": 3, "user_sessions": 3, "sessions": 2 } } }),
    );
    let served = Served::start(&project, &[]);
    let mut first = Socket::open(&served.address);
    first.hello();
    first.session(&project);
    first.session(&project);
    let full = first.new_session(&project);
    assert!(full["error"]["message"].as_str().unwrap().contains("This connection has 2 sessions open"), "{full}");
    let mut second = Socket::open(&served.address);
    second.hello();
    second.session(&project);
    let full = second.new_session(&project);
    assert!(full["error"]["message"].as_str().unwrap().contains("The user has 3 sessions open"), "{full}");
    let third = Socket::open(&served.address);
    assert!(Socket::try_open(&served.address, "").head.starts_with("HTTP/1.1 503"));
    drop(third);
    // Without a grace period sessions go with their connection.
    drop(second);
    served.until("adjutant_connections", 1.0);
    served.until("adjutant_sessions", 2.0);
}

fn too_long() {
    let (project, _model) = project();
    project.settings(&json!({ "serve": { "limits": { "message_bytes": 100_000 } } }));
    let served = Served::start(&project, &[]);
    let mut socket = Socket::open(&served.address);
    socket.hello();
    // Whoever is cut off in the middle may not be able to say all of it.
    match socket.frame(1, &vec![b' '; 200_000]) {
        Ok(()) => {}
        Err(e) => assert!(matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{e}"),
    }
    let (kind, payload) = socket.next();
    assert_eq!((kind, &payload[..2]), (8, &1009_u16.to_be_bytes()[..]));
    let mut socket = Socket::open(&served.address);
    socket.frame(2, b"{}").unwrap();
    let (kind, payload) = socket.next();
    assert_eq!((kind, &payload[..2]), (8, &1003_u16.to_be_bytes()[..]));
    let post = "POST /acp HTTP/1.1\r\nContent-Type: application/json";
    assert!(served.http(post, &" ".repeat(200_000)).starts_with("HTTP/1.1 413"));
}

fn goes_on() {
    let (project, model) = model_that("text: one …\npause\ntext: and two.");
    let served = Served::start(&project, &[]);
    let mut socket = Socket::open(&served.address);
    socket.hello();
    let session = socket.session(&project);
    socket.prompt(2, &session, "Count.");
    let mut said = Vec::new();
    while !words(&said).contains("one") {
        said.push(socket.hear());
    }
    drop(socket);
    served.until("adjutant_sessions_waiting", 1.0);
    assert_eq!(served.number("adjutant_turns"), 1.0);
    let mut back = Socket::open(&served.address);
    back.hello();
    let (answer, before) = back.load(3, &session, &project);
    assert!(answer.get("result").is_some(), "{answer}");
    assert!(words(&before).contains("one"), "{before:?}");
    let mine = before.iter().filter(|message| message["params"]["update"]["sessionUpdate"] == "user_message_chunk");
    assert_eq!(mine.count(), 1, "{before:?}");
    model.go_on();
    let mut rest = Vec::new();
    while !words(&rest).contains("two.") {
        rest.push(back.hear());
    }
    served.until("adjutant_turns", 0.0);
    assert_eq!(served.number("adjutant_turns_total{end=\"ended\"}"), 1.0);
    // It was shown once.
    let all = words(&[before, rest].concat());
    assert_eq!(all.matches("one").count(), 1, "{all}");
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn asked_again() {
    let (project, model) =
        model_that("call bash {\"command\": \"touch asked\", \"description\": \"Touch\"}\n---\ntext: Done.");
    project.provider(&model.base(), &json!({ "permission": { "bash": "ask" } }));
    let served = Served::start(&project, &[]);
    let mut socket = Socket::open(&served.address);
    socket.hello();
    let session = socket.session(&project);
    socket.prompt(2, &session, "Touch it.");
    let question = |socket: &mut Socket| loop {
        let message = socket.hear();
        if message["method"] == "session/request_permission" {
            return message;
        }
    };
    let first = question(&mut socket);
    drop(socket);
    served.until("adjutant_sessions_waiting", 1.0);
    let mut back = Socket::open(&served.address);
    back.hello();
    back.request(3, "session/load", &json!({ "sessionId": session, "cwd": project.cwd(), "mcpServers": [] }));
    let again = question(&mut back);
    assert_eq!(again["params"]["toolCall"]["toolCallId"], first["params"]["toolCall"]["toolCallId"]);
    back.say(&json!({ "jsonrpc": "2.0", "id": again["id"],
        "result": { "outcome": { "outcome": "selected", "optionId": "once" } } }));
    let mut rest = Vec::new();
    while !words(&rest).contains("Done.") {
        rest.push(back.hear());
    }
    assert!(project.path("asked").exists());
    served.until("adjutant_turns", 0.0);
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Stands between, and cuts connections off.
struct Cut {
    address: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
    refuses: Arc<AtomicBool>,
}

impl Cut {
    fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, server) = (listener.local_addr().unwrap().to_string(), server.to_owned());
        let (open, refuses) = (Arc::<Mutex<Vec<TcpStream>>>::default(), Arc::new(AtomicBool::new(false)));
        let (all, no) = (open.clone(), refuses.clone());
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                if no.load(Ordering::Relaxed) {
                    continue;
                }
                let server = TcpStream::connect(&server).unwrap();
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        std::io::copy(&mut from, &mut to).ok();
                        to.shutdown(std::net::Shutdown::Both).ok();
                    });
                }
                all.lock().unwrap().extend([client, server]);
            }
        });
        Self { address, open, refuses }
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            stream.shutdown(std::net::Shutdown::Both).ok();
        }
    }
}

fn connects_again() {
    let (project, model) = model_that("text: one …\npause\ntext: two …\npause\ntext: three.");
    let served = Served::start(&project, &[]);
    let between = Cut::before(&served.address);
    let project = Arc::new(project);
    let mut talk = Talk::of(project.clone(), bridge(&project, &between.address));
    let session = talk.open();
    talk.prompt(2, &session, "Count.");
    let mut said = String::new();
    let until = |talk: &mut Talk, said: &mut String, word: &str| {
        while !said.contains(word) {
            said.push_str(talk.hear()["params"]["update"]["content"]["text"].as_str().unwrap_or_default());
        }
    };
    until(&mut talk, &mut said, "one");
    between.cut();
    model.go_on();
    until(&mut talk, &mut said, "two");
    // Nobody is there for a while, and the turn ends meanwhile.
    between.refuses.store(true, Ordering::Relaxed);
    between.cut();
    model.go_on();
    served.until("adjutant_turns", 0.0);
    between.refuses.store(false, Ordering::Relaxed);
    until(&mut talk, &mut said, "three.");
    let (answer, _) = talk.answer(2);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    for word in ["one", "two", "three"] {
        assert_eq!(said.matches(word).count(), 1, "{said}");
    }
    // What is said is not said twice either.
    between.cut();
    talk.request(3, "session/list", &json!({}));
    assert!(talk.answer(3).0.get("result").is_some());
    assert_eq!(served.number("adjutant_connections_total"), 1.0);
    assert_eq!(model.problems(), Vec::<String>::new());
    let farewell = talk.editor.finish();
    assert!(farewell.problems(0).iter().all(|problem| problem.contains("connect")), "{:?}", farewell.problems(0));
}

/// A stream of events.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(served: &Served, headers: &str) -> (String, Self) {
        let mut stream = TcpStream::connect(&served.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET /acp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: text/event-stream\r\n{headers}\r\n\r\n")
            .unwrap();
        let mut lines = BufReader::new(stream);
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        (first, Self(lines))
    }

    fn hear(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream is over");
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }

    fn is_over(&mut self) -> bool {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).is_ok()
    }
}

/// By curl, where there is one.
fn over_http_2() {
    let (project, _model) = project();
    let served = Served::start(&project, &[]);
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } });
    let url = format!("http://{}/acp", served.address);
    let mut curl = project.command("curl");
    curl.args(["--silent", "--noproxy", "*", "--http2-prior-knowledge", "--max-time", "20", "--header"]);
    curl.args([
        "Content-Type: application/json",
        "--data",
        &hello.to_string(),
        "--write-out",
        " %{http_version}",
        &url,
    ]);
    match curl.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("\"protocolVersion\":1") && said.ends_with(" 2"), "{output:?}");
        }
        Err(e) => eprintln!("skipped: HTTP/2 is tried with curl: {e}"),
    }
}

fn plain_http() {
    let (project, model) =
        model_that("call bash {\"command\": \"touch asked\", \"description\": \"Touch\"}\n---\ntext: Done.");
    project.provider(&model.base(), &json!({ "permission": { "bash": "ask" } }));
    let served = Served::start(&project, &[]);
    let head = "POST /acp HTTP/1.1\r\nContent-Type: application/json";
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } });
    let answer = served.http(head, &hello.to_string());
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"protocolVersion\":1"), "{answer}");
    let id = answer.lines().find_map(|line| line.strip_prefix("acp-connection-id: ")).expect("an id").to_owned();
    assert!(answer.contains("set-cookie: "), "{answer}");
    let connection = format!("Acp-Connection-Id: {id}");
    let post = |headers: &str, message: &Value| served.http(&format!("{head}\r\n{headers}"), &message.to_string());
    let request = |id: u64, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    // What comes before its stream is open waits there.
    let new = request(1, "session/new", json!({ "cwd": project.cwd(), "mcpServers": [] }));
    assert!(post(&connection, &new).starts_with("HTTP/1.1 202"));
    let (status, mut own) = Events::open(&served, &connection);
    assert!(status.starts_with("HTTP/1.1 200"), "{status}");
    let opened = own.hear();
    let session = opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned();
    let its = format!("{connection}\r\nAcp-Session-Id: {session}");
    let (_, mut events) = Events::open(&served, &its);
    let prompt = json!({ "prompt": [{ "type": "text", "text": "Touch it." }] });
    // The header names the session.
    assert!(post(&its, &request(2, "session/prompt", prompt)).starts_with("HTTP/1.1 202"));
    let question = |events: &mut Events| loop {
        let message = events.hear();
        if message["method"] == "session/request_permission" {
            return message;
        }
    };
    let first = question(&mut events);
    // The newer stream takes the older one's place, and is asked again under the same id.
    let (_, mut newer) = Events::open(&served, &its);
    assert!(events.is_over());
    let again = question(&mut newer);
    assert_eq!(again, first);
    let yes = json!({ "jsonrpc": "2.0", "id": first["id"],
        "result": { "outcome": { "outcome": "selected", "optionId": "once" } } });
    assert!(post(&its, &yes).starts_with("HTTP/1.1 202"));
    assert!(post(&its, &yes).starts_with("HTTP/1.1 202"));
    let end = loop {
        let message = newer.hear();
        if message["id"] == 2 {
            break message;
        }
    };
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    for (headers, message, status) in [
        ("Acp-Connection-Id: con_unknown", request(3, "session/list", json!({})), "404"),
        ("Accept: */*", request(3, "session/list", json!({})), "400"),
        (
            &format!("{connection}\r\nAcp-Session-Id: another"),
            request(3, "session/prompt", json!({ "sessionId": "one" })),
            "400",
        ),
        (&connection, json!([]), "400"),
    ] {
        let answer = post(headers, &message);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{headers}: {answer}");
    }
    assert!(served.http(&format!("DELETE /acp HTTP/1.1\r\n{connection}"), "").starts_with("HTTP/1.1 202"));
    assert!(newer.is_over() && own.is_over());
    assert!(post(&connection, &request(4, "session/list", json!({}))).starts_with("HTTP/1.1 404"));
    assert!(Events::open(&served, &connection).0.starts_with("HTTP/1.1 404"));
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn asked_to_stop() {
    let (project, model) = model_that("text: one …\npause\ntext: and two.");
    let mut served = Served::start(&project, &[]);
    let mut socket = Socket::open(&served.address);
    socket.hello();
    let session = socket.session(&project);
    socket.prompt(2, &session, "Count.");
    let mut said = Vec::new();
    while !words(&said).contains("one") {
        said.push(socket.hear());
    }
    served.signal(Signal::TERM);
    let start = Instant::now();
    while !served.http("GET /readyz HTTP/1.1", "").starts_with("HTTP/1.1 503") {
        assert!(start.elapsed() < PATIENCE, "it is not about to stop");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(served.http("GET /healthz HTTP/1.1", "").ends_with("ok\n"));
    socket.prompt(3, &session, "More.");
    assert!(socket.answer(3).0["error"]["message"].as_str().unwrap().contains("about to stop"));
    model.go_on();
    let (answer, rest) = socket.answer(2);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(words(&rest).contains("two."), "{rest:?}");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

/// An authority of the test's own, and what it has signed: a certificate for this machine, and somebody's.
pub fn authority(project: &Project) -> (rcgen::Certificate, rcgen::KeyPair) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    project.write("~/authority.pem", &authority.self_signed(&authority_key).unwrap().pem());
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let signed = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        (rcgen::CertificateParams::new(vec![name.into()]).unwrap().signed_by(&key, &issuer).unwrap(), key)
    };
    let (certificate, key) = signed("localhost");
    project.write("~/certificate.pem", &certificate.pem());
    project.write("~/key.pem", &key.serialize_pem());
    signed("ada")
}

/// What a server says to whoever shows a certificate, or none.
fn over(served: &Served, project: &Project, shown: Option<&(rcgen::Certificate, rcgen::KeyPair)>) -> Option<String> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(project.path("~/authority.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            config.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = TcpStream::connect(&served.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok();
    let answer = String::from_utf8(answer).unwrap();
    (!answer.is_empty()).then_some(answer)
}

fn over_tls() {
    let (mut project, _model) = project();
    let somebody = authority(&project);
    let path = |name: &str| project.path(name).display().to_string();
    let (certificate, key, authority) = (path("~/certificate.pem"), path("~/key.pem"), path("~/authority.pem"));
    let served = Served::start(&project, &["--tls-certificate", &certificate, "--tls-key", &key]);
    let address = format!("localhost:{}", served.address.rsplit(':').next().unwrap());
    let connect = |project: &Project| {
        let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
        command.args(["connect", &format!("wss://{address}")]);
        command
    };
    let refused = connect(&project).stdin(Stdio::null()).output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("cannot be reached"), "{why}");
    project.set("NODE_EXTRA_CA_CERTS", Some(&authority));
    let editor = Editor::run(connect(&project));
    let project = Talk::of(Arc::new(project), editor).leave();
    drop(served);
    // Whoever connects shows a certificate of the authority.
    project.settings(&json!({ "serve": { "tls": { "clients": authority } } }));
    let served = Served::start(&project, &["--tls-certificate", &certificate, "--tls-key", &key]);
    assert_eq!(over(&served, &project, None), None);
    let answer = over(&served, &project, Some(&somebody)).unwrap_or_default();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    project.write("~/own.pem", &somebody.0.pem());
    project.write("~/own.key", &somebody.1.serialize_pem());
    let address = format!("localhost:{}", served.address.rsplit(':').next().unwrap());
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command.args(["connect", &format!("wss://{address}")]);
    let own = [project.path("~/own.pem"), project.path("~/own.key")];
    command.arg("--tls-certificate").arg(&own[0]).arg("--tls-key").arg(&own[1]);
    let project = Talk::of(project, Editor::run(command)).leave();
    let stranger = self::authority(&Project::new());
    assert_eq!(over(&served, &project, Some(&stranger)), None);
}

fn taken_over() {
    let (project, _model) = project();
    let served = Served::start(&project, &[]);
    let mut first = Socket::open(&served.address);
    first.hello();
    let session = first.session(&project);
    // The first editor answers pings: it is there.
    let answering = thread::spawn(move || {
        first.stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut head = [0; 2];
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match first.stream.read_exact(&mut head) {
                Ok(()) if head[0] & 15 == 8 => break,
                Ok(()) => {
                    let mut payload = vec![0; usize::from(head[1])];
                    if head[1] == 126 {
                        let mut length = [0; 2];
                        first.stream.read_exact(&mut length).unwrap();
                        payload = vec![0; usize::from(u16::from_be_bytes(length))];
                    }
                    first.stream.read_exact(&mut payload).unwrap();
                    if head[0] & 15 == 9 {
                        first.frame(10, &payload).unwrap();
                        return first;
                    }
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
        }
        panic!("it was not asked whether it is there");
    });
    let mut second = Socket::open(&served.address);
    second.hello();
    let refused = second.load(2, &session, &project).0;
    assert!(refused["error"].to_string().contains("once more to take it over"), "{refused}");
    let mut first = answering.join().unwrap();
    first.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let taken = second.load(3, &session, &project).0;
    assert!(taken.get("result").is_some(), "{taken}");
    first.prompt(4, &session, "Hi.");
    assert_eq!(first.answer(4).0["error"]["code"], -32002);
    // One that does not answer has it no longer than that takes.
    let mut third = Socket::open(&served.address);
    third.hello();
    let taken = third.load(2, &session, &project).0;
    assert!(taken.get("result").is_some(), "{taken}");
}
