//! Questions for the user. Each carries the way its answer comes back; dropping the receiver withdraws it.

use serde_json::Value;
use tokio::sync::oneshot;

use super::CallUpdate;
use base::id::{CallId, SessionId};
use permission::Denial;
use permission::wording::Wording;

/// A question for the user: may this call go on?
#[derive(Debug)]
pub struct PermissionRequest {
    /// The call that is waiting.
    pub call: CallId,
    /// What it wants to do, as the editor should show it.
    pub show: CallUpdate,
    pub wording: Wording,
    /// What else there is to know before an answer, a sentence each.
    pub details: Vec<String>,
    /// For a client that answers by itself: the value of `permission` in the settings that would allow it, if one
    /// can. None where somebody is there to answer.
    pub unattended: Option<Option<Value>>,
    /// What "always" would store, shown word for word; none: do not offer it.
    pub always: Option<String>,
    /// Who asks, when it is a subagent.
    pub agent: Option<String>,
    /// In which session the editor shows the call, where it is not the user's own.
    pub session: Option<SessionId>,
    /// Where the answer goes. Dropping it is a rejection; dropping the receiver withdraws the
    /// question.
    pub reply: oneshot::Sender<PermissionReply>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermissionReply {
    Once,
    /// And from now on, as far as was shown.
    Always,
    No(Denial),
}

/// A question for the user that is about no call of the model's: yes, no, or no answer at all.
#[derive(Debug)]
pub struct Confirmation {
    /// What the editor shows the question as; it has been announced.
    pub call: CallId,
    pub title: String,
    /// The facts of it, an object.
    pub facts: Value,
    /// All that the answer depends on.
    pub text: String,
    /// What the two answers are called. Yes is kept, so it is never an answer for "this once".
    pub yes: &'static str,
    pub no: &'static str,
    /// Where the answer goes. Dropping it means that there was none; dropping the receiver withdraws
    /// the question.
    pub reply: oneshot::Sender<bool>,
}

/// Questions that the model has for the user.
#[derive(Debug)]
pub struct QuestionRequest {
    /// The call that waits for the answers.
    pub call: CallId,
    pub questions: Vec<Question>,
    /// Where the answers go. Dropping it means that there is no way to show them; dropping the receiver
    /// withdraws them.
    pub reply: oneshot::Sender<QuestionReply>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// What it is about, a few words.
    pub header: String,
    pub text: String,
    /// Answers to choose from, if any. The user may always answer in other words.
    pub options: Vec<QuestionOption>,
    pub multiple: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionOption {
    /// A few words; no other option has the same.
    pub label: String,
    /// What follows from it; may be empty.
    pub description: String,
}

/// What the user said to questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionReply {
    /// To each of them: labels, words of their own, or nothing.
    Answers(Vec<Vec<String>>),
    /// Nothing: they do not want to be asked.
    Dismissed,
    /// They did not see them: their editor cannot show them.
    Unshown,
}
