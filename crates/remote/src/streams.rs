//! Connections over plain HTTP: the client posts its messages, and receives the agent's as
//! server-sent events.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, SET_COOKIE};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use protocol::lines::{Line, OutboxReader};
use protocol::rpc::{self, Id};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admission::Identity;
use super::budget::IncompleteMessage;
use super::host::{Connection, Host};
use super::mailbox::{Mailboxes, NumberedLine, ResumeError, Shape, Stream};
use super::reply::{ResponseBody, plain};
use acp_server::user_sessions::Liveness;
use base::lock::lock;

/// The header with the connection of a request.
pub const CONNECTION_ID: &str = "acp-connection-id";
/// The header with the session of a request.
pub const SESSION_ID: &str = "acp-session-id";

/// The header with the number of the last event that a client has received on a stream.
pub const LAST_EVENT_ID: &str = "last-event-id";

/// The interval of comments on an idle stream, which show that it is alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The maximum time of a connection without a reader.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(120);

/// The time limits for a whole body, and for each part of it.
const BODY_TIMEOUT: Duration = Duration::from_secs(300);
const BODY_PART_TIMEOUT: Duration = Duration::from_secs(15);

/// The time limit of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// The connections over plain HTTP.
#[derive(Default)]
pub struct HttpConnections {
    // A std mutex around a map: a leaf lock, never held across an await.
    open: Mutex<HashMap<String, Arc<HttpConnection>>>,
}

