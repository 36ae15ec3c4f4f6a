//! [`PluginHost`], the process that runs a session's JavaScript. It is started in the sandbox of the agent's
//! commands, exchanges JSON messages with adjutant over its pipes, one on each line, and ends with the
//! session. [`HostCall`] is a tool call in it; a [`HostListener`] gets its other requests and messages.
//!
//! All of its output is untrusted data. A line that is not a message is treated as printed text.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::runtime::{Runtime, runtimes};
use base::child_environment::GIT_UNTRUSTED;
use base::lock::lock;
use base::open_files::{PER_PROGRAM, SessionFiles};
use base::text;
use config::script::ScriptEntry;
use sandbox::process::{Child, Program, StdioMode};
use tools::{BoxFuture, Failure, ToolContext};

/// The source of the host.
const HOST: &str = include_str!("host.mjs");

/// The code on the command line of the runtime. It reads the source of the host from the first line
/// of its input, so that no file is needed and the list of processes stays readable.
const BOOT: &str = "import{createInterface as c}from\"node:readline\";const i=c({input:process.stdin})\
    [Symbol.asyncIterator](),s=JSON.parse((await i.next()).value);await(await import(\"data:text/javascript;base64,\"+s)).default(i)";

/// The maximum length of a line that the host writes, in bytes.
const MAX_LINE_BYTES: usize = 16 << 20;
/// The maximum size of all text that the host prints, in bytes.
const MAX_PRINTED_BYTES: u64 = 64 << 20;
/// The number of bytes of the end of the printed text that are stored, for error messages.
const MAX_TAIL_BYTES: usize = 2 << 10;
/// The maximum number of lines that wait to be written to the host.
const MAX_WAITING_LINES: usize = 64;

/// The origin of the scripts in a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptOrigin {
    /// The user's own files and packages.
    User,
    /// The files and packages of the project.
    Project,
}

impl ScriptOrigin {
    /// All origins, in the order in which their hooks run.
    pub(super) const ALL: [Self; 2] = [Self::User, Self::Project];

    /// Returns whether a script has this origin.
    pub(super) fn includes(self, script: &ScriptEntry) -> bool {
        script.project == (self == Self::Project)
    }
}

/// A message of the host during a call.
#[derive(Debug)]
pub(super) enum HostMessage {
    /// A tool requests a permission.
    RequestPermission { id: u64, params: Value },
    /// A tool reports progress.
    Metadata(Value),
}

/// The failure of a request to a host.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum HostError {
    /// The host reports an error.
    Reported {
        message: String,
        /// The JavaScript stack; empty if there is none.
        stack: String,
        /// The arguments of the call do not fit the tool's schema.
        has_invalid_arguments: bool,
    },
    /// The host has ended, for this reason.
    Ended(String),
    /// The host does not answer in time.
    TimedOut,
}

impl std::fmt::Display for HostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reported { message, .. } => f.write_str(message),
            Self::Ended(why) => write!(f, "the program that runs it has ended: {why}"),
            Self::TimedOut => f.write_str("it does not answer"),
        }
    }
}

/// The time to wait for the rest of standard error after the host has ended.
const STDERR_GRACE: Duration = Duration::from_millis(200);

/// A call that a plugin makes through OpenCode's client.
#[derive(Debug)]
pub(super) struct ClientCall {
    /// The file that makes the call, according to the host.
    pub(super) file: String,
    /// The method, such as `session.prompt`.
    pub(super) method: String,
    /// The arguments of the call.
    pub(super) options: Value,
}

/// The receiver of a host's requests and messages that belong to no tool call.
pub(super) trait HostListener: Send + Sync {
    /// Answers a call that a plugin makes through OpenCode's client.
    fn answer_client_call(self: Arc<Self>, client_call: ClientCall) -> BoxFuture<'static, Value>;
    /// Records that a plugin subscribes to events.
    fn record_subscription(&self);
    /// Reports an error that belongs to no call.
    fn report_error(&self, params: &Value);
}

/// The senders of answers, by the number of the request.
type PendingAnswers = HashMap<u64, oneshot::Sender<Result<Value, HostError>>>;

