//! Child sessions, in which subagents work for a turn. A child has its own history, model, rules
//! and cost; its turn runs inside the parent's, so that it never outlives the parent and is
//! cancelled with it.
//!
//! A fork copies the child sessions of its origin that it continues with ([`forked`]).
//!
//! [`progress`] reports the child's progress in the parent.

mod forked;
mod progress;

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::forked::ForkedTask;
use self::progress::ChildProgress;
use crate::live::HistoryGuard;
use crate::sessions::Sessions;
use crate::turn::left_out_tools::LeftOutNotice;
use crate::turn::record::Recorder;
use crate::turn::{
    History, Permissions, SessionChoices, SessionContext, TurnContext, TurnOutcome, UnrecordedCost,
    inherited_rules,
};
use crate::turn::{budget, recover};
use crate::turn::{jobs, late_changes, next, step_context, trace};
use crate::{interrupted, revert};
use base::id::{CallId, SessionId};
use base::text;
use events::{
    CallUpdate, Event, EventSender, LiveFacts, Progress, SpawnSubagent, SubagentEnd, SubagentInfo,
    SubagentReport, ToolKind,
};
use permission::rule::derive;
use permission::{Action, Rules};
use project::agent::Agent;
use store::{InheritedRestrictions, Record};
use tools::process::background_jobs::Jobs;
use tools::scratch;
use tools::todos::Todos;
use transcript::{
    CallState, ChildSession, Content, FailureCause, File, Message, ModelRef, Role, Text, User,
};

/// Runs a subagent for a turn, and sends its report.
pub(super) async fn run_child(shared: &Sessions, parent: &TurnContext, spawn: SpawnSubagent) {
    let SpawnSubagent {
        call,
        facts,
        shown,
        agent,
        description,
        prompt,
        files,
        wanted,
        session,
        resume,
        model,
        rules,
        reply,
    } = spawn;
    let begun = shown.map(|title| begun_update(&call, title));
    if let Some(update) = begun.clone() {
        parent
            .event_sender
            .event(Event::Call(Box::new(update)))
            .await;
    }
    let work = async {
        let agent = parent
            .project
            .agents
            .get(&agent)
            .ok_or_else(|| format!("There is no agent {agent}."))?;
        let model = wanted.unwrap_or_else(|| {
            step_context::agent_model(&agent, &model, &parent.project.models).unwrap_or(model)
        });
        let call = call.clone();
        let task = ChildTask {
            shared,
            parent,
            call,
            facts,
            agent,
            description,
            prompt,
            files,
            model,
            rules,
            new_id: session,
        };
        task.run(resume).await
    };
    let result = work.await;
    if begun.is_some() {
        parent
            .event_sender
            .event(Event::Call(Box::new(ended_update(&call, &result))))
            .await;
    }
    // The receiver is dropped if the call was abandoned.
    reply.send(result).ok();
}

/// Returns the update that shows a call which the model has not made.
fn begun_update(call: &CallId, title: String) -> CallUpdate {
    CallUpdate {
        tool: Some("task".into()),
        title: Some(title),
        kind: Some(ToolKind::Think),
        progress: Some(Progress::Running),
        ..CallUpdate::of(call)
    }
}

/// Returns the last update of the call that shows a subagent started by a plugin.
fn ended_update(call: &CallId, result: &Result<SubagentReport, String>) -> CallUpdate {
    let (progress, output) = match result {
        Err(why) => (Progress::Failed, why.clone()),
        Ok(report) => match &report.end {
            SubagentEnd::Done => (Progress::Completed, report.text.clone()),
            SubagentEnd::Cancelled => (Progress::Cancelled, report.text.clone()),
            SubagentEnd::Rejected(what) => (Progress::Failed, format!("You rejected {what}.")),
            SubagentEnd::Failed(why) => (Progress::Failed, why.clone()),
        },
    };
    CallUpdate {
        progress: Some(progress),
        output: Some(output),
        ..CallUpdate::of(call)
    }
}

