//! Decodes the events of a Responses answer.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::sse::Flow;
use crate::wire_format::{Decoder, finish_once, parse_token_count, single_entry};
use crate::{Delta, Error, FoundPage, error_classification};
use transcript::{Finish, Usage};

/// The decoder of one answer.
pub(super) struct ResponsesDecoder {
    /// The provider's display name, for errors.
    server_name: String,
    /// The blocks so far; the position of a block is its index.
    blocks: Vec<Block>,
    is_refused: bool,
    has_calls: bool,
    finish: Option<Finish>,
    /// True once the finish reason has been passed on.
    has_ended: bool,
}

/// A block of the answer. An item of the API is one block; a message may be two: its text and its
/// refusal.
struct Block {
    /// The index of the item.
    output: u64,
    kind: Kind,
    /// True if a delta for the block has arrived.
    has_deltas: bool,
    /// The index of the last part of a summary, whose parts are paragraphs.
    part: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Refusal,
    Reasoning,
    Call,
}

impl ResponsesDecoder {
    pub(super) fn new(server_name: &str) -> Self {
        Self {
            server_name: server_name.to_owned(),
            blocks: Vec::new(),
            is_refused: false,
            has_calls: false,
            finish: None,
            has_ended: false,
        }
    }

    /// Returns the index of the block of an item, which is created if there is none.
    fn block(&mut self, output: u64, kind: Kind, out: &mut Vec<Delta>) -> usize {
        if let Some(index) = self
            .blocks
            .iter()
            .rposition(|block| block.output == output && block.kind == kind)
        {
            return index;
        }
        let index = self.blocks.len();
        self.blocks.push(Block {
            output,
            kind,
            has_deltas: false,
            part: None,
        });
        match kind {
            // The first delta of a block determines its kind: text.
            Kind::Refusal => out.extend([
                Delta::Text {
                    index,
                    text: String::new(),
                },
                Delta::ProviderData {
                    index,
                    data: single_entry("refusal", true),
                },
            ]),
            Kind::Reasoning => out.push(Delta::Reasoning {
                index,
                text: String::new(),
            }),
            Kind::Text | Kind::Call => {}
        }
        index
    }

    fn add_text(
        &mut self,
        event: &StreamEvent<'_>,
        kind: Kind,
        text: String,
        out: &mut Vec<Delta>,
    ) {
        let index = self.block(event.output_index.unwrap_or(0), kind, out);
        let block = &mut self.blocks[index];
        block.has_deltas |= !text.is_empty();
        match kind {
            Kind::Text => out.push(Delta::Text { index, text }),
            Kind::Refusal => {
                self.is_refused = true;
                out.push(Delta::Text { index, text });
            }
            Kind::Reasoning => {
                let part = event.summary_index.or(event.content_index);
                let is_new_part = block.part.is_some() && block.part != part;
                block.part = part;
                out.push(Delta::Reasoning {
                    index,
                    text: if is_new_part {
                        format!("\n\n{text}")
                    } else {
                        text
                    },
                });
            }
            Kind::Call => out.push(Delta::Arguments { index, json: text }),
        }
    }

    /// Handles the start of an item: passes a new call on, because only this event has its name.
    fn add_item(&mut self, output: u64, item: &Value, out: &mut Vec<Delta>) {
        if item.get("type").and_then(Value::as_str) != Some("function_call") {
            return;
        }
        let known = self.blocks.len();
        let index = self.block(output, Kind::Call, out);
        if index == known {
            self.has_calls = true;
            let text = |name: &str| {
                item.get(name)
                    .and_then(Value::as_str)
                    .filter(|s| !s.is_empty())
                    .map(str::to_owned)
            };
            let id = text("call_id").or_else(|| text("id"));
            out.push(Delta::Call {
                index,
                id,
                name: text("name").unwrap_or_default(),
            });
        }
    }

