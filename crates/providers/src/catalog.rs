//! The catalogue: addresses, limits, prices and abilities of known providers and models. A snapshot
//! is part of the program, so that nothing has to be fetched before the first prompt.
//!
//! The data is that of <https://models.dev> (MIT licence, Copyright (c) 2025 models.dev), which
//! OpenCode uses too, without descriptions and without models that are deprecated or do not output
//! text. `providers.json` is small and read at once; `models.gz` contains one line per provider and
//! is unpacked when a provider is first looked up.

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

#[derive(Debug)]
pub struct Catalog {
    providers: Vec<KnownProvider>,
    ids: Vec<(String, Vec<String>)>,
    packed: Cow<'static, [u8]>,
    /// One line per provider: its id, a tab, its models.
    lines: OnceLock<String>,
}

impl Catalog {
    /// Returns the bundled snapshot.
    pub fn bundled() -> Self {
        let providers =
            serde_json::from_str(include_str!("catalog/providers.json")).unwrap_or_default();
        Self::of(providers, Cow::Borrowed(MODELS))
    }

    /// Parses an `api.json`.
    ///
    /// # Errors
    /// An error if the text is no `api.json`, or has no models.
    pub fn parse(api: &str) -> io::Result<Self> {
        let (index, packed, _) = pack(api)?;
        Ok(Self::of(serde_json::from_slice(&index)?, packed.into()))
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
            Some(Self::of(
                serde_json::from_slice(&providers).ok()?,
                models.into(),
            ))
        });
        stored
            .filter(|stored| !stored.providers.is_empty())
            .unwrap_or_else(Self::bundled)
    }

    fn of(providers: Vec<KnownProvider>, packed: Cow<'static, [u8]>) -> Self {
        let ids = providers
            .iter()
            .map(|p| (p.id.clone(), p.env.clone()))
            .collect();
        Self {
            providers,
            ids,
            packed,
            lines: OnceLock::new(),
        }
    }

    /// Returns the providers, with the variables that may hold their keys.
    pub fn ids(&self) -> &[(String, Vec<String>)] {
        &self.ids
    }

    /// Returns the display name of a provider, or its id if it is unknown.
    pub fn name<'a>(&'a self, id: &'a str) -> &'a str {
        self.providers
            .iter()
            .find(|provider| provider.id == id)
            .map_or(id, |provider| &provider.name)
    }

    /// Returns the SDK package of a provider, if it is known.
    pub fn npm(&self, id: &str) -> Option<&str> {
        let provider = self.providers.iter().find(|provider| provider.id == id)?;
        provider.npm.as_deref()
    }

    /// Returns the settings of a provider, without its models, which have to be unpacked.
    pub fn without_models(&self, id: &str) -> Option<ProviderEntry> {
        let provider = self.providers.iter().find(|provider| provider.id == id)?;
        Some(ProviderEntry {
            id: provider.id.clone(),
            name: Some(provider.name.clone()),
            npm: provider.npm.clone(),
            base_url: provider.api.clone(),
            env: provider.env.clone(),
            ..ProviderEntry::default()
        })
    }

    /// Returns the settings of a provider.
    pub fn find(&self, id: &str) -> Option<ProviderEntry> {
        let provider = self.without_models(id)?;
        let line = self
            .lines()
            .lines()
            .find_map(|line| line.split_once('\t').filter(|(name, _)| *name == id));
        let rows: Vec<Row> = line
            .and_then(|(_, rows)| serde_json::from_str(rows).ok())
            .unwrap_or_default();
        Some(ProviderEntry {
            models: rows.into_iter().map(Row::settings).collect(),
            ..provider
        })
    }

    /// Whether models of this name accept images, by a majority of the providers that have one;
    /// `None` if none has.
    pub fn accepts_images(&self, name: &str) -> Option<bool> {
        let name = name.rsplit('/').next().unwrap_or(name);
        // This runs for every configured model of every session, so only rows that may match are
        // parsed.
        let end = format!("{name}\"");
        let end = memmem::Finder::new(&end);
        let named = |text: &str| {
            let before = |at: usize| at.checked_sub(1).and_then(|at| text.as_bytes().get(at));
            end.find_iter(text.as_bytes())
                .any(|at| matches!(before(at), Some(b'"' | b'/')))
        };
        let mut yes = 0;
        let mut no = 0;
        for (_, rows) in self
            .lines()
            .lines()
            .filter(|line| named(line))
            .filter_map(|line| line.split_once('\t'))
        {
            let rows: Vec<&RawValue> = serde_json::from_str(rows).unwrap_or_default();
            let meant = rows.into_iter().map(RawValue::get).filter(|row| named(row));
            for row in meant.filter_map(|row| serde_json::from_str::<Row>(row).ok()) {
                if row.i.rsplit('/').next() == Some(name) {
                    *if row.f.contains('i') {
                        &mut yes
                    } else {
                        &mut no
                    } += 1;
                }
            }
        }
        (yes + no > 0).then_some(yes > no)
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

/// The result of a catalogue update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogRefresh {
    /// A newer catalogue with this many models; the next [`Catalog::load`] returns it.
    Newer(usize),
    /// The stored catalogue is the newest.
    Same,
}

