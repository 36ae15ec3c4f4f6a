//! The MCP servers of a session: programs and remote services with tools of their own. They start
//! concurrently with the session and never delay it. A server that does not work is reported to the
//! user and the model, and one that breaks off is restarted for the next call. All of them end with
//! the session. Hints of a server about its tools are shown, but never relied on for permissions.

mod answer;
mod asker;
mod catalog;
mod change_counter;
mod client;
mod connection;
mod content;
mod conversation;
pub mod credential_store;
pub mod editor;
mod failure;
pub mod inventory;
mod lists;
pub mod login;
mod login_prompt;
mod memory;
pub mod notices;
mod offer;
mod paced;
mod prompt;
mod reading;
mod remote;
mod request;
pub mod resource;
mod rounds;
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
use self::connection::{FAILURE_PAUSE, FailureKind, McpLink, ServerState, SessionFacts};
use self::credential_store::StoredLogin;
use self::editor::{EditorChannel, EditorServer, EditorSlot};
use self::login_prompt::LoginPrompt;
use self::memory::CatalogMemory;
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

/// The servers of a session and of its subagents.
pub struct McpServers {
    cwd: PathBuf,
    about: Arc<SessionFacts>,
    /// Whether the client can show URLs to visit.
    shows_urls: bool,
    /// Counts changes of any server.
    change_count: watch::Sender<u64>,
    environment: Environment,
    variables: Variables,
    client: Arc<HttpClient>,
    /// The time limit of a call without progress.
    call_limit: Duration,
    /// The servers that the client gave this session.
    client_servers: Vec<McpEntry>,
    /// The connection to the servers that live in the editor.
    editor: EditorSlot,
    /// The directory with the lists of the servers for their next start, if there is one.
    catalogs: Option<PathBuf>,
    /// The tasks that write those lists.
    writers: TaskTracker,
    // A leaf lock around a list.
    list: Mutex<Vec<ServerConnection>>,
}

/// The inputs of a session in addition to the settings.
#[derive(Debug, Clone, Default)]
pub struct McpSessionOptions {
    /// The servers that the client gave it.
    pub client_servers: Vec<McpEntry>,
    /// Whether there is a user who can be asked.
    pub attended: bool,
    /// Whether the client can show URLs to visit.
    pub shows_urls: bool,
    /// The directory with the lists of the servers for their next start, if there is one.
    pub catalogs: Option<PathBuf>,
}

/// Returns the directory with the lists of servers: that of the account, or that of one of the
/// users a process serves.
pub fn catalogs(environment: &Environment, user: Option<&str>) -> PathBuf {
    let data = &environment.dirs.data;
    user.map_or_else(|| data.clone(), |user| data.join("users").join(user))
        .join("mcp-lists")
}

struct ServerConnection {
    settings: McpEntry,
    link: Arc<McpLink>,
    /// The offer of the turn; `None` before the first turn.
    turn: Option<TurnOffer>,
    /// The last offer, in this process or at the last start.
    known: Option<Arc<ServerOffer>>,
    announced: Option<AnnouncedState>,
    /// The tools that the user was notified about because their names are taken.
    lost: Vec<String>,
    /// Whether a login was offered as a link.
    offered: Arc<AtomicBool>,
    /// Whether a turn has waited for it.
    awaited: bool,
    stop: CancellationToken,
    work: Option<JoinHandle<()>>,
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl McpServers {
    /// Creates the servers of a session in these directories, of which the first is its own. Starts
    /// nothing yet.
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
        let call_limit = settings.experimental.mcp_timeout();
        let McpSessionOptions {
            client_servers,
            attended,
            shows_urls,
            catalogs,
        } = session;
        Self {
            cwd,
            about: Arc::new(SessionFacts { roots, attended }),
            shows_urls,
            change_count: watch::Sender::new(0),
            environment,
            variables,
            client,
            call_limit,
            client_servers,
            editor: EditorSlot::new(None),
            catalogs,
            writers: TaskTracker::new(),
            list: Mutex::default(),
        }
    }

