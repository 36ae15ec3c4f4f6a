//! The MCP servers of a session: programs and remote services that offer tools, prompts and
//! resources. [`McpServers`] holds them. It starts them concurrently with the session, never delays
//! the session, and ends them with it. For each server, a task in `supervisor` starts it, serves its
//! connection and starts it again after a failure; the rest of the crate uses the server through its
//! `McpConnection`. A failed server is reported to the user and the model. The hints of a server
//! about its tools are shown, but never relied on for permissions.

mod answer;
mod asker;
mod catalog;
mod catalog_cache;
mod change_counter;
mod client;
mod connection;
mod connection_loop;
mod content;
pub mod credential_store;
pub mod editor;
mod failure;
mod input_requests;
pub mod inventory;
mod lists;
pub mod login;
mod login_prompt;
pub mod notices;
mod offer;
mod paced;
mod prompt;
mod reading;
mod remote;
mod request;
pub mod resource;
mod sample;
pub mod search;
mod sse;
mod supervisor;
mod tool;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::catalog::ServerOffer;
use self::catalog_cache::CatalogCache;
use self::connection::{FAILURE_PAUSE, FailureKind, McpConnection, ServerState, SessionFacts};
use self::credential_store::StoredLogin;
use self::editor::{EditorChannel, EditorServer, EditorSlot};
use self::login_prompt::LoginPrompt;
use self::notices::{AnnouncedState, ServerNotices};
use self::offer::TurnOffer;
use self::supervisor::ServerAccess;
use base::child_environment::Variables;
use base::environment::Environment;
use base::lock::lock;
use base::open_files::{PER_PROGRAM, SessionFiles};
use base::task::JoinHandle;
use base::text;
use config::Settings;
use config::settings::{McpEntry, Transport};
use events::{Event, EventSender};
use permission::Rules;
use providers::http::HttpClient;
use sandbox::process::Program;
use tools::AnyTool;

/// The names of adjutant's own tools for servers, which change nothing.
pub const READ_ONLY_TOOLS: &[&str] = &[
    "list_mcp_resource_templates",
    "list_mcp_resources",
    "read_mcp_resource",
    search::SEARCH,
];

/// The total size of all servers' instructions in the system prompt, in bytes.
const MAX_INSTRUCTIONS_BYTES: usize = 60_000;

/// The time that a turn waits for servers that are starting and have no known list. Later ones are
/// available from the next step on.
const WAIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The servers of a session and of its subagents. Before each turn, the session calls
/// [`McpServers::prepare_turn`], and before each step [`McpServers::refresh`].
pub struct McpServers {
    cwd: PathBuf,
    facts: Arc<SessionFacts>,
    /// True if the client can show URLs to visit.
    can_show_urls: bool,
    /// Incremented when the state or the lists of any server change.
    change_count: watch::Sender<u64>,
    environment: Environment,
    variables: Variables,
    client: Arc<HttpClient>,
    /// The time limit of a call without progress.
    call_timeout: Duration,
    /// The servers that the client gave this session.
    client_servers: Vec<McpEntry>,
    /// The connection to the servers that live in the editor.
    editor: EditorSlot,
    /// The directory that stores the catalogue of each server for its next start; `None` if nothing
    /// is stored.
    catalog_dir: Option<PathBuf>,
    /// The tasks that write into that directory.
    cache_writers: TaskTracker,
    // A leaf lock.
    servers: Mutex<Vec<SessionServer>>,
}

/// The properties of a session that decide about its servers, in addition to the settings.
#[derive(Debug, Clone, Default)]
pub struct McpSessionOptions {
    /// The servers that the client gave it.
    pub client_servers: Vec<McpEntry>,
    /// True if there is a user who can be asked.
    pub is_attended: bool,
    /// True if the client can show URLs to visit.
    pub can_show_urls: bool,
    /// The directory that stores the catalogue of each server for its next start; `None` if nothing
    /// is stored.
    pub catalog_dir: Option<PathBuf>,
}

/// Returns the directory that stores the catalogues of servers: that of the account, or that of
/// `user` if the process serves several users.
pub fn catalog_dir(environment: &Environment, user: Option<&str>) -> PathBuf {
    let data = &environment.dirs.data;
    user.map_or_else(|| data.clone(), |user| data.join("users").join(user))
        .join("mcp-lists")
}

