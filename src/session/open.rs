//! Opens sessions: settings, agents, rules, models, tools and store brought together.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OnceCell, broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::actor::Actor;
use super::base::{Present, Read, Spot};
use super::handle::{self, Handle};
use super::recent::Recent;
use super::replay::Replay;
use super::{child, fetch, interrupted, models, revert};
use crate::config::Settings;
use crate::config::settings::Mcp;
use crate::environment::Environment;
use crate::event::{Event, Outlet, Severity};
use crate::id::SessionId;
use crate::mcp::Servers;
use crate::message::{ModelRef, Todo};
use crate::model::registry::Registry;
use crate::permission::grants::Grants;
use crate::sandbox::Sandbox;
use crate::snapshot::Trackers;
use crate::store::{self, Holder, Record, Store, Stored};
use crate::tool;
use crate::turn::models::Models;
use crate::turn::record::Recorder;
use crate::turn::{self, Choice, History, Scope};

/// What all sessions of this process share.
pub struct Shared {
    /// The process's surroundings.
    pub environment: Environment,
    /// What is kept.
    pub store: Store,
    /// Ends when the process does.
    pub ended: CancellationToken,
    /// The sessions' tasks.
    pub tasks: TaskTracker,
    tools: Arc<tool::registry::Registry>,
    sandbox: Arc<Sandbox>,
    models: models::Sources,
    snapshots: Trackers,
    /// Old tool results have been looked for.
    cleaned: AtomicBool,
    /// A newer catalogue of models has been looked for.
    refreshed: AtomicBool,
    /// When the organisations' defaults were last asked for, in milliseconds.
    defaulted: AtomicU64,
    /// Others can ask for this process's sessions.
    listening: AtomicBool,
    // A std mutex around a map, never held across an await: who is to hear that a session is wanted.
    taken: Mutex<HashMap<SessionId, CancellationToken>>,
    // A std mutex around a map of cells: a leaf, never held across an await.
    grants: Mutex<HashMap<String, Arc<OnceCell<Arc<Grants>>>>>,
    // The same around a set: sessions whose history somebody in this process holds.
    held: Arc<Mutex<HashSet<SessionId>>>,
    // The same around a map: the subagents at work.
    working: Arc<Mutex<HashMap<SessionId, CancellationToken>>>,
}

/// A subagent at work: it can be stopped by its session's id.
pub(super) struct Working {
    working: Arc<Mutex<HashMap<SessionId, CancellationToken>>>,
    id: SessionId,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.working.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// The right to a session's history: nobody else in this process has it.
pub(super) struct Claim {
    held: Arc<Mutex<HashSet<SessionId>>>,
    id: SessionId,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// Where a session's registry of models can be replaced.
pub(super) type Registered = watch::Sender<Arc<Registry>>;

/// Why a session cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store does not have it, or cannot read it.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A subagent is at work in it, or another part of this process has it open.
    #[error("session {0} is being worked on; wait for the turn that uses it to end")]
    Held(SessionId),
    /// It belongs to another directory. Tools must never run in the wrong one.
    #[error("session {id} belongs to {}, not to {}; open it with that directory", .kept.display(), .asked.display())]
    Elsewhere {
        /// The session.
        id: SessionId,
        /// The directory it was kept with.
        kept: PathBuf,
        /// The directory it was asked for with.
        asked: PathBuf,
    },
}

/// Where a session is to work.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its directory: absolute, exists.
    pub cwd: PathBuf,
    /// Further directories: absolute, exist.
    pub extra: Vec<PathBuf>,
    /// What the editor offers for files.
    pub files: tool::Files,
    /// The editor shows the sessions of subagents as sessions.
    pub exposed: bool,
    /// Somebody is there to answer questions.
    pub attended: bool,
    /// The MCP servers the editor gives it.
    pub servers: Vec<Mcp>,
    /// Things the user should hear at the first turn.
    pub notices: Vec<Event>,
}

/// An opened session.
pub struct Opened {
    /// Its address.
    pub handle: Handle,
    /// Its history as events; empty for a new one. The session waits until it is dropped.
    pub replay: Replay,
}

