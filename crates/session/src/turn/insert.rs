//! Content that is inserted into a prompt before it goes to the model: files, @like/this, and for a
//! command the output of a shell insert, !`like this`. Each is a call like the model's own: subject
//! to the same rules, stored as a part of the prompt, and then shown to the user.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::authorize;
use super::hooks::PlacedCall;
use super::{History, SessionChoices, TurnContext, call, next, step_context, tool_context};
use base::task::poll_on_blocking_threads;
use base::text::mention::LineRange;
use events::{CallUpdate, Event, Progress, ToolKind};
use permission::Denial;
use project::agent::Agent;
use store::Record;
use tools::files::loaded_instructions::{self, LoadedInstructions};
use tools::{AnyTool, Failure, ToolContext, ToolOutput};
use transcript::{
    Call, CallFacts, CallState, Completed, Content, ExitCode, FailureCause, Message, Part,
};

/// A prompt in preparation, to which its command and its mentions add one after the other. The first
/// call that is made for it stores it, before its text is complete.
pub struct PromptDraft {
    /// The user's text, and the calls that were made for it so far.
    message: Message,
    /// The record of the session, for a session whose file is still empty.
    record: Record,
    /// The instruction files in the model's context.
    instructions: Arc<LoadedInstructions>,
    is_stored: bool,
    /// Switches the agent from the next step on, if a command names an agent or a model.
    pub choices_override: Option<watch::Sender<SessionChoices>>,
    /// The user's part of a command's text, which may name subagents, as a prompt may.
    pub user_text: Option<String>,
}

impl PromptDraft {
    /// Creates a draft without content.
    pub fn new(message: Message, record: &Record, history: &History, turn: &TurnContext) -> Self {
        Self {
            message,
            record: record.clone(),
            instructions: Arc::new(call::visible_instructions(history, turn)),
            is_stored: false,
            choices_override: None,
            user_text: None,
        }
    }

    /// Sets the user's text, once. Calls are stored after it, so it must be set before the
    /// first of them.
    pub fn set_text(&mut self, turn: &TurnContext, content: &[Content]) {
        if self.message.parts.is_empty() {
            self.message.parts = content
                .iter()
                .map(|content| turn.new_part(content.clone()))
                .collect();
        }
    }

    /// Returns the complete prompt: the first part of the content, the calls, and the rest of
    /// the content.
    pub fn into_message(self, turn: &TurnContext, content: Vec<Content>) -> Message {
        let Self { mut message, .. } = self;
        let mut pieces = content.into_iter();
        if let Some(typed) = message.parts.first_mut()
            && let Some(first) = pieces.next()
        {
            typed.content = first;
        }
        message
            .parts
            .extend(pieces.map(|content| turn.new_part(content)));
        message
    }

    /// Stores the present state of a call.
    async fn store(&mut self, turn: &TurnContext, part: &Part) {
        if !std::mem::replace(&mut self.is_stored, true) {
            turn.session.recorder.session(&self.record).await;
            turn.session.recorder.store_message(&self.message).await;
        }
        match self
            .message
            .parts
            .iter_mut()
            .find(|known| known.id == part.id)
        {
            Some(known) => known.clone_from(part),
            None => self.message.parts.push(part.clone()),
        }
        turn.session.recorder.part(&self.message.id, part).await;
    }
}

/// Runs a command line. Returns its output, or the reason why it was not run.
///
/// # Errors
/// A few words for the model, without a full stop.
pub async fn run_command(
    draft: &mut PromptDraft,
    turn: &TurnContext,
    agent: &Agent,
    command: &str,
) -> Result<String, String> {
    let output =
        make_call_of_tool(draft, turn, agent, "bash", json!({ "command": command })).await?;
    let printed = output.display.unwrap_or(output.text);
    // The output is inserted even if the command failed, so the failure must be part of it.
    match output.facts.exit.and_then(|exit| exit.code) {
        Some(0) => Ok(printed),
        Some(code) => Ok(format!(
            "{}\n(exit code {})",
            printed.trim_end(),
            ExitCode(code)
        )),
        None => Ok(format!("{}\n(it was ended)", printed.trim_end())),
    }
}

/// Reads a file or a range of its lines, or lists a directory, with the model's tool. The note of
/// the result has the instructions that apply there.
///
/// # Errors
/// A few words for the model, without a full stop.
pub async fn read_file(
    draft: &mut PromptDraft,
    turn: &TurnContext,
    agent: &Agent,
    path: &str,
    lines: Option<LineRange>,
) -> Result<ToolOutput, String> {
    let input = match lines {
        Some(LineRange { first, last: None }) => json!({ "filePath": path, "offset": first }),
        Some(LineRange {
            first,
            last: Some(last),
        }) => json!({ "filePath": path, "offset": first, "limit": last - first + 1 }),
        None => json!({ "filePath": path }),
    };
    make_call_of_tool(draft, turn, agent, "read", input).await
}

async fn make_call_of_tool(
    draft: &mut PromptDraft,
    turn: &TurnContext,
    agent: &Agent,
    tool: &str,
    input: Value,
) -> Result<ToolOutput, String> {
    let Some(tool) = turn.session.common.tools.find(tool).cloned() else {
        return Err(format!("there is no tool {tool}"));
    };
    make_call(draft, turn, agent, &tool, input).await
}

