//! The HTTP client: posts encoded requests and reads answers, with limits.
//!
//! An answer is decoded as it arrives. It is complete when the wire format has seen its end; an
//! answer that stops without one was cut off and is an error, even if the connection was closed
//! regularly. A task of its own reads the answer as long as its receiver exists, because a turn is
//! many futures deep and there is one packet per word.

pub mod resolver;
mod stream;

use std::error::Error as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Instant, timeout};

use self::resolver::{FilteredResolver, ForbiddenAddress, lookup_host};
use self::stream::ResponseStream;
use super::recording::Recording;
use super::wire::{Decoder, HttpCall};
use super::{AnswerStream, Error, Model, error_classification, is_loopback};
pub use crate::entry::RequestTimeouts;
use crate::secret::Secret;
use base::environment::Environment;

/// The only HTTP client. Cheap until first used: reading the certificate store takes milliseconds.
#[derive(Debug)]
pub struct HttpClient {
    environment: Environment,
    outside: OnceLock<Result<reqwest::Client, String>>,
    loopback: OnceLock<Result<reqwest::Client, String>>,
    /// Returns the reason why an IP address is never connected to; `None` connects to any.
    forbidden: Option<fn(IpAddr) -> Option<&'static str>>,
}

/// The time limit of a small request, and of its response.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(60);

impl HttpClient {
    /// Creates a client that takes proxies and certificates from the environment.
    pub fn new(environment: &Environment) -> Self {
        Self {
            environment: environment.clone(),
            outside: OnceLock::new(),
            loopback: OnceLock::new(),
            forbidden: None,
        }
    }

    /// Creates a client that connects to no address that `forbidden` names a reason for, whatever
    /// its name. It uses no proxy, which would resolve the names itself.
    pub fn guarded(
        environment: &Environment,
        forbidden: fn(IpAddr) -> Option<&'static str>,
    ) -> Self {
        Self {
            forbidden: Some(forbidden),
            ..Self::new(environment)
        }
    }

    /// Posts a call and decodes the answer. `who` is the provider's display name; `tape` records
    /// the traffic.
    pub fn stream(
        self: &Arc<Self>,
        who: Arc<str>,
        call: HttpCall,
        decoder: Box<dyn Decoder>,
        limits: RequestTimeouts,
        tape: Option<Arc<Recording>>,
    ) -> AnswerStream {
        let client = Arc::clone(self);
        let begin = async move {
            let deadline = limits.total.map(|total| Instant::now() + total);
            let response = client
                .post(&who, call, limits.first, tape.as_deref())
                .await?;
            let body = response.bytes_stream();
            let name = Arc::clone(&who);
            let mut bytes = body
                .map(move |item| item.map_err(|e| broken(&name, &e)))
                .boxed();
            if let Some(tape) = tape {
                bytes = recorded(bytes, tape);
            }
            Ok(ResponseStream::new(who, bytes, decoder, limits, deadline))
        };
        stream::answer(begin)
    }

    /// Returns a recording for this call if the user wants one.
    pub fn record(
        &self,
        wire: &str,
        who: &str,
        model: &Model,
        call: &HttpCall,
        keys: &[Secret],
    ) -> Option<Arc<Recording>> {
        Recording::begin(&self.environment, wire, who, model, call, keys)
    }

    /// Fetches a small JSON document, truncated to `limit` bytes.
    ///
    /// # Errors
    /// Same as [`HttpClient::stream`].
    pub async fn get(
        &self,
        who: &str,
        url: &str,
        headers: &[(String, String)],
        limit: usize,
    ) -> Result<Bytes, Error> {
        let (body, _) = self.fetch(who, url, headers, limit).await?;
        Ok(body.unwrap_or_default())
    }