/// The origin, version and time of the last update.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct FetchState {
    origin: String,
    etag: String,
    /// Milliseconds since 1970.
    at: u64,
}

/// Returns whether an update is due: once a day, but never if the user disables it
/// (`ADJUTANT_DISABLE_MODELS_FETCH`) or provides a catalogue.
pub fn is_due(environment: &Environment) -> bool {
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
/// [`Error::Network`] and others if it cannot be fetched, [`Error::InvalidResult`] if it is no
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
    let (body, etag) = fetched.map_err(|_| Error::Stalled(FETCH_TIMEOUT))??;
    let state = FetchState {
        origin,
        etag: etag.unwrap_or(known_etag),
        at: environment.now().0,
    };
    let environment = environment.clone();
    // Compression takes a good part of a second.
    let stored =
        base::task::spawn_blocking(move || store(&environment, body.as_deref(), &state)).await;
    stored
        .map_err(io::Error::other)
        .and_then(|stored| stored)
        .map_err(|e| Error::InvalidResult(format!("The model catalogue could not be saved: {e}.")))
}

fn store(
    environment: &Environment,
    api: Option<&[u8]>,
    state: &FetchState,
) -> io::Result<CatalogRefresh> {
    let dir = &environment.dirs.cache;
    private_dir(dir)?;
    let refreshed = match api {
        None => CatalogRefresh::Same,
        Some(api) => {
            let (index, packed, count) = pack(&String::from_utf8_lossy(api))?;
            for (path, bytes) in stored_paths(environment).into_iter().zip([index, packed]) {
                write_file(dir, &path, &bytes)?;
            }
            CatalogRefresh::Newer(count)
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

fn stored_paths(environment: &Environment) -> [PathBuf; 2] {
    ["providers.json", "models.gz"].map(|name| environment.dirs.cache.join(name))
}

/// Converts an `api.json` to the contents of the two files, and counts the models.
fn pack(api: &str) -> io::Result<(Vec<u8>, Vec<u8>, usize)> {
    let all: BTreeMap<String, ApiProvider> = serde_json::from_str(api)?;
    let mut providers = Vec::new();
    let mut gz = GzEncoder::new(Vec::new(), Compression::best());
    let mut count = 0;
    for (id, provider) in all {
        let rows: Vec<Row> = provider
            .models
            .into_values()
            .filter_map(ApiModel::row)
            .collect();
        if rows.is_empty() {
            continue;
        }
        count += rows.len();
        writeln!(gz, "{id}\t{}", serde_json::to_string(&rows)?)?;
        let name = provider.name.unwrap_or_else(|| id.clone());
        providers.push(KnownProvider {
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
    let mut index = Vec::new();
    index.extend_from_slice(b"[\n");
    for (at, provider) in providers.iter().enumerate() {
        serde_json::to_writer(&mut index, provider)?;
        index.extend_from_slice(if at + 1 == providers.len() {
            b"\n"
        } else {
            b",\n"
        });
    }
    index.extend_from_slice(b"]\n");
    Ok((index, gz.finish()?, count))
}

#[derive(Debug, Serialize, Deserialize)]
struct KnownProvider {
    id: String,
    name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    npm: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    api: Option<String>,
}

/// A model, with short names, because there are thousands of models.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Row {
    i: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    n: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    d: Option<String>,
    /// The abilities: `a` attachments, `r` reasoning, `t` temperature, `c` calls, `i` images, `p`
    /// PDF.
    f: String,
    /// The limits in tokens: context, output, input.
    l: Vec<u64>,
    /// The rates: input, output, cache read, cache write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    p: Option<Vec<f64>>,
    /// Rates of longer requests: the threshold in input tokens, ascending, and the rates above it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    x: Vec<(u64, Vec<f64>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    e: Option<Vec<String>>,
    /// The field in which the model's reasoning is sent back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    r: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    s: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    w: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    u: Option<String>,
}

/// Converts the rates of a row.
fn rates(row: &[f64]) -> Rates {
    let at = |i: usize| row.get(i).copied();
    Rates::new(at(0).unwrap_or(0.0), at(1).unwrap_or(0.0), at(2), at(3))
}

impl Row {
    fn settings(self) -> ModelEntry {
        let can = |letter: char| self.f.contains(letter);
        let kinds = [('i', "image"), ('p', "pdf")];
        let modalities = kinds
            .iter()
            .filter(|(letter, _)| can(*letter))
            .map(|(_, kind)| (*kind).to_owned());
        let limit = |at: usize| self.l.get(at).copied().filter(|n| *n > 0);
        let longer = || self.x.iter().map(|(size, p)| (*size, rates(p))).collect();
        ModelEntry {
            name: self.n.clone(),
            released: self.d.clone(),
            attachment: Some(can('a')),
            reasoning: Some(can('r')),
            temperature: Some(can('t')),
            tool_call: Some(can('c')),
            modalities: Some(
                std::iter::once("text".to_owned())
                    .chain(modalities)
                    .collect(),
            ),
            context: limit(0),
            output: limit(1),
            input: limit(2),
            price: self.p.as_ref().map(|p| Price {
                base: rates(p),
                longer: longer(),
            }),
            efforts: self.e.clone(),
            interleaved: self.r.clone(),
            status: self.s.clone(),
            npm: self.w.clone(),
            api: self.u.clone(),
            key: self.i,
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
    #[serde(default = "yes")]
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

fn yes() -> bool {
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
    fn row(&self) -> Vec<f64> {
        match (self.cache_read, self.cache_write) {
            (read, Some(write)) => vec![self.input, self.output, read.unwrap_or(self.input), write],
            (Some(read), None) => vec![self.input, self.output, read],
            (None, None) => vec![self.input, self.output],
        }
    }

    fn longer(&self) -> Vec<(u64, Vec<f64>)> {
        let mut longer: Vec<_> = self
            .tiers
            .iter()
            .filter(|t| t.tier.size > 0)
            .map(|t| (t.tier.size, t.cost.row()))
            .collect();
        if longer.is_empty() {
            longer.extend(
                self.context_over_200k
                    .iter()
                    .map(|cost| (200_000, cost.row())),
            );
        }
        longer.sort_by_key(|(size, _)| *size);
        longer
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ModelOverride {
    npm: Option<String>,
    api: Option<String>,
}

impl ApiModel {
    fn row(self) -> Option<Row> {
        let outputs_text =
            self.modalities.output.is_empty() || has_kind(&self.modalities.output, "text");
        if !outputs_text || self.status.as_deref() == Some("deprecated") {
            return None;
        }
        let flags = [
            ('a', self.attachment),
            ('r', self.reasoning),
            ('t', self.temperature.unwrap_or(true)),
            ('c', self.tool_call),
            ('i', has_kind(&self.modalities.input, "image")),
            ('p', has_kind(&self.modalities.input, "pdf")),
        ];
        let mut l = vec![self.limit.context, self.limit.output, self.limit.input];
        l.truncate(if self.limit.input > 0 { 3 } else { 2 });
        let p = self.cost.as_ref().map(Cost::row);
        let x = self.cost.iter().flat_map(Cost::longer).collect();
        let e = if self.reasoning {
            self.reasoning_options.as_deref().map(efforts)
        } else {
            None
        };
        let interleaved = self.interleaved.and_then(|value| match value {
            Value::String(field) => Some(field),
            Value::Object(map) => map.get("field").and_then(Value::as_str).map(str::to_owned),
            _ => None,
        });
        let overrides = self.provider.unwrap_or_default();
        Some(Row {
            n: self.name.filter(|name| *name != self.id),
            d: self.release_date,
            f: flags
                .into_iter()
                .filter(|(_, can)| *can)
                .map(|(letter, _)| letter)
                .collect(),
            l,
            p,
            x,
            e,
            r: interleaved,
            s: self.status,
            w: overrides.npm,
            u: overrides.api,
            i: self.id,
        })
    }
}

fn has_kind(list: &[String], kind: &str) -> bool {
    list.iter().any(|entry| entry == kind)
}

/// Returns the efforts of a model: by name, otherwise by its thinking budget.
fn efforts(options: &[Value]) -> Vec<String> {
    let of = |kind: &str| {
        options
            .iter()
            .find(|option| option.get("type").and_then(Value::as_str) == Some(kind))
    };
    if let Some(values) = of("effort").and_then(|effort| effort.get("values")?.as_array()) {
        let name = |value: &Value| {
            value
                .as_str()
                .map_or_else(|| "none".to_owned(), str::to_owned)
        };
        return values.iter().map(name).collect();
    }
    match of("budget_tokens") {
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
        assert!(catalog.ids().len() > 100);
        for (id, env) in catalog.ids() {
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
        assert_eq!(
            catalog.ids(),
            [("acme".to_owned(), vec!["ACME_KEY".to_owned()])]
        );
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
            *price.at(99),
            Rates {
                input: 1.0,
                output: 2.0,
                cache_read: 1.0,
                cache_write: 1.0
            }
        );
        assert_eq!((price.at(100).input, price.at(100).output), (3.0, 4.0));
        assert_eq!(
            m.efforts.as_deref(),
            Some(&["none".to_owned(), "low".to_owned()][..])
        );
        assert_eq!(
            (m.interleaved.as_deref(), m.npm.as_deref()),
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
        let (index, packed, count) = pack(&std::fs::read_to_string(path).unwrap()).unwrap();
        let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/catalog"));
        println!("{count} models in {} + {} bytes", index.len(), packed.len());
        std::fs::write(dir.join("providers.json"), index).unwrap();
        std::fs::write(dir.join("models.gz"), packed).unwrap();
    }
}
