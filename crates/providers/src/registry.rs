//! The registry of the available models ([`Registry`]), with the provider of each.
//!
//! It is built from the configuration, the catalogue, the environment and the stored credentials
//! ([`RegistrySources`]), and rebuilt whenever one of them changes. [`Registry::find`] returns a
//! model and its provider by name, or explains why there is none ([`ModelNotFound`]);
//! [`Registry::default_model`] chooses a model for users who have not chosen one;
//! [`Registry::providers`] describes the providers for lists.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value};
use strsim::{levenshtein, osa_distance};

use super::auth::Auth;
use super::catalog::{Catalog, CatalogProvider};
use super::custom_endpoint::ApiType;
use super::editor_endpoints::{ConfigurableProvider, EditorEndpoints};
use super::endpoint::{Endpoint, without_url_secrets};
use super::http::HttpClient;
use super::oauth::TokenRefresher;
use super::replay::ReplayProvider;
use super::request_target::RequestTarget;
use super::wire_format::WireFormat;
use super::{Error, ImageSupport, Model, Provider, local, platform, preference};
use crate::entry::{ModelEntry, ProviderEntry};
use crate::secret::Secret;
use base::environment::Environment;
use base::lock::lock;
use base::text;
use transcript::ModelRef;

/// The inputs of a registry.
pub struct RegistrySources<'a> {
    /// The configured providers, in order.
    pub configured: Vec<ProviderEntry>,
    /// The servers that were found on this machine; see `local.rs`.
    pub local: Vec<ProviderEntry>,
    /// The catalogue of known providers.
    pub catalog: &'a Arc<Catalog>,
    /// The ids of disabled providers.
    pub disabled: &'a [String],
    /// The ids of the only enabled providers; `None` enables all.
    pub enabled: Option<&'a [String]>,
    /// True to include the providers of the catalogue without a key, for lists.
    pub includes_keyless: bool,
    pub auth: &'a Auth,
    pub environment: &'a Environment,
    pub client: Arc<HttpClient>,
    /// The client for endpoints that may only be at public addresses.
    pub public_client: Arc<HttpClient>,
    /// The endpoints that the editor has set.
    pub editor: &'a EditorEndpoints,
    /// The provider of the offline model.
    pub offline: Arc<dyn Provider>,
}

/// The available models and their providers.
pub struct Registry {
    /// The listed models, by provider and name.
    entries: BTreeMap<(String, String), Entry>,
    /// The providers that accept any model name, by id.
    unlisted: BTreeMap<String, ProviderEntry>,
    /// The ids of the providers in the configuration, and of those that the editor has changed.
    configured: Vec<String>,
    /// The ids of the model servers that were found on this machine.
    local: Vec<String>,
    summaries: Vec<ProviderSummary>,
    configurable: Vec<ConfigurableProvider>,
    factory: EntryFactory,
    /// The known providers that cannot be used, by id, with the reason and the remedy.
    obstacles: BTreeMap<String, String>,
    /// True if the user has no key for OpenCode's own provider: some of its models are free for
    /// everyone.
    has_free_models: bool,
    /// Providers of the catalogue whose login a plugin may be able to use. Their models are not
    /// listed, but found if the user names them.
    plugin_providers: Vec<ProviderEntry>,
    // Recordings that are being replayed, by directory. A leaf lock around a map.
    replays: Mutex<BTreeMap<String, Arc<ReplayProvider>>>,
}

/// The facts about a provider that lists show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderSummary {
    pub id: String,
    /// The display name.
    pub name: String,
    /// The source of the key.
    pub access: KeySource,
    /// The reason why no model of the provider has an address; `None` if one has.
    pub address_error: Option<String>,
    /// True if a part of the project's settings for the provider waits for trust.
    pub waits_for_trust: bool,
    /// True if any model name is accepted, because the provider's models are not known.
    pub accepts_any_model: bool,
    /// True if the provider is in the catalogue.
    pub is_in_catalog: bool,
}

impl ProviderSummary {
    /// Returns the reason why the provider cannot be used: a key or an address is missing. `None` if
    /// it can be used.
    pub fn obstacle(&self) -> Option<&str> {
        match &self.access {
            KeySource::Missing(why) => Some(why),
            _ => self.address_error.as_deref(),
        }
    }

    /// Describes the source of the key, or the obstacle, for lists.
    pub fn describe(&self) -> String {
        let key = match (&self.access, self.obstacle()) {
            (_, Some(why)) => return why.to_owned(),
            (KeySource::Editor, _) => "set by the editor".to_owned(),
            (KeySource::Stored, _) => "key from auth.json".to_owned(),
            (KeySource::Variable(name), _) => format!("key from {name}"),
            (KeySource::NotNeeded, _) => "no key needed".to_owned(),
            (KeySource::UnsetVariable(unset), _) => format!("used without a key: {unset}"),
            (KeySource::Configured | KeySource::Missing(_), _) => {
                "key from the settings".to_owned()
            }
        };
        if self.waits_for_trust {
            format!(
                "{key}; a part of this project's settings for it waits for trust (`adjutant trust`)"
            )
        } else {
            key
        }
    }
}