/// A server of the session, with the state that the session has of it.
struct SessionServer {
    settings: McpEntry,
    connection: Arc<McpConnection>,
    /// The offer of the turn; `None` before the first turn.
    turn_offer: Option<TurnOffer>,
    /// The offer of the latest step; `None` before the first one.
    last_offer: Option<Arc<ServerOffer>>,
    /// The state that the user was last notified of; `None` before the first notice.
    announced_state: Option<AnnouncedState>,
    /// The tools that the user was notified about because their names are taken.
    name_conflicts: Vec<String>,
    /// True if a login was offered as a link.
    is_login_offered: Arc<AtomicBool>,
    /// True if a turn has waited for its start. Reset when it starts again.
    was_awaited: bool,
    /// Cancelled to end the server.
    stop: CancellationToken,
    /// The task that supervises the server; `None` after the end.
    task: Option<JoinHandle<()>>,
}

impl Drop for SessionServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl McpServers {
    /// Creates the servers of a session with the working directory `cwd` and further directories.
    /// Starts nothing yet.
    pub fn new(
        (cwd, extra): (&Path, &[PathBuf]),
        environment: &Environment,
        settings: &Settings,
        client: Arc<HttpClient>,
        session: McpSessionOptions,
    ) -> Self {
        let roots = std::iter::once(cwd)
            .chain(extra.iter().map(PathBuf::as_path))
            .map(Path::to_owned)
            .collect();
        let cwd = cwd.to_owned();
        let environment = environment.clone();
        let variables = settings.variables.clone();
        let call_timeout = settings.experimental.mcp_timeout();
        let McpSessionOptions {
            client_servers,
            is_attended,
            can_show_urls,
            catalog_dir,
        } = session;
        Self {
            cwd,
            facts: Arc::new(SessionFacts { roots, is_attended }),
            can_show_urls,
            change_count: watch::Sender::new(0),
            environment,
            variables,
            client,
            call_timeout,
            client_servers,
            editor: EditorSlot::new(None),
            catalog_dir,
            cache_writers: TaskTracker::new(),
            servers: Mutex::default(),
        }
    }

    /// Sets the connection to the editor, which carries the messages of the servers in the editor.
    /// Servers that use an earlier connection lose it, and failed ones start again.
    pub fn attach(&self, editor: Arc<dyn EditorChannel>) {
        self.editor.send_replace(Some(editor));
        for server in self.lock_servers().iter_mut() {
            let lives_in_editor = matches!(server.settings.transport, Transport::Editor { .. });
            if lives_in_editor && matches!(server.connection.state(), ServerState::Failed(_)) {
                server.connection.restart();
                server.was_awaited = false;
            }
        }
    }

