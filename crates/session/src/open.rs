//! Opens sessions: new ones, stored ones, and copies (forks). Each way ends in `Sessions::open`, which
//! combines settings, agents, rules, models, tools and stored data into a [`SessionContext`], and
//! starts the actor. The result is an [`OpenedSession`]: the handle, and the replay of the history.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::actor::{Actor, SessionState};
use super::beginning::BeginningSender;
use super::choices::Choices;
use super::handle::{self, CancelScope, SessionHandle, SessionHandover};
use super::inbox::Inbox;
use super::live::HistoryGuard;
use super::project::{ConfigSnapshot, ConfigWatcher, ProjectPaths};
use super::published::SessionEvents;
use super::recent::RecentModels;
use super::relocate::{self, repository_name, share_trust};
use super::replay::Replay;
use super::revert::{RevertError, RevertPoint};
use super::session_control::PluginSessionControl;
use super::sessions::Sessions;
use super::title::TitleTask;
use super::{beginning, interrupted, revert};
use crate::grants::Grants;
use crate::turn::jobs::SessionJobs;
use crate::turn::left_out_tools::LeftOutNotice;
use crate::turn::record::Recorder;
use crate::turn::refused_tools::RefusedTools;
use crate::turn::step_context::resolve_model;
use crate::turn::{
    self, CommonContext, History, Permissions, SessionChoices, SessionContext, SessionProject,
    UnrecordedCost, inherited_rules,
};
use base::approvals::Approvals;
use base::environment::Environment;
use base::id::{PartId, SessionId};
use base::lock::lock;
use base::task::JoinHandle;
use config::Settings;
use config::settings::McpEntry;
use events::{Event, Severity};
use extensions::Extensions;
use lsp::SessionServers;
use mcp::{McpServers, McpSessionOptions};
use permission::Action;
use permission::account::AccountProperty;
use providers::editor_endpoints::EditorEndpoints;
use providers::local;
use sandbox::Level;
use snapshot::Tracker;
use store::{self, LoadOptions, LockHolder, Record, StoredSession, StreamedSession};
use tools::process::background_jobs::Jobs;
use tools::todos::Todos;
use transcript::ModelRef;

/// The time limit for an exiting process to release a session that is opened here. Its exit has
/// shorter time limits of its own.
const EXIT_TIMEOUT: Duration = Duration::from_secs(8);

/// The time after the end of a lease in which the session is tried: the clock of the database is
/// another one.
const LEASE_MARGIN: Duration = Duration::from_millis(500);

/// The time limit for the end of a lease, because `store.lease_seconds` has no maximum.
const MAX_LEASE_WAIT: Duration = Duration::from_secs(30);

/// The event after which a session that another process has can be loaded.
#[derive(Debug, Clone, Copy)]
enum AwaitedEvent {
    /// The process exits or was asked for the session, and releases it.
    Release,
    /// The lease of the process ends: it is probably lost.
    LeaseEnd,
}

impl AwaitedEvent {
    /// Returns the pause between two attempts to load the session.
    fn retry_interval(self) -> Duration {
        match self {
            Self::Release => Duration::from_millis(20),
            // Many sessions may wait for the end of the same lease.
            Self::LeaseEnd => Duration::from_millis(250),
        }
    }

    /// Returns whether the event can still occur, given the holders at the last attempt and now.
    fn can_occur(self, last: &LockHolder, now: &LockHolder) -> bool {
        if now.is_other_process(last) {
            return false;
        }
        match self {
            Self::Release => true,
            // A process that has renewed its lease is alive.
            Self::LeaseEnd => now.lease_left.is_some() && now.lease_left <= last.lease_left,
        }
    }
}

/// The consequence if another process has the session that is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfLocked {
    /// The session is not opened.
    Refuse,
    /// A process that does not renew its lease is lost: the session is opened when the lease has
    /// ended, if that is soon enough. The session of any other process is not opened.
    AwaitLease,
    /// That process is asked for the session.
    TakeOver,
}

/// The reason why a session cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store does not have the session, or cannot read it.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A subagent works in the session, or another part of this process has opened it.
    #[error("session {0} is in use by a turn; wait until that ends")]
    InUse(SessionId),
    /// The session cannot be forked before the requested message.
    #[error(transparent)]
    Message(#[from] RevertError),
    /// The host creates directories for its sessions, and creating this session's has failed.
    #[error("there is no directory for session {id} (serve.workspace): {why}")]
    Workspace { id: SessionId, why: String },
    /// The session belongs to another directory. Tools must never run in the wrong one.
    #[error("session {id} belongs to {}, not to {}; {}", .stored.display(), .requested.display(), elsewhere_advice(.stored, .requested, *.gone))]
    OtherDirectory {
        id: SessionId,
        /// The directory that the store has for the session.
        stored: PathBuf,
        /// The directory of the request.
        requested: PathBuf,
        /// True if the session's directory no longer exists.
        gone: bool,
    },
}

impl OpenError {
    /// Creates the error for a session that belongs to another directory than that of the request.
    pub fn other_directory(id: &SessionId, stored: PathBuf, requested: PathBuf) -> Self {
        Self::OtherDirectory {
            id: id.clone(),
            gone: !stored.exists(),
            stored,
            requested,
        }
    }
}

