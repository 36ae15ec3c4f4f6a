//! The calls of a step: repetition check, tool lookup, preparation, permission, execution,
//! truncation, recording.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use serde_json::Value;

use super::adopt::{adopt, unchanged_files};
use super::authorize;
use super::change_recorder::ChangeRecorder;
use super::hooks::PlacedCall;
use super::live_denies;
use super::repetition::Repeats;
use super::resolve::{ResolvedCall, resolve_calls};
use super::step_context::StepContext;
use super::waiting_line::{CallTurn, order_note};
use super::{
    History, TurnContext, compaction_carryover, hooks, images, next, repetition, tool_context, view,
};
use base::id::{MessageId, PartId};
use base::task::{BlockingFuture, MAX_IN_PLACE_BYTES, poll_by_size, poll_on_blocking_threads};
use config::settings::{HookPoint, OutputLimits};
use events::{CallUpdate, Event, LiveFacts, Progress, Severity, ToolKind};
use extensions::has_handler;
use permission::plan::SharedAnalysis;
use permission::remedy;
use permission::{AccessRequest, Denial};
use tools::conversation::task::TaskTool;
use tools::denial_message;
use tools::files::loaded_instructions::{self, LoadedInstructions, ProjectInstructions};
use tools::registry::find_properties;
use tools::todowrite::sets_plan;
use tools::{
    AnyTool, CallContext, CallDescription, Failure, FurtherCall, PreparedCall, RunCall, Tool,
    ToolContext, ToolOutput, WholeOutput, argument_repair, truncate,
};
use transcript::{
    Call, CallFacts, CallState, Change, Completed, Content, FailureCause, Finish, ImageSettings,
    Message, Part,
};

/// The maximum size of a call's arguments.
const MAX_ARGUMENT_BYTES: usize = 8 << 20;

/// The longest path that an operating system accepts.
const MAX_PATH_BYTES: usize = 4096;

/// The time that a tool has to end after a cancel.
const CANCEL_GRACE: Duration = Duration::from_millis(200);

/// The further time for a tool that is computing or waiting for a disk.
const CURRENT_POLL_TIMEOUT: Duration = Duration::from_secs(2);

/// The further time to finish the result of a tool that has ended.
const FINISHING_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of a call that had not started when the turn was cancelled.
const NOT_BEGUN: &str = "Not run: the turn was cancelled first.";

/// The result of a call that was running when the turn was cancelled.
const CANCELLED: &str = "Cancelled by the user while it was running.";

/// The result of a call that ended in spite of a cancel, if its result could not be finished.
const UNFINISHED: &str = "The call has ended, but the user cancelled the turn, and its result could not be processed in time. Check its effects before making it again.";

/// Makes the calls of a message, in parallel if the tools allow it, and stores the results in the
/// message. After a cancel every call has ended, and those that did not complete are marked as
/// failed.
pub async fn make_calls(
    history: &History,
    turn: &TurnContext,
    step: &StepContext,
    message: &mut Message,
    changes: &ChangeRecorder,
) {
    let id = message.id.clone();
    let mut waiting = pending_calls(history, turn, step, changes, &id, &message.parts).await;
    let concurrent: Vec<bool> = waiting.iter().map(|(_, one)| one.is_concurrent).collect();
    // Only a subagent can change something while other calls run, so without one the results are
    // those of the order in the message.
    let starts_tasks = waiting
        .iter()
        .any(|(_, one)| one.call.tool == TaskTool::NAME);
    let mut commands = waiting
        .iter_mut()
        .map(|(_, one)| one)
        .filter(|one| one.call.kind == ToolKind::Execute);
    let first = commands.next();
    let second = commands.next();
    if let (Some(first), Some(_), true) = (first, second, starts_tasks) {
        first.context.call.order_note = order_note(&concurrent);
    }
    let mut concurrent = VecDeque::from(concurrent);
    let mut running = FuturesUnordered::new();
    let mut alone = false;
    loop {
        while let Some(is_concurrent) = concurrent.front().copied() {
            let can_start = running.is_empty() || (is_concurrent && !alone);
            if waiting.is_empty() || !can_start {
                break;
            }
            alone = !is_concurrent;
            concurrent.pop_front();
            if let Some((index, one)) = waiting.pop_front() {
                running.push(async move { (index, one.run_to_end().await) });
            }
        }
        match running.next().await {
            Some((index, call)) => {
                let rejected = next::is_rejected(&call.state) && !turn.continues_after_rejection();
                message.parts[index].content = Content::Tool(call);
                // The call may have changed files, so earlier analyses are outdated.
                for (_, one) in &mut waiting {
                    let analysis = &mut one.context.call.analysis;
                    *analysis = analysis.outdated();
                }
                if rejected {
                    // The turn ends, so the remaining calls are not started.
                    waiting.clear();
                }
            }
            None => break,
        }
    }
    drop(running);
    fail_pending_calls(
        turn,
        message,
        "Not run: the user rejected another call of this message.",
    )
    .await;
}

