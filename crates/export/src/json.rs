//! Exports a complete session as JSON, and imports it again. The format is that of the store, with
//! a version number, and with times in RFC 3339. Format 1 had times in milliseconds.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, SerializeSeq as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use base::environment::Timestamp;
use store::{self, Record, StreamedSession};
use transcript::{Message, Part};

/// The format that is written. Newer formats are refused.
const FORMAT: u64 = 2;

/// The reason why a file cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not JSON, or not an exported session.
    #[error("this is not an exported session: {0}")]
    Shape(String),
    /// The file was written by a newer version.
    #[error(
        "this was exported by a newer adjutant (format {0}, this one knows {FORMAT}); update adjutant to import it"
    )]
    Newer(u64),
}

/// The number of messages that are read ahead.
const MAX_MESSAGES_AHEAD: usize = 16;

/// A message with its parts, as it is exported.
#[derive(Serialize, Deserialize)]
struct WrittenMessage {
    #[serde(flatten)]
    message: Message,
    /// Of an assistant's message: the agent, for readers of OpenCode's format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    /// Of an assistant's message: the directories of its session, for the same readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<MessagePath>,
    parts: Vec<Part>,
}

/// The directories of a session.
#[derive(Clone, Serialize, Deserialize)]
struct MessagePath {
    cwd: PathBuf,
    /// The root of the project.
    root: PathBuf,
}

impl MessagePath {
    fn of(record: &Record) -> Self {
        let is_root = |dir: &&Path| dir.join(".git").exists();
        let root = record.cwd.ancestors().find(is_root);
        Self {
            cwd: record.cwd.clone(),
            root: root.unwrap_or(&record.cwd).to_owned(),
        }
    }
}

/// The messages, written as they are read. An error of reading is stored in `failed`.
struct WrittenMessages<'f> {
    path: MessagePath,
    feed: RefCell<&'f mut StreamedSession>,
    failed: &'f RefCell<Option<store::Error>>,
}

impl Serialize for WrittenMessages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut feed = self.feed.borrow_mut();
        let read = feed
            .by_ref()
            .map_while(|message| message.map_err(|e| self.failed.replace(Some(e))).ok());
        let written = read.map(|mut message| {
            let own = message.assistant();
            WrittenMessage {
                mode: own.map(|own| own.agent.clone()),
                path: own.map(|_| self.path.clone()),
                parts: std::mem::take(&mut message.parts),
                message,
            }
        });
        let mut list = serializer.serialize_seq(None)?;
        for message in written {
            list.serialize_element(
                &with_dates(&message, MESSAGE_TIMES).map_err(S::Error::custom)?,
            )?;
        }
        // If the list were closed, the document would be valid but incomplete.
        if self.failed.borrow().is_some() {
            return Err(S::Error::custom("the session could not be read completely"));
        }
        list.end()
    }
}

/// The times of a session, as paths of members; `*` is each element of a list.
const SESSION_TIMES: &[&[&str]] = &[&["created"], &["updated"], &["summary", "written"]];
/// The times of a message.
const MESSAGE_TIMES: &[&[&str]] = &[
    &["created"],
    &["completed"],
    &["parts", "*", "state", "cleared"],
];

/// Returns a value as JSON whose times are in RFC 3339.
fn with_dates(value: &impl Serialize, times: &[&[&str]]) -> serde_json::Result<Value> {
    let mut document = serde_json::to_value(value)?;
    for path in times {
        write_dates(&mut document, path);
    }
    Ok(document)
}

fn write_dates(value: &mut Value, path: &[&str]) {
    match (path.split_first(), value) {
        (None, value) => {
            if let Some(milliseconds) = value.as_u64() {
                *value = Timestamp(milliseconds).precise().into();
            }
        }
        (Some((&"*", rest)), Value::Array(elements)) => {
            elements
                .iter_mut()
                .for_each(|element| write_dates(element, rest));
        }
        (Some((name, rest)), Value::Object(members)) => {
            if let Some(member) = members.get_mut(*name) {
                write_dates(member, rest);
            }
        }
        _ => {}
    }
}

#[derive(Serialize)]
struct WrittenSession<'f> {
    adjutant: u64,
    session: Value,
    messages: WrittenMessages<'f>,
}

