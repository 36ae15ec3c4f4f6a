//! What waits to be read on the streams of a connection over plain HTTP: one stream for the connection, and one for
//! each of its sessions. This is bookkeeping only; `streams.rs` speaks HTTP.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::sync::Notify;

/// Streams of sessions that a client asks for before it has opened them; it asks for the stream first.
const UNKNOWN: usize = 16;

/// How much may wait for a stream that nobody reads, in bytes and messages.
const HELD_BYTES: usize = 16 << 20;
const HELD: usize = 16_384;

/// How much may wait in all before no more is made.
const ROOM: usize = 1 << 20;

/// What a message is, as far as its way is concerned.
#[derive(Debug, Deserialize)]
pub struct Shape<'a> {
    #[serde(borrow, default)]
    pub id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    session_id: Option<String>,
}

impl<'a> Shape<'a> {
    /// Reads a message; none where it is not an object.
    pub fn of(text: &'a [u8]) -> Option<Self> {
        // A list would be taken for the members of an object, in some order.
        let is_object = text.trim_ascii_start().starts_with(b"{");
        serde_json::from_slice(text).ok().filter(|_| is_object)
    }

    /// The session it is about.
    pub fn session(&self) -> Option<String> {
        if self.method.as_deref().is_some_and(|method| method.starts_with("$/")) {
            return None;
        }
        named(self.params?)
    }

    /// Whether it has an id, no method, and a result or an error.
    pub fn is_response(&self) -> bool {
        self.method.is_none() && self.id.is_some() && (self.result.is_some() || self.error.is_some())
    }

    /// Whether it answers with an error.
    pub fn is_error(&self) -> bool {
        self.is_response() && self.error.is_some()
    }
}

fn named(value: &RawValue) -> Option<String> {
    serde_json::from_str::<Named>(value.get()).ok()?.session_id
}

/// A stream: the connection's, or a session's.
pub type Stream = Option<String>;

/// Where a response goes, once there is one.
struct Pending {
    stream: Stream,
    /// Its result names a session that is this connection's from then on.
    opens: bool,
}

/// What waits for a stream.
#[derive(Default)]
struct Mailbox {
    waiting: VecDeque<Bytes>,
    bytes: usize,
    /// Requests of ours that were read and not answered, by id.
    asked: BTreeMap<String, Bytes>,
    /// Who reads it, counted; the newest reads.
    reader: u64,
    is_read: bool,
    /// Whether the connection has the session.
    known: bool,
    changed: Arc<Notify>,
}

/// What waits to be read of one connection's streams.
#[derive(Default)]
pub struct Mailboxes {
    connection: Mailbox,
    sessions: HashMap<String, Mailbox>,
    /// Requests of the client that are not answered.
    pending: HashMap<String, Pending>,
    readers: u64,
}

/// Nobody reads a stream for which too much waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow;

impl Mailboxes {
    /// Takes note of a message of the client.
    pub fn heard(&mut self, shape: &Shape<'_>) {
        let Some(id) = shape.id.map(RawValue::get) else { return };
        if shape.is_response() {
            self.connection.asked.remove(id);
            for mailbox in self.sessions.values_mut() {
                mailbox.asked.remove(id);
            }
            return;
        }
        let opens = matches!(shape.method.as_deref(), Some("session/new" | "session/fork"));
        self.pending.insert(id.to_owned(), Pending { stream: shape.session(), opens });
    }

    /// Puts a message of ours where it will be read.
    ///
    /// # Errors
    /// [`Overflow`].
    pub fn put(&mut self, line: Bytes) -> Result<(), Overflow> {
        let shape = Shape::of(&line);
        let mut stream = None;
        let mut asks = None;
        if let Some(shape) = &shape {
            let id = shape.id.map(RawValue::get);
            if shape.is_response() {
                let pending = id.and_then(|id| self.pending.remove(id));
                if let Some(pending) = pending {
                    if let Some(opened) = shape.result.filter(|_| pending.opens).and_then(named) {
                        self.sessions.entry(opened).or_default().known = true;
                    }
                    // What nobody reads there, as before a load is answered, goes where somebody does.
                    let read = |session: &String| self.sessions.get(session).is_some_and(|mailbox| mailbox.is_read);
                    stream = if pending.opens { None } else { pending.stream.filter(read) };
                }
            } else {
                stream = shape.session();
                asks = id.map(str::to_owned);
            }
        }
        let mailbox = match stream {
            None => &mut self.connection,
            Some(session) => {
                let mailbox = self.sessions.entry(session).or_default();
                mailbox.known = true;
                mailbox
            }
        };
        if let Some(id) = asks {
            mailbox.asked.insert(id, line.clone());
        }
        mailbox.bytes += line.len();
        mailbox.waiting.push_back(line);
        mailbox.changed.notify_waiters();
        let full = mailbox.bytes > HELD_BYTES || mailbox.waiting.len() > HELD;
        if full && !mailbox.is_read { Err(Overflow) } else { Ok(()) }
    }

    /// Begins to read a stream; whoever has read it does so no longer. What was asked there and not answered is told
    /// again. None: the connection has no such session.
    pub fn read(&mut self, stream: &Stream) -> Option<(u64, Arc<Notify>)> {
        self.readers += 1;
        let reader = self.readers;
        let unknown = self.sessions.values().filter(|mailbox| !mailbox.known).count();
        let mailbox = match stream {
            None => &mut self.connection,
            Some(session) => match self.sessions.get_mut(session) {
                Some(mailbox) => mailbox,
                None if unknown >= UNKNOWN => return None,
                None => self.sessions.entry(session.clone()).or_default(),
            },
        };
        let again: Vec<Bytes> =
            mailbox.asked.values().filter(|line| !mailbox.waiting.contains(line)).cloned().collect();
        for line in again.into_iter().rev() {
            mailbox.bytes += line.len();
            mailbox.waiting.push_front(line);
        }
        (mailbox.reader, mailbox.is_read) = (reader, true);
        mailbox.changed.notify_waiters();
        Some((reader, mailbox.changed.clone()))
    }

