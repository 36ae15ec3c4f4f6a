//! The catalogue: addresses, limits, prices and abilities of known providers and models. A snapshot
//! is part of the program, so that nothing has to be fetched before the first prompt; [`refresh`]
//! fetches a newer one once a day.
//!
//! The data is that of <https://models.dev> (MIT licence, Copyright (c) 2025 models.dev), which
//! OpenCode uses too, without descriptions and without models that are deprecated or do not output
//! text. It comes as one JSON document (`api.json`, the `Api…` types) and is stored in two files:
//! `providers.json` is small and read at once ([`CatalogProvider`]); `models.gz` contains one line
//! per provider with its models (`ModelRow`) and is unpacked when a provider is first looked up.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::http::HttpClient;
use super::{Error, Price};
use crate::entry::{ModelEntry, ProviderEntry, Rates};
use base::environment::{Environment, private_dir};

/// The maximum size of a catalogue from elsewhere, in bytes.
const MAX_CATALOG_BYTES: usize = 64 << 20;

/// One line per provider, from the bundled snapshot.
const MODELS: &[u8] = include_bytes!("catalog/models.gz");

/// A catalogue in memory. The models are unpacked at the first look-up that needs them.
#[derive(Debug)]
pub struct Catalog {
    providers: Vec<CatalogProvider>,
    /// The content of `models.gz`.
    packed: Cow<'static, [u8]>,
    /// The unpacked content. One line per provider: its id, a tab, its models as JSON.
    lines: OnceLock<String>,
}

impl Catalog {
    /// Returns the bundled snapshot.
    pub fn bundled() -> Self {
        let providers =
            serde_json::from_str(include_str!("catalog/providers.json")).unwrap_or_default();
        Self::new(providers, Cow::Borrowed(MODELS))
    }

    /// Parses an `api.json`.
    ///
    /// # Errors
    /// An error if the text is no `api.json`, or has no models.
    pub fn parse(api: &str) -> io::Result<Self> {
        let packed = pack(api)?;
        Ok(Self::new(
            serde_json::from_slice(&packed.providers)?,
            packed.models.into(),
        ))
    }

    /// Returns the newest catalogue on this machine: the `api.json` named by
    /// `OPENCODE_MODELS_PATH`, otherwise the one that [`refresh`] stored, otherwise the snapshot.
    pub fn load(environment: &Environment) -> Self {
        let own = environment
            .setting("MODELS_PATH")
            .and_then(|path| std::fs::read_to_string(path).ok());
        if let Some(catalog) = own.and_then(|api| Self::parse(&api).ok()) {
            return catalog;
        }
        let [providers, models] = stored_paths(environment);
        let read = || Some((std::fs::read(providers).ok()?, std::fs::read(models).ok()?));
        let stored = read().and_then(|(providers, models)| {
            Some(Self::new(
                serde_json::from_slice(&providers).ok()?,
                models.into(),
            ))
        });
        stored
            .filter(|stored| !stored.providers.is_empty())
            .unwrap_or_else(Self::bundled)
    }

    fn new(providers: Vec<CatalogProvider>, packed: Cow<'static, [u8]>) -> Self {
        Self {
            providers,
            packed,
            lines: OnceLock::new(),
        }
    }

    /// Returns the known providers, in the order of their ids.
    pub fn providers(&self) -> &[CatalogProvider] {
        &self.providers
    }

    fn provider(&self, id: &str) -> Option<&CatalogProvider> {
        self.providers.iter().find(|provider| provider.id == id)
    }

    /// Returns the display name of a provider, or its id if it is unknown.
    pub fn display_name<'a>(&'a self, id: &'a str) -> &'a str {
        self.provider(id).map_or(id, |provider| &provider.name)
    }