    /// Sets the connection to the editor, for the servers that live in it. Those that run over
    /// another connection end with this, and those that have failed start again.
    pub fn attach(&self, editor: Arc<dyn EditorChannel>) {
        self.editor.send_replace(Some(editor));
        for server in self.list().iter_mut() {
            let lives_in_editor = matches!(server.settings.transport, Transport::Editor { .. });
            if lives_in_editor && matches!(server.link.state(), ServerState::Failed(_)) {
                server.link.restart();
                server.awaited = false;
            }
        }
    }

    /// Returns a receiver of changes: a server has become ready, or its lists have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.change_count.subscribe()
    }

    fn links(&self) -> Vec<Arc<McpLink>> {
        self.list()
            .iter()
            .map(|server| server.link.clone())
            .collect()
    }

    /// Returns the servers that are ready, or starting with a known list, with their offers.
    fn offers(&self) -> Vec<(Arc<McpLink>, Arc<ServerOffer>)> {
        self.links()
            .into_iter()
            .filter_map(|link| link.offers().map(|offer| (link, offer)))
            .collect()
    }

    /// Returns the servers of this turn, with their offers as of its beginning.
    fn turn_offers(&self) -> Vec<(Arc<McpLink>, Arc<ServerOffer>)> {
        self.list()
            .iter()
            .filter_map(|server| Some((server.link.clone(), server.offer()?)))
            .collect()
    }

    fn list(&self) -> MutexGuard<'_, Vec<ServerConnection>> {
        lock(&self.list)
    }

    /// Starts the enabled servers that are not running, ends the ones that are no longer
    /// configured, and retries the ones that broke off or were paused.
    pub fn reconcile(&self, configured: &[McpEntry]) {
        let own = |server: &&McpEntry| {
            !self
                .client_servers
                .iter()
                .any(|other| other.name == server.name)
        };
        let wanted: Vec<&McpEntry> = self
            .client_servers
            .iter()
            .chain(configured.iter().filter(own))
            .filter(|server| server.enabled)
            .collect();
        let mut list = self.list();
        list.retain(|server| wanted.contains(&&server.settings));
        for server in list.iter_mut() {
            let again = match server.link.state() {
                ServerState::Starting(_) => false,
                ServerState::Ready(ready) => ready.peer.is_transport_closed(),
                ServerState::Failed(breakdown) => match breakdown.kind {
                    FailureKind::Disconnected => true,
                    FailureKind::Suspended => breakdown.since.elapsed() >= FAILURE_PAUSE,
                    // A server elsewhere may have been unreachable for a moment.
                    FailureKind::Start => {
                        !matches!(server.settings.transport, Transport::Local { .. })
                    }
                    FailureKind::Login => server.link.has_new_login(breakdown.as_ref()),
                    FailureKind::Resources => SessionFiles::needed(PER_PROGRAM).is_some(),
                },
            };
            if again {
                server.link.restart();
                server.awaited = false;
            }
        }
        for settings in wanted {
            if !list.iter().any(|server| server.settings == *settings) {
                list.push(self.start(settings));
            }
        }
    }

    fn start(&self, settings: &McpEntry) -> ServerConnection {
        let call_limit = settings.call_timeout.unwrap_or(self.call_limit);
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
        let memory = self.memory(settings, login.as_ref().map(|(stored, _)| stored.clone()));
        let about = self.about.clone();
        let change_count = self.change_count.clone();
        let link = McpLink::new(
            settings,
            call_limit,
            login.clone(),
            memory,
            about,
            change_count,
        );
        let stop = CancellationToken::new();
        let reach = match &settings.transport {
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
                command: login
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
        let work = base::task::spawn(supervisor::supervise(link.clone(), reach, stop.clone()));
        ServerConnection {
            settings: settings.clone(),
            link,
            turn: None,
            known: None,
            announced: None,
            lost: Vec::new(),
            offered: Arc::default(),
            awaited: false,
            stop,
            work: Some(work),
        }
    }

    fn memory(
        &self,
        settings: &McpEntry,
        login: Option<StoredLogin>,
    ) -> Option<Arc<CatalogMemory>> {
        // An editor may give each session another id, and its server answers at once.
        if matches!(settings.transport, Transport::Editor { .. }) {
            return None;
        }
        Some(Arc::new(CatalogMemory {
            directory: self.catalogs.clone()?,
            entry: settings.clone(),
            cwd: self.cwd.clone(),
            attended: self.about.attended,
            login,
            environment: self.environment.clone(),
            tasks: self.writers.clone(),
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
        self.catch_up(|_| true, cancelled).await;
        let changes = self.begin_turn();
        let mut notices = self.new_notices();
        notices.events.splice(..0, changes);
        notices
    }

    /// Offers the missing logins as links, if the client can show them.
    pub fn offer_logins(&self, event_sender: &EventSender) {
        if !self.shows_urls {
            return;
        }
        for server in self.list().iter() {
            let (
                Transport::Remote {
                    url,
                    oauth: Some(oauth),
                    ..
                },
                Some((stored, _)),
            ) = (&server.settings.transport, &server.link.login)
            else {
                continue;
            };
            if matches!(server.link.state(), ServerState::Failed(breakdown) if breakdown.kind == FailureKind::Login)
            {
                let login_prompt = LoginPrompt {
                    name: server.settings.name.clone(),
                    url: url.clone(),
                    oauth: oauth.clone(),
                    stored: stored.clone(),
                    client: self.client.clone(),
                    offered: server.offered.clone(),
                    stop: server.stop.clone(),
                };
                login_prompt.send(event_sender);
            }
        }
    }

    /// Fixes the offer of the turn that begins. Returns the notices about its changes.
    fn begin_turn(&self) -> Vec<Event> {
        let mut changes = Vec::new();
        for server in self.list().iter_mut() {
            server.link.begin_turn();
            let turn = TurnOffer::now(&server.link);
            if let Some(offer) = turn.offered() {
                let before = server
                    .known
                    .replace(offer.clone())
                    .or_else(|| server.link.recalled());
                let before = before.filter(|before| !Arc::ptr_eq(before, offer));
                changes.extend(
                    before.and_then(|before| offer.changed_since(&server.settings.name, &before)),
                );
            }
            server.turn = Some(turn);
        }
        changes
    }

    /// Waits, up to a limit, until the changes that servers have reported are in their lists.
    async fn catch_up(&self, wanted: impl Fn(&McpLink) -> bool, cancelled: &CancellationToken) {
        let outdated: Vec<_> = self
            .links()
            .into_iter()
            .filter(|link| link.is_outdated() && wanted(link))
            .collect();
        if outdated.is_empty() {
            return;
        }
        let all = async {
            for link in &outdated {
                link.listed().await;
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
        for server in self.list().iter_mut() {
            if let ServerState::Failed(breakdown) = server.link.state()
                && breakdown.kind == FailureKind::Login
                && server.link.has_new_login(&breakdown)
            {
                server.link.restart();
                server.awaited = false;
                logged_in = true;
            }
        }
        if logged_in {
            tokio::select! {
                () = self.await_started_servers() => {}
                () = cancelled.cancelled() => {}
            }
        }
        self.catch_up(McpLink::was_called, cancelled).await;
        for server in self.list().iter_mut() {
            if let Some(turn) = server.turn.take() {
                let turn = turn.next(&server.link);
                server.known = turn.offered().cloned().or(server.known.take());
                server.turn = Some(turn);
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
            let mut list = self.list();
            list.iter_mut()
                .filter_map(|server| {
                    (!std::mem::replace(&mut server.awaited, true)).then(|| server.link.watch())
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
        let mut tools = catalog::distinct(visible);
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
        let list = self.list();
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
        let text = |server: &ServerConnection| {
            let turn = server
                .turn
                .clone()
                .unwrap_or_else(|| TurnOffer::now(&server.link));
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

    pub async fn end(&self) {
        let mut all = std::mem::take(&mut *self.list());
        for server in &all {
            server.stop.cancel();
        }
        for work in all.iter_mut().filter_map(|server| server.work.take()) {
            work.await.ok();
        }
        self.writers.close();
        tokio::time::timeout(WAIT_TIMEOUT, self.writers.wait())
            .await
            .ok();
    }
}

impl ServerConnection {
    fn offer(&self) -> Option<Arc<ServerOffer>> {
        match &self.turn {
            Some(turn) => turn.offered().cloned(),
            None => self.link.offers(),
        }
    }
}
