//! [`RequestError`], the reason why a client's request fails, and its conversion to a JSON-RPC error. This
//! is the only module that knows the error codes.
//!
//! The message states the problem and the remedy. `data.details` repeats it, because some editors show
//! only the one and some only the other.

use protocol::rpc::{self, code};
use serde_json::json;

use super::meta::{HANDED_OVER, IN_USE, META_KEY};
use base::text;
use session::access::ReopenError;
use session::handle::MailboxError;
use session::open::OpenError;
use transcript::{Fault, FaultKind};

/// The advice about a session that another process has open.
pub const TAKE_OVER: &str =
    "Close it there, or open it here once more to take it over; what runs there is then cancelled.";

/// The reason why a request of the client fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestError {
    /// The parameters are invalid: the reason, and the valid ones.
    Invalid(String),
    /// The session cannot be opened at the moment, because another part of this process has it: the
    /// reason. The client can send the request again.
    InUse(String),
    /// There is no session with this id, which [`RequestError::session_not_found`] has cut.
    NoSession(String),
    /// The client has not sent `initialize` yet.
    NotInitialized,
    /// Adjutant or another service has failed.
    Failed {
        message: String,
        /// The remedy, if there is one.
        advice: Option<String>,
    },
    /// This server is about to stop and begins no new turns. The client can send the request to
    /// another one.
    ShuttingDown,
    /// The user of this connection may not do that, or the settings forbid it: the reason, and the
    /// person or setting that can change it.
    Forbidden(String),
    /// A key or a login is missing: its name, and the way to provide it.
    NeedsAuth(String),
    /// The client has cancelled the request.
    Cancelled,
}

impl RequestError {
    /// The maximum length of an id in an error, in characters.
    const MAX_ID_CHARS: usize = 100;

    /// Returns the error for an unknown session. The id may be any string that the client sent, so it
    /// is cut.
    pub fn session_not_found(id: &str) -> Self {
        Self::NoSession(id.chars().take(Self::MAX_ID_CHARS).collect())
    }
}

impl From<RequestError> for rpc::Error {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Invalid(details) => Self::invalid_params(details),
            RequestError::InUse(details) => {
                let in_use = json!({ IN_USE: true });
                Self::invalid_params(details.as_str())
                    .data(json!({ "details": details, META_KEY: in_use }))
            }
            RequestError::NoSession(id) => {
                let message = format!("There is no session {}", text::title(&id));
                Self::new(code::NOT_FOUND, message).data(json!({ "sessionId": id }))
            }
            RequestError::NotInitialized => Self::invalid_request("send initialize first"),
            RequestError::Failed { message, advice } => {
                let details =
                    text::sentences([message.as_str(), advice.as_deref().unwrap_or_default()]);
                Self::new(code::INTERNAL, details.as_str()).details(details)
            }
            RequestError::ShuttingDown => {
                let details =
                    "This server is about to stop and begins no new turns. Connect again later.";
                let handed_over = json!({ HANDED_OVER: true });
                Self::new(code::INTERNAL, details)
                    .data(json!({ "details": details, META_KEY: handed_over }))
            }
            RequestError::Forbidden(why) => {
                Self::new(code::INVALID_REQUEST, why.as_str()).details(why)
            }
            RequestError::NeedsAuth(why) => {
                Self::new(code::AUTH_REQUIRED, why.as_str()).details(why)
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
    fn from(error: MailboxError) -> Self {
        Self::Failed {
            message: error.to_string(),
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
            ReopenError::Open(OpenError::InUse(_)) => Self::InUse(error.to_string()),
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
