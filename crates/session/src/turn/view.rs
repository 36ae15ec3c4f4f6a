//! What of a history the model sees: after a compaction the summary, the prompt that is being
//! answered, the messages that were kept, and what came since. Nothing is taken out of the history
//! itself: the user sees all of it, and whoever goes back to a point before the compaction is there.

use std::ops::Range;

use super::History;
use transcript::{Compaction, Message};

/// What of a history the model sees.
#[derive(Debug, Clone)]
pub struct VisibleHistory<'a> {
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
pub fn view(history: &History) -> VisibleHistory<'_> {
    let all = &history.messages;
    let visible = visible(history);
    let mut messages: Vec<&Message> = visible.prompt.iter().map(|at| &all[*at]).collect();
    messages.extend(&all[visible.tail]);
    let kept = messages.len();
    messages.extend(&all[visible.since..]);
    let summary = visible.summary.map(|(at, summary)| (&all[at], &all[summary]));
    VisibleHistory { summary, messages, kept: if summary.is_some() { kept } else { 0 } }
}

/// Where the messages stand that the model sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleMessages {
    /// The compaction, and its summary.
    pub summary: Option<(usize, usize)>,
    /// The prompt that was being answered.
    pub prompt: Option<usize>,
    pub tail: Range<usize>,
    /// The first of those that came since.
    pub since: usize,
}

impl VisibleMessages {
    /// Whether the model sees the message that stands there, or the words of it.
    pub fn has(&self, at: usize) -> bool {
        self.prompt == Some(at) || self.tail.contains(&at) || at >= self.summary.map_or(0, |(compaction, _)| compaction)
    }
}

/// Where the messages stand that the model sees.
pub fn visible(history: &History) -> VisibleMessages {
    let all = &history.messages;
    let Some((at, summary)) = compacted(history) else {
        return VisibleMessages { summary: None, prompt: None, tail: 0..0, since: 0 };
    };
    let asked = all[at].compaction().cloned().unwrap_or_default();
    let from = tail(history, at, &asked);
    // In the middle of a turn the prompt stands, word for word, whatever became of its steps.
    let prompt = all[..from].iter().rposition(Message::is_prompt);
    let prompt = prompt.filter(|_| asked.auto && !all[from..at].iter().any(Message::is_prompt));
    VisibleMessages { summary: Some((at, summary)), prompt, tail: from..at, since: summary + 1 }
}

/// Where the messages begin that a compaction kept.
fn tail(history: &History, at: usize, asked: &Compaction) -> usize {
    let Some(tail) = &asked.tail else { return at };
    history.messages[..at].iter().rposition(|m| m.id == *tail).unwrap_or(at)
}
