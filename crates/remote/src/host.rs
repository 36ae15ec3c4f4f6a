//! The state of a serving process: users, their sessions, and the open connections.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use protocol::lines::{Line, Outbox, OutboxReader};
use protocol::negotiate::Versions;
use protocol::rpc::Peer;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::{Admission, Identity};
use super::budget::MessageBudget;
use super::slots::{CountedItem, SocketSlot};
use super::{InFlightEnd, serve_until};
use acp_server::metrics::Metrics;
use acp_server::server::{RemoteClient, Server};
use acp_server::user_sessions::{Liveness, SessionCounts, UserLimits, UserSessions};
use acp_server::{v1, v2};
use base::environment::Environment;
use base::lock::lock;
use base::open_files::FileBudget;
use config::settings::ServeSettings;
use events::bus::{EventFilter, Subscription};
use permission::account::AccountAccess;
use session::{ServingOptions, Sessions, StartTelemetry};
use store::{StoreMetric, StoreMetrics};

/// The state shared by all connections of a serving process.
pub struct Host {
    pub settings: ServeSettings,
    pub admission: Admission,
    /// Cancelled when no new turn may begin.
    pub draining: CancellationToken,
    /// Cancelled at the end of the process.
    pub ended: CancellationToken,
    /// Version 2 of the protocol is offered to clients that request it.
    draft: bool,
    environment: Environment,
    /// Set if this process can export traces and metrics.
    pub telemetry: OnceLock<StartTelemetry>,
    metrics: Arc<Metrics>,
    // A std mutex around a map: a leaf lock, never held across an await.
    users: Mutex<HashMap<Option<String>, Arc<ServedUser>>>,
    connections: Arc<AtomicUsize>,
    /// The number of open sockets, whatever their protocol, and its maximum.
    sockets: Arc<AtomicUsize>,
    max_sockets: usize,
    /// The number of sockets beyond the maximum that get an error response, or serve monitoring.
    pub spare_sockets: usize,
    /// The bytes of incomplete messages.
    unfinished: Arc<AtomicUsize>,
    opened: AtomicUsize,
    refused: AtomicUsize,
    tasks: TaskTracker,
}

/// A user, whose sessions are separate from all others. The clients without a user name are one
/// user too.
struct ServedUser {
    sessions: Arc<Sessions>,
    user_sessions: Arc<UserSessions<Server>>,
    connections: Arc<AtomicUsize>,
    unfinished: Arc<AtomicUsize>,
}

/// A connection, for the transport that carries its messages.
pub struct Connection {
    pub id: String,
    /// The messages of the client. Dropping the sender ends the connection.
    pub lines: mpsc::Sender<Line>,
    /// The messages for the client.
    pub outgoing: OutboxReader,
    pub liveness: Arc<Liveness>,
    /// The budget for incomplete messages.
    pub budget: MessageBudget,
    /// Cancelled when the connection is to end.
    pub ended: CancellationToken,
    /// Cancelled when the whole process is about to stop.
    pub draining: CancellationToken,
}

/// A stream of events that a client reads. It counts as a connection of its user.
pub struct Watch {
    pub events: Subscription,
    pub places: [CountedItem; 2],
    pub ended: CancellationToken,
}

impl Host {
    /// Creates a host for a server that listens at an address.
    ///
    /// # Errors
    /// These settings do not allow a server at that address.
    pub fn new(
        environment: Environment,
        settings: ServeSettings,
        listen: SocketAddr,
        draft: bool,
        ended: CancellationToken,
    ) -> Result<Arc<Self>, String> {
        let admission = Admission::new(&settings, listen)?;
        let wanted = u64::try_from(settings.limits.connections).unwrap_or(u64::MAX);
        let budget = base::open_files::serve(wanted);
        Ok(Arc::new(Self {
            admission,
            draining: CancellationToken::new(),
            ended,
            draft,
            environment,
            telemetry: OnceLock::new(),
            metrics: Arc::default(),
            users: Mutex::default(),
            connections: Arc::default(),
            sockets: Arc::default(),
            max_sockets: max_sockets(settings.limits.connections, &budget),
            spare_sockets: usize::try_from(budget.spare_sockets).unwrap_or(usize::MAX),
            unfinished: Arc::default(),
            settings,
            opened: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            tasks: TaskTracker::new(),
        }))
    }

