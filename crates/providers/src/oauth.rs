//! OAuth logins at providers.
//!
//! A [`LoginService`] logs in with a browser (PKCE, and a redirect to a loopback port) or with a
//! device code, and returns the credential to store. A [`TokenRefresher`] supplies requests with
//! valid access tokens: it exchanges the refresh token before the access token expires.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oauth2::basic::{BasicClient, BasicTokenResponse};
use oauth2::{
    AuthUrl, AuthorizationCode, ClientId, CsrfToken, DeviceAuthorizationUrl, HttpRequest,
    HttpResponse, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RefreshToken,
    RequestTokenError, Scope, StandardDeviceAuthorizationResponse, TokenResponse, TokenUrl,
};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::Error;
use super::auth::{Auth, Credential, OauthTokens};
use super::http::HttpClient;
use crate::entry::{Login, ProviderEntry};
use crate::secret::Secret;
use base::environment::Environment;
use base::lock::lock;

/// The time limit of a login. The user may have to look up a password.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(600);
/// The remaining lifetime in milliseconds below which a token is exchanged before it is used.
const EXPIRY_MARGIN_MS: u64 = 60_000;

/// The login of one provider.
#[derive(Debug, Clone, PartialEq)]
pub struct LoginService {
    /// The provider's id.
    provider: String,
    kind: LoginServiceKind,
}

#[derive(Debug, Clone, PartialEq)]
enum LoginServiceKind {
    /// OAuth 2.0 as specified.
    Standard(Login),
    /// OpenRouter: the code is exchanged for a permanent key, by a non-standard request, and
    /// clients are not registered. The URLs of the login page and of the exchange.
    Key { authorize: String, exchange: String },
}

/// An action that the user must perform during a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginStep {
    /// Open this URL in a browser on this machine.
    OpenPage(String),
    /// Open the URL `address` on any device, and enter the code.
    EnterCode { address: String, code: String },
}

impl LoginService {
    /// Returns the login service of a provider; `None` if it only accepts keys.
    pub fn for_provider(settings: &ProviderEntry) -> Option<Self> {
        let provider = settings.id.clone();
        if let Some(login) = &settings.login {
            return Some(Self {
                provider,
                kind: LoginServiceKind::Standard(login.clone()),
            });
        }
        if settings.id == "openrouter" {
            let base = settings
                .base_url
                .as_deref()
                .unwrap_or_default()
                .trim_end_matches('/');
            let origin = base
                .strip_suffix("/api/v1")
                .unwrap_or("https://openrouter.ai");
            let kind = LoginServiceKind::Key {
                authorize: format!("{origin}/auth"),
                exchange: format!("{origin}/api/v1/auth/keys"),
            };
            return Some(Self { provider, kind });
        }
        None
    }

    /// True if a login with a device code is possible.
    pub fn has_device_codes(&self) -> bool {
        matches!(&self.kind, LoginServiceKind::Standard(login) if login.device_url.is_some())
    }

    /// True if a login with a browser on this machine is possible.
    pub fn has_browser_login(&self) -> bool {
        !matches!(&self.kind, LoginServiceKind::Standard(login) if login.authorize_url.is_none())
    }

