//! The file changes of a session as unified diffs: computes them from stored contents
//! ([`compute_diffs`]), counts files and lines, and formats them as Markdown.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use base::text;
use base::worktree::Worktree;
use snapshot::Tracker;
use store::DiffStats;
use tools::files::encoding::decode_both;
use transcript::{FileChange, FileKind, FileState};

/// The maximum size of a diff in the conversation. A client renders it as one block.
const MAX_DIFF_BYTES: usize = 256 << 10;

/// The maximum number of files that are listed one by one.
const MAX_LISTED_FILES: usize = 50;

/// The maximum size of both texts together. Comparing larger ones would take too long.
const MAX_COMPARED_BYTES: usize = 8 << 20;

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff {
    /// The path relative to the project.
    pub path: String,
    pub kind: DiffKind,
    /// The number of added lines.
    pub additions: usize,
    /// The number of deleted lines.
    pub deletions: usize,
    /// A unified diff, or a sentence if the contents cannot be compared; ends with a newline.
    pub text: String,
}

/// The effect of a change on its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffKind {
    Added,
    Modified,
    Deleted,
}

impl Diff {
    /// Returns the name of the effect, as in OpenCode.
    pub fn status(&self) -> &'static str {
        match self.kind {
            DiffKind::Added => "added",
            DiffKind::Modified => "modified",
            DiffKind::Deleted => "deleted",
        }
    }
}

/// Compares the old and new contents of files. Blocks, because it reads stored contents.
pub fn compute_diffs(changes: &[FileChange], tracker: &Tracker, worktree: &Worktree) -> Vec<Diff> {
    changes
        .iter()
        .map(|change| compute_diff(change, tracker, worktree))
        .collect()
}

fn compute_diff(change: &FileChange, tracker: &Tracker, worktree: &Worktree) -> Diff {
    let path = text::escaped(&worktree.relative(change.path.as_ref()));
    let kind = match (&change.old, &change.new) {
        (None, _) => DiffKind::Added,
        (_, None) => DiffKind::Deleted,
        _ => DiffKind::Modified,
    };
    let none = |text: String| Diff {
        path: path.clone(),
        kind,
        additions: 0,
        deletions: 0,
        text,
    };
    let content = |state: &Option<FileState>| {
        state
            .as_ref()
            .map_or(Ok(Vec::new()), |state| tracker.content(state))
    };
    let (old, new) = match (content(&change.old), content(&change.new)) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(e), _) | (_, Err(e)) => return none(format!("{path} changed; {e}.\n")),
    };
    let Some((old, new)) = decode_both(old, new) else {
        return none(format!("Binary file {path} changed.\n"));
    };
    if old.len() + new.len() > MAX_COMPARED_BYTES {
        return none(format!("{path} changed; it is too large to be compared.\n"));
    }
    let diff = text::diff::LineDiff::of(&old, &new);
    let (additions, deletions) = diff.count();
    let name = |side: &str, state: &Option<FileState>| match state {
        Some(_) => format!("{side}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let mut text = kind_change(change, &path);
    let from = name("a", &change.old);
    let to = name("b", &change.new);
    text += &diff.unified(Some((&from, &to)));
    Diff {
        path,
        kind,
        additions,
        deletions,
        text,
    }
}

/// Returns a line about a change of a file's kind, such as to a symbolic link; empty if it is the same.
fn kind_change(change: &FileChange, path: &str) -> String {
    let name = |kind| match kind {
        FileKind::Plain => "an ordinary file",
        FileKind::Program => "executable",
        FileKind::Link => "a symbolic link",
    };
    match (&change.old, &change.new) {
        (Some(old), Some(new)) if old.kind != new.kind => {
            format!(
                "{path} was {}, and is {}.\n",
                name(old.kind),
                name(new.kind)
            )
        }
        _ => String::new(),
    }
}

/// Counts the changed files and lines; returns `None` if no file changed.
pub fn count_changes(diffs: &[Diff]) -> Option<DiffStats> {
    let files: BTreeSet<&str> = diffs.iter().map(|diff| diff.path.as_str()).collect();
    let sum = |lines: fn(&Diff) -> usize| diffs.iter().map(lines).sum();
    let additions = sum(|diff| diff.additions);
    let deletions = sum(|diff| diff.deletions);
    (!files.is_empty()).then_some(DiffStats {
        files: files.len(),
        additions,
        deletions,
    })
}

/// Returns the numbers of files and lines as text: `2 files, +3 −1`.
pub fn changes_summary(diffs: &[Diff]) -> String {
    let DiffStats {
        files,
        additions,
        deletions,
    } = count_changes(diffs).unwrap_or(DiffStats {
        files: 0,
        additions: 0,
        deletions: 0,
    });
    format!("{}, +{additions} −{deletions}", text::count(files, "file"))
}

/// Returns diffs as Markdown, for the conversation.
pub fn markdown(diffs: &[Diff]) -> String {
    if diffs.is_empty() {
        return "This session has not changed any files.".into();
    }
    let mut list = String::new();
    for diff in diffs.iter().take(MAX_LISTED_FILES) {
        let _ = writeln!(
            list,
            "- `{}` +{} −{}",
            diff.path, diff.additions, diff.deletions
        );
    }
    if let Some(further) = diffs
        .len()
        .checked_sub(MAX_LISTED_FILES)
        .filter(|further| *further > 0)
    {
        let _ = writeln!(list, "- and {}", text::count(further, "more file"));
    }
    let all: String = diffs.iter().map(|diff| diff.text.as_str()).collect();
    let shown = text::head(&all, MAX_DIFF_BYTES);
    let cut = if shown.len() < all.len() {
        "\n(The rest is left out here.)"
    } else {
        ""
    };
    let end = if shown.ends_with('\n') { "" } else { "\n" };
    let fence = "`".repeat(3.max(longest_backtick_run(shown) + 1));
    format!(
        "This session changed {}:\n\n{list}\n{fence}diff\n{shown}{end}{fence}\n{cut}",
        changes_summary(diffs)
    )
}

/// Returns the length of the longest run of backticks in a text. A Markdown fence around the text must
/// be longer.
fn longest_backtick_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}
