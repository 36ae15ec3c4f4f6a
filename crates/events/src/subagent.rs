//! Subagents: the work they are given, what is heard of it, what they come back with.

use tokio::sync::oneshot;

use super::LiveFacts;
use base::id::{CallId, SessionId};
use permission::Rules;
use transcript::{File, ModelRef};

/// A subagent's session, as far as it is news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subagent {
    pub session: SessionId,
    /// The call that set it to work.
    pub call: CallId,
    /// What it is for: none says nothing new.
    pub about: Option<SubagentInfo>,
    /// What it does: none says nothing new, or that nobody knows.
    pub state: Option<SubagentState>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubagentState {
    Working,
    /// All its work waits for the user.
    Waiting,
    Over(SubagentStop),
}

/// What a subagent's session is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubagentInfo {
    /// Its work, in a few words.
    pub title: String,
    /// Who does it, and what they are good for.
    pub agent: String,
    /// The user may stop it. Nobody can stop what is only told of.
    pub stoppable: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubagentStop {
    Done,
    Cancelled,
    Refused,
    /// The answer hit its limit.
    MaxTokens,
    /// It reached its limit of steps.
    StepLimit,
    /// It could not go on, for this reason: a sentence.
    Failed(String),
}

#[derive(Debug)]
pub struct SpawnSubagent {
    /// The call that waits for the result.
    pub call: CallId,
    /// What becomes known of it.
    pub facts: LiveFacts,
    /// The title of a call that is shown for it where the model has made none.
    pub shown: Option<String>,
    pub agent: String,
    /// A few words for people.
    pub description: String,
    /// What it is to do.
    pub prompt: String,
    pub files: Vec<File>,
    /// The model it is to use, before the agent's own.
    pub wanted: Option<ModelRef>,
    /// The id of a new child session; none: any.
    pub session: Option<SessionId>,
    /// An earlier child session to go on with.
    pub resume: Option<SessionId>,
    /// The model, for agents that name none.
    pub model: ModelRef,
    /// The rules of whoever delegates: what they deny, the subagent may not do either.
    pub rules: Rules,
    /// What became of it, or why it could not begin.
    pub reply: oneshot::Sender<Result<SubagentReport, String>>,
}

/// What a subagent came back with.
#[derive(Debug, Clone)]
pub struct SubagentReport {
    pub session: SessionId,
    pub model: ModelRef,
    /// Its last words; may be empty.
    pub text: String,
    /// Its calls, one line each, as far as they are shown.
    pub calls: String,
    pub end: SubagentEnd,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubagentEnd {
    Done,
    /// The user rejected a call of it, named here.
    Rejected(String),
    /// The user cancelled the turn that waits for it.
    Cancelled,
    /// It could not go on, for this reason: a sentence.
    Failed(String),
}

/// Another agent is to speak.
#[derive(Debug)]
pub struct SwitchAgent {
    /// `plan`, or `build`, which stands for the default agent where there is none of that name.
    pub agent: String,
    /// Who it will be; none where it cannot be changed.
    pub reply: oneshot::Sender<Option<String>>,
}