/// The source of a provider's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// The settings contain the key.
    Configured,
    /// The editor has set the endpoint, with credentials in its headers.
    Editor,
    /// The key or login is stored in an `auth.json`.
    Stored,
    /// The environment variable with this name.
    Variable(String),
    /// The provider needs no key.
    NotNeeded,
    /// The settings name a variable that is not set, and requests are sent without a key; the text
    /// is the clause about the variable.
    UnsetVariable(String),
    /// There is no key; the text is the remedy.
    Missing(String),
}

/// A model with its provider.
struct Entry {
    model: Arc<Model>,
    provider: Arc<dyn Provider>,
    /// Such as `2026-11-21`; empty if unknown.
    release_date: String,
    /// True unless it is known that requests are impossible.
    is_usable: bool,
}

/// The resources for new entries.
struct EntryFactory {
    environment: Environment,
    auth: Auth,
    client: Arc<HttpClient>,
    public_client: Arc<HttpClient>,
    catalog: Arc<Catalog>,
}

/// The error for a model that is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct ModelNotFound {
    /// The requested model.
    pub wanted: String,
    /// Similar names, the most similar first.
    pub nearest: Vec<String>,
    /// The reason why the whole provider cannot be used; `None` if only the model is missing.
    pub obstacle: Option<ProviderObstacle>,
    /// The command that fetches a model of this name, if the provider is a server on this machine.
    pub fetch: Option<String>,
}

/// The reason why a provider cannot be used. The texts are sentences for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderObstacle {
    /// It is a server on this machine that does not answer.
    Absent(String),
    /// Its key is missing, or it is not supported.
    Unavailable(String),
    /// There is no provider of this name.
    Unknown,
}

impl ModelNotFound {
    fn text(&self) -> String {
        let provider = match &self.obstacle {
            Some(ProviderObstacle::Absent(why) | ProviderObstacle::Unavailable(why)) => {
                return format!("The model \"{}\" cannot be used. {why}", self.wanted);
            }
            Some(ProviderObstacle::Unknown) => {
                let provider = self.wanted.split('/').next().unwrap_or_default();
                format!(", and no provider \"{provider}\"")
            }
            None => String::new(),
        };
        let hint = match self.nearest.as_slice() {
            [] => "`adjutant models` lists the models you can use.".to_owned(),
            names => format!("Did you mean {}?", text::alternatives(names)),
        };
        let fetch = self.fetch.as_ref();
        let fetch = fetch.map(|command| format!(" `{command}` fetches a model of this name."));
        format!(
            "There is no model \"{}\" here{}. {hint}{}",
            self.wanted,
            provider,
            fetch.unwrap_or_default()
        )
    }
}

impl Registry {
    /// The name of the offline model, and of its provider.
    pub const OFFLINE: &str = "offline";

    /// Builds a registry. Makes no requests.
    pub fn new(sources: RegistrySources<'_>) -> Self {
        let allowed = |id: &str| {
            !sources.disabled.iter().any(|d| d == id)
                && sources
                    .enabled
                    .is_none_or(|only| only.iter().any(|e| e == id))
        };
        let editor = sources.editor;
        let factory = EntryFactory {
            environment: sources.environment.clone(),
            auth: sources.auth.clone(),
            client: Arc::clone(&sources.client),
            public_client: Arc::clone(&sources.public_client),
            catalog: Arc::clone(sources.catalog),
        };
        let mut registry = Self {
            entries: BTreeMap::new(),
            unlisted: BTreeMap::new(),
            configured: Vec::new(),
            local: Vec::new(),
            summaries: Vec::new(),
            configurable: Vec::new(),
            factory,
            obstacles: BTreeMap::new(),
            has_free_models: false,
            plugin_providers: Vec::new(),
            replays: Mutex::default(),
        };
        for settings in &sources.configured {
            if allowed(&settings.id) {
                let known = sources
                    .catalog
                    .find(settings.catalog_id.as_ref().unwrap_or(&settings.id));
                let is_known = known.is_some();
                let base = ProviderEntry {
                    id: settings.id.clone(),
                    ..known.unwrap_or_default()
                };
                registry.configured.push(settings.id.clone());
                registry.add_with_editor_endpoint(base.overlaid_with(settings), is_known, editor);
            }
        }
        for CatalogProvider { id, env, npm, .. } in sources.catalog.providers() {
            let npm = npm.as_deref();
            if !allowed(id) || registry.configured.contains(id) {
                continue;
            }
            if editor.custom(id).is_some() || editor.is_disabled(id) {
                if let Some(known) = sources.catalog.find(id) {
                    registry.configured.push(id.to_owned());
                    registry.add_with_editor_endpoint(known, true, editor);
                }
                continue;
            }
            let has_key = sources.auth.has(id)
                || platform::key_variable(env, sources.environment).is_some()
                || platform::vertex_token(npm, sources.environment).is_some();
            // A server on this machine needs no key: if it is not found, it is not running.
            if !has_key && !local::is_known(id) {
                let name = sources.catalog.display_name(id);
                let why = platform::explain_missing_key(npm, id, name, env, sources.environment);
                registry.obstacles.insert(id.to_owned(), why);
            }
            if !has_key {
                if sources.auth.may_serve_plugin(id) {
                    registry.plugin_providers.extend(sources.catalog.find(id));
                }
                registry.has_free_models |= id == OPENCODE;
            }
            if (sources.includes_keyless || has_key)
                && let Some(known) = sources.catalog.find(id)
                && platform::is_supported(&known)
            {
                registry.add(known, true);
            }
        }
        for settings in sources.local {
            if allowed(&settings.id) && !registry.configured.contains(&settings.id) {
                registry.local.push(settings.id.clone());
                registry.add_with_editor_endpoint(settings, false, editor);
            }
        }
        for id in ALWAYS_CONFIGURABLE {
            let is_listed = registry.configurable.iter().any(|known| known.id == id);
            if allowed(id)
                && !is_listed
                && let Some(known) = sources.catalog.find_without_models(id)
            {
                registry.configurable.push(configurable(&known, None));
            }
        }
        let id = ModelRef {
            provider: Self::OFFLINE.into(),
            model: Self::OFFLINE.into(),
            effort: None,
        };
        let mut model = Model::unknown(id.clone());
        model.name = "Offline".into();
        model.provider_name = "adjutant".into();
        let entry = Entry {
            model: Arc::new(model),
            provider: sources.offline,
            release_date: String::new(),
            is_usable: true,
        };
        registry.entries.insert((id.provider, id.model), entry);
        registry
    }