/// The status and the reason of a refused request; the reason is for the author of the client.
type RefusedRequest = (StatusCode, &'static str);

/// A connection that consists of requests and streams.
struct HttpConnection {
    identity: Identity,
    lines: mpsc::Sender<Line>,
    // A leaf lock too, around the queues.
    boxes: Mutex<Mailboxes>,
    /// Notified when messages were read, or a reader starts or leaves.
    read: Notify,
    ended: CancellationToken,
    /// Cancelled when no more messages will follow.
    output_ended: CancellationToken,
    liveness: Arc<Liveness>,
}

impl HttpConnections {
    /// Returns the connection that the headers name.
    fn find(
        &self,
        headers: &HeaderMap,
        identity: &Identity,
    ) -> Result<(String, Arc<HttpConnection>), RefusedRequest> {
        let id = text(headers, CONNECTION_ID);
        let id = id.ok_or((
            StatusCode::BAD_REQUEST,
            "the header Acp-Connection-Id is missing",
        ))?;
        let found = lock(&self.open).get(&id).cloned();
        match found.filter(|found| found.identity == *identity) {
            Some(found) => Ok((id, found)),
            // A connection of another user is treated as unknown.
            None => Err((
                StatusCode::NOT_FOUND,
                "there is no such connection; begin again with initialize",
            )),
        }
    }

    /// `DELETE`: ends a connection.
    pub fn delete(&self, headers: &HeaderMap, identity: &Identity) -> Response<ResponseBody> {
        match self.find(headers, identity) {
            Err((status, why)) => plain(status, why),
            Ok((id, connection)) => {
                lock(&self.open).remove(&id);
                connection.ended.cancel();
                plain(StatusCode::ACCEPTED, "")
            }
        }
    }

    /// `POST`: takes a message of the client.
    pub async fn post(
        self: Arc<Self>,
        host: &Arc<Host>,
        request: Request<Incoming>,
        identity: Identity,
    ) -> Response<ResponseBody> {
        let (head, body) = request.into_parts();
        if !text(&head.headers, CONTENT_TYPE.as_str())
            .is_some_and(|kind| kind.starts_with("application/json"))
        {
            return plain(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Content-Type must be application/json",
            );
        }
        let max_bytes = host.settings.limits.message_bytes;
        let body = match read_body(body, max_bytes, &host.budget(&identity).begin()).await {
            Ok(body) => body,
            Err((status, why)) => return plain(status, &why),
        };
        if std::str::from_utf8(&body).is_err() {
            return plain(StatusCode::BAD_REQUEST, "the message is not UTF-8");
        }
        let Some(shape) = Shape::of(&body) else {
            let invalid = std::str::from_utf8(&body)
                .ok()
                .and_then(|text| rpc::read(text).err());
            let error = invalid
                .map(|invalid| rpc::failure(&invalid.id, &invalid.error))
                .unwrap_or_default();
            return json(StatusCode::BAD_REQUEST, error.into());
        };
        if shape.method.as_deref() == Some("initialize")
            && !head.headers.contains_key(CONNECTION_ID)
        {
            let id = shape.id.map(|id| id.get().to_owned());
            return self.initialize(host, identity, body, id).await;
        }
        let (_, connection) = match self.find(&head.headers, &identity) {
            Ok(found) => found,
            Err((status, why)) => return plain(status, why),
        };
        let line = match with_session_id(&head, &shape, &body) {
            Ok(line) => line,
            Err(why) => return plain(StatusCode::BAD_REQUEST, why),
        };
        if let Some(shape) = Shape::of(&line) {
            lock(&connection.boxes).record_message(&shape);
        }
        match connection.lines.send(Line::Text(line)).await {
            Ok(()) => plain(StatusCode::ACCEPTED, ""),
            Err(_) => plain(
                StatusCode::NOT_FOUND,
                "this connection has ended; begin again with initialize",
            ),
        }
    }

    /// Answers `initialize`, the one request whose answer is the response to the POST.
    async fn initialize(
        self: Arc<Self>,
        host: &Arc<Host>,
        identity: Identity,
        body: Bytes,
        id: Option<String>,
    ) -> Response<ResponseBody> {
        let connection = match host.connect(&identity) {
            Ok(connection) => connection,
            Err(why) => return plain(StatusCode::SERVICE_UNAVAILABLE, &why),
        };
        let Connection {
            id: name,
            lines,
            mut outgoing,
            ended,
            liveness,
            ..
        } = connection;
        if lines.send(Line::Text(body)).await.is_err() {
            return plain(
                StatusCode::SERVICE_UNAVAILABLE,
                "this server is about to stop",
            );
        }
        let Some(id) = id else {
            let error = rpc::Error::invalid_request("initialize must be a request with an id");
            return json(
                StatusCode::BAD_REQUEST,
                rpc::failure(&Id::null(), &error).into(),
            );
        };
        let answer = tokio::time::timeout(HANDSHAKE_TIMEOUT, outgoing.next())
            .await
            .ok()
            .flatten();
        let Some(mut answer) = answer else {
            return plain(
                StatusCode::SERVICE_UNAVAILABLE,
                "the handshake was not answered",
            );
        };
        let end = answer
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(answer.len());
        let rest = answer.split_off(end);
        let answered = Shape::of(&answer).is_some_and(|shape| {
            !shape.is_error() && shape.id.is_some_and(|answered| answered.get() == id)
        });
        if !answered {
            // A connection begins only with a successful handshake.
            return json(StatusCode::OK, answer.into());
        }
        let connection = Arc::new(HttpConnection {
            identity,
            lines,
            boxes: Mutex::default(),
            read: Notify::new(),
            ended,
            output_ended: CancellationToken::new(),
            liveness,
        });
        lock(&self.open).insert(name.clone(), connection.clone());
        let this = self.clone();
        let key = name.clone();
        base::task::spawn(async move {
            connection.route(outgoing, rest).await;
            connection.ended.cancel();
            connection.output_ended.cancel();
            lock(&this.open).remove(&key);
        });
        let mut response = json(StatusCode::OK, answer.into());
        if let Ok(name) = HeaderValue::from_str(&name) {
            response.headers_mut().insert(CONNECTION_ID, name);
        }
        // A load balancer can route later requests to this server by the cookie.
        let cookie = format!("adjutant_connection={name}; Path=/acp; HttpOnly; SameSite=Strict");
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
        response
    }

    /// `GET`: opens a stream of server-sent events.
    pub fn get(&self, head: &Parts, identity: &Identity) -> Response<ResponseBody> {
        let events = text(&head.headers, ACCEPT.as_str())
            .is_some_and(|kinds| kinds.contains("text/event-stream") || kinds.contains("*/*"));
        if !events {
            return plain(
                StatusCode::NOT_ACCEPTABLE,
                "this is a stream of events: accept text/event-stream",
            );
        }
        let (name, connection) = match self.find(&head.headers, identity) {
            Ok(found) => found,
            Err((status, why)) => return plain(status, why),
        };
        let stream = text(&head.headers, SESSION_ID);
        let after = match text(&head.headers, LAST_EVENT_ID)
            .map(|id| id.parse::<u64>())
            .transpose()
        {
            Ok(after) => after,
            Err(_) => {
                return plain(
                    StatusCode::BAD_REQUEST,
                    "Last-Event-ID is not an id of this stream",
                );
            }
        };
        let read = lock(&connection.boxes).read(&stream, after);
        let (reader, changed) = match read {
            Ok(stream_reader) => stream_reader,
            Err(ResumeError::NoSession) => {
                return plain(StatusCode::NOT_FOUND, "this connection has no such session");
            }
            Err(ResumeError::Gone) => {
                let why = "the events after that one are no longer stored; open the stream without Last-Event-ID, and load the session again";
                return plain(StatusCode::CONFLICT, why);
            }
        };
        let stream_reader = StreamReader {
            connection,
            stream: stream.clone(),
            reader,
            changed,
            begun: false,
        };
        let events = futures_util::stream::unfold(stream_reader, |mut stream_reader| async move {
            let events = stream_reader.next().await?;
            Some((Ok::<_, Infallible>(Frame::data(events)), stream_reader))
        });
        let mut response = Response::new(StreamBody::new(events).boxed_unsync());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        let named = [(CONNECTION_ID, Some(name)), (SESSION_ID, stream)];
        for (header, value) in named {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                headers.insert(header, value);
            }
        }
        response
    }
}

