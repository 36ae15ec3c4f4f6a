//! Supervises a server: starts it, serves its connection until that ends, and starts it again on
//! demand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::McpClient;
use super::connection::{FailureKind, MAX_FAILURES, McpFailure, McpLink, ServerState};
use super::conversation::{EXIT_GRACE, serve_connection};
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

pub(super) enum ServerAccess {
    Program(Program),
    Address(Box<RemoteServer>),
    Editor(EditorServer),
}

/// Supervises a server until it is stopped.
pub(super) async fn supervise(link: Arc<McpLink>, reach: ServerAccess, stop: CancellationToken) {
    recall(&link).await;
    attend_to(&link, reach, stop).await;
    link.end();
}

async fn attend_to(link: &Arc<McpLink>, reach: ServerAccess, stop: CancellationToken) {
    let mut failures = 0;
    loop {
        let us = McpClient { link: link.clone() };
        let mut stderr = String::new();
        let logins = link.login.as_ref().and_then(|(stored, _)| stored.stamp());
        let end = match &reach {
            ServerAccess::Program(program) => run(program.clone(), us, &stop, &mut stderr).await,
            ServerAccess::Address(address) => address.serve_connection(us, &stop).await,
            ServerAccess::Editor(server) => server.serve_connection(us, &stop).await,
        };
        let Some(end) = end else { return };
        if link.take_handshake_change() {
            continue;
        }
        tracing::warn!("MCP server {}: {}", link.name, end.why);
        if end.cause != DisconnectCause::Resources {
            failures = if link.was_useful() { 1 } else { failures + 1 };
        }
        // A server that does not start is no longer offered from the list of its last start.
        let last = if link.was_connected() {
            link.offers()
        } else {
            None
        };
        let kind = match (end.cause, &last) {
            (DisconnectCause::Login, _) => FailureKind::Login,
            (DisconnectCause::Resources, _) => FailureKind::Resources,
            (DisconnectCause::Server, None) => FailureKind::Start,
            (DisconnectCause::Server, Some(_)) if failures >= MAX_FAILURES => {
                FailureKind::Suspended
            }
            (DisconnectCause::Server, Some(_)) => FailureKind::Disconnected,
        };
        let since = Instant::now();
        link.set(ServerState::Failed(Arc::new(McpFailure {
            kind,
            why: end.why,
            stderr,
            last: last.clone(),
            since,
            logins,
        })));
        tokio::select! {
            () = link.await_wake_up() => {}
            () = stop.cancelled() => return,
        }
        if kind == FailureKind::Suspended {
            failures = 0;
        }
        link.set(ServerState::Starting(last));
    }
}

/// Offers the tools listed at the last start until the server is ready.
async fn recall(link: &Arc<McpLink>) {
    let Some(memory) = link.memory.clone() else {
        return;
    };
    let starting = link.clone();
    let read = move || memory.read().map(|catalog| offer::of(&starting, catalog));
    match base::task::spawn_blocking(read).await {
        Ok(Some(offer)) => link.recall(offer),
        Ok(None) => {}
        Err(e) => tracing::error!("the list of MCP server {} cannot be read: {e}", link.name),
    }
}

/// Runs a program from its start to its end. Returns `None` if it was stopped.
async fn run(
    program: Program,
    us: McpClient,
    stop: &CancellationToken,
    stderr_tail: &mut String,
) -> Option<Disconnect> {
    /// Processes that a server starts are found by the name of its work, which must therefore be
    /// unique.
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let name = us.link.name.clone();
    let work = format!("mcp-{}", STARTED.fetch_add(1, Ordering::Relaxed));
    let Some(files) = SessionFiles::needed(PER_PROGRAM) else {
        let why = "the system allows this process no more files for sessions (ulimit -n)";
        return Some(Disconnect::lacks_resources(why));
    };
    let mut child = match program.start(StdioMode::Separate, &work) {
        Ok(child) => child,
        Err(e) if open_files::is_exhaustion(&e) => {
            return Some(Disconnect::lacks_resources(program.explain_start_error(&e)));
        }
        Err(e) => return Some(Disconnect::because(program.explain_start_error(&e))),
    };
    child.outlast(files);
    let (stdin, stdout, stderr) = child.streams();
    let complaint = Mutex::new(String::new());
    let end = {
        let serve = async {
            match (stdin, stdout) {
                (Some(stdin), Some(stdout)) => serve_connection(us, (stdout, stdin), stop).await,
                _ => Some(Disconnect::because("it has no pipes")),
            }
        };
        let listen = listen(&name, stderr, &complaint);
        tokio::pin!(serve, listen);
        let mut silent = false;
        let end = loop {
            tokio::select! {
                end = &mut serve => break end,
                () = stop.cancelled() => break None,
                () = &mut listen, if !silent => silent = true,
            }
        };
        if end.is_some() && !silent {
            // The reason may still be on its way through standard error.
            tokio::time::timeout(STDERR_GRACE, listen).await.ok();
        }
        end
    };
    child.kill(EXIT_GRACE).await;
    let mut end = end?;
    *stderr_tail = into_inner(complaint);
    let last = stderr_tail
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or_default();
    if !last.is_empty() {
        end.why = format!("{} (it wrote: {})", end.why, text::title(last));
    }
    Some(end)
}

/// Collects the end of a server's standard error until the stream is closed.
async fn listen(name: &str, stderr: Option<impl AsyncRead + Unpin>, complaint: &Mutex<String>) {
    let mut buffer = vec![0; 4 << 10];
    if let Some(mut stderr) = stderr {
        while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
            let output = String::from_utf8_lossy(&buffer[..n]);
            tracing::debug!("MCP server {name} writes: {}", text::title(&output));
            let mut tail = lock(complaint);
            tail.push_str(&output);
            let shortened = text::tail(&tail, MAX_STDERR_BYTES).to_owned();
            *tail = shortened;
        }
    }
}
