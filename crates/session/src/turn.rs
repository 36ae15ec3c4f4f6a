//! The turn loop: carries one prompt to its end. [`run::run`] repeats steps as long as
//! [`next::decide_next`] decides so. A step captures its inputs ([`step_context`]), requests an
//! answer ([`step`]) and makes the requested calls ([`call`]). The model sees a [`view`] of the
//! history; when the view outgrows the window, [`prune`] and [`compact`] free space, and content
//! that the model no longer sees is evicted by [`evict`].
//!
//! The history is moved into the turn and returned with the outcome, so no other task can change it
//! while the turn runs. Events go through the event sender, stored data goes through the recorder,
//! and every wait ends when the turn is cancelled.

mod adopt;
mod agent_context;
mod authorize;
pub mod budget;
pub mod call;
pub mod change_recorder;
pub mod compact;
mod compaction_carryover;
pub mod digest;
pub mod evict;
pub mod hooks;
mod images;
pub mod insert;
pub mod jobs;
pub mod late_changes;
pub mod left_out_tools;
pub mod live_denies;
pub mod models;
pub mod next;
mod note;
pub mod prune;
pub mod record;
pub mod recover;
pub mod refused_tools;
pub mod remind;
pub mod repetition;
pub mod request;
mod resolve;
pub mod retry;
pub mod run;
pub mod size;
pub mod step;
pub mod step_context;
pub mod subtask;
pub mod tool_context;
pub(crate) mod trace;
mod unseen_results;
mod unset_key;
pub mod view;
mod waiting_line;
mod wrapped_calls;

#[cfg(test)]
pub(crate) mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::grants::Grants;
use crate::published;
use base::approvals::Approvals;
use base::environment::{Environment, Timestamp};
use base::id::{CallId, MessageId, PartId, SessionId};
use base::lock::lock;
use base::text::mark::ReminderMark;
use base::trace::TraceContext;
use events::{Event, EventSender, SessionRequestSender, Severity, Status};
use extensions::Extensions;
use mcp::McpServers;
use permission::account::AccountAccess;
use permission::rule::Rule;
use permission::{Action, Rules};
use project::agent::registry::Agents;
use project::instruction;
use project::skill::Skills;
use project::system::Surroundings;
use providers::Model;
use snapshot::Tracker;
use store::{self, RecordChange};
use tools::ProjectContext;
use tools::registry::ToolRegistry;
use transcript::{Content, Fault, FaultKind, Message, ModelRef, Part, Usage};

/// The outcome of a turn. None of them is an error of the call that started it.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnOutcome {
    /// The model considers the work done.
    Ended,
    /// The offline model, or a built-in command, could not fulfil the request.
    NotDone,
    /// The user rejected a call without a comment, or a call was refused repeatedly because no
    /// user is present.
    Rejected,
    Cancelled,
    /// The model or a filter refused to answer.
    Refused,
    /// The answer hit the limit of output tokens.
    MaxTokens,
    /// The agent's step limit was reached and the model still wanted more.
    StepLimit,
    /// Steering: the user sent a message that the model should receive now: the turn of that message
    /// continues the work.
    Steered,
    Failed(Fault),
}

/// The user's choices, read once per step. Each choice that the user has not made has its default next
/// to it.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionChoices {
    pub agent: String,
    /// The chosen model; `None` for the agent's model, or else the default.
    pub model: Option<ModelRef>,
    /// True: messages sent during a turn reach the model between two steps. False: they are answered
    /// after the turn. `None`: see `default_steer`.
    pub steer: Option<bool>,
    /// The default of `steer` from the settings.
    pub default_steer: bool,
    /// The approval mode; `None`: see `default_approvals`.
    pub approvals: Option<Approvals>,
    /// The default of `approvals` from the settings.
    pub default_approvals: Approvals,
}

impl SessionChoices {
    /// True if messages sent during a turn reach the model between two steps.
    pub fn steers(&self) -> bool {
        self.steer.unwrap_or(self.default_steer)
    }

    /// Returns a choice of an agent and a model, with defaults for the rest.
    pub fn of(agent: &str, model: Option<ModelRef>) -> Self {
        Self {
            agent: agent.to_owned(),
            model,
            steer: None,
            default_steer: false,
            approvals: None,
            default_approvals: Approvals::default(),
        }
    }

    /// Returns the approval mode of the session, or else of the settings.
    pub fn approvals(&self) -> Approvals {
        self.approvals.unwrap_or(self.default_approvals)
    }

    /// Returns the choice as a change of the stored record.
    pub fn record_change(&self) -> RecordChange {
        RecordChange::Choice {
            agent: self.agent.clone(),
            model: self.model.clone(),
            steer: self.steer,
            approvals: self.approvals,
        }
    }
}

/// A session's messages, oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    pub messages: Vec<Message>,
    /// The cost of turns that were undone and are no longer among the messages, in US dollars.
    pub undone_cost: Option<f64>,
    /// The number of messages at the beginning without the results of their calls, because no
    /// model sees those any more.
    pub messages_without_results: usize,
}

