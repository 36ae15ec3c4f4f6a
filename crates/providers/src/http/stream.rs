//! Reads the body of an answer and decodes it to deltas ([`ResponseStream`]), until the answer ends,
//! breaks off, stalls or exceeds a limit. [`answer`] runs this in a task of its own.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, timeout};

use super::RequestTimeouts;
use crate::sse::{Flow, InvalidEvent, MAX_EVENT_BYTES, SseParser};
use crate::surrogates::SurrogateJoiner;
use crate::wire_format::Decoder;
use crate::{AnswerStream, Delta, Error, error_classification};
use base::task;

/// The number of idle limits without content after which an answer has stalled. Comments, pings and
/// empty deltas keep a connection alive, but they are not progress.
const MAX_IDLES_WITHOUT_CONTENT: u32 = 10;

/// The maximum pause between two packets of a burst. After a longer pause, it is not worthwhile to
/// look for a further packet at once.
const MAX_BURST_PAUSE: Duration = Duration::from_millis(5);

/// Lets other ready tasks run once. `yield_now` would poll the system for events as well.
async fn yield_briefly() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The capacity of the queue of deltas. Its only sender is a task that does nothing else, so a
/// reserved slot never waits for a future that is not polled.
const QUEUE_CAPACITY: usize = 16;

/// Starts a request and reads its answer in a task. Dropping the stream closes the connection.
pub(super) fn answer<S>(
    begin: impl Future<Output = Result<ResponseStream<S>, Error>> + Send + 'static,
) -> AnswerStream
where
    S: Stream<Item = Result<Bytes, Error>> + Send + Unpin + 'static,
{
    let (sender, deltas) = mpsc::channel(QUEUE_CAPACITY);
    let reader = task::spawn(async move {
        let mut reading = match begin.await {
            Ok(reading) => reading,
            Err(e) => return drop(sender.send(Err(e)).await),
        };
        while let Some(delta) = reading.next().await
            && sender.send(delta).await.is_ok()
        {}
    });
    Box::pin(DeltaReceiver {
        deltas,
        reader,
        has_ended: false,
    })
}

/// The receiving side of an answer. Dropping it aborts the task that reads the answer.
struct DeltaReceiver {
    deltas: mpsc::Receiver<Result<Delta, Error>>,
    /// The task that reads the answer.
    reader: task::JoinHandle<()>,
    /// True once `reader` has been awaited.
    has_ended: bool,
}

impl Stream for DeltaReceiver {
    type Item = Result<Delta, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(delta) = ready!(self.deltas.poll_recv(context)) {
            return Poll::Ready(Some(delta));
        }
        if !self.has_ended {
            let ended = ready!(Pin::new(&mut self.reader).poll(context));
            self.has_ended = true;
            if let Err(e) = ended
                && e.is_panic()
            {
                // A panic must not look like the end of the answer: it continues in the caller.
                std::panic::resume_unwind(e.into_panic());
            }
        }
        Poll::Ready(None)
    }
}

