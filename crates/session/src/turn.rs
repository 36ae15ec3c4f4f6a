//! The loop: one prompt to its stop. [`run::run`] repeats steps while [`next::next`] says so; a
//! step freezes what it sees ([`frame`]), asks the model ([`step`]) and makes the calls it was
//! asked for ([`call`]). What the model sees of the history is a [`view`]; when that outgrows the
//! window, [`prune`] and [`compact`] make room; what it does not see any more is [`release`]d.
//!
//! The history is moved in and comes home with the outcome: while a turn runs nobody else can
//! change it. What happens is told through the outlet, what is kept goes through the recorder,
//! and every wait ends when the turn is cancelled.

mod adopt;
pub mod budget;
pub mod call;
mod carry;
pub mod change_recorder;
pub mod compact;
pub mod digest;
pub mod doom;
pub mod frame;
pub mod hooks;
pub mod insert;
pub mod jobs;
pub mod late_changes;
pub mod later;
pub mod mend;
pub mod models;
pub mod next;
mod note;
mod permit;
mod pictures;
pub mod prune;
pub mod record;
pub mod refused_tools;
pub mod release;
pub mod remind;
pub mod request;
mod resolve;
pub mod retry;
pub mod run;
pub mod size;
pub mod step;
pub mod subtask;
pub mod tool_context;
pub mod view;
mod waiting_line;

#[cfg(test)]
pub(crate) mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::grants::Grants;
use base::approvals::Approvals;
use base::environment::{Environment, Timestamp};
use base::id::{CallId, MessageId, PartId, SessionId};
use base::lock::locked;
use base::text::mark::ReminderMark;
use base::worktree::Worktree;
use config::settings::Settings;
use events::{Event, Outlet, SessionRequestSender, Severity};
use extensions::Extensions;
use lsp::SessionServers;
use mcp::McpServers;
use permission::Rules;
use permission::account::AccountAccess;
use project::agent::registry::Agents;
use project::instruction;
use project::skill::Skills;
use project::system::Surroundings;
use snapshot::Tracker;
use store::{self, RecordChange};
use transcript::{Content, Fault, Message, ModelRef, Part};

/// How a turn ended. None of them is an error of the call that started it.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Ended,
    /// The user rejected a call without words, or one was refused again and again where nobody can be asked.
    Rejected,
    Cancelled,
    /// The model refused, or a filter did.
    Refused,
    /// The answer hit the limit of output tokens.
    MaxTokens,
    /// The agent's step limit was reached and the model still wanted more.
    StepLimit,
    /// The user said something meanwhile that the model should hear now: the turn of those words goes
    /// on from here.
    Steered,
    Failed(Fault),
}

/// What the user has chosen; read once per step.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    pub agent: String,
    /// The model it speaks with; none: the agent's, else the default.
    pub model: Option<ModelRef>,
    /// Whether what the user says while a turn runs reaches the model between two steps, instead of
    /// after the turn; none: as the settings say.
    pub steer: Option<bool>,
    /// What the settings say about that.
    pub steers: bool,
    /// How much is asked; none: as the settings say.
    pub approvals: Option<Approvals>,
    /// What the settings say about that.
    pub approves: Approvals,
}

impl Choice {
    /// Whether what the user says while a turn runs reaches the model between two steps.
    pub fn steers(&self) -> bool {
        self.steer.unwrap_or(self.steers)
    }

    /// Of an agent, with nothing else chosen.
    pub fn of(agent: &str, model: Option<ModelRef>) -> Self {
        let (agent, approves) = (agent.to_owned(), Approvals::default());
        Self { agent, model, steer: None, steers: false, approvals: None, approves }
    }

    /// As chosen in the session, else as the settings have it.
    pub fn approvals(&self) -> Approvals {
        self.approvals.unwrap_or(self.approves)
    }

    pub fn kept(&self) -> RecordChange {
        let (agent, model) = (self.agent.clone(), self.model.clone());
        RecordChange::Choice { agent, model, steer: self.steer, approvals: self.approvals }
    }
}

/// A session's messages, oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    pub messages: Vec<Message>,
    /// What was spent on turns that are not among them any more, in US dollars.
    pub undone_cost: Option<f64>,
    /// So many at the beginning lack the results of their calls: no model sees those any more.
    pub cold: usize,
}

/// What the system prompt says about the session, whoever speaks. Read once, so that the prompt does
/// not change under a provider's cache.
#[derive(Debug, Clone)]
pub struct Background {
    pub surroundings: Surroundings,
    /// Further directories: name, path, description.
    pub references: Vec<(String, String, String)>,
    pub instructions: Vec<instruction::InstructionText>,
    pub skills: Arc<Skills>,
}

/// Everything of a session that a turn may use.
#[derive(Clone)]
pub struct TurnContext {
    pub session: SessionId,
    /// What the notes to its model carry.
    pub mark: ReminderMark,
    pub environment: Environment,
    pub project: Workspace,
    pub permissions: Permissions,
    /// What lives as long as it is open.
    pub resources: SessionResources,
    pub choice: watch::Receiver<Choice>,
    /// The editor shows the sessions of subagents as sessions.
    pub exposed: bool,
    /// What the editor adds to the system prompt, as long as the session is open.
    pub words: Option<Arc<str>>,
    /// How many sessions have delegated on the way here: 0 for the user's own.
    pub depth: u32,
    pub record: record::Recorder,
    pub cancelled: CancellationToken,
    /// Ends when the turn is to end at its next step, because the process is about to.
    pub leaving: CancellationToken,
    /// Whether the user has said something that the model should hear before its next step.
    pub spoken: watch::Receiver<bool>,
    pub outlet: Outlet,
    /// What the turn asks of its session.
    pub session_requests: SessionRequestSender,
    /// What subagents have cost and no message counts yet.
    pub spent: Arc<Spent>,
    /// What subagents have changed and no step says yet.
    pub child_changes: Arc<late_changes::ChildChanges>,
    /// The same of the session that this one is a subagent's of.
    pub parent_changes: Option<Arc<late_changes::ChildChanges>>,
    /// What the turn may cost, with everybody it sets to work.
    pub budget: Arc<budget::TurnBudget>,
}

