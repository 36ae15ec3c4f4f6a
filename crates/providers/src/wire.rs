//! The interface of wire formats: encoding requests and decoding events. Both are pure; `http.rs`
//! transfers the bytes. Also the code that the wire formats share.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::request::{Attachment, ModelMessage, ModelOutput};
use super::request_target::{RequestOptions, RequestTarget};
use super::sse::Flow;
use super::{Delta, Error, Model, Request};
use transcript::Finish;

/// An SDK package, its usual address, and the variable that replaces that, if any.
#[derive(Debug, Clone, Copy)]
pub struct Package {
    pub name: &'static str,
    pub address: &'static str,
    pub variable: &'static str,
}

/// Encodes requests and decodes answers of one API.
pub trait WireFormat: Send + Sync {
    /// Returns the name of the format in recordings.
    fn name(&self) -> &'static str;

    /// Returns the SDK package of the provider that the format comes from.
    fn package(&self) -> Option<Package> {
        None
    }

    /// Returns the end of the address of its method, which users may have copied with the address
    /// of the API.
    fn method(&self) -> Option<&'static str> {
        None
    }

    /// Encodes a request as an HTTP call. The same request gives the same bytes.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if the format cannot express the request, [`Error::Keyless`] if a
    /// required key is missing.
    fn encode(
        &self,
        request: &Request,
        target: &RequestTarget,
        request_options: &RequestOptions,
    ) -> Result<HttpCall, Error>;

    fn decoder(&self, target: &RequestTarget) -> Box<dyn Decoder>;

    /// Returns the efforts assumed for a reasoning model if they are unknown, weakest first.
    fn efforts(&self, model: &Model) -> Vec<String>;

    /// Returns the options that request an effort.
    fn effort(&self, model: &Model, target: &RequestTarget, effort: &str) -> Map<String, Value>;

    /// Returns the options of a request for which no effort is chosen.
    fn default_effort(&self, _model: &Model) -> Map<String, Value> {
        Map::new()
    }

    /// Returns the options with which a model thinks as little as it can; `None` if those are the
    /// options of its weakest effort.
    fn least_effort(&self, _model: &Model) -> Option<Map<String, Value>> {
        None
    }

    /// Returns samples of the format, for the tests that every format passes (`bad_input.rs`,
    /// `conversations.rs`).
    #[cfg(test)]
    fn samples(&self) -> WireSamples;
}

/// The parts of an answer in one wire format as server-sent events, and the ids in its requests.
#[cfg(test)]
pub struct WireSamples {
    /// Encodes text in block 0.
    pub text: fn(&str) -> Vec<Value>,
    /// Encodes a call from block, id, tool and arguments (as text).
    pub call: fn(usize, &str, &str, &str) -> Vec<Value>,
    /// Encodes token counts, all with the same value, which need not be a number.
    pub counts: fn(&Value) -> Value,
    /// Encodes the end; the flag is set if there were calls.
    pub end: fn(bool) -> Vec<Value>,
    /// Whether the stream ends with `[DONE]`.
    pub done: bool,
    /// Returns the sorted ids of a request's calls, and those that its results name.
    pub call_ids: fn(&Value) -> [Vec<&str>; 2],
}

/// Decodes the events of one answer, and holds the state between them.
pub trait Decoder: Send {
    /// Decodes one event.
    ///
    /// # Errors
    /// The error that the event reports, or [`Error::InvalidResult`].
    fn decode(&mut self, event: &str, data: &str, out: &mut Vec<Delta>) -> Result<Flow, Error>;

    /// Handles the end of the connection, regular or not.
    ///
    /// # Errors
    /// [`Error::InvalidResult`] if the answer is not complete.
    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), Error>;
}

/// An HTTP POST, ready to be sent.
#[derive(Clone, PartialEq)]
pub struct HttpCall {
    pub url: String,
    /// Headers in the order they were set; the last one of a name takes precedence.
    pub headers: Vec<(String, String)>,
    /// The JSON body.
    pub body: Bytes,
}

