//! Sessions that outlive their connection: who has which session of a user, and what waits for an editor to come
//! back. On standard input and output there is none of this: there the process ends with its editor.
//!
//! `S` is the connection. This file knows nothing of one but what [`Holder`] says.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::meters::Meters;
use base::id::SessionId;
use base::lock::locked;
use session::Handle;
use session::open::OpenOptions;

/// A connection that has sessions.
pub trait Holder<S>: Send + Sync {
    /// Gives up a session, which goes on elsewhere.
    fn give_up(&self, id: &SessionId) -> Option<LiveSession<S>>;
}

/// A session as a connection has it.
pub struct LiveSession<S> {
    pub handle: Handle,
    /// Its turns, for whoever wants to be shown them.
    pub live_turns: Arc<LiveTurns<S>>,
    /// Ends when the session is this connection's no longer.
    pub here: CancellationToken,
}

impl<S> Clone for LiveSession<S> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone(), live_turns: self.live_turns.clone(), here: self.here.clone() }
    }
}

impl<S> LiveSession<S> {
    /// One that a connection begins to have.
    pub fn new(handle: Handle, options: Option<OpenOptions>) -> Self {
        // A session that was kept has a past, of which nobody knows what it has cost.
        let live_turns =
            LiveTurns { options, turns: Mutex::default(), asking: AtomicUsize::new(0), cost: Mutex::default() };
        Self { handle, live_turns: Arc::new(live_turns), here: CancellationToken::new() }
    }

    /// The same session, as another connection has it.
    pub fn moved(self) -> Self {
        Self { here: CancellationToken::new(), ..self }
    }
}

/// Somebody who is to be shown a turn from now on.
pub struct Viewer<S> {
    pub server: Arc<S>,
    /// What was said before the turn is shown as well.
    pub history: bool,
    /// Told when they have seen all there was.
    pub shown: oneshot::Sender<()>,
}

/// The turns of a session that are shown, or wait to be.
pub struct LiveTurns<S> {
    /// How the session was opened, where that may be asked.
    options: Option<OpenOptions>,
    // A std mutex around a map: a leaf, never held across an await.
    turns: Mutex<BTreeMap<u64, mpsc::UnboundedSender<Viewer<S>>>>,
    /// Questions that nobody has answered.
    asking: AtomicUsize,
    // A std mutex around a number, a leaf: what the session has cost, as it was told last.
    cost: Mutex<Option<f64>>,
}

impl<S> LiveTurns<S> {
    /// Adds a turn, until what is returned is dropped.
    pub fn enter(self: &Arc<Self>, number: u64) -> ShownTurn<S> {
        // Unbounded: one for each time that an editor comes back.
        let (sender, viewers) = mpsc::unbounded_channel();
        locked(&self.turns).insert(number, sender);
        ShownTurn { live_turns: self.clone(), number, viewers }
    }

    /// Has the turns shown to somebody else, in order, until they have seen what there was. Says whether there was
    /// one: it has shown the history too where that was wanted.
    pub async fn show(&self, server: &Arc<S>, history: bool) -> bool {
        let mut shown = false;
        let turns: Vec<_> = locked(&self.turns).values().cloned().collect();
        for turn in turns {
            let (sender, seen) = oneshot::channel();
            let viewer = Viewer { server: server.clone(), history: history && !shown, shown: sender };
            // A turn that has just ended is in the history.
            shown |= turn.send(viewer).is_ok() && seen.await.is_ok();
        }
        shown
    }

    /// Whether a turn runs or waits.
    pub fn is_busy(&self) -> bool {
        !locked(&self.turns).is_empty()
    }

    /// Whether a turn runs that waits for nobody's answer.
    pub fn works(&self) -> bool {
        self.is_busy() && self.asking.load(Ordering::Relaxed) == 0
    }

    /// Says what the session has cost.
    pub fn costs(&self, dollars: f64) {
        *locked(&self.cost) = Some(dollars);
    }

    /// Says how many questions wait for somebody to come back.
    pub fn asks(&self, questions: usize) {
        self.asking.store(questions, Ordering::Relaxed);
    }

    /// Whether the session was opened in this way.
    pub fn is_opened_as(&self, options: &OpenOptions) -> bool {
        let plain = |options: &OpenOptions| OpenOptions { notices: Vec::new(), ..options.clone() };
        self.options.as_ref().is_some_and(|opened| plain(opened) == plain(options))
    }
}

/// A turn among those of its session that are shown; it leaves them when this is dropped.
pub struct ShownTurn<S> {
    live_turns: Arc<LiveTurns<S>>,
    number: u64,
    viewers: mpsc::UnboundedReceiver<Viewer<S>>,
}

impl<S> ShownTurn<S> {
    /// Waits for somebody else who is to be shown the turn.
    pub async fn viewer(&mut self) -> Viewer<S> {
        match self.viewers.recv().await {
            Some(viewer) => viewer,
            // The session has the other end for as long as this is there.
            None => std::future::pending().await,
        }
    }

    pub fn asks(&self, questions: usize) {
        self.live_turns.asks(questions);
    }

    /// How much more the session has cost than it was told last; nothing where that is not known.
    pub fn spent(&self, cost: Option<f64>) -> f64 {
        let Some(now) = cost else { return 0.0 };
        let before = locked(&self.live_turns.cost).replace(now);
        before.map_or(0.0, |before| now - before)
    }
}

impl<S> Drop for ShownTurn<S> {
    fn drop(&mut self) {
        locked(&self.live_turns.turns).remove(&self.number);
        self.live_turns.asks(0);
    }
}

/// Whether an editor is still there: its connection may have gone without a word.
#[derive(Debug)]
pub struct Liveness {
    beats: watch::Sender<u64>,
    asked: Notify,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { beats: watch::Sender::new(0), asked: Notify::new() }
    }
}

