//! The MCP servers of one session: programs, and services elsewhere, that bring tools of their own. They start
//! beside the conversation and never hold it up; one that does not work is told to the user and to the model,
//! and one that breaks off is started again for the next call. They end with the session. What a server says
//! about its tools is taken for words, never for a promise.

mod answer;
mod asker;
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
mod paced;
mod prompt;
mod remote;
mod request;
pub mod resource;
mod rounds;
mod sample;
pub mod search;
mod sse;
pub mod survey;
mod tool;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::invite::Invitation;
use self::keeper::Reach;
use self::kept::KeptLogin;
use self::link::{About, McpLink, OfferedTool, REST, ReadyServer, ServerState, Trouble};
use crate::config::Settings;
use crate::config::settings::{McpEntry, Transport};
use crate::environment::Environment;
use crate::event::{Event, Outlet, Severity};
use crate::lock::locked;
use crate::model::http::HttpClient;
use crate::permission::Rules;
use crate::process::{Program, Variables};
use crate::task::JoinHandle;
use crate::text;
use crate::tool::AnyTool;
use crate::tool::registry::find_properties;

/// What is ours about servers and only looks.
pub const LOOKING: &[&str] =
    &["list_mcp_resource_templates", "list_mcp_resources", "read_mcp_resource", search::SEARCH];

/// What all servers together may say about themselves in the system prompt, in bytes.
const SAID: usize = 60_000;

/// How long a turn waits for servers that are only starting. What comes later is there at the next step.
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
}

