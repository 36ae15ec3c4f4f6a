//! What is different between two texts. Everything that shows or uses changes asks here, so that one is shown alike
//! everywhere, and the comparison is compiled once: for numbers that stand for the pieces, with one algorithm.
//! (`TextDiff` compiles all of its algorithms for every kind of text: three hundredths of the program's build.)

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::time::{Duration, Instant};

use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::udiff::UnifiedHunkHeader;
use similar::{Change, ChangeTag, DiffOp, DiffableStr, group_diff_ops};

/// How long the fewest changes are looked for. After that there are more of them than there need be, and all are right.
const LIMIT: Duration = Duration::from_millis(200);

/// The lines of two texts, and how one becomes the other.
pub struct LineDiff<'a> {
    old: Vec<&'a str>,
    new: Vec<&'a str>,
    ops: Vec<DiffOp>,
    /// The lines before the old and the new text, where both are parts of longer ones.
    before: (usize, usize),
}

impl<'a> LineDiff<'a> {
    /// How `old` becomes `new`. Lines end with `\n`, `\r\n` or `\r`, and keep their ends.
    pub fn of(old: &'a str, new: &'a str) -> Self {
        let (old, new) = (old.tokenize_lines(), new.tokenize_lines());
        Self { ops: compare(&old, &new, Instant::now().checked_add(LIMIT)), old, new, before: (0, 0) }
    }

    /// The same for parts of longer texts, with the lines before each.
    pub fn of_parts(old: &'a str, new: &'a str, before: (usize, usize)) -> Self {
        Self { before, ..Self::of(old, new) }
    }

    /// Some lines of the old text.
    pub fn old_lines(&self, lines: Range<usize>) -> String {
        self.old[lines].concat()
    }

    /// Some lines of the new text.
    pub fn new_lines(&self, lines: Range<usize>) -> String {
        self.new[lines].concat()
    }

    /// What is kept, and what becomes what.
    pub fn ops(&self) -> &[DiffOp] {
        &self.ops
    }

    /// The lines of one step, those that go before those that come.
    pub fn changes(&self, op: &DiffOp) -> impl Iterator<Item = Change<&'a str>> + use<'_, 'a> {
        op.iter_changes(&*self.old, &*self.new)
    }

    /// How many lines come and how many go.
    pub fn count(&self) -> (usize, usize) {
        let all = self.ops.iter().filter(|op| !matches!(op, DiffOp::Equal { .. }));
        all.fold((0, 0), |(come, go), op| (come + op.new_range().len(), go + op.old_range().len()))
    }

    /// The changes, each with three lines around it; those that are close together in one group.
    pub fn groups(&self) -> Vec<Vec<DiffOp>> {
        group_diff_ops(self.ops.clone(), 3)
    }

    /// The hunks of a unified diff: nothing where the texts are the same. The names come before the first.
    pub fn unified(&self, names: Option<(&str, &str)>) -> String {
        let mut out = String::new();
        for group in self.groups().iter().filter(|group| !group.is_empty()) {
            if let Some((from, to)) = names.filter(|_| out.is_empty()) {
                put(&mut out, format_args!("--- {from}\n+++ {to}\n"));
            }
            let placed: Vec<DiffOp> = group.iter().map(|op| placed(*op, self.before)).collect();
            put(&mut out, format_args!("{}\n", UnifiedHunkHeader::new(&placed)));
            for line in group.iter().flat_map(|op| self.changes(op)) {
                out.push(match line.tag() {
                    ChangeTag::Equal => ' ',
                    ChangeTag::Delete => '-',
                    ChangeTag::Insert => '+',
                });
                out.push_str(line.value());
                if line.missing_newline() {
                    out.push_str("\n\\ No newline at end of file\n");
                }
            }
        }
        out
    }
}

