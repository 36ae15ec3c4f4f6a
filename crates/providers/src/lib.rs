//! Model providers: sends a [`Request`] to a model and streams its answer as [`Delta`]s.
//!
//! A [`registry::Registry`] lists the available [`Model`]s, with the [`Provider`] that serves each
//! of them: usually an [`endpoint::Endpoint`], which combines the address, the key and the wire
//! format. A [`wire_format::WireFormat`] encodes a request as an HTTP call, and decodes the
//! server-sent events of the answer to deltas; both are pure functions. [`http::HttpClient`]
//! transfers the bytes. Only the module of a wire format knows the quirks of that format.

pub mod anthropic;
pub mod chat;
pub mod gemini;
pub mod responses;

/// All wire formats.
static WIRE_FORMATS: &[&dyn wire_format::WireFormat] = &[
    &anthropic::Messages,
    &responses::Responses,
    &chat::Chat,
    &gemini::Gemini,
];

pub mod auth;
pub mod body;
pub mod catalog;
pub mod custom_endpoint;
pub mod delta;
pub mod editor_endpoints;
pub mod endpoint;
pub mod entry;
pub mod error;
pub mod error_classification;
pub mod error_path;
pub mod family;
pub mod http;
pub mod local;
pub mod oauth;
pub mod offline;
pub mod optional_fields;
pub mod platform;
mod preference;
pub mod recording;
pub mod registry;
pub mod replay;
pub mod request;
pub mod request_target;
#[cfg(any(test, feature = "testing"))]
pub mod scripted;
pub mod secret;
pub mod sse;
mod surrogates;
pub mod wire_format;

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod conversations;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, Stream};

pub use delta::Delta;
pub use error::Error;
pub use request::Request;
pub use transcript::model_message::FoundPage;

pub use crate::entry::Price;
use transcript::ModelRef;

/// The deltas of an answer in the order of arrival. Dropping the stream closes the connection.
pub type AnswerStream = Pin<Box<dyn Stream<Item = Result<Delta, Error>> + Send>>;

/// A service that answers requests to its models.
pub trait Provider: Send + Sync {
    /// Sends a request and streams its answer; requires a Tokio runtime. The request may be sent
    /// before the stream is polled.
    fn stream(&self, request: Arc<Request>) -> AnswerStream;

    /// Checks that the provider's server answers, without a key and within a time limit, and that a
    /// server of this machine has the model.
    ///
    /// # Errors
    /// The reason why requests would fail, as far as it is known without a key.
    fn check<'a>(
        &'a self,
        _model: &'a Model,
        _limit: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        std::future::ready(Ok(())).boxed()
    }

    /// True if the provider itself can search the web for this model.
    fn can_search_web(&self, _model: &Model) -> bool {
        false
    }
}

/// The properties of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// `provider/model`, with the chosen effort.
    pub id: ModelRef,
    /// The display name.
    pub name: String,
    /// The provider's display name.
    pub provider_name: String,
    /// The provider's id of the model.
    pub api_id: String,
    /// The context window in tokens; `None` if unknown.
    pub context: Option<u64>,
    /// True if the parameters of the model on its server set the context window (Ollama's
    /// `num_ctx`), so that the default of the server does not apply to it.
    pub has_own_window: bool,
    /// The maximum input in tokens; `None` if only the context window limits it.
    pub input: Option<u64>,
    /// The maximum output in tokens; `None` if unknown.
    pub output: Option<u64>,
    /// US dollars per million tokens; `None` if unknown.
    pub price: Option<Price>,
    pub images: ImageSupport,
    /// True if the model accepts PDF files.
    pub pdf: bool,
    /// True if the model accepts audio, and its wire format can carry it.
    pub audio: bool,
    /// True if the model can call tools.
    pub tools: bool,
    /// True if the model can think before it answers.
    pub reasoning: bool,
    /// True if the model accepts a sampling temperature.
    pub temperature: bool,
    /// The available efforts, weakest first.
    pub efforts: Vec<String>,
    /// The address of the model's requests, if the editor has set it.
    pub editor_address: Option<Arc<str>>,
    /// Set if the settings name an environment variable for the key that is not set, so that
    /// requests are sent without a key: a clause that names the variable and the settings file.
    pub unset_key: Option<Arc<str>>,
}

/// The image support of a model: known from the start, or looked up for the first image.
#[derive(Clone)]
pub struct ImageSupport {
    known: OnceLock<bool>,
    /// Finds the answer if `known` is empty.
    lookup: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl ImageSupport {
    /// Defers the answer to `lookup`, which runs at most once and may read files.
    pub fn deferred(lookup: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            known: OnceLock::new(),
            lookup: Some(Arc::new(lookup)),
        }
    }

