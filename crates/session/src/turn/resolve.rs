//! Calls as they are meant: by the names that tools and arguments have elsewhere.

use std::sync::Arc;

use serde_json::Value;

use super::frame::Frame;
use super::{TurnContext, tool_context};
use base::task::on_threads;
use events::ToolKind;
use tools::{AnyTool, CallDescription, ToolContext, accept};
use transcript::Call;

/// A call as it is meant.
pub(super) struct ResolvedCall {
    pub(super) call: Call,
    /// None where the model was offered no such tool.
    pub(super) tool: Option<Arc<dyn AnyTool>>,
    /// What the model should know about that.
    pub(super) notes: Vec<String>,
    /// Why the arguments are none.
    pub(super) wrong: Option<String>,
    /// Its kind of work, where another one was announced.
    pub(super) kind: Option<ToolKind>,
    pub(super) description: Option<CallDescription>,
    /// The bytes of its arguments.
    pub(super) size: usize,
    /// Whether it may run beside others.
    pub(super) beside: bool,
}

/// Takes the calls of a message as they are meant, on a thread: their arguments may be large.
pub(super) async fn resolved(scope: &TurnContext, frame: &Frame, calls: Vec<Call>) -> Vec<ResolvedCall> {
    let tools = frame.tools.clone();
    let several = calls.len() > 1;
    let one = |call: Call| (tool_context::context(scope, &frame.agent, &call.call), call);
    let calls: Vec<(ToolContext, Call)> = calls.into_iter().map(one).collect();
    on_threads(async move {
        let one = |(context, call): (ToolContext, Call)| {
            let mut resolved = resolve(&tools, call);
            if let Some(tool) = &resolved.tool {
                let input = &resolved.call.input;
                resolved.beside = if several { tool.beside(input, &context) } else { tool.concurrent() };
                resolved.description = tool.describe(input, &context);
            }
            resolved
        };
        calls.into_iter().map(one).collect()
    })
    .await
}

/// Takes a call as it is meant: by the names that tools and arguments have elsewhere. From here on it is
/// that call: what is judged, shown, run and kept is one.
fn resolve(tools: &[Arc<dyn AnyTool>], mut call: Call) -> ResolvedCall {
    let mut notes = Vec::new();
    let mut wrong = None;
    let announced = call.kind;
    if let Value::String(raw) = &*call.input {
        match accept::arguments(&call.tool, raw) {
            Ok(input) => call.input = Arc::new(input),
            Err(why) => wrong = Some(why),
        }
    }
    let tool = accept::named(tools, &call.tool, &call.input);
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
                notes.push(format!("The tool {} is named {} here.", base::text::title(&call.tool), tool.name()));
            }
            call.tool = tool.name().to_owned();
            call.kind = tool.kind();
        }
    }
    let kind = Some(call.kind).filter(|kind| *kind != announced);
    let size = call.input.to_string().len();
    ResolvedCall { call, tool, notes, wrong, kind, description: None, size, beside: true }
}
