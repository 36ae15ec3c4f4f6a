//! A question that somebody else than the session, a server of the user's or a tool, has for its model.

use tokio::sync::oneshot;

use providers::FoundPage;
use providers::request::ModelMessage;

/// A question for the session's model. The user has agreed to it.
#[derive(Debug)]
pub struct SampleRequest {
    pub system: Option<String>,
    /// Oldest first.
    pub messages: Vec<ModelMessage>,
    /// Tokens of the answer at most.
    pub max_output: u64,
    /// Its provider is to search the web for the answer.
    pub search: bool,
    /// Where the model takes it.
    pub temperature: Option<f64>,
    /// The answer, or why there is none.
    pub reply: oneshot::Sender<Result<Sample, String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub text: String,
    /// What its provider found on the web.
    pub found: Vec<FoundPage>,
    /// `provider/model`.
    pub model: String,
    /// It ran out of tokens.
    pub cut: bool,
}
