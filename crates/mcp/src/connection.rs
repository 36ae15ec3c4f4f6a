//! The connection to one server, as the session, the tools and the requests of the server use it.
//! [`McpConnection`] outlives single transports: its [`ServerState`] changes when the server breaks
//! off and when the supervisor has started it again. It also records the calls in progress, the
//! pending questions, and the resources that are watched for changes.

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
use super::catalog_cache::CatalogCache;
use super::credential_store::StoredLogin;
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
    /// True if there is a user who can be asked.
    pub is_attended: bool,
}

/// The connection to one server. The supervisor sets its state; everything else reads the state and
/// asks for a restart.
pub(super) struct McpConnection {
    pub name: String,
    pub facts: Arc<SessionFacts>,
    /// True if its settings allow it to send requests to a model.
    pub sampling: bool,
    /// The minimum severity of its log messages.
    pub log: Option<McpLog>,
    /// The time limit of a start, and of reading the lists.
    pub start_timeout: Duration,
    /// The time limit of a call without progress.
    pub call_timeout: Duration,
    /// The stored login, if it may have one, and the command that creates it.
    pub login: Option<(StoredLogin, String)>,
    /// The stored catalogue for the next start; `None` if nothing is stored.
    pub catalog_cache: Option<Arc<CatalogCache>>,
    /// The offer according to the catalogue that an earlier start has stored; `None` if there is
    /// none.
    // A leaf lock around a value.
    stored_offer: Mutex<Option<Arc<ServerOffer>>>,
    state: watch::Sender<ServerState>,
    /// Wakes the supervisor of a failed server, which then starts it again.
    wake_up: Notify,
    /// The number of changes to its lists that it has reported.
    reported_changes: watch::Sender<u64>,
    /// The number of reported changes at the first call of this turn, or at the last check for
    /// changes; `None` before the first call.
    // A leaf lock around a number.
    changes_at_call: Mutex<Option<u64>>,
    /// True if its transport carries only the newest protocol, which has no `initialize`.
    always_modern: bool,
    /// True if it supports only the newest protocol.
    modern: AtomicBool,
    /// True if the last handshake has shown that the next one must be of the newest protocol.
    handshake_changed: AtomicBool,
    /// True if it has been ready since the session started it.
    has_been_ready: AtomicBool,
    /// True if a call has succeeded since the last check.
    has_succeeded: AtomicBool,
    // A leaf lock around a map: the receivers of progress, by call.
    progress: Mutex<HashMap<ProgressToken, watch::Sender<Option<ProgressNotificationParam>>>>,
    /// Incremented when the state or the lists of any server of the session change.
    change_count: watch::Sender<u64>,
    // A leaf lock around a list: the calls in progress, the latest last.
    askers: Mutex<Vec<(u64, Asker)>>,
    /// The number of the next entry of `askers`.
    next_call_number: AtomicU64,
    /// The number of its questions that wait for the user.
    open_questions: watch::Sender<usize>,
    /// True if the user was notified that the client cannot show its questions.
    has_reported_unshown: AtomicBool,
    // A leaf lock around a map: resources that were read, and their changes.
    watched: Mutex<BTreeMap<String, Watched>>,
    // A leaf lock around a list: the URLs shown to the user, by the server's ids, the latest last.
    open_urls: Mutex<VecDeque<(String, oneshot::Sender<()>)>>,
}

/// A resource that is watched for changes.
#[derive(Default)]
struct Watched {
    /// True if it has changed since it was read, or since the last report.
    changed: bool,
    /// The number of reports.
    reports: u32,
}

/// The state of a server.
#[derive(Clone)]
pub(super) enum ServerState {
    /// Starting, with the offer from before it broke off or from its last start.
    Starting(Option<Arc<ServerOffer>>),
    Ready(Arc<ReadyServer>),
    Failed(Arc<McpFailure>),
}

/// A server that accepts requests.
pub(super) struct ReadyServer {
    pub peer: Peer<RoleClient>,
    pub offer: Arc<ServerOffer>,
    /// Its resources, after the first request for them.
    pub resources: OnceCell<Arc<Resources>>,
    /// The number of reported changes that this offer includes.
    pub listed_changes: u64,
}

/// The resources and the resource templates that a server lists.
#[derive(Default)]
pub(super) struct Resources {
    pub all: Vec<Resource>,
    pub templates: Vec<ResourceTemplate>,
}

