//! Repair of calls as models make them: with the tool and argument names of other agents, numbers
//! and lists as text, and superfluous fields. If a call has only one meaning it is repaired before
//! anything is judged or shown, so the judged call is the one that runs. A name that is merely
//! similar is never taken for another.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::aliases::{Aliases, PATH_FIELDS};
use crate::files::read::LISTED_DIRECTORY_FIELDS;
use crate::registry::ToolProperties;
use crate::{AcceptedArguments, AnyTool, BUILT_IN_TOOLS, Tool};
use base::text;
use base::text::surrogates;
use events::ToolKind;

/// The prefixes of tool names in the formats that some models were trained on.
const NAME_PREFIXES: &[&str] = &["functions.", "default_api.", "default_api:", "tools."];

/// Fields that comment on the call and are ignored by the tool.
const COMMENT_FIELDS: &[&str] = &[
    "description",
    "explanation",
    "reason",
    "reasoning",
    "thought",
    "thoughts",
    "thinking",
    "title",
    "summary",
    "comment",
    "purpose",
    "intent",
    "justification",
    "activeform",
    "id",
    "toolsummary",
    "toolcallid",
];

/// Returns a name in lower case without separators.
pub(super) fn folded(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// Returns the offered tool of this name: an exact match, a variant in case or separators (`Read`,
/// `TodoWrite`), or a name in other agents (`str_replace`, `view`) if the arguments fit exactly one
/// tool with such a name.
pub fn find_tool(
    tools: &[Arc<dyn AnyTool>],
    name: &str,
    input: &Value,
) -> Option<Arc<dyn AnyTool>> {
    if let Some(tool) = find_by_spelling(tools, name) {
        return Some(tool);
    }
    let fit = |tool: &Arc<dyn AnyTool>| {
        tool.accept(input.clone())
            .is_ok_and(|accepted| accepted.is_exact)
    };
    let mut fitting = tools_of_other_agents(tools, name).filter(fit);
    let tool = fitting.next()?;
    if fitting.next().is_some() {
        None
    } else {
        Some(tool)
    }
}

/// The names of calls that list a directory. Without a path they mean the working directory.
const LISTING_NAMES: &[&str] = &["list", "ls", "listdir", "listdirectory", "listfiles", "dir"];

/// Returns the arguments of a call that lists the working directory without naming it, with the
/// path added; `None` for any other call.
pub fn listing_arguments(tools: &[Arc<dyn AnyTool>], name: &str, input: &Value) -> Option<Value> {
    let is_listing = LISTING_NAMES.contains(&folded(without_prefix(name)).as_str())
        && find_by_spelling(tools, name).is_none();
    if !is_listing {
        return None;
    }
    let fields = input.as_object()?;
    let is_path = |name: &String| {
        let name = folded(name);
        PATH_FIELDS.contains(&&*name) || LISTED_DIRECTORY_FIELDS.contains(&&*name)
    };
    if fields.keys().any(is_path) {
        return None;
    }
    let mut fields = fields.clone();
    fields.insert("filePath".into(), ".".into());
    Some(Value::Object(fields))
}

/// The maximum number of calls in one that wraps them.
const MAX_WRAPPED_CALLS: usize = 64;

/// A call that another one wraps.
#[derive(Debug, Clone, PartialEq)]
pub struct WrappedCall {
    pub tool: String,
    pub input: Value,
}

/// Returns the calls, 1 to `MAX_WRAPPED_CALLS`, that a call of this name and these arguments
/// wraps: `multi_tool_use.parallel`, which models call from habit. `None` if it is not such a call,
/// if an entry of it is not a call, or if there are too many.
pub fn wrapped_calls(
    tools: &[Arc<dyn AnyTool>],
    name: &str,
    input: &Value,
) -> Option<Vec<WrappedCall>> {
    if folded(without_prefix(name)) != "multitooluseparallel"
        || find_by_spelling(tools, name).is_some()
    {
        return None;
    }
    let input = match input {
        Value::String(raw) => parse(raw).ok()?,
        other => other.clone(),
    };
    let uses = match &input["tool_uses"] {
        Value::String(raw) => parse(raw).ok()?,
        other => other.clone(),
    };
    let one = |one: &Value| {
        let field = |names: &[&str]| names.iter().find_map(|name| one.get(name)).cloned();
        let tool = field(&["recipient_name", "tool_name", "name"])?;
        Some(WrappedCall {
            tool: tool.as_str()?.to_owned(),
            input: field(&["parameters", "arguments", "input"])
                .unwrap_or_else(|| Value::Object(Map::new())),
        })
    };
    let calls: Option<Vec<WrappedCall>> = uses.as_array()?.iter().map(one).collect();
    calls.filter(|calls| (1..=MAX_WRAPPED_CALLS).contains(&calls.len()))
}

/// Returns the kind of work of a call of this name, before its arguments are known; the default
/// kind if it is unknown or ambiguous.
pub fn tool_kind(tools: &[Arc<dyn AnyTool>], name: &str) -> ToolKind {
    let mut kinds = find_by_spelling(tools, name)
        .into_iter()
        .chain(tools_of_other_agents(tools, name))
        .map(|tool| tool.kind());
    let first = kinds.next().unwrap_or_default();
    if kinds.all(|kind| kind == first) {
        first
    } else {
        ToolKind::default()
    }
}

/// Returns the tool of this name, ignoring case, separators and known prefixes.
fn find_by_spelling(tools: &[Arc<dyn AnyTool>], name: &str) -> Option<Arc<dyn AnyTool>> {
    let find = |name: &str| tools.iter().find(|tool| tool.name() == name).cloned();
    let bare = without_prefix(name);
    find(name)
        .or_else(|| find(&name.to_lowercase()))
        .or_else(|| find(bare))
        .or_else(|| {
            let bare = folded(bare);
            BUILT_IN_TOOLS
                .iter()
                .find(|tool| folded(tool.name) == bare)
                .and_then(|tool| find(tool.name))
        })
}

/// Removes a known prefix from a name.
fn without_prefix(name: &str) -> &str {
    NAME_PREFIXES
        .iter()
        .find_map(|before| name.strip_prefix(before))
        .unwrap_or(name)
}

/// Returns the tools that have this name in other agents, ignoring case and separators.
fn tools_of_other_agents(
    tools: &[Arc<dyn AnyTool>],
    name: &str,
) -> impl Iterator<Item = Arc<dyn AnyTool>> {
    let name = folded(without_prefix(name));
    let named = BUILT_IN_TOOLS
        .iter()
        .filter(|tool| tool.aliases.tool_names.contains(&name.as_str()));
    let find = |wanted: &ToolProperties| {
        tools
            .iter()
            .find(|tool| tool.name() == wanted.name)
            .cloned()
    };
    named.filter_map(find).collect::<Vec<_>>().into_iter()
}

/// Returns the message to a model that calls an unknown tool.
pub fn unknown_tool(tools: &[Arc<dyn AnyTool>], name: &str) -> String {
    let all: Vec<&str> = tools
        .iter()
        .filter(|tool| tool.listed())
        .map(|tool| tool.name())
        .collect();
    if all.is_empty() {
        return "No tools can be called now. Answer in text.".into();
    }
    let meant: Vec<String> = tools_of_other_agents(tools, name)
        .map(|tool| {
            format!(
                " Did you mean {}? It takes {}.",
                tool.name(),
                describe_arguments(&tool.schema())
            )
        })
        .collect();
    format!(
        "There is no tool named \"{}\". Your tools are {}.{}",
        text::title(name),
        all.join(", "),
        meant.concat()
    )
}

/// Converts the arguments of a call to the tool's schema.
///
/// # Errors
/// A message on fields that have two values or a likely typing error, and on values that
/// do not fit.
pub(super) fn accept<T: Tool>(input: Value, schema: &Value) -> Result<AcceptedArguments, String> {
    let tool = T::NAME;
    let names = &T::ALIASES;
    let other = input.as_object().and_then(T::other_form);
    let schema = other.as_ref().unwrap_or(schema);
    let mut notes = Vec::new();
    let input = match input {
        Value::Object(mut fields) => {
            for alias in names.field_values {
                let is_match = |(name, value): &(&String, &Value)| {
                    let value = value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned);
                    folded(name) == alias.field
                        && (alias.value == "*" || folded(&value) == alias.value)
                };
                if let Some(name) = fields.iter().find(is_match).map(|(name, _)| name.clone()) {
                    fields.remove(&name);
                    if let Some(own) = alias.sets {
                        fields.entry(own).or_insert(Value::Bool(true));
                    }
                }
            }
            Value::Object(convert_object(fields, schema, names, &mut notes)?)
        }
        other => convert(other, schema, names)?,
    };
    let mut remarks = Vec::new();
    let input = match input {
        Value::Object(mut fields) => {
            T::repair(&mut fields, &mut remarks);
            Value::Object(fields)
        }
        other => other,
    };
    let known: Vec<&str> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    if !notes.is_empty() {
        notes = vec![format!(
            "{tool} has no {}, which {} left out; it takes {}.",
            notes.join(" or "),
            if notes.len() > 1 { "were" } else { "was" },
            known.join(", ")
        )];
    }
    crate::input::check(&input, schema)?;
    let is_exact = notes.is_empty();
    notes.extend(remarks);
    Ok(AcceptedArguments {
        input,
        notes,
        is_exact,
    })
}

