//! Encodes a request as a call of the Chat Completions API. [`ChatDialect`] has the differences
//! between servers and models.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::body::{Element, RequestBody};
use crate::request::{
    Attachment, CallResult, DataUrl, ModelInput, ModelMessage, ModelOutput, ToolSpec,
    last_shared_block,
};
use crate::request_target::{RequestOptions, RequestTarget};
use crate::wire_format::{CallIds, HttpCall, check_attachment, has_calls, rename_options};
use crate::{Error, Model, Request};

/// Fields that the user's options cannot replace.
const RESERVED: &[&str] = &["messages", "tools", "includeUsage"];

/// OpenCode's names of options, and the API's.
const OPTION_NAMES: &[(&str, &str)] = &[
    ("reasoningEffort", "reasoning_effort"),
    ("textVerbosity", "verbosity"),
    ("parallelToolCalls", "parallel_tool_calls"),
    ("promptCacheKey", "prompt_cache_key"),
    ("serviceTier", "service_tier"),
    ("logitBias", "logit_bias"),
    ("maxCompletionTokens", "max_completion_tokens"),
    ("topK", "top_k"),
];

/// Encodes a request; see [`WireFormat::encode`](crate::wire_format::WireFormat::encode).
pub(super) fn encode_request(
    request: &Request,
    target: &RequestTarget,
    request_options: &RequestOptions,
) -> Result<HttpCall, Error> {
    let dialect = ChatDialect::new(&request.model, target);
    let head = head(request, target, request_options, &dialect);
    let mut body = RequestBody::new(
        head,
        &rename_options(&request_options.options, OPTION_NAMES),
        RESERVED,
        request,
    )?;
    // Some gateways reject calls in the history of a request without tools.
    if request.tools.is_empty() && has_calls(request) && dialect.requires_tools {
        body.field("tools", &[noop_tool()])?;
        body.field("tool_choice", "none")?;
    } else if !request.tools.is_empty() {
        body.field("tools", &Tools(&request.tools))?;
        if request.must_call {
            body.field("tool_choice", "required")?;
        }
    }
    let call_ids = CallIds::new(request, |id| dialect.call_id(id));
    let conversation = ChatMessages {
        request,
        dialect: &dialect,
        call_ids,
    };
    let mut headers = Vec::new();
    if let Some(key) = &target.key {
        headers.push((
            "authorization".to_owned(),
            format!("Bearer {}", key.expose()),
        ));
    }
    if !request.session.is_empty() {
        headers.push(("x-session-affinity".to_owned(), request.session.clone()));
    }
    headers.extend(target.headers.iter().cloned());
    let body = body.finish("messages", &conversation.elements(), request, target)?;
    Ok(HttpCall {
        url: target.url("/chat/completions"),
        headers,
        body,
    })
}

/// Returns the fields before the tools and the conversation.
fn head(
    request: &Request,
    target: &RequestTarget,
    request_options: &RequestOptions,
    dialect: &ChatDialect,
) -> Map<String, Value> {
    let mut head = Map::new();
    head.insert("model".into(), request.model.api_id.as_str().into());
    head.insert("stream".into(), true.into());
    if request_options.options.get("includeUsage") != Some(&Value::Bool(false)) {
        head.insert("stream_options".into(), json!({"include_usage": true}));
    }
    if let Some(limit) = request_options.max_output {
        let name = if dialect.is_openai {
            "max_completion_tokens"
        } else {
            "max_tokens"
        };
        head.insert(name.into(), limit.into());
    }
    if let Some(temperature) = request_options.temperature {
        head.insert("temperature".into(), temperature.into());
    }
    if let Some(top_p) = request_options.top_p {
        head.insert("top_p".into(), top_p.into());
    }
    if !dialect.is_openai
        && let Some(top_k) = request_options.top_k
    {
        head.insert("top_k".into(), top_k.into());
    }
    if target.accepts_cache_key() && !request.session.is_empty() {
        head.insert("prompt_cache_key".into(), request.session.as_str().into());
    }
    head
}

/// The differences between servers and models.
struct ChatDialect {
    /// True if the server is OpenAI itself, or Azure.
    is_openai: bool,
    /// True if the prompt cache needs explicit breakpoints (`cache_control`).
    needs_cache_breakpoints: bool,
    /// True if ids and the order of roles must follow Mistral's rules.
    is_mistral: bool,
    /// True if every assistant message must have reasoning, even if it is empty.
    requires_reasoning: bool,
    /// True if a history with calls is only accepted in a request with tools.
    requires_tools: bool,
    /// The field in which reasoning is sent back; `None` if it is not sent back unless the model
    /// sent it in a field of its own.
    reasoning_field: Option<String>,
}