struct ServerConnection {
    settings: McpEntry,
    link: Arc<McpLink>,
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

/// What the user knows of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Announced {
    Works,
    Trouble(Trouble),
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
        let ForSession { given, attended, addresses } = session;
        let (about, board) = (Arc::new(About { roots, attended }), watch::Sender::new(0));
        Self { cwd, about, addresses, board, environment, variables, client, call_limit, given, list: Mutex::default() }
    }

    /// Wakes whoever waits for changes: a server is there, or has other things.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.board.subscribe()
    }

    fn links(&self) -> Vec<Arc<McpLink>> {
        self.list().iter().map(|server| server.link.clone()).collect()
    }

    /// Those that are there, or on their way back, with what they have.
    fn ready(&self) -> Vec<(Arc<McpLink>, Arc<ReadyServer>)> {
        self.links().into_iter().filter_map(|link| link.offers().map(|ready| (link, ready))).collect()
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
        let (about, board) = (self.about.clone(), self.board.clone());
        let link = McpLink::new(settings, call_limit, login.clone(), about, board);
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
        let work = crate::task::spawn(keeper::keep(link.clone(), reach, stop.clone()));
        ServerConnection {
            settings: settings.clone(),
            link,
            told: None,
            lost: Vec::new(),
            offered: Arc::default(),
            awaited: false,
            stop,
            work: Some(work),
        }
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

    /// Makes ready for a step: what has said that its tools have changed is heard out, who has been logged in
    /// meanwhile is there, and what has failed is told. Costs nothing where nothing has happened.
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
        let stale: Vec<_> = {
            let list = self.list();
            let stale = |link: &&Arc<McpLink>| match link.state() {
                ServerState::Ready(ready) => ready.changes < *link.changes().borrow(),
                _ => false,
            };
            list.iter().map(|server| &server.link).filter(stale).cloned().collect()
        };
        if !stale.is_empty() {
            let all = async {
                for link in &stale {
                    link.listed().await;
                }
            };
            tokio::select! {
                _ = tokio::time::timeout(PATIENCE, all) => {}
                () = cancelled.cancelled() => {}
            }
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
                .filter_map(|server| (!std::mem::replace(&mut server.awaited, true)).then(|| server.link.watch()))
                .collect()
        };
        let all = async {
            for mut state in starting {
                state.wait_for(|state| !matches!(state, ServerState::Starting(_))).await.ok();
            }
        };
        tokio::time::timeout(PATIENCE, all).await.ok();
    }

    /// What the user has not been told: which servers do not work, and which tools have a name that is taken. One
    /// that is late is there at a later step.
    fn news(&self) -> Vec<Event> {
        let mut list = self.list();
        let (mut news, mut failed) = (Vec::new(), Vec::new());
        for server in list.iter_mut() {
            match server.news() {
                Some(News::Works(notice)) => news.push(notice),
                Some(News::Fails(title, details)) => failed.push((server.settings.name.clone(), title, details)),
                None => {}
            }
        }
        news.extend(failures(failed));
        let mut taken: HashMap<String, String> = HashMap::new();
        for server in list.iter_mut() {
            let Some(ready) = server.link.offers() else { continue };
            let lost: Vec<String> =
                ready.offered.iter().filter_map(|tool| tool.lost(&server.settings.name, &mut taken)).collect();
            if lost != server.lost {
                server.lost.clone_from(&lost);
                news.extend(collision(&server.settings.name, &lost));
            }
        }
        news
    }

    /// The tools of those that are there, or on their way back, as far as these rules do not hide them.
    pub fn tools(&self, rules: &Rules) -> Vec<Arc<dyn AnyTool>> {
        let resources = self.resource_tools();
        let list = self.list();
        let mut tools: Vec<Arc<dyn AnyTool>> = Vec::new();
        for ready in list.iter().filter_map(|server| server.link.offers()) {
            let offered = ready.offered.iter().map(|offered| &offered.tool);
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
        let wants = |ready: &ReadyServer| {
            let listed = |name: &str| offered.contains(&name) || offered.contains(&search::SEARCH);
            let offers = ready.offered.iter().any(|known| listed(known.tool.name()));
            ready.instructions.clone().filter(|_| offers)
        };
        let word = |server: &ServerConnection| {
            let words = match server.link.state() {
                ServerState::Failed(breakdown) if breakdown.trouble != Trouble::Broke => {
                    let why = text::title(&breakdown.why);
                    crate::prompts::reminder("server-failed").replace("{why}", &why)
                }
                _ => wants(server.link.offers()?.as_ref())?,
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
    }
}

impl OfferedTool {
    /// Says whose name it has, where that is taken; else takes it.
    fn lost(&self, server: &str, taken: &mut HashMap<String, String>) -> Option<String> {
        let name = self.tool.name();
        let whose = match taken.get(name) {
            _ if find_properties(name).is_some() || LOOKING.contains(&name) => "one of adjutant's own".to_owned(),
            Some(other) => format!("one of {}", text::title(other)),
            None => {
                taken.insert(name.to_owned(), server.to_owned());
                return None;
            }
        };
        Some(format!("{} ({whose} is {name} already)", text::title(&self.own)))
    }
}

/// What is to be told of a server.
enum News {
    Works(Event),
    /// A title, and details.
    Fails(String, String),
}

/// That servers do not work, each with its name: one by one, or together where they would fill the screen.
fn failures(failed: Vec<(String, String, String)>) -> Vec<Event> {
    /// How many are told one by one, and how many are named.
    const ALONE: usize = 3;
    const NAMED: usize = 10;
    let notice = |title, details| Event::Notice { severity: Severity::Warning, title, details: Some(details) };
    if failed.len() <= ALONE {
        return failed.into_iter().map(|(_, title, details)| notice(title, details)).collect();
    }
    let mut names = failed.iter().take(NAMED).map(|(name, ..)| text::title(name)).collect::<Vec<_>>().join(", ");
    if failed.len() > NAMED {
        names += ", …";
    }
    let title = format!("{} MCP servers do not work: {names}. `adjutant mcp` tries them again.", failed.len());
    let each = failed.iter().map(|(_, title, details)| format!("- {title}. {details}"));
    vec![notice(title, each.collect::<Vec<_>>().join("\n"))]
}

/// That tools are not offered because their names are taken.
fn collision(server: &str, lost: &[String]) -> Option<Event> {
    const NAMED: usize = 20;
    let count = text::count(lost.len(), "tool");
    let title =
        format!("The MCP server {} has {count} whose names are taken; they are not offered.", text::title(server));
    let named = lost.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let details = Some(format!("{named}. Call the server something else in the settings."));
    (!lost.is_empty()).then_some(Event::Notice { severity: Severity::Warning, title, details })
}

impl ServerConnection {
    /// What the user is to be told of it now, if anything.
    fn news(&mut self) -> Option<News> {
        let name = text::title(&self.settings.name);
        let breakdown = match self.link.state() {
            ServerState::Starting(_) => return None,
            ServerState::Ready(ready) => {
                let first = self.told.replace(Announced::Works) != Some(Announced::Works);
                let title = format!(
                    "The MCP server {name} lists more or larger tools than are taken: {} are offered, the rest is left out.",
                    ready.offered.len()
                );
                let notice = Event::Notice { severity: Severity::Warning, title, details: None };
                return (first && ready.cut).then_some(News::Works(notice));
            }
            ServerState::Failed(breakdown) => breakdown,
        };
        let told = Announced::Trouble(breakdown.trouble);
        // One that broke off is on its way back.
        if breakdown.trouble == Trouble::Broke || self.told.replace(told) == Some(told) {
            return None;
        }
        let why = &breakdown.why;
        let short = text::title(why);
        let title = match breakdown.trouble {
            Trouble::Rests => {
                format!("The MCP server {name} failed {} times in a row and is paused: {short}", link::FAILURES)
            }
            _ => format!("The MCP server {name} does not work: {short}"),
        };
        let mut details = format!("Configured in {}.", self.settings.source);
        if short != *why {
            details = format!("{details} {why}");
        }
        let wrote = breakdown.wrote.trim();
        if wrote.lines().count() > 1 {
            details = format!("{details}\n\nIt wrote:\n{}", text::escaped(wrote).replace("\\n", "\n"));
        }
        Some(News::Fails(title, details))
    }
}