struct ChildTask<'a> {
    shared: &'a Sessions,
    parent: &'a TurnContext,
    call: CallId,
    facts: LiveFacts,
    agent: Arc<Agent>,
    description: String,
    prompt: String,
    files: Vec<File>,
    model: ModelRef,
    rules: Rules,
    /// The id for a new session; `None` for a fresh one.
    new_id: Option<SessionId>,
}

impl ChildTask<'_> {
    async fn run(self, resume: Option<SessionId>) -> Result<SubagentReport, String> {
        let budget = self.parent.project.context.settings.budget.cost;
        if let Some(max) = budget
            && self.parent.budget.is_spent(budget)
        {
            return Err(format!(
                "{} No more subagents are started.",
                budget::spent_message(max)
            ));
        }
        let (_claim, mut record, mut history) = self.open_session(resume).await?;
        let id = record.id.clone();
        record.inherited = self.inherited();
        let model = self.model.clone();
        self.announce(&id, &model).await;
        let cancelled = self.parent.cancelled.child_token();
        let _working = self.shared.live.works(&id, &cancelled);
        let (event_sender, events) = EventSender::new();
        let (_choice, choice) =
            watch::channel(SessionChoices::of(&self.agent.name, Some(model.clone())));
        let turn = self.turn(&record, &history, choice, (cancelled, event_sender));
        let todos = turn.session.shared.todos.clone();
        let context = turn.session.clone();
        let before = history.cost().unwrap_or_default();
        let message = self.prompt_message(&turn, &model);
        turn.session.recorder.session(&record).await;
        turn.session.recorder.store_message(&message).await;
        let mut progress = ChildProgress::new(
            self.parent,
            &self.call,
            &self.facts,
            &self.agent.name,
            &id,
            turn.cancelled.clone(),
        );
        progress
            .begin(
                subagent_info(&self.description, &self.agent.name, Some(&self.agent)),
                &message,
            )
            .await;
        history.messages.push(message);

        let (mut history, outcome) = progress
            .follow(super::run(self.shared, [None; 2], history, turn), events)
            .await;
        progress.end(&outcome).await;
        // The output of its background jobs would not be read any more.
        context.shared.jobs.end().await;
        let scratch = scratch::directory(&context.common.environment, context.id.as_str());
        base::task::spawn_blocking(move || scratch::remove(&scratch))
            .await
            .ok();
        jobs::record_ended_jobs(&mut history, &context).await;
        late_changes::collect(&mut history, &context).await;

        record.updated = self.parent.now();
        record.agent = Some(self.agent.name.clone());
        record.model = Some(model.clone());
        record.answered_by = Some(model.clone());
        record.todos = todos.get();
        record.left_out_tools = context.left_out_tools.known();
        record.cost = history.cost();
        context.recorder.session(&record).await;
        self.shared.store.close(&id).await;
        if let Some(cost) = record.cost {
            self.parent.session.unrecorded_cost.add(cost - before);
        }
        let end = match budget {
            Some(most)
                if outcome == TurnOutcome::StepLimit && self.parent.budget.is_spent(budget) =>
            {
                SubagentEnd::Failed(budget::spent_message(most))
            }
            _ => subagent_end(&history, outcome),
        };
        let calls = progress.lines();
        Ok(SubagentReport {
            session: id,
            model,
            text: last_text(&history),
            calls,
            end,
        })
    }

    /// Returns a new session, or the one to continue.
    async fn open_session(
        &self,
        resume: Option<SessionId>,
    ) -> Result<(HistoryGuard, Record, History), String> {
        let Some(id) = resume else {
            let record = self.create_session().await;
            return Ok((self.claim(&record.id)?, record, History::default()));
        };
        if !id.is_well_formed() || id == self.parent.session.id {
            return Err(missing_task(&id));
        }
        let id = self.own_task_session(id).await?;
        let claim = self.claim(&id)?;
        let (record, history) = self.load_earlier(&id).await?;
        Ok((claim, record, history))
    }

    /// Returns the session of a task: the one of that id, or the copy that a fork has or makes of
    /// it.
    async fn own_task_session(&self, id: SessionId) -> Result<SessionId, String> {
        let store = &self.shared.store;
        let parent = &self.parent.session.id;
        let children = store.children(parent).await.unwrap_or_default();
        if children.contains(&id) {
            return Ok(id);
        }
        let history = store.peek(parent).await.map_err(|_| missing_task(&id))?;
        let (of, prompts) = match forked::find_task(&history.messages, parent, &id) {
            None => return Err(missing_task(&id)),
            Some(ForkedTask::Own(own)) => return Ok(own),
            Some(ForkedTask::Foreign(of, prompts)) => (of, prompts),
        };
        let mut stored = match store.peek(&of).await {
            Ok(stored) => stored,
            Err(store::Error::NotFound(_)) => return Err(missing_task(&id)),
            Err(e) => return Err(format!("The task cannot be continued: {e}.")),
        };
        let visible = store::visible(&stored.messages, &stored.record.undone);
        let end =
            forked::end_of_turns(stored.messages.get(..visible).unwrap_or_default(), &prompts);
        if end == 0 {
            // A copy without messages would begin anew under the name of the task.
            return Err(missing_task(&id));
        }
        revert::truncate_history(&mut stored, end);
        // The fork may be of another directory.
        stored.record = Record {
            cwd: self.parent.project.context.cwd.clone(),
            additional_directories: self.parent.session.common.additional_directories.to_vec(),
            shared_name: None,
            origin: None,
            parent: Some(parent.clone()),
            depth: self.parent.session.depth + 1,
            ..stored.record.copied(self.parent.now())
        };
        let copy = store::renamed(stored, &self.parent.session.common.environment);
        let id = copy.record.id.clone();
        store
            .import_copy(copy, &of)
            .await
            .map_err(|e| format!("The task cannot be continued: {e}."))?;
        Ok(id)
    }

    /// Returns the context of the child's turn: the parent's, except for its own session, choices
    /// and events.
    fn turn(
        &self,
        record: &Record,
        history: &History,
        choice: watch::Receiver<SessionChoices>,
        (cancelled, event_sender): (CancellationToken, EventSender),
    ) -> TurnContext {
        TurnContext {
            session: Arc::new(self.context(record, history)),
            choice,
            cancelled,
            event_sender,
            trace: trace::call_trace(self.parent, &self.call),
            ..self.parent.clone()
        }
    }

    /// Returns the context of the child's session: the common part of the parent's, and new state.
    fn context(&self, record: &Record, history: &History) -> SessionContext {
        let parent = &*self.parent.session;
        let permissions = &parent.permissions;
        SessionContext {
            common: parent.common.clone(),
            id: record.id.clone(),
            mark: record.mark.clone(),
            depth: parent.depth + 1,
            permissions: Permissions {
                inherited: inherited_rules(record.all_denied(), Action::Deny),
                ask_rules: inherited_rules(record.all_asked(), Action::Ask),
                min_approvals: record.approvals.map_or(permissions.min_approvals, |own| {
                    own.max(permissions.min_approvals)
                }),
                ..permissions.clone()
            },
            shared: Arc::new(tools::SessionContext {
                id: record.id.clone(),
                mark: record.mark.clone(),
                seen: Arc::default(),
                todos: Arc::new(Todos::new(record.todos.clone())),
                jobs: Arc::new(Jobs::after(jobs::last_number(history))),
                ..tools::SessionContext::clone(&parent.shared)
            }),
            late_changes: Arc::default(),
            left_out_tools: LeftOutNotice::new(record.left_out_tools.clone()),
            recorder: Recorder::new(self.shared.store.clone(), record.id.clone())
                .publishing(parent.recorder.events.of_subagent(record.id.clone())),
            // The user's messages go to the session that the user has opened.
            has_steering_message: watch::channel(false).1,
            unrecorded_cost: UnrecordedCost::default(),
            child_changes: Arc::default(),
            parent_changes: Some(parent.child_changes.clone()),
        }
    }

    /// Returns the child's prompt, as a message of a user.
    fn prompt_message(&self, turn: &TurnContext, model: &ModelRef) -> Message {
        let prompt = Content::Text(Text {
            text: self.prompt.as_str().into(),
            ..Text::default()
        });
        let content = std::iter::once(prompt).chain(self.files.iter().cloned().map(Content::File));
        Message {
            id: turn.new_message_id(),
            created: turn.now(),
            role: Role::User(User {
                agent: self.agent.name.clone(),
                model: model.clone(),
            }),
            parts: content.map(|content| turn.new_part(content)).collect(),
        }
    }

    fn claim(&self, id: &SessionId) -> Result<HistoryGuard, String> {
        let held = || {
            format!(
                "The task {id} is being worked on, or the user has it open. Wait until that ends, or leave task_id out to begin a new one."
            )
        };
        self.shared.claim(id).ok_or_else(held)
    }

    async fn create_session(&self) -> Record {
        let description = if self.description.is_empty() {
            "Task"
        } else {
            &self.description
        };
        let fresh = || {
            SessionId::new(
                self.parent
                    .session
                    .common
                    .environment
                    .fresh(SessionId::PREFIX),
            )
        };
        let id = self.new_id.clone().unwrap_or_else(fresh);
        let record = Record {
            additional_directories: self.parent.session.common.additional_directories.to_vec(),
            title: Some(format!("{description} (@{} subagent)", self.agent.name)),
            parent: Some(self.parent.session.id.clone()),
            depth: self.parent.session.depth + 1,
            agent: Some(self.agent.name.clone()),
            ..Record::new(
                id,
                self.parent.project.context.cwd.clone(),
                self.parent.now(),
            )
        };
        if let Err(e) = self.shared.store.create(&record).await {
            // The parent's turn notifies the user that the conversation is not stored.
            tracing::error!("a subagent's session is not saved: {e}");
        }
        self.parent
            .session
            .recorder
            .events
            .of_subagent(record.id.clone())
            .created(&record);
        record
    }

    /// Loads a child session of this parent.
    async fn load_earlier(&self, id: &SessionId) -> Result<(Record, History), String> {
        let (stored, messages_without_results) =
            match self.shared.store.load_without_old_results(id).await {
                Ok(stored) => stored,
                Err(store::Error::NotFound(_)) => return Err(missing_task(id)),
                Err(e) => return Err(format!("The task cannot be continued: {e}.")),
            };
        if !stored.damage.is_empty() {
            self.shared.store.close(id).await;
            return Err(format!(
                "The task cannot be continued: {} Begin a new one.",
                stored.damage.join(" ")
            ));
        }
        if stored.record.parent.as_ref() != Some(&self.parent.session.id) {
            self.shared.store.close(id).await;
            return Err(missing_task(id));
        }
        let mut record = stored.record;
        let mut history = History {
            messages: stored.messages,
            undone_cost: record.undone_cost,
            messages_without_results,
        };
        let recorder = Recorder::new(self.shared.store.clone(), id.clone());
        for message in recover::recover(&mut history) {
            recorder.store_message(&message).await;
        }
        if let Some(tracker) = self.parent.session.common.snapshots.clone() {
            let (completed, parts) =
                interrupted::record_changes_of_interrupted_steps(history, &record, tracker).await;
            history = completed;
            for (message, part) in parts {
                recorder.part(&message, &part).await;
            }
        }
        // As with a prompt, undone turns are deleted.
        revert::delete_undone_turns(&mut history, &mut record, &recorder).await;
        if let Some(plan) = revert::last_plan(&history.messages) {
            record.todos = plan;
        }
        Ok((record, history))
    }

    /// Returns the present restrictions of the parent.
    fn inherited(&self) -> InheritedRestrictions {
        let permissions = &self.parent.session.permissions;
        let asked = permissions.ask_rules.iter();
        InheritedRestrictions {
            denied: self.denied(),
            asked: asked
                .map(|rule| (rule.permission.clone(), rule.pattern.clone()))
                .collect(),
            approvals: Some(permissions.approvals()),
        }
    }

    /// Returns the deny rules of the parent, and of tools that are for primary agents only.
    fn denied(&self) -> Vec<(String, String)> {
        // The plan tools are not denied to a child whose own rules allow them.
        let own = &self.agent.rules;
        let denied = derive(own, &self.rules, &Rules::default());
        let denied = denied
            .iter()
            .skip(own.len())
            .map(|rule| (rule.permission.clone(), rule.pattern.clone()));
        let primary = self
            .parent
            .project
            .context
            .settings
            .experimental
            .primary_tools
            .iter()
            .map(|tool| (tool.clone(), "*".into()));
        denied.chain(primary).collect()
    }

    /// Reports the child's session early, so that a client can link to it.
    async fn announce(&self, id: &SessionId, model: &ModelRef) {
        let parent = Some(self.parent.session.id.clone());
        let child = ChildSession {
            parent,
            session: id.clone(),
            model: Some(model.clone()),
        };
        let update = CallUpdate {
            metadata: Some(child.to_json()),
            ..CallUpdate::of(&self.call)
        };
        self.facts.update(|facts| facts.child = Some(child));
        if self.parent.cancelled.is_cancelled() {
            // The call may have been abandoned, and an ended call is not updated.
            return;
        }
        self.parent
            .event_sender
            .event(Event::Call(Box::new(update)))
            .await;
    }
}