    /// Fetches a document, truncated to `limit` bytes, and its ETag. The document is `None` if it
    /// still is the version of `if-none-match`.
    ///
    /// # Errors
    /// Same as [`HttpClient::stream`].
    pub async fn fetch(
        &self,
        who: &str,
        url: &str,
        headers: &[(String, String)],
        limit: usize,
    ) -> Result<(Option<Bytes>, Option<String>), Error> {
        let request = self.client_for(url)?.get(url).headers(header_map(headers)?);
        let response = request.send().await.map_err(|e| broken(who, &e))?;
        let status = response.status();
        let reply_headers = response.headers().clone();
        let etag = reply_headers
            .get("etag")
            .and_then(|etag| etag.to_str().ok())
            .map(str::to_owned);
        if status == reqwest::StatusCode::NOT_MODIFIED {
            return Ok((None, etag));
        }
        let body = read_body(who, response, limit).await?;
        if status.is_success() {
            return Ok((Some(body), etag));
        }
        let text = String::from_utf8_lossy(&body);
        Err(error_classification::reply(
            who,
            status.as_u16(),
            &reply_headers,
            &text,
            self.environment.now(),
        ))
    }

    /// Fetches a small document within a time limit, and returns the response, whatever its status.
    /// The errors are those of a request to a model.
    ///
    /// # Errors
    /// An error if there is no response.
    pub async fn probe(
        &self,
        who: &str,
        url: &str,
        timeout: Duration,
        limit: usize,
    ) -> Result<(reqwest::StatusCode, Bytes), Error> {
        let exchange = async {
            let sent = self.client_for(url)?.get(url).send().await;
            let response = sent.map_err(|e| refused(who, &e).unwrap_or_else(|| broken(who, &e)))?;
            let status = response.status();
            Ok((status, read_body(who, response, limit).await?))
        };
        tokio::time::timeout(timeout, exchange)
            .await
            .unwrap_or_else(|_| {
                let seconds = timeout.as_secs();
                Err(Error::Unreachable(format!(
                    "{who} has not answered within {seconds} seconds."
                )))
            })
    }

    /// Sends a small request and returns the response, whatever its status, with its body truncated
    /// to `limit` bytes.
    ///
    /// # Errors
    /// An error if there is no response.
    pub async fn exchange(
        &self,
        who: &str,
        method: &reqwest::Method,
        url: &str,
        headers: HeaderMap,
        body: Vec<u8>,
        limit: usize,
    ) -> Result<(reqwest::StatusCode, HeaderMap, Bytes), Error> {
        let request = self
            .client_for(url)?
            .request(method.clone(), url)
            .headers(headers)
            .body(body);
        exchanged(who, request, EXCHANGE_TIMEOUT, limit).await
    }

    /// Sends JSON like [`HttpClient::exchange`], with a time limit of its own.
    ///
    /// # Errors
    /// Same as [`HttpClient::exchange`].
    pub async fn exchange_json(
        &self,
        who: &str,
        url: &str,
        body: &serde_json::Value,
        timeout: Duration,
        limit: usize,
    ) -> Result<(reqwest::StatusCode, HeaderMap, Bytes), Error> {
        let request = self
            .client_for(url)?
            .post(url)
            .header("content-type", "application/json")
            .body(body.to_string());
        exchanged(who, request, timeout, limit).await
    }

    /// Returns the underlying client for an address, for requests of other crates.
    ///
    /// # Errors
    /// An error if the address is invalid, or no client can be created.
    pub fn raw(&self, url: &str) -> Result<reqwest::Client, Error> {
        self.client_for(url).cloned()
    }

    /// Reads the certificates in advance, which takes some milliseconds.
    pub fn warm(&self) {
        self.client_for("https://localhost").ok();
    }