/// Returns the fields under their names in the schema. `extra` gets the names of omitted fields.
fn convert_object(
    fields: Map<String, Value>,
    schema: &Value,
    names: &Aliases,
    extra: &mut Vec<String>,
) -> Result<Map<String, Value>, String> {
    let Some(known) = schema["properties"].as_object() else {
        return Ok(fields);
    };
    let is_alias = |field: &str, name: &str| {
        names
            .fields
            .iter()
            .any(|(own, aliases)| *own == field && aliases.contains(&name))
    };
    let mut out: Map<String, Value> = Map::new();
    let mut others = Vec::new();
    for (name, value) in fields {
        match known.get(&name) {
            Some(schema) => drop(out.insert(name, convert(value, schema, names)?)),
            None => others.push((name, value)),
        }
    }
    for (name, value) in others {
        let bare = folded(&name);
        let own = known
            .keys()
            .find(|field| folded(field) == bare)
            .or_else(|| {
                let mut called = known.keys().filter(|field| is_alias(field, &bare));
                // "path" may be an alias of two fields; the one without a value is preferred.
                let open = called.clone().find(|field| !out.contains_key(*field));
                open.or_else(|| called.next())
            });
        if let Some(own) = own {
            let value = convert(value, &known[own], names)?;
            match out.get(own) {
                Some(_) if COMMENT_FIELDS.contains(&bare.as_str()) => {}
                // For `-B 1 -A 3`, the lines before and after are one field; the larger number
                // shows both.
                Some(Value::Number(given)) if bare.len() == 1 && value.is_number() => {
                    if value.as_u64() > given.as_u64() {
                        out.insert(own.clone(), value);
                    }
                }
                Some(given) if *given != value && !value.is_null() => {
                    return Err(format!(
                        "{own} and {} are the same field, with two values; send {own} alone",
                        text::escaped(&name)
                    ));
                }
                Some(_) => {}
                None => drop(out.insert(own.clone(), value)),
            }
            continue;
        }
        if schema["additionalProperties"] == true {
            out.insert(name, value);
            continue;
        }
        let nothing = match &value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        if nothing || COMMENT_FIELDS.contains(&bare.as_str()) {
            continue;
        }
        let slip =
            |field: &&String| !out.contains_key(*field) && is_typing_error(&bare, &folded(field));
        if let Some(field) = known.keys().find(slip) {
            return Err(format!(
                "{} is not known; write {field}, if that is what you mean",
                text::escaped(&name)
            ));
        }
        extra.push(text::title(&name));
    }
    Ok(out)
}

