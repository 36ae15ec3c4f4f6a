//! Answers without end, or of an absurd size, on every wire format: text, arguments, calls, one
//! line, headers, the text of an error, a compressed body. In each case the prompt is answered
//! once, the resident memory stays within bounds, and the next prompt works.
//!
//! Plain `cargo test` tries each with one wire; `ADJUTANT_FAULTS=all` with all four.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use super::offsets::{MAX_RESIDENT_KIB, WIRES, Wire};
use crate::client::Client;
use crate::editor::Editor;
use crate::loopback::read_request;
use crate::parallel::{repetitions, run_in_parallel};
use crate::project::Project;

/// The oversized part of the provider's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flood {
    Words,
    Arguments,
    Calls,
    /// One event that does not end.
    Line,
    Headers,
    /// The body of an error.
    Fault,
    /// A packed body that grows a thousandfold.
    Packed,
    /// Nothing but signs of life.
    Comments,
}

const FLOODS: [Flood; 8] = [
    Flood::Words,
    Flood::Arguments,
    Flood::Calls,
    Flood::Line,
    Flood::Headers,
    Flood::Fault,
    Flood::Packed,
    Flood::Comments,
];

/// The largest number of bytes sent: far more than may be buffered.
const MAX_SENT_BYTES: usize = 256 << 20;

