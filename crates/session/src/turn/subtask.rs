//! Subtasks: work that a command gives to a subagent directly. It is done before the model is
//! asked, as if the model had called `task`.

use std::sync::Arc;

use serde_json::{Map, json};

use super::change_recorder::ChangeRecorder;
use super::{History, TurnContext, call, next, note, remind, step, step_context};
use events::{CallUpdate, Event, Progress};
use tools::conversation::task::TaskTool;
use tools::{Tool, erase};
use transcript::{
    Assistant, Call, CallState, Content, Fault, File, Finish, Message, ModelRef, Role, ToolKind,
    Usage,
};

struct SubtaskInput {
    agent: String,
    description: String,
    prompt: String,
    model: Option<ModelRef>,
}

/// Runs the subtasks of the last message, a prompt.
///
/// # Errors
/// A fault for the user if the agent or the model of the turn is not available.
pub async fn subtasks(history: &mut History, turn: &TurnContext) -> Result<(), Fault> {
    let Some(prompt) = history.messages.last() else {
        return Ok(());
    };
    let parent = prompt.id.clone();
    let mut work: Vec<SubtaskInput> = Vec::new();
    let mut files: Vec<File> = Vec::new();
    for part in &prompt.parts {
        match &part.content {
            Content::Subtask {
                agent,
                description,
                prompt,
                model,
            } => work.push(SubtaskInput {
                agent: agent.clone(),
                description: description.clone(),
                prompt: prompt.clone(),
                model: model.clone(),
            }),
            Content::File(file) => files.push(file.clone()),
            _ => {}
        }
    }
    if let Err(e) = turn.session.recorder.flush().await {
        tracing::error!("the prompt is not saved: {e}");
        turn.notify_unsaved(&e).await;
    }
    for SubtaskInput {
        agent,
        description,
        prompt,
        model,
    } in work
    {
        let mut step = step_context::capture(turn, false, history)?;
        let task = TaskTool::new(
            Vec::new(),
            std::slice::from_ref(&agent),
            &step.agent,
            &step.model.id,
        );
        step.tools = vec![erase(task.for_command(model, files.clone()))];
        let call = Call {
            call: turn.new_call_id(),
            provider_id: None,
            tool: TaskTool::NAME.into(),
            input: Arc::new(
                json!({ "description": description, "prompt": prompt, "subagent_type": agent }),
            ),
            kind: ToolKind::Think,
            title: TaskTool::NAME.into(),
            locations: Vec::new(),
            state: CallState::Pending,
            provider: Map::new(),
        };
        let update = CallUpdate {
            title: Some(call.title.clone()),
            tool: Some(call.tool.clone()),
            kind: Some(call.kind),
            progress: Some(Progress::Pending),
            ..CallUpdate::of(&call.call)
        };
        let assistant = Assistant {
            parent: parent.clone(),
            agent: step.agent.name.clone(),
            model: step.model.id.clone(),
            finish: Some(Finish::ToolCalls),
            fault: None,
            summary: false,
            usage: Usage::default(),
            cost: None,
            completed: None,
        };
        let parts = vec![turn.new_part(Content::Tool(call))];
        let mut message = Message {
            id: turn.new_message_id(),
            created: turn.now(),
            role: Role::Assistant(assistant),
            parts,
        };
        turn.session.recorder.store_message(&message).await;
        turn.event_sender.event(Event::Call(Box::new(update))).await;
        let changes = ChangeRecorder::new(turn, &message.id);
        call::make_calls(history, turn, &step, &mut message, &changes).await;
        let changed = changes.finish(turn);
        if let Role::Assistant(assistant) = &mut message.role {
            assistant.completed = Some(turn.now());
            assistant.cost = turn.session.unrecorded_cost.take();
        }
        turn.session.recorder.message(&message).await;
        let stopped = message.calls().any(|call| next::is_rejected(&call.state));
        history.messages.push(message);
        step::add_file_changes(history, turn, changed).await;
        step::send_usage(history, turn, &step.model).await;
        if stopped && !turn.continues_after_rejection() || turn.cancelled.is_cancelled() {
            return Ok(());
        }
        note::append_user_message(
            history,
            turn,
            &step,
            remind::note(prompts::reminder::SUBTASK),
        )
        .await;
    }
    Ok(())
}
