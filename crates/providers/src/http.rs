//! The HTTP client ([`HttpClient`]): posts encoded requests, streams answers, and makes small
//! requests for other modules, with limits on time and size.
//!
//! An answer is decoded as it arrives (`stream.rs`). It is complete when the wire format has seen
//! its end; an answer that stops before its end was cut off and is an error, even if the connection
//! was closed regularly. A task of its own reads the answer as long as its receiver exists, because
//! a turn is many futures deep and there is one packet per word.

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
use super::wire_format::{Decoder, HttpCall};
use super::{AnswerStream, Error, Model, error_classification, is_loopback};
pub use crate::entry::RequestTimeouts;
use crate::secret::Secret;
use base::environment::Environment;

/// The HTTP client of the process. Cheap until first used: reading the certificate store takes
/// milliseconds.
#[derive(Debug)]
pub struct HttpClient {
    environment: Environment,
    /// The client for other machines, with proxies and certificates.
    outside: OnceLock<Result<reqwest::Client, String>>,
    /// The client for plain HTTP to this machine.
    loopback: OnceLock<Result<reqwest::Client, String>>,
    /// Returns the reason why an IP address must not be connected to; `None` if all are allowed.
    forbidden: Option<fn(IpAddr) -> Option<&'static str>>,
}

/// The response to a small request.
#[derive(Debug)]
pub struct SmallResponse {
    pub status: reqwest::StatusCode,
    pub headers: HeaderMap,
    /// The body, truncated to the caller's limit.
    pub body: Bytes,
}

/// The response to a conditional request.
#[derive(Debug)]
pub struct FetchedDocument {
    /// The document, truncated to the caller's limit; `None` if it has not changed.
    pub body: Option<Bytes>,
    /// The version of the document; `None` if the server sent none.
    pub etag: Option<String>,
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

    /// Creates a client that never connects to an IP address for which `forbidden` returns a
    /// reason. It uses no proxy, because a proxy resolves host names itself.
    pub fn with_forbidden_addresses(
        environment: &Environment,
        forbidden: fn(IpAddr) -> Option<&'static str>,
    ) -> Self {
        Self {
            forbidden: Some(forbidden),
            ..Self::new(environment)
        }
    }

    /// Posts a call and streams the decoded answer. `server_name` is the provider's display name,
    /// for errors; `recording` records the traffic.
    pub fn stream(
        self: &Arc<Self>,
        server_name: Arc<str>,
        call: HttpCall,
        decoder: Box<dyn Decoder>,
        timeouts: RequestTimeouts,
        recording: Option<Arc<Recording>>,
    ) -> AnswerStream {
        let client = Arc::clone(self);
        let begin = async move {
            let deadline = timeouts.total.map(|total| Instant::now() + total);
            let response = client
                .post(
                    &server_name,
                    call,
                    timeouts.first_byte,
                    recording.as_deref(),
                )
                .await?;
            let body = response.bytes_stream();
            let name = Arc::clone(&server_name);
            let mut bytes = body
                .map(move |item| item.map_err(|e| connection_error(&name, &e)))
                .boxed();
            if let Some(recording) = recording {
                bytes = record_bytes(bytes, recording);
            }
            Ok(ResponseStream::new(
                server_name,
                bytes,
                decoder,
                timeouts,
                deadline,
            ))
        };
        stream::answer(begin)
    }

    /// Returns a recording for this call if the user wants one.
    pub fn start_recording(
        &self,
        wire: &str,
        server_name: &str,
        model: &Model,
        call: &HttpCall,
        keys: &[Secret],
    ) -> Option<Arc<Recording>> {
        Recording::start(&self.environment, wire, server_name, model, call, keys)
    }

    /// Fetches a small document, truncated to `limit` bytes.
    ///
    /// # Errors
    /// Same as [`HttpClient::stream`].
    pub async fn get(
        &self,
        server_name: &str,
        url: &str,
        headers: &[(String, String)],
        limit: usize,
    ) -> Result<Bytes, Error> {
        let fetched = self.fetch(server_name, url, headers, limit).await?;
        Ok(fetched.body.unwrap_or_default())
    }