    /// True if the model accepts images. May read files at the first call.
    pub fn is_supported(&self) -> bool {
        *self
            .known
            .get_or_init(|| self.lookup.as_ref().is_some_and(|lookup| lookup()))
    }
}

impl From<bool> for ImageSupport {
    fn from(known: bool) -> Self {
        Self {
            known: known.into(),
            lookup: None,
        }
    }
}

impl PartialEq for ImageSupport {
    fn eq(&self, other: &Self) -> bool {
        self.is_supported() == other.is_supported()
    }
}

impl fmt::Debug for ImageSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ImageSupport")
            .field(&self.known.get())
            .finish()
    }
}

impl Model {
    /// The context window, in tokens, that is assumed if it is unknown: small enough for most
    /// models, large enough to work with.
    pub const ASSUMED_CONTEXT_TOKENS: u64 = 128_000;
    /// The maximum output requested, in tokens.
    pub const MAX_OUTPUT_TOKENS: u64 = 32_000;

    /// Creates a model with default properties, for a model about which only the id is known.
    pub fn unknown(id: ModelRef) -> Self {
        Self {
            name: id.model.clone(),
            provider_name: id.provider.clone(),
            api_id: id.model.clone(),
            id,
            context: None,
            has_own_window: false,
            input: None,
            output: None,
            price: None,
            images: true.into(),
            pdf: false,
            audio: false,
            tools: true,
            reasoning: false,
            temperature: true,
            efforts: Vec::new(),
            editor_address: None,
            unset_key: None,
        }
    }

    /// Returns the maximum output to request, in tokens: at most a quarter of the window, because
    /// the conversation needs the rest.
    pub fn max_output(&self) -> u64 {
        let output = self
            .output
            .filter(|n| *n > 0)
            .unwrap_or(Self::MAX_OUTPUT_TOKENS);
        output
            .min(Self::MAX_OUTPUT_TOKENS)
            .min((self.window() / 4).max(1))
    }

    /// Returns the context window in tokens, or [`Self::ASSUMED_CONTEXT_TOKENS`] if it is unknown.
    pub fn window(&self) -> u64 {
        self.context
            .filter(|n| *n > 0)
            .unwrap_or(Self::ASSUMED_CONTEXT_TOKENS)
    }

    /// Returns the number of tokens that a conversation may take before it must be compacted: the
    /// input limit (the context window if there is none) minus a reserve for the answer. The reserve
    /// is `reserved` tokens if the user has set them; otherwise [`Self::max_output`], but at most
    /// 20,000 tokens for models with an input limit. It is never more than half of the limit.
    pub fn usable_tokens(&self, reserved: Option<u64>) -> u64 {
        /// The default reserve of models whose input is limited separately.
        const MAX_DEFAULT_RESERVE: u64 = 20_000;
        let (limit, default_reserve) = match self.input.filter(|n| *n > 0) {
            Some(input) => (input, self.max_output().min(MAX_DEFAULT_RESERVE)),
            None => (self.window(), self.max_output()),
        };
        limit - reserved.unwrap_or(default_reserve).min(limit / 2)
    }
}

/// True if the host of a URL is `localhost` or a loopback address.
pub fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url
        .host_str()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches(']');
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usable_context_leaves_space_for_output() {
        // Window, input, output, reserved; expected maximum output, usable context.
        let table = [
            ((Some(200_000), None, Some(64_000), None), (32_000, 168_000)),
            ((Some(200_000), None, Some(8_000), None), (8_000, 192_000)),
            (
                (Some(400_000), Some(272_000), Some(128_000), None),
                (32_000, 252_000),
            ),
            (
                (Some(400_000), Some(272_000), Some(128_000), Some(1_000)),
                (32_000, 271_000),
            ),
            (
                (Some(128_000), None, Some(4_000), Some(30_000)),
                (4_000, 98_000),
            ),
            ((Some(8_192), None, Some(8_192), None), (2_048, 6_144)),
            ((Some(8_192), None, None, Some(20_000)), (2_048, 4_096)),
            ((None, None, None, None), (32_000, 96_000)),
            ((Some(0), Some(0), Some(0), None), (32_000, 96_000)),
        ];
        for ((context, input, output, reserved), expected) in table {
            let id = ModelRef {
                provider: "p".into(),
                model: "m".into(),
                effort: None,
            };
            let model = Model {
                context,
                input,
                output,
                ..Model::unknown(id)
            };
            let found = (model.max_output(), model.usable_tokens(reserved));
            assert_eq!(
                found, expected,
                "{context:?} {input:?} {output:?} {reserved:?}"
            );
        }
    }
}
