//! Failures of requests to models. Each variant exists because it is handled differently: by the
//! retry of a turn, by compaction, by the user.

use std::time::Duration;

use transcript::{Fault, FaultKind};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Too many requests; to be retried after the time that the provider states.
    #[error("{message}")]
    RateLimited {
        /// The provider's message, for display.
        message: String,
        /// The wait that the provider requests, if it states one; may be days.
        after: Option<Duration>,
    },
    /// The provider is busy or broken at the moment (5xx, overloaded).
    #[error("{message}")]
    Overloaded {
        message: String,
        /// The wait that the provider requests, if it states one; may be days.
        after: Option<Duration>,
    },
    /// The conversation exceeds the context window.
    #[error("{0}")]
    ContextOverflow(String),
    /// The model rejects an image in the conversation.
    #[error("{0}")]
    Image(String),
    /// A wrong key, a refused login, or missing rights.
    #[error("{0}")]
    Auth(String),
    /// A key, a login or a part of the address is missing, or is the editor's. The text contains
    /// the remedy.
    #[error("{0}")]
    Keyless(String),
    /// The provider's address or key is among the project's settings that the user has not trusted.
    #[error("{0}")]
    Withheld(String),
    /// The quota is exhausted; an early retry does not help.
    #[error("{0}")]
    Quota(String),
    /// The provider rejects the request.
    #[error("{0}")]
    BadRequest(String),
    /// A content filter of the provider rejected the request.
    #[error("{0}")]
    Filtered(String),
    /// The server could not be authenticated (TLS). Never retried, never downgraded.
    #[error("{0}")]
    Untrusted(String),
    /// Nothing listens at the address, which is on this machine. The text contains the remedy.
    #[error("{0}")]
    Refused(String),
    /// No connection could be made: the host is unknown, cannot be reached, or refuses.
    #[error("{0}")]
    Unreachable(String),
    /// The connection broke.
    #[error("{0}")]
    Network(String),
    /// The connection to a server of this machine broke; the text has the remedy.
    #[error("{0}")]
    LocalNetwork(String),
    /// No data arrived within the time limit.
    #[error("The model sent nothing for {}.", seconds(*.0))]
    Stalled(Duration),
    /// The answer is a page for people: of a gateway's sign-in, or of another program at this
    /// address.
    #[error("{0}")]
    WebPage(String),
    /// The answer could not be parsed, or its end was missing.
    #[error("{0}")]
    InvalidResult(String),
    /// The answer exceeded the size limits, and was not read to its end.
    #[error("{0}")]
    TooMuch(String),
}

impl Error {
    /// Returns a short name of the kind of error, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "rate_limited",
            Self::Overloaded { .. } => "overloaded",
            Self::ContextOverflow(_) => "context_overflow",
            Self::Image(_) => "image",
            Self::Auth(_) => "auth",
            Self::Keyless(_) => "no_key",
            Self::Withheld(_) => "waits_for_trust",
            Self::Quota(_) => "quota",
            Self::BadRequest(_) => "bad_request",
            Self::Filtered(_) => "content_filter",
            Self::Untrusted(_) => "untrusted_server",
            Self::Refused(_) => "connection_refused",
            Self::Unreachable(_) => "unreachable",
            Self::Network(_) | Self::LocalNetwork(_) => "network",
            Self::Stalled(_) => "timeout",
            Self::WebPage(_) => "web_page",
            Self::InvalidResult(_) => "invalid_answer",
            Self::TooMuch(_) => "answer_too_large",
        }
    }
}

