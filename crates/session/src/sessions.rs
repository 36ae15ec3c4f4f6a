//! The state that all sessions of a process share: [`Sessions`]. It owns the store, the sources of
//! models, the registry of open sessions and the background maintenance, and ends all sessions when
//! the process exits. [`super::open`] opens sessions, [`super::access`] reopens, archives and deletes
//! them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::configuration::own_settings;
use super::handle::SessionHandover;
use super::live::{HistoryGuard, LiveSessions};
use super::maintenance::Maintenance;
use super::models::ModelSources;
use super::published::SessionEvents;
use super::user_store::{self, StoreSettings};
use crate::grants::Grants;
use crate::turn::jobs::SessionJobs;
use crate::turn::models::{Models, SessionRegistry};
use base::environment::Environment;
use base::id::SessionId;
use base::lock::lock;
use base::task::JoinHandle;
use config::Settings;
use config::settings::TelemetrySettings;
use events::bus::EventBus;
use lsp::LanguageServers;
use permission::account::AccountAccess;
use providers::editor_endpoints::EditorEndpoints;
use providers::local;
use providers::registry::Registry;
use sandbox::Sandbox;
use snapshot::Trackers;
use store::{Record, Store};
use transcript::ModelRef;

/// The settings of `adjutant serve` for its sessions.
#[derive(Debug, Clone, Default)]
pub struct ServingOptions {
    /// The command that makes a directory for a session; empty if the client chooses the
    /// directory.
    pub workspace_command: Vec<String>,
    /// The prefix of each command of a session; may be empty.
    pub command_prefix: Arc<[String]>,
    /// The user's right to change state that all users share.
    pub account: AccountAccess,
}

/// Starts the export of a process's events if the settings of a session request it. Returns the
/// reason why it is impossible, for the user.
pub type StartTelemetry =
    Arc<dyn Fn(&TelemetrySettings, &EventBus) -> Option<String> + Send + Sync>;

/// The state that all sessions of this process share.
pub struct Sessions {
    pub environment: Environment,
    pub store: Store,
    /// The events of all sessions in this process.
    pub events: EventBus,
    /// Cancelled when the process exits: every session ends.
    pub ended: CancellationToken,
    /// Cancelled when turns must end at their next step, because the process is about to exit.
    pub exit_requested: CancellationToken,
    /// The tasks that an exit waits for.
    pub tasks: TaskTracker,
    /// Set if this process can export traces and metrics.
    pub telemetry: OnceLock<StartTelemetry>,
    /// Set if this process serves remote clients.
    pub serving_options: OnceLock<ServingOptions>,
    pub(super) models: Arc<ModelSources>,
    pub(super) live: Arc<LiveSessions>,
    pub(super) maintenance: Arc<Maintenance>,
    pub(super) tools: Arc<tools::registry::ToolRegistry>,
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) snapshots: Trackers,
    pub(super) language_servers: Arc<LanguageServers>,
    /// The directory in which the tool lists of MCP servers are cached.
    pub(super) mcp_catalog_dir: PathBuf,
    // A std mutex around a map of cells: a leaf, never held across an await.
    grants: Mutex<HashMap<String, Arc<OnceCell<Arc<Grants>>>>>,
}

impl Sessions {
    /// Creates the shared state. Nothing is read, opened or connected before the first session
    /// needs it.
    pub fn new(environment: Environment, ended: CancellationToken) -> Arc<Self> {
        let settings = StoreSettings::new(&environment);
        let store = user_store::open_store_with(&settings);
        Self::with_store(environment, ended, (store, settings), None)
    }

    /// Creates the shared state for one of the users of this process, who can access only their
    /// own sessions.
    pub fn for_user(environment: Environment, ended: CancellationToken, user: &str) -> Arc<Self> {
        let settings = StoreSettings::new(&environment);
        let store = user_store::open_store_of_user(&settings, user);
        Self::with_store(environment, ended, (store, settings), Some(user))
    }

    fn with_store(
        environment: Environment,
        ended: CancellationToken,
        (store, settings): (Store, Arc<StoreSettings>),
        user: Option<&str>,
    ) -> Arc<Self> {
        let models = Arc::new(ModelSources::new(&environment));
        let tasks = TaskTracker::new();
        let sandbox = Sandbox::new(&environment);
        let maintenance = Maintenance::new(
            environment.clone(),
            sandbox.owner(),
            (store.clone(), settings),
            models.clone(),
            tasks.clone(),
            ended.clone(),
        );
        Arc::new(Self {
            tools: Arc::new(tools::registry::ToolRegistry::built_in()),
            sandbox,
            snapshots: Trackers::default(),
            language_servers: Arc::default(),
            live: Arc::default(),
            grants: Mutex::default(),
            maintenance: Arc::new(maintenance),
            mcp_catalog_dir: mcp::catalog_dir(&environment, user),
            environment,
            store,
            events: EventBus::default(),
            exit_requested: CancellationToken::new(),
            telemetry: OnceLock::new(),
            serving_options: OnceLock::new(),
            ended,
            tasks,
            models,
        })
    }