/// Returns the pending calls of a message with their indexes in it.
async fn pending_calls<'a>(
    history: &History,
    turn: &'a TurnContext,
    step: &'a StepContext,
    changes: &'a ChangeRecorder,
    id: &'a MessageId,
    parts: &[Part],
) -> VecDeque<(usize, RunningCall<'a>)> {
    let instructions = Arc::new(visible_instructions(history, turn));
    let mut waiting: VecDeque<(usize, RunningCall<'a>)> = VecDeque::new();
    let mut earlier: Vec<(String, Arc<Value>)> = Vec::new();
    let mut line = CallTurn::default();
    let pending = |(index, part): (usize, &Part)| match &part.content {
        Content::Tool(call) if call.state == CallState::Pending => {
            Some((index, part.id.clone(), call.clone()))
        }
        _ => None,
    };
    let pending: Vec<(usize, PartId, Call)> =
        parts.iter().enumerate().filter_map(pending).collect();
    let calls: Vec<Call> = pending.iter().map(|(_, _, call)| call.clone()).collect();
    for ((index, part, _), resolved) in pending
        .into_iter()
        .zip(resolve_calls(turn, step, calls).await)
    {
        let ResolvedCall {
            call,
            tool,
            notes,
            argument_error: wrong,
            corrected_name: name,
            corrected_kind: kind,
            description,
            argument_bytes: size,
            is_concurrent,
            context,
        } = resolved;
        let same =
            |(tool, input): &&(String, Arc<Value>)| *tool == call.tool && *input == call.input;
        let here = u32::try_from(earlier.iter().rev().take_while(same).count()).unwrap_or(u32::MAX);
        let unbroken = here as usize == earlier.len();
        let before = if unbroken {
            repetition::count_repeats(history, &call.tool, &call.input)
        } else {
            Repeats::default()
        };
        let refusals = here + repetition::count_refusals(history, &call.tool, &call.input);
        earlier.push((call.tool.clone(), call.input.clone()));
        let repeats = Repeats {
            calls: here + before.calls,
            ..before
        };
        let message = id;
        let context = ToolContext {
            limits: output_limits(turn, step),
            call: CallContext {
                message: Some(id.clone()),
                instructions: instructions.clone(),
                ..context.call
            },
            ..context
        };
        let running_call = RunningCall {
            turn,
            step,
            changes,
            message,
            part,
            call,
            tool,
            notes,
            argument_error: wrong,
            corrected_name: name,
            corrected_kind: kind,
            description,
            argument_bytes: size,
            is_concurrent,
            context,
            position: line.new_after(),
            unseen_instructions: ProjectInstructions::default(),
            repeats,
            refusals,
        };
        waiting.push_back((index, running_call));
    }
    waiting
}

/// Marks calls that will not be made as failed.
pub async fn fail_pending_calls(turn: &TurnContext, message: &mut Message, why: &str) {
    for index in 0..message.parts.len() {
        if matches!(&message.parts[index].content, Content::Tool(call) if call.state == CallState::Pending)
        {
            fail_call(turn, message, index, why).await;
        }
    }
}

async fn fail_call(turn: &TurnContext, message: &mut Message, index: usize, why: &str) {
    let Content::Tool(call) = &mut message.parts[index].content else {
        return;
    };
    call.state = CallState::failed(why);
    let output = Some(why.to_owned());
    let update = CallUpdate {
        progress: Some(Progress::Failed),
        output,
        ..CallUpdate::of(&call.call)
    };
    turn.session
        .recorder
        .part(&message.id, &message.parts[index])
        .await;
    turn.event_sender.event(Event::Call(Box::new(update))).await;
}

/// Fails the calls that were cut off in an incomplete answer: the last one if no content follows
/// it, and those whose arguments are not a complete object. Complete calls before them are still
/// made. An answer is cut off at the output limit or by a filter.
pub async fn fail_cut_off_calls(turn: &TurnContext, message: &mut Message, finish: Finish) {
    let why = match finish {
        Finish::Length => {
            "Not run: the answer reached the output limit within this call. For a long file, write the first part, then append the rest with edit."
        }
        Finish::Refusal => "Not run: a content filter stopped the answer within this call.",
        Finish::Stop | Finish::ToolCalls | Finish::NotDone | Finish::Other => return,
    };
    let empty =
        |part: &Part| matches!(&part.content, Content::Text(text) if text.text.trim().is_empty());
    let last = message.parts.iter().rposition(|part| !empty(part));
    let cut = |index: usize, part: &Part| match &part.content {
        Content::Tool(call) if call.state == CallState::Pending => {
            Some(index) == last || call.input.is_string()
        }
        _ => false,
    };
    let places: Vec<usize> = (0..message.parts.len())
        .filter(|index| cut(*index, &message.parts[*index]))
        .collect();
    for index in places {
        fail_call(turn, message, index, why).await;
    }
}

/// Returns the instruction files that the model already sees: in the system prompt, and in the
/// visible results of earlier calls.
pub(super) fn visible_instructions(history: &History, turn: &TurnContext) -> LoadedInstructions {
    let prompted = turn
        .project
        .system_prompt_parts
        .instructions
        .iter()
        .filter_map(|entry| entry.path.clone());
    let view::VisibleHistory {
        summary, messages, ..
    } = view::visible_history(history);
    let loaded = messages
        .into_iter()
        .flat_map(compaction_carryover::loaded_by)
        .cloned();
    LoadedInstructions::new(
        prompted
            .chain(compaction_carryover::loaded_files(summary))
            .chain(loaded),
    )
}

struct RunningCall<'a> {
    turn: &'a TurnContext,
    step: &'a StepContext,
    changes: &'a ChangeRecorder,
    message: &'a MessageId,
    part: PartId,
    call: Call,
    tool: Option<Arc<dyn AnyTool>>,
    notes: Vec<String>,
    argument_error: Option<String>,
    corrected_name: Option<String>,
    corrected_kind: Option<ToolKind>,
    description: Option<CallDescription>,
    argument_bytes: usize,
    is_concurrent: bool,
    /// Its context as it was resolved. [`RunningCall::context`] returns the present one.
    context: ToolContext,
    position: CallTurn,
    /// Instructions of the project that an error of the call adds.
    unseen_instructions: ProjectInstructions,
    repeats: Repeats,
    /// The number of refusals of the same call in this turn because no user was present.
    refusals: u32,
}

