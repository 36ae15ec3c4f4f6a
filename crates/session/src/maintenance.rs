//! Background maintenance of a process, once or periodically: deletes old results and sessions, and
//! fetches a newer model catalogue, the organisations' defaults and instruction pages. The end of
//! the process does not wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::models::ModelSources;
use super::user_store::StoreSettings;
use super::{fetch, prune};
use base::environment::Environment;
use base::task::JoinHandle;
use config::reference::RepositoryClone;
use config::remote;
use providers::registry::Registry;
use sandbox::process::ProgramOwner;
use store::Store;
use tools::truncate;

/// The delay of cleaning without urgency after the first session of a process.
const CLEANING_DELAY: Duration = Duration::from_secs(60);

/// The time to open the first session, before the search for files to clean begins.
const OPENING_GRACE: Duration = Duration::from_millis(250);

pub(super) struct Maintenance {
    environment: Environment,
    /// The owner of the user's programs.
    owner: ProgramOwner,
    store: Store,
    settings: Arc<StoreSettings>,
    models: Arc<ModelSources>,
    tasks: TaskTracker,
    ended: CancellationToken,
    has_started_cleaning: AtomicBool,
    has_refreshed_catalog: AtomicBool,
    /// The time of the last request for the organisations' defaults, in milliseconds.
    last_defaults_fetch: AtomicU64,
}

impl Maintenance {
    pub(super) fn new(
        environment: Environment,
        owner: ProgramOwner,
        (store, settings): (Store, Arc<StoreSettings>),
        models: Arc<ModelSources>,
        tasks: TaskTracker,
        ended: CancellationToken,
    ) -> Self {
        Self {
            environment,
            owner,
            store,
            settings,
            models,
            tasks,
            ended,
            has_started_cleaning: AtomicBool::new(false),
            has_refreshed_catalog: AtomicBool::new(false),
            last_defaults_fetch: AtomicU64::new(0),
        }
    }

    /// Starts to delete old results and old sessions, at the first session of the process.
    pub(super) fn start_cleaning(self: &Arc<Self>) {
        if !self.has_started_cleaning.swap(true, Ordering::Relaxed) {
            let this = self.clone();
            base::task::spawn_in(&self.tasks, async move {
                tokio::select! {
                    () = tokio::time::sleep(OPENING_GRACE) => {} // the session is open
                    // Processes that always end before that must clean up as
                    // well.
                    () = this.ended.cancelled() => {}
                }
                base::task::spawn_in(&this.tasks, this.clone().prune_sessions());
                base::task::spawn_in(&this.tasks, this.clone().clean_results());
            });
        }
    }

    /// Deletes old results of tools at regular intervals.
    async fn clean_results(self: Arc<Self>) {
        loop {
            let environment = self.environment.clone();
            if let Err(e) = base::task::spawn_blocking(move || truncate::clean(&environment)).await
            {
                tracing::warn!("looking for old results failed: {e}");
            }
            tokio::select! {
                () = tokio::time::sleep(truncate::CLEANUP_INTERVAL) => {} // until it is due again
                () = self.ended.cancelled() => return,
            }
        }
    }

    /// Deletes old sessions once per process, if the settings say so, and empty sessions that
    /// killed processes have left.
    async fn prune_sessions(self: Arc<Self>) {
        let settings = self.settings.clone();
        let read = base::task::spawn_blocking(move || settings.keep_days());
        let Ok(keep_days) = read.await else { return };
        if keep_days.is_none() {
            // Not urgent, and reads the whole index: not while the first session opens.
            tokio::select! {
                () = tokio::time::sleep(CLEANING_DELAY) => {} // the start is over
                () = self.ended.cancelled() => return,
            }
        }
        let prune = async {
            let found =
                prune::find_prunable(&self.store, self.environment.now(), keep_days).await?;
            Ok::<_, store::Error>(prune::delete(&self.store, found).await)
        };
        let pruned = tokio::select! {
            pruned = prune => pruned,
            () = self.ended.cancelled() => return,
        };
        match pruned {
            Ok(pruned) if pruned.deleted.is_empty() => {}
            Ok(pruned) => {
                tracing::info!(
                    "{} sessions were empty, or not used for {keep_days:?} days, and are deleted",
                    pruned.deleted.len()
                )
            }
            Err(e) => tracing::warn!("old sessions could not be deleted: {e}"),
        }
    }

    /// Looks for a newer catalogue in the background, once per process, and only if a provider
    /// of the catalogue is used: a user with a private server only must not contact any other.
    pub(super) fn refresh_catalog(&self, registry: &Registry) {
        let all_private = registry
            .providers()
            .iter()
            .all(|provider| !provider.is_in_catalog);
        if all_private || self.has_refreshed_catalog.swap(true, Ordering::Relaxed) {
            return;
        }
        let models = self.models.clone();
        let ended = self.ended.clone();
        base::task::spawn_in(&self.tasks, async move {
            tokio::select! {
                () = models.refresh_when_due() => {}
                () = ended.cancelled() => {}
            }
        });
    }

    /// Fetches the defaults of the user's organisations if the last attempt is an hour old, or
    /// a minute if they were never fetched.
    pub(super) fn fetch_defaults(&self) -> Option<JoinHandle<Vec<String>>> {
        const MINUTE: u64 = 60 * 1000;
        let now = self.environment.now().0;
        let due = |last: u64| {
            let ago = now.saturating_sub(last);
            (ago >= 60 * MINUTE || ago >= MINUTE && remote::lacks_defaults(&self.environment))
                .then_some(now)
        };
        self.last_defaults_fetch
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, due)
            .ok()?;
        Some(self.spawn(fetch::fetch_defaults(
            self.models.client(),
            self.environment.clone(),
        )))
    }

    /// Fetches an instruction page.
    pub(super) fn fetch_page(&self, address: String) -> JoinHandle<Vec<String>> {
        let page = fetch::fetch_page(self.models.client(), self.environment.clone(), address);
        self.spawn(async move { page.await.into_iter().collect() })
    }

    /// Fetches an index of skills, and the new skills in it.
    pub(super) fn fetch_skills(&self, address: String) -> JoinHandle<Vec<String>> {
        self.spawn(fetch::fetch_skills(
            self.models.client(),
            self.environment.clone(),
            address,
        ))
    }

    /// Clones or updates a repository that the settings refer to.
    pub(super) fn fetch_repository(&self, clone: RepositoryClone) -> JoinHandle<Vec<String>> {
        let environment = self.environment.clone();
        let owner = self.owner;
        self.spawn(async move {
            fetch::fetch_repository(&clone, &environment, owner)
                .await
                .into_iter()
                .collect()
        })
    }

    fn spawn(
        &self,
        work: impl Future<Output = Vec<String>> + Send + 'static,
    ) -> JoinHandle<Vec<String>> {
        let ended = self.ended.clone();
        base::task::spawn_in(&self.tasks, async move {
            tokio::select! {
                notices = work => notices,
                () = ended.cancelled() => Vec::new(),
            }
        })
    }
}
