//! The next action of a turn, decided from the history alone.

use serde_json::Value;

use super::budget::BudgetState;
use super::{History, TurnOutcome, images, size, view};
use base::text::thousands;
use tools::Tool;
use tools::conversation::question::QuestionTool;
use tools::conversation::structured_output;
use tools::conversation::task::TaskTool;
use tools::denial_message::YOU_REJECTED;
use transcript::{
    Call, CallState, Content, FailureCause, Fault, FaultKind, Finish, Message, Part, Role,
};

#[derive(Debug, Clone, PartialEq)]
pub enum NextAction {
    Step {
        /// The number of steps that the turn has made.
        made: u32,
        /// True if it is the last allowed step: no tools are offered.
        last: bool,
    },
    /// Run the subagents that the user requested.
    RunSubtasks,
    /// Ask the model for the structured result that it has not given yet.
    RequestResult,
    /// Ask the model to continue a text that was cut off at the output limit.
    ContinueCutOff,
    /// Ask the model to continue: its provider gave no reason for the end of the answer.
    ContinueUnexplained,
    /// Leave out pictures that the provider rejects.
    LeaveOutImages,
    Compact(CompactionTrigger),
    Finish(TurnOutcome),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionTrigger {
    Requested,
    Full,
    /// The provider refused the request as too long.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// The maximum of steps; `None` for no limit.
    pub max_steps: Option<u32>,
    /// True if the turn may cost more.
    pub budget: BudgetState,
    /// True if the turn continues after the user rejected a call without a comment.
    pub continues_after_rejection: bool,
    /// The tokens that fit before the history must be summarised; `None` if it is never
    /// summarised automatically.
    pub usable_tokens: Option<u64>,
}

/// Returns the next action. The turn begins at the last user message that is not synthetic.
pub fn decide_next(history: &History, limits: &Limits) -> NextAction {
    let answered = |m: &&Message| m.assistant().is_some_and(|a| !a.summary);
    let made =
        u32::try_from(current_turn(history).iter().filter(answered).count()).unwrap_or(u32::MAX);
    let step = || match limits.max_steps {
        Some(most) if made >= most => NextAction::Finish(TurnOutcome::StepLimit),
        _ if limits.budget == BudgetState::Over => NextAction::Finish(TurnOutcome::StepLimit),
        _ if is_window_full(history, limits) => compact_if_useful(history, limits),
        Some(most) if made + 1 >= most => NextAction::Step { made, last: true },
        _ => NextAction::Step {
            made,
            last: limits.budget == BudgetState::Spent,
        },
    };
    let Some(last) = history.messages.last() else {
        return NextAction::Finish(TurnOutcome::Ended);
    };
    let Role::Assistant(assistant) = &last.role else {
        if !limits.continues_after_rejection && rejected_calls(last).next().is_some() {
            return NextAction::Finish(TurnOutcome::Rejected);
        }
        let work = |part: &Part| matches!(part.content, Content::Subtask { .. });
        return if last.parts.iter().any(work) {
            NextAction::RunSubtasks
        } else {
            step()
        };
    };
    if let Some(fault) = &assistant.fault {
        let refused = fault.kind == FaultKind::ContextOverflow && limits.usable_tokens.is_some();
        if fault.kind == FaultKind::Image && images::has_sendable_image(history) {
            return NextAction::LeaveOutImages;
        }
        return if refused && !is_last_summary_futile(history) {
            NextAction::Compact(CompactionTrigger::Refused)
        } else {
            NextAction::Finish(TurnOutcome::Failed(fault.clone()))
        };
    }
    if last.is_summary() {
        return step();
    }
    if !limits.continues_after_rejection && rejected_calls(last).next().is_some() {
        return NextAction::Finish(TurnOutcome::Rejected);
    }
    let owes = current_turn(history)
        .first()
        .is_some_and(|prompt| prompt.format().is_some());
    if owes && structured_result(history).is_some() {
        return NextAction::Finish(TurnOutcome::Ended);
    }
    if owes && count_text_answers(history) + count_invalid_results(history) >= MAX_MISSED_RESULTS {
        return NextAction::Finish(TurnOutcome::Failed(Fault {
            kind: FaultKind::Provider,
            message: missed_result(history),
            advice: Some("Try again, choose another model, or make the schema simpler.".into()),
        }));
    }
    // Some providers report "stop" although the answer contains calls. A call that was cut off
    // has been answered, and the turn continues.
    if last.calls().next().is_some() && count_cut_off_answers(history) < MAX_CUT_OFF {
        return step();
    }
    NextAction::Finish(match assistant.finish {
        Some(Finish::Length) if count_cut_off_answers(history) < MAX_CUT_OFF => {
            return NextAction::ContinueCutOff;
        }
        Some(Finish::Length) => TurnOutcome::MaxTokens,
        Some(Finish::Refusal) => TurnOutcome::Refused,
        Some(Finish::NotDone) => TurnOutcome::NotDone,
        _ if owes => return NextAction::RequestResult,
        Some(Finish::Other) if count_unexplained_answers(history) < MAX_UNEXPLAINED => {
            return NextAction::ContinueUnexplained;
        }
        _ => TurnOutcome::Ended,
    })
}

/// Returns the outcome of the last turn; `None` if it did not end because its process was lost or
/// gave it up.
pub fn last_outcome(history: &History) -> Option<TurnOutcome> {
    match decide_next(history, &Limits::default()) {
        NextAction::Finish(TurnOutcome::Failed(fault)) if fault.kind == FaultKind::Interrupted => {
            None
        }
        NextAction::Finish(outcome) => Some(outcome),
        _ => None,
    }
}

/// Returns the notice for a turn that has reached its step limit.
pub fn step_limit_text(history: &History) -> String {
    let made = current_turn(history)
        .iter()
        .filter(|m| m.assistant().is_some_and(|a| !a.summary))
        .count();
    format!(
        "The turn has reached its limit of {}.",
        base::text::count(made, "step")
    )
}

/// The cut-off answers in a row after which the turn ends.
const MAX_CUT_OFF: usize = 3;

/// Counts the answers at the end of the turn that were cut off.
fn count_cut_off_answers(history: &History) -> usize {
    let answers = current_turn(history)
        .iter()
        .rev()
        .filter_map(Message::assistant)
        .filter(|answer| !answer.summary);
    answers
        .take_while(|answer| matches!(answer.finish, Some(Finish::Length | Finish::Refusal)))
        .count()
}

/// The answers without a finish reason in a row after which the turn ends.
const MAX_UNEXPLAINED: usize = 2;

/// Counts the answers at the end of the turn that stopped for an unknown reason.
fn count_unexplained_answers(history: &History) -> usize {
    let answers = current_turn(history)
        .iter()
        .rev()
        .filter_map(Message::assistant)
        .filter(|answer| !answer.summary);
    answers
        .take_while(|answer| answer.finish == Some(Finish::Other))
        .count()
}

/// The missing or invalid results after which the turn fails.
const MAX_MISSED_RESULTS: usize = 4;

/// Returns the accepted structured result of a call.
pub fn result(call: &Call) -> Option<&Value> {
    match &call.state {
        CallState::Completed(done) if call.tool == structured_output::NAME => {
            done.facts.result.as_ref()
        }
        _ => None,
    }
}

/// Returns the structured result in the last message: that of a call, or a complete answer in text
/// that fits the requested schema.
pub fn structured_result(history: &History) -> Option<Value> {
    let last = history.messages.last()?;
    if let Some(result) = last.calls().find_map(result) {
        return Some(result.clone());
    }
    let is_complete = last
        .assistant()
        .is_some_and(|answer| answer.finish == Some(Finish::Stop));
    if !is_complete || last.calls().next().is_some() {
        return None;
    }
    let schema = current_turn(history).first().and_then(Message::format)?;
    let texts = last.answer().iter().filter_map(|part| match &part.content {
        Content::Text(text) => Some(&*text.text),
        _ => None,
    });
    structured_output::parse_answer(schema, &texts.collect::<String>())
}

/// Returns the subagents that the user has named with `@` in the running turn.
pub fn named_subagents(history: &History) -> Vec<String> {
    let parts = current_turn(history)
        .iter()
        .filter(|m| m.user().is_some())
        .flat_map(|m| &m.parts);
    let name = |part: &Part| match &part.content {
        Content::Agent { name } => Some(name.clone()),
        _ => None,
    };
    parts.filter_map(name).collect()
}

/// Counts the answers of this turn without a call.
fn count_text_answers(history: &History) -> usize {
    let words =
        |m: &&Message| m.assistant().is_some_and(|a| !a.summary) && m.calls().next().is_none();
    current_turn(history).iter().filter(words).count()
}

/// Counts the structured results of this turn that did not fit the schema.
fn count_invalid_results(history: &History) -> usize {
    failed_results(history).count()
}

fn failed_results(history: &History) -> impl Iterator<Item = &Call> {
    let is_failed = |call: &&Call| {
        call.tool == structured_output::NAME && matches!(call.state, CallState::Failed { .. })
    };
    current_turn(history)
        .iter()
        .flat_map(Message::calls)
        .filter(is_failed)
}

/// Describes a result that did not come: with the mistakes of the last one, if the model gave any.
fn missed_result(history: &History) -> String {
    const MAX_MISTAKE_BYTES: usize = 400;
    let schema = current_turn(history).first().and_then(Message::format);
    let last = failed_results(history).last();
    let mistakes = last
        .zip(schema)
        .and_then(|(call, schema)| structured_output::mistakes(schema, &call.input));
    match mistakes {
        Some(mistakes) => {
            let lines = mistakes.trim().lines();
            let mistakes: Vec<&str> = lines.map(|line| line.trim_start_matches("- ")).collect();
            format!(
                "The model did not give a result that fits the schema. The mistakes in its last one: {}.",
                base::text::head(&mistakes.join("; "), MAX_MISTAKE_BYTES)
            )
        }
        None if last.is_some() => "The model did not give a result: its calls failed.".into(),
        None => {
            "The model did not give a result that fits the schema: it answered with text.".into()
        }
    }
}

fn is_window_full(history: &History, limits: &Limits) -> bool {
    limits
        .usable_tokens
        .is_some_and(|usable| size::next_request_tokens(history) >= usable)
}

/// Decides on a full window: it is summarised, unless a summary has just been made without success.
fn compact_if_useful(history: &History, limits: &Limits) -> NextAction {
    let usable = limits.usable_tokens.unwrap_or(u64::MAX);
    let since = since_compaction(history);
    // The size of the first request after the summary, as counted by the provider.
    let first_request_tokens = since
        .and_then(|since| since.iter().find_map(Message::assistant))
        .map(|first| {
            let usage = first.usage;
            usage.input + usage.cache_read + usage.cache_write
        });
    match first_request_tokens {
        Some(tokens) if tokens >= usable => NextAction::Finish(TurnOutcome::Failed(Fault {
            kind: FaultKind::ContextOverflow,
            message: format!(
                "The conversation was summarised and still takes {} tokens; {} fit.",
                thousands(tokens),
                thousands(usable)
            ),
            advice: Some("Choose a model with a larger context, or start a new session.".into()),
        })),
        _ => NextAction::Compact(CompactionTrigger::Full),
    }
}

/// True if the visible history is estimated to be too large, for providers that report no
/// usage. Every request has `fixed` further tokens. Always `false` if a summary would not help or
/// has just been made.
pub fn exceeds_window(history: &History, limits: &Limits, fixed: u64) -> bool {
    let Some(usable) = limits.usable_tokens else {
        return false;
    };
    if size::next_request_tokens(history) != 0 || is_last_summary_futile(history) {
        return false;
    }
    let seen = view::visible_history(history);
    let answered = seen
        .messages
        .iter()
        .skip(seen.before_compaction)
        .any(|m| m.assistant().is_some());
    let waiting = seen
        .messages
        .last()
        .filter(|last| last.is_prompt())
        .map_or(0, |prompt| size::message(prompt));
    answered && fixed + waiting < usable && fixed + size::messages(history) >= usable
}

/// The summaries in a row without progress after which the turn ends.
const MAX_FUTILE_SUMMARIES: usize = 3;

/// Returns the reason why this turn is not summarised again: its last summaries made no progress. A
/// summary makes no progress if the window is full again after at most one step, or if the summary
/// frees less than a tenth. Each summary is a paid request, and such a turn would never end.
pub fn futile_summaries_fault(history: &History, limits: &Limits) -> Option<Fault> {
    let turn = current_turn(history);
    let summaries: Vec<usize> = (0..turn.len())
        .filter(|at| turn[*at].is_summary())
        .collect();
    let ends: Vec<usize> = summaries
        .iter()
        .skip(1)
        .copied()
        .chain([turn.len()])
        .collect();
    let futile = |(start, end): (&usize, &usize)| {
        let answered = |m: &&Message| {
            m.assistant()
                .is_some_and(|a| !a.summary && a.fault.is_none())
        };
        let steps = turn[*start..*end].iter().filter(answered).count();
        let sizes = start
            .checked_sub(1)
            .and_then(|asked| turn[asked].compaction());
        steps <= 1 || sizes.is_some_and(|sizes| sizes.after > sizes.before / 10 * 9)
    };
    let in_a_row = summaries
        .iter()
        .zip(&ends)
        .rev()
        .take_while(|summary| futile(*summary))
        .count();
    if in_a_row < MAX_FUTILE_SUMMARIES {
        return None;
    }
    let sizes = summaries
        .last()
        .and_then(|at| turn[at.checked_sub(1)?].compaction());
    let sizes = sizes.map(|sizes| {
        let before = thousands(sizes.before);
        let after = thousands(sizes.after);
        format!(" The last one took it from about {before} to {after} tokens.")
    });
    let fit = limits
        .usable_tokens
        .map(|usable| format!(" {} fit.", thousands(usable)));
    Some(Fault {
        kind: FaultKind::ContextOverflow,
        message: format!(
            "The conversation was summarised {in_a_row} times in a row without making room for more than a step.{}{}",
            sizes.unwrap_or_default(),
            fit.unwrap_or_default()
        ),
        advice: Some(
            "Choose a model with a larger context, ask for less at once, or start a new session."
                .into(),
        ),
    })
}

/// True if this turn's history was summarised and no later step succeeded.
fn is_last_summary_futile(history: &History) -> bool {
    let answered = |m: &Message| m.assistant().is_some_and(|a| a.fault.is_none());
    since_compaction(history).is_some_and(|since| !since.iter().any(answered))
}

/// Returns the messages after the last compaction of this turn.
fn since_compaction(history: &History) -> Option<&[Message]> {
    let turn = current_turn(history);
    let summary = turn.iter().rposition(Message::is_summary)?;
    Some(&turn[summary + 1..])
}

/// Returns the messages of the running turn, starting with its prompt.
pub fn current_turn(history: &History) -> &[Message] {
    let start = history
        .messages
        .iter()
        .rposition(Message::is_prompt)
        .unwrap_or(0);
    &history.messages[start..]
}

/// Returns the final text of a turn whose last calls were rejected. `attended`: a user is present
/// who could have allowed them.
pub(super) fn rejection_text(message: &Message, attended: bool) -> String {
    let calls: Vec<&Call> = rejected_calls(message).collect();
    let titles = calls
        .iter()
        .map(|call| call.title.as_str())
        .collect::<Vec<_>>()
        .join("; ");
    if !attended {
        return format!(
            "Refused repeatedly, because no user is present to allow it: {titles}. The turn ends here."
        );
    }
    let all_of = |tool: &str| calls.iter().all(|call| call.tool == tool);
    if all_of(QuestionTool::NAME) {
        return "There was no answer, so I stopped here.".to_owned();
    }
    if all_of(TaskTool::NAME) {
        return format!(
            "{YOU_REJECTED}a call of a subagent ({titles}), so I stopped here. What should be done instead?"
        );
    }
    format!("{YOU_REJECTED}{titles}, so I stopped here. What should be done instead?")
}

/// Returns the calls of a message that the user has rejected: those of an answer, or those that a
/// prompt makes for its inserts.
pub(super) fn rejected_calls(message: &Message) -> impl Iterator<Item = &Call> {
    let parts = match message.user() {
        Some(_) => message.parts.as_slice(),
        None => message.answer(),
    };
    parts.iter().filter_map(|part| match &part.content {
        Content::Tool(call) if is_rejected(&call.state) => Some(call),
        _ => None,
    })
}

pub(super) fn is_rejected(state: &CallState) -> bool {
    state.cause() == Some(FailureCause::Rejected)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Map, json};

