//! The protocol over HTTP: posted messages and event streams.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::{Value, json};

use super::{Served, model_that, project};
use crate::editor::RESPONSE_TIMEOUT;

/// A stream of events, and the id of the last one.
pub(super) struct Events(BufReader<TcpStream>, pub(super) String);

impl Events {
    fn open(served: &Served, headers: &str) -> (String, Self) {
        Self::open_at(served, "/acp", headers)
    }

    pub(super) fn open_at(served: &Served, path: &str, headers: &str) -> (String, Self) {
        let mut stream = TcpStream::connect(&served.address).unwrap();
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: text/event-stream\r\n{headers}\r\n\r\n")
            .unwrap();
        let mut lines = BufReader::new(stream);
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        (first, Self(lines, String::new()))
    }

    pub(super) fn receive(&mut self) -> Value {
        // Keep-alive comments never end.
        let end = Instant::now() + RESPONSE_TIMEOUT;
        loop {
            assert!(Instant::now() < end, "no event comes");
            let mut line = String::new();
            assert!(
                self.0.read_line(&mut line).unwrap() > 0,
                "the stream is over"
            );
            if let Some(id) = line.strip_prefix("id: ") {
                id.trim().clone_into(&mut self.1);
            }
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

/// Breaks a client's stream in the middle of a turn, with events on their way; the client resumes
/// after the last event that it has received: nothing is missing, the prompt's own answer included,
/// and nothing is repeated.
pub(super) fn event_stream_resumes() {
    let (project, model) = model_that("text: one\npause\ntext: two\npause\ntext: three.");
    let served = Served::start(&project, &[]);
    let head = "POST /acp HTTP/1.1\r\nContent-Type: application/json";
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } });
    let answer = served.http(head, &hello.to_string());
    let id = answer
        .lines()
        .find_map(|line| line.strip_prefix("acp-connection-id: "))
        .expect("an id")
        .to_owned();
    let connection = format!("Acp-Connection-Id: {id}");
    let post =
        |message: Value| served.http(&format!("{head}\r\n{connection}"), &message.to_string());
    let (_, mut own) = Events::open(&served, &connection);
    post(json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new",
        "params": { "cwd": project.cwd(), "mcpServers": [] } }));
    let session = own.receive()["result"]["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    let its = format!("{connection}\r\nAcp-Session-Id: {session}");
    let (_, mut events) = Events::open(&served, &its);
    let prompt = json!([{ "type": "text", "text": "Count." }]);
    post(
        json!({ "jsonrpc": "2.0", "id": 2, "method": "session/prompt",
        "params": { "sessionId": session, "prompt": prompt } }),
    );
    let mut all = Vec::new();
    let mut until = |events: &mut Events, wanted: &str| loop {
        let message = events.receive();
        let found = message.to_string().contains(wanted);
        all.push(message);
        if found {
            return;
        }
    };
    until(&mut events, "one");
    // The next events go to a stream without a reader.
    let received = events.1.clone();
    model.resume();
    let mut lost = Events(events.0, String::new());
    while !lost.receive().to_string().contains("two") {}
    drop(lost);
    let (status, mut events) =
        Events::open(&served, &format!("{its}\r\nLast-Event-ID: {received}"));
    assert!(status.starts_with("HTTP/1.1 200"), "{status}");
    until(&mut events, "two");
    model.resume();
    until(&mut events, "\"stopReason\"");
    assert_eq!(super::words(&all), "onetwothree.");
    for (wrong, status) in [("0", "409"), ("99999", "409"), ("x", "400")] {
        let (found, _) = Events::open(&served, &format!("{its}\r\nLast-Event-ID: {wrong}"));
        assert!(
            found.starts_with(&format!("HTTP/1.1 {status}")),
            "{wrong}: {found}"
        );
    }
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Uses curl, if it is installed.
pub(super) fn http_2_carries_a_conversation() {
    let (project, _model) = project();
    let served = Served::start(&project, &[]);
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } });
    let url = format!("http://{}/acp", served.address);
    let mut curl = project.command("curl");
    curl.args([
        "--silent",
        "--noproxy",
        "*",
        "--http2-prior-knowledge",
        "--max-time",
        "20",
        "--header",
    ]);
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
            let stdout = String::from_utf8_lossy(&output.stdout);
            assert!(
                stdout.contains("\"protocolVersion\":1") && stdout.ends_with(" 2"),
                "{output:?}"
            );
        }
        Err(e) => eprintln!("skipped: HTTP/2 is tried with curl: {e}"),
    }
}

pub(super) fn plain_http_carries_a_conversation() {
    let (project, model) = model_that(
        "call bash {\"command\": \"touch asked\", \"description\": \"Touch\"}\n---\ntext: Done.",
    );
    project.provider(&model.base(), &json!({ "permission": { "bash": "ask" } }));
    let served = Served::start(&project, &[]);
    let head = "POST /acp HTTP/1.1\r\nContent-Type: application/json";
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } });
    let answer = served.http(head, &hello.to_string());
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("\"protocolVersion\":1"),
        "{answer}"
    );
    let id = answer
        .lines()
        .find_map(|line| line.strip_prefix("acp-connection-id: "))
        .expect("an id")
        .to_owned();
    assert!(answer.contains("set-cookie: "), "{answer}");
    let connection = format!("Acp-Connection-Id: {id}");
    let post = |headers: &str, message: &Value| {
        served.http(&format!("{head}\r\n{headers}"), &message.to_string())
    };
    let request = |id: u64, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    // Messages before its stream is open wait there.
    let new = request(
        1,
        "session/new",
        json!({ "cwd": project.cwd(), "mcpServers": [] }),
    );
    assert!(post(&connection, &new).starts_with("HTTP/1.1 202"));
    let (status, mut own) = Events::open(&served, &connection);
    assert!(status.starts_with("HTTP/1.1 200"), "{status}");
    let opened = own.receive();
    let session = opened["result"]["sessionId"]
        .as_str()
        .unwrap_or_else(|| panic!("{opened}"))
        .to_owned();
    let its = format!("{connection}\r\nAcp-Session-Id: {session}");
    let (_, mut events) = Events::open(&served, &its);
    let prompt = json!({ "prompt": [{ "type": "text", "text": "Touch it." }] });
    // The header names the session.
    assert!(post(&its, &request(2, "session/prompt", prompt)).starts_with("HTTP/1.1 202"));
    let question = |events: &mut Events| loop {
        let message = events.receive();
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
        let message = newer.receive();
        if message["id"] == 2 {
            break message;
        }
    };
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    for (headers, message, status) in [
        (
            "Acp-Connection-Id: con_unknown",
            request(3, "session/list", json!({})),
            "404",
        ),
        ("Accept: */*", request(3, "session/list", json!({})), "400"),
        (
            &format!("{connection}\r\nAcp-Session-Id: another"),
            request(3, "session/prompt", json!({ "sessionId": "one" })),
            "400",
        ),
        (&connection, json!([]), "400"),
    ] {
        let answer = post(headers, &message);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{headers}: {answer}"
        );
    }
    assert!(
        served
            .http(&format!("DELETE /acp HTTP/1.1\r\n{connection}"), "")
            .starts_with("HTTP/1.1 202")
    );
    assert!(newer.is_over() && own.is_over());
    assert!(post(&connection, &request(4, "session/list", json!({}))).starts_with("HTTP/1.1 404"));
    assert!(
        Events::open(&served, &connection)
            .0
            .starts_with("HTTP/1.1 404")
    );
    assert_eq!(model.problems(), Vec::<String>::new());
}
