//! The schemas of tools as providers receive them. The schemas of 43 published MCP servers
//! (`data/tool_schemas.jsonl.gz`: names and structure, without descriptions) pass through the real
//! binary in each wire format, and are checked against the documented rules of the provider.

use std::collections::BTreeSet;
use std::io::Read;

use serde_json::{Map, Value, json};

use crate::loopback::Server;
use crate::program::adjutant;
use crate::project::Project;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 1] = [(
    "schemas of published servers follow the rules of every provider",
    schemas_of_published_servers_follow_the_rules_of_every_provider,
)];

const ROWS: &[u8] = include_bytes!("data/tool_schemas.jsonl.gz");

/// A wire format and the rules of its provider.
struct Wire {
    /// The SDK package.
    npm: &'static str,
    /// Returns the name and the schema of each function that a request declares. The schema is null
    /// if the function has no arguments.
    declared: fn(&Value) -> Vec<(String, Value)>,
    /// Returns the rules that a schema violates.
    problems: fn(&Value) -> Vec<String>,
    /// The format can describe objects with arbitrary keys.
    open_objects: bool,
}

const WIRES: [Wire; 4] = [
    Wire {
        npm: "@ai-sdk/openai-compatible",
        declared: |body| functions(&body["tools"], "/function/name", "/function/parameters"),
        problems: openai,
        open_objects: true,
    },
    Wire {
        npm: "@ai-sdk/openai",
        declared: |body| functions(&body["tools"], "/name", "/parameters"),
        problems: openai,
        open_objects: true,
    },
    Wire {
        npm: "@ai-sdk/anthropic",
        declared: |body| functions(&body["tools"], "/name", "/input_schema"),
        problems: anthropic,
        open_objects: true,
    },
    Wire {
        npm: "@ai-sdk/google",
        declared: |body| {
            functions(
                &body["tools"][0]["functionDeclarations"],
                "/name",
                "/parameters",
            )
        },
        problems: gemini,
        open_objects: false,
    },
];

fn functions(tools: &Value, name: &str, schema: &str) -> Vec<(String, Value)> {
    let tool = |tool: &Value| {
        let name = tool.pointer(name)?.as_str()?.to_owned();
        Some((name, tool.pointer(schema).cloned().unwrap_or_default()))
    };
    tools
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(tool)
        .collect()
}

/// A tool of a published server.
struct Published {
    label: String,
    schema: Value,
}

fn published() -> Vec<Published> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(ROWS)
        .read_to_string(&mut text)
        .unwrap();
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        Published {
            label: format!("{} {}", row["package"], row["name"]),
            schema: row["inputSchema"].clone(),
        }
    };
    text.lines().map(row).collect()
}

/// The script of an MCP server that lists the tools in `tools.json`.
const SERVER: &str = r#"
while read -r line; do
  id=${line#*\"id\":}
  id=${id%%,*}
  case $line in
  *\"method\":\"initialize\"*)
    result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"odd","version":"1"}}' ;;
  *\"method\":\"tools/list\"*) result=$(cat tools.json) ;;
  *) continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

fn schemas_of_published_servers_follow_the_rules_of_every_provider() {
    let published = published();
    assert!(published.len() >= 300, "{}", published.len());
    let listed: Vec<Value> = published
        .iter()
        .enumerate()
        .map(|(n, tool)| json!({ "name": format!("t{n}"), "inputSchema": tool.schema }))
        .collect();
    let mut problems = Vec::new();
    for wire in &WIRES {
        let refusal =
            json!({ "error": { "message": "That is all.", "type": "invalid_request_error" } });
        let server = Server::start(move |_| (400, String::new(), refusal.to_string()));
        let project = Project::new();
        project.write("odd.sh", SERVER);
        project.write("tools.json", &json!({ "tools": listed }).to_string());
        let settings = json!({
            "model": "own/m", "permission": "allow", "experimental": { "mcp_budget": 10_000_000 },
            "provider": { "own": { "npm": wire.npm, "models": { "m": { "limit": { "context": 1_000_000, "output": 8_000 } } },
                "options": { "baseURL": format!("{}/v1", server.base()), "apiKey": "a-key" } } },
            "mcp": { "odd": { "type": "local", "command": ["sh", "odd.sh"] } },
        });
        project.write("~/.config/opencode/opencode.json", &settings.to_string());
        adjutant(&project, &["run", "Hello."], "");
        let received = server.received();
        let body = received
            .iter()
            .find(|received| received.body.contains("odd_t0\""))
            .unwrap_or_else(|| panic!("{}: no request has the tools", wire.npm));
        let body: Value = serde_json::from_str(&body.body).unwrap();
        let declared = (wire.declared)(&body);
        for (n, tool) in published.iter().enumerate() {
            let name = format!("odd_t{n}");
            let at = || format!("{}: {}", wire.npm, tool.label);
            let Some((_, sent)) = declared.iter().find(|(other, _)| *other == name) else {
                problems.push(format!("{}: not declared", at()));
                continue;
            };
            // A function of Gemini without arguments has no schema.
            let sent = if sent.is_null() {
                &json!({ "type": "object", "properties": {} })
            } else {
                sent
            };
            let mut found = if sent["properties"] == json!({}) && wire.npm == "@ai-sdk/google" {
                Vec::new()
            } else {
                (wire.problems)(sent)
            };
            found.extend(differences(&tool.schema, sent, wire.open_objects));
            problems.extend(
                found
                    .into_iter()
                    .map(|problem| format!("{}: {problem}", at())),
            );
        }
    }
    assert!(
        problems.is_empty(),
        "{} problems\n{}",
        problems.len(),
        problems.join("\n")
    );
}

