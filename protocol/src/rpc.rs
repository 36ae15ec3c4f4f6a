//! JSON-RPC 2.0 messages, and [`Peer`], which sends our own calls to the other side.
//!
//! An incoming line is parsed once into borrowed views of its members; `params` and `result` remain
//! raw text until their type is known. Ids are stored as the exact text that arrived.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jsonrpsee::types::error::{INTERNAL_ERROR_MSG, INVALID_REQUEST_MSG, METHOD_NOT_FOUND_MSG};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::acp::Method;
use crate::lines::{BadLine, LineSlot, Outbox};

/// JSON-RPC and ACP error codes.
pub mod code {
    pub use jsonrpsee::types::error::{
        INTERNAL_ERROR_CODE as INTERNAL, INVALID_PARAMS_CODE as INVALID_PARAMS,
        INVALID_REQUEST_CODE as INVALID_REQUEST, METHOD_NOT_FOUND_CODE as METHOD_NOT_FOUND,
        PARSE_ERROR_CODE as PARSE,
    };

    /// ACP: the user has to log in first.
    pub const AUTH_REQUIRED: i32 = -32000;
    /// ACP: the session or file does not exist.
    pub const NOT_FOUND: i32 = -32002;
    /// ACP: the request was ended by `$/cancel_request`.
    pub const CANCELLED: i32 = -32800;
    /// The requested version is not supported.
    pub const UNSUPPORTED_VERSION: i32 = -32022;
}

/// An error in a response. `data` never contains what was received, because params can contain
/// secrets.
#[derive(Debug, Clone, Serialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct Error {
    /// One of [`code`], or a code of the other side.
    pub code: i32,
    /// One short sentence for the user.
    pub message: String,
    /// Further data, usually `{"details": "…"}` with advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<serde_json::Value>,
}

impl Error {
    /// Creates an error without data.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// Adds `{"details": …}`, the only member that every client shows.
    #[must_use]
    pub fn details(self, details: impl Into<String>) -> Self {
        self.data(serde_json::json!({ "details": details.into() }))
    }

    #[must_use]
    pub fn data(mut self, data: serde_json::Value) -> Self {
        self.data = Some(data);
        self
    }

    /// Returns -32601 with the method's name, which is truncated because it may be anything.
    pub fn method_not_found(method: &str) -> Self {
        let name: String = method
            .chars()
            .filter(|c| !c.is_control())
            .take(80)
            .collect();
        Self::new(code::METHOD_NOT_FOUND, METHOD_NOT_FOUND_MSG)
            .details(format!("\"{name}\" is not served here"))
    }

    /// Returns -32602 with the reason and its path, in the message as well: some clients show
    /// nothing else.
    pub fn invalid_params(details: impl Into<String>) -> Self {
        const MAX_SHOWN_CHARS: usize = 300;
        let details = details.into();
        let first: String = details
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(MAX_SHOWN_CHARS)
            .collect();
        Self::new(code::INVALID_PARAMS, format!("Invalid params: {first}")).details(details)
    }

    /// Returns -32600 with the reason.
    pub fn invalid_request(details: impl Into<String>) -> Self {
        Self::new(code::INVALID_REQUEST, INVALID_REQUEST_MSG).details(details)
    }

    /// Returns -32603. The cause belongs in the log, not here.
    pub fn internal(details: impl Into<String>) -> Self {
        Self::new(code::INTERNAL, INTERNAL_ERROR_MSG).details(details)
    }

    /// Returns -32800.
    pub fn cancelled() -> Self {
        Self::new(code::CANCELLED, "Request cancelled")
    }
}

/// The id of a request: the JSON text exactly as it arrived (`7`, `"7"`, `null`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Id(Box<str>);

impl Id {
    /// Returns the id for an error that belongs to no request.
    pub fn null() -> Self {
        Self("null".into())
    }

