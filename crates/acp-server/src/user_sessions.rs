//! [`UserSessions`], the open sessions of one user of `adjutant serve`. They outlive their
//! connections: it knows the connection of each session, and holds the sessions whose client has
//! disconnected until it reconnects or a grace period ends. It also has the limits of the user. not
//! used on standard input and output, because the process ends with its client there.
//!
//! [`LiveSession`] is an open session as its connection has it. [`LiveTurns`] passes the session's
//! running turns on to another client (an [`Observer`]).
//!
//! `S` is the type of a connection, of which this module needs only [`ClientConnection`].

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::command_list::CommandList;
use super::metrics::Metrics;
use super::tool_call_view::ShownTerminals;
use base::id::SessionId;
use base::lock::lock;
use providers::editor_endpoints::EditorEndpoints;
use session::SessionHandle;
use session::open::OpenOptions;

/// A connection that has open sessions.
pub trait ClientConnection<S>: Send + Sync {
    /// Gives up a session, which moves to another connection. Returns `None` if this connection
    /// does not have it.
    fn give_up(&self, id: &SessionId) -> Option<LiveSession<S>>;
}

/// An open session, with the state that belongs to the connection that has it.
pub struct LiveSession<S> {
    pub handle: SessionHandle,
    /// The turns of the session that run or wait. They move with the session.
    pub live_turns: Arc<LiveTurns<S>>,
    /// Cancelled when this connection no longer has the session.
    pub released: CancellationToken,
    /// The commands that were sent to this connection's client.
    pub commands: Arc<CommandList>,
    /// The terminals that this connection's client shows.
    pub shown_terminals: Arc<ShownTerminals>,
}

impl<S> Clone for LiveSession<S> {
    fn clone(&self) -> Self {
        Self {
            handle: self.handle.clone(),
            live_turns: self.live_turns.clone(),
            released: self.released.clone(),
            commands: self.commands.clone(),
            shown_terminals: self.shown_terminals.clone(),
        }
    }
}

impl<S> LiveSession<S> {
    /// Creates the entry for a session that was opened with `options`, which are `None` if the
    /// session cannot outlive its connection.
    pub fn new(handle: SessionHandle, options: Option<OpenOptions>) -> Self {
        // The endpoints contain keys, and are not compared.
        let without_endpoints = |options| OpenOptions {
            endpoints: EditorEndpoints::default(),
            ..options
        };
        // The past cost of a stored session is unknown.
        let live_turns = LiveTurns {
            options: options.map(without_endpoints),
            turns: Mutex::default(),
            open_questions: AtomicUsize::new(0),
            cost: Mutex::default(),
        };
        Self {
            handle,
            live_turns: Arc::new(live_turns),
            released: CancellationToken::new(),
            commands: Arc::default(),
            shown_terminals: Arc::default(),
        }
    }

    /// Returns the same session for another connection, with nothing sent to its client yet.
    pub fn for_other_connection(self) -> Self {
        Self {
            released: CancellationToken::new(),
            commands: Arc::default(),
            shown_terminals: Arc::default(),
            ..self
        }
    }
}

/// A request to show a turn to another client from now on.
pub struct Observer<S> {
    /// The connection of that client.
    pub server: Arc<S>,
    /// The client is shown the history before the turn too.
    pub wants_history: bool,
    /// Notified when the client was sent all past events of the turn.
    pub caught_up: oneshot::Sender<()>,
}

/// The turns of a session that run or wait.
pub struct LiveTurns<S> {
    /// The options that the session was opened with, if sessions outlive connections.
    options: Option<OpenOptions>,
    // A std mutex around a map: a leaf lock, never held across an await.
    /// The receiver of observers of each turn, by the number of the turn.
    turns: Mutex<BTreeMap<u64, mpsc::UnboundedSender<Observer<S>>>>,
    /// The number of questions that wait for a client to reconnect.
    open_questions: AtomicUsize,
    // A std mutex around a number: a leaf lock.
    /// The last known cost of the session in US dollars.
    cost: Mutex<Option<f64>>,
}

