//! Logging in at a provider, and tokens that run out: OAuth with a browser (PKCE, and a redirect to
//! a loopback port) or with a device code, and the exchange of a refresh token when it is time.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oauth2::basic::{BasicClient, BasicTokenResponse};
use oauth2::{
    AuthUrl, AuthorizationCode, ClientId, CsrfToken, DeviceAuthorizationUrl, HttpRequest, HttpResponse,
    PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RefreshToken, RequestTokenError, Scope,
    StandardDeviceAuthorizationResponse, TokenResponse, TokenUrl,
};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::Error;
use super::auth::{Auth, Credential, OauthTokens};
use super::http::HttpClient;
use crate::entry::{Login, ProviderEntry, Secret};
use base::environment::Environment;
use base::lock::locked;

/// How long a login may take: somebody has to find a password.
const PATIENCE: Duration = Duration::from_secs(600);
/// A token that runs out sooner than this is exchanged before it is used.
const MARGIN: u64 = 60_000;

#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    provider: String,
    kind: ServiceKind,
}

#[derive(Debug, Clone, PartialEq)]
enum ServiceKind {
    /// As the standards say.
    Standard(Login),
    /// OpenRouter: the code is exchanged for a key that stays, by a call of its own, and clients are
    /// not registered.
    Key { authorize: String, exchange: String },
}

/// What a person has to do to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginStep {
    /// Open this address in a browser on this machine.
    Open(String),
    /// Open this address anywhere and type this code.
    Type { address: String, code: String },
}

impl Service {
    /// Where one logs in at a provider; none if it only takes keys.
    pub fn of(settings: &ProviderEntry) -> Option<Self> {
        let provider = settings.id.clone();
        if let Some(login) = &settings.login {
            return Some(Self { provider, kind: ServiceKind::Standard(login.clone()) });
        }
        if settings.id == "openrouter" {
            let base = settings.base_url.as_deref().unwrap_or_default().trim_end_matches('/');
            let origin = base.strip_suffix("/api/v1").unwrap_or("https://openrouter.ai");
            let kind = ServiceKind::Key {
                authorize: format!("{origin}/auth"),
                exchange: format!("{origin}/api/v1/auth/keys"),
            };
            return Some(Self { provider, kind });
        }
        None
    }

    /// Whether a code can be typed instead of coming back through a browser here.
    pub fn has_codes(&self) -> bool {
        matches!(&self.kind, ServiceKind::Standard(login) if login.device_url.is_some())
    }

    /// Whether a browser on this machine can be used.
    pub fn has_browser(&self) -> bool {
        !matches!(&self.kind, ServiceKind::Standard(login) if login.authorize_url.is_none())
    }

