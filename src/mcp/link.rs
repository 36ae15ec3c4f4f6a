//! What a session, and the tools of a server, know of its connection: it may break off and come back under
//! them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleClient};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::kept::KeptLogin;
use crate::lock::locked;
use crate::tool::AnyTool;

/// How many failures in a row rest a server.
pub(super) const FAILURES: u32 = 3;
/// How long it rests before a turn may try it again.
pub(super) const REST: Duration = Duration::from_secs(300);
/// How many calls may be told of progress at once; what is said about others is lost.
const WATCHED: usize = 256;

/// One server's connection, as everybody but its keeper sees it.
pub(super) struct Link {
    pub name: String,
    /// How long starting and listing may take.
    pub limit: Duration,
    /// How long a call may take without a word.
    pub call_limit: Duration,
    /// Where a login is kept, if it may have one, and the command that makes one.
    pub login: Option<(KeptLogin, String)>,
    state: watch::Sender<ServerState>,
    /// Somebody wants it back.
    wake: Notify,
    /// How often it has said that its lists have changed.
    changes: watch::Sender<u64>,
    /// A call has succeeded since it was last counted.
    useful: AtomicBool,
    // A leaf lock around a map: who wants to hear of which call's progress.
    progress: Mutex<HashMap<ProgressToken, watch::Sender<Option<ProgressNotificationParam>>>>,
}

#[derive(Clone)]
pub(super) enum ServerState {
    /// With what it offered before it broke off.
    Starting(Option<Arc<ReadyServer>>),
    Ready(Arc<ReadyServer>),
    Failed(Arc<Breakdown>),
}

/// A server that works.
pub(super) struct ReadyServer {
    pub peer: Peer<RoleClient>,
    pub offered: Vec<OfferedTool>,
    pub instructions: Option<String>,
    /// It has more tools than are offered.
    pub cut: bool,
    /// How many changes of its lists are in this one.
    pub changes: u64,
}

/// A tool of a server.
pub(super) struct OfferedTool {
    /// What the server calls it.
    pub own: String,
    pub tool: Arc<dyn AnyTool>,
}

/// A server that does not.
pub(super) struct Breakdown {
    pub trouble: Trouble,
    /// Why, in a few words that follow "it does not work:".
    pub why: String,
    /// What it wrote to its standard error.
    pub wrote: String,
    /// What it offered before.
    pub last: Option<Arc<ReadyServer>>,
    /// Since when.
    pub since: Instant,
    /// When the logins were last changed before it was tried.
    pub logins: Option<SystemTime>,
}

/// What is the matter with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It has never worked.
    Start,
    /// It worked and broke off; the next call starts it again.
    Broke,
    /// It failed again and again, and is left alone for a while.
    Rests,
    /// Nobody is logged in.
    Login,
}

