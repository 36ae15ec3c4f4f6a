//! A server at an address: streamable HTTP, and the older HTTP with server-sent events where the first is
//! refused. All of it goes through the client that asks the models, so proxies and certificates are theirs.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::transport::auth::{AuthClient, AuthError};
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError};
use rmcp::transport::{DynamicTransportError, StreamableHttpClientTransport};
use rmcp::{RoleClient, ServiceError};
use tokio_util::sync::CancellationToken;

use super::client::McpClient;
use super::conversation::{End, GreetError, attend, greet, late};
use super::kept::KeptLogin;
use super::link::Link;
use super::login;
use super::sse::{self, SseError, SseTransport};
use crate::config::mcp as address;
use crate::model::http::{self, Client};
use crate::text;

/// Where a server is.
pub(super) struct Address {
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// Only the older way is spoken there.
    pub sse: bool,
    pub client: Arc<Client>,
    /// Where a login is kept, if one may be used.
    pub kept: Option<KeptLogin>,
    /// The command that logs in.
    pub command: String,
}

impl Address {
    /// Greets the server and attends to it; says why it is over, or nothing where it was stopped.
    pub(super) async fn talk(&self, us: McpClient, stop: &CancellationToken) -> Option<End> {
        let link = us.link.clone();
        if let Some(why) = address::refused(&self.url, &self.headers) {
            return Some(End::because(why));
        }
        let connecting = async {
            match self.connect(us).await {
                Ok(running) => Ok(running),
                Err(GreetError::Late) => Err(End::because(late(&link, "answer"))),
                Err(GreetError::Refused(e)) => Err(self.told(refusal(&e))),
            }
        };
        let running = tokio::select! {
            running = connecting => running,
            () = stop.cancelled() => return None,
        };
        match running {
            Ok(running) => attend(&link, running, stop).await,
            Err(end) => Some(end),
        }
    }

    /// What there is to do where a login is missing.
    fn told(&self, end: End) -> End {
        if !end.login {
            return end;
        }
        match &self.kept {
            Some(_) => End { why: format!("{}: run `{}`", end.why, self.command), login: true },
            None if self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) => {
                End::because("it refuses the Authorization header of the settings (401)")
            }
            None => End::because("it wants a login, and its \"oauth\" is false"),
        }
    }

    async fn connect(&self, us: McpClient) -> Result<RunningService<RoleClient, McpClient>, GreetError> {
        let (client, mut headers) = self.prepared().await?;
        let manager = match &self.kept {
            Some(kept) => login::manager(kept, &us.link.name, &self.url, &self.client).await,
            None => None,
        };
        let again = us.clone();
        let mut first = None;
        let token = match &manager {
            Some(manager) => manager.get_access_token().await.ok(),
            None => None,
        };
        if !self.sse {
            let mut config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str());
            config.custom_headers = headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            config.retry_config = Arc::new(resumed());
            let greeted = match manager {
                Some(manager) => {
                    let client = AuthClient::new(client.clone(), manager);
                    greet(us, StreamableHttpClientTransport::with_client(client, config)).await
                }
                None => greet(us, StreamableHttpClientTransport::with_client(client.clone(), config)).await,
            };
            match greeted {
                Err(GreetError::Refused(e)) if is_older(&e) => first = Some(e),
                greeted => return greeted,
            }
        }
        if let Some(token) = token
            && let Ok(mut bearer) = HeaderValue::from_str(&format!("Bearer {token}"))
        {
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let opened = tokio::time::timeout(again.link.limit, SseTransport::open(client, &self.url, headers)).await;
        match (opened, first) {
            (Ok(Ok(transport)), _) => greet(again, transport).await,
            // What was said first is what matters to somebody who does not know that there is an older way.
            (Ok(Err(_)) | Err(_), Some(first)) => Err(GreetError::Refused(first)),
            (Ok(Err(e)), None) => {
                Err(GreetError::Refused(Box::new(ClientInitializeError::transport::<SseTransport>(e, "opening"))))
            }
            (Err(_), None) => Err(GreetError::Late),
        }
    }

    /// The client for this address, and the headers of every request. Reading the certificates takes
    /// milliseconds, which are not taken from the thread that everything waits on.
    async fn prepared(&self) -> Result<(reqwest::Client, HeaderMap), GreetError> {
        let (client, url) = (self.client.clone(), self.url.clone());
        let made = tokio::task::spawn_blocking(move || client.raw(&url)).await;
        let refuse = |why: String| {
            GreetError::Refused(Box::new(ClientInitializeError::transport::<SseTransport>(SseError::Words(why), "")))
        };
        let client = match made {
            Ok(Ok(client)) => client,
            Ok(Err(e)) => return Err(refuse(e.to_string())),
            Err(e) => return Err(refuse(e.to_string())),
        };
        let headers = http::header_map(&self.headers).map_err(|e| refuse(e.to_string()))?;
        Ok((client, headers))
    }
}