/// Returns the differences between a published schema and the sent one: missing arguments, other
/// required arguments, and missing values of enumerations.
fn differences(published: &Value, sent: &Value, open_objects: bool) -> Vec<String> {
    let names = |schema: &Value| -> BTreeSet<String> {
        schema["properties"]
            .as_object()
            .map(|properties| properties.keys().cloned().collect())
            .unwrap_or_default()
    };
    let listed = |schema: &Value, key: &str| -> BTreeSet<String> {
        let list = schema[key].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut differences = Vec::new();
    let arguments = names(published);
    let missing: Vec<_> = arguments.difference(&names(sent)).cloned().collect();
    if !missing.is_empty() {
        differences.push(format!("the arguments {missing:?} are missing"));
    }
    let required: BTreeSet<_> = listed(published, "required")
        .intersection(&arguments)
        .cloned()
        .collect();
    let sent_required = listed(sent, "required");
    if required != sent_required {
        differences.push(format!(
            "{required:?} are required, but {sent_required:?} are sent as required"
        ));
    }
    let mut wanted = BTreeSet::new();
    collect_choices(&published["properties"], open_objects, &mut wanted);
    let mut found = BTreeSet::new();
    collect_choices(&sent["properties"], open_objects, &mut found);
    let missing: Vec<_> = wanted.difference(&found).collect();
    if !missing.is_empty() {
        differences.push(format!("the values {missing:?} are missing"));
    }
    differences
}

/// Collects the strings in enumerations and constants. Includes those of `additionalProperties`
/// with `open_objects`.
fn collect_choices(schema: &Value, open_objects: bool, out: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            let values = map
                .get("enum")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let texts = values.chain(map.get("const")).filter_map(Value::as_str);
            out.extend(texts.filter(|text| !text.is_empty()).map(str::to_owned));
            map.iter()
                .filter(|(key, _)| !["enum", "const", "default"].contains(&key.as_str()))
                .filter(|(key, _)| open_objects || *key != "additionalProperties")
                .for_each(|(_, inner)| collect_choices(inner, open_objects, out));
        }
        Value::Array(list) => list
            .iter()
            .for_each(|inner| collect_choices(inner, open_objects, out)),
        _ => {}
    }
}

const TYPES: [&str; 7] = [
    "object", "array", "string", "number", "integer", "boolean", "null",
];

/// Calls a function for a schema and each schema in it, with its path.
fn walk(schema: &Value, at: &str, visit: &mut dyn FnMut(&Map<String, Value>, &str)) {
    let Value::Object(map) = schema else { return };
    visit(map, at);
    for (key, inner) in map {
        let at = format!("{at}/{key}");
        match (key.as_str(), inner) {
            (
                "properties" | "patternProperties" | "$defs" | "dependentSchemas",
                Value::Object(named),
            ) => {
                named
                    .iter()
                    .for_each(|(name, inner)| walk(inner, &format!("{at}/{name}"), visit));
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(list)) => {
                list.iter().for_each(|inner| walk(inner, &at, visit));
            }
            ("enum" | "const" | "default" | "examples" | "required", _) => {}
            _ => walk(inner, &at, visit),
        }
    }
}

/// The formats that OpenAI and Anthropic both document for strings.
const FORMATS: [&str; 9] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
];

