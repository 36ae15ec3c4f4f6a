//! A tool's schema in the subset of OpenAPI that Gemini takes: no references, no unions of types,
//! only texts in enumerations. What cannot be said there is left out; the tool checks anyway.

use serde_json::{Map, Value, json};

/// How deep references are followed: a schema may contain itself.
const DEEPEST: usize = 12;

/// The schema of a function's parameters; none where it takes nothing, because an object without
/// properties is refused.
pub(super) fn parameters(schema: &Value) -> Option<Value> {
    let reduced = reduced(schema, schema, 0);
    let empty = reduced.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
    (!empty).then_some(reduced)
}

fn reduced(schema: &Value, root: &Value, depth: usize) -> Value {
    let Value::Object(schema) = schema else { return json!({"type": "string"}) };
    if depth > DEEPEST {
        return json!({"type": "string"});
    }
    if let Some(path) = schema.get("$ref").and_then(Value::as_str) {
        let named = path.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        let mut found = named.map_or_else(|| json!({"type": "string"}), |named| reduced(named, root, depth + 1));
        if let Some(description) = schema.get("description") {
            found["description"] = description.clone();
        }
        return found;
    }
    let mut out = Map::new();
    let (mut types, mut nullable) = types(schema);
    let choices = ["anyOf", "oneOf"].iter().find_map(|name| schema.get(*name)?.as_array());
    let mut any: Vec<Value> = Vec::new();
    for choice in choices.into_iter().flatten() {
        if choice.get("type").and_then(Value::as_str) == Some("null") {
            nullable = true;
        } else {
            any.push(reduced(choice, root, depth + 1));
        }
    }
    if types.len() > 1 {
        any.extend(types.drain(..).map(|kind| reduced(&json!({"type": kind}), root, depth + 1)));
    }
    if let Some(parts) = schema.get("allOf").and_then(Value::as_array) {
        for part in parts {
            if let Value::Object(part) = reduced(part, root, depth + 1) {
                out.extend(part);
            }
        }
    }
    if any.len() == 1
        && let Some(Value::Object(only)) = any.pop()
    {
        out.extend(only);
    }
    if let Some(kind) = types.pop() {
        out.insert("type".into(), kind.into());
    }
    if let Some(description) = schema.get("description").filter(|d| d.is_string()) {
        out.insert("description".into(), description.clone());
    }
    if let Some(values) = allowed(schema) {
        out.insert("type".into(), "string".into());
        out.insert("enum".into(), values.into());
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        object(properties, schema, root, depth, &mut out);
    }
    if out.get("type").and_then(Value::as_str) == Some("array") && !out.contains_key("items") {
        let items = schema.get("items").map(|items| match items {
            Value::Array(tuple) => tuple.first().cloned().unwrap_or_default(),
            items => items.clone(),
        });
        out.insert(
            "items".into(),
            items.map_or_else(|| json!({"type": "string"}), |items| reduced(&items, root, depth + 1)),
        );
    }
    for name in ["minItems", "maxItems", "minimum", "maximum", "minLength", "maxLength", "pattern"] {
        if let Some(limit) = schema.get(name) {
            out.insert(name.into(), limit.clone());
        }
    }
    if !any.is_empty() {
        out.shift_remove("type");
        out.insert("anyOf".into(), any.into());
    } else if !out.contains_key("type") && !out.contains_key("anyOf") {
        out.insert("type".into(), "string".into());
    }
    if nullable {
        out.insert("nullable".into(), true.into());
    }
    Value::Object(out)
}

/// The values that are allowed, as texts: this wire takes no others.
fn allowed(schema: &Map<String, Value>) -> Option<Vec<String>> {
    let only = || Some(vec![schema.get("const")?.clone()]);
    let values = schema.get("enum").and_then(Value::as_array).cloned().or_else(only)?;
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Some(values.into_iter().filter(|value| !value.is_null()).map(text).collect())
}

fn object(
    properties: &Map<String, Value>,
    schema: &Map<String, Value>,
    root: &Value,
    depth: usize,
    out: &mut Map<String, Value>,
) {
    let inner: Map<String, Value> =
        properties.iter().map(|(name, inner)| (name.clone(), reduced(inner, root, depth + 1))).collect();
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: Vec<Value> =
        required.filter(|name| name.as_str().is_some_and(|name| inner.contains_key(name))).cloned().collect();
    out.insert("type".into(), "object".into());
    out.insert("properties".into(), inner.into());
    if !required.is_empty() {
        out.insert("required".into(), required.into());
    }
}

/// The types named, without `null`, and whether that was among them.
fn types(schema: &Map<String, Value>) -> (Vec<String>, bool) {
    let names: Vec<&str> = match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let nullable = names.contains(&"null") || schema.get("nullable") == Some(&Value::Bool(true));
    (names.into_iter().filter(|name| *name != "null").map(str::to_owned).collect(), nullable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas() {
        let cases = [
            (json!({"type": "object", "properties": {}}), None),
            (json!({"type": "object"}), None),
            (
                json!({"$schema": "x", "title": "T", "type": "object", "additionalProperties": false, "required": ["a", "gone"],
                    "properties": {"a": {"type": "string", "default": "d", "format": "uri", "description": "A."}}}),
                Some(
                    json!({"type": "object", "properties": {"a": {"type": "string", "description": "A."}}, "required": ["a"]}),
                ),
            ),
            (
                json!({"type": "object", "properties": {"n": {"type": "integer", "enum": [1, 2]}, "c": {"const": "x"}}}),
                Some(
                    json!({"type": "object", "properties": {"n": {"type": "string", "enum": ["1", "2"]}, "c": {"type": "string", "enum": ["x"]}}}),
                ),
            ),
            (
                json!({"type": "object", "properties": {"o": {"type": ["integer", "null"], "minimum": 1}, "b": {"type": ["string", "boolean"]}}}),
                Some(json!({"type": "object", "properties": {"o": {"type": "integer", "minimum": 1, "nullable": true},
                    "b": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}}})),
            ),
            (
                json!({"type": "object", "properties": {"l": {"type": "array"}, "t": {"type": "array", "items": [{"type": "integer"}]}, "x": {}}}),
                Some(json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}},
                    "t": {"type": "array", "items": {"type": "integer"}}, "x": {"type": "string"}}})),
            ),
            (
                json!({"type": "object", "properties": {"r": {"$ref": "#/$defs/R", "description": "Mine."}, "o": {"anyOf": [{"$ref": "#/$defs/R"}, {"type": "null"}]}},
                    "$defs": {"R": {"type": "object", "description": "Its.", "properties": {"k": {"type": "boolean"}}}}}),
                Some(json!({"type": "object", "properties": {
                    "r": {"description": "Mine.", "type": "object", "properties": {"k": {"type": "boolean"}}},
                    "o": {"type": "object", "description": "Its.", "properties": {"k": {"type": "boolean"}}, "nullable": true}}})),
            ),
        ];
        for (schema, expected) in cases {
            assert_eq!(parameters(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn a_schema_that_contains_itself_ends() {
        let schema = json!({"$ref": "#/$defs/N", "$defs": {"N": {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}}}});
        assert!(parameters(&schema).is_some());
        assert!(parameters(&json!({"$ref": "#"})).is_none());
    }
}
