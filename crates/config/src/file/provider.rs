//! Providers and their models in a settings file.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Ordered;

/// A model provider.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProviderConfig {
    /// The name people see.
    pub name: Option<String>,
    /// Another id it is known by in the catalogue.
    pub id: Option<String>,
    /// The wire it speaks, by the name of the SDK package that speaks it, such as `@ai-sdk/openai-compatible`.
    pub npm: Option<String>,
    /// Its base address.
    pub api: Option<String>,
    /// Environment variables that may hold its key.
    pub env: Option<Vec<String>>,
    /// Where `adjutant auth login` logs in, for a provider behind an OAuth server.
    pub login: Option<LoginConfig>,
    /// If set, only these of its models are offered. A project's list only narrows yours.
    pub whitelist: Option<Vec<String>>,
    /// Models that are not offered. A project's list is added to yours.
    pub blacklist: Option<Vec<String>>,
    /// Options for every request to it.
    pub options: Option<ProviderOptions>,
    /// Its models by id: new ones, and changes to known ones.
    pub models: Option<Ordered<ModelConfig>>,
}

/// An OAuth server, with a browser (PKCE) or with codes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LoginConfig {
    /// The id adjutant is registered with there.
    pub client_id: String,
    /// Where a browser is sent.
    pub authorize_url: Option<String>,
    /// Where codes and refresh tokens are exchanged.
    pub token_url: String,
    /// Where codes to be typed come from.
    pub device_url: Option<String>,
    /// What is asked for.
    pub scopes: Vec<String>,
}

/// Options for every request to a provider.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ProviderOptions {
    /// The key. Better in the environment: `{env:NAME}`.
    #[serde(rename = "apiKey")]
    pub api_key: Option<String>,
    /// The base address, in place of the provider's own.
    #[serde(rename = "baseURL")]
    pub base_url: Option<String>,
    /// The address of a GitHub Enterprise server.
    #[serde(rename = "enterpriseUrl")]
    pub enterprise_url: Option<String>,
    /// Send a cache key that names the session.
    #[serde(rename = "setCacheKey")]
    pub set_cache_key: Option<bool>,
    /// Headers of every request.
    pub headers: Option<Ordered<String>>,
    /// How long a whole request may take, in milliseconds; false for no limit. Default: no limit.
    pub timeout: Option<TimeoutConfig>,
    /// How long to wait for an answer to begin, in milliseconds; false for no limit. Default: 300000.
    #[serde(rename = "headerTimeout")]
    pub header_timeout: Option<TimeoutConfig>,
    /// How long an answer may pause, in milliseconds; false for no limit. Default: 90000.
    #[serde(rename = "chunkTimeout")]
    pub chunk_timeout: Option<TimeoutConfig>,
    /// Everything else goes into every request.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Milliseconds, or false for no limit.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum TimeoutConfig {
    Milliseconds(u64),
    Limited(bool),
}

/// A model.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ModelConfig {
    /// The id the provider knows it by. Default: the key.
    pub id: Option<String>,
    /// The name people see.
    pub name: Option<String>,
    /// The family it belongs to.
    #[schemars(extend("x-status" = "no effect: models are told apart by their names"))]
    pub family: Option<String>,
    /// When it came out.
    pub release_date: Option<String>,
    /// Whether it takes files.
    pub attachment: Option<bool>,
    /// Whether it reasons.
    pub reasoning: Option<bool>,
    /// Whether it takes a temperature.
    pub temperature: Option<bool>,
    /// Whether it takes tools. Default: true.
    pub tool_call: Option<bool>,
    /// How its reasoning travels: true, or the name of a field.
    pub interleaved: Option<Value>,
    /// US dollars per million tokens.
    pub cost: Option<CostConfig>,
    /// Its limits in tokens.
    pub limit: Option<TokenLimit>,
    /// What goes in and comes out.
    pub modalities: Option<ModalitiesConfig>,
    /// `alpha`, `beta` or `deprecated`.
    pub status: Option<String>,
    /// Another wire or address for this model alone.
    pub provider: Option<ModelProvider>,
    /// Sent with every request for it.
    pub options: Option<Map<String, Value>>,
    /// Headers of every request for it.
    pub headers: Option<Ordered<String>>,
    /// Reasoning efforts by name: what each sends; `disabled` takes one away.
    pub variants: Option<Ordered<Map<String, Value>>>,
    /// Whether it may change without notice, or its modes that may.
    #[schemars(extend("x-status" = "no effect: a model is used as it is declared"))]
    pub experimental: Option<Value>,
    /// Whether its weights are published.
    #[schemars(extend("x-status" = "no effect: it does not change how a model is asked"))]
    pub open_weights: Option<bool>,
    /// Up to when it knows things.
    #[schemars(extend("x-status" = "no effect: it does not change how a model is asked"))]
    pub knowledge: Option<String>,
    /// When its entry in the catalogue was changed.
    #[schemars(extend("x-status" = "no effect: it does not change how a model is asked"))]
    pub last_updated: Option<String>,
    /// Whether it answers by a schema.
    #[schemars(extend("x-status" = "no effect: schemas are asked for with a tool"))]
    pub structured_output: Option<bool>,
}

/// US dollars per million tokens.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CostConfig {
    /// Fresh input.
    pub input: Option<f64>,
    /// Output.
    pub output: Option<f64>,
    /// Input from the cache.
    pub cache_read: Option<f64>,
    /// Input into the cache.
    pub cache_write: Option<f64>,
    /// Rates of requests with more than 200,000 tokens: the same keys.
    pub context_over_200k: Option<Value>,
    /// Rates of longer requests: objects with the same keys, and `tier.size` in tokens.
    pub tiers: Option<Vec<Value>>,
    /// Reasoning.
    #[schemars(extend("x-status" = "no effect: reasoning is counted as output"))]
    pub reasoning: Option<f64>,
    /// Spoken input.
    #[schemars(extend("x-status" = "no effect: it is counted as input"))]
    pub input_audio: Option<f64>,
    /// Spoken output.
    #[schemars(extend("x-status" = "no effect: nothing spoken is asked for"))]
    pub output_audio: Option<f64>,
}

/// Limits in tokens.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TokenLimit {
    /// The context window.
    pub context: Option<u64>,
    /// The longest input.
    pub input: Option<u64>,
    /// The longest answer.
    pub output: Option<u64>,
}

/// What goes in and comes out.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ModalitiesConfig {
    /// text, image, audio, video, pdf.
    pub input: Option<Vec<String>>,
    /// text, image, audio, video, pdf.
    #[schemars(extend("x-status" = "no effect: only text is asked for"))]
    pub output: Option<Vec<String>>,
}

/// Another wire or address for one model.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ModelProvider {
    /// The wire.
    pub npm: Option<String>,
    /// The address.
    pub api: Option<String>,
}