    /// Returns the settings of a provider without its models, which would have to be unpacked;
    /// `None` if the provider is unknown.
    pub fn find_without_models(&self, id: &str) -> Option<ProviderEntry> {
        let provider = self.provider(id)?;
        Some(ProviderEntry {
            id: provider.id.clone(),
            name: Some(provider.name.clone()),
            npm: provider.npm.clone(),
            base_url: provider.api.clone(),
            env: provider.env.clone(),
            ..ProviderEntry::default()
        })
    }

    /// Returns the settings of a provider with its models; `None` if the provider is unknown.
    pub fn find(&self, id: &str) -> Option<ProviderEntry> {
        let provider = self.find_without_models(id)?;
        let line = self
            .lines()
            .lines()
            .find_map(|line| line.split_once('\t').filter(|(name, _)| *name == id));
        let rows: Vec<ModelRow> = line
            .and_then(|(_, rows)| serde_json::from_str(rows).ok())
            .unwrap_or_default();
        Some(ProviderEntry {
            models: rows.into_iter().map(ModelRow::into_entry).collect(),
            ..provider
        })
    }

    /// Returns `Some(true)` if models of this name accept images at most of the providers that have
    /// one; `None` if no provider has one.
    pub fn accepts_images(&self, name: &str) -> Option<bool> {
        let name = name.rsplit('/').next().unwrap_or(name);
        // This runs for every configured model of every session, so only rows that may match are
        // parsed: those with the name before a quotation mark, and a quotation mark or a slash
        // before the name.
        let quoted_end = format!("{name}\"");
        let finder = memmem::Finder::new(&quoted_end);
        let may_name = |text: &str| {
            let before = |at: usize| at.checked_sub(1).and_then(|at| text.as_bytes().get(at));
            finder
                .find_iter(text.as_bytes())
                .any(|at| matches!(before(at), Some(b'"' | b'/')))
        };
        let mut accepting = 0;
        let mut refusing = 0;
        for line in self.lines().lines().filter(|line| may_name(line)) {
            let Some((_, rows)) = line.split_once('\t') else {
                continue;
            };
            let rows: Vec<&RawValue> = serde_json::from_str(rows).unwrap_or_default();
            for row in rows.into_iter().map(RawValue::get) {
                if !may_name(row) {
                    continue;
                }
                let Ok(row) = serde_json::from_str::<ModelRow>(row) else {
                    continue;
                };
                if row.id.rsplit('/').next() != Some(name) {
                    continue;
                }
                if row.abilities.contains('i') {
                    accepting += 1;
                } else {
                    refusing += 1;
                }
            }
        }
        (accepting + refusing > 0).then_some(accepting > refusing)
    }

    fn lines(&self) -> &str {
        // If the stored data is damaged, the snapshot is used.
        self.lines.get_or_init(|| {
            unpack(&self.packed)
                .or_else(|| unpack(MODELS))
                .unwrap_or_default()
        })
    }
}

fn unpack(packed: &[u8]) -> Option<String> {
    let mut text = String::new();
    GzDecoder::new(packed)
        .take(MAX_CATALOG_BYTES as u64)
        .read_to_string(&mut text)
        .ok()?;
    (!text.is_empty()).then_some(text)
}

/// The result of [`refresh`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogRefresh {
    /// A newer catalogue was stored, with this number of models; the next [`Catalog::load`]
    /// returns it.
    Updated(usize),
    /// The stored catalogue is the newest one.
    Unchanged,
}

/// The state of the last [`refresh`], stored in `catalog.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct FetchState {
    /// The URL of the server, without a slash at its end.
    origin: String,
    /// The version of the stored catalogue; empty if the server sent none.
    etag: String,
    /// The time of the last request, in milliseconds since 1970.
    at: u64,
}

