//! Decodes the chunks of a Chat Completions answer.

use serde_json::Value;

use super::chunk::{Arguments, ChatChunk, ChunkChoice, ToolCallDelta};
use super::think::{ThinkPiece, ThinkTags};
use crate::sse::Flow;
use crate::wire::{Decoder, entry, finished, tokens};
use crate::{Delta, Error, error_classification};
use transcript::{Finish, Usage};

/// The state of one answer.
pub(super) struct Chunks {
    who: String,
    next: usize,
    /// The block to which text is appended, and its kind.
    open: Option<(usize, Kind)>,
    think: ThinkTags,
    pieces: Vec<ThinkPiece>,
    calls: Vec<Pending>,
    /// `reasoning_details` of the open reasoning block.
    details: Vec<Value>,
    usage: Usage,
    finish: Option<Finish>,
    is_refused: bool,
    has_content: bool,
    over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Refusal,
    Reasoning,
}

/// An incomplete call.
struct Pending {
    block: usize,
    /// The server's index, if it sends one.
    index: Option<usize>,
    id: Option<String>,
    name: String,
    is_named: bool,
    braces: Braces,
}

/// Detects when JSON text that arrives in fragments is a complete object.
#[derive(Default)]
struct Braces {
    depth: usize,
    in_string: bool,
    escaped: bool,
    begun: bool,
}

impl Braces {
    fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => {
                    self.begun = true;
                    self.depth += 1;
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.begun && self.depth == 0
    }
}

impl Chunks {
    pub(super) fn new(who: &str) -> Self {
        Self {
            who: who.to_owned(),
            next: 0,
            open: None,
            think: ThinkTags::default(),
            pieces: Vec::new(),
            calls: Vec::new(),
            details: Vec::new(),
            usage: Usage::default(),
            finish: None,
            is_refused: false,
            has_content: false,
            over: false,
        }
    }