    /// Logs in with a browser on this machine. `show` is told what the person has to do.
    ///
    /// # Errors
    /// [`Error`], with what the server said.
    pub async fn browse(
        &self,
        client: &Arc<HttpClient>,
        environment: &Environment,
        show: impl Fn(LoginStep),
    ) -> Result<Credential, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(local)?;
        let port = listener.local_addr().map_err(local)?.port();
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let state = CsrfToken::new_random();
        match &self.kind {
            ServiceKind::Key { authorize, exchange } => {
                // There is no state in this flow: the path carries it.
                let back = format!("http://localhost:{port}/{}", state.secret());
                let mut url = reqwest::Url::parse(authorize).map_err(|e| self.wrong("authorizeUrl", &e))?;
                url.query_pairs_mut()
                    .append_pair("callback_url", &back)
                    .append_pair("code_challenge", challenge.as_str())
                    .append_pair("code_challenge_method", challenge.method());
                show(LoginStep::Open(url.into()));
                let path = format!("/{}", state.secret());
                let code = code(&come_back(&self.provider, &listener, &path, None).await?);
                self.buy(client, exchange, &code, &verifier).await
            }
            ServiceKind::Standard(login) => {
                let back = format!("http://127.0.0.1:{port}/callback");
                let authorize = login.authorize_url.clone().unwrap_or_default();
                let oauth = BasicClient::new(ClientId::new(login.client_id.clone()))
                    .set_auth_uri(AuthUrl::new(authorize).map_err(|e| self.wrong("authorizeUrl", &e))?)
                    .set_token_uri(TokenUrl::new(login.token_url.clone()).map_err(|e| self.wrong("tokenUrl", &e))?)
                    .set_redirect_uri(RedirectUrl::new(back).map_err(|e| self.wrong("redirect", &e))?);
                let expected = state.secret().clone();
                let (url, _) = oauth
                    .authorize_url(|| state.clone())
                    .add_scopes(login.scopes.iter().cloned().map(Scope::new))
                    .set_pkce_challenge(challenge)
                    .url();
                show(LoginStep::Open(url.into()));
                let code = code(&come_back(&self.provider, &listener, "/callback", Some(&expected)).await?);
                let send = sender(client, &self.provider);
                let answer = oauth
                    .exchange_code(AuthorizationCode::new(code))
                    .set_pkce_verifier(verifier)
                    .request_async(&send)
                    .await;
                let answer = answer.map_err(|e| refused(&self.provider, e))?;
                Ok(Credential::Tokens(tokens(&answer, login, None, environment)))
            }
        }
    }

    /// Logs in with a code that the person types anywhere.
    ///
    /// # Errors
    /// [`Error`], with what the server said.
    pub async fn type_code(
        &self,
        client: &Arc<HttpClient>,
        environment: &Environment,
        show: impl Fn(LoginStep),
    ) -> Result<Credential, Error> {
        let (ServiceKind::Standard(login), true) = (&self.kind, self.has_codes()) else {
            let text = format!("There is no login with a code at {}.", self.provider);
            return Err(Error::BadRequest(text));
        };
        let device = login.device_url.clone().unwrap_or_default();
        let oauth = BasicClient::new(ClientId::new(login.client_id.clone()))
            .set_token_uri(TokenUrl::new(login.token_url.clone()).map_err(|e| self.wrong("tokenUrl", &e))?)
            .set_device_authorization_url(
                DeviceAuthorizationUrl::new(device).map_err(|e| self.wrong("deviceUrl", &e))?,
            );
        let send = sender(client, &self.provider);
        let asked = oauth.exchange_device_code().add_scopes(login.scopes.iter().cloned().map(Scope::new));
        let details: StandardDeviceAuthorizationResponse =
            asked.request_async(&send).await.map_err(|e| refused(&self.provider, e))?;
        show(LoginStep::Type {
            address: details.verification_uri().to_string(),
            code: details.user_code().secret().clone(),
        });
        let asked = oauth.exchange_device_access_token(&details);
        let answer = asked.request_async(&send, tokio::time::sleep, Some(PATIENCE)).await;
        let answer = answer.map_err(|e| refused(&self.provider, e))?;
        Ok(Credential::Tokens(tokens(&answer, login, None, environment)))
    }

    /// Exchanges a code for a key that stays.
    async fn buy(
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
        let answer = client.send(&self.provider, request.map_err(|e| self.wrong("address", &e))?).await?;
        let status = answer.status();
        let said: serde_json::Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        match said.get("key").and_then(|key| key.as_str()).filter(|_| status.is_success()) {
            Some(key) => Ok(Credential::Key(Secret::new(key))),
            None => Err(Error::Auth(format!("{} answered {status} instead of giving a key.", self.provider))),
        }
    }

    fn wrong(&self, what: &str, e: &dyn std::fmt::Display) -> Error {
        Error::BadRequest(format!("The login of {} is not set up: {what}: {e}.", self.provider))
    }
}