    async fn post(
        &self,
        who: &str,
        call: HttpCall,
        first: Option<Duration>,
        tape: Option<&Recording>,
    ) -> Result<reqwest::Response, Error> {
        let mut headers = header_map(&call.headers)?;
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.entry("accept").or_insert(HeaderValue::from_static(
            "text/event-stream, application/json",
        ));
        let sent = self
            .client_for(&call.url)?
            .post(&call.url)
            .headers(headers)
            .body(call.body)
            .send();
        let response = within(first, sent)
            .await
            .and_then(|sent| sent.map_err(|e| refused(who, &e).unwrap_or_else(|| broken(who, &e))));
        let response = response.inspect_err(|e| {
            if let Some(tape) = tape {
                tape.record_failure(e);
            }
        })?;
        let status = response.status();
        if let Some(tape) = tape {
            tape.record_status(status.as_u16(), response.headers());
        }
        if status.is_success() {
            return Ok(response);
        }
        let headers = response.headers().clone();
        // The status already determines the error; the body is worth a short wait only.
        let body = timeout(Duration::from_secs(10), read_body(who, response, 64 << 10)).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        if let Some(tape) = tape {
            tape.piece(&body);
            tape.ended();
        }
        let body = String::from_utf8_lossy(&body);
        Err(error_classification::reply(
            who,
            status.as_u16(),
            &headers,
            &body,
            self.environment.now(),
        ))
    }

    fn client_for(&self, url: &str) -> Result<&reqwest::Client, Error> {
        let parsed = reqwest::Url::parse(url).map_err(|e| {
            Error::BadRequest(format!("\"{}\" is not an address: {e}.", address(url)))
        })?;
        // A server on this machine needs neither proxy nor certificates.
        let client = if let Some(forbidden) = self.forbidden {
            // The resolver is not asked about an IP address.
            let host = parsed.host_str().unwrap_or_default();
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            if let Some(why) = bare.parse::<IpAddr>().ok().and_then(forbidden) {
                return Err(Error::BadRequest(format!("{} {why}.", address(url))));
            }
            self.outside.get_or_init(|| {
                let guard = FilteredResolver {
                    lookup: Arc::new(|host| Box::pin(lookup_host(host))),
                    why_forbidden: forbidden,
                };
                build(builder(&self.environment)?.no_proxy().dns_resolver(guard))
            })
        } else if parsed.scheme() == "http" && is_loopback(&parsed) {
            self.loopback
                .get_or_init(|| build(reqwest::Client::builder().no_proxy().tls_certs_only([])))
        } else {
            self.outside
                .get_or_init(|| build(builder(&self.environment)?))
        };
        client
            .as_ref()
            .map_err(|e| Error::Untrusted(format!("No connection can be made from here: {e}.")))
    }
}

/// Returns the base of every client: the certificates of the system and of the environment.
///
/// # Errors
/// The reason why there are none, for display.
pub fn builder(environment: &Environment) -> Result<reqwest::ClientBuilder, String> {
    install_tls();
    with_extra_certificates(environment)
}

