//! Encodes a request as a call of the generateContent API.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{generation, schema};
use crate::body::{Element, RequestBody};
use crate::request::{Attachment, CallResult, ModelInput, ModelMessage, ModelOutput};
use crate::request_target::{RequestOptions, RequestTarget};
use crate::wire_format::{HttpCall, check_attachment, has_calls, merge};
use crate::{Error, Model, Request, optional_fields};

/// Options at the top level of the body; all others belong to `generationConfig`.
const TOP_LEVEL_OPTIONS: &[&str] = &["safetySettings", "cachedContent", "labels", "serviceTier"];

/// The signature that Google documents for calls of other models, which have none although one is
/// required.
const PLACEHOLDER_SIGNATURE: &str = "skip_thought_signature_validator";

/// Encodes a request; see [`WireFormat::encode`](crate::wire_format::WireFormat::encode).
pub(super) fn encode_request(
    request: &Request,
    target: &RequestTarget,
    request_options: &RequestOptions,
) -> Result<HttpCall, Error> {
    let mut generation = Map::new();
    let numbers = [
        ("temperature", request_options.temperature),
        ("topP", request_options.top_p),
    ];
    generation.extend(
        numbers
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.into()))),
    );
    let integers = [
        ("topK", request_options.top_k),
        ("maxOutputTokens", request_options.max_output),
    ];
    generation.extend(
        integers
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.into()))),
    );
    if request.model.reasoning {
        generation.insert("thinkingConfig".into(), json!({"includeThoughts": true}));
    }
    let mut generation = Value::Object(generation);
    let (top, inner): (Map<_, _>, Map<_, _>) = request_options
        .options
        .clone()
        .into_iter()
        .partition(|(name, _)| TOP_LEVEL_OPTIONS.contains(&name.as_str()));
    merge(&mut generation, &Value::Object(inner));

    let mut body = RequestBody::new(Map::new(), &top, &[], request)?;
    if let Value::Object(generation) = &mut generation {
        optional_fields::remove_fields(generation, &request.params.omitted);
        if !generation.is_empty() {
            body.field("generationConfig", generation)?;
        }
    }
    let system: Vec<GeminiPart<'_>> = request
        .system
        .iter()
        .filter(|s| !s.is_empty())
        .map(|s| GeminiPart::text(s))
        .collect();
    if !system.is_empty() {
        body.field("systemInstruction", &json!({"parts": system}))?;
    }
    if !request.tools.is_empty() {
        let declared = request.tools.iter().map(|tool| {
            let mut function = json!({"name": tool.name, "description": tool.description});
            if let Some(parameters) = schema::parameters(&tool.schema) {
                function["parameters"] = parameters;
            }
            function
        });
        body.field(
            "tools",
            &[json!({"functionDeclarations": declared.collect::<Vec<_>>()})],
        )?;
        if request.must_call {
            body.field(
                "toolConfig",
                &json!({"functionCallingConfig": {"mode": "ANY"}}),
            )?;
        }
    } else if request.params.search {
        body.field("tools", &[json!({"google_search": {}})])?;
    } else if has_calls(request) {
        body.field(
            "toolConfig",
            &json!({"functionCallingConfig": {"mode": "NONE"}}),
        )?;
    }
    let body = body.finish("contents", &contents(request), request, target)?;
    let mut headers = Vec::new();
    if let Some(key) = &target.key {
        let key = key.expose();
        // Tokens of an account have this prefix and are bearer tokens; keys have their own header.
        if key.starts_with("ya29.") {
            headers.push(("authorization".to_owned(), format!("Bearer {key}")));
        } else {
            headers.push(("x-goog-api-key".to_owned(), key.to_owned()));
        }
    }
    headers.extend(target.headers.iter().cloned());
    let id = &request.model.api_id;
    let path = if id.contains('/') {
        format!("/{id}")
    } else {
        format!("/models/{id}")
    };
    Ok(HttpCall {
        url: target.url(&format!("{path}:streamGenerateContent?alt=sse")),
        headers,
        body,
    })
}

#[derive(Serialize)]
struct GeminiContent<'a> {
    role: &'static str,
    parts: Vec<GeminiPart<'a>>,
}

/// Encodes the conversation; consecutive messages of one role are one content.
fn contents(request: &Request) -> Vec<Element<GeminiContent<'_>>> {
    let model = &request.model;
    let mut contents: Vec<Element<GeminiContent<'_>>> = Vec::new();
    for (at, message) in request.messages.iter().enumerate() {
        let (role, parts) = match message {
            ModelMessage::User(inputs) => (
                "user",
                inputs
                    .iter()
                    .filter_map(|input| user_part(input, model))
                    .collect(),
            ),
            ModelMessage::Assistant(outputs) => ("model", model_parts(outputs, model)),
            ModelMessage::Results(results) => ("user", result_parts(results, model)),
        };
        let message_count = at + 1;
        match contents
            .last_mut()
            .filter(|content| content.value.role == role)
        {
            Some(content) => {
                content.message_count = message_count;
                content.value.parts.extend(parts);
            }
            None => contents.push(Element {
                message_count,
                is_final: true,
                value: GeminiContent { role, parts },
            }),
        }
    }
    contents.retain(|content| !content.value.parts.is_empty());
    // The next message may have the same role.
    if let Some(last) = contents.last_mut() {
        last.is_final = false;
    }
    contents
}

