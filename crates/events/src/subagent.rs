//! Subagents: their tasks, their state, and their results.

use tokio::sync::oneshot;

use super::LiveFacts;
use base::id::{CallId, SessionId};
use permission::Rules;
use transcript::{File, ModelRef};

/// The changes of a subagent's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subagent {
    pub session: SessionId,
    /// The call that started it.
    pub call: CallId,
    /// Its task; `None` if unchanged.
    pub info: Option<SubagentInfo>,
    /// Its state; `None` if unchanged or unknown.
    pub state: Option<SubagentState>,
}

/// The progress of a subagent's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubagentState {
    Working,
    /// All its work waits for the user.
    Waiting,
    Over(SubagentStop),
}

/// The task of a subagent's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubagentInfo {
    /// The task in a few words.
    pub title: String,
    /// The name of the agent, with its description.
    pub agent: String,
    /// True if the user can stop it; false for one that is only reported.
    pub is_stoppable: bool,
}

/// The reason for the end of a subagent's work, for the editor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubagentStop {
    Done,
    Cancelled,
    Refused,
    /// The answer has reached the maximum number of tokens.
    MaxTokens,
    /// The subagent has reached its limit of steps.
    StepLimit,
    /// The subagent could not continue, for this reason: a sentence.
    Failed(String),
}

/// A request to start a subagent.
#[derive(Debug)]
pub struct SpawnSubagent {
    /// The call that waits for the result.
    pub call: CallId,
    /// The facts that become known while it runs.
    pub facts: LiveFacts,
    /// The title of a call to be shown for it, if the model has made no call.
    pub shown: Option<String>,
    pub agent: String,
    /// A few words for people.
    pub description: String,
    /// The task.
    pub prompt: String,
    pub files: Vec<File>,
    /// The model to use, with priority over the agent's own.
    pub wanted: Option<ModelRef>,
    /// The id of a new child session; `None` for any.
    pub session: Option<SessionId>,
    /// An earlier child session to continue.
    pub resume: Option<SessionId>,
    /// The model for agents that have none of their own.
    pub model: ModelRef,
    /// The rules of the delegating agent. An action that they deny is denied to the subagent too.
    pub rules: Rules,
    /// The result, or the reason why it could not start.
    pub reply: oneshot::Sender<Result<SubagentReport, String>>,
}

/// The result of a subagent.
#[derive(Debug, Clone)]
pub struct SubagentReport {
    pub session: SessionId,
    pub model: ModelRef,
    /// The text of its last message; may be empty.
    pub text: String,
    /// Its calls, one line each, as far as they are shown.
    pub calls: String,
    pub end: SubagentEnd,
}

/// The reason for the end of a subagent's work, for the call that waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubagentEnd {
    Done,
    /// The user has rejected this call.
    Rejected(String),
    /// The user has cancelled the turn that waits for it.
    Cancelled,
    /// The subagent could not continue, for this reason: a sentence.
    Failed(String),
}

/// A request to switch to another agent.
#[derive(Debug)]
pub struct SwitchAgent {
    /// `plan` or `build`. The latter means the default agent if there is no agent of that name.
    pub agent: String,
    /// The name of the new agent; `None` if the agent cannot be switched.
    pub reply: oneshot::Sender<Option<String>>,
}
