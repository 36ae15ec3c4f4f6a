//! What a model is asked, in nobody's dialect. `turn/request.rs` makes it from a history and keeps
//! two promises: every call has exactly one result right after the message that made it, and the
//! same history gives the same request, byte for byte.

pub(crate) mod cache;

use std::sync::Arc;

use serde_json::{Map, Value};

pub use self::cache::BodyCache;
use super::Model;
use base::text::shared::SharedText;

#[derive(Debug, Clone)]
pub struct Request {
    pub model: Arc<Model>,
    /// The system prompt, in blocks; the earlier ones change less often.
    pub system: Vec<String>,
    /// The conversation, oldest first.
    pub messages: Vec<ModelMessage>,
    /// What it may call, sorted by name.
    pub tools: Vec<ToolSpec>,
    /// Whether it must call a tool.
    pub must_call: bool,
    pub params: ModelParams,
    /// Names the conversation, for the provider's cache.
    pub session: String,
    /// What it becomes on the wire; no part of the question.
    pub body_cache: BodyCache,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelParams {
    /// Where the agent sets it and the model takes it.
    pub temperature: Option<f64>,
    /// Where the agent sets it.
    pub top_p: Option<f64>,
    /// In tokens.
    pub max_output: u64,
    /// Whatever else the user's configuration says, merged into the body.
    pub options: Map<String, Value>,
    /// Sent beside the provider's own, which they do not replace: name in lower case, value.
    pub headers: Vec<(String, String)>,
    /// Whether the provider is to search the web for it: only where [`super::Provider::searches`] says that it does.
    pub search: bool,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON Schema of its arguments: an object.
    pub schema: Arc<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ModelMessage {
    User(Vec<ModelInput>),
    Assistant(Vec<ModelOutput>),
    /// The results of the calls in the assistant message before it, all of them, in order.
    Results(Vec<CallResult>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum ModelInput {
    Text(SharedText),
    /// An image or a PDF.
    File(Attachment),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    /// `image/png`, `application/pdf` …
    pub mime: String,
    /// Base64.
    pub data: Arc<str>,
    pub name: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ModelOutput {
    Text {
        /// The words; never blank.
        text: String,
        /// What the provider wants back with them.
        provider: Map<String, Value>,
    },
    /// Reasoning of this same model. Another model's reasoning arrives as text or not at all.
    Reasoning {
        text: String,
        /// Signatures and the like, untouched.
        provider: Map<String, Value>,
    },
    Call {
        /// The id that pairs it with its result: ours, unique within the request.
        id: Arc<str>,
        /// The provider's own id, where it gave one and this is the same provider.
        provider_id: Option<String>,
        name: String,
        /// The arguments; always an object.
        arguments: Arc<Value>,
        /// What the provider wants back with it.
        provider: Map<String, Value>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    pub id: Arc<str>,
    pub provider_id: Option<String>,
    pub name: String,
    pub text: Arc<str>,
    pub failed: bool,
    /// Images and the like that came out.
    pub attachments: Vec<Attachment>,
}

impl ModelMessage {
    /// Whether it says the same, byte for byte. What is shared need not be compared.
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Results(results), Self::Results(others)) => {
                results.len() == others.len() && results.iter().zip(others).all(|(one, other)| one.same(other))
            }
            (Self::User(inputs), Self::User(others)) => {
                inputs.len() == others.len() && inputs.iter().zip(others).all(|(one, other)| one.same(other))
            }
            _ => self == other,
        }
    }

    /// How many bytes it has, about.
    pub fn length(&self) -> usize {
        let input = |input: &ModelInput| match input {
            ModelInput::Text(text) => text.len(),
            ModelInput::File(file) => file.data.len(),
        };
        let output = |output: &ModelOutput| match output {
            ModelOutput::Text { text, .. } | ModelOutput::Reasoning { text, .. } => text.len(),
            ModelOutput::Call { .. } => 256,
        };
        match self {
            Self::User(inputs) => inputs.iter().map(input).sum(),
            Self::Assistant(outputs) => outputs.iter().map(output).sum(),
            Self::Results(results) => results.iter().map(|result| result.text.len()).sum(),
        }
    }
}

impl ModelInput {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(text), Self::Text(other)) => text.is_same(other),
            _ => self == other,
        }
    }
}

impl CallResult {
    fn same(&self, other: &Self) -> bool {
        let Self { id, provider_id, name, text, failed, attachments } = self;
        (Arc::ptr_eq(text, &other.text) || *text == other.text)
            && (id, provider_id, name, failed, attachments)
                == (&other.id, &other.provider_id, &other.name, &other.failed, &other.attachments)
    }
}

impl Attachment {
    /// As a `data:` address, ready to be written.
    pub fn data_url(&self) -> DataUrl<'_> {
        DataUrl(self)
    }
}

/// An attachment as a `data:` address, written without a copy of it being made.
#[derive(Debug, Clone, Copy)]
pub struct DataUrl<'a>(&'a Attachment);

impl serde::Serialize for DataUrl<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("data:{};base64,{}", self.0.mime, self.0.data))
    }
}