pub fn endless_answers_are_bounded() {
    let mut rounds: Vec<(Wire, Flood)> = Vec::new();
    for (at, flood) in FLOODS.into_iter().enumerate() {
        rounds.extend(
            WIRES
                .into_iter()
                .cycle()
                .skip(at)
                .take(repetitions(WIRES.len(), 1))
                .map(|wire| (wire, flood)),
        );
    }
    let wrong = Mutex::new(Vec::new());
    run_in_parallel(rounds.len(), |number| {
        let (wire, flood) = rounds[number];
        if let Err(why) = round(wire, flood) {
            wrong
                .lock()
                .unwrap()
                .push(format!("{wire:?}, {flood:?}: {why}"));
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        rounds.len(),
        wrong.join("\n")
    );
}

fn round(wire: Wire, flood: Flood) -> Result<(), String> {
    let server = Server::start(wire, flood);
    let project = Arc::new(Project::new());
    let (npm, base) = wire.settings(&server.base);
    let options = json!({ "baseURL": base, "apiKey": "a-key", "headerTimeout": 4_000, "chunkTimeout": 4_000, "timeout": 8_000 });
    let models =
        json!({ "m": { "name": "M", "limit": { "context": 100_000_000, "output": 8_000 } } });
    project.settings(&json!({ "model": "own/m", "permission": { "*": "allow" },
        "provider": { "own": { "npm": npm, "options": options, "models": models } } }));
    let editor = Editor::start(&project);
    let mut client = Client::of(project, editor);
    let session = client.open();
    for (id, words) in [(2, "FLOOD"), (3, "And now?")] {
        client.prompt(id, &session, words);
        let (answer, _) = client.answer(id);
        if words != "FLOOD" && answer["result"]["stopReason"] != "end_turn" {
            return Err(format!("the next prompt: {answer}"));
        }
    }
    let most = most_resident(client.editor.pid());
    client.leave();
    // The resident memory is the measured figure.
    eprintln!("{wire:?}, {flood:?}: {} MiB", most >> 10);
    if most > MAX_RESIDENT_KIB {
        Err(format!("{most} kB were resident"))
    } else {
        Ok(())
    }
}

/// Returns the most that was ever resident, in kB.
fn most_resident(pid: i32) -> u64 {
    let status = std::fs::read_to_string(crate::long_run::proc(pid, "status")).unwrap_or_default();
    let line = status.lines().find_map(|line| {
        line.strip_prefix("VmHWM:")?
            .trim()
            .strip_suffix(" kB")?
            .parse()
            .ok()
    });
    line.unwrap_or(u64::MAX)
}

/// A provider that floods clients on request.
struct Server {
    base: String,
    listener: Arc<TcpListener>,
    stopped: Arc<AtomicBool>,
}

impl Server {
    fn start(wire: Wire, flood: Flood) -> Self {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let base = format!("http://{}", listener.local_addr().unwrap());
        let stopped = Arc::new(AtomicBool::new(false));
        let accepting = listener.clone();
        let over = stopped.clone();
        let flooded = Arc::new(AtomicBool::new(false));
        thread::spawn(move || {
            for stream in accepting.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let flooded = flooded.clone();
                // A client that hangs up has reacted correctly.
                thread::spawn(move || answer(wire, flood, &stream, &flooded).ok());
            }
        });
        Self {
            base,
            listener,
            stopped,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        TcpStream::connect(self.listener.local_addr().unwrap()).ok();
    }
}

/// Floods the first request for it; a retry gets an answer.
fn answer(
    wire: Wire,
    flood: Flood,
    mut stream: &TcpStream,
    flooded: &AtomicBool,
) -> std::io::Result<()> {
    let Some(request) = read_request(stream) else {
        return Ok(());
    };
    if !request.head[0].starts_with("POST ") {
        return write!(
            stream,
            "HTTP/1.1 404 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        );
    }
    // A body without a length ends with the connection.
    const HEAD: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";
    if !request.body.contains("FLOOD") || flooded.swap(true, Ordering::Relaxed) {
        return write!(stream, "{HEAD}\r\n{}", wire.events("Done.", &[]).concat());
    }
    let long = "A".repeat(8 << 10);
    match flood {
        Flood::Words => {
            let events = wire.events(&long, &[]);
            write!(stream, "{HEAD}\r\n")?;
            repeated(stream, &events, &long[..4 << 10])
        }
        Flood::Arguments if wire == Wire::Gemini => {
            let pieces = [
                "{\"content\":\"".to_owned(),
                "A".repeat(40 << 20),
                "\"}".to_owned(),
            ];
            write!(
                stream,
                "{HEAD}\r\n{}",
                wire.events("", &[("write", pieces)]).concat()
            )
        }
        Flood::Arguments => {
            let pieces = ["{\"content\":\"".to_owned(), long.clone(), "\"}".to_owned()];
            let events = wire.events("", &[("write", pieces)]);
            write!(stream, "{HEAD}\r\n")?;
            repeated(stream, &events, &long)
        }
        Flood::Calls => {
            let calls: Vec<_> = (0..20_000)
                .map(|number| {
                    (
                        "list",
                        [
                            "{\"path\":".to_owned(),
                            format!("\"d{number}\""),
                            "}".to_owned(),
                        ],
                    )
                })
                .collect();
            write!(stream, "{HEAD}\r\n{}", wire.events("", &calls).concat())
        }
        Flood::Line => {
            write!(stream, "{HEAD}\r\ndata: {{\"x\":\"")?;
            (0..MAX_SENT_BYTES / long.len()).try_for_each(|_| stream.write_all(long.as_bytes()))
        }
        Flood::Headers => {
            write!(stream, "{HEAD}")?;
            (0..MAX_SENT_BYTES / long.len())
                .try_for_each(|number| write!(stream, "x-{number}: {long}\r\n"))
        }
        Flood::Fault => {
            write!(
                stream,
                "HTTP/1.1 400 No\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{{\"error\":\""
            )?;
            (0..MAX_SENT_BYTES / long.len()).try_for_each(|_| stream.write_all(long.as_bytes()))
        }
        Flood::Packed => {
            write!(stream, "{HEAD}content-encoding: gzip\r\n\r\n")?;
            let mut packed = GzEncoder::new(stream, Compression::fast());
            packed.write_all(b"data: {\"x\":\"")?;
            (0..MAX_SENT_BYTES / long.len()).try_for_each(|_| packed.write_all(long.as_bytes()))
        }
        Flood::Comments => {
            write!(stream, "{HEAD}\r\n")?;
            let comment = format!(": {long}\n\n");
            (0..MAX_SENT_BYTES / comment.len())
                .try_for_each(|_| stream.write_all(comment.as_bytes()))
        }
    }
}

/// Writes the events before the one with this text, then repeats that event.
fn repeated(mut stream: &TcpStream, events: &[String], text: &str) -> std::io::Result<()> {
    let at = events
        .iter()
        .position(|event| event.contains(text))
        .unwrap();
    stream.write_all(events[..at].concat().as_bytes())?;
    (0..MAX_SENT_BYTES / events[at].len()).try_for_each(|_| stream.write_all(events[at].as_bytes()))
}
