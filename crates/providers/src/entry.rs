//! Settings of providers and their models, from the configuration, the catalogue or a server on
//! this machine: all in one form, so that one can be merged over another.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::custom_endpoint::CustomEndpoint;
use crate::secret::Secret;

/// Options that determine the address of a provider's requests and their credentials.
pub const LOCATION_OPTIONS: &[&str] = &[
    "apiKey",
    "baseURL",
    "headers",
    "enterpriseUrl",
    "endpoint",
    "resourceName",
    "region",
    "location",
    "project",
    "organization",
    "profile",
    "accessKeyId",
    "secretAccessKey",
    "sessionToken",
    "googleAuthOptions",
];

/// The settings of a provider.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProviderEntry {
    /// The part of a model's name before the slash.
    pub id: String,
    /// The provider's id in the catalogue, if it differs.
    pub known_as: Option<String>,
    pub name: Option<String>,
    /// The SDK package of the provider's wire format, as in OpenCode and the catalogue.
    pub npm: Option<String>,
    /// The base address; `${VAR}` is replaced from the environment.
    pub base_url: Option<String>,
    /// The key, if the settings contain it.
    pub api_key: Option<Secret>,
    /// The variable in the settings that the key is from, for errors about it.
    pub key_variable: Option<String>,
    /// The variable that `base_url` is from, for errors about it.
    pub address_variable: Option<String>,
    /// Variables that may hold the key.
    pub env: Vec<String>,
    /// The OAuth login that replaces a key.
    pub login: Option<Login>,
    pub headers: Vec<(String, String)>,
    pub limits: RequestTimeouts,
    /// Whether to send the session id for the provider's cache; `None` leaves it to the wire
    /// format.
    pub cache_key: Option<bool>,
    /// If set, only these models are offered.
    pub whitelist: Option<Vec<String>>,
    /// Models that are not offered.
    pub blacklist: Vec<String>,
    pub models: Vec<ModelEntry>,
    /// Further options, sent with every request.
    pub options: Map<String, Value>,
    /// The last settings source that mentions the provider, for display; empty if there is none.
    pub source: String,
    /// The clause about the variable that the settings name for the key and that is not set.
    pub unset_key: Option<String>,
    /// The same for the address.
    pub unset_address: Option<String>,
    /// True if a part of the project's settings for it is not used until the user trusts the
    /// project.
    pub waits_for_trust: bool,
    /// The endpoint that the editor has set, if these settings are for it.
    pub endpoint: Option<Arc<CustomEndpoint>>,
}

impl ProviderEntry {
    /// Returns the reason why the provider cannot be used, if its address or key may be in the part
    /// of the settings that waits for trust.
    pub(crate) fn trust_notice(&self) -> Option<String> {
        self.waits_for_trust.then(|| {
            format!(
                "This project's settings for the provider \"{}\" are not used until you trust the project: \
                 `adjutant trust` shows them and asks.",
                self.id
            )
        })
    }
}

/// The settings of a model. Missing values are assumed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelEntry {
    /// The part of the model's name after the slash.
    pub key: String,
    /// The provider's own id of the model, if it differs from `key`.
    pub id: Option<String>,
    pub name: Option<String>,
    /// The release date, such as `2026-11-21`.
    pub released: Option<String>,
    /// Whether the model accepts any files.
    pub attachment: Option<bool>,
    pub reasoning: Option<bool>,
    pub temperature: Option<bool>,
    pub tool_call: Option<bool>,
    /// The field in which the model's reasoning is sent back.
    pub interleaved: Option<String>,
    pub price: Option<Price>,
    /// The context window in tokens.
    pub context: Option<u64>,
    /// True if the model's own parameters on its server set the window, which the server's
    /// default does not change.
    pub has_own_window: bool,
    /// The maximum input in tokens.
    pub input: Option<u64>,
    /// The maximum output in tokens.
    pub output: Option<u64>,
    /// Accepted inputs: `text`, `image`, `pdf` …
    pub modalities: Option<Vec<String>>,
    /// `alpha`, `beta` or `deprecated`.
    pub status: Option<String>,
    /// The SDK package of the wire format, if this model has its own.
    pub npm: Option<String>,
    /// The base address, if this model has its own.
    pub api: Option<String>,
    /// Options sent with every request for the model.
    pub options: Map<String, Value>,
    /// Headers of every request for the model.
    pub headers: Vec<(String, String)>,
    /// The supported efforts, weakest first; `None` if unknown.
    pub efforts: Option<Vec<String>>,
    /// Named sets of options; `None` removes a variant.
    pub variants: Vec<(String, Option<Map<String, Value>>)>,
}

