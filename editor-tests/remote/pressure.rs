//! Silent connections, incomplete messages, and more unacknowledged messages than a bridge may
//! have.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::socket::Socket;
use super::{Served, entry, project};
use crate::client::Client;
use crate::editor::RESPONSE_TIMEOUT;
use crate::model::{self, Model};
use crate::project::Project;

/// Returns a socket on which these bytes were sent and nothing else.
fn silent(served: &Served, said: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(&served.address).unwrap();
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT)).unwrap();
    stream.write_all(said).unwrap();
    stream
}

/// Returns whether the server closes a socket, whatever it sends before.
fn is_closed(mut stream: TcpStream) -> bool {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).is_ok()
}

pub(super) fn silent_socket_is_closed() {
    let (project, _model) = project();
    project.settings(&json!({ "serve": { "limits": { "connections": 4 } } }));
    let served = Served::start(&project, &[]);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let beginnings: [&[u8]; 4] = [b"", b"GET /ac", b"P", preface];
    let sockets = beginnings.map(|beginning| silent(&served, beginning));
    // They count from their first moment: one more is refused, and the metrics show the reason.
    let refused = Socket::try_open(&served.address, "").head;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(served.http("GET /healthz HTTP/1.1", "").ends_with("ok\n"));
    assert_eq!(served.number("adjutant_sockets"), 4.0);
    assert!(served.number("adjutant_connections_refused_total") >= 1.0);
    for (socket, beginning) in sockets.into_iter().zip(beginnings) {
        assert!(
            is_closed(socket),
            "{:?}",
            String::from_utf8_lossy(beginning)
        );
    }
    // The request for the metrics has a socket too.
    served.until("adjutant_sockets", 1.0);
    Socket::open(&served.address).hello();
}

/// Tests the same before the TLS handshake.
pub(super) fn silent_tls_socket_is_closed() {
    let (project, _model) = project();
    entry::authority(&project);
    let path = |name: &str| project.path(name).display().to_string();
    let certificate = path("~/certificate.pem");
    let key = path("~/key.pem");
    let served = Served::start(
        &project,
        &["--tls-certificate", &certificate, "--tls-key", &key],
    );
    let beginnings: [&[u8]; 2] = [b"", b"\x16\x03\x01"];
    for socket in beginnings.map(|beginning| silent(&served, beginning)) {
        assert!(is_closed(socket));
    }
}

