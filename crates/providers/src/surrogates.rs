//! Joins characters whose UTF-16 surrogates arrive in different events of an answer
//! ([`SurrogateJoiner`]): servers cut texts between the two surrogates of an emoji.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::sse::Flow;
use super::wire_format::Decoder;
use super::{Delta, Error, FoundPage};
use base::text::surrogates;

/// A decoder that joins the halves of characters in the deltas of another decoder. If a delta ends
/// with the first half of a character, that half is held back until the next delta of its block, or
/// the end of the answer.
pub(crate) struct SurrogateJoiner {
    decoder: Box<dyn Decoder>,
    /// True once an event had an unpaired surrogate. Until then, deltas are passed on as they are.
    has_halves: bool,
    /// The first halves at the end of the blocks, by the index of the block.
    pending: BTreeMap<usize, PendingHalf>,
}

/// A first half that is held back.
struct PendingHalf {
    /// The placeholder of the half, which alone is no valid character.
    half: char,
    /// The constructor of the deltas of its block.
    delta: fn(usize, String) -> Delta,
}

impl SurrogateJoiner {
    pub(crate) fn new(decoder: Box<dyn Decoder>) -> Self {
        Self {
            decoder,
            has_halves: false,
            pending: BTreeMap::new(),
        }
    }

    /// Joins the halves in a delta, and passes it on.
    fn join(&mut self, mut delta: Delta, out: &mut Vec<Delta>) {
        let constructor = constructor(&delta);
        match &mut delta {
            Delta::Text { index, text }
            | Delta::Reasoning { index, text }
            | Delta::Arguments { index, json: text } => {
                if let Some(pending) = self.pending.remove(index) {
                    text.insert(0, pending.half);
                }
                let half = surrogates::split_first_half(text);
                *text = surrogates::joined(text);
                if let Some((half, delta)) = half.zip(constructor) {
                    self.pending.insert(*index, PendingHalf { half, delta });
                    if text.is_empty() {
                        return;
                    }
                }
            }
            Delta::Call { name, .. } => *name = surrogates::joined(name),
            Delta::ProviderData { data, .. } => data.values_mut().for_each(join_value),
            Delta::FoundPages(pages) => pages.iter_mut().for_each(join_page),
            Delta::Usage(_) => {}
            Delta::Finish(_) => self.flush(out),
        }
        out.push(delta);
    }

    /// Passes on the halves without a counterpart, as U+FFFD.
    fn flush(&mut self, out: &mut Vec<Delta>) {
        for (index, pending) in std::mem::take(&mut self.pending) {
            let text = char::REPLACEMENT_CHARACTER.to_string();
            out.push((pending.delta)(index, text));
        }
    }
}

impl Decoder for SurrogateJoiner {
    fn decode(&mut self, event: &str, data: &str, out: &mut Vec<Delta>) -> Result<Flow, Error> {
        let held = surrogates::with_placeholders(data);
        self.has_halves |= matches!(held, Cow::Owned(_));
        if !self.has_halves {
            return self.decoder.decode(event, data, out);
        }
        let mut decoded = Vec::new();
        let flow = self.decoder.decode(event, &held, &mut decoded);
        for delta in decoded {
            self.join(delta, out);
        }
        if flow.is_ok() {
            return flow;
        }
        self.flush(out);
        // The error may quote the event, which must not show placeholders.
        let quoted = self
            .decoder
            .decode(event, &surrogates::replaced(data), &mut Vec::new());
        quoted.and(flow)
    }

    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), Error> {
        let mut decoded = Vec::new();
        let end = self.decoder.end(&mut decoded);
        for delta in decoded {
            if self.has_halves {
                self.join(delta, out);
            } else {
                out.push(delta);
            }
        }
        self.flush(out);
        end
    }
}

/// Returns the constructor of deltas of the same kind, if they have text.
fn constructor(delta: &Delta) -> Option<fn(usize, String) -> Delta> {
    match delta {
        Delta::Text { .. } => Some(|index, text| Delta::Text { index, text }),
        Delta::Reasoning { .. } => Some(|index, text| Delta::Reasoning { index, text }),
        Delta::Arguments { .. } => Some(|index, json| Delta::Arguments { index, json }),
        Delta::Call { .. }
        | Delta::ProviderData { .. }
        | Delta::FoundPages(_)
        | Delta::Usage(_)
        | Delta::Finish(_) => None,
    }
}

fn join_page(page: &mut FoundPage) {
    for text in [
        &mut page.title,
        &mut page.url,
        &mut page.date,
        &mut page.extract,
    ] {
        *text = surrogates::joined(text);
    }
}

fn join_value(value: &mut Value) {
    match value {
        Value::String(text) => *text = surrogates::joined(text),
        Value::Array(items) => items.iter_mut().for_each(join_value),
        Value::Object(fields) => fields.values_mut().for_each(join_value),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