fn elsewhere_advice(stored: &Path, requested: &Path, gone: bool) -> String {
    if gone {
        let old = stored.display();
        let new = requested.display();
        format!("{old} no longer exists. If it was moved there: adjutant sessions move {old} {new}")
    } else {
        "open it with that directory".into()
    }
}

/// The request of a client to open a session: its directories, and the capabilities and wishes of the
/// client.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenOptions {
    /// The working directory: absolute, exists.
    pub cwd: PathBuf,
    /// Further directories: absolute, exist.
    pub additional_directories: Vec<PathBuf>,
    /// The file operations that the client supports.
    pub file_capabilities: tools::FileCapabilities,
    /// True if the client shows the sessions of subagents as sessions.
    pub shows_subagents: bool,
    /// True if a user is present to answer questions.
    pub attended: bool,
    /// True if the client shows no notices, so that they are due again with the next session.
    pub hides_notices: bool,
    /// True if the next session of the project begins with the model that the user chooses here.
    pub remembers_models: bool,
    /// True if the client can show URLs to visit.
    pub shows_urls: bool,
    /// The MCP servers that the client adds.
    pub client_servers: Vec<McpEntry>,
    /// The client's addition to the system prompt.
    pub system_prompt_addition: Option<Arc<str>>,
    /// The permissions that the client denies, each with a pattern. A stored session adds them to its
    /// own.
    pub denied: Vec<(String, String)>,
    /// The permissions about which the client wants the user to be asked, each with a pattern. A
    /// stored session adds them to its own.
    pub asked: Vec<(String, String)>,
    /// The endpoints of model providers that the client has set.
    pub endpoints: EditorEndpoints,
    /// The approvals of the session, if the client chooses them.
    pub approvals: Option<Approvals>,
    /// Notices for the user, shown at the first turn.
    pub notices: Vec<Event>,
}

/// A session that was opened, and its history for the client.
pub struct OpenedSession {
    pub handle: SessionHandle,
    /// The history as events; empty for a new session. The session answers no prompt until this is
    /// dropped.
    pub replay: Replay,
}

/// Adds a client's restrictions to those of a stored session. Returns true if the record has changed.
fn add_restrictions(record: &mut Record, options: &OpenOptions) -> bool {
    let before = (record.denied.len(), record.asked.len(), record.approvals);
    for denied in &options.denied {
        if !record.denied.contains(denied) {
            record.denied.push(denied.clone());
        }
    }
    for asked in &options.asked {
        if !record.asked.contains(asked) {
            record.asked.push(asked.clone());
        }
    }
    record.approvals = options.approvals.or(record.approvals);
    before != (record.denied.len(), record.asked.len(), record.approvals)
}

/// The settings of a session while they are read, concurrently with the store.
struct ConfigReading {
    paths: ProjectPaths,
    read: JoinHandle<ConfigSnapshot>,
}

impl ConfigReading {
    fn begin(environment: &Environment, options: &OpenOptions) -> Self {
        let paths = ProjectPaths::find(environment, &options.cwd, &options.additional_directories);
        let own_paths = paths.clone();
        let read = base::task::spawn(async move { ConfigSnapshot::new(&own_paths).await });
        Self { paths, read }
    }
}

/// The parts of a session whose actor has not started.
struct PreparedSession {
    context: SessionContext,
    watcher: ConfigWatcher,
    record: Record,
    history: History,
    claim: HistoryGuard,
    choices: Choices,
    notices: Vec<Event>,
    has_steering_message: watch::Sender<bool>,
    /// The search for local model servers, if there is one.
    local_search: Option<JoinHandle<()>>,
}

/// A stored session that was read to be opened.
struct ReadSession {
    stored: StoredSession,
    /// The number of messages at the beginning that lack the results of their calls.
    messages_without_results: usize,
    /// The parts whose events were sent already.
    sent: HashSet<PartId>,
    settings: ConfigReading,
}

impl Sessions {
    /// Opens a new session. If it cannot be stored, it works anyway and shows a notice.
    ///
    /// # Errors
    /// If this process has too many open files, if another process has the session, or if the host
    /// cannot create its directory.
    pub async fn create(
        self: &Arc<Self>,
        options: OpenOptions,
    ) -> Result<OpenedSession, OpenError> {
        self.begin(
            SessionId::new(self.environment.fresh(SessionId::PREFIX)),
            options,
        )
        .await
    }

    /// Opens a new session under an id that the client knows but the store does not have.
    ///
    /// # Errors
    /// Those of [`Self::create`], and [`store::Error::NotFound`] if the id is malformed, or if the
    /// host creates the directories of sessions: a client that knows another user's id would get that
    /// user's directory.
    pub async fn recreate(
        self: &Arc<Self>,
        id: SessionId,
        options: OpenOptions,
    ) -> Result<OpenedSession, OpenError> {
        if !id.is_well_formed() || !self.serving_options().workspace_command.is_empty() {
            return Err(store::Error::NotFound(id).into());
        }
        self.begin(id, options).await
    }