/// The failure of a server, until it starts again.
pub(super) struct McpFailure {
    pub kind: FailureKind,
    /// The reason, in a few words that follow "it does not work:".
    pub why: String,
    /// The end of the text that it wrote to its standard error.
    pub stderr: String,
    /// The offer before the failure; `None` if it was never ready.
    pub last_offer: Option<Arc<ServerOffer>>,
    pub failed_at: Instant,
    /// The modification time of the stored logins before the attempt.
    pub logins_modified: Option<SystemTime>,
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

impl McpConnection {
    pub(super) fn new(
        entry: &McpEntry,
        call_timeout: Duration,
        login: Option<(StoredLogin, String)>,
        catalog_cache: Option<Arc<CatalogCache>>,
        facts: Arc<SessionFacts>,
        change_count: watch::Sender<u64>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: entry.name.clone(),
            facts,
            sampling: entry.sampling,
            log: entry.log,
            start_timeout: entry.timeout,
            call_timeout,
            login,
            catalog_cache,
            stored_offer: Mutex::default(),
            state: watch::Sender::new(ServerState::Starting(None)),
            wake_up: Notify::new(),
            reported_changes: watch::Sender::new(0),
            changes_at_call: Mutex::default(),
            always_modern: matches!(entry.transport, Transport::Editor { .. }),
            modern: AtomicBool::new(false),
            handshake_changed: AtomicBool::new(false),
            has_been_ready: AtomicBool::new(false),
            has_succeeded: AtomicBool::new(false),
            progress: Mutex::default(),
            change_count,
            askers: Mutex::default(),
            next_call_number: AtomicU64::new(0),
            open_questions: watch::Sender::new(0),
            has_reported_unshown: AtomicBool::new(false),
            watched: Mutex::default(),
            open_urls: Mutex::default(),
        })
    }

    /// Registers a URL that is shown to the user, under the server's id of it. The receiver completes
    /// when the server reports that the user is done with the page.
    pub(super) fn register_url(&self, id: String) -> oneshot::Receiver<()> {
        let (sender, finished) = oneshot::channel();
        let mut visits = lock(&self.open_urls);
        if visits.len() >= MAX_OPEN_URLS {
            visits.pop_front();
        }
        visits.push_back((id, sender));
        finished
    }

    /// Completes the receiver of a URL when the server reports that the user is done with the page.
    pub(super) fn complete_url(&self, id: &str) {
        let mut visits = lock(&self.open_urls);
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

    pub(super) fn watch_state(&self) -> watch::Receiver<ServerState> {
        self.state.subscribe()
    }

    pub(super) fn set_state(&self, state: ServerState) {
        if matches!(state, ServerState::Ready(_)) {
            self.has_been_ready.store(true, Ordering::Relaxed);
        }
        self.state.send_replace(state);
        self.change_count.send_modify(|changes| *changes += 1);
    }

    /// Ends the connection when its supervisor ends, and drops its tools, which refer back to it.
    pub(super) fn end(&self) {
        *lock(&self.stored_offer) = None;
        self.state
            .send_replace(ServerState::Failed(Arc::new(McpFailure {
                kind: FailureKind::Start,
                why: "it has ended".to_owned(),
                stderr: String::new(),
                last_offer: None,
                failed_at: Instant::now(),
                logins_modified: None,
            })));
    }

    /// Returns its offer; while it is starting or about to, its last offer.
    pub(super) fn offer(&self) -> Option<Arc<ServerOffer>> {
        match &*self.state.borrow() {
            ServerState::Ready(ready) => Some(ready.offer.clone()),
            ServerState::Starting(last) => last.clone(),
            ServerState::Failed(failure) if failure.kind == FailureKind::Disconnected => {
                failure.last_offer.clone()
            }
            ServerState::Failed(_) => None,
        }
    }

    /// Sets the offer according to the stored catalogue, which applies until the server is ready.
    pub(super) fn offer_stored_catalog(&self, offer: ServerOffer) {
        let offer = Arc::new(offer);
        *lock(&self.stored_offer) = Some(offer.clone());
        self.set_state(ServerState::Starting(Some(offer)));
    }

    /// Returns the offer according to the stored catalogue.
    pub(super) fn stored_offer(&self) -> Option<Arc<ServerOffer>> {
        lock(&self.stored_offer).clone()
    }

    /// Returns the server if it is ready. Does not wait.
    pub(super) fn ready_server(&self) -> Option<Arc<ReadyServer>> {
        match &*self.state.borrow() {
            ServerState::Ready(ready) => Some(ready.clone()),
            ServerState::Starting(_) | ServerState::Failed(_) => None,
        }
    }

    /// Makes the supervisor start a failed server again.
    pub(super) fn wake_supervisor(&self) {
        self.wake_up.notify_one();
    }

    /// Returns whether the server has been ready since the session started it.
    pub(super) fn was_ready(&self) -> bool {
        self.has_been_ready.load(Ordering::Relaxed)
    }

    /// Wakes the supervisor to start the server again, and marks it as starting.
    pub(super) fn restart(&self) {
        let last = self.offer();
        self.set_state(ServerState::Starting(last));
        self.wake_supervisor();
    }

    pub(super) async fn await_wake_up(&self) {
        self.wake_up.notified().await;
    }

    /// Returns whether a login was stored since the failure.
    pub(super) fn has_new_login(&self, failure: &McpFailure) -> bool {
        self.login.as_ref().is_some_and(|(stored, _)| {
            stored.modified_at() != failure.logins_modified && stored.login_in_own_file().is_some()
        })
    }

    /// Returns the server when it is ready. Waits for one that is starting, and starts one that has
    /// broken off.
    ///
    /// # Errors
    /// Returns the reason if it does not become ready.
    pub(super) async fn await_ready(&self) -> Result<Arc<ReadyServer>, String> {
        let mut state = self.state.subscribe();
        let back = async {
            loop {
                match &*state.borrow_and_update() {
                    ServerState::Ready(ready) if !ready.peer.is_transport_closed() => {
                        return Ok(ready.clone());
                    }
                    // The supervisor is about to notice.
                    ServerState::Ready(_) | ServerState::Starting(_) => {}
                    ServerState::Failed(failure) if failure.kind == FailureKind::Disconnected => {
                        self.wake_supervisor()
                    }
                    ServerState::Failed(failure) => return Err(failure.why.clone()),
                }
                if state.changed().await.is_err() {
                    return Err("it has ended".to_owned());
                }
            }
        };
        let late = |_| {
            Err(format!(
                "it was not ready within {} s",
                self.start_timeout.as_secs_f64()
            ))
        };
        tokio::time::timeout(self.start_timeout, back)
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
                ServerState::Failed(failure) => failure.why.clone(),
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
        self.handshake_changed.store(modern, Ordering::Relaxed);
    }

    /// Returns whether the last attempt has found that the server needs the other handshake. Resets
    /// it.
    pub(super) fn take_handshake_change(&self) -> bool {
        self.handshake_changed.swap(false, Ordering::Relaxed)
    }

    /// Records that a call has succeeded, which forgives earlier failures.
    pub(super) fn record_success(&self) {
        self.has_succeeded.store(true, Ordering::Relaxed);
    }

    /// Returns whether a call has succeeded since the last call of this function.
    pub(super) fn take_success(&self) -> bool {
        self.has_succeeded.swap(false, Ordering::Relaxed)
    }

    /// Counts a change of its lists that the server has reported.
    pub(super) fn count_change(&self) {
        self.reported_changes.send_modify(|changes| *changes += 1);
    }

    pub(super) fn reported_changes(&self) -> watch::Receiver<u64> {
        self.reported_changes.subscribe()
    }

    /// Returns whether it has reported changes that its list does not have yet.
    pub(super) fn is_outdated(&self) -> bool {
        self.ready_server()
            .is_some_and(|ready| ready.listed_changes < *self.reported_changes.borrow())
    }

    /// Begins a turn, in which no call was made yet.
    pub(super) fn begin_turn(&self) {
        *lock(&self.changes_at_call) = None;
    }

    /// Records a call of this turn.
    pub(super) fn record_call(&self) {
        lock(&self.changes_at_call).get_or_insert(*self.reported_changes.borrow());
    }

    pub(super) fn was_called(&self) -> bool {
        lock(&self.changes_at_call).is_some()
    }

    /// Returns whether its list has new changes that it reported after a call of this turn, not
    /// counting changes already returned.
    pub(super) fn has_changed_after_call(&self) -> bool {
        let mut called = lock(&self.changes_at_call);
        let Some((known, ready)) = called.as_mut().zip(self.ready_server()) else {
            return false;
        };
        let is_newer = ready.listed_changes > *known;
        *known = ready.listed_changes.max(*known);
        is_newer
    }

    /// Waits until its lists include the changes that it has reported so far.
    pub(super) async fn await_listing(&self) {
        let reported = *self.reported_changes.borrow();
        let mut state = self.state.subscribe();
        let is_current = |state: &ServerState| match state {
            ServerState::Ready(ready) => ready.listed_changes >= reported,
            ServerState::Starting(_) | ServerState::Failed(_) => true,
        };
        state.wait_for(is_current).await.ok();
    }

    /// Returns a receiver of the progress of a call. Must be followed by
    /// [`McpConnection::stop_tracking`].
    pub(super) fn track_progress(
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

    pub(super) fn stop_tracking(&self, token: &ProgressToken) {
        lock(&self.progress).remove(token);
    }

    /// Records progress of a call. It may arrive before the caller knows the token.
    pub(super) fn record_progress(&self, notification: ProgressNotificationParam) {
        let mut all = lock(&self.progress);
        if all.len() < MAX_TRACKED_CALLS || all.contains_key(&notification.progress_token) {
            let token = notification.progress_token.clone();
            all.entry(token)
                .or_insert_with(|| watch::Sender::new(None))
                .send_replace(Some(notification));
        }
    }

    /// Registers a call that the server works on, until the guard is dropped.
    pub(super) fn register_call(&self, asker: Asker) -> CallInProgress<'_> {
        let number = self.next_call_number.fetch_add(1, Ordering::Relaxed);
        lock(&self.askers).push((number, asker));
        CallInProgress {
            connection: self,
            number,
        }
    }

    /// Returns the asker of the call in progress; the latest one if there are several.
    pub(super) fn current_asker(&self) -> Option<Asker> {
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
        has_begun.then(|| PendingQuestion { connection: self })
    }

    /// Records that a question could not be shown. Returns `true` the first time, when the user
    /// must be notified.
    pub(super) fn take_first_unshown(&self) -> bool {
        !self.has_reported_unshown.swap(true, Ordering::Relaxed)
    }

    /// Returns the number of its questions that wait for the user.
    pub(super) fn open_questions(&self) -> watch::Receiver<usize> {
        self.open_questions.subscribe()
    }

    /// Watches a resource that was read. Returns true if the caller must subscribe to it.
    pub(super) fn watch_resource(&self, uri: &str) -> bool {
        let mut all = lock(&self.watched);
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

    pub(super) fn watched_resources(&self) -> Vec<String> {
        lock(&self.watched).keys().cloned().collect()
    }

    /// Marks a resource as changed. Ignores resources that were not read.
    pub(super) fn mark_changed(&self, uri: &str) {
        if let Some(watched) = lock(&self.watched).get_mut(uri) {
            watched.changed = true;
        }
    }

    /// Returns the watched resources that have changed since the last call of this function, each at
    /// most `MAX_REPORTS` times.
    pub(super) fn take_changed_resources(&self) -> Vec<String> {
        let mut all = lock(&self.watched);
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
    connection: &'a McpConnection,
    number: u64,
}

impl Drop for CallInProgress<'_> {
    fn drop(&mut self) {
        lock(&self.connection.askers).retain(|(number, _)| *number != self.number);
    }
}

/// A question that waits for the user.
pub(super) struct PendingQuestion<'a> {
    connection: &'a McpConnection,
}