/// Makes a call for a prompt, unless the user has rejected another one of it, which ends the turn.
///
/// # Errors
/// A few words for the model, without a full stop.
pub async fn make_call(
    draft: &mut PromptDraft,
    turn: &TurnContext,
    agent: &Agent,
    tool: &Arc<dyn AnyTool>,
    input: Value,
) -> Result<ToolOutput, String> {
    let is_rejected = next::rejected_calls(&draft.message).next().is_some();
    if is_rejected && !turn.continues_after_rejection() {
        return Err("the user rejected another call of this prompt".to_owned());
    }
    let agent = &step_context::with_inherited_denies(agent, turn);
    let call = Call {
        call: turn.new_call_id(),
        provider_id: None,
        tool: tool.name().to_owned(),
        input: Arc::new(input),
        kind: tool.kind(),
        title: tool.name().to_owned(),
        locations: Vec::new(),
        state: CallState::Pending,
        provider: Map::new(),
    };
    let mut insert = InsertCall {
        draft,
        turn,
        agent,
        part: turn.new_part(Content::Tool(call.clone())),
        call,
    };
    let mut context = tool_context::call_context(turn, agent, &insert.call.call);
    context.call.message = Some(insert.draft.message.id.clone());
    context.call.instructions = insert.draft.instructions.clone();
    if let Some(description) = tool.describe(&insert.call.input, &context) {
        insert.call.title = base::text::title(&description.title);
        insert.call.locations = description.locations;
    }
    insert
        .update(CallUpdate {
            tool: Some(insert.call.tool.clone()),
            title: Some(insert.call.title.clone()),
            kind: Some(insert.call.kind),
            progress: Some(Progress::Pending),
            input: Some(Value::clone(&insert.call.input)),
            locations: (!insert.call.locations.is_empty()).then(|| insert.call.locations.clone()),
            ..CallUpdate::of(&insert.call.call)
        })
        .await;
    let done = insert.attempt(tool, context).await;
    let made = match done {
        Ok(output) => {
            let facts = CallFacts {
                details: output.metadata.clone(),
                ..output.facts.clone()
            };
            insert.call.state = CallState::Completed(Completed {
                output: output.text.as_str().into(),
                display: output.display.clone(),
                facts,
                ..Completed::default()
            });
            Ok(output)
        }
        Err(failure) => {
            let cause = match &failure {
                Failure::Denied(Denial::Rejected) => FailureCause::Rejected,
                _ => FailureCause::Error,
            };
            let why = match failure {
                Failure::Broken(cause) => {
                    tracing::error!("{} failed for a command: {cause}", insert.call.tool);
                    "it failed".to_owned()
                }
                Failure::Cancelled | Failure::NotBegun | Failure::CutOff { .. } => {
                    "cancelled".to_owned()
                }
                failure => failure.to_string().trim_end_matches('.').to_owned(),
            };
            insert.call.state = CallState::Failed {
                error: why.clone(),
                cause,
                coloured: None,
                facts: CallFacts::default(),
            };
            Err(why)
        }
    };
    insert.update(CallUpdate::from(&insert.call)).await;
    made
}

struct InsertCall<'a> {
    draft: &'a mut PromptDraft,
    turn: &'a TurnContext,
    agent: &'a Agent,
    part: Part,
    call: Call,
}

impl InsertCall<'_> {
    /// Stores the present state of the call, then sends the update.
    async fn update(&mut self, update: CallUpdate) {
        self.part.content = Content::Tool(self.call.clone());
        self.draft.store(self.turn, &self.part).await;
        self.turn
            .event_sender
            .event(Event::Call(Box::new(update)))
            .await;
    }

    async fn attempt(
        &mut self,
        tool: &Arc<dyn AnyTool>,
        context: ToolContext,
    ) -> Result<ToolOutput, Failure> {
        let work = call::prepare_call(tool.clone(), self.call.input.clone(), context.clone());
        let (prepared, _) = poll_on_blocking_threads(work).await?;
        authorize::authorize(
            self.turn,
            self.agent,
            PlacedCall {
                call: &self.call,
                message: &self.draft.message.id,
                context: &context,
            },
            &prepared.requests,
            None,
            false,
            || {},
        )
        .await?;
        let facts = context.call.facts.clone();
        self.call.state = facts.running();
        self.update(CallUpdate {
            progress: Some(Progress::Running),
            ..CallUpdate::of(&self.call.call)
        })
        .await;
        // These tools never need a further permission while they run.
        let reads = self.call.kind == ToolKind::Read;
        let run = call::catch_panic((prepared.run)(context.clone()));
        let mut done = poll_on_blocking_threads(async move {
            let mut output = run.await?;
            // Only the text of a command goes into the prompt, without notes.
            if reads {
                loaded_instructions::add(&mut output, &context).await;
            }
            Ok(output)
        });
        loop {
            tokio::select! {
                done = &mut done => return done,
                // Stored without an update: the client receives the output from the
                // command itself.
                () = facts.changed() => {
                    self.call.state = facts.running();
                    self.part.content = Content::Tool(self.call.clone());
                    self.draft.store(self.turn, &self.part).await;
                }
            }
        }
    }
}
