//! Reduces a tool's schema to the subset of OpenAPI that Gemini accepts ([`parameters`]): no
//! references, no lists of types, only non-empty strings in enumerations, no keywords next to
//! `anyOf` (Vertex rejects them). The rest is left out, because the tool validates its arguments
//! anyway.

use std::cell::Cell;

use serde_json::{Map, Value, json};

/// The maximum depth of the reduced schema. A schema may refer to itself.
const MAX_DEPTH: usize = 12;

/// The maximum number of schemas in the reduced schema. Each schema may refer to itself several
/// times.
const MAX_SCHEMAS: usize = 5_000;

/// A schema document, in which references are resolved.
struct SchemaDocument<'a> {
    root: &'a Value,
    /// The number of schemas that may still be expanded.
    remaining: Cell<usize>,
}

/// Returns the reduced schema of a function's parameters. `None` if there are no parameters,
/// because the API rejects an object without properties.
pub(super) fn parameters(schema: &Value) -> Option<Value> {
    let document = SchemaDocument {
        root: schema,
        remaining: Cell::new(MAX_SCHEMAS),
    };
    let mut reduced = reduced(schema, &document, 0);
    // Arguments are one object, which gets the properties of all members of the union.
    if let Some(members) = reduced.get_mut("anyOf").map(Value::take) {
        let mut whole = Map::from_iter([
            ("type".to_owned(), json!("object")),
            ("properties".to_owned(), json!({})),
        ]);
        members
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|member| add_properties(&mut whole, member));
        reduced = whole.into();
    }
    let has_properties = reduced
        .get("properties")
        .and_then(Value::as_object)
        .is_some_and(|properties| !properties.is_empty());
    has_properties.then_some(reduced)
}

/// Returns the reduced form of a schema at a depth of the document. Anything that is not an object,
/// or too deep, becomes a string.
fn reduced(schema: &Value, document: &SchemaDocument<'_>, depth: usize) -> Value {
    let Value::Object(schema) = schema else {
        return json!({"type": "string"});
    };
    let remaining = document.remaining.get();
    if depth > MAX_DEPTH || remaining == 0 {
        return json!({"type": "string"});
    }
    document.remaining.set(remaining - 1);
    let description = schema
        .get("description")
        .filter(|description| description.is_string());
    if let Some(path) = schema.get("$ref").and_then(Value::as_str) {
        let named = path
            .strip_prefix('#')
            .and_then(|pointer| document.root.pointer(pointer));
        let mut found = named.map_or_else(
            || json!({"type": "string"}),
            |named| reduced(named, document, depth + 1),
        );
        if let Some(description) = description {
            set_keyword(&mut found, "description", description);
        }
        return found;
    }
    let mut out = Map::new();
    let mut types = types(schema);
    let mut nullable = is_nullable(schema);
    let choices = ["anyOf", "oneOf"]
        .iter()
        .find_map(|name| schema.get(*name)?.as_array());
    let mut any: Vec<Value> = Vec::new();
    for choice in choices.into_iter().flatten() {
        if choice.get("type").and_then(Value::as_str) == Some("null") {
            nullable = true;
        } else if SHAPE_KEYWORDS.iter().any(|key| choice.get(key).is_some()) {
            any.push(reduced(choice, document, depth + 1));
        }
    }
    if types.len() > 1 {
        any.extend(
            types
                .drain(..)
                .map(|kind| reduced(&json!({"type": kind}), document, depth + 1)),
        );
    }
    for part in schema
        .get("allOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if let Value::Object(part) = reduced(part, document, depth + 1) {
            out.extend(part);
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
    if let Some(values) = enum_values(schema) {
        out.insert("type".into(), "string".into());
        out.insert("enum".into(), values.into());
    }
    // A member of `allOf`, or the only choice, may be a union itself.
    if let Some(Value::Array(inner)) = out.shift_remove("anyOf") {
        any.extend(inner);
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        add_object(properties, schema, document, depth, &mut out);
        any.drain(..)
            .for_each(|member| add_properties(&mut out, &member));
    }
    add_items(schema, document, depth, &mut out);
    for name in [
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
    ] {
        if let Some(limit) = schema.get(name) {
            out.insert(name.into(), limit.clone());
        }
    }
    let mut out = if any.is_empty() {
        out.entry("type").or_insert_with(|| "string".into());
        // An empty list is rejected, an object without a list is not.
        if out.get("properties").is_some_and(|list| *list == json!({})) {
            out.shift_remove("properties");
        }
        Value::Object(out)
    } else {
        json!({"anyOf": any})
    };
    if let Some(description) = description {
        set_keyword(&mut out, "description", description);
    }
    if nullable {
        set_keyword(&mut out, "nullable", &true.into());
    }
    out
}

/// Keywords that define the accepted values. An alternative without any of them only restricts the
/// schema around it (`required`).
const SHAPE_KEYWORDS: [&str; 9] = [
    "type",
    "properties",
    "enum",
    "const",
    "$ref",
    "anyOf",
    "oneOf",
    "allOf",
    "items",
];

/// Adds the properties of an alternative object to an object, as optional properties.
fn add_properties(out: &mut Map<String, Value>, member: &Value) {
    let Some(Value::Object(properties)) = out.get_mut("properties") else {
        return;
    };
    for (name, inner) in member
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        properties
            .entry(name.clone())
            .or_insert_with(|| inner.clone());
    }
}

