//! Results that the model asked for just before a compaction, and has not seen. They are not
//! summarised: they stay in view behind the summary, as far as they fit. What does not fit is in a
//! file that the result names.

use std::sync::Arc;

use super::step_context::StepContext;
use super::view::VisibleHistory;
use super::{History, TurnContext, request, size, tool_context};
use base::id::MessageId;
use base::task::poll_on_blocking_threads;
use base::text::mark::ReminderMark;
use config::settings::OutputLimits;
use tools::truncate::{self, KeepEnd};
use tools::{ToolContext, truncate::Truncation};
use transcript::{Call, CallState, Content, Message, Part, ToolKind};

/// The minimum size of each result, in tokens. With less, the message is summarised like others.
const MIN_TOKENS: u64 = 128;

/// A message with results that the model has not seen, which is not summarised.
#[derive(Debug)]
pub(super) struct UnseenResults {
    message: MessageId,
    /// The tokens that they have.
    size: u64,
    /// The tokens that they may have.
    limit: u64,
}

impl UnseenResults {
    #[cfg(test)]
    pub(super) fn of_size(size: u64) -> Self {
        Self {
            message: MessageId::new("m"),
            size,
            limit: size,
        }
    }

    /// Returns the tokens that are cut from them.
    pub(super) fn excess(&self) -> u64 {
        self.size.saturating_sub(self.limit)
    }

    /// Cuts a number of tokens more. Returns how many were left to cut.
    pub(super) fn cut_more(&mut self, tokens: u64) -> u64 {
        let before = self.size.min(self.limit);
        self.limit = before.saturating_sub(tokens);
        before - self.limit
    }
}

/// Results that were cut.
#[derive(Debug, Default)]
pub(super) struct CutResults {
    message: Option<MessageId>,
    /// The parts as they were, with their indexes.
    before: Vec<(usize, Part)>,
}

/// Returns the results that a compaction of a view must not lose, with the index of their message,
/// if a tail that begins at `from` would not contain them. They and the messages after them, up to
/// `end`, fit `limit`.
pub(super) fn find(
    view: &VisibleHistory<'_>,
    end: usize,
    from: usize,
    limit: u64,
) -> Option<(usize, UnseenResults)> {
    let messages = &view.messages[..end];
    let at = last_answer_with_calls(messages)?;
    // Something must remain to be summarised.
    if at < view.before_compaction.max(1) || at >= from {
        return None;
    }
    let limit = result_limit(&messages[at..], limit)?;
    let message = messages[at].id.clone();
    let size = messages[at].calls().map(size::result).sum();
    let unseen = UnseenResults {
        message,
        size,
        limit,
    };
    Some((at, unseen))
}

/// Returns the index of the last answer, if it has calls: the model has not seen their results.
fn last_answer_with_calls(messages: &[&Message]) -> Option<usize> {
    let at = messages
        .iter()
        .rposition(|message| message.assistant().is_some())?;
    let has_results = !messages[at].is_summary() && messages[at].calls().next().is_some();
    has_results.then_some(at)
}

/// Returns the tokens that the results of the first of these messages may have, if all messages
/// have to fit `limit`; `None` if that is too little.
fn result_limit(messages: &[&Message], limit: u64) -> Option<u64> {
    let whole: u64 = messages.iter().map(|message| size::message(message)).sum();
    let calls = || messages.iter().take(1).flat_map(|message| message.calls());
    let results: u64 = calls().map(size::result).sum();
    let left = limit.checked_sub(whole - results)?;
    let least = MIN_TOKENS * calls().count() as u64;
    (left >= least.min(results)).then_some(left)
}

/// Divides tokens among results: small ones stay whole, and the others get equal shares.
fn shares(sizes: &[u64], limit: u64) -> Vec<u64> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|at| sizes[*at]);
    let mut shares = vec![0; sizes.len()];
    let mut left = limit;
    for (done, at) in order.into_iter().enumerate() {
        let others = (sizes.len() - done) as u64;
        shares[at] = sizes[at].min(left / others);
        left -= shares[at];
    }
    shares
}