    /// Handles a complete item: passes on the parts that no delta contained, and the data to send
    /// back.
    fn finish_item(&mut self, output: u64, item: Value, out: &mut Vec<Delta>) {
        match item.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message" => {
                for part in item
                    .get("content")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    let (kind, text) = match part.get("type").and_then(Value::as_str) {
                        Some("refusal") => (Kind::Refusal, part.get("refusal")),
                        _ => (Kind::Text, part.get("text")),
                    };
                    let text = text.and_then(Value::as_str).unwrap_or_default();
                    self.is_refused |= kind == Kind::Refusal;
                    if !text.is_empty() {
                        self.add_missing_text(output, kind, text.to_owned(), out);
                    }
                    let cited: Vec<FoundPage> = part
                        .get("annotations")
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten()
                        .filter_map(read_citation)
                        .collect();
                    if !cited.is_empty() {
                        out.push(Delta::FoundPages(cited));
                    }
                }
                let named = ["id", "phase"].map(|name| (name, item.get(name)));
                let data: Map<String, Value> = named
                    .into_iter()
                    .filter_map(|(name, value)| Some((name.to_owned(), value?.clone())))
                    .filter(|(_, value)| value.is_string())
                    .collect();
                // A message without text has no block, and is not sent back.
                let index = [Kind::Refusal, Kind::Text].into_iter().find_map(|kind| {
                    self.blocks
                        .iter()
                        .rposition(|block| block.output == output && block.kind == kind)
                });
                if let Some(index) = index
                    && !data.is_empty()
                {
                    out.push(Delta::ProviderData { index, data });
                }
            }
            "function_call" => {
                self.add_item(output, &item, out);
                if let Some(json) = item
                    .get("arguments")
                    .and_then(Value::as_str)
                    .filter(|json| !json.is_empty())
                {
                    self.add_missing_text(output, Kind::Call, json.to_owned(), out);
                }
                if item.get("call_id").is_some_and(Value::is_string)
                    && let Some(id) = item.get("id").filter(|id| id.is_string())
                {
                    let index = self.block(output, Kind::Call, out);
                    out.push(Delta::ProviderData {
                        index,
                        data: single_entry("id", id.clone()),
                    });
                }
            }
            "reasoning" => {
                let summary = item
                    .get("summary")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten();
                let texts: Vec<&str> = summary
                    .filter_map(|part| part.get("text")?.as_str())
                    .collect();
                self.add_missing_text(output, Kind::Reasoning, texts.join("\n\n"), out);
                let index = self.block(output, Kind::Reasoning, out);
                out.push(Delta::ProviderData {
                    index,
                    data: single_entry("item", without_status(&item)),
                });
            }
            "" => {}
            // Calls that the provider runs itself, and future items: stored whole.
            _ => {
                let index = self.block(output, Kind::Reasoning, out);
                out.push(Delta::ProviderData {
                    index,
                    data: single_entry("item", item),
                });
            }
        }
    }

    /// Passes the text of a block on, unless deltas contained it.
    fn add_missing_text(&mut self, output: u64, kind: Kind, text: String, out: &mut Vec<Delta>) {
        let index = self.block(output, kind, out);
        if self.blocks[index].has_deltas || text.is_empty() {
            return;
        }
        self.blocks[index].has_deltas = true;
        out.push(match kind {
            Kind::Text | Kind::Refusal => Delta::Text { index, text },
            Kind::Reasoning => Delta::Reasoning { index, text },
            Kind::Call => Delta::Arguments { index, json: text },
        });
    }

    /// Handles the end of the answer.
    fn complete(&mut self, mut response: Value, out: &mut Vec<Delta>) -> Result<(), Error> {
        if let Some(error) = response.get("error").filter(|error| !error.is_null()) {
            return Err(error_classification::classify_event(
                &self.server_name,
                error,
            ));
        }
        // Without streaming, the response contains all items.
        if self.blocks.is_empty()
            && let Some(Value::Array(items)) = response.get_mut("output").map(Value::take)
        {
            for (output, item) in items.into_iter().enumerate() {
                self.finish_item(output as u64, item, out);
            }
        }
        if let Some(usage) = response.get("usage").and_then(read_usage) {
            out.push(Delta::Usage(usage));
        }
        let reason = response
            .pointer("/incomplete_details/reason")
            .and_then(Value::as_str);
        let status = response
            .get("status")
            .and_then(Value::as_str)
            .unwrap_or("completed");
        self.finish = Some(match (status, reason) {
            (_, Some("max_output_tokens")) => Finish::Length,
            (_, Some("content_filter")) => Finish::Refusal,
            ("failed" | "cancelled", _) => {
                let text = format!("{} broke off: the response is {status}.", self.server_name);
                return Err(Error::Overloaded {
                    message: text,
                    retry_after: None,
                });
            }
            ("incomplete", _) => Finish::Other,
            _ if self.is_refused => Finish::Refusal,
            _ if self.has_calls => Finish::ToolCalls,
            _ => Finish::Stop,
        });
        self.end(out)
    }
}

