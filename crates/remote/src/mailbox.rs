//! What waits to be read on the streams of a connection over plain HTTP: one stream for the connection, and one for
//! each of its sessions. This is bookkeeping only; `streams.rs` speaks HTTP.
//!
//! Whether what was written to a stream has come, HTTP does not say. So each message has a number in its stream, and is
//! kept after it was read, within a limit: who comes back says which was the last, and is given those that follow.

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

/// How much of what was read a connection keeps, in bytes, for a client that has not received it. Many connections may
/// be open for a long time, and most never come back for it.
const KEPT_BYTES: usize = 1 << 20;

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

    /// The id of the request that it cancels, as it was written.
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

/// A message in its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedLine {
    /// Counted from 1.
    pub number: u64,
    pub line: Bytes,
}

/// What waits for a stream.
#[derive(Default)]
struct Mailbox {
    waiting: VecDeque<NumberedLine>,
    bytes: usize,
    /// The number of the newest message.
    last: u64,
    /// What was read, and may not have been received.
    sent: VecDeque<NumberedLine>,
    sent_bytes: usize,
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

impl Mailbox {
    fn push(&mut self, line: Bytes) {
        self.last += 1;
        self.bytes += line.len();
        self.waiting.push_back(NumberedLine { number: self.last, line });
        self.changed.notify_waiters();
    }

    /// Gives back what waits, and keeps it.
    fn take(&mut self) -> Vec<NumberedLine> {
        let taken: Vec<NumberedLine> = self.waiting.drain(..).collect();
        self.sent_bytes += self.bytes;
        self.bytes = 0;
        self.sent.extend(taken.iter().cloned());
        taken
    }

    /// Forgets the oldest message that is kept. False: none is.
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.sent.pop_front();
        self.sent_bytes -= oldest.as_ref().map_or(0, |oldest| oldest.line.len());
        oldest.is_some()
    }

    /// Has everything that follows a message wait again.
    ///
    /// # Errors
    /// It is not kept any more, or was never sent.
    fn resume_after(&mut self, last: u64) -> Result<(), ResumeError> {
        let first = self.sent.front().or(self.waiting.front()).map_or(self.last + 1, |line| line.number);
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

/// Why a stream cannot be read from where somebody wants to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeError {
    /// The connection has no such session.
    NoSession,
    /// What follows is not kept any more.
    Gone,
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
        mailbox.push(line);
        let full = mailbox.bytes > HELD_BYTES || mailbox.waiting.len() > HELD;
        if full && !mailbox.is_read { Err(Overflow) } else { Ok(()) }
    }

    /// Begins to read a stream; whoever has read it does so no longer. What follows the message numbered `after` is
    /// told again; without such a number, what was asked there and not answered is.
    ///
    /// # Errors
    /// [`ResumeError`].
    pub fn read(&mut self, stream: &Stream, after: Option<u64>) -> Result<(u64, Arc<Notify>), ResumeError> {
        self.readers += 1;
        let reader = self.readers;
        let unknown = self.sessions.values().filter(|mailbox| !mailbox.known).count();
        let mailbox = match stream {
            None => &mut self.connection,
            Some(session) => match self.sessions.get_mut(session) {
                Some(mailbox) => mailbox,
                None if unknown >= UNKNOWN => return Err(ResumeError::NoSession),
                None if after.is_some_and(|after| after > 0) => return Err(ResumeError::Gone),
                None => self.sessions.entry(session.clone()).or_default(),
            },
        };
        match after {
            Some(after) => mailbox.resume_after(after)?,
            None => {
                let waits = |asked: &Bytes| mailbox.waiting.iter().any(|waiting| waiting.line == *asked);
                let again: Vec<Bytes> = mailbox.asked.values().filter(|asked| !waits(asked)).cloned().collect();
                again.into_iter().for_each(|line| mailbox.push(line));
            }
        }
        (mailbox.reader, mailbox.is_read) = (reader, true);
        mailbox.changed.notify_waiters();
        Ok((reader, mailbox.changed.clone()))
    }

    fn mailbox(&mut self, stream: &Stream) -> Option<&mut Mailbox> {
        match stream {
            None => Some(&mut self.connection),
            Some(session) => self.sessions.get_mut(session),
        }
    }

    /// Takes what waits for a reader; none where somebody else reads by now.
    pub fn take(&mut self, stream: &Stream, reader: u64) -> Option<Vec<NumberedLine>> {
        let taken = self.mailbox(stream).filter(|mailbox| mailbox.reader == reader)?.take();
        self.forget();
        Some(taken)
    }

