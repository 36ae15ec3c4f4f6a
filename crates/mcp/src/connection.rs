//! A server's connection, as its session and its tools see it. The connection may break off and
//! come back while they use it.

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
use super::credential_store::StoredLogin;
use super::memory::CatalogMemory;
use base::lock::lock;
use config::settings::{McpEntry, McpLog, Transport};

/// The number of failures in a row after which a server is paused.
pub(super) const MAX_FAILURES: u32 = 3;
/// The time that it is paused before a turn may try it again.
pub(super) const FAILURE_PAUSE: Duration = Duration::from_secs(300);
/// The number of calls whose progress is tracked at once; progress of others is dropped.
const MAX_TRACKED_CALLS: usize = 256;
/// The number of resources of a server that are watched for changes at once.
const MAX_SUBSCRIPTIONS: usize = 64;
/// The number of times that a change of one resource is reported.
const MAX_REPORTS: u32 = 20;
/// The number of URLs of a server that may be open at once.
const MAX_OPEN_URLS: usize = 16;
/// The number of a server's questions that may wait for the user at once.
const MAX_QUESTIONS: usize = 4;

/// The facts about its session that a connection needs.
pub(super) struct SessionFacts {
    pub roots: Arc<[PathBuf]>,
    /// Whether there is a user who can be asked.
    pub attended: bool,
}

/// One server's connection, for every user of it except its supervisor.
pub(super) struct McpLink {
    pub name: String,
    pub about: Arc<SessionFacts>,
    /// Whether its settings allow it to send requests to a model.
    pub sampling: bool,
    /// The minimum severity of its log messages.
    pub log: Option<McpLog>,
    /// The time limit of starting and of listing.
    pub limit: Duration,
    /// The time limit of a call without progress.
    pub call_limit: Duration,
    /// The stored login, if it may have one, and the command that creates it.
    pub login: Option<(StoredLogin, String)>,
    /// The file that stores its list for the next start, if there is one.
    pub memory: Option<Arc<CatalogMemory>>,
    /// The offer built from the list of its last start.
    // A leaf lock around a value.
    recalled: Mutex<Option<Arc<ServerOffer>>>,
    state: watch::Sender<ServerState>,
    wake: Notify,
    /// The number of changes to its lists that it has reported.
    changes: watch::Sender<u64>,
    /// The number of reported changes at the first call of this turn, or at the last check for
    /// changes; `None` before the first call.
    // A leaf lock around a number.
    called: Mutex<Option<u64>>,
    /// True if its transport carries only the newest protocol, which has no `initialize`.
    always_modern: bool,
    /// Whether it supports only the newest protocol.
    modern: AtomicBool,
    /// Whether that was discovered just now.
    turned: AtomicBool,
    /// Whether it has been ready since the session started it.
    worked: AtomicBool,
    /// Whether a call has succeeded since the last check.
    useful: AtomicBool,
    // A leaf lock around a map: the receivers of progress, by call.
    progress: Mutex<HashMap<ProgressToken, watch::Sender<Option<ProgressNotificationParam>>>>,
    /// Counts changes of any server of the session.
    change_count: watch::Sender<u64>,
    // A leaf lock around a list: the calls in progress, the latest last.
    askers: Mutex<Vec<(u64, Asker)>>,
    entered: AtomicU64,
    /// The number of its questions that wait for the user.
    open_questions: watch::Sender<usize>,
    /// Whether the user was notified that the client cannot show its questions.
    unshown: AtomicBool,
    // A leaf lock around a map: resources that were read, and their changes.
    subscribed: Mutex<BTreeMap<String, Watched>>,
    // A leaf lock around a list: the URLs shown to the user, by the server's ids, the latest last.
    visits: Mutex<VecDeque<(String, oneshot::Sender<()>)>>,
}

#[derive(Default)]
struct Watched {
    /// Whether it has changed since it was read, or since the last report.
    changed: bool,
    /// The number of reports.
    reports: u32,
}

