//! A change to a text file, in the form that is stored with tool calls and displayed.

use serde::{Deserialize, Serialize};

use base::text;
use base::text::diff::{LineDiff, common_prefix, common_suffix};
use base::text::shared::SharedText;

/// The maximum total size of the old and new text that are stored for one file, in bytes.
const MAX_STORED_BYTES: usize = 256 << 10;

/// The maximum total size of two texts that are compared line by line, in bytes.
const MAX_COMPARED_BYTES: usize = 8 << 20;

/// The number of unchanged lines that are stored before and after a change.
const CONTEXT_LINES: usize = 3;

/// A change to one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The absolute path of the file.
    pub path: String,
    /// The text before the change; `None` for a new file.
    pub old: Option<SharedText>,
    /// The text after the change; empty for a deleted file.
    pub new: SharedText,
    /// True if the file was deleted, as opposed to emptied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// The position of the texts in the file, if they are only a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<LineOffsets>,
}

/// The number of lines that precede a part of a file, in its old and in its new version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LineOffsets {
    pub old: usize,
    pub new: usize,
}

impl Change {
    /// Returns the change in the form that is stored and displayed: the complete texts if they are
    /// small, otherwise only the differing parts, at most 256 KiB in all.
    pub fn parts(&self) -> Vec<Self> {
        let old = self.old.as_deref().unwrap_or_default();
        let new = self.new.as_str();
        if old.len() + new.len() <= MAX_STORED_BYTES {
            return vec![self.clone()];
        }
        let start = common_start(old, new);
        let end = common_end(&old[start..], &new[start..]);
        let old_part = &old[start..old.len() - end];
        let new_part = &new[start..new.len() - end];
        let before = memchr::memchr_iter(b'\n', &old.as_bytes()[..start]).count();
        let begins = LineOffsets {
            old: before,
            new: before,
        };
        let length = old_part.len() + new_part.len();
        if length <= MAX_STORED_BYTES {
            return vec![self.part(begins, old_part.into(), new_part.into())];
        }
        if length <= MAX_COMPARED_BYTES && !old_part.is_empty() && !new_part.is_empty() {
            return self.groups(begins, old_part, new_part);
        }
        vec![self.part(begins, cut(old_part), cut(new_part))]
    }

    /// Compares the old and the new text line by line.
    pub fn lines(&self) -> LineDiff<'_> {
        let LineOffsets { old, new } = self.part.unwrap_or_default();
        LineDiff::of_parts(
            self.old.as_deref().unwrap_or_default(),
            &self.new,
            (old, new),
        )
    }

    /// Returns the groups of differing lines that fit into the maximum size, and a note with the
    /// number of omitted groups. If not even the first group fits, it is returned alone and cut.
    fn groups(&self, begins: LineOffsets, old: &str, new: &str) -> Vec<Self> {
        let diff = LineDiff::of(old, new);
        let mut parts: Vec<Self> = Vec::new();
        let mut remaining = MAX_STORED_BYTES;
        let groups = diff.groups();
        for (index, group) in groups.iter().enumerate() {
            let (Some(first), Some(last)) = (group.first(), group.last()) else {
                continue;
            };
            let old = diff.old_lines(first.old_range().start..last.old_range().end);
            let new = diff.new_lines(first.new_range().start..last.new_range().end);
            let lines = LineOffsets {
                old: begins.old + first.old_range().start,
                new: begins.new + first.new_range().start,
            };
            match remaining.checked_sub(old.len() + new.len()) {
                Some(rest) => {
                    remaining = rest;
                    parts.push(self.part(lines, old, new));
                }
                None if parts.is_empty() => return vec![self.part(lines, cut(&old), cut(&new))],
                None => {
                    let left = text::count(groups.len() - index, "more change");
                    parts.extend(parts.last().cloned().map(|last| Self {
                        old: self.old.as_ref().map(|_| SharedText::default()),
                        new: format!("… {left} not shown\n").into(),
                        part: Some(lines),
                        ..last
                    }));
                    break;
                }
            }
        }
        parts
    }

    /// Returns a part of this change, with the texts after the first lines of the file.
    fn part(&self, lines: LineOffsets, old: String, new: String) -> Self {
        Self {
            path: self.path.clone(),
            old: self.old.is_some().then(|| old.into()),
            new: new.into(),
            deleted: self.deleted,
            part: Some(lines),
        }
    }
}

