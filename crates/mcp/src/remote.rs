//! A server at an address: streamable HTTP, and the older HTTP with server-sent events where the first is
//! refused. All of it goes through the client that asks the models, so proxies and certificates are theirs.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use rmcp::RoleClient;
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::AuthClient;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError};
use tokio_util::sync::CancellationToken;

use super::client::McpClient;
use super::conversation::{GreetError, attend, greet, late};
use super::failure::{Disconnect, refusal, streamable};
use super::kept::KeptLogin;
use super::login;
use super::sse::{SseError, SseTransport};
use config::mcp as address;
use providers::http::{self, HttpClient};

pub(super) struct RemoteServer {
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// Only the older way is spoken there.
    pub sse: bool,
    pub client: Arc<HttpClient>,
    /// Where a login is kept, if one may be used.
    pub kept: Option<KeptLogin>,
    pub command: String,
}

impl RemoteServer {
    /// Greets the server and attends to it; says why it is over, or nothing where it was stopped.
    pub(super) async fn talk(&self, us: McpClient, stop: &CancellationToken) -> Option<Disconnect> {
        let link = us.link.clone();
        if let Some(why) = address::refused(&self.url, &self.headers) {
            return Some(Disconnect::because(why));
        }
        let connecting = async {
            match self.connect(us).await {
                Ok(running) => Ok(running),
                Err(GreetError::Late) => Err(Disconnect::because(late(&link, "answer"))),
                Err(GreetError::Refused(e)) => Err(self.told(refusal(&e))),
            }
        };
        let running = tokio::select! {
            running = connecting => running,
            () = stop.cancelled() => return None,
        };
        match running {
            Ok(running) => attend(&link, running, stop).await.map(|end| self.told(end)),
            Err(end) => Some(end),
        }
    }

    /// What there is to do where a login is missing.
    fn told(&self, end: Disconnect) -> Disconnect {
        if !end.login {
            return end;
        }
        match &self.kept {
            Some(_) => Disconnect { why: format!("{}: run `{}`", end.why, self.command), login: true },
            None if self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) => {
                Disconnect::because("it refuses the Authorization header of the settings (401)")
            }
            None => Disconnect::because("it wants a login, and its \"oauth\" is false"),
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
        let made = base::task::spawn_blocking(move || client.raw(&url)).await;
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
