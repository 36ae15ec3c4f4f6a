//! The routes of a serving process.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, UPGRADE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

use super::admission::{Caller, Denied, Identity};
use super::host::Host;
use super::reply::{ResponseBody, plain};
use super::resend_buffer::{MessageTally, ResumableConnection};
use super::resume::{RECEIVED, Resumables};
use super::streams::{CONNECTION_ID, HttpConnections};
use super::{watch, websocket};

/// The state shared by all requests to a serving process.
pub struct RouterState {
    pub host: Arc<Host>,
    http_connections: Arc<HttpConnections>,
    resumables: Arc<Resumables>,
}

impl RouterState {
    /// Creates the state of a host without connections.
    pub fn new(host: Arc<Host>) -> Arc<Self> {
        Arc::new(Self {
            host,
            http_connections: Arc::default(),
            resumables: Arc::default(),
        })
    }
}

/// Answers a request, or upgrades it to a WebSocket.
pub async fn answer(
    router: Arc<RouterState>,
    request: Request<Incoming>,
    caller: Arc<Caller>,
) -> Response<ResponseBody> {
    let host = &router.host;
    let http_connections = &router.http_connections;
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    // Checked even if no credentials are required: a web page must not learn what runs on this
    // machine.
    if let Err(denied) = host.admission.check_origin(&head, &caller) {
        return refuse(&caller, &denied);
    }
    if head.method == Method::GET {
        match path {
            "/healthz" => return plain(StatusCode::OK, "ok"),
            "/readyz" => {
                return match host.ready() {
                    Ok(()) => plain(StatusCode::OK, "ready"),
                    Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, &why),
                };
            }
            _ => {}
        }
    }
    if !matches!(path, "/acp" | "/events" | "/metrics") {
        return plain(
            StatusCode::NOT_FOUND,
            "ACP is served at /acp, and events at /events",
        );
    }
    let identity = match host.admission.admit(&head, &caller) {
        Ok(identity) => identity,
        Err(denied) => return refuse(&caller, &denied),
    };
    if path != "/metrics" && caller.slot.is_none() {
        let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, &host.full());
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    match (&head.method, path) {
        (&Method::GET, "/metrics") => {
            let mut response = plain(StatusCode::OK, host.metrics().trim_end());
            let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        (&Method::GET, "/events") => watch::get(host, &head, &identity, &caller),
        (_, "/metrics" | "/events") => {
            plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is supported here")
        }
        (&Method::GET, _) if head.headers.contains_key(UPGRADE) => {
            upgrade(&router, Request::from_parts(head, body), identity, caller).await
        }
        (&Method::GET, _) => http_connections.get(&head, &identity),
        (&Method::POST, _) => {
            http_connections
                .clone()
                .post(host, Request::from_parts(head, body), identity)
                .await
        }
        (&Method::DELETE, _) => http_connections.delete(&head.headers, &identity),
        _ => plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET, POST and DELETE are supported here",
        ),
    }
}

fn refuse(caller: &Caller, denied: &Denied) -> Response<ResponseBody> {
    tracing::info!("a client at {} was refused: {}", caller.address, denied.why);
    plain(denied.status, &denied.why)
}

/// Upgrades a request to a WebSocket, for a new connection or a resumed one.
async fn upgrade(
    router: &RouterState,
    mut request: Request<Incoming>,
    identity: Identity,
    caller: Arc<Caller>,
) -> Response<ResponseBody> {
    let host = &router.host;
    let headers = request.headers();
    let accepted = match websocket::accept(headers) {
        Ok(accepted) => accepted,
        Err((status, why)) => return plain(status, why),
    };
    let number = |name| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok())
    };
    let received = number(RECEIVED);
    let known = if received.is_some() {
        headers.get(CONNECTION_ID).and_then(|id| id.to_str().ok())
    } else {
        None
    };
    let (thread, lines_to_resend) = match known {
        Some(id) => match router.resumables.claim(id, &identity).await {
            None => {
                return plain(
                    StatusCode::NOT_FOUND,
                    "there is no such connection; start a new one",
                );
            }
            Some(mut thread) => match thread.tally.missing(received.unwrap_or_default()) {
                None => {
                    return plain(
                        StatusCode::CONFLICT,
                        "that many messages cannot have arrived; start a new one",
                    );
                }
                Some(lines_to_resend) => (thread, lines_to_resend),
            },
        },
        None => match host.connect(&identity) {
            Ok(connection) => {
                let tally = if received.is_some() {
                    MessageTally::counting()
                } else {
                    MessageTally::default()
                };
                (ResumableConnection { connection, tally }, Vec::new())
            }
            Err(why) => return plain(StatusCode::SERVICE_UNAVAILABLE, &why),
        },
    };
    let mut response = plain(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(websocket::ACCEPT, accepted);
    headers.remove(CONTENT_TYPE);
    if let Ok(id) = HeaderValue::from_str(&thread.connection.id) {
        headers.insert(CONNECTION_ID, id);
    }
    if thread.tally.counts {
        headers.insert(RECEIVED, thread.tally.received.into());
    }
    let limits = (host.settings.limits.message_bytes, host.settings.grace);
    let resumables = router.resumables.clone();
    base::task::spawn(async move {
        let io = hyper::upgrade::on(&mut request).await.map(TokioIo::new);
        let io = io
            .inspect_err(|e| tracing::info!("a WebSocket was not opened: {e}"))
            .ok();
        let slot = caller.slot.clone();
        drop(caller);
        resumables
            .run(thread, identity, (io, lines_to_resend, slot), limits)
            .await;
    });
    response
}
