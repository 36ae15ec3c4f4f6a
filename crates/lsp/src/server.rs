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

use super::frame;
use super::peer::{LspClient, QUEUE};
use base::lock::{locked, unlocked};
use base::text;
use sandbox::process::{Program, StdioMode};

/// The maximum time until a server answers `initialize`.
const GREETING: Duration = Duration::from_secs(45);
/// The time without requests after which a server is stopped.
const IDLE: Duration = Duration::from_secs(600);
/// The number of failures after which a server is left alone, and for how long.
const FAILURES: u32 = 3;
const REST: Duration = Duration::from_secs(300);
/// A server that has run this long starts with a clean record of failures.
const STEADY: Duration = Duration::from_secs(60);
/// The maximum time for a server to end after the request to do so.
const GRACE: Duration = Duration::from_millis(500);
/// The time for reading the standard error of a server that has ended by itself.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// The maximum bytes that are stored of a server's standard error.
const COMPLAINT: usize = 2 << 10;
/// The maximum number of messages that are read from a server per second.
const FLOOD: u32 = 2_000;

/// The state of a server as its users see it.
pub(super) struct LspLink {
    pub(super) name: String,
    pub(super) root: PathBuf,
    pub(super) options: Option<Value>,
    state: watch::Sender<LinkState>,
    wake: Notify,
    used: Mutex<Instant>,
    /// Whether a caller has waited for the present start in vain.
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
    pub wrote: String,
    /// Whether it worked before and is left alone for a while.
    pub rests: bool,
    since: Instant,
}

/// The reason why a server cannot be used now.
#[derive(Debug, Clone)]
pub enum Unready {
    Late,
    Failed(Arc<LspFailure>),
}

