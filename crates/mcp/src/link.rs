//! What a session, and the tools of a server, know of its connection: it may break off and come back under
//! them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rmcp::model::{ProgressNotificationParam, ProgressToken, Resource, ResourceTemplate};
use rmcp::service::{Peer, RoleClient};
use tokio::sync::{Notify, OnceCell, oneshot, watch};
use tokio::time::Instant;

use super::asker::Asker;
use super::catalog::ServerOffer;
use super::kept::KeptLogin;
use super::memory::CatalogMemory;
use base::lock::locked;
use config::settings::{McpEntry, McpLog};

/// How many failures in a row rest a server.
pub(super) const FAILURES: u32 = 3;
/// How long it rests before a turn may try it again.
pub(super) const REST: Duration = Duration::from_secs(300);
/// How many calls may be told of progress at once; what is said about others is lost.
const WATCHED: usize = 256;
/// How many resources of a server are watched for changes at once.
const SUBSCRIBED: usize = 64;
/// How often a change of one resource is told.
const TOLD: u32 = 20;
/// How many addresses of a server's may be open at once.
const VISITED: usize = 16;
/// How many of a server's questions may wait for the user at once.
const QUESTIONS: usize = 4;

/// What a connection knows of its session.
pub(super) struct About {
    pub roots: Arc<[PathBuf]>,
    /// Somebody is there who can be asked.
    pub attended: bool,
}

/// One server's connection, as everybody but its keeper sees it.
pub(super) struct McpLink {
    pub name: String,
    pub about: Arc<About>,
    /// Its entry allows it to have a model asked.
    pub sampling: bool,
    /// From which severity on it is to tell what it logs.
    pub log: Option<McpLog>,
    /// How long starting and listing may take.
    pub limit: Duration,
    /// How long a call may take without a word.
    pub call_limit: Duration,
    /// Where a login is kept, if it may have one, and the command that makes one.
    pub login: Option<(KeptLogin, String)>,
    /// The file that keeps its list for its next start, if one does.
    pub memory: Option<Arc<CatalogMemory>>,
    /// The offer made of its list of the last start.
    // A leaf lock around a value.
    recalled: Mutex<Option<Arc<ServerOffer>>>,
    state: watch::Sender<ServerState>,
    wake: Notify,
    /// How often it has said that its lists have changed.
    changes: watch::Sender<u64>,
    /// How often it had said so when a call of this turn was made, or when that was last asked after; none before the
    /// first call.
    // A leaf lock around a number.
    called: Mutex<Option<u64>>,
    /// It speaks only the newest protocol, which has no `initialize`; and that has just turned out.
    modern: AtomicBool,
    turned: AtomicBool,
    /// It was ready once since the session knows it.
    worked: AtomicBool,
    /// A call has succeeded since it was last counted.
    useful: AtomicBool,
    // A leaf lock around a map: who wants to hear of which call's progress.
    progress: Mutex<HashMap<ProgressToken, watch::Sender<Option<ProgressNotificationParam>>>>,
    /// Counts what has changed of any server of the session.
    board: watch::Sender<u64>,
    // A leaf lock around a list: the calls that the server works for, the latest last.
    askers: Mutex<Vec<(u64, Asker)>>,
    entered: AtomicU64,
    /// How many questions of the server's wait for the user.
    asking: watch::Sender<usize>,
    /// The user was told that their editor cannot show what the server asks.
    unshown: AtomicBool,
    // A leaf lock around a map: resources that were read, and what is known of their changes.
    subscribed: Mutex<BTreeMap<String, Watched>>,
    // A leaf lock around a list: the addresses the user was shown, by the server's names for them, the latest last.
    visits: Mutex<VecDeque<(String, oneshot::Sender<()>)>>,
}

#[derive(Default)]
struct Watched {
    /// It has changed since it was read, or told of.
    changed: bool,
    /// How often it was told of.
    told: u32,
}

#[derive(Clone)]
pub(super) enum ServerState {
    /// With what it offered before it broke off, or at its last start.
    Starting(Option<Arc<ServerOffer>>),
    Ready(Arc<ReadyServer>),
    Failed(Arc<McpFailure>),
}

