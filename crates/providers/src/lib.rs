//! Who thinks. A [`Request`] goes in, a stream of [`Delta`]s comes out; nothing beside
//! `model/x.rs` knows provider x.
//!
//! A wire is two pure functions: `encode` makes the HTTP call of a request, `decode` turns one
//! server-sent event into deltas. `model/http.rs` is everything between them.

pub mod anthropic;
pub mod auth;
pub mod body;
pub mod catalog;
pub mod chat;
pub mod classify;
pub mod delta;
pub mod endpoint;
pub mod entry;
pub mod error;
pub mod family;
pub mod gemini;
pub mod http;
pub mod local;
pub mod oauth;
pub mod offline;
pub mod platform;
pub mod registry;
pub mod replay;
pub mod request;
pub mod responses;
#[cfg(any(test, feature = "testing"))]
pub mod scripted;
pub mod sse;
pub mod tape;
pub mod target;
pub mod wire;

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod conversations;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use futures_util::Stream;

pub use delta::{Delta, FoundPage};
pub use error::Error;
pub use request::Request;

pub use crate::entry::Price;
use transcript::ModelRef;

/// The answer as it comes in. Dropping it drops the connection.
pub type AnswerStream = Pin<Box<dyn Stream<Item = Result<Delta, Error>> + Send>>;

pub trait Provider: Send + Sync {
    /// Asks, inside a runtime. The request may be sent before the answer is polled.
    fn ask(&self, request: Arc<Request>) -> AnswerStream;

    /// Whether the provider itself searches the web where this model is asked to.
    fn searches(&self, _model: &Model) -> bool {
        false
    }
}

/// What is known about a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// `provider/model`, with the chosen effort.
    pub id: ModelRef,
    pub name: String,
    /// For people: the provider's name.
    pub provider_name: String,
    /// The model's own id at the provider.
    pub api_id: String,
    /// The context window in tokens; none where nobody said.
    pub context: Option<u64>,
    /// The longest input in tokens, where it is limited apart from the window.
    pub input: Option<u64>,
    /// The longest answer in tokens; none where nobody said.
    pub output: Option<u64>,
    /// US dollars per million tokens, where known.
    pub price: Option<Price>,
    pub images: ImageSupport,
    pub pdf: bool,
    /// Whether it can hear, and its wire can say it.
    pub audio: bool,
    pub tools: bool,
    pub reasoning: bool,
    pub temperature: bool,
    /// The efforts that can be chosen, weakest first.
    pub efforts: Vec<String>,
}

/// Whether a model sees pictures: known, or looked up when the first picture is there.
#[derive(Clone)]
pub struct ImageSupport {
    known: OnceLock<bool>,
    look: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl ImageSupport {
    /// `look` may read files, once.
    pub fn looked_up(look: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { known: OnceLock::new(), look: Some(Arc::new(look)) }
    }

    pub fn get(&self) -> bool {
        *self.known.get_or_init(|| self.look.as_ref().is_some_and(|look| look()))
    }
}

impl From<bool> for ImageSupport {
    fn from(known: bool) -> Self {
        Self { known: known.into(), look: None }
    }
}

impl PartialEq for ImageSupport {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for ImageSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ImageSupport").field(&self.known.get()).finish()
    }
}

impl Model {
    /// The window assumed where nobody said: small enough for most, large enough to work.
    pub const ASSUMED_CONTEXT: u64 = 128_000;
    /// The longest answer asked for.
    pub const OUTPUT_LIMIT: u64 = 32_000;

    /// A model of which only the name is known.
    pub fn unknown(id: ModelRef) -> Self {
        Self {
            name: id.model.clone(),
            provider_name: id.provider.clone(),
            api_id: id.model.clone(),
            id,
            context: None,
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
        }
    }

    /// How many tokens to ask for at most: never more than a quarter of the window, which the
    /// conversation needs more.
    pub fn max_output(&self) -> u64 {
        let output = self.output.filter(|n| *n > 0).unwrap_or(Self::OUTPUT_LIMIT);
        output.min(Self::OUTPUT_LIMIT).min((self.window() / 4).max(1))
    }

    /// The context window in tokens; where nobody said, what most have.
    pub fn window(&self) -> u64 {
        self.context.filter(|n| *n > 0).unwrap_or(Self::ASSUMED_CONTEXT)
    }

    /// How many tokens a conversation may take before it must be summarised: the window without
    /// what is kept free, which is never more than half of it. `reserved` is what the user wants kept
    /// free; else it is room for the longest answer, and where the model limits its input apart from
    /// the window, 20,000 tokens at most.
    pub fn usable(&self, reserved: Option<u64>) -> u64 {
        let (limit, free) = match self.input.filter(|n| *n > 0) {
            Some(input) => (input, self.max_output().min(20_000)),
            None => (self.window(), self.max_output()),
        };
        limit - reserved.unwrap_or(free).min(limit / 2)
    }
}

/// Whether an address is this machine's own.
pub fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_a_conversation() {
        // Window, input, output, reserved: the longest answer, what is usable.
        let table = [
            ((Some(200_000), None, Some(64_000), None), (32_000, 168_000)),
            ((Some(200_000), None, Some(8_000), None), (8_000, 192_000)),
            ((Some(400_000), Some(272_000), Some(128_000), None), (32_000, 252_000)),
            ((Some(400_000), Some(272_000), Some(128_000), Some(1_000)), (32_000, 271_000)),
            ((Some(128_000), None, Some(4_000), Some(30_000)), (4_000, 98_000)),
            ((Some(8_192), None, Some(8_192), None), (2_048, 6_144)),
            ((Some(8_192), None, None, Some(20_000)), (2_048, 4_096)),
            ((None, None, None, None), (32_000, 96_000)),
            ((Some(0), Some(0), Some(0), None), (32_000, 96_000)),
        ];
        for ((context, input, output, reserved), expected) in table {
            let id = ModelRef { provider: "p".into(), model: "m".into(), effort: None };
            let model = Model { context, input, output, ..Model::unknown(id) };
            let found = (model.max_output(), model.usable(reserved));
            assert_eq!(found, expected, "{context:?} {input:?} {output:?} {reserved:?}");
        }
    }
}
