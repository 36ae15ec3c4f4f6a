//! Detects a model that repeats itself: the same tool with the same arguments, call after call,
//! across the steps of a turn. Failed calls that might have changed something count double.

use serde_json::Value;

use super::{History, next};
use transcript::{Call, CallState, FailureCause};

/// The repetitions that make a loop.
pub const MAX_REPETITIONS: u32 = 3;

/// The number of times that a call was made directly before, in this turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repeats {
    pub calls: u32,
    /// The number of failed ones among them, of calls that act.
    pub failed: u32,
}

impl Repeats {
    /// True if one more call would be a loop.
    pub fn is_loop(self) -> bool {
        self.calls + self.failed + 1 >= MAX_REPETITIONS
    }

    pub fn reason(self, tool: &str) -> String {
        let failed = match self.failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let times = if self.calls == 1 {
            "once".to_owned()
        } else {
            format!("{} times", self.calls)
        };
        format!(
            "{tool} was called {times} with the same arguments{failed}; the model may be stuck in a loop"
        )
    }
}

/// Counts the calls of `tool` with `input` directly before, in this turn.
pub fn count_repeats(history: &History, tool: &str, input: &Value) -> Repeats {
    let calls: Vec<&Call> = next::current_turn(history)
        .iter()
        .flat_map(|m| m.calls())
        .collect();
    let finished = calls
        .iter()
        .rev()
        .filter(|call| !matches!(call.state, CallState::Pending));
    let same = finished.take_while(|call| {
        call.tool == tool && *call.input == *input && !has_new_information(call)
    });
    same.fold(Repeats::default(), |so_far, call| Repeats {
        calls: so_far.calls + 1,
        failed: so_far.failed + u32::from(call.kind.acts() && has_failed(call)),
    })
}

/// Counts this turn's calls of `tool` with `input` that were refused because no user was present.
pub fn count_refusals(history: &History, tool: &str, input: &Value) -> u32 {
    let calls = next::current_turn(history).iter().flat_map(|m| m.calls());
    let refused = |call: &&Call| call.state.cause() == Some(FailureCause::Unanswered);
    let same = calls
        .filter(|call| call.tool == tool && *call.input == *input)
        .filter(refused);
    u32::try_from(same.count()).unwrap_or(u32::MAX)
}

/// True if the call ran and failed: a refused call has had no effect.
fn has_failed(call: &Call) -> bool {
    call.state
        .cause()
        .is_some_and(|cause| cause != FailureCause::Unanswered)
}

/// True if the call returned new information: repeated looks at running work are not a
/// loop, nor is a change that is sent again after the model was shown a text that it had not seen.
fn has_new_information(call: &Call) -> bool {
    call.state
        .facts()
        .is_some_and(|facts| facts.has_new_information == Some(true))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::next::tests::{assistant, call, user};
    use super::*;
    use transcript::Completed;

    #[test]
    fn only_unbroken_repetition_counts() {
        let ok = |input: &str| {
            call(
                "c",
                "bash",
                json!({ "command": input }),
                CallState::Completed(Completed::default()),
            )
        };
        let failed = |input: &str| {
            let state = CallState::failed("x");
            call("c", "bash", json!({ "command": input }), state)
        };
        let history = |calls: Vec<transcript::Content>| {
            let mut messages = vec![user("hi", false)];
            messages.extend(calls.into_iter().map(|call| assistant(None, vec![call])));
            History::from(messages)
        };
        let input = json!({ "command": "a" });
        let table = [
            (vec![], 0),
            (vec![ok("a")], 1),
            (vec![ok("a"), ok("a")], 2),
            (vec![ok("a"), ok("b"), ok("a")], 1),
            (vec![failed("a"), ok("a")], 3),
            (vec![ok("a"), ok("b")], 0),
        ];
        for (calls, expected) in table {
            let found = count_repeats(&history(calls), "bash", &input);
            assert_eq!(found.calls + found.failed, expected);
        }
        let mut before = history(vec![ok("a"), ok("a")]);
        before.messages.push(user("again", false));
        assert_eq!(
            count_repeats(&before, "bash", &input),
            Repeats::default(),
            "an earlier turn does not count"
        );
    }
}