pub(super) struct ReadyServer {
    pub peer: Peer<RoleClient>,
    pub offer: Arc<ServerOffer>,
    /// What it has, once somebody has asked.
    pub listed: OnceCell<Arc<Resources>>,
    /// How many changes of its lists are in this one.
    pub changes: u64,
}

#[derive(Default)]
pub(super) struct Resources {
    pub all: Vec<Resource>,
    pub templates: Vec<ResourceTemplate>,
}

pub(super) struct McpFailure {
    pub trouble: Trouble,
    /// Why, in a few words that follow "it does not work:".
    pub why: String,
    /// What it wrote to its standard error.
    pub wrote: String,
    pub last: Option<Arc<ServerOffer>>,
    pub since: Instant,
    /// When the logins were last changed before it was tried.
    pub logins: Option<SystemTime>,
}

/// What is the matter with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    Start,
    /// It worked and broke off; the next call starts it again.
    Broke,
    /// It failed again and again, and is left alone for a while.
    Rests,
    Login,
}

impl McpLink {
    pub(super) fn new(
        entry: &McpEntry,
        call_limit: Duration,
        login: Option<(KeptLogin, String)>,
        memory: Option<Arc<CatalogMemory>>,
        about: Arc<About>,
        board: watch::Sender<u64>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: entry.name.clone(),
            about,
            sampling: entry.sampling,
            log: entry.log,
            limit: entry.timeout,
            call_limit,
            login,
            memory,
            recalled: Mutex::default(),
            state: watch::Sender::new(ServerState::Starting(None)),
            wake: Notify::new(),
            changes: watch::Sender::new(0),
            called: Mutex::default(),
            modern: AtomicBool::new(false),
            turned: AtomicBool::new(false),
            worked: AtomicBool::new(false),
            useful: AtomicBool::new(false),
            progress: Mutex::default(),
            board,
            askers: Mutex::default(),
            entered: AtomicU64::new(0),
            asking: watch::Sender::new(0),
            unshown: AtomicBool::new(false),
            subscribed: Mutex::default(),
            visits: Mutex::default(),
        })
    }

    /// The user is shown an address: gives what is told when the server says that it was visited.
    pub(super) fn visits(&self, id: String) -> oneshot::Receiver<()> {
        let (sender, finished) = oneshot::channel();
        let mut visits = locked(&self.visits);
        if visits.len() >= VISITED {
            visits.pop_front();
        }
        visits.push_back((id, sender));
        finished
    }

    /// The server says that an address was visited, and what it is for is done.
    pub(super) fn visited(&self, id: &str) {
        let mut visits = locked(&self.visits);
        let found = visits.iter().position(|(known, _)| known == id).and_then(|at| visits.remove(at));
        // Where the user has declined, nobody waits.
        found.and_then(|(_, sender)| sender.send(()).ok());
    }

    pub(super) fn state(&self) -> ServerState {
        self.state.borrow().clone()
    }

    pub(super) fn watch(&self) -> watch::Receiver<ServerState> {
        self.state.subscribe()
    }

    pub(super) fn set(&self, state: ServerState) {
        if matches!(state, ServerState::Ready(_)) {
            self.worked.store(true, Ordering::Relaxed);
        }
        self.state.send_replace(state);
        self.board.send_modify(|changes| *changes += 1);
    }

    /// Nobody keeps it any more. Its tools, which have it, are let go of.
    pub(super) fn end(&self) {
        *locked(&self.recalled) = None;
        self.state.send_replace(ServerState::Failed(Arc::new(McpFailure {
            trouble: Trouble::Start,
            why: "it has ended".to_owned(),
            wrote: String::new(),
            last: None,
            since: Instant::now(),
            logins: None,
        })));
    }

    /// Returns its offer: while it is on its way, that of its last start.
    pub(super) fn offers(&self) -> Option<Arc<ServerOffer>> {
        match &*self.state.borrow() {
            ServerState::Ready(ready) => Some(ready.offer.clone()),
            ServerState::Starting(last) => last.clone(),
            ServerState::Failed(breakdown) if breakdown.trouble == Trouble::Broke => breakdown.last.clone(),
            ServerState::Failed(_) => None,
        }
    }

    /// Offers what it listed at its last start, until it is there.
    pub(super) fn recall(&self, offer: ServerOffer) {
        let offer = Arc::new(offer);
        *locked(&self.recalled) = Some(offer.clone());
        self.set(ServerState::Starting(Some(offer)));
    }

    /// Returns the offer of its last start, made before it was there.
    pub(super) fn recalled(&self) -> Option<Arc<ServerOffer>> {
        locked(&self.recalled).clone()
    }

    pub(super) fn connected(&self) -> Option<Arc<ReadyServer>> {
        match &*self.state.borrow() {
            ServerState::Ready(ready) => Some(ready.clone()),
            ServerState::Starting(_) | ServerState::Failed(_) => None,
        }
    }

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(super) fn has_worked(&self) -> bool {
        self.worked.load(Ordering::Relaxed)
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
    pub(super) fn has_new_login(&self, breakdown: &McpFailure) -> bool {
        self.login.as_ref().is_some_and(|(kept, _)| kept.stamp() != breakdown.logins && kept.is_there().is_some())
    }

    /// The server as it works: one that is starting is waited for, one that has broken off is started again first.
    ///
    /// # Errors
    /// Returns the reason that it does not come.
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
        let late = |_| Err(format!("it was not ready within {} s", self.limit.as_secs_f64()));
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

    /// Whether it is greeted in the way of the newest protocol.
    pub(super) fn is_modern(&self) -> bool {
        self.modern.load(Ordering::Relaxed)
    }

    /// How it is to be greeted the next time.
    pub(super) fn greet_as_modern(&self, modern: bool) {
        self.modern.store(modern, Ordering::Relaxed);
        self.turned.store(modern, Ordering::Relaxed);
    }

    /// Whether it has just turned out that it wants to be greeted in another way.
    pub(super) fn has_turned(&self) -> bool {
        self.turned.swap(false, Ordering::Relaxed)
    }

    /// A call has succeeded: what failed before is forgiven.
    pub(super) fn succeeded(&self) {
        self.useful.store(true, Ordering::Relaxed);
    }

    /// Whether a call has succeeded since this was last asked.
    pub(super) fn was_useful(&self) -> bool {
        self.useful.swap(false, Ordering::Relaxed)
    }

    pub(super) fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether it has told of changes that its list does not have yet.
    pub(super) fn is_outdated(&self) -> bool {
        self.connected().is_some_and(|ready| ready.changes < *self.changes.borrow())
    }

    /// A turn begins: none of its calls has been made.
    pub(super) fn begin_turn(&self) {
        *locked(&self.called) = None;
    }

    /// A call of this turn is made.
    pub(super) fn called(&self) {
        locked(&self.called).get_or_insert(*self.changes.borrow());
    }

    pub(super) fn was_called(&self) -> bool {
        locked(&self.called).is_some()
    }

    /// Whether its list has changes that it told of after a call of this turn, and that were not asked for before.
    pub(super) fn has_changed_after_call(&self) -> bool {
        let mut called = locked(&self.called);
        let Some((known, ready)) = called.as_mut().zip(self.connected()) else { return false };
        let is_newer = ready.changes > *known;
        *known = ready.changes.max(*known);
        is_newer
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

    /// What is said about the progress of a call; to be given back with [`McpLink::leave`].
    pub(super) fn follow(&self, token: &ProgressToken) -> watch::Receiver<Option<ProgressNotificationParam>> {
        let mut all = locked(&self.progress);
        let mut receiver = all.entry(token.clone()).or_insert_with(|| watch::Sender::new(None)).subscribe();
        // A word that came before this was asked for has not been read.
        if receiver.borrow().is_some() {
            receiver.mark_changed();
        }
        receiver
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

    /// The server works for a call from now on, until what this gives is dropped.
    pub(super) fn enter(&self, asker: Asker) -> Entered<'_> {
        let number = self.entered.fetch_add(1, Ordering::Relaxed);
        locked(&self.askers).push((number, asker));
        Entered { link: self, number }
    }

    /// Whose call it works for; the latest, where there are several.
    pub(super) fn asker(&self) -> Option<Asker> {
        locked(&self.askers).last().map(|(_, asker)| asker.clone())
    }

    /// A question of the server's waits for the user, until what this gives is dropped. None where too many do.
    pub(super) fn ask(&self) -> Option<Asking<'_>> {
        let room = |asking: &mut usize| {
            let room = *asking < QUESTIONS;
            *asking += usize::from(room);
            room
        };
        self.asking.send_if_modified(room).then(|| Asking { link: self })
    }

    /// A question could not be shown. Says whether that is to be told: the first time.
    pub(super) fn is_first_unshown(&self) -> bool {
        !self.unshown.swap(true, Ordering::Relaxed)
    }

    /// How many of its questions wait.
    pub(super) fn asking(&self) -> watch::Receiver<usize> {
        self.asking.subscribe()
    }

    /// A resource was read, and is watched from now on. Says whether the server is to be told.
    pub(super) fn subscribe(&self, uri: &str) -> bool {
        let mut all = locked(&self.subscribed);
        if let Some(watched) = all.get_mut(uri) {
            watched.changed = false;
            return false;
        }
        let room = all.len() < SUBSCRIBED;
        if room {
            all.insert(uri.to_owned(), Watched::default());
        }
        room
    }

    pub(super) fn subscribed(&self) -> Vec<String> {
        locked(&self.subscribed).keys().cloned().collect()
    }

    /// A resource has changed. What nobody has read does not count.
    pub(super) fn updated(&self, uri: &str) {
        if let Some(watched) = locked(&self.subscribed).get_mut(uri) {
            watched.changed = true;
        }
    }

    /// The watched resources that have changed since this was last asked. One that changes again and again is told of
    /// no more after a while.
    pub(super) fn outdated(&self) -> Vec<String> {
        let mut all = locked(&self.subscribed);
        let tell = |(uri, watched): (&String, &mut Watched)| {
            let tells = std::mem::take(&mut watched.changed) && watched.told < TOLD;
            watched.told += u32::from(tells);
            tells.then(|| uri.clone())
        };
        all.iter_mut().filter_map(tell).collect()
    }
}

