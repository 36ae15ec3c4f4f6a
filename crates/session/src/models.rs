//! The sources of the available models: the settings, the stored keys, the environment, the model
//! catalogue, and the model servers on this machine. [`ModelSources`] is shared by all sessions of a
//! process and builds a [`Registry`] from them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use base::environment::Environment;
use base::lock::lock;
use config::settings::{ProviderEntry, Settings};
use permission::url::forbidden_address;
use providers::auth::Auth;
use providers::catalog::{self, Catalog, CatalogRefresh};
use providers::editor_endpoints::EditorEndpoints;
use providers::http::HttpClient;
use providers::local::{self, ServerSearchResult};
use providers::offline::Offline;
use providers::registry::{self, Registry};
use providers::{Error, Model};
use transcript::ModelRef;

/// The sources of model registries, except for a session's settings.
pub struct ModelSources {
    environment: Environment,
    client: Arc<HttpClient>,
    /// The client for endpoints that may only be at public addresses.
    public_client: Arc<HttpClient>,
    // Read when the first session is opened, and again after a refresh. The lock is held while the file
    // is read, but never across an await.
    catalog: Arc<Mutex<Option<Arc<Catalog>>>>,
    // The model servers on this machine that have answered, for sessions that are opened later.
    local_servers: Mutex<Vec<ProviderEntry>>,
    // The models whose context window their server does not report even when they are loaded.
    without_window: Mutex<BTreeSet<ModelRef>>,
}

impl ModelSources {
    pub fn new(environment: &Environment) -> Self {
        let client = Arc::new(HttpClient::new(environment));
        Self {
            environment: environment.clone(),
            client,
            public_client: Arc::new(HttpClient::with_forbidden_addresses(
                environment,
                forbidden_address,
            )),
            catalog: Arc::default(),
            local_servers: Mutex::default(),
            without_window: Mutex::default(),
        }
    }

    pub fn client(&self) -> Arc<HttpClient> {
        self.client.clone()
    }

    /// Returns the models of the settings, the stored keys, the environment, and the model servers
    /// of this machine that have answered before. Reads files.
    pub fn configured(&self, settings: &Settings) -> Registry {
        self.with_editor_endpoints(settings, &EditorEndpoints::default())
    }

    /// Like [`Self::configured`], with the endpoints that the editor has set.
    pub fn with_editor_endpoints(
        &self,
        settings: &Settings,
        endpoints: &EditorEndpoints,
    ) -> Registry {
        let found = lock(&self.local_servers).clone();
        self.inputs().registry(settings, endpoints, found, false)
    }

    /// Like [`Self::configured`], with all other models of the catalogue, for listings.
    pub fn with_all_models(&self, settings: &Settings) -> Registry {
        let endpoints = EditorEndpoints::default();
        let found = lock(&self.local_servers).clone();
        self.inputs().registry(settings, &endpoints, found, true)
    }

    /// Searches the model servers on this machine, for two seconds at most. Returns the models of
    /// [`Self::with_editor_endpoints`] with theirs, or `None` if no server has answered. A server that
    /// has answered before and is silent now counts as busy, for example with loading a model.
    pub async fn with_local(
        &self,
        settings: &Settings,
        endpoints: &EditorEndpoints,
    ) -> Option<Registry> {
        let servers = local::servers_to_search(&self.environment)
            .inspect_err(|e| tracing::warn!("no model server on this machine is looked for: {e}"))
            .unwrap_or_default();
        let results = local::find_servers(&self.client, &servers).await;
        let found = {
            let mut known = lock(&self.local_servers);
            for result in results {
                match result {
                    ServerSearchResult::Found(server) => {
                        known.retain(|other| other.id != server.id);
                        known.push(*server);
                    }
                    // The earlier list has the details.
                    ServerSearchResult::WithoutDetails(server)
                        if known.iter().any(|other| other.id == server.id) => {}
                    ServerSearchResult::WithoutDetails(server) => known.push(*server),
                    ServerSearchResult::Absent(id) => known.retain(|other| other.id != id),
                    ServerSearchResult::Busy(_) => {}
                }
            }
            known.clone()
        };
        if found.is_empty() {
            return None;
        }
        let inputs = self.inputs();
        let settings = settings.clone();
        let endpoints = endpoints.clone();
        let registry = base::task::spawn_blocking(move || {
            let ids = found.iter().map(|server| server.id.as_str());
            local::remember_servers(&inputs.environment, ids);
            inputs.registry(&settings, &endpoints, found, false)
        })
        .await;
        registry
            .inspect_err(|e| tracing::error!("collecting the providers failed: {e}"))
            .ok()
    }