/// How often a stream that broke is taken up again, and how long is waited before.
fn resumed() -> ExponentialBackoff {
    let mut backoff = ExponentialBackoff::default();
    backoff.max_times = Some(6);
    backoff.base_duration = Duration::from_millis(250);
    backoff.max_delay = Some(Duration::from_secs(10));
    backoff
}

/// Whether this is how a server answers that only knows the older way.
fn is_older(e: &ClientInitializeError) -> bool {
    match streamable(e) {
        Some(StreamableHttpError::UnexpectedServerResponse(said)) => {
            ["HTTP 400", "HTTP 404", "HTTP 405"].iter().any(|status| said.starts_with(status))
        }
        Some(StreamableHttpError::UnexpectedContentType(_)) => true,
        _ => false,
    }
}

fn streamable(e: &ClientInitializeError) -> Option<&StreamableHttpError<reqwest::Error>> {
    let ClientInitializeError::TransportError { error, .. } = e else { return None };
    cause(error)
}

fn cause<E: std::error::Error + 'static>(error: &DynamicTransportError) -> Option<&E> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error.error.as_ref());
    while let Some(e) = next {
        if let Some(found) = e.downcast_ref() {
            return Some(found);
        }
        next = e.source();
    }
    None
}

/// Why a server was not to be had, for a person.
fn refusal(e: &ClientInitializeError) -> End {
    match e {
        ClientInitializeError::TransportError { error, .. } => {
            if let Some(e) = cause::<StreamableHttpError<reqwest::Error>>(error) {
                return streamable_words(e);
            }
            match cause::<SseError>(error) {
                Some(SseError::Login) => wants_login(),
                Some(e) => End::because(e.to_string()),
                None => End::because("the connection to it broke"),
            }
        }
        ClientInitializeError::ConnectionClosed(_) => End::because("it closed the connection before it had answered"),
        e => End::because(format!("it does not speak MCP: {}", text::title(&e.to_string()))),
    }
}

/// Why a request to a server failed, for a person.
pub(super) fn service_words(e: &ServiceError, link: &Link) -> String {
    let ServiceError::TransportSend(error) = e else { return text::title(&e.to_string()) };
    let command = link.login.as_ref().map_or_else(String::new, |(_, command)| format!(": run `{command}`"));
    if let Some(e) = cause::<StreamableHttpError<reqwest::Error>>(error) {
        if let StreamableHttpError::InsufficientScope(narrow) = e {
            let scope = narrow.get_required_scope().unwrap_or_default();
            if let Some((kept, _)) = &link.login
                && let Err(e) = kept.want(scope)
            {
                tracing::warn!("the scope {scope} cannot be noted: {e}");
            }
            let scope = text::title(scope);
            return format!("the login does not reach far enough for this (it wants {scope:?}){command}");
        }
        let end = streamable_words(e);
        return if end.login { format!("{}{command}", end.why) } else { end.why };
    }
    cause::<SseError>(error).map_or_else(|| "the connection to it broke".to_owned(), ToString::to_string)
}

fn wants_login() -> End {
    End { why: "it wants a login".into(), login: true }
}

fn streamable_words(e: &StreamableHttpError<reqwest::Error>) -> End {
    match e {
        StreamableHttpError::Client(e) => End::because(sse::reached(e)),
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::Auth(AuthError::AuthorizationRequired) => {
            wants_login()
        }
        StreamableHttpError::Auth(e) => {
            End::because(format!("its login cannot be renewed: {}", text::title(&e.to_string())))
        }
        StreamableHttpError::InsufficientScope(_) => {
            End { why: "the login does not reach far enough".into(), login: true }
        }
        StreamableHttpError::UnexpectedServerResponse(said) => match said.strip_prefix("HTTP ") {
            Some(said) if said.starts_with("401") => wants_login(),
            Some(said) if said.starts_with('3') => End::because(sse::MOVED),
            Some(said) => End::because(format!("it answered {}", text::title(said.trim_end_matches([':', ' '])))),
            None => End::because(format!("it does not speak MCP: {}", text::title(said))),
        },
        StreamableHttpError::UnexpectedContentType(kind) => {
            let kind = text::title(kind.as_deref().unwrap_or("without a type"));
            End::because(format!("it does not speak MCP: it answered with something else ({kind})"))
        }
        StreamableHttpError::ReservedHeaderConflict(name) => {
            End::because(format!("the header {name} belongs to MCP itself and cannot be set; remove it"))
        }
        e => End::because(text::title(&e.to_string())),
    }
}
