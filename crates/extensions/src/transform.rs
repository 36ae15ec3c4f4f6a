//! The conversation of a request in the format of OpenCode's hook `experimental.chat.messages.transform`:
//! messages with parts, and calls that contain their results. Attached files are left out. Plugins may
//! change existing texts, arguments and results. They cannot add, remove or move anything, so that every
//! call keeps exactly one result.

use std::sync::Arc;

use serde_json::{Value, json};

use providers::Request;
use providers::request::{CallResult, ModelInput, ModelMessage, ModelOutput};

/// Returns the id of a message: its index in the request.
fn message_id(index: usize) -> String {
    format!("msg_{index:06}")
}

/// Returns the id of a part: the indexes of its message and of the part within it.
fn part_id(message_index: usize, part_index: usize) -> String {
    format!("prt_{message_index:06}_{part_index:03}")
}

/// Encodes the conversation of a request.
pub(super) fn encode_messages(request: &Request, session: &str, agent: &str) -> Value {
    let mut all = Vec::new();
    for (message_index, message) in request.messages.iter().enumerate() {
        let results = match request.messages.get(message_index + 1) {
            Some(ModelMessage::Results(results)) => results.as_slice(),
            _ => &[],
        };
        let id = message_id(message_index);
        let common = |part_index: usize| json!({ "id": part_id(message_index, part_index), "sessionID": session, "messageID": id });
        let (role, parts): (&str, Vec<Value>) = match message {
            ModelMessage::User(inputs) => {
                let texts =
                    inputs
                        .iter()
                        .enumerate()
                        .filter_map(|(part_index, input)| match input {
                            ModelInput::Text(text) => Some(merged(
                                common(part_index),
                                json!({ "type": "text", "text": text }),
                            )),
                            ModelInput::File(_) => None,
                        });
                ("user", texts.collect())
            }
            ModelMessage::Assistant(outputs) => {
                let parts = outputs.iter().enumerate().map(|(part_index, output)| {
                    merged(common(part_index), encode_output(output, results))
                });
                ("assistant", parts.collect())
            }
            ModelMessage::Results(_) => continue,
        };
        let model =
            json!({ "providerID": request.model.id.provider, "modelID": request.model.id.model });
        // A request has no times; the index preserves the order.
        let info = json!({
            "id": id, "sessionID": session, "role": role, "agent": agent, "model": model, "time": { "created": message_index },
            "providerID": request.model.id.provider, "modelID": request.model.id.model,
        });
        all.push(json!({ "info": info, "parts": parts }));
    }
    Value::Array(all)
}

/// Returns `base` with the members of `extra`, which replace those of the same name.
fn merged(mut base: Value, extra: Value) -> Value {
    if let (Value::Object(base), Value::Object(extra)) = (&mut base, extra) {
        base.extend(extra);
    }
    base
}

/// Encodes an output of the model as a part. A call contains its result; without one, it counts as
/// completed without output.
fn encode_output(output: &ModelOutput, results: &[CallResult]) -> Value {
    match output {
        ModelOutput::Text { text, .. } => json!({ "type": "text", "text": text }),
        ModelOutput::Reasoning { text, .. } => json!({ "type": "reasoning", "text": text }),
        ModelOutput::Call {
            id,
            name,
            arguments,
            ..
        } => {
            let result = results.iter().find(|result| result.id == *id);
            let text = result.map(|result| &*result.text).unwrap_or_default();
            let failed = result.is_some_and(|result| result.failed);
            let time = json!({ "start": 0, "end": 0 });
            let state = if failed {
                json!({ "status": "error", "input": **arguments, "error": text, "time": time })
            } else {
                json!({
                    "status": "completed", "input": **arguments, "output": text, "title": name, "metadata": {}, "time": time,
                })
            };
            json!({ "type": "tool", "callID": &**id, "tool": name, "state": state })
        }
    }
}

/// Applies the changes of plugins to a request. `before` and `after` are the encoded messages.
/// Returns whether messages or parts were added or removed, which has no effect.
pub(super) fn apply_changes(request: &mut Request, before: &Value, after: &Value) -> bool {
    let empty = Vec::new();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let before = list(before);
    let after = list(after);
    let mut has_ignored_changes = before.len() != after.len();
    for message in &after {
        let id = message
            .pointer("/info/id")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let Some(original_message) = before
            .iter()
            .find(|original| original.pointer("/info/id").and_then(Value::as_str) == Some(id))
        else {
            has_ignored_changes = true;
            continue;
        };
        let parts = message
            .get("parts")
            .and_then(Value::as_array)
            .unwrap_or(&empty);
        let original_parts = original_message
            .get("parts")
            .and_then(Value::as_array)
            .unwrap_or(&empty);
        has_ignored_changes |= parts.len() != original_parts.len();
        for part in parts {
            let id = part.get("id").and_then(Value::as_str).unwrap_or_default();
            match original_parts
                .iter()
                .find(|original| original.get("id").and_then(Value::as_str) == Some(id))
            {
                Some(original) if original == part => {}
                Some(_) => apply_part_change(request, id, part),
                None => has_ignored_changes = true,
            }
        }
    }
    has_ignored_changes
}

