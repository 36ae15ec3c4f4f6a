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
        knobs: &RequestOptions,
    ) -> Result<HttpCall, Error> {
        encode::call(request, target, knobs)
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
}

#[cfg(test)]
mod tests;
