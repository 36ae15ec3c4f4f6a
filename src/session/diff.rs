//! What a session changed in the files, as people read it.

use std::fmt::Write as _;

use crate::message::{Change, Content};
use crate::text;
use crate::turn::History;
use crate::worktree::Worktree;

/// The most bytes of diff that are shown in the conversation; an editor renders it as one block.
const LONGEST: usize = 256 << 10;

/// Texts that are larger together are not compared: it takes longer than it is worth.
const LARGEST: usize = 4 << 20;

/// The changes of a history's calls, one per file: from what it was first to what it was last.
pub fn changes(history: &History) -> Vec<Change> {
    let parts = history.messages.iter().flat_map(|message| &message.parts);
    let done = parts.filter_map(|part| match &part.content {
        Content::Tool(call) => match &call.state {
            crate::message::CallState::Completed(done) => Some(&done.changes),
            _ => None,
        },
        _ => None,
    });
    let mut changes: Vec<Change> = Vec::new();
    for change in done.flatten() {
        match changes.iter_mut().find(|known| known.path == change.path) {
            Some(known) => known.new.clone_from(&change.new),
            None => changes.push(change.clone()),
        }
    }
    changes.retain(|change| change.old.as_deref() != Some(&change.new));
    changes
}

/// What a history's calls changed, as Markdown.
pub fn shown(history: &History, worktree: &Worktree) -> String {
    let changes = changes(history);
    if changes.is_empty() {
        return "This session has not changed any files.".into();
    }
    let mut list = String::new();
    let mut diffs = String::new();
    let (mut more, mut less) = (0, 0);
    for change in &changes {
        let name = text::escaped(&worktree.relative(change.path.as_ref()));
        let old = change.old.as_deref().unwrap_or_default();
        if old.len() + change.new.len() > LARGEST {
            let _ = writeln!(list, "- `{name}` (too large to be compared)");
            continue;
        }
        let diff = similar::TextDiff::from_lines(old, &change.new);
        let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
        let (added, removed) = (count(similar::ChangeTag::Insert), count(similar::ChangeTag::Delete));
        more += added;
        less += removed;
        let _ = writeln!(list, "- `{name}` +{added} −{removed}");
        let (from, to) = (format!("a/{name}"), format!("b/{name}"));
        let from = if change.old.is_some() { from.as_str() } else { "/dev/null" };
        diffs += &diff.unified_diff().context_radius(3).header(from, &to).to_string();
    }
    let count = text::count(changes.len(), "file");
    let shown = text::head(&diffs, LONGEST);
    let cut = if shown.len() < diffs.len() { "\n(The rest is left out here.)" } else { "" };
    let fence = "`".repeat(3.max(ticks(shown) + 1));
    format!("This session changed {count}, +{more} −{less}:\n\n{list}\n{fence}diff\n{shown}{fence}\n{cut}")
}

/// The longest run of backticks in a text, which must not end the block it stands in.
fn ticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}
