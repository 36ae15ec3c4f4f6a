//! The available models and the provider of each, from the configuration, the catalogue, the
//! environment and the stored credentials. Rebuilt whenever one of them changes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value};
use strsim::{levenshtein, osa_distance};

use super::auth::Auth;
use super::catalog::Catalog;
use super::custom_endpoint::ApiType;
use super::editor::{ConfigurableProvider, EditorEndpoints};
use super::endpoint::{Endpoint, shown};
use super::http::HttpClient;
use super::oauth::TokenRefresher;
use super::replay::ReplayProvider;
use super::request_target::RequestTarget;
use super::wire::WireFormat;
use super::{Error, ImageSupport, Model, Provider, local, platform, preference};
use crate::entry::{ModelEntry, ProviderEntry};
use crate::secret::Secret;
use base::environment::Environment;
use base::lock::lock;
use base::text;
use transcript::ModelRef;

/// The inputs of a registry.
pub struct Sources<'a> {
    /// The configured providers, in order.
    pub configured: Vec<ProviderEntry>,
    /// The servers on this machine; see `local.rs`.
    pub local: Vec<ProviderEntry>,
    /// The catalogue of known providers.
    pub catalog: &'a Arc<Catalog>,
    /// Disabled providers.
    pub disabled: &'a [String],
    /// If set, all other providers are disabled.
    pub enabled: Option<&'a [String]>,
    /// Whether providers without a key are included as well, for display.
    pub everything: bool,
    pub auth: &'a Auth,
    pub environment: &'a Environment,
    pub client: Arc<HttpClient>,
    /// The client for endpoints that may only be at public addresses.
    pub public_client: Arc<HttpClient>,
    /// The endpoints that the editor has set.
    pub editor: &'a EditorEndpoints,
    /// The offline model.
    pub offline: Arc<dyn Provider>,
}

pub struct Registry {
    entries: BTreeMap<(String, String), Entry>,
    /// Providers without a list of models: any name is accepted.
    open: BTreeMap<String, ProviderEntry>,
    configured: Vec<String>,
    /// The model servers that were found on this machine.
    local: Vec<String>,
    facts: Vec<ProviderSummary>,
    configurable: Vec<ConfigurableProvider>,
    make: EntryFactory,
    /// Known providers that cannot be asked, with the reason and the remedy.
    keyless: BTreeMap<String, String>,
    /// Whether OpenCode's own provider has no key: some of its models are free for everyone.
    has_free_models: bool,
    /// Providers of the catalogue whose login a plugin may be able to use, for users who name their
    /// models.
    plugin_providers: Vec<ProviderEntry>,
    // Recordings that are being replayed, by directory. A leaf lock around a map.
    replays: Mutex<BTreeMap<String, Arc<ReplayProvider>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderSummary {
    pub id: String,
    pub name: String,
    pub access: KeySource,
    /// The reason why its address is unknown, whatever the model.
    pub unaddressed: Option<String>,
    /// A part of the project's settings for it waits for trust.
    pub waits_for_trust: bool,
    /// Whether any model name is accepted, because the provider's models are not listed.
    pub open: bool,
    /// Whether the provider is in the catalogue.
    pub known: bool,
}

impl ProviderSummary {
    /// Returns the reason why the provider cannot be used: a key or an address is missing.
    pub fn obstacle(&self) -> Option<&str> {
        match &self.access {
            KeySource::Missing(why) => Some(why),
            _ => self.unaddressed.as_deref(),
        }
    }

