//! A session as JSON, whole, and back. The shape is the store's own with a number in front.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::message::{Message, Part};
use crate::store::{Record, StoredSession};

/// The shape written today. Newer ones are refused.
const FORMAT: u64 = 1;

/// Why a file cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not JSON, or something else in JSON.
    #[error("this is not an exported session: {0}")]
    Shape(String),
    /// A newer adjutant wrote it.
    #[error(
        "this was exported by a newer adjutant (format {0}, this one knows {FORMAT}); update adjutant to import it"
    )]
    Newer(u64),
}

#[derive(Serialize, Deserialize)]
struct Whole {
    #[serde(flatten)]
    message: Message,
    parts: Vec<Part>,
}

/// A session as one JSON document.
pub fn export(stored: &StoredSession) -> String {
    let messages: Vec<Value> = stored
        .messages
        .iter()
        .map(|message| {
            let mut value = serde_json::to_value(message).unwrap_or_default();
            value["parts"] = serde_json::to_value(&message.parts).unwrap_or_default();
            value
        })
        .collect();
    let whole = json!({ "adjutant": FORMAT, "session": stored.record, "messages": messages });
    serde_json::to_string_pretty(&whole).unwrap_or_default()
}

/// Reads what [`export`] wrote.
///
/// # Errors
/// [`Error`].
pub fn import(text: &str) -> Result<StoredSession, Error> {
    #[derive(Deserialize)]
    struct ExportedFile {
        adjutant: u64,
        session: Record,
        messages: Vec<Whole>,
    }
    let shape = |e: serde_json::Error| Error::Shape(e.to_string());
    let value: Value = serde_json::from_str(text).map_err(shape)?;
    match value["adjutant"].as_u64() {
        Some(newer) if newer > FORMAT => return Err(Error::Newer(newer)),
        Some(_) => {}
        None => return Err(Error::Shape("the member \"adjutant\" with its format is missing".into())),
    }
    let file: ExportedFile = serde_json::from_value(value).map_err(shape)?;
    debug_assert!(file.adjutant <= FORMAT);
    let messages = file.messages.into_iter().map(|whole| Message { parts: whole.parts, ..whole.message });
    Ok(StoredSession { record: file.session, messages: messages.collect(), damage: Vec::new() })
}
