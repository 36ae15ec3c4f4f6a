//! The process that runs a session's JavaScript: started in the sandbox of the agent's commands, spoken to in lines
//! of JSON over its own pipes, ended with the session. Whatever comes out of it is data: a line that is none of
//! ours is a line it printed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use base::lock::locked;
use base::text;
use base::variables::GIT_HELD;
use config::script::ScriptEntry;
use sandbox::process::{Child, Program, StdioMode};
use tools::{BoxFuture, Failure, ToolContext};

/// The script of the host, and what stands in for OpenCode's package.
const HOST: &str = include_str!("host.mjs");
pub(super) const STAND_IN: &str = include_str!("stand_in.mjs");

/// Reads the host from the first line of its input: no file of it is on the disk, and a list of processes
/// stays readable.
const BOOT: &str = "import{createInterface as c}from\"node:readline\";const i=c({input:process.stdin})\
    [Symbol.asyncIterator](),s=JSON.parse((await i.next()).value);await(await import(\"data:text/javascript;base64,\"+s)).default(i)";

/// The longest line it may write, and how much it may print altogether that is not a message.
const LINE: usize = 16 << 20;
const PRINTED: u64 = 64 << 20;
/// What is kept of what it prints.
const LAST_WORDS: usize = 2 << 10;
/// Lines that may wait to be written to it.
const WAITING: usize = 64;

/// Whose scripts run in a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptOrigin {
    Own,
    Project,
}

impl ScriptOrigin {
    /// In the order in which they are asked.
    pub(super) const ALL: [Self; 2] = [Self::Own, Self::Project];

    pub(super) fn covers(self, script: &ScriptEntry) -> bool {
        script.project == (self == Self::Project)
    }
}

/// What a host asks of us, or tells.
#[derive(Debug)]
pub(super) enum FromHost {
    /// A tool asks for a permission.
    Ask { id: u64, params: Value },
    /// A tool says how far it is.
    Metadata(Value),
}

/// How a request to a host fails.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum HostError {
    /// It says so: words, and where.
    Said {
        message: String,
        stack: String,
        arguments: bool,
    },
    Gone(String),
    /// It does not answer.
    Late,
}

impl std::fmt::Display for HostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Said { message, .. } => f.write_str(message),
            Self::Gone(why) => write!(f, "the program that runs it has ended: {why}"),
            Self::Late => f.write_str("it does not answer"),
        }
    }
}

/// How long the last of what a host wrote to standard error is waited for.
const FAREWELL: Duration = Duration::from_millis(200);

/// A call of OpenCode's client.
#[derive(Debug)]
pub(super) struct ClientCall {
    /// The file that makes it, as the host says.
    pub(super) file: String,
    /// `session.prompt`.
    pub(super) way: String,
    pub(super) options: Value,
}

/// Something a host says beside its answers, for whoever keeps the session.
pub(super) trait Listener: Send + Sync {
    /// It asks something through OpenCode's client.
    fn client(self: Arc<Self>, asked: ClientCall) -> BoxFuture<'static, Value>;
    /// A plugin subscribes to events.
    fn listens(&self);
    /// An error that no call was waiting for.
    fn failed(&self, params: &Value);
}

type Waiting = HashMap<u64, oneshot::Sender<Result<Value, HostError>>>;

/// A process of Node or Bun, which runs the plugins and custom tools of a session.
pub(super) struct PluginHost {
    lines: mpsc::Sender<String>,
    next: AtomicU64,
    // Leaf locks around maps.
    waiting: Mutex<Waiting>,
    calls: Mutex<HashMap<String, mpsc::UnboundedSender<FromHost>>>,
    /// Why it has ended, once it has.
    ended: Mutex<Option<String>>,
    stop: CancellationToken,
    /// It is gone, and all it started.
    gone: CancellationToken,
}

impl Drop for PluginHost {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The program that runs JavaScript here: Bun, else Node.
pub(super) fn runtime(dirs: &[PathBuf]) -> Option<(PathBuf, &'static [&'static str])> {
    // Bun would install what is missing.
    let bun = base::executable::find("bun", dirs).map(|path| (path, &["--no-install", "-e"][..]));
    bun.or_else(|| base::executable::find("node", dirs).map(|path| (path, &["--input-type=module", "-e"][..])))
}

