//! Decodes the events of a Messages answer.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::sse::Flow;
use crate::wire_format::{Decoder, deserialize_token_count, finish_once, single_entry};
use crate::{Delta, Error, FoundPage, error_classification};
use transcript::{Finish, Usage};

/// The decoder of one answer.
pub(super) struct MessagesDecoder {
    /// The provider's display name, for errors.
    server_name: String,
    /// The incomplete blocks, by their index.
    open: BTreeMap<usize, OpenBlock>,
    usage: Usage,
    finish: Option<Finish>,
    /// True once the finish reason has been passed on.
    has_ended: bool,
}

/// An incomplete block, with the parts that must be complete before they are passed on.
#[derive(Default)]
struct OpenBlock {
    kind: Kind,
    signature: String,
    citations: Vec<Value>,
    /// Of an opaque block, the whole block; of a call, its `input` if it came with the start of the
    /// block.
    fields: Map<String, Value>,
    /// The JSON text of the input of a call that the provider runs itself.
    input_json: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    Text,
    Thinking,
    /// A call of one of our tools.
    Call,
    /// A block of an unknown type, or a call that the provider runs itself.
    Opaque,
}

impl MessagesDecoder {
    pub(super) fn new(server_name: &str) -> Self {
        Self {
            server_name: server_name.to_owned(),
            open: BTreeMap::new(),
            usage: Usage::default(),
            finish: None,
            has_ended: false,
        }
    }

