//! Login methods, in all protocol versions.

use std::sync::Arc;

use super::error::RequestError;
use super::server::Server;
use permission::account::AccountProperty;
use providers::auth::Auth;

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
        "there is no such method; the only one that can be asked for is \"{only}\""
    )))
}

/// Deletes the keys and logins that adjutant has stored. Keys in variables, in the configuration
/// and in OpenCode's files stay. Refused for a user who is one of several, because all of them use
/// these keys.
pub fn log_out(
    server: &Arc<Server>,
) -> impl Future<Output = Result<(), RequestError>> + Send + 'static {
    let environment = server.shared.environment.clone();
    let allowed = server.shared.account().check(AccountProperty::ProviderKeys);
    async move {
        allowed.map_err(RequestError::AccountOnly)?;
        let forgotten = base::task::spawn_blocking(move || Auth::forget_all(&environment)).await;
        let failed = |e: std::io::Error| RequestError::Failed {
            message: format!("The stored key could not be removed: {e}."),
            advice: Some("`adjutant auth list` says where keys are.".into()),
        };
        forgotten
            .map_err(std::io::Error::other)
            .and_then(|done| done)
            .map_err(failed)
    }
}

/// A stored key or login, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The provider's id.
    pub label: String,
    /// The kind of credential, and its location.
    pub name: String,
}

/// Lists the stored keys and logins. Sends no request: whether a key is accepted is known only when
/// it is used.
pub fn known(server: &Arc<Server>) -> impl Future<Output = Vec<Account>> + Send + 'static {
    let environment = server.shared.environment.clone();
    async move {
        let places = base::task::spawn_blocking(move || Auth::places(&environment))
            .await
            .unwrap_or_default();
        let account = |(label, kind, place): (String, &str, &str)| Account {
            label,
            name: format!("{kind} {place}"),
        };
        places.into_iter().map(account).collect()
    }
}