impl RunningCall<'_> {
    async fn run_to_end(mut self) -> Call {
        let made = self.attempt().await;
        let mut title = None;
        let mut locations = None;
        self.call.state = match made {
            Ok(result) => {
                let output = self.finish_result(result).await;
                let reported = CallFacts {
                    details: output.metadata,
                    ..output.facts
                };
                let facts = self.facts().all().and(reported);
                if !output.title.is_empty() {
                    self.call.title = base::text::title(&output.title);
                    title = Some(self.call.title.clone());
                }
                if !output.locations.is_empty() {
                    self.call.locations.clone_from(&output.locations);
                    locations = Some(output.locations);
                }
                CallState::Completed(Completed {
                    output: output.text.into(),
                    display: output.display,
                    coloured: output.coloured,
                    facts,
                    changes: output.changes,
                    attachments: output.attachments,
                    cleared: None,
                })
            }
            Err(failure) => self.failure_state(failure).await,
        };
        let update = CallUpdate {
            tool: self.corrected_name.clone(),
            title,
            locations,
            ..CallUpdate::from(&self.call)
        };
        self.save().await;
        self.turn
            .event_sender
            .event(Event::Call(Box::new(update)))
            .await;
        if let Some(facts) = self.call.state.facts() {
            let jobs = &self.turn.session.shared.jobs;
            jobs.announced(&self.call.call, facts);
        }
        self.call
    }

    /// Converts a result to the form that is stored, shown and sent to the model, unless that is
    /// done already, and notifies the user of what was left out.
    async fn finish_result(&self, result: CallResult) -> ToolOutput {
        let FinishedOutput { output, left_out } = match result {
            CallResult::Finished(finished) => finished,
            CallResult::Raw(output) => {
                let finishing = self.output_finisher();
                poll_by_size(finishing.is_large(&output), finishing.finish(output)).await
            }
        };
        for title in left_out {
            let notice = Event::Notice {
                severity: Severity::Warning,
                title,
                details: None,
            };
            self.turn.event_sender.event(notice).await;
        }
        output
    }

    fn output_finisher(&self) -> OutputFinisher {
        OutputFinisher {
            notes: self.notes.join(" "),
            context: self.context(),
            images: self.turn.project.context.settings.images,
            pdf: self.step.model.pdf,
        }
    }

    /// Truncates the text of a failure as it is stored, shown and sent to the model; a long one on
    /// the thread pool, because the rest is written to a file.
    async fn failure_text(&self, failure: String) -> String {
        let context = self.context();
        let is_large =
            failure.len() > MAX_IN_PLACE_BYTES || truncate::is_too_long(&failure, context.limits);
        poll_by_size(is_large, async move {
            truncate::finish_failure(failure, &context)
        })
        .await
    }

    /// Converts a failure to a state: its text for the model, and its cause.
    async fn failure_state(&self, failure: Failure) -> CallState {
        let mut cause = FailureCause::Error;
        let mut coloured_output = None;
        let mut output_path = None;
        let error = match failure {
            Failure::ForModel(text) => {
                let text = self.failure_text(text).await;
                let mark = &self.turn.session.mark;
                if self.unseen_instructions.is_empty() {
                    text
                } else {
                    format!(
                        "{text}\n\n{}\n\n{}",
                        mark.note(&self.unseen_instructions.introduction),
                        self.unseen_instructions.quoted(mark)
                    )
                }
            }
            Failure::Denied(Denial::Unanswered(text))
                if self.refusals + 1 >= repetition::MAX_REPETITIONS =>
            {
                cause = FailureCause::Rejected;
                format!(
                    "{text} The call was refused {} times, so the turn ends here.",
                    repetition::MAX_REPETITIONS
                )
            }
            Failure::Denied(Denial::Unanswered(text)) => {
                cause = FailureCause::Unanswered;
                text
            }
            Failure::Denied(Denial::Rejected) => {
                match self.tool.as_ref().and_then(|tool| tool.rejected()) {
                    Some(text) => text.to_owned(),
                    None => {
                        cause = FailureCause::Rejected;
                        Denial::Rejected.to_string()
                    }
                }
            }
            Failure::Denied(denial) => denial.to_string(),
            Failure::Stopped(text) => {
                cause = FailureCause::Rejected;
                text
            }
            Failure::Cancelled if matches!(self.call.state, CallState::Running { .. }) => {
                cause = FailureCause::Cancelled;
                CANCELLED.into()
            }
            // The call never ran and had no effect.
            Failure::Cancelled | Failure::NotBegun => {
                cause = FailureCause::NotBegun;
                NOT_BEGUN.into()
            }
            Failure::CutOff {
                text,
                coloured,
                whole: None,
            } => {
                cause = FailureCause::Cancelled;
                coloured_output = coloured;
                let text = self.failure_text(text).await;
                format!("{}\n\n{CANCELLED}", text.trim_end_matches('\n'))
            }
            Failure::CutOff {
                text,
                coloured,
                whole: Some(WholeOutput { location, path }),
            } => {
                cause = FailureCause::Cancelled;
                coloured_output = coloured;
                output_path = path;
                let text = self.turn.session.mark.data(text);
                format!("{}\n\n{CANCELLED} {location}", text.trim_end_matches('\n'))
            }
            Failure::NeedsPermission(_) => "The call did not finish.".into(),
            Failure::Broken(cause) => {
                tracing::error!("{} failed: {cause}", self.call.tool);
                format!("The tool failed: {cause}")
            }
        };
        self.turn.session.shared.seen.record_shown(&error);
        let facts = self.facts().all();
        let facts = CallFacts {
            output_path: output_path.or(facts.output_path),
            ..facts
        };
        CallState::Failed {
            error,
            cause,
            coloured: coloured_output,
            facts,
        }
    }

    async fn save(&self) {
        let part = Part {
            id: self.part.clone(),
            content: Content::Tool(self.call.clone()),
        };
        self.turn.session.recorder.part(self.message, &part).await;
    }

    /// Returns the reason for the refusal of a tool that the model does not have because a rule
    /// denies every use of it.
    fn denial_of_tool(&self) -> Option<String> {
        let permission = find_properties(&self.call.tool)?.permission;
        let rules = &self.step.agent.rules;
        let (_, rule) = rules.last_about(permission)?;
        let is_the_cause = rules.hides(permission) && remedy::is_written(rule);
        is_the_cause.then(|| denial_message::of_tool(rule, &self.call.tool))
    }

    /// Returns the tool of the call, if there is one and the arguments are a JSON object.
    fn find_tool(&mut self) -> Result<Arc<dyn AnyTool>, Failure> {
        let Some(tool) = self.tool.clone() else {
            if let Some(denial) = self.denial_of_tool() {
                return Err(Failure::Denied(Denial::Rule(denial)));
            }
            let unknown = argument_repair::unknown_tool(&self.step.tools, &self.call.tool);
            return Err(Failure::ForModel(unknown));
        };
        let Some(why) = self.argument_error.take() else {
            return Ok(tool);
        };
        Err(Failure::ForModel(format!(
            "The arguments of {} are not a JSON object ({why}). It takes {}. Write the call again.",
            self.call.tool,
            argument_repair::describe_arguments(&tool.schema())
        )))
    }

    #[expect(
        clippy::cognitive_complexity,
        reason = "the steps of a call, in their order"
    )]
    async fn attempt(&mut self) -> Result<CallResult, Failure> {
        if self.turn.cancelled.is_cancelled() {
            return Err(Failure::Cancelled);
        }
        let tool = match self.find_tool() {
            Ok(tool) => tool,
            Err(failure) => {
                self.position.await_previous(&self.turn.cancelled).await;
                self.show(None).await;
                return Err(failure);
            }
        };
        let mut context = self.context();
        if self.call.kind == ToolKind::Execute {
            context.call.variables = self
                .turn
                .session
                .common
                .extensions
                .command_variables(&context)
                .await?;
        }
        let description = self.description.take();
        self.describe(description);
        if self.argument_bytes > MAX_ARGUMENT_BYTES {
            return Err(Failure::for_model(
                "The arguments are larger than 8 MiB. Split the call.",
            ));
        }
        let turn = self.turn;
        let prepared = tokio::select! {
            biased;
            () = turn.cancelled.cancelled() => Err(Failure::Cancelled),
            prepared = self.prepare(&tool, &context) => prepared,
        };
        self.position.await_previous(&turn.cancelled).await;
        let (prepared, changes) = match prepared {
            Ok(prepared) => prepared,
            Err(failure) => {
                self.show(None).await;
                return Err(failure);
            }
        };
        self.show(Some(changes)).await;
        let prepared = self.run_hooks_before(&tool, &mut context, prepared).await?;
        if self.repeats.is_loop() {
            let request = AccessRequest::new("doom_loop", &self.call.tool).always(&self.call.tool);
            let reason = self.repeats.reason(&self.call.tool);
            self.permit(&context, &[request], Some(&reason), false)
                .await?;
        }
        self.permit(&context, &prepared.requests, None, false)
            .await?;
        self.position.release_next();
        self.changes
            .before_call(self.turn, &self.call, &prepared.requests, &context)
            .await;
        if self.turn.cancelled.is_cancelled() {
            return Err(Failure::Cancelled);
        }
        self.call.state = self.facts().running();
        self.save().await;
        if self.call.kind.acts()
            && let Err(e) = self.turn.session.recorder.flush().await
        {
            tracing::warn!("acting although the call could not be recorded: {e}");
        }
        let update = CallUpdate {
            progress: Some(Progress::Running),
            ..CallUpdate::of(&self.call.call)
        };
        self.turn
            .event_sender
            .event(Event::Call(Box::new(update)))
            .await;
        // Files that the model knows and a command changes were changed by the agent.
        let sweeps = super::change_recorder::may_change_unnamed_files(self.call.kind, tool.name());
        let before = if sweeps {
            unchanged_files(&context).await
        } else {
            Vec::new()
        };
        let done = self.run_with_further_permissions(prepared, &context).await;
        adopt(before, &context).await;
        self.changes
            .after_call(self.turn, &self.call.call, done.is_err())
            .await;
        done
    }

    /// Prepares the call, with the parts of its changes to be shown. Holds back a change below
    /// instructions that the model has not seen: the answer contains them. They also come with the
    /// error of a change that could not be prepared.
    async fn prepare(
        &mut self,
        tool: &Arc<dyn AnyTool>,
        context: &ToolContext,
    ) -> Result<(PreparedCall, Vec<Change>), Failure> {
        let work = prepare_call(tool.clone(), self.call.input.clone(), context.clone());
        if self.call.kind != ToolKind::Edit || tool.is_foreign() {
            return poll_on_blocking_threads(work).await;
        }
        let context = context.clone();
        let named = self.call.locations.iter().map(|location| &location.path);
        let named: Vec<PathBuf> = named.cloned().collect();
        // In one change of thread: an edit is not prepared while other calls of its message run,
        // whose results could show the instructions.
        let (prepared, unseen) = poll_on_blocking_threads(async move {
            let prepared = work.await;
            let changes = match &prepared {
                Ok((_, changes)) => changes.as_slice(),
                Err(Failure::ForModel(_)) => &[],
                Err(_) => return (prepared, None),
            };
            let changed = changes.iter().map(|change| PathBuf::from(&change.path));
            let paths: Vec<PathBuf> = changed.chain(named).collect();
            let unseen = loaded_instructions::unseen(&paths, &context).await;
            let unseen = unseen.map(|unseen| (unseen.refusal(&context), unseen));
            (prepared, unseen)
        })
        .await;
        let Some((refusal, unseen)) = unseen else {
            return prepared;
        };
        self.facts()
            .update(|facts| *facts = std::mem::take(facts).and(unseen.facts));
        self.unseen_instructions = unseen.instructions;
        match prepared {
            Ok(_) => Err(Failure::ForModel(refusal)),
            failed => failed,
        }
    }

    /// Applies hooks to a call before its permission is checked. Arguments that a hook has
    /// changed are prepared, shown, checked and stored instead of the model's.
    async fn run_hooks_before(
        &mut self,
        tool: &Arc<dyn AnyTool>,
        context: &mut ToolContext,
        mut prepared: PreparedCall,
    ) -> Result<PreparedCall, Failure> {
        if !has_handler(&self.turn.project.context.settings, HookPoint::ToolBefore) {
            return Ok(prepared);
        }
        let hook_outcome = hooks::run_before_call(
            self.turn,
            &self.step.agent,
            &self.call,
            &prepared.requests,
            context,
        )
        .await?;
        self.notes.extend(hook_outcome.context);
        if let Some(input) = hook_outcome
            .input
            .filter(|input| *input != *self.call.input)
        {
            let asked = tool.clone();
            let described = context.clone();
            let input = poll_on_blocking_threads(async move {
                let input = asked.accept(input)?.input;
                Ok((
                    asked.describe(&input, &described),
                    input.to_string(),
                    Arc::new(input),
                ))
            });
            let wrong = |why: String| {
                format!(
                    "The hook {} has changed the arguments so that they do not fit: {why}",
                    hook_outcome.changed_by
                )
            };
            let (description, json, input) =
                input.await.map_err(|why| Failure::ForModel(wrong(why)))?;
            self.call.input = input;
            self.notes.push(format!(
                "The hook {} has changed the arguments; the call was made with: {json}",
                hook_outcome.changed_by
            ));
            self.describe(description);
            // The hook may have changed files, too.
            context.call.analysis = SharedAnalysis::default();
            // It may be about other files now.
            let (again, changes) = self.prepare(tool, context).await?;
            prepared = again;
            self.show(Some(changes)).await;
        }
        if let Some(why) = hook_outcome.ask {
            if prepared.requests.is_empty() {
                prepared
                    .requests
                    .push(AccessRequest::new(tool.permission(), "*"));
            }
            if let Some(request) = prepared.requests.first_mut() {
                request.hook_question = Some(why);
            }
        }
        Ok(prepared)
    }

    /// Applies hooks to a finished call. Files that they change count as changed by the agent.
    async fn run_hooks_after(
        &self,
        done: Result<CallResult, Failure>,
        context: &ToolContext,
    ) -> Result<CallResult, Failure> {
        if let Ok(result) = &done {
            hooks::publish_edits(self.turn, result.output());
            if sets_plan(&self.call) {
                let plan = self.turn.session.shared.todos.get();
                self.turn.session.recorder.events.plan(&plan);
            }
        }
        let done = match done {
            Ok(CallResult::Finished(finished)) => return Ok(CallResult::Finished(finished)),
            Ok(CallResult::Raw(output)) => Ok(output),
            Err(failure) => Err(failure),
        };
        if !self.has_hooks_after() {
            return done.map(CallResult::Raw);
        }
        // Only after a call that acts: a look for changed files would slow down every call
        // that reads.
        let acts = self.call.kind.acts();
        let before = if acts {
            unchanged_files(context).await
        } else {
            Vec::new()
        };
        let done =
            hooks::run_after_call(self.turn, &self.step.agent, &self.call, done, context).await;
        adopt(before, context).await;
        done.map(CallResult::Raw)
    }

    fn has_hooks_after(&self) -> bool {
        has_handler(&self.turn.project.context.settings, HookPoint::ToolAfter)
    }

    /// Runs a call again each time a further permission that it needs has been given, unless its
    /// earlier ones are denied by then.
    async fn run_with_further_permissions(
        &mut self,
        prepared: PreparedCall,
        context: &ToolContext,
    ) -> Result<CallResult, Failure> {
        let PreparedCall {
            mut requests,
            mut run,
        } = prepared;
        loop {
            let done = self.run(run, context).await;
            match self.run_hooks_after(done, context).await {
                Err(Failure::NeedsPermission(further)) => {
                    let FurtherCall { call, is_allowed } = *further;
                    self.permit(context, &call.requests, None, is_allowed)
                        .await?;
                    for request in &requests {
                        live_denies::check(self.turn, &self.step.agent, request).await?;
                    }
                    requests.extend(call.requests);
                    run = call.run;
                }
                done => return done,
            }
        }
    }

    /// Runs a call. Its result is finished on the same thread, without another change of thread,
    /// unless a hook is to change it first.
    async fn run(&mut self, run: RunCall, context: &ToolContext) -> Result<CallResult, Failure> {
        let turn = self.turn;
        let finishing = (!self.has_hooks_after()).then(|| self.output_finisher());
        let facts = self.facts().clone();
        // Tools react to the cancel themselves; one that does not is abandoned.
        let mut left_behind = std::pin::pin!(async {
            turn.cancelled.cancelled().await;
            tokio::time::sleep(CANCEL_GRACE).await; // the grace a tool has to clean up
        });
        let made = run(context.clone());
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = has_ended.clone();
        let mut result = poll_on_blocking_threads(catch_panic(async move {
            let output = made.await?;
            ended.store(true, Ordering::Release);
            match finishing {
                Some(finishing) => Ok(CallResult::Finished(finishing.finish(output).await)),
                None => Ok(CallResult::Raw(output)),
            }
        }));
        loop {
            tokio::select! {
                result = &mut result => return result,
                () = &mut left_behind => return await_abandoned(result, &has_ended).await,
                // Saved immediately, so that the call can be resumed if it is
                // interrupted.
                () = facts.changed() => {
                    self.call.state = facts.running();
                    self.save().await;
                }
            }
        }
    }

    fn describe(&mut self, description: Option<CallDescription>) {
        if let Some(description) = description {
            self.call.title = base::text::title(&description.title);
            self.call.locations = description.locations;
            self.call
                .locations
                .retain(|location| location.path.as_os_str().len() <= MAX_PATH_BYTES);
        }
    }

    /// Sends the present description of the call.
    async fn show(&self, changes: Option<Vec<Change>>) {
        let changes = changes.unwrap_or_default();
        let update = CallUpdate {
            tool: self.corrected_name.clone(),
            title: Some(self.call.title.clone()),
            kind: self.corrected_kind,
            input: self
                .call
                .input
                .is_object()
                .then(|| Value::clone(&self.call.input)),
            locations: (!self.call.locations.is_empty()).then(|| self.call.locations.clone()),
            changes: (!changes.is_empty()).then_some(changes),
            ..CallUpdate::of(&self.call.call)
        };
        self.save().await;
        self.turn
            .event_sender
            .event(Event::Call(Box::new(update)))
            .await;
    }

    /// Checks access requests, and asks the user if the rules require it and the call was not
    /// agreed to before.
    async fn permit(
        &self,
        context: &ToolContext,
        requests: &[AccessRequest],
        reason: Option<&str>,
        is_allowed: bool,
    ) -> Result<(), Failure> {
        authorize::authorize(
            self.turn,
            &self.step.agent,
            PlacedCall {
                call: &self.call,
                message: self.message,
                context,
            },
            requests,
            reason,
            is_allowed,
            || self.position.release_next(),
        )
        .await
    }

    /// Returns its context, with the present grants and approvals.
    fn context(&self) -> ToolContext {
        let mut context = self.context.clone();
        tool_context::refresh_policy(&mut context, self.turn, &self.step.agent);
        context.call.write_observer = self
            .changes
            .write_observer(&self.call.call, &self.call.title);
        context.call.edit_observer = self.changes.edit_observer(&self.call.call);
        context
    }

    /// Returns the facts that become known while it runs.
    fn facts(&self) -> &LiveFacts {
        &self.context.call.facts
    }
}

