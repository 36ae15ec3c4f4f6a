//! Stored logins of MCP servers: `mcp-auth.json` in the data directory, in OpenCode's format and
//! readable by its owner only. OpenCode's own file is read too, and never written. A login is valid
//! only for the URL for which it was made.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use oauth2::basic::BasicTokenType;
use oauth2::{AccessToken, RefreshToken, Scope, TokenResponse};
use rmcp::transport::auth::{
    AuthError, CredentialRefreshGuard, CredentialStore, OAuthTokenResponse, StoredCredentials,
    VendorExtraTokenFields,
};
use serde_json::{Map, Value, json};

use base::environment::Environment;
use config::settings::Secret;
use providers::auth::Auth;

/// Access to the stored login of one server: of the entry with its name and URL, which may be
/// missing.
#[derive(Clone)]
pub struct StoredLogin {
    name: String,
    url: String,
    /// The path of adjutant's own file.
    path: PathBuf,
    /// The path of OpenCode's file; `None` if its directory is not known.
    opencode_path: Option<PathBuf>,
    environment: Environment,
    /// The client secret, if the client has one.
    secret: Option<Secret>,
}

impl StoredLogin {
    /// Returns the login of the server with this name and URL.
    pub fn new(name: &str, url: &str, environment: &Environment) -> Self {
        Self {
            name: name.to_owned(),
            url: url.to_owned(),
            path: environment.dirs.data.join("mcp-auth.json"),
            opencode_path: Auth::opencode_data_dir(environment)
                .map(|data| data.join("mcp-auth.json")),
            environment: environment.clone(),
            secret: None,
        }
    }

    /// Returns the login for a client with this secret.
    #[must_use]
    pub fn with_secret(self, secret: Option<Secret>) -> Self {
        Self { secret, ..self }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the modification time of adjutant's own file, or `None` if it does not exist.
    pub fn modified_at(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.path)
            .and_then(|known| known.modified())
            .ok()
    }

    /// Returns the stored entry for this server and URL, and whether it is from adjutant's own
    /// file, which takes precedence over OpenCode's.
    fn entry(&self) -> Option<(Map<String, Value>, bool)> {
        let read_entry = |path: &Path| {
            let all: Map<String, Value> =
                serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
            let entry = all.get(&self.name)?.as_object()?.clone();
            (entry.get("serverUrl").and_then(Value::as_str) == Some(&self.url)).then_some(entry)
        };
        if let Some(entry) = read_entry(&self.path) {
            return Some((entry, true));
        }
        read_entry(self.opencode_path.as_deref()?).map(|entry| (entry, false))
    }

    /// Returns `Some(true)` for a login in adjutant's own file, `Some(false)` for one in OpenCode's
    /// file, and `None` without a login.
    pub fn login_in_own_file(&self) -> Option<bool> {
        self.entry()
            .filter(|(entry, _)| entry.contains_key("tokens"))
            .map(|(_, is_own)| is_own)
    }