    /// Logs in with a browser on this machine, and returns the credential to store. `show` presents
    /// the required action to the user.
    ///
    /// # Errors
    /// The login was refused, with the server's message; or the server cannot be reached; or the
    /// login took more than ten minutes.
    pub async fn log_in_with_browser(
        &self,
        client: &Arc<HttpClient>,
        environment: &Environment,
        show: impl Fn(LoginStep),
    ) -> Result<Credential, Error> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .map_err(no_loopback_port)?;
        let port = listener.local_addr().map_err(no_loopback_port)?.port();
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let state = CsrfToken::new_random();
        match &self.kind {
            LoginServiceKind::Key {
                authorize,
                exchange,
            } => {
                // This flow has no `state` parameter, so the path of the redirect contains it.
                let redirect = format!("http://localhost:{port}/{}", state.secret());
                let mut url = reqwest::Url::parse(authorize)
                    .map_err(|e| self.setup_error("authorizeUrl", &e))?;
                url.query_pairs_mut()
                    .append_pair("callback_url", &redirect)
                    .append_pair("code_challenge", challenge.as_str())
                    .append_pair("code_challenge_method", challenge.method());
                show(LoginStep::OpenPage(url.into()));
                let path = format!("/{}", state.secret());
                let code = code(&await_redirect(&self.provider, &listener, &path, None).await?);
                self.exchange_for_key(client, exchange, &code, &verifier)
                    .await
            }
            LoginServiceKind::Standard(login) => {
                let redirect = format!("http://127.0.0.1:{port}/callback");
                let authorize = login.authorize_url.clone().unwrap_or_default();
                let oauth = BasicClient::new(ClientId::new(login.client_id.clone()))
                    .set_auth_uri(
                        AuthUrl::new(authorize)
                            .map_err(|e| self.setup_error("authorizeUrl", &e))?,
                    )
                    .set_token_uri(
                        TokenUrl::new(login.token_url.clone())
                            .map_err(|e| self.setup_error("tokenUrl", &e))?,
                    )
                    .set_redirect_uri(
                        RedirectUrl::new(redirect).map_err(|e| self.setup_error("redirect", &e))?,
                    );
                let expected = state.secret().clone();
                let (url, _) = oauth
                    .authorize_url(|| state.clone())
                    .add_scopes(login.scopes.iter().cloned().map(Scope::new))
                    .set_pkce_challenge(challenge)
                    .url();
                show(LoginStep::OpenPage(url.into()));
                let code = code(
                    &await_redirect(&self.provider, &listener, "/callback", Some(&expected))
                        .await?,
                );
                let send = sender(client, &self.provider);
                let answer = oauth
                    .exchange_code(AuthorizationCode::new(code))
                    .set_pkce_verifier(verifier)
                    .request_async(&send)
                    .await;
                let answer = answer.map_err(|e| login_error(&self.provider, e))?;
                Ok(Credential::Tokens(tokens(
                    &answer,
                    login,
                    None,
                    environment,
                )))
            }
        }
    }

    /// Logs in with a device code, which the user enters on any device, and returns the credential
    /// to store. `show` presents the code to the user.
    ///
    /// # Errors
    /// Same as [`Self::log_in_with_browser`]; also an error unless [`Self::has_device_codes`].
    pub async fn log_in_with_device_code(
        &self,
        client: &Arc<HttpClient>,
        environment: &Environment,
        show: impl Fn(LoginStep),
    ) -> Result<Credential, Error> {
        let (LoginServiceKind::Standard(login), true) = (&self.kind, self.has_device_codes())
        else {
            let text = format!("There is no login with a code at {}.", self.provider);
            return Err(Error::BadRequest(text));
        };
        let device = login.device_url.clone().unwrap_or_default();
        let oauth = BasicClient::new(ClientId::new(login.client_id.clone()))
            .set_token_uri(
                TokenUrl::new(login.token_url.clone())
                    .map_err(|e| self.setup_error("tokenUrl", &e))?,
            )
            .set_device_authorization_url(
                DeviceAuthorizationUrl::new(device)
                    .map_err(|e| self.setup_error("deviceUrl", &e))?,
            );
        let send = sender(client, &self.provider);
        let request = oauth
            .exchange_device_code()
            .add_scopes(login.scopes.iter().cloned().map(Scope::new));
        let details: StandardDeviceAuthorizationResponse = request
            .request_async(&send)
            .await
            .map_err(|e| login_error(&self.provider, e))?;
        show(LoginStep::EnterCode {
            address: details.verification_uri().to_string(),
            code: details.user_code().secret().clone(),
        });
        let request = oauth.exchange_device_access_token(&details);
        let answer = request
            .request_async(&send, tokio::time::sleep, Some(LOGIN_TIMEOUT))
            .await;
        let answer = answer.map_err(|e| login_error(&self.provider, e))?;
        Ok(Credential::Tokens(tokens(
            &answer,
            login,
            None,
            environment,
        )))
    }

    /// Exchanges a code for a permanent key.
    async fn exchange_for_key(
        &self,
        client: &Arc<HttpClient>,
        exchange: &str,
        code: &str,
        verifier: &PkceCodeVerifier,
    ) -> Result<Credential, Error> {
        let body = json!({ "code": code, "code_verifier": verifier.secret(), "code_challenge_method": "S256" });
        let request = oauth2::http::Request::post(exchange)
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes());
        let answer = client
            .send_oauth(
                &self.provider,
                request.map_err(|e| self.setup_error("address", &e))?,
            )
            .await?;
        let status = answer.status();
        let reply: serde_json::Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        let key = if status.is_success() {
            reply.get("key").and_then(|key| key.as_str())
        } else {
            None
        };
        match key {
            Some(key) => Ok(Credential::Key(Secret::new(key))),
            None => Err(Error::Auth(format!(
                "{} answered {status} instead of giving a key.",
                self.provider
            ))),
        }
    }

    /// Returns the error for an invalid field of the login's settings.
    fn setup_error(&self, field: &str, e: &dyn std::fmt::Display) -> Error {
        Error::BadRequest(format!(
            "The login of {} is not set up: {field}: {e}.",
            self.provider
        ))
    }
}

