//! Sessions that outlive their connection: the connection of each session of a user, and the
//! sessions that wait for a client to reconnect. Not used on standard input and output, where the
//! process ends with its client.
//!
//! `S` is the connection, of which this module needs only [`ClientConnection`].

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

/// A connection that has sessions.
pub trait ClientConnection<S>: Send + Sync {
    /// Gives up a session, which moves to another connection.
    fn give_up(&self, id: &SessionId) -> Option<LiveSession<S>>;
}

/// A session, as held by a connection.
pub struct LiveSession<S> {
    pub handle: SessionHandle,
    /// The turns of the session that can be observed.
    pub live_turns: Arc<LiveTurns<S>>,
    /// Cancelled when this connection no longer has the session.
    pub here: CancellationToken,
    /// The commands that this connection's client has been sent.
    pub commands: Arc<CommandList>,
    /// The terminals that this connection's client shows.
    pub shown_terminals: Arc<ShownTerminals>,
}

impl<S> Clone for LiveSession<S> {
    fn clone(&self) -> Self {
        Self {
            handle: self.handle.clone(),
            live_turns: self.live_turns.clone(),
            here: self.here.clone(),
            commands: self.commands.clone(),
            shown_terminals: self.shown_terminals.clone(),
        }
    }
}

impl<S> LiveSession<S> {
    /// Creates the entry for a session that was opened.
    pub fn new(handle: SessionHandle, options: Option<OpenOptions>) -> Self {
        // They hold keys, and are not compared.
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
            here: CancellationToken::new(),
            commands: Arc::default(),
            shown_terminals: Arc::default(),
        }
    }

    /// Returns the same session for another connection.
    pub fn moved(self) -> Self {
        Self {
            here: CancellationToken::new(),
            commands: Arc::default(),
            shown_terminals: Arc::default(),
            ..self
        }
    }
}

/// A client that is to be shown a turn from now on.
pub struct Observer<S> {
    pub server: Arc<S>,
    /// The history before the turn is shown too.
    pub history: bool,
    /// Notified when the client has been shown all past events.
    pub shown: oneshot::Sender<()>,
}

/// The turns of a session that run or wait.
pub struct LiveTurns<S> {
    /// The options that the session was opened with, if sessions outlive connections.
    options: Option<OpenOptions>,
    // A std mutex around a map: a leaf lock, never held across an await.
    turns: Mutex<BTreeMap<u64, mpsc::UnboundedSender<Observer<S>>>>,
    /// The number of unanswered questions.
    open_questions: AtomicUsize,
    // A std mutex around a number: a leaf lock. The last known cost of the session.
    cost: Mutex<Option<f64>>,
}

impl<S> LiveTurns<S> {
    /// Registers a turn until the returned value is dropped.
    pub fn enter(self: &Arc<Self>, number: u64) -> ShownTurn<S> {
        // Unbounded, because there is at most one entry for each reconnection.
        let (sender, viewers) = mpsc::unbounded_channel();
        lock(&self.turns).insert(number, sender);
        ShownTurn {
            live_turns: self.clone(),
            number,
            viewers,
        }
    }

    /// Moves all turns to another client, in order, and waits until it has been shown their past
    /// events. Returns whether there was a turn; the first one has also shown the history if that
    /// was requested.
    pub async fn show(&self, server: &Arc<S>, history: bool) -> bool {
        let mut shown = false;
        let turns: Vec<_> = lock(&self.turns).values().cloned().collect();
        for turn in turns {
            let (sender, seen) = oneshot::channel();
            let viewer = Observer {
                server: server.clone(),
                history: history && !shown,
                shown: sender,
            };
            // A turn that has just ended is in the history.
            shown |= turn.send(viewer).is_ok() && seen.await.is_ok();
        }
        shown
    }

    /// Returns whether a turn runs or waits.
    pub fn is_busy(&self) -> bool {
        !lock(&self.turns).is_empty()
    }

    /// Returns whether a turn runs that does not wait for an answer.
    pub fn works(&self) -> bool {
        self.is_busy() && self.open_questions.load(Ordering::Relaxed) == 0
    }

    /// Records the cost of the session so far.
    pub fn set_cost(&self, dollars: f64) {
        *lock(&self.cost) = Some(dollars);
    }

    /// Records the number of questions that wait for a client.
    pub fn set_waiting_questions(&self, questions: usize) {
        self.open_questions.store(questions, Ordering::Relaxed);
    }

