//! Conversion of a history to a model request. Two invariants: every call is followed by exactly
//! one result, even one that was interrupted in an earlier process; and the same history always
//! gives the same messages, so that each request begins with the bytes of the previous one.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::step_context::StepContext;
use super::view::visible_history;
use super::{History, remind, size};
use base::text::shared::SharedText;
use base::text::{self, without_tags};
use project::system::render;
use providers::request::{
    Attachment, BodyCache, CallResult, ModelInput, ModelMessage, ModelOutput, ModelParams, ToolSpec,
};
use providers::{Model, Request};
use tools::invalid::InvalidTool;
use tools::{AnyTool, Tool as _};
use transcript::{Assistant, Call, CallState, Content, File, Message, Role};

/// The result of a call that never ended, for the model.
pub const INTERRUPTED: &str = "The call was interrupted. Its effects so far are unknown.";

/// Returns the result of an interrupted call for the model, with its output so far.
pub fn interrupted(printed: Option<&str>) -> String {
    match printed
        .map(str::trim_end)
        .filter(|printed| !printed.is_empty())
    {
        Some(printed) => format!("{printed}\n\n{INTERRUPTED}"),
        None => INTERRUPTED.to_owned(),
    }
}

impl StepContext {
    /// Returns the size of the system prompt and the tools, in tokens.
    pub fn fixed_tokens(&self) -> u64 {
        size::fixed_tokens(&request(&History::default(), self, ""))
    }
}

/// The replacement of an output that was cleared.
const CLEARED: &str = "[Old tool result content cleared]";

pub fn request(history: &History, step: &StepContext, session: &str) -> Request {
    let names: Vec<&str> = step
        .tools
        .iter()
        .filter(|tool| tool.listed())
        .map(|tool| tool.name())
        .collect();
    // A description of ours mentions only tools that the model has.
    let description = |tool: &dyn AnyTool| {
        if tool.is_foreign() {
            tool.description()
        } else {
            render(&tool.description(), &names)
        }
    };
    let tools = step
        .tools
        .iter()
        .filter(|tool| tool.listed())
        .map(|tool| ToolSpec {
            name: tool.name().into(),
            description: description(tool.as_ref()),
            schema: tool.schema(),
        });
    Request {
        model: step.model.clone(),
        system: step.system.clone(),
        messages: messages(history, step),
        tools: tools.collect(),
        must_call: false,
        params: ModelParams {
            temperature: if step.model.temperature {
                step.agent.temperature
            } else {
                None
            },
            top_p: step.agent.top_p,
            max_output: step.model.max_output(),
            options: step.agent.options.clone(),
            ..ModelParams::default()
        },
        session: session.into(),
        body_cache: BodyCache::default(),
    }
}

fn messages(history: &History, step: &StepContext) -> Vec<ModelMessage> {
    let view = visible_history(history);
    let mut out = Vec::new();
    let mut bare = 0;
    if let Some((compaction, summary)) = view.summary {
        let summary = remind::summary(&summary.visible_text());
        let mut inputs = vec![ModelInput::Text(
            step.mark
                .mark_stored_note(&summary)
                .unwrap_or(summary)
                .into(),
        )];
        inputs.extend(self::inputs(compaction, step, false));
        out.push(ModelMessage::User(inputs));
        bare = if compaction.compaction().is_some_and(|c| c.overflow) {
            view.before_compaction
        } else {
            0
        };
    }
    for (index, message) in view.messages.into_iter().enumerate() {
        match &message.role {
            Role::User(_) => {
                let inputs = inputs(message, step, index < bare);
                if !inputs.is_empty() {
                    out.push(ModelMessage::User(inputs));
                }
            }
            Role::Assistant(assistant) => {
                let (outputs, results) = outputs(message, assistant, step);
                if !outputs.is_empty() {
                    out.push(ModelMessage::Assistant(outputs));
                }
                if !results.is_empty() {
                    out.push(ModelMessage::Results(results));
                }
            }
        }
    }
    out
}

/// Converts a user message; `bare` leaves out its attachments.
fn inputs(message: &Message, step: &StepContext, bare: bool) -> Vec<ModelInput> {
    let encode_input = |content: &Content| match content {
        Content::Text(text) if text.ignored || text.text.trim().is_empty() => None,
        Content::Text(text) => {
            let note = text
                .synthetic
                .then(|| step.mark.mark_stored_note(&text.text))
                .flatten();
            if let Some(note) = note {
                return Some(ModelInput::Text(note.into()));
            }
            let escaped = attachment_without_own_tags(&text.text).map(SharedText::from);
            let text = escaped.as_ref().unwrap_or(&text.text);
            Some(ModelInput::Text(step.mark.shared_data(text)))
        }
        Content::File(file) if bare && file.data.is_some() => {
            Some(ModelInput::Text(left_out(file).into()))
        }
        Content::File(file) => Some(attached(file, step)),
        Content::Subtask {
            agent, description, ..
        } => Some(ModelInput::Text(
            format!("(The user typed {description}. The {agent} subagent does it.)").into(),
        )),
        _ => None,
    };
    message
        .parts
        .iter()
        .filter_map(|part| encode_input(&part.content))
        .collect()
}

/// Returns an attached text with its own tags escaped, if its content contains them; `None` for any
/// other text.
fn attachment_without_own_tags(text: &str) -> Option<String> {
    let (uri, content) = transcript::attached(text)?;
    let escaped = without_tags(content, &["attached"]);
    (escaped != content).then(|| transcript::attach(uri, &escaped))
}

