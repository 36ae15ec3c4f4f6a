//! Who can be asked in a session: the settings, the kept keys, the environment and the servers on
//! this machine brought together.

use std::sync::{Arc, OnceLock};

use crate::config::settings::{self, Settings};
use crate::environment::Environment;
use crate::model::auth::Auth;
use crate::model::catalog::Catalog;
use crate::model::http::{Client, Limits};
use crate::model::offline::Offline;
use crate::model::registry::{self, ModelSettings, ProviderSettings, Registry, Secret};
use crate::model::{Price, local};

/// What registries are made of, besides a session's settings.
pub struct Sources {
    environment: Environment,
    client: Arc<Client>,
    // Read when the first session is opened, and kept.
    catalog: OnceLock<Catalog>,
}

impl Sources {
    /// Nothing is read yet.
    pub fn new(environment: &Environment) -> Self {
        let client = Arc::new(Client::new(environment));
        Self { environment: environment.clone(), client, catalog: OnceLock::new() }
    }

    /// Everyone the settings, the kept keys and the environment name. Reads files.
    pub fn configured(&self, settings: &Settings) -> Registry {
        self.with(settings, Vec::new())
    }

    /// The same, with the servers that answer on this machine, if there are any; waits for them
    /// 100 ms at most.
    pub async fn with_local(&self, settings: &Settings) -> Option<Registry> {
        let found = local::find(&self.client, local::SERVERS).await;
        (!found.is_empty()).then(|| self.with(settings, found))
    }

    fn with(&self, settings: &Settings, local: Vec<ProviderSettings>) -> Registry {
        Registry::new(registry::Sources {
            configured: settings.providers.iter().map(provider).collect(),
            local,
            catalog: self.catalog.get_or_init(|| Catalog::load(&self.environment)),
            disabled: &settings.disabled_providers,
            enabled: settings.enabled_providers.as_deref(),
            auth: &Auth::read(&self.environment),
            environment: &self.environment,
            client: self.client.clone(),
            offline: Arc::new(Offline),
        })
    }
}

fn provider(from: &settings::Provider) -> ProviderSettings {
    ProviderSettings {
        id: from.id.clone(),
        name: from.name.clone(),
        npm: from.npm.clone(),
        base_url: from.base_url.clone().or_else(|| from.api.clone()),
        api_key: from.api_key.as_ref().map(|key| Secret::new(key.as_str())),
        env: from.env.clone(),
        headers: from.headers.clone(),
        limits: Limits { first: from.timeouts.header, idle: from.timeouts.chunk, total: from.timeouts.total },
        cache_key: from.cache_key,
        whitelist: from.whitelist.clone(),
        blacklist: from.blacklist.clone(),
        models: from.models.iter().map(model).collect(),
        options: from.options.clone(),
    }
}

fn model(from: &settings::Model) -> ModelSettings {
    ModelSettings {
        key: from.key.clone(),
        id: from.id.clone(),
        name: from.name.clone(),
        released: None,
        attachment: from.attachment,
        reasoning: from.reasoning,
        temperature: from.temperature,
        tool_call: from.tool_call,
        interleaved: from.interleaved.clone(),
        price: from.cost.map(|[input, output, cache_read, cache_write]| Price {
            input,
            output,
            cache_read,
            cache_write,
        }),
        context: from.context,
        input: from.input,
        output: from.output,
        modalities: from.modalities.clone(),
        status: from.status.clone(),
        npm: from.npm.clone(),
        api: from.api.clone(),
        options: from.options.clone(),
        headers: from.headers.clone(),
        efforts: None,
        variants: from.variants.clone(),
    }
}
