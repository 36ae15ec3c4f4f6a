//! Encodes a request as a call of the Responses API.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::gpt_version;
use crate::body::{Element, RequestBody};
use crate::request::{Attachment, CallResult, ModelInput, ModelMessage, ModelOutput, ToolSpec};
use crate::request_target::{RequestOptions, RequestTarget};
use crate::wire_format::{CallIds, HttpCall, check_attachment, merge, rename_options};
use crate::{Error, Request};

/// Fields that the user's options cannot replace, and options that are not fields.
const RESERVED: &[&str] = &[
    "input",
    "tools",
    "instructions",
    "stream",
    "strictJsonSchema",
    "forceReasoning",
];

/// OpenCode's names of options, and the API's.
const OPTION_NAMES: &[(&str, &str)] = &[
    ("parallelToolCalls", "parallel_tool_calls"),
    ("promptCacheKey", "prompt_cache_key"),
    ("promptCacheRetention", "prompt_cache_retention"),
    ("serviceTier", "service_tier"),
    ("safetyIdentifier", "safety_identifier"),
    ("maxToolCalls", "max_tool_calls"),
    ("previousResponseId", "previous_response_id"),
];

/// Encodes a request; see [`WireFormat::encode`](crate::wire_format::WireFormat::encode).
pub(super) fn encode_request(
    request: &Request,
    target: &RequestTarget,
    request_options: &RequestOptions,
) -> Result<HttpCall, Error> {
    let mut body = RequestBody::new(
        head(request, target, request_options),
        &options(request_options),
        RESERVED,
        request,
    )?;
    let system: Vec<&str> = request
        .system
        .iter()
        .map(String::as_str)
        .filter(|s| !s.is_empty())
        .collect();
    if !system.is_empty() {
        body.field("instructions", &system.join("\n\n"))?;
    }
    if !request.tools.is_empty() {
        body.field(
            "tools",
            &request.tools.iter().map(FunctionTool).collect::<Vec<_>>(),
        )?;
        if request.must_call {
            body.field("tool_choice", "required")?;
        }
    }
    if request.tools.is_empty() && request.params.search {
        body.field("tools", &[json!({"type": "web_search"})])?;
    }
    let conversation = ResponsesInput {
        request,
        is_stored: request_options
            .options
            .get("store")
            .and_then(Value::as_bool)
            == Some(true),
        call_ids: CallIds::new(request, call_id),
    };
    let mut headers = Vec::new();
    if let Some(key) = &target.key {
        headers.push((
            "authorization".to_owned(),
            format!("Bearer {}", key.expose()),
        ));
    }
    headers.extend(target.headers.iter().cloned());
    let body = body.finish("input", &conversation.elements(), request, target)?;
    Ok(HttpCall {
        url: target.url("/responses"),
        headers,
        body,
    })
}

fn head(
    request: &Request,
    target: &RequestTarget,
    request_options: &RequestOptions,
) -> Map<String, Value> {
    let model = &request.model;
    let mut head = Map::new();
    head.insert("model".into(), model.api_id.as_str().into());
    head.insert("stream".into(), true.into());
    head.insert("store".into(), false.into());
    if let Some(limit) = request_options.max_output {
        head.insert("max_output_tokens".into(), limit.into());
    }
    // Reasoning models accept no sampling parameters.
    if !model.reasoning {
        let sampling = [
            ("temperature", request_options.temperature),
            ("top_p", request_options.top_p),
        ];
        head.extend(
            sampling
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?.into()))),
        );
    } else {
        head.insert("include".into(), json!(["reasoning.encrypted_content"]));
        let id = model.api_id.to_lowercase();
        if gpt_version(&id).is_some_and(|(major, _)| major >= 5) && !id.contains("-chat") {
            head.insert("reasoning".into(), json!({"summary": "auto"}));
        }
    }
    if target.accepts_cache_key() && !request.session.is_empty() {
        head.insert("prompt_cache_key".into(), request.session.as_str().into());
    }
    head
}

/// Converts OpenCode's flat options to the nested fields of the API.
fn options(request_options: &RequestOptions) -> Map<String, Value> {
    let mut options = Value::Object(rename_options(&request_options.options, OPTION_NAMES));
    for (flat, outer, inner) in [
        ("reasoningEffort", "reasoning", "effort"),
        ("reasoningSummary", "reasoning", "summary"),
        ("textVerbosity", "text", "verbosity"),
    ] {
        if let Some(value) = options
            .as_object_mut()
            .and_then(|map| map.shift_remove(flat))
        {
            merge(&mut options, &json!({outer: {inner: value}}));
        }
    }
    match options {
        Value::Object(options) => options,
        _ => Map::new(),
    }
}