impl Drop for DeltaReceiver {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// The body of a response, and the state of its decoding.
pub(super) struct ResponseStream<S> {
    /// The provider's display name, for errors.
    server_name: Arc<str>,
    /// The chunks of the body.
    bytes: S,
    body: BodyFormat,
    decoder: Box<dyn Decoder>,
    timeouts: RequestTimeouts,
    /// The time at which the whole answer must be complete.
    deadline: Option<Instant>,
    /// The time of the last event with content, to detect a stream of comments and pings only.
    last_content: Instant,
    /// The time of the last packet.
    last_packet: Instant,
    /// Fires when the next packet is late. It is reset for each packet instead of created anew: a
    /// new timer that is due before all others wakes the runtime.
    timer: Option<Pin<Box<Sleep>>>,
    /// True until the first byte has arrived.
    waits_for_first_byte: bool,
    /// The beginning of the body, for the error if it is not an answer.
    head: Vec<u8>,
    /// The number of events so far.
    events: u64,
    /// The deltas that [`Self::next`] returns next.
    ready: VecDeque<Delta>,
    /// A buffer for the deltas of one packet.
    decoded: Vec<Delta>,
    /// The bytes of text, reasoning and arguments so far.
    size: usize,
    /// The blocks of the calls so far.
    calls: HashSet<usize>,
    /// The error that [`Self::next`] returns after the deltas.
    fault: Option<Error>,
    /// True if no more bytes are decoded.
    has_ended: bool,
    /// True if the body may have more bytes, although the answer is complete.
    is_unfinished: bool,
}

/// The maximum bytes of text, reasoning and arguments in an answer: eight times the size of the
/// longest answers of today's models.
pub(super) const MAX_ANSWER_BYTES: usize = 8 << 20;
/// The maximum number of calls in an answer. Models make about ten at once; an answer with more
/// calls than this would probably never end.
const MAX_CALLS: usize = 2_048;

/// Returns the error for an answer that exceeds a limit; `None` if it does not.
fn oversized(server_name: &str, bytes: usize, calls: usize) -> Option<Error> {
    let what = if bytes > MAX_ANSWER_BYTES {
        format!("larger than {} MiB", MAX_ANSWER_BYTES >> 20)
    } else if calls > MAX_CALLS {
        format!("made of more than {MAX_CALLS} calls")
    } else {
        return None;
    };
    Some(Error::AnswerTooLarge(format!(
        "The answer of {server_name} was {what}. It was cut off there, and none of its calls was run."
    )))
}

/// True if a delta extends the answer. Token counts do not, because they can be repeated endlessly.
fn has_content(delta: &Delta) -> bool {
    match delta {
        Delta::Text { text, .. } | Delta::Reasoning { text, .. } => !text.is_empty(),
        Delta::Arguments { json, .. } => !json.is_empty(),
        Delta::Usage(_) => false,
        Delta::Call { .. }
        | Delta::ProviderData { .. }
        | Delta::FoundPages(_)
        | Delta::Finish(_) => true,
    }
}

/// The format of the body, detected from its first bytes.
enum BodyFormat {
    /// No byte has arrived yet, or only whitespace.
    Unknown,
    /// Server-sent events.
    Events(SseParser),
    /// JSON from a server that does not stream: the whole answer is one event. The bytes so far.
    Whole(Vec<u8>),
}

impl From<InvalidEvent> for Error {
    fn from(bad: InvalidEvent) -> Self {
        Self::InvalidAnswer(format!("The answer cannot be read: {bad}."))
    }
}

impl<S: Stream<Item = Result<Bytes, Error>> + Send + Unpin + 'static> ResponseStream<S> {
    /// The maximum number of packets decoded at once, so that text is not delayed.
    const MAX_PACKETS_AT_ONCE: usize = 63;