impl HttpConnection {
    /// Queues the agent's output on the streams, until the connection ends or has had no reader for
    /// too long.
    async fn route(&self, mut outgoing: OutboxReader, first: Vec<u8>) {
        let mut lines = Some(first);
        while let Some(taken) = lines.take() {
            let taken = Bytes::from(taken);
            let mut start = 0;
            for end in memchr::memchr_iter(b'\n', &taken) {
                if end > start && lock(&self.boxes).put(taken.slice(start..end)).is_err() {
                    tracing::warn!(
                        "a connection ends: too much waits for a stream that the client does not read"
                    );
                    return;
                }
                start = end + 1;
            }
            tokio::select! {
                more = self.next_output(&mut outgoing) => lines = more,
                () = self.answer_liveness_checks() => {}
                () = self.wait_until_abandoned() => tracing::info!("a connection ends: the client does not read its streams"),
            }
        }
    }

    /// Answers liveness checks for the client, as long as it reads a stream.
    async fn answer_liveness_checks(&self) {
        loop {
            self.liveness.wait_for_request().await;
            if lock(&self.boxes).are_read() {
                self.liveness.record_sign_of_life();
            }
        }
    }

    async fn next_output(&self, outgoing: &mut OutboxReader) -> Option<Vec<u8>> {
        self.wait_until(Mailboxes::can_queue_more).await;
        outgoing.next().await
    }

    /// Completes when no stream has had a reader for too long.
    async fn wait_until_abandoned(&self) {
        loop {
            self.wait_until(|boxes| !boxes.are_read()).await;
            if tokio::time::timeout(UNREAD_TIMEOUT, self.wait_until(Mailboxes::are_read))
                .await
                .is_err()
            {
                return;
            }
        }
    }

    async fn wait_until(&self, done: impl Fn(&Mailboxes) -> bool) {
        loop {
            let read = self.read.notified();
            tokio::pin!(read);
            read.as_mut().enable();
            if done(&lock(&self.boxes)) {
                return;
            }
            read.await;
        }
    }
}

/// The reader of a stream.
struct StreamReader {
    connection: Arc<HttpConnection>,
    stream: Stream,
    reader: u64,
    changed: Arc<Notify>,
    begun: bool,
}

