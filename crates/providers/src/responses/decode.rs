//! The events of a Responses answer as deltas.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::sse::Flow;
use crate::wire::{Decoder, entry, finished, tokens};
use crate::{Delta, Error, FoundPage, classify};
use transcript::{Finish, Usage};

/// One answer, as far as it came.
pub(super) struct Items {
    who: String,
    blocks: Vec<Block>,
    refused: bool,
    called: bool,
    finish: Option<Finish>,
    over: bool,
}

/// A block and where it comes from: an item, and within a message its words or its refusal.
struct Block {
    output: u64,
    kind: Kind,
    /// Whether anything came for it before it was done.
    came: bool,
    /// The last part of a summary: parts are paragraphs.
    part: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Refusal,
    Reasoning,
    Call,
}

impl Items {
    pub(super) fn new(who: &str) -> Self {
        Self { who: who.to_owned(), blocks: Vec::new(), refused: false, called: false, finish: None, over: false }
    }

    fn block(&mut self, output: u64, kind: Kind, out: &mut Vec<Delta>) -> usize {
        if let Some(index) = self.blocks.iter().rposition(|block| block.output == output && block.kind == kind) {
            return index;
        }
        let index = self.blocks.len();
        self.blocks.push(Block { output, kind, came: false, part: None });
        match kind {
            // The first piece says what the block is: words.
            Kind::Refusal => out.extend([
                Delta::Text { index, text: String::new() },
                Delta::Provider { index, data: entry("refusal", true) },
            ]),
            Kind::Reasoning => out.push(Delta::Reasoning { index, text: String::new() }),
            Kind::Text | Kind::Call => {}
        }
        index
    }

    fn words(&mut self, event: &StreamEvent<'_>, kind: Kind, text: String, out: &mut Vec<Delta>) {
        let index = self.block(event.output_index.unwrap_or(0), kind, out);
        let block = &mut self.blocks[index];
        block.came |= !text.is_empty();
        match kind {
            Kind::Text => out.push(Delta::Text { index, text }),
            Kind::Refusal => {
                self.refused = true;
                out.push(Delta::Text { index, text });
            }
            Kind::Reasoning => {
                let part = event.summary_index.or(event.content_index);
                let again = block.part.is_some() && block.part != part;
                block.part = part;
                out.push(Delta::Reasoning { index, text: if again { format!("\n\n{text}") } else { text } });
            }
            Kind::Call => out.push(Delta::Arguments { index, json: text }),
        }
    }

    fn added(&mut self, output: u64, item: &Value, out: &mut Vec<Delta>) {
        if item.get("type").and_then(Value::as_str) != Some("function_call") {
            return;
        }
        let known = self.blocks.len();
        let index = self.block(output, Kind::Call, out);
        if index == known {
            self.called = true;
            let text = |name: &str| item.get(name).and_then(Value::as_str).filter(|s| !s.is_empty()).map(str::to_owned);
            let id = text("call_id").or_else(|| text("id"));
            out.push(Delta::Call { index, id, name: text("name").unwrap_or_default() });
        }
    }

    /// An item is whole: what no delta brought is taken from it.
    fn done(&mut self, output: u64, item: Value, out: &mut Vec<Delta>) {
        match item.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message" => {
                for part in item.get("content").and_then(Value::as_array).into_iter().flatten() {
                    let (kind, text) = match part.get("type").and_then(Value::as_str) {
                        Some("refusal") => (Kind::Refusal, part.get("refusal")),
                        _ => (Kind::Text, part.get("text")),
                    };
                    let text = text.and_then(Value::as_str).unwrap_or_default();
                    self.refused |= kind == Kind::Refusal;
                    if !text.is_empty() {
                        self.late(output, kind, text.to_owned(), out);
                    }
                    let cited: Vec<FoundPage> = part
                        .get("annotations")
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten()
                        .filter_map(page)
                        .collect();
                    if !cited.is_empty() {
                        out.push(Delta::Found(cited));
                    }
                }
                if let Some(phase) = item.get("phase").filter(|phase| !phase.is_null()) {
                    let index = self.block(output, Kind::Text, out);
                    out.push(Delta::Provider { index, data: entry("phase", phase.clone()) });
                }
            }
            "function_call" => {
                self.added(output, &item, out);
                if let Some(json) = item.get("arguments").and_then(Value::as_str).filter(|json| !json.is_empty()) {
                    self.late(output, Kind::Call, json.to_owned(), out);
                }
            }
            "reasoning" => {
                let summary = item.get("summary").and_then(Value::as_array).into_iter().flatten();
                let words: Vec<&str> = summary.filter_map(|part| part.get("text")?.as_str()).collect();
                self.late(output, Kind::Reasoning, words.join("\n\n"), out);
                let index = self.block(output, Kind::Reasoning, out);
                out.push(Delta::Provider { index, data: entry("item", kept(&item)) });
            }
            "" => {}
            // What the provider runs itself, and what may be invented later: kept whole.
            _ => {
                let index = self.block(output, Kind::Reasoning, out);
                out.push(Delta::Provider { index, data: entry("item", item) });
            }
        }
    }

    fn late(&mut self, output: u64, kind: Kind, text: String, out: &mut Vec<Delta>) {
        let index = self.block(output, kind, out);
        if self.blocks[index].came || text.is_empty() {
            return;
        }
        self.blocks[index].came = true;
        out.push(match kind {
            Kind::Text | Kind::Refusal => Delta::Text { index, text },
            Kind::Reasoning => Delta::Reasoning { index, text },
            Kind::Call => Delta::Arguments { index, json: text },
        });
    }

    fn complete(&mut self, mut response: Value, out: &mut Vec<Delta>) -> Result<(), Error> {
        if let Some(error) = response.get("error").filter(|error| !error.is_null()) {
            return Err(classify::event(&self.who, error));
        }
        // A server that did not stream has everything here.
        if self.blocks.is_empty()
            && let Some(Value::Array(items)) = response.get_mut("output").map(Value::take)
        {
            for (output, item) in items.into_iter().enumerate() {
                self.done(output as u64, item, out);
            }
        }
        if let Some(usage) = response.get("usage").and_then(counted) {
            out.push(Delta::Usage(usage));
        }
        let reason = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
        let status = response.get("status").and_then(Value::as_str).unwrap_or("completed");
        self.finish = Some(match (status, reason) {
            (_, Some("max_output_tokens")) => Finish::Length,
            (_, Some("content_filter")) => Finish::Refusal,
            ("failed" | "cancelled", _) => {
                let text = format!("{} broke off: the response is {status}.", self.who);
                return Err(Error::Overloaded { message: text, after: None });
            }
            ("incomplete", _) => Finish::Other,
            _ if self.refused => Finish::Refusal,
            _ if self.called => Finish::ToolCalls,
            _ => Finish::Stop,
        });
        self.end(out)
    }
}

