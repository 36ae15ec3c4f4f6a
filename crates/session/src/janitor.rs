//! What a process does beside its sessions, once or now and then: old results and sessions go; a newer
//! catalogue, the organisations' defaults and instruction pages come. The end of the process waits for
//! none of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::models::ModelSources;
use super::{fetch, prune};
use base::environment::Environment;
use base::task::JoinHandle;
use config::reference::RepositoryClone;
use config::remote;
use providers::registry::Registry;
use store::Store;
use tools::truncate;

/// How long after the first session of a process what nobody waits for is cleaned up.
const LATER: Duration = Duration::from_secs(60);

/// How long a process may take to open its first session, before it is looked what there is to clean up.
const OPENING: Duration = Duration::from_millis(250);

pub(super) struct Janitor {
    environment: Environment,
    store: Store,
    models: Arc<ModelSources>,
    tasks: TaskTracker,
    ended: CancellationToken,
    cleaning: AtomicBool,
    refreshed: AtomicBool,
    /// When the organisations' defaults were last asked for, in milliseconds.
    defaulted: AtomicU64,
}

impl Janitor {
    pub(super) fn new(
        environment: Environment,
        store: Store,
        models: Arc<ModelSources>,
        tasks: TaskTracker,
        ended: CancellationToken,
    ) -> Self {
        let (cleaning, refreshed, defaulted) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        Self { environment, store, models, tasks, ended, cleaning, refreshed, defaulted }
    }

    /// Starts looking for old results and old sessions, with the first session of the process.
    pub(super) fn start_cleaning(self: &Arc<Self>) {
        if !self.cleaning.swap(true, Ordering::Relaxed) {
            let this = self.clone();
            base::task::spawn_in(&self.tasks, async move {
                tokio::select! {
                    () = tokio::time::sleep(OPENING) => {} // the session is open
                    // Processes that all end before that have to do it as well.
                    () = this.ended.cancelled() => {}
                }
                base::task::spawn_in(&this.tasks, this.clone().prune_sessions());
                base::task::spawn_in(&this.tasks, this.clone().clean_results());
            });
        }
    }

    /// Removes old results of tools as often as they are due.
    async fn clean_results(self: Arc<Self>) {
        loop {
            let environment = self.environment.clone();
            if let Err(e) = base::task::spawn_blocking(move || truncate::clean(&environment)).await {
                tracing::warn!("looking for old results failed: {e}");
            }
            tokio::select! {
                () = tokio::time::sleep(truncate::EVERY) => {} // until it is due again
                () = self.ended.cancelled() => return,
            }
        }
    }

    /// Once per process: old sessions go, where the user wants it, and what killed processes left of empty ones.
    async fn prune_sessions(self: Arc<Self>) {
        let environment = self.environment.clone();
        let read = base::task::spawn_blocking(move || prune::keep_days(&environment));
        let Ok(keep_days) = read.await else { return };
        if keep_days.is_none() {
            // It is in no hurry, and reads the whole index: not while the first session opens.
            tokio::select! {
                () = tokio::time::sleep(LATER) => {} // the start is over
                () = self.ended.cancelled() => return,
            }
        }
        let wanted = prune::Prune { keep_days, dry: false };
        let pruned = tokio::select! {
            pruned = prune::prune(&self.store, self.environment.now(), &wanted) => pruned,
            () = self.ended.cancelled() => return,
        };
        match pruned {
            Ok(pruned) if pruned.gone.is_empty() => {}
            Ok(pruned) => {
                tracing::info!(
                    "{} sessions were empty, or not used for {keep_days:?} days, and are deleted",
                    pruned.gone.len()
                )
            }
            Err(e) => tracing::warn!("old sessions could not be deleted: {e}"),
        }
    }

    /// Looks for a newer catalogue beside everything else, once per process, and only where a provider of
    /// the catalogue is used: who talks to a server of their own talks to nobody else.
    pub(super) fn refresh_catalog(&self, registry: &Registry) {
        let strangers = registry.providers().iter().all(|provider| !provider.known);
        if strangers || self.refreshed.swap(true, Ordering::Relaxed) {
            return;
        }
        let (models, ended) = (self.models.clone(), self.ended.clone());
        base::task::spawn_in(&self.tasks, async move {
            tokio::select! {
                () = models.refresh_when_due() => {}
                () = ended.cancelled() => {}
            }
        });
    }

    /// Has the defaults of the user's organisations fetched, if that is some time ago: an hour, or where they were never
    /// fetched a minute.
    pub(super) fn fetch_defaults(&self) -> Option<JoinHandle<Vec<String>>> {
        const MINUTE: u64 = 60 * 1000;
        let now = self.environment.now().0;
        let due = |last: u64| {
            let ago = now.saturating_sub(last);
            (ago >= 60 * MINUTE || ago >= MINUTE && remote::lacks_defaults(&self.environment)).then_some(now)
        };
        self.defaulted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).ok()?;
        Some(self.spawn(fetch::defaults(self.models.client(), self.environment.clone())))
    }

    /// Has an instruction page fetched.
    pub(super) fn fetch_page(&self, address: String) -> JoinHandle<Vec<String>> {
        let page = fetch::page(self.models.client(), self.environment.clone(), address);
        self.spawn(async move { page.await.into_iter().collect() })
    }

    /// Has an index of skills fetched, and what of it is new.
    pub(super) fn fetch_skills(&self, address: String) -> JoinHandle<Vec<String>> {
        self.spawn(fetch::skills(self.models.client(), self.environment.clone(), address))
    }

    /// Has a repository that the settings refer to cloned, or brought up to date.
    pub(super) fn fetch_repository(&self, clone: RepositoryClone) -> JoinHandle<Vec<String>> {
        let environment = self.environment.clone();
        self.spawn(async move { fetch::repository(&clone, &environment).await.into_iter().collect() })
    }

    fn spawn(&self, work: impl Future<Output = Vec<String>> + Send + 'static) -> JoinHandle<Vec<String>> {
        let ended = self.ended.clone();
        base::task::spawn_in(&self.tasks, async move {
            tokio::select! {
                notices = work => notices,
                () = ended.cancelled() => Vec::new(),
            }
        })
    }
}
