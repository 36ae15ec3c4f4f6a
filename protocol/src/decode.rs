//! Messages about texts that do not fit a type, without the values in them. Of a value that may
//! have several forms, serde reports only that none of them fits; here the forms are named.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use agent_client_protocol_schema::v2;

use crate::words::plain_message;

/// Returns the path and the reason if a text does not fit a type.
pub(crate) fn misfit<T: DeserializeOwned>(text: &str) -> Option<String> {
    let e = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_str(text))
        .err()?;
    let path = e.path().to_string();
    let why = e.inner().to_string();
    // The path is more useful than the position in a line that is not displayed.
    let why = why
        .rsplit_once(" at line ")
        .map_or(why.as_str(), |(why, _)| why);
    let why = match why.strip_prefix("data did not match any variant of untagged enum ") {
        Some(name) => unfit(name, &at(text, e.path())),
        // Messages of nested texts have been put into words already, with their own paths.
        None => plain_message(&without_values(why)),
    };
    Some(if path == "." {
        why
    } else {
        format!("{path}: {why}")
    })
}

/// Returns the value at a path of a text; `null` if there is none.
fn at(text: &str, path: &Path) -> Value {
    let mut value: Value = serde_json::from_str(text).unwrap_or_default();
    for segment in path.iter() {
        let member = match segment {
            Segment::Seq { index } => value.get_mut(*index),
            Segment::Map { key } => value.get_mut(key),
            Segment::Enum { .. } | Segment::Unknown => return value,
        };
        value = member.map(Value::take).unwrap_or_default();
    }
    value
}

/// Removes the quoted values that serde includes in its messages, because values can be secrets.
pub(crate) fn without_values(message: &str) -> String {
    let mut out = String::new();
    let mut rest = message;
    // Strings are escaped, so the closing quote is the last one before the comma.
    while let Some(start) = rest.find('"') {
        out.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        out.push('…');
        rest = match rest.rfind('"') {
            Some(end) => &rest[end + 1..],
            None => "",
        };
    }
    out + rest
}