/// An OAuth server for logins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Login {
    /// The client id that is registered for this program.
    pub client_id: String,
    /// The page for browser logins; `None` if there are only device codes.
    pub authorize_url: Option<String>,
    /// The endpoint that exchanges codes and refresh tokens.
    pub token_url: String,
    /// The endpoint that issues device codes.
    pub device_url: Option<String>,
    pub scopes: Vec<String>,
}

/// The timeouts of a request; `None` waits indefinitely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTimeouts {
    /// From the request to the first byte of the answer.
    pub first: Option<Duration>,
    /// Between bytes.
    pub idle: Option<Duration>,
    /// For the whole answer.
    pub total: Option<Duration>,
}

impl Default for RequestTimeouts {
    fn default() -> Self {
        Self {
            first: Some(Duration::from_secs(300)),
            idle: Some(Duration::from_secs(90)),
            total: None,
        }
    }
}

/// US dollars per million tokens.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Price {
    /// The rates of requests below all thresholds.
    pub base: Rates,
    /// Thresholds in input tokens, ascending, with the rates of requests above them.
    pub longer: Vec<(u64, Rates)>,
}

/// US dollars per million tokens, by kind of token.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    /// Uncached input.
    pub input: f64,
    /// Output including reasoning.
    pub output: f64,
    /// Input read from the cache.
    pub cache_read: f64,
    /// Input written to the cache.
    pub cache_write: f64,
}

impl Rates {
    /// Creates rates. Missing cache rates default to the input rate.
    pub fn new(input: f64, output: f64, cache_read: Option<f64>, cache_write: Option<f64>) -> Self {
        Self {
            input,
            output,
            cache_read: cache_read.unwrap_or(input),
            cache_write: cache_write.unwrap_or(input),
        }
    }
}

impl Price {
    /// Returns the rates of a request with this many input tokens, cached or not.
    pub fn at(&self, input: u64) -> &Rates {
        self.longer
            .iter()
            .rev()
            .find(|(more, _)| input > *more)
            .map_or(&self.base, |(_, rates)| rates)
    }
}

impl From<Rates> for Price {
    fn from(base: Rates) -> Self {
        Self {
            base,
            longer: Vec::new(),
        }
    }
}

impl ProviderEntry {
    /// Merges `over` into these settings; the values of `over` take precedence.
    #[must_use]
    pub fn overlaid_with(mut self, over: &Self) -> Self {
        overlay_option(&mut self.name, &over.name);
        overlay_option(&mut self.npm, &over.npm);
        if over.base_url.is_some() {
            self.address_variable.clone_from(&over.address_variable);
        }
        overlay_option(&mut self.base_url, &over.base_url);
        if over.api_key.is_some() {
            self.key_variable = None;
        }
        overlay_option(&mut self.api_key, &over.api_key);
        overlay_option(&mut self.key_variable, &over.key_variable);
        overlay_option(&mut self.login, &over.login);
        overlay_option(&mut self.cache_key, &over.cache_key);
        overlay_option(&mut self.whitelist, &over.whitelist);
        overlay_option(&mut self.unset_key, &over.unset_key);
        overlay_option(&mut self.unset_address, &over.unset_address);
        self.waits_for_trust |= over.waits_for_trust;
        if !over.env.is_empty() {
            self.env.clone_from(&over.env);
        }
        self.limits = over.limits;
        self.source.clone_from(&over.source);
        self.headers.extend(over.headers.iter().cloned());
        self.blacklist.extend(over.blacklist.iter().cloned());
        self.options.extend(over.options.clone());
        for model in &over.models {
            let known = |key: &str| self.models.iter().position(|known| known.key == key);
            match known(&model.key) {
                Some(at) => self.models[at].overlay(model),
                None => {
                    // An alias of a known model inherits that model's settings.
                    let alias = model
                        .id
                        .as_deref()
                        .and_then(known)
                        .map(|at| self.models[at].clone());
                    let mut new = alias.unwrap_or_default();
                    new.key.clone_from(&model.key);
                    new.overlay(model);
                    self.models.push(new);
                }
            }
        }
        self
    }
}

