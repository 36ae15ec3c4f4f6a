//! Optional fields of requests that some servers reject. A request means the same without them, so
//! it can be repeated without the one that an error names.

use serde_json::{Map, Value};

use super::Error;
use super::error_path::{DECLARATIONS, MESSAGES, TOOLS, index_in};

/// The fields, as paths in the body; a longer path comes before its beginning. Not among them:
/// messages, tools, schemas, limits, and `store`, whose default at OpenAI is to store the
/// conversation.
const FIELDS: [&str; 30] = [
    "reasoning.effort",
    "reasoning.summary",
    "text.verbosity",
    "thinking.display",
    "output_config.effort",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
    "safety_identifier",
    "service_tier",
    "stream_options",
    "reasoning_effort",
    "output_config",
    "enable_thinking",
    "chat_template_args",
    "chat_template_kwargs",
    "thinkingConfig",
    "temperature",
    "top_p",
    "topP",
    "top_k",
    "topK",
    "logit_bias",
    "cache_control",
    "verbosity",
    "reasoning",
    "thinking",
    "include",
    "usage",
    "text",
];

/// Phrases of errors about a field that the server does not accept.
const REJECTIONS: [&str; 18] = [
    "unknown",
    "unrecognized",
    "unrecognised",
    "not recognized",
    "unsupported",
    "not support",
    "n't support",
    "not permitted",
    "not allowed",
    "not accept",
    "extra inputs",
    "extra fields",
    "additional properties",
    "unexpected",
    "deprecated",
    "cannot find field",
    "no such",
    "does not match any of the expected",
];

/// Parts of errors about fields inside of the conversation or of tools, if they name no index.
const INSIDE: [&str; 7] = [
    "messages.",
    "messages[",
    "input[",
    "contents[",
    "tools.",
    "tools[",
    "schema",
];

/// Returns whether an error is about a field inside of the conversation or of a tool.
fn is_inside(folded: &str) -> bool {
    let mut lists = MESSAGES.iter().chain(&TOOLS).chain(&DECLARATIONS);
    INSIDE.iter().any(|part| folded.contains(part))
        || lists.any(|list| index_in(folded, list).is_some())
}

/// Returns the optional field that a provider's error rejects, unless it is omitted already.
pub fn rejected(error: &Error, omitted: &[&str]) -> Option<&'static str> {
    let Error::BadRequest(reason) = error else {
        return None;
    };
    let folded = reason.to_ascii_lowercase();
    let has = |any: &[&str]| any.iter().any(|part| folded.contains(part));
    if !has(&REJECTIONS) || is_inside(&folded) {
        return None;
    }
    FIELDS
        .into_iter()
        .filter(|field| !omitted.contains(field))
        .find(|field| names(reason, field))
}

/// Returns whether the value of a field follows the chosen effort, so that another effort may be
/// accepted.
pub fn depends_on_effort(field: &str) -> bool {
    const OF_EFFORT: [&str; 8] = [
        "reasoning.effort",
        "output_config.effort",
        "reasoning_effort",
        "output_config",
        "enable_thinking",
        "thinkingConfig",
        "reasoning",
        "thinking",
    ];
    OF_EFFORT.contains(&field)
}

/// Looks for a field in a text: as a separate word, and in quotation marks, as a heading or with a
/// field inside of it (`thinking.type`) if it also is a word of ordinary sentences.
fn names(text: &str, field: &str) -> bool {
    let is_plain = field != "temperature" && field.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(field).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let mut rest = text[at + field.len()..].chars();
        let after = rest.next();
        let is_outer = after == Some('.') && rest.next().is_some_and(is_of_name);
        let is_word = !before.is_some_and(is_of_name) && !after.is_some_and(is_of_name);
        let is_quoted = before.is_some_and(|c| matches!(c, '\'' | '"' | '`' | '“'));
        is_word && (!is_plain || is_quoted || is_outer || after == Some(':'))
    })
}

/// Removes fields from a body.
pub(crate) fn omit(body: &mut Map<String, Value>, omitted: &[&str]) {
    for path in omitted {
        match path.split_once('.') {
            None => drop(body.shift_remove(*path)),
            Some((outer, inner)) => {
                let Some(Value::Object(object)) = body.get_mut(outer) else {
                    continue;
                };
                object.shift_remove(inner);
                if object.is_empty() {
                    body.shift_remove(outer);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rejected_field_is_found_in_error() {
        let table = [
            (
                "Unknown parameter: 'prompt_cache_key'.",
                Some("prompt_cache_key"),
            ),
            (
                "Unsupported parameter: 'temperature' is not supported with this model.",
                Some("temperature"),
            ),
            (
                "Unrecognized request argument supplied: reasoning_effort",
                Some("reasoning_effort"),
            ),
            (
                "Unsupported parameter: 'reasoning.summary' is not supported with this model.",
                Some("reasoning.summary"),
            ),
            ("thinking: Extra inputs are not permitted", Some("thinking")),
            (
                "thinking.type: Input tag 'adaptive' found using 'type' does not match any of the expected tags: 'disabled', 'enabled'",
                Some("thinking"),
            ),
            (
                "property 'stream_options' is unsupported",
                Some("stream_options"),
            ),
            (
                "Invalid JSON payload received. Unknown name \"thinkingConfig\" at 'generation_config': Cannot find field.",
                Some("thinkingConfig"),
            ),
            (
                "`temperature` is deprecated for this model.",
                Some("temperature"),
            ),
            (
                "chat.completions() got an unexpected keyword argument 'top_k'",
                Some("top_k"),
            ),
            // About something that is needed, or about no field.
            (
                "registry.ollama.ai/library/gemma3:1b does not support tools",
                None,
            ),
            ("This model does not support reasoning or thinking.", None),
            ("Unknown parameter: 'max_completion_tokens'.", None),
            (
                "messages.3.content.0.thinking: Extra inputs are not permitted",
                None,
            ),
            ("Unknown parameter: 'tools[0].temperature'.", None),
            (
                r#"{"loc": ["body", "tools", 0, "temperature"], "msg": "Extra inputs are not permitted"}"#,
                None,
            ),
            (
                r#"{"loc":["body","messages",3,"thinking"],"msg":"Extra inputs are not permitted"}"#,
                None,
            ),
            (
                "body -> input -> 2 -> temperature: extra fields not permitted",
                None,
            ),
            ("#/functions/1/temperature: not allowed", None),
            ("input.1.top_p: unknown field", None),
            (
                "Invalid schema for function 'x': 'text' is not permitted",
                None,
            ),
            ("temperature must be between 0 and 1", None),
            ("The option unknown_reasoning_effort is unknown", None),
        ];
        for (reason, expected) in table {
            let whole = Error::BadRequest(format!("Acme answered 400 Bad Request: {reason}"));
            assert_eq!(rejected(&whole, &[]), expected, "{reason}");
            let Some(field) = expected else { continue };
            assert_ne!(rejected(&whole, &[field]), expected, "{reason}");
        }
        let busy = Error::Network("Unknown parameter: 'top_k'.".into());
        assert_eq!(rejected(&busy, &[]), None);
    }

    #[test]
    fn omitted_fields_are_removed() {
        let body = json!({"model": "m", "top_k": 1, "reasoning": {"effort": "low", "summary": "auto"}, "text": {"verbosity": "low"}});
        let Value::Object(mut body) = body else {
            panic!("no object");
        };
        omit(
            &mut body,
            &["top_k", "reasoning.summary", "text.verbosity", "usage"],
        );
        assert_eq!(
            Value::Object(body),
            json!({"model": "m", "reasoning": {"effort": "low"}})
        );
    }
}
