//! Connections over a WebSocket: one message for each text frame (or binary frame that contains
//! text), and a ping every 20 seconds.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{Sink, SinkExt, StreamExt};
use hyper::StatusCode;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE,
};
use protocol::lines::{Line, OutboxReader};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use super::budget::{IncompleteMessage, MeteredIo};
use super::host::Connection;
use super::resend_buffer::{MessageTally, ResumableConnection};
use acp_server::user_sessions::Liveness;
use base::lock::lock;

/// The interval of pings.
pub const PING_INTERVAL: Duration = Duration::from_secs(20);

/// The maximum number of unanswered pings.
const MAX_MISSED_PINGS: u32 = 2;

/// The time limit for closing a socket.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Checks a request for a WebSocket, and returns the value of the header that accepts it.
///
/// # Errors
/// The request is invalid; the message is for the author of the client.
pub fn accept(headers: &HeaderMap) -> Result<HeaderValue, (StatusCode, &'static str)> {
    let has = |name: &str, word: &str| {
        let mut words = headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|v| v.split(','));
        words.any(|token| token.trim().eq_ignore_ascii_case(word))
    };
    if !has(CONNECTION.as_str(), "upgrade") || !has(UPGRADE.as_str(), "websocket") {
        return Err((
            StatusCode::BAD_REQUEST,
            "Upgrade and Connection do not ask for a WebSocket",
        ));
    }
    if !has("sec-websocket-version", "13") {
        return Err((
            StatusCode::UPGRADE_REQUIRED,
            "only version 13 of WebSocket is supported",
        ));
    }
    let key = headers
        .get(SEC_WEBSOCKET_KEY)
        .and_then(|key| key.to_str().ok())
        .map(str::trim);
    let key = key.filter(|key| BASE64.decode(key).is_ok_and(|key| key.len() == 16));
    let key = key.ok_or((
        StatusCode::BAD_REQUEST,
        "Sec-WebSocket-Key is missing or not a key",
    ))?;
    HeaderValue::from_str(&answer(key))
        .map_err(|_| (StatusCode::BAD_REQUEST, "Sec-WebSocket-Key is not a key"))
}

/// Returns the answer to a key; see RFC 6455, section 4.2.2.
pub fn answer(key: &str) -> String {
    let with = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, with.as_bytes()))
}

/// The header with the answer to a key.
pub const ACCEPT: hyper::header::HeaderName = SEC_WEBSOCKET_ACCEPT;

/// Returns the limits and buffers for a maximum message size. Small buffers, because most sockets
/// are idle.
pub fn config(message: usize) -> WebSocketConfig {
    let config = WebSocketConfig::default()
        .read_buffer_size(4 << 10)
        .write_buffer_size(16 << 10);
    config
        .max_message_size(Some(message))
        .max_frame_size(Some(message))
}

/// The end of a socket's part in a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// One side has closed the connection.
    Over,
    Broken,
    /// Another socket resumes the connection.
    Wanted,
}

/// The close code and reason of a socket; `None` if it broke.
#[derive(Debug, Clone, PartialEq, Eq)]
struct End(Option<(CloseCode, &'static str)>);

impl End {
    const BROKEN: Self = Self(None);
    const LEAVING: Self = Self(Some((CloseCode::Away, "the server ends this connection")));
    const STOPPING: Self = Self(Some((CloseCode::Restart, "the server stops")));
    const BYE: Self = Self(Some((CloseCode::Normal, "")));
}

/// Carries a connection's messages until one side ends it. `again` are the messages that the last
/// socket did not deliver.
pub async fn carry<T: AsyncRead + AsyncWrite + Unpin>(
    io: T,
    thread: &mut ResumableConnection,
    again: Vec<Bytes>,
    message: usize,
) -> Ending {
    let ResumableConnection { connection, tally } = thread;
    let Connection {
        id,
        lines,
        outgoing,
        liveness,
        budget,
        draining,
        ..
    } = connection;
    let unfinished = Arc::new(budget.begin());
    let io = MeteredIo::new(io, unfinished.clone());
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config(message))).await;
    let (mut sink, mut stream) = socket.split();
    let counts = SocketCounts {
        missed: AtomicU32::new(0),
        tally: Mutex::new(tally),
        owed: Notify::new(),
    };
    let end = tokio::select! {
        end = read_messages(&mut stream, lines, &counts, (liveness, &unfinished)) => end,
        end = write_messages(&mut sink, (again, outgoing), &counts, liveness) => end,
    };
    let end = if end == End::LEAVING && draining.is_cancelled() {
        End::STOPPING
    } else {
        end
    };
    tracing::info!("the socket of connection {id} ends: {:?}", end.0);
    let Some((code, why)) = end.0 else {
        return Ending::Broken;
    };
    if let Ok(socket) = sink.reunite(stream) {
        unfinished.discard();
        farewell(socket, code, why).await;
    }
    // A client that can resume the connection sends the message again.
    if code == CloseCode::Again {
        Ending::Broken
    } else {
        Ending::Over
    }
}

