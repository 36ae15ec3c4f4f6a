//! Encodes a request as a call of the Messages API: options and limits, tools, the system prompt
//! and the conversation, with cache breakpoints (`cache_control`).

use std::borrow::Cow;
use std::collections::HashSet;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::claude_version;
use crate::body::{Element, RequestBody};
use crate::request::{
    Attachment, CallResult, ModelInput, ModelMessage, ModelOutput, ToolSpec, last_shared_block,
};
use crate::request_target::{RequestOptions, RequestTarget};
use crate::wire_format::{CallIds, HttpCall, check_attachment, has_calls, rename_options};
use crate::{Error, Model, Request};
use base::text;

/// Names that are not copied from the user's options to the body: fields that this module writes
/// itself, and options of OpenCode that are not fields of the API.
const RESERVED: &[&str] = &[
    "messages",
    "tools",
    "system",
    "tool_choice",
    "effort",
    "cacheControl",
    "cacheTtl",
    "sendReasoning",
    "toolStreaming",
];

/// The end of the base URL for Claude on Vertex AI, where the URL names the model instead of the
/// body.
const VERTEX_PATH: &str = "/publishers/anthropic";

/// The number of bytes per token that estimates assume. It is low, so that the estimates err on the
/// high side.
pub(super) const MIN_BYTES_PER_TOKEN: usize = 2;

/// The maximum number of web searches by the provider for one request.
const MAX_SEARCHES: u64 = 3;

/// OpenCode's names of options, and the API's.
const OPTION_NAMES: &[(&str, &str)] = &[
    ("outputConfig", "output_config"),
    ("contextManagement", "context_management"),
    ("mcpServers", "mcp_servers"),
];

/// Encodes a request; see [`WireFormat::encode`](crate::wire_format::WireFormat::encode).
pub(super) fn encode_request(
    request: &Request,
    target: &RequestTarget,
    request_options: &RequestOptions,
) -> Result<HttpCall, Error> {
    let mut options = rename_options(&request_options.options, OPTION_NAMES);
    normalize_options(&mut options, request);
    let thinking = options.get("thinking").cloned().unwrap_or_default();
    let budget = thinking
        .get("budget_tokens")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    let thinks = matches!(
        thinking.get("type").and_then(Value::as_str),
        Some("enabled" | "adaptive")
    );

    let mut fields = Map::new();
    let is_vertex = target.base_url.ends_with(VERTEX_PATH);
    if is_vertex {
        fields.insert("anthropic_version".into(), "vertex-2023-10-16".into());
    } else {
        fields.insert("model".into(), request.model.api_id.as_str().into());
    }
    fields.insert("stream".into(), true.into());
    fields.insert(
        "max_tokens".into(),
        max_tokens(request, request_options, budget).into(),
    );
    // The API rejects sampling parameters while thinking is enabled.
    if !thinks {
        let sampling = [
            ("temperature", request_options.temperature),
            ("top_p", request_options.top_p),
        ];
        fields.extend(
            sampling
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?.into()))),
        );
        if let Some(top_k) = request_options.top_k {
            fields.insert("top_k".into(), top_k.into());
        }
    }
    let cache_control = cache_control(target, request_options);
    let mut body = RequestBody::new(fields, &options, RESERVED, request)?;
    if !request.tools.is_empty() {
        body.field(
            "tools",
            &request.tools.iter().map(ToolDefinition).collect::<Vec<_>>(),
        )?;
        if request.must_call {
            body.field("tool_choice", &json!({"type": "any"}))?;
        }
    } else if request.params.search {
        body.field("tools", &[json!({"type": "web_search_20250305", "name": "web_search", "max_uses": MAX_SEARCHES})])?;
    } else if has_calls(request) {
        // A history with calls is rejected unless tools are defined.
        let schema = json!({"type": "object", "properties": {}});
        body.field(
            "tools",
            &[json!({"name": "_noop", "description": prompts::wire::NOOP, "input_schema": schema})],
        )?;
        body.field("tool_choice", &json!({"type": "none"}))?;
    }
    let system: Vec<&str> = request
        .system
        .iter()
        .map(String::as_str)
        .filter(|s| !s.trim().is_empty())
        .collect();
    if !system.is_empty() {
        // The first block depends only on the agent, the model and the tools. All sessions of the
        // project share the blocks up to the last shared one.
        let last_shared = last_shared_block(system.len());
        let blocks = system.iter().enumerate().map(|(index, text)| {
            let cache_control = if index == 0 || index == last_shared {
                cache_control.clone()
            } else {
                None
            };
            BlockParam {
                block: ContentBlock::Text {
                    text: Cow::Borrowed(*text),
                    citations: None,
                },
                cache_control,
            }
        });
        body.field("system", &blocks.collect::<Vec<_>>())?;
    }
    let body = body.finish(
        "messages",
        &encode_messages(request, cache_control.as_ref()),
        request,
        target,
    )?;
    let path = if is_vertex {
        format!("/models/{}:streamRawPredict", request.model.api_id)
    } else {
        "/messages".to_owned()
    };
    Ok(HttpCall {
        url: target.url(&path),
        headers: headers(target, &options, request),
        body,
    })
}

