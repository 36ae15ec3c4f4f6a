//! What all sessions of a process share. Opening one is [`super::open`]'s.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::{OnceCell, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::janitor::Janitor;
use super::live::{HistoryGuard, LiveSessions};
use super::models::{ModelSources, RegistrySender};
use crate::grants::Grants;
use crate::turn::models::Models;
use base::environment::Environment;
use base::id::SessionId;
use base::lock::locked;
use base::task::JoinHandle;
use config::Settings;
use lsp::LanguageServers;
use permission::account::AccountAccess;
use sandbox::Sandbox;
use snapshot::Trackers;
use store::Store;
use transcript::ModelRef;

/// What a serving host does for its sessions.
#[derive(Debug, Clone, Default)]
pub struct ServedPlaces {
    /// The command that makes a directory for a session; empty: the editor says which one it is.
    pub workspace: Vec<String>,
    /// What stands before each command of a session; empty: nothing does.
    pub exec: Arc<[String]>,
    /// Whether their user may change what all users share.
    pub account: AccountAccess,
}

/// What all sessions of this process share.
pub struct Sessions {
    pub environment: Environment,
    pub store: Store,
    pub ended: CancellationToken,
    /// Ends when turns are to end at their next step, because the process is about to.
    pub leaving: CancellationToken,
    pub tasks: TaskTracker,
    /// Set where this process serves editors that are elsewhere.
    pub served: OnceLock<ServedPlaces>,
    pub(super) models: Arc<ModelSources>,
    pub(super) live: Arc<LiveSessions>,
    pub(super) janitor: Arc<Janitor>,
    pub(super) tools: Arc<tools::registry::ToolRegistry>,
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) snapshots: Trackers,
    pub(super) language: Arc<LanguageServers>,
    /// The directory that keeps the lists of MCP servers.
    pub(super) catalogs: PathBuf,
    // A std mutex around a map of cells: a leaf, never held across an await.
    grants: Mutex<HashMap<String, Arc<OnceCell<Arc<Grants>>>>>,
}

impl Sessions {
    /// Nothing is read, opened or connected before the first session needs it.
    pub fn new(environment: Environment, ended: CancellationToken) -> Arc<Self> {
        let store = crate::user_store::store(&environment);
        Self::with_store(environment, ended, store, None)
    }

    /// The same for one of the users of this process, who sees no sessions but their own.
    pub fn of_user(environment: Environment, ended: CancellationToken, user: &str) -> Arc<Self> {
        let store = crate::user_store::store_of(&environment, user);
        Self::with_store(environment, ended, store, Some(user))
    }

    fn with_store(environment: Environment, ended: CancellationToken, store: Store, user: Option<&str>) -> Arc<Self> {
        let models = Arc::new(ModelSources::new(&environment));
        let tasks = TaskTracker::new();
        let janitor = Janitor::new(environment.clone(), store.clone(), models.clone(), tasks.clone(), ended.clone());
        Arc::new(Self {
            tools: Arc::new(tools::registry::ToolRegistry::built_in()),
            sandbox: Sandbox::new(&environment),
            snapshots: Trackers::default(),
            language: Arc::default(),
            live: Arc::default(),
            grants: Mutex::default(),
            janitor: Arc::new(janitor),
            catalogs: mcp::catalogs(&environment, user),
            environment,
            store,
            leaving: CancellationToken::new(),
            served: OnceLock::new(),
            ended,
            tasks,
            models,
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
        base::task::spawn_blocking(sandbox::process::sweep).await.ok();
        if tokio::time::timeout(GRACE, self.store.stop()).await.is_err() {
            tracing::warn!("the store did not stop in time; leaving it");
        }
    }

    /// Claims a session's history; none while somebody else has it.
    pub(super) fn claim(&self, id: &SessionId) -> Option<HistoryGuard> {
        self.live.claim(id)
    }

    /// Whether somebody in this process has a session's history.
    pub fn holds(&self, id: &SessionId) -> bool {
        self.live.holds(id)
    }

    /// Stops a subagent at work, and nobody else. Says whether there is one.
    pub fn stop_subagent(&self, id: &SessionId) -> bool {
        self.live.stop_subagent(id)
    }

    /// The models of a session, and the way to change them. When the settings name none, the usual
    /// local servers are looked for in the background; the task ends when the answer is in.
    pub(super) fn models(
        self: &Arc<Self>,
        settings: &Arc<Settings>,
        recent: Arc<[ModelRef]>,
    ) -> (Models, RegistrySender, Option<JoinHandle<()>>) {
        let configured = self.models.configured(settings);
        let bare = configured.is_bare();
        self.janitor.refresh_catalog(&configured);
        let (registry, current) = watch::channel(Arc::new(configured));
        let local = bare.then(|| {
            let (shared, settings, registry) = (self.clone(), settings.clone(), registry.clone());
            base::task::spawn_in(&self.tasks, async move {
                let found = shared.models.with_local(&settings).await;
                if let Some(found) = found {
                    // A session that was closed meanwhile does not care.
                    registry.send(Arc::new(found)).ok();
                }
            })
        });
        (Models::new(current, settings.model.clone(), recent), registry, local)
    }

    /// What was granted with "always" in a project: one for all its sessions.
    pub(super) async fn grants(&self, project: &str) -> Arc<Grants> {
        let cell = {
            let mut grants = locked(&self.grants);
            grants.entry(project.to_owned()).or_default().clone()
        };
        cell.get_or_init(|| Grants::open(project, &self.environment, &self.store)).await.clone()
    }
}
