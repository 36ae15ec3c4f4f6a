//! The budget of a turn, shared with its subagents: every request to a model is paid from it, and
//! when it is spent, only one more step is made, for a final text.

use std::sync::Mutex;

use base::lock::lock;
use transcript::Usage;

/// The tokens that a turn and its subagents have used, and the US dollars that they have spent, as
/// far as prices are known. A std mutex is enough: it only guards numbers.
#[derive(Debug, Default)]
pub struct TurnBudget(Mutex<Spent>);

#[derive(Debug, Default)]
struct Spent {
    dollars: f64,
    usage: Usage,
}

/// The state of a turn's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BudgetState {
    /// Some is left, or there is no limit.
    #[default]
    Left,
    /// All of it is spent; one more step is made for a final text.
    Spent,
    /// All of it is spent, and the last step was made.
    Over,
}

impl TurnBudget {
    /// Adds the tokens of an answer, and its cost.
    pub fn add_usage(&self, usage: &Usage, dollars: Option<f64>) {
        let mut spent = lock(&self.0);
        spent.dollars += dollars.unwrap_or_default();
        spent.usage.add(usage);
    }

    /// Returns the tokens of all answers so far.
    pub fn usage(&self) -> Usage {
        lock(&self.0).usage
    }

    /// True if the budget of `limit` US dollars is spent. Never if nothing was paid so far,
    /// because the prices are then unknown.
    pub fn is_spent(&self, limit: Option<f64>) -> bool {
        let spent = lock(&self.0).dollars;
        limit.is_some_and(|limit| spent > 0.0 && spent >= limit)
    }
}

/// Returns the message for users and models about a spent budget.
pub fn spent_message(limit: f64) -> String {
    format!(
        "The turn and its subagents have reached the limit of {limit} US dollars (`budget.cost`)."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_empty_when_limit_is_paid() {
        let table = [
            (vec![], Some(0.0), false),
            (vec![None], Some(0.0), false),
            (vec![Some(0.1)], Some(0.0), true),
            (vec![Some(1.0), None, Some(0.4)], Some(1.5), false),
            (vec![Some(1.0), Some(0.5)], Some(1.5), true),
            (vec![Some(1000.0)], None, false),
        ];
        for (paid, limit, empty) in table {
            let budget = TurnBudget::default();
            let usage = Usage {
                input: 2,
                cache_write: 1,
                ..Usage::default()
            };
            paid.iter()
                .for_each(|dollars| budget.add_usage(&usage, *dollars));
            assert_eq!(budget.is_spent(limit), empty, "{paid:?} of {limit:?}");
            assert_eq!(budget.usage().context(), 3 * paid.len() as u64, "{paid:?}");
        }
    }
}
