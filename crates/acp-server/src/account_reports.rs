//! [`AccountReports`], the record of the stored keys and logins that were reported to a client. It keeps
//! updates and responses in order: only one update is made at a time, and an update that may have
//! overtaken a response is sent again after it.

use std::sync::Mutex;

use base::lock::lock;

/// A stored key or login, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The provider's id.
    pub label: String,
    /// The kind of credential and its location, such as `key in auth.json`.
    pub name: String,
}

/// The keys and logins that were reported to a client.
#[derive(Default)]
pub struct AccountReports {
    // A std mutex around values: a leaf lock.
    state: Mutex<ReportState>,
}

#[derive(Default)]
struct ReportState {
    /// The last report; `None` before the client's first request for one.
    reported: Option<Vec<Account>>,
    /// The number of updates so far, including those before the first request, which were not sent.
    updates: u64,
    /// An update is being made. There is at most one.
    is_updating: bool,
    /// The keys may have changed since the update that is being made has read them.
    must_read_again: bool,
}

impl AccountReports {
    /// Begins an update. Returns `false` if none is needed: the client has not asked for reports, or
    /// another update is being made, which will read the keys again.
    pub(super) fn begin_update(&self) -> bool {
        let mut state = lock(&self.state);
        if state.reported.is_none() {
            // The first response may be on its way, with keys that were read before.
            state.updates += 1;
            return false;
        }
        state.must_read_again = true;
        !std::mem::replace(&mut state.is_updating, true)
    }

    /// Returns whether the keys have to be read once more. If not, the update has ended.
    pub(super) fn continue_or_end(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_updating = std::mem::take(&mut state.must_read_again);
        state.is_updating
    }

    /// Records the accounts that an update has read. Returns whether they differ from the last report,
    /// so that they have to be sent.
    pub(super) fn update(&self, accounts: &[Account]) -> bool {
        let mut state = lock(&self.state);
        let differs = state.reported.as_deref() != Some(accounts);
        if differs {
            state.reported = Some(accounts.to_vec());
            state.updates += 1;
        }
        differs
    }

    /// Returns the number of updates so far.
    pub(super) fn updates(&self) -> u64 {
        lock(&self.state).updates
    }

    /// Records that a response with `accounts` was sent. `updates` is the number of updates before the
    /// accounts were read. Returns whether an update may have overtaken the response, so that it has
    /// to be sent again.
    pub(super) fn record_response(&self, accounts: Vec<Account>, updates: u64) -> bool {
        let mut state = lock(&self.state);
        state.reported = Some(accounts);
        state.updates != updates || state.is_updating
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
        assert!(reports.record_response(accounts(&["a"]), first));
        let first = reports.updates();
        assert!(!reports.record_response(accounts(&["a"]), first));
        assert!(reports.begin_update() && reports.continue_or_end());
        // A change while the keys are read.
        assert!(!reports.begin_update());
        assert!(reports.update(&accounts(&["b"])));
        assert!(reports.continue_or_end(), "the change is looked for");
        assert!(!reports.update(&accounts(&["b"])));
        assert!(!reports.continue_or_end());
        assert!(reports.begin_update() && reports.continue_or_end() && !reports.continue_or_end());
        // An answer that was read before the update and sent after it: the update is sent again.
        assert!(reports.record_response(accounts(&["a"]), first));
        assert!(reports.begin_update() && reports.continue_or_end());
        assert!(reports.update(&accounts(&["b"])));
        // One that was sent while an update was made, which the update may have overtaken.
        let now = reports.updates();
        assert!(reports.record_response(accounts(&["a"]), now));
        assert!(reports.update(&accounts(&["b"])));
    }
}