/// Returns whether two names differ by one typing error: a missing, additional or wrong character,
/// or two swapped ones.
fn is_typing_error(one: &str, other: &str) -> bool {
    let one = one.as_bytes();
    let other = other.as_bytes();
    if one.len() < 4 || other.len() < 4 || one.len().abs_diff(other.len()) > 1 {
        return false;
    }
    let head = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let a = &one[head..];
    let b = &other[head..];
    let tail = a
        .iter()
        .rev()
        .zip(b.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let a = &a[..a.len() - tail];
    let b = &b[..b.len() - tail];
    a.len().max(b.len()) <= 1 || (a.len() == 2 && b.len() == 2 && a[0] == b[1] && a[1] == b[0])
}

/// Converts a value to the type of the schema if it has only one meaning; otherwise returns it
/// unchanged.
fn convert(value: Value, schema: &Value, names: &Aliases) -> Result<Value, String> {
    let kind = schema["type"].as_str().unwrap_or_default();
    Ok(match (kind, value) {
        ("string", Value::String(word)) => Value::String(match_choice(word, schema)),
        ("string", value @ (Value::Number(_) | Value::Bool(_))) => Value::String(value.to_string()),
        ("integer" | "number", Value::String(text)) => {
            match serde_json::from_str::<Value>(text.trim()) {
                Ok(number) if number.is_number() => to_integer(number, kind),
                _ => Value::String(text),
            }
        }
        ("integer" | "number", number @ Value::Number(_)) => to_integer(number, kind),
        ("boolean", Value::String(word)) => match word.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" => Value::Bool(true),
            "false" | "no" | "0" => Value::Bool(false),
            _ => Value::String(word),
        },
        ("boolean", Value::Number(number)) if number.as_u64().is_some_and(|n| n < 2) => {
            Value::Bool(number.as_u64() == Some(1))
        }
        ("array", value) => {
            let items = match value {
                Value::Array(items) => items,
                Value::String(text) => match parse(&text) {
                    Ok(Value::Array(items)) => items,
                    Ok(one @ Value::Object(_)) => vec![one],
                    _ if schema["items"]["type"] == "string" && !text.is_empty() => {
                        vec![Value::String(text)]
                    }
                    _ => return Ok(Value::String(text)),
                },
                one @ Value::Object(_) if schema["items"]["type"] == "object" => vec![one],
                other => return Ok(other),
            };
            Value::Array(
                items
                    .into_iter()
                    .map(|item| convert(item, &schema["items"], names))
                    .collect::<Result<_, _>>()?,
            )
        }
        ("object", value) => {
            let value = match value {
                Value::String(text) => parse(&text)
                    .ok()
                    .filter(Value::is_object)
                    .unwrap_or(Value::String(text)),
                value => value,
            };
            match value {
                // Superfluous fields of list entries are omitted without a note.
                Value::Object(fields) => {
                    Value::Object(convert_object(fields, schema, names, &mut Vec::new())?)
                }
                value => value,
            }
        }
        (_, value) => value,
    })
}