/// The parts of the system prompt about the session, the same for all agents. Read once, so that a
/// change does not invalidate the provider's cache.
#[derive(Debug, Clone)]
pub struct SystemPromptParts {
    pub surroundings: Surroundings,
    /// The references of the settings: name, path or repository, description.
    pub references: Vec<(String, String, String)>,
    pub instructions: Vec<instruction::InstructionText>,
    pub skills: Arc<Skills>,
}

/// The context of a turn: its session's, the project, and the state of this turn.
#[derive(Clone)]
pub struct TurnContext {
    pub session: Arc<SessionContext>,
    pub project: Arc<SessionProject>,
    /// The session's choices, or those of a command for its turn.
    pub choice: watch::Receiver<SessionChoices>,
    pub cancelled: CancellationToken,
    pub event_sender: EventSender,
    /// The sender of requests from the turn to its session.
    pub session_requests: SessionRequestSender,
    /// The budget of the turn, shared with its subagents.
    pub budget: Arc<budget::TurnBudget>,
    /// The trace context of the turn; before the turn begins, that of its parent.
    pub trace: Option<TraceContext>,
}

/// The context that the turns of an open session share. It lives as long as the session is open.
pub struct SessionContext {
    /// The part that the sessions of its subagents share.
    pub common: Arc<CommonContext>,
    pub id: SessionId,
    /// The mark of notes to this session's model.
    pub mark: ReminderMark,
    /// The number of parent sessions: 0 for the user's own.
    pub depth: u32,
    pub permissions: Permissions,
    pub recorder: record::Recorder,
    /// The state that the calls of the session share.
    pub shared: Arc<tools::SessionContext>,
    /// True if the user has sent a message that the model should receive before its next step.
    pub has_steering_message: watch::Receiver<bool>,
    /// The tools that were left out because the model's window is small, as far as the user was
    /// notified.
    pub left_out_tools: left_out_tools::LeftOutNotice,
    /// Background jobs of earlier steps that may still change files.
    pub late_changes: Arc<late_changes::LateChanges>,
    /// The cost that no message includes yet.
    pub unrecorded_cost: UnrecordedCost,
    /// The file changes of subagents that no step lists yet.
    pub child_changes: Arc<late_changes::ChildChanges>,
    /// The same of the parent session, if this session belongs to a subagent.
    pub parent_changes: Option<Arc<late_changes::ChildChanges>>,
}

/// The context that a session of the user shares with the sessions of its subagents.
pub struct CommonContext {
    pub environment: Environment,
    /// Further directories; absolute.
    pub additional_directories: Arc<[PathBuf]>,
    pub tools: Arc<ToolRegistry>,
    pub servers: Arc<McpServers>,
    /// The hooks, plugins and custom tools of the user and the project.
    pub extensions: Arc<Extensions>,
    /// Records file contents, if the settings enable snapshots.
    pub snapshots: Option<Arc<Tracker>>,
    /// The tools that providers have refused.
    pub refused_tools: Arc<refused_tools::RefusedTools>,
    /// The file operations that the client supports.
    pub file_capabilities: tools::FileCapabilities,
    /// True if the client shows the sessions of subagents as sessions.
    pub shows_subagents: bool,
    /// True if the client shows notices. If not, those of a day are due again with the next session.
    pub shows_notices: bool,
    /// The client's addition to the system prompt.
    pub system_prompt_addition: Option<Arc<str>>,
    /// Cancelled when a turn must end at its next step, because the process is about to exit.
    pub exit_requested: CancellationToken,
}

/// The project of a session, as its files define it. It is replaced as a whole between two turns,
/// when one of its settings files changes.
pub struct SessionProject {
    /// The directories and settings, as tools get them.
    pub context: Arc<ProjectContext>,
    pub agents: Arc<Agents>,
    /// Reads the settings files again while a turn runs, for new deny rules.
    pub deny_watcher: Arc<live_denies::DenyWatcher>,
    pub models: models::Models,
    /// The parts of the system prompt about the session, the same for all agents.
    pub system_prompt_parts: Arc<SystemPromptParts>,
}

/// The permissions of a session, in addition to its agent's rules.
#[derive(Clone)]
pub struct Permissions {
    pub grants: Arc<Grants>,
    /// The deny rules of the parent sessions, which apply here as well, and of the client.
    pub inherited: Rules,
    /// Rules of clients that ask, for this session and its subagents.
    pub ask_rules: Rules,
    /// The sandbox of commands, which also records that the user was notified about it.
    pub sandbox_choice: tools::process::sandboxing::SandboxChoice,
    /// True if a user is present to answer questions.
    pub attended: bool,
    /// The right of calls to change property of the user's account.
    pub account: AccountAccess,
    /// The choices of the user's session: its approval mode applies to subagents as well.
    pub chosen: watch::Receiver<SessionChoices>,
    /// A lower bound of the approvals: the session of a subagent may ask more questions than the
    /// user's session, never fewer.
    pub min_approvals: Approvals,
}