/// A page that is cited. Some number them in place of a title.
fn page(note: &Value) -> Option<FoundPage> {
    let text = |name: &str| note.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let cited = note.get("type").and_then(Value::as_str) == Some("url_citation");
    let title = Some(text("title")).filter(|title| title.parse::<u32>().is_err()).unwrap_or_default();
    cited.then(|| FoundPage { title, url: text("url"), ..FoundPage::default() })
}

/// What of a reasoning item goes back: without what only says how far it is.
fn kept(item: &Value) -> Map<String, Value> {
    let kept = item
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, value)| *name != "status" && !(value.is_null() && *name != "encrypted_content"));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn counted(usage: &Value) -> Option<Usage> {
    let number = |path: &str| usage.pointer(path).and_then(tokens);
    let (input, output) = (number("/input_tokens")?, number("/output_tokens").unwrap_or(0));
    let cache_read = number("/input_tokens_details/cached_tokens").unwrap_or(0);
    let cache_write = number("/input_tokens_details/cache_write_tokens").unwrap_or(0);
    let reasoning = number("/output_tokens_details/reasoning_tokens").unwrap_or(0);
    let fresh = input.saturating_sub(cache_read + cache_write);
    Some(Usage { input: fresh, output: output.saturating_sub(reasoning), reasoning, cache_read, cache_write })
}

impl Decoder for Items {
    fn decode(&mut self, _event: &str, data: &str, out: &mut Vec<Delta>) -> Result<Flow, Error> {
        if data.trim() == "[DONE]" {
            return Ok(Flow::More);
        }
        let mut event: StreamEvent<'_> = serde_json::from_str(data).map_err(|e| {
            let shown = classify::excerpt(data.as_bytes());
            Error::Garbled(format!("{} sent something that is not an event of an answer ({e}): {shown}.", self.who))
        })?;
        let output = event.output_index.unwrap_or(0);
        let text = event.delta.take().and_then(|delta| if let Value::String(text) = delta { Some(text) } else { None });
        match (event.kind.as_ref(), text) {
            ("response.output_text.delta", Some(text)) => self.words(&event, Kind::Text, text, out),
            ("response.refusal.delta", Some(text)) => self.words(&event, Kind::Refusal, text, out),
            ("response.reasoning_summary_text.delta" | "response.reasoning_text.delta", Some(text)) => {
                self.words(&event, Kind::Reasoning, text, out);
            }
            ("response.function_call_arguments.delta", Some(text)) => self.words(&event, Kind::Call, text, out),
            ("response.output_item.added", _) => {
                if let Some(item) = &event.item {
                    self.added(output, item, out);
                }
            }
            ("response.output_item.done", _) => {
                if let Some(item) = event.item {
                    self.done(output, item, out);
                }
            }
            ("response.completed" | "response.incomplete" | "response.failed" | "response.cancelled", _) => {
                self.complete(event.response.unwrap_or_default(), out)?;
                return Ok(Flow::Done);
            }
            ("error", _) => {
                let whole: Value = serde_json::from_str(data).unwrap_or_default();
                // `type` says no more than that it is an error.
                let inner = whole.get("error").filter(|error| error.is_object()).cloned();
                return Err(classify::event(&self.who, &inner.unwrap_or(whole)));
            }
            ("", _) if event.object.as_deref() == Some("response") => {
                let whole = serde_json::from_str(data).unwrap_or_default();
                self.complete(whole, out)?;
                return Ok(Flow::Done);
            }
            ("", _) if event.error.is_some() => {
                return Err(classify::event(&self.who, &event.error.unwrap_or_default()));
            }
            _ => {}
        }
        Ok(Flow::More)
    }

    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), Error> {
        let Some(finish) = finished(&mut self.over, self.finish, &self.who)? else { return Ok(()) };
        out.push(Delta::Finish(finish));
        Ok(())
    }
}

#[derive(Deserialize)]
struct StreamEvent<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'a, str>,
    #[serde(default)]
    output_index: Option<u64>,
    #[serde(default)]
    content_index: Option<u64>,
    #[serde(default)]
    summary_index: Option<u64>,
    #[serde(default)]
    delta: Option<Value>,
    #[serde(default)]
    item: Option<Value>,
    #[serde(default)]
    response: Option<Value>,
    #[serde(default)]
    object: Option<String>,
    #[serde(default)]
    error: Option<Value>,
}
