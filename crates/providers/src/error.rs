//! How asking a model fails. Each variant exists because someone acts differently on it: the retry
//! in `turn/retry.rs`, compaction, the user.

use std::time::Duration;

use transcript::{Fault, FaultKind};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Too many requests; try again after the time the provider named.
    #[error("{message}")]
    RateLimited {
        /// What the provider said, for a person.
        message: String,
        /// How long it asks to wait, where it said so; may be days.
        after: Option<Duration>,
    },
    /// The provider is busy or broken at the moment (5xx, overloaded).
    #[error("{message}")]
    Overloaded {
        message: String,
        /// How long it asks to wait, where it said so; may be days.
        after: Option<Duration>,
    },
    /// The conversation does not fit.
    #[error("{0}")]
    ContextOverflow(String),
    /// A picture in the conversation is not taken.
    #[error("{0}")]
    Picture(String),
    /// A wrong key, a refused login, no rights.
    #[error("{0}")]
    Auth(String),
    /// Nothing was sent, for a key, a login or a part of the address is missing. Says what to do.
    #[error("{0}")]
    Keyless(String),
    /// The quota is used up; trying again soon does not help.
    #[error("{0}")]
    Quota(String),
    /// The provider will not take this request.
    #[error("{0}")]
    BadRequest(String),
    /// A filter at the provider will not let this pass.
    #[error("{0}")]
    Filtered(String),
    /// The other end could not prove who it is (TLS). Never tried again, never downgraded.
    #[error("{0}")]
    Untrusted(String),
    /// The connection could not be made, or broke.
    #[error("{0}")]
    Network(String),
    /// Nothing came for too long.
    #[error("The model sent nothing for {}.", seconds(*.0))]
    Stalled(Duration),
    /// What came could not be understood, or the end was missing.
    #[error("{0}")]
    Garbled(String),
    /// The answer has outgrown what an answer may be, and was not read to its end.
    #[error("{0}")]
    TooMuch(String),
}

impl Error {
    /// Whether the same request may succeed in a moment.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::RateLimited { .. } | Self::Overloaded { .. } | Self::Network(_) | Self::Stalled(_) | Self::Garbled(_)
        )
    }

    /// The same failure in other words.
    #[must_use]
    pub fn reworded(self, word: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::RateLimited { message, after } => Self::RateLimited { message: word(message), after },
            Self::Overloaded { message, after } => Self::Overloaded { message: word(message), after },
            Self::ContextOverflow(m) => Self::ContextOverflow(word(m)),
            Self::Picture(m) => Self::Picture(word(m)),
            Self::Auth(m) => Self::Auth(word(m)),
            Self::Keyless(m) => Self::Keyless(word(m)),
            Self::Quota(m) => Self::Quota(word(m)),
            Self::BadRequest(m) => Self::BadRequest(word(m)),
            Self::Filtered(m) => Self::Filtered(word(m)),
            Self::Untrusted(m) => Self::Untrusted(word(m)),
            Self::Network(m) => Self::Network(word(m)),
            Self::Stalled(limit) => Self::Stalled(limit),
            Self::Garbled(m) => Self::Garbled(word(m)),
            Self::TooMuch(m) => Self::TooMuch(word(m)),
        }
    }

    /// When the provider wants to be asked again.
    pub fn after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { after, .. } | Self::Overloaded { after, .. } => *after,
            _ => None,
        }
    }

    /// The failure as the user and the history get it.
    pub fn fault(&self) -> Fault {
        let (kind, advice) = match self {
            Self::Auth(_) => {
                (FaultKind::Auth, "Check the provider's key in its environment variable or the configuration.")
            }
            Self::Keyless(_) => (FaultKind::Auth, ""),
            Self::ContextOverflow(_) => {
                (FaultKind::ContextOverflow, "Start a new session, or choose a model with a larger context.")
            }
            Self::Picture(_) => (FaultKind::Picture, "Choose a model that sees pictures."),
            Self::Quota(_) => {
                (FaultKind::Provider, "Check the account's plan and billing at the provider, or choose another model.")
            }
            Self::RateLimited { after: Some(after), .. } if *after > Duration::from_secs(60) => {
                (FaultKind::Provider, "Send the prompt again when that time is over, or choose another model.")
            }
            Self::RateLimited { .. } => {
                (FaultKind::Provider, "Wait a moment and send the prompt again, or choose another model.")
            }
            Self::Overloaded { .. } | Self::Stalled(_) | Self::TooMuch(_) => {
                (FaultKind::Provider, "Send the prompt again, or choose another model.")
            }
            Self::BadRequest(_) => (FaultKind::Provider, "Check the model's name and options in the configuration."),
            Self::Filtered(_) => (FaultKind::Provider, "Rephrase the prompt, or choose another model."),
            Self::Untrusted(_) => (
                FaultKind::Provider,
                "Check the provider's address and the clock; for a certificate of your own authority set SSL_CERT_FILE or NODE_EXTRA_CA_CERTS.",
            ),
            Self::Network(_) => (
                FaultKind::Provider,
                "Check the connection, the provider's address and the proxy settings (HTTPS_PROXY, NO_PROXY).",
            ),
            Self::Garbled(_) => {
                (FaultKind::Provider, "Check that the provider's address is a model API, then send the prompt again.")
            }
        };
        Fault {
            kind,
            message: self.to_string(),
            advice: Some(advice.into()).filter(|advice: &String| !advice.is_empty()),
        }
    }
}

/// `1 second`, `0.3 seconds`, `90 seconds`.
fn seconds(time: Duration) -> String {
    let text = format!("{:.1}", time.as_secs_f64());
    match text.trim_end_matches(".0") {
        "1" => "1 second".to_owned(),
        text => format!("{text} seconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let text = || "x".to_owned();
        let cases = [
            (Error::RateLimited { message: text(), after: None }, true),
            (Error::Overloaded { message: text(), after: None }, true),
            (Error::Network(text()), true),
            (Error::Stalled(Duration::from_secs(90)), true),
            (Error::Garbled(text()), true),
            (Error::ContextOverflow(text()), false),
            (Error::Picture(text()), false),
            (Error::Auth(text()), false),
            (Error::Quota(text()), false),
            (Error::BadRequest(text()), false),
            (Error::Filtered(text()), false),
            (Error::Untrusted(text()), false),
        ];
        for (error, transient) in cases {
            assert_eq!(error.is_transient(), transient, "{error:?}");
            let fault = error.fault();
            assert!(!fault.message.is_empty() && fault.advice.is_some(), "{error:?}");
        }
        // It says itself what to do.
        assert_eq!(Error::Keyless(text()).fault().advice, None);
    }
}