    /// Forgets of what was read what is beyond the limit: the oldest of the stream that keeps most.
    fn forget(&mut self) {
        let all = |boxes: &Self| {
            let sessions = boxes.sessions.values().map(|mailbox| mailbox.sent_bytes).sum::<usize>();
            boxes.connection.sent_bytes + sessions
        };
        let mut kept = all(self);
        while kept > KEPT_BYTES {
            let largest = std::iter::once(&mut self.connection).chain(self.sessions.values_mut());
            let Some(largest) = largest.max_by_key(|mailbox| mailbox.sent_bytes) else { return };
            let before = largest.sent_bytes;
            if !largest.forget_oldest() {
                return;
            }
            kept -= before - largest.sent_bytes;
        }
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
        lines.iter().map(|numbered| String::from_utf8(numbered.line.to_vec()).unwrap()).collect()
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
        let (own, _) = boxes.read(&None, None).unwrap();
        let (its, _) = boxes.read(&session, None).unwrap();
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
        let (own, _) = boxes.read(&None, None).unwrap();
        put(&mut boxes, r#"{"id":"a","result":{}}"#);
        assert_eq!(taken(&mut boxes, &None, own), [r#"{"id":"a","result":{}}"#]);
    }

    #[test]
    fn the_newer_reader_reads_and_is_asked_again() {
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
    fn who_comes_back_is_told_what_followed() {
        let mut boxes = Mailboxes::default();
        let session = Some("s".to_owned());
        let update = |n: u64| format!(r#"{{"method":"x","params":{{"sessionId":"s","n":{n}}}}}"#);
        for n in 1..=3 {
            put(&mut boxes, &update(n));
        }
        let (old, _) = boxes.read(&session, None).unwrap();
        assert_eq!(boxes.take(&session, old).unwrap().iter().map(|line| line.number).collect::<Vec<_>>(), [1, 2, 3]);
        put(&mut boxes, ASK);
        put(&mut boxes, &update(5));
        // It broke after the second: the rest comes in its order, once, the question included.
        let (new, _) = boxes.read(&session, Some(2)).unwrap();
        assert_eq!(taken(&mut boxes, &session, new), [update(3), ASK.to_owned(), update(5)]);
        let (again, _) = boxes.read(&session, Some(5)).unwrap();
        assert!(taken(&mut boxes, &session, again).is_empty());
        // Who has received the fifth does not ask for what was before.
        assert_eq!(boxes.read(&session, Some(2)).unwrap_err(), ResumeError::Gone);
        assert_eq!(boxes.read(&session, Some(6)).unwrap_err(), ResumeError::Gone);
        assert_eq!(boxes.read(&Some("other".into()), Some(1)).unwrap_err(), ResumeError::Gone);
        assert!(boxes.read(&None, Some(0)).is_ok());
    }

    #[test]
    fn what_is_kept_of_what_was_read_is_bounded() {
        let mut boxes = Mailboxes::default();
        let line = |session: &str| {
            let text = "x".repeat(1 << 16);
            Bytes::from(format!(r#"{{"method":"x","params":{{"sessionId":"{session}","x":"{text}"}}}}"#))
        };
        let (large, small) = (Some("large".to_owned()), Some("small".to_owned()));
        let (reader, _) = boxes.read(&large, None).unwrap();
        let (other, _) = boxes.read(&small, None).unwrap();
        boxes.put(line("small")).unwrap();
        assert_eq!(boxes.take(&small, other).unwrap().len(), 1);
        for _ in 0..20 {
            boxes.put(line("large")).unwrap();
            assert_eq!(boxes.take(&large, reader).unwrap().len(), 1);
        }
        // The larger stream gives way.
        assert!(boxes.read(&small, Some(0)).is_ok());
        assert_eq!(boxes.read(&large, Some(4)).unwrap_err(), ResumeError::Gone);
        let (reader, _) = boxes.read(&large, Some(8)).unwrap();
        assert_eq!(boxes.take(&large, reader).unwrap().first().unwrap().number, 9);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut boxes = Mailboxes::default();
        let line =
            Bytes::from(format!(r#"{{"method":"x","params":{{"sessionId":"s","x":"{}"}}}}"#, "x".repeat(1 << 20)));
        let held = (0..40).take_while(|_| boxes.put(line.clone()).is_ok()).count();
        assert!((14..17).contains(&held), "{held}");
        for n in 0..UNKNOWN {
            assert!(boxes.read(&Some(format!("u{n}")), None).is_ok());
        }
        assert!(boxes.read(&Some("one too many".into()), None).is_err());
        boxes.leave(&Some("u0".into()), 1);
        assert!(boxes.read(&Some("one too many".into()), None).is_ok());
    }
}