impl StreamReader {
    /// Returns the next events, or `None` at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.begun, true) {
            self.connection.read.notify_waiters();
            // The first bytes make proxies forward the response headers.
            return Some(Bytes::from_static(b":\n\n"));
        }
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let lines = lock(&self.connection.boxes).take(&self.stream, self.reader)?;
            if !lines.is_empty() {
                self.connection.read.notify_waiters();
                return Some(events(&lines));
            }
            tokio::select! {
                () = changed => {}
                () = self.connection.output_ended.cancelled() => {
                    let last = lock(&self.connection.boxes).take(&self.stream, self.reader)?;
                    return (!last.is_empty()).then(|| events(&last));
                }
                () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => return Some(Bytes::from_static(b":\n\n")),
            }
        }
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        lock(&self.connection.boxes).leave(&self.stream, self.reader);
        self.connection.read.notify_waiters();
    }
}

/// Reads the body of a request.
///
/// # Errors
/// The body is too long, arrives too slowly, or exceeds the budget; the message is for the client.
async fn read_body(
    mut body: Incoming,
    max_bytes: usize,
    unfinished: &IncompleteMessage,
) -> Result<Bytes, (StatusCode, String)> {
    let wrong = |status, why: &str| (status, why.to_owned());
    let end = Instant::now() + BODY_TIMEOUT;
    let mut all = BytesMut::new();
    loop {
        let next = end.min(Instant::now() + BODY_PART_TIMEOUT);
        let frame = tokio::time::timeout_at(next, body.frame()).await;
        let frame = frame.map_err(|_| {
            wrong(
                StatusCode::REQUEST_TIMEOUT,
                "the message did not arrive in time",
            )
        })?;
        let Some(frame) = frame else {
            return Ok(all.freeze());
        };
        let frame =
            frame.map_err(|_| wrong(StatusCode::BAD_REQUEST, "the message is incomplete"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if all.len() + data.len() > max_bytes {
            let why = format!("a message may have at max_bytes {max_bytes} bytes");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        if !unfinished.grow(data.len()) {
            let why = "too many messages are incomplete; send this one again later";
            return Err(wrong(StatusCode::SERVICE_UNAVAILABLE, why));
        }
        all.extend_from_slice(&data);
    }
}

/// Encodes each message as one server-sent event, with the number as its id.
fn events(lines: &[NumberedLine]) -> Bytes {
    let mut out =
        BytesMut::with_capacity(lines.iter().map(|numbered| numbered.line.len() + 32).sum());
    for NumberedLine { number, line } in lines {
        out.put_slice(format!("id: {number}\ndata: ").as_bytes());
        out.put_slice(line);
        out.put_slice(b"\n\n");
    }
    out.freeze()
}

/// Returns the line of a posted message, with the session of the header if the message names none.
fn with_session_id(head: &Parts, shape: &Shape<'_>, body: &Bytes) -> Result<Bytes, &'static str> {
    let named = if shape.method.is_some() {
        text(&head.headers, SESSION_ID)
    } else {
        None
    };
    let Some(named) = named else {
        return Ok(body.clone());
    };
    if shape
        .method
        .as_deref()
        .is_some_and(|method| method.starts_with("$/"))
    {
        return Ok(body.clone());
    }
    match shape.session() {
        Some(session) if session == named => Ok(body.clone()),
        Some(_) => Err("the header Acp-Session-Id and sessionId name different sessions"),
        None => {
            let wrong = "params must be an object if the header Acp-Session-Id is set";
            let mut message: serde_json::Value = serde_json::from_slice(body).map_err(|_| wrong)?;
            let members = message.as_object_mut().ok_or(wrong)?;
            let params = members
                .entry("params")
                .or_insert_with(|| serde_json::json!({}));
            params
                .as_object_mut()
                .ok_or(wrong)?
                .insert("sessionId".into(), named.into());
            Ok(Bytes::from(message.to_string()))
        }
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn json(status: StatusCode, body: Bytes) -> Response<ResponseBody> {
    let mut response = super::reply::of(status, body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
