//! Logs in at an MCP server according to its specification. rmcp finds the authorization server,
//! registers a client and exchanges codes and tokens. This module provides the browser's callback,
//! the HTTP requests and the storage.

use std::sync::Arc;

use oauth2::HttpRequest;
use rmcp::model::ProtocolVersion;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadataSource, AuthorizationRequest,
    AuthorizationSession, OAuthClientConfig, OAuthHttpClient, OAuthHttpClientFuture,
    OAuthHttpRequest,
};
use serde_json::json;
use tokio::net::TcpListener;

use super::credential_store::StoredLogin;
use base::text;
use config::mcp::is_local_network;
use config::settings::{OAuth, Secret};
use providers::http::HttpClient;
use providers::oauth;

/// The callback for a client that was registered by hand, unless the settings choose another: the
/// same as in OpenCode.
const PORT: u16 = 19876;
const PATH: &str = "/mcp/oauth/callback";

/// The requests of a login, sent through the HTTP client of the providers. Refuses unencrypted
/// requests to public hosts.
struct LoginRequests {
    who: Arc<str>,
    client: Arc<HttpClient>,
}

impl OAuthHttpClient for LoginRequests {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let request: HttpRequest = request.request;
            let url = request.uri().to_string();
            let safe = reqwest::Url::parse(&url)
                .is_ok_and(|url| url.scheme() == "https" || is_local_network(&url));
            if !safe {
                return Err(format!("{url} is at a public host and not encrypted").into());
            }
            Ok(self.client.send_oauth(&self.who, request).await?)
        })
    }
}

/// Returns the manager of a server's tokens, or `None` if there is no login.
pub(super) async fn authorization_manager(
    stored: &StoredLogin,
    name: &str,
    url: &str,
    client: &Arc<HttpClient>,
) -> Option<AuthorizationManager> {
    stored.login_in_own_file()?;
    let mut manager = create_manager(stored, name, url, client).await.ok()?;
    // If refreshing fails, a token that is still valid is used.
    if let Ok(true) = manager.initialize_from_store().await
        && let (Some(secret), Some(id)) = (stored.client_secret(), stored_id(stored).await)
    {
        let config =
            OAuthClientConfig::new(id, "http://127.0.0.1").with_client_secret(secret.expose());
        manager.configure_client(config).ok();
    }
    Some(manager)
}

async fn stored_id(stored: &StoredLogin) -> Option<String> {
    use rmcp::transport::auth::CredentialStore;
    stored
        .load()
        .await
        .ok()
        .flatten()
        .map(|stored| stored.client_id)
}

async fn create_manager(
    stored: &StoredLogin,
    name: &str,
    url: &str,
    client: &Arc<HttpClient>,
) -> Result<AuthorizationManager, AuthError> {
    let requests = LoginRequests {
        who: format!("The MCP server {name}").into(),
        client: client.clone(),
    };
    let mut manager =
        AuthorizationManager::new_with_oauth_http_client(url, Arc::new(requests)).await?;
    manager.set_credential_store(stored.clone());
    Ok(manager)
}

/// The callback to which the browser returns.
struct Callback {
    listener: TcpListener,
    /// The URL, as registered with the authorization server.
    uri: String,
    path: String,
}

impl Callback {
    /// Opens the listener. A port in use is an immediate error, because another program would
    /// receive the code.
    async fn open(oauth: &OAuth) -> Result<Self, String> {
        let configured = match &oauth.redirect_uri {
            None => None,
            Some(uri) => match reqwest::Url::parse(uri) {
                Ok(url) if url.host_str().is_some() => Some(url),
                _ => return Err(format!("redirectUri is not a URL: {}", text::title(uri))),
            },
        };
        let port = oauth
            .callback_port
            .or_else(|| configured.as_ref().and_then(reqwest::Url::port));
        // A client that is registered now may use any port; one registered by hand may not.
        let fixed = port.or_else(|| oauth.client_id.is_some().then_some(PORT));
        let listener = TcpListener::bind(("127.0.0.1", fixed.unwrap_or(0))).await.map_err(|e| {
            let port = fixed.unwrap_or(0);
            match e.kind() {
                std::io::ErrorKind::AddrInUse => format!(
                    "the port {port}, to which the browser returns, is in use by another program: end it, or choose another port with \"callbackPort\""
                ),
                _ => format!("the login cannot listen on port {port}: {e}"),
            }
        })?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let path = configured
            .as_ref()
            .map_or(PATH, |url| url.path())
            .to_owned();
        let uri = oauth
            .redirect_uri
            .clone()
            .unwrap_or_else(|| format!("http://127.0.0.1:{port}{PATH}"));
        Ok(Self {
            listener,
            uri,
            path,
        })
    }
}