#[derive(Clone)]
pub(super) enum ServerState {
    /// Starting, with the offer from before it broke off or from its last start.
    Starting(Option<Arc<ServerOffer>>),
    Ready(Arc<ReadyServer>),
    Failed(Arc<McpFailure>),
}

pub(super) struct ReadyServer {
    pub peer: Peer<RoleClient>,
    pub offer: Arc<ServerOffer>,
    /// Its resources, after the first request for them.
    pub listed: OnceCell<Arc<Resources>>,
    /// The number of reported changes that this list includes.
    pub changes: u64,
}

#[derive(Default)]
pub(super) struct Resources {
    pub all: Vec<Resource>,
    pub templates: Vec<ResourceTemplate>,
}

pub(super) struct McpFailure {
    pub kind: FailureKind,
    /// The reason, in a few words that follow "it does not work:".
    pub why: String,
    /// The text that it wrote to its standard error.
    pub stderr: String,
    pub last: Option<Arc<ServerOffer>>,
    pub since: Instant,
    /// The modification time of the stored logins before the attempt.
    pub logins: Option<SystemTime>,
}

/// The kind of a server's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    Start,
    /// It worked and broke off. The next call starts it again.
    Disconnected,
    /// It failed repeatedly and is not retried for a while.
    Suspended,
    Login,
    /// Files or processes were missing to start it. It is retried when they may be free again.
    Resources,
}