/// A step further down in both texts.
fn placed(op: DiffOp, (old, new): (usize, usize)) -> DiffOp {
    let (old_index, new_index) = (op.old_range().start + old, op.new_range().start + new);
    let (old_len, new_len) = (op.old_range().len(), op.new_range().len());
    match op {
        DiffOp::Equal { len, .. } => DiffOp::Equal { old_index, new_index, len },
        DiffOp::Delete { .. } => DiffOp::Delete { old_index, old_len, new_index },
        DiffOp::Insert { .. } => DiffOp::Insert { old_index, new_index, new_len },
        DiffOp::Replace { .. } => DiffOp::Replace { old_index, old_len, new_index, new_len },
    }
}

/// Writing to a string cannot fail.
fn put(out: &mut String, words: std::fmt::Arguments<'_>) {
    out.write_fmt(words).ok();
}

/// The pieces that differ, of texts that are cut into pieces already. The fewest changes are found, however long that
/// takes: what is merged must not depend on how busy the machine is.
pub fn pieces(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    compare(old, new, None)
}

fn compare(old: &[&str], new: &[&str], limit: Option<Instant>) -> Vec<DiffOp> {
    let mut known = HashMap::with_capacity(old.len());
    let (old, new) = (numbered(old, &mut known), numbered(new, &mut known));
    let mut found = Compact::new(Replace::new(Capture::new()), &*old, &*new);
    // What captures the steps refuses none.
    myers::diff_deadline(&mut found, &*old, 0..old.len(), &*new, 0..new.len(), limit).ok();
    found.into_inner().into_inner().into_ops()
}

/// The same number for the same piece.
fn numbered<'a>(pieces: &[&'a str], known: &mut HashMap<&'a str, usize>) -> Vec<usize> {
    let number = |piece: &&'a str| {
        let next = known.len();
        *known.entry(piece).or_insert(next)
    };
    pieces.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What `new` is, told by the lines of the changes.
    fn becomes(diff: &LineDiff<'_>) -> String {
        let all = diff.ops().iter().flat_map(|op| diff.changes(op));
        all.filter(|change| change.new_index().is_some()).map(|change| change.value()).collect()
    }

    #[test]
    fn texts_that_have_little_in_common() {
        let text = |step: u64| (0..50_000).map(|n| format!("{}\n", n * n * step % 1_009)).collect::<String>();
        let (old, new) = (text(7_919), text(104_729));
        assert!(becomes(&LineDiff::of(&old, &new)) == new);
    }

    proptest! {
        /// Texts so long that the library takes another way.
        #[test]
        fn long_texts_have_no_more_changes_than_the_library_finds(old in "([a-e]\n){100,200}", new in "([a-e]\n){100,200}") {
            let diff = LineDiff::of(&old, &new);
            let whole = similar::TextDiff::from_lines(&old, &new);
            let count = |tag| whole.iter_all_changes().filter(|change| change.tag() == tag).count();
            prop_assert_eq!(diff.count(), (count(ChangeTag::Insert), count(ChangeTag::Delete)));
            prop_assert_eq!(becomes(&diff), new);
        }

        /// The oracle is the library's own whole comparison.
        #[test]
        fn a_unified_diff_is_the_library_s(old in "([abc]{0,1}(\n|\r\n|\r| )){0,40}", new in "([abc]{0,1}(\n|\r\n|\r| )){0,40}") {
            let whole = similar::TextDiff::from_lines(&old, &new);
            let diff = LineDiff::of(&old, &new);
            prop_assert_eq!(diff.unified(Some(("a", "b"))), whole.unified_diff().header("a", "b").to_string());
            prop_assert_eq!(diff.unified(None), whole.unified_diff().to_string());
            let count = |tag| whole.iter_all_changes().filter(|change| change.tag() == tag).count();
            prop_assert_eq!(diff.count(), (count(ChangeTag::Insert), count(ChangeTag::Delete)));
            prop_assert_eq!(becomes(&diff), new);
        }
    }
}
