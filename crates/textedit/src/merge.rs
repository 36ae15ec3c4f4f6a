//! Applies a change that was written against an inexact quote to the actual lines.
//!
//! Lines that the change preserves remain as they are in the file, however they differ from the
//! quote. Lines that it replaces may differ from the quote only in typographic variants and
//! indentation, so that no text is lost that was not quoted. Pure.

use std::ops::Range;

use similar::DiffOp;

use crate::indent::reindent;
use crate::unicode_folding::{FoldLevel, FoldedText, apply_to_variant};
use base::text;

/// Applies the change of `old` into `new` to `found`; all of them are lines without their ends.
/// Returns `None` if the change replaces lines that are different in `found`.
pub(crate) fn merged(old: &[&str], new: &[&str], found: &[&str]) -> Option<Vec<String>> {
    // Adapt the change to the indentation of `found`.
    let old_text = old.join("\n");
    let new_text = new.join("\n");
    let old_text = reindent(&old_text, old, found);
    let new_text = reindent(&new_text, old, found);
    let old: Vec<&str> = old_text.split('\n').collect();
    let new: Vec<&str> = new_text.split('\n').collect();
    let plain_old = plain(&old);
    let plain_found = plain(found);
    let plain_old: Vec<&str> = plain_old.iter().map(String::as_str).collect();
    let plain_found: Vec<&str> = plain_found.iter().map(String::as_str).collect();
    // The position in `found` of each line of `old`.
    let mut new_index_of: Vec<Option<usize>> = vec![None; old.len()];
    for op in text::diff::pieces(&plain_old, &plain_found) {
        if let DiffOp::Equal {
            old_index,
            new_index,
            len,
        } = op
        {
            for n in 0..len {
                new_index_of[old_index + n] = Some(new_index + n);
            }
        }
    }
    // Returns the consecutive lines of `found` that correspond to lines of `old`.
    let there = |lines: &Range<usize>| -> Option<Range<usize>> {
        let before = if lines.start == 0 {
            Some(0)
        } else {
            new_index_of[lines.start - 1].map(|at| at + 1)
        };
        let after = if lines.end == old.len() {
            Some(found.len())
        } else {
            new_index_of[lines.end]
        };
        let known = |at: usize| before.is_none_or(|before| before == at);
        if lines.is_empty() {
            let at = before?;
            return (after == Some(at)).then_some(at..at);
        }
        let first = new_index_of[lines.start]?;
        let whole = lines
            .clone()
            .all(|n| new_index_of[n] == Some(first + n - lines.start));
        let last = first + lines.len();
        (whole && known(first) && after.is_none_or(|after| after == last)).then_some(first..last)
    };
    let mut out: Vec<String> = Vec::new();
    let mut copied = 0;
    for op in text::diff::pieces(&old, &new) {
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        let from = op.old_range();
        let to = op.new_range();
        let at = there(&from).filter(|at| at.start >= copied)?;
        out.extend(
            found[copied..at.start]
                .iter()
                .map(|line| (*line).to_owned()),
        );
        copied = at.end;
        if !to.is_empty() {
            let was = old[from].join("\n");
            let becomes = new[to].join("\n");
            out.extend(
                apply_to_variant(&was, &becomes, &found[at].join("\n"))
                    .split('\n')
                    .map(str::to_owned),
            );
        }
    }
    out.extend(found[copied..].iter().map(|line| (*line).to_owned()));
    Some(out)
}

/// Returns the lines in plain characters, without differences of blanks.
fn plain(lines: &[&str]) -> Vec<String> {
    lines
        .iter()
        .map(|line| FoldedText::of(line, FoldLevel::Blanks).text)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<&str> {
        text.split('\n').collect()
    }

    #[test]
    fn changes_apply_to_the_actual_lines() {
        // Old, new, found, result.
        let table = [
            ("a\nb\nc", "a\nB\nc", "a\nb\nc", Some("a\nB\nc")),
            // Lines that the change preserves remain as in the file.
            ("a\nb\nc", "a\nB\nc", "a  \nb\nother", Some("a  \nB\nother")),
            (
                "a\nb\nc",
                "x\na\nb\nc",
                "a\nsomething\nc",
                Some("x\na\nsomething\nc"),
            ),
            (
                "a\nb\nc\nd",
                "a\nb\nc\nD",
                "a\nb\nmore\nc\nd",
                Some("a\nb\nmore\nc\nD"),
            ),
            // Lines that it replaces must exist.
            ("a\nb\nc", "a\nB\nc", "a\nother\nc", None),
            ("a\nb\nc", "", "a\nother\nc", None),
            ("a\nb\nc", "a\nc", "a\nb\nmore\nc", None),
            ("a\nb", "a\nx\nb", "a\nmore\nb", None),
            // In the file's indentation and characters.
            (
                "if x {\n    y-z\n}",
                "if x {\n    y-z\n    w\n}",
                "\tif x {\n\t\ty\u{2011}z\n\t}",
                Some("\tif x {\n\t\ty\u{2011}z\n\t\tw\n\t}"),
            ),
            (
                "f(\"a\")\ng",
                "f(\"b\")\ng",
                "f(\u{201c}a\u{201d}) \ng",
                Some("f(\u{201c}b\u{201d}) \ng"),
            ),
            ("a", "", "  a", Some("")),
            ("a\n", "", "a\n", Some("")),
            ("a\nb\n", "b\n", "  a\n  b\n", Some("  b\n")),
        ];
        for (old, new, found, expected) in table {
            let made =
                merged(&lines(old), &lines(new), &lines(found)).map(|lines| lines.join("\n"));
            assert_eq!(made.as_deref(), expected, "{old:?} {new:?} {found:?}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { cases: 10_000, failure_persistence: None, ..Default::default() })]

        /// Against its own lines, a change yields the new lines. Against others, no line of the
        /// file is lost unless the old lines have it.
        #[test]
        fn unquoted_lines_are_never_lost(old in "[abc]?(\n[abc]?){0,5}", new in "[abcx]?(\n[abcx]?){0,5}", found in "[abcd]?(\n[abcd]?){0,5}") {
            let made = |found: &str| merged(&lines(&old), &lines(&new), &lines(found)).map(|lines| lines.join("\n"));
            proptest::prop_assert_eq!(made(&old), Some(new.clone()));
            if let Some(made) = made(&found) {
                for line in lines(&found).into_iter().filter(|line| !lines(&old).contains(line)) {
                    let count = |text: &str| lines(text).iter().filter(|other| **other == line).count();
                    proptest::prop_assert!(count(&made) >= count(&found), "{:?} -> {:?} on {:?}: {:?}", old, new, found, made);
                }
            }
        }
    }
}