    use super::*;
    use base::environment::Timestamp;
    use base::id::{CallId, MessageId, PartId};
    use transcript::{Assistant, CallFacts, Compaction, Completed, ModelRef, Text, Usage, User};

    pub(in crate::turn) fn model() -> ModelRef {
        ModelRef {
            provider: "p".into(),
            model: "m".into(),
            effort: None,
        }
    }

    pub(in crate::turn) fn user(words: &str, synthetic: bool) -> Message {
        let text = Content::Text(Text {
            text: words.into(),
            synthetic,
            ..Text::default()
        });
        Message {
            id: MessageId::new("u"),
            created: Timestamp(0),
            role: Role::User(User {
                agent: "build".into(),
                model: model(),
            }),
            parts: vec![Part {
                id: PartId::new("p"),
                content: text,
            }],
        }
    }

    pub(in crate::turn) fn assistant(finish: Option<Finish>, parts: Vec<Content>) -> Message {
        let assistant = Assistant {
            parent: MessageId::new("u"),
            agent: "build".into(),
            model: model(),
            finish,
            fault: None,
            summary: false,
            usage: Usage::default(),
            cost: None,
            completed: None,
        };
        let part = |content| Part {
            id: PartId::new("p"),
            content,
        };
        Message {
            id: MessageId::new("a"),
            created: Timestamp(0),
            role: Role::Assistant(assistant),
            parts: parts.into_iter().map(part).collect(),
        }
    }