/// Converts `3.0` to `3` for an integer field.
fn to_integer(number: Value, kind: &str) -> Value {
    let exact = number.as_f64().filter(|n| {
        n.fract() == 0.0
            && n.abs() < 9e15
            && kind == "integer"
            && !number.is_i64()
            && !number.is_u64()
    });
    match exact.and_then(|n| format!("{n:.0}").parse::<i64>().ok()) {
        Some(n) => Value::from(n),
        None => number,
    }
}

/// Returns a value of an enumeration as the schema spells it, or `word` if it is none of its
/// values.
fn match_choice(word: String, schema: &Value) -> String {
    let choices = crate::input::choices(schema);
    let same = choices
        .iter()
        .find(|choice| folded(choice) == folded(&word) && !choices.contains(&word.as_str()));
    same.map_or(word, |choice| (*choice).to_owned())
}

/// Describes the arguments of a tool in a line.
pub fn describe_arguments(schema: &Value) -> String {
    let required = |name: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one == name))
    };
    let one = |(name, field): (&String, &Value)| {
        let kind = match field["type"].as_str().unwrap_or("any") {
            "array" if field["items"]["type"] == "object" => {
                format!("a list of {{{}}}", describe_arguments(&field["items"]))
            }
            "array" => "a list".to_owned(),
            kind => kind.to_owned(),
        };
        let optional = if required(name) { "" } else { ", optional" };
        format!("{name} ({kind}{optional})")
    };
    let fields: Vec<String> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(one)
        .collect();
    if fields.is_empty() {
        "nothing".into()
    } else {
        fields.join(", ")
    }
}

