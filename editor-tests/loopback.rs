//! A server that answers with what a function makes of each request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::editor::PATIENCE;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Heard {
    /// `GET /x HTTP/1.1`, then the headers.
    pub head: Vec<String>,
    /// The body.
    pub body: String,
}

impl Heard {
    /// Its path and query.
    pub fn path(&self) -> &str {
        self.head[0].split(' ').nth(1).unwrap_or_default()
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.iter().skip(1).filter_map(|line| line.split_once(": "));
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// A server on a loopback port that answers with what a function makes of each request.
pub struct Server {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    stopped: Arc<AtomicBool>,
}

impl Server {
    /// Starts it. The answer is a status line's number, headers and a body.
    pub fn start(answer: impl Fn(&Heard) -> (u16, String, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (heard, stopped) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (answer, all, over) = (Arc::new(answer), heard.clone(), stopped.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (answer, all) = (answer.clone(), all.clone());
                std::thread::spawn(move || {
                    let Some(request) = hear(&stream) else { return };
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
        Self { address, heard, stopped }
    }

    /// `http://127.0.0.1:port`.
    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it was asked.
    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        TcpStream::connect(self.address).ok();
    }
}

/// Reads a request.
pub fn hear(stream: &TcpStream) -> Option<Heard> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
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
    let mut heard = Heard { head, body: String::new() };
    let length = heard.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    heard.body = String::from_utf8_lossy(&body).into_owned();
    Some(heard)
}
