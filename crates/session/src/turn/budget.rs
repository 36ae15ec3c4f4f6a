//! What a turn may cost. One budget for the turn and for everybody it sets to work: who asks a model
//! pays from it, and nobody asks for more when it is spent, but for their last words.

use std::sync::Mutex;

use base::lock::locked;

/// US dollars that a turn and its subagents have spent, as far as prices are known. A std mutex: a leaf
/// around a number.
#[derive(Debug, Default)]
pub struct TurnBudget(Mutex<f64>);

/// How it is with the money of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Remaining {
    /// There is some, or nobody counts it.
    #[default]
    Left,
    /// All of it is spent; one more step is for last words.
    Spent,
    Over,
}

impl TurnBudget {
    /// Pays what an answer has cost.
    pub fn pay(&self, dollars: Option<f64>) {
        *locked(&self.0) += dollars.unwrap_or_default();
    }

    /// Whether all of it is spent, where it may cost so much at `most`. Who never paid anything has no
    /// price to count with.
    pub fn is_empty(&self, most: Option<f64>) -> bool {
        let spent = *locked(&self.0);
        most.is_some_and(|most| spent > 0.0 && spent >= most)
    }
}

/// For people and models: what has ended.
pub fn spent(most: f64) -> String {
    format!("The turn and its subagents have reached the limit of {most} US dollars (`budget.cost`).")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_paid_is_gone() {
        let table = [
            (vec![], Some(0.0), false),
            (vec![None], Some(0.0), false),
            (vec![Some(0.1)], Some(0.0), true),
            (vec![Some(1.0), None, Some(0.4)], Some(1.5), false),
            (vec![Some(1.0), Some(0.5)], Some(1.5), true),
            (vec![Some(1000.0)], None, false),
        ];
        for (paid, most, empty) in table {
            let budget = TurnBudget::default();
            paid.iter().for_each(|dollars| budget.pay(*dollars));
            assert_eq!(budget.is_empty(most), empty, "{paid:?} of {most:?}");
        }
    }
}
