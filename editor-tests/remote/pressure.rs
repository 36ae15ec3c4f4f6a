//! Silent connections, incomplete messages, and more unacknowledged messages than a bridge may
//! have.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::socket::Socket;
use super::{Served, entry, project};
use crate::client::Client;
use crate::editor::RESPONSE_TIMEOUT;

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
