//! Ways to log in, whichever version asks.

use std::sync::Arc;

use super::error::Refusal;
use super::server::Server;
use permission::account::AccountProperty;
use providers::auth::Auth;

/// A way to log in, as the editor shows it.
pub struct LoginMethod {
    pub id: &'static str,
    pub name: &'static str,
    pub description: &'static str,
}

/// The one way to log in that every editor may offer: there is nothing to do in it. Keys come from
/// the environment and the configuration.
pub const KEYS: LoginMethod = LoginMethod {
    id: "adjutant-keys",
    name: "Keys from the environment or configuration",
    description: "Set the provider's key, such as ANTHROPIC_API_KEY, before the editor starts. Nothing is needed for the offline model and local servers.",
};

/// The login that the editor runs in a terminal: our command line with an argument appended.
pub const AT_THE_TERMINAL: LoginMethod = LoginMethod {
    id: "adjutant-terminal",
    name: "Log in at the terminal",
    description: "Keeps a provider's key, or logs in with a browser where the provider can.",
};

/// The argument that makes a login of our command line.
pub const ARGUMENT: &str = "--login";

/// Logs in: at once, and as often as an editor likes.
///
/// # Errors
/// There is no such method, or not here.
pub fn log_in(server: &Server, method: &str) -> Result<(), Refusal> {
    if method == KEYS.id || method == AT_THE_TERMINAL.id && server.capabilities().runs_logins {
        return Ok(());
    }
    let only = KEYS.id;
    Err(Refusal::Invalid(format!("there is no such method; the only one that can be asked for is \"{only}\"")))
}

/// Forgets what adjutant itself keeps. Keys of variables, of the configuration and of OpenCode are not ours to
/// forget. Nothing is forgotten for a user who is one of several: all of them use these keys.
pub fn log_out(server: &Arc<Server>) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
    let environment = server.shared.environment.clone();
    let allowed = server.shared.account().check(AccountProperty::ProviderKeys);
    async move {
        allowed.map_err(Refusal::AccountOnly)?;
        let forgotten = base::task::spawn_blocking(move || Auth::forget_all(&environment)).await;
        let failed = |e: std::io::Error| Refusal::Failed {
            message: format!("What is kept could not be forgotten: {e}."),
            advice: Some("`adjutant auth list` says where keys are.".into()),
        };
        forgotten.map_err(std::io::Error::other).and_then(|done| done).map_err(failed)
    }
}

/// Something that providers know the user by, for display.
pub struct Account {
    /// The provider's id.
    pub label: String,
    /// What is kept, and where.
    pub name: String,
}

/// What is kept of keys and logins. Nothing is asked of anybody: whether a key is accepted is known when it is used.
pub fn known(server: &Arc<Server>) -> impl Future<Output = Vec<Account>> + Send + 'static {
    let environment = server.shared.environment.clone();
    async move {
        let places = base::task::spawn_blocking(move || Auth::places(&environment)).await.unwrap_or_default();
        let account = |(label, kind, place): (String, &str, &str)| Account { label, name: format!("{kind} {place}") };
        places.into_iter().map(account).collect()
    }
}