/// Parses the arguments of a call from text: JSON, JSON in a JSON string or a code block, JSON with
/// raw line breaks in strings, or a bare patch. `tool` is the name that the model used.
///
/// # Errors
/// A message on the mistake in the text and its position.
pub fn parse_arguments(tool: &str, raw: &str) -> Result<Value, String> {
    let patch = raw.trim_start().starts_with("*** Begin Patch");
    if patch && ["applypatch", "patch"].contains(&folded(tool).as_str()) {
        return Ok(Value::Object(Map::from_iter([(
            "patchText".to_owned(),
            Value::String(raw.to_owned()),
        )])));
    }
    match parse(raw)? {
        Value::String(inner) => parse(&inner).and_then(|inner| {
            if inner.is_object() {
                Ok(inner)
            } else {
                Err(not_an_object(&inner))
            }
        }),
        object @ Value::Object(_) => Ok(object),
        other => Err(not_an_object(&other)),
    }
}

/// Returns the error for a value that should be an object.
fn not_an_object(value: &Value) -> String {
    format!(
        "{} is not an object",
        text::cut_chars(&value.to_string(), 80)
    )
}

/// Parses JSON, also in a code block, with raw line breaks in strings, or with lone surrogates.
fn parse(raw: &str) -> Result<Value, String> {
    let text = raw.trim();
    let fenced = text
        .strip_prefix("```")
        .and_then(|text| text.strip_suffix("```"))
        .and_then(|text| text.split_once('\n'));
    let text = fenced.map_or(text, |(_, inside)| inside.trim());
    serde_json::from_str(text).or_else(|e| {
        let repaired = escape_control_characters(text);
        serde_json::from_str(&surrogates::replaced(&repaired))
            .map_err(|_| describe_json_error(text, &e))
    })
}

/// Escapes raw line breaks and tabs within strings.
fn escape_control_characters(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    let mut escaped = false;
    for c in text.chars() {
        match c {
            '\n' if inside => out.push_str("\\n"),
            '\r' if inside => out.push_str("\\r"),
            '\t' if inside => out.push_str("\\t"),
            c => out.push(c),
        }
        inside ^= c == '"' && !escaped;
        escaped = inside && c == '\\' && !escaped;
    }
    out
}

