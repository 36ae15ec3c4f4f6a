//! Orders: built-in `/words` that are said to the session itself, not to the model. One is carried
//! out in its place among the prompts, like a short turn: what it has to say goes up as text, it can
//! be cancelled, and what was typed does not become part of the history.
//!
//! To add one: a [`Word`], its line in [`Word::ALL`] and its arm in [`carry_out`].

use super::{changes, diff};
use tokio::task::spawn_blocking;

use crate::event::{Event, Status};
use crate::id::PartId;
use crate::store::Record;
use crate::turn::{History, Outcome, Scope};

/// What is said where the settings forbid it.
const NOT_KEPT: &str = "Changes of files are not recorded here: the setting `snapshot` is off.";

/// What can be ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Show what the session changed.
    Diff,
}

impl Word {
    /// All of them, in the order they are listed: the word, what it does, what may follow it.
    pub const ALL: &[(Self, &str, &str, Option<&str>)] =
        &[(Self::Diff, "diff", "Show what this session changed in the files", None)];
}

/// Something ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// What is to be done.
    pub word: Word,
    /// What was said after the word.
    pub rest: String,
}

/// What an order may work on: all of it is the session's own, lent for as long as it takes.
pub(super) struct Desk<'a> {
    /// The messages.
    pub(super) history: &'a mut History,
    /// What is kept about the session; written back afterwards.
    #[expect(dead_code, reason = "for orders that change what is kept")]
    pub(super) record: &'a mut Record,
    /// Everything else; its outlet and its token are the order's own.
    pub(super) scope: &'a Scope,
}

/// Carries out an order.
pub(super) async fn carry_out(order: &Order, desk: Desk<'_>) -> Outcome {
    let scope = desk.scope;
    scope.outlet.event(Event::Status(Status::Busy)).await;
    let outcome = match order.word {
        Word::Diff => {
            say(scope, differences(&desk).await).await;
            Outcome::Ended
        }
    };
    scope.outlet.event(Event::Status(Status::Idle)).await;
    if scope.cancelled.is_cancelled() { Outcome::Cancelled } else { outcome }
}

/// What the session changed.
async fn differences(desk: &Desk<'_>) -> String {
    let scope = desk.scope;
    let Some(tracker) = scope.snapshots.clone() else { return NOT_KEPT.into() };
    let (runs, worktree) = (changes::runs(&desk.history.messages), scope.worktree.clone());
    if runs.is_empty() && !scope.settings.snapshot {
        return NOT_KEPT.into();
    }
    let read = spawn_blocking(move || diff::shown(&diff::diffs(&runs, &tracker, &worktree)));
    tokio::select! {
        shown = read => shown.unwrap_or_else(|e| format!("The changes could not be compared: {e}.")),
        () = scope.cancelled.cancelled() => String::new(),
    }
}

/// Says something to the user that no model will see.
pub(super) async fn say(scope: &Scope, words: String) {
    let part = PartId::new(scope.environment.fresh(PartId::PREFIX));
    scope.outlet.event(Event::Text { part, delta: words }).await;
}