impl Error {
    /// Returns whether the same request may succeed in a moment.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::RateLimited { .. }
                | Self::Overloaded { .. }
                | Self::Refused(_)
                | Self::Unreachable(_)
                | Self::Network(_)
                | Self::LocalNetwork(_)
                | Self::Stalled(_)
                | Self::InvalidResult(_)
        )
    }

    /// Returns the same error with its message rewritten by `word`.
    #[must_use]
    pub fn reworded(self, word: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::RateLimited { message, after } => Self::RateLimited {
                message: word(message),
                after,
            },
            Self::Overloaded { message, after } => Self::Overloaded {
                message: word(message),
                after,
            },
            Self::ContextOverflow(m) => Self::ContextOverflow(word(m)),
            Self::Image(m) => Self::Image(word(m)),
            Self::Auth(m) => Self::Auth(word(m)),
            Self::Keyless(m) => Self::Keyless(word(m)),
            Self::Withheld(m) => Self::Withheld(word(m)),
            Self::Quota(m) => Self::Quota(word(m)),
            Self::BadRequest(m) => Self::BadRequest(word(m)),
            Self::Filtered(m) => Self::Filtered(word(m)),
            Self::Untrusted(m) => Self::Untrusted(word(m)),
            Self::Refused(m) => Self::Refused(word(m)),
            Self::Unreachable(m) => Self::Unreachable(word(m)),
            Self::Network(m) => Self::Network(word(m)),
            Self::LocalNetwork(m) => Self::LocalNetwork(word(m)),
            Self::Stalled(limit) => Self::Stalled(limit),
            Self::WebPage(m) => Self::WebPage(word(m)),
            Self::InvalidResult(m) => Self::InvalidResult(word(m)),
            Self::TooMuch(m) => Self::TooMuch(word(m)),
        }
    }

    /// Returns the wait that the provider requests before a retry.
    pub fn after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { after, .. } | Self::Overloaded { after, .. } => *after,
            _ => None,
        }
    }

    /// Returns the failure as it is shown to the user and stored in the history.
    pub fn fault(&self) -> Fault {
        let (kind, advice) = match self {
            Self::Auth(_) => (
                FaultKind::Auth,
                "Check the key: `adjutant auth list` shows where it comes from.",
            ),
            Self::Keyless(_) => (FaultKind::Auth, ""),
            // The text has the remedy, or the provider's own reason.
            Self::Refused(_) | Self::LocalNetwork(_) | Self::Withheld(_) | Self::BadRequest(_) => {
                (FaultKind::Provider, "")
            }
            Self::ContextOverflow(_) => (
                FaultKind::ContextOverflow,
                "Start a new session, or choose a model with a larger context.",
            ),
            Self::Image(_) => (FaultKind::Image, "Choose a model that accepts images."),
            Self::Quota(_) => (
                FaultKind::Provider,
                "Check the account's plan and billing at the provider, or choose another model.",
            ),
            Self::RateLimited {
                after: Some(after), ..
            } if *after > Duration::from_secs(60) => (
                FaultKind::Provider,
                "Send the prompt again when that time is over, or choose another model.",
            ),
            Self::RateLimited { .. } => (
                FaultKind::Provider,
                "Wait a moment and send the prompt again, or choose another model.",
            ),
            Self::Overloaded { .. } | Self::Stalled(_) | Self::TooMuch(_) => (
                FaultKind::Provider,
                "Send the prompt again, or choose another model.",
            ),
            Self::Filtered(_) => (
                FaultKind::Provider,
                "Rephrase the prompt, or choose another model.",
            ),
            Self::Untrusted(_) => (
                FaultKind::Provider,
                "Check the provider's address and the clock; for a certificate of your own authority set SSL_CERT_FILE or NODE_EXTRA_CA_CERTS.",
            ),
            Self::Unreachable(_) | Self::Network(_) => (
                FaultKind::Provider,
                "Check the connection, the provider's address and the proxy settings (HTTPS_PROXY, NO_PROXY).",
            ),
            Self::WebPage(_) => (
                FaultKind::Provider,
                "Check the provider's address, and whether a gateway asks you to sign in.",
            ),
            Self::InvalidResult(_) => (
                FaultKind::Provider,
                "Check that the provider's address is a model API, then send the prompt again.",
            ),
        };
        Fault {
            kind,
            message: self.to_string(),
            advice: Some(advice.into()).filter(|advice: &String| !advice.is_empty()),
        }
    }
}

/// Formats a duration: `1 second`, `0.3 seconds`, `90 seconds`.
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
    fn only_transient_errors_are_retried() {
        let text = || "x".to_owned();
        let cases = [
            (
                Error::RateLimited {
                    message: text(),
                    after: None,
                },
                true,
            ),
            (
                Error::Overloaded {
                    message: text(),
                    after: None,
                },
                true,
            ),
            (Error::Unreachable(text()), true),
            (Error::Network(text()), true),
            (Error::Stalled(Duration::from_secs(90)), true),
            (Error::InvalidResult(text()), true),
            (Error::ContextOverflow(text()), false),
            (Error::Image(text()), false),
            (Error::Auth(text()), false),
            (Error::Quota(text()), false),
            (Error::Filtered(text()), false),
            (Error::Untrusted(text()), false),
            (Error::WebPage(text()), false),
        ];
        for (error, transient) in cases {
            assert_eq!(error.is_transient(), transient, "{error:?}");
            let fault = error.fault();
            assert!(
                !fault.message.is_empty() && fault.advice.is_some(),
                "{error:?}"
            );
        }
        // The message itself contains the remedy.
        assert_eq!(Error::Keyless(text()).fault().advice, None);
        assert_eq!(Error::Refused(text()).fault().advice, None);
        assert_eq!(Error::BadRequest(text()).fault().advice, None);
        assert_eq!(Error::LocalNetwork(text()).fault().advice, None);
        assert!(Error::Refused(text()).is_transient());
        assert!(Error::LocalNetwork(text()).is_transient());
    }
}
