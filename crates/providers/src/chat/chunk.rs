//! The JSON of the chunks of an answer ([`ChatChunk`]). Every field is optional, because some
//! servers omit it.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::think::ThinkPiece;

#[derive(Deserialize)]
pub(super) struct ChatChunk {
    /// `chat.completion.chunk`, `chat.completion` if the server does not stream, or `error`.
    #[serde(default)]
    pub(super) object: Option<String>,
    #[serde(default)]
    pub(super) choices: Option<Vec<ChunkChoice>>,
    #[serde(default)]
    pub(super) usage: Option<Value>,
    /// Groq's own fields, with `usage`.
    #[serde(default)]
    pub(super) x_groq: Option<Value>,
    #[serde(default)]
    pub(super) error: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct ChunkChoice {
    #[serde(default)]
    pub(super) index: Option<u64>,
    #[serde(default)]
    pub(super) delta: Option<ChunkMessage>,
    /// The whole message, if the server does not stream.
    #[serde(default)]
    pub(super) message: Option<ChunkMessage>,
    #[serde(default)]
    pub(super) finish_reason: Option<String>,
    #[serde(default)]
    pub(super) usage: Option<Value>,
    #[serde(default)]
    pub(super) error: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct ChunkMessage {
    #[serde(default)]
    pub(super) content: Option<ChunkContent>,
    #[serde(default)]
    pub(super) reasoning_content: Option<String>,
    #[serde(default)]
    pub(super) reasoning: Option<String>,
    #[serde(default)]
    pub(super) reasoning_details: Option<Vec<Value>>,
    #[serde(default)]
    pub(super) refusal: Option<String>,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<ToolCallDelta>>,
    #[serde(default)]
    pub(super) function_call: Option<FunctionDelta>,
}

#[derive(Deserialize, Default)]
pub(super) struct ToolCallDelta {
    #[serde(default)]
    pub(super) index: Option<usize>,
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default)]
    pub(super) function: Option<FunctionDelta>,
    #[serde(default)]
    pub(super) extra_content: Option<Map<String, Value>>,
}

#[derive(Deserialize, Default)]
pub(super) struct FunctionDelta {
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) arguments: Option<Arguments>,
}

/// A fragment of JSON text; some servers send the object itself.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Arguments {
    Text(String),
    Object(Value),
}

impl Arguments {
    /// Returns the arguments as JSON text.
    pub(super) fn into_json(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Object(Value::Null) => String::new(),
            Self::Object(value) => value.to_string(),
        }
    }
}

/// A text, or a list of parts as sent by Mistral's reasoning models.
pub(super) struct ChunkContent(pub(super) Vec<ThinkPiece>);

impl<'de> Deserialize<'de> for ChunkContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pieces;
        impl<'de> Visitor<'de> for Pieces {
            type Value = ChunkContent;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of parts")
            }
            fn visit_str<E>(self, text: &str) -> Result<ChunkContent, E> {
                Ok(ChunkContent(vec![ThinkPiece::Text(text.to_owned())]))
            }
            fn visit_string<E>(self, text: String) -> Result<ChunkContent, E> {
                Ok(ChunkContent(vec![ThinkPiece::Text(text)]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ChunkContent, A::Error> {
                let mut pieces = Vec::new();
                while let Some(part) = list.next_element::<Value>()? {
                    pieces.extend(read_part(&part));
                }
                Ok(ChunkContent(pieces))
            }
        }
        deserializer.deserialize_any(Pieces)
    }
}

/// Reads a part of a list: `{"thinking": …}` or `{"text": …}`; `None` for anything else.
fn read_part(part: &Value) -> Option<ThinkPiece> {
    let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
    match part.get("thinking") {
        Some(Value::String(text)) => Some(ThinkPiece::Reasoning(text.clone())),
        Some(Value::Array(parts)) => Some(ThinkPiece::Reasoning(
            parts.iter().filter_map(text).collect(),
        )),
        _ => text(part).map(ThinkPiece::Text),
    }
}
