//! The queues of messages for the streams of a connection over plain HTTP: one stream for the
//! connection, and one for each of its sessions. Contains no HTTP, which is in `streams.rs`.
//!
//! HTTP does not report whether a message on a stream was received. So each message has a number in
//! its stream and is retained after it was sent, within a limit: a client that reconnects states
//! the last number it has received, and gets the messages after it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::sync::Notify;

/// The maximum number of streams for unknown sessions: a client opens a session's stream before the
/// session.
const MAX_UNKNOWN_SESSIONS: usize = 16;

/// The limits of the queue of a stream without a reader, in bytes and in messages.
const MAX_QUEUED_BYTES: usize = 16 << 20;
const MAX_QUEUED_LINES: usize = 16_384;

/// The maximum size in bytes of the sent messages that a connection retains for a client that may
/// not have received them. It is low, because many connections may be open for a long time, and few
/// are resumed.
const MAX_RETAINED_BYTES: usize = 1 << 20;

/// The size in bytes of all read queues above which no more output is taken from the connection.
const MAX_READ_QUEUE_BYTES: usize = 1 << 20;

/// The members of a message that determine its stream.
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
    /// Parses a message. `None` if it is not a JSON object.
    pub fn of(text: &'a [u8]) -> Option<Self> {
        // serde would also accept a list, with the members in order.
        if !text.trim_ascii_start().starts_with(b"{") {
            return None;
        }
        serde_json::from_slice(text).ok()
    }

    /// Returns the session in the params; `None` for `$/` methods.
    pub fn session(&self) -> Option<String> {
        if self
            .method
            .as_deref()
            .is_some_and(|method| method.starts_with("$/"))
        {
            return None;
        }
        named(self.params?)
    }

    /// Returns the id of the request that this message cancels, in its original spelling.
    pub fn cancelled(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancels<'a> {
            #[serde(borrow)]
            request_id: &'a RawValue,
        }
        let cancels: Cancels<'_> = serde_json::from_str(self.params?.get()).ok()?;
        Some(cancels.request_id.get().to_owned())
    }

    /// Returns whether the message has an id, no method, and a result or an error.
    pub fn is_response(&self) -> bool {
        self.method.is_none()
            && self.id.is_some()
            && (self.result.is_some() || self.error.is_some())
    }

    /// Returns whether the message is an error response.
    pub fn is_error(&self) -> bool {
        self.is_response() && self.error.is_some()
    }
}

fn named(value: &RawValue) -> Option<String> {
    serde_json::from_str::<Named>(value.get()).ok()?.session_id
}

/// A stream's session; `None` for the connection's stream.
pub type Stream = Option<String>;

/// The stream of a future response.
struct Pending {
    stream: Stream,
    /// The result names a new session of this connection.
    opens: bool,
}

/// A message with its number in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedLine {
    /// The number, starting at 1.
    pub number: u64,
    pub line: Bytes,
}

/// The queue of a stream.
#[derive(Default)]
struct Mailbox {
    waiting: VecDeque<NumberedLine>,
    bytes: usize,
    /// The number of the newest message.
    last: u64,
    /// Messages that were sent, and may not have been received.
    sent: VecDeque<NumberedLine>,
    sent_bytes: usize,
    /// The agent's requests that were sent and not answered, by id.
    unanswered: BTreeMap<String, Bytes>,
    /// The number of the current reader. A new reader replaces the old one.
    reader: u64,
    is_read: bool,
    /// True if the connection has the session.
    known: bool,
    changed: Arc<Notify>,
}

/// The queues of all streams of a connection.
#[derive(Default)]
pub struct Mailboxes {
    connection: Mailbox,
    sessions: HashMap<String, Mailbox>,
    /// The client's unanswered requests.
    pending: HashMap<String, Pending>,
    readers: u64,
}

impl Mailbox {
    fn push(&mut self, line: Bytes) {
        self.last += 1;
        self.bytes += line.len();
        self.waiting.push_back(NumberedLine {
            number: self.last,
            line,
        });
        self.changed.notify_waiters();
    }

    /// Takes the queued messages, and retains them as sent.
    fn take(&mut self) -> Vec<NumberedLine> {
        let taken: Vec<NumberedLine> = self.waiting.drain(..).collect();
        self.sent_bytes += self.bytes;
        self.bytes = 0;
        self.sent.extend(taken.iter().cloned());
        taken
    }

