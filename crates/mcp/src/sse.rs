//! The older transport for remote servers (2024-11-05): a stream of events that begins with the URL
//! for posting messages. rmcp has no client for it any more.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use reqwest::{StatusCode, Url};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;

use base::text;
use base::text::surrogates;
use providers::http;
use providers::sse::{Flow, InvalidEvent, SseParser};

/// The message about a server that redirects.
pub(super) const MOVED: &str = "it redirects to another address, which is not followed with your headers; put that one into the settings";

/// An error of this transport, for the user.
#[derive(Debug, thiserror::Error)]
pub(super) enum SseError {
    #[error("it needs a login")]
    Login,
    #[error("{0}")]
    Message(String),
    #[error("{0}")]
    Bad(#[from] InvalidEvent),
}

pub(super) struct SseTransport {
    client: reqwest::Client,
    post: Arc<Url>,
    headers: Arc<HeaderMap>,
    events: Events,
}

/// The event stream, parsed on demand.
struct Events {
    bytes: BoxStream<'static, Result<bytes::Bytes, reqwest::Error>>,
    parser: SseParser,
    parsed: VecDeque<(String, String)>,
}

impl Events {
    /// Returns the name and the data of the next event. Cancellation-safe.
    async fn next(&mut self) -> Result<Option<(String, String)>, SseError> {
        loop {
            if let Some(event) = self.parsed.pop_front() {
                return Ok(Some(event));
            }
            let broke = |e: reqwest::Error| SseError::Message(describe_send_error(&e));
            let Some(bytes) = self.bytes.try_next().await.map_err(broke)? else {
                return Ok(None);
            };
            let parsed = &mut self.parsed;
            self.parser.push::<SseError>(&bytes, |name, data| {
                parsed.push_back((name.to_owned(), data.to_owned()));
                Ok(Flow::More)
            })?;
        }
    }
}

impl SseTransport {
    /// Opens the stream and reads the URL for messages.
    pub(super) async fn open(
        client: reqwest::Client,
        url: &str,
        headers: HeaderMap,
    ) -> Result<Self, SseError> {
        let url = Url::parse(url)
            .map_err(|e| SseError::Message(format!("its address cannot be read: {e}")))?;
        let stream = HeaderValue::from_static("text/event-stream");
        let response = client
            .get(url.clone())
            .headers(headers.clone())
            .header(ACCEPT, stream)
            .send()
            .await;
        let response =
            check_status(response.map_err(|e| SseError::Message(describe_send_error(&e)))?)?;
        let kind = response
            .headers()
            .get("content-type")
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            let kind = text::title(kind);
            return Err(SseError::Message(format!(
                "it does not speak MCP: it answered with something else ({kind})"
            )));
        }
        let bytes = response.bytes_stream().boxed();
        let mut events = Events {
            bytes,
            parser: SseParser::default(),
            parsed: VecDeque::new(),
        };
        let endpoint = loop {
            match events.next().await? {
                Some((name, data)) if name == "endpoint" => break data,
                Some(_) => {}
                None => {
                    return Err(SseError::Message(
                        "it closed the connection before it had answered".into(),
                    ));
                }
            }
        };
        let post = url
            .join(endpoint.trim())
            .ok()
            .filter(|post| post.origin() == url.origin());
        let post = post.ok_or_else(|| {
            let there = text::title(&endpoint);
            SseError::Message(format!(
                "it asks for messages to another host ({there}), which are not sent"
            ))
        })?;
        Ok(Self {
            client,
            post: Arc::new(post),
            headers: Arc::new(headers),
            events,
        })
    }
}

impl Transport<RoleClient> for SseTransport {
    type Error = SseError;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), SseError>> + Send + 'static {
        let client = self.client.clone();
        let post = self.post.clone();
        let headers = self.headers.clone();
        async move {
            let sent = client
                .post(post.as_ref().clone())
                .headers(headers.as_ref().clone())
                .json(&item)
                .send()
                .await;
            check_status(sent.map_err(|e| SseError::Message(describe_send_error(&e)))?).map(drop)
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            match self.events.next().await {
                Ok(Some((name, data))) if name.is_empty() || name == "message" => {
                    match serde_json::from_str(&surrogates::replaced(&data)) {
                        Ok(message) => return Some(message),
                        Err(e) => tracing::warn!(
                            "an MCP server sent something that is not a message: {e}"
                        ),
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(e) => {
                    tracing::warn!("the stream of an MCP server broke: {e}");
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), SseError> {
        self.events.bytes = futures_util::stream::empty().boxed();
        Ok(())
    }
}

/// Returns an error for any status other than success.
fn check_status(response: reqwest::Response) -> Result<reqwest::Response, SseError> {
    match response.status() {
        status if status.is_success() => Ok(response),
        StatusCode::UNAUTHORIZED => Err(SseError::Login),
        status if status.is_redirection() => Err(SseError::Message(MOVED.into())),
        status => Err(SseError::Message(format!("it answered {status}"))),
    }
}

/// Describes a failed request, for the user.
pub(super) fn describe_send_error(e: &reqwest::Error) -> String {
    let cause = http::format_causes(e);
    if e.is_connect() || e.is_timeout() {
        format!("it cannot be reached: {cause}")
    } else {
        format!("the connection to it broke: {cause}")
    }
}
