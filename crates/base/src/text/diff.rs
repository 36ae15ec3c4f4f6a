//! Differences between two texts. All code that displays or uses changes goes through this module,
//! so that a change looks the same everywhere, and the comparison is compiled once: for numbers
//! that represent the pieces, with one algorithm. (`TextDiff` compiles all of its algorithms for
//! every type of text, which takes 3 % of the program's build.)

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::time::{Duration, Instant};

use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::udiff::UnifiedHunkHeader;
use similar::{Change, ChangeTag, DiffOp, DiffableStr, group_diff_ops};

/// The time limit of the search for the fewest changes. After it the changes are still correct, but
/// may not be the fewest.
const SEARCH_TIMEOUT: Duration = Duration::from_millis(200);

/// The lines of two texts, and the operations that turn one into the other.
pub struct LineDiff<'a> {
    old: Vec<&'a str>,
    new: Vec<&'a str>,
    ops: Vec<DiffOp>,
    /// The number of lines before the old and the new text, if both are parts of longer texts.
    before: (usize, usize),
}

impl<'a> LineDiff<'a> {
    /// Compares two texts. Lines end with `\n`, `\r\n` or `\r`, and include their ends.
    pub fn of(old: &'a str, new: &'a str) -> Self {
        let old = old.tokenize_lines();
        let new = new.tokenize_lines();
        let ops = compare(&old, &new, Instant::now().checked_add(SEARCH_TIMEOUT));
        Self {
            old,
            new,
            ops,
            before: (0, 0),
        }
    }

    /// Compares parts of longer texts, given the number of lines before each.
    pub fn of_parts(old: &'a str, new: &'a str, before: (usize, usize)) -> Self {
        Self {
            before,
            ..Self::of(old, new)
        }
    }

    /// Returns some lines of the old text.
    pub fn old_lines(&self, lines: Range<usize>) -> String {
        self.old[lines].concat()
    }

    /// Returns some lines of the new text.
    pub fn new_lines(&self, lines: Range<usize>) -> String {
        self.new[lines].concat()
    }

    /// Returns the operations, including those for unchanged lines.
    pub fn ops(&self) -> &[DiffOp] {
        &self.ops
    }

