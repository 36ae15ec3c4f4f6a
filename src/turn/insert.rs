//! What a command takes in before the prompt goes to the model: the output of a shell insert,
//! !`like this`, and files, @like/this. Each is a call like the model's own, judged by the same rules,
//! shown to the user, and kept before that, as a part of the prompt.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Scope, call};
use crate::agent::Agent;
use crate::event::{CallUpdate, Event, Progress};
use crate::message::{Call, CallState, Completed, Content, Message, Part};
use crate::store::Record;
use crate::tool::{AnyTool, Failure, Output};

/// A prompt that is on its way to the model: nothing of it is kept until something is run for it.
pub struct Draft {
    /// What the user typed, and what was run for it so far.
    message: Message,
    /// What is known of the session, for a file that has nothing in it yet.
    record: Record,
    kept: bool,
}

impl Draft {
    /// A prompt with nothing in it but its head.
    pub fn new(message: Message, record: &Record) -> Self {
        Self { message, record: record.clone(), kept: false }
    }

    /// It begins with this: what the user typed.
    pub fn begin(&mut self, scope: &Scope, content: &[Content]) {
        self.message.parts = content.iter().map(|content| scope.part(content.clone())).collect();
    }

    /// The whole prompt: the content, and behind its first piece the calls.
    pub fn end(self, scope: &Scope, content: Vec<Content>) -> Message {
        let Self { mut message, .. } = self;
        let mut pieces = content.into_iter();
        if let Some(typed) = message.parts.first_mut()
            && let Some(first) = pieces.next()
        {
            typed.content = first;
        }
        message.parts.extend(pieces.map(|content| scope.part(content)));
        message
    }

    /// Keeps a call as it is now.
    async fn keep(&mut self, scope: &Scope, part: &Part) {
        if !std::mem::replace(&mut self.kept, true) {
            scope.record.session(&self.record).await;
            scope.record.whole(&self.message).await;
        }
        match self.message.parts.iter_mut().find(|known| known.id == part.id) {
            Some(known) => known.clone_from(part),
            None => self.message.parts.push(part.clone()),
        }
        scope.record.part(&self.message.id, part).await;
    }
}

/// Runs a command line and gives what it printed, or why it was not run.
///
/// # Errors
/// A few words for the model, without a full stop.
pub async fn run(draft: &mut Draft, scope: &Scope, agent: &Agent, command: &str) -> Result<String, String> {
    let output = make(draft, scope, agent, "bash", json!({ "command": command })).await?;
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
pub async fn read(draft: &mut Draft, scope: &Scope, agent: &Agent, path: &str) -> Result<Output, String> {
    make(draft, scope, agent, "read", json!({ "filePath": path })).await
}

async fn make(draft: &mut Draft, scope: &Scope, agent: &Agent, tool: &str, input: Value) -> Result<Output, String> {
    let Some(tool) = scope.tools.find(tool).cloned() else { return Err(format!("there is no tool {tool}")) };
    let call = Call {
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
    let mut one = One { draft, scope, agent, part: scope.part(Content::Tool(call.clone())), call };
    let context = call::context(scope, agent, &one.call.call);
    if let Some(description) = tool.describe(&one.call.input, &context) {
        one.call.title = crate::text::title(&description.title);
        one.call.locations = description.locations;
    }
    one.tell(CallUpdate {
        tool: Some(one.call.tool.clone()),
        title: Some(one.call.title.clone()),
        kind: Some(one.call.kind),
        progress: Some(Progress::Pending),
        input: Some(Value::clone(&one.call.input)),
        locations: (!one.call.locations.is_empty()).then(|| one.call.locations.clone()),
        ..CallUpdate::of(&one.call.call)
    })
    .await;
    let done = one.attempt(&*tool).await;
    let mut update = CallUpdate::of(&one.call.call);
    let made = match done {
        Ok(output) => {
            update.progress = Some(Progress::Completed);
            update.output = Some(output.display.clone().unwrap_or_else(|| output.text.clone()));
            update.exit = call::exit(&output.metadata);
            update.metadata = Some(output.metadata.clone());
            one.call.state = CallState::Completed(Completed {
                output: output.text.as_str().into(),
                display: output.display.clone(),
                metadata: output.metadata.clone(),
                ..Completed::default()
            });
            Ok(output)
        }
        Err(failure) => {
            let why = match failure {
                Failure::Broken(cause) => {
                    tracing::error!("{} failed for a command: {cause}", one.call.tool);
                    "it failed".to_owned()
                }
                Failure::Cancelled => "cancelled".to_owned(),
                failure => failure.to_string().trim_end_matches('.').to_owned(),
            };
            update.progress = Some(Progress::Failed);
            update.output = Some(why.clone());
            one.call.state = CallState::Failed { error: why.clone(), metadata: Map::new() };
            Err(why)
        }
    };
    one.tell(update).await;
    made
}

/// One call on its way.
struct One<'a> {
    draft: &'a mut Draft,
    scope: &'a Scope,
    agent: &'a Agent,
    part: Part,
    call: Call,
}

impl One<'_> {
    /// Keeps the call as it is now, then tells of it.
    async fn tell(&mut self, update: CallUpdate) {
        self.part.content = Content::Tool(self.call.clone());
        self.draft.keep(self.scope, &self.part).await;
        self.scope.outlet.event(Event::Call(Box::new(update))).await;
    }

    async fn attempt(&mut self, tool: &dyn AnyTool) -> Result<Output, Failure> {
        let context = call::context(self.scope, self.agent, &self.call.call);
        let prepared = call::caught(tool.prepare(Value::clone(&self.call.input), &context)).await?;
        for need in &prepared.needs {
            call::permit(self.scope, self.agent, &self.call, need, None).await?;
        }
        self.call.state = CallState::Running { metadata: Map::new() };
        self.tell(CallUpdate { progress: Some(Progress::Running), ..CallUpdate::of(&self.call.call) }).await;
        // No tool that a command runs comes to more than it said.
        call::caught((prepared.run)(context)).await
    }
}