    /// Ends all sessions, because the process is exiting. Waits for a limited time until their tasks
    /// have ended and the store has stopped.
    pub async fn finish(&self) {
        const CLOSE_GRACE: Duration = Duration::from_secs(2);
        self.ended.cancel();
        self.tasks.close();
        if tokio::time::timeout(CLOSE_GRACE, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("a session did not end in time; leaving it");
        }
        // Processes that commands have left in the background end with this process.
        base::task::spawn_blocking(sandbox::process::end_own_programs)
            .await
            .ok();
        if tokio::time::timeout(CLOSE_GRACE, self.store.stop())
            .await
            .is_err()
        {
            tracing::warn!("the store did not stop in time; leaving it");
        }
    }

    /// Returns the publisher of events about a session that may not be open.
    pub(super) fn events_of(&self, record: &Record) -> SessionEvents {
        SessionEvents::new(
            self.events.clone(),
            &self.environment,
            record.id.clone(),
            (&record.cwd, &record.cwd),
        )
    }

    /// Claims a session's history; returns `None` while it is in use.
    pub(super) fn claim(&self, id: &SessionId) -> Option<HistoryGuard> {
        self.live.claim(id)
    }

    /// Releases a session that is not opened again after all. First ends the background jobs that
    /// live on from its earlier opening.
    pub(super) async fn abandon(&self, SessionHandover { claim, jobs }: SessionHandover) {
        if let Some(SessionJobs { jobs, .. }) = jobs {
            jobs.end().await;
        }
        self.store.close(claim.session()).await;
        // Until now no other task of this process could open it: its file would have been closed.
        drop(claim);
    }

    /// True if a session's history is in use in this process.
    pub fn has_session(&self, id: &SessionId) -> bool {
        self.live.has_session(id)
    }

    /// Stops the subagent that works in this session. Returns false if there is none.
    pub fn stop_subagent(&self, id: &SessionId) -> bool {
        self.live.stop_subagent(id)
    }

    /// Returns the sources of the models of all sessions.
    pub fn model_sources(&self) -> &ModelSources {
        &self.models
    }

    /// Creates the models of a session, and the owner of their registry; starts to refresh the
    /// model catalogue if that is due. If the settings name no model, or one that a local server may
    /// have, the returned task searches the usual local model servers in the background.
    pub(super) fn prepare_models(
        self: &Arc<Self>,
        settings: &Arc<Settings>,
        endpoints: EditorEndpoints,
        recent: Arc<[ModelRef]>,
    ) -> (Models, Arc<SessionRegistry>, Option<JoinHandle<()>>) {
        let registry = SessionRegistry::new(self.models.clone(), settings.clone(), endpoints);
        let registry = Arc::new(registry);
        let configured = registry.current();
        // A model of a server on this machine may be wanted in addition to configured ones.
        let is_missing =
            |model: &ModelRef| local::is_known(&model.provider) && !configured.has(model);
        let bare =
            configured.is_only_local() || settings.model.iter().chain(&*recent).any(is_missing);
        self.maintenance.refresh_catalog(&configured);
        let local = bare.then(|| {
            let registry = registry.clone();
            base::task::spawn_in(&self.tasks, registry.first_search())
        });
        let models = registry.models(settings.model.clone(), recent);
        (models, registry, local)
    }

    /// Returns the settings of the user's own files, and the providers with the endpoints that an
    /// editor has set. Blocks on file access.
    pub fn own_providers(&self, endpoints: &EditorEndpoints) -> (Settings, Registry) {
        let settings = own_settings(&self.environment);
        let registry = self.models.with_editor_endpoints(&settings, endpoints);
        (settings, registry)
    }

    /// Returns the permissions granted with "always" in a project, shared by all its sessions.
    pub(super) async fn grants(&self, project: &str) -> Arc<Grants> {
        let cell = {
            let mut grants = lock(&self.grants);
            grants.entry(project.to_owned()).or_default().clone()
        };
        cell.get_or_init(|| Grants::open(project, &self.environment, &self.store))
            .await
            .clone()
    }
}
