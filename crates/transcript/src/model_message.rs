//! The messages of a request to a model, independent of its wire format, and the pages that a search
//! of the provider has found.

use std::sync::Arc;

use serde_json::{Map, Value};

use base::text::shared::SharedText;

/// A message of a request to a model.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelMessage {
    User(Vec<ModelInput>),
    Assistant(Vec<ModelOutput>),
    /// The results of all calls in the preceding assistant message, in order.
    Results(Vec<CallResult>),
}

/// A piece of a message by the user.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelInput {
    Text(SharedText),
    /// An image or a PDF.
    File(Attachment),
}

/// A file in a message.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    /// The media type: `image/png`, `application/pdf` …
    pub mime: String,
    /// The bytes in Base64.
    pub data: Arc<str>,
    /// The name, if it has one.
    pub name: Option<String>,
}

/// A piece of a message by the model.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelOutput {
    Text {
        /// The text; never blank.
        text: String,
        /// Opaque data of the provider that is sent back with the text.
        provider: Map<String, Value>,
    },
    /// Reasoning of the same model. Reasoning of another model is converted to text or left out.
    Reasoning {
        text: String,
        /// Signatures and other opaque data of the provider, unchanged.
        provider: Map<String, Value>,
    },
    Call {
        /// The id that links the call to its result: ours, unique within the request.
        id: Arc<str>,
        /// The provider's own id, if it sent one and the provider is still the same.
        provider_id: Option<String>,
        name: String,
        /// The arguments; always an object.
        arguments: Arc<Value>,
        /// Opaque data of the provider that is sent back with the call.
        provider: Map<String, Value>,
    },
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// The id of the call, as in [`ModelOutput::Call`].
    pub id: Arc<str>,
    /// The provider's own id of the call, as in [`ModelOutput::Call`].
    pub provider_id: Option<String>,
    /// The name of the tool.
    pub name: String,
    /// The output, or the error.
    pub text: Arc<str>,
    /// True if the call failed.
    pub failed: bool,
    /// Images and other files in the result.
    pub attachments: Vec<Attachment>,
}

impl ModelMessage {
    /// Returns whether the messages have equal content. Shared texts are compared by pointer first.
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Results(results), Self::Results(others)) => {
                results.len() == others.len()
                    && results
                        .iter()
                        .zip(others)
                        .all(|(one, other)| one.same(other))
            }
            (Self::User(inputs), Self::User(others)) => {
                inputs.len() == others.len()
                    && inputs
                        .iter()
                        .zip(others)
                        .all(|(one, other)| one.same(other))
            }
            _ => self == other,
        }
    }

    /// Returns the approximate size in bytes. Arguments of calls and attachments of results are not
    /// measured.
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
        let Self {
            id,
            provider_id,
            name,
            text,
            failed,
            attachments,
        } = self;
        (Arc::ptr_eq(text, &other.text) || *text == other.text)
            && (id, provider_id, name, failed, attachments)
                == (
                    &other.id,
                    &other.provider_id,
                    &other.name,
                    &other.failed,
                    &other.attachments,
                )
    }
}

impl Attachment {
    /// Returns the attachment as a `data:` URL, for serialization.
    pub fn data_url(&self) -> DataUrl<'_> {
        DataUrl(self)
    }
}

/// An attachment that serializes as a `data:` URL without a copy of its data.
#[derive(Debug, Clone, Copy)]
pub struct DataUrl<'a>(&'a Attachment);

impl serde::Serialize for DataUrl<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("data:{};base64,{}", self.0.mime, self.0.data))
    }
}

/// A web page found by a search; unknown fields are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundPage {
    pub title: String,
    pub url: String,
    /// The date of the page as the provider wrote it.
    pub date: String,
    /// A piece of its text.
    pub extract: String,
}
