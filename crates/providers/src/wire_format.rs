//! The interface of wire formats: [`WireFormat`] encodes requests as an [`HttpCall`], its
//! [`Decoder`] decodes the events of an answer. Both are pure; `http.rs` transfers the bytes. Also
//! contains the functions that the wire formats share.

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

/// An SDK package of OpenCode, which names a wire format in settings and in the catalogue.
#[derive(Debug, Clone, Copy)]
pub struct SdkPackage {
    /// The name at npm.
    pub name: &'static str,
    /// The usual address of the API.
    pub address: &'static str,
    /// The environment variable that replaces the address; empty if there is none.
    pub variable: &'static str,
}

/// A wire format: the API that a provider speaks.
pub trait WireFormat: Send + Sync {
    /// Returns the name of the format in recordings.
    fn name(&self) -> &'static str;

    /// Returns the SDK package of the provider that has defined the format; `None` if several
    /// packages share it ([`super::platform`]).
    fn package(&self) -> Option<SdkPackage> {
        None
    }

    /// Returns the path of the format's method, which users may have copied with the address of the
    /// API; `None` if it depends on the model or is that of Chat Completions.
    fn method(&self) -> Option<&'static str> {
        None
    }

    /// Encodes a request as an HTTP call. The same request gives the same bytes.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if the format cannot express the request, [`Error::NoKey`] if a
    /// required key is missing.
    fn encode(
        &self,
        request: &Request,
        target: &RequestTarget,
        request_options: &RequestOptions,
    ) -> Result<HttpCall, Error>;

    /// Creates the decoder of one answer.
    fn decoder(&self, target: &RequestTarget) -> Box<dyn Decoder>;

    /// Returns the efforts that are assumed for a reasoning model if they are unknown, weakest
    /// first.
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

/// Functions that encode the parts of an answer as server-sent events, and find the ids in requests.
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
    /// True if the stream ends with `[DONE]`.
    pub done: bool,
    /// Returns the sorted ids of a request's calls, and those that its results name.
    pub call_ids: fn(&Value) -> [Vec<&str>; 2],
}

/// The decoder of one answer, with its state between events.
pub trait Decoder: Send {
    /// Decodes one event (its name and its data), and appends the deltas to `out`. Returns
    /// [`Flow::Done`] after the end of the answer.
    ///
    /// # Errors
    /// The error that the event reports, or [`Error::InvalidAnswer`].
    fn decode(&mut self, event: &str, data: &str, out: &mut Vec<Delta>) -> Result<Flow, Error>;

    /// Handles the end of the connection, regular or not, and appends the last deltas to `out`.
    ///
    /// # Errors
    /// [`Error::InvalidAnswer`] if the answer is not complete.
    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), Error>;
}

/// An HTTP POST, ready to be sent.
#[derive(Clone, PartialEq)]
pub struct HttpCall {
    pub url: String,
    /// Headers (name, value) in the order in which they were set. The last one of a name takes
    /// precedence.
    pub headers: Vec<(String, String)>,
    /// The JSON body.
    pub body: Bytes,
}

/// Merges `over` over `under`: objects key by key; any other value is replaced.
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

/// The ids of calls as they are sent to the provider, by our ids. An id is the provider's own one if
/// it is known and unique, otherwise ours, converted to the characters that the provider accepts.
pub struct CallIds<'a>(HashMap<&'a str, Cow<'a, str>>);

impl<'a> CallIds<'a> {
    /// Collects the ids of all calls of a request. `convert` replaces the characters of an id that
    /// the provider does not accept.
    pub fn new(request: &'a Request, convert: impl Fn(&'a str) -> Cow<'a, str>) -> Self {
        let mut ids: HashMap<&str, Cow<'_, str>> = HashMap::new();
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
                    .map(&convert);
                let sent = wanted
                    .filter(|sent| !used.contains(sent))
                    .unwrap_or_else(|| convert(id));
                used.insert(sent.clone());
                ids.insert(id, sent);
            }
        }
        Self(ids)
    }

    /// Returns the id to send for a call with our id; our id itself if the call is unknown.
    pub fn get<'b>(&'b self, id: &'b str) -> &'b str {
        self.0.get(id).map_or(id, |name| name)
    }
}

/// True if the conversation contains calls.
pub fn has_calls(request: &Request) -> bool {
    request.messages.iter().any(|message| match message {
        ModelMessage::Assistant(outputs) => outputs
            .iter()
            .any(|output| matches!(output, ModelOutput::Call { .. })),
        ModelMessage::Results(_) => true,
        ModelMessage::User(_) => false,
    })
}

/// Returns the attachment if the model accepts files of its type.
///
/// # Errors
/// The text for the model that replaces the attachment.
pub fn check_attachment<'a>(
    attachment: &'a Attachment,
    model: &Model,
) -> Result<&'a Attachment, String> {
    let (kind, is_accepted) = match attachment.mime.as_str() {
        "application/pdf" => ("PDF", model.pdf),
        mime if mime.starts_with("image/") => ("image", model.images.is_supported()),
        mime if mime.starts_with("audio/") => ("audio", model.audio),
        mime => (mime, false),
    };
    let name = attachment.name.as_deref().unwrap_or("attachment");
    if attachment.data.is_empty() {
        return Err(prompts::wire::EMPTY.replace("{name}", name));
    }
    if !is_accepted {
        let text = prompts::wire::UNREADABLE
            .replace("{name}", name)
            .replace("{kind}", kind);
        return Err(text);
    }
    Ok(attachment)
}

/// Returns options with the provider's names instead of OpenCode's, which are in camel case. `names`
/// has pairs of OpenCode's name and the provider's name.
pub fn rename_options(options: &Map<String, Value>, names: &[(&str, &str)]) -> Map<String, Value> {
    let name = |name: &str| {
        names
            .iter()
            .find(|(opencode, _)| *opencode == name)
            .map_or(name, |(_, provider)| provider)
            .to_owned()
    };
    options
        .iter()
        .map(|(key, value)| (name(key), value.clone()))
        .collect()
}

/// Reads a count of tokens, which may be a fraction, a string or negative: an invalid count must
/// never lose an answer. `None` if it is no number, or impossibly high; then the count is estimated.
pub fn parse_token_count(value: &Value) -> Option<u64> {
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

/// Deserializes an optional count of tokens, see [`parse_token_count`].
///
/// # Errors
/// An error if the value is not JSON.
pub fn deserialize_token_count<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<u64>, D::Error> {
    Ok(parse_token_count(&Value::deserialize(from)?))
}

/// Returns the finish reason of an answer that has ended; `None` if it was returned before, which
/// `has_ended` remembers.
///
/// # Errors
/// [`Error::InvalidAnswer`] if there is no finish reason: the answer was cut off.
pub fn finish_once(
    has_ended: &mut bool,
    finish: Option<Finish>,
    server_name: &str,
) -> Result<Option<Finish>, Error> {
    if *has_ended {
        return Ok(None);
    }
    let cut_off = || {
        Error::InvalidAnswer(format!(
            "The answer of {server_name} was cut off before its end."
        ))
    };
    let finish = finish.ok_or_else(cut_off)?;
    *has_ended = true;
    Ok(Some(finish))
}

/// Returns a map with one entry.
pub fn single_entry(name: &str, value: impl Into<Value>) -> Map<String, Value> {
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
            assert_eq!(parse_token_count(&sent), expected, "{sent}");
        }
    }
}
