//! The events of a user's sessions as server-sent events, for programs that observe.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::admission::{Caller, Identity};
use super::host::{Host, Watch};
use super::reply::{ResponseBody, plain};
use super::slots::SocketSlot;
use super::streams::LAST_EVENT_ID;
use base::id::SessionId;
use events::bus::EventFilter;

/// The interval of comments on an idle stream, which show that it is alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// `GET /events`: opens a stream of the events of the user's sessions, or of the session in the
/// query.
pub fn get(
    host: &Arc<Host>,
    head: &Parts,
    identity: &Identity,
    caller: &Caller,
) -> Response<ResponseBody> {
    let session = match session(head.uri.query().unwrap_or_default()) {
        Ok(session) => session,
        Err(why) => return plain(StatusCode::BAD_REQUEST, why),
    };
    let after = match last(head) {
        Ok(after) => after,
        Err(why) => return plain(StatusCode::BAD_REQUEST, why),
    };
    let filter = EventFilter {
        session,
        roots: identity.roots.clone(),
        traces: false,
    };
    let watch = match host.watch(identity, filter, after) {
        Ok(watch) => watch,
        Err(why) => return plain(StatusCode::SERVICE_UNAVAILABLE, &why),
    };
    let stream = Stream {
        watch,
        _slot: caller.slot.clone(),
        begun: false,
    };
    let events = futures_util::stream::unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(event)), stream))
    });
    let mut response = Response::new(StreamBody::new(events).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Returns the session that a query selects.
fn session(query: &str) -> Result<Option<SessionId>, &'static str> {
    let mut selected = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let id = pair
            .strip_prefix("session=")
            .ok_or("only session=ID may follow /events?")?;
        let id = SessionId::new(id);
        if !id.is_well_formed() {
            return Err("session is the id of a session, such as ses_0123456789abcdef");
        }
        selected = Some(id);
    }
    Ok(selected)
}

/// Returns the id of the last event that a client has received, or 0 to receive all that are
/// stored.
fn last(head: &Parts) -> Result<Option<&str>, &'static str> {
    let Some(id) = head.headers.get(LAST_EVENT_ID) else {
        return Ok(None);
    };
    let is_known = |id: &&str| *id == "0" || id.starts_with("evt_");
    let id = id.to_str().ok().filter(is_known);
    id.map(Some)
        .ok_or("Last-Event-ID is the id of an event, or 0 for all events that are stored")
}

/// Returns an event as the stream has it.
fn frame(event: &Value) -> Bytes {
    match event.get("id").and_then(Value::as_str) {
        Some(id) => format!("id: {id}\ndata: {event}\n\n").into(),
        None => format!("data: {event}\n\n").into(),
    }
}

struct Stream {
    watch: Watch,
    /// The socket is counted as long as the stream is open.
    _slot: Option<SocketSlot>,
    begun: bool,
}

impl Stream {
    /// Returns the next event, or `None` at the end of the stream. An event that is not yet written
    /// to the socket is the only one outside the queue.
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.begun, true) {
            let first = json!({ "type": "server.connected", "properties": {} });
            return Some(frame(&first));
        }
        tokio::select! {
            event = self.watch.events.next() => Some(frame(&event)),
            () = self.watch.ended.cancelled() => self.watch.events.try_next().as_ref().map(frame),
            () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => Some(Bytes::from_static(b":\n\n")), // the interval itself
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_selects_one_session_or_none() {
        let id = "ses_0123456789abcdef0123456789";
        let selected = SessionId::new(id);
        assert_eq!(session(""), Ok(None));
        assert_eq!(session(&format!("session={id}")), Ok(Some(selected)));
        for wrong in ["session=../x", "session=", "sesion=x", "session=a&x=1"] {
            assert!(session(wrong).is_err(), "{wrong}");
        }
    }
}