/// Converts the id of a call to a form that the API accepts.
fn call_id(id: &str) -> Cow<'_, str> {
    // At most 64 characters are accepted. The ends are used, because ids begin alike.
    let skip = id.chars().count().saturating_sub(64);
    id.char_indices()
        .nth(skip)
        .map_or("", |(at, _)| &id[at..])
        .into()
}

struct FunctionTool<'a>(&'a ToolSpec);

impl Serialize for FunctionTool<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "function")?;
        map.serialize_entry("name", &self.0.name)?;
        map.serialize_entry("description", &self.0.description)?;
        map.serialize_entry("parameters", &self.0.schema)?;
        map.serialize_entry("strict", &false)?;
        map.end()
    }
}

/// The conversation of a request.
struct ResponsesInput<'a> {
    request: &'a Request,
    /// True if the provider stores the items of the conversation, so that it finds them by their
    /// ids.
    is_stored: bool,
    call_ids: CallIds<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum InputItem<'a> {
    Message(MessageItem<'a>),
    Output(OutputMessage<'a>),
    FunctionCall(FunctionCall<'a>),
    FunctionCallOutput(FunctionCallOutput<'a>),
    Opaque(OpaqueItem<'a>),
}

impl ResponsesInput<'_> {
    fn elements(&self) -> Vec<Element<InputItem<'_>>> {
        let mut elements = Vec::with_capacity(self.request.messages.len());
        for (at, message) in self.request.messages.iter().enumerate() {
            let element = |value| Element {
                message_count: at + 1,
                is_final: true,
                value,
            };
            match message {
                ModelMessage::User(inputs) => {
                    let pieces: Vec<ContentPart<'_>> = inputs
                        .iter()
                        .filter_map(|input| self.input(input))
                        .collect();
                    if !pieces.is_empty() {
                        elements.push(element(InputItem::Message(MessageItem {
                            role: "user",
                            content: pieces,
                        })));
                    }
                }
                ModelMessage::Assistant(outputs) => {
                    // An item with an id is rejected without the reasoning item before it.
                    let with_ids = outputs.iter().all(|output| self.permits_ids(output));
                    elements.extend(
                        outputs
                            .iter()
                            .filter_map(|output| self.output(output, with_ids))
                            .map(element),
                    );
                }
                ModelMessage::Results(results) => {
                    elements.extend(
                        results.iter().map(|result| {
                            element(InputItem::FunctionCallOutput(self.result(result)))
                        }),
                    );
                }
            }
        }
        elements
    }

    fn input<'a>(&self, input: &'a ModelInput) -> Option<ContentPart<'a>> {
        match input {
            ModelInput::Text(text) if text.is_empty() => None,
            ModelInput::Text(text) => Some(ContentPart::Text(text.as_str().into())),
            ModelInput::File(file) => Some(self.file(file)),
        }
    }

    fn file<'a>(&self, file: &'a Attachment) -> ContentPart<'a> {
        match check_attachment(file, &self.request.model) {
            Ok(file) => ContentPart::File(file),
            Err(replacement) => ContentPart::Text(replacement.into()),
        }
    }

    /// True if the items of the message with this output may have ids. False for a reasoning item
    /// that is left out or has no valid id: then the provider rejects ids of the items after it.
    fn permits_ids(&self, output: &ModelOutput) -> bool {
        let ModelOutput::Reasoning { provider, .. } = output else {
            return true;
        };
        let Some(Value::Object(item)) = provider.get("item") else {
            return true;
        };
        !is_reasoning(item) || item_id(item).is_some() && self.is_usable(item)
    }

    /// True if the provider can use an item. Reasoning without its encrypted content can only be
    /// used if the provider has stored it.
    fn is_usable(&self, item: &Map<String, Value>) -> bool {
        let is_found = self.is_stored && item_id(item).is_some();
        !is_reasoning(item)
            || is_found
            || item.get("encrypted_content").is_some_and(Value::is_string)
    }

    fn output<'a>(&'a self, output: &'a ModelOutput, with_ids: bool) -> Option<InputItem<'a>> {
        let id = |provider: &'a Map<String, Value>| {
            if with_ids { item_id(provider) } else { None }
        };
        match output {
            ModelOutput::Text { text, provider } => Some(InputItem::Output(OutputMessage {
                // There is none if another provider made the message, or the server sends no ids.
                id: id(provider),
                piece: if provider.contains_key("refusal") {
                    ContentPart::Refusal(text)
                } else {
                    ContentPart::OutputText(text)
                },
                phase: provider.get("phase"),
            })),
            ModelOutput::Reasoning { provider, .. } => {
                let Some(Value::Object(item)) = provider.get("item") else {
                    return None;
                };
                // Calls that the provider ran itself are like messages and other calls: without the
                // reasoning item before them, they are rejected if they have an id.
                let has_id = item_id(item).is_some() && (with_ids || is_reasoning(item));
                self.is_usable(item)
                    .then_some(InputItem::Opaque(OpaqueItem { item, has_id }))
            }
            ModelOutput::Call {
                id: call,
                name,
                arguments,
                provider,
                ..
            } => {
                let item = id(provider);
                Some(InputItem::FunctionCall(FunctionCall {
                    r#type: "function_call",
                    id: item,
                    call_id: self.call_ids.get(call),
                    name,
                    arguments: arguments.to_string(),
                    status: item.map(|_| "completed"),
                }))
            }
        }
    }

    fn result<'a>(&'a self, result: &'a CallResult) -> FunctionCallOutput<'a> {
        let files: Vec<ContentPart<'a>> = result
            .attachments
            .iter()
            .map(|file| self.file(file))
            .collect();
        let output = if files.is_empty() {
            CallOutput::Text(&result.text)
        } else {
            let text = (!result.text.is_empty()).then(|| ContentPart::Text((&*result.text).into()));
            CallOutput::Parts(text.into_iter().chain(files).collect())
        };
        FunctionCallOutput {
            r#type: "function_call_output",
            call_id: self.call_ids.get(&result.id),
            output,
        }
    }
}

