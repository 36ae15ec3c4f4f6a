//! Who can be asked in a session: the settings, the kept keys, the environment and the servers on
//! this machine brought together.

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

/// Where a session's registry of models can be replaced.
pub(super) type RegistrySender = tokio::sync::watch::Sender<Arc<Registry>>;

/// What registries are made of, besides a session's settings.
pub struct ModelSources {
    environment: Environment,
    client: Arc<HttpClient>,
    // Read when the first session is opened, kept until there is a newer one. A leaf lock: held
    // while the file is read, never across an await.
    catalog: Mutex<Option<Arc<Catalog>>>,
}

impl ModelSources {
    pub fn new(environment: &Environment) -> Self {
        let client = Arc::new(HttpClient::new(environment));
        Self { environment: environment.clone(), client, catalog: Mutex::default() }
    }

    pub fn client(&self) -> Arc<HttpClient> {
        self.client.clone()
    }

    /// Everyone the settings, the kept keys and the environment name. Reads files.
    pub fn configured(&self, settings: &Settings) -> Registry {
        self.with(settings, Vec::new(), false)
    }

    /// The same, and all the catalogue knows besides: to be looked at.
    pub fn everyone(&self, settings: &Settings) -> Registry {
        self.with(settings, Vec::new(), true)
    }

    /// The same as `configured`, with the servers that answer on this machine, if there are any;
    /// waits for them 100 ms at most.
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

    /// Looks for a newer catalogue if it is time to, for the sessions after this one. Nobody waits
    /// for it, and nobody is told when it fails: the one kept is good enough.
    pub async fn refresh_when_due(&self) {
        let (client, environment) = (self.client.clone(), self.environment.clone());
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
            catalog.get_or_insert_with(|| Arc::new(Catalog::load(&self.environment))).clone()
        };
        Registry::new(registry::Sources {
            configured: settings.providers.clone(),
            local,
            catalog: &catalog,
            disabled: &settings.disabled_providers,
            enabled: settings.enabled_providers.as_deref(),
            everything,
            auth: &Auth::read(&self.environment).lent(settings.scripts.iter().any(|script| !script.project)),
            environment: &self.environment,
            client: self.client.clone(),
            offline: Arc::new(Offline),
        })
    }
}
