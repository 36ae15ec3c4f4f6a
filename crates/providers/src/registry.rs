//! Which models there are, and who is asked for each: what the configuration, the catalogue, the
//! environment and the kept keys say together. Made anew whenever one of them changes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::Map;
use strsim::levenshtein;

use super::auth::Auth;
use super::catalog::Catalog;
use super::endpoint::Endpoint;
use super::http::HttpClient;
use super::oauth::TokenRefresher;
use super::replay::ReplayProvider;
use super::target::Target;
use super::wire::Wire;
use super::{Error, ImageSupport, Model, Provider, platform};
use crate::entry::{self as said, Secret};
use base::environment::Environment;
use base::lock::locked;
use transcript::ModelRef;

/// What a registry is made of.
pub struct Sources<'a> {
    /// What the user configured, in order.
    pub configured: Vec<said::ProviderEntry>,
    /// What runs on this machine; see `local.rs`.
    pub local: Vec<said::ProviderEntry>,
    /// What is known of providers in general.
    pub catalog: &'a Arc<Catalog>,
    /// Providers that are not used.
    pub disabled: &'a [String],
    /// If set, only these are used.
    pub enabled: Option<&'a [String]>,
    /// Whether providers nobody has a key for are in it as well: to be looked at.
    pub everything: bool,
    pub auth: &'a Auth,
    pub environment: &'a Environment,
    pub client: Arc<HttpClient>,
    /// Who answers when nobody else can.
    pub offline: Arc<dyn Provider>,
}

pub struct Registry {
    entries: BTreeMap<(String, String), Entry>,
    /// Providers whose models nobody listed: any name is tried.
    open: BTreeMap<String, said::ProviderEntry>,
    configured: Vec<String>,
    facts: Vec<ProviderSummary>,
    make: EntryFactory,
    /// Providers of the catalogue that lack a key: what to do about it.
    keyless: BTreeMap<String, String>,
    /// OpenCode's own are not asked with a key: some of its models are for everybody.
    free: bool,
    /// Providers of the catalogue whose login a plugin may know how to use, for those who name their models.
    lent: Vec<said::ProviderEntry>,
    // Directories of recordings that are being played. A leaf lock around a map.
    replays: Mutex<BTreeMap<String, Arc<ReplayProvider>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderSummary {
    pub id: String,
    pub name: String,
    pub access: KeySource,
    /// Whether any name of a model is tried, because nobody listed them.
    pub open: bool,
    /// Whether the catalogue knows it.
    pub known: bool,
}

/// Where a provider's key comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// From the settings.
    Configured,
    /// From an `auth.json`.
    Kept,
    /// From the environment variable of this name.
    Variable(String),
    Free,
    /// From nowhere; what to do about it.
    Missing(String),
}

struct Entry {
    model: Arc<Model>,
    provider: Arc<dyn Provider>,
    released: String,
    /// Whether nothing is known that keeps it from answering.
    usable: bool,
}

/// What a new entry is made with.
struct EntryFactory {
    environment: Environment,
    auth: Auth,
    client: Arc<HttpClient>,
    catalog: Arc<Catalog>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct NotFound {
    pub wanted: String,
    /// Names like it, the nearest first.
    pub nearest: Vec<String>,
    /// Why its provider is not asked, where it is known and only its key is missing.
    pub keyless: Option<String>,
}

impl NotFound {
    fn text(&self) -> String {
        if let Some(why) = &self.keyless {
            return format!("The model \"{}\" cannot be asked. {why}", self.wanted);
        }
        let hint = match self.nearest.as_slice() {
            [] => "`adjutant models` lists the models you can ask.".to_owned(),
            names => format!("Did you mean {}?", names.join(", ")),
        };
        format!("There is no model \"{}\" here. {hint}", self.wanted)
    }
}

impl Registry {
    /// The last resort: needs neither key nor network.
    pub const OFFLINE: &str = "offline";