    /// Returns whether adjutant's file, and whether OpenCode's file, has an entry for a server of
    /// this name, with any URL.
    pub fn entries_for_name(&self) -> (bool, bool) {
        let has = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            serde_json::from_str::<Map<String, Value>>(&text)
                .is_ok_and(|all| all.contains_key(&self.name))
        };
        (
            has(&self.path),
            self.opencode_path.as_deref().is_some_and(has),
        )
    }

    /// Returns the client secret that the server issued.
    pub fn client_secret(&self) -> Option<Secret> {
        let (entry, _) = self.entry()?;
        let secret = entry.get("clientInfo")?.get("clientSecret")?.as_str()?;
        Some(Secret::new(secret))
    }

    /// Returns the scopes that calls have needed and the login lacks.
    pub fn missing_scopes(&self) -> Vec<String> {
        let entry = self.entry().map(|(entry, _)| entry).unwrap_or_default();
        let wanted = entry
            .get("wantedScope")
            .and_then(Value::as_str)
            .unwrap_or_default();
        wanted.split_whitespace().map(str::to_owned).collect()
    }

    /// Records a scope that the login lacks, for the next login.
    ///
    /// # Errors
    /// Returns an I/O error if the file cannot be changed.
    pub fn record_missing_scope(&self, scope: &str) -> io::Result<()> {
        let Some((mut entry, _)) = self.entry() else {
            return Ok(());
        };
        let mut wanted = self.missing_scopes();
        wanted.extend(scope.split_whitespace().map(str::to_owned));
        wanted.sort();
        wanted.dedup();
        entry.insert("wantedScope".into(), wanted.join(" ").into());
        Auth::change_file(&self.path, |all| {
            drop(all.insert(self.name.clone(), Value::Object(entry)))
        })
    }

    /// Removes the login from adjutant's own file.
    ///
    /// # Errors
    /// Returns an I/O error if the file cannot be changed.
    pub fn remove(&self) -> io::Result<()> {
        Auth::change_file(&self.path, |all| drop(all.shift_remove(&self.name)))
    }

    fn read(&self) -> Option<StoredCredentials> {
        let (entry, _) = self.entry()?;
        let tokens = entry.get("tokens")?;
        let of = |name: &str| {
            tokens
                .get(name)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
        };
        let mut answer = OAuthTokenResponse::new(
            AccessToken::new(of("accessToken")?.to_owned()),
            BasicTokenType::Bearer,
            VendorExtraTokenFields::default(),
        );
        answer
            .set_refresh_token(of("refreshToken").map(|token| RefreshToken::new(token.to_owned())));
        let scopes: Vec<String> = of("scope")
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        if !scopes.is_empty() {
            answer.set_scopes(Some(scopes.iter().cloned().map(Scope::new).collect()));
        }
        // In seconds, with or without a fraction.
        let expires = tokens
            .get("expiresAt")
            .and_then(Value::as_f64)
            .filter(|at| *at > 0.0);
        let now = self.environment.now().0 / 1000;
        let lifetime = expires.map(|at| Duration::from_secs_f64(at).as_secs().saturating_sub(now));
        answer.set_expires_in(lifetime.map(Duration::from_secs).as_ref());
        let client = entry
            .get("clientInfo")
            .and_then(|info| info.get("clientId"))
            .and_then(Value::as_str);
        let issuer = entry
            .get("issuer")
            .and_then(Value::as_str)
            .map(str::to_owned);
        Some(
            StoredCredentials::new(
                client.unwrap_or_default().to_owned(),
                Some(answer),
                scopes,
                Some(now),
            )
            .with_issuer(issuer),
        )
    }

    fn write(&self, stored: &StoredCredentials) -> io::Result<()> {
        let Some(answer) = &stored.token_response else {
            return self.remove();
        };
        let mut tokens = Map::from_iter([(
            "accessToken".to_owned(),
            json!(answer.access_token().secret()),
        )]);
        if let Some(refresh) = answer.refresh_token() {
            tokens.insert("refreshToken".into(), json!(refresh.secret()));
        }
        if let Some(lifetime) = answer.expires_in() {
            tokens.insert(
                "expiresAt".into(),
                json!(self.environment.now().0 / 1000 + lifetime.as_secs()),
            );
        }
        if !stored.granted_scopes.is_empty() {
            tokens.insert("scope".into(), json!(stored.granted_scopes.join(" ")));
        }
        let mut client = Map::from_iter([("clientId".to_owned(), json!(stored.client_id))]);
        if let Some(secret) = self.secret.clone().or_else(|| self.client_secret()) {
            client.insert("clientSecret".into(), json!(secret.expose()));
        }
        let mut entry = json!({"tokens": tokens, "clientInfo": client, "serverUrl": self.url});
        if let (Some(issuer), Some(entry)) = (&stored.issuer, entry.as_object_mut()) {
            entry.insert("issuer".into(), json!(issuer));
        }
        Auth::change_file(&self.path, |all| drop(all.insert(self.name.clone(), entry)))
    }

    async fn blocking<T: Send + 'static>(
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
impl CredentialStore for StoredLogin {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        self.blocking(|this| Ok(this.read())).await
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        self.blocking(move |this| this.write(&credentials)).await
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.blocking(Self::remove).await
    }

    /// Serializes refreshes: of two processes that find a token expired, the second finds the token
    /// that the first received.
    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let lock = |this: &Self| {
            let path = this.path.with_file_name("mcp-auth.lock");
            base::environment::private_dir(path.parent().unwrap_or(Path::new(".")))?;
            base::environment::write_private_file(&path, b"")?;
            let file = std::fs::File::open(path)?;
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
            Ok(file)
        };
        Ok(Some(CredentialRefreshGuard::new(
            self.blocking(lock).await?,
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture() -> (tempfile::TempDir, Environment) {
        let dir = tempfile::tempdir().unwrap();
        let environment =
            Environment::from_vars([("HOME".to_owned(), dir.path().display().to_string())].into());
        (dir, environment)
    }

    #[tokio::test]
    async fn login_is_bound_to_its_url() {
        let (_dir, environment) = fixture();
        let stored = StoredLogin::new("a", "https://a.example/", &environment);
        assert!(stored.load().await.unwrap().is_none());
        let mut answer = OAuthTokenResponse::new(
            AccessToken::new("t".into()),
            BasicTokenType::Bearer,
            VendorExtraTokenFields::default(),
        );
        answer.set_expires_in(Some(&Duration::from_secs(3600)));
        answer.set_refresh_token(Some(RefreshToken::new("r".into())));
        let login = StoredCredentials::new("c".into(), Some(answer), vec!["read".into()], None);
        stored
            .clone()
            .with_secret(Some(Secret::new("s")))
            .save(login)
            .await
            .unwrap();
        let back = stored.load().await.unwrap().unwrap();
        let tokens = back.token_response.unwrap();
        assert_eq!(
            (
                back.client_id.as_str(),
                tokens.access_token().secret().as_str()
            ),
            ("c", "t")
        );
        assert!(tokens.expires_in().unwrap().as_secs() > 3590);
        assert_eq!(
            (
                tokens.refresh_token().unwrap().secret().as_str(),
                back.granted_scopes
            ),
            ("r", vec!["read".into()])
        );
        assert_eq!(stored.client_secret().unwrap().expose(), "s");
        stored.record_missing_scope("write read").unwrap();
        assert_eq!(stored.missing_scopes(), ["read", "write"]);
        let elsewhere = StoredLogin::new("a", "https://b.example/", &environment);
        assert!(elsewhere.load().await.unwrap().is_none());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(
                std::fs::metadata(stored.path())
                    .unwrap()
                    .permissions()
                    .mode()
                    & 0o777,
                0o600
            );
        }
        stored.remove().unwrap();
        assert!(stored.load().await.unwrap().is_none());
    }
}