impl<S> LiveTurns<S> {
    /// Registers a turn until the returned value is dropped. `number` is its number in the session.
    pub fn register(self: &Arc<Self>, number: u64) -> RegisteredTurn<S> {
        // Unbounded, because there is at most one entry for each reconnection.
        let (sender, observers) = mpsc::unbounded_channel();
        lock(&self.turns).insert(number, sender);
        RegisteredTurn {
            live_turns: self.clone(),
            number,
            observers,
        }
    }

    /// Moves all turns to another client, in order, and waits until it was sent their past events.
    /// If it `wants_history`, the first turn sends the history before its own events. Returns
    /// `false` if no turn runs; then the caller sends the history.
    pub async fn show_to(&self, server: &Arc<S>, wants_history: bool) -> bool {
        let mut shown = false;
        let turns: Vec<_> = lock(&self.turns).values().cloned().collect();
        for turn in turns {
            let (caught_up, done) = oneshot::channel();
            let observer = Observer {
                server: server.clone(),
                wants_history: wants_history && !shown,
                caught_up,
            };
            // A turn that has just ended is in the history.
            shown |= turn.send(observer).is_ok() && done.await.is_ok();
        }
        shown
    }

    /// Returns whether a turn runs or waits.
    pub fn is_busy(&self) -> bool {
        !lock(&self.turns).is_empty()
    }

    /// Returns whether a turn runs that does not wait for an answer.
    pub fn is_working(&self) -> bool {
        self.is_busy() && self.open_questions.load(Ordering::Relaxed) == 0
    }

    /// Records the cost of the session so far, in US dollars.
    pub fn set_cost(&self, dollars: f64) {
        *lock(&self.cost) = Some(dollars);
    }

    /// Records the number of questions that wait for a client to reconnect.
    pub fn set_waiting_questions(&self, questions: usize) {
        self.open_questions.store(questions, Ordering::Relaxed);
    }

    /// Returns whether the session was opened with these options. Ignores those that can change
    /// while it is open.
    pub fn was_opened_with(&self, options: &OpenOptions) -> bool {
        let without_changeable = |options: &OpenOptions| OpenOptions {
            notices: Vec::new(),
            // `is_less_strict` compares these. The session may have more of them.
            denied: Vec::new(),
            asked: Vec::new(),
            // The user can choose them at any time.
            approvals: None,
            // They are replaced when another connection has the session.
            endpoints: EditorEndpoints::default(),
            ..options.clone()
        };
        self.options
            .as_ref()
            .is_some_and(|opened| without_changeable(opened) == without_changeable(options))
    }

    /// Returns whether the session may have permissions that these options deny, or that they ask
    /// about.
    pub fn is_less_strict(&self, options: &OpenOptions) -> bool {
        let Some(opened) = &self.options else {
            return !(options.denied.is_empty() && options.asked.is_empty());
        };
        let is_denied = |denied| opened.denied.contains(denied);
        let is_asked = |asked| opened.asked.contains(asked);
        !(options.denied.iter().all(is_denied) && options.asked.iter().all(is_asked))
    }
}

/// A turn that other clients can observe. Dropping this removes it from [`LiveTurns`].
pub struct RegisteredTurn<S> {
    live_turns: Arc<LiveTurns<S>>,
    number: u64,
    observers: mpsc::UnboundedReceiver<Observer<S>>,
}

impl<S> RegisteredTurn<S> {
    /// Waits for a client that wants to observe the turn.
    pub async fn next_observer(&mut self) -> Observer<S> {
        match self.observers.recv().await {
            Some(observer) => observer,
            // The session holds the sender as long as this exists.
            None => std::future::pending().await,
        }
    }

    /// Records the number of questions that wait for a client to reconnect.
    pub fn set_waiting_questions(&self, questions: usize) {
        self.live_turns.set_waiting_questions(questions);
    }

    /// Records the session's present cost, and returns its increase since the last call, in US
    /// dollars; 0 if one of the two is unknown.
    pub fn cost_increase(&self, cost: Option<f64>) -> f64 {
        let Some(now) = cost else { return 0.0 };
        let before = lock(&self.live_turns.cost).replace(now);
        before.map_or(0.0, |before| now - before)
    }
}