impl McpLink {
    pub(super) fn new(
        entry: &McpEntry,
        call_limit: Duration,
        login: Option<(StoredLogin, String)>,
        memory: Option<Arc<CatalogMemory>>,
        about: Arc<SessionFacts>,
        change_count: watch::Sender<u64>,
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
            always_modern: matches!(entry.transport, Transport::Editor { .. }),
            modern: AtomicBool::new(false),
            turned: AtomicBool::new(false),
            worked: AtomicBool::new(false),
            useful: AtomicBool::new(false),
            progress: Mutex::default(),
            change_count,
            askers: Mutex::default(),
            entered: AtomicU64::new(0),
            open_questions: watch::Sender::new(0),
            unshown: AtomicBool::new(false),
            subscribed: Mutex::default(),
            visits: Mutex::default(),
        })
    }

    /// Registers a URL that the user is shown. The receiver completes when the server reports that
    /// the visit is done.
    pub(super) fn visits(&self, id: String) -> oneshot::Receiver<()> {
        let (sender, finished) = oneshot::channel();
        let mut visits = lock(&self.visits);
        if visits.len() >= MAX_OPEN_URLS {
            visits.pop_front();
        }
        visits.push_back((id, sender));
        finished
    }

    /// Completes the visit of a URL that the server reports as done.
    pub(super) fn visited(&self, id: &str) {
        let mut visits = lock(&self.visits);
        let found = visits
            .iter()
            .position(|(known, _)| known == id)
            .and_then(|at| visits.remove(at));
        // The receiver is dropped if the user has declined.
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
        self.change_count.send_modify(|changes| *changes += 1);
    }

    /// Ends the connection when its supervisor ends, and drops its tools, which refer back to it.
    pub(super) fn end(&self) {
        *lock(&self.recalled) = None;
        self.state
            .send_replace(ServerState::Failed(Arc::new(McpFailure {
                kind: FailureKind::Start,
                why: "it has ended".to_owned(),
                stderr: String::new(),
                last: None,
                since: Instant::now(),
                logins: None,
            })));
    }

    /// Returns its offer; while it is starting, that of its last start.
    pub(super) fn offers(&self) -> Option<Arc<ServerOffer>> {
        match &*self.state.borrow() {
            ServerState::Ready(ready) => Some(ready.offer.clone()),
            ServerState::Starting(last) => last.clone(),
            ServerState::Failed(breakdown) if breakdown.kind == FailureKind::Disconnected => {
                breakdown.last.clone()
            }
            ServerState::Failed(_) => None,
        }
    }

    /// Offers the tools listed at its last start until it is ready.
    pub(super) fn recall(&self, offer: ServerOffer) {
        let offer = Arc::new(offer);
        *lock(&self.recalled) = Some(offer.clone());
        self.set(ServerState::Starting(Some(offer)));
    }

    /// Returns the offer built from its last start, before it was ready.
    pub(super) fn recalled(&self) -> Option<Arc<ServerOffer>> {
        lock(&self.recalled).clone()
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

    pub(super) fn was_connected(&self) -> bool {
        self.worked.load(Ordering::Relaxed)
    }

    /// Wakes the supervisor to start the server again, and marks it as starting.
    pub(super) fn restart(&self) {
        let last = self.offers();
        self.set(ServerState::Starting(last));
        self.wake();
    }

    pub(super) async fn await_wake_up(&self) {
        self.wake.notified().await;
    }

    /// Returns whether a login was stored since the failure.
    pub(super) fn has_new_login(&self, breakdown: &McpFailure) -> bool {
        self.login.as_ref().is_some_and(|(stored, _)| {
            stored.stamp() != breakdown.logins && stored.login_in_own_file().is_some()
        })
    }

    /// Returns the server when it is ready. Waits for one that is starting, and starts one that has
    /// broken off.
    ///
    /// # Errors
    /// Returns the reason if it does not become ready.
    pub(super) async fn ready(&self) -> Result<Arc<ReadyServer>, String> {
        let mut state = self.state.subscribe();
        let back = async {
            loop {
                match &*state.borrow_and_update() {
                    ServerState::Ready(ready) if !ready.peer.is_transport_closed() => {
                        return Ok(ready.clone());
                    }
                    // The supervisor is about to notice.
                    ServerState::Ready(_) | ServerState::Starting(_) => {}
                    ServerState::Failed(breakdown)
                        if breakdown.kind == FailureKind::Disconnected =>
                    {
                        self.wake()
                    }
                    ServerState::Failed(breakdown) => return Err(breakdown.why.clone()),
                }
                if state.changed().await.is_err() {
                    return Err("it has ended".to_owned());
                }
            }
        };
        let late = |_| {
            Err(format!(
                "it was not ready within {} s",
                self.limit.as_secs_f64()
            ))
        };
        tokio::time::timeout(self.limit, back)
            .await
            .unwrap_or_else(late)
    }

    /// Returns the reason why a server has broken off, as soon as the supervisor knows it.
    pub(super) async fn failure_reason(&self) -> String {
        /// The supervisor waits for the last error output.
        const REASON_TIMEOUT: Duration = Duration::from_secs(2);
        let mut state = self.state.subscribe();
        let over = |state: &ServerState| match state {
            ServerState::Ready(ready) => !ready.peer.is_transport_closed(),
            ServerState::Starting(_) | ServerState::Failed(_) => true,
        };
        match tokio::time::timeout(REASON_TIMEOUT, state.wait_for(over)).await {
            Ok(Ok(state)) => match &*state {
                ServerState::Failed(breakdown) => breakdown.why.clone(),
                ServerState::Ready(_) | ServerState::Starting(_) => {
                    "it is being started again".into()
                }
            },
            _ => "it has closed the connection".into(),
        }
    }

    /// Returns whether the handshake is that of the newest protocol.
    pub(super) fn is_modern(&self) -> bool {
        self.always_modern || self.modern.load(Ordering::Relaxed)
    }

    /// Sets the handshake of the next attempt.
    pub(super) fn set_modern_handshake(&self, modern: bool) {
        self.modern.store(modern, Ordering::Relaxed);
        self.turned.store(modern, Ordering::Relaxed);
    }

    /// Returns whether the last attempt has found that the server needs the other handshake. Resets
    /// it.
    pub(super) fn take_handshake_change(&self) -> bool {
        self.turned.swap(false, Ordering::Relaxed)
    }

    /// Records that a call has succeeded, which forgives earlier failures.
    pub(super) fn succeeded(&self) {
        self.useful.store(true, Ordering::Relaxed);
    }

    /// Returns whether a call has succeeded since the last check.
    pub(super) fn was_useful(&self) -> bool {
        self.useful.swap(false, Ordering::Relaxed)
    }

    pub(super) fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns whether it has reported changes that its list does not have yet.
    pub(super) fn is_outdated(&self) -> bool {
        self.connected()
            .is_some_and(|ready| ready.changes < *self.changes.borrow())
    }

    /// Begins a turn, in which no call was made yet.
    pub(super) fn begin_turn(&self) {
        *lock(&self.called) = None;
    }

    /// Records a call of this turn.
    pub(super) fn called(&self) {
        lock(&self.called).get_or_insert(*self.changes.borrow());
    }

    pub(super) fn was_called(&self) -> bool {
        lock(&self.called).is_some()
    }

    /// Returns whether its list has new changes that it reported after a call of this turn, not
    /// counting changes already returned.
    pub(super) fn has_changed_after_call(&self) -> bool {
        let mut called = lock(&self.called);
        let Some((known, ready)) = called.as_mut().zip(self.connected()) else {
            return false;
        };
        let is_newer = ready.changes > *known;
        *known = ready.changes.max(*known);
        is_newer
    }

    /// Waits until the changes that it has reported so far are in its lists.
    pub(super) async fn listed(&self) {
        let reported = *self.changes.borrow();
        let mut state = self.state.subscribe();
        let is_current = |state: &ServerState| match state {
            ServerState::Ready(ready) => ready.changes >= reported,
            ServerState::Starting(_) | ServerState::Failed(_) => true,
        };
        state.wait_for(is_current).await.ok();
    }

    /// Returns the progress of a call. Must be followed by [`McpLink::leave`].
    pub(super) fn follow(
        &self,
        token: &ProgressToken,
    ) -> watch::Receiver<Option<ProgressNotificationParam>> {
        let mut all = lock(&self.progress);
        let mut receiver = all
            .entry(token.clone())
            .or_insert_with(|| watch::Sender::new(None))
            .subscribe();
        // Progress that arrived before this subscription has not been read.
        if receiver.borrow().is_some() {
            receiver.mark_changed();
        }
        receiver
    }

    pub(super) fn leave(&self, token: &ProgressToken) {
        lock(&self.progress).remove(token);
    }

    /// Records progress of a call. It may arrive before the caller knows the token.
    pub(super) fn progress(&self, notification: ProgressNotificationParam) {
        let mut all = lock(&self.progress);
        if all.len() < MAX_TRACKED_CALLS || all.contains_key(&notification.progress_token) {
            let token = notification.progress_token.clone();
            all.entry(token)
                .or_insert_with(|| watch::Sender::new(None))
                .send_replace(Some(notification));
        }
    }

    /// Registers a call that the server works on, until the guard is dropped.
    pub(super) fn enter(&self, asker: Asker) -> CallInProgress<'_> {
        let number = self.entered.fetch_add(1, Ordering::Relaxed);
        lock(&self.askers).push((number, asker));
        CallInProgress { link: self, number }
    }

    /// Returns the asker of the call in progress; the latest one if there are several.
    pub(super) fn asker(&self) -> Option<Asker> {
        lock(&self.askers).last().map(|(_, asker)| asker.clone())
    }

    /// Registers a question that waits for the user, until the guard is dropped. Returns `None` if
    /// there are too many.
    pub(super) fn register_question(&self) -> Option<PendingQuestion<'_>> {
        let has_begun = self
            .open_questions
            .send_if_modified(|open_questions: &mut usize| {
                if *open_questions >= MAX_QUESTIONS {
                    return false;
                }
                *open_questions += 1;
                true
            });
        has_begun.then(|| PendingQuestion { link: self })
    }

    /// Records that a question could not be shown. Returns `true` the first time, when the user
    /// must be notified.
    pub(super) fn is_first_unshown(&self) -> bool {
        !self.unshown.swap(true, Ordering::Relaxed)
    }

    /// Returns the number of its questions that wait for the user.
    pub(super) fn open_questions(&self) -> watch::Receiver<usize> {
        self.open_questions.subscribe()
    }

    /// Watches a resource that was read. Returns whether the server needs a subscription.
    pub(super) fn subscribe(&self, uri: &str) -> bool {
        let mut all = lock(&self.subscribed);
        if let Some(watched) = all.get_mut(uri) {
            watched.changed = false;
            return false;
        }
        let is_new = all.len() < MAX_SUBSCRIPTIONS;
        if is_new {
            all.insert(uri.to_owned(), Watched::default());
        }
        is_new
    }

    pub(super) fn subscribed(&self) -> Vec<String> {
        lock(&self.subscribed).keys().cloned().collect()
    }

    /// Marks a resource as changed. Ignores resources that were not read.
    pub(super) fn updated(&self, uri: &str) {
        if let Some(watched) = lock(&self.subscribed).get_mut(uri) {
            watched.changed = true;
        }
    }

    /// Returns the watched resources that have changed since the last call. A resource that changes
    /// again and again is not reported any more after a while.
    pub(super) fn outdated(&self) -> Vec<String> {
        let mut all = lock(&self.subscribed);
        let mut outdated = Vec::new();
        for (uri, watched) in all.iter_mut() {
            let has_changed = std::mem::take(&mut watched.changed);
            if has_changed && watched.reports < MAX_REPORTS {
                watched.reports += 1;
                outdated.push(uri.clone());
            }
        }
        outdated
    }
}