/// Converts an error of the OAuth library.
fn login_error<T>(
    provider: &str,
    e: RequestTokenError<Error, oauth2::StandardErrorResponse<T>>,
) -> Error
where
    T: oauth2::ErrorResponseType + std::fmt::Display,
{
    match e {
        RequestTokenError::Request(e) => e,
        RequestTokenError::ServerResponse(reply) => {
            let reason = reply
                .error_description()
                .map_or_else(|| reply.error().to_string(), ToOwned::to_owned);
            Error::Auth(format!(
                "{provider} refused the login: {}.",
                reason.trim_end_matches('.')
            ))
        }
        RequestTokenError::Parse(_, body) => {
            let excerpt = super::error_classification::excerpt(&body);
            Error::InvalidAnswer(format!(
                "{provider} gave an unexpected answer to the login: {excerpt}."
            ))
        }
        RequestTokenError::Other(why) => {
            Error::InvalidAnswer(format!("The login at {provider} failed: {why}."))
        }
    }
}

fn no_loopback_port(e: std::io::Error) -> Error {
    Error::Network(format!("No loopback port can be opened: {e}."))
}

/// Waits for the browser's redirect to `path` after a login, and returns its URL, which contains the
/// code. A redirect with another `state` than the given one is ignored. `server_name` is the name
/// of the server that the user logs in to, for errors.
///
/// # Errors
/// An error if the login was refused, or the redirect did not arrive in time.
pub async fn await_redirect(
    server_name: &str,
    listener: &TcpListener,
    path: &str,
    state: Option<&str>,
) -> Result<reqwest::Url, Error> {
    let visits = async {
        loop {
            let (socket, _) = listener.accept().await.map_err(no_loopback_port)?;
            // Browsers also request icons, and open connections that they never use.
            let visit =
                tokio::time::timeout(Duration::from_secs(10), serve_visit(socket, path, state))
                    .await;
            if let Ok(Some(outcome)) = visit {
                return outcome.map_err(|why| {
                    Error::Auth(format!("{server_name} refused the login: {why}."))
                });
            }
        }
    };
    let late = |_| Error::Auth("The browser did not return within ten minutes.".into());
    tokio::time::timeout(LOGIN_TIMEOUT, visits)
        .await
        .map_err(late)?
}

/// Returns the authorisation code in the URL of a redirect; empty if there is none.
fn code(redirect: &reqwest::Url) -> String {
    query_value(redirect, "code").unwrap_or_default()
}