impl PluginHost {
    /// Starts one.
    ///
    /// # Errors
    /// Why it cannot be started, as the end of a sentence; that the user cancelled.
    pub(super) async fn start(context: &ToolContext, listener: Arc<dyn Listener>) -> Result<Arc<Self>, Failure> {
        let environment = &context.project.environment;
        let Some((path, args)) = runtime(&environment.path()) else {
            return Err(Failure::Tell("there is neither Bun nor Node (20.6 or newer) on PATH".into()));
        };
        let confinement = context.confinement.quietly().writing();
        let lock = confinement.lock(context).await?;
        let mut env = context.project.settings.variables.tame(environment);
        if !context.confinement.trusted {
            env.extend(GIT_HELD.map(|(name, value)| (name.into(), value.into())));
        }
        // Not in the project: Bun would load what its files there name before anything of ours runs.
        let program = Program::new(path, "/", env).args(args.iter().copied().chain([BOOT]));
        let program = confinement.enter_shared(&lock, context, program)?;
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let work = format!("extensions-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let child = program.start(StdioMode::Separate, &work);
        let child = child.map_err(|e| Failure::Tell(format!("it cannot be started: {e}")))?;
        let (lines, coming) = mpsc::channel(WAITING);
        let (stop, gone) = (CancellationToken::new(), CancellationToken::new());
        let host = Arc::new(Self {
            lines,
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
            calls: Mutex::default(),
            ended: Mutex::default(),
            stop: stop.clone(),
            gone,
        });
        // It ends when nobody holds the host any more.
        base::task::spawn(keep(child, coming, Arc::downgrade(&host), host.gone.clone(), stop, listener));
        let source = base64::engine::general_purpose::STANDARD.encode(HOST);
        host.say(&Value::String(source)).await.map_err(|e| Failure::Tell(e.to_string()))?;
        Ok(host)
    }

    pub(super) fn is_gone(&self) -> bool {
        locked(&self.ended).is_some() || self.stop.is_cancelled()
    }

    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    /// Waits until it is gone, with all it started.
    pub(super) async fn gone(&self) {
        self.gone.cancelled().await;
    }

    async fn say(&self, message: &Value) -> Result<(), HostError> {
        self.lines.send(format!("{message}\n")).await.map_err(|_| self.why_gone())
    }

    fn why_gone(&self) -> HostError {
        HostError::Gone(locked(&self.ended).clone().unwrap_or_else(|| "it was ended".into()))
    }

    /// Tells it something, without an answer.
    pub(super) async fn tell(&self, method: &str, params: Value) {
        // One that is gone has no use for it.
        self.say(&json!({ "method": method, "params": params })).await.ok();
    }

    /// Answers what it has asked.
    pub(super) async fn answer(&self, id: u64, result: Value) {
        self.say(&json!({ "id": id, "result": result })).await.ok();
    }

    /// Asks it. One that does not answer in time is ended: nobody can tell what it is doing.
    ///
    /// # Errors
    /// [`HostError`].
    pub(super) async fn request(&self, method: &str, params: Value, limit: Duration) -> Result<Value, HostError> {
        let answer = self.ask(method, params).await?;
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(self.why_gone())),
            Err(_) => {
                self.end();
                Err(HostError::Late)
            }
        }
    }

    /// Asks it; the answer may take its time.
    async fn ask(&self, method: &str, params: Value) -> Result<oneshot::Receiver<Result<Value, HostError>>, HostError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        locked(&self.waiting).insert(id, reply);
        if self.is_gone() {
            locked(&self.waiting).remove(&id);
            return Err(self.why_gone());
        }
        self.say(&json!({ "id": id, "method": method, "params": params })).await?;
        Ok(answer)
    }

    /// Waits until what it was told of is done, but not for long. It is not ended where it takes longer.
    pub(super) async fn settled(&self, params: Value, limit: Duration) {
        // One that is gone has settled.
        if let Ok(answer) = self.ask("settled", params).await {
            tokio::time::timeout(limit, answer).await.ok();
        }
    }

    /// Begins a call of a tool: its answer, and what it asks and tells on the way.
    pub(super) async fn call(self: &Arc<Self>, call: &str, params: Value) -> Result<HostCall, HostError> {
        let (news, heard) = mpsc::unbounded_channel();
        locked(&self.calls).insert(call.to_owned(), news);
        let mut call = HostCall { host: self.clone(), call: call.to_owned(), heard, answer: None, done: false };
        call.answer = Some(self.ask("call", params).await?);
        Ok(call)
    }

    /// It has ended: so has everything that waits for it.
    fn over(&self, why: String) {
        locked(&self.ended).get_or_insert(why);
        let waiting = std::mem::take(&mut *locked(&self.waiting));
        for reply in waiting.into_values() {
            // Who has gone away meanwhile does not care.
            reply.send(Err(self.why_gone())).ok();
        }
        locked(&self.calls).clear();
    }

    /// What one line of it says.
    fn heard(self: &Arc<Self>, message: Value, listener: &Arc<dyn Listener>) {
        let id = message.get("id").and_then(Value::as_u64);
        let params = message.get("params").cloned().unwrap_or_default();
        let call = || {
            let call = params.get("call").and_then(Value::as_str).unwrap_or_default();
            locked(&self.calls).get(call).cloned()
        };
        match (message.get("method").and_then(Value::as_str), id) {
            (None, Some(id)) => {
                let Some(reply) = locked(&self.waiting).remove(&id) else { return };
                let answer = match message.get("error") {
                    Some(error) => {
                        let words = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                        let arguments = error.get("arguments").and_then(Value::as_bool) == Some(true);
                        Err(HostError::Said { message: words("message"), stack: words("stack"), arguments })
                    }
                    None => Ok(message.get("result").cloned().unwrap_or_default()),
                };
                reply.send(answer).ok();
            }
            (Some("ask"), Some(id)) => {
                let asked = call().is_some_and(|call| call.send(FromHost::Ask { id, params: params.clone() }).is_ok());
                if !asked {
                    self.later(id, json!({ "allowed": false, "why": "the call has ended" }));
                }
            }
            (Some("metadata"), _) => {
                if let Some(call) = call() {
                    // A call that has ended is told of no more.
                    call.send(FromHost::Metadata(params.clone())).ok();
                }
            }
            (Some("client"), Some(id)) => {
                let words = |key: &str| params.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                let options = params.get("options").cloned().unwrap_or_default();
                let asked = ClientCall { file: words("file"), way: words("way"), options };
                // An answer may take long, and keeps no host alive.
                let (host, answer) = (Arc::downgrade(self), listener.clone().client(asked));
                base::task::spawn(async move {
                    let answer = answer.await;
                    if let Some(host) = host.upgrade() {
                        host.answer(id, answer).await;
                    }
                });
            }
            (Some("failed"), _) => listener.failed(&params),
            (Some("listens"), _) => listener.listens(),
            _ => {}
        }
    }

    /// Answers without holding up the reader.
    fn later(self: &Arc<Self>, id: u64, result: Value) {
        let host = self.clone();
        base::task::spawn(async move { host.answer(id, result).await });
    }
}

