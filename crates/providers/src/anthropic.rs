//! The wire format of Anthropic's Messages API ([`Messages`]), which Anthropic and several other
//! providers offer.
//!
//! `encode.rs` writes requests, `decode.rs` reads answers. Thinking is sent back exactly as it
//! arrived, with signatures and redacted blocks at their positions; blocks of an unknown type are
//! stored whole and sent back too. `cache_control` marks the end of the parts of a request that the
//! provider caches.

mod decode;
mod encode;

use serde_json::{Map, Value, json};

use super::request_target::{RequestOptions, RequestTarget};
use super::wire_format::{Decoder, HttpCall, SdkPackage, WireFormat, single_entry};
use super::{Error, Model, Request};

/// The wire format of the Messages API.
#[derive(Debug, Clone, Copy, Default)]
pub struct Messages;

/// The largest thinking budget that is requested, in tokens.
const MAX_BUDGET: u64 = 31_999;
/// The smallest thinking budget that the API accepts, in tokens.
const MIN_BUDGET: u64 = 1_024;

/// True if a model accepts `output_config.effort`.
fn accepts_effort(model: &Model) -> bool {
    match claude_version(&model.api_id) {
        Some((4, 6..) | (5.., _)) => true,
        Some((4, 5)) => model.api_id.contains("opus"),
        _ => false,
    }
}

/// True if Anthropic can search the web for the model with this id.
pub(super) fn can_search_web(id: &str) -> bool {
    claude_version(id).is_some_and(|generation| generation >= (3, 5))
}

impl WireFormat for Messages {
    fn name(&self) -> &'static str {
        "messages"
    }

    fn package(&self) -> Option<SdkPackage> {
        Some(SdkPackage {
            name: "@ai-sdk/anthropic",
            address: "https://api.anthropic.com/v1",
            variable: "ANTHROPIC_BASE_URL",
        })
    }

    fn method(&self) -> Option<&'static str> {
        Some("/messages")
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
        Box::new(decode::MessagesDecoder::new(&target.name))
    }

    fn efforts(&self, model: &Model) -> Vec<String> {
        let names: &[&str] = match claude_version(&model.api_id) {
            Some((4, 7..) | (5.., _)) => &["low", "medium", "high", "xhigh", "max"],
            Some((4, 6)) => &["low", "medium", "high", "max"],
            Some((4, 5)) if model.api_id.contains("opus") => &["low", "medium", "high"],
            _ => &["high", "max"],
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn effort(&self, model: &Model, _target: &RequestTarget, effort: &str) -> Map<String, Value> {
        let output = model.output.unwrap_or(Model::MAX_OUTPUT_TOKENS);
        let budget = match effort {
            "none" => return single_entry("thinking", json!({"type": "disabled"})),
            "minimal" | "low" => 4_000,
            "medium" => 10_000,
            "high" => 16_000.min(output / 2),
            _ => MAX_BUDGET.min(output.saturating_sub(1)),
        };
        let mut options = match claude_version(&model.api_id) {
            Some((4, 6..) | (5.., _)) => single_entry("thinking", json!({"type": "adaptive"})),
            _ => single_entry(
                "thinking",
                json!({"type": "enabled", "budget_tokens": budget.max(MIN_BUDGET)}),
            ),
        };
        if accepts_effort(model) {
            options.insert("output_config".into(), json!({"effort": effort}));
        }
        options
    }

    /// Requests thinking by default, as Anthropic's own client does. A thinking budget is part of
    /// the output, so it is only requested if the model's output limit is known.
    fn default_effort(&self, model: &Model) -> Map<String, Value> {
        match (claude_version(&model.api_id), model.output) {
            (Some((4, 6..) | (5.., _)), _) => single_entry("thinking", json!({"type": "adaptive"})),
            (Some((3, 7..) | (4, _)), Some(output)) => {
                let budget = MAX_BUDGET.min(output / 2).max(MIN_BUDGET);
                single_entry(
                    "thinking",
                    json!({"type": "enabled", "budget_tokens": budget}),
                )
            }
            _ => Map::new(),
        }
    }

    fn least_effort(&self, model: &Model) -> Option<Map<String, Value>> {
        // Claude does not think in a request without `thinking`.
        Some(if accepts_effort(model) {
            single_entry("output_config", json!({"effort": "low"}))
        } else {
            Map::new()
        })
    }

    #[cfg(test)]
    fn samples(&self) -> crate::wire_format::WireSamples {
        use crate::conversations::strings;
        use serde_json::json;

        crate::wire_format::WireSamples {
            text: |text| {
                vec![
                    json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                    json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
                    json!({"type": "content_block_stop", "index": 0}),
                ]
            },
            call: |at, id, tool, arguments| {
                let block = json!({"type": "tool_use", "id": id, "name": tool, "input": {}});
                vec![
                    json!({"type": "content_block_start", "index": at, "content_block": block}),
                    json!({"type": "content_block_delta", "index": at, "delta": {"type": "input_json_delta", "partial_json": arguments}}),
                    json!({"type": "content_block_stop", "index": at}),
                ]
            },
            counts: |count| {
                json!({"type": "message_start", "message": {"usage": {
                    "input_tokens": count, "output_tokens": count, "cache_read_input_tokens": count,
                    "cache_creation_input_tokens": count, "output_tokens_details": {"thinking_tokens": count}}}})
            },
            end: |calls| {
                let why = if calls { "tool_use" } else { "end_turn" };
                vec![
                    json!({"type": "message_delta", "delta": {"stop_reason": why}}),
                    json!({"type": "message_stop"}),
                ]
            },
            done: false,
            call_ids: |sent| [strings(sent, "id"), strings(sent, "tool_use_id")],
        }
    }
}

/// Returns the version of a Claude model from the provider's id: `claude-sonnet-4-5-20250929`,
/// `anthropic/claude-opus-4.6`, `claude-3-7-sonnet` …
pub(super) fn claude_version(id: &str) -> Option<(u32, u32)> {
    let (_, rest) = id.split_once("claude")?;
    let number = |word: &str| -> Option<u32> {
        // Longer ones are dates.
        let word = Some(word).filter(|word| word.len() <= 2)?;
        word.parse().ok()
    };
    let mut words = rest.split(|c: char| !c.is_ascii_alphanumeric());
    let major = words.find_map(|word| number(word.strip_prefix('v').unwrap_or(word)))?;
    // Bedrock's own versions of a model begin with a v.
    let minor = words.next().and_then(number).unwrap_or(0);
    Some((major, minor))
}

#[cfg(test)]
mod tests;