    /// Opens a connection for an admitted client.
    ///
    /// # Errors
    /// There are too many connections; the message is for the user.
    pub fn connect(self: &Arc<Self>, identity: &Identity) -> Result<Connection, String> {
        let user = self.user(identity.user.as_deref());
        let places = self.places(&user)?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        let (outbox, outgoing) = Outbox::without_thread();
        let (lines, input) = mpsc::channel(4);
        let peer = Peer::new(outbox);
        let ended = self.ended.child_token();
        let liveness = Arc::<Liveness>::default();
        let server = |view| {
            let remote = Some(RemoteClient {
                user_sessions: user.user_sessions.clone(),
                roots: identity.roots.clone(),
                liveness: liveness.clone(),
            });
            Server::with_remote_client(
                user.sessions.clone(),
                peer.clone(),
                ended.clone(),
                view,
                remote,
            )
        };
        let first = server(v1::new_view);
        let second = self.draft.then(|| server(v2::new_view));
        let versions = Versions::new(v1::table(&first), second.as_ref().map(v2::table));
        let over = ended.clone();
        let process = self.ended.clone();
        base::task::spawn_in(&self.tasks, async move {
            serve_until(&versions, input, &peer, &over, InFlightEnd::GoOn(&process)).await;
            for server in std::iter::once(first).chain(second) {
                server.disconnect();
            }
            drop(places);
        });
        let id = self.environment.fresh("con_");
        tracing::info!("{} has opened connection {id}", identity.name);
        let budget = self.budget(identity);
        Ok(Connection {
            id,
            lines,
            outgoing,
            liveness,
            budget,
            ended,
            draining: self.draining.clone(),
        })
    }

    /// Subscribes an admitted client to the events of its user's sessions.
    ///
    /// # Errors
    /// There are too many connections; the message is for the user.
    pub fn watch(
        self: &Arc<Self>,
        identity: &Identity,
        filter: EventFilter,
        after: Option<&str>,
    ) -> Result<Watch, String> {
        let user = self.user(identity.user.as_deref());
        let places = self.places(&user)?;
        let bus = &user.sessions.events;
        let events = match after {
            Some(after) => bus.subscribe_after(filter, after),
            None => bus.subscribe(filter),
        };
        Ok(Watch {
            events,
            places,
            ended: self.ended.clone(),
        })
    }