fn refused<T>(provider: &str, e: RequestTokenError<Error, oauth2::StandardErrorResponse<T>>) -> Error
where
    T: oauth2::ErrorResponseType + std::fmt::Display,
{
    match e {
        RequestTokenError::Request(e) => e,
        RequestTokenError::ServerResponse(said) => {
            let words = said.error_description().map_or_else(|| said.error().to_string(), ToOwned::to_owned);
            Error::Auth(format!("{provider} refused the login: {}.", words.trim_end_matches('.')))
        }
        RequestTokenError::Parse(_, body) => {
            let shown = super::classify::excerpt(&body);
            Error::Garbled(format!("{provider} answered the login with something else: {shown}."))
        }
        RequestTokenError::Other(why) => Error::Garbled(format!("{provider} could not log us in: {why}.")),
    }
}

fn local(e: std::io::Error) -> Error {
    Error::Network(format!("No loopback port can be opened: {e}."))
}

/// Waits for the browser to come back from `who`, and gives the address it came back to, which has a code.
///
/// # Errors
/// Where it was refused, or nobody came.
pub async fn come_back(
    who: &str,
    listener: &TcpListener,
    path: &str,
    state: Option<&str>,
) -> Result<reqwest::Url, Error> {
    let visits = async {
        loop {
            let (socket, _) = listener.accept().await.map_err(local)?;
            // A browser also asks for icons; and connections may be opened and never used.
            let visit = tokio::time::timeout(Duration::from_secs(10), visit(socket, path, state)).await;
            if let Ok(Some(came)) = visit {
                return came.map_err(|why| Error::Auth(format!("{who} refused the login: {why}.")));
            }
        }
    };
    let late = |_| Error::Auth("Nobody came back from the browser within ten minutes.".into());
    tokio::time::timeout(PATIENCE, visits).await.map_err(late)?
}

fn code(came: &reqwest::Url) -> String {
    of(came, "code").unwrap_or_default()
}

fn of(url: &reqwest::Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
}

/// One visit of the browser: where it came with a code, or the refusal, if this is the one that was waited for.
async fn visit(socket: TcpStream, path: &str, state: Option<&str>) -> Option<Result<reqwest::Url, String>> {
    let mut socket = BufReader::new(socket);
    let mut line = String::new();
    socket.read_line(&mut line).await.ok()?;
    // All of it is read: closing a connection with something unread takes the answer back.
    let mut header = String::from("…");
    for _ in 0..200 {
        if header.trim().is_empty() {
            break;
        }
        header.clear();
        socket.read_line(&mut header).await.ok()?;
    }
    let wanted = line.split(' ').nth(1)?;
    let url = reqwest::Url::parse("http://localhost").ok()?.join(wanted).ok()?;
    let came = match (of(&url, "code"), of(&url, "error_description").or_else(|| of(&url, "error"))) {
        _ if url.path() != path => None,
        // Somebody else's browser, or an old one.
        _ if state.is_some() && of(&url, "state").as_deref() != state => None,
        (Some(_), _) => Some(Ok(url)),
        (None, Some(why)) => Some(Err(why)),
        (None, None) => None,
    };
    let (status, words) = match &came {
        Some(Ok(_)) => ("200 OK", "You are logged in. This window can be closed."),
        Some(Err(_)) => ("200 OK", "The login was refused. The terminal says why."),
        None => ("404 Not Found", "There is nothing here."),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{words}",
        words.len()
    );
    socket.get_mut().write_all(answer.as_bytes()).await.ok();
    socket.get_mut().shutdown().await.ok();
    came
}

fn tokens(answer: &BasicTokenResponse, login: &Login, old: Option<&Secret>, environment: &Environment) -> OauthTokens {
    let lasts = |lasts: Duration| environment.now().0 + u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX / 2);
    OauthTokens {
        access: Secret::new(answer.access_token().secret()),
        // A server that gives no new refresh token means the old one to go on.
        refresh: answer.refresh_token().map(|token| Secret::new(token.secret())).or_else(|| old.cloned()),
        expires: answer.expires_in().map(lasts),
        login: login.clone(),
    }
}

/// The tokens of one provider, exchanged when they run out.
pub struct TokenRefresher {
    provider: String,
    client: Arc<HttpClient>,
    environment: Environment,
    path: PathBuf,
    // A leaf lock around what was last known; never held across an await.
    tokens: Mutex<OauthTokens>,
}