/// Returns the limits of output for a step's model. A single result must not fill a small window:
/// it gets a quarter of the usable tokens, at four bytes each.
fn output_limits(turn: &TurnContext, step: &StepContext) -> OutputLimits {
    let settings = &turn.project.context.settings;
    let usable = step.model.usable_tokens(settings.compaction.reserved);
    let bytes = usize::try_from(usable).unwrap_or(usize::MAX);
    OutputLimits {
        bytes: settings.tool_output.bytes.min(bytes),
        ..settings.tool_output
    }
}

/// Waits for the result of a call that the cancel has not ended. The current operation is completed
/// and reported, unless it never ends, and so is the finishing of a result.
async fn await_abandoned<T: Send + 'static>(
    mut result: BlockingFuture<Result<T, Failure>>,
    has_ended: &AtomicBool,
) -> Result<T, Failure> {
    if !has_ended.load(Ordering::Acquire) {
        let polled = tokio::time::timeout(CURRENT_POLL_TIMEOUT, result.finish_current_poll()).await;
        if let Ok(Some(result)) = polled {
            return result;
        }
        if !has_ended.load(Ordering::Acquire) {
            return Err(Failure::Cancelled);
        }
    }
    tokio::time::timeout(FINISHING_TIMEOUT, result)
        .await
        .unwrap_or_else(|_| Err(Failure::for_model(UNFINISHED)))
}

