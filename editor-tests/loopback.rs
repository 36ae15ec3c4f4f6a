//! A loopback server whose responses a function computes from the requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::editor::RESPONSE_TIMEOUT;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// `GET /x HTTP/1.1`, then the headers.
    pub head: Vec<String>,
    /// The body.
    pub body: String,
    /// The same, even if it is not text.
    pub bytes: Vec<u8>,
}

impl ReceivedRequest {
    /// Its path and query.
    pub fn path(&self) -> &str {
        self.head[0].split(' ').nth(1).unwrap_or_default()
    }

    /// Returns a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self
            .head
            .iter()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        headers
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

/// A server on a loopback port, whose responses a function computes from the requests.
pub struct Server {
    address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    stopped: Arc<AtomicBool>,
}

impl Server {
    /// Starts it. The answer is a status line's number, headers and a body.
    pub fn start(
        answer: impl Fn(&ReceivedRequest) -> (u16, String, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let stopped = Arc::new(AtomicBool::new(false));
        let answer = Arc::new(answer);
        let all = received.clone();
        let over = stopped.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let answer = answer.clone();
                let all = all.clone();
                std::thread::spawn(move || {
                    let Some(request) = read_request(&stream) else {
                        return;
                    };
                    all.lock().unwrap().push(request.clone());
                    let (status, headers, body) = answer(&request);
                    let length = body.len();
                    let text = format!(
                        "HTTP/1.1 {status} Status\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
                    );
                    (&stream).write_all(text.as_bytes()).ok();
                });
            }
        });
        Self {
            address,
            received,
            stopped,
        }
    }

    /// Returns the base URL: `http://127.0.0.1:port`.
    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests so far.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        TcpStream::connect(self.address).ok();
    }
}

/// Reads a request.
pub fn read_request(stream: &TcpStream) -> Option<ReceivedRequest> {
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT)).ok()?;
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim_end().to_owned());
    }
    let mut received = ReceivedRequest {
        head,
        body: String::new(),
        bytes: Vec::new(),
    };
    let length = received
        .header("content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    received.body = String::from_utf8_lossy(&body).into_owned();
    received.bytes = body;
    Some(received)
}
