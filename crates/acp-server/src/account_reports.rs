//! The stored keys and logins, as far as a client was informed of them.

use std::sync::Mutex;

use base::lock::lock;

/// A stored key or login, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The provider's id.
    pub label: String,
    /// The kind of credential, and its location.
    pub name: String,
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
    pub(super) fn begin_update(&self) -> bool {
        let mut state = lock(&self.state);
        if state.reported.is_none() {
            // The first answer may be on its way, with keys that were read before.
            state.updates += 1;
            return false;
        }
        state.is_due = true;
        !std::mem::replace(&mut state.is_updating, true)
    }

    /// Returns whether the keys have to be read, and ends the update if not.
    pub(super) fn continue_or_end(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_updating = std::mem::take(&mut state.is_due);
        state.is_updating
    }

    /// Records an update. Returns whether it differs from the last report.
    pub(super) fn update(&self, known: &[Account]) -> bool {
        let mut state = lock(&self.state);
        let differs = state.reported.as_deref() != Some(known);
        if differs {
            state.reported = Some(known.to_vec());
            state.updates += 1;
        }
        differs
    }

    /// Returns the number of updates so far.
    pub(super) fn updates(&self) -> u64 {
        lock(&self.state).updates
    }

    /// Records that the client has received an answer, which was read after `updates`. Returns
    /// whether an update may have overtaken it, which the client then has to get again.
    pub(super) fn record_answer(&self, known: Vec<Account>, updates: u64) -> bool {
        let mut state = lock(&self.state);
        state.reported = Some(known);
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
