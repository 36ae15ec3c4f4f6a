//! Questions for the user. Each carries the sender of its answer; dropping the receiver withdraws
//! the question.

use serde_json::Value;
use tokio::sync::oneshot;

use super::CallUpdate;
use base::id::{CallId, SessionId};
use permission::Denial;
use permission::wording::QuestionWording;
use transcript::Change;

/// A question for the user whether a call may continue.
#[derive(Debug)]
pub struct PermissionRequest {
    /// The waiting call.
    pub call: CallId,
    /// The call as the editor should show it.
    pub show: CallUpdate,
    pub wording: QuestionWording,
    /// Further facts that matter for the answer, a sentence each.
    pub details: Vec<String>,
    /// The sandbox of a command.
    pub sandbox: Option<SandboxFacts>,
    /// `None` if a user can answer. For a client that answers automatically, the value of
    /// `permission` in the settings that would allow the call; `Some(None)` if none would.
    pub unattended: Option<Option<Value>>,
    /// The rules that "always" would store, shown verbatim; `None` if it is not offered.
    pub always: Option<OfferedGrant>,
    /// The reason why "always" is not offered, for a user who asks for it.
    pub why_not_always: Option<String>,
    /// The agent that asks, if it is a subagent.
    pub agent: Option<String>,
    /// The session in which the editor shows the call, if it is not the user's own.
    pub session: Option<SessionId>,
    /// The sender of the answer. Dropping it is a rejection; dropping the receiver withdraws the
    /// question.
    pub reply: oneshot::Sender<PermissionReply>,
}

/// The sandbox of a command that a user is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxFacts {
    /// The restrictions in force.
    pub restrictions: String,
    /// The effects that it permits, in a few words.
    pub effect: Option<String>,
}

/// The grant that "always" would store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedGrant {
    /// Its rules, for people.
    pub text: String,
    /// Its permissions, each once.
    pub permissions: Vec<String>,
    /// The agent that gets it.
    pub agent: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermissionReply {
    Once,
    /// Allowed, from now on too, as far as was shown.
    Always,
    No(Denial),
}

/// A yes/no question for the user that does not concern a call of the model; it may remain
/// unanswered.
#[derive(Debug)]
pub struct Confirmation {
    /// The call as which the editor shows the question; it has been announced.
    pub call: CallId,
    pub title: String,
    /// Facts on the question, an object.
    pub facts: Value,
    /// All that the answer depends on.
    pub text: String,
    /// The changes of files to show with it.
    pub changes: Vec<Change>,
    /// The label of yes. That answer is stored, so the label never means "this once".
    pub yes: &'static str,
    /// The label of no.
    pub no: &'static str,
    /// The sender of the answer. Dropping it means that there was no answer; dropping the receiver
    /// withdraws the question.
    pub reply: oneshot::Sender<bool>,
}

/// Questions of the model for the user.
#[derive(Debug)]
pub struct QuestionRequest {
    /// The call that waits for the answers.
    pub call: CallId,
    pub questions: Vec<Question>,
    /// The sender of the answers. Dropping it means that the questions cannot be shown; dropping
    /// the receiver withdraws them.
    pub reply: oneshot::Sender<QuestionReply>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The subject, in a few words.
    pub header: String,
    pub text: String,
    /// Answers to choose from, if any. The user may always answer freely.
    pub options: Vec<QuestionOption>,
    /// True if the user may choose several options.
    pub multiple: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionOption {
    /// A few words; unique among the options.
    pub label: String,
    /// The consequence of the choice; may be empty.
    pub description: String,
}

/// The user's answers to questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionReply {
    /// The answers to each question: labels, free text, or nothing.
    Answers(Vec<Vec<String>>),
    /// No answer: the user does not want to be asked.
    Dismissed,
    /// Not shown, because the editor cannot.
    Unshown,
}