/// Returns the description of a subagent's session for clients that show it.
pub(crate) fn subagent_info(description: &str, name: &str, agent: Option<&Agent>) -> SubagentInfo {
    let title = if description.is_empty() {
        "Task"
    } else {
        description
    };
    let agent = match agent.and_then(|agent| agent.description.as_deref()) {
        Some(description) => format!("{name}: {description}"),
        None => name.to_owned(),
    };
    SubagentInfo {
        title: title.to_owned(),
        agent: text::title(&agent),
        is_stoppable: true,
    }
}

fn missing_task(id: &SessionId) -> String {
    let id = text::title(id.as_str());
    format!("There is no task \"{id}\" of this session. Leave task_id out to begin a new one.")
}

/// Returns the child's last text in this turn, without adjutant's own texts to the user.
fn last_text(history: &History) -> String {
    let visible_text = |message: &Message| {
        let texts = message
            .answer()
            .iter()
            .filter_map(|part| match &part.content {
                Content::Text(text) if !text.synthetic && !text.ignored => Some(text.text.trim()),
                _ => None,
            });
        let text = texts.collect::<Vec<_>>().join("\n");
        (message.assistant().is_some() && !text.is_empty()).then_some(text)
    };
    next::current_turn(history)
        .iter()
        .rev()
        .find_map(visible_text)
        .unwrap_or_default()
}

