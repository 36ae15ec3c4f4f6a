//! A connection to a server, over any transport: the handshake, reading the lists, and reading them
//! again after each notification of a change, until the connection ends.

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
use super::connection::{McpLink, ReadyServer, ServerState};
use super::failure::{Disconnect, non_mcp_answer, unlisted};
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
    us: McpClient,
    transport: T,
    stop: &CancellationToken,
) -> Option<Disconnect>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let link = us.link.clone();
    match handshake(us, transport).await {
        Ok(running) => attend(&link, running, stop).await,
        Err(HandshakeError::Late) => Some(Disconnect::because(late(&link, "answer"))),
        Err(HandshakeError::Refused(e)) => Some(match *e {
            ClientInitializeError::TransportError { .. }
            | ClientInitializeError::ConnectionClosed(_) => {
                Disconnect::because("it ended before it had answered")
            }
            e => non_mcp_answer(&e),
        }),
    }
}

/// The reason for a failed handshake.
pub(super) enum HandshakeError {
    /// The server did not answer in time.
    Late,
    Refused(Box<ClientInitializeError>),
}

/// Performs the handshake with `initialize`. If the server refuses that the way the newest protocol
/// does, the next attempt uses discovery.
pub(super) async fn handshake<T, E, A>(
    us: McpClient,
    transport: T,
) -> Result<RunningService<RoleClient, McpClient>, HandshakeError>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let link = us.link.clone();
    let modern = link.is_modern();
    let transport = PacedTransport::new(transport.into_transport());
    let transport = ChangeCounter::new(transport, link.clone());
    let serving = async {
        if modern {
            let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
            us.serve_with_lifecycle(
                transport,
                ClientLifecycleMode::Discover { preferred_versions },
            )
            .await
        } else {
            us.serve(transport).await
        }
    };
    let served = tokio::time::timeout(link.limit, serving).await;
    match &served {
        Ok(Ok(_)) => {}
        Ok(Err(ClientInitializeError::JsonRpcError(e))) if !modern => {
            let newer = [
                ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
                ErrorCode::METHOD_NOT_FOUND,
            ];
            link.set_modern_handshake(newer.contains(&e.code));
        }
        _ => link.set_modern_handshake(false),
    }
    match served {
        Ok(running) => running.map_err(|e| HandshakeError::Refused(Box::new(e))),
        Err(_) => Err(HandshakeError::Late),
    }
}

pub(super) fn late(link: &McpLink, what: &str) -> String {
    format!("it did not {what} within {} s", link.limit.as_secs_f64())
}

/// Lists the tools and prompts of a server, again after each change. Returns the reason for the end
/// of the connection, or `None` if the server was stopped.
#[expect(clippy::cognitive_complexity, reason = "each wait can be stopped")]
pub(super) async fn attend(
    link: &Arc<McpLink>,
    running: RunningService<RoleClient, McpClient>,
    stop: &CancellationToken,
) -> Option<Disconnect> {
    let peer = running.peer().clone();
    let has = ServerFeatures::of(&peer);
    let mut changes = link.changes();
    let goodbye = running.cancellation_token();
    let over = running.waiting();
    tokio::pin!(over);
    let mut first = true;
    let mut listening = JoinSet::new();
    if link.is_modern() {
        listening.spawn(lists::listen(link.clone(), peer.clone()));
    }
    if let Some(least) = link.log
        && has.logs
    {
        tokio::select! {
            _ = tokio::time::timeout(link.limit, lists::log_from(&peer, least)) => {}
            () = stop.cancelled() => return None,
        }
    }
    loop {
        let so_far = *changes.borrow_and_update();
        let listed = tokio::select! {
            listed = tokio::time::timeout(link.limit, lists::catalog(&peer, &has)) => listed,
            _ = &mut over => return Some(Disconnect::because("it has closed the connection")),
            () = stop.cancelled() => break,
        };
        let catalog = match listed {
            Ok(Ok(catalog)) => catalog,
            Ok(Err(e)) => return Some(unlisted(&e)),
            Err(_) => return Some(Disconnect::because(late(link, "list its tools"))),
        };
        if let Some(memory) = &link.memory {
            memory.clone().store(catalog.clone());
        }
        let offer = Arc::new(offer::of(link, catalog));
        let ready = ReadyServer {
            peer: peer.clone(),
            offer,
            listed: OnceCell::new(),
            changes: so_far,
        };
        link.set(ServerState::Ready(Arc::new(ready)));
        if std::mem::replace(&mut first, false) {
            tokio::select! {
                () = again(link) => {}
                () = stop.cancelled() => break,
            }
        }
        tokio::select! {
            _ = changes.changed() => {}
            _ = &mut over => return Some(Disconnect::because("it has closed the connection")),
            () = stop.cancelled() => break,
        }
        tokio::select! {
            () = tokio::time::sleep(LISTING_INTERVAL) => {}
            () = stop.cancelled() => break,
        }
    }
    // Closing ends the session on a remote server as well.
    goodbye.cancel();
    tokio::time::timeout(EXIT_GRACE, over).await.ok();
    None
}

/// Subscribes again to the resources that were read over the previous connection. They may have
/// changed in between, so they count as changed.
async fn again(link: &McpLink) {
    let ServerState::Ready(ready) = link.state() else {
        return;
    };
    for uri in link.subscribed() {
        if ready.offer.subscribes
            && tokio::time::timeout(link.limit, lists::subscribe(&ready.peer, &uri))
                .await
                .is_ok()
        {
            link.updated(&uri);
        }
    }
}