    pub(super) fn new(
        server_name: Arc<str>,
        bytes: S,
        decoder: Box<dyn Decoder>,
        timeouts: RequestTimeouts,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            server_name,
            bytes,
            body: BodyFormat::Unknown,
            decoder: Box::new(SurrogateJoiner::new(decoder)),
            timeouts,
            deadline,
            last_content: Instant::now(),
            last_packet: Instant::now(),
            timer: None,
            waits_for_first_byte: true,
            head: Vec::new(),
            events: 0,
            ready: VecDeque::new(),
            decoded: Vec::new(),
            size: 0,
            calls: HashSet::new(),
            fault: None,
            has_ended: false,
            is_unfinished: false,
        }
    }

    /// Returns the next delta, or the error that ends the answer; `None` after the end.
    pub(super) async fn next(&mut self) -> Option<Result<Delta, Error>> {
        loop {
            if let Some(delta) = self.ready.pop_front() {
                return Some(Ok(delta));
            }
            if let Some(fault) = self.fault.take() {
                return Some(Err(fault));
            }
            if self.has_ended {
                if std::mem::take(&mut self.is_unfinished) {
                    self.drain().await;
                }
                return None;
            }
            let before = self.last_packet;
            let item = self.next_packet().await;
            self.last_packet = Instant::now();
            let is_burst = self.last_packet - before < MAX_BURST_PAUSE;
            self.handle_item(item);
            // Packets that have already arrived are decoded together: servers send every word in a
            // packet of its own, and passing a delta on costs far more than decoding it.
            for _ in 0..Self::MAX_PACKETS_AT_ONCE {
                if self.has_ended {
                    break;
                }
                let mut next = self.bytes.next().now_or_never();
                if next.is_none() && is_burst {
                    // The connection is a task of its own that delivers one packet at a time; the
                    // poll above requested the next one.
                    yield_briefly().await;
                    next = self.bytes.next().now_or_never();
                }
                let Some(item) = next else { break };
                self.handle_item(item.transpose());
            }
        }
    }

    /// Handles one item of the body: a packet, its end (`None`), or an error.
    fn handle_item(&mut self, item: Result<Option<Bytes>, Error>) {
        match item {
            Ok(Some(bytes)) => match self.receive(&bytes) {
                Ok(Flow::More) => {}
                Ok(Flow::Done) => {
                    self.has_ended = true;
                    self.is_unfinished = true;
                }
                Err(fault) => self.fail(fault),
            },
            Ok(None) => self.close(),
            Err(fault) => self.cut(fault),
        }
    }

    /// Waits for the next packet of the body, within the time limits; `None` at its end.
    async fn next_packet(&mut self) -> Result<Option<Bytes>, Error> {
        let limit = if self.waits_for_first_byte {
            self.timeouts.first_byte
        } else {
            self.timeouts.idle
        };
        let content_limit = if self.waits_for_first_byte {
            None
        } else {
            self.timeouts
                .idle
                .map(|idle| idle * MAX_IDLES_WITHOUT_CONTENT)
        };
        let ends = [
            limit.map(|limit| (Instant::now() + limit, limit)),
            content_limit.map(|limit| (self.last_content + limit, limit)),
            self.deadline.zip(self.timeouts.total),
        ];
        let Some((at, limit)) = ends.into_iter().flatten().min() else {
            return self.bytes.next().await.transpose();
        };
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        tokio::select! {
            biased;
            item = self.bytes.next() => item.transpose(),
            () = timer => Err(Error::Timeout(limit)),
        }
    }

    /// Decodes a packet.
    fn receive(&mut self, bytes: &[u8]) -> Result<Flow, Error> {
        /// One byte more than an excerpt, so that it shows that there is more.
        const MAX_HEAD_BYTES: usize = 201;
        self.waits_for_first_byte = false;
        let remaining = MAX_HEAD_BYTES - self.head.len().min(MAX_HEAD_BYTES);
        self.head
            .extend_from_slice(&bytes[..bytes.len().min(remaining)]);
        if matches!(self.body, BodyFormat::Unknown) {
            let start = bytes.trim_ascii_start();
            self.body = match start.first() {
                None => return Ok(Flow::More),
                Some(b'<') => return Err(self.not_an_answer()),
                Some(b'{' | b'[') => BodyFormat::Whole(Vec::new()),
                Some(_) => BodyFormat::Events(SseParser::default()),
            };
        }
        let flow = match &mut self.body {
            BodyFormat::Unknown => Ok(Flow::More),
            BodyFormat::Whole(whole) => {
                if whole.len() + bytes.len() > MAX_EVENT_BYTES {
                    return Err(InvalidEvent::TooLong.into());
                }
                whole.extend_from_slice(bytes);
                Ok(Flow::More)
            }
            BodyFormat::Events(parser) => parser.push(bytes, |name, data| {
                self.events += 1;
                self.decoder.decode(name, data, &mut self.decoded)
            }),
        };
        self.pass_on();
        flow
    }

    /// Queues the decoded deltas. Adjacent deltas of one block are merged. If the answer exceeds
    /// its limits, the rest is dropped, and the connection with it.
    fn pass_on(&mut self) {
        if self.decoded.iter().any(has_content) {
            self.last_content = Instant::now();
        }
        for delta in self.decoded.drain(..) {
            match &delta {
                Delta::Text { text, .. } | Delta::Reasoning { text, .. } => self.size += text.len(),
                Delta::Arguments { json, .. } => self.size += json.len(),
                Delta::Call { index, .. } => drop(self.calls.insert(*index)),
                Delta::ProviderData { .. }
                | Delta::FoundPages(_)
                | Delta::Usage(_)
                | Delta::Finish(_) => {}
            }
            if let Some(fault) = oversized(&self.server_name, self.size, self.calls.len()) {
                self.fault = Some(fault);
                self.has_ended = true;
                self.is_unfinished = false;
                return;
            }
            match (self.ready.back_mut(), delta) {
                (
                    Some(Delta::Text { index: a, text }),
                    Delta::Text {
                        index: b,
                        text: more,
                    },
                ) if *a == b => text.push_str(&more),
                (
                    Some(Delta::Reasoning { index: a, text }),
                    Delta::Reasoning {
                        index: b,
                        text: more,
                    },
                ) if *a == b => {
                    text.push_str(&more);
                }
                (
                    Some(Delta::Arguments { index: a, json }),
                    Delta::Arguments {
                        index: b,
                        json: more,
                    },
                ) if *a == b => {
                    json.push_str(&more);
                }
                (_, delta) => self.ready.push_back(delta),
            }
        }
    }

    /// Handles the regular end of the body.
    fn close(&mut self) {
        let last = match std::mem::replace(&mut self.body, BodyFormat::Unknown) {
            BodyFormat::Unknown => Ok(Flow::More),
            BodyFormat::Events(mut parser) => parser.end(|name, data| {
                self.events += 1;
                self.decoder.decode(name, data, &mut self.decoded)
            }),
            BodyFormat::Whole(whole) => match std::str::from_utf8(&whole) {
                Ok(text) => {
                    self.events += 1;
                    self.decoder.decode("", text, &mut self.decoded)
                }
                Err(_) => Err(InvalidEvent::NotText.into()),
            },
        };
        let cut = || {
            Error::InvalidAnswer(format!(
                "The answer of {} was cut off before its end.",
                self.server_name
            ))
        };
        match last {
            Ok(Flow::Done) => self.has_ended = true,
            Ok(Flow::More) if self.events == 0 && self.head.trim_ascii().is_empty() => {
                self.cut(Error::InvalidAnswer(format!(
                    "{} closed the connection without an answer.",
                    self.server_name
                )));
            }
            Ok(Flow::More) if self.events == 0 => self.fault = Some(self.not_an_answer()),
            Ok(Flow::More) => self.cut(cut()),
            // An invalid event at the very end is a truncated one.
            Err(Error::InvalidAnswer(_)) if self.events > 1 => self.cut(cut()),
            Err(fault) => self.fault = Some(fault),
        }
        self.pass_on();
        self.has_ended = true;
    }

    /// Handles the end of the connection without the end of the stream. This is the error `fault`,
    /// unless the decoder has seen a complete answer.
    fn cut(&mut self, fault: Error) {
        if self.decoder.end(&mut self.decoded).is_err() {
            self.fault = Some(fault);
        }
        self.pass_on();
        self.has_ended = true;
    }

    /// Ends the answer with an error, after the deltas before it.
    fn fail(&mut self, fault: Error) {
        self.pass_on();
        self.fault = Some(fault);
        self.has_ended = true;
    }

    /// Returns the error for a body that is not an answer.
    fn not_an_answer(&self) -> Error {
        let excerpt = error_classification::excerpt(&self.head);
        // A sign-in page, or the page of another program: a retry would return it again.
        if self.head.trim_ascii_start().starts_with(b"<") {
            return Error::WebPage(format!(
                "{} answered with a web page instead of a model's answer: {excerpt}.",
                self.server_name
            ));
        }
        Error::InvalidAnswer(format!(
            "{} answered with something that is not a model's answer: {excerpt}.",
            self.server_name
        ))
    }

    /// Reads the last bytes of a complete answer, so that the connection can be reused; they
    /// usually arrived with it.
    async fn drain(&mut self) {
        let rest = async { while let Some(Ok(_)) = self.bytes.next().await {} };
        let _ = timeout(Duration::from_millis(20), rest).await;
    }
}
