//! Decodes the chunks of a Chat Completions answer.

use serde_json::Value;

use super::chunk::{Arguments, ChatChunk, ChunkChoice, ChunkMessage, ToolCallDelta};
use super::think::{ThinkPiece, ThinkTags};
use crate::sse::Flow;
use crate::wire_format::{Decoder, finish_once, parse_token_count, single_entry};
use crate::{Delta, Error, error_classification};
use transcript::{Finish, Usage};

/// The decoder of one answer.
pub(super) struct ChatDecoder {
    /// The provider's display name, for errors.
    server_name: String,
    /// The index of the next block.
    next_block: usize,
    /// The block to which text is appended, and its kind.
    open: Option<(usize, Kind)>,
    think_tags: ThinkTags,
    /// A buffer for the pieces of one chunk.
    pieces: Vec<ThinkPiece>,
    /// The calls so far.
    calls: Vec<StreamedCall>,
    /// `reasoning_details` of the open reasoning block.
    details: Vec<Value>,
    finish: Option<Finish>,
    is_refused: bool,
    has_content: bool,
    /// True once the finish reason has been passed on.
    has_ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Refusal,
    Reasoning,
}

/// A call, to which further fragments may belong.
struct StreamedCall {
    /// The index of its block.
    block: usize,
    /// The server's index, if it sends one.
    index: Option<usize>,
    id: Option<String>,
    name: String,
    /// True once the name has arrived.
    is_named: bool,
    arguments: ObjectScanner,
}

/// Detects when JSON text that arrives in fragments is a complete object.
#[derive(Default)]
struct ObjectScanner {
    /// The number of open braces and brackets.
    depth: usize,
    is_in_string: bool,
    /// True directly after a backslash in a string.
    is_escaped: bool,
    has_begun: bool,
}

impl ObjectScanner {
    fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.is_in_string => self.is_escaped = true,
                b'"' => self.is_in_string = !self.is_in_string,
                _ if self.is_in_string => {}
                b'{' | b'[' => {
                    self.has_begun = true;
                    self.depth += 1;
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.has_begun && self.depth == 0
    }
}

impl ChatDecoder {
    pub(super) fn new(server_name: &str) -> Self {
        Self {
            server_name: server_name.to_owned(),
            next_block: 0,
            open: None,
            think_tags: ThinkTags::default(),
            pieces: Vec::new(),
            calls: Vec::new(),
            details: Vec::new(),
            finish: None,
            is_refused: false,
            has_content: false,
            has_ended: false,
        }
    }

    fn new_block(&mut self) -> usize {
        self.next_block += 1;
        self.next_block - 1
    }

    /// Returns the open block if it is of this kind, otherwise starts a new one.
    fn open(&mut self, kind: Kind, out: &mut Vec<Delta>) -> usize {
        match self.open {
            Some((block, open)) if open == kind => block,
            _ => {
                self.close(out);
                let block = self.new_block();
                self.open = Some((block, kind));
                if kind == Kind::Refusal {
                    // The first delta of a block determines its kind: text.
                    out.push(Delta::Text {
                        index: block,
                        text: String::new(),
                    });
                    out.push(Delta::ProviderData {
                        index: block,
                        data: single_entry("refusal", true),
                    });
                }
                block
            }
        }
    }

    /// Closes the open block and outputs the details collected for it.
    fn close(&mut self, out: &mut Vec<Delta>) {
        if let Some((index, Kind::Reasoning)) = self.open.take()
            && !self.details.is_empty()
        {
            let details = std::mem::take(&mut self.details);
            out.push(Delta::ProviderData {
                index,
                data: single_entry("reasoning_details", details),
            });
        }
    }

    fn add_text(&mut self, text: String, out: &mut Vec<Delta>) {
        self.has_content |= !text.is_empty();
        let mut pieces = std::mem::take(&mut self.pieces);
        self.think_tags.push(text, &mut pieces);
        self.pieces = pieces;
        self.pass_on(out);
    }