/// A call of a tool on its way. One that is dropped is aborted.
pub(super) struct HostCall {
    pub(super) host: Arc<PluginHost>,
    call: String,
    heard: mpsc::UnboundedReceiver<FromHost>,
    answer: Option<oneshot::Receiver<Result<Value, HostError>>>,
    done: bool,
}

/// What comes of a call.
#[derive(Debug)]
pub(super) enum CallNews {
    /// It asks or tells something on its way.
    Said(FromHost),
    /// The end of the call: nothing comes after it.
    Answered(Result<Value, HostError>),
}

impl HostCall {
    /// What comes next of it. May be dropped and asked for again, until it is answered.
    pub(super) async fn next(&mut self) -> CallNews {
        let Some(answer) = &mut self.answer else { return CallNews::Answered(Err(self.host.why_gone())) };
        let answer = tokio::select! {
            biased;
            Some(said) = self.heard.recv() => return CallNews::Said(said),
            answer = answer => answer,
        };
        self.done = true;
        CallNews::Answered(answer.unwrap_or_else(|_| Err(self.host.why_gone())))
    }
}

impl Drop for HostCall {
    fn drop(&mut self) {
        locked(&self.host.calls).remove(&self.call);
        if !self.done {
            let line = format!("{}\n", json!({ "method": "abort", "params": { "call": self.call } }));
            // One that reads nothing any more is ended when it is asked next.
            self.host.lines.try_send(line).ok();
        }
    }
}