/// Closes a socket with a reason, and reads the remaining input: if it stayed unread, the TCP reset
/// could destroy the reason.
async fn farewell<T: AsyncRead + AsyncWrite + Unpin>(
    mut socket: WebSocketStream<T>,
    code: CloseCode,
    why: &'static str,
) {
    let last = async {
        socket
            .send(Message::Close(Some(CloseFrame {
                code,
                reason: why.into(),
            })))
            .await
            .ok();
        let mut rest = vec![0; 16 << 10];
        while socket.get_mut().read(&mut rest).await.is_ok_and(|n| n > 0) {}
    };
    timeout(CLOSE_TIMEOUT, last).await.ok();
}

/// The counters that both halves of a socket use.
struct SocketCounts<'a> {
    /// The number of unanswered pings.
    missed: AtomicU32,
    // A std mutex around the counts: a leaf lock, for the two halves of the socket.
    tally: Mutex<&'a mut MessageTally>,
    /// Notified when an acknowledgement is due.
    owed: Notify,
}

async fn read_messages<T: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut SplitStream<WebSocketStream<T>>,
    lines: &mpsc::Sender<Line>,
    counts: &SocketCounts<'_>,
    (liveness, unfinished): (&Liveness, &IncompleteMessage),
) -> End {
    let bad = |code, why| End(Some((code, why)));
    while let Some(message) = stream.next().await {
        unfinished.finish();
        counts.missed.store(0, Ordering::Relaxed);
        liveness.record_sign_of_life();
        let text = match message {
            Ok(Message::Text(text)) => Bytes::from(text),
            // Some clients send only binary frames.
            Ok(Message::Binary(bytes)) if std::str::from_utf8(&bytes).is_ok() => bytes,
            Ok(Message::Binary(_)) => {
                return bad(CloseCode::Invalid, "a binary frame is not UTF-8");
            }
            Ok(Message::Close(_)) => return End::BYE,
            Ok(Message::Ping(payload)) => {
                lock(&counts.tally).pinged(&payload);
                continue;
            }
            Ok(_) => continue,
            Err(Error::Capacity(CapacityError::MessageTooLong { .. })) => {
                return bad(
                    CloseCode::Size,
                    "the message is longer than this server allows",
                );
            }
            Err(Error::Utf8(_)) => return bad(CloseCode::Invalid, "a text frame is not UTF-8"),
            Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => {
                return End::BROKEN;
            }
            Err(Error::Protocol(_)) => return bad(CloseCode::Protocol, "this is not a WebSocket"),
            Err(Error::Io(e)) if e.kind() == ErrorKind::OutOfMemory => {
                return bad(CloseCode::Again, "too many messages are incomplete");
            }
            Err(_) => return End::BROKEN,
        };
        let bytes = text.len();
        if !text.trim_ascii().is_empty() && lines.send(Line::Text(text)).await.is_err() {
            return End::LEAVING;
        }
        if lock(&counts.tally).record_received(bytes) {
            counts.owed.notify_one();
        }
    }
    End::BROKEN
}

