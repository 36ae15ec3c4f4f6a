//! Errors as JSON-RPC errors: the only module that knows the codes.
//!
//! The message states the problem and the remedy. `data.details` repeats it, because some editors
//! show only the one and some only the other.

use protocol::rpc::{self, code};
use serde_json::json;

use super::meta::{HANDED_OVER, META_KEY};
use base::text;
use session::access::ReopenError;
use session::handle::MailboxError;
use session::open::OpenError;
use transcript::{Fault, FaultKind};

/// The advice about a session that another process has open.
pub const TAKE_OVER: &str =
    "Close it there, or open it here once more to take it over; what runs there is then cancelled.";

/// The reason why a request of the client is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestError {
    /// Invalid params: the problem, and the accepted form.
    Invalid(String),
    /// There is no session with this id, as [`RequestError::session_not_found`] cuts it.
    NoSession(String),
    TooEarly,
    /// An internal failure, or one of another service: the message, and the remedy.
    Failed {
        message: String,
        advice: Option<String>,
    },
    /// This server is about to stop and begins no new turns. The client can send the request to
    /// another one.
    Leaving,
    /// The user of this connection may not do that, or the settings forbid it: the reason, and who
    /// may change that.
    Forbidden(String),
    /// A key or a login is missing: which one, and the way to provide it.
    NeedsAuth(String),
    Cancelled,
}

impl RequestError {
    /// The maximum length of an id in an error, in characters.
    const ID: usize = 100;

    /// Returns the refusal for an unknown session. The id may be any string that the client sent,
    /// so it is cut.
    pub fn session_not_found(id: &str) -> Self {
        Self::NoSession(id.chars().take(Self::ID).collect())
    }
}

impl From<RequestError> for rpc::Error {
    fn from(refusal: RequestError) -> Self {
        match refusal {
            RequestError::Invalid(details) => Self::invalid_params(details),
            RequestError::NoSession(id) => {
                let message = format!("There is no session {}", text::title(&id));
                Self::new(code::NOT_FOUND, message).data(json!({ "sessionId": id }))
            }
            RequestError::TooEarly => Self::invalid_request("send initialize first"),
            RequestError::Failed { message, advice } => {
                let all =
                    text::sentences([message.as_str(), advice.as_deref().unwrap_or_default()]);
                Self::new(code::INTERNAL, all.as_str()).details(all)
            }
            RequestError::Leaving => {
                let all =
                    "This server is about to stop and begins no new turns. Connect again later.";
                let handed_over = json!({ HANDED_OVER: true });
                Self::new(code::INTERNAL, all)
                    .data(json!({ "details": all, META_KEY: handed_over }))
            }
            RequestError::Forbidden(why) => {
                Self::new(code::INVALID_REQUEST, why.as_str()).details(why)
            }
            RequestError::NeedsAuth(words) => {
                Self::new(code::AUTH_REQUIRED, words.as_str()).details(words)
            }
            RequestError::Cancelled => Self::cancelled(),
        }
    }
}

impl From<Fault> for RequestError {
    fn from(fault: Fault) -> Self {
        match fault.kind {
            FaultKind::Auth => {
                let advice = fault.advice.unwrap_or_default();
                Self::NeedsAuth(text::sentences([fault.message.as_str(), &advice]))
            }
            _ => Self::Failed {
                message: fault.message,
                advice: fault.advice,
            },
        }
    }
}

impl From<MailboxError> for RequestError {
    fn from(busy: MailboxError) -> Self {
        Self::Failed {
            message: busy.to_string(),
            advice: None,
        }
    }
}

impl From<OpenError> for RequestError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Store(store::Error::NotFound(id)) => Self::session_not_found(id.as_str()),
            OpenError::Store(error) => Self::Failed {
                message: error.to_string(),
                advice: None,
            },
            OpenError::Workspace { .. } => Self::Failed {
                message: text::capitalised(&error.to_string()),
                advice: None,
            },
            OpenError::OtherDirectory { .. } | OpenError::InUse(_) | OpenError::Message(_) => {
                Self::Invalid(error.to_string())
            }
        }
    }
}

impl From<ReopenError> for RequestError {
    fn from(error: ReopenError) -> Self {
        let advice = match &error {
            ReopenError::Open(_) => None,
            ReopenError::InUse { .. } => Some(TAKE_OVER),
            ReopenError::NotReleased { .. } => Some("Close it there, or end that process."),
        };
        match error {
            ReopenError::Open(error) => error.into(),
            error => Self::Failed {
                message: text::capitalised(&error.to_string()),
                advice: advice.map(Into::into),
            },
        }
    }
}

impl From<store::Error> for RequestError {
    fn from(error: store::Error) -> Self {
        OpenError::Store(error).into()
    }
}