/// The length of the longest id of an item that the API accepts, in bytes. Some servers send longer
/// ids, and reject them in requests.
const MAX_ITEM_ID_BYTES: usize = 64;

/// Returns the provider's id of an item, if it can be sent back.
fn item_id(provider: &Map<String, Value>) -> Option<&str> {
    provider
        .get("id")
        .and_then(Value::as_str)
        .filter(|id| (1..=MAX_ITEM_ID_BYTES).contains(&id.len()))
}

fn is_reasoning(item: &Map<String, Value>) -> bool {
    item.get("type").and_then(Value::as_str) == Some("reasoning")
}

/// An item as the provider sent it, except for its id if the API would not accept it.
struct OpaqueItem<'a> {
    item: &'a Map<String, Value>,
    /// True to send the item's id.
    has_id: bool,
}

impl Serialize for OpaqueItem<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sent = |name: &str| self.has_id || name != "id";
        serializer.collect_map(self.item.iter().filter(|(name, _)| sent(name.as_str())))
    }
}

struct MessageItem<'a> {
    role: &'static str,
    content: Vec<ContentPart<'a>>,
}

/// A message of the model, as the provider sent it.
struct OutputMessage<'a> {
    id: Option<&'a str>,
    piece: ContentPart<'a>,
    phase: Option<&'a Value>,
}

impl Serialize for OutputMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "message")?;
        if let Some(id) = self.id {
            map.serialize_entry("id", id)?;
        }
        map.serialize_entry("role", "assistant")?;
        if self.id.is_some() {
            map.serialize_entry("status", "completed")?;
        }
        map.serialize_entry("content", &[&self.piece])?;
        if let Some(phase) = self.phase {
            map.serialize_entry("phase", phase)?;
        }
        map.end()
    }
}

impl Serialize for MessageItem<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "message")?;
        map.serialize_entry("role", self.role)?;
        map.serialize_entry("content", &self.content)?;
        map.end()
    }
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    call_id: &'a str,
    name: &'a str,
    arguments: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
}

#[derive(Serialize)]
struct FunctionCallOutput<'a> {
    r#type: &'static str,
    call_id: &'a str,
    output: CallOutput<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum CallOutput<'a> {
    Text(&'a str),
    Parts(Vec<ContentPart<'a>>),
}

enum ContentPart<'a> {
    Text(Cow<'a, str>),
    File(&'a Attachment),
    OutputText(&'a str),
    Refusal(&'a str),
}

impl Serialize for ContentPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Text(text) => {
                map.serialize_entry("type", "input_text")?;
                map.serialize_entry("text", text)?;
            }
            Self::File(file) if file.mime == "application/pdf" => {
                map.serialize_entry("type", "input_file")?;
                map.serialize_entry("filename", file.name.as_deref().unwrap_or("document.pdf"))?;
                map.serialize_entry("file_data", &file.data_url())?;
            }
            Self::File(file) => {
                map.serialize_entry("type", "input_image")?;
                map.serialize_entry("detail", "auto")?;
                map.serialize_entry("image_url", &file.data_url())?;
            }
            Self::OutputText(text) => {
                map.serialize_entry("type", "output_text")?;
                map.serialize_entry("text", text)?;
                let none: [&str; 0] = [];
                map.serialize_entry("annotations", &none)?;
            }
            Self::Refusal(text) => {
                map.serialize_entry("type", "refusal")?;
                map.serialize_entry("refusal", text)?;
            }
        }
        map.end()
    }
}
