//! A mock provider: OpenAI Chat Completions over HTTP and server-sent events, on a loopback port,
//! following a script. It also inspects: a request that a real provider would refuse, or that would
//! miss its prompt cache, fails the test.
//!
//! A script is a list of answers, separated by `---`. An answer is a few lines:
//!
//! ```text
//! sees: words                  the request must contain these words somewhere …
//! sees not: words              … or must not
//! has: "a":"b"                 the request's JSON must contain this
//! has not: "a"                 … or must not
//! without tools                the request must offer none
//! in: words                    for the conversation whose first message contains these words; an
//!                              answer without this is for the next request that no such one is for
//! begins anew                  this request, or this answer where it is a summary, begins a conversation anew:
//!                              what follows need not continue what was before
//! text: Hello                  a piece of text; in quotes it is a JSON string ("a\n")
//! reasoning: Let me see        a piece of reasoning
//! call read {"filePath":"a"}   a tool call; `${TASK}` is the id of the first task with a result
//! usage 1200 30                tokens in and out
//! finish length                the finish reason, where it is not the usual one
//! status 429 retry-after 1 {}  an HTTP error with its body, instead of an answer
//! raw data: {"odd":true}       a line of the stream as it is
//! whole text/html <html>       a body of this type with status 200, instead of a stream
//! meet 2                       waits until so many answers of the script wait here
//! pause                        waits until the editor says "# let the model continue"
//! cut                          the connection breaks here
//! hang                         nothing more comes, ever
//! ```
//!
//! A request without tools that no answer is waiting for is a side call (a title): it is answered
//! by itself.

// Benchmarks take this file in from a folder of their own.
#[path = "model/answers.rs"]
mod answers;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::editor::RESPONSE_TIMEOUT;
use answers::Move;

pub use answers::{Answer, script};

/// The model that answers requests without a key.
const KEYLESS_MODEL: &str = "keyless";

/// The answer to requests for a title.
const TITLE: &str = "A mock title";

/// A request as it came.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// From the end of the previous answer until the agent connected, when its next request was
    /// complete.
    pub gap: Duration,
    /// The same until the first line of it was here, which waits for its bytes to be moved.
    pub received: Duration,
    /// Of its body.
    pub bytes: usize,
    /// Whether it offers tools.
    pub tools: bool,
    /// Whether it belongs to a conversation that the script names.
    pub named: bool,
}