/// A process of Node or Bun, which runs the plugins and custom tools of a session.
pub(super) struct PluginHost {
    /// The lines for its standard input.
    lines: mpsc::Sender<String>,
    /// The number of the next request.
    next_id: AtomicU64,
    // Leaf locks around maps.
    pending: Mutex<PendingAnswers>,
    /// The receivers of messages during tool calls, by the id of the call.
    calls: Mutex<HashMap<String, mpsc::UnboundedSender<HostMessage>>>,
    /// The reason for its end, after it has ended.
    ended: Mutex<Option<String>>,
    /// Cancelled to end the process.
    stop: CancellationToken,
    /// Cancelled when the process and everything it started have ended.
    exited: CancellationToken,
}

impl Drop for PluginHost {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The time limit for the first answer of a runtime.
const GREETING_TIMEOUT: Duration = Duration::from_secs(20);

impl PluginHost {
    /// Starts a host in the first runtime that can run it. Returns it with the runtimes that cannot,
    /// each with the reason.
    ///
    /// # Errors
    /// Returns the reason why no runtime can run it, as the end of a sentence, or
    /// [`Failure::Cancelled`].
    pub(super) async fn start(
        context: &ToolContext,
        listener: Arc<dyn HostListener>,
    ) -> Result<(Arc<Self>, Vec<String>), Failure> {
        let mut failed = Vec::new();
        for runtime in runtimes(&context.project.environment) {
            let path = runtime.path.display().to_string();
            let host = match Self::start_in(runtime, context, listener.clone()).await {
                Ok(host) => host,
                Err(Failure::ForModel(why)) => {
                    failed.push(format!("{path}: {why}"));
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            match host.request("greet", json!({}), GREETING_TIMEOUT).await {
                Ok(_) => return Ok((host, failed)),
                Err(why) => failed.push(format!("{path}: {why}")),
            }
            host.end();
        }
        Err(Failure::ForModel(match failed.as_slice() {
            [] => "there is neither Bun nor Node (20.6 or newer) nor Deno on PATH".into(),
            failed => format!("nothing here can run them ({})", failed.join("; ")),
        }))
    }

    /// Starts a host in one runtime.
    ///
    /// # Errors
    /// Returns the reason why it cannot be started, as the end of a sentence, or
    /// [`Failure::Cancelled`].
    async fn start_in(
        Runtime { path, args }: Runtime,
        context: &ToolContext,
        listener: Arc<dyn HostListener>,
    ) -> Result<Arc<Self>, Failure> {
        let environment = &context.project.environment;
        let sandbox_choice = context.sandbox_choice.without_notices().writing();
        let sandbox = sandbox_choice.prepare(context).await?;
        let mut env = context
            .project
            .settings
            .variables
            .for_model_program(environment);
        if !context.sandbox_choice.trusted {
            env.extend(GIT_UNTRUSTED.map(|(name, value)| (name.into(), value.into())));
        }
        // Not in the project, because Bun would load what its configuration files there name before
        // our code runs.
        let program =
            Program::new(path, "/", env).args(args.iter().map(String::as_str).chain([BOOT]));
        let program = sandbox_choice.enter_shared(&sandbox, context, program)?;
        static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
        let work_name = format!("extensions-{}", NEXT_NUMBER.fetch_add(1, Ordering::Relaxed));
        let child = program.start(StdioMode::Separate, &work_name);
        let mut child =
            child.map_err(|e| Failure::ForModel(format!("it cannot be started: {e}")))?;
        child.outlast(SessionFiles::take_unconditionally(PER_PROGRAM));
        let (lines, queued_lines) = mpsc::channel(MAX_WAITING_LINES);
        let stop = CancellationToken::new();
        let exited = CancellationToken::new();
        let host = Arc::new(Self {
            lines,
            next_id: AtomicU64::new(1),
            pending: Mutex::default(),
            calls: Mutex::default(),
            ended: Mutex::default(),
            stop: stop.clone(),
            exited,
        });
        // The task ends when the last reference to the host is dropped.
        base::task::spawn(run_process(
            child,
            queued_lines,
            Arc::downgrade(&host),
            host.exited.clone(),
            stop,
            listener,
        ));
        let source = base64::engine::general_purpose::STANDARD.encode(HOST);
        host.write(&Value::String(source))
            .await
            .map_err(|e| Failure::ForModel(e.to_string()))?;
        Ok(host)
    }

    /// Returns whether the process has ended or is about to end.
    pub(super) fn has_ended(&self) -> bool {
        lock(&self.ended).is_some() || self.stop.is_cancelled()
    }

    /// Ends the process. Returns at once.
    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    /// Returns the token that is cancelled when the process has ended.
    pub(super) fn end_signal(&self) -> CancellationToken {
        self.exited.clone()
    }

    /// Waits until the process and everything it started have ended.
    pub(super) async fn wait_until_ended(&self) {
        self.exited.cancelled().await;
    }

    /// Sends a message.
    async fn write(&self, message: &Value) -> Result<(), HostError> {
        self.lines
            .send(format!("{message}\n"))
            .await
            .map_err(|_| self.end_error())
    }

    fn end_error(&self) -> HostError {
        HostError::Ended(
            lock(&self.ended)
                .clone()
                .unwrap_or_else(|| "it was ended".into()),
        )
    }

    /// Sends a notification, which has no answer.
    pub(super) async fn notify(&self, method: &str, params: Value) {
        // A host that has ended does not need it.
        self.write(&json!({ "method": method, "params": params }))
            .await
            .ok();
    }

    /// Answers a request of the host.
    pub(super) async fn answer(&self, id: u64, result: Value) {
        self.write(&json!({ "id": id, "result": result }))
            .await
            .ok();
    }

    /// Sends a request and waits for the answer. A host that does not answer within `limit` is ended,
    /// because its state is unknown.
    ///
    /// # Errors
    /// [`HostError`].
    pub(super) async fn request(
        &self,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Value, HostError> {
        let answer = self.send_request(method, params).await?;
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(self.end_error())),
            Err(_) => {
                self.end();
                Err(HostError::TimedOut)
            }
        }
    }

    /// Sends a request, and returns the receiver of its answer, which may take any time.
    pub(super) async fn send_request(
        &self,
        method: &str,
        params: Value,
    ) -> Result<oneshot::Receiver<Result<Value, HostError>>, HostError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        lock(&self.pending).insert(id, reply);
        if self.has_ended() {
            lock(&self.pending).remove(&id);
            return Err(self.end_error());
        }
        self.write(&json!({ "id": id, "method": method, "params": params }))
            .await?;
        Ok(answer)
    }

