//! The MCP servers of one session: programs that bring tools of their own. They start beside the
//! conversation and never hold it up; one that does not work is told to the user and to the model. They
//! end with the session. What a server says about its tools is taken for words, never for a promise.

mod tool;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams};
use rmcp::service::{ClientInitializeError, NotificationContext, Peer, RoleClient};
use rmcp::{ClientHandler, ServiceExt};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::config::settings::{McpEntry, Transport};
use crate::environment::Environment;
use crate::event::{Event, Outlet, Severity};
use crate::permission::Rules;
use crate::process::{Program, StdioMode, Variables};
use crate::text;
use crate::tool::AnyTool;

/// How long a turn waits for servers that are only starting. What comes later is there at the next step.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a server may take to end when it is asked to.
const GRACE: Duration = Duration::from_millis(500);
/// How long a server that broke off may go on complaining.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Tools of one server; more are left out.
const TOOLS: usize = 256;
/// Pages in which a server may list them, and what it may say of them all in bytes.
const PAGES: usize = 64;
const LISTED: usize = 4 << 20;
/// What is kept of what a server writes to its standard error.
const COMPLAINT: usize = 2 << 10;

/// The servers of a session and of its subagents.
pub struct McpServers {
    cwd: PathBuf,
    environment: Environment,
    variables: Variables,
    /// How long a call may take without a word.
    call_limit: Duration,
    /// What the editor gave this session.
    given: Vec<McpEntry>,
    // A leaf lock around a list.
    list: Mutex<Vec<ServerConnection>>,
}

struct ServerConnection {
    settings: McpEntry,
    state: watch::Receiver<ServerState>,
    /// What became of it has been told.
    told: bool,
    /// A turn has waited for it.
    awaited: bool,
    stop: CancellationToken,
    work: Option<JoinHandle<()>>,
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[derive(Clone)]
enum ServerState {
    Starting,
    ReadyServer(Arc<ReadyServer>),
    /// Why, and whether it worked before.
    Failed(String, bool),
}

struct ReadyServer {
    peer: Peer<RoleClient>,
    tools: Vec<Arc<dyn AnyTool>>,
    instructions: Option<String>,
    /// It has more tools than are offered.
    cut: bool,
}

impl McpServers {
    /// For a session in this directory that was `given` these by the editor. Starts nothing yet.
    pub fn new(cwd: &Path, environment: &Environment, settings: &Settings, given: Vec<McpEntry>) -> Self {
        let (cwd, environment) = (cwd.to_owned(), environment.clone());
        let (variables, call_limit) = (settings.variables.clone(), settings.experimental.mcp_timeout);
        Self { cwd, environment, variables, call_limit, given, list: Mutex::default() }
    }

    fn list(&self) -> MutexGuard<'_, Vec<ServerConnection>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts what is wanted and not there, ends what is there and not wanted. What worked and broke off
    /// is started again: the call it broke off at has said so.
    pub fn reconcile(&self, configured: &[McpEntry]) {
        let own = |server: &&McpEntry| !self.given.iter().any(|given| given.name == server.name);
        let wanted: Vec<&McpEntry> =
            self.given.iter().chain(configured.iter().filter(own)).filter(|server| server.enabled).collect();
        let mut list = self.list();
        list.retain(|server| {
            let again = match &*server.state.borrow() {
                ServerState::Starting => false,
                ServerState::ReadyServer(ready) => ready.peer.is_transport_closed(),
                ServerState::Failed(_, worked) => *worked,
            };
            !again && wanted.contains(&&server.settings)
        });
        for settings in wanted {
            if !list.iter().any(|server| server.settings == *settings) {
                list.push(self.start(settings));
            }
        }
    }

    fn start(&self, settings: &McpEntry) -> ServerConnection {
        let (told, state) = watch::channel(ServerState::Starting);
        let stop = CancellationToken::new();
        let work = match &settings.transport {
            Transport::Local { command, cwd, environment } => {
                let dir = cwd.as_ref().map_or_else(|| self.cwd.clone(), |dir| self.cwd.join(dir));
                let own = environment.iter().map(|(name, value)| (name.into(), value.into()));
                let env = self.variables.given(&self.environment).into_iter().chain(own).collect();
                let (path, args) = command.split_first().map(|(path, args)| (path.clone(), args)).unwrap_or_default();
                let program = Program::new(path, dir, env).args(args.iter().cloned());
                let connection = Connection {
                    name: settings.name.clone(),
                    limit: settings.timeout,
                    call_limit: self.call_limit,
                    state: told,
                };
                Some(tokio::spawn(serve(program, connection, stop.clone())))
            }
            Transport::Remote { .. } => {
                told.send_replace(ServerState::Failed("servers at an address are not supported yet".into(), false));
                None
            }
        };
        ServerConnection { settings: settings.clone(), state, told: false, awaited: false, stop, work }
    }