/// True if a [`refresh`] is due: once a day, but never if the user disables it
/// (`ADJUTANT_DISABLE_MODELS_FETCH`) or provides a catalogue (`OPENCODE_MODELS_PATH`).
pub fn is_refresh_due(environment: &Environment) -> bool {
    const DAY: u64 = 24 * 60 * 60 * 1000;
    let is_disabled = environment
        .setting("DISABLE_MODELS_FETCH")
        .is_some_and(|v| !matches!(v, "0" | "false"));
    if is_disabled || environment.setting("MODELS_PATH").is_some() {
        return false;
    }
    let state = fetch_state(environment);
    state.origin != origin(environment) || environment.now().0.abs_diff(state.at) > DAY
}

/// Fetches the catalogue if it is newer than the stored one, and stores it for the next
/// [`Catalog::load`].
///
/// # Errors
/// [`Error::Network`] and others if it cannot be fetched, [`Error::InvalidAnswer`] if it is no
/// catalogue or cannot be stored.
pub async fn refresh(
    client: &HttpClient,
    environment: &Environment,
) -> Result<CatalogRefresh, Error> {
    const FETCH_TIMEOUT: Duration = Duration::from_secs(30);
    let mut state = fetch_state(environment);
    let origin = origin(environment);
    let is_stored = stored_paths(environment).iter().all(|path| path.exists());
    let known_etag = if is_stored && state.origin == origin {
        std::mem::take(&mut state.etag)
    } else {
        String::new()
    };
    let mut headers = Vec::new();
    if !known_etag.is_empty() {
        headers.push(("if-none-match".to_owned(), known_etag.clone()));
    }
    let url = format!("{origin}/api.json");
    let fetch = client.fetch("The model catalogue", &url, &headers, MAX_CATALOG_BYTES);
    let fetched = tokio::time::timeout(FETCH_TIMEOUT, fetch).await;
    let fetched = fetched.map_err(|_| Error::Timeout(FETCH_TIMEOUT))??;
    let state = FetchState {
        origin,
        etag: fetched.etag.unwrap_or(known_etag),
        at: environment.now().0,
    };
    let environment = environment.clone();
    // Compression takes a good part of a second.
    let stored =
        base::task::spawn_blocking(move || store(&environment, fetched.body.as_deref(), &state))
            .await;
    stored
        .map_err(io::Error::other)
        .and_then(|stored| stored)
        .map_err(|e| Error::InvalidAnswer(format!("The model catalogue could not be saved: {e}.")))
}

/// Stores a fetched `api.json`, if there is one, and the state of the fetch.
fn store(
    environment: &Environment,
    api: Option<&[u8]>,
    state: &FetchState,
) -> io::Result<CatalogRefresh> {
    let dir = &environment.dirs.cache;
    private_dir(dir)?;
    let refreshed = match api {
        None => CatalogRefresh::Unchanged,
        Some(api) => {
            let packed = pack(&String::from_utf8_lossy(api))?;
            let [providers, models] = stored_paths(environment);
            write_file(dir, &providers, &packed.providers)?;
            write_file(dir, &models, &packed.models)?;
            CatalogRefresh::Updated(packed.model_count)
        }
    };
    write_file(
        dir,
        &fetch_state_path(environment),
        &serde_json::to_vec(state)?,
    )?;
    Ok(refreshed)
}

/// Writes a file atomically; `dir` is its directory.
fn write_file(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(bytes)?;
    file.persist(path).map(drop).map_err(|e| e.error)
}

fn origin(environment: &Environment) -> String {
    environment
        .setting("MODELS_URL")
        .unwrap_or("https://models.dev")
        .trim_end_matches('/')
        .to_owned()
}

fn fetch_state_path(environment: &Environment) -> PathBuf {
    environment.dirs.cache.join("catalog.json")
}

