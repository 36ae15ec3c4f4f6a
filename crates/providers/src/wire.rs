//! What a provider's file gives: how a request becomes a call, and how events become deltas. Both
//! are pure; `http.rs` moves the bytes. Here too is what the wires have in common.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::request::{Attachment, ModelMessage, ModelOutput};
use super::sse::Flow;
use super::target::{Knobs, Target};
use super::{Delta, Error, Model, Request};
use transcript::Finish;

/// A dialect that models are asked in.
pub trait Wire: Send + Sync {
    /// What it is called in recordings.
    fn name(&self) -> &'static str;

    /// The call that asks this. The same request gives the same bytes.
    ///
    /// # Errors
    /// [`Error::BadRequest`] where the request cannot be said in this dialect, [`Error::Keyless`]
    /// where a key is needed and missing.
    fn encode(&self, request: &Request, target: &Target, knobs: &Knobs) -> Result<HttpCall, Error>;

    fn decoder(&self, target: &Target) -> Box<dyn Decoder>;

    /// The efforts a reasoning model of this dialect can be asked for where nobody said, weakest
    /// first.
    fn efforts(&self, model: &Model) -> Vec<String>;

    /// The options that ask for an effort.
    fn effort(&self, model: &Model, target: &Target, effort: &str) -> Map<String, Value>;
}

/// Reads the events of one answer, and remembers what it must of those before.
pub trait Decoder: Send {
    /// Reads one event.
    ///
    /// # Errors
    /// What the provider reports in it, or [`Error::Garbled`].
    fn decode(&mut self, event: &str, data: &str, out: &mut Vec<Delta>) -> Result<Flow, Error>;

    /// The connection is at its end, or broke.
    ///
    /// # Errors
    /// [`Error::Garbled`] where the answer is not complete.
    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), Error>;
}

/// An HTTP call, ready to be posted.
#[derive(Clone, PartialEq)]
pub struct HttpCall {
    pub url: String,
    /// In the order they were set; the last of a name wins.
    pub headers: Vec<(String, String)>,
    /// JSON.
    pub body: Bytes,
}

/// Lays one value over another: objects key by key, everything else replaced.
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

/// What the calls of a conversation are called on the wire: the provider's own id where it is
/// known and used once, else ours, in the letters the provider takes.
pub struct CallNames<'a>(HashMap<&'a str, Cow<'a, str>>);

impl<'a> CallNames<'a> {
    /// Looks at all calls of a request.
    pub fn new(request: &'a Request, tidy: impl Fn(&'a str) -> Cow<'a, str>) -> Self {
        let mut names: HashMap<&str, Cow<'_, str>> = HashMap::new();
        let mut used = HashSet::new();
        for message in &request.messages {
            let ModelMessage::Assistant(outputs) = message else { continue };
            for output in outputs {
                let ModelOutput::Call { id, provider_id, .. } = output else { continue };
                let wanted = provider_id.as_deref().filter(|id| !id.is_empty()).map(&tidy);
                let name = wanted.filter(|name| !used.contains(name)).unwrap_or_else(|| tidy(id));
                used.insert(name.clone());
                names.insert(id, name);
            }
        }
        Self(names)
    }

    /// The name of a call, by our id.
    pub fn get<'b>(&'b self, id: &'b str) -> &'b str {
        self.0.get(id).map_or(id, |name| name)
    }
}

/// Whether there are calls in the conversation.
pub fn has_calls(request: &Request) -> bool {
    request.messages.iter().any(|message| match message {
        ModelMessage::Assistant(outputs) => outputs.iter().any(|output| matches!(output, ModelOutput::Call { .. })),
        ModelMessage::Results(_) => true,
        ModelMessage::User(_) => false,
    })
}

/// An attachment the model can take, else what it is told in its place.
///
/// # Errors
/// The sentence for the model.
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
        let text = prompts::wire::UNREADABLE.replace("{name}", name).replace("{kind}", kind);
        return Err(text);
    }
    Ok(attachment)
}

/// Options under the provider's own names. OpenCode's configuration has them in camel case.
pub fn renamed(options: &Map<String, Value>, names: &[(&str, &str)]) -> Map<String, Value> {
    let name = |name: &str| names.iter().find(|(theirs, _)| *theirs == name).map_or(name, |(_, ours)| ours).to_owned();
    options.iter().map(|(key, value)| (name(key), value.clone())).collect()
}

/// A count of tokens. Some servers send fractions, texts or less than nothing: what is counted must never be why
/// an answer is lost. More than there can be is no count: what was said is estimated then.
pub fn tokens(value: &Value) -> Option<u64> {
    /// Far beyond any window, and sums of a conversation's counts still fit.
    const MOST: u64 = 1 << 40;
    let whole = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast keeps to the limits of the type"
    )]
    let count = whole.or_else(|| value.as_f64().map(|count| count as u64));
    count.filter(|count| *count <= MOST)
}

/// The same for a field that may not be there.
///
/// # Errors
/// Where it is not JSON.
pub fn counted<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(tokens(&Value::deserialize(from)?))
}

/// How an answer ended, the first time a decoder is told that nothing more comes; then none.
///
/// # Errors
/// [`Error::Garbled`] where it never said.
pub fn finished(over: &mut bool, finish: Option<Finish>, who: &str) -> Result<Option<Finish>, Error> {
    if *over {
        return Ok(None);
    }
    let cut_off = || Error::Garbled(format!("The answer of {who} was cut off before its end."));
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
    fn counts_are_taken_as_they_come() {
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