    /// Parses a JSON string, integer or null.
    pub fn parse(text: &str) -> Option<Self> {
        let integer = || {
            let digits = text.strip_prefix('-').unwrap_or(text);
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        };
        let string = || text.starts_with('"') && serde_json::from_str::<String>(text).is_ok();
        (text == "null" || integer() || string()).then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A message of the other side.
#[derive(Debug)]
pub enum RpcMessage<'a> {
    /// A request, which needs exactly one reply.
    Request {
        /// The id, which the reply must repeat exactly.
        id: Id,
        method: String,
        /// Raw params; `{}` if there are none.
        params: &'a str,
    },
    /// A notification, which has no reply.
    Notification {
        method: String,
        /// Raw params; `{}` if there are none.
        params: &'a str,
    },
    /// A response to one of our own calls.
    Response {
        /// The raw id, compared as text: `"7"` does not answer `7`.
        id: &'a str,
        /// The result, or the leniently decoded error.
        outcome: Result<&'a str, Error>,
    },
}

/// The reply to a line that is not a message: an id (often `null`) and the error.
#[derive(Debug)]
pub struct Invalid {
    /// The id, if it could be read.
    pub id: Id,
    pub error: Error,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Distinguishes `null` from a missing member.
fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    d: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

/// An error object of the other side, with any further members and any type of code.
#[derive(Deserialize)]
struct PeerError {
    #[serde(default)]
    code: serde_json::Value,
    #[serde(default)]
    message: serde_json::Value,
    #[serde(default)]
    data: Option<serde_json::Value>,
}

/// Parses one line.
///
/// # Errors
/// The reply to the line.
pub fn read(line: &str) -> Result<RpcMessage<'_>, Box<Invalid>> {
    if !line.trim_start().starts_with('{') {
        let is_json = serde_json::from_str::<IgnoredAny>(line).is_ok();
        let error = match line.trim_start().as_bytes().first() {
            _ if !is_json => parse_error(),
            Some(b'[') => {
                Error::invalid_request("batches are not part of ACP: send one message per line")
            }
            _ => Error::invalid_request("a message is a JSON object"),
        };
        return invalid(Id::null(), error);
    }
    let envelope: Envelope<'_> = match serde_json::from_str(line) {
        Ok(envelope) => envelope,
        // A duplicate member is reported before the rest of the line is parsed.
        Err(e) if e.is_data() && serde_json::from_str::<IgnoredAny>(line).is_ok() => {
            return invalid(
                Id::null(),
                Error::invalid_request("a member is there twice"),
            );
        }
        Err(_) => return invalid(Id::null(), parse_error()),
    };
    let id = match envelope.id.map(RawValue::get) {
        None => None,
        Some(text) => match Id::parse(text) {
            Some(id) => Some(id),
            None => {
                return invalid(
                    Id::null(),
                    Error::invalid_request("\"id\" must be a string, an integer or null"),
                );
            }
        },
    };
    let refuse = |details: &str| {
        invalid(
            id.clone().unwrap_or_else(Id::null),
            Error::invalid_request(details),
        )
    };
    if envelope.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
        return refuse("\"jsonrpc\" must be \"2.0\"");
    }
    let Some(method) = envelope.method else {
        let Some(id) = envelope.id.map(RawValue::get) else {
            return refuse("neither a method nor an id");
        };
        let error = envelope
            .error
            .map(RawValue::get)
            .filter(|text| *text != "null");
        return match (error, envelope.result) {
            (Some(error), _) => Ok(RpcMessage::Response {
                id,
                outcome: Err(parse_error_object(error)),
            }),
            (None, Some(result)) => Ok(RpcMessage::Response {
                id,
                outcome: Ok(result.get()),
            }),
            (None, None) => refuse("neither a method nor a result"),
        };
    };
    if envelope.result.is_some() || envelope.error.is_some() {
        return refuse("a message is a request or a response, not both");
    }
    // A lone surrogate cannot be in a Rust string, and no method has such a name.
    let Ok(method) = serde_json::from_str::<String>(method.get()) else {
        return if method.get().starts_with('"') {
            invalid(id.unwrap_or_else(Id::null), parse_error())
        } else {
            refuse("\"method\" must be a string")
        };
    };
    let params = envelope.params.map_or("{}", RawValue::get);
    let params = if params == "null" { "{}" } else { params };
    Ok(match id {
        Some(id) => RpcMessage::Request { id, method, params },
        None => RpcMessage::Notification { method, params },
    })
}

/// Interprets a line that is not a message; if it is too long, by its id.
///
/// # Errors
/// The reply to the line. The response to one of our own calls has no reply: the call fails
/// instead.
pub fn read_bad(bad: &BadLine) -> Result<RpcMessage<'_>, Box<Invalid>> {
    let skipped = match bad {
        BadLine::NotUtf8 => {
            let error = Error::new(code::PARSE, "Parse error").details(bad.to_string());
            return invalid(Id::null(), error);
        }
        BadLine::TooLong(skipped) => skipped,
    };
    // In the message as well: some clients show nothing else.
    let error = Error::new(code::INVALID_REQUEST, format!("Invalid request: {bad}"))
        .details(bad.to_string());
    match skipped.id.as_deref() {
        Some(id) if skipped.is_response => Ok(RpcMessage::Response {
            id,
            outcome: Err(error),
        }),
        id => invalid(id.and_then(Id::parse).unwrap_or_else(Id::null), error),
    }
}

fn invalid<T>(id: Id, error: Error) -> Result<T, Box<Invalid>> {
    Err(Box::new(Invalid { id, error }))
}

fn parse_error() -> Error {
    Error::new(code::PARSE, "Parse error").details("the line is not JSON")
}

