//! A request to the session's model on behalf of an MCP server or a tool.

use tokio::sync::oneshot;

use transcript::model_message::{FoundPage, ModelMessage};

/// A request to the session's model, to which the user has agreed.
#[derive(Debug)]
pub struct SampleRequest {
    /// The system prompt, if there is one.
    pub system: Option<String>,
    /// Oldest first.
    pub messages: Vec<ModelMessage>,
    /// The maximum number of tokens of the answer.
    pub max_output: u64,
    /// True if the provider should search the web for the answer.
    pub search: bool,
    /// The temperature, for models that accept one.
    pub temperature: Option<f64>,
    /// The answer, or the reason why there is none.
    pub reply: oneshot::Sender<Result<Sample, String>>,
}

/// The model's answer to a [`SampleRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub text: String,
    /// The pages that the provider has found on the web.
    pub found: Vec<FoundPage>,
    /// `provider/model`.
    pub model: String,
    /// True if the answer has reached the maximum number of tokens.
    pub cut: bool,
}
