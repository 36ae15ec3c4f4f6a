//! Between a wire's bytes and the network: one client, the post, and the answer read with limits.
//!
//! An answer is read as it comes. It is over when the wire has seen its end; an answer that stops
//! without one was cut off and is an error, however politely the connection was closed. Nothing
//! here is a task: the stream does the work when it is polled, and dropping it hangs up.

use std::collections::{HashSet, VecDeque};
use std::error::Error as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Instant, timeout, timeout_at};

use super::sse::{self, BadEvent, Flow, LONGEST_EVENT, Parser};
use super::tape::Tape;
use super::wire::{Call, Decoder};
use super::{Answer, Delta, Error, Model, classify};
pub use crate::config::settings::Limits;
use crate::config::settings::Secret;
use crate::environment::Environment;

/// Bytes that say nothing (comments, to keep the connection open) are not progress for ever: this
/// many idle limits without an event are a stall too.
const EMPTY_IDLES: u32 = 10;

/// The one way out. Cheap until first used: reading the certificate store takes milliseconds.
#[derive(Debug)]
pub struct Client {
    environment: Environment,
    outside: OnceLock<Result<reqwest::Client, String>>,
    loopback: OnceLock<Result<reqwest::Client, String>>,
}

impl Client {
    /// A client that takes proxies and certificates from the process's environment.
    pub fn new(environment: &Environment) -> Self {
        Self { environment: environment.clone(), outside: OnceLock::new(), loopback: OnceLock::new() }
    }

    /// Posts a call and reads the answer with the decoder. `who` is the provider's name for people;
    /// the tape, if there is one, gets all that comes.
    pub fn ask(
        self: &Arc<Self>,
        who: Arc<str>,
        call: Call,
        decoder: Box<dyn Decoder>,
        limits: Limits,
        tape: Option<Arc<Tape>>,
    ) -> Answer {
        let client = Arc::clone(self);
        let begin = async move {
            let deadline = limits.total.map(|total| Instant::now() + total);
            let response = client.post(&who, call, limits.first, tape.as_deref()).await?;
            let body = response.bytes_stream();
            let name = Arc::clone(&who);
            let mut bytes = body.map(move |item| item.map_err(|e| broken(&name, &e))).boxed();
            if let Some(tape) = tape {
                bytes = recorded(bytes, tape);
            }
            Ok(Reading::new(who, bytes, decoder, limits, deadline))
        };
        Box::pin(futures_util::stream::once(begin).flat_map(|begun: Result<Reading<_>, Error>| match begun {
            Ok(reading) => reading.answer(),
            Err(e) => Box::pin(futures_util::stream::iter([Err(e)])),
        }))
    }

    /// A tape for this call, where the user wants its traffic recorded.
    pub fn record(&self, wire: &str, who: &str, model: &Model, call: &Call, key: Option<&Secret>) -> Option<Arc<Tape>> {
        Tape::begin(&self.environment, wire, who, model, call, key)
    }