    /// Counts one more connection, of the process and of its user.
    fn places(&self, user: &ServedUser) -> Result<[CountedItem; 2], String> {
        let limits = &self.settings.limits;
        let full = |most: usize, whose: &str| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            format!("{whose} has {most} connections, which is the limit")
        };
        if self.draining.is_cancelled() {
            return Err("this server is about to stop".into());
        }
        let all = CountedItem::try_count(&self.connections, limits.connections);
        let all = all.ok_or_else(|| full(limits.connections, "this server"))?;
        let own = CountedItem::try_count(&user.connections, limits.user_connections);
        let own = own.ok_or_else(|| full(limits.user_connections, "the user"))?;
        Ok([all, own])
    }

    /// Returns the budget for a user's incomplete messages.
    pub fn budget(&self, identity: &Identity) -> MessageBudget {
        let user = self.user(identity.user.as_deref()).unfinished.clone();
        MessageBudget::new(
            user,
            self.unfinished.clone(),
            self.settings.limits.message_bytes,
        )
    }

    /// Returns a place for a socket, or `None` if the maximum is reached.
    pub fn socket(&self) -> Option<SocketSlot> {
        let slot = CountedItem::try_count(&self.sockets, self.max_sockets)?;
        Some(Arc::new(slot))
    }

    /// Counts a refused socket, and returns the message for its client.
    pub fn full(&self) -> String {
        self.refused.fetch_add(1, Ordering::Relaxed);
        format!(
            "this server has {} connections, which is the limit",
            self.max_sockets
        )
    }

    fn user(&self, name: Option<&str>) -> Arc<ServedUser> {
        let mut users = lock(&self.users);
        let user = users.entry(name.map(str::to_owned)).or_insert_with(|| {
            let environment = self.environment.clone();
            let ended = self.ended.clone();
            let sessions = match name {
                None => Sessions::new(environment, ended),
                Some(name) => Sessions::for_user(environment, ended, name),
            };
            let served = ServingOptions {
                workspace_command: self.settings.workspace.clone(),
                command_prefix: self.settings.exec.clone().into(),
                account: self.account(name),
            };
            // A client that was cut off continues, also one of the server before this one.
            sessions.events.keep_history();
            if let Some(start) = self.telemetry.get() {
                sessions.telemetry.set(start.clone()).ok();
            }
            // The only place that sets it.
            sessions.serving_options.set(served).ok();
            let most = &self.settings.limits;
            let limits = UserLimits {
                connection_sessions: most.sessions,
                user_sessions: most.user_sessions,
                user_turns: most.user_turns,
            };
            let user_sessions = UserSessions::new(
                self.settings.grace,
                limits,
                self.metrics.clone(),
                self.draining.clone(),
                sessions.tasks.clone(),
                self.ended.clone(),
            );
            Arc::new(ServedUser {
                sessions,
                user_sessions,
                connections: Arc::default(),
                unfinished: Arc::default(),
            })
        });
        user.clone()
    }

    /// Returns whether a user may change the account. A client without a user name is the owner of
    /// the account.
    fn account(&self, user: Option<&str>) -> AccountAccess {
        let Some(user) = user else {
            return AccountAccess::Allowed;
        };
        if self
            .settings
            .account_users
            .iter()
            .any(|allowed| allowed == "*" || allowed == user)
        {
            AccountAccess::Allowed
        } else {
            AccountAccess::Denied { user: user.into() }
        }
    }

    /// Returns the sessions of the clients without a user name.
    pub fn own_sessions(self: &Arc<Self>) -> Arc<Sessions> {
        self.user(None).sessions.clone()
    }

    /// Ends all turns at their next step.
    pub fn leave(&self) {
        for user in self.users() {
            user.sessions.exit_requested.cancel();
        }
    }

    fn users(&self) -> Vec<Arc<ServedUser>> {
        lock(&self.users).values().cloned().collect()
    }

    /// Returns the number of prompts that run or wait.
    pub fn turns(&self) -> usize {
        self.users()
            .iter()
            .map(|user| user.user_sessions.turn_count())
            .sum()
    }

    /// Spawns work that [`Host::finish`] waits for.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        base::task::spawn_in(&self.tasks, work);
    }

    /// Stops accepting new turns, and waits until the running ones have ended.
    pub async fn drain(&self) {
        self.draining.cancel();
        loop {
            let over = self.metrics.turn_finished.notified();
            tokio::pin!(over);
            // Registers for the next end before the check, so that none is missed.
            over.as_mut().enable();
            if self.turns() == 0 {
                return;
            }
            over.await;
        }
    }

    /// Ends all connections, and waits until all sessions are stored.
    pub async fn finish(&self) {
        const CLOSE_GRACE: Duration = Duration::from_secs(5);
        self.ended.cancel();
        self.tasks.close();
        if tokio::time::timeout(CLOSE_GRACE, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("a connection did not end in time; leaving it");
        }
        for user in self.users() {
            user.sessions.finish().await;
        }
    }

    /// Returns the metrics in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        let mut out = String::new();
        let mut gauge = |name: &str, kind: &str, help: &str, value: usize| {
            write!(
                out,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
            )
            .ok();
        };
        let users = self.users();
        let (sessions, waiting) = users.iter().fold((0, 0), |(all, away), user| {
            let SessionCounts { open, waiting } = user.user_sessions.count_sessions();
            (all + open, away + waiting)
        });
        let now = self.connections.load(Ordering::Relaxed);
        gauge(
            "adjutant_connections",
            "gauge",
            "Connections that are open.",
            now,
        );
        let opened = self.opened.load(Ordering::Relaxed);
        let sockets = self.sockets.load(Ordering::Relaxed);
        gauge(
            "adjutant_sockets",
            "gauge",
            "Open sockets of all connections.",
            sockets,
        );
        gauge(
            "adjutant_connections_total",
            "counter",
            "Connections that were opened.",
            opened,
        );
        let refused = self.refused.load(Ordering::Relaxed);
        gauge(
            "adjutant_connections_refused_total",
            "counter",
            "Connections beyond a limit.",
            refused,
        );
        gauge(
            "adjutant_sessions",
            "gauge",
            "Sessions that are open.",
            sessions,
        );
        gauge(
            "adjutant_sessions_waiting",
            "gauge",
            "Open sessions whose editor is away.",
            waiting,
        );
        gauge(
            "adjutant_turns",
            "gauge",
            "Prompts that are worked on or wait.",
            self.turns(),
        );
        gauge(
            "adjutant_users",
            "gauge",
            "Users who have connected.",
            users.len(),
        );
        gauge(
            "adjutant_draining",
            "gauge",
            "Whether the server is about to stop.",
            usize::from(self.draining.is_cancelled()),
        );
        for number in store_numbers(&users) {
            let StoreMetric {
                name,
                kind,
                help,
                value,
            } = number;
            write!(
                out,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
            )
            .ok();
        }
        self.metrics.write(&mut out);
        out
    }

    /// Checks that sessions can be opened.
    ///
    /// # Errors
    /// The reason why not, for the operator.
    pub fn ready(&self) -> Result<(), String> {
        if self.draining.is_cancelled() {
            return Err("about to stop".into());
        }
        match &self.environment.temporary {
            Some(why) => Err(format!(
                "sessions are saved in a temporary directory only: {why}"
            )),
            None => Ok(()),
        }
    }
}

/// Returns the maximum number of sockets: that of the settings, but at most their share of the
/// files that this process may open.
fn max_sockets(wanted: usize, budget: &FileBudget) -> usize {
    let share = usize::try_from(budget.sockets).unwrap_or(usize::MAX);
    if share < wanted {
        tracing::warn!(
            "serve.limits.connections is {wanted}, and {share} are served: this process may open {} files, and sessions and turns need the rest (ulimit -n, LimitNOFILE)",
            budget.limit
        );
    }
    wanted.min(share)
}

/// Returns the sums of the counters of all users' stores.
fn store_numbers(users: &[Arc<ServedUser>]) -> Vec<StoreMetric> {
    let mut all = StoreMetrics::default().read();
    for user in users {
        for (sum, number) in all.iter_mut().zip(user.sessions.store.metrics()) {
            sum.value += number.value;
        }
    }
    all
}
