//! The MCP servers of one session: programs, and services elsewhere, that bring tools of their own. They start
//! beside the conversation and never hold it up; one that does not work is told to the user and to the model,
//! and one that breaks off is started again for the next call. They end with the session. What a server says
//! about its tools is taken for words, never for a promise.

mod answer;
mod asker;
mod catalog;
mod client;
mod content;
mod conversation;
mod failure;
mod invite;
mod keeper;
pub mod kept;
mod link;
mod lists;
pub mod login;
mod memory;
mod notices;
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
pub mod survey;
mod tool;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::catalog::ServerOffer;
use self::invite::Invitation;
use self::keeper::Reach;
use self::kept::KeptLogin;
use self::link::{About, McpLink, REST, ServerState, Trouble};
use self::memory::CatalogMemory;
use self::notices::Announced;
use self::offer::TurnOffer;
use base::environment::Environment;
use base::lock::locked;
use base::task::JoinHandle;
use base::text;
use base::variables::Variables;
use config::Settings;
use config::settings::{McpEntry, Transport};
use events::{Event, Outlet};
use permission::Rules;
use providers::http::HttpClient;
use sandbox::process::Program;
use tools::AnyTool;
use tools::registry::find_properties;

/// What is ours about servers and only looks.
pub const LOOKING: &[&str] =
    &["list_mcp_resource_templates", "list_mcp_resources", "read_mcp_resource", search::SEARCH];

/// What all servers together may say about themselves in the system prompt, in bytes.
const SAID: usize = 60_000;

/// How long a turn waits for servers that are only starting and not known. What comes later is there at the next step.
const PATIENCE: Duration = Duration::from_secs(2);

/// The servers of a session and of its subagents.
pub struct McpServers {
    cwd: PathBuf,
    about: Arc<About>,
    /// The editor shows addresses to visit.
    addresses: bool,
    /// Counts what changes of any of them.
    board: watch::Sender<u64>,
    environment: Environment,
    variables: Variables,
    client: Arc<HttpClient>,
    /// How long a call may take without a word.
    call_limit: Duration,
    /// What the editor gave this session.
    given: Vec<McpEntry>,
    /// The directory that keeps the lists of servers for their next start, if any does.
    catalogs: Option<PathBuf>,
    /// Writes them.
    writers: TaskTracker,
    // A leaf lock around a list.
    list: Mutex<Vec<ServerConnection>>,
}

/// What a session brings beside the settings.
#[derive(Debug, Clone, Default)]
pub struct ForSession {
    /// What the editor gave it.
    pub given: Vec<McpEntry>,
    /// Somebody is there who can be asked.
    pub attended: bool,
    /// The editor shows addresses to visit.
    pub addresses: bool,
    /// The directory that keeps the lists of servers for their next start, if any does.
    pub catalogs: Option<PathBuf>,
}

/// Returns where the lists of servers are kept: the account's, or those of one of the users that a process serves.
pub fn catalogs(environment: &Environment, user: Option<&str>) -> PathBuf {
    let data = &environment.dirs.data;
    user.map_or_else(|| data.clone(), |user| data.join("users").join(user)).join("mcp-lists")
}

struct ServerConnection {
    settings: McpEntry,
    link: Arc<McpLink>,
    /// The offer of the turn; none before the first turn.
    turn: Option<TurnOffer>,
    /// The last offer, in this process or at its last start.
    known: Option<Arc<ServerOffer>>,
    told: Option<Announced>,
    /// The tools it was told are not offered, because of their names.
    lost: Vec<String>,
    /// A login was offered as a link.
    offered: Arc<AtomicBool>,
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

impl McpServers {
    /// For a session in these directories, the first of them its own. Starts nothing yet.
    pub fn new(
        (cwd, extra): (&Path, &[PathBuf]),
        environment: &Environment,
        settings: &Settings,
        client: Arc<HttpClient>,
        session: ForSession,
    ) -> Self {
        let roots = std::iter::once(cwd).chain(extra.iter().map(PathBuf::as_path)).map(Path::to_owned).collect();
        let (cwd, environment) = (cwd.to_owned(), environment.clone());
        let (variables, call_limit) = (settings.variables.clone(), settings.experimental.mcp_timeout);
        let ForSession { given, attended, addresses, catalogs } = session;
        Self {
            cwd,
            about: Arc::new(About { roots, attended }),
            addresses,
            board: watch::Sender::new(0),
            environment,
            variables,
            client,
            call_limit,
            given,
            catalogs,
            writers: TaskTracker::new(),
            list: Mutex::default(),
        }
    }

    /// Wakes whoever waits for changes: a server is there, or has other things.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.board.subscribe()
    }

    fn links(&self) -> Vec<Arc<McpLink>> {
        self.list().iter().map(|server| server.link.clone()).collect()
    }