fn parse_error_object(text: &str) -> Error {
    let read = serde_json::from_str::<PeerError>(text);
    let Ok(error) = read else {
        return Error::new(
            code::INTERNAL,
            "the other side answered with an error that is not an object",
        );
    };
    Error {
        code: error
            .code
            .as_i64()
            .and_then(|c| i32::try_from(c).ok())
            .unwrap_or(code::INTERNAL),
        message: error
            .message
            .as_str()
            .unwrap_or("the other side gave no message")
            .to_owned(),
        data: error.data,
    }
}

/// Returns the reply with a result, which is JSON text.
pub fn success(id: &Id, result: &str) -> Vec<u8> {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}",
        id.as_str()
    )
    .into_bytes()
}

/// Returns the reply with an error.
pub fn failure(id: &Id, error: &Error) -> Vec<u8> {
    let error = serde_json::to_string(error)
        .unwrap_or_else(|_| r#"{"code":-32603,"message":"Internal error"}"#.into());
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{error}}}",
        id.as_str()
    )
    .into_bytes()
}

/// The other side of the connection, as the receiver of calls and notifications.
#[derive(Debug, Clone)]
pub struct Peer {
    outbox: Outbox,
    // A std mutex: a leaf lock around a map, never held across an await.
    calls: Arc<Mutex<Calls>>,
}

#[derive(Debug, Default)]
struct Calls {
    next: u64,
    waiting: HashMap<u64, oneshot::Sender<Result<Box<str>, Error>>>,
    is_closed: bool,
}

/// The failure of one of our own calls.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The pipe was closed before a response arrived.
    #[error("the editor is gone")]
    Closed,
    /// No response arrived within the caller's time limit; the other side was asked to cancel the
    /// request.
    #[error("the editor did not answer within {0:?}")]
    TimedOut(Duration),
    /// The other side responded with an error.
    #[error("the editor refused: {0}")]
    Refused(Error),
    /// The result does not fit the method.
    #[error("the editor's answer has the wrong shape: {0}")]
    InvalidResult(String),
}

impl Peer {
    /// Creates a peer that writes to `outbox`.
    pub fn new(outbox: Outbox) -> Self {
        Self {
            outbox,
            calls: Arc::default(),
        }
    }

    /// Returns the queue of this peer.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Sends a notification. Waits only while the other side is not reading.
    pub async fn notify<P: Serialize>(&self, method: &str, params: &P) {
        self.outbox.send(line(method, None, params)).await;
    }

    /// Calls the other side.
    ///
    /// There is no time limit unless the caller sets one, because a user may take an hour to
    /// answer. Dropping the future before the response sends `$/cancel_request`; a late response is
    /// ignored.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call<P>(
        &self,
        params: &P,
        limit: Option<Duration>,
    ) -> Result<P::Response, CallError>
    where
        P: Method + Serialize,
        P::Response: DeserializeOwned,
    {
        let (tx, rx) = oneshot::channel();
        let id = {
            let mut calls = self.lock();
            if calls.is_closed {
                return Err(CallError::Closed);
            }
            calls.next += 1;
            let id = calls.next;
            calls.waiting.insert(id, tx);
            id
        };
        let slot = self.outbox.place(line(P::NAME, Some(id), params));
        let mut call = PendingCall {
            peer: self,
            id,
            slot,
        };
        call.slot.queued().await;
        let answer = match limit {
            None => rx.await,
            Some(limit) => match tokio::time::timeout(limit, rx).await {
                Ok(answer) => answer,
                Err(_) => return Err(CallError::TimedOut(limit)),
            },
        };
        let result = answer
            .map_err(|_| CallError::Closed)?
            .map_err(CallError::Refused)?;
        serde_json::from_str(&result)
            .or_else(|e| {
                if &*result == "null" {
                    serde_json::from_str("{}")
                } else {
                    Err(e)
                }
            })
            .map_err(|e| CallError::InvalidResult(crate::decode::without_values(&e.to_string())))
    }

    /// Passes a response to its caller. Unknown ids are ignored.
    pub fn resolve(&self, id: &str, outcome: Result<&str, Error>) {
        let waiter = id
            .parse()
            .ok()
            .and_then(|id: u64| self.lock().waiting.remove(&id));
        match waiter {
            // The caller may just have been dropped.
            Some(waiter) => drop(waiter.send(outcome.map(Into::into))),
            None => tracing::debug!("a response to no call of ours"),
        }
    }

    /// Fails all pending and future calls, because the pipe is closed.
    pub fn close(&self) {
        let mut calls = self.lock();
        calls.is_closed = true;
        calls.waiting.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is cancelled if its caller is dropped before the response.
struct PendingCall<'a> {
    peer: &'a Peer,
    id: u64,
    slot: LineSlot,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        let is_unanswered = self.peer.lock().waiting.remove(&self.id).is_some();
        if is_unanswered && !self.slot.withdraw() {
            let params = serde_json::json!({ "requestId": self.id });
            self.peer
                .outbox
                .push(&line(crate::acp::CANCEL_REQUEST, None, &params));
        }
    }
}