fn headers(
    target: &RequestTarget,
    options: &Map<String, Value>,
    request: &Request,
) -> Vec<(String, String)> {
    let mut headers = vec![("anthropic-version".to_owned(), "2023-06-01".to_owned())];
    if let Some(key) = &target.key {
        let key = key.expose();
        // OAuth tokens of an account are bearer tokens, in contrast to API keys.
        if key.starts_with("sk-ant-oat") {
            headers.push(("authorization".into(), format!("Bearer {key}")));
        } else {
            headers.push(("x-api-key".into(), key.to_owned()));
        }
    }
    let mut betas: Vec<&str> = Vec::new();
    if target.provider == "anthropic" {
        betas.extend([
            "interleaved-thinking-2025-05-14",
            "fine-grained-tool-streaming-2025-05-14",
        ]);
        if options.contains_key("output_config")
            && claude_version(&request.model.api_id) == Some((4, 5))
        {
            betas.push("effort-2025-11-24");
        }
    }
    for (name, value) in &target.headers {
        if name.eq_ignore_ascii_case("anthropic-beta") {
            betas.extend(
                value
                    .split(',')
                    .map(str::trim)
                    .filter(|beta| !beta.is_empty()),
            );
        } else {
            headers.push((name.clone(), value.clone()));
        }
    }
    let mut seen = HashSet::new();
    betas.retain(|beta| seen.insert(*beta));
    if !betas.is_empty() {
        headers.push(("anthropic-beta".into(), betas.join(",")));
    }
    headers
}

/// Converts the options to the API's names, and removes those that this request forbids.
fn normalize_options(options: &mut Map<String, Value>, request: &Request) {
    if let Some(Value::Object(thinking)) = options.get_mut("thinking")
        && let Some(budget) = thinking.remove("budgetTokens")
    {
        thinking.insert("budget_tokens".into(), budget);
    }
    if let Some(effort) = options.remove("effort") {
        options.insert("output_config".into(), json!({"effort": effort}));
    }
    let kind = options
        .get("thinking")
        .and_then(|t| t.get("type"))
        .and_then(Value::as_str);
    let enabled = kind == Some("enabled");
    // A call cannot be forced while the model thinks, and thinking cannot be turned on between a call
    // and its result.
    if (enabled || kind == Some("adaptive")) && request.must_call
        || enabled && !allows_thinking(request)
    {
        options.remove("thinking");
    }
}

/// Returns whether the API accepts thinking: always, except after results of calls whose answer did
/// not begin with thinking.
fn allows_thinking(request: &Request) -> bool {
    if !matches!(request.messages.last(), Some(ModelMessage::Results(_))) {
        return true;
    }
    let last = request
        .messages
        .iter()
        .rev()
        .find_map(|message| match message {
            ModelMessage::Assistant(outputs) => Some(outputs),
            _ => None,
        });
    match last.and_then(|outputs| outputs.first()) {
        Some(ModelOutput::Reasoning { provider, .. }) => {
            provider.contains_key("signature") || provider.contains_key("redacted")
        }
        Some(_) => false,
        None => true,
    }
}