    /// Makes ready for a turn: starts what is new, waits a moment for it, and tells the user what does not
    /// work.
    pub async fn greet(&self, configured: &[McpEntry], outlet: &Outlet, cancelled: &CancellationToken) {
        self.reconcile(configured);
        tokio::select! {
            () = self.settled() => {}
            () = cancelled.cancelled() => {}
        }
        for notice in self.news() {
            outlet.event(notice).await;
        }
    }

    /// Waits for those that are starting, once for each and not for long.
    async fn settled(&self) {
        let starting: Vec<_> = {
            let mut list = self.list();
            list.iter_mut()
                .filter_map(|server| (!std::mem::replace(&mut server.awaited, true)).then(|| server.state.clone()))
                .collect()
        };
        let all = async {
            for mut state in starting {
                state.wait_for(|state| !matches!(state, ServerState::Starting)).await.ok();
            }
        };
        tokio::time::timeout(PATIENCE, all).await.ok();
    }

    /// What the user has not been told: which servers do not work. One that is late is there at a later step.
    fn news(&self) -> Vec<Event> {
        let mut list = self.list();
        let mut news = Vec::new();
        for server in list.iter_mut().filter(|server| !server.told) {
            let name = text::title(&server.settings.name);
            let source = &server.settings.source;
            let (title, details) = match &*server.state.borrow() {
                ServerState::Starting => continue,
                ServerState::ReadyServer(ready) if ready.cut => (
                    format!(
                        "The MCP server {name} lists more tools than are taken: {} are offered, the rest is left out.",
                        ready.tools.len()
                    ),
                    None,
                ),
                ServerState::ReadyServer(_) => {
                    server.told = true;
                    continue;
                }
                ServerState::Failed(why, _) => {
                    let short = text::title(why);
                    let rest = if short == *why { String::new() } else { format!(" {why}") };
                    let title = format!("The MCP server {name} does not work: {short}");
                    (title, Some(format!("Configured in {source}.{rest}")))
                }
            };
            server.told = true;
            news.push(Event::Notice { severity: Severity::Warning, title, details });
        }
        news
    }

    /// The tools of those that are ready, as far as these rules do not hide them.
    pub fn tools(&self, rules: &Rules) -> Vec<Arc<dyn AnyTool>> {
        let list = self.list();
        let mut tools: Vec<Arc<dyn AnyTool>> = Vec::new();
        for server in list.iter() {
            let ServerState::ReadyServer(ready) = &*server.state.borrow() else { continue };
            for tool in ready.tools.iter().filter(|tool| !rules.hides(tool.permission())) {
                // Two servers may come to the same name: the first keeps it.
                if !tools.iter().any(|other| other.name() == tool.name()) {
                    tools.push(tool.clone());
                }
            }
        }
        tools
    }

    /// What the model is to know of each server: how it wants to be used, or that it is not there.
    pub fn words(&self, offered: &[&str]) -> Vec<(String, String)> {
        let list = self.list();
        let word = |server: &ServerConnection| {
            let name = server.settings.name.clone();
            match &*server.state.borrow() {
                ServerState::Starting => None,
                ServerState::ReadyServer(ready) => {
                    let offers = ready.tools.iter().any(|tool| offered.contains(&tool.name()));
                    Some((name, ready.instructions.clone().filter(|_| offers)?))
                }
                ServerState::Failed(why, _) => {
                    let why = text::title(why);
                    Some((name, crate::prompts::reminder("server-failed").replace("{why}", &why)))
                }
            }
        };
        list.iter().filter_map(word).collect()
    }