    /// Converts the buffered pieces to deltas.
    fn pass_on(&mut self, out: &mut Vec<Delta>) {
        let mut pieces = std::mem::take(&mut self.pieces);
        for piece in pieces.drain(..) {
            match piece {
                ThinkPiece::Text(text) => {
                    let index = self.open(Kind::Text, out);
                    out.push(Delta::Text { index, text });
                }
                ThinkPiece::Reasoning(text) => self.add_reasoning(text, "think", out),
            }
        }
        self.pieces = pieces;
    }

    /// Passes reasoning on. `field` is the field that contained it, in which it is sent back.
    fn add_reasoning(&mut self, text: String, field: &str, out: &mut Vec<Delta>) {
        let next_before = self.next_block;
        let index = self.open(Kind::Reasoning, out);
        if self.next_block > next_before {
            out.push(Delta::ProviderData {
                index,
                data: single_entry("field", field),
            });
        }
        if !text.is_empty() {
            self.has_content = true;
            out.push(Delta::Reasoning { index, text });
        }
    }

    /// Collects `reasoning_details`, and passes their text on unless another field of the same
    /// chunk had it (`has_text`).
    fn add_details(&mut self, details: Vec<Value>, has_text: bool, out: &mut Vec<Delta>) {
        let next_before = self.next_block;
        let index = self.open(Kind::Reasoning, out);
        if self.next_block > next_before {
            out.push(Delta::Reasoning {
                index,
                text: String::new(),
            });
        }
        for detail in details {
            let text = detail
                .get("text")
                .or_else(|| detail.get("summary"))
                .and_then(Value::as_str)
                .unwrap_or_default();
            if !has_text && !text.is_empty() {
                self.has_content = true;
                out.push(Delta::Reasoning {
                    index,
                    text: text.to_owned(),
                });
            }
            join_detail(&mut self.details, detail);
        }
    }

    /// Passes a fragment of a call on.
    fn add_call(&mut self, call: ToolCallDelta, out: &mut Vec<Delta>) {
        self.has_content = true;
        let function = call.function.unwrap_or_default();
        let name = function.name.filter(|name| !name.is_empty());
        let id = call.id.filter(|id| !id.is_empty());
        let at = match self.find_call(call.index, id.as_deref(), name.as_deref()) {
            Some(at) => at,
            None => {
                self.close(out);
                let block = self.new_block();
                // Two calls with the same id would share their result, so the second one has no id.
                let id =
                    id.filter(|id| self.calls.iter().all(|known| known.id.as_ref() != Some(id)));
                self.calls.push(StreamedCall {
                    block,
                    index: call.index,
                    id,
                    name: String::new(),
                    is_named: false,
                    arguments: ObjectScanner::default(),
                });
                self.calls.len() - 1
            }
        };
        let streamed = &mut self.calls[at];
        if !streamed.is_named
            && let Some(name) = name
        {
            streamed.is_named = true;
            streamed.name = name;
            out.push(Delta::Call {
                index: streamed.block,
                id: streamed.id.clone(),
                name: streamed.name.clone(),
            });
        }
        if let Some(json) = function
            .arguments
            .map(Arguments::into_json)
            .filter(|json| !json.is_empty())
        {
            streamed.arguments.push(&json);
            out.push(Delta::Arguments {
                index: streamed.block,
                json,
            });
        }
        if let Some(extra) = call.extra_content {
            out.push(Delta::ProviderData {
                index: streamed.block,
                data: single_entry("extra_content", extra),
            });
        }
    }

    /// Returns the position in `calls` of the call that a fragment belongs to; `None` if it starts
    /// a new one. An index alone is not reliable: some servers give every call the index 0, some
    /// give none.
    fn find_call(
        &self,
        index: Option<usize>,
        id: Option<&str>,
        name: Option<&str>,
    ) -> Option<usize> {
        let by_index = |i: usize| self.calls.iter().rposition(|call| call.index == Some(i));
        let by_id = |id: &str| {
            self.calls
                .iter()
                .rposition(|call| call.id.as_deref() == Some(id))
        };
        let last = self.calls.len().checked_sub(1);
        let at = match (index, id) {
            (Some(i), _) => by_index(i)?,
            (None, Some(id)) => match by_id(id) {
                Some(at) => at,
                None if name.is_none() => last?,
                None => return None,
            },
            (None, None) => last?,
        };
        let call = &self.calls[at];
        let has_other_id = id.is_some_and(|id| call.id.as_deref().is_some_and(|known| known != id));
        let is_unconfirmed = id.is_none_or(|id| call.id.as_deref() != Some(id));
        match name {
            Some(_) if has_other_id => None,
            Some(_) if is_unconfirmed && call.is_named && call.arguments.is_complete() => None,
            Some(name)
                if index.is_none() && is_unconfirmed && call.is_named && call.name != name =>
            {
                None
            }
            _ => Some(at),
        }
    }