    /// Brings everything together. Nothing is connected to.
    pub fn new(sources: Sources<'_>) -> Self {
        let allowed = |id: &str| {
            !sources.disabled.iter().any(|d| d == id) && sources.enabled.is_none_or(|only| only.iter().any(|e| e == id))
        };
        let make = EntryFactory {
            environment: sources.environment.clone(),
            auth: sources.auth.clone(),
            client: Arc::clone(&sources.client),
            catalog: Arc::clone(sources.catalog),
        };
        let mut registry = Self {
            entries: BTreeMap::new(),
            open: BTreeMap::new(),
            configured: Vec::new(),
            facts: Vec::new(),
            make,
            keyless: BTreeMap::new(),
            free: false,
            lent: Vec::new(),
            replays: Mutex::default(),
        };
        for settings in &sources.configured {
            if allowed(&settings.id) {
                let known = sources.catalog.find(settings.known_as.as_ref().unwrap_or(&settings.id));
                let is_known = known.is_some();
                let under = said::ProviderEntry { id: settings.id.clone(), ..known.unwrap_or_default() };
                registry.configured.push(settings.id.clone());
                registry.add(under.overlaid_with(settings), is_known);
            }
        }
        for (id, env) in sources.catalog.ids() {
            let has_key = || sources.auth.has(id) || platform::key_variable(env, sources.environment).is_some();
            if !allowed(id) || registry.configured.contains(id) {
                continue;
            }
            if !has_key() {
                registry.keyless.insert(id.to_owned(), platform::missing_key(id, sources.catalog.name(id), env));
                if sources.auth.lends(id) {
                    registry.lent.extend(sources.catalog.find(id));
                }
                registry.free |= id == OPENCODE;
            }
            if sources.everything || has_key() {
                sources
                    .catalog
                    .find(id)
                    .into_iter()
                    .filter(platform::is_spoken)
                    .for_each(|known| registry.add(known, true));
            }
        }
        for settings in sources.local {
            if allowed(&settings.id) {
                registry.add(settings, false);
            }
        }
        let id = ModelRef { provider: Self::OFFLINE.into(), model: Self::OFFLINE.into(), effort: None };
        let mut model = Model::unknown(id.clone());
        (model.name, model.provider_name) = ("Offline".into(), "adjutant".into());
        let entry = Entry { model: Arc::new(model), provider: sources.offline, released: String::new(), usable: true };
        registry.entries.insert((id.provider, id.model), entry);
        registry
    }

    fn add(&mut self, settings: said::ProviderEntry, known: bool) {
        let experimental = self.make.environment.setting("ENABLE_EXPERIMENTAL_MODELS").is_some();
        let names: Arc<[String]> =
            settings.models.iter().map(|model| format!("{}/{}", settings.id, model.key)).collect();
        for model in &settings.models {
            let hidden = match model.status.as_deref() {
                Some("deprecated") => true,
                Some("alpha") => !experimental,
                _ => false,
            };
            let listed = settings.whitelist.as_ref().is_none_or(|list| list.contains(&model.key));
            if hidden || !listed || settings.blacklist.contains(&model.key) {
                continue;
            }
            let entry = self.make.entry(&settings, model, &names);
            self.entries.insert((settings.id.clone(), model.key.clone()), entry);
        }
        let open = settings.models.is_empty();
        let name = settings.name.clone().unwrap_or_else(|| settings.id.clone());
        let (_, access) = self.make.access(&settings, settings.npm.as_deref());
        self.facts.push(ProviderSummary { id: settings.id.clone(), name, access, open, known });
        if open {
            self.open.insert(settings.id.clone(), settings);
        }
    }