/// Installs the TLS implementation, unless another caller already has.
fn install_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn build(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, String> {
    install_tls();
    builder
        .user_agent(concat!("adjutant/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(30))
        .tcp_keepalive(Duration::from_secs(30))
        .redirect(reqwest::redirect::Policy::custom(redirect))
        .build()
        .map_err(|e| chain(&e))
}

/// Follows a redirect only within an origin, because keys may be in any header, and only if it
/// preserves the method.
fn redirect(attempt: reqwest::redirect::Attempt<'_>) -> reqwest::redirect::Action {
    let is_same_origin = attempt
        .previous()
        .last()
        .is_some_and(|from| from.origin() == attempt.url().origin());
    let preserves_method = matches!(attempt.status().as_u16(), 307 | 308);
    if is_same_origin && preserves_method && attempt.previous().len() <= 5 {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

fn with_extra_certificates(environment: &Environment) -> Result<reqwest::ClientBuilder, String> {
    // `SSL_CERT_FILE` and `SSL_CERT_DIR` replace the system's store and are read with it;
    // `NODE_EXTRA_CA_CERTS`, which users of OpenCode set, adds to it.
    let builder = reqwest::Client::builder();
    let Some(path) = environment.var("NODE_EXTRA_CA_CERTS").map(PathBuf::from) else {
        return Ok(builder);
    };
    let wrong = |e: String| format!("NODE_EXTRA_CA_CERTS names {}: {e}", path.display());
    let pem = std::fs::read(&path).map_err(|e| wrong(e.to_string()))?;
    let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|e| wrong(chain(&e)))?;
    Ok(builder.tls_certs_merge(certificates))
}

/// Returns an address without the parts that may be secret.
fn address(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

/// Converts headers of the settings; all of them are marked as sensitive.
///
/// # Errors
/// An error if a header has invalid characters.
pub fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, Error> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let bad = || {
            Error::BadRequest(format!(
                "The header \"{name}\" of the configuration cannot be sent: it contains characters that are not allowed in a header."
            ))
        };
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value.trim()).map_err(|_| bad())?;
        value.set_sensitive(true);
        map.insert(key, value);
    }
    Ok(map)
}

/// Sends a request, and reads its response. Both take `timeout` at most.
async fn exchanged(
    who: &str,
    request: reqwest::RequestBuilder,
    timeout: Duration,
    limit: usize,
) -> Result<(reqwest::StatusCode, HeaderMap, Bytes), Error> {
    let response = within(Some(timeout), request.send())
        .await?
        .map_err(|e| broken(who, &e))?;
    let status = response.status();
    let headers = response.headers().clone();
    let body = within(Some(timeout), read_body(who, response, limit)).await??;
    Ok((status, headers, body))
}

async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Result<T, Error> {
    match limit {
        Some(limit) => timeout(limit, work)
            .await
            .map_err(|_| Error::Stalled(limit)),
        None => Ok(work.await),
    }
}

async fn read_body(
    who: &str,
    mut response: reqwest::Response,
    limit: usize,
) -> Result<Bytes, Error> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(|e| broken(who, &e))? {
        let remaining = limit - body.len();
        body.extend_from_slice(&bytes[..bytes.len().min(remaining)]);
        if body.len() == limit {
            break;
        }
    }
    Ok(body.into())
}

/// Returns the error of a failed connection, with a message for the user.
fn broken(who: &str, e: &reqwest::Error) -> Error {
    let cause = chain(e);
    if layers(e).any(is_about_trust) {
        return Error::Untrusted(format!(
            "The certificate of {who} could not be verified: {cause}."
        ));
    }
    let host = e
        .url()
        .and_then(|url| url.host_str())
        .map(|host| format!(" ({host})"))
        .unwrap_or_default();
    // The name inside a sentence.
    let it = who
        .strip_prefix("The ")
        .map_or_else(|| who.to_owned(), |name| format!("the {name}"));
    let what = if layers(e).any(is_of_proxy) {
        format!("The proxy refused the connection to {it}{host}")
    } else if e.is_dns() && !layers(e).any(|layer| layer.is::<ForbiddenAddress>()) {
        format!("The host of {it}{host} was not found")
    } else if e.is_connect() || e.is_timeout() {
        format!("{who}{host} could not be reached")
    } else if e.is_builder() {
        return Error::BadRequest(format!("The request to {it} could not be made: {cause}."));
    } else {
        return Error::Network(format!("The connection to {it}{host} broke: {cause}."));
    };
    Error::Unreachable(format!("{what}: {cause}."))
}

/// Returns the causes of an error, the outermost first. The cause of an I/O error that wraps
/// another is that one, which its `source` leaves out.
fn layers(e: &reqwest::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(e.source(), |layer| cause_of(*layer))
}

fn cause_of<'e>(
    layer: &'e (dyn std::error::Error + 'static),
) -> Option<&'e (dyn std::error::Error + 'static)> {
    let wrapped = layer
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref);
    match wrapped {
        Some(wrapped) => Some(wrapped),
        None => layer.source(),
    }
}