async fn write_messages<S: Sink<Message, Error = Error> + Unpin>(
    sink: &mut S,
    (again, outgoing): (Vec<Bytes>, &mut OutboxReader),
    counts: &SocketCounts<'_>,
    liveness: &Liveness,
) -> End {
    for message in again {
        if !matches!(
            timeout(PING_INTERVAL * MAX_MISSED_PINGS, send_one(sink, message)).await,
            Ok(Ok(()))
        ) {
            return End::BROKEN;
        }
    }
    let mut ping = tokio::time::interval(PING_INTERVAL);
    ping.tick().await;
    loop {
        let beats = || Message::Ping(lock(&counts.tally).ping());
        let sent = tokio::select! {
            lines = outgoing.next() => match lines {
                Some(lines) => {
                    let sending = send(sink, lines, |line| lock(&counts.tally).sent(line));
                    timeout(PING_INTERVAL * MAX_MISSED_PINGS, sending).await
                }
                None => return End::LEAVING,
            },
            _ = ping.tick() => {
                if counts.missed.fetch_add(1, Ordering::Relaxed) >= MAX_MISSED_PINGS {
                    return End::BROKEN;
                }
                timeout(PING_INTERVAL, sink.send(beats())).await
            }
            () = counts.owed.notified() => timeout(PING_INTERVAL, sink.send(beats())).await,
            () = liveness.wait_for_request() => timeout(PING_INTERVAL, sink.send(beats())).await,
        };
        if !matches!(sent, Ok(Ok(()))) {
            return End::BROKEN;
        }
    }
}

/// Sends a message.
///
/// # Errors
/// The error of the socket.
pub async fn send_one<S: Sink<Message, Error = Error> + Unpin>(
    sink: &mut S,
    message: Bytes,
) -> Result<(), Error> {
    match Utf8Bytes::try_from(message) {
        Ok(text) => sink.send(Message::Text(text)).await,
        // Lines are JSON from this program, so they are UTF-8.
        Err(_) => Ok(()),
    }
}

/// Sends lines, each ending with a newline, as messages. Calls `record` for each line before any is
/// sent, so that the caller can send it again.
async fn send<S: Sink<Message, Error = Error> + Unpin>(
    sink: &mut S,
    lines: Vec<u8>,
    record: impl Fn(&Bytes),
) -> Result<(), Error> {
    let lines = Bytes::from(lines);
    let mut start = 0;
    let mut all = Vec::new();
    for end in memchr::memchr_iter(b'\n', &lines) {
        let line = lines.slice(start..end);
        record(&line);
        all.push(line);
        start = end + 1;
    }
    for line in all {
        if let Ok(text) = Utf8Bytes::try_from(line) {
            sink.feed(Message::Text(text)).await?;
        }
    }
    sink.flush().await
}

/// The two halves of a socket on the client's side.
pub type Halves<T> = (
    SplitSink<WebSocketStream<T>, Message>,
    SplitStream<WebSocketStream<T>>,
);

/// Wraps a socket that this program has opened as a client.
pub async fn opened<T: AsyncRead + AsyncWrite + Unpin>(io: T, message: usize) -> Halves<T> {
    WebSocketStream::from_raw_socket(io, Role::Client, Some(config(message)))
        .await
        .split()
}

/// Returns whether the headers contain the answer to a key.
pub fn is_answer(headers: &HeaderMap, key: &str) -> bool {
    headers
        .get(ACCEPT)
        .is_some_and(|given| given.as_bytes() == answer(key).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_answered_by_rfc_6455() {
        assert_eq!(
            answer("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (
                    hyper::header::HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            };
            pairs.iter().map(pair).collect()
        };
        let whole = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        assert!(accept(&headers(&whole)).is_ok());
        for without in 0..whole.len() {
            let mut some = whole.to_vec();
            some.remove(without);
            assert!(accept(&headers(&some)).is_err(), "{some:?}");
        }
        let short = [&whole[..3], &[("sec-websocket-key", "c2hvcnQ=")]].concat();
        assert!(accept(&headers(&short)).is_err());
    }
}
