//! Calls that a model has wrapped into one, `multi_tool_use.parallel`, as some were trained to.

use std::sync::Arc;

use serde_json::Map;

use super::TurnContext;
use super::change_recorder::ChangeRecorder;
use super::step_context::StepContext;
use events::{CallUpdate, Event, Progress};
use tools::argument_repair;
use transcript::{Call, CallState, Content, Message};

/// Replaces each call that wraps others by these, as if the model had made them one by one. They
/// are checked, shown and stored like any other call. The first one takes the place of the wrapper,
/// the others follow at the end of the message.
pub(super) async fn unwrap_calls(
    turn: &TurnContext,
    step: &StepContext,
    message: &mut Message,
    changes: &ChangeRecorder,
) {
    for index in 0..message.parts.len() {
        let Content::Tool(call) = &mut message.parts[index].content else {
            continue;
        };
        if call.state != CallState::Pending {
            continue;
        }
        let Some(mut inner) = argument_repair::wrapped_calls(&step.tools, &call.tool, &call.input)
        else {
            continue;
        };
        let others = inner.split_off(1);
        if let Some(argument_repair::WrappedCall { tool, input }) = inner.pop() {
            call.kind = argument_repair::tool_kind(&step.tools, &tool);
            call.title = base::text::title(&tool);
            call.tool = tool;
            call.input = Arc::new(input);
            let update = announcement(call);
            changes.tool_announced(turn, call.kind, &call.tool);
            turn.session
                .recorder
                .part(&message.id, &message.parts[index])
                .await;
            turn.event_sender.event(Event::Call(Box::new(update))).await;
        }
        for argument_repair::WrappedCall { tool, input } in others {
            let call = Call {
                call: turn.new_call_id(),
                provider_id: None,
                kind: argument_repair::tool_kind(&step.tools, &tool),
                title: base::text::title(&tool),
                tool,
                input: Arc::new(input),
                locations: Vec::new(),
                state: CallState::Pending,
                provider: Map::new(),
            };
            let update = announcement(&call);
            changes.tool_announced(turn, call.kind, &call.tool);
            let part = turn.new_part(Content::Tool(call));
            turn.session.recorder.part(&message.id, &part).await;
            message.parts.push(part);
            turn.event_sender.event(Event::Call(Box::new(update))).await;
        }
    }
}

fn announcement(call: &Call) -> CallUpdate {
    CallUpdate {
        title: Some(call.title.clone()),
        tool: Some(call.tool.clone()),
        kind: Some(call.kind),
        progress: Some(Progress::Pending),
        ..CallUpdate::of(&call.call)
    }
}