pub(super) fn endless_messages_are_bounded() {
    let (project, _model) = project();
    project.settings(&json!({ "serve": { "limits": { "message_bytes": 100_000 } } }));
    let served = Served::start(&project, &[]);
    // A frame of 100,000 bytes, of which the last do not come.
    let mut frame = vec![0x81, 0x80 | 127];
    frame.extend(100_000_u64.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(vec![b' '; 95_000]);
    let mut sockets: Vec<Socket> = (0..3).map(|_| Socket::open(&served.address)).collect();
    let mut over = 0;
    for socket in &mut sockets {
        // The connection may be closed before everything is sent.
        socket.stream.write_all(&frame).ok();
    }
    for socket in &mut sockets {
        socket
            .stream
            .set_read_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        let mut head = [0; 4];
        if socket.stream.read_exact(&mut head).is_ok() {
            assert_eq!((head[0] & 15, &head[2..]), (8, &1013_u16.to_be_bytes()[..]));
            over += 1;
        }
    }
    assert_eq!(over, 1, "there is room for two");
    let post = "POST /acp HTTP/1.1\r\nContent-Type: application/json";
    let refused = served.http(post, &" ".repeat(20_000));
    assert!(
        refused.starts_with("HTTP/1.1 503") && refused.contains("messages are incomplete"),
        "{refused}"
    );
    // Their places are free again.
    drop(sockets);
    served.until("adjutant_connections", 0.0);
    assert!(
        served
            .http(post, &" ".repeat(20_000))
            .starts_with("HTTP/1.1 400")
    );
}

/// Sends more than a bridge may have unacknowledged: the server acknowledges long before the next
/// ping.
pub(super) fn client_that_sends_much_is_not_blocked() {
    let (project, _model) = project();
    let served = Served::start(&project, &[]);
    let project = Arc::new(project);
    let mut client = Client::of(project.clone(), served.bridge(&project));
    let padding = "x".repeat(1 << 20);
    let start = Instant::now();
    for id in 100..140 {
        client.request(id, "_adjutant/unknown", &json!({ "padding": padding }));
    }
    let (answer, _) = client.answer(139);
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    // A ping comes after 20 seconds.
    assert!(
        start.elapsed() < Duration::from_secs(14),
        "{:?}",
        start.elapsed()
    );
    client.leave();
}

/// Serves many connections with 256 files: half-open sockets, more sessions than files, and a
/// command in each turn. Clients and sessions beyond a share are refused; every turn that began
/// ends well.
pub(super) fn running_turns_keep_their_files() {
    const FILES: u32 = 256;
    const CLIENTS: usize = 24;
    let project = Project::new();
    let model = Model::answering_with(|request| {
        let messages = request["messages"].as_array();
        let last = messages.and_then(|messages| messages.last());
        let has_result = last.is_some_and(|last| last["role"] == "tool");
        let script = if has_result {
            "text: Done."
        } else {
            r#"call bash {"command":"cat /dev/null | cat; sleep 0.2; echo it ran","description":"Run"}"#
        };
        model::script(script).unwrap()
    });
    project.provider(&model.base(), &json!({ "permission": { "bash": "allow" } }));
    let served = Served::start_with_files(&project, FILES, &[]);
    let mut clients: Vec<Socket> = (0..CLIENTS)
        .map(|_| Socket::open(&served.address))
        .collect();
    clients.iter_mut().for_each(Socket::hello);
    // More sockets that say nothing than there are files.
    let sockets: Vec<TcpStream> = (0..FILES + 64).map(|_| silent(&served, b"")).collect();
    // More sessions than their share has files.
    let mut sessions = Vec::new();
    let mut refused = Value::Null;
    'opening: for _ in 0..FILES {
        for (number, client) in clients.iter_mut().enumerate() {
            let opened = client.new_session(&project);
            match opened["result"]["sessionId"].as_str() {
                Some(session) => sessions.push((number, session.to_owned())),
                None => {
                    refused = opened;
                    break 'opening;
                }
            }
        }
    }
    assert!(refused.to_string().contains("ulimit -n"), "{refused}");
    assert!(sessions.len() >= CLIENTS, "{}", sessions.len());
    for (id, (number, session)) in (100..).zip(&sessions) {
        clients[*number].prompt(id, session, "Run it.");
    }
    let mut ran = 0;
    for (number, client) in clients.iter_mut().enumerate() {
        let of_client = |(of, _): &&(usize, String)| *of == number;
        let mut open = sessions.iter().filter(of_client).count();
        while open > 0 {
            let message = client.receive();
            let update = &message["params"]["update"];
            assert_ne!(update["status"], "failed", "{message}");
            ran += usize::from(update["status"] == "completed");
            if message.get("method").is_none() {
                assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
                open -= 1;
            }
        }
    }
    assert_eq!(ran, sessions.len(), "a command in each turn");
    drop(sockets);
    drop(clients);
    served.until("adjutant_turns", 0.0);
}

