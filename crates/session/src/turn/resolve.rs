//! Resolution of calls that use other agents' names for tools and arguments.

use std::sync::Arc;

use serde_json::Value;

use super::step_context::StepContext;
use super::{TurnContext, tool_context};
use base::task::{MAX_IN_PLACE_BYTES, poll_by_size};
use base::text;
use events::ToolKind;
use extensions::may_change_arguments;
use tools::{AnyTool, CallDescription, ToolContext, argument_repair};
use transcript::Call;

/// A call with the names of this program.
pub(super) struct ResolvedCall {
    pub(super) call: Call,
    /// The tool; `None` if the model was not offered one with this name.
    pub(super) tool: Option<Arc<dyn AnyTool>>,
    /// Notes for the model about corrected names.
    pub(super) notes: Vec<String>,
    /// The reason why the arguments are invalid.
    pub(super) argument_error: Option<String>,
    /// The name of the tool, if the call was announced with another one.
    pub(super) corrected_name: Option<String>,
    /// The kind of the call, if another one was announced.
    pub(super) corrected_kind: Option<ToolKind>,
    pub(super) description: Option<CallDescription>,
    /// The size of the arguments, in bytes.
    pub(super) argument_bytes: usize,
    /// True if the call may run in parallel with others.
    pub(super) is_concurrent: bool,
    /// Its context, with the analysis of its command line if that was needed.
    pub(super) context: ToolContext,
}

/// Resolves the calls of a message. Large arguments, and several calls, which may wait for the disk
/// to see which of them may run together, do so on the thread pool.
pub(super) async fn resolve_calls(
    turn: &TurnContext,
    step: &StepContext,
    calls: Vec<Call>,
) -> Vec<ResolvedCall> {
    let tools = step.tools.clone();
    let settings = turn.project.context.settings.clone();
    let several = calls.len() > 1;
    let one = |call: Call| {
        (
            tool_context::step_call_context(turn, step, &call.call),
            call,
        )
    };
    let calls: Vec<(ToolContext, Call)> = calls.into_iter().map(one).collect();
    let is_large =
        |(_, call): &(ToolContext, Call)| text::is_longer(&call.input, MAX_IN_PLACE_BYTES);
    let is_large = several || calls.iter().any(is_large);
    poll_by_size(is_large, async move {
        let one = |(context, call): (ToolContext, Call)| {
            let mut resolved = resolve(&tools, call, context);
            if let Some(tool) = &resolved.tool {
                let input = &resolved.call.input;
                let context = &resolved.context;
                // The arguments that decide it may be other ones when the call is made.
                let may_change = || may_change_arguments(&settings, tool.name());
                resolved.is_concurrent = tool.concurrent()
                    || (several && tool.is_concurrent(input, context) && !may_change());
                resolved.description = tool.describe(input, context);
            }
            resolved
        };
        calls.into_iter().map(one).collect()
    })
    .await
}

/// Resolves a call that uses other agents' names for the tool or its arguments. The resolved call
/// is the one that is checked, shown, run and stored.
fn resolve(tools: &[Arc<dyn AnyTool>], mut call: Call, context: ToolContext) -> ResolvedCall {
    let mut notes = Vec::new();
    let mut wrong = None;
    let announced = call.kind;
    let mut name = None;
    if let Value::String(raw) = &*call.input {
        match argument_repair::parse_arguments(&call.tool, raw) {
            Ok(input) => call.input = Arc::new(input),
            Err(why) => wrong = Some(why),
        }
    }
    if let Some(input) = argument_repair::listing_arguments(tools, &call.tool, &call.input) {
        call.input = Arc::new(input);
    }
    let tool = argument_repair::find_tool(tools, &call.tool, &call.input);
    if let Some(tool) = &tool {
        if wrong.is_none()
            && let Ok(accepted) = tool.accept(Value::clone(&call.input))
        {
            notes = accepted.notes;
            if accepted.input != *call.input {
                call.input = Arc::new(accepted.input);
            }
        }
        if tool.name() != call.tool {
            if !tool.name().eq_ignore_ascii_case(&call.tool) {
                notes.push(format!(
                    "The tool {} is named {} here.",
                    text::title(&call.tool),
                    tool.name()
                ));
            }
            call.tool = tool.name().to_owned();
            name = Some(call.tool.clone());
            call.kind = tool.kind();
        }
    }
    let kind = Some(call.kind).filter(|kind| *kind != announced);
    let size = call.input.to_string().len();
    ResolvedCall {
        call,
        tool,
        notes,
        argument_error: wrong,
        corrected_name: name,
        corrected_kind: kind,
        description: None,
        argument_bytes: size,
        is_concurrent: true,
        context,
    }
}
