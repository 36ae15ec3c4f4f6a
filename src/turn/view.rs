//! What of a history the model sees: after a compaction the summary, the prompt that is being
//! answered, the messages that were kept, and what came since. Nothing is taken out of the history
//! itself: the user sees all of it, and whoever goes back to a point before the compaction is there.

use super::History;
use crate::message::{Compaction, Message};

/// What of a history the model sees.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// The compaction, and the summary it made.
    pub summary: Option<(&'a Message, &'a Message)>,
    /// The messages, oldest first.
    pub messages: Vec<&'a Message>,
    /// How many of them are from before the compaction.
    pub kept: usize,
}

/// The newest compaction that has its summary: where it stands, and where the summary does.
pub fn compacted(history: &History) -> Option<(usize, usize)> {
    let summary = history.messages.iter().rposition(Message::is_summary)?;
    let parent = &history.messages[summary].assistant()?.parent;
    let asked = |m: &Message| m.id == *parent && m.compaction().is_some();
    Some((history.messages[..summary].iter().rposition(asked)?, summary))
}

/// What of a history the model sees.
pub fn view(history: &History) -> View<'_> {
    let all = &history.messages;
    let Some((at, summary)) = compacted(history) else {
        return View { summary: None, messages: all.iter().collect(), kept: 0 };
    };
    let asked = all[at].compaction().cloned().unwrap_or_default();
    let from = tail(history, at, &asked);
    let mut messages = Vec::new();
    // In the middle of a turn the prompt stands, word for word, whatever became of its steps.
    if asked.auto
        && let Some(prompt) = all[..from].iter().rposition(Message::is_prompt)
        && !all[from..at].iter().any(Message::is_prompt)
    {
        messages.push(&all[prompt]);
    }
    messages.extend(&all[from..at]);
    let kept = messages.len();
    messages.extend(&all[summary + 1..]);
    View { summary: Some((&all[at], &all[summary])), messages, kept }
}

/// Where the messages begin that a compaction kept.
fn tail(history: &History, at: usize, asked: &Compaction) -> usize {
    let Some(tail) = &asked.tail else { return at };
    history.messages[..at].iter().rposition(|m| m.id == *tail).unwrap_or(at)
}
