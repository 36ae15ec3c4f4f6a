//! Describes failures of servers for the user. A [`Disconnect`] is the reason for the end of a
//! connection, or for the failure to connect, with its cause; the cause decides when the supervisor
//! tries again.

use rmcp::ServiceError;
use rmcp::model::{ErrorCode, ProtocolVersion};
use rmcp::service::ClientInitializeError;
use rmcp::transport::DynamicTransportError;
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value;

use super::connection::McpConnection;
use super::sse::{self, SseError};
use base::text;

/// The reason for the end of a connection.
pub(super) struct Disconnect {
    pub why: String,
    pub cause: DisconnectCause,
}

/// The cause of a disconnect, as far as the time of the next attempt depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DisconnectCause {
    /// The server or its settings.
    Server,
    /// A missing or insufficient login.
    Login,
    /// A lack of files or processes, of this process or of the system.
    Resources,
}

impl Disconnect {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            cause: DisconnectCause::Server,
        }
    }

    pub(super) fn for_lack_of_resources(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            cause: DisconnectCause::Resources,
        }
    }

    pub(super) fn needs_login(&self) -> bool {
        self.cause == DisconnectCause::Login
    }
}

pub(super) fn streamable_http_error(
    e: &ClientInitializeError,
) -> Option<&StreamableHttpError<reqwest::Error>> {
    let ClientInitializeError::TransportError { error, .. } = e else {
        return None;
    };
    find_cause(error)
}

fn find_cause<E: std::error::Error + 'static>(error: &DynamicTransportError) -> Option<&E> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error.error.as_ref());
    while let Some(e) = next {
        if let Some(found) = e.downcast_ref() {
            return Some(found);
        }
        next = e.source();
    }
    None
}

/// Returns the reason for a failed handshake, for the user.
pub(super) fn describe_handshake_error(e: &ClientInitializeError) -> Disconnect {
    match e {
        ClientInitializeError::TransportError { error, .. } => {
            if let Some(e) = find_cause::<StreamableHttpError<reqwest::Error>>(error) {
                return describe_http_error(e);
            }
            match find_cause::<SseError>(error) {
                Some(SseError::Login) => missing_login(),
                Some(e) => Disconnect::new(e.to_string()),
                None => Disconnect::new("the connection to it broke"),
            }
        }
        ClientInitializeError::ConnectionClosed(_) => {
            Disconnect::new("it closed the connection before it had answered")
        }
        e => describe_incompatible_server(e),
    }
}

/// Describes a server that answers, but not according to the protocol, for the user.
pub(super) fn describe_incompatible_server(e: &ClientInitializeError) -> Disconnect {
    let supported: Vec<String> = match e {
        ClientInitializeError::NoCompatibleProtocolVersion {
            server_supported, ..
        } => server_supported
            .iter()
            .map(|version| version.as_str().to_owned())
            .collect(),
        ClientInitializeError::JsonRpcError(e) => {
            let supported = e
                .data
                .as_ref()
                .and_then(|data| data.get("supported"))
                .and_then(Value::as_array);
            supported
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            return describe_incompatible_server(fallback);
        }
        _ => Vec::new(),
    };
    if !supported.is_empty() {
        let ours = ProtocolVersion::KNOWN_VERSIONS;
        let span =
            [ours.first(), ours.last()].map(|version| version.map_or("", ProtocolVersion::as_str));
        return Disconnect::new(text::title(&format!(
            "it supports other versions of MCP ({}) than adjutant ({} to {}); update the older of the two",
            supported.join(", "),
            span[0],
            span[1],
        )));
    }
    Disconnect::new(match e {
        // The code adds nothing, and an editor's refusal has its own.
        ClientInitializeError::JsonRpcError(e) if e.code == ErrorCode::INTERNAL_ERROR => {
            text::title(&format!("it refused to begin: {}", e.message))
        }
        ClientInitializeError::JsonRpcError(e) => text::title(&format!(
            "it refused to begin: {} ({})",
            e.message, e.code.0
        )),
        e => format!("it does not speak MCP: {}", text::title(&e.to_string())),
    })
}

