//! The schema of a tool that others wrote (an MCP server, a plugin), as providers take it.
//!
//! Providers refuse a request as a whole if one schema in it is not what they expect: OpenAI an array without `items`
//! and anything but an object at the top, Anthropic what is no JSON Schema of draft 2020-12, all of them a reference to
//! nothing. So what has one meaning is written in the form that all take, and a keyword that cannot be taken is left
//! out: the server checks the arguments anyway. Gemini's subset is made of this (`model/gemini/schema.rs`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// How deep a schema is read. What lies deeper may be anything.
const MAX_DEPTH: usize = 64;

/// How deep references are followed that are replaced by what they mean.
const MAX_INLINED: usize = 8;

/// Names of types that are none, and what is meant.
const TYPES: [(&str, &str); 24] = [
    ("int", "integer"),
    ("int32", "integer"),
    ("int64", "integer"),
    ("long", "integer"),
    ("float", "number"),
    ("double", "number"),
    ("decimal", "number"),
    ("numeric", "number"),
    ("str", "string"),
    ("text", "string"),
    ("date", "string"),
    ("datetime", "string"),
    ("date-time", "string"),
    ("timestamp", "string"),
    ("uuid", "string"),
    ("uri", "string"),
    ("url", "string"),
    ("file", "string"),
    ("enum", "string"),
    ("bool", "boolean"),
    ("dict", "object"),
    ("map", "object"),
    ("list", "array"),
    ("none", "null"),
];

const KNOWN_TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

/// Keywords whose value must be a number, and those of which it must be a whole one that is not negative.
const NUMBERS: [&str; 5] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
const COUNTS: [&str; 8] =
    ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"];

/// Keywords whose value must be a text, and those of which it must be true or false.
const TEXTS: [&str; 6] = ["title", "description", "pattern", "format", "contentEncoding", "contentMediaType"];
const FLAGS: [&str; 4] = ["uniqueItems", "deprecated", "readOnly", "writeOnly"];

/// Keywords with one schema, with a list of them, and with schemas by name.
const ONE: [&str; 7] = ["not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties"];
const LISTS: [&str; 3] = ["anyOf", "oneOf", "allOf"];
const NAMED: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];

/// Keywords about the document and not about the value, or of older drafts with another meaning in this one.
const DROPPED: [&str; 14] = [
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveRef",
    "$recursiveAnchor",
    "$vocabulary",
    "$comment",
    "dependencies",
    "additionalItems",
    "unevaluatedItems",
];

/// Writes the schema of a tool's arguments in the form that providers take: an object with properties, none of the
/// alternatives at its top.
pub fn normalised(schema: &Value) -> Value {
    let root = lifted(schema, schema, 0);
    let mut out = Normaliser { root: schema }.subschema(&Value::Object(root), 0);
    let definitions = definitions(schema);
    let Some(map) = out.as_object_mut() else { return json!({ "type": "object", "properties": {} }) };
    map.insert("type".into(), "object".into());
    map.entry("properties").or_insert_with(|| json!({}));
    for keyword in ["enum", "const", "not", "items", "nullable", "default", "if", "then", "else"] {
        map.shift_remove(keyword);
    }
    let normaliser = Normaliser { root: schema };
    let definitions: Map<String, Value> =
        definitions.into_iter().map(|(name, one)| (name, normaliser.subschema(&one, 0))).collect();
    if !definitions.is_empty() {
        map.insert("$defs".into(), definitions.into());
    }
    out
}

/// The schemas that others refer to by name.
fn definitions(root: &Value) -> Map<String, Value> {
    let named = ["definitions", "$defs"].into_iter().filter_map(|key| root.get(key)?.as_object().cloned());
    named.flatten().collect()
}