    /// Adds a provider, changed by the editor if it has set an endpoint for it or disabled it.
    /// `is_in_catalog`: the provider is in the catalogue.
    fn add_with_editor_endpoint(
        &mut self,
        settings: ProviderEntry,
        is_in_catalog: bool,
        editor: &EditorEndpoints,
    ) {
        if editor.is_disabled(&settings.id) {
            let name = settings.name.as_deref().unwrap_or(&settings.id);
            let why = format!("The editor has disabled {name} for this connection.");
            self.configurable.push(configurable(&settings, None));
            self.obstacles.insert(settings.id, why);
            return;
        }
        match editor.custom(&settings.id).cloned() {
            Some(endpoint) => {
                let current = (endpoint.api, endpoint.base_url.clone());
                let listed = configurable(&settings, Some(current));
                self.add(settings.with_editor_endpoint(&endpoint), is_in_catalog);
                // `add` has listed the changed provider; its own API is that of its settings.
                if let Some(last) = self.configurable.last_mut() {
                    *last = listed;
                }
            }
            None => self.add(settings, is_in_catalog),
        }
    }

    /// Adds a provider with its models.
    fn add(&mut self, settings: ProviderEntry, is_in_catalog: bool) {
        let experimental = self
            .factory
            .environment
            .setting("ENABLE_EXPERIMENTAL_MODELS")
            .is_some();
        let names: Arc<[String]> = settings
            .models
            .iter()
            .map(|model| format!("{}/{}", settings.id, model.key))
            .collect();
        for model in &settings.models {
            let hidden = match model.status.as_deref() {
                Some("deprecated") => true,
                Some("alpha") => !experimental,
                _ => false,
            };
            let listed = settings
                .whitelist
                .as_ref()
                .is_none_or(|list| list.contains(&model.key));
            if hidden || !listed || settings.blacklist.contains(&model.key) {
                continue;
            }
            let entry = self.factory.entry(&settings, model, &names);
            self.entries
                .insert((settings.id.clone(), model.key.clone()), entry);
        }
        let accepts_any_model = settings.models.is_empty();
        let name = settings.name.clone().unwrap_or_else(|| settings.id.clone());
        let (_, access) = self.factory.access(&settings, settings.npm.as_deref());
        let current = match &access {
            KeySource::Missing(_) => None,
            _ => platform::usual_address(&settings, &self.factory.environment),
        };
        let address_error = self.factory.address_error(&settings);
        let api = ApiType::from_package(settings.npm.as_deref());
        let current = current.map(|address| (api, without_url_secrets(&address)));
        self.configurable.push(configurable(&settings, current));
        self.summaries.push(ProviderSummary {
            id: settings.id.clone(),
            name,
            access,
            address_error,
            waits_for_trust: settings.waits_for_trust,
            accepts_any_model,
            is_in_catalog,
        });
        // An endpoint of the editor may have models that are not known here.
        if accepts_any_model || settings.endpoint.is_some() {
            self.unlisted.insert(settings.id.clone(), settings);
        }
    }

    /// Returns the model with this name and its provider. An effort that the model does not have is
    /// left out of its id.
    ///
    /// # Errors
    /// [`ModelNotFound`], with similar names and the reason.
    pub fn find(
        &self,
        wanted: &ModelRef,
    ) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelNotFound> {
        if wanted.provider == ModelRef::REPLAY {
            let mut replays = lock(&self.replays);
            let replay = replays
                .entry(wanted.model.clone())
                .or_insert_with(|| ReplayProvider::new(Path::new(&wanted.model)));
            return Ok((Arc::new(replay.model(wanted)), Arc::new(Arc::clone(replay))));
        }
        let created;
        let entry = match self.listed(wanted) {
            Some(entry) => entry,
            None => {
                created = self.create(wanted).ok_or_else(|| ModelNotFound {
                    wanted: wanted.to_string(),
                    nearest: self.nearest(&wanted.to_string()),
                    obstacle: self.obstacle_to(&wanted.provider),
                    fetch: if self.is_local_server(&wanted.provider) {
                        local::fetch_command(&wanted.provider, "", &wanted.model)
                    } else {
                        None
                    },
                })?;
                &created
            }
        };
        let effort = wanted
            .effort
            .clone()
            .filter(|effort| entry.model.efforts.contains(effort));
        let model = match effort {
            None => Arc::clone(&entry.model),
            Some(_) => {
                let mut model = (*entry.model).clone();
                model.id.effort = effort;
                Arc::new(model)
            }
        };
        Ok((model, Arc::clone(&entry.provider)))
    }