/// Returns the reason for a failed request, for the user.
pub(super) fn describe_request_error(e: &ServiceError, connection: &McpConnection) -> String {
    let ServiceError::TransportSend(error) = e else {
        return text::title(&e.to_string());
    };
    let command = connection
        .login
        .as_ref()
        .map_or_else(String::new, |(_, command)| format!(": run `{command}`"));
    if let Some(e) = find_cause::<StreamableHttpError<reqwest::Error>>(error) {
        if let StreamableHttpError::InsufficientScope(narrow) = e {
            let scope = narrow.get_required_scope().unwrap_or_default();
            if let Some((stored, _)) = &connection.login
                && let Err(e) = stored.record_missing_scope(scope)
            {
                tracing::warn!("the missing scope {scope} cannot be saved: {e}");
            }
            let scope = text::title(scope);
            return format!("the login lacks a scope that this requires ({scope:?}){command}");
        }
        let end = describe_http_error(e);
        return if end.needs_login() {
            format!("{}{command}", end.why)
        } else {
            end.why
        };
    }
    find_cause::<SseError>(error).map_or_else(
        || "the connection to it broke".to_owned(),
        ToString::to_string,
    )
}

/// Returns the reason why the lists of a server cannot be read.
pub(super) fn describe_listing_error(e: &ServiceError) -> Disconnect {
    let found = match e {
        ServiceError::TransportSend(error) => {
            find_cause::<StreamableHttpError<reqwest::Error>>(error).map(describe_http_error)
        }
        _ => None,
    };
    match found {
        Some(end) if end.needs_login() => end,
        Some(end) => Disconnect::new(format!("its tools cannot be listed: {}", end.why)),
        None if matches!(e, ServiceError::UnexpectedResponse) => {
            Disconnect::new("its answer to tools/list has no list of tools; update it")
        }
        None => Disconnect::new(format!(
            "its tools cannot be listed: {}",
            text::title(&e.to_string())
        )),
    }
}

fn missing_login() -> Disconnect {
    Disconnect {
        why: "it needs a login".into(),
        cause: DisconnectCause::Login,
    }
}

fn describe_http_error(e: &StreamableHttpError<reqwest::Error>) -> Disconnect {
    match e {
        StreamableHttpError::Client(e) => Disconnect::new(sse::describe_send_error(e)),
        StreamableHttpError::AuthRequired(_)
        | StreamableHttpError::Auth(AuthError::AuthorizationRequired) => missing_login(),
        StreamableHttpError::Auth(e) => Disconnect::new(format!(
            "its login cannot be renewed: {}",
            text::title(&e.to_string())
        )),
        StreamableHttpError::InsufficientScope(_) => Disconnect {
            why: "the login lacks a scope that this requires".into(),
            cause: DisconnectCause::Login,
        },
        StreamableHttpError::UnexpectedServerResponse(response) => {
            match response.strip_prefix("HTTP ") {
                Some(response) if response.starts_with("401") => missing_login(),
                Some(response) if response.starts_with('3') => Disconnect::new(sse::MOVED),
                Some(response) => Disconnect::new(format!(
                    "it answered {}",
                    text::title(response.trim_end_matches([':', ' ']))
                )),
                None => {
                    Disconnect::new(format!("it does not speak MCP: {}", text::title(response)))
                }
            }
        }
        StreamableHttpError::UnexpectedContentType(kind) => {
            let kind = text::title(kind.as_deref().unwrap_or("without a type"));
            Disconnect::new(format!(
                "it does not speak MCP: it answered with something else ({kind})"
            ))
        }
        StreamableHttpError::ReservedHeaderConflict(name) => Disconnect::new(format!(
            "the header {name} belongs to MCP itself and cannot be set; remove it"
        )),
        e => Disconnect::new(text::title(&e.to_string())),
    }
}
