//! One conversation with a server, whatever carries it: it is greeted, its lists are read, and read again
//! whenever it says so, until it is over.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::PaginatedRequestParams;
use rmcp::service::{ClientInitializeError, Peer, RoleClient, RunningService};
use rmcp::transport::IntoTransport;
use rmcp::{ServiceError, ServiceExt};
use tokio_util::sync::CancellationToken;

use super::client::McpClient;
use super::link::{Link, ReadyServer, ServerState};
use super::tool;
use crate::text;

/// How long a server may take to end when it is asked to.
pub(super) const GRACE: Duration = Duration::from_millis(500);
/// Tools of one server; more are left out.
const TOOLS: usize = 1024;
/// Pages in which a server may list them, and what it may say of them all in bytes.
const PAGES: usize = 64;
const LISTED: usize = 4 << 20;
/// How often a server is listed at most, however often it says that something has changed.
const PAUSE: Duration = Duration::from_millis(100);

/// How it ended.
pub(super) struct End {
    pub why: String,
    /// A login is missing.
    pub login: bool,
}

impl End {
    pub(super) fn because(why: impl Into<String>) -> Self {
        Self { why: why.into(), login: false }
    }
}

/// Greets a server and attends to it; says why it is over, or nothing where it was stopped.
pub(super) async fn talk<T, E, A>(us: McpClient, transport: T, stop: &CancellationToken) -> Option<End>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let link = us.link.clone();
    match greet(us, transport).await {
        Ok(running) => attend(&link, running, stop).await,
        Err(GreetError::Late) => Some(End::because(late(&link, "answer"))),
        Err(GreetError::Refused(e)) => Some(match *e {
            ClientInitializeError::TransportError { .. } | ClientInitializeError::ConnectionClosed(_) => {
                End::because("it ended before it had answered")
            }
            e => End::because(format!("it does not speak MCP: {}", text::title(&e.to_string()))),
        }),
    }
}

/// Why a server was not greeted.
pub(super) enum GreetError {
    /// It did not answer in time.
    Late,
    Refused(Box<ClientInitializeError>),
}

/// Shakes hands.
pub(super) async fn greet<T, E, A>(
    us: McpClient,
    transport: T,
) -> Result<RunningService<RoleClient, McpClient>, GreetError>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    match tokio::time::timeout(us.link.limit, us.serve(transport)).await {
        Ok(running) => running.map_err(|e| GreetError::Refused(Box::new(e))),
        Err(_) => Err(GreetError::Late),
    }
}

pub(super) fn late(link: &Link, what: &str) -> String {
    format!("it did not {what} within {} s", link.limit.as_secs_f64())
}

/// Lists what a server has, again whenever that changes, and says why it is over.
pub(super) async fn attend(
    link: &Arc<Link>,
    running: RunningService<RoleClient, McpClient>,
    stop: &CancellationToken,
) -> Option<End> {
    let peer = running.peer().clone();
    let info = peer.peer_info();
    let instructions = info.as_ref().and_then(|info| info.instructions.as_deref());
    let instructions = instructions.map(|said| text::cut_chars(said, tool::WORDS));
    let has_tools = info.as_ref().is_none_or(|info| info.capabilities.tools.is_some());
    let mut changes = link.changes();
    let goodbye = running.cancellation_token();
    let over = running.waiting();
    tokio::pin!(over);
    loop {
        let so_far = *changes.borrow_and_update();
        let listing = async {
            match has_tools {
                true => list(&peer).await,
                false => Ok((Vec::new(), false)),
            }
        };
        let listed = tokio::select! {
            listed = tokio::time::timeout(link.limit, listing) => listed,
            _ = &mut over => return Some(End::because("it has closed the connection")),
            () = stop.cancelled() => break,
        };
        let (tools, cut) = match listed {
            Ok(Ok(listed)) => listed,
            Ok(Err(e)) => {
                return Some(End::because(format!("its tools cannot be listed: {}", text::title(&e.to_string()))));
            }
            Err(_) => return Some(End::because(late(link, "list its tools"))),
        };
        let offered = tools.into_iter().map(|tool| tool::of(link, tool)).collect();
        let ready =
            ReadyServer { peer: peer.clone(), offered, instructions: instructions.clone(), cut, changes: so_far };
        link.set(ServerState::Ready(Arc::new(ready)));
        tokio::select! {
            _ = changes.changed() => {}
            _ = &mut over => return Some(End::because("it has closed the connection")),
            () = stop.cancelled() => break,
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = stop.cancelled() => break,
        }
    }
    // A server elsewhere is told that the session is over.
    goodbye.cancel();
    tokio::time::timeout(GRACE, over).await.ok();
    None
}

/// The tools of a server, and whether it has more than are taken. A list without end is not read to it.
async fn list(peer: &Peer<RoleClient>) -> Result<(Vec<rmcp::model::Tool>, bool), ServiceError> {
    let (mut tools, mut bytes, mut cursor) = (Vec::new(), 0, None);
    for _ in 0..PAGES {
        let page = peer.list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor))).await?;
        for tool in page.tools {
            bytes += serde_json::to_vec(&tool).map_or(LISTED, |json| json.len());
            if tools.len() == TOOLS || bytes > LISTED {
                return Ok((tools, true));
            }
            tools.push(tool);
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok((tools, false));
        }
    }
    Ok((tools, true))
}