/// The provider. It stops when dropped.
pub struct Model {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Computes answers from a request.
type Responder = Box<dyn FnMut(&Value) -> Vec<Answer> + Send>;

#[derive(Default)]
struct State {
    script: VecDeque<Answer>,
    mind: Option<Responder>,
    answered: usize,
    /// `messages` and `tools` of every request that was no side call.
    requests: Vec<(Vec<Value>, Value)>,
    problems: Vec<String>,
    /// Number of pauses that may be passed.
    released: usize,
    met: usize,
    paused: usize,
    /// The system prompt and the tools may change now: the mode did.
    mode_changed: bool,
    /// The next request with tools may begin as it likes.
    anew: bool,
    stopped: bool,
    /// Requests are not inspected.
    unwatched: bool,
    /// Requests so far, and the end of the last answer.
    came: Vec<Request>,
    said: Option<Instant>,
}

impl Model {
    /// Starts a provider that will say these answers.
    pub fn start(script: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        shared.lock().script = script.into();
        let accepting = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.lock().stopped {
                    return;
                }
                // The agent connects when its request is complete.
                let came = Instant::now();
                let shared = accepting.clone();
                // A client that disconnects early is not an error: a cancel does that.
                thread::spawn(move || stream.and_then(|stream| serve(&shared, &stream, came)).ok());
            }
        });
        Self { address, shared }
    }

    /// Returns a provider whose answers are made when it is asked, from the request.
    pub fn answering_with(mind: impl FnMut(&Value) -> Vec<Answer> + Send + 'static) -> Self {
        let model = Self::start(Vec::new());
        model.shared.lock().mind = Some(Box::new(mind));
        model
    }

    /// Starts one that does not inspect requests, for conversations that are too long to compare.
    pub fn unwatched(script: Vec<Answer>) -> Self {
        let model = Self::start(script);
        model.shared.lock().unwatched = true;
        model
    }

    /// Replaces the rest of the script.
    pub fn send(&self, script: Vec<Answer>) {
        self.shared.lock().script = script.into();
    }

    /// Returns the requests so far.
    pub fn received_requests(&self) -> Vec<Request> {
        self.shared.lock().came.clone()
    }

    /// Returns the base URL: `http://127.0.0.1:port`.
    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets it pass one `pause`.
    pub fn resume(&self) {
        self.shared.lock().released += 1;
        self.shared.changed.notify_all();
    }

    /// Allows the system prompt and the tools to change from now on.
    pub fn mode_changed(&self) {
        self.shared.lock().mode_changed = true;
    }

    /// Returns the messages of every request so far.
    pub fn requests(&self) -> Vec<Value> {
        self.shared
            .lock()
            .requests
            .iter()
            .map(|(messages, _)| Value::Array(messages.clone()))
            .collect()
    }

    /// Returns the problems of the requests, and the unused rest of the script.
    pub fn problems(&self) -> Vec<String> {
        let state = self.shared.lock();
        let mut problems = state.problems.clone();
        if !state.script.is_empty() {
            problems.push(format!(
                "{} of the model's answers were never asked for",
                state.script.len()
            ));
        }
        problems
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_all();
        // Wakes the accepting thread, which then sees that it should stop.
        TcpStream::connect(self.address).ok();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits until so many wait here, or the test is over.
    fn meet(&self, all: usize) {
        let mut state = self.lock();
        state.met += 1;
        self.changed.notify_all();
        drop(
            self.changed
                .wait_timeout_while(state, RESPONSE_TIMEOUT, |state| {
                    state.met < all && !state.stopped
                }),
        );
    }

    /// Waits until the test lets us pass, or is over.
    fn pause(&self) {
        let mut state = self.lock();
        state.paused += 1;
        let mine = state.paused;
        drop(
            self.changed
                .wait_timeout_while(state, RESPONSE_TIMEOUT, |state| {
                    state.released < mine && !state.stopped
                }),
        );
    }
}

/// A request as it was read.
struct Posted {
    /// `POST /x HTTP/1.1`, then the headers.
    head: Vec<String>,
    body: Vec<u8>,
    /// Time of arrival of its first line.
    received: Instant,
}

