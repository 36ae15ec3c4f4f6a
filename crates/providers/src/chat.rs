//! OpenAI's Chat Completions API, and the many servers that implement it more or less.
//!
//! This format repairs their differences: reasoning is in one of four fields, calls lack ids or
//! indices or repeat their name in every chunk, the finish reason is missing or wrong.

mod chunk;
mod decode;
mod encode;
mod think;

use serde_json::{Map, Value, json};

use super::request_target::{RequestOptions, RequestTarget};
use super::wire::{Decoder, HttpCall, WireFormat, entry};
use super::{Error, Model, Request};

#[derive(Debug, Clone, Copy, Default)]
pub struct Chat;

impl WireFormat for Chat {
    fn name(&self) -> &'static str {
        "chat"
    }

    fn encode(
        &self,
        request: &Request,
        target: &RequestTarget,
        request_options: &RequestOptions,
    ) -> Result<HttpCall, Error> {
        encode::call(request, target, request_options)
    }

    fn decoder(&self, target: &RequestTarget) -> Box<dyn Decoder> {
        Box::new(decode::Chunks::new(&target.name))
    }

    fn efforts(&self, model: &Model) -> Vec<String> {
        let id = model.api_id.to_lowercase();
        // For these models the effort cannot be chosen.
        let fixed = [
            "deepseek-chat",
            "deepseek-reasoner",
            "deepseek-r1",
            "minimax",
            "glm",
            "kimi",
            "qwen",
            "sonar",
        ];
        if fixed.iter().any(|name| id.contains(name)) {
            return Vec::new();
        }
        ["low", "medium", "high"].map(str::to_owned).to_vec()
    }

    fn effort(&self, _model: &Model, target: &RequestTarget, effort: &str) -> Map<String, Value> {
        if target.provider == "openrouter" || target.base_url.contains("openrouter.ai") {
            return entry("reasoning", json!({"effort": effort}));
        }
        entry("reasoning_effort", effort)
    }

    #[cfg(test)]
    fn samples(&self) -> crate::wire::WireSamples {
        use crate::conversations::strings;
        use serde_json::json;

        crate::wire::WireSamples {
            text: |text| vec![json!({"choices": [{"index": 0, "delta": {"content": text}}]})],
            call: |at, id, tool, arguments| {
                let call = json!({"index": at, "id": id, "function": {"name": tool, "arguments": arguments}});
                vec![json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})]
            },
            counts: |count| {
                json!({"choices": [], "usage": {
                    "prompt_tokens": count, "completion_tokens": count, "total_tokens": count,
                    "prompt_tokens_details": {"cached_tokens": count, "cache_write_tokens": count},
                    "completion_tokens_details": {"reasoning_tokens": count}}})
            },
            end: |calls| {
                let why = if calls { "tool_calls" } else { "stop" };
                vec![json!({"choices": [{"index": 0, "delta": {}, "finish_reason": why}]})]
            },
            done: true,
            call_ids: |sent| {
                let messages = sent["messages"].as_array().into_iter().flatten();
                let calls = messages.filter_map(|message| message["tool_calls"].as_array());
                let mut made: Vec<&str> = calls
                    .flatten()
                    .filter_map(|call| call["id"].as_str())
                    .collect();
                made.sort_unstable();
                [made, strings(sent, "tool_call_id")]
            },
        }
    }
}

#[cfg(test)]
mod tests;