/// A kind of object, by its `type`, with the check that tells why an object is not one.
type Kind = (&'static str, fn(&str) -> Option<String>);

const SERVERS: [Kind; 3] = [
    ("stdio", misfit::<v2::McpServerStdio>),
    ("http", misfit::<v2::McpServerHttp>),
    ("acp", misfit::<v2::McpServerAcp>),
];

const BLOCKS: [Kind; 5] = [
    ("text", misfit::<v2::TextContent>),
    ("image", misfit::<v2::ImageContent>),
    ("audio", misfit::<v2::AudioContent>),
    ("resource_link", misfit::<v2::ResourceLink>),
    ("resource", misfit::<v2::EmbeddedResource>),
];

/// Describes why a value has none of the forms of a type: the expected forms, and the value.
pub(crate) fn unfit(name: &str, value: &Value) -> String {
    match name {
        "McpServer" => unfit_kind(value, &SERVERS),
        "ContentBlock" => unfit_kind(value, &BLOCKS),
        "SessionConfigOptionValue" => unfit_option(value),
        "EmbeddedResourceResource" => {
            // The path to a block of version 1 ends before its members.
            let resource = value.get("resource").unwrap_or(value);
            expected(
                "an object with uri and text, or with uri and blob",
                resource,
            )
        }
        "RequestId" => expected("null, a whole number or a string", value),
        // The names of a set that may grow.
        "LlmProtocol" | "PositionEncodingKind" | "Role" | "SessionArchiveFilter" => {
            expected("a string", value)
        }
        _ => expected(&format!("one of the forms of {name}"), value),
    }
}

fn unfit_kind(value: &Value, kinds: &[Kind]) -> String {
    let named = value.get("type").and_then(Value::as_str);
    let known = kinds.iter().find(|(kind, _)| Some(*kind) == named);
    if let Some((kind, why)) = known
        && let Some(why) = why(&value.to_string())
    {
        return format!("as type {kind}: {why}");
    }
    let names: Vec<&str> = kinds.iter().map(|(kind, _)| *kind).collect();
    let names = names.join(", ");
    match value.get("type") {
        Some(found) => format!("type: {}", expected(&format!("one of {names}"), found)),
        None if value.is_object() => format!("missing field `type`, expected one of {names}"),
        None => expected(&format!("an object with a type of {names}"), value),
    }
}

/// Describes why the params of `session/set_config_option` have no value. The value is a member of
/// the params themselves.
fn unfit_option(params: &Value) -> String {
    let wanted = if params.get("type").is_some_and(|kind| kind == "boolean") {
        "true or false, as the type is boolean"
    } else {
        "a string, or true or false with the type boolean"
    };
    match params.get("value") {
        Some(value) => format!("value: {}", expected(wanted, value)),
        None => format!("missing field `value`, expected {wanted}"),
    }
}

fn expected(wanted: &str, value: &Value) -> String {
    format!("expected {wanted}, found {}", found(value))
}

/// Describes a value. Texts are left out, because they can be secrets.
fn found(value: &Value) -> String {
    /// The number of members that are named.
    const MAX_NAMED: usize = 8;
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("`{value}`"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(members) if members.is_empty() => "an empty object".to_owned(),
        Value::Object(members) => {
            let names: Vec<&str> = members.keys().map(String::as_str).take(MAX_NAMED).collect();
            format!("an object with {}", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::{self, v1};

    #[test]
    fn message_does_not_contain_values() {
        assert_eq!(
            without_values(r#"invalid type: string "a\"b", expected u16"#),
            "invalid type: string …, expected u16"
        );
        assert_eq!(
            misfit::<(u16,)>(r#"["hunter2"]"#).as_deref(),
            Some("[0]: expected a whole number from 0 to 65535, found a string")
        );
    }

    #[test]
    fn misfits_name_the_path_what_was_found_and_what_is_expected() {
        type Check = fn(&str) -> Option<String>;
        let option: Check = misfit::<v1::SetSessionConfigOptionRequest>;
        let option_v2: Check = misfit::<v2::SetSessionConfigOptionRequest>;
        let open: Check = misfit::<v2::NewSessionRequest>;
        let prompt: Check = misfit::<acp::Prompt>;
        let prompt_v2: Check = misfit::<acp::PromptV2>;
        let endpoint: Check = misfit::<v1::SetProviderRequest>;
        let endpoint_v2: Check = misfit::<v2::SetProviderRequest>;
        let cancel: Check = misfit::<v1::CancelRequestNotification>;
        let table: [(Check, &str, &str); 21] = [
            (
                option,
                r#"{"sessionId":"s","configId":"mode"}"#,
                "missing field `value`, expected a string, or true or false with the type boolean",
            ),
            (
                option,
                r#"{"sessionId":"s","configId":"mode","value":5}"#,
                "value: expected a string, or true or false with the type boolean, found `5`",
            ),
            (
                option,
                r#"{"sessionId":"s","configId":"mode","type":"boolean","value":{"a":1}}"#,
                "value: expected true or false, as the type is boolean, found an object with a",
            ),
            (
                option_v2,
                r#"{"sessionId":"s","configId":"mode","value":"plan"}"#,
                "missing field `type`",
            ),
            (
                option_v2,
                r#"{"sessionId":"s","configId":"mode","type":"id"}"#,
                "missing field `value`",
            ),
            (
                open,
                r#"{"cwd":"/","mcpServers":[{"type":"acp","name":"mine"}]}"#,
                "mcpServers[0]: as type acp: missing field `serverId`",
            ),
            (
                open,
                r#"{"cwd":"/","mcpServers":[{"type":"stdio","name":"mine","command":5}]}"#,
                "mcpServers[0]: as type stdio: command: expected a string, found `5`",
            ),
            (
                open,
                r#"{"cwd":"/","mcpServers":[{"type":"http","name":"mine"}]}"#,
                "mcpServers[0]: as type http: missing field `url`",
            ),
            (
                open,
                r#"{"cwd":"/","mcpServers":[{"name":"mine","command":"x"}]}"#,
                "mcpServers[0]: missing field `type`, expected one of stdio, http, acp",
            ),
            (
                open,
                r#"{"cwd":"/","mcpServers":[{"type":7}]}"#,
                "mcpServers[0]: type: expected one of stdio, http, acp, found `7`",
            ),
            (
                open,
                r#"{"cwd":"/","mcpServers":["hunter2"]}"#,
                "mcpServers[0]: expected an object with a type of stdio, http, acp, found a string",
            ),
            (
                prompt_v2,
                r#"{"sessionId":"s","prompt":[{"type":"text"}]}"#,
                "prompt[0]: as type text: missing field `text`",
            ),
            (
                prompt_v2,
                r#"{"sessionId":"s","prompt":[{"type":"text","text":"a"},{"type":"image","data":""}]}"#,
                "prompt[1]: as type image: missing field `mimeType`",
            ),
            (
                prompt_v2,
                r#"{"sessionId":"s","prompt":[{"text":"hunter2"}]}"#,
                "prompt[0]: missing field `type`, expected one of text, image, audio, resource_link, resource",
            ),
            (
                prompt_v2,
                r#"{"sessionId":"s","prompt":[{"type":"resource","resource":{"uri":"file:///a"}}]}"#,
                "prompt[0]: as type resource: resource: expected an object with uri and text, or with uri and blob, found an object with uri",
            ),
            (
                prompt,
                r#"{"sessionId":"s","prompt":[{"type":"resource","resource":{"uri":"file:///a"}}]}"#,
                "prompt[0]: expected an object with uri and text, or with uri and blob, found an object with uri",
            ),
            (
                prompt,
                r#"{"sessionId":"s","prompt":[{"type":"text"}]}"#,
                "prompt[0]: missing field `text`",
            ),
            (
                endpoint,
                r#"{"providerId":"own","apiType":7,"baseUrl":"http://a"}"#,
                "apiType: expected a string, found `7`",
            ),
            (
                endpoint_v2,
                r#"{"providerId":"own","apiType":["openai"],"baseUrl":"http://a"}"#,
                "apiType: expected a string, found a list",
            ),
            (
                cancel,
                r#"{"requestId":1.5}"#,
                "requestId: expected null, a whole number or a string, found `1.5`",
            ),
            (
                cancel,
                r#"{"requestId":{}}"#,
                "requestId: expected null, a whole number or a string, found an empty object",
            ),
        ];
        for (check, params, wanted) in table {
            assert_eq!(check(params).as_deref(), Some(wanted), "{params}");
        }
    }
}
