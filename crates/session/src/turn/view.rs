//! The part of a history that the model sees: after a compaction the summary, the prompt that is
//! being answered, the messages that were not summarised, and the later ones. The history itself
//! keeps all messages, for the user, and for an undo to a point before the compaction.

use std::ops::Range;

use super::History;
use transcript::{Compaction, Message};

/// The messages of a history that the model sees.
#[derive(Debug, Clone)]
pub struct VisibleHistory<'a> {
    /// The compaction, and its summary.
    pub summary: Option<(&'a Message, &'a Message)>,
    /// The messages, oldest first.
    pub messages: Vec<&'a Message>,
    /// The number of messages from before the compaction.
    pub before_compaction: usize,
}

/// Returns the indexes of the newest compaction that has a summary, and of that summary.
pub fn find_compaction(history: &History) -> Option<(usize, usize)> {
    let summary = history.messages.iter().rposition(Message::is_summary)?;
    let parent = &history.messages[summary].assistant()?.parent;
    let is_its_compaction = |m: &Message| m.id == *parent && m.compaction().is_some();
    Some((
        history.messages[..summary]
            .iter()
            .rposition(is_its_compaction)?,
        summary,
    ))
}

/// Returns the messages of a history that the model sees.
pub fn visible_history(history: &History) -> VisibleHistory<'_> {
    let all = &history.messages;
    let visible = visible_indexes(history);
    let mut messages: Vec<&Message> = visible.prompt.iter().map(|at| &all[*at]).collect();
    messages.extend(&all[visible.tail]);
    let before_compaction = messages.len();
    messages.extend(&all[visible.after_summary..]);
    let summary = visible
        .summary
        .map(|(at, summary)| (&all[at], &all[summary]));
    VisibleHistory {
        summary,
        messages,
        before_compaction: if summary.is_some() {
            before_compaction
        } else {
            0
        },
    }
}

/// The indexes of the messages that the model sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleMessages {
    /// The compaction, and its summary.
    pub summary: Option<(usize, usize)>,
    /// The prompt that was being answered.
    pub prompt: Option<usize>,
    pub tail: Range<usize>,
    /// The index of the first message after the summary.
    pub after_summary: usize,
}

impl VisibleMessages {
    /// True if the model sees the message at an index, or its text.
    pub fn has(&self, at: usize) -> bool {
        self.prompt == Some(at)
            || self.tail.contains(&at)
            || at >= self.summary.map_or(0, |(compaction, _)| compaction)
    }
}

/// Returns the indexes of the messages that the model sees.
pub fn visible_indexes(history: &History) -> VisibleMessages {
    let all = &history.messages;
    let Some((at, summary)) = find_compaction(history) else {
        return VisibleMessages {
            summary: None,
            prompt: None,
            tail: 0..0,
            after_summary: 0,
        };
    };
    let compaction = all[at].compaction().cloned().unwrap_or_default();
    let from = tail_start(history, at, &compaction);
    // During a turn its prompt remains visible verbatim, whether its steps were summarised or
    // not.
    let within_turn = compaction.auto && !all[from..at].iter().any(Message::is_prompt);
    let prompt = if within_turn {
        all[..from].iter().rposition(Message::is_prompt)
    } else {
        None
    };
    VisibleMessages {
        summary: Some((at, summary)),
        prompt,
        tail: from..at,
        after_summary: summary + 1,
    }
}

/// Returns the index of the first message that a compaction did not summarise.
fn tail_start(history: &History, at: usize, compaction: &Compaction) -> usize {
    let Some(tail) = &compaction.tail else {
        return at;
    };
    history.messages[..at]
        .iter()
        .rposition(|m| m.id == *tail)
        .unwrap_or(at)
}
