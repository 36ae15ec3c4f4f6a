//! A chunk as it stands on the wire. Everything is optional: servers leave out what they like.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::think::Piece;

#[derive(Deserialize)]
pub(super) struct Chunk {
    #[serde(default)]
    pub(super) object: Option<String>,
    #[serde(default)]
    pub(super) choices: Option<Vec<Choice>>,
    #[serde(default)]
    pub(super) usage: Option<Value>,
    #[serde(default)]
    pub(super) x_groq: Option<Value>,
    #[serde(default)]
    pub(super) error: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct Choice {
    #[serde(default)]
    pub(super) index: Option<u64>,
    #[serde(default)]
    pub(super) delta: Option<Said>,
    /// Where the server does not stream.
    #[serde(default)]
    pub(super) message: Option<Said>,
    #[serde(default)]
    pub(super) finish_reason: Option<String>,
    #[serde(default)]
    pub(super) usage: Option<Value>,
    #[serde(default)]
    pub(super) error: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct Said {
    #[serde(default)]
    pub(super) content: Option<Content>,
    #[serde(default)]
    pub(super) reasoning_content: Option<String>,
    #[serde(default)]
    pub(super) reasoning: Option<String>,
    #[serde(default)]
    pub(super) reasoning_details: Option<Vec<Value>>,
    #[serde(default)]
    pub(super) refusal: Option<String>,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<CallPiece>>,
    #[serde(default)]
    pub(super) function_call: Option<Function>,
}

#[derive(Deserialize, Default)]
pub(super) struct CallPiece {
    #[serde(default)]
    pub(super) index: Option<usize>,
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default)]
    pub(super) function: Option<Function>,
    #[serde(default)]
    pub(super) extra_content: Option<Map<String, Value>>,
}

#[derive(Deserialize, Default)]
pub(super) struct Function {
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) arguments: Option<Arguments>,
}

/// A piece of JSON text; some servers send the object itself.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Arguments {
    Text(String),
    Object(Value),
}

impl Arguments {
    pub(super) fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Object(Value::Null) => String::new(),
            Self::Object(value) => value.to_string(),
        }
    }
}

/// A text, or parts as Mistral's reasoning models send them.
pub(super) struct Content(pub(super) Vec<Piece>);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pieces;
        impl<'de> Visitor<'de> for Pieces {
            type Value = Content;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of parts")
            }
            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content(vec![Piece::Text(text.to_owned())]))
            }
            fn visit_string<E>(self, text: String) -> Result<Content, E> {
                Ok(Content(vec![Piece::Text(text)]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content, A::Error> {
                let mut pieces = Vec::new();
                while let Some(part) = list.next_element::<Value>()? {
                    pieces.extend(piece(&part));
                }
                Ok(Content(pieces))
            }
        }
        deserializer.deserialize_any(Pieces)
    }
}

fn piece(part: &Value) -> Option<Piece> {
    let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
    match part.get("thinking") {
        Some(Value::String(words)) => Some(Piece::Reasoning(words.clone())),
        Some(Value::Array(parts)) => Some(Piece::Reasoning(parts.iter().filter_map(text).collect())),
        _ => text(part).map(Piece::Text),
    }
}