/// Sets a keyword of a schema. In a union, it is set in each member that does not have it.
fn set_keyword(schema: &mut Value, name: &str, value: &Value) {
    if let Some(members) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        members
            .iter_mut()
            .for_each(|member| add_keyword(member, name, value));
    } else {
        schema[name] = value.clone();
    }
}

/// Sets a keyword of a schema, or of the members of a union, that does not have it.
fn add_keyword(schema: &mut Value, name: &str, value: &Value) {
    if let Some(members) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        members
            .iter_mut()
            .for_each(|member| add_keyword(member, name, value));
    } else if schema.get(name).is_none() {
        schema[name] = value.clone();
    }
}

/// Adds `items` to an array, which the API requires.
fn add_items(
    schema: &Map<String, Value>,
    document: &SchemaDocument<'_>,
    depth: usize,
    out: &mut Map<String, Value>,
) {
    if out.get("type").and_then(Value::as_str) != Some("array") || out.contains_key("items") {
        return;
    }
    let items = match schema.get("items") {
        Some(Value::Array(tuple)) => tuple.first(),
        items => items,
    };
    let items = items.map_or_else(
        || json!({"type": "string"}),
        |items| reduced(items, document, depth + 1),
    );
    out.insert("items".into(), items);
}

/// Returns the values of an enumeration as non-empty strings, because the API accepts no others;
/// `None` if the schema has no such value.
fn enum_values(schema: &Map<String, Value>) -> Option<Vec<String>> {
    let only = || Some(vec![schema.get("const")?.clone()]);
    let values = schema
        .get("enum")
        .and_then(Value::as_array)
        .cloned()
        .or_else(only)?;
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let values: Vec<String> = values
        .into_iter()
        .filter(|value| !value.is_null())
        .map(text)
        .filter(|text| !text.is_empty())
        .collect();
    (!values.is_empty()).then_some(values)
}

/// Writes the keywords of an object to `out`.
fn add_object(
    properties: &Map<String, Value>,
    schema: &Map<String, Value>,
    document: &SchemaDocument<'_>,
    depth: usize,
    out: &mut Map<String, Value>,
) {
    let inner: Map<String, Value> = properties
        .iter()
        .map(|(name, inner)| (name.clone(), reduced(inner, document, depth + 1)))
        .collect();
    let required = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let required: Vec<Value> = required
        .filter(|name| name.as_str().is_some_and(|name| inner.contains_key(name)))
        .cloned()
        .collect();
    out.insert("type".into(), "object".into());
    out.insert("properties".into(), inner.into());
    if !required.is_empty() {
        out.insert("required".into(), required.into());
    }
}

/// Returns the values of `type`.
fn type_names(schema: &Map<String, Value>) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Returns the types except for `null`.
fn types(schema: &Map<String, Value>) -> Vec<String> {
    let names = type_names(schema).into_iter();
    names
        .filter(|name| *name != "null")
        .map(str::to_owned)
        .collect()
}

