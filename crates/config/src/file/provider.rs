//! Providers and their models in a settings file.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Ordered;

/// A model provider.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProviderConfig {
    /// The displayed name.
    #[schemars(extend("x-trust" = "applies"))]
    pub name: Option<String>,
    /// Its id in the catalogue, if that differs.
    #[schemars(extend("x-trust" = "waits"))]
    pub id: Option<String>,
    /// The wire format, as the name of the SDK package that implements it, such as
    /// `@ai-sdk/openai-compatible`.
    #[schemars(extend("x-trust" = "waits"))]
    pub npm: Option<String>,
    /// Its base address.
    #[schemars(extend("x-trust" = "waits"))]
    pub api: Option<String>,
    /// Environment variables that may hold its key.
    #[schemars(extend("x-trust" = "waits"))]
    pub env: Option<Vec<String>>,
    /// The OAuth server that `adjutant auth login` uses, for a provider behind one.
    #[schemars(extend("x-trust" = "waits"))]
    pub login: Option<LoginConfig>,
    /// If set, only these of its models are offered. A project's list only narrows yours.
    #[schemars(extend("x-trust" = "applies"))]
    pub whitelist: Option<Vec<String>>,
    /// Models that are not offered. A project's list is added to yours.
    #[schemars(extend("x-trust" = "applies"))]
    pub blacklist: Option<Vec<String>>,
    /// Options for every request to it.
    #[schemars(extend("x-trust" = "parts"))]
    pub options: Option<ProviderOptions>,
    /// Its models by id: new ones, and changes to known ones.
    #[schemars(extend("x-trust" = "applies"))]
    pub models: Option<Ordered<ModelConfig>>,
}

/// An OAuth server, with a browser (PKCE) or with codes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LoginConfig {
    /// The client id under which adjutant is registered there.
    pub client_id: String,
    /// The address that the browser opens.
    pub authorize_url: Option<String>,
    /// The address that exchanges codes and refresh tokens.
    pub token_url: String,
    /// The address that issues device codes.
    pub device_url: Option<String>,
    /// The requested scopes.
    pub scopes: Vec<String>,
}

/// Options for every request to a provider.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ProviderOptions {
    /// The key. Prefer a variable of the environment: `{env:NAME}`.
    #[serde(rename = "apiKey")]
    #[schemars(extend("x-trust" = "waits"))]
    pub api_key: Option<String>,
    /// The base address, instead of the provider's own.
    #[serde(rename = "baseURL")]
    #[schemars(extend("x-trust" = "waits"))]
    pub base_url: Option<String>,
    /// The address of a GitHub Enterprise server.
    #[serde(rename = "enterpriseUrl")]
    #[schemars(extend("x-trust" = "waits"))]
    pub enterprise_url: Option<String>,
    /// Send a cache key that names the session.
    #[serde(rename = "setCacheKey")]
    #[schemars(extend("x-trust" = "applies"))]
    pub set_cache_key: Option<bool>,
    /// Headers of every request.
    #[schemars(extend("x-trust" = "waits"))]
    pub headers: Option<Ordered<String>>,
    /// The time limit of a request, in milliseconds; false for none. Default: no limit.
    #[schemars(extend("x-trust" = "applies"))]
    pub timeout: Option<TimeoutConfig>,
    /// The time limit for the beginning of an answer, in milliseconds; false for none. Default: 300000.
    #[serde(rename = "headerTimeout")]
    #[schemars(extend("x-trust" = "applies"))]
    pub header_timeout: Option<TimeoutConfig>,
    /// The maximum pause within an answer, in milliseconds; false for no limit. Default: 90000.
    #[serde(rename = "chunkTimeout")]
    #[schemars(extend("x-trust" = "applies"))]
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
    /// The provider's id of the model. Default: the key.
    pub id: Option<String>,
    /// The displayed name.
    pub name: Option<String>,
    /// The family it belongs to.
    #[schemars(extend("x-status" = "no effect: models are identified by their names"))]
    pub family: Option<String>,
    /// The date of its release.
    pub release_date: Option<String>,
    /// Whether it accepts files.
    pub attachment: Option<bool>,
    /// Whether it reasons.
    pub reasoning: Option<bool>,
    /// Whether it accepts a temperature.
    pub temperature: Option<bool>,
    /// Whether it can call tools. Default: true.
    pub tool_call: Option<bool>,
    /// The field that carries its reasoning: true, or the name of the field.
    pub interleaved: Option<Value>,
    /// US dollars per million tokens.
    pub cost: Option<CostConfig>,
    /// Its limits in tokens.
    pub limit: Option<TokenLimit>,
    /// Kinds of input and output.
    pub modalities: Option<ModalitiesConfig>,
    /// `alpha`, `beta` or `deprecated`.
    pub status: Option<String>,
    /// Another wire format or address for this model only.
    #[schemars(extend("x-trust" = "waits"))]
    pub provider: Option<ModelProvider>,
    /// Sent with every request for it.
    pub options: Option<Map<String, Value>>,
    /// Headers of every request for it.
    #[schemars(extend("x-trust" = "waits"))]
    pub headers: Option<Ordered<String>>,
    /// Reasoning efforts by name, with the options that each sends; `disabled` removes one.
    pub variants: Option<Ordered<Map<String, Value>>>,
    /// Whether it may change without notice, or which of its modes may.
    #[schemars(extend("x-status" = "no effect: a model is used as it is declared"))]
    pub experimental: Option<Value>,
    /// Whether its weights are published.
    #[schemars(extend("x-status" = "no effect: it does not change requests to the model"))]
    pub open_weights: Option<bool>,
    /// The date of its latest training data.
    #[schemars(extend("x-status" = "no effect: it does not change requests to the model"))]
    pub knowledge: Option<String>,
    /// The date of the last change of its entry in the catalogue.
    #[schemars(extend("x-status" = "no effect: it does not change requests to the model"))]
    pub last_updated: Option<String>,
    /// Whether it can answer with a schema.
    #[schemars(extend("x-status" = "no effect: results with a schema are requested with a tool"))]
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
    #[schemars(extend("x-status" = "no effect: no spoken output is requested"))]
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

/// Kinds of input and output.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ModalitiesConfig {
    /// text, image, audio, video, pdf.
    pub input: Option<Vec<String>>,
    /// text, image, audio, video, pdf.
    #[schemars(extend("x-status" = "no effect: only text is requested"))]
    pub output: Option<Vec<String>>,
}

/// Another wire format or address for one model.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ModelProvider {
    /// The wire format.
    pub npm: Option<String>,
    /// The address.
    pub api: Option<String>,
}