/// Reads a citation; `None` for other annotations. Some servers send a number in place of the title,
/// which is left out.
fn read_citation(note: &Value) -> Option<FoundPage> {
    let text = |name: &str| {
        note.get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let cited = note.get("type").and_then(Value::as_str) == Some("url_citation");
    let title = Some(text("title"))
        .filter(|title| title.parse::<u32>().is_err())
        .unwrap_or_default();
    cited.then(|| FoundPage {
        title,
        url: text("url"),
        ..FoundPage::default()
    })
}

/// Returns the fields of a reasoning item to send back: without its status and empty fields.
fn without_status(item: &Value) -> Map<String, Value> {
    let fields = item
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, value)| {
            *name != "status" && !(value.is_null() && *name != "encrypted_content")
        });
    fields
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Reads the token counts; `None` if there are none.
fn read_usage(usage: &Value) -> Option<Usage> {
    let number = |path: &str| usage.pointer(path).and_then(parse_token_count);
    let input = number("/input_tokens")?;
    let output = number("/output_tokens").unwrap_or(0);
    let cache_read = number("/input_tokens_details/cached_tokens").unwrap_or(0);
    let cache_write = number("/input_tokens_details/cache_write_tokens").unwrap_or(0);
    let reasoning = number("/output_tokens_details/reasoning_tokens").unwrap_or(0);
    let uncached = input.saturating_sub(cache_read + cache_write);
    Some(Usage {
        input: uncached,
        output: output.saturating_sub(reasoning),
        reasoning,
        cache_read,
        cache_write,
    })
}

impl Decoder for ResponsesDecoder {
    fn decode(&mut self, _event: &str, data: &str, out: &mut Vec<Delta>) -> Result<Flow, Error> {
        if data.trim() == "[DONE]" {
            return Ok(Flow::More);
        }
        let mut event: StreamEvent<'_> = serde_json::from_str(data).map_err(|e| {
            let excerpt = error_classification::excerpt(data.as_bytes());
            Error::InvalidAnswer(format!(
                "{} sent something that is not an event of an answer ({e}): {excerpt}.",
                self.server_name
            ))
        })?;
        let output = event.output_index.unwrap_or(0);
        let text = event.delta.take().and_then(|delta| {
            if let Value::String(text) = delta {
                Some(text)
            } else {
                None
            }
        });
        match (event.kind.as_ref(), text) {
            ("response.output_text.delta", Some(text)) => {
                self.add_text(&event, Kind::Text, text, out)
            }
            ("response.refusal.delta", Some(text)) => {
                self.add_text(&event, Kind::Refusal, text, out)
            }
            (
                "response.reasoning_summary_text.delta" | "response.reasoning_text.delta",
                Some(text),
            ) => {
                self.add_text(&event, Kind::Reasoning, text, out);
            }
            ("response.function_call_arguments.delta", Some(text)) => {
                self.add_text(&event, Kind::Call, text, out)
            }
            ("response.output_item.added", _) => {
                if let Some(item) = &event.item {
                    self.add_item(output, item, out);
                }
            }
            ("response.output_item.done", _) => {
                if let Some(item) = event.item {
                    self.finish_item(output, item, out);
                }
            }
            (
                "response.completed"
                | "response.incomplete"
                | "response.failed"
                | "response.cancelled",
                _,
            ) => {
                self.complete(event.response.unwrap_or_default(), out)?;
                return Ok(Flow::Done);
            }
            ("error", _) => {
                let whole: Value = serde_json::from_str(data).unwrap_or_default();
                // `type` is only "error".
                let inner = whole
                    .get("error")
                    .filter(|error| error.is_object())
                    .cloned();
                return Err(error_classification::classify_event(
                    &self.server_name,
                    &inner.unwrap_or(whole),
                ));
            }
            ("", _) if event.object.as_deref() == Some("response") => {
                let whole = serde_json::from_str(data).unwrap_or_default();
                self.complete(whole, out)?;
                return Ok(Flow::Done);
            }
            ("", _) if event.error.is_some() => {
                return Err(error_classification::classify_event(
                    &self.server_name,
                    &event.error.unwrap_or_default(),
                ));
            }
            _ => {}
        }
        Ok(Flow::More)
    }

    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), Error> {
        let Some(finish) = finish_once(&mut self.has_ended, self.finish, &self.server_name)? else {
            return Ok(());
        };
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