    async fn begin(
        self: &Arc<Self>,
        id: SessionId,
        mut options: OpenOptions,
    ) -> Result<OpenedSession, OpenError> {
        let now = self.environment.now();
        let made = self.working_directory(id.as_str(), &options.cwd).await;
        options.cwd = made.map_err(|why| OpenError::Workspace {
            id: id.clone(),
            why,
        })?;
        let reading = ConfigReading::begin(&self.environment, &options);
        let extra = options.additional_directories.clone();
        let called = self.shared_directory_name(Some(&options.cwd)).await;
        let record = Record {
            additional_directories: extra,
            shared_name: called,
            denied: options.denied.clone(),
            asked: options.asked.clone(),
            approvals: options.approvals,
            ..Record::new(id, options.cwd.clone(), now)
        };
        let claim = self
            .claim(&record.id)
            .ok_or_else(|| OpenError::InUse(record.id.clone()))?;
        if let Err(e) = self.store.create(&record).await {
            if matches!(
                e,
                store::Error::TooManyOpenFiles { .. } | store::Error::Locked { .. }
            ) {
                return Err(e.into());
            }
            tracing::error!("{e}");
            options.notices.push(Event::Notice {
                severity: Severity::Warning,
                title: "This conversation is not being saved.".into(),
                details: Some(base::text::capitalised(&e.to_string())),
            });
        }
        self.events_of(&record).created(&record);
        let history = History::default();
        let jobs = SessionJobs::new(&history);
        Ok(self
            .open(options, record, (history, jobs), claim, reading)
            .await)
    }

    /// Adds a client's restrictions to those of a stored session. They are stored at once, because
    /// they hold even if the session is closed before its next prompt.
    async fn restrict(&self, record: &mut Record, options: &OpenOptions) {
        if add_restrictions(record, options) {
            self.store.write_record(record).await;
        }
    }

