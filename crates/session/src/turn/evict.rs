//! Eviction of data that a session no longer needs in memory: results of calls that the model does
//! not see any more, because they were summarised or pruned. The client has shown them, and the
//! store has them. The texts of the messages, the calls and the file changes remain; if an undo
//! brings old messages back into view, the history is read again ([`reload_history`]).
//!
//! Evicted data must never be stored again, because it would be lost.

use std::sync::Arc;

use serde_json::Value;

use super::recover::recover;
use super::view::visible_indexes;
use super::{History, TurnContext, jobs};
use base::text::shared::SharedText;
use tools::registry::find_properties;
use transcript::{Call, CallState, Content, Message, Usage};

/// Data up to this size is not evicted.
const MIN_EVICTED_BYTES: usize = 256;

/// Stores the history, and evicts data that is not needed. If it cannot be stored, no data is
/// evicted.
pub async fn evict(history: &mut History, turn: &TurnContext) {
    match turn.session.recorder.flush().await {
        Ok(()) => evict_stored(history),
        Err(e) => {
            tracing::error!("the turn is not saved: {e}");
            turn.notify_unsaved(&e).await;
        }
    }
}

/// Evicts data that is not needed. The caller ensures that it is stored.
pub fn evict_stored(history: &mut History) {
    let visible = visible_indexes(history);
    // Outputs that were pruned after this answer still count for the size of the context.
    let counted = history.messages.iter().rev().filter_map(Message::assistant);
    let counted = counted
        .filter(|a| a.usage != Usage::default() && !a.summary)
        .find_map(|a| a.completed);
    for (at, message) in history.messages.iter_mut().enumerate() {
        let gone = !visible.has(at);
        let user = message.user().is_some();
        for part in &mut message.parts {
            match &mut part.content {
                Content::Reasoning(reasoning) if gone => {
                    reasoning.text = String::new();
                    reasoning.provider.clear();
                }
                Content::File(file) if gone => file.data = None,
                Content::Text(text) if gone && user && text.synthetic => {
                    text.text = SharedText::default()
                }
                // Stored again when the background job ends.
                Content::Tool(call) if jobs::job_id(&call.state).is_some() => {}
                Content::Tool(call) => {
                    let pruned = |call: &Call| match &call.state {
                        CallState::Completed(done) => done
                            .cleared
                            .zip(counted)
                            .is_some_and(|(cleared, counted)| cleared < counted),
                        _ => false,
                    };
                    if gone || pruned(call) {
                        evict_result(call);
                    }
                    if gone {
                        evict_arguments(call);
                    }
                }
                _ => {}
            }
        }
        message.parts.shrink_to_fit();
    }
}

fn evict_result(call: &mut Call) {
    match &mut call.state {
        CallState::Completed(done) => {
            done.output = Arc::default();
            done.display = None;
            done.coloured = None;
            done.changes = Vec::new();
            done.attachments = Vec::new();
            if is_large(&done.facts.details) {
                done.facts.details.clear();
            }
            done.facts.result = None;
        }
        CallState::Failed {
            error, coloured, ..
        } => {
            *coloured = None;
            if error.len() > MIN_EVICTED_BYTES {
                *error = String::new();
            }
        }
        _ => {}
    }
}

fn evict_arguments(call: &mut Call) {
    let keeps = find_properties(&call.tool).is_some_and(|tool| tool.keeps_input);
    if !keeps && call.input.as_object().is_none_or(is_large) {
        call.input = Arc::default();
    }
    call.provider.clear();
}

fn is_large(members: &serde_json::Map<String, Value>) -> bool {
    let size = |value: &Value| match value {
        Value::String(text) => text.len(),
        Value::Array(_) | Value::Object(_) => value.to_string().len(),
        _ => 8,
    };
    members
        .iter()
        .map(|(name, value)| name.len() + size(value))
        .sum::<usize>()
        > MIN_EVICTED_BYTES
}