    /// Drops the oldest retained message. Returns `false` if there is none.
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.sent.pop_front();
        self.sent_bytes -= oldest.as_ref().map_or(0, |oldest| oldest.line.len());
        oldest.is_some()
    }

    /// Queues all messages after number `last` again.
    ///
    /// # Errors
    /// One of them is no longer retained, or `last` was never sent.
    fn resume_after(&mut self, last: u64) -> Result<(), ResumeError> {
        let first = self
            .sent
            .front()
            .or(self.waiting.front())
            .map_or(self.last + 1, |line| line.number);
        if last + 1 < first || last > self.last {
            return Err(ResumeError::Gone);
        }
        while self.sent.front().is_some_and(|line| line.number <= last) {
            self.forget_oldest();
        }
        while let Some(line) = self.sent.pop_back() {
            self.sent_bytes -= line.line.len();
            self.bytes += line.line.len();
            self.waiting.push_front(line);
        }
        Ok(())
    }
}

/// The reason why a stream cannot be read from the requested message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeError {
    /// The connection has no such session.
    NoSession,
    /// The messages after it are no longer retained.
    Gone,
}

/// The queue of a stream without a reader is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow;

impl Mailboxes {
    /// Records a message of the client.
    pub fn record_message(&mut self, shape: &Shape<'_>) {
        let Some(id) = shape.id.map(RawValue::get) else {
            return;
        };
        if shape.is_response() {
            self.connection.unanswered.remove(id);
            for mailbox in self.sessions.values_mut() {
                mailbox.unanswered.remove(id);
            }
            return;
        }
        let opens = matches!(
            shape.method.as_deref(),
            Some("session/new" | "session/fork")
        );
        self.pending.insert(
            id.to_owned(),
            Pending {
                stream: shape.session(),
                opens,
            },
        );
    }

