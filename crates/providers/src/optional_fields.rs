//! Optional fields of requests that some servers reject. A request means the same without them, so
//! the session repeats it without the field that an error names: [`rejected_field`] finds the field,
//! `remove_fields` removes it from the body.

use serde_json::{Map, Value};

use super::Error;
use super::error_path::{DECLARATION_LISTS, MESSAGE_LISTS, TOOL_LISTS, find_index};

/// The optional fields, as paths in the body; a path comes before the paths that it begins with.
/// Not optional are: messages, tools, schemas, limits, and `store`, because OpenAI stores the
/// conversation without it.
const OPTIONAL_FIELDS: [&str; 30] = [
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

/// Phrases of errors about a field that the server does not accept, in lower case.
const REJECTION_PHRASES: [&str; 18] = [
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

/// Parts of errors about fields inside of the conversation or of tools, in notations without an
/// index.
const NESTED_FIELD_PREFIXES: [&str; 7] = [
    "messages.",
    "messages[",
    "input[",
    "contents[",
    "tools.",
    "tools[",
    "schema",
];

/// True if the message of an error, in lower case, is about a field inside of the conversation or of
/// a tool.
fn is_about_nested_field(folded: &str) -> bool {
    let mut lists = MESSAGE_LISTS
        .iter()
        .chain(&TOOL_LISTS)
        .chain(&DECLARATION_LISTS);
    NESTED_FIELD_PREFIXES
        .iter()
        .any(|part| folded.contains(part))
        || lists.any(|list| find_index(folded, list).is_some())
}

/// Returns the optional field that an error of the provider rejects. `None` if the error is another
/// one, or the field is already among the omitted ones.
pub fn rejected_field(error: &Error, omitted: &[&str]) -> Option<&'static str> {
    let Error::BadRequest(reason) = error else {
        return None;
    };
    let folded = reason.to_ascii_lowercase();
    let has = |any: &[&str]| any.iter().any(|part| folded.contains(part));
    if !has(&REJECTION_PHRASES) || is_about_nested_field(&folded) {
        return None;
    }
    OPTIONAL_FIELDS
        .into_iter()
        .filter(|field| !omitted.contains(field))
        .find(|field| names_field(reason, field))
}

/// True if the value of a field depends on the chosen effort, so that the provider may accept
/// another effort.
pub fn depends_on_effort(field: &str) -> bool {
    const EFFORT_FIELDS: [&str; 8] = [
        "reasoning.effort",
        "output_config.effort",
        "reasoning_effort",
        "output_config",
        "enable_thinking",
        "thinkingConfig",
        "reasoning",
        "thinking",
    ];
    EFFORT_FIELDS.contains(&field)
}

/// True if a text contains the name of a field as a separate word. A name that is also an ordinary
/// word must be in quotation marks, before a colon, or before a field inside of it
/// (`thinking.type`).
fn names_field(text: &str, field: &str) -> bool {
    let is_ordinary_word =
        field != "temperature" && field.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(field).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let mut rest = text[at + field.len()..].chars();
        let after = rest.next();
        let is_outer = after == Some('.') && rest.next().is_some_and(is_name_char);
        let is_word = !before.is_some_and(is_name_char) && !after.is_some_and(is_name_char);
        let is_quoted = before.is_some_and(|c| matches!(c, '\'' | '"' | '`' | '“'));
        is_word && (!is_ordinary_word || is_quoted || is_outer || after == Some(':'))
    })
}

/// Removes fields, given as paths, from a body; also the objects that become empty.
pub(crate) fn remove_fields(body: &mut Map<String, Value>, omitted: &[&str]) {
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
            assert_eq!(rejected_field(&whole, &[]), expected, "{reason}");
            let Some(field) = expected else { continue };
            assert_ne!(rejected_field(&whole, &[field]), expected, "{reason}");
        }
        let busy = Error::Network("Unknown parameter: 'top_k'.".into());
        assert_eq!(rejected_field(&busy, &[]), None);
    }

    #[test]
    fn omitted_fields_are_removed() {
        let body = json!({"model": "m", "top_k": 1, "reasoning": {"effort": "low", "summary": "auto"}, "text": {"verbosity": "low"}});
        let Value::Object(mut body) = body else {
            panic!("no object");
        };
        remove_fields(
            &mut body,
            &["top_k", "reasoning.summary", "text.verbosity", "usage"],
        );
        assert_eq!(
            Value::Object(body),
            json!({"model": "m", "reasoning": {"effort": "low"}})
        );
    }
}
