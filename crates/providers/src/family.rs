//! Request settings that the makers of model families recommend: sampling parameters
//! ([`recommended_sampling`]) and options that enable reasoning at some providers
//! ([`recommended_options`]). The figures are those that OpenCode uses.

use serde_json::{Map, Value, json};

use super::Model;
use super::request_target::RequestTarget;
use super::wire_format::single_entry;

/// Recommended sampling parameters; `None` leaves a parameter to the server.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sampling {
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub top_k: Option<u64>,
}

impl Sampling {
    fn new(temperature: Option<f64>, top_p: Option<f64>, top_k: Option<u64>) -> Self {
        Self {
            temperature,
            top_p,
            top_k,
        }
    }
}

/// Returns the recommended sampling parameters of a model; `api_id` is the provider's id of it.
pub fn recommended_sampling(api_id: &str) -> Sampling {
    let id = api_id.to_lowercase();
    let has = |names: &[&str]| names.iter().any(|name| id.contains(name));
    if has(&["gemini-2.5", "gemini-3"]) {
        Sampling::new(Some(1.0), Some(0.95), Some(64))
    } else if has(&["gemini"]) {
        Sampling::new(None, None, Some(64))
    } else if has(&["glm-4.6", "glm-4.7"]) {
        Sampling::new(Some(1.0), None, None)
    } else if has(&["minimax-m2."]) {
        Sampling::new(Some(1.0), Some(0.95), Some(40))
    } else if has(&["minimax-m2"]) {
        Sampling::new(Some(1.0), Some(0.95), Some(20))
    } else if has(&["kimi-k2.5", "kimi-k2p5", "kimi-k2-5"]) {
        Sampling::new(Some(1.0), Some(0.95), None)
    } else if has(&["kimi-k2"]) {
        Sampling::new(
            Some(if has(&["thinking", "k2."]) { 1.0 } else { 0.6 }),
            None,
            None,
        )
    } else if has(&["deepseek-v4-flash"]) {
        Sampling::new(None, Some(0.95), None)
    } else {
        Sampling::default()
    }
}

/// Returns the options that a provider needs to enable a model's reasoning, or to report the usage.
pub fn recommended_options(model: &Model, target: &RequestTarget) -> Map<String, Value> {
    let id = model.api_id.to_lowercase();
    match target.provider.as_str() {
        "zai" | "zai-coding-plan" | "zhipuai" | "zhipuai-coding-plan" if model.reasoning => {
            single_entry(
                "thinking",
                json!({"type": "enabled", "clear_thinking": false}),
            )
        }
        "alibaba-cn" if model.reasoning && !id.contains("kimi-k2-thinking") => {
            single_entry("enable_thinking", true)
        }
        "baseten" if model.reasoning => {
            single_entry("chat_template_args", json!({"enable_thinking": true}))
        }
        "openrouter" => single_entry("usage", json!({"include": true})),
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_follows_model_family() {
        let cases = [
            ("claude-sonnet-4-5", None, None, None),
            ("gpt-5", None, None, None),
            ("google/gemini-2.5-pro", Some(1.0), Some(0.95), Some(64)),
            ("gemini-2.0-flash", None, None, Some(64)),
            ("zai-org/GLM-4.6", Some(1.0), None, None),
            ("MiniMax-M2", Some(1.0), Some(0.95), Some(20)),
            ("MiniMax-M2.1", Some(1.0), Some(0.95), Some(40)),
            ("moonshotai/kimi-k2", Some(0.6), None, None),
            ("kimi-k2-thinking", Some(1.0), None, None),
            ("kimi-k2.5", Some(1.0), Some(0.95), None),
        ];
        for (id, temperature, top_p, top_k) in cases {
            assert_eq!(
                recommended_sampling(id),
                Sampling {
                    temperature,
                    top_p,
                    top_k
                },
                "{id}"
            );
        }
    }
}