/// Returns the replacement of an attachment that was removed to free context.
pub(super) fn left_out(file: &File) -> String {
    let name = file
        .name
        .as_deref()
        .or(file.uri.as_deref())
        .unwrap_or("a file");
    format!(
        "[{name} ({}) was attached here; it was removed to free context]",
        file.mime
    )
}

/// Converts an attachment, or describes it if the model does not accept it.
fn attached(file: &File, step: &StepContext) -> ModelInput {
    let name = file
        .name
        .as_deref()
        .or(file.uri.as_deref())
        .unwrap_or("a file");
    let text = match (&file.data, attachment(file, step)) {
        (_, Some(attachment)) => return ModelInput::File(attachment),
        (Some(_), None) if file.is_rejected => {
            format!(
                "[{name} ({}) was attached; the provider refused it, so it is no longer sent]",
                file.mime
            )
        }
        (Some(_), None) => {
            format!(
                "[{name} ({}) is attached, but {} cannot read that. Tell the user.]",
                file.mime, step.model.name
            )
        }
        (None, None) => match &file.uri {
            Some(uri) => format!("[The user refers to {name}: {uri}]"),
            None => format!("[The user refers to {name}]"),
        },
    };
    ModelInput::Text(text.into())
}

/// True if a model accepts attachments of a MIME type.
pub(crate) fn accepts(model: &Model, mime: &str) -> bool {
    match mime {
        "application/pdf" => model.pdf,
        mime => {
            mime.starts_with("image/") && model.images.is_supported()
                || mime.starts_with("audio/") && model.audio
        }
    }
}

fn attachment(file: &File, step: &StepContext) -> Option<Attachment> {
    if file.is_rejected || !accepts(&step.model, &file.mime) {
        return None;
    }
    let data = file.data.as_ref()?;
    Some(Attachment {
        mime: file.mime.clone(),
        data: Arc::from(data.as_str()),
        name: file.name.clone(),
    })
}

fn outputs(
    message: &Message,
    assistant: &Assistant,
    step: &StepContext,
) -> (Vec<ModelOutput>, Vec<CallResult>) {
    let same = assistant.model.provider == step.model.id.provider
        && assistant.model.model == step.model.id.model;
    let own_metadata =
        |provider: &Map<String, Value>| if same { provider.clone() } else { Map::new() };
    let mut outputs = Vec::new();
    let mut results = Vec::new();
    for part in message.answer() {
        match &part.content {
            Content::Text(text) if !text.ignored && !text.text.trim().is_empty() => {
                outputs.push(ModelOutput::Text {
                    text: text.text.to_string(),
                    provider: own_metadata(&text.provider),
                });
            }
            Content::Reasoning(reasoning) if same => {
                outputs.push(ModelOutput::Reasoning {
                    text: reasoning.text.clone(),
                    provider: reasoning.provider.clone(),
                });
            }
            Content::Tool(call) => {
                let arguments = if call.input.is_object() {
                    call.input.clone()
                } else {
                    Arc::new(Map::new().into())
                };
                outputs.push(ModelOutput::Call {
                    id: call.call.share(),
                    provider_id: call.provider_id.clone(),
                    name: valid_name(&call.tool),
                    arguments,
                    provider: own_metadata(&call.provider),
                });
                results.push(result(call, step));
            }
            _ => {}
        }
    }
    // Providers reject an answer that consists of reasoning only.
    if outputs
        .iter()
        .all(|output| matches!(output, ModelOutput::Reasoning { .. }))
    {
        outputs.clear();
    }
    (outputs, results)
}

/// Returns a tool's name in a form that every provider accepts. A model may call any name, and a
/// history with an invalid name would be rejected as a whole, with every request that follows.
fn valid_name(tool: &str) -> String {
    /// The limit of providers, to which the names of MCP tools are cut as well.
    const MAX_NAME_BYTES: usize = 64;
    let mut name = text::plain(tool).into_owned();
    name.truncate(MAX_NAME_BYTES);
    if name.is_empty() {
        InvalidTool::NAME.to_owned()
    } else {
        name
    }
}

fn result(call: &Call, step: &StepContext) -> CallResult {
    let (text, failed, files): (Arc<str>, bool, &[File]) = match &call.state {
        CallState::Pending => (INTERRUPTED.into(), true, &[]),
        CallState::Running { printed, .. } => (interrupted(printed.as_deref()).into(), true, &[]),
        CallState::Completed(done) if done.cleared.is_some() => (CLEARED.into(), false, &[]),
        CallState::Completed(done) => (done.output.clone(), false, &done.attachments),
        CallState::Failed { error, .. } => (error.as_str().into(), true, &[]),
    };
    let unreadable = files.iter().filter(|file| attachment(file, step).is_none());
    let replacement = |file: &File| {
        if file.is_rejected {
            format!("\n[{} was left out: the provider refused it]", file.mime)
        } else {
            format!(
                "\n[{} cannot read {}, so it was left out]",
                step.model.name, file.mime
            )
        }
    };
    let replacements: String = unreadable.map(replacement).collect();
    CallResult {
        id: call.call.share(),
        provider_id: call.provider_id.clone(),
        name: valid_name(&call.tool),
        text: if replacements.is_empty() {
            text
        } else {
            format!("{text}{replacements}").into()
        },
        failed,
        attachments: files
            .iter()
            .filter_map(|file| attachment(file, step))
            .collect(),
    }
}