fn is_nullable(schema: &Map<String, Value>) -> bool {
    type_names(schema).contains(&"null") || schema.get("nullable") == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_reduced() {
        let cases = [
            (json!({"type": "object", "properties": {}}), None),
            (
                json!({"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}),
                Some(json!({"type": "object", "properties": {"a": {"type": "object"}}})),
            ),
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
                Some(
                    json!({"type": "object", "properties": {"o": {"type": "integer", "minimum": 1, "nullable": true},
                    "b": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}}}),
                ),
            ),
            (
                json!({"type": "object", "properties": {"l": {"type": "array"}, "t": {"type": "array", "items": [{"type": "integer"}]}, "x": {}}}),
                Some(
                    json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}},
                    "t": {"type": "array", "items": {"type": "integer"}}, "x": {"type": "string"}}}),
                ),
            ),
            (
                json!({"type": "object", "properties": {"r": {"$ref": "#/$defs/R", "description": "Mine."}, "o": {"anyOf": [{"$ref": "#/$defs/R"}, {"type": "null"}]}},
                    "$defs": {"R": {"type": "object", "description": "Its.", "properties": {"k": {"type": "boolean"}}}}}),
                Some(json!({"type": "object", "properties": {
                    "r": {"description": "Mine.", "type": "object", "properties": {"k": {"type": "boolean"}}},
                    "o": {"type": "object", "description": "Its.", "properties": {"k": {"type": "boolean"}}, "nullable": true}}})),
            ),
            // No keywords next to a union.
            (
                json!({"type": "object", "properties": {
                    "u": {"description": "U.", "minLength": 1, "anyOf": [{"type": "string"}, {"type": "array", "description": "L.", "items": {"type": "string"}}]},
                    "n": {"type": ["string", "number", "null"], "description": "N."},
                    "r": {"$ref": "#/$defs/U", "description": "R."}},
                    "$defs": {"U": {"oneOf": [{"type": "string"}, {"type": "boolean"}]}}}),
                Some(json!({"type": "object", "properties": {
                    "u": {"anyOf": [{"type": "string", "description": "U."}, {"type": "array", "description": "L.", "items": {"type": "string"}}]},
                    "n": {"anyOf": [{"type": "string", "description": "N.", "nullable": true}, {"type": "number", "description": "N.", "nullable": true}]},
                    "r": {"anyOf": [{"type": "string", "description": "R."}, {"type": "boolean", "description": "R."}]}}})),
            ),
            // No empty string in an enumeration, and no empty enumeration.
            (
                json!({"type": "object", "properties": {"e": {"type": "string", "enum": ["", "a"]}, "o": {"enum": [null]}, "c": {"const": null}}}),
                Some(json!({"type": "object", "properties": {
                    "e": {"type": "string", "enum": ["a"]}, "o": {"type": "string"}, "c": {"type": "string"}}})),
            ),
            // A member that only narrows is left out; properties of others are added.
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
                Some(
                    json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}),
                ),
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
                    "oneOf": [{"properties": {"b": {"type": "boolean"}}, "required": ["b"]}, {"properties": {"c": {"type": "integer"}}}]}),
                Some(
                    json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "boolean"}, "c": {"type": "integer"}}, "required": ["a"]}),
                ),
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
                    "allOf": [{"anyOf": [{"properties": {"b": {"type": "boolean"}}}, {"properties": {"c": {"type": "integer"}}}]}]}),
                Some(
                    json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "boolean"}, "c": {"type": "integer"}}, "required": ["a"]}),
                ),
            ),
            (
                json!({"anyOf": [{"type": "object", "properties": {"b": {"type": "boolean"}}}, {"type": "object", "properties": {"c": {"type": "integer"}}}]}),
                Some(
                    json!({"type": "object", "properties": {"b": {"type": "boolean"}, "c": {"type": "integer"}}}),
                ),
            ),
        ];
        for (schema, expected) in cases {
            assert_eq!(parameters(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn recursive_schema_terminates() {
        let schema = json!({"$ref": "#/$defs/N", "$defs": {"N": {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}}}});
        assert!(parameters(&schema).is_some());
        let many: Map<String, Value> = (0..100)
            .map(|n| (format!("p{n}"), json!({"$ref": "#/$defs/N"})))
            .collect();
        let schema =
            json!({"$ref": "#/$defs/N", "$defs": {"N": {"type": "object", "properties": many}}});
        assert!(parameters(&schema).is_some());
        assert!(parameters(&json!({"$ref": "#"})).is_none());
    }
}