impl<S> Drop for RegisteredTurn<S> {
    fn drop(&mut self) {
        lock(&self.live_turns.turns).remove(&self.number);
        self.live_turns.set_waiting_questions(0);
    }
}

/// Detects whether a client is still there, because a connection may break without a notice.
/// Another connection asks [`Liveness::is_alive`]; the client's own connection then sends a ping, and
/// records whatever the client sends.
#[derive(Debug)]
pub struct Liveness {
    /// The number of messages that the client has sent.
    messages: watch::Sender<u64>,
    /// Notified when another connection asks.
    requests: Notify,
}

impl Default for Liveness {
    fn default() -> Self {
        Self {
            messages: watch::Sender::new(0),
            requests: Notify::new(),
        }
    }
}

impl Liveness {
    /// The time that a client has to answer.
    const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

    /// Records that the client has sent something.
    pub fn record_sign_of_life(&self) {
        self.messages
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Waits until another connection asks for a sign of life.
    pub async fn wait_for_request(&self) {
        self.requests.notified().await;
    }

    /// Asks the client for a sign of life, and returns whether it sends one within
    /// `Liveness::ANSWER_TIMEOUT`.
    pub async fn is_alive(&self) -> bool {
        let mut messages = self.messages.subscribe();
        self.requests.notify_one();
        tokio::time::timeout(Self::ANSWER_TIMEOUT, messages.changed())
            .await
            .is_ok()
    }
}

/// The limits of a user.
#[derive(Debug, Clone, Copy)]
pub struct UserLimits {
    /// The maximum number of open sessions of a connection.
    pub connection_sessions: usize,
    /// The maximum number of open sessions of the user, on all connections.
    pub user_sessions: usize,
    /// The maximum number of the user's prompts that run or wait.
    pub user_turns: usize,
}

/// The open sessions of one user in this process, on all connections.
pub struct UserSessions<S> {
    // A std mutex around a map: a leaf lock, never held across an await.
    owners: Mutex<HashMap<SessionId, SessionOwner<S>>>,
    /// The time that a session waits for its client to reconnect.
    grace: Duration,
    pub limits: UserLimits,
    /// The number of prompts that run or wait.
    turns: Arc<AtomicUsize>,
    /// Cancelled when no new turn may begin, because the server is about to stop.
    pub draining: CancellationToken,
    pub metrics: Arc<Metrics>,
    /// Runs the grace periods.
    tasks: TaskTracker,
    /// Cancelled when the server stops: no session waits any longer.
    ended: CancellationToken,
}

/// The connection that has a session.
enum SessionOwner<S> {
    Connected(Weak<S>),
    /// The client has disconnected. The token is cancelled when the session is taken.
    Waiting(Box<LiveSession<S>>, CancellationToken),
}

/// The result of [`UserSessions::find_or_take`].
pub enum FoundSession<S> {
    /// The session is not open.
    None,
    /// The session waited for its client, and now belongs to the caller.
    Taken(Box<LiveSession<S>>),
    /// This connection has the session.
    Connected(Arc<S>),
}

/// The numbers of a user's sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionCounts {
    /// All open sessions.
    pub open: usize,
    /// Those of them that wait for their client to reconnect.
    pub waiting: usize,
}

/// A prompt that runs or waits. Dropping this ends its count among the user's turns.
pub struct CountedTurn {
    turns: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
}

impl Drop for CountedTurn {
    fn drop(&mut self) {
        self.turns.fetch_sub(1, Ordering::Relaxed);
        self.metrics.turn_finished.notify_waiters();
    }
}

