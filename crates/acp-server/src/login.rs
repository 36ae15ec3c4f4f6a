//! Login methods, in all protocol versions.

use std::sync::{Arc, Mutex};

use super::error::RequestError;
use super::server::Server;
use base::lock::locked;
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
        let deleted = base::task::spawn_blocking(move || Auth::forget_all(&environment)).await;
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
pub fn accounts(server: &Arc<Server>) -> impl Future<Output = Vec<Account>> + Send + 'static {
    let environment = server.shared.environment.clone();
    async move {
        let places = base::task::spawn_blocking(move || Auth::places(&environment))
            .await
            .unwrap_or_default();
        let account = |(label, kind, source): (String, &str, &str)| Account {
            label,
            name: format!("{kind} {source}"),
        };
        places.into_iter().map(account).collect()
    }
}

/// The keys and logins that a client was informed of.
#[derive(Default)]
pub struct AccountReports {
    // A std mutex around values: a leaf lock.
    state: Mutex<ReportState>,
}

#[derive(Default)]
struct ReportState {
    /// The last report; `None` before the client's first request for one.
    reported: Option<Vec<Account>>,
    /// The number of reports without a request, and of changes before the first answer.
    updates: u64,
    /// Set while an update is being made; there is at most one.
    is_updating: bool,
    /// Set if the keys may have changed since the present update has read them.
    is_due: bool,
}

impl AccountReports {
    /// Begins an update. Returns `false` if the client has not asked for reports, or if the update
    /// that is being made will look again.
    fn begin_update(&self) -> bool {
        let mut state = locked(&self.state);
        if state.reported.is_none() {
            // The first answer may be on its way, with keys that were read before.
            state.updates += 1;
            return false;
        }
        state.is_due = true;
        !std::mem::replace(&mut state.is_updating, true)
    }

    /// Returns whether the keys have to be read, and ends the update if not.
    fn continue_or_end(&self) -> bool {
        let mut state = locked(&self.state);
        state.is_updating = std::mem::take(&mut state.is_due);
        state.is_updating
    }

    /// Records an update. Returns whether it differs from the last report.
    fn update(&self, known: &[Account]) -> bool {
        let mut state = locked(&self.state);
        let differs = state.reported.as_deref() != Some(known);
        if differs {
            state.reported = Some(known.to_vec());
            state.updates += 1;
        }
        differs
    }

    /// Returns the number of updates so far.
    fn updates(&self) -> u64 {
        locked(&self.state).updates
    }

    /// Records that the client has received an answer, which was read after `updates`. Returns
    /// whether an update may have overtaken it, which the client then has to get again.
    fn record_answer(&self, known: Vec<Account>, updates: u64) -> bool {
        let mut state = locked(&self.state);
        state.reported = Some(known);
        state.updates != updates || state.is_updating
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

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(names: &[&str]) -> Vec<Account> {
        let account = |name: &&str| Account {
            label: (*name).to_owned(),
            name: "key".into(),
        };
        names.iter().map(account).collect()
    }

    #[test]
    fn one_update_is_made_at_a_time_and_the_newest_is_last() {
        let reports = AccountReports::default();
        assert!(!reports.begin_update(), "nobody has asked");
        let first = reports.updates();
        assert!(!reports.begin_update());
        // The first answer was read before a change.
        assert!(reports.record_answer(accounts(&["a"]), first));
        let first = reports.updates();
        assert!(!reports.record_answer(accounts(&["a"]), first));
        assert!(reports.begin_update() && reports.continue_or_end());
        // A change while the keys are read.
        assert!(!reports.begin_update());
        assert!(reports.update(&accounts(&["b"])));
        assert!(reports.continue_or_end(), "the change is looked for");
        assert!(!reports.update(&accounts(&["b"])));
        assert!(!reports.continue_or_end());
        assert!(reports.begin_update() && reports.continue_or_end() && !reports.continue_or_end());
        // An answer that was read before the update and sent after it: the update is sent again.
        assert!(reports.record_answer(accounts(&["a"]), first));
        assert!(reports.begin_update() && reports.continue_or_end());
        assert!(reports.update(&accounts(&["b"])));
        // One that was sent while an update was made, which the update may have overtaken.
        let now = reports.updates();
        assert!(reports.record_answer(accounts(&["a"]), now));
        assert!(reports.update(&accounts(&["b"])));
    }
}