/// Cuts results to the tokens that they may have. Nothing is stored yet.
pub(super) async fn cut_to_fit(
    history: &mut History,
    unseen: Option<UnseenResults>,
    turn: &TurnContext,
    step: &StepContext,
) -> CutResults {
    let Some(UnseenResults {
        message: id, limit, ..
    }) = unseen
    else {
        return CutResults::default();
    };
    let Some(message) = history.messages.iter_mut().rfind(|m| m.id == id) else {
        return CutResults::default();
    };
    let calls: Vec<(usize, Call)> = message
        .parts
        .iter()
        .enumerate()
        .filter_map(|(at, part)| match &part.content {
            Content::Tool(call) => Some((at, call.clone())),
            _ => None,
        })
        .collect();
    let sizes: Vec<u64> = calls.iter().map(|(_, call)| size::result(call)).collect();
    let mut before = Vec::new();
    for (((at, call), size), share) in calls.into_iter().zip(&sizes).zip(shares(&sizes, limit)) {
        if *size <= share {
            continue;
        }
        let context = tool_context::step_call_context(turn, step, &call.call);
        let bytes = usize::try_from(share * 4).unwrap_or(usize::MAX);
        let call =
            poll_on_blocking_threads(async move { shorten_result(call, bytes, &context) }).await;
        before.push((at, message.parts[at].clone()));
        message.parts[at].content = Content::Tool(call);
    }
    CutResults {
        message: Some(id),
        before,
    }
}

impl CutResults {
    /// Puts the results back as they were.
    pub(super) fn restore(self, history: &mut History) {
        let is_own = |message: &&mut Message| Some(&message.id) == self.message.as_ref();
        let Some(message) = history.messages.iter_mut().rfind(is_own) else {
            return;
        };
        for (at, part) in self.before {
            message.parts[at] = part;
        }
    }

    /// Stores the results as they are now.
    pub(super) async fn record(&self, history: &History, turn: &TurnContext) {
        let is_own = |message: &&Message| Some(&message.id) == self.message.as_ref();
        let Some(message) = history.messages.iter().rfind(is_own) else {
            return;
        };
        for (at, _) in &self.before {
            turn.session
                .recorder
                .part(&message.id, &message.parts[*at])
                .await;
        }
    }
}

/// Cuts a call's result to about `bytes`. The whole result is in the file that a note names.
fn shorten_result(mut call: Call, bytes: usize, context: &ToolContext) -> Call {
    let keep = match call.kind {
        ToolKind::Execute => KeepEnd::Tail,
        _ => KeepEnd::Head,
    };
    let mark = &context.session.mark;
    match &mut call.state {
        CallState::Completed(done) => {
            let path = done.facts.output_path.clone();
            let files: Vec<String> = std::mem::take(&mut done.attachments)
                .iter()
                .map(request::left_out)
                .collect();
            let whole = done.output.clone();
            let shown = done.display.take().unwrap_or_else(|| whole.to_string());
            done.display = Some(shown);
            let (data, note) = split(&whole, mark);
            let fits = note.len() <= bytes / 2;
            if !fits {
                // Instructions in it come again when they are needed.
                done.facts.loaded.clear();
            }
            let limit = bytes.saturating_sub(if fits { note.len() } else { 0 });
            let mut text = String::new();
            let mut hint = None;
            if data.len() > limit {
                let path = path.map_or_else(|| truncate::store(&whole, context), Ok);
                hint = Some(match &path {
                    Ok(path) => truncate::hint(path),
                    Err(e) => format!("The rest could not be stored: {e}."),
                });
                done.facts.output_path = path.ok();
                text.push_str(&cut(data, limit, keep));
            } else {
                text.push_str(data);
            }
            for file in files {
                text.push_str(&format!("\n\n{file}"));
            }
            if let Some(hint) = hint {
                text.push_str(&format!("\n\n{}", mark.note(&hint)));
            }
            if fits && !note.is_empty() {
                text.push_str(&format!("\n\n{note}"));
            }
            done.output = Arc::from(text);
        }
        CallState::Failed { error, facts, .. } => {
            let (data, note) = split(error, mark);
            let fits = note.len() <= bytes / 2;
            let limit = bytes.saturating_sub(if fits { note.len() } else { 0 });
            let mut text = cut(data, limit, keep);
            if !fits {
                // Instructions in it come again when they are needed.
                facts.loaded.clear();
            } else if !note.is_empty() {
                text.push_str(&format!("\n\n{note}"));
            }
            *error = text;
        }
        CallState::Pending | CallState::Running { .. } => {}
    }
    call
}