    /// Those that are there, or on their way and known, with what they have.
    fn offers(&self) -> Vec<(Arc<McpLink>, Arc<ServerOffer>)> {
        self.links().into_iter().filter_map(|link| link.offers().map(|offer| (link, offer))).collect()
    }

    /// Those that this turn offers, with what they had when it began.
    fn turn_offers(&self) -> Vec<(Arc<McpLink>, Arc<ServerOffer>)> {
        self.list().iter().filter_map(|server| Some((server.link.clone(), server.offer()?))).collect()
    }

    fn list(&self) -> MutexGuard<'_, Vec<ServerConnection>> {
        locked(&self.list)
    }

    /// Starts what is wanted and not there, ends what is there and not wanted, and tries what broke off or has
    /// rested once more.
    pub fn reconcile(&self, configured: &[McpEntry]) {
        let own = |server: &&McpEntry| !self.given.iter().any(|given| given.name == server.name);
        let wanted: Vec<&McpEntry> =
            self.given.iter().chain(configured.iter().filter(own)).filter(|server| server.enabled).collect();
        let mut list = self.list();
        list.retain(|server| wanted.contains(&&server.settings));
        for server in list.iter_mut() {
            let again = match server.link.state() {
                ServerState::Starting(_) => false,
                ServerState::Ready(ready) => ready.peer.is_transport_closed(),
                ServerState::Failed(breakdown) => match breakdown.trouble {
                    Trouble::Broke => true,
                    Trouble::Rests => breakdown.since.elapsed() >= REST,
                    // What is elsewhere may have been away for a moment.
                    Trouble::Start => matches!(server.settings.transport, Transport::Remote { .. }),
                    Trouble::Login => server.link.has_new_login(breakdown.as_ref()),
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
            // Whoever brings a key of their own is not logged in.
            Transport::Remote { url, headers, oauth: Some(_), .. }
                if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) =>
            {
                let given = self.given.iter().any(|given| given.name == settings.name);
                let place = if given { format!(" --url {url}") } else { String::new() };
                let command = format!("adjutant mcp login {}{place}", settings.name);
                Some((KeptLogin::new(&settings.name, url, &self.environment), command))
            }
            _ => None,
        };
        let memory = self.memory(settings, login.as_ref().map(|(kept, _)| kept.clone()));
        let (about, board) = (self.about.clone(), self.board.clone());
        let link = McpLink::new(settings, call_limit, login.clone(), memory, about, board);
        let stop = CancellationToken::new();
        let reach = match &settings.transport {
            Transport::Local { command, cwd, environment } => {
                let dir = cwd.as_ref().map_or_else(|| self.cwd.clone(), |dir| self.cwd.join(dir));
                let own = environment.iter().map(|(name, value)| (name.into(), value.into()));
                let env = self.variables.given(&self.environment).into_iter().chain(own).collect();
                let (path, args) = command.split_first().map(|(path, args)| (path.clone(), args)).unwrap_or_default();
                Reach::Program(Program::new(path, dir, env).args(args.iter().cloned()))
            }
            Transport::Remote { url, headers, sse, .. } => Reach::Address(Box::new(remote::RemoteServer {
                url: url.clone(),
                headers: headers.clone(),
                sse: *sse,
                client: self.client.clone(),
                command: login.as_ref().map(|(_, command)| command.clone()).unwrap_or_default(),
                kept: login.map(|(kept, _)| kept),
            })),
        };
        let work = base::task::spawn(keeper::keep(link.clone(), reach, stop.clone()));
        ServerConnection {
            settings: settings.clone(),
            link,
            turn: None,
            known: None,
            told: None,
            lost: Vec::new(),
            offered: Arc::default(),
            awaited: false,
            stop,
            work: Some(work),
        }
    }

    fn memory(&self, settings: &McpEntry, login: Option<KeptLogin>) -> Option<Arc<CatalogMemory>> {
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

    /// Makes ready for a turn: starts what is new, waits a moment for what is not known from an earlier start, and
    /// tells the user what has changed and what does not work. What is offered then stays the same until the turn ends.
    pub async fn greet(&self, configured: &[McpEntry], outlet: &Outlet, cancelled: &CancellationToken) {
        self.reconcile(configured);
        tokio::select! {
            () = self.settled() => {}
            () = cancelled.cancelled() => {}
        }
        self.catch_up(|_| true, cancelled).await;
        let changes = self.begin_turn();
        for notice in changes.into_iter().chain(self.news()) {
            outlet.event(notice).await;
        }
        self.invite(outlet);
    }

    /// Offers the logins that are missing as links, where the editor shows those.
    fn invite(&self, outlet: &Outlet) {
        for server in self.list().iter().filter(|_| self.addresses) {
            let (Transport::Remote { url, oauth: Some(oauth), .. }, Some((kept, _))) =
                (&server.settings.transport, &server.link.login)
            else {
                continue;
            };
            if matches!(server.link.state(), ServerState::Failed(breakdown) if breakdown.trouble == Trouble::Login) {
                let invitation = Invitation {
                    name: server.settings.name.clone(),
                    url: url.clone(),
                    oauth: oauth.clone(),
                    kept: kept.clone(),
                    client: self.client.clone(),
                    offered: server.offered.clone(),
                    stop: server.stop.clone(),
                };
                invitation.send(outlet);
            }
        }
    }

    /// Fixes what the turn that begins offers. Returns what the user is to be told of its changes.
    fn begin_turn(&self) -> Vec<Event> {
        let mut changes = Vec::new();
        for server in self.list().iter_mut() {
            server.link.begin_turn();
            let turn = TurnOffer::now(&server.link);
            if let Some(offer) = turn.offered() {
                let before = server.known.replace(offer.clone()).or_else(|| server.link.recalled());
                let before = before.filter(|before| !Arc::ptr_eq(before, offer));
                changes.extend(before.and_then(|before| offer.changed_since(&server.settings.name, &before)));
            }
            server.turn = Some(turn);
        }
        changes
    }

    /// Waits, but not for long, until the changes that servers have told of are in their lists.
    async fn catch_up(&self, wanted: impl Fn(&McpLink) -> bool, cancelled: &CancellationToken) {
        let outdated: Vec<_> = self.links().into_iter().filter(|link| link.is_outdated() && wanted(link)).collect();
        if outdated.is_empty() {
            return;
        }
        let all = async {
            for link in &outdated {
                link.listed().await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(PATIENCE, all) => {}
            () = cancelled.cancelled() => {}
        }
    }

    /// Makes ready for a step: what a call of the turn has changed is heard out, who was not there or logged in when
    /// the turn began is there, and what has failed is told. Costs nothing where nothing has happened.
    pub async fn refresh(&self, outlet: &Outlet, cancelled: &CancellationToken) {
        let mut logged_in = false;
        for server in self.list().iter_mut() {
            if let ServerState::Failed(breakdown) = server.link.state()
                && breakdown.trouble == Trouble::Login
                && server.link.has_new_login(&breakdown)
            {
                server.link.restart();
                server.awaited = false;
                logged_in = true;
            }
        }
        if logged_in {
            tokio::select! {
                () = self.settled() => {}
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
        for notice in self.news() {
            outlet.event(notice).await;
        }
    }

    /// Waits for those that are starting and not known, once for each and not for long.
    async fn settled(&self) {
        let starting: Vec<_> = {
            let mut list = self.list();
            list.iter_mut()
                .filter_map(|server| (!std::mem::replace(&mut server.awaited, true)).then(|| server.link.watch()))
                .collect()
        };
        let all = async {
            for mut state in starting {
                state.wait_for(|state| !matches!(state, ServerState::Starting(None))).await.ok();
            }
        };
        tokio::time::timeout(PATIENCE, all).await.ok();
    }

    /// The tools that this turn offers, as far as these rules do not hide them.
    pub fn tools(&self, rules: &Rules) -> Vec<Arc<dyn AnyTool>> {
        let resources = self.resource_tools();
        let mut tools: Vec<Arc<dyn AnyTool>> = Vec::new();
        for (_, offer) in self.turn_offers() {
            let offered = offer.tools.iter().map(|offered| &offered.tool);
            for tool in offered.filter(|tool| !rules.hides(tool.permission())) {
                // Two servers may come to the same name: the first keeps it. None takes one of ours.
                let own = find_properties(tool.name()).is_some() || LOOKING.contains(&tool.name());
                if !own && !tools.iter().any(|other| other.name() == tool.name()) {
                    tools.push(tool.clone());
                }
            }
        }
        tools.extend(resources.into_iter().filter(|tool| !rules.hides(tool.permission())));
        tools
    }

    /// What the model is to know of each server: how it wants to be used, or that it is not there.
    pub fn words(&self, offered: &[&str]) -> Vec<(String, String)> {
        let list = self.list();
        let wants = |offer: &ServerOffer| {
            let listed = |name: &str| offered.contains(&name) || offered.contains(&search::SEARCH);
            let offers = offer.tools.iter().any(|known| listed(known.tool.name()));
            if offers { offer.instructions.clone() } else { None }
        };
        let word = |server: &ServerConnection| {
            let turn = server.turn.clone().unwrap_or_else(|| TurnOffer::now(&server.link));
            let words = match &turn {
                TurnOffer::Failed(why) => prompts::reminder::SERVER_FAILED.replace("{why}", &text::title(why)),
                TurnOffer::Offered(offer) => wants(offer)?,
                TurnOffer::Missing => return None,
            };
            Some((server.settings.name.clone(), words))
        };
        let mut room = SAID;
        let fits = |(server, words): (String, String)| {
            let words = text::head(&words, room).to_owned();
            room -= words.len();
            (!words.is_empty()).then_some((server, words))
        };
        list.iter().filter_map(word).filter_map(fits).collect()
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
        tokio::time::timeout(PATIENCE, self.writers.wait()).await.ok();
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