fn query_value(url: &reqwest::Url, name: &str) -> Option<String> {
    url.query_pairs()
        .find(|(known, _)| known == name)
        .map(|(_, value)| value.into_owned())
}

/// Serves one request of the browser. Returns the URL with the code, or the refusal; `None` if the
/// request is not the expected redirect.
async fn serve_visit(
    socket: TcpStream,
    path: &str,
    state: Option<&str>,
) -> Option<Result<reqwest::Url, String>> {
    let mut socket = BufReader::new(socket);
    let mut line = String::new();
    socket.read_line(&mut line).await.ok()?;
    // The whole request is read, because closing a connection with unread data discards the answer.
    let mut header = String::from("…");
    for _ in 0..200 {
        if header.trim().is_empty() {
            break;
        }
        header.clear();
        socket.read_line(&mut header).await.ok()?;
    }
    let requested = line.split(' ').nth(1)?;
    let url = reqwest::Url::parse("http://localhost")
        .ok()?
        .join(requested)
        .ok()?;
    let error = query_value(&url, "error_description").or_else(|| query_value(&url, "error"));
    let outcome = match (query_value(&url, "code"), error) {
        _ if url.path() != path => None,
        // A request of another program, or of an earlier login.
        _ if state.is_some() && query_value(&url, "state").as_deref() != state => None,
        (Some(_), _) => Some(Ok(url)),
        (None, Some(why)) => Some(Err(why)),
        (None, None) => None,
    };
    let (status, text) = match &outcome {
        Some(Ok(_)) => ("200 OK", "You are logged in. This window can be closed."),
        Some(Err(_)) => ("200 OK", "The login was refused. The terminal says why."),
        None => ("404 Not Found", "There is nothing here."),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    );
    socket.get_mut().write_all(answer.as_bytes()).await.ok();
    socket.get_mut().shutdown().await.ok();
    outcome
}

/// Converts the server's tokens to the form in which they are stored. `old` is the refresh token
/// before, if there was one.
fn tokens(
    answer: &BasicTokenResponse,
    login: &Login,
    old: Option<&Secret>,
    environment: &Environment,
) -> OauthTokens {
    let expiry = |lasts: Duration| {
        environment.now().0 + u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX / 2)
    };
    OauthTokens {
        access: Secret::new(answer.access_token().secret()),
        // Without a new refresh token, the old one remains valid.
        refresh: answer
            .refresh_token()
            .map(|token| Secret::new(token.secret()))
            .or_else(|| old.cloned()),
        expires: answer.expires_in().map(expiry),
        login: login.clone(),
    }
}

/// The access token of one provider, which is exchanged for a new one before it expires.
pub struct TokenRefresher {
    /// The provider's id.
    provider: String,
    client: Arc<HttpClient>,
    environment: Environment,
    /// The path of `auth.json`, in which new tokens are stored.
    path: PathBuf,
    // A leaf lock around the last known tokens; never held across an await.
    tokens: Mutex<OauthTokens>,
}

impl TokenRefresher {
    pub fn new(
        provider: &str,
        tokens: OauthTokens,
        client: Arc<HttpClient>,
        environment: &Environment,
    ) -> Self {
        let path = Auth::path(environment);
        Self {
            provider: provider.into(),
            client,
            environment: environment.clone(),
            path,
            tokens: Mutex::new(tokens),
        }
    }