    /// Opens a stored session. If another process has it, `if_locked` decides; one that is exiting
    /// is awaited in any case. The first events go to `shown`
    /// while the rest is read, and are then not part of the replay. `handover` has the parts that
    /// live on from the session as it was open here before.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn load(
        self: &Arc<Self>,
        id: &SessionId,
        mut options: OpenOptions,
        if_locked: IfLocked,
        shown: Option<BeginningSender>,
        handover: Option<SessionHandover>,
    ) -> Result<OpenedSession, OpenError> {
        if !id.is_well_formed() {
            return Err(store::Error::NotFound(id.clone()).into());
        }
        let handover = match handover {
            Some(handover) => handover,
            None => SessionHandover {
                claim: self.claim(id).ok_or_else(|| OpenError::InUse(id.clone()))?,
                jobs: None,
            },
        };
        let read = match self.read(id, &mut options, if_locked, shown).await {
            Ok(read) => read,
            Err(e) => {
                self.abandon(handover).await;
                return Err(e);
            }
        };
        let SessionHandover { claim, jobs } = handover;
        let ReadSession {
            stored,
            messages_without_results,
            sent,
            settings,
        } = read;
        let damage = damage_notice(id, &stored.damage);
        let mut history = History {
            messages: stored.messages,
            undone_cost: stored.record.undone_cost,
            messages_without_results,
        };
        let jobs = jobs.unwrap_or_else(|| SessionJobs::new(&history));
        self.recover(id, &mut history, &jobs).await;
        for (message, part) in revert::place_late_changes_of_copy(&mut history.messages) {
            self.store.write_part(id, &message, &part).await;
        }
        let mut record = stored.record;
        let end = store::visible(&history.messages, &record.undone);
        if end == history.messages.len() {
            // A process that was killed had already dropped the messages.
            revert::move_to_past_undos(&mut record, &[]);
        }
        // The record is written between turns, so after a crash or a copy in the middle
        // of a turn the history has a newer plan.
        if let Some(plan) = revert::last_plan(history.messages.get(..end).unwrap_or_default()) {
            record.todos = plan;
        }
        options.notices.extend(undo_notice(&record));
        self.restrict(&mut record, &options).await;
        record
            .additional_directories
            .clone_from(&options.additional_directories);
        let mut opened = self
            .open(options, record, (history, jobs), claim, settings)
            .await;
        opened.replay.final_events.extend(damage);
        opened.replay.sent_parts = sent;
        Ok(opened)
    }

    /// Reads a stored session that this process has claimed, and begins to read its settings. If the
    /// host creates directories, replaces the one in `options`. After an error the caller releases the
    /// session. For the parameters see [`Self::load`].
    async fn read(
        &self,
        id: &SessionId,
        options: &mut OpenOptions,
        if_locked: IfLocked,
        shown: Option<BeginningSender>,
    ) -> Result<ReadSession, OpenError> {
        // If the host creates directories, only the id shows which files a session may
        // access.
        let made = !self.serving_options().workspace_command.is_empty();
        let unknown =
            (!made).then(|| Record::new(id.clone(), options.cwd.clone(), self.environment.now()));
        let (beginning, first) = oneshot::channel();
        let load_options = LoadOptions {
            without_old_results: true,
            fallback_record: unknown.map(Box::new),
            first_messages: (shown.is_some() && !made).then_some(beginning),
        };
        let showing = beginning::show_first_messages(
            first,
            |record| !made && same_directory(&record.cwd, &options.cwd),
            shown,
        );
        let (read, sent) = tokio::join!(self.store.load_with(id, load_options), showing);
        let (mut stored, messages_without_results) = match read {
            Err(store::Error::Locked { id, holder }) if holder.is_exiting => {
                self.load_after_exit(id, holder, if_locked).await
            }
            Err(store::Error::Locked { id, holder }) => match (if_locked, holder.lease_left) {
                (IfLocked::TakeOver, _) => self.take_over(id, holder).await,
                (IfLocked::AwaitLease, Some(left)) => {
                    let limit = left.saturating_add(LEASE_MARGIN).min(MAX_LEASE_WAIT);
                    self.load_when_released(&id, holder, limit, AwaitedEvent::LeaseEnd)
                        .await
                }
                (IfLocked::AwaitLease, None) | (IfLocked::Refuse, _) => {
                    Err(store::Error::Locked { id, holder })
                }
            },
            stored => stored,
        }?;
        match self.working_directory(id.as_str(), &options.cwd).await {
            Ok(cwd) => options.cwd = cwd,
            Err(why) => {
                return Err(OpenError::Workspace {
                    id: id.clone(),
                    why,
                });
            }
        }
        let settings = ConfigReading::begin(&self.environment, options);
        let called = self.shared_directory_name(Some(&options.cwd)).await;
        let is_elsewhere = !same_directory(&stored.record.cwd, &options.cwd);
        if is_elsewhere && (made || called.is_some() && called == stored.record.shared_name) {
            let from = &stored.record.cwd;
            let carried =
                relocate::copy_recorded_contents(&self.environment, from, &options.cwd).await;
            if let Err(e) = carried {
                tracing::warn!(
                    "the stored contents of {} are not all copied: {e}",
                    from.display()
                );
            }
            relocate::relocate(&self.store, &self.environment, &mut stored, &options.cwd).await;
        } else if is_elsewhere {
            return Err(OpenError::other_directory(
                id,
                stored.record.cwd,
                options.cwd.clone(),
            ));
        }
        stored.record.shared_name = called;
        self.fetch_outputs(id, &mut stored.messages).await;
        Ok(ReadSession {
            stored,
            messages_without_results,
            sent,
            settings,
        })
    }

    /// Repairs a loaded history, and stores the changes. Background jobs in `living` still run, so
    /// their calls are left alone.
    async fn recover(&self, id: &SessionId, history: &mut History, living: &SessionJobs) {
        let lives = |job: &str| living.jobs.has(job);
        for message in turn::recover::recover_except(history, lives) {
            self.store.write_message(id, &message).await;
            for part in &message.parts {
                self.store.write_part(id, &message.id, part).await;
            }
        }
    }

    /// Opens a new session with a copy of another session's history. The other session may continue
    /// in the meantime. With `before`, only the messages before that message are copied; it is the id
    /// of the message or of one of its parts.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn fork(
        self: &Arc<Self>,
        id: &SessionId,
        mut options: OpenOptions,
        before: Option<&str>,
    ) -> Result<OpenedSession, OpenError> {
        if !id.is_well_formed() {
            return Err(store::Error::NotFound(id.clone()).into());
        }
        let from = match before {
            None => self.store.stream(id).await?,
            Some(message) => self.read_before(id, message).await?.into(),
        };
        let fork = match self.store_copy(from, &options).await {
            // Another process is writing to it: read it all at once.
            Err(store::Error::Changed(_)) => {
                self.store_copy(self.store.peek(id).await?.into(), &options)
                    .await
            }
            copied => copied,
        };
        let (fork, broken) = fork?;
        options.notices.extend(damage_notice(id, &broken));
        self.load(&fork, options, IfLocked::Refuse, None, None)
            .await
    }

    /// Copies a session under a new id. Returns the id, and the damage found.
    async fn store_copy(
        &self,
        from: StreamedSession,
        options: &OpenOptions,
    ) -> Result<(SessionId, Vec<String>), store::Error> {
        let of = from.record.id.clone();
        let broken = from.damage_log();
        let mut fork = store::forked(from, &self.environment);
        fork.record.cwd.clone_from(&options.cwd);
        fork.record
            .additional_directories
            .clone_from(&options.additional_directories);
        fork.record.shared_name = self.shared_directory_name(Some(&options.cwd)).await;
        let id = fork.record.id.clone();
        self.store.import_copy(fork, &of).await?;
        let broken = std::mem::take(&mut *lock(&broken));
        Ok((id, broken))
    }

    /// Reads a session in its state before a message.
    async fn read_before(&self, id: &SessionId, message: &str) -> Result<StoredSession, OpenError> {
        let mut stored = self.store.peek(id).await?;
        let seen = store::visible(&stored.messages, &stored.record.undone);
        let end = revert::find_start(&stored.messages, seen, &RevertPoint::Before(message.into()))?;
        revert::truncate_history(&mut stored, end);
        Ok(stored)
    }

    /// Loads the session of a process that is exiting. If it does not release the session in time,
    /// or another process takes it, the holder is asked for it if `if_locked` is
    /// [`IfLocked::TakeOver`].
    async fn load_after_exit(
        &self,
        id: SessionId,
        holder: LockHolder,
        if_locked: IfLocked,
    ) -> Result<(StoredSession, usize), store::Error> {
        let loaded = self
            .load_when_released(&id, holder, EXIT_TIMEOUT, AwaitedEvent::Release)
            .await;
        match loaded {
            Err(store::Error::Locked { id, holder }) if if_locked == IfLocked::TakeOver => {
                self.take_over(id, holder).await
            }
            loaded => loaded,
        }
    }

    /// Asks another process for its session, and waits for a limited time until that process
    /// has released it.
    async fn take_over(
        &self,
        id: SessionId,
        holder: LockHolder,
    ) -> Result<(StoredSession, usize), store::Error> {
        match self.store.request_takeover(&holder, &id).await {
            Some(limit) => {
                self.load_when_released(&id, holder, limit, AwaitedEvent::Release)
                    .await
            }
            None => Err(store::Error::Locked { id, holder }),
        }
    }

    /// Loads a session as soon as another process has released it, which may be long before that
    /// process ends. Waits for `limit` at most, and only while the event can occur. Only the waits
    /// are limited, not a load: the store would keep a loaded session without a receiver.
    async fn load_when_released(
        &self,
        id: &SessionId,
        mut holder: LockHolder,
        limit: Duration,
        event: AwaitedEvent,
    ) -> Result<(StoredSession, usize), store::Error> {
        let deadline = Instant::now() + limit;
        loop {
            match self.store.load_without_old_results(id).await {
                Err(store::Error::Locked { holder: now, .. })
                    if event.can_occur(&holder, &now) && Instant::now() < deadline =>
                {
                    holder = now;
                    tokio::time::sleep(event.retry_interval()).await;
                }
                loaded => return loaded,
            }
        }
    }

    /// Combines the parts of a session, and starts its actor. `record` and the history are those of a
    /// new or of a loaded session that this process has claimed.
    async fn open(
        self: &Arc<Self>,
        options: OpenOptions,
        mut record: Record,
        (history, SessionJobs { jobs, late_changes }): (History, SessionJobs),
        claim: HistoryGuard,
        ConfigReading { paths, read }: ConfigReading,
    ) -> OpenedSession {
        self.maintenance.start_cleaning();
        let shared = share_trust(&self.store, &self.environment, &paths.worktree).await;
        let read = match read.await {
            Ok(read) if !shared => read,
            // The trust that was just received applies already.
            _ => ConfigSnapshot::new(&paths).await,
        };
        let project_name = self.project_name(&paths.worktree).await;
        let recent = RecentModels::new(&self.store, project_name.clone());
        let (models, registry, local) = self.prepare_models(
            &read.settings,
            options.endpoints.clone(),
            recent.read().await.into(),
        );
        let known = record
            .agent
            .clone()
            .filter(|agent| read.agents.get(agent).is_some());
        let agent = known.unwrap_or_else(|| read.agents.default().name.clone());
        let model = record
            .model
            .clone()
            .filter(|model| models.find(model).is_ok() || local::is_known(&model.provider));
        let choice = initial_choices(&record, &read.settings, SessionChoices::of(&agent, model));
        let answering = resolve_model(&choice, read.agents.get(&agent).as_deref(), &models);
        let (choice, chosen) = watch::channel(choice);
        let mut notices = options.notices.clone();
        notices.extend(self.initial_notices(&record, &agent, &*self.grants(&project_name).await));
        let sources = self.models.clone();
        let current = registry.current();
        let worktree = paths.worktree.clone();
        let checked = base::task::spawn_blocking(move || {
            let checked = read.check_models(&current, &sources);
            (repository_name(&worktree), checked)
        });
        let read = match checked.await {
            Ok((origin, read)) => {
                record.origin = origin;
                read
            }
            Err(e) => {
                tracing::error!("checking the models of the settings failed: {e}");
                ConfigSnapshot::new(&paths).await
            }
        };
        notices.extend(read.initial_notices(&paths, &answering).await);
        notices.extend(self.start_telemetry(&read.settings));
        let approvals = chosen.borrow().approvals();
        notices.extend(self.missing_sandbox_notice(approvals, &read.settings).await);
        let watcher = ConfigWatcher::new(
            self.maintenance.clone(),
            paths.clone(),
            read,
            models,
            registry,
            options.hides_notices,
        );
        let root = &paths.worktree.root;
        let snapshots = self.snapshots.of(
            &self.environment.dirs.data,
            root,
            self.environment.home.as_deref(),
        );
        let (history, completed) =
            interrupted::record_changes_of_interrupted_steps(history, &record, snapshots.clone())
                .await;
        for (message, part) in completed {
            self.store.write_part(&record.id, &message, &part).await;
        }
        let (has_steering_message, heard) = watch::channel(false);
        let events = SessionEvents::new(
            self.events.clone(),
            &self.environment,
            record.id.clone(),
            (&options.cwd, &paths.worktree.root),
        );
        let project = watcher.project();
        let settings = &project.context.settings;
        let common = self.common_context(&options, &record, settings, snapshots, &events);
        let context = SessionContext {
            common: Arc::new(common),
            id: record.id.clone(),
            mark: record.mark.clone(),
            depth: record.depth,
            permissions: self
                .permissions(&project_name, &record, chosen.clone(), options.attended)
                .await,
            recorder: Recorder::new(self.store.clone(), record.id.clone())
                .choosing(chosen)
                .publishing(events),
            shared: Arc::new(self.tool_state(&record, jobs)),
            has_steering_message: heard,
            left_out_tools: LeftOutNotice::new(record.left_out_tools.clone()),
            late_changes,
            unrecorded_cost: UnrecordedCost::default(),
            child_changes: Arc::default(),
            parent_changes: None,
        };
        let choices = Choices::new(choice, options.remembers_models.then_some(recent));
        self.start(PreparedSession {
            context,
            watcher,
            record,
            history,
            claim,
            choices,
            notices,
            has_steering_message,
            local_search: local,
        })
    }

    /// Connects the channels of a session, and starts its actor.
    fn start(self: &Arc<Self>, prepared: PreparedSession) -> OpenedSession {
        let PreparedSession {
            context,
            watcher,
            record,
            history,
            claim,
            choices,
            notices,
            has_steering_message,
            local_search: local,
        } = prepared;
        let (mailbox, mail) = mpsc::channel(handle::MAX_WAITING_MESSAGES);
        // Unbounded, but limited to the client's cancels during one turn.
        let (cancels, cancel) = mpsc::unbounded_channel();
        let taken = self
            .live
            .offer(&record.id, &self.store, &self.tasks, &self.ended);
        let out_of_turn_events = broadcast::channel(handle::MAX_WAITING_MESSAGES).0;
        let stop = cancels.clone();
        let prompts = Arc::<AtomicU64>::default();
        let sent = prompts.clone();
        self.live.accept_remote_cancel(&record.id, move || {
            // The receiver is dropped when the session is closed, and then there is no
            // turn to cancel.
            stop.send(CancelScope::UpTo(sent.load(Ordering::Relaxed)))
                .ok();
        });
        let handle = SessionHandle {
            out_of_turn_events: out_of_turn_events.clone(),
            takeover_requested: taken.clone(),
            id: record.id.clone(),
            cwd: watcher.project().context.cwd.clone(),
            project: watcher.subscribe(),
            servers: context.common.servers.clone(),
            notices: notices.into(),
            has_started: Arc::new(AtomicBool::new(false)),
            prompt_count: prompts,
            cancels,
            mailbox,
            choice: choices.current.subscribe(),
            sandbox_choice: context.permissions.sandbox_choice.clone(),
            account: context.permissions.account.clone(),
            pending_choices: Arc::default(),
        };
        context
            .common
            .extensions
            .scripts
            .set_control(Box::new(PluginSessionControl::new(
                &handle,
                self.live.clone(),
            )));
        let end = store::visible(&history.messages, &record.undone);
        let (replay, coming) = self.replay((&context, &watcher.project()), history, end, &record);
        let session = SessionState {
            sessions: self.clone(),
            events: context.recorder.events.clone(),
            record,
            inbox: Inbox::new(mail, cancel, has_steering_message),
            choices,
            titling: TitleTask::default(),
            out_of_turn_events,
            takeover_requested: taken,
            running: None,
            closing: None,
        };
        let actor = Actor {
            context: Arc::new(context),
            watcher,
            history: History::default(),
            local_search: local,
            counted_changes: Vec::new(),
            claim,
            session,
        };
        base::task::spawn_in(&self.tasks, actor.run(coming));
        OpenedSession { handle, replay }
    }

    /// Returns those notices for the first turn that need no look at files. `agent` is the name of
    /// the agent that answers.
    fn initial_notices(&self, record: &Record, agent: &str, grants: &Grants) -> Vec<Event> {
        let warning = |title: String, details| Event::Notice {
            severity: Severity::Warning,
            title,
            details,
        };
        let mut notices = Vec::new();
        if let Some(why) = &self.environment.temporary {
            let dir = self.environment.dirs.data.display();
            let details = format!("The reason: {why}. They are in {dir}.");
            notices.push(warning(
                "Sessions are stored in a temporary directory only.".into(),
                Some(details),
            ));
        }
        if let Some(path) = grants.take_damaged_index() {
            let details = format!(
                "You are asked again about calls that you had allowed with \"always\". The damaged index was saved as {path}."
            );
            notices.push(warning(
                "Earlier grants could not be read, in any project.".into(),
                Some(details),
            ));
        }
        let gone = record.agent.as_ref().filter(|gone| *gone != agent);
        if let Some(gone) = gone {
            let title =
                format!("The agent \"{gone}\" no longer exists; {agent} is used from now on.");
            notices.push(warning(title, None));
        }
        notices
    }

    /// Starts the export of traces and metrics if the settings request it. Returns a notice if that
    /// is impossible.
    fn start_telemetry(&self, settings: &Settings) -> Option<Event> {
        let start = self.telemetry.get()?;
        let why = start(&settings.telemetry, &self.events)?;
        Some(Event::Notice {
            severity: Severity::Warning,
            title: why,
            details: None,
        })
    }

    /// Returns a notice if approvals rely on a sandbox and none is available.
    async fn missing_sandbox_notice(
        &self,
        approvals: Approvals,
        settings: &Settings,
    ) -> Option<Event> {
        if approvals != Approvals::Sandboxed {
            return None;
        }
        let sandbox_choice = tools::process::sandboxing::SandboxChoice::new(&self.sandbox)
            .at(Level::WorkspaceWrite, settings);
        let title = "Approvals are \"sandboxed\", but no sandbox that contains all commands is available here: the rules decide what is asked.";
        let details = Some("`adjutant doctor` shows the sandboxes that were tried.".to_owned());
        let notice = Event::Notice {
            severity: Severity::Warning,
            title: title.into(),
            details,
        };
        (!sandbox_choice.is_protective().await).then_some(notice)
    }

    async fn permissions(
        &self,
        project: &str,
        record: &Record,
        chosen: watch::Receiver<SessionChoices>,
        attended: bool,
    ) -> Permissions {
        Permissions {
            grants: self.grants(project).await,
            inherited: inherited_rules(record.all_denied(), Action::Deny),
            ask_rules: inherited_rules(record.all_asked(), Action::Ask),
            sandbox_choice: tools::process::sandboxing::SandboxChoice::new(&self.sandbox),
            attended,
            account: self.account(),
            chosen,
            min_approvals: Approvals::Sandboxed,
        }
    }

    /// Returns the context that a session shares with those of its subagents.
    fn common_context(
        &self,
        options: &OpenOptions,
        record: &Record,
        settings: &Settings,
        snapshots: Arc<Tracker>,
        events: &SessionEvents,
    ) -> CommonContext {
        CommonContext {
            environment: self.environment.clone(),
            additional_directories: options.additional_directories.clone().into(),
            tools: self.tools.clone(),
            servers: Arc::new(self.servers(options, settings)),
            extensions: Arc::new(Extensions::new(events.publisher.clone())),
            snapshots: Some(snapshots),
            refused_tools: Arc::new(RefusedTools::new(&record.refused_declarations)),
            file_capabilities: options.file_capabilities,
            shows_subagents: options.shows_subagents,
            shows_notices: !options.hides_notices,
            system_prompt_addition: options.system_prompt_addition.clone(),
            exit_requested: self.exit_requested.clone(),
        }
    }

    /// Returns the state that the calls of a session share, as it was stored.
    fn tool_state(&self, record: &Record, jobs: Arc<Jobs>) -> tools::SessionContext {
        tools::SessionContext {
            id: record.id.clone(),
            mark: record.mark.clone(),
            seen: Arc::default(),
            todos: Arc::new(Todos::new(record.todos.clone())),
            jobs,
            formatters: Arc::default(),
            instruction_problems: Arc::default(),
            language: Arc::new(SessionServers::new(&self.language_servers)),
            exec: self.serving_options().command_prefix,
        }
    }

    fn servers(&self, options: &OpenOptions, settings: &Settings) -> McpServers {
        // The login at an address is stored for the account.
        let can_show_urls =
            options.shows_urls && self.account().check(AccountProperty::McpLogins).is_ok();
        let session = McpSessionOptions {
            client_servers: options.client_servers.clone(),
            is_attended: options.attended,
            can_show_urls,
            catalog_dir: Some(self.mcp_catalog_dir.clone()),
        };
        let dirs = (&*options.cwd, &*options.additional_directories);
        let client = self.models.client();
        McpServers::new(dirs, &self.environment, settings, client, session)
    }

    /// Returns the replay of a history, and the receiver of the history after it.
    fn replay(
        &self,
        (context, project): (&SessionContext, &SessionProject),
        history: History,
        end: usize,
        record: &Record,
    ) -> (Replay, oneshot::Receiver<History>) {
        let last: Option<ModelRef> = history
            .messages
            .iter()
            .rev()
            .find_map(|m| Some(m.assistant()?.model.clone()));
        let window = last
            .and_then(|last| project.models.find(&last).ok())
            .and_then(|(model, _)| model.context);
        let agents = context
            .common
            .shows_subagents
            .then(|| project.agents.clone());
        Replay::new(history, (self.store.clone(), record), end, (window, agents))
    }
}

