//! Checks the arguments of a call against the schema, after `argument_repair.rs` has repaired them.
//! serde reports the mistake but not its position; these messages name the field, so that the model
//! can correct the call.

use serde_json::Value;

/// Checks arguments against a schema made by [`crate::input_schema`]: types, enumerations,
/// minimums, missing fields, and unknown fields (a misspelt option must not silently become its
/// default).
///
/// # Errors
/// A message for the model that names the mistake and the field.
pub(super) fn check(input: &Value, schema: &Value) -> Result<(), String> {
    check_at("", input, schema)
}

/// Checks the part of the arguments at `path`, which is empty for all of them.
fn check_at(path: &str, input: &Value, schema: &Value) -> Result<(), String> {
    let name = if path.is_empty() { "the input" } else { path };
    if let Some(kind) = schema["type"].as_str()
        && !fits(kind, input)
    {
        return Err(format!(
            "{name} must be {}, not {}",
            article(kind),
            shown(input)
        ));
    }
    let choices: Vec<&str> = choices(schema);
    if !choices.is_empty() && !input.as_str().is_some_and(|word| choices.contains(&word)) {
        return Err(format!(
            "{name} must be one of {}, not {}",
            choices.join(", "),
            shown(input)
        ));
    }
    if let Some(least) = schema["minimum"].as_f64()
        && input.as_f64().is_some_and(|number| number < least)
    {
        return Err(format!("{name} must be at least {least}, not {input}"));
    }
    if let (Some(fields), Some(properties)) = (input.as_object(), schema["properties"].as_object())
    {
        let below = |field: &str| {
            if path.is_empty() {
                field.to_owned()
            } else {
                format!("{path}.{field}")
            }
        };
        for field in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !fields.contains_key(field) {
                return Err(format!("{} is missing", below(field)));
            }
        }
        for (field, value) in fields {
            match properties.get(field) {
                // Null means an absent optional field; for a required one serde reports the error.
                Some(_) if value.is_null() => {}
                Some(schema) => check_at(&below(field), value, schema)?,
                None if schema["additionalProperties"].as_bool() == Some(true) => {}
                None => {
                    let mut known: Vec<&str> = properties.keys().map(String::as_str).collect();
                    known.sort_unstable();
                    return Err(format!(
                        "{} is not known; there are {}",
                        base::text::escaped(&below(field)),
                        known.join(", ")
                    ));
                }
            }
        }
    }
    if let (Some(items), Some(schema)) = (input.as_array(), schema.get("items")) {
        for (n, item) in items.iter().enumerate() {
            check_at(&format!("{path}[{n}]"), item, schema)?;
        }
    }
    Ok(())
}

/// Returns whether a value has a type of JSON Schema.
fn fits(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        _ => true,
    }
}

/// Returns the name of a type with its indefinite article.
fn article(kind: &str) -> String {
    let vowel = kind.starts_with(['a', 'i', 'o']);
    format!("{} {kind}", if vowel { "an" } else { "a" })
}

/// Returns a value as it is quoted in messages.
fn shown(value: &Value) -> String {
    base::text::cut_chars(&value.to_string(), 60)
}

/// Returns the values of an enumeration: schemars writes them as `enum`, or one by one with their
/// docs.
pub(super) fn choices(schema: &Value) -> Vec<&str> {
    let listed = schema["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let single = schema["oneOf"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|schema| schema["const"].as_str());
    listed.chain(single).collect()
}

/// Removes the parts of a schema that models need not read: titles, formats, `null` as a type, null
/// defaults, the descriptions of enumerations and their values, the descriptions of list entries.
pub(super) fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("title").is_some_and(Value::is_string) {
                fields.remove("title");
            }
            if fields.get("format").is_some_and(Value::is_string) {
                fields.remove("format");
            }
            if fields.get("default").is_some_and(Value::is_null) {
                fields.remove("default");
            }
            if let Some(Value::Array(kinds)) = fields.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if let [one] = &kinds[..] {
                    let one = one.clone();
                    fields.insert("type".into(), one);
                }
            }
            let words: Vec<Value> = fields
                .get("oneOf")
                .and_then(Value::as_array)
                .map(|all| {
                    all.iter()
                        .filter_map(|one| one.get("const").cloned())
                        .collect()
                })
                .unwrap_or_default();
            if !words.is_empty() {
                fields.remove("oneOf");
                // The values say it.
                fields.remove("description");
                fields.insert("type".into(), Value::String("string".into()));
                fields.insert("enum".into(), Value::Array(words));
            }
            // The description of the list also describes its entries.
            if let Some(Value::Object(entry)) = fields.get_mut("items") {
                entry.remove("description");
            }
            fields.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_field_is_named() {
        let edits = crate::input_schema::<crate::edits::edit::SeveralEdits>();
        let todos = crate::input_schema::<crate::todowrite::Input>();
        let read = crate::input_schema::<crate::files::read::Input>();
        let table = [
            (&read, json!({"filePath": "a"}), ""),
            (&read, json!({"filePath": "a", "offset": null}), ""),
            (&read, json!([]), "the input must be an object, not []"),
            (&read, json!({}), "filePath is missing"),
            (
                &read,
                json!({"filePath": 1}),
                "filePath must be a string, not 1",
            ),
            (
                &read,
                json!({"filePath": "a", "limit": "10"}),
                "limit must be an integer, not \"10\"",
            ),
            (
                &read,
                json!({"filePath": "a", "limit": -1}),
                "limit must be at least 0, not -1",
            ),
            (
                &read,
                json!({"filePath": "a", "ofset": 1}),
                "ofset is not known; there are column, filePath, limit, offset",
            ),
            (
                &edits,
                json!({"filePath": "a", "edits": [{"oldString": "a"}]}),
                "edits[0].newString is missing",
            ),
            (
                &todos,
                json!({"todos": [{"content": "x", "status": "done"}]}),
                "todos[0].status must be one of pending, in_progress, completed, cancelled, not \"done\"",
            ),
        ];
        for (schema, input, expected) in table {
            assert_eq!(
                check(&input, schema).err().unwrap_or_default(),
                expected,
                "{input}"
            );
        }
    }

    #[test]
    fn schemas_have_no_superfluous_keywords() {
        assert_eq!(
            crate::input_schema::<crate::files::read::Input>(),
            json!({
                "type": "object",
                "properties": {
                    "column": {"description": "First character of each line", "minimum": 0, "type": "integer"},
                    "filePath": {"description": "Path of the file or directory", "type": "string"},
                    "limit": {"description": "Number of lines (default 2000)", "minimum": 0, "type": "integer"},
                    "offset": {"description": "First line, from 1; -100 for the last 100", "type": "integer"},
                },
                "required": ["filePath"],
            })
        );
    }
}