impl ChatDialect {
    fn new(model: &Model, target: &RequestTarget) -> Self {
        let id = model.api_id.to_lowercase();
        let any = |names: &[&str]| names.iter().any(|name| id.contains(name));
        let claude = any(&["claude", "anthropic"]);
        let provider = target.provider.as_str();
        Self {
            is_openai: target.is_openai(),
            needs_cache_breakpoints: claude && target.cache_key != Some(false),
            is_mistral: provider == "mistral"
                || any(&["mistral", "devstral", "codestral", "pixtral", "mixtral"]),
            requires_reasoning: any(&["deepseek"]) && model.reasoning,
            requires_tools: claude
                || provider.starts_with("github-copilot")
                || provider.contains("litellm"),
            reasoning_field: target.reasoning_field.clone(),
        }
    }

    /// Converts the id of a call to a form that the server accepts.
    fn call_id<'a>(&self, id: &'a str) -> Cow<'a, str> {
        if !self.is_mistral {
            return id.into();
        }
        // Exactly nine letters and digits: the last ones, because ids have the same beginning.
        let letters: Vec<char> = id.chars().filter(char::is_ascii_alphanumeric).collect();
        let mut short: String = letters[letters.len().saturating_sub(9)..].iter().collect();
        while short.len() < 9 {
            short.push('0');
        }
        short.into()
    }
}

fn noop_tool() -> Value {
    json!({"type": "function", "function": {
        "name": "_noop", "description": prompts::wire::NOOP, "parameters": {"type": "object", "properties": {}}
    }})
}

struct Tools<'a>(&'a [ToolSpec]);

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ToolDefinition<'a> {
            r#type: &'static str,
            function: FunctionDefinition<'a>,
        }
        #[derive(Serialize)]
        struct FunctionDefinition<'a> {
            name: &'a str,
            description: &'a str,
            parameters: &'a Value,
        }
        serializer.collect_seq(self.0.iter().map(|tool| ToolDefinition {
            r#type: "function",
            function: FunctionDefinition {
                name: &tool.name,
                description: &tool.description,
                parameters: &tool.schema,
            },
        }))
    }
}

/// The conversation of a request.
struct ChatMessages<'a> {
    request: &'a Request,
    dialect: &'a ChatDialect,
    call_ids: CallIds<'a>,
}

