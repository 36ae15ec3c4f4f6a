//! The shell inserts of a command, !`like this`: run before the prompt goes to the model, by the
//! rules that hold for `bash`, and shown to the user as calls.

use serde_json::{Map, json};

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
    let Some(tool) = scope.tools.find("bash").cloned() else { return Err("there is no shell".into()) };
    let mut call = Call {
        call: scope.call_id(),
        provider_id: None,
        tool: "bash".into(),
        input: json!({ "command": command }),
        kind: tool.kind(),
        title: crate::text::title(command),
        locations: Vec::new(),
        state: CallState::Pending,
        provider: Map::new(),
    };
    let tell = |update: CallUpdate| scope.outlet.event(Event::Call(Box::new(update)));
    tell(CallUpdate {
        tool: Some(call.tool.clone()),
        title: Some(call.title.clone()),
        kind: Some(call.kind),
        input: Some(call.input.clone()),
        ..CallUpdate::of(&call.call)
    })
    .await;
    let done = attempt(scope, agent, &mut call, &*tool).await;
    let mut update = CallUpdate::of(&call.call);
    let said = match done {
        Ok(output) => {
            let printed = output.display.clone().unwrap_or(output.text);
            let code = output.metadata.get("exit").and_then(serde_json::Value::as_i64).unwrap_or(-1);
            update.progress = Some(Progress::Completed);
            update.output = Some(printed.clone());
            update.exit = call::exit(&output.metadata);
            update.metadata = Some(output.metadata);
            // What it printed is what was asked for; that it failed must not be lost.
            Ok(if code == 0 { printed } else { format!("{}\n(exit code {code})", printed.trim_end()) })
        }
        Err(failure) => {
            let why = match failure {
                Failure::Broken(cause) => {
                    tracing::error!("a shell insert failed: {cause}");
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
    said
}

async fn attempt(scope: &Scope, agent: &Agent, call: &mut Call, tool: &dyn AnyTool) -> Result<Output, Failure> {
    let context = call::context(scope, agent, &call.call);
    let prepared = call::caught(tool.prepare(call.input.clone(), &context)).await?;
    for need in &prepared.needs {
        call::permit(scope, agent, call, need, None).await?;
    }
    call.state = CallState::Running;
    let update = CallUpdate { progress: Some(Progress::Running), ..CallUpdate::of(&call.call) };
    scope.outlet.event(Event::Call(Box::new(update))).await;
    call::caught((prepared.run)(context)).await
}