/// Logs the damage of a session, and returns the notice about it; `None` if there is none.
fn damage_notice(session: &SessionId, damage: &[String]) -> Option<Event> {
    for damage in damage {
        tracing::error!("session {session}: {damage}");
    }
    (!damage.is_empty()).then(|| Event::Notice {
        severity: Severity::Warning,
        title: "Part of this session could not be read.".into(),
        details: Some(base::text::cut_chars(&damage.join(" "), 1_000)),
    })
}

/// Returns the notice about undone turns that can be redone; `None` if there are none.
fn undo_notice(record: &Record) -> Option<Event> {
    let (severity, title) = if record.undone.last()?.is_complete {
        (
            Severity::Info,
            "A turn is undone: /redo restores it; after your next prompt, only its files.",
        )
    } else {
        (
            Severity::Warning,
            "An undo was interrupted: /undo finishes it, /redo reverts it.",
        )
    };
    Some(Event::Notice {
        severity,
        title: title.into(),
        details: None,
    })
}

/// True if two paths refer to the same directory.
pub fn same_directory(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    real(one) == real(other)
}

/// Adds steering and approvals to the initial choices of a session: those of its record, and the
/// defaults of the settings.
fn initial_choices(record: &Record, settings: &Settings, of: SessionChoices) -> SessionChoices {
    SessionChoices {
        steer: record.steer,
        default_steer: settings.general.steer,
        approvals: record.approvals.or(record.inherited.approvals),
        default_approvals: settings.general.approvals,
        ..of
    }
}