    /// Returns the entry of a listed model, which may have a second name.
    fn listed(&self, wanted: &ModelRef) -> Option<&Entry> {
        let get = |model: String| self.entries.get(&(wanted.provider.clone(), model));
        get(wanted.model.clone()).or_else(|| get(local::alternative_name(wanted)?))
    }

    /// Creates the entry of a model that is not listed; `None` if no provider accepts its name.
    fn create(&self, wanted: &ModelRef) -> Option<Entry> {
        if let Some(settings) = self.unlisted.get(&wanted.provider) {
            let model = ModelEntry {
                key: wanted.model.clone(),
                ..Default::default()
            };
            return Some(self.factory.entry(settings, &model, &Arc::default()));
        }
        self.zen_model(wanted).or_else(|| self.plugin_model(wanted))
    }

    /// Creates the entry of a free model of OpenCode's own provider (Zen), which needs no key. These
    /// models are not listed: the user must name one, because the prompts go to a provider with
    /// which the user has no account.
    fn zen_model(&self, wanted: &ModelRef) -> Option<Entry> {
        if !self.has_free_models || wanted.provider != OPENCODE {
            return None;
        }
        let zen = self.factory.catalog.find(OPENCODE)?;
        let model = zen
            .models
            .iter()
            .find(|model| model.key == wanted.model && is_free(model))?;
        Some(self.factory.entry(&zen, model, &Arc::default()))
    }

    /// Creates the entry of a model that a plugin may be able to use.
    fn plugin_model(&self, wanted: &ModelRef) -> Option<Entry> {
        let provider = self
            .plugin_providers
            .iter()
            .find(|provider| provider.id == wanted.provider)?;
        let model = provider
            .models
            .iter()
            .find(|model| model.key == wanted.model)?;
        Some(self.factory.entry(provider, model, &Arc::default()))
    }

    /// True if a plugin may be able to use some provider, with a stored login.
    pub fn may_have_plugin_models(&self) -> bool {
        !self.plugin_providers.is_empty()
    }

    /// True if a plugin may be able to use this provider, with a stored login.
    pub fn may_serve_plugin(&self, provider: &str) -> bool {
        self.factory.auth.may_serve_plugin(provider)
    }

    /// True if a provider accepts requests for this model.
    pub fn has(&self, model: &ModelRef) -> bool {
        model.provider == ModelRef::REPLAY
            || self.listed(model).is_some()
            || self.unlisted.contains_key(&model.provider)
    }

    /// Returns all models, by provider and name; the offline model last.
    pub fn models(&self) -> Vec<Arc<Model>> {
        let (last, mut models): (Vec<_>, Vec<_>) = self
            .entries
            .values()
            .map(|entry| Arc::clone(&entry.model))
            .partition(|m| m.id.provider == Self::OFFLINE);
        models.extend(last);
        models
    }

    /// Returns the providers whose endpoint an editor can set.
    pub fn configurable(&self) -> &[ConfigurableProvider] {
        &self.configurable
    }

    /// Returns the APIs that an endpoint for a provider may have; `None` if no endpoint can be set
    /// for it. An endpoint can be set for all supported providers of the catalogue, too.
    pub fn supported_apis(&self, provider: &str) -> Option<Vec<ApiType>> {
        let listed = self.configurable.iter().find(|known| known.id == provider);
        let known = || {
            let known = self.factory.catalog.find(provider)?;
            platform::is_supported(&known).then(|| configurable(&known, None))
        };
        listed.cloned().or_else(known).map(|known| known.supported)
    }

    /// Returns the providers that are listed: the configured ones, then those of the catalogue, then
    /// the servers on this machine.
    pub fn providers(&self) -> &[ProviderSummary] {
        &self.summaries
    }

    /// True if the offline model is the only one.
    pub fn is_offline_only(&self) -> bool {
        self.entries.len() == 1 && self.unlisted.is_empty()
    }

    /// True if all models are on this machine.
    pub fn is_only_local(&self) -> bool {
        self.unlisted.is_empty()
            && self
                .entries
                .keys()
                .all(|(provider, _)| provider == Self::OFFLINE || self.local.contains(provider))
    }

    /// True if a provider is a model server that was found on this machine, not one in the settings.
    pub fn is_local_server(&self, provider: &str) -> bool {
        self.local.iter().any(|id| id == provider)
    }

    /// Returns a sentence for the user if a provider of the catalogue cannot be used with any key;
    /// `None` if it can, or is listed.
    pub fn why_unsupported(&self, provider: &str) -> Option<String> {
        if self.summaries.iter().any(|facts| facts.id == provider) {
            return None;
        }
        platform::why_unsupported(&self.factory.catalog.find(provider)?)
    }

    /// Returns the reason why a known provider is not listed, and the remedy; `None` for other
    /// providers.
    pub fn obstacle(&self, provider: &str) -> Option<String> {
        self.why_unsupported(provider)
            .or_else(|| self.obstacles.get(provider).cloned())
    }