/// Writes a session as one JSON document, one message at a time. Blocks.
///
/// # Errors
/// Returns [`WriteError`]. The text written so far is not a valid document.
pub fn export(mut feed: StreamedSession, out: impl Write) -> Result<(), WriteError> {
    let path = MessagePath::of(&feed.record);
    let session = with_dates(&feed.record, SESSION_TIMES)?;
    let failed = RefCell::new(None);
    let messages = WrittenMessages {
        path,
        feed: RefCell::new(&mut feed),
        failed: &failed,
    };
    let written = serde_json::to_writer_pretty(
        out,
        &WrittenSession {
            adjutant: FORMAT,
            session,
            messages,
        },
    );
    match failed.into_inner() {
        Some(e) => Err(e.into()),
        None => Ok(written?),
    }
}

/// The failure of an export.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Write(#[from] serde_json::Error),
    #[error(transparent)]
    Read(#[from] store::Error),
}

/// The members of an exported session, without its messages.
#[derive(Deserialize)]
struct Head {
    adjutant: Option<Value>,
    session: Option<Value>,
    messages: Option<IgnoredAny>,
}

/// Imports a document that [`export`] wrote. The document is read twice, because the session's
/// record may come after its messages. On the second pass, messages are read on demand.
///
/// # Errors
/// Returns [`Error`] for a mistake outside the messages. The feed ends with an error for a mistake
/// in them.
pub fn import<R: Read + Send + 'static>(
    open: impl Fn() -> io::Result<R>,
) -> Result<StreamedSession, Error> {
    let shape = |e: String| Error::Shape(e);
    let source = || open().map(BufReader::new).map_err(|e| shape(e.to_string()));
    let head: Head = serde_json::from_reader(source()?).map_err(|e| shape(e.to_string()))?;
    match head.adjutant.as_ref().and_then(Value::as_u64) {
        Some(newer) if newer > FORMAT => return Err(Error::Newer(newer)),
        Some(_) => {}
        None => {
            return Err(shape(
                "the member \"adjutant\" with the format number is missing".into(),
            ));
        }
    }
    let missing = |name: &str| shape(format!("missing field `{name}`"));
    head.messages.ok_or_else(|| missing("messages"))?;
    let record: Record = serde_json::from_value(head.session.ok_or_else(|| missing("session"))?)
        .map_err(|e| shape(e.to_string()))?;
    let (sender, messages) = sync_channel(MAX_MESSAGES_AHEAD);
    let mut second_pass = serde_json::Deserializer::from_reader(source()?);
    let read = move || {
        let end = match second_pass.deserialize_map(DocumentVisitor(&sender)) {
            Ok(()) => Ok(None),
            Err(e) => Err(store::Error::ImportUnreadable(
                Error::Shape(e.to_string()).to_string(),
            )),
        };
        // The receiver may be dropped.
        sender.send(end).ok();
    };
    std::thread::Builder::new()
        .name("import".into())
        .spawn(read)
        .map_err(|e| shape(e.to_string()))?;
    let mut is_over = false;
    let next = move || {
        if is_over {
            return None;
        }
        let broken = || {
            Err(store::Error::ImportUnreadable(
                "the import ended early".into(),
            ))
        };
        let received = messages.recv().unwrap_or_else(|_| broken());
        is_over = !matches!(received, Ok(Some(_)));
        received.transpose()
    };
    Ok(StreamedSession::new(record, std::iter::from_fn(next)))
}

/// The sender of messages, and finally of `None` or an error.
type MessageSender = SyncSender<Result<Option<Message>, store::Error>>;

/// A visitor of a whole document that sends its messages.
struct DocumentVisitor<'s>(&'s MessageSender);