/// The members of a schema of arguments, with what stands in the alternatives at its top: arguments are one object,
/// which may hold whatever one of them would. What all alternatives require is required.
fn lifted(schema: &Value, root: &Value, depth: usize) -> Map<String, Value> {
    let Value::Object(schema) = schema else { return Map::new() };
    let mut out = schema.clone();
    for key in ["definitions", "$defs"] {
        out.shift_remove(key);
    }
    if depth > MAX_INLINED {
        return out;
    }
    if let Some(meant) = out.shift_remove("$ref").as_ref().and_then(Value::as_str).and_then(|path| target(path, root)) {
        join(&mut out, lifted(meant, root, depth + 1), true);
    }
    for part in taken_list(&mut out, "allOf") {
        join(&mut out, lifted(&part, root, depth + 1), true);
    }
    for keyword in ["anyOf", "oneOf"] {
        let members: Vec<_> =
            taken_list(&mut out, keyword).iter().map(|member| lifted(member, root, depth + 1)).collect();
        let required = |member: &Map<String, Value>| names(member.get("required"));
        let mut by_all = members.first().map(required).unwrap_or_default();
        by_all.retain(|name| members.iter().all(|member| required(member).contains(name)));
        members.into_iter().for_each(|member| join(&mut out, member, false));
        join(&mut out, Map::from_iter([("required".to_owned(), json!(by_all))]), true);
    }
    out
}

fn taken_list(from: &mut Map<String, Value>, keyword: &str) -> Vec<Value> {
    match from.shift_remove(keyword) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// Adds the properties of another object, and what else is not said yet; with `requires`, what it requires too.
fn join(to: &mut Map<String, Value>, from: Map<String, Value>, requires: bool) {
    for (key, value) in from {
        match (key.as_str(), value) {
            ("required", _) if !requires => {}
            ("required", value) => {
                let mut all = names(to.get("required"));
                all.extend(names(Some(&value)));
                all.dedup();
                if !all.is_empty() {
                    to.insert(key, json!(all));
                }
            }
            ("properties", Value::Object(more)) => {
                let properties = to.entry(key).or_insert_with(|| json!({}));
                if let Some(properties) = properties.as_object_mut() {
                    for (name, one) in more {
                        match properties.get_mut(&name) {
                            None => drop(properties.insert(name, one)),
                            // The same property, in another alternative.
                            Some(known) if *known != one && !requires => *known = either(known.take(), one),
                            Some(_) => {}
                        }
                    }
                }
            }
            // An alternative forbids what another one has.
            ("additionalProperties", _) if !requires => {}
            (_, value) => drop(to.entry(key).or_insert(value)),
        }
    }
}

fn either(one: Value, other: Value) -> Value {
    let mut members = match one {
        Value::Object(mut map) if map.len() == 1 && map.contains_key("anyOf") => taken_list(&mut map, "anyOf"),
        one => vec![one],
    };
    if !members.contains(&other) {
        members.push(other);
    }
    json!({ "anyOf": members })
}

fn names(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}

/// What a reference within the document leads to.
fn target<'a>(path: &str, root: &'a Value) -> Option<&'a Value> {
    let pointer = path.strip_prefix('#')?;
    if pointer.is_empty() { Some(root) } else { root.pointer(&pointer.replace("%24", "$").replace("%20", " ")) }
}

struct Normaliser<'a> {
    root: &'a Value,
}

