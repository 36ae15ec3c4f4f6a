//! The listener of a serving process: HTTP/1.1 and HTTP/2, with TLS if a certificate is configured.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::admission::Caller;
use super::host::Host;
use super::route::{self, RouterState};
use super::tokens::fingerprint;
use config::settings::TlsFiles;

/// The time limit for the first complete request of a connection, including TLS, and for the head
/// of each later one.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// The time limit for the last responses.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// The pause after a failed accept, for example when no more files may be opened.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Loads the certificates for TLS.
///
/// # Errors
/// A file cannot be used; the message is for the operator.
pub fn tls(files: &TlsFiles) -> Result<TlsAcceptor, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|e| format!("serve.tls.key: {} holds no key: {e}", files.key.display()))?;
    let chain = certificates("certificate", &files.certificate)?;
    let config = rustls::ServerConfig::builder_with_provider(provider.clone());
    let config = config
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS cannot be set up: {e}"))?;
    let config = match &files.clients {
        None => config.with_no_client_auth(),
        Some(path) => {
            let mut roots = rustls::RootCertStore::empty();
            for authority in certificates("clients", path)? {
                roots
                    .add(authority)
                    .map_err(|e| format!("serve.tls.clients: {}: {e}", path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier
                .build()
                .map_err(|e| format!("serve.tls.clients: {}: {e}", path.display()))?;
            config.with_client_cert_verifier(verifier)
        }
    };
    let mut config = config.with_single_cert(chain, key).map_err(|e| {
        format!(
            "serve.tls: {} and its key do not match: {e}",
            files.certificate.display()
        )
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |e: &dyn std::fmt::Display| {
        format!(
            "serve.tls.{key}: {} holds no certificate: {e}",
            path.display()
        )
    };
    let found = CertificateDer::pem_file_iter(path).map_err(|e| wrong(&e))?;
    let found = found
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| wrong(&e))?;
    if found.is_empty() {
        Err(wrong(&"it is empty"))
    } else {
        Ok(found)
    }
}

/// Serves connections until the host ends.
pub async fn listen(host: Arc<Host>, listener: TcpListener, tls: Option<TlsAcceptor>) {
    let router = RouterState::new(host.clone());
    // Sockets beyond the limit get an error response, and monitoring requests are served on them.
    // Further sockets are closed.
    let beyond = Arc::new(Semaphore::new(host.spare_sockets));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = host.ended.cancelled() => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                tracing::error!("no client can connect at the moment: {e}");
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await; // until others have closed
                continue;
            }
        };
        // Deltas are small, and must not wait for more data (Nagle's algorithm).
        stream.set_nodelay(true).ok();
        let slot = host.socket();
        let extra = if slot.is_none() {
            beyond.clone().try_acquire_owned().ok()
        } else {
            None
        };
        if slot.is_none() && extra.is_none() {
            tracing::info!("{address} is not served: {}", host.full());
            continue;
        }
        let router = router.clone();
        let tls = tls.clone();
        let caller = Caller {
            address,
            certificate: None,
            slot,
        };
        host.spawn(async move {
            let until = Instant::now() + REQUEST_TIMEOUT;
            match tls {
                None => serve(router, stream, caller, until).await,
                Some(tls) => serve_over_tls(router, stream, caller, tls, until).await,
            }
            drop(extra);
        });
    }
}

/// Completes if no request has arrived in time.
async fn no_request(has_request: &CancellationToken, until: Instant) {
    if tokio::time::timeout_at(until, has_request.cancelled())
        .await
        .is_ok()
    {
        std::future::pending().await
    }
}

async fn serve_over_tls(
    router: Arc<RouterState>,
    stream: TcpStream,
    caller: Caller,
    tls: TlsAcceptor,
    until: Instant,
) {
    let address = caller.address;
    match tokio::time::timeout_at(until, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let shown = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(<[_]>::first);
            let certificate = shown.map(|certificate| fingerprint(certificate));
            serve(
                router,
                stream,
                Caller {
                    certificate,
                    ..caller
                },
                until,
            )
            .await;
        }
        Ok(Err(e)) => tracing::info!("TLS with {address} failed: {e}"),
        Err(_) => tracing::info!("{address} took too long over TLS"),
    }
}

/// Serves a socket. It is closed if no request arrives in time: before the protocol is known, no
/// other limit applies.
async fn serve(
    router: Arc<RouterState>,
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    caller: Caller,
    until: Instant,
) {
    let ended = router.host.ended.clone();
    let address = caller.address;
    let caller = Arc::new(caller);
    let has_request = CancellationToken::new();
    let first_request = has_request.clone();
    let service = service_fn(move |request| {
        first_request.cancel();
        let router = router.clone();
        let caller = caller.clone();
        async move { Ok::<_, Infallible>(route::answer(router, request, caller).await) }
    });
    let mut server = Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(64 << 10);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(1024);
    server
        .http2()
        .keep_alive_interval(super::websocket::PING_INTERVAL)
        .keep_alive_timeout(super::websocket::PING_INTERVAL);
    let serving = server.serve_connection_with_upgrades(TokioIo::new(io), service);
    tokio::pin!(serving);
    tokio::select! {
        done = serving.as_mut() => if let Err(e) = done {
            tracing::debug!("a client's connection ended: {e}");
        },
        () = no_request(&has_request, until) => tracing::info!("{address} has sent no request in time"),
        () = ended.cancelled() => {
            serving.as_mut().graceful_shutdown();
            tokio::time::timeout(SHUTDOWN_GRACE, serving).await.ok();
        }
    }
}
