//! Logins, in all protocol versions: the methods that a client can offer, the deletion of stored keys,
//! and the reports of stored keys and logins to a client that has asked for them.

use std::sync::Arc;

use super::account_reports::Account;
use super::error::RequestError;
use super::server::Server;
use permission::account::AccountProperty;
use providers::auth::{Auth, StoredCredential};

/// A login method as the client shows it.
pub struct LoginMethod {
    /// The id that the client sends back.
    pub id: &'static str,
    pub name: &'static str,
    pub description: &'static str,
}

/// The login method that every client can offer. It does nothing: keys come from the environment
/// and the configuration.
pub const KEYS_LOGIN: LoginMethod = LoginMethod {
    id: "adjutant-keys",
    name: "Keys from the environment or configuration",
    description: "Set the provider's key, such as ANTHROPIC_API_KEY, before the editor starts. Nothing is needed for the offline model and local servers.",
};

/// The login that the client runs in a terminal: adjutant's command line with [`LOGIN_ARGUMENT`]
/// appended.
pub const TERMINAL_LOGIN: LoginMethod = LoginMethod {
    id: "adjutant-terminal",
    name: "Log in at the terminal",
    description: "Stores a provider's key, or logs in with a browser if the provider supports that.",
};

/// The argument that makes the command line a login.
pub const LOGIN_ARGUMENT: &str = "--login";

/// Accepts a login, immediately and any number of times.
///
/// # Errors
/// The method does not exist, or is not offered to this client.
pub fn log_in(server: &Server, method: &str) -> Result<(), RequestError> {
    let is_legacy_login = method == TERMINAL_LOGIN.id && server.capabilities().runs_legacy_logins;
    if method == KEYS_LOGIN.id || is_legacy_login {
        return Ok(());
    }
    let only = KEYS_LOGIN.id;
    Err(RequestError::Invalid(format!(
        "there is no such method; the only one available is \"{only}\""
    )))
}

/// Deletes the keys and logins that adjutant has stored. Keys in environment variables, in the
/// configuration and in OpenCode's files are not deleted.
///
/// # Errors
/// The server has several users, who all use these keys, or a file cannot be written.
pub fn log_out(
    server: &Arc<Server>,
) -> impl Future<Output = Result<(), RequestError>> + Send + 'static {
    let environment = server.shared.environment.clone();
    let allowed = server.shared.account().check(AccountProperty::ProviderKeys);
    async move {
        allowed.map_err(RequestError::Forbidden)?;
        let deleted = base::task::spawn_blocking(move || Auth::remove_all(&environment)).await;
        let failed = |e: std::io::Error| RequestError::Failed {
            message: format!("The stored key could not be removed: {e}."),
            advice: Some("`adjutant auth list` shows where keys are stored.".into()),
        };
        deleted
            .map_err(std::io::Error::other)
            .and_then(|done| done)
            .map_err(failed)
    }
}

/// Lists the stored keys and logins. Asks no provider, so a listed key may be invalid.
pub fn stored_accounts(
    server: &Arc<Server>,
) -> impl Future<Output = Vec<Account>> + Send + 'static {
    let environment = server.shared.environment.clone();
    async move {
        let credentials = base::task::spawn_blocking(move || Auth::list(&environment))
            .await
            .unwrap_or_default();
        let account = |stored: StoredCredential| Account {
            label: stored.provider,
            name: format!("{} {}", stored.kind, stored.location),
        };
        credentials.into_iter().map(account).collect()
    }
}

/// The keys and logins in the response to a client that asks for them.
pub struct AccountResponse {
    pub accounts: Vec<Account>,
    /// The number of updates before the accounts were read.
    updates: u64,
}

/// Reads the keys and logins for the response to a client that asks for them.
pub async fn account_response(server: &Arc<Server>) -> AccountResponse {
    AccountResponse {
        updates: server.accounts.updates(),
        accounts: stored_accounts(server).await,
    }
}

/// Records that a response was sent, and sends an update after it if an earlier update may have
/// overtaken the response.
pub async fn resend_if_overtaken(server: Arc<Server>, response: AccountResponse) {
    let AccountResponse { accounts, updates } = response;
    if server.accounts.record_response(accounts, updates) {
        send_changed_accounts(server).await;
    }
}

/// Sends an update with the keys and logins to a client that has asked for them, if they have
/// changed since. Only one update is made at a time, so that the last one that the client gets is
/// the newest.
pub async fn send_changed_accounts(server: Arc<Server>) {
    if !server.accounts.begin_update() {
        return;
    }
    while server.accounts.continue_or_end() {
        let accounts = stored_accounts(&server).await;
        if server.accounts.update(&accounts) {
            let line = server.new_view().encode_auth_status(accounts);
            server.peer.outbox().send(line).await;
        }
    }
}