impl Posted {
    /// Returns `None` if the connection closes without a request.
    fn read(stream: &TcpStream, came: Instant) -> std::io::Result<Option<Self>> {
        let mut reader = BufReader::new(stream);
        let mut head = Vec::new();
        let mut received = None;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            if line.trim().is_empty() {
                break;
            }
            received.get_or_insert_with(Instant::now);
            head.push(line.trim_end().to_owned());
        }
        let mut posted = Self {
            head,
            body: Vec::new(),
            received: received.unwrap_or(came),
        };
        let length = posted
            .header("content-length")
            .and_then(|length| length.parse().ok())
            .unwrap_or(0);
        posted.body = vec![0; length];
        reader.read_exact(&mut posted.body)?;
        Ok(Some(posted))
    }

    fn header(&self, name: &str) -> Option<&str> {
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

fn serve(shared: &Shared, stream: &TcpStream, came: Instant) -> std::io::Result<()> {
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.set_nodelay(true)?;
    let Some(posted) = Posted::read(stream, came)? else {
        return Ok(());
    };
    if !posted
        .head
        .first()
        .is_some_and(|first| first.starts_with("POST /v1/chat/completions "))
    {
        // Looking which models there are is fine; this provider does not say.
        return respond(stream, 404, None, r#"{"error":{"message":"not found"}}"#);
    }
    let body: Value = serde_json::from_slice(&posted.body).unwrap_or_default();
    let needs_key = body["model"] != KEYLESS_MODEL;
    if needs_key && posted.header("authorization") != Some("Bearer a-key") {
        shared.lock().problems.push(format!(
            "the key was not sent: {:?}",
            posted.header("authorization")
        ));
    }
    let without_tools = body["tools"].as_array().is_none_or(Vec::is_empty);
    let first = first_words(&body);
    let meant = |answer: &Answer| {
        answer
            .conversation
            .as_ref()
            .is_none_or(|words| first.contains(words.as_str()))
    };
    if without_tools
        && !shared
            .lock()
            .script
            .iter()
            .find(|a| meant(a))
            .is_some_and(|answer| answer.without_tools)
    {
        return side_call(stream, &body);
    }
    let picked = shared
        .lock()
        .pick(&body, meant, (came, posted.received), posted.body.len());
    let Some((answer, number)) = picked else {
        return respond(
            stream,
            400,
            None,
            r#"{"error":{"message":"the script is over"}}"#,
        );
    };
    let task = all_text(&body)
        .split_once("<task id=\"")
        .and_then(|(_, rest)| Some(rest.split_once('"')?.0.to_owned()));
    stream_answer(shared, stream, &answer, number, &task.unwrap_or_default())
}

fn stream_answer(
    shared: &Shared,
    stream: &TcpStream,
    answer: &Answer,
    number: usize,
    task: &str,
) -> std::io::Result<()> {
    if let Some(Move::Status(code, retry_after, body)) = answer.moves.first() {
        return respond(stream, *code, retry_after.as_deref(), body);
    }
    if let Some(Move::Whole(kind, body)) = answer.moves.first() {
        let length = body.len();
        let head = format!("content-type: {kind}\r\nconnection: close\r\ncontent-length: {length}");
        return write!(&mut &*stream, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}");
    }
    let mut out = stream;
    write!(
        out,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    )?;
    let mut event = |line: &str| -> std::io::Result<()> {
        let line = format!("{line}\n\n");
        write!(out, "{:x}\r\n{line}\r\n", line.len())?;
        out.flush()
    };
    let chunk = |delta: Value, finish: Option<&str>| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        format!(
            "data: {}",
            json!({ "id": format!("chatcmpl-{number}"), "object": "chat.completion.chunk",
            "created": 1_700_000_000, "model": "bench-model", "choices": [choice] })
        )
    };
    event(&chunk(json!({ "role": "assistant", "content": "" }), None))?;
    let mut calls = 0;
    let mut usage = None;
    let mut finish = None;
    for step in &answer.moves {
        match step {
            Move::Text(text) => event(&chunk(json!({ "content": text }), None))?,
            Move::Reasoning(text) => event(&chunk(json!({ "reasoning_content": text }), None))?,
            Move::Call(name, arguments) => {
                let arguments = arguments.replace("${TASK}", task);
                // In two pieces, as real ones come in many.
                let half = arguments
                    .char_indices()
                    .nth(arguments.chars().count() / 2)
                    .map_or(0, |(at, _)| at);
                let (first, second) = arguments.split_at(half);
                let id = format!("call-{number}-{calls}");
                let function = json!({ "name": name, "arguments": first });
                let call =
                    json!({ "index": calls, "id": id, "type": "function", "function": function });
                event(&chunk(json!({ "tool_calls": [call] }), None))?;
                let call = json!({ "index": calls, "function": { "arguments": second } });
                event(&chunk(json!({ "tool_calls": [call] }), None))?;
                calls += 1;
            }
            Move::Usage(input, output) => usage = Some((*input, *output)),
            Move::Finish(reason) => finish = Some(reason.clone()),
            Move::Raw(line) => event(line)?,
            Move::Pause => shared.pause(),
            Move::Meet(all) => shared.meet(*all),
            Move::Cut => return stream.shutdown(Shutdown::Both),
            Move::Hang => return wait_for_hang_up(stream),
            Move::Status(..) | Move::Whole(..) => {}
        }
    }
    let usual = if calls > 0 { "tool_calls" } else { "stop" };
    event(&chunk(json!({}), Some(finish.as_deref().unwrap_or(usual))))?;
    if let Some((input, output)) = usage {
        let usage = json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output });
        event(&format!(
            "data: {}",
            json!({ "id": format!("chatcmpl-{number}"), "object": "chat.completion.chunk",
            "created": 1_700_000_000, "model": "bench-model", "choices": [], "usage": usage })
        ))?;
    }
    // Set before the last text is sent, because its reader may send the next request at once.
    shared.lock().said = Some(Instant::now());
    event("data: [DONE]")?;
    write!(out, "0\r\n\r\n")
}