fn subagent_end(history: &History, outcome: TurnOutcome) -> SubagentEnd {
    match outcome {
        TurnOutcome::Ended
        | TurnOutcome::NotDone
        | TurnOutcome::Rejected
        | TurnOutcome::Steered => {
            let calls = history.messages.last().into_iter().flat_map(Message::calls);
            let mut rejected = calls.filter(|call| match &call.state {
                CallState::Failed { cause, .. } => *cause == FailureCause::Rejected,
                _ => false,
            });
            rejected.next().map_or(SubagentEnd::Done, |call| {
                SubagentEnd::Rejected(text::title(&call.title))
            })
        }
        TurnOutcome::Cancelled => SubagentEnd::Cancelled,
        TurnOutcome::Refused => SubagentEnd::Failed("the model refused.".into()),
        TurnOutcome::MaxTokens => {
            SubagentEnd::Failed("its answer hit the limit of output tokens.".into())
        }
        TurnOutcome::StepLimit => SubagentEnd::Failed("it reached its limit of steps.".into()),
        TurnOutcome::Failed(fault) => {
            let advice = fault
                .advice
                .map(|advice| format!(" {advice}"))
                .unwrap_or_default();
            SubagentEnd::Failed(format!("{}{advice}", fault.message))
        }
    }
}

#[cfg(test)]
mod tests;