/// The result of a call, before and after hooks have seen it.
enum CallResult {
    Raw(ToolOutput),
    Finished(FinishedOutput),
}

impl CallResult {
    fn output(&self) -> &ToolOutput {
        match self {
            Self::Raw(output) => output,
            Self::Finished(finished) => &finished.output,
        }
    }
}

/// A result as it is stored, shown and sent to the model.
struct FinishedOutput {
    output: ToolOutput,
    /// The reasons why pictures were left out, for the user.
    left_out: Vec<String>,
}

/// The conversion of a result to the form that is stored, shown and sent to the model: notes of
/// hooks are added, texts are truncated, pictures are fitted, PDFs become text for a model that
/// does not accept them, and changes are split into parts.
struct OutputFinisher {
    notes: String,
    context: ToolContext,
    images: ImageSettings,
    pdf: bool,
}

impl OutputFinisher {
    /// True if it computes for long, or reads or writes files.
    fn is_large(&self, output: &ToolOutput) -> bool {
        let display = output.display.as_ref().map_or(0, String::len);
        output.text.len() + display > MAX_IN_PLACE_BYTES
            || truncate::is_too_long(&output.text, self.context.limits)
            || !output.touched.is_empty()
            || !output.changes.is_empty()
            || !output.attachments.is_empty()
    }

