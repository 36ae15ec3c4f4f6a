//! `structured_output`: the model hands over a result in the shape that was asked for. Offered only
//! for a prompt that asks for one; what does not fit is sent back with what is wrong.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{AnyTool, Boxed, Context, Description, Failure, Output, Prepared};
use crate::event::Kind;

/// Its name.
pub const NAME: &str = "structured_output";

/// Where the result stands in the metadata of the call that was accepted.
pub const RESULT: &str = "structured";

/// How many things that are wrong are named.
const NAMED: usize = 10;

/// See the module.
pub struct StructuredOutput {
    validator: jsonschema::Validator,
    /// As the model sees it: an object.
    schema: Arc<Value>,
    /// What was asked for is no object, and is wrapped in one.
    wrapped: bool,
}

impl StructuredOutput {
    /// A tool that takes what fits a JSON Schema.
    ///
    /// # Errors
    /// What is wrong with the schema.
    pub fn new(schema: &Value) -> Result<Self, String> {
        let validator = jsonschema::validator_for(schema).map_err(|e| e.to_string())?;
        let mut plain = schema.clone();
        if let Some(members) = plain.as_object_mut() {
            members.remove("$schema");
        }
        let wrapped = plain["type"] != "object";
        if wrapped {
            plain = json!({ "type": "object", "properties": { "result": plain }, "required": ["result"] });
        }
        Ok(Self { validator, schema: Arc::new(plain), wrapped })
    }

    fn check(&self, mut input: Value) -> Result<Value, String> {
        if self.wrapped {
            input = match input.get_mut("result") {
                Some(result) => result.take(),
                None => return Err("result is missing".into()),
            };
        }
        let wrong: Vec<String> = self
            .validator
            .iter_errors(&input)
            .take(NAMED)
            .map(|error| {
                let at = error.instance_path().to_string();
                if at.is_empty() { format!("- {error}") } else { format!("- {at}: {error}") }
            })
            .collect();
        if wrong.is_empty() { Ok(input) } else { Err(format!("\n{}", wrong.join("\n"))) }
    }
}

impl AnyTool for StructuredOutput {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> String {
        crate::prompts::tool(NAME).to_owned()
    }

    fn schema(&self) -> Arc<Value> {
        self.schema.clone()
    }

    fn kind(&self) -> Kind {
        Kind::Think
    }

    fn concurrent(&self) -> bool {
        false
    }

    fn permission(&self) -> &str {
        NAME
    }

    fn describe(&self, _: &Value, _: &Context) -> Option<Description> {
        Some(Description { title: "Hand over the result".into(), locations: Vec::new() })
    }

    fn prepare<'a>(&'a self, input: Value, _: &'a Context) -> Boxed<'a, Result<Prepared, Failure>> {
        Box::pin(async move {
            let result = self.check(input).map_err(|wrong| {
                let wrong = crate::text::head(&wrong, 4_000);
                Failure::Tell(format!("The result does not fit its schema: {wrong}\nCorrect it and call {NAME} again."))
            })?;
            let metadata = Map::from_iter([(RESULT.to_owned(), result)]);
            let output = Output { metadata, ..Output::text("The result was accepted.") };
            Ok(Prepared { needs: Vec::new(), run: Box::new(move |_| Box::pin(async move { Ok(output) })) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_named() {
        let object = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": { "name": { "type": "string" }, "ports": { "type": "array", "items": { "type": "integer", "maximum": 65535 } } },
            "required": ["name"],
            "additionalProperties": false,
        });
        let list = json!({ "type": "array", "items": { "enum": ["a", "b"] } });
        let table = [
            (&object, json!({ "name": "x", "ports": [80] }), Ok(json!({ "name": "x", "ports": [80] }))),
            (&object, json!({ "ports": [80, 70_000] }), Err(["name", "/ports/1"])),
            (&object, json!({ "name": 1, "more": true }), Err(["/name", "more"])),
            (&list, json!({ "result": ["a"] }), Ok(json!(["a"]))),
            (&list, json!({ "result": ["c"] }), Err(["/0", "\"c\""])),
            (&list, json!(["a"]), Err(["result", "missing"])),
        ];
        for (schema, input, expected) in table {
            let found = StructuredOutput::new(schema).unwrap().check(input.clone());
            match expected {
                Ok(result) => assert_eq!(found, Ok(result)),
                Err(words) => {
                    let wrong = found.unwrap_err();
                    assert!(words.iter().all(|word| wrong.contains(word)), "{input}: {wrong}");
                }
            }
        }
        assert_eq!(StructuredOutput::new(&object).unwrap().schema().get("$schema"), None);
        assert!(StructuredOutput::new(&json!({ "type": "nothing" })).is_err());
    }
}