    fn start_block(&mut self, index: usize, block: Value, out: &mut Vec<Delta>) {
        let text = |name: &str| {
            block
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let mut open = OpenBlock::default();
        match block
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
        {
            "text" => {
                let text = text("text");
                if !text.is_empty() {
                    out.push(Delta::Text { index, text });
                }
                open.citations = block
                    .get("citations")
                    .and_then(Value::as_array)
                    .cloned()
                    .unwrap_or_default();
            }
            "thinking" => {
                open.kind = Kind::Thinking;
                open.signature = text("signature");
                out.push(Delta::Reasoning {
                    index,
                    text: text("thinking"),
                });
            }
            "redacted_thinking" => {
                open.kind = Kind::Thinking;
                out.push(Delta::Reasoning {
                    index,
                    text: String::new(),
                });
                out.push(Delta::ProviderData {
                    index,
                    data: single_entry("redacted", text("data")),
                });
            }
            "tool_use" => {
                open.kind = Kind::Call;
                let id = Some(text("id")).filter(|id| !id.is_empty());
                out.push(Delta::Call {
                    index,
                    id,
                    name: text("name"),
                });
                if let Some(input) = block
                    .get("input")
                    .filter(|input| input.as_object().is_some_and(|o| !o.is_empty()))
                {
                    open.fields.insert("input".into(), input.clone());
                }
            }
            _ => {
                open.kind = Kind::Opaque;
                out.push(Delta::Reasoning {
                    index,
                    text: String::new(),
                });
                if let Value::Object(whole) = block {
                    open.fields = whole;
                }
            }
        }
        self.open.insert(index, open);
    }

    fn extend_block(&mut self, index: usize, delta: BlockDelta<'_>, out: &mut Vec<Delta>) {
        let open = self.open.entry(index).or_insert_with(|| {
            // Some servers do not announce their blocks.
            let kind = if delta.thinking.is_some() {
                Kind::Thinking
            } else {
                Kind::Text
            };
            OpenBlock {
                kind,
                ..OpenBlock::default()
            }
        });
        if let Some(text) = delta.text {
            if open.kind == Kind::Opaque {
                append(&mut open.fields, "text", &text);
            } else if !text.is_empty() {
                out.push(Delta::Text { index, text });
            }
        }
        if let Some(text) = delta.thinking.filter(|text| !text.is_empty()) {
            out.push(Delta::Reasoning { index, text });
        }
        if let Some(json) = delta.partial_json.filter(|json| !json.is_empty()) {
            if open.kind == Kind::Call {
                open.fields.clear();
                out.push(Delta::Arguments { index, json });
            } else {
                open.input_json.push_str(&json);
            }
        }
        if let Some(signature) = delta.signature {
            open.signature.push_str(&signature);
        }
        open.citations.extend(delta.citation);
    }

    fn finish_block(&mut self, index: usize, out: &mut Vec<Delta>) {
        let Some(mut open) = self.open.remove(&index) else {
            return;
        };
        match open.kind {
            Kind::Text if !open.citations.is_empty() => {
                let cited: Vec<FoundPage> = open.citations.iter().filter_map(read_page).collect();
                if !cited.is_empty() {
                    out.push(Delta::FoundPages(cited));
                }
                out.push(Delta::ProviderData {
                    index,
                    data: single_entry("citations", open.citations),
                });
            }
            Kind::Thinking if !open.signature.is_empty() => {
                out.push(Delta::ProviderData {
                    index,
                    data: single_entry("signature", open.signature),
                });
            }
            // Some servers do not stream calls: the input came with the start of the block.
            Kind::Call => {
                if let Some(input) = open.fields.get("input") {
                    out.push(Delta::Arguments {
                        index,
                        json: input.to_string(),
                    });
                }
            }
            Kind::Opaque => {
                let results = open
                    .fields
                    .get("content")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten();
                let found: Vec<FoundPage> = results.filter_map(read_page).collect();
                if !found.is_empty() {
                    out.push(Delta::FoundPages(found));
                }
                if let Ok(input) = serde_json::from_str::<Value>(&open.input_json) {
                    open.fields.insert("input".into(), input);
                }
                out.push(Delta::ProviderData {
                    index,
                    data: single_entry("block", open.fields),
                });
            }
            Kind::Text | Kind::Thinking => {}
        }
    }

    /// Passes the token counts on. An event has only the counts that have changed.
    fn update_usage(&mut self, usage: &MessageUsage, out: &mut Vec<Delta>) {
        let counted = &mut self.usage;
        update_count(&mut counted.input, usage.input_tokens);
        update_count(&mut counted.cache_read, usage.cache_read_input_tokens);
        update_count(&mut counted.cache_write, usage.cache_creation_input_tokens);
        if let Some(output) = usage.output_tokens {
            let thought = usage
                .output_tokens_details
                .as_ref()
                .and_then(|d| d.thinking_tokens)
                .unwrap_or(0)
                .min(output);
            counted.output = output - thought;
            counted.reasoning = thought;
        }
        out.push(Delta::Usage(*counted));
    }

    fn set_finish(&mut self, reason: &str) {
        self.finish = Some(match reason {
            "end_turn" | "stop_sequence" => Finish::Stop,
            "tool_use" => Finish::ToolCalls,
            "max_tokens" | "model_context_window_exceeded" => Finish::Length,
            "refusal" => Finish::Refusal,
            _ => Finish::Other,
        });
    }

    /// Decodes the answer of a server that does not stream.
    fn decode_message(&mut self, message: AnthropicMessage, out: &mut Vec<Delta>) {
        for (index, block) in message.content.unwrap_or_default().into_iter().enumerate() {
            self.start_block(index, block, out);
            self.finish_block(index, out);
        }
        if let Some(usage) = &message.usage {
            self.update_usage(usage, out);
        }
        if let Some(reason) = &message.stop_reason {
            self.set_finish(reason);
        }
    }
}

/// Sets a count if the event has it.
fn update_count(count: &mut u64, sent: Option<u64>) {
    *count = sent.unwrap_or(*count);
}

/// Reads a search result, or a citation of one; `None` for anything else.
fn read_page(found: &Value) -> Option<FoundPage> {
    let text = |name: &str| {
        found
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let kind = found.get("type").and_then(Value::as_str)?;
    if !["web_search_result", "web_search_result_location"].contains(&kind) {
        return None;
    }
    Some(FoundPage {
        title: text("title"),
        url: text("url"),
        date: text("page_age"),
        extract: text("cited_text"),
    })
}

fn append(map: &mut Map<String, Value>, name: &str, more: &str) {
    match map.get_mut(name) {
        Some(Value::String(text)) => text.push_str(more),
        _ => {
            map.insert(name.to_owned(), more.into());
        }
    }
}

impl Decoder for MessagesDecoder {
    fn decode(&mut self, _event: &str, data: &str, out: &mut Vec<Delta>) -> Result<Flow, Error> {
        let invalid_event = |e: &serde_json::Error| {
            let excerpt = error_classification::excerpt(data.as_bytes());
            Error::InvalidAnswer(format!(
                "{} sent something that is not an event of an answer ({e}): {excerpt}.",
                self.server_name
            ))
        };
        if data.trim() == "[DONE]" {
            return Ok(Flow::More);
        }
        let event: StreamEvent<'_> = serde_json::from_str(data).map_err(|e| invalid_event(&e))?;
        if let Some(error) = event.error.filter(|error| !error.is_null()) {
            return Err(error_classification::classify_event(
                &self.server_name,
                &error,
            ));
        }
        match (event.kind.as_ref(), event.index) {
            ("content_block_delta", Some(index)) => {
                if let Some(delta) = event.delta {
                    self.extend_block(index, delta, out);
                }
            }
            ("content_block_start", Some(index)) => {
                if let Some(block) = event.content_block {
                    self.start_block(index, block, out);
                }
            }
            ("content_block_stop", Some(index)) => self.finish_block(index, out),
            ("message_start", _) => {
                if let Some(usage) = event.message.and_then(|m| m.usage) {
                    self.update_usage(&usage, out);
                }
            }
            ("message_delta", _) => {
                if let Some(reason) = event.delta.and_then(|d| d.stop_reason) {
                    self.set_finish(&reason);
                }
                if let Some(usage) = &event.usage {
                    self.update_usage(usage, out);
                }
            }
            ("message_stop", _) => {
                self.end(out)?;
                return Ok(Flow::Done);
            }
            ("message", _) => {
                let message: AnthropicMessage =
                    serde_json::from_str(data).map_err(|e| invalid_event(&e))?;
                self.decode_message(message, out);
                self.end(out)?;
                return Ok(Flow::Done);
            }
            // `ping`, and future events.
            _ => {}
        }
        Ok(Flow::More)
    }

    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), Error> {
        let Some(finish) = finish_once(&mut self.has_ended, self.finish, &self.server_name)? else {
            return Ok(());
        };
        for index in self.open.keys().copied().collect::<Vec<_>>() {
            self.finish_block(index, out);
        }
        out.push(Delta::Finish(finish));
        Ok(())
    }
}

#[derive(Deserialize)]
struct StreamEvent<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'a, str>,
    #[serde(default)]
    index: Option<usize>,
    #[serde(borrow, default)]
    delta: Option<BlockDelta<'a>>,
    #[serde(default)]
    content_block: Option<Value>,
    #[serde(default)]
    message: Option<AnthropicMessage>,
    #[serde(default)]
    usage: Option<MessageUsage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct BlockDelta<'a> {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(default)]
    partial_json: Option<String>,
    #[serde(borrow, default)]
    signature: Option<Cow<'a, str>>,
    #[serde(default)]
    citation: Option<Value>,
    #[serde(default)]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct AnthropicMessage {
    #[serde(default)]
    content: Option<Vec<Value>>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    usage: Option<MessageUsage>,
}

#[derive(Deserialize)]
struct MessageUsage {
    #[serde(default, deserialize_with = "deserialize_token_count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "deserialize_token_count")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "deserialize_token_count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "deserialize_token_count")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default, deserialize_with = "deserialize_token_count")]
    thinking_tokens: Option<u64>,
}
