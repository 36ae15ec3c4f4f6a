use proptest::prelude::*;

use super::*;

/// Checks a schema by the rules that OpenAI and Anthropic document.
fn check_rules(schema: &Value) -> Result<(), String> {
    jsonschema::meta::validate(schema).map_err(|e| format!("no JSON Schema: {e}"))?;
    let top = schema.as_object().ok_or("no object")?;
    if top.get("type") != Some(&json!("object"))
        || !top.get("properties").is_some_and(Value::is_object)
    {
        return Err("no object with properties".into());
    }
    let at_top = [
        "anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref", "$schema",
    ];
    if let Some(keyword) = at_top
        .into_iter()
        .find(|keyword| top.contains_key(*keyword))
    {
        return Err(format!("{keyword} at the top"));
    }
    check_nested(schema, schema)
}

fn check_nested(schema: &Value, root: &Value) -> Result<(), String> {
    let Value::Object(map) = schema else {
        return Ok(());
    };
    if admits(map, "array") && !map.get("items").is_some_and(Value::is_object) {
        return Err(format!("an array without items: {schema}"));
    }
    if let Some(path) = map.get("$ref").and_then(Value::as_str)
        && target(path, root).is_none()
    {
        return Err(format!("{path} leads nowhere"));
    }
    let named = SCHEMA_MAP_KEYWORDS
        .into_iter()
        .chain(["$defs"])
        .filter_map(|key| map.get(key)?.as_object());
    let listed = SCHEMA_LIST_KEYWORDS
        .into_iter()
        .filter_map(|key| map.get(key)?.as_array());
    let single = SCHEMA_KEYWORDS
        .into_iter()
        .chain(["items", "additionalProperties"])
        .filter_map(|key| map.get(key));
    let mut all = named
        .flat_map(Map::values)
        .chain(listed.flatten())
        .chain(single);
    all.try_for_each(|schema| check_nested(schema, root))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn published_schemas_are_normalised_for_providers() {
    let object = |properties: Value| json!({ "type": "object", "properties": properties });
    let table = [
        ("nothing", json!(null), object(json!({}))),
        (
            "no properties",
            json!({ "type": "object" }),
            object(json!({})),
        ),
        (
            "an array without items",
            object(json!({ "a": { "type": "array" } })),
            object(json!({ "a": { "type": "array", "items": {} } })),
        ),
        (
            "values of the items next to the array",
            object(
                json!({ "a": { "type": "array", "enum": ["x", "y"], "items": { "type": "string" } } }),
            ),
            object(
                json!({ "a": { "type": "array", "items": { "type": "string", "enum": ["x", "y"] } } }),
            ),
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
            object(
                json!({ "a": { "description": "A." }, "b": { "type": "string" }, "c": { "type": "string" },
                "d": {} }),
            ),
        ),
        (
            "formats that providers do not document",
            object(json!({
                "a": { "type": "string", "format": "date-time" },
                "b": { "type": "string", "format": "uri", "description": "A page" },
                "c": { "type": ["string", "null"], "format": "binary" },
                "d": { "type": "integer", "format": "int64", "description": "A number" },
                "e": { "format": "objectId" },
                "format": { "type": "string" },
            })),
            object(json!({
                "a": { "type": "string", "format": "date-time" },
                "b": { "type": "string", "description": "A page\nFormat: uri." },
                "c": { "type": ["string", "null"], "description": "Format: binary." },
                "d": { "type": "integer", "description": "A number" },
                "e": { "description": "Format: objectId." },
                "format": { "type": "string" },
            })),
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
            "a required property is missing",
            json!({ "type": "object", "properties": {}, "required": ["a", "a", 1] }),
            json!({ "type": "object", "properties": { "a": {} }, "required": ["a"] }),
        ),
        (
            "unknown types",
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
            object(
                json!({ "a": { "type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 9,
                "exclusiveMaximum": false, "multipleOf": 0 }, "b": { "type": "string", "minLength": "1", "maxLength": -1 } }),
            ),
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
            "keywords and schemas of the wrong type",
            json!({ "type": "object", "properties": { "a": "string", "b": true, "c": { "description": 7, "default": null } },
                "additionalProperties": "no", "title": null }),
            object(json!({ "a": {}, "b": {}, "c": { "default": null } })),
        ),
        (
            "a valid schema is unchanged",
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
        assert_eq!(check_rules(&made), Ok(()), "{what}: {made}");
    }
    // A definition with further keywords next to the reference, and null next to a form.
    let table = [
        (
            json!({ "$ref": "#/$defs/A", "default": "x", "nullable": true }),
            json!({ "default": "x", "anyOf": [{ "$ref": "#/$defs/A" }, { "type": "null" }] }),
        ),
        (
            json!({ "$ref": "#/$defs/A", "minLength": 2.0 }),
            json!({ "$ref": "#/$defs/A", "minLength": 2.0 }),
        ),
        (
            json!({ "enum": ["a"], "nullable": true }),
            json!({ "enum": ["a", null] }),
        ),
        (json!({ "anyOf": [true, { "type": "string" }] }), json!({})),
        (
            json!({ "prefixItems": [{ "type": "string" }], "items": { "type": "number" } }),
            json!({ "items": { "anyOf": [{ "type": "string" }, { "type": "number" }] } }),
        ),
        (
            json!({ "type": ["array", "string"], "enum": ["all"], "items": {} }),
            json!({ "type": ["array", "string"], "enum": ["all"], "items": {} }),
        ),
    ];
    for (one, wanted) in table {
        let made = normalised(&json!({ "type": "object", "properties": { "a": one },
            "$defs": { "A": { "type": "string" } } }));
        assert_eq!(made["properties"]["a"], wanted);
        assert_eq!(check_rules(&made), Ok(()), "{made}");
    }
    let conditional = json!({ "properties": { "kind": {} }, "allOf": [
        { "if": { "properties": { "kind": { "const": "x" } } }, "then": { "properties": { "x": {} }, "required": ["x"] } },
    ] });
    assert_eq!(
        normalised(&conditional)["properties"],
        json!({ "kind": {}, "x": {} })
    );
    let kept = json!({ "type": "object", "properties": { "b": {}, "a": {} }, "required": ["b"] });
    assert_eq!(
        normalised(&kept).to_string(),
        kept.to_string(),
        "in the order in which it is written"
    );
}

#[test]
fn hostile_schema_is_bounded() {
    let all = |one: Value| Value::from(vec![one; 1_000]);
    let chain = |n: usize| {
        let definitions: Map<String, Value> = (0..n)
            .map(|at| {
                let next = json!({ "$ref": format!("#/$defs/C{}", at + 1) });
                let own = json!({ "properties": { format!("p{at}"): {} }, "required": [format!("p{at}")] });
                (format!("C{at}"), json!({ "allOf": [next, own] }))
            })
            .collect();
        json!({ "allOf": [{ "$ref": "#/$defs/C0" }], "$defs": definitions })
    };
    for schema in [
        json!({ "allOf": all(json!({ "$ref": "#" })) }),
        json!({ "anyOf": all(json!({ "$ref": "#", "oneOf": [{ "$ref": "#" }] })) }),
        json!({ "properties": { "a": { "anyOf": all(json!({ "$ref": "#/properties/a" })) } } }),
        json!({ "allOf": [{ "$ref": "#/$defs/A" }], "$defs": { "A": { "allOf": all(json!({ "$ref": "#/$defs/B" })) },
            "B": { "anyOf": all(json!({ "$ref": "#/$defs/A" })) } } }),
        chain(20),
        chain(200),
    ] {
        let made = normalised(&schema);
        assert_eq!(check_rules(&made), Ok(()));
    }
    // The required names of each of many levels remain.
    let made = normalised(&chain(20));
    assert_eq!(made["required"].as_array().map(Vec::len), Some(20));
}

/// Any value, with schema keywords as keys.
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
    let keys = STRING_KEYWORDS
        .into_iter()
        .chain(NUMBER_KEYWORDS)
        .chain(COUNT_KEYWORDS)
        .chain(BOOLEAN_KEYWORDS)
        .chain(SCHEMA_KEYWORDS)
        .chain(SCHEMA_LIST_KEYWORDS)
        .chain(SCHEMA_MAP_KEYWORDS);
    let keys = keys.chain([
        "type",
        "items",
        "required",
        "enum",
        "$ref",
        "$defs",
        "definitions",
        "nullable",
        "a",
        "b",
    ]);
    let keys: Vec<&str> = keys
        .chain([
            "additionalProperties",
            "prefixItems",
            "const",
            "type",
            "properties",
            "$ref",
        ])
        .collect();
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((proptest::sample::select(keys.clone()), inner), 0..6)
                .prop_map(|members| {
                    Value::Object(
                        members
                            .into_iter()
                            .map(|(key, value)| (key.to_owned(), value))
                            .collect(),
                    )
                }),
        ]
    })
}

proptest! {
    #[test]
    fn any_schema_is_normalised_to_a_valid_one(schema in schemas()) {
        let made = normalised(&schema);
        prop_assert_eq!(check_rules(&made), Ok(()), "{}", made);
        let again = normalised(&made);
        prop_assert_eq!(&again, &made, "a normalised schema is unchanged");
    }
}