#[cfg(test)]
mod tests {
    use super::super::access::ReopenError;
    use super::*;
    use base::environment::Timestamp;
    use base::id::MessageId;
    use store::Store;
    use tokio_util::sync::CancellationToken;
    use transcript::{Message, Role, User};

    fn options(cwd: &Path) -> OpenOptions {
        OpenOptions {
            cwd: cwd.to_owned(),
            additional_directories: Vec::new(),
            file_capabilities: tools::FileCapabilities::default(),
            shows_subagents: false,
            attended: true,
            hides_notices: true,
            remembers_models: false,
            shows_urls: false,
            client_servers: Vec::new(),
            system_prompt_addition: None,
            denied: Vec::new(),
            asked: Vec::new(),
            endpoints: EditorEndpoints::default(),
            approvals: None,
            notices: Vec::new(),
        }
    }

    /// Stores a session with a message, and closes it.
    async fn store_session(sessions: &Sessions, cwd: &Path) -> SessionId {
        std::fs::create_dir_all(cwd).unwrap();
        let id = SessionId::new(sessions.environment.fresh(SessionId::PREFIX));
        let record = Record::new(id.clone(), cwd.to_owned(), Timestamp(1));
        let model = ModelRef {
            provider: "offline".into(),
            model: "offline".into(),
            effort: None,
        };
        let message = Message {
            id: MessageId::new("msg_1"),
            created: Timestamp(1),
            role: Role::User(User {
                agent: "build".into(),
                model,
            }),
            parts: Vec::new(),
        };
        sessions.store.create(&record).await.unwrap();
        sessions.store.write_message(&id, &message).await;
        sessions.store.close(&id).await;
        id
    }