enum End {
    /// Its last reference was dropped.
    Stopped,
    /// There were no requests for a while.
    Idle,
    /// It ended by itself: the reason, and the time since which it had worked, if it ever did.
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
    pub(super) async fn peer(&self, until: Instant) -> Result<Arc<LspClient>, Unready> {
        *locked(&self.used) = Instant::now();
        let mut state = self.state.subscribe();
        let ready = async {
            loop {
                match &*state.borrow_and_update() {
                    LinkState::Ready(peer) if !peer.gone.is_cancelled() => return Ok(peer.clone()),
                    // The server has ended; its task is about to notice.
                    LinkState::Ready(_) | LinkState::Starting => {}
                    LinkState::Asleep => self.wake.notify_one(),
                    LinkState::Failed(breakdown) if breakdown.since.elapsed() < REST => {
                        return Err(Unready::Failed(breakdown.clone()));
                    }
                    LinkState::Failed(_) => self.wake.notify_one(),
                }
                if state.changed().await.is_err() {
                    return Err(Unready::Late);
                }
            }
        };
        let until = if self.late.load(Ordering::Relaxed) { Instant::now() } else { until };
        match tokio::time::timeout_at(until, ready).await {
            Ok(answer) => answer,
            Err(_) => {
                self.late.store(true, Ordering::Relaxed);
                Err(Unready::Late)
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
            let until = *locked(&self.used) + IDLE;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// Runs a server, again and again if necessary, until it is stopped.
pub(super) async fn keep(link: Arc<LspLink>, program: Program, stop: CancellationToken) {
    let mut failures = 0;
    loop {
        let complaint = Mutex::new(String::new());
        let end = run(&link, &program, &stop, &complaint).await;
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
        failures = if worked.is_some_and(|since| since.elapsed() >= STEADY) { 1 } else { failures + 1 };
        // A server that has worked is restarted at once; one that never did would fail in the same
        // way again.
        if worked.is_some() && failures < FAILURES {
            link.set(LinkState::Starting);
            continue;
        }
        let rests = worked.is_some();
        let since = Instant::now();
        let wrote = unlocked(complaint);
        link.set(LinkState::Failed(Arc::new(LspFailure { why, wrote, rests, since })));
        tokio::select! {
            () = link.wake.notified() => {}
            () = stop.cancelled() => return,
        }
        failures = 0;
        link.set(LinkState::Starting);
    }
}

/// Runs the program from its start to its end.
async fn run(link: &LspLink, program: &Program, stop: &CancellationToken, complaint: &Mutex<String>) -> End {
    /// Each server has a name of its own, by which the processes that it starts are found.
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let work = format!("lsp-{}", STARTED.fetch_add(1, Ordering::Relaxed));
    let mut child = match program.start(StdioMode::Separate, &work) {
        Ok(child) => child,
        Err(e) => return End::Broke(format!("it cannot be started: {e}"), None),
    };
    let (Some(stdin), Some(stdout), stderr) = child.streams() else {
        return End::Broke("it has no pipes".into(), None);
    };
    let end = {
        let talk = talk(link, stdin, stdout);
        let listen = listen(&link.name, stderr, complaint);
        tokio::pin!(talk, listen);
        let mut silent = false;
        let end = loop {
            tokio::select! {
                end = &mut talk => break end,
                () = stop.cancelled() => break End::Stopped,
                () = &mut listen, if !silent => silent = true,
            }
        };
        if matches!(end, End::Broke(..)) && !silent {
            // The reason for its end may still be unread on its standard error.
            tokio::time::timeout(LAST_WORDS, listen).await.ok();
        }
        end
    };
    child.kill(GRACE).await;
    let End::Broke(mut why, worked) = end else { return end };
    let wrote = locked(complaint).clone();
    let last = wrote.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    if !last.is_empty() {
        why = format!("{why} (it wrote: {})", text::title(last));
    }
    End::Broke(why, worked)
}

async fn talk(link: &LspLink, stdin: impl AsyncWrite + Unpin, stdout: impl AsyncRead + Unpin) -> End {
    let (out, queue) = mpsc::channel(QUEUE);
    let options = link.options.as_ref();
    let peer = Arc::new(LspClient::new(out, link.root.clone(), options.cloned().unwrap_or_default()));
    let mut worked = None;
    let greet = async {
        match tokio::time::timeout(GREETING, peer.greet(options)).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Some(format!("it refuses to work here: {why}")),
            Err(_) => return Some(format!("it did not answer within {} s", GREETING.as_secs())),
        }
        worked = Some(Instant::now());
        link.set(LinkState::Ready(peer.clone()));
        link.idle().await;
        None
    };
    let why = tokio::select! {
        why = hear(&peer, stdout) => Some(format!("it {why}")),
        why = speak(queue, stdin) => Some(why),
        why = greet => why,
    };
    peer.gone.cancel();
    why.map_or(End::Idle, |why| End::Broke(why, worked))
}

/// Reads the server's messages until its output ends. Returns the reason.
async fn hear(peer: &LspClient, from: impl AsyncRead + Unpin) -> String {
    let mut from = BufReader::with_capacity(64 << 10, from);
    let mut since = Instant::now();
    let mut count = 0;
    loop {
        match frame::read(&mut from).await {
            Ok(message) => peer.take(&message),
            Err(why) => return why,
        }
        count += 1;
        if count >= FLOOD {
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

async fn speak(mut queue: mpsc::Receiver<Vec<u8>>, mut to: impl AsyncWrite + Unpin) -> String {
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
async fn listen(name: &str, stderr: Option<impl AsyncRead + Unpin>, complaint: &Mutex<String>) {
    let mut buffer = vec![0; 4 << 10];
    if let Some(mut stderr) = stderr {
        while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
            let said = String::from_utf8_lossy(&buffer[..n]);
            tracing::debug!("language server {name} writes: {}", text::title(&said));
            keep_end(complaint, &said);
            tokio::task::yield_now().await;
        }
    }
}

fn keep_end(complaint: &Mutex<String>, said: &str) {
    let mut kept = locked(complaint);
    kept.push_str(said);
    *kept = text::tail(&kept, COMPLAINT).to_owned();
}