    /// Waits, up to a limit, until the events sent so far are handled. A host that takes longer is
    /// not ended.
    pub(super) async fn await_handled_events(&self, params: Value, limit: Duration) {
        // A host that has ended has nothing left to handle.
        if let Ok(answer) = self.send_request("settled", params).await {
            tokio::time::timeout(limit, answer).await.ok();
        }
    }

    /// Begins a tool call with the id `call`. [`HostCall::next_message`] returns its questions, its
    /// progress and its answer.
    pub(super) async fn call(
        self: &Arc<Self>,
        call: &str,
        params: Value,
    ) -> Result<HostCall, HostError> {
        let (sender, messages) = mpsc::unbounded_channel();
        lock(&self.calls).insert(call.to_owned(), sender);
        let mut call = HostCall {
            host: self.clone(),
            call: call.to_owned(),
            messages,
            answer: None,
            is_answered: false,
        };
        call.answer = Some(self.send_request("call", params).await?);
        Ok(call)
    }

    /// Ends everything that waits for the host, with the reason for its end.
    fn end_all_calls(&self, why: String) {
        lock(&self.ended).get_or_insert(why);
        let pending = std::mem::take(&mut *lock(&self.pending));
        for reply in pending.into_values() {
            // The receiver may be dropped.
            reply.send(Err(self.end_error())).ok();
        }
        lock(&self.calls).clear();
    }