impl Drop for PendingQuestion<'_> {
    fn drop(&mut self) {
        self.connection
            .open_questions
            .send_modify(|open_questions| *open_questions = open_questions.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Arc<McpConnection> {
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
        let facts = Arc::new(SessionFacts {
            roots: Arc::from([]),
            is_attended: true,
        });
        McpConnection::new(
            &entry,
            Duration::from_secs(1),
            None,
            None,
            facts,
            watch::Sender::new(0),
        )
    }

    #[test]
    fn changed_resource_is_reported_a_limited_number_of_times() {
        let connection = connection();
        connection.mark_changed("note://one");
        assert!(
            connection.take_changed_resources().is_empty(),
            "nobody has read it"
        );
        assert!(
            connection.watch_resource("note://one") && !connection.watch_resource("note://one")
        );
        for _ in 0..MAX_REPORTS {
            connection.mark_changed("note://one");
            connection.mark_changed("note://one");
            assert_eq!(
                (
                    connection.take_changed_resources(),
                    connection.take_changed_resources()
                ),
                (vec!["note://one".to_owned()], Vec::new())
            );
        }
        connection.mark_changed("note://one");
        assert!(connection.take_changed_resources().is_empty());
        let more = (0..2 * MAX_SUBSCRIPTIONS)
            .filter(|n| connection.watch_resource(&format!("note://{n}")))
            .count();
        assert_eq!(more, MAX_SUBSCRIPTIONS - 1);
    }

    #[test]
    fn questions_waiting_at_once_are_limited() {
        let connection = connection();
        let all: Vec<_> = (0..10)
            .filter_map(|_| connection.register_question())
            .collect();
        assert_eq!(
            (all.len(), *connection.open_questions().borrow()),
            (MAX_QUESTIONS, MAX_QUESTIONS)
        );
        drop(all);
        assert_eq!(*connection.open_questions().borrow(), 0);
        assert!(connection.register_question().is_some());
    }
}
