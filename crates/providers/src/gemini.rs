//! The wire format of Google's generateContent API ([`Gemini`]), which the Gemini API and Vertex
//! offer.
//!
//! `encode.rs` writes requests, `schema.rs` reduces tool schemas to the subset that the API accepts,
//! `decode.rs` reads answers. A thought signature is sent back with the part that it came with. The
//! key is sent in a header, never in the address.

mod decode;
mod encode;
mod schema;

use serde_json::{Map, Value, json};

use super::request_target::{RequestOptions, RequestTarget};
use super::wire_format::{Decoder, HttpCall, SdkPackage, WireFormat, single_entry};
use super::{Error, Model, Request};

/// The wire format of the generateContent API.
#[derive(Debug, Clone, Copy, Default)]
pub struct Gemini;

impl WireFormat for Gemini {
    fn name(&self) -> &'static str {
        "gemini"
    }

    fn package(&self) -> Option<SdkPackage> {
        Some(SdkPackage {
            name: "@ai-sdk/google",
            address: "https://generativelanguage.googleapis.com/v1beta",
            variable: "",
        })
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
        Box::new(decode::GeminiDecoder::new(&target.name))
    }

    fn efforts(&self, model: &Model) -> Vec<String> {
        let names: &[&str] = match (generation(&model.api_id), model.api_id.contains("flash")) {
            (Some(3..), true) => &["minimal", "low", "medium", "high"],
            (Some(3..), false) => &["low", "high"],
            _ => &["high", "max"],
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn effort(&self, model: &Model, _target: &RequestTarget, effort: &str) -> Map<String, Value> {
        let config = if generation(&model.api_id) >= Some(3) {
            json!({"includeThoughts": true, "thinkingLevel": effort})
        } else {
            let max_budget = if model.api_id.contains("pro") {
                32_768
            } else {
                24_576
            };
            let budget = match effort {
                "none" => 0,
                "minimal" | "low" => 2_048,
                "medium" => 8_192,
                "high" => 16_000,
                _ => max_budget,
            };
            json!({"includeThoughts": budget > 0, "thinkingBudget": budget})
        };
        single_entry("thinkingConfig", config)
    }

    fn least_effort(&self, model: &Model) -> Option<Map<String, Value>> {
        if generation(&model.api_id) >= Some(3) {
            return None;
        }
        // Pro always thinks; this is its smallest budget.
        let budget = if model.api_id.contains("pro") { 128 } else { 0 };
        Some(single_entry(
            "thinkingConfig",
            json!({"includeThoughts": false, "thinkingBudget": budget}),
        ))
    }

    #[cfg(test)]
    fn samples(&self) -> crate::wire_format::WireSamples {
        use serde_json::{Value, json};

        crate::wire_format::WireSamples {
            text: |text| vec![json!({"candidates": [{"content": {"parts": [{"text": text}]}}]})],
            call: |_, id, tool, arguments| {
                // Here arguments are a JSON value: anything else can only be sent as a string.
                let arguments: Value =
                    serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments));
                vec![
                    json!({"candidates": [{"content": {"parts": [{"functionCall": {"id": id, "name": tool, "args": arguments}}]}}]}),
                ]
            },
            counts: |count| {
                json!({"usageMetadata": {
                    "promptTokenCount": count, "toolUsePromptTokenCount": count, "cachedContentTokenCount": count,
                    "candidatesTokenCount": count, "thoughtsTokenCount": count}})
            },
            end: |_| vec![json!({"candidates": [{"finishReason": "STOP"}]})],
            done: false,
            call_ids: |_| {
                // This format pairs them by order.
                [Vec::new(), Vec::new()]
            },
        }
    }
}

/// Returns the generation of a Gemini model from its id: 2 for `gemini-2.5-pro`.
fn generation(id: &str) -> Option<u32> {
    let (_, rest) = id.split_once("gemini-")?;
    rest.split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// True if Google can search the web for the model with this id.
pub(super) fn can_search_web(id: &str) -> bool {
    generation(id).is_some_and(|generation| generation >= 2)
        && !id.contains("image")
        && !id.contains("tts")
}

#[cfg(test)]
mod tests;