impl<S: ClientConnection<S> + 'static> UserSessions<S> {
    /// The interval at which a session without a client is checked for the end of its turn.
    const TURN_CHECK_INTERVAL: Duration = Duration::from_secs(5);

    /// Creates the entry of a user without sessions. See the fields for the parameters.
    pub fn new(
        grace: Duration,
        limits: UserLimits,
        metrics: Arc<Metrics>,
        draining: CancellationToken,
        tasks: TaskTracker,
        ended: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            owners: Mutex::default(),
            grace,
            limits,
            turns: Arc::default(),
            draining,
            metrics,
            tasks,
            ended,
        })
    }

    /// Records that a connection has a session.
    pub fn register(&self, id: &SessionId, server: &Arc<S>) {
        lock(&self.owners).insert(id.clone(), SessionOwner::Connected(Arc::downgrade(server)));
    }

    /// Records that a session is closed.
    pub fn unregister(&self, id: &SessionId) {
        lock(&self.owners).remove(id);
    }

    /// Holds a session whose client has disconnected. If the client does not reconnect within the
    /// grace period, the session is closed, or after its turn if one runs.
    pub fn hold_for_client(self: &Arc<Self>, live: LiveSession<S>) {
        live.released.cancel();
        if self.grace.is_zero() || self.ended.is_cancelled() {
            self.unregister(&live.handle.id);
            // Dropping the last handle closes the session.
            return;
        }
        let id = live.handle.id.clone();
        let live_turns = live.live_turns.clone();
        let taken = CancellationToken::new();
        lock(&self.owners).insert(
            id.clone(),
            SessionOwner::Waiting(Box::new(live), taken.clone()),
        );
        let this = self.clone();
        base::task::spawn_in(&self.tasks, async move {
            let grace_ended = async {
                tokio::time::sleep(this.grace).await; // the grace period itself
                while live_turns.is_working() {
                    tokio::time::sleep(Self::TURN_CHECK_INTERVAL).await; // the end of a turn is not reported here
                }
            };
            tokio::select! {
                () = grace_ended => {}
                () = taken.cancelled() => return,
                () = this.ended.cancelled() => {}
            }
            if let FoundSession::Taken(live) = this.find_or_take(&id) {
                tracing::info!("session {id} is closed: no client reconnected");
                this.unregister(&id);
                live.handle.close().await;
            }
        });
    }

    /// Returns the connection that has a session, or takes a session that waits for its client.
    pub fn find_or_take(&self, id: &SessionId) -> FoundSession<S> {
        let mut owners = lock(&self.owners);
        match owners.remove(id) {
            None => FoundSession::None,
            Some(SessionOwner::Waiting(live, taken)) => {
                taken.cancel();
                FoundSession::Taken(live)
            }
            Some(SessionOwner::Connected(server)) => match server.upgrade() {
                Some(connection) => {
                    owners.insert(id.clone(), SessionOwner::Connected(server));
                    FoundSession::Connected(connection)
                }
                None => FoundSession::None,
            },
        }
    }

    /// Takes a session that waits for its client. Returns `None`, and changes nothing, if it does
    /// not wait.
    pub fn take_waiting(&self, id: &SessionId) -> Option<LiveSession<S>> {
        match self.find_or_take(id) {
            FoundSession::Taken(live) => Some(*live),
            FoundSession::Connected(_) | FoundSession::None => None,
        }
    }

    /// Counts the user's open sessions.
    pub fn count_sessions(&self) -> SessionCounts {
        let mut owners = lock(&self.owners);
        owners.retain(
            |_, entry| !matches!(entry, SessionOwner::Connected(server) if server.strong_count() == 0),
        );
        let waiting = owners
            .values()
            .filter(|entry| matches!(entry, SessionOwner::Waiting(..)))
            .count();
        SessionCounts {
            open: owners.len(),
            waiting,
        }
    }

    /// Returns the number of prompts that run or wait.
    pub fn turn_count(&self) -> usize {
        self.turns.load(Ordering::Relaxed)
    }

    /// Counts a prompt until the returned value is dropped. Returns `None` if the user has the
    /// maximum number.
    pub fn count_turn(&self) -> Option<CountedTurn> {
        let max_turns = self.limits.user_turns;
        let counted = self
            .turns
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < max_turns).then_some(n + 1)
            });
        counted.ok()?;
        Some(CountedTurn {
            turns: self.turns.clone(),
            metrics: self.metrics.clone(),
        })
    }
}
