//! Model providers: a [`Request`] in, a stream of [`Delta`]s out. Only the module of a wire format
//! knows the quirks of that format.
//!
//! A wire format is two pure functions: `encode` makes the HTTP call of a request, `decode` turns
//! one server-sent event into deltas. `http.rs` does everything between them.

pub mod anthropic;
pub mod chat;
pub mod gemini;
pub mod responses;

/// All wire formats.
static WIRES: &[&dyn wire::WireFormat] = &[
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
pub mod editor;
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
pub mod optional;
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
pub mod wire;

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

    /// Returns whether the provider itself can search the web for this model.
    fn searches(&self, _model: &Model) -> bool {
        false
    }
}

/// The properties of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// `provider/model`, with the chosen effort.
    pub id: ModelRef,
    pub name: String,
    /// The provider's display name.
    pub provider_name: String,
    /// The provider's id of the model.
    pub api_id: String,
    /// The context window in tokens; `None` if unknown.
    pub context: Option<u64>,
    /// True if the model's own parameters on its server set the window, which the server's
    /// default does not change.
    pub has_own_window: bool,
    /// The maximum input in tokens, if it is limited separately from the window.
    pub input: Option<u64>,
    /// The maximum output in tokens; `None` if unknown.
    pub output: Option<u64>,
    /// US dollars per million tokens; `None` if unknown.
    pub price: Option<Price>,
    pub images: ImageSupport,
    pub pdf: bool,
    /// Whether the model accepts audio, and its wire format can carry it.
    pub audio: bool,
    pub tools: bool,
    pub reasoning: bool,
    pub temperature: bool,
    /// The available efforts, weakest first.
    pub efforts: Vec<String>,
    /// The address of its requests, if the editor has set it.
    pub editor_address: Option<Arc<str>>,
    /// The clause about the variable that the settings name for the key, if it is not set and
    /// requests are sent without a key.
    pub unset_key: Option<Arc<str>>,
}

/// The image support of a model: known from the start, or looked up for the first image.
#[derive(Clone)]
pub struct ImageSupport {
    known: OnceLock<bool>,
    look: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl ImageSupport {
    /// Defers the answer to `look`, which runs at most once and may read files.
    pub fn deferred(look: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            known: OnceLock::new(),
            look: Some(Arc::new(look)),
        }
    }

    pub fn get(&self) -> bool {
        *self
            .known
            .get_or_init(|| self.look.as_ref().is_some_and(|look| look()))
    }
}

impl From<bool> for ImageSupport {
    fn from(known: bool) -> Self {
        Self {
            known: known.into(),
            look: None,
        }
    }
}

impl PartialEq for ImageSupport {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
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
    /// The context window assumed if it is unknown: small enough for most models, large enough to
    /// work with.
    pub const ASSUMED_CONTEXT: u64 = 128_000;
    /// The maximum output requested, in tokens.
    pub const OUTPUT_LIMIT: u64 = 32_000;

    /// Creates a model of which only the name is known.
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
        let output = self.output.filter(|n| *n > 0).unwrap_or(Self::OUTPUT_LIMIT);
        output
            .min(Self::OUTPUT_LIMIT)
            .min((self.window() / 4).max(1))
    }

    /// Returns the context window in tokens, or [`Self::ASSUMED_CONTEXT`] if it is unknown.
    pub fn window(&self) -> u64 {
        self.context
            .filter(|n| *n > 0)
            .unwrap_or(Self::ASSUMED_CONTEXT)
    }

    /// Returns the number of tokens that a conversation may take before it must be compacted: the
    /// input limit (if there is none, the window) without the reserve, which is at most half of the
    /// limit. `reserved` is the user's choice; by default the reserve is [`Self::max_output`], and
    /// at most 20,000 tokens for models with an input limit.
    pub fn usable(&self, reserved: Option<u64>) -> u64 {
        let (limit, free) = match self.input.filter(|n| *n > 0) {
            Some(input) => (input, self.max_output().min(20_000)),
            None => (self.window(), self.max_output()),
        };
        limit - reserved.unwrap_or(free).min(limit / 2)
    }
}

/// Returns whether the address is a loopback address.
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
            let found = (model.max_output(), model.usable(reserved));
            assert_eq!(
                found, expected,
                "{context:?} {input:?} {output:?} {reserved:?}"
            );
        }
    }
}
