//! Login methods, in all protocol versions.

use std::sync::Arc;

use super::account_reports::Account;
use super::error::RequestError;
use super::server::Server;
use permission::account::AccountProperty;
use providers::auth::{Auth, StoredCredential};

/// A login method as the client shows it.
pub struct LoginMethod {
    pub id: &'static str,
    pub name: &'static str,
    pub description: &'static str,
}

/// The login method that every client can offer. It does nothing: keys come from the environment
/// and the configuration.
pub const KEYS: LoginMethod = LoginMethod {
    id: "adjutant-keys",
    name: "Keys from the environment or configuration",
    description: "Set the provider's key, such as ANTHROPIC_API_KEY, before the editor starts. Nothing is needed for the offline model and local servers.",
};

/// The login that the client runs in a terminal: adjutant's command line with an argument appended.
pub const AT_THE_TERMINAL: LoginMethod = LoginMethod {
    id: "adjutant-terminal",
    name: "Log in at the terminal",
    description: "Stores a provider's key, or logs in with a browser if the provider supports that.",
};

/// The argument that makes the command line a login.
pub const ARGUMENT: &str = "--login";

/// Accepts a login, immediately and any number of times.
///
/// # Errors
/// The method does not exist, or is not offered to this client.
pub fn log_in(server: &Server, method: &str) -> Result<(), RequestError> {
    if method == KEYS.id || method == AT_THE_TERMINAL.id && server.capabilities().runs_logins {
        return Ok(());
    }
    let only = KEYS.id;
    Err(RequestError::Invalid(format!(
        "there is no such method; the only one available is \"{only}\""
    )))
}

/// Deletes the keys and logins that adjutant has stored. Keys in variables, in the configuration
/// and in OpenCode's files are not deleted. Refused for a user who is one of several, because all
/// of them use these keys.
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

/// Lists the stored keys and logins. Sends no request: whether a key is accepted is known only when
/// it is used.
pub fn accounts(server: &Arc<Server>) -> impl Future<Output = Vec<Account>> + Send + 'static {
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

/// The keys and logins in an answer to a request.
pub struct AccountAnswer {
    pub accounts: Vec<Account>,
    /// The number of updates before they were read.
    updates: u64,
}

/// Returns the keys and logins for the answer to a request.
pub async fn account_report(server: &Arc<Server>) -> AccountAnswer {
    let updates = server.accounts.updates();
    let known = accounts(server).await;
    AccountAnswer {
        accounts: known,
        updates,
    }
}

/// Informs the client again after an answer, if an update may have overtaken that answer.
pub async fn resend_if_overtaken(server: Arc<Server>, answer: AccountAnswer) {
    let AccountAnswer {
        accounts: known,
        updates,
    } = answer;
    if server.accounts.record_answer(known, updates) {
        update(server).await;
    }
}

/// Informs a client that has asked for the keys and logins, if they have changed since. Only one
/// update is made at a time, so that the last one that the client gets is the newest.
pub async fn update(server: Arc<Server>) {
    if !server.accounts.begin_update() {
        return;
    }
    while server.accounts.continue_or_end() {
        let known = accounts(&server).await;
        if server.accounts.update(&known) {
            let line = server.view().encode_auth_status(known);
            server.peer.outbox().send(line).await;
        }
    }
}