/// Describes a JSON error, with 80 characters of context.
fn describe_json_error(text: &str, e: &serde_json::Error) -> String {
    let before: usize = text
        .split_inclusive('\n')
        .take(e.line().saturating_sub(1))
        .map(str::len)
        .sum();
    let at = text.floor_char_boundary((before + e.column()).min(text.len()));
    let start = text[..at]
        .char_indices()
        .rev()
        .nth(39)
        .map_or(0, |(at, _)| at);
    let end = text[at..]
        .char_indices()
        .nth(40)
        .map_or(text.len(), |(more, _)| at + more);
    let head = if start > 0 { "…" } else { "" };
    let tail = if end < text.len() { "…" } else { "" };
    format!(
        "{e}, at the end of: {head}{}⟨here⟩{}{tail}",
        &text[start..at],
        &text[at..end]
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::ToolRegistry;

    fn offered() -> Vec<Arc<dyn AnyTool>> {
        ToolRegistry::built_in()
            .all()
            .filter(|tool| tool.name() != "invalid")
            .cloned()
            .collect()
    }

    #[test]
    fn aliases_refer_to_existing_fields() {
        let tools = offered();
        for ToolProperties {
            name: own, aliases, ..
        } in BUILT_IN_TOOLS.iter()
        {
            let Some(tool) = tools.iter().find(|tool| tool.name() == *own) else {
                continue;
            };
            let schema = tool.schema().to_string();
            for (field, names) in aliases.fields {
                // `edits` is in a form of the arguments that is not offered.
                let is_known = *field == "edits" || schema.contains(&format!("\"{field}\":"));
                assert!(is_known, "{own} {field}");
                assert!(
                    names.iter().all(|name| folded(name) == *name),
                    "{own} {field}"
                );
            }
            for name in aliases.tool_names {
                assert_eq!(folded(name), *name);
                assert!(
                    tools.iter().all(|tool| folded(tool.name()) != *name),
                    "{name} is a tool of ours"
                );
            }
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn calls_with_one_meaning_are_repaired() {
        // The called name and arguments; the tool and arguments that run.
        let table = [
            (
                "Read",
                json!({"file_path": "a"}),
                "read",
                json!({"filePath": "a"}),
            ),
            (
                "view",
                json!({"path": "a"}),
                "read",
                json!({"filePath": "a"}),
            ),
            (
                "read",
                json!({"file": "a", "offset": "10", "limit": 20.0}),
                "read",
                json!({"filePath": "a", "offset": 10, "limit": 20}),
            ),
            (
                "str_replace",
                json!({"path": "a", "old_str": "b", "new_str": "c"}),
                "edit",
                json!({"filePath": "a", "oldString": "b", "newString": "c"}),
            ),
            (
                "edit",
                json!({"filePath": "a", "oldString": "b", "newString": 5, "replace_all": "True"}),
                "edit",
                json!({"filePath": "a", "oldString": "b", "newString": "5", "replaceAll": true}),
            ),
            (
                "str_replace_editor",
                json!({"command": "create", "path": "a", "file_text": "x"}),
                "write",
                json!({"filePath": "a", "content": "x"}),
            ),
            (
                "str_replace_editor",
                json!({"command": "view", "path": "a"}),
                "read",
                json!({"filePath": "a"}),
            ),
            (
                "str_replace_based_edit_tool",
                json!({"command": "str_replace", "path": "a", "old_str": "b", "new_str": ""}),
                "edit",
                json!({"filePath": "a", "oldString": "b", "newString": ""}),
            ),
            (
                "Bash",
                json!({"cmd": "ls", "timeout": "5000", "is_background": "false"}),
                "bash",
                json!({"command": "ls", "timeout": 5000, "run_in_background": false}),
            ),
            (
                "run_command",
                json!({"command": "ls"}),
                "bash",
                json!({"command": "ls"}),
            ),
            (
                "shell",
                json!({"command": ["bash", "-lc", "ls | wc -l"], "timeout": 30}),
                "bash",
                json!({"command": "ls | wc -l", "timeout": 30_000}),
            ),
            (
                "functions.bash",
                json!({"command": "ls"}),
                "bash",
                json!({"command": "ls"}),
            ),
            (
                "BashOutput",
                json!({"bash_id": "b1"}),
                "bash_output",
                json!({"bash_id": "b1"}),
            ),
            (
                "MultiEdit",
                json!({"file_path": "a", "edits": "[{\"old_string\": \"b\", \"new_string\": \"c\"}]"}),
                "edit",
                json!({"filePath": "a", "edits": [{"oldString": "b", "newString": "c"}]}),
            ),
            (
                "multiedit",
                json!({"path": "a", "edits": {"old_str": "b", "new_str": "c"}}),
                "edit",
                json!({"filePath": "a", "edits": [{"oldString": "b", "newString": "c"}]}),
            ),
            (
                "apply_patch",
                json!({"input": "*** Begin Patch"}),
                "apply_patch",
                json!({"patchText": "*** Begin Patch"}),
            ),
            (
                "TodoWrite",
                json!({"todos": [{"content": "x", "status": "In Progress", "activeForm": "xing"}]}),
                "todowrite",
                json!({"todos": [{"content": "x", "status": "in_progress", "activeForm": "xing"}]}),
            ),
            (
                "LS",
                json!({"path": ".", "ignore": "*.o"}),
                "read",
                json!({"filePath": "."}),
            ),
            ("TodoRead", json!({}), "todowrite", json!({})),
            (
                "read",
                json!({"filePath": "a", "path": "a"}),
                "read",
                json!({"filePath": "a"}),
            ),
            (
                "read",
                json!({"filePath": "a", "explanation": "to see it", "encoding": ""}),
                "read",
                json!({"filePath": "a"}),
            ),
            (
                "write",
                json!({"path": "a", "content": 17}),
                "write",
                json!({"filePath": "a", "content": "17"}),
            ),
        ];
        let tools = offered();
        for (name, input, tool, expected) in table {
            let found = find_tool(&tools, name, &input).unwrap_or_else(|| panic!("{name} {input}"));
            let accepted = found
                .accept(input.clone())
                .unwrap_or_else(|e| panic!("{name} {input}: {e}"));
            assert_eq!(
                (found.name(), &accepted.input, accepted.is_exact),
                (tool, &expected, true),
                "{name} {input}"
            );
            assert_eq!(found.accept(expected.clone()).unwrap().input, expected);
        }
    }

    #[test]
    fn ambiguous_arguments_are_refused() {
        let tools = offered();
        let table = [
            ("reed", json!({"filePath": "a"})),
            ("teleport", json!({})),
            ("", json!({})),
            ("view", json!({"somewhere": "a"})),
            ("view", json!({"path": "a", "depth": 3})),
            (
                "str_replace_editor",
                json!({"command": "insert", "path": "a", "insert_line": 1, "new_str": "x"}),
            ),
            (
                "str_replace_editor",
                json!({"command": "undo_edit", "path": "a"}),
            ),
            ("kill", json!({"signal": 9})),
        ];
        for (name, input) in table {
            assert!(find_tool(&tools, name, &input).is_none(), "{name} {input}");
        }
        assert_eq!(tool_kind(&tools, "run_command"), ToolKind::Execute);
        assert_eq!(tool_kind(&tools, "View"), ToolKind::Read);
        assert_eq!(tool_kind(&tools, "str_replace_editor"), ToolKind::default());
        // A tool that is not offered is not found.
        let mut others = tools.clone();
        others.retain(|tool| tool.name() != "read");
        assert!(find_tool(&others, "view", &json!({"path": "a"})).is_none());
        let message = unknown_tool(&tools, "str_replace_editor");
        assert!(
            message.contains("Did you mean edit? It takes filePath (string), oldString (string), newString (string)"),
            "{message}"
        );
        let read = tools.iter().find(|tool| tool.name() == "read").unwrap();
        for (input, why) in [
            (
                json!({"filePath": "a", "ofset": 1}),
                "ofset is not known; write offset, if that is what you mean",
            ),
            (
                json!({"filePath": "a", "path": "b"}),
                "filePath and path are the same field, with two values; send filePath alone",
            ),
        ] {
            assert_eq!(read.accept(input).unwrap_err(), why);
        }
        let grep = crate::erase(crate::files::grep::GrepTool);
        for (input, means) in [
            (
                json!({"-i": true, "-n": true, "glob": "*.rs"}),
                json!({"ignoreCase": true, "include": "*.rs"}),
            ),
            (
                json!({"output_mode": "files_with_matches"}),
                json!({"filesOnly": true}),
            ),
            (json!({"output_mode": "count"}), json!({})),
            (
                json!({"output_mode": "content", "-C": 2}),
                json!({"context": 2}),
            ),
            (json!({"-B": 1, "-A": "3"}), json!({"context": 3})),
            (
                json!({"case_sensitive": "false", "-w": true}),
                json!({"ignoreCase": true, "word": true}),
            ),
        ] {
            let with_pattern = |mut input: Value| {
                input["pattern"] = json!("x");
                input
            };
            let accepted = grep.accept(with_pattern(input.clone())).unwrap();
            assert_eq!(
                (accepted.input, accepted.notes),
                (with_pattern(means), Vec::new()),
                "{input}"
            );
        }
        let accepted = read.accept(json!({"filePath": "a", "depth": 3})).unwrap();
        assert_eq!(
            (accepted.input, accepted.notes),
            (
                json!({"filePath": "a"}),
                vec!["read has no depth, which was left out; it takes filePath, offset, limit, column.".to_owned()]
            )
        );
    }

    #[test]
    fn wrapped_calls_are_found() {
        let tools = offered();
        let call = |tool: &str, input: Value| WrappedCall {
            tool: tool.to_owned(),
            input,
        };
        let two = json!({"tool_uses": [
            {"recipient_name": "functions.read", "parameters": {"filePath": "a"}},
            {"name": "list"},
        ]});
        let found = vec![
            call("functions.read", json!({"filePath": "a"})),
            call("list", json!({})),
        ];
        let table = [
            ("multi_tool_use.parallel", two.clone(), Some(found.clone())),
            (
                "functions.multi_tool_use_parallel",
                json!(two.to_string()),
                Some(found.clone()),
            ),
            (
                "multi_tool_use.parallel",
                json!({"tool_uses": two["tool_uses"].to_string()}),
                Some(found),
            ),
            ("parallel", two, None),
            ("multi_tool_use.parallel", json!({}), None),
            ("multi_tool_use.parallel", json!({"tool_uses": []}), None),
            (
                "multi_tool_use.parallel",
                json!({"tool_uses": [{"recipient_name": "read"}, "list"]}),
                None,
            ),
            (
                "multi_tool_use.parallel",
                json!({"tool_uses": vec![json!({"name": "list"}); MAX_WRAPPED_CALLS + 1]}),
                None,
            ),
        ];
        for (name, input, expected) in table {
            assert_eq!(
                wrapped_calls(&tools, name, &input),
                expected,
                "{name} {input}"
            );
        }
    }

    #[test]
    fn arguments_are_parsed_from_text() {
        let table = [
            (
                "read",
                "\"{\\\"filePath\\\": \\\"a\\\"}\"",
                json!({"filePath": "a"}),
            ),
            (
                "read",
                "```json\n{\"filePath\": \"a\"}\n```",
                json!({"filePath": "a"}),
            ),
            (
                "write",
                "{\"content\": \"a\n\tb\\n\\\"c\\\"\"}",
                json!({"content": "a\n\tb\n\"c\""}),
            ),
            (
                "write",
                r#"{"content": "\ud83d\ude00 or \ud83d"}"#,
                json!({"content": "😀 or \u{fffd}"}),
            ),
            (
                "apply_patch",
                "*** Begin Patch\n*** End Patch",
                json!({"patchText": "*** Begin Patch\n*** End Patch"}),
            ),
        ];
        for (tool, raw, expected) in table {
            assert_eq!(parse_arguments(tool, raw), Ok(expected), "{raw}");
        }
        let long = format!(
            "{{\"content\": \"{}\", oldString: \"{}\"}}",
            "ä".repeat(100),
            "b".repeat(100)
        );
        let why = parse_arguments("edit", &long).unwrap_err();
        assert!(
            why.starts_with("key must be a string at line 1 column ")
                && why.contains(", o⟨here⟩ldString: \"bbb"),
            "{why}"
        );
        assert!(why.chars().count() < 180, "{why}");
        assert_eq!(
            parse_arguments("edit", "[1]").unwrap_err(),
            "[1] is not an object"
        );
        assert_eq!(
            parse_arguments("edit", "\"x\"").unwrap_err(),
            "expected value at line 1 column 1, at the end of: x⟨here⟩"
        );
        assert!(parse_arguments("bash", "*** Begin Patch").is_err());
    }
}
