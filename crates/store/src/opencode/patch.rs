//! The hunks of a unified diff as changes of a file.

use base::text::shared::SharedText;
use transcript::{Change, LineOffsets};

/// Returns a change for each hunk of a unified diff of one file; none for a text that is not a diff.
pub(super) fn changes(path: &str, diff: &str) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    let is_new = diff.lines().any(|line| line.trim_end() == "--- /dev/null");
    let is_deleted = diff.lines().any(|line| line.trim_end() == "+++ /dev/null");
    for line in diff.split_inclusive('\n') {
        if let Some(begins) = header(line) {
            changes.push(Change {
                path: path.to_owned(),
                old: (!is_new).then(SharedText::default),
                new: SharedText::default(),
                deleted: is_deleted,
                part: (!is_new && !is_deleted).then_some(begins),
            });
            continue;
        }
        let Some(change) = changes.last_mut() else {
            continue;
        };
        let rest = line.get(1..).unwrap_or_default();
        let old = &mut change.old;
        match line.as_bytes().first() {
            Some(b' ') => {
                if let Some(old) = old {
                    old.to_mut().push_str(rest);
                }
                change.new.to_mut().push_str(rest);
            }
            Some(b'-') => {
                if let Some(old) = old {
                    old.to_mut().push_str(rest);
                }
            }
            Some(b'+') => change.new.to_mut().push_str(rest),
            // "\ No newline at end of file" belongs to the line before it; anything else ends the
            // hunk.
            _ => {}
        }
    }
    changes
}

/// Parses `@@ -1,2 +1,2 @@`: the numbers of lines before the hunk.
fn header(line: &str) -> Option<LineOffsets> {
    let (old, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let before = |range: &str| {
        let first = range.split(',').next()?.parse::<usize>().ok()?;
        Some(first.saturating_sub(1))
    };
    Some(LineOffsets {
        old: before(old)?,
        new: before(new)?,
    })
}