impl ModelEntry {
    fn overlay(&mut self, over: &Self) {
        overlay_option(&mut self.id, &over.id);
        overlay_option(&mut self.name, &over.name);
        overlay_option(&mut self.released, &over.released);
        overlay_option(&mut self.attachment, &over.attachment);
        overlay_option(&mut self.reasoning, &over.reasoning);
        overlay_option(&mut self.temperature, &over.temperature);
        overlay_option(&mut self.tool_call, &over.tool_call);
        overlay_option(&mut self.interleaved, &over.interleaved);
        overlay_option(&mut self.price, &over.price);
        overlay_option(&mut self.context, &over.context);
        overlay_option(&mut self.input, &over.input);
        overlay_option(&mut self.output, &over.output);
        overlay_option(&mut self.modalities, &over.modalities);
        overlay_option(&mut self.status, &over.status);
        overlay_option(&mut self.npm, &over.npm);
        overlay_option(&mut self.api, &over.api);
        overlay_option(&mut self.efforts, &over.efforts);
        self.options.extend(over.options.clone());
        self.headers.extend(over.headers.iter().cloned());
        for (name, options) in &over.variants {
            match self.variants.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => known.clone_from(options),
                None => self.variants.push((name.clone(), options.clone())),
            }
        }
    }
}

fn overlay_option<T: Clone>(base: &mut Option<T>, over: &Option<T>) {
    if over.is_some() {
        base.clone_from(over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(name: &str) -> Map<String, Value> {
        Map::from_iter([(name.to_owned(), true.into())])
    }

    #[test]
    fn long_requests_have_their_own_rates() {
        let rates = |input: f64| Rates::new(input, 0.0, None, None);
        let price = Price {
            base: rates(1.0),
            longer: vec![(100, rates(2.0)), (200, rates(3.0))],
        };
        for (input, expected) in [(0, 1.0), (100, 1.0), (101, 2.0), (200, 2.0), (1000, 3.0)] {
            assert_eq!(price.at(input).input, expected, "{input}");
        }
    }

    #[test]
    fn configuration_overrides_the_catalogue() {
        let known = ModelEntry {
            key: "big".into(),
            context: Some(1000),
            options: option("a"),
            ..ModelEntry::default()
        };
        let base = ProviderEntry {
            id: "acme".into(),
            name: Some("Acme".into()),
            models: vec![known],
            ..ProviderEntry::default()
        };
        let changed = ModelEntry {
            key: "big".into(),
            output: Some(10),
            options: option("b"),
            ..ModelEntry::default()
        };
        let alias = ModelEntry {
            key: "mine".into(),
            id: Some("big".into()),
            ..ModelEntry::default()
        };
        let new = ModelEntry {
            key: "new".into(),
            ..ModelEntry::default()
        };
        let over = ProviderEntry {
            id: "acme".into(),
            base_url: Some("http://h".into()),
            models: vec![changed, alias, new],
            ..ProviderEntry::default()
        };
        let both = base.overlaid_with(&over);
        assert_eq!(
            (both.name.as_deref(), both.base_url.as_deref()),
            (Some("Acme"), Some("http://h"))
        );
        let facts: Vec<_> = both
            .models
            .iter()
            .map(|m| (m.key.as_str(), m.context, m.output, m.options.len()))
            .collect();
        assert_eq!(
            facts,
            [
                ("big", Some(1000), Some(10), 2),
                ("mine", Some(1000), Some(10), 2),
                ("new", None, None, 0)
            ]
        );
    }
}