/// Returns the length of the lines that both texts begin with, in bytes. The last
/// [`CONTEXT_LINES`] of them are not counted.
fn common_start(old: &str, new: &str) -> usize {
    let same = common_prefix(old.as_bytes(), new.as_bytes());
    memchr::memrchr_iter(b'\n', &old.as_bytes()[..same])
        .nth(CONTEXT_LINES)
        .map_or(0, |at| at + 1)
}

/// Returns the length of the lines that both texts end with, in bytes. The first [`CONTEXT_LINES`]
/// of them are not counted.
fn common_end(old: &str, new: &str) -> usize {
    let same = common_suffix(old.as_bytes(), new.as_bytes());
    memchr::memchr_iter(b'\n', &old.as_bytes()[old.len() - same..])
        .nth(CONTEXT_LINES)
        .map_or(0, |at| same - at - 1)
}

/// Cuts a text to half of the maximum size, and appends a note with the number of omitted bytes.
fn cut(text: &str) -> String {
    let head = text::head(text, MAX_STORED_BYTES / 2);
    let rest = text.len() - head.len();
    if rest == 0 {
        return head.to_owned();
    }
    format!("{head}\n… {} not shown\n", text::count(rest, "more byte"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(old: Option<&str>, new: &str) -> Change {
        Change {
            path: "/w/f".into(),
            old: old.map(Into::into),
            new: new.into(),
            deleted: false,
            part: None,
        }
    }

    fn numbered(lines: usize) -> String {
        (1..=lines)
            .map(|n| format!("line {n} of the file\n"))
            .collect()
    }

    #[test]
    fn large_texts_are_stored_as_differing_parts() {
        let small = change(Some("a\n"), "b\n");
        assert_eq!(small.parts(), std::slice::from_ref(&small));

        let large = numbered(100_000);
        let one = large.replace("line 50000 ", "LINE 50000 ");
        let parts = change(Some(&large), &one);
        let parts = parts.parts();
        assert_eq!(parts.len(), 1);
        assert_eq!(
            parts[0].part,
            Some(LineOffsets {
                old: 49_996,
                new: 49_996
            })
        );
        assert!(
            parts[0]
                .old
                .as_ref()
                .unwrap()
                .starts_with("line 49997 of the file\nline 49998")
        );
        assert!(
            parts[0].new.contains("LINE 50000 of the file\nline 50001")
                && parts[0].new.lines().count() == 7
        );

        // Changes that are far apart are separate parts, the second one shifted by a line.
        let two = one
            .replace("LINE 50000 of the file\n", "")
            .replace("line 90000 ", "LINE 90000 ");
        let parts = change(Some(&large), &two);
        let places: Vec<_> = parts.parts().iter().filter_map(|part| part.part).collect();
        assert_eq!(
            places,
            [
                LineOffsets {
                    old: 49_996,
                    new: 49_996
                },
                LineOffsets {
                    old: 89_996,
                    new: 89_995
                }
            ]
        );

        // Entirely different and entirely new texts are cut, and the size of the rest is appended.
        for (old, new) in [
            (Some(&*large), large.to_uppercase()),
            (None, large.clone()),
            (Some("a\n"), "é".repeat(5 << 20)),
        ] {
            let parts = change(old, &new);
            let parts = parts.parts();
            let bytes: usize = parts
                .iter()
                .map(|part| part.new.len() + part.old.as_ref().map_or(0, |old| old.len()))
                .sum();
            assert!(bytes <= MAX_STORED_BYTES + 200, "{bytes}");
            assert!(parts[0].new.ends_with("not shown\n"));
        }

        // A part never begins within a character or a line ending.
        let ends = large.replace('\n', "\r\n");
        let parts = change(Some(&ends), &ends.replace("line 7 ", "Zeile 7 "));
        assert!(
            parts.parts()[0]
                .old
                .as_ref()
                .unwrap()
                .starts_with("line 4 of the file\r\n")
        );
    }
}