    /// Handles one message of the host.
    fn handle_message(self: &Arc<Self>, message: Value, listener: &Arc<dyn HostListener>) {
        let id = message.get("id").and_then(Value::as_u64);
        let params = message.get("params").cloned().unwrap_or_default();
        let call = || {
            let call = params
                .get("call")
                .and_then(Value::as_str)
                .unwrap_or_default();
            lock(&self.calls).get(call).cloned()
        };
        match (message.get("method").and_then(Value::as_str), id) {
            (None, Some(id)) => {
                let Some(reply) = lock(&self.pending).remove(&id) else {
                    return;
                };
                let answer = match message.get("error") {
                    Some(error) => {
                        let text = |key: &str| {
                            error
                                .get(key)
                                .and_then(Value::as_str)
                                .unwrap_or_default()
                                .to_owned()
                        };
                        let has_invalid_arguments =
                            error.get("arguments").and_then(Value::as_bool) == Some(true);
                        Err(HostError::Reported {
                            message: text("message"),
                            stack: text("stack"),
                            has_invalid_arguments,
                        })
                    }
                    None => Ok(message.get("result").cloned().unwrap_or_default()),
                };
                reply.send(answer).ok();
            }
            (Some("ask"), Some(id)) => {
                let is_sent = call().is_some_and(|call| {
                    call.send(HostMessage::RequestPermission {
                        id,
                        params: params.clone(),
                    })
                    .is_ok()
                });
                if !is_sent {
                    self.answer_in_background(
                        id,
                        json!({ "allowed": false, "why": "the call has ended" }),
                    );
                }
            }
            (Some("metadata"), _) => {
                if let Some(call) = call() {
                    // The call may have ended.
                    call.send(HostMessage::Metadata(params.clone())).ok();
                }
            }
            (Some("client"), Some(id)) => {
                let text = |key: &str| {
                    params
                        .get(key)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_owned()
                };
                let options = params.get("options").cloned().unwrap_or_default();
                let client_call = ClientCall {
                    file: text("file"),
                    method: text("way"),
                    options,
                };
                // An answer may take long, and does not keep the host alive.
                let host = Arc::downgrade(self);
                let answer = listener.clone().answer_client_call(client_call);
                base::task::spawn(async move {
                    let answer = answer.await;
                    if let Some(host) = host.upgrade() {
                        host.answer(id, answer).await;
                    }
                });
            }
            (Some("failed"), _) => listener.report_error(&params),
            (Some("listens"), _) => listener.record_subscription(),
            _ => {}
        }
    }