/// A call that a server works on.
pub(super) struct CallInProgress<'a> {
    link: &'a McpLink,
    number: u64,
}

impl Drop for CallInProgress<'_> {
    fn drop(&mut self) {
        lock(&self.link.askers).retain(|(number, _)| *number != self.number);
    }
}

/// A question that waits for the user.
pub(super) struct PendingQuestion<'a> {
    link: &'a McpLink,
}

impl Drop for PendingQuestion<'_> {
    fn drop(&mut self) {
        self.link
            .open_questions
            .send_modify(|open_questions| *open_questions = open_questions.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Arc<McpLink> {
        let entry = McpEntry {
            name: "a".into(),
            enabled: true,
            timeout: Duration::from_secs(1),
            call_timeout: None,
            sampling: false,
            log: None,
            transport: Transport::Local {
                command: vec!["a".into()],
                cwd: None,
                environment: Vec::new(),
            },
            source: "a test".into(),
        };
        let about = Arc::new(SessionFacts {
            roots: Arc::from([]),
            attended: true,
        });
        McpLink::new(
            &entry,
            Duration::from_secs(1),
            None,
            None,
            about,
            watch::Sender::new(0),
        )
    }

    #[test]
    fn changed_resource_is_reported_a_limited_number_of_times() {
        let link = link();
        link.updated("note://one");
        assert!(link.outdated().is_empty(), "nobody has read it");
        assert!(link.subscribe("note://one") && !link.subscribe("note://one"));
        for _ in 0..MAX_REPORTS {
            link.updated("note://one");
            link.updated("note://one");
            assert_eq!(
                (link.outdated(), link.outdated()),
                (vec!["note://one".to_owned()], Vec::new())
            );
        }
        link.updated("note://one");
        assert!(link.outdated().is_empty());
        let more = (0..2 * MAX_SUBSCRIPTIONS)
            .filter(|n| link.subscribe(&format!("note://{n}")))
            .count();
        assert_eq!(more, MAX_SUBSCRIPTIONS - 1);
    }

    #[test]
    fn questions_waiting_at_once_are_limited() {
        let link = link();
        let all: Vec<_> = (0..10).filter_map(|_| link.register_question()).collect();
        assert_eq!(
            (all.len(), *link.open_questions().borrow()),
            (MAX_QUESTIONS, MAX_QUESTIONS)
        );
        drop(all);
        assert_eq!(*link.open_questions().borrow(), 0);
        assert!(link.register_question().is_some());
    }
}
