//! Settings of providers ([`ProviderEntry`]) and their models ([`ModelEntry`]).
//!
//! They come from the configuration, the catalogue or a server on this machine, all in one form, so
//! that one can be merged over another ([`ProviderEntry::overlaid_with`]).

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
    pub catalog_id: Option<String>,
    /// The display name; `None` means the id.
    pub name: Option<String>,
    /// The SDK package of the provider's wire format, as in OpenCode and the catalogue.
    pub npm: Option<String>,
    /// The base address; `${VAR}` is replaced from the environment. `None` means the address of the
    /// SDK package.
    pub base_url: Option<String>,
    /// The key, if the settings contain it.
    pub api_key: Option<Secret>,
    /// The environment variable in the settings that contains the key, for errors about it.
    pub key_variable: Option<String>,
    /// The environment variable that contains `base_url`, for errors about it.
    pub address_variable: Option<String>,
    /// The environment variables that may hold the key or parts of the address.
    pub env: Vec<String>,
    /// The OAuth server for logins; `None` if the provider only accepts keys.
    pub login: Option<Login>,
    /// Headers of every request: name, value.
    pub headers: Vec<(String, String)>,
    pub timeouts: RequestTimeouts,
    /// True to send the session id as the key of the provider's prompt cache, false to send none;
    /// `None` leaves it to the wire format.
    pub cache_key: Option<bool>,
    /// The models that are offered; `None` offers all.
    pub whitelist: Option<Vec<String>>,
    /// Models that are not offered.
    pub blacklist: Vec<String>,
    /// The models. If there are none, any model name is accepted.
    pub models: Vec<ModelEntry>,
    /// Further options, sent with every request.
    pub options: Map<String, Value>,
    /// The last settings source that mentions the provider, for display; empty if there is none.
    pub source: String,
    /// Set if the settings name an environment variable for the key that is not set: a clause that
    /// names the variable and the settings file.
    pub unset_key: Option<String>,
    /// Like `unset_key`, for the address.
    pub unset_address: Option<String>,
    /// True if a part of the project's settings for the provider is not used until the user trusts
    /// the project.
    pub waits_for_trust: bool,
    /// The endpoint that the editor has set; `None` if it has set none.
    pub endpoint: Option<Arc<CustomEndpoint>>,
}

impl ProviderEntry {
    /// Returns the sentence about the settings that wait for trust; `None` if there are none.
    /// Callers show it if the provider cannot be used, because the missing address or key may be
    /// among them.
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

/// The settings of a model. `None` means unknown: the registry assumes a default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelEntry {
    /// The part of the model's name after the slash.
    pub key: String,
    /// The provider's own id of the model, if it differs from `key`.
    pub id: Option<String>,
    /// The display name; `None` means `key`.
    pub name: Option<String>,
    /// The release date, such as `2026-11-21`.
    pub release_date: Option<String>,
    /// True if the model accepts any files.
    pub attachment: Option<bool>,
    /// True if the model can think before it answers.
    pub reasoning: Option<bool>,
    /// True if the model accepts a sampling temperature.
    pub temperature: Option<bool>,
    /// True if the model can call tools.
    pub tool_call: Option<bool>,
    /// The field in which the model's reasoning is sent back.
    pub reasoning_field: Option<String>,
    pub price: Option<Price>,
    /// The context window in tokens.
    pub context: Option<u64>,
    /// True if the parameters of the model on its server set the context window (Ollama's
    /// `num_ctx`), so that the default of the server does not apply to it.
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
    /// Sets of options, by the name of the effort that selects them; `None` removes an effort.
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
    /// The endpoint that issues device codes; `None` if there are only browser logins.
    pub device_url: Option<String>,
    /// The access rights to request.
    pub scopes: Vec<String>,
}

/// The timeouts of a request; `None` waits indefinitely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTimeouts {
    /// The time from the request to the first byte of the answer.
    pub first_byte: Option<Duration>,
    /// The time without a byte during the answer.
    pub idle: Option<Duration>,
    /// The time from the request to the end of the answer.
    pub total: Option<Duration>,
}

impl Default for RequestTimeouts {
    fn default() -> Self {
        Self {
            first_byte: Some(Duration::from_secs(300)),
            idle: Some(Duration::from_secs(90)),
            total: None,
        }
    }
}

/// The price of a model, which may depend on the length of a request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Price {
    /// The rates of requests below all thresholds.
    pub base: Rates,
    /// Thresholds in input tokens, ascending, with the rates of requests above each of them.
    pub long_requests: Vec<(u64, Rates)>,
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
    /// Returns the rates of a request with this number of input tokens, cached and uncached.
    pub fn rates_for(&self, input_tokens: u64) -> &Rates {
        self.long_requests
            .iter()
            .rev()
            .find(|(more, _)| input_tokens > *more)
            .map_or(&self.base, |(_, rates)| rates)
    }
}

impl From<Rates> for Price {
    fn from(base: Rates) -> Self {
        Self {
            base,
            long_requests: Vec::new(),
        }
    }
}

impl ProviderEntry {
    /// Returns these settings with `over` merged over them: values of `over` take precedence, lists
    /// and options are joined.
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
        self.timeouts = over.timeouts;
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
        overlay_option(&mut self.release_date, &over.release_date);
        overlay_option(&mut self.attachment, &over.attachment);
        overlay_option(&mut self.reasoning, &over.reasoning);
        overlay_option(&mut self.temperature, &over.temperature);
        overlay_option(&mut self.tool_call, &over.tool_call);
        overlay_option(&mut self.reasoning_field, &over.reasoning_field);
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
            long_requests: vec![(100, rates(2.0)), (200, rates(3.0))],
        };
        for (input, expected) in [(0, 1.0), (100, 1.0), (101, 2.0), (200, 2.0), (1000, 3.0)] {
            assert_eq!(price.rates_for(input).input, expected, "{input}");
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