/// Logs in with a browser on this machine, and stores the result. `show` receives the URL to open.
///
/// # Errors
/// Returns the reason for a failure, for the user.
pub async fn log_in(
    name: &str,
    url: &str,
    oauth: &OAuth,
    stored: &StoredLogin,
    client: &Arc<HttpClient>,
    show: impl Fn(&str),
) -> Result<(), String> {
    let parsed = reqwest::Url::parse(url).map_err(|e| format!("its URL is not valid: {e}"))?;
    if parsed.scheme() != "https" && !is_local_network(&parsed) {
        return Err("its URL begins with http: and its host is public, so the token would be sent unencrypted; use https"
            .into());
    }
    let callback = Callback::open(oauth).await?;
    let mut manager = create_manager(stored, name, url, client)
        .await
        .map_err(|e| describe_error(&e))?;
    let challenge = request_challenge(name, url, client).await;
    let metadata = manager
        .resolve_metadata_from_challenge(challenge.as_deref())
        .await;
    let found = metadata.map_err(|e| describe_error(&e))?;
    let guessed = found.source == AuthorizationMetadataSource::LegacyEndpointFallback;
    manager.set_metadata(found.metadata);
    let mut scopes: Vec<String> = oauth
        .scope
        .as_deref()
        .unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let wanted = stored.missing_scopes();
    if !wanted.is_empty() {
        scopes.extend(granted_scopes(stored).await);
        scopes.extend(wanted);
        let mut seen = std::collections::BTreeSet::new();
        scopes.retain(|scope| seen.insert(scope.clone()));
    }
    let mut secret = oauth.client_secret.clone();
    let id = match &oauth.client_id {
        Some(id) => id.clone(),
        None => {
            let requested_scopes = if scopes.is_empty() {
                manager.select_initial_scopes(&[]).await
            } else {
                scopes.clone()
            };
            let requested_scopes: Vec<&str> = requested_scopes.iter().map(String::as_str).collect();
            let registered = manager
                .register_client("adjutant", &callback.uri, &requested_scopes)
                .await;
            let registered = registered.map_err(|e| {
                if guessed {
                    return "it does not describe how to log in (no protected-resource or authorization-server metadata)"
                        .to_owned();
                }
                format!(
                    "no client could be registered there ({}); register one by hand and put its id into \
                     \"oauth\": {{\"clientId\": …}}",
                    describe_error(&e)
                )
            })?;
            secret = registered.client_secret;
            registered.client_id
        }
    };
    let stored = stored
        .clone()
        .with_secret(secret.as_deref().map(Secret::new));
    manager.set_credential_store(stored);
    let mut request = AuthorizationRequest::new(&callback.uri)
        .with_initial_scope_selection()
        .with_scopes(scopes)
        .with_preregistered_client(id);
    if let Some(secret) = secret {
        request = request.with_client_secret(secret);
    }
    let session = AuthorizationSession::new(manager, request)
        .await
        .map_err(|(_, e)| describe_error(&e))?;
    let address = session.get_authorization_url().to_owned();
    let state = reqwest::Url::parse(&address).ok().and_then(|url| {
        url.query_pairs()
            .find(|(name, _)| name == "state")
            .map(|(_, value)| value.into_owned())
    });
    show(&address);
    let who = format!("The MCP server {name}");
    let redirect =
        oauth::await_redirect(&who, &callback.listener, &callback.path, state.as_deref());
    let redirect = redirect
        .await
        .map_err(|e| e.to_string().trim_end_matches('.').to_owned())?;
    session
        .handle_callback_url(redirect.as_str())
        .await
        .map(drop)
        .map_err(|e| describe_error(&e))
}

/// Returns the server's challenge to a client without a login, which names the authorization server
/// and the scope. Some servers accept `initialize` without a login and refuse only the lists, so
/// both are tried.
async fn request_challenge(name: &str, url: &str, client: &Arc<HttpClient>) -> Option<String> {
    let version = ProtocolVersion::LATEST_WITH_INITIALIZE;
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": {},
        "clientInfo": {"name": "adjutant", "version": env!("CARGO_PKG_VERSION")}}});
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let mut session = None;
    for message in [hello, list] {
        let mut request = oauth2::http::Request::post(url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(session) = session.take() {
            request = request
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", version.as_str());
        }
        let request = request.body(message.to_string().into_bytes());
        let answer = client
            .send_oauth(&format!("The MCP server {name}"), request.ok()?)
            .await
            .ok()?;
        if answer.status() == 401 {
            return answer
                .headers()
                .get("www-authenticate")?
                .to_str()
                .ok()
                .map(str::to_owned);
        }
        session = answer.headers().get("mcp-session-id").cloned();
    }
    None
}

async fn granted_scopes(stored: &StoredLogin) -> Vec<String> {
    use rmcp::transport::auth::CredentialStore;
    stored
        .load()
        .await
        .ok()
        .flatten()
        .map(|stored| stored.granted_scopes)
        .unwrap_or_default()
}

/// Returns the error message for the user.
fn describe_error(e: &AuthError) -> String {
    let text = match e {
        AuthError::AuthorizationServerMismatch {
            expected_issuer,
            received_issuer,
        } => format!(
            "the answer came from another server ({received_issuer}) than the one that was asked ({expected_issuer}): \
             nothing was saved"
        ),
        AuthError::DiscoveryRequestFailed { url, source } => {
            format!("{url} cannot be read: {source}")
        }
        e => e.to_string(),
    };
    text::title(text.trim_end_matches('.'))
}
