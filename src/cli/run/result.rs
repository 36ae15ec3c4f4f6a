//! The result of a run as one JSON object, for scripts.

use std::collections::HashSet;

use protocol::acp::v1;
use serde_json::{Value, json};

use super::client::Client;
use crate::cli::terminal;
use acp_server::meta::{STRUCTURED, member};
use base::id::{MessageId, SessionId};
use session::turn::round_cost;
use store::{Store, StoredSession};
use transcript::{CallState, Message, Usage};

/// Returns the messages that a session has before a turn.
pub(super) async fn messages(store: &Store, id: &SessionId) -> HashSet<MessageId> {
    // A new session may not be stored yet.
    let stored = store.peek(id).await.ok();
    let messages = stored.into_iter().flat_map(|stored| stored.messages);
    messages.map(|message| message.id).collect()
}

/// Prints the result of a run: its exit code and the response of its turn, or the reason why there
/// is none. `earlier` are the messages before the turn.
pub(super) async fn print(
    store: &Store,
    id: &SessionId,
    client: &Client,
    earlier: &HashSet<MessageId>,
    done: Result<&(u8, v1::PromptResponse), &anyhow::Error>,
) {
    // A session that could not be saved has an answer all the same, and so has a built-in command,
    // which stores none.
    let stored = store.peek(id).await.ok();
    let mut facts = stored
        .as_ref()
        .map(|stored| TurnFacts::of(stored, earlier))
        .unwrap_or_default();
    // An answer that was interrupted is stored without its tokens, but they are paid for.
    if let Ok((_, response)) = done
        && let Some(used) = &response.usage
    {
        facts.usage = tokens(used);
    }
    let is_lasting = stored.as_ref().is_some_and(StoredSession::is_lasting);
    let title = stored
        .as_ref()
        .and_then(|stored| stored.record.title.as_deref());
    let mut result = json!({
        "session": is_lasting.then_some(id),
        "title": title,
        "answer": client.answer(),
        "stopReason": null,
        "model": facts.model,
        "steps": facts.steps,
        "usage": {
            "input": facts.usage.input,
            "output": facts.usage.output,
            "reasoning": facts.usage.reasoning,
            "cacheRead": facts.usage.cache_read,
            "cacheWrite": facts.usage.cache_write,
        },
        "cost": facts.cost().map(round_cost),
        "filesChanged": facts.changed,
        "notAllowed": client.refused(),
    });
    match done {
        Ok((code, response)) => {
            result["exitCode"] = json!(code);
            result["stopReason"] = json!(response.stop_reason);
            if let Some(structured) = member(response.meta.as_ref(), STRUCTURED) {
                result["structured"] = structured.clone();
            }
        }
        Err(why) => {
            let answer = client.unfinished_answer();
            // Its tokens are paid for, but were not reported before it broke off.
            if facts.is_unused() && !answer.is_empty() {
                result["cost"] = Value::Null;
            }
            result["answer"] = json!(answer);
            result["exitCode"] = json!(1);
            result["error"] = json!(format!("{why:#}"));
        }
    }
    terminal::json(&format!("{result:#}"));
}

fn tokens(used: &v1::Usage) -> Usage {
    Usage {
        input: used.input_tokens,
        output: used.output_tokens,
        reasoning: used.thought_tokens.unwrap_or_default(),
        cache_read: used.cached_read_tokens.unwrap_or_default(),
        cache_write: used.cached_write_tokens.unwrap_or_default(),
    }
}

/// Prints the session of a prompt that another process will run.
pub(super) fn print_queued(id: &SessionId) {
    terminal::json(&format!("{:#}", json!({ "session": id })));
}

/// The facts of the turn of a run.
#[derive(Debug, Default, PartialEq)]
struct TurnFacts {
    model: Option<String>,
    steps: usize,
    usage: Usage,
    /// In US dollars; `None` if no price is known.
    cost: Option<f64>,
    /// The paths of the changed files, in the order of their first change.
    changed: Vec<String>,
}

impl TurnFacts {
    /// Returns the cost. A turn without a token costs nothing, whatever the price is.
    fn cost(&self) -> Option<f64> {
        self.cost.or_else(|| self.is_unused().then_some(0.0))
    }

    /// Returns whether no tokens were reported.
    fn is_unused(&self) -> bool {
        self.usage == Usage::default()
    }

    fn of(stored: &StoredSession, earlier: &HashSet<MessageId>) -> Self {
        let mut facts = Self::default();
        for message in &stored.messages {
            if !earlier.contains(&message.id) {
                facts.add(message);
            }
        }
        facts
    }

    fn add(&mut self, message: &Message) {
        if let Some(step) = message.assistant() {
            self.model = Some(step.model.to_string());
            self.steps += 1;
            let usage = step.usage;
            // Imported sessions may state any number.
            let add = |sum: &mut u64, tokens: u64| *sum = sum.saturating_add(tokens);
            add(&mut self.usage.input, usage.input);
            add(&mut self.usage.output, usage.output);
            add(&mut self.usage.reasoning, usage.reasoning);
            add(&mut self.usage.cache_read, usage.cache_read);
            add(&mut self.usage.cache_write, usage.cache_write);
            if let Some(cost) = step.cost {
                self.cost = Some(self.cost.unwrap_or(0.0) + cost);
            }
        }
        for call in message.calls() {
            let CallState::Completed(done) = &call.state else {
                continue;
            };
            for change in &done.changes {
                if !self.changed.contains(&change.path) {
                    self.changed.push(change.path.clone());
                }
            }
        }
    }
}