impl<'de> Visitor<'de> for DocumentVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an exported session")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "messages" {
                map.next_value_seed(MessageVisitor(self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// A visitor of a list of messages that sends them.
struct MessageVisitor<'s>(&'s MessageSender);

impl<'de> DeserializeSeed<'de> for MessageVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for MessageVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(WrittenMessage { message, parts, .. }) = list.next_element()? {
            if self.0.send(Ok(Some(Message { parts, ..message }))).is_err() {
                return Err(A::Error::custom("the import was abandoned"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, LazyLock};

    use super::*;
    use base::id::{CallId, MessageId, PartId, SessionId};
    use transcript::{Call, CallState, Completed, Content, ModelRef, Role, Text, ToolKind, User};

    const TEXT: usize = 1_000;

    fn message(at: usize) -> Message {
        let model = ModelRef {
            provider: "p".into(),
            model: "m".into(),
            effort: None,
        };
        let text = Text {
            text: "x".repeat(TEXT).into(),
            ..Text::default()
        };
        Message {
            id: MessageId::new(format!("msg_{at}")),
            created: Timestamp(1),
            role: Role::User(User {
                agent: "build".into(),
                model,
            }),
            parts: vec![Part {
                id: PartId::new(format!("prt_{at}")),
                content: Content::Text(text),
            }],
        }
    }

    fn record() -> Record {
        // A record contains a random mark, so all calls return the same one.
        static RECORD: LazyLock<Record> =
            LazyLock::new(|| Record::new(SessionId::new("ses_1"), "/w".into(), Timestamp(1)));
        RECORD.clone()
    }

    fn exported(count: usize) -> Vec<u8> {
        let mut out = Vec::new();
        export(
            StreamedSession::new(record(), (0..count).map(|at| Ok(message(at)))),
            &mut out,
        )
        .unwrap();
        out
    }

    #[test]
    fn export_cut_off_is_no_document() {
        let mut out = Vec::new();
        let messages = [Ok(message(1)), Err(store::Error::Changed("f".into()))];
        let failed = export(
            StreamedSession::new(record(), messages.into_iter()),
            &mut out,
        );
        assert!(
            matches!(failed, Err(WriteError::Read(store::Error::Changed(_)))),
            "{failed:?}"
        );
        assert!(serde_json::from_slice::<Value>(&out).is_err());
    }

    #[test]
    fn import_cut_off_ends_with_an_error() {
        let whole = exported(3);
        for end in [whole.len() / 2, whole.len() - 3] {
            let cut: Arc<[u8]> = whole[..end].into();
            let feed = import(move || Ok(io::Cursor::new(cut.clone())));
            assert!(
                !feed.is_ok_and(|feed| feed.collect::<Result<Vec<_>, _>>().is_ok()),
                "{end}"
            );
        }
    }

    /// A reader or writer that counts its bytes.
    struct Counted<T>(T, Arc<AtomicUsize>);

    impl<T: Write> Write for Counted<T> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.fetch_add(bytes.len(), Ordering::Relaxed);
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }

    impl<T: Read> Read for Counted<T> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read(bytes)?;
            self.1.fetch_add(read, Ordering::Relaxed);
            Ok(read)
        }
    }

    /// A message of any session is written before the next one is requested.
    #[test]
    fn export_holds_one_message() {
        for count in [20, 200] {
            let written = Arc::<AtomicUsize>::default();
            let seen = written.clone();
            let messages = (0..count).map(move |at| {
                assert!(
                    seen.load(Ordering::Relaxed) >= at * TEXT,
                    "{at} messages were asked for before one was written"
                );
                Ok(message(at))
            });
            export(
                StreamedSession::new(record(), messages),
                Counted(io::sink(), written.clone()),
            )
            .unwrap();
            assert!(written.load(Ordering::Relaxed) > count * TEXT);
        }
    }

    /// The number of bytes read before the first message is bounded for any session.
    #[test]
    fn import_reads_a_few_messages_ahead() {
        for count in [100, 1_000] {
            let document: Arc<[u8]> = exported(count).into();
            let read = Arc::<AtomicUsize>::default();
            let opened = Arc::<AtomicUsize>::default();
            let bytes = read.clone();
            let times = opened.clone();
            let mut feed = import(move || {
                // The bytes of the first pass do not count.
                times.fetch_add(1, Ordering::Relaxed);
                bytes.store(0, Ordering::Relaxed);
                Ok(Counted(io::Cursor::new(document.clone()), bytes.clone()))
            })
            .unwrap();
            assert_eq!(
                (feed.record.clone(), feed.next().unwrap().unwrap()),
                (record(), message(0))
            );
            // A message is about 1.4 times its text, and the reader has a buffer.
            let most = (MAX_MESSAGES_AHEAD + 3) * 2 * TEXT + (8 << 10);
            assert!(
                read.load(Ordering::Relaxed) < most,
                "{} of {count}",
                read.load(Ordering::Relaxed)
            );
            assert_eq!(
                feed.map(Result::unwrap).collect::<Vec<_>>(),
                (1..count).map(message).collect::<Vec<_>>()
            );
            assert_eq!(opened.load(Ordering::Relaxed), 2);
        }
    }

    #[test]
    fn times_are_dates_and_milliseconds_are_still_read() {
        let mut record = record();
        record.created = Timestamp(1_796_002_753_346);
        record.summary = Some(store::SessionSummary {
            text: None,
            written: Timestamp(2),
        });
        let mut written = Vec::new();
        export(
            StreamedSession::new(record.clone(), [Ok(message(0))].into_iter()),
            &mut written,
        )
        .unwrap();
        let mut document: Value = serde_json::from_slice(&written).unwrap();
        let session = &document["session"];
        assert_eq!(session["created"], "2026-11-30T01:39:13.346Z");
        assert_eq!(session["summary"]["written"], "1970-01-01T00:00:00.002Z");
        assert_eq!(
            document["messages"][0]["created"],
            "1970-01-01T00:00:00.001Z"
        );
        document["adjutant"] = 1.into();
        document["session"]["created"] = 1_796_002_753_346_u64.into();
        for text in [written, serde_json::to_vec(&document).unwrap()] {
            let text: Arc<[u8]> = text.into();
            let feed = import(move || Ok(io::Cursor::new(text.clone()))).unwrap();
            assert_eq!(feed.record, record);
            let messages: Vec<Message> = feed.map(Result::unwrap).collect();
            assert_eq!(messages, [message(0)]);
        }
    }

    #[test]
    fn times_in_calls_are_dates() {
        let call = Call {
            call: CallId::new("call_1"),
            provider_id: None,
            tool: "read".into(),
            input: Arc::new(serde_json::json!({ "created": 3 })),
            kind: ToolKind::Read,
            title: String::new(),
            locations: Vec::new(),
            state: CallState::Completed(Completed {
                cleared: Some(Timestamp(2)),
                ..Completed::default()
            }),
            provider: serde_json::Map::new(),
        };
        let mut message = message(0);
        message.parts[0].content = Content::Tool(call);
        let mut written = Vec::new();
        export(
            StreamedSession::new(record(), [Ok(message.clone())].into_iter()),
            &mut written,
        )
        .unwrap();
        let document: Value = serde_json::from_slice(&written).unwrap();
        let part = &document["messages"][0]["parts"][0];
        assert_eq!(part["state"]["cleared"], "1970-01-01T00:00:00.002Z");
        assert_eq!(part["input"], serde_json::json!({ "created": 3 }));
        let written: Arc<[u8]> = written.into();
        let feed = import(move || Ok(io::Cursor::new(written.clone()))).unwrap();
        let messages: Vec<Message> = feed.map(Result::unwrap).collect();
        assert_eq!(messages, [message]);
    }

    /// Earlier versions wrote the session after the messages.
    #[test]
    fn import_takes_members_in_any_order() {
        let document: Value = serde_json::from_slice(&exported(3)).unwrap();
        let text = format!(
            r#"{{"adjutant": 1, "messages": {}, "session": {}}}"#,
            document["messages"], document["session"]
        );
        let text: Arc<[u8]> = text.into_bytes().into();
        let feed = import(move || Ok(io::Cursor::new(text.clone()))).unwrap();
        assert_eq!(feed.record, record());
        assert_eq!(
            feed.map(Result::unwrap).collect::<Vec<_>>(),
            (0..3).map(message).collect::<Vec<_>>()
        );
    }

    #[test]
    fn import_reports_the_mistake() {
        let whole = String::from_utf8(exported(2)).unwrap();
        let table = [
            (
                "no JSON",
                "{".to_owned(),
                "this is not an exported session: EOF",
            ),
            ("nothing", "{}".to_owned(), "the member \"adjutant\""),
            (
                "newer",
                whole.replace("\"adjutant\": 2", "\"adjutant\": 3"),
                "by a newer adjutant (format 3",
            ),
            (
                "no messages",
                r#"{"adjutant": 1, "session": {}}"#.to_owned(),
                "missing field `messages`",
            ),
            (
                "no session",
                r#"{"adjutant": 1, "messages": []}"#.to_owned(),
                "missing field `session`",
            ),
            (
                "no list",
                r#"{"adjutant": 1, "session": SESSION, "messages": {}}"#.to_owned(),
                "a list of messages",
            ),
            (
                "a message",
                whole.replace("\"msg_1\"", "7"),
                "this is not an exported session: ",
            ),
        ];
        for (name, text, wanted) in table {
            let session = serde_json::to_string(&record()).unwrap();
            let text: Arc<[u8]> = text.replace("SESSION", &session).into_bytes().into();
            let feed = import(move || Ok(io::Cursor::new(text.clone())));
            let message = match feed {
                Ok(feed) => feed
                    .filter_map(Result::err)
                    .map(|e| e.to_string())
                    .collect::<String>(),
                Err(e) => e.to_string(),
            };
            assert!(message.contains(wanted), "{name}: {message}");
        }
    }
}