/// Returns the value of `max_tokens`: the output and the thinking budget together, or the output
/// alone if both do not fit.
fn max_tokens(request: &Request, request_options: &RequestOptions, budget: u64) -> u64 {
    let wanted = request_options
        .max_output
        .or(Some(request.params.max_output))
        .filter(|n| *n > 0)
        .unwrap_or(Model::MAX_OUTPUT_TOKENS);
    // Input and maximum output must fit into the window together. The output alone always fits,
    // because a conversation is compacted before it does not.
    let available = request.model.context.map_or(u64::MAX, |window| {
        window.saturating_sub(overestimate_input_tokens(request))
    });
    let with_budget = wanted + budget;
    let max_tokens = if with_budget <= available {
        with_budget
    } else {
        wanted
    };
    let limit = request.model.output.unwrap_or(max_tokens);
    // The API requires `max_tokens` to exceed the budget.
    max_tokens.min(limit).max(budget + 1)
}

/// Returns a high estimate of the input tokens of a request.
fn overestimate_input_tokens(request: &Request) -> u64 {
    let system = request.system.iter().map(String::len).sum::<usize>();
    let messages = request.messages.iter().map(ModelMessage::length);
    let tools = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.schema.to_string().len());
    let bytes = system + messages.sum::<usize>() + tools.sum::<usize>();
    u64::try_from(bytes / MIN_BYTES_PER_TOKEN).unwrap_or(u64::MAX)
}

/// Returns the value of `cache_control`; `None` if the settings turn the prompt cache off.
fn cache_control(target: &RequestTarget, request_options: &RequestOptions) -> Option<Value> {
    // `false` messages the prompt cache off in every form, not only its key.
    if target.cache_key == Some(false) {
        return None;
    }
    let ttl = request_options
        .options
        .get("cacheTtl")
        .or_else(|| request_options.options.get("cacheControl")?.get("ttl"));
    match ttl.and_then(Value::as_str) {
        Some(ttl) => Some(json!({"type": "ephemeral", "ttl": ttl})),
        None => Some(json!({"type": "ephemeral"})),
    }
}

struct ToolDefinition<'a>(&'a ToolSpec);

impl Serialize for ToolDefinition<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("name", &self.0.name)?;
        map.serialize_entry("description", &self.0.description)?;
        map.serialize_entry("input_schema", &self.0.schema)?;
        map.end()
    }
}

#[derive(Serialize)]
struct MessageParam<'a> {
    role: &'static str,
    content: Vec<BlockParam<'a>>,
}