/// Splits a result into the tool's text and adjutant's own note at its end.
fn split<'a>(text: &'a str, mark: &ReminderMark) -> (&'a str, &'a str) {
    let open = format!("<system-reminder mark=\"{mark}\">");
    text.find(&open).map_or((text, ""), |at| {
        let (data, note) = text.split_at(at);
        (data.trim_end(), note)
    })
}

fn cut(text: &str, bytes: usize, keep: KeepEnd) -> String {
    let limits = OutputLimits {
        lines: usize::MAX,
        bytes,
    };
    let Truncation { shown, missing } = truncate::cut(text, limits, keep);
    match (missing, keep) {
        (None, _) => shown,
        (Some(missing), KeepEnd::Head) => format!("{}\n\n{missing}", shown.trim_end_matches('\n')),
        (Some(missing), KeepEnd::Tail) => format!("{missing}\n\n{shown}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::next::tests::{assistant, call, summary, user};
    use super::*;
    use transcript::{Completed, Finish};

    #[test]
    fn small_results_stay_whole_and_others_share() {
        let table: [(&[u64], u64, &[u64]); 6] = [
            (&[], 10, &[]),
            (&[5, 3], 10, &[5, 3]),
            (&[20, 2, 20], 12, &[5, 2, 5]),
            (&[20, 20], 0, &[0, 0]),
            (&[100], 40, &[40]),
            (&[1, 9, 4], 12, &[1, 7, 4]),
        ];
        for (sizes, limit, expected) in table {
            assert_eq!(shares(sizes, limit), expected, "{sizes:?} {limit}");
        }
    }

    #[test]
    fn unseen_results_are_those_of_the_last_answer() {
        let printed = |bytes: usize| {
            let done = Completed {
                output: "x".repeat(bytes).into(),
                ..Completed::default()
            };
            call("c", "read", json!({}), CallState::Completed(done))
        };
        let called = || assistant(Some(Finish::ToolCalls), vec![printed(4_000), printed(40)]);
        let hi = || user("hi", false);
        let table = [
            ("nothing", vec![], None),
            ("no answer", vec![hi()], None),
            ("calls", vec![hi(), called()], Some(1)),
            (
                "calls, and a message since",
                vec![hi(), called(), hi()],
                Some(1),
            ),
            (
                "answered",
                vec![hi(), called(), assistant(Some(Finish::Stop), vec![])],
                None,
            ),
            ("summarised", vec![hi(), called(), summary()], None),
        ];
        for (name, messages, expected) in table {
            let messages: Vec<&Message> = messages.iter().collect();
            assert_eq!(last_answer_with_calls(&messages), expected, "{name}");
        }
        let called = called();
        let messages = [&called];
        // The calls themselves have four tokens.
        assert_eq!(result_limit(&messages, 2_000), Some(1_996));
        assert_eq!(result_limit(&messages, 500), Some(496));
        assert_eq!(result_limit(&messages, 200), None);
        assert_eq!(result_limit(&messages, 1), None);
    }
}