    #[test]
    fn lease_is_awaited_until_its_holder_renews_it() {
        let holder = |pid, left| {
            let mut holder = LockHolder::process(Some(pid));
            holder.lease_left = Some(Duration::from_millis(left));
            holder
        };
        for (event, now, wanted) in [
            (AwaitedEvent::LeaseEnd, holder(1, 2750), true),
            (AwaitedEvent::LeaseEnd, holder(1, 3000), true),
            (AwaitedEvent::LeaseEnd, holder(1, 3001), false),
            (AwaitedEvent::LeaseEnd, holder(2, 2750), false),
            (AwaitedEvent::LeaseEnd, LockHolder::process(Some(1)), false),
            // The process that was asked for the session lives.
            (AwaitedEvent::Release, holder(1, 5000), true),
            (AwaitedEvent::Release, holder(2, 2750), false),
        ] {
            let can_occur = event.can_occur(&holder(1, 3000), &now);
            assert_eq!(can_occur, wanted, "{event:?} {now:?}");
        }
    }

    #[tokio::test]
    async fn refusal_of_load_that_awaits_lease_is_not_the_first_of_two() {
        let dir = tempfile::tempdir().unwrap();
        let home_text = dir.path().display().to_string();
        let environment = Environment::from_vars([("HOME".to_owned(), home_text)].into());
        let sessions = Sessions::new(environment.clone(), CancellationToken::new());
        let cwd = dir.path().join("work");
        let id = store_session(&sessions, &cwd).await;
        let other = Store::start(&environment.dirs.data);
        other.load(&id).await.unwrap();
        let reopen = async |if_locked| {
            let attempt = ("session/load", if_locked);
            let opened = sessions.reopen(&id, options(&cwd), None, || None, attempt, None);
            opened.await.map(drop).unwrap_err()
        };
        for _ in 0..2 {
            let refused = reopen(IfLocked::AwaitLease).await;
            assert!(
                matches!(refused, ReopenError::NotReleased { .. }),
                "{refused:?}"
            );
            let refused = reopen(IfLocked::Refuse).await;
            assert!(matches!(refused, ReopenError::InUse { .. }), "{refused:?}");
        }
        other.stop().await;
        sessions.finish().await;
    }

