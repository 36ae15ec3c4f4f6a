//! `adjutant serve` and `adjutant connect`: editors that are somewhere else, whose connections break.

mod account;
mod broken;
mod entry;
mod http;
mod pressure;
mod socket;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::editor::{Editor, PATIENCE};
use crate::model::{self, Model};
use crate::project::Project;
use crate::talk::Talk;
pub use broken::Cut;
use broken::{asked_again, connects_again, goes_on, taken_over};
use entry::{not_for_pages, over_tls, roots, strangers, tokens};
use http::{a_stream_goes_on, over_http_2, plain_http};
use socket::Socket;

pub use entry::authority;

/// A name, and what to do.
pub const ALL: [(&str, fn()); 26] = [
    ("a conversation over a bridge", over_a_bridge),
    ("many connections", many_connections),
    ("pages of the web are not let in", not_for_pages),
    ("tokens", tokens),
    ("strangers are not served", strangers),
    ("roots", roots),
    ("every method and word is somebody's", account::every_method_and_word_is_sorted),
    ("what is the account's is refused to users", account::what_is_the_accounts_is_refused_to_users),
    ("what is the account's, where the operator allows it", account::the_operator_may_allow_it),
    ("limits", limits),
    ("a message that is too long", too_long),
    ("who comes back goes on", goes_on),
    ("a question is asked again", asked_again),
    ("a bridge connects again", connects_again),
    ("over plain HTTP", plain_http),
    ("a stream of events goes on", a_stream_goes_on),
    ("over HTTP/2", over_http_2),
    ("who says nothing is not kept", pressure::who_says_nothing_is_not_kept),
    ("who says nothing over TLS is not kept", pressure::who_says_nothing_over_tls_is_not_kept),
    ("messages that do not end are bounded", pressure::messages_that_do_not_end_are_bounded),
    ("an editor that says much does not wait", pressure::an_editor_that_says_much_does_not_wait),
    ("asked to stop", asked_to_stop),
    ("over TLS", over_tls),
    ("taken over", taken_over),
    ("version 2 where it is allowed", second_version),
    ("what is handed over in version 2", handed_over_in_second),
];

/// A server that runs.
pub struct Served {
    pub child: Child,
    pub address: String,
    lines: Receiver<String>,
}

impl Served {
    fn command(project: &Project, arguments: &[&str]) -> Command {
        let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
        command.arg("serve").args(arguments).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    pub fn start(project: &Project, arguments: &[&str]) -> Self {
        let mut command = Self::command(project, &[&["--listen", "127.0.0.1:0"], arguments].concat());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = lines.next().expect("the server says where it serves").unwrap();
        let address = first.split("://").nth(1).and_then(|rest| rest.strip_suffix("/acp"));
        let address = address.unwrap_or_else(|| panic!("this names no address: {first}")).to_owned();
        let (sender, said) = mpsc::channel();
        // Whoever does not listen any more is not told.
        thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(sender.send(line))));
        Self { child, address, lines: said }
    }

    /// Waits until it says something on standard error.
    pub fn until_said(&self, words: &str) {
        while !self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it never says {words}")).contains(words) {}
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

    pub fn signal(&self, signal: Signal) {
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

pub fn bridge(project: &Project, address: &str) -> Editor {
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
    // How many entries a batch has depends on when they came.
    let batches = served.number("adjutant_store_batches_total");
    assert!(batches >= 1.0 && served.number("adjutant_store_entries_total") >= batches);
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
    // A binary frame is as good as a text frame if it holds text.
    let mut socket = Socket::open(&served.address);
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } });
    socket.frame(2, hello.to_string().as_bytes()).unwrap();
    assert_eq!(socket.answer(0).0["result"]["protocolVersion"], 1);
    socket.frame(2, b"\xff{}").unwrap();
    let (kind, payload) = socket.next();
    assert_eq!((kind, &payload[..2]), (8, &1007_u16.to_be_bytes()[..]));
    let post = "POST /acp HTTP/1.1\r\nContent-Type: application/json";
    assert!(served.http(post, &" ".repeat(200_000)).starts_with("HTTP/1.1 413"));
}

fn asked_to_stop() {
    let (project, model) = model_that("text: one …\npause\ntext: and two.");
    let mut served = Served::start(&project, &[]);
    let mut socket = Socket::open(&served.address);
    socket.hello();
    let session = socket.session(&project);
    socket.prompt(2, &session, "Count.");
    socket.hear_until_said("one");
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

/// The variable allows it as the option does.
fn second_version() {
    let cases: [(Option<&str>, &[&str], u8); 5] =
        [(None, &[], 1), (None, &["--acp-v2"], 2), (Some("1"), &[], 2), (Some("true"), &[], 2), (Some("0"), &[], 1)];
    for (variable, arguments, version) in cases {
        let (mut project, _model) = project();
        project.set("ADJUTANT_ACP_V2", variable);
        let served = Served::start(&project, arguments);
        let spoken = Socket::open(&served.address).hello_in_second();
        assert_eq!(spoken, version, "{variable:?} {arguments:?}");
    }
}

/// A turn that ended at a step says so with its last update, a prompt that waited with its error.
fn handed_over_in_second() {
    let command = "until [ -e go ]; do sleep 0.02; done";
    let (project, model) = model_that(&format!("call bash {}", json!({ "command": command })));
    let settings = json!({ "serve": { "drain": 0 }, "permission": { "*": "allow" }, "steer": false });
    project.provider(&model.base(), &settings);
    let mut served = Served::start(&project, &["--acp-v2"]);
    let mut socket = Socket::open(&served.address);
    assert_eq!(socket.hello_in_second(), 2);
    let session = socket.session(&project);
    socket.prompt(2, &session, "Do it.");
    while socket.hear()["params"]["update"]["status"] != "in_progress" {}
    socket.prompt(3, &session, "And more.");
    // Requests are read in their order.
    socket.request(4, "session/list", &json!({}));
    assert!(socket.answer(4).0.get("result").is_some());
    served.signal(Signal::TERM);
    served.until_said("end at their next step");
    project.write("go", "");
    let (answer, before) = socket.answer(3);
    assert_eq!(answer["error"]["data"]["adjutant"]["handedOver"], true, "{answer}");
    let ends = before.iter().map(|message| &message["params"]["update"]).filter(|update| update["state"] == "idle");
    let ends: Vec<&Value> = ends.collect();
    assert_eq!(ends.len(), 1, "{before:?}");
    assert_eq!(ends[0]["stopReason"], "cancelled", "{before:?}");
    assert_eq!(ends[0]["_meta"]["adjutant"]["handedOver"], true, "{before:?}");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
    assert_eq!(model.problems(), Vec::<String>::new());
}
