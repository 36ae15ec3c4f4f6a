//! `structured_output`: the model returns its result as JSON that matches the schema of the prompt.
//! Only offered if the prompt has one; an invalid result is sent back with its mistakes.

use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ReferencingError, ValidationError};
use serde_json::{Map, Value, json};

use crate::{AnyTool, BoxFuture, CallDescription, Failure, PreparedCall, ToolContext, ToolOutput};
use events::ToolKind;
use transcript::CallFacts;

/// The name of the tool.
pub const NAME: &str = "structured_output";

/// The maximum number of mistakes that are named.
const MAX_NAMED_MISTAKES: usize = 10;

/// The tool, created for a prompt with a schema.
pub struct StructuredOutputTool {
    validator: jsonschema::Validator,
    /// The schema as the model sees it: an object.
    schema: Arc<Value>,
    /// True if the requested schema is not an object, and is wrapped in one.
    is_wrapped: bool,
}

impl StructuredOutputTool {
    /// Returns a tool that accepts values of a JSON Schema.
    ///
    /// # Errors
    /// The mistake in the schema.
    pub fn new(schema: &Value) -> Result<Self, String> {
        match schema {
            Value::Object(_) | Value::Bool(true) => {}
            Value::Bool(false) => return Err("nothing fits `false`".into()),
            _ => {
                return Err(
                    "a schema is an object, such as {\"type\": \"object\", \"properties\": {…}}"
                        .into(),
                );
            }
        }
        // With options, which are generic, the whole validator would be compiled again here.
        let validator = jsonschema::validator_for(schema).map_err(|e| wrong(&e))?;
        let mut plain = schema.clone();
        if let Some(members) = plain.as_object_mut() {
            members.remove("$schema");
        }
        let is_wrapped = plain["type"] != "object";
        let schema = if is_wrapped { wrap(plain) } else { plain };
        Ok(Self {
            validator,
            schema: Arc::new(schema),
            is_wrapped,
        })
    }

    /// Checks the arguments of a call. Returns the result in them, or a message on the mistakes.
    fn check(&self, mut input: Value) -> Result<Value, String> {
        if self.is_wrapped {
            input = match input.get_mut("result") {
                Some(result) => result.take(),
                None => return Err("result is missing".into()),
            };
        }
        self.check_result(input)
    }

    /// Returns the result if it matches the schema, otherwise a message on the mistakes.
    fn check_result(&self, input: Value) -> Result<Value, String> {
        let wrong: Vec<String> = self
            .validator
            .iter_errors(&input)
            .take(MAX_NAMED_MISTAKES)
            .map(|error| {
                let at = error.instance_path().to_string();
                if at.is_empty() {
                    format!("- {error}")
                } else {
                    format!("- {at}: {error}")
                }
            })
            .collect();
        if wrong.is_empty() {
            Ok(input)
        } else {
            Err(format!("\n{}", wrong.join("\n")))
        }
    }
}

/// Parses an answer in text as a result. Returns `None` unless it is a JSON document that matches
/// the schema, and nothing else.
pub fn parse_answer(schema: &Value, answer: &str) -> Option<Value> {
    let result = serde_json::from_str(answer).ok()?;
    let tool = StructuredOutputTool::new(schema).ok()?;
    tool.check_result(result).ok()
}

/// Returns the mistakes in the arguments of a call, a line each. Returns `None` if there are none.
pub fn mistakes(schema: &Value, arguments: &Value) -> Option<String> {
    let tool = StructuredOutputTool::new(schema).ok()?;
    tool.check(arguments.clone()).err()
}

/// Wraps a schema in an object, because the arguments of a call are one. Its internal references
/// remain valid: definitions stay at the top, and references to other parts are moved.
fn wrap(mut schema: Value) -> Value {
    const RESULT_POINTER: &str = "#/properties/result";
    let mut outer = Map::new();
    if let Some(members) = schema.as_object_mut() {
        // With an identifier, references would be relative to it.
        members.remove("$id");
        outer.extend(
            DEFINITIONS
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), members.remove(name)?))),
        );
    }
    move_references(&mut schema, RESULT_POINTER);
    outer
        .values_mut()
        .for_each(|definitions| move_references(definitions, RESULT_POINTER));
    outer.insert("type".into(), "object".into());
    outer.insert("properties".into(), json!({ "result": schema }));
    outer.insert("required".into(), json!(["result"]));
    Value::Object(outer)
}

/// The keywords that hold definitions.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Moves references to anything but definitions to another position.
fn move_references(schema: &mut Value, prefix: &str) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref")
                && let Some(pointer) = reference.strip_prefix('#').map(str::to_owned)
                && (pointer.is_empty() || pointer.starts_with('/'))
                && !DEFINITIONS
                    .iter()
                    .any(|name| pointer[1.min(pointer.len())..].starts_with(&format!("{name}/")))
            {
                *reference = format!("{prefix}{pointer}");
            }
            members
                .values_mut()
                .for_each(|inner| move_references(inner, prefix));
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|inner| move_references(inner, prefix)),
        _ => {}
    }
}