    #[tokio::test]
    async fn no_other_process_gets_session_that_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let home = std::fs::canonicalize(dir.path()).unwrap();
        let home_text = home.display().to_string();
        let environment = Environment::from_vars([("HOME".to_owned(), home_text)].into());
        let cwd = home.join("work");
        let sessions = Sessions::new(environment.clone(), CancellationToken::new());
        let id = store_session(&sessions, &cwd).await;
        let other = Store::start(&environment.dirs.data);
        let is_locked = async || {
            let loaded = other.load(&id).await;
            other.close(&id).await;
            matches!(loaded, Err(store::Error::Locked { .. }))
        };
        let open = async |cwd: &Path, handover| {
            let opened = sessions.load(&id, options(cwd), IfLocked::Refuse, None, handover);
            opened.await.map(|OpenedSession { handle, .. }| handle)
        };

        let handle = open(&cwd, None).await.unwrap();
        let handover = handle.close_to_reopen().await;
        assert!(is_locked().await);
        let handle = open(&cwd, handover).await.unwrap();
        assert!(is_locked().await);
        // A request that arrives while it is opened again is not lost.
        let handover = handle.close_to_reopen().await;
        handle.takeover_requested.cancel();
        let handle = open(&cwd, handover).await.unwrap();
        handle.closed().await;
        assert!(!is_locked().await);
        // A failure releases it, but not before the background jobs have ended.
        let handle = open(&cwd, None).await.unwrap();
        let handover = handle.close_to_reopen().await;
        let read = sessions
            .read(&id, &mut options(&home), IfLocked::Refuse, None)
            .await;
        assert!(matches!(read, Err(OpenError::OtherDirectory { .. })));
        assert!(is_locked().await);
        let refused = open(&home, handover).await;
        assert!(matches!(refused, Err(OpenError::OtherDirectory { .. })));
        assert!(!is_locked().await);
        assert!(!sessions.has_session(&id));
        let refused = open(&home, None).await;
        assert!(matches!(refused, Err(OpenError::OtherDirectory { .. })));
        assert!(!is_locked().await);
        assert!(!sessions.has_session(&id));
        other.stop().await;
        sessions.finish().await;
    }
}