    /// Returns a sentence for the user, with the remedy, if the models whose names contain `word` are
    /// those of a maker whose key is missing; `None` otherwise.
    pub fn obstacle_to_named(&self, word: &str) -> Option<String> {
        const MIN_CHARS: usize = 2;
        let word = word.to_lowercase();
        if word.len() < MIN_CHARS {
            return None;
        }
        let catalog = &self.factory.catalog;
        let has_model = |id: &&&str| {
            let known = catalog.find(id);
            let models = known.into_iter().flat_map(|known| known.models);
            self.obstacles.contains_key(**id)
                && models
                    .into_iter()
                    .any(|model| model.key.to_lowercase().contains(&word))
        };
        let id = preference::MODEL_MAKERS.iter().find(has_model)?;
        let why = self.obstacles.get(*id)?;
        Some(format!(
            "{word} needs a provider that has it, such as {}. {why}",
            catalog.display_name(id)
        ))
    }

    /// Returns the models of a provider, the preferred ones first (`preference::rank`), and those
    /// that cannot call tools last.
    pub fn ranked_models(&self, provider: &str) -> Vec<Arc<Model>> {
        let of_provider = self
            .entries
            .values()
            .filter(|entry| entry.model.id.provider == provider);
        let mut entries: Vec<&Entry> = of_provider.collect();
        entries.sort_by_cached_key(|entry| {
            let rank = preference::rank(&entry.model, &entry.release_date);
            Reverse((entry.model.tools, rank))
        });
        let models = entries.into_iter().map(|entry| Arc::clone(&entry.model));
        models.collect()
    }

    /// Returns the model for users who did not choose one: the preferred model of the configured
    /// providers, otherwise of all. A model that cannot call tools is only chosen if its provider is
    /// configured.
    pub fn default_model(&self) -> Arc<Model> {
        // Regional variants of a provider share its key variable: `moonshotai` and `moonshotai-cn`.
        let is_regional_variant = |entry: &Entry| {
            let id = &entry.model.id;
            id.provider.match_indices('-').any(|(at, _)| {
                let plain = (id.provider[..at].to_owned(), id.model.clone());
                self.entries.contains_key(&plain)
            })
        };
        let rank = |entry: &&Entry| {
            let id = &entry.model.id;
            let is_offline = id.provider == Self::OFFLINE;
            let is_configured = self.configured.contains(&id.provider);
            (
                is_offline || is_configured || entry.model.tools,
                !is_offline,
                entry.is_usable,
                is_configured,
                !self.local.contains(&id.provider),
                !is_regional_variant(entry),
                // A subscription shares its key variable with the ordinary API.
                !id.provider.contains("-plan"),
                preference::rank(&entry.model, &entry.release_date),
            )
        };
        let best = self.entries.values().max_by_key(rank);
        best.map_or_else(
            || Arc::new(Model::unknown(offline_ref())),
            |entry| Arc::clone(&entry.model),
        )
    }

    /// Returns a small model of the same provider, for titles: the newest of the families known to
    /// be small.
    pub fn small_model(&self, main: &ModelRef) -> Option<ModelRef> {
        if main.provider.starts_with("azure") {
            return None;
        }
        let families: [&[&str]; 3] = [&["gemini", "flash"], &["gpt", "nano"], &["claude", "haiku"]];
        let mine = || {
            self.entries
                .iter()
                .filter(|((provider, _), _)| *provider == main.provider)
        };
        families.iter().find_map(|words| {
            let of_family =
                mine().filter(|((_, key), _)| words.iter().all(|word| key.contains(word)));
            of_family
                .max_by_key(|((_, key), entry)| (entry.release_date.clone(), key.clone()))
                .map(|(_, e)| e.model.id.clone())
        })
    }

    /// Returns the newest model of a provider whose name contains a word, such as the name of a
    /// family; `None` if there is none.
    pub fn newest(&self, provider: &str, word: &str) -> Option<ModelRef> {
        let of_family = self
            .entries
            .iter()
            .filter(|((known, key), _)| known == provider && key.contains(word));
        // If a model has several names, the shortest one has no date.
        let rank = |((_, key), entry): &(&(String, String), &Entry)| {
            (entry.release_date.clone(), Reverse(key.len()))
        };
        of_family
            .max_by_key(rank)
            .map(|(_, entry)| entry.model.id.clone())
    }

    /// Returns the only model that a name without its provider, or in other capitals, can mean. The
    /// tag of a model of a local server, such as `:30b`, may be missing.
    pub fn only_named(&self, name: &str) -> Option<ModelRef> {
        let name = name.to_lowercase();
        // A gateway may have a model called `openai/gpt-5`, which is not the one of that provider.
        let has_provider = name
            .split_once('/')
            .is_some_and(|(provider, _)| !self.is_unknown(provider));
        let is_named = |id: &ModelRef| {
            let full = id.to_string().to_lowercase();
            let model = id.model.to_lowercase();
            if full == name || (model == name && !has_provider) {
                return true;
            }
            let is_without_tag = |text: &str| {
                let parts = text.rsplit_once(':');
                parts.is_some_and(|(start, _)| start == name)
            };
            let is_local = self.local.contains(&id.provider);
            is_local && (is_without_tag(&full) || (is_without_tag(&model) && !has_provider))
        };
        let mut named = self
            .entries
            .values()
            .map(|entry| &entry.model.id)
            .filter(|id| is_named(id));
        let only = named.next()?;
        named.next().is_none().then(|| only.clone())
    }