impl Liveness {
    /// How long an editor may take to answer.
    const PATIENCE: Duration = Duration::from_secs(2);

    /// Something was heard of it.
    pub fn beat(&self) {
        self.beats.send_modify(|beats| *beats = beats.wrapping_add(1));
    }

    /// Waits until somebody wants to know.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Asks, and says whether it answers.
    pub async fn answers(&self) -> bool {
        let mut beats = self.beats.subscribe();
        self.asked.notify_one();
        tokio::time::timeout(Self::PATIENCE, beats.changed()).await.is_ok()
    }
}

/// How much a user may have.
#[derive(Debug, Clone, Copy)]
pub struct UserLimits {
    /// Open sessions of a connection.
    pub sessions: usize,
    /// Open sessions of the user.
    pub user_sessions: usize,
    /// Prompts of the user that are worked on or wait.
    pub user_turns: usize,
}

/// The sessions of one user of this process.
pub struct Hosted<S> {
    // A std mutex around a map: a leaf, never held across an await.
    places: Mutex<HashMap<SessionId, SessionPlace<S>>>,
    /// How long a session waits for its editor.
    grace: Duration,
    pub limits: UserLimits,
    turns: Arc<AtomicUsize>,
    /// Ends when no new turn may begin.
    pub draining: CancellationToken,
    pub meters: Arc<Meters>,
    tasks: TaskTracker,
    ended: CancellationToken,
}

enum SessionPlace<S> {
    With(Weak<S>),
    /// Its editor is away. Ends when it is not any more.
    Waiting(Box<LiveSession<S>>, CancellationToken),
}

/// Where a session was found. One that waited is whoever's who found it.
pub enum FoundSession<S> {
    Nowhere,
    Waiting(Box<LiveSession<S>>),
    With(Arc<S>),
}

pub struct TurnCount {
    turns: Arc<AtomicUsize>,
    meters: Arc<Meters>,
}

impl Drop for TurnCount {
    fn drop(&mut self) {
        self.turns.fetch_sub(1, Ordering::Relaxed);
        self.meters.over.notify_waiters();
    }
}

impl<S: Holder<S> + 'static> Hosted<S> {
    /// How long it takes until it is looked again whether a turn that works has ended.
    const AGAIN: Duration = Duration::from_secs(5);

    pub fn new(
        (grace, limits): (Duration, UserLimits),
        meters: Arc<Meters>,
        draining: CancellationToken,
        (tasks, ended): (TaskTracker, CancellationToken),
    ) -> Arc<Self> {
        let (places, turns) = (Mutex::default(), Arc::default());
        Arc::new(Self { places, grace, limits, turns, draining, meters, tasks, ended })
    }

    /// A connection has a session.
    pub fn took(&self, id: &SessionId, server: &Arc<S>) {
        locked(&self.places).insert(id.clone(), SessionPlace::With(Arc::downgrade(server)));
    }

    /// Nobody has a session any more, because it is closed.
    pub fn gone(&self, id: &SessionId) {
        locked(&self.places).remove(id);
    }

    /// A session waits for its editor from now on. When that does not come it is closed, unless something is being
    /// done in it: then after that.
    pub fn wait(self: &Arc<Self>, live: LiveSession<S>) {
        live.here.cancel();
        if self.grace.is_zero() || self.ended.is_cancelled() {
            self.gone(&live.handle.id);
            // Its last handle goes: that closes it.
            return;
        }
        let (id, live_turns, found) = (live.handle.id.clone(), live.live_turns.clone(), CancellationToken::new());
        locked(&self.places).insert(id.clone(), SessionPlace::Waiting(Box::new(live), found.clone()));
        let this = self.clone();
        base::task::spawn_in(&self.tasks, async move {
            let over = async {
                tokio::time::sleep(this.grace).await; // the grace period itself
                while live_turns.works() {
                    tokio::time::sleep(Self::AGAIN).await; // nobody is told when a turn ends
                }
            };
            tokio::select! {
                () = over => {}
                () = found.cancelled() => return,
                () = this.ended.cancelled() => {}
            }
            if let FoundSession::Waiting(live) = this.find(&id) {
                tracing::info!("session {id} is closed: nobody came back to it");
                this.gone(&id);
                live.handle.close().await;
            }
        });
    }

    pub fn find(&self, id: &SessionId) -> FoundSession<S> {
        let mut places = locked(&self.places);
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

    /// Takes a session that waits for its editor, and leaves any other where it is.
    pub fn take_waiting(&self, id: &SessionId) -> Option<LiveSession<S>> {
        match self.find(id) {
            FoundSession::Waiting(live) => Some(*live),
            FoundSession::With(_) | FoundSession::Nowhere => None,
        }
    }

    /// How many sessions the user has open, and how many of these wait for their editor.
    pub fn sessions(&self) -> (usize, usize) {
        let mut places = locked(&self.places);
        places.retain(|_, place| !matches!(place, SessionPlace::With(server) if server.strong_count() == 0));
        let waiting = places.values().filter(|place| matches!(place, SessionPlace::Waiting(..))).count();
        (places.len(), waiting)
    }

    /// How many prompts are worked on or wait.
    pub fn turns(&self) -> usize {
        self.turns.load(Ordering::Relaxed)
    }

    /// Counts a prompt, unless there are too many.
    pub fn turn(&self) -> Option<TurnCount> {
        let most = self.limits.user_turns;
        let counted = self.turns.try_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < most).then_some(n + 1));
        counted.ok()?;
        Some(TurnCount { turns: self.turns.clone(), meters: self.meters.clone() })
    }
}