    async fn finish(self, mut output: ToolOutput) -> FinishedOutput {
        let context = &self.context;
        if !self.notes.is_empty() {
            let apart = if output.note.is_empty() { "" } else { "\n" };
            output.note = format!("{}{apart}{}", output.note, self.notes);
        }
        loaded_instructions::add(&mut output, context).await;
        let mut output = truncate::finish(output, context);
        context.session.seen.record_shown(&output.text);
        let left_out = images::fit_images(&mut output, self.images, context).await;
        if !self.pdf {
            images::replace_pdfs(&mut output, context).await;
        }
        output.changes = output.changes.iter().flat_map(Change::parts).collect();
        FinishedOutput { output, left_out }
    }
}

/// Prepares a call, with the parts of its changes to be shown. Blocks: inputs and files can be
/// large, and must not delay the reading of messages.
pub(super) fn prepare_call(
    tool: Arc<dyn AnyTool>,
    input: Arc<Value>,
    context: ToolContext,
) -> impl Future<Output = Result<(PreparedCall, Vec<Change>), Failure>> + Send + 'static {
    catch_panic(async move {
        let prepared = tool.prepare(Value::clone(&input), &context).await?;
        let changes = prepared
            .requests
            .iter()
            .flat_map(|request| &request.changes)
            .flat_map(|change| change.parts())
            .collect();
        Ok((prepared, changes))
    })
}