    /// Returns the reason why no model of a provider can be used; `None` if some can.
    fn obstacle_to(&self, provider: &str) -> Option<ProviderObstacle> {
        if let Some(why) = self.absent_server(provider) {
            return Some(ProviderObstacle::Absent(why));
        }
        if let Some(why) = self.obstacle(provider) {
            return Some(ProviderObstacle::Unavailable(why));
        }
        self.is_unknown(provider)
            .then_some(ProviderObstacle::Unknown)
    }

    /// True if there is no provider with this id, usable or not.
    pub fn is_unknown(&self, provider: &str) -> bool {
        let is_here = self.summaries.iter().any(|facts| facts.id == provider);
        !is_here && !local::is_known(provider) && self.obstacle(provider).is_none()
    }

    /// Returns the reason why a model server on this machine is not listed; `None` for other
    /// providers.
    fn absent_server(&self, provider: &str) -> Option<String> {
        let is_here = self.summaries.iter().any(|facts| facts.id == provider);
        if is_here {
            return None;
        }
        local::explain_absent_server(provider, &self.factory.environment)
    }

    /// Returns up to three models whose names are similar to a text, the most similar first. The id
    /// of a provider yields its preferred model. In this order of precedence: models of the provider
    /// with the most similar id; names that are the same; names that contain the text; names with
    /// the same words, up to misspellings; names with a similar spelling; newer models.
    pub fn nearest(&self, wanted: &str) -> Vec<String> {
        const MAX_NAMES: usize = 3;
        if let Some(best) = self.ranked_models(wanted).first() {
            return vec![best.id.to_string()];
        }
        let lower = wanted.to_lowercase();
        let (provider, short) = match lower.split_once('/') {
            Some((provider, model)) => {
                let known = self.summaries.iter().map(|facts| facts.id.as_str());
                (text::nearest(provider, known), model)
            }
            None => (None, lower.as_str()),
        };
        let mut scored: Vec<_> = self
            .entries
            .values()
            .filter_map(|entry| {
                let name = entry.model.id.to_string();
                let key = entry.model.id.model.to_lowercase();
                let is_part = key.contains(short) || short.contains(key.as_str());
                let has_words = has_similar_words(&key, short);
                let distance =
                    levenshtein(&lower, &name.to_lowercase()).min(levenshtein(short, &key) + 1);
                if !is_part && !has_words && distance > (short.len() / 2).max(2) {
                    return None;
                }
                let (distance, release_date, length) = match (is_part, has_words) {
                    (true, _) => (distance.min(2), entry.release_date.as_str(), key.len()),
                    (false, true) => (distance.min(3), entry.release_date.as_str(), key.len()),
                    (false, false) => (distance, "", 0),
                };
                let is_of_other_provider =
                    provider.is_some_and(|named| entry.model.id.provider != named);
                Some((
                    is_of_other_provider,
                    distance,
                    Reverse(release_date),
                    length,
                    name,
                ))
            })
            .collect();
        scored.sort();
        scored.truncate(MAX_NAMES);
        scored.into_iter().map(|(.., name)| name).collect()
    }
}

/// True if a name has every word of a text; one letter in four may be misspelt.
fn has_similar_words(name: &str, text: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let known = words(name);
    let wanted = words(text);
    let is_known = |word: &String| {
        let allowed = word.chars().count() / 4;
        known
            .iter()
            .any(|other| osa_distance(word, other) <= allowed)
    };
    !wanted.is_empty() && wanted.iter().all(is_known)
}

/// The providers whose APIs gateways offer: an editor can set their endpoints even if the user has
/// no key for them.
const ALWAYS_CONFIGURABLE: [&str; 2] = ["anthropic", "openai"];

/// Describes a provider for editors; `current` is the API and the address of its requests.
fn configurable(
    settings: &ProviderEntry,
    current: Option<(ApiType, String)>,
) -> ConfigurableProvider {
    ConfigurableProvider {
        id: settings.id.clone(),
        supported: ApiType::from_package(settings.npm.as_deref()).endpoint_apis(),
        current,
    }
}

/// The id of OpenCode's own provider.
const OPENCODE: &str = "opencode";
/// The key that OpenCode accepts from everyone for its free models.
const PUBLIC_KEY: &str = "public";

/// True if the catalogue states a price of zero.
fn is_free(model: &ModelEntry) -> bool {
    model
        .price
        .as_ref()
        .is_some_and(|price| price.base.input == 0.0 && price.base.output == 0.0)
}

fn offline_ref() -> ModelRef {
    ModelRef {
        provider: Registry::OFFLINE.into(),
        model: Registry::OFFLINE.into(),
        effort: None,
    }
}