/// A call that a server works for.
pub(super) struct Entered<'a> {
    link: &'a McpLink,
    number: u64,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        locked(&self.link.askers).retain(|(number, _)| *number != self.number);
    }
}

/// A question that waits for the user.
pub(super) struct Asking<'a> {
    link: &'a McpLink,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.link.asking.send_modify(|asking| *asking = asking.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::settings::Transport;

    fn link() -> Arc<McpLink> {
        let entry = McpEntry {
            name: "a".into(),
            enabled: true,
            timeout: Duration::from_secs(1),
            call_timeout: None,
            sampling: false,
            log: None,
            transport: Transport::Local { command: vec!["a".into()], cwd: None, environment: Vec::new() },
            source: "a test".into(),
        };
        let about = Arc::new(About { roots: Arc::from([]), attended: true });
        McpLink::new(&entry, Duration::from_secs(1), None, None, about, watch::Sender::new(0))
    }

    #[test]
    fn what_was_read_and_changes_is_told_and_not_for_ever() {
        let link = link();
        link.updated("note://one");
        assert!(link.outdated().is_empty(), "nobody has read it");
        assert!(link.subscribe("note://one") && !link.subscribe("note://one"));
        for _ in 0..TOLD {
            link.updated("note://one");
            link.updated("note://one");
            assert_eq!((link.outdated(), link.outdated()), (vec!["note://one".to_owned()], Vec::new()));
        }
        link.updated("note://one");
        assert!(link.outdated().is_empty());
        let more = (0..2 * SUBSCRIBED).filter(|n| link.subscribe(&format!("note://{n}"))).count();
        assert_eq!(more, SUBSCRIBED - 1);
    }

    #[test]
    fn only_a_few_questions_wait_at_once() {
        let link = link();
        let all: Vec<_> = (0..10).filter_map(|_| link.ask()).collect();
        assert_eq!((all.len(), *link.asking().borrow()), (QUESTIONS, QUESTIONS));
        drop(all);
        assert_eq!(*link.asking().borrow(), 0);
        assert!(link.ask().is_some());
    }
}