/// Encodes the conversation. Consecutive messages of one role become one message. The last blocks
/// of the last two messages get a cache breakpoint.
fn encode_messages<'a>(
    request: &'a Request,
    cache_control: Option<&Value>,
) -> Vec<Element<MessageParam<'a>>> {
    let call_ids = CallIds::new(request, text::plain);
    let model = &request.model;
    let mut messages: Vec<Element<MessageParam<'a>>> = Vec::new();
    for (index, message) in request.messages.iter().enumerate() {
        let (role, blocks): (_, Vec<ContentBlock<'a>>) = match message {
            ModelMessage::User(inputs) => (
                "user",
                inputs
                    .iter()
                    .filter_map(|input| user_block(input, model))
                    .collect(),
            ),
            ModelMessage::Assistant(outputs) => (
                "assistant",
                outputs
                    .iter()
                    .filter_map(|output| assistant_block(output, &call_ids, model))
                    .collect(),
            ),
            ModelMessage::Results(results) => (
                "user",
                results
                    .iter()
                    .map(|r| result_block(r, &call_ids, model))
                    .collect(),
            ),
        };
        let blocks = blocks.into_iter().map(BlockParam::new);
        let message_count = index + 1;
        match messages
            .last_mut()
            .filter(|message| message.value.role == role)
        {
            Some(message) => {
                message.message_count = message_count;
                message.value.content.extend(blocks);
            }
            None => {
                messages.push(Element {
                    message_count,
                    is_final: true,
                    value: MessageParam {
                        role,
                        content: blocks.collect(),
                    },
                });
            }
        }
    }
    messages.retain(|message| !message.value.content.is_empty());
    // A final message of the assistant must not end with whitespace.
    if let Some(MessageParam {
        role: "assistant",
        content,
    }) = messages.last_mut().map(|message| &mut message.value)
        && let Some(BlockParam {
            block: ContentBlock::Text { text, .. },
            ..
        }) = content.last_mut()
    {
        let end = text.trim_end().len();
        if end < text.len() {
            text.to_mut().truncate(end);
        }
    }
    for message in messages.iter_mut().rev().take(2) {
        // The next request moves the breakpoint.
        message.is_final = false;
        if let Some(last) = message
            .value
            .content
            .iter_mut()
            .rev()
            .find(|param| param.block.accepts_cache_control())
        {
            last.cache_control = cache_control.cloned();
        }
    }
    messages
}

fn user_block<'a>(input: &'a ModelInput, model: &Model) -> Option<ContentBlock<'a>> {
    match input {
        ModelInput::Text(text) if text.trim().is_empty() => None,
        ModelInput::Text(text) => Some(ContentBlock::Text {
            text: text.as_str().into(),
            citations: None,
        }),
        ModelInput::File(file) => Some(attachment_block(file, model)),
    }
}

fn attachment_block<'a>(file: &'a Attachment, model: &Model) -> ContentBlock<'a> {
    match check_attachment(file, model) {
        Ok(file) => ContentBlock::File(file),
        Err(replacement) => ContentBlock::Text {
            text: replacement.into(),
            citations: None,
        },
    }
}

fn assistant_block<'a>(
    output: &'a ModelOutput,
    call_ids: &CallIds<'_>,
    model: &Model,
) -> Option<ContentBlock<'a>> {
    match output {
        ModelOutput::Text { text, .. } if text.trim().is_empty() => None,
        ModelOutput::Text { text, provider } => Some(ContentBlock::Text {
            text: text.into(),
            citations: provider.get("citations"),
        }),
        ModelOutput::Reasoning { text, provider } => {
            let signature = provider.get("signature").and_then(Value::as_str);
            if let Some(block) = provider.get("block") {
                Some(ContentBlock::Opaque(block))
            } else if let Some(data) = provider.get("redacted").and_then(Value::as_str) {
                Some(ContentBlock::Redacted(data))
            } else if let Some(signature) = signature.filter(|s| !s.is_empty()) {
                Some(ContentBlock::Thinking { text, signature })
            // Models other than Claude do not sign their thinking.
            } else if claude_version(&model.api_id).is_none() && !text.trim().is_empty() {
                Some(ContentBlock::Thinking {
                    text,
                    signature: "",
                })
            } else {
                None
            }
        }
        ModelOutput::Call {
            id,
            name,
            arguments,
            ..
        } => Some(ContentBlock::Call {
            id: call_ids.get(id).to_owned(),
            name,
            input: arguments,
        }),
    }
}

fn result_block<'a>(
    result: &'a CallResult,
    call_ids: &CallIds<'_>,
    model: &Model,
) -> ContentBlock<'a> {
    let files = result
        .attachments
        .iter()
        .map(|file| attachment_block(file, model))
        .collect();
    ContentBlock::Result {
        id: call_ids.get(&result.id).to_owned(),
        text: &result.text,
        files,
        failed: result.failed,
    }
}