fn fetch_state(environment: &Environment) -> FetchState {
    let text = std::fs::read(fetch_state_path(environment)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Returns the paths of the stored `providers.json` and `models.gz`.
fn stored_paths(environment: &Environment) -> [PathBuf; 2] {
    ["providers.json", "models.gz"].map(|name| environment.dirs.cache.join(name))
}

/// A catalogue in the form in which it is stored.
struct PackedCatalog {
    /// The content of `providers.json`.
    providers: Vec<u8>,
    /// The content of `models.gz`.
    models: Vec<u8>,
    model_count: usize,
}

/// Converts an `api.json` to the contents of the two files.
///
/// # Errors
/// An error if the text is no `api.json`, or has no models.
fn pack(api: &str) -> io::Result<PackedCatalog> {
    let all: BTreeMap<String, ApiProvider> = serde_json::from_str(api)?;
    let mut providers = Vec::new();
    let mut gz = GzEncoder::new(Vec::new(), Compression::best());
    let mut count = 0;
    for (id, provider) in all {
        let rows: Vec<ModelRow> = provider
            .models
            .into_values()
            .filter_map(ApiModel::into_row)
            .collect();
        if rows.is_empty() {
            continue;
        }
        count += rows.len();
        writeln!(gz, "{id}\t{}", serde_json::to_string(&rows)?)?;
        let name = provider.name.unwrap_or_else(|| id.clone());
        providers.push(CatalogProvider {
            id,
            name,
            env: provider.env,
            npm: provider.npm,
            api: provider.api,
        });
    }
    if providers.is_empty() {
        return Err(io::Error::other("there are no models in it"));
    }
    // One provider per line, so that a new snapshot has a readable diff.
    let mut json = Vec::new();
    json.extend_from_slice(b"[\n");
    for (at, provider) in providers.iter().enumerate() {
        serde_json::to_writer(&mut json, provider)?;
        json.extend_from_slice(if at + 1 == providers.len() {
            b"\n"
        } else {
            b",\n"
        });
    }
    json.extend_from_slice(b"]\n");
    Ok(PackedCatalog {
        providers: json,
        models: gz.finish()?,
        model_count: count,
    })
}

/// A known provider without its models.
#[derive(Debug, Serialize, Deserialize)]
pub struct CatalogProvider {
    pub id: String,
    /// The display name.
    pub name: String,
    /// The environment variables that may hold the key or parts of the address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// The SDK package of the provider's wire format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub npm: Option<String>,
    /// The base address; `None` if it is that of the SDK package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    api: Option<String>,
}

/// A model in `models.gz`. The serialised names have one letter, because there are thousands of
/// models.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ModelRow {
    #[serde(rename = "i")]
    id: String,
    /// The display name, if it differs from the id.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    release_date: Option<String>,
    /// One letter for each ability: `a` attachments, `r` reasoning, `t` temperature, `c` calls,
    /// `i` images, `p` PDF.
    #[serde(rename = "f")]
    abilities: String,
    /// The limits in tokens: context, output, input. 0 if unknown.
    #[serde(rename = "l")]
    limits: Vec<u64>,
    /// The rates: input, output, cache read, cache write.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    price: Option<Vec<f64>>,
    /// Rates of long requests: the threshold in input tokens, ascending, and the rates above it.
    #[serde(rename = "x", default, skip_serializing_if = "Vec::is_empty")]
    long_requests: Vec<(u64, Vec<f64>)>,
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    efforts: Option<Vec<String>>,
    /// The field in which the model's reasoning is sent back.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    reasoning_field: Option<String>,
    /// `alpha` or `beta`; `None` for other models.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    /// The SDK package, if the model has its own.
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    npm: Option<String>,
    /// The base address, if the model has its own.
    #[serde(rename = "u", default, skip_serializing_if = "Option::is_none")]
    api: Option<String>,
}

/// Converts the rates of a row.
fn rates(row: &[f64]) -> Rates {
    let at = |i: usize| row.get(i).copied();
    Rates::new(at(0).unwrap_or(0.0), at(1).unwrap_or(0.0), at(2), at(3))
}

impl ModelRow {
    fn into_entry(self) -> ModelEntry {
        let can = |letter: char| self.abilities.contains(letter);
        let mut modalities = vec!["text".to_owned()];
        if can('i') {
            modalities.push("image".to_owned());
        }
        if can('p') {
            modalities.push("pdf".to_owned());
        }
        let limit = |at: usize| self.limits.get(at).copied().filter(|n| *n > 0);
        let price = self.price.as_ref().map(|base| Price {
            base: rates(base),
            long_requests: self
                .long_requests
                .iter()
                .map(|(threshold, above)| (*threshold, rates(above)))
                .collect(),
        });
        ModelEntry {
            attachment: Some(can('a')),
            reasoning: Some(can('r')),
            temperature: Some(can('t')),
            tool_call: Some(can('c')),
            modalities: Some(modalities),
            context: limit(0),
            output: limit(1),
            input: limit(2),
            price,
            name: self.name,
            release_date: self.release_date,
            efforts: self.efforts,
            reasoning_field: self.reasoning_field,
            status: self.status,
            npm: self.npm,
            api: self.api,
            key: self.id,
            ..ModelEntry::default()
        }
    }
}

#[derive(Deserialize)]
struct ApiProvider {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    npm: Option<String>,
    #[serde(default)]
    api: Option<String>,
    #[serde(default)]
    models: BTreeMap<String, ApiModel>,
}

#[derive(Deserialize)]
struct ApiModel {
    id: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    release_date: Option<String>,
    #[serde(default)]
    attachment: bool,
    #[serde(default)]
    reasoning: bool,
    #[serde(default)]
    temperature: Option<bool>,
    #[serde(default = "default_tool_call")]
    tool_call: bool,
    #[serde(default)]
    modalities: Modalities,
    #[serde(default)]
    limit: Limit,
    #[serde(default)]
    cost: Option<Cost>,
    #[serde(default)]
    reasoning_options: Option<Vec<Value>>,
    #[serde(default)]
    interleaved: Option<Value>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    provider: Option<ModelOverride>,
}

fn default_tool_call() -> bool {
    true
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Modalities {
    input: Vec<String>,
    output: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Limit {
    context: u64,
    input: u64,
    output: u64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Cost {
    input: f64,
    output: f64,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
    tiers: Vec<Tier>,
    context_over_200k: Option<Box<Cost>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Tier {
    #[serde(flatten)]
    cost: Box<Cost>,
    tier: TierSize,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TierSize {
    size: u64,
}

impl Cost {
    /// Returns the rates as a [`ModelRow`] has them.
    fn rates_row(&self) -> Vec<f64> {
        match (self.cache_read, self.cache_write) {
            (read, Some(write)) => vec![self.input, self.output, read.unwrap_or(self.input), write],
            (Some(read), None) => vec![self.input, self.output, read],
            (None, None) => vec![self.input, self.output],
        }
    }

    /// Returns the thresholds of long requests, ascending, with the rates above them.
    fn long_requests(&self) -> Vec<(u64, Vec<f64>)> {
        let mut tiers: Vec<_> = self
            .tiers
            .iter()
            .filter(|t| t.tier.size > 0)
            .map(|t| (t.tier.size, t.cost.rates_row()))
            .collect();
        // An older field of the catalogue.
        if tiers.is_empty() {
            tiers.extend(
                self.context_over_200k
                    .iter()
                    .map(|cost| (200_000, cost.rates_row())),
            );
        }
        tiers.sort_by_key(|(threshold, _)| *threshold);
        tiers
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ModelOverride {
    npm: Option<String>,
    api: Option<String>,
}

impl ApiModel {
    /// Converts the model; `None` if it is left out: deprecated, or without text output.
    fn into_row(self) -> Option<ModelRow> {
        let outputs_text =
            self.modalities.output.is_empty() || has_kind(&self.modalities.output, "text");
        if !outputs_text || self.status.as_deref() == Some("deprecated") {
            return None;
        }
        let abilities = [
            ('a', self.attachment),
            ('r', self.reasoning),
            ('t', self.temperature.unwrap_or(true)),
            ('c', self.tool_call),
            ('i', has_kind(&self.modalities.input, "image")),
            ('p', has_kind(&self.modalities.input, "pdf")),
        ];
        let mut limits = vec![self.limit.context, self.limit.output];
        if self.limit.input > 0 {
            limits.push(self.limit.input);
        }
        let efforts = if self.reasoning {
            self.reasoning_options.as_deref().map(efforts)
        } else {
            None
        };
        let reasoning_field = self.interleaved.and_then(|value| match value {
            Value::String(field) => Some(field),
            Value::Object(map) => map.get("field").and_then(Value::as_str).map(str::to_owned),
            _ => None,
        });
        let overrides = self.provider.unwrap_or_default();
        Some(ModelRow {
            name: self.name.filter(|name| *name != self.id),
            release_date: self.release_date,
            abilities: abilities
                .into_iter()
                .filter(|(_, can)| *can)
                .map(|(letter, _)| letter)
                .collect(),
            limits,
            price: self.cost.as_ref().map(Cost::rates_row),
            long_requests: self.cost.iter().flat_map(Cost::long_requests).collect(),
            efforts,
            reasoning_field,
            status: self.status,
            npm: overrides.npm,
            api: overrides.api,
            id: self.id,
        })
    }
}

fn has_kind(list: &[String], kind: &str) -> bool {
    list.iter().any(|entry| entry == kind)
}

/// Returns the efforts of a model: by name, otherwise by its thinking budget.
fn efforts(options: &[Value]) -> Vec<String> {
    let option = |kind: &str| {
        options
            .iter()
            .find(|option| option.get("type").and_then(Value::as_str) == Some(kind))
    };
    if let Some(values) = option("effort").and_then(|effort| effort.get("values")?.as_array()) {
        let name = |value: &Value| {
            value
                .as_str()
                .map_or_else(|| "none".to_owned(), str::to_owned)
        };
        return values.iter().map(name).collect();
    }
    match option("budget_tokens") {
        Some(_) => ["high", "max"].map(str::to_owned).to_vec(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_contains_common_providers() {
        let catalog = Catalog::bundled();
        assert!(catalog.providers().len() > 100);
        for CatalogProvider { id, env, .. } in catalog.providers() {
            let provider = catalog.find(id).unwrap();
            assert!(!provider.models.is_empty() && provider.env == *env, "{id}");
        }
        let anthropic = catalog.find("anthropic").unwrap();
        assert_eq!(
            (anthropic.npm.as_deref(), anthropic.env.as_slice()),
            (
                Some("@ai-sdk/anthropic"),
                &["ANTHROPIC_API_KEY".to_owned()][..]
            )
        );
        let sonnet = anthropic
            .models
            .iter()
            .find(|m| m.key == "claude-sonnet-4-5")
            .unwrap();
        assert_eq!(
            (sonnet.context, sonnet.output, sonnet.reasoning),
            (Some(200_000).max(sonnet.context), Some(64_000), Some(true))
        );
        assert_eq!(
            sonnet
                .price
                .as_ref()
                .map(|p| (p.base.input, p.base.output, p.base.cache_read)),
            Some((3.0, 15.0, 0.3))
        );
        assert!(catalog.find("no-such-provider").is_none());
        assert!(
            include_bytes!("catalog/models.gz").len()
                + include_str!("catalog/providers.json").len()
                < 300 << 10
        );
    }

    #[test]
    fn packed_api_file_is_read_back() {
        let api = r#"{"acme": {"id": "acme", "name": "Acme", "env": ["ACME_KEY"], "npm": "@ai-sdk/openai-compatible", "api": "https://a/v1", "models": {
            "m": {"id": "m", "name": "M", "attachment": true, "reasoning": true, "tool_call": true, "temperature": false, "release_date": "2026-01-01",
                  "modalities": {"input": ["text", "image"], "output": ["text"]}, "limit": {"context": 100, "output": 10}, "cost": {"input": 1, "output": 2, "tiers": [{"input": 3, "output": 4, "tier": {"type": "context", "size": 99}}]},
                  "reasoning_options": [{"type": "toggle"}, {"type": "effort", "values": [null, "low"]}], "interleaved": {"field": "reasoning_content"}, "provider": {"npm": "@ai-sdk/anthropic"}},
            "b": {"id": "b", "reasoning": true, "reasoning_options": [{"type": "budget_tokens"}], "limit": {"context": 0, "output": 0}},
            "old": {"id": "old", "status": "deprecated"}, "pic": {"id": "pic", "modalities": {"output": ["image"]}}}},
            "empty": {"id": "empty", "models": {}}}"#;
        let catalog = Catalog::parse(api).unwrap();
        let known: Vec<_> = catalog
            .providers()
            .iter()
            .map(|known| (known.id.as_str(), known.env.as_slice()))
            .collect();
        assert_eq!(known, [("acme", &["ACME_KEY".to_owned()][..])]);
        let acme = catalog.find("acme").unwrap();
        let [b, m] = acme.models.as_slice() else {
            panic!()
        };
        assert_eq!(
            (m.name.as_deref(), m.context, m.output, m.temperature),
            (Some("M"), Some(100), Some(10), Some(false))
        );
        assert_eq!(
            m.modalities.as_deref(),
            Some(&["text".to_owned(), "image".to_owned()][..])
        );
        let price = m.price.as_ref().unwrap();
        assert_eq!(
            *price.rates_for(99),
            Rates {
                input: 1.0,
                output: 2.0,
                cache_read: 1.0,
                cache_write: 1.0
            }
        );
        assert_eq!(
            (price.rates_for(100).input, price.rates_for(100).output),
            (3.0, 4.0)
        );
        assert_eq!(
            m.efforts.as_deref(),
            Some(&["none".to_owned(), "low".to_owned()][..])
        );
        assert_eq!(
            (m.reasoning_field.as_deref(), m.npm.as_deref()),
            (Some("reasoning_content"), Some("@ai-sdk/anthropic"))
        );
        assert_eq!(
            (
                b.context,
                b.price.as_ref(),
                b.efforts.as_ref().map(Vec::len)
            ),
            (None, None, Some(2))
        );
        for none in ["{}", "[]", "<html>"] {
            assert!(Catalog::parse(none).is_err(), "{none}");
        }
    }

    #[test]
    fn damaged_copy_is_ignored() {
        let home = tempfile::tempdir().unwrap();
        let environment =
            Environment::from_vars([("HOME".to_owned(), home.path().display().to_string())].into());
        std::fs::create_dir_all(&environment.dirs.cache).unwrap();
        let [providers, models] = stored_paths(&environment);
        let list = include_str!("catalog/providers.json");
        for (list, packed) in [
            ("[]", MODELS),
            ("{", MODELS),
            (list, b"not packed"),
            (list, &MODELS[..1_000]),
        ] {
            std::fs::write(&providers, list).unwrap();
            std::fs::write(&models, packed).unwrap();
            let found = Catalog::load(&environment).find("openai");
            assert!(
                found.is_some_and(|provider| !provider.models.is_empty()),
                "{} bytes",
                packed.len()
            );
        }
    }

    /// Generates the snapshot from the `api.json` named by `ADJUTANT_API_JSON`; without that
    /// variable it does nothing.
    #[test]
    fn snapshot_can_be_generated() {
        let Some(path) = Environment::read()
            .var("ADJUTANT_API_JSON")
            .map(PathBuf::from)
        else {
            return;
        };
        let packed = pack(&std::fs::read_to_string(path).unwrap()).unwrap();
        let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/catalog"));
        println!(
            "{} models in {} + {} bytes",
            packed.model_count,
            packed.providers.len(),
            packed.models.len()
        );
        std::fs::write(dir.join("providers.json"), packed.providers).unwrap();
        std::fs::write(dir.join("models.gz"), packed.models).unwrap();
    }
}