fn user_part<'a>(input: &'a ModelInput, model: &Model) -> Option<GeminiPart<'a>> {
    match input {
        ModelInput::Text(text) if text.is_empty() => None,
        ModelInput::Text(text) => Some(GeminiPart::text(text)),
        ModelInput::File(file) => Some(attached(file, model)),
    }
}

fn attached<'a>(file: &'a Attachment, model: &Model) -> GeminiPart<'a> {
    match check_attachment(file, model) {
        Ok(file) => GeminiPart {
            kind: PartData::File(file),
            thought: false,
            signature: None,
        },
        Err(replacement) => GeminiPart {
            kind: PartData::Text(replacement.into()),
            thought: false,
            signature: None,
        },
    }
}

fn signature(provider: &Map<String, Value>) -> Option<&str> {
    provider.get("thoughtSignature").and_then(Value::as_str)
}

fn model_parts<'a>(outputs: &'a [ModelOutput], model: &Model) -> Vec<GeminiPart<'a>> {
    let mut is_first_call = true;
    let part = |output: &'a ModelOutput| match output {
        ModelOutput::Text { text, provider } => Some(GeminiPart {
            signature: signature(provider),
            ..GeminiPart::text(text)
        }),
        ModelOutput::Reasoning { text, provider } => {
            if let Some(part) = provider.get("part") {
                return Some(GeminiPart {
                    kind: PartData::Opaque(part),
                    thought: false,
                    signature: None,
                });
            }
            let signature = signature(provider)?;
            let thought = provider.get("plain").is_none();
            Some(GeminiPart {
                thought,
                signature: Some(signature),
                ..GeminiPart::text(text)
            })
        }
        ModelOutput::Call {
            provider_id,
            name,
            arguments,
            provider,
            ..
        } => {
            // Only the first call of an answer has a signature, which is required since generation
            // 3.
            let is_first = std::mem::take(&mut is_first_call);
            let is_required = is_first && generation(&model.api_id) >= Some(3);
            let signature = signature(provider).or(is_required.then_some(PLACEHOLDER_SIGNATURE));
            Some(GeminiPart {
                kind: PartData::Call {
                    id: provider_id.as_deref(),
                    name,
                    args: arguments,
                },
                thought: false,
                signature,
            })
        }
    };
    outputs.iter().filter_map(part).collect()
}

/// Encodes all results of an answer, followed by their attachments.
fn result_parts<'a>(results: &'a [CallResult], model: &Model) -> Vec<GeminiPart<'a>> {
    let result = |result: &'a CallResult| GeminiPart {
        kind: PartData::Result {
            id: result.provider_id.as_deref(),
            name: &result.name,
            text: &result.text,
            failed: result.failed,
        },
        thought: false,
        signature: None,
    };
    let mut parts: Vec<GeminiPart<'a>> = results.iter().map(result).collect();
    let files: Vec<GeminiPart<'a>> = results
        .iter()
        .flat_map(|r| &r.attachments)
        .map(|file| attached(file, model))
        .collect();
    if !files.is_empty() {
        parts.push(GeminiPart::text(prompts::wire::FROM_RESULT));
        parts.extend(files);
    }
    parts
}

struct GeminiPart<'a> {
    kind: PartData<'a>,
    /// True if the text is reasoning.
    thought: bool,
    /// The thought signature.
    signature: Option<&'a str>,
}

enum PartData<'a> {
    Text(std::borrow::Cow<'a, str>),
    File(&'a Attachment),
    Call {
        id: Option<&'a str>,
        name: &'a str,
        args: &'a Value,
    },
    Result {
        id: Option<&'a str>,
        name: &'a str,
        text: &'a str,
        failed: bool,
    },
    /// A whole part as the provider sent it.
    Opaque(&'a Value),
}

impl<'a> GeminiPart<'a> {
    fn text(text: &'a str) -> Self {
        Self {
            kind: PartData::Text(text.into()),
            thought: false,
            signature: None,
        }
    }
}

impl Serialize for GeminiPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct InlineData<'a> {
            #[serde(rename = "mimeType")]
            mime: &'a str,
            data: &'a str,
        }
        #[derive(Serialize)]
        struct FunctionCall<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            id: Option<&'a str>,
            name: &'a str,
            args: &'a Value,
        }
        #[derive(Serialize)]
        struct FunctionResponse<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            id: Option<&'a str>,
            name: &'a str,
            response: Map<String, Value>,
        }
        if let PartData::Opaque(whole) = self.kind {
            return whole.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        match &self.kind {
            PartData::Opaque(_) => {}
            PartData::Text(text) => map.serialize_entry("text", text)?,
            PartData::File(file) => map.serialize_entry(
                "inlineData",
                &InlineData {
                    mime: &file.mime,
                    data: &file.data,
                },
            )?,
            PartData::Call { id, name, args } => map.serialize_entry(
                "functionCall",
                &FunctionCall {
                    id: *id,
                    name,
                    args,
                },
            )?,
            PartData::Result {
                id,
                name,
                text,
                failed,
            } => {
                let response = Map::from_iter([(
                    (if *failed { "error" } else { "output" }).to_owned(),
                    (*text).into(),
                )]);
                map.serialize_entry(
                    "functionResponse",
                    &FunctionResponse {
                        id: *id,
                        name,
                        response,
                    },
                )?;
            }
        }
        if self.thought {
            map.serialize_entry("thought", &true)?;
        }
        if let Some(signature) = self.signature {
            map.serialize_entry("thoughtSignature", signature)?;
        }
        map.end()
    }
}