    /// Ends all of them.
    pub async fn end(&self) {
        let mut all = std::mem::take(&mut *self.list());
        for server in &all {
            server.stop.cancel();
        }
        for work in all.iter_mut().filter_map(|server| server.work.take()) {
            work.await.ok();
        }
    }
}

/// What is needed to talk to a server, and where is told how that goes.
struct Connection {
    name: String,
    limit: Duration,
    call_limit: Duration,
    state: watch::Sender<ServerState>,
}

/// Runs one server from its start to its end.
async fn serve(program: Program, connection: Connection, stop: CancellationToken) {
    /// Whatever a server starts is found by the name of its work, so each has one of its own.
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let name = connection.name.clone();
    let work = format!("mcp-{}", STARTED.fetch_add(1, Ordering::Relaxed));
    let mut child = match program.start(StdioMode::Separate, &work) {
        Ok(child) => child,
        Err(e) => {
            connection.state.send_replace(ServerState::Failed(format!("it cannot be started: {e}"), false));
            return;
        }
    };
    let (stdin, stdout, stderr) = child.streams();
    let complaint = Mutex::new(String::new());
    let why = {
        let talk = async {
            match (stdin, stdout) {
                (Some(stdin), Some(stdout)) => talk(&connection, stdin, stdout).await,
                _ => "it has no pipes".into(),
            }
        };
        let listen = listen(&name, stderr, &complaint);
        tokio::pin!(talk, listen);
        let mut silent = false;
        let why = loop {
            tokio::select! {
                why = &mut talk => break Some(why),
                () = stop.cancelled() => break None,
                () = &mut listen, if !silent => silent = true,
            }
        };
        if why.is_some() && !silent {
            // Why it ended it may have said a moment ago.
            tokio::time::timeout(LAST_WORDS, listen).await.ok();
        }
        why
    };
    child.kill(GRACE).await;
    let Some(why) = why else { return };
    let worked = matches!(&*connection.state.borrow(), ServerState::ReadyServer(_));
    let complaint = complaint.into_inner().unwrap_or_else(PoisonError::into_inner);
    let last = complaint.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let why = if last.is_empty() { why } else { format!("{why} (it wrote: {})", text::title(last)) };
    tracing::warn!("MCP server {name}: {why}");
    connection.state.send_replace(ServerState::Failed(why, worked));
}

/// Keeps the end of what a server complains about, until it is silent for ever.
async fn listen(name: &str, stderr: Option<impl AsyncRead + Unpin>, complaint: &Mutex<String>) {
    let mut buffer = vec![0; 4 << 10];
    if let Some(mut stderr) = stderr {
        while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
            let said = String::from_utf8_lossy(&buffer[..n]);
            tracing::debug!("MCP server {name} writes: {}", text::title(&said));
            let mut kept = complaint.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_str(&said);
            let tail = text::tail(&kept, COMPLAINT).to_owned();
            *kept = tail;
        }
    }
}

/// Greets a server, lists its tools again whenever they change, and says why it is over.
async fn talk(connection: &Connection, stdin: ChildStdin, stdout: ChildStdout) -> String {
    let changed = Arc::new(Notify::new());
    let us = McpClient { changed: changed.clone() };
    let late = |what: &str| format!("it did not {what} within {} s", connection.limit.as_secs_f64());
    let running = match tokio::time::timeout(connection.limit, us.serve((stdout, stdin))).await {
        Ok(Ok(running)) => running,
        Ok(Err(ClientInitializeError::TransportError { .. } | ClientInitializeError::ConnectionClosed(_))) => {
            return "it ended before it had answered".into();
        }
        Ok(Err(e)) => return format!("it does not speak MCP: {e}"),
        Err(_) => return late("answer"),
    };
    let peer = running.peer().clone();
    let said = peer.peer_info().and_then(|info| info.instructions.clone());
    let instructions = said.map(|said| text::cut_chars(&said, tool::WORDS));
    let over = running.waiting();
    tokio::pin!(over);
    loop {
        let listed = tokio::select! {
            listed = tokio::time::timeout(connection.limit, list(&peer)) => listed,
            _ = &mut over => return "it has closed the connection".into(),
        };
        let (tools, cut) = match listed {
            Ok(Ok(listed)) => listed,
            Ok(Err(e)) => return format!("its tools cannot be listed: {e}"),
            Err(_) => return late("list its tools"),
        };
        let offer = |tool| tool::of(&connection.name, tool, &peer, connection.call_limit);
        let tools = tools.into_iter().map(offer).collect();
        let ready = ReadyServer { peer: peer.clone(), tools, instructions: instructions.clone(), cut };
        connection.state.send_replace(ServerState::ReadyServer(Arc::new(ready)));
        tokio::select! {
            () = changed.notified() => {}
            _ = &mut over => return "it has closed the connection".into(),
        }
    }
}

/// The tools of a server, and whether it has more than are taken. A list without end is not read to it.
async fn list(peer: &Peer<RoleClient>) -> Result<(Vec<rmcp::model::Tool>, bool), rmcp::ServiceError> {
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

/// Our side of a connection.
struct McpClient {
    changed: Arc<Notify>,
}

impl ClientHandler for McpClient {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("adjutant", env!("CARGO_PKG_VERSION")))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}