    /// Fetches a small JSON document.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn get(&self, who: &str, url: &str, headers: &[(String, String)], most: usize) -> Result<Bytes, Error> {
        let (body, _) = self.fetch(who, url, headers, most).await?;
        Ok(body.unwrap_or_default())
    }

    /// Fetches a document and the mark of its version. None where it still is the version that
    /// `if-none-match` names.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn fetch(
        &self,
        who: &str,
        url: &str,
        headers: &[(String, String)],
        most: usize,
    ) -> Result<(Option<Bytes>, Option<String>), Error> {
        let request = self.of(url)?.get(url).headers(header_map(headers)?);
        let response = request.send().await.map_err(|e| broken(who, &e))?;
        let status = response.status();
        let replied = response.headers().clone();
        let mark = replied.get("etag").and_then(|mark| mark.to_str().ok()).map(str::to_owned);
        if status == reqwest::StatusCode::NOT_MODIFIED {
            return Ok((None, mark));
        }
        let body = gather(who, response, most).await?;
        if status.is_success() {
            return Ok((Some(body), mark));
        }
        let text = String::from_utf8_lossy(&body);
        Err(classify::reply(who, status.as_u16(), &replied, &text, self.environment.now()))
    }

    /// Sends a small request and gathers what comes, whatever its status says.
    ///
    /// # Errors
    /// Where nothing comes.
    pub async fn exchange(
        &self,
        who: &str,
        method: &reqwest::Method,
        url: &str,
        headers: HeaderMap,
        body: Vec<u8>,
        most: usize,
    ) -> Result<(reqwest::StatusCode, HeaderMap, Bytes), Error> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let sent = self.of(url)?.request(method.clone(), url).headers(headers).body(body).send();
        let response = within(Some(PATIENCE), sent).await?.map_err(|e| broken(who, &e))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = within(Some(PATIENCE), gather(who, response, most)).await??;
        Ok((status, headers, body))
    }

    /// Reads the certificates, which takes some milliseconds of whoever first needs them.
    pub fn warm(&self) {
        self.of("https://localhost").ok();
    }

    async fn post(
        &self,
        who: &str,
        call: Call,
        first: Option<Duration>,
        tape: Option<&Tape>,
    ) -> Result<reqwest::Response, Error> {
        let mut headers = header_map(&call.headers)?;
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.entry("accept").or_insert(HeaderValue::from_static("text/event-stream, application/json"));
        let sent = self.of(&call.url)?.post(&call.url).headers(headers).body(call.body).send();
        let response = within(first, sent).await.and_then(|sent| sent.map_err(|e| broken(who, &e)));
        let response = response.inspect_err(|e| {
            if let Some(tape) = tape {
                tape.broke(e);
            }
        })?;
        let status = response.status();
        if let Some(tape) = tape {
            tape.came(status.as_u16(), response.headers());
        }
        if status.is_success() {
            return Ok(response);
        }
        let headers = response.headers().clone();
        // What went wrong is known by the status; the words are worth a short wait, no more.
        let body = timeout(Duration::from_secs(10), gather(who, response, 64 << 10)).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        if let Some(tape) = tape {
            tape.piece(&body);
            tape.ended();
        }
        let body = String::from_utf8_lossy(&body);
        Err(classify::reply(who, status.as_u16(), &headers, &body, self.environment.now()))
    }

    fn of(&self, url: &str) -> Result<&reqwest::Client, Error> {
        let parsed = reqwest::Url::parse(url)
            .map_err(|e| Error::BadRequest(format!("\"{}\" is not an address: {e}.", address(url))))?;
        // A server on this machine needs neither proxy nor certificates.
        let client = if parsed.scheme() == "http" && is_loopback(&parsed) {
            self.loopback.get_or_init(|| build(reqwest::Client::builder().no_proxy().tls_certs_only([])))
        } else {
            self.outside.get_or_init(|| build(builder(&self.environment)?))
        };
        client.as_ref().map_err(|e| Error::Network(format!("No connection can be made from here: {e}.")))
    }
}

/// What every client begins with: the certificates of the system and of the process's environment.
///
/// # Errors
/// Why there are none, for a person.
pub fn builder(environment: &Environment) -> Result<reqwest::ClientBuilder, String> {
    install();
    with_extra_certificates(environment)
}