/// Returns whether a cause is that one side does not accept the other's certificate or protocol.
fn is_about_trust(layer: &(dyn std::error::Error + 'static)) -> bool {
    use rustls::AlertDescription as Alert;
    match layer.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::AlertReceived(alert)) => matches!(
            alert,
            Alert::HandshakeFailure
                | Alert::NoCertificate
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::CertificateRequired
                | Alert::UnknownCA
        ),
        Some(e) => matches!(
            e,
            rustls::Error::InvalidCertificate(_)
                | rustls::Error::NoCertificatesPresented
                | rustls::Error::InvalidCertRevocationList(_)
        ),
        None => false,
    }
}

/// Returns whether a cause is the failure of a proxy. The types of these errors are private, so it
/// is recognized by the beginning of its own text.
fn is_of_proxy(layer: &(dyn std::error::Error + 'static)) -> bool {
    const STARTS: [&str; 4] = [
        "tunnel error",
        "SOCKS error",
        "error connecting to socks proxy",
        "error resolving for socks proxy",
    ];
    let text = layer.to_string();
    STARTS.iter().any(|start| text.starts_with(start))
}

/// Returns the error for a model server of this machine that is not running: no program listens at
/// its port.
fn refused(who: &str, e: &reqwest::Error) -> Option<Error> {
    let url = e.url().filter(|url| is_loopback(url))?;
    let mut cause = e.source();
    let is_refused = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    while !is_refused(cause?) {
        cause = cause?.source();
    }
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    Some(Error::Refused(format!(
        "{who} is not running at {host}:{port}."
    )))
}

/// Formats the causes of an error, without addresses (they may contain keys) and without
/// repetition.
pub fn chain(e: &reqwest::Error) -> String {
    let mut causes: Vec<String> = Vec::new();
    let mut next = e.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        // The names of network layers do not help a user, as long as the layer below has a reason.
        let layers = [
            "client error",
            "error trying to connect",
            "tcp connect error",
            "dns error",
            "error resolving",
            "request or response body error",
            "error reading a body from connection",
        ];
        // The libraries describe the encoding of the answer, in which its end is missing.
        let is_unfinished = text.starts_with("unexpected EOF")
            || text == "connection closed before message completed";
        let text = if is_unfinished {
            "it was closed before the end of the answer".to_owned()
        } else {
            text
        };
        let deeper = cause.source();
        if deeper.is_some() && layers.iter().any(|start| text.starts_with(start)) {
            next = deeper;
            continue;
        }
        if !causes.iter().any(|known| known.contains(&text)) {
            causes.push(text);
        }
        next = cause.source();
    }
    if causes.is_empty() {
        causes.push(if e.is_timeout() {
            "timed out".to_owned()
        } else {
            "no reason was given".to_owned()
        });
    }
    causes.join(": ")
}

/// Decodes recorded bytes as if they came from a connection.
pub fn read(
    who: Arc<str>,
    bytes: BytesStream,
    decoder: Box<dyn Decoder>,
    limits: RequestTimeouts,
) -> AnswerStream {
    stream::answer(async move { Ok(ResponseStream::new(who, bytes, decoder, limits, None)) })
}

/// Passes bytes on and records them.
fn recorded(bytes: BytesStream, tape: Arc<Recording>) -> BytesStream {
    let ended = Arc::clone(&tape);
    let pieces = bytes.inspect(move |item| match item {
        Ok(bytes) => tape.piece(bytes),
        Err(e) => tape.record_failure(e),
    });
    let end = futures_util::stream::poll_fn(move |_| {
        ended.ended();
        Poll::Ready(None)
    });
    pieces.chain(end).boxed()
}

/// The chunks of a body.
type BytesStream = futures_util::stream::BoxStream<'static, Result<Bytes, Error>>;

#[cfg(test)]
mod tests;