/// A message of the API.
#[derive(Serialize)]
#[serde(untagged)]
enum ChatMessage<'a> {
    Text(TextMessage<'a>),
    Assistant(AssistantMessage<'a>),
    Tool(ToolMessage<'a>),
}

impl ChatMessages<'_> {
    fn elements(&self) -> Vec<Element<ChatMessage<'_>>> {
        let messages = &self.request.messages;
        let mut elements = Vec::with_capacity(messages.len() + 1);
        elements.extend(self.system().map(|value| Element {
            message_count: 0,
            is_final: true,
            value,
        }));
        for (at, message) in messages.iter().enumerate() {
            let has_breakpoint = self.dialect.needs_cache_breakpoints && at + 2 >= messages.len();
            let mut add = |value| {
                elements.push(Element {
                    message_count: at + 1,
                    is_final: !has_breakpoint,
                    value,
                })
            };
            match message {
                ModelMessage::User(inputs) => {
                    // Files of results are in a user message, which follows them.
                    let ends_with_results = |message: &ModelMessage| matches!(message, ModelMessage::Results(results) if !has_files(results));
                    if at > 0 && ends_with_results(&messages[at - 1]) {
                        self.separator().into_iter().for_each(&mut add);
                    }
                    add(ChatMessage::Text(TextMessage {
                        role: "user",
                        content: self.inputs(inputs, has_breakpoint),
                    }));
                }
                ModelMessage::Assistant(outputs) => {
                    let message = AssistantMessage {
                        outputs,
                        call_ids: &self.call_ids,
                        dialect: self.dialect,
                        has_breakpoint,
                    };
                    if !message.is_empty() {
                        add(ChatMessage::Assistant(message));
                    }
                }
                ModelMessage::Results(results) => self.results(results, has_breakpoint, add),
            }
        }
        elements
    }

    /// Returns the message to insert between a result and a user message; `None` unless the server
    /// is Mistral's, which rejects a user message directly after a tool message.
    fn separator(&self) -> Option<ChatMessage<'static>> {
        let content = ChatContent::Text("Done.".into());
        self.dialect
            .is_mistral
            .then_some(ChatMessage::Text(TextMessage {
                role: "assistant",
                content,
            }))
    }

    fn system(&self) -> Option<ChatMessage<'_>> {
        let system: Vec<&str> = self
            .request
            .system
            .iter()
            .map(String::as_str)
            .filter(|s| !s.is_empty())
            .collect();
        if system.is_empty() {
            return None;
        }
        let content = if self.dialect.needs_cache_breakpoints {
            ChatContent::Parts(
                system
                    .iter()
                    .enumerate()
                    .map(|(i, text)| ContentPart::text(text, i == last_shared_block(system.len())))
                    .collect(),
            )
        } else {
            ChatContent::Text(system.join("\n\n").into())
        };
        Some(ChatMessage::Text(TextMessage {
            role: "system",
            content,
        }))
    }

    fn inputs<'a>(&self, inputs: &'a [ModelInput], has_breakpoint: bool) -> ChatContent<'a> {
        if let ([ModelInput::Text(text)], false) = (inputs, has_breakpoint) {
            return ChatContent::Text(text.as_str().into());
        }
        let only_text = inputs
            .iter()
            .all(|input| matches!(input, ModelInput::Text(_)));
        if only_text && !has_breakpoint {
            let texts = inputs.iter().filter_map(|input| match input {
                ModelInput::Text(text) => Some(text.as_str()),
                ModelInput::File(_) => None,
            });
            return ChatContent::Text(texts.collect::<Vec<_>>().join("\n\n").into());
        }
        let last = inputs.len().saturating_sub(1);
        let pieces = inputs.iter().enumerate().map(|(i, input)| match input {
            ModelInput::Text(text) => ContentPart::text(text, has_breakpoint && i == last),
            ModelInput::File(file) => self.file(file),
        });
        ChatContent::Parts(pieces.collect())
    }

    fn file<'a>(&self, file: &'a Attachment) -> ContentPart<'a> {
        match check_attachment(file, &self.request.model) {
            Err(replacement) => ContentPart::Text {
                text: replacement.into(),
                has_breakpoint: false,
            },
            Ok(file) if file.mime == "application/pdf" => ContentPart::Pdf(file),
            Ok(file) if file.mime.starts_with("audio/") => ContentPart::Audio(file),
            Ok(file) => ContentPart::Image(file),
        }
    }

    /// Encodes results. A tool message contains text only, so images follow in a user message.
    fn results<'a>(
        &'a self,
        results: &'a [CallResult],
        has_breakpoint: bool,
        mut add: impl FnMut(ChatMessage<'a>),
    ) {
        let last = results.len().saturating_sub(1);
        for (i, result) in results.iter().enumerate() {
            let content = if has_breakpoint && i == last {
                ChatContent::Parts(vec![ContentPart::text(
                    &result.text,
                    !result.text.is_empty(),
                )])
            } else {
                ChatContent::Text((&*result.text).into())
            };
            add(ChatMessage::Tool(ToolMessage {
                role: "tool",
                tool_call_id: self.call_ids.get(&result.id),
                content,
            }));
        }
        let mut pieces: Vec<ContentPart<'_>> = results
            .iter()
            .flat_map(|r| &r.attachments)
            .map(|file| self.file(file))
            .collect();
        if !pieces.is_empty() {
            pieces.insert(0, ContentPart::text(prompts::wire::FROM_RESULT, false));
            self.separator().into_iter().for_each(&mut add);
            add(ChatMessage::Text(TextMessage {
                role: "user",
                content: ChatContent::Parts(pieces),
            }));
        }
    }
}

fn has_files(results: &[CallResult]) -> bool {
    results.iter().any(|result| !result.attachments.is_empty())
}

#[derive(Serialize)]
struct TextMessage<'a> {
    role: &'static str,
    content: ChatContent<'a>,
}

#[derive(Serialize)]
struct ToolMessage<'a> {
    role: &'static str,
    tool_call_id: &'a str,
    content: ChatContent<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ChatContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ContentPart<'a>>),
}

enum ContentPart<'a> {
    /// A text; `has_breakpoint` adds `cache_control`.
    Text {
        text: Cow<'a, str>,
        has_breakpoint: bool,
    },
    Image(&'a Attachment),
    Audio(&'a Attachment),
    Pdf(&'a Attachment),
}

impl<'a> ContentPart<'a> {
    fn text(text: &'a str, has_breakpoint: bool) -> Self {
        Self::Text {
            text: text.into(),
            has_breakpoint,
        }
    }
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: DataUrl<'a>,
}

#[derive(Serialize)]
struct FileData<'a> {
    filename: &'a str,
    file_data: DataUrl<'a>,
}

#[derive(Serialize)]
struct InputAudio<'a> {
    data: &'a str,
    format: &'a str,
}