/// Whoever is first installs what TLS is made of; that another was first is fine.
fn install() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn build(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, String> {
    install();
    builder
        .user_agent(concat!("adjutant/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(30))
        .tcp_keepalive(Duration::from_secs(30))
        .redirect(reqwest::redirect::Policy::custom(redirect))
        .build()
        .map_err(|e| chain(&e))
}

/// Keys are in headers of many names, so a redirect is followed only within an origin, and only
/// where it keeps the method.
fn redirect(attempt: reqwest::redirect::Attempt<'_>) -> reqwest::redirect::Action {
    let same = attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
    let keeps = matches!(attempt.status().as_u16(), 307 | 308);
    if same && keeps && attempt.previous().len() <= 5 { attempt.follow() } else { attempt.stop() }
}

fn with_extra_certificates(environment: &Environment) -> Result<reqwest::ClientBuilder, String> {
    // `SSL_CERT_FILE` and `SSL_CERT_DIR` replace the system's store and are read with it;
    // `NODE_EXTRA_CA_CERTS`, which users of OpenCode set, adds to it.
    let builder = reqwest::Client::builder();
    let Some(path) = environment.var("NODE_EXTRA_CA_CERTS").map(PathBuf::from) else { return Ok(builder) };
    let wrong = |e: String| format!("NODE_EXTRA_CA_CERTS names {}: {e}", path.display());
    let pem = std::fs::read(&path).map_err(|e| wrong(e.to_string()))?;
    let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|e| wrong(chain(&e)))?;
    Ok(builder.tls_certs_merge(certificates))
}

fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// An address without what may be secret in it.
fn address(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, Error> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let bad = || {
            Error::BadRequest(format!(
                "The header \"{name}\" of the configuration cannot be sent: it has characters no header may have."
            ))
        };
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value.trim()).map_err(|_| bad())?;
        value.set_sensitive(true);
        map.insert(key, value);
    }
    Ok(map)
}

async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Result<T, Error> {
    match limit {
        Some(limit) => timeout(limit, work).await.map_err(|_| Error::Stalled(limit)),
        None => Ok(work.await),
    }
}

async fn gather(who: &str, mut response: reqwest::Response, most: usize) -> Result<Bytes, Error> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(|e| broken(who, &e))? {
        let room = most - body.len();
        body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if body.len() == most {
            break;
        }
    }
    Ok(body.into())
}

/// What happened to a connection, for a person.
fn broken(who: &str, e: &reqwest::Error) -> Error {
    let cause = chain(e);
    let lower = cause.to_lowercase();
    if lower.contains("certificate") || lower.contains("unknownissuer") || lower.contains("handshake") {
        return Error::Untrusted(format!("{who} could not prove who it is: {cause}."));
    }
    let host = e.url().and_then(|url| url.host_str()).map(|host| format!(" ({host})")).unwrap_or_default();
    let what = if lower.contains("proxy") || lower.contains("tunnel") {
        format!("The proxy on the way to {who}{host} did not let us through")
    } else if lower.contains("dns") || lower.contains("lookup address") {
        format!("The host of {who}{host} was not found")
    } else if e.is_connect() || e.is_timeout() {
        format!("{who}{host} could not be reached")
    } else if e.is_builder() {
        return Error::BadRequest(format!("The request to {who} could not be made: {cause}."));
    } else {
        format!("The connection to {who}{host} broke")
    };
    Error::Network(format!("{what}: {cause}."))
}

/// An error and its causes, without addresses (they may hold keys) and without repetition.
pub fn chain(e: &reqwest::Error) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut next = e.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        // Which layer speaks says nothing to a person, as long as the one below has a reason.
        let layer = ["client error", "error trying to connect", "tcp connect error", "dns error", "error resolving"];
        let deeper = cause.source();
        if deeper.is_some() && layer.iter().any(|start| text.starts_with(start)) {
            next = deeper;
            continue;
        }
        if !words.iter().any(|known| known.contains(&text)) {
            words.push(text);
        }
        next = cause.source();
    }
    if words.is_empty() {
        words.push(if e.is_timeout() { "timed out".to_owned() } else { "no reason was given".to_owned() });
    }
    words.join(": ")
}

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

/// Bytes that were kept, read as if they came from a connection.
pub fn read(who: Arc<str>, bytes: BytesStream, decoder: Box<dyn Decoder>, limits: Limits) -> Answer {
    Reading::new(who, bytes, decoder, limits, None).answer()
}