    fn mailbox(&mut self, stream: &Stream) -> Option<&mut Mailbox> {
        match stream {
            None => Some(&mut self.connection),
            Some(session) => self.sessions.get_mut(session),
        }
    }

    /// Takes what waits for a reader; none where somebody else reads by now.
    pub fn take(&mut self, stream: &Stream, reader: u64) -> Option<Vec<Bytes>> {
        let mailbox = self.mailbox(stream).filter(|mailbox| mailbox.reader == reader)?;
        mailbox.bytes = 0;
        Some(mailbox.waiting.drain(..).collect())
    }

    /// A reader has gone.
    pub fn leave(&mut self, stream: &Stream, reader: u64) {
        if let Some(mailbox) = self.mailbox(stream).filter(|mailbox| mailbox.reader == reader) {
            mailbox.is_read = false;
            if !mailbox.known && mailbox.waiting.is_empty() && stream.is_some() {
                self.sessions.retain(|session, _| Some(session) != stream.as_ref());
            }
        }
    }

    /// Whether somebody reads any of the streams.
    pub fn are_read(&self) -> bool {
        self.connection.is_read || self.sessions.values().any(|mailbox| mailbox.is_read)
    }

    /// Whether there is room for more: what waits for streams that are read is little.
    pub fn have_room(&self) -> bool {
        let all = std::iter::once(&self.connection).chain(self.sessions.values());
        all.filter(|mailbox| mailbox.is_read).map(|mailbox| mailbox.bytes).sum::<usize>() < ROOM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(boxes: &mut Mailboxes, line: &str) {
        boxes.heard(&Shape::of(line.as_bytes()).unwrap());
    }

    fn put(boxes: &mut Mailboxes, line: &str) {
        boxes.put(Bytes::from(line.to_owned())).unwrap();
    }

    fn taken(boxes: &mut Mailboxes, stream: &Stream, reader: u64) -> Vec<String> {
        let lines = boxes.take(stream, reader).unwrap();
        lines.iter().map(|line| String::from_utf8(line.to_vec()).unwrap()).collect()
    }

    const NEW: &str = r#"{"id":1,"method":"session/new","params":{}}"#;
    const OPENED: &str = r#"{"id":1,"result":{"sessionId":"s"}}"#;
    const UPDATE: &str = r#"{"method":"session/update","params":{"sessionId":"s","update":{}}}"#;
    const ASK: &str = r#"{"id":7,"method":"session/request_permission","params":{"sessionId":"s"}}"#;

    #[test]
    fn everything_is_read_where_it_belongs() {
        let mut boxes = Mailboxes::default();
        heard(&mut boxes, NEW);
        put(&mut boxes, OPENED);
        // Before its stream is open.
        put(&mut boxes, UPDATE);
        heard(&mut boxes, r#"{"id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#);
        let session = Some("s".to_owned());
        let (own, _) = boxes.read(&None).unwrap();
        let (its, _) = boxes.read(&session).unwrap();
        put(&mut boxes, r#"{"id":2,"result":{}}"#);
        put(&mut boxes, r#"{"method":"$/cancel_request","params":{"sessionId":"s"}}"#);
        assert_eq!(
            taken(&mut boxes, &None, own),
            [OPENED, r#"{"method":"$/cancel_request","params":{"sessionId":"s"}}"#]
        );
        assert_eq!(taken(&mut boxes, &session, its), [UPDATE, r#"{"id":2,"result":{}}"#]);
    }

    #[test]
    fn an_answer_goes_where_somebody_reads() {
        let mut boxes = Mailboxes::default();
        heard(&mut boxes, r#"{"id":"a","method":"session/load","params":{"sessionId":"s"}}"#);
        let (own, _) = boxes.read(&None).unwrap();
        put(&mut boxes, r#"{"id":"a","result":{}}"#);
        assert_eq!(taken(&mut boxes, &None, own), [r#"{"id":"a","result":{}}"#]);
    }

    #[test]
    fn the_newer_reader_reads_and_is_asked_again() {
        let mut boxes = Mailboxes::default();
        let session = Some("s".to_owned());
        let (old, _) = boxes.read(&session).unwrap();
        put(&mut boxes, ASK);
        assert_eq!(taken(&mut boxes, &session, old), [ASK]);
        let (new, _) = boxes.read(&session).unwrap();
        assert_eq!(boxes.take(&session, old), None);
        assert_eq!(taken(&mut boxes, &session, new), [ASK]);
        heard(&mut boxes, r#"{"id":7,"result":{}}"#);
        boxes.leave(&session, new);
        let (last, _) = boxes.read(&session).unwrap();
        assert!(taken(&mut boxes, &session, last).is_empty());
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut boxes = Mailboxes::default();
        let line =
            Bytes::from(format!(r#"{{"method":"x","params":{{"sessionId":"s","x":"{}"}}}}"#, "x".repeat(1 << 20)));
        let held = (0..40).take_while(|_| boxes.put(line.clone()).is_ok()).count();
        assert!((14..17).contains(&held), "{held}");
        for n in 0..UNKNOWN {
            assert!(boxes.read(&Some(format!("u{n}"))).is_some());
        }
        assert!(boxes.read(&Some("one too many".into())).is_none());
        boxes.leave(&Some("u0".into()), 1);
        assert!(boxes.read(&Some("one too many".into())).is_some());
    }
}