impl TokenRefresher {
    pub fn new(provider: &str, tokens: OauthTokens, client: Arc<HttpClient>, environment: &Environment) -> Self {
        let path = Auth::path(environment);
        Self { provider: provider.into(), client, environment: environment.clone(), path, tokens: Mutex::new(tokens) }
    }

    /// A token that holds now.
    ///
    /// # Errors
    /// [`Error::Keyless`] where a new login is needed, others where the server cannot be asked.
    pub async fn token(&self) -> Result<Secret, Error> {
        let known = self.known();
        if self.holds(&known) {
            return Ok(known.access);
        }
        // Another process may have exchanged it.
        if let Some(newer) = self.newer() {
            return Ok(newer);
        }
        let Some(refresh) = &known.refresh else {
            return Err(self.log_in("the login has expired"));
        };
        let token_url = TokenUrl::new(known.login.token_url.clone());
        let token_url = token_url.map_err(|e| Error::BadRequest(format!("The login of {}: {e}.", self.provider)))?;
        let oauth = BasicClient::new(ClientId::new(known.login.client_id.clone())).set_token_uri(token_url);
        let refresh = RefreshToken::new(refresh.expose().to_owned());
        let send = sender(&self.client, &self.provider);
        match oauth.exchange_refresh_token(&refresh).request_async(&send).await {
            Ok(answer) => {
                let fresh = tokens(&answer, &known.login, known.refresh.as_ref(), &self.environment);
                *locked(&self.tokens) = fresh.clone();
                let access = fresh.access.clone();
                let (path, provider) = (self.path.clone(), self.provider.clone());
                let kept =
                    base::task::spawn_blocking(move || Auth::keep(&path, &provider, Some(&Credential::Tokens(fresh))));
                if let Ok(Err(e)) = kept.await {
                    tracing::warn!("the new login of {} could not be kept: {e}", self.provider);
                }
                Ok(access)
            }
            Err(e) => match (refused(&self.provider, e), self.newer()) {
                (_, Some(newer)) => Ok(newer),
                (Error::Auth(why), None) => Err(self.log_in(why.trim_end_matches('.'))),
                (other, None) => Err(other),
            },
        }
    }

    fn known(&self) -> OauthTokens {
        locked(&self.tokens).clone()
    }

    fn holds(&self, tokens: &OauthTokens) -> bool {
        tokens.expires.is_none_or(|expires| expires > self.environment.now().0 + MARGIN)
    }

    /// What the file says, if that still holds.
    fn newer(&self) -> Option<Secret> {
        let text = base::file::read_regular_text(&self.path).unwrap_or_default();
        let newer = Auth::parse(&text).tokens(&self.provider).filter(|tokens| self.holds(tokens))?;
        *locked(&self.tokens) = newer.clone();
        Some(newer.access)
    }

    fn log_in(&self, why: &str) -> Error {
        Error::Keyless(format!("{why}; run `adjutant auth login {}`.", self.provider))
    }
}

/// What the library asks for, sent by our client.
fn sender(client: &Arc<HttpClient>, who: &str) -> impl Fn(HttpRequest) -> Sent + use<> {
    let (client, who) = (Arc::clone(client), Arc::<str>::from(who));
    move |request| {
        let (client, who) = (Arc::clone(&client), Arc::clone(&who));
        Box::pin(async move { client.send(&who, request).await })
    }
}

type Sent = Pin<Box<dyn Future<Output = Result<HttpResponse, Error>> + Send>>;

impl HttpClient {
    /// Sends a request of a login. `who` is the provider, for people.
    ///
    /// # Errors
    /// Where nothing comes.
    pub async fn send(&self, who: &str, request: HttpRequest) -> Result<HttpResponse, Error> {
        const MOST: usize = 1 << 20;
        let (parts, body) = request.into_parts();
        let url = parts.uri.to_string();
        let (status, headers, body) = self.exchange(who, &parts.method, &url, parts.headers, body, MOST).await?;
        let mut response = HttpResponse::new(body.into());
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        Ok(response)
    }
}