    /// Answers a request without delaying the reader.
    fn answer_in_background(self: &Arc<Self>, id: u64, result: Value) {
        let host = self.clone();
        base::task::spawn(async move { host.answer(id, result).await });
    }
}

/// A tool call in progress. Dropping it aborts the call.
pub(super) struct HostCall {
    pub(super) host: Arc<PluginHost>,
    call: String,
    messages: mpsc::UnboundedReceiver<HostMessage>,
    answer: Option<oneshot::Receiver<Result<Value, HostError>>>,
    is_answered: bool,
}

/// A message about a tool call.
#[derive(Debug)]
pub(super) enum CallMessage {
    /// A question or progress.
    FromHost(HostMessage),
    /// The answer of the call. No message follows it.
    Answered(Result<Value, HostError>),
}

impl HostCall {
    /// Waits for the next message. Cancel-safe until the call is answered.
    pub(super) async fn next_message(&mut self) -> CallMessage {
        let Some(answer) = &mut self.answer else {
            return CallMessage::Answered(Err(self.host.end_error()));
        };
        let answer = tokio::select! {
            biased;
            Some(message) = self.messages.recv() => return CallMessage::FromHost(message),
            answer = answer => answer,
        };
        self.is_answered = true;
        CallMessage::Answered(answer.unwrap_or_else(|_| Err(self.host.end_error())))
    }
}

impl Drop for HostCall {
    fn drop(&mut self) {
        lock(&self.host.calls).remove(&self.call);
        if !self.is_answered {
            let line = format!(
                "{}\n",
                json!({ "method": "abort", "params": { "call": self.call } })
            );
            // A host that no longer reads is ended at its next request.
            self.host.lines.try_send(line).ok();
        }
    }
}

/// Exchanges messages with the process until it ends or is stopped, and then ends it with everything
/// that it has started.
async fn run_process(
    mut child: Child,
    mut queued_lines: mpsc::Receiver<String>,
    host: std::sync::Weak<PluginHost>,
    exited: CancellationToken,
    stop: CancellationToken,
    listener: Arc<dyn HostListener>,
) {
    let (stdin, stdout, stderr) = child.streams();
    let printed = Mutex::new(String::new());
    let write = async {
        let Some(mut stdin) = stdin else { return };
        while let Some(line) = queued_lines.recv().await {
            if stdin.write_all(line.as_bytes()).await.is_err() {
                break;
            }
        }
        // Input that the process no longer reads is discarded.
        std::future::pending::<()>().await;
    };
    let read = async {
        match stdout {
            Some(stdout) => read_messages(stdout, &host, &listener, &printed).await,
            None => "it has no output".to_owned(),
        }
    };
    let collect = collect_stderr(stderr, &printed);
    let mut why = {
        tokio::pin!(read, collect, write);
        let mut is_stderr_closed = false;
        loop {
            tokio::select! {
                why = &mut read => {
                    // Its last output may still be on its way. A process that keeps the pipe open
                    // is not waited for.
                    if !is_stderr_closed {
                        tokio::time::timeout(STDERR_GRACE, &mut collect).await.ok();
                    }
                    break why;
                }
                () = stop.cancelled() => break "it was ended".to_owned(),
                () = &mut write => {}
                () = &mut collect, if !is_stderr_closed => is_stderr_closed = true,
            }
        }
    };
    child.kill(Duration::ZERO).await;
    let last = lock(&printed)
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .map(text::title);
    if let Some(last) = last
        && !stop.is_cancelled()
    {
        why = format!("{why} (it wrote: {last})");
    }
    tracing::info!("the host of extensions has ended: {why}");
    if let Some(host) = host.upgrade() {
        host.end_all_calls(why);
    }
    exited.cancel();
}

/// Reads and handles messages until the output ends. Returns the reason for the end.
async fn read_messages(
    stdout: impl AsyncRead + Unpin,
    host: &std::sync::Weak<PluginHost>,
    listener: &Arc<dyn HostListener>,
    printed: &Mutex<String>,
) -> String {
    let mut stdout = BufReader::with_capacity(64 << 10, stdout);
    let mut line = Vec::new();
    let mut printed_bytes = 0;
    loop {
        line.clear();
        let limit = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX) + 1;
        match (&mut stdout).take(limit).read_until(b'\n', &mut line).await {
            Ok(0) => return "it has closed its output".to_owned(),
            Err(e) => return e.to_string(),
            Ok(_) if line.len() > MAX_LINE_BYTES => {
                return format!("it wrote a line of more than {} MiB", MAX_LINE_BYTES >> 20);
            }
            Ok(_) => {}
        }
        let Some(host) = host.upgrade() else {
            return "it is no longer needed".to_owned();
        };
        match serde_json::from_slice::<Value>(&line) {
            Ok(message @ Value::Object(_))
                if message.get("method").and_then(Value::as_str) == Some("log") =>
            {
                let logged = message
                    .pointer("/params/text")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                tracing::info!("extension: {}", text::title(logged));
            }
            Ok(message @ Value::Object(_)) => host.handle_message(message, listener),
            _ => {
                printed_bytes += u64::try_from(line.len()).unwrap_or_default();
                append_to_tail(printed, &line);
                if printed_bytes > MAX_PRINTED_BYTES {
                    return format!("it printed more than {} MiB", MAX_PRINTED_BYTES >> 20);
                }
            }
        }
        // A flood of lines must not starve other tasks.
        tokio::task::yield_now().await;
    }
}

/// Adds standard error to the end of the printed text.
async fn collect_stderr(stderr: Option<impl AsyncRead + Unpin>, printed: &Mutex<String>) {
    let mut buffer = vec![0; 8 << 10];
    if let Some(mut stderr) = stderr {
        while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
            append_to_tail(printed, &buffer[..n]);
            tokio::task::yield_now().await;
        }
    }
}

/// Adds text to the end of the printed text, and drops the beginning of it beyond the limit.
fn append_to_tail(printed: &Mutex<String>, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    tracing::debug!("an extension prints: {}", text::title(&text));
    let mut printed = lock(printed);
    printed.push_str(&text);
    let tail = text::tail(&printed, MAX_TAIL_BYTES).to_owned();
    *printed = tail;
}