/// Eight programs fit into 256 files. A user who starts more gets half of them, and the further
/// commands say that they wait, and can be cancelled. The command of another user runs at once.
pub(super) fn commands_of_one_user_leave_slots_to_others() {
    const RUNNING: usize = 4;
    const WAITING: usize = 5;
    let project = Project::new();
    let model = Model::answering_with(|request| {
        let messages = request["messages"].as_array();
        let last = messages.and_then(|messages| messages.last());
        let last = last.cloned().unwrap_or_default();
        let script = if last["role"] == "tool" {
            "text: Done."
        } else if last["content"].to_string().contains("Occupy") {
            r#"call bash {"command":"tail -f /dev/null","description":"Occupy"}"#
        } else {
            r#"call bash {"command":"echo it ran","description":"Run"}"#
        };
        model::script(script).unwrap()
    });
    project.provider(&model.base(), &json!({ "permission": { "bash": "allow" } }));
    let (_served, [mut hers, mut his]) = serve_two_users(&project);
    let sessions: BTreeSet<String> = (0..RUNNING + WAITING)
        .map(|_| hers.session(&project))
        .collect();
    for (id, session) in (100..).zip(&sessions) {
        hers.prompt(id, session, "Occupy a slot.");
    }
    let mut waiting = BTreeSet::new();
    while waiting.len() < WAITING {
        let message = hers.receive();
        assert!(message.get("method").is_some(), "{message}");
        if message
            .to_string()
            .contains("Waiting for other commands to end.")
        {
            let session = message["params"]["sessionId"].as_str().unwrap();
            waiting.insert(session.to_owned());
        }
    }
    let session = his.session(&project);
    his.prompt(2, &session, "Run it.");
    let (answer, updates) = his.answer(2);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let updates = Value::from(updates).to_string();
    assert!(updates.contains("it ran"), "{updates}");
    assert!(!updates.contains("Waiting for"), "{updates}");
    cancel(
        &mut hers,
        &waiting,
        "Not run: the turn was cancelled first.",
    );
    let running = sessions.difference(&waiting).cloned().collect();
    cancel(&mut hers, &running, "while it was running");
}

/// Two users refer to repositories whose server never answers. The first one's clones get half of
/// the eight slots, and those of the second one begin at once.
pub(super) fn clones_of_one_user_leave_slots_to_others() {
    const CLONES: usize = 9;
    let project = Project::new();
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = server.local_addr().unwrap();
    let references: Map<String, Value> = (0..CLONES)
        .map(|n| {
            let repository = format!("git://{address}/{n}");
            (n.to_string(), json!({ "repository": repository }))
        })
        .collect();
    project.settings(&json!({ "references": references }));
    let (_served, [mut hers, mut his]) = serve_two_users(&project);
    let (begun, clones) = mpsc::channel();
    std::thread::spawn(move || server.incoming().try_for_each(|clone| begun.send(clone)));
    let await_clones = |number: usize| -> Vec<TcpStream> {
        let clone = || clones.recv_timeout(RESPONSE_TIMEOUT).unwrap().unwrap();
        std::iter::repeat_with(clone).take(number).collect()
    };
    hers.session(&project);
    let _hers = await_clones(4);
    his.session(&project);
    let _his = await_clones(2);
}

/// Serves two users with 256 files, and returns a socket of each.
fn serve_two_users(project: &Project) -> (Served, [Socket; 2]) {
    let file = project.path("~/tokens").display().to_string();
    let tokens =
        ["ada", "bob"].map(|user| entry::new_token(project, &file, user, &["--user", user]));
    let served = Served::start_with_files(project, 256, &["--token-file", &file]);
    let sockets = tokens.map(|token| {
        let header = format!("Authorization: Bearer {token}\r\n");
        let mut socket = Socket::try_open(&served.address, &header);
        socket.hello();
        socket
    });
    (served, sockets)
}

/// Cancels the turns of sessions. A call of each one ends with a text.
fn cancel(client: &mut Socket, sessions: &BTreeSet<String>, text: &str) {
    for session in sessions {
        let params = json!({ "sessionId": session });
        client.send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params }));
    }
    let mut sessions_with_text = BTreeSet::new();
    let mut ended = 0;
    while ended < sessions.len() {
        let message = client.receive();
        if message.to_string().contains(text) {
            let session = message["params"]["sessionId"].as_str().unwrap();
            sessions_with_text.insert(session.to_owned());
        }
        if message.get("method").is_none() {
            assert_eq!(message["result"]["stopReason"], "cancelled", "{message}");
            ended += 1;
        }
    }
    assert_eq!(sessions_with_text, *sessions, "{text}");
}
