//! The wire format of OpenAI's Responses API ([`Responses`]).
//!
//! `encode.rs` writes requests, `decode.rs` reads answers. The provider stores nothing
//! (`store: false`): every request contains the whole conversation, with encrypted reasoning and
//! every item as it arrived.

mod decode;
mod encode;

use serde_json::{Map, Value, json};

use super::request_target::{RequestOptions, RequestTarget};
use super::wire_format::{Decoder, HttpCall, SdkPackage, WireFormat};
use super::{Error, Model, Request};

/// The wire format of the Responses API.
#[derive(Debug, Clone, Copy, Default)]
pub struct Responses;

impl WireFormat for Responses {
    fn name(&self) -> &'static str {
        "responses"
    }

    fn package(&self) -> Option<SdkPackage> {
        Some(SdkPackage {
            name: "@ai-sdk/openai",
            address: "https://api.openai.com/v1",
            variable: "OPENAI_BASE_URL",
        })
    }

    fn method(&self) -> Option<&'static str> {
        Some("/responses")
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
        Box::new(decode::ResponsesDecoder::new(&target.name))
    }

    fn efforts(&self, model: &Model) -> Vec<String> {
        let id = model.api_id.to_lowercase();
        let names: &[&str] = match gpt_version(&id) {
            _ if id.contains("deep-research") => &["medium"],
            Some((5, _)) if id.contains("-chat") => &["medium"],
            Some((5, 0)) if id.contains("codex") => &["low", "medium", "high"],
            Some((5, 0)) if id.contains("-pro") => &["high"],
            Some((5, 0)) => &["minimal", "low", "medium", "high"],
            Some((5, 1)) if id.contains("codex-max") => &["low", "medium", "high", "xhigh"],
            Some((5, 1)) if id.contains("codex") => &["low", "medium", "high"],
            Some((5, 1)) => &["none", "low", "medium", "high"],
            Some((5.., _)) if id.contains("codex") => &["low", "medium", "high", "xhigh"],
            Some((5.., _)) if id.contains("-pro") => &["medium", "high", "xhigh"],
            Some((5.., _)) => &["none", "low", "medium", "high", "xhigh"],
            _ => &["low", "medium", "high"],
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn effort(&self, _model: &Model, _target: &RequestTarget, effort: &str) -> Map<String, Value> {
        let options = json!({"reasoning": {"effort": effort, "summary": "auto"}});
        match options {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    #[cfg(test)]
    fn samples(&self) -> crate::wire_format::WireSamples {
        use crate::conversations::strings;
        use serde_json::{Value, json};

        crate::wire_format::WireSamples {
            text: |text| {
                let of = |kind: &str, rest: Value| {
                    let mut event = json!({"type": kind, "output_index": 0, "content_index": 0, "item_id": "msg_1"});
                    event
                        .as_object_mut()
                        .unwrap()
                        .extend(rest.as_object().unwrap().clone());
                    event
                };
                vec![of("response.output_text.delta", json!({"delta": text}))]
            },
            call: |at, id, tool, arguments| {
                let item = json!({"type": "function_call", "id": format!("fc_{at}"), "call_id": id, "name": tool, "arguments": arguments});
                vec![json!({"type": "response.output_item.done", "output_index": at, "item": item})]
            },
            // They come with the end.
            counts: |count| {
                json!({"type": "response.completed", "response": {"status": "completed", "usage": {
                    "input_tokens": count, "output_tokens": count,
                    "input_tokens_details": {"cached_tokens": count, "cache_write_tokens": count},
                    "output_tokens_details": {"reasoning_tokens": count}}}})
            },
            end: |_| {
                vec![json!({"type": "response.completed", "response": {"status": "completed"}})]
            },
            done: false,
            call_ids: |sent| {
                // A call and its result have the same member.
                let ids = strings(sent, "call_id");
                let made = ids.iter().copied().skip(1).step_by(2).collect();
                let answered = ids.into_iter().step_by(2).collect();
                [made, answered]
            },
        }
    }
}

/// Returns the version of a GPT model from its id: `gpt-5`, `gpt-5.1-codex`, `openai/gpt-5.2`.
fn gpt_version(id: &str) -> Option<(u32, u32)> {
    let (_, rest) = id.split_once("gpt-")?;
    let version: String = rest
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let (major, minor) = version.split_once('.').unwrap_or((&version, "0"));
    Some((major.parse().ok()?, minor.parse().unwrap_or(0)))
}

/// True if OpenAI can search the web for the model with this id.
pub(super) fn can_search_web(id: &str) -> bool {
    let is_reasoning_model = ["o3", "o4"].iter().any(|family| id.starts_with(family));
    (is_reasoning_model
        || gpt_version(id).is_some_and(|version| version >= (4, 1))
        || id.contains("gpt-4o"))
        && !["nano", "audio", "realtime", "codex-mini"]
            .iter()
            .any(|kind| id.contains(kind))
}

#[cfg(test)]
mod tests;