    pub(in crate::turn) fn call(id: &str, tool: &str, input: Value, state: CallState) -> Content {
        Content::Tool(Call {
            call: CallId::new(id),
            provider_id: None,
            tool: tool.into(),
            input: input.into(),
            kind: transcript::ToolKind::Other,
            title: String::new(),
            locations: Vec::new(),
            state,
            provider: Map::new(),
        })
    }

    fn done() -> Content {
        call(
            "c",
            "read",
            json!({}),
            CallState::Completed(Completed::default()),
        )
    }

    fn failed(cause: FailureCause) -> Content {
        let state = CallState::Failed {
            error: "no".into(),
            cause,
            coloured: None,
            facts: CallFacts::default(),
        };
        call("c", "bash", json!({}), state)
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn history_determines_next_action() {
        let stop = || assistant(Some(Finish::Stop), vec![]);
        let called = || assistant(Some(Finish::ToolCalls), vec![done()]);
        let mut faulty = stop();
        let fault = Fault {
            kind: FaultKind::Provider,
            message: "x".into(),
            advice: None,
        };
        if let Role::Assistant(a) = &mut faulty.role {
            a.fault = Some(fault.clone());
        }
        let cut = || assistant(Some(Finish::Length), vec![]);
        let other = || assistant(Some(Finish::Other), vec![]);
        let table = [
            (vec![], None, NextAction::Finish(TurnOutcome::Ended)),
            (
                vec![user("hi", false)],
                None,
                NextAction::Step {
                    made: 0,
                    last: false,
                },
            ),
            (
                vec![user("hi", false), stop()],
                None,
                NextAction::Finish(TurnOutcome::Ended),
            ),
            (
                vec![user("hi", false), called()],
                None,
                NextAction::Step {
                    made: 1,
                    last: false,
                },
            ),
            (
                vec![user("hi", false), called()],
                Some(2),
                NextAction::Step {
                    made: 1,
                    last: true,
                },
            ),
            (
                vec![user("hi", false), called(), called()],
                Some(2),
                NextAction::Finish(TurnOutcome::StepLimit),
            ),
            (
                vec![user("hi", false), called(), user("go on", true)],
                Some(5),
                NextAction::Step {
                    made: 1,
                    last: false,
                },
            ),
            (
                vec![user("hi", false), stop(), user("again", false)],
                Some(1),
                NextAction::Step {
                    made: 0,
                    last: true,
                },
            ),
            (
                vec![
                    user("hi", false),
                    assistant(Some(Finish::Stop), vec![done()]),
                ],
                None,
                NextAction::Step {
                    made: 1,
                    last: false,
                },
            ),
            (
                vec![user("hi", false), cut()],
                None,
                NextAction::ContinueCutOff,
            ),
            (
                vec![user("hi", false), cut(), user("go on", true), cut()],
                None,
                NextAction::ContinueCutOff,
            ),
            (
                vec![
                    user("hi", false),
                    cut(),
                    user("go on", true),
                    cut(),
                    user("go on", true),
                    cut(),
                ],
                None,
                NextAction::Finish(TurnOutcome::MaxTokens),
            ),
            (
                vec![user("hi", false), cut(), user("go on", true)],
                Some(1),
                NextAction::Finish(TurnOutcome::StepLimit),
            ),
            (
                vec![
                    user("hi", false),
                    cut(),
                    user("go on", true),
                    called(),
                    cut(),
                ],
                None,
                NextAction::ContinueCutOff,
            ),
            (
                vec![user("hi", false), assistant(Some(Finish::Refusal), vec![])],
                None,
                NextAction::Finish(TurnOutcome::Refused),
            ),
            (
                vec![user("hi", false), other()],
                None,
                NextAction::ContinueUnexplained,
            ),
            (
                vec![user("hi", false), other(), user("go on", true), other()],
                None,
                NextAction::Finish(TurnOutcome::Ended),
            ),
            (
                vec![
                    user("hi", false),
                    other(),
                    user("go on", true),
                    called(),
                    other(),
                ],
                None,
                NextAction::ContinueUnexplained,
            ),
            (
                vec![
                    user("hi", false),
                    assistant(
                        Some(Finish::ToolCalls),
                        vec![failed(FailureCause::Rejected)],
                    ),
                ],
                None,
                NextAction::Finish(TurnOutcome::Rejected),
            ),
            (
                vec![
                    user("hi", false),
                    assistant(
                        Some(Finish::ToolCalls),
                        vec![failed(FailureCause::Unanswered)],
                    ),
                ],
                None,
                NextAction::Step {
                    made: 1,
                    last: false,
                },
            ),
            (
                vec![
                    user("hi", false),
                    assistant(Some(Finish::ToolCalls), vec![failed(FailureCause::Error)]),
                ],
                None,
                NextAction::Step {
                    made: 1,
                    last: false,
                },
            ),
            (
                vec![user("hi", false), faulty],
                None,
                NextAction::Finish(TurnOutcome::Failed(fault)),
            ),
        ];
        for (n, (messages, steps, expected)) in table.into_iter().enumerate() {
            let limits = Limits {
                max_steps: steps,
                ..Limits::default()
            };
            assert_eq!(
                decide_next(&History::from(messages), &limits),
                expected,
                "row {n}"
            );
        }
    }

    #[test]
    fn spent_budget_allows_one_last_step() {
        let step = || assistant(Some(Finish::ToolCalls), vec![done()]);
        let go = |made, last| NextAction::Step { made, last };
        let table = [
            (vec![], BudgetState::Left, go(0, false)),
            (vec![], BudgetState::Spent, go(0, true)),
            (vec![step(), step()], BudgetState::Left, go(2, false)),
            (vec![step(), step()], BudgetState::Spent, go(2, true)),
            (vec![step(), summary()], BudgetState::Spent, go(1, true)),
            (
                vec![step()],
                BudgetState::Over,
                NextAction::Finish(TurnOutcome::StepLimit),
            ),
        ];
        for (n, (steps, money, expected)) in table.into_iter().enumerate() {
            let messages = std::iter::once(user("hi", false))
                .chain(steps)
                .collect::<Vec<_>>();
            let limits = Limits {
                budget: money,
                ..Limits::default()
            };
            assert_eq!(
                decide_next(&History::from(messages), &limits),
                expected,
                "row {n}"
            );
        }
    }

    fn named(id: &str, mut message: Message) -> Message {
        message.id = MessageId::new(id);
        message
    }

    fn counted(input: u64, mut message: Message) -> Message {
        if let Role::Assistant(assistant) = &mut message.role {
            assistant.usage = Usage {
                input,
                ..Usage::default()
            };
        }
        message
    }

    pub(in crate::turn) fn compaction(auto: bool, tail: Option<&str>) -> Message {
        let content = Content::Compaction(Compaction {
            auto,
            tail: tail.map(MessageId::new),
            ..Compaction::default()
        });
        let mut message = user("", true);
        message.parts = vec![Part {
            id: PartId::new("p"),
            content,
        }];
        named("c", message)
    }

    pub(in crate::turn) fn summary() -> Message {
        let mut summary = assistant(Some(Finish::Stop), vec![]);
        if let Role::Assistant(a) = &mut summary.role {
            a.summary = true;
            a.parent = MessageId::new("c");
        }
        summary
    }

    fn overflown() -> Message {
        let mut message = assistant(None, vec![]);
        if let Role::Assistant(a) = &mut message.role {
            a.fault = Some(Fault {
                kind: FaultKind::ContextOverflow,
                message: "too long".into(),
                advice: None,
            });
        }
        message
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn full_window_is_summarised_unless_that_was_futile() {
        let called = |input| counted(input, assistant(Some(Finish::ToolCalls), vec![done()]));
        let printed = |input, bytes: usize| {
            let done = Completed {
                output: "x".repeat(bytes).into(),
                ..Completed::default()
            };
            counted(
                input,
                assistant(
                    Some(Finish::ToolCalls),
                    vec![call("c", "bash", json!({}), CallState::Completed(done))],
                ),
            )
        };
        let hi = || user("hi", false);
        let go_on = || user("go on", true);
        let step = |made| Some(NextAction::Step { made, last: false });
        let table: Vec<(&str, Vec<Message>, Option<NextAction>)> = vec![
            ("room", vec![hi(), called(99)], step(1)),
            (
                "none",
                vec![hi(), called(100)],
                Some(NextAction::Compact(CompactionTrigger::Full)),
            ),
            (
                "what was printed since counts",
                vec![hi(), printed(90, 40)],
                Some(NextAction::Compact(CompactionTrigger::Full)),
            ),
            (
                "before the turn's first step",
                vec![hi(), called(100), hi()],
                Some(NextAction::Compact(CompactionTrigger::Full)),
            ),
            (
                "after one that was asked for",
                vec![hi(), called(100), compaction(false, None), summary(), hi()],
                step(0),
            ),
            (
                "going on",
                vec![
                    hi(),
                    called(100),
                    compaction(true, None),
                    summary(),
                    go_on(),
                ],
                step(1),
            ),
            (
                "the prompt was kept",
                vec![hi(), compaction(true, None), summary()],
                step(0),
            ),
            (
                "with progress, again",
                vec![
                    hi(),
                    compaction(true, None),
                    summary(),
                    go_on(),
                    called(50),
                    called(100),
                ],
                Some(NextAction::Compact(CompactionTrigger::Full)),
            ),
            (
                "in vain",
                vec![
                    hi(),
                    compaction(true, None),
                    summary(),
                    go_on(),
                    called(100),
                ],
                None,
            ),
            (
                "refused",
                vec![hi(), called(9), overflown()],
                Some(NextAction::Compact(CompactionTrigger::Refused)),
            ),
            (
                "refused again, with progress",
                vec![
                    hi(),
                    compaction(true, None),
                    summary(),
                    called(9),
                    overflown(),
                ],
                Some(NextAction::Compact(CompactionTrigger::Refused)),
            ),
            (
                "refused in vain",
                vec![
                    hi(),
                    called(9),
                    compaction(true, None),
                    summary(),
                    overflown(),
                ],
                None,
            ),
            (
                "a later turn may try again",
                vec![
                    hi(),
                    compaction(true, None),
                    summary(),
                    called(100),
                    hi(),
                    overflown(),
                ],
                Some(NextAction::Compact(CompactionTrigger::Refused)),
            ),
        ];
        let limits = Limits {
            usable_tokens: Some(100),
            ..Limits::default()
        };
        for (name, messages, expected) in table {
            let found = decide_next(&History::from(messages.clone()), &limits);
            match expected {
                Some(expected) => assert_eq!(found, expected, "{name}"),
                None => assert!(
                    matches!(found, NextAction::Finish(TurnOutcome::Failed(_))),
                    "{name}: {found:?}"
                ),
            }
            let never = decide_next(&History::from(messages), &Limits::default());
            assert!(
                !matches!(
                    never,
                    NextAction::Compact(CompactionTrigger::Full | CompactionTrigger::Refused)
                ),
                "{name}: never by itself"
            );
        }
    }

    #[test]
    fn futile_summaries_end_turn() {
        let sized = |before, after| {
            let mut asked = compaction(true, None);
            if let Some(Content::Compaction(sizes)) =
                asked.parts.first_mut().map(|part| &mut part.content)
            {
                (sizes.before, sizes.after) = (before, after);
            }
            asked
        };
        let step = || counted(100, assistant(Some(Finish::ToolCalls), vec![done()]));
        let round = |before, after, steps: usize| {
            let mut round = vec![sized(before, after), summary(), user("go on", true)];
            round.extend((0..steps).map(|_| step()));
            round
        };
        let history = |rounds: &[(u64, u64, usize)]| {
            let rounds = rounds
                .iter()
                .flat_map(|(before, after, steps)| round(*before, *after, *steps));
            History::from(
                [user("hi", false), step()]
                    .into_iter()
                    .chain(rounds)
                    .collect::<Vec<_>>(),
            )
        };
        // Tokens before and after each summary and the steps that follow; whether the turn
        // ends.
        type Row = (&'static [(u64, u64, usize)], bool);
        let table: &[Row] = &[
            (&[], false),
            (&[(100, 40, 1), (100, 40, 1)], false),
            (&[(100, 40, 1), (100, 40, 1), (100, 40, 1)], true),
            (&[(100, 40, 1), (100, 40, 1), (100, 40, 2)], false),
            (&[(1000, 950, 5), (1000, 950, 5), (1000, 950, 5)], true),
            (
                &[
                    (1000, 400, 5),
                    (1000, 400, 5),
                    (1000, 400, 5),
                    (1000, 400, 5),
                ],
                false,
            ),
        ];
        let limits = Limits {
            usable_tokens: Some(100),
            ..Limits::default()
        };
        for (rounds, ends) in table {
            assert_eq!(
                futile_summaries_fault(&history(rounds), &limits).is_some(),
                *ends,
                "{rounds:?}"
            );
        }
        let fault = futile_summaries_fault(&history(table[2].0), &limits).unwrap();
        assert!(
            fault
                .message
                .contains("from about 100 to 40 tokens. 100 fit."),
            "{}",
            fault.message
        );
    }

    #[test]
    fn missing_result_is_insisted_on() {
        let asks = || {
            let mut asks = user("hi", false);
            let content = Content::Format {
                schema: json!({ "type": "object" }),
            };
            asks.parts.push(Part {
                id: PartId::new("p"),
                content,
            });
            asks
        };
        let words = || assistant(Some(Finish::Stop), vec![]);
        let answers = |text: &str| {
            let text = Content::Text(Text {
                text: text.into(),
                ..Text::default()
            });
            assistant(Some(Finish::Stop), vec![text])
        };
        let again = || user("now", true);
        let given = |state| {
            assistant(
                Some(Finish::ToolCalls),
                vec![call("c", structured_output::NAME, json!({}), state)],
            )
        };
        let fits = || {
            let facts = CallFacts {
                result: Some(json!({})),
                ..CallFacts::default()
            };
            given(CallState::Completed(Completed {
                facts,
                ..Completed::default()
            }))
        };
        let wrong = || given(CallState::failed("no"));
        let table: Vec<(Vec<Message>, Option<NextAction>)> = vec![
            (vec![asks(), words()], Some(NextAction::RequestResult)),
            (
                vec![asks(), answers("{\"a\": 1} is it")],
                Some(NextAction::RequestResult),
            ),
            (
                vec![asks(), answers("[1]")],
                Some(NextAction::RequestResult),
            ),
            (
                vec![asks(), answers(" {\"a\": 1}\n")],
                Some(NextAction::Finish(TurnOutcome::Ended)),
            ),
            (
                vec![asks(), words(), again(), words()],
                Some(NextAction::RequestResult),
            ),
            (
                vec![asks(), fits()],
                Some(NextAction::Finish(TurnOutcome::Ended)),
            ),
            (
                vec![asks(), wrong()],
                Some(NextAction::Step {
                    made: 1,
                    last: false,
                }),
            ),
            (vec![asks(), wrong(), wrong(), wrong(), wrong()], None),
            (
                vec![asks(), words(), again(), wrong(), words(), again(), wrong()],
                None,
            ),
            (
                vec![asks(), fits(), user("hi", false), words()],
                Some(NextAction::Finish(TurnOutcome::Ended)),
            ),
        ];
        for (n, (messages, expected)) in table.into_iter().enumerate() {
            let found = decide_next(&History::from(messages), &Limits::default());
            match expected {
                Some(expected) => assert_eq!(found, expected, "row {n}"),
                None => assert!(
                    matches!(found, NextAction::Finish(TurnOutcome::Failed(_))),
                    "row {n}: {found:?}"
                ),
            }
        }
    }
}