/// The same bytes, written down as they pass.
fn recorded(bytes: BytesStream, tape: Arc<Tape>) -> BytesStream {
    let ended = Arc::clone(&tape);
    let pieces = bytes.inspect(move |item| match item {
        Ok(bytes) => tape.piece(bytes),
        Err(e) => tape.broke(e),
    });
    let end = futures_util::stream::poll_fn(move |_| {
        ended.ended();
        Poll::Ready(None)
    });
    pieces.chain(end).boxed()
}

/// A body as it comes.
type BytesStream = futures_util::stream::BoxStream<'static, Result<Bytes, Error>>;

/// An answer that is being read.
struct Reading<S> {
    who: Arc<str>,
    bytes: S,
    body: Body,
    decoder: Box<dyn Decoder>,
    limits: Limits,
    deadline: Option<Instant>,
    /// When the last event came, to notice a stream of nothing but comments.
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
const LONGEST_ANSWER: usize = 8 << 20;
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

/// What the body turned out to be.
enum Body {
    Unknown,
    Events(Parser),
    /// A server that does not stream: the whole answer is one event.
    Whole(Vec<u8>),
}

impl From<BadEvent> for Error {
    fn from(bad: BadEvent) -> Self {
        Self::Garbled(format!("The answer cannot be read: {bad}."))
    }
}

impl<S: Stream<Item = Result<Bytes, Error>> + Send + Unpin + 'static> Reading<S> {
    /// How many packets are taken along at most, so that words are never held back for long.
    const AT_ONCE: usize = 63;

    fn new(who: Arc<str>, bytes: S, decoder: Box<dyn Decoder>, limits: Limits, deadline: Option<Instant>) -> Self {
        Self {
            who,
            bytes,
            body: Body::Unknown,
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

    fn answer(self) -> Answer {
        Box::pin(futures_util::stream::unfold(Box::new(self), |mut reading| async move {
            let item = reading.next().await?;
            Some((item, reading))
        }))
    }

    async fn next(&mut self) -> Option<Result<Delta, Error>> {
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
        if matches!(self.body, Body::Unknown) {
            let start = bytes.trim_ascii_start();
            self.body = match start.first() {
                None => return Ok(Flow::More),
                Some(b'<') => return Err(self.no_api()),
                Some(b'{' | b'[') => Body::Whole(Vec::new()),
                Some(_) => Body::Events(Parser::default()),
            };
        }
        let flow = match &mut self.body {
            Body::Unknown => Ok(Flow::More),
            Body::Whole(whole) => {
                if whole.len() + bytes.len() > LONGEST_EVENT {
                    return Err(BadEvent::TooLong.into());
                }
                whole.extend_from_slice(bytes);
                Ok(Flow::More)
            }
            Body::Events(parser) => {
                let before = self.events;
                let flow = parser.push(bytes, |name, data| {
                    self.events += 1;
                    self.decoder.decode(name, data, &mut self.fresh)
                });
                if self.events > before {
                    self.heard = Instant::now();
                }
                flow
            }
        };
        self.pass_on();
        flow
    }

    /// Queues what was decoded. Pieces of one block that came in one packet become one piece. Of an answer that
    /// outgrows its limits the rest is dropped, and the connection with it.
    fn pass_on(&mut self) {
        for delta in self.fresh.drain(..) {
            match &delta {
                Delta::Text { text, .. } | Delta::Reasoning { text, .. } => self.size += text.len(),
                Delta::Arguments { json, .. } => self.size += json.len(),
                Delta::Call { index, .. } => drop(self.calls.insert(*index)),
                Delta::Provider { .. } | Delta::Usage(_) | Delta::Finish(_) => {}
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
        let last = match std::mem::replace(&mut self.body, Body::Unknown) {
            Body::Unknown => Ok(Flow::More),
            Body::Events(mut parser) => parser.end(|name, data| {
                self.events += 1;
                self.decoder.decode(name, data, &mut self.fresh)
            }),
            Body::Whole(whole) => match std::str::from_utf8(&whole) {
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

#[cfg(test)]
mod tests;