impl Permissions {
    /// Returns the approvals that apply now.
    pub fn approvals(&self) -> Approvals {
        self.chosen.borrow().approvals().max(self.min_approvals)
    }
}

/// Returns rules with this action for restrictions, which are pairs of a permission and a pattern,
/// that a session has from its parent or its client.
pub(super) fn inherited_rules<'a>(
    restrictions: impl IntoIterator<Item = &'a (String, String)>,
    action: Action,
) -> Rules {
    let rule = |(permission, pattern): &(String, String)| Rule {
        permission: permission.clone(),
        pattern: pattern.clone(),
        action,
        source: "the session that delegated, or the client of this one".into(),
    };
    restrictions.into_iter().map(rule).collect()
}

/// The cost in US dollars that no message includes yet: of subagents, and of answers that were not
/// used. The next message of the model takes it. A std mutex is enough: it only guards a number.
#[derive(Debug, Default)]
pub struct UnrecordedCost(Mutex<Option<f64>>);

impl UnrecordedCost {
    pub fn add(&self, dollars: f64) {
        let mut spent = lock(&self.0);
        *spent = Some(spent.unwrap_or_default() + dollars);
    }

    pub fn take(&self) -> Option<f64> {
        lock(&self.0).take().map(round_cost)
    }
}

/// Rounds to a billionth of a dollar, to remove the rounding errors of sums.
pub fn round_cost(dollars: f64) -> f64 {
    (dollars * 1e9).round() / 1e9
}

/// Returns the sum of the known values; `None` if both are unknown.
pub fn add_costs(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter()
        .chain(other)
        .reduce(|a, b| a + b)
        .map(round_cost)
}

/// Returns the cost of messages in US dollars; `None` if no price is known.
pub fn cost(messages: &[Message]) -> Option<f64> {
    messages
        .iter()
        .filter_map(|m| m.assistant()?.cost)
        .reduce(|a, b| a + b)
        .map(round_cost)
}

/// Returns the cost of one request in US dollars; `None` if the model's price is not known.
fn request_cost(model: &Model, usage: &Usage) -> Option<f64> {
    let rates = model
        .price
        .as_ref()?
        .rates_for(usage.input + usage.cache_read + usage.cache_write);
    #[expect(
        clippy::cast_precision_loss,
        reason = "token counts are far below 2^52"
    )]
    let dollars = |tokens: u64, per_million: f64| tokens as f64 * per_million / 1e6;
    Some(round_cost(
        dollars(usage.input, rates.input)
            + dollars(usage.output + usage.reasoning, rates.output)
            + dollars(usage.cache_read, rates.cache_read)
            + dollars(usage.cache_write, rates.cache_write),
    ))
}

/// Returns the fault of a cancelled turn.
fn cancelled_fault() -> Fault {
    Fault {
        kind: FaultKind::Interrupted,
        message: "The user cancelled the turn.".into(),
        advice: None,
    }
}

impl From<Vec<Message>> for History {
    fn from(messages: Vec<Message>) -> Self {
        Self {
            messages,
            undone_cost: None,
            messages_without_results: 0,
        }
    }
}

impl History {
    /// Returns the cost so far in US dollars, subagents included; `None` if no price is known.
    pub fn cost(&self) -> Option<f64> {
        add_costs(self.undone_cost, cost(&self.messages))
    }
}

impl TurnContext {
    /// True if a turn continues after the user has rejected a call without a comment: if a user is
    /// present and the settings say so.
    pub fn continues_after_rejection(&self) -> bool {
        self.session.permissions.attended
            && self
                .project
                .context
                .settings
                .experimental
                .continue_loop_on_deny
    }

    pub fn new_part(&self, content: Content) -> Part {
        Part {
            id: PartId::new(self.session.common.environment.fresh(PartId::PREFIX)),
            content,
        }
    }

    pub fn new_message_id(&self) -> MessageId {
        MessageId::new(self.session.common.environment.fresh(MessageId::PREFIX))
    }

    pub fn new_call_id(&self) -> CallId {
        CallId::new(self.session.common.environment.fresh(CallId::PREFIX))
    }

    pub fn now(&self) -> Timestamp {
        self.session.common.environment.now()
    }

    /// Reports the present activity to the client and to observers.
    pub async fn report_status(&self, status: Status) {
        self.publish_status(&status);
        self.event_sender.event(Event::Status(status)).await;
    }

    /// Reports the present activity to observers only.
    pub fn publish_status(&self, status: &Status) {
        self.session.recorder.events.status(status);
        if self.session.depth == 0 {
            let shown = published::status_json(status);
            self.session.common.extensions.scripts.set_status(shown);
        }
    }

    /// Notifies the user that the conversation is not stored.
    pub async fn notify_unsaved(&self, error: &store::Error) {
        if !self.session.recorder.must_notify() {
            return;
        }
        let notice = Event::Notice {
            severity: Severity::Warning,
            title: "This conversation is not being saved.".into(),
            details: Some(base::text::capitalised(&error.to_string())),
        };
        self.event_sender.event(notice).await;
    }
}