impl Shared {
    /// Nothing is read, opened or connected before the first session needs it.
    pub fn new(environment: Environment, ended: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            store: Store::start(&environment.dirs.data),
            tools: Arc::new(tool::registry::Registry::built_in()),
            sandbox: Sandbox::new(&environment),
            models: models::Sources::new(&environment),
            snapshots: Trackers::default(),
            cleaned: AtomicBool::new(false),
            refreshed: AtomicBool::new(false),
            defaulted: AtomicU64::new(0),
            listening: AtomicBool::new(false),
            taken: Mutex::default(),
            grants: Mutex::default(),
            held: Arc::default(),
            working: Arc::default(),
            tasks: TaskTracker::new(),
            ended,
            environment,
        })
    }

    /// Waits until the sessions' tasks have ended and let go of the store, but not for long: the
    /// process is ending.
    pub async fn finish(&self) {
        const GRACE: Duration = Duration::from_secs(2);
        self.ended.cancel();
        self.tasks.close();
        if tokio::time::timeout(GRACE, self.tasks.wait()).await.is_err() {
            tracing::warn!("a session did not end in time; leaving it");
        }
        // What commands left running in the background ends with us.
        tokio::task::spawn_blocking(crate::process::sweep).await.ok();
        if tokio::time::timeout(GRACE, self.store.stop()).await.is_err() {
            tracing::warn!("the store did not stop in time; leaving it");
        }
    }

    /// Claims a session's history; none while somebody else has it.
    pub(super) fn claim(&self, id: &SessionId) -> Option<Claim> {
        let new = self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        new.then(|| Claim { held: self.held.clone(), id: id.clone() })
    }

    /// Whether somebody in this process has a session's history.
    pub fn holds(&self, id: &SessionId) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    /// Makes a subagent's session one that can be stopped, as long as it works.
    pub(super) fn works(&self, id: &SessionId, cancelled: &CancellationToken) -> Working {
        let working = self.working.clone();
        working.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), cancelled.clone());
        Working { working, id: id.clone() }
    }

    /// Stops a subagent at work, and nobody else. Says whether there is one.
    pub fn stop_subagent(&self, id: &SessionId) -> bool {
        let working = self.working.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        working.inspect(CancellationToken::cancel).is_some()
    }

    /// Opens a new session.
    ///
    /// # Errors
    /// Only where this process may have no more files open: where nothing can be kept, the session works and
    /// says so.
    pub async fn create(self: &Arc<Self>, place: Place) -> Result<Opened, OpenError> {
        let now = self.environment.now();
        let id = SessionId::new(self.environment.fresh(SessionId::PREFIX));
        let record = Record { extra: place.extra.clone(), ..Record::new(id, place.cwd.clone(), now) };
        let claim = self.claim(&record.id).ok_or_else(|| OpenError::Held(record.id.clone()))?;
        let mut place = place;
        if let Err(e) = self.store.create(&record).await {
            if matches!(e, store::Error::TooMany { .. }) {
                return Err(e.into());
            }
            tracing::error!("{e}");
            place.notices.push(Event::Notice {
                severity: Severity::Warning,
                title: "This conversation is not being saved.".into(),
                details: Some(e.to_string()),
            });
        }
        Ok(self.open(place, record, History::default(), claim).await)
    }

    /// Opens a session as it was kept. One that another process has open is asked for when `take`
    /// says so.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn load(self: &Arc<Self>, id: &SessionId, mut place: Place, take: bool) -> Result<Opened, OpenError> {
        if !id.is_well_formed() {
            return Err(store::Error::NotFound(id.clone()).into());
        }
        let claim = self.claim(id).ok_or_else(|| OpenError::Held(id.clone()))?;
        let (stored, cold) = match self.store.load_lean(id).await {
            Err(store::Error::Locked { id, holder }) if take => self.take_over(id, holder).await,
            stored => stored,
        }?;
        if !same_directory(&stored.record.cwd, &place.cwd) {
            self.store.close(id).await;
            let error = OpenError::Elsewhere { id: id.clone(), kept: stored.record.cwd, asked: place.cwd };
            return Err(error);
        }
        for damage in &stored.damage {
            tracing::error!("session {id}: {damage}");
        }
        if !stored.damage.is_empty() {
            place.notices.push(Event::Notice {
                severity: Severity::Warning,
                title: "Something of this session could not be read.".into(),
                details: Some(crate::text::cut_chars(&stored.damage.join(" "), 1_000)),
            });
        }
        let mut history = History { messages: stored.messages, undone_cost: stored.record.undone_cost, cold };
        for message in turn::run::mend(&mut history) {
            self.store.message(id, &message).await;
            for part in &message.parts {
                self.store.part(id, &message.id, part).await;
            }
        }
        let mut record = stored.record;
        let end = store::visible(&history.messages, &record.undone);
        if end == history.messages.len() {
            // A process that was killed had made it final already.
            record.undone.clear();
        }
        // The record is written between turns; who was killed, or is copied, in the middle of one has a newer plan.
        if let Some(plan) = revert::todos(history.messages.get(..end).unwrap_or_default()) {
            record.todos = plan;
        }
        place.notices.extend(undone(&record));
        record.extra.clone_from(&place.extra);
        Ok(self.open(place, record, history, claim).await)
    }

    /// Opens a new session that begins with the history of another one, which may go on meanwhile.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn fork(self: &Arc<Self>, id: &SessionId, place: Place) -> Result<Opened, OpenError> {
        if !id.is_well_formed() {
            return Err(store::Error::NotFound(id.clone()).into());
        }
        let mut fork = store::forked(&self.store.peek(id).await?, &self.environment);
        fork.record.cwd.clone_from(&place.cwd);
        fork.record.extra.clone_from(&place.extra);
        let id = fork.record.id.clone();
        self.store.import(fork).await?;
        self.load(&id, place, false).await
    }

    /// Asks another process for its session, and waits until it has let go, but not for long.
    async fn take_over(&self, id: SessionId, holder: Holder) -> Result<(Stored, usize), store::Error> {
        const GRACE: Duration = Duration::from_secs(5);
        const PAUSE: Duration = Duration::from_millis(20);
        if !store::takeover::ask(self.store.dir(), &holder, &id) {
            return Err(store::Error::Locked { id, holder });
        }
        let taken = async {
            loop {
                match self.store.load_lean(&id).await {
                    Err(store::Error::Locked { .. }) => tokio::time::sleep(PAUSE).await, // its turn is being cancelled
                    taken => return taken,
                }
            }
        };
        let late = |_| Err(store::Error::Locked { id: id.clone(), holder });
        tokio::time::timeout(GRACE, taken).await.unwrap_or_else(late)
    }

    /// Lets other processes ask for a session of ours.
    fn offer(self: &Arc<Self>, id: &SessionId) -> CancellationToken {
        let taken = CancellationToken::new();
        let offered = self.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), taken.clone());
        drop(offered);
        if !self.listening.swap(true, Ordering::Relaxed) {
            match store::takeover::Requests::listen(self.store.dir()) {
                Ok(requests) => drop(self.tasks.spawn(listen(self.clone(), requests))),
                Err(e) => tracing::info!("sessions cannot be taken over from here: {e}"),
            }
        }
        taken
    }

    async fn open(self: &Arc<Self>, place: Place, record: Record, history: History, claim: Claim) -> Opened {
        let environment = &self.environment;
        if !self.cleaned.swap(true, Ordering::Relaxed) {
            let environment = environment.clone();
            self.tasks.spawn(prune(self.clone()));
            let ended = self.ended.clone();
            self.tasks.spawn(async move {
                loop {
                    let environment = environment.clone();
                    let cleaned = tokio::task::spawn_blocking(move || tool::truncate::clean(&environment)).await;
                    if let Err(e) = cleaned {
                        tracing::warn!("looking for old results failed: {e}");
                    }
                    tokio::select! {
                        () = tokio::time::sleep(tool::truncate::EVERY) => {} // until it is due again
                        () = ended.cancelled() => return,
                    }
                }
            });
        }
        let spot = Spot::find(environment, &place.cwd, &place.extra);
        let read = Read::new(&spot).await;
        let recent = Recent::of(environment, &spot.worktree.root);
        let (models, registry, local) = self.models(&read.settings, recent.read().into());
        let grants = self.grants(&spot.worktree.root.display().to_string()).await;
        let known = record.agent.clone().filter(|agent| read.agents.get(agent).is_some());
        let agent = known.unwrap_or_else(|| read.agents.default().name.clone());
        let model = record.model.clone().filter(|model| models.find(model).is_ok());
        let chosen_before = model.clone();
        let (choice, chosen) =
            watch::channel(Choice { agent: agent.clone(), model, steer: record.steer, steers: read.settings.steer });
        let (mailbox, mail) = mpsc::channel(handle::WAITING);
        let (spoken, heard) = watch::channel(false);
        // Unbounded, but only as long as the editor's cancels during one turn.
        let (cancels, cancel) = mpsc::unbounded_channel();
        let mut notices = place.notices;
        if let Some(why) = &environment.temporary {
            notices.push(Event::Notice {
                severity: Severity::Warning,
                title: "Sessions are kept in a temporary directory only.".into(),
                details: Some(format!("The reason: {why}. They are in {}.", environment.dirs.data.display())),
            });
        }
        if let Some(gone) = record.agent.as_ref().filter(|gone| **gone != agent) {
            notices.push(Event::Notice {
                severity: Severity::Warning,
                title: format!("There is no agent \"{gone}\" any more; {agent} answers from now on."),
                details: None,
            });
        }
        notices.extend(read.greeting());
        let base = read.base(models.clone());
        let present = Present::new(self.clone(), spot.clone(), read, models, registry);
        let root = &spot.worktree.root;
        let snapshots = self.snapshots.of(&environment.dirs.data, root, environment.home.as_deref());
        let (history, settled) = interrupted::settle(history, &record, snapshots.clone()).await;
        for (message, part) in settled {
            self.store.part(&record.id, &message, &part).await;
        }
        let servers = Arc::new(Servers::new(&place.cwd, environment, &base.settings, place.servers));
        servers.lay(&base.settings.mcp);
        let scope = Scope {
            session: record.id.clone(),
            mark: record.mark.clone(),
            environment: environment.clone(),
            cwd: place.cwd,
            roots: place.extra.into(),
            worktree: spot.worktree,
            settings: base.settings,
            agents: base.agents,
            models: base.models,
            servers,
            tools: self.tools.clone(),
            confinement: tool::confinement::Confinement::new(&self.sandbox),
            grants,
            background: base.background,
            choice: chosen.clone(),
            seen: Arc::default(),
            todos: Arc::new(tool::todos::Todos::new(record.todos.clone())),
            jobs: Arc::new(tool::jobs::Jobs::after(turn::jobs::last(&history))),
            files: place.files,
            exposed: place.exposed,
            attended: place.attended,
            snapshots: Some(snapshots),
            record: Recorder::new(self.store.clone(), record.id.clone()).choosing(chosen.clone()),
            cancelled: self.ended.child_token(),
            spoken: heard,
            outlet: Outlet::new().0,
            errands: mpsc::channel(1).0,
            depth: record.depth,
            inherited: child::rules(&record.denied),
            spent: Arc::default(),
            purse: Arc::default(),
        };
        let taken = self.offer(&record.id);
        let asides = broadcast::channel(handle::WAITING).0;
        let handle = Handle {
            asides: asides.clone(),
            taken: taken.clone(),
            id: record.id.clone(),
            cwd: scope.cwd.clone(),
            base: present.subscribe(),
            notices: notices.into(),
            greeted: Arc::new(AtomicBool::new(false)),
            prompts: Arc::default(),
            cancels,
            mailbox,
            choice: chosen,
            said: Arc::default(),
        };
        let end = store::visible(&history.messages, &record.undone);
        let (replay, coming) = self.replay(&scope, history, end, &record.todos);
        let actor = Actor {
            scope,
            present,
            history: History::default(),
            coming,
            record,
            shared: self.clone(),
            claim,
            mailbox: mail,
            cancels: cancel,
            cancelled: Vec::new(),
            choice,
            recent,
            remembered: chosen_before,
            ended: self.ended.clone(),
            waiting: VecDeque::new(),
            spoken,
            steered: false,
            local,
            asides,
            naming: None,
            named: false,
            counted: Vec::new(),
            taken,
        };
        self.tasks.spawn(actor.run());
        Opened { handle, replay }
    }

    /// The models of a session, and the way to change them. When the settings name none, the usual
    /// local servers are looked for in the background; the task ends when the answer is in.
    fn models(
        self: &Arc<Self>,
        settings: &Arc<Settings>,
        recent: Arc<[ModelRef]>,
    ) -> (Models, Registered, Option<JoinHandle<()>>) {
        let configured = self.registry(settings);
        let bare = configured.is_bare();
        self.refresh(&configured);
        let (registry, current) = watch::channel(Arc::new(configured));
        let local = bare.then(|| {
            let (shared, settings, registry) = (self.clone(), settings.clone(), registry.clone());
            self.tasks.spawn(async move {
                let found = shared.models.with_local(&settings).await;
                if let Some(found) = found {
                    // A session that was closed meanwhile does not care.
                    registry.send(Arc::new(found)).ok();
                }
            })
        });
        (Models::new(current, settings.model.clone(), recent), registry, local)
    }

    /// Has the defaults of the user's organisations fetched, if that is some time ago.
    pub(super) fn defaults(&self) -> Option<JoinHandle<Vec<String>>> {
        const SOME_TIME: u64 = 60 * 60 * 1000;
        let now = self.environment.now().0;
        let due = |last: u64| (now.saturating_sub(last) >= SOME_TIME).then_some(now);
        self.defaulted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).ok()?;
        Some(self.beside(fetch::defaults(self.models.client(), self.environment.clone())))
    }

    /// Has an instruction page fetched.
    pub(super) fn page(&self, address: String) -> JoinHandle<Vec<String>> {
        let page = fetch::page(self.models.client(), self.environment.clone(), address);
        self.beside(async move { page.await.into_iter().collect() })
    }

    /// Does something beside the conversation; the end of the process does not wait for it.
    fn beside(&self, work: impl Future<Output = Vec<String>> + Send + 'static) -> JoinHandle<Vec<String>> {
        let ended = self.ended.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                notices = work => notices,
                () = ended.cancelled() => Vec::new(),
            }
        })
    }

    /// Everyone who can be asked by these settings. Reads files.
    pub(super) fn registry(&self, settings: &Settings) -> Registry {
        self.models.configured(settings)
    }

    /// Looks for a newer catalogue beside everything else, once per process, and only where a
    /// provider of the catalogue is used: who talks to a server of their own talks to nobody else.
    fn refresh(self: &Arc<Self>, registry: &Registry) {
        if registry.providers().iter().all(|provider| !provider.known) || self.refreshed.swap(true, Ordering::Relaxed) {
            return;
        }
        let shared = self.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = shared.models.refresh_when_due() => {}
                () = shared.ended.cancelled() => {}
            }
        });
    }

    /// A history as it will be shown, and where it comes from when it was.
    fn replay(
        &self,
        scope: &Scope,
        history: History,
        end: usize,
        todos: &[Todo],
    ) -> (Replay, oneshot::Receiver<History>) {
        let last: Option<ModelRef> = history.messages.iter().rev().find_map(|m| Some(m.assistant()?.model.clone()));
        let window = last.and_then(|last| scope.models.find(&last).ok()).and_then(|(model, _)| model.context);
        let agents = scope.exposed.then(|| scope.agents.clone());
        Replay::new(history, (self.store.clone(), scope.session.clone()), end, todos, (window, agents))
    }

    async fn grants(&self, project: &str) -> Arc<Grants> {
        let cell = {
            let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
            grants.entry(project.to_owned()).or_default().clone()
        };
        cell.get_or_init(|| Grants::open(project, &self.environment, &self.store)).await.clone()
    }
}

