//! Keeping a server: it is started when somebody wants it, talked to until that is over, and started again.

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

/// How long a server may take to answer the greeting.
const GREETING: Duration = Duration::from_secs(45);
/// How long one that nobody asks is kept.
const IDLE: Duration = Duration::from_secs(600);
/// How often one may break off before it rests, and for how long.
const FAILURES: u32 = 3;
const REST: Duration = Duration::from_secs(300);
/// One that has worked for so long has not failed before.
const STEADY: Duration = Duration::from_secs(60);
/// How long one may take to end when it is asked to.
const GRACE: Duration = Duration::from_millis(500);
/// How long one that broke off may go on complaining.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// What is kept of what a server writes to its standard error.
const COMPLAINT: usize = 2 << 10;
/// So many messages a second are read of one that says more.
const FLOOD: u32 = 2_000;

/// One server, as everybody but its keeper sees it.
pub(super) struct LspLink {
    pub(super) name: String,
    pub(super) root: PathBuf,
    pub(super) options: Option<Value>,
    state: watch::Sender<LinkState>,
    wake: Notify,
    used: Mutex<Instant>,
    /// It was waited for while it started, in vain.
    late: AtomicBool,
}

#[derive(Clone)]
pub(super) enum LinkState {
    Starting,
    Ready(Arc<LspClient>),
    /// Nobody asked for a while.
    Asleep,
    Failed(Arc<LspFailure>),
}

/// A server that does not work.
#[derive(Debug, Clone)]
pub struct LspFailure {
    /// Why, in a few words that follow "does not work:".
    pub why: String,
    /// What it wrote to its standard error.
    pub wrote: String,
    /// It worked before, and is left alone for a while.
    pub rests: bool,
    since: Instant,
}

/// Why a server cannot be asked now.
#[derive(Debug, Clone)]
pub enum Unready {
    Late,
    Failed(Arc<LspFailure>),
}

enum End {
    /// Nobody needs it any more.
    Stopped,
    /// Nobody asked for a while.
    Idle,
    /// By itself: why, and since when it had worked, if it ever did.
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

    /// The server, once it works; one that sleeps or has rested is started again. Waits until `until` at most, and
    /// not at all where somebody has waited for the same start in vain.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn peer(&self, until: Instant) -> Result<Arc<LspClient>, Unready> {
        *locked(&self.used) = Instant::now();
        let mut state = self.state.subscribe();
        let ready = async {
            loop {
                match &*state.borrow_and_update() {
                    LinkState::Ready(peer) if !peer.gone.is_cancelled() => return Ok(peer.clone()),
                    // Its keeper is about to notice.
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

    /// Waits until nobody has asked for a while.
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

/// Keeps a server until it is stopped.
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
        // One that worked is started again at once; one that never did would do the same again.
        if worked.is_some() && failures < FAILURES {
            link.set(LinkState::Starting);
            continue;
        }
        let (rests, since, wrote) = (worked.is_some(), Instant::now(), unlocked(complaint));
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
    /// Whatever a server starts is found by the name of its work, so each has one of its own.
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
            // Why it ended it may have said a moment ago.
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

/// Reads what a server says until it says no more; why that is.
async fn hear(peer: &LspClient, from: impl AsyncRead + Unpin) -> String {
    let mut from = BufReader::with_capacity(64 << 10, from);
    let (mut since, mut count) = (Instant::now(), 0);
    loop {
        match frame::read(&mut from).await {
            Ok(message) => peer.take(&message),
            Err(why) => return why,
        }
        count += 1;
        if count >= FLOOD {
            // Whoever says more than can be of use waits, and keeps nobody else waiting.
            tokio::time::sleep_until(since + Duration::from_secs(1)).await;
            (since, count) = (Instant::now(), 0);
        } else if count % 64 == 0 {
            if since.elapsed() >= Duration::from_secs(1) {
                (since, count) = (Instant::now(), 0);
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
            // Its last words are still to be read.
            return std::future::pending().await;
        }
    }
    std::future::pending().await
}

/// Keeps the end of what a server complains about, until it is silent for ever.
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