    /// The model of this name and who is asked for it. An effort it does not have is left out.
    ///
    /// # Errors
    /// [`NotFound`], with the nearest names.
    pub fn find(&self, wanted: &ModelRef) -> Result<(Arc<Model>, Arc<dyn Provider>), NotFound> {
        if wanted.provider == ModelRef::REPLAY {
            let mut replays = locked(&self.replays);
            let replay =
                replays.entry(wanted.model.clone()).or_insert_with(|| ReplayProvider::new(Path::new(&wanted.model)));
            return Ok((Arc::new(replay.model(wanted)), Arc::new(Arc::clone(replay))));
        }
        let made;
        let entry = match self.entries.get(&(wanted.provider.clone(), wanted.model.clone())) {
            Some(entry) => entry,
            None => match self.open.get(&wanted.provider) {
                Some(settings) => {
                    made = self.make.entry(
                        settings,
                        &said::ModelEntry { key: wanted.model.clone(), ..Default::default() },
                        &Arc::default(),
                    );
                    &made
                }
                None => match self.zen_model(wanted).or_else(|| self.lent_model(wanted)) {
                    Some(entry) => {
                        made = entry;
                        &made
                    }
                    None => {
                        let (nearest, keyless) =
                            (self.nearest(&wanted.to_string()), self.keyless.get(&wanted.provider));
                        return Err(NotFound { wanted: wanted.to_string(), nearest, keyless: keyless.cloned() });
                    }
                },
            },
        };
        let effort = wanted.effort.clone().filter(|effort| entry.model.efforts.contains(effort));
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

    /// A model of OpenCode's own that costs nothing and needs no key. It is there for those who name it: what is said
    /// to it goes to somebody with whom the user has no account.
    fn zen_model(&self, wanted: &ModelRef) -> Option<Entry> {
        if !self.free || wanted.provider != OPENCODE {
            return None;
        }
        let zen = self.make.catalog.find(OPENCODE)?;
        let model = zen.models.iter().find(|model| model.key == wanted.model && is_free(model))?;
        Some(self.make.entry(&zen, model, &Arc::default()))
    }

    fn lent_model(&self, wanted: &ModelRef) -> Option<Entry> {
        let lent = self.lent.iter().find(|lent| lent.id == wanted.provider)?;
        let model = lent.models.iter().find(|model| model.key == wanted.model)?;
        Some(self.make.entry(lent, model, &Arc::default()))
    }

    /// Whether a plugin may know how to ask some provider.
    pub fn may_lend(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Whether a plugin may know how to ask a provider, with a login that is kept.
    pub fn lends(&self, provider: &str) -> bool {
        self.make.auth.lends(provider)
    }

    /// Whether a request for this model would find somebody to ask.
    pub fn has(&self, model: &ModelRef) -> bool {
        model.provider == ModelRef::REPLAY
            || self.entries.contains_key(&(model.provider.clone(), model.model.clone()))
            || self.open.contains_key(&model.provider)
    }

    /// All models, by provider and name; the offline one last.
    pub fn models(&self) -> Vec<Arc<Model>> {
        let (last, mut models): (Vec<_>, Vec<_>) =
            self.entries.values().map(|entry| Arc::clone(&entry.model)).partition(|m| m.id.provider == Self::OFFLINE);
        models.extend(last);
        models
    }

    /// The providers, as they were found.
    pub fn providers(&self) -> &[ProviderSummary] {
        &self.facts
    }

    /// Whether there is nobody to ask but the offline provider.
    pub fn is_bare(&self) -> bool {
        self.entries.len() == 1 && self.open.is_empty()
    }

    /// The model for those who did not choose: the best known of the providers the user
    /// configured, else of all.
    pub fn default_model(&self) -> Arc<Model> {
        const BEST: &[&str] = &["gpt-5", "claude-sonnet-4", "big-pickle", "gemini-3-pro"];
        // OpenCode takes the last name of the best family, which may be its weakest or dearest model.
        const BESIDE: &[&str] = &["nano", "mini", "lite", "chat", "image", "audio", "realtime", "research", "search"];
        let plain = |id: &str| {
            let dear = id.contains("gpt") && id.contains("-pro");
            !dear && !BESIDE.iter().any(|word| id.replace("gemini", "").contains(word))
        };
        let rank = |entry: &&Entry| {
            let id = entry.model.id.model.clone();
            let offline = entry.model.id.provider == Self::OFFLINE;
            let own = self.configured.contains(&entry.model.id.provider);
            let best = BEST.iter().rposition(|name| id.contains(name)).map_or(0, |at| at + 1);
            (!offline, entry.usable, own, entry.model.tools, best, plain(&id), id.contains("latest"), id)
        };
        let best = self.entries.values().max_by_key(rank);
        best.map_or_else(|| Arc::new(Model::unknown(offline_ref())), |entry| Arc::clone(&entry.model))
    }

    /// A small model beside this one, for titles: the newest of the families known to be small.
    pub fn small_model(&self, beside: &ModelRef) -> Option<ModelRef> {
        if beside.provider.starts_with("azure") {
            return None;
        }
        let families: [&[&str]; 3] = [&["gemini", "flash"], &["gpt", "nano"], &["claude", "haiku"]];
        let mine = || self.entries.iter().filter(|((provider, _), _)| *provider == beside.provider);
        families.iter().find_map(|words| {
            let of_family = mine().filter(|((_, key), _)| words.iter().all(|word| key.contains(word)));
            of_family
                .max_by_key(|((_, key), entry)| (entry.released.clone(), key.clone()))
                .map(|(_, e)| e.model.id.clone())
        })
    }

    fn nearest(&self, wanted: &str) -> Vec<String> {
        let lower = wanted.to_lowercase();
        let short = lower.split_once('/').map_or(lower.as_str(), |(_, model)| model);
        let mut scored: Vec<(usize, String)> = self
            .entries
            .values()
            .map(|entry| {
                let name = entry.model.id.to_string();
                let key = entry.model.id.model.to_lowercase();
                let within = key.contains(short) || short.contains(key.as_str());
                let far = levenshtein(&lower, &name.to_lowercase()).min(levenshtein(short, &key) + 1);
                (if within { far.min(2) } else { far }, name)
            })
            .filter(|(far, _)| *far <= (short.len() / 2).max(2))
            .collect();
        scored.sort();
        scored.truncate(3);
        scored.into_iter().map(|(_, name)| name).collect()
    }
}

/// OpenCode's own provider, and the key that it takes from everybody for what costs nothing.
const OPENCODE: &str = "opencode";
const EVERYBODY: &str = "public";

fn is_free(model: &said::ModelEntry) -> bool {
    model.price.as_ref().is_some_and(|price| price.base.input == 0.0 && price.base.output == 0.0)
}

fn offline_ref() -> ModelRef {
    ModelRef { provider: Registry::OFFLINE.into(), model: Registry::OFFLINE.into(), effort: None }
}

impl EntryFactory {
    /// The key of a provider, and where it comes from.
    fn access(&self, settings: &said::ProviderEntry, npm: Option<&str>) -> (Option<Secret>, KeySource) {
        let kept = || Some((self.auth.key(&settings.id)?, KeySource::Kept));
        let variable = || {
            let (name, key) = platform::key_variable(&settings.env, &self.environment)?;
            Some((Secret::new(key), KeySource::Variable(name.to_owned())))
        };
        let token = || {
            let (name, token) = platform::token(npm, &self.environment)?;
            Some((Secret::new(token), KeySource::Variable(name.to_owned())))
        };
        let configured = settings.api_key.clone().map(|key| (key, KeySource::Configured));
        match configured.or_else(kept).or_else(variable).or_else(token) {
            Some((key, access)) => (Some(key), access),
            None if self.auth.tokens(&settings.id).is_some() => (None, KeySource::Kept),
            None => {
                let name = settings.name.as_deref().unwrap_or(&settings.id);
                let missing = platform::needs_key(npm, settings, None, name);
                (None, missing.map_or(KeySource::Free, |error| KeySource::Missing(error.to_string())))
            }
        }
    }

    /// The same for one of its models.
    fn access_to(
        &self,
        model: &said::ModelEntry,
        settings: &said::ProviderEntry,
        npm: Option<&str>,
    ) -> (Option<Secret>, KeySource) {
        match self.access(settings, npm) {
            (None, KeySource::Missing(_)) if settings.id == OPENCODE && is_free(model) => {
                (Some(Secret::new(EVERYBODY)), KeySource::Free)
            }
            other => other,
        }
    }

    /// Of a model of the user's own it is known what others of its name can see.
    fn as_others(&self, model: &said::ModelEntry) -> ImageSupport {
        let (catalog, name) = (Arc::clone(&self.catalog), model.id.clone().unwrap_or_else(|| model.key.clone()));
        ImageSupport::looked_up(move || catalog.sees(&name).unwrap_or(false))
    }

    fn entry(&self, settings: &said::ProviderEntry, model: &said::ModelEntry, names: &Arc<[String]>) -> Entry {
        let id = ModelRef { provider: settings.id.clone(), model: model.key.clone(), effort: None };
        let name = settings.name.clone().unwrap_or_else(|| settings.id.clone());
        let npm = model.npm.as_ref().or(settings.npm.as_ref()).map(String::as_str);
        let (key, access) = self.access_to(model, settings, npm);
        let takes = |kind: &str| model.modalities.as_ref().map(|list| list.iter().any(|m| m == kind));
        let mut facts = Model {
            name: model.name.clone().unwrap_or_else(|| model.key.clone()),
            provider_name: name.clone(),
            api_id: model.id.clone().unwrap_or_else(|| model.key.clone()),
            context: model.context.filter(|n| *n > 0),
            input: model.input.filter(|n| *n > 0),
            output: model.output.filter(|n| *n > 0),
            price: model.price.clone(),
            images: takes("image").or(model.attachment).map_or_else(|| self.as_others(model), ImageSupport::from),
            pdf: takes("pdf").unwrap_or(false),
            tools: model.tool_call.unwrap_or(true),
            reasoning: model.reasoning.unwrap_or(false),
            temperature: model.temperature.unwrap_or(true),
            efforts: Vec::new(),
            ..Model::unknown(id)
        };
        let base = model.api.as_ref().or(settings.base_url.as_ref()).map(String::as_str);
        let address = platform::address(npm, base, settings, &facts, &self.environment);
        let (wire, base_url, unusable) = match address {
            Ok(address) => (address.wire, address.base_url, None),
            Err(why) => (platform::CHAT, String::new(), Some(why)),
        };
        let missing = match &access {
            KeySource::Missing(why) => Some(Error::Keyless(why.clone())),
            _ => None,
        };
        let unusable = unusable.or(missing);
        let usable = unusable.is_none();
        let mut target = Target {
            provider: settings.id.clone(),
            name,
            base_url,
            key,
            headers: platform::headers(settings),
            cache_key: settings.cache_key,
            reasoning_field: model.interleaved.clone(),
        };
        target.headers.extend(settings.headers.iter().chain(&model.headers).cloned());
        let tokens = self.auth.tokens(&settings.id).filter(|_| access == KeySource::Kept && target.key.is_none());
        let login =
            tokens.map(|tokens| TokenRefresher::new(&settings.id, tokens, Arc::clone(&self.client), &self.environment));
        let secret = target.key.clone();
        platform::sign(npm, settings, &self.environment, &mut target);

        let variants: Vec<(String, Map<_, _>)> =
            model.variants.iter().filter_map(|(name, options)| Some((name.clone(), options.clone()?))).collect();
        // The other wires have no word for it.
        facts.audio = takes("audio").unwrap_or(false) && ["chat", "gemini"].contains(&wire.name());
        facts.efforts = efforts(&facts, model, wire);
        let mut options = platform::body_options(&settings.options);
        options.extend(model.options.clone());
        let client = Arc::clone(&self.client);
        let endpoint = Endpoint {
            siblings: Arc::clone(names),
            client,
            wire,
            target,
            secret,
            login,
            limits: settings.limits,
            options,
            variants,
            unusable,
        };
        let released = model.released.clone().unwrap_or_default();
        Entry { model: Arc::new(facts), provider: Arc::new(Arc::new(endpoint)), released, usable }
    }
}

/// The efforts of a model that can be chosen: the usual ones but for those that were taken away, then its own.
fn efforts(facts: &Model, model: &said::ModelEntry, wire: &dyn Wire) -> Vec<String> {
    let usual = || model.efforts.clone().unwrap_or_else(|| wire.efforts(facts));
    let mut all = if facts.reasoning { usual() } else { Vec::new() };
    let removed = |effort: &String| model.variants.iter().any(|(name, options)| name == effort && options.is_none());
    all.retain(|effort| !removed(effort));
    for (name, _) in model.variants.iter().filter(|(_, options)| options.is_some()) {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests;
