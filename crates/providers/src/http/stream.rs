//! An answer as it comes: bytes in, deltas out, until it is over, broken, silent for too long or too large.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::RequestTimeouts;
use crate::sse::{self, BadEvent, Flow, LONGEST_EVENT, SseParser};
use crate::wire::Decoder;
use crate::{AnswerStream, Delta, Error, classify};
use base::task;

/// Bytes that say nothing (comments and pings, to keep the connection open, empty pieces) are not progress for ever:
/// this many idle limits without anything that is part of an answer are a stall too.
const EMPTY_IDLES: u32 = 10;

/// Lets those run who are ready, once. (`yield_now` would ask the system for news as well.)
async fn give_way() {
    let mut given = false;
    std::future::poll_fn(|context| {
        if given {
            return Poll::Ready(());
        }
        given = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// How many deltas may wait for whoever takes them. Their only sender is a task that does nothing else, so no place is
/// held by a future that nobody polls.
const WAITING: usize = 16;

/// Begins an answer and reads it. Whoever drops it hangs up.
pub(super) fn answer<S>(begin: impl Future<Output = Result<ResponseStream<S>, Error>> + Send + 'static) -> AnswerStream
where
    S: Stream<Item = Result<Bytes, Error>> + Send + Unpin + 'static,
{
    let (sender, deltas) = mpsc::channel(WAITING);
    let reader = task::spawn(async move {
        let mut reading = match begin.await {
            Ok(reading) => reading,
            Err(e) => return drop(sender.send(Err(e)).await),
        };
        while let Some(delta) = reading.next().await
            && sender.send(delta).await.is_ok()
        {}
    });
    Box::pin(Answer { deltas, reader, over: false })
}

/// Deltas in their order. The task that reads them never outlives this.
struct Answer {
    deltas: mpsc::Receiver<Result<Delta, Error>>,
    reader: task::JoinHandle<()>,
    over: bool,
}

impl Stream for Answer {
    type Item = Result<Delta, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(delta) = ready!(self.deltas.poll_recv(context)) {
            return Poll::Ready(Some(delta));
        }
        if !self.over {
            let ended = ready!(Pin::new(&mut self.reader).poll(context));
            self.over = true;
            if let Err(e) = ended
                && e.is_panic()
            {
                // A defect of ours is not the end of the answer: it goes where it would have gone without a task.
                std::panic::resume_unwind(e.into_panic());
            }
        }
        Poll::Ready(None)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// An answer that is being read.
pub(super) struct ResponseStream<S> {
    who: Arc<str>,
    bytes: S,
    body: BodyFormat,
    decoder: Box<dyn Decoder>,
    limits: RequestTimeouts,
    deadline: Option<Instant>,
    /// When an event last said something, to notice a stream of nothing but comments and pings.
    heard: Instant,
    first: bool,
    /// The beginning of the body, to be shown if nothing in it makes sense.
    head: Vec<u8>,
    events: u64,
    ready: VecDeque<Delta>,
    fresh: Vec<Delta>,
    /// Bytes and calls of the answer so far.
    size: usize,
    calls: HashSet<usize>,
    fault: Option<Error>,
    over: bool,
    /// The answer is over, the body perhaps not.
    open: bool,
}

/// The most bytes of words, reasoning and arguments that an answer may have: eight times what the longest answers
/// of today's models come to.
pub(super) const LONGEST_ANSWER: usize = 8 << 20;
/// The most calls an answer may have. People's agents make ten at once; what makes more than this never ends.
const MOST_CALLS: usize = 2_048;

fn oversized(who: &str, bytes: usize, calls: usize) -> Option<Error> {
    let what = if bytes > LONGEST_ANSWER {
        format!("larger than {} MiB", LONGEST_ANSWER >> 20)
    } else if calls > MOST_CALLS {
        format!("made of more than {MOST_CALLS} calls")
    } else {
        return None;
    };
    Some(Error::TooMuch(format!(
        "The answer of {who} was {what}. It was cut off there, and none of its calls was run."
    )))
}

/// Whether an answer is further than before. Counts of tokens can be sent again and again.
fn says_something(delta: &Delta) -> bool {
    match delta {
        Delta::Text { text, .. } | Delta::Reasoning { text, .. } => !text.is_empty(),
        Delta::Arguments { json, .. } => !json.is_empty(),
        Delta::Usage(_) => false,
        Delta::Call { .. } | Delta::Provider { .. } | Delta::Found(_) | Delta::Finish(_) => true,
    }
}

/// What the body turned out to be.
enum BodyFormat {
    Unknown,
    Events(SseParser),
    /// A server that does not stream: the whole answer is one event.
    Whole(Vec<u8>),
}

impl From<BadEvent> for Error {
    fn from(bad: BadEvent) -> Self {
        Self::Garbled(format!("The answer cannot be read: {bad}."))
    }
}

impl<S: Stream<Item = Result<Bytes, Error>> + Send + Unpin + 'static> ResponseStream<S> {
    /// How many packets are taken along at most, so that words are never held back for long.
    const AT_ONCE: usize = 63;

    pub(super) fn new(
        who: Arc<str>,
        bytes: S,
        decoder: Box<dyn Decoder>,
        limits: RequestTimeouts,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            who,
            bytes,
            body: BodyFormat::Unknown,
            decoder,
            limits,
            deadline,
            heard: Instant::now(),
            first: true,
            head: Vec::new(),
            events: 0,
            ready: VecDeque::new(),
            fresh: Vec::new(),
            size: 0,
            calls: HashSet::new(),
            fault: None,
            over: false,
            open: false,
        }
    }

    pub(super) async fn next(&mut self) -> Option<Result<Delta, Error>> {
        loop {
            if let Some(delta) = self.ready.pop_front() {
                return Some(Ok(delta));
            }
            if let Some(fault) = self.fault.take() {
                return Some(Err(fault));
            }
            if self.over {
                if std::mem::take(&mut self.open) {
                    self.let_go().await;
                }
                return None;
            }
            let item = self.chunk().await;
            self.step(item);
            // What is here already is taken along: servers put every word into a packet of its own,
            // and a piece that is passed on costs far more than a piece that is decoded.
            for _ in 0..Self::AT_ONCE {
                if self.over {
                    break;
                }
                let mut next = self.bytes.next().now_or_never();
                if next.is_none() {
                    // The connection is a task of its own that hands over one packet at a time; it
                    // was just told that we want the next.
                    give_way().await;
                    next = self.bytes.next().now_or_never();
                }
                let Some(item) = next else { break };
                self.step(item.transpose());
            }
        }
    }

    fn step(&mut self, item: Result<Option<Bytes>, Error>) {
        match item {
            Ok(Some(bytes)) => match self.take(&bytes) {
                Ok(Flow::More) => {}
                Ok(Flow::Done) => (self.over, self.open) = (true, true),
                Err(fault) => self.fail(fault),
            },
            Ok(None) => self.close(),
            Err(fault) => self.cut(fault),
        }
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let limit = if self.first { self.limits.first } else { self.limits.idle };
        let quiet = self.limits.idle.filter(|_| !self.first).map(|idle| idle * EMPTY_IDLES);
        let ends = [
            limit.map(|limit| (Instant::now() + limit, limit)),
            quiet.map(|quiet| (self.heard + quiet, quiet)),
            self.deadline.zip(self.limits.total),
        ];
        let next = self.bytes.next();
        let item = match ends.into_iter().flatten().min() {
            Some((at, limit)) => timeout_at(at, next).await.map_err(|_| Error::Stalled(limit))?,
            None => next.await,
        };
        item.transpose()
    }

    fn take(&mut self, bytes: &[u8]) -> Result<Flow, Error> {
        self.first = false;
        let room = 201 - self.head.len().min(201);
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if matches!(self.body, BodyFormat::Unknown) {
            let start = bytes.trim_ascii_start();
            self.body = match start.first() {
                None => return Ok(Flow::More),
                Some(b'<') => return Err(self.no_api()),
                Some(b'{' | b'[') => BodyFormat::Whole(Vec::new()),
                Some(_) => BodyFormat::Events(SseParser::default()),
            };
        }
        let flow = match &mut self.body {
            BodyFormat::Unknown => Ok(Flow::More),
            BodyFormat::Whole(whole) => {
                if whole.len() + bytes.len() > LONGEST_EVENT {
                    return Err(BadEvent::TooLong.into());
                }
                whole.extend_from_slice(bytes);
                Ok(Flow::More)
            }
            BodyFormat::Events(parser) => parser.push(bytes, |name, data| {
                self.events += 1;
                self.decoder.decode(name, data, &mut self.fresh)
            }),
        };
        self.pass_on();
        flow
    }

    /// Queues what was decoded. Pieces of one block that came in one packet become one piece. Of an answer that
    /// outgrows its limits the rest is dropped, and the connection with it.
    fn pass_on(&mut self) {
        if self.fresh.iter().any(says_something) {
            self.heard = Instant::now();
        }
        for delta in self.fresh.drain(..) {
            match &delta {
                Delta::Text { text, .. } | Delta::Reasoning { text, .. } => self.size += text.len(),
                Delta::Arguments { json, .. } => self.size += json.len(),
                Delta::Call { index, .. } => drop(self.calls.insert(*index)),
                Delta::Provider { .. } | Delta::Found(_) | Delta::Usage(_) | Delta::Finish(_) => {}
            }
            if let Some(fault) = oversized(&self.who, self.size, self.calls.len()) {
                (self.fault, self.over, self.open) = (Some(fault), true, false);
                return;
            }
            match (self.ready.back_mut(), delta) {
                (Some(Delta::Text { index: a, text }), Delta::Text { index: b, text: more }) if *a == b => {
                    text.push_str(&more)
                }
                (Some(Delta::Reasoning { index: a, text }), Delta::Reasoning { index: b, text: more }) if *a == b => {
                    text.push_str(&more);
                }
                (Some(Delta::Arguments { index: a, json }), Delta::Arguments { index: b, json: more }) if *a == b => {
                    json.push_str(&more);
                }
                (_, delta) => self.ready.push_back(delta),
            }
        }
    }

    /// The body is at its end.
    fn close(&mut self) {
        let last = match std::mem::replace(&mut self.body, BodyFormat::Unknown) {
            BodyFormat::Unknown => Ok(Flow::More),
            BodyFormat::Events(mut parser) => parser.end(|name, data| {
                self.events += 1;
                self.decoder.decode(name, data, &mut self.fresh)
            }),
            BodyFormat::Whole(whole) => match std::str::from_utf8(&whole) {
                Ok(text) => {
                    self.events += 1;
                    self.decoder.decode("", &sse::whole(text), &mut self.fresh)
                }
                Err(_) => Err(BadEvent::NotText.into()),
            },
        };
        let cut = || Error::Garbled(format!("The answer of {} was cut off before its end.", self.who));
        match last {
            Ok(Flow::Done) => self.over = true,
            Ok(Flow::More) if self.events == 0 && self.head.trim_ascii().is_empty() => {
                self.cut(Error::Garbled(format!("{} closed the connection without an answer.", self.who)));
            }
            Ok(Flow::More) if self.events == 0 => self.fault = Some(self.no_api()),
            Ok(Flow::More) => self.cut(cut()),
            // An event that cannot be read at the very end is one that did not come whole.
            Err(Error::Garbled(_)) if self.events > 1 => self.cut(cut()),
            Err(fault) => self.fault = Some(fault),
        }
        self.pass_on();
        self.over = true;
    }

    /// The connection ended, in whatever way. If the wire had seen all it needs, that is no fault.
    fn cut(&mut self, fault: Error) {
        if self.decoder.end(&mut self.fresh).is_err() {
            self.fault = Some(fault);
        }
        self.pass_on();
        self.over = true;
    }

    fn fail(&mut self, fault: Error) {
        self.pass_on();
        self.fault = Some(fault);
        self.over = true;
    }

    fn no_api(&self) -> Error {
        let shown = classify::excerpt(&self.head);
        Error::Garbled(format!("{} answered with something that is not a model's answer: {shown}.", self.who))
    }

    /// Reads the last bytes of an answer that is complete, so that the connection can be used
    /// again; they usually came with it.
    async fn let_go(&mut self) {
        let rest = async { while let Some(Ok(_)) = self.bytes.next().await {} };
        let _ = timeout(Duration::from_millis(20), rest).await;
    }
}
