//! Connects to a remote server: over streamable HTTP, or over the older transport (HTTP with
//! server-sent events) if the server refuses the first. All requests use the HTTP client of the
//! providers, so that the same proxies and certificates apply.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use rmcp::RoleClient;
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::AuthClient;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransportConfig, StreamableHttpError,
};
use tokio_util::sync::CancellationToken;

use super::client::McpClient;
use super::connection_loop::{HandshakeError, handshake, maintain, timeout_message};
use super::credential_store::StoredLogin;
use super::failure::{Disconnect, describe_handshake_error, streamable_http_error};
use super::login;
use super::sse::{SseError, SseTransport};
use config::mcp as address;
use providers::http::{self, HttpClient};

/// The address of a remote server, with the means to connect.
pub(super) struct RemoteServer {
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// True if the server supports only the older transport.
    pub sse: bool,
    pub client: Arc<HttpClient>,
    /// The stored login, if one may be used.
    pub stored: Option<StoredLogin>,
    /// The command line that logs in; empty if no login may be used.
    pub login_command: String,
}

impl RemoteServer {
    /// Connects to the server and serves the connection until it ends. Returns the reason for the
    /// end, or `None` if the server was stopped.
    pub(super) async fn serve_connection(
        &self,
        mcp_client: McpClient,
        stop: &CancellationToken,
    ) -> Option<Disconnect> {
        let connection = mcp_client.connection.clone();
        if let Some(why) = address::refused(&self.url, &self.headers) {
            return Some(Disconnect::new(why));
        }
        let connecting = async {
            match self.connect(mcp_client).await {
                Ok(running) => Ok(running),
                Err(HandshakeError::TimedOut) => {
                    Err(Disconnect::new(timeout_message(&connection, "answer")))
                }
                Err(HandshakeError::Refused(e)) => {
                    Err(self.with_login_hint(describe_handshake_error(&e)))
                }
            }
        };
        let running = tokio::select! {
            running = connecting => running,
            () = stop.cancelled() => return None,
        };
        match running {
            Ok(running) => maintain(&connection, running, stop)
                .await
                .map(|end| self.with_login_hint(end)),
            Err(end) => Some(end),
        }
    }

    /// Adds the next action for the user if a login is missing.
    fn with_login_hint(&self, end: Disconnect) -> Disconnect {
        if !end.needs_login() {
            return end;
        }
        match &self.stored {
            Some(_) => Disconnect {
                why: format!("{}: run `{}`", end.why, self.login_command),
                cause: end.cause,
            },
            None if self
                .headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case("authorization")) =>
            {
                Disconnect::new("it refuses the Authorization header of the settings (401)")
            }
            None => Disconnect::new("it needs a login, and its \"oauth\" is false"),
        }
    }

    async fn connect(
        &self,
        mcp_client: McpClient,
    ) -> Result<RunningService<RoleClient, McpClient>, HandshakeError> {
        let (client, mut headers) = self.prepare().await?;
        let manager = match &self.stored {
            Some(stored) => {
                login::authorization_manager(
                    stored,
                    &mcp_client.connection.name,
                    &self.url,
                    &self.client,
                )
                .await
            }
            None => None,
        };
        let second_client = mcp_client.clone();
        let mut first = None;
        let token = match &manager {
            Some(manager) => manager.get_access_token().await.ok(),
            None => None,
        };
        if !self.sse {
            let mut config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str());
            config.custom_headers = headers
                .iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            config.retry_config = Arc::new(resume_backoff());
            let result = match manager {
                Some(manager) => {
                    let client = AuthClient::new(client.clone(), manager);
                    handshake(
                        mcp_client,
                        StreamableHttpClientTransport::with_client(client, config),
                    )
                    .await
                }
                None => {
                    handshake(
                        mcp_client,
                        StreamableHttpClientTransport::with_client(client.clone(), config),
                    )
                    .await
                }
            };
            match result {
                Err(HandshakeError::Refused(e)) if suggests_older_transport(&e) => first = Some(e),
                result => return result,
            }
        }
        if let Some(token) = token
            && let Ok(mut bearer) = HeaderValue::from_str(&format!("Bearer {token}"))
        {
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let opened = tokio::time::timeout(
            second_client.connection.start_timeout,
            SseTransport::open(client, &self.url, headers),
        )
        .await;
        match (opened, first) {
            (Ok(Ok(transport)), _) => handshake(second_client, transport).await,
            // The first error matters to users, who may not know that there is an older transport.
            (Ok(Err(_)) | Err(_), Some(first)) => Err(HandshakeError::Refused(first)),
            (Ok(Err(e)), None) => Err(HandshakeError::Refused(Box::new(
                ClientInitializeError::transport::<SseTransport>(e, "opening"),
            ))),
            (Err(_), None) => Err(HandshakeError::TimedOut),
        }
    }

    /// Returns the HTTP client for this URL, and the headers of every request. Reading the
    /// certificates takes milliseconds, so it runs on a blocking thread.
    async fn prepare(&self) -> Result<(reqwest::Client, HeaderMap), HandshakeError> {
        let client = self.client.clone();
        let url = self.url.clone();
        let made = base::task::spawn_blocking(move || client.reqwest_client(&url)).await;
        let refuse = |why: String| {
            HandshakeError::Refused(Box::new(ClientInitializeError::transport::<SseTransport>(
                SseError::Message(why),
                "",
            )))
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

/// Returns the backoff for resuming a broken stream.
fn resume_backoff() -> ExponentialBackoff {
    let mut backoff = ExponentialBackoff::default();
    backoff.max_times = Some(6);
    backoff.base_duration = Duration::from_millis(250);
    backoff.max_delay = Some(Duration::from_secs(10));
    backoff
}

/// Returns whether a server that supports only the older transport answers like this.
fn suggests_older_transport(e: &ClientInitializeError) -> bool {
    match streamable_http_error(e) {
        Some(StreamableHttpError::UnexpectedServerResponse(response)) => {
            ["HTTP 400", "HTTP 404", "HTTP 405"]
                .iter()
                .any(|status| response.starts_with(status))
        }
        Some(StreamableHttpError::UnexpectedContentType(_)) => true,
        _ => false,
    }
}