impl Normaliser<'_> {
    fn subschema(&self, schema: &Value, depth: usize) -> Value {
        let Value::Object(schema) = schema else { return json!({}) };
        if depth > MAX_DEPTH {
            return json!({});
        }
        let mut out = schema.clone();
        for keyword in DROPPED {
            out.shift_remove(keyword);
        }
        // The identifier of an older draft.
        if out.get("id").is_some_and(Value::is_string) {
            out.shift_remove("id");
        }
        if let Some(reference) = out.shift_remove("$ref")
            && let Some(done) = self.reference(&reference, &mut out, depth)
        {
            return done;
        }
        types(&mut out);
        literals(&mut out);
        ranges(&mut out);
        self.nested(&mut out, depth);
        self.array(&mut out, depth);
        object(&mut out);
        Value::Object(in_order_of(schema, out))
    }

    /// A reference: to a definition by its name, else to what it means, as deep as that is followed.
    fn reference(&self, reference: &Value, out: &mut Map<String, Value>, depth: usize) -> Option<Value> {
        let path = reference.as_str().unwrap_or_default();
        let name = ["#/$defs/", "#/definitions/"].iter().find_map(|place| path.strip_prefix(place));
        if let Some(name) = name.filter(|name| !name.contains(['/', '~', '%'])) {
            if definitions(self.root).contains_key(name) {
                out.insert("$ref".into(), format!("#/$defs/{name}").into());
                out.retain(|key, value| key == "$ref" || (key == "description" && value.is_string()));
                return Some(Value::Object(out.clone()));
            }
        } else if let Some(meant) = target(path, self.root).filter(|_| depth <= MAX_INLINED) {
            let mut meant = meant.as_object().cloned().unwrap_or_default();
            meant.extend(out.iter().map(|(key, value)| (key.clone(), value.clone())));
            return Some(self.subschema(&Value::Object(meant), depth + MAX_INLINED / 2));
        }
        None
    }

    fn nested(&self, out: &mut Map<String, Value>, depth: usize) {
        for keyword in LISTS {
            if let Some(list) = out.shift_remove(keyword) {
                let members = list.as_array().into_iter().flatten().filter(|member| member.is_object());
                let members: Vec<Value> = members.map(|member| self.subschema(member, depth + 1)).collect();
                if !members.is_empty() {
                    out.insert(keyword.into(), members.into());
                }
            }
        }
        for keyword in ONE {
            if let Some(one) = out.shift_remove(keyword) {
                let is_flag = one.is_boolean() && keyword == "unevaluatedProperties";
                if one.is_object() || is_flag {
                    out.insert(keyword.into(), if is_flag { one } else { self.subschema(&one, depth + 1) });
                }
            }
        }
        let mut required = names(out.get("required"));
        for keyword in NAMED {
            if let Some(named) = out.shift_remove(keyword) {
                let Value::Object(named) = named else { continue };
                // As an older draft says that a property is required: in the property.
                let says_so = |one: &Value| keyword == "properties" && one.get("required") == Some(&Value::Bool(true));
                required.extend(named.iter().filter(|(_, one)| says_so(one)).map(|(name, _)| name.clone()));
                let named: Map<String, Value> =
                    named.iter().map(|(name, one)| (name.clone(), self.subschema(one, depth + 1))).collect();
                out.insert(keyword.into(), named.into());
            }
        }
        let mut seen = BTreeSet::new();
        required.retain(|name| seen.insert(name.clone()));
        match required.is_empty() {
            true => drop(out.shift_remove("required")),
            false => drop(out.insert("required".into(), json!(required))),
        }
        match out.get("additionalProperties") {
            None | Some(Value::Bool(_)) => {}
            Some(Value::Object(_)) => {
                let one = self.subschema(&out["additionalProperties"], depth + 1);
                out.insert("additionalProperties".into(), one);
            }
            Some(_) => drop(out.shift_remove("additionalProperties")),
        }
    }

    /// What an array holds. A list of schemas, one for each place, becomes a choice between them.
    fn array(&self, out: &mut Map<String, Value>, depth: usize) {
        let is_array = admits(out, "array");
        let places = ["prefixItems", "items"].into_iter().find_map(|key| match out.get(key) {
            Some(Value::Array(list)) => Some(list.clone()),
            _ => None,
        });
        let mut choices: Vec<Value> = Vec::new();
        for place in places.iter().flatten() {
            let place = self.subschema(place, depth + 1);
            if !choices.contains(&place) {
                choices.push(place);
            }
        }
        out.shift_remove("prefixItems");
        let said = out.shift_remove("items").filter(Value::is_object).map(|items| self.subschema(&items, depth + 1));
        let items = match (said, choices.len()) {
            (None, 1) => choices.pop(),
            (None, 0) => is_array.then(|| json!({})),
            (None, _) => Some(json!({ "anyOf": choices })),
            (said, _) => said,
        };
        if let Some(items) = items {
            out.insert("items".into(), items);
        }
    }
}

/// The members of a schema in the order in which they were written; new ones follow.
fn in_order_of(written: &Map<String, Value>, mut out: Map<String, Value>) -> Map<String, Value> {
    let mut ordered: Map<String, Value> =
        written.keys().filter_map(|key| Some((key.clone(), out.shift_remove(key)?))).collect();
    ordered.extend(out);
    ordered
}

/// Whether a schema says that its value may be of this type.
fn admits(schema: &Map<String, Value>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(only)) => only == kind,
        Some(Value::Array(all)) => all.iter().any(|one| one == kind),
        _ => false,
    }
}