    /// Fetches a document, truncated to `limit` bytes, unless it still has the version that the
    /// header `if-none-match` names.
    ///
    /// # Errors
    /// Same as [`HttpClient::stream`].
    pub async fn fetch(
        &self,
        server_name: &str,
        url: &str,
        headers: &[(String, String)],
        limit: usize,
    ) -> Result<FetchedDocument, Error> {
        let request = self.client_for(url)?.get(url).headers(header_map(headers)?);
        let response = request
            .send()
            .await
            .map_err(|e| connection_error(server_name, &e))?;
        let status = response.status();
        let reply_headers = response.headers().clone();
        let etag = reply_headers
            .get("etag")
            .and_then(|etag| etag.to_str().ok())
            .map(str::to_owned);
        if status == reqwest::StatusCode::NOT_MODIFIED {
            return Ok(FetchedDocument { body: None, etag });
        }
        let body = read_body(server_name, response, limit).await?;
        if status.is_success() {
            return Ok(FetchedDocument {
                body: Some(body),
                etag,
            });
        }
        let text = String::from_utf8_lossy(&body);
        Err(error_classification::classify_response(
            server_name,
            status.as_u16(),
            &reply_headers,
            &text,
            self.environment.now(),
        ))
    }

    /// Fetches a small document within a time limit, and returns status and body (truncated to
    /// `limit` bytes), whatever the status.
    ///
    /// # Errors
    /// An error if there is no response: the same as that of a request to a model at this address.
    pub async fn probe(
        &self,
        server_name: &str,
        url: &str,
        timeout: Duration,
        limit: usize,
    ) -> Result<(reqwest::StatusCode, Bytes), Error> {
        let exchange = async {
            let sent = self.client_for(url)?.get(url).send().await;
            let response = sent.map_err(|e| {
                server_not_running_error(server_name, &e)
                    .unwrap_or_else(|| connection_error(server_name, &e))
            })?;
            let status = response.status();
            Ok((status, read_body(server_name, response, limit).await?))
        };
        tokio::time::timeout(timeout, exchange)
            .await
            .unwrap_or_else(|_| {
                let seconds = timeout.as_secs();
                Err(Error::Unreachable(format!(
                    "{server_name} has not answered within {seconds} seconds."
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
        server_name: &str,
        method: &reqwest::Method,
        url: &str,
        headers: HeaderMap,
        body: Vec<u8>,
        limit: usize,
    ) -> Result<SmallResponse, Error> {
        let request = self
            .client_for(url)?
            .request(method.clone(), url)
            .headers(headers)
            .body(body);
        send_small(server_name, request, EXCHANGE_TIMEOUT, limit).await
    }

    /// Posts JSON within a time limit, and returns the response like [`HttpClient::exchange`].
    ///
    /// # Errors
    /// Same as [`HttpClient::exchange`].
    pub async fn exchange_json(
        &self,
        server_name: &str,
        url: &str,
        body: &serde_json::Value,
        timeout: Duration,
        limit: usize,
    ) -> Result<SmallResponse, Error> {
        let request = self
            .client_for(url)?
            .post(url)
            .header("content-type", "application/json")
            .body(body.to_string());
        send_small(server_name, request, timeout, limit).await
    }

    /// Returns the underlying client for an address, for requests of other crates.
    ///
    /// # Errors
    /// An error if the address is invalid, or no client can be created.
    pub fn reqwest_client(&self, url: &str) -> Result<reqwest::Client, Error> {
        self.client_for(url).cloned()
    }

    /// Reads the certificates in advance, which takes some milliseconds.
    pub fn load_certificates(&self) {
        self.client_for("https://localhost").ok();
    }

    /// Posts a call to a provider, and returns the response if its status is a success.
    async fn post(
        &self,
        server_name: &str,
        call: HttpCall,
        first_byte: Option<Duration>,
        recording: Option<&Recording>,
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
        let response = with_timeout(first_byte, sent).await.and_then(|sent| {
            sent.map_err(|e| {
                server_not_running_error(server_name, &e)
                    .unwrap_or_else(|| connection_error(server_name, &e))
            })
        });
        let response = response.inspect_err(|e| {
            if let Some(recording) = recording {
                recording.record_failure(e);
            }
        })?;
        let status = response.status();
        if let Some(recording) = recording {
            recording.record_status(status.as_u16(), response.headers());
        }
        if status.is_success() {
            return Ok(response);
        }
        let headers = response.headers().clone();
        // The status already determines the error; the body is worth a short wait only.
        let body = timeout(
            Duration::from_secs(10),
            read_body(server_name, response, 64 << 10),
        )
        .await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        if let Some(recording) = recording {
            recording.record_bytes(&body);
            recording.record_end();
        }
        let body = String::from_utf8_lossy(&body);
        Err(error_classification::classify_response(
            server_name,
            status.as_u16(),
            &headers,
            &body,
            self.environment.now(),
        ))
    }

    /// Returns the client for an address, which depends on whether the address is on this machine.
    fn client_for(&self, url: &str) -> Result<&reqwest::Client, Error> {
        let parsed = reqwest::Url::parse(url).map_err(|e| {
            Error::BadRequest(format!(
                "\"{}\" is not an address: {e}.",
                without_query(url)
            ))
        })?;
        // A server on this machine needs neither proxy nor certificates.
        let client = if let Some(forbidden) = self.forbidden {
            // The resolver is not asked about an IP address.
            let host = parsed.host_str().unwrap_or_default();
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            if let Some(why) = bare.parse::<IpAddr>().ok().and_then(forbidden) {
                return Err(Error::BadRequest(format!("{} {why}.", without_query(url))));
            }
            self.outside.get_or_init(|| {
                let guard = FilteredResolver {
                    lookup: Arc::new(|host| Box::pin(lookup_host(host))),
                    why_forbidden: forbidden,
                };
                build(
                    client_builder(&self.environment)?
                        .no_proxy()
                        .dns_resolver(guard),
                )
            })
        } else if parsed.scheme() == "http" && is_loopback(&parsed) {
            self.loopback
                .get_or_init(|| build(reqwest::Client::builder().no_proxy().tls_certs_only([])))
        } else {
            self.outside
                .get_or_init(|| build(client_builder(&self.environment)?))
        };
        client.as_ref().map_err(|e| {
            Error::UntrustedServer(format!("No connection can be made from here: {e}."))
        })
    }
}

/// Returns the builder of every client, with the certificates of the system and of the environment.
///
/// # Errors
/// The reason why the certificates cannot be read, for display.
pub fn client_builder(environment: &Environment) -> Result<reqwest::ClientBuilder, String> {
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
        .map_err(|e| format_causes(&e))
}

/// Follows a redirect only within an origin, because any header may contain a key, and only if the
/// redirect preserves the method.
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
    let certificates =
        reqwest::Certificate::from_pem_bundle(&pem).map_err(|e| wrong(format_causes(&e)))?;
    Ok(builder.tls_certs_merge(certificates))
}

/// Returns a URL without its query and fragment, which may be secret.
fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

/// Converts headers (name, value) of the settings. All of them are marked as sensitive.
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

/// Sends a request, and reads its response. Each of the two takes `timeout` at most.
async fn send_small(
    server_name: &str,
    request: reqwest::RequestBuilder,
    timeout: Duration,
    limit: usize,
) -> Result<SmallResponse, Error> {
    let response = with_timeout(Some(timeout), request.send())
        .await?
        .map_err(|e| connection_error(server_name, &e))?;
    let status = response.status();
    let headers = response.headers().clone();
    let body = with_timeout(Some(timeout), read_body(server_name, response, limit)).await??;
    Ok(SmallResponse {
        status,
        headers,
        body,
    })
}

/// Runs `work` within a time limit; `None` waits indefinitely.
async fn with_timeout<T>(
    limit: Option<Duration>,
    work: impl Future<Output = T>,
) -> Result<T, Error> {
    match limit {
        Some(limit) => timeout(limit, work)
            .await
            .map_err(|_| Error::Timeout(limit)),
        None => Ok(work.await),
    }
}

async fn read_body(
    server_name: &str,
    mut response: reqwest::Response,
    limit: usize,
) -> Result<Bytes, Error> {
    let mut body = Vec::new();
    while let Some(bytes) = response
        .chunk()
        .await
        .map_err(|e| connection_error(server_name, &e))?
    {
        let remaining = limit - body.len();
        body.extend_from_slice(&bytes[..bytes.len().min(remaining)]);
        if body.len() == limit {
            break;
        }
    }
    Ok(body.into())
}

/// Returns the error for a failed connection, with a message for the user.
fn connection_error(server_name: &str, e: &reqwest::Error) -> Error {
    let cause = format_causes(e);
    if causes_of(e).any(is_certificate_failure) {
        return Error::UntrustedServer(format!(
            "The certificate of {server_name} could not be verified: {cause}."
        ));
    }
    let host = e
        .url()
        .and_then(|url| url.host_str())
        .map(|host| format!(" ({host})"))
        .unwrap_or_default();
    // "The model server" inside of a sentence.
    let name = server_name
        .strip_prefix("The ")
        .map_or_else(|| server_name.to_owned(), |name| format!("the {name}"));
    let what = if causes_of(e).any(is_proxy_failure) {
        format!("The proxy refused the connection to {name}{host}")
    } else if e.is_dns() && !causes_of(e).any(|layer| layer.is::<ForbiddenAddress>()) {
        format!("The host of {name}{host} was not found")
    } else if e.is_connect() || e.is_timeout() {
        format!("{server_name}{host} could not be reached")
    } else if e.is_builder() {
        return Error::BadRequest(format!("The request to {name} could not be made: {cause}."));
    } else {
        return Error::Network(format!("The connection to {name}{host} broke: {cause}."));
    };
    Error::Unreachable(format!("{what}: {cause}."))
}

/// Returns the causes of an error, the outermost first. An I/O error that wraps another error
/// counts as caused by it, although its `source` skips it.
fn causes_of(e: &reqwest::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
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

/// True if a cause states that one side does not accept the certificate or the TLS version of the
/// other.
fn is_certificate_failure(layer: &(dyn std::error::Error + 'static)) -> bool {
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

/// True if a cause is the failure of a proxy. The types of these errors are private, so their texts
/// are compared.
fn is_proxy_failure(layer: &(dyn std::error::Error + 'static)) -> bool {
    const STARTS: [&str; 4] = [
        "tunnel error",
        "SOCKS error",
        "error connecting to socks proxy",
        "error resolving for socks proxy",
    ];
    let text = layer.to_string();
    STARTS.iter().any(|start| text.starts_with(start))
}

/// Returns the error for a model server on this machine that is not running; `None` if the address
/// is elsewhere, or a program listens at its port.
fn server_not_running_error(server_name: &str, e: &reqwest::Error) -> Option<Error> {
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
    Some(Error::ConnectionRefused(format!(
        "{server_name} is not running at {host}:{port}."
    )))
}

/// Formats the causes of an error, separated by colons, without repetition and without addresses,
/// which may contain keys.
pub fn format_causes(e: &reqwest::Error) -> String {
    let mut causes: Vec<String> = Vec::new();
    let mut next = e.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        // The names of network layers do not help a user if the layer below has a reason.
        let layer_names = [
            "client error",
            "error trying to connect",
            "tcp connect error",
            "dns error",
            "error resolving",
            "request or response body error",
            "error reading a body from connection",
        ];
        // The texts of the libraries are about the encoding of the answer.
        let is_unfinished = text.starts_with("unexpected EOF")
            || text == "connection closed before message completed";
        let text = if is_unfinished {
            "it was closed before the end of the answer".to_owned()
        } else {
            text
        };
        let deeper = cause.source();
        if deeper.is_some() && layer_names.iter().any(|start| text.starts_with(start)) {
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

/// Decodes recorded bytes as if they came from a connection. `server_name` is the provider's display
/// name, for errors.
pub fn decode_recorded(
    server_name: Arc<str>,
    bytes: BytesStream,
    decoder: Box<dyn Decoder>,
    timeouts: RequestTimeouts,
) -> AnswerStream {
    stream::answer(async move {
        Ok(ResponseStream::new(
            server_name,
            bytes,
            decoder,
            timeouts,
            None,
        ))
    })
}

/// Returns a stream of the same bytes that records them as they pass.
fn record_bytes(bytes: BytesStream, recording: Arc<Recording>) -> BytesStream {
    let ended = Arc::clone(&recording);
    let pieces = bytes.inspect(move |item| match item {
        Ok(bytes) => recording.record_bytes(bytes),
        Err(e) => recording.record_failure(e),
    });
    let end = futures_util::stream::poll_fn(move |_| {
        ended.record_end();
        Poll::Ready(None)
    });
    pieces.chain(end).boxed()
}

/// The chunks of a response body.
type BytesStream = futures_util::stream::BoxStream<'static, Result<Bytes, Error>>;

#[cfg(test)]
mod tests;
