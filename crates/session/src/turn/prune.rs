//! Removal of old tool output from the model's view: at the end of a turn if the gain is worth a
//! miss of the provider's cache; within a turn only if the window is full. The history and the
//! client still have the output.

use super::{History, TurnContext, size};
use tools::registry::find_properties;
use transcript::{CallState, Content, Message};

/// The newest output that is never removed, in tokens.
const PROTECTED_TOKENS: u64 = 40_000;
/// The minimum gain, in tokens.
const MIN_FREED_TOKENS: u64 = 20_000;
/// The number of latest turns whose output is never removed.
const PROTECTED_TURNS: usize = 2;

/// Returns the outputs to remove, as indexes of messages and parts; empty if the gain is too small.
pub fn prunable_outputs(history: &History) -> Vec<(usize, usize)> {
    let mut turns = 0;
    let mut total = 0;
    let mut freed = 0;
    let mut old = Vec::new();
    'all: for (at, message) in history.messages.iter().enumerate().rev() {
        if message.is_summary() {
            break;
        }
        if message.is_prompt() {
            turns += 1;
            continue;
        }
        if turns < PROTECTED_TURNS {
            continue;
        }
        for (index, part) in message.parts.iter().enumerate().rev() {
            let Content::Tool(call) = &part.content else {
                continue;
            };
            let CallState::Completed(done) = &call.state else {
                continue;
            };
            if done.cleared.is_some() {
                break 'all;
            }
            if find_properties(&call.tool).is_some_and(|tool| tool.keeps_output) {
                continue;
            }
            let tokens = size::output(done);
            total += tokens;
            if total > PROTECTED_TOKENS {
                freed += tokens;
                old.push((at, index));
            }
        }
    }
    if freed < MIN_FREED_TOKENS {
        Vec::new()
    } else {
        old
    }
}

/// Removes old output from view. Returns true if there was any.
pub async fn prune(history: &mut History, turn: &TurnContext) -> bool {
    if !turn.project.context.settings.compaction.prune {
        return false;
    }
    let old = prunable_outputs(history);
    let now = turn.now();
    for (at, part_index) in &old {
        let Message { id, parts, .. } = &mut history.messages[*at];
        let part = &mut parts[*part_index];
        if let Content::Tool(call) = &mut part.content
            && let CallState::Completed(done) = &mut call.state
        {
            done.cleared = Some(now);
            turn.session.recorder.part(id, part).await;
        }
    }
    if !old.is_empty() {
        tracing::info!(
            "the output of {} old calls is out of the model's view",
            old.len()
        );
    }
    !old.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::next::tests::{assistant, call, user};
    use super::*;
    use base::environment::Timestamp;
    use transcript::{Completed, Finish, Role};

    #[test]
    fn only_old_and_large_output_is_removed() {
        let used = |tool: &str, tokens: usize, cleared: bool| {
            let cleared = cleared.then_some(Timestamp(1));
            let done = Completed {
                output: "x".repeat(tokens * 4).into(),
                cleared,
                ..Completed::default()
            };
            assistant(
                Some(Finish::ToolCalls),
                vec![call("c", tool, json!({}), CallState::Completed(done))],
            )
        };
        let turn = |messages: Vec<Message>| {
            let mut turn = vec![user("hi", false)];
            turn.extend(messages);
            turn
        };
        let summary = || {
            let mut summary = assistant(Some(Finish::Stop), vec![]);
            if let Role::Assistant(a) = &mut summary.role {
                a.summary = true;
            }
            summary
        };
        let latest = || [turn(vec![used("read", 90_000, false)]), turn(vec![])].concat();
        let table: Vec<(&str, Vec<Message>, Vec<usize>)> = vec![
            ("nothing", vec![], vec![]),
            ("the two latest turns stay", turn(vec![]), vec![]),
            ("40k stay", turn(vec![used("read", 40_000, false)]), vec![]),
            (
                "less than 20k is not worth it",
                turn(vec![
                    used("read", 19_999, false),
                    used("read", 40_000, false),
                ]),
                vec![],
            ),
            (
                "20k are",
                turn(vec![
                    used("read", 20_000, false),
                    used("read", 40_000, false),
                ]),
                vec![1],
            ),
            (
                "skills stay, and do not count",
                turn(vec![
                    used("read", 30_000, false),
                    used("skill", 50_000, false),
                    used("read", 40_000, false),
                ]),
                vec![1],
            ),
            (
                "what is before a cleared one is cleared already",
                turn(vec![
                    used("read", 90_000, false),
                    used("read", 1, true),
                    used("read", 40_000, false),
                ]),
                vec![],
            ),
            (
                "what is before a summary is out of view",
                [
                    turn(vec![used("read", 90_000, false)]),
                    vec![summary()],
                    turn(vec![used("read", 40_000, false)]),
                ]
                .concat(),
                vec![],
            ),
        ];
        for (name, before, expected) in table {
            let messages = [before, latest()].concat();
            let found: Vec<usize> = prunable_outputs(&History::from(messages))
                .into_iter()
                .map(|(at, _)| at)
                .collect();
            assert_eq!(found, expected, "{name}");
        }
    }
}
