//! What a serving process has: its users, their sessions, and the connections that are open.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::lines::{Line, Outbox, Outgoing};
use protocol::negotiate::Versions;
use protocol::rpc::Peer;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::{Admission, Identity};
use super::budget::MessageBudget;
use super::places::{Counted, SocketPlace};
use super::{InFlightEnd, serve_until};
use acp_server::hosted::{Hosted, Liveness, UserLimits};
use acp_server::meters::Meters;
use acp_server::server::{RemoteClient, Server};
use acp_server::{v1, v2};
use base::environment::Environment;
use base::lock::locked;
use config::settings::ServeSettings;
use permission::account::AccountAccess;
use session::{ServedPlaces, Sessions};
use store::{StoreMeters, StoreNumber};

/// What all connections of a serving process share.
pub struct Host {
    pub settings: ServeSettings,
    pub admission: Admission,
    /// Ends when nothing new is to begin.
    pub draining: CancellationToken,
    /// Ends everything.
    pub ended: CancellationToken,
    /// Version 2 of the protocol is spoken with whoever asks for it.
    draft: bool,
    environment: Environment,
    meters: Arc<Meters>,
    // A std mutex around a map: a leaf, never held across an await.
    users: Mutex<HashMap<Option<String>, Arc<ServedUser>>>,
    connections: Arc<AtomicUsize>,
    /// Sockets that are open, whatever is said over them, and how many may be.
    sockets: Arc<AtomicUsize>,
    most_sockets: usize,
    /// Bytes of messages that have not come whole.
    unfinished: Arc<AtomicUsize>,
    opened: AtomicUsize,
    refused: AtomicUsize,
    tasks: TaskTracker,
}

/// Whose sessions are apart from all others; those of nobody in particular are, too.
struct ServedUser {
    sessions: Arc<Sessions>,
    hosted: Arc<Hosted<Server>>,
    connections: Arc<AtomicUsize>,
    unfinished: Arc<AtomicUsize>,
}

/// A connection, from the side of whoever carries its messages.
pub struct Connection {
    pub id: String,
    /// What the editor says. Where this is dropped, the connection ends.
    pub lines: mpsc::Sender<Line>,
    /// What the editor is told.
    pub outgoing: Outgoing,
    pub liveness: Arc<Liveness>,
    /// What messages may take that have not come whole.
    pub budget: MessageBudget,
    /// Ends when the connection is to end.
    pub ended: CancellationToken,
    /// Ended when the whole process is about to stop.
    pub draining: CancellationToken,
}

impl Host {
    /// One that listens at an address, and has no connections yet.
    ///
    /// # Errors
    /// With these settings nobody may listen there.
    pub fn new(
        environment: Environment,
        settings: ServeSettings,
        listen: SocketAddr,
        draft: bool,
        ended: CancellationToken,
    ) -> Result<Arc<Self>, String> {
        let admission = Admission::new(&settings, listen)?;
        Ok(Arc::new(Self {
            admission,
            draining: CancellationToken::new(),
            ended,
            draft,
            environment,
            meters: Arc::default(),
            users: Mutex::default(),
            connections: Arc::default(),
            sockets: Arc::default(),
            most_sockets: most_sockets(settings.limits.connections),
            unfinished: Arc::default(),
            settings,
            opened: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            tasks: TaskTracker::new(),
        }))
    }

