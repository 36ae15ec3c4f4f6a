//! Broken connections, and the clients that continue their work.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::socket::Socket;
use super::{Served, bridge, model_that, project, words};
use crate::client::Client;
use crate::editor::RESPONSE_TIMEOUT;

pub(super) fn reconnected_client_resumes() {
    let (project, model) = model_that("text: one …\npause\ntext: and two.");
    let served = Served::start(&project, &[]);
    let mut socket = Socket::open(&served.address);
    socket.hello();
    let session = socket.session(&project);
    socket.prompt(2, &session, "Count.");
    socket.receive_until("one");
    drop(socket);
    served.until("adjutant_sessions_waiting", 1.0);
    assert_eq!(served.number("adjutant_turns"), 1.0);
    let mut back = Socket::open(&served.address);
    back.hello();
    let (answer, before) = back.load(3, &session, &project);
    assert!(answer.get("result").is_some(), "{answer}");
    assert!(words(&before).contains("one"), "{before:?}");
    let mine = before
        .iter()
        .filter(|message| message["params"]["update"]["sessionUpdate"] == "user_message_chunk");
    assert_eq!(mine.count(), 1, "{before:?}");
    // A list of commands within the turn might be shown as its end.
    let kind = |message: &Value| message["params"]["update"]["sessionUpdate"].clone();
    let lists = "available_commands_update";
    assert_eq!(before.first().map(kind), Some(lists.into()), "{before:?}");
    model.resume();
    let mut rest = Vec::new();
    while !words(&rest).contains("two.") {
        rest.push(back.receive());
    }
    served.until("adjutant_turns", 0.0);
    assert_eq!(served.number("adjutant_turns_total{end=\"ended\"}"), 1.0);
    // It was shown once.
    let shown = [before, rest].concat();
    let sent = shown.iter().filter(|message| kind(message) == lists);
    assert_eq!(sent.count(), 1, "{shown:?}");
    let all = words(&shown);
    assert_eq!(all.matches("one").count(), 1, "{all}");
    assert_eq!(model.problems(), Vec::<String>::new());
    // A session without messages is stored nowhere else. It is opened anew, with another directory.
    let session = back.session(&project);
    back.request(
        4,
        "session/set_mode",
        &json!({ "sessionId": session, "modeId": "plan" }),
    );
    assert!(back.answer(4).0.get("result").is_some());
    drop(back);
    served.until("adjutant_sessions_waiting", 2.0);
    let mut again = Socket::open(&served.address);
    again.hello();
    let more = json!([project.path("~/")]);
    let params = json!({ "sessionId": session, "cwd": project.cwd(), "mcpServers": [], "additionalDirectories": more });
    again.request(5, "session/load", &params);
    let answer = again.answer(5).0;
    assert_eq!(
        answer["result"]["modes"]["currentModeId"], "plan",
        "{answer}"
    );
}