    fn new_block(&mut self) -> usize {
        self.next += 1;
        self.next - 1
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
                    out.push(Delta::Provider {
                        index: block,
                        data: entry("refusal", true),
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
            out.push(Delta::Provider {
                index,
                data: entry("reasoning_details", details),
            });
        }
    }

    fn text(&mut self, text: String, out: &mut Vec<Delta>) {
        self.has_content |= !text.is_empty();
        let mut pieces = std::mem::take(&mut self.pieces);
        self.think.push(text, &mut pieces);
        self.pieces = pieces;
        self.pass_on(out);
    }

    fn pass_on(&mut self, out: &mut Vec<Delta>) {
        let mut pieces = std::mem::take(&mut self.pieces);
        for piece in pieces.drain(..) {
            match piece {
                ThinkPiece::Text(text) => {
                    let index = self.open(Kind::Text, out);
                    out.push(Delta::Text { index, text });
                }
                ThinkPiece::Reasoning(text) => self.reasoning(text, "think", out),
            }
        }
        self.pieces = pieces;
    }

    fn reasoning(&mut self, text: String, field: &str, out: &mut Vec<Delta>) {
        let next_before = self.next;
        let index = self.open(Kind::Reasoning, out);
        if self.next > next_before {
            out.push(Delta::Provider {
                index,
                data: entry("field", field),
            });
        }
        if !text.is_empty() {
            self.has_content = true;
            out.push(Delta::Reasoning { index, text });
        }
    }

    fn details(&mut self, details: Vec<Value>, has_text: bool, out: &mut Vec<Delta>) {
        let next_before = self.next;
        let index = self.open(Kind::Reasoning, out);
        if self.next > next_before {
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

    fn call(&mut self, call: ToolCallDelta, out: &mut Vec<Delta>) {
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
                self.calls.push(Pending {
                    block,
                    index: call.index,
                    id,
                    name: String::new(),
                    is_named: false,
                    braces: Braces::default(),
                });
                self.calls.len() - 1
            }
        };
        let pending = &mut self.calls[at];
        if !pending.is_named
            && let Some(name) = name
        {
            pending.is_named = true;
            pending.name = name;
            out.push(Delta::Call {
                index: pending.block,
                id: pending.id.clone(),
                name: pending.name.clone(),
            });
        }
        if let Some(json) = function
            .arguments
            .map(Arguments::text)
            .filter(|json| !json.is_empty())
        {
            pending.braces.push(&json);
            out.push(Delta::Arguments {
                index: pending.block,
                json,
            });
        }
        if let Some(extra) = call.extra_content {
            out.push(Delta::Provider {
                index: pending.block,
                data: entry("extra_content", extra),
            });
        }
    }

    /// Returns the call that a fragment belongs to; `None` if it starts a new one. An index alone
    /// is not reliable: some servers give every call the index 0, some give none.
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
            Some(_) if is_unconfirmed && call.is_named && call.braces.is_whole() => None,
            Some(name)
                if index.is_none() && is_unconfirmed && call.is_named && call.name != name =>
            {
                None
            }
            _ => Some(at),
        }
    }

    fn choice(&mut self, choice: ChunkChoice, out: &mut Vec<Delta>) -> Result<(), Error> {
        if choice.index.is_some_and(|index| index > 0) {
            return Ok(());
        }
        if let Some(usage) = choice.usage {
            self.count(&usage, out);
        }
        if let Some(delta) = choice.delta.or(choice.message) {
            let mut has_reasoning = false;
            if let Some(text) = delta.reasoning_content.filter(|t| !t.is_empty()) {
                has_reasoning = true;
                self.reasoning(text, "reasoning_content", out);
            } else if let Some(text) = delta.reasoning.filter(|t| !t.is_empty()) {
                has_reasoning = true;
                self.reasoning(text, "reasoning", out);
            }
            if let Some(details) = delta.reasoning_details.filter(|d| !d.is_empty()) {
                self.details(details, has_reasoning, out);
            }
            for piece in delta.content.into_iter().flat_map(|content| content.0) {
                match piece {
                    ThinkPiece::Text(text) if text.is_empty() => {}
                    ThinkPiece::Text(text) => self.text(text, out),
                    ThinkPiece::Reasoning(text) => self.reasoning(text, "thinking", out),
                }
            }
            if let Some(text) = delta.refusal.filter(|t| !t.is_empty()) {
                self.is_refused = true;
                self.has_content = true;
                let index = self.open(Kind::Refusal, out);
                out.push(Delta::Text { index, text });
            }
            for call in delta.tool_calls.into_iter().flatten() {
                self.call(call, out);
            }
            if let Some(function) = delta.function_call {
                self.call(
                    ToolCallDelta {
                        index: Some(0),
                        function: Some(function),
                        ..ToolCallDelta::default()
                    },
                    out,
                );
            }
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
            return Err(error_classification::event(&self.who, &error));
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

    fn count(&mut self, usage: &Value, out: &mut Vec<Delta>) {
        let Some(counted) = counted(usage) else {
            return;
        };
        self.usage = counted;
        out.push(Delta::Usage(counted));
    }
}

impl Decoder for Chunks {
    fn decode(&mut self, event: &str, data: &str, out: &mut Vec<Delta>) -> Result<Flow, Error> {
        let data = data.trim();
        if data == "[DONE]" {
            // A server that ends without a finish reason has completed its answer.
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
            Error::InvalidResult(format!(
                "{} sent something that is not a chunk of an answer ({e}): {excerpt}.",
                self.who
            ))
        })?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(error_classification::event(&self.who, &error));
        }
        if event == "error" || chunk.object.as_deref() == Some("error") {
            let whole = serde_json::from_str(data).unwrap_or_default();
            return Err(error_classification::event(&self.who, &whole));
        }
        let whole = chunk.object.as_deref() == Some("chat.completion");
        for choice in chunk.choices.into_iter().flatten() {
            self.choice(choice, out)?;
        }
        let usage = chunk.usage.or_else(|| chunk.x_groq?.get("usage").cloned());
        if let Some(usage) = usage.filter(|usage| !usage.is_null()) {
            self.count(&usage, out);
        }
        if whole {
            self.end(out)?;
            return Ok(Flow::Done);
        }
        Ok(Flow::More)
    }

    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), Error> {
        let Some(finish) = finished(&mut self.over, self.finish, &self.who)? else {
            return Ok(());
        };
        let mut pieces = std::mem::take(&mut self.pieces);
        self.think.end(&mut pieces);
        self.pieces = pieces;
        self.pass_on(out);
        self.close(out);
        out.push(Delta::Finish(finish));
        Ok(())
    }
}

/// Appends a fragment of `reasoning_details` to the one it continues: the same type with the same
/// index.
fn join_detail(known: &mut Vec<Value>, detail: Value) {
    let same =
        |a: &Value| a.get("type") == detail.get("type") && a.get("index") == detail.get("index");
    let (Some(Value::Object(last)), Value::Object(more)) =
        (known.last_mut().filter(|last| same(last)), &detail)
    else {
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

/// Reads the token counts from any of the usual fields. The cache is part of `prompt_tokens`, and
/// reasoning of `completion_tokens`, unless the total shows that reasoning is separate.
fn counted(usage: &Value) -> Option<Usage> {
    let number = |path: &str| usage.pointer(path).and_then(tokens);
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