fn wait_for_hang_up(mut stream: &TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.read(&mut [0]).map(drop)
}

fn side_call(stream: &TcpStream, body: &Value) -> std::io::Result<()> {
    let mut out = stream;
    let message = |key: &str| json!([{ "index": 0, key: { "role": "assistant", "content": TITLE }, "finish_reason": "stop" }]);
    if body["stream"] == true {
        let chunk = json!({ "id": "chatcmpl-side", "object": "chat.completion.chunk", "created": 1, "model": "bench-model",
            "choices": message("delta") });
        let text = format!("data: {chunk}\n\ndata: [DONE]\n\n");
        return write!(
            out,
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
    }
    let whole = json!({ "id": "chatcmpl-side", "object": "chat.completion", "created": 1, "model": "bench-model",
        "choices": message("message") });
    respond(stream, 200, None, &whole.to_string())
}

fn respond(
    mut stream: &TcpStream,
    code: u16,
    retry_after: Option<&str>,
    body: &str,
) -> std::io::Result<()> {
    let retry_after = retry_after
        .map(|seconds| format!("retry-after: {seconds}\r\n"))
        .unwrap_or_default();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {code} Status\r\ncontent-type: application/json\r\nconnection: close\r\n{retry_after}content-length: {length}\r\n\r\n{body}"
    )
}

impl State {
    /// Takes the answer to a request out of the script, and its number; none where there is none
    /// left.
    fn pick(
        &mut self,
        body: &Value,
        meant: impl Fn(&Answer) -> bool,
        (came, received): (Instant, Instant),
        bytes: usize,
    ) -> Option<(Answer, usize)> {
        if let Some(mut mind) = self.mind.take() {
            self.script.extend(mind(body));
            self.mind = Some(mind);
        }
        let named = |answer: &Answer| answer.conversation.is_some() && meant(answer);
        let at = self
            .script
            .iter()
            .position(named)
            .or_else(|| self.script.iter().position(&meant));
        if at
            .and_then(|at| self.script.get(at))
            .is_some_and(|answer| answer.anew)
        {
            self.requests.clear();
            self.anew = true;
        }
        let since = |then: Instant| {
            self.said
                .map(|said| then.saturating_duration_since(said))
                .unwrap_or_default()
        };
        let gap = since(came);
        let received = since(received);
        let conversation = at
            .and_then(|at| self.script.get(at))
            .is_some_and(|answer| answer.conversation.is_some());
        let without_tools = body["tools"].as_array().is_none_or(Vec::is_empty);
        self.came.push(Request {
            gap,
            received,
            bytes,
            tools: !without_tools,
            named: conversation,
        });
        if !self.unwatched {
            self.inspect(body);
        }
        self.answered += 1;
        let number = self.answered;
        let Some(answer) = at.and_then(|at| self.script.remove(at)) else {
            self.problems.push(format!(
                "request {number} is more than the script has answers for: {}",
                last_words(body)
            ));
            return None;
        };
        self.compare(&answer, body, without_tools);
        Some((answer, number))
    }

    /// Compares a request with the expectations in the script of its answer.
    fn compare(&mut self, answer: &Answer, body: &Value, without_tools: bool) {
        let number = self.answered;
        if answer.without_tools != without_tools {
            self.problems
                .push(format!("request {number} offers tools, and should not"));
        }
        let text = if answer.sees.is_empty() {
            String::new()
        } else {
            all_text(body)
        };
        let whole = if answer.has.is_empty() {
            String::new()
        } else {
            body.to_string()
        };
        for (wanted, words) in &answer.has {
            if whole.contains(words.as_str()) != *wanted {
                let not = if *wanted { "" } else { "not " };
                self.problems.push(format!(
                    "request {number}: {words:?} must {not}be in {whole}"
                ));
            }
        }
        for (wanted, words) in &answer.sees {
            if text.contains(words.as_str()) != *wanted {
                let what = if *wanted {
                    "does not contain"
                } else {
                    "contains"
                };
                let message = format!(
                    "request {number} {what} {words:?}; it ends with {}",
                    last_words(body)
                );
                self.problems.push(message);
            }
        }
    }