/// What a session works on. It changes when a file of the configuration does, between two turns.
#[derive(Clone)]
pub struct Workspace {
    pub cwd: PathBuf,
    pub roots: Arc<[PathBuf]>,
    pub worktree: Arc<Worktree>,
    pub settings: Arc<Settings>,
    pub agents: Arc<Agents>,
    /// The files that say so, as they were read.
    pub read: Arc<later::SettingsRead>,
    pub models: models::Models,
    pub tools: Arc<tools::registry::ToolRegistry>,
    /// What the system prompt says about the session, whoever speaks.
    pub background: Arc<Background>,
}

/// What a session may do, beside its agent's rules.
#[derive(Clone)]
pub struct Permissions {
    pub grants: Arc<Grants>,
    /// What those who delegated may not do; nor may anyone here.
    pub inherited: Rules,
    /// What the system can forbid commands, and whether the user was told.
    pub confinement: tools::confinement::Confinement,
    /// Somebody is there to answer questions.
    pub attended: bool,
    /// Whether they may change what belongs to the account.
    pub account: AccountAccess,
    /// The choice of the session the user speaks with: how much is asked, also by subagents.
    pub chosen: watch::Receiver<Choice>,
}

/// What lives as long as a session is open.
#[derive(Clone)]
pub struct SessionResources {
    pub servers: Arc<McpServers>,
    /// What users and projects hook into it.
    pub extensions: Arc<Extensions>,
    /// Which files the model has seen.
    pub seen: Arc<tools::seen::SeenFiles>,
    pub todos: Arc<tools::todos::Todos>,
    pub jobs: Arc<tools::jobs::Jobs>,
    /// Which formatters the user was told of.
    pub formatters: Arc<tools::format::ToldFormatters>,
    pub language: Arc<SessionServers>,
    /// What the editor offers for files.
    pub files: tools::FileCapabilities,
    /// What stands before each command, where a host wants that.
    pub exec: Arc<[String]>,
    /// Keeps what becomes of the files, where the settings want it.
    pub snapshots: Option<Arc<Tracker>>,
    /// What steps left running in the background, as far as it may still change files.
    pub late_changes: Arc<late_changes::LateChanges>,
    /// The tools that providers have refused.
    pub refused_tools: Arc<refused_tools::RefusedTools>,
}

/// US dollars on their way into a message. A std mutex: a leaf around a number.
#[derive(Debug, Default)]
pub struct Spent(Mutex<Option<f64>>);

impl Spent {
    pub fn add(&self, dollars: f64) {
        let mut spent = locked(&self.0);
        *spent = Some(spent.unwrap_or_default() + dollars);
    }

    pub fn take(&self) -> Option<f64> {
        locked(&self.0).take()
    }
}

/// Without the noise that sums of fractions leave: to the billionth of a dollar.
pub(crate) fn rounded(dollars: f64) -> f64 {
    (dollars * 1e9).round() / 1e9
}

/// The sum of what is known.
pub fn sum(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(|a, b| a + b)
}

/// What some messages cost, in US dollars; none where no price is known.
pub fn cost(messages: &[Message]) -> Option<f64> {
    messages.iter().filter_map(|m| m.assistant()?.cost).reduce(|a, b| a + b)
}

impl From<Vec<Message>> for History {
    fn from(messages: Vec<Message>) -> Self {
        Self { messages, undone_cost: None, cold: 0 }
    }
}

impl History {
    /// US dollars so far, subagents included; none where no price is known.
    pub fn cost(&self) -> Option<f64> {
        sum(self.undone_cost, cost(&self.messages)).map(rounded)
    }
}

impl TurnContext {
    /// Whether a turn goes on after a call was rejected without words: where the user wants that, and is there.
    pub fn goes_on_after_rejection(&self) -> bool {
        self.permissions.attended && self.project.settings.experimental.continue_loop_on_deny
    }

    pub fn part(&self, content: Content) -> Part {
        Part { id: PartId::new(self.environment.fresh(PartId::PREFIX)), content }
    }

    pub fn message_id(&self) -> MessageId {
        MessageId::new(self.environment.fresh(MessageId::PREFIX))
    }

    pub fn call_id(&self) -> CallId {
        CallId::new(self.environment.fresh(CallId::PREFIX))
    }

    pub fn now(&self) -> Timestamp {
        self.environment.now()
    }

    /// Tells the user that nothing of this is kept.
    pub async fn unsaved(&self, error: &store::Error) {
        if !self.record.tell() {
            return;
        }
        let notice = Event::Notice {
            severity: Severity::Warning,
            title: "This conversation is not being saved.".into(),
            details: Some(error.to_string()),
        };
        self.outlet.event(notice).await;
    }
}