/// Converts a panic of a tool into a failure of its call.
pub(super) async fn catch_panic<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let panicked = |_| Failure::Broken("it ended unexpectedly; the log has details".into());
    AssertUnwindSafe(work)
        .catch_unwind()
        .await
        .map_err(panicked)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_described_if_it_differs_from_the_message() {
        let table = [
            (vec![], None),
            (vec![false; 300], None),
            (vec![true, false, true, false], None),
            (vec![true, true], Some("1 to 2 in parallel")),
            (
                vec![false, true, true, true, false],
                Some("1, then 2 to 4 in parallel, then 5"),
            ),
        ];
        for (concurrent, expected) in table {
            let described = order_note(&concurrent);
            assert_eq!(described.is_some(), expected.is_some(), "{concurrent:?}");
            assert!(
                described
                    .unwrap_or_default()
                    .contains(expected.unwrap_or_default()),
                "{concurrent:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn finishing_of_a_result_outlives_the_cancel() {
        let finished = async |has_ended: bool, time: Duration| {
            let work = poll_on_blocking_threads(async move {
                tokio::time::sleep(time).await;
                Ok("finished")
            });
            await_abandoned(work, &AtomicBool::new(has_ended)).await
        };
        let short = FINISHING_TIMEOUT / 2;
        assert_eq!(finished(true, short).await.unwrap(), "finished");
        assert!(matches!(
            finished(true, FINISHING_TIMEOUT * 2).await,
            Err(Failure::ForModel(why)) if why == UNFINISHED
        ));
        assert!(matches!(
            finished(false, short).await,
            Err(Failure::Cancelled)
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn call_that_ends_in_its_last_operation_is_finished() {
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (sender, receiver) = std::sync::mpsc::channel();
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = has_ended.clone();
        let mut work = poll_on_blocking_threads(async move {
            begin.send(()).unwrap();
            receiver.recv().unwrap();
            ended.store(true, Ordering::Release);
            tokio::time::sleep(FINISHING_TIMEOUT / 2).await;
            Ok("finished")
        });
        tokio::select! {
            biased;
            _ = &mut work => unreachable!("the operation waits"),
            begun = begun => begun.unwrap(),
        }
        let (result, ()) = tokio::join!(await_abandoned(work, &has_ended), async {
            sender.send(()).unwrap();
        });
        assert_eq!(result.unwrap(), "finished");
    }
}