    /// Decodes the first choice of a chunk; we request only one.
    fn decode_choice(&mut self, choice: ChunkChoice, out: &mut Vec<Delta>) -> Result<(), Error> {
        if choice.index.is_some_and(|index| index > 0) {
            return Ok(());
        }
        if let Some(usage) = choice.usage {
            pass_usage_on(&usage, out);
        }
        if let Some(message) = choice.delta.or(choice.message) {
            self.decode_message(message, out);
        }
        let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) else {
            return Ok(());
        };
        if matches!(
            reason.as_str(),
            "error" | "insufficient_system_resource" | "network_error"
        ) {
            let error = choice
                .error
                .unwrap_or_else(|| Value::String(format!("it stopped with \"{reason}\"")));
            return Err(error_classification::classify_event(
                &self.server_name,
                &error,
            ));
        }
        self.finish = Some(match reason.as_str() {
            "length" | "max_tokens" | "model_length" => Finish::Length,
            "content_filter" | "refusal" | "sensitive" => Finish::Refusal,
            _ if self.is_refused => Finish::Refusal,
            // Many servers send "stop" after calls.
            _ if !self.calls.is_empty() => Finish::ToolCalls,
            "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" | "tool_calls"
            | "function_call" => Finish::Stop,
            _ => Finish::Other,
        });
        Ok(())
    }

    fn decode_message(&mut self, message: ChunkMessage, out: &mut Vec<Delta>) {
        let mut has_reasoning = false;
        if let Some(text) = message.reasoning_content.filter(|t| !t.is_empty()) {
            has_reasoning = true;
            self.add_reasoning(text, "reasoning_content", out);
        } else if let Some(text) = message.reasoning.filter(|t| !t.is_empty()) {
            has_reasoning = true;
            self.add_reasoning(text, "reasoning", out);
        }
        if let Some(details) = message.reasoning_details.filter(|d| !d.is_empty()) {
            self.add_details(details, has_reasoning, out);
        }
        for piece in message.content.into_iter().flat_map(|content| content.0) {
            match piece {
                ThinkPiece::Text(text) if text.is_empty() => {}
                ThinkPiece::Text(text) => self.add_text(text, out),
                ThinkPiece::Reasoning(text) => self.add_reasoning(text, "thinking", out),
            }
        }
        if let Some(text) = message.refusal.filter(|t| !t.is_empty()) {
            self.is_refused = true;
            self.has_content = true;
            let index = self.open(Kind::Refusal, out);
            out.push(Delta::Text { index, text });
        }
        for call in message.tool_calls.into_iter().flatten() {
            self.add_call(call, out);
        }
        // The older field for a single call.
        if let Some(function) = message.function_call {
            self.add_call(
                ToolCallDelta {
                    index: Some(0),
                    function: Some(function),
                    ..ToolCallDelta::default()
                },
                out,
            );
        }
    }
}

fn pass_usage_on(usage: &Value, out: &mut Vec<Delta>) {
    out.extend(read_usage(usage).map(Delta::Usage));
}