    /// Returns a receiver of changes: a server has become ready, or its lists have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.change_count.subscribe()
    }

    fn connections(&self) -> Vec<Arc<McpConnection>> {
        self.lock_servers()
            .iter()
            .map(|server| server.connection.clone())
            .collect()
    }

    /// Returns the servers that are ready, or starting with a stored catalogue, with their offers.
    fn offers(&self) -> Vec<(Arc<McpConnection>, Arc<ServerOffer>)> {
        self.connections()
            .into_iter()
            .filter_map(|connection| connection.offer().map(|offer| (connection, offer)))
            .collect()
    }

    /// Returns the servers of this turn, with their offers as of its beginning.
    fn turn_offers(&self) -> Vec<(Arc<McpConnection>, Arc<ServerOffer>)> {
        self.lock_servers()
            .iter()
            .filter_map(|server| Some((server.connection.clone(), server.offer()?)))
            .collect()
    }

    fn lock_servers(&self) -> MutexGuard<'_, Vec<SessionServer>> {
        lock(&self.servers)
    }

    /// Starts the enabled servers that are not running, ends those that are no longer configured, and
    /// retries those that broke off or were paused. A server of the client takes precedence over a
    /// configured one of the same name.
    pub fn reconcile(&self, configured: &[McpEntry]) {
        let is_free_name = |server: &&McpEntry| {
            !self
                .client_servers
                .iter()
                .any(|other| other.name == server.name)
        };
        let wanted: Vec<&McpEntry> = self
            .client_servers
            .iter()
            .chain(configured.iter().filter(is_free_name))
            .filter(|server| server.enabled)
            .collect();
        let mut list = self.lock_servers();
        list.retain(|server| wanted.contains(&&server.settings));
        for server in list.iter_mut() {
            if server.needs_restart() {
                server.connection.restart();
                server.was_awaited = false;
            }
        }
        for settings in wanted {
            if !list.iter().any(|server| server.settings == *settings) {
                list.push(self.start(settings));
            }
        }
    }

    fn start(&self, settings: &McpEntry) -> SessionServer {
        let call_timeout = settings.call_timeout.unwrap_or(self.call_timeout);
        let login = match &settings.transport {
            // An `Authorization` header in the settings replaces a login.
            Transport::Remote {
                url,
                headers,
                oauth: Some(_),
                ..
            } if !headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case("authorization")) =>
            {
                let is_of_client = self
                    .client_servers
                    .iter()
                    .any(|server| server.name == settings.name);
                let source = if is_of_client {
                    format!(" --url {url}")
                } else {
                    String::new()
                };
                let command = format!("adjutant mcp login {}{source}", settings.name);
                Some((
                    StoredLogin::new(&settings.name, url, &self.environment),
                    command,
                ))
            }
            _ => None,
        };
        let catalog_cache =
            self.catalog_cache(settings, login.as_ref().map(|(stored, _)| stored.clone()));
        let facts = self.facts.clone();
        let change_count = self.change_count.clone();
        let connection = McpConnection::new(
            settings,
            call_timeout,
            login.clone(),
            catalog_cache,
            facts,
            change_count,
        );
        let stop = CancellationToken::new();
        let access = match &settings.transport {
            Transport::Local {
                command,
                cwd,
                environment,
            } => {
                let dir = cwd
                    .as_ref()
                    .map_or_else(|| self.cwd.clone(), |dir| self.cwd.join(dir));
                let own = environment
                    .iter()
                    .map(|(name, value)| (name.into(), value.into()));
                let env = self
                    .variables
                    .for_chosen_program(&self.environment)
                    .into_iter()
                    .chain(own)
                    .collect();
                let (path, args) = command
                    .split_first()
                    .map(|(path, args)| (path.clone(), args))
                    .unwrap_or_default();
                ServerAccess::Program(Program::new(path, dir, env).args(args.iter().cloned()))
            }
            Transport::Remote {
                url, headers, sse, ..
            } => ServerAccess::Address(Box::new(remote::RemoteServer {
                url: url.clone(),
                headers: headers.clone(),
                sse: *sse,
                client: self.client.clone(),
                login_command: login
                    .as_ref()
                    .map(|(_, command)| command.clone())
                    .unwrap_or_default(),
                stored: login.map(|(stored, _)| stored),
            })),
            Transport::Editor { id } => ServerAccess::Editor(EditorServer {
                id: id.as_str().into(),
                slot: self.editor.subscribe(),
            }),
        };
        let task = base::task::spawn(supervisor::supervise(
            connection.clone(),
            access,
            stop.clone(),
        ));
        SessionServer {
            settings: settings.clone(),
            connection,
            turn_offer: None,
            last_offer: None,
            announced_state: None,
            name_conflicts: Vec::new(),
            is_login_offered: Arc::default(),
            was_awaited: false,
            stop,
            task: Some(task),
        }
    }

    fn catalog_cache(
        &self,
        settings: &McpEntry,
        login: Option<StoredLogin>,
    ) -> Option<Arc<CatalogCache>> {
        // An editor may give each session another id, and its server answers at once.
        if matches!(settings.transport, Transport::Editor { .. }) {
            return None;
        }
        Some(Arc::new(CatalogCache {
            directory: self.catalog_dir.clone()?,
            entry: settings.clone(),
            cwd: self.cwd.clone(),
            is_attended: self.facts.is_attended,
            login,
            environment: self.environment.clone(),
            tasks: self.cache_writers.clone(),
            unwritten: Mutex::default(),
            writing: Mutex::default(),
        }))
    }

    /// Prepares a turn: starts new servers, and waits briefly for the ones without a known list.
    /// Returns the notices about changes and failures. The offer then stays the same until the turn
    /// ends.
    pub async fn prepare_turn(
        &self,
        configured: &[McpEntry],
        cancelled: &CancellationToken,
    ) -> ServerNotices {
        self.reconcile(configured);
        tokio::select! {
            () = self.await_started_servers() => {}
            () = cancelled.cancelled() => {}
        }
        self.await_listings(|_| true, cancelled).await;
        let changes = self.begin_turn();
        let mut notices = self.new_notices();
        notices.events.splice(..0, changes);
        notices
    }

    /// Offers the missing logins as links, if the client can show them.
    pub fn offer_logins(&self, event_sender: &EventSender) {
        if !self.can_show_urls {
            return;
        }
        for server in self.lock_servers().iter() {
            let (
                Transport::Remote {
                    url,
                    oauth: Some(oauth),
                    ..
                },
                Some((stored, _)),
            ) = (&server.settings.transport, &server.connection.login)
            else {
                continue;
            };
            if matches!(server.connection.state(), ServerState::Failed(failure) if failure.kind == FailureKind::Login)
            {
                let login_prompt = LoginPrompt {
                    name: server.settings.name.clone(),
                    url: url.clone(),
                    oauth: oauth.clone(),
                    stored: stored.clone(),
                    client: self.client.clone(),
                    is_offered: server.is_login_offered.clone(),
                    stop: server.stop.clone(),
                };
                login_prompt.send(event_sender);
            }
        }
    }

    /// Determines the offers for the turn that begins. Returns notices about their changes.
    fn begin_turn(&self) -> Vec<Event> {
        let mut changes = Vec::new();
        for server in self.lock_servers().iter_mut() {
            server.connection.begin_turn();
            let turn = TurnOffer::at_turn_start(&server.connection);
            if let Some(offer) = turn.offer() {
                let before = server
                    .last_offer
                    .replace(offer.clone())
                    .or_else(|| server.connection.stored_offer());
                let before = before.filter(|before| !Arc::ptr_eq(before, offer));
                changes.extend(
                    before
                        .and_then(|before| offer.describe_changes(&server.settings.name, &before)),
                );
            }
            server.turn_offer = Some(turn);
        }
        changes
    }

    /// Waits, up to a limit, until the lists of the selected servers include all changes that the
    /// servers have reported.
    async fn await_listings(
        &self,
        wanted: impl Fn(&McpConnection) -> bool,
        cancelled: &CancellationToken,
    ) {
        let outdated: Vec<_> = self
            .connections()
            .into_iter()
            .filter(|connection| connection.is_outdated() && wanted(connection))
            .collect();
        if outdated.is_empty() {
            return;
        }
        let all = async {
            for connection in &outdated {
                connection.await_listing().await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(WAIT_TIMEOUT, all) => {}
            () = cancelled.cancelled() => {}
        }
    }

    /// Prepares a step: waits for changes that a call of this turn has caused, adds servers that
    /// have become ready or received a login since the turn began, and reports failures. Does
    /// nothing if nothing has happened.
    pub async fn refresh(&self, event_sender: &EventSender, cancelled: &CancellationToken) {
        let mut logged_in = false;
        for server in self.lock_servers().iter_mut() {
            if let ServerState::Failed(failure) = server.connection.state()
                && failure.kind == FailureKind::Login
                && server.connection.has_new_login(&failure)
            {
                server.connection.restart();
                server.was_awaited = false;
                logged_in = true;
            }
        }
        if logged_in {
            tokio::select! {
                () = self.await_started_servers() => {}
                () = cancelled.cancelled() => {}
            }
        }
        self.await_listings(McpConnection::was_called, cancelled)
            .await;
        for server in self.lock_servers().iter_mut() {
            if let Some(turn) = server.turn_offer.take() {
                let turn = turn.at_next_step(&server.connection);
                server.last_offer = turn.offer().cloned().or(server.last_offer.take());
                server.turn_offer = Some(turn);
            }
        }
        for notice in self.new_notices().events {
            event_sender.event(notice).await;
        }
    }

    /// Waits, up to a limit and once for each, for servers that are starting and have no known
    /// list.
    async fn await_started_servers(&self) {
        let starting: Vec<_> = {
            let mut list = self.lock_servers();
            list.iter_mut()
                .filter_map(|server| {
                    (!std::mem::replace(&mut server.was_awaited, true))
                        .then(|| server.connection.watch_state())
                })
                .collect()
        };
        let all = async {
            for mut state in starting {
                state
                    .wait_for(|state| !matches!(state, ServerState::Starting(None)))
                    .await
                    .ok();
            }
        };
        tokio::time::timeout(WAIT_TIMEOUT, all).await.ok();
    }

    /// Returns the tools that this turn offers, without those that the rules hide.
    pub fn tools(&self, rules: &Rules) -> Vec<Arc<dyn AnyTool>> {
        let resources = self.resource_tools();
        let offers = self.turn_offers();
        let offered = offers.iter().flat_map(|(_, offer)| &offer.tools);
        let visible = offered
            .map(|offered| &offered.tool)
            .filter(|tool| !rules.hides(tool.permission()));
        let mut tools = catalog::without_name_conflicts(visible);
        tools.extend(
            resources
                .into_iter()
                .filter(|tool| !rules.hides(tool.permission())),
        );
        tools
    }

    /// Returns a text for the model per server: its instructions, or the reason why it is
    /// unavailable.
    pub fn server_texts(&self, offered: &[&str]) -> Vec<(String, String)> {
        let list = self.lock_servers();
        let offered: HashSet<&str> = offered.iter().copied().collect();
        let instructions = |offer: &ServerOffer| {
            let listed = |name: &str| offered.contains(search::SEARCH) || offered.contains(name);
            let offers = offer.tools.iter().any(|known| listed(known.tool.name()));
            if offers {
                offer.instructions.clone()
            } else {
                None
            }
        };
        let text = |server: &SessionServer| {
            let turn = server
                .turn_offer
                .clone()
                .unwrap_or_else(|| TurnOffer::at_turn_start(&server.connection));
            let text = match &turn {
                TurnOffer::Failed(why) => {
                    prompts::reminder::SERVER_FAILED.replace("{why}", &text::title(why))
                }
                TurnOffer::Offered(offer) => instructions(offer)?,
                TurnOffer::Missing => return None,
            };
            Some((server.settings.name.clone(), text))
        };
        let mut budget = MAX_INSTRUCTIONS_BYTES;
        let mut texts = Vec::new();
        for (server, text) in list.iter().filter_map(text) {
            let text = text::head(&text, budget).to_owned();
            budget -= text.len();
            if !text.is_empty() {
                texts.push((server, text));
            }
        }
        texts
    }

    /// Stops all servers. Returns when they have ended and their catalogues are written, the latter
    /// up to a time limit.
    pub async fn end(&self) {
        let mut all = std::mem::take(&mut *self.lock_servers());
        for server in &all {
            server.stop.cancel();
        }
        for work in all.iter_mut().filter_map(|server| server.task.take()) {
            work.await.ok();
        }
        self.cache_writers.close();
        tokio::time::timeout(WAIT_TIMEOUT, self.cache_writers.wait())
            .await
            .ok();
    }
}

impl SessionServer {
    /// Returns whether the turn that begins should try to start the server again.
    fn needs_restart(&self) -> bool {
        match self.connection.state() {
            ServerState::Starting(_) => false,
            ServerState::Ready(ready) => ready.peer.is_transport_closed(),
            ServerState::Failed(failure) => match failure.kind {
                FailureKind::Disconnected => true,
                FailureKind::Suspended => failure.failed_at.elapsed() >= FAILURE_PAUSE,
                // A server elsewhere may have been unreachable for a moment.
                FailureKind::Start => !matches!(self.settings.transport, Transport::Local { .. }),
                FailureKind::Login => self.connection.has_new_login(failure.as_ref()),
                FailureKind::Resources => SessionFiles::needed(PER_PROGRAM).is_some(),
            },
        }
    }

    /// Returns the offer of the turn; before the first turn, the offer at the moment.
    fn offer(&self) -> Option<Arc<ServerOffer>> {
        match &self.turn_offer {
            Some(turn) => turn.offer().cloned(),
            None => self.connection.offer(),
        }
    }
}