/// Checks the rules that all providers share: an object at the top, known types and formats, arrays
/// with items, references with a target, required arguments that exist.
fn common_problems(schema: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    if schema["type"] != "object" || !schema["properties"].is_object() {
        problems.push("not an object with properties".to_owned());
    }
    for key in ["anyOf", "oneOf", "allOf", "not", "enum"] {
        if schema.get(key).is_some() {
            problems.push(format!("{key} at the top"));
        }
    }
    walk(schema, "", &mut |map, at| {
        let types = match map.get("type") {
            Some(Value::Array(list)) => list.iter().collect(),
            Some(kind) => vec![kind],
            None => Vec::new(),
        };
        if types
            .iter()
            .any(|kind| !kind.as_str().is_some_and(|name| TYPES.contains(&name)))
        {
            problems.push(format!("{at}: the unknown type {}", map["type"]));
        }
        if types.iter().any(|kind| *kind == "array") && !map.contains_key("items") {
            problems.push(format!("{at}: an array without items"));
        }
        if map
            .get("enum")
            .is_some_and(|list| list.as_array().is_none_or(Vec::is_empty))
        {
            problems.push(format!("{at}: an enumeration without values"));
        }
        let format = map.get("format").and_then(Value::as_str);
        if format.is_some_and(|format| !FORMATS.contains(&format)) {
            problems.push(format!("{at}: the undocumented format {}", map["format"]));
        }
        let target = map.get("$ref").and_then(Value::as_str);
        let has_target = |path: &str| {
            path.strip_prefix('#')
                .is_some_and(|path| schema.pointer(path).is_some())
        };
        if target.is_some_and(|path| !has_target(path)) {
            problems.push(format!("{at}: a reference without a target"));
        }
        let names: BTreeSet<&str> = map
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if let Some(properties) = map.get("properties").and_then(Value::as_object)
            && let Some(unknown) = names.iter().find(|name| !properties.contains_key(**name))
        {
            problems.push(format!(
                "{at}: {unknown} is required, but is not a property"
            ));
        }
    });
    problems
}

/// Checks a schema against OpenAI's rules for function calling without `strict`, in Chat
/// Completions and in Responses.
fn openai(schema: &Value) -> Vec<String> {
    let mut problems = common_problems(schema);
    if !jsonschema::meta::is_valid(schema) {
        problems.push("not a valid JSON Schema".to_owned());
    }
    problems
}

/// Checks a schema against Anthropic's rules for `input_schema`: JSON Schema draft 2020-12, with
/// plain names of arguments.
fn anthropic(schema: &Value) -> Vec<String> {
    let mut problems = common_problems(schema);
    if let Err(error) = jsonschema::draft202012::meta::validate(schema) {
        problems.push(format!("not a schema of draft 2020-12: {error}"));
    }
    let is_plain = |name: &str| {
        (1..=64).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    let names = schema["properties"].as_object().into_iter().flatten();
    let odd = names.map(|(name, _)| name).find(|name| !is_plain(name));
    problems.extend(odd.map(|name| format!("the unsupported argument name {name}")));
    problems
}

/// Checks a schema against Gemini's rules for function declarations: a subset of OpenAPI.
fn gemini(schema: &Value) -> Vec<String> {
    const KEYWORDS: [&str; 22] = [
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "enum",
        "items",
        "minItems",
        "maxItems",
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "example",
        "anyOf",
        "propertyOrdering",
        "default",
    ];
    let mut problems = common_problems(schema);
    walk(schema, "", &mut |map, at| {
        if let Some(key) = map.keys().find(|key| !KEYWORDS.contains(&key.as_str())) {
            problems.push(format!("{at}: the unsupported keyword {key}"));
        }
        if map.contains_key("anyOf") {
            if map.len() > 1 {
                problems.push(format!("{at}: a union with keywords besides anyOf"));
            }
        } else if !map.get("type").is_some_and(Value::is_string) {
            problems.push(format!("{at}: no single type"));
        }
        if let Some(values) = map.get("enum").and_then(Value::as_array) {
            let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
            if map["type"] != "string" || !values.iter().all(is_text) {
                problems.push(format!(
                    "{at}: an enumeration with values that are not strings"
                ));
            }
        }
        if map.get("type").is_some_and(|kind| kind == "object")
            && map
                .get("properties")
                .is_some_and(|properties| *properties == json!({}))
        {
            problems.push(format!("{at}: an object with an empty list of properties"));
        }
    });
    problems
}
