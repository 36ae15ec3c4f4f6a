//! Logins at MCP servers, as they are kept: `mcp-auth.json` in the data directory, in OpenCode's format,
//! readable by its owner alone. OpenCode's own file is read too and never written. A login holds for exactly the
//! address it was made for.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use oauth2::basic::BasicTokenType;
use oauth2::{AccessToken, RefreshToken, Scope, TokenResponse};
use rmcp::transport::auth::{
    AuthError, CredentialRefreshGuard, CredentialStore, OAuthTokenResponse, StoredCredentials, VendorExtraTokenFields,
};
use serde_json::{Map, Value, json};

use base::environment::Environment;
use config::settings::Secret;
use providers::auth::Auth;

/// Where the login of one server is kept.
#[derive(Clone)]
pub struct KeptLogin {
    name: String,
    url: String,
    path: PathBuf,
    theirs: Option<PathBuf>,
    environment: Environment,
    /// The client's secret, where the one that logs in has one.
    secret: Option<Secret>,
}

impl KeptLogin {
    /// The login of the server with this name at this address.
    pub fn new(name: &str, url: &str, environment: &Environment) -> Self {
        Self {
            name: name.to_owned(),
            url: url.to_owned(),
            path: environment.dirs.data.join("mcp-auth.json"),
            theirs: Auth::their_data(environment).map(|data| data.join("mcp-auth.json")),
            environment: environment.clone(),
            secret: None,
        }
    }

    /// The same, for a client with this secret.
    #[must_use]
    pub fn with_secret(self, secret: Option<Secret>) -> Self {
        Self { secret, ..self }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// When our file was last changed; none where there is none.
    pub fn stamp(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.path).and_then(|known| known.modified()).ok()
    }

    /// What is kept for this server and its address, ours before OpenCode's, and whether it is ours.
    fn entry(&self) -> Option<(Map<String, Value>, bool)> {
        let of = |path: &Path| {
            let all: Map<String, Value> = serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
            let entry = all.get(&self.name)?.as_object()?.clone();
            (entry.get("serverUrl").and_then(Value::as_str) == Some(&self.url)).then_some(entry)
        };
        let theirs = || of(self.theirs.as_deref()?).map(|entry| (entry, false));
        of(&self.path).map(|entry| (entry, true)).or_else(theirs)
    }

    /// Whether somebody is logged in, and whether the login is ours.
    pub fn is_there(&self) -> Option<bool> {
        self.entry().filter(|(entry, _)| entry.contains_key("tokens")).map(|(_, ours)| ours)
    }