enum ContentBlock<'a> {
    Text {
        text: Cow<'a, str>,
        /// The list of citations, as the provider sent it.
        citations: Option<&'a Value>,
    },
    /// An image or a PDF file.
    File(&'a Attachment),
    Thinking {
        text: &'a str,
        signature: &'a str,
    },
    /// The encrypted data of redacted thinking.
    Redacted(&'a str),
    /// A whole block as the provider sent it.
    Opaque(&'a Value),
    Call {
        id: String,
        name: &'a str,
        input: &'a Value,
    },
    Result {
        id: String,
        text: &'a str,
        files: Vec<ContentBlock<'a>>,
        failed: bool,
    },
}

impl ContentBlock<'_> {
    /// True if the API accepts `cache_control` in the block.
    fn accepts_cache_control(&self) -> bool {
        !matches!(
            self,
            Self::Thinking { .. } | Self::Redacted(_) | Self::Opaque(_)
        )
    }
}

/// A content block of a request, as the API calls it.
struct BlockParam<'a> {
    block: ContentBlock<'a>,
    /// The cache breakpoint after the block.
    cache_control: Option<Value>,
}

impl<'a> BlockParam<'a> {
    /// Creates a block without a cache breakpoint.
    fn new(block: ContentBlock<'a>) -> Self {
        Self {
            block,
            cache_control: None,
        }
    }
}

impl Serialize for BlockParam<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let ContentBlock::Opaque(block) = self.block {
            return block.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        match &self.block {
            // Returned above.
            ContentBlock::Opaque(_) => {}
            ContentBlock::Text { text, citations } => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", text)?;
                if let Some(citations) = citations {
                    map.serialize_entry("citations", citations)?;
                }
            }
            ContentBlock::File(file) => {
                let is_pdf = file.mime == "application/pdf";
                map.serialize_entry("type", if is_pdf { "document" } else { "image" })?;
                map.serialize_entry(
                    "source",
                    &Base64Source {
                        r#type: "base64",
                        media_type: &file.mime,
                        data: &file.data,
                    },
                )?;
                if is_pdf && let Some(name) = &file.name {
                    map.serialize_entry("title", name)?;
                }
            }
            ContentBlock::Thinking { text, signature } => {
                map.serialize_entry("type", "thinking")?;
                map.serialize_entry("thinking", text)?;
                map.serialize_entry("signature", signature)?;
            }
            ContentBlock::Redacted(data) => {
                map.serialize_entry("type", "redacted_thinking")?;
                map.serialize_entry("data", data)?;
            }
            ContentBlock::Call { id, name, input } => {
                map.serialize_entry("type", "tool_use")?;
                map.serialize_entry("id", id)?;
                map.serialize_entry("name", name)?;
                map.serialize_entry("input", input)?;
            }
            ContentBlock::Result {
                id,
                text,
                files,
                failed,
            } => {
                map.serialize_entry("type", "tool_result")?;
                map.serialize_entry("tool_use_id", id)?;
                if files.is_empty() {
                    map.serialize_entry("content", text)?;
                } else {
                    map.serialize_entry("content", &ResultContent { text, files })?;
                }
                if *failed {
                    map.serialize_entry("is_error", &true)?;
                }
            }
        }
        if let Some(cache_control) = &self.cache_control {
            map.serialize_entry("cache_control", cache_control)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct Base64Source<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: &'a str,
}

/// The content of a result with files. An empty text is left out, because the API rejects it.
struct ResultContent<'a> {
    text: &'a str,
    files: &'a [ContentBlock<'a>],
}

impl Serialize for ResultContent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = (!self.text.trim().is_empty()).then(|| ContentBlock::Text {
            text: self.text.into(),
            citations: None,
        });
        let files = self.files.iter().map(|block| match block {
            ContentBlock::File(file) => ContentBlock::File(file),
            ContentBlock::Text { text, .. } => ContentBlock::Text {
                text: (&**text).into(),
                citations: None,
            },
            // Not reached: `attachment_block` makes only files and texts.
            _ => ContentBlock::Text {
                text: Cow::default(),
                citations: None,
            },
        });
        serializer.collect_seq(text.into_iter().chain(files).map(BlockParam::new))
    }
}