    /// Queues a message of the agent on its stream.
    ///
    /// # Errors
    /// [`Overflow`].
    pub fn put(&mut self, line: Bytes) -> Result<(), Overflow> {
        let shape = Shape::of(&line);
        let mut stream = None;
        let mut request = None;
        if let Some(shape) = &shape {
            let id = shape.id.map(RawValue::get);
            if shape.is_response() {
                let pending = id.and_then(|id| self.pending.remove(id));
                if let Some(pending) = pending {
                    let opened = if pending.opens {
                        shape.result.and_then(named)
                    } else {
                        None
                    };
                    if let Some(opened) = opened {
                        self.sessions.entry(opened).or_default().known = true;
                    }
                    // A response on a stream without a reader goes to the connection's stream, for
                    // example before a load is answered.
                    let read = |session: &String| {
                        self.sessions
                            .get(session)
                            .is_some_and(|mailbox| mailbox.is_read)
                    };
                    stream = if pending.opens {
                        None
                    } else {
                        pending.stream.filter(read)
                    };
                }
            } else {
                stream = shape.session();
                request = id.map(str::to_owned);
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
        if let Some(id) = request {
            mailbox.unanswered.insert(id, line.clone());
        }
        mailbox.push(line);
        let full = mailbox.bytes > MAX_QUEUED_BYTES || mailbox.waiting.len() > MAX_QUEUED_LINES;
        if full && !mailbox.is_read {
            Err(Overflow)
        } else {
            Ok(())
        }
    }

    /// Starts to read a stream, in place of an earlier reader. With `after`, the messages after
    /// that number are queued again; otherwise, the unanswered requests of the agent are.
    ///
    /// # Errors
    /// [`ResumeError`].
    pub fn read(
        &mut self,
        stream: &Stream,
        after: Option<u64>,
    ) -> Result<(u64, Arc<Notify>), ResumeError> {
        self.readers += 1;
        let reader = self.readers;
        let unknown = self
            .sessions
            .values()
            .filter(|mailbox| !mailbox.known)
            .count();
        let mailbox = match stream {
            None => &mut self.connection,
            Some(session) => match self.sessions.get_mut(session) {
                Some(mailbox) => mailbox,
                None if unknown >= MAX_UNKNOWN_SESSIONS => return Err(ResumeError::NoSession),
                None if after.is_some_and(|after| after > 0) => return Err(ResumeError::Gone),
                None => self.sessions.entry(session.clone()).or_default(),
            },
        };
        match after {
            Some(after) => mailbox.resume_after(after)?,
            None => {
                let waits = |request: &Bytes| {
                    mailbox
                        .waiting
                        .iter()
                        .any(|waiting| waiting.line == *request)
                };
                let again: Vec<Bytes> = mailbox
                    .unanswered
                    .values()
                    .filter(|request| !waits(request))
                    .cloned()
                    .collect();
                again.into_iter().for_each(|line| mailbox.push(line));
            }
        }
        mailbox.reader = reader;
        mailbox.is_read = true;
        mailbox.changed.notify_waiters();
        Ok((reader, mailbox.changed.clone()))
    }

    fn mailbox(&mut self, stream: &Stream) -> Option<&mut Mailbox> {
        match stream {
            None => Some(&mut self.connection),
            Some(session) => self.sessions.get_mut(session),
        }
    }

    /// Takes the queued messages for a reader. `None` if another reader has replaced it.
    pub fn take(&mut self, stream: &Stream, reader: u64) -> Option<Vec<NumberedLine>> {
        let taken = self
            .mailbox(stream)
            .filter(|mailbox| mailbox.reader == reader)?
            .take();
        self.forget();
        Some(taken)
    }

    /// Drops retained messages beyond the limit, the oldest of the largest stream first.
    fn forget(&mut self) {
        let all = |boxes: &Self| {
            let sessions = boxes
                .sessions
                .values()
                .map(|mailbox| mailbox.sent_bytes)
                .sum::<usize>();
            boxes.connection.sent_bytes + sessions
        };
        let mut retained = all(self);
        while retained > MAX_RETAINED_BYTES {
            let largest = std::iter::once(&mut self.connection).chain(self.sessions.values_mut());
            let Some(largest) = largest.max_by_key(|mailbox| mailbox.sent_bytes) else {
                return;
            };
            let before = largest.sent_bytes;
            if !largest.forget_oldest() {
                return;
            }
            retained -= before - largest.sent_bytes;
        }
    }

    /// Removes a reader.
    pub fn leave(&mut self, stream: &Stream, reader: u64) {
        if let Some(mailbox) = self
            .mailbox(stream)
            .filter(|mailbox| mailbox.reader == reader)
        {
            mailbox.is_read = false;
            if !mailbox.known && mailbox.waiting.is_empty() && stream.is_some() {
                self.sessions
                    .retain(|session, _| Some(session) != stream.as_ref());
            }
        }
    }

    /// Returns whether any stream has a reader.
    pub fn are_read(&self) -> bool {
        self.connection.is_read || self.sessions.values().any(|mailbox| mailbox.is_read)
    }

    /// Returns whether more output can be queued: the queues with a reader are short.
    pub fn can_queue_more(&self) -> bool {
        let all = std::iter::once(&self.connection).chain(self.sessions.values());
        let read = all.filter(|mailbox| mailbox.is_read);
        read.map(|mailbox| mailbox.bytes).sum::<usize>() < MAX_READ_QUEUE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(boxes: &mut Mailboxes, line: &str) {
        boxes.record_message(&Shape::of(line.as_bytes()).unwrap());
    }

    fn put(boxes: &mut Mailboxes, line: &str) {
        boxes.put(Bytes::from(line.to_owned())).unwrap();
    }

    fn taken(boxes: &mut Mailboxes, stream: &Stream, reader: u64) -> Vec<String> {
        let lines = boxes.take(stream, reader).unwrap();
        lines
            .iter()
            .map(|numbered| String::from_utf8(numbered.line.to_vec()).unwrap())
            .collect()
    }

    const NEW: &str = r#"{"id":1,"method":"session/new","params":{}}"#;
    const OPENED: &str = r#"{"id":1,"result":{"sessionId":"s"}}"#;
    const UPDATE: &str = r#"{"method":"session/update","params":{"sessionId":"s","update":{}}}"#;
    const ASK: &str =
        r#"{"id":7,"method":"session/request_permission","params":{"sessionId":"s"}}"#;

    #[test]
    fn message_is_queued_on_its_stream() {
        let mut boxes = Mailboxes::default();
        heard(&mut boxes, NEW);
        put(&mut boxes, OPENED);
        // The stream is not open yet.
        put(&mut boxes, UPDATE);
        heard(
            &mut boxes,
            r#"{"id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#,
        );
        let session = Some("s".to_owned());
        let (own, _) = boxes.read(&None, None).unwrap();
        let (its, _) = boxes.read(&session, None).unwrap();
        put(&mut boxes, r#"{"id":2,"result":{}}"#);
        put(
            &mut boxes,
            r#"{"method":"$/cancel_request","params":{"sessionId":"s"}}"#,
        );
        assert_eq!(
            taken(&mut boxes, &None, own),
            [
                OPENED,
                r#"{"method":"$/cancel_request","params":{"sessionId":"s"}}"#
            ]
        );
        assert_eq!(
            taken(&mut boxes, &session, its),
            [UPDATE, r#"{"id":2,"result":{}}"#]
        );
    }

    #[test]
    fn response_goes_to_connection_stream_if_session_stream_has_no_reader() {
        let mut boxes = Mailboxes::default();
        heard(
            &mut boxes,
            r#"{"id":"a","method":"session/load","params":{"sessionId":"s"}}"#,
        );
        let (own, _) = boxes.read(&None, None).unwrap();
        put(&mut boxes, r#"{"id":"a","result":{}}"#);
        assert_eq!(taken(&mut boxes, &None, own), [r#"{"id":"a","result":{}}"#]);
    }

    #[test]
    fn newer_reader_replaces_older_and_gets_open_requests() {
        let mut boxes = Mailboxes::default();
        let session = Some("s".to_owned());
        let (old, _) = boxes.read(&session, None).unwrap();
        put(&mut boxes, ASK);
        assert_eq!(taken(&mut boxes, &session, old), [ASK]);
        let (new, _) = boxes.read(&session, None).unwrap();
        assert_eq!(boxes.take(&session, old), None);
        assert_eq!(taken(&mut boxes, &session, new), [ASK]);
        heard(&mut boxes, r#"{"id":7,"result":{}}"#);
        boxes.leave(&session, new);
        let (last, _) = boxes.read(&session, None).unwrap();
        assert!(taken(&mut boxes, &session, last).is_empty());
    }

    #[test]
    fn resumed_stream_continues_after_last_received_message() {
        let mut boxes = Mailboxes::default();
        let session = Some("s".to_owned());
        let update = |n: u64| format!(r#"{{"method":"x","params":{{"sessionId":"s","n":{n}}}}}"#);
        for n in 1..=3 {
            put(&mut boxes, &update(n));
        }
        let (old, _) = boxes.read(&session, None).unwrap();
        assert_eq!(
            boxes
                .take(&session, old)
                .unwrap()
                .iter()
                .map(|line| line.number)
                .collect::<Vec<_>>(),
            [1, 2, 3]
        );
        put(&mut boxes, ASK);
        put(&mut boxes, &update(5));
        // The stream broke after the second message: the later ones follow once, in order, with the
        // question.
        let (new, _) = boxes.read(&session, Some(2)).unwrap();
        assert_eq!(
            taken(&mut boxes, &session, new),
            [update(3), ASK.to_owned(), update(5)]
        );
        let (again, _) = boxes.read(&session, Some(5)).unwrap();
        assert!(taken(&mut boxes, &session, again).is_empty());
        // A client that has received the fifth message cannot resume before it.
        assert_eq!(
            boxes.read(&session, Some(2)).unwrap_err(),
            ResumeError::Gone
        );
        assert_eq!(
            boxes.read(&session, Some(6)).unwrap_err(),
            ResumeError::Gone
        );
        assert_eq!(
            boxes.read(&Some("other".into()), Some(1)).unwrap_err(),
            ResumeError::Gone
        );
        assert!(boxes.read(&None, Some(0)).is_ok());
    }

    #[test]
    fn retained_messages_are_bounded() {
        let mut boxes = Mailboxes::default();
        let line = |session: &str| {
            let text = "x".repeat(1 << 16);
            Bytes::from(format!(
                r#"{{"method":"x","params":{{"sessionId":"{session}","x":"{text}"}}}}"#
            ))
        };
        let large = Some("large".to_owned());
        let small = Some("small".to_owned());
        let (reader, _) = boxes.read(&large, None).unwrap();
        let (other, _) = boxes.read(&small, None).unwrap();
        boxes.put(line("small")).unwrap();
        assert_eq!(boxes.take(&small, other).unwrap().len(), 1);
        for _ in 0..20 {
            boxes.put(line("large")).unwrap();
            assert_eq!(boxes.take(&large, reader).unwrap().len(), 1);
        }
        // The larger stream loses its oldest messages.
        assert!(boxes.read(&small, Some(0)).is_ok());
        assert_eq!(boxes.read(&large, Some(4)).unwrap_err(), ResumeError::Gone);
        let (reader, _) = boxes.read(&large, Some(8)).unwrap();
        assert_eq!(
            boxes.take(&large, reader).unwrap().first().unwrap().number,
            9
        );
    }

    #[test]
    fn queued_messages_are_bounded() {
        let mut boxes = Mailboxes::default();
        let line = Bytes::from(format!(
            r#"{{"method":"x","params":{{"sessionId":"s","x":"{}"}}}}"#,
            "x".repeat(1 << 20)
        ));
        let held = (0..40)
            .take_while(|_| boxes.put(line.clone()).is_ok())
            .count();
        assert!((14..17).contains(&held), "{held}");
        for n in 0..MAX_UNKNOWN_SESSIONS {
            assert!(boxes.read(&Some(format!("u{n}")), None).is_ok());
        }
        assert!(boxes.read(&Some("one too many".into()), None).is_err());
        boxes.leave(&Some("u0".into()), 1);
        assert!(boxes.read(&Some("one too many".into()), None).is_ok());
    }
}