impl EntryFactory {
    /// Returns the key of a provider, and its source. There is no key if a login provides a token.
    fn access(&self, settings: &ProviderEntry, npm: Option<&str>) -> (Option<Secret>, KeySource) {
        if settings.endpoint.is_some() {
            return (None, KeySource::Editor);
        }
        let stored = || Some((self.auth.key(&settings.id)?, KeySource::Stored));
        let variable = || {
            let (name, key) = platform::key_variable(&settings.env, &self.environment)?;
            Some((Secret::new(key), KeySource::Variable(name.to_owned())))
        };
        let token = || {
            let (name, token) = platform::vertex_token(npm, &self.environment)?;
            Some((Secret::new(token), KeySource::Variable(name.to_owned())))
        };
        let configured = settings
            .api_key
            .clone()
            .map(|key| (key, KeySource::Configured));
        match configured.or_else(stored).or_else(variable).or_else(token) {
            Some((key, access)) => (Some(key), access),
            None if self.auth.tokens(&settings.id).is_some() => (None, KeySource::Stored),
            None => {
                let name = settings.name.as_deref().unwrap_or(&settings.id);
                let missing = platform::missing_key_error(npm, settings, name, &self.environment);
                let why = |error: Error| settings.trust_notice().unwrap_or(error.to_string());
                let access = match (missing, &settings.unset_key) {
                    (Some(error), _) => KeySource::Missing(why(error)),
                    (None, Some(unset)) => KeySource::UnsetVariable(unset.clone()),
                    (None, None) => KeySource::NotNeeded,
                };
                (None, access)
            }
        }
    }

    /// Returns the reason why no model of a provider has an address; `None` if one has.
    fn address_error(&self, settings: &ProviderEntry) -> Option<String> {
        let any = [ModelEntry::default()];
        let models = match settings.models.as_slice() {
            [] => &any,
            models => models,
        };
        let mut why = None;
        for model in models {
            let id = ModelRef {
                provider: settings.id.clone(),
                model: model.key.clone(),
                effort: None,
            };
            let npm = model.npm.as_ref().or(settings.npm.as_ref());
            let base = model.api.as_ref().or(settings.base_url.as_ref());
            let address = platform::address(
                npm.map(String::as_str),
                base.map(String::as_str),
                settings,
                &Model::unknown(id),
                &self.environment,
            );
            why = Some(address.err()?.to_string());
        }
        settings.trust_notice().or(why)
    }

    /// Returns the key for one of the provider's models, and its source: OpenCode's free models have
    /// a public key.
    fn access_to(
        &self,
        model: &ModelEntry,
        settings: &ProviderEntry,
        npm: Option<&str>,
    ) -> (Option<Secret>, KeySource) {
        match self.access(settings, npm) {
            (None, KeySource::Missing(_)) if settings.id == OPENCODE && is_free(model) => {
                (Some(Secret::new(PUBLIC_KEY)), KeySource::NotNeeded)
            }
            other => other,
        }
    }

    /// Returns the image support of a model that the user has configured, from the models of the
    /// same name in the catalogue.
    fn images_by_name(&self, model: &ModelEntry) -> ImageSupport {
        let catalog = Arc::clone(&self.catalog);
        let name = model.id.clone().unwrap_or_else(|| model.key.clone());
        ImageSupport::deferred(move || catalog.accepts_images(&name).unwrap_or(false))
    }

    /// Creates the entry of a model. `names` are the names of all models of the provider.
    fn entry(&self, settings: &ProviderEntry, model: &ModelEntry, names: &Arc<[String]>) -> Entry {
        let id = ModelRef {
            provider: settings.id.clone(),
            model: model.key.clone(),
            effort: None,
        };
        let name = settings.name.clone().unwrap_or_else(|| settings.id.clone());
        let npm = model
            .npm
            .as_ref()
            .or(settings.npm.as_ref())
            .map(String::as_str);
        let (key, access) = self.access_to(model, settings, npm);
        let takes = |kind: &str| {
            model
                .modalities
                .as_ref()
                .map(|list| list.iter().any(|m| m == kind))
        };
        let mut facts = Model {
            name: model.name.clone().unwrap_or_else(|| model.key.clone()),
            provider_name: name.clone(),
            api_id: model.id.as_ref().unwrap_or(&model.key).clone(),
            context: model.context.filter(|n| *n > 0),
            has_own_window: model.has_own_window,
            input: model.input.filter(|n| *n > 0),
            output: model.output.filter(|n| *n > 0),
            price: model.price.clone(),
            images: takes("image")
                .or(model.attachment)
                .map_or_else(|| self.images_by_name(model), ImageSupport::from),
            pdf: takes("pdf").unwrap_or(false),
            tools: model.tool_call.unwrap_or(true),
            reasoning: model.reasoning.unwrap_or(false),
            temperature: model.temperature.unwrap_or(true),
            efforts: Vec::new(),
            ..Model::unknown(id)
        };
        let base = model
            .api
            .as_ref()
            .or(settings.base_url.as_ref())
            .map(String::as_str);
        let address = platform::address(npm, base, settings, &facts, &self.environment);
        let (wire, base_url, address_variable, unusable) = match address {
            Ok(address) => (address.wire, address.base_url, address.variable, None),
            Err(why) => (platform::CHAT, String::new(), None, Some(why)),
        };
        let missing = match &access {
            KeySource::Missing(why) => Some(Error::NoKey(why.clone())),
            _ => None,
        };
        let waiting = settings.trust_notice().map(Error::WaitsForTrust);
        let unusable = unusable.or(missing).map(|why| waiting.unwrap_or(why));
        let is_usable = unusable.is_none();
        let mut target = RequestTarget {
            provider: settings.id.clone(),
            name,
            base_url,
            key,
            headers: platform::required_headers(settings),
            cache_key: settings.cache_key,
            reasoning_field: model.reasoning_field.clone(),
        };
        target
            .headers
            .extend(settings.headers.iter().chain(&model.headers).cloned());
        let needs_login = access == KeySource::Stored && target.key.is_none();
        let key_source = describe_key_source(&access, settings, &target, needs_login);
        let key_remedy = key_remedy(&access, settings, &target);
        let tokens = if needs_login {
            self.auth.tokens(&settings.id)
        } else {
            None
        };
        let login = tokens.map(|tokens| {
            TokenRefresher::new(
                &settings.id,
                tokens,
                Arc::clone(&self.client),
                &self.environment,
            )
        });
        let mut secrets: Vec<Secret> = target.key.iter().cloned().collect();
        let custom = settings.endpoint.as_deref();
        secrets.extend(custom.iter().flat_map(|endpoint| endpoint.secrets()));
        platform::move_key_to_header(npm, settings, &self.environment, &mut target);

        // The other wire formats cannot carry audio.
        facts.audio = takes("audio").unwrap_or(false) && ["chat", "gemini"].contains(&wire.name());
        facts.efforts = efforts(&facts, model, wire);
        let mut options = platform::body_options(&settings.options);
        options.extend(model.options.clone());
        facts.editor_address = custom.map(|endpoint| endpoint.base_url.as_str().into());
        facts.unset_key = unset_key(&access, &target);
        let client = match custom {
            Some(endpoint) if endpoint.public_only => Arc::clone(&self.public_client),
            _ => Arc::clone(&self.client),
        };
        let endpoint = Endpoint {
            model_names: Arc::clone(names),
            client,
            wire,
            target,
            secrets,
            is_set_by_editor: custom.is_some(),
            login,
            timeouts: settings.timeouts,
            options,
            variants: variants(model),
            unusable,
            key_source,
            key_remedy,
            address_variable,
        };
        let release_date = model.release_date.clone().unwrap_or_default();
        Entry {
            model: Arc::new(facts),
            provider: Arc::new(Arc::new(endpoint)),
            release_date,
            is_usable,
        }
    }
}