/// Merges one value over another: objects key by key; any other value is replaced.
pub fn merge(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, value) in over {
                merge(under.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

/// The ids of a conversation's calls as sent to the provider: the provider's own id if it is known
/// and unique, otherwise ours, converted to the characters that the provider accepts.
pub struct CallNames<'a>(HashMap<&'a str, Cow<'a, str>>);

impl<'a> CallNames<'a> {
    /// Collects the ids of all calls of a request; `tidy` converts an id.
    pub fn new(request: &'a Request, tidy: impl Fn(&'a str) -> Cow<'a, str>) -> Self {
        let mut names: HashMap<&str, Cow<'_, str>> = HashMap::new();
        let mut used = HashSet::new();
        for message in &request.messages {
            let ModelMessage::Assistant(outputs) = message else {
                continue;
            };
            for output in outputs {
                let ModelOutput::Call {
                    id, provider_id, ..
                } = output
                else {
                    continue;
                };
                let wanted = provider_id
                    .as_deref()
                    .filter(|id| !id.is_empty())
                    .map(&tidy);
                let name = wanted
                    .filter(|name| !used.contains(name))
                    .unwrap_or_else(|| tidy(id));
                used.insert(name.clone());
                names.insert(id, name);
            }
        }
        Self(names)
    }

    /// Returns the id to send for our id of a call.
    pub fn get<'b>(&'b self, id: &'b str) -> &'b str {
        self.0.get(id).map_or(id, |name| name)
    }
}

/// Returns whether the conversation contains calls.
pub fn has_calls(request: &Request) -> bool {
    request.messages.iter().any(|message| match message {
        ModelMessage::Assistant(outputs) => outputs
            .iter()
            .any(|output| matches!(output, ModelOutput::Call { .. })),
        ModelMessage::Results(_) => true,
        ModelMessage::User(_) => false,
    })
}

/// Returns the attachment if the model accepts it.
///
/// # Errors
/// The text for the model that replaces the attachment.
pub fn readable<'a>(attachment: &'a Attachment, model: &Model) -> Result<&'a Attachment, String> {
    let (kind, can) = match attachment.mime.as_str() {
        "application/pdf" => ("PDF", model.pdf),
        mime if mime.starts_with("image/") => ("image", model.images.get()),
        mime if mime.starts_with("audio/") => ("audio", model.audio),
        mime => (mime, false),
    };
    let name = attachment.name.as_deref().unwrap_or("attachment");
    if attachment.data.is_empty() {
        return Err(prompts::wire::EMPTY.replace("{name}", name));
    }
    if !can {
        let text = prompts::wire::UNREADABLE
            .replace("{name}", name)
            .replace("{kind}", kind);
        return Err(text);
    }
    Ok(attachment)
}

/// Renames options to the provider's names. OpenCode's configuration has them in camel case.
pub fn renamed(options: &Map<String, Value>, names: &[(&str, &str)]) -> Map<String, Value> {
    let name = |name: &str| {
        names
            .iter()
            .find(|(theirs, _)| *theirs == name)
            .map_or(name, |(_, ours)| ours)
            .to_owned()
    };
    options
        .iter()
        .map(|(key, value)| (name(key), value.clone()))
        .collect()
}

/// Reads a count of tokens. Some servers send fractions, strings or negative numbers, and an
/// invalid count must never lose an answer. An impossibly high count is `None`, so that it is
/// estimated.
pub fn tokens(value: &Value) -> Option<u64> {
    /// Far beyond any context window, and low enough to sum the counts of a conversation.
    const MAX_COUNT: u64 = 1 << 40;
    let whole = value
        .as_u64()
        .or_else(|| value.as_str()?.trim().parse().ok());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast keeps to the limits of the type"
    )]
    let count = whole.or_else(|| value.as_f64().map(|count| count as u64));
    count.filter(|count| *count <= MAX_COUNT)
}

/// Deserializes an optional count of tokens, see [`tokens`].
///
/// # Errors
/// An error if the value is not JSON.
pub fn counted<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(tokens(&Value::deserialize(from)?))
}

/// Returns the finish reason on the first call after the end of an answer, then `None`.
///
/// # Errors
/// [`Error::InvalidResult`] if there is no finish reason.
pub fn finished(
    over: &mut bool,
    finish: Option<Finish>,
    who: &str,
) -> Result<Option<Finish>, Error> {
    if *over {
        return Ok(None);
    }
    let cut_off =
        || Error::InvalidResult(format!("The answer of {who} was cut off before its end."));
    let finish = finish.ok_or_else(cut_off)?;
    *over = true;
    Ok(Some(finish))
}

pub fn entry(name: &str, value: impl Into<Value>) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value.into())])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_accepts_any_plausible_count() {
        let cases = [
            (json!(7), Some(7)),
            (json!(7.9), Some(7)),
            (json!("7"), Some(7)),
            (json!(-7), Some(0)),
            (json!(1_u64 << 40), Some(1 << 40)),
            (json!(u64::MAX), None),
            (json!(1e300), None),
            (json!(null), None),
            (json!("many"), None),
            (json!({}), None),
        ];
        for (sent, expected) in cases {
            assert_eq!(tokens(&sent), expected, "{sent}");
        }
    }
}