    /// Whether we, and OpenCode, keep something for a server of this name, whatever its address.
    pub fn kept_for_name(&self) -> (bool, bool) {
        let has = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            serde_json::from_str::<Map<String, Value>>(&text).is_ok_and(|all| all.contains_key(&self.name))
        };
        (has(&self.path), self.theirs.as_deref().is_some_and(has))
    }

    /// The client's secret that the server gave us.
    pub fn client_secret(&self) -> Option<Secret> {
        let (entry, _) = self.entry()?;
        let secret = entry.get("clientInfo")?.get("clientSecret")?.as_str()?;
        Some(Secret::new(secret))
    }

    /// Scopes that a call was refused for.
    pub fn wanted(&self) -> Vec<String> {
        let entry = self.entry().map(|(entry, _)| entry).unwrap_or_default();
        let wanted = entry.get("wantedScope").and_then(Value::as_str).unwrap_or_default();
        wanted.split_whitespace().map(str::to_owned).collect()
    }

    /// Notes that the login is too narrow, for the next one.
    ///
    /// # Errors
    /// The system's.
    pub fn want(&self, scope: &str) -> io::Result<()> {
        let Some((mut entry, _)) = self.entry() else { return Ok(()) };
        let mut wanted = self.wanted();
        wanted.extend(scope.split_whitespace().map(str::to_owned));
        wanted.sort();
        wanted.dedup();
        entry.insert("wantedScope".into(), wanted.join(" ").into());
        Auth::change(&self.path, |all| drop(all.insert(self.name.clone(), Value::Object(entry))))
    }

    /// Forgets the login in our file.
    ///
    /// # Errors
    /// The system's.
    pub fn forget(&self) -> io::Result<()> {
        Auth::change(&self.path, |all| drop(all.shift_remove(&self.name)))
    }

    fn read(&self) -> Option<StoredCredentials> {
        let (entry, _) = self.entry()?;
        let tokens = entry.get("tokens")?;
        let of = |name: &str| tokens.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let mut answer = OAuthTokenResponse::new(
            AccessToken::new(of("accessToken")?.to_owned()),
            BasicTokenType::Bearer,
            VendorExtraTokenFields::default(),
        );
        answer.set_refresh_token(of("refreshToken").map(|token| RefreshToken::new(token.to_owned())));
        let scopes: Vec<String> = of("scope").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        if !scopes.is_empty() {
            answer.set_scopes(Some(scopes.iter().cloned().map(Scope::new).collect()));
        }
        // In seconds, with or without a fraction.
        let expires = tokens.get("expiresAt").and_then(Value::as_f64).filter(|at| *at > 0.0);
        let now = self.environment.now().0 / 1000;
        let lasts = expires.map(|at| Duration::from_secs_f64(at).as_secs().saturating_sub(now));
        answer.set_expires_in(lasts.map(Duration::from_secs).as_ref());
        let client = entry.get("clientInfo").and_then(|info| info.get("clientId")).and_then(Value::as_str);
        let issuer = entry.get("issuer").and_then(Value::as_str).map(str::to_owned);
        Some(
            StoredCredentials::new(client.unwrap_or_default().to_owned(), Some(answer), scopes, Some(now))
                .with_issuer(issuer),
        )
    }

    fn write(&self, kept: &StoredCredentials) -> io::Result<()> {
        let Some(answer) = &kept.token_response else { return self.forget() };
        let mut tokens = Map::from_iter([("accessToken".to_owned(), json!(answer.access_token().secret()))]);
        if let Some(refresh) = answer.refresh_token() {
            tokens.insert("refreshToken".into(), json!(refresh.secret()));
        }
        if let Some(lasts) = answer.expires_in() {
            tokens.insert("expiresAt".into(), json!(self.environment.now().0 / 1000 + lasts.as_secs()));
        }
        if !kept.granted_scopes.is_empty() {
            tokens.insert("scope".into(), json!(kept.granted_scopes.join(" ")));
        }
        let mut client = Map::from_iter([("clientId".to_owned(), json!(kept.client_id))]);
        if let Some(secret) = self.secret.clone().or_else(|| self.client_secret()) {
            client.insert("clientSecret".into(), json!(secret.expose()));
        }
        let mut entry = json!({"tokens": tokens, "clientInfo": client, "serverUrl": self.url});
        if let (Some(issuer), Some(entry)) = (&kept.issuer, entry.as_object_mut()) {
            entry.insert("issuer".into(), json!(issuer));
        }
        Auth::change(&self.path, |all| drop(all.insert(self.name.clone(), entry)))
    }

    async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> Result<T, AuthError> {
        let this = self.clone();
        let done = base::task::spawn_blocking(move || work(&this)).await;
        let failed = |e: &dyn std::fmt::Display| AuthError::CredentialStoreError(e.to_string());
        done.map_err(|e| failed(&e))?.map_err(|e| failed(&e))
    }
}

#[async_trait]
impl CredentialStore for KeptLogin {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        self.apart(|this| Ok(this.read())).await
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        self.apart(move |this| this.write(&credentials)).await
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.apart(Self::forget).await
    }

    /// Of two processes that find a token expired, the second finds what the first was given.
    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let lock = |this: &Self| {
            let path = this.path.with_file_name("mcp-auth.lock");
            base::environment::private_dir(path.parent().unwrap_or(Path::new(".")))?;
            base::environment::private_note(&path, b"")?;
            let file = std::fs::File::open(path)?;
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
            Ok(file)
        };
        Ok(Some(CredentialRefreshGuard::new(self.apart(lock).await?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, Environment) {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::from_vars([("HOME".to_owned(), dir.path().display().to_string())].into());
        (dir, environment)
    }

    #[tokio::test]
    async fn a_login_is_bound_to_its_address() {
        let (_dir, environment) = place();
        let kept = KeptLogin::new("a", "https://a.example/", &environment);
        assert!(kept.load().await.unwrap().is_none());
        let mut answer = OAuthTokenResponse::new(
            AccessToken::new("t".into()),
            BasicTokenType::Bearer,
            VendorExtraTokenFields::default(),
        );
        answer.set_expires_in(Some(&Duration::from_secs(3600)));
        answer.set_refresh_token(Some(RefreshToken::new("r".into())));
        let login = StoredCredentials::new("c".into(), Some(answer), vec!["read".into()], None);
        kept.clone().with_secret(Some(Secret::new("s"))).save(login).await.unwrap();
        let back = kept.load().await.unwrap().unwrap();
        let tokens = back.token_response.unwrap();
        assert_eq!((back.client_id.as_str(), tokens.access_token().secret().as_str()), ("c", "t"));
        assert!(tokens.expires_in().unwrap().as_secs() > 3590);
        assert_eq!(
            (tokens.refresh_token().unwrap().secret().as_str(), back.granted_scopes),
            ("r", vec!["read".into()])
        );
        assert_eq!(kept.client_secret().unwrap().expose(), "s");
        kept.want("write read").unwrap();
        assert_eq!(kept.wanted(), ["read", "write"]);
        let elsewhere = KeptLogin::new("a", "https://b.example/", &environment);
        assert!(elsewhere.load().await.unwrap().is_none());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(kept.path()).unwrap().permissions().mode() & 0o777, 0o600);
        }
        kept.forget().unwrap();
        assert!(kept.load().await.unwrap().is_none());
    }
}
