//! The available models of a session, from the settings, the stored keys, the environment and the
//! model servers on this machine.

use std::sync::{Arc, Mutex};

use base::environment::Environment;
use base::lock::locked;
use config::settings::{ProviderEntry, Settings};
use providers::Error;
use providers::auth::Auth;
use providers::catalog::{self, Catalog, CatalogRefresh};
use providers::http::HttpClient;
use providers::local;
use providers::offline::Offline;
use providers::registry::{self, Registry};

/// Replaces a session's registry of models.
pub(super) type RegistrySender = tokio::sync::watch::Sender<Arc<Registry>>;

/// The sources of model registries, except for a session's settings.
pub struct ModelSources {
    environment: Environment,
    client: Arc<HttpClient>,
    // Read when the first session is opened, and again after a refresh. The lock is held while
    // the file is read, but never across an await.
    catalog: Mutex<Option<Arc<Catalog>>>,
}

impl ModelSources {
    pub fn new(environment: &Environment) -> Self {
        let client = Arc::new(HttpClient::new(environment));
        Self {
            environment: environment.clone(),
            client,
            catalog: Mutex::default(),
        }
    }

    pub fn client(&self) -> Arc<HttpClient> {
        self.client.clone()
    }

    /// Returns the models of the settings, the stored keys and the environment. Reads files.
    pub fn configured(&self, settings: &Settings) -> Registry {
        self.with(settings, Vec::new(), false)
    }

    /// Returns the same, and all other models of the catalogue, for listings.
    pub fn everyone(&self, settings: &Settings) -> Registry {
        self.with(settings, Vec::new(), true)
    }

    /// Returns the same as `configured`, together with the model servers that answer on this
    /// machine, or `None` if there are none. Waits for them at most 100 ms.
    pub async fn with_local(&self, settings: &Settings) -> Option<Registry> {
        let servers = local::servers(&self.environment)
            .inspect_err(|e| tracing::warn!("no model server on this machine is looked for: {e}"))
            .unwrap_or_default();
        let found = local::find(&self.client, &servers).await;
        (!found.is_empty()).then(|| self.with(settings, found, false))
    }

    /// Looks for a newer catalogue now.
    ///
    /// # Errors
    /// As [`catalog::refresh`].
    pub async fn refresh(&self) -> Result<CatalogRefresh, Error> {
        let refreshed = catalog::refresh(&self.client, &self.environment).await?;
        if refreshed != CatalogRefresh::Same {
            *locked(&self.catalog) = None;
        }
        Ok(refreshed)
    }

    /// Looks for a newer catalogue if it is due, for later sessions. A failure is only logged,
    /// because the stored catalogue is good enough.
    pub async fn refresh_when_due(&self) {
        let client = self.client.clone();
        let environment = self.environment.clone();
        let due = base::task::spawn_blocking(move || {
            let due = catalog::is_due(&environment);
            if due {
                client.warm();
            }
            due
        });
        if !due.await.unwrap_or(false) {
            return;
        }
        match self.refresh().await {
            Ok(refreshed) => tracing::info!("the catalogue of models: {refreshed:?}"),
            Err(e) => tracing::info!("the catalogue of models was not refreshed: {e}"),
        }
    }

    fn with(&self, settings: &Settings, local: Vec<ProviderEntry>, everything: bool) -> Registry {
        let catalog = {
            let mut catalog = locked(&self.catalog);
            catalog
                .get_or_insert_with(|| Arc::new(Catalog::load(&self.environment)))
                .clone()
        };
        Registry::new(registry::Sources {
            configured: settings.providers.clone(),
            local,
            catalog: &catalog,
            disabled: &settings.disabled_providers,
            enabled: settings.enabled_providers.as_deref(),
            everything,
            auth: &Auth::read(&self.environment)
                .lent(settings.scripts.iter().any(|script| !script.project)),
            environment: &self.environment,
            client: self.client.clone(),
            offline: Arc::new(Offline),
        })
    }
}