impl Decoder for ChatDecoder {
    fn decode(&mut self, event: &str, data: &str, out: &mut Vec<Delta>) -> Result<Flow, Error> {
        let data = data.trim();
        if data == "[DONE]" {
            // Some servers send no finish reason: the answer is complete nevertheless.
            if self.finish.is_none() && self.has_content {
                self.finish = Some(if self.calls.is_empty() {
                    Finish::Stop
                } else {
                    Finish::ToolCalls
                });
            }
            self.end(out)?;
            return Ok(Flow::Done);
        }
        if data.is_empty() {
            return Ok(Flow::More);
        }
        let chunk: ChatChunk = serde_json::from_str(data).map_err(|e| {
            let excerpt = error_classification::excerpt(data.as_bytes());
            Error::InvalidAnswer(format!(
                "{} sent something that is not a chunk of an answer ({e}): {excerpt}.",
                self.server_name
            ))
        })?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(error_classification::classify_event(
                &self.server_name,
                &error,
            ));
        }
        if event == "error" || chunk.object.as_deref() == Some("error") {
            let whole = serde_json::from_str(data).unwrap_or_default();
            return Err(error_classification::classify_event(
                &self.server_name,
                &whole,
            ));
        }
        let is_whole_answer = chunk.object.as_deref() == Some("chat.completion");
        for choice in chunk.choices.into_iter().flatten() {
            self.decode_choice(choice, out)?;
        }
        let usage = chunk.usage.or_else(|| chunk.x_groq?.get("usage").cloned());
        if let Some(usage) = usage.filter(|usage| !usage.is_null()) {
            pass_usage_on(&usage, out);
        }
        if is_whole_answer {
            self.end(out)?;
            return Ok(Flow::Done);
        }
        Ok(Flow::More)
    }

    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), Error> {
        let Some(finish) = finish_once(&mut self.has_ended, self.finish, &self.server_name)? else {
            return Ok(());
        };
        let mut pieces = std::mem::take(&mut self.pieces);
        self.think_tags.end(&mut pieces);
        self.pieces = pieces;
        self.pass_on(out);
        self.close(out);
        out.push(Delta::Finish(finish));
        Ok(())
    }
}

/// Adds a fragment of `reasoning_details` to `known`: it continues the last one if that has the
/// same type and index.
fn join_detail(known: &mut Vec<Value>, detail: Value) {
    let is_continued =
        |a: &Value| a.get("type") == detail.get("type") && a.get("index") == detail.get("index");
    let last = known.last_mut().filter(|last| is_continued(last));
    let (Some(Value::Object(last)), Value::Object(more)) = (last, &detail) else {
        known.push(detail);
        return;
    };
    for (name, value) in more {
        match (last.get_mut(name), value) {
            (Some(Value::String(have)), Value::String(more))
                if matches!(name.as_str(), "text" | "summary" | "data") =>
            {
                have.push_str(more);
            }
            (_, Value::Null) => {}
            (_, value) => {
                last.insert(name.clone(), value.clone());
            }
        }
    }
}

/// Reads the token counts from any of the usual fields; `None` if there is no `prompt_tokens`.
/// Cached tokens are part of `prompt_tokens`, and reasoning tokens are part of `completion_tokens`
/// unless `total_tokens` shows that they are not.
fn read_usage(usage: &Value) -> Option<Usage> {
    let number = |path: &str| usage.pointer(path).and_then(parse_token_count);
    let first = |paths: &[&str]| paths.iter().find_map(|path| number(path)).unwrap_or(0);
    let prompt = number("/prompt_tokens")?;
    let completion = first(&["/completion_tokens"]);
    let reasoning = first(&[
        "/completion_tokens_details/reasoning_tokens",
        "/reasoning_tokens",
    ]);
    let cache_read = first(&[
        "/prompt_tokens_details/cached_tokens",
        "/prompt_cache_hit_tokens",
        "/cached_tokens",
        "/cache_read_input_tokens",
    ]);
    let cache_write = first(&[
        "/prompt_tokens_details/cache_write_tokens",
        "/prompt_tokens_details/cache_creation_tokens",
        "/cache_creation_input_tokens",
    ]);
    let is_separate =
        reasoning > 0 && number("/total_tokens") == Some(prompt + completion + reasoning);
    let output = if is_separate {
        completion
    } else {
        completion.saturating_sub(reasoning)
    };
    Some(Usage {
        input: prompt.saturating_sub(cache_read + cache_write),
        output,
        reasoning,
        cache_read,
        cache_write,
    })
}