/// Describes a mistake. Nothing is read or fetched for a schema: the code for that is not compiled
/// in, and `.deny.toml` excludes it.
fn wrong(error: &ValidationError<'_>) -> String {
    match error.kind() {
        ValidationErrorKind::Referencing(ReferencingError::Unretrievable { uri, .. }) => {
            format!(
                "{uri} is not fetched; put what is referred to under \"$defs\" of the schema itself"
            )
        }
        _ => error.to_string(),
    }
}

impl AnyTool for StructuredOutputTool {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> String {
        include_str!("structured_output.md")
            .trim_ascii_end()
            .to_owned()
    }

    fn schema(&self) -> Arc<Value> {
        self.schema.clone()
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Think
    }

    fn concurrent(&self) -> bool {
        false
    }

    fn permission(&self) -> &str {
        NAME
    }

    fn describe(&self, _: &Value, _: &ToolContext) -> Option<CallDescription> {
        Some(CallDescription {
            title: "Hand over the result".into(),
            locations: Vec::new(),
        })
    }

    fn prepare<'a>(
        &'a self,
        input: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<PreparedCall, Failure>> {
        Box::pin(async move {
            let result = self.check(input).map_err(|wrong| {
                let wrong = base::text::head(&wrong, 4_000);
                Failure::ForModel(format!(
                    "The result does not match its schema: {wrong}\nCorrect it and call {NAME} again."
                ))
            })?;
            let facts = CallFacts {
                result: Some(result),
                ..CallFacts::default()
            };
            let output = ToolOutput {
                facts,
                ..ToolOutput::text("The result was accepted.")
            };
            Ok(PreparedCall {
                requests: Vec::new(),
                run: Box::new(move |_| Box::pin(async move { Ok(output) })),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_result_is_refused_with_its_mistakes() {
        let object = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": { "name": { "type": "string" }, "ports": { "type": "array", "items": { "type": "integer", "maximum": 65535 } } },
            "required": ["name"],
            "additionalProperties": false,
        });
        let list = json!({ "type": "array", "items": { "enum": ["a", "b"] } });
        let table = [
            (
                &object,
                json!({ "name": "x", "ports": [80] }),
                Ok(json!({ "name": "x", "ports": [80] })),
            ),
            (
                &object,
                json!({ "ports": [80, 70_000] }),
                Err(["name", "/ports/1"]),
            ),
            (
                &object,
                json!({ "name": 1, "more": true }),
                Err(["/name", "more"]),
            ),
            (&list, json!({ "result": ["a"] }), Ok(json!(["a"]))),
            (&list, json!({ "result": ["c"] }), Err(["/0", "\"c\""])),
            (&list, json!(["a"]), Err(["result", "missing"])),
        ];
        for (schema, input, expected) in table {
            let found = StructuredOutputTool::new(schema)
                .unwrap()
                .check(input.clone());
            match expected {
                Ok(result) => assert_eq!(found, Ok(result)),
                Err(words) => {
                    let wrong = found.unwrap_err();
                    assert!(
                        words.iter().all(|word| wrong.contains(word)),
                        "{input}: {wrong}"
                    );
                }
            }
        }
        assert_eq!(
            StructuredOutputTool::new(&object)
                .unwrap()
                .schema()
                .get("$schema"),
            None
        );
    }

    #[test]
    fn invalid_schema_is_refused() {
        let table = [
            (json!({ "type": "nothing" }), "nothing"),
            (json!([1]), "a schema is an object"),
            (json!("x"), "a schema is an object"),
            (json!(null), "a schema is an object"),
            (json!(false), "nothing fits"),
            (
                json!({ "$ref": "https://example.com/x.json" }),
                "is not fetched; put",
            ),
            (
                json!({ "$ref": "file:///etc/passwd" }),
                "is not fetched; put",
            ),
            (json!({ "$ref": "#/$defs/gone" }), "/$defs/gone"),
        ];
        // Neither is a file that would be a schema.
        let there = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(there.path(), "{}").unwrap();
        let file = json!({ "$ref": format!("file://{}", there.path().display()) });
        for (schema, words) in table.into_iter().chain([(file, "is not fetched; put")]) {
            let wrong = StructuredOutputTool::new(&schema).err().unwrap_or_default();
            assert!(wrong.contains(words), "{schema}: {wrong}");
        }
        assert_eq!(
            StructuredOutputTool::new(&json!(true))
                .unwrap()
                .check(json!({ "result": 1 })),
            Ok(json!(1))
        );
    }

    #[test]
    fn wrapped_schema_keeps_its_internal_references() {
        let tree = json!({
            "$id": "https://example.com/tree",
            "type": "array",
            "items": { "$ref": "#/$defs/node" },
            "$defs": { "node": { "type": "object", "properties": { "below": { "$ref": "#" }, "same": { "$ref": "#/items" } } } },
        });
        let output = StructuredOutputTool::new(&tree).unwrap();
        let shown = jsonschema::validator_for(&output.schema).unwrap();
        let table = [
            (json!([]), true),
            (json!([{}]), true),
            (json!([1]), false),
            (json!([{ "below": [{ "below": [] }] }]), true),
            (json!([{ "below": [{ "below": 1 }] }]), false),
            (json!([{ "below": [], "same": { "below": [7] } }]), false),
        ];
        for (value, fits) in table {
            let input = json!({ "result": value });
            assert_eq!(shown.is_valid(&input), fits, "as shown: {input}");
            assert_eq!(output.check(input.clone()).is_ok(), fits, "{input}");
        }
    }
}
