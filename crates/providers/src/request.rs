//! A request to a model ([`Request`]), independent of the wire format.
//!
//! The session makes it from the history, and guarantees two things: every call has exactly one
//! result directly after the message with the call, and the same history gives the same request,
//! byte for byte.

pub(crate) mod cache;

use std::sync::Arc;

use serde_json::{Map, Value};

pub use self::cache::BodyCache;
use super::Model;
pub use transcript::model_message::{
    Attachment, CallResult, DataUrl, ModelInput, ModelMessage, ModelOutput,
};

/// A request to a model.
#[derive(Debug, Clone)]
pub struct Request {
    pub model: Arc<Model>,
    /// The system prompt, in blocks; the earlier ones change less often, and all but the last are
    /// the same for other sessions of the project.
    pub system: Vec<String>,
    /// The conversation, oldest first.
    pub messages: Vec<ModelMessage>,
    /// The available tools, sorted by name.
    pub tools: Vec<ToolSpec>,
    /// True if the model must call a tool.
    pub must_call: bool,
    pub params: ModelParams,
    /// The session id, as a key for the provider's prompt cache; empty to send none.
    pub session: String,
    /// The encoded body, for reuse by the next request; not a part of what is sent.
    pub body_cache: BodyCache,
}

/// Returns the index of the last block of a system prompt that other sessions of the project share,
/// from the number of its blocks.
pub(crate) const fn last_shared_block(blocks: usize) -> usize {
    blocks.saturating_sub(2)
}

/// The parameters of a request, from the agent and the session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelParams {
    /// The sampling temperature; `None` if the agent does not set it or the model does not accept
    /// it.
    pub temperature: Option<f64>,
    /// The nucleus sampling threshold; `None` if the agent does not set it.
    pub top_p: Option<f64>,
    /// The maximum output in tokens.
    pub max_output: u64,
    /// All other options of the user's settings, merged into the body.
    pub options: Map<String, Value>,
    /// Headers sent in addition to the provider's own, which they do not replace: name in lower
    /// case, value.
    pub headers: Vec<(String, String)>,
    /// True to let the provider search the web; only set if [`super::Provider::can_search_web`]
    /// returns `true`.
    pub search: bool,
    /// True to request as little thinking as the model can do, instead of the chosen effort.
    pub least_effort: bool,
    /// Fields of the body that are left out, because the provider rejects them
    /// ([`super::optional_fields::rejected_field`]).
    pub omitted: Vec<&'static str>,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments: an object.
    pub schema: Arc<Value>,
}