    /// Returns a valid access token: the known one, one that another process has stored in the
    /// meantime, or a new one from the server.
    ///
    /// # Errors
    /// [`Error::NoKey`] if a new login is required, other errors if the server cannot be reached.
    pub async fn token(&self) -> Result<Secret, Error> {
        let known = self.known();
        if self.is_valid(&known) {
            return Ok(known.access);
        }
        // Another process may have exchanged it.
        if let Some(newer) = self.stored_token() {
            return Ok(newer);
        }
        let Some(refresh) = &known.refresh else {
            return Err(self.login_required("the login has expired"));
        };
        let token_url = TokenUrl::new(known.login.token_url.clone());
        let token_url = token_url
            .map_err(|e| Error::BadRequest(format!("The login of {}: {e}.", self.provider)))?;
        let oauth =
            BasicClient::new(ClientId::new(known.login.client_id.clone())).set_token_uri(token_url);
        let refresh = RefreshToken::new(refresh.expose().to_owned());
        let send = sender(&self.client, &self.provider);
        match oauth
            .exchange_refresh_token(&refresh)
            .request_async(&send)
            .await
        {
            Ok(answer) => {
                let fresh = tokens(
                    &answer,
                    &known.login,
                    known.refresh.as_ref(),
                    &self.environment,
                );
                *lock(&self.tokens) = fresh.clone();
                let access = fresh.access.clone();
                let path = self.path.clone();
                let provider = self.provider.clone();
                let stored = base::task::spawn_blocking(move || {
                    Auth::store(&path, &provider, Some(&Credential::Tokens(fresh)))
                });
                if let Ok(Err(e)) = stored.await {
                    tracing::warn!("the new login of {} could not be saved: {e}", self.provider);
                }
                Ok(access)
            }
            Err(e) => match (login_error(&self.provider, e), self.stored_token()) {
                (_, Some(newer)) => Ok(newer),
                (Error::Auth(why), None) => Err(self.login_required(why.trim_end_matches('.'))),
                (other, None) => Err(other),
            },
        }
    }

    fn known(&self) -> OauthTokens {
        lock(&self.tokens).clone()
    }

    /// True if the access token can still be used for a request.
    fn is_valid(&self, tokens: &OauthTokens) -> bool {
        tokens
            .expires
            .is_none_or(|expires| expires > self.environment.now().0 + EXPIRY_MARGIN_MS)
    }

    /// Returns the access token in the file if it is valid, and remembers the tokens.
    fn stored_token(&self) -> Option<Secret> {
        let text = base::file::read_regular_text(&self.path).unwrap_or_default();
        let newer = Auth::parse(&text)
            .tokens(&self.provider)
            .filter(|tokens| self.is_valid(tokens))?;
        *lock(&self.tokens) = newer.clone();
        Some(newer.access)
    }

    /// Returns the error for a login that must be repeated; `why` is the reason.
    fn login_required(&self, why: &str) -> Error {
        Error::NoKey(format!(
            "{why}; run `adjutant auth login {}`.",
            self.provider
        ))
    }
}

/// Adapts our HTTP client to the interface of the OAuth library.
fn sender(client: &Arc<HttpClient>, server_name: &str) -> impl Fn(HttpRequest) -> Sent + use<> {
    let client = Arc::clone(client);
    let server_name = Arc::<str>::from(server_name);
    move |request| {
        let client = Arc::clone(&client);
        let server_name = Arc::clone(&server_name);
        Box::pin(async move { client.send_oauth(&server_name, request).await })
    }
}

type Sent = Pin<Box<dyn Future<Output = Result<HttpResponse, Error>> + Send>>;

impl HttpClient {
    /// Sends a request of the OAuth library. `server_name` is the name of the server, for errors.
    ///
    /// # Errors
    /// An error if there is no response.
    pub async fn send_oauth(
        &self,
        server_name: &str,
        request: HttpRequest,
    ) -> Result<HttpResponse, Error> {
        const MAX_REPLY_BYTES: usize = 1 << 20;
        let (parts, body) = request.into_parts();
        let url = parts.uri.to_string();
        let exchange = self.exchange(
            server_name,
            &parts.method,
            &url,
            parts.headers,
            body,
            MAX_REPLY_BYTES,
        );
        let reply = exchange.await?;
        let mut response = HttpResponse::new(reply.body.into());
        *response.status_mut() = reply.status;
        *response.headers_mut() = reply.headers;
        Ok(response)
    }
}