impl Serialize for ContentPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Text {
                text,
                has_breakpoint,
            } => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", text)?;
                if *has_breakpoint {
                    map.serialize_entry("cache_control", &json!({"type": "ephemeral"}))?;
                }
            }
            Self::Image(file) => {
                map.serialize_entry("type", "image_url")?;
                map.serialize_entry(
                    "image_url",
                    &ImageUrl {
                        url: file.data_url(),
                    },
                )?;
            }
            Self::Audio(file) => {
                let kind = file
                    .mime
                    .trim_start_matches("audio/")
                    .trim_start_matches("x-");
                let format = match kind {
                    "mpeg" => "mp3",
                    "wave" | "vnd.wave" => "wav",
                    kind => kind,
                };
                map.serialize_entry("type", "input_audio")?;
                map.serialize_entry(
                    "input_audio",
                    &InputAudio {
                        data: &file.data,
                        format,
                    },
                )?;
            }
            Self::Pdf(file) => {
                let filename = file.name.as_deref().unwrap_or("document.pdf");
                map.serialize_entry("type", "file")?;
                map.serialize_entry(
                    "file",
                    &FileData {
                        filename,
                        file_data: file.data_url(),
                    },
                )?;
            }
        }
        map.end()
    }
}

/// A message of the model, whose outputs are merged into the API's fields.
struct AssistantMessage<'a> {
    outputs: &'a [ModelOutput],
    call_ids: &'a CallIds<'a>,
    dialect: &'a ChatDialect,
    has_breakpoint: bool,
}

impl AssistantMessage<'_> {
    fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }
}

impl Serialize for AssistantMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        let mut refusal = String::new();
        let mut reasoning = String::new();
        let mut details = Vec::new();
        let mut calls = Vec::new();
        let mut field = None;
        for output in self.outputs {
            match output {
                ModelOutput::Text { text: t, provider } if provider.contains_key("refusal") => {
                    refusal.push_str(t)
                }
                ModelOutput::Text { text: t, .. } => text.push_str(t),
                ModelOutput::Reasoning { text: t, provider } => {
                    reasoning.push_str(t);
                    field = provider.get("field").and_then(Value::as_str).or(field);
                    details.extend(
                        provider
                            .get("reasoning_details")
                            .and_then(Value::as_array)
                            .into_iter()
                            .flatten(),
                    );
                }
                ModelOutput::Call {
                    id,
                    name,
                    arguments,
                    provider,
                    ..
                } => {
                    calls.push(ToolCall {
                        id: self.call_ids.get(id),
                        name,
                        arguments,
                        extra: provider.get("extra_content"),
                    });
                }
            }
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", "assistant")?;
        match (text.is_empty(), calls.is_empty() && refusal.is_empty()) {
            (false, _) if self.has_breakpoint => {
                map.serialize_entry("content", &[ContentPart::text(&text, true)])?
            }
            (true, false) => map.serialize_entry("content", &Value::Null)?,
            _ => map.serialize_entry("content", &text)?,
        }
        if !refusal.is_empty() {
            map.serialize_entry("refusal", &refusal)?;
        }
        // A server expects its reasoning in the field that contained it, but no `<think>` in the
        // text.
        let field = field
            .filter(|f| *f != "think")
            .or(self.dialect.reasoning_field.as_deref());
        if !details.is_empty() {
            map.serialize_entry("reasoning_details", &details)?;
        } else if !reasoning.is_empty()
            && let Some(field) = field
        {
            map.serialize_entry(field, &reasoning)?;
        } else if self.dialect.requires_reasoning {
            map.serialize_entry("reasoning_content", "")?;
        }
        if !calls.is_empty() {
            map.serialize_entry("tool_calls", &calls)?;
        }
        map.end()
    }
}

struct ToolCall<'a> {
    id: &'a str,
    name: &'a str,
    arguments: &'a Value,
    extra: Option<&'a Value>,
}

impl Serialize for ToolCall<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Function<'a> {
            name: &'a str,
            arguments: String,
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", self.id)?;
        map.serialize_entry("type", "function")?;
        map.serialize_entry(
            "function",
            &Function {
                name: self.name,
                arguments: self.arguments.to_string(),
            },
        )?;
        if let Some(extra) = self.extra {
            map.serialize_entry("extra_content", extra)?;
        }
        map.end()
    }
}
