//! The life of a server: it is started on demand, used, stopped after a while without use, and
//! restarted.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::{LspClient, MAX_QUEUED_MESSAGES};
use super::framing;
use base::lock::{into_inner, lock};
use base::open_files::{PER_PROGRAM, SessionFiles};
use base::text;
use sandbox::process::{Program, StdioMode};

/// The maximum time until a server answers `initialize`.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(45);
/// The time without requests after which a server is stopped.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// The number of failures after which a server is left alone, and for how long.
const MAX_FAILURES: u32 = 3;
const FAILURE_PAUSE: Duration = Duration::from_secs(300);
/// A server that has run this long starts with a clean record of failures.
const STABLE_TIME: Duration = Duration::from_secs(60);
/// The maximum time for a server to end after the request to do so.
const STOP_GRACE: Duration = Duration::from_millis(500);
/// The time for reading the standard error of a server that has ended on its own.
const STDERR_GRACE: Duration = Duration::from_millis(200);
/// The maximum bytes that are stored of a server's standard error.
const MAX_STDERR_BYTES: usize = 2 << 10;
/// The maximum number of messages that are read from a server per second.
const MAX_MESSAGES_PER_SECOND: u32 = 2_000;

/// The state of a server as its users see it.
pub(super) struct LspLink {
    pub(super) name: String,
    pub(super) root: PathBuf,
    pub(super) options: Option<Value>,
    state: watch::Sender<LinkState>,
    wake: Notify,
    used: Mutex<Instant>,
    /// True if a caller has waited for the present start in vain.
    late: AtomicBool,
}

#[derive(Clone)]
pub(super) enum LinkState {
    Starting,
    Ready(Arc<LspClient>),
    /// Stopped after a while without requests.
    Asleep,
    Failed(Arc<LspFailure>),
}

/// A server that does not work.
#[derive(Debug, Clone)]
pub struct LspFailure {
    /// The reason, in a few words that follow "does not work:".
    pub why: String,
    /// The text that it wrote to its standard error.
    pub stderr: String,
    /// True if it worked before and is left alone for a while.
    pub is_paused: bool,
    since: Instant,
}

/// The reason why a server cannot be used now.
#[derive(Debug, Clone)]
pub enum Unavailable {
    Starting,
    Failed(Arc<LspFailure>),
}

enum End {
    /// Its last reference was dropped.
    Stopped,
    /// There were no requests for a while.
    Idle,
    /// It ended on its own: the reason, and the time since which it had worked, if it ever did.
    Broke(String, Option<Instant>),
}