    /// Returns whether the session was opened with these options.
    pub fn is_opened_as(&self, options: &OpenOptions) -> bool {
        let plain = |options: &OpenOptions| OpenOptions {
            notices: Vec::new(),
            // Compared by `is_less_strict`; the session may have more.
            denied: Vec::new(),
            asked: Vec::new(),
            // Can be chosen at any time.
            approvals: None,
            // Are replaced when another connection has the session.
            endpoints: EditorEndpoints::default(),
            ..options.clone()
        };
        self.options
            .as_ref()
            .is_some_and(|opened| plain(opened) == plain(options))
    }

    /// Returns whether the session may have permissions that these options deny, or ask about.
    pub fn is_less_strict(&self, options: &OpenOptions) -> bool {
        let Some(opened) = &self.options else {
            return !(options.denied.is_empty() && options.asked.is_empty());
        };
        let is_denied = |denied| opened.denied.contains(denied);
        let is_asked = |asked| opened.asked.contains(asked);
        !(options.denied.iter().all(is_denied) && options.asked.iter().all(is_asked))
    }
}

/// The registration of a turn, removed when this is dropped.
pub struct ShownTurn<S> {
    live_turns: Arc<LiveTurns<S>>,
    number: u64,
    viewers: mpsc::UnboundedReceiver<Observer<S>>,
}

impl<S> ShownTurn<S> {
    /// Waits for a client that wants to observe the turn.
    pub async fn viewer(&mut self) -> Observer<S> {
        match self.viewers.recv().await {
            Some(viewer) => viewer,
            // The session holds the sender as long as this exists.
            None => std::future::pending().await,
        }
    }

    pub fn set_waiting_questions(&self, questions: usize) {
        self.live_turns.set_waiting_questions(questions);
    }

    /// Returns the increase of the session's cost since the last call, or 0 if it is unknown.
    pub fn cost_increase(&self, cost: Option<f64>) -> f64 {
        let Some(now) = cost else { return 0.0 };
        let before = lock(&self.live_turns.cost).replace(now);
        before.map_or(0.0, |before| now - before)
    }
}

impl<S> Drop for ShownTurn<S> {
    fn drop(&mut self) {
        lock(&self.live_turns.turns).remove(&self.number);
        self.live_turns.set_waiting_questions(0);
    }
}

/// The liveness of a client: a connection may break without a notice.
#[derive(Debug)]
pub struct Liveness {
    beats: watch::Sender<u64>,
    requests: Notify,
}

impl Default for Liveness {
    fn default() -> Self {
        Self {
            beats: watch::Sender::new(0),
            requests: Notify::new(),
        }
    }
}

impl Liveness {
    /// The time that a client has to answer.
    const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

    /// Records that the client has sent something.
    pub fn record_sign_of_life(&self) {
        self.beats
            .send_modify(|beats| *beats = beats.wrapping_add(1));
    }

    /// Waits until another connection asks for a sign of life.
    pub async fn requested(&self) {
        self.requests.notified().await;
    }

    /// Asks the client for a sign of life, and returns whether there is one.
    pub async fn answers(&self) -> bool {
        let mut beats = self.beats.subscribe();
        self.requests.notify_one();
        tokio::time::timeout(Self::ANSWER_TIMEOUT, beats.changed())
            .await
            .is_ok()
    }
}

/// The limits of a user.
#[derive(Debug, Clone, Copy)]
pub struct UserLimits {
    /// The maximum number of open sessions of a connection.
    pub sessions: usize,
    /// The maximum number of open sessions of the user.
    pub user_sessions: usize,
    /// The maximum number of the user's prompts that run or wait.
    pub user_turns: usize,
}

/// The sessions of one user in this process.
pub struct Hosted<S> {
    // A std mutex around a map: a leaf lock, never held across an await.
    places: Mutex<HashMap<SessionId, SessionPlace<S>>>,
    /// The time that a session waits for its client.
    grace: Duration,
    pub limits: UserLimits,
    turns: Arc<AtomicUsize>,
    /// Cancelled when no new turn may begin.
    pub draining: CancellationToken,
    pub metrics: Arc<Metrics>,
    tasks: TaskTracker,
    ended: CancellationToken,
}

enum SessionPlace<S> {
    With(Weak<S>),
    /// The client has disconnected. The token is cancelled when the session is taken.
    Waiting(Box<LiveSession<S>>, CancellationToken),
}

