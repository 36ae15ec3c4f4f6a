//! The HTTP client of the exporters, which is the program's own: its TLS, its certificates and its
//! proxies. The exporters run on threads without a runtime, so the client brings one.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::runtime::Runtime;

use base::environment::Environment;

/// The default time limit of a batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest answer of a collector that is read, in bytes.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct CollectorClient {
    environment: Environment,
    timeout: Duration,
    started: OnceLock<Result<Connections, String>>,
    /// True once a failure was logged. Later ones are not, because each batch would fail.
    has_failed: AtomicBool,
}

/// The clients, and the runtime that drives them.
#[derive(Debug)]
struct Connections {
    outside: reqwest::Client,
    /// For a collector on this machine, which no proxy reaches.
    loopback: reqwest::Client,
    runtime: Option<Runtime>,
}

impl Drop for Connections {
    fn drop(&mut self) {
        // Waiting for a runtime is not possible in every place where this may be dropped.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl CollectorClient {
    pub(crate) fn new(environment: &Environment) -> Self {
        let wanted = environment
            .var("OTEL_EXPORTER_OTLP_TIMEOUT")
            .and_then(|text| text.trim().parse().ok());
        Self {
            environment: environment.clone(),
            timeout: wanted.map_or(EXPORT_TIMEOUT, Duration::from_millis),
            started: OnceLock::new(),
            has_failed: AtomicBool::new(false),
        }
    }

    fn connections(&self) -> Result<&Connections, String> {
        let start = || {
            let client = |builder: reqwest::ClientBuilder| {
                builder
                    .timeout(self.timeout)
                    // Nothing reads from a connection between two batches.
                    .pool_max_idle_per_host(0)
                    .redirect(reqwest::redirect::Policy::none())
                    .build()
                    .map_err(|e| e.to_string())
            };
            let outside = client(providers::http::client_builder(&self.environment)?)?;
            let loopback = client(providers::http::client_builder(&self.environment)?.no_proxy())?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| e.to_string())?;
            Ok(Connections {
                outside,
                loopback,
                runtime: Some(runtime),
            })
        };
        self.started
            .get_or_init(start)
            .as_ref()
            .map_err(Clone::clone)
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let connections = self.connections()?;
        let Some(runtime) = &connections.runtime else {
            return Err("the process is ending".into());
        };
        let (head, body) = request.into_parts();
        let url = head.uri.to_string();
        let is_near = reqwest::Url::parse(&url).is_ok_and(|url| providers::is_loopback(&url));
        let client = if is_near {
            &connections.loopback
        } else {
            &connections.outside
        };
        let request = client
            .request(head.method, url)
            .headers(head.headers)
            .body(body);
        runtime.block_on(async {
            let answer = request.send().await.map_err(|e| cause(&e))?;
            let status = answer.status();
            let is_small = answer
                .content_length()
                .is_some_and(|length| length <= MAX_ANSWER_BYTES);
            // The answer only counts refused items.
            let body = if is_small {
                answer.bytes().await.map_err(|e| cause(&e))?
            } else {
                Bytes::new()
            };
            let mut response = Response::new(body);
            *response.status_mut() = status;
            Ok(response)
        })
    }

    /// Logs the first failure.
    fn failed(&self, address: &str, why: &str) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "traces and metrics cannot be sent to {address}, and are dropped while that lasts: {why}"
            );
        }
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let uri = request.uri();
        let address = format!(
            "{}://{}{}",
            uri.scheme_str().unwrap_or_default(),
            uri.host().unwrap_or_default(),
            uri.path()
        );
        match self.send(request) {
            Ok(response) => {
                if !response.status().is_success() {
                    self.failed(&address, &format!("it answers {}", response.status()));
                }
                Ok(response)
            }
            Err(why) => {
                self.failed(&address, &why);
                Err(why.into())
            }
        }
    }
}

/// Returns the innermost reason, without the address, which may hold a key.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    if error.is_timeout() {
        return "it did not answer in time".into();
    }
    cause.to_string()
}
