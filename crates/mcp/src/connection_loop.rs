//! Serves one connection to a server, over any transport, from the handshake to its end. After the
//! handshake, [`maintain`] reads the lists of the server, and reads them again after each
//! notification of a change. `supervisor` and `remote` call this module for each attempt to connect.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::model::{ErrorCode, ProtocolVersion};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService,
};
use rmcp::transport::IntoTransport;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::change_counter::ChangeCounter;
use super::client::McpClient;
use super::connection::{McpConnection, ReadyServer, ServerState};
use super::failure::{Disconnect, describe_incompatible_server, describe_listing_error};
use super::lists::{self, ServerFeatures};
use super::offer;
use super::paced::PacedTransport;

/// The time that a server has to exit after it was asked to.
pub(super) const EXIT_GRACE: Duration = Duration::from_millis(500);
/// The minimum time between two readings of the lists, however often the server reports changes.
const LISTING_INTERVAL: Duration = Duration::from_millis(100);

/// Connects to a server and serves the connection until it ends. Returns the reason for the end, or
/// `None` if the server was stopped.
pub(super) async fn serve_connection<T, E, A>(
    client: McpClient,
    transport: T,
    stop: &CancellationToken,
) -> Option<Disconnect>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let connection = client.connection.clone();
    match handshake(client, transport).await {
        Ok(running) => maintain(&connection, running, stop).await,
        Err(HandshakeError::TimedOut) => {
            Some(Disconnect::new(timeout_message(&connection, "answer")))
        }
        Err(HandshakeError::Refused(e)) => Some(match *e {
            ClientInitializeError::TransportError { .. }
            | ClientInitializeError::ConnectionClosed(_) => {
                Disconnect::new("it ended before it had answered")
            }
            e => describe_incompatible_server(&e),
        }),
    }
}

/// The reason for a failed handshake.
pub(super) enum HandshakeError {
    /// The server did not answer in time.
    TimedOut,
    Refused(Box<ClientInitializeError>),
}

/// Performs the handshake with `initialize`. If the error of the server shows that it supports only
/// the newest protocol, the next attempt uses discovery.
pub(super) async fn handshake<T, E, A>(
    client: McpClient,
    transport: T,
) -> Result<RunningService<RoleClient, McpClient>, HandshakeError>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let connection = client.connection.clone();
    let modern = connection.is_modern();
    let transport = PacedTransport::new(transport.into_transport());
    let transport = ChangeCounter::new(transport, connection.clone());
    let serving = async {
        if modern {
            let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
            client
                .serve_with_lifecycle(
                    transport,
                    ClientLifecycleMode::Discover { preferred_versions },
                )
                .await
        } else {
            client.serve(transport).await
        }
    };
    let served = tokio::time::timeout(connection.start_timeout, serving).await;
    match &served {
        Ok(Ok(_)) => {}
        Ok(Err(ClientInitializeError::JsonRpcError(e))) if !modern => {
            let newer = [
                ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
                ErrorCode::METHOD_NOT_FOUND,
            ];
            connection.set_modern_handshake(newer.contains(&e.code));
        }
        _ => connection.set_modern_handshake(false),
    }
    match served {
        Ok(running) => running.map_err(|e| HandshakeError::Refused(Box::new(e))),
        Err(_) => Err(HandshakeError::TimedOut),
    }
}

/// Returns the reason for a failure: the server did not do something in time.
pub(super) fn timeout_message(connection: &McpConnection, what: &str) -> String {
    format!(
        "it did not {what} within {} s",
        connection.start_timeout.as_secs_f64()
    )
}

/// Maintains a connection: reads the lists of the server, again after each change, and sets its
/// state. Returns the reason for the end of the connection, or `None` if the server was stopped.
#[expect(clippy::cognitive_complexity, reason = "each wait can be stopped")]
pub(super) async fn maintain(
    connection: &Arc<McpConnection>,
    running: RunningService<RoleClient, McpClient>,
    stop: &CancellationToken,
) -> Option<Disconnect> {
    let peer = running.peer().clone();
    let features = ServerFeatures::from_peer(&peer);
    let mut changes = connection.reported_changes();
    let shutdown = running.cancellation_token();
    let ended = running.waiting();
    tokio::pin!(ended);
    let mut first = true;
    let mut listening = JoinSet::new();
    if connection.is_modern() {
        listening.spawn(lists::receive_list_changes(
            connection.clone(),
            peer.clone(),
        ));
    }
    if let Some(least) = connection.log
        && features.has_logs
    {
        tokio::select! {
            _ = tokio::time::timeout(connection.start_timeout, lists::set_log_level(&peer, least)) => {}
            () = stop.cancelled() => return None,
        }
    }
    loop {
        let so_far = *changes.borrow_and_update();
        let listed = tokio::select! {
            listed = tokio::time::timeout(connection.start_timeout, lists::read_catalog(&peer, &features)) => listed,
            _ = &mut ended => return Some(Disconnect::new("it has closed the connection")),
            () = stop.cancelled() => break,
        };
        let catalog = match listed {
            Ok(Ok(catalog)) => catalog,
            Ok(Err(e)) => return Some(describe_listing_error(&e)),
            Err(_) => {
                return Some(Disconnect::new(timeout_message(
                    connection,
                    "list its tools",
                )));
            }
        };
        if let Some(cache) = &connection.catalog_cache {
            cache.clone().store(catalog.clone());
        }
        let offer = Arc::new(offer::from_catalog(connection, catalog));
        let ready = ReadyServer {
            peer: peer.clone(),
            offer,
            resources: OnceCell::new(),
            listed_changes: so_far,
        };
        connection.set_state(ServerState::Ready(Arc::new(ready)));
        if std::mem::replace(&mut first, false) {
            tokio::select! {
                () = resubscribe(connection) => {}
                () = stop.cancelled() => break,
            }
        }
        tokio::select! {
            _ = changes.changed() => {}
            _ = &mut ended => return Some(Disconnect::new("it has closed the connection")),
            () = stop.cancelled() => break,
        }
        tokio::select! {
            () = tokio::time::sleep(LISTING_INTERVAL) => {}
            () = stop.cancelled() => break,
        }
    }
    // Closing ends the session on a remote server as well.
    shutdown.cancel();
    tokio::time::timeout(EXIT_GRACE, ended).await.ok();
    None
}

/// Subscribes again to the resources that were read over the previous connection. They may have
/// changed in between, so they count as changed.
async fn resubscribe(connection: &McpConnection) {
    let ServerState::Ready(ready) = connection.state() else {
        return;
    };
    for uri in connection.watched_resources() {
        if ready.offer.can_subscribe
            && tokio::time::timeout(
                connection.start_timeout,
                lists::subscribe(&ready.peer, &uri),
            )
            .await
            .is_ok()
        {
            connection.mark_changed(&uri);
        }
    }
}
