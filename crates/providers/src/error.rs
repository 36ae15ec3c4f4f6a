//! Failures of requests to models ([`Error`]). The variants differ in the reaction: whether a turn
//! retries the request, compacts the conversation or drops an image, and what the user can do.
//! The payload is the message for the user.

use std::time::Duration;

use transcript::{Fault, FaultKind};

/// A failed request to a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Too many requests; retried after the time that the provider states.
    #[error("{message}")]
    RateLimited {
        message: String,
        /// The wait that the provider requests; `None` if it states none. May be days.
        retry_after: Option<Duration>,
    },
    /// The provider is busy or broken at the moment (5xx, overloaded).
    #[error("{message}")]
    Overloaded {
        message: String,
        /// The wait that the provider requests; `None` if it states none. May be days.
        retry_after: Option<Duration>,
    },
    /// The conversation exceeds the context window.
    #[error("{0}")]
    ContextOverflow(String),
    /// The model rejects an image in the conversation.
    #[error("{0}")]
    ImageRejected(String),
    /// A wrong key, a refused login, or missing rights.
    #[error("{0}")]
    Auth(String),
    /// A key, a login or a part of the address is missing; or the editor has set the key, and the
    /// provider refuses it. The text contains the remedy.
    #[error("{0}")]
    NoKey(String),
    /// The provider's address or key may be in the project's settings, which are not used until the
    /// user trusts the project.
    #[error("{0}")]
    WaitsForTrust(String),
    /// The quota is exhausted; an early retry does not help.
    #[error("{0}")]
    Quota(String),
    /// The provider rejects the request.
    #[error("{0}")]
    BadRequest(String),
    /// A content filter of the provider rejected the request.
    #[error("{0}")]
    ContentFiltered(String),
    /// The server could not be authenticated (TLS). Never retried, never downgraded.
    #[error("{0}")]
    UntrustedServer(String),
    /// No server listens at the address, which is on this machine. The text contains the remedy.
    #[error("{0}")]
    ConnectionRefused(String),
    /// No connection could be made: the host is unknown, cannot be reached, or refuses.
    #[error("{0}")]
    Unreachable(String),
    /// The connection broke.
    #[error("{0}")]
    Network(String),
    /// The connection to a server on this machine broke. The text contains the remedy.
    #[error("{0}")]
    LocalNetwork(String),
    /// No data arrived within the time limit.
    #[error("The model sent nothing for {}.", seconds(*.0))]
    Timeout(Duration),
    /// The answer is a web page: the sign-in of a gateway, or the page of another program at this
    /// address.
    #[error("{0}")]
    WebPage(String),
    /// The answer could not be parsed, or its end was missing.
    #[error("{0}")]
    InvalidAnswer(String),
    /// The answer exceeded the size limits, and was not read to its end.
    #[error("{0}")]
    AnswerTooLarge(String),
}