    /// Describes the source of the key, or the obstacle, for lists.
    pub fn describe(&self) -> String {
        let key = match (&self.access, self.obstacle()) {
            (_, Some(why)) => return why.to_owned(),
            (KeySource::Editor, _) => "set by the editor".to_owned(),
            (KeySource::Kept, _) => "key from auth.json".to_owned(),
            (KeySource::Variable(name), _) => format!("key from {name}"),
            (KeySource::Free, _) => "no key needed".to_owned(),
            (KeySource::Unset(unset), _) => format!("used without a key: {unset}"),
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
    /// From the settings.
    Configured,
    /// The editor has set the endpoint with its headers.
    Editor,
    /// The key or login is stored in an `auth.json`.
    Kept,
    /// The environment variable of this name.
    Variable(String),
    Free,
    /// The settings name a variable that is not set, and requests are sent without a key; the text
    /// is the clause about the variable.
    Unset(String),
    /// There is no key; the text is the remedy.
    Missing(String),
}

struct Entry {
    model: Arc<Model>,
    provider: Arc<dyn Provider>,
    released: String,
    /// Whether no reason is known that prevents requests.
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

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct NotFound {
    pub wanted: String,
    /// Similar names, the nearest first.
    pub nearest: Vec<String>,
    /// The reason why the provider cannot be used, if that is why.
    pub obstacle: Option<ProviderObstacle>,
    /// The command that makes the provider's server on this machine fetch a model of this name.
    pub fetch: Option<String>,
}

/// The reason why a provider cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderObstacle {
    /// It is a server of this machine that does not answer.
    Absent(String),
    /// Its key is missing, or it is not supported.
    Unavailable(String),
    /// There is no provider of this name.
    Unknown,
}

impl NotFound {
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
    /// The provider and model of last resort, which need neither key nor network.
    pub const OFFLINE: &str = "offline";

    /// Builds a registry. Connects to nothing.
    pub fn new(sources: Sources<'_>) -> Self {
        let allowed = |id: &str| {
            !sources.disabled.iter().any(|d| d == id)
                && sources
                    .enabled
                    .is_none_or(|only| only.iter().any(|e| e == id))
        };
        let editor = sources.editor;
        let make = EntryFactory {
            environment: sources.environment.clone(),
            auth: sources.auth.clone(),
            client: Arc::clone(&sources.client),
            public_client: Arc::clone(&sources.public_client),
            catalog: Arc::clone(sources.catalog),
        };
        let mut registry = Self {
            entries: BTreeMap::new(),
            open: BTreeMap::new(),
            configured: Vec::new(),
            local: Vec::new(),
            facts: Vec::new(),
            configurable: Vec::new(),
            make,
            keyless: BTreeMap::new(),
            has_free_models: false,
            plugin_providers: Vec::new(),
            replays: Mutex::default(),
        };
        for settings in &sources.configured {
            if allowed(&settings.id) {
                let known = sources
                    .catalog
                    .find(settings.known_as.as_ref().unwrap_or(&settings.id));
                let is_known = known.is_some();
                let base = ProviderEntry {
                    id: settings.id.clone(),
                    ..known.unwrap_or_default()
                };
                registry.configured.push(settings.id.clone());
                registry.add_for(base.overlaid_with(settings), is_known, editor);
            }
        }
        for (id, env) in sources.catalog.ids() {
            if !allowed(id) || registry.configured.contains(id) {
                continue;
            }
            if editor.custom(id).is_some() || editor.is_disabled(id) {
                if let Some(known) = sources.catalog.find(id) {
                    registry.configured.push(id.to_owned());
                    registry.add_for(known, true, editor);
                }
                continue;
            }
            let npm = sources.catalog.npm(id);
            let has_key = sources.auth.has(id)
                || platform::key_variable(env, sources.environment).is_some()
                || platform::token(npm, sources.environment).is_some();
            // A server on this machine lacks no key: it does not run.
            if !has_key && !local::is_known(id) {
                let name = sources.catalog.name(id);
                let why = platform::missing_key(npm, id, name, env, sources.environment);
                registry.keyless.insert(id.to_owned(), why);
            }
            if !has_key {
                if sources.auth.may_serve_plugin(id) {
                    registry.plugin_providers.extend(sources.catalog.find(id));
                }
                registry.has_free_models |= id == OPENCODE;
            }
            if (sources.everything || has_key)
                && let Some(known) = sources.catalog.find(id)
                && platform::is_supported(&known)
            {
                registry.add(known, true);
            }
        }
        for settings in sources.local {
            if allowed(&settings.id) && !registry.configured.contains(&settings.id) {
                registry.local.push(settings.id.clone());
                registry.add_for(settings, false, editor);
            }
        }
        for id in ALWAYS_CONFIGURABLE {
            let is_listed = registry.configurable.iter().any(|known| known.id == id);
            if allowed(id)
                && !is_listed
                && let Some(known) = sources.catalog.without_models(id)
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
            released: String::new(),
            is_usable: true,
        };
        registry.entries.insert((id.provider, id.model), entry);
        registry
    }

    /// Adds a provider as the editor wants it.
    fn add_for(&mut self, settings: ProviderEntry, known: bool, editor: &EditorEndpoints) {
        if editor.is_disabled(&settings.id) {
            let name = settings.name.as_deref().unwrap_or(&settings.id);
            let why = format!("The editor has disabled {name} for this connection.");
            self.configurable.push(configurable(&settings, None));
            self.keyless.insert(settings.id, why);
            return;
        }
        match editor.custom(&settings.id).cloned() {
            Some(endpoint) => {
                let current = (endpoint.api, endpoint.base_url.clone());
                let listed = configurable(&settings, Some(current));
                self.add(settings.moved_to(&endpoint), known);
                // Instead of the entry that `add` has made of the moved provider.
                if let Some(last) = self.configurable.last_mut() {
                    *last = listed;
                }
            }
            None => self.add(settings, known),
        }
    }

    fn add(&mut self, settings: ProviderEntry, known: bool) {
        let experimental = self
            .make
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
            let entry = self.make.entry(&settings, model, &names);
            self.entries
                .insert((settings.id.clone(), model.key.clone()), entry);
        }
        let open = settings.models.is_empty();
        let name = settings.name.clone().unwrap_or_else(|| settings.id.clone());
        let (_, access) = self.make.access(&settings, settings.npm.as_deref());
        let current = match &access {
            KeySource::Missing(_) => None,
            _ => platform::usual_address(&settings, &self.make.environment),
        };
        let unaddressed = self.make.unaddressed(&settings);
        let api = ApiType::of_package(settings.npm.as_deref());
        let current = current.map(|address| (api, shown(&address)));
        self.configurable.push(configurable(&settings, current));
        self.facts.push(ProviderSummary {
            id: settings.id.clone(),
            name,
            access,
            unaddressed,
            waits_for_trust: settings.waits_for_trust,
            open,
            known,
        });
        // An endpoint of the editor's may have models that nothing here knows.
        if open || settings.endpoint.is_some() {
            self.open.insert(settings.id.clone(), settings);
        }
    }

    /// Returns the model of this name and its provider. An effort that it does not have is left
    /// out.
    ///
    /// # Errors
    /// [`NotFound`], with the nearest names.
    pub fn find(&self, wanted: &ModelRef) -> Result<(Arc<Model>, Arc<dyn Provider>), NotFound> {
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
                created = self.create(wanted).ok_or_else(|| NotFound {
                    wanted: wanted.to_string(),
                    nearest: self.nearest(&wanted.to_string()),
                    obstacle: self.obstacle_to(&wanted.provider),
                    fetch: if self.is_found(&wanted.provider) {
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

    /// Returns the entry of a listed model. Servers may have several names for it.
    fn listed(&self, wanted: &ModelRef) -> Option<&Entry> {
        let get = |model: String| self.entries.get(&(wanted.provider.clone(), model));
        get(wanted.model.clone()).or_else(|| get(local::other_name(wanted)?))
    }

    /// Creates the entry of a model that is not listed, if its name is accepted.
    fn create(&self, wanted: &ModelRef) -> Option<Entry> {
        if let Some(settings) = self.open.get(&wanted.provider) {
            let model = ModelEntry {
                key: wanted.model.clone(),
                ..Default::default()
            };
            return Some(self.make.entry(settings, &model, &Arc::default()));
        }
        self.zen_model(wanted).or_else(|| self.plugin_model(wanted))
    }

    /// Creates the entry of a free model of OpenCode's own provider, which needs no key. It must be
    /// named by the user, because its prompts go to a provider with whom the user has no account.
    fn zen_model(&self, wanted: &ModelRef) -> Option<Entry> {
        if !self.has_free_models || wanted.provider != OPENCODE {
            return None;
        }
        let zen = self.make.catalog.find(OPENCODE)?;
        let model = zen
            .models
            .iter()
            .find(|model| model.key == wanted.model && is_free(model))?;
        Some(self.make.entry(&zen, model, &Arc::default()))
    }

    fn plugin_model(&self, wanted: &ModelRef) -> Option<Entry> {
        let provider = self
            .plugin_providers
            .iter()
            .find(|provider| provider.id == wanted.provider)?;
        let model = provider
            .models
            .iter()
            .find(|model| model.key == wanted.model)?;
        Some(self.make.entry(provider, model, &Arc::default()))
    }

    /// Returns whether a plugin may be able to use some provider.
    pub fn may_have_plugin_models(&self) -> bool {
        !self.plugin_providers.is_empty()
    }

    /// Returns whether a plugin may be able to use a provider, with a stored login.
    pub fn may_serve_plugin(&self, provider: &str) -> bool {
        self.make.auth.may_serve_plugin(provider)
    }

    /// Returns whether a request for this model has a provider.
    pub fn has(&self, model: &ModelRef) -> bool {
        model.provider == ModelRef::REPLAY
            || self.listed(model).is_some()
            || self.open.contains_key(&model.provider)
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
    /// for it. Providers of the catalogue need not be listed.
    pub fn supported(&self, provider: &str) -> Option<Vec<ApiType>> {
        let listed = self.configurable.iter().find(|known| known.id == provider);
        let known = || {
            let known = self.make.catalog.find(provider)?;
            platform::is_supported(&known).then(|| configurable(&known, None))
        };
        listed.cloned().or_else(known).map(|known| known.supported)
    }

    /// Returns the providers in the order of discovery.
    pub fn providers(&self) -> &[ProviderSummary] {
        &self.facts
    }

    /// Returns whether the offline model is the only one.
    pub fn is_offline_only(&self) -> bool {
        self.entries.len() == 1 && self.open.is_empty()
    }

    /// Returns whether there are no models except those of this machine.
    pub fn is_only_local(&self) -> bool {
        self.open.is_empty()
            && self
                .entries
                .keys()
                .all(|(provider, _)| provider == Self::OFFLINE || self.local.contains(provider))
    }

    /// Returns whether a provider is a model server that was found on this machine, and not one of
    /// the settings.
    pub fn is_found(&self, provider: &str) -> bool {
        self.local.iter().any(|id| id == provider)
    }

    /// Returns the reason why a provider of the catalogue cannot be used with any key, in a
    /// sentence for the user.
    pub fn unsupported(&self, provider: &str) -> Option<String> {
        if self.facts.iter().any(|facts| facts.id == provider) {
            return None;
        }
        platform::why_unsupported(&self.make.catalog.find(provider)?)
    }

    /// Returns the reason why a known provider that is not listed cannot be used, and the remedy.
    pub fn obstacle(&self, provider: &str) -> Option<String> {
        self.unsupported(provider)
            .or_else(|| self.keyless.get(provider).cloned())
    }

    /// Returns the reason why the models with this in their names cannot be used, if they are those of
    /// a maker without a key, and the remedy.
    pub fn obstacle_to_named(&self, word: &str) -> Option<String> {
        const MIN_CHARS: usize = 2;
        let word = word.to_lowercase();
        if word.len() < MIN_CHARS {
            return None;
        }
        let catalog = &self.make.catalog;
        let has_model = |id: &&&str| {
            let known = catalog.find(id);
            let models = known.into_iter().flat_map(|known| known.models);
            self.keyless.contains_key(**id)
                && models
                    .into_iter()
                    .any(|model| model.key.to_lowercase().contains(&word))
        };
        let id = preference::MAKERS.iter().find(has_model)?;
        let why = self.keyless.get(*id)?;
        Some(format!(
            "{word} needs a provider that has it, such as {}. {why}",
            catalog.name(id)
        ))
    }

    /// Returns the models of a provider, the best first: see [`Registry::default_model`].
    pub fn ranked(&self, provider: &str) -> Vec<Arc<Model>> {
        let of_provider = self
            .entries
            .values()
            .filter(|entry| entry.model.id.provider == provider);
        let mut entries: Vec<&Entry> = of_provider.collect();
        entries.sort_by_cached_key(|entry| {
            let rank = preference::rank(&entry.model, &entry.released);
            Reverse((entry.model.tools, rank))
        });
        let models = entries.into_iter().map(|entry| Arc::clone(&entry.model));
        models.collect()
    }

    /// Returns the model for users who did not choose one: the best of the configured providers,
    /// otherwise of all. A model that is known to be unable to call tools only if the user has
    /// configured it.
    pub fn default_model(&self) -> Arc<Model> {
        // Addresses of one provider share a variable: `moonshotai` and `moonshotai-cn`.
        let has_plain_address = |entry: &Entry| {
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
                !has_plain_address(entry),
                // A subscription that shares its variable with the ordinary API.
                !id.provider.contains("-plan"),
                preference::rank(&entry.model, &entry.released),
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
                .max_by_key(|((_, key), entry)| (entry.released.clone(), key.clone()))
                .map(|(_, e)| e.model.id.clone())
        })
    }

    /// Returns the newest model of a provider whose name contains a word, such as that of a family.
    pub fn newest(&self, provider: &str, word: &str) -> Option<ModelRef> {
        let of_family = self
            .entries
            .iter()
            .filter(|((known, key), _)| known == provider && key.contains(word));
        // Of several names of one model, the shortest has no date.
        let rank = |((_, key), entry): &(&(String, String), &Entry)| {
            (entry.released.clone(), Reverse(key.len()))
        };
        of_family
            .max_by_key(rank)
            .map(|(_, entry)| entry.model.id.clone())
    }

    /// Returns the only model that a name without its provider, or in other capitals, can mean. The
    /// tag of a model of a local server, such as `:30b`, may be missing.
    pub fn only_named(&self, name: &str) -> Option<ModelRef> {
        let name = name.to_lowercase();
        let is_named = |id: &ModelRef| {
            let full = id.to_string().to_lowercase();
            let model = id.model.to_lowercase();
            if full == name || model == name {
                return true;
            }
            let is_without_tag = |text: &str| {
                let parts = text.rsplit_once(':');
                parts.is_some_and(|(start, _)| start == name)
            };
            self.local.contains(&id.provider) && (is_without_tag(&full) || is_without_tag(&model))
        };
        let mut named = self
            .entries
            .values()
            .map(|entry| &entry.model.id)
            .filter(|id| is_named(id));
        let only = named.next()?;
        named.next().is_none().then(|| only.clone())
    }

    /// Returns the reason why no model of a provider can be used, if there is one.
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

    /// Returns whether there is no provider of this name, connected or not.
    pub fn is_unknown(&self, provider: &str) -> bool {
        let is_here = self.facts.iter().any(|facts| facts.id == provider);
        !is_here && !local::is_known(provider) && self.obstacle(provider).is_none()
    }

    /// Returns the reason why a model server of this machine has no models here, if it has none.
    fn absent_server(&self, provider: &str) -> Option<String> {
        let is_here = self.facts.iter().any(|facts| facts.id == provider);
        if is_here {
            return None;
        }
        local::absent(provider, &self.make.environment)
    }

    /// Returns the models whose names are like a text, the most similar first: those of this name, then
    /// those whose name contains it, the newest first, then those that have its words with another
    /// spelling, the newest first, then those with a similar spelling. Models of the provider
    /// with the nearest name precede all others. The name of a provider means its best model.
    pub fn nearest(&self, wanted: &str) -> Vec<String> {
        const MAX_NAMES: usize = 3;
        if let Some(best) = self.ranked(wanted).first() {
            return vec![best.id.to_string()];
        }
        let lower = wanted.to_lowercase();
        let (provider, short) = match lower.split_once('/') {
            Some((provider, model)) => {
                let known = self.facts.iter().map(|facts| facts.id.as_str());
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
                let (distance, released, length) = match (is_part, has_words) {
                    (true, _) => (distance.min(2), entry.released.as_str(), key.len()),
                    (false, true) => (distance.min(3), entry.released.as_str(), key.len()),
                    (false, false) => (distance, "", 0),
                };
                let is_of_another = provider.is_some_and(|named| entry.model.id.provider != named);
                Some((is_of_another, distance, Reverse(released), length, name))
            })
            .collect();
        scored.sort();
        scored.truncate(MAX_NAMES);
        scored.into_iter().map(|(.., name)| name).collect()
    }
}

/// Returns whether a name has each word of a text, up to a misspelt letter in four.
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

/// The providers whose APIs gateways speak: an editor can set their endpoints without a key of the
/// user's.
const ALWAYS_CONFIGURABLE: [&str; 2] = ["anthropic", "openai"];

fn configurable(
    settings: &ProviderEntry,
    current: Option<(ApiType, String)>,
) -> ConfigurableProvider {
    ConfigurableProvider {
        id: settings.id.clone(),
        supported: ApiType::of_package(settings.npm.as_deref()).supported(),
        current,
    }
}

/// The id of OpenCode's own provider.
const OPENCODE: &str = "opencode";
/// The key that OpenCode accepts from everyone for its free models.
const PUBLIC_KEY: &str = "public";

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
    /// Returns the key of a provider, and its source.
    fn access(&self, settings: &ProviderEntry, npm: Option<&str>) -> (Option<Secret>, KeySource) {
        if settings.endpoint.is_some() {
            return (None, KeySource::Editor);
        }
        let stored = || Some((self.auth.key(&settings.id)?, KeySource::Kept));
        let variable = || {
            let (name, key) = platform::key_variable(&settings.env, &self.environment)?;
            Some((Secret::new(key), KeySource::Variable(name.to_owned())))
        };
        let token = || {
            let (name, token) = platform::token(npm, &self.environment)?;
            Some((Secret::new(token), KeySource::Variable(name.to_owned())))
        };
        let configured = settings
            .api_key
            .clone()
            .map(|key| (key, KeySource::Configured));
        match configured.or_else(stored).or_else(variable).or_else(token) {
            Some((key, access)) => (Some(key), access),
            None if self.auth.tokens(&settings.id).is_some() => (None, KeySource::Kept),
            None => {
                let name = settings.name.as_deref().unwrap_or(&settings.id);
                let missing = platform::needs_key(npm, settings, name, &self.environment);
                let why = |error: Error| settings.trust_notice().unwrap_or(error.to_string());
                let access = match (missing, &settings.unset_key) {
                    (Some(error), _) => KeySource::Missing(why(error)),
                    (None, Some(unset)) => KeySource::Unset(unset.clone()),
                    (None, None) => KeySource::Free,
                };
                (None, access)
            }
        }
    }

    /// Returns the reason why the address of a provider is unknown for each of its models.
    fn unaddressed(&self, settings: &ProviderEntry) -> Option<String> {
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

    /// Returns the key for one of the provider's models, and its source.
    fn access_to(
        &self,
        model: &ModelEntry,
        settings: &ProviderEntry,
        npm: Option<&str>,
    ) -> (Option<Secret>, KeySource) {
        match self.access(settings, npm) {
            (None, KeySource::Missing(_)) if settings.id == OPENCODE && is_free(model) => {
                (Some(Secret::new(PUBLIC_KEY)), KeySource::Free)
            }
            other => other,
        }
    }

    /// Looks up image support in the catalogue, by the name of a model that the user configured.
    fn images_by_name(&self, model: &ModelEntry) -> ImageSupport {
        let catalog = Arc::clone(&self.catalog);
        let name = model.id.clone().unwrap_or_else(|| model.key.clone());
        ImageSupport::deferred(move || catalog.accepts_images(&name).unwrap_or(false))
    }

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
            KeySource::Missing(why) => Some(Error::Keyless(why.clone())),
            _ => None,
        };
        let waiting = settings.trust_notice().map(Error::Withheld);
        let unusable = unusable.or(missing).map(|why| waiting.unwrap_or(why));
        let is_usable = unusable.is_none();
        let mut target = RequestTarget {
            provider: settings.id.clone(),
            name,
            base_url,
            key,
            headers: platform::headers(settings),
            cache_key: settings.cache_key,
            reasoning_field: model.interleaved.clone(),
        };
        target
            .headers
            .extend(settings.headers.iter().chain(&model.headers).cloned());
        let needs_login = access == KeySource::Kept && target.key.is_none();
        let key_source = described(&access, settings, &target, needs_login);
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
        platform::sign(npm, settings, &self.environment, &mut target);

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
            siblings: Arc::clone(names),
            client,
            wire,
            target,
            secrets,
            of_editor: custom.is_some(),
            login,
            limits: settings.limits,
            options,
            variants: variants(model),
            unusable,
            key_source,
            key_remedy,
            address_variable,
        };
        let released = model.released.clone().unwrap_or_default();
        Entry {
            model: Arc::new(facts),
            provider: Arc::new(Arc::new(endpoint)),
            released,
            is_usable,
        }
    }
}

/// Describes the source of a key for an error about it.
fn described(
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
        KeySource::Kept if needs_login => "the login in auth.json".to_owned(),
        KeySource::Kept => "the key from auth.json".to_owned(),
        KeySource::Variable(name) => format!("the key from {name}"),
        KeySource::Free | KeySource::Unset(_) | KeySource::Missing(_)
            if platform::has_key(&target.headers) =>
        {
            match &settings.key_variable {
                Some(variable) => format!("the key from {variable} in the configured headers"),
                None => "the key in the configured headers".to_owned(),
            }
        }
        KeySource::Unset(unset) => format!("no key, because {unset}"),
        KeySource::Free | KeySource::Missing(_) => "no key".to_owned(),
    }
}

/// Returns the clause about the variable of a provider's key that is not set, if its requests are
/// sent without a key.
fn unset_key(access: &KeySource, target: &RequestTarget) -> Option<Arc<str>> {
    match access {
        KeySource::Unset(unset) if !platform::has_key(&target.headers) => {
            Some(unset.as_str().into())
        }
        _ => None,
    }
}

/// Returns the remedy for a refused request of a provider that is used without a key; `None` if it
/// has one.
fn key_remedy(
    access: &KeySource,
    settings: &ProviderEntry,
    target: &RequestTarget,
) -> Option<String> {
    if target.key.is_some() || platform::has_key(&target.headers) {
        return None;
    }
    let id = &settings.id;
    match access {
        KeySource::Unset(_) => Some(format!("Set it, or run `adjutant auth login {id}`.")),
        KeySource::Free => Some(format!("Run `adjutant auth login {id}`.")),
        _ => None,
    }
}

/// Returns the named sets of options of a model that the settings do not remove.
fn variants(model: &ModelEntry) -> Vec<(String, Map<String, Value>)> {
    let all = model.variants.iter();
    all.filter_map(|(name, options)| Some((name.clone(), options.clone()?)))
        .collect()
}

/// Returns the efforts of a model that can be chosen: the usual ones without those that the
/// settings remove, then the settings' own.
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
