//! What a command takes in before the prompt goes to the model: the output of a shell insert,
//! !`like this`, and files, @like/this. Each is a call like the model's own, judged by the same rules
//! and shown to the user.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Scope, call};
use crate::agent::Agent;
use crate::event::{CallUpdate, Event, Progress};
use crate::message::{Call, CallState};
use crate::tool::{AnyTool, Failure, Output};

/// Runs a command line and gives what it printed, or why it was not run.
///
/// # Errors
/// A few words for the model, without a full stop.
pub async fn run(scope: &Scope, agent: &Agent, command: &str) -> Result<String, String> {
    let output = make(scope, agent, "bash", json!({ "command": command })).await?;
    let printed = output.display.unwrap_or(output.text);
    // What it printed is what was asked for; that it failed must not be lost.
    match output.metadata.get("exit").and_then(Value::as_i64) {
        Some(0) => Ok(printed),
        Some(code) => Ok(format!("{}\n(exit code {code})", printed.trim_end())),
        None => Ok(format!("{}\n(it was ended)", printed.trim_end())),
    }
}

/// Reads a file or lists a directory, as the model would.
///
/// # Errors
/// A few words for the model, without a full stop.
pub async fn read(scope: &Scope, agent: &Agent, path: &str) -> Result<Output, String> {
    make(scope, agent, "read", json!({ "filePath": path })).await
}

async fn make(scope: &Scope, agent: &Agent, tool: &str, input: Value) -> Result<Output, String> {
    let Some(tool) = scope.tools.find(tool).cloned() else { return Err(format!("there is no tool {tool}")) };
    let mut call = Call {
        call: scope.call_id(),
        provider_id: None,
        tool: tool.name().to_owned(),
        input: Arc::new(input),
        kind: tool.kind(),
        title: tool.name().to_owned(),
        locations: Vec::new(),
        state: CallState::Pending,
        provider: Map::new(),
    };
    let context = call::context(scope, agent, &call.call);
    if let Some(description) = tool.describe(&call.input, &context) {
        call.title = crate::text::title(&description.title);
        call.locations = description.locations;
    }
    let tell = |update: CallUpdate| scope.outlet.event(Event::Call(Box::new(update)));
    tell(CallUpdate {
        tool: Some(call.tool.clone()),
        title: Some(call.title.clone()),
        kind: Some(call.kind),
        input: Some(Value::clone(&call.input)),
        locations: (!call.locations.is_empty()).then(|| call.locations.clone()),
        ..CallUpdate::of(&call.call)
    })
    .await;
    let done = attempt(scope, agent, &mut call, &*tool).await;
    let mut update = CallUpdate::of(&call.call);
    let made = match done {
        Ok(output) => {
            update.progress = Some(Progress::Completed);
            update.output = Some(output.display.clone().unwrap_or_else(|| output.text.clone()));
            update.exit = call::exit(&output.metadata);
            update.metadata = Some(output.metadata.clone());
            Ok(output)
        }
        Err(failure) => {
            let why = match failure {
                Failure::Broken(cause) => {
                    tracing::error!("{} failed for a command: {cause}", call.tool);
                    "it failed".to_owned()
                }
                Failure::Cancelled => "cancelled".to_owned(),
                failure => failure.to_string().trim_end_matches('.').to_owned(),
            };
            update.progress = Some(Progress::Failed);
            update.output = Some(why.clone());
            Err(why)
        }
    };
    tell(update).await;
    made
}

async fn attempt(scope: &Scope, agent: &Agent, call: &mut Call, tool: &dyn AnyTool) -> Result<Output, Failure> {
    let context = call::context(scope, agent, &call.call);
    let prepared = call::caught(tool.prepare(Value::clone(&call.input), &context)).await?;
    for need in &prepared.needs {
        call::permit(scope, agent, call, need, None).await?;
    }
    call.state = CallState::Running { metadata: Map::new() };
    let update = CallUpdate { progress: Some(Progress::Running), ..CallUpdate::of(&call.call) };
    scope.outlet.event(Event::Call(Box::new(update))).await;
    // No tool that a command runs comes to more than it said.
    call::caught((prepared.run)(context)).await
}
