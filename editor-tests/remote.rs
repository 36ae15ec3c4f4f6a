//! `adjutant serve` and `adjutant connect`: remote clients, and connections that break.

mod account;
mod broken;
mod entry;
mod http;
mod in_editor;
mod observers;
mod pressure;
mod socket;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::client::Client;
use crate::editor::{Editor, RESPONSE_TIMEOUT};
use crate::model::{self, Model};
use crate::project::Project;
pub use broken::CuttingProxy;
use broken::{
    bridge_reconnects, open_question_is_asked_again_after_a_reconnect, reconnected_client_resumes,
    session_is_taken_over,
};
use entry::{
    directories_outside_the_roots_are_refused, strangers_are_refused, tls_carries_a_conversation,
    tokens_separate_users, web_pages_are_refused,
};
use http::{
    event_stream_resumes, http_2_carries_a_conversation, plain_http_carries_a_conversation,
};
use socket::Socket;

pub use entry::authority;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 35] = [
    (
        "bridge carries a conversation",
        bridge_carries_a_conversation,
    ),
    ("bridge that gives up answers", bridge_that_gives_up_answers),
    (
        "bridge that cannot resume answers",
        broken::bridge_that_cannot_resume_answers,
    ),
    ("many connections are served", many_connections_are_served),
    ("web pages are refused", web_pages_are_refused),
    ("tokens separate users", tokens_separate_users),
    ("strangers are refused", strangers_are_refused),
    (
        "directories outside the roots are refused",
        directories_outside_the_roots_are_refused,
    ),
    (
        "every method and command has an owner",
        account::every_method_and_command_has_an_owner,
    ),
    (
        "account methods are refused to users",
        account::account_methods_are_refused_to_users,
    ),
    (
        "account methods are allowed to listed users",
        account::account_methods_are_allowed_to_listed_users,
    ),
    (
        "endpoints follow the rules of webfetch",
        account::endpoints_follow_the_rules_of_webfetch,
    ),
    ("limits are enforced", limits_are_enforced),
    ("too long message is refused", too_long_message_is_refused),
    ("reconnected client resumes", reconnected_client_resumes),
    (
        "open question is asked again after a reconnect",
        open_question_is_asked_again_after_a_reconnect,
    ),
    ("bridge reconnects", bridge_reconnects),
    (
        "plain HTTP carries a conversation",
        plain_http_carries_a_conversation,
    ),
    ("event stream resumes", event_stream_resumes),
    (
        "HTTP/2 carries a conversation",
        http_2_carries_a_conversation,
    ),
    ("silent socket is closed", pressure::silent_socket_is_closed),
    (
        "silent TLS socket is closed",
        pressure::silent_tls_socket_is_closed,
    ),
    (
        "endless messages are bounded",
        pressure::endless_messages_are_bounded,
    ),
    (
        "running turns keep their files",
        pressure::running_turns_keep_their_files,
    ),
    (
        "commands of one user leave slots to others",
        pressure::commands_of_one_user_leave_slots_to_others,
    ),
    (
        "clones of one user leave slots to others",
        pressure::clones_of_one_user_leave_slots_to_others,
    ),
    (
        "client that sends much is not blocked",
        pressure::client_that_sends_much_is_not_blocked,
    ),
    (
        "observers receive events of their own user",
        observers::observers_receive_events_of_their_own_user,
    ),
    (
        "stopping server finishes its turns",
        stopping_server_finishes_its_turns,
    ),
    ("TLS carries a conversation", tls_carries_a_conversation),
    ("session is taken over", session_is_taken_over),
    (
        "resumed session needs no terminal of another connection",
        broken::resumed_session_needs_no_terminal_of_another_connection,
    ),
    (
        "MCP server in an editor ends and returns with it",
        in_editor::mcp_server_in_an_editor_ends_and_returns_with_it,
    ),
    (
        "version 2 is spoken if it is enabled",
        version_2_is_spoken_if_it_is_enabled,
    ),
    (
        "session is handed over in version 2",
        session_is_handed_over_in_version_2,
    ),
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
        command.arg("serve");
        Self::with_arguments(command, arguments)
    }

    fn with_arguments(mut command: Command, arguments: &[&str]) -> Command {
        command
            .args(arguments)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    pub fn start(project: &Project, arguments: &[&str]) -> Self {
        let arguments = [&["--listen", "127.0.0.1:0"], arguments].concat();
        Self::started(Self::command(project, &arguments))
    }

    /// Starts a server that may open only so many files.
    fn start_with_files(project: &Project, files: u32, arguments: &[&str]) -> Self {
        let mut shell = project.command("sh");
        shell.args([
            "-c",
            &format!("ulimit -n {files} && exec \"$0\" \"$@\""),
            env!("CARGO_BIN_EXE_adjutant"),
            "serve",
        ]);
        let arguments = [&["--listen", "127.0.0.1:0"], arguments].concat();
        Self::started(Self::with_arguments(shell, &arguments))
    }

    fn started(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = lines
            .next()
            .expect("the server says where it serves")
            .unwrap();
        let address = first
            .split("://")
            .nth(1)
            .and_then(|rest| rest.strip_suffix("/acp"));
        let address = address
            .unwrap_or_else(|| panic!("this names no address: {first}"))
            .to_owned();
        let (sender, said) = mpsc::channel();
        // The receiver may be dropped.
        thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| drop(sender.send(line)))
        });
        Self {
            child,
            address,
            lines: said,
        }
    }

    /// Waits for a text on standard error.
    pub fn wait_for_stderr(&self, text: &str) {
        while !self
            .lines
            .recv_timeout(RESPONSE_TIMEOUT)
            .unwrap_or_else(|_| panic!("it never says {text}"))
            .contains(text)
        {}
    }

    /// Returns an editor that starts the bridge.
    fn bridge(&self, project: &Project) -> Editor {
        bridge(project, &self.address)
    }

    fn http(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT)).unwrap();
        let length = body.len();
        let host = if head.contains("\r\nHost:") {
            ""
        } else {
            "\r\nHost: localhost"
        };
        write!(
            stream,
            "{head}{host}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok();
        answer
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn number(&self, name: &str) -> f64 {
        let page = self.http("GET /metrics HTTP/1.1", "");
        let line = page
            .lines()
            .find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("{name} is not counted in\n{page}"))
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    }

    /// Waits until something is counted so often.
    fn until(&self, name: &str, number: f64) {
        let start = Instant::now();
        while self.number(name) != number {
            assert!(
                start.elapsed() < RESPONSE_TIMEOUT,
                "{name} does not become {number}"
            );
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
    command
        .args(["connect", &format!("ws://{address}")])
        .current_dir("/");
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

/// Returns the words of the agent among messages.
fn words(messages: &[Value]) -> String {
    let chunk =
        |message: &&Value| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk";
    let text = |message: &Value| {
        message["params"]["update"]["content"]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    messages.iter().filter(chunk).map(text).collect()
}

/// The editor's requests are answered with the reason for which the bridge ends.
fn bridge_that_gives_up_answers() {
    let project = Project::new();
    let unused = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = unused.local_addr().unwrap();
    drop(unused);
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    let mut child = command
        .args(["connect", &format!("ws://{address}")])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let request =
        br#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":1}}"#;
    let input = child.stdin.as_mut().unwrap();
    input.write_all(request).unwrap();
    input.write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["id"], 7, "{answer}");
    let why = answer["error"]["data"]["details"].as_str().unwrap();
    assert!(why.contains("cannot be reached"), "{answer}");
    assert_eq!(output.status.code(), Some(1));
}

fn bridge_carries_a_conversation() {
    let (project, model) = model_that("text: Hello from afar.");
    let served = Served::start(&project, &[]);
    let project = Arc::new(project);
    let mut client = Client::of(project.clone(), served.bridge(&project));
    let session = client.open();
    client.prompt(2, &session, "Hi.");
    let (answer, updates) = client.answer(2);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let text: String = updates
        .iter()
        .filter_map(|update| update["content"]["text"].as_str())
        .collect();
    assert!(text.contains("Hello from afar."), "{text}");
    client.leave();
    assert!(served.number("adjutant_store_flushes_total") >= 1.0);
    // How many entries a batch has depends on when they came.
    let batches = served.number("adjutant_store_batches_total");
    assert!(batches >= 1.0 && served.number("adjutant_store_entries_total") >= batches);
    assert_eq!(served.number("adjutant_turns_total{end=\"ended\"}"), 1.0);
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn many_connections_are_served() {
    let (project, _model) = project();
    let served = Served::start(&project, &[]);
    let mut sockets: Vec<Socket> = (0..50).map(|_| Socket::open(&served.address)).collect();
    sockets.iter_mut().for_each(Socket::hello);
    let sessions: Vec<String> = sockets
        .iter_mut()
        .map(|socket| socket.session(&project))
        .collect();
    assert_eq!(served.number("adjutant_connections"), 50.0);
    assert_eq!(served.number("adjutant_sessions"), 50.0);
    // Each knows its own sessions only, and a ping is answered.
    let first = &sessions[0];
    let last = sockets.last_mut().unwrap();
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

fn limits_are_enforced() {
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
    assert!(
        full["error"]["message"]
            .as_str()
            .unwrap()
            .contains("This connection has 2 open sessions"),
        "{full}"
    );
    let mut second = Socket::open(&served.address);
    second.hello();
    second.session(&project);
    let full = second.new_session(&project);
    assert!(
        full["error"]["message"]
            .as_str()
            .unwrap()
            .contains("open sessions"),
        "{full}"
    );
    let third = Socket::open(&served.address);
    assert!(
        Socket::try_open(&served.address, "")
            .head
            .starts_with("HTTP/1.1 503")
    );
    drop(third);
    // Without a grace period sessions go with their connection.
    drop(second);
    served.until("adjutant_connections", 1.0);
    served.until("adjutant_sessions", 2.0);
}

fn too_long_message_is_refused() {
    let (project, _model) = project();
    project.settings(&json!({ "serve": { "limits": { "message_bytes": 100_000 } } }));
    let served = Served::start(&project, &[]);
    let mut socket = Socket::open(&served.address);
    socket.hello();
    // The connection may be closed before everything is sent.
    match socket.frame(1, &vec![b' '; 200_000]) {
        Ok(()) => {}
        Err(e) => assert!(
            matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
            "{e}"
        ),
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
    assert!(
        served
            .http(post, &" ".repeat(200_000))
            .starts_with("HTTP/1.1 413")
    );
}

fn stopping_server_finishes_its_turns() {
    let (project, model) = model_that("text: one …\npause\ntext: and two.");
    let mut served = Served::start(&project, &[]);
    let mut socket = Socket::open(&served.address);
    socket.hello();
    let session = socket.session(&project);
    socket.prompt(2, &session, "Count.");
    socket.receive_until("one");
    served.signal(Signal::TERM);
    let start = Instant::now();
    while !served
        .http("GET /readyz HTTP/1.1", "")
        .starts_with("HTTP/1.1 503")
    {
        assert!(
            start.elapsed() < RESPONSE_TIMEOUT,
            "it is not about to stop"
        );
        thread::sleep(Duration::from_millis(20));
    }
    assert!(served.http("GET /healthz HTTP/1.1", "").ends_with("ok\n"));
    socket.prompt(3, &session, "More.");
    assert!(
        socket.answer(3).0["error"]["message"]
            .as_str()
            .unwrap()
            .contains("about to stop")
    );
    model.resume();
    let (answer, rest) = socket.answer(2);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert!(words(&rest).contains("two."), "{rest:?}");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

/// The variable allows it as the option does.
fn version_2_is_spoken_if_it_is_enabled() {
    let cases: [(Option<&str>, &[&str], u8); 5] = [
        (None, &[], 1),
        (None, &["--acp-v2"], 2),
        (Some("1"), &[], 2),
        (Some("true"), &[], 2),
        (Some("0"), &[], 1),
    ];
    for (variable, arguments, version) in cases {
        let (mut project, _model) = project();
        project.set("ADJUTANT_ACP_V2", variable);
        let served = Served::start(&project, arguments);
        let spoken = Socket::open(&served.address).hello_in_second();
        assert_eq!(spoken, version, "{variable:?} {arguments:?}");
    }
}

/// Hands over sessions in version 2: a turn that ended at a step reports it in its last update, a
/// waiting prompt in its error.
fn session_is_handed_over_in_version_2() {
    let command = "until [ -e go ]; do sleep 0.02; done";
    let (project, model) = model_that(&format!("call bash {}", json!({ "command": command })));
    let settings =
        json!({ "serve": { "drain": 0 }, "permission": { "*": "allow" }, "steer": false });
    project.provider(&model.base(), &settings);
    let mut served = Served::start(&project, &["--acp-v2"]);
    let mut socket = Socket::open(&served.address);
    assert_eq!(socket.hello_in_second(), 2);
    let session = socket.session(&project);
    socket.prompt(2, &session, "Do it.");
    while socket.receive()["params"]["update"]["status"] != "in_progress" {}
    socket.prompt(3, &session, "And more.");
    // Requests are read in their order.
    socket.request(4, "session/list", &json!({}));
    assert!(socket.answer(4).0.get("result").is_some());
    served.signal(Signal::TERM);
    served.wait_for_stderr("end at their next step");
    project.write("go", "");
    let (answer, before) = socket.answer(3);
    assert_eq!(
        answer["error"]["data"]["adjutant"]["handedOver"], true,
        "{answer}"
    );
    let ends = before
        .iter()
        .map(|message| &message["params"]["update"])
        .filter(|update| update["state"] == "idle");
    let ends: Vec<&Value> = ends.collect();
    assert_eq!(ends.len(), 1, "{before:?}");
    assert_eq!(ends[0]["stopReason"], "cancelled", "{before:?}");
    assert_eq!(
        ends[0]["_meta"]["adjutant"]["handedOver"], true,
        "{before:?}"
    );
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
    assert_eq!(model.problems(), Vec::<String>::new());
}