    /// Opens a connection for somebody who was let in.
    ///
    /// # Errors
    /// There are too many, in words for a person.
    pub fn connect(self: &Arc<Self>, identity: &Identity) -> Result<Connection, String> {
        let limits = &self.settings.limits;
        let user = self.user(identity.user.as_deref());
        let full = |most: usize, whose: &str| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            format!("{whose} has {most} connections, and no more are allowed")
        };
        if self.draining.is_cancelled() {
            return Err("this server is about to stop".into());
        }
        let all = Counted::one(&self.connections, limits.connections);
        let all = all.ok_or_else(|| full(limits.connections, "this server"))?;
        let own = Counted::one(&user.connections, limits.user_connections);
        let own = own.ok_or_else(|| full(limits.user_connections, "the user"))?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        let (outbox, outgoing) = Outbox::pulled();
        let (lines, input) = mpsc::channel(4);
        let (peer, ended, liveness) = (Peer::new(outbox), self.ended.child_token(), Arc::<Liveness>::default());
        let server = |view| {
            let (hosted, roots, liveness) = (user.hosted.clone(), identity.roots.clone(), liveness.clone());
            let remote = Some(RemoteClient { hosted, roots, liveness });
            Server::of_remote(user.sessions.clone(), peer.clone(), ended.clone(), view, remote)
        };
        let (first, second) = (server(v1::view), self.draft.then(|| server(v2::view)));
        let versions = Versions::new(v1::table(&first), second.as_ref().map(v2::table));
        let (over, process) = (ended.clone(), self.ended.clone());
        base::task::spawn_in(&self.tasks, async move {
            serve_until(&versions, input, &peer, &over, InFlightEnd::GoOn(&process)).await;
            for server in std::iter::once(first).chain(second) {
                server.leave();
            }
            drop((all, own));
        });
        let id = self.environment.fresh("con_");
        tracing::info!("{} has opened connection {id}", identity.name);
        let budget = self.budget(identity);
        Ok(Connection { id, lines, outgoing, liveness, budget, ended, draining: self.draining.clone() })
    }

    /// What the messages of a user may take that have not come whole.
    pub fn budget(&self, identity: &Identity) -> MessageBudget {
        let user = self.user(identity.user.as_deref()).unfinished.clone();
        MessageBudget::new(user, self.unfinished.clone(), self.settings.limits.message_bytes)
    }

    /// A place for a socket; none where there are as many as there may be.
    pub fn socket(&self) -> Option<SocketPlace> {
        let place = Counted::one(&self.sockets, self.most_sockets)?;
        Some(Arc::new(place))
    }

    /// That there are as many sockets as there may be, for whoever wanted one more.
    pub fn full(&self) -> String {
        self.refused.fetch_add(1, Ordering::Relaxed);
        format!("this server has {} connections, and no more are allowed", self.most_sockets)
    }

    fn user(&self, name: Option<&str>) -> Arc<ServedUser> {
        let mut users = locked(&self.users);
        let user = users.entry(name.map(str::to_owned)).or_insert_with(|| {
            let (environment, ended) = (self.environment.clone(), self.ended.clone());
            let sessions = match name {
                None => Sessions::new(environment, ended),
                Some(name) => Sessions::of_user(environment, ended, name),
            };
            let (workspace, exec) = (self.settings.workspace.clone(), self.settings.exec.clone().into());
            // Nobody else sets it.
            sessions.served.set(ServedPlaces { workspace, exec, account: self.account(name) }).ok();
            let most = &self.settings.limits;
            let limits =
                UserLimits { sessions: most.sessions, user_sessions: most.user_sessions, user_turns: most.user_turns };
            let tasks = (sessions.tasks.clone(), self.ended.clone());
            let hosted = Hosted::new((self.settings.grace, limits), self.meters.clone(), self.draining.clone(), tasks);
            Arc::new(ServedUser { sessions, hosted, connections: Arc::default(), unfinished: Arc::default() })
        });
        user.clone()
    }

    /// Whether somebody may change what belongs to the account. Whoever has no name of their own is the account.
    fn account(&self, user: Option<&str>) -> AccountAccess {
        let Some(user) = user else { return AccountAccess::Allowed };
        match self.settings.account_users.iter().any(|allowed| allowed == "*" || allowed == user) {
            true => AccountAccess::Allowed,
            false => AccountAccess::Denied { user: user.into() },
        }
    }

    /// The sessions of nobody in particular.
    pub fn own_sessions(self: &Arc<Self>) -> Arc<Sessions> {
        self.user(None).sessions.clone()
    }

    /// Lets turns end at their next step.
    pub fn leave(&self) {
        for user in self.users() {
            user.sessions.leaving.cancel();
        }
    }

    fn users(&self) -> Vec<Arc<ServedUser>> {
        locked(&self.users).values().cloned().collect()
    }

    /// How many prompts are worked on or wait.
    pub fn turns(&self) -> usize {
        self.users().iter().map(|user| user.hosted.turns()).sum()
    }

    /// Does something that is waited for at the end.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        base::task::spawn_in(&self.tasks, work);
    }

    /// Lets nothing new begin, and waits until what runs has ended.
    pub async fn drain(&self) {
        self.draining.cancel();
        loop {
            let over = self.meters.over.notified();
            tokio::pin!(over);
            // Whether one was the last is looked at once the end of any other would be heard.
            over.as_mut().enable();
            if self.turns() == 0 {
                return;
            }
            over.await;
        }
    }

    /// Waits until everything that was kept is kept.
    pub async fn finish(&self) {
        const GRACE: Duration = Duration::from_secs(5);
        self.ended.cancel();
        self.tasks.close();
        if tokio::time::timeout(GRACE, self.tasks.wait()).await.is_err() {
            tracing::warn!("a connection did not end in time; leaving it");
        }
        for user in self.users() {
            user.sessions.finish().await;
        }
    }

    /// What is counted, in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        let mut out = String::new();
        let mut gauge = |name: &str, kind: &str, help: &str, value: usize| {
            write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n").ok();
        };
        let users = self.users();
        let (sessions, waiting) = users.iter().fold((0, 0), |(all, away), user| {
            let (open, waits) = user.hosted.sessions();
            (all + open, away + waits)
        });
        let now = self.connections.load(Ordering::Relaxed);
        gauge("adjutant_connections", "gauge", "Connections that are open.", now);
        let opened = self.opened.load(Ordering::Relaxed);
        let sockets = self.sockets.load(Ordering::Relaxed);
        gauge("adjutant_sockets", "gauge", "Sockets that are open, whatever is said over them.", sockets);
        gauge("adjutant_connections_total", "counter", "Connections that were opened.", opened);
        let refused = self.refused.load(Ordering::Relaxed);
        gauge("adjutant_connections_refused_total", "counter", "Connections beyond a limit.", refused);
        gauge("adjutant_sessions", "gauge", "Sessions that are open.", sessions);
        gauge("adjutant_sessions_waiting", "gauge", "Open sessions whose editor is away.", waiting);
        gauge("adjutant_turns", "gauge", "Prompts that are worked on or wait.", self.turns());
        gauge("adjutant_users", "gauge", "Users who have connected.", users.len());
        gauge(
            "adjutant_draining",
            "gauge",
            "Whether the server is about to stop.",
            usize::from(self.draining.is_cancelled()),
        );
        for number in store_numbers(&users) {
            let StoreNumber { name, kind, help, value } = number;
            write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n").ok();
        }
        self.meters.write(&mut out);
        out
    }

    /// Whether sessions can be opened; the reason where not.
    ///
    /// # Errors
    /// In words for whoever watches over it.
    pub fn ready(&self) -> Result<(), String> {
        if self.draining.is_cancelled() {
            return Err("about to stop".into());
        }
        match &self.environment.temporary {
            Some(why) => Err(format!("sessions are kept in a temporary directory only: {why}")),
            None => Ok(()),
        }
    }
}

/// How many sockets may be open: as many as the settings say, but no more than half of the files that this process may
/// open. The others are for what turns do.
fn most_sockets(wanted: usize) -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let half = files.and_then(|files| usize::try_from(files / 2).ok()).unwrap_or(usize::MAX);
    if half < wanted {
        tracing::warn!(
            "serve.limits.connections is {wanted}, and {half} are served: this process may open twice as many files (ulimit -n, LimitNOFILE)"
        );
    }
    wanted.min(half)
}

/// What the stores of all users have counted together.
fn store_numbers(users: &[Arc<ServedUser>]) -> Vec<StoreNumber> {
    let mut all = StoreMeters::default().read();
    for user in users {
        for (sum, number) in all.iter_mut().zip(user.sessions.store.numbers()) {
            sum.value += number.value;
        }
    }
    all
}