pub(super) fn open_question_is_asked_again_after_a_reconnect() {
    let (project, model) = model_that(
        "call bash {\"command\": \"touch asked\", \"description\": \"Touch\"}\n---\ntext: Done.",
    );
    project.provider(&model.base(), &json!({ "permission": { "bash": "ask" } }));
    let served = Served::start(&project, &[]);
    let mut socket = Socket::open(&served.address);
    socket.hello();
    let session = socket.session(&project);
    socket.prompt(2, &session, "Touch it.");
    let question = |socket: &mut Socket| loop {
        let message = socket.receive();
        if message["method"] == "session/request_permission" {
            return message;
        }
    };
    let first = question(&mut socket);
    drop(socket);
    served.until("adjutant_sessions_waiting", 1.0);
    let mut back = Socket::open(&served.address);
    back.hello();
    back.request(
        3,
        "session/load",
        &json!({ "sessionId": session, "cwd": project.cwd(), "mcpServers": [] }),
    );
    let again = question(&mut back);
    assert_eq!(
        again["params"]["toolCall"]["toolCallId"],
        first["params"]["toolCall"]["toolCallId"]
    );
    back.send(&json!({ "jsonrpc": "2.0", "id": again["id"],
        "result": { "outcome": { "outcome": "selected", "optionId": "once" } } }));
    let mut rest = Vec::new();
    while !words(&rest).contains("Done.") {
        rest.push(back.receive());
    }
    assert!(project.path("asked").exists());
    served.until("adjutant_turns", 0.0);
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// A server that does not count messages cannot continue a broken connection. The prompt that was
/// sent is answered with that reason.
pub(super) fn bridge_that_cannot_resume_answers() {
    let (project, model) = model_that("text: one …\npause\ntext: two.");
    let served = Served::start(&project, &[]);
    let between = CuttingProxy::without_header(&served.address, "adjutant-received:");
    let project = Arc::new(project);
    let mut client = Client::of(project.clone(), bridge(&project, &between.address));
    let session = client.open();
    client.prompt(2, &session, "Count.");
    while client.receive()["params"]["update"]["content"]["text"] != "one …" {}
    between.cut();
    let (answer, _) = client.answer(2);
    let why = answer["error"]["data"]["details"]
        .as_str()
        .unwrap_or_default();
    assert!(
        why.contains("does not let connections be resumed"),
        "{answer}"
    );
    model.resume();
    served.until("adjutant_turns", 0.0);
}

/// A proxy that can cut connections off.
pub struct CuttingProxy {
    pub address: String,
    /// Address to which new connections are forwarded.
    server: Arc<Mutex<String>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    refuses: Arc<AtomicBool>,
}

impl CuttingProxy {
    pub fn before(server: &str) -> Self {
        Self::without_header(server, "")
    }

    /// Creates a proxy that removes a header from responses, given with its colon.
    fn without_header(server: &str, header: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = Arc::new(Mutex::new(server.to_owned()));
        let open = Arc::<Mutex<Vec<TcpStream>>>::default();
        let refuses = Arc::new(AtomicBool::new(false));
        let all = open.clone();
        let no = refuses.clone();
        let to = server.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                if no.load(Ordering::Relaxed) {
                    continue;
                }
                let to = to.lock().unwrap().clone();
                let Ok(server) = TcpStream::connect(to) else {
                    continue;
                };
                let directions = [(&client, &server, ""), (&server, &client, header)];
                for (from, to, header) in directions {
                    let mut from = from.try_clone().unwrap();
                    let mut to = to.try_clone().unwrap();
                    thread::spawn(move || {
                        if !header.is_empty() {
                            forward_head(&mut from, &mut to, header).ok();
                        }
                        std::io::copy(&mut from, &mut to).ok();
                        to.shutdown(std::net::Shutdown::Both).ok();
                    });
                }
                all.lock().unwrap().extend([client, server]);
            }
        });
        Self {
            address,
            server,
            open,
            refuses,
        }
    }

    pub fn turn_to(&self, server: &str) {
        server.clone_into(&mut self.server.lock().unwrap());
    }

    pub fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            stream.shutdown(std::net::Shutdown::Both).ok();
        }
    }
}

/// Forwards the head of a response without a header.
fn forward_head(from: &mut TcpStream, to: &mut TcpStream, header: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        from.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let is_kept = |line: &&str| !line.to_ascii_lowercase().starts_with(header);
    let kept: String = head.split_inclusive('\n').filter(is_kept).collect();
    assert!(kept.len() < head.len(), "{head}");
    to.write_all(kept.as_bytes())
}