/// The place of a session. A waiting session now belongs to the caller.
pub enum FoundSession<S> {
    Nowhere,
    Waiting(Box<LiveSession<S>>),
    With(Arc<S>),
}

pub struct TurnCount {
    turns: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
}

impl Drop for TurnCount {
    fn drop(&mut self) {
        self.turns.fetch_sub(1, Ordering::Relaxed);
        self.metrics.turn_finished.notify_waiters();
    }
}

impl<S: ClientConnection<S> + 'static> Hosted<S> {
    /// The interval at which a session without a client is checked for the end of its turn.
    const TURN_CHECK_INTERVAL: Duration = Duration::from_secs(5);

    pub fn new(
        (grace, limits): (Duration, UserLimits),
        metrics: Arc<Metrics>,
        draining: CancellationToken,
        (tasks, ended): (TaskTracker, CancellationToken),
    ) -> Arc<Self> {
        Arc::new(Self {
            places: Mutex::default(),
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
        lock(&self.places).insert(id.clone(), SessionPlace::With(Arc::downgrade(server)));
    }

    /// Records that a session is closed.
    pub fn unregister(&self, id: &SessionId) {
        lock(&self.places).remove(id);
    }

    /// Lets a session wait for its client. If the client does not return within the grace period,
    /// the session is closed, or after its turn if one runs.
    pub fn wait(self: &Arc<Self>, live: LiveSession<S>) {
        live.here.cancel();
        if self.grace.is_zero() || self.ended.is_cancelled() {
            self.unregister(&live.handle.id);
            // Dropping the last handle closes the session.
            return;
        }
        let id = live.handle.id.clone();
        let live_turns = live.live_turns.clone();
        let found = CancellationToken::new();
        lock(&self.places).insert(
            id.clone(),
            SessionPlace::Waiting(Box::new(live), found.clone()),
        );
        let this = self.clone();
        base::task::spawn_in(&self.tasks, async move {
            let over = async {
                tokio::time::sleep(this.grace).await; // the grace period itself
                while live_turns.works() {
                    tokio::time::sleep(Self::TURN_CHECK_INTERVAL).await; // the end of a turn is not reported here
                }
            };
            tokio::select! {
                () = over => {}
                () = found.cancelled() => return,
                () = this.ended.cancelled() => {}
            }
            if let FoundSession::Waiting(live) = this.find(&id) {
                tracing::info!("session {id} is closed: no client reconnected");
                this.unregister(&id);
                live.handle.close().await;
            }
        });
    }

    pub fn find(&self, id: &SessionId) -> FoundSession<S> {
        let mut places = lock(&self.places);
        match places.remove(id) {
            None => FoundSession::Nowhere,
            Some(SessionPlace::Waiting(live, found)) => {
                found.cancel();
                FoundSession::Waiting(live)
            }
            Some(SessionPlace::With(server)) => match server.upgrade() {
                Some(there) => {
                    places.insert(id.clone(), SessionPlace::With(server));
                    FoundSession::With(there)
                }
                None => FoundSession::Nowhere,
            },
        }
    }

    /// Takes a session that waits for its client. Leaves any other session in place.
    pub fn take_waiting(&self, id: &SessionId) -> Option<LiveSession<S>> {
        match self.find(id) {
            FoundSession::Waiting(live) => Some(*live),
            FoundSession::With(_) | FoundSession::Nowhere => None,
        }
    }

    /// Returns the number of the user's open sessions, and the number of those that wait for a
    /// client.
    pub fn sessions(&self) -> (usize, usize) {
        let mut places = lock(&self.places);
        places.retain(
            |_, entry| !matches!(entry, SessionPlace::With(server) if server.strong_count() == 0),
        );
        let waiting = places
            .values()
            .filter(|entry| matches!(entry, SessionPlace::Waiting(..)))
            .count();
        (places.len(), waiting)
    }

    /// Returns the number of prompts that run or wait.
    pub fn turns(&self) -> usize {
        self.turns.load(Ordering::Relaxed)
    }

    /// Counts a prompt. Returns `None` if there are too many.
    pub fn turn(&self) -> Option<TurnCount> {
        let most = self.limits.user_turns;
        let counted = self
            .turns
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < most).then_some(n + 1)
            });
        counted.ok()?;
        Some(TurnCount {
            turns: self.turns.clone(),
            metrics: self.metrics.clone(),
        })
    }
}