/// Keeps the process until it ends, or nobody wants it any more.
async fn keep(
    mut child: Child,
    mut coming: mpsc::Receiver<String>,
    host: std::sync::Weak<PluginHost>,
    gone: CancellationToken,
    stop: CancellationToken,
    listener: Arc<dyn Listener>,
) {
    let (stdin, stdout, stderr) = child.streams();
    let printed = Mutex::new(String::new());
    let write = async {
        let Some(mut stdin) = stdin else { return };
        while let Some(line) = coming.recv().await {
            if stdin.write_all(line.as_bytes()).await.is_err() {
                break;
            }
        }
        // What it does not read any more nobody has to write.
        std::future::pending::<()>().await;
    };
    let read = async {
        match stdout {
            Some(stdout) => read(stdout, &host, &listener, &printed).await,
            None => "it has no output".to_owned(),
        }
    };
    let (listen, write) = (listen(stderr, &printed), write);
    let mut why = {
        tokio::pin!(read, listen, write);
        let mut silent = false;
        loop {
            tokio::select! {
                why = &mut read => {
                    // What it wrote last may still be on its way; one that keeps the other end open is not waited for.
                    if !silent {
                        tokio::time::timeout(FAREWELL, &mut listen).await.ok();
                    }
                    break why;
                }
                () = stop.cancelled() => break "it was ended".to_owned(),
                () = &mut write => {}
                () = &mut listen, if !silent => silent = true,
            }
        }
    };
    child.kill(Duration::ZERO).await;
    let last = locked(&printed).lines().rfind(|line| !line.trim().is_empty()).map(text::title);
    if let Some(last) = last.filter(|_| !stop.is_cancelled()) {
        why = format!("{why} (it wrote: {last})");
    }
    tracing::info!("the host of extensions has ended: {why}");
    if let Some(host) = host.upgrade() {
        host.over(why);
    }
    gone.cancel();
}

/// Reads lines until there are no more; gives why.
async fn read(
    stdout: impl AsyncRead + Unpin,
    host: &std::sync::Weak<PluginHost>,
    listener: &Arc<dyn Listener>,
    printed: &Mutex<String>,
) -> String {
    let mut stdout = BufReader::with_capacity(64 << 10, stdout);
    let (mut line, mut noise) = (Vec::new(), 0);
    loop {
        line.clear();
        let most = u64::try_from(LINE).unwrap_or(u64::MAX) + 1;
        match (&mut stdout).take(most).read_until(b'\n', &mut line).await {
            Ok(0) => return "it has closed its output".to_owned(),
            Err(e) => return e.to_string(),
            Ok(_) if line.len() > LINE => return format!("it wrote a line of more than {} MiB", LINE >> 20),
            Ok(_) => {}
        }
        let Some(host) = host.upgrade() else { return "nobody needs it any more".to_owned() };
        match serde_json::from_slice::<Value>(&line) {
            Ok(message @ Value::Object(_)) if message.get("method").and_then(Value::as_str) == Some("log") => {
                let words = message.pointer("/params/text").and_then(Value::as_str).unwrap_or_default();
                tracing::info!("extension: {}", text::title(words));
            }
            Ok(message @ Value::Object(_)) => host.heard(message, listener),
            _ => {
                noise += u64::try_from(line.len()).unwrap_or_default();
                note(printed, &line);
                if noise > PRINTED {
                    return format!("it printed more than {} MiB", PRINTED >> 20);
                }
            }
        }
        // A flood of lines is not the only thing that happens.
        tokio::task::yield_now().await;
    }
}

/// Keeps the end of what it prints.
async fn listen(stderr: Option<impl AsyncRead + Unpin>, printed: &Mutex<String>) {
    let mut buffer = vec![0; 8 << 10];
    if let Some(mut stderr) = stderr {
        while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
            note(printed, &buffer[..n]);
            tokio::task::yield_now().await;
        }
    }
}

fn note(printed: &Mutex<String>, bytes: &[u8]) {
    let said = String::from_utf8_lossy(bytes);
    tracing::debug!("an extension prints: {}", text::title(&said));
    let mut kept = locked(printed);
    kept.push_str(&said);
    let tail = text::tail(&kept, LAST_WORDS).to_owned();
    *kept = tail;
}