/// Returns the line of a notification, for [`Outbox::send`].
pub fn notification_line<P: Serialize>(method: &str, params: &P) -> Vec<u8> {
    line(method, None, params)
}

fn line<P: Serialize>(method: &str, id: Option<u64>, params: &P) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",");
    if let Some(id) = id {
        out.extend_from_slice(format!("\"id\":{id},").as_bytes());
    }
    out.extend_from_slice(b"\"method\":\"");
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(b"\",\"params\":");
    if serde_json::to_writer(&mut out, params).is_err() {
        // All params serialize; a map with keys that are not strings would be a bug.
        tracing::error!("params of {method} cannot be written as JSON");
        out.extend_from_slice(b"{}");
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::SkippedMessage;

    fn show(line: &str) -> String {
        match read(line) {
            Ok(RpcMessage::Request { id, method, params }) => {
                format!("request {} {method} {params}", id.as_str())
            }
            Ok(RpcMessage::Notification { method, params }) => format!("note {method} {params}"),
            Ok(RpcMessage::Response {
                id,
                outcome: Ok(result),
            }) => format!("result {id} {result}"),
            Ok(RpcMessage::Response {
                id,
                outcome: Err(error),
            }) => {
                format!("error {id} {} {}", error.code, error.message)
            }
            Err(invalid) => format!("{} {}", invalid.error.code, invalid.id.as_str()),
        }
    }

    #[test]
    fn long_message_is_answered_by_its_id() {
        let table = [
            ("request", Some("7"), false, "-32600 7"),
            (
                "string id",
                Some(r#""\u00e9\"},""#),
                false,
                r#"-32600 "\u00e9\"},""#,
            ),
            ("notification", None, false, "-32600 null"),
            ("an id that is none", Some("[1]"), false, "-32600 null"),
            ("an id that is no JSON", Some("x y"), false, "-32600 null"),
            (
                "answer to a call of ours",
                Some("3"),
                true,
                "error 3 -32600 Invalid request: the message is longer than 32 MiB, which is the limit",
            ),
            ("answer to nothing", None, true, "-32600 null"),
        ];
        for (name, id, is_response, wanted) in table {
            let bad = BadLine::TooLong(SkippedMessage {
                id: id.map(str::to_owned),
                is_response,
            });
            let shown = match read_bad(&bad) {
                Ok(RpcMessage::Response {
                    id,
                    outcome: Err(error),
                }) => {
                    format!("error {id} {} {}", error.code, error.message)
                }
                Ok(other) => panic!("{name}: {other:?}"),
                Err(invalid) => format!("{} {}", invalid.error.code, invalid.id.as_str()),
            };
            assert_eq!(shown, wanted, "{name}");
        }
    }

    #[test]
    fn messages_are_distinguished_by_their_members() {
        let table = [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1}}"#,
                r#"request 1 a {"x":1}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":"1","method":"a"}"#,
                "request \"1\" a {}",
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"a","params":null}"#,
                "request null a {}",
            ),
            (
                r#"{"jsonrpc":"2.0","id":9007199254740993,"method":"a"}"#,
                "request 9007199254740993 a {}",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"a","params":[1]}"#,
                "note a [1]",
            ),
            (r#"{"jsonrpc":"2.0","id":7,"result":null}"#, "result 7 null"),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m","stack":"x"}}"#,
                "error 7 1 m",
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1e99}}"#,
                "error 7 -32603 the other side gave no message",
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{},"error":null}"#,
                "result 7 {}",
            ),
            (r#"{"jsonrpc":"2.0","id":7}"#, "-32600 7"),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"a","result":1}"#,
                "-32600 7",
            ),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#, "-32600 null"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#, "-32600 null"),
            (r#"{"jsonrpc":"2.0","id":7,"method":5}"#, "-32600 7"),
            (r#"{"id":7,"method":"a"}"#, "-32600 7"),
            (
                r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#,
                "-32600 null",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method""#, "-32700 null"),
            (r#"{"jsonrpc":"2.0","id":01,"method":"a"}"#, "-32700 null"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a\ud800"}"#, "-32700 1"),
            ("[]", "-32600 null"),
            ("[{}", "-32700 null"),
            ("\"x\"", "-32600 null"),
            ("{}", "-32600 null"),
            ("x", "-32700 null"),
        ];
        for (line, expected) in table {
            assert_eq!(show(line), expected, "{line}");
        }
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        assert_eq!(show(&"[".repeat(200_000)), "-32700 null");
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{}{}}}"#,
            "[".repeat(9000),
            "]".repeat(9000)
        );
        assert!(show(&deep).starts_with("request 1 a [[["));
    }
}