    /// Returns the lines of one operation, removed lines before added ones.
    pub fn changes(&self, op: &DiffOp) -> impl Iterator<Item = Change<&'a str>> + use<'_, 'a> {
        op.iter_changes(&*self.old, &*self.new)
    }

    /// Returns the number of a line in the new text, or of a removed line in the old one, from 1.
    pub fn number(&self, change: &Change<&str>) -> usize {
        let (old, new) = self.before;
        match change.new_index() {
            Some(index) => new + index + 1,
            None => old + change.old_index().unwrap_or_default() + 1,
        }
    }

    /// Returns the number of added and of removed lines.
    pub fn count(&self) -> (usize, usize) {
        let changes = self
            .ops
            .iter()
            .filter(|op| !matches!(op, DiffOp::Equal { .. }));
        changes.fold((0, 0), |(added, removed), op| {
            (added + op.new_range().len(), removed + op.old_range().len())
        })
    }

    /// Returns the changes with three lines of context, with nearby changes in one group.
    pub fn groups(&self) -> Vec<Vec<DiffOp>> {
        group_diff_ops(self.ops.clone(), 3)
    }

    /// Returns the hunks of a unified diff, which are empty if the texts are equal. The file names
    /// precede the first hunk.
    pub fn unified(&self, names: Option<(&str, &str)>) -> String {
        let mut out = String::new();
        for group in self.groups().iter().filter(|group| !group.is_empty()) {
            if let Some((from, to)) = names
                && out.is_empty()
            {
                put(&mut out, format_args!("--- {from}\n+++ {to}\n"));
            }
            let shifted: Vec<DiffOp> = group.iter().map(|op| shifted(*op, self.before)).collect();
            put(
                &mut out,
                format_args!("{}\n", UnifiedHunkHeader::new(&shifted)),
            );
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

/// Moves an operation down in both texts, by a number of lines in each.
fn shifted(op: DiffOp, (old, new): (usize, usize)) -> DiffOp {
    let old_index = op.old_range().start + old;
    let new_index = op.new_range().start + new;
    let old_len = op.old_range().len();
    let new_len = op.new_range().len();
    match op {
        DiffOp::Equal { len, .. } => DiffOp::Equal {
            old_index,
            new_index,
            len,
        },
        DiffOp::Delete { .. } => DiffOp::Delete {
            old_index,
            old_len,
            new_index,
        },
        DiffOp::Insert { .. } => DiffOp::Insert {
            old_index,
            new_index,
            new_len,
        },
        DiffOp::Replace { .. } => DiffOp::Replace {
            old_index,
            old_len,
            new_index,
            new_len,
        },
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    out.write_fmt(text).ok();
}

/// Compares texts that are already divided into pieces. The search for the fewest changes has no
/// time limit, because the result of a merge must not depend on the load of the machine.
pub fn pieces(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    compare(old, new, None)
}

/// The number of bytes that are compared at once.
const BLOCK: usize = 4 << 10;

/// Returns the number of bytes that two texts share at their beginning.
pub fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let blocks = one.chunks_exact(BLOCK).zip(other.chunks_exact(BLOCK));
    let same = BLOCK * blocks.take_while(|(one, other)| one == other).count();
    let rest = one[same..].iter().zip(&other[same..]);
    same + rest.take_while(|(one, other)| one == other).count()
}

/// Returns the number of bytes that two texts share at their end.
pub fn common_suffix(one: &[u8], other: &[u8]) -> usize {
    let blocks = one.rchunks_exact(BLOCK).zip(other.rchunks_exact(BLOCK));
    let same = BLOCK * blocks.take_while(|(one, other)| one == other).count();
    let one = one[..one.len() - same].iter().rev();
    let other = other[..other.len() - same].iter().rev();
    same + one
        .zip(other)
        .take_while(|(one, other)| one == other)
        .count()
}

/// Compares texts that are divided into pieces. After `limit` the changes may not be the fewest.
fn compare(old: &[&str], new: &[&str], limit: Option<Instant>) -> Vec<DiffOp> {
    let mut known = HashMap::with_capacity(old.len());
    let old = numbered(old, &mut known);
    let new = numbered(new, &mut known);
    let mut ops = Compact::new(Replace::new(Capture::new()), &*old, &*new);
    // `Capture` returns no errors.
    myers::diff_deadline(&mut ops, &*old, 0..old.len(), &*new, 0..new.len(), limit).ok();
    ops.into_inner().into_inner().into_ops()
}

/// Replaces each piece by a number; equal pieces have equal numbers.
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

    /// Reconstructs `new` from the changes.
    fn reconstructed(diff: &LineDiff<'_>) -> String {
        let changes = diff.ops().iter().flat_map(|op| diff.changes(op));
        changes
            .filter(|change| change.new_index().is_some())
            .map(|change| change.value())
            .collect()
    }

    #[test]
    fn dissimilar_texts_are_compared_in_time() {
        let text = |step: u64| {
            (0..50_000)
                .map(|n| format!("{}\n", n * n * step % 1_009))
                .collect::<String>()
        };
        let old = text(7_919);
        let new = text(104_729);
        assert!(reconstructed(&LineDiff::of(&old, &new)) == new);
    }

    #[test]
    fn common_parts_may_end_within_a_block() {
        let text = vec![b'a'; 3 * BLOCK + 5];
        let changed_at = [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 7, text.len() - 1];
        for at in changed_at {
            let mut changed = text.clone();
            changed[at] = b'b';
            assert_eq!(common_prefix(&text, &changed), at);
            assert_eq!(common_suffix(&text, &changed), text.len() - at - 1);
            let shorter = &text[..at];
            assert_eq!(common_prefix(&text, shorter), at);
            assert_eq!(common_suffix(&text, shorter), at);
        }
        assert_eq!(common_prefix(&text, &text), text.len());
        assert_eq!(common_suffix(&text, &text), text.len());
    }

    proptest! {
        /// Uses texts that are long enough for the library to choose another algorithm.
        #[test]
        fn long_texts_have_as_many_changes_as_text_diff_finds(old in "([a-e]\n){100,200}", new in "([a-e]\n){100,200}") {
            let diff = LineDiff::of(&old, &new);
            let whole = similar::TextDiff::from_lines(&old, &new);
            let count = |tag| whole.iter_all_changes().filter(|change| change.tag() == tag).count();
            prop_assert_eq!(diff.count(), (count(ChangeTag::Insert), count(ChangeTag::Delete)));
            prop_assert_eq!(reconstructed(&diff), new);
        }

        /// Uses `TextDiff` as the oracle.
        #[test]
        fn unified_diff_matches_text_diff(old in "([abc]{0,1}(\n|\r\n|\r| )){0,40}", new in "([abc]{0,1}(\n|\r\n|\r| )){0,40}") {
            let whole = similar::TextDiff::from_lines(&old, &new);
            let diff = LineDiff::of(&old, &new);
            prop_assert_eq!(diff.unified(Some(("a", "b"))), whole.unified_diff().header("a", "b").to_string());
            prop_assert_eq!(diff.unified(None), whole.unified_diff().to_string());
            let count = |tag| whole.iter_all_changes().filter(|change| change.tag() == tag).count();
            prop_assert_eq!(diff.count(), (count(ChangeTag::Insert), count(ChangeTag::Delete)));
            prop_assert_eq!(reconstructed(&diff), new);
        }
    }
}
