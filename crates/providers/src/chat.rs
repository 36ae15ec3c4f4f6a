//! The wire format of OpenAI's Chat Completions API ([`Chat`]), and of the many servers that
//! implement it more or less.
//!
//! `encode.rs` writes requests; `chunk.rs` and `decode.rs` read answers, in which `think.rs` finds
//! reasoning. The decoder handles the differences between servers: reasoning is in one of four
//! fields, calls lack ids or indices or repeat their name in every chunk, the finish reason is
//! missing or wrong.

mod chunk;
mod decode;
mod encode;
mod think;

use serde_json::{Map, Value, json};

use super::request_target::{RequestOptions, RequestTarget};
use super::wire_format::{Decoder, HttpCall, WireFormat, single_entry};
use super::{Error, Model, Request};

/// The wire format of the Chat Completions API.
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
        encode::encode_request(request, target, request_options)
    }

    fn decoder(&self, target: &RequestTarget) -> Box<dyn Decoder> {
        Box::new(decode::ChatDecoder::new(&target.name))
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
            return single_entry("reasoning", json!({"effort": effort}));
        }
        single_entry("reasoning_effort", effort)
    }

    #[cfg(test)]
    fn samples(&self) -> crate::wire_format::WireSamples {
        use crate::conversations::strings;
        use serde_json::json;

        crate::wire_format::WireSamples {
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