/// Reads the stored history again after messages were removed from its end, because older messages
/// may be in view now. If that fails, the model lacks their results.
pub async fn reload_history(history: &mut History, recorder: &super::record::Recorder) {
    let known = |messages: &[Message]| messages.len() == history.messages.len();
    match recorder.read_session().await {
        Ok(stored) if known(&stored.messages) => {
            history.messages = stored.messages;
            history.messages_without_results = 0;
            recover(history);
        }
        Ok(stored) => tracing::error!(
            "{} messages are kept, not {}",
            stored.messages.len(),
            history.messages.len()
        ),
        // The session was never stored, so no data was evicted.
        Err(store::Error::NotFound(_)) => {}
        Err(e) => tracing::error!("the history cannot be read again: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::super::next::tests::{assistant, call, compaction, summary, user};
    use super::super::{digest, size, view};
    use super::*;
    use base::environment::Timestamp;
    use base::id::MessageId;
    use transcript::{BackgroundJob, CallFacts, Completed, Finish, JobState, Reasoning, Role};

    fn named(id: &str, mut message: Message) -> Message {
        message.id = MessageId::new(id);
        message
    }

    fn printed(id: &str, cleared: Option<u64>, completed: u64) -> Message {
        let done = Completed {
            output: "x".repeat(4_000).into(),
            display: Some("y".repeat(4_000)),
            facts: CallFacts {
                details: Map::from_iter([("count".to_owned(), json!(0))]),
                ..CallFacts::default()
            },
            cleared: cleared.map(Timestamp),
            ..Completed::default()
        };
        let input = json!({ "command": "z".repeat(1_000) });
        let calls = vec![
            Content::Reasoning(Reasoning {
                text: "r".repeat(1_000),
                ..Reasoning::default()
            }),
            call("c", "bash", input, CallState::Completed(done)),
        ];
        let mut message = assistant(Some(Finish::ToolCalls), calls);
        if let Role::Assistant(a) = &mut message.role {
            a.usage = Usage {
                input: 10,
                ..Usage::default()
            };
            a.completed = Some(Timestamp(completed));
        }
        named(id, message)
    }

    fn bytes(history: &History) -> Vec<usize> {
        history
            .messages
            .iter()
            .map(|m| serde_json::to_string(&m.parts).unwrap().len())
            .collect()
    }

    #[test]
    fn visible_messages_stay_and_others_shrink() {
        let hi = |id: &str| named(id, user("hi", false));
        let messages = vec![
            hi("a"),
            printed("b", None, 1),
            hi("d"),
            printed("e", None, 2),
            printed("f", None, 3),
            compaction(true, Some("f")),
            summary(),
            printed("g", None, 4),
        ];
        let mut history = History::from(messages);
        let before = history.clone();
        evict_stored(&mut history);
        let sizes = bytes(&history);
        assert!(sizes[1] < 600, "{sizes:?}");
        assert!(sizes[3] < 600, "{sizes:?}");
        for at in [0, 2, 4, 5, 6, 7] {
            assert_eq!(history.messages[at], before.messages[at], "{at}");
        }
        let text = |history: &History| {
            digest::transcript(&view::visible_history(history).messages, 1 << 20)
        };
        assert_eq!(text(&history), text(&before));
        assert_eq!(
            size::next_request_tokens(&history),
            size::next_request_tokens(&before)
        );
        assert_eq!(size::used_tokens(&history), size::used_tokens(&before));
        let done = |at: usize| match &history.messages[at].calls().next().unwrap().state {
            CallState::Completed(done) => done.clone(),
            state => panic!("{state:?}"),
        };
        assert_eq!(done(1).facts.details["count"], 0, "small details stay");
    }

    #[test]
    fn call_with_background_job_stays() {
        let mut background = printed("b", None, 1);
        if let Content::Tool(call) = &mut background.parts[1].content
            && let CallState::Completed(done) = &mut call.state
        {
            done.facts.job = Some(BackgroundJob {
                id: "bash_1".into(),
                state: JobState::Running,
            });
        }
        let call = background.parts[1].clone();
        let messages = vec![
            user("hi", false),
            background,
            compaction(true, None),
            summary(),
        ];
        let mut history = History::from(messages);
        evict_stored(&mut history);
        assert_eq!(history.messages[1].parts[1], call);
    }

    #[test]
    fn pruned_output_is_evicted_when_it_no_longer_counts() {
        let table = [
            (None, false),
            (Some(5), true),
            (Some(10), false),
            (Some(11), false),
        ];
        for (cleared, gone) in table {
            let messages = vec![
                user("hi", false),
                printed("b", cleared, 1),
                user("on", false),
                printed("d", None, 10),
            ];
            let mut history = History::from(messages);
            let load = size::next_request_tokens(&history);
            evict_stored(&mut history);
            assert_eq!(bytes(&history)[1] < 3_000, gone, "{cleared:?}");
            assert_eq!(size::next_request_tokens(&history), load, "{cleared:?}");
        }
    }
}
