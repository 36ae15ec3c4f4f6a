//! Our errors as JSON-RPC errors: the only place that knows the codes.
//!
//! The message says to a person what is wrong and what to do; `data.details` says it again, because some
//! editors show the one and some the other.

use protocol::rpc::{self, code};
use serde_json::json;

use super::meta::{HANDED_OVER, OWN};
use base::text;
use session::access::ReopenError;
use session::handle::MailboxError;
use session::open::OpenError;
use transcript::{Fault, FaultKind};

/// Why a request of the editor is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The request makes no sense as it is: what is wrong, and what would be right.
    Invalid(String),
    /// There is no such session: its id, as [`Refusal::no_session`] cuts it.
    NoSession(String),
    TooEarly,
    /// Something failed on our side or beyond: what, and what to do.
    Failed {
        message: String,
        advice: Option<String>,
    },
    /// This server is about to stop, and begins nothing new. Whoever can send it again elsewhere does.
    Leaving,
    /// It would change what belongs to the account, and who asks may not: why, and who can.
    AccountOnly(String),
    /// A key or a login is missing: which, and how to give it.
    NeedsAuth(String),
    Cancelled,
}

impl Refusal {
    /// How much of an id that was sent is said again, in characters.
    const ID: usize = 100;

    /// That there is no session of this id. It may be anything that was sent: its beginning is said again.
    pub fn no_session(id: &str) -> Self {
        Self::NoSession(id.chars().take(Self::ID).collect())
    }
}

impl From<Refusal> for rpc::Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(details) => Self::invalid_params(details),
            Refusal::NoSession(id) => {
                let message = format!("There is no session {}", text::title(&id));
                Self::new(code::NOT_FOUND, message).data(json!({ "sessionId": id }))
            }
            Refusal::TooEarly => Self::invalid_request("send initialize first"),
            Refusal::Failed { message, advice } => {
                let all = text::sentences([message.as_str(), advice.as_deref().unwrap_or_default()]);
                Self::new(code::INTERNAL, all.as_str()).details(all)
            }
            Refusal::Leaving => {
                let all = "This server is about to stop and begins no new turns. Connect again in a while.";
                let handed_over = json!({ HANDED_OVER: true });
                Self::new(code::INTERNAL, all).data(json!({ "details": all, OWN: handed_over }))
            }
            Refusal::AccountOnly(why) => Self::new(code::INVALID_REQUEST, why.as_str()).details(why),
            Refusal::NeedsAuth(words) => Self::new(code::AUTH_REQUIRED, words.as_str()).details(words),
            Refusal::Cancelled => Self::cancelled(),
        }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        match fault.kind {
            FaultKind::Auth => {
                let advice = fault.advice.unwrap_or_default();
                Self::NeedsAuth(text::sentences([fault.message.as_str(), &advice]))
            }
            _ => Self::Failed { message: fault.message, advice: fault.advice },
        }
    }
}

impl From<MailboxError> for Refusal {
    fn from(busy: MailboxError) -> Self {
        Self::Failed { message: busy.to_string(), advice: None }
    }
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Store(store::Error::NotFound(id)) => Self::no_session(id.as_str()),
            OpenError::Store(error) => Self::Failed { message: error.to_string(), advice: None },
            OpenError::Workspace { .. } => {
                Self::Failed { message: text::capitalised(&error.to_string()), advice: None }
            }
            OpenError::Elsewhere { .. } | OpenError::Held(_) | OpenError::Message(_) => {
                Self::Invalid(error.to_string())
            }
        }
    }
}

impl From<ReopenError> for Refusal {
    fn from(error: ReopenError) -> Self {
        let advice = match &error {
            ReopenError::Open(_) => None,
            ReopenError::InUse { .. } => {
                Some("Close it there, or open it here once more to take it over; what runs there is then cancelled.")
            }
            ReopenError::Kept { .. } => Some("Close it there, or end that process."),
        };
        match error {
            ReopenError::Open(error) => error.into(),
            error => Self::Failed { message: text::capitalised(&error.to_string()), advice: advice.map(Into::into) },
        }
    }
}

impl From<store::Error> for Refusal {
    fn from(error: store::Error) -> Self {
        OpenError::Store(error).into()
    }
}