impl Link {
    pub(super) fn new(
        name: &str,
        limit: Duration,
        call_limit: Duration,
        login: Option<(KeptLogin, String)>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            limit,
            call_limit,
            login,
            state: watch::Sender::new(ServerState::Starting(None)),
            wake: Notify::new(),
            changes: watch::Sender::new(0),
            useful: AtomicBool::new(false),
            progress: Mutex::default(),
        })
    }

    /// How it is now.
    pub(super) fn state(&self) -> ServerState {
        self.state.borrow().clone()
    }

    pub(super) fn watch(&self) -> watch::Receiver<ServerState> {
        self.state.subscribe()
    }

    pub(super) fn set(&self, state: ServerState) {
        self.state.send_replace(state);
    }

    /// What it offers: also while it is on its way back.
    pub(super) fn offers(&self) -> Option<Arc<ReadyServer>> {
        match &*self.state.borrow() {
            ServerState::Ready(ready) => Some(ready.clone()),
            ServerState::Starting(last) => last.clone(),
            ServerState::Failed(breakdown) if breakdown.trouble == Trouble::Broke => breakdown.last.clone(),
            ServerState::Failed(_) => None,
        }
    }

    /// Has it started again.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Has it started again, and shows that it is on its way.
    pub(super) fn restart(&self) {
        let last = self.offers();
        self.set(ServerState::Starting(last));
        self.wake();
    }

    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Whether somebody may have logged in since it broke down.
    pub(super) fn has_new_login(&self, breakdown: &Breakdown) -> bool {
        self.login.as_ref().is_some_and(|(kept, _)| kept.stamp() != breakdown.logins && kept.is_there().is_some())
    }

    /// The server as it works; one that has broken off is started again first.
    ///
    /// # Errors
    /// Why it does not come back.
    pub(super) async fn ready(&self) -> Result<Arc<ReadyServer>, String> {
        let mut state = self.state.subscribe();
        let back = async {
            loop {
                match &*state.borrow_and_update() {
                    ServerState::Ready(ready) if !ready.peer.is_transport_closed() => return Ok(ready.clone()),
                    // Its keeper is about to notice.
                    ServerState::Ready(_) | ServerState::Starting(_) => {}
                    ServerState::Failed(breakdown) if breakdown.trouble == Trouble::Broke => self.wake(),
                    ServerState::Failed(breakdown) => return Err(breakdown.why.clone()),
                }
                if state.changed().await.is_err() {
                    return Err("it has ended".to_owned());
                }
            }
        };
        let late = |_| Err(format!("it did not come back within {} s", self.limit.as_secs_f64()));
        tokio::time::timeout(self.limit, back).await.unwrap_or_else(late)
    }

    /// What became of a server that has broken off, once its keeper knows.
    pub(super) async fn broke(&self) -> String {
        /// Its last words are waited for.
        const KNOWN: Duration = Duration::from_secs(2);
        let mut state = self.state.subscribe();
        let over = |state: &ServerState| match state {
            ServerState::Ready(ready) => !ready.peer.is_transport_closed(),
            ServerState::Starting(_) | ServerState::Failed(_) => true,
        };
        match tokio::time::timeout(KNOWN, state.wait_for(over)).await {
            Ok(Ok(state)) => match &*state {
                ServerState::Failed(breakdown) => breakdown.why.clone(),
                ServerState::Ready(_) | ServerState::Starting(_) => "it is being started again".into(),
            },
            _ => "it has closed the connection".into(),
        }
    }

    /// A call has succeeded: what failed before is forgiven.
    pub(super) fn succeeded(&self) {
        self.useful.store(true, Ordering::Relaxed);
    }

    /// Whether a call has succeeded since this was last asked.
    pub(super) fn was_useful(&self) -> bool {
        self.useful.swap(false, Ordering::Relaxed)
    }

    /// Its lists have changed.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits until the changes it has told of so far are in its lists; returns at once where they are.
    pub(super) async fn listed(&self) {
        let told = *self.changes.borrow();
        let mut state = self.state.subscribe();
        let settled = |state: &ServerState| match state {
            ServerState::Ready(ready) => ready.changes >= told,
            ServerState::Starting(_) | ServerState::Failed(_) => true,
        };
        state.wait_for(settled).await.ok();
    }

    /// What is said about the progress of a call; to be given back with [`Link::leave`].
    pub(super) fn follow(&self, token: &ProgressToken) -> watch::Receiver<Option<ProgressNotificationParam>> {
        let mut all = locked(&self.progress);
        all.entry(token.clone()).or_insert_with(|| watch::Sender::new(None)).subscribe()
    }

    pub(super) fn leave(&self, token: &ProgressToken) {
        locked(&self.progress).remove(token);
    }

    /// A word about a call's progress. It may come before whoever made the call knows its token.
    pub(super) fn progress(&self, said: ProgressNotificationParam) {
        let mut all = locked(&self.progress);
        if all.len() < WATCHED || all.contains_key(&said.progress_token) {
            let token = said.progress_token.clone();
            all.entry(token).or_insert_with(|| watch::Sender::new(None)).send_replace(Some(said));
        }
    }
}