    /// Checks a request as a provider and its prompt cache would.
    fn inspect(&mut self, body: &Value) {
        let number = self.answered + 1;
        let mut wrong = |what: String| self.problems.push(format!("request {number}: {what}"));
        if body["stream"] != true {
            wrong("it does not ask for a stream".into());
        }
        let Some(messages) = body["messages"].as_array() else {
            wrong("it has no messages".into());
            return;
        };
        let mut open: Vec<&str> = Vec::new();
        for message in messages {
            if message["role"] == "tool" {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                match open.iter().position(|call| *call == id) {
                    Some(at) => drop(open.remove(at)),
                    None => wrong(format!(
                        "a result for {id:?}, which was not called just before"
                    )),
                }
                continue;
            }
            if !open.is_empty() {
                wrong(format!("calls without a result: {open:?}"));
                open.clear();
            }
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                open.push(call["id"].as_str().unwrap_or_default());
                let name = call["function"]["name"].as_str().unwrap_or_default();
                let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
                if name.is_empty() || name.len() > 64 || !name.chars().all(letter) {
                    wrong(format!("no provider takes a call of {name:?}"));
                }
            }
        }
        if !open.is_empty() {
            wrong(format!("calls without a result at the end: {open:?}"));
        }
        // Append-only: but for the very first of a session, a request repeats one before it word
        // for word and continues from there.
        let fresh = messages
            .iter()
            .all(|message| message["role"] != "assistant");
        // The work of a subagent that a command started was done before the first request.
        let answers = messages
            .iter()
            .filter(|message| message["role"] == "assistant")
            .count();
        let fresh = fresh || answers == 1 && first_words(body).contains("(The user typed ");
        // Without tools the system prompt omits their description; the cache is lost anyway.
        let from = usize::from(self.mode_changed || body["tools"].is_null());
        let goes_on = |earlier: &(Vec<Value>, Value)| {
            // As text: the order of members counts too.
            let text = Value::to_string;
            let same = |(a, b): (&Value, &Value)| text(a) == text(b);
            let (before, tools) = earlier;
            before.len() <= messages.len()
                && before.iter().zip(messages).skip(from).all(same)
                && (self.mode_changed || body["tools"].is_null() || same((tools, &body["tools"])))
        };
        let anew = self.anew;
        self.anew = anew && body["tools"].is_null();
        if !fresh && !anew && !self.requests.iter().any(goes_on) {
            wrong(format!(
                "it does not begin like any request before it: {}",
                difference(&self.requests, messages)
            ));
        }
        // As far back as anyone goes.
        const REMEMBERED: usize = 64;
        if self.requests.len() > REMEMBERED {
            self.requests.remove(0);
        }
        self.requests
            .push((messages.clone(), body["tools"].clone()));
    }
}

fn difference(requests: &[(Vec<Value>, Value)], messages: &[Value]) -> String {
    let Some((before, _)) = requests.last() else {
        return "there was none".into();
    };
    match before
        .iter()
        .zip(messages)
        .find(|(a, b)| a.to_string() != b.to_string())
    {
        Some((a, b)) => format!("\n  was {a}\n  is  {b}"),
        None if before.len() > messages.len() => "it is shorter than the one before".into(),
        None => "its tools differ".into(),
    }
}

/// Returns every string of a request, so that words can be looked for without JSON's escapes.
fn all_text(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text}\n"),
        Value::Array(items) => items.iter().map(all_text).collect(),
        Value::Object(members) => members.values().map(all_text).collect(),
        _ => String::new(),
    }
}

/// Returns the first message of a conversation that is not a system prompt.
fn first_words(body: &Value) -> String {
    let mut messages = body["messages"].as_array().into_iter().flatten();
    messages
        .find(|message| message["role"] != "system")
        .map(|message| all_text(&message["content"]))
        .unwrap_or_default()
}

fn last_words(body: &Value) -> String {
    let last: Vec<String> = body["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .rev()
        .take(3)
        .map(ToString::to_string)
        .collect();
    last.into_iter().rev().collect::<Vec<_>>().join("\n  ")
}