    /// True if the server of a model does not report its context window even when it is loaded.
    pub(super) fn lacks_context_window(&self, model: &ModelRef) -> bool {
        lock(&self.without_window).contains(model)
    }

    /// Records that the server of a model does not report its context window although it is loaded.
    pub(super) fn add_windowless(&self, model: &ModelRef) {
        lock(&self.without_window).insert(model.clone());
    }

    /// Makes a server on this machine load a model, because it reports the context window only then.
    /// Returns true if the model is loaded.
    pub(super) async fn load_local(&self, model: &Model) -> bool {
        let address = lock(&self.local_servers)
            .iter()
            .find(|server| server.id == model.id.provider)
            .and_then(|server| server.base_url.clone());
        let Some(address) = address else {
            return false;
        };
        let loaded = local::load_model(&self.client, &address, &model.api_id).await;
        loaded
            .inspect_err(|e| tracing::info!("{} was not loaded: {e}", model.id))
            .is_ok()
    }

    /// Looks for a newer catalogue now.
    ///
    /// # Errors
    /// Same as [`catalog::refresh`].
    pub async fn refresh(&self) -> Result<CatalogRefresh, Error> {
        let refreshed = catalog::refresh(&self.client, &self.environment).await?;
        if refreshed != CatalogRefresh::Unchanged {
            *lock(&self.catalog) = None;
        }
        Ok(refreshed)
    }

    /// Looks for a newer catalogue if it is due, for later sessions. A failure is only logged,
    /// because the stored catalogue is good enough.
    pub async fn refresh_when_due(&self) {
        let client = self.client.clone();
        let environment = self.environment.clone();
        let due = base::task::spawn_blocking(move || {
            let due = catalog::is_refresh_due(&environment);
            if due {
                client.load_certificates();
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

    fn inputs(&self) -> RegistryInputs {
        RegistryInputs {
            environment: self.environment.clone(),
            client: self.client.clone(),
            public_client: self.public_client.clone(),
            catalog: self.catalog.clone(),
        }
    }
}

/// Returns the notice about a model that cannot call tools.
pub fn without_tools(model: &ModelRef) -> String {
    format!(
        "{model} cannot call tools: it only answers in text, and reads, changes and runs nothing. \
         `adjutant models --tools` lists the models that can."
    )
}

/// The inputs of a registry, except for settings and servers. A value of its own, because it moves to a
/// thread that may block: building a registry reads files.
struct RegistryInputs {
    environment: Environment,
    client: Arc<HttpClient>,
    public_client: Arc<HttpClient>,
    catalog: Arc<Mutex<Option<Arc<Catalog>>>>,
}

impl RegistryInputs {
    /// Builds a registry. Reads files.
    fn registry(
        self,
        settings: &Settings,
        endpoints: &EditorEndpoints,
        local: Vec<ProviderEntry>,
        includes_keyless: bool,
    ) -> Registry {
        let none = EditorEndpoints::default();
        let catalog = {
            let mut catalog = lock(&self.catalog);
            catalog
                .get_or_insert_with(|| Arc::new(Catalog::load(&self.environment)))
                .clone()
        };
        Registry::new(registry::RegistrySources {
            configured: settings.providers.clone(),
            local,
            catalog: &catalog,
            disabled: &settings.general.disabled_providers,
            enabled: settings.general.enabled_providers.as_deref(),
            includes_keyless,
            auth: &Auth::read(&self.environment)
                .with_plugin_logins(settings.scripts.iter().any(|script| !script.project)),
            environment: &self.environment,
            client: self.client.clone(),
            public_client: self.public_client.clone(),
            editor: if settings.provider_changes.from_editor {
                endpoints
            } else {
                &none
            },
            offline: Arc::new(Offline),
        })
    }
}
