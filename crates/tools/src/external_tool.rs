//! Common code for the tools of MCP servers and extensions, whose effects are unknown.

use serde_json::{Map, Value};

use crate::{Failure, ToolContext};
use base::text;
use permission::{AccessRequest, Action};

/// Returns the arguments of a call; null means none.
///
/// # Errors
/// A message for the model if they are not an object.
pub fn arguments(tool: &str, input: Value) -> Result<Map<String, Value>, Failure> {
    match input {
        Value::Object(arguments) => Ok(arguments),
        Value::Null => Ok(Map::new()),
        other => Err(Failure::ForModel(format!(
            "The arguments of {tool} must be an object, not {other}."
        ))),
    }
}

/// Returns the title of a call for people: the tool, and its arguments as received.
pub fn title(tool: &str, input: &Value) -> String {
    match input.as_object() {
        Some(arguments) if !arguments.is_empty() => text::title(&format!("{tool} {input}")),
        _ => text::title(tool),
    }
}

/// Returns the access request of a call: for its own permission, and for a read-only agent with a
/// question, whatever the rules allow. `whose` is the tool or server that the reason names.
pub fn access_request(permission: &str, whose: &str, context: &ToolContext) -> AccessRequest {
    let mut request = AccessRequest::new(permission, "*").always("*");
    if context.sandbox_choice.reads_only() {
        let why = format!("the effect of {whose} is unknown, and this agent may only read");
        request.minimum = Some((Action::Ask, why));
    }
    request
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_must_be_an_object_or_null() {
        let given = |input: Value| {
            arguments("acme_look", input)
                .map(Value::Object)
                .map_err(|e| e.to_string())
        };
        assert_eq!(given(json!({"a": 1})), Ok(json!({"a": 1})));
        assert_eq!(given(Value::Null), Ok(json!({})));
        assert_eq!(
            given(json!([1])),
            Err("The arguments of acme_look must be an object, not [1].".to_owned())
        );
    }

    #[test]
    fn title_names_tool_and_arguments() {
        assert_eq!(title("look", &json!({"a": 1})), "look {\"a\":1}");
        assert_eq!(title("look\n", &json!({})), title("look\n", &Value::Null));
    }
}