impl LspLink {
    pub(super) fn new(name: &str, root: PathBuf, options: Option<Value>) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            root,
            options,
            state: watch::Sender::new(LinkState::Starting),
            wake: Notify::new(),
            used: Mutex::new(Instant::now()),
            late: AtomicBool::new(false),
        })
    }

    /// Returns the connection once the server works. Restarts a server that is asleep or was left
    /// alone for long enough. Waits until `until` at most, and not at all if a caller has waited
    /// for the same start in vain.
    ///
    /// # Errors
    /// The reason why there is no connection.
    pub(super) async fn peer(&self, until: Instant) -> Result<Arc<LspClient>, Unavailable> {
        *lock(&self.used) = Instant::now();
        let mut state = self.state.subscribe();
        let ready = async {
            loop {
                match &*state.borrow_and_update() {
                    LinkState::Ready(peer) if !peer.gone.is_cancelled() => return Ok(peer.clone()),
                    // The server has ended; its task is about to notice.
                    LinkState::Ready(_) | LinkState::Starting => {}
                    LinkState::Asleep => self.wake.notify_one(),
                    LinkState::Failed(breakdown) if breakdown.since.elapsed() < FAILURE_PAUSE => {
                        return Err(Unavailable::Failed(breakdown.clone()));
                    }
                    LinkState::Failed(_) => self.wake.notify_one(),
                }
                if state.changed().await.is_err() {
                    return Err(Unavailable::Starting);
                }
            }
        };
        let until = if self.late.load(Ordering::Relaxed) {
            Instant::now()
        } else {
            until
        };
        match tokio::time::timeout_at(until, ready).await {
            Ok(answer) => answer,
            Err(_) => {
                self.late.store(true, Ordering::Relaxed);
                Err(Unavailable::Starting)
            }
        }
    }

    fn set(&self, state: LinkState) {
        if !matches!(state, LinkState::Starting) {
            self.late.store(false, Ordering::Relaxed);
        }
        self.state.send_replace(state);
    }

    /// Waits until there was no request for a while.
    async fn idle(&self) {
        loop {
            let until = *lock(&self.used) + IDLE_TIMEOUT;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// Runs a server, again and again if necessary, until it is stopped.
pub(super) async fn supervise(link: Arc<LspLink>, program: Program, stop: CancellationToken) {
    let mut failures = 0;
    loop {
        let stderr_tail = Mutex::new(String::new());
        let end = run(&link, &program, &stop, &stderr_tail).await;
        let (why, worked) = match end {
            End::Stopped => return,
            End::Idle => {
                link.set(LinkState::Asleep);
                tokio::select! {
                    () = link.wake.notified() => {}
                    () = stop.cancelled() => return,
                }
                failures = 0;
                link.set(LinkState::Starting);
                continue;
            }
            End::Broke(why, worked) => (why, worked),
        };
        tracing::warn!("language server {}: {why}", link.name);
        failures = if worked.is_some_and(|since| since.elapsed() >= STABLE_TIME) {
            1
        } else {
            failures + 1
        };
        // A server that has worked is restarted at once; one that never did would fail in the same
        // way again.
        if worked.is_some() && failures < MAX_FAILURES {
            link.set(LinkState::Starting);
            continue;
        }
        let is_paused = worked.is_some();
        let since = Instant::now();
        let stderr = into_inner(stderr_tail);
        link.set(LinkState::Failed(Arc::new(LspFailure {
            why,
            stderr,
            is_paused,
            since,
        })));
        tokio::select! {
            () = link.wake.notified() => {}
            () = stop.cancelled() => return,
        }
        failures = 0;
        link.set(LinkState::Starting);
    }
}

/// Runs the program from its start to its end.
async fn run(
    link: &LspLink,
    program: &Program,
    stop: &CancellationToken,
    stderr_tail: &Mutex<String>,
) -> End {
    /// Each server has a name of its own, by which the processes that it starts are found.
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let work = format!("lsp-{}", STARTED.fetch_add(1, Ordering::Relaxed));
    let mut child = match program.start(StdioMode::Separate, &work) {
        Ok(child) => child,
        Err(e) => return End::Broke(format!("it cannot be started: {e}"), None),
    };
    child.outlast(SessionFiles::take_unconditionally(PER_PROGRAM));
    let (Some(stdin), Some(stdout), stderr) = child.streams() else {
        return End::Broke("it has no pipes".into(), None);
    };
    let end = {
        let exchange = exchange(link, stdin, stdout);
        let read_stderr = read_stderr(&link.name, stderr, stderr_tail);
        tokio::pin!(exchange, read_stderr);
        let mut silent = false;
        let end = loop {
            tokio::select! {
                end = &mut exchange => break end,
                () = stop.cancelled() => break End::Stopped,
                () = &mut read_stderr, if !silent => silent = true,
            }
        };
        if matches!(end, End::Broke(..)) && !silent {
            // The reason for its end may still be unread on its standard error.
            tokio::time::timeout(STDERR_GRACE, read_stderr).await.ok();
        }
        end
    };
    child.kill(STOP_GRACE).await;
    let End::Broke(mut why, worked) = end else {
        return end;
    };
    let stderr = lock(stderr_tail).clone();
    let last = stderr
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or_default();
    if !last.is_empty() {
        why = format!("{why} (it wrote: {})", text::title(last));
    }
    End::Broke(why, worked)
}

async fn exchange(
    link: &LspLink,
    stdin: impl AsyncWrite + Unpin,
    stdout: impl AsyncRead + Unpin,
) -> End {
    let (out, queue) = mpsc::channel(MAX_QUEUED_MESSAGES);
    let options = link.options.as_ref();
    let peer = Arc::new(LspClient::new(
        out,
        link.root.clone(),
        options.cloned().unwrap_or_default(),
    ));
    let mut worked = None;
    let initialize = async {
        match tokio::time::timeout(INITIALIZE_TIMEOUT, peer.initialize(options)).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Some(format!("it refuses to work here: {why}")),
            Err(_) => {
                return Some(format!(
                    "it did not answer within {} s",
                    INITIALIZE_TIMEOUT.as_secs()
                ));
            }
        }
        worked = Some(Instant::now());
        link.set(LinkState::Ready(peer.clone()));
        link.idle().await;
        None
    };
    let why = tokio::select! {
        why = read_messages(&peer, stdout) => Some(format!("it {why}")),
        why = write_messages(queue, stdin) => Some(why),
        why = initialize => why,
    };
    peer.gone.cancel();
    why.map_or(End::Idle, |why| End::Broke(why, worked))
}

/// Reads the server's messages until its output ends. Returns the reason.
async fn read_messages(peer: &LspClient, from: impl AsyncRead + Unpin) -> String {
    let mut from = BufReader::with_capacity(64 << 10, from);
    let mut since = Instant::now();
    let mut count = 0;
    loop {
        match framing::read(&mut from).await {
            Ok(message) => peer.handle(&message),
            Err(why) => return why,
        }
        count += 1;
        if count >= MAX_MESSAGES_PER_SECOND {
            // A server that floods is read more slowly, so that other work continues.
            tokio::time::sleep_until(since + Duration::from_secs(1)).await;
            since = Instant::now();
            count = 0;
        } else if count % 64 == 0 {
            if since.elapsed() >= Duration::from_secs(1) {
                since = Instant::now();
                count = 0;
            }
            tokio::task::yield_now().await;
        }
    }
}

async fn write_messages(
    mut queue: mpsc::Receiver<Vec<u8>>,
    mut to: impl AsyncWrite + Unpin,
) -> String {
    while let Some(bytes) = queue.recv().await {
        let sent = async {
            to.write_all(&bytes).await?;
            to.flush().await
        };
        if sent.await.is_err() {
            // Its last output is still to be read.
            return std::future::pending().await;
        }
    }
    std::future::pending().await
}

/// Stores the end of a server's standard error, until it is closed.
async fn read_stderr(
    name: &str,
    stderr: Option<impl AsyncRead + Unpin>,
    stderr_tail: &Mutex<String>,
) {
    let mut buffer = vec![0; 4 << 10];
    if let Some(mut stderr) = stderr {
        while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
            let text = String::from_utf8_lossy(&buffer[..n]);
            tracing::debug!("language server {name} writes: {}", text::title(&text));
            append_tail(stderr_tail, &text);
            tokio::task::yield_now().await;
        }
    }
}

fn append_tail(stderr_tail: &Mutex<String>, text: &str) {
    let mut tail = lock(stderr_tail);
    tail.push_str(text);
    *tail = text::tail(&tail, MAX_STDERR_BYTES).to_owned();
}