pub(super) fn bridge_reconnects() {
    let (project, model) = model_that("text: one …\npause\ntext: two …\npause\ntext: three.");
    let served = Served::start(&project, &[]);
    let between = CuttingProxy::before(&served.address);
    let project = Arc::new(project);
    let mut client = Client::of(project.clone(), bridge(&project, &between.address));
    let session = client.open();
    client.prompt(2, &session, "Count.");
    let mut text = String::new();
    let until = |client: &mut Client, text: &mut String, word: &str| {
        while !text.contains(word) {
            text.push_str(
                client.receive()["params"]["update"]["content"]["text"]
                    .as_str()
                    .unwrap_or_default(),
            );
        }
    };
    until(&mut client, &mut text, "one");
    between.cut();
    model.resume();
    until(&mut client, &mut text, "two");
    // No client is connected for a while, and the turn ends meanwhile.
    between.refuses.store(true, Ordering::Relaxed);
    between.cut();
    model.resume();
    served.until("adjutant_turns", 0.0);
    between.refuses.store(false, Ordering::Relaxed);
    until(&mut client, &mut text, "three.");
    let (answer, _) = client.answer(2);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    for word in ["one", "two", "three"] {
        assert_eq!(text.matches(word).count(), 1, "{text}");
    }
    // Updates are not repeated either.
    between.cut();
    client.request(3, "session/list", &json!({}));
    assert!(client.answer(3).0.get("result").is_some());
    assert_eq!(served.number("adjutant_connections_total"), 1.0);
    assert_eq!(model.problems(), Vec::<String>::new());
    let exit = client.editor.finish();
    assert!(
        exit.problems(0)
            .iter()
            .all(|problem| problem.contains("connect")),
        "{:?}",
        exit.problems(0)
    );
}

/// A client that resumes a session without its history has no terminal for a command that another
/// connection was shown, so it gets the output as text.
pub(super) fn resumed_session_needs_no_terminal_of_another_connection() {
    let command = "until [ -e go ]; do sleep 0.01; done; echo built";
    let input = json!({ "command": command, "run_in_background": true });
    let (project, model) = model_that(&format!(
        "call bash {input}\n---\ntext: It builds.\n---\ntext: It is built."
    ));
    project.provider(&model.base(), &json!({ "permission": { "bash": "allow" } }));
    let served = Served::start(&project, &[]);
    let capabilities =
        json!({ "_meta": { "terminal_output": true }, "session": { "notices": {} } });
    let mut first = Socket::open(&served.address);
    first.hello_with(&capabilities);
    let session = first.session(&project);
    first.prompt(2, &session, "Build it.");
    let (_, shown) = first.answer(2);
    assert!(
        shown
            .iter()
            .any(|message| !message["params"]["update"]["_meta"]["terminal_info"].is_null()),
        "{shown:?}"
    );
    drop(first);
    served.until("adjutant_sessions_waiting", 1.0);
    let mut second = Socket::open(&served.address);
    second.hello_with(&capabilities);
    let params = json!({ "sessionId": session, "cwd": project.cwd(), "mcpServers": [] });
    second.request(3, "session/resume", &params);
    let (resumed, _) = second.answer(3);
    assert!(resumed.get("result").is_some(), "{resumed}");
    project.write("go", "");
    while second.receive()["params"]["update"]["sessionUpdate"] != "notice" {}
    second.prompt(4, &session, "And?");
    let (_, updates) = second.answer(4);
    let of_call = updates
        .iter()
        .map(|message| &message["params"]["update"])
        .filter(|update| update.get("toolCallId").is_some());
    let of_call: Vec<&Value> = of_call.collect();
    assert_eq!(of_call.len(), 1, "{updates:?}");
    let text =
        json!([{ "type": "content", "content": { "type": "text", "text": "```\nbuilt\n```" } }]);
    assert_eq!(of_call[0]["content"], text, "{}", of_call[0]);
    assert!(of_call[0].get("_meta").is_none(), "{}", of_call[0]);
    assert_eq!(model.problems(), Vec::<String>::new());
}

pub(super) fn session_is_taken_over() {
    let (project, _model) = project();
    let served = Served::start(&project, &[]);
    let mut first = Socket::open(&served.address);
    first.hello();
    let session = first.session(&project);
    // The first editor answers pings: it is there.
    let answering = thread::spawn(move || {
        first
            .stream
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let mut head = [0; 2];
        let until = Instant::now() + RESPONSE_TIMEOUT;
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
    assert!(
        refused["error"]
            .to_string()
            .contains("once more to take it over"),
        "{refused}"
    );
    let mut first = answering.join().unwrap();
    first
        .stream
        .set_read_timeout(Some(RESPONSE_TIMEOUT))
        .unwrap();
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
