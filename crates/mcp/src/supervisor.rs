//! Supervises a server: starts it, serves its connection until that ends, and records the failure in
//! the connection's state. It starts the server again when a call or a turn asks for that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::McpClient;
use super::connection::{FailureKind, MAX_FAILURES, McpConnection, McpFailure, ServerState};
use super::connection_loop::{EXIT_GRACE, serve_connection};
use super::editor::EditorServer;
use super::failure::{Disconnect, DisconnectCause};
use super::offer;
use super::remote::RemoteServer;
use base::lock::{into_inner, lock};
use base::open_files::{self, PER_PROGRAM, SessionFiles};
use base::text;
use sandbox::process::{Program, StdioMode};

/// The time to wait for further error output after a server has broken off.
const STDERR_GRACE: Duration = Duration::from_millis(200);
/// The number of bytes retained from the end of a server's standard error.
const MAX_STDERR_BYTES: usize = 2 << 10;

/// The way to reach a server.
pub(super) enum ServerAccess {
    Program(Program),
    Address(Box<RemoteServer>),
    Editor(EditorServer),
}

/// Supervises a server until it is stopped.
pub(super) async fn supervise(
    connection: Arc<McpConnection>,
    access: ServerAccess,
    stop: CancellationToken,
) {
    offer_stored_catalog(&connection).await;
    run_until_stopped(&connection, access, stop).await;
    connection.end();
}

async fn run_until_stopped(
    connection: &Arc<McpConnection>,
    access: ServerAccess,
    stop: CancellationToken,
) {
    let mut failures = 0;
    loop {
        let client = McpClient {
            connection: connection.clone(),
        };
        let mut stderr = String::new();
        let logins_modified = connection
            .login
            .as_ref()
            .and_then(|(stored, _)| stored.modified_at());
        let end = match &access {
            ServerAccess::Program(program) => {
                run_program(program.clone(), client, &stop, &mut stderr).await
            }
            ServerAccess::Address(address) => address.serve_connection(client, &stop).await,
            ServerAccess::Editor(server) => server.serve_connection(client, &stop).await,
        };
        let Some(end) = end else { return };
        if connection.take_handshake_change() {
            continue;
        }
        tracing::warn!("MCP server {}: {}", connection.name, end.why);
        if end.cause != DisconnectCause::Resources {
            failures = if connection.take_success() {
                1
            } else {
                failures + 1
            };
        }
        // A server that does not start is no longer offered from the list of its last start.
        let last_offer = if connection.was_ready() {
            connection.offer()
        } else {
            None
        };
        let kind = match (end.cause, &last_offer) {
            (DisconnectCause::Login, _) => FailureKind::Login,
            (DisconnectCause::Resources, _) => FailureKind::Resources,
            (DisconnectCause::Server, None) => FailureKind::Start,
            (DisconnectCause::Server, Some(_)) if failures >= MAX_FAILURES => {
                FailureKind::Suspended
            }
            (DisconnectCause::Server, Some(_)) => FailureKind::Disconnected,
        };
        let failed_at = Instant::now();
        connection.set_state(ServerState::Failed(Arc::new(McpFailure {
            kind,
            why: end.why,
            stderr,
            last_offer: last_offer.clone(),
            failed_at,
            logins_modified,
        })));
        tokio::select! {
            () = connection.await_wake_up() => {}
            () = stop.cancelled() => return,
        }
        if kind == FailureKind::Suspended {
            failures = 0;
        }
        connection.set_state(ServerState::Starting(last_offer));
    }
}

/// Offers the tools of the stored catalogue until the server is ready.
async fn offer_stored_catalog(connection: &Arc<McpConnection>) {
    let Some(catalog_cache) = connection.catalog_cache.clone() else {
        return;
    };
    let starting = connection.clone();
    let read = move || {
        catalog_cache
            .read()
            .map(|catalog| offer::from_catalog(&starting, catalog))
    };
    match base::task::spawn_blocking(read).await {
        Ok(Some(offer)) => connection.offer_stored_catalog(offer),
        Ok(None) => {}
        Err(e) => tracing::error!(
            "the list of MCP server {} cannot be read: {e}",
            connection.name
        ),
    }
}

/// Runs a program from its start to its end. Returns `None` if it was stopped.
async fn run_program(
    program: Program,
    client: McpClient,
    stop: &CancellationToken,
    stderr_tail: &mut String,
) -> Option<Disconnect> {
    /// Processes that a server starts are found by the name of its work, which must therefore be
    /// unique.
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let name = client.connection.name.clone();
    let work = format!("mcp-{}", STARTED.fetch_add(1, Ordering::Relaxed));
    let Some(files) = SessionFiles::needed(PER_PROGRAM) else {
        let why = "the system allows this process no more files for sessions (ulimit -n)";
        return Some(Disconnect::for_lack_of_resources(why));
    };
    let mut child = match program.start(StdioMode::Separate, &work) {
        Ok(child) => child,
        Err(e) if open_files::is_exhaustion(&e) => {
            return Some(Disconnect::for_lack_of_resources(
                program.explain_start_error(&e),
            ));
        }
        Err(e) => return Some(Disconnect::new(program.explain_start_error(&e))),
    };
    child.outlast(files);
    let (stdin, stdout, stderr) = child.streams();
    let collected = Mutex::new(String::new());
    let end = {
        let serve = async {
            match (stdin, stdout) {
                (Some(stdin), Some(stdout)) => {
                    serve_connection(client, (stdout, stdin), stop).await
                }
                _ => Some(Disconnect::new("it has no pipes")),
            }
        };
        let collecting = collect_stderr(&name, stderr, &collected);
        tokio::pin!(serve, collecting);
        let mut is_stderr_closed = false;
        let end = loop {
            tokio::select! {
                end = &mut serve => break end,
                () = stop.cancelled() => break None,
                () = &mut collecting, if !is_stderr_closed => is_stderr_closed = true,
            }
        };
        if end.is_some() && !is_stderr_closed {
            // The reason may still be on its way through standard error.
            tokio::time::timeout(STDERR_GRACE, collecting).await.ok();
        }
        end
    };
    child.kill(EXIT_GRACE).await;
    let mut end = end?;
    *stderr_tail = into_inner(collected);
    let last = stderr_tail
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or_default();
    if !last.is_empty() {
        end.why = format!("{} (it wrote: {})", end.why, text::title(last));
    }
    Some(end)
}

/// Collects the end of a server's standard error. Returns when the stream is closed.
async fn collect_stderr(
    name: &str,
    stderr: Option<impl AsyncRead + Unpin>,
    stderr_tail: &Mutex<String>,
) {
    let mut buffer = vec![0; 4 << 10];
    if let Some(mut stderr) = stderr {
        while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
            let output = String::from_utf8_lossy(&buffer[..n]);
            tracing::debug!("MCP server {name} writes: {}", text::title(&output));
            let mut tail = lock(stderr_tail);
            tail.push_str(&output);
            let shortened = text::tail(&tail, MAX_STDERR_BYTES).to_owned();
            *tail = shortened;
        }
    }
}
