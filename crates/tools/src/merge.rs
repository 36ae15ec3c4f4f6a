//! A change that was written against lines as a model remembers them, made to the lines as they are.
//!
//! Of the lines that the change leaves alone, those of the file stay, in whatever they differ. Lines
//! that it replaces must be the file's but for their spelling and indentation: what nobody has named
//! is not lost. Pure.

use std::ops::Range;

use similar::DiffOp;

use super::indent::reindented;
use super::spelling::{FoldLevel, FoldedText, carried};
use base::text;

/// Makes the change of `old` into `new` to `found`; all of them lines without their ends. None where the
/// change replaces lines that are others in `found`.
pub(super) fn merged(old: &[&str], new: &[&str], found: &[&str]) -> Option<Vec<String>> {
    // Written for the place it goes to: in its indentation.
    let (old_text, new_text) = (old.join("\n"), new.join("\n"));
    let (old_text, new_text) = (reindented(&old_text, old, found), reindented(&new_text, old, found));
    let (old, new): (Vec<&str>, Vec<&str>) = (old_text.split('\n').collect(), new_text.split('\n').collect());
    let plain = |lines: &[&str]| -> Vec<String> {
        lines.iter().map(|line| FoldedText::of(line, FoldLevel::Blanks).text).collect()
    };
    let (plain_old, plain_found) = (plain(&old), plain(found));
    let plain_old: Vec<&str> = plain_old.iter().map(String::as_str).collect();
    let plain_found: Vec<&str> = plain_found.iter().map(String::as_str).collect();
    // Where each line of `old` is in `found`.
    let mut place: Vec<Option<usize>> = vec![None; old.len()];
    for op in text::diff::pieces(&plain_old, &plain_found) {
        if let DiffOp::Equal { old_index, new_index, len } = op {
            for n in 0..len {
                place[old_index + n] = Some(new_index + n);
            }
        }
    }
    // The lines of `found` that some lines of `old` are, all of them and in a row.
    let there = |lines: &Range<usize>| -> Option<Range<usize>> {
        let before = if lines.start == 0 { Some(0) } else { place[lines.start - 1].map(|at| at + 1) };
        let after = if lines.end == old.len() { Some(found.len()) } else { place[lines.end] };
        let known = |at: usize| before.is_none_or(|before| before == at);
        match lines.is_empty() {
            true => before.filter(|at| after == Some(*at)).map(|at| at..at),
            false => {
                let first = place[lines.start]?;
                let whole = lines.clone().all(|n| place[n] == Some(first + n - lines.start));
                let last = first + lines.len();
                (whole && known(first) && after.is_none_or(|after| after == last)).then_some(first..last)
            }
        }
    };
    let mut out: Vec<String> = Vec::new();
    let mut copied = 0;
    for op in text::diff::pieces(&old, &new) {
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        let (from, to) = (op.old_range(), op.new_range());
        let at = there(&from).filter(|at| at.start >= copied)?;
        out.extend(found[copied..at.start].iter().map(|line| (*line).to_owned()));
        copied = at.end;
        if !to.is_empty() {
            let (was, becomes) = (old[from].join("\n"), new[to].join("\n"));
            out.extend(carried(&was, &becomes, &found[at].join("\n")).split('\n').map(str::to_owned));
        }
    }
    out.extend(found[copied..].iter().map(|line| (*line).to_owned()));
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<&str> {
        text.split('\n').collect()
    }

    #[test]
    fn changes_are_made_to_what_is_there() {
        // Old, new, found, result.
        let table = [
            ("a\nb\nc", "a\nB\nc", "a\nb\nc", Some("a\nB\nc")),
            // What the change leaves alone stays as it is in the file.
            ("a\nb\nc", "a\nB\nc", "a  \nb\nother", Some("a  \nB\nother")),
            ("a\nb\nc", "x\na\nb\nc", "a\nsomething\nc", Some("x\na\nsomething\nc")),
            ("a\nb\nc\nd", "a\nb\nc\nD", "a\nb\nmore\nc\nd", Some("a\nb\nmore\nc\nD")),
            // What it replaces must be there.
            ("a\nb\nc", "a\nB\nc", "a\nother\nc", None),
            ("a\nb\nc", "", "a\nother\nc", None),
            ("a\nb\nc", "a\nc", "a\nb\nmore\nc", None),
            ("a\nb", "a\nx\nb", "a\nmore\nb", None),
            // In the file's indentation and spelling.
            (
                "if x {\n    y-z\n}",
                "if x {\n    y-z\n    w\n}",
                "\tif x {\n\t\ty\u{2011}z\n\t}",
                Some("\tif x {\n\t\ty\u{2011}z\n\t\tw\n\t}"),
            ),
            ("f(\"a\")\ng", "f(\"b\")\ng", "f(\u{201c}a\u{201d}) \ng", Some("f(\u{201c}b\u{201d}) \ng")),
            ("a", "", "  a", Some("")),
            ("a\n", "", "a\n", Some("")),
            ("a\nb\n", "b\n", "  a\n  b\n", Some("  b\n")),
        ];
        for (old, new, found, expected) in table {
            let made = merged(&lines(old), &lines(new), &lines(found)).map(|lines| lines.join("\n"));
            assert_eq!(made.as_deref(), expected, "{old:?} {new:?} {found:?}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { cases: 10_000, failure_persistence: None, ..Default::default() })]

        /// Against the lines it was written for, a change is the new lines. Against others, no line of the file is
        /// lost that the old ones do not have.
        #[test]
        fn no_line_is_lost_that_was_not_named(old in "[abc]?(\n[abc]?){0,5}", new in "[abcx]?(\n[abcx]?){0,5}", found in "[abcd]?(\n[abcd]?){0,5}") {
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