/// Describes the source of a key, for errors: `the key from ACME_KEY`.
fn describe_key_source(
    access: &KeySource,
    settings: &ProviderEntry,
    target: &RequestTarget,
    needs_login: bool,
) -> String {
    match access {
        KeySource::Configured if settings.source.is_empty() => {
            "the key from the settings".to_owned()
        }
        KeySource::Configured => match &settings.key_variable {
            Some(variable) => format!("the key from {variable}, named in {}", settings.source),
            None => format!("the key from {}", settings.source),
        },
        KeySource::Editor => "the headers that the editor has set".to_owned(),
        KeySource::Stored if needs_login => "the login in auth.json".to_owned(),
        KeySource::Stored => "the key from auth.json".to_owned(),
        KeySource::Variable(name) => format!("the key from {name}"),
        KeySource::NotNeeded | KeySource::UnsetVariable(_) | KeySource::Missing(_)
            if platform::has_key_header(&target.headers) =>
        {
            match &settings.key_variable {
                Some(variable) => format!("the key from {variable} in the configured headers"),
                None => "the key in the configured headers".to_owned(),
            }
        }
        KeySource::UnsetVariable(unset) => format!("no key, because {unset}"),
        KeySource::NotNeeded | KeySource::Missing(_) => "no key".to_owned(),
    }
}

/// Returns the value of [`Model::unset_key`].
fn unset_key(access: &KeySource, target: &RequestTarget) -> Option<Arc<str>> {
    match access {
        KeySource::UnsetVariable(unset) if !platform::has_key_header(&target.headers) => {
            Some(unset.as_str().into())
        }
        _ => None,
    }
}

/// Returns the remedy if the provider refuses a request without a key; `None` if the request has
/// one.
fn key_remedy(
    access: &KeySource,
    settings: &ProviderEntry,
    target: &RequestTarget,
) -> Option<String> {
    if target.key.is_some() || platform::has_key_header(&target.headers) {
        return None;
    }
    let id = &settings.id;
    match access {
        KeySource::UnsetVariable(_) => Some(format!("Set it, or run `adjutant auth login {id}`.")),
        KeySource::NotNeeded => Some(format!("Run `adjutant auth login {id}`.")),
        _ => None,
    }
}

/// Returns the sets of options of a model, by the name of the effort, without removed ones.
fn variants(model: &ModelEntry) -> Vec<(String, Map<String, Value>)> {
    let all = model.variants.iter();
    all.filter_map(|(name, options)| Some((name.clone(), options.clone()?)))
        .collect()
}

/// Returns the efforts of a model that can be chosen: those of the catalogue or the wire format,
/// without those that the settings remove, then those that only the settings have.
fn efforts(facts: &Model, model: &ModelEntry, wire: &dyn WireFormat) -> Vec<String> {
    let mut all = Vec::new();
    if facts.reasoning {
        all = model.efforts.clone().unwrap_or_else(|| wire.efforts(facts));
    }
    let is_removed = |effort: &String| {
        model
            .variants
            .iter()
            .any(|(name, options)| name == effort && options.is_none())
    };
    all.retain(|effort| !is_removed(effort));
    for (name, _) in model
        .variants
        .iter()
        .filter(|(_, options)| options.is_some())
    {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests;