impl Error {
    /// Returns the name of the kind of error, as programs see it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "rate_limited",
            Self::Overloaded { .. } => "overloaded",
            Self::ContextOverflow(_) => "context_overflow",
            Self::ImageRejected(_) => "image",
            Self::Auth(_) => "auth",
            Self::NoKey(_) => "no_key",
            Self::WaitsForTrust(_) => "waits_for_trust",
            Self::Quota(_) => "quota",
            Self::BadRequest(_) => "bad_request",
            Self::ContentFiltered(_) => "content_filter",
            Self::UntrustedServer(_) => "untrusted_server",
            Self::ConnectionRefused(_) => "connection_refused",
            Self::Unreachable(_) => "unreachable",
            Self::Network(_) | Self::LocalNetwork(_) => "network",
            Self::Timeout(_) => "timeout",
            Self::WebPage(_) => "web_page",
            Self::InvalidAnswer(_) => "invalid_answer",
            Self::AnswerTooLarge(_) => "answer_too_large",
        }
    }

    /// True if the same request may succeed in a moment.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::RateLimited { .. }
                | Self::Overloaded { .. }
                | Self::ConnectionRefused(_)
                | Self::Unreachable(_)
                | Self::Network(_)
                | Self::LocalNetwork(_)
                | Self::Timeout(_)
                | Self::InvalidAnswer(_)
        )
    }

    /// Returns the same error with its message rewritten by `rewrite`.
    #[must_use]
    pub fn map_message(self, rewrite: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::RateLimited {
                message,
                retry_after,
            } => Self::RateLimited {
                message: rewrite(message),
                retry_after,
            },
            Self::Overloaded {
                message,
                retry_after,
            } => Self::Overloaded {
                message: rewrite(message),
                retry_after,
            },
            Self::ContextOverflow(m) => Self::ContextOverflow(rewrite(m)),
            Self::ImageRejected(m) => Self::ImageRejected(rewrite(m)),
            Self::Auth(m) => Self::Auth(rewrite(m)),
            Self::NoKey(m) => Self::NoKey(rewrite(m)),
            Self::WaitsForTrust(m) => Self::WaitsForTrust(rewrite(m)),
            Self::Quota(m) => Self::Quota(rewrite(m)),
            Self::BadRequest(m) => Self::BadRequest(rewrite(m)),
            Self::ContentFiltered(m) => Self::ContentFiltered(rewrite(m)),
            Self::UntrustedServer(m) => Self::UntrustedServer(rewrite(m)),
            Self::ConnectionRefused(m) => Self::ConnectionRefused(rewrite(m)),
            Self::Unreachable(m) => Self::Unreachable(rewrite(m)),
            Self::Network(m) => Self::Network(rewrite(m)),
            Self::LocalNetwork(m) => Self::LocalNetwork(rewrite(m)),
            Self::Timeout(limit) => Self::Timeout(limit),
            Self::WebPage(m) => Self::WebPage(rewrite(m)),
            Self::InvalidAnswer(m) => Self::InvalidAnswer(rewrite(m)),
            Self::AnswerTooLarge(m) => Self::AnswerTooLarge(rewrite(m)),
        }
    }

    /// Returns the wait that the provider requests before a retry; `None` if it states none.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. } | Self::Overloaded { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }

    /// Returns the failure as it is shown to the user and stored in the history, with advice unless
    /// the message contains the remedy.
    pub fn fault(&self) -> Fault {
        let (kind, advice) = match self {
            Self::Auth(_) => (
                FaultKind::Auth,
                "Check the key: `adjutant auth list` shows where it comes from.",
            ),
            Self::NoKey(_) => (FaultKind::Auth, ""),
            // The text has the remedy, or the provider's own reason.
            Self::ConnectionRefused(_)
            | Self::LocalNetwork(_)
            | Self::WaitsForTrust(_)
            | Self::BadRequest(_) => (FaultKind::Provider, ""),
            Self::ContextOverflow(_) => (
                FaultKind::ContextOverflow,
                "Start a new session, or choose a model with a larger context.",
            ),
            Self::ImageRejected(_) => (FaultKind::Image, "Choose a model that accepts images."),
            Self::Quota(_) => (
                FaultKind::Provider,
                "Check the account's plan and billing at the provider, or choose another model.",
            ),
            Self::RateLimited {
                retry_after: Some(wait),
                ..
            } if *wait > Duration::from_secs(60) => (
                FaultKind::Provider,
                "Send the prompt again when that time is over, or choose another model.",
            ),
            Self::RateLimited { .. } => (
                FaultKind::Provider,
                "Wait a moment and send the prompt again, or choose another model.",
            ),
            Self::Overloaded { .. } | Self::Timeout(_) | Self::AnswerTooLarge(_) => (
                FaultKind::Provider,
                "Send the prompt again, or choose another model.",
            ),
            Self::ContentFiltered(_) => (
                FaultKind::Provider,
                "Rephrase the prompt, or choose another model.",
            ),
            Self::UntrustedServer(_) => (
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
            Self::InvalidAnswer(_) => (
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
                    retry_after: None,
                },
                true,
            ),
            (
                Error::Overloaded {
                    message: text(),
                    retry_after: None,
                },
                true,
            ),
            (Error::Unreachable(text()), true),
            (Error::Network(text()), true),
            (Error::Timeout(Duration::from_secs(90)), true),
            (Error::InvalidAnswer(text()), true),
            (Error::ContextOverflow(text()), false),
            (Error::ImageRejected(text()), false),
            (Error::Auth(text()), false),
            (Error::Quota(text()), false),
            (Error::ContentFiltered(text()), false),
            (Error::UntrustedServer(text()), false),
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
        assert_eq!(Error::NoKey(text()).fault().advice, None);
        assert_eq!(Error::ConnectionRefused(text()).fault().advice, None);
        assert_eq!(Error::BadRequest(text()).fault().advice, None);
        assert_eq!(Error::LocalNetwork(text()).fault().advice, None);
        assert!(Error::ConnectionRefused(text()).is_transient());
        assert!(Error::LocalNetwork(text()).is_transient());
    }
}