/// What the user should hear about what is undone.
fn undone(record: &Record) -> Option<Event> {
    let (severity, title) = if record.undone.last()?.done {
        (Severity::Info, "Something is undone here: /redo brings it back, your next prompt makes it final.")
    } else {
        (Severity::Warning, "An undo was interrupted half-way: /undo finishes it, /redo takes it back.")
    };
    Some(Event::Notice { severity, title: title.into(), details: None })
}

/// Once per process, and only where the user wants it: old sessions go.
async fn prune(shared: Arc<Shared>) {
    let environment = shared.environment.clone();
    let read = tokio::task::spawn_blocking(move || super::prune::keep_days(&environment));
    let Ok(Some(days)) = read.await else { return };
    let wanted = super::prune::Prune { keep_days: Some(days), dry: false };
    let pruned = tokio::select! {
        pruned = super::prune::prune(&shared.store, shared.environment.now(), &wanted) => pruned,
        () = shared.ended.cancelled() => return,
    };
    match pruned {
        Ok(pruned) if pruned.gone.is_empty() => {}
        Ok(pruned) => tracing::info!("{} sessions were not used for {days} days and are deleted", pruned.gone.len()),
        Err(e) => tracing::warn!("old sessions could not be deleted: {e}"),
    }
}

/// Hears who wants a session of ours, until the process ends.
async fn listen(shared: Arc<Shared>, mut requests: store::takeover::Requests) {
    loop {
        let wanted = tokio::select! {
            wanted = requests.next() => wanted,
            () = shared.ended.cancelled() => None,
        };
        let Some(wanted) = wanted else { return };
        let token = shared.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&wanted);
        if let Some(token) = token {
            tracing::info!("another process wants session {wanted}");
            token.cancel();
        }
    }
}

/// Whether two paths lead to the same directory.
pub fn same_directory(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    real(one) == real(other)
}
