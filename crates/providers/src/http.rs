//! Between a wire's bytes and the network: one client, the post, and the answer read with limits.
//!
//! An answer is read as it comes. It is over when the wire has seen its end; an answer that stops
//! without one was cut off and is an error, however politely the connection was closed. A task of its own reads, for
//! as long as somebody takes what it finds: a turn is many futures deep, and there is one packet for every word.

mod stream;

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Instant, timeout};

use self::stream::ResponseStream;
use super::tape::Tape;
use super::wire::{Decoder, HttpCall};
use super::{AnswerStream, Error, Model, classify, is_loopback};
pub use crate::entry::RequestTimeouts;
use crate::entry::Secret;
use base::environment::Environment;

/// The one way out. Cheap until first used: reading the certificate store takes milliseconds.
#[derive(Debug)]
pub struct HttpClient {
    environment: Environment,
    outside: OnceLock<Result<reqwest::Client, String>>,
    loopback: OnceLock<Result<reqwest::Client, String>>,
}

impl HttpClient {
    /// A client that takes proxies and certificates from the process's environment.
    pub fn new(environment: &Environment) -> Self {
        Self { environment: environment.clone(), outside: OnceLock::new(), loopback: OnceLock::new() }
    }

    /// Posts a call and reads the answer with the decoder. `who` is the provider's name for people;
    /// the tape, if there is one, gets all that comes.
    pub fn ask(
        self: &Arc<Self>,
        who: Arc<str>,
        call: HttpCall,
        decoder: Box<dyn Decoder>,
        limits: RequestTimeouts,
        tape: Option<Arc<Tape>>,
    ) -> AnswerStream {
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
            Ok(ResponseStream::new(who, bytes, decoder, limits, deadline))
        };
        stream::answer(begin)
    }

    /// A tape for this call, where the user wants its traffic recorded.
    pub fn record(
        &self,
        wire: &str,
        who: &str,
        model: &Model,
        call: &HttpCall,
        key: Option<&Secret>,
    ) -> Option<Arc<Tape>> {
        Tape::begin(&self.environment, wire, who, model, call, key)
    }

    /// Fetches a small JSON document.
    ///
    /// # Errors
    /// As [`HttpClient::ask`].
    pub async fn get(&self, who: &str, url: &str, headers: &[(String, String)], most: usize) -> Result<Bytes, Error> {
        let (body, _) = self.fetch(who, url, headers, most).await?;
        Ok(body.unwrap_or_default())
    }

    /// Fetches a document and the mark of its version. None where it still is the version that
    /// `if-none-match` names.
    ///
    /// # Errors
    /// As [`HttpClient::ask`].
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

    /// What requests to this address are made with, where they are made by others.
    ///
    /// # Errors
    /// Where it is not an address, or no client can be made.
    pub fn raw(&self, url: &str) -> Result<reqwest::Client, Error> {
        self.of(url).cloned()
    }

    /// Reads the certificates, which takes some milliseconds of whoever first needs them.
    pub fn warm(&self) {
        self.of("https://localhost").ok();
    }

    async fn post(
        &self,
        who: &str,
        call: HttpCall,
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

/// An address without what may be secret in it.
fn address(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

/// Headers as the settings write them, each a secret.
///
/// # Errors
/// Where one cannot be sent.
pub fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, Error> {
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
    // Within a sentence.
    let it = who.strip_prefix("The ").map_or_else(|| who.to_owned(), |name| format!("the {name}"));
    let what = if lower.contains("proxy") || lower.contains("tunnel") {
        format!("The proxy on the way to {it}{host} did not let us through")
    } else if lower.contains("dns") || lower.contains("lookup address") {
        format!("The host of {it}{host} was not found")
    } else if e.is_connect() || e.is_timeout() {
        format!("{who}{host} could not be reached")
    } else if e.is_builder() {
        return Error::BadRequest(format!("The request to {it} could not be made: {cause}."));
    } else {
        format!("The connection to {it}{host} broke")
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

/// Bytes that were kept, read as if they came from a connection.
pub fn read(who: Arc<str>, bytes: BytesStream, decoder: Box<dyn Decoder>, limits: RequestTimeouts) -> AnswerStream {
    stream::answer(async move { Ok(ResponseStream::new(who, bytes, decoder, limits, None)) })
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

#[cfg(test)]
mod tests;