/// Applies a changed part. `id` is its id, as [`part_id`] has made it.
fn apply_part_change(request: &mut Request, id: &str, part: &Value) {
    let mut numbers = id
        .trim_start_matches("prt_")
        .split('_')
        .map(str::parse::<usize>);
    let (Some(Ok(message_index)), Some(Ok(part_index))) = (numbers.next(), numbers.next()) else {
        return;
    };
    let string_at = |pointer: &str| {
        part.pointer(pointer)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    // Providers refuse a blank text, so the old one stays.
    let text = string_at("/text").filter(|text| !text.trim().is_empty());
    let mut result = None;
    match request.messages.get_mut(message_index) {
        Some(ModelMessage::User(inputs)) => {
            if let (Some(ModelInput::Text(old)), Some(text)) = (inputs.get_mut(part_index), text) {
                *old = text.into();
            }
        }
        Some(ModelMessage::Assistant(outputs)) => match outputs.get_mut(part_index) {
            Some(ModelOutput::Text { text: old, .. }) => {
                if let Some(text) = text {
                    *old = text;
                }
            }
            Some(ModelOutput::Call { id, arguments, .. }) => {
                // `input` has the arguments.
                if let Some(input) = part
                    .pointer("/state/input")
                    .filter(|input| input.is_object() && **input != **arguments)
                {
                    *arguments = Arc::new(input.clone());
                }
                result = string_at("/state/output")
                    .or_else(|| string_at("/state/error"))
                    .map(|text| (id.clone(), text));
            }
            // Providers require the reasoning unchanged.
            Some(ModelOutput::Reasoning { .. }) | None => {}
        },
        Some(ModelMessage::Results(_)) | None => {}
    }
    let Some((call, text)) = result else { return };
    if let Some(ModelMessage::Results(results)) = request.messages.get_mut(message_index + 1)
        && let Some(result) = results.iter_mut().find(|result| result.id == call)
    {
        result.text = text.into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use providers::Model;
    use providers::request::{BodyCache, ModelParams};
    use transcript::ModelRef;

    fn request() -> Request {
        let call = ModelOutput::Call {
            id: "c1".into(),
            provider_id: None,
            name: "read".into(),
            arguments: Arc::new(json!({"filePath": "a"})),
            provider: Map::new(),
        };
        let thought = ModelOutput::Reasoning {
            text: "Hm.".into(),
            provider: Map::new(),
        };
        let result = CallResult {
            id: "c1".into(),
            provider_id: None,
            name: "read".into(),
            text: "long".into(),
            failed: false,
            attachments: Vec::new(),
        };
        Request {
            model: Model::unknown(ModelRef::parse("p/m").unwrap()).into(),
            system: Vec::new(),
            messages: vec![
                ModelMessage::User(vec![ModelInput::Text("Hi.".into())]),
                ModelMessage::Assistant(vec![thought, call]),
                ModelMessage::Results(vec![result]),
            ],
            tools: Vec::new(),
            must_call: false,
            params: ModelParams::default(),
            session: "s".into(),
            body_cache: BodyCache::default(),
        }
    }

    #[test]
    fn changed_texts_are_applied_and_nothing_else() {
        let mut changed = request();
        let before = encode_messages(&changed, "s", "build");
        assert_eq!(before[1]["parts"][1]["state"]["output"], "long");
        assert!(!apply_changes(&mut changed, &before, &before));
        assert_eq!(changed.messages, request().messages);
        let mut after = before.clone();
        after[0]["parts"][0]["text"] = "Hello.".into();
        after[1]["parts"][0]["text"] = "Changed thought.".into();
        after[1]["parts"][1]["state"]["output"] = "[pruned]".into();
        after[1]["parts"][1]["state"]["input"] = json!({"filePath": "b"});
        assert!(!apply_changes(&mut changed, &before, &after));
        let ModelMessage::Assistant(outputs) = &changed.messages[1] else {
            panic!()
        };
        let ModelMessage::Results(results) = &changed.messages[2] else {
            panic!()
        };
        assert_eq!(
            changed.messages[0],
            ModelMessage::User(vec![ModelInput::Text("Hello.".into())])
        );
        assert_eq!(
            (&*results[0].text, outputs[0].clone()),
            (
                "[pruned]",
                ModelOutput::Reasoning {
                    text: "Hm.".into(),
                    provider: Map::new()
                }
            )
        );
        assert!(
            matches!(&outputs[1], ModelOutput::Call { arguments, .. } if **arguments == json!({"filePath": "b"}))
        );
        // A missing message stays, and a new one is ignored.
        let mut changed = request();
        assert!(apply_changes(
            &mut changed,
            &before,
            &json!([{"info": {"id": "msg_9"}, "parts": []}])
        ));
        assert_eq!(changed.messages, request().messages);
    }
}