/// Types by the names that JSON Schema has for them; `nullable` as the type that it stands for.
fn types(out: &mut Map<String, Value>) {
    let known = |name: &str| {
        let name = name.to_ascii_lowercase();
        let meant = TYPES.iter().find(|(said, _)| *said == name).map(|(_, meant)| *meant);
        meant.or_else(|| KNOWN_TYPES.into_iter().find(|known| *known == name))
    };
    let mut all: Vec<&str> = match out.shift_remove("type") {
        Some(Value::String(name)) => known(&name).into_iter().collect(),
        Some(Value::Array(names)) => names.iter().filter_map(|name| known(name.as_str()?)).collect(),
        _ => Vec::new(),
    };
    let is_nullable = out.shift_remove("nullable") == Some(Value::Bool(true));
    if is_nullable && !all.is_empty() {
        all.push("null");
        if let Some(values) = out.get_mut("enum").and_then(Value::as_array_mut) {
            values.push(Value::Null);
        }
    }
    let mut seen = BTreeSet::new();
    all.retain(|name| seen.insert(*name));
    match all.as_slice() {
        [] => {}
        [only] => drop(out.insert("type".into(), (*only).into())),
        all => drop(out.insert("type".into(), json!(all))),
    }
}

/// Values that are listed: each once, of the type that is said, and where the values of an array's items stand beside
/// the array they are the items'.
fn literals(out: &mut Map<String, Value>) {
    let Some(values) = out.shift_remove("enum") else { return };
    let mut all: Vec<Value> = Vec::new();
    for value in values.as_array().into_iter().flatten() {
        if !all.contains(value) {
            all.push(value.clone());
        }
    }
    if all.is_empty() {
        return;
    }
    if admits(out, "array") && !all.iter().any(Value::is_array) {
        let items = out.entry("items").or_insert_with(|| json!({}));
        if let Some(items) = items.as_object_mut() {
            items.entry("enum").or_insert_with(|| all.into());
        }
        return;
    }
    let kind = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = |value: &Value| {
        let kind = kind(value);
        admits(out, kind) || (kind == "integer" && admits(out, "number"))
    };
    if out.contains_key("type") && !all.iter().all(fits) {
        // The values say which type is meant.
        let mut kinds: Vec<&str> = Vec::new();
        all.iter().map(kind).for_each(|kind| {
            if !kinds.contains(&kind) {
                kinds.push(kind)
            }
        });
        let kinds = if let [only] = kinds.as_slice() { json!(only) } else { json!(kinds) };
        out.insert("type".into(), kinds);
    }
    out.insert("enum".into(), all.into());
}

/// Limits and words of the kind that JSON Schema wants; those of older drafts as this one has them.
fn ranges(out: &mut Map<String, Value>) {
    for (flag, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if let Some(Value::Bool(is_exclusive)) = out.get(flag) {
            let is_exclusive = *is_exclusive;
            out.shift_remove(flag);
            if is_exclusive && let Some(value) = out.shift_remove(limit) {
                out.insert(flag.into(), value);
            }
        }
    }
    let wrong = |key: &str, value: &Value| {
        NUMBERS.contains(&key) && !value.is_number()
            || key == "multipleOf" && value.as_f64().is_none_or(|by| by <= 0.0)
            || COUNTS.contains(&key) && !value.is_u64()
            || TEXTS.contains(&key) && !value.is_string()
            || FLAGS.contains(&key) && !value.is_boolean()
            || key == "examples" && !value.is_array()
            || key == "dependentRequired" && !value.is_object()
    };
    out.retain(|key, value| !wrong(key, value));
}

/// An object has properties, and those that it requires are among them.
fn object(out: &mut Map<String, Value>) {
    let is_object = admits(out, "object") || out.contains_key("properties");
    if !is_object {
        // In a union of schemas it may stand alone.
        return;
    }
    if !["properties", "patternProperties", "additionalProperties"].iter().any(|key| out.contains_key(*key)) {
        out.insert("properties".into(), json!({}));
    }
    let required = names(out.get("required"));
    if let Some(properties) = out.get_mut("properties").and_then(Value::as_object_mut) {
        for name in required {
            properties.entry(name).or_insert_with(|| json!({}));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What OpenAI and Anthropic document of a tool's schema.
    fn is_taken(schema: &Value) -> Result<(), String> {
        jsonschema::meta::validate(schema).map_err(|e| format!("no JSON Schema: {e}"))?;
        let top = schema.as_object().ok_or("no object")?;
        if top.get("type") != Some(&json!("object")) || !top.get("properties").is_some_and(Value::is_object) {
            return Err("no object with properties".into());
        }
        let at_top = ["anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref", "$schema"];
        if let Some(keyword) = at_top.into_iter().find(|keyword| top.contains_key(*keyword)) {
            return Err(format!("{keyword} at the top"));
        }
        each(schema, schema)
    }

    fn each(schema: &Value, root: &Value) -> Result<(), String> {
        let Value::Object(map) = schema else { return Ok(()) };
        if admits(map, "array") && !map.get("items").is_some_and(Value::is_object) {
            return Err(format!("an array without items: {schema}"));
        }
        if let Some(path) = map.get("$ref").and_then(Value::as_str)
            && target(path, root).is_none()
        {
            return Err(format!("{path} leads nowhere"));
        }
        let named = NAMED.into_iter().chain(["$defs"]).filter_map(|key| map.get(key)?.as_object());
        let listed = LISTS.into_iter().filter_map(|key| map.get(key)?.as_array());
        let single = ONE.into_iter().chain(["items", "additionalProperties"]).filter_map(|key| map.get(key));
        let all = named.flat_map(Map::values).chain(listed.flatten()).chain(single);
        all.map(|one| each(one, root)).collect()
    }

    #[test]
    fn what_servers_publish_is_written_as_providers_take_it() {
        let object = |properties: Value| json!({ "type": "object", "properties": properties });
        let table = [
            ("nothing", json!(null), object(json!({}))),
            ("no properties", json!({ "type": "object" }), object(json!({}))),
            (
                "an array without items",
                object(json!({ "a": { "type": "array" } })),
                object(json!({ "a": { "type": "array", "items": {} } })),
            ),
            (
                "values of the items beside the array",
                object(json!({ "a": { "type": "array", "enum": ["x", "y"], "items": { "type": "string" } } })),
                object(json!({ "a": { "type": "array", "items": { "type": "string", "enum": ["x", "y"] } } })),
            ),
            (
                "alternatives at the top",
                json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"], "oneOf": [
                    { "properties": { "b": { "type": "string" } }, "required": ["a", "b"] },
                    { "properties": { "b": { "type": "number" }, "c": {} }, "required": ["b", "c"] },
                ] }),
                json!({ "type": "object", "properties": {
                    "a": { "type": "string" },
                    "b": { "anyOf": [{ "type": "string" }, { "type": "number" }] },
                    "c": {},
                }, "required": ["a", "b"] }),
            ),
            (
                "parts of the whole at the top",
                json!({ "allOf": [{ "$ref": "#/definitions/A" }, { "required": ["b"] }],
                    "definitions": { "A": { "properties": { "a": {} } } } }),
                json!({ "type": "object", "properties": { "a": {}, "b": {} }, "required": ["b"],
                    "$defs": { "A": { "properties": { "a": {} } } } }),
            ),
            (
                "definitions of draft 7",
                json!({ "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                    "properties": { "n": { "$ref": "#/definitions/N" } },
                    "definitions": { "N": { "type": "object", "properties": { "next": { "$ref": "#/definitions/N" } } } } }),
                json!({ "type": "object", "properties": { "n": { "$ref": "#/$defs/N" } },
                    "$defs": { "N": { "type": "object", "properties": { "next": { "$ref": "#/$defs/N" } } } } }),
            ),
            (
                "references to nothing, and to another property",
                object(
                    json!({ "a": { "$ref": "#/$defs/Gone", "description": "A." }, "b": { "$ref": "#/properties/c" },
                    "c": { "type": "string" }, "d": { "$ref": "https://example.org/s.json" } }),
                ),
                object(json!({ "a": { "description": "A." }, "b": { "type": "string" }, "c": { "type": "string" },
                    "d": {} })),
            ),
            (
                "required as draft 3 has it",
                object(
                    json!({ "a": { "type": "string", "required": true }, "b": { "type": "int", "required": false } }),
                ),
                json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "integer" } },
                    "required": ["a"] }),
            ),
            (
                "required and not there",
                json!({ "type": "object", "properties": {}, "required": ["a", "a", 1] }),
                json!({ "type": "object", "properties": { "a": {} }, "required": ["a"] }),
            ),
            (
                "types that are none",
                object(
                    json!({ "a": { "type": "any" }, "b": { "type": ["String", "null", "date"] }, "c": { "type": [] } }),
                ),
                object(json!({ "a": {}, "b": { "type": ["string", "null"] }, "c": {} })),
            ),
            (
                "nullable, as OpenAPI has it",
                object(json!({ "a": { "type": "string", "nullable": true, "enum": ["x"] } })),
                object(json!({ "a": { "type": ["string", "null"], "enum": ["x", null] } })),
            ),
            (
                "values of another type",
                object(
                    json!({ "a": { "type": "string", "enum": [1, 2, 2] }, "b": { "type": "number", "enum": [1, 2.5] },
                    "c": { "type": "string", "enum": [] }, "d": { "enum": "x" } }),
                ),
                object(
                    json!({ "a": { "type": "integer", "enum": [1, 2] }, "b": { "type": "number", "enum": [1, 2.5] },
                    "c": { "type": "string" }, "d": {} }),
                ),
            ),
            (
                "limits of draft 4",
                object(json!({ "a": { "type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 9,
                    "exclusiveMaximum": false, "multipleOf": 0 }, "b": { "type": "string", "minLength": "1", "maxLength": -1 } })),
                object(
                    json!({ "a": { "type": "number", "exclusiveMinimum": 0, "maximum": 9 }, "b": { "type": "string" } }),
                ),
            ),
            (
                "one schema for each place",
                object(
                    json!({ "a": { "type": "array", "items": [{ "type": "string" }, { "type": "number" }, { "type": "string" }],
                    "additionalItems": false } }),
                ),
                object(
                    json!({ "a": { "type": "array", "items": { "anyOf": [{ "type": "string" }, { "type": "number" }] } } }),
                ),
            ),
            (
                "words that are none, and schemas that are none",
                json!({ "type": "object", "properties": { "a": "string", "b": true, "c": { "description": 7, "default": null } },
                    "additionalProperties": "no", "title": null }),
                object(json!({ "a": {}, "b": {}, "c": { "default": null } })),
            ),
            (
                "what is right stays as it is",
                json!({ "properties": { "a": { "description": "A.", "type": "array", "items": { "type": "string" }, "minItems": 1 },
                    "o": { "type": "object", "additionalProperties": { "type": "number" } } }, "required": ["a"], "type": "object",
                    "additionalProperties": false }),
                json!({ "properties": { "a": { "description": "A.", "type": "array", "items": { "type": "string" }, "minItems": 1 },
                    "o": { "type": "object", "additionalProperties": { "type": "number" } } }, "required": ["a"], "type": "object",
                    "additionalProperties": false }),
            ),
        ];
        for (what, schema, wanted) in table {
            let made = normalised(&schema);
            assert_eq!(made, wanted, "{what}");
            assert_eq!(is_taken(&made), Ok(()), "{what}: {made}");
        }
        let kept = json!({ "type": "object", "properties": { "b": {}, "a": {} }, "required": ["b"] });
        assert_eq!(normalised(&kept).to_string(), kept.to_string(), "in the order in which it is written");
    }

    /// Any value, with the words of schemas as keys.
    fn schemas() -> impl Strategy<Value = Value> {
        let words = [
            "object",
            "array",
            "string",
            "integer",
            "null",
            "any",
            "a",
            "#/$defs/a",
            "#",
            "#/properties/a",
            "#/definitions/b",
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-2i64..5).prop_map(Value::from),
            proptest::sample::select(words.to_vec()).prop_map(Value::from),
        ];
        let keys = TEXTS.into_iter().chain(NUMBERS).chain(COUNTS).chain(FLAGS).chain(ONE).chain(LISTS).chain(NAMED);
        let keys =
            keys.chain(["type", "items", "required", "enum", "$ref", "$defs", "definitions", "nullable", "a", "b"]);
        let keys: Vec<&str> =
            keys.chain(["additionalProperties", "prefixItems", "const", "type", "properties", "$ref"]).collect();
        leaf.prop_recursive(5, 48, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((proptest::sample::select(keys.clone()), inner), 0..6).prop_map(|members| {
                    Value::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_published_is_taken(schema in schemas()) {
            let made = normalised(&schema);
            prop_assert_eq!(is_taken(&made), Ok(()), "{}", made);
            let again = normalised(&made);
            prop_assert_eq!(&again, &made, "written once, it stays");
        }
    }
}
